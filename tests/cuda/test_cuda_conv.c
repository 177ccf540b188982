/*
 * tests/cuda/test_cuda_conv.c -- convolutions through cuDNN: what it is asked for, on a fake of it.
 *
 * The three functions are checked by what defines them: y against the sum, written out here over padded
 * images, and the gradients as the adjoints of that linear map. Our own kernel, which runs where cuDNN is not, is
 * compared with the CPU's. The real library, where it is found, is asked for engines.
 */
#include "tests/cuda/cuda_support.h"

#include "eager/cuda/dnn_impl.h"
#include "tests/cuda/real_dnn.h"
#include "tests/support/effort.h"
#include "tests/support/support.h"
#include "weft/weft.h"

enum { MOST = 4000 };

static wf_cuda_block *block(const double *v, int64_t n, int dtype)
{
    size_t size = weft_dtype_size((weft_dtype)dtype);
    char *host = malloc((size_t)n * size);
    for (int64_t i = 0; i < n; i++) {
        test_store(host + (size_t)i * size, dtype, v[i]);
    }
    wf_cuda_block *b = wf_cuda_alloc(0, (size_t)n * size, &why);
    cr_assert(b, "%s", why.rule);
    OK(wf_cuda_use(b, true, &why));
    OK(wf_cuda_upload(0, b->address, host, (size_t)n * size, &why));
    free(host);
    return b;
}

static void fetch(double *v, const wf_cuda_block *b, int64_t n, int dtype)
{
    static char host[MOST * 8];
    size_t size = weft_dtype_size((weft_dtype)dtype);
    OK(wf_cuda_download(0, host, b->address, (size_t)n * size, &why));
    for (int64_t i = 0; i < n; i++) {
        v[i] = (double)test_load(host + (size_t)i * size, dtype);
    }
}

static int64_t count(const int64_t *d)
{
    return d[0] * d[1] * d[2] * d[3];
}

static int64_t place(const int64_t *strides, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
}

static void strides_of(int64_t *s, const int64_t *d, bool last)
{
    const int64_t nchw[4] = {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1};
    const int64_t nhwc[4] = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
    memcpy(s, last ? nhwc : nchw, sizeof nchw);
}

/* One element of the convolution by its definition. */
static double element(const wf_cuda_conv *c, const double *x, const double *w, int64_t n, int64_t o,
                      int64_t h, int64_t v)
{
    double sum = 0;
    int64_t group = o / (c->w[0] / c->groups);
    for (int64_t i = 0; i < c->w[1]; i++)
        for (int64_t k = 0; k < c->w[2] * c->w[3]; k++) {
            int64_t r = h * c->stride[0] + k / c->w[3] * c->dilation[0] - c->pad[0];
            int64_t q = v * c->stride[1] + k % c->w[3] * c->dilation[1] - c->pad[1];
            bool in = r >= 0 && q >= 0 && r < c->x[2] && q < c->x[3];
            sum += in ? x[place(c->x_strides, n, group * c->w[1] + i, r, q)] *
                            w[(o * c->w[1] + i) * c->w[2] * c->w[3] + k]
                      : 0;
        }
    return sum;
}

