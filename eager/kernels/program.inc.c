/*
 * eager/kernels/program.inc.c -- kernels on two-dimensional tiles, compiled once per instruction set; see
 * eager/kernels/program.h.
 *
 * Invariant: each element gets the bits of the elementwise row of the same name.
 */
#include <immintrin.h>
#include <string.h>

#include "eager/kernels/loops.h"
#include "eager/kernels/program.h"
#include "jit/ir/dict_c.h"

/* A line of the tile: d[j] = EXPR(j). */
#define LOOP(EXPR)                                                                                 \
    WF_IVDEP for (int64_t j = 0; j < n; j++)                                                       \
    {                                                                                              \
        d[j] = EXPR;                                                                               \
    }
/* dst[m][n] = a OP b, line by line. A source lies along a line (`along`: an element for each of dst's) or is one element for it, and
 * moves on by `line` elements behind each: four loops, none of which asks that again. */
#define GRID(name, T, OP)                                                                          \
    static void name(void *dst, const wf_grid_src *a, const wf_grid_src *b, int64_t m, int64_t n)  \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *x = a->data, *y = b->data;                                                        \
        for (int64_t i = 0; i < m; i++, d += n, x += a->line, y += b->line) {                      \
            if (a->along && b->along) {                                                            \
                LOOP(x[j] OP y[j])                                                                 \
            } else if (a->along) {                                                                 \
                const T s = *y;                                                                    \
                LOOP(x[j] OP s)                                                                    \
            } else if (b->along) {                                                                 \
                const T s = *x;                                                                    \
                LOOP(s OP y[j])                                                                    \
            } else {                                                                               \
                const T s = *x OP * y;                                                             \
                LOOP(s)                                                                            \
            }                                                                                      \
        }                                                                                          \
    }
GRID(add_f32, float, +)
GRID(sub_f32, float, -)
GRID(mul_f32, float, *)
GRID(div_f32, float, /)
GRID(add_f64, double, +)
GRID(sub_f64, double, -)
GRID(mul_f64, double, *)
GRID(div_f64, double, /)

/* dst[m][n] = src, of elements of a size: a copy of lines, or one element spread over each. */
#define SPREAD(name, T)                                                                            \
    static void name(void *dst, const wf_grid_src *src, int64_t m, int64_t n)                      \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *x = src->data;                                                                    \
        for (int64_t i = 0; i < m; i++, d += n, x += src->line) {                                  \
            if (src->along) {                                                                      \
                memcpy(d, x, (size_t)n * sizeof(T));                                               \
            } else {                                                                               \
                const T s = *x;                                                                    \
                LOOP(s)                                                                            \
            }                                                                                      \
        }                                                                                          \
    }
SPREAD(spread_1, uint8_t)
SPREAD(spread_2, uint16_t)
SPREAD(spread_4, uint32_t)
SPREAD(spread_8, uint64_t)

/* -- chains ------------------------------------------------------------------------------------------------- */
#if defined(__AVX512F__)
enum { VBYTES = 64, MOST = 16 }; /* registers of a running value */
#elif defined(__AVX2__)
enum { VBYTES = 32, MOST = 8 };
#else
enum { VBYTES = 16, MOST = 8 };
#endif
typedef float vec_f32 __attribute__((vector_size(VBYTES)));
typedef double vec_f64 __attribute__((vector_size(VBYTES)));
typedef float mem_f32 __attribute__((vector_size(VBYTES), aligned(4), may_alias));
typedef double mem_f64 __attribute__((vector_size(VBYTES), aligned(8), may_alias));

#ifdef __OPTIMIZE_SIZE__ /* the copy for any machine */
#define INLINE static
#define UNROLL _Pragma("GCC unroll 1")
#else
#define INLINE __attribute__((always_inline)) static inline
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* One link of a chain, done to all Q registers a[] of the running value; ends a case. */
#define EACH(EXPR)                                                                                 \
    UNROLL for (int q = 0; q < Q; q++)                                                             \
    {                                                                                              \
        a[q] = EXPR;                                                                               \
    }                                                                                              \
    break;
/* As jit/ir/dict_c.h has it: NaN propagates, -0 < +0. flip: 0, or of the least the sign's bits, as it is the largest of what both
 * are with the other sign (so much less code). */
