/*
 * eager/cpu/conv_depthwise.c -- gradients of the weights of depthwise convolutions (each group one channel and one result), f32 and
 * bf16, where oneDNN has no kernel for them: 2.6.3 takes filters of more than three columns, dilated ones and those with more padding
 * than half of them for blocks of 16 x 16 channels, with 10 to 60 times the work.
 *
 * A task is sixteen channels of some samples: bands of rows of the image, with its padding, and of the gradient are copied into
 * scratch, channels side by side, as f32, whatever the layout; each element of the filter is then a sum of products of the two.
 * Padding is zeros and multiplied like the rest, which adds nothing to a sum; but times an infinity of the gradient it is a NaN in
 * sums that have no such term. Where a sum is a NaN the task is done once more, with what lies in the image only.
 *
 * Invariant: tasks, bands and the pieces that sums are made of depend on shape alone: any layout and thread count has the same bits.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/conv_image.h"
#include "eager/cpu/dnnl.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"

/* Channels of a task; tasks that are wanted; elements of a band of the image, about; rows and columns that are summed from zero are
 * PIECE products, about. */
enum { SIDE = WF_DEPTHWISE, TASKS = 8, BAND = 1 << 15, PIECE = 256 };
#define MAX_SCRATCH ((size_t)64 << 20)

typedef struct job {
    const wf_conv_desc *d;
    const void *src, *ddst;
    void *out;
    int64_t blocks, parts, per_part; /* of channels; of samples */
    int64_t wide;                    /* columns of a band of the image, with its padding */
    int64_t rows, lines;             /* of the gradient in a band, and of the image */
    size_t sums_bytes, image_bytes, bytes;
    char *partial; /* [block][part] sums, or NULL: one part */
    _Atomic int rc;
} job;

/* Where columns [0, columns) of the band lie, for channels that the task has: [row][column][channel]. */
static wf_view room_of(float *band, int64_t rows, int64_t columns, int64_t wide, int64_t channels)
{
    return (wf_view){.data = band,
                     .dtype = WEFT_F32,
                     .rank = 3,
                     .dims = {rows, columns, channels},
                     .strides = {wide * SIDE, SIDE, 1}};
}

/* Of an image the part of sample n that begins at (y, 0), channels [c, c + channels). */
static wf_view part_of(const wf_view *image, int64_t n, int64_t y, int64_t c, const wf_view *room)
{
    const int64_t *s = image->strides;
    wf_view v = *room;
    const int64_t at = n * s[0] + c * s[1] + y * s[2];
    v.data = (char *)image->data + at * (int64_t)wf_dtype_size(image->dtype);
    v.dtype = image->dtype;
    v.strides[0] = s[2], v.strides[1] = s[3], v.strides[2] = s[1];
    return v;
}

/* Rows of the image from `top` on, which may lie in its padding; columns beside it are zeros already. */
static void copy_image(const job *w, int64_t n, int64_t top, int64_t lines, int64_t c,
                       int64_t channels, float *band)
{
    const wf_conv_desc *d = w->d;
    const wf_view image = wf_conv_image(d, 0, w->src);
    const int64_t row = w->wide * SIDE, left = d->pad[1];
    const int64_t columns = wf_least(d->w, w->wide - left);
    const int64_t first = wf_least(lines, wf_most(0, -top)),
                  end = wf_most(first, wf_least(lines, d->h - top));
    memset(band, 0, (size_t)(first * row) * sizeof *band);
    memset(band + end * row, 0, (size_t)((lines - end) * row) * sizeof *band);
    if (first == end || columns < 1)
        return;
    const wf_view to =
        room_of(band + first * row + left * SIDE, end - first, columns, w->wide, channels);
    const wf_view from = part_of(&image, n, top + first, c, &to);
    wf_copy(&to, &from);
}

/* Positions [*first, result) of [*first, end) that see one of `extent` pixels at position * stride + offset. */
static int64_t seeing(int64_t *first, int64_t end, int64_t stride, int64_t offset, int64_t extent)
{
    *first = offset < 0 ? wf_most(*first, (stride - 1 - offset) / stride) : *first;
    return extent > offset ? wf_least(end, (extent - offset - 1) / stride + 1) : *first;
}

