/*
 * eager/scan.c -- cumsum and cumprod.
 *
 * Invariants: values along the axis are added in the order of docs/reductions.md (scan.h has it in short); floats accumulate in
 * f64 (whatever their dtype) and every output is rounded once; integers wrap, in any order. Nothing depends on tiles or threads.
 *
 * What runs at once is a unit: a line whose elements are brought to a buffer, a tile of lines side by side, eight elements of
 * each, or a bundle of short lines behind one another, turned into such a tile and back. Few units are cut into blocks of 4096: their totals, then what comes before each, then the blocks again.
 */
#include <string.h>

#include "eager/reduce.h"

#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/kernels/kernels.h"
#include "eager/kernels/scan.h"
#include "eager/pool.h"
#include "eager/rows.h"

enum {
    SCAN_TILE = 1024,
    SCAN_TASK = 1 << 15,
    SCAN_AWAKE = 1 << 13, /* elements worth a share of a worker that is awake */
    BLOCK = 4096,
    RADIX = 64,
    COLS = WF_SCAN_COLS,
    WIDTH = WF_SCAN_WIDTH,
    SHORT = 24,   /* lines of fewer elements are bundled, from so many lines on */
    BUNDLE = 2048 /* elements */
};

typedef struct scan_job {
    const wf_view *x;
    const wf_view *dst;
    const wf_red_kernels *k; /* of f64 or i64 */
    wf_scan_kernels run;
    bool product, floats, sums_i64; /* the last: of i64 to i64 */
    bool direct, past;              /* f32 as it lies in memory; its results past the caches */
    int axis;
    int64_t n, inner, outer; /* of the contiguous result: [outer][n][inner] */
    int64_t tiles;           /* of inner; 0: units are lines */
    int64_t lines;           /* of a bundle */
    /* of a unit in blocks */
    int64_t unit, piece; /* its first block */
    bool totals;         /* store nothing */
    uint64_t *before;    /* [block][columns]: its total, later what is added at its level */
    uint64_t *state;     /* [64 blocks][WF_SCAN_STATE][columns]: what levels above add */
} scan_job;

/* Offset in x of the element with axes before and after the scanned one at flat indices o and i. */
static int64_t offset(const scan_job *j, int64_t o, int64_t i)
{
    int64_t at = 0;
    for (int a = j->x->rank - 1; a > j->axis; a--) {
        at += i % j->x->dims[a] * j->x->strides[a];
        i /= j->x->dims[a];
    }
    for (int a = j->axis - 1; a >= 0; a--) {
        at += o % j->x->dims[a] * j->x->strides[a];
        o /= j->x->dims[a];
    }
    return at;
}

static const char *from(const scan_job *j, int64_t at)
{
    return (const char *)j->x->data + at * (int64_t)wf_dtype_size(j->x->dtype);
}

static char *to(const scan_job *j, int64_t at)
{
    return (char *)j->dst->data + at * (int64_t)wf_dtype_size(j->dst->dtype);
}

static uint64_t join(bool product, uint64_t a, uint64_t b)
{
    return product ? a * b : a + b;
}

static uint64_t plus(const scan_job *j, uint64_t a, uint64_t b)
{
    if (!j->floats) {
        return join(j->product, a, b);
    }
    double x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x = j->product ? x * y : x + y;
    memcpy(&a, &x, sizeof a);
    return a;
}

/* -- integers: the order does not matter, and [3] is the running value of all since the block began ---------- */

static const wf_scan_kernels *kernels_here(void)
{
    static const wf_scan_kernels *const by_isa[WF_NISA] = {
        [WF_ISA_SSE2] = wf_scan_kernels_sse2,
        [WF_ISA_AVX2] = wf_scan_kernels_avx2,
        [WF_ISA_AVX512] = wf_scan_kernels_avx512,
    };
    return by_isa[wf_isa()];
}

