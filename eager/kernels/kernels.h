/*
 * eager/kernels/kernels.h -- what the .inc.c files beside it provide to map.c and copy.c.
 *
 * Every .inc.c file is compiled once per instruction set with WF_ISA = sse2, avx2 or avx512; symbols
 * end in _<isa>. A set is reached through one const table, picked by wf_isa() at every call, so a
 * test that lowers the level with wf_set_isa sees it at once.
 *
 * Invariants
 *  - Kernels work on contiguous tiles of compute types. dst may be exactly a source (in place); any
 *    other overlap is excluded by the caller.
 *  - No kernel allocates, fails or starts threads. All sets give the same bits.
 */
#ifndef EAGER_KERNELS_KERNELS_H
#define EAGER_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "eager/cpuid.h"
#include "jit/ir/op.h"

#define WF_CAT_(a, b) a##b
#define WF_CAT(a, b) WF_CAT_(a, b)
/* What a name that expands to "~, it" stands for, of WF_SECOND(name, else, ~). */
#define WF_SECOND(...) WF_SECOND_(__VA_ARGS__)
#define WF_SECOND_(a, b, ...) b
/* name_<isa> */
#define WF_SYM(name) WF_CAT(WF_CAT(name, _), WF_ISA)

/* dst[i] := row(src[0][i], ...). Bit k of bcast: src[k] is one element, used for every i. Sources have
 * the compute type (the first of a CHOOSE row: bool); dst has it too, or bool for predicates and
 * comparisons. Rows marked in wf_kernels.past take WF_PAST_CACHES in bcast: dst, aligned to 64 bytes, is
 * written by non-temporal stores. */
enum { WF_PAST_CACHES = 1 << 30 };
typedef void (*wf_map_fn)(void *dst, const void *const *src, size_t n, unsigned bcast);
/* dst[i] := (type)src[i]; rules in eager/kernels/cast.h. */
typedef void (*wf_cast_fn)(void *dst, const void *src, size_t n);
/* dst[i * ldd + j] := src[i * s1 + j * s0] for i < m, j < n; strides in elements. */
typedef void (*wf_pack_fn)(void *dst, int64_t ldd, const void *src, int64_t s1, int64_t s0,
                           size_t m, size_t n);
/* The same of a transpose, s1 = 1, in two steps. */
typedef void (*wf_turn_fn)(void *dst, int64_t ldd, const void *src, int64_t s0, size_t m, size_t n,
                           void *room);
/* Bytes that m x n elements of `size` bytes take between the two. */
static inline size_t wf_turn_room(int64_t m, int64_t n, int64_t size)
{
    return (size_t)(m * n * size + n / 8 * 64);
}
/* dst[i * s1 + j * s0] := src[i * n + j] */
typedef void (*wf_unpack_fn)(void *dst, int64_t s1, int64_t s0, const void *src, size_t m,
                             size_t n);

/* Compute types in the order of the tables; bool shares the kernels of u8 (its values are 0 and 1). */
enum { WF_CT_U8, WF_CT_I8, WF_CT_I16, WF_CT_I32, WF_CT_I64, WF_CT_F32, WF_CT_F64, WF_NCT };
/* Width classes: elements of 1, 2, 4 and 8 bytes. */
enum { WF_NWIDTH = 4 };
enum { WF_VJP_MAX = 3 };

enum { WF_FROM_END = 1, WF_OUTSIDE = 2 };

/* Channels side by side of the images that wf_kernels.depthwise takes. */
enum { WF_DEPTHWISE = 16 };
/* sums[t][k] += the sum of g[y][i][k] * x[y][i][t][k] over y < rows and i < columns, from zero and in that order. Steps in elements;
 * columns of g are WF_DEPTHWISE apart. */
typedef struct wf_depthwise {
    float *sums;
    const float *g, *x;
    int64_t rows, columns, taps;
    int64_t g_row, x_row, x_step, x_tap; /* of x: from row to row, column to column, tap to tap */
} wf_depthwise;

