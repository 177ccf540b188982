/*
 * tests/unit/test_reduce.c -- reductions, arg reductions and scans against their definitions.
 *
 * ctest: threads timeout=300 optimised
 */
#include <criterion/criterion.h>

#include "eager/alloc.h"
#include "eager/reduce.h"
#include "jit/ir/dict_c.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h"
#include "tests/support/effort.h"
#include "tests/unit/reduce_support.h"

WF_EXEC_DECL(reduce);
WF_EXEC_DECL(argreduce);
WF_EXEC_DECL(scan);

/* Sanitizers multiply the time of the references by 5 to 50 and need threads and memory, not every axis set
 * of every type: they run each THIN-th trial. A prime that divides none of the cycles below, so that
 * every op, type, layout, instruction set and count of threads takes its turn. */
#if UNDER_TSAN || UNDER_ASAN
enum { THIN = 11 };
#else
enum { THIN = 1 };
#endif

/* -- references ------------------------------------------------------------------------------------ */

#define DEFINE_REFERENCE(T, sfx, sq)                                                               \
    static T reference_##sfx(wf_op op, T *v, int64_t n, double param)                              \
    {                                                                                              \
        T m = n > 0 ? v[0] : (T)0, p = (T)param;                                                   \
        switch ((int)op) {                                                                         \
        case WF_OP_SUM:                                                                            \
            return n > 0 ? canon_##sfx(v, n, false) : (T)0;                                        \
        case WF_OP_PROD:                                                                           \
            return canon_##sfx(v, n, true);                                                        \
        case WF_OP_AMAX:                                                                           \
            for (int64_t i = 1; i < n; i++) {                                                      \
                m = MAX(m, v[i]);                                                                  \
            }                                                                                      \
            return m;                                                                              \
        case WF_OP_AMIN:                                                                           \
            for (int64_t i = 1; i < n; i++) {                                                      \
                m = MIN(m, v[i]);                                                                  \
            }                                                                                      \
            return m;                                                                              \
        case WF_OP_MEAN:                                                                           \
            return n > 0 ? canon_##sfx(v, n, false) / (T)n : (T)NAN;                               \
        case WF_OP_VAR:                                                                            \
        case WF_OP_STD:                                                                            \
            if (n == 0) {                                                                          \
                return (T)NAN;                                                                     \
            }                                                                                      \
            m = canon_##sfx(v, n, false) / (T)n;                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                v[i] = (v[i] - m) * (v[i] - m);                                                    \
            }                                                                                      \
            m = canon_##sfx(v, n, false) / (T)((double)n > param ? (double)n - param : 0.0);       \
            return op == WF_OP_STD ? sq(m) : m;                                                    \
        case WF_OP_LOGSUMEXP:                                                                      \
            m = reference_##sfx(WF_OP_AMAX, v, n, 0);                                              \
            m = n > 0 && isfinite(m) ? m : (T)0;                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                v[i] = exp_##sfx(v[i] - m);                                                        \
            }                                                                                      \
            return n > 0 ? m + log_##sfx(canon_##sfx(v, n, false)) : (T)-INFINITY;                 \
        default: /* NORM */                                                                        \
            for (int64_t i = 0; i < n; i++) {                                                      \
                v[i] = param == 2                   ? v[i] * v[i]                                  \
                       : param == 0                 ? (T)(v[i] != 0)                               \
                       : isinf(param) || param == 1 ? FABS(v[i])                                   \
                                                    : pow_##sfx(FABS(v[i]), p);                    \
            }                                                                                      \
            if (n == 0) {                                                                          \
                return (T)0;                                                                       \
            }                                                                                      \
            if (isinf(param)) {                                                                    \
                return reference_##sfx(param > 0 ? WF_OP_AMAX : WF_OP_AMIN, v, n, 0);              \
            }                                                                                      \
            m = canon_##sfx(v, n, false);                                                          \
            return param == 2                 ? sq(m)                                              \
                   : param == 0 || param == 1 ? m                                                  \
                                              : pow_##sfx(m, (T)(1.0 / param));                    \
        }                                                                                          \
    }
DEFINE_REFERENCE(float, f32, sqrtf)
DEFINE_REFERENCE(double, f64, sqrt)

static int64_t reference_int(wf_op op, const int64_t *v, int64_t n)
{
    uint64_t sum = 0, prod = 1;
    int64_t lo = n > 0 ? v[0] : 0, hi = lo, nonzero = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (uint64_t)v[i];
        prod *= (uint64_t)v[i];
        lo = v[i] < lo ? v[i] : lo;
        hi = v[i] > hi ? v[i] : hi;
        nonzero += v[i] != 0;
    }
    switch ((int)op) {
    case WF_OP_SUM:
        return (int64_t)sum;
    case WF_OP_PROD:
        return (int64_t)prod;
    case WF_OP_AMAX:
        return hi;
    case WF_OP_AMIN:
        return lo;
    case WF_OP_ANY:
        return nonzero > 0;
    case WF_OP_ALL:
        return nonzero == n;
    default:
        return nonzero;
    }
}

/* First index of the extreme value; NaN is more extreme than anything. */
static int64_t reference_arg(const double *v, int64_t n, int sign)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n && v[best] == v[best]; i++) {
        if (v[i] != v[i] || (sign > 0 ? v[i] > v[best] : v[i] < v[best])) {
            best = i;
        }
    }
    return best;
}

