/*
 * tests/fuzz/test_view_fuzz.c -- rows on random views: the bits of the same row on row-major copies of them, at one thread and two.
 *
 * A view has any order of axes, steps, offsets, reversed and repeated axes; extents lie around the borders at which kernels cut
 * blocks. Its copy is made here, element by element. That rows are right on row-major operands is shown elsewhere.
 * WEFT_FUZZ_VIEWS: how many cases (6000; less by WEFT_TEST_EFFORT); WEFT_FUZZ_SEED: the first one.
 */
/* ctest: timeout=300 optimised */
#include <criterion/criterion.h>

#include "eager/tensor.h"
#include "tests/jit/values.h"
#include "tests/support/effort.h"
#include "tests/support/support.h"
#include "weft/weft.h"

enum { AXES = 3, MOST = 600000, OPERANDS = 3 };

static uint64_t state;
static bool turned,
    stepped; /* may axes of this case's views be in any order, is every other element theirs? */

static int64_t between(int64_t lo, int64_t hi)
{
    state = values_hash(state + 1);
    return lo + (int64_t)(state % (uint64_t)(hi - lo + 1));
}

static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16, WEFT_I64,
                                   WEFT_I32, WEFT_I16, WEFT_I8,  WEFT_U8};

static weft_dtype any_type(void)
{
    return types[between(0, (int)(sizeof types / sizeof *types) - 1)];
}

/* Small ones, and what is one off a power of two or a border of 16 lines. */
static int64_t any_extent(void)
{
    const int64_t near = between(-1, 1);
    switch (between(0, 4)) {
    case 0:
        return between(1, 20);
    case 3:
        return 1024 * between(1, 3) + near;
    case 1:
        return (INT64_C(1) << between(4, 11)) + near;
    case 2:
        return 16 * between(1, 40) + near;
    default:
        return between(21, 700);
    }
}

static weft_shape any_shape(void)
{
    for (;;) {
        weft_shape s = {.n = (int)between(1, AXES)};
        double all = 1;
        for (int i = 0; i < s.n; i++) {
            s.v[i] = s.n == 1 ? between(1, 100000) : any_extent();
            all *= (double)s.v[i];
        }
        if (all <= MOST) {
            return s;
        }
    }
}

typedef struct operand {
    weft_tensor view, copy;
    char text[160];
} operand;

/* n elements that are `by` apart. */
static void copy_row(char *to, const char *from, int64_t n, int64_t by, size_t size)
{
    for (int64_t j = 0; size == 1 && j < n; j++) {
        to[j] = from[j * by];
    }
    for (int64_t j = 0; size == 2 && j < n; j++) {
        memcpy(to + 2 * j, from + 2 * j * by, 2);
    }
    for (int64_t j = 0; size == 4 && j < n; j++) {
        memcpy(to + 4 * j, from + 4 * j * by, 4);
    }
    for (int64_t j = 0; size == 8 && j < n; j++) {
        memcpy(to + 8 * j, from + 8 * j * by, 8);
    }
}

/* repeats: axes may be, of which all elements are one. */
static operand any_view(const weft_shape *s, weft_dtype dtype, bool repeats)
{
    int64_t order[AXES]; /* axes, the innermost first */
    weft_shape strides = {.n = s->n};
    int64_t step = 1, offset = between(0, 9), where = 0;
    for (int i = 0; i < s->n; i++) {
        order[i] = s->n - 1 - i;
    }
    for (int64_t i = s->n - 1; i > 0 && turned && between(0, 2); i--) {
        const int64_t j = between(0, i), was = order[i];
        order[i] = order[j];
        order[j] = was;
    }
    for (int i = 0; i < s->n; i++) {
        const int64_t a = order[i];
        if (repeats && between(0, 4) == 0) {
            strides.v[a] = 0;
            continue;
        }
        const int64_t by = step * (between(0, 3) && !(stepped && i == 0) ? 1 : between(2, 3));
        const bool reversed = between(0, 7) == 0;
        strides.v[a] = reversed ? -by : by;
        offset += reversed ? by * (s->v[a] - 1) : 0;
        where += by * (s->v[a] - 1);
        step = by * s->v[a] + (between(0, 2) ? 0 : between(0, 6));
    }
    const int64_t memory = where + 20;
    operand o;
    float *drawn = malloc((size_t)memory * sizeof *drawn);
    cr_assert(drawn);
    uint64_t bits = 0;
    for (int64_t i = 0; i < memory; i++) { /* four of a hash */
        bits = i % 4 ? bits >> 16 : values_hash(state + (uint64_t)i);
        drawn[i] = (float)(int16_t)(bits & 0xFFFF) / 256;
    }
    weft_tensor base = weft_cast(weft_from_data(drawn, weft_shape(memory), WEFT_F32), dtype);
    free(drawn);
    o.view = weft_as_strided(base, *s, strides, offset);
    const int64_t n = weft_numel(o.view);
    cr_assert(n > 0, "%s", weft_last_error());
    const size_t size = weft_dtype_size(dtype);
    const char *from = weft_data(base);
    char *to = malloc((size_t)n * size);
    cr_assert(from && to);
    const int64_t columns = s->v[s->n - 1], by = strides.v[s->n - 1];
    for (int64_t k = 0; k < n; k += columns) {
        int64_t at = offset, row = k / columns;
        for (int64_t i = s->n - 2; i >= 0; i--) {
            at += row % s->v[i] * strides.v[i];
            row /= s->v[i];
        }
        copy_row(to + (size_t)k * size, from + at * (int64_t)size, columns, by, size);
    }
    o.copy = weft_from_data(to, *s, dtype);
    free(to);
    int at = snprintf(o.text, sizeof o.text, "%s [", weft_dtype_name(dtype));
    for (int i = 0; i < s->n; i++) {
        at += snprintf(o.text + at, sizeof o.text - (size_t)at, "%s%lld by %lld", i ? ", " : "",
                       (long long)s->v[i], (long long)strides.v[i]);
    }
    snprintf(o.text + at, sizeof o.text - (size_t)at, "]");
    return o;
}

