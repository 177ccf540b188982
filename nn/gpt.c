/*
 * nn/gpt.c -- a decoder-only transformer as a language model: GPT-2's (Radford et al. 2019).
 *
 * Invariants: those of nn/layers.c. A block is an encoder layer (nn/attention.c) with GPT-2's names. The order in which
 * parameters are registered and drawn is part of what a seed means.
 */
#include <stdio.h>

#include "nn/nn.h"

static const wf_encoder_part block_parts[WF_ENCODER_PARTS] = {{WF_ENCODER_NORM1, "ln_1"},
                                                              {WF_ENCODER_ATTENTION, "attn"},
                                                              {WF_ENCODER_NORM2, "ln_2"},
                                                              {WF_ENCODER_WIDEN, "fc"},
                                                              {WF_ENCODER_NARROW, "proj"}};

/* What the parts do not say by themselves. */
static weft_status check(const weft_nn_gpt_args *a)
{
    weft_module *m = a->module;
    weft_status s = wf_layer_at_least(m, "vocab", a->vocab, 1);
    s = s != WEFT_OK ? s : wf_layer_at_least(m, "dim", a->dim, 1);
    s = s != WEFT_OK ? s : wf_layer_at_least(m, "context", a->context, 1);
    s = s != WEFT_OK ? s : wf_layer_at_least(m, "layers", a->layers, 0);
    if (s == WEFT_OK && a->layers > WEFT_NN_BLOCKS) {
        s = wf_layer_refuse(m, WEFT_EINVALID, "layers is %lld; it must be at most %d",
                            (long long)a->layers, WEFT_NN_BLOCKS);
    }
    if (s == WEFT_OK && a->dim > INT64_MAX / 4) {
        s = wf_layer_refuse(m, WEFT_ESHAPE, "dim is %lld; four times that overflows",
                            (long long)a->dim);
    }
    return s;
}

static void embedding(const weft_nn_gpt_args *a, weft_nn_embedding *e, const char *name, int64_t n)
{
    (weft_nn_embedding_init)(&(weft_nn_embedding_args){e, a->module, name, n, a->dim, a->dtype, 0});
}

static weft_status small(weft_module *m, const weft_nn_embedding *e)
{
    return wf_module_failed(m) == WEFT_OK
               ? weft_init_normal(e->weight, 0, 0.02, wf_module_generator(m))
               : WEFT_OK; /* remembered already */
}

static void blocks(const weft_nn_gpt_args *a, double dropout)
{
    weft_nn_encoder_args block = {.module = a->module,
                                  .dim = a->dim,
                                  .heads = a->heads,
                                  .feedforward = 4 * a->dim,
                                  .dropout = dropout == 0 ? WEFT_ZERO : dropout,
                                  .norm_first = true,
                                  .gelu = true,
                                  .causal = true,
                                  .eps = a->eps,
                                  .dtype = a->dtype};
    char name[16];
    block.name = name;
    for (int i = 0; i < a->layers; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        block.layer = &a->layer->h[i];
        wf_encoder_init(&block, block_parts);
    }
}

weft_status(weft_nn_gpt_init)(const weft_nn_gpt_args *a)
{
    weft_status s = WF_LAYER_OPEN("gpt", a, wte.weight);
    if (s != WEFT_OK) {
        return s;
    }
    weft_nn_gpt *l = a->layer;
    weft_module *m = a->module;
    s = check(a);
    if (s == WEFT_OK) {
        l->layers = a->layers;
        l->tied = a->tied;
        l->dropout = (weft_nn_dropout){wf_option(a->dropout, 0), m};
        s = wf_layer_probability(m, "dropout", l->dropout.p);
        embedding(a, &l->wte, "wte", a->vocab);
        embedding(a, &l->wpe, "wpe", a->context);
        s = s != WEFT_OK ? s : small(m, &l->wpe);
        blocks(a, l->dropout.p);
        (weft_nn_layer_norm_init)(
            &(weft_nn_norm_args){&l->ln_f, m, "ln_f", a->dim, a->eps, a->dtype, 0});
        if (!a->tied) {
            (weft_nn_linear_init)(
                &(weft_nn_linear_args){&l->head, m, "head", a->dim, a->vocab, true, a->dtype, 0});
        }
        s = s != WEFT_OK ? s : small(m, &l->wte);
    }
    return wf_layer_close(m, &l->wte.weight, s);
}

/* Is it [batch, time] and no longer than the positions? */
static bool has_positions(const weft_nn_gpt *l, weft_tensor tokens)
{
    if (!weft_ok(tokens) || !weft_ok(l->wpe.weight)) {
        return true; /* the embedding says what is wrong */
    }
    const int64_t context = weft_shape_of(l->wpe.weight).v[0];
    if (weft_rank(tokens) != 2) {
        wf_api_error("gpt", WEFT_ESHAPE, "tokens has rank %d; it must be [batch, time]",
                     weft_rank(tokens));
        return false;
    }
    if (weft_shape_of(tokens).v[1] > context) {
        wf_api_error("gpt", WEFT_ESHAPE, "tokens has %lld steps; the model's context is %lld",
                     (long long)weft_shape_of(tokens).v[1], (long long)context);
        return false;
    }
    return true;
}

weft_tensor weft_nn_gpt_forward(const weft_nn_gpt *l, weft_tensor tokens)
{
    weft_tensor y;
    if (!WF_LAYER_READY("gpt", l, wte.weight, &y)) {
        return y;
    }
    if (!has_positions(l, tokens)) {
        return wf_api_last_error();
    }
    weft_scope scope = weft_scope_begin();
    const int64_t time = weft_ok(tokens) ? weft_dim(tokens, 1) : 0;
    weft_tensor x = weft_nn_embedding_forward(&l->wte, tokens);
    x = wf_layer_drop(&l->dropout, weft_add(x, weft_narrow(l->wpe.weight, 0, 0, time)));
    for (int i = 0; i < l->layers; i++) {
        x = (weft_nn_encoder_forward)(&l->h[i], x, WEFT_NONE);
    }
    x = weft_nn_layer_norm_forward(&l->ln_f, x);
    y = l->tied ? weft_linear(x, l->wte.weight, WEFT_NONE) : weft_nn_linear_forward(&l->head, x);
    return weft_scope_return(scope, y);
}
