/*
 * eager/cpu/gemm.c -- entry point of the matrix product: checks, cuts the work into blocks, and
 * runs them on the pool through oneDNN or the built-in kernels.
 *
 * Invariant: block sizes depend on shape, strides and dtype only.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/dnnl.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/cpuid.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"

/* A block is at most this many elements of C each way, and worth waking a thread for. */
enum { BLOCK_M = 240, BLOCK_N = 512, MIN_WORK = 1 << 19 };

const wf_gemm_kernels *wf_gemm_isa(void)
{
    static const wf_gemm_kernels *const tables[WF_NISA] = {
        [WF_ISA_SSE2] = &wf_gemm_kernels_sse2,
        [WF_ISA_AVX2] = &wf_gemm_kernels_avx2,
        [WF_ISA_AVX512] = &wf_gemm_kernels_avx512,
    };
    return tables[wf_isa()];
}

int wf_gemm_builtin_block(const wf_gemm_block *g)
{
    const wf_gemm_kernels *kernels = wf_gemm_isa();
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

/* Number of equal pieces of at most `limit` that n is cut into, each a multiple of `tile`. */
static int64_t piece(int64_t n, int64_t limit, int64_t tile)
{
    int64_t count = (n + limit - 1) / limit;
    int64_t size = (n + count - 1) / count;
    return (size + tile - 1) / tile * tile;
}

typedef struct blocks {
    const wf_gemm_desc *d;
    size_t size; /* of an element */
    int64_t bm, bn;
    int64_t rows, columns; /* blocks each way */
    int dnnl;              /* try oneDNN first */
    _Atomic int rc;
} blocks;

/* Halves the larger side of a block until there is some parallelism, while blocks stay worth it. */
static void choose_blocks(blocks *w)
{
    const wf_gemm_desc *d = w->d;
    w->bm = piece(d->m, BLOCK_M, 12);
    w->bn = piece(d->n, BLOCK_N, 32);
    for (;;) {
        w->rows = (d->m + w->bm - 1) / w->bm;
        w->columns = (d->n + w->bn - 1) / w->bn;
        if (d->batch * w->rows * w->columns >= 8)
            break;
        if ((double)w->bm * (double)w->bn * (double)d->k < 2.0 * (double)MIN_WORK)
            break;
        if (w->bn >= 2 * w->bm && w->bn >= 64)
            w->bn = piece(w->bn, w->bn / 2, 32);
        else if (w->bm >= 24)
            w->bm = piece(w->bm, w->bm / 2, 12);
        else
            break;
    }
}

static void run_blocks(void *arg, int64_t begin, int64_t end)
{
    blocks *w = arg;
    const wf_gemm_desc *d = w->d;
    int saved = w->dnnl ? wf_dnnl_enter() : 1;
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
            .c = (char *)d->c + size * (batch * d->c_bs + i * d->c_rs + j),
            .c_rs = d->c_rs,
        };
        int rc = w->dnnl ? wf_dnnl_gemm(&g) : WF_GEMM_UNSUPPORTED;
        if (rc == WF_GEMM_UNSUPPORTED)
            rc = wf_gemm_builtin_block(&g);
        if (rc)
            atomic_store_explicit(&w->rc, rc, memory_order_relaxed);
    }
    if (w->dnnl)
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
    int single = d->dtype == WEFT_F32 || d->dtype == WEFT_BF16;
    blocks w = {.d = d, .size = size, .dnnl = single && wf_dnnl_active()};
    choose_blocks(&w);
    int64_t work = w.bm * w.bn * d->k;
    int64_t grain = work >= MIN_WORK ? 1 : MIN_WORK / work;
    wf_parallel_for(d->batch * w.rows * w.columns, grain, run_blocks, &w);
    return atomic_load_explicit(&w.rc, memory_order_relaxed);
}
