/*
 * eager/reduce.c -- the reduction engine: any dtype, strides and axis set, in the canonical order.
 *
 * Axes are split into kept and reduced ones and collapsed where strides allow. Four ways follow:
 *   inner   the reduced elements lie (in pieces) next to each other: blocks of 4096 are loaded, or
 *           used in place, and reduced to one value each; many short rows are turned and go as columns
 *   wide    the innermost kept axis is contiguous and long: tiles of columns; the lanes of a block are
 *           visited in bit-reversed order, so that the halving tree needs one buffer per level
 *   narrow  the same with few columns: 64 rows at a time are one wide row of 64 * columns lanes
 *   lanes   sums as they lie in memory, on a Zen 5 instead of wide: one sum of each lane, rows read from end to end
 * Blocks and, where that leaves too few tasks, classes of lanes (subtrees of the halving tree) are
 * separate tasks; their partial results are combined by the same rule. Tasks depend on shape only.
 *
 * Invariant: every way gives the bits of the definition in docs/reductions.md.
 */
#include "eager/reduce.h"

#include <string.h>

#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"

enum {
    NARROW_BYTES = 512,   /* rows up to this many bytes go the narrow way */
    COMPARED_BYTES = 128, /* not those of integers of as many that are compared as they lie */
    WIDE_BYTES = 4096,    /* bytes of a tile's row: long enough to stream, levels fit in L1 */
    FLAT_BYTES = 8 << 20, /* of all rows that the last cache may hold: eight at a time will do, */
    FLAT_COLUMNS = 16,    /* where their columns are whole pairs of registers */
    AWAKE = 1 << 14,      /* elements worth a share of a worker that is awake */
    TASK_ELEMENTS = 1 << 16, /* elements worth waking another thread for */
    FAR_FROM = 1 << 21,      /* elements, more than a second cache holds: halves are asked for */
    FAR = 16 << 10,          /* bytes ahead, a third of the first cache */
    LANES_BYTES =
        1 << 21, /* of sums of all lanes: rows in one piece gain more than a second cache does */
    PIECE_BYTES = 2048, /* of sums of a row, at least, where rows are cut for more threads */
    PIECES_FROM = 512,  /* bytes of the sums of a row that is summed up where it lies */
    LANES_FROM = 256,   /* rows: four of a lane */
    MOST_CLASSES = 8    /* tasks that subtrees of a block's lanes make */
};

typedef struct engine {
    const wf_red_job *job;
    const wf_red_kernels *k;
    wf_red_axis_split g;
    char *out;       /* results, or partial results when blocks > 1 or classes > 1 */
    int64_t blocks;  /* per kept index */
    int64_t columns; /* innermost kept extent (wide, narrow) */
    int64_t tile, tiles;
    int classes;
    bool in_place;             /* x can be read as compute values without a load */
    const wf_sum_kernels *sum; /* for sums of values as they lie in memory, else NULL */
    wf_span_fn span;           /* for those and for sums of their squares, else NULL */
    void (*extreme)(void *, const void *, int dtype,
                    int64_t); /* of elements as they lie in memory, or NULL */
    wf_map_fn
        larger; /* wide: the row maximum or minimum of integers, which are compared as they lie in memory; or NULL */
    bool apart; /* wide and narrow: columns are not neighbours */
    bool near;  /* wide: the tree of a block's lanes is done in registers */
} engine;

const wf_red_kernels *wf_red_kernels_of(int compute)
{
    static const wf_red_kernels *const by_isa[WF_NISA] = {
        [WF_ISA_SSE2] = wf_red_kernels_sse2,
        [WF_ISA_AVX2] = wf_red_kernels_avx2,
        [WF_ISA_AVX512] = wf_red_kernels_avx512,
    };
    return &by_isa[wf_isa()][compute == WEFT_F32 ? 0 : compute == WEFT_F64 ? 1 : 2];
}

const wf_sum_kernels *wf_sum_kernels_of(int dtype)
{
    static const wf_sum_kernels *const by_isa[WF_NISA] = {
        [WF_ISA_SSE2] = wf_sum_kernels_sse2,
        [WF_ISA_AVX2] = wf_sum_kernels_avx2,
        [WF_ISA_AVX512] = wf_sum_kernels_avx512,
    };
    const wf_sum_kernels *k = &by_isa[wf_isa()][dtype];
    return k->span != NULL ? k : NULL;
}

static wf_span_fn squares_now(void)
{
    const int isa = wf_isa();
    return isa == WF_ISA_AVX512 ? wf_squares_avx512
           : isa == WF_ISA_AVX2 ? wf_squares_avx2
                                : wf_squares_sse2;
}

int wf_red_compute(int dtype)
{
    if (dtype == WEFT_F64) {
        return WEFT_F64;
    }
    return (WF_BIT(dtype) & WF_DT_F) != 0 ? WEFT_F32 : WEFT_I64;
}

size_t wf_red_size(int compute)
{
    return compute == WEFT_F32 ? 4 : 8;
}

unsigned wf_red_axes(const wf_attr *attr, int rank)
{
    unsigned axes = 0;
    for (int i = 0; i < attr->n_ints; i++) {
        axes |= 1u << attr->ints[i];
    }
    return attr->n_ints == 0 ? (1u << rank) - 1u : axes;
}

int wf_red_nomem(wf_why *why, int64_t bytes)
{
    int code = wf_fail(why, WEFT_ENOMEM, "%lld bytes of scratch memory are not available",
                       (long long)bytes);
    wf_hint(why, "free tensors that are no longer needed, or work on smaller pieces");
    return code;
}

static void add_axis(int64_t *d, int64_t *x, int64_t *y, int *n, int64_t dim, int64_t sx,
                     int64_t sy)
{
    if (dim == 1) {
        return;
    }
    if (*n > 0 && x[*n - 1] == sx * dim && y[*n - 1] == sy * dim) {
        d[*n - 1] *= dim;
        x[*n - 1] = sx;
        y[*n - 1] = sy;
        return;
    }
    d[*n] = dim;
    x[*n] = sx;
    y[*n] = sy;
    (*n)++;
}

void wf_red_split(wf_red_axis_split *g, const wf_view *x, const wf_view *y, unsigned axes)
{
    g->kept = g->reduced = 1;
    g->nk = g->nr = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t sy = y != NULL ? y->strides[i] : 0;
        if ((axes >> i & 1u) != 0) {
            g->reduced *= x->dims[i];
            add_axis(g->rd, g->rx, g->ry, &g->nr, x->dims[i], x->strides[i], sy);
        } else {
            g->kept *= x->dims[i];
            add_axis(g->kd, g->kx, g->ky, &g->nk, x->dims[i], x->strides[i], sy);
        }
    }
}

void wf_red_locate(int64_t i, int n, const int64_t *d, const int64_t *x, const int64_t *y,
                   int64_t *ox, int64_t *oy)
{
    for (int a = n - 1; a >= 0; a--) {
        int64_t c = a > 0 ? i % d[a] : i;
        i = a > 0 ? i / d[a] : 0;
        *ox += c * x[a];
        *oy += c * y[a];
    }
}

static const char *at(const wf_view *v, int64_t offset)
{
    return (const char *)v->data + offset * (int64_t)wf_dtype_size(v->dtype);
}

/* Of values that are brought together at once: so many that the second cache, or the first one, has room for them. */
enum { TOGETHER_BYTES = 1 << 16, FIRST_BYTES = 1 << 14 };
/* Of those that are turned, a row of which is a column in memory; and bytes of a block's rows. */
enum { TURNED_BYTES = 1 << 18, BLOCK_WIDTH = 512 };
/* Elements of a row below which several are brought together. */
enum { SHORT_ROW = 512 };

/* A step that is neither 1 nor 0: elements come together before they are converted. */
static bool is_spread(int64_t stride)
{
    return stride != 0 && stride != 1;
}

/* rows x n elements of v, one behind the other at dst, as they lie in memory. What is turned is cut into blocks no wider than
 * high: those of other shapes are the shares of several threads to a kernel, and walked in their order, which is slower alone. */
