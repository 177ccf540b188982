/*
 * tests/grad/test_grad_parts.c -- gradients of values that are read in parts: slices that cover a value, leave gaps, overlap
 * or come by the hundred, of permuted values too, rows picked by index beside other uses of the same weight, and windows of
 * views that lie in memory any way.
 *
 * The weights of the sums are small integers, so that every order of additions gives the gradient that the tests count
 * out by themselves; with random weights eager, traced and differentiable gradients are compared with each other.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "tests/support/support.h"
#include "weft/weft.h"

enum { ROWS = 150, COLS = 6, MOST = ROWS };

/* One reading of x[ROWS, COLS]: its slice [start, stop) along an axis. */
typedef struct cut {
    int axis, start, stop, step;
} cut;

typedef struct reading {
    const char *name;
    int n;
    cut cut[8];
    int each;      /* not 0: slices of so many rows instead, from the end if negative */
    bool permuted; /* the slices are of a transposed x */
    bool dense;    /* x is also read as it is */
    bool hooked;   /* hooks on the slices run backwards of their own */
    bool random;   /* weights of any value */
    int made;      /* slices of the last call */
} reading;

/* What a hook of a slice differentiates while the slices of the backward that called it wait: other slices of the same x. */
static weft_tensor nested_loss, nested_leaf;
static int hooks_run;

static weft_tensor nested(void *user, weft_tensor g)
{
    float got[ROWS * COLS] = {0};
    weft_tensor of;
    (void)user;
    cr_assert_eq(weft_grad_of(.outputs = &nested_loss, .n_outputs = 1, .inputs = &nested_leaf,
                              .n_inputs = 1, .grads = &of, .retain_graph = true),
                 WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_to_array(of, got, ROWS * COLS, WEFT_F32), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < ROWS * COLS; i++) {
        cr_assert(got[i] == (i / COLS < 40 ? 6 : 2), "inside a hook: %g", (double)got[i]);
    }
    hooks_run++;
    return g;
}

/* Slice number k, as the cut that it is. */
static cut cut_of(const reading *r, int k)
{
    if (!r->each) {
        return r->cut[k];
    }
    const int width = abs(r->each), n = ROWS / width, at = (r->each < 0 ? n - 1 - k : k) * width;
    return (cut){0, at, at + width, 1};
}

/* x times integers (or not) that differ from slice to slice and element to element. */
static weft_tensor weighted(const reading *r, weft_tensor x, int k)
{
    weft_shape s = weft_shape_of(x);
    weft_tensor w = weft_reshape(weft_arange(0, (double)weft_numel(x), 1, WEFT_F32), s);
    w = weft_add(weft_remainder(w, weft_f(7)), weft_f(k % 5 - 2));
    return weft_sum(weft_mul(x, r->random ? weft_mul(w, weft_f(0.123456789)) : w));
}

static weft_status gradient(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    reading *r = self;
    weft_tensor leaf = weft_detach(in[0]);
    weft_requires_grad_(leaf, true);
    weft_tensor x = weft_mul(leaf, weft_f(2)), loss = weft_f(0);
    x = r->permuted ? weft_transpose(x, 0, 1) : x;
    if (r->hooked) {
        weft_tensor head = weft_sum(weft_slice(x, 0, 0, 40, 1));
        weft_tensor tail = weft_sum(weft_slice(x, 0, 40, ROWS, 1));
        nested_loss = weft_add(weft_mul(head, weft_f(3)), tail);
        nested_leaf = leaf;
        weft_tensor all = weft_mul(x, weft_f(1)); /* its hook runs when all slices are waiting */
        weft_register_hook(all, nested, NULL, NULL);
        loss = weighted(r, all, 3);
    }
    const int n = r->each ? ROWS / abs(r->each) : r->n;
    for (int k = 0; k < n; k++) {
        const cut c = cut_of(r, k);
        const int axis = r->permuted ? 1 - c.axis : c.axis;
        weft_tensor part = weft_slice(x, axis, c.start, c.stop, c.step);
        if (r->hooked) {
            weft_register_hook(part, nested, NULL, NULL);
        }
        part = r->permuted ? weft_transpose(part, 0, 1) : part;
        loss = weft_add(weighted(r, part, k), loss);
    }
    if (r->dense && !r->hooked) {
        loss = weft_add(loss, weighted(r, r->permuted ? weft_transpose(x, 0, 1) : x, 3));
    }
    r->made = n;
    return n_in == 1 && n_out >= 1
               ? weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &leaf, .n_inputs = 1,
                              .grads = out, .create_graph = n_out == 2)
               : WEFT_EINVALID;
}