static void check(wf_cuda_conv c, int dtype, bool add, test_rng *r)
{
    static double x[MOST], w[MOST], y[MOST], g[MOST], dx[MOST], dw[MOST];
    int64_t nx = count(c.x), nw = count(c.w), ny = count(c.y);
    cr_assert(nx <= MOST && nw <= MOST && ny <= MOST);
    for (int64_t i = 0; i < MOST; i++) {
        x[i] = (double)test_between(r, -3, 3);
        w[i] = (double)test_between(r, -3, 3);
        g[i] = (double)test_between(r, -3, 3);
    }
    wf_cuda_block *bx = block(x, nx, dtype), *bw = block(w, nw, dtype), *by = block(g, ny, dtype),
                  *bdx = block(x, nx, dtype), *bdw = block(w, nw, dtype), *bg = block(g, ny, dtype);
    c.dtype = dtype;
    c.what = WF_CUDA_CONV_FORWARD;
    c.add = add;
    c.x_data = bx->address;
    c.w_data = bw->address;
    c.y_data = by->address;
    OK(wf_cuda_conv_run(0, &c, &why));
    c.what = WF_CUDA_CONV_DX;
    c.x_data = bdx->address;
    c.y_data = bg->address;
    OK(wf_cuda_conv_run(0, &c, &why));
    c.what = WF_CUDA_CONV_DW;
    c.x_data = bx->address;
    c.w_data = bdw->address;
    OK(wf_cuda_conv_run(0, &c, &why));
    fetch(y, by, ny, dtype);
    fetch(dx, bdx, nx, dtype);
    fetch(dw, bdw, nw, dtype);
    double gy = 0, xdx = 0, wdw = 0;
    for (int64_t n = 0; n < c.y[0]; n++)
        for (int64_t o = 0; o < c.y[1]; o++)
            for (int64_t i = 0; i < c.y[2] * c.y[3]; i++) {
                int64_t at = place(c.y_strides, n, o, i / c.y[3], i % c.y[3]);
                double want = element(&c, x, w, n, o, i / c.y[3], i % c.y[3]);
                cr_assert_eq(y[at], want + (add ? g[at] : 0));
                gy += g[at] * want;
            }
    for (int64_t i = 0; i < nx; i++) {
        xdx += x[i] * dx[i];
    }
    for (int64_t i = 0; i < nw; i++) {
        wdw += w[i] * dw[i];
    }
    cr_assert(gy == xdx && gy == wdw, "%g %g %g", gy, xdx, wdw);
    wf_cuda_block *all[] = {bx, bw, by, bdx, bdw, bg};
    for (int i = 0; i < 6; i++) {
        wf_cuda_free(all[i]);
    }
}

static const wf_cuda_conv cases[] = {
    {.x = {2, 3, 5, 6}, .w = {4, 3, 3, 2}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1},
    {.x = {1, 4, 7, 5},
     .w = {6, 2, 3, 3},
     .stride = {2, 1},
     .pad = {1, 2},
     .dilation = {1, 2},
     .groups = 2},
    {.x = {3, 2, 4, 4}, .w = {2, 1, 1, 1}, .stride = {3, 2}, .dilation = {1, 1}, .groups = 2},
};

static wf_cuda_conv with_y(const wf_cuda_conv *from, bool x_last, bool y_last)
{
    wf_cuda_conv c = *from;
    c.y[0] = c.x[0];
    c.y[1] = c.w[0];
    for (int i = 0; i < 2; i++) {
        int64_t reach = c.dilation[i] * (c.w[2 + i] - 1) + 1;
        c.y[2 + i] = (c.x[2 + i] + 2 * c.pad[i] - reach) / c.stride[i] + 1;
    }
    strides_of(c.x_strides, c.x, x_last);
    strides_of(c.y_strides, c.y, y_last);
    return c;
}

static void with_dnn(void)
{
    setenv("WEFT_CUDNN", WEFT_FAKE_CUDNN, 1);
    with_fake(FAKE_LATE, 3);
}

Test(cuda_conv, forward_and_both_gradients)
{
    with_dnn();
    cr_assert_str_eq(wf_cuda_conv_name(), "cuDNN 9.19.0");
    test_rng r = {1};
    static const int types[] = {WEFT_F32, WEFT_F64, WEFT_F16};
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 8; k++)
                check(with_y(&cases[i], k & 1, k & 2), types[t], k & 4, &r);
    int64_t plans = wf_cuda_conv_plans();
    check(with_y(&cases[0], false, true), WEFT_F32, false, &r);
    cr_assert_eq(wf_cuda_conv_plans(), plans, "equal shapes ask the library nothing");
    wf_cuda_counters n;
    wf_cuda_get_counters(&n);
    cr_assert_eq(n.hidden_waits, 0);
    close_fake();
}

/* n numbers of v, which repeats itself every 7; odd: in memory of the device behind one more. */
static weft_tensor part(weft_tensor v, int64_t from, int64_t n, weft_device d, bool odd)
{
    weft_tensor t = weft_to(weft_slice(v, 0, from + 7 - odd, from + 7 + n, 1), d);
    return odd ? weft_narrow(t, 0, 1, n) : t;
}