/* All results, one behind the other. */
static void *wanted(wf_op op, const wf_view *x, unsigned axes, const wf_attr *attr, int dtype)
{
    int64_t m, outs, *in = offsets_over(x, axes, &m), *base = offsets_over(x, ~axes, &outs);
    double *d = malloc((size_t)(m + 1) * sizeof *d);
    float *f = malloc((size_t)(m + 1) * sizeof *f);
    int64_t *w = malloc((size_t)(m + 1) * sizeof *w);
    const size_t size = wf_dtype_size(dtype);
    char *all = malloc((size_t)(outs + 1) * size);
    const double param = attr->n_flt > 0 ? attr->flt[0] : op == WF_OP_NORM ? 2.0 : 1.0;
    const bool truth = op == WF_OP_ANY || op == WF_OP_ALL || op == WF_OP_COUNT_NONZERO;
    const bool arg = op == WF_OP_ARGMAX || op == WF_OP_ARGMIN;
    for (int64_t o = 0; o < outs; o++) {
        const char *data = (const char *)x->data + base[o] * (int64_t)wf_dtype_size(x->dtype);
        char *want = all + (size_t)o * size;
        get_elems(d, data, x->dtype, in, m);
        if (!arg && dtype == WEFT_F64) {
            set_elem(want, dtype, 0, reference_f64(op, d, m, param));
        } else if (!arg && is_float(dtype)) {
            for (int64_t i = 0; i < m; i++) {
                f[i] = (float)d[i];
            }
            set_elem(want, dtype, 0, (double)reference_f32(op, f, m, param));
        } else {
            for (int64_t i = 0; i < m && !arg; i++) {
                w[i] = truth ? d[i] != 0 : get_int(data, x->dtype, in[i]);
            }
            int64_t r =
                arg ? reference_arg(d, m, op == WF_OP_ARGMAX ? 1 : -1) : reference_int(op, w, m);
            memcpy(want, &r, size); /* wraps: the low bytes */
        }
    }
    free(in);
    free(base);
    free(d);
    free(f);
    free(w);
    return all;
}

static void expect_result(wf_op op, const wf_view *x, unsigned axes, const wf_view *dst,
                          const char *want)
{
    const int64_t outs = wf_view_numel(dst);
    if (memcmp(dst->data, want, (size_t)outs * wf_dtype_size(dst->dtype)) == 0) {
        return;
    }
    for (int64_t o = 0; o < outs; o++) {
        cr_assert(same_elem(dst->data, want, dst->dtype, o),
                  "%s %s rank %d axes %#x result %lld of %lld: got %.17g, want %.17g",
                  wf_rows[op].name, wf_dtype_name(x->dtype), x->rank, axes, (long long)o,
                  (long long)outs, get_elem(dst->data, dst->dtype, o),
                  get_elem(want, dst->dtype, o));
    }
}

/* known: what is wanted, where it was asked for before, of the same values. */
static void check_again(wf_op op, const wf_view *x, unsigned axes, double param, bool keepdim,
                        int dtype, void **known)
{
    int64_t ints[WF_MAX_RANK];
    wf_attr attr = {.flags = keepdim ? WF_FLAG_KEEPDIM : 0, .dtype = (uint8_t)dtype, .ints = ints};
    attr.n_flt = op == WF_OP_VAR || op == WF_OP_STD || op == WF_OP_NORM;
    attr.flt = &param;
    for (int i = 0; i < x->rank; i++) {
        if ((axes >> i & 1u) != 0) {
            ints[attr.n_ints++] = i;
        }
    }
    bool arg = op == WF_OP_ARGMAX || op == WF_OP_ARGMIN;
    if (axes == 0) {
        axes = (1u << x->rank) - 1u;
    }
    call c = run_op(op, arg ? wf_exec_argreduce : wf_exec_reduce, &attr, 1, x);
    bool empty = false;
    for (int i = 0; i < x->rank; i++) {
        empty = empty || ((axes >> i & 1u) != 0 && x->dims[i] == 0);
    }
    if (empty && (arg || op == WF_OP_AMAX || op == WF_OP_AMIN)) {
        cr_assert_eq(c.status, WEFT_ESHAPE);
        cr_assert(c.why.rule[0] != 0 && c.why.hint[0] != 0);
        return;
    }
    cr_assert_eq(c.status, 0, "%s: %s", wf_rows[op].name, c.why.rule);
    const wf_view *dst = &c.dst[0].v;
    if (*known == NULL) {
        *known = wanted(op, x, axes, &attr, dst->dtype);
    }
    expect_result(op, x, axes, dst, *known);
    free_call(&c);
}

static void check(wf_op op, const wf_view *x, unsigned axes, double param, bool keepdim, int dtype)
{
    void *known = NULL;
    check_again(op, x, axes, param, keepdim, dtype, &known);
    free(known);
}

static const wf_op all_ops[] = {WF_OP_SUM,       WF_OP_PROD,  WF_OP_AMAX, WF_OP_AMIN,
                                WF_OP_MEAN,      WF_OP_VAR,   WF_OP_STD,  WF_OP_NORM,
                                WF_OP_LOGSUMEXP, WF_OP_ANY,   WF_OP_ALL,  WF_OP_COUNT_NONZERO,
                                WF_OP_ARGMAX,    WF_OP_ARGMIN};
enum { NOPS = sizeof all_ops / sizeof all_ops[0] };
static const double orders[] = {2.0, 1.0, INFINITY, -INFINITY, 0.0, 3.0, 0.5};

static double param_of(wf_op op)
{
    return op == WF_OP_NORM ? orders[pick(7)] : (double)pick(3);
}

/* Every axis set of every rank up to 4, every op, every dtype and layout in turn. */
Test(reduce, axis_sets)
{
    static const int64_t extents[] = {1, 2, 3, 5, 8, 13, 20};
    int trial = 0;
    for (int rank = 0; rank <= 4; rank++) {
        for (unsigned axes = 0; axes < 1u << rank; axes++) {
            for (int dt = WEFT_BOOL; dt < WEFT_DTYPE_COUNT; dt++) {
                for (int k = 0; k < NOPS; k++, trial++) {
                    bool arg = all_ops[k] == WF_OP_ARGMAX || all_ops[k] == WF_OP_ARGMIN;
                    if ((arg && __builtin_popcount(axes) > 1) || trial % THIN != 0) {
                        continue;
                    }
                    int64_t dims[4];
                    for (int i = 0; i < rank; i++) {
                        dims[i] = extents[pick(7)];
                    }
                    set_machine(trial);
                    operand x = make_operand(dt, rank, dims, (int)pick(NLAYOUT));
                    fill_operand(&x, (int)pick(4));
                    check(all_ops[k], &x.v, axes, param_of(all_ops[k]), pick(2) == 0, 0);
                    free_operand(&x);
                }
            }
        }
    }
}

