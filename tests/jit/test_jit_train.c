/*
 * tests/jit/test_jit_train.c -- a whole training step under one trace against the same step run eagerly: losses,
 * parameters, optimiser state, buffers, gradients and generators agree bit for bit over several steps.
 */

#include "eager/tensor.h"
#include "jit/call_impl.h"
#include "tests/gpu/trainer.h"
#include "tests/jit/clock_support.h"
#include "tests/support/optims.h"
#include "tests/support/support.h"

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

/* Parameters of every layout and type: those that a trace records in one go, and those that it leaves to calls. */
typedef struct zoo {
    weft_module *m;
    weft_optim *optim;
    float memory[6]; /* of a parameter that is imported */
} zoo;

static void zoo_open(zoo *z, int kind, bool imports)
{
    weft_generator g = {11, 0};
    z->m = weft_module_new(&g);
    for (int i = 0; i < 6; i++) {
        z->memory[i] = (float)i - 2.5f;
    }
    weft_tensor x = weft_randn(weft_shape(6, 7), .generator = &g);
    weft_tensor p[] = {imports ? weft_from_blob(.data = z->memory, .shape = weft_shape(6))
                               : weft_clone(x),
                       weft_clone(x),
                       weft_transpose(weft_clone(x), 0, 1),
                       weft_narrow(weft_clone(x), 0, 1, 3),
                       weft_cast(x, WEFT_F64),
                       weft_cast(x, WEFT_F16),
                       weft_full(weft_shape(), 3, WEFT_F32)};
    for (int i = 0; i < 7; i++) {
        weft_module_parameter(z->m, (char[]){'p', (char)('0' + i), 0}, p[i]);
    }
    cr_assert_eq(weft_module_status(z->m), WEFT_OK, "%s", weft_last_error());
    z->optim = optim_of(z->m, &optim_kinds[kind]);
    if (kind % 2) {
        cr_assert_eq(weft_optim_group(z->optim, "p1", .lr_scale = 0.5), WEFT_OK);
    }
}

static void zoo_close(zoo *z)
{
    weft_optim_free(z->optim);
    weft_module_free(z->m);
}

static weft_status update(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    zoo *z = self;
    (void)in, (void)n_in, (void)out, (void)n_out;
    return weft_optim_step(z->optim);
}

static void set_gradients(zoo *z)
{
    for (int i = 0; i < weft_module_count(z->m); i++) {
        weft_tensor p = weft_module_at(z->m, i).tensor;
        cr_assert_eq(weft_set_grad(p, weft_mul(p, weft_f(0.5))), WEFT_OK, "%s", weft_last_error());
    }
}

Test(jit_train, updates_of_every_layout)
{
    for (int k = 0; k < 2 * OPTIM_KINDS; k++) {
        zoo a, b;
        zoo_open(&a, k / 2, k % 2);
        zoo_open(&b, k / 2, k % 2);
        weft_jit *j = weft_jit_trace(update, &b);
        for (int step = 0; step < 4; step++) {
            weft_scope sc = weft_scope_begin();
            weft_no_grad_begin();
            set_gradients(&a);
            set_gradients(&b);
            weft_no_grad_end();
            cr_assert_eq(update(&a, NULL, 0, NULL, 0), WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_jit_call(j, NULL, 0, NULL, 0), WEFT_OK, "%s", weft_last_error());
            for (int i = 0; i < weft_module_count(a.m); i++) {
                check_bits("parameter", weft_module_at(a.m, i).tensor,
                           weft_module_at(b.m, i).tensor);
            }
            for (int i = 0; i < weft_optim_state_count(a.optim); i++) {
                check_bits("state", weft_optim_state(a.optim)[i].tensor,
                           weft_optim_state(b.optim)[i].tensor);
            }
            weft_scope_end(sc);
        }
        weft_jit_free(j);
        zoo_close(&a);
        zoo_close(&b);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* Forty dense parameters. */
static zoo dense_zoo(int kind)
{
    zoo z = {.m = weft_module_new(NULL)};
    for (int i = 0; i < 40; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        weft_module_parameter(z.m, name, weft_ones(weft_shape(16, 16 + 16 * (i % 2)), WEFT_F32));
    }
    z.optim = kind < 0 ? weft_adamw_new(z.m) : optim_of(z.m, &optim_kinds[kind]);
    return z;
}

/* An update of forty parameters is as many kernels as AdamW's, whatever the rule, and moves as much as eager code, whose update
 * is one pass, too. */
Test(jit_train, every_update_is_as_few_kernels)
{
    int64_t adamw = 0;
    for (int k = -1; k < OPTIM_KINDS; k++) {
        zoo z = dense_zoo(k);
        weft_jit *j = weft_jit_trace(update, &z);
        set_gradients(&z);
        cr_assert_eq(weft_jit_call(j, NULL, 0, NULL, 0), WEFT_OK, "%s", weft_last_error());
        weft_jit_stats s;
        weft_jit_get_stats(j, &s);
        adamw = k < 0 ? s.kernels : adamw;
        cr_assert_leq(s.kernels, adamw, "%s", k < 0 ? "" : optim_kinds[k].name);
        cr_assert_leq(s.kernels, 8);
        wf_plan_info i;
        wf_plan_get_info(j->plans[0].plan, &i);
        cr_assert_eq(i.eager_read_bytes, i.read_bytes, "%s: eager code reads each tensor once too",
                     k < 0 ? "" : optim_kinds[k].name);
        cr_assert_eq(i.eager_write_bytes, i.write_bytes);
        weft_jit_free(j);
        zoo_close(&z);
    }
}

/* A step that takes long when it is recorded. */
static weft_status slow_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    if (wf_ctx_get()->recorder)
        take_us(2000);
    return update(self, in, n_in, out, n_out);
}

/* The update of eager code is one pass, so it is tried as soon as calls have turned out to be long; on the tile tier as on
 * others, with the same bits. */
Test(jit_train, a_long_step_is_soon_tried_eagerly)
{
    enum { WARM = 64, SOON = 24 };
    plant_clock();
    for (int tier0 = 0; tier0 < 2; tier0++) {
        zoo z[2] = {dense_zoo(-1), dense_zoo(-1)};
        weft_jit *j = weft_jit_trace(slow_step, &z[1]);
        j->tier0 = tier0;
        for (int i = 0; i < WARM + SOON; i++) {
            const weft_scope s = weft_scope_begin();
            set_gradients(&z[0]);
            set_gradients(&z[1]);
            cr_assert_eq(update(&z[0], NULL, 0, NULL, 0), WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_jit_call(j, NULL, 0, NULL, 0), WEFT_OK, "%s", weft_last_error());
            weft_scope_end(s);
        }
        weft_jit_stats s;
        weft_jit_get_stats(j, &s);
        cr_assert(s.eager >= SOON / 2 || !j->adapts, "%d of %d calls", (int)s.eager,
                  (int)s.calls); /* all are recorded under WEFT_VALIDATE */
        for (int i = 0; i < weft_module_count(z[0].m); i++)
            check_bits("parameter", weft_module_at(z[0].m, i).tensor,
                       weft_module_at(z[1].m, i).tensor);
        weft_jit_free(j);
        zoo_close(&z[0]);
        zoo_close(&z[1]);
    }
}
