/*
 * tests/gpu/test_gpu_train.c -- training on a GPU, eagerly and traced, against the host. A step, once everything has its
 * memory and its kernels, asks the driver for no memory and never waits for the device.
 *
 * ctest: timeout=600
 */
#include "tests/gpu/gpu.h"
#include "tests/gpu/train_cases.h"
#include "weft/cuda.h"

static step_costs count(void)
{
    wf_cuda_counters c;
    wf_cuda_get_counters(&c);
    return (step_costs){c.driver_allocs, c.waits + c.hidden_waits, gpu_slow_calls()};
}

Test(gpu_train, small_model)
{
    gpu_open(11);
    check_training((training){.costs = gpu_has_pools() ? count : NULL});
    gpu_check_races();
}

/* Is there a pool, as the snapshot shows them (a range of addresses ends with what is not mapped), of which just this much is live? */
static bool has_pool(int64_t live_bytes)
{
    char *text = NULL, word[8];
    size_t size = 0;
    long long bytes;
    int64_t live = 0;
    bool found = false;
    FILE *f = open_memstream(&text, &size);
    cr_assert_eq(weft_cuda_snapshot(WEFT_CUDA(0), f), WEFT_OK);
    fclose(f);
    for (const char *line = text;
         line && sscanf(line, "stream %*d %*s %lld %7s", &bytes, word) == 2;) {
        live += strcmp(word, "live") == 0 ? bytes : 0;
        if (strcmp(word, "hole") == 0) {
            found |= live == live_bytes;
            live = 0;
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    free(text);
    return found;
}

/* Gradients of leaves outlive a step: they have memory apart from what comes and goes in it, so that a repeated step finds
 * the places it had. */
Test(gpu_train, gradients_of_leaves_lie_apart)
{
    enum { SIDE = 600, ROUNDED = 1440256 }; /* SIDE^2 elements of f32, up to 512 bytes */
    gpu_open(17);
    weft_cuda_info info;
    cr_assert_eq(weft_cuda_get_info(WEFT_CUDA(0), &info), WEFT_OK);
    if (!info.expandable || !gpu_has_pools()) {
        cr_skip_test("pools are many segments here");
    }
    weft_scope all = weft_scope_begin();
    weft_set_default_device(WEFT_CUDA(0));
    weft_tensor x = weft_rand(weft_shape(3, SIDE)), w[3], y[3];
    const weft_tensor other =
        weft_rand(weft_shape(SIDE + 1, SIDE)); /* so that weights alone are no pool */
    cr_assert(weft_ok(other));
    for (int i = 0; i < 3; i++) {
        w[i] = weft_rand(weft_shape(SIDE, SIDE));
        cr_assert_eq(weft_requires_grad_(w[i], true), WEFT_OK);
    }
    y[0] = weft_matmul(x, w[0]);
    y[1] = weft_linear(x, w[1], WEFT_NONE); /* a transpose of the leaf */
    y[2] = weft_matmul(weft_cast(x, WEFT_BF16),
                       weft_cast(w[2], WEFT_BF16)); /* its gradient is made by the cast's */
    for (int i = 0; i < 3; i++) {
        cr_assert(!has_pool((i + 1) * (int64_t)ROUNDED));
        cr_assert_eq(weft_backward(weft_sum(y[i])), WEFT_OK, "%s", weft_last_error());
        cr_assert(has_pool((i + 1) * (int64_t)ROUNDED), "the gradient of leaf %d lies elsewhere",
                  i);
    }
    weft_tensor g,
        loss = weft_sum(weft_matmul(x, w[0])); /* one that is handed out is like any other */
    cr_assert_eq(weft_grad_of(&loss, 1, &w[0], 1, &g), WEFT_OK, "%s", weft_last_error());
    cr_assert(has_pool(3 * (int64_t)ROUNDED));
    weft_scope_end(all);
    weft_set_default_device(WEFT_CPU);
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
