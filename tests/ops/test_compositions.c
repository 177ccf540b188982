/*
 * tests/ops/test_compositions.c -- ops made of other ops against loops in long double: group and instance norm,
 * convolutions of one axis and transposed ones, adaptive pooling, interpolation, padding by elements, indices of several axes.
 *
 * References are the definitions, element by element: a transposed convolution spreads each element of x, a place of an
 * interpolation is computed from its fraction, values are written one after the other. Every case is called again in a
 * trace, with its gradients, at several numbers of threads: the bits stay.
 *
 * ctest: threads optimised
 */
#include "eager/cpuid.h"
#include "tests/ops/compositions.h"
#include "tests/support/effort.h"

/* -- norms over groups of channels ------------------------------------------------------------------------------- */

static weft_tensor call_group_norm(const void *how, const weft_tensor *in, int n)
{
    int64_t groups = *(const int64_t *)how;
    weft_group_norm_args a = {.x = in[0], .groups = groups, .eps = 1e-3};
    a.weight = n > 1 ? in[1] : WEFT_NONE;
    a.bias = n > 2 ? in[2] : WEFT_NONE;
    return (weft_group_norm)(&a);
}

static weft_tensor call_instance_norm(const void *how, const weft_tensor *in, int n)
{
    (void)how;
    return weft_instance_norm(in[0], n > 1 ? in[1] : WEFT_NONE, n > 2 ? in[2] : WEFT_NONE, 1e-3);
}

/* x[n, c, each] in groups: the definition, in two passes. */
static void normalise(weft_shape s, int64_t groups, real (*v)[MOST], int operands, int dtype)
{
    int64_t each = count(s) / (s.v[0] * s.v[1]), size = s.v[1] / groups * each;
    real unit = dtype == WEFT_F64 ? 0x1p-53L : 0x1p-24L;
    for (int64_t i = 0; i < count(s); i++) {
        const real *g = v[0] + i / size * size;
        int64_t c = i / each % s.v[1];
        real mean = 0, var = 0;
        for (int64_t k = 0; k < size; k++) {
            mean += g[k] / size;
        }
        for (int64_t k = 0; k < size; k++) {
            var += (g[k] - mean) * (g[k] - mean) / size;
        }
        real scale = (operands > 1 ? v[1][c] : 1) / sqrtl(var + 1e-3L);
        want[i] = (v[0][i] - mean) * scale + (operands > 2 ? v[2][c] : 0);
        /* mean and variance are sums of size terms of at most 2 */
        bound[i] = unit * (real)(size + 8) * (8 * fabsl(scale) + fabsl(want[i]) + 2);
        if (dtype == WEFT_F16 || dtype == WEFT_BF16) { /* rounded once, and scale is of f32 */
            bound[i] += test_place(dtype, want[i]) * 0.501L;
        }
    }
}

Test(compositions, group_and_instance_norm)
{
    static const weft_shape shapes[] = {{.n = 2, .v = {3, 6}},
                                        {.n = 3, .v = {2, 6, 5}},
                                        {.n = 4, .v = {2, 6, 3, 4}},
                                        {.n = 5, .v = {1, 6, 2, 2, 3}}};
    static real v[3][MOST];
    for (int k = 0; k < COUNT(shapes) * 3 * COUNT(floats); k += EFFORT_LIST_STEP) {
        weft_shape s = shapes[k % 4];
        int operands = 1 + k / 4 % 3, dtype = floats[k / 12];
        weft_scope sc = weft_scope_begin();
        weft_tensor in[3] = {given(s, dtype, k % 2, v[0]), given(S(6), dtype, false, v[1]),
                             given(S(6), dtype, false, v[2])};
        for (int64_t groups = 1; groups <= 6; groups += groups == 3 ? 3 : 1) {
            normalise(s, groups, v, operands, dtype);
            judge("group_norm", call_group_norm, &groups, in, operands, (weft_dtype)dtype, s);
            if (groups == 6 && s.n > 2) {
                judge("instance_norm", call_instance_norm, NULL, in, operands, (weft_dtype)dtype,
                      s);
            }
        }
        weft_scope_end(sc);
    }
}

/* The norm in the rows it is made of, halves in f32 until the result. */
static weft_tensor spelled_out(const void *how, const weft_tensor *in, int n)
{
    const int64_t groups = *(const int64_t *)how;
    const weft_dtype dtype = weft_dtype_of(in[0]), wide = dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    const weft_shape s = weft_shape_of(in[0]);
    weft_shape channels = {.n = s.n - 1, .v = {s.v[1]}};
    weft_tensor y = weft_reshape(weft_cast(in[0], wide), S(s.v[0], groups, -1)), with[2];
    for (int i = 1; i < s.n - 1; i++) {
        channels.v[i] = 1;
    }
    y = weft_reshape(weft_layer_norm(y, .eps = 1e-3), s);
    const bool weight = n > 1 && in[1].slot != 0, bias = n > 2;
    for (int i = weight ? 1 : 2; i < n; i++) {
        with[i - 1] = weft_reshape(weft_cast(in[i], wide), channels);
    }
    y = weight && bias ? weft_fma(y, with[0], with[1])
        : weight       ? weft_mul(y, with[0])
        : bias         ? weft_add(y, with[1])
                       : y;
    return weft_cast(y, dtype);
}

