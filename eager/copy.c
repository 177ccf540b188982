/*
 * eager/copy.c -- wf_copy and wf_fill: moving and casting elements between strided views.
 *
 * Dimensions are walked in the order of the destination's strides. Where the source runs along another
 * dimension the walk cuts square blocks, which are transposed in registers, or, to be cast, goes the way of
 * maps (eager/map.c); large copies store past the caches. Casting rules are those of eager/kernels/cast.h.
 *
 * Invariant: views do not overlap, except that they may be equal.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/exec.h"
#include "eager/kernels/kernels.h"
#include "eager/map.h"
#include "eager/pool.h"
#include "eager/strips.h"
#include "eager/tile.h"

enum {
    TILE = 4096,          /* elements of a block that is transposed or cast: 64 x 64 */
    ROW = 16384,          /* elements of a contiguous block */
    GRAIN = 65536,        /* elements per chunk */
    AWAKE = 8192,         /* elements worth a share of a worker that is awake */
    GRAIN_PAST = 1 << 18, /* where stores bypass the caches: a chunk ends by waiting for them */
    /* Of a large transpose: as many rows as memory is asked for ahead of use at once (32 of f32), read in pieces of four
     * pages (on a Zen 5, but for bytes; else two), written in pieces of two lines. */
    READ_BYTES = 8192,
    WRITE_BYTES = 128,
    /* Of one that is turned in two steps: a page of a row is read, and eight lines of one are written. */
    TURN_READ = 4096,
    TURN_WRITE = 512,
    CROWDED = 2048, /* rows a multiple of so many bytes apart */
    SQUARE_BYTES =
        1024, /* of a small one: sides of a block; squares on its diagonals are turned in sequence */
    STREAM_FROM = 24 << 20, /* bytes moved from which stores bypass the caches */
    /* Of one whose rows start within lines: rows of a block, bytes of its columns (at least, to be worth it), and those of
     * a tile, four lines. */
    LINE = 64,
    RAGGED_ROWS = 64,
    RAGGED_LEAST = 1024,
    RAGGED_MOST = 65536,
    RAGGED_TILE = 256
};

typedef struct job {
    wf_walk *w;
    const wf_kernels *k;
    int to, from;
    int64_t per_chunk; /* blocks */
    bool stream, ragged;
    size_t turn; /* bytes of room for two steps; 0: there is one */
    void *room;  /* NULL without memory */
} job;

/* Asks for a few lines of the tile to come, rows of `bytes` bytes: between stores, since memory has no room for more at
 * once, and for the second cache, since the first one has none. */
static const char *ask(const char *row, int64_t step, int64_t bytes, int64_t *at)
{
    for (int i = 0; i < RAGGED_TILE; i += LINE) {
        __builtin_prefetch(row + *at, 0, 2);
        *at += LINE;
        if (*at == bytes) {
            *at = 0;
            row += step;
        }
    }
    return row;
}

/* A transposed block whose rows start within lines: tiles are turned in the first cache and whole lines of them stored
 * past the caches. What does not fill a line stays before the tile's rows, where the next one continues it. */
static void ragged_block(const job *j, const wf_block *b)
{
    enum { PITCH = LINE + RAGGED_TILE };
    const int64_t size = j->w->op[0].esize, most = RAGGED_TILE / size, step = b->col[1] * size;
    _Alignas(LINE) char tile[RAGGED_ROWS * PITCH];
    for (int64_t c = 0; c < b->cols; c += most) {
        const int64_t cols = b->cols - c < most ? b->cols - c : most;
        const bool last = c + cols == b->cols;
        const char *src = b->ptr[1] + c * step, *next = src + cols * step;
        int64_t at = 0;
        j->k->pack[wf_width(j->to)](tile + LINE, PITCH / size, src, 1, b->col[1], (size_t)b->rows,
                                    (size_t)cols);
        for (int64_t i = 0; i < b->rows; i++) {
            char *row = tile + i * PITCH + LINE, *to = b->ptr[0] + (i * b->row[0] + c) * size;
            const int64_t over = (int64_t)((uintptr_t)to % LINE); /* the same for every c */
            const int64_t before = c == 0 ? 0 : over, after = last ? 0 : over;
            j->k->stream(to - before, row - before, (size_t)(before + cols * size - after));
            memcpy(row - LINE, row + RAGGED_TILE - LINE, LINE);
            next = ask(next, step, RAGGED_ROWS * size, &at);
        }
    }
}

/* Does the walk turn memory, and does it leave the caches? */
static bool is_turned_past(const job *j)
{
    const wf_walk *w = j->w;
    return j->stream && w->row_dim >= 0 && w->op[0].strides[w->col_dim] == 1 &&
           w->op[1].strides[w->row_dim] == 1;
}

