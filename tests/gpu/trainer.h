/*
 * tests/gpu/trainer.h -- a small character model with its optimiser and data, on the host or a device: what the tests of
 * whole training steps train.
 */
#ifndef TESTS_GPU_TRAINER_H
#define TESTS_GPU_TRAINER_H

#include <stdio.h>

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
    bool sgd;
} trainer;

/* sgd: not AdamW. Layers are made on the host and moved (made: on the device, which draws the host's numbers). */
static void trainer_open(trainer *t, weft_device device, bool made, bool sgd)
{
    *t = (trainer){.device = device, .init = {7, 0}, .data = {8, 0}, .sgd = sgd};
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
    t->optim =
        sgd ? weft_sgd_new(.module = m, .lr = 0.1, .momentum = 0.9, .nesterov = true)
            : weft_adamw_new(.module = m, .lr = 1e-2, .weight_decay = 0.1, .decay_min_rank = 2);
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

/* Parameters, gradients, the optimiser's state and the generators agree; b's tensors are on its device. */
static void check_trainers(const char *what, trainer *a, trainer *b)
{
    char name[128];
    for (int i = 0; i < weft_module_count(a->m); i++) {
        weft_named_tensor x = weft_module_at(a->m, i), y = weft_module_at(b->m, i);
        snprintf(name, sizeof name, "%s: %s", what, x.name);
        cr_assert(weft_device_of(y.tensor).kind == b->device.kind);
        check_equal(name, x.tensor, y.tensor);
        cr_assert_eq(weft_has_grad(x.tensor), weft_has_grad(y.tensor), "%s", name);
        if (weft_has_grad(x.tensor)) {
            cr_assert(weft_device_of(weft_grad(y.tensor)).kind == b->device.kind);
            check_equal(name, weft_grad(x.tensor), weft_grad(y.tensor));
        }
    }
    check_optims(what, a->optim, b->optim);
    cr_assert_eq(a->data.offset, b->data.offset, "%s", what);
    cr_assert_eq(a->init.offset, b->init.offset, "%s", what);
}

#endif
