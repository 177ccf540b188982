/*
 * tests/jit/test_jit_slices.c -- frozen calls on parts of larger tensors, another part each time; every call that records
 * says why.
 */
#include "tests/jit/corner_support.h"

enum { ROWS = 40, COLS = 6 };

static weft_tensor table(double from)
{
    const weft_tensor t = weft_arange(from, from + ROWS * COLS, 1, WEFT_F32);
    return weft_mul(weft_reshape(t, weft_shape(ROWS, COLS)), weft_f(0.01));
}

/* Two views of the first argument, a part of it read through a map of its own, and the second argument. */
FN(model)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_exp(weft_mul(in[0], weft_f(0.5)));
    h = weft_add(h, weft_permute(weft_permute(in[0], weft_axes(1, 0)), weft_axes(1, 0)));
    out[0] = weft_sum(weft_mul(h, in[1]), .axes = weft_axes(0));
    out[1] = weft_add(weft_narrow(in[0], 0, 1, 2), weft_f(1));
    return weft_error_status(out[0]);
}

FN(changes)
{
    (void)self, (void)n_in, (void)n_out;
    weft_status s = weft_mul_(in[0], weft_f(3));
    out[0] = weft_add(in[0], in[1]);
    return s ? s : weft_add_(weft_narrow(in[0], 0, 0, 1), weft_f(1));
}

/* Mini-batches of two tables, at any offset, in any order: two recordings, then replays. */
Test(slices, mini_batches_are_replayed)
{
    for (int write = 0; write < 2; write++) {
        weft_tensor x[2] = {weft_keep(table(0)), weft_keep(table(0))}, y = weft_keep(table(7));
        const weft_jit_fn fn = write ? changes : model;
        weft_jit *j = weft_jit_trace(fn, .frozen = true, .verify_every = 6, .synchronous = true);
        for (int i = 0; i < 60; i++) {
            const int at = i * 7 % (ROWS - 4), other = i * 5 % (ROWS - 4);
            weft_scope sc = weft_scope_begin();
            weft_tensor a[2] = {weft_narrow(x[0], 0, at, 4), weft_narrow(y, 0, other, 4)}, want[2];
            weft_tensor b[2] = {weft_narrow(x[1], 0, at, 4), a[1]}, got[2];
            OK(fn(NULL, a, 2, want, 2));
            OK(weft_jit_call(j, b, 2, got, 2));
            check_bits("result", want[0], got[0]);
            if (!write) {
                check_bits("part", want[1], got[1]);
            }
            check_bits("all of the table", x[0], x[1]);
            weft_scope_end(sc);
        }
        cr_assert_geq(stats_of(j).frozen, 38, "%d: %s", write, reasons(j));
        cr_assert_gt(stats_of(j).verified, 5);
        cr_assert_eq(stats_of(j).thawed, 0, "%s", reasons(j));
        weft_jit_free(j);
        weft_free(x[0]);
        weft_free(x[1]);
        weft_free(y);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

FN(pair)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_sub(weft_mul(in[0], weft_f(3)), in[1]);
    return weft_error_status(out[0]);
}

/* Two parts of one storage are replayed where they lie as they did to each other, and recorded elsewhere. */
Test(slices, arguments_of_one_storage_move_together)
{
    weft_tensor x = weft_keep(table(0)), y, want;
    weft_jit *j = weft_jit_trace(pair, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 30; i++) {
        weft_scope sc = weft_scope_begin();
        const int apart = i < 20 ? 1 : 2 + i % 5;
        weft_tensor in[2] = {weft_narrow(x, 0, i, 3), weft_narrow(x, 0, i + apart, 3)};
        OK(pair(NULL, in, 2, &want, 1));
        OK(weft_jit_call(j, in, 2, &y, 1));
        check_bits("difference", want, y);
        weft_scope_end(sc);
        if (i == 19) {
            cr_assert_eq(stats_of(j).frozen, 18, "%s", reasons(j));
        }
    }
    cr_assert_eq(stats_of(j).frozen, 18, "%s", reasons(j));
    cr_assert(has_reason(j, "guard: argument 1 moved otherwise than others on the same memory"),
              "%s", reasons(j));
    cr_assert(has_reason(j, "not frozen: argument 1 moved otherwise than others"), "%s",
              reasons(j));
    weft_jit_free(j);
    weft_free(x);
}

static weft_tensor whole;

/* Reads the row before the argument's first, too. */
FN(around)
{
    (void)self, (void)n_in, (void)n_out;
    const weft_tensor before =
        weft_as_strided(in[0], weft_shape(2, COLS), weft_shape(COLS, 1), -(int64_t)COLS);
    out[0] = weft_add(weft_narrow(in[0], 0, 0, 2), before);
    return weft_error_status(out[0]);
}

FN(captures_all)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_add(weft_sum(whole, .axes = weft_axes(0)), in[0]);
    return weft_error_status(out[0]);
}

