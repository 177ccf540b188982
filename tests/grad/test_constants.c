/*
 * tests/grad/test_constants.c -- what no gradient flows through, eagerly and in a trace: integers that are computed from tensors
 * with a history, and views that were detached, or made where recording was off, whatever is written to their memory.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

#include "tests/support/support.h"
#include "weft/weft.h"

/* -- indices beside values -------------------------------------------------------------------------------- */

enum { N = 6, SORT, ARGSORT, TOPK, POOL, INVERSE, SECOND, FIRST, MAKERS };

/* x doubled and its ranks, which is which said by user. */
static weft_status rank_fwd(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                            weft_tensor *out, int n_out)
{
    const int ranks = *(const int *)user;
    (void)ctx, (void)n_in, (void)n_out;
    out[1 - ranks] = weft_mul(in[0], weft_f(2));
    out[ranks] = weft_argsort(weft_detach(in[0]), 0, false);
    return weft_error_status(out[ranks]);
}

static weft_status rank_bwd(weft_function_ctx *ctx, void *user, const weft_tensor *g, int n_out,
                            weft_tensor *gi, const bool *needs, int n_in)
{
    const weft_tensor by = g[1 - *(const int *)user];
    (void)ctx, (void)n_out, (void)needs, (void)n_in;
    gi[0] = by.slot ? weft_mul(by, weft_f(2)) : WEFT_NONE;
    return weft_error_status(gi[0]);
}

static const weft_function ranked = {"ranked", rank_fwd, rank_bwd, NULL};
static int places[2] = {0, 1};

/* i64 [N] that `maker` computes from x. */
static weft_tensor indices_of(int maker, weft_tensor x)
{
    weft_tensor r = WEFT_NONE, out[2];
    switch (maker) {
    case SORT:
        weft_sort(x, 0, false, NULL, &r);
        break;
    case ARGSORT:
        r = weft_argsort(x, 0, true);
        break;
    case TOPK:
        weft_topk(x, N, 0, false, NULL, &r);
        break;
    case POOL:
        weft_max_pool2d(weft_reshape(weft_concat(WEFT_LIST(x, x), 0), weft_shape(1, 1, N, 2)),
                        weft_shape(1, 2), .indices = &r);
        r = weft_reshape(r, weft_shape(N));
        break;
    case INVERSE:
        weft_unique(x, NULL, &r, NULL);
        break;
    default:
        if (weft_apply(&ranked, &places[maker == SECOND], &x, 1, out, 2) == WEFT_OK) {
            r = out[maker == SECOND];
        }
    }
    return r;
}

/* Ways to use them beside x: each makes f32 [.., N] whose gradient by x is what weights() makes. */
enum { CAST, PROMOTED, COPIED, ADDED, CHOSEN, JOINED, DIVIDED, MEAN, USES };

static weft_tensor used(int use, weft_tensor i, weft_tensor x)
{
    weft_tensor z = weft_zeros(weft_shape(N), WEFT_F32);
    switch (use) {
    case CAST:
        return weft_mul(weft_cast(i, WEFT_F32), x);
    case PROMOTED:
        return weft_mul(i, x);
    case COPIED:
        weft_copy_(z, i);
        return weft_mul(z, x);
    case ADDED:
        weft_add_(z, i);
        return weft_mul(z, x);
    case CHOSEN:
        return weft_mul(weft_where(weft_greater(i, weft_i(1)), i, weft_f(0.5)), x);
    case JOINED:
        return weft_concat(WEFT_LIST(i, x), 0);
    case DIVIDED:
        return weft_mul(weft_div(i, weft_i(2)), x);
    default:
        return weft_mul(weft_mean(i), x);
    }
}

static double weight(int use, double i)
{
    const double of[] = {i, i, i, i, i > 1 ? i : 0.5, 1, i / 2, (N - 1) / 2.0};
    return of[use];
}

typedef struct given {
    int maker, use;
} given;

