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
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/conv_image.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/pool.h"

/* Elements of the columns of a piece; the most that one sample may have; channels and elements of a task. */
enum { PIECE_ELEMS = 1 << 21, MOST_ELEMS = 1 << 24, STRIP = 64, GRAIN = 1 << 15 };
/* Positions of a sample up to which weights of more than so many bytes are better read once than reordered. */
enum { FEW_POSITIONS = 16, LARGE_WEIGHTS = 1 << 20 };

typedef struct columns {
    const wf_conv_desc *d;
    int sums;            /* dtype */
    size_t size;         /* of an element of the sums */
    int64_t taps, width; /* of a kernel; of a row of columns */
    int64_t *pixel;      /* [position of a sample][tap]: what it reads, or -1 */
    wf_dense src, dst;   /* rows [sample][pixel][channel] of the type of the sums */
    wf_dense weight;     /* of that type */
    char *col;
    size_t col_bytes;
    int64_t per_piece, n0; /* samples */
} columns;

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

static void close_columns(columns *w)
{
    wf_mfree(w->pixel);
    if (w->col)
        wf_scratch_free(w->col, w->col_bytes);
    wf_dense_free(&w->src);
    wf_dense_free(&w->dst);
    wf_dense_free(&w->weight);
}

/* Everything but images and weight. */
static int open_columns(columns *w, const wf_conv_desc *d)
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
    w->per_piece = w->per_piece < 1 ? 1 : wf_least(w->per_piece, d->n);
    w->pixel = wf_malloc((size_t)(positions * w->taps) * sizeof *w->pixel);
    w->col_bytes = (size_t)(w->per_piece * positions * w->width) * w->size;
    w->col = wf_scratch(w->col_bytes);
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
    return WF_GEMM_OK;
}

static wf_view weight_view(const wf_conv_desc *d, const void *weight)
{
    const int64_t elements = d->o * (d->c / d->groups) * d->kh * d->kw;
    return wf_view_dense((void *)(uintptr_t)weight, d->dtype, 1, &elements);
}