static void rows_ints(uint64_t *v, int64_t n, uint64_t *s, unsigned add, wf_red op)
{
    uint64_t *const run = s + 3 * COLS;
    for (int r = 0; r < WF_SCAN_ROWS; r++, v += COLS) {
        const void *row = v;
        wf_red_kernels_of(WEFT_I64)->rows[op](run, &row, 1, n, r == 0 && !(add & 15));
        memcpy(v, run, (size_t)n * sizeof *v);
        for (int l = 4; add >> l; l++) {
            row = s + l * COLS;
            if (add >> l & 1) {
                wf_red_kernels_of(WEFT_I64)->rows[op](v, &row, 1, n, 0);
            }
        }
    }
}

static void span_sum(void *v, int64_t n, void *s, unsigned add)
{
    kernels_here()->sum_i64(v, v, n, s, add);
}
static void span_prod(void *values, int64_t n, void *state, unsigned add)
{
    uint64_t *v = values, *s = state, above = 1, run = add & 8 ? s[3] : 1;
    for (int l = 4; add >> l; l++) {
        above *= add >> l & 1 ? s[l] : 1;
    }
    for (int64_t i = 0; i < n; i++) {
        run *= v[i];
        v[i] = above * run;
    }
    s[3] = run;
}
static void rows_sum(void *v, int64_t n, void *s, unsigned add)
{
    rows_ints(v, n, s, add, WF_RED_SUM);
}
static void rows_prod(void *v, int64_t n, void *s, unsigned add)
{
    rows_ints(v, n, s, add, WF_RED_PROD);
}

static wf_scan_kernels kernels_of(const scan_job *j)
{
    static const wf_scan_kernels ints[2] = {{span_sum, rows_sum, NULL, 1, NULL},
                                            {span_prod, rows_prod, NULL, 1, NULL}};
    if (!j->floats) {
        return ints[j->product];
    }
    return j->product && wf_isa() == WF_ISA_AVX512 ? wf_scan_kernels_avx2[1]
                                                   : kernels_here()[j->product];
}

/* -- blocks of a unit ----------------------------------------------------------------------------------------- */

/* Which levels above block b's add something to it. */
static unsigned levels_of(int64_t b)
{
    unsigned add = 0;
    for (int l = 4; b > 0; l++, b /= RADIX) {
        add |= b % RADIX ? 1u << l : 0;
    }
    return add;
}

/* Block b is done: its total joins those before it, level by level while parts end with it. */
static void carry_over(const scan_job *j, int64_t b, uint64_t *s, const uint64_t *total,
                       int64_t columns)
{
    for (int l = 4;; l++, b /= RADIX) {
        for (int64_t c = 0; c < columns; c++) {
            s[l * COLS + c] = b % RADIX ? plus(j, s[l * COLS + c], total[c]) : total[c];
        }
        if (b % RADIX != RADIX - 1) {
            return;
        }
        total = s + l * COLS;
    }
}

typedef union buffer {
    uint64_t line[SCAN_TILE], row[WF_SCAN_ROWS][COLS];
} buffer;

/* m elements from `at` on, `step` apart: every other one, or those in reverse, come together before they are widened. */
static void load_line(const scan_job *j, uint64_t *line, int64_t at, int64_t step, int64_t m)
{
    enum { FEW = 32 };
    uint64_t near[SCAN_TILE];
    const int dtype = j->x->dtype;
    if (step == 1 || step == 0 || m < FEW) {
        j->k->load(line, from(j, at), dtype, step, m);
        return;
    }
    wf_kernels_now()->pack[wf_width(dtype)](near, m, from(j, at), 0, step, 1, (size_t)m);
    j->k->load(line, near, dtype, 1, m);
}

