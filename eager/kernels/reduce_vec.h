/*
 * eager/kernels/reduce_vec.h -- registers of the instruction set this translation unit is built for.
 *
 * 64 lanes are NA = 64 / VN registers of VN values. Only operations whose result does not depend on
 * the register width are offered, so every instruction set gives the same bits.
 */
#ifndef EAGER_KERNELS_REDUCE_VEC_H
#define EAGER_KERNELS_REDUCE_VEC_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "eager/kernels/fold4.h"
#include "eager/kernels/loops.h"

#if defined(__AVX512F__)
#define WF_VBYTES 64
#elif defined(__AVX2__)
#define WF_VBYTES 32
#else
#define WF_VBYTES 16
#endif

#ifdef __OPTIMIZE_SIZE__ /* the copy for any machine */
#define WF_UNROLL _Pragma("GCC unroll 1")
#define WF_INLINE __attribute__((unused)) static
#else
#define WF_UNROLL _Pragma("GCC unroll 16")
#define WF_INLINE __attribute__((always_inline, unused)) static inline
#endif

#define WF_ROLLED _Pragma("GCC unroll 1")

/* Chains of compares and blends of which one alone waits for itself. clang's alone are kept apart: it does not unroll here. */
#if defined(__clang__) && !defined(__OPTIMIZE_SIZE__)
#define WF_INTERLEAVE _Pragma("clang loop interleave_count(4)")
#else
#define WF_INTERLEAVE
#endif

typedef float wf_vec_f32 __attribute__((vector_size(WF_VBYTES)));
typedef double wf_vec_f64 __attribute__((vector_size(WF_VBYTES)));
typedef uint64_t wf_vec_i64 __attribute__((vector_size(WF_VBYTES)));
typedef float wf_mem_f32 __attribute__((vector_size(WF_VBYTES), aligned(4), may_alias));
typedef double wf_mem_f64 __attribute__((vector_size(WF_VBYTES), aligned(8), may_alias));
typedef uint64_t wf_mem_i64 __attribute__((vector_size(WF_VBYTES), aligned(8), may_alias));

#if WF_VBYTES == 64
WF_FOLD4_16(wf_fold4_f32, wf_vec_f32)
WF_FOLD4_8(wf_fold4_f64, wf_vec_f64)
#elif WF_VBYTES == 32
WF_FOLD4_8(wf_fold4_f32, wf_vec_f32)
#endif

WF_INLINE wf_vec_f32 wf_all_f32(float x)
{
    return x - (wf_vec_f32){0}; /* of -0, too */
}
WF_INLINE wf_vec_f64 wf_all_f64(double x)
{
    return x - (wf_vec_f64){0};
}
WF_INLINE wf_vec_i64 wf_all_i64(uint64_t x)
{
    return x - (wf_vec_i64){0};
}

/* WF_PART: the `left` elements at p, fewer than a register has, and zeros; nothing behind them is read. WF_ONLY: that many lanes
 * of v, the others of `other`. */
#if WF_VBYTES == 64
#define WF_FIRST(left) ((1u << (left)) - 1)
#define WF_PART_f32(p, left) ((wf_vec_f32)_mm512_maskz_loadu_ps((__mmask16)WF_FIRST(left), (p)))
#define WF_PART_f64(p, left) ((wf_vec_f64)_mm512_maskz_loadu_pd((__mmask8)WF_FIRST(left), (p)))
#define WF_PART_i64(p, left) ((wf_vec_i64)_mm512_maskz_loadu_epi64((__mmask8)WF_FIRST(left), (p)))
#define WF_ONLY_f32(left, v, other)                                                                \
    ((wf_vec_f32)_mm512_mask_mov_ps((__m512)(other), (__mmask16)WF_FIRST(left), (__m512)(v)))
#define WF_ONLY_f64(left, v, other)                                                                \
    ((wf_vec_f64)_mm512_mask_mov_pd((__m512d)(other), (__mmask8)WF_FIRST(left), (__m512d)(v)))
