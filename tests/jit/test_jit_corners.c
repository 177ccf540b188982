/*
 * tests/jit/test_jit_corners.c -- what weft/jit.h defines about the corners: aliases, errors, breaks, nesting,
 * histories that outlive the call, values that change from call to call.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "tests/support/support.h"

#define OK(call) cr_assert_eq(call, WEFT_OK, "%s", weft_last_error())
#define FN(name)                                                                                   \
    static weft_status name(                                                                       \
        __attribute__((unused)) void *self, __attribute__((unused)) const weft_tensor *in,         \
        __attribute__((unused)) int n_in, __attribute__((unused)) weft_tensor *out,                \
        __attribute__((unused)) int n_out)

static weft_tensor vector(int n, double first)
{
    return weft_arange(first, first + n, 1, WEFT_F32);
}

static weft_tensor leaf(int n, double first)
{
    weft_tensor t = weft_clone(vector(n, first));
    OK(weft_requires_grad_(t, true));
    return t;
}

static float at(weft_tensor t, int i)
{
    float v[64];
    cr_assert_leq(weft_numel(t), 64);
    OK(weft_to_array(t, v, weft_numel(t), WEFT_F32));
    return v[i];
}

static weft_jit_stats stats_of(weft_jit *j)
{
    weft_jit_stats s;
    weft_jit_get_stats(j, &s);
    return s;
}

/* -- inputs, outputs, aliases ----------------------------------------------------------------------------- */

FN(swap_and_views)
{
    out[0] = in[1];
    out[1] = in[0];
    out[2] = weft_add(in[0], in[1]);
    out[3] = weft_slice(out[2], 0, 1, 3, 1);
    out[4] = weft_flip(in[0], weft_axes(0));
    return WEFT_OK;
}

Test(corners, outputs_may_be_inputs_and_share_memory)
{
    weft_jit *j = weft_jit_trace(swap_and_views, .single_graph = true);
    weft_tensor t[5] = {vector(4, 0), vector(4, 10)};
    weft_tensor a = t[0], b = t[1];
    OK(weft_jit_call(j, t, 2, t, 5)); /* one array for both */
    cr_assert(memcmp(&t[0], &b, sizeof b) == 0 && memcmp(&t[1], &a, sizeof a) == 0);
    cr_assert(weft_shares_memory(t[2], t[3]) && weft_shares_memory(t[4], a));
    cr_assert_eq(at(t[3], 0), 12);
    OK(weft_fill_(t[3], 7));
    cr_assert_eq(at(t[2], 1), 7);
    cr_assert_eq(at(t[2], 0), 10);
    OK(weft_fill_(a, 5));
    cr_assert_eq(at(t[4], 0), 5);
    weft_jit_free(j);
}

FN(nothing)
{
    return WEFT_OK;
}
FN(constant)
{
    out[0] = weft_arange(0, 3, 1, WEFT_F32);
    return WEFT_OK;
}

Test(corners, no_inputs_no_outputs_no_function)
{
    weft_jit *j = weft_jit_trace(nothing), *k = weft_jit_trace(constant), *r = weft_jit_trace(NULL);
    weft_tensor x;
    OK(weft_jit_call(j, NULL, 0, NULL, 0));
    OK(weft_jit_call(j, NULL, 0, &x, 1));
    cr_assert(!weft_ok(x)); /* as the function left it */
    OK(weft_jit_call(k, NULL, 0, &x, 1));
    cr_assert_eq(at(x, 2), 2);
    check_status("no function", weft_jit_call(r, NULL, 0, NULL, 0), WEFT_EINVALID, "regions");
    check_status("null", weft_jit_call(NULL, NULL, 0, NULL, 0), WEFT_EINVALID, "NULL");
    check_status("null array", weft_jit_call(j, NULL, 2, NULL, 0), WEFT_EINVALID, "NULL");
    weft_jit_free(j);
    weft_jit_free(k);
    weft_jit_free(r);
    weft_jit_free(NULL);
}

static weft_tensor kept;
FN(keeps)
{
    weft_tensor h = weft_mul(in[0], weft_f(2));
    kept = weft_keep(weft_slice(h, 0, 1, 3, 1));
    out[0] = weft_add(h, weft_f(1));
    return WEFT_OK;
}

