/*
 * eager/product.h -- what rows built on eager/cpu/gemm.h share.
 */
#ifndef EAGER_PRODUCT_H
#define EAGER_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "jit/ir/op.h"

/* Turns a code of wf_gemm or wf_conv2d_* into a status with why filled. */
int wf_gemm_status(int rc, int dt, wf_why *why);

/* The libraries of a device take large products of half types whose rows begin at multiples of 16 bytes several times as fast as
 * others: does one of `results` sums of k products, with so many elements in rows that begin elsewhere, gain more than a copy of
 * those costs? */
enum { WF_ROW_ALIGN = 16 };
bool wf_aligned_rows_pay(int dtype, int64_t results, int64_t k, int64_t elements);
/* From such a row of n elements of `size` bytes to the next. */
static inline int64_t wf_aligned_row(int64_t n, int64_t size)
{
    const int64_t step = WF_ROW_ALIGN / size;
    return (n + step - 1) / step * step;
}

#endif