/* Do rows of the result start within lines? */
static bool is_within_lines(const wf_walk *w)
{
    uintptr_t starts = (uintptr_t)w->op[0].data;
    for (int i = 0; i < w->rank; i++)
        starts |= i == w->col_dim ? 0 : (uintptr_t)(w->op[0].strides[i] * w->op[0].esize);
    return starts % LINE != 0;
}

/* Is a transpose past the caches faster in two steps? Elements of four and eight bytes are so where rows of either side lie such that
 * their lines share buffers or sets (eager/kernels/copy.inc.c). */
static bool goes_by_room(const job *j)
{
    const wf_walk *w = j->w;
    const int64_t size = w->op[0].esize;
    return j->k->turn_past[wf_width(j->to)] &&
           (size == 2 || w->op[0].strides[w->row_dim] * size % CROWDED == 0 ||
            w->op[1].strides[w->col_dim] * size % CROWDED == 0);
}

/* A transposed block in two steps. Rows behind the last whole line of the source and columns behind that of the result go straight
 * on. */
static void turned_block(const job *j, const wf_block *b)
{
    const int width = wf_width(j->to);
    const int64_t size = j->w->op[0].esize, line = LINE / size, step = b->col[1];
    const int64_t rows = b->rows & -line, cols = b->cols & -line;
    j->k->turn_past[width](b->ptr[0], b->row[0], b->ptr[1], step, (size_t)rows, (size_t)cols,
                           j->room);
    if (rows < b->rows)
        j->k->pack[width](b->ptr[0] + rows * b->row[0] * size, b->row[0], b->ptr[1] + rows * size,
                          1, step, (size_t)(b->rows - rows), (size_t)b->cols);
    if (cols < b->cols)
        j->k->pack[width](b->ptr[0] + cols * size, b->row[0], b->ptr[1] + cols * step * size, 1,
                          step, (size_t)rows, (size_t)(b->cols - cols));
}

static void copy_block(void *arg, const wf_block *b)
{
    const job *j = arg;
    if (j->ragged) {
        ragged_block(j, b);
        return;
    }
    if (j->room) {
        turned_block(j, b);
        return;
    }
    const wf_pack_fn pack = (j->stream ? j->k->pack_nt : j->k->pack)[wf_width(j->to)];
    const size_t rows = (size_t)b->rows, cols = (size_t)b->cols;
    if (b->cols == 1 || b->col[0] == 1)
        pack(b->ptr[0], b->row[0], b->ptr[1], b->row[1], b->col[1], rows, cols);
    else {
        _Alignas(64) char tile[TILE * 8];
        j->k->pack[wf_width(j->to)](tile, b->cols, b->ptr[1], b->row[1], b->col[1], rows, cols);
        j->k->unpack[wf_width(j->to)](b->ptr[0], b->row[0], b->col[0], tile, rows, cols);
    }
}

static void cast_block(void *arg, const wf_block *b)
{
    const job *j = arg;
    const wf_cast_fn cast = j->k->cast[j->to][j->from];
    const size_t rows = (size_t)b->rows, cols = (size_t)b->cols, n = rows * cols;
    const bool rows_in = b->col[1] == 1 || cols == 1, rows_out = b->col[0] == 1 || cols == 1;
    const bool packed_in = rows_in && (rows == 1 || b->row[1] == b->cols);
    const bool packed_out = rows_out && (rows == 1 || b->row[0] == b->cols);
    _Alignas(64) char in[TILE * 8], out[TILE * 8];
    const char *src = b->ptr[1];
    if (!packed_in) {
        j->k->pack[wf_width(j->from)](in, b->cols, src, b->row[1], b->col[1], rows, cols);
        src = in;
    }
    const wf_cast_fn past = j->k->cast_past[j->to][j->from];
    if (packed_in && packed_out && j->stream && past && (uintptr_t)b->ptr[0] % 64 == 0) {
        past(b->ptr[0], src, n);
        return;
    }
    if (packed_in && j->stream)
        wf_look_ahead(src, (int64_t)n * j->w->op[1].esize);
    if (packed_out && !j->stream) {
        cast(b->ptr[0], src, n);
        return;
    }
    cast(out, src, n);
    if (packed_out)
        j->k->stream(b->ptr[0], out, n * wf_dtype_size(j->to));
    else
        j->k->unpack[wf_width(j->to)](b->ptr[0], b->row[0], b->col[0], out, rows, cols);
}

/* The same as a function of tiles. */
static void cast_tile(const void *arg, void *const *dst, const void *const *src, size_t n,
                      unsigned bcast)
{
    const job *j = arg;
    j->k->cast[j->to][j->from](dst[0], src[0], bcast ? 1 : n);
    if (bcast)
        j->k->pack[wf_width(j->to)](dst[0], 0, dst[0], 0, 0, 1, n);
}