Test(corners, kept_tensors_outlive_the_call)
{
    weft_jit *j = weft_jit_trace(keeps, .single_graph = true);
    weft_tensor x = vector(4, 1), y;
    OK(weft_jit_call(j, &x, 1, &y, 1));
    cr_assert_eq(at(kept, 0), 4);
    cr_assert_eq(at(kept, 1), 6);
    weft_free(kept);
    weft_jit_free(j);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* -- writes in place ------------------------------------------------------------------------------------------ */

FN(writes)
{
    weft_tensor top = weft_slice(in[0], 0, 0, 2, 1), back = weft_flip(in[0], weft_axes(0));
    weft_status s = weft_add_(top, in[1]);
    out[0] = weft_mul(back, weft_f(2));
    s = s ? s : weft_mul_(back, weft_f(-1));
    s = s ? s : weft_copy_(weft_slice(in[0], 0, 1, 3, 1), top);
    out[1] = weft_clone(in[0]);
    return s ? s : weft_fill_(weft_select(in[0], 0, 3), 9);
}

Test(corners, writes_to_captured_tensors_through_aliases)
{
    weft_jit *j = weft_jit_trace(writes, .single_graph = true);
    for (int call = 0; call < 3; call++) {
        weft_tensor a[2] = {vector(4, 1), vector(2, 10)}, b[2] = {vector(4, 1), vector(2, 10)};
        weft_tensor x[2], y[2];
        uint32_t before = weft_write_count(a[0]);
        OK(writes(NULL, a, 2, x, 2));
        uint32_t count = weft_write_count(a[0]) - before;
        before = weft_write_count(b[0]);
        OK(weft_jit_call(j, b, 2, y, 2));
        cr_assert_eq(weft_write_count(b[0]) - before, count);
        check_bits("memory", a[0], b[0]);
        check_bits("before", x[0], y[0]);
        check_bits("after", x[1], y[1]);
    }
    cr_assert_eq(stats_of(j).plans, 1);
    weft_jit_free(j);
}

Test(corners, two_imports_of_one_memory)
{
    float memory[2][6] = {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}};
    weft_jit *j = weft_jit_trace(NULL);
    for (int traced = 0; traced < 2; traced++) {
        weft_tensor a = weft_from_blob(.data = memory[traced], .shape = weft_shape(5));
        weft_tensor b = weft_from_blob(.data = memory[traced] + 1, .shape = weft_shape(5));
        cr_assert(!traced || weft_jit_begin(j) == WEFT_OK);
        weft_tensor c = weft_add(a, b);
        OK(weft_mul_(a, weft_f(2)));
        OK(weft_add_(b, a));
        OK(weft_copy_(weft_slice(a, 0, 0, 2, 1), weft_slice(c, 0, 3, 5, 1)));
        OK(weft_add_(a, b));
        cr_assert(!traced || weft_jit_end(j) == WEFT_OK, "%s", weft_last_error());
    }
    cr_assert_eq(memcmp(memory[0], memory[1], sizeof memory[0]), 0);
    cr_assert_gt(stats_of(j).breaks, 0);
    weft_jit_free(j);
}

/* A tensor, and an import that lies over its memory, or over a part. */
typedef struct lies_over {
    weft_tensor own, blob, part, w;
} lies_over;

FN(reads_the_import_first)
{
    const lies_over *s = self;
    weft_tensor y = weft_add(s->blob, s->blob);
    weft_status rc = weft_mul_(s->own, s->own);
    out[0] = weft_add(s->blob, y);
    return rc;
}

FN(writes_the_tensor_first)
{
    const lies_over *s = self;
    weft_status rc = weft_mul_(s->own, weft_f(3));
    out[0] = weft_add(weft_exp(s->blob), s->own);
    return rc;
}

FN(writes_the_import)
{
    const lies_over *s = self;
    weft_tensor y = weft_mul(s->own, weft_f(2));
    weft_status rc = weft_add_(s->part, weft_f(10));
    out[0] = weft_add(s->own, y);
    rc = rc ? rc : weft_mul_(s->own, s->own);
    out[1] = weft_neg(s->part);
    return rc;
}

FN(reads_and_writes_in_one_op)
{
    const lies_over *s = self;
    weft_status rc = weft_mul_(s->own, s->blob);
    rc = rc ? rc : weft_copy_(weft_slice(s->own, 0, 0, 4, 1), s->part);
    rc = rc ? rc : weft_sub_(s->part, weft_slice(s->blob, 0, 0, 4, 1));
    out[0] = weft_add(s->own, s->blob);
    return rc;
}

