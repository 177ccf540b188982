/*
 * eager/kernels/cast.h -- conversions between element types, one element at a time.
 *
 * wf_to_<to>_<from>(x), with from = u8 i8 i16 i32 i64 f16 bf16 f32 f64 and to = the same or bool.
 * A bool is read as u8: its values are 0 and 1.
 *
 * Invariants
 *  - to bool: x != 0 (NaN is true). Integer to integer wraps. Float to integer truncates towards zero,
 *    saturates, and NaN gives 0.
 *  - To a float type: one rounding to nearest even, whatever the source. f64, i64 and i32 go to f16 and
 *    bf16 through an f32 or f64 rounded to odd (the discarded bits leave a trace in the last bit),
 *    which makes the second rounding the only one that counts: it needs two bits more than the result, and of f64's 13 that
 *    are kept f16 has 11.
 *  - Written so that loops over them vectorise.
 */
#ifndef EAGER_KERNELS_CAST_H
#define EAGER_KERNELS_CAST_H

#include <stdint.h>
#include <string.h>

#include "jit/ir/dtype.h"

#define WF_CV __attribute__((unused)) static inline

WF_CV double wf_f64_of_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}
WF_CV uint64_t wf_bits_of_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
/* x as an f32 that rounds to f16 and bf16 as x does: 13 bits of it, the last one set if any behind them was, so many that
 * they are f32 of any size of which a half type is not 0. (By way of the f32 beside x, as f32 or not, no loop is for vectors.) */
WF_CV float wf_odd_f32_of_f64(double x)
{
    const uint64_t rest = ((uint64_t)1 << 40) - 1;
    const uint64_t u = wf_bits_of_f64(x);
    return (float)wf_f64_of_bits((u | ((u & rest) + rest)) & ~rest);
}
/* The same of integers that f32 has no bits for: 24 of them, the last one set if any behind them was. */
WF_CV float wf_odd_f32_of_i32(int32_t x)
{
    const int32_t odd = (x | ((x & 255) + 255)) & ~255, top = x >> 24;
    return (float)(((top == 0) | (top == -1)) ? x : odd);
}
/* AVX2 has no instructions for i64 and floats. Halves of 32 bits are exact, and so is all but their sum, which rounds once. */
#if defined(__AVX2__) && !defined(__AVX512DQ__)
enum { WF_I64_BY_HALVES = 1 };
#else
enum { WF_I64_BY_HALVES = 0 };
#endif
/* The upper half, its sign turned, are the last bits of what lies from 2^84 on, the lower half of what lies from 2^52 on. */
WF_CV double wf_f64_of_i64(int64_t x)
{
    const uint64_t u = (uint64_t)x;
    const double high = wf_f64_of_bits((u >> 32) ^ 0x4530000080000000u);
    const double low = wf_f64_of_bits((u & UINT32_MAX) | 0x4330000000000000u);
    return WF_I64_BY_HALVES ? (high - (0x1p84 + 0x1p63 + 0x1p52)) + low : (double)x;
}
/* x as f64, rounded to odd in units of 4096 beyond 2^53. */
WF_CV double wf_odd_f64_of_i64(int64_t x)
{
    const uint64_t top = ((uint64_t)x + ((uint64_t)1 << 53)) >> 54; /* 0: that many bits hold x */
    const int64_t odd = (x | ((x & 4095) + 4095)) & ~(int64_t)4095;
    return wf_f64_of_i64(top == 0 ? x : odd);
}
/* x, an integer, at least -2^63 and less than 2^63, so: each half is the last bits of a sum. */
WF_CV int64_t wf_i64_of_f64(double x)
{
    const double high = __builtin_floor(x * 0x1p-32);
    const double low = x - high * 0x1p32;
    return (int64_t)(wf_bits_of_f64(high + 0x1.8p52) << 32 |
                     (wf_bits_of_f64(low + 0x1p52) & UINT32_MAX));
}

/* The value as f32 (exact sources), or itself where f32 would lose. */
#define wf_from_u8(x) (x)
#define wf_from_i8(x) (x)
#define wf_from_i16(x) (x)
#define wf_from_i32(x) (x)
#define wf_from_i64(x) (x)
#define wf_from_f16(x) wf_f32_of_f16(x)
#define wf_from_bf16(x) wf_f32_of_bf16(x)
#define wf_from_f32(x) (x)
#define wf_from_f64(x) (x)

/* An f32 that rounds to f16 and bf16 as the value does. */
#define wf_half_u8(x) ((float)(x))
#define wf_half_i8(x) ((float)(x))
#define wf_half_i16(x) ((float)(x))
#define wf_half_i32(x) wf_odd_f32_of_i32(x)
#define wf_half_i64(x) wf_odd_f32_of_f64(wf_odd_f64_of_i64(x))
#define wf_half_f16(x) wf_f32_of_f16(x)
#define wf_half_bf16(x) wf_f32_of_bf16(x)
#define wf_half_f32(x) (x)
#define wf_half_f64(x) wf_odd_f32_of_f64(x)

/* Saturating truncation of a float F to T by way of the signed type W: lo and hi are the least and the
 * greatest value of F that truncates into T, hi1 the least above, max the greatest T. */
#define WF_SATURATE(F, f, T, t, W, lo, hi, hi1, max)                                               \
    WF_CV T wf_sat_##t##_##f(F x)                                                                  \
    {                                                                                              \
        const F a = x > lo ? x : lo; /* NaN too */                                                 \
        const W w = (W)(a < hi ? a : hi);                                                          \
        const T r = x >= hi1 ? (T)(max) : (T)w;                                                    \
        return x != x ? (T)0 : r;                                                                  \
    }
