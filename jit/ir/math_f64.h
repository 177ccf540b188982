/*
 * jit/ir/math_f64.h -- f64 math bodies in the row language: exponentials, logarithms, hyperbolics.
 *
 * The includer provides the dictionary (dict_c.h or another meaning of the same names), so this
 * file has no guard of its own. math_f64_trig.h and math_f64_pow.h, included at the end, hold the
 * rest. Polynomials come from math_coef.h, which tools/math_coeffs.py writes.
 *
 * Invariants
 *  - Straight-line: every lane does the same work; special values are put right by SELECT.
 *  - n + 0x1.8p52 + c keeps the integer n + c in the low bits of the sum, which serves as rounding
 *    and as conversion to integer, and vectorises where a 64-bit conversion does not.
 *  - 2^n is applied as two factors whose product may be subnormal or overflow, so the one rounding
 *    into the subnormal range happens in the last multiplication.
 */
#include "math_coef.h"

#define MATH_INF64 KF64(__builtin_inf())
#define MATH_NAN64 KF64(__builtin_nan(""))

/* -- exponentials --------------------------------------------------------------------------------
 */

/*
 * r with exp(x + xl) = 2^n exp(r), |r| <= ln2/2, and two factors with *s1 * *s2 = 2^(n + k); magic
 * is 0x1.8p52 + 2046 + k.
 */
KFUN(VF64, exp_reduce_f64, VF64 x, VF64 xl, VF64 magic, VF64 *s1, VF64 *s2)
{
    const VF64 t = FMA(x, KF64(0x1.71547652b82fep+0), magic);
    const VF64 n = SUB(t, magic);
    const VU64 i = BITS64(t);
    const VU64 a = SHRK(i, 1);
    *s1 = FLT64(SHLK(a, 52));
    *s2 = FLT64(SHLK(SUB(i, a), 52));
    const VF64 h = FMA(n, KF64(-0x1.62e42fefa39efp-1), x);
    return ADD(h, FMA(n, KF64(-0x1.abc9e3b39803fp-56), xl));
}

/* exp(r) - 1 for the reduced argument */
KFUN(VF64, expm1_poly_f64, VF64 r)
{
    return FMA(MUL(r, r), POLY_exp_f64(r), r);
}

KFUN(VF64, exp_f64, VF64 x)
{
    VF64 s1, s2;
    const VF64 lo = SELECT(LT(x, KF64(-746.0)), KF64(-746.0), x);
    const VF64 c = SELECT(GT(lo, KF64(710.0)), KF64(710.0), lo);
    const VF64 r = CALL(exp_reduce_f64, c, KF64(-0.0), KF64(0x1.8p52 + 2046.0), &s1, &s2);
    const VF64 p = FMA(r, FMA(r, POLY_exp_f64(r), KF64(1.0)), KF64(1.0));
    return MUL(MUL(p, s1), s2);
}

/* exp(hi + lo) / 2, |lo| far below 1; hi <= 710.5 */
KFUN(VF64, exp_half_f64, VF64 hi, VF64 lo)
{
    VF64 s1, s2;
    const VF64 c = SELECT(LT(hi, KF64(-748.0)), KF64(-748.0), hi);
    const VF64 d = SELECT(GT(c, KF64(712.0)), KF64(712.0), c);
    const VF64 r = CALL(exp_reduce_f64, d, lo, KF64(0x1.8p52 + 2045.0), &s1, &s2);
    const VF64 p = FMA(r, FMA(r, POLY_exp_f64(r), KF64(1.0)), KF64(1.0));
    return MUL(MUL(p, s1), s2);
}