/* Operands of a norm of channels, and which of them want gradients. */
typedef struct norm_operands {
    bool weight, bias;
    int wrt[3], n;
} norm_operands;

static void norm_and_gradients(composed f, int64_t groups, const norm_operands *of,
                               const weft_tensor *in, weft_tensor *out)
{
    const weft_tensor with[3] = {in[0], of->weight ? in[1] : WEFT_NONE, in[2]};
    weft_tensor wrt[3];
    for (int i = 0; i < of->n; i++) {
        wrt[i] = in[of->wrt[i]];
    }
    out[0] = f(&groups, with, of->bias ? 3 : 2);
    weft_tensor loss = weft_sum(weft_mul(out[0], weft_sin(out[0])));
    cr_assert_eq(weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = wrt, .n_inputs = of->n,
                              .grads = out + 1),
                 WEFT_OK, "%s", weft_last_error());
}

/* Channels that begin and end within blocks of a sum, at block limits, with few elements, of whole rounds of lanes (several
 * groups a task, one, all); every gradient, and those of x alone. */
Test(compositions, group_norm_has_the_bits_of_its_rows)
{
    static const struct {
        int64_t d[4], groups;
    } shapes[] = {{{3, 600, 1, 1}, 1},   {{3, 600, 1, 1}, 2},  {{1, 80, 9, 11}, 1},
                  {{1, 80, 9, 11}, 2},   {{3, 4, 1, 4099}, 1}, {{3, 4, 1, 4099}, 2},
                  {{2, 2, 64, 64}, 1},   {{2, 2, 64, 64}, 2},  {{3, 200, 2, 3}, 1},
                  {{3, 200, 2, 3}, 2},   {{2, 600, 2, 2}, 1},  {{3, 8, 8, 8}, 4},
                  {{2, 16, 64, 65}, 16}, {{2, 8, 64, 65}, 4},  {{2, 4, 64, 128}, 4},
                  {{3, 8, 13, 23}, 4},   {{3, 4, 1, 4099}, 4}};
    static const norm_operands of[] = {{true, false, {0, 1}, 2},
                                       {true, true, {0, 1, 2}, 3},
                                       {false, true, {0, 2}, 2},
                                       {true, true, {0}, 1}};
    const int before = weft_get_num_threads();
    for (int k = 0; k < COUNT(shapes) * COUNT(of) * COUNT(floats); k++) {
        const int64_t *d = shapes[k / 4 % COUNT(shapes)].d,
                      groups = shapes[k / 4 % COUNT(shapes)].groups;
        const norm_operands *o = &of[k % COUNT(of)];
        const weft_dtype dtype = (weft_dtype)floats[k / 4 / COUNT(shapes)];
        weft_tensor in[3], got[4], want_of[4];
        weft_scope sc = weft_scope_begin();
        in[0] = weft_randn(S(d[0], d[1], d[2], d[3]), dtype);
        for (int i = 1; i < 3; i++) {
            in[i] = weft_randn(S(d[1]), dtype);
        }
        for (int i = 0; i < o->n; i++) {
            cr_assert_eq(weft_requires_grad_(in[o->wrt[i]], true), WEFT_OK);
        }
        weft_set_num_threads(1 + k % 3);
        norm_and_gradients(call_group_norm, groups, o, in, got);
        weft_set_num_threads(before);
        norm_and_gradients(spelled_out, groups, o, in, want_of);
        for (int i = 0; i <= o->n; i++) {
            check_bits("group_norm", got[i], want_of[i]);
        }
        weft_scope_end(sc);
    }
}

/* -- convolutions ------------------------------------------------------------------------------------------------- */

typedef struct windows {
    int64_t n, c, h, w, o, kh, kw, stride, padding, more, dilation, groups;
    int axes; /* 1: h, kh are 1 */
} windows;

static weft_tensor call_conv1d(const void *how, const weft_tensor *in, int n)
{
    const windows *k = how;
    return weft_conv1d(in[0], in[1], n > 2 ? in[2] : WEFT_NONE, S(k->stride), S(k->padding),
                       S(k->dilation), k->groups);
}

static weft_tensor call_transposed(const void *how, const weft_tensor *in, int n)
{
    const windows *k = how;
    weft_conv_transpose_args a = {.x = in[0],
                                  .weight = in[1],
                                  .bias = n > 2 ? in[2] : WEFT_NONE,
                                  .stride = S(k->stride),
                                  .padding = S(k->padding),
                                  .output_padding = S(k->more),
                                  .dilation = S(k->dilation),
                                  .groups = k->groups};
    return k->axes == 1 ? (weft_conv_transpose1d)(&a) : (weft_conv_transpose2d)(&a);
}

static weft_shape image_shape(const windows *k, int64_t a, int64_t b, int64_t h, int64_t w)
{
    return k->axes == 1 ? S(a, b, w) : S(a, b, h, w);
}

/* Elements of b[o], before the terms of each sum. */
static void add_bias(const real *b, int64_t n, int64_t o, int64_t each, bool has)
{
    for (int64_t i = 0; has && i < n * o * each; i++) {
        add_term(i, b[i / each % o]);
    }
}