FN(touches_neighbours)
{
    const lies_over *s = self;
    weft_status rc = weft_add_(weft_slice(s->own, 0, 0, 2, 1), weft_slice(s->blob, 0, 2, 4, 1));
    out[0] = weft_clone(s->part);
    return rc;
}

FN(differentiates_after_a_write)
{
    const lies_over *s = self;
    weft_tensor loss = weft_sum(weft_mul(s->blob, s->w));
    weft_status rc = weft_mul_(s->own, s->own);
    rc = rc ? rc : weft_backward(loss);
    out[0] = weft_clone(weft_grad(s->w));
    return rc;
}

static void imports_over(weft_jit_fn f, bool dlpack)
{
    lies_over s;
    weft_tensor out[2][2] = {{WEFT_NONE, WEFT_NONE}, {WEFT_NONE, WEFT_NONE}}, own[2];
    weft_jit *j = weft_jit_trace(f, &s, .synchronous = true);
    for (int round = 0; round < 3; round++) {
        for (int traced = 0; traced < 2; traced++) {
            s.own = own[traced] = weft_clone(vector(5, 2));
            float *memory = weft_data_mut(s.own);
            s.blob = dlpack ? weft_from_dlpack(weft_to_dlpack(s.own))
                            : weft_from_blob(.data = memory, .shape = weft_shape(5));
            s.part = weft_from_blob(.data = memory + 1, .shape = weft_shape(4));
            s.w = leaf(5, -1);
            OK(traced ? weft_jit_call(j, NULL, 0, out[1], 2) : f(&s, NULL, 0, out[0], 2));
        }
        check_bits("memory", own[0], own[1]);
        for (int k = 0; k < 2; k++) {
            if (weft_ok(out[0][k])) {
                check_bits("output", out[0][k], out[1][k]);
            }
        }
    }
    cr_assert_gt(stats_of(j).breaks, 0);
    weft_jit_free(j);
}

Test(corners, imports_over_ordinary_memory)
{
    const weft_jit_fn f[] = {reads_the_import_first, writes_the_tensor_first,
                             writes_the_import,      reads_and_writes_in_one_op,
                             touches_neighbours,     differentiates_after_a_write};
    for (int i = 0; i < 6; i++) {
        for (int dlpack = 0; dlpack < 2; dlpack++) {
            imports_over(f[i], dlpack);
        }
    }
}

/* -- errors ------------------------------------------------------------------------------------------------------- */

FN(fails_after_a_write)
{
    weft_status s = weft_add_(in[0], weft_f(1));
    out[0] = weft_add(in[0], in[1]); /* extents do not fit */
    return s ? s : weft_error_status(out[0]);
}

Test(corners, an_error_inside_leaves_what_came_before)
{
    weft_jit *j = weft_jit_trace(fails_after_a_write);
    weft_tensor in[2] = {vector(4, 0), vector(3, 0)}, y;
    cr_assert_eq(weft_jit_call(j, in, 2, &y, 1), WEFT_ESHAPE);
    check_error("output", y, WEFT_ESHAPE, "broadcast");
    cr_assert_eq(at(in[0], 3), 4);
    weft_jit_free(j);
}

FN(gathers)
{
    weft_status s = weft_add_(in[0], weft_f(1));
    out[0] = weft_index_select(in[0], 0, in[1]);
    out[1] = weft_mul(in[0], weft_f(2));
    return s;
}

Test(corners, a_kernel_that_fails)
{
    static const int64_t good[2] = {1, 2}, bad[2] = {1, 9};
    weft_jit *j = weft_jit_trace(gathers);
    for (int call = 0; call < 4; call++) {
        weft_tensor x = vector(4, 0), y[2];
        weft_tensor in[2] = {x, weft_from_data(call % 2 ? bad : good, weft_shape(2), WEFT_I64)};
        weft_status s = weft_jit_call(j, in, 2, y, 2);
        if (call % 2 == 0) {
            cr_assert_eq(s, WEFT_OK);
            cr_assert_eq(at(y[0], 1), 3);
            continue;
        }
        check_status("index", s, WEFT_EINDEX, "9");
        check_error("first output", y[0], WEFT_EINDEX, "9");
        check_error("second output", y[1], WEFT_EINDEX, "9");
        float v[4];
        if (weft_to_array(x, v, 4, WEFT_F32) == WEFT_OK) { /* all or nothing */
            cr_assert_eq(v[3], 3);
        } else {
            cr_assert(strstr(weft_last_error(), "no valid value"), "%s", weft_last_error());
            OK(weft_fill_(x, 0));
            cr_assert_eq(at(x, 0), 0);
        }
    }
    cr_assert_eq(stats_of(j).plans, 1);
    weft_jit_free(j);
}

