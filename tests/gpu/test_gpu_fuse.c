/*
 * tests/gpu/test_gpu_fuse.c -- what a traced function of a device's tensors is fused to: as many kernels as the table
 * says, that many launches, and the host's bits. Losses and random draws are members of groups there as on the host.
 */
#include <string.h>

#include "jit/gpu/gpu.h"
#include "tests/gpu/equal.h"
#include "tests/gpu/gpu.h"
#include "weft/jit.h"
#include "weft/table.h"

enum { ROWS = 33, COLS = 70, CALLS = 3 };

typedef weft_tensor (*model_fn)(weft_tensor x, weft_tensor w, weft_tensor classes);

static weft_tensor dropout(weft_tensor x, weft_tensor w, weft_tensor classes)
{
    (void)classes;
    return weft_add(weft_dropout(weft_relu(x), .p = 0.3), w);
}

static weft_tensor noisy_softmax(weft_tensor x, weft_tensor w, weft_tensor classes)
{
    (void)classes;
    weft_tensor noise = weft_randn(weft_shape(ROWS, COLS), WEFT_F32, .mean = 0.5, .std = 0.1);
    return weft_softmax(weft_add(weft_mul(x, w), noise), 1);
}

/* Every distribution, in types that they are rounded to and in another order than they are drawn in. */
static weft_tensor draws(weft_tensor x, weft_tensor w, weft_tensor classes)
{
    (void)w, (void)classes;
    weft_tensor u = weft_rand(weft_shape(ROWS, COLS), WEFT_F64, .low = -2, .high = 3);
    weft_tensor h = weft_randn(weft_shape(ROWS, COLS), WEFT_F16);
    weft_tensor i = weft_randint(weft_shape(ROWS, COLS), -5, 9);
    weft_tensor keep = weft_bernoulli(weft_shape(ROWS, COLS), 0.4);
    weft_tensor half = weft_cast(h, WEFT_F32);
    weft_tensor y = weft_add(weft_mul(x, weft_cast(u, WEFT_F32)), half);
    return weft_where(keep, y, weft_cast(i, WEFT_F32));
}

static weft_tensor loss(weft_tensor x, weft_tensor w, weft_tensor classes)
{
    return weft_cross_entropy(weft_mul(x, w), classes, .reduction = WEFT_REDUCE_NONE);
}

static weft_tensor smooth_loss(weft_tensor x, weft_tensor w, weft_tensor classes)
{
    return weft_cross_entropy(weft_mul(x, w), classes, .label_smoothing = 0.1, .ignore_index = 3);
}

typedef struct model {
    model_fn fn;
    bool train;
    weft_tensor x, w, classes;
} model;

static weft_status run_model(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    model *m = self;
    (void)in, (void)n_in, (void)n_out;
    weft_set_default_device(weft_device_of(m->x));
    weft_tensor y = m->fn(m->x, m->w, m->classes);
    out[0] = y;
    weft_status s = weft_error_status(y);
    if (!s && m->train) {
        weft_set_grad(m->x, WEFT_NONE);
        weft_set_grad(m->w, WEFT_NONE);
        s = weft_backward(weft_rank(y) ? weft_sum(weft_mul(y, y)) : y);
    }
    weft_set_default_device(WEFT_CPU);
    return s;
}

static void open_model(model *m, model_fn fn, weft_device device, bool train)
{
    weft_generator g = {5, 0};
    weft_tensor x = weft_randn(weft_shape(ROWS, COLS), WEFT_F32, .generator = &g);
    weft_tensor w = weft_randn(weft_shape(COLS), WEFT_F32, .generator = &g);
    weft_tensor classes = weft_randint(weft_shape(ROWS), 0, COLS, .generator = &g);
    *m = (model){fn, train, weft_to(x, device), weft_to(w, device), weft_to(classes, device)};
    cr_assert_eq(weft_requires_grad_(m->x, train), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_requires_grad_(m->w, train), WEFT_OK, "%s", weft_last_error());
}

typedef struct fused {
    const char *name;
    model_fn fn;
    bool train;
    int steps;
} fused;

static void check_fused(const fused *f)
{
    weft_scope sc = weft_scope_begin();
    model host, device;
    weft_tensor want, got;
    weft_jit_stats st;
    open_model(&host, f->fn, WEFT_CPU, f->train);
    open_model(&device, f->fn, WEFT_CUDA(0), f->train);
    weft_jit *j = weft_jit_trace(run_model, &device, .name = f->name, .synchronous = true);
    for (int i = 0; i < CALLS; i++) {
        weft_manual_seed((uint64_t)i);
        cr_assert_eq(run_model(&host, NULL, 0, &want, 1), WEFT_OK, "%s", weft_last_error());
        weft_manual_seed((uint64_t)i);
        const int64_t before = gpu_launches();
        cr_assert_eq(weft_jit_call(j, NULL, 0, &got, 1), WEFT_OK, "%s: %s", f->name,
                     weft_last_error());
        const int64_t after = gpu_launches();
        weft_jit_get_stats(j, &st);
        /* a sum down the rows may be two launches, for want of columns to fill the device with */
        cr_expect(i == 0 || (after - before >= st.steps && after - before <= st.steps + f->train),
                  "%s: %d launches, %d steps", f->name, (int)(after - before), (int)st.steps);
        check_equal(f->name, want, got);
        if (f->train) {
            check_equal(f->name, weft_grad(host.x), weft_grad(device.x));
            check_equal(f->name, weft_grad(host.w), weft_grad(device.w));
        }
    }
    if (getenv("WEFT_TEST_SHOW"))
        weft_jit_explain(j, stderr);
    cr_expect_eq((int)st.steps, f->steps, "%s: %d kernels", f->name, (int)st.steps);
    weft_jit_free(j);
    weft_scope_end(sc);
}

