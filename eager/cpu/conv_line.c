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
#include "eager/cpu/gemm_impl.h"
#include "eager/cpu/transpose.h"
#include "eager/pool.h"

/* Elements of the gradients of a piece of the samples; positions from which rows are long; the least channels of a group,
 * and taps of one channel, for products; a row with its padding over the row alone; elements of a task. */
enum {
    PIECE_ELEMS = 1 << 16,
    MOST_PADDING = 4,
    LONG = 256,
    CHANNELS = 16,
    TAPS = 16,
    GRAIN = 1 << 13
};

typedef struct line {
    const wf_conv_desc *d;
    const char *src, *ddst; /* src: with its padding where it has one channel */
    int64_t row;            /* elements of a sample of it then */
    char *part,
        *out; /* [sample of the piece][tap][o][c], of one channel [sample][o][tap]; [o][c][tap] */
    const char *bias;
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
    *p1 = end < d->ow ? end : d->ow;
}

/* An image as rows [sample][channel][position]: as it lies, or a copy of one that lies channels-last. */
typedef struct turned {
    int64_t channels, length;
    void *image;
    char *data;
    size_t bytes; /* of the copy; 0: none */
} turned;

typedef struct turning {
    const turned *t;
    size_t size;
    int to_rows;
} turning;

/* out[j][i] := in[i][j] for i < rows, j < columns. */
static void transpose(size_t size, int64_t rows, int64_t columns, const char *in, char *out)
{
    if (size == sizeof(float)) {
        wf_transpose_2d(size, rows, columns, in, columns, out, rows);
        return;
    }
    const double *from = (const double *)(const void *)in;
    double *to = (double *)(void *)out;
    for (int64_t j0 = 0; j0 < columns; j0 += 8)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = j0; j < columns && j < j0 + 8; j++)
                to[j * rows + i] = from[i * columns + j];
}

static void turn_task(void *arg, int64_t begin, int64_t end)
{
    const turning *w = arg;
    const turned *t = w->t;
    const size_t sample = (size_t)(t->channels * t->length) * w->size;
    for (int64_t n = begin; n < end; n++) {
        char *image = (char *)t->image + (size_t)n * sample, *rows = t->data + (size_t)n * sample;
        if (w->to_rows)
            transpose(w->size, t->length, t->channels, image, rows);
        else
            transpose(w->size, t->channels, t->length, rows, image);
    }
}

static void turn(const line *w, const turned *t, int to_rows)
{
    turning arg = {t, (size_t)w->size, to_rows};
    const int64_t sample = t->channels * t->length;
    wf_parallel_for(w->d->n, sample >= GRAIN ? 1 : GRAIN / sample, turn_task, &arg);
}

/* t->data := the rows of t->image, or room for them, which are filled if the image is read. */
static int open_turned(const line *w, turned *t, unsigned nhwc, int read)
{
    t->data = t->image;
    t->bytes = 0;
    if (!nhwc || t->channels == 1)
        return WF_GEMM_OK;
    const size_t bytes = (size_t)(w->d->n * t->channels * t->length * w->size);
    t->data = wf_alloc(bytes);
    if (!t->data)
        return WF_GEMM_NOMEM;
    t->bytes = bytes;
    if (read)
        turn(w, t, 1);
    return WF_GEMM_OK;
}