/* Long axes: many blocks, inner, outer and middle, wide and narrow, tails on both sides of 64 and 4096. */
Test(reduce, long_axes)
{
    static const int64_t shapes[][3] = {
        {1, 1, 4096},  {1, 1, 4097},   {3, 1, 8191},   {1, 1, 300000}, {2, 5000, 3},
        {2, 5000, 7},  {1, 9000, 64},  {1, 4096, 130}, {1, 8200, 300}, {2, 70, 1100},
        {1, 63, 2050}, {1, 1, 63},     {1, 65, 1030},  {3, 128, 129},  {1, 300, 1500},
        {1, 20000, 4}, {40, 100, 200}, {1, 1, 65},     {1, 2, 3000},   {1, 1, 64},
        {600, 1, 40},  {600, 1, 64},   {70, 1, 100},   {1, 13000, 5},  {1, 4097, 200},
    };
    static const int dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16, WEFT_I32, WEFT_U8};
    int trial = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (unsigned axes = 1; axes < 8; axes++) {
            for (int t = 0; t < 3; t++, trial++) {
                int dt = t < 2 ? dtypes[t] : dtypes[2 + trial % 4];
                wf_op op = all_ops[(size_t)trial % NOPS];
                if (t == 0) {
                    op = WF_OP_SUM;
                } else if (__builtin_popcount(axes) > 1 &&
                           (op == WF_OP_ARGMAX || op == WF_OP_ARGMIN)) {
                    op = WF_OP_VAR;
                }
                if (trial % THIN != 0) {
                    continue;
                }
                set_machine(trial);
                operand x = make_operand(dt, 3, shapes[s], trial % 3 == 0 ? PERMUTED : PLAIN);
                fill_operand(&x, 0);
                check(op, &x.v, axes, param_of(op), false, 0);
                free_operand(&x);
            }
        }
    }
}

/* Extremes of columns of every integer type: several tiles, one, few columns; rows shared by tasks; between other axes. */
Test(reduce, extremes_of_integer_columns)
{
    static const int64_t shapes[][3] = {{1, 70, 5000}, {2, 300, 130}, {3, 5, 1000}, {1, 5000, 66}};
    static const int types[] = {WEFT_U8, WEFT_I8, WEFT_I16, WEFT_I32, WEFT_I64};
    int trial = 0;
    for (int t = 0; t < 5; t++) {
        for (int s = 0; s < 4; s++, trial++) {
            operand x = make_operand(types[t], 3, shapes[s], PLAIN);
            fill_operand(&x, 0);
            set_machine(trial);
            check(WF_OP_AMAX, &x.v, 2, 0, false, 0);
            check(WF_OP_AMIN, &x.v, 2, 0, false, 0);
            free_operand(&x);
        }
    }
}

/* Sums of columns of integers whose last block has fewer rows than classes, or a few more: none counts twice, none is left out. */
Test(reduce, sums_of_integer_columns)
{
    static const int64_t rows[] = {WF_BLOCK + 1,   WF_BLOCK + 3, WF_BLOCK + 5,
                                   WF_BLOCK + 130, 1000,         2 * WF_BLOCK + 2};
    static const int types[] = {WEFT_BOOL, WEFT_U8, WEFT_I16, WEFT_I32, WEFT_I64};
    int trial = 0;
    for (int t = 0; t < 5; t++) {
        for (size_t s = 0; s < sizeof rows / sizeof *rows; s++, trial++) {
            const int64_t dims[2] = {rows[s], trial % 2 ? 121 : 70};
            operand x = make_operand(types[t], 2, dims, PLAIN);
            fill_operand(&x, 0);
            set_machine(trial);
            check(WF_OP_SUM, &x.v, 1, 0, false, 0);
            check(WF_OP_COUNT_NONZERO, &x.v, 1, 0, false, 0);
            free_operand(&x);
        }
    }
}

/* Rows of truth values and of small integers, read as they lie in memory: one element decides, wherever it stands, and whichever
 * of its bits are set; -0 is false, NaN and the smallest subnormal are true. */
static double decides(int dt, int64_t i)
{
    static const double floats[] = {NAN, -INFINITY, 1, -1};
    if (is_float(dt)) {
        const double least = dt == WEFT_F64    ? 0x1p-1074
                             : dt == WEFT_F16  ? 0x1p-24
                             : dt == WEFT_BF16 ? 0x1p-133
                                               : 0x1p-149;
        return i % 5 == 4 ? least : floats[i % 5];
    }
    const int bits = 8 * (int)wf_dtype_size(dt) - 1; /* the sign, too */
    return dt == WEFT_BOOL ? 1
           : dt == WEFT_U8 ? ldexp(1, (int)(i % 8))
                           : -ldexp(1, (int)(i % (bits + 1)));
}
Test(reduce, one_element_decides)
{
    static const int64_t lengths[] = {1, 2, 7, 8, 9, 31, 64, 65, 100, 130, 4097};
    static const wf_op ops[] = {WF_OP_ANY, WF_OP_ALL, WF_OP_AMAX, WF_OP_AMIN};
    for (int dt = WEFT_BOOL; dt < WEFT_DTYPE_COUNT; dt++) {
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
            const int64_t n = lengths[l];
            operand x = make_operand(dt, 2, (int64_t[]){3, n}, PLAIN);
            const int64_t step = n > 200 ? 273 : 1;
            for (int64_t at = 0; at < n; at += step) {
                set_machine((int)at);
                for (int o = 0; o < 4; o++) {
                    const double some = decides(dt, at + n),
                                 none = is_float(dt) && at % 2 ? -0.0 : 0;
                    const bool all = ops[o] == WF_OP_ALL;
                    for (int64_t i = 0; i < 3 * n; i++) {
                        set_elem(x.v.data, dt, i, (i == n + at) != all ? some : none);
                    }
                    wf_attr attr = {.n_ints = 1, .ints = (int64_t[]){1}};
                    call c = run_op(ops[o], wf_exec_reduce, &attr, 1, &x.v);
                    for (int64_t row = 0; row < 3; row++) {
                        double want = (row == 1) != all;
                        if (o >= 2) {
                            want = row != 1                                  ? none
                                   : n == 1 || some != some                  ? some
                                   : (some > none) == (ops[o] == WF_OP_AMAX) ? some
                                                                             : none;
                        }
                        const double got = get_elem(c.dst[0].v.data, c.dst[0].v.dtype, row);
                        cr_assert(got == want || (got != got && want != want),
                                  "op %d of dtype %d, %lld elements, %g at %lld, row %lld: %g",
                                  (int)ops[o], dt, (long long)n, some, (long long)at,
                                  (long long)row, got);
                    }
                    free_call(&c);
                }
            }
            free_operand(&x);
        }
    }
}