WF_SATURATE(float, f32, uint8_t, u8, int32_t, 0.0f, 255.0f, 256.0f, UINT8_MAX)
WF_SATURATE(float, f32, int8_t, i8, int32_t, -128.0f, 127.0f, 128.0f, INT8_MAX)
WF_SATURATE(float, f32, int16_t, i16, int32_t, -32768.0f, 32767.0f, 32768.0f, INT16_MAX)
WF_SATURATE(float, f32, int32_t, i32, int32_t, -0x1p31f, 0x1.fffffep30f, 0x1p31f, INT32_MAX)
WF_SATURATE(double, f64, uint8_t, u8, int32_t, 0.0, 255.0, 256.0, UINT8_MAX)
WF_SATURATE(double, f64, int8_t, i8, int32_t, -128.0, 127.0, 128.0, INT8_MAX)
WF_SATURATE(double, f64, int16_t, i16, int32_t, -32768.0, 32767.0, 32768.0, INT16_MAX)
WF_SATURATE(double, f64, int32_t, i32, int32_t, -0x1p31, 2147483647.0, 0x1p31, INT32_MAX)
#undef WF_SATURATE
WF_CV int64_t wf_sat_i64_f64(double x)
{
    const double a = x > -0x1p63 ? x : -0x1p63;
    const double b = a < 0x1.fffffffffffffp62 ? a : 0x1.fffffffffffffp62;
    const int64_t w = WF_I64_BY_HALVES ? wf_i64_of_f64(__builtin_trunc(b)) : (int64_t)b;
    const int64_t r = x >= 0x1p63 ? INT64_MAX : w;
    return x != x ? 0 : r;
}
WF_CV int64_t wf_sat_i64_f32(float x)
{
    return wf_sat_i64_f64((double)x);
}

#define WF_CAST_FROM_INT(S, s, to_f64)                                                             \
    WF_CV uint8_t wf_to_u8_##s(S x)                                                                \
    {                                                                                              \
        return (uint8_t)x;                                                                         \
    }                                                                                              \
    WF_CV int8_t wf_to_i8_##s(S x)                                                                 \
    {                                                                                              \
        return (int8_t)x;                                                                          \
    }                                                                                              \
    WF_CV int16_t wf_to_i16_##s(S x)                                                               \
    {                                                                                              \
        return (int16_t)x;                                                                         \
    }                                                                                              \
    WF_CV int32_t wf_to_i32_##s(S x)                                                               \
    {                                                                                              \
        return (int32_t)x;                                                                         \
    }                                                                                              \
    WF_CV int64_t wf_to_i64_##s(S x)                                                               \
    {                                                                                              \
        return (int64_t)x;                                                                         \
    }                                                                                              \
    WF_CAST_TO_FLOAT(S, s, to_f64)
#define WF_CAST_FROM_FLOAT(S, s, f)                                                                \
    WF_CV uint8_t wf_to_u8_##s(S x)                                                                \
    {                                                                                              \
        return wf_sat_u8_##f(wf_from_##s(x));                                                      \
    }                                                                                              \
    WF_CV int8_t wf_to_i8_##s(S x)                                                                 \
    {                                                                                              \
        return wf_sat_i8_##f(wf_from_##s(x));                                                      \
    }                                                                                              \
    WF_CV int16_t wf_to_i16_##s(S x)                                                               \
    {                                                                                              \
        return wf_sat_i16_##f(wf_from_##s(x));                                                     \
    }                                                                                              \
    WF_CV int32_t wf_to_i32_##s(S x)                                                               \
    {                                                                                              \
        return wf_sat_i32_##f(wf_from_##s(x));                                                     \
    }                                                                                              \
    WF_CV int64_t wf_to_i64_##s(S x)                                                               \
    {                                                                                              \
        return wf_sat_i64_##f(wf_from_##s(x));                                                     \
    }                                                                                              \
    WF_CAST_TO_FLOAT(S, s, (double))
#define WF_CAST_TO_FLOAT(S, s, to_f64)                                                             \
    WF_CV uint8_t wf_to_bool_##s(S x)                                                              \
    {                                                                                              \
        return (uint8_t)(wf_from_##s(x) != 0);                                                     \
    }                                                                                              \
    WF_CV uint16_t wf_to_f16_##s(S x)                                                              \
    {                                                                                              \
        return wf_f16_of_f32(wf_half_##s(x));                                                      \
    }                                                                                              \
    WF_CV uint16_t wf_to_bf16_##s(S x)                                                             \
    {                                                                                              \
        return wf_bf16_of_f32(wf_half_##s(x));                                                     \
    }                                                                                              \
    WF_CV float wf_to_f32_##s(S x)                                                                 \
    {                                                                                              \
        return (float)wf_from_##s(x);                                                              \
    }                                                                                              \
    WF_CV double wf_to_f64_##s(S x)                                                                \
    {                                                                                              \
        return to_f64(wf_from_##s(x));                                                             \
    }
WF_CAST_FROM_INT(uint8_t, u8, (double))
WF_CAST_FROM_INT(int8_t, i8, (double))
WF_CAST_FROM_INT(int16_t, i16, (double))
WF_CAST_FROM_INT(int32_t, i32, (double))
WF_CAST_FROM_INT(int64_t, i64, wf_f64_of_i64)
WF_CAST_FROM_FLOAT(uint16_t, f16, f32)
WF_CAST_FROM_FLOAT(uint16_t, bf16, f32)
WF_CAST_FROM_FLOAT(float, f32, f32)
WF_CAST_FROM_FLOAT(double, f64, f64)
#undef WF_CAST_FROM_INT
#undef WF_CAST_FROM_FLOAT
#undef WF_CAST_TO_FLOAT

#endif
