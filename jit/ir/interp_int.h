/*
 * jit/ir/interp_int.h -- what the parts of the reference interpreter share.
 *
 * A scalar is the pattern of one element as it lies in memory, in the low bits of a uint64_t. Rows run
 * on them through cached kernel-IR programs.
 *
 * Invariant: a failed allocation sets m->failed; what is computed after it is thrown away.
 */
#ifndef JIT_IR_INTERP_INT_H
#define JIT_IR_INTERP_INT_H

#include "jit/ir/interp.h"
#include "jit/ir/kir.h"

typedef struct wf_in_prog wf_in_prog;
enum { WF_IN_BUCKETS = 1024, WF_IN_LINES = 3 };

struct wf_interp {
    wf_primitive primitive;
    wf_in_prog *progs[WF_IN_BUCKETS];
    bool failed;
    wf_why *why;
};

/* One call of a row. */
typedef struct wf_in_call {
    wf_interp *m;
    wf_op op;
    const wf_attr *attr;
    int nsrc;
    const wf_array *src;
    wf_array *dst;
    uint64_t *line
        [WF_IN_LINES]; /* scratch of a row: each has room for the largest operand or result; zeros */
    int rc;            /* 0, or the status of what was found, with m->why */
} wf_in_call;
typedef void wf_in_fn(wf_in_call *k);

/* -- scalars -------------------------------------------------------------------------------------- */
static inline uint64_t wf_in_get(const wf_array *a, int64_t i)
{
    return wf_kir_peek(a->data, wf_kir_storage(a->type.dtype), i);
}
static inline void wf_in_put(wf_array *a, int64_t i, uint64_t v)
{
    wf_kir_poke(a->data, wf_kir_storage(a->type.dtype), i, v);
}
/* The scalar in another element type, rounded once. */
uint64_t wf_in_cast(wf_interp *m, int from, int to, uint64_t v);
/* The same of a number. */
uint64_t wf_in_num(wf_interp *m, int dtype, double v);
/* An elementwise row on scalars of one compute type (predicates and comparisons give bool). */
uint64_t wf_in_row(wf_interp *m, wf_op op, int compute, uint64_t a, uint64_t b, uint64_t c);
/* Element i of a converted to dtype. */
static inline uint64_t wf_in_load(wf_interp *m, const wf_array *a, int64_t i, int dtype)
{
    return wf_in_cast(m, a->type.dtype, dtype, wf_in_get(a, i));
}
/* v of `dtype` rounded into element i. */
static inline void wf_in_store(wf_interp *m, wf_array *a, int64_t i, int dtype, uint64_t v)
{
    wf_in_put(a, i, wf_in_cast(m, dtype, a->type.dtype, v));
}
/* f32 for halves and f32, f64, i64 for integers and bool. */
int wf_in_compute(int dtype);

/* -- indices --------------------------------------------------------------------------------------- */
/* Row-major strides of t. */
void wf_in_strides(const wf_type *t, int64_t *strides);
/* Offset of flat index i over dims, through strides. */
int64_t wf_in_offset(int64_t i, int rank, const int64_t *dims, const int64_t *strides);

/* -- rows ------------------------------------------------------------------------------------------ */
wf_in_fn wf_in_reduce, wf_in_argreduce, wf_in_scan, wf_in_softmax, wf_in_norm, wf_in_norm_bwd,
    wf_in_cross_entropy;
wf_in_fn wf_in_concat, wf_in_gather, wf_in_write, wf_in_pad_mode_bwd, wf_in_strided_grad,
    wf_in_one_hot, wf_in_add_rows, wf_in_sort, wf_in_pool, wf_in_avg_pool_bwd, wf_in_create;

#endif
