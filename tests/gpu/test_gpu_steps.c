/*
 * tests/gpu/test_gpu_steps.c -- frozen training steps as one launch: a schedule's learning rate, the optimiser's step and gradients
 * that come and go are those of eager steps, bit for bit.
 *
 * ctest: timeout=600
 */
#include "tests/gpu/gpu.h"

#include <pthread.h>

#include "jit/gpu/impl.h"
#include "tests/gpu/trainer.h"
#include "tests/support/sanitized.h"
#include "weft/cuda.h"

/* Steps: under ASan, where what a kernel does is not watched, few after the ones that are recorded. */
enum { MANY = UNDER_ASAN ? 10 : 14 };

/* The step of trainer.h on the batch that is given, without draws and with the rate of outside. */
static weft_status given_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    trainer *t = self;
    (void)n_in, (void)n_out;
    weft_tensor logits = forward(t, weft_narrow(in[0], 1, 0, TIME));
    out[0] = weft_cross_entropy(logits, weft_narrow(in[0], 1, 1, TIME));
    weft_status s = weft_module_zero_grad(t->m);
    s = s ? s : weft_backward(out[0]);
    s = s ? s : weft_module_clip_grad_norm(t->m, 0.5, NULL);
    out[0] = weft_detach(out[0]);
    return s ? s : weft_optim_step(t->optim);
}

static weft_tensor window(int i)
{
    weft_generator g = {100 + (uint64_t)i, 0};
    weft_set_default_device(WEFT_CUDA(0));
    weft_tensor w = weft_randint(weft_shape(BATCH, TIME + 1), 0, VOCAB, .generator = &g);
    weft_set_default_device(WEFT_CPU);
    return w;
}

static void open_pair(trainer *a, trainer *b, bool sgd)
{
    trainer *both[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        trainer_open(both[k], WEFT_CUDA(0), false, sgd);
        weft_module_train(both[k]->m, false);
    }
}

static void open_settled(uint64_t seed)
{
    setenv("WEFT_JIT", "2", 1); /* kernels are there at their first run */
    gpu_open(seed);
}

static const char *reasons(weft_jit *j)
{
    static char all[2048];
    weft_jit_reason r[8];
    int n = weft_jit_reasons(j, r, 8);
    size_t at = 0;
    all[0] = '\0';
    for (int i = 0; i < n && at < sizeof all - 200; i++) {
        at += (size_t)snprintf(all + at, sizeof all - at, "%s; ", r[i].text);
    }
    return all;
}

static double rate(int i)
{
    return weft_lr_cosine(i, 3, MANY, 1e-2, 1e-3);
}

/* Step i of both. */
static void step_pair(weft_jit *j, trainer *a, trainer *b, int i)
{
    weft_tensor x = window(i), y, z;
    weft_optim_set_lr(a->optim, rate(i));
    weft_optim_set_lr(b->optim, rate(i));
    cr_assert_eq(given_step(a, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_jit_call(j, &x, 1, &z, 1), WEFT_OK, "%s", weft_last_error());
    check_equal("loss", y, z);
    check_trainers("eager and frozen", a, b);
}

static weft_cuda_counters count(void)
{
    weft_cuda_counters c;
    weft_cuda_get_counters(&c);
    return c;
}

/* A step is one launch, asks the driver for no memory and waits for nothing. */
static void check_costs(weft_jit *j, trainer *b)
{
    weft_scope s = weft_scope_begin();
    weft_tensor x = window(1), y;
    weft_cuda_counters before = {0}, after;
    int64_t slow = 0;
    for (int i = 0; i < 3; i++) {
        weft_optim_set_lr(b->optim, 1e-3 * i);
        before = count();
        slow = gpu_slow_calls();
        cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    }
    after = count();
    slow = gpu_slow_calls() - slow;
    cr_assert_eq(slow, 0, "%d calls that may wait", (int)slow);
    cr_assert_eq(after.launches - before.launches, 1, "%d",
                 (int)(after.launches - before.launches));
    cr_assert_eq(after.copies - before.copies, 2, "the batch in, the loss out: %d",
                 (int)(after.copies - before.copies));
    cr_assert_eq(after.driver_allocs, before.driver_allocs);
    cr_assert_eq(after.waits + after.hidden_waits, before.waits + before.hidden_waits);
    weft_scope_end(s);
}

static void check_schedule(bool sgd)
{
    trainer a, b;
    open_pair(&a, &b, sgd);
    weft_jit *j = weft_jit_trace(given_step, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < MANY; i++) {
        weft_scope s = weft_scope_begin();
        step_pair(j, &a, &b, i);
        weft_scope_end(s);
    }
    cr_assert_geq(stats_of(j).captured, MANY - 6, "%d of %d: %s", (int)stats_of(j).captured,
                  (int)stats_of(j).frozen, reasons(j));
    check_costs(j, &b);
    weft_jit_free(j);
    trainer_close(&a);
    trainer_close(&b);
    gpu_check_races();
}

Test(gpu_steps, adamw_with_a_schedule)
{
    open_settled(61);
    check_schedule(false);
}

Test(gpu_steps, sgd_with_a_schedule)
{
    open_settled(62);
    check_schedule(true);
}

static weft_status evaluate(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)n_in, (void)n_out;
    weft_tensor logits = forward(self, weft_narrow(in[0], 1, 0, TIME));
    out[0] = weft_cross_entropy(logits, weft_narrow(in[0], 1, 1, TIME));
    out[1] = weft_softmax(logits, 2);
    out[0] = weft_detach(out[0]);
    out[1] = weft_detach(out[1]);
    return weft_error_status(out[1]);
}

