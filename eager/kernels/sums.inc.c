/*
 * eager/kernels/sums.inc.c -- canonical sums of f32, f64, bf16 and f16 straight from memory, compiled once
 * per instruction set (WF_ISA).
 *
 * Halves are widened in registers on their way into a sum: no buffer of f32 between.
 */
#include "eager/cpuid.h"
#include "eager/kernels/reduce.h"
#include "eager/kernels/reduce_vec.h"
#include "jit/ir/dtype.h"

/* Of as many pairs of bf16 as a register of f32 has lanes the first ones, and the second ones: f32 with other low bits. */
typedef uint32_t vec_u32 __attribute__((vector_size(WF_VBYTES)));
typedef uint32_t mem_u32 __attribute__((vector_size(WF_VBYTES), aligned(2), may_alias));
#if WF_VBYTES == 16
#define IN_REGISTER "x"
#else
#define IN_REGISTER "v"
#endif
/* One load for both: compilers would shift and mask what lies in memory, each by itself. */
WF_INLINE vec_u32 pairs_bf16(const uint16_t *p)
{
    vec_u32 v = (vec_u32) * (const mem_u32 *)(const void *)p;
    __asm__("" : "+" IN_REGISTER(v));
    return v;
}
WF_INLINE wf_vec_f32 firsts_bf16(const uint16_t *p)
{
#if WF_VBYTES == 64
    /* A shuffle and not a shift, which a Zen 5 does where it adds: two lines in three steps of the clock for two. */
    const __m512i places = _mm512_broadcast_i32x4(
        _mm_setr_epi8(-1, -1, 0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1, 12, 13));
    return (wf_vec_f32)_mm512_shuffle_epi8((__m512i)pairs_bf16(p), places);
#else
    return (wf_vec_f32)(pairs_bf16(p) << 16);
#endif
}
WF_INLINE wf_vec_f32 seconds_bf16(const uint16_t *p)
{
    return (wf_vec_f32)(pairs_bf16(p) & 0xFFFF0000u);
}
#if WF_VBYTES == 64
/* Of 32 values the 16 from `first` on, in order: a shuffle of halves that leaves the lower ones out. */
WF_INLINE wf_vec_f32 half_bf16(const uint16_t *p, const int first)
{
    enum { UPPER = 0xAAAAAAAA };
    const __m512i each = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i places = _mm512_slli_epi32(_mm512_add_epi32(each, _mm512_set1_epi32(first)), 16);
    return (wf_vec_f32)_mm512_maskz_permutexvar_epi16(UPPER, places, (__m512i)pairs_bf16(p));
}
#endif
/* A register of f32 from as many halves; SSE2 has no instruction for it, and is not timed. */
#if WF_VBYTES == 16
__attribute__((noinline)) static
#else
WF_INLINE
#endif
    wf_vec_f32
    widen_f16(const uint16_t *p)
{
#if WF_VBYTES == 64
    return (wf_vec_f32)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#elif WF_VBYTES == 32
    return (wf_vec_f32)_mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#else
    return (wf_vec_f32){wf_f32_of_f16(p[0]), wf_f32_of_f16(p[1]), wf_f32_of_f16(p[2]),
                        wf_f32_of_f16(p[3])};
#endif
}

#if WF_VBYTES > 16
/* Where values of rows that are apart go on, in bytes: place `c` of the row at x, `inner` long and `stride` before the next one. */
typedef struct pieces {
    const char *x;
    int64_t c, inner, stride;
} pieces;

/* `m` bytes further, no more than the row's end. */
WF_INLINE void go_on(pieces *p, int64_t m)
{
    p->c += m;
    if (p->c == p->inner) {
        p->c = 0;
        p->x += p->stride;
    }
}

