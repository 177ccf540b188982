/*
 * eager/view.h -- the description of strided memory that every kernel takes.
 *
 * A view is plain data: no ownership, no handle. Kernels read dims and strides (in elements, may be
 * zero or negative) and never allocate on behalf of a view. Rank 0 is a scalar; any dim may be 0.
 * Kernels of the host get views of host memory only: whoever has a tensor's view asks for its device first.
 */
#ifndef EAGER_VIEW_H
#define EAGER_VIEW_H

#include <stdint.h>

#include "jit/ir/op.h"

typedef struct wf_view {
    void *data;                   /* address of element [0, 0, ...] */
    uint8_t dtype;                /* wf_dtype */
    uint8_t rank;                 /* 0..WF_MAX_RANK */
    uint8_t device;               /* eager/device.h; 0: host memory */
    int64_t dims[WF_MAX_RANK];    /* extents, >= 0 */
    int64_t strides[WF_MAX_RANK]; /* in elements */
} wf_view;

static inline int64_t wf_view_numel(const wf_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++) {
        n *= v->dims[i];
    }
    return n;
}

/* Of its elements, each counted as often as the view has it. */
static inline size_t wf_view_bytes(const wf_view *v)
{
    return (size_t)wf_view_numel(v) * wf_dtype_size(v->dtype);
}

/* Gives v the row-major strides of its dims. */
static inline void wf_view_make_dense(wf_view *v)
{
    int64_t step = 1;
    for (int i = v->rank; i-- > 0;) {
        v->strides[i] = step;
        step *= v->dims[i];
    }
}

/* Row-major memory of a type on the host; the caller says so if it is on a device. */
static inline void wf_view_of_type(wf_view *v, const wf_type *type, void *data)
{
    v->data = data;
    v->dtype = type->dtype;
    v->rank = type->rank;
    v->device = 0;
    for (int i = 0; i < type->rank; i++) {
        v->dims[i] = type->dims[i];
    }
    wf_view_make_dense(v);
}

static inline int64_t wf_magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Row-major contiguous (dims of extent 1 may have any stride). */
static inline int wf_view_is_contiguous(const wf_view *v)
{
    int64_t expect = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->dims[i] != 1 && v->strides[i] != expect) {
            return 0;
        }
        expect *= v->dims[i];
    }
    return 1;
}

#endif