/* Does the source run along the rows of the walk's blocks, and are they such that maps turn whole lines of it? */
static bool is_turned(const wf_walk *w)
{
    enum { LEAST = 16 };
    return w->row_dim >= 0 && w->op[0].strides[w->col_dim] == 1 &&
           w->op[1].strides[w->row_dim] == 1 && w->op[1].strides[w->col_dim] > 1 &&
           w->dims[w->row_dim] >= LEAST && w->dims[w->col_dim] >= LEAST;
}

static void fill_block(void *arg, const wf_block *b)
{
    const job *j = arg;
    const size_t rows = (size_t)b->rows, cols = (size_t)b->cols;
    if (b->cols == 1 || b->col[0] == 1) {
        j->k->pack[wf_width(j->to)](b->ptr[0], b->row[0], b->ptr[1], 0, 0, rows, cols);
        return;
    }
    const int64_t size = (int64_t)wf_dtype_size(j->to);
    for (int64_t i = 0; i < b->rows; i++) /* one column at a time, strided */
        j->k->pack[wf_width(j->to)](b->ptr[0] + i * b->row[0] * size, b->col[0], b->ptr[1], 0, 0,
                                    cols, 1);
}

typedef struct task {
    const job *j;
    wf_block_fn fn;
} task;

static void do_chunk(void *arg, int64_t begin, int64_t end)
{
    const task *t = arg;
    const int64_t last = end * t->j->per_chunk;
    job j = *t->j;
    j.room = j.turn ? wf_scratch(j.turn) : NULL;
    wf_walk_blocks(t->j->w, begin * t->j->per_chunk, last < j.w->nblocks ? last : j.w->nblocks,
                   t->fn, &j);
    if (j.stream)
        j.k->fence();
    wf_scratch_free(j.room, j.turn);
}

/* Do all rows of a block run across an operand's memory? */
static bool runs_across(const wf_walk *w)
{
    bool across = false;
    for (int k = 0; k < 2 && w->row_dim >= 0; k++)
        across |=
            wf_magnitude(w->op[k].strides[w->row_dim]) < wf_magnitude(w->op[k].strides[w->col_dim]);
    return across;
}

static void run_job(job *j, wf_block_fn fn)
{
    wf_walk *w = j->w;
    const int64_t block = w->rows * w->cols;
    j->per_chunk = ((j->stream ? GRAIN_PAST : GRAIN) + block - 1) / block;
    task t = {j, fn};
    const int64_t chunks = (w->nblocks + j->per_chunk - 1) / j->per_chunk;
    if (chunks > 2) {
        wf_parallel_for(chunks, 1, do_chunk, &t);
        return;
    }
    j->per_chunk = w->nblocks;
    if (!runs_across(w) || wf_amd()) { /* elsewhere nobody has measured turned blocks */
        wf_walk_cut_turned(w, wf_awake_grain(w->rows, AWAKE / w->cols + 1, LINE), w->cols);
        j->per_chunk = wf_awake_grain(w->nblocks, AWAKE / (w->rows * w->cols) + 1, 1);
    }
    wf_parallel_awake((w->nblocks + j->per_chunk - 1) / j->per_chunk, 1, do_chunk, &t);
}

_Static_assert(WF_COPY_SMALL <= 2 * GRAIN, "what is small is never cut");

/* A cast of row-major operands, in pieces. */
typedef struct casting {
    wf_cast_fn fn;
    char *dst;
    const char *src;
    int64_t to, from; /* bytes of an element */
} casting;

static void cast_piece(void *arg, int64_t begin, int64_t end)
{
    const casting *c = arg;
    c->fn(c->dst + begin * c->to, c->src + begin * c->from, (size_t)(end - begin));
}

void wf_cast_small(int to, void *dst, int from, const void *src, int64_t n)
{
    casting c = {wf_kernels_now()->cast[to][from], dst, src, (int64_t)wf_dtype_size(to),
                 (int64_t)wf_dtype_size(from)};
    const int64_t grain = wf_awake_grain(n, AWAKE, LINE);
    if (grain == n)
        cast_piece(&c, 0, n);
    else
        wf_parallel_awake(n, grain, cast_piece, &c);
}

/* A view of few elements, into row-major memory. */
static bool copy_strips(const wf_view *dst, const wf_view *src)
{
    wf_strips s;
    const int to = wf_width(dst->dtype), from = wf_width(src->dtype);
    wf_strips_open(&s, 1, to > from ? to : from);
    if (!wf_strips_of(&s, dst, src))
        return false;
    wf_strips_copy(&s, dst->dtype, dst->data, src->dtype, src->data);
    return true;
}

static bool copy_small(const wf_view *dst, const wf_view *src)
{
    const int64_t n = wf_view_numel(dst);
    if (n == 0 || n > WF_COPY_SMALL || dst->data == src->data || !wf_view_is_contiguous(dst))
        return false;
    if (!wf_view_is_contiguous(src))
        return copy_strips(dst, src);
    wf_cast_small(dst->dtype, dst->data, src->dtype, src->data, n);
    return true;
}

