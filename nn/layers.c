/*
 * nn/layers.c -- layers as structs of handles: registration of their parameters, and their forward pass.
 *
 * Invariants: an init registers all of its parameters or remembers the failure in the module and in the layer, whose
 * forward returns it from then on; a forward leaves one new handle in the caller's scope. Initial weights follow
 * PyTorch's defaults, so that a model moved over starts from the same distribution.
 */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

weft_tensor wf_layer_constant(weft_module *m, const char *leaf, const weft_shape *shape,
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

/* An error that is there already stays: it is the first. */
static weft_status keep_failure(weft_tensor *first, weft_status status)
{
    if (status != WEFT_OK && first && (weft_ok(*first) || wf_is_none(*first))) {
        *first = wf_api_last_error();
    }
    return status;
}

weft_status wf_layer_open(const char *op, void *layer, size_t size, weft_tensor *first,
                          weft_module *m, const char *name)
{
    if (layer) {
        memset(layer, 0, size);
    }
    if (!layer || !m || !name) {
        wf_api_error(op, WEFT_EINVALID, "the layer, the module or the name is NULL");
        return keep_failure(first, wf_module_note(m, WEFT_EINVALID));
    }
    wf_module_open(m);
    weft_status s = weft_module_push(m, "%s", name);
    return s == WEFT_OK ? s : keep_failure(first, wf_module_close(m));
}

weft_status wf_layer_close(weft_module *m, weft_tensor *first, weft_status status)
{
    weft_module_pop(m);
    wf_module_note(m, status);
    return keep_failure(first, wf_module_close(m));
}

bool wf_layer_ready(const char *op, const weft_tensor *first, weft_tensor *y)
{
    if (!first) {
        *y = wf_api_null(op, "the layer");
    } else if (first->slot == 0 && first->serial != 0) {
        wf_error_again(wf_ctx_get(), *first);
        *y = *first;
    } else {
        return true;
    }
    return false;
}

weft_status wf_layer_refuse(weft_module *m, const char *op, const char *rule)
{
    wf_api_error(op, WEFT_ESHAPE, "%s", rule);
    return wf_module_note(m, WEFT_ESHAPE);
}

weft_status wf_layer_spread(weft_module *m, weft_tensor weight, weft_tensor bias, int64_t fan)
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
    weft_status s = WF_LAYER_OPEN("linear", a, weight);
    if (s != WEFT_OK) {
        return s;
    }
    if (a->in < 1 || a->out < 1) {
        s = wf_layer_refuse(a->module, "linear", "in and out must be at least 1");
    } else {
        weft_shape w = extents(2, a->out, a->in, 0, 0), b = extents(1, a->out, 0, 0, 0);
        a->layer->weight = wf_layer_constant(a->module, "weight", &w, a->dtype, 0, false);
        if (!a->no_bias) {
            a->layer->bias = wf_layer_constant(a->module, "bias", &b, a->dtype, 0, false);
        }
        s = wf_layer_spread(a->module, a->layer->weight, a->layer->bias, a->in);
    }
    return wf_layer_close(a->module, &a->layer->weight, s);
}

weft_tensor weft_nn_linear_forward(const weft_nn_linear *layer, weft_tensor x)
{
    weft_tensor y;
    return WF_LAYER_READY("linear", layer, weight, &y) ? weft_linear(x, layer->weight, layer->bias)
                                                       : y;
}

weft_status(weft_nn_embedding_init)(const weft_nn_embedding_args *a)
{
    weft_status s = WF_LAYER_OPEN("embedding", a, weight);
    if (s != WEFT_OK) {
        return s;
    }
    weft_shape w = extents(2, a->n, a->dim, 0, 0);
    a->layer->weight = wf_layer_constant(a->module, "weight", &w, a->dtype, 0, false);
    if (weft_ok(a->layer->weight)) {
        s = weft_init_normal(a->layer->weight, 0, 1, wf_module_generator(a->module));
    }
    return wf_layer_close(a->module, &a->layer->weight, s);
}

weft_tensor weft_nn_embedding_forward(const weft_nn_embedding *layer, weft_tensor indices)
{
    weft_tensor y;
    return WF_LAYER_READY("embedding", layer, weight, &y) ? weft_embedding(layer->weight, indices)
                                                          : y;
}