static weft_status run(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const given *k = self;
    (void)n_in, (void)n_out;
    weft_tensor x = weft_detach(in[0]);
    weft_requires_grad_(x, true);
    /* a result with a history, and x itself */
    const weft_tensor i = indices_of(k->maker, weft_mul(x, weft_f(3)));
    const weft_tensor of_i = weft_cast(i, WEFT_F32), y = weft_sum(used(k->use, i, x));
    cr_expect(!weft_requires_grad(i) && weft_ok(of_i) && !weft_requires_grad(of_i),
              "maker %d: gradients flow to indices", k->maker);
    out[0] = i;
    return weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                        .grads = out + 1);
}

static void expect_constants(const char *how, const given *k, const weft_tensor *out)
{
    int64_t i[N];
    float g[N];
    cr_assert_eq(weft_to_array(out[0], i, N, WEFT_I64), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_to_array(out[1], g, N, WEFT_F32), WEFT_OK, "%s", weft_last_error());
    for (int e = 0; e < N; e++) {
        const double want = weight(k->use, (double)i[e]);
        cr_expect((double)g[e] == want, "%s, maker %d, use %d: [%d] is %g, not %g", how, k->maker,
                  k->use, e, (double)g[e], want);
    }
}

Test(constants, indices_beside_values)
{
    static const float v[N] = {3, -1, 0.5f, 8, -4, 2};
    for (int maker = SORT; maker < MAKERS; maker++) {
        for (int use = 0; use < USES; use++) {
            if (maker == POOL && use == MEAN) {
                continue; /* its places are not 0 .. N - 1 */
            }
            weft_scope sc = weft_scope_begin();
            given k = {maker, use};
            weft_tensor x = weft_from_data(v, weft_shape(N), WEFT_F32), out[2];
            cr_assert_eq(run(&k, &x, 1, out, 2), WEFT_OK, "maker %d, use %d: %s", maker, use,
                         weft_last_error());
            expect_constants("eager", &k, out);
            weft_jit *j = weft_jit_trace(run, &k, .always_record = true);
            cr_assert_eq(weft_jit_call(j, &x, 1, out, 2), WEFT_OK, "maker %d, use %d: %s", maker,
                         use, weft_last_error());
            expect_constants("traced", &k, out);
            weft_jit_free(j);
            weft_scope_end(sc);
            cr_assert_eq(weft_tape_nodes(), 0, "maker %d, use %d: %lld nodes left", maker, use,
                         (long long)weft_tape_nodes());
        }
    }
}

Test(constants, indices_alone_have_no_backward)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_linspace(0, 1, N, WEFT_F32), i;
    weft_requires_grad_(x, true);
    weft_sort(x, 0, false, NULL, &i);
    cr_assert_eq(weft_backward(weft_mean(i)), WEFT_EGRAD, "%s", weft_last_error());
    weft_scope_end(sc);
}

/* -- copies into integers --------------------------------------------------------------------------------- */

typedef struct into {
    weft_dtype dtype;
    bool view;
} into;

/* out[0]: in[0] copied into zeros with gradients on, out[1]: the same of its values alone. */
static weft_status copy_both(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    const into *k = self;
    weft_status st = WEFT_OK;
    (void)n_in;
    weft_tensor x = weft_detach(in[0]);
    weft_requires_grad_(x, true);
    const weft_tensor of[2] = {weft_mul(x, weft_f(1)), weft_detach(x)};
    for (int i = 0; i < n_out && st == WEFT_OK; i++) {
        out[i] = weft_zeros(weft_shape(3, 5), k->dtype);
        st = weft_copy_(k->view ? weft_select(out[i], 0, 1) : out[i], of[i]);
        cr_expect(!weft_requires_grad(out[i]));
    }
    return st;
}

