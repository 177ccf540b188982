/*
 * jit/passes/layout.h -- views become index maps: where the elements of every value of a function lie.
 *
 * A value is memory of its own (its root is the value itself, row-major, or channels-last where a convolution, a pooling
 * or a norm of the host keeps that order of its image; rows begin at multiples of 16 bytes where a large product of a device wants
 * them to) or a map on the memory of its
 * root: strides that are known when a plan is built, and an offset with a part that each recording
 * brings (starts of slices, offsets of as_strided, diagonals: one term each).
 *
 * Invariants: a root is never a view; maps name elements inside the root's memory if the recorded
 * attributes were checked, which recording has done; strides and offsets are in elements.
 */
#ifndef JIT_PASSES_LAYOUT_H
#define JIT_PASSES_LAYOUT_H

#include "eager/view.h"
#include "jit/ir/ir.h"

typedef enum wf_term_kind { WF_TERM_START, WF_TERM_OFFSET, WF_TERM_DIAGONAL } wf_term_kind;

/* A part of an offset that is read from instruction ins (of the function laid out) at each run. */
typedef struct wf_term {
    uint32_t ins;
    uint32_t kind;
    int64_t a, b; /* strides it multiplies */
} wf_term;

typedef struct wf_map_of {
    wf_val root; /* 0: no memory (a scalar slot, or an absent operand) */
    uint8_t dtype, rank;
    uint16_t nterms;
    uint32_t shape; /* words[shape..]: extents, then strides */
    uint32_t term;  /* terms[term..] */
    int64_t offset;
} wf_map_of;

typedef struct wf_layout {
    const wf_fn *f;
    wf_map_of *map; /* of value v at [v]; [0] is absent */
    int64_t *words;
    uint32_t nwords, capwords;
    wf_term *terms;
    uint32_t nterms, capterms;
    /* NULL, or of root v: the instructions that make it out of scalars alone, 0 if it is not so made. Groups read
     * such a value as they read a scalar, and compute it again. */
    uint8_t *uniform;
    bool device;
    bool draws; /* random rows may be members of groups */
    bool
        aligned; /* some root has rows that begin at multiples of WF_ROW_ALIGN and elements between them that nothing names */
} wf_layout;

/* Rows that change places of their first operand and keep the rest: a kernel that finds the operand in its result's memory
 * does not copy it. */
static inline bool wf_op_replaces(wf_op op)
{
    return op == WF_OP_UPDATE || op == WF_OP_INDEX_ADD || op == WF_OP_SCATTER_ADD;
}

/* Lays out f, for the host or a device; align: rows may be aligned. 0 or a status; wf_layout_free in either case. */
int wf_layout_init(wf_layout *l, const wf_fn *f, bool device, bool align, wf_why *why);
void wf_layout_free(wf_layout *l);

static inline const int64_t *wf_map_dims(const wf_layout *l, const wf_map_of *m)
{
    return l->words + m->shape;
}
static inline const int64_t *wf_map_strides(const wf_layout *l, const wf_map_of *m)
{
    return l->words + m->shape + m->rank;
}
/* Bytes of root v. */
int64_t wf_root_bytes(const wf_layout *l, wf_val v);
/* The map as a view of memory at NULL. */
void wf_map_view(const wf_layout *l, const wf_map_of *m, wf_view *v);
/* Does the value have a fresh row-major home (true for views that are the whole root as well)? */
bool wf_map_is_whole(const wf_layout *l, const wf_map_of *m);
/* m read with broadcast extents. 0 or WEFT_ENOMEM. */
int wf_map_expand(wf_layout *l, const wf_map_of *m, int rank, const int64_t *dims, wf_map_of *out);
/* m read in row-major order with other extents: 0, 1 if only a copy can be, or WEFT_ENOMEM. */
int wf_map_reshape(wf_layout *l, const wf_map_of *m, int rank, const int64_t *dims, wf_map_of *out);
/* Elements [start, start + n) of m along one axis. 0 or WEFT_ENOMEM. */
int wf_map_narrow(wf_layout *l, const wf_map_of *m, int axis, int64_t start, int64_t n,
                  wf_map_of *out);
/* A map over the dims that `axes` does not name, as one over all dims: stride 0 along the axes. 0 or
 * WEFT_ENOMEM. */
int wf_map_lift(wf_layout *l, const wf_map_of *m, int rank, const int64_t *dims, unsigned axes,
                wf_map_of *out);
/* Equal memory in an equal order. */
bool wf_map_same(const wf_layout *l, const wf_map_of *a, const wf_map_of *b);
/* A row-major map of root. 0 or WEFT_ENOMEM. */
int wf_map_dense(wf_layout *l, wf_val root, const wf_type *t, wf_map_of *out);

/* The offset a term contributes under an attribute. */
static inline int64_t wf_term_value(const wf_term *t, const wf_attr *at)
{
    int64_t d = t->kind == WF_TERM_OFFSET ? at->dyn[at->n_dyn - 1] : at->dyn[0];
    return d >= 0 || t->kind == WF_TERM_OFFSET ? d * t->a : -d * t->b;
}

#endif