#define WF_ONLY_i64(left, v, other)                                                                \
    ((wf_vec_i64)_mm512_mask_mov_epi64((__m512i)(other), (__mmask8)WF_FIRST(left), (__m512i)(v)))
#else
/* All bits of the first `bytes` bytes. */
WF_INLINE wf_vec_i64 wf_first(int64_t bytes)
{
    static const int64_t ones[2 * WF_VBYTES / 8] = {
        -1,
        -1,
#if WF_VBYTES == 32
        -1,
        -1
#endif
    };
    wf_vec_i64 m;
    memcpy(&m, (const char *)ones + WF_VBYTES - bytes, sizeof m);
    return m;
}
#define WF_ONLY(T, SFX)                                                                            \
    WF_INLINE wf_vec_##SFX WF_ONLY_##SFX(int64_t left, wf_vec_##SFX v, wf_vec_##SFX other)         \
    {                                                                                              \
        const wf_vec_i64 m = wf_first(left * (int64_t)sizeof(T));                                  \
        return (wf_vec_##SFX)(((wf_vec_i64)v & m) | ((wf_vec_i64)other & ~m));                     \
    }
WF_ONLY(float, f32)
WF_ONLY(double, f64)
WF_ONLY(uint64_t, i64)
#undef WF_ONLY
#if WF_VBYTES == 32
#define WF_PART_f32(p, left) ((wf_vec_f32)_mm256_maskload_ps((p), (__m256i)wf_first(4 * (left))))
#define WF_PART_f64(p, left) ((wf_vec_f64)_mm256_maskload_pd((p), (__m256i)wf_first(8 * (left))))
#define WF_PART_i64(p, left)                                                                       \
    ((wf_vec_i64)_mm256_maskload_epi64((const void *)(p), (__m256i)wf_first(8 * (left))))
#else
#define WF_PART(T, SFX)                                                                            \
    WF_INLINE wf_vec_##SFX WF_PART_##SFX(const T *p, int64_t left)                                 \
    {                                                                                              \
        wf_vec_##SFX v = {0};                                                                      \
        for (int64_t i = 0; i < left; i++) {                                                       \
            v[i] = p[i];                                                                           \
        }                                                                                          \
        return v;                                                                                  \
    }
WF_PART(float, f32)
WF_PART(double, f64)
WF_PART(uint64_t, i64)
#undef WF_PART
#endif
#endif

/* max/min of one register, and a mask that remembers whether a NaN was seen. With a NaN operand the
 * result lane is unspecified: the mask decides. */
#if WF_VBYTES == 64
typedef __mmask16 wf_nan_f32;
typedef __mmask8 wf_nan_f64;
#define WF_VMAX_f32(a, b) ((wf_vec_f32)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define WF_VMIN_f32(a, b) ((wf_vec_f32)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define WF_VMAX_f64(a, b) ((wf_vec_f64)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define WF_VMIN_f64(a, b) ((wf_vec_f64)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#define WF_NAN_f32(m, a, b)                                                                        \
    ((wf_nan_f32)((m) | _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_UNORD_Q)))
#define WF_NAN_f64(m, a, b)                                                                        \
    ((wf_nan_f64)((m) | _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_UNORD_Q)))
#define WF_NAN0_f32 0
#define WF_NAN0_f64 0
/* Ordered max/min: -0 < +0 (sign control 1: of the chosen operand); NaN lanes are put in by the mask. */
#define WF_VMAX_ORDERED_f32(a, b) ((wf_vec_f32)_mm512_range_ps((__m512)(a), (__m512)(b), 5))
#define WF_VMIN_ORDERED_f32(a, b) ((wf_vec_f32)_mm512_range_ps((__m512)(a), (__m512)(b), 4))
#define WF_VMAX_ORDERED_f64(a, b) ((wf_vec_f64)_mm512_range_pd((__m512d)(a), (__m512d)(b), 5))
#define WF_VMIN_ORDERED_f64(a, b) ((wf_vec_f64)_mm512_range_pd((__m512d)(a), (__m512d)(b), 4))
#define WF_PUTNAN_f32(m, a)                                                                        \
    ((wf_vec_f32)_mm512_mask_mov_ps((__m512)(a), (m), _mm512_set1_ps(__builtin_nanf(""))))
