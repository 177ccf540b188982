/*
 * eager/kernels/reduce.inc.c -- the reduction kernels, compiled once per instruction set (WF_ISA).
 *
 * Invariants: no result depends on the instruction set (the order of every rounding is written in
 * reduce_canon.h; the rest is order-free or elementwise).
 */
#include <stdbool.h>

#include "eager/kernels/reduce.h"
#include "eager/kernels/reduce_vec.h"
#include "eager/kernels/convert.h"
#include "jit/ir/dict_c.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h"

/* -- f32 ------------------------------------------------------------------------------------------- */
#define UNORDERED(v) ((v) != (v))
#define WIDE_MAX FN(wide_max)
#define WIDE_MIN FN(wide_min)
#define IS_WIDE (WF_VBYTES > 16)
#define T float
#define TCANON float
#define SFX f32
#define ESIZE 4
#define NAME sum
#define OP +
#define IDENTITY -0.0f
#define EXPR LD(x)
#include "eager/kernels/reduce_canon.h"
#undef OP
#undef IDENTITY
#define NAME prod
#define OP *
#define IDENTITY 1.0f
#define EXPR LD(x)
#include "eager/kernels/reduce_canon.h"
#undef OP
#undef IDENTITY
#include "eager/kernels/reduce_flt.h"
#include "eager/kernels/reduce_map.h"
#include "eager/kernels/reduce_t.h"
#undef T
#undef TCANON
#undef SFX
#undef ESIZE

/* -- f64 ------------------------------------------------------------------------------------------- */
#define T double
#define TCANON double
#define SFX f64
#define ESIZE 8
#define NAME sum
#define OP +
#define IDENTITY -0.0
#define EXPR LD(x)
#include "eager/kernels/reduce_canon.h"
#undef OP
#undef IDENTITY
#define NAME prod
#define OP *
#define IDENTITY 1.0
#define EXPR LD(x)
#include "eager/kernels/reduce_canon.h"
#undef OP
#undef IDENTITY
#include "eager/kernels/reduce_flt.h"
#include "eager/kernels/reduce_map.h"
#include "eager/kernels/reduce_t.h"
#undef T
#undef TCANON
#undef SFX
#undef ESIZE

/* -- i64: sums and products wrap, so they are done on u64 -------------------------------------------- */
#define T uint64_t
#define TCANON uint64_t
#define SFX i64
#define ESIZE 8
#define NAME sum
#define OP +
#define IDENTITY 0
#define EXPR LD(x)
#include "eager/kernels/reduce_canon.h"
#undef OP
#undef IDENTITY
#define NAME prod
#define OP *
#define IDENTITY 1
#define EXPR LD(x)
#include "eager/kernels/reduce_canon.h"
#undef OP
#undef IDENTITY
#undef T
#define T int64_t
#undef UNORDERED
#define UNORDERED(v) false
#undef WIDE_MAX
#undef WIDE_MIN
#define WIDE_MAX NOT_WIDE
#define WIDE_MIN NOT_WIDE
#undef IS_WIDE
#define IS_WIDE false
WF_INLINE int64_t largest_i64(const int64_t *x, int64_t n)
{
    int64_t r = x[0];
    WF_INTERLEAVE
    for (int64_t i = 1; i < n; i++) {
        r = x[i] > r ? x[i] : r;
    }
    return r;
}
WF_INLINE int64_t smallest_i64(const int64_t *x, int64_t n)
{
    int64_t r = x[0];
    WF_INTERLEAVE
    for (int64_t i = 1; i < n; i++) {
        r = x[i] < r ? x[i] : r;
    }
    return r;
}
#include "eager/kernels/reduce_t.h"
static void map_i64(wf_map map, void *dst, const void *x, const void *y, const void *p,
                    const void *q, int pstep, int64_t n)
{
    (void)map, (void)y, (void)p, (void)q, (void)pstep;
    memmove(dst, x, (size_t)n * sizeof(int64_t)); /* integers are only loaded, as values or truth */
}

/* Elements as they lie in memory: widened ones are twice as many registers, and a pass of their own. */
#define STORED_ONE(name, ctype, better)                                                            \
    static void name(void *out, const void *xv, int dtype, int64_t n)                              \
    {                                                                                              \
        (void)dtype;                                                                               \
        const ctype *x = xv;                                                                       \
        ctype r = x[0];                                                                            \
        for (int64_t i = 1; i < n; i++) {                                                          \
            r = x[i] better r ? x[i] : r;                                                          \
        }                                                                                          \
        *(int64_t *)out = r;                                                                       \
    }
