/*
 * tools/ulp_ref.h -- what tools/ulp_sweep.c measures against: each function in double (for f32, by
 * the C library) and in MPFR (for f64).
 *
 * Invariants: references are written from the definitions, not from the rows; the double ones are good to well below 0.01 ULP of f32, the MPFR ones, at PREC
 * bits, to far below that of f64; special values are those of C Annex F, and gelu(-inf) is -0.
 */
#ifndef TOOLS_ULP_REF_H
#define TOOLS_ULP_REF_H

#include <math.h>
#include <mpfr.h>

enum { PREC = 200 };

/* -- reference values in double, for f32 ------------------------------------------------------- */

static double ref_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double ref_rsqrt(double x)
{
    return 1 / sqrt(x);
}
static double ref_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}
static double ref_log_sigmoid(double x)
{
    return -ref_softplus(-x);
}
static double ref_normcdf(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}
static double ref_gelu(double x)
{
    return x == -INFINITY ? -0.0 : x * ref_normcdf(x);
}
static double ref_gelu_tanh(double x)
{
    double u2 = 2 * M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x);
    return x == -INFINITY ? -0.0 : x / (1 + exp(-u2));
}
static double ref_silu(double x)
{
    return x == -INFINITY ? -0.0 : x / (1 + exp(-x));
}
static double ref_mish(double x)
{
    return x == -INFINITY ? -0.0 : x * tanh(ref_softplus(x));
}
static double ref_reciprocal(double x)
{
    return 1 / x;
}
static double ref_relu6(double x)
{
    return isnan(x) ? x : x <= 0 ? 0 : fmin(x, 6);
}
static double ref_hardsigmoid(double x)
{
    return isnan(x) ? x : x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) / 6;
}
static double ref_hardswish(double x)
{
    return x > -3 && x < 3 ? x * (x + 3) / 6 : x >= 3 ? x : x * 0;
}
static double ref_selu(double x)
{
    return 1.0507009873554804934193 * (x > 0 ? x : 1.6732632423543772848170 * expm1(x));
}
#define ref_sqrt sqrt
#define ref_exp exp
#define ref_exp2 exp2
#define ref_expm1 expm1
#define ref_log log
#define ref_log2 log2
#define ref_log10 log10
#define ref_log1p log1p
#define ref_sin sin
#define ref_cos cos
#define ref_tan tan
#define ref_asin asin
#define ref_acos acos
#define ref_atan atan
#define ref_sinh sinh
#define ref_cosh cosh
#define ref_tanh tanh
#define ref_asinh asinh
#define ref_acosh acosh
#define ref_atanh atanh
#define ref_erf erf
#define ref_erfc erfc
#define ref_cbrt cbrt
#define ref_atan2 atan2
#define ref_pow pow
#define ref_hypot hypot

/* -- reference values in MPFR, for f64 --------------------------------------------------------- */

typedef void mp_unary(mpfr_t y, const mpfr_t x);
typedef void mp_binary(mpfr_t z, const mpfr_t x, const mpfr_t y);

#define MP_PLAIN(name, fn)                                                                         \
    static void mp_##name(mpfr_t y, const mpfr_t x)                                                \
    {                                                                                              \
        fn(y, x, MPFR_RNDN);                                                                       \
    }
MP_PLAIN(exp, mpfr_exp)
MP_PLAIN(exp2, mpfr_exp2)
MP_PLAIN(expm1, mpfr_expm1)
MP_PLAIN(log2, mpfr_log2)
MP_PLAIN(log10, mpfr_log10)
MP_PLAIN(log, mpfr_log)
MP_PLAIN(log1p, mpfr_log1p)
MP_PLAIN(sin, mpfr_sin)
MP_PLAIN(cos, mpfr_cos)
MP_PLAIN(tan, mpfr_tan)
MP_PLAIN(asin, mpfr_asin)
MP_PLAIN(acos, mpfr_acos)
MP_PLAIN(atan, mpfr_atan)
MP_PLAIN(sinh, mpfr_sinh)
MP_PLAIN(cosh, mpfr_cosh)
MP_PLAIN(tanh, mpfr_tanh)
MP_PLAIN(asinh, mpfr_asinh)
MP_PLAIN(acosh, mpfr_acosh)
MP_PLAIN(atanh, mpfr_atanh)
MP_PLAIN(erf, mpfr_erf)
MP_PLAIN(erfc, mpfr_erfc)
MP_PLAIN(cbrt, mpfr_cbrt)
MP_PLAIN(sqrt, mpfr_sqrt)

