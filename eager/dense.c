/*
 * eager/dense.c -- contiguous operands for kernels that cannot take strides, and map checks.
 */
#include "eager/dense.h"

int wf_no_memory(wf_why *why, size_t bytes)
{
    int code = wf_fail(why, WEFT_ENOMEM, "out of memory for a scratch buffer of %zu bytes", bytes);
    wf_hint(why, "free tensors, end scopes sooner, or work on smaller pieces");
    return code;
}

size_t wf_scratch_bytes(int64_t count, size_t size)
{
    size_t bytes;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes) || bytes > INT64_MAX) {
        return 0;
    }
    return bytes;
}

int wf_dense_of(const wf_view *v, int dt, wf_dense *out, wf_why *why)
{
    out->owned = NULL;
    out->bytes = 0;
    out->data = v->data;
    if (v->dtype == dt && wf_view_is_contiguous(v)) {
        return 0;
    }
    int64_t n = wf_view_numel(v);
    out->bytes = wf_scratch_bytes(n, wf_dtype_size(dt));
    out->owned = out->bytes || n == 0 ? wf_scratch(out->bytes) : NULL;
    if (!out->owned) {
        return wf_no_memory(why, out->bytes);
    }
    out->data = out->owned;
    wf_view copy = wf_view_dense(out->data, dt, v->rank, v->dims);
    wf_copy(&copy, v);
    return 0;
}

void wf_dense_free(wf_dense *d)
{
    if (d->owned) {
        wf_scratch_free(d->owned, d->bytes);
        d->owned = NULL;
    }
}

int wf_map_is_injective(int rank, const int64_t *dims, const int64_t *strides)
{
    /* Sorted by stride, each axis must step over everything the smaller ones reach. */
    int64_t st[WF_MAX_RANK], reach[WF_MAX_RANK];
    int n = 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 0) {
            return 1;
        }
        if (dims[i] == 1) {
            continue;
        }
        int64_t s = strides[i] < 0 ? -strides[i] : strides[i];
        int at = n++;
        for (; at > 0 && st[at - 1] > s; at--) {
            st[at] = st[at - 1];
            reach[at] = reach[at - 1];
        }
        st[at] = s;
        reach[at] = s * (dims[i] - 1);
    }
    int64_t covered = 0;
    for (int i = 0; i < n; i++) {
        if (st[i] <= covered) {
            return 0;
        }
        covered += reach[i];
    }
    return 1;
}
