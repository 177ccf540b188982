/*
 * nn/attention.c -- attention and the transformer's encoder layer. Vaswani et al. 2017; the norm first: Xiong et al. 2020.
 *
 * Invariants: those of nn/layers.c. Self-attention is one product for queries, keys and values, cross-attention two.
 */
#include "nn/nn.h"

weft_status(weft_nn_attention_init)(const weft_nn_attention_args *a)
{
    weft_status s = WF_LAYER_OPEN("attention", a, in_weight);
    if (s != WEFT_OK) {
        return s;
    }
    weft_nn_attention *l = a->layer;
    *l = (weft_nn_attention){.heads = a->heads, .causal = a->causal};
    s = wf_layer_at_least(a->module, "dim", a->dim, 1);
    s = s != WEFT_OK ? s : wf_layer_at_least(a->module, "heads", a->heads, 1);
    s = s != WEFT_OK ? s : wf_layer_multiple(a->module, "dim", a->dim, "heads", a->heads);
    if (s == WEFT_OK && a->dim > INT64_MAX / 3) {
        s = wf_layer_refuse(a->module, WEFT_ESHAPE, "dim is %lld; three times that overflows",
                            (long long)a->dim);
    }
    if (s != WEFT_OK) {
        return wf_layer_close(a->module, &l->in_weight, s);
    }
    weft_shape w = weft_shape_from(2, (const int64_t[]){3 * a->dim, a->dim}),
               b = weft_shape_from(1, w.v);
    l->in_weight = wf_layer_constant(a->module, "in_proj_weight", &w, a->dtype, 0, false);
    if (!a->no_bias) {
        l->in_bias = wf_layer_constant(a->module, "in_proj_bias", &b, a->dtype, 0, false);
    }
    if (wf_module_failed(a->module) == WEFT_OK) {
        s = weft_init_xavier_uniform(l->in_weight, 1, wf_module_generator(a->module));
    }
    weft_nn_linear_args out = {&l->out, a->module,  "out_proj", a->dim,
                               a->dim,  a->no_bias, a->dtype,   0};
    if ((weft_nn_linear_init)(&out) == WEFT_OK && !a->no_bias && s == WEFT_OK) {
        s = weft_init_constant(l->out.bias, 0);
    }
    return wf_layer_close(a->module, &l->in_weight, s);
}

/* x[b, t, n dim] -> out[i][b, heads, t, dim / heads], i < n. */
static void split_heads(weft_tensor x, int n, int64_t heads, weft_tensor *out)
{
    weft_shape s =
        weft_ok(x) ? weft_shape_of(x) : weft_shape_from(3, (const int64_t[]){1, 1, n * heads});
    const int64_t split[5] = {s.v[0], s.v[1], n, heads, s.v[2] / (n * heads)};
    weft_axes order = weft_shape_from(5, (const int64_t[]){2, 0, 3, 1, 4});
    x = weft_permute(weft_reshape(x, weft_shape_from(5, split)), order); /* [n, b, h, t, d] */
    for (int i = 0; i < n; i++) {
        out[i] = weft_select(x, 0, i);
    }
}

/* Rows from.. of the input projection, n times dim of them. */
static weft_tensor project(const weft_nn_attention *l, weft_tensor x, int64_t from, int64_t n)
{
    const int64_t dim = weft_ok(l->in_weight) ? weft_shape_of(l->in_weight).v[1] : 1;
    weft_tensor w = weft_narrow(l->in_weight, 0, from * dim, n * dim), b = l->in_bias;
    return weft_linear(x, w, weft_ok(b) ? weft_narrow(b, 0, from * dim, n * dim) : b);
}

static bool is_sequence(const char *what, weft_tensor x)
{
    if (weft_ok(x) && weft_rank(x) != 3) {
        wf_api_error("attention", WEFT_ESHAPE, "%s has rank %d; it must be [batch, time, dim]",
                     what, weft_rank(x));
        return false;
    }
    return true;
}

weft_tensor(weft_nn_attention_attend)(const weft_nn_attention *l, weft_tensor x, weft_tensor memory,
                                      weft_tensor mask)
{
    weft_tensor y;
    if (!WF_LAYER_READY("attention", l, in_weight, &y)) {
        return y;
    }
    if (l->heads < 1) {
        return wf_api_error("attention", WEFT_EINVALID, "the layer was not made by its init");
    }
    const bool self = wf_is_none(memory);
    if (!is_sequence("x", x) || (!self && !is_sequence("memory", memory))) {
        return wf_api_last_error();
    }
    weft_scope scope = weft_scope_begin();
    weft_tensor qkv[3];
    if (self) {
        split_heads(weft_linear(x, l->in_weight, l->in_bias), 3, l->heads, qkv);
    } else {
        split_heads(project(l, x, 0, 1), 1, l->heads, qkv);
        split_heads(project(l, memory, 1, 2), 2, l->heads, qkv + 1);
    }
    y = (weft_scaled_dot_product_attention)(&(weft_attention_args){
        .q = qkv[0], .k = qkv[1], .v = qkv[2], .mask = mask, .causal = l->causal});
    y = weft_flatten(weft_transpose(y, 1, 2), 2, 3); /* [b, t, dim] */
    return weft_scope_return(scope, weft_nn_linear_forward(&l->out, y));
}

