/*
 * eager/map.c -- elementwise rows on views: tile loads, a kernel, tile stores.
 *
 * Kernels know contiguous tiles of compute types only. An operand that is one already is read in
 * place; a broadcast element is passed as such; everything else (casts, strides, transposes, repeated
 * rows) is loaded into a scratch tile that stays in L1. Results are written in place, or go through a
 * scratch tile for a rounding cast, a strided store or non-temporal stores.
 *
 * Invariants
 *  - Blocks and chunks are cut by shapes alone; no result depends on threads.
 *  - A destination may be exactly one of the sources; then it is read before it is written, block by
 *    block. Any other overlap is the caller's to avoid.
 *  - Scratch is on the stack (see SCRATCH), but for panels of transposed sources past the caches; without memory for those
 *    the stack does.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/exec.h"
#include "eager/kernels/kernels.h"
#include "eager/map.h"
#include "eager/pool.h"
#include "eager/strips.h"

enum {
    TILE = 1024,  /* elements of a scratch tile when there are few operands */
    PIECE = 512,  /* elements between kernel and streaming stores */
    STEP = 64,    /* elements of those between prefetches */
    AHEAD = 4096, /* bytes that prefetches run ahead */
    /* Of a block with a transposed source: rows and elements; columns of one that goes through scratch, and the most that the
     * result's rows may have to go so whole; columns of one that goes through the result; rows where the source's share sets
     * of a cache. Past the caches long pieces of few rows of that source are read. */
    TURNED_ROWS = 128,
    TURNED_ELEMENTS = 1 << 16,
    TURNED_COLS = 256,
    WHOLE_COLS = 512,
    THROUGH_COLS = 2048,
    THROUGH_BYTES = 128 << 10, /* of a band of that one, in the second cache */
    SHARED_BLOCK = 512,
    LEAST_COLS = 64,
    NEAR_BYTES = 32 << 10, /* of what is turned, in the first cache */
    PAST_BAND = 128,
    PAST_COLS = 128,
    PAST_RUN = 64,  /* bytes */
    LEAST = 16,     /* rows and columns of what is turned */
    LEAST_BAND = 8, /* rows */
    /* The same where blocks are asked for into the second cache. Rows a multiple of a page apart have their lines in few sets
     * of it, and what does not fit waits for the last cache, which other programs use, too: fewer of them, longer pieces. */
    SECOND_ROWS = 32,
    SECOND_COLS = 128,
    SHARED_ROWS = 64,
    SHARED_COLS = 64,
    PANEL_BYTES = 1024, /* of a row, where blocks go through it */
    /* The same of a source that is cast and that a second cache may not hold, with rows a multiple of so many bytes apart: it is
     * turned as copies are, by fours or along diagonals, and the result has no room for it. */
    CROWDED = 512,
    CROWDED_FROM = 1 << 20, /* bytes, and the most of them; of elements of eight half as many */
    CROWDED_TO = 1 << 22,
    /* The same where eight rows of a source are read at a time: of such a row, and of the result's. */
    EIGHT_READ = 4096,
    EIGHT_WRITE = 512,
    EIGHT_PAD = 64, /* between its rows there: sets of a cache */
    PAGE = 4096,    /* bytes */
    /* Elements between rows of a result of which a line's rows drive each other out of the first cache. */
    ONE_SET = 1024,
    TOGETHER = 1024, /* elements of rows that are cast at once, or brought together */
    ROW_BYTES = TOGETHER * 8,
    JUMP_FROM = 1 << 20, /* bytes of a source */
    LONG_ROW = 128,      /* elements of a row that is worth a call */
    ROWS_AHEAD = 8,      /* rows fetched before they are read */
    ROW = 32768,         /* elements of a block that needs no scratch */
    SCRATCH = 96 << 10,  /* bytes of stack for tiles, per running chunk */
    PANEL_SRC = 6,       /* sources beside a panel, and what stack they need */
    PANEL_SCRATCH = (2 + PANEL_SRC) * ROW_BYTES,
    SMALL = 256,         /* elements that are cast without a walk */
    GRAIN_CHEAP = 32768, /* elements per chunk: add, compare, ... */
    GRAIN_HEAVY = 4096,  /* elements per chunk: rows with polynomials */
    AWAKE_CHEAP = 8192,  /* elements worth a share of a worker that is awake: half a microsecond */
    AWAKE_HEAVY = 2048,
    LINE = 64,           /* elements of a piece, a multiple of */
    GRAIN_PAST = 1 << 17 /* where stores bypass the caches: a chunk ends by waiting for them */
};

_Static_assert(WF_MAP_SMALL <= 2 * GRAIN_HEAVY, "what is small is never cut");

/* One run of a tile function, shared by all chunks. Operand k of the walk: destinations first. */
typedef struct run {
    const wf_tiles *t;
    const wf_kernels *k;
    wf_walk *w;
    int64_t per_chunk; /* blocks */
    int64_t tile;
    int64_t band; /* row by row, that many at a time: see turned_block; else 0 */
    int64_t step; /* of rows, by which bands are cut for threads */
    /* Bytes of scratch for what is turned where it is to stay in the second cache; 0: it lies on the stack. */
    int64_t panel;
    int64_t pad; /* bytes between rows there */
    int through; /* of a band the source that is turned in the result's memory; -1: all have scratch */
    bool in_rows;        /* all rows of a block, where they lie: see cut_rows */
    bool stream, direct; /* direct: no operand needs a cast or a gather */
    bool past;  /* the kernel itself stores past the caches, where results are written in place */
    bool ahead; /* the function asks for the tiles behind */
    bool in_place;  /* a destination is a source, too */
    uint64_t apart; /* destinations whose rows lie apart, and are more than a second cache holds */
    /* Bytes from a block of a source to the next one, where blocks are parts of rows (halves of the last axis) that do not follow
     * each other and hardware does not see where it goes on; 0: not to be asked for. */
    int64_t jump[WF_WALK_OPS];
    /* Where an operand's scratch tile starts (of a turned source, for each row of a band); the last: values not yet cast. */
    int32_t slot[WF_WALK_OPS + 1];
    /* Of a band: where rows of the first source are brought together; behind those of the last lies what is turned. */
    int32_t rows_at;
} run;

typedef struct chunk {
    const run *r;
    char *scratch, *turned; /* turned: of a band, where it lies */
    bool far;               /* that is a panel */
    int64_t band;           /* its rows */
    /* what scratch tile of a source holds: rows that are read again need no second load */
    const char *held[WF_WALK_OPS];
    int64_t held_rows[WF_WALK_OPS], held_cols[WF_WALK_OPS];
} chunk;

static bool is_packed(const wf_block *b, int k)
{
    return (b->col[k] == 1 || b->cols == 1) && (b->rows == 1 || b->row[k] == b->cols);
}

/* Source k, which is drawn, as a tile. */
static const void *draw(const chunk *c, const wf_block *b, int k)
{
    const wf_tiles *t = c->r->t;
    const int o = t->ndst + k;
    const int64_t size = c->r->w->op[o].esize;
    const int64_t first = (b->ptr[o] - (const char *)t->src[k].data) / size;
    char *tile = c->scratch + c->r->slot[o];
    if (is_packed(b, o)) {
        t->draw(t->arg, k, tile, first, b->rows * b->cols);
        return tile;
    }
    const bool line = b->col[o] == 1;
    for (int64_t i = 0; i < b->rows; i++)
        for (int64_t j = 0; j < b->cols; j += line ? b->cols : 1)
            t->draw(t->arg, k, tile + (i * b->cols + j) * size,
                    first + i * b->row[o] + j * b->col[o], line ? b->cols : 1);
    return tile;
}

/* Asks for memory. (See wf_look_ahead why it is no call.) */
__attribute__((always_inline)) static inline void ask_at(const char *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + i);
}