static void mp_reciprocal(mpfr_t y, const mpfr_t x)
{
    mpfr_ui_div(y, 1, x, MPFR_RNDN);
}
static void mp_relu6(mpfr_t y, const mpfr_t x)
{
    mpfr_set(y, x, MPFR_RNDN);
    if (mpfr_cmp_ui(x, 6) > 0)
        mpfr_set_ui(y, 6, MPFR_RNDN);
    if (!mpfr_nan_p(x) && mpfr_sgn(x) <= 0)
        mpfr_set_zero(y, 1);
}
/* min(max(x + 3, 0), 6) / 6 */
static void mp_hardsigmoid(mpfr_t y, const mpfr_t x)
{
    mpfr_add_ui(y, x, 3, MPFR_RNDN);
    if (mpfr_cmp_ui(y, 6) > 0)
        mpfr_set_ui(y, 6, MPFR_RNDN);
    if (!mpfr_nan_p(x) && mpfr_sgn(y) <= 0)
        mpfr_set_zero(y, 1);
    mpfr_div_ui(y, y, 6, MPFR_RNDN);
}
static void mp_hardswish(mpfr_t y, const mpfr_t x)
{
    mpfr_t h;
    mpfr_init2(h, PREC);
    mp_hardsigmoid(h, x);
    mpfr_mul(y, x, h, MPFR_RNDN);
    mpfr_clear(h);
}
static void mp_selu(mpfr_t y, const mpfr_t x)
{
    mpfr_t c;
    mpfr_init2(c, PREC);
    mpfr_set(y, x, MPFR_RNDN);
    if (!mpfr_nan_p(x) && mpfr_sgn(x) <= 0) {
        mpfr_expm1(y, x, MPFR_RNDN);
        mpfr_set_str(c, "1.67326324235437728481704297", 10, MPFR_RNDN);
        mpfr_mul(y, y, c, MPFR_RNDN);
    }
    mpfr_set_str(c, "1.05070098735548049341933498", 10, MPFR_RNDN);
    mpfr_mul(y, y, c, MPFR_RNDN);
    mpfr_clear(c);
}

/* The argument clipped to [-b, b]: beyond it these functions have long reached 0 or x. */
static void clip(mpfr_t y, const mpfr_t x, double b)
{
    mpfr_set(y, x, MPFR_RNDN);
    if (mpfr_cmp_d(y, b) > 0)
        mpfr_set_d(y, b, MPFR_RNDN);
    if (mpfr_cmp_d(y, -b) < 0)
        mpfr_set_d(y, -b, MPFR_RNDN);
}

static void mp_sigmoid(mpfr_t y, const mpfr_t x)
{
    clip(y, x, 1e6);
    mpfr_neg(y, y, MPFR_RNDN);
    mpfr_exp(y, y, MPFR_RNDN);
    mpfr_add_ui(y, y, 1, MPFR_RNDN);
    mpfr_ui_div(y, 1, y, MPFR_RNDN);
}

static void mp_softplus(mpfr_t y, const mpfr_t x)
{
    clip(y, x, 1e6);
    mpfr_abs(y, y, MPFR_RNDN);
    mpfr_neg(y, y, MPFR_RNDN);
    mpfr_exp(y, y, MPFR_RNDN);
    mpfr_log1p(y, y, MPFR_RNDN);
    if (mpfr_nan_p(x) || mpfr_sgn(x) > 0)
        mpfr_add(y, y, x, MPFR_RNDN);
}

static void mp_log_sigmoid(mpfr_t y, const mpfr_t x)
{
    mpfr_t t;
    mpfr_init2(t, PREC);
    mpfr_neg(t, x, MPFR_RNDN);
    mp_softplus(y, t);
    mpfr_neg(y, y, MPFR_RNDN);
    mpfr_clear(t);
}

