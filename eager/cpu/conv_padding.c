/*
 * eager/cpu/conv_padding.c -- padding is no term of a convolution, whatever the ways to one make of it.
 *
 * Most of them, oneDNN's too, multiply it like the rest: that adds a zero, but beside an infinity or a NaN of the other operand it
 * makes a NaN of an element that has no such term. So what they made is looked at, and where a NaN is found the elements are summed
 * again of their own terms. A look costs a few loads, as what meets padding anywhere meets it in a corner of the first sample:
 *
 * Forward, a tap of a weight that reads padding at any position does so at the first or at the last one. The gradient of an image
 * is the same with what lies beyond the result as padding, and a corner of as many pixels as the strides have. In the gradient of
 * weights such a term is in the sums of all channels, of which the first of each group is looked at, and in those of the first tap
 * or of the last: what reads padding before the image, or behind it, is read as padding by these, too.
 *
 * A finite element beside padding makes no NaN: where all are finite, what is NaN is so by its own terms, of an image with missing
 * values, say. Else elements of images are summed one by one in double, which takes hundreds of times as long as the kernels: those
 * beside whose padding an infinity or a NaN lies, unless a NaN is a term. In a gradient of weights NaN are of every day (f16 whose
 * loss was scaled too high), so that a tap is a product again: that of the pixels and the results between which it lies, without
 * padding.
 *
 * Invariants: elements that are no NaN stay as they are; sums are in one order, whatever the layout and the number of threads.
 */
#include <math.h>
#include <stdbool.h>

#include "eager/alloc.h"
#include "eager/cpu/conv_image.h"
#include "eager/cpu/conv_pack.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/pool.h"

/* An image made of another: forward dst of src, back dsrc of ddst. */
typedef struct made {
    const wf_conv_desc *d;
    bool back;
    wf_view in, out;
    const void *weight, *bias; /* bias: or NULL */
} made;

__attribute__((noinline)) static double load(const void *p, int dtype, int64_t i)
{
    return wf_float_load(p, dtype, i);
}

/* What of `in` position `at` of `out` reads by a tap along an axis (2 or 3), -1: padding, or nothing. */
__attribute__((noinline)) static int64_t reads(const made *m, int axis, int64_t at, int64_t tap)
{
    const wf_conv_desc *d = m->d;
    const int64_t stride = d->stride[axis - 2], pad = d->pad[axis - 2];
    const int64_t offset = tap * d->dilation[axis - 2] - pad;
    if (m->back && (at < offset || (at - offset) % stride))
        return -1;
    const int64_t to = m->back ? (at - offset) / stride : at * stride + offset;
    return to < m->in.dims[axis] ? wf_most(to, -1) : -1;
}

/* Where the weight of term k of a sum lies; *c: of which channel of `in` the term is. */
static int64_t term_of(const made *m, int64_t channel, int64_t k, int64_t *c)
{
    const wf_conv_desc *d = m->d;
    const int64_t cg = d->c / d->groups, og = d->o / d->groups, taps = d->kh * d->kw;
    *c = channel / (m->back ? cg : og) * (m->back ? og : cg) + k / taps;
    return (m->back ? *c * cg + channel % cg : channel * cg + *c % cg) * taps + k % taps;
}

static int64_t count_terms(const made *m)
{
    const wf_conv_desc *d = m->d;
    return (m->back ? d->o : d->c) / d->groups * d->kh * d->kw;
}

static double sum_of(const made *m, int64_t n, int64_t channel, int64_t y, int64_t x)
{
    const wf_conv_desc *d = m->d;
    const int64_t terms = count_terms(m), taps = d->kh * d->kw, *s = m->in.strides;
    double sum = 0;
    for (int64_t k = 0; k < terms; k++) {
        int64_t c;
        const int64_t w = term_of(m, channel, k, &c), tap = k % taps;
        const int64_t iy = reads(m, 2, y, tap / d->kw), ix = reads(m, 3, x, tap % d->kw);
        if (iy < 0 || ix < 0)
            continue;
        sum += load(m->in.data, d->dtype, n * s[0] + c * s[1] + iy * s[2] + ix * s[3]) *
               load(m->weight, d->dtype, w);
        if (isnan(sum))
            break;
    }
    return m->bias ? sum + load(m->bias, d->dtype, channel) : sum;
}