/* Pieces of rows with gaps between them (a slice of each), and of columns, are nothing that a processor looks ahead by: asks for those of
 * the next block, of which there are as many behind these but at the end of an axis. */
static void ask_for_rows(const wf_block *b, int o, int64_t esize)
{
    enum { LINE_BYTES = 64 };
    const int64_t row = b->row[o] * esize, col = b->col[o] * esize;
    if (row == esize && col > esize) { /* turned: a line holds several blocks */
        for (int64_t j = 0; j < b->cols; j++)
            __builtin_prefetch(b->ptr[o] + j * col + LINE_BYTES);
    } else if (col == esize && row > b->cols * esize) {
        for (int64_t i = b->rows; i < 2 * b->rows; i++)
            ask_at(b->ptr[o] + i * row, b->cols * esize);
    }
    __asm__ volatile(""); /* gcc leaves out calls of functions that only ask for memory */
}

/* Source k of the block as a contiguous tile of its wanted type; sets its bit in bcast if one element
 * stands for all. */
static const void *load(chunk *c, const wf_block *b, int k, unsigned *bcast)
{
    const run *r = c->r;
    if (r->t->drawn >> k & 1)
        return draw(c, b, k);
    const int o = r->t->ndst + k;
    const int from = r->t->src[k].dtype, to = r->t->src_type[k];
    const wf_cast_fn cast = r->k->cast[to][from];
    const bool same = wf_same_bits(from, to);
    const int64_t n = b->rows * b->cols;
    char *tile = c->scratch + r->slot[o];
    if ((b->col[o] == 0 || b->cols == 1) && (b->row[o] == 0 || b->rows == 1)) {
        *bcast |= n > 1 ? 1u << k : 0;
        if (same)
            return b->ptr[o];
        c->held[k] = NULL; /* of the whole block that lay there nothing can be read again */
        cast(tile, b->ptr[o], 1);
        return tile;
    }
    const bool packed = is_packed(b, o);
    if (packed && r->jump[k])
        ask_at(b->ptr[o] + r->jump[k], n * r->w->op[o].esize);
    else if (packed && r->stream && !r->ahead)
        wf_look_ahead(b->ptr[o], n * r->w->op[o].esize);
    if (packed && same)
        return b->ptr[o];
    if (!packed && (r->stream || r->past || r->ahead))
        ask_for_rows(b, o, r->w->op[o].esize);
    if (c->held[k] == b->ptr[o] && c->held_rows[k] == b->rows && c->held_cols[k] == b->cols)
        return tile;
    c->held[k] = b->ptr[o];
    c->held_rows[k] = b->rows;
    c->held_cols[k] = b->cols;
    if (packed) {
        cast(tile, b->ptr[o], (size_t)n);
        return tile;
    }
    if (b->col[o] == 1 && b->cols >= 64) {
        const int64_t in = (int64_t)wf_dtype_size(from), out = (int64_t)wf_dtype_size(to);
        for (int64_t i = 0; i < b->rows; i++) {
            const char *row = b->ptr[o] + i * b->row[o] * in;
            if (r->jump[k])
                ask_at(row + r->jump[k], b->cols * in);
            cast(tile + i * b->cols * out, row, (size_t)b->cols);
        }
        return tile;
    }
    char *raw = same ? tile : c->scratch + r->slot[r->w->nops];
    r->k->pack[wf_width(from)](raw, b->cols, b->ptr[o], b->row[o], b->col[o], (size_t)b->rows,
                               (size_t)b->cols);
    if (!same)
        cast(tile, raw, (size_t)n);
    return tile;
}

/* Is each row of destination k whole lines of memory? Then stores that pass the caches need not read them first. */
static bool is_in_lines(const run *r, const wf_block *b, int k)
{
    const int64_t size = r->w->op[k].esize;
    return (r->stream || r->past) && b->col[k] == 1 && b->cols * size % 64 == 0 &&
           b->row[k] * size % 64 == 0 && (uintptr_t)b->ptr[k] % 64 == 0;
}

/* Puts a scratch tile of destination k where it belongs. */
static void store(chunk *c, const wf_block *b, int k)
{
    const run *r = c->r;
    const int from = r->t->dst_type[k], to = r->t->dst[k].dtype;
    const size_t n = (size_t)(b->rows * b->cols);
    const char *tile = c->scratch + r->slot[k];
    char *raw = c->scratch + r->slot[r->w->nops];
    const bool packed = is_packed(b, k);
    if (!wf_same_bits(from, to)) {
        const wf_cast_fn past = r->k->cast_past[to][from];
        if (packed && r->stream && past && (uintptr_t)b->ptr[k] % 64 == 0) { /* not by way of raw */
            past(b->ptr[k], tile, n);
            return;
        }
        char *out = packed && !r->stream ? b->ptr[k] : raw;
        r->k->cast[to][from](out, tile, n);
        if (out != raw)
            return;
        tile = raw;
    }
    if (packed && r->stream)
        r->k->stream(b->ptr[k], tile, n * wf_dtype_size(to));
    else if (is_in_lines(r, b, k))
        for (int64_t i = 0, bytes = b->cols * r->w->op[k].esize; i < b->rows; i++)
            r->k->stream(b->ptr[k] + i * b->row[k] * r->w->op[k].esize, tile + i * bytes,
                         (size_t)bytes);
    else
        r->k->unpack[wf_width(to)](b->ptr[k], b->row[k], b->col[k], tile, (size_t)b->rows,
                                   (size_t)b->cols);
}

/* Elements [i, i + n) of results on their way past the caches. Memory is asked for between the stores, a few lines at a
 * time: more at once would wait for room. */
static void stream_step(const run *r, void *const *to, void *const *from, const void *const *src,
                        int64_t i, int64_t n)
{
    const wf_tiles *t = r->t;
    for (int k = 0; k < t->nsrc; k++) {
        const int64_t size = r->w->op[t->ndst + k].esize;
        if (t->src_type[k] == WEFT_DTYPE_DEFAULT)
            continue;
        for (int64_t o = 0; o < n * size; o += 64)
            __builtin_prefetch((const char *)src[k] + i * size + AHEAD + o);
    }
    for (int k = 0; k < t->ndst; k++) {
        const int64_t size = r->w->op[k].esize;
        r->k->stream((char *)to[k] + i * size, (const char *)from[k] + i * size,
                     (size_t)(n * size));
    }
}

/* Everything is contiguous and of its own type, and stores go past the caches: pieces so small that the
 * stores of one drain while the next is computed. */
static void stream_block(const run *r, const wf_block *b, char *scratch)
{
    const wf_tiles *t = r->t;
    const void *src[WF_WALK_OPS];
    void *dst[WF_WALK_OPS], *to[WF_WALK_OPS];
    const int64_t bytes = r->w->op[0].esize, many = bytes < 4 ? 4 / bytes : 1; /* as many bytes */
    int64_t piece = PIECE * many;
    while (t->ndst * piece * 8 > SCRATCH)
        piece /= 2;
    for (int k = 0; k < t->ndst; k++)
        dst[k] = scratch + k * piece * 8;
    for (int64_t at = 0; at < b->cols; at += piece) {
        const int64_t n = b->cols - at < piece ? b->cols - at : piece;
        int64_t step = STEP * many; /* lines that steps cut would be stored in parts */
        for (int k = 0; k < t->ndst; k++) {
            to[k] = b->ptr[k] + at * r->w->op[k].esize;
            step = (uintptr_t)to[k] % 64 == 0 ? step : piece;
        }
        for (int k = 0; k < t->nsrc; k++)
            src[k] = t->src_type[k] == WEFT_DTYPE_DEFAULT
                         ? src[0]
                         : b->ptr[t->ndst + k] + at * r->w->op[t->ndst + k].esize;
        t->fn(t->arg, dst, src, (size_t)n, 0);
        for (int64_t i = 0; i < n; i += step)
            stream_step(r, to, dst, src, i, n - i < step ? n - i : step);
    }
}

