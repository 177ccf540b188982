/*
 * nn/layers.c -- layers as structs of handles: registration of their parameters, and their forward pass.
 *
 * Invariants: an init registers all of its parameters or remembers the failure in the module and in the layer, whose
 * forward returns it from then on; a forward leaves one new handle in the caller's scope. Initial weights follow
 * PyTorch's defaults, so that a model moved over starts from the same distribution.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "eager/pool.h"
#include "nn/nn.h"

/* Can a tensor of the layer be of this type and these extents? Else the error is recorded. */
static bool value_ok(weft_module *m, const char *leaf, const weft_shape *shape, weft_dtype dtype,
                     bool buffer)
{
    const bool is_float = dtype == WEFT_DTYPE_DEFAULT || dtype == WEFT_F16 || dtype == WEFT_BF16 ||
                          dtype == WEFT_F32 || dtype == WEFT_F64;
    if (!buffer && !is_float) {
        wf_layer_refuse(m, WEFT_EDTYPE,
                        "dtype is %s; parameters are f16, bf16, f32 or f64 (WEFT_F32, ...)",
                        weft_dtype_name(dtype));
        return false;
    }
    char extents[WF_MAX_RANK * 22] = "";
    size_t at = 0;
    int64_t bytes = (int64_t)weft_dtype_size(dtype ? dtype : WEFT_F32);
    bool fits = true;
    for (int i = 0; i < shape->n; i++) {
        fits = !__builtin_mul_overflow(bytes, shape->v[i], &bytes) && fits;
        at += (size_t)snprintf(extents + at, sizeof extents - at, i ? ",%lld" : "%lld",
                               (long long)shape->v[i]);
    }
    if (!fits) {
        wf_layer_refuse(m, WEFT_ENOMEM, "%s would be %s[%s], whose size overflows 64 bits", leaf,
                        weft_dtype_name(dtype ? dtype : WEFT_F32), extents);
    }
    return fits;
}

weft_tensor wf_layer_constant(weft_module *m, const char *leaf, const weft_shape *shape,
                              weft_dtype dtype, double value, bool buffer)
{
    if (wf_module_failed(m) != WEFT_OK || !value_ok(m, leaf, shape, dtype, buffer)) {
        return WEFT_NONE;
    }
    char who[WF_WHO_SIZE];
    wf_called w; /* an error is about the layer, no weft_full */
    wf_called_begin(&w, wf_module_who(m, who), 0, NULL);
    weft_scope scope = weft_scope_begin();
    weft_tensor t = wf_called_end(&w, weft_full(*shape, value, dtype ? dtype : WEFT_F32));
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
        char who[WF_WHO_SIZE];
        snprintf(who, sizeof who, "nn_%s_init%s%.500s%s", op, name ? " '" : "", name ? name : "",
                 name ? "'" : "");
        wf_api_null(who, !layer ? "the layer" : !m ? "the module" : "the name");
        return keep_failure(first, wf_module_note(m, WEFT_EINVALID));
    }
    if (wf_module_failed(m) != WEFT_OK) { /* the layer that this is a part of */
        return keep_failure(first, wf_module_failed(m));
    }
    wf_module_open(m, op);
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

weft_status wf_layer_refuse(weft_module *m, weft_status status, const char *fmt, ...)
{
    char who[WF_WHO_SIZE], rule[400];
    va_list list;
    va_start(list, fmt);
    vsnprintf(rule, sizeof rule, fmt, list);
    va_end(list);
    wf_api_error(wf_module_who(m, who), (int)status, "%s", rule);
    return wf_module_note(m, status);
}

weft_status wf_layer_at_least(weft_module *m, const char *argument, int64_t value, int64_t least)
{
    return value >= least ? WEFT_OK
                          : wf_layer_refuse(m, WEFT_ESHAPE, "%s is %lld; it must be at least %lld",
                                            argument, (long long)value, (long long)least);
}

weft_status wf_layer_multiple(weft_module *m, const char *argument, int64_t value, const char *of,
                              int64_t divisor)
{
    return value % divisor == 0
               ? WEFT_OK
               : wf_layer_refuse(m, WEFT_ESHAPE,
                                 "%s is %lld and %s is %lld; %s must be a multiple of %s", argument,
                                 (long long)value, of, (long long)divisor, argument, of);
}

weft_status wf_layer_probability(weft_module *m, const char *argument, double value)
{
    return value >= 0 && value <= 1
               ? WEFT_OK
               : wf_layer_refuse(m, WEFT_ESHAPE, "%s is %g; it must be in [0, 1]", argument, value);
}

