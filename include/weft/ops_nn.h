/*
 * weft/ops_nn.h -- layers and losses called as one op. Included by weft/ops.h, which says what holds
 * for every op. Operands are f16, bf16, f32 or f64, promoted together, and the result has their type; losses but cross_entropy
 * and nll_loss take integers as f32, max_pool2d takes integers as they are. An optional operand is left out as WEFT_NONE.
 */
#ifndef WEFT_OPS_NN_H
#define WEFT_OPS_NN_H

#include "weft/random.h"
#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[.., in] * weight[out, in]^T + bias[out]; bias may be WEFT_NONE. PyTorch's layout of weights. */
WEFT_API weft_tensor weft_linear(weft_tensor x, weft_tensor weight,
                                 weft_tensor bias WEFT_OR(WEFT_NONE));

/* e^x / sum(e^x) along an axis (Bridle 1990), and its logarithm: x - logsumexp(x). */
WEFT_API weft_tensor weft_softmax(weft_tensor x, int axis);
WEFT_API weft_tensor weft_log_softmax(weft_tensor x, int axis);

/* (x - mean) / sqrt(var + eps) over the last `axes` axes, times weight, plus bias (of those extents).
 * Ba, Kiros and Hinton 2016, "Layer Normalization". */
typedef struct weft_layer_norm_args {
    weft_tensor x;
    weft_tensor weight, bias; /* optional */
    int axes;                 /* default 1 */
    double eps;               /* default 1e-5; WEFT_ZERO: 0 */
    int end_;
} weft_layer_norm_args;
WEFT_API weft_tensor weft_layer_norm(const weft_layer_norm_args *args);

/* x / sqrt(mean(x^2) + eps) over the last `axes` axes, times weight. Zhang and Sennrich 2019, "Root Mean
 * Square Layer Normalization". */
typedef struct weft_rms_norm_args {
    weft_tensor x;
    weft_tensor weight; /* optional */
    int axes;           /* default 1 */
    double eps;         /* default 1e-6; WEFT_ZERO: 0 */
    int end_;
} weft_rms_norm_args;
WEFT_API weft_tensor weft_rms_norm(const weft_rms_norm_args *args);

/* x[n, c, ..] normalised per channel: by its own statistics when training (then the running ones move
 * in place: r += momentum * (batch - r), with the sample variance, not recorded for gradients; an empty
 * batch leaves them, one value per channel is an error), else by the running ones. Ioffe and Szegedy
 * 2015, "Batch Normalization"; the running variance is PyTorch's. */
typedef struct weft_batch_norm_args {
    weft_tensor x;
    weft_tensor weight, bias;              /* [c], optional */
    weft_tensor running_mean, running_var; /* [c]; optional when training */
    bool training;
    double momentum; /* default 0.1; WEFT_ZERO: 0 */
    double eps;      /* default 1e-5; WEFT_ZERO: 0 */
    int end_;
} weft_batch_norm_args;
WEFT_API weft_tensor weft_batch_norm(const weft_batch_norm_args *args);

/* (x - mean) / sqrt(var + eps) of x[n, c, ..] over groups of channels of one sample, with all that lies behind them, times
 * weight[c], plus bias[c]. Wu and He 2018, "Group Normalization". As many groups as channels: instance_norm. */
typedef struct weft_group_norm_args {
    weft_tensor x;
    int64_t groups;           /* no default; divides c */
    weft_tensor weight, bias; /* [c], optional */
    double eps;               /* default 1e-5; WEFT_ZERO: 0 */
    int end_;
} weft_group_norm_args;
WEFT_API weft_tensor weft_group_norm(const weft_group_norm_args *args);

/* The same of each channel of each sample alone; one value per channel is an error. Ulyanov, Vedaldi and Lempitsky 2016,
 * "Instance Normalization". There are no running statistics: weft_batch_norm without .training uses some. */
typedef struct weft_instance_norm_args {
    weft_tensor x;
    weft_tensor weight, bias; /* [c], optional */
    double eps;               /* default 1e-5; WEFT_ZERO: 0 */
    int end_;
} weft_instance_norm_args;
WEFT_API weft_tensor weft_instance_norm(const weft_instance_norm_args *args);

/* Cross-correlation of x[n, c, h, w] with weight[o, c / groups, kh, kw]; bias[o] optional. One number
 * stands for both spatial axes: weft_shape(2) = weft_shape(2, 2). Result [n, o, h', w'] with
 * h' = (h + 2 padding - dilation (kh - 1) - 1) / stride + 1, rounded down. Gradients: Dumoulin and Visin 2016, "A
 * guide to convolution arithmetic for deep learning". */