KFUN(VF64, exp2_f64, VF64 x)
{
    const VF64 magic = KF64(0x1.8p52 + 2046.0);
    const VF64 lo = SELECT(LT(x, KF64(-1080.0)), KF64(-1080.0), x);
    const VF64 c = SELECT(GT(lo, KF64(1025.0)), KF64(1025.0), lo);
    const VF64 t = ADD(c, magic);
    const VF64 r = SUB(c, SUB(t, magic));
    const VU64 i = BITS64(t);
    const VU64 a = SHRK(i, 1);
    const VF64 q = POLY_exp2_f64(r);
    const VF64 p = FMA(r, q, KF64(1.0));
    return MUL(MUL(p, FLT64(SHLK(a, 52))), FLT64(SHLK(SUB(i, a), 52)));
}

/* exp(x) - 1 without the care for tiny and zero arguments; x <= 711 */
KFUN(VF64, expm1_core_f64, VF64 x)
{
    const VF64 magic = KF64(0x1.8p52 + 1022.0);
    const VF64 t = FMA(x, KF64(0x1.71547652b82fep+0), magic);
    const VF64 n = SUB(t, magic);
    const VF64 h = FMA(n, KF64(-0x1.62e42fefa39efp-1), x);
    const VF64 r = FMA(n, KF64(-0x1.abc9e3b39803fp-56), h);
    const VF64 s = FLT64(SHLK(BITS64(t), 52)); /* 2^(n-1): 2^n itself may overflow */
    const VF64 p = CALL(expm1_poly_f64, r);
    const VF64 y = FMA(s, p, SUB(s, KF64(0.5)));
    return ADD(y, y);
}

KFUN(VF64, expm1_f64, VF64 x)
{
    const VF64 lo = SELECT(LT(x, KF64(-40.0)), KF64(-40.0), x);
    const VF64 c = SELECT(GT(lo, KF64(710.0)), KF64(710.0), lo);
    const VF64 y = CALL(expm1_core_f64, c);
    return SELECT(LT(FABS(x), KF64(0x1p-54)), x, y);
}

/* -- logarithms ----------------------------------------------------------------------------------
 */

/* x = 2^e m with m in [sqrt(1/2), sqrt(2)); returns m. x must be positive and finite. */
KFUN(VF64, log_reduce_f64, VF64 x, VF64 *e)
{
    const VB tiny = LT(x, KF64(0x1p-1022));
    const VF64 xs = SELECT(tiny, MUL(x, KF64(0x1p54)), x);
    const VU64 u = ADD(BITS64(xs), KU64(0x3ff0000000000000 - 0x3fe6a09e667f3bcd));
    const VF64 biased = FLT64(IOR(SHRK(u, 52), KU64(0x4330000000000000)));
    *e = SUB(biased, SELECT(tiny, KF64(0x1p52 + 1023.0 + 54.0), KF64(0x1p52 + 1023.0)));
    return FLT64(ADD(IAND(u, KU64(0x000fffffffffffff)), KU64(0x3fe6a09e667f3bcd)));
}

/* log(1 + f) - f + f^2/2 for f in [sqrt(1/2) - 1, sqrt(2) - 1], given h = f^2/2 */
KFUN(VF64, log_tail_f64, VF64 f, VF64 h)
{
    const VF64 s = DIV(f, ADD(f, KF64(2.0)));
    const VF64 z = MUL(s, s);
    return MUL(s, FMA(z, POLY_logs_f64(z), h));
}

/* Put right log's result y for the arguments log_reduce_f64 cannot take. */
KFUN(VF64, log_special_f64, VF64 x, VF64 y)
{
    const VF64 neg = SELECT(EQ(x, KF64(0.0)), NEG(MATH_INF64), MATH_NAN64);
    const VF64 pos = SELECT(LT(x, MATH_INF64), y, x); /* +inf, NaN */
    return SELECT(LE(x, KF64(0.0)), neg, pos);
}

