/*
 * jit/ir/math_f32_pure.h -- the f32 math bodies that compute in f32 alone: exponentials, logarithms,
 * activations, ordinary arguments of sin and cos. Included by math_f32.h, and on its own by dictionaries
 * without f64 (eager/kernels/dict_x4.h).
 *
 * Invariants: those of math_f64.h. Factors of 2^n come as s1 * s2 so that results round once into
 * the subnormal range.
 *
 * A dictionary may define what follows where its machine has the same in one step:
 *   MATH_ATMOST32(x, c), MATH_ATLEAST32(x, c)   the lesser, the greater of x and a constant; NaN of x stays
 *   MATH_SPLIT32(t, n, s1, s2)   two factors with *s1 * *s2 = 2^n, from t = n + (1.5 * 2^23 + 254)
 *   MATH_LOW32(t, n, s1, s2)     the same for -190 < n <= 0, from t = n + (1.5 * 2^23 + MATH_LOW_BIAS32)
 *   MATH_SCALE32(x, s1, s2)      x 2^n, rounded once
 */
#include "jit/ir/math_coef.h"

#ifndef MATH_ATMOST32
#define MATH_ATMOST32(x, c) SELECT(GT(x, c), c, x)
#define MATH_ATLEAST32(x, c) SELECT(LT(x, c), c, x)
#endif

#ifndef MATH_SCALE32
#define MATH_SCALE32(x, s1, s2) MUL(MUL(x, s1), s2)
#define MATH_SPLIT32(t, n, s1, s2) CALL(split_pow2_f32, t, s1, s2)
/* 2^(n + 63) 2^-63: nothing is too large for that, so the first factor is the bits of t and the second one known. */
#define MATH_LOW_BIAS32 190.0f
#define MATH_LOW32(t, n, s1, s2) (*(s1) = FLT32(SHLK(BITS32(t), 23)), *(s2) = KF32(0x1p-63f))
KFUN(VU32, split_pow2_f32, VF32 t, VF32 *s1, VF32 *s2)
{
    const VU32 i = BITS32(t);
    const VU32 a = SHRK(i, 1);
    *s1 = FLT32(SHLK(a, 23));
    *s2 = FLT32(SHLK(SUB(i, a), 23));
    return i;
}
#else
#define MATH_LOW_BIAS32 254.0f
#define MATH_LOW32(t, n, s1, s2) MATH_SPLIT32(t, n, s1, s2)
#endif

#define MATH_INF32 KF32(__builtin_inff())
#define MATH_NAN32 KF32(__builtin_nanf(""))

/* -- exponentials --------------------------------------------------------------------------------
 */

/* r with exp(x + xl) = 2^n exp(r), |r| <= ln2/2, and two factors with *s1 * *s2 = 2^n */
KFUN(VF32, exp_reduce_f32, VF32 x, VF32 xl, VF32 *s1, VF32 *s2)
{
    const VF32 magic = KF32(0x1.8p23f + 254.0f);
    const VF32 t = FMA(x, KF32(0x1.715476p+0f), magic);
    const VF32 n = SUB(t, magic);
    MATH_SPLIT32(t, n, s1, s2);
    const VF32 h = FMA(n, KF32(-0x1.62e43p-1f), x);
    return ADD(h, FMA(n, KF32(0x1.05c61p-29f), xl));
}

/* The same, bit for bit, where x <= 0 and xl = -0 (n > -190: x > -131). */
KFUN(VF32, exp_low_reduce_f32, VF32 x, VF32 *s1, VF32 *s2)
{
    const VF32 magic = KF32(0x1.8p23f + MATH_LOW_BIAS32);
    const VF32 t = FMA(x, KF32(0x1.715476p+0f), magic);
    const VF32 n = SUB(t, magic);
    MATH_LOW32(t, n, s1, s2);
    const VF32 h = FMA(n, KF32(-0x1.62e43p-1f), x);
    return ADD(h, MUL(n, KF32(0x1.05c61p-29f)));
}

#define MATH_EXP_POLY32(r) FMA(r, FMA(r, POLY_exp_f32(r), KF32(1.0f)), KF32(1.0f))