weft_status wf_layer_spread(weft_module *m, weft_tensor weight, weft_tensor bias, int64_t fan)
{
    double bound = wf_plain_rsqrt((double)fan);
    weft_generator *g = wf_module_generator(m);
    if (wf_module_failed(m) != WEFT_OK) {
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
    s = wf_layer_at_least(a->module, "in", a->in, 1);
    s = s != WEFT_OK ? s : wf_layer_at_least(a->module, "out", a->out, 1);
    if (s == WEFT_OK) {
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
    s = wf_layer_at_least(a->module, "n", a->n, 0);
    s = s != WEFT_OK ? s : wf_layer_at_least(a->module, "dim", a->dim, 0);
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
    s = wf_layer_at_least(a->module, "dim", a->dim, 0);
    a->layer->weight = wf_layer_constant(a->module, "weight", &shape, a->dtype, 1, false);
    if (with_bias) {
        a->layer->bias = wf_layer_constant(a->module, "bias", &shape, a->dtype, 0, false);
    }
    return wf_layer_close(a->module, &a->layer->weight, s);
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
    s = wf_layer_at_least(a->module, "groups", a->groups, 1);
    s = s != WEFT_OK ? s : wf_layer_at_least(a->module, "dim", a->dim, 1);
    s = s != WEFT_OK ? s : wf_layer_multiple(a->module, "dim", a->dim, "groups", a->groups);
    if (s == WEFT_OK) {
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
    weft_module *module;
    int axes;
    int64_t in, out, groups, rows, depth;
    weft_shape size;     /* of each axis, or one number for all */
    bool no_bias, named; /* named: the sizes are kernels, not kernel */
    weft_dtype dtype;
} kernel;

/* One number an axis, or `all` for each. */
static weft_shape each_axis(weft_shape each, int64_t all)
{
    return each.n || wf_is_bare(&each) ? each : extents(1, all, 0, 0, 0);
}

/* Of the arguments of either kind; its weight is [all_rows, all_depth / groups, ..]. */
#define KERNEL_OF(axes_, a, groups_, all_rows, all_depth)                                          \
    {                                                                                              \
        .module = (a)->module, .axes = (axes_), .in = (a)->in, .out = (a)->out,                    \
        .named = (a)->kernels.n != 0, .size = each_axis((a)->kernels, (a)->kernel),                \
        .groups = (groups_), .rows = (all_rows),                                                   \
        .depth = (groups_) > 0 ? (all_depth) / (groups_) : 0, .no_bias = (a)->no_bias,             \
        .dtype = (a)->dtype                                                                        \
    }

/* The rules of a kernel, in the order of the arguments. */
static weft_status kernel_check(const kernel *k)
{
    weft_module *m = k->module;
    weft_status s = wf_layer_at_least(m, "in", k->in, 1);
    s = s != WEFT_OK ? s : wf_layer_at_least(m, "out", k->out, 1);
    s = s != WEFT_OK ? s : wf_layer_at_least(m, "groups", k->groups, 1);
    s = s != WEFT_OK ? s : wf_layer_multiple(m, "in", k->in, "groups", k->groups);
    s = s != WEFT_OK ? s : wf_layer_multiple(m, "out", k->out, "groups", k->groups);
    if (s == WEFT_OK && wf_is_bare(&k->size)) {
        s = wf_layer_refuse(m, WEFT_EINVALID,
                            "a bare number stands where the kernels belong; write "
                            "weft_shape(2, 3), or .kernel = 3");
    }
    if (s == WEFT_OK && k->size.n != 1 && k->size.n != k->axes) {
        s = wf_layer_refuse(m, WEFT_ESHAPE,
                            "kernels has %lld numbers; it takes one, or one an axis: %d",
                            (long long)k->size.n, k->axes);
    }
    for (int i = 0; i < k->size.n && s == WEFT_OK; i++) {
        s = wf_layer_at_least(m, k->named ? i ? "kernels[1]" : "kernels[0]" : "kernel",
                              k->size.v[i], 1);
    }
    return s;
}

static weft_status add_kernel(const kernel *k, weft_tensor *weight, weft_tensor *bias)
{
    int64_t field = k->depth, size[2] = {0, 0};
    weft_status s = kernel_check(k);
    if (s != WEFT_OK) {
        return s;
    }
    for (int i = 0; i < k->axes; i++) {
        size[i] = k->size.v[k->size.n == 1 ? 0 : i];
        if (__builtin_mul_overflow(field, size[i], &field)) {
            field = INT64_MAX; /* the weight is refused */
        }
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
    const kernel k = KERNEL_OF(axes, a, groups, a->out, a->in);
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
    const kernel k = KERNEL_OF(axes, a, groups, a->in, a->out);
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
    s = wf_layer_at_least(a->module, "dim", a->dim, 0);
    l->weight = wf_layer_constant(a->module, "weight", &shape, a->dtype, 1, false);
    l->bias = wf_layer_constant(a->module, "bias", &shape, a->dtype, 0, false);
    l->running_mean = wf_layer_constant(a->module, "running_mean", &shape, a->dtype, 0, true);
    l->running_var = wf_layer_constant(a->module, "running_var", &shape, a->dtype, 1, true);
    l->batches = wf_layer_constant(a->module, "num_batches_tracked", &none, WEFT_I64, 0, true);
    return wf_layer_close(a->module, &a->layer->weight, s);
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
        if (layer && module) {
            wf_api_error("nn_dropout_init", WEFT_EINVALID, "p is %g; it must be in [0, 1]", p);
        } else {
            wf_api_null("nn_dropout_init", layer ? "the module" : "the layer");
        }
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
