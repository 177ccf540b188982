/*
 * tests/ops/test_support.c -- the measures of tests/support, checked themselves.
 *
 * That the checks fail when they should is tests/mustfail's; here are the numbers they decide by.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/support/rows.h"

/* A value, k neighbours on: k ULP away, in every format and at every magnitude. */
Test(support, ulp_counts_neighbours)
{
    for (double x = 0x1.8p-140; x < 0x1p120; x *= 1.7) {
        float y = (float)x;
        for (int k = 0; k < 5; k++) {
            double e = test_ulp(WEFT_F32, (float)x, y);
            cr_assert_eq(e, k, "%a, %a: %g ULP, not %d", (double)(float)x, (double)y, e, k);
            y = nextafterf(y, INFINITY);
            if (ilogbf(y) != ilogbf((float)x)) {
                break; /* neighbours are further apart above a power of two */
            }
        }
    }
    cr_assert_eq(test_ulp(WEFT_F64, 1, nextafter(1, 2)), 1);
    cr_assert_eq(test_ulp(WEFT_F64, 1, nextafter(1, 0)), 0.5);
    cr_assert_eq(test_ulp(WEFT_F64, 1 + 0x1p-54L, 1), 0.25);
    cr_assert_eq(test_ulp(WEFT_F16, 1, 1 + 0x1p-9L), 2);
    cr_assert_eq(test_ulp(WEFT_BF16, -1, -1 - 0x1p-6L), 2);
    cr_assert_eq(test_ulp(WEFT_F32, 0, 0x1p-149L), 1);
    cr_assert_eq(test_ulp(WEFT_F32, 0x1p-200L, 0x1p-149L), 1 - 0x1p-51);
}

Test(support, ulp_of_special_values)
{
    const long double inf = INFINITY, not_a_number = NAN;
    cr_assert_eq(test_ulp(WEFT_F32, not_a_number, -not_a_number), 0);
    cr_assert_eq(test_ulp(WEFT_F32, not_a_number, 0), inf);
    cr_assert_eq(test_ulp(WEFT_F32, 1, not_a_number), inf);
    cr_assert_eq(test_ulp(WEFT_F32, inf, inf), 0);
    cr_assert_eq(test_ulp(WEFT_F32, inf, -inf), inf);
    cr_assert_eq(test_ulp(WEFT_F32, inf, test_largest(WEFT_F32)), inf);
    cr_assert_eq(test_ulp(WEFT_F32, -0.0L, 0.0L), inf);
    cr_assert_eq(test_ulp(WEFT_F32, -0x1p-200L, 0.0L), inf);
    cr_assert_eq(test_ulp(WEFT_F32, -0x1p-200L, -0.0L), 0x1p-51);
    /* an overflow: the first power of two out of range */
    cr_assert_eq(test_ulp(WEFT_F32, test_largest(WEFT_F32), inf), 1);
    cr_assert_eq(test_ulp(WEFT_F32, 0x1p128L, inf), 0);
    cr_assert_eq(test_ulp(WEFT_F32, 0x1p127L, inf), 0x1p23);
}

/* All 65536 patterns of each half type, there and back, and as the library reads them. */
Test(support, half_types)
{
    for (int dtype = WEFT_F16; dtype <= WEFT_BF16; dtype++) {
        for (uint32_t u = 0; u < 65536; u++) {
            uint16_t h = (uint16_t)u, back;
            long double x = test_load(&h, dtype);
            test_store(&back, dtype, x);
            cr_assert(back == h || isnan(x), "%s %04x: %Lg, back %04x",
                      weft_dtype_name((weft_dtype)dtype), h, x, back);
            float f = dtype == WEFT_F16 ? wf_f32_of_f16(h) : wf_f32_of_bf16(h);
            cr_assert((isnan(x) && isnan(f)) || (x == f && !signbit(x) == !signbit(f)));
        }
    }
}

Test(support, rounding)
{
    test_rng r = {7};
    for (int i = 0; i < 200000; i++) {
        double x = test_uniform(&r, -1, 1) * exp2(test_uniform(&r, -160, 130));
        float f = (float)x;
        cr_assert_eq(test_round(WEFT_F32, x), f, "%a: %La, not %a", x, test_round(WEFT_F32, x),
                     (double)f);
    }
    cr_assert_eq(test_round(WEFT_F16, 65519.9L), 65504);
    cr_assert(isinf(test_round(WEFT_F16, 65520)));
    cr_assert_eq(test_round(WEFT_F16, 2049), 2048);
    cr_assert_eq(test_round(WEFT_F16, 2051), 2052);
    cr_assert_eq(test_round(WEFT_F16, 0x1p-25L), 0);
    cr_assert(signbit(test_round(WEFT_F16, -0x1p-30L)));
}

Test(support, integers_wrap)
{
    int8_t b;
    uint8_t u;
    test_store(&b, WEFT_I8, 200);
    test_store(&u, WEFT_U8, -1);
    cr_assert_eq(b, -56);
    cr_assert_eq(u, 255);
    cr_assert(ref_wrap(128, (ref_width){8, true}) == -128);
    cr_assert(ref_wrap(-1, (ref_width){8, false}) == 255);
    cr_assert(ref_wrap((wide)1 << 63, (ref_width){64, true}) == INT64_MIN);
}

/* The join that the tests use, written from docs/dtypes.md, is the library's. */
Test(support, promotion)
{
    for (int a = WEFT_BOOL; a < WEFT_DTYPE_COUNT; a++) {
        for (int b = WEFT_BOOL; b < WEFT_DTYPE_COUNT; b++) {
            cr_assert_eq((int)weft_promote((weft_dtype)a, (weft_dtype)b), row_join(a, b), "%s, %s",
                         weft_dtype_name((weft_dtype)a), weft_dtype_name((weft_dtype)b));
        }
    }
}

/* Every elementwise row has what its element types need, and operands with special values. */
Test(support, table_is_full)
{
    int rows = 0;
    FOR_EACH_ELEMENTWISE(op)
    {
        const ref_row *r = &ref_rows[op];
        unsigned types = wf_rows[op].types;
        cr_assert(r->call1 || r->call2 || r->call3, "%s", wf_rows[op].name);
        if (types & WF_DT_F) {
            cr_assert(r->f1 || r->f2 || r->f3, "%s", wf_rows[op].name);
        }
        if (types & WF_DT_I) {
            cr_assert(r->i1 || r->i2 || r->i3, "%s", wf_rows[op].name);
        }
        row_data d = row_data_new(op, types & WF_DT_F ? WEFT_F32 : WEFT_I32);
        cr_assert_gt(d.n, 700);
        row_data_free(&d);
        rows++;
    }
    for (int op = 1; op < WF_OP_COUNT; op++) {
        cr_assert_eq(wf_rows[op].kind == WF_KIND_REDUCE, ref_reductions[op] != NULL, "%s",
                     wf_rows[op].name);
    }
    cr_assert_gt(rows, 85);
}