/* in: rows, indices, two tensors to change: the first before the kernel that fails, and read by it. */
FN(updates)
{
    weft_status s = weft_add_(in[2], weft_f(1));
    out[0] = weft_sum(weft_embedding(weft_add(in[0], in[2]), in[1]));
    s = s ? s : weft_add_(in[3], out[0]);
    return s ? s : weft_copy_(in[4], in[3]);
}

static bool readable(weft_tensor x)
{
    float v[4];
    bool ok = weft_to_array(x, v, 4, WEFT_F32) == WEFT_OK;
    cr_assert(ok || strstr(weft_last_error(), "no valid value"), "%s", weft_last_error());
    return ok;
}

/* A failing kernel costs the tensors that were begun; what was to be written later keeps its value, or its want of
 * one. */
Test(corners, a_kernel_that_fails_before_a_write)
{
    static const int64_t good[2] = {1, 2}, bad[2] = {1, 9};
    for (int frozen = 0; frozen < 2; frozen++) {
        weft_jit *j = weft_jit_trace(updates, .frozen = frozen, .verify_every = -1);
        weft_tensor in[5] = {weft_zeros(weft_shape(3, 4), WEFT_F32)}, y;
        for (int k = 2; k < 5; k++) {
            in[k] = weft_zeros(weft_shape(4), WEFT_F32);
        }
        for (int call = 0; call < 6; call++) {
            in[1] = weft_from_data(call < 4 ? good : bad, weft_shape(2), WEFT_I64);
            if (call == 5) { /* the last one has no valid value already, and gets none */
                weft_tensor old = in[2];
                in[2] = weft_zeros(weft_shape(4), WEFT_F32);
                in[4] = readable(old) ? in[4] : old;
            }
            double before = at(in[3], 0);
            weft_status s = weft_jit_call(j, in, 5, &y, 1);
            cr_assert_eq(s, call < 4 ? WEFT_OK : WEFT_EINDEX, "%s", weft_last_error());
            cr_assert(readable(in[3]), "call %d: %s", call, weft_last_error());
            cr_assert_eq(at(in[3], 0), call < 4 ? before + 8 * (call + 1) : 80);
            cr_assert_eq(readable(in[4]), call < 5, "call %d", call);
            cr_assert(call > 4 || at(in[4], 0) == at(in[3], 0));
            cr_assert(call < 4 || !readable(in[2]), "it was begun");
        }
        cr_assert_eq(stats_of(j).frozen, frozen ? 3 : 0);
        weft_jit_free(j);
    }
}

/* -- numbers, control flow, shapes ---------------------------------------------------------------------------- */

typedef struct numbers {
    double lr, low;
    int64_t start, whole;
    int repeats;
    bool plus;
    weft_tensor captured;
} numbers;

FN(numeric)
{
    const numbers *k = self;
    weft_tensor h = weft_mul(in[0], weft_f(k->lr));
    h = weft_add(h, weft_full(weft_shape(4), k->low, WEFT_F32));
    h = weft_sub(h, weft_full(weft_shape(4), 0.25, WEFT_F32));
    h = weft_add(h, weft_narrow(weft_slice(in[1], 0, k->start, k->start + 4, 1), 0, 0, 4));
    h = weft_add(h, weft_slice(in[1], 0, 1, 5, 1));
    h = weft_add(h, weft_clamp(h, weft_f(k->low), weft_f(0.25)));
    out[0] = weft_add(h, k->captured);
    out[1] = weft_add(weft_cast(in[1], WEFT_I64), weft_i(k->whole));
    return WEFT_OK;
}

/* Values that were equal when the plan was built must not be taken for one. */
Test(corners, numbers_are_arguments)
{
    numbers k = {.lr = 0.25, .low = 0.25, .start = 1, .whole = 1};
    weft_jit *j = weft_jit_trace(numeric, &k, .single_graph = true);
    for (int call = 0; call < 1000; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor in[2] = {vector(4, call), vector(9, -3)}, x[2], y[2];
        k.captured = vector(4, 2 * call);
        if (call) {
            k.lr = 1.0 / call;
            k.low = 0.3 * call - 4;
            k.start = call % 5;
            k.whole = (INT64_C(1) << 53) + call;
        }
        OK(numeric(&k, in, 2, x, 2));
        OK(weft_jit_call(j, in, 2, y, 2));
        check_bits("sum", x[0], y[0]);
        check_bits("integers", x[1], y[1]);
        weft_scope_end(sc);
    }
    cr_assert_eq(stats_of(j).plans, 1);
    weft_jit_free(j);
}

