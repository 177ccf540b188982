/*
 * eager/cpu/gemm.c -- entry point of the matrix product: checks, cuts the work into blocks, and
 * runs them on the pool through oneDNN or the built-in kernels.
 *
 * Invariant: block sizes depend on shape, strides and dtype only, except where the built-in kernels run, whose bits do
 * not depend on them. Nor do those of products in one order (gemm.h): what oneDNN adds is cut where the built-in kernels
 * cut it, and those for vectors read rows.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/dnnl.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/cpuid.h"
#include "eager/exec.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"

/* Multiply-adds that are worth waking a thread for. */
enum { MIN_WORK = 1 << 19 };
/* And up to which the kernels take less time than a call of oneDNN costs beside its work: matrix
 * units and the like start paying earlier for bf16. */
enum { TINY_WORK = 1 << 16, TINY_WORK_BF16 = 1 << 13 };
/* Rows up to which oneDNN 2.6.3 has kernels of its own for a transposed B, in lanes, as for one column. */
enum { FEW_ROWS = 16 };
/* Multiply-adds that are worth a share of a worker that is awake. */
enum { AWAKE_WORK = 1 << 16 };
/* Least terms of a slice of k: adding up its result is to cost little beside making it. */
enum { MIN_SLICE = 512, LONG_DOT = 1 << 17 };
/* Rows of A up to which a transposed B stays as it lies, terms of it that are worth that, and bytes of a turned result. */
enum { TURNED_ROWS = 96, TURNED_TERMS = 1 << 14, TURNED_BYTES = 256 << 10 };
/* Largest packed copy of B, bytes. */
#define MAX_PACKED ((size_t)64 << 20)

static const wf_gemm_kernels *kernels_here(void)
{
    static const wf_gemm_kernels *const tables[WF_NISA] = {
        [WF_ISA_SSE2] = &wf_gemm_kernels_sse2,
        [WF_ISA_AVX2] = &wf_gemm_kernels_avx2,
        [WF_ISA_AVX512] = &wf_gemm_kernels_avx512,
    };
    return tables[wf_isa()];
}

static int run_kernel(const wf_gemm_kernels *kernels, const wf_gemm_block *g)
{
    size_t size = kernels->scratch(g);
    _Alignas(64) char small[49152]; /* a panel of up to 256 terms, too */
    wf_gemm_block run = *g;
    run.scratch = size <= sizeof small ? small : wf_scratch(size);
    if (!run.scratch)
        return WF_GEMM_NOMEM;
    kernels->block(&run);
    if (run.scratch != small)
        wf_scratch_free(run.scratch, size);
    return WF_GEMM_OK;
}

int wf_gemm_builtin_block(const wf_gemm_block *g)
{
    const bool pairs = g->dtype == WEFT_BF16 && wf_gemm_pairs_active();
    const int rc = run_kernel(pairs ? &wf_gemm_kernels_pairs : kernels_here(), g);
    if (!rc && pairs && g->bias)
        wf_gemm_add_bias(g);
    return rc;
}

static int vector_block(const wf_gemm_block *g)
{
    static const wf_gemm_kernels *const tables[WF_NISA] = {
        [WF_ISA_SSE2] = &wf_vector_kernels_sse2,
        [WF_ISA_AVX2] = &wf_vector_kernels_avx2,
        [WF_ISA_AVX512] = &wf_vector_kernels_avx512,
    };
    return run_kernel(tables[wf_isa()], g);
}

/* Columns of fewer terms than this are turned: a row of columns is summed faster than the lanes of one. */
enum { SHORT_COLUMN = 64, VECTOR_BYTES = 32768, ROWS_BYTES = 512 << 10 };

/* The matrix is neither rows nor columns of neighbours, or its columns are short: pieces of columns are brought together,
 * along that of their strides which is the lesser one. */
static int vector_of_view(const wf_gemm_block *g)
{
    const int64_t size = (int64_t)wf_dtype_size(g->dtype);
    const bool in_rows =
        g->in_order || (g->n > 1 && (llabs(g->b_cs) <= llabs(g->b_rs) || g->k < SHORT_COLUMN));
    /* a piece of each of many rows is to be long */
    int64_t columns = (in_rows && g->k >= SHORT_COLUMN ? ROWS_BYTES : VECTOR_BYTES) / size / g->k;
    columns = in_rows ? columns / 16 * 16 : columns;
    columns = columns < 1 ? in_rows ? 16 : 1 : columns;
    columns = columns < g->n ? columns : g->n;
    const size_t bytes = (size_t)(columns * g->k * size);
    const int out = g->wide ? wf_dtype_compute(g->dtype) : g->dtype;
    const wf_pack_fn pack = wf_kernels_now()->pack[wf_width(g->dtype)];
    wf_gemm_block part = *g;
    _Alignas(64) char small[VECTOR_BYTES];
    char *dense = bytes <= sizeof small ? small : wf_scratch(bytes);
    int rc = dense ? WF_GEMM_OK : WF_GEMM_NOMEM;
    for (int64_t j = 0; j < g->n && rc == WF_GEMM_OK; j += columns) {
        part.n = columns < g->n - j ? columns : g->n - j;
        part.b = dense;
        part.b_rs = in_rows ? part.n : 1;
        part.b_cs = in_rows ? 1 : g->k;
        part.c = (char *)g->c + j * g->c_rs * (int64_t)wf_dtype_size(out);
        const char *from = (const char *)g->b + j * g->b_cs * size;
        if (in_rows)
            pack(dense, part.n, from, g->b_rs, g->b_cs, (size_t)g->k, (size_t)part.n);
        else
            pack(dense, g->k, from, g->b_cs, g->b_rs, (size_t)part.n, (size_t)g->k);
        rc = vector_block(&part);
    }
    if (dense && dense != small)
        wf_scratch_free(dense, bytes);
    return rc;
}

static bool is_streamed(const wf_gemm_block *g)
{
    if (g->in_order)
        return g->b_cs == 1;
    return g->n == 1 ? g->b_rs == 1 : g->b_cs == 1 || (g->b_rs == 1 && g->k >= SHORT_COLUMN);
}

