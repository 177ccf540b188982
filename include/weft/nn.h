/*
 * weft/nn.h -- modules, initialisers, layers, checkpoints; with weft/optim.h and weft/nn_sequence.h.
 *
 * A weft_module is a registry: it owns every parameter and buffer of a model under a dotted name, as
 * PyTorch spells it ("h.0.ln_1.weight"), so that weights saved there load here. Layers are plain
 * structs that hold handles of it; forward functions are ordinary host code that calls ops.
 *
 *     weft_module *m = weft_module_new(NULL);
 *     weft_nn_linear fc;
 *     weft_nn_linear_init(&fc, m, "fc", 784, 10);
 *     if (weft_module_status(m) != WEFT_OK) ...                one check for all layers
 *     weft_tensor y = weft_nn_linear_forward(&fc, x);
 *     weft_module_free(m);                                      frees every parameter
 *
 * Said once, of every layer:
 *  - init returns what went wrong first in it, whatever failed before, and makes nothing after that: WEFT_EINVALID (no layer, no
 *    module, no name or one that is taken, a number out of its domain), WEFT_ESHAPE (extents below 1, or that do not divide each
 *    other), WEFT_EDTYPE (parameters are f16, bf16, f32 or f64), WEFT_ENOMEM. The text names the init, the layer by its whole name,
 *    the argument and its value. The module remembers its first failure.
 *  - The layer keeps that error, and its forward returns it. Otherwise forward's errors are those of its ops (weft/ops.h), and its
 *    result belongs to the current scope. The layer's tensors are the module's.
 *  - A module, its layers and its optimiser belong to one thread at a time.
 *  - Options go by name in C; in C++ they are parameters in the same order.
 */
#ifndef WEFT_NN_H
#define WEFT_NN_H

#include "weft/io.h"
#include "weft/ops.h"
#include "weft/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- registry ------------------------------------------------------------------------------------- */
typedef struct weft_module weft_module;

/* An empty module in training mode. Initialisers and dropout draw from `generator`, which must
 * outlive the module; NULL: the thread's. NULL when memory is exhausted. */
WEFT_API weft_module *weft_module_new(weft_generator *generator WEFT_OR(nullptr));
/* Frees every parameter and buffer, and the module. NULL is ignored. */
WEFT_API void weft_module_free(weft_module *m);
/* WEFT_OK, or the status of the first registration that failed. */
WEFT_API weft_status weft_module_status(const weft_module *m);

/* Names registered from now on start with this text and a dot, of an empty text with nothing; they nest, at most 16 deep
 * (WEFT_EINVALID beyond, which the module remembers; WEFT_ENOMEM). */
WEFT_API weft_status weft_module_push(weft_module *m, const char *format, ...) WEFT_PRINTF(2, 3);
/* Drops the innermost prefix. WEFT_EINVALID if there is none. */
WEFT_API weft_status weft_module_pop(weft_module *m);

/* Registers value (taken: kept, named, and freed with the module) and returns it. A parameter
 * requires a gradient and is floating point; a buffer is saved and loaded but not trained. On failure
 * (name taken, wrong type, memory) the error is returned and value, which was m's from the call on, is released; where
 * there is no module to take it (m is NULL) it stays the caller's. A value is registered
 * once (WEFT_EINVALID, and it stays): layers that share a parameter use the one handle. WEFT_EHANDLE for a dead value. */
WEFT_API weft_tensor weft_module_parameter(weft_module *m, const char *name, weft_tensor value);
WEFT_API weft_tensor weft_module_buffer(weft_module *m, const char *name, weft_tensor value);

/* Parameters and buffers in order of registration. weft_module_at: i in [0, count); an empty entry
 * {"", WEFT_NONE} outside. The name lives as long as the module. */
