/*
 * eager/kernels/reduce.h -- what the reduction kernels of one instruction set offer.
 *
 * Kernels see contiguous values of a compute type (f32, f64, i64) only; eager/reduce.c brings any
 * dtype, stride and axis set into that form. SUM and PROD follow the canonical order of
 * docs/reductions.md: the bits of a result depend on the values and their index alone.
 */
#ifndef EAGER_KERNELS_REDUCE_H
#define EAGER_KERNELS_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "eager/view.h"

enum { WF_LANES = 64, WF_BLOCK = 4096 };

/* Of a block of rows that a second cache may hold: any order of visits will do. */
enum { WF_NEAR_BYTES = 1 << 20 };

/* Rows that sums are handed together where there are enough: streams that a Zen 5 reads as fast as one, or faster. */
enum { WF_ROWS_AT_ONCE = 8 };

typedef enum wf_red { WF_RED_SUM, WF_RED_PROD, WF_RED_MAX, WF_RED_MIN, WF_RED_COUNT } wf_red;

/* What happens to an element x before it is reduced; p, q are parameters, y a second operand. */
typedef enum wf_map {
    WF_MAP_NONE,
    WF_MAP_ABS,     /* |x| */
    WF_MAP_SQUARE,  /* x * x */
    WF_MAP_NONZERO, /* x != 0 ? 1 : 0 */
    WF_MAP_ABSPOW,  /* pow(|x|, p) */
    WF_MAP_EXPSUB,  /* exp(x - p) */
    WF_MAP_SQDEV,   /* (x - p) * (x - p) */
    WF_MAP_XHAT,    /* y * ((x - p) * q) */
    WF_MAP_COUNT
} wf_map;

typedef struct wf_red_kernels {
    size_t size; /* of one value */
    /* *out = the reduction of x[0..n), any n >= 1; canonical for SUM and PROD. */
    void (*run[WF_RED_COUNT])(void *out, const void *x, int64_t n);
    /* out[i] = the reduction of the row at x + i * stride, n in [1, WF_LANES]. */
    void (*shorts[WF_RED_COUNT])(void *out, const void *x, int64_t n, int64_t stride,
                                 int64_t count);
    /* acc[c] = acc[c] op rows[0][c] op rows[1][c] ... in this order; init: starts at rows[0]. */
    void (*rows[WF_RED_COUNT])(void *acc, const void *const *rows, int64_t nrows, int64_t ncols,
                               int init);
    /* dst[i] = map(x[i]), not WF_MAP_ABSPOW; p and q are stepped by pstep (0 or 1). dst may be x or y. */
    void (*map)(wf_map map, void *dst, const void *x, const void *y, const void *p, const void *q,
                int pstep, int64_t n);
    /* First index of the largest (sign > 0) or smallest value, NaN counting as both; *best = it. */
    int64_t (*arg)(void *best, const void *x, int64_t n, int sign);
    /* best[c], index[c] updated by row r. */
    void (*arg_row)(void *best, int64_t *index, const void *x, int64_t r, int64_t n, int sign);
    /* dst[i] = the value, or for `truth` (i64 only) the truth value, of src[i * stride]. */
    void (*load)(void *dst, const void *src, int dtype, int64_t stride, int64_t n);
    void (*truth)(void *dst, const void *src, int dtype, int64_t stride, int64_t n);
    /* dst[i] = src[i] rounded (integers: wrapped) once to dtype; contiguous. */
    void (*store)(void *dst, int dtype, const void *src, int64_t n);
    /* dst := src with non-temporal stores; a store fence must follow. */
    void (*stream)(void *dst, const void *src, size_t bytes);
    /* *out = the largest, the smallest of x[0..n) as they lie in memory, of integers that load widens (NULL for other types),
     * and of the truth values of any type; i64 only. */
    void (*stored[WF_NDTYPE][2])(void *out, const void *x, int dtype, int64_t n);
    void (*truths[2])(void *out, const void *x, int dtype, int64_t n);
} wf_red_kernels;

/* Canonical sums of values as they lie in memory, whatever their type: results are f32, or f64 for f64. */
typedef struct wf_sum_kernels {
    /* out[i] = the sum of x[i * stride .. + n), 0 < n <= WF_BLOCK. ahead: bytes ahead that halves one behind the other are
     * asked for from memory; 0: nothing is, or what hardware needs. */
    void (*span)(void *out, const void *x, int64_t n, int64_t stride, int64_t count, int64_t ahead);
    /* out[c] = the sum of column c over rows `stride` elements apart, rows <= WF_BLOCK, cols >= 64 */
    void (*tree)(void *out, const void *x, int64_t stride, int64_t rows, int64_t cols);
    /* As wf_red_kernels.rows for sums; the rows of the next call, if they are known, are `ahead` elements behind these. */
    void (*rows)(void *acc, const void *const *rows, int64_t nrows, int64_t ncols, int init,
                 int64_t ahead);
    /* *out = the sum of n values, 0 < n <= WF_BLOCK, that lie in rows of `inner`, `stride` apart, from value c of the row at x on;
     * or NULL. */
    void (*pieces)(void *out, const void *x, int64_t c, int64_t inner, int64_t stride, int64_t n);
} wf_sum_kernels;

extern const wf_sum_kernels wf_sum_kernels_sse2[WF_NDTYPE];
extern const wf_sum_kernels wf_sum_kernels_avx2[WF_NDTYPE];
extern const wf_sum_kernels wf_sum_kernels_avx512[WF_NDTYPE];
/* The kernels for values of a dtype on this machine; NULL for integers and bool. */
const wf_sum_kernels *wf_sum_kernels_of(int dtype);

/* As wf_sum_kernels.span, of the squares of f32. */
typedef void (*wf_span_fn)(void *out, const void *x, int64_t n, int64_t stride, int64_t count,
                           int64_t ahead);
extern const wf_span_fn wf_squares_sse2, wf_squares_avx2, wf_squares_avx512;

/* Indexed by wf_red_slot. */
extern const wf_red_kernels wf_red_kernels_sse2[3];
extern const wf_red_kernels wf_red_kernels_avx2[3];
extern const wf_red_kernels wf_red_kernels_avx512[3];

/* The kernels of a compute dtype (WEFT_F32, WEFT_F64, anything else: i64) for this machine. */
const wf_red_kernels *wf_red_kernels_of(int compute);

#endif
