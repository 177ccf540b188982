/*
 * tests/gpu/test_gpu_trace.c -- traces and graphs of a GPU's tensors.
 *
 * ctest: timeout=600
 */
#include "tests/gpu/gpu.h"
#include "tests/gpu/trace_cases.h"

Test(gpu_trace, frozen_calls_guard_the_device)
{
    gpu_open(21);
    check_frozen_guards_the_device();
    gpu_check_races();
}

Test(gpu_trace, breaks)
{
    gpu_open(22);
    check_breaks();
    gpu_check_races();
}

Test(gpu_trace, graphs)
{
    gpu_open(23);
    check_graphs();
    gpu_check_races();
}

Test(gpu_trace, frozen_calls_guard_the_default_device)
{
    gpu_open(25);
    check_frozen_guards_the_default_device();
    gpu_check_races();
}
