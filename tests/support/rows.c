/*
 * tests/support/rows.c -- see tests/support/rows.h.
 *
 * Invariant: what a row takes and returns is derived here from docs/dtypes.md, not asked of the library.
 */
#include "tests/gpu/runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eager/tensor.h"
#include "tests/support/rows.h"

/* The function of the row. weft_pow is one only where a float is among its operands (tests/unit/test_api.c has the rest). */
weft_tensor row_call(wf_op op, const weft_tensor *x)
{
    if (op == WF_OP_POW) {
        return wf_op2(op, NULL, x[0], x[1]);
    }
    const ref_row *r = &ref_rows[op];
    return r->call1 ? r->call1(x[0]) : r->call2 ? r->call2(x[0], x[1]) : r->call3(x[0], x[1], x[2]);
}

bool row_write(wf_op op, const weft_tensor *x, weft_status *status)
{
    const ref_row *r = &ref_rows[op];
    if (!r->write1 && !r->write2 && !r->write3) {
        return false;
    }
    if (op == WF_OP_POW) {
        *status = (weft_status)wf_dispatch_inplace(op, NULL, 2, x, x[0]);
        return true;
    }
    *status = r->write1   ? r->write1(x[0])
              : r->write2 ? r->write2(x[0], x[1])
                          : r->write3(x[0], x[1], x[2]);
    return true;
}

bool row_is_bool(wf_op op)
{
    return wf_rows[op].kind == WF_KIND_PREDICATE || wf_rows[op].kind == WF_KIND_COMPARE;
}

int row_operand(wf_op op, int k, int dtype)
{
    return wf_rows[op].kind == WF_KIND_CHOOSE && k == 0 ? WEFT_BOOL : dtype;
}

int row_computes(wf_op op, int dtype)
{
    unsigned types = wf_rows[op].types;
    if (types >> dtype & 1) {
        return dtype;
    }
    return !test_is_float(dtype) && types >> WEFT_F32 & 1 && !(types >> WEFT_I32 & 1) ? WEFT_F32
                                                                                      : 0;
}

int row_join(int a, int b)
{
    /* bool < {u8, i8} < i16 < i32 < i64 < {f16, bf16} < f32 < f64 */
    static const int level[WEFT_DTYPE_COUNT] = {
        [WEFT_BOOL] = 0, [WEFT_U8] = 1,  [WEFT_I8] = 1,   [WEFT_I16] = 2, [WEFT_I32] = 3,
        [WEFT_I64] = 4,  [WEFT_F16] = 5, [WEFT_BF16] = 5, [WEFT_F32] = 6, [WEFT_F64] = 7};
    if (a == b || level[a] > level[b]) {
        return a;
    }
    return level[a] < level[b] ? b : level[a] == 1 ? WEFT_I16 : WEFT_F32;
}

static int float_specials(int dtype, long double *v)
{
    long double big = test_largest(dtype), eps = test_place(dtype, 1);
    long double tiny = test_place(dtype, 0), normal = tiny / eps;
    const long double all[] = {NAN,
                               0.0L,
                               -0.0L,
                               INFINITY,
                               -INFINITY,
                               1,
                               -1,
                               tiny,
                               -tiny,
                               big,
                               -big,
                               normal,
                               -normal,
                               2,
                               -3,
                               0.5L,
                               -0.5L,
                               1 + eps,
                               1 - eps / 2,
                               6,
                               -6,
                               3,
                               -2,
                               10,
                               -10,
                               100,
                               -100,
                               0.1L,
                               -0.1L,
                               1.5L,
                               2.5L,
                               -7.25L,
                               1e-3L,
                               -1e-3L,
                               1e-5L,
                               0.7L,
                               -0.69L,
                               20,
                               -20,
                               1.5708L,
                               3.1416L,
                               -1 - eps,
                               normal - tiny,
                               tiny - normal,
                               88.7L,
                               -87.4L,
                               -103,
                               700,
                               -745,
                               1 / eps,
                               -2 / eps,
                               1 + 1 / eps,
                               5 * tiny,
                               1024,
                               -1024,
                               big / 3,
                               0x1p30L,
                               0x1p70L};
    int n = sizeof all / sizeof *all;
    for (int i = 0; i < n; i++) {
        v[i] = test_round(dtype, all[i]);
    }
    return n;
}

static int int_specials(int dtype, long double *v)
{
    int bits = test_bits(dtype), n = 0;
    long double hi = ldexpl(1, bits - test_is_signed(dtype)) - 1;
    long double lo = test_is_signed(dtype) ? -hi - 1 : 0;
    if (dtype == WEFT_BOOL) {
        v[0] = 0;
        v[1] = 1;
        return 2;
    }
    const long double all[] = {lo,       hi, 0, 1,      2,      bits, bits - 1,
                               bits + 1, 3,  7, lo + 1, hi - 1, 6,    64};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        v[n++] = all[i];
    }
    for (int i = 0; test_is_signed(dtype) && i < 5; i++) {
        static const int negative[] = {-1, -2, -7, -8, -65};
        v[n++] = negative[i];
    }
    return n;
}