/* Streams in turn, steps of another kind and evaluations in between, losses that are looked at in the end only. */
Test(gpu_steps, between_others_and_on_streams)
{
    open_settled(64);
    weft_scope all = weft_scope_begin();
    trainer a, b;
    open_pair(&a, &b, false);
    weft_stream *side[2] = {weft_stream_new(WEFT_CUDA(0)), weft_stream_new(WEFT_CUDA(0))};
    weft_jit *j = weft_jit_trace(given_step, &b, .frozen = true, .verify_every = -1);
    weft_jit *look = weft_jit_trace(evaluate, &b, .frozen = true, .verify_every = -1);
    weft_tensor y[2 * MANY], z[2 * MANY], e[2 * MANY][2], f[2 * MANY][2];
    for (int i = 0; i < 2 * MANY; i++) {
        weft_tensor x = window(i);
        weft_optim_set_lr(a.optim, rate(i / 2));
        weft_optim_set_lr(b.optim, rate(i / 2));
        cr_assert_eq(given_step(&a, &x, 1, &y[i], 1), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(evaluate(&a, &x, 1, e[i], 2), WEFT_OK, "%s", weft_last_error());
        weft_stream_set(WEFT_CUDA(0), i % 3 ? side[i % 2] : NULL);
        weft_status s = i % 7 == 6 ? given_step(&b, &x, 1, &z[i], 1) /* not traced */
                                   : weft_jit_call(j, &x, 1, &z[i], 1);
        cr_assert_eq(s, WEFT_OK, "%s", weft_last_error());
        weft_stream_set(WEFT_CUDA(0), i % 4 ? side[0] : NULL);
        cr_assert_eq(weft_jit_call(look, &x, 1, f[i], 2), WEFT_OK, "%s", weft_last_error());
        weft_stream_set(WEFT_CUDA(0), NULL);
    }
    for (int i = 0; i < 2 * MANY; i++) {
        check_equal("loss", y[i], z[i]);
        check_equal("evaluation", e[i][0], f[i][0]);
        check_equal("probabilities", e[i][1], f[i][1]);
    }
    check_trainers("eager and frozen", &a, &b);
    cr_assert_geq(stats_of(j).captured, MANY, "%d of %d: %s", (int)stats_of(j).captured,
                  (int)stats_of(j).frozen, reasons(j));
    cr_assert_geq(stats_of(look).captured, MANY, "%s", reasons(look));
    weft_jit_free(j);
    weft_jit_free(look);
    weft_stream_free(side[0]);
    weft_stream_free(side[1]);
    trainer_close(&a);
    trainer_close(&b);
    weft_scope_end(all);
    gpu_check_races();
}

/* Gradients that somebody keeps are not written by later steps, and are read after the trace is gone. */
Test(gpu_steps, gradients_that_are_kept)
{
    open_settled(65);
    trainer a, b;
    open_pair(&a, &b, true);
    weft_jit *j = weft_jit_trace(given_step, &b, .frozen = true, .verify_every = -1);
    weft_tensor kept[2][MANY], views[2][MANY];
    int captured = 0;
    for (int i = 0; i < MANY; i++) {
        weft_scope s = weft_scope_begin();
        step_pair(j, &a, &b, i);
        trainer *both[2] = {&a, &b};
        for (int k = 0; k < 2; k++) {
            weft_tensor g = weft_grad(weft_module_at(both[k]->m, i % 3).tensor);
            weft_tensor h = weft_grad(weft_module_at(both[k]->m, 4).tensor);
            kept[k][i] = i < MANY / 2 ? WEFT_NONE : weft_keep(weft_detach(g));
            views[k][i] =
                i < MANY / 2 ? WEFT_NONE : weft_keep(weft_narrow(weft_detach(h), 0, 1, 2));
        }
        captured = i == MANY / 2 ? (int)stats_of(j).captured : captured;
        weft_scope_end(s);
    }
    cr_assert_gt(captured, 0, "%s", reasons(j));
    cr_assert_gt(stats_of(j).captured, captured + MANY / 2 - 3, "%s", reasons(j));
    weft_jit_free(j);
    for (int i = MANY / 2; i < MANY; i++) {
        check_equal("gradient", kept[0][i], kept[1][i]);
        check_equal("part of a gradient", views[0][i], views[1][i]);
        for (int k = 0; k < 2; k++) {
            weft_free(kept[k][i]);
            weft_free(views[k][i]);
        }
    }
    trainer_close(&a);
    trainer_close(&b);
    gpu_check_races();
}

#ifndef WEFT_GPU_RUNNER
/* Whatever the driver refuses, the step is made, with this call's numbers. */
Test(gpu_steps, numbers_that_cannot_be_changed)
{
    open_settled(66);
    const fake_driver *fake = fake_cuda(FAKE_RANDOM, 66);
    static const char *const entries[] = {"cuGraphExecKernelNodeSetParams_v2",
                                          "cuStreamGetCaptureInfo_v2"};
    for (int e = 0; e < 2; e++) {
        trainer a, b;
        open_pair(&a, &b, false);
        weft_jit *j = weft_jit_trace(given_step, &b, .frozen = true, .verify_every = -1);
        int met = 0;
        const int rounds = !UNDER_ASAN ? MANY : e ? 8 : 12; /* a step takes 1.4 s there */
        for (int i = 0; i < rounds; i++) {
            weft_scope s = weft_scope_begin();
            fake->fail(entries[e], i % 3, 801); /* of several nodes, not always the first */
            step_pair(j, &a, &b, i);
            met += strcmp(fake->failed(), entries[e]) == 0;
            weft_scope_end(s);
        }
        fake->fail(NULL, 0, 0);
        cr_assert(e ? met == 1 : met > 2, "%s: %d", entries[e], met);
        cr_assert(e == 0 || strstr(reasons(j), "not captured: "), "%s", reasons(j));
        cr_assert_eq(stats_of(j).captured > 0, e == 0, "%s: %d", entries[e],
                     (int)stats_of(j).captured);
        weft_jit_free(j);
        trainer_close(&a);
        trainer_close(&b);
    }
    gpu_check_races();
}
#endif

static pthread_mutex_t compiler = PTHREAD_MUTEX_INITIALIZER;

static void wait_for_test(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&compiler);
    pthread_mutex_unlock(&compiler);
}

