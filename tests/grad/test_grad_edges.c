/*
 * tests/grad/test_grad_edges.c -- gradients where a formula meets its own singularity: saturated probabilities, branches
 * that are not taken, powers of zero. PyTorch's values, or its formulas in double, are the reference.
 */
#include <criterion/criterion.h>
#include <float.h>
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
    double loss = 0, share = k->reduction == WEFT_REDUCE_MEAN ? 1.0 / (double)N : 1;
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
        WF_OP_RECIPROCAL, WF_OP_SQRT,          WF_OP_RSQRT, WF_OP_CBRT,  WF_OP_EXP,   WF_OP_EXP2,
        WF_OP_EXPM1,      WF_OP_LOG,           WF_OP_LOG2,  WF_OP_LOG10, WF_OP_LOG1P, WF_OP_ASIN,
        WF_OP_ACOS,       WF_OP_SINH,          WF_OP_COSH,  WF_OP_ACOSH, WF_OP_ATANH, WF_OP_DIV,
        WF_OP_REMAINDER,  WF_OP_FMOD,          WF_OP_POW,   WF_OP_HYPOT, WF_OP_XLOGY, WF_OP_BCE,
        WF_OP_POW_HALF,   WF_OP_POW_MINUS_HALF};
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

/* The product of all factors leaves f32, that of the others does not. */
Test(grad_edges, products_beyond_f32)
{
    static const float x[2][3] = {{1e-25f, 2e-25f, 1e20f}, {1e30f, 4e30f, 1e-30f}};
    weft_scope s = weft_scope_begin();
    weft_tensor t = weft_from_data(x, weft_shape(2, 3), WEFT_F32), g;
    weft_requires_grad_(t, true);
    weft_tensor y = weft_prod(t, .axes = weft_axes(1));
    cr_assert_eq(weft_backward(weft_sum(y)), WEFT_OK, "%s", weft_last_error());
    g = weft_grad(t);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++) {
            const double want = (double)x[i][(k + 1) % 3] * (double)x[i][(k + 2) % 3];
            const double got = weft_item_f64(weft_select(weft_select(g, 0, i), 0, k));
            const bool small = want<0x1p-126, large = want> 0x1.fffffep127;
            cr_expect(small   ? fabs(got - want) <= 0x1p-149
                      : large ? isinf(got)
                              : fabs(got - want) <= 0x1p-23 * want,
                      "row %d, factor %d: %g, not %g", i, k, got, want);
        }
    }
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

/* Their gradients have the bits of the products that are stored and then summed. other: the other factor's extents. */
static void check_broadcast(weft_dtype dtype, weft_shape small, weft_shape other, bool turned)
{
    weft_scope s = weft_scope_begin();
    const weft_dtype compute = dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    const weft_shape all = weft_shape(3, 5, 70);
    weft_tensor x = weft_cast(weft_randn(turned ? weft_shape(5, 3, 70) : other), dtype);
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
            const weft_shape all = weft_shape(3, 5, 70);
            check_broadcast(types[t], weft_shape(70), all, turned);
            check_broadcast(types[t], weft_shape(5, 1), all, turned);
            check_broadcast(types[t], weft_shape(3, 1, 70), all, turned);
            check_broadcast(types[t], weft_shape(1, 1), all, turned);
        }
        /* both were */
        check_broadcast(types[t], weft_shape(70), weft_shape(3, 5, 1), false);
        check_broadcast(types[t], weft_shape(5, 1), weft_shape(3, 1, 70), false);
        check_broadcast(types[t], weft_shape(3, 1, 70), weft_shape(5, 1), false);
    }
}

/* -- first and second derivatives at points ------------------------------------------------------------------ */

typedef weft_tensor (*edge_fn)(const void *self, weft_tensor x);

/* y = sum(f(x)), dx[n] and h[n] = d(sum(dx * seed)) / dx of f64 elements; once, the gradients are final: those are equal to dx but
 * for roundings. */