FN(host_control)
{
    const numbers *k = self;
    out[0] = in[0];
    for (int i = 0; i < k->repeats; i++) {
        out[0] = k->plus ? weft_add(out[0], in[0]) : weft_mul(out[0], in[0]);
    }
    return WEFT_OK;
}

Test(corners, host_control_flow_is_what_it_is_at_each_call)
{
    numbers k = {0};
    weft_jit *j = weft_jit_trace(host_control, &k, .max_plans = 5);
    for (int call = 0; call < 60; call++) {
        weft_tensor x = vector(3, 1), a, b;
        k.repeats = call % 4;
        k.plus = call % 3 == 0;
        OK(host_control(&k, &x, 1, &a, 1));
        OK(weft_jit_call(j, &x, 1, &b, 1));
        check_bits("loop", a, b);
    }
    weft_jit_stats s = stats_of(j);
    cr_assert_gt(s.evictions, 0); /* 2 kinds times 3 lengths do not fit in 5 */
    cr_assert_eq(s.plans, s.evictions + 5);
    weft_jit_free(j);
}

FN(shapes_from_data)
{
    int64_t n = weft_item_i64(in[1]); /* from outside and not written: no break */
    out[0] = weft_sum(weft_slice(in[0], 0, 0, n, 1));
    return WEFT_OK;
}

Test(corners, shapes_that_depend_on_data)
{
    weft_jit *j = weft_jit_trace(shapes_from_data, .single_graph = true);
    for (int64_t n = 1; n < 9; n++) {
        weft_tensor in[2] = {vector(9, 1), weft_full(weft_shape(), (double)n, WEFT_I64)}, y;
        OK(weft_jit_call(j, in, 2, &y, 1));
        cr_assert_eq(weft_item_f64(y), (double)(n * (n + 1) / 2));
    }
    weft_jit_free(j);
}

/* -- breaks ----------------------------------------------------------------------------------------------------------- */

static char read_line[64]; /* "file:line" of the read below */
FN(reads)
{
    weft_status s = weft_mul_(in[0], weft_f(2));
    weft_tensor h = weft_add(in[0], weft_f(1)), unused = weft_exp(h);
    double v;
    snprintf(read_line, sizeof read_line, "test_jit_corners.c:%d", __LINE__ + 1);
    s = s ? s : weft_item(weft_sum(h), &v);
    out[0] = s ? WEFT_NONE : weft_mul(h, v > 20 ? weft_f(1) : weft_f(-1));
    out[1] = unused;
    return s;
}

Test(corners, reading_breaks_the_graph)
{
    weft_jit *j = weft_jit_trace(reads, .name = "reads");
    for (int call = 0; call < 4; call++) {
        weft_tensor a = vector(3, call), b = vector(3, call), x[2], y[2];
        OK(reads(NULL, &a, 1, x, 2));
        OK(weft_jit_call(j, &b, 1, y, 2));
        check_bits("written", a, b);
        check_bits("after the read", x[0], y[0]);
        check_bits("before the read", x[1], y[1]);
    }
    weft_jit_stats s = stats_of(j);
    cr_assert_eq(s.breaks, 4);
    cr_assert_eq(s.segments, 8);
    cr_assert_eq(s.plans, 2);
    weft_jit_break b[2];
    cr_assert_eq(weft_jit_breaks(j, b, 2), 1);
    cr_assert_eq(b[0].count, 4);
    cr_assert_str_eq(b[0].op, "item");
    cr_assert(strstr(b[0].site, read_line), "%s", b[0].site);
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    OK(weft_jit_explain(j, f));
    fclose(f);
    cr_assert(strstr(text, "reads: 4 calls") && strstr(text, read_line), "%s", text);
    free(text);
    weft_jit_free(j);
}

Test(corners, one_graph_refuses_to_be_read)
{
    weft_jit *j = weft_jit_trace(reads, .name = "reads", .single_graph = true);
    weft_tensor a = vector(3, 0), y[2];
    check_status("read", weft_jit_call(j, &a, 1, y, 2), WEFT_EUNSUPPORTED, read_line);
    cr_assert(strstr(weft_last_error(), "'reads'"), "%s", weft_last_error());
    cr_assert_eq(at(a, 2), 4); /* what came before was done */
    cr_assert_eq(stats_of(j).breaks, 0);
    weft_jit_free(j);
}

