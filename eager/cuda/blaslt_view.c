/*
 * eager/cuda/blaslt_view.c -- a product of strided views as one that cuBLASLt takes, where there is one.
 *
 * A matrix is taken as it lies in memory or as the transpose of that; batch axes have to step evenly, so
 * that they are one axis. What does not fit is left to the built-in kernel and its strides: copying first
 * would cost more than the library gains.
 */
#include "eager/cuda/blaslt.h"

#include <string.h>

#include "eager/env.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* The last two axes of v; false: neither axis is dense. */
static bool matrix(const wf_view *v, bool *trans, int64_t *ld)
{
    int64_t rows = v->dims[v->rank - 2], cols = v->dims[v->rank - 1];
    int64_t sr = v->strides[v->rank - 2], sc = v->strides[v->rank - 1];
    if ((sc == 1 || cols == 1) && (sr >= cols || rows == 1)) {
        *trans = false;
        *ld = rows == 1 || sr < cols ? cols : sr;
        return true;
    }
    *trans = true;
    *ld = cols == 1 || sc < rows ? rows : sc;
    return (sr == 1 || rows == 1) && (sc >= rows || cols == 1);
}

/* The batch axes as one; false: they are not. */
static bool batches(wf_cuda_gemm *g, const wf_view *c, const wf_view *a, const wf_view *b)
{
    g->batch = 1;
    for (int i = c->rank - 3; i >= 0; i--) {
        if (c->dims[i] == 1) {
            continue;
        }
        if (g->batch == 1) {
            g->stride_a = a->strides[i];
            g->stride_b = b->strides[i];
            g->stride_d = c->strides[i];
        } else if (a->strides[i] != g->stride_a * g->batch ||
                   b->strides[i] != g->stride_b * g->batch ||
                   c->strides[i] != g->stride_d * g->batch) {
            return false;
        }
        g->batch *= c->dims[i];
    }
    return g->batch == 1 ||
           (g->stride_a >= 0 && g->stride_b >= 0 && g->stride_d >= (g->m - 1) * g->ldd + g->n);
}

int wf_cuda_gemm_views(int ordinal, const wf_view *c, const wf_view *a, const wf_view *b,
                       const wf_view *bias, bool add, wf_why *why)
{
    bool trans_c = false;
    int rank = c->rank;
    wf_cuda_gemm g = {.dtype = a->dtype,
                      .dtype_d = c->dtype,
                      .tf32 = wf_env()->WEFT_TF32 != 0,
                      .m = c->dims[rank - 2],
                      .n = c->dims[rank - 1],
                      .k = a->dims[rank - 1],
                      .a = a->data,
                      .b = b->data,
                      .d = c->data,
                      .bias = bias ? bias->data : NULL,
                      .add = add};
    bool fits =
        a->dtype == b->dtype && matrix(a, &g.trans_a, &g.lda) && matrix(b, &g.trans_b, &g.ldb) &&
        matrix(c, &trans_c, &g.ldd) && !trans_c && batches(&g, c, a, b) &&
        (!bias ||
         (bias->dtype == c->dtype && a->dtype == c->dtype && (bias->strides[0] == 1 || g.n == 1)));
    if (!fits) {
        if (why) {
            memset(why, 0, sizeof *why);
        }
        return WEFT_EUNSUPPORTED;
    }
    return wf_cuda_gemm_run(ordinal, &g, why);
}