/* Captured while its kernels were still being made, and again when they have come: numbers go to the calls that are made then. */
Test(gpu_steps, kernels_that_come_later)
{
    setenv("WEFT_CACHE_SIZE", "0", 1); /* none is there from another run */
    setenv("WEFT_JIT", "1", 1);
    gpu_open(68);
    trainer a, b;
    open_pair(&a, &b, false);
    weft_jit *j = weft_jit_trace(given_step, &b, .frozen = true, .verify_every = -1);
    pthread_mutex_lock(&compiler);
    for (int i = wf_gpu_later_threads(); i > 0; i--)
        cr_assert(wf_gpu_later(wait_for_test, NULL));
    for (int i = 0; i < 30 + MANY; i++) {
        weft_scope s = weft_scope_begin();
        if (i == 30) {
            cr_assert(stats_of(j).captured > 0, "%s", reasons(j));
            pthread_mutex_unlock(&compiler);
            wf_gpu_wait_kernels();
        }
        step_pair(j, &a, &b, i);
        weft_scope_end(s);
    }
    cr_assert_geq(stats_of(j).captured, MANY - 3, "%d of %d: %s", (int)stats_of(j).captured,
                  (int)stats_of(j).frozen, reasons(j));
    weft_jit_free(j);
    trainer_close(&a);
    trainer_close(&b);
    gpu_check_races();
}