Test(constants, copies_of_recorded_floats_into_integers)
{
    static const float v[5] = {1.75f, -2.5f, NAN, 1e30f, 0};
    const weft_dtype types[] = {WEFT_BOOL, WEFT_U8, WEFT_I32, WEFT_I64};
    for (int n = 0; n < 8; n++) {
        weft_scope sc = weft_scope_begin();
        into k = {types[n / 2], n % 2};
        weft_tensor x = weft_from_data(v, weft_shape(5), WEFT_F32), out[2];
        cr_assert_eq(copy_both(&k, &x, 1, out, 2), WEFT_OK, "%s", weft_last_error());
        cr_expect(weft_item_i64(weft_count_nonzero(out[0])) > 0);
        check_bits("eager", out[0], out[1]);
        weft_jit *j = weft_jit_trace(copy_both, &k, .always_record = true);
        weft_tensor traced[2];
        cr_assert_eq(weft_jit_call(j, &x, 1, traced, 2), WEFT_OK, "%s", weft_last_error());
        check_bits("traced", traced[0], out[1]);
        check_bits("traced values", traced[1], out[1]);
        weft_jit_free(j);
        weft_scope_end(sc);
    }
}

/* -- views apart ------------------------------------------------------------------------------------------ */

/* Each makes f32 [3] of x = {1, 2, 3}; what follows says its gradient. */
typedef weft_tensor apart_fn(weft_tensor x);

static weft_tensor twice_in_place(weft_tensor x)
{
    weft_tensor h = weft_clone(x);
    weft_mul_(h, weft_f(2));
    return h;
}

static weft_tensor unrecorded(weft_tensor x, bool detached)
{
    if (detached) {
        return weft_detach(x);
    }
    weft_no_grad_begin();
    weft_tensor r = weft_reshape(x, weft_shape(3));
    weft_no_grad_end();
    return r;
}

/* h = 2 x, written in place: its view is a constant. */
static weft_tensor of_written(weft_tensor x) /* 2 x */
{
    return weft_mul(unrecorded(twice_in_place(x), true), x);
}
static weft_tensor of_written_without_recording(weft_tensor x) /* 2 x */
{
    return weft_mul(unrecorded(twice_in_place(x), false), x);
}
static weft_tensor of_written_slice(weft_tensor x) /* 2, 2, 1 */
{
    weft_tensor h = weft_clone(x);
    weft_mul_(weft_slice(h, 0, 0, 2, 1), weft_f(2));
    return weft_mul(weft_div(weft_detach(h), weft_detach(x)), x);
}
static weft_tensor view_of_view(weft_tensor x) /* 2 x */
{
    weft_tensor d = weft_detach(twice_in_place(x));
    return weft_mul(weft_reshape(weft_slice(weft_unsqueeze(d, 0), 1, 0, 3, 1), weft_shape(3)), x);
}
static weft_tensor by_a_map_of_memory(weft_tensor x) /* 2 x */
{
    weft_tensor d = weft_detach(twice_in_place(x));
    return weft_mul(weft_as_strided(d, weft_shape(3), weft_shape(1), 0), x);
}

/* The view is there first. */
static weft_tensor written_behind_it(weft_tensor x) /* 4 x: only h is 2 x */
{
    weft_tensor h = weft_clone(x), d = weft_detach(h);
    weft_mul_(h, weft_f(2));
    return weft_mul(h, d);
}
static weft_tensor written_behind_a_view_of_it(weft_tensor x) /* 2 x */
{
    weft_tensor h = weft_clone(x), d = weft_narrow(weft_detach(h), 0, 0, 3);
    weft_mul_(h, weft_f(2));
    return weft_mul(x, d);
}

/* What is recorded through it is its own. */
static weft_tensor written_through_it(weft_tensor x) /* 7, 0, 0 */
{
    weft_tensor d = weft_detach(twice_in_place(x));
    weft_copy_(weft_slice(d, 0, 0, 1, 1), weft_mul(weft_slice(x, 0, 0, 1, 1), weft_f(7)));
    return weft_mul(d, weft_f(1));
}
static weft_tensor written_through_it_whole(weft_tensor x) /* 2 */
{
    weft_tensor d = weft_detach(weft_clone(x));
    weft_add_(d, weft_mul(x, weft_f(2)));
    return weft_mul(d, weft_f(1));
}
static weft_tensor written_through_it_again(weft_tensor x) /* 14, 5, 0 */
{
    weft_tensor d = weft_detach(twice_in_place(x));
    weft_copy_(weft_slice(d, 0, 0, 1, 1), weft_mul(weft_slice(x, 0, 0, 1, 1), weft_f(7)));
    weft_copy_(weft_slice(d, 0, 1, 2, 1), weft_mul(weft_slice(x, 0, 1, 2, 1), weft_f(2.5)));
    weft_mul_(d, weft_f(2));
    return weft_mul(d, weft_f(1));
}
static weft_tensor
written_by_a_constant(weft_tensor x) /* 2 (6 x) + 0: a write that is not recorded */
{
    weft_tensor h = weft_clone(x), d = weft_detach(h);
    weft_mul_(d, weft_f(6));
    return weft_mul(weft_mul(d, x), weft_f(2));
}