static void bring_rows(void *dst, const wf_view *v, int64_t offset, int64_t step, int64_t stride,
                       int64_t rows, int64_t n)
{
    const wf_pack_fn pack = wf_kernels_now()->pack[wf_width(v->dtype)];
    const int64_t size = (int64_t)wf_dtype_size(v->dtype), line = 64 / size;
    const int64_t most = rows * size < BLOCK_WIDTH ? rows / line * line : BLOCK_WIDTH / size;
    const int64_t wide = step == 1 && is_spread(stride) && most > 0 ? most : n;
    for (int64_t c = 0; c < n; c += wide) {
        pack((char *)dst + c * size, n, at(v, offset + c * stride), step, stride, (size_t)rows,
             (size_t)(n - c < wide ? n - c : wide));
    }
}

/* What is neither of the compute type nor one row as it lies: by a buffer, which ASan marks anew at every call, so not below. */
__attribute__((noinline)) static void
convert_rows(void (*convert)(void *, const void *, int, int64_t, int64_t), void *dst,
             const wf_view *v, int64_t offset, int64_t step, int64_t stride, int64_t rows,
             int64_t n)
{
    _Alignas(64) char together[TOGETHER_BYTES];
    bring_rows(together, v, offset, step, stride, rows, n);
    convert(dst, together, v->dtype, 1, rows * n);
}

void wf_red_load(int compute, bool truth, void *dst, const wf_view *v, int64_t offset, int64_t step,
                 int64_t stride, int64_t rows, int64_t n)
{
    const wf_red_kernels *k = wf_red_kernels_of(compute);
    void (*const convert)(void *, const void *, int, int64_t, int64_t) = truth ? k->truth : k->load;
    if (stride == 1 && step == n) {
        n *= rows;
        rows = 1;
    }
    if (v->dtype == compute && !truth) {
        bring_rows(dst, v, offset, step, stride, rows, n);
    } else if (rows == 1 && !is_spread(stride)) {
        convert(dst, at(v, offset), v->dtype, stride, n);
    } else {
        convert_rows(convert, dst, v, offset, step, stride, rows, n);
    }
}

/* The same of the job's type, or as they lie in memory. */
static void load_rows(const engine *e, void *dst, const wf_view *v, int64_t offset, int64_t step,
                      int64_t stride, int64_t rows, int64_t n, bool raw)
{
    if (raw) {
        bring_rows(dst, v, offset, step, stride, rows, n);
    } else {
        wf_red_load(e->job->compute, e->job->truth, dst, v, offset, step, stride, rows, n);
    }
}

static void load(const engine *e, void *dst, const wf_view *v, int64_t offset, int64_t stride,
                 int64_t n)
{
    load_rows(e, dst, v, offset, 0, stride, 1, n, false);
}

/* n elements of the reduced index starting at r, for a kept offset: values in buf. Whole rows of the last axis are loaded
 * together where they are short, and where their elements lie apart: their neighbours may be those of other rows. */
static void gather(const engine *e, char *buf, const wf_view *v, bool second, int64_t kept,
                   int64_t r, int64_t n, bool raw)
{
    const wf_red_axis_split *g = &e->g;
    const int64_t size = raw ? (int64_t)wf_dtype_size(v->dtype) : (int64_t)e->k->size;
    const int64_t *strides = second ? g->ry : g->rx;
    const int64_t inner = g->nr > 0 ? g->rd[g->nr - 1] : 1;
    const int64_t step = g->nr > 0 ? strides[g->nr - 1] : 1;
    const int64_t outer = g->nr > 1 ? g->rd[g->nr - 2] : 1;
    const int64_t apart = g->nr > 1 ? strides[g->nr - 2] : 0;
    while (n > 0) {
        const int64_t in = r % inner;
        int64_t ox = 0, oy = 0;
        wf_red_locate(r / inner, g->nr - 1, g->rd, g->rx, g->ry, &ox, &oy);
        int64_t rows = in == 0 && (is_spread(step) || inner < SHORT_ROW) ? n / inner : 1;
        const int64_t left = outer - r / inner % outer;
        rows = rows > left ? left : rows > 1 ? rows : 1;
        const int64_t m = inner - in < n ? inner - in : n;
        load_rows(e, buf, v, kept + (second ? oy : ox) + in * step, apart, step, rows, m, raw);
        buf += rows * m * size;
        r += rows * m;
        n -= rows * m;
    }
}

/* dst[i] = the job's map of x[i]; p and q are stepped by pstep. Powers are those of the row, so that they have its kernels. */
static void apply(const engine *e, void *dst, const void *x, const void *y, const void *p,
                  const void *q, int pstep, int64_t n)
{
    if (e->job->map != WF_MAP_ABSPOW) {
        e->k->map(e->job->map, dst, x, y, p, q, pstep, n);
        return;
    }
    const void *src[2] = {dst, p};
    e->k->map(WF_MAP_ABS, dst, x, NULL, NULL, NULL, 0, n);
    wf_row_kernel(WF_OP_POW, e->job->compute)(dst, src, (size_t)n, pstep || n < 2 ? 0 : 2);
}

/* Address of parameter `index`; NULL stays NULL. */
static const void *param(const engine *e, const void *p, int64_t index)
{
    return p == NULL ? NULL
                     : (const char *)p + (e->job->one_param ? 0 : index * (int64_t)e->k->size);
}

/* -- one task --------------------------------------------------------------------------------------- */

/* Values of a row from which a register of lanes with missing ones is faster than their tree one by one. */
enum { SPAN_FROM = 8, MOST_BLOCKS = TASK_ELEMENTS / WF_BLOCK, FEW_BYTES = 2048 };

static inline const wf_sum_kernels *sums_of(wf_red op, int dtype)
{
    return op == WF_RED_SUM && (WF_BIT(dtype) & WF_DT_F) != 0 ? wf_sum_kernels_of(dtype) : NULL;
}

/* Rows that are turned. */
enum {
    TURNED_BYTES_OF_ROW = 256, /* as compute values, */
    TURNED_SPAN =
        128, /* of rows whose lanes registers sum up as they lie in memory: of halves half as much where four of 64 bytes are the lanes */
    TREE_FROM = 9, /* values of a row, fewer than which most of the lanes' tree is for nothing */
    TURNED_LEAST = 80,
    TURNED_ROOM = TURNED_BYTES_OF_ROW * TURNED_LEAST /* no less than WF_TURNED_BYTES */
};

/* from: bytes of a value in memory; size: of a compute value. span: see the engine. */
static inline bool is_turned(bool span, size_t from, size_t size, int64_t n, int64_t rows)
{
    const int64_t most = !span                                    ? TURNED_BYTES_OF_ROW
                         : from == 2 && wf_isa() == WF_ISA_AVX512 ? TURNED_SPAN / 2
                                                                  : TURNED_SPAN;
    return n > 1 && n <= WF_TURNED_ROW && n * (int64_t)(span ? from : size) <= most &&
           rows >= WF_LANES;
}

/* The tree over n lanes of a block, one behind the other at acc, where it is done. */
static void fold_lanes(const wf_red_kernels *k, wf_red op, void *out, char *acc, int64_t n,
                       int64_t cols)
{
    const int64_t width = cols * (int64_t)k->size;
    for (int64_t h = WF_LANES / 2; h >= 1; h /= 2) {
        if (n > h) {
            k->rows[op](acc, (const void *const[]){acc + h * width}, 1, (n - h) * cols, 0);
            n = h;
        }
    }
    memcpy(out, acc, (size_t)width);
}

/* Is what reduce_lanes takes the values as they lie in memory? */
static inline bool is_tree(const wf_sum_kernels *sum, int64_t n, int64_t cols)
{
    return sum && n >= TREE_FROM && cols >= WF_LANES;
}

/* out[c] = the reduction of column c of n rows that are a lane each, one behind the other at x, which is lost: compute values, or
 * where is_tree what `sum` takes. */
static void reduce_lanes(const wf_red_kernels *k, const wf_sum_kernels *sum, wf_red op, char *out,
                         char *x, int64_t n, int64_t cols)
{
    if (is_tree(sum, n, cols)) {
        sum->tree(out, x, cols, n, cols);
    } else if (op == WF_RED_MAX || op == WF_RED_MIN) {
        const void *rows[WF_TURNED_ROW];
        for (int64_t r = 0; r < n; r++) {
            rows[r] = x + r * cols * (int64_t)k->size;
        }
        k->rows[op](out, rows, n, cols, 1);
    } else {
        fold_lanes(k, op, out, x, n, cols);
    }
}