/* Do rows of source k of the block lie one element behind the other, or is each of them one element? */
static bool lies_in_rows(const wf_block *b, int o)
{
    return b->col[o] == 1 || b->col[o] == 0 || b->cols == 1;
}

/* A band: rows of a block whose transposed sources lie in scratch. Sources as they are read: the first row, the bytes to
 * the next, which of them are one element for a row, which are read from memory as it lies, and of which rows are cast on
 * their way to the kernel. */
typedef struct band {
    const char *src[WF_WALK_OPS];
    int64_t step[WF_WALK_OPS];
    unsigned bcast, direct, casts;
} band;

/* Source k, of which a row is one element, as values of the type the kernel reads. */
static void load_column(chunk *c, const wf_block *b, int k, band *d)
{
    const run *r = c->r;
    const int o = r->t->ndst + k;
    const int from = r->t->src[k].dtype, to = r->t->src_type[k];
    char *raw = c->scratch, *tile = c->scratch + r->rows_at + k * ROW_BYTES;
    r->k->pack[wf_width(from)](raw, 1, b->ptr[o], b->row[o], 1, (size_t)b->rows, 1);
    r->k->cast[to][from](tile, raw, (size_t)b->rows);
    d->src[k] = tile;
    d->step[k] = (int64_t)wf_dtype_size(to);
}

/* Source k, which is transposed or has other strides, as rows in scratch, or in the result's memory. */
static void turn(chunk *c, const wf_block *b, int k, band *d)
{
    const run *r = c->r;
    const int o = r->t->ndst + k;
    const int64_t size = r->w->op[o].esize;
    const bool through = k == r->through;
    char *tile = through ? b->ptr[0] : c->turned + r->slot[o] * c->band;
    const int64_t pad = c->far ? r->pad / size : 0;
    const int64_t apart = through ? b->row[0] : b->cols + pad;
    d->src[k] = tile;
    d->step[k] = apart * size;
    if (!through && c->held[k] == b->ptr[o] && c->held_rows[k] == b->rows &&
        c->held_cols[k] == b->cols)
        return;
    c->held[k] = through || !r->band ? NULL : b->ptr[o]; /* without bands results are cast there */
    c->held_rows[k] = b->rows;
    c->held_cols[k] = b->cols;
    const wf_pack_fn *pack = c->far && r->stream ? r->k->pack_far : r->k->pack;
    const int64_t most = r->stream && !c->far ? PAST_RUN / size : b->cols;
    for (int64_t j = 0; j < b->cols; j += most)
        pack[wf_width(r->t->src[k].dtype)](tile + j * size, apart, b->ptr[o] + j * b->col[o] * size,
                                           b->row[o], b->col[o], (size_t)b->rows,
                                           (size_t)(b->cols - j < most ? b->cols - j : most));
}

static void load_band(chunk *c, const wf_block *b, band *d)
{
    const run *r = c->r;
    const wf_tiles *t = r->t;
    d->bcast = d->direct = d->casts = 0;
    for (int k = 0; k < t->nsrc; k++) {
        const int o = t->ndst + k;
        const bool same = wf_same_bits(t->src[k].dtype, t->src_type[k]);
        const bool single = b->col[o] == 0 && b->cols > 1;
        if (t->src_type[k] == WEFT_DTYPE_DEFAULT) {
            d->src[k] = d->src[0];
            d->step[k] = d->step[0];
            d->bcast |= (d->bcast & 1) << k;
            continue;
        }
        d->bcast |= single ? 1u << k : 0;
        d->casts |= same || single ? 0 : 1u << k;
        if (single && !same) {
            load_column(c, b, k, d);
        } else if (lies_in_rows(b, o)) {
            d->src[k] = b->ptr[o];
            d->step[k] = b->row[o] * r->w->op[o].esize;
            d->direct |= 1u << k;
        } else {
            turn(c, b, k, d);
        }
    }
}

/* Of what is stored past the caches, what comes after row i of a band. Second caches are asked to have the band beside this one: of
 * transposed sources the pieces that fall to row i, of those that are read where they lie the same row. First caches: of the
 * latter a later row of this one. */
static void ask_ahead(const run *r, const wf_block *b, const band *d, int64_t i)
{
    const bool second = wf_amd() && !r->panel;
    for (int o = r->t->ndst; second && o < r->w->nops; o++) {
        const int64_t size = r->w->op[o].esize, step = b->col[o] * size;
        if (b->row[o] != 1 || b->col[o] <= 1)
            continue;
        for (int64_t j = i * b->cols / b->rows; j < (i + 1) * b->cols / b->rows; j++)
            for (int64_t at = 0; at < b->rows * size; at += 64)
                __builtin_prefetch(b->ptr[o] + (b->cols + j) * step + at, 0, 2);
    }
    for (int k = 0; k < r->t->nsrc; k++) {
        const int64_t bytes = b->cols * r->w->op[r->t->ndst + k].esize;
        const char *next = d->src[k] + i * d->step[k] + (second ? bytes : ROWS_AHEAD * d->step[k]);
        for (int64_t at = 0; d->direct >> k & ~d->bcast >> k & 1 && at < bytes; at += 64)
            second ? __builtin_prefetch(next + at, 0, 2) : __builtin_prefetch(next + at);
    }
    __asm__ volatile(""); /* gcc leaves out calls of functions that only ask for memory */
}

/* Rows that follow each other in the result and in every source are one. */
static bool is_one_row(const run *r, const wf_block *b, const band *d)
{
    bool one = is_packed(b, 0);
    for (int k = 0; k < r->t->nsrc && one; k++) {
        const int64_t size = (int64_t)wf_dtype_size(r->t->src_type[k]);
        one = r->t->src_type[k] == WEFT_DTYPE_DEFAULT || d->step[k] == b->cols * size;
    }
    return one && d->bcast == 0;
}

/* Nothing is cast, and results are written where they belong: a row at a time, or all where they are one. */
static void run_rows(const run *r, const wf_block *b, const band *d)
{
    const wf_tiles *t = r->t;
    const int64_t rows = is_one_row(r, b, d) ? 1 : b->rows;
    const size_t cols = (size_t)(b->rows / rows * b->cols);
    const int64_t step = b->row[0] * r->w->op[0].esize;
    const void *at[WF_WALK_OPS];
    char *out = b->ptr[0];
    for (int k = 0; k < t->nsrc; k++)
        at[k] = d->src[k];
    for (int64_t i = 0; i < rows; i++, out += step) {
        t->fn(t->arg, (void *const[]){out}, at, cols, d->bcast);
        for (int k = 0; k < t->nsrc; k++)
            at[k] = (const char *)at[k] + d->step[k];
    }
}

/* What of a band one call of the kernel gets. */
typedef struct piece {
    int64_t i, j, rows, cols;
} piece;

/* Source k of a piece as the kernel reads it: where it lies, or one row behind the other and of the kernel's type. */
static const char *gather(const chunk *c, const band *d, int k, const piece *p)
{
    const run *r = c->r;
    const int from = r->t->src[k].dtype, to = r->t->src_type[k];
    const char *at = d->src[k] + p->i * d->step[k];
    if (d->bcast >> k & 1)
        return at;
    const int64_t size = r->w->op[r->t->ndst + k].esize, bytes = p->cols * size;
    const bool together = p->rows == 1 || d->step[k] == bytes;
    char *tile = c->scratch + r->rows_at + k * ROW_BYTES;
    at += p->j * size;
    if (d->casts >> k & 1) {
        const wf_cast_fn cast = r->k->cast[to][from];
        const int64_t out = p->cols * (int64_t)wf_dtype_size(to);
        if (together)
            cast(tile, at, (size_t)(p->rows * p->cols));
        else
            for (int64_t j = 0; j < p->rows; j++)
                cast(tile + j * out, at + j * d->step[k], (size_t)p->cols);
        return tile;
    }
    if (together)
        return at;
    r->k->pack[0](tile, bytes, at, d->step[k], 1, (size_t)p->rows, (size_t)bytes);
    return tile;
}

