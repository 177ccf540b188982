/*
 * eager/cpu/conv_line.c -- one-dimensional convolutions over long rows, as products of operands where they lie.
 *
 * Gradients of weights: tap j is a product over positions, dweight[.][.][j] = ddst * src(j)^T, where src(j) is the image
 * from another column on, in steps of the stride, for all groups at once. A tap's positions are those that read no
 * padding. oneDNN 2.6 takes two to five times as long.
 *
 * Images of one channel (sound): what all taps of all positions read is one matrix that is a view of the row,
 * [position][tap] with the stride and the dilation as its strides, so that forward and the gradient of the weights are
 * one product a sample. Padding, if any, is made part of a copy of the row.
 *
 * Invariants: f32 and f64 (sums over samples are not rounded in between); what a task adds up is cut by shape alone, and
 * samples are added in their order; products are of row-major images, channels-last ones are turned first (or last), so
 * that bits do not depend on the layout.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/conv_image.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/pool.h"

/* Elements of the gradients of a piece of the samples; positions from which rows are long; the least channels of a group,
 * and taps of one channel, for products; a row with its padding over the row alone. */
enum { PIECE_ELEMS = 1 << 16, MOST_PADDING = 4, LONG = 256, CHANNELS = 16, TAPS = 16 };

typedef struct line {
    const wf_conv_desc *d;
    const char *src, *ddst;  /* src: with its padding where it has one channel */
    int64_t row;             /* elements of a sample of it then */
    char *part;              /* [sample of the piece][tap][o][c], of one channel [sample][o][tap] */
    char *out;               /* [o][c][tap] */
    int64_t size, n0, count; /* samples of the piece */
    _Atomic int rc;
} line;

static int is_line(const wf_conv_desc *d)
{
    return (d->dtype == WEFT_F32 || d->dtype == WEFT_F64) && d->h == 1 && d->kh == 1 &&
           d->oh == 1 && d->pad[0] == 0 && d->ow >= LONG;
}

static int is_wave(const wf_conv_desc *d)
{
    return is_line(d) && d->c == 1 && d->kw >= TAPS && d->o >= CHANNELS;
}

static int has_products(const wf_conv_desc *d)
{
    const int64_t cg = d->c / d->groups, og = d->o / d->groups;
    return is_line(d) && ((cg == 1 && og == 1) || (cg >= CHANNELS && og >= CHANNELS));
}

/* The positions [*p0, *p1) whose tap j reads the image. */
static void range(const wf_conv_desc *d, int64_t j, int64_t *p0, int64_t *p1)
{
    const int64_t at = j * d->dilation[1] - d->pad[1], step = d->stride[1];
    const int64_t end = at >= d->w ? 0 : (d->w - 1 - at) / step + 1;
    *p0 = at >= 0 ? 0 : (-at + step - 1) / step;
    *p1 = wf_least(end, d->ow);
}

/* Tasks [begin, end) of (sample of the piece, tap). */
static void product_task(void *arg, int64_t begin, int64_t end)
{
    line *w = arg;
    const wf_conv_desc *d = w->d;
    const int64_t cg = d->c / d->groups, og = d->o / d->groups, elements = d->o * cg;
    for (int64_t task = begin; task < end; task++) {
        const int64_t n = w->n0 + task / d->kw, j = task % d->kw;
        int64_t p0, p1;
        range(d, j, &p0, &p1);
        char *part = w->part + (size_t)(task * elements * w->size);
        if (p0 >= p1) {
            memset(part, 0, (size_t)(elements * w->size));
            continue;
        }
        const int64_t from = p0 * d->stride[1] + j * d->dilation[1] - d->pad[1];
        const int64_t a = n * d->o * d->ow + p0, b = n * d->c * d->w + from;
        const int rc = wf_gemm(&(wf_gemm_desc){.dtype = d->dtype,
                                               .m = og,
                                               .n = cg,
                                               .k = p1 - p0,
                                               .batch = d->groups,
                                               .a = w->ddst + (size_t)(a * w->size),
                                               .a_rs = d->ow,
                                               .a_cs = 1,
                                               .a_bs = og * d->ow,
                                               .b = w->src + (size_t)(b * w->size),
                                               .b_rs = d->stride[1],
                                               .b_cs = d->w,
                                               .b_bs = cg * d->w,
                                               .c = part,
                                               .c_rs = cg,
                                               .c_bs = og * cg});
        if (rc)
            atomic_store_explicit(&w->rc, rc, memory_order_relaxed);
    }
}

/* Adds the piece's samples, [tap][o][c] each (of one channel [o][tap]), to [o][c][tap] in their order. */
static int add_piece(const line *w)
{
    const wf_conv_desc *d = w->d;
    const int64_t taps = w->row ? 1 : d->kw, all = d->o * (d->c / d->groups) * d->kw;
    wf_view sum[2] = {wf_view_dense(w->out, d->dtype, 2, (int64_t[]){taps, all / taps})};
    sum[1] = sum[0];
    sum[0].strides[0] = 1, sum[0].strides[1] = taps;
    int rc = WF_GEMM_OK;
    for (int64_t n = 0; n < w->count && !rc; n++) {
        sum[1].data = w->part + (size_t)(n * all * w->size);
        if (w->n0 + n == 0)
            wf_copy(&sum[0], &sum[1]);
        else
            rc = wf_exec_map(WF_OP_ADD, d->dtype, &sum[0], 2, sum);
    }
    return rc;
}