typedef int32_t int_f32 __attribute__((vector_size(VBYTES)));
INLINE vec_f32 extreme(vec_f32 a, vec_f32 b, int_f32 flip)
{
    a = (vec_f32)((int_f32)a ^ flip);
    b = (vec_f32)((int_f32)b ^ flip);
#ifdef __AVX512F__
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q);
    __m512 most = _mm512_range_ps((__m512)a, (__m512)b, 5);
    most = _mm512_mask_add_ps(most, nan, (__m512)a, (__m512)b);
#else /* of equal ones, which differ by a zero's sign at most, the bits of both */
    const int_f32 first = (a > b) | (a != a), same = a == b;
    const int_f32 most = (((int_f32)a & first) | ((int_f32)b & ~first)) & ((int_f32)a | ~same);
#endif
    return (vec_f32)((int_f32)most ^ flip);
}
#define EXTREME(LINK, SOURCE)                                                                      \
    if (VN == VBYTES / 4) { /* f32 alone: so much less code */                                     \
        const int_f32 flip = (LINK) / 2 == WF_LINK_MIN ? (int_f32){0} + INT32_MIN : (int_f32){0};  \
        UNROLL for (int q = 0; q < Q; q++)                                                         \
        {                                                                                          \
            a[q] = (__typeof__(a[0]))extreme((vec_f32)a[q], (vec_f32)(SOURCE), flip);              \
        }                                                                                          \
    }                                                                                              \
    break;

/* The two cases of a link: its source lies along the line (odd code), or is one element for it. */
#define LINK2(OP, ALONG, ONE)                                                                      \
    case 2 * (OP) + 1:                                                                             \
        EACH(ALONG)                                                                                \
    case 2 * (OP):                                                                                 \
        EACH(ONE)