/* Runs the kernel on a piece, and puts the results where they belong. late: what comes next is asked for between the stores. */
static void run_piece(chunk *c, const wf_block *b, const band *d, const piece *p, bool late)
{
    const run *r = c->r;
    const wf_tiles *t = r->t;
    const int from = t->dst_type[0], to = t->dst[0].dtype;
    const bool same = wf_same_bits(from, to);
    const int64_t size = r->w->op[0].esize, bytes = p->cols * size, step = b->row[0] * size;
    const bool packed = !r->stream && (p->rows == 1 || step == bytes);
    const size_t n = (size_t)(p->rows * p->cols);
    char *out = b->ptr[0] + p->i * step + p->j * size, *row = c->scratch, *cast = row + ROW_BYTES;
    const void *at[WF_WALK_OPS];
    char *to_row = same && packed ? out : row;
    for (int k = 0; k < t->nsrc; k++)
        at[k] = t->src_type[k] == WEFT_DTYPE_DEFAULT ? at[0] : gather(c, d, k, p);
    if (d->bcast == 0 || p->rows == 1) {
        t->fn(t->arg, (void *const[]){to_row}, at, n, d->bcast);
    } else { /* an element for each row */
        const int64_t wide = p->cols * (int64_t)wf_dtype_size(from);
        for (int64_t i = 0; i < p->rows; i++, to_row += wide) {
            t->fn(t->arg, (void *const[]){to_row}, at, (size_t)p->cols, d->bcast);
            for (int k = 0; k < t->nsrc; k++)
                at[k] = (const char *)at[k] +
                        (d->bcast >> k & 1 ? d->step[k]
                                           : p->cols * (int64_t)wf_dtype_size(t->src_type[k]));
        }
    }
    if (!same)
        r->k->cast[to][from](packed ? out : cast, row, n);
    if (packed)
        return;
    const char *done = same ? row : cast;
    for (int64_t j = 0; j < p->rows; j++, out += step, done += bytes) {
        if (late)
            ask_ahead(r, b, d, p->i + j);
        if (r->stream)
            r->k->stream(out, done, (size_t)bytes);
        else
            memcpy(out, done, (size_t)bytes);
    }
}

/* What is cast, or passes the caches, goes by some hundred elements, of several rows or of one. Past the caches what comes next is asked
 * for a few lines at a time: sources of which some are asked for and others waited for take longer than if none were. On a
 * Zen 5 requests beside the stores hold them up, unless casts leave them time: where there is none they stand before the
 * kernel. */
static void run_band(chunk *c, const wf_block *b, const band *d)
{
    const run *r = c->r;
    const bool same = wf_same_bits(r->t->dst_type[0], r->t->dst[0].dtype);
    const bool early = r->stream && same && wf_amd_zen5();
    if (!r->stream && !d->casts && same) {
        run_rows(r, b, d);
        return;
    }
    const int64_t most = r->stream ? PIECE : TOGETHER;
    const int64_t cols = b->cols < most ? b->cols : most, rows = most / cols;
    piece p;
    for (p.i = 0; p.i < b->rows; p.i += rows) {
        p.rows = b->rows - p.i < rows ? b->rows - p.i : rows;
        for (int64_t i = p.i; early && i < p.i + p.rows; i++)
            ask_ahead(r, b, d, i);
        for (p.j = 0; p.j < b->cols; p.j += cols) {
            p.cols = b->cols - p.j < cols ? b->cols - p.j : cols;
            run_piece(c, b, d, &p, r->stream && !early);
        }
    }
}

/* Can source k be turned in the result's memory, of which every element is then read once more before it is written? */
static bool can_go_through(const run *r, int k)
{
    const wf_walk *w = r->w;
    return !r->stream && !r->in_place && r->t->src_type[k] != WEFT_DTYPE_DEFAULT &&
           w->op[1 + k].esize == w->op[0].esize && w->op[1 + k].strides[w->row_dim] == 1 &&
           w->op[1 + k].strides[w->col_dim] > 1 &&
           (w->op[0].esize == 8 || w->op[0].strides[w->row_dim] % ONE_SET != 0);
}

/* A block in which some source is transposed: that one goes through scratch, or the result, so many rows at a time as
 * stay in the first cache; the others and the results are read and written where they lie. */
static void turned_block(chunk *c, const wf_block *whole)
{
    const run *r = c->r;
    wf_block b;
    band d;
    b.cols = whole->cols;
    for (int k = 0; k < r->w->nops; k++) {
        b.ptr[k] = whole->ptr[k];
        b.row[k] = whole->row[k];
        b.col[k] = whole->col[k];
    }
    for (int64_t i = 0; i < whole->rows; i += c->band) {
        b.rows = whole->rows - i < c->band ? whole->rows - i : c->band;
        load_band(c, &b, &d);
        run_band(c, &b, &d);
        for (int k = 0; k < r->w->nops; k++)
            b.ptr[k] += c->band * b.row[k] * r->w->op[k].esize;
    }
}

/* Asks for where rows of destination k are to be written, which lie apart. */
static void ask_to_write(const wf_block *b, int k, int64_t esize)
{
    for (int64_t i = 0; i < b->rows; i++) {
        char *row = b->ptr[k] + i * b->row[k] * esize;
        for (int64_t at = 0; at < b->cols * esize; at += 64)
            __builtin_prefetch(row + at, 1);
    }
    __asm__ volatile("");
}

static bool are_on_lines(void *const *dst, int n)
{
    bool all = true;
    for (int k = 0; k < n; k++)
        all &= (uintptr_t)dst[k] % 64 == 0;
    return all;
}

/* Are rows long enough for a call each, and is one of the sources an element for a row? (Repeated in scratch it is loaded
 * from within what has just been stored, which processors wait for.) */
static bool goes_by_rows(const run *r, const wf_block *b)
{
    const wf_tiles *t = r->t;
    bool some = false;
    if (!t->by_rows || t->ndst != 1 || r->stream || r->tile < TILE || b->rows == 1 ||
        b->cols < LONG_ROW || b->cols > PIECE || b->col[0] != 1 ||
        r->rows_at + t->nsrc * ROW_BYTES > SCRATCH)
        return false;
    for (int k = 0; k < t->nsrc; k++)
        some |= t->src_type[k] != WEFT_DTYPE_DEFAULT && b->col[1 + k] == 0 && b->row[1 + k] != 0;
    return some;
}

static void do_block(void *arg, const wf_block *b)
{
    chunk *c = arg;
    const run *r = c->r;
    const wf_tiles *t = r->t;
    if (r->band) {
        turned_block(c, b);
        return;
    }
    if (goes_by_rows(r, b)) {
        band d;
        for (int k = 0; k < t->nsrc; k++)
            c->held[k] =
                NULL; /* rows take the room of tiles, which narrower blocks of the chunk may want */
        load_band(c, b, &d);
        run_band(c, b, &d);
        return;
    }
    if (r->direct && r->stream) {
        stream_block(r, b, c->scratch);
        return;
    }
    const void *src[WF_WALK_OPS];
    void *dst[WF_WALK_OPS];
    uint64_t stores = 0;
    unsigned bcast = 0;
    for (int k = 0; k < t->ndst && r->apart; k++)
        if (r->apart >> k & 1 && b->col[k] == 1 && !is_in_lines(r, b, k))
            ask_to_write(b, k, r->w->op[k].esize);
    for (int k = 0; k < t->nsrc; k++) {
        if (t->src_type[k] != WEFT_DTYPE_DEFAULT) {
            src[k] = load(c, b, k, &bcast);
        } else {
            src[k] = src[0];
            bcast |= (bcast & 1) << k;
        }
    }
    for (int k = 0; k < t->ndst; k++) {
        const bool direct =
            wf_same_bits(t->dst_type[k], t->dst[k].dtype) && is_packed(b, k) && !r->stream;
        stores |= direct ? 0 : 1ull << k;
        dst[k] = direct ? b->ptr[k] : c->scratch + r->slot[k];
    }
    if (r->past && stores == 0 && are_on_lines(dst, t->ndst))
        bcast |= WF_PAST_CACHES;
    (r->ahead ? t->ahead : t->fn)(t->arg, dst, src, (size_t)(b->rows * b->cols), bcast);
    for (int k = 0; stores >> k; k++)
        if (stores >> k & 1)
            store(c, b, k);
}

