/*
 * jit/ir/math_f64_pow.h -- f64 powers and roots, error function and what follows from it; included
 * by math_f64.h.
 *
 * Invariant: where a result amplifies the error of an intermediate (y log x, a^2 under exp), that
 * intermediate is kept as an unevaluated sum of two numbers.
 */

/* -- powers and roots -----------------------------------------------------------------------------
 */

/* log(x) + *lo for x > 0 finite, about 2^-66 relative */
KFUN(VF64, log_dd_f64, VF64 x, VF64 *lo)
{
    VF64 e;
    const VF64 m = CALL(log_reduce_f64, x, &e);
    const VF64 f = SUB(m, KF64(1.0));
    /* s = f / (m + 1) */
    const VF64 d = ADD(m, KF64(1.0));
    const VF64 dl = SUB(m, SUB(d, KF64(1.0)));
    const VF64 rd = DIV(KF64(1.0), d);
    const VF64 s = MUL(f, rd);
    const VF64 sl = MUL(FMA(NEG(s), dl, FMA(NEG(s), d, f)), rd);
    /* log m = s (2 + W), W = 2/3 z + z^2 Q(z), z = s^2 */
    const VF64 z = MUL(s, s);
    const VF64 zl = FMA(MUL(s, KF64(2.0)), sl, FMA(s, s, NEG(z)));
    const VF64 q = MUL(MUL(z, z), POLY_logq_f64(z));
    const VF64 p = MUL(z, KF64(0x1.5555555555555p-1));
    const VF64 pl0 = FMA(z, KF64(0x1.5555555555555p-1), NEG(p));
    const VF64 pl = FMA(zl, KF64(0x1.5555555555555p-1), FMA(z, KF64(0x1.5555555555555p-55), pl0));
    const VF64 w = ADD(p, q);
    const VF64 wl = ADD(ADD(SUB(p, w), q), pl);
    const VF64 a = ADD(s, s);
    const VF64 b = MUL(s, w);
    const VF64 bl = FMA(s, wl, FMA(sl, w, FMA(s, w, NEG(b))));
    const VF64 l = ADD(a, b);
    const VF64 ll = ADD(ADD(SUB(a, l), b), FMA(sl, KF64(2.0), bl));
    const VF64 k = MUL(e, KF64(0x1.62e42fefa39efp-1));
    const VF64 kl = FMA(e, KF64(0x1.abc9e3b39803fp-56), FMA(e, KF64(0x1.62e42fefa39efp-1), NEG(k)));
    const VF64 h = ADD(k, l);
    *lo = ADD(ADD(SUB(k, h), l), ADD(kl, ll));
    return h;
}

/* exp(hi + lo), |lo| tiny, any hi */
KFUN(VF64, exp_dd_f64, VF64 hi, VF64 lo)
{
    VF64 s1, s2;
    const VF64 c = SELECT(LT(hi, KF64(-746.0)), KF64(-746.0), hi);
    const VF64 d = SELECT(GT(c, KF64(710.0)), KF64(710.0), c);
    const VF64 r = CALL(exp_reduce_f64, d, lo, KF64(0x1.8p52 + 2046.0), &s1, &s2);
    const VF64 p = FMA(r, FMA(r, POLY_exp_f64(r), KF64(1.0)), KF64(1.0));
    return MUL(MUL(p, s1), s2);
}

/* r = |x|^y given; the signs and special cases of IEEE 754 pow */
KFUN(VF64, pow_special_f64, VF64 x, VF64 y, VF64 r)
{
    const VF64 a = FABS(x);
    const VF64 h = MUL(y, KF64(0.5));
    const VB whole = EQ(RINT(y), y);
    const VB odd = BAND(whole, NE(RINT(h), h));
    const VU64 flip = SELECT(odd, IAND(BITS64(x), KU64(0x8000000000000000)), KU64(0));
    const VF64 m = SELECT(EQ(a, KF64(1.0)), KF64(1.0), r);
    const VF64 s = FLT64(IXOR(BITS64(m), flip));
    const VB finneg = BAND(LT(x, KF64(0.0)), LT(a, MATH_INF64));
    const VF64 t = SELECT(BAND(finneg, BNOT(whole)), MATH_NAN64, s);
    const VB nan = BOR(NE(x, x), NE(y, y));
    const VF64 v = SELECT(nan, ADD(x, y), t);
    return SELECT(BOR(EQ(y, KF64(0.0)), EQ(x, KF64(1.0))), KF64(1.0), v);
}