WEFT_API int weft_module_count(const weft_module *m);
WEFT_API weft_named_tensor weft_module_at(const weft_module *m, int i);
WEFT_API bool weft_module_is_parameter(const weft_module *m, int i);
/* By full name, the module's own handle: it is neither the scope's nor yours to free. The empty handle of a WEFT_EINVALID error if
 * there is none. */
WEFT_API weft_tensor weft_module_get(const weft_module *m, const char *name);
/* Elements of all parameters. */
WEFT_API int64_t weft_module_numel(const weft_module *m);
/* Every parameter and buffer as an array of weft_module_count entries, as the functions of weft/io.h
 * take it; valid until the next registration. NULL when there are none. */
WEFT_API const weft_named_tensor *weft_module_entries(const weft_module *m);

/* Moves every parameter, buffer and gradient to the device; handles stay, so layers need not know. An optimiser is made
 * afterwards. Graphs recorded before stay good: they read what they saved, and their gradients follow the parameters.
 * WEFT_EGRAD for a buffer that is a recorded result, and nothing has moved. */
WEFT_API weft_status weft_module_to(weft_module *m, weft_device device);
/* Drops all gradients. WEFT_EINVALID if m is NULL. */
WEFT_API weft_status weft_module_zero_grad(weft_module *m);
/* Training mode on or off: dropout and batch norm look at it. */
WEFT_API void weft_module_train(weft_module *m, bool training);
WEFT_API bool weft_module_training(const weft_module *m);

/* Scales all gradients by max_norm / (total + 1e-6) if their Euclidean norm over all parameters
 * exceeds max_norm > 0 (WEFT_EINVALID). *norm (may be NULL): the norm before. Parameters without gradient are
 * skipped. Sums are in the canonical order, so the bits do not depend on the number of threads. */
WEFT_API weft_status weft_module_clip_grad_norm(weft_module *m, double max_norm,
                                                double *norm WEFT_OR(nullptr));
/* Every element of every gradient := held in [-value, value], value > 0 (WEFT_EINVALID); NaN stays. */
WEFT_API weft_status weft_module_clip_grad_value(weft_module *m, double value);
/* A moving average of another module's parameters, or a copy of them: every parameter p of m := p + weight * (q - p), as weft_lerp,
 * where q is the source's of that name, or q itself where weight is 1; every buffer := the source's. weight in [0, 1]; not recorded
 * for gradients. The source has every name of m, in the same shape, and m's memory may be written, each element at an address of
 * its own, else nothing is written (WEFT_EINVALID, WEFT_ESHAPE); types may differ, devices where weight is 1. For evaluation:
 * Polyak and Juditsky 1992; target networks: Lillicrap et al. 2016. */
WEFT_API weft_status weft_module_lerp(weft_module *m, const weft_module *source, double weight);

/* -- initialisers ------------------------------------------------------------------------------------
 * Overwrite t (floating point, any rank unless said), not recorded for gradients. generator NULL: the
 * thread's. fan_in = dims 1.. of the weight, fan_out = dim 0 and dims 2..; they need rank >= 2 (WEFT_ESHAPE). Other errors:
 * WEFT_EDTYPE for what is no float, WEFT_EINVALID for numbers outside of what each says and for read-only memory, WEFT_EHANDLE. */
typedef enum weft_fan { WEFT_FAN_IN = 0, WEFT_FAN_OUT } weft_fan;

/* Every element := value. */
WEFT_API weft_status weft_init_constant(weft_tensor t, double value);
/* Uniform in [low, high), low < high. */
WEFT_API weft_status weft_init_uniform(weft_tensor t, double low, double high,
                                       weft_generator *g WEFT_OR(nullptr));
/* Normal, std >= 0. */
WEFT_API weft_status weft_init_normal(weft_tensor t, double mean, double std,
                                      weft_generator *g WEFT_OR(nullptr));
/* Normal held inside [low, high] by drawing again; the interval needs at least 1 % of the mass. */
WEFT_API weft_status weft_init_trunc_normal(weft_tensor t, double mean, double std, double low,
                                            double high, weft_generator *g WEFT_OR(nullptr));
