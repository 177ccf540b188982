/*
 * eager/exec.h -- the contract between dispatch and the kernels of non-elementwise rows.
 *
 * Dispatch checks and infers, brings operands to the row's dtypes, allocates results (contiguous or, of rows that
 * wf_op_keeps_last names, channels-last; never overlapping an operand) and calls wf_exec_<exec>. Kernels take any strides on operands, may
 * use wf_parallel_for and wf_alloc scratch, split work by shape only and give the same bits at any
 * thread count and vector width. A data-dependent error (a bad index) fills `why` and returns its
 * code; results are then discarded.
 */
#ifndef EAGER_EXEC_H
#define EAGER_EXEC_H

#include "eager/view.h"
#include "jit/ir/op.h"

/* What is to be done with rows [first, first + count) of a result, seen as a matrix of its last axis, when they are
 * finished. Several threads may call it, for disjoint rows; it cannot fail here and reports through arg. */
typedef struct wf_epilogue {
    void (*rows)(void *arg, int64_t first, int64_t count);
    void *arg;
} wf_epilogue;

typedef struct wf_exec {
    wf_op op;
    int nsrc, ndst;
    const wf_view
        *src; /* src[i].data == NULL && dtype == WEFT_DTYPE_DEFAULT: absent optional operand */
    wf_view *
        dst; /* dims and dtype as inferred, uninitialised memory: contiguous, or channels-last of rows that keep that */
    const wf_attr *attr;
    wf_why *why;
    const wf_epilogue
        *after; /* NULL, or a kernel may call it for all rows, and sets `finished` then */
    bool finished;
} wf_exec;

/* Returns 0 or a weft_status with e->why filled. */
typedef int (*wf_exec_fn)(wf_exec *e);

/* The row's kernel: any row but views and the elementwise ones. e->why->rule must be empty. */
int wf_exec_row(wf_exec *e);

/* Elementwise rows: dst may have any strides (in-place and views write through it); operand i has
 * dims broadcastable to dst->dims with stride 0 already inserted, any dtype that a tile load converts to `compute`.
 * dst dtype: rounding cast from `compute` (or from bool for predicates and comparisons) on store. */
int wf_exec_map(wf_op op, int compute, const wf_view *dst, int nsrc, const wf_view *src);
/* The vjp of operand `which` as one fused pass: srcs are g, operands, y (unused ones may be NULL data). */
int wf_exec_vjp(wf_op op, int which, int compute, const wf_view *dst, int nsrc, const wf_view *src);
/* Bit i set: the vjp of operand `which` reads operand i; bit 7: reads y; bit 6: reads g. */
unsigned wf_vjp_reads(wf_op op, int which);
/* Strided, casting copy dst := src (same dims). Parallel, cache-blocked transposes, non-temporal when large. */
void wf_copy(const wf_view *dst, const wf_view *src);
/* Elements of row-major operands that it copies by one call of a cast kernel. */
enum { WF_COPY_SMALL = 1 << 17 };
/* The same of n > 0 of them, row-major and apart: one call of the kernel, or one for each thread that is awake. */
void wf_cast_small(int to, void *dst, int from, const void *src, int64_t n);
/* dst := the value v of dtype compute-converted (a fill); v points to one element of dst's dtype. */
void wf_fill(const wf_view *dst, const void *v);

/* The kernel of a row that is not elementwise (a view's only fails); NULL for elementwise rows and leaves. */
wf_exec_fn wf_exec_of(wf_op op);

#define WF_EXEC_DECL(fn) int wf_exec_##fn(wf_exec *e)

#endif
