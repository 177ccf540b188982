/*
 * tests/unit/test_device_train.c -- training on a device whose memory the host cannot touch.
 */
#include "tests/gpu/train_cases.h"
#include "tests/support/device_double.h"

Test(device_train, moved_there)
{
    device_double_install();
    check_training((training){.exact = true});
}

Test(device_train, made_there)
{
    device_double_install();
    check_training((training){.exact = true, .made = true});
}