KFUN(VF32, exp_f32, VF32 x)
{
    VF32 s1, s2;
    const VF32 lo = MATH_ATLEAST32(x, KF32(-104.0f));
    const VF32 c = MATH_ATMOST32(lo, KF32(89.0f));
    const VF32 r = CALL(exp_reduce_f32, c, KF32(-0.0f), &s1, &s2);
    return MATH_SCALE32(MATH_EXP_POLY32(r), s1, s2);
}

/* exp(-|x|) */
KFUN(VF32, exp_neg_f32, VF32 x)
{
    VF32 s1, s2;
    const VF32 a = FABS(x);
    const VF32 c = MATH_ATMOST32(a, KF32(104.0f));
    const VF32 r = CALL(exp_low_reduce_f32, NEG(c), &s1, &s2);
    return MATH_SCALE32(MATH_EXP_POLY32(r), s1, s2);
}

KFUN(VF32, exp2_f32, VF32 x)
{
    const VF32 magic = KF32(0x1.8p23f + 254.0f);
    const VF32 lo = MATH_ATLEAST32(x, KF32(-151.0f));
    const VF32 c = MATH_ATMOST32(lo, KF32(129.0f));
    const VF32 t = ADD(c, magic);
    const VF32 n = SUB(t, magic);
    const VF32 r = SUB(c, n);
    VF32 s1, s2;
    MATH_SPLIT32(t, n, &s1, &s2);
    const VF32 p = FMA(r, POLY_exp2_f32(r), KF32(1.0f));
    return MATH_SCALE32(p, s1, s2);
}

/* exp(x) - 1 without the care for -0; x in [-30, 89] */
KFUN(VF32, expm1_core_f32, VF32 x)
{
    const VF32 magic = KF32(0x1.8p23f + 126.0f);
    const VF32 t = FMA(x, KF32(0x1.715476p+0f), magic);
    const VF32 n = SUB(t, magic);
    const VF32 h = FMA(n, KF32(-0x1.62e43p-1f), x);
    const VF32 r = FMA(n, KF32(0x1.05c61p-29f), h);
    const VF32 s = FLT32(SHLK(BITS32(t), 23)); /* 2^(n-1): 2^n itself may overflow */
    const VF32 p = FMA(MUL(r, r), POLY_exp_f32(r), r);
    const VF32 y = FMA(s, p, SUB(s, KF32(0.5f)));
    return ADD(y, y);
}

KFUN(VF32, expm1_f32, VF32 x)
{
    const VF32 lo = MATH_ATLEAST32(x, KF32(-30.0f));
    const VF32 c = MATH_ATMOST32(lo, KF32(89.0f));
    return SELECT(LT(FABS(x), KF32(0x1p-25f)), x, CALL(expm1_core_f32, c));
}

/* -- logarithms ----------------------------------------------------------------------------------
 */

/* x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); returns f. x must be positive and finite. */
KFUN(VF32, log_reduce_f32, VF32 x, VF32 *e)
{
    const VB tiny = LT(x, KF32(0x1p-126f));
    const VF32 xs = SELECT(tiny, MUL(x, KF32(0x1p23f)), x);
    const VU32 u = SUB(BITS32(xs), KU32(0x3f3504f3));
    const VF32 k = F32_OF_S32(SARK(u, 23));
    *e = SELECT(tiny, SUB(k, KF32(23.0f)), k);
    return SUB(FLT32(ADD(IAND(u, KU32(0x007fffff)), KU32(0x3f3504f3))), KF32(1.0f));
}

/* log(1 + f) - f */
#define MATH_LOG_TAIL32(f) MUL(MUL(f, f), FMA(f, POLY_log_f32(f), KF32(-0.5f)))

/* Put right log's result y for the arguments log_reduce_f32 cannot take. */
KFUN(VF32, log_special_f32, VF32 x, VF32 y)
{
    const VF32 neg = SELECT(EQ(x, KF32(0.0f)), NEG(MATH_INF32), MATH_NAN32);
    const VF32 pos = SELECT(LT(x, MATH_INF32), y, x); /* +inf, NaN */
    return SELECT(LE(x, KF32(0.0f)), neg, pos);
}