KFUN(VF64, log_f64, VF64 x)
{
    VF64 e;
    const VF64 f = SUB(CALL(log_reduce_f64, x, &e), KF64(1.0));
    const VF64 h = MUL(MUL(f, KF64(0.5)), f);
    const VF64 t = FMA(e, KF64(0x1.abc9e3b39803fp-56), CALL(log_tail_f64, f, h));
    const VF64 y = FMA(e, KF64(0x1.62e42fefa39efp-1), SUB(f, SUB(h, t)));
    return CALL(log_special_f64, x, y);
}

/* log in another base: 1/ln(base) = kh + kl, log(2)/ln(base) = eh + el */
KFUN(VF64, log_base_f64, VF64 x, VF64 kh, VF64 kl, VF64 eh, VF64 el)
{
    VF64 e;
    const VF64 f = SUB(CALL(log_reduce_f64, x, &e), KF64(1.0));
    const VF64 hf = MUL(f, KF64(0.5));
    const VF64 h = MUL(hf, f);
    const VF64 hl = FMA(hf, f, NEG(h));
    const VF64 t = CALL(log_tail_f64, f, h);
    const VF64 hi = SUB(f, h);
    const VF64 lo = ADD(SUB(SUB(SUB(f, hi), h), hl), t);
    const VF64 p = MUL(hi, kh);
    const VF64 pl = FMA(lo, kh, FMA(hi, kl, FMA(hi, kh, NEG(p))));
    const VF64 w = FMA(e, eh, p);
    const VF64 wl = ADD(FMA(e, eh, NEG(w)), p);
    const VF64 y = ADD(w, FMA(e, el, ADD(wl, pl)));
    return CALL(log_special_f64, x, y);
}

KFUN(VF64, log2_f64, VF64 x)
{
    return CALL(log_base_f64, x, KF64(0x1.71547652b82fep+0), KF64(0x1.777d0ffda0d24p-56), KF64(1.0),
                KF64(0.0));
}

KFUN(VF64, log10_f64, VF64 x)
{
    return CALL(log_base_f64, x, KF64(0x1.bcb7b1526e50ep-2), KF64(0x1.95355baaafad3p-57),
                KF64(0x1.34413509f79ffp-2), KF64(-0x1.9dc1da994fd21p-59));
}

/* log(1 + x + xl) for x > -1 finite, |xl| <= ulp(x)/2 */
KFUN(VF64, log1p_core_f64, VF64 x, VF64 xl)
{
    const VF64 u = ADD(x, KF64(1.0));
    const VU64 i = ADD(BITS64(u), KU64(0x3ff0000000000000 - 0x3fe6a09e667f3bcd));
    const VU64 k = SHRK(i, 52);
    const VF64 e = SUB(FLT64(IOR(k, KU64(0x4330000000000000))), KF64(0x1p52 + 1023.0));
    /* f = (1 + x) 2^-e - 1 by way of x, whose low bits 1 + x has lost */
    const VF64 s = FLT64(SHLK(SUB(KU64(2046), k), 52));
    const VF64 c = SUB(s, KF64(1.0));
    const VB big = GT(x, KF64(0x1p60));
    const VF64 m = FLT64(ADD(IAND(i, KU64(0x000fffffffffffff)), KU64(0x3fe6a09e667f3bcd)));
    const VF64 f = SELECT(big, SUB(m, KF64(1.0)), FMA(x, s, c));
    const VF64 fl = SELECT(big, KF64(0.0), FMA(xl, s, FMA(x, s, SUB(c, f))));
    const VF64 h = MUL(MUL(f, KF64(0.5)), f);
    /* d log = fl / (1 + f) */
    const VF64 g = MUL(fl, FMA(f, FMA(f, SUB(KF64(1.0), f), KF64(-1.0)), KF64(1.0)));
    const VF64 t = FMA(e, KF64(0x1.abc9e3b39803fp-56), ADD(CALL(log_tail_f64, f, h), g));
    return FMA(e, KF64(0x1.62e42fefa39efp-1), SUB(f, SUB(h, t)));
}

