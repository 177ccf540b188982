/*
 * nn/layers.c -- layers as structs of handles: registration of their parameters, and their forward pass.
 *
 * Invariants: an init registers all of its parameters or remembers the failure in the module and leaves
 * empty handles behind; a forward leaves one new handle in the caller's scope. Initial weights follow
 * PyTorch's defaults, so that a model moved over starts from the same distribution.
 */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

/* A constant parameter or buffer `name.leaf` of the current prefix. */
static weft_tensor constant(weft_module *m, const char *leaf, const weft_shape *shape,
                            weft_dtype dtype, double value, bool buffer)
{
    weft_scope scope = weft_scope_begin();
    weft_tensor t = weft_full(*shape, value, dtype ? dtype : WEFT_F32);
    t = buffer ? weft_module_buffer(m, leaf, t) : weft_module_parameter(m, leaf, t);
    weft_scope_end(scope);
    return t;
}

static weft_shape extents(int64_t n, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t v[4] = {a, b, c, d};
    return weft_shape_from(n, v);
}

/* Opens the layer's prefix; a failure is remembered by the module. */
static weft_status open_layer(const char *op, const void *layer, weft_module *m, const char *name)
{
    if (!layer || !m || !name) {
        wf_api_error(op, WEFT_EINVALID, "the layer, the module or the name is NULL");
        return wf_module_note(m, WEFT_EINVALID);
    }
    wf_module_open(m);
    weft_status s = weft_module_push(m, "%s", name);
    return s == WEFT_OK ? s : wf_module_close(m);
}

/* Closes it. status: of the values given by initialisers. Returns what went wrong in this layer. */
static weft_status close_layer(weft_module *m, weft_status status)
{
    weft_module_pop(m);
    wf_module_note(m, status);
    return wf_module_close(m);
}

static weft_status bad_extent(weft_module *m, const char *op, const char *rule)
{
    wf_api_error(op, WEFT_ESHAPE, "%s", rule);
    return wf_module_note(m, WEFT_ESHAPE);
}

/* Weight and bias uniform in +-1/sqrt(fan). */
static weft_status spread(weft_module *m, weft_tensor weight, weft_tensor bias, int64_t fan)
{
    double bound = 1 / sqrt((double)fan);
    weft_generator *g = wf_module_generator(m);
    if (!weft_ok(weight)) {
        return WEFT_OK; /* remembered already */
    }
    weft_status s = weft_init_uniform(weight, -bound, bound, g);
    return s == WEFT_OK && weft_ok(bias) ? weft_init_uniform(bias, -bound, bound, g) : s;
}

weft_status(weft_nn_linear_init)(const weft_nn_linear_args *a)
{
    weft_status s =
        open_layer("linear", a ? a->layer : NULL, a ? a->module : NULL, a ? a->name : NULL);
    if (s != WEFT_OK) {
        return s;
    }
    *a->layer = (weft_nn_linear){WEFT_NONE, WEFT_NONE};
    if (a->in < 1 || a->out < 1) {
        s = bad_extent(a->module, "linear", "in and out must be at least 1");
    } else {
        weft_shape w = extents(2, a->out, a->in, 0, 0), b = extents(1, a->out, 0, 0, 0);
        a->layer->weight = constant(a->module, "weight", &w, a->dtype, 0, false);
        if (!a->no_bias) {
            a->layer->bias = constant(a->module, "bias", &b, a->dtype, 0, false);
        }
        s = spread(a->module, a->layer->weight, a->layer->bias, a->in);
    }
    return close_layer(a->module, s);
}

weft_tensor weft_nn_linear_forward(const weft_nn_linear *layer, weft_tensor x)
{
    return layer ? weft_linear(x, layer->weight, layer->bias) : wf_api_null("linear", "the layer");
}

weft_status(weft_nn_embedding_init)(const weft_nn_embedding_args *a)
{
    weft_status s =
        open_layer("embedding", a ? a->layer : NULL, a ? a->module : NULL, a ? a->name : NULL);
    if (s != WEFT_OK) {
        return s;
    }
    weft_shape w = extents(2, a->n, a->dim, 0, 0);
    a->layer->weight = constant(a->module, "weight", &w, a->dtype, 0, false);
    if (weft_ok(a->layer->weight)) {
        s = weft_init_normal(a->layer->weight, 0, 1, wf_module_generator(a->module));
    }
    return close_layer(a->module, s);
}

weft_tensor weft_nn_embedding_forward(const weft_nn_embedding *layer, weft_tensor indices)
{
    return layer ? weft_embedding(layer->weight, indices) : wf_api_null("embedding", "the layer");
}

