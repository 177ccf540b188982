/*
 * tests/grad/test_constants.c -- integers that are computed from tensors with a history: no gradient flows to them, so floats that
 * are computed from them are constants, eagerly and in a trace.
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
