/*
 * weft/ops.h -- the operations.
 *
 * Said once for all of them:
 *  - The result is a new tensor of the innermost scope. On failure it is an empty handle that carries
 *    the error; an empty operand passes through, so calls nest and one weft_ok at the end is enough.
 *    Functions that return weft_status give WEFT_OK or the status, and leave their targets alone.
 *  - Errors, where a function says nothing else: WEFT_ESHAPE for ranks, extents, axes and counts that do not fit; WEFT_EDTYPE
 *    for an element type that the op does not take; WEFT_EINVALID for an option out of its domain, a NULL pointer, or operands
 *    on two devices; WEFT_EINDEX for an index out of range; WEFT_EHANDLE for a dead operand; WEFT_ENOMEM. Which ops have
 *    gradients is in docs/ops.md.
 *  - Wherever a tensor is taken, weft_f / weft_i / weft_b scalars are.
 *  - Operands broadcast as in NumPy and are promoted as weft_promote says (docs/dtypes.md).
 *  - Axes may be negative (-1 is the last). An option left zero has the default named beside it.
 *  - Options go after the operands by name: weft_sum(x, .axes = weft_axes(0, 1), .keepdim = true).
 *    In C++ they are parameters in the same order with defaults, weft_sum(x, weft_axes(0, 1), true), or the struct:
 *    weft_sum(&args), in C++20 weft_sum({.x = x, .keepdim = true}). Call sites are stamped in both languages.
 *  - WEFT_OR(v) behind a parameter is its default in C++; C has no defaults, so a call there gives every parameter.
 *  - "View": shares x's memory, costs no copy, and in-place writes show through both.
 */
#ifndef WEFT_OPS_H
#define WEFT_OPS_H

#include "weft/random.h"
#include "weft/tensor.h"

/* cross_entropy(.ignore_index): every class counts, 0 included; 0 itself means the default, -100. */
#define WEFT_IGNORE_NONE INT64_MIN
/* cross_entropy(.ignore_index): ignore class 0. */
#define WEFT_IGNORE_ZERO INT64_MAX