int row_specials(int dtype, int most, void *out)
{
    long double v[ROW_SPECIALS];
    int n = test_is_float(dtype) ? float_specials(dtype, v) : int_specials(dtype, v);
    n = n < most ? n : most;
    for (int i = 0; i < n; i++) {
        test_store((char *)out + (size_t)i * weft_dtype_size((weft_dtype)dtype), dtype, v[i]);
    }
    return n;
}

long double row_random(test_rng *r, int dtype)
{
    uint64_t kind = test_next(r) % 4;
    if (!test_is_float(dtype)) {
        int bits = test_bits(dtype);
        long double u = (long double)(test_next(r) >> (64 - bits));
        long double near = (long double)test_between(r, test_is_signed(dtype) ? -20 : 0, 20);
        long double half = ldexpl(1, bits - 1);
        return dtype == WEFT_BOOL ? u : kind ? near : test_is_signed(dtype) ? u - half : u;
    }
    double u = test_uniform(r, -1, 1);
    double spread = dtype == WEFT_F64 ? 300 : dtype == WEFT_F16 ? 13 : 60;
    double x = kind == 0   ? u
               : kind == 1 ? 10 * u
               : kind == 2 ? 100 * u
                           : u * exp2(test_uniform(r, -spread, spread));
    return test_round(dtype, x);
}

row_data row_data_new(wf_op op, int dtype)
{
    enum { RANDOM = 700 };
    int nsrc = ref_rows[op].nsrc;
    row_data d = {.n = 1};
    char special[3][ROW_SPECIALS * 8];
    int count[3] = {1, 1, 1};
    test_rng r = {(uint64_t)op * 1000 + (uint64_t)dtype};
    for (int k = 0; k < nsrc; k++) {
        d.dtype[k] = row_operand(op, k, dtype);
        count[k] = row_specials(d.dtype[k], nsrc == 3 ? 19 : ROW_SPECIALS, special[k]);
        d.n *= count[k];
    }
    int64_t combinations = d.n;
    d.n += RANDOM;
    for (int k = 0, step = 1; k < nsrc; step *= count[k++]) {
        size_t size = weft_dtype_size((weft_dtype)d.dtype[k]);
        d.x[k] = malloc((size_t)d.n * size);
        cr_assert(d.x[k]);
        for (int64_t i = 0; i < d.n; i++) {
            char *p = d.x[k] + (size_t)i * size;
            if (i < combinations) {
                memcpy(p, special[k] + (size_t)(i / step % count[k]) * size, size);
            } else {
                test_store(p, d.dtype[k], row_random(&r, d.dtype[k]));
            }
        }
    }
    return d;
}

void row_data_free(row_data *d)
{
    for (int k = 0; k < 3; k++) {
        free(d->x[k]);
        d->x[k] = NULL;
    }
}

static real expect_int(wf_op op, const row_data *d, const real *x, int result)
{
    const ref_row *r = &ref_rows[op];
    int dtype = d->dtype[r->nsrc - 1];
    ref_width w = {test_bits(dtype), test_is_signed(dtype)};
    wide a = (wide)x[0], b = (wide)x[1], c = (wide)x[2];
    wide y = r->i1 ? r->i1(a, w) : r->i2 ? r->i2(a, b, w) : r->i3(a, b, c, w);
    return result == WEFT_BOOL ? (real)(y != 0) : (real)ref_wrap(y, w);
}

real row_expect(wf_op op, const row_data *d, int64_t i, real *x)
{
    const ref_row *r = &ref_rows[op];
    int values = d->dtype[r->nsrc - 1], computes = row_computes(op, values);
    x[0] = x[1] = x[2] = 0;
    for (int k = 0; k < r->nsrc; k++) {
        x[k] =
            test_load(d->x[k] + (size_t)i * weft_dtype_size((weft_dtype)d->dtype[k]), d->dtype[k]);
        if (test_is_float(computes) && !test_is_float(d->dtype[k]) && d->dtype[k] == values) {
            x[k] = test_round(computes, x[k]); /* the cast of integers to f32 rounds */
        }
    }
    if (!test_is_float(computes)) {
        return expect_int(op, d, x, row_is_bool(op) ? WEFT_BOOL : computes);
    }
    return r->f1 ? r->f1(x[0]) : r->f2 ? r->f2(x[0], x[1]) : r->f3(x[0], x[1], x[2]);
}

row_verdict row_judge(wf_op op, int result, real want, real got, const real *x, double *ulp,
                      double *allowed)
{
    *allowed = 0;
    if (!test_is_float(result)) {
        *ulp = got == want ? 0 : INFINITY;
        return got == want ? ROW_RIGHT : ROW_WRONG;
    }
    real term = ref_term(op, result, x);
    if (term > test_largest(result == WEFT_F64 ? WEFT_F64 : WEFT_F32) / 2) {
        return ROW_SKIPPED;
    }
    *ulp = test_ulp(result, want, got);
    *allowed = test_allowed(result, wf_rows[op].ulp, want, fmaxl(term, fabsl(want)));
    if (term != 0 && want != 0 && got == 0) { /* terms cancelled: the sign says nothing */
        *ulp = (double)(fabsl(want) / test_place(result, want));
    }
    return *ulp <= *allowed ? ROW_RIGHT : ROW_WRONG;
}
