/*
 * eager/quick.h -- the short ways of rows: elementwise ones on few elements (quick.c), others (quick_rows.c).
 */
#ifndef EAGER_QUICK_H
#define EAGER_QUICK_H

#include "eager/tensor.h"

/* Rows whose operands meet in one type, of tensors of the host: the others need not ask. */
static inline bool wf_quick_may(const wf_ctx *c, wf_op op, int nsrc)
{
    const wf_row *row = &wf_rows[op];
    return row->kind >= WF_KIND_UNARY && row->kind <= WF_KIND_CHOOSE && row->min_src == nsrc &&
           !c->away;
}
/* Runs an elementwise row whose operands are of one type, row-major and few, outside of traces; *rc is then the status, 0 or
 * with an error recorded. False: nothing was done, and the general way is to be taken. */
bool wf_quick(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
              weft_tensor *dst, int *rc);
/* Every other row of a few tensors of the host, outside of traces. */
enum { WF_QUICK_ROW_SRC = 8 };
static inline bool wf_quick_may_row(const wf_ctx *c, wf_op op, int nsrc)
{
    const wf_row *row = &wf_rows[op];
    return (row->kind < WF_KIND_UNARY || row->kind > WF_KIND_CHOOSE) && nsrc >= row->min_src &&
           nsrc <= WF_QUICK_ROW_SRC && !c->away;
}
/* Runs such a row; *rc is then the status, 0 or with an error recorded. False: nothing was done, and the general way is
 * to be taken. */
bool wf_quick_row(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
                  int ndst, weft_tensor *dst, int *rc);
/* The same into dst's memory; not in a trace. False: nothing was done. It cannot fail. */
bool wf_quick_into(wf_ctx *c, wf_op op, int nsrc, const weft_tensor *src, weft_tensor dst);

/* The trace that is open has short ways of its own (wf_recorder.quick). */
static inline bool wf_quick_in_trace(const wf_ctx *c)
{
    return c->recorder->quick && !c->away;
}

/* Extents and strides of a view, and where it begins, in elements behind the operand. */
typedef struct wf_quick_map {
    int rank;
    int64_t d[WF_INLINE_RANK], st[WF_INLINE_RANK], at;
} wf_quick_map;
/* The map of a view of s; false: it has another than a plain one, or none. */
bool wf_quick_map_view(wf_quick_map *m, wf_op op, const wf_attr *a, wf_slot *s);

#endif