static weft_status norm_init(const weft_nn_norm_args *a, const char *op, bool with_bias)
{
    weft_status s = WF_LAYER_OPEN(op, a, weight);
    if (s != WEFT_OK) {
        return s;
    }
    weft_shape shape = extents(1, a->dim, 0, 0, 0);
    a->layer->eps = a->eps;
    a->layer->weight = wf_layer_constant(a->module, "weight", &shape, a->dtype, 1, false);
    if (with_bias) {
        a->layer->bias = wf_layer_constant(a->module, "bias", &shape, a->dtype, 0, false);
    }
    return wf_layer_close(a->module, &a->layer->weight, WEFT_OK);
}

weft_status(weft_nn_layer_norm_init)(const weft_nn_norm_args *args)
{
    return norm_init(args, "layer_norm", true);
}

weft_status(weft_nn_rms_norm_init)(const weft_nn_norm_args *args)
{
    return norm_init(args, "rms_norm", false);
}

weft_status(weft_nn_instance_norm_init)(const weft_nn_norm_args *args)
{
    return norm_init(args, "instance_norm", true);
}

weft_tensor weft_nn_layer_norm_forward(const weft_nn_norm *layer, weft_tensor x)
{
    weft_tensor y;
    if (!WF_LAYER_READY("layer_norm", layer, weight, &y)) {
        return y;
    }
    return (weft_layer_norm)(&(weft_layer_norm_args){
        .x = x, .weight = layer->weight, .bias = layer->bias, .eps = layer->eps});
}

weft_tensor weft_nn_rms_norm_forward(const weft_nn_norm *layer, weft_tensor x)
{
    weft_tensor y;
    if (!WF_LAYER_READY("rms_norm", layer, weight, &y)) {
        return y;
    }
    return (
        weft_rms_norm)(&(weft_rms_norm_args){.x = x, .weight = layer->weight, .eps = layer->eps});
}

weft_tensor weft_nn_instance_norm_forward(const weft_nn_norm *layer, weft_tensor x)
{
    weft_tensor y;
    if (!WF_LAYER_READY("instance_norm", layer, weight, &y)) {
        return y;
    }
    return (weft_instance_norm)(&(weft_instance_norm_args){
        .x = x, .weight = layer->weight, .bias = layer->bias, .eps = layer->eps});
}

weft_status(weft_nn_group_norm_init)(const weft_nn_group_norm_args *a)
{
    weft_status s = WF_LAYER_OPEN("group_norm", a, weight);
    if (s != WEFT_OK) {
        return s;
    }
    weft_nn_group_norm *l = a->layer;
    *l = (weft_nn_group_norm){.groups = a->groups, .eps = a->eps};
    if (a->groups < 1 || a->dim < 1 || a->dim % a->groups != 0) {
        s = wf_layer_refuse(a->module, "group_norm",
                            "groups and dim must be at least 1, and groups divide dim");
    } else {
        weft_shape shape = extents(1, a->dim, 0, 0, 0);
        l->weight = wf_layer_constant(a->module, "weight", &shape, a->dtype, 1, false);
        l->bias = wf_layer_constant(a->module, "bias", &shape, a->dtype, 0, false);
    }
    return wf_layer_close(a->module, &a->layer->weight, s);
}

weft_tensor weft_nn_group_norm_forward(const weft_nn_group_norm *layer, weft_tensor x)
{
    weft_tensor y;
    if (!WF_LAYER_READY("group_norm", layer, weight, &y)) {
        return y;
    }
    return (weft_group_norm)(&(weft_group_norm_args){.x = x,
                                                     .groups = layer->groups,
                                                     .weight = layer->weight,
                                                     .bias = layer->bias,
                                                     .eps = layer->eps});
}

/* -- convolutions ------------------------------------------------------------------------------------------------ */

/* What a convolution's parameters are made of: weight[rows, depth, size, ..] of `axes` axes, bias[out]. */
typedef struct kernel {
    const char *op;
    weft_module *module;
    int axes;
    int64_t in, out, groups, rows, depth;
    weft_shape size; /* of each axis, or one number for all */
    bool no_bias;
    weft_dtype dtype;
} kernel;

/* One number an axis, or `all` for each. */
static weft_shape each_axis(weft_shape each, int64_t all)
{
    return each.n || wf_is_bare(&each) ? each : extents(1, all, 0, 0, 0);
}

