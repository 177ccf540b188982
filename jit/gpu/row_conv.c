/*
 * jit/gpu/row_conv.c -- conv2d and its gradients, by cuDNN where it is and takes them, else by the built-in kernel.
 *
 * For cuDNN images are passed as they lie when that is NCHW or NHWC memory at a multiple of 16 bytes, else copied (an NHWC one also where
 * it takes no mixture of layouts); weights are
 * copied unless they are dense and lie so; a bias is spread over the result first and added to. The built-in kernel takes any strides. Its sums are
 * one chain of fused multiply-adds each, in f32 for half types, in an order that depends on nothing but the shapes of
 * the weights (forward, gradient of x) or of the result (of w); not that of the CPU's library.
 */
#include "eager/cuda/dnn.h"
#include "eager/dense.h"
#include "jit/gpu/impl.h"

/* v, or a copy of it that lies where the library wants operands. */
static int lay(wf_gpu_temps *t, wf_view *v, wf_why *why)
{
    const wf_view from = *v;
    if (wf_cuda_conv_lies(v->data))
        return 0;
    const int status = wf_gpu_temp_view(t, v->dtype, v->rank, v->dims, v, why);
    return status ? status : wf_gpu_copy(t->ordinal, v, &from, why);
}

/* v as an image that the library takes; *out may be a copy. *last: it is passed as NHWC; before the call: it may be. */
static int image(wf_gpu_temps *t, const wf_view *v, wf_view *out, bool *last, wf_why *why)
{
    static const int order[4] = {0, 2, 3, 1};
    const bool may = *last;
    wf_view turned = *v;
    *last = false;
    for (int i = 0; i < 4; i++) {
        turned.dims[i] = v->dims[order[i]];
        turned.strides[i] = v->strides[order[i]];
    }
    if (may && !wf_view_is_contiguous(v) && wf_view_is_contiguous(&turned)) {
        *last = true;
        wf_view_make_dense(&turned); /* also where an extent is 1 */
        *out = *v;
        for (int i = 0; i < 4; i++)
            out->strides[order[i]] = turned.strides[i];
        return lay(t, out, why);
    }
    const int status = wf_gpu_dense(t, v, v->dtype, out, why);
    return status ? status : lay(t, out, why);
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

/* *last: before, images may be passed as NHWC; after, one was. */
static int ask_library(wf_gpu_temps *t, wf_exec *e, const wf_view *bias, bool *last, wf_why *why)
{
    wf_cuda_conv c = {.dtype = e->dst[0].dtype, .add = bias != NULL};
    wf_view a = {0}, b = {0};
    const wf_view *d = &e->dst[0];
    bool other = *last;
    int status =
        wf_cuda_conv_lies(d->data) ? image(t, &e->src[0], &a, last, why) : WEFT_EUNSUPPORTED;
    if (status)
        return status;
    if (e->op == WF_OP_CONV2D_DW) {
        c.what = WF_CUDA_CONV_DW;
        status = image(t, &e->src[1], &b, &other, why);
        *last |= other;
        describe(&c, e->attr, &b, d, &a);
    } else {
        c.what = e->op == WF_OP_CONV2D ? WF_CUDA_CONV_FORWARD : WF_CUDA_CONV_DX;
        status = wf_gpu_dense(t, &e->src[1], c.dtype, &b, why);
        status = status ? status : lay(t, &b, why);
        if (c.what == WF_CUDA_CONV_FORWARD)
            describe(&c, e->attr, &a, &b, d);
        else
            describe(&c, e->attr, d, &b, &a);
    }
    if (!status && bias)
        status = spread(t->ordinal, d, bias, why);
    return status ? status : wf_cuda_conv_run(t->ordinal, &c, why);
}

/* Results and weights are NCHW: beside an image that lies as NHWC the library is asked for a mixture. Where it has nothing
 * for that, it is asked again with dense copies: one pass over an image costs less than leaving the convolution to our kernel. */
static int by_library(wf_gpu_temps *t, wf_exec *e, const wf_view *bias, wf_why *why)
{
    bool last = true;
    int status = ask_library(t, e, bias, &last, why);
    if (status == WEFT_EUNSUPPORTED && !why->code && last) {
        last = false;
        status = ask_library(t, e, bias, &last, why);
    }
    return status;
}

/* Positions and extents are int in the built-in kernel. What a window reaches is at most the padded image (jit/ir/infer_nn.c),
 * but steps past that are legal where only one is taken. */
enum { MOST = INT32_MAX / 4 };
static bool is_near(const wf_attr *attr, const wf_view *x)
{
    for (int i = 0; i < 2; i++) {
        const int64_t stride = attr->ints[i], pad = attr->ints[2 + i], dilation = attr->ints[4 + i];
        if (stride > MOST || pad > MOST / 4 || dilation > MOST || x->dims[2 + i] > MOST / 2)
            return false;
    }
    return true;
}

static int built_in(int ordinal, wf_exec *e, const wf_view *bias)
{
    enum { TILE = 64 };
    const bool dx = e->op == WF_OP_CONV2D_DX, dw = e->op == WF_OP_CONV2D_DW;
    const wf_view *x = dx ? &e->dst[0] : dw ? &e->src[1] : &e->src[0];
    const wf_view *w = dw ? &e->dst[0] : &e->src[1];
    const wf_view *y = dx || dw ? &e->src[0] : &e->dst[0];
    if (!is_near(e->attr, x))
        return WEFT_EUNSUPPORTED;
    const int64_t groups = e->attr->ints[6], cx = x->dims[1] / groups, cy = y->dims[1] / groups;
    wf_gpu_hand h = {"conv", 1, {y->dtype}, .per_block = 1};
    const uint64_t words[] = {wf_gpu_word(y->data), wf_gpu_word(x->data),
                              wf_gpu_word(w->data), bias ? wf_gpu_word(bias->data) : 0,
                              dw ? 2 : dx,          (uint64_t)groups,
                              (uint64_t)x->dims[0], (uint64_t)cx,
                              (uint64_t)cy,         (uint64_t)x->dims[2],
                              (uint64_t)x->dims[3], (uint64_t)w->dims[2],
                              (uint64_t)w->dims[3], (uint64_t)y->dims[2],
                              (uint64_t)y->dims[3]};
    memcpy(h.w, words, sizeof words);
    for (int i = 0; i < 6; i++)
        h.w[15 + i] = (uint64_t)e->attr->ints[i];
    for (int i = 0; i < 4; i++) {
        h.w[21 + i] = (uint64_t)x->strides[i];
        h.w[25 + i] = (uint64_t)w->strides[i];
        h.w[29 + i] = (uint64_t)y->strides[i];
    }
    h.w[33] = bias ? (uint64_t)bias->strides[0] : 0;
    const wf_view *image_of = dx ? x : y;
    const int64_t pixels = image_of->dims[0] * image_of->dims[2] * image_of->dims[3];
    const int64_t columns = dw ? cx * w->dims[2] * w->dims[3] : dx ? cx : cy;
    const int64_t rows = dw ? cy : pixels, deep = cy * w->dims[2] * w->dims[3];
    if (pixels > MOST || columns > MOST || deep > MOST || cx * w->dims[2] * w->dims[3] > MOST)
        return WEFT_EUNSUPPORTED;
    h.work = (rows + TILE - 1) / TILE * ((columns + TILE - 1) / TILE) * groups;
    return wf_gpu_hand_run(ordinal, &h, e->why);
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
    if (empty)
        return WEFT_EUNSUPPORTED;
    const wf_view *bias = e->nsrc > 2 && e->src[2].data ? &e->src[2] : NULL;
    if (wf_cuda_conv_there(ordinal)) {
        wf_gpu_temps t = {.ordinal = ordinal};
        wf_why refused = {0};
        const int status = by_library(&t, e, bias, &refused);
        wf_gpu_drop(&t);
        if (status != WEFT_EUNSUPPORTED || refused.code) {
            if (status && e->why)
                *e->why = refused;
            return status;
        }
    }
    return built_in(ordinal, e, bias);
}