/* Blocks of [begin, end) chunks; panel: NULL, or memory for what is turned. */
static void run_chunk(const run *r, int64_t begin, int64_t end, char *scratch, char *panel)
{
    chunk c;
    c.r = r;
    c.scratch = scratch;
    c.band = r->band > 0 ? r->band : 1;
    c.far = panel != NULL;
    c.turned = panel ? panel : r->band ? scratch + r->rows_at + r->t->nsrc * ROW_BYTES : scratch;
    if (r->panel > 0 && !panel)
        c.band = LEAST; /* as much of it as the stack has room for */
    for (int k = 0; k < r->t->nsrc; k++)
        c.held[k] = NULL;
    const int64_t last = end * r->per_chunk;
    wf_walk_blocks(r->w, begin * r->per_chunk, last < r->w->nblocks ? last : r->w->nblocks,
                   do_block, &c);
    if (r->stream || r->past)
        r->k->fence();
}

/* The stack has rows only: what turns blocks of memory keeps some 70 KiB there, too. */
static __attribute__((noinline)) void chunk_by_panel(const run *r, int64_t begin, int64_t end,
                                                     char *panel)
{
    _Alignas(64) char scratch[PANEL_SCRATCH];
    run_chunk(r, begin, end, scratch, panel);
}

static __attribute__((noinline)) void chunk_by_stack(const run *r, int64_t begin, int64_t end)
{
    _Alignas(64) char scratch[SCRATCH];
    run_chunk(r, begin, end, scratch, NULL);
}

static void do_chunk(void *arg, int64_t begin, int64_t end)
{
    const run *r = arg;
    char *panel = r->panel > 0 ? wf_scratch((size_t)r->panel) : NULL;
    if (panel)
        chunk_by_panel(r, begin, end, panel);
    else
        chunk_by_stack(r, begin, end);
    wf_scratch_free(panel, (size_t)r->panel);
}

static bool some_cast(const wf_tiles *t)
{
    bool same = true;
    for (int k = 0; k < t->ndst && same; k++)
        same = wf_same_bits(t->dst_type[k], t->dst[k].dtype);
    for (int k = 0; k < t->nsrc && same; k++)
        same = wf_same_bits(t->src[k].dtype, t->src_type[k]);
    return !same;
}

/* The jumps of a walk that is cut into rows, or into several of them, where what is read does not fit a thread's caches. */
static void find_jumps(run *r)
{
    const wf_walk *w = r->w;
    const int inner = w->rank - 1;
    int64_t elements = 1;
    for (int i = 0; i < w->rank; i++)
        elements *= w->dims[i];
    if (inner < 1 || w->col_dim != inner || w->cols != w->dims[inner] ||
        (w->row_dim >= 0 && w->row_dim != inner - 1))
        return;
    for (int k = 0; k < r->t->nsrc; k++) {
        const wf_walk_op *o = &w->op[r->t->ndst + k];
        const int64_t step = o->strides[inner - 1];
        if (o->strides[inner] == 1 && step > w->cols && elements * o->esize > JUMP_FROM)
            r->jump[k] = step * w->rows * o->esize;
    }
}

static void find_apart(run *r)
{
    const wf_walk *w = r->w;
    const int inner = w->rank - 1;
    int64_t elements = 1;
    for (int i = 0; i < w->rank; i++)
        elements *= w->dims[i];
    for (int k = 0; k < r->t->ndst; k++)
        if (inner > 0 && w->op[k].strides[inner] == 1 &&
            w->op[k].strides[inner - 1] > w->dims[inner] && elements * w->op[k].esize > JUMP_FROM)
            r->apart |= UINT64_C(1) << k;
}

/* Is some destination read as well? */
static bool is_in_place(const wf_tiles *t)
{
    for (int k = 0; k < t->ndst; k++)
        for (int j = 0; j < t->nsrc; j++)
            if (t->dst[k].data == t->src[j].data && t->src_type[j] != WEFT_DTYPE_DEFAULT)
                return true;
    return false;
}

/* Are more data moved than the caches hold? */
static bool leaves_caches(const run *r)
{
    const wf_walk *w = r->w;
    int64_t bytes = r->t->beside;
    for (int k = 0; k < w->nops; k++) {
        int64_t n = 1;
        for (int i = 0; i < w->rank; i++)
            n *= w->op[k].strides[i] ? w->dims[i] : 1;
        bytes += n * w->op[k].esize;
    }
    return bytes >= WF_STREAM_FROM;
}

/* What cut_turned has to know of a walk. */
typedef struct turned {
    int64_t each; /* bytes in scratch that an element of the block needs */
    int64_t least,
        size; /* bytes of the smallest and the largest element of those that are turned */
    bool any;
    bool shared; /* rows of a source share sets of a cache */
} turned;

static bool is_turned(const run *r, int k)
{
    const int64_t col = r->w->op[1 + k].strides[r->w->col_dim];
    return r->t->src_type[k] != WEFT_DTYPE_DEFAULT && col != 1 && col != 0;
}

static turned look_at(run *r)
{
    const wf_tiles *t = r->t;
    const wf_walk *w = r->w;
    turned u = {.least = 8, .size = 1};
    r->through = -1;
    for (int k = 0; k < t->nsrc; k++) {
        const int64_t from = w->op[1 + k].esize;
        if (!is_turned(r, k))
            continue;
        if (r->through < 0 && can_go_through(r, k))
            r->through = k;
        else
            u.each += from;
        u.any = true;
        u.shared |= w->op[1 + k].strides[w->col_dim] * from % PAGE == 0;
        u.least = u.least < from ? u.least : from;
        u.size = u.size > from ? u.size : from;
    }
    return u;
}

/* Rows and columns of a block with a transposed source. What goes through the result's memory has no tile that were to fit a
 * cache: long rows, which hardware foresees. Of rows that share sets all is read that a page of theirs holds of the block. */
static void size_block(const run *r, const turned *u, int64_t *rows, int64_t *cols)
{
    const wf_walk *w = r->w;
    const int64_t wide = w->dims[w->col_dim], line = 64 / u->least;
    *cols = u->each == 0 ? THROUGH_COLS : wide <= WHOLE_COLS ? WHOLE_COLS : TURNED_COLS;
    *cols = *cols < wide ? *cols : wide;
    *rows = TURNED_ELEMENTS / *cols < TURNED_ROWS ? TURNED_ELEMENTS / *cols : TURNED_ROWS;
    *rows = u->shared ? SHARED_BLOCK : *rows < line ? line : *rows & -line;
}
/* Past the caches. On a Zen 5 what is turned goes through the second cache: pieces of as many rows of the source as long pieces
 * of the result's and the other sources' rows have columns. */
