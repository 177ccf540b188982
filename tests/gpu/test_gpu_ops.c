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

Test(gpu_ops, gradients)
{
    gpu_open(9);
    NEED_FMA();
    check_both("gradients", gradients);
    gpu_check_races();
}
