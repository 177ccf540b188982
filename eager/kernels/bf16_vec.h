/*
 * eager/kernels/bf16_vec.h -- bf16 in registers of AVX-512 and AVX2: a register of them is the even and the odd ones as f32.
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
#elif defined(__AVX2__)
#include <immintrin.h>

__attribute__((always_inline, unused)) static inline __m256 wf_bf16_even(__m256i u)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}
__attribute__((always_inline, unused)) static inline __m256 wf_bf16_odd(__m256i u)
{
    return _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32((int)0xFFFF0000)));
}
/* Lower and upper halves of f32: what the lower ones carry, a mean's highest bit, is added to the upper ones. NaNs, which
 * must not round to infinity, are put in where `nan` is set. */
__attribute__((always_inline, unused)) static inline __m256i wf_bf16_round(__m256i low,
                                                                           __m256i high)
{
    const __m256i half =
        _mm256_or_si256(_mm256_and_si256(high, _mm256_set1_epi16(1)), _mm256_set1_epi16(0x7FFE));
    return _mm256_add_epi16(high, _mm256_srli_epi16(_mm256_avg_epu16(low, half), 15));
}
__attribute__((always_inline, unused)) static inline __m256i
wf_bf16_with_nan(__m256i r, __m256i high, __m256i nan)
{
    return _mm256_blendv_epi8(r, _mm256_or_si256(high, _mm256_set1_epi16(0x40)), nan);
}
/* 16 bf16 of the even and the odd ones. */
__attribute__((always_inline, unused)) static inline __m256i wf_bf16_of(__m256 even, __m256 odd)
{
    const __m256i u = _mm256_castps_si256(even), v = _mm256_castps_si256(odd);
    const __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(u, 16), v, 0xAA);
    const __m256i r = wf_bf16_round(_mm256_blend_epi16(u, _mm256_slli_epi32(v, 16), 0xAA), high);
    if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(even, odd, _CMP_UNORD_Q)) == 0, 1))
        return r;
    const __m256i e = _mm256_castps_si256(_mm256_cmp_ps(even, even, _CMP_UNORD_Q));
    const __m256i o = _mm256_castps_si256(_mm256_cmp_ps(odd, odd, _CMP_UNORD_Q));
    return wf_bf16_with_nan(r, high, _mm256_blend_epi16(e, o, 0xAA));
}
#endif
#endif
