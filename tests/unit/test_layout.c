/*
 * tests/unit/test_layout.c -- channels-last images: which results lie so, and that no bit depends on it.
 *
 * Everything is computed twice, of row-major and of channels-last images of the same values. Where results lie is
 * docs/channels-last.md's rule, which is spelled out here by who calls `check_both`.
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "tests/support/support.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define OK(call) cr_assert_eq(call, WEFT_OK, "%s", weft_last_error())

enum { RESULTS = 6 };

typedef struct results {
    weft_tensor of[RESULTS];
    bool of_leaf[RESULTS]; /* its gradient, which may lie as the leaf does */
    int n;
} results;

static void add(results *r, weft_tensor t)
{
    cr_assert(weft_ok(t), "%s", weft_error_text(t));
    cr_assert(r->n < RESULTS);
    r->of[r->n++] = t;
}

static void add_gradient(results *r, weft_tensor leaf)
{
    r->of_leaf[r->n] = true;
    add(r, weft_grad(leaf));
}

/* Results of row-major images and of channels-last ones; the first `last` of them lie as their images. */
static void check_both(const char *what, const results *rows, const results *turned, int last)
{
    cr_assert_eq(rows->n, turned->n);
    for (int i = 0; i < rows->n; i++) {
        char name[200];
        snprintf(name, sizeof name, "%s: result %d", what, i);
        check_bits(name, turned->of[i], rows->of[i]);
        cr_assert(weft_is_contiguous(rows->of[i]), "%s of row-major images", name);
        const weft_shape s = weft_shape_of(turned->of[i]);
        const bool can = s.n == 4 && weft_numel(turned->of[i]) > 0 && s.v[2] * s.v[3] > 1;
        const bool is = weft_is_channels_last(turned->of[i]);
        if (turned->of_leaf[i]) {
            cr_assert(is || weft_is_contiguous(turned->of[i]), "%s has gaps", name);
        } else {
            cr_assert_eq(is, can && i < last, "%s lies %s", name,
                         i < last ? "row-major" : "channels-last");
        }
    }
}

static weft_tensor numbers(weft_dtype dtype, weft_shape shape)
{
    return weft_cast(weft_randn(shape, WEFT_F32), dtype);
}

static weft_tensor leaf(weft_tensor t)
{
    t = weft_detach(t);
    OK(weft_requires_grad_(t, true));
    return t;
}

/* A loss whose gradient differs from element to element. */
static void descend(weft_tensor y)
{
    const weft_tensor column =
        weft_add(weft_arange(0, (double)weft_dim(y, -1), 1, WEFT_F32), weft_f(0.25));
    OK(weft_backward(weft_sum(weft_mul(weft_mul(y, y), weft_cast(column, weft_dtype_of(y))))));
}

/* -- what lies channels-last ------------------------------------------------------------------------------------- */

static void check_strides(weft_tensor t, int64_t n, int64_t c, int64_t h, int64_t w)
{
    const int64_t want[4] = {n, c, h, w};
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(weft_stride(t, i), want[i], "stride %d is %lld", i,
                     (long long)weft_stride(t, i));
    }
}