static void close_turned(const turned *t)
{
    if (t->bytes)
        wf_free(t->data, t->bytes);
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

/* Elements [begin, end) of [o][c], or of [o][tap] of one channel: those of the piece's samples into their places. */
static void add_task(void *arg, int64_t begin, int64_t end)
{
    const line *w = arg;
    const int64_t taps = w->row ? 1 : w->d->kw, all = w->d->o * (w->d->c / w->d->groups) * w->d->kw;
    for (int64_t n = 0; n < w->count; n++)
        for (int64_t j = 0; j < taps; j++) {
            const int64_t at = n * all + j * (all / taps);
            const int first = w->n0 + n == 0;
            if (w->size == sizeof(double)) {
                const double *part = (const double *)(const void *)w->part + at;
                double *out = (double *)(void *)w->out + j;
                for (int64_t i = begin; i < end; i++)
                    out[i * taps] = first ? part[i] : out[i * taps] + part[i];
            } else {
                const float *part = (const float *)(const void *)w->part + at;
                float *out = (float *)(void *)w->out + j;
                for (int64_t i = begin; i < end; i++)
                    out[i * taps] = first ? part[i] : out[i * taps] + part[i];
            }
        }
}

/* Samples [begin, end) of one channel, between zeros. */
static void pad_task(void *arg, int64_t begin, int64_t end)
{
    const line *w = arg;
    const wf_conv_desc *d = w->d;
    const int64_t room = w->row - d->pad[1], kept = d->w < room ? d->w : room;
    for (int64_t n = begin; n < end; n++) {
        char *to = w->part + (size_t)(n * w->row * w->size);
        memset(to, 0, (size_t)(w->row * w->size));
        if (kept > 0)
            memcpy(to + (size_t)(d->pad[1] * w->size), w->src + (size_t)(n * d->w * w->size),
                   (size_t)(kept * w->size));
    }
}

/* w->src := the row with its padding; *copied: bytes of the copy. */
static int pad_rows(line *w, size_t *copied)
{
    const wf_conv_desc *d = w->d;
    *copied = 0;
    w->row = d->w;
    if (d->pad[1] == 0)
        return WF_GEMM_OK;
    const double row = (double)(d->ow - 1) * (double)d->stride[1] +
                       (double)d->dilation[1] * (double)(d->kw - 1) + 1;
    if (row > MOST_PADDING * (double)d->w)
        return WF_GEMM_UNSUPPORTED;
    w->row = (d->ow - 1) * d->stride[1] + d->dilation[1] * (d->kw - 1) + 1;
    const size_t bytes = (size_t)(d->n * w->row * w->size);
    w->part = wf_alloc(bytes);
    if (!w->part)
        return WF_GEMM_NOMEM;
    *copied = bytes;
    wf_parallel_for(d->n, w->row >= GRAIN ? 1 : GRAIN / w->row, pad_task, w);
    w->src = w->part;
    w->part = NULL;
    return WF_GEMM_OK;
}

/* Rows [begin, end) of [sample][o][position]. */
static void bias_task(void *arg, int64_t begin, int64_t end)
{
    const line *w = arg;
    const wf_conv_desc *d = w->d;
    for (int64_t r = begin; r < end; r++) {
        if (w->size == sizeof(double)) {
            double *out = (double *)(void *)w->out + r * d->ow;
            const double bias = ((const double *)(const void *)w->bias)[r % d->o];
            for (int64_t i = 0; i < d->ow; i++)
                out[i] += bias;
        } else {
            float *out = (float *)(void *)w->out + r * d->ow;
            const float bias = ((const float *)(const void *)w->bias)[r % d->o];
            for (int64_t i = 0; i < d->ow; i++)
                out[i] += bias;
        }
    }
}

int wf_conv_line_forward(const wf_conv_desc *d, const void *src, const void *weight,
                         const void *bias, void *dst)
{
    if (!is_wave(d))
        return WF_GEMM_UNSUPPORTED;
    line w = {.d = d, .src = src, .out = dst, .bias = bias};
    w.size = (int64_t)wf_dtype_size(d->dtype);
    size_t copied;
    int rc = pad_rows(&w, &copied);
    if (rc)
        return rc;
    turned y = {.channels = d->o, .length = d->ow, .image = dst, .data = dst};
    rc = open_turned(&w, &y, d->layout & WF_CONV_DST_NHWC, 0);
    w.out = y.data;
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
                                      .c = y.data,
                                      .c_rs = d->ow,
                                      .c_bs = d->o * d->ow});
    if (!rc && bias)
        wf_parallel_for(d->n * d->o, d->ow >= GRAIN ? 1 : GRAIN / d->ow, bias_task, &w);
    if (!rc && y.bytes)
        turn(&w, &y, 0);
    close_turned(&y);
    if (copied)
        wf_free((char *)(uintptr_t)w.src, copied);
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
    const int64_t all = d->o * (d->c / d->groups) * d->kw, elements = wave ? all : all / d->kw;
    int64_t per_piece = PIECE_ELEMS / all;
    per_piece = per_piece < 1 ? 1 : per_piece < d->n ? per_piece : d->n;
    const size_t bytes = (size_t)(per_piece * all * w.size);
    size_t copied = 0;
    turned x = {.channels = d->c, .length = d->w, .image = (void *)(uintptr_t)src};
    turned g = {.channels = d->o, .length = d->ow, .image = (void *)(uintptr_t)ddst};
    int rc = open_turned(&w, &x, d->layout & WF_CONV_SRC_NHWC, 1);
    rc = rc ? rc : open_turned(&w, &g, d->layout & WF_CONV_DST_NHWC, 1);
    w.src = x.data, w.ddst = g.data;
    rc = rc || !wave ? rc : pad_rows(&w, &copied);
    if (!rc) {
        w.part = wf_alloc(bytes);
        rc = w.part ? WF_GEMM_OK : WF_GEMM_NOMEM;
    }
    for (; !rc && w.n0 < d->n; w.n0 += per_piece) {
        w.count = per_piece < d->n - w.n0 ? per_piece : d->n - w.n0;
        if (wave)
            rc = wave_products(&w);
        else
            wf_parallel_for(w.count * d->kw, 1, product_task, &w);
        rc = rc ? rc : atomic_load_explicit(&w.rc, memory_order_relaxed);
        if (!rc)
            wf_parallel_for(elements, GRAIN, add_task, &w);
    }
    if (w.part)
        wf_free(w.part, bytes);
    if (copied)
        wf_free((char *)(uintptr_t)w.src, copied);
    close_turned(&x);
    close_turned(&g);
    return rc;
}
