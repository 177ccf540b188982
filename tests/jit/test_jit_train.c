/*
 * tests/jit/test_jit_train.c -- a whole training step under one trace against the same step run eagerly: losses,
 * parameters, optimiser state, buffers, gradients and generators agree bit for bit over several steps.
 */
#include "tests/gpu/trainer.h"

static void whole_step(bool sgd)
{
    trainer a, b;
    trainer_open(&a, WEFT_CPU, false, sgd);
    trainer_open(&b, WEFT_CPU, false, sgd);
    weft_jit *j = weft_jit_trace(train_step, &b, .name = "step", .single_graph = true);
    for (int i = 0; i < STEPS; i++) {
        char what[32];
        weft_scope sc = weft_scope_begin();
        weft_tensor x, y;
        snprintf(what, sizeof what, "step %d", i);
        weft_manual_seed((uint64_t)i);
        cr_assert_eq(train_step(&a, NULL, 0, &x, 1), WEFT_OK, "%s", weft_last_error());
        weft_generator g = *weft_default_generator();
        weft_manual_seed((uint64_t)i);
        cr_assert_eq(weft_jit_call(j, NULL, 0, &y, 1), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_default_generator()->offset, g.offset);
        check_equal(what, x, y);
        check_trainers(what, &a, &b);
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
    cr_assert_eq(weft_leak_report(NULL), 0);
    cr_assert_eq(weft_tape_nodes(), 0);
}

Test(jit_train, adamw_step_is_one_graph)
{
    whole_step(false);
}

Test(jit_train, sgd_step_is_one_graph)
{
    whole_step(true);
}