static void helper_rules(void)
{
    const weft_tensor x = numbers(WEFT_F32, weft_shape(2, 3, 4, 5)), t = weft_channels_last(x);
    check_strides(t, 60, 1, 15, 3);
    check_bits("channels_last", t, x);
    cr_assert(weft_is_channels_last(t) && !weft_is_contiguous(t) && !weft_is_channels_last(x));
    cr_assert(weft_shares_memory(t, weft_channels_last(t)), "it lies so already");
    cr_assert(weft_is_contiguous(weft_contiguous(t)) && weft_is_contiguous(weft_clone(t)));
    const weft_tensor hwc =
        weft_permute(weft_clone(weft_permute(x, weft_axes(0, 2, 3, 1))), weft_axes(0, 3, 1, 2));
    cr_assert(weft_is_channels_last(hwc), "permuted NHWC memory");
    cr_assert(weft_is_channels_last(weft_narrow(t, 0, 1, 1)), "an image of a batch");
    cr_assert(!weft_is_channels_last(weft_narrow(t, 1, 0, 2)), "some channels have gaps");
    cr_assert(!weft_is_channels_last(weft_narrow(t, 2, 0, 2)), "some rows of several images");
    cr_assert(weft_is_channels_last(weft_channels_last(weft_narrow(t, 1, 0, 2))));
    cr_assert(weft_is_channels_last(
        weft_channels_last(weft_expand(weft_narrow(x, 0, 0, 1), weft_shape(3, 3, 4, 5)))));
    const weft_tensor grey = weft_channels_last(numbers(WEFT_F32, weft_shape(2, 1, 4, 5)));
    check_strides(grey, 20, 1, 5, 1);
    cr_assert(weft_is_channels_last(grey) && weft_is_contiguous(grey),
              "one channel lies both ways");
    const weft_tensor pixel = weft_channels_last(numbers(WEFT_F32, weft_shape(2, 3, 1, 1)));
    cr_assert(!weft_is_channels_last(pixel) && weft_is_contiguous(pixel));
    const weft_tensor none = weft_channels_last(weft_zeros(weft_shape(0, 3, 4, 5), WEFT_F32));
    cr_assert(weft_ok(none) && !weft_is_channels_last(none));
    check_error("rank 3", weft_channels_last(weft_zeros(weft_shape(3, 4, 5), WEFT_F32)),
                WEFT_ESHAPE, "x has rank 3, not 4");
    cr_assert(!weft_is_channels_last(WEFT_NONE));
}

/* What a leaf keeps: as the leaf lies, of a channels-last one whose gradient came so. */
static void kept_gradients(void)
{
    const weft_tensor x = numbers(WEFT_F32, weft_shape(2, 3, 4, 5));
    const weft_tensor w = numbers(WEFT_F32, weft_shape(3, 3, 3, 3));
    for (int last = 0; last < 3; last++) {
        const weft_tensor a = leaf(last == 1 ? weft_channels_last(x) : x);
        for (int i = 0; i < 2; i++) {
            const weft_tensor image = last == 2 ? weft_channels_last(a) : a;
            OK(weft_backward(weft_sum(weft_square(weft_conv2d(.x = image, .weight = w)))));
            cr_assert_eq(weft_is_channels_last(weft_grad(a)), last == 1, "case %d", last);
        }
    }
}

/* The gradient of the order itself, and as_strided and unfold, whose maps are about memory. */
static void views_of_memory(void)
{
    const weft_tensor x = numbers(WEFT_F32, weft_shape(2, 3, 4, 5));
    results of[2] = {0};
    for (int last = 0; last < 2; last++) {
        const weft_tensor a = leaf(x), y = last ? weft_channels_last(a) : a;
        descend(weft_unfold(weft_relu(y), 2, 3, 1));
        add(&of[last], weft_unfold(y, 3, 2, 2));
        add_gradient(&of[last], a);
        of[last].of[0] = weft_clone(of[last].of[0]);
    }
    check_both("unfold", &of[0], &of[1], 0);
    for (int last = 0; last < 2; last++) { /* axes in any other order that leaves no gaps */
        const weft_tensor a = leaf(x), y = weft_permute(a, weft_axes(3, 0, 2, 1));
        descend(weft_unfold(last ? y : weft_contiguous(y), 2, 3, 1));
        of[last] = (results){.n = 0};
        add_gradient(&of[last], a);
    }
    check_both("unfold of a permuted image", &of[0], &of[1], 0);
    const weft_tensor a = leaf(x), y = weft_relu(weft_channels_last(a));
    const weft_tensor all = weft_as_strided(y, weft_shape(120), weft_shape(1), 0);
    check_bits("memory", all,
               weft_reshape(weft_permute(weft_relu(x), weft_axes(0, 2, 3, 1)), weft_shape(120)));
    const weft_tensor k = weft_arange(0, 120, 1, WEFT_F32);
    OK(weft_backward(weft_sum(weft_mul(all, k))));
    const weft_tensor want =
        weft_mul(weft_permute(weft_reshape(k, weft_shape(2, 4, 5, 3)), weft_axes(0, 3, 1, 2)),
                 weft_cast(weft_greater(x, weft_f(0)), WEFT_F32));
    check_bits("its gradient", weft_grad(a), want);
}