/* -- nesting, regions ---------------------------------------------------------------------------------------------- */

FN(inner)
{
    out[0] = weft_exp(in[0]);
    return WEFT_OK;
}
FN(outer)
{
    weft_tensor h;
    weft_status s = weft_jit_call(self, in, 1, &h, 1);
    s = s ? s : weft_jit_begin(self);
    out[0] = weft_add(h, in[0]);
    return s ? s : weft_jit_end(self);
}

Test(corners, calls_inside_calls_are_part_of_them)
{
    weft_jit *i = weft_jit_trace(inner), *o = weft_jit_trace(outer, i, .single_graph = true);
    weft_tensor x = vector(3, 0), y, h;
    OK(weft_jit_call(o, &x, 1, &y, 1));
    OK(inner(NULL, &x, 1, &h, 1));
    check_bits("nested", weft_add(h, x), y);
    cr_assert_eq(stats_of(i).inlined, 2);
    cr_assert_eq(stats_of(i).segments, 0);
    cr_assert_eq(stats_of(o).segments, 1);
    weft_jit_free(i);
    weft_jit_free(o);
}

Test(corners, regions)
{
    weft_jit *j = weft_jit_trace(NULL, .name = "region"), *k = weft_jit_trace(NULL);
    weft_tensor x = vector(5, -2), eager = weft_gelu(weft_mul(x, x)), y, z;
    for (int round = 0; round < 3; round++) {
        OK(weft_jit_begin(j));
        weft_scope sc = weft_scope_begin();
        OK(weft_jit_begin(k)); /* part of j's */
        y = weft_gelu(weft_mul(x, x));
        OK(weft_jit_end(k));
        y = weft_scope_return(sc, y);
        cr_assert_eq(weft_jit_end(k), WEFT_EINVALID);
        z = weft_add(y, weft_f(1));
        OK(weft_jit_end(j));
        check_bits("alive at the end", eager, y);
        check_bits("alive too", weft_add(eager, weft_f(1)), z);
    }
    cr_assert_eq(weft_jit_end(j), WEFT_EINVALID);
    cr_assert_eq(weft_jit_begin(NULL), WEFT_EINVALID);
    cr_assert_eq(stats_of(j).plans, 1);
    cr_assert_eq(stats_of(j).outputs, 2);
    weft_jit_free(j);
    weft_jit_free(k);
}

/* Regions of a call are its own: it ends those that it began, and only those. */
static weft_status inner_end, inner_region;

FN(ends_its_own_call)
{
    weft_jit *j = *(weft_jit **)self;
    weft_tensor y = weft_add(in[0], in[0]);
    inner_end = weft_jit_end(j);
    inner_region = weft_jit_begin(j);
    y = weft_add(y, in[0]);
    inner_region = inner_region ? inner_region : weft_jit_end(j);
    inner_end = inner_end ? weft_jit_end(j) : inner_end;
    weft_jit_begin(j); /* ends with the call */
    out[0] = weft_add(y, weft_f(1));
    return WEFT_OK;
}

