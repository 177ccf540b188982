/*
 * tests/ref/real.c -- elementwise references in long double.
 *
 * Invariants: correct to a few units of a 64-bit significand for operands of any element type; special
 * values as C's Annex F has them, by limits where a formula gives none, and as docs/dtypes.md says for
 * minimum and maximum.
 */
#include <math.h>

#include "tests/ref/ref.h"

#define ROOT_HALF 0.707106781186547524400844362104849039L

/* NaN if either is; -0 below +0. */
static real larger(real a, real b)
{
    return isnan(a) || isnan(b) ? NAN : a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}
static real smaller(real a, real b)
{
    return -larger(-a, -b);
}

#define PLAIN(name, fn)                                                                            \
    REF_REAL1(name)                                                                                \
    {                                                                                              \
        return fn(x);                                                                              \
    }
PLAIN(abs, fabsl)
PLAIN(sqrt, sqrtl)
PLAIN(cbrt, cbrtl)
PLAIN(exp, expl)
PLAIN(exp2, exp2l)
PLAIN(expm1, expm1l)
PLAIN(log, logl)
PLAIN(log2, log2l)
PLAIN(log10, log10l)
PLAIN(log1p, log1pl)
PLAIN(sin, sinl)
PLAIN(cos, cosl)
PLAIN(tan, tanl)
PLAIN(asin, asinl)
PLAIN(acos, acosl)
PLAIN(atan, atanl)
PLAIN(sinh, sinhl)
PLAIN(cosh, coshl)
PLAIN(tanh, tanhl)
PLAIN(asinh, asinhl)
PLAIN(acosh, acoshl)
PLAIN(atanh, atanhl)
PLAIN(erf, erfl)
PLAIN(erfc, erfcl)
PLAIN(floor, floorl)
PLAIN(ceil, ceill)
PLAIN(trunc, truncl)
PLAIN(round, rintl)
PLAIN(isnan, isnan)
PLAIN(isinf, 0 != isinf)
PLAIN(isfinite, 0 != isfinite)
PLAIN(signbit, 0 != signbit)
PLAIN(logical_not, 0 ==)

REF_REAL1(neg)
{
    return -x;
}
REF_REAL1(sign)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}
REF_REAL1(square)
{
    return x * x;
}
REF_REAL1(cube)
{
    return x * x * x;
}
REF_REAL1(reciprocal)
{
    return 1 / x;
}
REF_REAL1(rsqrt)
{
    return 1 / sqrtl(x);
}
/* IEEE 754-2019, 9.2.1: pow of a zero or an infinity has no sign but where the exponent is an odd whole number */
REF_REAL1(pow_half)
{
    return x == 0 ? 0 : isinf(x) ? INFINITY : sqrtl(x);
}
REF_REAL1(pow_minus_half)
{
    return x == 0 ? INFINITY : isinf(x) ? 0 : 1 / sqrtl(x);
}
REF_REAL1(sigmoid)
{
    return 1 / (1 + expl(-x));
}
REF_REAL1(softplus)
{
    return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x));
}
REF_REAL1(log_sigmoid)
{
    return -ref_softplus(-x);
}
REF_REAL1(normcdf)
{
    return erfcl(-x * ROOT_HALF) / 2;
}
REF_REAL1(gelu)
{
    return x == -INFINITY ? -0.0L : x * ref_normcdf(x);
}
/* x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
REF_REAL1(gelu_tanh)
{
    const real root = 0.797884560802865355879892119868763737L;
    return x == -INFINITY ? -0.0L : x * ref_sigmoid(2 * root * (x + 0.044715L * x * x * x));
}
REF_REAL1(silu)
{
    return x == -INFINITY ? -0.0L : x * ref_sigmoid(x);
}
REF_REAL1(mish)
{
    return x == -INFINITY ? -0.0L : x * tanhl(ref_softplus(x));
}
REF_REAL1(relu)
{
    return larger(x, 0);
}
REF_REAL1(relu6)
{
    return smaller(larger(x, 0), 6);
}
REF_REAL1(hardsigmoid)
{
    return smaller(larger((x + 3) / 6, 0), 1);
}
REF_REAL1(selu)
{
    return x > 0 ? 1.0507009873554804934L * x
                 : (real)1.0507009873554804934L * 1.6732632423543772848L * expm1l(x);
}
REF_REAL1(hardswish)
{
    return x * smaller(larger(x + 3, 0), 6) / 6;
}

REF_REAL2(add)
{
    return a + b;
}
REF_REAL2(sub)
{
    return a - b;
}
REF_REAL2(mul)
{
    return a * b;
}
REF_REAL2(div)
{
    return a / b;
}
REF_REAL2(fmod)
{
    return fmodl(a, b);
}
/* In [0, b) or (b, 0], the sign of b on zeros too. */
REF_REAL2(remainder)
{
    real m = fmodl(a, b);
    return m == 0 ? copysignl(0, b) : (m < 0) != (b < 0) ? m + b : m;
}
/* Quotients too large to have a fraction are rounded; the others are found from the remainder. */
REF_REAL2(floor_divide)
{
    real q = a / b;
    if (isinf(b) && isfinite(a) && a != 0) {
        return (a < 0) == (b < 0) ? 0 : -1;
    }
    if (!(fabsl(q) < 0x1p60L) || isinf(b)) {
        return floorl(q);
    }
    real m = fmodl(a, b), k = rintl((a - m) / b);
    return m != 0 && (m < 0) != (b < 0) ? k - 1 : copysignl(k, q);
}
REF_REAL2(pow)
{
    return powl(a, b);
}
REF_REAL2(maximum)
{
    return larger(a, b);
}
REF_REAL2(minimum)
{
    return smaller(a, b);
}
REF_REAL2(atan2)
{
    return atan2l(a, b);
}
REF_REAL2(hypot)
{
    return hypotl(a, b);
}
REF_REAL2(copysign)
{
    return copysignl(a, b);
}
/* log(e^a + e^b) = a + softplus(b - a) */
REF_REAL2(logaddexp)
{
    return a == b ? a + 0.693147180559945309417232121458176568L
                  : larger(a, b) + log1pl(expl(-fabsl(a - b)));
}
REF_REAL2(xlogy)
{
    return a == 0 && !isnan(b) ? 0 : a * logl(b);
}
REF_REAL2(bce)
{
    return (b - 1) * larger(log1pl(-a), -100) - b * larger(logl(a), -100);
}
REF_REAL2(leaky_relu)
{
    return a > 0 ? a : a * b;
}
REF_REAL2(elu)
{
    return a > 0 ? a : b * expm1l(a);
}
REF_REAL2(equal)
{
    return a == b;
}
REF_REAL2(not_equal)
{
    return a != b;
}
REF_REAL2(less)
{
    return a < b;
}
REF_REAL2(less_equal)
{
    return a <= b;
}
REF_REAL2(greater)
{
    return a > b;
}
REF_REAL2(greater_equal)
{
    return a >= b;
}
REF_REAL2(logical_and)
{
    return a != 0 && b != 0;
}
REF_REAL2(logical_or)
{
    return a != 0 || b != 0;
}
REF_REAL2(logical_xor)
{
    return (a != 0) != (b != 0);
}