/* w->src := the row with its padding, which *padded holds. */
static int pad_rows(line *w, wf_dense *padded)
{
    const wf_conv_desc *d = w->d;
    w->row = d->w;
    if (d->pad[1] == 0)
        return WF_GEMM_OK;
    const double length = (double)(d->ow - 1) * (double)d->stride[1] +
                          (double)d->dilation[1] * (double)(d->kw - 1) + 1;
    if (length > MOST_PADDING * (double)d->w)
        return WF_GEMM_UNSUPPORTED;
    w->row = (int64_t)length;
    padded->bytes = (size_t)(d->n * w->row * w->size);
    padded->data = padded->owned = wf_scratch(padded->bytes);
    if (!padded->owned)
        return WF_GEMM_NOMEM;
    memset(padded->data, 0, padded->bytes);
    const int64_t room = w->row - d->pad[1], kept = wf_least(d->w, room);
    if (kept > 0) {
        const wf_view from =
            wf_view_dense((void *)(uintptr_t)w->src, d->dtype, 2, (int64_t[]){d->n, d->w});
        const wf_view to = wf_view_dense(padded->data, d->dtype, 2, (int64_t[]){d->n, w->row});
        const wf_view out = wf_view_narrow(to, 1, d->pad[1], kept),
                      in = wf_view_narrow(from, 1, 0, kept);
        wf_copy(&out, &in);
    }
    w->src = padded->data;
    return WF_GEMM_OK;
}

int wf_conv_line_forward(const wf_conv_desc *d, const void *src, const void *weight,
                         const void *bias, void *dst)
{
    if (!is_wave(d))
        return WF_GEMM_UNSUPPORTED;
    line w = {.d = d, .src = src};
    w.size = (int64_t)wf_dtype_size(d->dtype);
    const wf_view y = wf_conv_image(d, 1, dst);
    wf_dense padded = {NULL, NULL, 0}, room = {NULL, NULL, 0};
    int rc = pad_rows(&w, &padded);
    rc = rc ? rc : wf_conv_room(&y, d->dtype, &room);
    rc = rc ? rc
            : wf_gemm(&(wf_gemm_desc){.dtype = d->dtype,
                                      .m = d->o,
                                      .n = d->ow,
                                      .k = d->kw,
                                      .batch = d->n,
                                      .a = weight,
                                      .a_rs = d->kw,
                                      .a_cs = 1,
                                      .b = w.src,
                                      .b_rs = d->dilation[1],
                                      .b_cs = d->stride[1],
                                      .b_bs = w.row,
                                      .c = room.data,
                                      .c_rs = d->ow,
                                      .c_bs = d->o * d->ow});
    rc = rc ? rc : wf_conv_store(&y, 1, d->dtype, &room, bias);
    wf_dense_free(&room);
    wf_dense_free(&padded);
    return rc;
}

/* The products of a piece of samples of one channel. */
static int wave_products(line *w)
{
    const wf_conv_desc *d = w->d;
    return wf_gemm(&(wf_gemm_desc){.dtype = d->dtype,
                                   .m = d->o,
                                   .n = d->kw,
                                   .k = d->ow,
                                   .batch = w->count,
                                   .a = w->ddst + (size_t)(w->n0 * d->o * d->ow * w->size),
                                   .a_rs = d->ow,
                                   .a_cs = 1,
                                   .a_bs = d->o * d->ow,
                                   .b = w->src + (size_t)(w->n0 * w->row * w->size),
                                   .b_rs = d->stride[1],
                                   .b_cs = d->dilation[1],
                                   .b_bs = w->row,
                                   .c = w->part,
                                   .c_rs = d->kw,
                                   .c_bs = d->o * d->kw});
}

int wf_conv_line_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                 void *dweight)
{
    const int wave = is_wave(d);
    if (!wave && !has_products(d))
        return WF_GEMM_UNSUPPORTED;
    line w = {.d = d, .out = dweight};
    w.size = (int64_t)wf_dtype_size(d->dtype);
    const int64_t all = d->o * (d->c / d->groups) * d->kw;
    int64_t per_piece = PIECE_ELEMS / all;
    per_piece = per_piece < 1 ? 1 : wf_least(per_piece, d->n);
    const size_t bytes = (size_t)(per_piece * all * w.size);
    const wf_view image[2] = {wf_conv_image(d, 0, src), wf_conv_image(d, 1, ddst)};
    wf_dense x = {NULL, NULL, 0}, g = {NULL, NULL, 0}, padded = {NULL, NULL, 0};
    int rc = wf_conv_dense(&image[0], d->dtype, &x);
    rc = rc ? rc : wf_conv_dense(&image[1], d->dtype, &g);
    w.src = x.data, w.ddst = g.data;
    rc = rc || !wave ? rc : pad_rows(&w, &padded);
    if (!rc) {
        w.part = wf_scratch(bytes);
        rc = w.part ? WF_GEMM_OK : WF_GEMM_NOMEM;
    }
    for (; !rc && w.n0 < d->n; w.n0 += per_piece) {
        w.count = wf_least(per_piece, d->n - w.n0);
        if (wave)
            rc = wave_products(&w);
        else
            wf_parallel_for(w.count * d->kw, 1, product_task, &w);
        rc = rc ? rc : atomic_load_explicit(&w.rc, memory_order_relaxed);
        rc = rc ? rc : add_piece(&w);
    }
    if (w.part)
        wf_scratch_free(w.part, bytes);
    wf_dense_free(&padded);
    wf_dense_free(&x);
    wf_dense_free(&g);
    return rc;
}
