/*
 * jit/ir/rowfun.h -- small typed functions that row expressions call by TC(name, ...).
 *
 * Written in the row language like the math bodies, one per compute type; the includer provides the
 * dictionary. Integer versions exist where the row accepts integers.
 */

/* -- abs, sign, roundings: floats ---------------------------------------------------------------- */
KFUN(VF32, abs_f32, VF32 x)
{
    return FABS(x);
}
KFUN(VF64, abs_f64, VF64 x)
{
    return FABS(x);
}
KFUN(VF32, sign_f32, VF32 x)
{
    return SELECT(GT(x, KF32(0)), KF32(1), SELECT(LT(x, KF32(0)), KF32(-1), x));
}
KFUN(VF64, sign_f64, VF64 x)
{
    return SELECT(GT(x, KF64(0)), KF64(1), SELECT(LT(x, KF64(0)), KF64(-1), x));
}
#define WF_ROUNDINGS(op, OP)                                                                       \
    KFUN(VF32, op##_f32, VF32 x)                                                                   \
    {                                                                                              \
        return OP(x);                                                                              \
    }                                                                                              \
    KFUN(VF64, op##_f64, VF64 x)                                                                   \
    {                                                                                              \
        return OP(x);                                                                              \
    }
WF_ROUNDINGS(floor, FLOOR)
WF_ROUNDINGS(ceil, CEIL)
WF_ROUNDINGS(trunc, TRUNC)
WF_ROUNDINGS(rint, RINT)
#undef WF_ROUNDINGS

/* -- predicates: floats ---------------------------------------------------------------------------- */
KFUN(VB, isnan_f32, VF32 x)
{
    return NE(x, x);
}
KFUN(VB, isnan_f64, VF64 x)
{
    return NE(x, x);
}
KFUN(VB, isinf_f32, VF32 x)
{
    return EQ(FABS(x), FLT32(KU32(0x7F800000u)));
}
KFUN(VB, isinf_f64, VF64 x)
{
    return EQ(FABS(x), FLT64(KU64(0x7FF0000000000000u)));
}
KFUN(VB, isfinite_f32, VF32 x)
{
    return LT(FABS(x), FLT32(KU32(0x7F800000u)));
}
KFUN(VB, isfinite_f64, VF64 x)
{
    return LT(FABS(x), FLT64(KU64(0x7FF0000000000000u)));
}
KFUN(VB, signbit_f32, VF32 x)
{
    return NE(IAND(BITS32(x), KU32(0x80000000u)), KU32(0));
}
KFUN(VB, signbit_f64, VF64 x)
{
    return NE(IAND(BITS64(x), KU64(0x8000000000000000u)), KU64(0));
}

/* -- floor_divide, remainder, fmod ----------------------------------------------------------------
 * fmod is exact: long division in f64, 52 quotient bits at a time. One step is exact while the
 * quotient is below 2^52 (q * b and a - q * b are exact under fma; q may be one too large because
 * a / b rounds, hence the correction). Larger quotients take further steps; f32 needs at most 6. */
KFUN(VF64, fmod_step, VF64 r, VF64 b)
{
    /* b scaled by a power of two so that the quotient stays below 2^52: keep the exponent gap */
    const VF64 q = TRUNC(DIV(r, b));
    const VF64 t = FMA(NEG(q), b, r);
    return SELECT(LT(t, KF64(0)), ADD(t, b), SELECT(GE(t, b), SUB(t, b), t));
}
/* One reduction of r by b * 2^k for the largest multiple of 48 that keeps the quotient exact. */
KFUN(VF64, fmod_far, VF64 r, VF64 b, VF64 scale)
{
    const VF64 c = MUL(b, scale);
    return SELECT(GE(r, c), CALL(fmod_step, r, c), r);
}
KFUN(VF32, fmod_f32, VF32 x, VF32 d)
{
    const VF64 a = F64_OF_F32(FABS(x));
    const VF64 b = F64_OF_F32(FABS(d));
    VF64 r = CALL(fmod_far, a, b, KF64(0x1p240));
    r = CALL(fmod_far, r, b, KF64(0x1p192));
    r = CALL(fmod_far, r, b, KF64(0x1p144));
    r = CALL(fmod_far, r, b, KF64(0x1p96));
    r = CALL(fmod_far, r, b, KF64(0x1p48));
    r = CALL(fmod_step, r, b);
    const VF32 y = COPYSIGN(F32_OF_F64(r), x);
    const VF32 nan = FLT32(KU32(0x7FC00000u));
    const VB bad = BOR(BOR(BNOT(CALL(isfinite_f32, x)), EQ(d, KF32(0))), NE(d, d));
    return SELECT(bad, nan, SELECT(CALL(isinf_f32, d), x, y));
}
KFUN(VF32, remainder_f32, VF32 x, VF32 d)
{
    const VF32 m = CALL(fmod_f32, x, d);
    const VB fix = BAND(NE(m, KF32(0)), NE(LT(m, KF32(0)), LT(d, KF32(0))));
    const VF32 r = SELECT(fix, ADD(m, d), m);
    return SELECT(EQ(r, KF32(0)), COPYSIGN(r, d), r);
}
KFUN(VF32, floor_divide_f32, VF32 x, VF32 d)
{
    const VF32 q = DIV(x, d);
    const VF32 m = CALL(fmod_f32, x, d);
    const VF32 e = DIV(SUB(x, m), d);
    const VB fix = BAND(NE(m, KF32(0)), NE(LT(m, KF32(0)), LT(d, KF32(0))));
    const VF32 f = RINT(SELECT(fix, SUB(e, KF32(1)), e));
    const VB plain = BOR(BOR(EQ(d, KF32(0)), BNOT(CALL(isfinite_f32, x))), CALL(isinf_f32, d));
    return SELECT(plain, FLOOR(q), SELECT(EQ(f, KF32(0)), COPYSIGN(KF32(0), q), f));
}
KFUN(VF64, fmod_f64, VF64 x, VF64 d)
{
    const VF64 a = FABS(x);
    const VF64 b = FABS(d);
    /* scale both down when b * 2^k would overflow is unnecessary: an infinite c is never <= r */
    VF64 r = a;
#define WF_FAR(k) r = CALL(fmod_far, r, b, KF64(k));
    WF_FAR(0x1p1008)
    r = CALL(fmod_far, r, MUL(b, KF64(0x1p1000)), KF64(0x1p1064 * 0x1p-56));
    WF_FAR(0x1p960) WF_FAR(0x1p912) WF_FAR(0x1p864) WF_FAR(0x1p816) WF_FAR(0x1p768)
    WF_FAR(0x1p720) WF_FAR(0x1p672) WF_FAR(0x1p624) WF_FAR(0x1p576) WF_FAR(0x1p528)
    WF_FAR(0x1p480) WF_FAR(0x1p432) WF_FAR(0x1p384) WF_FAR(0x1p336) WF_FAR(0x1p288)
    WF_FAR(0x1p240) WF_FAR(0x1p192) WF_FAR(0x1p144) WF_FAR(0x1p96) WF_FAR(0x1p48)
#undef WF_FAR
    r = CALL(fmod_step, r, b);
    const VF64 y = COPYSIGN(r, x);
    const VF64 nan = FLT64(KU64(0x7FF8000000000000u));
    const VB bad = BOR(BOR(BNOT(CALL(isfinite_f64, x)), EQ(d, KF64(0))), NE(d, d));
    return SELECT(bad, nan, SELECT(CALL(isinf_f64, d), x, y));
}
KFUN(VF64, remainder_f64, VF64 x, VF64 d)
{
    const VF64 m = CALL(fmod_f64, x, d);
    const VB fix = BAND(NE(m, KF64(0)), NE(LT(m, KF64(0)), LT(d, KF64(0))));
    const VF64 r = SELECT(fix, ADD(m, d), m);
    return SELECT(EQ(r, KF64(0)), COPYSIGN(r, d), r);
}
KFUN(VF64, floor_divide_f64, VF64 x, VF64 d)
{
    const VF64 q = DIV(x, d);
    const VF64 m = CALL(fmod_f64, x, d);
    const VF64 e = DIV(SUB(x, m), d);
    const VB fix = BAND(NE(m, KF64(0)), NE(LT(m, KF64(0)), LT(d, KF64(0))));
    const VF64 f = RINT(SELECT(fix, SUB(e, KF64(1)), e));
    const VB plain = BOR(BOR(EQ(d, KF64(0)), BNOT(CALL(isfinite_f64, x))), CALL(isinf_f64, d));
    return SELECT(plain, FLOOR(q), SELECT(EQ(f, KF64(0)), COPYSIGN(KF64(0), q), f));
}