/* The same, counted out. */
static void expected(const reading *r, double *g)
{
    memset(g, 0, ROWS * COLS * sizeof *g);
    for (int k = 0; k < r->made + r->dense; k++) {
        const cut c = k < r->made ? cut_of(r, k) : (cut){0, 0, ROWS, 1};
        const int w = c.axis ? (c.stop - c.start + c.step - 1) / c.step : COLS;
        const int h = c.axis ? ROWS : (c.stop - c.start + c.step - 1) / c.step;
        for (int e = 0; e < h * w; e++) {
            const int i = c.axis ? e / w : c.start + e / w * c.step;
            const int j = c.axis ? c.start + e % w * c.step : e % w;
            g[i * COLS + j] += 2 * (e % 7 + (k < r->made ? k : 3) % 5 - 2);
        }
    }
}

static void values(weft_tensor t, float *v)
{
    cr_assert_eq(weft_to_array(t, v, ROWS * COLS, WEFT_F32), WEFT_OK, "%s", weft_last_error());
}

static void check(reading r, int threads)
{
    static float eager[ROWS * COLS], other[ROWS * COLS];
    static double want[ROWS * COLS];
    weft_set_num_threads(threads);
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_full(weft_shape(ROWS, COLS), 1, WEFT_F32), g[2];
    cr_assert_eq(gradient(&r, &x, 1, g, 1), WEFT_OK, "%s: %s", r.name, weft_last_error());
    values(g[0], eager);
    expected(&r, want);
    for (int i = 0; i < ROWS * COLS && !r.random; i++) {
        cr_assert((double)eager[i] == want[i], "%s: element %d is %g, not %g", r.name, i,
                  (double)eager[i], want[i]);
    }
    cr_assert_eq(gradient(&r, &x, 1, g, 2), WEFT_OK, "%s: %s", r.name, weft_last_error());
    values(g[0], other);
    for (int i = 0; i < ROWS * COLS; i++) {
        cr_assert_float_eq((double)other[i], (double)eager[i], 1e-5, "%s: differentiable", r.name);
    }
    weft_jit *j = r.hooked ? NULL : weft_jit_trace(gradient, &r, .name = "parts");
    for (int call = 0; call < 3 && j; call++) {
        cr_assert_eq(weft_jit_call(j, &x, 1, g, 1), WEFT_OK, "%s: %s", r.name, weft_last_error());
        values(g[0], other);
        cr_assert_eq(memcmp(other, eager, sizeof eager), 0, "%s: traced", r.name);
    }
    weft_jit_free(j);
    weft_scope_end(s);
    weft_set_num_threads(1);
}