/* The row, from public functions: strided operands, a bias, gradients; all numbers are small integers. */
static void row(weft_device d, bool odd, double out[4])
{
    weft_scope s = weft_scope_begin();
    weft_tensor v = weft_arange(0, 2000, 1, WEFT_F32);
    v = weft_sub(weft_remainder(v, weft_f(7)), weft_f(3));
    weft_tensor x = weft_reshape(part(v, 0, 2 * 4 * 6 * 5, d, odd), weft_shape(2, 6, 5, 4));
    x = weft_permute(x, weft_axes(0, 3, 1, 2)); /* NHWC memory */
    weft_tensor w = weft_reshape(part(v, 3, 6 * 2 * 3 * 3, d, odd), weft_shape(6, 2, 3, 3));
    weft_tensor b = weft_to(weft_slice(v, 0, 8, 14, 1), d);
    weft_requires_grad_(x, true);
    weft_requires_grad_(w, true);
    weft_requires_grad_(b, true);
    weft_tensor y = weft_conv2d(.x = x, .weight = w, .bias = b, .stride = weft_shape(2, 1),
                                .padding = weft_shape(1), .groups = 2);
    weft_tensor loss = weft_sum(weft_mul(y, y));
    cr_assert_eq(weft_backward(loss), WEFT_OK, "%s", weft_last_error());
    const weft_tensor g[] = {y, weft_grad(x), weft_grad(w), weft_grad(b)};
    for (int i = 0; i < 4; i++) {
        weft_tensor n = weft_reshape(weft_to(weft_contiguous(g[i]), WEFT_CPU), weft_shape(-1));
        weft_tensor k =
            weft_add(weft_remainder(weft_arange(0, (double)weft_numel(n), 1, WEFT_F32), weft_f(5)),
                     weft_f(1));
        out[i] = weft_item_f64(weft_sum(weft_mul(n, k)));
        cr_assert(weft_last_status() == WEFT_OK, "%d: %s", i, weft_last_error());
    }
    weft_scope_end(s);
}

Test(cuda_conv, the_row)
{
    setenv("WEFT_NVRTC", WEFT_FAKE_NVRTC, 1);
    with_dnn();
    double host[4], device[4], odd[4];
    row(WEFT_CPU, false, host);
    row(WEFT_CUDA(0), false, device);
    cr_assert(wf_cuda_conv_plans() == 3, "the library was used");
    row(WEFT_CUDA(0), true, odd); /* which the library refuses: of copies */
    cr_assert_gt(wf_cuda_conv_plans(), 3, "the library was used");
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(host[i], device[i], "%d: %g %g", i, host[i], device[i]);
        cr_assert_eq(host[i], odd[i], "%d, odd: %g %g", i, host[i], odd[i]);
    }
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
}

static void doctor_says(const char *what)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    weft_doctor(f);
    fclose(f);
    cr_assert(strstr(text, what), "%s", text);
    free(text);
}

/* Of an image that lies as NHWC beside NCHW weights and results: dense copies go to the library, and not the whole convolution
 * to our own kernel. What was refused is counted and told. */
Test(cuda_conv, a_library_without_mixed_layouts)
{
    setenv("WEFT_NVRTC", WEFT_FAKE_NVRTC, 1);
    setenv("FAKE_CUDNN_MIXED", "0", 1);
    with_dnn();
    double host[4], device[4];
    weft_cuda_counters before, after;
    weft_cuda_get_counters(&before);
    row(WEFT_CPU, false, host);
    row(WEFT_CUDA(0), false, device);
    cr_assert_eq(wf_cuda_conv_plans(), 5, "three, and two that it refused: %d",
                 (int)wf_cuda_conv_plans());
    weft_cuda_get_counters(&after);
    cr_assert_eq(after.refused - before.refused, 2);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(host[i], device[i], "%d: %g %g", i, host[i], device[i]);
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
    doctor_says("2 shapes that a library has nothing for, cuDNN convolution the last");
}

Test(cuda_conv, a_library_that_does_not_start)
{
    setenv("FAKE_CUDNN_FAIL", "1", 1);
    with_dnn();
    doctor_says("cuDNN 9.19.0, which does not start on cuda:0");
    close_fake();
}

/* -- the kernel of our own ------------------------------------------------------------------------------------ */

typedef struct layer {
    int64_t n, c, h, w, o, kh, kw, stride[2], pad[2], dilation[2], groups;
    weft_dtype dtype;
    bool turned; /* x and w are views of other orders */
} layer;