static void size_block_past(const run *r, const turned *u, bool panel, int64_t *rows, int64_t *cols)
{
    if (r->pad) {
        *rows = EIGHT_READ / u->size;
        *cols = EIGHT_WRITE / u->size;
        return;
    }
    if (panel) {
        *rows = *cols = u->size > 1 ? PANEL_BYTES / u->size : PANEL_BYTES / 2;
        return;
    }
    *cols = !wf_amd() ? PAST_COLS : u->shared ? SHARED_COLS : SECOND_COLS;
    *rows = !wf_amd() ? PAST_BAND : u->shared ? SHARED_ROWS : SECOND_ROWS;
}

/* Is what is turned read as fast as a copy only by blocks as high as wide, and is there no room for them in the result? */
static bool wants_panel(const run *r, const turned *u)
{
    const wf_walk *w = r->w;
    const int64_t bytes = w->dims[w->row_dim] * w->dims[w->col_dim] * u->each;
    return r->t->nsrc == 1 && u->size >= 4 && wf_amd_zen5() && bytes >= CROWDED_FROM &&
           bytes <= CROWDED_TO * 4 / u->size &&
           w->op[1].strides[w->col_dim] * u->size % CROWDED == 0;
}

/* Blocks for a transposed source, if there is one and rows of the result are worth a call, or all of them do not fit a tile:
 * few tiles share the scratch, and bands are as high as a line of the source. */
static void cut_turned(run *r, wf_walk *w)
{
    const wf_tiles *t = r->t;
    int64_t rows, cols;
    if (!t->by_rows || t->ndst != 1 || w->row_dim < 0 || w->op[0].strides[w->col_dim] != 1 ||
        w->dims[w->col_dim] < LEAST || w->dims[w->row_dim] < LEAST ||
        (w->dims[w->col_dim] < LEAST_COLS && (w->nblocks == 1 || some_cast(t))))
        return;
    const turned u = look_at(r);
    if (!u.any)
        return;
    /* Halves gain by eight rows at a time only where they share sets, bytes are turned another way. */
    const bool eight = r->k->turn_past[2] != NULL;
    const bool panel = t->nsrc <= PANEL_SRC && (!r->stream ? wants_panel(r, &u)
                                                : eight    ? u.size > 2 || (u.size == 2 && u.shared)
                                                           : wf_amd_zen5());
    r->pad = panel && eight && r->stream ? EIGHT_PAD : 0;
    const int32_t rows_at = 2 * ROW_BYTES;
    int64_t room = SCRATCH - rows_at - t->nsrc * ROW_BYTES;
    if (r->stream || panel) {
        size_block_past(r, &u, panel, &rows, &cols);
    } else {
        size_block(r, &u, &rows, &cols);
        room = room < NEAR_BYTES ? room : NEAR_BYTES;
    }
    const int64_t line = 64 / u.least, pads = r->pad * t->nsrc;
    int64_t most = r->stream || panel ? rows : line;
    const int64_t row = w->op[0].strides[w->row_dim] * u.size;
    if (!r->stream && u.each == 0 && u.size < 8 && wf_amd_zen5() && wf_lines_stay(row, 2 * line)) {
        /* what goes through the result is turned by fours, see copy.inc.c */
        const int64_t high = THROUGH_BYTES / (cols * u.size) & -2 * line;
        most = high > rows ? rows : high > line ? high : line;
    }
    while (cols > LEAST_COLS && (panel ? LEAST : most) * (cols * u.each + pads) > room)
        cols /= 2;
    const int64_t fits =
        u.each == 0 ? most : room / (cols * u.each + pads) / LEAST_BAND * LEAST_BAND;
    if (fits < (panel ? LEAST : LEAST_BAND)) /* a panel without memory is LEAST rows */
        return;
    wf_walk_cut_turned(w, r->stream && !panel && !wf_amd() ? TURNED_ROWS : rows, cols);
    if (w->cols >
        cols) /* no operand is transposed: blocks are what they were, too wide for such tiles */
        return;
    r->rows_at = rows_at;
    r->band = panel || fits > most ? most : fits;
    r->step = r->band > line ? line : r->band;
    int64_t at = 0;
    for (int k = 0; k < t->nsrc; k++) {
        const bool tile = is_turned(r, k) && k != r->through;
        r->slot[1 + k] = (int32_t)at;
        at += tile ? cols * w->op[1 + k].esize + r->pad : 0;
    }
    r->panel = panel ? r->band * at : 0;
}

/* Do neighbours of source k along the rows of a block lie closer to each other than those along its columns? */
static bool is_transposed(const wf_walk *w, int k)
{
    const int64_t row = w->row_dim < 0 ? 0 : wf_magnitude(w->op[1 + k].strides[w->row_dim]);
    return row != 0 && row < wf_magnitude(w->op[1 + k].strides[w->col_dim]);
}

/* Blocks of many rows where rows are worth a call and nothing is to be asked for: a block costs as much as a call on some hundred
 * elements. Sources with other strides, those in reverse among them, are brought together a band at a time, one of them in the
 * result's memory. */
static void cut_rows(run *r, wf_walk *w)
{
    const wf_tiles *t = r->t;
    const int inner = w->rank - 1;
    const int64_t most = t->grain < ROW ? t->grain : ROW;
    int64_t n = 1, each = 0, size = 1;
    for (int i = 0; i < w->rank; i++)
        n *= w->dims[i];
    if (!t->by_rows || t->ndst != 1 || r->stream || r->direct || some_cast(t) || inner < 1 ||
        w->dims[inner] < LONG_ROW || w->op[0].strides[inner] != 1 || w->dims[inner - 1] == 1 ||
        w->dims[inner] > most / 2)
        return;
    r->through = -1;
    for (int k = 0; k < t->nsrc; k++) {
        const int64_t from = w->op[1 + k].esize;
        if (t->src_type[k] == WEFT_DTYPE_DEFAULT)
            continue;
        if (n * from > JUMP_FROM || is_transposed(w, k))
            return;
        if (!is_turned(r, k))
            continue;
        if (r->through < 0 && !r->in_place && from == w->op[0].esize)
            r->through = k;
        else
            each += from;
        size = from;
    }
    const int64_t room = SCRATCH - 2 * ROW_BYTES - t->nsrc * ROW_BYTES, cols = w->dims[inner];
    const bool gathers = each > 0 || r->through >= 0;
    const int64_t fits = (room < NEAR_BYTES ? room : NEAR_BYTES) / (cols * (each ? each : size));
    if (gathers && fits < 1)
        return;
    wf_walk_join_rows(w, most);
    r->in_rows = true;
    r->band = gathers && fits < w->rows ? fits : w->rows;
    r->rows_at = 2 * ROW_BYTES;
    for (int64_t k = 0, at = 0; k < t->nsrc; k++) {
        r->slot[1 + k] = (int32_t)at;
        at += is_turned(r, (int)k) && k != r->through ? cols * w->op[1 + k].esize : 0;
    }
}

