/*
 * tests/unit/test_huge.c -- tensors of more than 2^31 elements: sizes, offsets and indices are 64 bits everywhere.
 *
 * One tensor of 2^31 + 17 bytes is shared by views of every kind; a 32-bit count anywhere between a call and its kernel
 * reads or writes near the front instead of the end. Release builds only: it is minutes under a sanitizer.
 *
 * ctest: serial
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "weft/weft.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
#define SLOW 1
#else
#define SLOW 0
#endif

#define N (((int64_t)1 << 31) + 17)
#define ITEM(t) weft_item_i64(t)

/* Bytes that programs can have without swapping, by the kernel's own estimate; 0: unknown. */
static int64_t available(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    long long kib = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return kib * 1024;
}

static bool has_room(void)
{
    if (available() >= (int64_t)8 << 30) {
        return true;
    }
    cr_skip_test("8 GiB of free memory are needed, %lld MiB are there",
                 (long long)(available() >> 20));
    return false;
}

/* Values at both ends and at 2^31, where 32 bits change sign. */
Test(huge, elements_beyond_2_to_31, .disabled = SLOW, .timeout = 120)
{
    if (!has_room()) {
        return;
    }
    const int64_t where[] = {0, ((int64_t)1 << 31) - 1, (int64_t)1 << 31, N - 1};
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_zeros(weft_shape(N), WEFT_U8);
    cr_assert(weft_ok(x), "%s", weft_error_text(x));
    cr_assert_eq(weft_numel(x), N);
    cr_assert_eq(weft_nbytes(x), N);
    cr_assert_eq(ITEM(weft_count_nonzero(x)), 0);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(weft_fill_(weft_narrow(x, 0, where[i], 1), 10 + i), WEFT_OK);
    }
    const uint8_t *data = weft_data(x);
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(data[where[i]], 10 + i, "element %lld", (long long)where[i]);
        cr_expect_eq(ITEM(weft_select(x, 0, where[i] - (i == 3 ? N : 0))), 10 + i);
    }
    cr_expect_eq(ITEM(weft_sum(x)), 10 + 11 + 12 + 13);
    cr_expect_eq(ITEM(weft_argmax(x)), N - 1);
    cr_expect_eq(ITEM(weft_max(x)), 13);
    weft_tensor at = weft_from_data(where, weft_shape(4), WEFT_I64);
    cr_expect_eq(
        ITEM(weft_sum(weft_mul(weft_index_select(x, 0, at), weft_arange(1, 5, 1, WEFT_I64)))),
        10 + 22 + 36 + 52);
    weft_tensor tail =
        weft_cast(weft_slice(x, 0, -18, WEFT_OMIT, 1), WEFT_I32); /* from 2^31 - 1 on */
    cr_expect_eq(ITEM(weft_sum(tail)), 11 + 12 + 13);
    cr_expect_eq(weft_offset(weft_slice(x, 0, -1, WEFT_OMIT, 1)), N - 1);
    cr_expect_eq(ITEM(weft_select(weft_slice(x, 0, WEFT_OMIT, WEFT_OMIT, -1), 0, N - 1)), 10);
    /* an elementwise pass over all of it, in place */
    cr_expect_eq(weft_add_(x, weft_i(1)), WEFT_OK);
    cr_expect_eq(data[N - 1], 14);
    cr_expect_eq(data[N - 2], 1);
    cr_expect_eq(data[1], 1);
    weft_scope_end(sc);
}

/* Extents whose product is beyond 2^31 though no memory is: strides of 0. */
Test(huge, views_of_little_memory, .disabled = SLOW, .timeout = 120)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor one = weft_full(weft_shape(1, 1), 3, WEFT_I32);
    weft_tensor wide = weft_expand(one, weft_shape((int64_t)1 << 33, (int64_t)1 << 20));
    cr_expect_eq(weft_numel(wide), (int64_t)1 << 53);
    cr_expect_eq(weft_nbytes(wide), (int64_t)1 << 55);
    weft_tensor corner = weft_index(wide, weft_span(-2, WEFT_OMIT, 1), weft_span(5, 8, 1));
    cr_expect_eq(ITEM(weft_sum(corner)), 2 * 3 * 3);
    cr_expect_eq(ITEM(weft_select(weft_select(wide, 0, -1), 0, -1)), 3);
    weft_tensor square = weft_expand(weft_reshape(weft_arange(0, 2, 1, WEFT_I64), weft_shape(2, 1)),
                                     weft_shape(2, ((int64_t)1 << 31) + 1));
    cr_expect_eq(weft_stride(square, 1), 0);
    cr_expect_eq(ITEM(weft_select(weft_select(square, 0, 1), 0, (int64_t)1 << 31)), 1);
    /* what cannot be had is refused, not wrapped */
    cr_expect_eq(weft_error_status(weft_clone(wide)), WEFT_ENOMEM);
    cr_expect_eq(
        weft_error_status(weft_expand(one, weft_shape((int64_t)1 << 40, (int64_t)1 << 40))),
        WEFT_ENOMEM);
    cr_expect_eq(
        weft_error_status(weft_zeros(weft_shape((int64_t)1 << 40, (int64_t)1 << 40), WEFT_F32)),
        WEFT_ENOMEM);
    weft_scope_end(sc);
}