static void check_conv1d(const windows *k, int dtype, int operands)
{
    static real v[3][MOST];
    weft_scope sc = weft_scope_begin();
    int64_t c = k->c / k->groups, o = k->o / k->groups;
    int64_t out = (k->w + 2 * k->padding - (k->kw - 1) * k->dilation - 1) / k->stride + 1;
    weft_tensor in[3] = {given(S(k->n, k->c, k->w), dtype, operands == 2, v[0]),
                         given(S(k->o, c, k->kw), dtype, operands == 3, v[1]),
                         given(S(k->o), dtype, false, v[2])};
    add_bias(v[2], k->n, k->o, out, operands > 2);
    for (int64_t i = 0; i < k->n * k->o * out * c * k->kw; i++) {
        int64_t x = i % k->kw, ic = i / k->kw % c, at = i / (k->kw * c), oc = at / out % k->o;
        int64_t from = at % out * k->stride - k->padding + x * k->dilation;
        if (from >= 0 && from < k->w) {
            int64_t channel = at / (out * k->o) * k->c + oc / o * c + ic;
            add_term(at, v[0][channel * k->w + from] * v[1][(oc * c + ic) * k->kw + x]);
        }
    }
    want_sums(k->n * k->o * out, dtype, 4, 0);
    judge("conv1d", call_conv1d, k, in, operands, (weft_dtype)dtype, S(k->n, k->o, out));
    weft_scope_end(sc);
}

/* Each element of x goes to the places of its window. */
static void check_transposed(const windows *k, int dtype, int operands)
{
    static real v[3][MOST];
    weft_scope sc = weft_scope_begin();
    int64_t c = k->c / k->groups, o = k->o / k->groups;
    int64_t stray = -2 * k->padding + k->more + 1, kernel = k->kh * k->kw;
    int64_t h = (k->h - 1) * k->stride + (k->kh - 1) * k->dilation + stray,
            w = (k->w - 1) * k->stride + (k->kw - 1) * k->dilation + stray;
    h = k->axes == 1 ? 1 : h;
    weft_tensor in[3] = {given(image_shape(k, k->n, k->c, k->h, k->w), dtype, operands == 2, v[0]),
                         given(image_shape(k, k->c, o, k->kh, k->kw), dtype, operands == 3, v[1]),
                         given(S(k->o), dtype, false, v[2])};
    add_bias(v[2], k->n, k->o, h * w, operands > 2);
    for (int64_t i = 0; i < k->n * k->c * k->h * k->w * o * kernel; i++) {
        int64_t x = i % k->kw, y = i / k->kw % k->kh, oc = i / kernel % o, at = i / (kernel * o);
        int64_t ic = at / (k->h * k->w) % k->c, sample = at / (k->h * k->w * k->c);
        int64_t to_y =
            k->axes == 1 ? 0 : at / k->w % k->h * k->stride - k->padding + y * k->dilation;
        int64_t to_x = at % k->w * k->stride - k->padding + x * k->dilation;
        if (to_y >= 0 && to_y < h && to_x >= 0 && to_x < w) {
            int64_t channel = sample * k->o + ic / c * o + oc;
            add_term((channel * h + to_y) * w + to_x,
                     v[0][at] * v[1][((ic * o + oc) * k->kh + y) * k->kw + x]);
        }
    }
    want_sums(k->n * k->o * h * w, dtype, 4, operands > 2); /* before the bias */
    judge("conv_transpose", call_transposed, k, in, operands, (weft_dtype)dtype,
          image_shape(k, k->n, k->o, h, w));
    weft_scope_end(sc);
}

Test(compositions, convolutions_of_one_axis)
{
    static const windows list[] = {
        {2, 4, 1, 9, 6, 1, 3, 1, 0, 0, 1, 1, 1},
        {2, 4, 1, 9, 6, 1, 3, 2, 1, 0, 1, 2, 1},
        {1, 4, 1, 9, 4, 1, 2, 1, 2, 0, 3, 4, 1},
        {3, 2, 1, 1, 2, 1, 1, 1, 0, 0, 1, 1, 1},
    };
    for (int k = 0; k < COUNT(list) * COUNT(floats); k++) {
        check_conv1d(&list[k % 4], floats[k / 4], 2 + k % 2);
        check_transposed(&list[k % 4], floats[k / 4], 2 + k % 2);
    }
}

Test(compositions, transposed_convolutions)
{
    static const windows list[] = {
        {2, 4, 3, 5, 6, 3, 2, 1, 0, 0, 1, 1, 2}, {2, 4, 3, 5, 6, 3, 2, 2, 1, 1, 1, 2, 2},
        {1, 4, 3, 3, 4, 2, 3, 3, 2, 2, 2, 4, 2}, {1, 2, 3, 4, 4, 3, 3, 1, 1, 2, 3, 2, 2},
        {1, 2, 1, 6, 3, 1, 4, 4, 0, 3, 1, 1, 1}, {1, 2, 1, 6, 2, 1, 2, 2, 1, 3, 4, 2, 1},
    };
    for (int k = 0; k < COUNT(list) * COUNT(floats); k++) {
        check_transposed(&list[k % 6], floats[k / 6], 2 + k % 2);
        check_transposed(&list[k % 6], floats[k / 6], 3 - k % 2);
    }
}

/* -- adaptive pooling ------------------------------------------------------------------------------------------------ */

