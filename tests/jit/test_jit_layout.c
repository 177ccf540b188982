/*
 * tests/jit/test_jit_layout.c -- channels-last images through traced functions: the bits of eager calls, and results that
 * lie where eager's do, recorded, replayed, fused or not, on the tile interpreter and natively.
 */
#include <stdio.h>

#include "tests/jit/corner_support.h"

enum { OUTPUTS = 4, CALLS = 4, C = 16 };

typedef struct weights {
    weft_tensor first, second, bias, scale, shift;
} weights;

static weft_tensor column(weft_tensor t)
{
    return weft_reshape(t, weft_shape(-1, 1, 1));
}

/* What a residual network repeats. */
FN(block)
{
    const weights *w = self;
    weft_tensor y =
        weft_conv2d(.x = in[0], .weight = w->first, .bias = w->bias, .padding = weft_shape(1));
    y = weft_relu(weft_batch_norm(.x = y, .weight = w->scale, .bias = w->shift, .training = true));
    y = weft_add(weft_conv2d(.x = y, .weight = w->second, .padding = weft_shape(1)), in[0]);
    out[0] = weft_relu(y);
    out[1] = weft_max_pool2d(.x = out[0], .kernel = weft_shape(2));
    out[2] = weft_avg_pool2d(.x = out[0], .kernel = weft_shape(3), .stride = weft_shape(1));
    out[3] = weft_sum(out[0], .axes = weft_axes(0, 2, 3));
    return weft_error_status(out[3]);
}

/* Writes in place into the whole, parts and views of a result. */
FN(writes)
{
    const weights *w = self;
    const weft_tensor y = weft_conv2d(.x = in[0], .weight = w->first, .padding = weft_shape(1));
    const weft_tensor part = weft_narrow(y, 1, 2, 4);
    OK(weft_relu_(y));
    OK(weft_add_(y, in[0]));
    OK(weft_mul_(part, weft_f(3)));
    OK(weft_fill_(weft_narrow(y, 2, 0, 2), 7));
    OK(weft_copy_(weft_narrow(y, 0, 1, 1), weft_narrow(in[0], 0, 0, 1)));
    OK(weft_add_(y, column(w->shift)));
    out[0] = y;
    out[1] = part;
    out[2] = weft_add(part, weft_f(1));
    out[3] = weft_clone(y);
    return weft_error_status(out[3]);
}

/* Rows that keep the order, of types and operands of other ranks. */
FN(elements)
{
    const weights *w = self;
    const weft_tensor x = in[0], mask = weft_greater(x, weft_f(0));
    const weft_tensor row =
        weft_cast(weft_arange(0, (double)weft_dim(x, 3), 1, WEFT_F32), weft_dtype_of(x));
    out[0] = weft_where(mask, weft_cast(x, WEFT_F64), weft_f(2));
    out[1] = mask;
    out[2] = weft_mul(weft_add(x, row), column(w->shift));
    out[3] = weft_add(weft_narrow(x, 0, 0, 1),
                      weft_mul(weft_reshape(row, weft_shape(1, -1)), weft_narrow(x, 0, 1, 1)));
    return weft_error_status(out[3]);
}

/* Forward and backward. */
FN(gradients)
{
    const weights *w = self;
    weft_tensor p[3] = {weft_detach(w->first), weft_detach(w->second), weft_detach(w->scale)};
    for (int i = 0; i < 3; i++) {
        OK(weft_requires_grad_(p[i], true));
    }
    const weft_tensor x = weft_mul(in[0], weft_f(1));
    const weft_tensor y =
        weft_batch_norm(.x = weft_conv2d(.x = x, .weight = p[0], .padding = weft_shape(1)),
                        .weight = p[2], .bias = w->shift, .training = true);
    OK(weft_relu_(y));
    OK(weft_mul_(weft_narrow(y, 1, 0, 3), weft_f(2)));
    weft_tensor z = weft_max_pool2d(.x = y, .kernel = weft_shape(3), .stride = weft_shape(1),
                                    .padding = weft_shape(1));
    z = weft_conv2d(.x = z, .weight = p[1], .padding = weft_shape(1));
    z = weft_mul(weft_gelu(weft_add(z, x)), column(w->shift));
    z = weft_avg_pool2d(.x = z, .kernel = weft_shape(2));
    const weft_tensor loss = weft_mean(weft_mul(z, z));
    OK(weft_backward(loss));
    for (int i = 0; i < 3; i++) {
        out[i] = weft_clone(weft_grad(p[i]));
    }
    out[3] = weft_detach(loss);
    return weft_error_status(out[3]);
}