/* Variance gain^2 * 2 / (fan_in + fan_out) (Glorot and Bengio 2010, eq. 16). */
WEFT_API weft_status weft_init_xavier_uniform(weft_tensor t, double gain,
                                              weft_generator *g WEFT_OR(nullptr));
WEFT_API weft_status weft_init_xavier_normal(weft_tensor t, double gain,
                                             weft_generator *g WEFT_OR(nullptr));
/* Variance 2 / ((1 + slope^2) * fan), slope: of the leaky ReLU that follows (He et al. 2015, eq. 15). */
WEFT_API weft_status weft_init_kaiming_uniform(weft_tensor t, double slope, weft_fan fan,
                                               weft_generator *g WEFT_OR(nullptr));
WEFT_API weft_status weft_init_kaiming_normal(weft_tensor t, double slope, weft_fan fan,
                                              weft_generator *g WEFT_OR(nullptr));
/* gain times a matrix whose rows, or columns if there are fewer of them, are orthonormal, uniform among all such (Saxe et al.
 * 2014). The matrix is t with the axes from the second on made one; rank >= 2. Computed in f64 on one thread of the host, 1 s
 * for 1024 x 1024; it breaks a trace. */
WEFT_API weft_status weft_init_orthogonal(weft_tensor t, double gain,
                                          weft_generator *g WEFT_OR(nullptr));

/* -- layers --------------------------------------------------------------------------------------------
 * Each `init` takes the layer to fill, the module, a name under the current prefix ("": right under it) and extents, then
 * options by name. Default dtype: f32. Defaults of values and initial weights are PyTorch's. */

/* x[.., in] -> x weight[out, in]^T + bias[out]. Weight and bias uniform in +-1/sqrt(in). */
typedef struct weft_nn_linear {
    weft_tensor weight, bias;
} weft_nn_linear;
typedef struct weft_nn_linear_args {
    weft_nn_linear *layer;
    weft_module *module;
    const char *name;
    int64_t in, out;
    bool no_bias;
    weft_dtype dtype;
    int end_;
} weft_nn_linear_args;
WEFT_API weft_status weft_nn_linear_init(const weft_nn_linear_args *args);
WEFT_API weft_tensor weft_nn_linear_forward(const weft_nn_linear *layer, weft_tensor x);

/* Integer indices[..] -> rows of weight[n, dim]: [.., dim]. Normal(0, 1). */
typedef struct weft_nn_embedding {
    weft_tensor weight;
} weft_nn_embedding;
typedef struct weft_nn_embedding_args {
    weft_nn_embedding *layer;
    weft_module *module;
    const char *name;
    int64_t n, dim;
    weft_dtype dtype;
    int end_;
} weft_nn_embedding_args;
WEFT_API weft_status weft_nn_embedding_init(const weft_nn_embedding_args *args);
WEFT_API weft_tensor weft_nn_embedding_forward(const weft_nn_embedding *layer, weft_tensor indices);

/* Layer norm (bias[dim], eps 1e-5) and RMS norm (no bias, eps 1e-6) over the last axis of x[.., dim]. */
typedef struct weft_nn_norm {
    weft_tensor weight, bias;
    double eps;
} weft_nn_norm;
typedef struct weft_nn_norm_args {
    weft_nn_norm *layer;
    weft_module *module;
    const char *name;
    int64_t dim;
    double eps;
    weft_dtype dtype;
    int end_;
} weft_nn_norm_args;
WEFT_API weft_status weft_nn_layer_norm_init(const weft_nn_norm_args *args);
WEFT_API weft_tensor weft_nn_layer_norm_forward(const weft_nn_norm *layer, weft_tensor x);
WEFT_API weft_status weft_nn_rms_norm_init(const weft_nn_norm_args *args);
WEFT_API weft_tensor weft_nn_rms_norm_forward(const weft_nn_norm *layer, weft_tensor x);
/* Instance norm of x[n, dim, ..] (bias[dim], eps 1e-5): torch.nn.InstanceNorm1d to 3d with affine=True; without, there is
 * nothing to register: weft_instance_norm. */
