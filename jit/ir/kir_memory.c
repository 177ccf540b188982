/*
 * jit/ir/kir_memory.c -- elements of memory as values and back, in primitives.
 *
 * The formulas are those of dtype.h (half types) and of the casts between dtypes: one rounding to
 * nearest even; f64, i32 and i64 reach the half types through an f32 rounded to odd.
 */
#include "jit/ir/dict_kir.h"

wf_kty wf_kir_storage(int dtype)
{
    static const uint8_t storage[WF_NDTYPE] = {
        [WEFT_DTYPE_DEFAULT] = WF_KT_COUNT,
        [WEFT_BOOL] = WF_KT_U8,
        [WEFT_U8] = WF_KT_U8,
        [WEFT_I8] = WF_KT_I8,
        [WEFT_I16] = WF_KT_I16,
        [WEFT_I32] = WF_KT_I32,
        [WEFT_I64] = WF_KT_I64,
        [WEFT_F16] = WF_KT_U16,
        [WEFT_BF16] = WF_KT_U16,
        [WEFT_F32] = WF_KT_F32,
        [WEFT_F64] = WF_KT_F64,
    };
    return (wf_kty)storage[dtype];
}

#define CAST(type, a) wf_kv_cast(a, type)
#define I64(c) wf_kv_const(c, WF_KT_I64)

static wf_kval f32_of_bf16(wf_kval h)
{
    return FLT32(SHLK(CAST(WF_KT_U32, h), 16));
}

static wf_kval f32_of_f16(wf_kval h)
{
    const wf_kval u = CAST(WF_KT_U32, h);
    const wf_kval sign = SHLK(IAND(u, KU32(0x8000u)), 16);
    const wf_kval magnitude = SHLK(IAND(u, KU32(0x7FFFu)), 13);
    const wf_kval exp = IAND(magnitude, KU32(0x1Fu << 23));
    const wf_kval bits = ADD(magnitude, KU32(112u << 23));
    const wf_kval special = ADD(bits, KU32(112u << 23)); /* inf and NaN */
    const wf_kval sub = BITS32(SUB(FLT32(ADD(bits, KU32(1u << 23))), FLT32(KU32(113u << 23))));
    const wf_kval r =
        SELECT(EQ(exp, KU32(0x1Fu << 23)), special, SELECT(EQ(exp, KU32(0)), sub, bits));
    return FLT32(IOR(r, sign));
}

static wf_kval bf16_of_f32(wf_kval x)
{
    const wf_kval u = BITS32(x);
    const wf_kval high = SHRK(u, 16);
    const wf_kval rounded = SHRK(ADD(ADD(u, KU32(0x7FFFu)), IAND(high, KU32(1))), 16);
    const wf_kval quiet = IOR(high, KU32(0x40u));
    const wf_kval nan = GT(IAND(u, KU32(0x7FFFFFFFu)), KU32(0x7F800000u));
    return CAST(WF_KT_U16, SELECT(nan, quiet, rounded));
}

static wf_kval f16_of_f32(wf_kval x)
{
    const wf_kval u = BITS32(x);
    const wf_kval sign = IAND(u, KU32(0x80000000u));
    const wf_kval a = IXOR(u, sign);
    const wf_kval nan_or_inf = SELECT(GT(a, KU32(0x7F800000u)), KU32(0x7E00u), KU32(0x7C00u));
    const wf_kval denorm = KU32(126u << 23);
    const wf_kval subnormal = SUB(BITS32(ADD(FLT32(a), FLT32(denorm))), denorm);
    const wf_kval odd = IAND(SHRK(a, 13), KU32(1));
    const wf_kval normal = SHRK(ADD(ADD(a, KU32(((uint32_t)-112 << 23) + 0xFFFu)), odd), 13);
    const wf_kval finite = SELECT(LT(a, KU32(113u << 23)), subnormal, normal);
    const wf_kval r = SELECT(GE(a, KU32(143u << 23)), nan_or_inf, finite);
    return CAST(WF_KT_U16, IOR(r, SHRK(sign, 16)));
}

/* x as f32, rounded to odd. */
static wf_kval odd_f32(wf_kval x)
{
    const wf_kval y = F32_OF_F64(x);
    const wf_kval back = F64_OF_F32(y);
    const wf_kval u = BITS32(y);
    const wf_kval odd = SELECT(GT(FABS(back), FABS(x)), SUB(u, KU32(1)), ADD(u, KU32(1)));
    const wf_kval done = BOR(BOR(EQ(back, x), NE(x, x)), NE(IAND(u, KU32(1)), KU32(0)));
    return FLT32(SELECT(done, u, odd));
}

/* x as f64, rounded to odd in units of 4096 beyond 2^53. */
static wf_kval odd_f64_of_i64(wf_kval x)
{
    const wf_kval zero = I64(0), one = I64(1);
    const wf_kval low = IAND(x, I64(4095));
    const wf_kval high = IOR(SHR(x, I64(12)), SELECT(NE(low, zero), one, zero));
    const wf_kval top = SHR(x, I64(53));
    const wf_kval wide = MUL(CAST(WF_KT_F64, high), KF64(4096.0));
    const wf_kval small = BOR(EQ(top, zero), EQ(top, I64(UINT64_MAX)));
    return SELECT(small, CAST(WF_KT_F64, x), wide);
}

/* An f32 that rounds to f16 and bf16 as the value does. */
static wf_kval half_source(wf_kval x)
{
    switch (wf_kv_type(x)) {
    case WF_KT_F64:
        return odd_f32(x);
    case WF_KT_I32:
    case WF_KT_U32:
        return odd_f32(CAST(WF_KT_F64, x));
    case WF_KT_I64:
        return odd_f32(odd_f64_of_i64(x));
    case WF_KT_BOOL:
    case WF_KT_U8:
    case WF_KT_I8:
    case WF_KT_U16:
    case WF_KT_I16:
    case WF_KT_F32:
        return CAST(WF_KT_F32, x);
    case WF_KT_U64: /* no tensor has this type */
    case WF_KT_COUNT:
        break;
    }
    return wf_kv(WF_KREF_NONE);
}

wf_kref wf_kir_load(wf_kir *k, int dtype, wf_kty to, wf_kref element)
{
    const wf_kval e = wf_kv(element);
    wf_kv_build(k, WF_KT_COUNT);
    if (dtype == WEFT_BF16)
        return CAST(to, f32_of_bf16(e)).ref;
    if (dtype == WEFT_F16)
        return CAST(to, f32_of_f16(e)).ref;
    return CAST(to, e).ref;
}

wf_kref wf_kir_store(wf_kir *k, int dtype, wf_kref value)
{
    const wf_kval x = wf_kv(value);
    wf_kv_build(k, WF_KT_COUNT);
    if (dtype == WEFT_BF16)
        return bf16_of_f32(half_source(x)).ref;
    if (dtype == WEFT_F16)
        return f16_of_f32(half_source(x)).ref;
    if (dtype == WEFT_BOOL)
        return CAST(WF_KT_U8, CAST(WF_KT_BOOL, x)).ref;
    return CAST(wf_kir_storage(dtype), x).ref;
}