/* Rows `width` bytes apart; what is reduced at once is one of `blocks` blocks of a row. */
typedef struct line_run {
    const wf_red_kernels *k;
    const wf_sum_kernels *sum; /* or NULL */
    wf_red op;
    int dtype;
    const char *x;
    char *out;
    int64_t width, stride, n,
        blocks;       /* of a row: bytes and elements to the next one, elements, blocks */
    int64_t together; /* rows that are turned at once, or 0 */
} line_run;

/* Rows of no more than the lanes. */
static void do_short(const line_run *l, char *out, const char *x, int64_t rows)
{
    const int64_t size = (int64_t)l->k->size, n = l->n;
    const wf_pack_fn pack = wf_kernels_now()->pack[wf_width(l->dtype)];
    const bool halves = wf_dtype_size(l->dtype) < l->k->size;
    _Alignas(64) char room[TURNED_ROOM];
    _Alignas(64) char other[WF_TURNED_MOST * TREE_FROM * 2];
    while (rows >= WF_LANES && l->together) {
        const bool widened = halves && n < TREE_FROM;
        const int64_t w = rows < l->together ? rows : l->together;
        pack(widened ? other : room, w, x, 1, l->stride, (size_t)n, (size_t)w);
        if (widened) {
            l->k->load(room, other, l->dtype, 1, n * w);
        }
        reduce_lanes(l->k, l->sum, l->op, out, room, n, w);
        rows -= w;
        out += w * size;
        x += w * l->width;
    }
    if (l->sum && (halves || n >= SPAN_FROM)) {
        l->sum->span(out, x, n, l->stride, rows, 0);
    } else {
        l->k->shorts[l->op](out, x, n, l->stride, rows);
    }
}

static void do_lines(void *arg, int64_t begin, int64_t end)
{
    const line_run *l = arg;
    const int64_t size = (int64_t)l->k->size, whole = l->n / WF_BLOCK;
    if (l->n <= WF_LANES) {
        do_short(l, l->out + begin * size, l->x + begin * l->width, end - begin);
        return;
    }
    for (int64_t i = begin, count; i < end; i += count) {
        const int64_t b = i % l->blocks, m = b < whole ? WF_BLOCK : l->n - b * WF_BLOCK;
        const char *x = l->x + i / l->blocks * l->width + b * (l->width / l->stride * WF_BLOCK);
        char *to = l->out + i * size;
        count = 1;
        if (l->sum) {
            count = l->blocks == 1 ? end - i : b < whole ? whole - b : 1;
            count = count < end - i ? count : end - i;
            l->sum->span(to, x, m, l->blocks == 1 ? l->stride : m, count, 0);
        } else {
            l->k->run[l->op](to, x, m);
        }
    }
}

bool wf_red_rows(wf_red op, int dtype, void *out, const void *x, int64_t n, int64_t rows,
                 int64_t stride)
{
    const int compute = wf_red_compute(dtype);
    const wf_sum_kernels *sum = sums_of(op, dtype);
    if (n < 1 || n > TASK_ELEMENTS || rows > TASK_ELEMENTS / n || (!sum && dtype != compute)) {
        return false;
    }
    const wf_red_kernels *k = wf_red_kernels_of(compute);
    const int64_t width = stride * (int64_t)wf_dtype_size(dtype), size = (int64_t)k->size;
    const int64_t blocks = (n + WF_BLOCK - 1) / WF_BLOCK, per = n < WF_BLOCK ? n : WF_BLOCK;
    _Alignas(64) char parts[2 * MOST_BLOCKS * 8];
    line_run l = {.k = k,
                  .sum = sum,
                  .op = op,
                  .dtype = dtype,
                  .x = x,
                  .width = width,
                  .stride = stride,
                  .n = n,
                  .blocks = blocks};
    l.out = blocks > 1 ? parts : out;
    l.together = is_turned(sum != NULL, wf_dtype_size(dtype), k->size, n, rows)
                     ? wf_turned_rows(n, k->size, TURNED_LEAST)
                     : 0;
    const int64_t grain = wf_awake_grain(rows * blocks, AWAKE / per, 1);
    if (grain == rows * blocks) {
        do_lines(&l, 0, grain);
    } else {
        wf_parallel_awake(rows * blocks, grain, do_lines, &l);
    }
    for (int64_t i = 0; i < rows && blocks > 1; i++) {
        k->run[op]((char *)out + i * size, parts + i * blocks * size, blocks);
    }
    return true;
}

/* Rows of one block that are a lane each. */
static void few_columns(const wf_red_kernels *k, wf_red op, void *out, const void *x, int64_t n,
                        int64_t cols)
{
    _Alignas(64) char acc[FEW_BYTES];
    memcpy(acc, x, (size_t)(n * cols) * k->size);
    fold_lanes(k, op, out, acc, n, cols);
}

/* Rows of columns that are summed up; of a piece, some of the columns. */
typedef struct column_run {
    const wf_sum_kernels *sum;
    char *out;
    const char *x;
    int64_t stride, n;
    size_t to, from; /* bytes of an element */
} column_run;

static void do_columns(void *arg, int64_t begin, int64_t end)
{
    const column_run *c = arg;
    c->sum->tree(c->out + begin * (int64_t)c->to, c->x + begin * (int64_t)c->from, c->stride, c->n,
                 end - begin);
}

bool wf_red_columns(wf_red op, int dtype, void *out, const void *x, int64_t n, int64_t cols,
                    int64_t stride)
{
    const wf_sum_kernels *sum = sums_of(op, dtype);
    const int compute = wf_red_compute(dtype);
    const int64_t width = cols * (int64_t)wf_red_size(compute);
    if (dtype == compute && n <= WF_LANES && width <= FEW_BYTES / n && stride == cols) {
        few_columns(wf_red_kernels_of(compute), op, out, x, n, cols);
        return true;
    }
    if (!sum || n > WF_BLOCK || cols < WF_LANES || cols > TASK_ELEMENTS / n) {
        return false;
    }
    column_run c = {sum, out, x, stride, n, wf_red_size(compute), wf_dtype_size(dtype)};
    const int64_t worth = dtype == WEFT_F64 ? AWAKE / 2 : AWAKE;
    const int64_t grain = wf_awake_grain(cols, worth / n + WF_LANES, WF_LANES);
    if (grain == cols) {
        do_columns(&c, 0, cols);
    } else {
        wf_parallel_awake(cols, grain, do_columns, &c);
    }
    return true;
}

/* -- inner ------------------------------------------------------------------------------------------ */

/* One block of one kept index to one value. */
static void inner_block(const engine *e, int64_t kept, int64_t block, char *out)
{
    const wf_red_job *j = e->job;
    const wf_red_axis_split *g = &e->g;
    _Alignas(64) char xs[WF_BLOCK * 8];
    _Alignas(64) char ys[WF_BLOCK * 8];
    int64_t r = block * WF_BLOCK;
    int64_t n = g->reduced - r < WF_BLOCK ? g->reduced - r : WF_BLOCK;
    int64_t ox = 0, oy = 0;
    wf_red_locate(kept, g->nk, g->kd, g->kx, g->ky, &ox, &oy);
    const void *x = xs;
    if (e->extreme && g->nr <= 1 && (g->nr == 0 || g->rx[0] == 1)) {
        e->extreme(out, at(j->x, ox + r), j->x->dtype, n);
        return;
    }
    if (e->in_place && g->nr <= 1 && (g->nr == 0 || g->rx[0] == 1)) {
        x = at(j->x, ox + r);
    } else {
        gather(e, xs, j->x, false, ox, r, n, false);
    }
    if (j->map != WF_MAP_NONE) {
        if (j->y != NULL) {
            gather(e, ys, j->y, true, oy, r, n, false);
        }
        apply(e, xs, x, ys, param(e, j->p, kept), param(e, j->q, kept), 0, n);
        x = xs;
    }
    e->k->run[j->op](out, x, n);
}