typedef struct traced {
    const char *name;
    weft_jit_fn fn;
} traced;

/* Calls of both orders by turns: one function, plans for each. */
static void check_traced(const traced *f, const weft_jit_args *how, weights *w, weft_tensor x)
{
    weft_jit_args args = *how;
    args.fn = f->fn;
    args.self = w;
    weft_jit *j = (weft_jit_trace)(&args);
    const weft_tensor in[2] = {x, weft_channels_last(x)};
    weft_tensor want[2][OUTPUTS];
    for (int last = 0; last < 2; last++) {
        OK(f->fn(w, &in[last], 1, want[last], OUTPUTS));
    }
    for (int i = 0; i < 2 * CALLS; i++) {
        char what[120];
        const weft_scope sc = weft_scope_begin();
        weft_tensor got[OUTPUTS];
        OK(weft_jit_call(j, &in[i % 2], 1, got, OUTPUTS));
        for (int k = 0; k < OUTPUTS; k++) {
            snprintf(what, sizeof what, "%s of %s, call %d, result %d", f->name,
                     weft_dtype_name(weft_dtype_of(x)), i, k);
            check_bits(what, want[i % 2][k], want[0][k]);
            check_bits(what, got[k], want[i % 2][k]);
            cr_assert(test_same_place(got[k], want[i % 2][k]), "%s lies elsewhere", what);
        }
        weft_scope_end(sc);
    }
    if (how->frozen) {
        cr_assert_gt(stats_of(j).frozen, 0, "%s is never replayed: %s", f->name, reasons(j));
    }
    cr_assert_eq(stats_of(j).plans, 2, "%s", f->name);
    weft_jit_free(j);
}

static weft_tensor kept(weft_dtype dtype, weft_shape shape)
{
    return weft_keep(weft_cast(weft_randn(shape, WEFT_F32), dtype));
}

static weights make_weights(weft_dtype dtype)
{
    weights w;
    w.first = kept(dtype, weft_shape(C, C, 3, 3));
    w.second = kept(dtype, weft_shape(C, C, 3, 3));
    w.bias = kept(dtype, weft_shape(C));
    w.scale = kept(dtype, weft_shape(C));
    w.shift = kept(dtype, weft_shape(C));
    return w;
}

static void free_weights(const weights *w)
{
    weft_free(w->first);
    weft_free(w->second);
    weft_free(w->bias);
    weft_free(w->scale);
    weft_free(w->shift);
}

Test(jit_layout, traced_as_eager)
{
    static const traced functions[] = {
        {"block", block}, {"writes", writes}, {"elements", elements}, {"gradients", gradients}};
    static const weft_jit_args ways[] = {{.always_record = true},
                                         {.always_record = true, .synchronous = true},
                                         {.always_record = true, .no_fuse = true},
                                         {.always_record = true, .frozen = true}};
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16};
    const test_baseline before = test_baseline_take();
    weft_manual_seed(7);
    for (int t = 0; t < 2; t++) {
        const weft_scope sc = weft_scope_begin();
        weights w = make_weights(types[t]);
        const weft_tensor x = weft_cast(weft_randn(weft_shape(3, C, 9, 10), WEFT_F32), types[t]);
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < 4; k++) {
                check_traced(&functions[i], &ways[k], &w, x);
            }
        }
        weft_scope_end(sc);
        free_weights(&w);
    }
    check_baseline("traced", &before);
}

