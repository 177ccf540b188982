/*
 * jit/ir/infer_move.c -- result types of data movement, indexing and creation rows.
 *
 * The kernels trust what passes here: axes exist, extents agree, maps stay inside, index operands
 * are i32 or i64. Values of indices are data and are checked by the kernels.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "jit/ir/infer.h"

/* -- movement
 * -------------------------------------------------------------------------------------- */
WF_INFER(concat)
{
    int code = wf_check_attr(attr, 1, 0, 0, why);
    if (code || (code = wf_check_axis(attr->ints[0], src[0].rank, why))) {
        return code;
    }
    int64_t axis = attr->ints[0];
    dst[0] = src[0];
    for (int i = 1; i < nsrc; i++) {
        if ((code = wf_check_same_dtype(src, 0, i, why))) {
            return code;
        }
        if (src[i].rank != src[0].rank) {
            code = wf_fail(why, WEFT_ESHAPE, "operand %d has rank %d, operand 0 has rank %d", i,
                           src[i].rank, src[0].rank);
            wf_hint(why, "all operands have one rank; weft_stack joins along a new axis");
            return code;
        }
        for (int d = 0; d < src[0].rank; d++) {
            if (d != axis && src[i].dims[d] != src[0].dims[d]) {
                code = wf_fail(why, WEFT_ESHAPE,
                               "axis %d: extent %" PRId64 " of operand %d against %" PRId64
                               " of operand 0",
                               d, src[i].dims[d], i, src[0].dims[d]);
                wf_hint(why, "extents may differ along the joined axis %" PRId64 " only", axis);
                return code;
            }
        }
        if (__builtin_add_overflow(dst[0].dims[axis], src[i].dims[axis], &dst[0].dims[axis])) {
            return wf_fail(why, WEFT_ENOMEM, "the extent of axis %" PRId64 " overflows", axis);
        }
    }
    return 0;
}

WF_INFER(pad)
{
    int code = wf_check_attr(attr, 0, 2 * src[0].rank, 1, why);
    if (code) {
        return code;
    }
    dst[0] = src[0];
    for (int i = 0; i < src[0].rank; i++) {
        int64_t before = attr->dyn[2 * i], after = attr->dyn[2 * i + 1], n = src[0].dims[i];
        /* Element i of the result is operand element i - before, or the value if there is none:
         * any pair of numbers that leaves an extent has a meaning. */
        int64_t sum;
        if (__builtin_add_overflow(n, before, &sum) || __builtin_add_overflow(sum, after, &sum)) {
            return wf_fail(why, WEFT_ENOMEM, "the padded extent of axis %d overflows", i);
        }
        if (sum < 0) {
            code = wf_fail(why, WEFT_ESHAPE,
                           "axis %d: padding by %" PRId64 " and %" PRId64
                           " crops more than its %" PRId64 " elements",
                           i, before, after, n);
            wf_hint(why, "negative padding crops; leave an extent of 0 or more");
            return code;
        }
        dst[0].dims[i] = sum;
    }
    return 0;
}

/* Has axis i, of n elements, those that the mode puts before and after it? */
static int check_pad_axis(int64_t mode, int i, int64_t n, const int64_t *by, wf_why *why)
{
    const int64_t most = mode == WF_PAD_REFLECT ? n - 1 : mode == WF_PAD_CIRCULAR ? n : INT64_MAX;
    const bool fits = by[0] <= most && by[1] <= most && n > 0;
    if (by[0] >= 0 && by[1] >= 0 && (fits || (by[0] | by[1]) == 0)) {
        return 0;
    }
    return wf_fail(why, WEFT_ESHAPE,
                   "axis %d: %" PRId64 " elements do not give %" PRId64 " before and %" PRId64
                   " behind them",
                   i, n, by[0], by[1]);
}

static int check_pad_mode(const wf_attr *attr, int rank, wf_why *why)
{
    int code = wf_check_attr(attr, 1, 2 * rank, 0, why);
    return code ? code
           : attr->ints[0] < WF_PAD_REFLECT || attr->ints[0] > WF_PAD_CIRCULAR
               ? wf_fail(why, WEFT_EINVALID, "%" PRId64 " is not a way to pad", attr->ints[0])
               : 0;
}

