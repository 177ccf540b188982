/*
 * eager/call.h -- an op on its way through dispatch; shared by the files that dispatch; the tracer takes its
 * promotion rule from here too.
 *
 * Invariant: between wf_call_open and wf_call_close every operand is pinned.
 */
#ifndef EAGER_CALL_H
#define EAGER_CALL_H

#include "eager/exec.h"
#include "eager/tensor.h"

enum { SMALL_SRC = 8 };

/* An op on its way: operands pinned, scalars still immediate (slot NULL). */
typedef struct wf_call {
    wf_ctx *c;
    wf_op op;
    const wf_attr *attr;
    int nsrc;
    const weft_tensor *src;
    wf_slot **slot;
    uint16_t *held; /* wf_hold */
    wf_slot *slot_[SMALL_SRC];
    uint16_t held_[SMALL_SRC];
    int most; /* operands that there is other room for */
    bool tracked;
    uint8_t device; /* of operands and results */
    bool last;      /* results lie channels-last where they can (eager/layout.h) */
    wf_why why;
} wf_call;

/* Pins operands. Returns 0, a status with why filled, or -1 with *failed set to an operand that is
 * already an error. */
int wf_call_open(wf_call *k, wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc,
                 const weft_tensor *src, weft_tensor *failed);
void wf_call_close(wf_call *k);
/* The type an elementwise row runs in, from the join of its tensors (0: none) and the highest kind of its
 * scalars (-1: none): weak scalars lift the kind only, integers of a floating-point row go to f32. */
int wf_call_settle_type(wf_op op, int strong, int weak);
/* The common element type of the value operands from `first` on; 0 = error in why. */
int wf_call_join_types(wf_call *k, int first);
int wf_call_join_shapes(wf_call *k, wf_type *out, bool *same);
/* Does bool or the integer type hold v? */
static inline bool wf_dtype_holds(int dt, int64_t v)
{
    const int bits = 8 * (int)wf_dtype_size(dt);
    return dt == WEFT_BOOL ? (uint64_t)v <= 1
           : dt == WEFT_U8 ? (uint64_t)v <= UINT8_MAX
                           : (int64_t)((uint64_t)v << (64 - bits)) >> (64 - bits) == v;
}
/* Is one of the numbers among operands that meet in join an integer that join, an integer type, does not hold? */
static inline bool wf_numbers_stray(int join, int nsrc, const weft_tensor *src)
{
    for (int i = 0; i < nsrc && join != WEFT_I64; i++) {
        if (src[i].slot == WF_SCALAR_SLOT && src[i].context == WF_SCALAR_INT &&
            !wf_dtype_holds(join, (int64_t)src[i].serial)) {
            return true;
        }
    }
    return false;
}
/* Then: k->src becomes held, where they fit or wrap; returns the type to run in, or 0 with why filled (weak.c). */
WF_COLD int wf_call_fit_numbers(wf_call *k, int first, int join, weft_tensor *held);
/* The number of bool or the integer type next to v. */
int64_t wf_dtype_clamped(int dt, int64_t v);
/* The error of a number that is no integer of dt; `tensor`: beside a tensor that could be cast. */
WF_COLD int wf_refuse_number(wf_why *why, int64_t v, int dt, bool tensor);
/* Operand i with the result's extents (flat: one axis of n); scalars are written to *scalar. */
void wf_call_operand_view(wf_call *k, int i, int dt, bool flat, int64_t n, const wf_type *out,
                          wf_view *v, void *scalar);
/* Element type of an elementwise row's result when its operands are `join`. */
static inline int wf_call_output_dtype(wf_op op, int join)
{
    int kind = wf_rows[op].kind;
    return kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE ? WEFT_BOOL : join;
}
/* A result on the call's device: row-major, or channels-last if k->last says so, uninitialised. NULL with why filled. */
wf_slot *wf_call_result(wf_call *k, const wf_type *t, weft_tensor *h);
/* The same in st, which is taken over; NULL: there was no memory for it. */
wf_slot *wf_call_result_in(wf_call *k, const wf_type *t, wf_storage *st, weft_tensor *h);
/* Records the executed op on the tape, if gradients flow through it. 0 or a status with why filled. */
int wf_op_record(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc, wf_slot *const *slot,
                 const weft_tensor *src, int ndst, wf_slot *const *dst, wf_why *why);
int wf_call_record(wf_call *k, int ndst, wf_slot *const *dst);
/* Records the call's error. */
weft_tensor wf_call_fail(wf_call *k);
int wf_call_fail_all(wf_call *k, int ndst, weft_tensor *dst);
/* An elementwise row (elementwise.c) and every other one (dispatch_rows.c), operands open. The empty handle, or a
 * status, with the error recorded. */
weft_tensor wf_call_elementwise(wf_call *k);
int wf_call_row(wf_call *k, int ndst, weft_tensor *dst);
/* -- on a device (eager/device_call.c) -- */
/* Sets k->device. 0 or a status with why filled: operands on two devices. */
int wf_call_settle_device(wf_call *k);
/* A running trace hears that ops on this device follow. */
int wf_call_enter_device(wf_call *k);
/* Before the call's work is queued: the thread's stream comes behind what other streams did to the operands, and other
 * streams will come behind what it does to the results. 0 or a status with why filled. */
int wf_call_use(wf_call *k, int ndst, wf_slot *const *dst);
/* dst and e->dst are views of the results r. */
int wf_call_map_on_device(wf_call *k, int compute, wf_slot *r, const wf_view *dst,
                          const wf_view *v);
int wf_call_row_on_device(wf_call *k, wf_slot *const *r, wf_exec *e);
/* The recorder's map; numbers of the host (0-d tensors) are recorded as scalars. */
int wf_call_record_numbers(wf_call *k, int join, wf_slot *dst);
/* A number of the host that gradients flow to, beside tensors of a device: it is moved there, on the record. */
bool wf_call_has_tracked_number(const wf_call *k);
weft_tensor wf_call_move_numbers(wf_call *k);
bool wf_call_is_transfer(const wf_call *k);
weft_tensor wf_call_transfer(wf_call *k);
double wf_scalar_f64(weft_tensor t);
/* Writes scalar t as an element of dtype dt (a compute type or bool). */
void wf_scalar_store(weft_tensor t, int dt, void *out);
/* The 0-d tensor of a scalar handle (bool, i64 or f32). */
weft_tensor wf_scalar_tensor(weft_tensor t);

#endif