/* Elements [j, j + COUNT * VN) of a line; at[l]: the line of link l's source. */
#define CHAIN_BLOCK(name, T, V, MEM, COUNT)                                                        \
    INLINE void name(T *d, const T *x, bool along, const uint8_t *code, const T *const *at,        \
                     int count, int64_t j)                                                         \
    {                                                                                              \
        enum { VN = sizeof(V) / sizeof(T), Q = COUNT };                                            \
        V a[Q];                                                                                    \
        if (along) {                                                                               \
            const T *y = x + j;                                                                    \
            UNROLL for (int q = 0; q < Q; q++)                                                     \
            {                                                                                      \
                a[q] = B(V, MEM);                                                                  \
            }                                                                                      \
        } else {                                                                                   \
            UNROLL for (int q = 0; q < Q; q++)                                                     \
            {                                                                                      \
                a[q] = *x - (V){0};                                                                \
            }                                                                                      \
        }                                                                                          \
        for (int l = 0; l < count; l++) {                                                          \
            const T *y = at[l] + (code[l] % 2 != 0 ? j : 0);                                       \
            switch (code[l]) {                                                                     \
                LINK2(WF_LINK_ADD, a[q] + B(V, MEM), a[q] + *y)                                    \
                LINK2(WF_LINK_SUB, a[q] - B(V, MEM), a[q] - *y)                                    \
                LINK2(WF_LINK_RSUB, B(V, MEM) - a[q], *y - a[q])                                   \
                LINK2(WF_LINK_MUL, a[q] * B(V, MEM), a[q] * *y)                                    \
                LINK2(WF_LINK_DIV, a[q] / B(V, MEM), a[q] / *y)                                    \
                LINK2(WF_LINK_RDIV, B(V, MEM) / a[q], *y / a[q])                                   \
            case 2 * WF_LINK_MAX + 1:                                                              \
            case 2 * WF_LINK_MIN + 1:                                                              \
                EXTREME(code[l], B(V, MEM))                                                        \
            case 2 * WF_LINK_MAX:                                                                  \
            case 2 * WF_LINK_MIN:                                                                  \
                EXTREME(code[l], *y - (V){0})                                                      \
            case 2 * WF_LINK_SQUARE:                                                               \
                EACH(a[q] * a[q])                                                                  \
            case 2 * WF_LINK_NEG:                                                                  \
                EACH(-a[q])                                                                        \
            case 2 * WF_LINK_STORE + 1:                                                            \
                UNROLL for (int q = 0; q < Q; q++)                                                 \
                {                                                                                  \
                    *(MEM *)(void *)((T *)(uintptr_t)y + q * VN) = (MEM)a[q];                      \
                }                                                                                  \
                break;                                                                             \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int q = 0; q < Q; q++)                                                         \
        {                                                                                          \
            *(MEM *)(void *)(d + j + q * VN) = (MEM)a[q];                                          \
        }                                                                                          \
    }
#define B(V, MEM) (V) * (const MEM *)(const void *)(y + q * VN)

/* The last elements of a line, one at a time. */
#define CHAIN_LAST(name, T)                                                                        \
    static void name(T *d, const T *x, bool along, const uint8_t *code, const T *const *at,        \
                     int count, int64_t j)                                                         \
    {                                                                                              \
        T a = along ? x[j] : *x;                                                                   \
        for (int l = 0; l < count; l++) {                                                          \
            const int op = code[l] / 2;                                                            \
            if (op == WF_LINK_STORE) {                                                             \
                ((T *)(uintptr_t)at[l])[j] = a;                                                    \
                continue;                                                                          \
            }                                                                                      \
            const T b = code[l] % 2 != 0 ? at[l][j] : at[l] != NULL ? *at[l] : a;                  \
            a = op == WF_LINK_ADD      ? a + b                                                     \
                : op == WF_LINK_SUB    ? a - b                                                     \
                : op == WF_LINK_RSUB   ? b - a                                                     \
                : op == WF_LINK_MUL    ? a * b                                                     \
                : op == WF_LINK_DIV    ? a / b                                                     \
                : op == WF_LINK_RDIV   ? b / a                                                     \
                : op == WF_LINK_MAX    ? MAX(a, b)                                                 \
                : op == WF_LINK_MIN    ? MIN(a, b)                                                 \
                : op == WF_LINK_SQUARE ? a * a                                                     \
                                       : -a;                                                       \
        }                                                                                          \
        d[j] = a;                                                                                  \
    }

#define CHAIN(name, T, V, MEM)                                                                     \
    CHAIN_BLOCK(name##_most, T, V, MEM, MOST)                                                      \
    CHAIN_BLOCK(name##_4, T, V, MEM, 4)                                                            \
    CHAIN_BLOCK(name##_1, T, V, MEM, 1)                                                            \
    CHAIN_LAST(name##_last, T)                                                                     \
    static void name(void *dst, const wf_grid_src *first, const wf_link *links, int count,         \
                     int64_t m, int64_t n)                                                         \
    {                                                                                              \
        enum { VN = sizeof(V) / sizeof(T) };                                                       \
        uint8_t code[WF_LINKS];                                                                    \
        const T *at[WF_LINKS];                                                                     \
        T *d = dst;                                                                                \
        const T *x = first->data;                                                                  \
        for (int l = 0; l < count; l++) {                                                          \
            code[l] = (uint8_t)(2 * links[l].op + (links[l].src.along ? 1 : 0));                   \
            at[l] = links[l].src.data;                                                             \
        }                                                                                          \
        for (int64_t i = 0; i < m; i++, d += n, x += first->line) {                                \
            int64_t j = 0;                                                                         \
            for (; j + MOST * VN <= n; j += MOST * VN)                                             \
                name##_most(d, x, first->along, code, at, count, j);                               \
            for (; j + 4 * VN <= n; j += 4 * VN)                                                   \
                name##_4(d, x, first->along, code, at, count, j);                                  \
            for (; j + VN <= n; j += VN)                                                           \
                name##_1(d, x, first->along, code, at, count, j);                                  \
            for (; j < n; j++)                                                                     \
                name##_last(d, x, first->along, code, at, count, j);                               \
            for (int l = 0; l < count && i + 1 < m; l++)                                           \
                at[l] += at[l] != NULL ? links[l].src.line : 0;                                    \
        }                                                                                          \
    }
CHAIN(chain_f32, float, vec_f32, mem_f32)
CHAIN(chain_f64, double, vec_f64, mem_f64)

const wf_grid_kernels WF_SYM(wf_grid_kernels) = {
    .chain = {chain_f32, chain_f64},
    .binary = {{add_f32, sub_f32, mul_f32, div_f32}, {add_f64, sub_f64, mul_f64, div_f64}},
    .spread = {spread_1, spread_2, spread_4, spread_8},
};
