/*
 * tests/ops/test_other_rows.c -- reductions, products, windows and row-wise ops through the public functions.
 *
 * Operands are views of every kind and of every element type that the op takes; what is expected comes from
 * plain loops in long double (tests/ref), and bounds from the arithmetic: a sum of n terms in a type with
 * unit roundoff u is off by at most n u times the sum of their magnitudes, a half type adds half a place of
 * the result. Kernels have suites of their own (tests/unit); this is the way a caller takes.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ref/ref.h"
#include "tests/support/support.h"

enum { MOST = 512 };

static test_rng rng = {42};

/* Unit roundoff of the type that dtype is computed in. */
static real unit(int dtype)
{
    return dtype == WEFT_F64 ? 0x1p-53L : 0x1p-24L;
}

/* -- operands ------------------------------------------------------------------------------------------- */

/* A tensor with these extents and small values, row-major or a view (permuted, reversed, stepped), and
 * its elements in row-major order. */
static weft_tensor operand(weft_shape s, int dtype, int layout, real *values)
{
    char data[MOST * 8];
    weft_shape kept = s, order = s;
    int64_t n = 1;
    for (int i = 0; i < s.n; i++) {
        order.v[i] = s.n - 1 - i;
        kept.v[i] = layout == 1 ? s.v[s.n - 1 - i] : s.v[i];
        n *= s.v[i];
    }
    if (layout == 3 && s.n > 0) {
        kept.v[s.n - 1] *= 2;
        n *= 2;
    }
    cr_assert_leq(n, MOST);
    size_t size = weft_dtype_size((weft_dtype)dtype);
    for (int64_t i = 0; i < n; i++) {
        double v = test_is_float(dtype) ? test_uniform(&rng, -2, 2)
                                        : (double)test_between(&rng, dtype == WEFT_U8 ? 0 : -3, 3);
        test_store(data + (size_t)i * size, dtype, dtype == WEFT_BOOL ? v > 0 : v);
    }
    weft_tensor t = weft_from_data(data, kept, (weft_dtype)dtype);
    t = layout == 1   ? weft_permute(t, order)
        : layout == 2 ? weft_flip(t, (weft_axes){0})
        : layout == 3 ? weft_slice(t, -1, WEFT_OMIT, WEFT_OMIT, 2)
                      : t;
    cr_assert(weft_ok(t), "%s", weft_error_text(t));
    const char *p = weft_data(t);
    int64_t count = weft_numel(t);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0, rest = i;
        for (int k = (int)s.n; k-- > 0;) {
            at += rest % s.v[k] * weft_stride(t, k);
            rest /= s.v[k];
        }
        values[i] = test_load(p + at * (int64_t)size, dtype);
    }
    return t;
}

/* Half a place of the result for the types that round once more. */
static real rounding(int dtype, real y)
{
    return test_is_float(dtype) ? 0.5L * test_place(dtype, y) * (1 + 0x1p-8L) : 0;
}

/* -- reductions ------------------------------------------------------------------------------------------ */

static weft_tensor reduce(wf_op op, weft_tensor x, weft_axes axes, bool keepdim, double option)
{
    weft_reduce_args a = {.x = x, .axes = axes, .keepdim = keepdim};
    weft_var_args v = {.x = x, .axes = axes, .keepdim = keepdim, .correction = option};
    weft_norm_args n = {.x = x, .axes = axes, .keepdim = keepdim, .order = option};
    switch ((int)op) {
    case WF_OP_SUM:
        return (weft_sum)(&a);
    case WF_OP_PROD:
        return (weft_prod)(&a);
    case WF_OP_AMAX:
        return (weft_max)(&a);
    case WF_OP_AMIN:
        return (weft_min)(&a);
    case WF_OP_MEAN:
        return (weft_mean)(&a);
    case WF_OP_VAR:
        return (weft_var)(&v);
    case WF_OP_STD:
        return (weft_std)(&v);
    case WF_OP_NORM:
        return (weft_norm)(&n);
    case WF_OP_LOGSUMEXP:
        return (weft_logsumexp)(&a);
    case WF_OP_ANY:
        return (weft_any)(&a);
    case WF_OP_ALL:
        return (weft_all)(&a);
    case WF_OP_COUNT_NONZERO:
        return (weft_count_nonzero)(&a);
    case WF_OP_ARGMAX:
        return (weft_argmax)(&a);
    case WF_OP_ARGMIN:
        return (weft_argmin)(&a);
    }
    return WEFT_NONE;
}