/* Rows [begin, end) of the columns of the piece. */
static void gather_task(void *arg, int64_t begin, int64_t end)
{
    const columns *w = arg;
    const int64_t positions = w->d->oh * w->d->ow, channels = w->d->c;
    for (int64_t p = begin; p < end; p++) {
        const int64_t n = w->n0 + p / positions, *pixel = w->pixel + p % positions * w->taps;
        const char *sample =
            (const char *)w->src.data + (size_t)(n * w->d->h * w->d->w * channels) * w->size;
        char *row = w->col + (size_t)(p * w->width) * w->size;
        /* A strip of channels at a time stays in the nearest cache, whose lines all taps write. */
        for (int64_t c = 0; c < channels; c += STRIP)
            for (int64_t t = 0; t < w->taps; t++) {
                static const double zero = 0;
                const int64_t count = wf_least(STRIP, channels - c);
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
    const int64_t positions = w->d->oh * w->d->ow, channels = w->d->c, area = w->d->h * w->d->w;
    const int64_t strips = (channels + STRIP - 1) / STRIP;
    for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / strips, c = i % strips * STRIP, count = wf_least(STRIP, channels - c);
        char *sample = (char *)w->src.data + (size_t)((w->n0 + n) * area * channels + c) * w->size;
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

int wf_conv_columns_forward(const wf_conv_desc *d, const void *src, const void *weight,
                            const void *bias, void *dst)
{
    columns w = {0};
    const int64_t positions = d->oh * d->ow;
    const wf_view x = wf_conv_pixels(d, 0, src), y = wf_conv_pixels(d, 1, dst);
    int rc = open_columns(&w, d);
    const wf_view k = weight_view(d, weight);
    rc = rc ? rc : wf_conv_dense(&k, w.sums, &w.weight);
    rc = rc ? rc : wf_conv_dense(&x, w.sums, &w.src);
    rc = rc ? rc : wf_conv_room(&y, w.sums, &w.dst);
    for (; !rc && w.n0 < d->n; w.n0 += w.per_piece) {
        const int64_t count = wf_least(w.per_piece, d->n - w.n0);
        gather(&w, count);
        rc = wf_gemm(
            &(wf_gemm_desc){.dtype = w.sums,
                            .m = count * positions,
                            .n = d->o,
                            .k = w.width,
                            .batch = 1,
                            .a = w.col,
                            .a_rs = w.width,
                            .a_cs = 1,
                            .b = w.weight.data,
                            .b_rs = 1,
                            .b_cs = w.width,
                            .c = (char *)w.dst.data + (size_t)(w.n0 * positions * d->o) * w.size,
                            .c_rs = d->o});
    }
    rc = rc ? rc : wf_conv_store(&y, 3, w.sums, &w.dst, bias);
    close_columns(&w);
    return rc;
}

int wf_conv_columns_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                                  void *dsrc)
{
    columns w = {0};
    const int64_t positions = d->oh * d->ow, strips = (d->c + STRIP - 1) / STRIP;
    const wf_view x = wf_conv_pixels(d, 0, dsrc), y = wf_conv_pixels(d, 1, ddst);
    int rc = open_columns(&w, d);
    const wf_view k = weight_view(d, weight);
    rc = rc ? rc : wf_conv_dense(&k, w.sums, &w.weight);
    rc = rc ? rc : wf_conv_room(&x, w.sums, &w.src);
    rc = rc ? rc : wf_conv_dense(&y, w.sums, &w.dst);
    for (; !rc && w.n0 < d->n; w.n0 += w.per_piece) {
        const int64_t count = wf_least(w.per_piece, d->n - w.n0), work = positions * w.taps * STRIP;
        rc = wf_gemm(
            &(wf_gemm_desc){.dtype = w.sums,
                            .m = count * positions,
                            .n = w.width,
                            .k = d->o,
                            .batch = 1,
                            .a = (char *)w.dst.data + (size_t)(w.n0 * positions * d->o) * w.size,
                            .a_rs = d->o,
                            .a_cs = 1,
                            .b = w.weight.data,
                            .b_rs = w.width,
                            .b_cs = 1,
                            .c = w.col,
                            .c_rs = w.width});
        if (!rc)
            wf_parallel_for(count * strips, work >= GRAIN ? 1 : GRAIN / work, scatter_task, &w);
    }
    rc = rc ? rc : wf_conv_store(&x, 3, w.sums, &w.src, NULL);
    close_columns(&w);
    return rc;
}

int wf_conv_columns_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                    void *dweight)
{
    columns w = {0};
    const int64_t positions = d->oh * d->ow;
    const wf_view x = wf_conv_pixels(d, 0, src), y = wf_conv_pixels(d, 1, ddst);
    int rc = open_columns(&w, d);
    const wf_view k = weight_view(d, dweight);
    rc = rc ? rc : wf_conv_room(&k, w.sums, &w.weight);
    rc = rc ? rc : wf_conv_dense(&x, w.sums, &w.src);
    rc = rc ? rc : wf_conv_dense(&y, w.sums, &w.dst);
    const size_t bytes = (size_t)(d->o * w.width) * w.size;
    char *part = !rc && w.per_piece < d->n ? wf_scratch(bytes) : NULL;
    rc = !rc && w.per_piece < d->n && !part ? WF_GEMM_NOMEM : rc;
    const wf_view sum[2] = {wf_view_dense(w.weight.data, w.sums, 1, k.dims),
                            wf_view_dense(part, w.sums, 1, k.dims)};
    for (; !rc && w.n0 < d->n; w.n0 += w.per_piece) {
        const int64_t count = wf_least(w.per_piece, d->n - w.n0);
        gather(&w, count);
        rc = wf_gemm(
            &(wf_gemm_desc){.dtype = w.sums,
                            .m = d->o,
                            .n = w.width,
                            .k = count * positions,
                            .batch = 1,
                            .a = (char *)w.dst.data + (size_t)(w.n0 * positions * d->o) * w.size,
                            .a_rs = 1,
                            .a_cs = d->o,
                            .b = w.col,
                            .b_rs = w.width,
                            .b_cs = 1,
                            .c = w.n0 ? part : w.weight.data,
                            .c_rs = w.width});
        if (!rc && w.n0)
            rc = wf_exec_map(WF_OP_ADD, w.sums, &sum[0], 2, sum);
    }
    rc = rc ? rc : wf_conv_store(&k, 0, w.sums, &w.weight, NULL);
    if (part)
        wf_scratch_free(part, bytes);
    close_columns(&w);
    return rc;
}
