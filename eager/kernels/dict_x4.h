/*
 * eager/kernels/dict_x4.h -- the dictionary that makes the row language work on four registers of f32.
 *
 * The names of jit/ir/dict_c.h that f32 bodies without f64 use (jit/ir/math_f32_pure.h), with a value
 * being four registers (x4.h). A file includes this one or dict_c.h, not both. Empty where registers
 * have no FMA.
 *
 * Invariant: every name does to each lane what it does in dict_c.h, so the bits are the same.
 */
#ifndef EAGER_KERNELS_DICT_X4_H
#define EAGER_KERNELS_DICT_X4_H

#include "eager/kernels/reduce_vec.h"

#include "eager/kernels/x4.h"

#ifdef WF_HAS_X4
typedef struct wf_x4u {
    WF_X4_MEMBERS(wf_vec_u32);
} wf_x4u;

#define VF32 wf_x4
#define VU32 wf_x4u
#define VB wf_x4b
#define KFUN(ret, name, ...)                                                                       \
    __attribute__((unused, always_inline)) static inline ret name(__VA_ARGS__)
#define CALL(name, ...) name(__VA_ARGS__)

WF_INLINE wf_x4u wf_x4u_all(uint32_t c)
{
    const wf_vec_u32 v = (wf_vec_u32){0} + c;
    return (wf_x4u){WF_X4_DO0(v)};
}
#define KF32(c) wf_x4_all((float)(c))
#define KU32(c) wf_x4u_all((uint32_t)(c))

/* -- truth values: a mask register, or all bits of a lane -------------------------------------------- */
#if WF_VBYTES == 64
typedef __mmask16 wf_vec_b;
#define WF_V_CMP(a, b, how) _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), how)
#define WF_V_EQU(a, b) _mm512_cmpeq_epi32_mask((__m512i)(a), (__m512i)(b))
#define WF_V_NEU(a, b) _mm512_cmpneq_epi32_mask((__m512i)(a), (__m512i)(b))
#define WF_V_PICK(p, a, b) ((wf_vec_f32)_mm512_mask_blend_ps(p, (__m512)(b), (__m512)(a)))
#define WF_V_NOT(p) ((wf_vec_b) ~(p))
#define WF_V_BAND(p, q) ((wf_vec_b)((p) & (q)))
#define WF_V_BOR(p, q) ((wf_vec_b)((p) | (q)))
#else
typedef wf_vec_u32 wf_vec_b;
#define WF_V_CMP(a, b, how) ((wf_vec_u32)_mm256_cmp_ps((__m256)(a), (__m256)(b), how))
#define WF_V_EQU(a, b) ((wf_vec_u32)((a) == (b)))
#define WF_V_NEU(a, b) ((wf_vec_u32)((a) != (b)))
#define WF_V_PICK(p, a, b) ((wf_vec_f32)_mm256_blendv_ps((__m256)(b), (__m256)(a), (__m256)(p)))
#define WF_V_NOT(p) (~(p))
#define WF_V_BAND(p, q) ((p) & (q))
#define WF_V_BOR(p, q) ((p) | (q))
#endif
typedef struct wf_x4b {
    WF_X4_MEMBERS(wf_vec_b);
} wf_x4b;

#define WF_V_LT(a, b) WF_V_CMP(a, b, _CMP_LT_OQ)
#define WF_V_LE(a, b) WF_V_CMP(a, b, _CMP_LE_OQ)
#define WF_V_EQ(a, b) WF_V_CMP(a, b, _CMP_EQ_OQ)
#define WF_V_NE(a, b) WF_V_CMP(a, b, _CMP_NEQ_UQ)
WF_X4_FN2(wf_x4b, wf_x4_lt, wf_x4, wf_x4, WF_V_LT)
WF_X4_FN2(wf_x4b, wf_x4_le, wf_x4, wf_x4, WF_V_LE)
WF_X4_FN2(wf_x4b, wf_x4_eq, wf_x4, wf_x4, WF_V_EQ)
WF_X4_FN2(wf_x4b, wf_x4_ne, wf_x4, wf_x4, WF_V_NE)
WF_X4_FN2(wf_x4b, wf_x4u_eq, wf_x4u, wf_x4u, WF_V_EQU)
WF_X4_FN2(wf_x4b, wf_x4u_ne, wf_x4u, wf_x4u, WF_V_NEU)
WF_X4_FN1(wf_x4b, wf_x4b_not, wf_x4b, WF_V_NOT)
WF_X4_FN2(wf_x4b, wf_x4b_and, wf_x4b, wf_x4b, WF_V_BAND)
WF_X4_FN2(wf_x4b, wf_x4b_or, wf_x4b, wf_x4b, WF_V_BOR)
WF_X4_FN3(wf_x4, wf_x4_pick, wf_x4b, wf_x4, wf_x4, WF_V_PICK)
/* clang-format off */
#define LT(x, y) wf_x4_lt(x, y)
#define LE(x, y) wf_x4_le(x, y)
#define GT(x, y) wf_x4_lt(y, x)
#define GE(x, y) wf_x4_le(y, x)
#define EQ(x, y) (_Generic((x), wf_x4: wf_x4_eq, wf_x4u: wf_x4u_eq)((x), (y)))
#define NE(x, y) (_Generic((x), wf_x4: wf_x4_ne, wf_x4u: wf_x4u_ne)((x), (y)))
#define BAND(p, q) wf_x4b_and(p, q)
#define BOR(p, q) wf_x4b_or(p, q)
#define BNOT(p) wf_x4b_not(p)
#define SELECT(p, x, y) wf_x4_pick(p, x, y)