KFUN(VF64, log1p_f64, VF64 x)
{
    const VF64 y = CALL(log1p_core_f64, x, KF64(0.0));
    const VF64 neg = SELECT(EQ(x, KF64(-1.0)), NEG(MATH_INF64), MATH_NAN64);
    const VF64 pos = SELECT(LT(x, MATH_INF64), y, x);
    const VF64 r = SELECT(LE(x, KF64(-1.0)), neg, pos);
    return SELECT(LT(FABS(x), KF64(0x1p-54)), x, r);
}

/* -- hyperbolics and their inverses ---------------------------------------------------------------
 */

KFUN(VF64, tanh_f64, VF64 x)
{
    const VF64 a = FABS(x);
    const VF64 z = MUL(a, a);
    const VF64 small = FMA(MUL(a, z), POLY_tanh_f64(z), a);
    const VF64 e = CALL(exp_f64, ADD(a, a));
    const VF64 big = SUB(KF64(1.0), DIV(KF64(2.0), ADD(e, KF64(1.0))));
    return COPYSIGN(SELECT(LT(a, KF64(0.55)), small, big), x);
}

KFUN(VF64, sinh_f64, VF64 x)
{
    const VF64 a = FABS(x);
    const VF64 z = MUL(a, a);
    const VF64 small = FMA(MUL(a, z), POLY_sinh_f64(z), a);
    const VF64 h = CALL(exp_half_f64, a, KF64(0.0));
    const VF64 big = SUB(h, DIV(KF64(0.25), h));
    return COPYSIGN(SELECT(LT(a, KF64(1.0)), small, big), x);
}

KFUN(VF64, cosh_f64, VF64 x)
{
    const VF64 h = CALL(exp_half_f64, FABS(x), KF64(0.0));
    return ADD(h, DIV(KF64(0.25), h));
}

/* sqrt(a + al) as *lo + the returned value */
KFUN(VF64, sqrt_dd_f64, VF64 a, VF64 al, VF64 *lo)
{
    const VF64 s = SQRT(a);
    const VF64 rem = ADD(FMA(NEG(s), s, a), al);
    *lo = SELECT(GT(s, KF64(0.0)), DIV(rem, ADD(s, s)), KF64(0.0));
    return s;
}

/* log(1 + t + tl), also for arguments whose doubling would overflow */
KFUN(VF64, asinh_f64, VF64 x)
{
    VF64 sl;
    const VF64 a = FABS(x);
    const VB huge = GT(a, KF64(0x1p60));
    const VF64 c = SELECT(huge, KF64(1.0), a);
    /* 1 + c^2 = q + ql */
    const VF64 p = MUL(c, c);
    const VF64 pl = FMA(c, c, NEG(p));
    const VF64 q = ADD(p, KF64(1.0));
    const VF64 qb = SUB(q, p);
    const VF64 ql = ADD(ADD(SUB(p, SUB(q, qb)), SUB(KF64(1.0), qb)), pl);
    const VF64 s = CALL(sqrt_dd_f64, q, ql, &sl);
    /* t = c + (s - 1) */
    const VF64 s1 = SUB(s, KF64(1.0));
    const VF64 s1l = ADD(SUB(SUB(s, s1), KF64(1.0)), sl);
    const VF64 t0 = ADD(c, s1);
    const VF64 tb = SUB(t0, c);
    const VF64 t0l = ADD(ADD(SUB(c, SUB(t0, tb)), SUB(s1, tb)), s1l);
    const VF64 t = SELECT(huge, a, ADD(t0, t0l));
    const VF64 tl = SELECT(huge, KF64(0.0), ADD(SUB(t0, t), t0l));
    const VF64 y = CALL(log1p_core_f64, t, tl);
    const VF64 yh = SELECT(huge, ADD(y, KF64(0x1.62e42fefa39efp-1)), y);
    const VF64 yt = SELECT(LT(a, KF64(0x1p-28)), a, yh);
    return COPYSIGN(SELECT(LT(a, MATH_INF64), yt, a), x);
}

