/*
 * eager/cpu/gemm.c -- entry point of the matrix product: checks, cuts the work into blocks, and
 * runs them on the pool through oneDNN or the built-in kernels.
 *
 * Invariant: block sizes depend on shape, strides and dtype only.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/dnnl.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/cpuid.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"

/* Multiply-adds that are worth waking a thread for, and below which oneDNN's call costs too much. */
enum { MIN_WORK = 1 << 19, TINY_WORK = 1 << 11 };

static int run_kernel(const wf_gemm_kernels *kernels, const wf_gemm_block *g)
{
    size_t size = kernels->scratch(g);
    _Alignas(64) char small[16384];
    wf_gemm_block run = *g;
    run.scratch = size <= sizeof small ? small : wf_alloc(size);
    if (!run.scratch)
        return WF_GEMM_NOMEM;
    kernels->block(&run);
    if (run.scratch != small)
        wf_free(run.scratch, size);
    return WF_GEMM_OK;
}

int wf_gemm_builtin_block(const wf_gemm_block *g)
{
    static const wf_gemm_kernels *const tables[WF_NISA] = {
        [WF_ISA_SSE2] = &wf_gemm_kernels_sse2,
        [WF_ISA_AVX2] = &wf_gemm_kernels_avx2,
        [WF_ISA_AVX512] = &wf_gemm_kernels_avx512,
    };
    return run_kernel(tables[wf_isa()], g);
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

/* Size of the pieces when n is cut into `count` about equal ones, each a multiple of `unit`. */
static int64_t piece(int64_t n, int64_t count, int64_t unit)
{
    int64_t size = (n + count - 1) / count;
    return (size + unit - 1) / unit * unit;
}

enum { BY_ONEDNN, BY_KERNELS, BY_VECTOR };

typedef struct blocks {
    wf_gemm_desc d;
    size_t size; /* of an element */
    int way;
    int64_t c_step; /* BY_VECTOR: distance of the elements of C; else 1 */
    int64_t bm, bn;
    int64_t rows, columns; /* blocks each way */
    _Atomic int rc;
} blocks;

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/*
 * Strips of rows keep B whole, which is fastest while a strip is at least 256 high (measured on
 * oneDNN: a strip repacks B, and narrow column strips repack A). Few rows are cut by columns. Eight
 * strips are enough; a strip has MIN_WORK.
 */
static void choose_blocks(blocks *w)
{
    const wf_gemm_desc *d = &w->d;
    double work = (double)d->m * (double)d->n * (double)d->k;
    int64_t worth = work / (double)MIN_WORK < 8 ? (int64_t)(work / (double)MIN_WORK) : 8;
    int64_t tall = most(2, least(d->m / 256, most(8, d->m / 512)));
    int64_t wide =
        w->way == BY_ONEDNN ? most(2, least(d->n / 512, 8)) : most(2, least(d->n / 128, 8));
    w->bm = d->m, w->bn = d->n;
    if (worth >= 2 && d->batch < 8) {
        if (w->way == BY_VECTOR)
            w->bn = piece(d->n, least(worth, most(1, d->n / 256)), 64);
        else if (d->m >= 256 || (d->m >= 128 && d->m >= d->n))
            w->bm = piece(d->m, least(worth, tall), 16);
        else if (d->n >= 128)
            w->bn = piece(d->n, least(worth, wide), 64);
    }
    w->rows = (d->m + w->bm - 1) / w->bm;
    w->columns = (d->n + w->bn - 1) / w->bn;
}

/* Products with a vector read the matrix once whatever they do; C^T = B^T A^T turns one column into
 * one row. Few rows: oneDNN would copy B first, the kernels read it in place. */
static void choose_way(blocks *w)
{
    wf_gemm_desc *d = &w->d;
    w->c_step = 1;
    w->way = BY_KERNELS;
    if (d->n == 1 && d->m > 1 && (d->a_rs == 1 || d->a_cs == 1)) {
        wf_gemm_desc t = *d;
        t.m = 1, t.n = d->m;
        t.a = d->b, t.a_rs = d->b_cs, t.a_cs = d->b_rs, t.a_bs = d->b_bs;
        t.b = d->a, t.b_rs = d->a_cs, t.b_cs = d->a_rs, t.b_bs = d->a_bs;
        w->c_step = d->c_rs;
        w->way = BY_VECTOR;
        *d = t;
        return;
    }
    if (d->m == 1 && (d->b_rs == 1 || d->b_cs == 1)) {
        w->way = BY_VECTOR;
        return;
    }
    double work = (double)d->m * (double)d->n * (double)d->k;
    if ((d->dtype != WEFT_F32 && d->dtype != WEFT_BF16) || work <= (double)TINY_WORK)
        return;
    if (d->dtype == WEFT_F32 && (d->b_cs == 1 || d->m > 16) && d->m <= 36 && d->n >= 256)
        return;
    if (wf_dnnl_active())
        w->way = BY_ONEDNN;
}

static void run_blocks(void *arg, int64_t begin, int64_t end)
{
    blocks *w = arg;
    const wf_gemm_desc *d = &w->d;
    int saved = w->way == BY_ONEDNN ? wf_dnnl_enter() : 1;
    for (int64_t t = begin; t < end; t++) {
        int64_t batch = t / (w->rows * w->columns), r = t / w->columns % w->rows,
                q = t % w->columns;
        int64_t i = r * w->bm, j = q * w->bn;
        int64_t size = (int64_t)w->size;
        wf_gemm_block g = {
            .dtype = d->dtype,
            .m = d->m - i < w->bm ? d->m - i : w->bm,
            .n = d->n - j < w->bn ? d->n - j : w->bn,
            .k = d->k,
            .a = (const char *)d->a + size * (batch * d->a_bs + i * d->a_rs),
            .a_rs = d->a_rs,
            .a_cs = d->a_cs,
            .b = (const char *)d->b + size * (batch * d->b_bs + j * d->b_cs),
            .b_rs = d->b_rs,
            .b_cs = d->b_cs,
            .c = (char *)d->c + size * (batch * d->c_bs + i * d->c_rs + j * w->c_step),
            .c_rs = w->way == BY_VECTOR ? w->c_step : d->c_rs,
        };
        int rc = w->way == BY_VECTOR   ? vector_block(&g)
                 : w->way == BY_ONEDNN ? wf_dnnl_gemm(&g)
                                       : WF_GEMM_UNSUPPORTED;
        if (rc == WF_GEMM_UNSUPPORTED)
            rc = wf_gemm_builtin_block(&g);
        if (rc)
            atomic_store_explicit(&w->rc, rc, memory_order_relaxed);
    }
    if (w->way == BY_ONEDNN)
        wf_dnnl_leave(saved);
}

static void zero_result(const wf_gemm_desc *d, size_t size)
{
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t i = 0; i < d->m; i++)
            memset((char *)d->c + (int64_t)size * (b * d->c_bs + i * d->c_rs), 0,
                   (size_t)d->n * size);
}

int wf_gemm(const wf_gemm_desc *d)
{
    size_t size = wf_gemm_esize(d->dtype);
    if (!size || d->m < 0 || d->n < 0 || d->k < 0 || d->batch < 0)
        return WF_GEMM_UNSUPPORTED;
    if (d->m == 0 || d->n == 0 || d->batch == 0)
        return WF_GEMM_OK;
    if (d->k == 0) {
        zero_result(d, size);
        return WF_GEMM_OK;
    }
    if (d->dtype >= WEFT_U8 && d->dtype <= WEFT_I64)
        return wf_gemm_int(d);
    blocks w = {.d = *d, .size = size};
    choose_way(&w);
    choose_blocks(&w);
    int64_t tasks = w.d.batch * w.rows * w.columns;
    double work = (double)w.bm * (double)w.bn * (double)d->k;
    int64_t grain = work >= (double)MIN_WORK ? 1 : (int64_t)((double)MIN_WORK / work);
    wf_parallel_for(tasks, grain, run_blocks, &w);
    return atomic_load_explicit(&w.rc, memory_order_relaxed);
}