/* -- arithmetic ------------------------------------------------------------------------------------------ */
#define WF_V_DIV(a, b) ((a) / (b))
#define WF_V_NEG(a) (-(a))
#define WF_V_AND(a, b) ((a) & (b))
#define WF_V_OR(a, b) ((a) | (b))
#define WF_V_XOR(a, b) ((a) ^ (b))
#define WF_V_ABS(a) ((wf_vec_f32)((wf_vec_u32)(a) & 0x7FFFFFFFu))
#define WF_V_SIGN(a, b)                                                                            \
    ((wf_vec_f32)(((wf_vec_u32)(a) & 0x7FFFFFFFu) | ((wf_vec_u32)(b) & 0x80000000u)))
#define WF_V_TO_F32(u) __builtin_convertvector((wf_vec_s32)(u), wf_vec_f32)
typedef int32_t wf_vec_s32 __attribute__((vector_size(WF_VBYTES)));
WF_X4_FN2(wf_x4, wf_x4_div, wf_x4, wf_x4, WF_V_DIV)
WF_X4_FN1(wf_x4, wf_x4_neg, wf_x4, WF_V_NEG)
WF_X4_FN1(wf_x4, wf_x4_abs, wf_x4, WF_V_ABS)
WF_X4_FN2(wf_x4, wf_x4_sign, wf_x4, wf_x4, WF_V_SIGN)
WF_X4_FN2(wf_x4u, wf_x4u_add, wf_x4u, wf_x4u, WF_V_ADD)
WF_X4_FN2(wf_x4u, wf_x4u_sub, wf_x4u, wf_x4u, WF_V_SUB)
WF_X4_FN2(wf_x4u, wf_x4u_and, wf_x4u, wf_x4u, WF_V_AND)
WF_X4_FN2(wf_x4u, wf_x4u_or, wf_x4u, wf_x4u, WF_V_OR)
WF_X4_FN2(wf_x4u, wf_x4u_xor, wf_x4u, wf_x4u, WF_V_XOR)
WF_X4_FN1(wf_x4, wf_x4_of_s32, wf_x4u, WF_V_TO_F32)
#define ADD(x, y) (_Generic((x), wf_x4: wf_x4_add, wf_x4u: wf_x4u_add)((x), (y)))
#define SUB(x, y) (_Generic((x), wf_x4: wf_x4_sub, wf_x4u: wf_x4u_sub)((x), (y)))
/* clang-format on */
#define MUL(x, y) wf_x4_mul(x, y)
#define DIV(x, y) wf_x4_div(x, y)
#define FMA(x, y, z) wf_x4_fma(x, y, z)
#define NEG(x) wf_x4_neg(x)
#define FABS(x) wf_x4_abs(x)
#define COPYSIGN(x, y) wf_x4_sign(x, y)
#define F32_OF_S32(u) wf_x4_of_s32(u)

/* -- bit patterns ---------------------------------------------------------------------------------------- */
#define IAND(x, y) wf_x4u_and(x, y)
#define IOR(x, y) wf_x4u_or(x, y)
#define IXOR(x, y) wf_x4u_xor(x, y)
#define WF_V_SHL(u, k) ((u) << (k))
#define WF_V_SHR(u, k) ((u) >> (k))
#define WF_V_SAR(u, k) ((wf_vec_u32)((wf_vec_s32)(u) >> (k)))
#define WF_X4_SHIFT(name, OP)                                                                      \
    WF_INLINE wf_x4u name(wf_x4u x, int k)                                                         \
    {                                                                                              \
        return (wf_x4u){WF_X4_SHIFTED(OP)};                                                        \
    }
WF_X4_SHIFT(wf_x4u_shl, WF_V_SHL)
WF_X4_SHIFT(wf_x4u_shr, WF_V_SHR)
WF_X4_SHIFT(wf_x4u_sar, WF_V_SAR)
#define SHLK(x, k) wf_x4u_shl(x, k)
#define SHRK(x, k) wf_x4u_shr(x, k)
#define SARK(x, k) wf_x4u_sar(x, k)
#define WF_V_BITS(a) ((wf_vec_u32)(a))
#define WF_V_FLT(a) ((wf_vec_f32)(a))
WF_X4_FN1(wf_x4u, wf_x4_bits, wf_x4, WF_V_BITS)
WF_X4_FN1(wf_x4, wf_x4u_flt, wf_x4u, WF_V_FLT)
#define BITS32(x) wf_x4_bits(x)
#define FLT32(u) wf_x4u_flt(u)

/* -- several steps in one (jit/ir/math_f32_pure.h) ----------------------------------------------------- */
#define MATH_ATMOST32(x, c) wf_x4_min(c, x)
#define MATH_ATLEAST32(x, c) wf_x4_max(c, x)
#if WF_VBYTES == 64
WF_X4_FN2(wf_x4, wf_x4_scale, wf_x4, wf_x4, WF_V_SCALE)
#define MATH_SPLIT32(t, n, s1, s2) (*(s1) = *(s2) = (n))
#define MATH_SCALE32(x, s1, s2) ((void)(s2), wf_x4_scale(x, s1)) /* rounds once, too */
#endif

#endif
#endif