Test(corners, a_call_is_not_a_region_that_it_can_end)
{
    weft_jit *j = NULL;
    j = weft_jit_trace(ends_its_own_call, &j);
    weft_tensor x = vector(4, 1), y;
    for (int round = 0; round < 6; round++) {
        bool region = round > 2;
        cr_assert(!region || weft_jit_begin(j) == WEFT_OK);
        OK(weft_jit_call(j, &x, 1, &y, 1));
        cr_assert_eq(inner_end, WEFT_EINVALID);
        cr_assert_eq(inner_region, WEFT_OK);
        cr_assert(!region || weft_jit_end(j) == WEFT_OK);
        cr_assert_eq(weft_jit_end(j), WEFT_EINVALID);
        cr_assert_eq(at(y, 1), 7);
    }
    weft_jit_free(j);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* -- gradients ------------------------------------------------------------------------------------------------------- */

FN(history)
{
    weft_tensor h = weft_sigmoid(weft_mul(in[0], in[1]));
    out[0] = weft_sum(weft_mul(h, weft_exp(in[0])));
    return WEFT_OK;
}

Test(corners, a_loss_with_history_is_differentiated_outside)
{
    weft_jit *j = weft_jit_trace(history);
    for (int call = 0; call < 3; call++) {
        weft_tensor a[2] = {leaf(4, 0.1), leaf(4, -1)}, b[2] = {leaf(4, 0.1), leaf(4, -1)}, x, y;
        OK(history(NULL, a, 2, &x, 1));
        OK(weft_jit_call(j, b, 2, &y, 1));
        cr_assert(weft_requires_grad(y));
        OK(weft_backward(x));
        OK(weft_backward(y));
        check_bits("first", weft_grad(a[0]), weft_grad(b[0]));
        check_bits("second", weft_grad(a[1]), weft_grad(b[1]));
    }
    weft_jit_free(j);
    cr_assert_eq(weft_tape_nodes(), test_baseline_take().nodes);
}

static weft_tensor halve(void *user, weft_tensor g)
{
    (void)user;
    return weft_mul(g, weft_f(0.5));
}

static weft_status cube_forward(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                                weft_tensor *out, int n_out)
{
    (void)user, (void)n_in, (void)n_out;
    out[0] = weft_mul(weft_mul(in[0], in[0]), in[0]);
    return weft_function_save(ctx, in, 1);
}
static weft_status cube_backward(weft_function_ctx *ctx, void *user, const weft_tensor *g,
                                 int n_out, weft_tensor *grad, const bool *needs, int n_in)
{
    (void)user, (void)n_out, (void)needs, (void)n_in;
    weft_tensor x = weft_function_saved(ctx, 0);
    grad[0] = weft_mul(g[0], weft_mul(weft_f(3), weft_mul(x, x)));
    return WEFT_OK;
}

/* Hooks, custom functions, accumulation into an old gradient, second derivatives, no_grad, writes in place to
 * values with history. */
FN(gradients)
{
    static const weft_function cube = {"cube", cube_forward, cube_backward, NULL};
    weft_tensor h, g = WEFT_NONE, gg = WEFT_NONE, w = weft_clone(in[0]);
    weft_status s = weft_apply(&cube, NULL, in, 1, &h, 1);
    weft_register_hook(h, halve, NULL, NULL);
    s = s ? s
          : weft_add_(weft_slice(w, 0, 0, 2, 1),
                      weft_mul(weft_slice(in[0], 0, 1, 3, 1), h.slot ? weft_f(2) : weft_f(0)));
    weft_tensor y = weft_sum(weft_add(weft_mul(h, weft_sin(in[0])), weft_mul(w, w)));
    s = s ? s
          : weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = in, .n_inputs = 1, .grads = &g,
                         .create_graph = true);
    weft_tensor z = weft_sum(weft_mul(g, g));
    s = s ? s
          : weft_grad_of(.outputs = &z, .n_outputs = 1, .inputs = in, .n_inputs = 1, .grads = &gg,
                         .retain_graph = true);
    s = s ? s : weft_backward(y);
    weft_no_grad_begin();
    out[0] = weft_add(gg, weft_f(1));
    weft_no_grad_end();
    out[1] = g;
    out[2] = weft_grad(in[0]);
    return s;
}

Test(corners, everything_about_gradients_inside)
{
    weft_jit *j = weft_jit_trace(gradients, .single_graph = true);
    weft_tensor a = weft_keep(leaf(4, 0.3)), b = weft_keep(leaf(4, 0.3));
    for (int call = 0; call < 4; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x[3], y[3];
        OK(gradients(NULL, &a, 1, x, 3));
        OK(weft_jit_call(j, &b, 1, y, 3));
        check_bits("second", x[0], y[0]);
        check_bits("first", x[1], y[1]);
        check_bits("accumulated", x[2], y[2]);
        cr_assert_eq(weft_requires_grad(x[1]), weft_requires_grad(y[1]));
        weft_scope_end(sc);
    }
    weft_jit_free(j);
    weft_free(a);
    weft_free(b);
    cr_assert_eq(weft_leak_report(NULL), 0);
    cr_assert_eq(weft_tape_nodes(), 0);
}

FN(stale)
{
    weft_tensor h = weft_exp(in[0]), y = weft_sum(weft_exp(h));
    weft_no_grad_begin();
    weft_status s = weft_add_(h, weft_f(1));
    weft_no_grad_end();
    return s ? s : weft_backward(y);
}