/* A leaf of its own. */
static weft_tensor made_a_leaf(weft_tensor x) /* 2 (2 x): the gradient of d^2 at d = 2 x, times x */
{
    weft_tensor d = weft_detach(twice_in_place(x)), g = WEFT_NONE;
    weft_requires_grad_(d, true);
    weft_tensor y = weft_sum(weft_square(d));
    weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &d, .n_inputs = 1, .grads = &g);
    return weft_mul(g, x);
}

static const struct {
    const char *what;
    apart_fn *fn;
    double by_x[3]; /* the gradient */
} apart[] = {
    {"of a value written in place", of_written, {2, 4, 6}},
    {"the same, without recording", of_written_without_recording, {2, 4, 6}},
    {"of a value written in part", of_written_slice, {2, 2, 1}},
    {"a view of it", view_of_view, {2, 4, 6}},
    {"as_strided of it", by_a_map_of_memory, {2, 4, 6}},
    {"written behind it", written_behind_it, {4, 8, 12}},
    {"written behind a view of it", written_behind_a_view_of_it, {2, 4, 6}},
    {"written through it", written_through_it, {7, 0, 0}},
    {"written through it whole", written_through_it_whole, {2, 2, 2}},
    {"written through it again", written_through_it_again, {14, 5, 0}},
    {"written by a constant", written_by_a_constant, {12, 24, 36}},
    {"made a leaf", made_a_leaf, {4, 8, 12}},
};

static weft_status run_apart(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)n_in, (void)n_out;
    weft_tensor x = weft_detach(in[0]);
    weft_requires_grad_(x, true);
    const weft_tensor y = weft_sum(apart[*(const int *)self].fn(x));
    return weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1, .grads = out);
}