WEFT_API weft_status weft_nn_instance_norm_init(const weft_nn_norm_args *args);
WEFT_API weft_tensor weft_nn_instance_norm_forward(const weft_nn_norm *layer, weft_tensor x);

/* x[n, dim, ..] over `groups` groups of channels, which divide dim: weft_group_norm with weight[dim] and bias[dim]. */
typedef struct weft_nn_group_norm {
    weft_tensor weight, bias;
    int64_t groups;
    double eps;
} weft_nn_group_norm;
typedef struct weft_nn_group_norm_args {
    weft_nn_group_norm *layer;
    weft_module *module;
    const char *name;
    int64_t groups, dim;
    double eps; /* default 1e-5 */
    weft_dtype dtype;
    int end_;
} weft_nn_group_norm_args;
WEFT_API weft_status weft_nn_group_norm_init(const weft_nn_group_norm_args *args);
WEFT_API weft_tensor weft_nn_group_norm_forward(const weft_nn_group_norm *layer, weft_tensor x);

/* x[n, in, h, w] with weight[out, in / groups, kernel, kernel]: weft_conv2d with bias[out]; 1d: x[n, in, w] with
 * weight[out, in / groups, kernel]. groups divide in and out. Weight and bias uniform in +-1/sqrt(fan_in). Numbers that differ
 * from axis to axis are given by the names of several: weft_nn_conv2d_init(&l, m, "c", 3, 8, .kernels = weft_shape(1, 7),
 * .paddings = weft_shape(0, 3)); such a shape, of as many numbers as x has axes for them or of one, counts instead of the
 * number. Strides, paddings and dilations are looked at by forward, which says what is wrong with them. */
typedef struct weft_nn_conv2d {
    weft_tensor weight, bias;
    int64_t stride, padding, dilation, groups;
    weft_shape strides, paddings, dilations; /* n = 0: the numbers above */
} weft_nn_conv2d;
typedef struct weft_nn_conv2d_args {
    weft_nn_conv2d *layer;
    weft_module *module;
    const char *name;
    int64_t in, out, kernel;
    int64_t stride, padding, dilation, groups; /* defaults 1, 0, 1, 1 */
    bool no_bias;
    weft_dtype dtype;
    weft_shape kernels, strides, paddings, dilations;
    int end_;
} weft_nn_conv2d_args;
WEFT_API weft_status weft_nn_conv2d_init(const weft_nn_conv2d_args *args);
WEFT_API weft_tensor weft_nn_conv2d_forward(const weft_nn_conv2d *layer, weft_tensor x);
WEFT_API weft_status weft_nn_conv1d_init(const weft_nn_conv2d_args *args);
WEFT_API weft_tensor weft_nn_conv1d_forward(const weft_nn_conv2d *layer, weft_tensor x);

/* The transposes: x[n, in, h, w] with weight[in, out / groups, kernel, kernel], or x[n, in, w] with
 * weight[in, out / groups, kernel]: weft_conv_transpose2d and 1d with bias[out]. Weight and bias uniform in
 * +-1/sqrt(out / groups * elements of the kernel). */
typedef struct weft_nn_conv_transpose {
    weft_tensor weight, bias;
    int64_t stride, padding, output_padding, dilation, groups;
    weft_shape strides, paddings, output_paddings, dilations; /* n = 0: the numbers above */
} weft_nn_conv_transpose;
typedef struct weft_nn_conv_transpose_args {
    weft_nn_conv_transpose *layer;
    weft_module *module;
    const char *name;
    int64_t in, out, kernel;
    int64_t stride, padding, output_padding, dilation, groups; /* defaults 1, 0, 0, 1, 1 */
    bool no_bias;
    weft_dtype dtype;
    weft_shape kernels, strides, paddings, output_paddings, dilations;
    int end_;
} weft_nn_conv_transpose_args;
WEFT_API weft_status weft_nn_conv_transpose1d_init(const weft_nn_conv_transpose_args *args);
WEFT_API weft_tensor weft_nn_conv_transpose1d_forward(const weft_nn_conv_transpose *layer,
                                                      weft_tensor x);