/* Values of rows of n that lie one behind the other, to one value each. */
static void reduce_rows(const engine *e, char *out, const char *xs, int64_t n, int64_t rows,
                        bool raw)
{
    const wf_red *op = &e->job->op;
    const int64_t size = (int64_t)e->k->size, from = (int64_t)wf_dtype_size(e->job->x->dtype);
    const wf_sum_kernels *sum = raw ? e->sum : sums_of(*op, e->job->compute);
    if (raw && e->extreme) {
        for (int64_t i = 0; i < rows; i++) {
            e->extreme(out + i * size, xs + i * n * from, e->job->x->dtype, n);
        }
    } else if (sum && (raw || n >= SPAN_FROM)) {
        sum->span(out, xs, n, n, rows, 0);
    } else if (n <= WF_LANES) {
        e->k->shorts[*op](out, xs, n, n, rows);
    } else {
        for (int64_t i = 0; i < rows; i++) {
            e->k->run[*op](out + i * size, xs + i * n * size, n);
        }
    }
}

/* Blocks of one long row, or whole short rows, that are brought together several at a time: lines of a view that runs
 * along another axis are then used whole. Without a map. */
static void spread_task(void *arg, int64_t begin, int64_t end)
{
    const engine *e = arg;
    const wf_red_axis_split *g = &e->g;
    const int64_t size = (int64_t)e->k->size, whole = g->reduced / WF_BLOCK;
    const int64_t from = (int64_t)wf_dtype_size(e->job->x->dtype);
    const int64_t step = g->rx[g->nr - 1] * from, width = size > from ? size : from;
    const bool raw =
        e->sum || (e->extreme && g->reduced > WF_LANES); /* and then reduced as they are */
    const bool fits = step < 64 && step > -64 && WF_BLOCK * width <= FIRST_BYTES;
    const bool turned = g->nr > 1 && g->rx[g->nr - 2] == 1 && is_spread(g->rx[g->nr - 1]) &&
                        (raw || (e->job->x->dtype == e->job->compute && !e->job->truth));
    /* Of rows a page apart in memory, which share sets, more than 512 bytes each, which take up to twice as long. (A square of
     * those is walked as if it were in a first cache, and takes longer than half of them.) */
    const int64_t rows = 2 * TURNED_BYTES / 8 / g->rd[g->nr - 1];
    const bool wide = from == 8 && wf_magnitude(step) >= 4096 && rows != BLOCK_WIDTH / 8;
    const size_t most = wide ? 2 * TURNED_BYTES : TURNED_BYTES;
    const size_t room = turned && g->reduced * size > TOGETHER_BYTES ? most : 0;
    _Alignas(64) char few[TOGETHER_BYTES];
    char *const many = room ? wf_scratch(room) : NULL, *const xs = many ? many : few;
    const int64_t most_blocks =
        fits ? 1 : (many ? (int64_t)room : TOGETHER_BYTES) / WF_BLOCK / width;
    for (int64_t i = begin, count; i < end; i += count) {
        const int64_t row = i / e->blocks, b = i % e->blocks;
        const int64_t n = b < whole ? WF_BLOCK : g->reduced - b * WF_BLOCK;
        int64_t ox = 0, oy = 0;
        count = e->blocks == 1 ? end - i : b < whole ? whole - b : 1;
        count = count < end - i ? count : end - i;
        wf_red_locate(row, g->nk, g->kd, g->kx, g->ky, &ox, &oy);
        if (e->blocks == 1) {
            const int64_t all = WF_BLOCK / n, last = g->nk > 0 ? g->kd[g->nk - 1] : 1;
            count = count < all ? count : all;
            count = g->nr > 1 ? 1 : count < last - row % last ? count : last - row % last;
        } else {
            count = count < most_blocks ? count : most_blocks;
        }
        if (e->blocks == 1 && g->nr == 1) {
            load_rows(e, xs, e->job->x, ox, g->nk > 0 ? g->kx[g->nk - 1] : 0, g->rx[0], count, n,
                      raw);
        } else {
            gather(e, xs, e->job->x, false, ox, b * WF_BLOCK, e->blocks == 1 ? n : n * count, raw);
        }
        reduce_rows(e, e->out + i * size, xs, n, count, raw);
    }
    wf_scratch_free(many, room);
}

/* Blocks [begin, end) of rows that lie at one distance from each other, in runs: the short rows, or the whole
 * blocks of a long one. */
static void span_task(void *arg, int64_t begin, int64_t end)
{
    const engine *e = arg;
    const wf_red_axis_split *g = &e->g;
    const int64_t stride = g->nk > 0 ? g->kx[0] : 0, whole = g->reduced / WF_BLOCK;
    const bool far = g->kept * g->reduced >= FAR_FROM && (g->kept == 1 || stride == g->reduced);
    const int64_t ahead = far && wf_amd_zen5() ? FAR : 0;
    for (int64_t i = begin; i < end;) {
        const int64_t row = i / e->blocks, b = i % e->blocks;
        int64_t count = e->blocks == 1 ? end - i : b < whole ? whole - b : 1;
        count = count < end - i ? count : end - i;
        e->span(e->out + i * (int64_t)e->k->size, at(e->job->x, row * stride + b * WF_BLOCK),
                b < whole ? WF_BLOCK : g->reduced - b * WF_BLOCK,
                e->blocks == 1 ? stride : WF_BLOCK, count, ahead);
        i += count;
    }
}

/* Blocks of sums whose values lie in rows that are apart, each row in one piece. */
static void pieces_task(void *arg, int64_t begin, int64_t end)
{
    const engine *e = arg;
    const wf_red_axis_split *g = &e->g;
    const int64_t inner = g->rd[1], stride = g->rx[0];
    for (int64_t i = begin; i < end; i++) {
        const int64_t r = i % e->blocks * WF_BLOCK;
        int64_t ox = r / inner * stride, oy = 0;
        wf_red_locate(i / e->blocks, g->nk, g->kd, g->kx, g->ky, &ox, &oy);
        e->sum->pieces(e->out + i * (int64_t)e->k->size, at(e->job->x, ox), r % inner, inner,
                       stride, g->reduced - r < WF_BLOCK ? g->reduced - r : WF_BLOCK);
    }
}

/* Columns of a tile, of n rows that are a lane each: loaded, mapped and reduced together. */
static void turned_task(void *arg, int64_t begin, int64_t end)
{
    const engine *e = arg;
    const wf_red_job *j = e->job;
    const wf_red_axis_split *g = &e->g;
    const int64_t size = (int64_t)e->k->size, last = g->nk - 1, n = g->reduced;
    const bool each = j->p != NULL && !j->one_param;
    _Alignas(64) char xs[TURNED_ROOM];
    _Alignas(64) char ys[TURNED_ROOM];
    for (int64_t i = begin; i < end; i++) {
        const int64_t c = i % e->tiles * e->tile, kept = i / e->tiles * e->columns + c;
        const int64_t w = e->columns - c < e->tile ? e->columns - c : e->tile;
        const bool raw = is_tree(e->sum, n, w);
        int64_t ox = 0, oy = 0;
        wf_red_locate(kept, g->nk, g->kd, g->kx, g->ky, &ox, &oy);
        load_rows(e, xs, j->x, ox, g->rx[0], g->kx[last], n, w, raw);
        if (j->map != WF_MAP_NONE && j->y != NULL) {
            load_rows(e, ys, j->y, oy, g->ry[0], g->ky[last], n, w, false);
        }
        const int64_t m = each ? w : n * w; /* mapped at once */
        for (int64_t k = 0; k < n * w && j->map != WF_MAP_NONE; k += m) {
            apply(e, xs + k * size, xs + k * size, ys + k * size, param(e, j->p, kept),
                  param(e, j->q, kept), each, m);
        }
        reduce_lanes(e->k, raw ? e->sum : sums_of(j->op, j->compute), j->op, e->out + kept * size,
                     xs, n, w);
    }
}

static void inner_task(void *arg, int64_t begin, int64_t end)
{
    const engine *e = arg;
    for (int64_t i = begin; i < end; i++) {
        inner_block(e, i / e->blocks, i % e->blocks, e->out + i * (int64_t)e->k->size);
    }
}

