/*
 * nn/apart.h -- may updates of several tensors of a device run side by side?
 */
#ifndef NN_APART_H
#define NN_APART_H

#include "eager/tensor.h"

/* Memory that one of them touches: [lo, hi), in storage st. */
typedef struct wf_touched {
    const wf_storage *st;
    uintptr_t lo, hi;
    bool written;
} wf_touched;

/* Is what is written nobody else's? Changes the order of t. */
bool wf_are_apart(wf_touched *t, int n);

#endif