/* One element everywhere, of another type: converted once. */
static bool copy_one(const wf_view *dst, const wf_view *src)
{
    uint64_t value;
    bool one = dst->dtype != src->dtype && wf_view_numel(dst) > 0;
    for (int i = 0; i < src->rank; i++)
        one = one && (src->dims[i] == 1 || src->strides[i] == 0);
    if (!one)
        return false;
    wf_kernels_now()->cast[dst->dtype][src->dtype](&value, src->data, 1);
    wf_fill(dst, &value);
    return true;
}

void wf_copy(const wf_view *dst, const wf_view *src)
{
    wf_walk w;
    if (copy_small(dst, src) || copy_one(dst, src))
        return;
    if (!wf_walk_init(&w, 2, (const wf_view *const[]){dst, src}))
        return;
    job j = {.w = &w, .k = wf_kernels_now(), .to = dst->dtype, .from = src->dtype};
    const bool move = j.to == j.from || (j.from == WEFT_BOOL && wf_dtype_size(j.to) == 1) ||
                      (j.to != WEFT_BOOL && wf_dtype_size(j.to) == 1 && wf_dtype_size(j.from) == 1);
    int64_t n = 1, read = 1;
    for (int i = 0; i < w.rank; i++) {
        n *= w.dims[i];
        read *= w.op[1].strides[i] ? w.dims[i] : 1;
    }
    j.stream = n * w.op[0].esize + read * w.op[1].esize >= STREAM_FROM && dst->data != src->data;
    if (move) {
        if (dst->data == src->data && w.flat)
            return;
        const bool four = wf_amd_zen5() && w.op[0].esize > 1;
        wf_walk_cut(&w, TILE, ROW);
        if (w.cols > TILE && w.op[0].strides[w.rank - 1] != 1)
            wf_walk_cut(&w, TILE, TILE);
        if (w.op[0].strides[w.rank - 1] == 1)
            wf_walk_join_rows(&w, TILE);
        const int64_t size = w.op[0].esize;
        bool two_steps = false;
        if (is_turned_past(&j)) {
            const bool within = is_within_lines(&w);
            j.ragged = within && w.dims[w.row_dim] >= RAGGED_ROWS &&
                       w.dims[w.col_dim] * size >= RAGGED_LEAST;
            two_steps = !within && goes_by_room(&j);
        }
        if (j.ragged)
            wf_walk_cut_turned(&w, RAGGED_ROWS, RAGGED_MOST / size);
        else if (two_steps)
            wf_walk_cut_turned(&w, TURN_READ / size, TURN_WRITE / size);
        else if (w.op[0].strides[w.rank - 1] == 1)
            wf_walk_cut_turned(&w, (j.stream ? READ_BYTES << four : SQUARE_BYTES) / size,
                               (j.stream ? WRITE_BYTES : SQUARE_BYTES) / size);
        j.turn = two_steps ? wf_turn_room(w.rows, w.cols, size) : 0;
        run_job(&j, copy_block);
    } else {
        const bool direct =
            w.flat &&
            (!j.stream || (j.k->cast_past[j.to][j.from] && (uintptr_t)dst->data % 64 == 0));
        wf_walk_cut(&w, TILE, direct ? GRAIN : j.stream ? TILE / 4 : TILE);
        if (is_turned(&w)) {
            const uint8_t to = dst->dtype, from = src->dtype;
            wf_tiles_run(&(wf_tiles){.ndst = 1,
                                     .nsrc = 1,
                                     .dst = dst,
                                     .src = src,
                                     .dst_type = &to,
                                     .src_type = &from,
                                     .grain = GRAIN / 2,
                                     .by_rows = true,
                                     .fn = cast_tile,
                                     .arg = &j});
            return;
        }
        run_job(&j, cast_block);
    }
}

void wf_fill(const wf_view *dst, const void *v)
{
    wf_walk w;
    const int64_t n = wf_view_numel(dst);
    if (n > 0 && n <= ROW && wf_view_is_contiguous(dst)) { /* one block */
        wf_kernels_now()->pack[wf_width(dst->dtype)](dst->data, 1, v, 0, 0, 1, (size_t)n);
        return;
    }
    wf_view value = *dst;
    memcpy(&value.data, &v, sizeof v); /* read only */
    for (int i = 0; i < value.rank; i++)
        value.strides[i] = 0;
    if (!wf_walk_init(&w, 2, (const wf_view *const[]){dst, &value}))
        return;
    wf_walk_cut(&w, ROW, ROW);
    job j = {.w = &w, .k = wf_kernels_now(), .to = dst->dtype, .from = dst->dtype};
    run_job(&j, fill_block);
}
