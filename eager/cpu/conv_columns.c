/*
 * eager/cpu/conv_columns.c -- convolution of images that are small beside the weights, as one product over all samples.
 *
 * columns[p][(c, t)] is what tap t of position p, of any sample, reads of channel c, and zero where it reads padding. The
 * weight is dense [o][(c, t)], so that forward is columns * weight^T, backward-weight ddst^T * columns, and backward-data
 * adds ddst * weight up where the columns were read. Weights are read once, where they lie: oneDNN reorders them first,
 * which for few positions takes longer than the sums, and it is not asked for windows larger than the image (dnnl_conv.c).
 *
 * Invariants: halves are widened and rounded once, at the end; samples are cut into pieces by shape alone; the terms of a
 * pixel, in backward-data, are added in order of position and tap, pieces in order of samples.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"

/* Elements of the columns of a piece; the most that one sample may have; channels and elements of a task. */
enum { PIECE_ELEMS = 1 << 21, MOST_ELEMS = 1 << 24, STRIP = 64, GRAIN = 1 << 15 };
/* Positions of a sample up to which weights of more than so many bytes are better read once than reordered. */
enum { FEW_POSITIONS = 16, LARGE_WEIGHTS = 1 << 20 };

/* An image as rows [n * area][channels] of the type of the sums: a view of it, or a copy. */
typedef struct rows {
    char *data;
    size_t copied; /* bytes of the copy; 0: none */
    void *image;   /* as the caller has it */
    int nhwc;
    int64_t channels, area;
} rows;

typedef struct columns {
    const wf_conv_desc *d;
    int sums;            /* dtype */
    size_t size;         /* of an element of the sums */
    int64_t taps, width; /* of a kernel; of a row of columns */
    int64_t *pixel;      /* [position of a sample][tap]: what it reads, or -1 */
    rows src, dst;
    char *col, *weight;             /* weight: of the type of the sums */
    size_t col_bytes, weight_bytes; /* weight_bytes 0: the caller's */
    int64_t per_piece, n0;          /* samples */
    const void *bias;
} columns;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int fits(const wf_conv_desc *d)
{
    const double sample = (double)(d->oh * d->ow) * (double)d->c * (double)(d->kh * d->kw);
    if (d->groups != 1 || sample > MOST_ELEMS)
        return 0;
    if (wf_conv_beyond(d))
        return 1;
    return (d->dtype == WEFT_F32 || d->dtype == WEFT_F64) && d->oh * d->ow <= FEW_POSITIONS &&
           d->n * d->oh * d->ow <= d->o &&
           d->o * d->c * d->kh * d->kw > LARGE_WEIGHTS / (int64_t)wf_dtype_size(d->dtype);
}

static void cast(int to, void *out, int from, const void *in, int64_t n)
{
    wf_kernels_now()->cast[to][from](out, in, (size_t)n);
}

typedef struct casting {
    int to, from;
    char *out;
    const char *in;
} casting;

static void cast_task(void *arg, int64_t begin, int64_t end)
{
    const casting *c = arg;
    cast(c->to, c->out + (size_t)begin * wf_dtype_size(c->to), c->from,
         c->in + (size_t)begin * wf_dtype_size(c->from), end - begin);
}

static void cast_all(int to, void *out, int from, const void *in, int64_t n)
{
    casting c = {to, from, out, in};
    wf_parallel_for(n, GRAIN, cast_task, &c);
}

/* out[x * out_step] := in[x * in_step] for n elements of the sums. */
static void copy_strided(size_t size, int64_t n, const char *in, int64_t in_step, char *out,
                         int64_t out_step)
{
    if (size == sizeof(double))
        for (int64_t x = 0; x < n; x++)
            ((double *)(void *)out)[x * out_step] = ((const double *)(const void *)in)[x * in_step];
    else
        for (int64_t x = 0; x < n; x++)
            ((float *)(void *)out)[x * out_step] = ((const float *)(const void *)in)[x * in_step];
}

typedef struct moving {
    const columns *w;
    rows *r;
    int to_rows;
    _Atomic int rc;
} moving;

