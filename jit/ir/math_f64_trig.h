/*
 * jit/ir/math_f64_trig.h -- f64 trigonometric bodies; included by math_f64.h.
 *
 * sin, cos and tan come as NAME_f64_fast (|x| <= 2^30, Cody-Waite reduction), NAME_f64_rare (true
 * when the argument is not ordinary), NAME_f64_slow (every argument, Payne-Hanek reduction) and
 * NAME_f64, the selection of the two.
 *
 * Invariant: the reduced argument is r + lo with |r| <= pi/4, so that no result is off by more than
 * about an ULP.
 */

/* pi/2 = MATH_PI64_1 + MATH_PI64_2 + MATH_PI64_3 */
#define MATH_PI64_1 0x1.921fb54442d18p+0
#define MATH_PI64_2 0x1.1a62633145c07p-54
#define MATH_PI64_3 -0x1.f1976b7ed8fbcp-110

/* 2/pi after the binary point in 32-bit words, behind one word of zeros */
KTABLE(VU64, two_over_pi_w64, 40, 0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599,
       0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c,
       0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639,
       0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f,
       0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7,
       0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20);

/* sin(r + rl + q pi/2) for |r| <= pi/4 */
KFUN(VF64, sin_quadrant_f64, VF64 r, VF64 rl, VU64 q)
{
    const VF64 z = MUL(r, r);
    const VF64 s = ADD(r, FMA(MUL(r, z), POLY_sin_f64(z), rl));
    const VF64 u = MUL(z, FMA(z, POLY_cos_f64(z), KF64(-0.5)));
    const VF64 c = ADD(FMA(NEG(r), rl, u), KF64(1.0));
    const VF64 y = SELECT(NE(IAND(q, KU64(1)), KU64(0)), c, s);
    return FLT64(IXOR(BITS64(y), SHLK(IAND(q, KU64(2)), 62)));
}

/* x = r + *lo + *q pi/2 for |x| <= 2^30; only the low two bits of *q count */
KFUN(VF64, trig_reduce_f64, VF64 x, VF64 *lo, VU64 *q)
{
    const VF64 magic = KF64(0x1.8p52);
    const VF64 t = FMA(x, KF64(0x1.45f306dc9c883p-1), magic);
    const VF64 n = SUB(t, magic);
    const VF64 r1 = FMA(n, KF64(-MATH_PI64_1), x); /* exact */
    const VF64 r = FMA(n, KF64(-MATH_PI64_2), r1);
    *lo = FMA(n, KF64(-(MATH_PI64_3)), FMA(n, KF64(-MATH_PI64_2), SUB(r1, r)));
    *q = BITS64(t);
    return r;
}

KFUN(VB, sin_f64_rare, VF64 x)
{
    return BNOT(LE(FABS(x), KF64(0x1p30)));
}
KFUN(VB, cos_f64_rare, VF64 x)
{
    return BNOT(LE(FABS(x), KF64(0x1p30)));
}
KFUN(VB, tan_f64_rare, VF64 x)
{
    return BNOT(LE(FABS(x), KF64(0x1p30)));
}

KFUN(VF64, sin_f64_fast, VF64 x)
{
    VF64 lo;
    VU64 q;
    const VF64 r = CALL(trig_reduce_f64, x, &lo, &q);
    const VF64 y = CALL(sin_quadrant_f64, r, lo, q);
    return SELECT(EQ(x, KF64(0.0)), x, y); /* keeps -0 */
}

KFUN(VF64, cos_f64_fast, VF64 x)
{
    VF64 lo;
    VU64 q;
    const VF64 r = CALL(trig_reduce_f64, x, &lo, &q);
    return CALL(sin_quadrant_f64, r, lo, ADD(q, KU64(1)));
}

/* tan(r + rl + q pi/2) for |r| <= pi/4: sine and cosine and their quotient to twice the precision
 */