/* The whole step of trainer.h but for the rate: it draws its batch, and drops out. */
static weft_status drawing_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    trainer *t = self;
    (void)in, (void)n_in, (void)n_out;
    weft_set_default_device(t->device);
    weft_tensor start =
        weft_randint(weft_shape(BATCH, 1), 0, 500 - TIME - 1, .generator = &t->data);
    weft_tensor at = weft_add(start, weft_arange(0, TIME + 1, 1, WEFT_I64));
    weft_tensor w = weft_index_select(t->text, 0, at);
    out[1] = weft_add(weft_randn(weft_shape(5)), weft_rand(weft_shape(3, 1)));
    out[2] = weft_randperm(40);
    weft_tensor weights = weft_rand(weft_shape(3, 9));
    out[2] = weft_concat(WEFT_LIST(out[2], weft_flatten(weft_multinomial(weights, 4), 0, -1),
                                   weft_flatten(weft_multinomial(weights, 7, true), 0, -1)),
                         0);
    weft_set_default_device(WEFT_CPU);
    return given_step(self, &w, 1, out, 1);
}

/* Draws of all kinds go on where the generators are, which others use in between and set. */
Test(gpu_steps, draws_random_numbers)
{
    const int rounds = UNDER_ASAN ? 9 : 2 * MANY; /* a sort of the device, watched, takes 2 s */
    open_settled(67);
    trainer a, b;
    trainer_open(&a, WEFT_CUDA(0), false, false);
    trainer_open(&b, WEFT_CUDA(0), false, false);
    weft_jit *j = weft_jit_trace(drawing_step, &b, .frozen = true, .verify_every = -1);
    weft_generator own[2] = {{1, 0}, {1, 0}};
    for (int i = 0; i < rounds; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor y[3], z[3];
        weft_optim_set_lr(a.optim, rate(i / 2));
        weft_optim_set_lr(b.optim, rate(i / 2));
        own[0].seed = own[1].seed = own[0].seed + (i % 5 == 4);
        *weft_default_generator() = own[0];
        cr_assert_eq(drawing_step(&a, NULL, 0, y, 3), WEFT_OK, "%s", weft_last_error());
        weft_rand(weft_shape(i % 3));
        own[0] = *weft_default_generator();
        *weft_default_generator() = own[1];
        cr_assert_eq(weft_jit_call(j, NULL, 0, z, 3), WEFT_OK, "%s", weft_last_error());
        weft_rand(weft_shape(i % 3));
        own[1] = *weft_default_generator();
        for (int k = 0; k < 3; k++) {
            check_equal("result", y[k], z[k]);
        }
        cr_assert_eq(own[0].offset, own[1].offset);
        check_trainers("eager and frozen", &a, &b);
        weft_scope_end(s);
    }
    cr_assert_geq(stats_of(j).captured, rounds / 2 - 2, "%d of %d: %s", (int)stats_of(j).captured,
                  (int)stats_of(j).frozen, reasons(j));
    weft_jit_free(j);
    trainer_close(&a);
    trainer_close(&b);
    gpu_check_races();
}

/* A step that sets its rate is recorded at each call, and says why. */
Test(gpu_steps, what_is_refused)
{
    open_settled(63);
    trainer a, b;
    trainer_open(&a, WEFT_CUDA(0), false, false);
    trainer_open(&b, WEFT_CUDA(0), false, false);
    weft_jit *j = weft_jit_trace(train_step, &b, .frozen = true);
    for (int i = 0; i < STEPS; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor y, z;
        weft_manual_seed((uint64_t)i);
        cr_assert_eq(train_step(&a, NULL, 0, &y, 1), WEFT_OK, "%s", weft_last_error());
        weft_manual_seed((uint64_t)i);
        cr_assert_eq(weft_jit_call(j, NULL, 0, &z, 1), WEFT_OK, "%s", weft_last_error());
        check_equal("loss", y, z);
        check_trainers("eager and traced", &a, &b);
        weft_scope_end(s);
    }
    cr_assert(stats_of(j).captured == 0 && reasons(j)[0], "%s", reasons(j));
    weft_jit_free(j);
    trainer_close(&a);
    trainer_close(&b);
}