/* Size of the pieces when n is cut into `count` about equal ones, each a multiple of `unit`. */
static int64_t piece(int64_t n, int64_t count, int64_t unit)
{
    int64_t size = (n + count - 1) / count;
    return (size + unit - 1) / unit * unit;
}

enum { BY_ONEDNN, BY_KERNELS, BY_PAIRS, BY_VECTOR, BY_AMX };

typedef struct blocks {
    wf_gemm_desc d;
    size_t size; /* of an element */
    int way;
    int64_t c_step; /* BY_VECTOR: distance of the elements of C; else 1 */
    int64_t bm, bn;
    int64_t rows, columns; /* blocks each way */
    int64_t slices, bk;    /* of k, each into a result of its own if there are several */
    char *partial;
    size_t partial_bytes;
    int64_t tasks;
    wf_dnnl_panels panels; /* BY_ONEDNN, width > 0: B is packed once for all blocks */
    char *packed;
    int64_t packed_bs; /* bytes of one packed B, 0 if all batches have the same */
    bool early;        /* blocks call `done` */
    const char *bias;  /* as the kernels take it, or NULL */
    bool bias_of_rows;
    _Atomic int rc;
} blocks;

/* Pieces of `least` work each, up to `count`. */
static int64_t pieces_worth(double work, double least, int64_t count)
{
    return work / least < (double)count ? (int64_t)(work / least) : count;
}
/* Strips of rows that share a packed B: at least 64 high, or two of at least 32. */
static int64_t packed_strips(const wf_gemm_desc *d, double work)
{
    const int64_t worth = pieces_worth(work, 2.0 * (double)MIN_WORK, 16);
    return wf_least(worth, d->m >= 128 ? d->m / 64 : d->m / 32);
}

/* How many rows two threads have behind them when the last is done, with strips of `bm`: one claims from each end. */
static int64_t rows_of_two(int64_t m, int64_t bm)
{
    const int64_t strips = (m + bm - 1) / bm;
    return strips % 2 ? strips / 2 * bm + m - (strips - 1) * bm : strips / 2 * bm;
}

/*
 * Height of the strips of rows that share a packed B: that of the most of them, unless it leaves one of two threads idle
 * and another does not. (392 rows in five strips of 80 take two threads 1.18 times as long as halves, in seven of 64 1.02.)
 */
static int64_t packed_height(const wf_gemm_desc *d, double work)
{
    const int64_t count = packed_strips(d, work);
    int64_t best = piece(d->m, count, 16);
    for (int64_t more = count + 1; more >= count / 2 && more > 1; more--) {
        const int64_t bm = piece(d->m, more, 16);
        if (rows_of_two(d->m, bm) * 100 < rows_of_two(d->m, best) * 97)
            best = bm;
    }
    return best;
}

/*
 * Wide results of 256 to 511 rows, and of up to 2047 where B is plain, are cut by columns: two or more strips of rows would
 * each read and pack a B of more than half a second cache. One thread, rows beside columns: 256 rows by 768 x 3072 take 23
 * and 10.5 ms (1024 rows 84 and 38), by 50257 x 768 240 and 180, by the transpose of 3072 x 768 12 and 10.
 */
static bool is_wide(const blocks *w)
{
    const wf_gemm_desc *d = &w->d;
    return w->way == BY_ONEDNN && d->m < (d->b_cs == 1 ? 2048 : 512) && d->n >= 2 * d->m &&
           (double)d->n * (double)d->k * (double)w->size > 1 << 20;
}

/*
 * f32 products by a transposed B, where A's rows keep out of each other's way and k is one slice: the kernels turn a panel of B
 * at a time and may be cut by columns, so that nothing is turned twice; oneDNN, cut by rows, turns B in each strip, and by
 * columns does not like its C. On Zen 5 0.97 to 1.02 of oneDNN's speed uncut, which is 1.03 to 1.15 of that cut. The bits are
 * those of oneDNN, too (wf_dnnl_in_order).
 */
static bool turns_b(const wf_gemm_desc *d)
{
    enum { MOST = 1024 };
    const double work = (double)d->m * (double)d->n * (double)d->k;
    return d->dtype == WEFT_F32 && d->b_rs == 1 && d->a_cs == 1 && d->a_rs % 1024 != 0 &&
           d->k <= WF_GEMM_SLICE && d->m > FEW_ROWS && d->m <= MOST && d->n >= 32 && d->n <= MOST &&
           (d->n % 32 == 0 || work >= 2.0 * (double)MIN_WORK) && wf_isa() == WF_ISA_AVX512 &&
           wf_amd();
}

/*
 * The built-in kernels make the same bits however they are cut, so that one thread takes the whole, up to what half types need
 * in f32 beside it, and several take a piece each, of the longer side, or more of them while these are long: a strip of rows packs B
 * anew, one of columns A. (CPU time over that of the whole, Zen 3: 1024^3 in eight strips 1.23, in four 1.14, in two 1.02; 256 x 64
 * by 25088 terms in eight 1.55.) Rows that are handed on are strips on one thread, too, which then are in its caches; too few
 * are not handed on.
 */
static void cut_for_threads(blocks *w, double work)
{
    enum { ROWS = 12, COLUMNS = 32 }; /* tiles are 4, 6 or 12 rows high and up to 32 columns wide */
    enum { LONG = 512, MOST_SUMS = 2 << 20 };
    const wf_gemm_desc *d = &w->d;
    const int64_t threads = wf_num_threads(), worth = pieces_worth(work, (double)MIN_WORK, 4096);
    const bool hands_on = d->done && wf_least(worth, d->m / (2 * ROWS)) >= threads;
    const bool columns = !hands_on && (d->b_cs == 1 ? d->n : 2 * d->n) >= d->m;
    const int64_t long_ones = wf_least((columns ? d->n : d->m) / LONG, 4 * threads);
    const int64_t pieces = threads > 1 ? wf_most(threads, long_ones) : 1;
    const int64_t handed = d->done ? d->m / 256 : 1;
    const int64_t sums = w->size < sizeof(float) ? d->m * d->n / MOST_SUMS : 1;
    const int64_t count = wf_least(worth, wf_most(wf_most(pieces, handed), sums));
    if (count < 2)
        return;
    if (columns)
        w->bn = piece(d->n, wf_least(count, wf_most(1, d->n / COLUMNS)), COLUMNS);
    else
        w->bm = piece(d->m, wf_least(count, wf_most(1, d->m / (2 * ROWS))), ROWS);
}

