/*
 * eager/quick.h -- the short way of elementwise rows on few elements.
 */
#ifndef EAGER_QUICK_H
#define EAGER_QUICK_H

#include "eager/tensor.h"

/* Rows whose operands meet in one type, of tensors of the host: the others need not ask. */
static inline bool wf_quick_may(const wf_ctx *c, wf_op op, int nsrc)
{
    const wf_row *row = &wf_rows[op];
    return row->kind >= WF_KIND_UNARY && row->kind < WF_KIND_CHOOSE && row->min_src == nsrc &&
           !c->away;
}
/* Runs an elementwise row whose operands are of one type, row-major and few, or lets the trace record it; *rc is then the status, 0 or with an
 * error recorded. False: nothing was done, and the general way is to be taken. */
bool wf_quick(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
              weft_tensor *dst, int *rc);
/* The same into dst's memory; not in a trace. False: nothing was done. It cannot fail. */
bool wf_quick_into(wf_ctx *c, wf_op op, int nsrc, const weft_tensor *src, weft_tensor dst);

#endif
