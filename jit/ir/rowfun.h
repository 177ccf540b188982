/*
 * jit/ir/rowfun.h -- small typed functions that row expressions call by TC(name, ...).
 *
 * Written in the row language like the math bodies, one per compute type; the includer provides the
 * dictionary and the math bodies. Integer versions exist where the row accepts integers.
 *
 * Besides the names of dict_c.h this file uses VT_U8 VT_I8 VT_I16 VT_I32 VT_I64 (value types of
 * integer tensors) and KINT(type, c) (a constant of one); plain C unless the includer defines them.
 */
#ifndef KINT
#define KINT(T, c) ((T)(c))
#define VT_U8 uint8_t
#define VT_I8 int8_t
#define VT_I16 int16_t
#define VT_I32 int32_t
#define VT_I64 int64_t
#endif

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

/* -- integers --------------------------------------------------------------------------------------
 * The roundings are the identity, nothing is NaN or infinite. Division floors; x / 0 = 0 and
 * x mod 0 = 0; MIN / -1 wraps to MIN (remainder 0). DIV has the first and the last rule built in. */
#define WF_INT_COMMON(T, t)                                                                        \
    KFUN(T, floor_##t, T x)                                                                        \
    {                                                                                              \
        return x;                                                                                  \
    }                                                                                              \
    KFUN(T, ceil_##t, T x)                                                                         \
    {                                                                                              \
        return x;                                                                                  \
    }                                                                                              \
    KFUN(T, trunc_##t, T x)                                                                        \
    {                                                                                              \
        return x;                                                                                  \
    }                                                                                              \
    KFUN(T, rint_##t, T x)                                                                         \
    {                                                                                              \
        return x;                                                                                  \
    }                                                                                              \
    KFUN(VB, isnan_##t, T x)                                                                       \
    {                                                                                              \
        return NE(x, x);                                                                           \
    }                                                                                              \
    KFUN(VB, isinf_##t, T x)                                                                       \
    {                                                                                              \
        return NE(x, x);                                                                           \
    }                                                                                              \
    KFUN(VB, isfinite_##t, T x)                                                                    \
    {                                                                                              \
        return EQ(x, x);                                                                           \
    }                                                                                              \
    KFUN(T, fmod_##t, T x, T d)                                                                    \
    {                                                                                              \
        return SELECT(EQ(d, KINT(T, 0)), KINT(T, 0), SUB(x, MUL(DIV(x, d), d)));                   \
    }
#define WF_INT_UNSIGNED(T, t)                                                                      \
    WF_INT_COMMON(T, t)                                                                            \
    KFUN(T, abs_##t, T x)                                                                          \
    {                                                                                              \
        return x;                                                                                  \
    }                                                                                              \
    KFUN(T, sign_##t, T x)                                                                         \
    {                                                                                              \
        return SELECT(EQ(x, KINT(T, 0)), KINT(T, 0), KINT(T, 1));                                  \
    }                                                                                              \
    KFUN(VB, signbit_##t, T x)                                                                     \
    {                                                                                              \
        return NE(x, x);                                                                           \
    }                                                                                              \
    KFUN(T, remainder_##t, T x, T d)                                                               \
    {                                                                                              \
        return CALL(fmod_##t, x, d);                                                               \
    }                                                                                              \
    KFUN(T, floor_divide_##t, T x, T d)                                                            \
    {                                                                                              \
        return DIV(x, d);                                                                          \
    }
#define WF_INT_SIGNED(T, t)                                                                        \
    WF_INT_COMMON(T, t)                                                                            \
    KFUN(T, abs_##t, T x)                                                                          \
    {                                                                                              \
        return SELECT(LT(x, KINT(T, 0)), NEG(x), x);                                               \
    }                                                                                              \
    KFUN(T, sign_##t, T x)                                                                         \
    {                                                                                              \
        return SELECT(GT(x, KINT(T, 0)), KINT(T, 1), SELECT(LT(x, KINT(T, 0)), KINT(T, -1), x));   \
    }                                                                                              \
    KFUN(VB, signbit_##t, T x)                                                                     \
    {                                                                                              \
        return LT(x, KINT(T, 0));                                                                  \
    }                                                                                              \
    KFUN(VB, floor_fix_##t, T m, T d)                                                              \
    {                                                                                              \
        return BAND(NE(m, KINT(T, 0)), NE(LT(m, KINT(T, 0)), LT(d, KINT(T, 0))));                  \
    }                                                                                              \
    KFUN(T, remainder_##t, T x, T d)                                                               \
    {                                                                                              \
        const T m = CALL(fmod_##t, x, d);                                                          \
        return SELECT(CALL(floor_fix_##t, m, d), ADD(m, d), m);                                    \
    }                                                                                              \
    KFUN(T, floor_divide_##t, T x, T d)                                                            \
    {                                                                                              \
        const T q = DIV(x, d);                                                                     \
        const T m = SELECT(EQ(d, KINT(T, 0)), d, SUB(x, MUL(q, d)));                               \
        return SELECT(CALL(floor_fix_##t, m, d), SUB(q, KINT(T, 1)), q);                           \
    }
WF_INT_UNSIGNED(VT_U8, u8)
WF_INT_SIGNED(VT_I8, i8)
WF_INT_SIGNED(VT_I16, i16)
WF_INT_SIGNED(VT_I32, i32)
WF_INT_SIGNED(VT_I64, i64)
#undef WF_INT_COMMON
#undef WF_INT_UNSIGNED
#undef WF_INT_SIGNED

/* -- fmod, remainder, floor_divide: floats ----------------------------------------------------------
 * fmod is exact: long division, one digit of base 2^48 (f32: 2^48 in f64) at a time.
 *
 * A step takes r >= 0 to r mod c, while r / c is below 2^p, p one less than the precision. With
 * q = trunc(fl(r / c)), r - q c is exact under fma (a multiple of ulp(c) no larger than c), and q is
 * right or, where fl rounded up to an integer, one too large; it is never too small.
 *
 * NAME_<t>_fast   one step; ordinary lanes: finite x, finite nonzero d, quotient below 2^p.
 * NAME_<t>_slow   any lane; NAME_<t> is the same.
 * fmod_<t>_rare   the lane is not ordinary; shared by the three.
 *
 * remainder has the sign of d and rounds once when it adds d. floor_divide is floor(x / d) rounded
 * once: -1 where d is infinite and x / d is below zero, however little, as in NumPy and PyTorch. A
 * non-finite x or a d that is zero gives what floor(x / d) gives in IEEE. */
#define WF_MOD_COMMON(T, t, K_, P, INF, NAN_)                                                      \
    /* quotient of the step; *r becomes the remainder */                                           \
    KFUN(T, mod_step_##t, T a, T c, T *r)                                                          \
    {                                                                                              \
        const T q = TRUNC(DIV(a, c));                                                              \
        const T s = FMA(NEG(q), c, a);                                                             \
        const VB over = LT(s, K_(0));                                                              \
        *r = SELECT(over, ADD(s, c), s);                                                           \
        return SELECT(over, SUB(q, K_(1)), q);                                                     \
    }                                                                                              \
    KFUN(VB, fmod_##t##_rare, T x, T d)                                                            \
    {                                                                                              \
        return BNOT(BAND(LT(DIV(FABS(x), FABS(d)), K_(P)), LT(FABS(d), INF)));                     \
    }                                                                                              \
    KFUN(T, fmod_##t##_fast, T x, T d)                                                             \
    {                                                                                              \
        T r;                                                                                       \
        (void)CALL(mod_step_##t, FABS(x), FABS(d), &r);                                            \
        return COPYSIGN(r, x);                                                                     \
    }                                                                                              \
    /* the floored remainder of a truncated one */                                                 \
    KFUN(T, mod_floor_##t, T m, T d)                                                               \
    {                                                                                              \
        const VB fix = BAND(NE(m, K_(0)), NE(LT(m, K_(0)), LT(d, K_(0))));                         \
        const T r = SELECT(fix, ADD(m, d), m);                                                     \
        return SELECT(EQ(r, K_(0)), COPYSIGN(r, d), r);                                            \
    }                                                                                              \
    KFUN(T, remainder_##t##_fast, T x, T d)                                                        \
    {                                                                                              \
        return CALL(mod_floor_##t, CALL(fmod_##t##_fast, x, d), d);                                \
    }                                                                                              \
    KFUN(T, floor_divide_##t##_fast, T x, T d)                                                     \
    {                                                                                              \
        T r;                                                                                       \
        const T q = CALL(mod_step_##t, FABS(x), FABS(d), &r);                                      \
        const VB negative = NE(LT(x, K_(0)), LT(d, K_(0)));                                        \
        const T up = SELECT(NE(r, K_(0)), ADD(q, K_(1)), q);                                       \
        const T y = SELECT(negative, NEG(up), q);                                                  \
        return SELECT(EQ(y, K_(0)), COPYSIGN(K_(0), DIV(x, d)), y);                                \
    }                                                                                              \
    /* floor of w = fl(x / d), where w is too large for a fraction or d is infinite */             \
    KFUN(T, floor_plain_##t, T x, T d, T w)                                                        \
    {                                                                                              \
        const VB below = BAND(NE(x, K_(0)), NE(LT(x, K_(0)), LT(d, K_(0))));                       \
        return SELECT(BAND(EQ(w, K_(0)), below), K_(-1), FLOOR(w));                                \
    }                                                                                              \
    KFUN(T, mod_special_##t, T x, T d, T r)                                                        \
    {                                                                                              \
        const VB bad = BOR(BNOT(LT(FABS(x), INF)), BOR(EQ(d, K_(0)), NE(d, d)));                   \
        return SELECT(bad, NAN_, SELECT(EQ(FABS(d), INF), x, COPYSIGN(r, x)));                     \
    }
WF_MOD_COMMON(VF32, f32, KF32, 0x1p22, FLT32(KU32(0x7F800000u)), FLT32(KU32(0x7FC00000u)))
WF_MOD_COMMON(VF64, f64, KF64, 0x1p51, FLT64(KU64(0x7FF0000000000000u)),
              FLT64(KU64(0x7FF8000000000000u)))
#undef WF_MOD_COMMON

/* r mod c where the quotient may be below one, and c infinite. */
KFUN_OFTEN(VF64, mod_far, VF64 r, VF64 c)
{
    VF64 s;
    (void)CALL(mod_step_f64, r, c, &s);
    return SELECT(GE(r, c), s, r);
}
/* Every pair of f32 values has a quotient below 2^277. */
KFUN(VF32, fmod_f32_slow, VF32 x, VF32 d)
{
    const VF64 b = F64_OF_F32(FABS(d));
    VF64 r = F64_OF_F32(FABS(x));
    r = CALL(mod_far, r, MUL(b, KF64(0x1p240)));
    r = CALL(mod_far, r, MUL(b, KF64(0x1p192)));
    r = CALL(mod_far, r, MUL(b, KF64(0x1p144)));
    r = CALL(mod_far, r, MUL(b, KF64(0x1p96)));
    r = CALL(mod_far, r, MUL(b, KF64(0x1p48)));
    r = CALL(mod_far, r, b);
    return CALL(mod_special_f32, x, d, F32_OF_F64(r));
}
/* Every pair of f64 values has a quotient below 2^2098; multiples of b beyond 2^1007 take two
 * factors, and one that overflows is above r and passed over. */
KFUN(VF64, fmod_f64_slow, VF64 x, VF64 d)
{
    const VF64 b = FABS(d);
    const VF64 h = MUL(b, KF64(0x1p1008));
    VF64 r = FABS(x);
    /* clang-format off */
#define WF_FAR2(k) r = CALL(mod_far, r, MUL(h, KF64(k)));
#define WF_FAR(k) r = CALL(mod_far, r, MUL(b, KF64(k)));
    r = CALL(mod_far, r, MUL(MUL(h, KF64(0x1p1008)), KF64(0x1p32)));
    WF_FAR2(0x1p1008)
    WF_FAR2(0x1p960) WF_FAR2(0x1p912) WF_FAR2(0x1p864) WF_FAR2(0x1p816) WF_FAR2(0x1p768)
    WF_FAR2(0x1p720) WF_FAR2(0x1p672) WF_FAR2(0x1p624) WF_FAR2(0x1p576) WF_FAR2(0x1p528)
    WF_FAR2(0x1p480) WF_FAR2(0x1p432) WF_FAR2(0x1p384) WF_FAR2(0x1p336) WF_FAR2(0x1p288)
    WF_FAR2(0x1p240) WF_FAR2(0x1p192) WF_FAR2(0x1p144) WF_FAR2(0x1p96) WF_FAR2(0x1p48)
    WF_FAR(0x1p1008)
    WF_FAR(0x1p960) WF_FAR(0x1p912) WF_FAR(0x1p864) WF_FAR(0x1p816) WF_FAR(0x1p768)
    WF_FAR(0x1p720) WF_FAR(0x1p672) WF_FAR(0x1p624) WF_FAR(0x1p576) WF_FAR(0x1p528)
    WF_FAR(0x1p480) WF_FAR(0x1p432) WF_FAR(0x1p384) WF_FAR(0x1p336) WF_FAR(0x1p288)
    WF_FAR(0x1p240) WF_FAR(0x1p192) WF_FAR(0x1p144) WF_FAR(0x1p96) WF_FAR(0x1p48)
#undef WF_FAR
#undef WF_FAR2
    r = CALL(mod_far, r, b);
    /* clang-format on */
    return CALL(mod_special_f64, x, d, r);
}
/* Where the compiler makes no vectors of it, for it is a part of something else: 40 KB less of kernels. */
KFUN_SELDOM(VF64, fmod_f64_part, VF64 x, VF64 d)
{
    return CALL(fmod_f64_slow, x, d);
}
#define fmod_f32_part fmod_f32_slow
#define WF_MOD_FULL(T, t)                                                                          \
    KFUN(T, fmod_##t, T x, T d)                                                                    \
    {                                                                                              \
        return CALL(fmod_##t##_slow, x, d);                                                        \
    }                                                                                              \
    KFUN(T, remainder_##t##_slow, T x, T d)                                                        \
    {                                                                                              \
        return CALL(mod_floor_##t, CALL(fmod_##t##_part, x, d), d);                                \
    }                                                                                              \
    KFUN(T, remainder_##t, T x, T d)                                                               \
    {                                                                                              \
        return CALL(remainder_##t##_slow, x, d);                                                   \
    }
WF_MOD_FULL(VF32, f32)
WF_MOD_FULL(VF64, f64)
#undef WF_MOD_FULL
#undef fmod_f32_part

/* Quotients below 2^50 are exact in f64. Above, x / d rounds as floor(x / d) does: a quotient of two
 * 24-bit numbers is never within 2^-50 of itself of a 25-bit midpoint without being one. */
KFUN(VF32, floor_divide_f32_slow, VF32 x, VF32 d)
{
    const VF64 q = CALL(floor_divide_f64_fast, F64_OF_F32(x), F64_OF_F32(d));
    const VF32 w = DIV(x, d);
    const VB plain = BOR(BNOT(LT(FABS(w), KF32(0x1p50))), EQ(FABS(d), FLT32(KU32(0x7F800000u))));
    return SELECT(plain, CALL(floor_plain_f32, x, d, w), F32_OF_F64(q));
}
KFUN(VF32, floor_divide_f32, VF32 x, VF32 d)
{
    return CALL(floor_divide_f32_slow, x, d);
}
/* Below 2^51 one step is exact. Above, the truncated quotient is (x - m) / d with m the truncated
 * remainder; x - m is kept as s + e and divided with one correction. */
KFUN(VF64, floor_divide_f64_slow, VF64 x, VF64 d)
{
    const VF64 w = DIV(x, d);
    const VB near = LT(FABS(w), KF64(0x1p51));
    const VB plain = BOR(BNOT(LT(FABS(w), FLT64(KU64(0x7FF0000000000000u)))),
                         EQ(FABS(d), FLT64(KU64(0x7FF0000000000000u))));
    const VF64 m = CALL(fmod_f64_part, x, d);
    const VF64 s = SUB(x, m);
    const VF64 e = SUB(SUB(x, s), m); /* |x| >= |m|: exact */
    const VF64 q = DIV(s, d);
    const VF64 c = DIV(ADD(FMA(NEG(q), d, s), e), d);
    const VB fix = BAND(NE(m, KF64(0)), NE(LT(m, KF64(0)), LT(d, KF64(0))));
    const VF64 f = ADD(q, SUB(c, SELECT(fix, KF64(1), KF64(0))));
    return SELECT(plain, CALL(floor_plain_f64, x, d, w),
                  SELECT(near, CALL(floor_divide_f64_fast, x, d), f));
}
KFUN(VF64, floor_divide_f64, VF64 x, VF64 d)
{
    return CALL(floor_divide_f64_slow, x, d);
}

/* -- logaddexp: log(exp(a) + exp(b)) ------------------------------------------------------------------
 * max + log1p(exp(-|a - b|)); equal operands (infinities among them) give a + log 2. Where the two
 * terms cancel, near a result of 0, f32 is saved by f64 arithmetic. */
KFUN(VF64, logaddexp_f64, VF64 a, VF64 b)
{
    const VF64 d = NEG(FABS(SUB(a, b)));
    const VF64 y = ADD(MAX(a, b), CALL(log1p_f64, CALL(exp_f64, d)));
    return SELECT(EQ(a, b), ADD(a, KF64(0.6931471805599453094)), y);
}
/* The same with what f32 does not need left out: below -110 exp gives nothing, so its power of two is one factor, and of 1 + e in
 * [1, 2] no exponent is taken and no lost bits are kept. */
KFUN(VF32, logaddexp_f32, VF32 a, VF32 b)
{
    const VF64 x = F64_OF_F32(a), y = F64_OF_F32(b);
    const VF64 d = NEG(FABS(SUB(x, y)));
    const VF64 c = SELECT(LT(d, KF64(-110.0)), KF64(-110.0), d);
    const VF64 magic = KF64(0x1.8p52 + 1023.0);
    const VF64 t = FMA(c, KF64(0x1.71547652b82fep+0), magic);
    const VF64 n = SUB(t, magic);
    const VF64 s = FLT64(SHLK(BITS64(t), 52));
    const VF64 r = FMA(n, KF64(-0x1.abc9e3b39803fp-56), FMA(n, KF64(-0x1.62e42fefa39efp-1), c));
    const VF64 e = FMA(s, FMA(MUL(r, r), POLY_exp_f64(r), r), s);
    const VB up = GT(e, KF64(0x1.a827999fcef34p-2));
    const VF64 f = SELECT(up, FMA(e, KF64(0.5), KF64(-0.5)), e);
    const VF64 h = MUL(MUL(f, KF64(0.5)), f);
    const VF64 l = SUB(f, SUB(h, CALL(log_tail_f64, f, h)));
    const VF64 z = ADD(MAX(x, y), ADD(l, SELECT(up, KF64(0.6931471805599453094), KF64(0.0))));
    return F32_OF_F64(SELECT(EQ(x, y), ADD(x, KF64(0.6931471805599453094)), z));
}