Test(grad_parts, slices)
{
    static const reading all[] = {
        {"in order", .n = 3, .cut = {{1, 0, 2, 1}, {1, 2, 4, 1}, {1, 4, 6, 1}}},
        {"in any order", .n = 3, .cut = {{0, 60, 150, 1}, {0, 0, 10, 1}, {0, 10, 60, 1}}},
        {"beside a reading of all", .n = 2, .cut = {{0, 0, 75, 1}, {0, 75, 150, 1}}, .dense = true},
        {"a gap", .n = 2, .cut = {{0, 0, 70, 1}, {0, 75, 150, 1}}},
        {"one", .n = 1, .cut = {{0, 3, 5, 1}}, .dense = true},
        {"all of it, twice", .n = 2, .cut = {{0, 0, 150, 1}, {0, 0, 150, 1}}},
        {"overlapping", .n = 3, .cut = {{0, 0, 100, 1}, {0, 50, 150, 1}, {0, 140, 150, 1}}},
        {"as many as there are, overlapping", .n = 3,
         .cut = {{1, 0, 2, 1}, {1, 1, 3, 1}, {1, 4, 6, 1}}},
        {"two axes", .n = 4, .cut = {{0, 0, 75, 1}, {1, 0, 3, 1}, {0, 75, 150, 1}, {1, 3, 6, 1}}},
        {"with steps between", .n = 3, .cut = {{0, 0, 150, 2}, {0, 0, 75, 1}, {0, 75, 150, 1}}},
        {"an empty one", .n = 3, .cut = {{0, 0, 75, 1}, {0, 75, 75, 1}, {0, 75, 150, 1}}},
        {"row by row", .each = 1},
        {"row by row, backwards", .each = -1, .dense = true},
        {"many that end early", .each = -2},
        {"permuted", .n = 3, .cut = {{1, 0, 2, 1}, {1, 2, 4, 1}, {1, 4, 6, 1}}, .permuted = true},
        {"permuted, and all", .n = 2, .cut = {{0, 0, 75, 1}, {0, 75, 150, 1}}, .permuted = true,
         .dense = true},
        {"permuted, a gap", .n = 2, .cut = {{0, 0, 70, 1}, {0, 75, 150, 1}}, .permuted = true},
        {"a backward meanwhile", .n = 2, .cut = {{0, 0, 75, 1}, {0, 75, 150, 1}}, .hooked = true,
         .dense = true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        reading r = all[i];
        for (int threads = 1; threads <= 3; threads += 2) {
            check(r, threads);
        }
        r.random = true;
        check(r, 1);
    }
    cr_expect_eq(hooks_run, 3 * 3 * 2); /* hooks, checks, gradients of each */
}

/* -- what is recorded --------------------------------------------------------------------------------------------- */

enum { HEADS = 2, WIDE = 8, TIME = 5 };

/* The gradient of a packed projection, as attention cuts it. */
static weft_status packed(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor x = weft_detach(in[0]);
    weft_requires_grad_(x, true);
    weft_tensor y = weft_mul(x, x);
    y = weft_permute(weft_reshape(y, weft_shape(1, TIME, 3, HEADS, WIDE / HEADS)),
                     weft_axes(2, 0, 3, 1, 4));
    y = weft_scaled_dot_product_attention(.q = weft_select(y, 0, 0), .k = weft_select(y, 0, 1),
                                          .v = weft_select(y, 0, 2), .causal = true);
    weft_tensor loss = weft_sum(weft_mul(y, y));
    return weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                        .grads = out);
}

Test(grad_parts, a_packed_projection_is_joined_once)
{
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_randn(weft_shape(1, TIME, 3 * WIDE)), traced, eager;
    weft_jit *j = weft_jit_trace(packed, NULL, .name = "packed", .always_record = true);
    cr_assert_eq(packed(NULL, &x, 1, &eager, 1), WEFT_OK, "%s", weft_last_error());
    for (int call = 0; call < 3; call++) {
        cr_assert_eq(weft_jit_call(j, &x, 1, &traced, 1), WEFT_OK, "%s", weft_last_error());
    }
    float a[TIME * 3 * WIDE], b[TIME * 3 * WIDE];
    cr_assert_eq(weft_to_array(eager, a, TIME * 3 * WIDE, WEFT_F32), WEFT_OK);
    cr_assert_eq(weft_to_array(traced, b, TIME * 3 * WIDE, WEFT_F32), WEFT_OK);
    cr_expect_eq(memcmp(a, b, sizeof a), 0);
    char *text = test_explained(j);
    cr_expect(strstr(text, "concat"), "%s", text);
    cr_expect(!strstr(text, "slice_scatter"), "%s", text);
    free(text);
    weft_jit_free(j);
    weft_scope_end(s);
}

/* -- rows picked by index ------------------------------------------------------------------------------------------ */

enum { WORDS = 40, DIM = 5, TOKENS = 24 };

typedef struct tied {
    weft_dtype dtype;
    bool tied, gathered, create;
    weft_tensor seen; /* what a hook kept of the gradient */
} tied;

static weft_tensor keep(void *user, weft_tensor g)
{
    tied *k = user;
    k->seen = weft_keep(weft_clone(g));
    return g;
}

/* d loss / d w, w read by index, and as a whole where it is tied. */
static weft_status lookup(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    tied *k = self;
    (void)n_in, (void)n_out;
    weft_tensor w = weft_detach(in[0]), loss;
    weft_requires_grad_(w, true);
    weft_tensor rows = k->gathered ? weft_take_along(w, 0, in[1]) : weft_embedding(w, in[1]);
    loss = weft_sum(weft_mul(rows, in[2]));
    if (k->tied) {
        loss = weft_add(loss, weft_sum(weft_mul(w, in[3])));
    }
    if (!k->create && out[0].slot == 0) {
        weft_register_hook(w, keep, k, NULL);
    }
    return weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &w, .n_inputs = 1, .grads = out,
                        .create_graph = k->create);
}