/* The type of the result, by weft/ops_array.h; 0: refused. */
static int reduced_type(wf_op op, int dtype)
{
    bool flt = test_is_float(dtype);
    switch ((int)op) {
    case WF_OP_SUM:
    case WF_OP_PROD:
        return flt ? dtype : WEFT_I64;
    case WF_OP_AMAX:
    case WF_OP_AMIN:
        return dtype;
    case WF_OP_ANY:
    case WF_OP_ALL:
        return WEFT_BOOL;
    case WF_OP_COUNT_NONZERO:
    case WF_OP_ARGMAX:
    case WF_OP_ARGMIN:
        return WEFT_I64;
    default:
        return flt ? dtype : WEFT_F32;
    }
}

/* How far off a group of n elements may be. */
static real reduce_bound(wf_op op, const real *x, int64_t n, real y, int dtype)
{
    real sum = 0, squares = 0, largest = 0, u = unit(dtype), k = (real)n + 8;
    for (int64_t i = 0; i < n; i++) {
        sum += fabsl(x[i]);
        squares += x[i] * x[i];
        largest = fmaxl(largest, fabsl(x[i]));
    }
    switch ((int)op) {
    case WF_OP_SUM:
        return k * u * sum;
    case WF_OP_MEAN:
        return k * u * sum / (real)n;
    case WF_OP_PROD:
    case WF_OP_NORM:
        return 2 * k * u * fabsl(y); /* two ULP for each pow */
    case WF_OP_VAR: /* the mean is off by k u |x|: squared differences by twice that */
        return 4 * k * u * (squares + sum * largest);
    case WF_OP_STD: /* root of that */
        return y > 0 ? 4 * k * u * (squares + sum * largest) / y : sqrtl(4 * k * u * squares);
    case WF_OP_LOGSUMEXP:
        return k * u * (4 + largest);
    default:
        return 0;
    }
}

static void check_reduction(wf_op op, int dtype, int layout, const weft_axes *axes, bool keepdim)
{
    static const int64_t dims[3] = {3, 4, 5};
    real x[MOST], group[MOST], want[MOST], bound[MOST];
    weft_scope sc = weft_scope_begin();
    weft_tensor t = operand(weft_shape(3, 4, 5), dtype, layout, x);
    bool gone[3] = {axes->n == 0, axes->n == 0, axes->n == 0};
    for (int i = 0; i < axes->n; i++) {
        gone[(axes->v[i] + 3) % 3] = true;
    }
    weft_shape s = {0};
    for (int i = 0; i < 3; i++) {
        if (!gone[i] || keepdim) {
            s.v[s.n++] = gone[i] ? 1 : dims[i];
        }
    }
    double option = op == WF_OP_VAR || op == WF_OP_STD ? 1 : op == WF_OP_NORM ? 3 : 0;
    int result = reduced_type(op, dtype);
    weft_tensor y = reduce(op, t, *axes, keepdim, option);
    check_type(wf_rows[op].name, y, (weft_dtype)result, s);
    int64_t groups = 0;
    for (int64_t g = 0; g < 60; g++) { /* every element that leads a group */
        int64_t i[3] = {g / 20, g / 5 % 4, g % 5}, n = 0;
        if ((gone[0] && i[0]) || (gone[1] && i[1]) || (gone[2] && i[2])) {
            continue;
        }
        for (int64_t e = 0; e < 60; e++) {
            int64_t j[3] = {e / 20, e / 5 % 4, e % 5};
            if ((gone[0] || j[0] == i[0]) && (gone[1] || j[1] == i[1]) &&
                (gone[2] || j[2] == i[2])) {
                group[n++] = x[e];
            }
        }
        want[groups] = ref_reductions[op](group, n, option);
        bound[groups] = reduce_bound(op, group, n, want[groups], result);
        bound[groups] += bound[groups] > 0 ? rounding(result, want[groups]) : 0;
        groups++;
    }
    char what[96];
    snprintf(what, sizeof what, "%s of %s, layout %d, %d axes", wf_rows[op].name,
             weft_dtype_name((weft_dtype)dtype), layout, (int)axes->n);
    check_near(what, y, want, bound);
    weft_scope_end(sc);
}