KFUN(VF32, log_f32, VF32 x)
{
    VF32 e;
    const VF32 f = CALL(log_reduce_f32, x, &e);
    const VF32 t = FMA(e, KF32(-0x1.05c61p-29f), MATH_LOG_TAIL32(f));
    const VF32 y = FMA(e, KF32(0x1.62e43p-1f), ADD(f, t));
    return CALL(log_special_f32, x, y);
}

KFUN(VF32, log2_f32, VF32 x)
{
    VF32 e;
    const VF32 f = CALL(log_reduce_f32, x, &e);
    const VF32 l = FMA(MUL(f, f), POLY_log2_f32(f), MUL(f, KF32(0x1.4ae0cp-26f)));
    const VF32 y = ADD(e, FMA(f, KF32(0x1.715476p+0f), l));
    return CALL(log_special_f32, x, y);
}

KFUN(VF32, log10_f32, VF32 x)
{
    VF32 e;
    const VF32 f = CALL(log_reduce_f32, x, &e);
    const VF32 low = FMA(e, KF32(-0x1.ec10cp-27f), MUL(f, KF32(-0x1.5b235ep-27f)));
    const VF32 l = FMA(MUL(f, f), POLY_log10_f32(f), low);
    const VF32 y = FMA(e, KF32(0x1.344136p-2f), FMA(f, KF32(0x1.bcb7b2p-2f), l));
    return CALL(log_special_f32, x, y);
}

KFUN(VF32, log1p_f32, VF32 x)
{
    const VF32 u = ADD(x, KF32(1.0f));
    const VU32 i = SUB(BITS32(u), KU32(0x3f3504f3));
    const VU32 k = SARK(i, 23);
    const VF32 e = F32_OF_S32(k);
    /* f = (1 + x) 2^-e - 1 by way of x, whose low bits 1 + x has lost */
    const VF32 s = FLT32(SUB(KU32(0x3f800000), SHLK(k, 23)));
    const VF32 m = FLT32(ADD(IAND(i, KU32(0x007fffff)), KU32(0x3f3504f3)));
    const VB big = GT(x, KF32(0x1p30f));
    const VF32 f = SELECT(big, SUB(m, KF32(1.0f)), FMA(x, s, SUB(s, KF32(1.0f))));
    const VF32 t = FMA(e, KF32(-0x1.05c61p-29f), MATH_LOG_TAIL32(f));
    const VF32 y = FMA(e, KF32(0x1.62e43p-1f), ADD(f, t));
    const VF32 neg = SELECT(EQ(x, KF32(-1.0f)), NEG(MATH_INF32), MATH_NAN32);
    const VF32 pos = SELECT(LT(x, MATH_INF32), y, x);
    const VF32 r = SELECT(LE(x, KF32(-1.0f)), neg, pos);
    return SELECT(LT(FABS(x), KF32(0x1p-25f)), x, r);
}

/*
 * log((1 + a) / (1 - a)) / 2 with a = |x|: the quotient is 2^k m with log2(m) in [-0.34, 0.84], and half of m's logarithm is the
 * atanh of s = (m - 1) / (m + 1); s is a itself where k = 0. 1 - a = d + dl, exactly.
 */
KFUN(VF32, atanh_f32, VF32 x)
{
    const VF32 a = FABS(x);
    const VF32 d = SUB(KF32(1.0f), a);
    const VF32 dl = SUB(SUB(KF32(1.0f), d), a);
    const VF32 n = ADD(KF32(1.0f), a);
    const VU32 i = ADD(SUB(BITS32(n), BITS32(d)), KU32(0x200000));
    const VF32 e = F32_OF_S32(SARK(i, 23));
    const VF32 c = FLT32(ADD(IAND(i, KU32(0xff800000)), KU32(0x3f800000))); /* 2^k */
    const VF32 num = ADD(FMA(NEG(c), d, KF32(1.0f)), FMA(NEG(c), dl, a));
    const VF32 s = SELECT(EQ(e, KF32(0.0f)), a, DIV(num, FMA(c, d, n)));
    const VF32 z = MUL(s, s);
    const VF32 t = FMA(e, KF32(-0x1.05c61p-30f), MUL(MUL(s, z), POLY_atanh_f32(z)));
    const VF32 y = FMA(e, KF32(0x1.62e43p-2f), ADD(s, t));
    const VF32 end = SELECT(EQ(a, KF32(1.0f)), MATH_INF32, MATH_NAN32);
    return COPYSIGN(SELECT(LT(a, KF32(1.0f)), y, end), x);
}