static weft_tensor call_adaptive(const void *how, const weft_tensor *in, int n)
{
    const int64_t *size = how;
    (void)n;
    return weft_adaptive_avg_pool2d(in[0], S(size[0], size[1]));
}

static void check_adaptive(int64_t h, int64_t w, const int64_t *to, int dtype)
{
    static real v[MOST];
    weft_scope sc = weft_scope_begin();
    weft_tensor in = given(S(2, 3, h, w), dtype, (h + w) % 2, v);
    for (int64_t i = 0; i < 6 * to[0] * to[1]; i++) {
        int64_t y = i / to[1] % to[0], x = i % to[1], n = 0;
        int64_t y0 = y * h / to[0], y1 = ((y + 1) * h + to[0] - 1) / to[0];
        int64_t x0 = x * w / to[1], x1 = ((x + 1) * w + to[1] - 1) / to[1];
        n = (y1 - y0) * (x1 - x0);
        for (int64_t k = 0; k < n; k++) {
            int64_t at = (i / (to[0] * to[1]) * h + y0 + k / (x1 - x0)) * w + x0 + k % (x1 - x0);
            add_term(i, v[at] / n);
        }
    }
    want_sums(6 * to[0] * to[1], dtype, 3, 0);
    judge("adaptive_avg_pool2d", call_adaptive, to, &in, 1, (weft_dtype)dtype,
          S(2, 3, to[0], to[1]));
    weft_scope_end(sc);
}

Test(compositions, adaptive_pooling)
{
    static const int64_t from[][2] = {{6, 8}, {7, 5}, {1, 9}},
                         to[][2] = {{3, 4}, {2, 3}, {7, 5}, {5, 6}, {1, 1}, {4, 13}};
    for (int k = 0; k < COUNT(from) * COUNT(to) * COUNT(floats); k++) {
        const int64_t *f = from[k % 3];
        check_adaptive(f[0], f[1], to[k / 3 % 6], floats[k / 18]);
    }
    weft_scope sc = weft_scope_begin();
    const float x[5] = {1, INFINITY, 3, 4, NAN}; /* what a window does not have does not touch it */
    float y[3];
    weft_tensor t = weft_from_data(x, S(1, 1, 1, 5), WEFT_F32);
    t = weft_adaptive_avg_pool2d(t, S(1, 3)); /* [0, 2), [1, 4), [3, 5) */
    cr_assert_eq(weft_to_array(t, y, 3, WEFT_F32), WEFT_OK, "%s", weft_error_text(t));
    cr_assert(isinf(y[0]) && isinf(y[1]) && isnan(y[2]), "%g %g %g", y[0], y[1], y[2]);
    t = weft_adaptive_avg_pool2d(weft_from_data(x, S(1, 1, 1, 4), WEFT_F32), S(1, 3));
    cr_assert_eq(weft_to_array(t, y, 3, WEFT_F32), WEFT_OK); /* [0, 2), [1, 3), [2, 4) */
    cr_assert(isinf(y[0]) && isinf(y[1]) && y[2] == 3.5f, "%g %g %g", y[0], y[1], y[2]);
    static const int64_t none[][4] = {{0, 2, 3, 4}, {0, 2, 4, 4}, {2, 0, 3, 4}, {2, 0, 4, 4}};
    for (int k = 0; k < COUNT(none); k++) { /* no images, no channels */
        const int64_t *n = none[k];
        for (int64_t size = 0; size < 4; size++) {
            check_type("nothing to pool",
                       weft_adaptive_avg_pool2d(weft_ones(S(n[0], n[1], n[2], n[3]), WEFT_F32),
                                                S(size, 2)),
                       WEFT_F32, S(n[0], n[1], size, 2));
        }
    }
    t = weft_adaptive_avg_pool2d(weft_ones(S(1, 2, 0, 4), WEFT_F32), S(1, 1));
    cr_assert_eq(weft_error_status(t), WEFT_ESHAPE);
    cr_assert(strstr(weft_error_text(t), "0 x 4 elements cannot become 1 x 1"), "%s",
              weft_error_text(t));
    check_type("no windows", weft_adaptive_avg_pool2d(weft_ones(S(1, 2, 3, 3), WEFT_F32), S(0, 2)),
               WEFT_F32, S(1, 2, 0, 2));
    weft_scope_end(sc);
}

/* A mean and its gradient are the same wherever the image lies. */
Test(compositions, adaptive_pooling_channels_last)
{
    static const int64_t cases[][5] = {
        {5, 9, 11, 4, 3}, {16, 13, 6, 5, 7}, {37, 1, 70, 1, 9}, {20, 7, 3, 9, 4}, {70, 8, 8, 5, 5}};
    for (int k = 0; k < 2 * COUNT(cases); k++) {
        const int64_t *d = cases[k / 2];
        const weft_dtype dtype = k & 1 ? WEFT_BF16 : WEFT_F32;
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_randn(S(2, d[0], d[1], d[2]), dtype), y[2], dx[2];
        weft_tensor g = weft_randn(S(2, d[0], d[3], d[4]), dtype);
        for (int last = 0; last < 2; last++) {
            weft_tensor own = last ? weft_channels_last(x) : weft_clone(x);
            weft_requires_grad_(own, true);
            y[last] = weft_adaptive_avg_pool2d(own, S(d[3], d[4]));
            weft_tensor seed = last ? weft_channels_last(g) : g;
            cr_assert_eq(weft_backward(y[last], .gradient = seed), WEFT_OK, "%s",
                         weft_last_error());
            dx[last] = weft_grad(own);
        }
        cr_expect(weft_item_i64(weft_all(weft_equal(y[0], y[1]))), "case %d", k);
        cr_expect(weft_item_i64(weft_all(weft_equal(dx[0], dx[1]))), "gradient, case %d", k);
        weft_scope_end(sc);
    }
}