/* The same of columns, neighbours or every other one: bytes are compared as they lie, for truths as unsigned ones. */
Test(reduce, one_element_of_a_column_decides)
{
    enum { COLUMNS = 130, DECIDED = 67 };
    static const int64_t lengths[] = {1, 2, 9, 10, 18, 130};
    static const wf_op ops[] = {WF_OP_ANY, WF_OP_ALL, WF_OP_AMAX, WF_OP_AMIN};
    for (int dt = WEFT_BOOL; dt < WEFT_DTYPE_COUNT; dt++) {
        for (int trial = 0; trial < 48; trial++) {
            const int64_t n = lengths[trial / 8], step = 1 + trial % 2, at = trial % 7 % n;
            const wf_op op = ops[trial / 2 % 4];
            const bool all = op == WF_OP_ALL;
            const double some = decides(dt, trial);
            operand x = make_operand(dt, 2, (int64_t[]){n, COLUMNS * step}, PLAIN);
            set_machine(trial);
            for (int64_t i = 0; i < n * COLUMNS * step; i++) {
                set_elem(x.v.data, dt, i, (i == (at * COLUMNS + DECIDED) * step) != all ? some : 0);
            }
            x.v.dims[1] = COLUMNS;
            x.v.strides[1] = step;
            wf_attr attr = {.n_ints = 1, .ints = (int64_t[]){0}};
            call c = run_op(op, wf_exec_reduce, &attr, 1, &x.v);
            for (int64_t i = 0; i < COLUMNS; i++) {
                const bool largest = op == WF_OP_AMAX;
                double want = (i == DECIDED) != all;
                if (op == WF_OP_AMAX || op == WF_OP_AMIN) {
                    want = i == DECIDED && (n == 1 || some != some || (some > 0) == largest) ? some
                                                                                             : 0;
                }
                const double got = get_elem(c.dst[0].v.data, c.dst[0].v.dtype, i);
                cr_assert(got == want || (got != got && want != want),
                          "op %d of dtype %d, %lld rows, step %lld, %g at %lld, column %lld: %g",
                          (int)op, dt, (long long)n, (long long)step, some, (long long)at,
                          (long long)i, got);
            }
            free_call(&c);
            free_operand(&x);
        }
    }
}

/* Sums read as they lie in memory: rows in groups of four and what is left over, columns in strips, rows fewer and
 * more than the lanes, behind padding, of every float type. */
Test(reduce, sums_in_memory)
{
    static const int64_t shapes[][2] = {
        {9, 1024},   {6, 100},    {7, 65},    {5, 4096},   {3, 9000},  {64, 200},    {33, 257},
        {17, 130},   {16, 192},   {8, 1030},  {200, 129},  {4, 64},    {65, 515},    {4200, 60},
        {2, 63},     {1, 5000},   {31, 256},  {130, 300},  {40, 1025}, {49, 777},    {15, 129},
        {1, 200},    {24, 131},   {64, 1024}, {50, 608},   {33, 96},   {260, 129},   {333, 64},
        {1030, 515}, {4700, 130}, {9000, 33}, {576, 1100}, {32, 2304}, {60, 2112},   {64, 5000},
        {100, 330},  {128, 512},  {192, 140}, {400, 133},  {768, 70},  {1100, 1000},
    };
    static const int dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
    int trial = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int t = 0; t < 4; t++) {
            for (unsigned axes = 1; axes < 4; axes++, trial++) {
                const int64_t dims[2] = {shapes[s][0], shapes[s][1] + (trial % 3 == 0 ? 5 : 0)};
                operand x = make_operand(dtypes[t], 2, dims, PLAIN);
                fill_operand(&x, 0);
                wf_view v = x.v;
                v.dims[1] = shapes[s][1];
                void *known = NULL;
                for (int i = trial % THIN; i < 2 * WF_NISA; i += THIN) {
                    set_machine(4 * i +
                                trial % 4); /* every instruction set sums every case, both ways */
                    check_again(WF_OP_SUM, &v, axes, 0, false, 0, &known);
                }
                free(known);
                free_operand(&x);
            }
        }
    }
}

/* Sums over rows that lie apart, each in one piece, of every instruction set: those that fill the lanes and those that end within
 * them, long and short ones, a block that begins within a row, several sums of planes; what lies between rows is NaN, and a sum of
 * -0 alone is -0. */
Test(reduce, sums_of_pieces)
{
    static const int64_t shapes[][3] = {{1, 40, 64},  {1, 70, 128}, {1, 65, 130},  {2, 9, 191},
                                        {1, 3, 4096}, {1, 5, 1000}, {1, 33, 255},  {3, 40, 65},
                                        {1, 2, 5000}, {5, 7, 512},  {1, 300, 140}, {2, 100, 129}};
    static const int dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
    int trial = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int64_t n = shapes[s][2], wide = n + 3 + trial % 3;
        for (int t = 0; t < 4; t++, trial++) {
            const int64_t dims[3] = {shapes[s][0], shapes[s][1], wide};
            operand x = make_operand(dtypes[t], 3, dims, PLAIN);
            fill_operand(&x, 0);
            for (int64_t i = 0; i < dims[0] * dims[1] * wide; i++) {
                if (i % wide < 2 || i % wide >= n + 2) {
                    set_elem(x.v.data, x.v.dtype, i, NAN);
                } else if (s % 4 == 0) {
                    set_elem(x.v.data, x.v.dtype, i, -0.0);
                }
            }
            wf_view v = x.v;
            v.data = (char *)v.data + 2 * wf_dtype_size(v.dtype);
            v.dims[2] = n;
            for (unsigned axes = 5; axes <= 7; axes++) { /* planes, rows, all */
                void *known = NULL;
                for (int i = trial % THIN; i < 2 * WF_NISA; i += THIN) {
                    set_machine(4 * i + trial % 4);
                    check_again(WF_OP_SUM, &v, axes, 0, false, 0, &known);
                }
                free(known);
            }
            free_operand(&x);
        }
    }
}

