/*
 * jit/gpu/row_conv.c -- conv2d and its gradients, by cuDNN where it is. Without it they go through the host.
 *
 * Images are passed as they lie when that is NCHW or NHWC memory, else copied; weights are copied unless they are
 * dense. A bias is spread over the result first and added to.
 */
#include "eager/cuda/dnn.h"
#include "eager/dense.h"
#include "jit/gpu/impl.h"

/* v as an image that the library takes; *out may be a copy. */
static int image(wf_gpu_temps *t, const wf_view *v, wf_view *out, wf_why *why)
{
    static const int order[4] = {0, 2, 3, 1};
    wf_view turned = *v;
    for (int i = 0; i < 4; i++) {
        turned.dims[i] = v->dims[order[i]];
        turned.strides[i] = v->strides[order[i]];
    }
    if (!wf_view_is_contiguous(v) && wf_view_is_contiguous(&turned)) {
        wf_view_make_dense(&turned); /* also where an extent is 1 */
        *out = *v;
        for (int i = 0; i < 4; i++)
            out->strides[order[i]] = turned.strides[i];
        return 0;
    }
    return wf_gpu_dense(t, v, v->dtype, out, why);
}

static void describe(wf_cuda_conv *c, const wf_attr *attr, const wf_view *x, const wf_view *w,
                     const wf_view *y)
{
    for (int i = 0; i < 4; i++) {
        c->x[i] = x->dims[i];
        c->w[i] = w->dims[i];
        c->y[i] = y->dims[i];
        c->x_strides[i] = x->strides[i];
        c->y_strides[i] = y->strides[i];
    }
    for (int i = 0; i < 2; i++) {
        c->stride[i] = attr->ints[i];
        c->pad[i] = attr->ints[2 + i];
        c->dilation[i] = attr->ints[4 + i];
    }
    c->groups = attr->ints[6];
    c->x_data = x->data;
    c->w_data = w->data;
    c->y_data = y->data;
}

/* y := bias along its second axis. */
static int spread(int ordinal, const wf_view *y, const wf_view *bias, wf_why *why)
{
    wf_view b = *y;
    b.data = bias->data;
    b.dtype = bias->dtype;
    memset(b.strides, 0, sizeof b.strides);
    b.strides[1] = bias->strides[0];
    return wf_gpu_copy(ordinal, y, &b, why);
}

static int run(wf_gpu_temps *t, wf_exec *e)
{
    const wf_view *bias = e->nsrc > 2 && e->src[2].data ? &e->src[2] : NULL;
    wf_cuda_conv c = {.dtype = e->dst[0].dtype, .add = bias != NULL};
    wf_view a = {0}, b = {0};
    const wf_view *d = &e->dst[0];
    int status = image(t, &e->src[0], &a, e->why);
    if (status)
        return status;
    if (e->op == WF_OP_CONV2D_DW) {
        c.what = WF_CUDA_CONV_DW;
        status = image(t, &e->src[1], &b, e->why);
        describe(&c, e->attr, &b, d, &a);
    } else {
        c.what = e->op == WF_OP_CONV2D ? WF_CUDA_CONV_FORWARD : WF_CUDA_CONV_DX;
        status = wf_gpu_dense(t, &e->src[1], c.dtype, &b, e->why);
        if (c.what == WF_CUDA_CONV_FORWARD)
            describe(&c, e->attr, &a, &b, d);
        else
            describe(&c, e->attr, d, &b, &a);
    }
    if (!status && bias)
        status = spread(t->ordinal, d, bias, e->why);
    return status ? status : wf_cuda_conv_run(t->ordinal, &c, e->why);
}

int wf_gpu_row_conv(int ordinal, wf_exec *e)
{
    const int dt = e->dst[0].dtype;
    bool empty = wf_view_numel(&e->dst[0]) == 0;
    for (int i = 0; i < 2; i++) {
        if (e->src[i].dtype != dt)
            return WEFT_EUNSUPPORTED;
        empty |= wf_view_numel(&e->src[i]) == 0;
    }
    if (empty || !wf_cuda_conv_there(ordinal))
        return WEFT_EUNSUPPORTED;
    wf_gpu_temps t = {.ordinal = ordinal};
    const int status = run(&t, e);
    wf_gpu_drop(&t);
    return status;
}