static void check_lookup(tied k)
{
    int64_t at[TOKENS * DIM];
    float g[TOKENS * DIM], c[WORDS * DIM], got[WORDS * DIM];
    double want[WORDS * DIM] = {0};
    for (int i = 0; i < TOKENS * DIM; i++) {
        at[i] = (k.gathered ? i * 7 + 3 : (i / DIM) * (i / DIM)) % WORDS - (i % 3 ? WORDS : 0);
        at[i] = k.gathered || i % DIM == 0 ? at[i] : at[i / DIM * DIM];
        g[i] = (float)(i % 4 - 1);
        want[(at[i] + WORDS) % WORDS * DIM + i % DIM] += (double)g[i];
    }
    for (int i = 0; i < WORDS * DIM; i++) {
        c[i] = (float)(i % 3);
        want[i] += k.tied ? (double)c[i] : 0;
    }
    weft_scope s = weft_scope_begin();
    weft_tensor places = weft_from_data(at, weft_shape(TOKENS, DIM), WEFT_I64);
    weft_tensor in[4] = {weft_ones(weft_shape(WORDS, DIM), k.dtype),
                         k.gathered ? places : weft_clone(weft_select(places, 1, 0)),
                         weft_cast(weft_from_data(g, weft_shape(TOKENS, DIM), WEFT_F32), k.dtype),
                         weft_cast(weft_from_data(c, weft_shape(WORDS, DIM), WEFT_F32), k.dtype)};
    weft_jit *j = weft_jit_trace(lookup, &k, .name = "lookup");
    for (int call = 0; call < 5; call++) {
        weft_tensor out[1] = {call == 1 ? in[0] : WEFT_NONE}; /* 1: without the hook */
        weft_status bad = call < 2 ? lookup(&k, in, 4, out, 1) : weft_jit_call(j, in, 4, out, 1);
        cr_assert_eq(bad, WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_to_array(weft_cast(out[0], WEFT_F32), got, WORDS * DIM, WEFT_F32),
                     WEFT_OK, "%s", weft_last_error());
        for (int i = 0; i < WORDS * DIM; i++) {
            cr_assert((double)got[i] == want[i], "dtype %d, tied %d, call %d: [%d] %g, not %g",
                      (int)k.dtype, k.tied, call, i, (double)got[i], want[i]);
        }
        weft_free(k.seen);
        k.seen = WEFT_NONE;
    }
    weft_jit_free(j);
    weft_scope_end(s);
}

Test(grad_parts, rows_by_index)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
    for (int i = 0; i < 4 * 8; i++) {
        check_lookup((tied){dtypes[i / 8], i & 1, i & 2, i & 4, WEFT_NONE});
    }
}

/* -- in the target's memory ------------------------------------------------------------------------------------------ */

static weft_status twice_and_more(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                  int n_out)
{
    (void)self, (void)n_in;
    weft_tensor twice = weft_mul(in[0], weft_f(2));
    out[0] = weft_index_add(twice, 0, in[1], in[2]);
    if (n_out > 1) { /* still wanted: it must not be written over */
        out[1] = weft_add(twice, weft_f(1));
    }
    return weft_ok(out[0]) ? WEFT_OK : WEFT_EINVALID;
}

static int64_t peak_above(int64_t live)
{
    weft_memory_stats m;
    weft_memory_get_stats(&m);
    return m.peak_bytes - live;
}

static int64_t live_bytes(void)
{
    weft_memory_stats m;
    weft_memory_reset_peak();
    weft_memory_get_stats(&m);
    return m.live_bytes;
}

