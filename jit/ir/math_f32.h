/*
 * jit/ir/math_f32.h -- f32 math bodies in the row language; math_f64.h must be included before.
 *
 * The functions that rows of a network are full of (exp, log, tanh, sigmoid, gelu...) are computed
 * in f32 (math_f32_pure.h); the others go through their f64 body, which leaves half an ULP plus nothing to
 * speak of.
 *
 * Invariants: those of math_f64.h.
 */
#include "jit/ir/math_f32_pure.h"

/* -- trigonometry: huge arguments ------------------------------------------------------------------ */

KFUN(VF32, tan_f32_fast, VF32 x)
{
    return F32_OF_F64(CALL(tan_f64_fast, F64_OF_F32(x)));
}

/* 2/pi after the binary point in 32-bit words, behind one word of zeros */
KTABLE(VU32, two_over_pi_w32, 8, 0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599,
       0x3c439041, 0xfe5163ab);

/*
 * |x| = r + *q pi/2 (mod 2 pi), |r| <= pi/4, for |x| >= 2^17 and finite: the 24-bit significand
 * times 96 bits of 2/pi, of which the top 64 count.
 */
KFUN(VF64, trig_big_f32, VF32 x, VU64 *q)
{
    const VU32 u = BITS32(x);
    const VU32 ex = MIN(MAX(IAND(SHRK(u, 23), KU32(255)), KU32(127 + 17)), KU32(254));
    const VU32 pos = SUB(ex, KU32(150 - 30)); /* the first bit of 2/pi wanted, from the zero word */
    const VU32 i = SHRK(pos, 5);
    const VU64 sh = U64_OF_U32(IAND(pos, KU32(31)));
    const VU64 t0 = U64_OF_U32(LOOKUP(two_over_pi_w32, i));
    const VU64 t1 = U64_OF_U32(LOOKUP(two_over_pi_w32, ADD(i, KU32(1))));
    const VU64 t2 = U64_OF_U32(LOOKUP(two_over_pi_w32, ADD(i, KU32(2))));
    const VU64 t3 = U64_OF_U32(LOOKUP(two_over_pi_w32, ADD(i, KU32(3))));
    const VU32 w0 = U32_OF_U64(MATH_PI_WORD(t0, t1, sh));
    const VU32 w1 = U32_OF_U64(MATH_PI_WORD(t1, t2, sh));
    const VU32 w2 = U32_OF_U64(MATH_PI_WORD(t2, t3, sh));
    const VU32 m = IOR(IAND(u, KU32(0x007fffff)), KU32(0x00800000));
    const VU64 a0 = MULW32(m, w0), a1 = MULW32(m, w1), a2 = MULW32(m, w2);
    const VU64 top = ADD(ADD(SHLK(a0, 32), a1), SHRK(a2, 32));
    *q = SHRK(ADD(top, KU64(0x2000000000000000)), 62);
    const VU64 f = SHLK(top, 2);
    const VU64 neg = SUB(KU64(0), SHRK(f, 63));
    const VU64 g = IXOR(f, neg);
    const VU64 gh = SHRK(g, 32), gl = MATH_LO32(g);
    const VF64 v = ADD(MATH_U32_F64(gh, 32), MATH_U32_F64(gl, 64));
    const VF64 r = MUL(v, KF64(0x1.921fb54442d18p+0));
    return FLT64(IXOR(BITS64(r), IAND(neg, KU64(0x8000000000000000))));
}

KFUN(VF32, sin_f32_slow, VF32 x)
{
    VU64 q;
    const VF64 r = CALL(trig_big_f32, x, &q);
    const VF32 y = F32_OF_F64(CALL(sin_quadrant_f64, r, KF64(0.0), q));
    const VF32 s = FLT32(IXOR(BITS32(y), IAND(BITS32(x), KU32(0x80000000))));
    return ADD(s, SUB(x, x)); /* inf and NaN give NaN */
}

KFUN(VF32, cos_f32_slow, VF32 x)
{
    VU64 q;
    const VF64 r = CALL(trig_big_f32, x, &q);
    const VF32 y = F32_OF_F64(CALL(sin_quadrant_f64, r, KF64(0.0), ADD(q, KU64(1))));
    return ADD(y, SUB(x, x));
}

KFUN(VF32, tan_f32_slow, VF32 x)
{
    VU64 q;
    const VF64 r = CALL(trig_big_f32, x, &q);
    const VF32 y = F32_OF_F64(CALL(tan_poly_f64, r, KF64(0.0), q));
    const VF32 s = FLT32(IXOR(BITS32(y), IAND(BITS32(x), KU32(0x80000000))));
    return ADD(s, SUB(x, x));
}

KFUN(VF32, sin_f32, VF32 x)
{
    const VF32 slow = CALL(sin_f32_slow, x);
    const VF32 fast = CALL(sin_f32_fast, x);
    return SELECT(CALL(sin_f32_rare, x), slow, fast);
}
KFUN(VF32, cos_f32, VF32 x)
{
    const VF32 slow = CALL(cos_f32_slow, x);
    const VF32 fast = CALL(cos_f32_fast, x);
    return SELECT(CALL(cos_f32_rare, x), slow, fast);
}
KFUN(VF32, tan_f32, VF32 x)
{
    const VF32 slow = CALL(tan_f32_slow, x);
    const VF32 fast = CALL(tan_f32_fast, x);
    return SELECT(CALL(tan_f32_rare, x), slow, fast);
}