/*
 * Columns of a product with a vector. A matrix that is read where it lies has the same bits however it is cut, but for a single
 * column: one thread reads whole rows (4096 x 4096 f32 in eight pieces take 1.3 times as long).
 */
static int64_t columns_of_vector(const wf_gemm_desc *d, int64_t worth)
{
    const bool in_place = d->b_cs == 1 || (d->b_rs == 1 && d->k >= SHORT_COLUMN);
    const int64_t threads = wf_num_threads();
    const int64_t most_pieces = !in_place ? 8 : threads > 1 ? 2 * threads : 1;
    int64_t bn = piece(d->n, wf_least(wf_least(worth, most_pieces), wf_most(1, d->n / 256)), 64);
    while (in_place && d->n > bn && d->n % bn == 1)
        bn += 64;
    return bn;
}

/*
 * oneDNN repacks B in every strip of rows and A in every narrow strip of columns, so strips of rows
 * get B packed beforehand where oneDNN says how; else they are at least 256 high. Few rows are cut by
 * columns, and results that are wide. Eight strips are enough for it; a strip has MIN_WORK. A small result of long sums is two
 * strips, of rows where B is plain, of columns where it is transposed: that costs 1 to 3 % (rows of a transposed B 9 %).
 *
 * Rows of bf16 that are handed on are strips, whose bits are those of columns: on two threads 0.79 to 1 of the time with a pass
 * behind them (Zen 5, 256 x 1024 x 64 B^T and GELU 96 and 76 us). Of f32 whose B is turned a panel at a time columns with a pass
 * are faster (256 x 512 x 256 152 us, strips 161).
 */
static void choose_blocks(blocks *w)
{
    const wf_gemm_desc *d = &w->d;
    double work = (double)d->m * (double)d->n * (double)d->k;
    int64_t worth = pieces_worth(work, (double)MIN_WORK, 8), threads = wf_num_threads();
    int64_t tall = wf_most(2, wf_least(d->m / 256, wf_most(8, d->m / 512)));
    int64_t wide = w->way == BY_ONEDNN ? wf_most(2, wf_least(d->n / 512, 8))
                                       : wf_most(2, wf_least(d->n / 128, 8));
    w->bm = d->m, w->bn = d->n;
    if (worth >= 2 && d->batch < 8 && w->slices == 1) {
        if (w->way == BY_VECTOR)
            w->bn = columns_of_vector(d, worth);
        else if (w->panels.width)
            w->bm = packed_height(d, work);
        else if (w->way == BY_PAIRS && d->done && d->m >= 256 && worth >= threads &&
                 d->m / 64 >= threads)
            w->bm = piece(d->m, wf_least(worth, wf_most(tall, threads)), 16);
        else if (w->way == BY_PAIRS && d->n >= 64 && (d->a_cs == 1 || d->m < 256))
            w->bn = piece(d->n, wf_least(worth, d->n / 32), 32);
        else if (w->way == BY_KERNELS && d->n >= 64 && turns_b(d))
            w->bn = piece(d->n, wf_least(worth, d->n / 32), 32);
        else if (w->way == BY_KERNELS)
            cut_for_threads(w, work);
        else if (!is_wide(w) && (d->m >= 256 || (d->m >= 128 && d->m >= d->n)))
            w->bm = piece(d->m, wf_least(worth, tall), 16);
        else if (d->n >= 128)
            w->bn = piece(d->n, wf_least(worth, wide), 64);
        else if (w->way == BY_ONEDNN && d->m >= 64 && d->b_cs == 1 && worth == 8)
            w->bm = piece(d->m, 2, 16);
        else if (w->way == BY_ONEDNN && d->n >= 64 && d->b_cs != 1 && worth == 8)
            w->bn = piece(d->n, 2, 16);
    }
    w->rows = (d->m + w->bm - 1) / w->bm;
    w->columns = (d->n + w->bn - 1) / w->bn;
}

/*
 * A small result of long sums, or a single one, which neither rows nor columns cut well: slices of k have results of their own, which are
 * added in their order. Not with oneDNN, which takes up to three times as long where rows of A are longer than its k.
 */
static void choose_slices(blocks *w)
{
    const wf_gemm_desc *d = &w->d;
    const double work = (double)d->m * (double)d->n * (double)d->k;
    w->slices = 1;
    w->bk = d->k;
    if (d->one_order)
        return;
    if (w->way == BY_VECTOR && d->n == 1 && d->batch == 1 && d->k >= LONG_DOT) {
        w->bk = piece(d->k, 8, 64);
        w->slices = (d->k + w->bk - 1) / w->bk;
        return;
    }
    if ((w->way != BY_PAIRS && w->way != BY_KERNELS) || d->batch > 1 || d->m >= 128 ||
        d->n >= 128 || d->k < 2 * MIN_SLICE)
        return;
    const int64_t worth = pieces_worth(work, 2.0 * (double)MIN_WORK, 8);
    const int64_t count = wf_least(worth, d->k / MIN_SLICE);
    if (count < 2)
        return;
    w->bk = piece(d->k, count, 64);
    w->slices = (d->k + w->bk - 1) / w->bk;
}

/* Gives a block the bias of its first row and column and those behind them. */
static void set_bias(const blocks *w, wf_gemm_block *g, int64_t row, int64_t column)
{
    const size_t size = wf_dtype_size(wf_dtype_compute(g->dtype));
    g->bias = w->bias + size * (size_t)(w->bias_of_rows ? row : column);
    g->bias_rs = w->bias_of_rows;
    g->bias_cs = !w->bias_of_rows;
}