static void differentiate_twice(const char *what, edge_fn f, const void *self, int64_t n,
                                const double *x, const double *seed, double *dx, double *h)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor t = weft_from_data(x, weft_shape(n), WEFT_F64), g, final, second;
    weft_requires_grad_(t, true);
    weft_tensor y = weft_sum(f(self, t));
    weft_status st = weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &t, .n_inputs = 1,
                                  .grads = &final, .retain_graph = true);
    cr_assert_eq(st, WEFT_OK, "%s: %s", what, weft_last_error());
    st = weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &t, .n_inputs = 1, .grads = &g,
                      .create_graph = true);
    cr_assert_eq(st, WEFT_OK, "%s: %s", what, weft_last_error());
    cr_assert_eq(weft_to_array(final, h, n, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_to_array(g, dx, n, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    for (int64_t i = 0; i < n; i++) {
        cr_expect(h[i] == dx[i] || fabs(h[i] - dx[i]) <= 1e-14 * fabs(dx[i]),
                  "%s: derivative %d is %.17g, and %.17g where it is final", what, (int)i, dx[i],
                  h[i]);
    }
    weft_tensor z = weft_sum(weft_mul(g, weft_from_data(seed, weft_shape(n), WEFT_F64)));
    st = weft_grad_of(.outputs = &z, .n_outputs = 1, .inputs = &t, .n_inputs = 1, .grads = &second);
    cr_assert_eq(st, WEFT_OK, "%s: %s", what, weft_last_error());
    cr_assert_eq(weft_to_array(second, h, n, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    weft_scope_end(sc);
}

static void expect_near(const char *what, int64_t i, double got, double want, double bound)
{
    cr_expect(got == want || fabs(got - want) <= bound * fabs(want),
              "%s: element %d is %.17g, not %.17g", what, (int)i, got, want);
}

static const double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};

static weft_tensor two_to(const void *self, weft_tensor x)
{
    (void)self;
    return weft_pow(weft_i(2), x);
}
static weft_tensor times_log_three(const void *self, weft_tensor x)
{
    (void)self;
    return weft_mul(x, weft_xlogy(x, weft_f(3)));
}

/* What a column does with numbers alone (log 2, log 3) has f64's precision where the row has. */
Test(grad_edges, numbers_in_derivatives_of_f64)
{
    const double x[3] = {0, 1.5, -3};
    double dx[3], h[3];
    differentiate_twice("pow(2, x)", two_to, NULL, 3, x, ones, dx, h);
    for (int i = 0; i < 3; i++) {
        expect_near("pow(2, x)", i, dx[i], exp2(x[i]) * M_LN2, 1e-15);
        expect_near("pow(2, x) again", i, h[i], exp2(x[i]) * M_LN2 * M_LN2, 1e-15);
    }
    differentiate_twice("x x log(3)", times_log_three, NULL, 3, x, ones, dx, h);
    for (int i = 0; i < 3; i++) {
        expect_near("x x log(3)", i, dx[i], 2 * x[i] * log(3), 1e-15);
        expect_near("x x log(3) again", i, h[i], 2 * log(3), 1e-15);
    }
}

static weft_tensor remainder_of(const void *self, weft_tensor x)
{
    return weft_remainder(weft_f(*(const double *)self), x);
}
static weft_tensor fmod_of(const void *self, weft_tensor x)
{
    return weft_fmod(weft_f(*(const double *)self), x);
}

/* 1 / 0.1 and 1 / 1e-8 round to whole numbers that the quotients do not reach. */
Test(grad_edges, quotients_of_remainders)
{
    const double x[5] = {0.1, 1e-8, 0.3, -0.1, 4}, up = 1, down = -1;
    const double floors[2][5] = {{-9, -99999999, -3, 10, 0}, {10, 100000000, 4, -9, 1}};
    const double truncated[5] = {9, 99999999, 3, -9, 0};
    double dx[5], h[5];
    for (int k = 0; k < 2; k++) {
        const double *a = k ? &down : &up;
        differentiate_twice("remainder", remainder_of, a, 5, x, ones, dx, h);
        for (int i = 0; i < 5; i++) {
            expect_near("remainder", i, dx[i], floors[k][i], 0);
            expect_near("remainder again", i, h[i], 0, 0);
        }
        differentiate_twice("fmod", fmod_of, a, 5, x, ones, dx, h);
        for (int i = 0; i < 5; i++) {
            expect_near("fmod", i, dx[i], -*a * truncated[i], 0);
        }
    }
}

static weft_tensor one_row(const void *self, weft_tensor x)
{
    return row_call(*(const wf_op *)self, &x);
}

/* 1 - x x does not cancel: second derivatives near 0 are as exact as elsewhere, and infinite at the ends. */
Test(grad_edges, inverse_functions_twice)
{
    static const double x[7] = {1e-300, -1e-30, 1e-9, 0.5, -0.75, 1, -1};
    static const wf_op rows[3] = {WF_OP_ASIN, WF_OP_ACOS, WF_OP_ATANH};
    double dx[7], h[7];
    for (int k = 0; k < 3; k++) {
        const char *what = wf_rows[rows[k]].name;
        differentiate_twice(what, one_row, &rows[k], 7, x, ones, dx, h);
        for (int i = 0; i < 7; i++) {
            long double v = x[i], u = 1 - v * v, root = k < 2 ? sqrtl(u) : u;
            double sign = k == 1 ? -1 : 1;
            expect_near(what, i, dx[i], sign * (double)(1 / root), 1e-15);
            long double second = k < 2 ? v / (u * root) : 2 * v / (u * u);
            expect_near(what, i, h[i], sign * (double)second, 2e-15);
        }
    }
}

Test(grad_edges, gelu_tanh_in_f64)
{
    static const double x[7] = {-3, -1, -0.25, 0, 0.5, 1, 2};
    static const wf_op op = WF_OP_GELU_TANH;
    double dx[7], h[7];
    differentiate_twice("gelu_tanh", one_row, &op, 7, x, ones, dx, h);
    for (int i = 0; i < 7; i++) {
        long double v = x[i], root = sqrtl(2 / acosl(-1));
        long double t = tanhl(root * (v + 0.044715L * v * v * v));
        long double d = root * (1 + 3 * 0.044715L * v * v);
        long double want = (1 + t + v * (1 - t * t) * d) / 2;
        cr_expect(fabs(dx[i] - (double)want) <= 1e-15, "gelu_tanh'(%g) is %.17g, not %.17g", x[i],
                  dx[i], (double)want);
    }
}

static weft_tensor norm_of(const void *self, weft_tensor x)
{
    return weft_norm(x, .order = *(const double *)self);
}

/* Zeros take no gradient, and do not spoil the others' of any order. */
Test(grad_edges, norms_of_vectors_with_zeros)
{
    static const double orders[4] = {3, 0.5, -1, 1.5}, x[4] = {0, 3, 0, 2};
    double dx[4], h[4];
    for (int k = 0; k < 4; k++) {
        double p = orders[k], sum = pow(3, p) + pow(2, p);
        differentiate_twice("norm", norm_of, &p, 4, x, ones, dx, h);
        for (int i = 0; i < 4; i++) {
            /* of a negative order the norm is 0 beside any 0 */
            bool flat = x[i] == 0 || p < 0;
            double want = flat ? 0 : pow(sum, 1 / p - 1) * pow(x[i], p - 1), second = 0;
            for (int j = 1; j < 4 && !flat; j += 2) {
                double both = pow(x[i] * x[j], p - 1) * pow(sum, 1 / p - 2);
                second += (p - 1) * (i == j ? want / x[i] - both : -both);
            }
            expect_near("norm", i, dx[i], want, 1e-14);
            cr_expect(fabs(h[i] - second) <= 1e-14, "norm of order %g: %.17g, not %.17g", p, h[i],
                      second);
        }
        differentiate_twice("norm", norm_of, &p, 3, (double[]){0, 0, 0}, ones, dx, h);
        for (int i = 0; i < 3; i++) {
            expect_near("norm of zeros", i, dx[i], 0, 0);
            expect_near("norm of zeros again", i, h[i], 0, 0);
        }
    }
    double zero = WEFT_ZERO;
    differentiate_twice("norm", norm_of, &zero, 3, (double[]){0, INFINITY, 2}, ones, dx, h);
    for (int i = 0; i < 3; i++) {
        expect_near("norm of order 0", i, dx[i], 0, 0);
    }
}

typedef struct running {
    int64_t outer, n, inner;
    const double *g; /* [outer, n, inner] */
} running;

static weft_tensor running_products(const void *self, weft_tensor x)
{
    const running *r = self;
    const weft_shape s = weft_shape(r->outer, r->n, r->inner);
    return weft_mul(weft_cumprod(weft_reshape(x, s), 1), weft_from_data(r->g, s, WEFT_F64));
}

/* Against the definition, in long double: element i of the line that starts at px. */
static void check_running(const running *r, const double *px, const double *pg, const double *pdx,
                          int i)
{
    long double before = 1, others = 1, sum = 0, size = 0;
    for (int j = 0; j < r->n; j++) {
        const long double f = px[j * r->inner], g = pg[j * r->inner];
        before *= j < i ? f : 1;
        others = j <= i ? before : others * f;
        sum += j < i ? 0 : g * others;
        size += j < i ? 0 : fabsl(g * others);
    }
    const double got = pdx[i * r->inner];
    cr_expect(fabs(got - (double)sum) <= 1e-13 * (double)size,
              "cumprod of %dx%dx%d, element %d: %.17g, not %.17g", (int)r->outer, (int)r->n,
              (int)r->inner, i, got, (double)sum);
}

/* No element is divided by: any number of zeros, in lines that are and are not whole powers of 4 long, side by side or not. */
Test(grad_edges, running_products_of_rows_with_zeros)
{
    enum { MOST = 6 * 1100 };
    static const int lengths[] = {1, 2, 3, 4, 5, 15, 16, 17, 64, 97, 1025, 1100};
    static const int64_t lines[][2] = {{2, 1}, {1, 1}, {1, 3}, {3, 2}, {2, 3}};
    static double x[MOST], g[MOST], dx[MOST], h[MOST];
    for (size_t k = 0; k < 5 * sizeof lengths / sizeof *lengths; k++) {
        const int n = lengths[k / 5];
        const running r = {lines[k % 5][0], n, lines[k % 5][1], g};
        const int64_t all = r.outer * n * r.inner;
        for (int zeros = 0; zeros < 4; zeros++) {
            for (int i = 0; i < all; i++) {
                x[i] = 0.95 + 0.1 * ((i * 37) % 101) / 101.0;
                g[i] = 1 - 2.0 * ((i * 53) % 97) / 97.0;
            }
            for (int z = 0; z < zeros; z++) {
                x[(n / 3 + z * n / 4) % n * r.inner] = 0; /* of the first line */
            }
            differentiate_twice("cumprod", running_products, &r, all, x, g, dx, h);
            for (int64_t line = 0; line < r.outer * r.inner; line++) {
                const int64_t at = line / r.inner * n * r.inner + line % r.inner;
                for (int i = 0; i < n; i += 1 + n / 50) {
                    check_running(&r, x + at, g + at, dx + at, i);
                }
            }
        }
    }
}

static weft_tensor infinite_products(const void *self, weft_tensor x)
{
    (void)self;
    return weft_cumprod(x, 0);
}

/* An infinite product of a shorter row is in no derivative by what stands behind it. */
Test(grad_edges, running_products_beside_infinity)
{
    const double x[3] = {INFINITY, 2, 1};
    weft_scope sc = weft_scope_begin();
    weft_tensor t = weft_from_data(x, weft_shape(3), WEFT_F64), g;
    weft_requires_grad_(t, true);
    weft_tensor y = weft_sum(infinite_products(NULL, t));
    cr_assert_eq(
        weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &t, .n_inputs = 1, .grads = &g),
        WEFT_OK, "%s", weft_last_error());
    double dx[3];
    weft_to_array(g, dx, 3, WEFT_F64);
    cr_expect(dx[0] == 5 && dx[1] == INFINITY && dx[2] == INFINITY, "%g %g %g", dx[0], dx[1],
              dx[2]);
    weft_scope_end(sc);
}

/* Products behind a zero are 0, however large what follows it is: in f64, products of sixteen must be left. */
Test(grad_edges, running_products_of_large_values_behind_a_zero)
{
    enum { LINE = 24 };
    for (int k = 0; k < 2 * LINE; k++) {
        const int zero = k % LINE;
        float x[LINE], dx[LINE];
        for (int i = 0; i < LINE; i++) {
            x[i] = i < zero ? 0.5f : i == zero ? 0 : i == zero + 1 ? 2 : k < LINE ? 1e30f : 1e18f;
        }
        weft_scope sc = weft_scope_begin();
        weft_tensor t = weft_from_data(x, weft_shape(LINE), WEFT_F32), g;
        weft_requires_grad_(t, true);
        weft_tensor y = weft_sum(weft_cumprod(t, 0));
        cr_assert_eq(
            weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &t, .n_inputs = 1, .grads = &g),
            WEFT_OK, "%s", weft_last_error());
        weft_to_array(g, dx, LINE, WEFT_F32);
        for (int i = zero + 1; i < LINE; i++) {
            cr_expect_eq(dx[i], 0, "zero at %d, element %d: %g", zero, i, (double)dx[i]);
        }
        for (int i = 0; i < zero; i++) {
            float want = 0;
            for (int j = zero - 1; j >= i; j--) {
                want += ldexpf(1, -j);
            }
            cr_expect(fabsf(dx[i] - want) <= 1e-6f * want, "zero at %d, element %d: %g, not %g",
                      zero, i, (double)dx[i], (double)want);
        }
        /* what the zero itself is multiplied by, too large to be told or not */
        long double product = ldexpl(1, -zero), own = product;
        for (int i = zero + 1; i < LINE; i++) {
            product *= x[i];
            own += product;
        }
        cr_expect(own > FLT_MAX ? dx[zero] == INFINITY
                                : fabsl(dx[zero] - own) <= 1e-6L * fabsl(own),
                  "zero at %d: %g, not %Lg", zero, (double)dx[zero], own);
        weft_scope_end(sc);
    }
}

/* What overflows on the way is not another number. */
Test(grad_edges, running_products_that_overflow_behind_a_zero)
{
    const double x[8] = {1e-100, 1e-100, 1e-100, 0, 1e100, 1e100, 1e100, 1e100};
    double dx[8];
    weft_scope sc = weft_scope_begin();
    weft_tensor t = weft_from_data(x, weft_shape(8), WEFT_F64), g;
    weft_requires_grad_(t, true);
    weft_tensor y = weft_sum(weft_cumprod(t, 0));
    cr_assert_eq(
        weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &t, .n_inputs = 1, .grads = &g),
        WEFT_OK, "%s", weft_last_error());
    weft_to_array(g, dx, 8, WEFT_F64);
    cr_expect(dx[3] == INFINITY || fabs(dx[3] - 1e100) < 1e85, "%g", dx[3]);
    cr_expect(dx[0] == 1 + 1e-100 && dx[4] == 0, "%g %g", dx[0], dx[4]);
    weft_scope_end(sc);
}