Test(layout, which_tensors_are)
{
    const test_baseline before = test_baseline_take();
    const weft_scope sc = weft_scope_begin();
    helper_rules();
    kept_gradients();
    views_of_memory();
    weft_scope_end(sc);
    check_baseline("layout", &before);
}

/* -- convolutions -------------------------------------------------------------------------------------------------- */

typedef struct window {
    int n, c, h, w, o, kernel, stride, padding, groups, dilation;
} window;

static results convolve(const window *k, weft_tensor x, weft_tensor w, weft_tensor b)
{
    results r = {.n = 0};
    const weft_tensor xs = leaf(x), ws = leaf(w), bs = weft_ok(b) ? leaf(b) : b;
    const weft_tensor y =
        weft_conv2d(.x = xs, .weight = ws, .bias = bs, .stride = weft_shape(k->stride),
                    .padding = weft_shape(k->padding), .dilation = weft_shape(k->dilation),
                    .groups = k->groups);
    const weft_tensor z = weft_gelu(weft_relu(y));
    add(&r, y);
    add(&r, z);
    descend(z);
    add_gradient(&r, xs);
    add_gradient(&r, ws);
    if (weft_ok(b)) {
        add_gradient(&r, bs);
    }
    return r;
}

static void one_convolution(const window *k, weft_dtype dtype, bool bias)
{
    char name[160];
    const weft_scope sc = weft_scope_begin();
    const weft_tensor x = numbers(dtype, weft_shape(k->n, k->c, k->h, k->w));
    const weft_tensor w = numbers(dtype, weft_shape(k->o, k->c / k->groups, k->kernel, k->kernel));
    const weft_tensor b = bias ? numbers(dtype, weft_shape(k->o)) : WEFT_NONE;
    const results rows = convolve(k, x, w, b), last = convolve(k, weft_channels_last(x), w, b);
    snprintf(name, sizeof name, "%s %dx%d/%d %d->%d groups %d at %dx%d", weft_dtype_name(dtype),
             k->kernel, k->kernel, k->stride, k->c, k->o, k->groups, k->h, k->w);
    check_both(name, &rows, &last, 2);
    weft_scope_end(sc);
}

Test(layout, convolutions)
{
    static const window windows[] = {
        {2, 3, 17, 19, 8, 3, 1, 1, 1, 1},  {2, 64, 14, 14, 96, 1, 1, 0, 1, 1},
        {3, 24, 9, 7, 40, 1, 1, 0, 1, 1},  {2, 32, 12, 12, 32, 3, 1, 1, 1, 1},
        {2, 8, 15, 15, 16, 3, 2, 1, 2, 1}, {2, 8, 15, 15, 8, 3, 1, 2, 8, 2},
        {1, 1, 28, 28, 6, 5, 1, 0, 1, 1},  {2, 3, 32, 32, 16, 7, 2, 3, 1, 1},
        {2, 16, 7, 7, 32, 1, 2, 0, 1, 1},  {3, 5, 1, 9, 7, 1, 1, 0, 1, 1},
        {2, 16, 7, 7, 32, 7, 1, 0, 1, 1},  {2, 6, 5, 1, 4, 1, 1, 0, 1, 1}};
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F64};
    const test_baseline before = test_baseline_take();
    weft_manual_seed(3);
    for (int t = 0; t < COUNT(types); t++) {
        for (int i = 0; i < COUNT(windows); i++) {
            one_convolution(&windows[i], types[t], i % 2 == 0);
        }
    }
    const weft_scope sc = weft_scope_begin();
    const weft_tensor none =
        weft_conv2d(.x = weft_permute(weft_zeros(weft_shape(0, 4, 4, 3), WEFT_F32),
                                      weft_axes(0, 3, 1, 2)),
                    .weight = weft_ones(weft_shape(2, 3, 3, 3), WEFT_F32));
    check_type("no images", none, WEFT_F32, weft_shape(0, 2, 2, 2));
    weft_scope_end(sc);
    check_baseline("convolutions", &before);
}