/* Contiguous rows of at most 64 values, without a map. */
static void short_task(void *arg, int64_t begin, int64_t end)
{
    const engine *e = arg;
    int64_t stride = e->g.nk > 0 ? e->g.kx[0] : 0;
    e->k->shorts[e->job->op](e->out + begin * (int64_t)e->k->size, at(e->job->x, begin * stride),
                             e->g.reduced, stride, end - begin);
}

/* Results of blocks to results: each kept index has e->blocks partial values in a row. */
typedef struct fold_args {
    const wf_red_kernels *k;
    wf_red op;
    const char *parts;
    char *out;
    int64_t blocks;
} fold_args;
static void fold_task(void *arg, int64_t begin, int64_t end)
{
    const fold_args *f = arg;
    int64_t size = (int64_t)f->k->size;
    for (int64_t i = begin; i < end; i++) {
        f->k->run[f->op](f->out + i * size, f->parts + i * f->blocks * size, f->blocks);
    }
}

/* Are sums those of rows in one piece each, so long that copying them together would take longer? */
static bool is_in_pieces(const engine *e)
{
    const wf_red_axis_split *g = &e->g;
    const int64_t row = g->nr == 2 ? g->rd[1] * (int64_t)e->k->size : 0;
    const bool easy = wf_isa() == WF_ISA_AVX512 || g->rd[1] % WF_LANES == 0;
    return e->sum && e->sum->pieces && row >= (easy ? PIECES_FROM : 2 * PIECES_FROM) &&
           g->rx[1] == 1;
}

static int run_inner(engine *e)
{
    const wf_red_job *j = e->job;
    const wf_red_axis_split *g = &e->g;
    const bool lines = g->nk <= 1 && g->nr <= 1 && (g->nr == 0 || g->rx[0] == 1);
    if (lines && (g->nk == 0 || g->kx[0] == g->reduced) && j->map == WF_MAP_NONE && !j->truth &&
        j->compute == wf_red_compute(j->x->dtype) &&
        wf_red_rows(j->op, j->x->dtype, j->out, j->x->data, g->reduced, g->kept, g->reduced)) {
        return 0;
    }
    e->blocks = (g->reduced + WF_BLOCK - 1) / WF_BLOCK;
    e->out = j->out;
    if (g->nr == 1 && g->nk > 0 &&
        is_turned(e->span != NULL, wf_dtype_size(j->x->dtype), e->k->size, g->reduced,
                  g->kd[g->nk - 1])) {
        e->columns = g->kd[g->nk - 1];
        e->tile = wf_turned_rows(g->reduced, e->k->size, TURNED_LEAST);
        e->tiles = (e->columns + e->tile - 1) / e->tile;
        wf_parallel_items(g->kept / e->columns * e->tiles, g->reduced * e->tile, TASK_ELEMENTS,
                          AWAKE, turned_task, e);
        return 0;
    }
    if (e->in_place && j->map == WF_MAP_NONE && g->reduced <= WF_LANES && lines &&
        (e->span == NULL || g->reduced < SPAN_FROM)) {
        wf_parallel_items(g->kept, g->reduced, TASK_ELEMENTS, AWAKE, short_task, e);
        return 0;
    }
    size_t bytes = (size_t)(g->kept * e->blocks) * e->k->size;
    if (e->blocks > 1) {
        e->out = wf_scratch(bytes);
        if (e->out == NULL) {
            return WEFT_ENOMEM;
        }
    }
    int64_t per = g->reduced < WF_BLOCK ? g->reduced : WF_BLOCK;
    const int64_t together = e->in_place || e->span ? 0 : e->extreme ? WF_LANES : SHORT_ROW;
    const bool spread = j->map == WF_MAP_NONE &&
                        (g->nr > 1 || (g->nr == 1 && (is_spread(g->rx[0]) || per < together)));
    wf_parallel_items(g->kept * e->blocks, per, TASK_ELEMENTS, AWAKE,
                      e->span != NULL && lines ? span_task
                      : is_in_pieces(e)        ? pieces_task
                      : spread                 ? spread_task
                                               : inner_task,
                      e);
    if (e->blocks > 1) {
        fold_args f = {e->k, j->op, e->out, j->out, e->blocks};
        wf_parallel_for(g->kept, (TASK_ELEMENTS + e->blocks - 1) / e->blocks, fold_task, &f);
        wf_scratch_free(e->out, bytes);
    }
    return 0;
}

/* -- wide and narrow: rows of columns ----------------------------------------------------------------- */

enum { GROUP = 9 }; /* rows handed to the kernel at once: a start and eight more */

/* Where a tile's rows come from. */
typedef struct tile {
    const engine *e;
    int64_t ox, oy;    /* offsets of the tile's first column in row 0 */
    int64_t row0;      /* first row of the block */
    int64_t rows;      /* of the block */
    int64_t width;     /* columns */
    const void *p, *q; /* parameters of the first column */
    char *levels;      /* buffers of the tree, one per level */
    char *loaded;      /* room for loaded rows */
    bool raw;          /* rows are what lies in memory, of any type that e->sum takes */
} tile;

/* acc = acc op rows, or their reduction if init; the next rows are `ahead` rows behind these */
static void add_rows(const tile *t, char *acc, const void *const *rows, int n, int init,
                     int64_t ahead)
{
    const engine *e = t->e;
    if (t->raw) {
        e->sum->rows(acc, rows, n, t->width, init, e->g.nr == 1 ? ahead * e->g.rx[0] : 0);
    } else {
        e->k->rows[e->job->op](acc, rows, n, t->width, init);
    }
}

static void row_offset(const tile *t, int64_t r, int64_t *ox, int64_t *oy)
{
    const wf_red_axis_split *g = &t->e->g;
    *ox = t->ox;
    *oy = t->oy;
    wf_red_locate(t->row0 + r, g->nr, g->rd, g->rx, g->ry, ox, oy);
}

/* Row r of the tile as compute values, loaded and mapped into buf if need be. */
static const void *tile_row(const tile *t, int64_t r, char *buf, char *second)
{
    const engine *e = t->e;
    const wf_red_job *j = e->job;
    int64_t ox, oy;
    row_offset(t, r, &ox, &oy);
    const void *x = buf;
    if (e->in_place || (t->raw && !e->apart)) {
        x = at(j->x, ox);
    } else if (t->raw) {
        bring_rows(buf, j->x, ox, 0, e->g.kx[e->g.nk - 1], 1, t->width);
    } else {
        load(e, buf, j->x, ox, e->g.kx[e->g.nk - 1], t->width);
    }
    if (j->map == WF_MAP_NONE) {
        return x;
    }
    if (j->y != NULL) {
        load(e, second, j->y, oy, e->g.ky[e->g.nk - 1], t->width);
    }
    apply(e, buf, x, second, t->p, t->q, j->one_param ? 0 : 1, t->width);
    return buf;
}

/* Rows r, r + apart ... of the tile, `count` of them, likewise: columns that are not neighbours are brought together at once. */
static void tile_rows(const tile *t, int64_t r, int64_t apart, int64_t count, const void **rows)
{
    const engine *e = t->e;
    const wf_red_job *j = e->job;
    const int64_t bytes = t->width * (int64_t)e->k->size;
    if (!e->apart || e->g.nr != 1 || j->map != WF_MAP_NONE) {
        for (int64_t k = 0; k < count; k++) {
            rows[k] = tile_row(t, r + k * apart, t->loaded + k * bytes, t->loaded + GROUP * bytes);
        }
        return;
    }
    const bool raw = t->raw || e->larger != NULL;
    const int64_t size = raw ? (int64_t)wf_dtype_size(j->x->dtype) : (int64_t)e->k->size;
    int64_t ox, oy;
    row_offset(t, r, &ox, &oy);
    load_rows(e, t->loaded, j->x, ox, apart * e->g.rx[0], e->g.kx[e->g.nk - 1], count, t->width,
              raw);
    for (int64_t k = 0; k < count; k++) {
        rows[k] = t->loaded + k * t->width * size;
    }
}

/* The lane that is visited after l, or l after the last one: the next number in bit-reversed order. */
static int64_t lane_after(const tile *t, int64_t l)
{
    int64_t next = l, bit = WF_LANES / 2;
    for (; bit >= t->e->classes && (next & bit); bit /= 2) {
        next -= bit;
    }
    return bit < t->e->classes || t->rows < WF_LANES ? l : next + bit;
}

