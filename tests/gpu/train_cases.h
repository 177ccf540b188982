/*
 * tests/gpu/train_cases.h -- a small character model trained on the host and on a device, there eagerly and traced: losses,
 * gradients, parameters, optimiser state and the generators agree bit for bit, with the host's as far as products do.
 */
#ifndef TESTS_GPU_TRAIN_CASES_H
#define TESTS_GPU_TRAIN_CASES_H

#include <math.h>

#include "tests/gpu/trainer.h"

/* What a device counts, so that a step can be asked what it cost. */
typedef struct step_costs {
    int64_t driver_allocs, waits; /* as weft counts */
    int64_t slow_calls;           /* as the driver does */
} step_costs;

typedef struct training {
    bool made;  /* layers are made on the device, not moved there */
    bool exact; /* the device's products have the host's bits */
    step_costs (*costs)(
        void); /* NULL: not counted; else steps after the first must not allocate, the last ones not wait */
} training;

/* AdamW divides by the gradient's size, so that where products round otherwise parameters may go apart; losses of the few
 * steps may not. */
static void check_losses(const training *how, weft_tensor host, weft_tensor device)
{
    double a = weft_item_f64(host), b = weft_item_f64(device);
    cr_assert(how->exact || fabs(a - b) <= 1e-3 * fabs(a), "losses %g and %g", a, b);
    if (how->exact) {
        check_equal("loss", host, device);
    }
}

static void run_step(const training *how, int i, weft_jit *j, trainer *t, weft_tensor *loss)
{
    weft_manual_seed((uint64_t)i);
    step_costs before = how->costs ? how->costs() : (step_costs){0};
    weft_status s = j ? weft_jit_call(j, NULL, 0, loss, 1) : train_step(t, NULL, 0, loss, 1);
    step_costs after = how->costs ? how->costs() : (step_costs){0};
    cr_assert_eq(s, WEFT_OK, "%s", weft_last_error());
    if (i >= 1) {
        cr_assert_eq(after.driver_allocs, before.driver_allocs, "step %d%s", i,
                     j ? ", traced" : "");
    }
    if (i >= STEPS - 2) {
        cr_assert_eq(after.slow_calls, before.slow_calls, "step %d%s: %d calls that may wait", i,
                     j ? ", traced" : "", (int)(after.slow_calls - before.slow_calls));
        weft_device_fallback f = {"none", 0};
        weft_device_fallbacks(&f, 1);
        cr_assert_eq(after.waits, before.waits, "step %d%s; ops through the host: %s, ...", i,
                     j ? ", traced" : "", f.op);
    }
}

/* Three trainers: on the host, on the device, and traced there. The last two have equal bits. */
static void check_training(training how)
{
    trainer a, b, c;
    trainer_open(&a, WEFT_CPU, false, false);
    trainer_open(&b, WEFT_CUDA(0), how.made, false);
    trainer_open(&c, WEFT_CUDA(0), !how.made, false);
    weft_jit *j = weft_jit_trace(train_step, &c, .name = "step", .single_graph = true);
    for (int i = 0; i < STEPS; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x, y, z;
        weft_manual_seed((uint64_t)i);
        cr_assert_eq(train_step(&a, NULL, 0, &x, 1), WEFT_OK, "%s", weft_last_error());
        weft_generator g = *weft_default_generator();
        run_step(&how, i, NULL, &b, &y);
        cr_assert_eq(weft_default_generator()->offset, g.offset);
        run_step(&how, i, j, &c, &z);
        cr_assert_eq(weft_default_generator()->offset, g.offset);
        check_losses(&how, x, y);
        check_equal("eager and traced loss", y, z);
        check_trainers("eager and traced", &b, &c);
        if (how.exact) {
            check_trainers("host and device", &a, &b);
        }
        weft_scope_end(sc);
    }
    weft_jit_stats s;
    weft_jit_get_stats(j, &s);
    cr_assert_eq(s.segments, STEPS);
    cr_assert_eq(s.breaks, 0);
    cr_assert_leq(s.plans, 2); /* the first step has no gradients to drop */
    weft_jit_free(j);
    trainer_close(&a);
    trainer_close(&b);
    trainer_close(&c);
    cr_assert_eq(weft_leak_report(NULL), 0);
    cr_assert_eq(weft_tape_nodes(), 0);
}

#endif