/* Of row i of the filter what a piece, which begins at (y, x) of the gradient, has of the image, and not of its padding. */
static void add_inside(const job *w, const wf_depthwise *piece, int64_t y, int64_t x, int64_t i)
{
    const wf_conv_desc *d = w->d;
    int64_t top = y;
    const int64_t end =
        seeing(&top, y + piece->rows, d->stride[0], i * d->dilation[0] - d->pad[0], d->h);
    for (int64_t j = 0; j < d->kw; j++) {
        int64_t left = x;
        const int64_t right =
            seeing(&left, x + piece->columns, d->stride[1], j * d->dilation[1] - d->pad[1], d->w);
        wf_depthwise p = *piece;
        p.sums += j * SIDE;
        p.g += (top - y) * p.g_row + (left - x) * SIDE;
        p.x += (top - y) * p.x_row + (left - x) * p.x_step + j * p.x_tap;
        p.rows = end - top, p.columns = right - left, p.taps = 1;
        wf_kernels_now()->depthwise(&p);
    }
}

/* What the band that begins with row y of the gradient adds; `inside`: without terms of the padding. */
static void add_band(const job *w, int64_t n, int64_t y, int64_t c, int64_t channels, bool inside,
                     float *sums, float *image, float *grad)
{
    const wf_conv_desc *d = w->d;
    const int64_t rows = wf_least(w->rows, d->oh - y), reach = d->dilation[0] * (d->kh - 1);
    copy_image(w, n, y * d->stride[0] - d->pad[0], (rows - 1) * d->stride[0] + reach + 1, c,
               channels, image);
    const wf_view to = room_of(grad, rows, d->ow, d->ow, channels);
    const wf_view all = wf_conv_image(d, 1, w->ddst), from = part_of(&all, n, y, c, &to);
    wf_copy(&to, &from);
    const int64_t step = d->stride[1] * SIDE, row = w->wide * SIDE;
    const int64_t down = wf_most(1, PIECE / d->ow);
    for (int64_t y0 = 0; y0 < rows; y0 += down)
        for (int64_t x0 = 0; x0 < d->ow; x0 += PIECE)
            for (int64_t i = 0; i < d->kh; i++) {
                const wf_depthwise piece = {
                    .sums = sums + i * d->kw * SIDE,
                    .g = grad + (y0 * d->ow + x0) * SIDE,
                    .x = image + (y0 * d->stride[0] + i * d->dilation[0]) * row + x0 * step,
                    .rows = wf_least(down, rows - y0),
                    .columns = wf_least(PIECE, d->ow - x0),
                    .taps = d->kw,
                    .g_row = d->ow * SIDE,
                    .x_row = d->stride[0] * row,
                    .x_step = step,
                    .x_tap = d->dilation[1] * SIDE};
                if (inside)
                    add_inside(w, &piece, y + y0, x0, i);
                else
                    wf_kernels_now()->depthwise(&piece);
            }
}

/* The sums of a task; whether all are numbers. */
static bool sum_task(const job *w, int64_t task, bool inside, float *sums, float *image,
                     float *grad)
{
    const wf_conv_desc *d = w->d;
    const int64_t c = task / w->parts * SIDE, part = task % w->parts;
    const int64_t last = wf_least(d->n, (part + 1) * w->per_part);
    memset(sums, 0, w->sums_bytes);
    for (int64_t n = part * w->per_part; n < last; n++)
        for (int64_t y = 0; y < d->oh; y += w->rows)
            add_band(w, n, y, c, wf_least(SIDE, d->c - c), inside, sums, image, grad);
    bool numbers = true;
    for (int64_t i = 0; i < d->kh * d->kw * SIDE; i++)
        numbers &= sums[i] == sums[i];
    return numbers;
}

/* The sum of a block's parts, in their order, rounded once. */
static void store_sums(const job *w, int64_t block, float *sums)
{
    const wf_conv_desc *d = w->d;
    const int64_t area = d->kh * d->kw, c = block * SIDE, channels = wf_least(SIDE, d->c - c);
    for (int64_t p = 1; p < w->parts; p++) {
        const float *more = (const float *)(const void *)((char *)sums + (size_t)p * w->sums_bytes);
        for (int64_t i = 0; i < area * SIDE; i++)
            sums[i] += more[i];
    }
    const wf_view from = {
        .data = sums, .dtype = WEFT_F32, .rank = 2, .dims = {channels, area}, .strides = {1, SIDE}};
    wf_view to = wf_view_dense(w->out, d->dtype, 2, from.dims);
    to.data = (char *)w->out + (size_t)(c * area) * wf_dtype_size(d->dtype);
    wf_copy(&to, &from);
}