Test(grad_parts, additions_by_index_need_no_copy)
{
    enum { N = 4096, BYTES = N * 64 * 4 };
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_ones(weft_shape(N, 64), WEFT_F32), out[2];
    weft_tensor at = weft_randint(weft_shape(16), 0, N);
    weft_tensor in[3] = {x, at, weft_ones(weft_shape(16, 64), WEFT_F32)};
    int64_t live = live_bytes();
    cr_assert_eq(weft_index_add_(x, 0, at, in[2]), WEFT_OK, "%s", weft_last_error());
    cr_expect_lt(peak_above(live), BYTES / 4, "%lld", (long long)peak_above(live));
    cr_expect_eq(weft_item_f64(weft_sum(x)), N * 64 + 16 * 64);
    const double kept = weft_item_f64(weft_sum(weft_mul(x, weft_f(2))));
    for (int n = 1; n <= 2; n++) {
        weft_jit *j = weft_jit_trace(twice_and_more, NULL, .name = "add", .synchronous = true,
                                     .always_record = true);
        for (int call = 0; call < 3; call++) {
            weft_scope in_call = weft_scope_begin();
            live = live_bytes();
            cr_assert_eq(weft_jit_call(j, in, 3, out, n), WEFT_OK, "%s", weft_last_error());
            cr_expect_lt(peak_above(live), n * BYTES + BYTES / 4, "%d results: %lld", n,
                         (long long)peak_above(live));
            cr_expect_eq(weft_item_f64(weft_sum(out[0])), kept + 16 * 64);
            cr_expect(n < 2 || weft_item_f64(weft_sum(out[1])) == kept + N * 64);
            weft_scope_end(in_call);
        }
        weft_jit_free(j);
    }
    /* operands in the target's own memory are read first */
    weft_tensor own = weft_arange(0, 8, 1, WEFT_F32), order = weft_randperm(8);
    cr_assert_eq(weft_index_add_(own, 0, order, own), WEFT_OK, "%s", weft_last_error());
    cr_expect_eq(weft_item_f64(weft_sum(own)), 56);
    cr_expect_neq(weft_index_add_(own, 0, weft_full(weft_shape(1), 8, WEFT_I64),
                                  weft_ones(weft_shape(1), WEFT_F32)),
                  WEFT_OK);
    cr_expect_eq(weft_item_f64(weft_sum(own)), 56, "an addition that failed has written");
    weft_scope_end(s);
}

/* -- windows, and views by strides, of tensors that lie in memory in other ways ---------------------------- */

/* Windows of in[0] as the bits of *user say: reversed, every second column of a product, turned, a part of it. */
static weft_status windows(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    const int way = *(const int *)user;
    weft_tensor x = in[0];
    x = way & 1 ? weft_flip(x, weft_axes(0)) : x;
    x = way & 2 ? weft_slice(weft_mul(x, x), 1, 0, WEFT_OMIT, 2) : x;
    x = way & 4 ? weft_transpose(x, 0, 1) : x;
    x = way & 8 ? weft_index(x, weft_span(-2, WEFT_OMIT, 1), weft_span(1, WEFT_OMIT, 1)) : x;
    x = weft_unfold(x, 0, 2, 1);
    out[0] = weft_mul(x, x);
    return weft_error_status(out[0]);
}

/* Inside the rows of every second column: (0,0) (0,2) (1,1), (1,0) (1,2) (2,1). */
static weft_status by_strides(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)user, (void)n_in, (void)n_out;
    weft_tensor x = weft_slice(weft_mul(in[0], in[0]), 1, 0, WEFT_OMIT, 2);
    x = weft_as_strided(x, weft_shape(2, 3), weft_shape(6, 4), 0);
    out[0] = weft_mul(x, weft_exp(x));
    return weft_error_status(out[0]);
}

static void check_twice(const char *what, weft_check_fn fn, int way, weft_tensor x)
{
    char why[256] = "";
    cr_assert_eq(weft_requires_grad_(x, true), WEFT_OK, "%s", weft_last_error());
    for (int order = 1; order <= 2; order++) {
        const weft_gradcheck_args a = {.fn = fn,
                                       .user = &way,
                                       .inputs = &x,
                                       .n_in = 1,
                                       .n_out = 1,
                                       .report = why,
                                       .report_size = sizeof why};
        const weft_status s = order == 1 ? (weft_gradcheck)(&a) : (weft_gradgradcheck)(&a);
        cr_expect_eq(s, WEFT_OK, "%s %d, order %d: %s %s", what, way, order, why,
                     weft_last_error());
    }
}

