/*
 * eager/cpu/gemm_int.c -- the product of integer matrices, which wraps: rows on the pool.
 */
#include "eager/cpu/gemm_impl.h"
#include "eager/cpuid.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"

int wf_gemm_int(const wf_gemm_desc *d)
{
    static const wf_task_fn *const by_isa[] = {[WF_ISA_SSE2] = wf_gemm_int_sse2,
                                               [WF_ISA_AVX2] = wf_gemm_int_avx2,
                                               [WF_ISA_AVX512] = wf_gemm_int_avx512};
    const size_t size = wf_dtype_size(d->dtype);
    const wf_task_fn fn = by_isa[wf_isa()][size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3];
    enum {
        WORK = 65536,
        TOGETHER = 32 /* rows and columns of i64, which share what is packed of B */
    };
    const int64_t per_row = d->n * (d->k > 0 ? d->k : 1);
    const int64_t least = size == 8 && d->n >= TOGETHER ? TOGETHER : 1;
    wf_parallel_for(d->batch * d->m, per_row >= WORK / least ? least : WORK / per_row, fn,
                    (void *)(uintptr_t)d);
    return WF_GEMM_OK;
}