static void expect_apart(const char *how, int k, weft_tensor got)
{
    double g[3];
    cr_assert_eq(weft_to_array(got, g, 3, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < 3; i++) {
        cr_expect(g[i] == apart[k].by_x[i], "%s, %s: [%d] is %g, not %g", how, apart[k].what, i,
                  g[i], apart[k].by_x[i]);
    }
}

Test(constants, views_apart)
{
    static const float v[3] = {1, 2, 3};
    for (int k = 0; k < (int)(sizeof apart / sizeof *apart); k++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_from_data(v, weft_shape(3), WEFT_F32), g;
        cr_assert_eq(run_apart(&k, &x, 1, &g, 1), WEFT_OK, "%s: %s", apart[k].what,
                     weft_last_error());
        expect_apart("eager", k, g);
        weft_jit *j = weft_jit_trace(run_apart, &k, .always_record = true, .frozen = true);
        for (int call = 0; call < 4; call++) {
            cr_assert_eq(weft_jit_call(j, &x, 1, &g, 1), WEFT_OK, "%s: %s", apart[k].what,
                         weft_last_error());
            expect_apart("traced", k, g);
        }
        weft_jit_free(j);
        weft_scope_end(sc);
        cr_assert_eq(weft_tape_nodes(), 0, "%s: %lld nodes left", apart[k].what,
                     (long long)weft_tape_nodes());
    }
}

/* A write through a view that was made where recording was off would change a value behind its history's back. */
Test(constants, unrecorded_views_are_written_where_recording_is_off)
{
    for (int n = 0; n < 6; n++) {
        const int written = n % 3; /* nothing, a leaf; a result; a result in place */
        weft_scope sc = weft_scope_begin();
        weft_jit *j = n < 3 ? NULL : weft_jit_trace(NULL, NULL, .always_record = true);
        cr_assert_eq(j ? weft_jit_begin(j) : WEFT_OK, WEFT_OK);
        weft_tensor x = weft_ones(weft_shape(2, 3), WEFT_F32), y = x;
        weft_requires_grad_(x, true);
        y = written ? weft_mul(x, weft_f(2)) : y;
        cr_assert_eq(written > 1 ? weft_exp_(y) : WEFT_OK, WEFT_OK);
        weft_no_grad_begin();
        weft_tensor v = weft_select(y, 0, 1), w = weft_slice(v, 0, 0, 2, 1);
        weft_no_grad_end();
        const weft_tensor u = weft_slice(v, 0, 1, 3, 1), of[] = {v, w, u};
        for (int k = 0; k < 3; k++) {
            cr_expect_eq(weft_mul_(of[k], weft_f(3)), WEFT_EGRAD, "%d, %d", written, k);
            cr_expect_eq(weft_zero_(of[k]), WEFT_EGRAD, "%d, %d", written, k);
            cr_expect_eq(weft_copy_(of[k], weft_i(1)), WEFT_EGRAD, "%d, %d", written, k);
            cr_expect_eq(weft_add_(of[k], weft_reshape(y, weft_shape(3, 2))), WEFT_EGRAD);
        }
        weft_no_grad_begin();
        cr_expect_eq(weft_mul_(u, weft_f(3)), WEFT_OK, "%s", weft_last_error());
        weft_no_grad_end();
        cr_expect_eq(weft_mul_(weft_detach(u), weft_f(3)), WEFT_OK, "%s", weft_last_error());
        cr_expect_eq(weft_mul_(weft_clone(u), weft_f(3)), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(j ? weft_jit_end(j) : WEFT_OK, WEFT_OK, "%s", weft_last_error());
        weft_jit_free(j);
        weft_scope_end(sc);
    }
    weft_scope sc = weft_scope_begin(); /* of what has no history there is nothing to go behind */
    weft_tensor z = weft_zeros(weft_shape(3), WEFT_F32), x = weft_ones(weft_shape(2), WEFT_F32), g;
    weft_requires_grad_(x, true);
    weft_no_grad_begin();
    weft_tensor v = weft_slice(z, 0, 0, 2, 1);
    weft_no_grad_end();
    cr_assert_eq(weft_add_(v, weft_mul(x, weft_f(4))), WEFT_OK, "%s", weft_last_error());
    const weft_tensor y = weft_sum(z);
    cr_assert_eq(
        weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1, .grads = &g),
        WEFT_OK, "%s", weft_last_error());
    cr_expect_eq(weft_item_f64(weft_sum(g)), 8);
    weft_scope_end(sc);
}

static weft_tensor shown_constant(void *user, weft_tensor grad)
{
    *(bool *)user = !weft_requires_grad(grad);
    return WEFT_NONE;
}

/* Constants are that for derivatives, too: saved ones, gradients, and what hooks are shown. */
Test(constants, views_apart_in_derivatives)
{
    for (int traced = 0; traced < 2; traced++) {
        static const float v[3] = {1, 2, 3};
        weft_scope sc = weft_scope_begin();
        weft_jit *j = traced ? weft_jit_trace(NULL, NULL, .always_record = true) : NULL;
        weft_tensor x = weft_clone(weft_from_data(v, weft_shape(3), WEFT_F32)), g, gg;
        weft_requires_grad_(x, true);
        cr_assert_eq(j ? weft_jit_begin(j) : WEFT_OK, WEFT_OK);
        const weft_tensor d = weft_detach(twice_in_place(x));
        weft_tensor y = weft_sum(weft_mul(weft_mul(d, x), x));
        cr_assert_eq(weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                                  .grads = &g, .create_graph = true),
                     WEFT_OK, "%s", weft_last_error());
        y = weft_sum(g); /* 2 d x, whose gradient is 2 d */
        cr_assert_eq(
            weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1, .grads = &gg),
            WEFT_OK, "%s", weft_last_error());
        bool constant = false;
        const weft_tensor h = weft_reshape(x, weft_shape(1, 3)), seed = weft_unsqueeze(d, 0);
        cr_assert_neq(weft_register_hook(h, shown_constant, &constant, NULL), 0);
        cr_assert_eq(weft_backward(h, .gradient = seed, .create_graph = true), WEFT_OK, "%s",
                     weft_last_error());
        cr_expect(constant, "what a hook is shown");
        cr_expect(!weft_requires_grad(weft_grad(x)), "a gradient");
        cr_assert_eq(weft_set_grad(x, d), WEFT_OK, "%s", weft_last_error());
        cr_expect(!weft_requires_grad(weft_grad(x)), "a gradient that was set");
        cr_assert_eq(j ? weft_jit_end(j) : WEFT_OK, WEFT_OK, "%s", weft_last_error());
        for (int i = 0; i < 3; i++) {
            double got[3];
            cr_assert_eq(weft_to_array(gg, got, 3, WEFT_F64), WEFT_OK, "%s", weft_last_error());
            cr_expect_eq(got[i], 4 * v[i], "[%d] is %g", i, got[i]);
        }
        weft_set_grad(x, WEFT_NONE);
        weft_jit_free(j);
        weft_scope_end(sc);
        cr_assert_eq(weft_tape_nodes(), 0);
    }
}