/* A matrix that lies along its other axis, in every other place, in reverse, behind an offset. */
static wf_view seen(const operand *x, int way)
{
    wf_view v = x->v;
    switch (way) {
    case 0:
        v.dims[0] = x->v.dims[1];
        v.dims[1] = x->v.dims[0];
        v.strides[0] = 1;
        v.strides[1] = x->v.strides[0];
        break;
    case 1:
        v.dims[1] /= 2;
        v.strides[1] = 2;
        break;
    case 2:
        v.data = (char *)v.data + (v.dims[1] - 1) * (int64_t)wf_dtype_size(v.dtype);
        v.strides[1] = -1;
        break;
    default:
        v.data = (char *)v.data + wf_dtype_size(v.dtype);
        v.dims[1]--;
        break;
    }
    return v;
}

/* Views whose values are brought together first: turned a block at a time, columns of a block at once or a few rows of it at a
 * time, with a last strip of columns that overlaps the one before; extremes as they lie, and where they are, behind a NaN. */
Test(reduce, views)
{
    static const int64_t shapes[][2] = {{300, 290}, {97, 1030}, {1100, 131}, {40, 1300}, {1300, 5}};
    static const int dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16, WEFT_I32, WEFT_U8};
    int trial = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int t = 0; t < 6; t++) {
            operand x = make_operand(dtypes[t], 2, shapes[s], PLAIN);
            fill_operand(&x, 0);
            if (s == 1 && t < 4) {
                set_elem(x.v.data, x.v.dtype, 3 * shapes[s][1] + 204, NAN);
            }
            for (int way = 0; way < 4; way++) {
                const wf_view v = seen(&x, way);
                for (unsigned axes = 1; axes < 4; axes++, trial++) {
                    if (trial % THIN != 0) {
                        continue;
                    }
                    set_machine(trial);
                    check(WF_OP_SUM, &v, axes, 0, false, 0);
                    check(trial % 2 ? WF_OP_AMAX : WF_OP_AMIN, &v, axes, 0, false, 0);
                    if (axes < 3) {
                        check(trial % 2 ? WF_OP_ARGMIN : WF_OP_ARGMAX, &v, axes, 0, false, 0);
                    }
                }
            }
            free_operand(&x);
        }
    }
}

/* Short rows: turned some hundred at once, with a last few that are not enough for it, so many that threads share them, in memory one
 * behind the other or apart, along their other axis, and in planes apart. */
Test(reduce, short_rows)
{
    static const int64_t shapes[][2] = {{64, 3},  {63, 16},  {130, 4},  {300, 8},
                                        {301, 9}, {500, 17}, {97, 33},  {90, 64},
                                        {200, 5}, {244, 2},  {9000, 11}};
    int trial = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int64_t rows = shapes[s][0], n = shapes[s][1];
        for (int dt = WEFT_BOOL; dt < WEFT_DTYPE_COUNT; dt++) {
            for (int way = 0; way < 5; way++, trial++) {
                if (trial % THIN != 0) {
                    continue;
                }
                const int64_t dims[2] = {way == 0 ? n : rows, way == 0   ? rows
                                                              : way == 1 ? 2 * n
                                                              : way == 3 ? n + 1
                                                                         : n};
                operand x = make_operand(dt, 2, dims, PLAIN);
                fill_operand(&x, trial % 4);
                wf_view v = way < 4 ? seen(&x, way) : x.v;
                if (way == 3 && rows % 2 == 0) {
                    v.rank = 3;
                    v.dims[2] = v.dims[1];
                    v.strides[2] = v.strides[1];
                    v.dims[1] = rows / 2 - 1; /* a row of the plane is left out */
                    v.strides[1] = v.strides[0];
                    v.dims[0] = 2;
                    v.strides[0] *= rows / 2;
                }
                for (int k = 0; k < 3; k++) {
                    const wf_op op = all_ops[(trial + 5 * k) % NOPS];
                    set_machine(trial / 3 + 5 * k);
                    check(op, &v, 1u << (v.rank - 1), param_of(op), false, 0);
                    check(WF_OP_SUM, &v, 1u << (v.rank - 1), 0, false, 0);
                }
                free_operand(&x);
            }
        }
    }
}

/* Of two operands, each laid out another way, with parameters of each row: all rows, and each by itself. */
Test(reduce, short_rows_of_two_operands)
{
    const int64_t dims[2] = {200, 14}, n = 7;
    for (int trial = 0; trial < 24; trial++) {
        const int dt = trial % 3 == 0 ? WEFT_F32 : trial % 3 == 1 ? WEFT_F64 : WEFT_BF16;
        operand x = make_operand(dt, 2, dims, PLAIN), y = make_operand(WEFT_F32, 2, dims, PLAIN);
        fill_operand(&x, 0);
        fill_operand(&y, 0);
        wf_view v = seen(&x, 1), w = y.v;
        w.dims[1] = n;
        const int compute = wf_red_compute(dt);
        const size_t size = wf_red_size(compute);
        double p[200], q[200], all[200], one;
        for (int64_t i = 0; i < dims[0]; i++) {
            set_elem(p, compute, i, uniform(-1, 1));
            set_elem(q, compute, i, uniform(-1, 1));
        }
        wf_red_job j = {.op = WF_RED_SUM, .map = WF_MAP_XHAT, .compute = compute, .axes = 2};
        j.x = &v;
        j.y = &w;
        j.p = p;
        j.q = q;
        j.out = all;
        set_machine(trial);
        cr_assert_eq(wf_red_run(&j), 0);
        j.out = &one;
        v.dims[0] = w.dims[0] = 1;
        for (size_t i = 0; i < (size_t)dims[0]; i++) {
            j.p = (char *)p + i * size;
            j.q = (char *)q + i * size;
            cr_assert_eq(wf_red_run(&j), 0);
            cr_assert_eq(memcmp(&one, (char *)all + i * size, size), 0, "trial %d, row %zu", trial,
                         i);
            v.data = (char *)v.data + v.strides[0] * (int64_t)wf_dtype_size(dt);
            w.data = (char *)w.data + w.strides[0] * 4;
        }
        free_operand(&x);
        free_operand(&y);
    }
}