/* Samples [begin, end) between an image and its rows; with the bias when to the image. */
static void move_task(void *arg, int64_t begin, int64_t end)
{
    moving *m = arg;
    const columns *w = m->w;
    rows *r = m->r;
    const int dtype = w->d->dtype;
    const size_t stored = wf_dtype_size(dtype),
                 line = (size_t)(r->nhwc ? r->channels : r->area) * w->size;
    char *buffer = wf_alloc(line);
    if (!buffer) {
        atomic_store_explicit(&m->rc, WF_GEMM_NOMEM, memory_order_relaxed);
        return;
    }
    for (int64_t n = begin; n < end; n++) {
        char *image = (char *)r->image + (size_t)(n * r->area * r->channels) * stored;
        char *at = r->data + (size_t)(n * r->area * r->channels) * w->size;
        if (r->nhwc && m->to_rows) {
            cast(w->sums, at, dtype, image, r->area * r->channels);
        } else if (r->nhwc) {
            cast(dtype, image, w->sums, at, r->area * r->channels);
        } else {
            for (int64_t c = 0; c < r->channels;
                 c++, image += (size_t)r->area * stored, at += w->size) {
                if (m->to_rows) {
                    cast(w->sums, buffer, dtype, image, r->area);
                    copy_strided(w->size, r->area, buffer, 1, at, r->channels);
                } else {
                    copy_strided(w->size, r->area, at, r->channels, buffer, 1);
                    cast(dtype, image, w->sums, buffer, r->area);
                }
            }
        }
    }
    wf_free(buffer, line);
}

static int move(const columns *w, rows *r, int to_rows)
{
    moving m = {.w = w, .r = r, .to_rows = to_rows};
    const int64_t sample = r->area * r->channels;
    wf_parallel_for(w->d->n, sample >= GRAIN ? 1 : GRAIN / sample, move_task, &m);
    return atomic_load_explicit(&m.rc, memory_order_relaxed);
}

/* The rows of an image: where it lies, or room for them, which is filled if the image is read. */
static int open_rows(columns *w, rows *r, void *image, int nhwc, int64_t channels, int64_t area,
                     int read)
{
    *r = (rows){.image = image, .nhwc = nhwc, .channels = channels, .area = area, .data = image};
    if (nhwc && w->sums == w->d->dtype)
        return WF_GEMM_OK;
    r->copied = (size_t)(w->d->n * channels * area) * w->size;
    r->data = wf_alloc(r->copied);
    if (!r->data) {
        r->copied = 0;
        return WF_GEMM_NOMEM;
    }
    return read ? move(w, r, 1) : WF_GEMM_OK;
}

static void close_columns(columns *w)
{
    wf_mfree(w->pixel);
    if (w->col_bytes)
        wf_free(w->col, w->col_bytes);
    if (w->weight_bytes)
        wf_free(w->weight, w->weight_bytes);
    if (w->src.copied)
        wf_free(w->src.data, w->src.copied);
    if (w->dst.copied)
        wf_free(w->dst.data, w->dst.copied);
}

/* Everything but the two images; reads: whether the weight is read. */
static int open_columns(columns *w, const wf_conv_desc *d, const void *weight, int reads)
{
    if (!fits(d))
        return WF_GEMM_UNSUPPORTED;
    const int64_t positions = d->oh * d->ow;
    w->d = d;
    w->sums = d->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    w->size = wf_dtype_size(w->sums);
    w->taps = d->kh * d->kw;
    w->width = d->c * w->taps;
    w->per_piece = PIECE_ELEMS / (positions * w->width);
    w->per_piece = w->per_piece < 1 ? 1 : least(w->per_piece, d->n);
    w->pixel = wf_malloc((size_t)(positions * w->taps) * sizeof *w->pixel);
    const size_t bytes = (size_t)(w->per_piece * positions * w->width) * w->size;
    w->col = wf_alloc(bytes);
    w->col_bytes = w->col ? bytes : 0;
    if (!w->pixel || !w->col)
        return WF_GEMM_NOMEM;
    int64_t *at = w->pixel;
    for (int64_t y = 0; y < d->oh; y++)
        for (int64_t x = 0; x < d->ow; x++)
            for (int64_t i = 0; i < d->kh; i++)
                for (int64_t j = 0; j < d->kw; j++) {
                    const int64_t iy = y * d->stride[0] + i * d->dilation[0] - d->pad[0];
                    const int64_t ix = x * d->stride[1] + j * d->dilation[1] - d->pad[1];
                    *at++ = iy < 0 || iy >= d->h || ix < 0 || ix >= d->w ? -1 : iy * d->w + ix;
                }
    w->weight = (char *)(uintptr_t)weight;
    if (w->sums == d->dtype)
        return WF_GEMM_OK;
    const int64_t elements = d->o * w->width;
    w->weight = wf_alloc((size_t)elements * w->size);
    if (!w->weight)
        return WF_GEMM_NOMEM;
    w->weight_bytes = (size_t)elements * w->size;
    if (reads)
        cast_all(w->sums, w->weight, d->dtype, weight, elements);
    return WF_GEMM_OK;
}