WEFT_API weft_status weft_nn_conv_transpose2d_init(const weft_nn_conv_transpose_args *args);
WEFT_API weft_tensor weft_nn_conv_transpose2d_forward(const weft_nn_conv_transpose *layer,
                                                      weft_tensor x);

/* x[n, dim, ..], of any number of axes behind (torch.nn.BatchNorm1d to 3d): by the batch's statistics while the module trains
 * (the running ones move), else by the running ones. Buffers: running_mean, running_var, num_batches_tracked (i64). */
typedef struct weft_nn_batch_norm2d {
    weft_tensor weight, bias, running_mean, running_var, batches;
    double momentum, eps;
    const weft_module *module;
} weft_nn_batch_norm2d;
typedef struct weft_nn_batch_norm2d_args {
    weft_nn_batch_norm2d *layer;
    weft_module *module;
    const char *name;
    int64_t dim;
    double momentum, eps; /* defaults 0.1, 1e-5 */
    weft_dtype dtype;
    int end_;
} weft_nn_batch_norm2d_args;
WEFT_API weft_status weft_nn_batch_norm2d_init(const weft_nn_batch_norm2d_args *args);
WEFT_API weft_tensor weft_nn_batch_norm2d_forward(const weft_nn_batch_norm2d *layer, weft_tensor x);

/* Drops elements with probability p while the module trains; draws from the module's generator. */
typedef struct weft_nn_dropout {
    double p;
    const weft_module *module;
} weft_nn_dropout;
WEFT_API weft_status weft_nn_dropout_init(weft_nn_dropout *layer, weft_module *module, double p);
WEFT_API weft_tensor weft_nn_dropout_forward(const weft_nn_dropout *layer, weft_tensor x);

/* -- checkpoints ---------------------------------------------------------------------------------------- */
/* A training run in one safetensors file: the module's parameters and buffers, the optimiser's state and
 * any further tensors (step, random state, position in the data). Saving is atomic; loading checks every
 * name and shape before it writes into the tensors. WEFT_EIO: the file cannot be read or written, or is malformed; WEFT_EINVALID: a
 * name that is missing or not expected, NULL; WEFT_ESHAPE: a tensor of another shape. */
typedef struct weft_checkpoint_args {
    const char *path;
    const weft_module *module;
    const weft_optim *optim;        /* may be NULL */
    const weft_named_tensor *extra; /* may be NULL when n_extra is 0 */
    int n_extra;
    int end_;
} weft_checkpoint_args;
WEFT_API weft_status weft_checkpoint_save(const weft_checkpoint_args *args);
WEFT_API weft_status weft_checkpoint_load(const weft_checkpoint_args *args);