/* Sums of all lanes at once want scratch memory; without it fewer columns are taken at a time. */
Test(reduce, sums_without_memory)
{
    static const int64_t dims[2] = {700, 1100};
    operand x = make_operand(WEFT_BF16, 2, dims, PLAIN);
    float out[2][1100];
    fill_operand(&x, 0);
    wf_set_num_threads(1);
    for (int without = 0; without < 2; without++) {
        const wf_red_job j = {
            .op = WF_RED_SUM, .compute = WEFT_F32, .axes = 1, .x = &x.v, .out = out[without]};
        wf_set_amd(without ? 2 : 0);
        wf_alloc_fail_after(without, 1);
        const int status = wf_red_run(&j);
        wf_alloc_fail_after(0, 0);
        cr_assert_eq(status, 0);
    }
    cr_assert_arr_eq(out[0], out[1], sizeof out[0]);
    free_operand(&x);
}

/* One result over more than 4096 blocks: the third level of the tree. */
Test(reduce, three_levels)
{
    int64_t n = 4096ll * 4096 + 4096 * 3 + 5;
    operand x = make_operand(WEFT_F32, 1, &n, PLAIN);
    float *v = x.v.data;
    for (int64_t i = 0; i < n; i++) { /* 23 bits, scrambled by a multiplication */
        v[i] = (float)((uint32_t)i * 2654435761u >> 9) * 0x1p-22f - 1.0f;
    }
    float want = canon_f32(v, n, false);
    for (int trial = 1; trial <= 9; trial += 4) {
        set_machine(trial);
        wf_attr attr = {.dtype = 0};
        call c = run_op(WF_OP_SUM, wf_exec_reduce, &attr, 1, &x.v);
        cr_assert_eq(c.status, 0);
        cr_assert(same_elem(c.dst[0].v.data, &want, WEFT_F32, 0), "got %a, want %a",
                  (double)*(float *)c.dst[0].v.data, (double)want);
        free_call(&c);
    }
    free_operand(&x);
}

/* |canonical sum - exact| <= (depth) * eps * sum |x|, depth = 64 per lane + 6 per level of lanes. */
Test(reduce, error_bound)
{
    for (int64_t n = 1; n < 400000; n = n * 3 + 1) {
        operand x = make_operand(WEFT_F32, 1, &n, PLAIN);
        fill_operand(&x, 0);
        long double sum = 0, mag = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += (long double)((float *)x.v.data)[i];
            mag += fabsl((long double)((float *)x.v.data)[i]);
        }
        wf_attr attr = {.dtype = 0};
        call c = run_op(WF_OP_SUM, wf_exec_reduce, &attr, 1, &x.v);
        long double got = (long double)*(float *)c.dst[0].v.data;
        long double levels = n > 4096 ? 2 : 1;
        cr_assert(fabsl(got - sum) <= levels * (64 + 6) * 0x1p-24L * mag, "n = %lld", (long long)n);
        free_call(&c);
        free_operand(&x);
    }
}

/* Zeros of columns are ordered and NaN wins, at every width: some columns of a strip have one and others have not. */
Test(reduce, zeros_and_nans_of_columns)
{
    enum { ROWS = 21, COLUMNS = 83 };
    static const double choices[] = {-0.0, 0.0, -1.0, 2.0, NAN};
    static float v[ROWS * COLUMNS];
    static double w[ROWS * COLUMNS];
    for (int trial = 0; trial < 240; trial++) {
        const int rows = 1 + trial % ROWS, columns = COLUMNS - trial % 3 * 19;
        const int kinds = 2 + trial % 4; /* the last ones are rare */
        const bool wide = trial / 2 % 2, most = trial % 2;
        for (int i = 0; i < rows * columns; i++) {
            const int kind = (int)pick(pick(8) ? 2 : kinds);
            w[i] = choices[kind];
            v[i] = (float)w[i];
        }
        set_machine(trial);
        wf_view x = {.data = wide ? (void *)w : (void *)v,
                     .dtype = wide ? WEFT_F64 : WEFT_F32,
                     .rank = 2,
                     .dims = {rows, columns},
                     .strides = {columns, 1}};
        wf_attr attr = {.n_ints = 1, .ints = (int64_t[]){0}};
        call c = run_op(most ? WF_OP_AMAX : WF_OP_AMIN, wf_exec_reduce, &attr, 1, &x);
        for (int col = 0; col < columns; col++) {
            double want = w[col];
            for (int i = 1; i < rows; i++) {
                const double e = w[i * columns + col];
                const bool less = e < want || (e == want && signbit(e) > signbit(want));
                const bool more = e > want || (e == want && signbit(e) < signbit(want));
                want = isnan(want) || isnan(e) ? NAN : (most ? more : less) ? e : want;
            }
            const double got = wide ? ((const double *)c.dst[0].v.data)[col]
                                    : (double)((const float *)c.dst[0].v.data)[col];
            cr_assert(isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want),
                      "%s of column %d of %d x %d: %g for %g", most ? "amax" : "amin", col, rows,
                      columns, got, want);
        }
        free_call(&c);
    }
}

Test(reduce, special_values)
{
    float v[] = {-0.0f, -0.0f};
    wf_view x = {.data = v, .dtype = WEFT_F32, .rank = 1, .dims = {2}, .strides = {1}};
    wf_attr attr = {.dtype = 0};
    call c = run_op(WF_OP_SUM, wf_exec_reduce, &attr, 1, &x);
    cr_assert(signbit(*(float *)c.dst[0].v.data), "-0 + -0 is -0");
    free_call(&c);
    x.dims[0] = 0;
    c = run_op(WF_OP_SUM, wf_exec_reduce, &attr, 1, &x);
    cr_assert(!signbit(*(float *)c.dst[0].v.data) && *(float *)c.dst[0].v.data == 0,
              "an empty sum is +0");
    free_call(&c);
    float inf[] = {-INFINITY, -INFINITY};
    x.data = inf;
    x.dims[0] = 2;
    c = run_op(WF_OP_LOGSUMEXP, wf_exec_reduce, &attr, 1, &x);
    cr_assert(*(float *)c.dst[0].v.data == -INFINITY);
    free_call(&c);
    inf[1] = INFINITY;
    c = run_op(WF_OP_LOGSUMEXP, wf_exec_reduce, &attr, 1, &x);
    cr_assert(*(float *)c.dst[0].v.data == INFINITY);
    free_call(&c);
}

