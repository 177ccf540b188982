/*
 * tests/gpu/test_gpu_train.c -- training on a GPU, eagerly and traced, against the host.
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

Test(gpu_train, eager)
{
    gpu_open(11);
    check_training(false, true, count, false);
    gpu_check_races();
}

Test(gpu_train, traced)
{
    gpu_open(12);
    check_training(true, false, count, false);
    gpu_check_races();
}
