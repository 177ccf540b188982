/*
 * tests/unit/test_device_trace.c -- traces and graphs on a device whose memory the host cannot touch.
 */
#include "tests/gpu/trace_cases.h"
#include "tests/support/device_double.h"

Test(device_trace, frozen_calls_guard_the_device)
{
    device_double_install();
    check_frozen_guards_the_device();
}

Test(device_trace, breaks)
{
    device_double_install();
    check_breaks();
}

Test(device_trace, graphs)
{
    device_double_install();
    check_graphs();
}

Test(device_trace, frozen_calls_guard_the_default_device)
{
    device_double_install();
    check_frozen_guards_the_default_device();
}

Test(device_trace, more_operands_than_a_byte_counts)
{
    device_double_install();
    check_many_operands();
}