WF_INFER(pad_mode)
{
    int code = check_pad_mode(attr, src[0].rank, why);
    dst[0] = src[0];
    for (int i = 0; i < src[0].rank && !code; i++) {
        const int64_t *by = attr->dyn + 2 * i;
        int64_t *n = &dst[0].dims[i];
        code = check_pad_axis(attr->ints[0], i, *n, by, why);
        if (!code &&
            (__builtin_add_overflow(*n, by[0], n) || __builtin_add_overflow(*n, by[1], n))) {
            code = wf_fail(why, WEFT_ENOMEM, "the padded extent of axis %d overflows", i);
        }
    }
    return code;
}

WF_INFER(pad_mode_bwd)
{
    int code = wf_check_dtype(&src[0], 0, WF_DT_F, "floating-point numbers", why);
    code = code ? code : check_pad_mode(attr, src[0].rank, why);
    dst[0] = src[0];
    for (int i = 0; i < src[0].rank && !code; i++) {
        const int64_t *by = attr->dyn + 2 * i;
        int64_t *n = &dst[0].dims[i];
        if (by[0] < 0 || by[1] < 0 || by[0] > *n || by[1] > *n - by[0]) {
            return wf_fail(why, WEFT_ESHAPE, "axis %d of the gradient has %" PRId64 " elements", i,
                           *n);
        }
        *n -= by[0] + by[1];
        code = check_pad_axis(attr->ints[0], i, *n, by, why);
    }
    return code;
}

WF_INFER(roll)
{
    if (!attr || attr->n_ints != attr->n_dyn || attr->n_ints == 0) {
        int code = wf_fail(why, WEFT_EINVALID, "%d shifts for %d axes", attr ? attr->n_dyn : 0,
                           attr ? attr->n_ints : 0);
        wf_hint(why, "give one shift for every axis");
        return code;
    }
    dst[0] = src[0];
    return wf_check_axes(attr->ints, attr->n_ints, src[0].rank, why);
}

WF_INFER(tri)
{
    int code = wf_check_attr(attr, 0, 1, 0, why);
    if (code) {
        return code;
    }
    if (src[0].rank < 2) {
        code = wf_fail(why, WEFT_ESHAPE, "a triangle needs rank 2 or more; the operand has %d",
                       src[0].rank);
        wf_hint(why, "the last two axes are the matrix");
        return code;
    }
    dst[0] = src[0];
    return 0;
}

WF_INFER(slice_grad)
{
    int code = wf_check_attr(attr, 1, 4, 0, why);
    if (code || (code = wf_check_axis(attr->ints[0], src[0].rank, why))) {
        return code;
    }
    int64_t axis = attr->ints[0], full = attr->dyn[3], length = 0;
    if (full < 0) {
        return wf_fail(why, WEFT_ESHAPE, "extent %" PRId64 " of axis %" PRId64 " is negative", full,
                       axis);
    }
    code = wf_slice_length(full, attr->dyn[0], attr->dyn[1], attr->dyn[2], &length, why);
    if (code) {
        return code;
    }
    if (length != src[0].dims[axis]) {
        return wf_fail(why, WEFT_ESHAPE,
                       "the slice holds %" PRId64 " elements of axis %" PRId64
                       "; the operand has %" PRId64,
                       length, axis, src[0].dims[axis]);
    }
    dst[0] = src[0];
    dst[0].dims[axis] = full;
    return 0;
}

WF_INFER(strided_grad)
{
    int code = wf_check_attr(attr, 1, -1, 0, why);
    if (code || (code = wf_check_dtype(&src[0], 0, WF_DT_FI, "numbers", why))) {
        return code;
    }
    int64_t rank = attr->ints[0];
    if (rank < 0 || rank > WF_MAX_RANK || attr->n_dyn != rank + src[0].rank + 1) {
        return wf_fail(why, WEFT_EINVALID,
                       "a result of rank %" PRId64
                       " needs that many extents, %d strides and an offset",
                       rank, src[0].rank);
    }
    dst[0].dtype = src[0].dtype;
    if ((code = wf_check_dims(&dst[0], attr->dyn, (int)rank, why))) {
        return code;
    }
    int64_t n = wf_type_numel(&dst[0]);
    if (n < 0) {
        return wf_fail(why, WEFT_ENOMEM, "the size of the result overflows 64 bits");
    }
    return wf_check_map(src[0].rank, src[0].dims, attr->dyn + rank, attr->dyn[rank + src[0].rank],
                        n, why);
}

