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

/* On a device that is the thread's default. */
static weft_status over_there(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    const weft_device *there = user;
    (void)n_in, (void)n_out;
    weft_tensor x = weft_to(in[0], *there);
    weft_tensor y = weft_mul(weft_tanh(x), weft_rand(weft_shape_of(x)));
    out[0] = weft_to(y, weft_device_of(in[0]));
    return weft_error_status(out[0]);
}

/* What weft_remat makes again is made where it was made the first time: not where the gradient happens to be. */
Test(gpu_train, results_are_made_again_on_the_default_device)
{
    gpu_open(13);
    weft_device cpu = {WEFT_DEVICE_CPU, 0}, cuda = {WEFT_DEVICE_CUDA, 0};
    weft_tensor x = weft_rand(weft_shape(6, 5)), y, g[2];
    cr_assert_eq(weft_requires_grad_(x, true), WEFT_OK);
    cr_assert_eq(weft_set_default_device(cuda), WEFT_OK, "%s", weft_last_error());
    for (int remat = 0; remat < 2; remat++) {
        weft_manual_seed(7);
        cr_assert_eq(remat ? weft_remat(over_there, &cuda, &x, 1, &y, 1)
                           : over_there(&cuda, &x, 1, &y, 1),
                     WEFT_OK, "%s", weft_last_error());
        weft_tensor loss = weft_sum(y);
        cr_assert_eq(weft_set_default_device(cpu), WEFT_OK); /* between the two */
        cr_assert_eq(weft_grad_of(&loss, 1, &x, 1, &g[remat]), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_set_default_device(cuda), WEFT_OK);
    }
    float a[30], b[30];
    cr_assert_eq(weft_to_array(g[0], a, 30, WEFT_F32), WEFT_OK);
    cr_assert_eq(weft_to_array(g[1], b, 30, WEFT_F32), WEFT_OK);
    cr_assert_eq(memcmp(a, b, sizeof a), 0);
    weft_set_default_device(cpu);
    gpu_check_races();
}
