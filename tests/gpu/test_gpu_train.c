/*
 * tests/gpu/test_gpu_train.c -- training on a GPU, eagerly and traced, against the host. A step, once everything has its
 * memory and its kernels, asks the driver for no memory and never waits for the device.
 *
 * ctest: timeout=600
 */
#include "eager/cuda/api.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/train_cases.h"
#include "tests/support/effort.h"
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

#ifndef WEFT_GPU_RUNNER
typedef struct perceptron {
    weft_tensor x, at, w[3], first[3]; /* weights, and what they are before a step */
} perceptron;

static weft_status perceptron_step(void *self, const weft_tensor *in, int n, weft_tensor *out,
                                   int n_out)
{
    perceptron *p = self;
    (void)in, (void)n, (void)n_out;
    weft_tensor y = weft_gelu(weft_layer_norm(weft_linear(p->x, p->w[0], p->w[1])));
    y = weft_dropout(.x = y, .p = 0.25, .training = true);
    out[0] = weft_cross_entropy(weft_matmul(y, p->w[2]), p->at);
    weft_status s = weft_backward(out[0]);
    weft_no_grad_begin();
    for (int i = 0; i < 3 && !s; i++) {
        s = weft_sub_(p->w[i], weft_mul(weft_grad(p->w[i]), weft_f(0.1)));
    }
    weft_no_grad_end();
    return s;
}

/* A step from the same weights and numbers, whose n-th call of the driver fails (0: none): its loss and a sum of new weights, if these can be
 * read. *met: whether there was such a call. */
static weft_status step_again(perceptron *p, weft_jit *j, int64_t n, int result, double got[2],
                              bool *met)
{
    const fake_driver *fake = gpu_fake();
    weft_scope sc = weft_scope_begin();
    weft_tensor y;
    float v[2] = {0};
    weft_no_grad_begin();
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(weft_copy_(p->w[i], p->first[i]), WEFT_OK, "%s", weft_last_error());
        weft_set_grad(p->w[i], WEFT_NONE);
    }
    weft_no_grad_end();
    weft_manual_seed(5);
    fake->fail(NULL, n, result);
    weft_status s = j ? weft_jit_call(j, NULL, 0, &y, 1) : perceptron_step(p, NULL, 0, &y, 1);
    s = s ? s : weft_to_array(y, v, 1, WEFT_F32);
    s = s ? s : weft_to_array(weft_sum(p->w[0]), v + 1, 1, WEFT_F32);
    got[0] = (double)v[0];
    got[1] = (double)v[1];
    *met = fake->failed()[0] != 0;
    fake->fail(NULL, 0, 0);
    weft_scope_end(sc);
    return s;
}

/* Of the calls of the driver that a step makes one fails: it is an error that names device and call, or the step has its bits all the
 * same; the next step has them. */
static void check_failing_calls(bool traced, int result)
{
    perceptron p = {.x = weft_rand(weft_shape(6, 8), WEFT_F32),
                    .at = weft_randint(weft_shape(6), 0, 5, WEFT_I64),
                    .w = {weft_rand(weft_shape(16, 8), WEFT_F32),
                          weft_zeros(weft_shape(16), WEFT_F32),
                          weft_rand(weft_shape(16, 5), WEFT_F32)}};
    for (int i = 0; i < 3; i++) {
        p.first[i] = weft_clone(p.w[i]);
        weft_requires_grad_(p.w[i], true);
    }
    weft_jit *j = traced ? weft_jit_trace(perceptron_step, &p, .synchronous = true) : NULL;
    const fake_driver *fake = gpu_fake();
    double want[2], got[2];
    int64_t calls = 0, met = 0, errors = 0;
    bool there;
    for (int i = 0; i < 3; i++) {
        calls = fake->calls(NULL);
        cr_assert_eq(step_again(&p, j, 0, 0, want, &there), WEFT_OK, "%s", weft_last_error());
        calls = fake->calls(NULL) - calls;
    }
    const int64_t stride = calls / (effort_of(60) < 60 ? 30 : 60) + 1;
    for (int64_t n = 1; n <= calls; n += stride) {
        const weft_status s = step_again(&p, j, n, result, got, &there);
        met += there;
        errors += s != WEFT_OK;
        cr_assert(s ? strstr(weft_last_error(), "cuda:0") != NULL
                    : got[0] == want[0] && got[1] == want[1],
                  "call %d: %s", (int)n, s ? weft_last_error() : "other numbers");
        cr_assert_eq(step_again(&p, j, 0, 0, got, &there), WEFT_OK, "%s", weft_last_error());
        cr_assert(got[0] == want[0] && got[1] == want[1], "after call %d", (int)n);
    }
    cr_assert(met > 5 && errors > 0, "%d failed, %d were seen", (int)met, (int)errors);
    weft_jit_free(j);
}

Test(gpu_train, driver_calls_that_fail)
{
    gpu_open(19);
    weft_set_default_device(WEFT_CUDA(0));
    for (int traced = 0; traced < 2; traced++) {
        weft_scope s = weft_scope_begin();
        check_failing_calls(traced, CU_NOT_SUPPORTED);
        check_failing_calls(traced, CU_OUT_OF_MEMORY);
        weft_scope_end(s);
    }
    weft_set_default_device(WEFT_CPU);
    gpu_check_races();
}
#endif

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
