/*
 * examples/transformer.h -- a decoder-only transformer (Radford et al. 2019): the model of char_lm.c, and of the
 * benchmarks that time it. Pre-norm blocks of causal self-attention and a GELU MLP, learned positions, no dropout.
 *
 * It uses nothing but the public headers. A model owns its module: weft_module_free(t.m).
 */
#ifndef EXAMPLES_TRANSFORMER_H
#define EXAMPLES_TRANSFORMER_H

#include <weft/weft.h>

enum { TRANSFORMER_MAX_LAYERS = 48 };

typedef struct transformer_sizes {
    int64_t vocab, dim, layers, heads, context;
    bool tied; /* the head reads the token embedding's weight (Press and Wolf 2017) */
} transformer_sizes;

typedef struct transformer_block {
    weft_nn_norm ln_1, ln_2;
    weft_nn_attention attn;
    weft_nn_linear fc, proj;
} transformer_block;

typedef struct transformer {
    transformer_sizes n;
    weft_module *m;
    weft_nn_embedding wte, wpe;
    transformer_block h[TRANSFORMER_MAX_LAYERS];
    weft_nn_norm ln_f;
    weft_nn_linear head;
} transformer;

/* Makes the parameters. rng NULL: the thread's generator. The module's status says what went wrong; too many layers: WEFT_EINVALID. */
static inline weft_status transformer_init(transformer *t, transformer_sizes n, weft_generator *rng)
{
    weft_module *m = t->m = weft_module_new(rng);
    t->n = n;
    if (n.layers > TRANSFORMER_MAX_LAYERS) {
        return WEFT_EINVALID;
    }
    weft_nn_embedding_init(&t->wte, m, "wte", n.vocab, n.dim);
    weft_nn_embedding_init(&t->wpe, m, "wpe", n.context, n.dim);
    weft_init_normal(t->wpe.weight, 0, 0.02, rng);
    for (int i = 0; i < n.layers; i++) {
        transformer_block *b = &t->h[i];
        weft_module_push(m, "h.%d", i);
        weft_nn_layer_norm_init(&b->ln_1, m, "ln_1", n.dim);
        weft_nn_attention_init(&b->attn, m, "attn", n.dim, n.heads, .causal = true);
        weft_nn_layer_norm_init(&b->ln_2, m, "ln_2", n.dim);
        weft_nn_linear_init(&b->fc, m, "fc", n.dim, 4 * n.dim);
        weft_nn_linear_init(&b->proj, m, "proj", 4 * n.dim, n.dim);
        weft_module_pop(m);
    }
    weft_nn_layer_norm_init(&t->ln_f, m, "ln_f", n.dim);
    if (!n.tied) {
        weft_nn_linear_init(&t->head, m, "head", n.dim, n.vocab, .no_bias = true);
    }
    weft_status bad = weft_init_normal(t->wte.weight, 0, 0.02, rng);
    return bad ? bad : weft_module_status(m);
}

/* tokens[batch, time] -> logits[batch, time, vocab] */
static inline weft_tensor transformer_forward(const transformer *t, weft_tensor tokens)
{
    weft_scope s = weft_scope_begin();
    int64_t time = weft_dim(tokens, 1);
    weft_tensor x = weft_add(weft_nn_embedding_forward(&t->wte, tokens),
                             weft_narrow(t->wpe.weight, 0, 0, time));
    for (int i = 0; i < t->n.layers; i++) {
        const transformer_block *b = &t->h[i];
        x = weft_add(x,
                     weft_nn_attention_forward(&b->attn, weft_nn_layer_norm_forward(&b->ln_1, x)));
        weft_tensor y = weft_nn_linear_forward(&b->fc, weft_nn_layer_norm_forward(&b->ln_2, x));
        x = weft_add(x, weft_nn_linear_forward(&b->proj, weft_gelu(y)));
    }
    x = weft_nn_layer_norm_forward(&t->ln_f, x);
    x = t->n.tied ? weft_linear(x, t->wte.weight, WEFT_NONE) : weft_nn_linear_forward(&t->head, x);
    return weft_scope_return(s, x);
}

#endif