Test(other_rows, reductions)
{
    static const weft_axes sets[] = {{0},
                                     {.n = 1, .v = {0}},
                                     {.n = 1, .v = {1}},
                                     {.n = 1, .v = {-1}},
                                     {.n = 2, .v = {2, 0}},
                                     {.n = 2, .v = {1, -1}}};
    int rows = 0;
    for (wf_op op = WF_OP_SUM; op <= WF_OP_ARGMIN; op = (wf_op)(op + 1)) {
        bool arg = op == WF_OP_ARGMAX || op == WF_OP_ARGMIN;
        cr_assert(ref_reductions[op], "%s", wf_rows[op].name);
        for (int dtype = WEFT_BOOL; dtype < WEFT_DTYPE_COUNT; dtype++) {
            for (int c = 0; c < 6 * 4 * 2; c++) {
                const weft_axes *axes = &sets[c % 6];
                if (!arg || axes->n == 1 || (axes->n == 0 && c / 24 == 0)) {
                    check_reduction(op, dtype, c / 6 % 4, axes, c / 24 != 0);
                }
            }
        }
        rows++;
    }
    cr_assert_eq(rows, 14);
}

Test(other_rows, scans)
{
    for (int dtype = WEFT_U8; dtype < WEFT_DTYPE_COUNT; dtype++) {
        for (int layout = 0; layout < 4; layout++) {
            real x[MOST], sums[MOST], products[MOST], sum_bound[MOST], product_bound[MOST], line[8];
            weft_scope sc = weft_scope_begin();
            weft_tensor t = operand(weft_shape(4, 6), dtype, layout, x);
            int result = reduced_type(WF_OP_SUM, dtype);
            for (int i = 0; i < 24; i++) {
                int n = i / 6 + 1; /* down the first axis */
                for (int k = 0; k < n; k++) {
                    line[k] = x[k * 6 + i % 6];
                }
                sums[i] = ref_cumsum(line, n, 0);
                products[i] = ref_cumprod(line, n, 0);
                sum_bound[i] =
                    reduce_bound(WF_OP_SUM, line, n, 0, result) + rounding(result, sums[i]);
                product_bound[i] = reduce_bound(WF_OP_PROD, line, n, products[i], result) +
                                   rounding(result, products[i]);
            }
            check_near("cumsum", weft_cumsum(t, 0), sums, sum_bound);
            check_near("cumprod", weft_cumprod(t, -2), products, product_bound);
            weft_scope_end(sc);
        }
    }
}

/* -- products -------------------------------------------------------------------------------------------- */

/* One output: the sum of n products, and its bound for results of dtype. */
typedef struct dot {
    real sum, size;
    int64_t n;
} dot;
static void dot_add(dot *d, real a, real b)
{
    d->sum += a * b;
    d->size += fabsl(a * b);
    d->n++;
}
static void dot_store(const dot *d, int dtype, int64_t i, real *want, real *bound)
{
    want[i] = d->sum;
    bound[i] = test_is_float(dtype)
                   ? (real)(d->n + 2) * unit(dtype) * d->size + rounding(dtype, d->sum)
                   : 0;
}

static const int floats[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};

Test(other_rows, matmul_and_linear)
{
    enum { M = 5, K = 7, N = 6 };
    for (int c = 0; c < 5 * 16; c++) {
        static const int types[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64, WEFT_I32};
        int dtype = types[c / 16], la = c % 4, lb = c / 4 % 4;
        real a[MOST], b[MOST], w[MOST], bias[MOST], want[2 * M * N], bound[2 * M * N];
        weft_scope sc = weft_scope_begin();
        weft_tensor ta = operand(weft_shape(2, M, K), dtype, la, a);
        weft_tensor tb = operand(weft_shape(K, N), dtype, lb, b);
        for (int i = 0; i < 2 * M * N; i++) {
            dot d = {0};
            for (int k = 0; k < K; k++) {
                dot_add(&d, a[i / N * K + k], b[k * N + i % N]);
            }
            dot_store(&d, dtype, i, want, bound);
        }
        weft_tensor y = weft_matmul(ta, tb);
        check_type("matmul", y, (weft_dtype)dtype, weft_shape(2, M, N));
        check_near("matmul", y, want, bound);
        if (test_is_float(dtype)) {
            weft_tensor tw = operand(weft_shape(N, K), dtype, lb, w);
            weft_tensor tbias = operand(weft_shape(N), dtype, 0, bias);
            for (int i = 0; i < 2 * M * N; i++) {
                dot d = {0};
                for (int k = 0; k < K; k++) {
                    dot_add(&d, a[i / N * K + k], w[i % N * K + k]);
                }
                dot_add(&d, 1, bias[i % N]);
                dot_store(&d, dtype, i, want, bound);
            }
            check_near("linear", weft_linear(ta, tw, tbias), want, bound);
        }
        weft_scope_end(sc);
    }
}