Test(gpu_fuse, as_on_the_host)
{
    gpu_open(17);
    static const fused cases[] = {{"dropout", dropout, false, 1},
                                  {"dropout and backward", dropout, true, 1},
                                  {"noise", noisy_softmax, false, 1},
                                  {"draws", draws, false, 1},
                                  {"loss", loss, false, 1},
                                  {"loss and backward", loss, true, 2},
                                  {"smooth loss", smooth_loss, false, 2},
                                  {"smooth loss and backward", smooth_loss, true, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_fused(&cases[i]);
    gpu_check_races();
}

/* A class out of range is found by the kernel of the group; the next read says whose it was and where. */
Test(gpu_fuse, losses_name_bad_classes)
{
    gpu_open(18);
    static const int64_t bad[] = {COLS, -1, -7};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_scope sc = weft_scope_begin();
        model m;
        char index[32];
        weft_tensor y;
        float to[ROWS];
        open_model(&m, loss, WEFT_CUDA(0), i == 1);
        m.classes = weft_add(weft_mul(m.classes, weft_i(0)), weft_i(bad[i]));
        weft_jit *j = weft_jit_trace(run_model, &m, .name = "bad", .synchronous = i == 2);
        cr_assert_eq(weft_jit_call(j, NULL, 0, &y, 1), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_to_array(y, to, ROWS, WEFT_DTYPE_DEFAULT), WEFT_EINDEX);
        snprintf(index, sizeof index, "index %d outside [0, %d)", i == 1 ? -2 : (int)bad[i], COLS);
        cr_expect(strstr(weft_last_error(), index), "%s", weft_last_error());
        cr_expect(strstr(weft_last_error(), "cross_entropy"), "%s", weft_last_error());
        cr_expect(strstr(weft_last_error(), "test_gpu_fuse.c:"), "%s", weft_last_error());
        snprintf(index, sizeof index, "; operands: f32[%d,%d], i", ROWS, COLS);
        cr_expect(strstr(weft_last_error(), index), "%s", weft_last_error());
        weft_jit_free(j);
        weft_scope_end(sc);
    }
}

/* -- draws at every cut: rows of a warp, of a block, over the device; vectors and what is left of them ------------------- */

typedef struct drawn {
    int64_t dims[2];
    weft_device device;
} drawn;

static weft_status draw_rows(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int m)
{
    const drawn *d = self;
    (void)in, (void)n_in, (void)m;
    weft_set_default_device(d->device);
    const weft_shape shape = weft_shape(d->dims[0], d->dims[1]);
    weft_tensor x = weft_rand(shape, WEFT_F32, .low = -1);
    out[0] = weft_cast(weft_add(x, weft_randn(shape, WEFT_F32)), WEFT_BF16);
    out[1] = weft_softmax(weft_mul(x, weft_randn(shape, WEFT_F32)), 1);
    out[2] = weft_cast(weft_bernoulli(shape, 0.25), WEFT_U8);
    out[3] = weft_add(weft_randint(shape, 0, 1 << 20), weft_i(1));
    weft_set_default_device(WEFT_CPU);
    return weft_error_status(out[3]);
}

Test(gpu_fuse, draws_at_every_cut)
{
    gpu_open(19);
    static const int64_t dims[][2] = {{1, 1},    {3, 5},      {40, 33},   {5, 4096},
                                      {2, 9001}, {1, 140003}, {70001, 1}, {2, 0}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        weft_scope sc = weft_scope_begin();
        drawn host = {{dims[i][0], dims[i][1]}, WEFT_CPU}, device = host;
        device.device = WEFT_CUDA(0);
        weft_jit *j = weft_jit_trace(draw_rows, &device, .name = "draws");
        for (int call = 0; call < 2; call++) { /* instruction by instruction; fused */
            weft_tensor want[4], got[4];
            weft_manual_seed(i + 1);
            cr_assert_eq(draw_rows(&host, NULL, 0, want, 4), WEFT_OK, "%s", weft_last_error());
            weft_manual_seed(i + 1);
            cr_assert_eq(weft_jit_call(j, NULL, 0, got, 4), WEFT_OK, "%s", weft_last_error());
            for (int k = 0; k < 4; k++)
                check_equal("draws", want[k], got[k]);
            wf_gpu_wait_kernels();
        }
        weft_jit_free(j);
        weft_scope_end(sc);
    }
    gpu_check_races();
}

static weft_status one_more(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_add(in[0], weft_f(1));
    return weft_error_status(out[0]);
}

/* The times of a device are not those of a table: both kinds are refused, and a traced function's call goes on. */
Test(gpu_fuse, tables_are_of_the_host)
{
    gpu_open(19);
    weft_tensor h = weft_arange(0, 6, 1, WEFT_F32), x = weft_to(h, WEFT_CUDA(0)), y = WEFT_NONE;
    weft_graph *g = weft_jit_graph(one_more, NULL, &h, 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_jit *j = weft_jit_trace(one_more, NULL);
    cr_assert_null(weft_table_new(.graph = g, .inputs = &x, .n_inputs = 1));
    cr_assert(strstr(weft_last_error(), "the graph runs on a GPU"), "%s", weft_last_error());
    cr_assert_null(weft_table_new(.jit = j, .inputs = &x, .n_inputs = 1, .outputs = &y));
    cr_assert(strstr(weft_last_error(), "the function runs on a GPU"), "%s", weft_last_error());
    double sum = 0;
    cr_assert_eq(weft_item(weft_sum(y), &sum), 0);
    cr_assert_eq(sum, 21);
    weft_jit_free(j);
    weft_graph_free(g);
}