/* -- trigonometry ---------------------------------------------------------------------------------
 */

/* pi/2 = MATH_PI32_1 + MATH_PI32_2 + MATH_PI32_3 */
#define MATH_PI32_1 0x1.921fb6p+0f
#define MATH_PI32_2 (-0x1.777a5cp-25f)
#define MATH_PI32_3 (-0x1.ee59dap-50f)

KFUN(VB, sin_f32_rare, VF32 x)
{
    return BNOT(LE(FABS(x), KF32(0x1p17f)));
}
KFUN(VB, cos_f32_rare, VF32 x)
{
    return BNOT(LE(FABS(x), KF32(0x1p17f)));
}
KFUN(VB, tan_f32_rare, VF32 x)
{
    return BNOT(LE(FABS(x), KF32(0x1p17f)));
}

/* sin(x + q pi/2) for |x| <= 2^17 */
KFUN(VF32, sin_shifted_f32, VF32 x, VU32 shift)
{
    const VF32 magic = KF32(0x1.8p23f);
    const VF32 t = FMA(x, KF32(0x1.45f306p-1f), magic);
    const VF32 n = SUB(t, magic);
    const VU32 q = ADD(BITS32(t), shift);
    const VF32 r1 = FMA(n, KF32(-MATH_PI32_1), x); /* exact */
    const VF32 r2 = FMA(n, KF32(-MATH_PI32_2), r1);
    const VF32 r = FMA(n, KF32(-MATH_PI32_3), r2);
    const VF32 z = MUL(r, r);
    const VF32 s = FMA(MUL(r, z), POLY_sin_f32(z), r);
    const VF32 c = FMA(z, FMA(z, POLY_cos_f32(z), KF32(-0.5f)), KF32(1.0f));
    const VF32 y = SELECT(NE(IAND(q, KU32(1)), KU32(0)), c, s);
    return FLT32(IXOR(BITS32(y), SHLK(IAND(q, KU32(2)), 30)));
}

KFUN(VF32, sin_f32_fast, VF32 x)
{
    const VF32 y = CALL(sin_shifted_f32, x, KU32(0));
    return SELECT(EQ(x, KF32(0.0f)), x, y); /* keeps -0 */
}

KFUN(VF32, cos_f32_fast, VF32 x)
{
    return CALL(sin_shifted_f32, x, KU32(1));
}

#define MATH_PI32_REST (-0x1.de12cap-26f) /* what MATH_PI32_1 lacks, as a part of it */

/*
 * The angle of (x, y) from the ratio t of the lesser magnitude to the greater: atan(t), or what that leaves of pi/2 or pi. The first
 * sum, of that and t, is exact in two parts, so that what the polynomial adds is all that is rounded before the end.
 */
KFUN(VF32, atan2_f32, VF32 y, VF32 x)
{
    const VU32 sign = KU32(0x80000000);
    const VF32 a = FABS(x), b = FABS(y);
    const VB steep = GT(b, a);
    const VF32 num = SELECT(steep, a, b), den = SELECT(steep, b, a);
    const VF32 same = SELECT(EQ(den, KF32(0.0f)), den, KF32(1.0f)); /* 0 / 0, inf / inf */
    const VF32 ratio = SELECT(EQ(num, den), same, DIV(num, den));
    const VU32 turn = IAND(IXOR(BITS32(x), BITS32(SELECT(steep, KF32(-0.0f), KF32(0.0f)))), sign);
    const VF32 t = FLT32(IXOR(BITS32(ratio), turn));
    const VF32 z = MUL(t, t);
    const VF32 p = POLY_atan_f32(z);
    /* pi/2; else 0 or, where x is negative, twice that */
    const VF32 h = KF32(MATH_PI32_1);
    const VF32 base = SUB(h, SELECT(steep, KF32(0.0f), COPYSIGN(h, x)));
    const VF32 s = ADD(base, t);
    const VF32 sl = FMA(base, KF32(MATH_PI32_REST), SUB(t, SUB(s, base)));
    return COPYSIGN(ADD(s, FMA(MUL(t, z), p, sl)), y);
}