/* -- pooling and norms ----------------------------------------------------------------------------------------------- */

typedef enum row { MAX_POOL, AVG_POOL, NORM_TRAINED, NORM_RUNNING, NORM_BARE, ROWS } row;

typedef struct pool {
    int n, c, h, w, kernel, stride, padding, dilation;
    bool ceil, count;
} pool;

static weft_tensor apply(row what, const pool *p, weft_tensor x, const weft_tensor *v,
                         weft_tensor *index)
{
    const weft_shape kernel = weft_shape(p->kernel), stride = weft_shape(p->stride),
                     padding = weft_shape(p->padding);
    switch (what) {
    case MAX_POOL:
        return weft_max_pool2d(.x = x, .kernel = kernel, .stride = stride, .padding = padding,
                               .dilation = weft_shape(p->dilation), .ceil_mode = p->ceil,
                               .indices = index);
    case AVG_POOL:
        return weft_avg_pool2d(.x = x, .kernel = kernel, .stride = stride, .padding = padding,
                               .ceil_mode = p->ceil, .count_include_pad = p->count);
    case NORM_TRAINED:
        return weft_batch_norm(.x = x, .weight = v[0], .bias = v[1], .training = true);
    case NORM_RUNNING:
        return weft_batch_norm(.x = x, .weight = v[0], .bias = v[1], .running_mean = v[2],
                               .running_var = v[3]);
    case NORM_BARE:
    case ROWS:
        break;
    }
    return weft_batch_norm(.x = x, .training = true);
}

static results pooled(row what, const pool *p, weft_tensor x, const weft_tensor *values)
{
    results r = {.n = 0};
    weft_tensor v[4] = {leaf(values[0]), leaf(values[1]), values[2], values[3]}, index = WEFT_NONE;
    const weft_tensor xs = leaf(x), y = apply(what, p, xs, v, &index);
    const weft_tensor z = weft_leaky_relu(y, weft_f(0.125));
    add(&r, y);
    add(&r, z);
    if (what == MAX_POOL) {
        add(&r, index);
    }
    descend(z);
    add_gradient(&r, xs);
    for (int i = 0; i < 2 && (what == NORM_TRAINED || what == NORM_RUNNING); i++) {
        add_gradient(&r, v[i]);
    }
    return r;
}

/* Numbers with equal ones among them, zeros of both signs, and NaN if asked. */
static weft_tensor odd_numbers(weft_dtype dtype, weft_shape shape, bool nan)
{
    weft_tensor x = numbers(WEFT_F32, shape);
    x = weft_where(weft_greater(x, weft_f(1.5)), weft_f(-0.0), x);
    x = weft_where(weft_less(x, weft_f(-1.5)), weft_f(0.0), x);
    x = nan ? weft_where(weft_greater(x, weft_f(1.2)), weft_f(NAN), x) : x;
    return weft_cast(weft_div(weft_round(weft_mul(x, weft_f(4))), weft_f(4)), dtype);
}

static void one_pool(row what, const pool *p, weft_dtype dtype, bool nan)
{
    char name[120];
    const weft_scope sc = weft_scope_begin();
    const weft_dtype wide = dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    const weft_tensor x = odd_numbers(dtype, weft_shape(p->n, p->c, p->h, p->w), nan);
    const weft_tensor v[4] = {numbers(dtype, weft_shape(p->c)), numbers(dtype, weft_shape(p->c)),
                              numbers(wide, weft_shape(p->c)),
                              weft_abs(numbers(wide, weft_shape(p->c)))};
    const results rows = pooled(what, p, x, v), last = pooled(what, p, weft_channels_last(x), v);
    snprintf(name, sizeof name, "row %d, %s, %d channels at %dx%d", (int)what,
             weft_dtype_name(dtype), p->c, p->h, p->w);
    check_both(name, &rows, &last, what == MAX_POOL ? 3 : 2);
    weft_scope_end(sc);
}

