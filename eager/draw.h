/*
 * eager/draw.h -- elements of a random row, any range of them.
 */
#ifndef EAGER_DRAW_H
#define EAGER_DRAW_H

#include "jit/ir/op.h"

/* RAND, RANDN, BERNOULLI or RANDINT with the numbers of its attributes. */
typedef struct wf_draw {
    wf_op op;
    uint64_t seed, offset;
    double p, q; /* low and high, mean and deviation, probability */
    int64_t low, high;
} wf_draw;

/* The type its elements are drawn in before they become `dtype`: f64 or f32, bool, i64. */
int wf_draw_type(wf_op op, int dtype);
/* Elements begin .. begin + n - 1 of the row, of a type that wf_draw_type gives. */
void wf_draw_elements(const wf_draw *d, int type, void *out, int64_t begin, int64_t n);

#endif
