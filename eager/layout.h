/*
 * eager/layout.h -- channels-last images: when a tensor of rank 4 is one, and which results are.
 *
 * x[n, c, h, w] lies channels-last where its memory is a row-major [n, h, w, c]. Axes of extent 1 are no reason to say so:
 * an image of one pixel lies the same both ways and counts as row-major; of one channel its strides tell, so that a grey
 * image that was made channels-last leads to channels-last results.
 *
 * Invariant: where results lie never changes their elements; only rows of the host keep the order.
 */
#ifndef EAGER_LAYOUT_H
#define EAGER_LAYOUT_H

#include "eager/tensor.h"

/* Axes of a channels-last image in the order of memory, and back. */
#define WF_LAST_AXES                                                                               \
    {                                                                                              \
        0, 2, 3, 1                                                                                 \
    }
#define WF_FIRST_AXES                                                                              \
    {                                                                                              \
        0, 3, 1, 2                                                                                 \
    }

/* Rows that are not elementwise and whose results of rank 4 lie channels-last where their images do. */
static inline bool wf_op_keeps_last(wf_op op)
{
    return op == WF_OP_CONV2D || op == WF_OP_CONV2D_DX || op == WF_OP_BATCH_NORM ||
           op == WF_OP_BATCH_NORM_BWD || op == WF_OP_MAX_POOL2D || op == WF_OP_AVG_POOL2D ||
           op == WF_OP_AVG_POOL2D_BWD;
}
/* The operand that is the image of such a row; of the others here that of a cast. */
static inline int wf_image_of(wf_op op)
{
    return op == WF_OP_BATCH_NORM_BWD ? 1 : 0; /* there the gradient is the first */
}

/* A result of these extents that is to lie channels-last does: it has elements, and more than one pixel. */
static inline bool wf_can_lie_last(int rank, const int64_t *d)
{
    return rank == 4 && d[0] > 0 && d[1] > 0 && d[2] > 0 && d[3] > 0 && (d[2] > 1 || d[3] > 1);
}
static inline bool wf_lies_last(int rank, const int64_t *d, const int64_t *st)
{
    return rank == 4 && st[1] == 1 && st[3] == d[1] && st[2] == d[1] * d[3] &&
           (d[0] == 1 || st[0] == d[1] * d[2] * d[3]) && wf_can_lie_last(rank, d);
}
static inline void wf_last_strides(const int64_t *d, int64_t *st)
{
    st[1] = 1;
    st[3] = d[1];
    st[2] = d[1] * d[3];
    st[0] = st[2] * d[2];
}

static inline bool wf_slot_lies_last(wf_slot *s)
{
    return s->rank == 4 && wf_lies_last(4, wf_dims(s), wf_strides(s));
}
/* The slot covers its whole storage, channels-last. */
static inline bool wf_slot_is_whole_last(wf_slot *s)
{
    return s->st && s->offset == 0 && wf_slot_lies_last(s) &&
           (size_t)wf_slot_numel(s) * wf_dtype_size(s->dtype) == s->st->nbytes;
}
static inline bool wf_view_lies_last(const wf_view *v)
{
    return wf_lies_last(v->rank, v->dims, v->strides);
}
/* v[n, c, h, w] as [n, h, w, c]. */
static inline wf_view wf_view_last(const wf_view *v)
{
    static const int order[4] = WF_LAST_AXES;
    wf_view t = *v;
    for (int i = 0; i < 4; i++) {
        t.dims[i] = v->dims[order[i]];
        t.strides[i] = v->strides[order[i]];
    }
    return t;
}
/* Elements of one tensor at one address, as expanding makes: it has no order of its own. */
static inline bool wf_slot_repeats(wf_slot *s)
{
    const int64_t *d = wf_dims(s), *st = wf_strides(s);
    bool repeats = false;
    for (int i = 0; i < s->rank; i++) {
        repeats |= st[i] == 0 && d[i] > 1;
    }
    return repeats;
}
/* Of an elementwise row with extents d: do all tensors that have them (and do not repeat) lie channels-last, one at least?
 * slot NULL: no tensor. */
static inline bool wf_all_lie_last(int nsrc, wf_slot *const *slot, int rank, const int64_t *d)
{
    bool any = false;
    for (int i = 0; rank == 4 && i < nsrc; i++) {
        wf_slot *s = slot[i];
        const int64_t *e = s && s->rank == 4 ? wf_dims(s) : NULL;
        if (e && e[0] == d[0] && e[1] == d[1] && e[2] == d[2] && e[3] == d[3]) {
            const bool last = wf_slot_lies_last(s);
            if (!last && !wf_slot_repeats(s)) {
                return false;
            }
            any |= last;
        }
    }
    return any;
}
/* Of a row that is not: do its results of rank 4 lie channels-last? out: the first result. */
static inline bool wf_row_lies_last(wf_op op, int nsrc, wf_slot *const *slot, const wf_type *out)
{
    if (op == WF_OP_VJP) {
        return wf_all_lie_last(nsrc, slot, out->rank, out->dims);
    }
    if (op != WF_OP_CAST && !wf_op_keeps_last(op)) {
        return false;
    }
    wf_slot *image = slot[wf_image_of(op)];
    return image && wf_slot_lies_last(image);
}

#endif
