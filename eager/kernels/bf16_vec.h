/*
 * eager/kernels/bf16_vec.h -- bf16 in registers of AVX-512: 32 of them are the even and the odd ones as f32.
 *
 * No lane moves, so a step each way is all that an elementwise kernel pays for them. Rounding is that of wf_bf16_of_f32.
 */
#ifndef EAGER_KERNELS_BF16_VEC_H
#define EAGER_KERNELS_BF16_VEC_H

#if defined(__AVX512BW__)
#include <immintrin.h>
#include <stdbool.h>

__attribute__((always_inline, unused)) static inline __m512 wf_bf16_even(__m512i u)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}
__attribute__((always_inline, unused)) static inline __m512 wf_bf16_odd(__m512i u)
{
    return _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32((int)0xFFFF0000)));
}
/* Rounded, in the upper halves; nan: some lane may be one, which must not round to infinity. */
__attribute__((always_inline, unused)) static inline __m512i wf_bf16_round(__m512 x, bool nan)
{
    const __m512i u = _mm512_castps_si512(x);
    __m512i a = _mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF));
    a = _mm512_mask_add_epi32(a, _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000)), a,
                              _mm512_set1_epi32(1));
    if (__builtin_expect(nan, 0)) {
        const __mmask16 is = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        a = _mm512_mask_or_epi32(a, is, u, _mm512_set1_epi32(0x400000));
    }
    return a;
}
/* 32 bf16 of the even and the odd ones. */
__attribute__((always_inline, unused)) static inline __m512i wf_bf16_of(__m512 even, __m512 odd)
{
    const bool nan = _mm512_cmp_ps_mask(even, odd, _CMP_UNORD_Q) != 0;
    const __m512i a = wf_bf16_round(even, nan), b = wf_bf16_round(odd, nan);
    return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(a, 16), b);
}
#endif
#endif