Test(reduce, zero_sizes)
{
    static const int64_t shapes[][3] = {{0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {0, 0, 0}};
    for (size_t s = 0; s < 4; s++) {
        for (unsigned axes = 0; axes < 8; axes++) {
            for (int k = 0; k < NOPS; k++) {
                bool arg = all_ops[k] == WF_OP_ARGMAX || all_ops[k] == WF_OP_ARGMIN;
                if (!arg || __builtin_popcount(axes) <= 1) {
                    operand x = make_operand(k % 2 ? WEFT_F32 : WEFT_I16, 3, shapes[s], PLAIN);
                    check(all_ops[k], &x.v, axes, 2.0, false, 0);
                    free_operand(&x);
                }
            }
        }
    }
}

Test(reduce, result_dtype)
{
    int64_t dims[2] = {37, 70};
    static const int pairs[][2] = {
        {WEFT_U8, WEFT_U8},   {WEFT_I32, WEFT_I16},  {WEFT_BOOL, WEFT_F32}, {WEFT_I64, WEFT_F64},
        {WEFT_F16, WEFT_F32}, {WEFT_BF16, WEFT_F64}, {WEFT_F32, WEFT_F64},  {WEFT_F32, WEFT_BF16}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        for (unsigned axes = 1; axes < 4; axes++) {
            operand x = make_operand(pairs[i][0], 2, dims, PLAIN);
            fill_operand(&x, 0);
            check(WF_OP_SUM, &x.v, axes, 0, false, pairs[i][1]);
            check(WF_OP_PROD, &x.v, axes, 0, true, pairs[i][1]);
            free_operand(&x);
        }
    }
    operand x = make_operand(WEFT_F32, 2, dims, PLAIN);
    wf_attr attr = {.dtype = WEFT_I32};
    call c = run_op(WF_OP_SUM, wf_exec_reduce, &attr, 1, &x.v);
    cr_assert_eq(c.status, WEFT_EDTYPE);
    free_operand(&x);
}

/* -- scans ------------------------------------------------------------------------------------------- */

/* The rule of docs/reductions.md said once more, for one output at a time and from totals instead of running values. */
typedef union scan_value {
    double d;
    uint64_t u;
} scan_value;
enum { SCAN_LEVELS = 4 };
typedef struct scan_line {
    bool product, floats;
    const double *d;
    const uint64_t *u;
    scan_value *totals[SCAN_LEVELS]; /* of every 64, 64^2, ... elements, where they are known */
} scan_line;

static scan_value scan_op(const scan_line *l, scan_value a, scan_value b)
{
    if (l->floats) {
        return (scan_value){.d = l->product ? a.d * b.d : a.d + b.d};
    }
    return (scan_value){.u = l->product ? a.u * b.u : a.u + b.u};
}

/* Of `size` elements, a power of two up to 64, or of 64. */
static scan_value scan_total(const scan_line *l, int64_t at, int64_t size)
{
    if (size <= 64 && !(size == 64 && l->totals[0])) { /* halves of halves */
        scan_value v[64];
        for (int64_t i = 0; i < size; i++) {
            v[i] = l->floats ? (scan_value){.d = l->d[at + i]} : (scan_value){.u = l->u[at + i]};
        }
        for (int64_t half = 1; half < size; half *= 2) {
            for (int64_t i = 0; i < size; i += 2 * half) {
                v[i] = scan_op(l, v[i], v[i + half]);
            }
        }
        return v[0];
    }
    int level = 0;
    for (int64_t of = 64; of < size; of *= 64)
        level++;
    if (l->totals[level]) {
        return l->totals[level][at / size];
    }
    const int64_t part = size / 64;
    scan_value v = scan_total(l, at, part);
    for (int64_t i = part; i < size; i += part) {
        v = scan_op(l, v, scan_total(l, at + i, part));
    }
    return v;
}

/* Each total once, into room for len / 63: what an output needs is half of them, and hundreds of outputs are asked for. */
static void know_totals(scan_line *l, int64_t len, scan_value *room)
{
    int64_t size = 64;
    memset(l->totals, 0, sizeof l->totals);
    for (int level = 0; level < SCAN_LEVELS && size <= len; level++, size *= 64) {
        const int64_t n = len / size;
        for (int64_t k = 0; k < n; k++)
            room[k] = scan_total(l, k * size, size);
        l->totals[level] = room;
        room += n;
    }
}

static scan_value scan_output(const scan_line *l, int64_t i)
{
    scan_value v = scan_total(l, i, 1);
    for (int64_t size = 1; size < 64; size *= 2) {
        if (i / size % 2) {
            v = scan_op(l, scan_total(l, i / size * size - size, size), v);
        }
    }
    for (int64_t size = 64; size <= i; size *= 64) { /* parts of this size before its own */
        const int64_t first = i / (64 * size) * 64, parts = i / size - first;
        if (parts > 0) {
            scan_value before = scan_total(l, first * size, size);
            for (int64_t p = 1; p < parts; p++) {
                before = scan_op(l, before, scan_total(l, (first + p) * size, size));
            }
            v = scan_op(l, before, v);
        }
    }
    return v;
}

static void check_scan_output(const wf_view *y, int64_t flat, scan_value want)
{
    const double got = get_elem(y->data, y->dtype, flat), d = want.d;
    if (y->dtype == WEFT_I64) {
        cr_assert_eq(((uint64_t *)y->data)[flat], want.u);
    } else if (y->dtype == WEFT_F64 || y->dtype == WEFT_F32) {
        const double rounded = y->dtype == WEFT_F32 ? (double)(float)d : d;
        cr_assert(memcmp(&got, &rounded, sizeof got) == 0 || (got != got && d != d), "%a %a", got,
                  rounded);
    } else { /* a half: nothing representable is nearer */
        uint16_t bits = ((uint16_t *)y->data)[flat];
        for (int step = -1; step <= 1 && isfinite(d) && isfinite(got); step += 2) {
            uint16_t near = (uint16_t)(bits + step);
            double other = get_elem(&near, y->dtype, 0);
            cr_assert(!(fabs(other - d) < fabs(got - d)), "%a: %a, %a is nearer", d, got, other);
        }
        cr_assert(isnan(d) == isnan(got));
    }
}

/* every: of a line's outputs one in so many is looked at, and the last. */
static void check_scan(wf_op op, const wf_view *x, int axis, int64_t every)
{
    int64_t axes[1] = {axis};
    wf_attr attr = {.n_ints = 1, .ints = axes};
    call c = run_op(op, wf_exec_scan, &attr, 1, x);
    cr_assert_eq(c.status, 0);
    int64_t inner = 1;
    for (int i = axis + 1; i < x->rank; i++) {
        inner *= x->dims[i];
    }
    const int64_t len = x->dims[axis];
    double *d = malloc((size_t)len * sizeof *d + 1);
    uint64_t *u = malloc((size_t)len * sizeof *u + 1);
    scan_value *room = malloc((size_t)(len / 63) * sizeof *room + 1);
    int64_t lines, *first = offsets_over(x, ~(1u << axis), &lines);
    int64_t *along = offsets_over(x, 1u << axis, &(int64_t){0});
    scan_line l = {.product = op == WF_OP_CUMPROD, .floats = is_float(x->dtype), .d = d, .u = u};
    for (int64_t line = 0; len > 0 && line < lines; line++) {
        const char *data = (const char *)x->data + first[line] * (int64_t)wf_dtype_size(x->dtype);
        get_elems(d, data, x->dtype, along, len);
        for (int64_t r = 0; r < len && !l.floats; r++) {
            u[r] = (uint64_t)get_int(data, x->dtype, along[r]);
        }
        know_totals(&l, len, room);
        for (int64_t r = 0; r < len; r = r + every < len || r == len - 1 ? r + every : len - 1) {
            check_scan_output(&c.dst[0].v, (line / inner * len + r) * inner + line % inner,
                              scan_output(&l, r));
        }
    }
    free(first);
    free(along);
    free(room);
    free(d);
    free(u);
    free_call(&c);
}

Test(reduce, scans)
{
    static const int64_t shapes[][3] = {{2, 3, 4},    {1, 1, 3000}, {3, 50, 9}, {2, 1, 1},
                                        {2, 1200, 3}, {2, 7, 1500}, {0, 3, 2},  {3, 0, 2},
                                        {9, 30, 23},  {40, 8, 1}};
    int trial = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int axis = 0; axis < 3; axis++) {
            for (int dt = WEFT_BOOL; dt < WEFT_DTYPE_COUNT; dt++, trial++) {
                if (trial % THIN != 0) {
                    continue;
                }
                set_machine(trial);
                operand x = make_operand(dt, 3, shapes[s], trial % NLAYOUT);
                fill_operand(&x, trial % 3);
                check_scan(WF_OP_CUMSUM, &x.v, axis, 7);
                check_scan(WF_OP_CUMPROD, &x.v, axis, 7);
                free_operand(&x);
            }
        }
    }
}