/* C := the sum of the slices' results, in their order, rounded once. */
static void sum_slices(blocks *w)
{
    const wf_gemm_desc *d = &w->d;
    const wf_kernels *kernels = wf_kernels_now();
    const int ct = wf_dtype_compute(d->dtype);
    const size_t count = (size_t)(d->m * d->n), width = wf_dtype_size(ct);
    for (int64_t i = 1; i < w->slices; i++)
        kernels->map[wf_ct(ct)][WF_OP_ADD](
            w->partial, (const void *const[]){w->partial, w->partial + (size_t)i * count * width},
            count, 0);
    const wf_cast_fn cast = kernels->cast[d->dtype][ct];
    if (w->bias) {
        wf_gemm_block sums = {.dtype = ct, .m = d->m, .n = d->n, .c = w->partial, .c_rs = d->n};
        set_bias(w, &sums, 0, 0);
        wf_gemm_add_bias(&sums);
    }
    if (d->c_rs == d->n) {
        cast(d->c, w->partial, count);
        return;
    }
    for (int64_t i = 0; i < d->m; i++)
        cast((char *)d->c + (size_t)(i * d->c_rs) * w->size,
             w->partial + (size_t)(i * d->n) * width, (size_t)d->n);
}

/* Asks how B is to be packed when strips of rows are worth it; leaves width 0 when not. */
static int choose_panels(blocks *w)
{
    const wf_gemm_desc *d = &w->d;
    double work = (double)d->m * (double)d->n * (double)d->k;
    if (w->way != BY_ONEDNN || d->dtype != WEFT_BF16 || d->batch >= 8 || packed_strips(d, work) < 2)
        return WF_GEMM_OK;
    int64_t bm = packed_height(d, work), last = d->m - (d->m - 1) / bm * bm;
    wf_gemm_block g = {.dtype = d->dtype,
                       .m = bm,
                       .n = d->n,
                       .k = d->k,
                       .a_rs = d->a_rs,
                       .a_cs = d->a_cs,
                       .c_rs = d->bias ? d->n : d->c_rs,
                       .wide = d->bias != NULL};
    wf_dnnl_panels ends = {0};
    int saved = wf_dnnl_enter();
    int rc = wf_dnnl_gemm_panels(&g, &w->panels);
    g.m = last;
    if (!rc && w->panels.width)
        rc = wf_dnnl_gemm_panels(&g, &ends);
    wf_dnnl_leave(saved);
    if (rc || !w->panels.width)
        return rc;
    double bytes =
        (double)w->panels.depth * ((double)d->n + (double)w->panels.width) * (double)w->size;
    if (ends.width != w->panels.width || ends.depth != w->panels.depth ||
        bytes * (double)(d->b_bs ? d->batch : 1) > (double)MAX_PACKED)
        w->panels.width = 0;
    return WF_GEMM_OK;
}

/* Rows that one task packs: enough for half of a first-level cache, and whole lines of columns. */
static int64_t rows_to_pack(const blocks *w)
{
    int64_t row = w->d.n * (int64_t)w->size;
    return wf_most(32, wf_least(w->panels.depth, 32768 / row / 32 * 32));
}

static void pack_task(void *arg, int64_t begin, int64_t end)
{
    blocks *w = arg;
    const wf_gemm_desc *d = &w->d;
    int64_t step = rows_to_pack(w), down = (w->panels.depth + step - 1) / step;
    for (int64_t t = begin; t < end; t++) {
        int64_t batch = t / down, row = t % down * step;
        wf_gemm_panel g = {
            .b = (const char *)d->b + (int64_t)w->size * batch * d->b_bs,
            .b_rs = d->b_rs,
            .b_cs = d->b_cs,
            .k = d->k,
            .n = d->n,
            .k0 = row,
            .k1 = wf_least(row + step, w->panels.depth),
            .width = w->panels.width,
            .depth = w->panels.depth,
            .out = w->packed + batch * w->packed_bs,
        };
        kernels_here()->panel(&g);
    }
}

/* Packs B, once for each batch that has its own. */
static int pack_panels(blocks *w, size_t *bytes)
{
    const wf_gemm_desc *d = &w->d;
    int64_t width = w->panels.width, count = d->b_bs ? d->batch : 1, step = rows_to_pack(w);
    int64_t one = (d->n + width - 1) / width * width * w->panels.depth * (int64_t)w->size;
    w->packed_bs = d->b_bs ? one : 0;
    *bytes = (size_t)(one * count);
    w->packed = wf_scratch(*bytes);
    if (!w->packed)
        return WF_GEMM_NOMEM;
    wf_parallel_for(count * ((w->panels.depth + step - 1) / step), 1, pack_task, w);
    return WF_GEMM_OK;
}

/*
 * oneDNN 2.6.3 pads an odd k of bf16, wherever it copies A, so that an infinity in A's last column is multiplied by a zero:
 * the row of C is NaN. (Found at every instruction set that it has for bf16; no version is taken to be right.)
 */
static bool is_padded_badly(const wf_gemm_desc *d)
{
    return d->dtype == WEFT_BF16 && d->k % 2;
}

/*
 * Where the kernel for pairs of bf16 takes up to 2.6 times less than oneDNN's (16 rows and columns; 1.1 for 64, 1.03 for 128)
 * and no more: it reads A in place, packs B as it multiplies, and is cut by columns, so that nothing is packed twice. Short sums
 * of larger results have the same bits from both (wf_dnnl_in_order). (Zen 5, of oneDNN's time, 1024 x 1024 by 32 terms .90, by 256
 * .97, 3136 x 256 x 64 .95; 2048 x 2048 x 32 1.03. Of a transposed A 3072 x 768 by 64 .79, 1024 x 1024 by 32 .64.)
 */