/* The first line of what the trace says of its plan, after one call. */
static bool says(weft_jit_fn fn, weights *w, weft_tensor x, const char *what)
{
    char text[8192] = "";
    weft_jit *j = weft_jit_trace(fn, w, .always_record = true);
    weft_tensor out[OUTPUTS];
    OK(weft_jit_call(j, &x, 1, out, OUTPUTS));
    FILE *f = fmemopen(text, sizeof text - 1, "w");
    cr_assert(f);
    weft_jit_explain(j, f);
    fclose(f);
    weft_jit_free(j);
    fprintf(stderr, "%s\n", text);
    return strstr(text, what) != NULL;
}

/* Images large enough that the plan gives them an order of its own: pools and kernels of 3 x 3 want them channels-last. */
Test(jit_layout, orders_are_chosen)
{
    static const traced functions[] = {{"block", block}, {"gradients", gradients}};
    static const weft_jit_args ways[] = {{.always_record = true},
                                         {.always_record = true, .synchronous = true},
                                         {.always_record = true, .no_fuse = true},
                                         {.always_record = true, .frozen = true}};
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16};
    weft_manual_seed(10);
    for (int t = 0; t < 2; t++) {
        const weft_scope sc = weft_scope_begin();
        weights w = make_weights(types[t]);
        const weft_tensor x = weft_cast(weft_randn(weft_shape(2, C, 32, 34), WEFT_F32), types[t]);
        for (int i = 0; i < 2; i++) {
            cr_expect(says(functions[i].fn, &w, x, "images: CHANNELS_LAST"), "%s",
                      functions[i].name);
            for (int k = 0; k < 4; k++) {
                check_traced(&functions[i], &ways[k], &w, x);
            }
        }
        weft_scope_end(sc);
        free_weights(&w);
    }
}

/* Images from outside that lie channels-last: written in place, read in the middle, kept between calls. */
FN(outside)
{
    const weft_tensor image = *(const weft_tensor *)self;
    OK(weft_mul_(image, weft_f(0.5)));
    OK(weft_add_(weft_narrow(image, 0, 0, 1), weft_f(1)));
    const weft_tensor y = weft_max_pool2d(.x = weft_add(image, in[0]), .kernel = weft_shape(2));
    out[0] = weft_mul(y, weft_f((double)at(weft_sum(image), 0) > 0 ? 2 : 3));
    return weft_error_status(out[0]);
}

Test(jit_layout, tensors_from_outside)
{
    weft_manual_seed(8);
    const weft_tensor x = weft_randn(weft_shape(2, 3, 6, 6), WEFT_F32);
    weft_tensor eager = weft_keep(weft_channels_last(x)), image = weft_keep(weft_channels_last(x));
    weft_jit *j = weft_jit_trace(outside, &image, .always_record = true);
    for (int i = 0; i < CALLS; i++) {
        weft_tensor want, got;
        OK(outside(&eager, &x, 1, &want, 1));
        OK(weft_jit_call(j, &x, 1, &got, 1));
        check_bits("result", got, want);
        cr_assert(test_same_place(got, want), "the result lies elsewhere");
        check_bits("image", image, eager);
        cr_assert(weft_is_channels_last(image));
    }
    weft_jit_free(j);
    weft_free(eager);
    weft_free(image);
}

/* A graph has no memory order: results are row-major whatever it gets. */
FN(forward)
{
    weft_tensor images[OUTPUTS];
    const weft_status rc = block(self, in, n_in, images, OUTPUTS);
    out[0] = images[1];
    return rc;
}

Test(jit_layout, graphs)
{
    weft_manual_seed(9);
    weights w = make_weights(WEFT_F32);
    const weft_tensor x = weft_randn(weft_shape(2, C, 6, 6), WEFT_F32);
    const weft_tensor last = weft_channels_last(x);
    weft_tensor want, got;
    OK(forward(&w, &x, 1, &want, 1));
    for (int example = 0; example < 2; example++) {
        weft_graph *g = weft_jit_graph(forward, &w, example ? &last : &x, 1, .n_outputs = 1);
        cr_assert(g, "%s", weft_last_error());
        g = test_reloaded(g);
        for (int i = 0; i < 2; i++) {
            OK(weft_graph_run(g, i ? &last : &x, 1, &got, 1));
            check_bits("graph", got, want);
            cr_assert(weft_is_contiguous(got));
        }
        weft_graph_free(g);
    }
    free_weights(&w);
}
