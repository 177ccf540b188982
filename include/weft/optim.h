/*
 * weft/optim.h -- optimisers and learning-rate schedules. Included by weft/nn.h.
 *
 * An optimiser updates the parameters a module had when it was made, in place, and owns its state tensors. The module
 * must outlive it. Every `new` returns an optimiser of the caller's, until weft_optim_free; or NULL: WEFT_EINVALID for a number
 * out of its domain, no module, or one of which a layer failed to initialise; WEFT_ENOMEM. Defaults are PyTorch's; where a
 * default is not 0, WEFT_ZERO says 0.
 *
 * Said once, of weight_decay (>= 0): g += weight_decay * p before all else, but AdamW and Lion, whose decay is decoupled,
 * begin with p *= 1 - lr * weight_decay. Parameters of a rank below decay_min_rank are not decayed: 2 spares biases and norms.
 * t counts from 1.
 */
#ifndef WEFT_OPTIM_H
#define WEFT_OPTIM_H

#include "weft/io.h"
#include "weft/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_optim weft_optim;
struct weft_module;

/* v = momentum * v + (1 - dampening) * g, but v = g in step 1; p -= lr * (nesterov ? g + momentum * v : v). */
typedef struct weft_sgd_args {
    struct weft_module *module;
    double lr;       /* required, > 0 */
    double momentum; /* default 0 */
    double weight_decay;
    bool nesterov; /* needs momentum > 0 and no dampening */
    double dampening;
    int decay_min_rank;
    int end_;
} weft_sgd_args;
WEFT_API weft_optim *weft_sgd_new(const weft_sgd_args *args);

/* m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2; s = amsgrad ? max(s, v) : v;
 * p -= lr / (1 - beta1^t) * m / (sqrt(s) / sqrt(1 - beta2^t) + eps). Kingma and Ba 2015; decoupled decay: Loshchilov and
 * Hutter 2019; amsgrad: Reddi et al. 2018. */
typedef struct weft_adam_args {
    struct weft_module *module;
    double lr;           /* default 1e-3 */
    double beta1, beta2; /* defaults 0.9, 0.999; WEFT_ZERO: 0 */
    double eps;          /* default 1e-8 */
    double weight_decay; /* default of adamw 0.01, of adam 0; WEFT_ZERO: 0 */
    int decay_min_rank;
    bool amsgrad;
    int end_;
} weft_adam_args;
typedef weft_adam_args weft_adamw_args;
WEFT_API weft_optim *weft_adamw_new(const weft_adam_args *args);
WEFT_API weft_optim *weft_adam_new(const weft_adam_args *args);

/* s = alpha s + (1 - alpha) g^2; centered: a += (1 - alpha) (g - a) and s - a^2, not below 0, in the place of s;
 * b = momentum * b + g / (sqrt(s) + eps); p -= lr * b. Hinton 2012; Graves 2013. */
typedef struct weft_rmsprop_args {
    struct weft_module *module;
    double lr;    /* default 1e-2 */
    double alpha; /* default 0.99; WEFT_ZERO: 0 */
    double eps;   /* default 1e-8 */
    double weight_decay;
    double momentum; /* default 0 */
    bool centered;
    int decay_min_rank;
    int end_;
} weft_rmsprop_args;
WEFT_API weft_optim *weft_rmsprop_new(const weft_rmsprop_args *args);

/* s += g^2, from `initial` on; p -= lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps). Duchi et al. 2011. */
typedef struct weft_adagrad_args {
    struct weft_module *module;
    double lr; /* default 1e-2 */
    double lr_decay, weight_decay;
    double initial; /* default 0 */
    double eps;     /* default 1e-10; WEFT_ZERO: 0 */
    int decay_min_rank;
    int end_;
} weft_adagrad_args;
WEFT_API weft_optim *weft_adagrad_new(const weft_adagrad_args *args);