/* acc = rows l, l + 64, ... of the block in sequence. */
static void wide_lane(const tile *t, int64_t l, char *acc)
{
    const void *rows[GROUP];
    for (int64_t r = l, n; r < t->rows; r += n * WF_LANES) {
        const int64_t left = (t->rows - r + WF_LANES - 1) / WF_LANES, next = lane_after(t, l);
        const int64_t most = r == l ? GROUP : GROUP - 1;
        n = left < most ? left : most;
        tile_rows(t, r, WF_LANES, n, rows);
        add_rows(t, acc, rows, (int)n, r == l,
                 t->e->apart ? 0
                 : n < left  ? n * WF_LANES
                 : next == l ? 0
                             : next - r);
    }
}

/* The subtree of lanes l, l + step, l + 2 * step ... : node(step, l) = node(2 step, l) op
 * node(2 step, l + step); a lane without rows is the identity and is left out. */
static void wide_node(const tile *t, int64_t step, int64_t l, int level, char *acc)
{
    if (step >= WF_LANES || l + step >= t->rows) {
        wide_lane(t, l, acc);
        return;
    }
    if (2 * step >= WF_LANES && t->rows <= WF_LANES) { /* two lanes of one row each */
        const void *rows[2];
        tile_rows(t, l, step, 2, rows);
        add_rows(t, acc, rows, 2, 1, 0);
        return;
    }
    char *right = t->levels + level * t->width * (int64_t)t->e->k->size;
    wide_node(t, 2 * step, l, level + 1, acc);
    wide_node(t, 2 * step, l + step, level + 1, right);
    t->e->k->rows[t->e->job->op](acc, (const void *const[]){right}, 1, t->width, 0);
}

/* Rows of a type that is widened at the end only. Truth values are made bytes, unless bytes say as much: then 0, or the largest
 * is more. */
static void wide_as_it_lies(const tile *t, int64_t begin, int64_t end, char *acc)
{
    const engine *e = t->e;
    const wf_view *x = e->job->x;
    /* Half a page from rows that lie pages apart: loads of what has just been stored a page away would wait. */
    const uintptr_t half = (uintptr_t)at(x, t->ox) - (uintptr_t)t->levels + WIDE_BYTES / 2;
    char *best = t->levels + half % WIDE_BYTES / 64 * 64, *bytes = t->loaded + GROUP * WIDE_BYTES;
    const void *rows[GROUP];
    const int type = e->job->truth && wf_dtype_size(x->dtype) > 1 ? WEFT_BOOL : x->dtype;
    const wf_cast_fn truth = type == x->dtype ? NULL : wf_kernels_now()->cast[type][x->dtype];
    for (int64_t r = begin, n; r < end; r += n) {
        n = end - r < GROUP ? end - r : GROUP;
        if (e->apart) {
            tile_rows(t, r, 1, n, rows);
        }
        for (int64_t k = 0; k < n; k++) {
            int64_t ox, oy;
            row_offset(t, r + k, &ox, &oy);
            const void *src[2] = {best, e->apart ? rows[k] : at(x, ox)};
            if (truth) {
                truth(r + k == begin ? best : bytes, src[1], (size_t)t->width);
                src[1] = bytes;
            } else if (r + k == begin) {
                memcpy(best, src[1], (size_t)t->width * wf_dtype_size(type));
            }
            if (r + k != begin) {
                e->larger(best, src, (size_t)t->width, 0);
            }
        }
    }
    (e->job->truth ? e->k->truth : e->k->load)(acc, best, type, 1, t->width);
}

/* Order-free: all rows one after the other. */
static void wide_in_order(const tile *t, int64_t begin, int64_t end, char *acc)
{
    if (t->e->larger != NULL) {
        wide_as_it_lies(t, begin, end, acc);
        return;
    }
    const void *rows[GROUP];
    for (int64_t r = begin, n; r < end; r += n) {
        const int64_t most = r == begin ? GROUP : GROUP - 1;
        n = end - r < most ? end - r : most;
        tile_rows(t, r, 1, n, rows);
        t->e->k->rows[t->e->job->op](acc, rows, n, t->width, r == begin);
    }
}

static void wide_task(void *arg, int64_t begin, int64_t end)
{
    const engine *e = arg;
    const wf_red_axis_split *g = &e->g;
    int64_t size = (int64_t)e->k->size;
    _Alignas(64) char levels[6 * WIDE_BYTES];
    _Alignas(64) char loaded[(GROUP + 1) * WIDE_BYTES];
    char *const together = e->near && e->apart ? wf_scratch(TURNED_BYTES) : NULL;
    for (int64_t i = begin; i < end; i++) {
        int64_t class = i % e->classes, rest = i / e->classes;
        int64_t b = rest % e->blocks;
        rest /= e->blocks;
        int64_t c0 = rest % e->tiles * e->tile, outer = rest / e->tiles;
        int64_t kept = outer * e->columns + c0;
        tile t = {.e = e, .row0 = b * WF_BLOCK, .levels = levels, .loaded = loaded};
        t.raw = e->sum != NULL;
        t.width = e->columns - c0 < e->tile ? e->columns - c0 : e->tile;
        t.rows = g->reduced - t.row0 < WF_BLOCK ? g->reduced - t.row0 : WF_BLOCK;
        wf_red_locate(kept, g->nk, g->kd, g->kx, g->ky, &t.ox, &t.oy);
        t.p = param(e, e->job->p, kept);
        t.q = param(e, e->job->q, kept);
        char *acc = e->out + ((b * e->classes + class) * g->kept + kept) * size;
        if (e->job->op == WF_RED_MAX || e->job->op == WF_RED_MIN || e->job->compute == WEFT_I64) {
            /* Of a block's end with fewer rows the first classes have one each, the others none (see fold_classes). */
            const int64_t shares = t.rows < e->classes ? t.rows : e->classes;
            if (class < shares) {
                wide_in_order(&t, t.rows * class / shares, t.rows * (class + 1) / shares, acc);
            }
        } else if (together && t.width >= WF_LANES) {
            bring_rows(together, e->job->x, t.ox + t.row0 * g->rx[0], g->rx[0], g->kx[g->nk - 1],
                       t.rows, t.width);
            e->sum->tree(acc, together, t.width, t.rows, t.width);
        } else if (e->near && !e->apart && t.width >= WF_LANES) {
            e->sum->tree(acc, at(e->job->x, t.ox + t.row0 * g->rx[0]), g->rx[0], t.rows, t.width);
        } else {
            wide_node(&t, e->classes, class, 0, acc);
        }
    }
    wf_scratch_free(together, TURNED_BYTES);
}

enum { REPEAT = 8 /* rows that are mapped at once, with as many copies of their parameters */ };

/* Rows [r, r + m) of a narrow tile, mapped: rows of x, and of y, follow one another as values of the compute type. */
static void map_rows(const tile *t, int64_t r, int64_t m, char *to, const char *p, const char *q)
{
    const engine *e = t->e;
    const wf_red_job *j = e->job;
    const int64_t width = t->width * (int64_t)e->k->size;
    for (int64_t k = 0; k < m; k += REPEAT) {
        const int64_t n = m - k < REPEAT ? m - k : REPEAT, row = t->row0 + r + k;
        const char *y = j->y != NULL ? at(j->y, t->oy + row * t->width) : NULL;
        apply(e, to + k * width, at(j->x, t->ox + row * t->width), y, p, q, j->one_param ? 0 : 1,
              n * t->width);
    }
}

/* REPEAT times the values at p; NULL stays NULL. */
static const char *repeat(char *room, const void *p, int64_t bytes)
{
    for (int i = 0; i < REPEAT && p != NULL; i++) {
        memcpy(room + i * bytes, p, (size_t)bytes);
    }
    return p != NULL ? room : NULL;
}

/* Sums of columns from end to end of memory: those of all lanes are kept, and eight rows of each lane come from as many places,
 * 64 rows apart, so that a sum is read and written once for eight. */