/* -- interpolation --------------------------------------------------------------------------------------------------- */

static weft_tensor call_interpolate(const void *how, const weft_tensor *in, int n)
{
    weft_interpolate_args a = *(const weft_interpolate_args *)how;
    (void)n;
    a.x = in[0];
    return (weft_interpolate)(&a);
}

/* The two elements of n around place i of m, and the weight of the second. */
static real corners(const weft_interpolate_args *a, int64_t n, int64_t m, int64_t i, int64_t at[2])
{
    real ratio = a->size.n ? (real)n / m : 1 / (real)a->scale;
    real p = a->mode == WEFT_NEAREST         ? i * ratio
             : a->mode == WEFT_NEAREST_EXACT ? (i + 0.5L) * ratio
             : a->align_corners              ? (m > 1 ? i * ((real)(n - 1) / (m - 1)) : 0)
                                             : fmaxl((i + 0.5L) * ratio - 0.5L, 0);
    /* a fraction that is whole in the reals may be a hair below in 64 bits */
    int64_t low = (int64_t)floorl(p + 1e-15L);
    at[0] = low < n - 1 ? low : n - 1;
    at[1] = at[0] < n - 1 ? at[0] + 1 : n - 1;
    return a->mode == WEFT_LINEAR ? p - at[0] : 0;
}

static void check_interpolation(const weft_interpolate_args *a, weft_shape s, weft_shape to,
                                int dtype)
{
    static real v[MOST];
    weft_scope sc = weft_scope_begin();
    weft_tensor in = given(s, dtype, count(to) % 2, v);
    int axes = (int)s.n - 2;
    for (int64_t i = 0; i < count(to); i++) {
        int64_t rest = i, at[3][2];
        real weight[3];
        for (int k = axes - 1; k >= 0; k--) {
            weight[k] = corners(a, s.v[2 + k], to.v[2 + k], rest % to.v[2 + k], at[k]);
            rest /= to.v[2 + k];
        }
        for (int c = 0; c < 1 << axes; c++) {
            real part = 1;
            int64_t from = rest;
            for (int k = 0; k < axes; k++) {
                part *= c >> k & 1 ? weight[k] : 1 - weight[k];
                from = from * s.v[2 + k] + at[k][c >> k & 1];
            }
            if (part != 0) {
                add_term(i, part * v[from]);
            }
        }
    }
    want_sums(count(to), dtype, 12, 0);
    for (int64_t i = 0; i < count(to);
         i++) { /* a nearest element is itself; weights are of places of up to 16 */
        bound[i] = a->mode != WEFT_LINEAR ? 0 : bound[i] + (dtype == WEFT_F64 ? 1e-14L : 1e-6L);
    }
    judge("interpolate", call_interpolate, a, &in, 1, (weft_dtype)dtype, to);
    weft_scope_end(sc);
}

Test(compositions, interpolation)
{
    static const weft_shape from[] = {
        {.n = 3, .v = {2, 3, 7}}, {.n = 4, .v = {1, 2, 5, 4}}, {.n = 5, .v = {1, 2, 3, 2, 4}}};
    static const weft_shape sizes[] = {{.n = 1, .v = {3}},
                                       {.n = 1, .v = {14}},
                                       {.n = 1, .v = {1}},
                                       {.n = 1, .v = {5}},
                                       {.n = 1, .v = {9}}};
    static const double scales[] = {0.5, 1.3, 2, 3.7};
    for (int k = 0; k < COUNT(from) * 9 * COUNT(floats) * 4; k += EFFORT_LIST_STEP) {
        weft_shape s = from[k % 3], to = s;
        int which = k / 3 % 9, mode = k / 27 % 4;
        weft_interpolate_args a = {.mode = mode > 2 ? WEFT_LINEAR : (weft_interpolation)mode,
                                   .align_corners = mode > 2};
        if (which < 5) {
            a.size = sizes[which];
        } else {
            a.scale = scales[which - 5];
        }
        for (int i = 2; i < s.n; i++) {
            to.v[i] = which < 5 ? a.size.v[0] : (int64_t)floor((double)s.v[i] * a.scale);
        }
        if (count(to) <= MOST) {
            check_interpolation(&a, s, to, floats[k / 108]);
        }
    }
    check_interpolation(&(weft_interpolate_args){.size = S(3, 8)}, S(2, 1, 6, 4), S(2, 1, 3, 8),
                        WEFT_I64);
    check_interpolation(&(weft_interpolate_args){.size = S(6, 4)}, S(2, 1, 6, 4), S(2, 1, 6, 4),
                        WEFT_I16);
}

/* Axes walked at once, and axis by axis as a recorded call takes them: the same bits, with infinities and NaN, whatever the
 * instruction set and the number of threads. */