static bool pairs_pay(const wf_gemm_desc *d, double work)
{
    if (!wf_gemm_pairs_active())
        return false;
    if (is_padded_badly(d))
        return true;
    enum { LEAST_SHORT = 8, MOST_SHORT = 1 << 21 };
    if (d->a_cs != 1)
        return d->a_rs == 1 && d->k >= LEAST_SHORT && d->k <= WF_GEMM_SLICE && d->m >= 16 &&
               d->m * d->n <= 2 * MOST_SHORT;
    if (work <= 1 << 18 || (d->m < 128 && d->n < 128))
        return true;
    return d->m >= 16 && (work <= 1 << 24 || (d->m >= 64 && d->m <= 256 && work <= 1 << 27) ||
                          (d->k <= WF_GEMM_SLICE && d->m * d->n <= MOST_SHORT));
}

/* Small f32 products in whole tiles of columns, of which the kernels read A in place: on Zen 4 0.86 (48 x 64 x 80) to
 * 0.98 (64^3, B transposed) of oneDNN's time; others take up to 4 times as long (12 x 12 x 1800). */
static bool is_small_f32(const wf_gemm_desc *d)
{
    return d->dtype == WEFT_F32 && d->n % 32 == 0 && d->n <= 64 && d->m <= 64 && d->k <= 128;
}

/*
 * f32 products that the kernels make where oneDNN has those of AVX2, which read a plain B in place for few rows or columns, at half
 * their speed where its rows are multiples of 2 KiB apart, and copy it in each strip; the kernels are as fast or faster and in
 * the one order. Not narrow ones and few rows of a transposed B. (Zen 3, one thread, over oneDNN's speed: 256^3 1.01, 1024^3
 * 0.98 to 1.05, 512^3 1.4, 256 x 3072 x 768 1.8; 1024 x 32 x 1024 0.7, 4 x 256 x 256 B^T 0.7.)
 */
static bool suits_avx2(const wf_gemm_desc *d)
{
    return d->dtype == WEFT_F32 && wf_isa() == WF_ISA_AVX2 &&
           (d->one_order || ((d->n >= 48 || d->m <= 64) && (d->m >= 8 || d->b_cs == 1)));
}

/* Whether this back end has products in the one order: of f32 and bf16 oneDNN has a share, of which the rest is to have the bits. */
static bool has_one_order(const wf_gemm_desc *d)
{
    if ((d->dtype != WEFT_F32 && d->dtype != WEFT_BF16) || !wf_dnnl_active())
        return true;
    if (d->dtype == WEFT_F32)
        return wf_isa() == WF_ISA_AVX2 || (wf_isa() > WF_ISA_AVX2 && wf_dnnl_in_order());
    return wf_gemm_amx_active() || !wf_dnnl_in_order() ||
           (wf_gemm_pairs_active() && d->k <= WF_GEMM_SLICE);
}

/* Products with a vector read the matrix once whatever they do; C^T = B^T A^T turns one column into
 * one row. Few rows: oneDNN would copy B first, the kernels read it in place. */
static void choose_way(blocks *w)
{
    wf_gemm_desc *d = &w->d;
    w->c_step = 1;
    w->way = BY_KERNELS;
    if (d->n == 1 && d->m > 1 && d->a_rs != 0 && d->a_cs != 0) {
        wf_gemm_desc t = *d;
        t.m = 1, t.n = d->m;
        t.a = d->b, t.a_rs = d->b_cs, t.a_cs = d->b_rs, t.a_bs = d->b_bs;
        t.b = d->a, t.b_rs = d->a_cs, t.b_cs = d->a_rs, t.b_bs = d->a_bs;
        t.bias_rs = d->bias_cs, t.bias_cs = d->bias_rs;
        w->c_step = d->c_rs;
        w->way = BY_VECTOR;
        *d = t;
        return;
    }
    if (d->m == 1 && d->b_rs != 0 && d->b_cs != 0) {
        w->way = BY_VECTOR;
        return;
    }
    double work = (double)d->m * (double)d->n * (double)d->k;
    int tiny = d->dtype == WEFT_BF16 ? TINY_WORK_BF16 : TINY_WORK;
    const bool units = d->dtype == WEFT_BF16 && wf_gemm_amx_active();
    if ((d->dtype != WEFT_F32 && d->dtype != WEFT_BF16) ||
        (work <= (double)tiny && !(units && d->one_order)))
        return;
    if (units) {
        w->way = BY_AMX;
        return;
    }
    if (d->dtype == WEFT_BF16 && pairs_pay(d, work)) {
        w->way = BY_PAIRS;
        return;
    }
    if (is_small_f32(d) || turns_b(d) || suits_avx2(d) ||
        (d->dtype == WEFT_F32 && d->b_cs == 1 && d->m <= 36 && d->n >= 256))
        return;
    if (wf_dnnl_active() && !is_padded_badly(d) && (d->dtype == WEFT_F32 || wf_dnnl_in_order()))
        w->way = BY_ONEDNN; /* which has no bf16 below AVX-512 */
}

/*
 * oneDNN's blocked kernels want dense rows of C, and columns of a transposed B are dense: such pieces of columns are made
 * in memory of their own and copied. Without it they go to kernels that copy B, in f32 faster up to 12 rows only, and up to
 * 2.8 times as slow where rows of B lie powers of two apart (32 x 1024 x 1024 f32 on Zen 4: 1230 and 690 us).
 */
static bool is_made_apart(const blocks *w, const wf_gemm_block *g)
{
    return w->way == BY_ONEDNN && !w->packed && g->n < g->c_rs && g->a_cs == 1 && g->a_rs == g->k &&
           g->b_rs == 1 && g->b_cs == g->k && g->k >= 256 &&
           g->m >= (g->dtype == WEFT_BF16 ? 2 : 16) && g->m * g->n * (int64_t)w->size <= 512 << 10;
}

