/*
 * jit/ir/dtype.h -- element types, their sizes and the promotion lattice.
 *
 * The public enumerators are those of include/weft/core.h; tables here are indexed by them with
 * designated initialisers only. f16 and bf16 are storage types: arithmetic on them runs in f32 and
 * rounds once to nearest even when a public row stores its result.
 */
#ifndef JIT_IR_DTYPE_H
#define JIT_IR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "weft/core.h"

enum { WF_MAX_RANK = WEFT_MAX_RANK, WF_NDTYPE = WEFT_DTYPE_COUNT };

/* Bit masks of dtype sets, used by the columns of ops.def. */
#define WF_BIT(dt) (1u << (dt))
#define WF_DT_B WF_BIT(WEFT_BOOL)
#define WF_DT_I                                                                                    \
    (WF_BIT(WEFT_U8) | WF_BIT(WEFT_I8) | WF_BIT(WEFT_I16) | WF_BIT(WEFT_I32) | WF_BIT(WEFT_I64))
#define WF_DT_F (WF_BIT(WEFT_F16) | WF_BIT(WEFT_BF16) | WF_BIT(WEFT_F32) | WF_BIT(WEFT_F64))
#define WF_DT_FI (WF_DT_F | WF_DT_I)
#define WF_DT_BI (WF_DT_B | WF_DT_I)
#define WF_DT_ALL (WF_DT_FI | WF_DT_B)

/* Size of one element in bytes; 0 outside the enum. Nibble dt of the constant is type dt's size. */
static inline size_t wf_dtype_size(int dt)
{
    const uint64_t sizes = UINT64_C(0x84228421110);
    return dt > 0 && dt < WEFT_DTYPE_COUNT ? (size_t)(sizes >> (4 * dt)) & 15u : 0;
}
/* "f32", "bool", ... */
const char *wf_dtype_name(int dt);
/* Parses a name of wf_dtype_name; -1 if unknown. n = length of s. */
int wf_dtype_parse(const char *s, size_t n);
/* The type arithmetic runs in: f32 for f16 and bf16, itself otherwise. */
static inline int wf_dtype_compute(int dt)
{
    return dt == WEFT_F16 || dt == WEFT_BF16 ? WEFT_F32 : dt;
}
/* Join of two strong types in the lattice of docs/dtypes.md; total, commutative, associative. */
int wf_dtype_promote(int a, int b);
/* Kind order for weak scalars: 0 bool, 1 integer, 2 float. */
static inline int wf_dtype_kind(int dt)
{
    const unsigned bit = dt > 0 && dt < WEFT_DTYPE_COUNT ? WF_BIT(dt) : 0;
    return bit & WF_DT_F ? 2 : bit & WF_DT_I ? 1 : 0;
}

/* Storage conversions, round to nearest even; NaN stays NaN (quiet), overflow gives inf. */
static inline float wf_f32_of_bf16(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)h << 16};
    return v.f;
}
static inline uint16_t wf_bf16_of_f32(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = x};
    uint32_t rounded = (v.u + 0x7FFFu + ((v.u >> 16) & 1u)) >> 16;
    uint32_t quiet = (v.u >> 16) | 0x40u;
    return (uint16_t)((v.u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}
/* Branch-free so that loops over them vectorise; exact for all 65536 inputs / correctly rounded. */
static inline float wf_f32_of_f16(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v, magic = {.u = 113u << 23};
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t bits = (uint32_t)(h & 0x7FFFu) << 13;
    uint32_t exp = bits & (0x1Fu << 23);
    bits += (127u - 15u) << 23;
    uint32_t special = bits + ((128u - 16u) << 23); /* inf and NaN */
    v.u = bits + (1u << 23);
    v.f -= magic.f; /* subnormal: renormalise exactly */
    uint32_t sub = v.u;
    v.u = (exp == (0x1Fu << 23) ? special : exp == 0 ? sub : bits) | sign;
    return v.f;
}
static inline uint16_t wf_f16_of_f32(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = x}, sub, denorm = {.u = ((127u - 15u) + (23u - 10u) + 1u) << 23};
    uint32_t sign = v.u & 0x80000000u;
    uint32_t a = v.u ^ sign;
    uint32_t nan_or_inf = a > 0x7F800000u ? 0x7E00u : 0x7C00u;
    sub.u = a;
    sub.f += denorm.f; /* rounds to the subnormal grid in hardware */
    uint32_t subnormal = sub.u - denorm.u;
    uint32_t odd = (a >> 13) & 1u;
    uint32_t normal = (a + ((uint32_t)(15 - 127) << 23) + 0xFFFu + odd) >> 13;
    uint32_t r = a >= ((127u + 16u) << 23) ? nan_or_inf : a < (113u << 23) ? subnormal : normal;
    return (uint16_t)(r | (sign >> 16));
}

/* Element i of a float type, and the way back, rounded once from f32: one at a time, for what is seldom. */
static inline double wf_float_load(const void *p, int dtype, int64_t i)
{
    switch (dtype) {
    case WEFT_F64:
        return ((const double *)p)[i];
    case WEFT_F32:
        return ((const float *)p)[i];
    case WEFT_BF16:
        return wf_f32_of_bf16(((const uint16_t *)p)[i]);
    default:
        return wf_f32_of_f16(((const uint16_t *)p)[i]);
    }
}

static inline void wf_float_put(void *p, int dtype, int64_t i, double v)
{
    switch (dtype) {
    case WEFT_F64:
        ((double *)p)[i] = v;
        break;
    case WEFT_F32:
        ((float *)p)[i] = (float)v;
        break;
    case WEFT_BF16:
        ((uint16_t *)p)[i] = wf_bf16_of_f32((float)v);
        break;
    default:
        ((uint16_t *)p)[i] = wf_f16_of_f32((float)v);
    }
}

/* Integers that order like the values, NaN greatest, -0 equal to +0: comparing and selecting them is
 * two cycles where floats would need a chain of compares and masks (or mispredicted branches). */
static inline int32_t wf_key_f32(float x)
{
    const float y = x + 0.0f; /* -0 becomes +0 */
    int32_t u;
    memcpy(&u, &y, sizeof u);
    const int32_t key = u ^ ((u >> 31) & INT32_MAX);
    return y != y ? INT32_MAX : key;
}
static inline int64_t wf_key_f64(double x)
{
    const double y = x + 0.0;
    int64_t u;
    memcpy(&u, &y, sizeof u);
    const int64_t key = u ^ ((u >> 63) & INT64_MAX);
    return y != y ? INT64_MAX : key;
}

#endif
