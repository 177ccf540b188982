/*
 * eager/kernels/pool.h -- the largest and the mean of a window for channels that lie next to each other.
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

/* out[k] of channel k < c: the elements added up from 0 in row-major order, divided by count. The indices of w are not used. */
typedef void (*wf_pool_avg_fn)(void *out, const wf_pool_window *w, double count, int64_t c);

/* Adds g[k] / count to channel k < c of `cols` pixels of a row, the first of which is at out. */
typedef void (*wf_pool_spread_fn)(void *out, const void *g, double count, int64_t cols, int64_t c);

typedef struct wf_pool_kernels {
    wf_pool_max_fn f32, bf16, i32, f64;
    wf_pool_avg_fn avg_f32, avg_f64;
    wf_pool_spread_fn spread_f32, spread_f64;
} wf_pool_kernels;

extern const wf_pool_kernels wf_pool_kernels_sse2, wf_pool_kernels_avx2, wf_pool_kernels_avx512;

#endif