static void add_lanes(const engine *e, char *acc, int64_t kept, int64_t row0, int64_t rows,
                      int64_t cols)
{
    const wf_red_axis_split *g = &e->g;
    const int64_t width = cols * (int64_t)e->k->size, stride = g->rx[0];
    const int64_t run = stride == cols ? WF_LANES : 1; /* lanes that are one row to the kernel */
    int64_t ox = row0 * stride, oy = 0;
    wf_red_locate(kept, g->nk, g->kd, g->kx, g->ky, &ox, &oy);
    for (int64_t r = 0, n; r < rows; r += n * WF_LANES) {
        n = (rows - r) / WF_LANES;
        n = n < 1 ? 1 : n < WF_ROWS_AT_ONCE ? n : WF_ROWS_AT_ONCE;
        for (int64_t l = 0, m; l < WF_LANES && r + l < rows; l += m) {
            const void *lane[WF_ROWS_AT_ONCE];
            m = run < rows - r - l ? run : rows - r - l;
            for (int64_t k = 0; k < n; k++) {
                lane[k] = at(e->job->x, ox + (r + k * WF_LANES + l) * stride);
            }
            e->sum->rows(acc + l * width, lane, n, m * cols, r == 0, 0);
        }
    }
}

static void lanes_task(void *arg, int64_t begin, int64_t end)
{
    const engine *e = arg;
    const wf_red_axis_split *g = &e->g;
    const int64_t size = (int64_t)e->k->size;
    const size_t bytes = (size_t)(WF_LANES * e->tile * size);
    _Alignas(64) char few[WF_LANES * NARROW_BYTES];
    char *const large = bytes > sizeof few ? wf_scratch(bytes) : NULL, *const acc =
                                                                           large ? large : few;
    const int64_t most =
        large ? e->tile : NARROW_BYTES / size; /* columns at once: without memory fewer */
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i % e->blocks, outer = i / e->blocks / e->tiles * e->columns;
        const int64_t row0 = b * WF_BLOCK, left = g->reduced - row0;
        const int64_t rows = left < WF_BLOCK ? left : WF_BLOCK;
        int64_t c = i / e->blocks % e->tiles * e->tile;
        const int64_t last = c + e->tile < e->columns ? c + e->tile : e->columns;
        for (int64_t cols; c < last; c += cols) {
            cols = last - c < most ? last - c : most;
            add_lanes(e, acc, outer + c, row0, rows, cols);
            fold_lanes(e->k, WF_RED_SUM, e->out + (b * g->kept + outer + c) * size, acc,
                       rows < WF_LANES ? rows : WF_LANES, cols);
        }
    }
    wf_scratch_free(large, bytes);
}

/* 64 rows of few columns are one row of 64 * columns lanes. */
static void narrow_task(void *arg, int64_t begin, int64_t end)
{
    const engine *e = arg;
    const wf_red_axis_split *g = &e->g;
    int64_t size = (int64_t)e->k->size, width = e->columns * size;
    _Alignas(64) char acc[WF_LANES * NARROW_BYTES];
    _Alignas(64) char loaded[WF_LANES * NARROW_BYTES];
    _Alignas(64) char second[NARROW_BYTES];
    _Alignas(64) char params[2 * REPEAT * NARROW_BYTES];
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i % e->blocks, kept = i / e->blocks * e->columns;
        tile t = {.e = e, .row0 = b * WF_BLOCK, .width = e->columns};
        t.rows = g->reduced - t.row0 < WF_BLOCK ? g->reduced - t.row0 : WF_BLOCK;
        wf_red_locate(kept, g->nk, g->kd, g->kx, g->ky, &t.ox, &t.oy);
        t.p = param(e, e->job->p, kept);
        t.q = param(e, e->job->q, kept);
        const wf_view *y = e->job->y;
        const bool packed = e->in_place && g->nr == 1 && g->rx[0] == e->columns,
                   together =
                       packed && (y == NULL || (y->dtype == e->job->compute &&
                                                g->ry[0] == e->columns && g->ky[g->nk - 1] == 1));
        const bool none = e->job->map == WF_MAP_NONE;
        const char *p = t.p, *q = t.q;
        if (together && !none && !e->job->one_param) {
            p = repeat(params, t.p, width);
            q = repeat(params + REPEAT * NARROW_BYTES, t.q, width);
        }
        for (int64_t r = 0; r < t.rows; r += WF_LANES) {
            int64_t m = t.rows - r < WF_LANES ? t.rows - r : WF_LANES;
            const void *rows[1] = {loaded};
            if (packed && none) {
                rows[0] = at(e->job->x, t.ox + (t.row0 + r) * e->columns);
            } else if (none && g->nr == 1) {
                load_rows(e, loaded, e->job->x, t.ox + (t.row0 + r) * g->rx[0], g->rx[0],
                          g->kx[g->nk - 1], m, e->columns, false);
            } else if (together) {
                map_rows(&t, r, m, loaded, p, q);
            } else {
                for (int64_t k = 0; k < m; k++) {
                    const void *row = tile_row(&t, r + k, loaded + k * width, second);
                    if (row != loaded + k * width) {
                        memcpy(loaded + k * width, row, (size_t)width);
                    }
                }
            }
            e->k->rows[e->job->op](acc, rows, 1, m * e->columns, r == 0);
        }
        fold_lanes(e->k, e->job->op, e->out + (b * g->kept + kept) * size, acc,
                   t.rows < WF_LANES ? t.rows : WF_LANES, e->columns);
    }
}

/* parts[classes][kept] of a block of `rows` rows to its first row, by the tree of the lanes. Classes
 * behind the last row are empty. */
static void fold_classes(const engine *e, char *parts, int64_t rows)
{
    int64_t row = e->g.kept * (int64_t)e->k->size;
    for (int h = e->classes / 2; h >= 1; h /= 2) {
        for (int c = 0; c < h && c + h < rows; c++) {
            const void *upper[1] = {parts + (c + h) * row};
            e->k->rows[e->job->op](parts + c * row, upper, 1, e->g.kept, 0);
        }
    }
}

/* Blocks of every column: a sequence again, reduced by the same engine. */
static int fold_blocks(const engine *e, char *parts)
{
    wf_view v = {.data = parts, .dtype = (uint8_t)e->job->compute, .rank = 2};
    v.dims[0] = e->blocks;
    v.dims[1] = e->g.kept;
    v.strides[0] = e->g.kept * e->classes;
    v.strides[1] = 1;
    wf_red_job j = {
        .op = e->job->op, .compute = e->job->compute, .axes = 1, .x = &v, .out = e->job->out};
    return wf_red_run(&j);
}

/* Is a sum of values as they lie in memory one for lanes_task? Then e->tile is set for it. */
static bool cut_lanes(engine *e, bool narrow)
{
    const wf_red_axis_split *g = &e->g;
    const int64_t size = (int64_t)e->k->size, threads = wf_num_threads();
    const bool packed = g->nr == 1 && g->rx[0] == e->columns;
    if (narrow) {
        return packed && g->reduced > WF_LANES && (wf_amd_zen5() || !e->in_place);
    }
    if (g->nr != 1 || g->reduced < LANES_FROM || !wf_amd_zen5()) {
        return false;
    }
    const int64_t blocks = (g->reduced + WF_BLOCK - 1) / WF_BLOCK * (g->kept / e->columns);
    const int64_t pieces = e->columns * size / PIECE_BYTES;
    int64_t tiles = (e->columns * size * WF_LANES + LANES_BYTES - 1) / LANES_BYTES;
    while (tiles < pieces && tiles * blocks < 4 * threads && tiles * blocks % threads != 0) {
        tiles++;
    }
    if (!e->near && tiles * blocks < threads && tiles * blocks < MOST_CLASSES) {
        return false;
    }
    int64_t cols = (e->columns + tiles - 1) / tiles;
    cols = (cols + WF_LANES - 1) / WF_LANES * WF_LANES;
    e->tile = cols < e->columns ? cols : e->columns;
    return true;
}