/* The state of a line has COLS for its columns in memory, as that of a tile, and 1 for the kernel. */
static void line_block(const scan_job *j, int64_t line, int64_t b, buffer *v, uint64_t *state)
{
    const int64_t step = j->x->strides[j->axis], at = offset(j, line / j->inner, line % j->inner);
    const int64_t end = j->n < (b + 1) * BLOCK ? j->n : (b + 1) * BLOCK;
    const unsigned add = j->totals ? 0 : levels_of(b);
    uint64_t s[WF_SCAN_STATE] = {0};
    for (int l = 4; add >> l; l++) {
        s[l] = state[l * COLS];
    }
    int64_t r = b * BLOCK;
    if (j->sums_i64 && step == 1 && j->inner == 1 && !j->totals) { /* from memory to memory */
        kernels_here()->sum_i64((uint64_t *)(void *)to(j, line * j->n + r),
                                (const uint64_t *)(const void *)from(j, at + r), end - r, s, add);
        r = end;
    }
    for (; r < end; r += SCAN_TILE) {
        const int64_t m = end - r < SCAN_TILE ? end - r : SCAN_TILE;
        load_line(j, v->line, at + r * step, step, m);
        j->run.span(v->line, m, s, add | (r % BLOCK ? 8 : 0));
        if (j->totals) {
            continue;
        }
        if (j->inner == 1) {
            j->k->store(to(j, line * j->n + r), j->dst->dtype, v->line, m);
            continue;
        }
        int64_t out = (line / j->inner * j->n + r) * j->inner + line % j->inner;
        for (int64_t i = 0; i < m; i++) {
            j->k->store(to(j, out + i * j->inner), j->dst->dtype, &v->line[i], 1);
        }
    }
    state[3 * COLS] = s[3];
}

static void tile_block(const scan_job *j, int64_t t, int64_t b, buffer *v, uint64_t *state)
{
    const int64_t o = t / j->tiles, c = t % j->tiles * WIDTH, step = j->x->strides[j->axis];
    const int64_t m = j->inner - c < WIDTH ? j->inner - c : WIDTH,
                  size = (int64_t)wf_dtype_size(j->x->dtype);
    const int64_t end = j->n < (b + 1) * BLOCK ? j->n : (b + 1) * BLOCK;
    const int64_t apart = j->inner * (int64_t)wf_dtype_size(j->dst->dtype);
    const char *src = from(j, offset(j, o, c) + b * BLOCK * step);
    char *dst = to(j, (o * j->n + b * BLOCK) * j->inner + c);
    const unsigned add = j->totals ? 0 : levels_of(b);
    const bool direct = j->direct && !j->totals && m % j->run.even == 0;
    const bool past = j->past && ((uintptr_t)dst | (uintptr_t)apart) % 64 == 0 && m % 16 == 0;
    for (int64_t r = b * BLOCK; r < end; r += WF_SCAN_ROWS) {
        const int64_t rows = end - r < WF_SCAN_ROWS ? end - r : WF_SCAN_ROWS;
        const unsigned now = add | (r % BLOCK >= RADIX ? 8 : 0) | (unsigned)(r / WF_SCAN_ROWS & 7);
        if (direct && rows == WF_SCAN_ROWS) {
            j->run.rows_f32((float *)(void *)dst, j->inner, (const float *)(const void *)src, step,
                            m, state, now, past);
            src += WF_SCAN_ROWS * step * size;
            dst += WF_SCAN_ROWS * apart;
            continue;
        }
        for (int64_t k = 0; k < rows; k++, src += step * size) {
            for (int64_t i = 0; i < m * size; i += 64) { /* past the end: nothing is read */
                __builtin_prefetch(src + WF_SCAN_ROWS * step * size + i);
            }
            j->k->load(v->row[k], src, j->x->dtype, 1, m);
        }
        j->run.rows(v, m, state, now);
        for (int64_t k = 0; k < rows && !j->totals; k++, dst += apart) {
            j->k->store(dst, j->dst->dtype, v->row[k], m);
        }
    }
}

static void block(const scan_job *j, int64_t unit, int64_t b, buffer *v, uint64_t *state)
{
    (j->tiles ? tile_block : line_block)(j, unit, b, v, state);
}

static int64_t columns_of(const scan_job *j, int64_t unit)
{
    const int64_t c = j->tiles ? unit % j->tiles * WIDTH : 0, left = j->tiles ? j->inner - c : 1;
    return left < WIDTH ? left : WIDTH;
}

/* After the last store past the caches of a task; one after each eight rows would wait for memory. */
static void fence(const scan_job *j)
{
    if (j->past) {
        wf_kernels_now()->fence();
    }
}