weft_tensor weft_nn_attention_forward(const weft_nn_attention *l, weft_tensor x)
{
    return (weft_nn_attention_attend)(l, x, WEFT_NONE, WEFT_NONE);
}

/* -- encoder layer ---------------------------------------------------------------------------------------------- */

/* The part p of the layer, under its name. */
static void make_part(const weft_nn_encoder_args *a, const wf_encoder_part *p)
{
    weft_nn_encoder *l = a->layer;
    weft_module *m = a->module;
    const int64_t wide = a->feedforward ? a->feedforward : 2048;
    switch (p->part) {
    case WF_ENCODER_ATTENTION:
        (weft_nn_attention_init)(&(weft_nn_attention_args){
            &l->self_attn, m, p->name, a->dim, a->heads, a->causal, false, a->dtype, 0});
        break;
    case WF_ENCODER_WIDEN:
        (weft_nn_linear_init)(
            &(weft_nn_linear_args){&l->linear1, m, p->name, a->dim, wide, false, a->dtype, 0});
        break;
    case WF_ENCODER_NARROW:
        (weft_nn_linear_init)(
            &(weft_nn_linear_args){&l->linear2, m, p->name, wide, a->dim, false, a->dtype, 0});
        break;
    case WF_ENCODER_NORM1:
    case WF_ENCODER_NORM2:
        (weft_nn_layer_norm_init)(
            &(weft_nn_norm_args){p->part == WF_ENCODER_NORM1 ? &l->norm1 : &l->norm2, m, p->name,
                                 a->dim, a->eps, a->dtype, 0});
    }
}

weft_status wf_encoder_init(const weft_nn_encoder_args *a, const wf_encoder_part *parts)
{
    weft_status s = WF_LAYER_OPEN("encoder", a, self_attn.in_weight);
    if (s != WEFT_OK) {
        return s;
    }
    weft_nn_encoder *l = a->layer;
    *l = (weft_nn_encoder){.norm_first = a->norm_first, .gelu = a->gelu};
    const double dropout = wf_option(a->dropout, 0.1);
    s = wf_layer_probability(a->module, "dropout", dropout);
    for (int i = 0; i < WF_ENCODER_PARTS; i++) {
        make_part(a, &parts[i]);
    }
    l->dropout = (weft_nn_dropout){dropout, a->module};
    return wf_layer_close(a->module, &l->self_attn.in_weight, s);
}

weft_status(weft_nn_encoder_init)(const weft_nn_encoder_args *a)
{
    static const wf_encoder_part parts[] = {{WF_ENCODER_ATTENTION, "self_attn"},
                                            {WF_ENCODER_WIDEN, "linear1"},
                                            {WF_ENCODER_NARROW, "linear2"},
                                            {WF_ENCODER_NORM1, "norm1"},
                                            {WF_ENCODER_NORM2, "norm2"}};
    return wf_encoder_init(a, parts);
}

weft_tensor wf_layer_drop(const weft_nn_dropout *l, weft_tensor x)
{
    return l->p == 0 ? x : weft_nn_dropout_forward(l, x);
}

static weft_tensor attend(const weft_nn_encoder *l, weft_tensor x, weft_tensor mask)
{
    x = (weft_nn_attention_attend)(&l->self_attn, x, WEFT_NONE, mask);
    return wf_layer_drop(&l->dropout, x);
}

static weft_tensor feed_forward(const weft_nn_encoder *l, weft_tensor x)
{
    x = weft_nn_linear_forward(&l->linear1, x);
    x = wf_layer_drop(&l->dropout, l->gelu ? weft_gelu(x) : weft_relu(x));
    return wf_layer_drop(&l->dropout, weft_nn_linear_forward(&l->linear2, x));
}

weft_tensor(weft_nn_encoder_forward)(const weft_nn_encoder *l, weft_tensor x, weft_tensor mask)
{
    weft_tensor y;
    if (!WF_LAYER_READY("encoder", l, self_attn.in_weight, &y)) {
        return y;
    }
    weft_scope scope = weft_scope_begin();
    if (l->norm_first) {
        x = weft_add(x, attend(l, weft_nn_layer_norm_forward(&l->norm1, x), mask));
        x = weft_add(x, feed_forward(l, weft_nn_layer_norm_forward(&l->norm2, x)));
    } else {
        x = weft_nn_layer_norm_forward(&l->norm1, weft_add(x, attend(l, x, mask)));
        x = weft_nn_layer_norm_forward(&l->norm2, weft_add(x, feed_forward(l, x)));
    }
    return weft_scope_return(scope, x);
}