/* What is written with a history behind a leaf, through a detached view, has its value for one, and makes it no result: whether it
 * was used before or not. */
Test(constants, a_leaf_stays_one)
{
    for (int n = 0; n < 8; n++) {
        const bool used = n & 1, whole = n & 2;
        weft_scope sc = weft_scope_begin();
        weft_jit *j = n < 4 ? NULL : weft_jit_trace(NULL, NULL, .always_record = true);
        weft_tensor w = weft_ones(weft_shape(3), WEFT_F32), x = weft_ones(weft_shape(3), WEFT_F32);
        weft_requires_grad_(w, true);
        weft_requires_grad_(x, true);
        cr_assert_eq(j ? weft_jit_begin(j) : WEFT_OK, WEFT_OK);
        const weft_tensor before = used ? weft_mul(w, weft_f(2)) : x;
        const weft_tensor d = weft_detach(w), step = weft_mul(x, weft_f(3));
        cr_assert_eq(whole ? weft_add_(d, step)
                           : weft_add_(weft_slice(d, 0, 0, 3, 2), weft_slice(step, 0, 0, 3, 2)),
                     WEFT_OK, "%s", weft_last_error());
        cr_expect_eq(weft_mul_(w, weft_f(2)), WEFT_EGRAD, "a leaf");
        cr_assert_eq(weft_backward(weft_add(weft_sum(weft_mul(w, w)), weft_sum(before))), WEFT_OK,
                     "%s", weft_last_error());
        const weft_tensor g = weft_grad(w);
        cr_assert_eq(j ? weft_jit_end(j) : WEFT_OK, WEFT_OK, "%s", weft_last_error());
        double v[3];
        cr_assert_eq(weft_to_array(g, v, 3, WEFT_F64), WEFT_OK, "%s", weft_last_error());
        for (int i = 0; i < 3; i++) {
            cr_expect_eq(v[i], (whole || i != 1 ? 8 : 2) + (used ? 2 : 0), "%d: [%d] %g", n, i,
                         v[i]);
        }
        weft_jit_free(j);
        weft_scope_end(sc);
    }
}

/* 2 w, 2 w, (2, 2, 1) w: by an op, in place, in place in part. */
static weft_tensor with_history(weft_tensor w, int how)
{
    if (how == 0) {
        return weft_mul(w, weft_f(2));
    }
    weft_tensor h = weft_clone(w);
    weft_mul_(how == 1 ? h : weft_slice(h, 0, 0, 2, 1), weft_f(2));
    return h;
}