static void mp_normcdf(mpfr_t y, const mpfr_t x)
{
    mpfr_t t;
    mpfr_init2(t, PREC);
    mpfr_set_ui(t, 2, MPFR_RNDN);
    mpfr_rec_sqrt(t, t, MPFR_RNDN);
    clip(y, x, 1e3);
    mpfr_mul(t, y, t, MPFR_RNDN);
    mpfr_neg(t, t, MPFR_RNDN);
    mpfr_erfc(y, t, MPFR_RNDN);
    mpfr_div_2ui(y, y, 1, MPFR_RNDN);
    mpfr_clear(t);
}

static void mp_gelu(mpfr_t y, const mpfr_t x)
{
    mpfr_t t;
    mpfr_init2(t, PREC);
    clip(t, x, 1e3);
    if (mpfr_cmp_d(x, 1e3) > 0) {
        mpfr_set(y, x, MPFR_RNDN);
    } else {
        mp_normcdf(y, t);
        mpfr_mul(y, y, t, MPFR_RNDN);
    }
    mpfr_clear(t);
}

static void mp_gelu_tanh(mpfr_t y, const mpfr_t x)
{
    mpfr_t t, c;
    mpfr_inits2(PREC, t, c, (mpfr_ptr)0);
    clip(t, x, 1e3);
    mpfr_sqr(y, t, MPFR_RNDN);
    mpfr_mul_ui(y, y, 44715, MPFR_RNDN);
    mpfr_div_ui(y, y, 1000000, MPFR_RNDN);
    mpfr_add_ui(y, y, 1, MPFR_RNDN);
    mpfr_mul(y, y, t, MPFR_RNDN);
    mpfr_const_pi(c, MPFR_RNDN);
    mpfr_ui_div(c, 8, c, MPFR_RNDN);
    mpfr_sqrt(c, c, MPFR_RNDN);
    mpfr_mul(y, y, c, MPFR_RNDN);
    mpfr_neg(y, y, MPFR_RNDN);
    mpfr_exp(y, y, MPFR_RNDN);
    mpfr_add_ui(y, y, 1, MPFR_RNDN);
    mpfr_div(y, mpfr_cmp_d(x, 1e3) > 0 ? x : t, y, MPFR_RNDN);
    mpfr_clears(t, c, (mpfr_ptr)0);
}

static void mp_silu(mpfr_t y, const mpfr_t x)
{
    mpfr_t t;
    mpfr_init2(t, PREC);
    clip(t, x, 1e6);
    mpfr_neg(y, t, MPFR_RNDN);
    mpfr_exp(y, y, MPFR_RNDN);
    mpfr_add_ui(y, y, 1, MPFR_RNDN);
    mpfr_div(y, mpfr_cmp_d(x, 1e6) > 0 ? x : t, y, MPFR_RNDN);
    mpfr_clear(t);
}

static void mp_mish(mpfr_t y, const mpfr_t x)
{
    mpfr_t t, s;
    mpfr_inits2(PREC, t, s, (mpfr_ptr)0);
    clip(t, x, 1e6);
    mp_softplus(s, t);
    mpfr_tanh(s, s, MPFR_RNDN);
    mpfr_mul(y, mpfr_cmp_d(x, 1e6) > 0 ? x : t, s, MPFR_RNDN);
    mpfr_clears(t, s, (mpfr_ptr)0);
}

static void mp_rsqrt(mpfr_t y, const mpfr_t x)
{
    mpfr_rec_sqrt(y, x, MPFR_RNDN);
    if (mpfr_zero_p(x)) /* IEEE 754 rSqrt(-0) is -inf, MPFR's is +inf */
        mpfr_set_inf(y, mpfr_signbit(x) ? -1 : 1);
}

static void mp_pow(mpfr_t z, const mpfr_t x, const mpfr_t y)
{
    mpfr_pow(z, x, y, MPFR_RNDN);
}
static void mp_atan2(mpfr_t z, const mpfr_t x, const mpfr_t y)
{
    mpfr_atan2(z, x, y, MPFR_RNDN);
}
static void mp_hypot(mpfr_t z, const mpfr_t x, const mpfr_t y)
{
    mpfr_hypot(z, x, y, MPFR_RNDN);
}

#endif