void wf_tiles_run(const wf_tiles *t)
{
    const wf_view *views[WF_WALK_OPS];
    wf_walk w;
    for (int k = 0; k < t->ndst; k++)
        views[k] = &t->dst[k];
    for (int k = 0; k < t->nsrc; k++)
        views[t->ndst + k] = &t->src[k];
    if (!wf_walk_init(&w, t->ndst + t->nsrc, views))
        return;
    run r = {.t = t,
             .k = wf_kernels_now(),
             .w = &w,
             .direct = w.flat && !some_cast(t) && !t->drawn,
             .in_place = is_in_place(t),
             .through = -1};
    /* Stores pass the caches if no destination is read as well; not by way of scratch for rows that compute: there
     * plain stores overlap better. */
    const bool far = leaves_caches(&r), leaves = far && !r.in_place;
    r.stream = leaves && (t->grain >= GRAIN_CHEAP || t->past_tiles);
    r.ahead = far && t->ahead;
    r.past = leaves && t->past && !r.stream && wf_past_bit(t->nsrc);
    r.tile = TILE;
    while ((w.nops + 1) * r.tile * 8 > SCRATCH)
        r.tile /= 2;
    if (t->tile && r.tile > t->tile)
        r.tile = t->tile;
    const int64_t row = t->grain < ROW ? t->grain : ROW; /* a block is never more than a chunk */
    wf_walk_cut(&w, r.tile, r.direct && !t->tile ? row : r.tile);
    for (int k = 0; k <= w.nops; k++)
        r.slot[k] = k * (int32_t)(r.tile * 8);
    r.rows_at = (w.nops + 1) * (int32_t)(r.tile * 8);
    cut_rows(&r, &w);
    if (!r.band)
        cut_turned(&r, &w);
    if (!r.band) {
        r.through = -1;
        find_jumps(&r);
    }
    find_apart(&r);
    int64_t block = w.rows * w.cols;
    /* In place there are no stores to wait for, but a chunk still begins in memory that it has not asked for. */
    const bool is_long = leaves || (r.ahead && w.nblocks * block > 8 * GRAIN_PAST);
    const int64_t grain = is_long && t->grain < GRAIN_PAST ? GRAIN_PAST : t->grain;
    r.per_chunk = (grain + block - 1) / block;
    const int64_t chunks = (w.nblocks + r.per_chunk - 1) / r.per_chunk;
    if (w.nblocks > 2 * r.per_chunk) {
        wf_parallel_for(chunks, 1, do_chunk, &r);
        return;
    }
    const int64_t least = t->grain / 4 > AWAKE_HEAVY ? t->grain / 4 : AWAKE_HEAVY;
    if (r.band) {
        const int64_t step = r.in_rows ? 1 : r.step;
        const int64_t rows = wf_awake_grain(w.rows, least / w.cols + 1, step);
        if (r.in_rows)
            wf_walk_join_rows(&w, rows * w.cols);
        else
            wf_walk_cut_turned(&w, rows, w.cols);
        block = w.rows * w.cols;
    }
    r.per_chunk = wf_awake_grain(w.nblocks, least / block + 1, 1);
    wf_parallel_awake((w.nblocks + r.per_chunk - 1) / r.per_chunk, 1, do_chunk, &r);
}

