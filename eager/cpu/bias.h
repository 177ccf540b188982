/*
 * eager/cpu/bias.h -- the bias of a product's columns, added to rows that are finished.
 */
#ifndef EAGER_CPU_BIAS_H
#define EAGER_CPU_BIAS_H

#include <stdint.h>

/* y[rows][cols], row-major, and a bias every `stride` elements from `bias` on; dtype: WEFT_F32 or WEFT_F64. */
typedef struct wf_bias {
    void *y;
    const void *bias;
    int64_t cols, stride;
    int dtype;
} wf_bias;

/* Rows [begin, end) of a wf_bias; elements are added as the row `add` does it. For wf_parallel_for. */
void wf_bias_rows(void *bias, int64_t begin, int64_t end);

#endif