/* Of the arguments of either kind; its weight is [all_rows, all_depth / groups, ..]. */
#define KERNEL_OF(op_, axes_, a, groups_, all_rows, all_depth)                                     \
    {                                                                                              \
        .op = (op_), .module = (a)->module, .axes = (axes_), .in = (a)->in, .out = (a)->out,       \
        .size = each_axis((a)->kernels, (a)->kernel), .groups = (groups_), .rows = (all_rows),     \
        .depth = (groups_) > 0 ? (all_depth) / (groups_) : 0, .no_bias = (a)->no_bias,             \
        .dtype = (a)->dtype                                                                        \
    }

static weft_status add_kernel(const kernel *k, weft_tensor *weight, weft_tensor *bias)
{
    int64_t field = k->depth, size[2] = {0, 0};
    bool ok = k->in >= 1 && k->out >= 1 && k->groups >= 1 && k->in % k->groups == 0 &&
              k->out % k->groups == 0 && (k->size.n == 1 || k->size.n == k->axes);
    for (int i = 0; i < k->axes && ok; i++) {
        size[i] = k->size.v[k->size.n == 1 ? 0 : i];
        ok = size[i] >= 1 && !__builtin_mul_overflow(field, size[i], &field);
    }
    if (!ok) {
        return wf_layer_refuse(k->module, k->op,
                               "in, out, kernel and groups must be at least 1, and groups divide "
                               "in and out; kernels have "
                               "one number, or one an axis");
    }
    weft_shape w = extents(2 + k->axes, k->rows, k->depth, size[0], size[1]);
    weft_shape b = extents(1, k->out, 0, 0, 0);
    *weight = wf_layer_constant(k->module, "weight", &w, k->dtype, 0, false);
    if (!k->no_bias) {
        *bias = wf_layer_constant(k->module, "bias", &b, k->dtype, 0, false);
    }
    return wf_layer_spread(k->module, *weight, *bias, field);
}

static weft_status conv_init(const char *op, const weft_nn_conv2d_args *a, int axes)
{
    weft_status s = WF_LAYER_OPEN(op, a, weight);
    if (s != WEFT_OK) {
        return s;
    }
    const int64_t groups = a->groups ? a->groups : 1;
    weft_nn_conv2d *l = a->layer;
    *l = (weft_nn_conv2d){.stride = a->stride ? a->stride : 1,
                          .padding = a->padding,
                          .dilation = a->dilation ? a->dilation : 1,
                          .groups = groups,
                          .strides = a->strides,
                          .paddings = a->paddings,
                          .dilations = a->dilations};
    const kernel k = KERNEL_OF(op, axes, a, groups, a->out, a->in);
    return wf_layer_close(a->module, &a->layer->weight, add_kernel(&k, &l->weight, &l->bias));
}

weft_status(weft_nn_conv1d_init)(const weft_nn_conv2d_args *args)
{
    return conv_init("conv1d", args, 1);
}

weft_status(weft_nn_conv2d_init)(const weft_nn_conv2d_args *args)
{
    return conv_init("conv2d", args, 2);
}

static weft_conv2d_args conv_args(const weft_nn_conv2d *l, weft_tensor x)
{
    return (weft_conv2d_args){.x = x,
                              .weight = l->weight,
                              .bias = l->bias,
                              .stride = each_axis(l->strides, l->stride),
                              .padding = each_axis(l->paddings, l->padding),
                              .dilation = each_axis(l->dilations, l->dilation),
                              .groups = l->groups};
}

weft_tensor weft_nn_conv1d_forward(const weft_nn_conv2d *layer, weft_tensor x)
{
    weft_tensor y;
    if (!WF_LAYER_READY("conv1d", layer, weight, &y)) {
        return y;
    }
    const weft_conv2d_args args = conv_args(layer, x);
    return (weft_conv1d)(&args);
}

weft_tensor weft_nn_conv2d_forward(const weft_nn_conv2d *layer, weft_tensor x)
{
    weft_tensor y;
    if (!WF_LAYER_READY("conv2d", layer, weight, &y)) {
        return y;
    }
    const weft_conv2d_args args = conv_args(layer, x);
    return (weft_conv2d)(&args);
}