Test(compositions, interpolation_has_one_result)
{
    static const weft_shape from[] = {{.n = 4, .v = {2, 67, 9, 14}},
                                      {.n = 4, .v = {1, 3, 40, 33}},
                                      {.n = 4, .v = {3, 8, 1, 50}},
                                      {.n = 5, .v = {1, 5, 4, 7, 19}},
                                      {.n = 3, .v = {4, 30, 101}}};
    static const int threads[] = {1, 2, 3, 7};
    const int before = weft_get_num_threads(), most = wf_set_isa(WF_NISA);
    for (int k = 0; k < COUNT(from) * COUNT(floats) * 6; k += EFFORT_LIST_STEP) {
        const weft_shape s = from[k % 5];
        const int how = k / COUNT(floats) / 5;
        weft_interpolate_args a = {.mode = WEFT_LINEAR, .align_corners = how == 1};
        a.scale = how == 2 ? 0.4 : how == 3 ? 2 : how == 4 ? 7.3 : 0;
        if (a.scale == 0) { /* some axes stay as they are, in front, between and behind */
            a.size = (weft_shape){.n = s.n - 2, .v = {s.v[2], s.v[3], s.v[4]}};
            a.size.v[how == 5 ? 0 : s.n - 3] = 23;
            a.size.v[s.n > 4 ? how % 3 : 0] = 5;
        } else if (a.scale < 1) {
            a.scale = s.v[2] > 1 ? a.scale : 1.2;
        }
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_randn(s), mask = weft_greater(weft_rand(s), weft_f(0.99));
        x = weft_cast(weft_where(mask, weft_f(k % 2 ? INFINITY : NAN), x),
                      (weft_dtype)floats[k / 5 % 4]);
        a.x = weft_detach(how % 2 && s.n == 4 ? weft_channels_last(x) : x);
        cr_assert_eq(weft_requires_grad_(a.x, true), WEFT_OK);
        const weft_tensor y = (weft_interpolate)(&a);
        cr_assert(weft_requires_grad(y), "%s", weft_error_text(y));
        weft_no_grad_begin();
        for (int i = 0; i < COUNT(threads) * 3; i++) {
            wf_set_isa(i / 4 < most ? i / 4 : most);
            weft_set_num_threads(threads[i % 4]);
            check_bits("interpolate", (weft_interpolate)(&a), y);
        }
        weft_no_grad_end();
        wf_set_isa(most);
        weft_scope_end(sc);
    }
    weft_set_num_threads(before);
}

/* -- padding by elements --------------------------------------------------------------------------------------------- */

typedef struct border {
    weft_shape before, after;
    weft_padding mode;
} border;

static weft_tensor call_pad_mode(const void *how, const weft_tensor *in, int n)
{
    const border *b = how;
    (void)n;
    return weft_pad_mode(in[0], b->before, b->after, b->mode);
}

/* Where place i of an axis, 0 at its first element, takes its own from. */
static int64_t source_of(weft_padding mode, int64_t i, int64_t n)
{
    if (mode == WEFT_PAD_REPLICATE) {
        return i < 0 ? 0 : i < n ? i : n - 1;
    }
    if (mode == WEFT_PAD_CIRCULAR) {
        return (i + n) % n;
    }
    i = i < 0 ? -i : i;
    return i < n ? i : 2 * (n - 1) - i;
}

Test(compositions, padding_by_elements)
{
    static const border list[] = {
        {{.n = 3, .v = {0, 1, 2}}, {.n = 3, .v = {0, 2, 0}}, WEFT_PAD_REFLECT},
        {{.n = 3, .v = {1, 0, 0}}, {.n = 3, .v = {0, 0, 4}}, WEFT_PAD_REFLECT},
        {{.n = 3, .v = {3, 0, 2}}, {.n = 3, .v = {0, 7, 1}}, WEFT_PAD_REPLICATE},
        {{.n = 3, .v = {2, 0, 5}}, {.n = 3, .v = {1, 3, 5}}, WEFT_PAD_CIRCULAR},
        {{.n = 3, .v = {0, 0, 0}}, {.n = 3, .v = {0, 0, 0}}, WEFT_PAD_REFLECT},
    };
    static const int types[] = {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_I16, WEFT_U8};
    static real v[MOST];
    for (int k = 0; k < COUNT(list) * COUNT(types); k++) {
        const border *b = &list[k % 5];
        int dtype = types[k / 5];
        weft_shape s = S(2, 3, 5), to = s;
        weft_scope sc = weft_scope_begin();
        weft_tensor in = given(s, dtype == WEFT_U8 ? WEFT_I16 : dtype, k % 2, v);
        if (dtype == WEFT_U8) {
            in = weft_cast(weft_abs(in), WEFT_U8);
        }
        for (int i = 0; i < 3; i++) {
            to.v[i] += b->before.v[i] + b->after.v[i];
        }
        for (int64_t i = 0; i < count(to); i++) {
            int64_t at[3] = {i / (to.v[1] * to.v[2]), i / to.v[2] % to.v[1], i % to.v[2]}, from = 0;
            for (int a = 0; a < 3; a++) {
                from = from * s.v[a] + source_of(b->mode, at[a] - b->before.v[a], s.v[a]);
            }
            want[i] = dtype == WEFT_U8 ? fabsl(v[from]) : v[from];
            bound[i] = 0;
        }
        judge("pad_mode", call_pad_mode, b, &in, 1, (weft_dtype)dtype, to);
        weft_scope_end(sc);
    }
}

