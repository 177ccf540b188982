/*
 * eager/kernels/gemm_simd.inc.h -- vectors of the instruction set that a product kernel is compiled for.
 */
#if defined(__AVX2__)
#include <immintrin.h>
#else
#include <emmintrin.h>
#endif

#include "jit/ir/dtype.h"

#define WF_PASTE2(a, b) a##_##b
#define WF_PASTE(a, b) WF_PASTE2(a, b)

#if defined(__OPTIMIZE_SIZE__) /* the copy for any machine */
#define WF_UNROLL _Pragma("GCC unroll 1")
#elif defined(__clang__)
#define WF_UNROLL _Pragma("clang loop unroll(full)")
#else
#define WF_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__clang__)
#define WF_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define WF_ROLLED _Pragma("GCC unroll 1")
#endif

#if defined(__AVX512F__)
typedef __m512 vec_f32;
typedef __m512d vec_f64;
enum { VL_F32 = 16 };
#define MR 12
#define FMA_F32 _mm512_fmadd_ps
#define LOAD_F32(p) _mm512_loadu_ps(p)
#define STORE_F32(p, v) _mm512_storeu_ps(p, v)
#define SET1_F32(x) _mm512_set1_ps(x)
#define FMA_F64 _mm512_fmadd_pd
#define LOAD_F64(p) _mm512_loadu_pd(p)
#define STORE_F64(p, v) _mm512_storeu_pd(p, v)
#define SET1_F64(x) _mm512_set1_pd(x)
#define LOAD_BF16(p)                                                                               \
    _mm512_castsi512_ps(_mm512_slli_epi32(                                                         \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))), 16))
#define LOAD_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#elif defined(__AVX2__)
typedef __m256 vec_f32;
typedef __m256d vec_f64;
enum { VL_F32 = 8 };
#define MR 6
#define FMA_F32 _mm256_fmadd_ps
#define LOAD_F32(p) _mm256_loadu_ps(p)
#define STORE_F32(p, v) _mm256_storeu_ps(p, v)
#define SET1_F32(x) _mm256_set1_ps(x)
#define FMA_F64 _mm256_fmadd_pd
#define LOAD_F64(p) _mm256_loadu_pd(p)
#define STORE_F64(p, v) _mm256_storeu_pd(p, v)
#define SET1_F64(x) _mm256_set1_pd(x)
#define LOAD_BF16(p)                                                                               \
    _mm256_castsi256_ps(_mm256_slli_epi32(                                                         \
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))), 16))
#define LOAD_F16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#else
typedef __m128 vec_f32;
typedef __m128d vec_f64;
enum { VL_F32 = 4 };
#define MR 4
#define FMA_F32(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#define LOAD_F32(p) _mm_loadu_ps(p)
#define STORE_F32(p, v) _mm_storeu_ps(p, v)
#define SET1_F32(x) _mm_set1_ps(x)
#define FMA_F64(a, b, c) _mm_add_pd(_mm_mul_pd(a, b), c)
#define LOAD_F64(p) _mm_loadu_pd(p)
#define STORE_F64(p, v) _mm_storeu_pd(p, v)
#define SET1_F64(x) _mm_set1_pd(x)
#define LOAD_BF16(p)                                                                               \
    _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(),                                       \
                                        _mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define LOAD_F16(p)                                                                                \
    _mm_setr_ps(wf_f32_of_f16((p)[0]), wf_f32_of_f16((p)[1]), wf_f32_of_f16((p)[2]),               \
                wf_f32_of_f16((p)[3]))
#endif
enum { VL_F64 = VL_F32 / 2 };
