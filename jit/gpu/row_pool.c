/*
 * jit/gpu/row_pool.c -- pooling and the gradient of the mean: a thread an element, windows walked as eager/pool2d.c does.
 */
#include "eager/dense.h"
#include "jit/gpu/impl.h"

int wf_gpu_row_pool(int ordinal, wf_exec *e)
{
    const bool max = e->op == WF_OP_MAX_POOL2D, back = e->op == WF_OP_AVG_POOL2D_BWD;
    const wf_view *in = &e->src[0], *out = &e->dst[0];
    const wf_view *x = back ? out : in, *y = back ? in : out; /* input plane, output plane */
    const int64_t *ints = e->attr->ints;
    wf_gpu_hand h = {max    ? "max_pool"
                     : back ? "avg_pool_bwd"
                            : "avg_pool",
                     1,
                     {in->dtype},
                     .work = wf_view_numel(out)};
    const uint64_t words[] = {wf_gpu_word(out->data),
                              wf_gpu_word(in->data),
                              max ? wf_gpu_word(e->dst[1].data) : 0,
                              (uint64_t)h.work,
                              (uint64_t)x->dims[2],
                              (uint64_t)x->dims[3],
                              (uint64_t)y->dims[2],
                              (uint64_t)y->dims[3],
                              (uint64_t)ints[0],
                              (uint64_t)ints[1],
                              (uint64_t)ints[2],
                              (uint64_t)ints[3],
                              (uint64_t)ints[4],
                              (uint64_t)ints[5],
                              max ? (uint64_t)ints[6] : 1,
                              max ? (uint64_t)ints[7] : 1,
                              (e->attr->flags & WF_FLAG_COUNT_PAD) != 0,
                              (uint64_t)in->strides[0],
                              (uint64_t)in->strides[1],
                              (uint64_t)in->strides[2],
                              (uint64_t)in->strides[3],
                              (uint64_t)in->dims[1],
                              !max && (e->attr->flags & WF_FLAG_ADAPTIVE) != 0};
    memcpy(h.w, words, sizeof words);
    return wf_gpu_hand_run(ordinal, &h, e->why);
}