KFUN(VF64, pow_f64, VF64 x, VF64 y)
{
    VF64 ll;
    const VF64 a = FABS(x);
    const VF64 l0 = CALL(log_dd_f64, a, &ll);
    const VF64 l = SELECT(EQ(a, KF64(0.0)), NEG(MATH_INF64), SELECT(LT(a, MATH_INF64), l0, a));
    const VF64 p = MUL(y, l);
    const VF64 pl = FMA(y, ll, FMA(y, l, NEG(p)));
    const VF64 r = CALL(exp_dd_f64, p, SELECT(LT(FABS(p), KF64(1000.0)), pl, KF64(0.0)));
    return CALL(pow_special_f64, x, y, r);
}

/*
 * y = 1 / sqrt(x) is rounded twice; one step of Newton's, y + y/2 (1 - x y^2), puts that right. x y = w + wl: no square
 * of y, which may underflow. Where there is nothing to correct (x is 0 or infinite) the step is NaN.
 */
#define MATH_RSQRT(T, K, x)                                                                        \
    const T y = DIV(K(1.0f), SQRT(x));                                                             \
    const T w = MUL(x, y);                                                                         \
    const T wl = FMA(x, y, NEG(w));                                                                \
    const T d = FMA(NEG(wl), y, FMA(NEG(w), y, K(1.0f)));                                          \
    const T z = FMA(MUL(y, K(0.5f)), d, y);                                                        \
    return SELECT(EQ(z, z), z, y)

KFUN(VF64, rsqrt_f64, VF64 x)
{
    MATH_RSQRT(VF64, KF64, x);
}

/* x as what a power of it is a root of: +0 for -0, +inf for -inf. */
#define MATH_POW_BASE(x, inf, zero) SELECT(EQ(x, NEG(inf)), inf, ADD(x, zero))

KFUN(VF64, pow_half_f64, VF64 x)
{
    return SQRT(MATH_POW_BASE(x, MATH_INF64, KF64(0.0)));
}

KFUN(VF64, pow_minus_half_f64, VF64 x)
{
    const VF64 a = MATH_POW_BASE(x, MATH_INF64, KF64(0.0));
    return CALL(rsqrt_f64, a);
}

KFUN(VF64, cbrt_f64, VF64 x)
{
    const VF64 a = FABS(x);
    const VB tiny = LT(a, KF64(0x1p-700));
    const VB huge = GT(a, KF64(0x1p700));
    const VF64 k = SELECT(tiny, KF64(0x1p300), SELECT(huge, KF64(0x1p-300), KF64(1.0)));
    const VF64 ik = SELECT(tiny, KF64(0x1p-100), SELECT(huge, KF64(0x1p100), KF64(1.0)));
    const VF64 c = MUL(a, k);
    /* c^(-1/3) to 5 bits by a third of the exponent, then two steps of high order */
    const VU32 hi = U32_OF_U64(SHRK(BITS64(c), 32));
    const VU64 third = SHRK(MULW32(hi, KU32(0x55555556)), 32);
    const VF64 y0 = FLT64(SHLK(SUB(KU64(0x553ef0ff), third), 32));
    const VF64 e0 = FMA(NEG(MUL(c, y0)), MUL(y0, y0), KF64(1.0));
    const VF64 g0 = FMA(e0,
                        FMA(e0, FMA(e0, KF64(0x1.61f9add3c0ca4p-3), KF64(0x1.c71c71c71c71cp-3)),
                            KF64(0x1.5555555555555p-2)),
                        KF64(1.0));
    const VF64 y1 = MUL(y0, g0);
    const VF64 e1 = FMA(NEG(MUL(c, y1)), MUL(y1, y1), KF64(1.0));
    const VF64 g1 = MUL(e1, FMA(e1, FMA(e1, KF64(0x1.61f9add3c0ca4p-3), KF64(0x1.c71c71c71c71cp-3)),
                                KF64(0x1.5555555555555p-2)));
    const VF64 y = FMA(y1, g1, y1);
    /* r = c y^2, corrected by (r^3 - c) / (3 r^2) */
    const VF64 y2 = MUL(y, y);
    const VF64 r = MUL(c, y2);
    const VF64 r2 = MUL(r, r);
    const VF64 r2l = FMA(r, r, NEG(r2));
    const VF64 q = MUL(r2, r);
    const VF64 ql = FMA(r2l, r, FMA(r2, r, NEG(q)));
    const VF64 d = ADD(SUB(c, q), NEG(ql));
    const VF64 v = FMA(MUL(d, y2), KF64(0x1.5555555555555p-2), r);
    const VF64 w = MUL(v, ik);
    const VB plain = BAND(GT(a, KF64(0.0)), LT(a, MATH_INF64));
    return COPYSIGN(SELECT(plain, w, a), x);
}

