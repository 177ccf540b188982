/*
 * eager/cpu/conv_image.h -- activations of a convolution as views, for wf_copy and wf_exec_map: whoever wants an image in another
 * layout, type or with room around it says where its elements are, and those move them.
 */
#ifndef EAGER_CPU_CONV_IMAGE_H
#define EAGER_CPU_CONV_IMAGE_H

#include "eager/cpu/gemm.h"
#include "eager/dense.h"
#include "eager/layout.h"

/* src, or (result) dst of d at `data`: [n][c][h][w], wherever its layout puts them. */
static inline wf_view wf_conv_image(const wf_conv_desc *d, int result, const void *data)
{
    const int64_t c = result ? d->o : d->c, h = result ? d->oh : d->h, w = result ? d->ow : d->w;
    const int nhwc = (d->layout & (result ? WF_CONV_DST_NHWC : WF_CONV_SRC_NHWC)) != 0;
    return (wf_view){.data = (void *)(uintptr_t)data,
                     .dtype = (uint8_t)d->dtype,
                     .rank = 4,
                     .dims = {d->n, c, h, w},
                     .strides = {c * h * w, nhwc ? 1 : h * w, nhwc ? w * c : w, nhwc ? c : 1}};
}

/* The same elements as [n][h][w][c]. */
static inline wf_view wf_conv_pixels(const wf_conv_desc *d, int result, const void *data)
{
    const wf_view v = wf_conv_image(d, result, data);
    return wf_view_last(&v);
}

/* v's elements, which may be of another type, in row-major order as dtype dt. */
static inline int wf_conv_dense(const wf_view *v, int dt, wf_dense *out)
{
    return wf_dense_of(v, dt, out, NULL) ? WF_GEMM_NOMEM : WF_GEMM_OK;
}

/* Room for that: v's own memory where it is that already. */
static inline int wf_conv_room(const wf_view *v, int dt, wf_dense *out)
{
    *out = (wf_dense){.data = v->data};
    if (v->dtype == dt && wf_view_is_contiguous(v))
        return WF_GEMM_OK;
    out->bytes = (size_t)wf_view_numel(v) * wf_dtype_size(dt);
    out->data = out->owned = wf_scratch(out->bytes);
    return out->owned ? WF_GEMM_OK : WF_GEMM_NOMEM;
}

/* v := what is in its room, of dtype dt, plus bias[c] (NULL: none) along v's `axis`; rounded once. */
static inline int wf_conv_store(const wf_view *v, int axis, int dt, const wf_dense *room,
                                const void *bias)
{
    wf_view from[2] = {wf_view_dense(room->data, dt, v->rank, v->dims), *v};
    if (!bias) {
        if (room->owned)
            wf_copy(v, &from[0]);
        return WF_GEMM_OK;
    }
    from[1].data = (void *)(uintptr_t)bias;
    for (int i = 0; i < v->rank; i++)
        from[1].strides[i] = i == axis;
    return wf_exec_map(WF_OP_ADD, dt, v, 2, from) ? WF_GEMM_NOMEM : WF_GEMM_OK;
}

#endif