/* -- indexing by tensors ----------------------------------------------------------------------------------------- */

typedef struct put_how {
    weft_tensor i, j;
    bool both, accumulate;
} put_how;

static weft_tensor call_put(const void *how, const weft_tensor *in, int n)
{
    const put_how *k = how;
    const weft_tensor at[2] = {k->i, k->j};
    (void)n;
    return weft_index_put(in[0], at, k->both ? 2 : 1, in[1], k->accumulate);
}

static weft_tensor call_get(const void *how, const weft_tensor *in, int n)
{
    const put_how *k = how;
    (void)n;
    return weft_index_get(in[0], WEFT_LIST(k->i, k->j));
}

/* x[4, 3, 2] at i[5, 1], j[6]: thirty places of twelve; by i alone five of four. */
static void check_put(int dtype, bool both, bool accumulate)
{
    enum { I = 5, J = 6 };
    static const int64_t i[I] = {3, -4, 1, -1, 1}, j[J] = {2, 0, -3, 1, 2, -1};
    static real x[MOST], v[MOST];
    const int inner = both ? 2 : 6, places = both ? I * J : I;
    weft_scope sc = weft_scope_begin();
    put_how how = {weft_from_data(i, both ? S(I, 1) : S(I), WEFT_I64),
                   weft_cast(weft_from_data(j, S(J), WEFT_I64), WEFT_I32), both, accumulate};
    weft_tensor in[2] = {given(S(4, 3, 2), dtype, true, x),
                         given(both ? S(I, J, 2) : S(I, 3, 2), dtype, false, v)};
    for (int k = 0; accumulate && k < 24; k++) {
        add_term(k, x[k]);
    }
    memcpy(want, x, 24 * sizeof *want);
    memset(bound, 0, 24 * sizeof *bound);
    for (int k = 0; k < places; k++) {
        int64_t line = both ? (i[k / J] + 4) % 4 * 3 + (j[k % J] + 3) % 3 : (i[k] + 4) % 4;
        for (int c = 0; c < inner; c++) {
            want[line * inner + c] = v[k * inner + c];
            if (accumulate) {
                add_term(line * inner + c, v[k * inner + c]);
            }
        }
    }
    if (accumulate) {
        want_sums(24, dtype, 1, 0);
    }
    judge("index_put", call_put, &how, in, 2, (weft_dtype)dtype, S(4, 3, 2));
    for (int k = 0; both && k < I * J * 2; k++) {
        int64_t line = (i[k / 2 / J] + 4) % 4 * 3 + (j[k / 2 % J] + 3) % 3;
        want[k] = x[line * 2 + k % 2];
        bound[k] = 0;
    }
    if (both) {
        judge("index_get", call_get, &how, in, 1, (weft_dtype)dtype, S(I, J, 2));
    }
    weft_scope_end(sc);
}

static weft_status put_traced(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)n_out;
    out[0] = weft_index_put(in[0], in + 2, n_in - 2, in[1], *(bool *)self);
    return weft_error_status(out[0]);
}

/* Of y = index_put(x, i, v): a line that was written gives its gradient, every bit of it, to the last value that was put there, and
 * others give theirs to x. */
static void check_shares(weft_tensor x, weft_tensor v, weft_tensor i, weft_tensor y)
{
    const int64_t lines = weft_dim(x, 0), row = weft_numel(x) / lines, m = weft_numel(i);
    int64_t *at = malloc((size_t)m * sizeof *at), *last = malloc((size_t)lines * sizeof *last);
    float *g = malloc((size_t)(lines * row) * sizeof *g),
          *dv = malloc((size_t)(m * row) * sizeof *dv);
    weft_tensor dy = weft_mul(
                    weft_cast(weft_randint(weft_shape(lines, 2, row / 2), -2, 2), WEFT_F32),
                    weft_f(-0.5)),
                got;
    cr_assert_eq(weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &v, .n_inputs = 1,
                              .grads = &got, .grad_outputs = &dy),
                 WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_to_array(weft_cast(i, WEFT_I64), at, m, WEFT_I64), WEFT_OK);
    cr_assert_eq(weft_to_array(dy, g, lines * row, WEFT_F32), WEFT_OK);
    cr_assert_eq(weft_to_array(got, dv, m * row, WEFT_F32), WEFT_OK);
    for (int64_t k = 0; k < m; k++) {
        last[(at[k] + lines) % lines] = k;
    }
    for (int64_t k = 0; k < m * row; k++) {
        const int64_t line = (at[k / row] + lines) % lines;
        const float share = last[line] == k / row ? g[line * row + k % row] : 0;
        cr_assert(memcmp(&share, &dv[k], sizeof share) == 0, "value %d gets %g, not %g", (int)k,
                  (double)dv[k], (double)share);
    }
    free(at), free(last), free(g), free(dv);
}