KFUN(VF32, atan_f32, VF32 x)
{
    const VF32 a = FABS(x), one = KF32(1.0f);
    const VB steep = GT(a, one);
    const VF32 q = DIV(SELECT(steep, KF32(-1.0f), a), SELECT(steep, a, one));
    const VF32 z = MUL(q, q);
    const VF32 p = POLY_atan_f32(z);
    const VF32 base = SELECT(steep, KF32(MATH_PI32_1), KF32(0.0f));
    const VF32 s = ADD(base, q);
    const VF32 sl = FMA(base, KF32(MATH_PI32_REST), SUB(q, SUB(s, base)));
    return COPYSIGN(ADD(s, FMA(MUL(q, z), p, sl)), x);
}

/* -- hyperbolic tangent and activations -----------------------------------------------------------
 */

/*
 * t / (t + 1) with t = (exp(2a) - 1) / 2, as m - m (m / (t + 1)) with m = min(t, 1): what the quotient lacks counts
 * little where t is small, and for t > 1 that is 1 - 1 / (t + 1).
 */
KFUN(VF32, tanh_f32, VF32 x)
{
    const VF32 a = FABS(x);
    const VF32 c = MATH_ATMOST32(a, KF32(10.0f));
    const VF32 magic = KF32(0x1.8p23f + 127.0f);
    const VF32 e = FMA(c, KF32(0x1.715476p+1f), magic);
    const VF32 n = SUB(e, magic);
    const VF32 r = FMA(n, KF32(-0x1.62e43p-2f), c); /* exp(2a) = 2^n exp(2r) */
    const VF32 p = FMA(MUL(r, r), POLY_expm1h_f32(r), r);
    const VF32 s = FLT32(SHLK(BITS32(e), 23)); /* with an exponent that needs no second factor */
    const VF32 t = FMA(s, p, FMA(s, KF32(0.5f), KF32(-0.5f)));
    const VF32 m = MATH_ATMOST32(t, KF32(1.0f));
    const VF32 q = DIV(m, ADD(t, KF32(1.0f)));
    return COPYSIGN(FMA(NEG(m), q, m), x);
}

/* (1 + exp(-x)) 2^-32 for -110 <= x <= 40, which leaves room for exp(110). exp(-x) = 2^n (1 + u); what 1 + 2^n lacks goes with the
 * rest, so that little more than one rounding is left. */
KFUN(VF32, one_exp_f32, VF32 x)
{
    const VF32 magic = KF32(0x1.8p23f + 95.0f);
    const VF32 t = FMA(x, KF32(-0x1.715476p+0f), magic);
    const VF32 n = SUB(t, magic);
    const VF32 h = FMA(n, KF32(-0x1.62e43p-1f), NEG(x));
    const VF32 r = FMA(n, KF32(0x1.05c61p-29f), h);
    const VF32 s = FLT32(SHLK(BITS32(t), 23));
    const VF32 u = MUL(r, FMA(r, POLY_exp_f32(r), KF32(1.0f)));
    const VF32 w = ADD(s, KF32(0x1p-32f));
    return ADD(w, FMA(u, s, SUB(KF32(0x1p-32f), SUB(w, s))));
}

KFUN(VF32, sigmoid_f32, VF32 x)
{
    const VF32 lo = MATH_ATLEAST32(x, KF32(-110.0f));
    const VF32 c = MATH_ATMOST32(lo, KF32(40.0f));
    const VF32 d = CALL(one_exp_f32, c);
    return DIV(KF32(0x1p-32f), d);
}

/* x sigmoid(x), in the left tail rounded once into the subnormal range. From 20 on the sigmoid is 1. */
KFUN(VF32, silu_f32, VF32 x)
{
    const VF32 lo = MATH_ATLEAST32(x, KF32(-110.0f));
    const VF32 c = MATH_ATMOST32(lo, KF32(40.0f));
    const VF32 d = CALL(one_exp_f32, c);
    return SELECT(GT(x, KF32(20.0f)), x, MUL(DIV(lo, d), KF32(0x1p-32f)));
}