#ifdef __cplusplus
extern "C" {
#endif

/* -- elementwise, one operand ------------------------------------------------------------------------
 * Integers and bool go to f32 first, except where "keeps integers" is said: those take no bool (WEFT_EDTYPE).
 * The error in ULP of the f32 result is listed in docs/ulp.md. */
WEFT_API weft_tensor weft_neg(weft_tensor x);        /* -x; keeps integers */
WEFT_API weft_tensor weft_abs(weft_tensor x);        /* |x|; keeps integers */
WEFT_API weft_tensor weft_sign(weft_tensor x);       /* -1, 0 or 1; NaN stays; keeps integers */
WEFT_API weft_tensor weft_square(weft_tensor x);     /* x * x; keeps integers */
WEFT_API weft_tensor weft_cube(weft_tensor x);       /* x * x * x */
WEFT_API weft_tensor weft_reciprocal(weft_tensor x); /* 1 / x */
WEFT_API weft_tensor weft_sqrt(weft_tensor x);       /* NaN below 0 */
WEFT_API weft_tensor weft_rsqrt(weft_tensor x);      /* 1 / sqrt(x) */
/* x^0.5 and x^-0.5 as powers: the roots, but +0 and +inf at -0, +inf and 0 at -inf. weft_pow by these numbers is these. */
WEFT_API weft_tensor weft_pow_half(weft_tensor x);
WEFT_API weft_tensor weft_pow_minus_half(weft_tensor x);
WEFT_API weft_tensor weft_cbrt(weft_tensor x);        /* cube root, odd */
WEFT_API weft_tensor weft_exp(weft_tensor x);         /* e^x */
WEFT_API weft_tensor weft_exp2(weft_tensor x);        /* 2^x */
WEFT_API weft_tensor weft_expm1(weft_tensor x);       /* e^x - 1, exact near 0 */
WEFT_API weft_tensor weft_log(weft_tensor x);         /* natural; -inf at 0, NaN below */
WEFT_API weft_tensor weft_log2(weft_tensor x);        /* base 2 */
WEFT_API weft_tensor weft_log10(weft_tensor x);       /* base 10 */
WEFT_API weft_tensor weft_log1p(weft_tensor x);       /* log(1 + x), exact near 0 */
WEFT_API weft_tensor weft_sin(weft_tensor x);         /* radians, any magnitude */
WEFT_API weft_tensor weft_cos(weft_tensor x);         /* radians, any magnitude */
WEFT_API weft_tensor weft_tan(weft_tensor x);         /* radians, any magnitude */
WEFT_API weft_tensor weft_asin(weft_tensor x);        /* [-pi/2, pi/2]; NaN outside [-1, 1] */
WEFT_API weft_tensor weft_acos(weft_tensor x);        /* [0, pi]; NaN outside [-1, 1] */
WEFT_API weft_tensor weft_atan(weft_tensor x);        /* [-pi/2, pi/2] */
WEFT_API weft_tensor weft_sinh(weft_tensor x);        /* (e^x - e^-x) / 2 */
WEFT_API weft_tensor weft_cosh(weft_tensor x);        /* (e^x + e^-x) / 2 */
WEFT_API weft_tensor weft_tanh(weft_tensor x);        /* sinh / cosh */
WEFT_API weft_tensor weft_asinh(weft_tensor x);       /* inverse of sinh */
WEFT_API weft_tensor weft_acosh(weft_tensor x);       /* inverse of cosh; NaN below 1 */
WEFT_API weft_tensor weft_atanh(weft_tensor x);       /* inverse of tanh; NaN outside [-1, 1] */
WEFT_API weft_tensor weft_sigmoid(weft_tensor x);     /* 1 / (1 + e^-x) */
WEFT_API weft_tensor weft_log_sigmoid(weft_tensor x); /* log(sigmoid(x)), no overflow */
WEFT_API weft_tensor weft_erf(weft_tensor x);         /* error function */
WEFT_API weft_tensor weft_erfc(weft_tensor x);        /* 1 - erf(x), exact for large x */
WEFT_API weft_tensor weft_normcdf(weft_tensor x);     /* normal distribution function */
WEFT_API weft_tensor weft_gelu(weft_tensor x);      /* x * normcdf(x); Hendrycks and Gimpel 2016 */
WEFT_API weft_tensor weft_gelu_tanh(weft_tensor x); /* its tanh approximation (the same; GPT-2) */
WEFT_API weft_tensor weft_silu(weft_tensor x);      /* x * sigmoid(x); Elfwing et al. 2018 */
WEFT_API weft_tensor weft_softplus(weft_tensor x);  /* log(1 + e^x), no overflow */
WEFT_API weft_tensor weft_mish(weft_tensor x);      /* x * tanh(softplus(x)); Misra 2019 */
WEFT_API weft_tensor weft_relu(weft_tensor x);      /* max(x, 0); keeps integers */
WEFT_API weft_tensor weft_relu6(weft_tensor x);     /* min(max(x, 0), 6); keeps integers */
WEFT_API weft_tensor weft_hardsigmoid(weft_tensor x); /* min(max(x / 6 + 0.5, 0), 1) */
WEFT_API weft_tensor
weft_hardswish(weft_tensor x); /* x * min(max(x + 3, 0), 6) / 6; Howard et al. 2019 */
/* x > 0: s * x, else s * a * expm1(x) with the constants of mean 0 and variance 1; Klambauer et al. 2017 */
WEFT_API weft_tensor weft_selu(weft_tensor x);
WEFT_API weft_tensor weft_floor(weft_tensor x);       /* towards -inf; keeps integers */
WEFT_API weft_tensor weft_ceil(weft_tensor x);        /* towards +inf; keeps integers */
WEFT_API weft_tensor weft_trunc(weft_tensor x);       /* towards 0; keeps integers */
WEFT_API weft_tensor weft_round(weft_tensor x);       /* to nearest, ties to even; keeps integers */
WEFT_API weft_tensor weft_bitwise_not(weft_tensor x); /* integers only */

/* -- elementwise, two operands ------------------------------------------------------------------------
 * Integer arithmetic wraps; division and remainder by integer 0 give 0. Two bools have no arithmetic (WEFT_EDTYPE) but what goes to f32:
 * weft_logical_or and _and, or weft_cast first. */
WEFT_API weft_tensor weft_add(weft_tensor a, weft_tensor b); /* a + b */
WEFT_API weft_tensor weft_sub(weft_tensor a, weft_tensor b); /* a - b */
WEFT_API weft_tensor weft_mul(weft_tensor a, weft_tensor b); /* a * b */
WEFT_API weft_tensor weft_div(weft_tensor a, weft_tensor b); /* a / b; integers go to f32 */
/* floor of the exact quotient: -1 for -1 / inf, as in NumPy and PyTorch. Infinite where a is, or where b is 0. */
WEFT_API weft_tensor weft_floor_divide(weft_tensor a, weft_tensor b);
WEFT_API weft_tensor weft_remainder(weft_tensor a, weft_tensor b); /* a - floor(a/b)*b: sign of b */
WEFT_API weft_tensor weft_fmod(weft_tensor a, weft_tensor b);      /* a - trunc(a/b)*b: sign of a */
/* a^b. Of integers: exact, wraps; b < 0 is an error if b is a number, else gives 1 / a truncated (0 where a is 0). Of a float
 * tensor to the number 2, 3, 4, -1, -2, 0.5 or -0.5: by products or roots, at most 2 ULP off (of halves one rounding). */
WEFT_API weft_tensor weft_pow(weft_tensor a, weft_tensor b);
WEFT_API weft_tensor weft_maximum(weft_tensor a, weft_tensor b);  /* NaN if either is; -0 < +0 */
WEFT_API weft_tensor weft_minimum(weft_tensor a, weft_tensor b);  /* NaN if either is; -0 < +0 */
WEFT_API weft_tensor weft_atan2(weft_tensor a, weft_tensor b);    /* angle of (b, a), [-pi, pi] */
WEFT_API weft_tensor weft_hypot(weft_tensor a, weft_tensor b);    /* sqrt(a*a + b*b), no overflow */
WEFT_API weft_tensor weft_copysign(weft_tensor a, weft_tensor b); /* |a| with the sign bit of b */
WEFT_API weft_tensor weft_logaddexp(weft_tensor a, weft_tensor b); /* log(e^a + e^b), no overflow */
WEFT_API weft_tensor weft_xlogy(weft_tensor a,
                                weft_tensor b); /* a * log(b); 0 where a is 0 and b no NaN */
/* -(b log a + (1 - b) log(1 - a)), a in [0, 1], logarithms not below -100; gradient (a - b) / max(a(1 - a), 1e-12). */
WEFT_API weft_tensor weft_bce(weft_tensor a, weft_tensor b);
WEFT_API weft_tensor weft_leaky_relu(weft_tensor a, weft_tensor slope); /* a > 0 ? a : a * slope */
WEFT_API weft_tensor
weft_elu(weft_tensor a, weft_tensor alpha); /* a > 0 ? a : alpha*(e^a - 1); Clevert et al. 2016 */
WEFT_API weft_tensor weft_bitwise_and(weft_tensor a, weft_tensor b); /* bool and integers */
WEFT_API weft_tensor weft_bitwise_or(weft_tensor a, weft_tensor b);  /* bool and integers */
WEFT_API weft_tensor weft_bitwise_xor(weft_tensor a, weft_tensor b); /* bool and integers */
/* Integers; a shift by the width or more gives 0, or the sign for signed right shifts. */
WEFT_API weft_tensor weft_bitwise_left_shift(weft_tensor a, weft_tensor b);
WEFT_API weft_tensor weft_bitwise_right_shift(weft_tensor a, weft_tensor b);

/* -- elementwise, three operands ---------------------------------------------------------------------- */
WEFT_API weft_tensor weft_clamp(
    weft_tensor x, weft_tensor low,
    weft_tensor high); /* min(max(x, low), high); one bound alone: weft_maximum, weft_minimum */
WEFT_API weft_tensor weft_lerp(weft_tensor a, weft_tensor b, weft_tensor t); /* a + t * (b - a) */
WEFT_API weft_tensor weft_fma(weft_tensor a, weft_tensor b,
                              weft_tensor c); /* a*b + c, rounded once */
WEFT_API weft_tensor weft_addcmul(weft_tensor a, weft_tensor b, weft_tensor c); /* a + b * c */
/* Of e = a - b: e^2 / 2 where |e| is at most c, else c (|e| - c / 2); Huber 1964. */
WEFT_API weft_tensor weft_huber(weft_tensor a, weft_tensor b, weft_tensor c);
/* cond ? a : b; cond is bool, a and b are promoted together. */
WEFT_API weft_tensor weft_where(weft_tensor cond, weft_tensor a, weft_tensor b);
/* value where mask (bool), x elsewhere. */
WEFT_API weft_tensor weft_masked_fill(weft_tensor x, weft_tensor mask, weft_tensor value);

/* -- elementwise, bool results ------------------------------------------------------------------------ */
WEFT_API weft_tensor weft_isnan(weft_tensor x);                        /* false for non-floats */
WEFT_API weft_tensor weft_isinf(weft_tensor x);                        /* false for non-floats */
WEFT_API weft_tensor weft_isfinite(weft_tensor x);                     /* true for non-floats */
WEFT_API weft_tensor weft_signbit(weft_tensor x);                      /* -0 and negative NaN too */
WEFT_API weft_tensor weft_logical_not(weft_tensor x);                  /* x == 0 */
WEFT_API weft_tensor weft_equal(weft_tensor a, weft_tensor b);         /* a == b */
WEFT_API weft_tensor weft_not_equal(weft_tensor a, weft_tensor b);     /* a != b */
WEFT_API weft_tensor weft_less(weft_tensor a, weft_tensor b);          /* a < b */
WEFT_API weft_tensor weft_less_equal(weft_tensor a, weft_tensor b);    /* a <= b */
WEFT_API weft_tensor weft_greater(weft_tensor a, weft_tensor b);       /* a > b */
WEFT_API weft_tensor weft_greater_equal(weft_tensor a, weft_tensor b); /* a >= b */
WEFT_API weft_tensor weft_logical_and(weft_tensor a, weft_tensor b);   /* of a != 0, b != 0 */
WEFT_API weft_tensor weft_logical_or(weft_tensor a, weft_tensor b);    /* of a != 0, b != 0 */
WEFT_API weft_tensor weft_logical_xor(weft_tensor a, weft_tensor b);   /* of a != 0, b != 0 */

/* -- in place -------------------------------------------------------------------------------------------
 * x[...] := op(x, ...): written through x's view, seen by every tensor on the same memory, counted in
 * weft_write_count, recorded for gradients. Operands broadcast to x, never x to them; the result is
 * rounded to x's dtype, whose kind (bool < integer < float) must not be lower (WEFT_EDTYPE). Operands may overlap x.
 * Refused: read-only memory, views with several indices on one element (WEFT_ESHAPE), leaves that require grad, and views
 * that were made between weft_no_grad_begin and _end of a tensor that gradients flow to (both outside of these: WEFT_EGRAD). */
/* x := value, converted as weft_cast converts, whatever the kinds (of a tensor: a number's is not above x's, WEFT_EDTYPE); value
 * may be on another device. */
WEFT_API weft_status weft_copy_(weft_tensor x, weft_tensor value);
/* integers: truncated; WEFT_EINVALID if x's type does not hold it */
WEFT_API weft_status weft_fill_(weft_tensor x, double value);
WEFT_API weft_status weft_zero_(weft_tensor x); /* every element := 0 */
/* x := value where mask (bool, broadcasts to x) is true. */
WEFT_API weft_status weft_masked_fill_(weft_tensor x, weft_tensor mask, weft_tensor value);
/* One for each elementwise arithmetic row above; x is the first operand. */
WEFT_API weft_status weft_neg_(weft_tensor x);
WEFT_API weft_status weft_abs_(weft_tensor x);
WEFT_API weft_status weft_sign_(weft_tensor x);
WEFT_API weft_status weft_square_(weft_tensor x);
WEFT_API weft_status weft_cube_(weft_tensor x);
WEFT_API weft_status weft_reciprocal_(weft_tensor x);
WEFT_API weft_status weft_sqrt_(weft_tensor x);
WEFT_API weft_status weft_rsqrt_(weft_tensor x);
WEFT_API weft_status weft_pow_half_(weft_tensor x);
WEFT_API weft_status weft_pow_minus_half_(weft_tensor x);
WEFT_API weft_status weft_cbrt_(weft_tensor x);
WEFT_API weft_status weft_exp_(weft_tensor x);
WEFT_API weft_status weft_exp2_(weft_tensor x);
WEFT_API weft_status weft_expm1_(weft_tensor x);
WEFT_API weft_status weft_log_(weft_tensor x);
WEFT_API weft_status weft_log2_(weft_tensor x);
WEFT_API weft_status weft_log10_(weft_tensor x);
WEFT_API weft_status weft_log1p_(weft_tensor x);
WEFT_API weft_status weft_sin_(weft_tensor x);
WEFT_API weft_status weft_cos_(weft_tensor x);
WEFT_API weft_status weft_tan_(weft_tensor x);
WEFT_API weft_status weft_asin_(weft_tensor x);
WEFT_API weft_status weft_acos_(weft_tensor x);
WEFT_API weft_status weft_atan_(weft_tensor x);
WEFT_API weft_status weft_sinh_(weft_tensor x);
WEFT_API weft_status weft_cosh_(weft_tensor x);
WEFT_API weft_status weft_tanh_(weft_tensor x);
WEFT_API weft_status weft_asinh_(weft_tensor x);
WEFT_API weft_status weft_acosh_(weft_tensor x);
WEFT_API weft_status weft_atanh_(weft_tensor x);
WEFT_API weft_status weft_sigmoid_(weft_tensor x);
WEFT_API weft_status weft_log_sigmoid_(weft_tensor x);
WEFT_API weft_status weft_erf_(weft_tensor x);
WEFT_API weft_status weft_erfc_(weft_tensor x);
WEFT_API weft_status weft_normcdf_(weft_tensor x);
WEFT_API weft_status weft_gelu_(weft_tensor x);
WEFT_API weft_status weft_gelu_tanh_(weft_tensor x);
WEFT_API weft_status weft_silu_(weft_tensor x);
WEFT_API weft_status weft_softplus_(weft_tensor x);
WEFT_API weft_status weft_mish_(weft_tensor x);
WEFT_API weft_status weft_relu_(weft_tensor x);
WEFT_API weft_status weft_relu6_(weft_tensor x);
WEFT_API weft_status weft_hardsigmoid_(weft_tensor x);
WEFT_API weft_status weft_hardswish_(weft_tensor x);
WEFT_API weft_status weft_selu_(weft_tensor x);
WEFT_API weft_status weft_floor_(weft_tensor x);
WEFT_API weft_status weft_ceil_(weft_tensor x);
WEFT_API weft_status weft_trunc_(weft_tensor x);
WEFT_API weft_status weft_round_(weft_tensor x);
WEFT_API weft_status weft_bitwise_not_(weft_tensor x);
WEFT_API weft_status weft_add_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_sub_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_mul_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_div_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_floor_divide_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_remainder_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_fmod_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_pow_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_maximum_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_minimum_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_atan2_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_hypot_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_copysign_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_logaddexp_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_xlogy_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_bce_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_leaky_relu_(weft_tensor x, weft_tensor slope);
WEFT_API weft_status weft_elu_(weft_tensor x, weft_tensor alpha);
WEFT_API weft_status weft_bitwise_and_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_bitwise_or_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_bitwise_xor_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_bitwise_left_shift_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_bitwise_right_shift_(weft_tensor x, weft_tensor b);
WEFT_API weft_status weft_clamp_(weft_tensor x, weft_tensor low, weft_tensor high);
WEFT_API weft_status weft_lerp_(weft_tensor x, weft_tensor b, weft_tensor t);
WEFT_API weft_status weft_fma_(weft_tensor x, weft_tensor b, weft_tensor c);
WEFT_API weft_status weft_addcmul_(weft_tensor x, weft_tensor b, weft_tensor c);
WEFT_API weft_status weft_huber_(weft_tensor x, weft_tensor b, weft_tensor c);
/* x := scatter_add(x, ...) and index_add(x, ...), see below. */
WEFT_API weft_status weft_scatter_add_(weft_tensor x, int axis, weft_tensor indices,
                                       weft_tensor values);
WEFT_API weft_status weft_index_add_(weft_tensor x, int axis, weft_tensor indices,
                                     weft_tensor values);

#ifdef __cplusplus
}
#endif

#include "weft/ops_array.h"
#include "weft/ops_nn.h"
#include "weft/ops_sites.h"
#include "weft/sites.h"

#endif