Test(corners, versions_are_checked_inside)
{
    weft_jit *j = weft_jit_trace(stale);
    weft_tensor x = leaf(3, 0);
    check_status("eager", stale(NULL, &x, 1, NULL, 0), WEFT_EGRAD, "version");
    check_status("traced", weft_jit_call(j, &x, 1, NULL, 0), WEFT_EGRAD, "version");
    weft_jit_free(j);
}

/* -- memory that runs out ------------------------------------------------------------------------------------ */

FN(trains)
{
    weft_tensor h = weft_sigmoid(weft_mul(in[0], in[1]));
    weft_tensor loss = weft_sum(weft_mul(h, weft_slice(h, 0, 1, 2, 1)));
    weft_status s = weft_set_grad(in[0], WEFT_NONE);
    s = s ? s : weft_backward(loss);
    weft_no_grad_begin();
    s = s ? s : weft_add_(in[0], weft_mul(weft_grad(in[0]), weft_f(-0.1)));
    weft_no_grad_end();
    out[0] = weft_detach(loss);
    return s;
}

/* Wherever an allocation fails: an error or the right result, nothing leaks, the next call is right. */
Test(corners, every_allocation_may_fail)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        weft_jit *j = weft_jit_trace(trains, .frozen = frozen);
        int failed = 0, worked = 0;
        for (int n = 1; n < 400 && worked < 20; n++) {
            weft_scope sc = weft_scope_begin();
            weft_tensor a[2] = {leaf(4, 0.5), vector(4, -1)}, b[2] = {leaf(4, 0.5), vector(4, -1)};
            weft_tensor x, y;
            wf_alloc_fail_after(n, 0);
            weft_status s = weft_jit_call(j, b, 2, &y, 1);
            wf_alloc_fail_after(0, 0);
            failed += s != WEFT_OK;
            worked = s == WEFT_OK ? worked + 1 : 0; /* in a row: some are done without */
            if (s != WEFT_OK) {
                cr_assert_eq(s, WEFT_ENOMEM, "%d: %s", n, weft_last_error());
                b[0] = leaf(4, 0.5);
                OK(weft_jit_call(j, b, 2, &y, 1));
            }
            OK(trains(NULL, a, 2, &x, 1));
            check_bits("loss", x, y);
            check_bits("parameter", a[0], b[0]);
            weft_scope_end(sc);
        }
        cr_assert_gt(failed, 10);
        cr_assert_eq(worked, 20);
        weft_jit_free(j);
        cr_assert_eq(weft_tape_nodes(), 0);
        cr_assert_eq(weft_leak_report(NULL), 0);
    }
}

Test(corners, a_call_that_fails_still_writes_its_outputs)
{
    weft_jit *j = weft_jit_trace(nothing);
    int failed = 0;
    for (int n = 1; n < 12; n++) {
        weft_tensor y[20];
        memset(y, 0x55, sizeof y);
        wf_alloc_fail_after(n, 0);
        weft_status s = weft_jit_call(j, NULL, 0, y, 20);
        wf_alloc_fail_after(0, 0);
        failed += s == WEFT_ENOMEM;
        for (int i = 0; i < 20; i++) {
            cr_assert(y[i].slot == 0 && !weft_ok(y[i]), "%d: output %d", n, i);
        }
    }
    cr_assert_gt(failed, 1);
    weft_jit_free(j);
}

/* -- size --------------------------------------------------------------------------------------------------------- */

FN(unrolled)
{
    int n = *(int *)self;
    weft_scope sc = weft_scope_begin();
    weft_tensor h = in[0];
    for (int i = 0; i < n; i++) {
        weft_tensor next = i % 3 ? weft_mul(h, weft_f(1.0001)) : weft_sin(h);
        if (i) {
            weft_free(h);
        }
        h = next;
    }
    out[0] = weft_scope_return(sc, h);
    return WEFT_OK;
}

Test(corners, a_graph_of_a_hundred_thousand_ops)
{
    for (int n = 10; n <= 100000; n *= 100) {
        weft_jit *j = weft_jit_trace(unrolled, &n);
        weft_tensor x = vector(5, 0), a, b;
        OK(unrolled(&n, &x, 1, &a, 1));
        for (int call = 0; call < 2; call++) {
            OK(weft_jit_call(j, &x, 1, &b, 1));
            check_bits("unrolled", a, b);
        }
        cr_assert_eq(stats_of(j).hits, 1);
        cr_assert_geq(stats_of(j).ops, n);
        weft_jit_free(j);
    }
}