KFUN(VF64, acosh_f64, VF64 x)
{
    VF64 sl;
    const VB huge = GT(x, KF64(0x1p60));
    const VF64 c = SELECT(huge, KF64(2.0), x);
    /* with y = c - 1: acosh = log1p(y + sqrt(y^2 + 2y)) */
    const VF64 y = SUB(c, KF64(1.0));
    const VF64 yl = SUB(SUB(c, y), KF64(1.0));
    const VF64 p = MUL(y, y);
    const VF64 pl = FMA(y, y, NEG(p));
    const VF64 d = ADD(y, y);
    const VF64 q = ADD(p, d);
    const VF64 qb = SUB(q, p);
    const VF64 ql0 = ADD(ADD(SUB(p, SUB(q, qb)), SUB(d, qb)), pl);
    const VF64 ql = FMA(yl, ADD(d, KF64(2.0)), ql0);
    const VF64 s = CALL(sqrt_dd_f64, q, ql, &sl);
    const VF64 t0 = ADD(s, y);
    const VF64 tb = SUB(t0, s);
    const VF64 t0l = ADD(ADD(SUB(s, SUB(t0, tb)), SUB(y, tb)), ADD(sl, yl));
    const VF64 t = SELECT(huge, x, ADD(t0, t0l));
    const VF64 tl = SELECT(huge, KF64(0.0), ADD(SUB(t0, t), t0l));
    const VF64 r = CALL(log1p_core_f64, t, tl);
    const VF64 rh = SELECT(huge, ADD(r, KF64(0x1.62e42fefa39efp-1)), r);
    const VF64 ok = SELECT(LT(x, MATH_INF64), rh, x);
    return SELECT(LT(x, KF64(1.0)), MATH_NAN64, ok);
}

KFUN(VF64, atanh_f64, VF64 x)
{
    const VF64 a = FABS(x);
    /* t = 2a / (1 - a) */
    const VF64 n = ADD(a, a);
    const VF64 d = SUB(KF64(1.0), a);
    const VF64 dl = SUB(SUB(KF64(1.0), d), a);
    const VF64 rd = DIV(KF64(1.0), d);
    const VF64 t0 = MUL(n, rd);
    const VF64 t0l = MUL(FMA(NEG(t0), dl, FMA(NEG(t0), d, n)), rd);
    const VF64 t = ADD(t0, t0l);
    const VF64 tl = ADD(SUB(t0, t), t0l);
    const VF64 y = MUL(KF64(0.5), CALL(log1p_core_f64, t, tl));
    const VF64 ys = SELECT(LT(a, KF64(0x1p-28)), a, y);
    const VF64 yb = SELECT(LT(a, KF64(1.0)), ys, SELECT(EQ(a, KF64(1.0)), MATH_INF64, MATH_NAN64));
    return COPYSIGN(yb, x);
}

/* -- activations ----------------------------------------------------------------------------------
 */

KFUN(VF64, sigmoid_f64, VF64 x)
{
    const VF64 e = CALL(exp_f64, NEG(FABS(x)));
    const VF64 d = ADD(e, KF64(1.0));
    const VF64 y = DIV(SELECT(LT(x, KF64(0.0)), e, KF64(1.0)), d);
    const VF64 dl = SUB(e, SUB(d, KF64(1.0))); /* counts where e is small and d near 1 */
    return FMA(NEG(y), dl, y);
}

/*
 * x sigmoid(x). The left tail x exp(x) is scaled after the product: exp(x) alone is subnormal, with few
 * digits left, where the product is not. From 40 on the sigmoid is 1.
 */
