/*
 * tests/unit/test_views.c -- ops on views have the bits of the same ops on contiguous copies.
 *
 * Views run along another axis, backwards, over every other element, or begin within longer rows; extents are small, of
 * about one block of a reduction, and of several with something left over. Integer and half types, whose values are
 * converted on the way, and sums that workers share included.
 *
 * ctest: threads optimised
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/effort.h"
#include "tests/support/support.h"
#include "weft/weft.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16, WEFT_I64,
                                   WEFT_I32, WEFT_I16, WEFT_U8,   WEFT_BOOL};
static const int64_t shapes[][3] = {{3, 5, 7},     {1, 63, 65},  {1, 300, 513}, {2, 9000, 3},
                                    {1, 40, 9001}, {20, 30, 40}, {1, 129, 4}};
enum { VIEWS = 7 };

static weft_tensor numbers(weft_shape shape, weft_dtype dtype)
{
    static weft_generator g = {23, 0};
    return weft_cast(weft_mul(weft_randn(.shape = shape, .generator = &g), weft_f(3)), dtype);
}

/* A view of the extents d, of a kind. */
static weft_tensor make(const int64_t d[3], weft_dtype dtype, int kind)
{
    switch (kind) {
    case 0:
        return weft_transpose(numbers(weft_shape(d[0], d[2], d[1]), dtype), 1, 2);
    case 1:
        return weft_permute(numbers(weft_shape(d[2], d[1], d[0]), dtype), weft_axes(2, 1, 0));
    case 2:
        return weft_slice(numbers(weft_shape(d[0], d[1], 2 * d[2]), dtype), 2, 0, WEFT_OMIT, 2);
    case 3:
        return weft_flip(numbers(weft_shape(d[0], d[1], d[2]), dtype), weft_axes(1, 2));
    case 4:
        return weft_narrow(numbers(weft_shape(d[0], d[1], d[2] + 3), dtype), 2, 1, d[2]);
    case 5:
        return weft_transpose(
            weft_slice(numbers(weft_shape(d[0], d[2], 2 * d[1]), dtype), 2, 1, WEFT_OMIT, 2), 1, 2);
    default:
        return weft_flip(weft_transpose(numbers(weft_shape(d[0], d[2], d[1]), dtype), 1, 2),
                         weft_axes(0, 1));
    }
}

typedef weft_tensor (*reduce_fn)(const weft_reduce_args *args);
static const reduce_fn reduce_ops[] = {weft_sum, weft_mean, weft_prod,      weft_max,
                                       weft_min, weft_any,  weft_logsumexp, weft_count_nonzero};

static weft_tensor reduced(weft_tensor x, int op, weft_axes axes)
{
    if (op < COUNT(reduce_ops)) {
        return reduce_ops[op](&(weft_reduce_args){.x = x, .axes = axes});
    }
    return op == COUNT(reduce_ops) ? weft_var(x, .axes = axes) : weft_norm(x, .axes = axes);
}

static weft_tensor applied(weft_tensor x, int op)
{
    switch (op) {
    case 0:
        return weft_where(weft_equal(x, weft_i(0)), x, x);
    case 1:
        return weft_not_equal(x, weft_i(1));
    case 2:
        return weft_clone(x);
    case 3:
        return weft_cast(x, WEFT_F32);
    case 4:
        return weft_cast(x, WEFT_BF16);
    case 5:
        return weft_tril(x, 1);
    case 6:
        return weft_triu(x, -1);
    case 7:
        return weft_concat(WEFT_LIST(x, x), 1);
    case 8:
        return weft_contiguous(weft_transpose(x, 1, 2));
    default:
        return weft_index_select(x, 1, weft_full(weft_shape(3), 2, WEFT_I64));
    }
}
enum { APPLIED = 10 };

Test(views, reductions_and_maps)
{
    static const weft_axes axes[] = {{0},
                                     {.n = 1, .v = {2}},
                                     {.n = 1, .v = {1}},
                                     {.n = 1, .v = {0}},
                                     {.n = 2, .v = {1, 2}},
                                     {.n = 2, .v = {0, 1}},
                                     {.n = 2, .v = {0, 2}}};
    int n = 0;
    for (int c = 0; c < COUNT(shapes) * COUNT(types) * VIEWS; c++) {
        const int i = c % COUNT(shapes), t = c / COUNT(shapes) % COUNT(types),
                  kind = c / COUNT(shapes) / COUNT(types);
        if ((uint64_t)(3 * i + 7 * t + 5 * kind) % 40 >= effort_of(40)) {
            continue;
        }
        char what[128];
        const weft_scope s = weft_scope_begin();
        const weft_tensor x = make(shapes[i], types[t], kind), y = weft_clone(x);
        weft_set_num_threads(1 + c % 3);
        cr_assert(weft_ok(x), "%s", weft_error_text(x));
        cr_assert_eq(weft_stride(y, 2), 1);
        for (int op = 0; op < COUNT(reduce_ops) + 2; op++) {
            const weft_axes a = axes[(op + c) % COUNT(axes)];
            snprintf(what, sizeof what, "reduction %d over %d axes (%d), view %d of shape %d, %s",
                     op, (int)a.n, (int)a.v[0], kind, i, weft_dtype_name(types[t]));
            const weft_tensor want = reduced(y, op, a);
            if (weft_ok(want)) { /* else: not of this type */
                check_bits(what, reduced(x, op, a), want);
                n++;
            }
        }
        for (int op = 0; op < APPLIED; op++) {
            snprintf(what, sizeof what, "op %d, view %d of shape %d, %s", op, kind, i,
                     weft_dtype_name(types[t]));
            check_bits(what, applied(x, op), applied(y, op));
            n++;
        }
        weft_scope_end(s);
    }
    cr_assert_gt(n, 100);
}

/* Blocks that go by rows and a narrower last one follow each other in one call: what these keep of an operand from one to the next
 * (a column, the same in each of a batch) is not where those put their results. */
Test(views, narrow_blocks_behind_rows)
{
    static const weft_dtype halves[] = {WEFT_BF16, WEFT_F16};
    for (int k = 0; k < 2; k++) {
        weft_scope scope = weft_scope_begin();
        weft_tensor x = weft_sin(weft_arange(0, 9 * 218 * 5, 1, WEFT_F32));
        weft_tensor a = weft_cast(weft_reshape(x, weft_shape(9, 218, 5)), halves[k]);
        weft_tensor b = weft_cast(weft_linspace(-1, 1, 5, WEFT_F32), halves[k]);
        b = weft_reshape(b, weft_shape(1, 5, 1));
        a = weft_transpose(a, 1, 2);
        weft_tensor y = weft_cast(weft_maximum(b, a), WEFT_F32);
        weft_tensor want =
            weft_maximum(weft_contiguous(weft_cast(a, WEFT_F32)), weft_cast(b, WEFT_F32));
        cr_assert_eq(weft_item_f64(weft_sum(weft_cast(weft_not_equal(y, want), WEFT_F32))), 0);
        weft_scope_end(scope);
    }
}