WF_INFER(update)
{
    int rank = src[1].rank;
    int code = wf_check_attr(attr, -1, 2 * rank + 1, 0, why);
    if (code || (code = wf_check_same_dtype(src, 0, 1, why))) {
        return code;
    }
    for (int i = 0; i < rank; i++) {
        if (attr->dyn[i] != src[1].dims[i]) {
            return wf_fail(why, WEFT_ESHAPE,
                           "axis %d of the new values has extent %" PRId64 ", the map %" PRId64, i,
                           src[1].dims[i], attr->dyn[i]);
        }
        if (attr->dyn[i] > 1 && attr->dyn[rank + i] == 0) {
            return wf_fail(why, WEFT_EINVALID,
                           "axis %d has stride 0: %" PRId64 " new values for one element", i,
                           attr->dyn[i]);
        }
    }
    dst[0] = src[0];
    return wf_check_map(rank, attr->dyn, attr->dyn + rank, attr->dyn[2 * rank],
                        wf_type_numel(&src[0]), why);
}

/* -- indexing
 * -------------------------------------------------------------------------------------- */
/* Indices of x's rank whose extents fit inside x's off the axis. */
static int check_along(const wf_attr *attr, const wf_type *src, wf_why *why)
{
    int code = wf_check_attr(attr, 1, 0, 0, why);
    if (code || (code = wf_check_axis(attr->ints[0], src[0].rank, why)) ||
        (code = wf_check_index(src, 1, why))) {
        return code;
    }
    if (src[1].rank != src[0].rank) {
        code = wf_fail(why, WEFT_ESHAPE, "the indices have rank %d, the first operand %d",
                       src[1].rank, src[0].rank);
        wf_hint(why, "indices have the rank of the operand; weft_index_select takes any rank");
        return code;
    }
    for (int i = 0; i < src[0].rank; i++) {
        if (i != attr->ints[0] && src[1].dims[i] > src[0].dims[i]) {
            code =
                wf_fail(why, WEFT_ESHAPE,
                        "axis %d: the indices have extent %" PRId64 ", the first operand %" PRId64,
                        i, src[1].dims[i], src[0].dims[i]);
            wf_hint(why, "off axis %" PRId64 " indices may not be wider than the operand",
                    attr->ints[0]);
            return code;
        }
    }
    return 0;
}

WF_INFER(take_along)
{
    int code = check_along(attr, src, why);
    if (code) {
        return code;
    }
    dst[0] = src[1];
    dst[0].dtype = src[0].dtype;
    return 0;
}

WF_INFER(scatter_add)
{
    int code = check_along(attr, src, why);
    if (code || (code = wf_check_dtype(&src[0], 0, WF_DT_FI, "numbers", why)) ||
        (code = wf_check_same_dtype(src, 0, 2, why))) {
        return code;
    }
    if (src[2].rank != src[1].rank) {
        return wf_fail(why, WEFT_ESHAPE, "the values have rank %d, the indices %d", src[2].rank,
                       src[1].rank);
    }
    for (int i = 0; i < src[1].rank; i++) {
        if (src[2].dims[i] != src[1].dims[i]) {
            code = wf_fail(why, WEFT_ESHAPE,
                           "axis %d: the values have extent %" PRId64 ", the indices %" PRId64, i,
                           src[2].dims[i], src[1].dims[i]);
            wf_hint(why, "give one value for every index");
            return code;
        }
    }
    dst[0] = src[0];
    return 0;
}

/* x with the axis replaced by the axes of the indices. */
static int select_type(const wf_attr *attr, const wf_type *src, wf_type *out, wf_why *why)
{
    int code = wf_check_attr(attr, 1, 0, 0, why);
    if (code || (code = wf_check_axis(attr->ints[0], src[0].rank, why)) ||
        (code = wf_check_index(src, 1, why))) {
        return code;
    }
    int axis = (int)attr->ints[0];
    int64_t dims[2 * WF_MAX_RANK];
    int n = 0;
    for (int i = 0; i < axis; i++) {
        dims[n++] = src[0].dims[i];
    }
    for (int i = 0; i < src[1].rank; i++) {
        dims[n++] = src[1].dims[i];
    }
    for (int i = axis + 1; i < src[0].rank; i++) {
        dims[n++] = src[0].dims[i];
    }
    out->dtype = src[0].dtype;
    return wf_check_dims(out, dims, n, why);
}

WF_INFER(index_select)
{
    return select_type(attr, src, &dst[0], why);
}