/* A replay reads nothing outside the storage: where the function could not, it is called, and fails as it does. */
Test(slices, memory_before_the_argument)
{
    weft_tensor x = weft_keep(table(0)), want, y;
    weft_jit *j = weft_jit_trace(around, .frozen = true, .verify_every = -1);
    for (int i = 5; i >= 0; i--) {
        weft_scope sc = weft_scope_begin();
        weft_tensor part = weft_narrow(x, 0, i, 3);
        const weft_status s = around(NULL, &part, 1, &want, 1);
        cr_assert_eq(s == WEFT_OK, i > 0);
        cr_assert_eq(weft_jit_call(j, &part, 1, &y, 1), s);
        if (i > 0) {
            check_bits("sum", want, y);
        }
        weft_scope_end(sc);
    }
    cr_assert_eq(stats_of(j).frozen, 3, "%s", reasons(j));
    cr_assert(has_reason(j, "guard: argument 0 moved, and memory around it is used"), "%s",
              reasons(j));
    weft_jit_free(j);
    weft_free(x);
}

/* The table that the argument is a part of is captured as well. */
Test(slices, memory_beside_the_argument)
{
    weft_scope all = weft_scope_begin();
    whole = table(3); /* not kept: nothing but its use tells it from a view of the argument */
    weft_jit *j = weft_jit_trace(captures_all, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 12; i++) {
        weft_tensor x = weft_narrow(whole, 0, i % 7, 5), want, y;
        OK(captures_all(NULL, &x, 1, &want, 1));
        OK(weft_jit_call(j, &x, 1, &y, 1));
        check_bits("sum", want, y);
    }
    cr_assert_eq(stats_of(j).frozen, 0);
    cr_assert(has_reason(j, "not frozen: all of the memory that an argument is a part of") ||
                  has_reason(j, "not frozen: it uses f32[40,6] "),
              "%s", reasons(j));
    weft_jit_free(j);
    weft_scope_end(all);
}

FN(by_sign)
{
    (void)n_in, (void)n_out;
    int *calls = self;
    out[0] = ++*calls % 2 ? weft_exp(in[0]) : weft_neg(in[0]);
    return WEFT_OK;
}

FN(leaves_gradient)
{
    const weft_tensor w = in[0], y = weft_sum(weft_mul(w, w));
    (void)self, (void)n_in, (void)n_out;
    weft_status s = weft_set_grad(w, WEFT_NONE);
    out[0] = weft_detach(y);
    return s ? s : weft_backward(y);
}

FN(nothing)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = in[0];
    return WEFT_OK;
}

FN(fails)
{
    (void)self, (void)in, (void)n_in, (void)out, (void)n_out;
    return WEFT_EINVALID;
}

/* Whatever records although it could freeze says why. */
Test(slices, every_recording_has_its_reason)
{
    int calls = 0;
    static const struct {
        weft_jit_fn fn;
        const char *says;
    } cases[] = {{by_sign, "the graph is another than before"},
                 {nothing, "it computes nothing"},
                 {fails, "the function returns an error"}};
    weft_tensor x = weft_ones(weft_shape(4), WEFT_F32), y;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        weft_jit *j = weft_jit_trace(cases[k].fn, &calls, .frozen = true);
        for (int i = 0; i < 6; i++) {
            weft_jit_call(j, &x, 1, &y, 1);
        }
        cr_assert_eq(stats_of(j).frozen, 0);
        cr_assert(has_reason(j, cases[k].says), "%s", reasons(j));
        weft_jit_free(j);
    }
    weft_tensor w = weft_keep(weft_ones(weft_shape(4), WEFT_F32));
    OK(weft_requires_grad_(w, true));
    weft_jit *trains = weft_jit_trace(leaves_gradient, .frozen = true);
    for (int i = 0; i < 4; i++) {
        OK(weft_jit_call(trains, &w, 1, &y, 1));
    }
    cr_assert_eq(stats_of(trains).frozen, 0);
    cr_assert(has_reason(trains, "it leaves a new gradient of argument 0"), "%s", reasons(trains));
    weft_jit_free(trains);
    weft_free(w);
    weft_jit *region = weft_jit_trace(NULL, .frozen = true);
    OK(weft_jit_begin(region));
    y = weft_exp(x);
    weft_jit *inner = weft_jit_trace(nothing, .frozen = true);
    OK(weft_jit_call(inner, &x, 1, &y, 1));
    OK(weft_jit_end(region));
    cr_assert(has_reason(region, "a region is recorded each time"), "%s", reasons(region));
    cr_assert(has_reason(inner, "part of another trace"), "%s", reasons(inner));
    weft_jit_free(inner);
    weft_jit_free(region);
    weft_jit *shapes = weft_jit_trace(pair, .frozen = true);
    for (int i = 2; i < 9; i++) {
        weft_tensor in[2] = {weft_ones(weft_shape(i), WEFT_F32),
                             weft_ones(weft_shape(i), WEFT_F32)};
        OK(weft_jit_call(shapes, in, 2, &y, 1));
    }
    cr_assert(has_reason(shapes, "argument 0 has another type or shape"), "%s", reasons(shapes));
    weft_jit_free(shapes);
}
