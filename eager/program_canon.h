/*
 * eager/program_canon.h -- a reduction in the canonical order, fed piece by piece.
 *
 * Pieces but the last are multiples of 64 elements. Level 0 holds the lanes of the current block of 4096;
 * level i + 1 those of a block of results of level i (docs/reductions.md, step 4).
 */
#ifndef EAGER_PROGRAM_CANON_H
#define EAGER_PROGRAM_CANON_H

#include <stdbool.h>

#include "eager/kernels/reduce.h"

enum { WF_CANON_LEVELS = 5 };

typedef struct wf_canon {
    const wf_red_kernels *k; /* of f32, f64 or i64 */
    wf_red op;
    int top;                        /* highest level with a value */
    int64_t count[WF_CANON_LEVELS]; /* values of the current block of a level */
    _Alignas(64) char lane[WF_CANON_LEVELS][WF_LANES * 8];
} wf_canon;

void wf_canon_begin(wf_canon *c, const wf_red_kernels *k, wf_red op);
void wf_canon_add(wf_canon *c, const void *x, int64_t n);
/* At least one element was added. */
void wf_canon_end(wf_canon *c, void *out);

#endif
