/*
 * tests/jit/moves.h -- what the skeletons gather, scatter_add and matmul must give, in f32 and bf16.
 */
#ifndef TESTS_JIT_MOVES_H
#define TESTS_JIT_MOVES_H

#include "jit/ir/kir.h"
#include "tests/jit/values.h"

static inline float moves_number(int dtype, const void *x, int64_t i)
{
    const uint16_t *h = x;
    return dtype == WEFT_BF16 ? wf_f32_of_bf16(h[i]) : ((const float *)x)[i];
}
static inline void moves_store(int dtype, void *x, int64_t i, float v)
{
    uint16_t *h = x;
    if (dtype == WEFT_BF16)
        h[i] = wf_bf16_of_f32(v);
    else
        ((float *)x)[i] = v;
}

/* Row i of the result is row index[i] of x. */
static inline void moves_gather(int dtype, void *want, const void *x, const int64_t *index,
                                int64_t m, int64_t width)
{
    const size_t row = (size_t)width * wf_dtype_size(dtype);
    for (int64_t i = 0; i < m; i++)
        memcpy((char *)want + (size_t)i * row, (const char *)x + (size_t)index[i] * row, row);
}

/* Row index[i] of the result grows by row i of x, in the order of the index; one rounding at the end. */
static inline void moves_scatter(int dtype, void *want, const void *x, const int64_t *index,
                                 int64_t rows, int64_t m, int64_t width)
{
    float *total = calloc((size_t)(rows * width) + 1, sizeof *total);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < width && index[i] >= 0 && index[i] < rows; j++)
            total[index[i] * width + j] += moves_number(dtype, x, i * width + j);
    for (int64_t i = 0; i < rows * width; i++)
        moves_store(dtype, want, i, total[i]);
    free(total);
}

struct moves_product {
    int dtype;
    const void *a, *b;
    int64_t i, j, n, k;
};
static inline uint64_t moves_product(void *context, int64_t l)
{
    const struct moves_product *c = context;
    const float v = moves_number(c->dtype, c->a, c->i * c->k + l) *
                    moves_number(c->dtype, c->b, l * c->n + c->j);
    return wf_kir_peek(&v, WF_KT_F32, 0);
}

/* m x k times k x n, every element a canonical sum. */
static inline void moves_matmul(int dtype, void *want, const void *a, const void *b, int64_t m,
                                int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m * n; i++) {
        struct moves_product c = {dtype, a, b, i / n, i % n, n, k};
        const uint64_t bits = wf_kir_sum(WF_KT_F32, k, moves_product, &c);
        float v;
        memcpy(&v, &bits, sizeof v);
        moves_store(dtype, want, i, v);
    }
}

#endif