static void units_task(void *arg, int64_t begin, int64_t end)
{
    const scan_job *j = arg;
    uint64_t state[WF_SCAN_STATE * COLS];
    buffer v = {{0}}; /* elements that are missing from eight are numbers, whichever */
    for (int64_t unit = begin; unit < end; unit++) {
        for (int64_t b = 0; b * BLOCK < j->n; b++) {
            block(j, unit, b, &v, state);
            if ((b + 1) * BLOCK < j->n) {
                carry_over(j, b, state, state + 3 * COLS, columns_of(j, unit));
            }
        }
    }
    fence(j);
}

/* Lines of a row-major x, each of them a column meanwhile; x may be dst. */
static void bundles_task(void *arg, int64_t begin, int64_t end)
{
    const scan_job *j = arg;
    uint64_t state[WF_SCAN_STATE * COLS], out[BUNDLE];
    buffer v = {{0}};
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * j->lines, left = j->outer - first;
        const int64_t m = left < j->lines ? left : j->lines;
        for (int64_t r = 0; r < j->n; r += WF_SCAN_ROWS) {
            const int64_t rows = j->n - r < WF_SCAN_ROWS ? j->n - r : WF_SCAN_ROWS;
            for (int64_t k = 0; k < rows; k++) {
                j->k->load(v.row[k], from(j, first * j->n + r + k), j->x->dtype, j->n, m);
            }
            j->run.rows(&v, m, state, (unsigned)(r / WF_SCAN_ROWS));
            for (int64_t k = 0; k < rows; k++) {
                for (int64_t c = 0; c < m; c++) {
                    out[c * j->n + r + k] = v.row[k][c];
                }
            }
        }
        j->k->store(to(j, first * j->n), j->dst->dtype, out, m * j->n);
    }
}

/* Blocks of j->unit, from j->piece on: totals of them, or, where `before` has what is added, their outputs. */
static void blocks_task(void *arg, int64_t begin, int64_t end)
{
    const scan_job *j = arg;
    const int64_t columns = columns_of(j, j->unit), bytes = columns * 8;
    uint64_t state[WF_SCAN_STATE * COLS];
    buffer v = {{0}};
    for (int64_t b = begin; b < end; b++) {
        const unsigned add = j->totals ? 0 : levels_of(j->piece + b);
        for (int l = 4; add >> l; l++) {
            const uint64_t *above = j->state + (b / RADIX * WF_SCAN_STATE + l) * columns;
            memcpy(state + l * COLS, l == 4 ? j->before + b * columns : above, (size_t)bytes);
        }
        block(j, j->unit, j->piece + b, &v, state);
        if (j->totals) {
            memcpy(j->before + b * columns, state + 3 * COLS, (size_t)bytes);
        }
    }
    fence(j);
}

/* One unit by all threads, as many blocks at once as have 2^16 totals; false: no memory for it. */
static bool in_blocks(scan_job *j)
{
    const int64_t all = (j->n + BLOCK - 1) / BLOCK, columns = columns_of(j, j->unit);
    const int64_t parts = 1024 / columns + 1, grain = SCAN_TASK / BLOCK / columns + 1;
    uint64_t next[WF_SCAN_STATE * COLS] = {0};
    const size_t bytes = (size_t)(parts * (RADIX + WF_SCAN_STATE) * columns) * sizeof *next;
    j->before = wf_scratch(bytes);
    if (!j->before) {
        return false;
    }
    j->state = j->before + parts * RADIX * columns;
    for (j->piece = 0; j->piece < all; j->piece += parts * RADIX) {
        const int64_t left = all - j->piece, m = left < parts * RADIX ? left : parts * RADIX;
        j->totals = true;
        wf_parallel_for(m, grain, blocks_task, j);
        for (int64_t b = 0; b < m; b++) {
            uint64_t *const before = j->before + b * columns;
            const unsigned add = levels_of(j->piece + b);
            for (int l = 5; b % RADIX == 0 && add >> l; l++) {
                memcpy(j->state + (b / RADIX * WF_SCAN_STATE + l) * columns, next + l * COLS,
                       (size_t)columns * sizeof *next);
            }
            memcpy(next + 3 * COLS, before, (size_t)columns * sizeof *next);
            memcpy(before, next + 4 * COLS, (size_t)columns * sizeof *next);
            carry_over(j, j->piece + b, next, next + 3 * COLS, columns);
        }
        j->totals = false;
        wf_parallel_for(m, grain, blocks_task, j);
    }
    wf_scratch_free(j->before, bytes);
    return true;
}

