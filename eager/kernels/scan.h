/*
 * eager/kernels/scan.h -- running sums and products in the order of docs/reductions.md, on values of 8 bytes.
 *
 * An index along the axis is written in base 64: digit 0 is the place in a group, digit k says which of its 64 parts a value
 * lies in at level k. A group's running values are those of recursive halving; at every level above, a part whose digit is not 0
 * adds the total of those before it, from the left, the lowest level first.
 */
#ifndef EAGER_KERNELS_SCAN_H
#define EAGER_KERNELS_SCAN_H

#include <stdbool.h>
#include <stdint.h>

/* Levels of 64^(k+1) elements that an index can have; rows of a step; columns of a tile, and how far apart its rows are in a
 * buffer: not a power of two. */
enum {
    WF_SCAN_LEVELS = 11,
    WF_SCAN_ROWS = 8,
    WF_SCAN_WIDTH = 256,
    WF_SCAN_COLS = 264,
    WF_SCAN_STATE = 3 + WF_SCAN_LEVELS - 1
};

/* What is kept of a line or of a row of lines, [WF_SCAN_STATE][lines or WF_SCAN_COLS]: totals of the left halves of 8, 16 and 32 elements, then
 * of level 1, 2 ... what is to be added there. Bit k of `add`: [k] is to be added now; of the halves the kernels know. */
typedef struct wf_scan_kernels {
    /* v[0..n) of a line, from a multiple of 64 on, n up to a multiple of 8 (there is room for that): in place. Totals of
     * groups go to s[3], bit 3 being as in `add` for the first of them and set from the second on. */
    void (*span)(void *v, int64_t n, void *s, unsigned add);
    /* The same of 8 rows WF_SCAN_COLS apart of n columns; `add` has in bits 0 to 2 which eight of a group's it is. */
    void (*rows)(void *v, int64_t n, void *s, unsigned add);
    /* The same of f32 at src, rows `step` apart, to dst, rows `apart`. past: past the caches,
     * whole lines of them, which the caller fences. NULL where there is none. */
    void (*rows_f32)(float *dst, int64_t apart, const float *src, int64_t step, int64_t n, void *s,
                     unsigned add, bool past);
    int64_t even; /* columns of rows_f32 are a multiple of that */
    /* As span of integers x, whose order does not matter, to v, which may be x; n is any number. */
    void (*sum_i64)(uint64_t *v, const uint64_t *x, int64_t n, uint64_t *s, unsigned add);
} wf_scan_kernels;

/* [product]; products with AVX-512 are those of AVX2, to keep the library small. */
extern const wf_scan_kernels wf_scan_kernels_sse2[2];
extern const wf_scan_kernels wf_scan_kernels_avx2[2];
extern const wf_scan_kernels
    wf_scan_kernels_avx512[]; /* one, or AVX2's (cmake/WeftLibrary.cmake) */

#endif
