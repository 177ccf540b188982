/*
 * eager/resample.h -- linear interpolation along several axes in one walk over memory.
 */
#ifndef EAGER_RESAMPLE_H
#define EAGER_RESAMPLE_H

#include "eager/exec.h"

/* An axis of n elements that becomes one of m: y[j] = fma(x[above[j]], far[j], x[below[j]] * near[j]). m = 0: it stays as it is. */
typedef struct wf_blend {
    int64_t n, m;
    const int64_t *below, *above; /* in [0, n) */
    const void *near, *far;       /* of the element type */
} wf_blend;

enum { WF_BLENDS = 3 };
/* y, of `elements` > 0, := x, `count` axes as b has them, the last one first; some axis changes. x and y: f32 or f64, row-major,
 * `inner` elements behind the axes. The bits are those of the op rows, axis by axis. 0 or WEFT_ENOMEM with why filled. */
int wf_resample(void *y, const void *x, int dtype, int count, const wf_blend *b, int64_t inner,
                int64_t elements, wf_why *why);

#endif
