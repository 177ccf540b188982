/*
 * tests/grad/test_grad_edges.c -- gradients where a formula meets its own singularity: saturated probabilities, branches
 * that are not taken, powers of zero. PyTorch's values, or its formulas in double, are the reference.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "jit/ir/op.h"
#include "tests/support/rows.h"
#include "weft/weft.h"

/* -- binary cross-entropy ------------------------------------------------------------------------------- */

enum { N = 9 };
static const float probability[N] = {0, 0, 1, 1, 0, 1, 0.25f, 1e-20f, 0.99999994f};
static const float truth[N] = {0, 1, 0, 1, 0.5f, 0.5f, 0.75f, 1, 0};
static const float weight[N] = {1, 2, 0.5f, 3, 1, 1, 4, 1, 0};

typedef struct cross {
    weft_reduction reduction;
    bool weighted;
} cross;

/* Loss, and its gradients by prediction and truth. */
static weft_status differentiate(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                 int n_out)
{
    const cross *k = self;
    (void)n_in, (void)n_out;
    weft_tensor of[2] = {weft_detach(in[0]), weft_detach(in[1])};
    weft_requires_grad_(of[0], true);
    weft_requires_grad_(of[1], true);
    weft_tensor loss;
    if (k->weighted) {
        loss = weft_binary_cross_entropy(of[0], of[1], WEFT_REDUCE_NONE);
        loss = weft_mul(loss, weft_from_data(weight, weft_shape(N), WEFT_F32));
        loss = k->reduction == WEFT_REDUCE_MEAN ? weft_mean(loss) : weft_sum(loss);
    } else {
        loss = weft_binary_cross_entropy(of[0], of[1], k->reduction);
    }
    out[0] = weft_detach(loss);
    return weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = of, .n_inputs = 2,
                        .grads = out + 1);
}

static void expect_cross(const char *what, const cross *k, const weft_tensor *out)
{
    float got[2][N];
    double loss = 0, share = k->reduction == WEFT_REDUCE_MEAN ? 1.0 / N : 1;
    cr_assert_eq(weft_to_array(out[1], got[0], N, WEFT_F32), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_to_array(out[2], got[1], N, WEFT_F32), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < N; i++) {
        double x = (double)probability[i], t = (double)truth[i];
        double w = share * (k->weighted ? (double)weight[i] : 1);
        double lx = fmax(log(x), -100), ln = fmax(log1p(-x), -100);
        double dx = w * (x - t) / fmax(x * (1 - x), 1e-12), dt = w * (ln - lx);
        loss -= w * (t * lx + (1 - t) * ln);
        cr_expect(fabs((double)got[0][i] - dx) <= 2e-6 * fabs(dx), "%s: dx[%d] is %g, not %g", what,
                  i, (double)got[0][i], dx);
        cr_expect(fabs((double)got[1][i] - dt) <= 2e-6 * fabs(dt) + 1e-7,
                  "%s: dt[%d] is %g, not %g", what, i, (double)got[1][i], dt);
    }
    double y = weft_item_f64(out[0]);
    cr_expect(fabs(y - loss) <= 2e-6 * fabs(loss), "%s: the loss is %g, not %g", what, y, loss);
}

Test(grad_edges, binary_cross_entropy_at_saturated_predictions)
{
    for (int k = 0; k < 4; k++) {
        weft_scope sc = weft_scope_begin();
        cross c = {k & 1 ? WEFT_REDUCE_SUM : WEFT_REDUCE_MEAN, k > 1};
        weft_tensor in[2] = {weft_from_data(probability, weft_shape(N), WEFT_F32),
                             weft_from_data(truth, weft_shape(N), WEFT_F32)};
        weft_tensor out[3];
        cr_assert_eq(differentiate(&c, in, 2, out, 3), WEFT_OK, "%s", weft_last_error());
        expect_cross("eager", &c, out);
        weft_jit *j = weft_jit_trace(differentiate, &c, .name = "bce");
        for (int again = 0; again < 2; again++) {
            cr_assert_eq(weft_jit_call(j, in, 2, out, 3), WEFT_OK, "%s", weft_last_error());
            expect_cross("traced", &c, out);
        }
        weft_jit_free(j);
        weft_scope_end(sc);
    }
}

/* -- every row at the edges ------------------------------------------------------------------------------- */

static const double unary_points[] = {0, -0.0, 100, -100, 1000, -1000, 1e-30, -1e-30, 1, -1, 3, -3};
static const double binary_points[] = {0, 100, -100, 1000, -1000, 1e-30, 1, 2, -1};

/* Rows whose derivative is not finite at some of the points, mathematically or in f32, and in PyTorch 2 as well:
 * poles, logarithms and roots at and below 0, exponentials that overflow, tangents at infinity, directions at the
 * origin. All others are finite everywhere. */
