/*
 * eager/kernels/gemm_int.inc.c -- rows of products of integer matrices, compiled once per instruction set (WF_ISA).
 *
 * Arithmetic is unsigned in the element's own width: sums modulo 2^w do not depend on order. Sums of a strip of columns
 * stay in registers over the whole of k.
 */
#include <stdbool.h>
#include <string.h>

#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/kernels.h"
#include "eager/kernels/reduce_vec.h"

enum { STRIP = 32 };

#if WF_VBYTES == 64
static int64_t many_rows(const wf_gemm_desc *d, int64_t row, int64_t end);
#define MANY_rows_64(...) many_rows(__VA_ARGS__)
#else
#define MANY_rows_64(...) 0
#endif
#define MANY_rows_8(...) 0
#define MANY_rows_16(...) 0
#define MANY_rows_32(...) 0

/* Rows [begin, end) of batch * m. U * U may promote to a signed int, hence the widening to W. */
#define DEFINE_ROWS(name, U, W)                                                                                  \
    static void name##_strip(const U *a, int64_t a_cs, const U *b, int64_t b_rs, int64_t k,                      \
                             int64_t n, U *restrict c)                                                           \
    {                                                                                                            \
        U sum[STRIP] = {0};                                                                                      \
        if (n == STRIP) {                                                                                        \
            for (int64_t p = 0; p < k; p++, a += a_cs, b += b_rs)                                                \
                for (int j = 0; j < STRIP; j++)                                                                  \
                    sum[j] = (U)(sum[j] + (W)*a * b[j]);                                                         \
        } else {                                                                                                 \
            for (int64_t p = 0; p < k; p++, a += a_cs, b += b_rs)                                                \
                for (int64_t j = 0; j < n; j++)                                                                  \
                    sum[j] = (U)(sum[j] + (W)*a * b[j]);                                                         \
        }                                                                                                        \
        for (int64_t j = 0; j < n; j++)                                                                          \
            c[j] = sum[j];                                                                                       \
    }                                                                                                            \
    /* A row of A by columns of B that lie in memory as it does; of 4 and 8 bytes, to keep the library small. */ \
    static void name##_dots(const U *a, const U *b, int64_t b_cs, int64_t k, int64_t n, U *c)                    \
    {                                                                                                            \
        for (int64_t j = 0; j < n; j++, b += b_cs) {                                                             \
            U sum = 0;                                                                                           \
            for (int64_t p = 0; p < k; p++)                                                                      \
                sum = (U)(sum + (W)a[p] * b[p]);                                                                 \
            c[j] = sum;                                                                                          \
        }                                                                                                        \
    }                                                                                                            \
    static void name(void *arg, int64_t begin, int64_t end)                                                      \
    {                                                                                                            \
        const wf_gemm_desc *d = arg;                                                                             \
        const bool strips = d->b_cs == 1 && d->n > 1;                                                            \
        const bool dots = sizeof(U) >= 4 && d->a_cs == 1 && d->b_rs == 1;                                        \
        for (int64_t row = begin; row < end; row++) {                                                            \
            const int64_t many = MANY_##name(d, row, end);                                                       \
            if (many) {                                                                                          \
                row += many - 1;                                                                                 \
                continue;                                                                                        \
            }                                                                                                    \
            int64_t batch = row / d->m, i = row % d->m;                                                          \
            const U *a = (const U *)d->a + batch * d->a_bs + i * d->a_rs;                                        \
            const U *b = (const U *)d->b + batch * d->b_bs;                                                      \
            U *restrict c = (U *)d->c + batch * d->c_bs + i * d->c_rs;                                           \
            for (int64_t j = 0; strips && j < d->n; j += STRIP)                                                  \
                name##_strip(a, d->a_cs, b + j, d->b_rs, d->k,                                                   \
                             d->n - j < STRIP ? d->n - j : STRIP, c + j);                                        \
            if (!strips && dots)                                                                                 \
                name##_dots(a, b, d->b_cs, d->k, d->n, c);                                                       \
            for (int64_t j = 0; !strips && !dots && j < d->n; j++) {                                             \
                W sum = 0;                                                                                       \
                for (int64_t p = 0; p < d->k; p++)                                                               \
                    sum += (W)a[p * d->a_cs] * b[p * d->b_rs + j * d->b_cs];                                     \
                c[j] = (U)sum;                                                                                   \
            }                                                                                                    \
        }                                                                                                        \
    }
