/*
 * weft/ops_sites.h -- options by name and call sites: a macro beside each function of ops.h, and for C++ overloads with
 * default parameters. Included by weft/ops.h.
 *
 * Each macro calls the function of its name and stamps the result, or the error, with file:line.
 * `(weft_add)(a, b)` is the bare function.
 */
#ifndef WEFT_OPS_SITES_H
#define WEFT_OPS_SITES_H

#include "weft/ops.h"

#ifdef __cplusplus

#include <initializer_list>

#define WEFT_REDUCE_(name)                                                                         \
    inline weft_tensor name(weft_tensor x, weft_axes axes = weft_axes(), bool keepdim = false,     \
                            weft_dtype dtype = WEFT_DTYPE_DEFAULT)                                 \
    {                                                                                              \
        weft_reduce_args a = {x, axes, keepdim, dtype, 0};                                         \
        return name(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_tensor, name, weft_reduce_args)
WEFT_REDUCE_(weft_sum)
WEFT_REDUCE_(weft_prod)
WEFT_REDUCE_(weft_mean)
WEFT_REDUCE_(weft_max)
WEFT_REDUCE_(weft_min)
WEFT_REDUCE_(weft_logsumexp)
WEFT_REDUCE_(weft_any)
WEFT_REDUCE_(weft_all)
WEFT_REDUCE_(weft_count_nonzero)
WEFT_REDUCE_(weft_argmax)
WEFT_REDUCE_(weft_argmin)
#undef WEFT_REDUCE_
inline weft_tensor weft_var(weft_tensor x, weft_axes axes = weft_axes(), bool keepdim = false,
                            double correction = 0)
{
    weft_var_args a = {x, axes, keepdim, correction, 0};
    return weft_var(&a);
}
inline weft_tensor weft_std(weft_tensor x, weft_axes axes = weft_axes(), bool keepdim = false,
                            double correction = 0)
{
    weft_var_args a = {x, axes, keepdim, correction, 0};
    return weft_std(&a);
}
inline weft_tensor weft_norm(weft_tensor x, weft_axes axes = weft_axes(), bool keepdim = false,
                             double order = 0)
{
    weft_norm_args a = {x, axes, keepdim, order, 0};
    return weft_norm(&a);
}
inline weft_tensor weft_layer_norm(weft_tensor x, weft_tensor weight = WEFT_NONE,
                                   weft_tensor bias = WEFT_NONE, int axes = 1, double eps = 0)
{
    weft_layer_norm_args a = {x, weight, bias, axes, eps, 0};
    return weft_layer_norm(&a);
}
inline weft_tensor weft_rms_norm(weft_tensor x, weft_tensor weight = WEFT_NONE, int axes = 1,
                                 double eps = 0)
{
    weft_rms_norm_args a = {x, weight, axes, eps, 0};
    return weft_rms_norm(&a);
}
inline weft_tensor weft_batch_norm(weft_tensor x, weft_tensor weight = WEFT_NONE,
                                   weft_tensor bias = WEFT_NONE,
                                   weft_tensor running_mean = WEFT_NONE,
                                   weft_tensor running_var = WEFT_NONE, bool training = false,
                                   double momentum = 0, double eps = 0)
{
    weft_batch_norm_args a = {x,        weight, bias, running_mean, running_var, training,
                              momentum, eps,    0};
    return weft_batch_norm(&a);
}
inline weft_tensor weft_group_norm(weft_tensor x, int64_t groups, weft_tensor weight = WEFT_NONE,
                                   weft_tensor bias = WEFT_NONE, double eps = 0)
{
    weft_group_norm_args a = {x, groups, weight, bias, eps, 0};
    return weft_group_norm(&a);
}
inline weft_tensor weft_instance_norm(weft_tensor x, weft_tensor weight = WEFT_NONE,
                                      weft_tensor bias = WEFT_NONE, double eps = 0)
{
    weft_instance_norm_args a = {x, weight, bias, eps, 0};
    return weft_instance_norm(&a);
}
#define WEFT_CONV_(name)                                                                           \
    inline weft_tensor name(weft_tensor x, weft_tensor weight, weft_tensor bias = WEFT_NONE,       \
                            weft_shape stride = weft_shape(), weft_shape padding = weft_shape(),   \
                            weft_shape dilation = weft_shape(), int64_t groups = 1)                \
    {                                                                                              \
        weft_conv2d_args a = {x, weight, bias, stride, padding, dilation, groups, 0};              \
        return name(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_tensor, name, weft_conv2d_args)
WEFT_CONV_(weft_conv1d)
WEFT_CONV_(weft_conv2d)
#undef WEFT_CONV_
#define WEFT_TRANSPOSED_(name)                                                                     \
    inline weft_tensor name(weft_tensor x, weft_tensor weight, weft_tensor bias = WEFT_NONE,       \
                            weft_shape stride = weft_shape(), weft_shape padding = weft_shape(),   \
                            weft_shape output_padding = weft_shape(),                              \
                            weft_shape dilation = weft_shape(), int64_t groups = 1)                \
    {                                                                                              \
        weft_conv_transpose_args a = {x,        weight, bias, stride, padding, output_padding,     \
                                      dilation, groups, 0};                                        \
        return name(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_tensor, name, weft_conv_transpose_args)
WEFT_TRANSPOSED_(weft_conv_transpose1d)
WEFT_TRANSPOSED_(weft_conv_transpose2d)
#undef WEFT_TRANSPOSED_
inline weft_tensor weft_interpolate(weft_tensor x, weft_shape size, double scale = 0,
                                    weft_interpolation mode = WEFT_NEAREST,
                                    bool align_corners = false)
{
    weft_interpolate_args a = {x, size, scale, mode, align_corners, 0};
    return weft_interpolate(&a);
}
#define WEFT_POOL_(name)                                                                           \
    inline weft_tensor name(weft_tensor x, weft_shape kernel, weft_shape stride = weft_shape(),    \
                            weft_shape padding = weft_shape(), weft_shape dilation = weft_shape(), \
                            bool ceil_mode = false, bool count_include_pad = false,                \
                            weft_tensor *indices = nullptr)                                        \
    {                                                                                              \
        weft_pool2d_args a = {                                                                     \
            x, kernel, stride, padding, dilation, ceil_mode, count_include_pad, indices, 0};       \
        return name(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_tensor, name, weft_pool2d_args)
WEFT_POOL_(weft_max_pool2d)
WEFT_POOL_(weft_avg_pool2d)
#undef WEFT_POOL_
inline weft_tensor weft_scaled_dot_product_attention(weft_tensor q, weft_tensor k, weft_tensor v,
                                                     weft_tensor mask = WEFT_NONE,
                                                     bool causal = false, double scale = 0)
{
    weft_attention_args a = {q, k, v, mask, causal, scale, 0};
    return weft_scaled_dot_product_attention(&a);
}
inline weft_tensor weft_dropout(weft_tensor x, double p, bool training,
                                weft_generator *generator = nullptr)
{
    weft_dropout_args a = {x, p, training, generator, 0};
    return weft_dropout(&a);
}
#define WEFT_CLASSES_(name)                                                                        \
    inline weft_tensor name(                                                                       \
        weft_tensor logits, weft_tensor targets, weft_reduction reduction = WEFT_REDUCE_MEAN,      \
        int64_t ignore_index = -100, double label_smoothing = 0, weft_tensor weight = WEFT_NONE)   \
    {                                                                                              \
        weft_cross_entropy_args a = {logits,          targets, reduction, ignore_index,            \
                                     label_smoothing, weight,  0};                                 \
        return name(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_tensor, name, weft_cross_entropy_args)
WEFT_CLASSES_(weft_cross_entropy)
WEFT_CLASSES_(weft_nll_loss)
#undef WEFT_CLASSES_
#define WEFT_LOSS_(name)                                                                           \
    inline weft_tensor name(weft_tensor x, weft_tensor target,                                     \
                            weft_reduction reduction = WEFT_REDUCE_MEAN, double delta = 0,         \
                            weft_tensor weight = WEFT_NONE, weft_tensor pos_weight = WEFT_NONE,    \
                            bool log_target = false)                                               \
    {                                                                                              \
        weft_loss_args a = {x, target, reduction, delta, weight, pos_weight, log_target, 0};       \
        return name(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_tensor, name, weft_loss_args)
WEFT_LOSS_(weft_mse_loss)
WEFT_LOSS_(weft_l1_loss)
WEFT_LOSS_(weft_huber_loss)
WEFT_LOSS_(weft_binary_cross_entropy)
WEFT_LOSS_(weft_bce_with_logits)
WEFT_LOSS_(weft_kl_div)
#undef WEFT_LOSS_
WEFT_BY_STRUCT_(weft_tensor, weft_var, weft_var_args)
WEFT_BY_STRUCT_(weft_tensor, weft_std, weft_var_args)
WEFT_BY_STRUCT_(weft_tensor, weft_norm, weft_norm_args)
WEFT_BY_STRUCT_(weft_tensor, weft_layer_norm, weft_layer_norm_args)
WEFT_BY_STRUCT_(weft_tensor, weft_rms_norm, weft_rms_norm_args)
WEFT_BY_STRUCT_(weft_tensor, weft_batch_norm, weft_batch_norm_args)
WEFT_BY_STRUCT_(weft_tensor, weft_group_norm, weft_group_norm_args)
WEFT_BY_STRUCT_(weft_tensor, weft_instance_norm, weft_instance_norm_args)
WEFT_BY_STRUCT_(weft_tensor, weft_interpolate, weft_interpolate_args)
WEFT_BY_STRUCT_(weft_tensor, weft_scaled_dot_product_attention, weft_attention_args)
WEFT_BY_STRUCT_(weft_tensor, weft_dropout, weft_dropout_args)
#define WEFT_CLOSE_(name)                                                                          \
    inline weft_tensor name(weft_tensor a, weft_tensor b, double rtol = 0, double atol = 0,        \
                            bool equal_nan = false)                                                \
    {                                                                                              \
        weft_isclose_args args = {a, b, rtol, atol, equal_nan, 0};                                 \
        return name(&args);                                                                        \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_tensor, name, weft_isclose_args)
WEFT_CLOSE_(weft_isclose)
WEFT_CLOSE_(weft_allclose)
#undef WEFT_CLOSE_
inline weft_tensor weft_concat(std::initializer_list<weft_tensor> parts, int axis = 0)
{
    return weft_concat(parts.begin(), static_cast<int>(parts.size()), axis);
}
inline weft_tensor weft_stack(std::initializer_list<weft_tensor> parts, int axis = 0)
{
    return weft_stack(parts.begin(), static_cast<int>(parts.size()), axis);
}
inline weft_tensor weft_index(weft_tensor x, std::initializer_list<weft_index_term> terms)
{
    return weft_index(x, terms.begin(), static_cast<int>(terms.size()));
}
inline weft_tensor weft_index_get(weft_tensor x, std::initializer_list<weft_tensor> indices)
{
    return weft_index_get(x, indices.begin(), static_cast<int>(indices.size()));
}
inline weft_tensor weft_index_put(weft_tensor x, std::initializer_list<weft_tensor> indices,
                                  weft_tensor values, bool accumulate = false)
{
    return weft_index_put(x, indices.begin(), static_cast<int>(indices.size()), values, accumulate);
}
inline weft_tensor weft_einsum(const char *equation, std::initializer_list<weft_tensor> operands)
{
    return weft_einsum(equation, operands.begin(), static_cast<int>(operands.size()));
}

#define WEFT_LIST(...)                                                                             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define WEFT_INDEX_(x, ...)                                                                        \
    x,                                                                                             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define WEFT_OPERANDS_(equation, ...)                                                              \
    equation,                                                                                      \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

#else

/* Tensors as an array and its length: weft_concat(WEFT_LIST(a, b, c), 0). */
#define WEFT_LIST(...)                                                                             \
    (const weft_tensor[]){__VA_ARGS__},                                                            \
        (int)(sizeof((const weft_tensor[]){__VA_ARGS__}) / sizeof(weft_tensor))
#define WEFT_INDEX_(x, ...)                                                                        \
    x, (const weft_index_term[]){__VA_ARGS__},                                                     \
        (int)(sizeof((const weft_index_term[]){__VA_ARGS__}) / sizeof(weft_index_term))
#define WEFT_OPERANDS_(equation, ...) equation, WEFT_LIST(__VA_ARGS__)

#endif

/* clang-format off */
#define weft_sum(...) WEFT_T_((weft_sum)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_prod(...) WEFT_T_((weft_prod)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_mean(...) WEFT_T_((weft_mean)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_max(...) WEFT_T_((weft_max)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_min(...) WEFT_T_((weft_min)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_logsumexp(...) WEFT_T_((weft_logsumexp)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_any(...) WEFT_T_((weft_any)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_all(...) WEFT_T_((weft_all)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_count_nonzero(...) WEFT_T_((weft_count_nonzero)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_argmax(...) WEFT_T_((weft_argmax)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_argmin(...) WEFT_T_((weft_argmin)WEFT_ARGS_(weft_reduce_args, __VA_ARGS__))
#define weft_var(...) WEFT_T_((weft_var)WEFT_ARGS_(weft_var_args, __VA_ARGS__))
#define weft_std(...) WEFT_T_((weft_std)WEFT_ARGS_(weft_var_args, __VA_ARGS__))
#define weft_norm(...) WEFT_T_((weft_norm)WEFT_ARGS_(weft_norm_args, __VA_ARGS__))
#define weft_layer_norm(...) WEFT_T_((weft_layer_norm)WEFT_ARGS_(weft_layer_norm_args, __VA_ARGS__))
#define weft_rms_norm(...) WEFT_T_((weft_rms_norm)WEFT_ARGS_(weft_rms_norm_args, __VA_ARGS__))
#define weft_batch_norm(...) WEFT_T_((weft_batch_norm)WEFT_ARGS_(weft_batch_norm_args, __VA_ARGS__))
#define weft_group_norm(...) WEFT_T_((weft_group_norm)WEFT_ARGS_(weft_group_norm_args, __VA_ARGS__))
#define weft_instance_norm(...) WEFT_T_((weft_instance_norm)WEFT_ARGS_(weft_instance_norm_args, __VA_ARGS__))
#define weft_conv1d(...) WEFT_T_((weft_conv1d)WEFT_ARGS_(weft_conv2d_args, __VA_ARGS__))
#define weft_conv_transpose1d(...) WEFT_T_((weft_conv_transpose1d)WEFT_ARGS_(weft_conv_transpose_args, __VA_ARGS__))
#define weft_conv_transpose2d(...) WEFT_T_((weft_conv_transpose2d)WEFT_ARGS_(weft_conv_transpose_args, __VA_ARGS__))
#define weft_interpolate(...) WEFT_T_((weft_interpolate)WEFT_ARGS_(weft_interpolate_args, __VA_ARGS__))
#define weft_conv2d(...) WEFT_T_((weft_conv2d)WEFT_ARGS_(weft_conv2d_args, __VA_ARGS__))
#define weft_max_pool2d(...) WEFT_T_((weft_max_pool2d)WEFT_ARGS_(weft_pool2d_args, __VA_ARGS__))
#define weft_avg_pool2d(...) WEFT_T_((weft_avg_pool2d)WEFT_ARGS_(weft_pool2d_args, __VA_ARGS__))
#define weft_scaled_dot_product_attention(...) WEFT_T_((weft_scaled_dot_product_attention)WEFT_ARGS_(weft_attention_args, __VA_ARGS__))
#define weft_dropout(...) WEFT_T_((weft_dropout)WEFT_ARGS_(weft_dropout_args, __VA_ARGS__))
#define weft_cross_entropy(...) WEFT_T_((weft_cross_entropy)WEFT_ARGS_(weft_cross_entropy_args, __VA_ARGS__))
#define weft_nll_loss(...) WEFT_T_((weft_nll_loss)WEFT_ARGS_(weft_cross_entropy_args, __VA_ARGS__))
#define weft_mse_loss(...) WEFT_T_((weft_mse_loss)WEFT_ARGS_(weft_loss_args, __VA_ARGS__))
#define weft_l1_loss(...) WEFT_T_((weft_l1_loss)WEFT_ARGS_(weft_loss_args, __VA_ARGS__))
#define weft_huber_loss(...) WEFT_T_((weft_huber_loss)WEFT_ARGS_(weft_loss_args, __VA_ARGS__))
#define weft_binary_cross_entropy(...) WEFT_T_((weft_binary_cross_entropy)WEFT_ARGS_(weft_loss_args, __VA_ARGS__))
#define weft_bce_with_logits(...) WEFT_T_((weft_bce_with_logits)WEFT_ARGS_(weft_loss_args, __VA_ARGS__))
#define weft_kl_div(...) WEFT_T_((weft_kl_div)WEFT_ARGS_(weft_loss_args, __VA_ARGS__))
#define weft_isclose(...) WEFT_T_((weft_isclose)WEFT_ARGS_(weft_isclose_args, __VA_ARGS__))
#define weft_allclose(...) WEFT_T_((weft_allclose)WEFT_ARGS_(weft_isclose_args, __VA_ARGS__))
#define weft_index(...) WEFT_T_((weft_index)(WEFT_INDEX_(__VA_ARGS__)))
#define weft_einsum(...) WEFT_T_((weft_einsum)(WEFT_OPERANDS_(__VA_ARGS__)))

#ifndef WEFT_NO_SITES
#define weft_neg(...) WEFT_T_((weft_neg)(__VA_ARGS__))
#define weft_abs(...) WEFT_T_((weft_abs)(__VA_ARGS__))
#define weft_sign(...) WEFT_T_((weft_sign)(__VA_ARGS__))
#define weft_square(...) WEFT_T_((weft_square)(__VA_ARGS__))
#define weft_cube(...) WEFT_T_((weft_cube)(__VA_ARGS__))
#define weft_reciprocal(...) WEFT_T_((weft_reciprocal)(__VA_ARGS__))
#define weft_sqrt(...) WEFT_T_((weft_sqrt)(__VA_ARGS__))
#define weft_rsqrt(...) WEFT_T_((weft_rsqrt)(__VA_ARGS__))
#define weft_pow_half(...) WEFT_T_((weft_pow_half)(__VA_ARGS__))
#define weft_pow_minus_half(...) WEFT_T_((weft_pow_minus_half)(__VA_ARGS__))
#define weft_cbrt(...) WEFT_T_((weft_cbrt)(__VA_ARGS__))
#define weft_exp(...) WEFT_T_((weft_exp)(__VA_ARGS__))
#define weft_exp2(...) WEFT_T_((weft_exp2)(__VA_ARGS__))
#define weft_expm1(...) WEFT_T_((weft_expm1)(__VA_ARGS__))
#define weft_log(...) WEFT_T_((weft_log)(__VA_ARGS__))
#define weft_log2(...) WEFT_T_((weft_log2)(__VA_ARGS__))
#define weft_log10(...) WEFT_T_((weft_log10)(__VA_ARGS__))
#define weft_log1p(...) WEFT_T_((weft_log1p)(__VA_ARGS__))
#define weft_sin(...) WEFT_T_((weft_sin)(__VA_ARGS__))
#define weft_cos(...) WEFT_T_((weft_cos)(__VA_ARGS__))
#define weft_tan(...) WEFT_T_((weft_tan)(__VA_ARGS__))
#define weft_asin(...) WEFT_T_((weft_asin)(__VA_ARGS__))
#define weft_acos(...) WEFT_T_((weft_acos)(__VA_ARGS__))
#define weft_atan(...) WEFT_T_((weft_atan)(__VA_ARGS__))
#define weft_sinh(...) WEFT_T_((weft_sinh)(__VA_ARGS__))
#define weft_cosh(...) WEFT_T_((weft_cosh)(__VA_ARGS__))
#define weft_tanh(...) WEFT_T_((weft_tanh)(__VA_ARGS__))
#define weft_asinh(...) WEFT_T_((weft_asinh)(__VA_ARGS__))
#define weft_acosh(...) WEFT_T_((weft_acosh)(__VA_ARGS__))
#define weft_atanh(...) WEFT_T_((weft_atanh)(__VA_ARGS__))
#define weft_sigmoid(...) WEFT_T_((weft_sigmoid)(__VA_ARGS__))
#define weft_log_sigmoid(...) WEFT_T_((weft_log_sigmoid)(__VA_ARGS__))
#define weft_erf(...) WEFT_T_((weft_erf)(__VA_ARGS__))
#define weft_erfc(...) WEFT_T_((weft_erfc)(__VA_ARGS__))
#define weft_normcdf(...) WEFT_T_((weft_normcdf)(__VA_ARGS__))
#define weft_gelu(...) WEFT_T_((weft_gelu)(__VA_ARGS__))
#define weft_gelu_tanh(...) WEFT_T_((weft_gelu_tanh)(__VA_ARGS__))
#define weft_silu(...) WEFT_T_((weft_silu)(__VA_ARGS__))
#define weft_softplus(...) WEFT_T_((weft_softplus)(__VA_ARGS__))
#define weft_mish(...) WEFT_T_((weft_mish)(__VA_ARGS__))
#define weft_relu(...) WEFT_T_((weft_relu)(__VA_ARGS__))
#define weft_relu6(...) WEFT_T_((weft_relu6)(__VA_ARGS__))
#define weft_hardsigmoid(...) WEFT_T_((weft_hardsigmoid)(__VA_ARGS__))
#define weft_hardswish(...) WEFT_T_((weft_hardswish)(__VA_ARGS__))
#define weft_selu(...) WEFT_T_((weft_selu)(__VA_ARGS__))
#define weft_floor(...) WEFT_T_((weft_floor)(__VA_ARGS__))
#define weft_ceil(...) WEFT_T_((weft_ceil)(__VA_ARGS__))
#define weft_trunc(...) WEFT_T_((weft_trunc)(__VA_ARGS__))
#define weft_round(...) WEFT_T_((weft_round)(__VA_ARGS__))
#define weft_bitwise_not(...) WEFT_T_((weft_bitwise_not)(__VA_ARGS__))
#define weft_add(...) WEFT_T_((weft_add)(__VA_ARGS__))
#define weft_sub(...) WEFT_T_((weft_sub)(__VA_ARGS__))
#define weft_mul(...) WEFT_T_((weft_mul)(__VA_ARGS__))
#define weft_div(...) WEFT_T_((weft_div)(__VA_ARGS__))
#define weft_floor_divide(...) WEFT_T_((weft_floor_divide)(__VA_ARGS__))
#define weft_remainder(...) WEFT_T_((weft_remainder)(__VA_ARGS__))
#define weft_fmod(...) WEFT_T_((weft_fmod)(__VA_ARGS__))
#define weft_pow(...) WEFT_T_((weft_pow)(__VA_ARGS__))
#define weft_maximum(...) WEFT_T_((weft_maximum)(__VA_ARGS__))
#define weft_minimum(...) WEFT_T_((weft_minimum)(__VA_ARGS__))
#define weft_atan2(...) WEFT_T_((weft_atan2)(__VA_ARGS__))
#define weft_hypot(...) WEFT_T_((weft_hypot)(__VA_ARGS__))
#define weft_copysign(...) WEFT_T_((weft_copysign)(__VA_ARGS__))
#define weft_logaddexp(...) WEFT_T_((weft_logaddexp)(__VA_ARGS__))
#define weft_xlogy(...) WEFT_T_((weft_xlogy)(__VA_ARGS__))
#define weft_bce(...) WEFT_T_((weft_bce)(__VA_ARGS__))
#define weft_leaky_relu(...) WEFT_T_((weft_leaky_relu)(__VA_ARGS__))
#define weft_elu(...) WEFT_T_((weft_elu)(__VA_ARGS__))
#define weft_bitwise_and(...) WEFT_T_((weft_bitwise_and)(__VA_ARGS__))
#define weft_bitwise_or(...) WEFT_T_((weft_bitwise_or)(__VA_ARGS__))
#define weft_bitwise_xor(...) WEFT_T_((weft_bitwise_xor)(__VA_ARGS__))
#define weft_bitwise_left_shift(...) WEFT_T_((weft_bitwise_left_shift)(__VA_ARGS__))
#define weft_bitwise_right_shift(...) WEFT_T_((weft_bitwise_right_shift)(__VA_ARGS__))
#define weft_clamp(...) WEFT_T_((weft_clamp)(__VA_ARGS__))
#define weft_lerp(...) WEFT_T_((weft_lerp)(__VA_ARGS__))
#define weft_fma(...) WEFT_T_((weft_fma)(__VA_ARGS__))
#define weft_addcmul(...) WEFT_T_((weft_addcmul)(__VA_ARGS__))
#define weft_huber(...) WEFT_T_((weft_huber)(__VA_ARGS__))
#define weft_where(...) WEFT_T_((weft_where)(__VA_ARGS__))
#define weft_masked_fill(...) WEFT_T_((weft_masked_fill)(__VA_ARGS__))
#define weft_isnan(...) WEFT_T_((weft_isnan)(__VA_ARGS__))
#define weft_isinf(...) WEFT_T_((weft_isinf)(__VA_ARGS__))
#define weft_isfinite(...) WEFT_T_((weft_isfinite)(__VA_ARGS__))
#define weft_signbit(...) WEFT_T_((weft_signbit)(__VA_ARGS__))
#define weft_logical_not(...) WEFT_T_((weft_logical_not)(__VA_ARGS__))
#define weft_equal(...) WEFT_T_((weft_equal)(__VA_ARGS__))
#define weft_not_equal(...) WEFT_T_((weft_not_equal)(__VA_ARGS__))
#define weft_less(...) WEFT_T_((weft_less)(__VA_ARGS__))
#define weft_less_equal(...) WEFT_T_((weft_less_equal)(__VA_ARGS__))
#define weft_greater(...) WEFT_T_((weft_greater)(__VA_ARGS__))
#define weft_greater_equal(...) WEFT_T_((weft_greater_equal)(__VA_ARGS__))
#define weft_logical_and(...) WEFT_T_((weft_logical_and)(__VA_ARGS__))
#define weft_logical_or(...) WEFT_T_((weft_logical_or)(__VA_ARGS__))
#define weft_logical_xor(...) WEFT_T_((weft_logical_xor)(__VA_ARGS__))
#define weft_copy_(...) WEFT_S_((weft_copy_)(__VA_ARGS__))
#define weft_fill_(...) WEFT_S_((weft_fill_)(__VA_ARGS__))
#define weft_zero_(...) WEFT_S_((weft_zero_)(__VA_ARGS__))
#define weft_masked_fill_(...) WEFT_S_((weft_masked_fill_)(__VA_ARGS__))
#define weft_neg_(...) WEFT_S_((weft_neg_)(__VA_ARGS__))
#define weft_abs_(...) WEFT_S_((weft_abs_)(__VA_ARGS__))
#define weft_sign_(...) WEFT_S_((weft_sign_)(__VA_ARGS__))
#define weft_square_(...) WEFT_S_((weft_square_)(__VA_ARGS__))
#define weft_cube_(...) WEFT_S_((weft_cube_)(__VA_ARGS__))
#define weft_reciprocal_(...) WEFT_S_((weft_reciprocal_)(__VA_ARGS__))
#define weft_sqrt_(...) WEFT_S_((weft_sqrt_)(__VA_ARGS__))
#define weft_rsqrt_(...) WEFT_S_((weft_rsqrt_)(__VA_ARGS__))
#define weft_pow_half_(...) WEFT_S_((weft_pow_half_)(__VA_ARGS__))
#define weft_pow_minus_half_(...) WEFT_S_((weft_pow_minus_half_)(__VA_ARGS__))
#define weft_cbrt_(...) WEFT_S_((weft_cbrt_)(__VA_ARGS__))
#define weft_exp_(...) WEFT_S_((weft_exp_)(__VA_ARGS__))
#define weft_exp2_(...) WEFT_S_((weft_exp2_)(__VA_ARGS__))
#define weft_expm1_(...) WEFT_S_((weft_expm1_)(__VA_ARGS__))
#define weft_log_(...) WEFT_S_((weft_log_)(__VA_ARGS__))
#define weft_log2_(...) WEFT_S_((weft_log2_)(__VA_ARGS__))
#define weft_log10_(...) WEFT_S_((weft_log10_)(__VA_ARGS__))
#define weft_log1p_(...) WEFT_S_((weft_log1p_)(__VA_ARGS__))
#define weft_sin_(...) WEFT_S_((weft_sin_)(__VA_ARGS__))
#define weft_cos_(...) WEFT_S_((weft_cos_)(__VA_ARGS__))
#define weft_tan_(...) WEFT_S_((weft_tan_)(__VA_ARGS__))
#define weft_asin_(...) WEFT_S_((weft_asin_)(__VA_ARGS__))
#define weft_acos_(...) WEFT_S_((weft_acos_)(__VA_ARGS__))
#define weft_atan_(...) WEFT_S_((weft_atan_)(__VA_ARGS__))
#define weft_sinh_(...) WEFT_S_((weft_sinh_)(__VA_ARGS__))
#define weft_cosh_(...) WEFT_S_((weft_cosh_)(__VA_ARGS__))
#define weft_tanh_(...) WEFT_S_((weft_tanh_)(__VA_ARGS__))
#define weft_asinh_(...) WEFT_S_((weft_asinh_)(__VA_ARGS__))
#define weft_acosh_(...) WEFT_S_((weft_acosh_)(__VA_ARGS__))
#define weft_atanh_(...) WEFT_S_((weft_atanh_)(__VA_ARGS__))
#define weft_sigmoid_(...) WEFT_S_((weft_sigmoid_)(__VA_ARGS__))
#define weft_log_sigmoid_(...) WEFT_S_((weft_log_sigmoid_)(__VA_ARGS__))
#define weft_erf_(...) WEFT_S_((weft_erf_)(__VA_ARGS__))
#define weft_erfc_(...) WEFT_S_((weft_erfc_)(__VA_ARGS__))
#define weft_normcdf_(...) WEFT_S_((weft_normcdf_)(__VA_ARGS__))
#define weft_gelu_(...) WEFT_S_((weft_gelu_)(__VA_ARGS__))
#define weft_gelu_tanh_(...) WEFT_S_((weft_gelu_tanh_)(__VA_ARGS__))
#define weft_silu_(...) WEFT_S_((weft_silu_)(__VA_ARGS__))
#define weft_softplus_(...) WEFT_S_((weft_softplus_)(__VA_ARGS__))
#define weft_mish_(...) WEFT_S_((weft_mish_)(__VA_ARGS__))
#define weft_relu_(...) WEFT_S_((weft_relu_)(__VA_ARGS__))
#define weft_relu6_(...) WEFT_S_((weft_relu6_)(__VA_ARGS__))
#define weft_hardsigmoid_(...) WEFT_S_((weft_hardsigmoid_)(__VA_ARGS__))
#define weft_hardswish_(...) WEFT_S_((weft_hardswish_)(__VA_ARGS__))
#define weft_selu_(...) WEFT_S_((weft_selu_)(__VA_ARGS__))
#define weft_floor_(...) WEFT_S_((weft_floor_)(__VA_ARGS__))
#define weft_ceil_(...) WEFT_S_((weft_ceil_)(__VA_ARGS__))
#define weft_trunc_(...) WEFT_S_((weft_trunc_)(__VA_ARGS__))
#define weft_round_(...) WEFT_S_((weft_round_)(__VA_ARGS__))
#define weft_bitwise_not_(...) WEFT_S_((weft_bitwise_not_)(__VA_ARGS__))
#define weft_add_(...) WEFT_S_((weft_add_)(__VA_ARGS__))
#define weft_sub_(...) WEFT_S_((weft_sub_)(__VA_ARGS__))
#define weft_mul_(...) WEFT_S_((weft_mul_)(__VA_ARGS__))
#define weft_div_(...) WEFT_S_((weft_div_)(__VA_ARGS__))
#define weft_floor_divide_(...) WEFT_S_((weft_floor_divide_)(__VA_ARGS__))
#define weft_remainder_(...) WEFT_S_((weft_remainder_)(__VA_ARGS__))
#define weft_fmod_(...) WEFT_S_((weft_fmod_)(__VA_ARGS__))
#define weft_pow_(...) WEFT_S_((weft_pow_)(__VA_ARGS__))
#define weft_maximum_(...) WEFT_S_((weft_maximum_)(__VA_ARGS__))
#define weft_minimum_(...) WEFT_S_((weft_minimum_)(__VA_ARGS__))
#define weft_atan2_(...) WEFT_S_((weft_atan2_)(__VA_ARGS__))
#define weft_hypot_(...) WEFT_S_((weft_hypot_)(__VA_ARGS__))
#define weft_copysign_(...) WEFT_S_((weft_copysign_)(__VA_ARGS__))
#define weft_logaddexp_(...) WEFT_S_((weft_logaddexp_)(__VA_ARGS__))
#define weft_xlogy_(...) WEFT_S_((weft_xlogy_)(__VA_ARGS__))
#define weft_bce_(...) WEFT_S_((weft_bce_)(__VA_ARGS__))
#define weft_leaky_relu_(...) WEFT_S_((weft_leaky_relu_)(__VA_ARGS__))
#define weft_elu_(...) WEFT_S_((weft_elu_)(__VA_ARGS__))
#define weft_bitwise_and_(...) WEFT_S_((weft_bitwise_and_)(__VA_ARGS__))
#define weft_bitwise_or_(...) WEFT_S_((weft_bitwise_or_)(__VA_ARGS__))
#define weft_bitwise_xor_(...) WEFT_S_((weft_bitwise_xor_)(__VA_ARGS__))
#define weft_bitwise_left_shift_(...) WEFT_S_((weft_bitwise_left_shift_)(__VA_ARGS__))
#define weft_bitwise_right_shift_(...) WEFT_S_((weft_bitwise_right_shift_)(__VA_ARGS__))
#define weft_clamp_(...) WEFT_S_((weft_clamp_)(__VA_ARGS__))
#define weft_lerp_(...) WEFT_S_((weft_lerp_)(__VA_ARGS__))
#define weft_fma_(...) WEFT_S_((weft_fma_)(__VA_ARGS__))
#define weft_addcmul_(...) WEFT_S_((weft_addcmul_)(__VA_ARGS__))
#define weft_huber_(...) WEFT_S_((weft_huber_)(__VA_ARGS__))
#define weft_scatter_add_(...) WEFT_S_((weft_scatter_add_)(__VA_ARGS__))
#define weft_index_add_(...) WEFT_S_((weft_index_add_)(__VA_ARGS__))
#define weft_cumsum(...) WEFT_T_((weft_cumsum)(__VA_ARGS__))
#define weft_cumprod(...) WEFT_T_((weft_cumprod)(__VA_ARGS__))
#define weft_matmul(...) WEFT_T_((weft_matmul)(__VA_ARGS__))
#define weft_cast(...) WEFT_T_((weft_cast)(__VA_ARGS__))
#define weft_to(...) WEFT_T_((weft_to)(__VA_ARGS__))
#define weft_clone(...) WEFT_T_((weft_clone)(__VA_ARGS__))
#define weft_contiguous(...) WEFT_T_((weft_contiguous)(__VA_ARGS__))
#define weft_channels_last(...) WEFT_T_((weft_channels_last)(__VA_ARGS__))
#define weft_detach(...) WEFT_T_((weft_detach)(__VA_ARGS__))
#define weft_reshape(...) WEFT_T_((weft_reshape)(__VA_ARGS__))
#define weft_flatten(...) WEFT_T_((weft_flatten)(__VA_ARGS__))
#define weft_squeeze(...) WEFT_T_((weft_squeeze)(__VA_ARGS__))
#define weft_unsqueeze(...) WEFT_T_((weft_unsqueeze)(__VA_ARGS__))
#define weft_transpose(...) WEFT_T_((weft_transpose)(__VA_ARGS__))
#define weft_permute(...) WEFT_T_((weft_permute)(__VA_ARGS__))
#define weft_expand(...) WEFT_T_((weft_expand)(__VA_ARGS__))
#define weft_broadcast_to(...) WEFT_T_((weft_broadcast_to)(__VA_ARGS__))
#define weft_slice(...) WEFT_T_((weft_slice)(__VA_ARGS__))
#define weft_narrow(...) WEFT_T_((weft_narrow)(__VA_ARGS__))
#define weft_select(...) WEFT_T_((weft_select)(__VA_ARGS__))
#define weft_flip(...) WEFT_T_((weft_flip)(__VA_ARGS__))
#define weft_as_strided(...) WEFT_T_((weft_as_strided)(__VA_ARGS__))
#define weft_diagonal(...) WEFT_T_((weft_diagonal)(__VA_ARGS__))
#define weft_unfold(...) WEFT_T_((weft_unfold)(__VA_ARGS__))
#define weft_split(...) WEFT_S_(WEFT_R_((weft_split)(__VA_ARGS__)))
#define weft_chunk(...) WEFT_S_(WEFT_R_((weft_chunk)(__VA_ARGS__)))
#define weft_concat(...) WEFT_T_((weft_concat)(__VA_ARGS__))
#define weft_stack(...) WEFT_T_((weft_stack)(__VA_ARGS__))
#define weft_pad(...) WEFT_T_((weft_pad)(__VA_ARGS__))
#define weft_pad_mode(...) WEFT_T_((weft_pad_mode)(__VA_ARGS__))
#define weft_roll(...) WEFT_T_((weft_roll)(__VA_ARGS__))
#define weft_tril(...) WEFT_T_((weft_tril)(__VA_ARGS__))
#define weft_triu(...) WEFT_T_((weft_triu)(__VA_ARGS__))
#define weft_tile(...) WEFT_T_((weft_tile)(__VA_ARGS__))
#define weft_repeat(...) WEFT_T_((weft_repeat)(__VA_ARGS__))
#define weft_take_along(...) WEFT_T_((weft_take_along)(__VA_ARGS__))
#define weft_gather(...) WEFT_T_((weft_gather)(__VA_ARGS__))
#define weft_index_select(...) WEFT_T_((weft_index_select)(__VA_ARGS__))
#define weft_embedding(...) WEFT_T_((weft_embedding)(__VA_ARGS__))
#define weft_scatter_add(...) WEFT_T_((weft_scatter_add)(__VA_ARGS__))
#define weft_index_add(...) WEFT_T_((weft_index_add)(__VA_ARGS__))
#define weft_index_get(...) WEFT_T_((weft_index_get)(__VA_ARGS__))
#define weft_index_put(...) WEFT_T_((weft_index_put)(__VA_ARGS__))
#define weft_one_hot(...) WEFT_T_((weft_one_hot)(__VA_ARGS__))
#define weft_sort(...) WEFT_S_(WEFT_R_((weft_sort)(__VA_ARGS__)))
#define weft_argsort(...) WEFT_T_((weft_argsort)(__VA_ARGS__))
#define weft_topk(...) WEFT_S_(WEFT_R_((weft_topk)(__VA_ARGS__)))
#define weft_nonzero(...) WEFT_T_(WEFT_R_((weft_nonzero)(__VA_ARGS__)))
#define weft_masked_select(...) WEFT_T_(WEFT_R_((weft_masked_select)(__VA_ARGS__)))
#define weft_unique(...) WEFT_S_(WEFT_R_((weft_unique)(__VA_ARGS__)))
#define weft_searchsorted(...) WEFT_T_(WEFT_R_((weft_searchsorted)(__VA_ARGS__)))
#define weft_zeros(...) WEFT_T_((weft_zeros)(__VA_ARGS__))
#define weft_ones(...) WEFT_T_((weft_ones)(__VA_ARGS__))
#define weft_full(...) WEFT_T_((weft_full)(__VA_ARGS__))
#define weft_zeros_like(...) WEFT_T_((weft_zeros_like)(__VA_ARGS__))
#define weft_ones_like(...) WEFT_T_((weft_ones_like)(__VA_ARGS__))
#define weft_full_like(...) WEFT_T_((weft_full_like)(__VA_ARGS__))
#define weft_arange(...) WEFT_T_((weft_arange)(__VA_ARGS__))
#define weft_linspace(...) WEFT_T_((weft_linspace)(__VA_ARGS__))
#define weft_eye(...) WEFT_T_((weft_eye)(__VA_ARGS__))
#define weft_scalar(...) WEFT_T_((weft_scalar)(__VA_ARGS__))
#define weft_adaptive_avg_pool2d(...) WEFT_T_((weft_adaptive_avg_pool2d)(__VA_ARGS__))
#define weft_linear(...) WEFT_T_((weft_linear)(__VA_ARGS__))
#define weft_softmax(...) WEFT_T_((weft_softmax)(__VA_ARGS__))
#define weft_log_softmax(...) WEFT_T_((weft_log_softmax)(__VA_ARGS__))
#endif
/* clang-format on */

#endif
