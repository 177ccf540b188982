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

enum { STRIP = 32, ROWS = 4 };

#if WF_VBYTES == 64
/* Four rows of A by a strip of 32 columns: a product of 64 bits is one instruction, and each line of B is read for all four. */
static void four_rows(const uint64_t *a, int64_t a_rs, int64_t a_cs, const uint64_t *b,
                      int64_t b_rs, int64_t k, uint64_t *c, int64_t c_rs)
{
    wf_vec_i64 sum[ROWS][4] = {{{0}}};
    for (int64_t p = 0; p < k; p++, a += a_cs, b += b_rs) {
        wf_vec_i64 of[4];
        WF_UNROLL for (int j = 0; j < 4; j++) of[j] =
            *(const wf_mem_i64 *)(const void *)(b + j * 8);
        WF_UNROLL for (int r = 0; r < ROWS; r++) WF_UNROLL for (int j = 0; j < 4; j++) sum[r][j] +=
            a[r * a_rs] * of[j];
    }
    WF_UNROLL for (int r = 0; r < ROWS; r++) /* not by memcpy: sums would live in memory */
        WF_UNROLL for (int j = 0; j < 4; j++) *
        (wf_mem_i64 *)(void *)(c + r * c_rs + j * 8) = (wf_mem_i64)sum[r][j];
}
#define FOUR_rows_64(...) four_rows(__VA_ARGS__)
#define AT_ONCE_rows_64 ROWS
#else
#define FOUR_rows_64(...) (void)0
#define AT_ONCE_rows_64 1
#endif
#define FOUR_rows_8(...) (void)0
#define FOUR_rows_16(...) (void)0
#define FOUR_rows_32(...) (void)0
#define AT_ONCE_rows_8 1
#define AT_ONCE_rows_16 1
#define AT_ONCE_rows_32 1

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
        const bool strips = d->b_cs == 1 && d->n > 1,                                                            \
                   dots = sizeof(U) >= 4 && d->a_cs == 1 && d->b_rs == 1;                                        \
        for (int64_t row = begin; row < end; row++) {                                                            \
            int64_t batch = row / d->m, i = row % d->m, j = 0;                                                   \
            const U *a = (const U *)d->a + batch * d->a_bs + i * d->a_rs;                                        \
            const U *b = (const U *)d->b + batch * d->b_bs;                                                      \
            U *restrict c = (U *)d->c + batch * d->c_bs + i * d->c_rs;                                           \
            const int64_t left = end - row < d->m - i ? end - row : d->m - i;                                    \
            const int64_t rows = strips && AT_ONCE_##name <= left ? AT_ONCE_##name : 1;                          \
            for (; rows > 1 && j + STRIP <= d->n; j += STRIP)                                                    \
                FOUR_##name(a, d->a_rs, d->a_cs, b + j, d->b_rs, d->k, c + j, d->c_rs);                          \
            for (int64_t r = 0; r < rows; r++, a += d->a_rs, c += d->c_rs)                                       \
                for (int64_t at = j; strips && at < d->n; at += STRIP)                                           \
                    name##_strip(a, d->a_cs, b + at, d->b_rs, d->k,                                              \
                                 d->n - at < STRIP ? d->n - at : STRIP, c + at);                                 \
            row += rows - 1;                                                                                     \
            if (strips)                                                                                          \
                continue;                                                                                        \
            a -= d->a_rs, c -= d->c_rs;                                                                          \
            if (dots)                                                                                            \
                name##_dots(a, b, d->b_cs, d->k, d->n, c);                                                       \
            for (; !dots && j < d->n; j++) {                                                                     \
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

const wf_task_fn WF_SYM(wf_gemm_int)[4] = {rows_8, rows_16, rows_32, rows_64};