DEFINE_ROWS(rows_8, uint8_t, uint32_t)
DEFINE_ROWS(rows_16, uint16_t, uint32_t)
DEFINE_ROWS(rows_32, uint32_t, uint32_t)
DEFINE_ROWS(rows_64, uint64_t, uint64_t)

#if WF_VBYTES ==                                                                                   \
    64 /* where a product of 64 bits is one instruction, which reading B must not hold up */
enum { ROWS = 4, VECTORS = STRIP / 8, TERMS = 128 };

/* Four rows of A by TERMS rows of a strip of B, which follow one another; add: to what is in c. */
static void four_rows(const uint64_t *a, int64_t a_rs, int64_t a_cs, const uint64_t *b, int64_t k,
                      uint64_t *c, int64_t c_rs, bool add)
{
    wf_vec_i64 sum[ROWS][VECTORS];
    WF_UNROLL for (int r = 0; r < ROWS; r++) WF_UNROLL for (int j = 0; j < VECTORS; j++)
    {
        sum[r][j] = (wf_vec_i64){0};
        if (add)
            sum[r][j] += *(const wf_mem_i64 *)(const void *)(c + r * c_rs + j * 8);
    }
    for (int64_t p = 0; p < k; p++, a += a_cs, b += STRIP)
        WF_UNROLL for (int r = 0; r < ROWS; r++) WF_UNROLL for (int j = 0; j < VECTORS; j++)
            sum[r][j] += a[r * a_rs] * *(const wf_mem_i64 *)(const void *)(b + j * 8);
    WF_UNROLL for (int r = 0; r < ROWS; r++) WF_UNROLL for (int j = 0; j < VECTORS; j++) *
        (wf_mem_i64 *)(void *)(c + r * c_rs + j * 8) = (wf_mem_i64)sum[r][j];
}

/* Rows from `row` on of its batch, four at a time, of 32 columns or more; how many there were. */
static int64_t many_rows(const wf_gemm_desc *d, int64_t row, int64_t end)
{
    _Alignas(64) uint64_t strip[TERMS * STRIP];
    const int64_t batch = row / d->m, i = row % d->m;
    const int64_t left = end - row < d->m - i ? end - row : d->m - i;
    const int64_t rows = d->n < STRIP ? 0 : left / ROWS * ROWS;
    const uint64_t *a = (const uint64_t *)d->a + batch * d->a_bs + i * d->a_rs;
    const uint64_t *b = (const uint64_t *)d->b + batch * d->b_bs;
    uint64_t *c = (uint64_t *)d->c + batch * d->c_bs + i * d->c_rs;
    int64_t j = 0;
    for (; rows && j + STRIP <= d->n; j += STRIP)
        for (int64_t p = 0; p < d->k; p += TERMS) {
            const int64_t k = d->k - p < TERMS ? d->k - p : TERMS;
            for (int64_t q = 0; q < k; q++)
                for (int64_t l = 0; l < STRIP; l++)
                    strip[q * STRIP + l] = b[(p + q) * d->b_rs + (j + l) * d->b_cs];
            for (int64_t r = 0; r < rows; r += ROWS)
                four_rows(a + r * d->a_rs + p * d->a_cs, d->a_rs, d->a_cs, strip, k,
                          c + r * d->c_rs + j, d->c_rs, p > 0);
        }
    if (rows && j < d->n) { /* fewer columns */
        wf_gemm_desc rest = *d;
        rest.b = (const uint64_t *)d->b + j * d->b_cs;
        rest.c = (uint64_t *)d->c + j;
        rest.n -= j;
        rows_64(&rest, row, row + rows);
    }
    return rows;
}
#endif

const wf_task_fn WF_SYM(wf_gemm_int)[4] = {rows_8, rows_16, rows_32, rows_64};