static weft_tensor huber_of(const void *self, weft_tensor x)
{
    (void)self;
    return weft_huber_loss(x, weft_f(0), WEFT_REDUCE_SUM, .delta = 0.5);
}

/* The loss is a parabola at its least point, too. */
Test(grad_edges, huber_twice)
{
    const double x[5] = {0, 0.25, -0.25, 2, -2}, first[5] = {0, 0.25, -0.25, 0.5, -0.5};
    const double second[5] = {1, 1, 1, 0, 0};
    double dx[5], h[5];
    differentiate_twice("huber_loss", huber_of, NULL, 5, x, ones, dx, h);
    for (int i = 0; i < 5; i++) {
        expect_near("huber_loss", i, dx[i], first[i], 0);
        expect_near("huber_loss again", i, h[i], second[i], 0);
    }
}

/* -- attention ------------------------------------------------------------------------------------------- */

typedef struct attend {
    int64_t batch; /* of the values alone */
    weft_tensor mask;
} attend;

enum { QUERIES = 3, KEYS = 4, WIDTH = 2, Q_END = QUERIES * WIDTH, K_END = Q_END + KEYS * WIDTH };

/* q[3, 2], k[4, 2] and v[batch, 4, 2] one after the other. */
static weft_tensor attention(const void *self, weft_tensor x)
{
    const attend *a = self;
    weft_tensor q = weft_reshape(weft_slice(x, 0, 0, Q_END, 1), weft_shape(QUERIES, WIDTH));
    weft_tensor k = weft_reshape(weft_slice(x, 0, Q_END, K_END, 1), weft_shape(KEYS, WIDTH));
    weft_tensor v =
        weft_reshape(weft_slice(x, 0, K_END, WEFT_OMIT, 1), weft_shape(a->batch, KEYS, WIDTH));
    return weft_square(weft_scaled_dot_product_attention(q, k, v, .mask = a->mask));
}