static int run_outer(engine *e, bool narrow)
{
    const wf_red_axis_split *g = &e->g;
    int64_t size = (int64_t)e->k->size;
    e->blocks = (g->reduced + WF_BLOCK - 1) / WF_BLOCK;
    int64_t rows = g->reduced < WF_BLOCK ? g->reduced : WF_BLOCK;
    const bool as_is = e->sum != NULL || (e->in_place && e->job->map == WF_MAP_NONE);
    int64_t wide = as_is ? WIDE_BYTES : WIDE_BYTES / 2;
    const int64_t from = (int64_t)wf_dtype_size(e->job->x->dtype), block = rows * e->columns * from;
    const bool zen5 = wf_amd_zen5();
    const bool flat = wf_isa() == WF_ISA_AVX2 && !zen5 && e->job->x->dtype != WEFT_F16 &&
                      e->columns % FLAT_COLUMNS == 0 && g->kept * g->reduced * from <= FLAT_BYTES;
    e->near = e->sum != NULL && !narrow && g->nr == 1 &&
              (e->apart ? block <= TURNED_BYTES
                        : flat || (zen5 && rows <= WF_LANES) || block <= WF_NEAR_BYTES);
    if (e->near && !e->apart && zen5) { /* see FN(ROW) of kernels/sums_t.h */
        const int64_t share = e->columns * size / wf_num_threads() / NARROW_BYTES * NARROW_BYTES;
        wide = share > 2 * wide ? 2 * wide : share > wide ? share : wide;
    } else if (e->near && !e->apart && flat) { /* a piece for each thread that there is work for */
        enum { LINES = 128 };
        const int64_t tasks = g->kept * g->reduced / TASK_ELEMENTS, all = wf_num_threads();
        const int64_t threads = tasks < 1 ? 1 : tasks < all ? tasks : all;
        const int64_t share = (e->columns * size / threads + LINES - 1) / LINES * LINES;
        wide = share > wide ? wide : share > NARROW_BYTES ? share : NARROW_BYTES;
    }
    e->tile = narrow              ? e->columns
              : e->larger != NULL ? WIDE_BYTES / (int64_t)wf_dtype_size(e->job->x->dtype)
                                  : wide / size;
    const bool in_lanes = e->sum != NULL && !e->apart && cut_lanes(e, narrow);
    e->tiles = (e->columns + e->tile - 1) / e->tile;
    int64_t items = g->kept / e->columns * e->tiles * e->blocks;
    e->classes = 1;
    while (!narrow && !in_lanes && !e->near && items * e->classes < MOST_CLASSES &&
           e->classes < MOST_CLASSES && rows / e->classes >= 2 * WF_LANES) {
        e->classes *= 2;
    }
    size_t bytes = (size_t)(g->kept * e->blocks * e->classes) * e->k->size;
    bool parts = e->blocks > 1 || e->classes > 1;
    e->out = parts ? wf_scratch(bytes) : e->job->out;
    if (e->out == NULL) {
        return WEFT_ENOMEM;
    }
    int64_t cost = rows * e->tile / e->classes;
    cost = cost > 0 ? cost : 1;
    wf_parallel_for(items * e->classes, (TASK_ELEMENTS + cost - 1) / cost,
                    in_lanes ? lanes_task
                    : narrow ? narrow_task
                             : wide_task,
                    e);
    int status = 0;
    if (parts) {
        for (int64_t b = 0; e->classes > 1 && b < e->blocks; b++) {
            fold_classes(e, e->out + b * e->classes * g->kept * size, g->reduced - b * WF_BLOCK);
        }
        if (e->blocks > 1) {
            status = fold_blocks(e, e->out);
        } else {
            memcpy(e->job->out, e->out, (size_t)g->kept * e->k->size);
        }
        wf_scratch_free(e->out, bytes);
    }
    return status;
}

/* Do neighbours along the last kept axis, `step` apart, share lines rather than those along the last reduced one? */
static bool is_nearer(const engine *e, int64_t step)
{
    enum { LINE = 64 };
    const int64_t kept = step < 0 ? -step : step, last = e->g.rx[e->g.nr - 1];
    const int64_t reduced = last < 0 ? -last : last;
    return kept == 1 || (kept < reduced && kept * (int64_t)wf_dtype_size(e->job->x->dtype) < LINE);
}

/* Does the order of the elements not matter? */
static bool is_free(const wf_red_job *j)
{
    return j->y == NULL && (j->op == WF_RED_MAX || j->op == WF_RED_MIN || j->compute == WEFT_I64);
}

/* Then they are visited as they lie: reduced axes by their steps, forwards. Returns where the first one is. */
static int64_t put_in_order(wf_red_axis_split *g)
{
    int64_t first = 0;
    int n = 0;
    for (int i = 0; i < g->nr; i++) {
        const int64_t step = g->rx[i] < 0 ? -g->rx[i] : g->rx[i], dim = g->rd[i];
        int at = i;
        first += g->rx[i] < 0 ? (dim - 1) * g->rx[i] : 0;
        for (; at > 0 && g->rx[at - 1] < step; at--) {
            g->rx[at] = g->rx[at - 1];
            g->rd[at] = g->rd[at - 1];
        }
        g->rx[at] = step;
        g->rd[at] = dim;
    }
    for (int i = 0, end = g->nr; i < end; i++) {
        add_axis(g->rd, g->rx, g->ry, &n, g->rd[i], g->rx[i], 0);
    }
    g->nr = n;
    return first;
}

int wf_red_run(const wf_red_job *job)
{
    wf_red_job moved;
    wf_view from;
    engine e; /* its lists of axes are long and mostly empty: not cleared */
    e.job = job;
    e.k = wf_red_kernels_of(job->compute);
    e.sum = NULL;
    e.near = false;
    wf_red_split(&e.g, job->x, job->y, job->axes);
    const wf_red_axis_split *g = &e.g;
    if (g->kept == 0 || g->reduced == 0) {
        return 0;
    }
    const int64_t first = is_free(job) ? put_in_order(&e.g) : 0;
    if (first != 0) {
        moved = *job;
        from = *job->x;
        from.data = (char *)from.data + first * (int64_t)wf_dtype_size(from.dtype);
        moved.x = &from;
        e.job = job = &moved;
    }
    e.in_place = job->x->dtype == job->compute && !job->truth;
    if (job->op == WF_RED_SUM && job->map == WF_MAP_NONE && !job->truth &&
        job->compute != WEFT_I64 && job->compute == wf_red_compute(job->x->dtype)) {
        e.sum = wf_sum_kernels_of(job->x->dtype);
    }
    const bool squares = job->op == WF_RED_SUM && job->map == WF_MAP_SQUARE && !job->truth;
    e.span = e.sum                                                              ? e.sum->span
             : squares && job->compute == WEFT_F32 && job->x->dtype == WEFT_F32 ? squares_now()
                                                                                : NULL;
    const bool order = job->op == WF_RED_MAX || job->op == WF_RED_MIN;
    const int least = job->op == WF_RED_MIN;
    const bool truths = job->truth || job->x->dtype == WEFT_BOOL;
    e.extreme = !order || job->compute != WEFT_I64 || job->map != WF_MAP_NONE ? NULL
                : truths                                                      ? e.k->truths[least]
                         : e.k->stored[job->x->dtype][least];
    const bool inner = g->nr == 0 || g->rx[g->nr - 1] == 1;
    const int64_t step = g->nk > 0 ? g->kx[g->nk - 1] : 0;
    if (inner || step == 0 || g->kd[g->nk - 1] < 4 || !is_nearer(&e, step)) {
        return run_inner(&e);
    }
    e.larger = NULL;
    if (order && (truths || job->x->dtype != WEFT_I64) && (step == 1 || g->nr == 1) &&
        job->compute == WEFT_I64 && job->map == WF_MAP_NONE) {
        const int type = truths ? WF_CT_U8 : wf_ct(job->x->dtype);
        e.larger = wf_kernels_now()->map[type][least ? WF_OP_MINIMUM : WF_OP_MAXIMUM];
    }
    e.apart = step != 1;
    if (e.apart) { /* rows are brought together before they are reduced */
        e.in_place = false;
        e.span = NULL;
    }
    e.columns = g->kd[g->nk - 1];
    const bool compared =
        e.larger && !e.apart && e.columns * (int64_t)wf_dtype_size(job->x->dtype) >= COMPARED_BYTES;
    const bool narrow = e.columns * (int64_t)e.k->size <= NARROW_BYTES && !compared &&
                        (e.sum == NULL || e.apart || g->nr > 1 || e.columns < WF_LANES);
    e.sum = e.apart && narrow ? NULL : e.sum;
    return run_outer(&e, narrow);
}