static weft_status norm_init(const weft_nn_norm_args *a, const char *op, bool with_bias)
{
    weft_status s = open_layer(op, a ? a->layer : NULL, a ? a->module : NULL, a ? a->name : NULL);
    if (s != WEFT_OK) {
        return s;
    }
    weft_shape shape = extents(1, a->dim, 0, 0, 0);
    *a->layer = (weft_nn_norm){WEFT_NONE, WEFT_NONE, a->eps};
    a->layer->weight = constant(a->module, "weight", &shape, a->dtype, 1, false);
    if (with_bias) {
        a->layer->bias = constant(a->module, "bias", &shape, a->dtype, 0, false);
    }
    return close_layer(a->module, WEFT_OK);
}

weft_status(weft_nn_layer_norm_init)(const weft_nn_norm_args *args)
{
    return norm_init(args, "layer_norm", true);
}

weft_status(weft_nn_rms_norm_init)(const weft_nn_norm_args *args)
{
    return norm_init(args, "rms_norm", false);
}

weft_tensor weft_nn_layer_norm_forward(const weft_nn_norm *layer, weft_tensor x)
{
    if (!layer) {
        return wf_api_null("layer_norm", "the layer");
    }
    return (weft_layer_norm)(&(weft_layer_norm_args){
        .x = x, .weight = layer->weight, .bias = layer->bias, .eps = layer->eps});
}

weft_tensor weft_nn_rms_norm_forward(const weft_nn_norm *layer, weft_tensor x)
{
    if (!layer) {
        return wf_api_null("rms_norm", "the layer");
    }
    return (
        weft_rms_norm)(&(weft_rms_norm_args){.x = x, .weight = layer->weight, .eps = layer->eps});
}

weft_status(weft_nn_conv2d_init)(const weft_nn_conv2d_args *a)
{
    weft_status s =
        open_layer("conv2d", a ? a->layer : NULL, a ? a->module : NULL, a ? a->name : NULL);
    if (s != WEFT_OK) {
        return s;
    }
    int64_t groups = a->groups ? a->groups : 1;
    *a->layer = (weft_nn_conv2d){
        WEFT_NONE, WEFT_NONE, a->stride ? a->stride : 1, a->padding, a->dilation ? a->dilation : 1,
        groups};
    int64_t field = 0;
    if (a->in < 1 || a->out < 1 || a->kernel < 1 || groups < 1 || a->in % groups != 0 ||
        __builtin_mul_overflow(a->kernel, a->kernel, &field) ||
        __builtin_mul_overflow(field, a->in / groups, &field)) {
        s = bad_extent(a->module, "conv2d",
                       "in, out, kernel and groups must be at least 1, and groups divide in");
    } else {
        weft_shape w = extents(4, a->out, a->in / groups, a->kernel, a->kernel);
        weft_shape b = extents(1, a->out, 0, 0, 0);
        a->layer->weight = constant(a->module, "weight", &w, a->dtype, 0, false);
        if (!a->no_bias) {
            a->layer->bias = constant(a->module, "bias", &b, a->dtype, 0, false);
        }
        s = spread(a->module, a->layer->weight, a->layer->bias, field);
    }
    return close_layer(a->module, s);
}

weft_tensor weft_nn_conv2d_forward(const weft_nn_conv2d *layer, weft_tensor x)
{
    if (!layer) {
        return wf_api_null("conv2d", "the layer");
    }
    return (weft_conv2d)(&(weft_conv2d_args){.x = x,
                                             .weight = layer->weight,
                                             .bias = layer->bias,
                                             .stride = extents(1, layer->stride, 0, 0, 0),
                                             .padding = extents(1, layer->padding, 0, 0, 0),
                                             .dilation = extents(1, layer->dilation, 0, 0, 0),
                                             .groups = layer->groups});
}

weft_status(weft_nn_batch_norm2d_init)(const weft_nn_batch_norm2d_args *a)
{
    weft_status s =
        open_layer("batch_norm2d", a ? a->layer : NULL, a ? a->module : NULL, a ? a->name : NULL);
    if (s != WEFT_OK) {
        return s;
    }
    weft_nn_batch_norm2d *l = a->layer;
    weft_shape shape = extents(1, a->dim, 0, 0, 0), none = extents(0, 0, 0, 0, 0);
    *l = (weft_nn_batch_norm2d){.momentum = a->momentum, .eps = a->eps, .module = a->module};
    l->weight = constant(a->module, "weight", &shape, a->dtype, 1, false);
    l->bias = constant(a->module, "bias", &shape, a->dtype, 0, false);
    l->running_mean = constant(a->module, "running_mean", &shape, a->dtype, 0, true);
    l->running_var = constant(a->module, "running_var", &shape, a->dtype, 1, true);
    l->batches = constant(a->module, "num_batches_tracked", &none, WEFT_I64, 0, true);
    return close_layer(a->module, WEFT_OK);
}