/* What is written with a history through a detached view is that view's: the memory's other aliases keep their own, as in PyTorch. */
Test(constants, a_base_keeps_its_history)
{
    for (int n = 0; n < 24; n++) {
        const int how = n % 3;
        const bool whole = n / 3 & 1, again = n / 6 & 1, traced = n / 12;
        static const float values[3] = {1, 2, 3};
        static const double by_w[3][3] = {{2, 2, 2}, {2, 2, 2}, {2, 2, 1}};
        weft_scope sc = weft_scope_begin();
        weft_jit *j = traced ? weft_jit_trace(NULL, NULL, .always_record = true) : NULL;
        weft_tensor w = weft_clone(weft_from_data(values, weft_shape(3), WEFT_F32)), g[2];
        const weft_tensor v = weft_ones(weft_shape(3), WEFT_F32);
        weft_requires_grad_(w, true);
        weft_requires_grad_(v, true);
        cr_assert_eq(j ? weft_jit_begin(j) : WEFT_OK, WEFT_OK);
        const weft_tensor h = with_history(w, how), d = weft_detach(h);
        const weft_tensor part = weft_slice(d, 0, 0, 2, 1), base = weft_unsqueeze(h, 0);
        cr_assert_eq(whole ? weft_mul_(d, v) : weft_mul_(part, weft_slice(v, 0, 0, 2, 1)), WEFT_OK,
                     "%s", weft_last_error());
        cr_expect(weft_requires_grad(d) && weft_requires_grad(part) && weft_requires_grad(h));
        if (again) {
            cr_assert_eq(weft_mul_(h, weft_f(3)), WEFT_OK, "%s", weft_last_error());
        }
        weft_tensor y = weft_add(weft_sum(h), weft_sum(weft_mul(d, weft_f(10))));
        y = weft_add(y, weft_add(weft_sum(base), weft_sum(part)));
        const weft_tensor in[2] = {w, v};
        cr_assert_eq(
            weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = in, .n_inputs = 2, .grads = g),
            WEFT_OK, "%d: %s", n, weft_last_error());
        cr_assert_eq(j ? weft_jit_end(j) : WEFT_OK, WEFT_OK, "%s", weft_last_error());
        for (int i = 0; i < 3; i++) {
            double got[2][3];
            cr_assert_eq(weft_to_array(g[0], got[0], 3, WEFT_F64), WEFT_OK);
            cr_assert_eq(weft_to_array(g[1], got[1], 3, WEFT_F64), WEFT_OK);
            const double at = by_w[how][i] * (double)values[i];
            cr_expect_eq(got[0][i], 2 * by_w[how][i] * (again ? 3 : 1), "%d: [%d] by w %g", n, i,
                         got[0][i]);
            cr_expect_eq(got[1][i],
                         i < 2   ? 11 * at
                         : whole ? 10 * at
                                 : 0,
                         "%d: [%d] by v %g", n, i, got[1][i]);
        }
        weft_jit_free(j);
        weft_scope_end(sc);
        cr_assert_eq(weft_tape_nodes(), 0, "%d", n);
    }
    /* A value that was saved is missed; memory without a history gets none. */
    weft_scope sc = weft_scope_begin();
    weft_tensor w = weft_ones(weft_shape(3), WEFT_F32), z = weft_zeros(weft_shape(3), WEFT_F32);
    weft_requires_grad_(w, true);
    const weft_tensor h = weft_mul(w, weft_f(2)), y = weft_sum(weft_square(h));
    cr_assert_eq(weft_mul_(weft_detach(h), w), WEFT_OK, "%s", weft_last_error());
    cr_expect_eq(weft_backward(y), WEFT_EGRAD);
    cr_assert_eq(weft_add_(weft_detach(z), w), WEFT_OK, "%s", weft_last_error());
    cr_expect(!weft_requires_grad(z) && !weft_requires_grad(weft_mul(z, z)));
    weft_scope_end(sc);
}

static int calls;
static weft_tensor count_call(void *user, weft_tensor g)
{
    (void)user;
    calls++;
    return g;
}

/* A write through a detached view is none to the base's value: its hooks see what is used of it before and after, and its kept gradient is
 * of both, as in PyTorch. */