KFUN(VF64, tan_poly_f64, VF64 r, VF64 rl, VU64 q)
{
    const VF64 z = MUL(r, r);
    const VF64 st = FMA(MUL(r, z), POLY_sin_f64(z), rl);
    const VF64 s = ADD(r, st);
    const VF64 sl = ADD(SUB(r, s), st);
    const VF64 h = MUL(z, KF64(-0.5));
    const VF64 hl = FMA(r, r, NEG(z)); /* -2 times what h lacks */
    const VF64 c0 = ADD(h, KF64(1.0));
    const VF64 ct = FMA(z, MUL(z, POLY_cos_f64(z)), FMA(hl, KF64(-0.5), MUL(NEG(r), rl)));
    const VF64 c1 = ADD(ADD(SUB(KF64(1.0), c0), h), ct);
    const VF64 c = ADD(c0, c1);
    const VF64 cl = ADD(SUB(c0, c), c1);
    const VB odd = NE(IAND(q, KU64(1)), KU64(0));
    const VF64 n = SELECT(odd, NEG(c), s);
    const VF64 nl = SELECT(odd, NEG(cl), sl);
    const VF64 d = SELECT(odd, s, c);
    const VF64 dl = SELECT(odd, sl, cl);
    const VF64 rd = DIV(KF64(1.0), d);
    const VF64 v = MUL(n, rd);
    const VF64 rem = FMA(NEG(v), dl, ADD(FMA(NEG(v), d, n), nl));
    return FMA(rem, rd, v);
}

KFUN(VF64, tan_f64_fast, VF64 x)
{
    VF64 lo;
    VU64 q;
    const VF64 r = CALL(trig_reduce_f64, x, &lo, &q);
    const VF64 y = CALL(tan_poly_f64, r, lo, q);
    return SELECT(LT(FABS(x), KF64(0x1p-28)), x, y);
}

