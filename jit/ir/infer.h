/*
 * jit/ir/infer.h -- what inference functions share: signatures and checks that fill `why`.
 *
 * Invariants: every function here returns 0 or a weft_status with *why filled; a rule quotes the
 * numbers and the axis or operand, a hint says the remedy. wf_infer has checked the operand count
 * before it calls a row's function, and checks the element count of every result after it.
 */
#ifndef JIT_IR_INFER_H
#define JIT_IR_INFER_H

#include <inttypes.h>

#include "jit/ir/op.h"

/* The head of an inference function; unused parameters are fine. */
#define WF_INFER(fn)                                                                               \
    int wf_infer_##fn(                                                                             \
        __attribute__((unused)) wf_op op, __attribute__((unused)) const wf_attr *attr,             \
        __attribute__((unused)) int nsrc, __attribute__((unused)) const wf_type *src,              \
        __attribute__((unused)) wf_type *dst, __attribute__((unused)) wf_why *why)

/* "first", "second", ...: operand i of a sentence. */
const char *wf_ordinal(int i);
/* The attributes hold at least / exactly these counts (a negative count is not checked). */
int wf_check_attr(const wf_attr *attr, int n_ints, int n_dyn, int n_flt, wf_why *why);
/* 0 <= axis < rank. */
int wf_check_axis(int64_t axis, int rank, wf_why *why);
/* n axes, each in range, no two equal. */
int wf_check_axes(const int64_t *axes, int n, int rank, wf_why *why);
/* The operand is in the WF_DT_* mask; `what` describes the mask ("a floating-point type"). */
int wf_check_dtype(const wf_type *t, int operand, unsigned mask, const char *what, wf_why *why);
/* Operands a and b have one element type. */
int wf_check_same_dtype(const wf_type *src, int a, int b, wf_why *why);
/* The operand holds indices: i32 or i64. */
int wf_check_index(const wf_type *src, int operand, wf_why *why);
/* The operand has this rank. */
int wf_check_rank(const wf_type *src, int operand, int rank, const char *layout, wf_why *why);
/* The result's dtype column: dt is one of the enum (not DEFAULT). */
int wf_check_result_dtype(int dt, wf_why *why);
/* Extents are >= 0 and there are at most WF_MAX_RANK of them; fills dst's rank and dims. */
int wf_check_dims(wf_type *dst, const int64_t *dims, int rank, wf_why *why);
/* Elements of the slice [start, stop) by step (normalised: see WF_INFER(slice)) of extent n. */
int wf_slice_length(int64_t n, int64_t start, int64_t stop, int64_t step, int64_t *length,
                    wf_why *why);
/* The map dims/strides/offset stays inside [0, numel). */
int wf_check_map(int rank, const int64_t *dims, const int64_t *strides, int64_t offset,
                 int64_t numel, wf_why *why);

static inline bool wf_type_present(const wf_type *t)
{
    return t->dtype != WEFT_DTYPE_DEFAULT;
}

#endif
