/*
 * eager/kernels/map_rows.h -- tools by which map_*.inc.c turn rows of ops.def into loops.
 *
 * The includer is compiled for one WF_ISA and one compute type WF_T (suffix WF_S: f32, i8, ...).
 *
 * Invariants
 *  - Loops carry no dependence across elements even when dst is a source, hence WF_IVDEP.
 *  - A broadcast operand is spread over a block on the stack once and the loop runs block by block:
 *    one loop per row serves every combination.
 */
#ifndef EAGER_KERNELS_MAP_ROWS_H
#define EAGER_KERNELS_MAP_ROWS_H

#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "eager/kernels/kernels.h"
#include "eager/kernels/loops.h"
#include "jit/ir/dict_c.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h" /* uses math_f64.h */
#include "jit/ir/rowfun.h"

/* WF_IF(flag)(text): the text if flag is 1. */
#define WF_IF_0(...)
#define WF_IF_1(...) __VA_ARGS__
#define WF_IF(flag) WF_CAT(WF_IF_, flag)

/* Does a row of this type column have kernels for a class of compute types? */
#define WF_IN_FLT_FI 1
#define WF_IN_FLT_F 1
#define WF_IN_FLT_I 0
#define WF_IN_FLT_BI 0
#define WF_IN_FLT_B 0
#define WF_IN_FLT_ALL 1
#define WF_IN_INT_FI 1
#define WF_IN_INT_F 0
#define WF_IN_INT_I 1
#define WF_IN_INT_BI 1
#define WF_IN_INT_B 1 /* bool runs on the u8 kernels */
#define WF_IN_INT_ALL 1

/* WF_RARE_OF_<rare column>: 1 if the row has a rare branch; WF_TEST_<rare column>: its test. */
#define WF_RARE_OF_NORARE 0
#define WF_RARE_OF_RARE(fn, ...) 1
#define WF_TEST_NORARE 0
#define WF_TEST_RARE(fn, ...) WF_CAT(WF_CAT(WF_CAT(fn, _), WF_S), _rare)(__VA_ARGS__)

#define K(v) ((WF_T)(v))

enum { WF_BLOCK = 512, WF_RARE_BLOCK = 256 };

static inline void spread(void *dst, const void *value, size_t size, size_t n)
{
    if (size == 1) {
        memset(dst, *(const uint8_t *)value, n);
    } else if (size == 2) {
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = *(const uint16_t *)value;
    } else if (size == 4) {
        for (size_t i = 0; i < n; i++)
            ((uint32_t *)dst)[i] = *(const uint32_t *)value;
    } else {
        for (size_t i = 0; i < n; i++)
            ((uint64_t *)dst)[i] = *(const uint64_t *)value;
    }
}

/* Runs fn on blocks with the broadcast operands spread. Bit k of bytes: src[k] is bool. */
static __attribute__((noinline, unused)) void blocks(wf_map_fn fn, void *dst, size_t dst_size,
                                                     const void *const *src, int nsrc,
                                                     unsigned bytes, size_t n, unsigned bcast)
{
    _Alignas(64) WF_T spreads[WF_VJP_MAX + 2][WF_BLOCK];
    const void *at[WF_VJP_MAX + 2];
    size_t step[WF_VJP_MAX + 2];
    for (int k = 0; k < nsrc; k++) {
        const size_t size = bytes >> k & 1 ? 1 : sizeof(WF_T);
        at[k] = src[k];
        step[k] = WF_BLOCK * size;
        if (bcast >> k & 1) {
            step[k] = 0;
            at[k] = src[k];
            if (n > 1) {
                spread(spreads[k], src[k], size, n < WF_BLOCK ? n : WF_BLOCK);
                at[k] = spreads[k];
            }
        }
    }
    for (; n > WF_BLOCK; n -= WF_BLOCK) {
        fn(dst, at, WF_BLOCK, 0);
        dst = (char *)dst + WF_BLOCK * dst_size;
        for (int k = 0; k < nsrc; k++)
            at[k] = (const char *)at[k] + step[k];
    }
    fn(dst, at, n, 0);
}