static int multiply_apart(const blocks *w, const wf_gemm_block *g)
{
    const size_t row = (size_t)g->n * w->size, bytes = (size_t)g->m * row;
    wf_gemm_block dense = *g;
    dense.c = wf_scratch(bytes);
    dense.c_rs = g->n;
    if (!dense.c)
        return WF_GEMM_NOMEM;
    int rc = wf_dnnl_gemm(&dense);
    for (int64_t i = 0; i < g->m && rc == WF_GEMM_OK; i++)
        memcpy((char *)g->c + (size_t)(i * g->c_rs) * w->size, (char *)dense.c + (size_t)i * row,
               row);
    wf_scratch_free(dense.c, bytes);
    return rc;
}

/*
 * The kernels turn a transposed B as they pack it, which under few rows of A takes as long as their arithmetic: such products are
 * C^T = B^T A^T, which turns the lesser A instead and reads B as it lies. A transposed A of more rows than B has columns is read in
 * place, too, as the second operand, and the lesser B is brought together. A term is the same product either way, so the bits are.
 * C is turned for it, which short sums do not pay for. (With AVX-512 oneDNN has most of f32, and
 * f64 alone gains: Zen 5, 8 x 1024 x 1024 B^T 680 and 178 us, but f16 49 x 512 x 512 125 and 152.)
 */
static bool is_turned(const wf_gemm_block *g)
{
    if (wf_isa() >= WF_ISA_AVX512 && g->dtype != WEFT_F64)
        return false;
    if (g->a_rs == 1 && g->a_cs != 1 && g->b_cs == 1)
        return g->dtype == WEFT_F32 && g->n >= 16 && g->n <= TURNED_ROWS && g->m >= 2 * g->n &&
               g->k >= g->m && g->m * g->n * (int64_t)sizeof(float) <= TURNED_BYTES;
    return g->b_rs == 1 && g->b_cs != 1 && g->m >= (wf_dtype_size(g->dtype) == 2 ? 16 : 2) &&
           g->m <= TURNED_ROWS && g->n >= 2 * g->m && g->k >= 8 && g->k >= g->m &&
           g->n * g->k >= TURNED_TERMS;
}

static int multiply_turned(const wf_gemm_block *g)
{
    const int dtype = g->wide ? wf_dtype_compute(g->dtype) : g->dtype;
    const int64_t in = (int64_t)wf_dtype_size(g->dtype), out = (int64_t)wf_dtype_size(dtype);
    const wf_pack_fn pack = wf_kernels_now()->pack[wf_width(dtype)];
    const int64_t rows = wf_least(g->n, TURNED_BYTES / out / g->m);
    const size_t bytes = (size_t)(rows * g->m * out);
    wf_gemm_block part = *g;
    part.n = g->m;
    part.a_rs = g->b_cs, part.a_cs = g->b_rs;
    part.b = g->a, part.b_rs = g->a_cs, part.b_cs = g->a_rs;
    part.c = wf_scratch(bytes), part.c_rs = g->m;
    part.bias_rs = g->bias_cs, part.bias_cs = g->bias_rs;
    int rc = part.c ? WF_GEMM_OK : WF_GEMM_NOMEM;
    for (int64_t j = 0; j < g->n && rc == WF_GEMM_OK; j += rows) {
        part.m = wf_least(rows, g->n - j);
        part.a = (const char *)g->b + j * g->b_cs * in;
        if (g->bias)
            part.bias = (const char *)g->bias + j * g->bias_cs * out;
        rc = wf_gemm_builtin_block(&part);
        if (!rc)
            pack((char *)g->c + j * out, g->c_rs, part.c, 1, g->m, (size_t)g->m, (size_t)part.m);
    }
    wf_scratch_free(part.c, bytes);
    return rc;
}

/* What is not worth waking a thread for is shared with one that is awake: to the kernels it is the same how C is cut. */
static bool cut_for_awake(blocks *w)
{
    const wf_gemm_desc *d = &w->d;
    const double row = (double)d->n * (double)d->k, column = (double)d->m * (double)d->k;
    if (w->way != BY_KERNELS || w->rows * w->columns * w->slices * d->batch > 1 ||
        row * (double)d->m < 2.0 * (double)AWAKE_WORK)
        return false;
    if (d->n >= 64)
        w->bn = wf_awake_grain(d->n, (int64_t)((double)AWAKE_WORK / column) + 1, 32);
    else
        w->bm = wf_awake_grain(d->m, (int64_t)((double)AWAKE_WORK / row) + 1, 16);
    w->rows = (d->m + w->bm - 1) / w->bm;
    w->columns = (d->n + w->bn - 1) / w->bn;
    return w->rows * w->columns > 1;
}

/* f32 in slices of k as the built-in kernels have them. */
static int multiply_in_order(const blocks *w, const wf_gemm_block *g)
{
    if (g->m < FEW_ROWS || g->n == 1)
        return WF_GEMM_UNSUPPORTED;
    const int64_t step = wf_gemm_slice(g->k), size = (int64_t)w->size;
    wf_gemm_block part = *g;
    part.bias = NULL;
    int rc = WF_GEMM_OK;
    for (int64_t k = 0; k < g->k && rc == WF_GEMM_OK; k += step) {
        part.k = wf_least(step, g->k - k);
        part.a = (const char *)g->a + k * g->a_cs * size;
        part.b = (const char *)g->b + k * g->b_rs * size;
        part.add = k > 0;
        rc = wf_dnnl_gemm(&part);
        if (rc == WF_GEMM_UNSUPPORTED)
            rc = wf_gemm_builtin_block(&part);
    }
    return rc;
}

