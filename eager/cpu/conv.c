/*
 * eager/cpu/conv.c -- entry points of convolution: checks, empty cases, choice of the back end.
 */
#include <string.h>

#include "eager/cpu/gemm_impl.h"
#include "jit/ir/dtype.h"

/* Sizes that fit together; the entry points below rely on every line of this. */
static int valid(const wf_conv_desc *d)
{
    if (d->dtype < 0 || d->dtype >= WF_NDTYPE || !(WF_DT_F & WF_BIT(d->dtype)) || d->n < 0 ||
        d->c < 0 || d->h < 0 || d->w < 0 || d->o < 0 || d->oh < 0 || d->ow < 0 || d->kh < 0 ||
        d->kw < 0 || d->groups < 1)
        return 0;
    if (d->c % d->groups || d->o % d->groups)
        return 0;
    for (int i = 0; i < 2; i++) {
        if (d->stride[i] < 1 || d->dilation[i] < 1 || d->pad[i] < 0)
            return 0;
        int64_t in = i ? d->w : d->h, kernel = i ? d->kw : d->kh, out = i ? d->ow : d->oh;
        int64_t room = in + 2 * d->pad[i] - d->dilation[i] * (kernel - 1) - 1;
        if (out != 0 && (room < 0 || room / d->stride[i] + 1 != out))
            return 0;
    }
    return 1;
}

static size_t bytes(const wf_conv_desc *d, int64_t a, int64_t b, int64_t c, int64_t e)
{
    return (size_t)(a * b * c * e) * wf_dtype_size(d->dtype);
}

static int no_terms(const wf_conv_desc *d)
{
    return d->c == 0 || d->kh == 0 || d->kw == 0;
}

/* dst := bias or 0, when there is nothing to sum. */
static void fill_bias(const wf_conv_desc *d, const void *bias, char *dst)
{
    size_t size = wf_dtype_size(d->dtype);
    int64_t area = d->oh * d->ow;
    for (int64_t i = 0; i < d->n * d->o * area; i++) {
        int64_t o = d->layout & WF_CONV_DST_NHWC ? i % d->o : i / area % d->o;
        memcpy(dst + (size_t)i * size, (const char *)bias + (size_t)o * size, size);
    }
}

int wf_conv2d_forward(const wf_conv_desc *d, const void *src, const void *weight, const void *bias,
                      void *dst)
{
    if (!valid(d))
        return WF_GEMM_UNSUPPORTED;
    if (!bytes(d, d->n, d->o, d->oh, d->ow))
        return WF_GEMM_OK;
    if (no_terms(d)) {
        if (bias)
            fill_bias(d, bias, dst);
        else
            memset(dst, 0, bytes(d, d->n, d->o, d->oh, d->ow));
        return WF_GEMM_OK;
    }
    return wf_conv_builtin_forward(d, src, weight, bias, dst);
}

int wf_conv2d_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight, void *dsrc)
{
    if (!valid(d))
        return WF_GEMM_UNSUPPORTED;
    size_t size = bytes(d, d->n, d->c, d->h, d->w);
    if (!size)
        return WF_GEMM_OK;
    if (!bytes(d, d->n, d->o, d->oh, d->ow) || no_terms(d)) {
        memset(dsrc, 0, size);
        return WF_GEMM_OK;
    }
    return wf_conv_builtin_backward_data(d, ddst, weight, dsrc);
}

int wf_conv2d_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                              void *dweight)
{
    if (!valid(d))
        return WF_GEMM_UNSUPPORTED;
    size_t size = bytes(d, d->o, d->c / d->groups, d->kh, d->kw);
    if (!size)
        return WF_GEMM_OK;
    if (!bytes(d, d->n, d->oh, d->ow, 1) || !bytes(d, d->h, d->w, 1, 1)) {
        memset(dweight, 0, size);
        return WF_GEMM_OK;
    }
    return wf_conv_builtin_backward_weight(d, src, ddst, dweight);
}
