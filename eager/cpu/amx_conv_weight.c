/*
 * eager/cpu/amx_conv_weight.c -- the gradient of a convolution's weights, bf16 on matrix units.
 *
 * Terms are the pixels of the output, row by row, rows filled up to an even number. A row of A is an output channel of
 * its gradient; a column of B is an input channel of one column of taps (with few channels, an element of the
 * channels of all columns of taps, which lie side by side), packed for that column: stride and shift along x are
 * gone. Rows of taps are other lines of the same B: a row of the image is half a row of pixels, in pairs, of lines
 * further; rows that a vertical stride skips lie in parts of their own.
 *
 * A task is a rectangle of channels. It packs a block of rows of the output and what they need of the image, adds to
 * all its squares what they give, and goes on; where many samples are small a block is several of them.
 *
 * Padding of the image and filled-up terms are zeros and multiplied like the rest. Times an infinity the latter give a
 * NaN that is not there: where a sum is not finite the caller computes all of them by other means.
 *
 * Invariant: blocks are cut by shape alone, and an element's terms are added in their order.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/amx.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/pool.h"

/* Steps of a block, about, and up to which there is one block; rows of taps at most. */
enum { STEPS = 16, ALL_STEPS = 48, MAX_KH = 16 };
/* Of a row of the output, as a block has a row at least; of a task. */
enum { MAX_WIDTH = 2048 };
#define MAX_SCRATCH ((size_t)64 << 20)

typedef struct job {
    const wf_conv_desc *d;
    const uint16_t *src, *ddst;
    uint16_t *out;
    int64_t wide, rows, steps;    /* terms of a row of the output; rows and steps of a piece */
    int64_t per_sample, pieces;   /* pieces; of a block */
    bool merged;                  /* columns are kw * c elements, else channels of one kw */
    int64_t o_blocks, c_blocks;   /* of 32 channels; merged: one of all */
    int64_t per_o, per_c;         /* blocks of a task */
    int64_t across;               /* squares of a c-block for one row of taps */
    int64_t parts, slot[MAX_KH];  /* of rows of the image; the one of a row of taps */
    int64_t shift[MAX_KH], extra; /* rows it is further in that; at most */
    int64_t lines;                /* of a part of a piece */
    int64_t near_c;               /* channels that a task looks at */
    size_t row_bytes, fill_bytes, a_bytes, b_bytes, acc_bytes, bytes;
    bool one_block;
    _Atomic int rc;
} job;

typedef struct task {
    const job *w;
    int64_t o0, o1, c0, c1; /* blocks */
    uint16_t *row, *fill;   /* a row of the image with its padding; rows of the output filled up */
    char *a, *b;
    float *acc;
    wf_amx_join join;
    bool finite;
} task;

