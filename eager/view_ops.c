/*
 * eager/view_ops.c -- views: index maps on memory, never a copy.
 *
 * Invariants: strides are in elements; extents come from inference (already checked); as_strided and
 * diagonal check that every index stays inside the storage in dispatch, which knows its bounds.
 */
#include <string.h>

#include "eager/tensor.h"

/* Strides that let `src` be read with the extents of `out`, or 0 when only a copy can. */
static int reshape_strides(const wf_view *src, wf_view *out)
{
    int64_t n = wf_view_numel(src);
    if (n == 0 || out->rank == 0) {
        int64_t step = 1;
        for (int i = out->rank; i-- > 0;) {
            out->strides[i] = step;
            step *= out->dims[i] > 0 ? out->dims[i] : 1;
        }
        return 1;
    }
    /* Group source axes into runs that are contiguous among themselves; each run is split freely. */
    int j = out->rank - 1;
    int i = src->rank - 1;
    while (i >= 0 || j >= 0) {
        if (i >= 0 && src->dims[i] == 1) {
            i--;
            continue;
        }
        if (i < 0) {
            /* only extents of 1 are left: row-major, if the rest is */
            out->strides[j] = j + 1 < out->rank ? out->strides[j + 1] * out->dims[j + 1] : 1;
            j--;
            continue;
        }
        int64_t step = src->strides[i], run = src->dims[i];
        while (i > 0 &&
               (src->dims[i - 1] == 1 || src->strides[i - 1] == src->strides[i] * src->dims[i])) {
            if (src->dims[i - 1] == 1) {
                if (i - 1 == 0) {
                    break;
                }
                /* look through an extent of 1 */
                int k = i - 2;
                while (k >= 0 && src->dims[k] == 1) {
                    k--;
                }
                if (k < 0 || src->strides[k] != src->strides[i] * src->dims[i]) {
                    break;
                }
                i = k;
            } else {
                i--;
            }
            run *= src->dims[i];
        }
        int64_t done = 1;
        while (j >= 0 && done < run) {
            out->strides[j] = step * done;
            done *= out->dims[j];
            j--;
        }
        if (done != run) {
            return 0;
        }
        i--;
    }
    return 1;
}

int wf_view_apply(wf_op op, const wf_attr *attr, const wf_type *result, const wf_view *src,
                  wf_view *out, wf_why *why)
{
    char *base = src->data;
    int64_t size = (int64_t)wf_dtype_size(src->dtype);
    out->data = base;
    out->dtype = src->dtype;
    out->rank = result->rank;
    out->device = src->device;
    memcpy(out->dims, result->dims, (size_t)result->rank * sizeof(int64_t));
    if (op == WF_OP_DETACH) {
        memcpy(out->strides, src->strides, (size_t)src->rank * sizeof(int64_t));
        return 0;
    }
    if (op == WF_OP_RESHAPE) {
        return reshape_strides(src, out) ? 0 : 1;
    }
    if (op == WF_OP_PERMUTE) {
        for (int i = 0; i < out->rank; i++) {
            out->strides[i] = src->strides[attr->ints[i]];
        }
        return 0;
    }
    if (op == WF_OP_EXPAND) {
        int lead = out->rank - src->rank;
        for (int i = 0; i < out->rank; i++) {
            int k = i - lead;
            out->strides[i] = k >= 0 && src->dims[k] == out->dims[i] ? src->strides[k] : 0;
        }
        return 0;
    }
    if (op == WF_OP_SLICE) {
        int64_t axis = attr->ints[0];
        memcpy(out->strides, src->strides, (size_t)src->rank * sizeof(int64_t));
        out->strides[axis] = src->strides[axis] * attr->dyn[2];
        out->data = wf_view_numel(out) ? base + attr->dyn[0] * src->strides[axis] * size : base;
        return 0;
    }
    if (op == WF_OP_AS_STRIDED) {
        int r = out->rank;
        memcpy(out->strides, attr->dyn + r, (size_t)r * sizeof(int64_t));
        /* in integers: dispatch has yet to check that the offset stays inside the memory */
        uintptr_t offset = wf_view_numel(out) ? (uintptr_t)(attr->dyn[2 * r] * size) : 0;
        out->data = (void *)((uintptr_t)base + offset);
        return 0;
    }
    if (op == WF_OP_DIAGONAL) {
        int64_t a1 = attr->ints[0], a2 = attr->ints[1], off = attr->dyn[0];
        int k = 0;
        for (int i = 0; i < src->rank; i++) {
            if (i != a1 && i != a2) {
                out->strides[k++] = src->strides[i];
            }
        }
        out->strides[k] = src->strides[a1] + src->strides[a2];
        int64_t shift = !out->dims[k] ? 0 /* it may begin anywhere */
                        : off >= 0    ? off * src->strides[a2]
                                      : -off * src->strides[a1];
        out->data = base + shift * size;
        return 0;
    }
    return wf_fail(why, WEFT_EUNSUPPORTED, "not a view");
}