static int run_block(const blocks *w, const wf_gemm_block *g)
{
    if (w->way == BY_KERNELS && is_turned(g))
        return multiply_turned(g);
    if (w->way == BY_KERNELS && g->bias && g->bias_rs && g->m > WF_GEMM_BIAS_ROWS) {
        /* Many rows that lie far apart: a pass behind them costs less (Zen 3, 96 rows of 3136, 16 terms: 1.2 and 1.45). */
        wf_gemm_block sums = *g;
        sums.bias = NULL;
        const int failed = wf_gemm_builtin_block(&sums);
        if (!failed)
            wf_gemm_add_bias(g);
        return failed;
    }
    const int rc = w->way == BY_VECTOR   ? (is_streamed(g) ? vector_block : vector_of_view)(g)
                   : w->way != BY_ONEDNN ? WF_GEMM_UNSUPPORTED
                   : g->in_order && g->dtype == WEFT_F32 ? multiply_in_order(w, g)
                   : w->packed                           ? wf_dnnl_gemm_packed(g)
                   : is_made_apart(w, g)                 ? multiply_apart(w, g)
                                                         : wf_dnnl_gemm(g);
    if (rc == WF_GEMM_UNSUPPORTED)
        return wf_gemm_builtin_block(g);
    if (rc || !g->bias)
        return rc;
    wf_gemm_block sums = *g;
    if (w->way == BY_VECTOR && g->c_rs != 1) { /* elements of C that lie apart are rows of one */
        sums.m = g->n, sums.n = 1;
        sums.bias_rs = g->bias_cs, sums.bias_cs = g->bias_rs;
    }
    wf_gemm_add_bias(&sums);
    return WF_GEMM_OK;
}

/* Half types: the bias belongs before the rounding, to f32 sums of their own. */
static int run_and_round(const blocks *w, const wf_gemm_block *g)
{
    const wf_cast_fn cast = wf_kernels_now()->cast[g->dtype][WEFT_F32];
    const size_t bytes = (size_t)(g->m * g->n) * sizeof(float);
    wf_gemm_block sums = *g;
    float *x = wf_scratch(bytes);
    if (!x)
        return WF_GEMM_NOMEM;
    sums.c = x;
    sums.c_rs = w->way == BY_VECTOR ? 1 : g->n;
    sums.wide = true;
    const int rc = run_block(w, &sums);
    const int64_t row = w->c_step == 1 ? g->n : 1, rows = rc ? 0 : g->m * g->n / row;
    for (int64_t i = 0; i < rows; i++)
        cast((char *)g->c + (size_t)(i * g->c_rs) * w->size, x + i * row, (size_t)row);
    wf_scratch_free(x, bytes);
    return rc;
}

static void run_blocks(void *arg, int64_t begin, int64_t end)
{
    blocks *w = arg;
    const wf_gemm_desc *d = &w->d;
    int saved = w->way == BY_ONEDNN ? wf_dnnl_enter() : 1;
    for (int64_t t = begin; t < end; t++) {
        int64_t batch = 0, r = 0, q = 0;
        int64_t k0 = 0;
        if (w->slices > 1)
            k0 = t * w->bk;
        else if (w->tasks > 1)
            batch = t / (w->rows * w->columns), r = t / w->columns % w->rows, q = t % w->columns;
        int64_t i = r * w->bm, j = q * w->bn;
        int64_t size = (int64_t)w->size;
        wf_gemm_block g = {
            .dtype = d->dtype,
            .m = d->m - i < w->bm ? d->m - i : w->bm,
            .n = d->n - j < w->bn ? d->n - j : w->bn,
            .k = wf_least(w->bk, d->k - k0),
            .a = (const char *)d->a + size * (batch * d->a_bs + i * d->a_rs + k0 * d->a_cs),
            .a_rs = d->a_rs,
            .a_cs = d->a_cs,
            .b = (const char *)d->b + size * (batch * d->b_bs + j * d->b_cs + k0 * d->b_rs),
            .b_rs = d->b_rs,
            .b_cs = d->b_cs,
            .c = (char *)d->c + size * (batch * d->c_bs + i * d->c_rs + j * w->c_step),
            .c_rs = w->way == BY_VECTOR ? w->c_step : d->c_rs,
            .in_order = d->one_order,
        };
        if (w->slices > 1) {
            g.c = w->partial + w->partial_bytes / (size_t)w->slices * (size_t)t;
            g.c_rs = d->n;
            g.wide = true;
        }
        if (w->packed)
            g.b = w->packed + batch * w->packed_bs;
        if (w->bias && w->slices == 1)
            set_bias(w, &g, i, j);
        int rc =
            (g.bias && g.dtype != wf_dtype_compute(g.dtype) ? run_and_round : run_block)(w, &g);
        if (rc)
            atomic_store_explicit(&w->rc, rc, memory_order_relaxed);
        else if (w->early)
            d->done(d->done_arg, batch, i, g.m);
    }
    if (w->way == BY_ONEDNN)
        wf_dnnl_leave(saved);
}

/* Of half types where their products are faster than f32 products of widened copies. */
static bool takes_bias(const wf_gemm_desc *d)
{
    if (d->dtype == WEFT_F32 || d->dtype == WEFT_F64)
        return true;
    if (d->k == 0 || d->bias_rs || (d->dtype != WEFT_BF16 && d->dtype != WEFT_F16))
        return false;
    return d->m == 1 || (d->dtype == WEFT_BF16 && (wf_gemm_amx_active() || wf_gemm_pairs_active()));
}

/* The bias in the type of the sums, elements side by side: what is given, or a copy of *bytes. */
static int bring_bias(blocks *w, void **copy, size_t *bytes)
{
    const wf_gemm_desc *d = &w->d;
    w->bias_of_rows = d->bias_rs != 0;
    const int64_t stride = w->bias_of_rows ? d->bias_rs : d->bias_cs;
    const int ct = wf_dtype_compute(d->dtype);
    w->bias = d->bias;
    if (!d->bias || (stride == 1 && ct == d->dtype))
        return WF_GEMM_OK;
    const int64_t size = (int64_t)wf_dtype_size(ct), count = w->bias_of_rows ? d->m : d->n;
    const wf_cast_fn cast = wf_kernels_now()->cast[ct][d->dtype];
    *bytes = (size_t)(count * size);
    char *to = *copy = wf_scratch(*bytes);
    if (to && stride == 1)
        cast(to, d->bias, (size_t)count);
    for (int64_t i = 0; to && stride != 1 && i < count; i++)
        cast(to + i * size, (const char *)d->bias + i * stride * (int64_t)w->size, 1);
    w->bias = to;
    return to ? WF_GEMM_OK : WF_GEMM_NOMEM;
}