/*
 * x tanh(softplus(x)) = x n / (n + 2) with n = exp(x) (exp(x) + 2); on the right both are divided by
 * exp(2x). Both and their quotient carry low parts. The left tail is x exp(x), scaled as in silu.
 */
KFUN(VF32, mish_f32, VF32 x)
{
    VF32 s1, s2;
    const VF32 a = FABS(x);
    const VF32 c = MATH_ATMOST32(a, KF32(110.0f));
    const VF32 r = CALL(exp_low_reduce_f32, NEG(c), &s1, &s2);
    const VF32 h = FMA(r, POLY_exp_f32(r), KF32(1.0f));
    const VF32 e = MATH_SCALE32(FMA(r, h, KF32(1.0f)), s1, s2);
    const VF32 cp = NEG(FMA(c, MUL(r, h), c)); /* -c exp(r) */
    const VB neg = LT(x, KF32(0.0f));
    const VF32 e2 = ADD(e, e);
    const VF32 n = SELECT(neg, FMA(e, e, e2), ADD(e2, KF32(1.0f)));
    const VF32 nl = SELECT(neg, FMA(e, e, SUB(e2, n)), SUB(e2, SUB(n, KF32(1.0f))));
    const VF32 add = SELECT(neg, KF32(2.0f), MUL(e2, e));
    const VF32 d = ADD(n, add);
    const VF32 back = SUB(d, n);
    const VF32 dl = ADD(ADD(SUB(n, SUB(d, back)), SUB(add, back)), nl);
    const VF32 m = MUL(x, n);
    const VF32 ml = FMA(x, nl, FMA(x, n, NEG(m)));
    const VF32 q = DIV(m, d);
    const VF32 low = FMA(NEG(q), dl, ADD(FMA(NEG(q), d, m), ml));
    const VF32 y = COPYSIGN(ADD(q, DIV(low, d)), x);
    return SELECT(GT(x, KF32(20.0f)), x, SELECT(LT(x, KF32(-20.0f)), MATH_SCALE32(cp, s1, s2), y));
}

/* log1p(exp(-|x|)) + max(x, 0) */
KFUN(VF32, softplus_f32, VF32 x)
{
    const VF32 e = CALL(exp_neg_f32, x);
    const VB up = GT(e, KF32(0x1.a8279ap-2f));
    const VF32 f = SELECT(up, FMA(e, KF32(0.5f), KF32(-0.5f)), e);
    const VF32 l = ADD(f, MATH_LOG_TAIL32(f));
    const VF32 b = SELECT(GT(x, KF32(0.0f)), x, KF32(0.0f));
    return ADD(ADD(l, SELECT(up, KF32(0x1.62e43p-1f), KF32(0.0f))), b);
}

KFUN(VF32, log_sigmoid_f32, VF32 x)
{
    return NEG(CALL(softplus_f32, NEG(x)));
}

/* -- error function ---------------------------------------------------------------------------- */

KFUN(VF32, erf_f32, VF32 x)
{
    const VF32 b = FABS(x);
    const VF32 a = MATH_ATMOST32(b, KF32(4.0f));
    const VF32 z = MUL(a, a);
    const VF32 small = FMA(a, POLY_erfs_f32(z), a);
    /* 1 - erfc(c) 2^(d q): roundings of q count for less the nearer a is to c, where erfc is large */
    const VF32 d = SUB(a, KF32(0x1.e2p-1f));
    const VF32 q = POLY_erfl_f32(d);
    const VF32 magic = KF32(0x1.8p23f + 127.0f);
    const VF32 t = FMA(d, q, magic);
    const VF32 r = FMA(d, q, SUB(magic, t));
    const VF32 p = FMA(r, POLY_erfx_f32(r), KF32(0x1.76ef86p-3f));
    const VF32 big = FMA(NEG(p), FLT32(SHLK(BITS32(t), 23)), KF32(1.0f));
    return COPYSIGN(SELECT(LT(a, KF32(0.9375f)), small, big), x);
}

