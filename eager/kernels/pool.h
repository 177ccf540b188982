/*
 * eager/kernels/pool.h -- the largest of a window for channels that lie next to each other.
 */
#ifndef EAGER_KERNELS_POOL_H
#define EAGER_KERNELS_POOL_H

#include <stdint.h>

/* A window, clipped to its plane: rows and columns of it, `down` and `across` elements apart, and where it begins. An element's
 * index is first + row * index_down + column * index_across, in 32 bits. */
typedef struct wf_pool_window {
    const void *in;
    int64_t rows, cols, down, across;
    int32_t first, index_down, index_across;
} wf_pool_window;

/* out[k], index[k] of channel k < c: the first of the largest elements, in row-major order; the first NaN wins. */
typedef void (*wf_pool_max_fn)(void *out, int64_t *index, const wf_pool_window *w, int64_t c);

typedef struct wf_pool_kernels {
    wf_pool_max_fn f32, bf16, i32, f64;
} wf_pool_kernels;

extern const wf_pool_kernels wf_pool_kernels_sse2, wf_pool_kernels_avx2, wf_pool_kernels_avx512;

#endif
