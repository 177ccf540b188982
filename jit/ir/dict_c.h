/*
 * jit/ir/dict_c.h -- the scalar C dictionary of the row language.
 *
 * Row expressions (ops.def) and math bodies (math_f32.h, math_f64.h) are written once, as nested
 * names such as FMA(a, b, c).  A dictionary gives those names a meaning.  This one makes them plain
 * scalar C that gcc and clang vectorise; dict_kir.h makes them builder calls that append kernel IR,
 * from which the reference interpreter, LLVM and CUDA text are produced.
 *
 * Invariants
 *  - Every name here is a primitive that IEEE 754 (or two's complement arithmetic) defines exactly,
 *    so every dictionary yields the same bits.  Nothing here may call libm except fma, sqrt and the
 *    roundings, which are exact.
 *  - Compile users of this file with -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv.
 *  - A primitive added here is added to prims.def and dict_kir.h in the same change.
 */
#ifndef JIT_IR_DICT_C_H
#define JIT_IR_DICT_C_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Value types of bodies. VB is a truth value, VU32/VU64 are bit patterns (unsigned, wrapping). */
#define VF32 float
#define VF64 double
#define VU32 uint32_t
#define VU64 uint64_t
#define VB bool

/* Code compiled for size (the SSE2 kernels) has one copy of a body, where that is smaller. */
#ifdef __OPTIMIZE_SIZE__
#define KFUN(ret, name, ...) __attribute__((unused)) static ret name(__VA_ARGS__)
#else
#define KFUN(ret, name, ...)                                                                       \
    __attribute__((unused, always_inline)) static inline ret name(__VA_ARGS__)
#endif
/* A function called so often that it certainly is. */
#ifdef __OPTIMIZE_SIZE__
#define KFUN_OFTEN(ret, name, ...) __attribute__((unused, noinline)) static ret name(__VA_ARGS__)
#else
#define KFUN_OFTEN KFUN
#endif
/* A long function that is part of a body which is no vectors anyway: one copy of it. */
#define KFUN_SELDOM(ret, name, ...) __attribute__((unused, noinline)) static ret name(__VA_ARGS__)
#define CALL(name, ...) name(__VA_ARGS__)
/*
 * A constant table: KTABLE(VU32, two_over_pi, 8, 0x..., ...); read with LOOKUP(two_over_pi, index).
 * The index is a VU32 or VU64, of the elements' width: gcc vectorises no other gather.
 */
#define KTABLE(type, name, n, ...) static const type name[n] = {__VA_ARGS__}
#define LOOKUP(table, idx) ((table)[idx])

#define KF32(c) ((float)(c))
#define KF64(c) ((double)(c))
#define KU32(c) ((uint32_t)(c))
#define KU64(c) ((uint64_t)(c))

/* -- arithmetic: both operands of one type (f32, f64 or an integer type) ------------------------ */
#define ADD(a, b) ((__typeof__(a))((a) + (b)))
#define SUB(a, b) ((__typeof__(a))((a) - (b)))
#define MUL(a, b) ((__typeof__(a))((a) * (b)))
#define NEG(a) ((__typeof__(a))(-(a)))