/* Of each tap, whether a channel's weights have an infinity or a NaN. */
enum { HAS_INFINITY = 1, HAS_NAN = 2 };
static void find_wild(const made *m, int64_t channel, uint8_t *wild)
{
    const int64_t terms = count_terms(m), taps = m->d->kh * m->d->kw;
    memset(wild, 0, (size_t)taps);
    for (int64_t k = 0, c; k < terms; k++) {
        const double w = load(m->weight, m->d->dtype, term_of(m, channel, k, &c));
        wild[k % taps] |= isnan(w) ? HAS_NAN : isinf(w) ? HAS_INFINITY : 0;
    }
}

/* Can padding have made a NaN of an element? It has to be beside such a weight, and none that is a NaN is a term. */
static bool is_beside(const made *m, const uint8_t *wild, int64_t y, int64_t x)
{
    const wf_conv_desc *d = m->d;
    bool beside = false;
    for (int64_t tap = 0; tap < d->kh * d->kw; tap++) {
        if (!wild[tap])
            continue;
        if (reads(m, 2, y, tap / d->kw) < 0 || reads(m, 3, x, tap % d->kw) < 0)
            beside = true;
        else if (wild[tap] & HAS_NAN)
            return false;
    }
    return beside;
}

/* Planes [begin, end) of the result, one after the other. Without memory for what is wild all NaN are summed again. */
static void plane_task(void *arg, int64_t begin, int64_t end)
{
    const made *m = arg;
    const int64_t *dims = m->out.dims, *s = m->out.strides;
    const size_t taps = (size_t)(m->d->kh * m->d->kw);
    uint8_t *wild = wf_scratch(taps);
    int64_t of = -1; /* the channel whose they are */
    for (int64_t i = begin * dims[2]; i < end * dims[2]; i++) {
        const int64_t n = i / dims[2] / dims[1], c = i / dims[2] % dims[1], y = i % dims[2];
        const int64_t row = n * s[0] + c * s[1] + y * s[2];
        for (int64_t x = 0; x < dims[3]; x++) {
            if (!isnan(load(m->out.data, m->d->dtype, row + x * s[3])))
                continue;
            if (wild && of != c)
                find_wild(m, of = c, wild);
            if (!wild || is_beside(m, wild, y, x))
                wf_float_put(m->out.data, m->d->dtype, row + x * s[3], sum_of(m, n, c, y, x));
        }
    }
    if (wild)
        wf_scratch_free(wild, taps);
}

/* Whether a channel of the first sample has a NaN in a corner. */
static bool is_suspect(const made *m)
{
    const wf_conv_desc *d = m->d;
    const int64_t *dims = m->out.dims, *s = m->out.strides;
    const int64_t h = m->back ? wf_least(d->stride[0], dims[2]) : 1;
    const int64_t w = m->back ? wf_least(d->stride[1], dims[3]) : 1;
    const int64_t last = (dims[2] - 1) * s[2] + (dims[3] - 1) * s[3];
    for (int64_t k = 0; k < h * w; k++) {
        const int64_t at = k / w * s[2] + k % w * s[3];
        if (wf_conv_has_nan(m->out.data, d->dtype, at, s[1], dims[1], false) ||
            wf_conv_has_nan(m->out.data, d->dtype, last - at, s[1], dims[1], false))
            return true;
    }
    return false;
}

static void mend_image(made *m)
{
    const wf_conv_desc *d = m->d;
    if (is_suspect(m) &&
        wf_conv_has_nan(m->weight, d->dtype, 0, 1, d->o * (d->c / d->groups) * d->kh * d->kw, true))
        wf_parallel_for(m->out.dims[0] * m->out.dims[1], 1, plane_task, m);
}

/* Whether a tap reads padding at some position along an axis; *from and *to: the positions at which it does not. */
__attribute__((noinline)) static bool is_cut(const wf_conv_desc *d, int axis, int64_t tap,
                                             int64_t *from, int64_t *to)
{
    const int64_t size = axis ? d->w : d->h, out = axis ? d->ow : d->oh, step = d->stride[axis];
    const int64_t offset = tap * d->dilation[axis] - d->pad[axis];
    *from = offset < 0 ? wf_least((step - 1 - offset) / step, out) : 0;
    *to = wf_most(offset < size ? wf_least((size - 1 - offset) / step + 1, out) : 0, *from);
    return *to - *from < out;
}

