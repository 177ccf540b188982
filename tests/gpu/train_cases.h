/*
 * tests/gpu/train_cases.h -- a small character model trained on the host and on a device, there eagerly and traced: losses,
 * gradients, parameters, optimiser state and the generators agree bit for bit, with the host's as far as products do.
 */
#ifndef TESTS_GPU_TRAIN_CASES_H
#define TESTS_GPU_TRAIN_CASES_H

#include <math.h>

#include "tests/gpu/equal.h"
#include "weft/jit.h"
#include "weft/nn.h"

enum { VOCAB = 31, DIM = 16, HEADS = 2, TIME = 12, BATCH = 3, STEPS = 5 };

typedef struct trainer {
    weft_device device;
    weft_module *m;
    weft_nn_embedding wte;
    weft_nn_norm ln_1, ln_2;
    weft_nn_attention attn;
    weft_nn_linear fc, proj, head;
    weft_nn_dropout drop;
    weft_optim *optim;
    weft_generator init, data;
    weft_tensor text;
    int step;
} trainer;

/* Layers are made on the host and moved (made: on the device, which draws the host's numbers). */
static void trainer_open(trainer *t, weft_device device, bool made)
{
    *t = (trainer){.device = device, .init = {7, 0}, .data = {8, 0}};
    weft_set_default_device(made ? device : WEFT_CPU);
    weft_module *m = t->m = weft_module_new(&t->init);
    weft_nn_embedding_init(&t->wte, m, "wte", VOCAB, DIM);
    weft_nn_layer_norm_init(&t->ln_1, m, "ln_1", DIM);
    weft_nn_attention_init(&t->attn, m, "attn", DIM, HEADS, .causal = true);
    weft_nn_layer_norm_init(&t->ln_2, m, "ln_2", DIM);
    weft_nn_linear_init(&t->fc, m, "fc", DIM, 4 * DIM);
    weft_nn_linear_init(&t->proj, m, "proj", 4 * DIM, DIM);
    weft_nn_linear_init(&t->head, m, "head", DIM, VOCAB, .no_bias = true);
    weft_nn_dropout_init(&t->drop, m, 0.2);
    weft_module_train(m, true);
    cr_assert_eq(weft_module_status(m), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_module_to(m, device), WEFT_OK, "%s", weft_last_error());
    t->optim = weft_adamw_new(.module = m, .lr = 1e-2, .weight_decay = 0.1, .decay_min_rank = 2);
    weft_set_default_device(device);
    weft_generator g = {3, 0};
    t->text = weft_keep(weft_randint(weft_shape(500), 0, VOCAB, .generator = &g));
    weft_set_default_device(WEFT_CPU);
}

static void trainer_close(trainer *t)
{
    weft_optim_free(t->optim);
    weft_module_free(t->m);
    weft_free(t->text);
}

static weft_tensor forward(trainer *t, weft_tensor tokens)
{
    weft_tensor x = weft_nn_embedding_forward(&t->wte, tokens);
    weft_tensor y = weft_nn_layer_norm_forward(&t->ln_1, x);
    x = weft_add(x, weft_nn_attention_forward(&t->attn, y));
    y = weft_gelu(weft_nn_linear_forward(&t->fc, weft_nn_layer_norm_forward(&t->ln_2, x)));
    x = weft_add(x, weft_nn_dropout_forward(&t->drop, weft_nn_linear_forward(&t->proj, y)));
    return weft_nn_linear_forward(&t->head, x);
}

static weft_status train_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    trainer *t = self;
    (void)in, (void)n_in, (void)n_out;
    double lr = weft_lr_cosine(t->step++, 2, STEPS, 1e-2, 1e-3);
    weft_set_default_device(t->device);
    weft_tensor start =
        weft_randint(weft_shape(BATCH, 1), 0, 500 - TIME - 1, .generator = &t->data);
    weft_tensor at = weft_add(start, weft_arange(0, TIME + 1, 1, WEFT_I64));
    weft_tensor window = weft_index_select(t->text, 0, at);
    weft_tensor logits = forward(t, weft_narrow(window, 1, 0, TIME));
    out[0] = weft_cross_entropy(logits, weft_narrow(window, 1, 1, TIME));
    weft_status s = weft_module_zero_grad(t->m);
    s = s ? s : weft_backward(out[0]);
    s = s ? s : weft_module_clip_grad_norm(t->m, t->step % 2 ? 0.5 : 100, NULL);
    s = s ? s : weft_optim_set_lr(t->optim, lr);
    s = s ? s : weft_optim_step(t->optim);
    weft_set_default_device(WEFT_CPU);
    return s;
}

static void check_trainers(trainer *a, trainer *b)
{
    for (int i = 0; i < weft_module_count(a->m); i++) {
        weft_named_tensor x = weft_module_at(a->m, i), y = weft_module_at(b->m, i);
        cr_assert(weft_device_of(y.tensor).kind == b->device.kind);
        check_equal(x.name, x.tensor, y.tensor);
        cr_assert_eq(weft_has_grad(x.tensor), weft_has_grad(y.tensor), "%s", x.name);
        if (weft_has_grad(x.tensor)) {
            cr_assert(weft_device_of(weft_grad(y.tensor)).kind == b->device.kind);
            check_equal(x.name, weft_grad(x.tensor), weft_grad(y.tensor));
        }
    }
    for (int i = 0; i < weft_optim_state_count(a->optim); i++) {
        check_equal(weft_optim_state(a->optim)[i].name, weft_optim_state(a->optim)[i].tensor,
                    weft_optim_state(b->optim)[i].tensor);
    }
    cr_assert_eq(a->data.offset, b->data.offset);
    cr_assert_eq(a->init.offset, b->init.offset);
}

/* What a device counts, so that a step can be asked what it cost. */
typedef struct step_costs {
    int64_t driver_allocs, waits;
} step_costs;

typedef struct training {
    bool made;  /* layers are made on the device, not moved there */
    bool exact; /* the device's products have the host's bits */
    step_costs (*costs)(
        void); /* NULL: not counted; else the last steps must neither allocate nor wait */
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
    step_costs before = how->costs ? how->costs() : (step_costs){0, 0};
    weft_status s = j ? weft_jit_call(j, NULL, 0, loss, 1) : train_step(t, NULL, 0, loss, 1);
    step_costs after = how->costs ? how->costs() : (step_costs){0, 0};
    cr_assert_eq(s, WEFT_OK, "%s", weft_last_error());
    if (i >= STEPS - 2) {
        cr_assert_eq(after.driver_allocs, before.driver_allocs, "step %d%s", i,
                     j ? ", traced" : "");
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
    trainer_open(&a, WEFT_CPU, false);
    trainer_open(&b, WEFT_CUDA(0), how.made);
    trainer_open(&c, WEFT_CUDA(0), !how.made);
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
        check_trainers(&b, &c);
        if (how.exact) {
            check_trainers(&a, &b);
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