/* A query that sees no key has derivatives 0 of both orders, and those of the others are finite. Values have more axes than scores. */
Test(grad_edges, attention_of_queries_that_see_nothing)
{
    enum { MOST = K_END + 3 * KEYS * WIDTH };
    const bool sees[QUERIES * KEYS] = {true,  true,  false, true, false, false,
                                       false, false, true,  true, true,  true};
    double x[MOST], seed[MOST], dx[MOST], h[MOST], added[QUERIES * KEYS];
    for (int i = 0; i < MOST; i++) {
        x[i] = sin(1.0 + 3 * i);
        seed[i] = cos(2.0 + 5 * i);
    }
    for (int i = 0; i < QUERIES * KEYS; i++) {
        added[i] = sees[i] ? 0.5 * (i % 3) : -(double)INFINITY;
    }
    for (int64_t batch = 1; batch < 4; batch += 2) {
        double last[MOST];
        for (int k = 0; k < 2; k++) {
            weft_scope sc = weft_scope_begin();
            const int64_t n = K_END + batch * KEYS * WIDTH;
            attend a = {batch, k ? weft_from_data(added, weft_shape(QUERIES, KEYS), WEFT_F64)
                                 : weft_from_data(sees, weft_shape(QUERIES, KEYS), WEFT_BOOL)};
            differentiate_twice("attention", attention, &a, n, x, seed, dx, h);
            for (int64_t i = 0; i < n; i++) {
                bool blind = i / WIDTH == 1;
                cr_expect(isfinite(h[i]) && (dx[i] == 0) == blind && (h[i] == 0) == blind,
                          "batch %d, mask %d, element %d: %g, then %g", (int)batch, k, (int)i,
                          dx[i], h[i]);
            }
            /* against a difference of gradients */
            double step = 1e-6, moved[MOST], ahead[MOST], unused[MOST];
            for (int64_t i = 0; i < n; i++) {
                moved[i] = x[i] + step * seed[i];
                last[i] = h[i];
            }
            differentiate_twice("attention", attention, &a, n, moved, seed, ahead, unused);
            for (int64_t i = 0; i < n; i++) {
                cr_expect(fabs((ahead[i] - dx[i]) / step - last[i]) <= 1e-4,
                          "batch %d, mask %d, element %d: %g, not %g", (int)batch, k, (int)i,
                          last[i], (ahead[i] - dx[i]) / step);
            }
            weft_scope_end(sc);
        }
    }
}