/* The axes after the scanned one are contiguous in x. */
static bool inner_contiguous(const wf_view *x, int axis)
{
    int64_t expect = 1;
    for (int i = x->rank - 1; i > axis; i--) {
        if (x->dims[i] != 1 && x->strides[i] != expect) {
            return false;
        }
        expect *= x->dims[i];
    }
    return true;
}

/* Do lines along the axis lie in an order that uses few of a cache line's elements, or are they written so? */
static bool is_apart(const wf_view *x, const scan_job *j)
{
    const int64_t step = x->strides[j->axis] * (int64_t)wf_dtype_size(x->dtype);
    return j->inner > 1 || step >= 64 || step <= -64;
}

/* Is every value of x's type one of dst's? */
static bool holds(const wf_view *dst, const wf_view *x)
{
    return dst->dtype == x->dtype || (dst->dtype == WEFT_I64 && (WF_BIT(x->dtype) & WF_DT_F) == 0);
}

WF_EXEC_DECL(scan)
{
    const wf_view *x = &e->src[0];
    scan_job j = {.x = x, .dst = &e->dst[0], .axis = (int)e->attr->ints[0], .inner = 1, .outer = 1};
    j.product = e->op == WF_OP_CUMPROD;
    j.floats = (WF_BIT(e->dst[0].dtype) & WF_DT_F) != 0;
    j.k = wf_red_kernels_of(j.floats ? WEFT_F64 : WEFT_I64);
    j.n = x->dims[j.axis];
    for (int i = 0; i < x->rank; i++) {
        j.outer *= i < j.axis ? x->dims[i] : 1;
        j.inner *= i > j.axis ? x->dims[i] : 1;
    }
    if (j.n * j.outer * j.inner == 0) {
        return 0;
    }
    j.run = kernels_of(&j);
    const bool tiles = j.inner > 1 && inner_contiguous(x, j.axis);
    const bool bundled = j.inner == 1 && j.n < SHORT && j.outer >= SHORT;
    const bool apart = bundled ? !wf_view_is_contiguous(x) : !tiles && is_apart(x, &j);
    if (apart && holds(j.dst, x)) { /* brought together, scanned in place */
        wf_copy(j.dst, x);
        j.x = x = j.dst;
    }
    if (bundled && wf_view_is_contiguous(x)) {
        j.lines = BUNDLE / j.n < WIDTH ? BUNDLE / j.n : WIDTH;
        wf_parallel_items((j.outer + j.lines - 1) / j.lines, j.n * j.lines, SCAN_TASK, SCAN_AWAKE,
                          bundles_task, &j);
        return 0;
    }
    if (j.inner > 1 && inner_contiguous(x, j.axis)) {
        j.tiles = (j.inner + WIDTH - 1) / WIDTH;
        j.direct = j.run.rows_f32 && x->dtype == WEFT_F32 && j.dst->dtype == WEFT_F32;
        j.past = j.n * j.outer * j.inner * (int64_t)sizeof(float) > WF_STREAM_BYTES;
    }
    j.sums_i64 = !j.product && x->dtype == WEFT_I64 && j.dst->dtype == WEFT_I64;
    const int64_t units = j.outer * (j.tiles ? j.tiles : j.inner), columns = columns_of(&j, 0);
    const bool cut = units < wf_num_threads() && j.n >= 4 * BLOCK && j.n * columns >= 2 * SCAN_TASK;
    if (!cut) {
        wf_parallel_items(units, j.n * columns, SCAN_TASK, SCAN_AWAKE, units_task, &j);
        return 0;
    }
    for (j.unit = 0; j.unit < units; j.unit++) {
        if (!in_blocks(&j)) {
            units_task(&j, j.unit, j.unit + 1);
        }
    }
    return 0;
}