REF_REAL3(clamp)
{
    return smaller(larger(a, b), c);
}
REF_REAL3(lerp)
{
    return a + c * (b - a);
}
REF_REAL3(fma)
{
    return fmal(a, b, c);
}
REF_REAL3(addcmul)
{
    return a + b * c;
}
/* its definition, case by case, of which a threshold below 0 is none; with an infinite one inf - inf / 2 */
REF_REAL3(huber)
{
    const real e = a - b, d = smaller(larger(e, -c), c);
    return isinf(e) && d == e ? NAN : d == e ? e * e / 2 : d * (e - d / 2) + 0;
}
REF_REAL3(where)
{
    return a != 0 ? b : c;
}

/* The largest of some terms, infinite ones apart. */
static real largest(real a, real b, real c)
{
    real m = isfinite(a) ? fabsl(a) : 0;
    m = isfinite(b) ? fmaxl(m, fabsl(b)) : m;
    return isfinite(c) ? fmaxl(m, fabsl(c)) : m;
}

real ref_term(wf_op op, int dtype, const real *x)
{
    switch ((int)op) {
    case WF_OP_LERP:
        return largest(x[0], x[1] - x[0], x[2] * (x[1] - x[0]));
    case WF_OP_ADDCMUL:
        return largest(x[0], x[1] * x[2], 0);
    case WF_OP_BCE:
        return largest((x[1] - 1) * larger(log1pl(-x[0]), -100), x[1] * larger(logl(x[0]), -100),
                       0);
    case WF_OP_HARDSIGMOID:
        return 0.5L;
    case WF_OP_HUBER: /* a difference that leaves the type; with a threshold below 0 terms cancel */
        return fabsl(x[0] - x[1]) >= (dtype == WEFT_F64 ? 0x1p1023L : 0x1p127L)
                   ? largest(x[0], x[1], 0)
               : x[2] < 0 ? largest(x[2] * (x[0] - x[1]), x[2] * x[2] / 2, 0)
                          : 0;
    case WF_OP_LOGADDEXP:
        return dtype == WEFT_F64 ? largest(x[0], x[1], 0) : 0;
    default:
        return 0;
    }
}