/* Lines of every level that fits, one and few of them, with one thread and with more. */
Test(reduce, long_scans)
{
    static const struct {
        int64_t rows, n, cols;
    } shapes[] = {{1, 5000, 1},  {1, 64 * 4096 + 4161, 1}, {2, 65537, 1}, {1, 4096, 5},
                  {1, 22000, 3}, {1, 16384, 300},          {3, 130, 70},  {1, 4700, 24}};
    static const int types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_I32, WEFT_I64};
    const int threads = wf_num_threads();
    int trial = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int64_t dims[3] = {shapes[s].rows, shapes[s].n, shapes[s].cols};
        const int64_t every = 1 + shapes[s].n * shapes[s].cols / 400;
        for (int t = 0; t < 5 * 2; t++, trial++) { /* each type on one thread and on three */
            if (trial % EFFORT_LIST_STEP != 0 || (UNDER_TSAN && t < 5)) {
                continue;
            }
            set_machine(trial * 5 + trial / 8);
            wf_set_num_threads(1 + t / 5 * 2);
            operand x = make_operand(types[t % 5], 3, dims, trial % NLAYOUT);
            fill_operand(&x, 0);
            check_scan(WF_OP_CUMSUM, &x.v, 1, every);
            check_scan(WF_OP_CUMPROD, &x.v, 1, every);
            free_operand(&x);
        }
    }
    wf_set_num_threads(threads);
}

/* Sums of f32 columns, on every instruction set. */
static void check_column_sums(int64_t slices, int64_t rows, int64_t columns, int64_t every)
{
    operand x = make_operand(WEFT_F32, 3, (int64_t[]){slices, rows, columns}, PLAIN);
    fill_operand(&x, 0);
    for (int trial = 0; trial < 3; trial++) {
        set_machine(trial * 5);
        check_scan(WF_OP_CUMSUM, &x.v, 1, every);
    }
    free_operand(&x);
}

/* f32 sums that are stored past the caches, whole lines and columns that are none. */
Test(reduce, scans_past_the_caches)
{
    check_column_sums(1, 6000, 1056, 2500);
}

/* f32 sums of rows a power of two apart, whose lines drive out each other. */
Test(reduce, scans_of_rows_that_collide)
{
    check_column_sums(2, 203, 1024, 211);
}

/* Of values that are not negative no output is less than the one before it, and each is near the exact one. */
Test(reduce, scans_ascend)
{
    const int64_t dims[1] = {70000}, axes[1] = {0};
    const wf_attr attr = {.n_ints = 1, .ints = axes};
    for (int trial = 0; trial < 3 * 3; trial++) {
        set_machine(trial);
        operand x = make_operand(WEFT_F64, 1, dims, PLAIN);
        double *v = x.v.data;
        for (int64_t i = 0; i < dims[0]; i++) {
            const uint64_t h = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u * (uint64_t)(2 * trial + 1);
            v[i] = ldexp((double)(h >> 11), trial / 3 == 0 ? -53 : -53 - (int)(h & 63));
            v[i] = trial / 3 == 2 && i % 3 ? v[i] * 0x1p-60 : v[i];
        }
        call c = run_op(WF_OP_CUMSUM, wf_exec_scan, &attr, 1, &x.v);
        const double *y = c.dst[0].v.data;
        long double exact = 0;
        for (int64_t i = 0; i < dims[0]; i++) {
            exact += v[i];
            cr_assert(i == 0 || y[i] >= y[i - 1], "%ld: %a after %a", (long)i, y[i], y[i - 1]);
            /* 6 roundings in a group, and 64 on each of two levels above it */
            cr_assert(fabsl(y[i] - exact) <= 134 * 0x1p-53L * exact, "%ld: %a", (long)i, y[i]);
        }
        free_call(&c);
        free_operand(&x);
    }
}