/* Integers from -2 to 2, so that sums are exact in any order and type. */
static weft_tensor small(int64_t seed, const int64_t d[4], bool turned, weft_dtype dtype)
{
    weft_tensor v =
        weft_arange((double)seed, (double)(seed + d[0] * d[1] * d[2] * d[3]), 1, WEFT_I64);
    v = weft_remainder(weft_mul(v, weft_i(7919)), weft_i(31));
    v = weft_cast(weft_sub(weft_remainder(v, weft_i(5)), weft_i(2)), dtype);
    return turned ? weft_permute(weft_reshape(v, weft_shape(d[3], d[0], d[2], d[1])),
                                 weft_axes(1, 3, 2, 0))
                  : weft_reshape(v, weft_shape(d[0], d[1], d[2], d[3]));
}

/* y and the gradients of x, w and the bias, on the CPU. */
static void run_layer(const layer *l, weft_device d, weft_tensor out[4])
{
    weft_tensor x = small(1, (int64_t[]){l->n, l->c, l->h, l->w}, l->turned, l->dtype);
    weft_tensor w =
        small(2, (int64_t[]){l->o, l->c / l->groups, l->kh, l->kw}, l->turned, l->dtype);
    weft_tensor b =
        weft_cast(weft_remainder(weft_arange(0, (double)l->o, 1, WEFT_I64), weft_i(3)), l->dtype);
    weft_tensor in[3] = {weft_to(x, d), weft_to(w, d), weft_to(b, d)};
    for (int i = 0; i < 3; i++)
        cr_assert_eq(weft_requires_grad_(in[i], true), WEFT_OK);
    weft_tensor y =
        weft_conv2d(.x = in[0], .weight = in[1], .bias = in[2],
                    .stride = weft_shape(l->stride[0], l->stride[1]),
                    .padding = weft_shape(l->pad[0], l->pad[1]),
                    .dilation = weft_shape(l->dilation[0], l->dilation[1]), .groups = l->groups);
    cr_assert(weft_ok(y), "%s", weft_last_error());
    const int64_t dims[4] = {weft_dim(y, 0), weft_dim(y, 1), weft_dim(y, 2), weft_dim(y, 3)};
    weft_tensor g = small(3, dims, true, l->dtype);
    cr_assert_eq(weft_backward(weft_sum(weft_mul(y, weft_to(g, d)))), WEFT_OK, "%s",
                 weft_last_error());
    out[0] = weft_to(y, WEFT_CPU);
    for (int i = 0; i < 3; i++)
        out[1 + i] = weft_to(weft_grad(in[i]), WEFT_CPU);
}

static int64_t conv_fallbacks(void)
{
    weft_device_fallback f[64];
    int64_t sum = 0;
    const int n = weft_device_fallbacks(f, 64);
    for (int i = 0; i < n && i < 64; i++)
        sum += strncmp(f[i].op, "conv2d", 6) == 0 ? f[i].count : 0;
    return sum;
}

static void check_layer(const layer *l)
{
    static const char *const names[] = {"y", "dx", "dw", "db"};
    weft_scope s = weft_scope_begin();
    weft_tensor want[4], got[4];
    run_layer(l, WEFT_CPU, want);
    run_layer(l, WEFT_CUDA(0), got);
    for (int i = 0; i < 4; i++)
        cr_assert(weft_item_i64(weft_all(weft_equal(want[i], got[i]))) == 1,
                  "%s of %lldx%lldx%lldx%lld, %lld filters %lldx%lld, %lld groups, %s: %s",
                  names[i], (long long)l->n, (long long)l->c, (long long)l->h, (long long)l->w,
                  (long long)l->o, (long long)l->kh, (long long)l->kw, (long long)l->groups,
                  weft_dtype_name(l->dtype), weft_last_error());
    weft_scope_end(s);
}