weft_tensor weft_nn_batch_norm2d_forward(const weft_nn_batch_norm2d *l, weft_tensor x)
{
    if (!l) {
        return wf_api_null("batch_norm2d", "the layer");
    }
    bool training = weft_module_training(l->module);
    weft_tensor y = (weft_batch_norm)(&(weft_batch_norm_args){.x = x,
                                                              .weight = l->weight,
                                                              .bias = l->bias,
                                                              .running_mean = l->running_mean,
                                                              .running_var = l->running_var,
                                                              .training = training,
                                                              .momentum = l->momentum,
                                                              .eps = l->eps});
    if (training && weft_ok(y)) {
        weft_add_(l->batches, weft_i(1));
    }
    return y;
}

weft_status weft_nn_dropout_init(weft_nn_dropout *layer, weft_module *module, double p)
{
    if (!layer || !module || !(p >= 0 && p <= 1)) {
        wf_api_error("dropout", WEFT_EINVALID,
                     "the layer or the module is NULL, or p is outside [0, 1]");
        return wf_module_note(module, WEFT_EINVALID);
    }
    *layer = (weft_nn_dropout){p, module};
    return WEFT_OK;
}

weft_tensor weft_nn_dropout_forward(const weft_nn_dropout *layer, weft_tensor x)
{
    if (!layer || !layer->module) {
        return wf_api_null("dropout", "the layer");
    }
    return (weft_dropout)(&(weft_dropout_args){.x = x,
                                               .p = layer->p,
                                               .training = weft_module_training(layer->module),
                                               .generator = wf_module_generator(layer->module)});
}

weft_status(weft_nn_attention_init)(const weft_nn_attention_args *a)
{
    weft_status s =
        open_layer("attention", a ? a->layer : NULL, a ? a->module : NULL, a ? a->name : NULL);
    if (s != WEFT_OK) {
        return s;
    }
    weft_nn_attention *l = a->layer;
    *l = (weft_nn_attention){.heads = a->heads, .causal = a->causal};
    if (a->dim < 1 || a->heads < 1 || a->dim % a->heads != 0 || a->dim > INT64_MAX / 3) {
        s = bad_extent(a->module, "attention", "dim must be a multiple of heads, both at least 1");
        return close_layer(a->module, s);
    }
    weft_shape w = extents(2, 3 * a->dim, a->dim, 0, 0), b = extents(1, 3 * a->dim, 0, 0, 0);
    l->in_weight = constant(a->module, "in_proj_weight", &w, a->dtype, 0, false);
    if (!a->no_bias) {
        l->in_bias = constant(a->module, "in_proj_bias", &b, a->dtype, 0, false);
    }
    if (weft_ok(l->in_weight)) {
        s = weft_init_xavier_uniform(l->in_weight, 1, wf_module_generator(a->module));
    }
    weft_nn_linear_args out = {&l->out, a->module,  "out_proj", a->dim,
                               a->dim,  a->no_bias, a->dtype,   0};
    if ((weft_nn_linear_init)(&out) == WEFT_OK && !a->no_bias && s == WEFT_OK) {
        s = weft_init_constant(l->out.bias, 0);
    }
    return close_layer(a->module, s);
}

weft_tensor weft_nn_attention_forward(const weft_nn_attention *l, weft_tensor x)
{
    if (!l) {
        return wf_api_null("attention", "the layer");
    }
    weft_shape s = weft_ok(x) ? weft_shape_of(x) : extents(3, 1, 1, l->heads, 0);
    if (s.n != 3) {
        return wf_api_error("attention", WEFT_ESHAPE,
                            "x has rank %d; it must be [batch, time, dim]", (int)s.n);
    }
    weft_scope scope = weft_scope_begin();
    int64_t split[5] = {s.v[0], s.v[1], 3, l->heads, l->heads ? s.v[2] / l->heads : 0};
    weft_axes order = weft_shape_from(5, (const int64_t[]){2, 0, 3, 1, 4});
    weft_tensor qkv = weft_linear(x, l->in_weight, l->in_bias);              /* [b, t, 3 dim] */
    qkv = weft_permute(weft_reshape(qkv, weft_shape_from(5, split)), order); /* [3, b, h, t, d] */
    weft_tensor y =
        (weft_scaled_dot_product_attention)(&(weft_attention_args){.q = weft_select(qkv, 0, 0),
                                                                   .k = weft_select(qkv, 0, 1),
                                                                   .v = weft_select(qkv, 0, 2),
                                                                   .causal = l->causal});
    y = weft_reshape(weft_transpose(y, 1, 2), s); /* [b, t, dim] */
    return weft_scope_return(scope, weft_nn_linear_forward(&l->out, y));
}
