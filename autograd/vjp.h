/*
 * autograd/vjp.h -- derivatives of rows that are not elementwise.
 *
 * A vjp is an ordinary function over tensors: it reads the gradients of the results and the saved
 * values it declared, calls ops, and stores the gradient of each wanted operand. Whether those calls
 * are themselves recorded (create_graph) is the grad mode's business, so one text serves first and
 * higher orders. Every vjp runs in a scope of its own; what it stores is handed out by the engine.
 */
#ifndef AUTOGRAD_VJP_H
#define AUTOGRAD_VJP_H

#include "eager/tensor.h"

typedef struct wf_vjp {
    wf_ctx *c;
    wf_op op;
    const wf_attr *attr;
    int nsrc, ndst;
    weft_tensor g[WF_MAX_DST]; /* gradients of the results; WEFT_NONE: zero */
    bool need[8];              /* operands whose gradient is wanted (the first 8) */
    bool create_graph;
    weft_tensor *dsrc; /* to fill, nsrc entries; WEFT_NONE: no gradient */
    uint32_t node;
} wf_vjp;

/* Saved operand i / result k as a handle; only those in the row's SAVES mask. Absent operands give
 * WF_ABSENT, scalars themselves. On failure the empty handle, with its error recorded. */
weft_tensor wf_vjp_src(wf_vjp *v, int i);
weft_tensor wf_vjp_dst(wf_vjp *v, int k);
/* Types, available whether or not the value was saved; operand i must be wanted or saved. */
void wf_vjp_src_type(wf_vjp *v, int i, wf_type *t);
void wf_vjp_dst_type(wf_vjp *v, int k, wf_type *t);
/* Was operand i given (not absent)? */
bool wf_vjp_has_src(wf_vjp *v, int i);

#define WF_SAVES_NONE 0u
#define WF_SAVES_SRC(i) (1u << (i))
#define WF_SAVES_DST(k) (256u << (k))
/* The types of all operands, tracked or not. */
#define WF_SAVES_TYPES 0x80000000u
/* WF_VJP(sum, WF_SAVES_NONE) { ... return 0 or a weft_status (error already recorded); } */
#define WF_VJP(name, saves)                                                                        \
    const unsigned wf_vjp_saves_##name = (saves);                                                  \
    int wf_vjp_##name(wf_vjp *v)

/* Ways to give operand 0 its gradient, in place of storing it in dsrc[0]; a status (parts.c). */
/* g[0] is the gradient of the elements [start, stop) along an axis, stop > start. Not under create_graph. */
int wf_vjp_add_part(wf_vjp *v, int64_t axis, int64_t start, int64_t stop);
/* INDEX_ADD or SCATTER_ADD of values to the gradient it has, or to zeros. */
int wf_vjp_add_at(wf_vjp *v, wf_op op, const wf_attr *attr, weft_tensor at, weft_tensor values);

/* Sums g down to `dims` (the inverse of broadcasting) in canonical order. */
weft_tensor wf_sum_to(weft_tensor g, int rank, const int64_t *dims);
/* g as dtype dt (itself when it already is). */
weft_tensor wf_as_dtype(weft_tensor g, int dt);

#endif