#define STORED(sfx, ctype)                                                                         \
    STORED_ONE(max_##sfx, ctype, >)                                                                \
    STORED_ONE(min_##sfx, ctype, <)
STORED(u8, uint8_t)
STORED(i8, int8_t)
STORED(i16, int16_t)
STORED(i32, int32_t)

/* What makes elements of a type true, as often as they go into a word: all bits, of floats all but the sign. */
static uint64_t bits_that_count(int dtype)
{
    switch ((weft_dtype)dtype) {
    case WEFT_F16:
    case WEFT_BF16:
        return UINT64_C(0x7FFF7FFF7FFF7FFF);
    case WEFT_F32:
        return UINT64_C(0x7FFFFFFF7FFFFFFF);
    case WEFT_F64:
        return INT64_MAX;
    case WEFT_BOOL:
    case WEFT_U8:
    case WEFT_I8:
    case WEFT_I16:
    case WEFT_I32:
    case WEFT_I64:
    case WEFT_DTYPE_DEFAULT:
    case WEFT_DTYPE_COUNT:
        break;
    }
    return UINT64_MAX;
}
/* Whether some element is true: some bit that counts. */
static void max_truth(void *out, const void *xv, int dtype, int64_t n)
{
    const char *x = xv;
    const size_t bytes = (size_t)n * wf_dtype_size(dtype);
    uint64_t r = 0, w = 0;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        memcpy(&w, x + i, 8);
        r |= w;
    }
    w = 0;
    memcpy(&w, x + i, bytes - i);
    *(int64_t *)out = ((r | w) & bits_that_count(dtype)) != 0;
}
#define ALL_TRUE(utype)                                                                            \
    {                                                                                              \
        const utype *x = xv;                                                                       \
        const utype keep = (utype)bits_that_count(dtype);                                          \
        utype r = 1;                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            r = (utype)(r & ((x[i] & keep) != 0));                                                 \
        }                                                                                          \
        *(int64_t *)out = r != 0;                                                                  \
        return;                                                                                    \
    }
static void min_truth(void *out, const void *xv, int dtype, int64_t n)
{
    switch (wf_dtype_size(dtype)) {
    case 1:
        ALL_TRUE(uint8_t)
    case 2:
        ALL_TRUE(uint16_t)
    case 4:
        ALL_TRUE(uint32_t)
    default:
        ALL_TRUE(uint64_t)
    }
}

/* dst := src past the caches. */
static void stream(void *dst, const void *src, size_t bytes)
{
    char *d = dst;
    const char *s = src;
    size_t head = (64 - ((uintptr_t)d & 63)) & 63;
    head = head < bytes ? head : bytes;
    memcpy(d, s, head);
    size_t i = head;
    for (; i + 64 <= bytes; i += 64) {
        for (size_t k = 0; k < 64; k += 16) {
            _mm_stream_si128((__m128i *)(void *)(d + i + k),
                             _mm_loadu_si128((const __m128i *)(const void *)(s + i + k)));
        }
    }
    memcpy(d + i, s + i, bytes - i);
}

#define KERNELS(sfx, bytes, truth_fn, ...)                                                         \
    {                                                                                              \
        .size = bytes, .run = {run_sum_##sfx, run_prod_##sfx, run_max_##sfx, run_min_##sfx},       \
        .shorts = {shorts_sum_##sfx, shorts_prod_##sfx, shorts_max_##sfx, shorts_min_##sfx},       \
        .rows = {rows_sum_##sfx, rows_prod_##sfx, rows_max_##sfx, rows_min_##sfx},                 \
        .map = map_##sfx, .arg = arg_##sfx, .arg_row = arg_row_##sfx, .load = load_##sfx,          \
        .truth = truth_fn, .store = store_##sfx, .stream = stream, __VA_ARGS__                     \
    }

const wf_red_kernels WF_JOIN(wf_red_kernels, WF_ISA)[3] = {
    KERNELS(f32, 4, NULL, ),
    KERNELS(f64, 8, NULL, ),
    KERNELS(i64, 8, truth_i64,
            .stored = {[WEFT_U8] = {max_u8, min_u8},
                       [WEFT_I8] = {max_i8, min_i8},
                       [WEFT_I16] = {max_i16, min_i16},
                       [WEFT_I32] = {max_i32, min_i32}},
            .truths = {max_truth, min_truth}),
};