WF_INFER(index_add)
{
    wf_type want;
    int code = wf_check_dtype(&src[0], 0, WF_DT_FI, "numbers", why);
    if (code || (code = wf_check_same_dtype(src, 0, 2, why)) ||
        (code = select_type(attr, src, &want, why))) {
        return code;
    }
    if (src[2].rank != want.rank) {
        code = wf_fail(why, WEFT_ESHAPE, "the values have rank %d; %d is needed", src[2].rank,
                       want.rank);
        wf_hint(why,
                "values have the first operand's shape with the axis replaced by the indices'");
        return code;
    }
    for (int i = 0; i < want.rank; i++) {
        if (src[2].dims[i] != want.dims[i]) {
            code = wf_fail(why, WEFT_ESHAPE,
                           "axis %d of the values has extent %" PRId64 "; %" PRId64 " is needed", i,
                           src[2].dims[i], want.dims[i]);
            wf_hint(why,
                    "values have the first operand's shape with the axis replaced by the indices'");
            return code;
        }
    }
    dst[0] = src[0];
    return 0;
}

WF_INFER(one_hot)
{
    int code = wf_check_attr(attr, 0, 1, 0, why);
    if (code || (code = wf_check_index(src, 0, why))) {
        return code;
    }
    int dt = attr->dtype == WEFT_DTYPE_DEFAULT ? WEFT_I64 : attr->dtype;
    if ((code = wf_check_result_dtype(dt, why))) {
        return code;
    }
    int64_t dims[WF_MAX_RANK + 1];
    memcpy(dims, src[0].dims, src[0].rank * sizeof dims[0]);
    dims[src[0].rank] = attr->dyn[0];
    dst[0].dtype = (uint8_t)dt;
    return wf_check_dims(&dst[0], dims, src[0].rank + 1, why);
}

WF_INFER(sort)
{
    int code = wf_check_attr(attr, 1, 0, 0, why);
    if (code || (code = wf_check_axis(attr->ints[0], src[0].rank, why))) {
        return code;
    }
    dst[0] = src[0];
    dst[1] = src[0];
    dst[1].dtype = WEFT_I64;
    return 0;
}

WF_INFER(topk)
{
    int code = wf_check_attr(attr, 1, 1, 0, why);
    if (code || (code = wf_check_axis(attr->ints[0], src[0].rank, why))) {
        return code;
    }
    int64_t k = attr->dyn[0], n = src[0].dims[attr->ints[0]];
    if (k < 0 || k > n) {
        code =
            wf_fail(why, WEFT_ESHAPE, "k is %" PRId64 "; axis %" PRId64 " has %" PRId64 " elements",
                    k, attr->ints[0], n);
        wf_hint(why, "choose k between 0 and %" PRId64, n);
        return code;
    }
    dst[0] = src[0];
    dst[0].dims[attr->ints[0]] = k;
    dst[1] = dst[0];
    dst[1].dtype = WEFT_I64;
    return 0;
}

/* -- creation
 * -------------------------------------------------------------------------------------- */
/* Rank of a creation row's result (-1: the attributes do not fit) and the scalars it needs; the
 * integer slots after the extents are the row's own. */
static int create_rank(wf_op op, const wf_attr *attr, int *n_flt)
{
    int n = attr->n_dyn;
    *n_flt = 0;
    if (op == WF_OP_FULL) {
        /* An integer value travels as the last integer slot when there is no scalar slot. */
        return attr->n_flt ? n : n - 1;
    }
    if (op == WF_OP_ARANGE) {
        *n_flt = n == 1 ? 2 : 0;
        return n == 1 || n == 3 ? 1 : -1;
    }
    if (op == WF_OP_LINSPACE) {
        *n_flt = 2;
        return n == 1 ? 1 : -1;
    }
    if (op == WF_OP_EYE) {
        return n == 3 ? 2 : -1;
    }
    if (op == WF_OP_RANDPERM) {
        return n == 3 ? 1 : -1;
    }
    if (op == WF_OP_RANDINT) {
        return n - 4;
    }
    *n_flt = op == WF_OP_BERNOULLI ? 1 : 2;
    return n - 2;
}

/* Bounds and their distance are finite: where that overflows every number would be the lower bound. Floats are what is computed
 * with but for f64, and what is tested: the largest one, printed in short, is a little more as a double. */