static weft_tensor elementwise(int op, const weft_tensor *x, weft_dtype to)
{
    switch (op) {
    case 0:
        return weft_add(x[0], x[1]);
    case 1:
        return weft_mul(x[0], x[1]);
    case 2:
        return weft_maximum(x[0], x[1]);
    case 3:
        return weft_addcmul(x[0], x[1], x[2]);
    case 4:
        return weft_less(x[0], x[1]);
    case 5:
        return weft_where(weft_cast(x[0], WEFT_BOOL), x[1], x[2]);
    case 6:
        return weft_neg(x[0]);
    case 7:
        return weft_cast(x[0], to);
    case 8:
        return weft_contiguous(x[0]);
    default:
        return weft_fma(x[0], x[1], x[2]);
    }
}

static weft_tensor reduction(int op, weft_tensor x, weft_axes axes, int axis)
{
    switch (op) {
    case 0:
        return weft_sum(x, .axes = axes);
    case 1:
        return weft_max(x, .axes = axes);
    case 2:
        return weft_min(x, .axes = axes);
    case 3:
        return weft_argmax(x, .axes = weft_axes(axis));
    case 4:
        return weft_argmin(x, .axes = weft_axes(axis));
    case 5:
        return weft_cumsum(x, axis);
    default:
        return weft_mean(x, .axes = axes);
    }
}

static weft_status in_place(int op, weft_tensor x, const weft_tensor *y)
{
    switch (op) {
    case 0:
        return weft_add_(x, y[1]);
    case 1:
        return weft_mul_(x, y[1]);
    case 2:
        return weft_copy_(x, y[1]);
    default:
        return weft_fma_(x, y[1], y[2]);
    }
}

/* What does not go with some types is an error of both. */
static void compare(const char *what, uint64_t seed, weft_tensor got, weft_tensor want,
                    const operand *o, int n)
{
    char text[4 * sizeof o->text];
    int at = snprintf(text, sizeof text, "%s, seed %llu", what, (unsigned long long)seed);
    for (int i = 0; i < n; i++) {
        at += snprintf(text + at, sizeof text - (size_t)at, ", %s", o[i].text);
    }
    cr_assert_eq(weft_error_status(got), weft_error_status(want), "%s", text);
    if (weft_ok(got)) {
        check_bits(text, got, want);
    }
    weft_clear_error();
}

static void run_case(uint64_t seed)
{
    state = values_hash(seed);
    weft_scope scope = weft_scope_begin();
    weft_manual_seed(seed);
    weft_set_num_threads(seed % 2 ? 1 : 2);
    turned = between(0, 1);
    stepped = between(0, 2) == 0;
    const weft_shape s = any_shape();
    const int kind = (int)between(0, 3);
    const weft_dtype one = any_type();
    operand o[OPERANDS];
    weft_tensor view[OPERANDS], copy[OPERANDS];
    const bool same = between(0, 2) != 0;
    for (int i = 0; i < OPERANDS; i++) {
        o[i] = any_view(&s, same ? one : any_type(), kind < 3 || i > 0);
        view[i] = o[i].view;
        copy[i] = o[i].copy;
    }
    if (kind < 2) {
        const int op = (int)between(0, 9);
        const weft_dtype to = any_type();
        char what[32];
        snprintf(what, sizeof what, "elementwise %d", op);
        compare(what, seed, elementwise(op, view, to), elementwise(op, copy, to), o, OPERANDS);
    } else if (kind == 2) {
        const int op = (int)between(0, 6), axis = (int)between(0, s.n - 1);
        const weft_axes axes =
            s.n > 1 && between(0, 2) == 0 ? weft_axes(axis, (axis + 1) % s.n) : weft_axes(axis);
        char what[48];
        snprintf(what, sizeof what, "reduction %d of axis %d of %d", op, axis, (int)axes.n);
        compare(what, seed, reduction(op, view[0], axes, axis), reduction(op, copy[0], axes, axis),
                o, 1);
    } else {
        const int op = (int)between(0, 3);
        char what[32];
        snprintf(what, sizeof what, "in place %d", op);
        cr_assert_eq(in_place(op, view[0], view), in_place(op, copy[0], copy), "%s, seed %llu",
                     what, (unsigned long long)seed);
        compare(what, seed, weft_contiguous(view[0]), copy[0], o, OPERANDS);
    }
    weft_scope_end(scope);
}

Test(view_fuzz, the_bits_of_copies)
{
    const uint64_t first = effort_option("WEFT_FUZZ_SEED", 1);
    const uint64_t cases = effort_option("WEFT_FUZZ_VIEWS", effort_of(6000));
    for (uint64_t i = 0; i < cases; i++) {
        run_case(first + i);
    }
    weft_set_num_threads(1);
}