/* -- remainders: the divisor's gradient is the quotient, exactly ------------------------------------------- */

Test(grad_edges, quotients_that_fill_a_significand)
{
    const float x[4] = {8388609, 16777215, -8388611, 5}, b[4] = {1, 1, 1, 2};
    for (int k = 0; k < 2; k++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor a = weft_from_data(x, weft_shape(4), WEFT_F32);
        weft_tensor d = weft_from_data(b, weft_shape(4), WEFT_F32);
        float g[4];
        weft_requires_grad_(d, true);
        cr_assert_eq(weft_backward(weft_sum(k ? weft_fmod(a, d) : weft_remainder(a, d))), WEFT_OK);
        cr_assert_eq(weft_to_array(weft_grad(d), g, 4, WEFT_F32), WEFT_OK, "%s", weft_last_error());
        for (int i = 0; i < 4; i++) {
            cr_expect(g[i] == -truncf(x[i] / b[i]), "%g of %g: %.9g", (double)x[i], (double)b[i],
                      (double)g[i]);
        }
        weft_scope_end(sc);
    }
}

/* -- numbers that no f64 holds ------------------------------------------------------------------------------ */

/* By way of f64 it is rounded twice: to 2^54 + 2^30, a tie, and from there down. */
static const int64_t long_number = (INT64_C(1) << 54) + (INT64_C(1) << 30) + 1;