Test(cuda_conv, without_the_library)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
    setenv("WEFT_NVRTC", WEFT_FAKE_NVRTC, 1);
    setenv("WEFT_CUDNN", "none", 1);
    with_fake(FAKE_LATE, 1);
    test_rng r = {5};
    for (int t = 0; t < (int)effort_of(24); t++) {
        layer l = {.n = test_between(&r, 1, 3),
                   .groups = test_between(&r, 1, 3),
                   .h = test_between(&r, 3, 11),
                   .w = test_between(&r, 3, 11),
                   .kh = test_between(&r, 1, 3),
                   .kw = test_between(&r, 1, 3),
                   .dtype = types[t % 4],
                   .turned = t % 3 == 0};
        l.c = l.groups * (test_between(&r, 1, 3));
        l.o = l.groups * (test_between(&r, 1, 4));
        for (int i = 0; i < 2; i++) {
            l.stride[i] = test_between(&r, 1, 3);
            l.pad[i] = test_between(&r, 0, 2);
            l.dilation[i] = l.h > 4 && l.w > 4 ? test_between(&r, 1, 2) : 1;
        }
        check_layer(&l);
    }
    /* several tiles of pixels, filters and summed indices, ragged */
    check_layer(&(layer){1, 18, 9, 11, 70, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, WEFT_F32, false});
    check_layer(&(layer){2, 132, 5, 4, 2, 2, 2, {2, 1}, {0, 1}, {1, 1}, 2, WEFT_F32, true});
    cr_assert_eq(conv_fallbacks(), 0, "the host was not asked");
    /* steps past 32 bits are the host's */
    const int64_t far = INT64_C(1) << 32;
    check_layer(&(layer){1, 1, 3, 3, 1, 2, 2, {far, 1}, {0, 1}, {1, 1}, 1, WEFT_F32, false});
    check_layer(&(layer){1, 2, 2, 2, 2, 1, 1, {1, far}, {1, far}, {1, far}, 1, WEFT_F32, false});
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
}

Test(cuda_conv, what_it_cannot_do_is_left_to_others)
{
    with_dnn();
    wf_cuda_conv c = with_y(&cases[0], false, false);
    c.dtype = WEFT_I32;
    cr_assert_eq(wf_cuda_conv_run(0, &c, &why), WEFT_EUNSUPPORTED);
    setenv("FAKE_CUDNN_REFUSES", "1", 1); /* when it is called */
    c.dtype = WEFT_F16;
    cr_assert_eq(wf_cuda_conv_run(0, &c, &why), WEFT_EUNSUPPORTED);
    unsetenv("FAKE_CUDNN_REFUSES");
    cr_assert_eq(wf_cuda_conv_run(0, &c, &why), WEFT_EUNSUPPORTED, "its first answer stays");
    c.dtype = WEFT_F32;
    c.x[0] = 0;
    wf_fail(&why, WEFT_EINVALID, "stale");
    cr_assert_eq(wf_cuda_conv_run(0, &c, &why), WEFT_EUNSUPPORTED);
    cr_assert(why.code == 0 && !why.rule[0]);
    close_fake();
}

/* Where there is no memory for the best engine's workspace, one that needs less is taken; an error only once a call has given
 * results, since another engine has other bits. */
Test(cuda_conv, a_workspace_that_there_is_no_memory_for)
{
    with_dnn();
    test_rng r = {3};
    wf_cuda_counters before, after;
    wf_cuda_memory m;
    setenv("FAKE_CUDNN_WORKSPACE", "1000000000", 1); /* of 1 GiB, some of which is in use */
    wf_cuda_block *taken = wf_cuda_alloc(0, (size_t)512 << 20, &why);
    cr_assert(taken, "%s", why.rule);
    wf_cuda_get_counters(&before);
    check(with_y(&cases[0], false, false), WEFT_F32, false, &r);
    cr_assert(why.code == 0, "nothing is left of the error: %s", why.rule);
    wf_cuda_get_memory(0, &m);
    cr_assert_lt(m.peak_bytes, INT64_C(600) << 20, "the large one was not met");
    wf_cuda_free(taken);
    check(with_y(&cases[0], false, false), WEFT_F32, false, &r);
    wf_cuda_get_memory(0, &m);
    cr_assert_lt(m.peak_bytes, INT64_C(600) << 20, "which engine it is does not change");
    wf_cuda_conv c = with_y(&cases[1], false, false);
    check(c, WEFT_F32, false, &r); /* with the large one */
    wf_cuda_get_memory(0, &m);
    cr_assert_gt(m.peak_bytes, INT64_C(900) << 20);
    taken = wf_cuda_alloc(0, (size_t)512 << 20, &why);
    wf_cuda_block *b = wf_cuda_alloc(0, 1 << 16, &why);
    c.dtype = WEFT_F32;
    c.what = WF_CUDA_CONV_FORWARD;
    c.x_data = b->address;
    c.w_data = (char *)b->address + (16 << 10);
    c.y_data = (char *)b->address + (32 << 10);
    cr_assert_eq(wf_cuda_conv_run(0, &c, &why), WEFT_ENOMEM);
    wf_cuda_get_counters(&after);
    cr_assert_eq(after.refused, before.refused);
    wf_cuda_free(b);
    wf_cuda_free(taken);
    close_fake();
}