void wf_conv_padding_forward(const wf_conv_desc *d, const void *src, const void *weight,
                             const void *bias, void *dst)
{
    int64_t from, to;
    if (is_cut(d, 0, 0, &from, &to) || is_cut(d, 0, d->kh - 1, &from, &to) ||
        is_cut(d, 1, 0, &from, &to) || is_cut(d, 1, d->kw - 1, &from, &to))
        mend_image(&(made){.d = d,
                           .in = wf_conv_image(d, 0, src),
                           .out = wf_conv_image(d, 1, dst),
                           .weight = weight,
                           .bias = bias});
}

void wf_conv_padding_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                                   void *dsrc)
{
    mend_image(&(made){.d = d,
                       .back = true,
                       .in = wf_conv_image(d, 1, ddst),
                       .out = wf_conv_image(d, 0, dsrc),
                       .weight = weight});
}

/* NaN of one tap of all weights, of results [y0, y1) x [x0, x1): a 1 x 1 convolution of what they read by it. */
static int mend_tap(const wf_conv_desc *d, int64_t tap, const int64_t y[2], const int64_t x[2],
                    const void *src, const void *ddst, void *dweight)
{
    const int64_t i = tap / d->kw, j = tap % d->kw, taps = d->kh * d->kw;
    const int64_t rows = y[1] - y[0], columns = x[1] - x[0], each = d->o * (d->c / d->groups);
    wf_view whole = wf_conv_image(d, 0, src), grad = wf_conv_image(d, 1, ddst);
    const size_t size = wf_dtype_size(d->dtype), bytes = (size_t)each * size;
    wf_dense in = {NULL, NULL, 0}, out = {NULL, NULL, 0};
    void *sum = wf_scratch(bytes);
    int rc = sum ? WF_GEMM_OK : WF_GEMM_NOMEM;
    if (!rc && rows > 0 && columns > 0) {
        const int64_t *s = whole.strides;
        const int64_t iy = y[0] * d->stride[0] + i * d->dilation[0] - d->pad[0];
        const int64_t ix = x[0] * d->stride[1] + j * d->dilation[1] - d->pad[1];
        whole.data = (char *)whole.data + (iy * s[2] + ix * s[3]) * (int64_t)size;
        whole.dims[2] = rows, whole.strides[2] *= d->stride[0];
        whole.dims[3] = columns, whole.strides[3] *= d->stride[1];
        grad = wf_view_narrow(wf_view_narrow(grad, 2, y[0], rows), 3, x[0], columns);
        rc = wf_conv_dense(&whole, d->dtype, &in);
        rc = rc ? rc : wf_conv_dense(&grad, d->dtype, &out);
        wf_conv_desc p = *d;
        p.layout = 0;
        p.h = p.oh = rows, p.w = p.ow = columns;
        p.kh = p.kw = 1;
        for (int k = 0; k < 2; k++)
            p.stride[k] = p.dilation[k] = 1, p.pad[k] = 0;
        rc = rc ? rc : wf_conv2d_backward_weight(&p, in.data, out.data, sum);
    } else if (!rc) {
        memset(sum, 0, bytes);
    }
    for (int64_t k = 0; k < each && !rc; k++)
        if (isnan(load(dweight, d->dtype, k * taps + tap)))
            wf_float_put(dweight, d->dtype, k * taps + tap, load(sum, d->dtype, k));
    wf_dense_free(&in);
    wf_dense_free(&out);
    if (sum)
        wf_scratch_free(sum, bytes);
    return rc;
}

int wf_conv_padding_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                    void *dweight)
{
    const int64_t taps = d->kh * d->kw, row = d->c / d->groups * taps;
    const bool suspect = (wf_conv_has_nan(dweight, d->dtype, 0, row, d->o, false) ||
                          wf_conv_has_nan(dweight, d->dtype, taps - 1, row, d->o, false)) &&
                         wf_conv_has_nan(ddst, d->dtype, 0, 1, d->n * d->o * d->oh * d->ow, true);
    int rc = WF_GEMM_OK;
    for (int64_t tap = 0; tap < taps && suspect && !rc; tap++) {
        int64_t y[2], x[2];
        const bool cut_y = is_cut(d, 0, tap / d->kw, &y[0], &y[1]);
        const bool cut_x = is_cut(d, 1, tap % d->kw, &x[0], &x[1]);
        if ((cut_y || cut_x) && wf_conv_has_nan(dweight, d->dtype, tap, row, d->o, false))
            rc = mend_tap(d, tap, y, x, src, ddst, dweight);
    }
    return rc;
}
