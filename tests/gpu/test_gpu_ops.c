/*
 * tests/gpu/test_gpu_ops.c -- the cases of op_cases.h on a GPU.
 *
 * ctest: timeout=600
 */
#include "eager/cpuid.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/op_cases.h"

/* A device adds each term of a product with one rounding; a host without fma rounds twice, and has other bits. */
#define NEED_FMA()                                                                                 \
    do {                                                                                           \
        if (wf_isa() < WF_ISA_AVX2)                                                                \
            cr_skip_test("no fma");                                                                \
    } while (0)

Test(gpu_ops, elementwise)
{
    gpu_open(11);
    check_both("elementwise", elementwise);
    gpu_check_races();
}

Test(gpu_ops, in_place)
{
    gpu_open(8);
    check_both("in_place", in_place);
    gpu_check_races();
}

Test(gpu_ops, reductions)
{
    gpu_open(10);
    check_both("reductions", reductions);
    gpu_check_races();
}

Test(gpu_ops, norms)
{
    gpu_open(3);
    check_both("norms", norms);
    gpu_check_races();
}

Test(gpu_ops, batch_norms)
{
    gpu_open(6);
    check_both("batch norms", batch_norms);
    gpu_check_races();
}

Test(gpu_ops, rows)
{
    gpu_open(4);
    NEED_FMA();
    check_both("rows", rows);
    gpu_check_races();
}

/* Nothing of f, which ran once, asks the driver for memory or waits, and no op of it goes through the host. */
static void check_waits(const char *what, void (*f)(results *r))
{
    wf_cuda_counters before, after;
    int64_t slow = 0;
    where = WEFT_CUDA(0);
    for (int i = 0; i < 3; i++) {
        weft_scope s = weft_scope_begin();
        results r = {.n = 0};
        wf_cuda_get_counters(&before);
        slow = gpu_slow_calls();
        f(&r);
        slow = gpu_slow_calls() - slow;
        wf_cuda_get_counters(&after);
        weft_scope_end(s);
    }
    cr_assert_eq(slow, 0, "%s: %d calls that may wait", what, (int)slow);
    cr_assert_eq(after.waits + after.hidden_waits, before.waits + before.hidden_waits, "%s", what);
    cr_assert_eq(after.driver_allocs, before.driver_allocs, "%s", what);
}

/* The size of what they return is in the elements. */
static void sized_by_elements(results *r)
{
    weft_tensor x = input(1, weft_shape(3, 5)), values;
    give(r, weft_nonzero(weft_relu(x)));
    give(r, weft_masked_select(x, weft_greater(x, weft_f(0))));
    cr_assert_eq(weft_unique(x, &values, NULL, NULL), WEFT_OK, "%s", weft_last_error());
    give(r, values);
}

Test(gpu_ops, only_what_is_sized_by_elements_waits)
{
    gpu_open(12);
    if (!gpu_has_pools())
        cr_skip_test("memory is not pooled");
    check_waits("elementwise", elementwise);
    check_waits("reductions", reductions);
    check_waits("norms", norms);
    check_waits("batch norms", batch_norms);
    check_waits("rows", rows);
    check_both("sized by elements", sized_by_elements);
    wf_cuda_counters before, after;
    results r = {.n = 0};
    wf_cuda_get_counters(&before);
    sized_by_elements(&r);
    wf_cuda_get_counters(&after);
    cr_assert(after.waits - before.waits >= 3, "%d waits", (int)(after.waits - before.waits));
    cr_assert_eq(after.hidden_waits, before.hidden_waits);
    gpu_check_races();
}

/* Reductions of [rows, columns] of x from element `first` on, here and there. */
static void check_long(const char *what, weft_tensor x, int64_t first, int64_t rows)
{
    char name[96];
    const int64_t n = (weft_numel(x) - first) / rows * rows;
    weft_tensor there = weft_to(x, WEFT_CUDA(0)), on[2] = {x, there}, y[2][5];
    for (int i = 0; i < 2; i++) {
        weft_tensor v = weft_reshape(weft_narrow(on[i], 0, first, n), weft_shape(rows, n / rows));
        y[i][0] = weft_sum(v, .axes = weft_axes(1));
        y[i][1] = weft_max(v, .axes = weft_axes(1));
        y[i][2] = weft_var(v, .axes = weft_axes(1));
        y[i][3] = weft_logsumexp(v, .axes = weft_axes(1));
        y[i][4] = weft_softmax(v, -1);
    }
    for (int k = 0; k < 5; k++) {
        snprintf(name, sizeof name, "%s, %d rows from %d on: %d", what, (int)rows, (int)first, k);
        check_equal(name, y[1][k], y[0][k]);
    }
}

/* A few rows of so many elements that threads have 4 or 8 neighbours each: with more processors it takes longer rows. */
Test(gpu_ops, long_reductions)
{
#ifndef WEFT_GPU_RUNNER
    setenv("FAKE_CUDA_PROCESSORS", "4", 1);
#endif
    gpu_open(12);
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16};
    weft_generator g = {12, 0};
    for (int t = 0; t < 2; t++) {
        const int64_t neighbours = t ? 8 : 4, threads = 512 * wf_cuda_get_info(0)->processors;
        const int64_t n = threads * neighbours / 64 * 4096 + 4321;
        for (int64_t first = 0; first < 2; first++) {
            weft_scope s = weft_scope_begin();
            weft_tensor x = weft_randn(weft_shape(n), types[t], .generator = &g);
            check_long(weft_dtype_name(types[t]), x, first, first ? 3 : 1);
            weft_scope_end(s);
        }
    }
    gpu_check_races();
}

Test(gpu_ops, gradients)
{
    gpu_open(9);
    NEED_FMA();
    check_both("gradients", gradients);
    gpu_check_races();
}