typedef struct weft_conv2d_args {
    weft_tensor x;
    weft_tensor weight;
    weft_tensor bias;
    weft_shape stride;   /* default 1 */
    weft_shape padding;  /* zeros on each side, default 0 */
    weft_shape dilation; /* default 1 */
    int64_t groups;      /* default 1 */
    int end_;
} weft_conv2d_args;
WEFT_API weft_tensor weft_conv2d(const weft_conv2d_args *args);
/* x[n, c, w] with weight[o, c / groups, kw]; options of one number. */
WEFT_API weft_tensor weft_conv1d(const weft_conv2d_args *args);

/* The transpose of that convolution as a linear map (its gradient by x), which takes x[n, c, h, w] back to the extents it
 * came from: weight[c, o / groups, kh, kw], result [n, o, H, W] with H = (h - 1) * stride - 2 * padding +
 * dilation * (kh - 1) + 1 + output_padding; bias[o] is added. Zeiler et al. 2010, "Deconvolutional Networks". */
typedef struct weft_conv_transpose_args {
    weft_tensor x;
    weft_tensor weight;
    weft_tensor bias;          /* optional */
    weft_shape stride;         /* default 1 */
    weft_shape padding;        /* taken from each side of the result, default 0 */
    weft_shape output_padding; /* added behind it, default 0; below the stride or the dilation */
    weft_shape dilation;       /* default 1 */
    int64_t groups;            /* default 1 */
    int end_;
} weft_conv_transpose_args;
WEFT_API weft_tensor weft_conv_transpose2d(const weft_conv_transpose_args *args);
/* x[n, c, w] with weight[c, o / groups, kw]; options of one number. */
WEFT_API weft_tensor weft_conv_transpose1d(const weft_conv_transpose_args *args);

/* Largest and mean element of windows of x[n, c, h, w]; extents (those of weft_conv2d, rounded up under ceil_mode), padding and
 * ceil_mode as in PyTorch. */
typedef struct weft_pool2d_args {
    weft_tensor x;
    weft_shape kernel;      /* one or two numbers */
    weft_shape stride;      /* default: kernel */
    weft_shape padding;     /* default 0; at most half the kernel */
    weft_shape dilation;    /* max_pool2d only; default 1 */
    bool ceil_mode;         /* windows that start inside but end outside count */
    bool count_include_pad; /* avg_pool2d: padding counts in the divisor */
    weft_tensor *
        indices; /* max_pool2d: if given, receives i64 positions h * width + w, a result like the other */
    int end_;
} weft_pool2d_args;
WEFT_API weft_tensor weft_max_pool2d(const weft_pool2d_args *args);
WEFT_API weft_tensor weft_avg_pool2d(const weft_pool2d_args *args);
/* Means of x[n, c, h, w] over windows that make the result [n, c, size[0], size[1]]: window i of H goes from floor(i h / H)
 * to ceil((i + 1) h / H). One number stands for both axes. As PyTorch: no images, no channels or a size of 0 give a result without
 * elements; planes without a pixel have no mean (WEFT_ESHAPE). */
WEFT_API weft_tensor weft_adaptive_avg_pool2d(weft_tensor x, weft_shape size);

/* x[n, c, ..] at other extents, one to three of them, as PyTorch's interpolate. Element i of an axis of n that becomes one of
 * m lies at i n / m (nearest), (i + 0.5) n / m (nearest_exact), (i + 0.5) n / m - 0.5 but not below 0 (linear), or
 * i (n - 1) / (m - 1) (linear, align_corners); nearest modes take the element that far, linear weighs the two around it, the
 * last axis first: bilinear of two, trilinear of three. */
typedef enum weft_interpolation {
    WEFT_NEAREST = 0,
    WEFT_NEAREST_EXACT,
    WEFT_LINEAR /* floats only; halves are weighed in f32 */
} weft_interpolation;
typedef struct weft_interpolate_args {
    weft_tensor x;
    weft_shape size; /* of the axes from the third on; one number stands for all */
    double scale;    /* instead of size: extents are floor(n * scale), places as of m / n = scale */
    weft_interpolation mode;
    bool align_corners; /* linear only */
    int end_;
} weft_interpolate_args;
WEFT_API weft_tensor weft_interpolate(const weft_interpolate_args *args);

/* softmax(q k^T * scale + mask) v: q[.., l, e], k[.., s, e], v[.., s, ev] -> [.., l, ev]; leading axes broadcast, the mask's
 * too. Vaswani et al. 2017, "Attention Is All You Need"; in blocks that hold no whole row of scores, as Dao et al. 2022
 * (FlashAttention). */