#define WF_PUTNAN_f64(m, a)                                                                        \
    ((wf_vec_f64)_mm512_mask_mov_pd((__m512d)(a), (m), _mm512_set1_pd(__builtin_nan(""))))
#define WF_ANYNAN_f32(m) ((m) != 0)
#define WF_ANYNAN_f64(m) ((m) != 0)
#elif WF_VBYTES == 32
typedef __m256 wf_nan_f32;
typedef __m256d wf_nan_f64;
#define WF_VMAX_f32(a, b) ((wf_vec_f32)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define WF_VMIN_f32(a, b) ((wf_vec_f32)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define WF_VMAX_f64(a, b) ((wf_vec_f64)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define WF_VMIN_f64(a, b) ((wf_vec_f64)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define WF_NAN_f32(m, a, b) _mm256_or_ps((m), _mm256_cmp_ps((__m256)(a), (__m256)(b), _CMP_UNORD_Q))
#define WF_NAN_f64(m, a, b)                                                                        \
    _mm256_or_pd((m), _mm256_cmp_pd((__m256d)(a), (__m256d)(b), _CMP_UNORD_Q))
#define WF_NAN0_f32 _mm256_setzero_ps()
#define WF_NAN0_f64 _mm256_setzero_pd()
#define WF_ANYNAN_f32(m) (_mm256_movemask_ps(m) != 0)
#define WF_ANYNAN_f64(m) (_mm256_movemask_pd(m) != 0)
#else
typedef __m128 wf_nan_f32;
typedef __m128d wf_nan_f64;
#define WF_VMAX_f32(a, b) ((wf_vec_f32)_mm_max_ps((__m128)(a), (__m128)(b)))
#define WF_VMIN_f32(a, b) ((wf_vec_f32)_mm_min_ps((__m128)(a), (__m128)(b)))
#define WF_VMAX_f64(a, b) ((wf_vec_f64)_mm_max_pd((__m128d)(a), (__m128d)(b)))
#define WF_VMIN_f64(a, b) ((wf_vec_f64)_mm_min_pd((__m128d)(a), (__m128d)(b)))
#define WF_NAN_f32(m, a, b) _mm_or_ps((m), _mm_cmpunord_ps((__m128)(a), (__m128)(b)))
#define WF_NAN_f64(m, a, b) _mm_or_pd((m), _mm_cmpunord_pd((__m128d)(a), (__m128d)(b)))
#define WF_NAN0_f32 _mm_setzero_ps()
#define WF_NAN0_f64 _mm_setzero_pd()
#define WF_ANYNAN_f32(m) (_mm_movemask_ps(m) != 0)
#define WF_ANYNAN_f64(m) (_mm_movemask_pd(m) != 0)
#endif

/* *p = v past the caches; p is aligned to the register. */
#if WF_VBYTES == 64
#define WF_STREAM_f32(p, v) _mm512_stream_ps((void *)(p), (__m512)(v))
#define WF_STREAM_f64(p, v) _mm512_stream_pd((void *)(p), (__m512d)(v))
#elif WF_VBYTES == 32
#define WF_STREAM_f32(p, v) _mm256_stream_ps((void *)(p), (__m256)(v))
#define WF_STREAM_f64(p, v) _mm256_stream_pd((void *)(p), (__m256d)(v))
#else
#define WF_STREAM_f32(p, v) _mm_stream_ps((void *)(p), (__m128)(v))
#define WF_STREAM_f64(p, v) _mm_stream_pd((void *)(p), (__m128d)(v))
#endif

#define WF_JOIN2(a, b) a##_##b
#define WF_JOIN(a, b) WF_JOIN2(a, b)

#endif