static int check_range(double low, double high, int dt, wf_why *why)
{
    const bool wide = dt == WEFT_F64;
    const double a = wide ? low : (double)(float)low, b = wide ? high : (double)(float)high;
    const double widest = wide ? DBL_MAX : FLT_MAX, most = dt == WEFT_F16    ? 65504
                                                           : dt == WEFT_BF16 ? 0x1.fep127
                                                                             : widest;
    if (!(fabs(a) <= most && fabs(b) <= most && b - a <= widest)) {
        wf_fail(why, WEFT_EINVALID, "the range from %g to %g is more than %s holds", low, high,
                wf_dtype_name(dt));
        wf_hint(why, "both bounds, and high - low, are finite numbers of the type");
        return WEFT_EINVALID;
    }
    return low <= high ? 0 : wf_fail(why, WEFT_EINVALID, "low %g is above high %g", low, high);
}

static int check_random(wf_op op, const wf_attr *attr, int dt, wf_why *why)
{
    int code = 0;
    if (op == WF_OP_RANDINT) {
        int64_t low = attr->dyn[attr->n_dyn - 2], high = attr->dyn[attr->n_dyn - 1];
        if (low >= high) {
            code = wf_fail(why, WEFT_EINVALID, "no integer lies in [%" PRId64 ", %" PRId64 ")", low,
                           high);
            wf_hint(why, "low is inclusive, high exclusive: low must be smaller");
        }
    } else if (op == WF_OP_BERNOULLI) {
        if (!(attr->flt[0] >= 0 && attr->flt[0] <= 1)) {
            code = wf_fail(why, WEFT_EINVALID, "probability %g is not in [0, 1]", attr->flt[0]);
        }
    } else if (op == WF_OP_RANDPERM) {
        if (dt != WEFT_I64 && dt != WEFT_I32) {
            code =
                wf_fail(why, WEFT_EDTYPE, "a permutation is i64 or i32, not %s", wf_dtype_name(dt));
        } else if (dt == WEFT_I32 && attr->dyn[0] > INT32_MAX) {
            code = wf_fail(why, WEFT_EDTYPE, "%" PRId64 " does not fit i32", attr->dyn[0]);
            wf_hint(why, "ask for WEFT_I64");
        }
    } else if (!(WF_BIT(dt) & WF_DT_F)) {
        code = wf_fail(why, WEFT_EDTYPE, "random values are floating-point, not %s",
                       wf_dtype_name(dt));
        wf_hint(why, "weft_randint draws integers");
    } else if (op == WF_OP_RAND) {
        code = check_range(attr->flt[0], attr->flt[1], dt, why);
    } else if (op == WF_OP_RANDN && !(attr->flt[1] >= 0)) {
        code = wf_fail(why, WEFT_EINVALID, "deviation %g is negative", attr->flt[1]);
    }
    return code;
}

WF_INFER(create)
{
    int n_flt;
    if (!attr) {
        return wf_check_attr(attr, 0, 1, 0, why);
    }
    int rank = create_rank(op, attr, &n_flt);
    if (rank < 0 || attr->n_flt < n_flt) {
        return wf_fail(why, WEFT_EINVALID, "attributes do not fit the op: %d sizes and %d scalars",
                       attr->n_dyn, attr->n_flt);
    }
    int dt = attr->dtype;
    if (dt == WEFT_DTYPE_DEFAULT) {
        bool whole = op == WF_OP_RANDINT || op == WF_OP_RANDPERM ||
                     (op == WF_OP_ARANGE && attr->n_dyn == 3) || (op == WF_OP_FULL && !attr->n_flt);
        dt = whole ? WEFT_I64 : WEFT_F32;
    }
    int code = wf_check_result_dtype(dt, why);
    if (code || (code = wf_check_dims(&dst[0], attr->dyn, rank, why))) {
        return code;
    }
    dst[0].dtype = (uint8_t)dt;
    if (wf_type_numel(&dst[0]) < 0) {
        return wf_fail(why, WEFT_ENOMEM, "the size of the result overflows 64 bits");
    }
    if ((op == WF_OP_ARANGE || op == WF_OP_LINSPACE) && dt == WEFT_BOOL) {
        return wf_fail(why, WEFT_EDTYPE, "a range is made of numbers, not bool");
    }
    bool random = op != WF_OP_FULL && op != WF_OP_ARANGE && op != WF_OP_LINSPACE && op != WF_OP_EYE;
    return random ? check_random(op, attr, dt, why) : 0;
}
