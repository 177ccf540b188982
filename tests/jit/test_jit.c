/*
 * tests/jit/test_jit.c -- traced functions against the same functions called: results, memory that was written,
 * gradients and generators agree bit for bit, whatever the function does.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/support.h"

static weft_tensor randn(int64_t a, int64_t b)
{
    return weft_randn(weft_shape(a, b), WEFT_F32);
}

/* -- forward ------------------------------------------------------------------------------------------------ */

static weft_status chain(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_add(weft_mul(in[0], weft_f(0.3)), in[1]);
    out[0] = weft_mul(weft_gelu(h), weft_sigmoid(h));
    out[1] = weft_where(weft_less(h, weft_f(0)), weft_i(-1), weft_exp(h));
    return WEFT_OK;
}

/* Promotion, weak scalars of every kind, halves, integers, comparisons, all-scalar operands. */
static weft_status promotions(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor i = weft_cast(in[0], WEFT_I32), h = weft_cast(in[0], WEFT_F16),
                b = weft_cast(in[1], WEFT_BF16), d = weft_cast(in[1], WEFT_F64);
    out[0] = weft_mul(weft_add(i, weft_f(0.1)), h);
    out[1] = weft_add(b, i);
    out[2] = weft_add(weft_mul(d, h), weft_i(INT64_C(9007199254740993)));
    out[3] = weft_add(weft_i(INT64_C(9007199254740993)), weft_cast(i, WEFT_I64));
    out[4] = weft_add(weft_f(0.1), weft_i(3));
    out[5] = weft_where(weft_greater(in[0], in[1]), weft_f(0.1), weft_i(2));
    out[6] = weft_logical_xor(weft_less(in[0], weft_f(0)), weft_b(true));
    return WEFT_OK;
}

static weft_status views(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor t = weft_permute(in[0], weft_axes(1, 0)), s = weft_slice(in[0], 0, 1, WEFT_OMIT, 2);
    out[0] = weft_add(t, weft_f(1));
    out[1] = weft_reshape(t, weft_shape(-1));
    out[2] = weft_mul(weft_flip(s, weft_axes(1)), s);
    out[3] = weft_sum(weft_as_strided(in[1], weft_shape(3, 2), weft_shape(1, 2), 1));
    out[4] = weft_diagonal(in[1], 0, 0, 1);
    out[5] = weft_expand(weft_slice(in[0], 0, 0, 1, 1), weft_shape(4, -1));
    out[6] = weft_softmax(weft_matmul(in[0], t), -1);
    return WEFT_OK;
}

/* Reductions, rows, indices, several results, random numbers. */
static weft_status rows(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor v[2];
    weft_tensor order = weft_argsort(weft_sum(in[0], .axes = weft_axes(1)), 0, false);
    v[0] = weft_index_select(in[0], 0, order);
    v[1] = weft_layer_norm(in[1]);
    out[0] = weft_concat(v, 2, 0);
    out[1] = weft_var(out[0], .axes = weft_axes(0), .keepdim = true);
    out[2] = weft_cumsum(out[0], 1);
    out[3] = weft_randn(weft_shape(3, 5), WEFT_F32, .std = 2);
    out[4] = weft_dropout(out[0], .p = 0.5, .training = true);
    out[5] = weft_rand(weft_shape(7), WEFT_F64);
    out[6] = weft_logsumexp(in[1]);
    return WEFT_OK;
}

typedef struct kind {
    const char *name;
    weft_jit_fn fn;
    int n_out;
} kind;
static const kind forward[] = {
    {"chain", chain, 2}, {"promotions", promotions, 7}, {"views", views, 7}, {"rows", rows, 7}};

Test(jit, forward_functions_agree)
{
    for (size_t k = 0; k < sizeof forward / sizeof *forward; k++) {
        weft_jit *j = weft_jit_trace(forward[k].fn, .name = forward[k].name);
        for (int call = 0; call < 6; call++) {
            weft_scope sc = weft_scope_begin();
            weft_manual_seed(5 + (uint64_t)call);
            int64_t n = call < 3 ? 6 : 5 + call;
            weft_tensor in[2] = {randn(n, n), randn(n, n)}, a[8], b[8];
            weft_generator g = *weft_default_generator();
            cr_assert_eq(forward[k].fn(NULL, in, 2, a, forward[k].n_out), WEFT_OK);
            weft_generator after = *weft_default_generator();
            *weft_default_generator() = g;
            cr_assert_eq(weft_jit_call(j, in, 2, b, forward[k].n_out), WEFT_OK, "%s: %s",
                         forward[k].name, weft_last_error());
            cr_assert_eq(weft_default_generator()->offset, after.offset);
            for (int i = 0; i < forward[k].n_out; i++) {
                char what[64];
                snprintf(what, sizeof what, "%s, call %d, output %d", forward[k].name, call, i);
                check_bits(what, a[i], b[i]);
                cr_assert_eq(weft_is_contiguous(a[i]), weft_is_contiguous(b[i]), "%s", what);
            }
            weft_scope_end(sc);
        }
        weft_jit_stats s;
        weft_jit_get_stats(j, &s);
        cr_assert_eq(s.calls, 6);
        cr_assert_eq(s.segments, 6);
        cr_assert_eq(s.breaks, 0);
        cr_assert_eq(s.plans, 4, "%s: %d plans", forward[k].name, (int)s.plans);
        cr_assert_eq(s.hits, 2);
        weft_jit_free(j);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}