static bool has_poles(int op)
{
    static const int rows[] = {
        WF_OP_RECIPROCAL, WF_OP_SQRT, WF_OP_RSQRT, WF_OP_CBRT,  WF_OP_EXP,   WF_OP_EXP2,
        WF_OP_EXPM1,      WF_OP_LOG,  WF_OP_LOG2,  WF_OP_LOG10, WF_OP_LOG1P, WF_OP_ASIN,
        WF_OP_ACOS,       WF_OP_SINH, WF_OP_COSH,  WF_OP_ACOSH, WF_OP_ATANH, WF_OP_DIV,
        WF_OP_REMAINDER,  WF_OP_FMOD, WF_OP_POW,   WF_OP_HYPOT, WF_OP_XLOGY, WF_OP_BCE};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i] == op) {
            return true;
        }
    }
    return false;
}

/* First and second derivatives of row op at v are finite. */
static void expect_finite(int op, int n, const double *v)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x[3], g[3], h[3], y;
    for (int i = 0; i < n; i++) {
        x[i] = weft_scalar(v[i], WEFT_F32);
        weft_requires_grad_(x[i], true);
    }
    y = row_call((wf_op)op, x);
    cr_assert(weft_ok(y), "%s: %s", wf_rows[op].name, weft_error_text(y));
    weft_status st = weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = x, .n_inputs = n,
                                  .grads = g, .create_graph = true, .allow_unused = true);
    cr_assert_eq(st, WEFT_OK, "%s: %s", wf_rows[op].name, weft_last_error());
    for (int i = 0; i < n; i++) {
        if (!weft_ok(g[i])) {
            continue;
        }
        double first = weft_item_f64(g[i]);
        cr_expect(isfinite(first), "%s(%g, %g): derivative %d is %g", wf_rows[op].name, v[0], v[1],
                  i, first);
        if (!weft_requires_grad(g[i])) {
            continue;
        }
        st = weft_grad_of(.outputs = &g[i], .n_outputs = 1, .inputs = x, .n_inputs = n, .grads = h,
                          .retain_graph = true, .allow_unused = true);
        cr_assert_eq(st, WEFT_OK, "%s: %s", wf_rows[op].name, weft_last_error());
        for (int k = 0; k < n; k++) {
            double second = weft_ok(h[k]) ? weft_item_f64(h[k]) : 0;
            cr_expect(isfinite(second), "%s(%g, %g): second derivative %d, %d is %g",
                      wf_rows[op].name, v[0], v[1], i, k, second);
        }
    }
    weft_scope_end(sc);
}

Test(grad_edges, derivatives_of_rows_without_poles_are_finite_everywhere)
{
    enum { NU = sizeof unary_points / sizeof *unary_points };
    enum { NB = sizeof binary_points / sizeof *binary_points };
    int rows = 0;
    for (int op = 1; op < WF_OP_COUNT; op++) {
        int kind = wf_rows[op].kind;
        bool taken = (kind == WF_KIND_UNARY || kind == WF_KIND_BINARY || kind == WF_KIND_TERNARY) &&
                     (wf_rows[op].types & WF_BIT(WEFT_F32)) && !has_poles(op);
        for (int i = 0; taken && kind == WF_KIND_UNARY && i < NU; i++) {
            expect_finite(op, 1, (double[]){unary_points[i], 0});
        }
        for (int i = 0; taken && kind != WF_KIND_UNARY && i < NB * NB; i++) {
            expect_finite(op, kind == WF_KIND_BINARY ? 2 : 3,
                          (double[]){binary_points[i / NB], binary_points[i % NB],
                                     binary_points[(i + i / NB) % NB]});
        }
        rows += taken;
    }
    cr_expect(rows > 35, "only %d rows", rows);
}

/* -- products with factors that are 0 --------------------------------------------------------------------- */

enum { LINES = 4, LENGTH = 70 };

/* Gradients of prod and cumprod along the last axis. */
static weft_status products(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor x = weft_detach(in[0]);
    weft_requires_grad_(x, true);
    weft_tensor y[2] = {weft_prod(x, .axes = weft_axes(1)), weft_cumprod(x, 1)};
    for (int i = 0; i < 2; i++) {
        weft_status rc = weft_grad_of(.outputs = y + i, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                                      .grads = out + i, .grad_outputs = in + 1 + i);
        if (rc) {
            return rc;
        }
    }
    return WEFT_OK;
}