Test(cuda_conv, no_library)
{
    setenv("WEFT_CUDNN", "none", 1);
    with_fake(FAKE_LATE, 1);
    wf_cuda_conv c = with_y(&cases[0], false, false);
    c.dtype = WEFT_F32;
    cr_assert_eq(wf_cuda_conv_run(0, &c, &why), WEFT_EUNSUPPORTED);
    cr_assert(why.code == 0 && strstr(wf_cuda_conv_name(), "not found"));
    close_fake();
}

Test(cuda_conv, every_call_of_the_library_failing)
{
    with_dnn();
    int bad = 0;
    for (int n = 1; n < 120; n++) {
        char text[16];
        snprintf(text, sizeof text, "%d", n);
        setenv("FAKE_CUDNN_FAIL", text, 1);
        wf_cuda_conv c = with_y(&cases[0], false, false);
        c.x[0] = c.y[0] = n;
        c.dtype = WEFT_F32;
        wf_cuda_block *b = wf_cuda_alloc(0, 1 << 20, &why);
        c.x_data = b->address;
        c.w_data = (char *)b->address + (256 << 10);
        c.y_data = (char *)b->address + (512 << 10);
        int code = wf_cuda_conv_run(0, &c, &why);
        cr_assert(code == 0 || (code == WEFT_EUNSUPPORTED && why.code == 0), "left to others: %s",
                  why.rule);
        bad += code != 0;
        wf_cuda_free(b);
        OK(wf_cuda_synchronize(0, &why));
    }
    cr_assert(bad > 0);
    wf_cuda_memory m;
    wf_cuda_get_memory(0, &m);
    cr_assert_eq(m.live_blocks, 0);
    close_fake();
}

/* -- the real library ----------------------------------------------------------------------------------------- */

/* Which layouts, with a bias or not; of images as NCHW or NHWC lies. */
static void plan(const dnn_graph_calls *calls, dnn_handle device, wf_cuda_conv c)
{
    static const int types[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
    for (int k = 0; k < 4 * 3 * 4 * 2; k++) {
        c.dtype = types[k % 4];
        c.what = k / 4 % 3;
        c.add = k / 48;
        strides_of(c.x_strides, c.x, k / 12 & 1);
        strides_of(c.y_strides, c.y, k / 12 & 2);
        wf_dnn_graph g = {.calls = calls};
        size_t workspace = 0;
        wf_cuda_conv_graph(&g, &c);
        cr_assert_eq(g.status, DNN_OK);
        cr_assert(wf_dnn_choose(&g, NULL, device, (size_t)1 << 30, &workspace),
                  "no engine: %s, pass %d, layouts %d, %d groups",
                  weft_dtype_name((weft_dtype)c.dtype), c.what, k / 12 & 3, (int)c.groups);
        wf_dnn_graph_drop(&g);
    }
}

/* Every type, pass and mixture of layouts has an engine, of an H100: layers of a ResNet, one in groups, an odd one. */
Test(cuda_conv, the_real_library_has_engines)
{
    static const wf_cuda_conv layers[] = {
        {.x = {32, 3, 224, 224}, .w = {64, 3, 7, 7}, .stride = {2, 2}, .pad = {3, 3}, .groups = 1},
        {.x = {32, 64, 56, 56}, .w = {64, 64, 3, 3}, .stride = {1, 1}, .pad = {1, 1}, .groups = 1},
        {.x = {8, 256, 14, 14}, .w = {512, 256, 1, 1}, .stride = {2, 2}, .groups = 1},
        {.x = {4, 32, 14, 14}, .w = {64, 8, 3, 3}, .stride = {1, 1}, .pad = {1, 1}, .groups = 4},
        {.x = {2, 5, 9, 7}, .w = {7, 5, 3, 2}, .stride = {1, 2}, .pad = {0, 1}, .groups = 1},
    };
    dnn_graph_calls calls;
    wf_dnn_graph about;
    dnn_handle device = real_dnn_device(&calls, &about, REAL_DNN_H100);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        wf_cuda_conv c = layers[i];
        c.dilation[0] = c.dilation[1] = 1;
        plan(&calls, device, with_y(&c, false, false));
    }
    wf_dnn_graph_drop(&about);
}