typedef weft_tensor (*op_of_two)(weft_tensor, weft_tensor);
static weft_status by_number(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    const op_of_two *op = self;
    const weft_tensor x = weft_detach(in[0]);
    (void)n_in, (void)n_out;
    weft_requires_grad_(x, true);
    weft_tensor y = (*op)(x, weft_i(long_number));
    return weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1, .grads = out,
                        .grad_outputs = in + 1);
}

Test(grad_edges, whole_numbers_are_rounded_once)
{
    op_of_two ops[] = {(weft_mul), (weft_div)};
    const weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F64};
    for (int k = 0; k < 2 * 3 * 3; k++) { /* few, more than one call of a kernel runs, a view */
        weft_scope sc = weft_scope_begin();
        op_of_two *op = &ops[k % 2];
        const weft_dtype dt = types[k / 2 % 3];
        const int how = k / 6;
        const weft_tensor all = weft_full(weft_shape(how == 1 ? 9000 : 10), 1, dt);
        const weft_tensor in[2] = {how == 2 ? weft_slice(all, 0, 0, 10, 2) : all,
                                   how == 2 ? weft_slice(all, 0, 0, 10, 2) : all};
        const weft_tensor want = (*op)(in[1], weft_i(long_number));
        weft_tensor got;
        if (dt == WEFT_F32 && k % 2 == 0) {
            cr_assert_eq(weft_item_f64(weft_max(want)), (double)(float)long_number);
        }
        cr_assert_eq(by_number(op, in, 2, &got, 1), WEFT_OK, "%s", weft_last_error());
        check_bits("eager", got, want);
        weft_jit *j = weft_jit_trace(by_number, op, .always_record = true);
        cr_assert_eq(weft_jit_call(j, in, 2, &got, 1), WEFT_OK, "%s", weft_last_error());
        check_bits("traced", got, want);
        weft_jit_free(j);
        weft_scope_end(sc);
    }
}