/* Written in order, made of other rows (for a trace, and for gradients), and too large to be written in order: the same bits. */
Test(compositions, writing_by_indices_has_one_result)
{
    static const int64_t sizes[][3] = {{7, 5, 3}, {300, 1, 40}, {9, 2000, 700}};
    for (int k = 0; k < COUNT(sizes) * 4; k++) {
        const int64_t lines = sizes[k % 3][0], inner = sizes[k % 3][1], m = sizes[k % 3][2];
        const int n = 1 + k / 3 % 2;
        bool add = k / 6;
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_randn(S(lines, 2, inner)), i = weft_randint(S(m), -lines, lines), got;
        weft_tensor in[4] = {x, weft_randn(n > 1 ? S(m, inner) : S(m, 2, inner)),
                             weft_cast(i, k % 2 ? WEFT_I32 : WEFT_I64), weft_randint(S(m), -2, 2)};
        if (!add) { /* every bit of these, too */
            static const float rare[] = {-0.0f, INFINITY, NAN};
            for (int r = 0; r < 3; r++) {
                weft_fill_(weft_select(weft_reshape(in[1], S(-1)), 0, 2 * r), (double)rare[r]);
                weft_fill_(weft_select(weft_reshape(x, S(-1)), 0, 3 * r), (double)rare[r]);
            }
            /* of the last value, which others go before, at times */
            weft_fill_(weft_select(weft_reshape(in[1], S(-1)), 0, -1), (double)rare[0]);
        }
        weft_tensor y = weft_index_put(x, in + 2, n, in[1], add);
        weft_jit *j = weft_jit_trace(put_traced, &add, .always_record = true);
        cr_assert_eq(weft_jit_call(j, in, 2 + n, &got, 1), WEFT_OK, "%s", weft_last_error());
        check_bits("traced", y, got);
        cr_assert_eq(weft_write_count(y), weft_write_count(got));
        cr_assert_eq(weft_requires_grad_(in[1], true), WEFT_OK);
        got = weft_index_put(x, in + 2, n, in[1], add);
        cr_assert(weft_requires_grad(got));
        check_bits("with gradients", y, got);
        if (n == 1 && !add) {
            check_shares(x, in[1], in[2], got);
        }
        weft_jit_free(j);
        weft_scope_end(sc);
    }
    weft_tensor x = weft_zeros(S(3, 2), WEFT_F32), far = weft_full(S(2), 3, WEFT_I64);
    check_error("row 3", weft_index_put(x, WEFT_LIST(far), weft_f(1), false), WEFT_EINDEX,
                "axis 0 of extent 3");
    check_error("row -4",
                weft_index_put(x, WEFT_LIST(weft_full(S(1), -4, WEFT_I64)), weft_f(1), false),
                WEFT_EINDEX, "index_put");
    check_error("row 3", weft_index_get(x, WEFT_LIST(far)), WEFT_EINDEX, "axis 0 of extent 3");
    check_error("add to row 3", weft_index_put(x, WEFT_LIST(far), weft_f(1), true), WEFT_EINDEX,
                "axis 0 of extent 3");
}

Test(compositions, indices_of_several_axes)
{
    static const int types[] = {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_I64, WEFT_I16};
    for (int k = 0; k < COUNT(types) * 4; k++) {
        check_put(types[k / 4], k % 2, k / 2 % 2);
    }
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_zeros(S(2, 3), WEFT_F32), y;
    weft_tensor i = weft_from_data((const int64_t[]){1, 1}, S(2), WEFT_I64);
    weft_tensor far = weft_from_data((const int64_t[]){0, 3}, S(2), WEFT_I64);
    float got[6];
    y = weft_index_put(x, WEFT_LIST(i, i), weft_f(-0.0), false); /* every bit of it */
    cr_assert_eq(weft_to_array(y, got, 6, WEFT_F32), WEFT_OK, "%s", weft_error_text(y));
    cr_assert(signbit(got[4]) && !signbit(got[0]));
    y = weft_index_put(weft_zeros(S(2), WEFT_BOOL), WEFT_LIST(i), weft_b(true), false);
    cr_assert(weft_item_i64(weft_count_nonzero(y)) == 1, "%s", weft_error_text(y));
    check_error("column 3", weft_index_get(x, WEFT_LIST(i, far)), WEFT_EINDEX, "axis 1");
    weft_shape most = {.n = 16, .v = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
    y = weft_reshape(weft_arange(0, 6, 1, WEFT_F32), S(2, 3));
    y = weft_index_get(y, WEFT_LIST(weft_reshape(i, most), weft_reshape(i, most)));
    cr_assert(weft_shape_of(y).n == 16 && weft_item_f64(weft_sum(y)) == 8, "%s",
              weft_error_text(y));
    check_error("column 3", weft_index_put(x, WEFT_LIST(i, far), x, false), WEFT_ESHAPE,
                "rank 2 does not expand");
    check_error("300", weft_index_put(weft_zeros(S(2), WEFT_U8), WEFT_LIST(i), weft_i(300), true),
                WEFT_EDTYPE, "does not hold 300");
    check_error("halves", weft_index_put(i, WEFT_LIST(i), weft_f(0.5), true), WEFT_EDTYPE, "f32");
    y = weft_index_put(x, WEFT_LIST(weft_zeros(S(0), WEFT_I64)), weft_f(1), false);
    cr_assert(weft_ok(y) && weft_item_f64(weft_sum(y)) == 0 && !weft_shares_memory(x, y));
    weft_scope_end(sc);
}
