/*
 * eager/dense.h -- small tools of kernels that move data: sub-views, contiguous operands, offsets.
 *
 * Invariants: nothing here reads or writes elements except wf_dense, which copies through wf_copy;
 * a dense operand is released by wf_dense_free exactly once, whether or not it was copied.
 */
#ifndef EAGER_DENSE_H
#define EAGER_DENSE_H

#include <string.h>

#include "eager/alloc.h"
#include "eager/exec.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"

/* A contiguous operand: either the operand's own memory or a copy. */
typedef struct wf_dense {
    void *data;
    void *owned; /* NULL when data is the operand's */
    size_t bytes;
} wf_dense;

/* v's elements in row-major order as dtype dt. 0, or WEFT_ENOMEM with why filled. */
int wf_dense_of(const wf_view *v, int dt, wf_dense *out, wf_why *why);
void wf_dense_free(wf_dense *d);
/* "out of memory for a scratch buffer of n bytes" */
int wf_no_memory(wf_why *why, size_t bytes);
/* count * size bytes, or 0 when that overflows (never 0 for count >= 1, size >= 1 otherwise). */
size_t wf_scratch_bytes(int64_t count, size_t size);
/* The map never names one element twice. Conservative: may say 0 for an injective map. */
int wf_map_is_injective(int rank, const int64_t *dims, const int64_t *strides);

/* A row-major view of `data`. */
static inline wf_view wf_view_dense(void *data, int dtype, int rank, const int64_t *dims)
{
    wf_view v = {.data = data, .dtype = (uint8_t)dtype, .rank = (uint8_t)rank};
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        v.dims[i] = dims[i];
        v.strides[i] = stride;
        stride *= dims[i];
    }
    return v;
}

/* Elements [start, start + n) of an axis. */
static inline wf_view wf_view_narrow(wf_view v, int axis, int64_t start, int64_t n)
{
    v.data = (char *)v.data + start * v.strides[axis] * (int64_t)wf_dtype_size(v.dtype);
    v.dims[axis] = n;
    return v;
}

/* Offset in elements of row-major index i over the first `rank` axes of dims, through strides. */
static inline int64_t wf_offset_of(int64_t i, int rank, const int64_t *dims, const int64_t *strides)
{
    int64_t off = 0;
    for (int d = rank - 1; d >= 0 && i != 0; d--) {
        off += i % dims[d] * strides[d];
        i /= dims[d];
    }
    return off;
}

/* Rows of `width` bytes a task: about 32 KiB of work, at least one row. */
static inline int64_t wf_row_grain(int64_t width)
{
    int64_t g = 32768 / (width > 0 ? width : 1);
    return g > 0 ? g : 1;
}

/* DO(type) with the unsigned type of `size` bytes: typed loads and stores instead of memcpy calls. */
#define WF_BY_SIZE(size, DO)                                                                       \
    switch (size) {                                                                                \
    case 1:                                                                                        \
        DO(uint8_t)                                                                                \
        break;                                                                                     \
    case 2:                                                                                        \
        DO(uint16_t)                                                                               \
        break;                                                                                     \
    case 4:                                                                                        \
        DO(uint32_t)                                                                               \
        break;                                                                                     \
    default:                                                                                       \
        DO(uint64_t)                                                                               \
        break;                                                                                     \
    }

/* n elements of `size` bytes from src (stride in elements) to contiguous dst. */
static inline void wf_gather_row(void *dst, const void *src, int64_t n, int64_t stride, size_t size)
{
    const int width = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
    wf_kernels_now()->pack[width](dst, n, src, 0, stride, 1, (size_t)n);
}

#endif