Test(grad_parts, windows_of_views)
{
    weft_scope s = weft_scope_begin();
    weft_tensor memory = weft_linspace(0.3, 1.1, 120, WEFT_F64);
    for (int way = 0; way < 16; way++) {
        /* row-major; reversed and every second element; columns; a part with gaps */
        const weft_tensor leaf[] = {
            weft_reshape(weft_narrow(memory, 0, 7, 30), weft_shape(5, 6)),
            weft_as_strided(weft_narrow(memory, 0, 0, 1), weft_shape(5, 6), weft_shape(16, 2), 3),
            weft_transpose(weft_reshape(weft_narrow(memory, 0, 1, 30), weft_shape(6, 5)), 0, 1),
            weft_flip(weft_as_strided(memory, weft_shape(5, 6), weft_shape(9, 1), 4),
                      weft_axes(0, 1))};
        for (int i = 0; i < 4; i++) {
            check_twice("windows", windows, way, weft_detach(leaf[i]));
        }
    }
    check_twice("as_strided", by_strides, 0,
                weft_reshape(weft_narrow(memory, 0, 7, 30), weft_shape(5, 6)));
    /* several indices on one element: a window has those that it was made with */
    weft_tensor e = weft_expand(weft_narrow(weft_reshape(memory, weft_shape(120, 1)), 0, 0, 3),
                                weft_shape(3, 4));
    weft_requires_grad_(e, true);
    cr_assert_eq(weft_backward(weft_sum(weft_unfold(e, 1, 2, 1))), WEFT_OK, "%s",
                 weft_last_error());
    const double want[12] = {1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 1};
    double got[12];
    cr_assert_eq(weft_to_array(weft_grad(e), got, 12, WEFT_F64), WEFT_OK);
    cr_expect_arr_eq(got, want, sizeof want);
    cr_expect_eq(weft_error_status(weft_as_strided(e, weft_shape(3), weft_shape(1), 0)),
                 WEFT_EGRAD);
    cr_expect(strstr(weft_last_error(), "weft_clone"), "%s", weft_last_error());
    /* patches of two axes, which overlap: each element counts once a patch; writes fail with gradients and without */
    weft_tensor image = weft_ones(weft_shape(4, 3), WEFT_F64), patches = WEFT_NONE;
    weft_requires_grad_(image, true);
    for (int none = 0; none < 2; none++) {
        if (none) {
            weft_no_grad_begin();
        }
        patches = weft_unfold(weft_unfold(weft_mul(image, weft_f(1)), 0, 3, 1), 1, 2, 1);
        cr_expect_neq(weft_mul_(patches, weft_f(3)), WEFT_OK, "without gradients: %d", none);
        cr_expect(strstr(weft_last_error(), "weft_clone"), "%s", weft_last_error());
        if (none) {
            weft_no_grad_end();
        } else {
            cr_assert_eq(weft_backward(weft_sum(patches)), WEFT_OK, "%s", weft_last_error());
        }
    }
    const double times[12] = {1, 2, 1, 2, 4, 2, 2, 4, 2, 1, 2, 1};
    cr_assert_eq(weft_to_array(weft_grad(image), got, 12, WEFT_F64), WEFT_OK);
    cr_expect_arr_eq(got, times, sizeof times);
    weft_tensor scaled = weft_mul(image, weft_f(1)),
                none[] = {
                    weft_as_strided(scaled, weft_shape(0), weft_shape(INT64_MIN), 0),
                    weft_as_strided(scaled, weft_shape(5, 0), weft_shape(INT64_MAX, 1), 0),
                };
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(weft_error_status(none[i]), WEFT_OK, "%s", weft_last_error());
        cr_expect_eq(weft_numel(none[i]), 0);
    }
    /* a write through windows of a view with gaps reaches the memory, and gradients see it */
    weft_tensor x = weft_ones(weft_shape(8), WEFT_F64);
    weft_requires_grad_(x, true);
    weft_tensor y = weft_mul(x, weft_f(1));
    cr_assert_eq(weft_mul_(weft_unfold(weft_slice(y, 0, 0, WEFT_OMIT, 2), 0, 2, 2), weft_f(3)),
                 WEFT_OK);
    cr_assert_eq(weft_backward(weft_sum(y)), WEFT_OK, "%s", weft_last_error());
    const double after[8] = {3, 1, 3, 1, 3, 1, 3, 1};
    cr_assert_eq(weft_to_array(weft_grad(x), got, 8, WEFT_F64), WEFT_OK);
    cr_expect_arr_eq(got, after, sizeof after);
    /* any allocation may fail */
    const int64_t nodes = weft_tape_nodes();
    int failed = 0;
    for (int n = 1; n < 30; n++) {
        weft_scope inner = weft_scope_begin();
        weft_tensor z = weft_slice(weft_mul(x, x), 0, 0, WEFT_OMIT, 2);
        wf_alloc_fail_after(n, 1);
        failed += !weft_ok(weft_unfold(z, 0, 2, 1));
        wf_alloc_fail_after(0, 0);
        weft_scope_end(inner);
        cr_expect_eq(weft_tape_nodes(), nodes, "allocation %d", n);
    }
    cr_expect_gt(failed, 1);
    weft_scope_end(s);
}
