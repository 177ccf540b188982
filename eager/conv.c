/*
 * eager/conv.c -- conv2d and its two gradients on top of eager/cpu/gemm.h.
 *
 * Results are NCHW, or NHWC memory where dispatch has made them so. Operands that lie channels-last (a permuted view of
 * NHWC memory) are passed as they are; other strides are copied once.
 */
#include "eager/cpu/gemm.h"
#include "eager/dense.h"
#include "eager/layout.h"
#include "eager/product.h"

/* An activation operand: dense NCHW or NHWC memory, copied only when it is neither. */
typedef struct image {
    wf_dense mem;
    bool nhwc;
} image;

static int open_image(const wf_view *v, image *out, wf_why *why)
{
    out->nhwc = false;
    if (!wf_view_is_contiguous(v)) {
        const wf_view t = wf_view_last(v);
        if (wf_view_is_contiguous(&t)) {
            out->nhwc = true;
            out->mem = (wf_dense){.data = v->data};
            return 0;
        }
    }
    return wf_dense_of(v, v->dtype, &out->mem, why);
}

/* Dims of x[n,c,h,w], weight[o,c/g,kh,kw] and y[n,o,oh,ow]. */
static wf_conv_desc describe(const wf_attr *attr, int dt, const int64_t *x, const int64_t *w,
                             const int64_t *y)
{
    wf_conv_desc d = {.dtype = dt,
                      .n = x[0],
                      .c = x[1],
                      .h = x[2],
                      .w = x[3],
                      .o = w[0],
                      .kh = w[2],
                      .kw = w[3],
                      .oh = y[2],
                      .ow = y[3],
                      .groups = attr->ints[6]};
    for (int i = 0; i < 2; i++) {
        d.stride[i] = attr->ints[i];
        d.pad[i] = attr->ints[2 + i];
        d.dilation[i] = attr->ints[4 + i];
    }
    return d;
}

WF_EXEC_DECL(conv2d)
{
    const wf_view *x = &e->src[0], *w = &e->src[1];
    wf_view *y = &e->dst[0];
    bool has_bias = e->nsrc > 2 && e->src[2].dtype != WEFT_DTYPE_DEFAULT;
    if (wf_view_numel(y) == 0) {
        return 0;
    }
    image xi = {0};
    wf_dense wd = {0}, bias = {0};
    int code = open_image(x, &xi, e->why);
    if (!code) {
        code = wf_dense_of(w, w->dtype, &wd, e->why);
    }
    if (!code && has_bias) {
        code = wf_dense_of(&e->src[2], y->dtype, &bias, e->why);
    }
    if (!code) {
        wf_conv_desc d = describe(e->attr, y->dtype, x->dims, w->dims, y->dims);
        d.layout = (xi.nhwc ? WF_CONV_SRC_NHWC : 0) | (wf_view_lies_last(y) ? WF_CONV_DST_NHWC : 0);
        int rc = wf_conv2d_forward(&d, xi.mem.data, wd.data, has_bias ? bias.data : NULL, y->data);
        code = wf_gemm_status(rc, y->dtype, e->why);
    }
    wf_dense_free(&bias);
    wf_dense_free(&wd);
    wf_dense_free(&xi.mem);
    return code;
}

static void zero(const wf_view *v)
{
    static const uint64_t nothing;
    if (wf_view_numel(v) > 0) {
        wf_fill(v, &nothing);
    }
}

WF_EXEC_DECL(conv2d_dx)
{
    const wf_view *g = &e->src[0], *w = &e->src[1];
    wf_view *dx = &e->dst[0];
    if (wf_view_numel(dx) == 0 || wf_view_numel(g) == 0 || wf_view_numel(w) == 0) {
        zero(dx);
        return 0;
    }
    image gi = {0};
    wf_dense wd = {0};
    int code = open_image(g, &gi, e->why);
    if (!code) {
        code = wf_dense_of(w, w->dtype, &wd, e->why);
    }
    if (!code) {
        wf_conv_desc d = describe(e->attr, g->dtype, dx->dims, w->dims, g->dims);
        d.layout =
            (gi.nhwc ? WF_CONV_DST_NHWC : 0) | (wf_view_lies_last(dx) ? WF_CONV_SRC_NHWC : 0);
        int rc = wf_conv2d_backward_data(&d, gi.mem.data, wd.data, dx->data);
        code = wf_gemm_status(rc, g->dtype, e->why);
    }
    wf_dense_free(&wd);
    wf_dense_free(&gi.mem);
    return code;
}

WF_EXEC_DECL(conv2d_dw)
{
    const wf_view *g = &e->src[0], *x = &e->src[1];
    wf_view *dw = &e->dst[0];
    if (wf_view_numel(dw) == 0 || wf_view_numel(g) == 0 || wf_view_numel(x) == 0) {
        zero(dw);
        return 0;
    }
    image gi = {0}, xi = {0};
    int code = open_image(g, &gi, e->why);
    if (!code) {
        code = open_image(x, &xi, e->why);
    }
    if (!code) {
        wf_conv_desc d = describe(e->attr, g->dtype, x->dims, dw->dims, g->dims);
        d.layout = (xi.nhwc ? WF_CONV_SRC_NHWC : 0) | (gi.nhwc ? WF_CONV_DST_NHWC : 0);
        int rc = wf_conv2d_backward_weight(&d, xi.mem.data, gi.mem.data, dw->data);
        code = wf_gemm_status(rc, g->dtype, e->why);
    }
    wf_dense_free(&xi.mem);
    wf_dense_free(&gi.mem);
    return code;
}