Test(layout, pools_and_norms)
{
    static const pool pools[] = {
        {2, 64, 12, 12, 3, 2, 1, 1, false, false}, {2, 37, 11, 13, 2, 2, 0, 1, true, true},
        {3, 32, 9, 9, 3, 1, 1, 2, false, true},    {1, 1, 8, 8, 2, 2, 0, 1, false, false},
        {2, 70, 5, 6, 3, 2, 1, 1, true, true},     {5, 3, 7, 1, 1, 1, 0, 1, false, false},
        {2, 136, 9, 8, 2, 2, 0, 1, true, true},    {2, 37, 3, 4, 1, 1, 0, INT_MAX, false, false}};
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F64};
    static const weft_dtype whole[] = {WEFT_U8, WEFT_I8, WEFT_I16, WEFT_I32, WEFT_I64};
    const test_baseline before = test_baseline_take();
    weft_manual_seed(4);
    for (int t = 0; t < COUNT(types); t++) {
        for (int i = 0; i < COUNT(pools); i++) {
            for (int what = 0; what < ROWS; what++) {
                one_pool((row)what, &pools[i], types[t], i == 2 && what <= AVG_POOL);
            }
        }
    }
    for (int t = 0; t < COUNT(whole); t++) {
        const weft_scope sc = weft_scope_begin();
        const weft_tensor x = weft_cast(
            weft_mul(weft_randn(weft_shape(2, 39, 9, 8), WEFT_F32), weft_f(60)), whole[t]);
        results of[2] = {0};
        for (int last = 0; last < 2; last++) {
            weft_tensor index;
            add(&of[last], weft_max_pool2d(.x = last ? weft_channels_last(x) : x,
                                           .kernel = weft_shape(3), .stride = weft_shape(2),
                                           .padding = weft_shape(1), .indices = &index));
            add(&of[last], index);
        }
        check_both(weft_dtype_name(whole[t]), &of[0], &of[1], 2);
        weft_scope_end(sc);
    }
    check_baseline("pools and norms", &before);
}

/* -- elementwise rows, reductions, writes in place -------------------------------------------------------------------- */

/* Rows that keep the order, those with other operands too, and those that do not. */
static int elementwise(weft_tensor x, results *r)
{
    const weft_shape s = weft_shape_of(x);
    const weft_tensor bias =
        weft_reshape(weft_arange(0, (double)s.v[1], 1, WEFT_F32), weft_shape(-1, 1, 1));
    const weft_tensor mask = weft_greater(x, weft_f(0));
    add(r, mask);
    add(r, weft_where(mask, weft_cast(x, WEFT_F64), weft_f(2)));
    add(r, weft_add(weft_mul(x, weft_cast(bias, weft_dtype_of(x))), x));
    add(r,
        weft_add(weft_narrow(x, 0, 0, 1), weft_expand(weft_arange(0, (double)s.v[3], 1, WEFT_F32),
                                                      weft_shape(1, s.v[1], s.v[2], s.v[3]))));
    add(r, weft_interpolate(x, weft_shape(13, 33), .mode = WEFT_LINEAR));
    add(r, weft_interpolate(x, .scale = 2));
    return r->n;
}

static void reduced(weft_tensor x, results *r)
{
    add(r, weft_sum(x));
    add(r, weft_mean(x, .axes = weft_axes(2, 3)));
    add(r, weft_sum(x, .axes = weft_axes(0, 2, 3)));
    add(r, weft_softmax(x, 1));
    add(r, weft_add(x, weft_clone(x))); /* of two orders: row-major */
    add(r, weft_relu(weft_narrow(x, 1, 0, 2)));
}

/* Writes into the image, and into parts of it. */
static void written(weft_tensor x, results *r)
{
    const weft_tensor y = weft_mul(x, weft_f(1)), part = weft_narrow(y, 1, 1, 2);
    OK(weft_relu_(y));
    OK(weft_add_(y, x));
    OK(weft_mul_(part, weft_f(3)));
    OK(weft_fill_(weft_narrow(y, 2, 0, 1), 7));
    OK(weft_copy_(weft_narrow(y, 0, 1, 1), weft_narrow(x, 0, 0, 1)));
    OK(weft_add_(y, weft_contiguous(x)));
    add(r, y);
    add(r, weft_clone(part));
}

