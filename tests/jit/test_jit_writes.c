/*
 * tests/jit/test_jit_writes.c -- what weft/jit.h defines about writes in place, and what stands in memory after a
 * call that failed: at an error of the function, of a kernel, or of any allocation.
 */
#include "tests/jit/corner_support.h"

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

Test(writes, writes_to_captured_tensors_through_aliases)
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

/* The group behind a product writes what all of the product reads: it may not do so before the product is finished. */
FN(updates_what_a_product_reads)
{
    weft_status s = weft_add_(in[1], weft_matmul(in[0], in[1]));
    s = s ? s : weft_sub_(in[2], weft_matmul(weft_transpose(in[2], 0, 1), in[0]));
    out[0] = weft_neg(in[0]);
    return s;
}

Test(writes, operands_of_products_are_replaced_when_these_are_finished)
{
    weft_tensor a[3] = {weft_randn(weft_shape(512, 512), WEFT_F32)}, b[3] = {a[0]}, x, y;
    for (int i = 1; i < 3; i++) {
        a[i] = weft_randn(weft_shape(512, i == 1 ? 64 : 512), WEFT_F32);
        b[i] = weft_clone(a[i]);
    }
    int before = weft_get_num_threads();
    weft_jit *j = weft_jit_trace(updates_what_a_product_reads);
    for (int threads = 1; threads < 4; threads++) {
        weft_set_num_threads(threads);
        OK(updates_what_a_product_reads(NULL, a, 3, &x, 1));
        OK(weft_jit_call(j, b, 3, &y, 1));
        check_bits("B of a product", a[1], b[1]);
        check_bits("A of a product", a[2], b[2]);
    }
    weft_set_num_threads(before);
    weft_jit_free(j);
}

Test(writes, two_imports_of_one_memory)
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

Test(writes, imports_over_ordinary_memory)
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

Test(writes, an_error_inside_leaves_what_came_before)
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

Test(writes, a_kernel_that_fails)
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

static int fails_at; /* the line of the kernel that fails */

/* in: rows, indices, two tensors to change: the first before the kernel that fails, and read by it. */
FN(updates)
{
    weft_status s = weft_add_(in[2], weft_f(1));
    weft_tensor rows = weft_add(in[0], in[2]);
    fails_at = __LINE__ + 1;
    out[0] = weft_embedding(rows, in[1]);
    out[0] = weft_sum(out[0]);
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
Test(writes, a_kernel_that_fails_before_a_write)
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
            if (call >= 4) { /* by what failed and where that was called, not by the last write */
                char line[64];
                snprintf(line, sizeof line, "test_jit_writes.c:%d);", fails_at);
                const char *at =
                    strstr(weft_last_error(), "index_select failed in the call that wrote it (");
                cr_assert(at && strstr(at, line), "%s, not %s", weft_last_error(), line);
            }
        }
        cr_assert_eq(stats_of(j).frozen, frozen ? 3 : 0);
        weft_jit_free(j);
    }
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
Test(writes, every_allocation_may_fail)
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

static weft_tensor kept_loss, chosen;

FN(loss_of_chosen)
{
    weft_tensor t = weft_index_select(weft_cumsum(weft_tanh(in[0]), 0), 0, chosen);
    weft_tensor u = weft_exp(weft_cumsum(weft_sin(t), 0));
    weft_assign(&kept_loss, weft_sum(weft_mul(weft_softmax(u, 0), weft_tanh(u))));
    out[0] = u;
    return weft_error_status(u);
}

/* What a call that fails leaves has no value, often no memory; gradients that need it are errors, too. */
Test(writes, backward_through_a_call_that_failed)
{
    static const int64_t indices[] = {0, 300, 5};
    weft_tensor x = leaf(60, 1), y;
    kept_loss = weft_keep(weft_zeros(weft_shape(1), WEFT_F32));
    chosen = weft_from_data(indices, weft_shape(3), WEFT_I64);
    weft_jit *j = weft_jit_trace(loss_of_chosen);
    cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_EINDEX);
    cr_assert_eq(weft_backward(kept_loss), WEFT_EGRAD);
    cr_assert(
        strstr(weft_last_error(), "in the traced call that made it, index_select failed in the"),
        "%s", weft_last_error());
    cr_assert(!weft_has_grad(x));
    weft_no_grad_begin();
    OK(weft_fill_(kept_loss, 2)); /* as the error of a read says */
    weft_no_grad_end();
    cr_assert_eq(at(weft_detach(kept_loss), 0), 2);
    weft_jit_free(j);
    weft_free(kept_loss);
}

/* A kept tensor is written between two reads, and freed while a view of its memory is kept in its place. */
FN(kept_and_freed)
{
    const weft_tensor x = *(weft_tensor *)self;
    out[0] = weft_add(x, in[0]);
    const weft_status s = weft_add_(x, weft_f(1));
    out[1] = weft_add(x, in[0]);
    const weft_tensor part = weft_slice(x, 0, 2, 6, 1);
    weft_free(x);
    const weft_tensor z = weft_keep(weft_slice(part, 0, 1, 3, 1));
    cr_assert_eq(z.slot, x.slot);
    out[2] = weft_add(z, z);
    weft_free(z);
    return s;
}

Test(writes, what_is_known_of_kept_tensors)
{
    weft_tensor x, want[3], got[3], in = vector(8, 3);
    weft_jit *j = weft_jit_trace(kept_and_freed, &x, .always_record = true, .single_graph = true);
    x = weft_keep(vector(8, 1));
    OK(kept_and_freed(&x, &in, 1, want, 3));
    for (int call = 0; call < 3; call++) {
        x = weft_keep(vector(8, 1));
        OK(weft_jit_call(j, &in, 1, got, 3));
        for (int i = 0; i < 3; i++) {
            check_bits("kept", got[i], want[i]);
        }
    }
    cr_assert_eq(stats_of(j).plans, 1);
    weft_jit_free(j);
}

FN(nothing)
{
    return WEFT_OK;
}

Test(writes, a_call_that_fails_still_writes_its_outputs)
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