/*
 * normcdf(-a) for a in [0, 15] without its factors s1 s2: d (P + pl) (1 + fix) (1 + u) with d = 1 / (1 + a/4), given as
 * 1 / (den + denl); the last two factors with s1 s2 are exp(-a^2/2), whose exponent is q + ql.
 */
KFUN(VF32, ncdf_f32, VF32 den, VF32 denl, VF32 q, VF32 ql, VF32 *s1, VF32 *s2)
{
    const VF32 d = DIV(KF32(1.0f), den);
    const VF32 err = FMA(NEG(d), denl, FMA(NEG(d), den, KF32(1.0f)));
    const VF32 v = SUB(d, KF32(0.5f));
    const VF32 t = POLY_ncdf_f32(v);
    const VF32 p = FMA(v, t, POLY_ncdf_f32_H);
    const VF32 pl = ADD(FMA(v, t, SUB(POLY_ncdf_f32_H, p)), POLY_ncdf_f32_L);
    const VF32 r = CALL(exp_reduce_f32, q, ql, s1, s2);
    /* d P goes with d to the power 1 at d = 0, 3.2 at d = 1 */
    const VF32 power = FMA(d, FMA(d, KF32(1.16f), KF32(1.03f)), KF32(1.0f));
    const VF32 fix = MUL(err, power);
    const VF32 u = FMA(MUL(r, r), POLY_exp_f32(r), r);
    const VF32 g = MUL(d, p);
    const VF32 gf = FMA(g, fix, FMA(d, pl, FMA(d, p, NEG(g))));
    return ADD(g, FMA(g, u, FMA(gf, u, gf)));
}

/* The standard normal distribution function, erfc(-x / sqrt(2)) / 2. */
KFUN(VF32, normcdf_f32, VF32 x)
{
    const VF32 b = FABS(x);
    const VF32 a = MATH_ATMOST32(b, KF32(15.0f));
    const VF32 den = FMA(a, KF32(0.25f), KF32(1.0f));
    const VF32 denl = FMA(a, KF32(0.25f), SUB(KF32(1.0f), den));
    const VF32 h = MUL(a, KF32(-0.5f));
    const VF32 q = MUL(h, a);
    const VF32 ql = FMA(h, a, NEG(q));
    VF32 s1, s2;
    const VF32 w = CALL(ncdf_f32, den, denl, q, ql, &s1, &s2);
    const VF32 y = MATH_SCALE32(w, s1, s2);
    return SELECT(GT(x, KF32(0.0f)), SUB(KF32(1.0f), y), y);
}

/* 2 normcdf(-sqrt(2) x); sqrt(2)/4 in two parts */
KFUN(VF32, erfc_f32, VF32 x)
{
    const VF32 b = FABS(x);
    const VF32 a = MATH_ATMOST32(b, KF32(10.6f));
    const VF32 den = FMA(a, KF32(0x1.6a09e6p-2f), KF32(1.0f));
    const VF32 denl =
        FMA(a, KF32(0x1.9fcef4p-28f), FMA(a, KF32(0x1.6a09e6p-2f), SUB(KF32(1.0f), den)));
    const VF32 q = NEG(MUL(a, a));
    const VF32 ql = NEG(FMA(a, a, q));
    VF32 s1, s2;
    const VF32 w = CALL(ncdf_f32, den, denl, q, ql, &s1, &s2);
    const VF32 y = MATH_SCALE32(ADD(w, w), s1, s2);
    return SELECT(LT(x, KF32(0.0f)), SUB(KF32(2.0f), y), y);
}

/*
 * x normcdf(x) = max(x, 0) - a normcdf(-a) with a = |x|, and a normcdf(-a) = c exp(c L(c) - a^2/2) with
 * c = a/2 / (1 + k a), 1/k = 3.125: near 0 the result goes with c to the power 1 and far out, where c is least exact,
 * to a power near 0, so that what c lacks needs no care; near 0, c once more from its own quotient, a/2 - a (k c), is exact
 * enough. Halves of a are negative, and so what comes of them, which saves changing signs.
 */
