/*
 * tests/unit/test_device_train.c -- training on a device whose memory the host cannot touch.
 */
#include "tests/gpu/train_cases.h"
#include "tests/support/device_double.h"

Test(device_train, eager)
{
    device_double_install();
    check_training(false, false, NULL, false);
}

Test(device_train, eager_with_layers_made_there)
{
    device_double_install();
    check_training(false, true, NULL, false);
}

Test(device_train, traced)
{
    device_double_install();
    check_training(true, false, NULL, false);
}