Test(layout, elements)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16};
    const test_baseline before = test_baseline_take();
    weft_manual_seed(5);
    for (int t = 0; t < COUNT(types); t++) {
        const weft_scope sc = weft_scope_begin();
        const weft_tensor x = numbers(types[t], weft_shape(3, 5, 9, 70));
        results of[3][2] = {0};
        int kept = 0;
        for (int last = 0; last < 2; last++) {
            const weft_tensor image = last ? weft_channels_last(x) : x;
            kept = elementwise(image, &of[0][last]);
            reduced(image, &of[1][last]);
            written(image, &of[2][last]);
        }
        check_both("elementwise", &of[0][0], &of[0][1], kept);
        check_both("reductions and others", &of[1][0], &of[1][1], 0);
        check_both("writes", &of[2][0], &of[2][1], 1);
        weft_scope_end(sc);
    }
    check_baseline("elements", &before);
}

/* -- tapes ----------------------------------------------------------------------------------------------------------- */

/* Writes in place that gradients flow through: whole results, parts of them, views made before. */
static results taped(weft_tensor x, weft_tensor w)
{
    results r = {.n = 0};
    const weft_tensor xs = leaf(x), ws = leaf(w), image = weft_mul(xs, weft_f(1));
    const weft_tensor y = weft_conv2d(.x = image, .weight = ws, .padding = weft_shape(1));
    const weft_tensor part = weft_narrow(y, 1, 0, 3), early = weft_mul(part, weft_f(0.5));
    OK(weft_leaky_relu_(y, weft_f(0.125)));
    OK(weft_mul_(part, weft_f(2)));
    OK(weft_copy_(weft_narrow(y, 2, 1, 2), weft_narrow(image, 2, 0, 2)));
    const weft_tensor z =
        weft_add(weft_max_pool2d(.x = y, .kernel = weft_shape(3), .stride = weft_shape(1),
                                 .padding = weft_shape(1)),
                 image);
    OK(weft_add_(z, y));
    descend(weft_mul(weft_avg_pool2d(.x = z, .kernel = weft_shape(2)), weft_sum(early)));
    add(&r, y);
    add(&r, z);
    add_gradient(&r, xs);
    add_gradient(&r, ws);
    return r;
}

/* The derivative of a derivative. */
static results twice(weft_tensor x, weft_tensor w)
{
    results r = {.n = 0};
    const weft_tensor xs = leaf(x), ws = leaf(w);
    const weft_tensor y =
        weft_batch_norm(.x = weft_tanh(weft_conv2d(.x = weft_mul(xs, weft_f(1)), .weight = ws)),
                        .training = true);
    OK(weft_backward(.loss = weft_sum(weft_mul(y, weft_sin(y))), .create_graph = true));
    const weft_tensor g = weft_grad(ws);
    OK(weft_set_grad(ws, WEFT_NONE));
    OK(weft_set_grad(xs, WEFT_NONE));
    OK(weft_backward(weft_sum(weft_mul(g, g))));
    add(&r, weft_detach(g));
    add_gradient(&r, xs);
    add_gradient(&r, ws);
    OK(weft_set_grad(xs, WEFT_NONE));
    return r;
}

Test(layout, tapes)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16};
    const test_baseline before = test_baseline_take();
    weft_manual_seed(6);
    for (int t = 0; t < COUNT(types); t++) {
        const weft_scope sc = weft_scope_begin();
        const weft_tensor x = numbers(types[t], weft_shape(2, 6, 8, 9));
        const weft_tensor w = numbers(types[t], weft_shape(6, 6, 3, 3));
        results rows = taped(x, w), last = taped(weft_channels_last(x), w);
        check_both("writes", &rows, &last, 2);
        if (types[t] == WEFT_F32) {
            rows = twice(x, w);
            last = twice(weft_channels_last(x), w);
            check_both("second derivative", &rows, &last, 0);
        }
        weft_scope_end(sc);
    }
    check_baseline("tapes", &before);
}