/* gcc's -fsanitize=shift rewrites shifts of narrow types and then warns of its own conversions. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#define WF_DICT_INT(suffix, type, utype, bits)                                                     \
    __attribute__((unused)) static inline type wf_div_##suffix(type a, type b)                     \
    {                                                                                              \
        return b == 0 ? (type)0 : (b == (type)-1 ? (type)(0 - (utype)a) : (type)(a / b));          \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_min_##suffix(type a, type b)                     \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_max_##suffix(type a, type b)                     \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_shl_##suffix(type a, type b)                     \
    {                                                                                              \
        return (utype)b < bits ? (type)(utype)((utype)a << ((utype)b & (bits - 1))) : (type)0;     \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_shr_##suffix(type a, type b)                     \
    {                                                                                              \
        return (utype)b < bits ? (type)(a >> ((utype)b & (bits - 1)))                              \
                               : (type)(a < (type)0 ? (type)-1 : (type)0);                         \
    }
#define WF_DICT_UINT(suffix, type, bits)                                                           \
    __attribute__((unused)) static inline type wf_div_##suffix(type a, type b)                     \
    {                                                                                              \
        return b == 0 ? (type)0 : (type)(a / b);                                                   \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_min_##suffix(type a, type b)                     \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_max_##suffix(type a, type b)                     \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_shl_##suffix(type a, type b)                     \
    {                                                                                              \
        return b < bits ? (type)(a << (b & (bits - 1))) : (type)0;                                 \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_shr_##suffix(type a, type b)                     \
    {                                                                                              \
        return b < bits ? (type)(a >> (b & (bits - 1))) : (type)0;                                 \
    }
WF_DICT_UINT(u8, uint8_t, 8)
WF_DICT_INT(i8, int8_t, uint8_t, 8)
WF_DICT_INT(i16, int16_t, uint16_t, 16)
WF_DICT_INT(i32, int32_t, uint32_t, 32)
WF_DICT_INT(i64, int64_t, uint64_t, 64)
WF_DICT_UINT(u32, uint32_t, 32)
WF_DICT_UINT(u64, uint64_t, 64)
#undef WF_DICT_INT
#undef WF_DICT_UINT
#pragma GCC diagnostic pop

__attribute__((unused)) static inline uint32_t wf_bits32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
__attribute__((unused)) static inline float wf_flt32(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
__attribute__((unused)) static inline uint64_t wf_bits64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
__attribute__((unused)) static inline double wf_flt64(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* minimum/maximum of IEEE 754-2019: NaN propagates, -0 < +0. */
#define WF_DICT_FLT(suffix, type, bits, flt)                                                       \
    __attribute__((unused)) static inline type wf_div_##suffix(type a, type b)                     \
    {                                                                                              \
        return a / b;                                                                              \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_min_##suffix(type a, type b)                     \
    {                                                                                              \
        type r = a < b ? a : b;                                                                    \
        r = a == b ? flt(bits(a) | bits(b)) : r;                                                   \
        return a != a ? a : r;                                                                     \
    }                                                                                              \
    __attribute__((unused)) static inline type wf_max_##suffix(type a, type b)                     \
    {                                                                                              \
        type r = a > b ? a : b;                                                                    \
        r = a == b ? flt(bits(a) & bits(b)) : r;                                                   \
        return a != a ? a : r;                                                                     \
    }
WF_DICT_FLT(f32, float, wf_bits32, wf_flt32)
WF_DICT_FLT(f64, double, wf_bits64, wf_flt64)
#undef WF_DICT_FLT

/* clang-format off */
#define WF_DICT_PICK(fn, a)                                                                        \
    _Generic((a), float: fn##_f32, double: fn##_f64, uint8_t: fn##_u8, int8_t: fn##_i8,            \
             int16_t: fn##_i16, int32_t: fn##_i32, int64_t: fn##_i64, uint32_t: fn##_u32,          \
             uint64_t: fn##_u64)
#define WF_DICT_PICKI(fn, a)                                                                       \
    _Generic((a), uint8_t: fn##_u8, int8_t: fn##_i8, int16_t: fn##_i16, int32_t: fn##_i32,         \
             int64_t: fn##_i64, uint32_t: fn##_u32, uint64_t: fn##_u64)
#define WF_DICT_PICKF(fn, a) _Generic((a), float: fn##f, double: fn)
/* clang-format on */
/* DIV: IEEE on floats; on integers truncating, x/0 = 0, MIN/-1 wraps. */
#define DIV(a, b) (WF_DICT_PICK(wf_div, a)((a), (b)))
#define MIN(a, b) (WF_DICT_PICK(wf_min, a)((a), (b)))
#define MAX(a, b) (WF_DICT_PICK(wf_max, a)((a), (b)))
/* Shifts: a count outside [0, width) gives 0, or the sign for right shifts of signed types. */
#define SHL(a, b) (WF_DICT_PICKI(wf_shl, a)((a), (b)))
#define SHR(a, b) (WF_DICT_PICKI(wf_shr, a)((a), (b)))

/* -- floating point only ------------------------------------------------------------------------ */
#define FMA(a, b, c) (WF_DICT_PICKF(__builtin_fma, a)((a), (b), (c)))
#define SQRT(a) (WF_DICT_PICKF(__builtin_sqrt, a)(a))
#define RINT(a) (WF_DICT_PICKF(__builtin_rint, a)(a)) /* to nearest, ties to even */
#define FLOOR(a) (WF_DICT_PICKF(__builtin_floor, a)(a))
#define CEIL(a) (WF_DICT_PICKF(__builtin_ceil, a)(a))
#define TRUNC(a) (WF_DICT_PICKF(__builtin_trunc, a)(a))
#define FABS(a) (WF_DICT_PICKF(__builtin_fabs, a)(a))
#define COPYSIGN(a, b) (WF_DICT_PICKF(__builtin_copysign, a)((a), (b)))

/* -- comparison (ordered; NE is true for NaN) and truth values ---------------------------------- */
#define LT(a, b) ((a) < (b))
#define LE(a, b) ((a) <= (b))
#define GT(a, b) ((a) > (b))
#define GE(a, b) ((a) >= (b))
#define EQ(a, b) ((a) == (b))
#define NE(a, b) ((a) != (b))
#define BAND(p, q) ((VB)((p) & (q))) /* on VB only; both sides are evaluated */
#define BOR(p, q) ((VB)((p) | (q)))
#define BXOR(p, q) ((VB)((p) ^ (q)))
#define BNOT(p) ((VB)((p) ^ 1))
#define SELECT(p, a, b) ((p) ? (a) : (b))

/* -- bit patterns: VU32 and VU64 (IAND..INOT also on integer tensors) ---------------------------- */
#define IAND(a, b) ((__typeof__(a))((a) & (b)))
#define IOR(a, b) ((__typeof__(a))((a) | (b)))
#define IXOR(a, b) ((__typeof__(a))((a) ^ (b)))
#define INOT(a) ((__typeof__(a))(~(a)))
#define SHLK(a, k) ((a) << (k)) /* k: constant in [0, width) */
#define SHRK(a, k) ((a) >> (k)) /* logical, a is VU32/VU64 */
#define SARK(a, k)                                                                                 \
    ((__typeof__(a))(_Generic((a), uint32_t : (int32_t)(a), uint64_t : (int64_t)(a)) >> (k)))
#define BITS32(x) wf_bits32(x)
#define FLT32(u) wf_flt32(u)
#define BITS64(x) wf_bits64(x)
#define FLT64(u) wf_flt64(u)
#define MULHI64(a, b) ((uint64_t)(((unsigned __int128)(a) * (b)) >> 64))
#define MULW32(a, b) ((uint64_t)(a) * (uint64_t)(b)) /* u32 x u32 -> u64 */

/* -- conversions --------------------------------------------------------------------------------- */
#define F64_OF_F32(x) ((double)(x))
#define F32_OF_F64(x) ((float)(x))
#define U64_OF_U32(u) ((uint64_t)(u))
#define U32_OF_U64(u) ((uint32_t)(u))
#define F32_OF_S32(u) ((float)(int32_t)(u)) /* the bit pattern read as signed */
#define F64_OF_S32(u) ((double)(int32_t)(u))
#define F64_OF_S64(u) ((double)(int64_t)(u))
#define S32_OF_F32(x) ((uint32_t)(int32_t)(x)) /* truncates; x must be in range */
#define S64_OF_F64(x) ((uint64_t)(int64_t)(x))

#endif