/* -- through f64 ------------------------------------------------------------------------------- */

KFUN(VF32, asin_f32, VF32 x)
{
    return F32_OF_F64(CALL(asin_f64, F64_OF_F32(x)));
}
KFUN(VF32, acos_f32, VF32 x)
{
    return F32_OF_F64(CALL(acos_f64, F64_OF_F32(x)));
}
KFUN(VF32, sinh_f32, VF32 x)
{
    return F32_OF_F64(CALL(sinh_f64, F64_OF_F32(x)));
}
KFUN(VF32, cosh_f32, VF32 x)
{
    return F32_OF_F64(CALL(cosh_f64, F64_OF_F32(x)));
}
KFUN(VF32, asinh_f32, VF32 x)
{
    return F32_OF_F64(CALL(asinh_f64, F64_OF_F32(x)));
}
KFUN(VF32, acosh_f32, VF32 x)
{
    return F32_OF_F64(CALL(acosh_f64, F64_OF_F32(x)));
}
KFUN(VF32, cbrt_f32, VF32 x)
{
    return F32_OF_F64(CALL(cbrt_f64, F64_OF_F32(x)));
}
KFUN(VF32, rsqrt_f32, VF32 x)
{
    MATH_RSQRT(VF32, KF32, x);
}

KFUN(VF32, pow_half_f32, VF32 x)
{
    return SQRT(MATH_POW_BASE(x, MATH_INF32, KF32(0.0f)));
}

KFUN(VF32, pow_minus_half_f32, VF32 x)
{
    const VF32 a = MATH_POW_BASE(x, MATH_INF32, KF32(0.0f));
    return CALL(rsqrt_f32, a);
}

KFUN(VF32, hypot_f32, VF32 x, VF32 y)
{
    const VF64 a = F64_OF_F32(x), b = F64_OF_F32(y);
    const VF32 h = F32_OF_F64(SQRT(FMA(a, a, MUL(b, b)))); /* the squares are exact and in range */
    const VB inf = BOR(EQ(FABS(x), MATH_INF32), EQ(FABS(y), MATH_INF32));
    return SELECT(inf, MATH_INF32, h);
}

/*
 * 2^(y log2 a) in f64, where no second words are needed: log2 is 2^-33 of itself off, and y log2 a at most 150, which leaves an
 * eighth of an ULP. Every f32 but 0 is normal there. The sign and the special cases are those of pow_special_f64.
 */
KFUN(VF32, pow_f32, VF32 x, VF32 y)
{
    const VF32 a = FABS(x);
    const VU64 u = ADD(BITS64(F64_OF_F32(a)), KU64(0x3ff0000000000000 - 0x3fe6a09e667f3bcd));
    const VF64 e = SUB(FLT64(IOR(SHRK(u, 52), KU64(0x4330000000000000))), KF64(0x1p52 + 1023.0));
    const VF64 m = FLT64(ADD(IAND(u, KU64(0x000fffffffffffff)), KU64(0x3fe6a09e667f3bcd)));
    const VF64 f = SUB(m, KF64(1.0));
    const VF64 p = MUL(F64_OF_F32(y), FMA(f, POLY_powl_f32(f), e));
    const VF64 lo = SELECT(LT(p, KF64(-160.0)), KF64(-160.0), p);
    const VF64 c = SELECT(GT(lo, KF64(160.0)), KF64(160.0), lo);
    const VF64 t = ADD(c, KF64(0x1.8p52 + 1023.0));
    const VF64 r = SUB(c, SUB(t, KF64(0x1.8p52 + 1023.0)));
    const VF32 z = F32_OF_F64(MUL(FMA(r, POLY_powx_f32(r), KF64(1.0)), FLT64(SHLK(BITS64(t), 52))));
    const VB zero = EQ(a, KF32(0.0f)), ends = BOR(zero, EQ(a, MATH_INF32));
    const VF32 w = MUL(SELECT(zero, NEG(MATH_INF32), MATH_INF32), y); /* log2 a is as infinite */
    const VF32 edge = SELECT(GT(w, KF32(0.0f)), MATH_INF32, KF32(0.0f));
    const VF32 v = SELECT(EQ(a, KF32(1.0f)), KF32(1.0f), SELECT(ends, edge, z));
    const VB whole = EQ(RINT(y), y);
    const VF32 h = MUL(y, KF32(0.5f));
    const VB odd = BAND(whole, NE(RINT(h), h));
    const VU32 flip = SELECT(odd, IAND(BITS32(x), KU32(0x80000000)), KU32(0));
    const VF32 s = FLT32(IXOR(BITS32(v), flip));
    const VB finneg = BAND(LT(x, KF32(0.0f)), LT(a, MATH_INF32));
    const VF32 n = SELECT(BAND(finneg, BNOT(whole)), MATH_NAN32, s);
    const VF32 q = SELECT(BOR(NE(x, x), NE(y, y)), ADD(x, y), n);
    return SELECT(BOR(EQ(y, KF32(0.0f)), EQ(x, KF32(1.0f))), KF32(1.0f), q);
}