/* Lines of large values are taken some at a time: every line's gradient is what it is by itself. */
Test(grad_edges, cumprod_of_many_lines)
{
    enum { EACH = 37 };
    static const int64_t shapes[][4] = {{1, 70, 4097, 1}, {0, 60, 5003, 1}, {1, 3, 1000, 101}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const int64_t *s = shapes[k];
        const int axis = (int)s[0], lines = s[3] > 1 ? 2 : 1 - axis;
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_rand(weft_shape(s[1], s[2], s[3]), WEFT_F32, .low = 0.9, .high = 1.1);
        weft_tensor g = weft_randn(weft_shape(s[1], s[2], s[3])), dx, part;
        weft_requires_grad_(x, true);
        weft_tensor y = weft_cumprod(x, axis);
        cr_assert_eq(weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                                  .grads = &dx, .grad_outputs = &g),
                     WEFT_OK);
        for (int64_t at = 0; at < weft_dim(x, lines); at += EACH) {
            const int64_t left = weft_dim(x, lines) - at, n = left < EACH ? left : EACH;
            weft_tensor some = weft_clone(weft_detach(weft_narrow(x, lines, at, n)));
            weft_tensor its = weft_narrow(g, lines, at, n);
            weft_requires_grad_(some, true);
            y = weft_cumprod(some, axis);
            cr_assert_eq(weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &some, .n_inputs = 1,
                                      .grads = &part, .grad_outputs = &its),
                         WEFT_OK);
            weft_tensor want = weft_contiguous(weft_narrow(dx, lines, at, n));
            part = weft_contiguous(part);
            cr_assert_eq(
                memcmp(weft_data(part), weft_data(want), (size_t)weft_numel(want) * sizeof(float)),
                0, "shape %zu, lines from %lld on", k, (long long)at);
        }
        weft_scope_end(sc);
    }
}
