/*
 * tests/jit/test_cuda_ops.c -- every elementwise row on the device, generated from the op table: the host's bits for every
 * element type and layout of operands.
 *
 * Each combination is a kernel of its own, so an ordinary run takes one in SHARE, by number; WEFT_TEST_EFFORT=1600 takes
 * all (script/gpu-check). Which types, layouts and rows are left out changes from row to row, and with WEFT_TEST_TURN
 * (script/test: of each commit), so that SHARE turns see them all.
 *
 * ctest: timeout=900
 */
#include <stdio.h>

#include "tests/jit/cuda_support.h"
#include "tests/support/effort.h"
#include "tests/support/rows.h"

enum { SHARE = 16, MOST = 3000 };
typedef enum layout { PLAIN, TURNED, STEPPED, SINGLE, NLAYOUT } layout;

static weft_tensor in_layout(weft_tensor flat, int k, layout l)
{
    const int64_t rows = weft_dim(flat, 0) / 24;
    weft_tensor x = weft_reshape(weft_slice(flat, 0, 0, rows * 24, 1), weft_shape(rows, 24));
    switch (l) {
    case PLAIN:
        return flat;
    case TURNED: /* operands lie across each other */
        return k == 0 ? weft_transpose(x, 0, 1)
                      : weft_reshape(weft_slice(flat, 0, 0, rows * 24, 1), weft_shape(24, rows));
    case STEPPED: /* steps, from the end, a row for all */
        return k == 0   ? weft_slice(x, 1, 0, 24, 2)
               : k == 1 ? weft_slice(weft_select(x, 0, 1), 0, 1, 24, 2)
                        : weft_flip(weft_slice(x, 1, 0, 12, 1), weft_axes(1));
    case SINGLE: /* one element with all others */
        return k == 1 ? weft_reshape(weft_slice(flat, 0, 3, 4, 1), weft_shape(1)) : flat;
    case NLAYOUT:
        break;
    }
    return WEFT_NONE;
}

/* The same element, or a NaN for a NaN: which one is left open. */
static bool same(int dtype, const char *a, const char *b)
{
    const size_t size = weft_dtype_size((weft_dtype)dtype);
    if (memcmp(a, b, size) == 0)
        return true;
    const real x = test_load(a, dtype), y = test_load(b, dtype);
    return test_is_float(dtype) && x != x && y != y;
}

static void check(wf_op op, int dtype, layout l)
{
    char what[120];
    weft_scope sc = weft_scope_begin();
    row_data d = row_data_new(op, dtype);
    weft_tensor host[3], device[3];
    snprintf(what, sizeof what, "%s of %s, layout %d", wf_rows[op].name,
             weft_dtype_name((weft_dtype)dtype), (int)l);
    const int64_t n = d.n < MOST ? d.n : MOST;
    for (int k = 0; k < ref_rows[op].nsrc; k++) {
        const size_t size = weft_dtype_size((weft_dtype)d.dtype[k]);
        weft_tensor t = weft_from_data(d.x[k] + (size_t)(d.n - n) * size, weft_shape(n),
                                       (weft_dtype)d.dtype[k]);
        host[k] = in_layout(t, k, l);
        device[k] = in_layout(weft_to(t, WEFT_CUDA(0)), k, l);
        cr_assert(weft_ok(host[k]) && weft_ok(device[k]), "%s: %s", what, weft_last_error());
    }
    weft_tensor want = row_call(op, host), got = row_call(op, device);
    cr_assert(weft_ok(want) && weft_ok(got), "%s: %s", what, weft_last_error());
    cr_assert_eq(weft_device_of(got).kind, WEFT_DEVICE_CUDA);
    cr_assert_eq(weft_dtype_of(got), weft_dtype_of(want));
    want = weft_contiguous(want);
    got = weft_contiguous(weft_to(got, WEFT_CPU));
    const int result = (int)weft_dtype_of(want);
    const size_t size = weft_dtype_size((weft_dtype)result);
    const char *a = weft_data(want), *b = weft_data(got);
    cr_assert_eq(weft_numel(want), weft_numel(got));
    for (int64_t i = 0; i < weft_numel(want); i++)
        cr_assert(same(result, a + (size_t)i * size, b + (size_t)i * size),
                  "%s: element %lld is %Lg, on the host %Lg", what, (long long)i,
                  (long double)test_load(b + (size_t)i * size, result),
                  (long double)test_load(a + (size_t)i * size, result));
    row_data_free(&d);
    weft_scope_end(sc);
}

static void check_part(int part)
{
    NEED_FIBERS();
    const uint64_t effort = effort_option("WEFT_TEST_EFFORT", EFFORT_DEFAULT);
    const uint64_t turn = effort_option("WEFT_TEST_TURN", 0);
    uint64_t number = 0, taken = 0;
    FOR_EACH_ELEMENTWISE(op)
    {
        for (int t = WEFT_DTYPE_DEFAULT + 1; t < WEFT_DTYPE_COUNT; t++) {
            for (int l = 0; l < NLAYOUT; l++) {
                if (!ref_rows[op].nsrc || !row_computes(op, t) || (int)op % 2 != part)
                    continue;
                const uint64_t before = number++ + turn;
                if ((before + 1) * effort / (SHARE * EFFORT_FULL) ==
                    before * effort / (SHARE * EFFORT_FULL))
                    continue;
                taken++;
                check(op, t, (layout)l);
            }
        }
    }
    printf("%llu of %llu combinations\n", (unsigned long long)taken, (unsigned long long)number);
    cr_assert_gt(number, 500);
    cr_assert(taken > 0 || effort < EFFORT_FULL);
}

Test(cuda_ops, elementwise_rows_even)
{
    check_part(0);
}

Test(cuda_ops, elementwise_rows_odd)
{
    check_part(1);
}