Test(constants, a_base_keeps_its_hooks_and_kept_gradient)
{
    for (int written = 0; written < 2; written++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor w = weft_ones(weft_shape(3), WEFT_F32), v = weft_ones(weft_shape(3), WEFT_F32);
        weft_requires_grad_(w, true);
        weft_requires_grad_(v, true);
        weft_tensor y = weft_mul(w, weft_f(2));
        if (written) {
            cr_assert_eq(weft_add_(y, v), WEFT_OK);
        }
        calls = 0;
        cr_assert_eq(weft_retain_grad(y), WEFT_OK);
        cr_assert_neq(weft_register_hook(y, count_call, NULL, NULL), 0);
        weft_tensor before = weft_sum(y), d = weft_detach(y);
        cr_assert_eq(weft_add_(d, v), WEFT_OK);
        cr_assert_eq(weft_backward(weft_add(before, weft_sum(weft_mul(y, weft_f(10))))), WEFT_OK,
                     "%s", weft_last_error());
        float g[3];
        cr_assert_eq(weft_to_array(weft_grad(y), g, 3, WEFT_F32), WEFT_OK, "%s", weft_last_error());
        cr_expect_eq(calls, 1, "%d: %d", written, calls);
        cr_expect(g[0] == 11 && g[2] == 11, "%d: %g %g", written, (double)g[0], (double)g[2]);
        weft_scope_end(sc);
    }
}

/* Backpropagation that is cut off by detach, of a state that is written in place: the tape does not grow. */
Test(constants, a_state_that_is_cut_off_has_no_past)
{
    weft_scope all = weft_scope_begin();
    weft_tensor w = weft_full(weft_shape(4), 0.5, WEFT_F32);
    weft_requires_grad_(w, true);
    weft_tensor state = weft_keep(weft_zeros(weft_shape(2, 4), WEFT_F32));
    int64_t most = 0;
    for (int step = 0; step < 20; step++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor h = weft_detach(state);
        cr_assert(!weft_requires_grad(h), "step %d", step);
        weft_copy_(weft_select(h, 0, step % 2), weft_mul(w, weft_f(2)));
        weft_tanh_(h);
        cr_assert_eq(weft_backward(weft_sum(h)), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_assign(&state, weft_scope_give(sc, h)), WEFT_OK);
        weft_scope_end(sc);
        most = step == 1 ? weft_tape_nodes() : most;
        cr_assert(step < 2 || weft_tape_nodes() <= most, "step %d: %lld nodes, not %lld", step,
                  (long long)weft_tape_nodes(), (long long)most);
    }
    weft_free(state);
    weft_scope_end(all);
}

/* What was written is one node to all that reads it next, of a base and of a view apart, and to derivatives of its derivatives. */
Test(constants, a_written_value_is_one_node)
{
    for (int detached = 0; detached < 2; detached++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_ones(weft_shape(3), WEFT_F64), g, gg;
        weft_requires_grad_(x, true);
        const weft_tensor h = weft_mul(x, weft_f(2)), d = weft_detach(h);
        for (int i = 0; i < 5; i++) { /* more writes of one kind than of the other */
            weft_tensor to = i % 3 ? d : h;
            cr_assert_eq(weft_mul_(weft_narrow(to, 0, 0, 1), weft_narrow(x, 0, 0, 1)), WEFT_OK);
        }
        const weft_tensor y = detached ? d : h;
        weft_mul(y, weft_f(2));
        const int64_t before = weft_tape_nodes();
        weft_mul(y, weft_f(2));
        cr_expect_eq(weft_tape_nodes() - before, 1);
        weft_tensor loss = weft_sum(weft_mul(y, weft_square(y)));
        cr_assert_eq(weft_grad_of(&loss, 1, &y, 1, &g, .create_graph = true), WEFT_OK);
        loss = weft_sum(g);
        cr_assert_eq(weft_grad_of(&loss, 1, &y, 1, &gg), WEFT_OK, "%s", weft_last_error());
        double v[3];
        cr_assert_eq(weft_to_array(gg, v, 3, WEFT_F64), WEFT_OK);
        cr_expect(v[0] == 12 && v[1] == 12 && v[2] == 12, "%d: %g %g %g", detached, v[0], v[1],
                  v[2]);
        weft_scope_end(sc);
        cr_assert_eq(weft_tape_nodes(), 0);
    }
}