#ifdef __cplusplus
}
inline weft_status weft_nn_linear_init(weft_nn_linear *layer, weft_module *module, const char *name,
                                       int64_t in, int64_t out, bool no_bias = false,
                                       weft_dtype dtype = WEFT_F32)
{
    weft_nn_linear_args a = {layer, module, name, in, out, no_bias, dtype, 0};
    return weft_nn_linear_init(&a);
}
inline weft_status weft_nn_embedding_init(weft_nn_embedding *layer, weft_module *module,
                                          const char *name, int64_t n, int64_t dim,
                                          weft_dtype dtype = WEFT_F32)
{
    weft_nn_embedding_args a = {layer, module, name, n, dim, dtype, 0};
    return weft_nn_embedding_init(&a);
}
#define WEFT_NORM_(call)                                                                           \
    inline weft_status call(weft_nn_norm *layer, weft_module *module, const char *name,            \
                            int64_t dim, double eps = 0, weft_dtype dtype = WEFT_F32)              \
    {                                                                                              \
        weft_nn_norm_args a = {layer, module, name, dim, eps, dtype, 0};                           \
        return call(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_status, call, weft_nn_norm_args)
WEFT_NORM_(weft_nn_layer_norm_init)
WEFT_NORM_(weft_nn_rms_norm_init)
WEFT_NORM_(weft_nn_instance_norm_init)
#undef WEFT_NORM_
inline weft_status weft_nn_group_norm_init(weft_nn_group_norm *layer, weft_module *module,
                                           const char *name, int64_t groups, int64_t dim,
                                           double eps = 0, weft_dtype dtype = WEFT_F32)
{
    weft_nn_group_norm_args a = {layer, module, name, groups, dim, eps, dtype, 0};
    return weft_nn_group_norm_init(&a);
}
#define WEFT_CONV_(call)                                                                           \
    inline weft_status call(                                                                       \
        weft_nn_conv2d *layer, weft_module *module, const char *name, int64_t in, int64_t out,     \
        int64_t kernel, int64_t stride = 0, int64_t padding = 0, int64_t dilation = 0,             \
        int64_t groups = 0, bool no_bias = false, weft_dtype dtype = WEFT_F32,                     \
        weft_shape kernels = weft_shape(), weft_shape strides = weft_shape(),                      \
        weft_shape paddings = weft_shape(), weft_shape dilations = weft_shape())                   \
    {                                                                                              \
        weft_nn_conv2d_args a = {layer,   module,  name,     in,        out,     kernel,           \
                                 stride,  padding, dilation, groups,    no_bias, dtype,            \
                                 kernels, strides, paddings, dilations, 0};                        \
        return call(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_status, call, weft_nn_conv2d_args)
WEFT_CONV_(weft_nn_conv1d_init)
WEFT_CONV_(weft_nn_conv2d_init)
#undef WEFT_CONV_
#define WEFT_CONV_TRANSPOSE_(call)                                                                 \
    inline weft_status call(                                                                       \
        weft_nn_conv_transpose *layer, weft_module *module, const char *name, int64_t in,          \
        int64_t out, int64_t kernel, int64_t stride = 0, int64_t padding = 0,                      \
        int64_t output_padding = 0, int64_t dilation = 0, int64_t groups = 0,                      \
        bool no_bias = false, weft_dtype dtype = WEFT_F32, weft_shape kernels = weft_shape(),      \
        weft_shape strides = weft_shape(), weft_shape paddings = weft_shape(),                     \
        weft_shape output_paddings = weft_shape(), weft_shape dilations = weft_shape())            \
    {                                                                                              \
        weft_nn_conv_transpose_args a = {                                                          \
            layer,           module,    name,   in,      out,   kernel,  stride,  padding,         \
            output_padding,  dilation,  groups, no_bias, dtype, kernels, strides, paddings,        \
            output_paddings, dilations, 0};                                                        \
        return call(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_status, call, weft_nn_conv_transpose_args)
WEFT_CONV_TRANSPOSE_(weft_nn_conv_transpose1d_init)
WEFT_CONV_TRANSPOSE_(weft_nn_conv_transpose2d_init)
#undef WEFT_CONV_TRANSPOSE_
inline weft_status weft_nn_batch_norm2d_init(weft_nn_batch_norm2d *layer, weft_module *module,
                                             const char *name, int64_t dim, double momentum = 0,
                                             double eps = 0, weft_dtype dtype = WEFT_F32)
{
    weft_nn_batch_norm2d_args a = {layer, module, name, dim, momentum, eps, dtype, 0};
    return weft_nn_batch_norm2d_init(&a);
}
#define WEFT_CHECKPOINT_(call)                                                                     \
    inline weft_status call(const char *path, const weft_module *module,                           \
                            const weft_optim *optim = nullptr,                                     \
                            const weft_named_tensor *extra = nullptr, int n_extra = 0)             \
    {                                                                                              \
        weft_checkpoint_args a = {path, module, optim, extra, n_extra, 0};                         \
        return call(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_status, call, weft_checkpoint_args)
WEFT_CHECKPOINT_(weft_checkpoint_save)
WEFT_CHECKPOINT_(weft_checkpoint_load)
#undef WEFT_CHECKPOINT_
WEFT_BY_STRUCT_(weft_status, weft_nn_linear_init, weft_nn_linear_args)
WEFT_BY_STRUCT_(weft_status, weft_nn_embedding_init, weft_nn_embedding_args)
WEFT_BY_STRUCT_(weft_status, weft_nn_group_norm_init, weft_nn_group_norm_args)
WEFT_BY_STRUCT_(weft_status, weft_nn_batch_norm2d_init, weft_nn_batch_norm2d_args)
#endif

/* clang-format off */
#define weft_checkpoint_save(...) WEFT_S_(WEFT_R_((weft_checkpoint_save)WEFT_ARGS_(weft_checkpoint_args, __VA_ARGS__)))
#define weft_checkpoint_load(...) WEFT_S_(WEFT_R_((weft_checkpoint_load)WEFT_ARGS_(weft_checkpoint_args, __VA_ARGS__)))
#define weft_nn_linear_init(...) WEFT_S_(WEFT_R_((weft_nn_linear_init)WEFT_ARGS_(weft_nn_linear_args, __VA_ARGS__)))
#define weft_nn_embedding_init(...) WEFT_S_(WEFT_R_((weft_nn_embedding_init)WEFT_ARGS_(weft_nn_embedding_args, __VA_ARGS__)))
#define weft_nn_layer_norm_init(...) WEFT_S_(WEFT_R_((weft_nn_layer_norm_init)WEFT_ARGS_(weft_nn_norm_args, __VA_ARGS__)))
#define weft_nn_rms_norm_init(...) WEFT_S_(WEFT_R_((weft_nn_rms_norm_init)WEFT_ARGS_(weft_nn_norm_args, __VA_ARGS__)))
#define weft_nn_instance_norm_init(...) WEFT_S_(WEFT_R_((weft_nn_instance_norm_init)WEFT_ARGS_(weft_nn_norm_args, __VA_ARGS__)))
#define weft_nn_group_norm_init(...) WEFT_S_(WEFT_R_((weft_nn_group_norm_init)WEFT_ARGS_(weft_nn_group_norm_args, __VA_ARGS__)))
#define weft_nn_conv1d_init(...) WEFT_S_(WEFT_R_((weft_nn_conv1d_init)WEFT_ARGS_(weft_nn_conv2d_args, __VA_ARGS__)))
#define weft_nn_conv2d_init(...) WEFT_S_(WEFT_R_((weft_nn_conv2d_init)WEFT_ARGS_(weft_nn_conv2d_args, __VA_ARGS__)))
#define weft_nn_conv_transpose1d_init(...) WEFT_S_(WEFT_R_((weft_nn_conv_transpose1d_init)WEFT_ARGS_(weft_nn_conv_transpose_args, __VA_ARGS__)))
#define weft_nn_conv_transpose2d_init(...) WEFT_S_(WEFT_R_((weft_nn_conv_transpose2d_init)WEFT_ARGS_(weft_nn_conv_transpose_args, __VA_ARGS__)))
#define weft_nn_batch_norm2d_init(...) WEFT_S_(WEFT_R_((weft_nn_batch_norm2d_init)WEFT_ARGS_(weft_nn_batch_norm2d_args, __VA_ARGS__)))
#ifndef WEFT_NO_SITES
#define weft_nn_linear_forward(...) WEFT_T_((weft_nn_linear_forward)(__VA_ARGS__))
#define weft_nn_embedding_forward(...) WEFT_T_((weft_nn_embedding_forward)(__VA_ARGS__))
#define weft_nn_layer_norm_forward(...) WEFT_T_((weft_nn_layer_norm_forward)(__VA_ARGS__))
#define weft_nn_rms_norm_forward(...) WEFT_T_((weft_nn_rms_norm_forward)(__VA_ARGS__))
#define weft_nn_instance_norm_forward(...) WEFT_T_((weft_nn_instance_norm_forward)(__VA_ARGS__))
#define weft_nn_group_norm_forward(...) WEFT_T_((weft_nn_group_norm_forward)(__VA_ARGS__))
#define weft_nn_conv1d_forward(...) WEFT_T_((weft_nn_conv1d_forward)(__VA_ARGS__))
#define weft_nn_conv2d_forward(...) WEFT_T_((weft_nn_conv2d_forward)(__VA_ARGS__))
#define weft_nn_conv_transpose1d_forward(...) WEFT_T_((weft_nn_conv_transpose1d_forward)(__VA_ARGS__))
#define weft_nn_conv_transpose2d_forward(...) WEFT_T_((weft_nn_conv_transpose2d_forward)(__VA_ARGS__))
#define weft_nn_batch_norm2d_forward(...) WEFT_T_((weft_nn_batch_norm2d_forward)(__VA_ARGS__))
#define weft_nn_dropout_forward(...) WEFT_T_((weft_nn_dropout_forward)(__VA_ARGS__))
#define weft_nn_dropout_init(...) WEFT_F_((weft_nn_dropout_init)(__VA_ARGS__))
#define weft_module_new(...) WEFT_P_(weft_module, (weft_module_new)(__VA_ARGS__))
#define weft_module_push(...) WEFT_F_((weft_module_push)(__VA_ARGS__))
#define weft_module_pop(...) WEFT_F_((weft_module_pop)(__VA_ARGS__))
#define weft_module_parameter(...) WEFT_T_((weft_module_parameter)(__VA_ARGS__))
#define weft_module_buffer(...) WEFT_T_((weft_module_buffer)(__VA_ARGS__))
#define weft_module_get(...) WEFT_T_((weft_module_get)(__VA_ARGS__))
#define weft_module_to(...) WEFT_S_((weft_module_to)(__VA_ARGS__))
#define weft_module_zero_grad(...) WEFT_S_((weft_module_zero_grad)(__VA_ARGS__))
#define weft_module_clip_grad_norm(...) WEFT_S_(WEFT_R_((weft_module_clip_grad_norm)(__VA_ARGS__)))
#define weft_module_clip_grad_value(...) WEFT_S_(WEFT_R_((weft_module_clip_grad_value)(__VA_ARGS__)))
#define weft_module_lerp(...) WEFT_S_(WEFT_R_((weft_module_lerp)(__VA_ARGS__)))
#define weft_init_constant(...) WEFT_S_((weft_init_constant)(__VA_ARGS__))
#define weft_init_uniform(...) WEFT_S_((weft_init_uniform)(__VA_ARGS__))
#define weft_init_normal(...) WEFT_S_((weft_init_normal)(__VA_ARGS__))
#define weft_init_trunc_normal(...) WEFT_S_(WEFT_R_((weft_init_trunc_normal)(__VA_ARGS__)))
#define weft_init_xavier_uniform(...) WEFT_S_((weft_init_xavier_uniform)(__VA_ARGS__))
#define weft_init_xavier_normal(...) WEFT_S_((weft_init_xavier_normal)(__VA_ARGS__))
#define weft_init_kaiming_uniform(...) WEFT_S_((weft_init_kaiming_uniform)(__VA_ARGS__))
#define weft_init_kaiming_normal(...) WEFT_S_((weft_init_kaiming_normal)(__VA_ARGS__))
#define weft_init_orthogonal(...) WEFT_S_(WEFT_R_((weft_init_orthogonal)(__VA_ARGS__)))
#endif
/* clang-format on */

#include "weft/nn_sequence.h"

#endif