/* Sums of nothing, and their bias. */
static int no_terms(const wf_gemm_desc *d)
{
    blocks w = {.d = *d, .size = wf_gemm_esize(d->dtype)};
    wf_gemm_block g = {.dtype = d->dtype, .m = d->m, .n = d->n, .c_rs = d->c_rs};
    void *bias = NULL;
    size_t bytes = 0;
    const int rc = bring_bias(&w, &bias, &bytes);
    for (int64_t b = 0; b < d->batch && !rc; b++) {
        char *row = g.c = (char *)d->c + (int64_t)w.size * b * d->c_bs;
        for (int64_t i = 0; i < d->m; i++, row += (int64_t)w.size * d->c_rs)
            memset(row, 0, (size_t)d->n * w.size);
        if (w.bias) {
            set_bias(&w, &g, 0, 0);
            wf_gemm_add_bias(&g);
        }
    }
    wf_scratch_free(bias, bytes);
    return rc;
}

/* Sums of one term are a * b + 0, rounded once. Elementwise that is quicker where tiles are mostly empty, as of a number times a
 * vector, of f16, which tiles widen first, and where results go past the caches. Not where another shape is to have the same
 * bits: instructions for pairs of bf16 have no subnormal sums, and SSE2 rounds before it adds 0, so that -0 is no result. */
enum { ONE_TERM = 1 << 10, LARGE = 1 << 19 /* results */, THIN = 8 /* rows or columns */ };
static bool is_one_term(const wf_gemm_desc *d)
{
    return d->k == 1 && !d->bias && !d->one_order && d->batch * d->m * d->n >= ONE_TERM &&
           (d->m < THIN || d->n < THIN || d->dtype == WEFT_F16 || d->m * d->n >= LARGE);
}
static int one_term(const wf_gemm_desc *d)
{
    static const uint64_t zero;
    const wf_view to = {.data = d->c,
                        .dtype = (uint8_t)d->dtype,
                        .rank = 3,
                        .dims = {d->batch, d->m, d->n},
                        .strides = {d->c_bs, d->c_rs, 1}};
    wf_view from[3] = {to, to, to};
    from[0].data = (void *)(uintptr_t)d->a;
    from[1].data = (void *)(uintptr_t)d->b;
    from[2].data = (void *)(uintptr_t)&zero;
    const int64_t strides[3][3] = {{d->a_bs, d->a_rs, 0}, {d->b_bs, 0, d->b_cs}, {0}};
    for (int i = 0; i < 3; i++)
        memcpy(from[i].strides, strides[i], sizeof strides[i]);
    return wf_exec_map(WF_OP_FMA, wf_dtype_compute(d->dtype), &to, 3, from) ? WF_GEMM_UNSUPPORTED
                                                                            : WF_GEMM_OK;
}

int wf_gemm(const wf_gemm_desc *d)
{
    size_t size = wf_gemm_esize(d->dtype);
    if (!size || d->m < 0 || d->n < 0 || d->k < 0 || d->batch < 0)
        return WF_GEMM_UNSUPPORTED;
    if (d->m == 0 || d->n == 0 || d->batch == 0)
        return WF_GEMM_OK;
    if (d->bias && !takes_bias(d))
        return WF_GEMM_UNSUPPORTED;
    if (d->k == 0)
        return no_terms(d);
    if (d->one_order && !has_one_order(d))
        return WF_GEMM_UNSUPPORTED;
    if (d->bias && d->dtype == WEFT_BF16 && wf_gemm_amx_active())
        return wf_gemm_amx(d);
    if (d->dtype >= WEFT_U8 && d->dtype <= WEFT_I64)
        return wf_gemm_int(d);
    if (is_one_term(d))
        return one_term(d);
    blocks w = {.d = *d, .size = size};
    size_t packed_bytes = 0, bias_bytes = 0;
    void *bias = NULL;
    choose_way(&w);
    if (w.way == BY_AMX)
        return wf_gemm_amx(d);
    choose_slices(&w);
    int rc = choose_panels(&w);
    if (rc)
        return rc;
    choose_blocks(&w);
    const bool awake = cut_for_awake(&w);
    if ((rc = bring_bias(&w, &bias, &bias_bytes)))
        return rc;
    if (w.slices > 1) {
        w.partial_bytes =
            (size_t)(w.slices * d->m * d->n) * wf_dtype_size(wf_dtype_compute(d->dtype));
        w.partial = wf_scratch(w.partial_bytes);
        rc = w.partial ? WF_GEMM_OK : WF_GEMM_NOMEM;
    }
    if (!rc && w.panels.width)
        rc = pack_panels(&w, &packed_bytes);
    if (rc) {
        wf_scratch_free(w.partial, w.partial_bytes);
        wf_scratch_free(bias, bias_bytes);
        return rc;
    }
    w.tasks = w.d.batch * w.rows * w.columns * w.slices;
    w.early = d->done && w.columns == 1 && w.slices == 1 && w.way != BY_VECTOR && w.tasks > 1 &&
              w.tasks >= wf_num_threads();
    double work = (double)w.bm * (double)w.bn * (double)w.bk;
    int64_t grain = work >= (double)MIN_WORK ? 1 : (int64_t)((double)MIN_WORK / work);
    if (awake)
        wf_parallel_awake(w.tasks, 1, run_blocks, &w);
    else
        wf_parallel_for(w.tasks, grain, run_blocks, &w);
    if (w.packed)
        wf_scratch_free(w.packed, packed_bytes);
    rc = atomic_load_explicit(&w.rc, memory_order_relaxed);
    if (w.slices > 1) {
        if (!rc)
            sum_slices(&w);
        wf_scratch_free(w.partial, w.partial_bytes);
    }
    wf_scratch_free(bias, bias_bytes);
    return rc ? rc : w.early ? WF_GEMM_DONE : WF_GEMM_OK;
}
