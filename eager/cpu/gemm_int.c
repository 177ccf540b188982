/*
 * eager/cpu/gemm_int.c -- the product of integer matrices: plain loops that wrap.
 *
 * Arithmetic is unsigned in the element's own width: sums modulo 2^w do not depend on order.
 */
#include "eager/cpu/gemm_impl.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"

/* Rows [begin, end) of batch * m. U * U may promote to a signed int, hence the widening to W. */
#define DEFINE_ROWS(name, U, W)                                                                    \
    static void name(void *arg, int64_t begin, int64_t end)                                        \
    {                                                                                              \
        const wf_gemm_desc *d = arg;                                                               \
        for (int64_t row = begin; row < end; row++) {                                              \
            int64_t batch = row / d->m, i = row % d->m;                                            \
            const U *a = (const U *)d->a + batch * d->a_bs + i * d->a_rs;                          \
            const U *b = (const U *)d->b + batch * d->b_bs;                                        \
            U *restrict c = (U *)d->c + batch * d->c_bs + i * d->c_rs;                             \
            for (int64_t j = 0; j < d->n; j++)                                                     \
                c[j] = 0;                                                                          \
            if (d->b_cs == 1) {                                                                    \
                for (int64_t p = 0; p < d->k; p++) {                                               \
                    W x = a[p * d->a_cs];                                                          \
                    const U *bp = b + p * d->b_rs;                                                 \
                    for (int64_t j = 0; j < d->n; j++)                                             \
                        c[j] = (U)(c[j] + x * bp[j]);                                              \
                }                                                                                  \
                continue;                                                                          \
            }                                                                                      \
            for (int64_t j = 0; j < d->n; j++) {                                                   \
                W sum = 0;                                                                         \
                for (int64_t p = 0; p < d->k; p++)                                                 \
                    sum += (W)a[p * d->a_cs] * b[p * d->b_rs + j * d->b_cs];                       \
                c[j] = (U)sum;                                                                     \
            }                                                                                      \
        }                                                                                          \
    }
DEFINE_ROWS(rows_8, uint8_t, uint32_t)
DEFINE_ROWS(rows_16, uint16_t, uint32_t)
DEFINE_ROWS(rows_32, uint32_t, uint32_t)
DEFINE_ROWS(rows_64, uint64_t, uint64_t)

int wf_gemm_int(const wf_gemm_desc *d)
{
    static const wf_task_fn of_log2_size[4] = {rows_8, rows_16, rows_32, rows_64};
    size_t size = wf_dtype_size(d->dtype);
    wf_task_fn fn = of_log2_size[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3];
    int64_t per_row = d->n * (d->k > 0 ? d->k : 1);
    int64_t grain = per_row >= 65536 ? 1 : 65536 / per_row;
    wf_parallel_for(d->batch * d->m, grain, fn, (void *)d);
    return WF_GEMM_OK;
}
