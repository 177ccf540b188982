/*
 * tests/unit/test_awake.c -- work of a few microseconds that is shared with workers which are awake has the bits of one
 * thread; few rows that are worth a thread each get one each.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <string.h>

#include "eager/pool.h"
#include "weft/weft.h"

enum { ROWS = 61, COLS = 1021, TRIES = 200 };

static weft_tensor x, y, half, long_row, some,
    over; /* some: rows worth a task and a bit; over: sums worth that */

typedef weft_tensor (*case_fn)(void);

static weft_tensor do_add(void)
{
    return weft_add(x, y);
}
static weft_tensor do_add_number(void)
{
    return weft_add(x, weft_f(0.3));
}
static weft_tensor do_exp(void)
{
    return weft_exp(x);
}
static weft_tensor do_less(void)
{
    return weft_less(x, y);
}
static weft_tensor do_where(void)
{
    return weft_where(weft_less(x, y), x, y);
}
static weft_tensor do_narrow(void)
{
    return weft_cast(x, WEFT_BF16);
}
static weft_tensor do_widen(void)
{
    return weft_cast(half, WEFT_F32);
}
static weft_tensor do_copy(void)
{
    return weft_contiguous(weft_narrow(x, 1, 3, COLS - 8));
}
static weft_tensor do_full(void)
{
    return weft_full(weft_shape(ROWS, COLS), 2.5, WEFT_F32);
}
static weft_tensor do_sum(void)
{
    return weft_sum(x);
}
static weft_tensor do_sum_inner(void)
{
    return weft_sum(x, .axes = weft_axes(1));
}
static weft_tensor do_sum_outer(void)
{
    return weft_sum(x, .axes = weft_axes(0));
}
static weft_tensor do_sum_half(void)
{
    return weft_sum(half, .axes = weft_axes(1));
}
static weft_tensor do_sum_half_outer(void)
{
    return weft_sum(half, .axes = weft_axes(0));
}
static weft_tensor do_sum_long(void)
{
    return weft_sum(long_row, .axes = weft_axes(1));
}
static weft_tensor do_max(void)
{
    return weft_max(long_row, .axes = weft_axes(1));
}
static weft_tensor do_prod(void)
{
    return weft_prod(x, .axes = weft_axes(1));
}
static weft_tensor do_sum_over(void)
{
    return weft_sum(over, .axes = weft_axes(1));
}
static weft_tensor do_max_over(void)
{
    return weft_max(over, .axes = weft_axes(1));
}
static weft_tensor do_argmax_over(void)
{
    return weft_argmax(over, .axes = weft_axes(1));
}
static weft_tensor do_short_over(void)
{
    return weft_sum(weft_reshape(weft_narrow(over, 1, 0, 1020), weft_shape(66 * 340, 3)),
                    .axes = weft_axes(1));
}
static weft_tensor do_softmax(void)
{
    return weft_softmax(some, -1);
}
static weft_tensor do_softmax_short(void)
{
    return weft_softmax(weft_reshape(some, weft_shape(COLS, 40)), -1);
}
static weft_tensor do_layer_norm(void)
{
    return weft_layer_norm(some);
}
static weft_tensor do_rms_norm(void)
{
    return weft_rms_norm(some);
}
static weft_tensor do_layer_norm_half(void)
{
    return weft_layer_norm(half);
}
static weft_tensor do_cumsum(void)
{
    return weft_cumsum(some, 1);
}
static weft_tensor do_cumsum_outer(void)
{
    return weft_cumsum(some, 0);
}
static weft_tensor do_cumsum_short(void)
{
    return weft_cumsum(weft_reshape(some, weft_shape(4 * COLS, 10)), 1);
}

static const case_fn cases[] = {
    do_add,        do_add_number,   do_exp,           do_less,           do_where,
    do_narrow,     do_widen,        do_copy,          do_full,           do_sum,
    do_sum_inner,  do_sum_outer,    do_sum_half,      do_sum_half_outer, do_sum_long,
    do_max,        do_prod,         do_sum_over,      do_max_over,       do_argmax_over,
    do_short_over, do_softmax,      do_softmax_short, do_layer_norm,     do_layer_norm_half,
    do_cumsum,     do_cumsum_outer, do_cumsum_short,
};

static void nothing(void *arg, int64_t begin, int64_t end)
{
    (void)arg, (void)begin, (void)end;
}

Test(awake, bits, .timeout = 120)
{
    int shared = 0;
    weft_manual_seed(3);
    x = weft_keep(weft_randn(weft_shape(ROWS, COLS), WEFT_F32));
    y = weft_keep(weft_randn(weft_shape(ROWS, COLS), WEFT_F32));
    half = weft_keep(weft_cast(x, WEFT_BF16));
    long_row = weft_keep(weft_randn(weft_shape(3, 20011), WEFT_F32));
    some = weft_keep(weft_randn(weft_shape(40, COLS), WEFT_F32));
    over = weft_keep(weft_randn(weft_shape(66, COLS), WEFT_F32));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        weft_set_num_threads(1);
        const weft_tensor want = weft_keep(cases[k]());
        cr_assert(weft_ok(want), "case %zu: %s", k, weft_last_error());
        for (int i = 0; i < TRIES; i++) {
            weft_set_num_threads(2 + i % 3);
            wf_parallel_for(8, 1, nothing, NULL);
            shared += wf_pool_awake() > 1;
            const weft_tensor got = cases[k]();
            cr_assert_eq(memcmp(weft_data(got), weft_data(want), (size_t)weft_nbytes(want)), 0,
                         "case %zu", k);
            weft_free(got);
        }
        weft_free(want);
    }
    cr_assert_gt(shared, 0);
    weft_free(x);
    weft_free(y);
    weft_free(half);
    weft_free(long_row);
    weft_free(some);
    weft_free(over);
}

/* Workers are started by the first work that is worth waking them for: two rows are, whatever goes four at a time. */
Test(awake, few_long_rows, .timeout = 120)
{
    static const case_fn some_cases[] = {do_layer_norm, do_rms_norm, do_softmax, do_sum_over};
    static const int64_t rows[] = {2, 4};
    weft_manual_seed(3);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        some = over = weft_keep(weft_randn(weft_shape(rows[k], 1 << 17), WEFT_F32));
        for (size_t c = 0; c < sizeof some_cases / sizeof *some_cases; c++) {
            wf_pool_shutdown();
            weft_set_num_threads(2);
            weft_free(some_cases[c]());
            cr_assert_eq(wf_pool_workers(), 1, "case %zu of %lld rows", c, (long long)rows[k]);
        }
        weft_free(some);
    }
}