/* Rows [begin, end) of the columns of the piece. */
static void gather_task(void *arg, int64_t begin, int64_t end)
{
    const columns *w = arg;
    const int64_t positions = w->d->oh * w->d->ow, channels = w->src.channels;
    for (int64_t p = begin; p < end; p++) {
        const int64_t n = w->n0 + p / positions, *pixel = w->pixel + p % positions * w->taps;
        const char *sample = w->src.data + (size_t)(n * w->src.area * channels) * w->size;
        char *row = w->col + (size_t)(p * w->width) * w->size;
        /* A strip of channels at a time stays in the nearest cache, whose lines all taps write. */
        for (int64_t c = 0; c < channels; c += STRIP)
            for (int64_t t = 0; t < w->taps; t++) {
                static const double zero = 0;
                const int64_t count = least(STRIP, channels - c);
                char *to = row + (size_t)(c * w->taps + t) * w->size;
                if (pixel[t] < 0)
                    copy_strided(w->size, count, (const char *)&zero, 0, to, w->taps);
                else
                    copy_strided(w->size, count,
                                 sample + (size_t)(pixel[t] * channels + c) * w->size, 1, to,
                                 w->taps);
            }
    }
}

static void gather(columns *w, int64_t count)
{
    const int64_t all = count * w->d->oh * w->d->ow;
    wf_parallel_for(all, w->width >= GRAIN ? 1 : GRAIN / w->width, gather_task, w);
}

static void add_strided(size_t size, int64_t n, const char *in, int64_t step, char *sum)
{
    if (size == sizeof(double))
        for (int64_t x = 0; x < n; x++)
            ((double *)(void *)sum)[x] += ((const double *)(const void *)in)[x * step];
    else
        for (int64_t x = 0; x < n; x++)
            ((float *)(void *)sum)[x] += ((const float *)(const void *)in)[x * step];
}

/* The gradient of strips [begin, end) of (sample of the piece, strip of channels). */
static void scatter_task(void *arg, int64_t begin, int64_t end)
{
    const columns *w = arg;
    const int64_t positions = w->d->oh * w->d->ow, channels = w->src.channels, area = w->src.area;
    const int64_t strips = (channels + STRIP - 1) / STRIP;
    for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / strips, c = i % strips * STRIP, count = least(STRIP, channels - c);
        char *sample = w->src.data + (size_t)((w->n0 + n) * area * channels + c) * w->size;
        for (int64_t x = 0; x < area; x++)
            memset(sample + (size_t)(x * channels) * w->size, 0, (size_t)count * w->size);
        for (int64_t p = 0; p < positions; p++) {
            const char *row =
                w->col + (size_t)((n * positions + p) * w->width + c * w->taps) * w->size;
            for (int64_t t = 0; t < w->taps; t++) {
                const int64_t pixel = w->pixel[p * w->taps + t];
                if (pixel >= 0)
                    add_strided(w->size, count, row + (size_t)t * w->size, w->taps,
                                sample + (size_t)(pixel * channels) * w->size);
            }
        }
    }
}

static void add_bias(void *arg, int64_t begin, int64_t end)
{
    columns *w = arg;
    const int64_t o = w->dst.channels;
    const char *bias = w->bias;
    for (int64_t p = begin; p < end; p++)
        add_strided(w->size, o, bias, 1, w->dst.data + (size_t)(p * o) * w->size);
}

/* dst.data += bias, of the type of the sums. */
static int with_bias(columns *w, const void *bias)
{
    const wf_conv_desc *d = w->d;
    const size_t bytes = (size_t)d->o * w->size;
    char *wide = wf_alloc(bytes);
    if (!wide)
        return WF_GEMM_NOMEM;
    cast(w->sums, wide, d->dtype, bias, d->o);
    w->bias = wide;
    wf_parallel_for(d->n * d->oh * d->ow, d->o >= GRAIN ? 1 : GRAIN / d->o, add_bias, w);
    wf_free(wide, bytes);
    return WF_GEMM_OK;
}