Test(other_rows, conv2d)
{
    enum { H = 6, W = 5, OUT = 4, OH = 3, OW = 5 };
    for (int c = 0; c < 4 * 4; c++) {
        int dtype = floats[c / 4], layout = c % 4;
        real x[MOST], w[MOST], bias[MOST], want[2 * OUT * OH * OW], bound[2 * OUT * OH * OW];
        weft_scope sc = weft_scope_begin();
        weft_tensor tx = operand(weft_shape(2, 2, H, W), dtype, layout, x);
        weft_tensor tw = operand(weft_shape(OUT, 1, 3, 3), dtype, layout, w);
        weft_tensor tb = operand(weft_shape(OUT), dtype, 0, bias);
        for (int i = 0; i < 2 * OUT * OH * OW; i++) {
            int n = i / (OUT * OH * OW), o = i / (OH * OW) % OUT, oy = i / OW % OH, ox = i % OW;
            dot d = {0};
            dot_add(&d, 1, bias[o]);
            for (int k = 0; k < 9; k++) {
                int iy = 2 * oy - 1 + k / 3, ix = ox - 1 + k % 3;
                if (iy >= 0 && iy < H && ix >= 0 && ix < W) {
                    dot_add(&d, x[((n * 2 + o / 2) * H + iy) * W + ix], w[o * 9 + k]);
                }
            }
            dot_store(&d, dtype, i, want, bound);
        }
        weft_tensor y = weft_conv2d(tx, tw, tb, .stride = weft_shape(2, 1),
                                    .padding = weft_shape(1), .groups = 2);
        check_type("conv2d", y, (weft_dtype)dtype, weft_shape(2, OUT, OH, OW));
        check_near("conv2d", y, want, bound);
        weft_scope_end(sc);
    }
}

/* -- row-wise ---------------------------------------------------------------------------------------------- */

Test(other_rows, softmax_and_norms)
{
    enum { R = 6, N = 9 };
    for (int c = 0; c < 4 * 4; c++) {
        int dtype = floats[c / 4];
        real x[MOST], soft[R * N], logs[R * N], norm[R * N], rms[R * N];
        real bsoft[R * N], blogs[R * N], bnorm[R * N], u = unit(dtype), k = N + 10;
        weft_scope sc = weft_scope_begin();
        weft_tensor t = operand(weft_shape(R, N), dtype, c % 4, x);
        for (int r = 0; r < R; r++) {
            const real *row = x + r * N;
            real lse = ref_logsumexp(row, N, 0), mean = ref_mean(row, N, 0),
                 var = ref_var(row, N, 0);
            real square = var + mean * mean;
            for (int i = r * N; i < (r + 1) * N; i++) {
                soft[i] = expl(x[i] - lse);
                logs[i] = x[i] - lse;
                norm[i] = (x[i] - mean) / sqrtl(var + 1e-5L);
                rms[i] = x[i] / sqrtl(square + 1e-6L);
                bsoft[i] = k * u * soft[i] * 4 + rounding(dtype, soft[i]);
                blogs[i] = k * u * (4 + fabsl(lse)) + rounding(dtype, logs[i]);
                /* |x| <= 2; the row's deviation divides errors of the mean, squared those of var */
                bnorm[i] = 8 * k * u * (1 + 2 / sqrtl(var) + 4 / var) * (1 + fabsl(norm[i])) +
                           rounding(dtype, norm[i]);
            }
        }
        check_near("softmax", weft_softmax(t, 1), soft, bsoft);
        check_near("log_softmax", weft_log_softmax(t, -1), logs, blogs);
        check_near("layer_norm", weft_layer_norm(t), norm, bnorm);
        for (int i = 0; i < R * N; i++) {
            bnorm[i] = k * u * fabsl(rms[i]) * 2 + rounding(dtype, rms[i]);
        }
        check_near("rms_norm", weft_rms_norm(t), rms, bnorm);
        weft_scope_end(sc);
    }
}