KFUN(VF64, hypot_f64, VF64 x, VF64 y)
{
    const VF64 p = FABS(x);
    const VF64 q = FABS(y);
    const VF64 a0 = SELECT(GT(p, q), p, q);
    const VF64 b0 = SELECT(GT(p, q), q, p);
    const VB big = GT(a0, KF64(0x1p500));
    const VB small = LT(a0, KF64(0x1p-450));
    const VF64 k = SELECT(big, KF64(0x1p-600), SELECT(small, KF64(0x1p600), KF64(1.0)));
    const VF64 ik = SELECT(big, KF64(0x1p600), SELECT(small, KF64(0x1p-600), KF64(1.0)));
    const VF64 a = MUL(a0, k);
    const VF64 b = MUL(b0, k);
    const VF64 s = MUL(a, a);
    const VF64 t = MUL(b, b);
    const VF64 u = ADD(s, t);
    const VF64 ul = ADD(ADD(SUB(s, u), t), ADD(FMA(a, a, NEG(s)), FMA(b, b, NEG(t))));
    const VF64 h = SQRT(u);
    const VF64 c = DIV(ADD(FMA(NEG(h), h, u), ul), ADD(h, h));
    const VF64 r = MUL(ADD(h, c), ik);
    const VF64 v = SELECT(EQ(a0, KF64(0.0)), KF64(0.0), r);
    const VF64 n = SELECT(BOR(NE(x, x), NE(y, y)), ADD(x, y), v);
    return SELECT(BOR(EQ(p, MATH_INF64), EQ(q, MATH_INF64)), MATH_INF64, n);
}

/* -- error function ---------------------------------------------------------------------------- */

/* erfc(a + al) / 2 for a >= 0, times scale before the last rounding */
KFUN(VF64, erfc_half_f64, VF64 a, VF64 al, VF64 scale)
{
    VF64 s1, s2;
    const VF64 c = SELECT(GT(a, KF64(28.0)), KF64(28.0), a);
    /* from 1/2 on, erfc(c) = exp(-c^2) G(t) / (1 + 2c), t = (c - 3.75) / (c + 3.75) */
    const VF64 d = FMA(c, KF64(2.0), KF64(1.0));
    const VF64 dl = FMA(c, KF64(2.0), FMA(al, KF64(2.0), SUB(KF64(1.0), d)));
    const VF64 rd = DIV(KF64(1.0), d);
    const VF64 t = DIV(SUB(c, KF64(3.75)), ADD(c, KF64(3.75)));
    const VF64 gp = POLY_erfc_f64(t);
    const VF64 gt = FMA(t, gp, POLY_erfc_f64_H);
    const VF64 gtl = ADD(FMA(t, gp, SUB(POLY_erfc_f64_H, gt)), POLY_erfc_f64_L);
    const VF64 g0 = MUL(gt, rd);
    const VF64 g0l = FMA(gtl, rd, FMA(gt, rd, NEG(g0)));
    const VF64 g = MUL(g0, scale);
    const VF64 gl = FMA(g0l, scale, FMA(g0, scale, NEG(g)));
    const VF64 fix = FMA(NEG(rd), dl, FMA(NEG(rd), d, KF64(1.0)));
    const VF64 q = MUL(c, c);
    const VF64 ql = FMA(c, c, NEG(q));
    const VF64 xl = FMA(MUL(c, KF64(-2.0)), al, NEG(ql));
    const VF64 r = CALL(exp_reduce_f64, NEG(q), xl, KF64(0x1.8p52 + 2045.0), &s1, &s2);
    const VF64 u = FMA(MUL(r, r), POLY_exp_f64(r), r);
    /* (g + gl) (1 + fix) (1 + u) */
    const VF64 gf = FMA(g, fix, gl);
    const VF64 v = ADD(g, FMA(g, u, FMA(gf, u, gf)));
    const VF64 big = MUL(MUL(v, s1), s2);
    const VF64 e = ADD(a, FMA(a, POLY_erfs_f64(q), al));
    return SELECT(LT(a, KF64(0.5)), MUL(FMA(e, KF64(-0.5), KF64(0.5)), scale), big);
}