/* p -= lr * sign(m + (1 - beta1) (g - m)); m += (1 - beta2) (g - m). Chen et al. 2023. */
typedef struct weft_lion_args {
    struct weft_module *module;
    double lr;           /* default 1e-4 */
    double beta1, beta2; /* defaults 0.9, 0.99; WEFT_ZERO: 0 */
    double weight_decay; /* default 0 */
    int decay_min_rank;
    int end_;
} weft_lion_args;
WEFT_API weft_optim *weft_lion_new(const weft_lion_args *args);

/* Parameters whose names look like `pattern`, in which '*' is any text ("*.bias", "encoder.*"), step with lr_scale times the
 * optimiser's rate and with this decay. Before the first step; at most 3 groups, of which a parameter is in the last one
 * that takes it. WEFT_EINVALID if no name looks like it. */
typedef struct weft_optim_group_args {
    weft_optim *optim;
    const char *pattern;
    double lr_scale; /* default 1; WEFT_ZERO: 0, only the state moves */
    double
        weight_decay; /* default: the optimiser's and its decay_min_rank; else of all ranks; WEFT_ZERO: none */
    int end_;
} weft_optim_group_args;
WEFT_API weft_status weft_optim_group(const weft_optim_group_args *args);

/* One update of every parameter that has a gradient. Gradients are left as they are. WEFT_EINVALID: NULL; WEFT_ENOMEM. */
WEFT_API weft_status weft_optim_step(weft_optim *o);
/* From the next step on; lr >= 0 and finite (WEFT_EINVALID). A function that is to be replayed (.frozen) leaves it to its
 * caller. */
WEFT_API weft_status weft_optim_set_lr(weft_optim *o, double lr);
WEFT_API double weft_optim_lr(const weft_optim *o);
/* State tensors for checkpoints, under PyTorch's names: "optim.exp_avg.<parameter>", ..., and "optim.step" (i64). Loading
 * into them (weft/io.h) restores the optimiser. Valid while the optimiser lives; 0 and NULL for NULL. */
WEFT_API int weft_optim_state_count(const weft_optim *o);
WEFT_API const weft_named_tensor *weft_optim_state(const weft_optim *o);
/* Frees the optimiser and its state. NULL is ignored. */
WEFT_API void weft_optim_free(weft_optim *o);

/* -- schedules ------------------------------------------------------------------------------------------
 * Learning rates of step 0, 1, ...; a step below 0 counts as 0. */

/* Rises linearly over `warmup` steps (step s: peak (s + 1) / warmup), then falls from peak to floor along half a cosine,
 * or in a straight line, until `total`, then stays at floor. */
WEFT_API double weft_lr_cosine(int64_t step, int64_t warmup, int64_t total, double peak,
                               double floor);
WEFT_API double weft_lr_linear(int64_t step, int64_t warmup, int64_t total, double peak,
                               double floor);
/* Rises likewise, then peak * sqrt(warmup / (step + 1)). Vaswani et al. 2017. */
WEFT_API double weft_lr_inverse_sqrt(int64_t step, int64_t warmup, double peak);
/* start * gamma^(step / every), rounded down; of every step. */
WEFT_API double weft_lr_step(int64_t step, int64_t every, double start, double gamma);
WEFT_API double weft_lr_exponential(int64_t step, double start, double gamma);