/* Up to `left` bytes of them, from one row or several, as 64 lanes of `size` bytes, missing ones -0; how many there were. */
#if WF_VBYTES == 64
WF_INLINE int64_t bridge(void *few, pieces *p, int64_t left, const int64_t size)
{
    const int64_t lanes = WF_LANES * size, all = left < lanes ? left : lanes;
    __m512i v[8];
    WF_UNROLL for (int k = 0; k < size; k++)
    {
        v[k] = size == 2   ? _mm512_set1_epi16(INT16_MIN)
               : size == 4 ? _mm512_set1_epi32(INT32_MIN)
                           : _mm512_set1_epi64(INT64_MIN);
    }
    for (int64_t at = 0, m; at < all; at += m) {
        m = p->inner - p->c < all - at ? p->inner - p->c : all - at;
        const uint64_t some = ~(uint64_t)0 >> (WF_LANES - m / size) << at / size;
        WF_UNROLL for (int k = 0; k < size; k++)
        {
            const char *from = p->x + (p->c - at) + k * 64;
            const uint64_t which = some >> (k * 64 / size);
            v[k] = size == 2   ? _mm512_mask_loadu_epi16(v[k], (__mmask32)which, from)
                   : size == 4 ? _mm512_mask_loadu_epi32(v[k], (__mmask16)which, from)
                               : _mm512_mask_loadu_epi64(v[k], (__mmask8)which, from);
        }
        go_on(p, m);
    }
    WF_UNROLL for (int k = 0; k < size; k++)
    {
        _mm512_storeu_si512((char *)few + k * 64, v[k]);
    }
    return all;
}
#else
static __attribute__((noinline)) int64_t bridge(void *few, pieces *p, int64_t left, int64_t size)
{
    const int64_t lanes = WF_LANES * size, all = left < lanes ? left : lanes;
    char *const to = few;
    memset(to + all, 0, (size_t)(lanes - all));
    for (int64_t at = all; at < lanes; at += size) {
        to[at + size - 1] = INT8_MIN;
    }
    for (int64_t at = 0, m; at < all; at += m) {
        m = p->inner - p->c < all - at ? p->inner - p->c : all - at;
        memcpy(to + at, p->x + p->c, (size_t)m);
        go_on(p, m);
    }
    return all;
}
#endif
#endif

#if WF_VBYTES > 16 /* SSE2 is not timed */
#define PIECES
#endif
#define T float
#define TSFX f32
#define ESIZE 4
#define S float
#define SFX f32
#define GET(p) ((wf_vec_f32) * (const wf_mem_f32 *)(const void *)(p))
#define ONE(v) (v)
#define NOTHING -0.0f
#include "eager/kernels/sums_t.h"
#define S uint16_t
#define SFX bf16
#define EVEN(p) firsts_bf16(p)
#define ODD(p) seconds_bf16(p)
#if WF_VBYTES == 64
#define FIRSTS(p) half_bf16(p, 0)
#define LASTS(p) half_bf16(p, 16)
#endif
#define ONE(v) wf_f32_of_bf16(v)
#define NOTHING 0x8000
#include "eager/kernels/sums_t.h"
#undef PIECES
#define S uint16_t
#define SFX f16
#define GET(p) widen_f16(p)
#define ONE(v) wf_f32_of_f16(v)
#define NOTHING 0x8000
#include "eager/kernels/sums_t.h"

/* Squares, of which only spans are needed. A missing element adds +0: no sum of squares is -0 but the one of nothing. */
WF_INLINE wf_vec_f32 square_f32(const float *p)
{
    const wf_vec_f32 v = (wf_vec_f32) * (const wf_mem_f32 *)(const void *)p;
    return v * v;
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define ONE_BY_ONE
#define S float
#define SFX squares
#define GET(p) square_f32(p)
#define ONE(v) ((v) * (v))
#define NOTHING -0.0f
#include "eager/kernels/sums_t.h"
#pragma GCC diagnostic pop
#undef ONE_BY_ONE
const wf_span_fn WF_JOIN(wf_squares, WF_ISA) = span_squares;
#undef T
#undef TSFX
#undef ESIZE

#if WF_VBYTES > 16
#define PIECES
#endif
#define T double
#define TSFX f64
#define ESIZE 8
#define S double
#define SFX f64
#define GET(p) ((wf_vec_f64) * (const wf_mem_f64 *)(const void *)(p))
#define ONE(v) (v)
#define NOTHING -0.0
#include "eager/kernels/sums_t.h"

#if WF_VBYTES > 16
#define IN_PIECES(type) pieces_##type
#else
#define IN_PIECES(type) NULL
#endif
const wf_sum_kernels WF_JOIN(wf_sum_kernels, WF_ISA)[WF_NDTYPE] = {
    [WEFT_F32] = {span_f32, tree_f32, rows_f32, IN_PIECES(f32)},
    [WEFT_F64] = {span_f64, tree_f64, rows_f64, IN_PIECES(f64)},
    [WEFT_BF16] = {span_bf16, tree_bf16, rows_bf16, IN_PIECES(bf16)},
    [WEFT_F16] = {span_f16, tree_f16, rows_f16, NULL},
};