typedef struct wf_kernels {
    /* [op], elementwise rows only */
    const wf_map_fn *map[WF_NCT];
    const bool *past;                       /* f32 only */
    wf_map_fn (*half)(wf_op op, bool bf16); /* of bf16 or f16 to the same; NULL: by way of f32 */
    const wf_map_fn (*vjp[2])[WF_VJP_MAX];  /* f32, f64: [op][operand]; srcs g, operands, y */
    const wf_cast_fn (*cast)[WF_NDTYPE];    /* [to][from]; from == to copies */
    /* [to][from] with non-temporal stores, dst aligned to 64 bytes; NULL where there is none */
    const wf_cast_fn (*cast_past)[WF_NDTYPE];
    const wf_pack_fn *pack;    /* [width] */
    const wf_pack_fn *pack_nt; /* the same with non-temporal stores where that pays */
    /* The same where src lies in memory, or in a cache that is far off, transposed: read by 512 bytes of a row where that pays. */
    const wf_pack_fn *pack_far;
    /* By way of `room` (see wf_turn_room), whole lines of src and of dst, which are stored past the caches; NULL: there is none, and
     * pack_nt does it. */
    wf_turn_fn turn_past[WF_NWIDTH];
    const wf_unpack_fn *unpack;                               /* [width] */
    void (*stream)(void *dst, const void *src, size_t bytes); /* memcpy, non-temporal stores */
    void (*fence)(void); /* orders non-temporal stores before what follows */
    /* WF_FROM_END if an index is negative, WF_OUTSIDE if one is not in [-extent, extent). */
    unsigned (*range)(const int64_t *index, size_t n, int64_t extent);
    bool (*finite)(const uint16_t *bf16, size_t n); /* all of them */
    void (*depthwise)(const wf_depthwise *d);
} wf_kernels;

extern const wf_kernels wf_kernels_sse2, wf_kernels_avx2, wf_kernels_avx512;

static inline const wf_kernels *wf_kernels_now(void)
{
    const int isa = wf_isa();
    return isa == WF_ISA_AVX512 ? &wf_kernels_avx512
           : isa == WF_ISA_AVX2 ? &wf_kernels_avx2
                                : &wf_kernels_sse2;
}

/* Do lines of `count` rows, so many bytes apart, stay in the first cache of a Zen 5 together? Its sets hold 12. */
static inline bool wf_lines_stay(int64_t apart, int64_t count)
{
    enum { SETS = 64, WAYS = 12, OF_LINE = 64 };
    return count * (apart & -apart) <= (int64_t)SETS * WAYS * OF_LINE;
}

/* Index of a compute dtype in wf_kernels.map; -1 for f16, bf16 and anything else. */
static inline int wf_ct(int dtype)
{
    static const int8_t index[WF_NDTYPE] = {
        [WEFT_DTYPE_DEFAULT] = -1, [WEFT_BOOL] = WF_CT_U8, [WEFT_U8] = WF_CT_U8,
        [WEFT_I8] = WF_CT_I8,      [WEFT_I16] = WF_CT_I16, [WEFT_I32] = WF_CT_I32,
        [WEFT_I64] = WF_CT_I64,    [WEFT_F16] = -1,        [WEFT_BF16] = -1,
        [WEFT_F32] = WF_CT_F32,    [WEFT_F64] = WF_CT_F64,
    };
    return index[dtype];
}
/* The kernel of a row for f32 or f64. */
static inline wf_map_fn wf_row_kernel(wf_op op, int compute)
{
    return wf_kernels_now()->map[wf_ct(compute)][op];
}
/* Asks for part [from, to) of `of` of the memory behind a tile while the tile is worked on: stores past the caches take the
 * place in which the processor would have looked ahead by itself, and tiles are too short for it to see where they lead.
 * (Not a function: gcc 12 takes one that does nothing but ask for one without effects, and drops its calls.) */
__attribute__((always_inline)) static inline void wf_look_ahead_part(const void *p, int64_t bytes,
                                                                     int from, int to, int of)
{
    const char *next = (const char *)p + bytes;
    for (int64_t i = bytes * from / of / 64 * 64; i < bytes * to / of; i += 64)
        __builtin_prefetch(next + i);
}
__attribute__((always_inline)) static inline void wf_look_ahead(const void *p, int64_t bytes)
{
    wf_look_ahead_part(p, bytes, 0, 1, 1);
}
static inline int wf_width(int dtype)
{
    static const uint8_t width[WF_NDTYPE] = {
        [WEFT_I16] = 1, [WEFT_F16] = 1, [WEFT_BF16] = 1, [WEFT_I32] = 2,
        [WEFT_F32] = 2, [WEFT_I64] = 3, [WEFT_F64] = 3,
    };
    return width[dtype];
}

#endif