/* One kernel: `loads` declares the operands of element i, R is the type of the result. */
#define WF_KERNEL(fname, R, nsrc, bytes, pointers, loads, expr)                                    \
    static void fname(void *dst, const void *const *src, size_t n, unsigned bcast)                 \
    {                                                                                              \
        if (bcast) {                                                                               \
            blocks(fname, dst, sizeof(R), src, nsrc, bytes, n, bcast);                             \
            return;                                                                                \
        }                                                                                          \
        R *d = dst;                                                                                \
        pointers WF_IVDEP for (size_t i = 0; i < n; i++)                                           \
        {                                                                                          \
            loads d[i] = (R)(expr);                                                                \
        }                                                                                          \
    }

/* The same for expressions so long that vectors are worth filling up: what is left behind the last whole one, and all of a few
 * elements, is a vector more, with zeros in the free places. (A loop of its own for those is half of such a kernel, and an element
 * takes it as long as a vector.) Operands are of the type of the result. */
#if defined(__AVX512F__)
enum { WF_WHOLE = 64 / sizeof(WF_T) };
typedef __m512i vector;
typedef __mmask16 places;
static inline places first_places(size_t n)
{
    return (places)((1U << (n * sizeof(WF_T) / 4)) - 1);
}
#define LOAD_PLACES(p, m) _mm512_maskz_loadu_epi32(m, p)
#define STORE_PLACES(p, m, v) _mm512_mask_storeu_epi32(p, m, v)
#elif defined(__AVX2__)
enum { WF_WHOLE = 32 / sizeof(WF_T) };
typedef __m256i vector;
typedef __m256i places;
static inline places first_places(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n * sizeof(WF_T) / 4)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#define LOAD_PLACES(p, m) _mm256_maskload_epi32(p, m)
#define STORE_PLACES(p, m, v) _mm256_maskstore_epi32(p, m, v)
#endif
#if defined(__AVX2__)
static __attribute__((noinline, unused)) void fill_up(wf_map_fn fn, WF_T *d, const void *const *src,
                                                      int nsrc, size_t from, size_t n)
{
    vector in[WF_VJP_MAX + 2], out;
    const void *at[WF_VJP_MAX + 2];
    const places mask = first_places(n - from);
    for (int k = 0; k < nsrc; k++) {
        in[k] = LOAD_PLACES((const void *)((const WF_T *)src[k] + from), mask);
        at[k] = &in[k];
    }
    fn(&out, at, WF_WHOLE, 0);
    STORE_PLACES((void *)(d + from), mask, out);
}
#define WF_KERNEL_LONG(fname, nsrc, pointers, loads, expr)                                         \
    static void fname(void *dst, const void *const *src, size_t n, unsigned bcast)                 \
    {                                                                                              \
        _Static_assert(sizeof(WF_T) >= 4, "places are of 4 bytes");                                \
        if (bcast) {                                                                               \
            blocks(fname, dst, sizeof(WF_T), src, nsrc, 0, n, bcast);                              \
            return;                                                                                \
        }                                                                                          \
        WF_T *d = dst;                                                                             \
        const size_t whole = n & ~(size_t)(WF_WHOLE - 1);                                          \
        pointers WF_IVDEP for (size_t i = 0; i < whole; i++)                                       \
        {                                                                                          \
            loads d[i] = (WF_T)(expr);                                                             \
        }                                                                                          \
        if (whole != n)                                                                            \
            fill_up(fname, d, src, nsrc, whole, n);                                                \
    }
#else
#define WF_KERNEL_LONG(fname, nsrc, pointers, loads, expr)                                         \
    WF_KERNEL(fname, WF_T, nsrc, 0, pointers, loads, expr)
#endif
/* Which of the two, by whether a row is cheap. */
#define WF_KERNEL_OF_1(fname, nsrc, pointers, loads, expr)                                         \
    WF_KERNEL(fname, WF_T, nsrc, 0, pointers, loads, expr)
#define WF_KERNEL_OF_0(fname, nsrc, pointers, loads, expr)                                         \
    WF_KERNEL_LONG(fname, nsrc, pointers, loads, expr)
#define WF_KERNEL_OF(ulp) WF_CAT(WF_KERNEL_OF_, WF_CHEAP_##ulp)

/* Three operands: a loop each for a scalar in the last place and for two in the last places (bounds; a scale and a shift),
 * which from blocks are a load each. */
