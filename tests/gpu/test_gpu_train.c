/*
 * tests/gpu/test_gpu_train.c -- training on a GPU, eagerly and traced, against the host. A step, once everything has its
 * memory and its kernels, asks the driver for no memory and never waits for the device.
 *
 * ctest: timeout=600
 */
#include "tests/gpu/gpu.h"
#include "tests/gpu/train_cases.h"

static step_costs count(void)
{
    wf_cuda_counters c;
    wf_cuda_get_counters(&c);
    return (step_costs){c.driver_allocs, c.waits + c.hidden_waits};
}

Test(gpu_train, small_model)
{
    gpu_open(11);
    check_training((training){.costs = count});
    gpu_check_races();
}
