/*
 * tests/unit/test_device_ops.c -- the op table, gradients, layers and optimisers on a device: the host's bits.
 *
 * The device is tests/support/device_double.h, whose memory the host cannot touch; tests/gpu runs the same cases on a GPU.
 */
#include "eager/exec.h"
#include "eager/tensor.h"
#include "jit/device_rows.h"
#include "tests/gpu/op_cases.h"
#include "tests/support/device_double.h"
#include "tests/support/support.h"

Test(device_ops, elementwise)
{
    device_double_install();
    check_both("elementwise", elementwise);
    cr_assert_eq(weft_device_fallbacks(NULL, 0), 0);
}

Test(device_ops, in_place)
{
    device_double_install();
    check_both("in place", in_place);
}

Test(device_ops, reductions_are_programs)
{
    device_double_install();
    check_both("reductions", reductions);
    check_both("norms", norms);
    check_both("batch norms", batch_norms);
    weft_device_fallback f[8];
    int n = weft_device_fallbacks(f, 8);
    cr_assert(n <= 1, "%s", f[0].op); /* flip */
}

Test(device_ops, rows_without_a_kernel_go_through_the_host_and_are_counted)
{
    weft_device_fallback f[16];
    device_double_install();
    check_both("rows", rows);
    int n = weft_device_fallbacks(f, 16), seen = 0;
    for (int i = 0; i < n; i++) {
        seen += strcmp(f[i].op, "sort") == 0 && f[i].count == 1;
    }
    cr_assert_eq(seen, 1);
    cr_assert_gt(n, 4);
}

/* Whichever of the two is on the device; a number may be anywhere. */
Test(device_ops, what_is_searched_is_where_the_values_are)
{
    device_double_install();
    weft_tensor sorted = weft_arange(0, 5, 1, WEFT_I64),
                values = weft_ones(weft_shape(3), WEFT_I64);
    weft_tensor far = weft_to(sorted, WEFT_CUDA(0)), far_values = weft_to(values, WEFT_CUDA(0));
    check_error("searchsorted", weft_searchsorted(far, values, false), WEFT_EINVALID,
                "operand 0 on cuda:0, operand 1 on cpu");
    check_error("searchsorted", weft_searchsorted(sorted, far_values, false), WEFT_EINVALID,
                "operand 0 on cpu, operand 1 on cuda:0");
    cr_assert_eq(weft_item_f64(weft_searchsorted(far, weft_i(2), false)), 2);
    cr_assert_eq(weft_item_f64(weft_sum(weft_searchsorted(far, far_values, true))), 6);
}

/* No slot has such a map, so that nothing but a kernel's caller could hand it in. */
Test(device_ops, a_map_that_overflows_is_refused)
{
    device_double_install();
    const weft_tensor x = weft_to(weft_ones(weft_shape(4), WEFT_F32), WEFT_CUDA(0));
    wf_ctx *c = wf_ctx_get();
    wf_view in, out;
    wf_slot_view(wf_slot_of(c, x), &in);
    out = in;
    in.rank = 2;
    out.rank = 1;
    in.dims[0] = in.dims[1] = 3;
    const int64_t far[][2] = {{INT64_MAX / 2, INT64_MAX / 2}, {INT64_MAX / 3, -(INT64_MAX / 3)}};
    for (int i = 0; i < 2; i++) {
        wf_why why = {0};
        in.strides[0] = far[i][0];
        in.strides[1] = far[i][1];
        out.dims[0] = 3;
        out.strides[0] = 1;
        wf_exec e = {.op = WF_OP_SUM,
                     .nsrc = 1,
                     .ndst = 1,
                     .src = &in,
                     .dst = &out,
                     .attr =
                         &(wf_attr){.n_ints = 1, .ints = (const int64_t[]){1}, .dtype = WEFT_F32},
                     .why = &why};
        cr_assert_eq(wf_device_composite(1, &e), WEFT_ESHAPE, "%s", why.rule);
        cr_assert(strstr(why.rule, "overflows"), "%s", why.rule);
    }
}

Test(device_ops, gradients)
{
    device_double_install();
    check_both("gradients", gradients);
}

Test(device_ops, a_failed_allocation_is_an_error)
{
    device_double_install();
    weft_tensor x = weft_to(weft_ones(weft_shape(5000), WEFT_F32), WEFT_CUDA(0));
    for (int i = 1; i <= 2; i++) {
        device_double_fail_alloc(1);
        check_error("add", weft_add(x, i == 1 ? weft_f(1) : weft_slice(x, 0, 0, 1, 1)), WEFT_ENOMEM,
                    "20000");
    }
    device_double_fail_alloc(1);
    check_error("row", weft_softmax(x, 0), WEFT_ENOMEM, "20000");
    device_double_fail_alloc(1);
    check_error("transfer", weft_to(x, WEFT_CUDA(1)), WEFT_ENOMEM, "20000");
    device_double_counts before = device_double_read();
    weft_scope sc = weft_scope_begin();
    for (int i = 0; i < 10; i++) {
        weft_mul(x, weft_relu(x));
    }
    weft_scope_end(sc);
    device_double_counts after = device_double_read();
    cr_assert_eq(after.allocs - before.allocs, after.frees - before.frees);
    cr_assert_eq(after.downloads, before.downloads);
}
