/*
 * eager/kernels/gemm_int.inc.c -- rows of products of integer matrices, compiled once per instruction set (WF_ISA).
 *
 * Arithmetic is unsigned in the element's own width: sums modulo 2^w do not depend on order. Sums of a strip of columns
 * stay in registers over the whole of k.
 */
#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/kernels.h"

enum { STRIP = 32 };

/* Rows [begin, end) of batch * m. U * U may promote to a signed int, hence the widening to W. */
#define DEFINE_ROWS(name, U, W)                                                                    \
    static void name##_strip(const U *a, int64_t a_cs, const U *b, int64_t b_rs, int64_t k,        \
                             int64_t n, U *restrict c)                                             \
    {                                                                                              \
        U sum[STRIP] = {0};                                                                        \
        if (n == STRIP) {                                                                          \
            for (int64_t p = 0; p < k; p++, a += a_cs, b += b_rs)                                  \
                for (int j = 0; j < STRIP; j++)                                                    \
                    sum[j] = (U)(sum[j] + (W)*a * b[j]);                                           \
        } else {                                                                                   \
            for (int64_t p = 0; p < k; p++, a += a_cs, b += b_rs)                                  \
                for (int64_t j = 0; j < n; j++)                                                    \
                    sum[j] = (U)(sum[j] + (W)*a * b[j]);                                           \
        }                                                                                          \
        for (int64_t j = 0; j < n; j++)                                                            \
            c[j] = sum[j];                                                                         \
    }                                                                                              \
    static void name(void *arg, int64_t begin, int64_t end)                                        \
    {                                                                                              \
        const wf_gemm_desc *d = arg;                                                               \
        for (int64_t row = begin; row < end; row++) {                                              \
            int64_t batch = row / d->m, i = row % d->m;                                            \
            const U *a = (const U *)d->a + batch * d->a_bs + i * d->a_rs;                          \
            const U *b = (const U *)d->b + batch * d->b_bs;                                        \
            U *restrict c = (U *)d->c + batch * d->c_bs + i * d->c_rs;                             \
            for (int64_t j = 0; d->b_cs == 1 && j < d->n; j += STRIP)                              \
                name##_strip(a, d->a_cs, b + j, d->b_rs, d->k,                                     \
                             d->n - j < STRIP ? d->n - j : STRIP, c + j);                          \
            for (int64_t j = 0; d->b_cs != 1 && j < d->n; j++) {                                   \
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

const wf_task_fn WF_SYM(wf_gemm_int)[4] = {rows_8, rows_16, rows_32, rows_64};
