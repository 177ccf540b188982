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
WF_INLINE int64_t largest_i64(const int64_t *x, int64_t n)
{
    int64_t r = x[0];
    for (int64_t i = 1; i < n; i++) {
        r = x[i] > r ? x[i] : r;
    }
    return r;
}
WF_INLINE int64_t smallest_i64(const int64_t *x, int64_t n)
{
    int64_t r = x[0];
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
static void max_i32(void *out, const void *xv, int64_t n)
{
    const int32_t *x = xv;
    int32_t r = x[0];
    for (int64_t i = 1; i < n; i++) {
        r = x[i] > r ? x[i] : r;
    }
    *(int64_t *)out = r;
}
static void min_i32(void *out, const void *xv, int64_t n)
{
    const int32_t *x = xv;
    int32_t r = x[0];
    for (int64_t i = 1; i < n; i++) {
        r = x[i] < r ? x[i] : r;
    }
    *(int64_t *)out = r;
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

#define KERNELS(sfx, bytes, truth_fn, max_fn, min_fn)                                              \
    {                                                                                              \
        .size = bytes, .run = {run_sum_##sfx, run_prod_##sfx, run_max_##sfx, run_min_##sfx},       \
        .shorts = {shorts_sum_##sfx, shorts_prod_##sfx, shorts_max_##sfx, shorts_min_##sfx},       \
        .rows = {rows_sum_##sfx, rows_prod_##sfx, rows_max_##sfx, rows_min_##sfx},                 \
        .map = map_##sfx, .arg = arg_##sfx, .arg_row = arg_row_##sfx, .load = load_##sfx,          \
        .truth = truth_fn, .store = store_##sfx, .stream = stream, .i32 = {max_fn, min_fn},        \
    }

const wf_red_kernels WF_JOIN(wf_red_kernels, WF_ISA)[3] = {
    KERNELS(f32, 4, NULL, NULL, NULL),
    KERNELS(f64, 8, NULL, NULL, NULL),
    KERNELS(i64, 8, truth_i64, max_i32, min_i32),
};
