/*
 * eager/kernels/map_x4.inc.c -- the rows of map_x4.h four registers at a time. AVX2 has half as many, which
 * hold two. AVX-512 has some of them from bf16 to bf16, too.
 */
#if defined(__AVX512F__)
#define WF_REGISTERS 4
#else
#define WF_REGISTERS 2
#endif
#include <string.h>

#include "eager/kernels/map_x4_rows.h"

/* -- bf16 to bf16 ------------------------------------------------------------------------------------ */
#if defined(__AVX512BW__)
/* Two registers of bf16 as four of f32: even and odd elements of each. */
WF_INLINE wf_x4 load_halves(const uint16_t *p)
{
    const __m512i upper = _mm512_set1_epi32((int)0xFFFF0000);
    const __m512i u = _mm512_loadu_si512(p), v = _mm512_loadu_si512(p + 32);
    return (wf_x4){(wf_vec_f32)_mm512_slli_epi32(u, 16), (wf_vec_f32)_mm512_and_si512(u, upper),
                   (wf_vec_f32)_mm512_slli_epi32(v, 16), (wf_vec_f32)_mm512_and_si512(v, upper)};
}
/* Rounded to bf16, in the upper halves. NaNs must not round to infinity; they are seen together. */
WF_INLINE __m512i round_half(wf_vec_f32 x, bool nan)
{
    const __m512i u = (__m512i)x;
    __m512i a = _mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF));
    a = _mm512_mask_add_epi32(a, _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000)), a,
                              _mm512_set1_epi32(1));
    if (__builtin_expect(nan, 0)) {
        const __mmask16 is = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
        a = _mm512_mask_or_epi32(a, is, u, _mm512_set1_epi32(0x400000));
    }
    return a;
}
WF_INLINE void store_halves(uint16_t *p, wf_x4 y)
{
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)y.a, (__m512)y.b, _CMP_UNORD_Q) |
                          _mm512_cmp_ps_mask((__m512)y.c, (__m512)y.d, _CMP_UNORD_Q);
    const __m512i a = round_half(y.a, nan), b = round_half(y.b, nan);
    const __m512i c = round_half(y.c, nan), d = round_half(y.d, nan);
    const __mmask32 odd = 0xAAAAAAAA;
    _mm512_storeu_si512(p, _mm512_mask_blend_epi16(odd, _mm512_srli_epi32(a, 16), b));
    _mm512_storeu_si512(p + 32, _mm512_mask_blend_epi16(odd, _mm512_srli_epi32(c, 16), d));
}

/* What is left behind whole values, and a broadcast operand, is one more value in memory of its own. */
#define WF_X4_HALF_KERNEL(NAME, expr)                                                              \
    static void half_##NAME(void *dst, const void *const *src, size_t n, unsigned bcast)           \
    {                                                                                              \
        uint16_t *d = dst;                                                                         \
        const uint16_t *s = src[0];                                                                \
        _Alignas(64) uint16_t last[WF_X4] = {0};                                                   \
        const size_t whole = bcast & 1 ? 0 : n / WF_X4 * WF_X4;                                    \
        const size_t left = n - whole;                                                             \
        if (left)                                                                                  \
            memcpy(last, s + whole, (bcast & 1 ? 1 : left) * sizeof *s);                           \
        for (size_t i = 0; i < whole + (left ? WF_X4 : 0); i += WF_X4) {                           \
            const wf_x4 x = load_halves(i < whole ? s + i : last);                                 \
            store_halves(i < whole ? d + i : last, expr);                                          \
        }                                                                                          \
        for (size_t i = whole; i < n; i++)                                                         \
            d[i] = last[bcast & 1 ? 0 : i - whole];                                                \
    }
#undef UNARY
#define WF_KEEP_HALF(NAME) WF_CAT(WF_KEEP_, WF_HALF_ON_X4(NAME))
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_KEEP_HALF(NAME)(WF_X4_HALF_KERNEL(NAME, expr))
#include "jit/ir/ops.def"

wf_map_fn WF_SYM(wf_map_half)(wf_op op)
{
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_KEEP_HALF(NAME)(if (op == WF_OP_##NAME) return half_##NAME;)
#include "jit/ir/ops.def"
    return NULL;
}
#else
wf_map_fn WF_SYM(wf_map_half)(wf_op op)
{
    (void)op;
    return NULL;
}
#endif