typedef struct weft_attention_args {
    weft_tensor q, k, v;
    weft_tensor
        mask;    /* [.., l, s], optional: bool (true takes part), or of the operands' type: added */
    bool causal; /* query i sees keys 0 .. i */
    double scale; /* default 1 / sqrt(e); WEFT_ZERO: 0 */
    int end_;
} weft_attention_args;
WEFT_API weft_tensor weft_scaled_dot_product_attention(const weft_attention_args *args);

/* Sets elements to 0 with probability p and divides the others by 1 - p, when training; else (or when
 * p is 0) a view of x. p in [0, 1]. Srivastava et al. 2014; scaled while training, as in PyTorch. */
typedef struct weft_dropout_args {
    weft_tensor x;
    double p; /* no default: 0 drops nothing */
    bool training;
    weft_generator *generator; /* default: the thread's */
    int end_;
} weft_dropout_args;
WEFT_API weft_tensor weft_dropout(const weft_dropout_args *args);

/* -- losses ------------------------------------------------------------------------------------------- */
typedef enum weft_reduction {
    WEFT_REDUCE_MEAN = 0, /* over all elements; cross_entropy and nll: over targets not ignored */
    WEFT_REDUCE_SUM,
    WEFT_REDUCE_NONE
} weft_reduction;

/* -log(softmax(logits)[target]) with logits[.., c] and integer targets[..] in [0, c), others WEFT_EINDEX. A scalar, NaN where no
 * target counts; under WEFT_REDUCE_NONE the targets' shape, 0 where they are ignored. Label smoothing: Szegedy et
 * al. 2016, section 7, over all classes as in PyTorch. NaN where a logit is NaN or +infinity, as log_softmax is. */
typedef struct weft_cross_entropy_args {
    weft_tensor logits;
    weft_tensor targets;
    weft_reduction reduction;
    int64_t ignore_index; /* targets that do not count; default -100; see WEFT_IGNORE_ZERO, _NONE */
    double label_smoothing; /* in [0, 1]: this share of the target is spread over all classes */
    weft_tensor
        weight; /* [c], floating point: each class's loss is multiplied by its own; WEFT_REDUCE_MEAN divides by
                         * the sum of the targets' weights. Without: 1 each */
    int end_;
} weft_cross_entropy_args;
WEFT_API weft_tensor weft_cross_entropy(const weft_cross_entropy_args *args);

/* -log_probs[.., target], .logits being logarithms of probabilities. label_smoothing is not used. */
WEFT_API weft_tensor weft_nll_loss(const weft_cross_entropy_args *args);

/* Element by element, then reduced: a scalar, or under WEFT_REDUCE_NONE the shape of x and target together. An option
 * that belongs to another loss is checked, but not used. */
typedef struct weft_loss_args {
    weft_tensor x;
    weft_tensor target; /* broadcasts with x */
    weft_reduction reduction;
    double delta; /* huber_loss: where the square turns into a line, > 0; default 1 */
    weft_tensor
        weight; /* multiplies the losses before they are reduced, broadcast to their shape (WEFT_ESHAPE: it would
                         * make more of them); the mean still divides by their number. Without: 1 */
    weft_tensor
        pos_weight; /* bce_with_logits: multiplies the term of t, as often one per class in the last axis */
    bool log_target; /* kl_div: target is the logarithm of probabilities, too */
    int end_;
} weft_loss_args;
WEFT_API weft_tensor weft_mse_loss(const weft_loss_args *args); /* (x - target)^2 */
WEFT_API weft_tensor weft_l1_loss(const weft_loss_args *args);  /* |x - target| */
WEFT_API weft_tensor weft_huber_loss(
    const weft_loss_args
        *args); /* d = |x - target|: d < delta ? d^2/2 : delta*(d - delta/2); Huber 1964 */
/* -(t log x + (1 - t) log(1 - x)), x in [0, 1]; logarithms are held at -100 or above, as in PyTorch. */
WEFT_API weft_tensor weft_binary_cross_entropy(const weft_loss_args *args);
/* The same of sigmoid(x), no overflow: -(pos_weight t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))). */
WEFT_API weft_tensor weft_bce_with_logits(const weft_loss_args *args);
/* t (log t - x), x logarithms of probabilities: the divergence of Kullback and Leibler 1951 of t from exp(x), by terms; 0 where
 * t is 0. The mean is over all elements; over samples: WEFT_REDUCE_SUM divided by their number. */
WEFT_API weft_tensor weft_kl_div(const weft_loss_args *args);

#ifdef __cplusplus
}
#endif

#endif