/* -- rows ------------------------------------------------------------------------------------------------ */
enum { KIND_NONE, KIND_VALUE, KIND_TRUTH, KIND_CHOOSE };
static const struct {
    uint8_t kind, nsrc, heavy;
} facts[WF_OP_COUNT] = {
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) [WF_OP_##NAME] = {KIND_VALUE, 1, ulp > 0},
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    [WF_OP_##NAME] = {KIND_VALUE, 2, ulp > 0},
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    [WF_OP_##NAME] = {KIND_VALUE, 3, ulp > 0},
#define PREDICATE(NAME, name, types, expr) [WF_OP_##NAME] = {KIND_TRUTH, 1, 0},
#define COMPARE(NAME, name, types, expr) [WF_OP_##NAME] = {KIND_TRUTH, 2, 0},
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) [WF_OP_##NAME] = {KIND_CHOOSE, 3, 0},
#include "jit/ir/ops.def"
};

static void call_kernel(const void *arg, void *const *dst, const void *const *src, size_t n,
                        unsigned bcast)
{
    wf_map_fn fn;
    memcpy(&fn, arg, sizeof fn);
    fn(dst[0], src, n, bcast);
}

/* The number of elements if the view is contiguous, 0 if it is not (or has none). */
static inline int64_t flat_size(const wf_view *v)
{
    if (v->rank == 0)
        return 1;
    if (v->rank == 1)
        return v->strides[0] == 1 || v->dims[0] == 1 ? v->dims[0] : 0;
    return wf_view_is_contiguous(v) ? wf_view_numel(v) : 0;
}
static bool is_single(const wf_view *v)
{
    for (int i = 0; i < v->rank; i++)
        if (v->dims[i] > 1 && v->strides[i] != 0)
            return false;
    return true;
}

typedef struct call {
    wf_map_fn fn;
    const wf_kernels *k;
    int nsrc, out; /* out: type the kernel writes */
    bool heavy, past;
    uint8_t type[WF_VJP_MAX + 2]; /* types the kernel reads */
} call;

/* The same with casts, for at most SMALL elements. */
static bool run_casting(const call *c, const wf_view *dst, const wf_view *src, int64_t n,
                        unsigned bcast)
{
    _Alignas(64) char tiles[WF_VJP_MAX + 3][SMALL * 8];
    const void *at[WF_VJP_MAX + 2];
    for (int k = 0; k < c->nsrc; k++) {
        at[k] = c->type[k] == WEFT_DTYPE_DEFAULT ? at[0] : src[k].data;
        if (wf_same_bits(src[k].dtype, c->type[k]))
            continue;
        c->k->cast[c->type[k]][src[k].dtype](tiles[k], src[k].data, bcast >> k & 1 ? 1 : (size_t)n);
        at[k] = tiles[k];
    }
    if (wf_same_bits(c->out, dst->dtype)) {
        c->fn(dst->data, at, (size_t)n, bcast);
    } else {
        c->fn(tiles[c->nsrc], at, (size_t)n, bcast);
        c->k->cast[dst->dtype][c->out](dst->data, tiles[c->nsrc], (size_t)n);
    }
    return true;
}

/* One call of a kernel, in pieces. */
typedef struct pieces {
    const call *c;
    char *dst;
    const void *const *src;
    unsigned bcast;
} pieces;

static void do_piece(void *arg, int64_t begin, int64_t end)
{
    const pieces *p = arg;
    const call *c = p->c;
    const void *at[WF_VJP_MAX + 2];
    for (int k = 0; k < c->nsrc; k++) {
        const int64_t size = c->type[k] == WEFT_DTYPE_DEFAULT ? (int64_t)wf_dtype_size(c->type[0])
                                                              : (int64_t)wf_dtype_size(c->type[k]);
        at[k] = p->bcast >> k & 1 ? p->src[k] : (const char *)p->src[k] + begin * size;
    }
    c->fn(p->dst + begin * (int64_t)wf_dtype_size(c->out), at, (size_t)(end - begin), p->bcast);
}

/* The way of small tensors: everything contiguous or a single element, one call of the kernel, no walk
 * and no pool. Returns false where that does not apply. */
static inline bool run_small(const call *c, const wf_view *dst, const wf_view *src)
{
    const void *at[WF_VJP_MAX + 2];
    const int64_t n = flat_size(dst);
    unsigned bcast = 0;
    bool casts = !wf_same_bits(c->out, dst->dtype);
    if (n == 0 || n > 2 * (c->heavy ? GRAIN_HEAVY : GRAIN_CHEAP))
        return false;
    for (int k = 0; k < c->nsrc; k++) {
        if (c->type[k] == WEFT_DTYPE_DEFAULT) {
            at[k] = at[0];
            bcast |= (bcast & 1) << k;
            continue;
        }
        at[k] = src[k].data;
        casts |= !wf_same_bits(src[k].dtype, c->type[k]);
        if (n == 1 || flat_size(&src[k]) == n)
            continue;
        if (!is_single(&src[k]))
            return false;
        bcast |= 1u << k;
    }
    if (__builtin_expect(casts, 0))
        return n <= SMALL && run_casting(c, dst, src, n, bcast);
    const int64_t grain = wf_awake_grain(n, c->heavy ? AWAKE_HEAVY : AWAKE_CHEAP, LINE);
    if (grain < n) {
        pieces p = {c, dst->data, at, bcast};
        wf_parallel_awake(n, grain, do_piece, &p);
        return true;
    }
    c->fn(dst->data, at, (size_t)n, bcast);
    return true;
}

/* Views of few elements. */
static bool run_strips(const call *c, const wf_view *dst, const wf_view *src)
{
    wf_strips s;
    int width = wf_width(dst->dtype);
    for (int k = 0; k < c->nsrc; k++)
        width = wf_width(c->type[k]) > width ? wf_width(c->type[k]) : width;
    wf_strips_open(&s, c->nsrc, width);
    if (!wf_strips_of(&s, dst, src))
        return false;
    s.dst = dst->data;
    s.to = dst->dtype;
    s.out = (uint8_t)c->out;
    s.fn = c->fn;
    for (int k = 0; k < c->nsrc; k++) {
        s.src[k].data = src[k].data;
        s.src[k].from = src[k].dtype;
        s.src[k].to = c->type[k];
    }
    wf_strips_run(&s);
    return true;
}

static void run_large(const call *c, const wf_view *dst, const wf_view *src)
{
    if (run_strips(c, dst, src))
        return;
    const uint8_t to = (uint8_t)c->out;
    wf_tiles_run(&(wf_tiles){.ndst = 1,
                             .nsrc = c->nsrc,
                             .dst = dst,
                             .src = src,
                             .dst_type = &to,
                             .src_type = c->type,
                             .grain = c->heavy ? GRAIN_HEAVY : GRAIN_CHEAP,
                             .past = c->past,
                             .by_rows = true,
                             .fn = call_kernel,
                             .arg = &c->fn});
}

/* -x and |x| of halves turn their sign alone: nothing is widened. */
static int exec_sign(wf_op op, const wf_view *dst, const wf_view *src)
{
    int16_t bits = op == WF_OP_NEG ? INT16_MIN : INT16_MAX;
    wf_view to = *dst, from[2] = {*src, *src};
    to.dtype = from[0].dtype = from[1].dtype = WEFT_I16;
    from[1].data = &bits;
    memset(from[1].strides, 0, sizeof from[1].strides);
    return wf_exec_map(op == WF_OP_NEG ? WF_OP_BITWISE_XOR : WF_OP_BITWISE_AND, WEFT_I16, &to, 2,
                       from);
}

int wf_exec_map(wf_op op, int compute, const wf_view *dst, int nsrc, const wf_view *src)
{
    const int ct = wf_ct(compute);
    call c;
    if ((op == WF_OP_NEG || op == WF_OP_ABS) && dst->dtype == src[0].dtype &&
        (dst->dtype == WEFT_BF16 || dst->dtype == WEFT_F16))
        return exec_sign(op, dst, src);
    c.k = wf_kernels_now();
    c.fn = ct < 0 || op >= WF_OP_ELEMENTWISE ? NULL : c.k->map[ct][op];
    if (!c.fn || nsrc != facts[op].nsrc)
        return WEFT_EUNSUPPORTED;
    c.nsrc = nsrc;
    c.heavy = facts[op].heavy;
    c.past = compute == WEFT_F32 && c.k->past[op];
    c.out = facts[op].kind == KIND_TRUTH ? WEFT_BOOL : compute;
    memset(c.type, compute, sizeof c.type);
    if (facts[op].kind == KIND_CHOOSE)
        c.type[0] = WEFT_BOOL;
    bool halves = dst->dtype == WEFT_BF16 || dst->dtype == WEFT_F16;
    for (int k = 0; k < nsrc; k++)
        halves &= src[k].dtype == dst->dtype;
    if (halves) {
        const wf_map_fn half = c.k->half(op, dst->dtype == WEFT_BF16);
        if (half) {
            c.fn = half;
            c.out = dst->dtype;
            memset(c.type, dst->dtype, sizeof c.type);
            c.past = false;
        }
    }
    if (!run_small(&c, dst, src))
        run_large(&c, dst, src);
    return WEFT_OK;
}

int wf_exec_vjp(wf_op op, int which, int compute, const wf_view *dst, int nsrc, const wf_view *src)
{
    const int t = compute == WEFT_F32 ? 0 : compute == WEFT_F64 ? 1 : -1;
    if (t < 0 || op >= WF_OP_ELEMENTWISE || which < 0 || which >= WF_VJP_MAX ||
        nsrc != facts[op].nsrc + 2)
        return WEFT_EUNSUPPORTED;
    call c = {.k = wf_kernels_now(), .nsrc = nsrc, .out = compute, .heavy = facts[op].heavy};
    c.fn = c.k->vjp[t][op][which];
    if (!c.fn)
        return WEFT_EUNSUPPORTED;
    const unsigned reads = wf_vjp_reads(op, which);
    if (!reads) { /* ZERO: zero bits are the value 0 of every type */
        wf_fill(dst, &(const uint64_t){0});
        return WEFT_OK;
    }
    wf_view v[WF_VJP_MAX + 2]; /* operands that are not read may have no data */
    for (int k = 0; k < nsrc; k++) {
        const bool used = reads >> (k == 0 ? 6 : k == nsrc - 1 ? 7 : k - 1) & 1;
        const int type = facts[op].kind == KIND_CHOOSE && k == 1 ? WEFT_BOOL : compute;
        c.type[k] = (uint8_t)(used ? type : WEFT_DTYPE_DEFAULT);
        v[k] = used ? src[k] : *dst;
    }
    if (!run_small(&c, dst, v))
        run_large(&c, dst, v);
    return WEFT_OK;
}

/* The row VJP: operands broadcast to the result. */
WF_EXEC_DECL(vjp_row)
{
    wf_view v[WF_VJP_MAX + 2];
    const wf_view *d = &e->dst[0];
    for (int k = 0; k < e->nsrc; k++) {
        const wf_view *s = &e->src[k];
        v[k] = *d;
        v[k].data = s->data;
        v[k].dtype = s->dtype;
        for (int a = 0; a < d->rank; a++) {
            const int b = a - (d->rank - s->rank);
            v[k].strides[a] = b >= 0 && s->dims[b] == d->dims[a] ? s->strides[b] : 0;
        }
    }
    return wf_exec_vjp((wf_op)e->attr->ints[0], (int)e->attr->ints[1], wf_dtype_compute(d->dtype),
                       d, e->nsrc, v);
}

/* -- what a vjp column reads: its text, once ---------------------------------------------------------------- */
static const char *const vjp_text[WF_OP_ELEMENTWISE][WF_VJP_MAX] = {
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) [WF_OP_##NAME] = {#vjp},
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) [WF_OP_##NAME] = {#vjp_a, #vjp_b},
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    [WF_OP_##NAME] = {#vjp_a, #vjp_b, #vjp_c},
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) [WF_OP_##NAME] = {NULL, #vjp_a, #vjp_b},
#include "jit/ir/ops.def"
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

unsigned wf_vjp_reads(wf_op op, int which)
{
    static _Atomic uint16_t known[WF_OP_ELEMENTWISE][WF_VJP_MAX]; /* mask | 256 once computed */
    if (op >= WF_OP_ELEMENTWISE || which < 0 || which >= WF_VJP_MAX)
        return 0;
    const unsigned had = atomic_load_explicit(&known[op][which], memory_order_relaxed);
    if (had)
        return had & 255;
    const bool choose = facts[op].kind == KIND_CHOOSE;
    unsigned mask = 0;
    for (const char *s = vjp_text[op][which]; s && *s; s++) {
        if (!is_word(*s))
            continue;
        if (!is_word(s[1])) {
            const unsigned first = choose ? 2 : 1; /* the bit of a */
            mask |= *s == 'g'                ? 64u
                    : *s == 'y'              ? 128u
                    : *s == 'x' || *s == 'p' ? 1u
                    : *s == 'a'              ? first
                    : *s == 'b'              ? first * 2
                    : *s == 'c'              ? first * 4
                                             : 0u;
        }
        while (is_word(s[1]))
            s++;
    }
    atomic_store_explicit(&known[op][which], (uint16_t)(mask | 256u), memory_order_relaxed);
    return mask;
}