KFUN(VF64, erf_f64, VF64 x)
{
    const VF64 a = FABS(x);
    const VF64 z = MUL(a, a);
    const VF64 small = FMA(a, POLY_erfs_f64(z), a);
    const VF64 big = FMA(CALL(erfc_half_f64, a, KF64(0.0), KF64(1.0)), KF64(-2.0), KF64(1.0));
    return COPYSIGN(SELECT(LT(a, KF64(1.0)), small, big), x);
}

KFUN(VF64, erfc_f64, VF64 x)
{
    const VF64 h = CALL(erfc_half_f64, FABS(x), KF64(0.0), KF64(2.0));
    return SELECT(LT(x, KF64(0.0)), SUB(KF64(2.0), h), h);
}

/* |x| / sqrt(2) + *lo, held finite */
KFUN(VF64, over_sqrt2_f64, VF64 x, VF64 *lo)
{
    const VF64 b = FABS(x);
    const VF64 a = SELECT(GT(b, KF64(40.0)), KF64(40.0), b);
    const VF64 h = MUL(a, KF64(0x1.6a09e667f3bcdp-1));
    const VF64 l = FMA(a, KF64(0x1.6a09e667f3bcdp-1), NEG(h));
    *lo = FMA(a, KF64(-0x1.bdd3413b26456p-55), l);
    return h;
}

/* the standard normal distribution function, erfc(-x / sqrt(2)) / 2 */
KFUN(VF64, normcdf_f64, VF64 x)
{
    VF64 lo;
    const VF64 a = CALL(over_sqrt2_f64, x, &lo);
    const VF64 h = CALL(erfc_half_f64, a, lo, KF64(1.0));
    return SELECT(GT(x, KF64(0.0)), SUB(KF64(1.0), h), h);
}

/* x normcdf(x) */
KFUN(VF64, gelu_f64, VF64 x)
{
    VF64 lo;
    const VF64 a = CALL(over_sqrt2_f64, x, &lo);
    const VF64 c = SELECT(LT(x, KF64(-56.0)), KF64(-56.0), x); /* -inf gives -0 */
    const VF64 h = CALL(erfc_half_f64, a, lo, c);
    return SELECT(GT(x, KF64(0.0)), SUB(x, SELECT(LT(x, KF64(56.0)), h, KF64(0.0))), h);
}

/* x / (1 + exp(-2u)), 2u = 2 sqrt(2/pi) (x + 0.044715 x^3); the left tail keeps its precision */
KFUN(VF64, gelu_tanh_f64, VF64 x)
{
    VF64 s1, s2;
    const VF64 k1 = KF64(0x1.9884533d4366p+0), k1l = KF64(-0x1.ee5e069875fe9p-49);
    /* k1 has few enough bits for k1 - w to be exact */
    const VF64 k3 = KF64(0x1.2444f2a4d8b4bp-4), k3l = KF64(-0x1.6c843a29d1c7p-61);
    const VF64 b = FABS(x);
    const VF64 a = SELECT(GT(b, KF64(23.0)), KF64(23.0), b);
    const VF64 z = MUL(a, a);
    const VF64 zl = FMA(a, a, NEG(z));
    const VF64 w = FMA(k3, z, k1);
    const VF64 wl = FMA(k3, zl, FMA(k3l, z, ADD(FMA(k3, z, SUB(k1, w)), k1l)));
    const VF64 v = MUL(a, w);
    const VF64 vl = FMA(a, wl, FMA(a, w, NEG(v)));
    const VF64 magic = KF64(0x1.8p52 + 2046.0);
    const VF64 r = CALL(exp_reduce_f64, NEG(v), NEG(vl), magic, &s1, &s2);
    const VF64 e = FMA(r, POLY_exp_f64(r), KF64(1.0));
    const VF64 p = MUL(FMA(r, e, KF64(1.0)), s1);
    const VF64 pa = MUL(FMA(MUL(a, r), e, a), s1);
    const VF64 den = FMA(p, s2, KF64(1.0));
    const VF64 denl = FMA(p, s2, SUB(KF64(1.0), den));
    const VB neg = LT(x, KF64(0.0));
    const VF64 y = DIV(SELECT(neg, MUL(pa, s2), b), den);
    return COPYSIGN(SELECT(neg, FMA(NEG(y), denl, y), y), x);
}