/* Line l has l zeros, or none. PyTorch's values are those of the definition, in long double here. */
static void check_products(weft_dtype dtype, bool zeros)
{
    double x[LINES * LENGTH], g[LINES], h[LINES * LENGTH], got[2][LINES * LENGTH];
    const double u = dtype == WEFT_F64 ? 0x1p-52 : dtype == WEFT_F32 ? 0x1p-23 : 0x1p-8;
    for (int i = 0; i < LINES * LENGTH; i++) {
        const int l = i / LENGTH, k = i % LENGTH;
        x[i] = (i % 3 ? 1 : -1) * (0.75 + i * 37 % 64 / 128.0); /* exact in every type */
        x[i] = zeros && k % 30 == 7 && k / 30 < l ? 0 : x[i];
        h[i] = (i * 11 % 16 - 8) / 8.0;
        g[l] = 1 + l;
    }
    weft_scope s = weft_scope_begin();
    const weft_tensor in[3] = {
        weft_cast(weft_from_data(x, weft_shape(LINES, LENGTH), WEFT_F64), dtype),
        weft_cast(weft_from_data(g, weft_shape(LINES), WEFT_F64), dtype),
        weft_cast(weft_from_data(h, weft_shape(LINES, LENGTH), WEFT_F64), dtype)};
    weft_tensor out[2], traced[2];
    weft_jit *j = weft_jit_trace(products, NULL);
    cr_assert_eq(products(NULL, in, 3, out, 2), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_jit_call(j, in, 3, traced, 2), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < 2; i++) {
        cr_assert(weft_item_f64(weft_all(weft_equal(out[i], traced[i]))) == 1,
                  "traced gradients %d of %s", i, weft_dtype_name(dtype));
        cr_assert_eq(weft_to_array(out[i], got[i], LINES * LENGTH, WEFT_F64), WEFT_OK);
    }
    for (int i = 0; i < LINES * LENGTH; i++) {
        const int l = i / LENGTH, at = i % LENGTH;
        long double others = 1, run = 1, sum = 0, size = 0;
        for (int k = 0; k < LENGTH; k++) {
            const long double f = k == at ? 1 : (long double)x[l * LENGTH + k];
            others *= f, run *= f;
            const long double term = k < at ? 0 : run * (long double)h[l * LENGTH + k];
            sum += term, size += fabsl(term);
        }
        const long double want[2] = {others * (long double)g[l], sum},
                          of[2] = {fabsl(want[0]), size};
        for (int k = 0; k < 2; k++) {
            cr_expect(fabsl((long double)got[k][i] - want[k]) <=
                          (long double)((LENGTH + 4) * u) * of[k],
                      "%s of %s, line %d, factor %d: %g, not %Lg", k ? "cumprod" : "prod",
                      weft_dtype_name(dtype), l, at, got[k][i], want[k]);
        }
    }
    weft_jit_free(j);
    weft_scope_end(s);
}

Test(grad_edges, products_with_factors_of_zero)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_BF16};
    for (int t = 0; t < 3; t++) {
        check_products(types[t], false);
        check_products(types[t], true);
    }
}

/* -- factors that were broadcast ---------------------------------------------------------------------------- */

/* Their gradients have the bits of the products that are stored and then summed. */
static void check_broadcast(weft_dtype dtype, weft_shape small, bool turned)
{
    weft_scope s = weft_scope_begin();
    const weft_dtype compute = dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    const weft_shape all = weft_shape(3, 5, 70);
    weft_tensor x = weft_cast(weft_randn(turned ? weft_shape(5, 3, 70) : all), dtype);
    x = turned ? weft_transpose(x, 0, 1) : x;
    weft_tensor w = weft_cast(weft_randn(small), dtype), b = weft_cast(weft_randn(small), dtype);
    weft_tensor g = weft_cast(weft_randn(all), dtype);
    weft_requires_grad_(w, true);
    const weft_tensor y[] = {weft_mul(x, w),    weft_mul(w, x),        weft_fma(x, w, b),
                             weft_fma(w, x, b), weft_addcmul(x, w, x), weft_addcmul(x, x, w)};
    weft_axes axes = weft_axes();
    for (int i = 0; i < 3; i++) {
        const int64_t k = i - (3 - small.n);
        if (k < 0 || small.v[k] == 1) {
            axes.v[axes.n++] = i;
        }
    }
    const weft_tensor product = weft_mul(weft_cast(g, compute), weft_cast(x, compute));
    const weft_tensor want = weft_cast(weft_reshape(weft_sum(product, .axes = axes), small), dtype);
    for (int i = 0; i < 6; i++) {
        weft_tensor got;
        cr_assert_eq(weft_grad_of(.outputs = y + i, .n_outputs = 1, .inputs = &w, .n_inputs = 1,
                                  .grads = &got, .grad_outputs = &g),
                     WEFT_OK, "%s", weft_last_error());
        cr_expect(weft_item_f64(weft_all(weft_equal(got, want))) == 1, "%s, product %d",
                  weft_dtype_name(dtype), i);
    }
    weft_scope_end(s);
}

Test(grad_edges, gradients_of_broadcast_factors)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
    for (int t = 0; t < 4; t++) {
        for (int turned = 0; turned < 2; turned++) {
            check_broadcast(types[t], weft_shape(70), turned);
            check_broadcast(types[t], weft_shape(5, 1), turned);
            check_broadcast(types[t], weft_shape(3, 1, 70), turned);
            check_broadcast(types[t], weft_shape(1, 1), turned);
        }
    }
}
