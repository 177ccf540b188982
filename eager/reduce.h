/*
 * eager/reduce.h -- the reduction engine that rows, norms and losses share.
 *
 * A job reduces map(x, y, p, q) over a set of axes in the canonical order of docs/reductions.md and
 * leaves one compute-type value per kept index (row-major over the kept axes).
 */
#ifndef EAGER_REDUCE_H
#define EAGER_REDUCE_H

#include <stdbool.h>

#include "eager/exec.h"
#include "eager/kernels/reduce.h"

typedef struct wf_red_job {
    wf_red op;
    wf_map map;
    int compute;       /* WEFT_F32, WEFT_F64 or WEFT_I64 */
    bool truth;        /* i64 only: reduce truth values of x */
    unsigned axes;     /* bit i: axis i is reduced */
    const wf_view *x;  /* any dtype that loads as `compute`, any strides; no reduced extent is 0 */
    const wf_view *y;  /* second operand of x's dims, or NULL */
    const void *p, *q; /* parameters of the map, one per kept index, or one for all if one_param */
    bool one_param;
    void *out; /* one compute value per kept index */
} wf_red_job;

/* Axes of x (and y), split into kept and reduced ones, collapsed where strides allow. */
typedef struct wf_red_axis_split {
    int nk, nr;                                                /* collapsed kept and reduced axes */
    int64_t kd[WF_MAX_RANK], kx[WF_MAX_RANK], ky[WF_MAX_RANK]; /* extents, strides of x and y */
    int64_t rd[WF_MAX_RANK], rx[WF_MAX_RANK], ry[WF_MAX_RANK];
    int64_t kept, reduced; /* products */
} wf_red_axis_split;
/* Sets what its counts say is there; y may be NULL. */
void wf_red_split(wf_red_axis_split *g, const wf_view *x, const wf_view *y, unsigned axes);
/* Adds the element offsets of flat index i over n axes d with strides x and y to *ox and *oy. */
void wf_red_locate(int64_t i, int n, const int64_t *d, const int64_t *x, const int64_t *y,
                   int64_t *ox, int64_t *oy);

/* rows x n elements of v, from `offset` on, `step` from row to row and `stride` in a row: their values, or truth values (i64), one
 * behind the other at dst. In all at most 64 KiB before and after the conversion. */
void wf_red_load(int compute, bool truth, void *dst, const wf_view *v, int64_t offset, int64_t step,
                 int64_t stride, int64_t rows, int64_t n);

/* 0 or WEFT_ENOMEM. */
int wf_red_run(const wf_red_job *job);
/* The same for what is one task, without a map: out[i] = the reduction of x[i * stride .. + n) for i < rows, or of column i of
 * n rows, `stride` apart, for i < cols; compute values. x: of any dtype that is summed as it lies in memory, else of a compute type.
 * False: it is another case, and nothing was done. */
bool wf_red_rows(wf_red op, int dtype, void *out, const void *x, int64_t n, int64_t rows,
                 int64_t stride);
bool wf_red_columns(wf_red op, int dtype, void *out, const void *x, int64_t n, int64_t cols,
                    int64_t stride);

/* out[i] /= d, then the square root if asked; of a floating-point compute type. */
void wf_red_divide(void *out, int compute, double d, bool root, int64_t n);

/* WEFT_F32 for halves and f32, WEFT_F64 for f64, WEFT_I64 for integers and bool. */
int wf_red_compute(int dtype);
/* The axes of attr (ints; none = all of rank) as a bit mask. */
unsigned wf_red_axes(const wf_attr *attr, int rank);
/* Bytes of one compute value. */
size_t wf_red_size(int compute);
/* Fills why with "out of memory" and returns WEFT_ENOMEM. */
int wf_red_nomem(wf_why *why, int64_t bytes);

/* Short rows are turned, many at once, and go as columns: the longest row; bytes of values at one stage, of which three are in
 * the first cache; the most rows, which do not lie powers of two apart. */
enum { WF_TURNED_ROW = 63, WF_TURNED_BYTES = 8 << 10, WF_TURNED_MOST = 240 };

/* So many rows of n values of `size` bytes at once, `least` or more. */
static inline int64_t wf_turned_rows(int64_t n, size_t size, int64_t least)
{
    const int64_t w = WF_TURNED_BYTES / (int64_t)size / n / 16 * 16;
    return w < least ? least : w < WF_TURNED_MOST ? w : WF_TURNED_MOST;
}

#endif