int wf_conv_columns_forward(const wf_conv_desc *d, const void *src, const void *weight,
                            const void *bias, void *dst)
{
    columns w = {0};
    const int64_t positions = d->oh * d->ow;
    int rc = open_columns(&w, d, weight, 1);
    rc = rc ? rc
            : open_rows(&w, &w.src, (void *)(uintptr_t)src, d->layout & WF_CONV_SRC_NHWC, d->c,
                        d->h * d->w, 1);
    rc = rc ? rc : open_rows(&w, &w.dst, dst, d->layout & WF_CONV_DST_NHWC, d->o, positions, 0);
    for (; !rc && w.n0 < d->n; w.n0 += w.per_piece) {
        const int64_t count = least(w.per_piece, d->n - w.n0);
        gather(&w, count);
        rc = wf_gemm(&(wf_gemm_desc){.dtype = w.sums,
                                     .m = count * positions,
                                     .n = d->o,
                                     .k = w.width,
                                     .batch = 1,
                                     .a = w.col,
                                     .a_rs = w.width,
                                     .a_cs = 1,
                                     .b = w.weight,
                                     .b_rs = 1,
                                     .b_cs = w.width,
                                     .c = w.dst.data + (size_t)(w.n0 * positions * d->o) * w.size,
                                     .c_rs = d->o});
    }
    rc = rc || !bias ? rc : with_bias(&w, bias);
    rc = rc || !w.dst.copied ? rc : move(&w, &w.dst, 0);
    close_columns(&w);
    return rc;
}

int wf_conv_columns_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                                  void *dsrc)
{
    columns w = {0};
    const int64_t positions = d->oh * d->ow, strips = (d->c + STRIP - 1) / STRIP;
    int rc = open_columns(&w, d, weight, 1);
    rc = rc ? rc : open_rows(&w, &w.src, dsrc, d->layout & WF_CONV_SRC_NHWC, d->c, d->h * d->w, 0);
    rc = rc ? rc
            : open_rows(&w, &w.dst, (void *)(uintptr_t)ddst, d->layout & WF_CONV_DST_NHWC, d->o,
                        positions, 1);
    for (; !rc && w.n0 < d->n; w.n0 += w.per_piece) {
        const int64_t count = least(w.per_piece, d->n - w.n0), work = positions * w.taps * STRIP;
        rc = wf_gemm(&(wf_gemm_desc){.dtype = w.sums,
                                     .m = count * positions,
                                     .n = w.width,
                                     .k = d->o,
                                     .batch = 1,
                                     .a = w.dst.data + (size_t)(w.n0 * positions * d->o) * w.size,
                                     .a_rs = d->o,
                                     .a_cs = 1,
                                     .b = w.weight,
                                     .b_rs = w.width,
                                     .b_cs = 1,
                                     .c = w.col,
                                     .c_rs = w.width});
        if (!rc)
            wf_parallel_for(count * strips, work >= GRAIN ? 1 : GRAIN / work, scatter_task, &w);
    }
    rc = rc || !w.src.copied ? rc : move(&w, &w.src, 0);
    close_columns(&w);
    return rc;
}

typedef struct adding {
    size_t size;
    char *sum;
    const char *part;
} adding;

static void add_task(void *arg, int64_t begin, int64_t end)
{
    const adding *a = arg;
    const size_t at = (size_t)begin * a->size;
    add_strided(a->size, end - begin, a->part + at, 1, a->sum + at);
}

int wf_conv_columns_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                    void *dweight)
{
    columns w = {0};
    const int64_t positions = d->oh * d->ow, elements = d->o * d->c * d->kh * d->kw;
    int rc = open_columns(&w, d, dweight, 0);
    rc = rc ? rc
            : open_rows(&w, &w.src, (void *)(uintptr_t)src, d->layout & WF_CONV_SRC_NHWC, d->c,
                        d->h * d->w, 1);
    rc = rc ? rc
            : open_rows(&w, &w.dst, (void *)(uintptr_t)ddst, d->layout & WF_CONV_DST_NHWC, d->o,
                        positions, 1);
    const size_t bytes = w.per_piece < d->n ? (size_t)elements * w.size : 0;
    char *part = !rc && bytes ? wf_alloc(bytes) : NULL;
    rc = !rc && bytes && !part ? WF_GEMM_NOMEM : rc;
    for (; !rc && w.n0 < d->n; w.n0 += w.per_piece) {
        const int64_t count = least(w.per_piece, d->n - w.n0);
        gather(&w, count);
        rc = wf_gemm(&(wf_gemm_desc){.dtype = w.sums,
                                     .m = d->o,
                                     .n = w.width,
                                     .k = count * positions,
                                     .batch = 1,
                                     .a = w.dst.data + (size_t)(w.n0 * positions * d->o) * w.size,
                                     .a_rs = 1,
                                     .a_cs = d->o,
                                     .b = w.col,
                                     .b_rs = w.width,
                                     .b_cs = 1,
                                     .c = w.n0 ? part : w.weight,
                                     .c_rs = w.width});
        if (!rc && w.n0)
            wf_parallel_for(elements, GRAIN, add_task, &(adding){w.size, w.weight, part});
    }
    if (!rc && w.weight_bytes)
        cast_all(d->dtype, dweight, w.sums, w.weight, elements);
    if (part)
        wf_free(part, bytes);
    close_columns(&w);
    return rc;
}