static void sum_tasks(void *arg, int64_t begin, int64_t end)
{
    job *w = arg;
    char *scratch = wf_scratch(w->bytes);
    if (!scratch) {
        atomic_store_explicit(&w->rc, WF_GEMM_NOMEM, memory_order_relaxed);
        return;
    }
    float *image = (float *)(void *)(scratch + w->sums_bytes);
    float *grad = (float *)(void *)(scratch + w->sums_bytes + w->image_bytes);
    memset(scratch, 0, w->bytes); /* what lies beside the image, and channels that there are not */
    for (int64_t task = begin; task < end; task++) {
        float *sums =
            (float *)(void *)(w->partial ? w->partial + (size_t)task * w->sums_bytes : scratch);
        if (!sum_task(w, task, false, sums, image, grad))
            sum_task(w, task, true, sums, image, grad);
        if (!w->partial)
            store_sums(w, task, sums);
    }
    wf_scratch_free(scratch, w->bytes);
}

static void store_tasks(void *arg, int64_t begin, int64_t end)
{
    job *w = arg;
    for (int64_t block = begin; block < end; block++)
        store_sums(w, block,
                   (float *)(void *)(w->partial + (size_t)(block * w->parts) * w->sums_bytes));
}

static bool is_suited(const wf_conv_desc *d)
{
    if ((d->dtype != WEFT_F32 && d->dtype != WEFT_BF16) || d->groups == 1 || d->groups != d->c ||
        d->c != d->o)
        return false;
    return !wf_dnnl_active() || d->kw > 3 || (d->kh > 1 && d->dilation[0] > 1) ||
           (d->kw > 1 && d->dilation[1] > 1) || d->pad[0] > d->kh / 2 || d->pad[1] > d->kw / 2;
}

static void cut(job *w)
{
    const wf_conv_desc *d = w->d;
    const int64_t reach = d->dilation[0] * (d->kh - 1) + 1;
    w->blocks = (d->c + SIDE - 1) / SIDE;
    const int64_t wanted = wf_least(d->n, wf_most(1, TASKS / w->blocks));
    w->per_part = (d->n + wanted - 1) / wanted;
    w->parts = (d->n + w->per_part - 1) / w->per_part;
    w->wide = (d->ow - 1) * d->stride[1] + d->dilation[1] * (d->kw - 1) + 1;
    const int64_t fit = (BAND / (w->wide * SIDE) - reach) / d->stride[0] + 1;
    const int64_t bands = (d->oh + wf_most(1, fit) - 1) / wf_most(1, fit);
    w->rows = (d->oh + bands - 1) / bands;
    w->lines = (w->rows - 1) * d->stride[0] + reach;
}

int wf_conv_depthwise_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                      void *dweight)
{
    if (!is_suited(d))
        return WF_GEMM_UNSUPPORTED;
    /* a row of the gradient, at least; the filter and the gradient's rows are no larger than what they reach of the image */
    const double reach = (double)d->dilation[0] * (double)(d->kh - 1) + 1,
                 wide = (double)(d->ow - 1) * (double)d->stride[1] +
                        (double)d->dilation[1] * (double)(d->kw - 1) + 1;
    if (reach * wide * SIDE * sizeof(float) > (double)MAX_SCRATCH)
        return WF_GEMM_UNSUPPORTED;
    job w = {.d = d, .src = src, .ddst = ddst, .out = dweight};
    cut(&w);
    w.sums_bytes = (size_t)(d->kh * d->kw * SIDE) * sizeof(float);
    w.image_bytes = (size_t)(w.lines * w.wide * SIDE) * sizeof(float);
    w.bytes = w.sums_bytes + w.image_bytes + (size_t)(w.rows * d->ow * SIDE) * sizeof(float);
    const size_t partial_bytes = (size_t)(w.blocks * w.parts) * w.sums_bytes;
    if (w.parts > 1 && !(w.partial = wf_scratch(partial_bytes)))
        return WF_GEMM_NOMEM;
    wf_parallel_for(w.blocks * w.parts, 1, sum_tasks, &w);
    if (w.partial) {
        wf_parallel_for(w.blocks, 4, store_tasks, &w);
        wf_scratch_free(w.partial, partial_bytes);
    }
    return atomic_load_explicit(&w.rc, memory_order_relaxed);
}