#define WF_LOOP3(R, vb, vc, expr)                                                                  \
    WF_IVDEP for (size_t i = 0; i < n; i++)                                                        \
    {                                                                                              \
        const WF_T a = pa[i];                                                                      \
        const WF_T b = vb;                                                                         \
        const WF_T c = vc;                                                                         \
        d[i] = (R)(expr);                                                                          \
    }
#if defined(__AVX2__) && defined(WF_X4_ROWS)
#define WF_KERNEL3(fname, R, expr)                                                                 \
    static void fname(void *dst, const void *const *src, size_t n, unsigned bcast)                 \
    {                                                                                              \
        WF_P3                                                                                      \
        R *d = dst;                                                                                \
        if (bcast == 0) {                                                                          \
            WF_LOOP3(R, pb[i], pc[i], expr)                                                        \
        } else if (bcast == 4) {                                                                   \
            const WF_T c0 = *pc;                                                                   \
            WF_LOOP3(R, pb[i], c0, expr)                                                           \
        } else if (bcast == 6) {                                                                   \
            const WF_T b0 = *pb;                                                                   \
            const WF_T c0 = *pc;                                                                   \
            WF_LOOP3(R, b0, c0, expr)                                                              \
        } else {                                                                                   \
            blocks(fname, dst, sizeof(R), src, 3, 0, n, bcast);                                    \
        }                                                                                          \
    }
#else
#define WF_KERNEL3(fname, R, expr) WF_KERNEL(fname, R, 3, 0, WF_P3, WF_L3, expr)
#endif
/* Is the row that cheap? Its ulp column says so. */
#define WF_CHEAP_0 1
#define WF_CHEAP_1 0
#define WF_CHEAP_2 0
#define WF_CHEAP_3 0
#define WF_CHEAP_4 0

/* Operand pointers and values; no commas, since they pass through several macros. */
#define WF_P1 const WF_T *px = src[0];
#define WF_L1 const WF_T x = px[i];
#define WF_P2                                                                                      \
    const WF_T *pa = src[0];                                                                       \
    const WF_T *pb = src[1];
#define WF_L2                                                                                      \
    const WF_T a = pa[i];                                                                          \
    const WF_T b = pb[i];
#define WF_P3                                                                                      \
    const WF_T *pa = src[0];                                                                       \
    const WF_T *pb = src[1];                                                                       \
    const WF_T *pc = src[2];
#define WF_L3                                                                                      \
    const WF_T a = pa[i];                                                                          \
    const WF_T b = pb[i];                                                                          \
    const WF_T c = pc[i];
#define WF_PC                                                                                      \
    const uint8_t *pp = src[0];                                                                    \
    const WF_T *pa = src[1];                                                                       \
    const WF_T *pb = src[2];
#define WF_LC                                                                                      \
    const uint8_t p = pp[i];                                                                       \
    const WF_T a = pa[i];                                                                          \
    const WF_T b = pb[i];

/* A row with a rare branch: blocks of ordinary lanes run `fast`, others `full`. WF_LANE is an
 * unsigned type of WF_T's width. */
#define WF_RARE_KERNEL(fname, full, fast, R, nsrc, pointers, loads, test)                          \
    static WF_LANE any_##fname(const void *const *src, size_t n)                                   \
    {                                                                                              \
        WF_LANE any = 0;                                                                           \
        pointers for (size_t i = 0; i < n; i++)                                                    \
        {                                                                                          \
            loads any |= (WF_LANE)(test);                                                          \
        }                                                                                          \
        return any;                                                                                \
    }                                                                                              \
    static void fname(void *dst, const void *const *src, size_t n, unsigned bcast)                 \
    {                                                                                              \
        if (bcast) {                                                                               \
            blocks(fname, dst, sizeof(R), src, nsrc, 0, n, bcast);                                 \
            return;                                                                                \
        }                                                                                          \
        const void *at[nsrc];                                                                      \
        for (size_t o = 0; o < n; o += WF_RARE_BLOCK) {                                            \
            const size_t m = n - o < WF_RARE_BLOCK ? n - o : WF_RARE_BLOCK;                        \
            for (int k = 0; k < nsrc; k++)                                                         \
                at[k] = (const WF_T *)src[k] + o;                                                  \
            (any_##fname(at, m) ? full : fast)((R *)dst + o, at, m, 0);                            \
        }                                                                                          \
    }

#endif