Test(other_rows, pooling)
{
    enum { H = 6, W = 7, OH = 3, OW = 3 };
    for (int c = 0; c < 4 * 4; c++) {
        int dtype = floats[c / 4];
        real x[MOST], most[2 * OH * OW], mean[2 * OH * OW], bound[2 * OH * OW],
            none[2 * OH * OW] = {0};
        weft_scope sc = weft_scope_begin();
        weft_tensor t = operand(weft_shape(1, 2, H, W), dtype, c % 4, x);
        for (int i = 0; i < 2 * OH * OW; i++) {
            real window[4];
            for (int k = 0; k < 4; k++) {
                window[k] =
                    x[(i / (OH * OW) * H + i / OW % OH * 2 + k / 2) * W + i % OW * 2 + k % 2];
            }
            most[i] = ref_max(window, 4, 0);
            mean[i] = ref_mean(window, 4, 0);
            bound[i] = reduce_bound(WF_OP_MEAN, window, 4, 0, dtype) + rounding(dtype, mean[i]);
        }
        check_near("max_pool2d", weft_max_pool2d(t, .kernel = weft_shape(2)), most, none);
        check_near("avg_pool2d", weft_avg_pool2d(t, .kernel = weft_shape(2)), mean, bound);
        weft_scope_end(sc);
    }
}

/* softmax(q k^T / sqrt(e)) v, with and without the causal rule. */
Test(other_rows, attention)
{
    enum { L = 5, S = 5, E = 4 };
    for (int c = 0; c < 4 * 2 * 2; c++) {
        int dtype = floats[c / 4];
        bool causal = c % 2 == 1;
        real q[MOST], k[MOST], v[MOST], want[2 * L * E], bound[2 * L * E];
        weft_scope sc = weft_scope_begin();
        weft_tensor tq = operand(weft_shape(2, L, E), dtype, c / 2 % 2 * 2, q);
        weft_tensor tk = operand(weft_shape(2, S, E), dtype, c / 2 % 2, k);
        weft_tensor tv = operand(weft_shape(2, S, E), dtype, c / 2 % 2 * 3, v);
        for (int i = 0; i < 2 * L * E; i++) {
            int b = i / (L * E), l = i / E % L, n = causal ? l + 1 : S;
            real score[S], y = 0, size = 0, largest = 0;
            for (int s = 0; s < n; s++) {
                real terms = 0;
                score[s] = 0;
                for (int e = 0; e < E; e++) {
                    score[s] += q[(b * L + l) * E + e] * k[(b * S + s) * E + e] / 2;
                    terms += fabsl(q[(b * L + l) * E + e] * k[(b * S + s) * E + e]) / 2;
                }
                largest = fmaxl(largest, terms);
            }
            real lse = ref_logsumexp(score, n, 0);
            for (int s = 0; s < n; s++) {
                y += expl(score[s] - lse) * v[(b * S + s) * E + i % E];
                size += expl(score[s] - lse) * fabsl(v[(b * S + s) * E + i % E]);
            }
            want[i] =
                y; /* scores are off by (e + 2) u of their terms, twice: above and below the line */
            bound[i] = (2 * (E + 2) * largest + S + 12) * unit(dtype) * size + rounding(dtype, y);
        }
        check_near("attention", weft_scaled_dot_product_attention(tq, tk, tv, .causal = causal),
                   want, bound);
        weft_scope_end(sc);
    }
}

Test(other_rows, cross_entropy)
{
    enum { R = 7, N = 6 };
    for (int c = 0; c < 4 * 4; c++) {
        int dtype = floats[c / 4];
        real x[MOST], want[R], bound[R];
        int64_t target[R];
        weft_scope sc = weft_scope_begin();
        weft_tensor t = operand(weft_shape(R, N), dtype, c % 4, x);
        for (int r = 0; r < R; r++) {
            target[r] = test_between(&rng, 0, N - 1);
            real lse = ref_logsumexp(x + r * N, N, 0);
            want[r] = lse - x[r * N + target[r]];
            bound[r] = (N + 12) * unit(dtype) * (6 + fabsl(lse)) + rounding(dtype, want[r]);
        }
        weft_tensor y = weft_cross_entropy(t, weft_from_data(target, weft_shape(R), WEFT_I64),
                                           .reduction = WEFT_REDUCE_NONE);
        check_near("cross_entropy", y, want, bound);
        weft_scope_end(sc);
    }
}