KFUN(VF64, silu_f64, VF64 x)
{
    VF64 s1, s2;
    const VF64 a = FABS(x);
    const VF64 c = SELECT(GT(a, KF64(760.0)), KF64(760.0), a);
    const VF64 r = CALL(exp_reduce_f64, NEG(c), KF64(-0.0), KF64(0x1.8p52 + 2046.0), &s1, &s2);
    const VF64 h = FMA(r, POLY_exp_f64(r), KF64(1.0));
    const VF64 e = MUL(MUL(FMA(r, h, KF64(1.0)), s1), s2);
    const VF64 u = MUL(r, h);
    const VF64 cp = FMA(c, u, c); /* cp + cl = c exp(r) */
    const VF64 cl = FMA(c, u, SUB(c, cp));
    const VF64 d = ADD(e, KF64(1.0));
    const VF64 dl = SUB(e, SUB(d, KF64(1.0))); /* counts where e is small and d near 1 */
    const VB neg = LT(x, KF64(0.0));
    const VF64 b = SELECT(neg, MUL(MUL(cp, s1), s2), c);
    const VF64 bl = FMA(b, NEG(dl), SELECT(neg, MUL(MUL(cl, s1), s2), KF64(0.0)));
    const VF64 y = DIV(ADD(b, bl), d);
    return COPYSIGN(SELECT(GT(x, KF64(40.0)), x, y), x);
}

/*
 * x tanh(softplus(x)) = x n / (n + 2) with n = exp(x) (exp(x) + 2); on the right both are divided by
 * exp(2x). Both and their quotient carry low parts. The left tail is x exp(x), scaled as in silu.
 */
KFUN(VF64, mish_f64, VF64 x)
{
    VF64 s1, s2;
    const VF64 a = FABS(x);
    const VF64 c = SELECT(GT(a, KF64(760.0)), KF64(760.0), a);
    const VF64 r = CALL(exp_reduce_f64, NEG(c), KF64(-0.0), KF64(0x1.8p52 + 2046.0), &s1, &s2);
    const VF64 h = FMA(r, POLY_exp_f64(r), KF64(1.0));
    const VF64 e = MUL(MUL(FMA(r, h, KF64(1.0)), s1), s2);
    const VF64 cp = NEG(FMA(c, MUL(r, h), c)); /* -c exp(r) */
    const VB neg = LT(x, KF64(0.0));
    const VF64 e2 = ADD(e, e);
    const VF64 n = SELECT(neg, FMA(e, e, e2), ADD(e2, KF64(1.0)));
    const VF64 nl = SELECT(neg, FMA(e, e, SUB(e2, n)), SUB(e2, SUB(n, KF64(1.0))));
    const VF64 add = SELECT(neg, KF64(2.0), MUL(e2, e));
    const VF64 d = ADD(n, add);
    const VF64 back = SUB(d, n);
    const VF64 dl = ADD(ADD(SUB(n, SUB(d, back)), SUB(add, back)), nl);
    const VF64 m = MUL(x, n);
    const VF64 ml = FMA(x, nl, FMA(x, n, NEG(m)));
    const VF64 q = DIV(m, d);
    const VF64 low = FMA(NEG(q), dl, ADD(FMA(NEG(q), d, m), ml));
    const VF64 y = COPYSIGN(ADD(q, DIV(low, d)), x);
    return SELECT(GT(x, KF64(40.0)), x, SELECT(LT(x, KF64(-40.0)), MUL(MUL(cp, s1), s2), y));
}

/* log1p(exp(-|x|)) + max(x, 0) */
KFUN(VF64, softplus_f64, VF64 x)
{
    const VF64 e = CALL(exp_f64, NEG(FABS(x)));
    const VF64 l = SELECT(LT(e, KF64(0x1p-54)), e, CALL(log1p_core_f64, e, KF64(0.0)));
    return ADD(l, SELECT(GT(x, KF64(0.0)), x, KF64(0.0)));
}

KFUN(VF64, log_sigmoid_f64, VF64 x)
{
    return NEG(CALL(softplus_f64, NEG(x)));
}

#include "math_f64_trig.h"
#include "math_f64_pow.h"