/* 32 bits of 2/pi: the upper half of (two table words << sh) */
#define MATH_PI_WORD(hi, lo, sh) SHRK(SHL(IOR(SHLK(hi, 32), lo), sh), 32)
#define MATH_LO32(u) IAND(u, KU64(0xffffffff))
/* a 32-bit integer held in a VU64, as f64 times 2^-k: exact */
#define MATH_U32_F64(u, k)                                                                         \
    MUL(SUB(FLT64(IOR(u, KU64(0x4330000000000000))), KF64(0x1p52)), KF64(0x1p-##k))

/*
 * |x| = r + *lo + *q pi/2 (mod 2 pi) with |r| <= pi/4, for |x| >= 2^28 and finite. The product of
 * the 53-bit significand with 192 bits of 2/pi, taken where the dropped bits above count multiples
 * of 4 and those below less than 2^-120, is formed from 32-bit limbs.
 */
KFUN(VF64, trig_big_f64, VF64 x, VF64 *lo, VU64 *q)
{
    const VU64 u = IAND(BITS64(x), KU64(0x7fffffffffffffff));
    const VU32 ex = MIN(MAX(U32_OF_U64(SHRK(u, 52)), KU32(1023 + 28)), KU32(2046));
    /* the first bit of 2/pi wanted, counted from the zero word */
    const VU64 pos = SUB(U64_OF_U32(ex), KU64(1075 - 30));
    const VU64 i = SHRK(pos, 5);
    const VU64 sh = IAND(pos, KU64(31));
    const VU64 t0 = LOOKUP(two_over_pi_w64, i);
    const VU64 t1 = LOOKUP(two_over_pi_w64, ADD(i, KU64(1)));
    const VU64 t2 = LOOKUP(two_over_pi_w64, ADD(i, KU64(2)));
    const VU64 t3 = LOOKUP(two_over_pi_w64, ADD(i, KU64(3)));
    const VU64 t4 = LOOKUP(two_over_pi_w64, ADD(i, KU64(4)));
    const VU64 t5 = LOOKUP(two_over_pi_w64, ADD(i, KU64(5)));
    const VU64 t6 = LOOKUP(two_over_pi_w64, ADD(i, KU64(6)));
    const VU32 w0 = U32_OF_U64(MATH_PI_WORD(t0, t1, sh));
    const VU32 w1 = U32_OF_U64(MATH_PI_WORD(t1, t2, sh));
    const VU32 w2 = U32_OF_U64(MATH_PI_WORD(t2, t3, sh));
    const VU32 w3 = U32_OF_U64(MATH_PI_WORD(t3, t4, sh));
    const VU32 w4 = U32_OF_U64(MATH_PI_WORD(t4, t5, sh));
    const VU32 w5 = U32_OF_U64(MATH_PI_WORD(t5, t6, sh));
    const VU64 m = IOR(IAND(u, KU64(0x000fffffffffffff)), KU64(0x0010000000000000));
    const VU32 ml = U32_OF_U64(MATH_LO32(m));
    const VU32 mh = U32_OF_U64(SHRK(m, 32));
    const VU64 a0 = MULW32(ml, w0), b1 = MULW32(mh, w1);
    const VU64 a1 = MULW32(ml, w1), b2 = MULW32(mh, w2);
    const VU64 a2 = MULW32(ml, w2), b3 = MULW32(mh, w3);
    const VU64 a3 = MULW32(ml, w3), b4 = MULW32(mh, w4);
    const VU64 a4 = MULW32(ml, w4), b5 = MULW32(mh, w5);
    const VU64 a5 = MULW32(ml, w5);
    const VU64 c1 = ADD(ADD(SHRK(a5, 32), MATH_LO32(a4)), MATH_LO32(b5));
    const VU64 d2 = ADD(ADD(SHRK(a4, 32), MATH_LO32(a3)), ADD(SHRK(b5, 32), MATH_LO32(b4)));
    const VU64 c2 = ADD(SHRK(c1, 32), d2);
    const VU64 d3 = ADD(ADD(SHRK(a3, 32), MATH_LO32(a2)), ADD(SHRK(b4, 32), MATH_LO32(b3)));
    const VU64 c3 = ADD(SHRK(c2, 32), d3);
    const VU64 d4 = ADD(ADD(SHRK(a2, 32), MATH_LO32(a1)), ADD(SHRK(b3, 32), MATH_LO32(b2)));
    const VU64 c4 = ADD(SHRK(c3, 32), d4);
    const VU64 d5 = ADD(ADD(SHRK(a1, 32), MATH_LO32(a0)), ADD(SHRK(b2, 32), MATH_LO32(b1)));
    const VU64 c5 = ADD(SHRK(c4, 32), d5);
    const VU64 top = IOR(SHLK(c5, 32), MATH_LO32(c4));
    const VU64 bot = IOR(SHLK(c3, 32), MATH_LO32(c2));
    *q = SHRK(ADD(top, KU64(0x2000000000000000)), 62);
    /* the signed fraction of a quadrant, in [-1/2, 1/2), as magnitude and sign */
    const VU64 f0 = IOR(SHLK(top, 2), SHRK(bot, 62));
    const VU64 neg = SUB(KU64(0), SHRK(f0, 63));
    const VU64 g0 = IXOR(f0, neg);
    const VU64 g1 = IXOR(SHLK(bot, 2), neg);
    const VU64 g0h = SHRK(g0, 32), g0l = MATH_LO32(g0);
    const VU64 g1h = SHRK(g1, 32), g1l = MATH_LO32(g1);
    const VF64 v0 = MATH_U32_F64(g0h, 32);
    const VF64 v1 = MATH_U32_F64(g0l, 64);
    const VF64 v2 = ADD(MATH_U32_F64(g1h, 96), MATH_U32_F64(g1l, 128));
    const VF64 s0 = ADD(v0, v1);
    const VF64 e0 = ADD(SUB(v1, SUB(s0, v0)), v2);
    const VF64 s = ADD(s0, e0);
    const VF64 sl = ADD(SUB(s0, s), e0);
    const VF64 r = MUL(s, KF64(MATH_PI64_1));
    const VF64 rl = FMA(s, KF64(MATH_PI64_1), NEG(r));
    const VF64 rl2 = FMA(s, KF64(MATH_PI64_2), FMA(sl, KF64(MATH_PI64_1), rl));
    const VU64 sign = IAND(neg, KU64(0x8000000000000000));
    *lo = FLT64(IXOR(BITS64(rl2), sign));
    return FLT64(IXOR(BITS64(r), sign));
}

KFUN(VF64, sin_f64_slow, VF64 x)
{
    VF64 lo;
    VU64 q;
    const VF64 r = CALL(trig_big_f64, x, &lo, &q);
    const VF64 y = CALL(sin_quadrant_f64, r, lo, q);
    const VF64 s = FLT64(IXOR(BITS64(y), IAND(BITS64(x), KU64(0x8000000000000000))));
    return ADD(s, SUB(x, x)); /* inf and NaN give NaN */
}

KFUN(VF64, cos_f64_slow, VF64 x)
{
    VF64 lo;
    VU64 q;
    const VF64 r = CALL(trig_big_f64, x, &lo, &q);
    return ADD(CALL(sin_quadrant_f64, r, lo, ADD(q, KU64(1))), SUB(x, x));
}

KFUN(VF64, tan_f64_slow, VF64 x)
{
    VF64 lo;
    VU64 q;
    const VF64 r = CALL(trig_big_f64, x, &lo, &q);
    const VF64 y = CALL(tan_poly_f64, r, lo, q);
    const VF64 s = FLT64(IXOR(BITS64(y), IAND(BITS64(x), KU64(0x8000000000000000))));
    return ADD(s, SUB(x, x));
}

KFUN(VF64, sin_f64, VF64 x)
{
    const VF64 slow = CALL(sin_f64_slow, x);
    const VF64 fast = CALL(sin_f64_fast, x);
    return SELECT(CALL(sin_f64_rare, x), slow, fast);
}
KFUN(VF64, cos_f64, VF64 x)
{
    const VF64 slow = CALL(cos_f64_slow, x);
    const VF64 fast = CALL(cos_f64_fast, x);
    return SELECT(CALL(cos_f64_rare, x), slow, fast);
}
KFUN(VF64, tan_f64, VF64 x)
{
    const VF64 slow = CALL(tan_f64_slow, x);
    const VF64 fast = CALL(tan_f64_fast, x);
    return SELECT(CALL(tan_f64_rare, x), slow, fast);
}

/* -- inverses ------------------------------------------------------------------------------------
 */

/* asin(s) - s for s^2 = z <= 1/4 */
#define MATH_ASIN_TAIL64(s, z) MUL(MUL(s, z), POLY_asin_f64(z))

KFUN(VF64, asin_f64, VF64 x)
{
    const VF64 a = FABS(x);
    const VB small = LT(a, KF64(0.5));
    const VF64 zb = FMA(a, KF64(-0.5), KF64(0.5));
    const VF64 zs = MUL(a, a);
    const VF64 z = SELECT(small, zs, zb);
    const VF64 s = SQRT(zb);
    const VF64 sl = SELECT(GT(s, KF64(0.0)), DIV(FMA(NEG(s), s, zb), ADD(s, s)), KF64(0.0));
    const VF64 v = SELECT(small, a, s);
    const VF64 t = MATH_ASIN_TAIL64(v, z);
    /* pi/2 - 2 (s + sl + t) */
    const VF64 b1 = FMA(s, KF64(-2.0), KF64(MATH_PI64_1));
    const VF64 b1l = FMA(s, KF64(-2.0), SUB(KF64(MATH_PI64_1), b1));
    const VF64 b = ADD(b1, FMA(ADD(sl, t), KF64(-2.0), ADD(b1l, KF64(MATH_PI64_2))));
    const VF64 y = SELECT(small, ADD(a, t), b);
    return COPYSIGN(y, x); /* SQRT of a negative number gave NaN for |x| > 1 */
}

KFUN(VF64, acos_f64, VF64 x)
{
    const VF64 a = FABS(x);
    const VB small = LT(a, KF64(0.5));
    const VB neg = LT(x, KF64(0.0));
    const VF64 zb = FMA(a, KF64(-0.5), KF64(0.5));
    const VF64 zs = MUL(a, a);
    const VF64 z = SELECT(small, zs, zb);
    const VF64 s = SQRT(zb);
    const VF64 sl = SELECT(GT(s, KF64(0.0)), DIV(FMA(NEG(s), s, zb), ADD(s, s)), KF64(0.0));
    const VF64 v = SELECT(small, x, s);
    const VF64 t = MATH_ASIN_TAIL64(v, z);
    /* pi/2 - (x + t) */
    const VF64 c = SUB(KF64(MATH_PI64_1), x);
    const VF64 cl = SUB(SUB(KF64(MATH_PI64_1), c), x);
    const VF64 yc = ADD(c, SUB(ADD(cl, KF64(MATH_PI64_2)), t));
    /* 2 (s + sl + t), or pi less that */
    const VF64 e = ADD(sl, t);
    const VF64 p = ADD(s, e);
    const VF64 n1 = FMA(s, KF64(-2.0), KF64(MATH_PI64_1 * 2));
    const VF64 n1l = FMA(s, KF64(-2.0), SUB(KF64(MATH_PI64_1 * 2), n1));
    const VF64 n = ADD(n1, FMA(e, KF64(-2.0), ADD(n1l, KF64(MATH_PI64_2 * 2))));
    return SELECT(small, yc, SELECT(neg, n, ADD(p, p)));
}

/* atan(n / d) for n, d >= 0 finite and not both 0; mirrored to pi less that where mirror is true */
KFUN(VF64, atan_ratio_f64, VF64 n, VF64 d, VB mirror)
{
    const VB low = LT(n, MUL(d, KF64(0x1.a827999fcef32p-2)));
    const VB mid = LT(MUL(n, KF64(0x1.a827999fcef32p-2)), d);
    const VF64 sum = ADD(n, d);
    const VF64 dif = SUB(n, d);
    const VF64 num = SELECT(low, n, SELECT(mid, dif, NEG(d)));
    const VF64 den = SELECT(low, d, SELECT(mid, sum, n));
    const VB both = BAND(mid, BNOT(low));
    /* what num and den lost to rounding (two-sums) */
    const VF64 sb = SUB(sum, n), db = SUB(dif, n);
    const VF64 suml = ADD(SUB(n, SUB(sum, sb)), SUB(d, sb));
    const VF64 difl = SUB(SUB(n, SUB(dif, db)), ADD(d, db));
    const VF64 rd = DIV(KF64(1.0), den);
    const VF64 t = MUL(num, rd);
    const VF64 rem = FMA(NEG(t), den, num);
    const VF64 rem2 = SELECT(both, ADD(rem, FMA(NEG(t), suml, difl)), rem);
    const VF64 tl = MUL(rem2, rd);
    const VF64 z = MUL(t, t);
    /* the angle t is counted from, or pi less that angle */
    const VF64 bh = SELECT(low, KF64(0.0), SELECT(mid, KF64(MATH_PI64_1 / 2), KF64(MATH_PI64_1)));
    const VF64 bl = SELECT(low, KF64(0.0), SELECT(mid, KF64(MATH_PI64_2 / 2), KF64(MATH_PI64_2)));
    const VF64 mh = SELECT(low, KF64(MATH_PI64_1 * 2),
                           SELECT(mid, KF64(0x1.2d97c7f3321d2p+1), KF64(MATH_PI64_1)));
    const VF64 ml = SELECT(low, KF64(MATH_PI64_2 * 2),
                           SELECT(mid, KF64(0x1.a79394c9e8a0ap-54), KF64(MATH_PI64_2)));
    const VF64 v = FMA(MUL(t, z), POLY_atan_f64(z), tl);
    const VF64 w = SELECT(mirror, SUB(ml, v), ADD(bl, v));
    const VF64 u = SELECT(mirror, NEG(t), t);
    const VF64 h = SELECT(mirror, mh, bh);
    const VF64 hi = ADD(h, u);
    return ADD(hi, ADD(ADD(SUB(h, hi), u), w));
}

KFUN(VF64, atan_f64, VF64 x)
{
    const VF64 a = FABS(x);
    const VB inf = EQ(a, MATH_INF64);
    const VF64 y = CALL(atan_ratio_f64, SELECT(inf, KF64(1.0), a),
                        SELECT(inf, KF64(0.0), KF64(1.0)), LT(a, KF64(0.0)));
    return COPYSIGN(y, x);
}

KFUN(VF64, atan2_f64, VF64 y, VF64 x)
{
    const VF64 n = FABS(y);
    const VF64 d = FABS(x);
    const VB same = EQ(n, d);
    const VF64 one = SELECT(EQ(n, KF64(0.0)), KF64(0.0), KF64(1.0));
    const VB ninf = EQ(n, MATH_INF64);
    const VB dinf = EQ(d, MATH_INF64);
    const VF64 n1 = SELECT(same, one, SELECT(ninf, KF64(1.0), SELECT(dinf, KF64(0.0), n)));
    const VF64 d1 = SELECT(same, KF64(1.0), SELECT(dinf, KF64(1.0), SELECT(ninf, KF64(0.0), d)));
    /* keep n + d and 1/n, 1/d in range */
    const VF64 big = SELECT(GT(n1, d1), n1, d1);
    const VF64 k = SELECT(GT(big, KF64(0x1p1000)), KF64(0x1p-4),
                          SELECT(LT(big, KF64(0x1p-800)), KF64(0x1p200), KF64(1.0)));
    const VB left = NE(SHRK(BITS64(x), 63), KU64(0));
    const VF64 a = CALL(atan_ratio_f64, MUL(n1, k), MUL(d1, k), left);
    const VB nan = BOR(NE(x, x), NE(y, y));
    return SELECT(nan, ADD(x, y), COPYSIGN(a, y));
}