static int64_t over(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Rows of A: output channels, from rows [y, y + rows) of sample n, as piece p of the block. */
static void pack_a(const task *t, int64_t n, int64_t y, int64_t rows, int64_t p, int64_t pieces)
{
    const job *w = t->w;
    const wf_conv_desc *d = w->d;
    const uint16_t *from = w->ddst + (n * d->oh + y) * d->ow * d->o;
    if (w->wide != d->ow) {
        for (int64_t i = 0; i < rows; i++) {
            uint16_t *to = t->fill + i * w->wide * d->o;
            memcpy(to, from + i * d->ow * d->o, (size_t)(d->ow * d->o) * sizeof *to);
            memset(to + d->ow * d->o, 0, (size_t)d->o * sizeof *to);
        }
        from = t->fill;
    }
    const int64_t k = rows * w->wide, tile = w->steps * WF_AMX_TILE;
    for (int64_t o = t->o0; o < t->o1; o++)
        for (int64_t half = 0; half < 2; half++) {
            const int64_t first = o * WF_AMX_SIDE + 16 * half, there = d->o - first;
            char *to = t->a + ((o - t->o0) * 2 + half) * pieces * tile + p * tile;
            const int64_t written = there > 0 ? over(k, WF_AMX_SIDE) * WF_AMX_TILE : 0;
            if (there > 0)
                wf_amx_pack_rows(&(wf_amx_matrix){from + first, 1, d->o}, wf_least(16, there), k,
                                 to);
            memset(to + written, 0, (size_t)(tile - written));
        }
}

/* One row of the image, padded, the task's channels only; NULL: all zeros. */
static const uint16_t *padded_row(const task *t, int64_t n, int64_t y)
{
    const job *w = t->w;
    const wf_conv_desc *d = w->d;
    if (y < 0 || y >= d->h)
        return NULL;
    const int64_t first = w->merged ? 0 : t->c0 * WF_AMX_SIDE;
    const int64_t c = w->merged ? d->c : (t->c1 - t->c0) * WF_AMX_SIDE;
    const uint16_t *from = w->src + (n * d->h + y) * d->w * d->c + first;
    const int64_t room = (int64_t)(w->row_bytes / sizeof *from) / w->near_c - d->pad[1];
    const int64_t pixels = wf_least(d->w, room);
    uint16_t *to = t->row + d->pad[1] * c;
    if (c == d->c) {
        memcpy(to, from, (size_t)(pixels * c) * sizeof *to);
        return t->row;
    }
    for (int64_t x = 0; x < pixels; x++)
        memcpy(to + x * c, from + x * d->c, (size_t)c * sizeof *to);
    return t->row;
}

/* Lines of B for rows [y, y + rows) of the output of sample n, as piece p of the block. */
static void pack_b(const task *t, int64_t n, int64_t y, int64_t rows, int64_t p, int64_t panel)
{
    const job *w = t->w;
    const wf_conv_desc *d = w->d;
    const int64_t c = w->merged ? d->c : (t->c1 - t->c0) * WF_AMX_SIDE, pairs = w->wide / 2;
    const int64_t panels = (t->c1 - t->c0) * w->across;
    for (int64_t part = 0; part < w->parts; part++) {
        int64_t offset = 0, far = 0;
        for (int64_t i = 0; i < d->kh; i++)
            if (w->slot[i] == part) {
                offset = i * d->dilation[0] % d->stride[0];
                far = w->shift[i];
            }
        const int64_t piece = (p * w->parts + part) * w->lines;
        for (int64_t r = 0; r < rows + far; r++) {
            const uint16_t *row = padded_row(t, n, (y + r) * d->stride[0] + offset - d->pad[0]);
            for (int64_t q = 0; q < panels; q++) {
                char *to = t->b + q * panel + (piece + r * pairs) * WF_AMX_LINE;
                const int64_t tap = q % w->across;
                const int64_t at = w->merged
                                       ? q * WF_AMX_SIDE
                                       : tap * d->dilation[1] * c + q / w->across * WF_AMX_SIDE;
                const int64_t columns =
                    w->merged ? wf_least(WF_AMX_SIDE, d->kw * c - at) : WF_AMX_SIDE;
                if (row)
                    wf_amx_pack_pairs(row + at, d->stride[1] * c, columns, d->ow, pairs, to);
                else
                    memset(to, 0, (size_t)(pairs * WF_AMX_LINE));
            }
        }
        for (int64_t q = 0; q < panels; q++) /* what the last step reads beside it */
            memset(t->b + q * panel + (piece + (rows + far) * pairs) * WF_AMX_LINE, 0,
                   (size_t)((w->lines - (rows + far) * pairs) * WF_AMX_LINE));
    }
}

/* Elements of few channels: column kw * c + channel. */
static void put_merged(task *t, int64_t o, const float *acc)
{
    const job *w = t->w;
    const wf_conv_desc *d = w->d;
    const int64_t rows = wf_least(WF_AMX_SIDE, d->o - o * WF_AMX_SIDE), area = d->kh * d->kw;
    for (int64_t i = 0; i < d->kh * w->across; i++, acc += WF_AMX_SQUARE / 4)
        for (int64_t e = 0; e < rows * WF_AMX_SIDE; e++) {
            const int64_t r = e / WF_AMX_SIDE, lane = e % WF_AMX_SIDE;
            const int64_t column = i % w->across * WF_AMX_SIDE + wf_amx_column(lane);
            const float x = acc[r / 16 * 512 + lane / 16 * 256 + r % 16 * 16 + lane % 16];
            if (column >= d->kw * d->c)
                continue;
            const uint16_t y = wf_bf16_of_f32(x);
            w->out[((o * WF_AMX_SIDE + r) * d->c + column % d->c) * area + i / w->across * d->kw +
                   column / d->c] = y;
            t->finite &= (y & 0x7F80) != 0x7F80;
        }
}

static void put(task *t, int64_t o, int64_t c, const float *acc)
{
    const wf_conv_desc *d = t->w->d;
    const int64_t area = d->kh * d->kw, first = o * WF_AMX_SIDE;
    if (t->w->merged)
        put_merged(t, o, acc);
    else
        t->finite &=
            wf_amx_join_rows(&t->join, acc, wf_least(WF_AMX_SIDE, d->o - first),
                             t->w->out + (first * d->c + c * WF_AMX_SIDE) * area, d->c * area);
}

/* All squares of the task; squares of a pair of blocks lie in the order of taps. */
static void multiply(task *t, const int32_t *at, int64_t steps, int64_t a_half, int64_t panel,
                     bool first, bool last)
{
    const job *w = t->w;
    const int64_t taps = w->d->kh * w->across, pairs = w->wide / 2;
    for (int64_t o = t->o0; o < t->o1; o++)
        for (int64_t c = t->c0; c < t->c1; c++) {
            const int64_t pair = (o - t->o0) * (t->c1 - t->c0) + c - t->c0;
            float *acc = t->acc + (w->one_block ? 0 : pair * taps * (WF_AMX_SQUARE / 4));
            for (int64_t x = 0; x < w->across; x++)
                for (int64_t i = 0; i < w->d->kh; i++) {
                    const char *b = t->b + ((c - t->c0) * w->across + x) * panel +
                                    (w->slot[i] * w->lines + w->shift[i] * pairs) * WF_AMX_LINE;
                    wf_amx_pairs_square(t->a + (o - t->o0) * 2 * a_half, a_half, b, at, steps,
                                        acc + (i * w->across + x) * (WF_AMX_SQUARE / 4), !first);
                }
            if (last)
                put(t, o, c, acc);
        }
}

static void run_task(task *t)
{
    const job *w = t->w;
    const wf_conv_desc *d = w->d;
    const int64_t all = d->n * w->per_sample, piece = w->parts * w->lines;
    int32_t at[MAX_WIDTH / WF_AMX_SIDE];
    memset(t->row, 0, w->row_bytes);
    for (int64_t p0 = 0; p0 < all; p0 += w->pieces) {
        const int64_t count = wf_least(w->pieces, all - p0);
        const int64_t panel = w->pieces * piece * WF_AMX_LINE;
        for (int64_t p = 0; p < count; p++) {
            const int64_t n = (p0 + p) / w->per_sample, y = (p0 + p) % w->per_sample * w->rows;
            const int64_t rows = wf_least(w->rows, d->oh - y);
            pack_a(t, n, y, rows, p, w->pieces);
            pack_b(t, n, y, rows, p, panel);
            for (int64_t s = 0; s < w->steps; s++)
                at[p * w->steps + s] = (int32_t)((p * piece + s * 16) * WF_AMX_LINE);
        }
        multiply(t, at, count * w->steps, w->pieces * w->steps * WF_AMX_TILE, panel, p0 == 0,
                 p0 + count == all);
    }
}

static void run_tasks(void *arg, int64_t begin, int64_t end)
{
    job *w = arg;
    char *scratch = wf_scratch(w->bytes);
    if (!scratch) {
        atomic_store_explicit(&w->rc, WF_GEMM_NOMEM, memory_order_relaxed);
        return;
    }
    task t = {.w = w, .acc = (float *)(void *)scratch, .finite = true};
    t.a = scratch + w->acc_bytes;
    t.b = t.a + w->a_bytes;
    t.row = (uint16_t *)(void *)(t.b + w->b_bytes);
    t.fill = t.row + w->row_bytes / sizeof *t.row;
    if (!w->merged)
        wf_amx_join_init(&t.join, w->d->kh * w->d->kw);
    wf_amx_enter();
    const int64_t groups = over(w->c_blocks, w->per_c);
    for (int64_t i = begin; i < end; i++) {
        t.o0 = i / groups * w->per_o;
        t.o1 = wf_least(t.o0 + w->per_o, w->o_blocks);
        t.c0 = i % groups * w->per_c;
        t.c1 = wf_least(t.c0 + w->per_c, w->c_blocks);
        run_task(&t);
    }
    wf_amx_leave();
    if (!t.finite)
        atomic_store_explicit(&w->rc, WF_GEMM_UNSUPPORTED, memory_order_relaxed);
    wf_scratch_free(scratch, w->bytes);
}

static bool fits(const wf_conv_desc *d)
{
    return wf_amx_conv_fits(d) && (d->c % WF_AMX_SIDE == 0 || d->dilation[1] == 1) &&
           d->kh <= MAX_KH && d->ow <= MAX_WIDTH && d->c < 1 << 20 && d->o < 1 << 20 &&
           d->stride[1] <= 64;
}

/* Which rows of the image a row of taps reads: of each stride's remainder one part. */
static void choose_parts(job *w)
{
    const wf_conv_desc *d = w->d;
    for (int64_t i = 0; i < d->kh; i++) {
        const int64_t far = i * d->dilation[0];
        w->shift[i] = far / d->stride[0];
        w->extra = wf_most(w->extra, w->shift[i]);
        w->slot[i] = -1;
        for (int64_t j = 0; j < i && w->slot[i] < 0; j++)
            if (j * d->dilation[0] % d->stride[0] == far % d->stride[0])
                w->slot[i] = w->slot[j];
        if (w->slot[i] < 0)
            w->slot[i] = w->parts++;
    }
}

static void cut(job *w)
{
    const wf_conv_desc *d = w->d;
    w->wide = d->ow + d->ow % 2;
    const int64_t all = d->n * over(d->oh * w->wide, WF_AMX_SIDE);
    const int64_t steps = all <= ALL_STEPS ? ALL_STEPS : STEPS;
    w->rows = steps * WF_AMX_SIDE / w->wide;
    w->rows = w->rows >= d->oh ? d->oh : wf_most(1, w->rows >= 8 ? w->rows / 4 * 4 : w->rows);
    w->steps = over(w->rows * w->wide, WF_AMX_SIDE);
    w->per_sample = over(d->oh, w->rows);
    w->pieces = w->per_sample > 1 ? 1 : wf_most(1, wf_least(d->n, steps / w->steps));
    w->one_block = d->n * w->per_sample <= w->pieces;
    choose_parts(w);
    w->lines = w->steps * 16 + w->extra * (w->wide / 2);
    w->merged = d->c % WF_AMX_SIDE != 0;
    w->o_blocks = over(d->o, WF_AMX_SIDE);
    w->c_blocks = w->merged ? 1 : d->c / WF_AMX_SIDE;
    w->across = w->merged ? over(d->kw * d->c, WF_AMX_SIDE) : d->kw;
    int64_t down = wf_most(1, wf_least(4, w->o_blocks / 2));
    const int64_t across = wf_most(1, wf_least(8 / down, w->c_blocks / 2));
    if (down * across == 1 && w->o_blocks > 1)
        down = 2;
    w->per_o = over(w->o_blocks, down);
    w->per_c = over(w->c_blocks, across);
}

int wf_amx_conv_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                void *dweight)
{
    if (!fits(d))
        return WF_GEMM_UNSUPPORTED;
    job w = {.d = d, .src = src, .ddst = ddst, .out = dweight};
    cut(&w);
    const int64_t pixels = (d->ow - 1) * d->stride[1] + d->dilation[1] * (d->kw - 1) + 1;
    w.near_c = w.merged ? d->c : w.per_c * WF_AMX_SIDE;
    w.row_bytes = (size_t)(pixels * w.near_c * 2);
    w.fill_bytes = w.wide == d->ow ? 0 : (size_t)(w.rows * w.wide * d->o * 2);
    w.a_bytes = (size_t)(w.per_o * w.pieces * w.steps * WF_AMX_STEP);
    w.b_bytes = (size_t)(w.per_c * w.across * w.pieces * w.parts * w.lines * WF_AMX_LINE);
    w.acc_bytes =
        (size_t)((w.one_block ? 1 : w.per_o * w.per_c) * d->kh * w.across * WF_AMX_SQUARE);
    w.bytes = w.row_bytes + w.fill_bytes + w.a_bytes + w.b_bytes + w.acc_bytes;
    if (w.bytes > MAX_SCRATCH)
        return WF_GEMM_UNSUPPORTED;
    const int64_t tasks = over(w.o_blocks, w.per_o) * over(w.c_blocks, w.per_c);
    wf_parallel_for(tasks, 1, run_tasks, &w);
    return atomic_load_explicit(&w.rc, memory_order_relaxed);
}