KFUN(VF32, gelu_f32, VF32 x)
{
    const VF32 b = FABS(x);
    const VF32 a = MATH_ATMOST32(b, KF32(14.5f)); /* there and beyond, 0 */
    const VF32 h = MUL(a, KF32(-0.5f));
    const VF32 q = MUL(h, a);
    const VF32 ql = FMA(h, a, NEG(q));
    const VF32 kc = DIV(h, ADD(a, KF32(3.125f)));
    const VF32 c = FMA(a, kc, NEG(h));
    /* as exp_reduce_f32, with c L(c) = H c + p c^2 added last, where the sum is small; -0.952 c is within 0.015 of it up to
     * a = 4 and 0.05 beyond, which is enough to choose n */
    const VF32 magic = KF32(0x1.8p23f + MATH_LOW_BIAS32);
    const VF32 t = FMA(FMA(c, KF32(-0.952f), q), KF32(0x1.715476p+0f), magic);
    const VF32 n = SUB(t, magic);
    VF32 s1, s2;
    MATH_LOW32(t, n, &s1, &s2);
    const VF32 p = POLY_gelu_f32(c);
    const VF32 g = FMA(n, KF32(-0x1.62e43p-1f), q);
    const VF32 hp = FMA(MUL(c, c), p, FMA(c, POLY_gelu_f32_H, g));
    const VF32 r = ADD(hp, FMA(n, KF32(0x1.05c61p-29f), ql));
    const VF32 u = FMA(MUL(r, r), POLY_exp_f32(r), r);
    return SUB(MATH_ATLEAST32(x, KF32(-0.0f)), MATH_SCALE32(FMA(c, u, c), s1, s2));
}

/*
 * x / (1 + exp(-2u)), 2u = 2 sqrt(2/pi) (x + 0.044715 x^3), as max(x, 0) - a e / (1 + e) with a = |x|, e = exp(-2u(a)): the
 * left tail keeps its precision. e = s1 s2 2^r, which a is multiplied by at the end, where the result rounds once.
 */
KFUN(VF32, gelu_tanh_f32, VF32 x)
{
    const VF32 b = FABS(x);
    const VF32 a = MATH_ATMOST32(b, KF32(11.0f));
    const VF32 z = MUL(a, a);
    const VF32 zl = FMA(a, a, NEG(z));
    /* in base 2: 2u log2(e) = a (w + wl); k1 has few enough bits for k1 - w to be exact */
    const VF32 k1 = KF32(-0x1.26aecp+1f), k3 = KF32(-0x1.a5a7dp-4f);
    const VF32 w = FMA(k3, z, k1);
    const VF32 w0 = FMA(k3, z, SUB(k1, w));
    const VF32 wl = FMA(k3, zl, ADD(w0, FMA(z, KF32(0x1.151aaep-29f), KF32(-0x1.0de73ap-22f))));
    const VF32 magic = KF32(0x1.8p23f + MATH_LOW_BIAS32);
    const VF32 m = MUL(a, w);
    const VF32 ml = FMA(a, wl, FMA(a, w, NEG(m)));
    const VF32 t = ADD(m, magic);
    const VF32 n = SUB(t, magic);
    const VF32 r = ADD(SUB(m, n), ml);
    VF32 s1, s2;
    MATH_LOW32(t, n, &s1, &s2);
    const VF32 q = POLY_exp2_f32(r);
    const VF32 e = MATH_SCALE32(FMA(r, q, KF32(1.0f)), s1, s2);
    const VF32 ar = MUL(a, r);
    const VF32 pa = FMA(ar, q, a);
    const VF32 pal = FMA(ar, q, SUB(a, pa));
    const VF32 den = ADD(e, KF32(1.0f));
    const VF32 denl = ADD(e, SUB(KF32(1.0f), den));
    const VF32 y = DIV(pa, den);
    /* what pa and den lack; the chord 3/2 - den/2 stands for 1/den, which is in [1/2, 1] */
    const VF32 lack = FMA(NEG(y), denl, pal);
    const VF32 chord = FMA(den, KF32(-0.5f), KF32(1.5f));
    return SUB(MATH_ATLEAST32(x, KF32(-0.0f)), MATH_SCALE32(FMA(lack, chord, y), s1, s2));
}