static weft_status conv_transpose_init(const char *op, const weft_nn_conv_transpose_args *a,
                                       int axes)
{
    weft_status s = WF_LAYER_OPEN(op, a, weight);
    if (s != WEFT_OK) {
        return s;
    }
    const int64_t groups = a->groups ? a->groups : 1;
    weft_nn_conv_transpose *l = a->layer;
    *l = (weft_nn_conv_transpose){.stride = a->stride ? a->stride : 1,
                                  .padding = a->padding,
                                  .output_padding = a->output_padding,
                                  .dilation = a->dilation ? a->dilation : 1,
                                  .groups = groups,
                                  .strides = a->strides,
                                  .paddings = a->paddings,
                                  .output_paddings = a->output_paddings,
                                  .dilations = a->dilations};
    const kernel k = KERNEL_OF(op, axes, a, groups, a->in, a->out);
    return wf_layer_close(a->module, &a->layer->weight, add_kernel(&k, &l->weight, &l->bias));
}

weft_status(weft_nn_conv_transpose1d_init)(const weft_nn_conv_transpose_args *args)
{
    return conv_transpose_init("conv_transpose1d", args, 1);
}

weft_status(weft_nn_conv_transpose2d_init)(const weft_nn_conv_transpose_args *args)
{
    return conv_transpose_init("conv_transpose2d", args, 2);
}

static weft_conv_transpose_args conv_transpose_args(const weft_nn_conv_transpose *l, weft_tensor x)
{
    return (weft_conv_transpose_args){.x = x,
                                      .weight = l->weight,
                                      .bias = l->bias,
                                      .stride = each_axis(l->strides, l->stride),
                                      .padding = each_axis(l->paddings, l->padding),
                                      .output_padding =
                                          each_axis(l->output_paddings, l->output_padding),
                                      .dilation = each_axis(l->dilations, l->dilation),
                                      .groups = l->groups};
}

weft_tensor weft_nn_conv_transpose1d_forward(const weft_nn_conv_transpose *layer, weft_tensor x)
{
    weft_tensor y;
    if (!WF_LAYER_READY("conv_transpose1d", layer, weight, &y)) {
        return y;
    }
    const weft_conv_transpose_args args = conv_transpose_args(layer, x);
    return (weft_conv_transpose1d)(&args);
}

weft_tensor weft_nn_conv_transpose2d_forward(const weft_nn_conv_transpose *layer, weft_tensor x)
{
    weft_tensor y;
    if (!WF_LAYER_READY("conv_transpose2d", layer, weight, &y)) {
        return y;
    }
    const weft_conv_transpose_args args = conv_transpose_args(layer, x);
    return (weft_conv_transpose2d)(&args);
}

weft_status(weft_nn_batch_norm2d_init)(const weft_nn_batch_norm2d_args *a)
{
    weft_status s = WF_LAYER_OPEN("batch_norm2d", a, weight);
    if (s != WEFT_OK) {
        return s;
    }
    weft_nn_batch_norm2d *l = a->layer;
    weft_shape shape = extents(1, a->dim, 0, 0, 0), none = extents(0, 0, 0, 0, 0);
    *l = (weft_nn_batch_norm2d){.momentum = a->momentum, .eps = a->eps, .module = a->module};
    l->weight = wf_layer_constant(a->module, "weight", &shape, a->dtype, 1, false);
    l->bias = wf_layer_constant(a->module, "bias", &shape, a->dtype, 0, false);
    l->running_mean = wf_layer_constant(a->module, "running_mean", &shape, a->dtype, 0, true);
    l->running_var = wf_layer_constant(a->module, "running_var", &shape, a->dtype, 1, true);
    l->batches = wf_layer_constant(a->module, "num_batches_tracked", &none, WEFT_I64, 0, true);
    return wf_layer_close(a->module, &a->layer->weight, WEFT_OK);
}

weft_tensor weft_nn_batch_norm2d_forward(const weft_nn_batch_norm2d *l, weft_tensor x)
{
    weft_tensor y;
    if (!WF_LAYER_READY("batch_norm2d", l, weight, &y)) {
        return y;
    }
    bool training = weft_module_training(l->module);
    y = (weft_batch_norm)(&(weft_batch_norm_args){.x = x,
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
        if (layer) { /* a p that every forward refuses, as this does */
            *layer = (weft_nn_dropout){NAN, module};
        }
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
