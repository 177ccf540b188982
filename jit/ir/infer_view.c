/*
 * jit/ir/infer_view.c -- result types of casts, copies and views.
 *
 * Attributes arrive normalised: axes are non-negative, -1 extents are resolved, slices are clipped.
 * Normalised slices: step > 0 has 0 <= start <= stop <= n; step < 0 has -1 <= stop <= start < n
 * (stop is exclusive, so that -1 means "through element 0").
 */
#include <string.h>

#include "jit/ir/infer.h"

WF_INFER(same)
{
    dst[0] = src[0];
    return 0;
}

WF_INFER(cast)
{
    int dt = attr ? attr->dtype : WEFT_DTYPE_DEFAULT;
    int code = wf_check_result_dtype(dt, why);
    if (code) {
        return code;
    }
    dst[0] = src[0];
    dst[0].dtype = (uint8_t)dt;
    return 0;
}

WF_INFER(reshape)
{
    int rank = attr ? attr->n_dyn : 0;
    int code = wf_check_dims(&dst[0], attr ? attr->dyn : NULL, rank, why);
    if (code) {
        return code;
    }
    dst[0].dtype = src[0].dtype;
    int64_t have = wf_type_numel(&src[0]);
    int64_t want = wf_type_numel(&dst[0]);
    if (have != want) {
        code = want < 0
                   ? wf_fail(why, WEFT_ESHAPE, "the new shape's size overflows 64 bits")
                   : wf_fail(why, WEFT_ESHAPE,
                             "%" PRId64 " elements do not fill a shape of %" PRId64, have, want);
        wf_hint(why,
                "the products of old and new extents must agree; -1 for one extent computes it");
        return code;
    }
    return 0;
}

WF_INFER(permute)
{
    int rank = src[0].rank;
    if (!attr || attr->n_ints != rank) {
        int code = wf_fail(why, WEFT_ESHAPE, "%d axes given for an operand of rank %d",
                           attr ? attr->n_ints : 0, rank);
        wf_hint(why, "name every axis exactly once");
        return code;
    }
    int code = wf_check_axes(attr->ints, rank, rank, why);
    if (code) {
        return code;
    }
    dst[0].dtype = src[0].dtype;
    dst[0].rank = src[0].rank;
    for (int i = 0; i < rank; i++) {
        dst[0].dims[i] = src[0].dims[attr->ints[i]];
    }
    return 0;
}

WF_INFER(expand)
{
    int rank = attr ? attr->n_dyn : 0;
    if (rank < src[0].rank) {
        int code =
            wf_fail(why, WEFT_ESHAPE, "rank %d does not expand to rank %d", src[0].rank, rank);
        wf_hint(why, "expanding adds leading axes and widens extents of 1; it removes nothing");
        return code;
    }
    int code = wf_check_dims(&dst[0], attr ? attr->dyn : NULL, rank, why);
    if (code) {
        return code;
    }
    dst[0].dtype = src[0].dtype;
    int lead = rank - src[0].rank;
    for (int i = 0; i < src[0].rank; i++) {
        if (src[0].dims[i] != dst[0].dims[lead + i] && src[0].dims[i] != 1) {
            code = wf_fail(why, WEFT_ESHAPE,
                           "extent %" PRId64 " of axis %d does not expand to %" PRId64,
                           src[0].dims[i], i, dst[0].dims[lead + i]);
            wf_hint(why, "only extents of 1 expand");
            return code;
        }
    }
    return 0;
}

WF_INFER(slice)
{
    int code = wf_check_attr(attr, 1, 3, 0, why);
    if (code || (code = wf_check_axis(attr->ints[0], src[0].rank, why))) {
        return code;
    }
    dst[0] = src[0];
    int64_t axis = attr->ints[0];
    return wf_slice_length(src[0].dims[axis], attr->dyn[0], attr->dyn[1], attr->dyn[2],
                           &dst[0].dims[axis], why);
}

WF_INFER(as_strided)
{
    int code = wf_check_attr(attr, 1, -1, 0, why);
    if (code) {
        return code;
    }
    int64_t rank = attr->ints[0];
    if (rank < 0 || rank > WF_MAX_RANK || attr->n_dyn != 2 * rank + 1) {
        code = wf_fail(why, WEFT_EINVALID,
                       "rank %" PRId64 " needs that many extents and strides, and an offset", rank);
        wf_hint(why, "give as many strides as extents, at most %d", WF_MAX_RANK);
        return code;
    }
    dst[0].dtype = src[0].dtype;
    return wf_check_dims(&dst[0], attr->dyn, (int)rank, why);
}

WF_INFER(diagonal)
{
    int code = wf_check_attr(attr, 2, 1, 0, why);
    if (code || (code = wf_check_axes(attr->ints, 2, src[0].rank, why))) {
        return code;
    }
    int64_t rows = src[0].dims[attr->ints[0]];
    int64_t cols = src[0].dims[attr->ints[1]];
    int64_t offset = attr->dyn[0];
    /* An offset outside the matrix gives an empty diagonal, as in NumPy. */
    int64_t length;
    if (offset >= 0) {
        int64_t rest = offset >= cols ? 0 : cols - offset;
        length = rows < rest ? rows : rest;
    } else {
        int64_t rest = offset <= -rows ? 0 : rows + offset;
        length = rest < cols ? rest : cols;
    }
    dst[0].dtype = src[0].dtype;
    int n = 0;
    for (int i = 0; i < src[0].rank; i++) {
        if (i != attr->ints[0] && i != attr->ints[1]) {
            dst[0].dims[n++] = src[0].dims[i];
        }
    }
    dst[0].dims[n++] = length;
    dst[0].rank = (uint8_t)n;
    return 0;
}