#ifdef __cplusplus
}
inline weft_optim *weft_sgd_new(struct weft_module *module, double lr, double momentum = 0,
                                double weight_decay = 0, bool nesterov = false,
                                double dampening = 0, int decay_min_rank = 0)
{
    weft_sgd_args a = {module, lr, momentum, weight_decay, nesterov, dampening, decay_min_rank, 0};
    return weft_sgd_new(&a);
}
#define WEFT_ADAM_(call)                                                                           \
    inline weft_optim *call(struct weft_module *module, double lr = 0, double beta1 = 0,           \
                            double beta2 = 0, double eps = 0, double weight_decay = 0,             \
                            int decay_min_rank = 0, bool amsgrad = false)                          \
    {                                                                                              \
        weft_adam_args a = {module,         lr,      beta1, beta2, eps, weight_decay,              \
                            decay_min_rank, amsgrad, 0};                                           \
        return call(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_optim *, call, weft_adam_args)
WEFT_ADAM_(weft_adamw_new)
WEFT_ADAM_(weft_adam_new)
#undef WEFT_ADAM_
inline weft_optim *weft_rmsprop_new(struct weft_module *module, double lr = 0, double alpha = 0,
                                    double eps = 0, double weight_decay = 0, double momentum = 0,
                                    bool centered = false, int decay_min_rank = 0)
{
    weft_rmsprop_args a = {module,   lr,       alpha,          eps, weight_decay,
                           momentum, centered, decay_min_rank, 0};
    return weft_rmsprop_new(&a);
}
inline weft_optim *weft_adagrad_new(struct weft_module *module, double lr = 0, double lr_decay = 0,
                                    double weight_decay = 0, double initial = 0, double eps = 0,
                                    int decay_min_rank = 0)
{
    weft_adagrad_args a = {module, lr, lr_decay, weight_decay, initial, eps, decay_min_rank, 0};
    return weft_adagrad_new(&a);
}
inline weft_optim *weft_lion_new(struct weft_module *module, double lr = 0, double beta1 = 0,
                                 double beta2 = 0, double weight_decay = 0, int decay_min_rank = 0)
{
    weft_lion_args a = {module, lr, beta1, beta2, weight_decay, decay_min_rank, 0};
    return weft_lion_new(&a);
}
inline weft_status weft_optim_group(weft_optim *optim, const char *pattern, double lr_scale = 0,
                                    double weight_decay = 0)
{
    weft_optim_group_args a = {optim, pattern, lr_scale, weight_decay, 0};
    return weft_optim_group(&a);
}
WEFT_BY_STRUCT_(weft_optim *, weft_sgd_new, weft_sgd_args)
WEFT_BY_STRUCT_(weft_optim *, weft_rmsprop_new, weft_rmsprop_args)
WEFT_BY_STRUCT_(weft_optim *, weft_adagrad_new, weft_adagrad_args)
WEFT_BY_STRUCT_(weft_optim *, weft_lion_new, weft_lion_args)
WEFT_BY_STRUCT_(weft_status, weft_optim_group, weft_optim_group_args)
#endif

/* clang-format off */
#define weft_sgd_new(...) WEFT_P_(weft_optim, (weft_sgd_new)WEFT_ARGS_(weft_sgd_args, __VA_ARGS__))
#define weft_adamw_new(...) WEFT_P_(weft_optim, (weft_adamw_new)WEFT_ARGS_(weft_adam_args, __VA_ARGS__))
#define weft_adam_new(...) WEFT_P_(weft_optim, (weft_adam_new)WEFT_ARGS_(weft_adam_args, __VA_ARGS__))
#define weft_rmsprop_new(...) WEFT_P_(weft_optim, (weft_rmsprop_new)WEFT_ARGS_(weft_rmsprop_args, __VA_ARGS__))
#define weft_adagrad_new(...) WEFT_P_(weft_optim, (weft_adagrad_new)WEFT_ARGS_(weft_adagrad_args, __VA_ARGS__))
#define weft_lion_new(...) WEFT_P_(weft_optim, (weft_lion_new)WEFT_ARGS_(weft_lion_args, __VA_ARGS__))
#define weft_optim_group(...) WEFT_S_((weft_optim_group)WEFT_ARGS_(weft_optim_group_args, __VA_ARGS__))
#ifndef WEFT_NO_SITES
#define weft_optim_step(...) WEFT_S_(WEFT_R_((weft_optim_step)(__VA_ARGS__)))
#define weft_optim_set_lr(...) WEFT_S_((weft_optim_set_lr)(__VA_ARGS__))
#endif
/* clang-format on */

#endif
