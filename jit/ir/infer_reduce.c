/*
 * jit/ir/infer_reduce.c -- result types of reductions, scans, softmax, norms and cross entropy.
 *
 * Statistics that a row saves for its backward (mean, rstd, logsumexp) have the compute type of the
 * input: f32 for halves, since rounding them would be felt in every element.
 */
#include <string.h>

#include "jit/ir/infer.h"

#define FLOATS "a floating-point type"

/* -- reductions ------------------------------------------------------------------------------------ */

static bool reduced_axis(const wf_attr *attr, int axis)
{
    for (int i = 0; i < attr->n_ints; i++) {
        if (attr->ints[i] == axis) {
            return true;
        }
    }
    return attr->n_ints == 0;
}

/* max, min, argmax and argmin of nothing do not exist. */
static bool needs_elements(wf_op op)
{
    return op == WF_OP_AMAX || op == WF_OP_AMIN || op == WF_OP_ARGMAX || op == WF_OP_ARGMIN;
}

/* The dtype of SUM, PROD and the like: asked for, or the op's default. */
static int result_dtype(wf_op op, const wf_attr *attr, const wf_type *x, uint8_t *out, wf_why *why)
{
    bool whole = wf_dtype_kind(x->dtype) <= 1;
    int code, want = attr->dtype;
    *out = x->dtype;
    switch ((int)op) {
    case WF_OP_AMAX:
    case WF_OP_AMIN:
        return 0;
    case WF_OP_ANY:
    case WF_OP_ALL:
        *out = WEFT_BOOL;
        return 0;
    case WF_OP_COUNT_NONZERO:
    case WF_OP_ARGMAX:
    case WF_OP_ARGMIN:
        *out = WEFT_I64;
        return 0;
    case WF_OP_SUM:
    case WF_OP_PROD:
    case WF_OP_CUMSUM:
    case WF_OP_CUMPROD:
        *out = whole ? WEFT_I64 : x->dtype;
        break;
    case WF_OP_MEAN:
        *out = whole ? WEFT_F32 : x->dtype;
        break;
    case WF_OP_VAR:
    case WF_OP_STD:
    case WF_OP_NORM:
    case WF_OP_LOGSUMEXP: /* no choice */
        *out = whole ? WEFT_F32 : x->dtype;
        return 0;
    }
    if (want == WEFT_DTYPE_DEFAULT) {
        return 0;
    }
    if ((code = wf_check_result_dtype(want, why))) {
        return code;
    }
    if (want == WEFT_BOOL || (wf_dtype_kind(want) <= 1 && (!whole || op == WF_OP_MEAN))) {
        code = wf_fail(why, WEFT_EDTYPE, "a %s of %s values cannot be %s", wf_rows[op].name,
                       wf_dtype_name(x->dtype), wf_dtype_name(want));
        wf_hint(why, "reduce first, then weft_cast the result");
        return code;
    }
    *out = (uint8_t)want;
    return 0;
}

WF_INFER(reduce)
{
    const wf_type *x = &src[0];
    int code = wf_check_axes(attr->ints, attr->n_ints, x->rank, why);
    if (code) {
        return code;
    }
    if ((op == WF_OP_ARGMAX || op == WF_OP_ARGMIN) && attr->n_ints > 1) {
        code = wf_fail(why, WEFT_EINVALID,
                       "%d axes given; %s takes one, or none for the flattened tensor",
                       attr->n_ints, wf_rows[op].name);
        wf_hint(why, "reshape so that the axes to search are one");
        return code;
    }
    memset(&dst[0], 0, sizeof dst[0]);
    for (int i = 0; i < x->rank; i++) {
        bool reduced = reduced_axis(attr, i);
        if (reduced && x->dims[i] == 0 && needs_elements(op)) {
            code = wf_fail(why, WEFT_ESHAPE,
                           "axis %d has no elements, and the %s of nothing is undefined", i,
                           wf_rows[op].name);
            wf_hint(why, "skip empty tensors, or reduce over axes of extent 1 or more");
            return code;
        }
        if (!reduced || (attr->flags & WF_FLAG_KEEPDIM) != 0) {
            dst[0].dims[dst[0].rank++] = reduced ? 1 : x->dims[i];
        }
    }
    return result_dtype(op, attr, x, &dst[0].dtype, why);
}

WF_INFER(scan)
{
    int code = wf_check_attr(attr, 1, -1, -1, why);
    if (code || (code = wf_check_axis(attr->ints[0], src[0].rank, why))) {
        return code;
    }
    dst[0] = src[0];
    return result_dtype(op, attr, &src[0], &dst[0].dtype, why);
}

/* -- row-wise ---------------------------------------------------------------------------------------- */

static int check_same_dims(const wf_type *src, int a, int b, wf_why *why)
{
    bool same = src[a].rank == src[b].rank;
    int axis = 0;
    while (same && axis < src[a].rank && src[a].dims[axis] == src[b].dims[axis]) {
        axis++;
    }
    if (same && axis == src[a].rank) {
        return 0;
    }
    int code;
    if (!same) {
        code = wf_fail(why, WEFT_ESHAPE, "the %s operand has rank %d, the %s rank %d",
                       wf_ordinal(a), src[a].rank, wf_ordinal(b), src[b].rank);
    } else {
        code = wf_fail(why, WEFT_ESHAPE,
                       "axis %d has extent %" PRId64 " in the %s operand and %" PRId64 " in the %s",
                       axis, src[a].dims[axis], wf_ordinal(a), src[b].dims[axis], wf_ordinal(b));
    }
    wf_hint(why, "both must have the same shape");
    return code;
}

WF_INFER(rowwise)
{
    int code = wf_check_attr(attr, 1, -1, -1, why);
    if (code || (code = wf_check_dtype(&src[0], 0, WF_DT_F, FLOATS, why)) ||
        (code = wf_check_axis(attr->ints[0], src[0].rank, why))) {
        return code;
    }
    if (nsrc > 1 && ((code = wf_check_same_dtype(src, 0, 1, why)) ||
                     (code = check_same_dims(src, 0, 1, why)))) {
        return code;
    }
    dst[0] = src[0];
    return 0;
}

/* Operand `op` (weight or bias) has exactly the last k axes of operand x, and x's dtype or its compute
 * type. Absent operands pass. */
static int check_trailing(const wf_type *src, int x, int op, int k, const char *name, wf_why *why)
{
    const wf_type *w = &src[op];
    if (!wf_type_present(w)) {
        return 0;
    }
    bool fits = w->rank == k;
    for (int i = 0; fits && i < k; i++) {
        fits = w->dims[i] == src[x].dims[src[x].rank - k + i];
    }
    int code = 0;
    if (!fits) {
        code = wf_fail(why, WEFT_ESHAPE, "the %s must have exactly the last %d axes of x", name, k);
        wf_hint(why, "give it rank %d and the extents of those axes", k);
    } else if (w->dtype != src[x].dtype && w->dtype != wf_dtype_compute(src[x].dtype)) {
        code = wf_fail(why, WEFT_EDTYPE, "the %s is %s, x is %s", name, wf_dtype_name(w->dtype),
                       wf_dtype_name(src[x].dtype));
        wf_hint(why, "it may be %s or %s", wf_dtype_name(src[x].dtype),
                wf_dtype_name(wf_dtype_compute(src[x].dtype)));
    }
    return code;
}

/* The same of the weight or bias of WF_FLAG_CHANNELS: [groups, c, 1] of x[.., groups, c, each]. */
static int check_affine(const wf_attr *attr, const wf_type *src, int x, int op, int k,
                        const char *name, wf_why *why)
{
    const wf_type *w = &src[op];
    wf_type each = *w, t[2];
    if (!(attr->flags & WF_FLAG_CHANNELS) || !wf_type_present(w)) {
        return check_trailing(src, x, op, k, name, why);
    }
    if (w->rank != 3 || w->dims[2] != 1) {
        int code =
            wf_fail(why, WEFT_ESHAPE, "the %s must have the axes [groups, channels, 1]", name);
        wf_hint(why, "x is [.., groups, channels of each, elements of each]");
        return code;
    }
    t[0] = src[x];
    each.dims[2] = t[0].dims[t[0].rank - 1];
    t[1] = each;
    return check_trailing(t, 0, 1, 3, name, why);
}

/* The attribute "number of trailing axes", in [1, rank]; two of three or more with WF_FLAG_CHANNELS. */
static int trailing_axes(const wf_attr *attr, const wf_type *x, int *k, wf_why *why)
{
    int code = wf_check_attr(attr, 1, -1, -1, why);
    if (code || (code = wf_check_dtype(x, 0, WF_DT_F, FLOATS, why))) {
        return code;
    }
    if (attr->ints[0] < 1 || attr->ints[0] > x->rank) {
        code =
            wf_fail(why, WEFT_ESHAPE, "%" PRId64 " trailing axes to normalise over, x has rank %d",
                    attr->ints[0], x->rank);
        wf_hint(why, "choose 1 to the rank of x; 1 normalises each row of the last axis");
        return code;
    }
    if ((attr->flags & WF_FLAG_CHANNELS) && (attr->ints[0] != 2 || x->rank < 3)) {
        code = wf_fail(why, WEFT_ESHAPE, "channels are normalised over two axes of three or more");
        wf_hint(why, "make x [..., groups, channels, elements of each]");
        return code;
    }
    *k = (int)attr->ints[0];
    return 0;
}

/* One statistic per row: the leading axes of x in its compute type. */
static wf_type statistic(const wf_type *x, int k)
{
    wf_type t = *x;
    t.rank = (uint8_t)(x->rank - k);
    t.dtype = (uint8_t)wf_dtype_compute(x->dtype);
    return t;
}

/* The gradient of a weight: shape of the trailing axes, dtype of the weight if there is one; without elements where it is
 * not asked for. */
static wf_type weight_gradient(const wf_attr *attr, const wf_type *x, int k, const wf_type *w)
{
    if (attr->flags & WF_FLAG_DX_ONLY) {
        return (wf_type){.rank = 1, .dtype = x->dtype};
    }
    const bool channels = attr->flags & WF_FLAG_CHANNELS;
    k = channels ? 3 : k;
    wf_type t = {.rank = (uint8_t)k,
                 .dtype = w != NULL && wf_type_present(w) ? w->dtype : x->dtype};
    memcpy(t.dims, x->dims + x->rank - k, (size_t)k * sizeof t.dims[0]);
    t.dims[k - 1] = channels ? 1 : t.dims[k - 1];
    return t;
}

WF_INFER(layer_norm)
{
    int k, code = trailing_axes(attr, &src[0], &k, why);
    if (code || (nsrc > 1 && (code = check_affine(attr, src, 0, 1, k, "weight", why))) ||
        (nsrc > 2 && (code = check_affine(attr, src, 0, 2, k, "bias", why)))) {
        return code;
    }
    dst[0] = src[0];
    dst[1] = dst[2] = statistic(&src[0], k);
    return 0;
}

/* What layer_norm alone has. */
static int no_channels(const wf_attr *attr, wf_why *why)
{
    if (!(attr->flags & WF_FLAG_CHANNELS)) {
        return 0;
    }
    wf_fail(why, WEFT_EINVALID, "rms_norm has no weights of channels");
    wf_hint(why, "leave the flag out, or use layer_norm");
    return why->code;
}

WF_INFER(rms_norm)
{
    int k, code = no_channels(attr, why);
    code = code ? code : trailing_axes(attr, &src[0], &k, why);
    if (code || (nsrc > 1 && (code = check_trailing(src, 0, 1, k, "weight", why)))) {
        return code;
    }
    dst[0] = src[0];
    dst[1] = statistic(&src[0], k);
    return 0;
}

/* A saved statistic has the shape and type that the forward row gave it. */
static int check_statistic(const wf_type *src, int operand, const wf_type *want, wf_why *why)
{
    const wf_type *t = &src[operand];
    if (wf_type_same(t, want)) {
        return 0;
    }
    int code = wf_fail(why, WEFT_ESHAPE,
                       "the %s operand is not the statistic of the forward op: %s, rank %d needed",
                       wf_ordinal(operand), wf_dtype_name(want->dtype), want->rank);
    wf_hint(why, "pass the mean, rstd or logsumexp that the forward op returned");
    return code;
}

static int infer_norm_bwd(const wf_attr *attr, int nsrc, const wf_type *src, int first, int weight,
                          wf_type *dst, wf_why *why)
{
    int k, code = trailing_axes(attr, &src[1], &k, why);
    if (code || (code = wf_check_same_dtype(src, 0, 1, why)) ||
        (code = check_same_dims(src, 0, 1, why)) ||
        (nsrc > weight && (code = check_affine(attr, src, 1, weight, k, "weight", why)))) {
        return code;
    }
    wf_type want = statistic(&src[1], k);
    for (int i = first; i < weight; i++) {
        if ((code = check_statistic(src, i, &want, why))) {
            return code;
        }
    }
    dst[0] = src[1];
    dst[1] = weight_gradient(attr, &src[1], k, nsrc > weight ? &src[weight] : NULL);
    return 0;
}

WF_INFER(layer_norm_bwd)
{
    int code = infer_norm_bwd(attr, nsrc, src, 2, 4, dst, why);
    dst[2] = dst[1];
    return code;
}

WF_INFER(rms_norm_bwd)
{
    const int code = no_channels(attr, why);
    return code ? code : infer_norm_bwd(attr, nsrc, src, 2, 3, dst, why);
}

/* -- batch_norm --------------------------------------------------------------------------------------- */

static int check_channels(const wf_type *src, int x, int operand, const char *name, wf_why *why)
{
    const wf_type *t = &src[operand];
    if (!wf_type_present(t)) {
        return 0;
    }
    int code = 0;
    if (t->rank != 1 || t->dims[0] != src[x].dims[1]) {
        code = wf_fail(why, WEFT_ESHAPE,
                       "the %s has rank %d and %" PRId64 " elements; x has %" PRId64 " channels",
                       name, t->rank, t->rank > 0 ? t->dims[0] : 1, src[x].dims[1]);
        wf_hint(why, "it needs rank 1 and one element per channel (axis 1 of x)");
    } else if (t->dtype != src[x].dtype && t->dtype != wf_dtype_compute(src[x].dtype)) {
        code = wf_fail(why, WEFT_EDTYPE, "the %s is %s, x is %s", name, wf_dtype_name(t->dtype),
                       wf_dtype_name(src[x].dtype));
        wf_hint(why, "it may be %s or %s", wf_dtype_name(src[x].dtype),
                wf_dtype_name(wf_dtype_compute(src[x].dtype)));
    }
    return code;
}

static int check_images(const wf_type *src, int x, wf_why *why)
{
    int code = wf_check_dtype(&src[x], x, WF_DT_F, FLOATS, why);
    if (code == 0 && src[x].rank < 2) {
        code = wf_fail(why, WEFT_ESHAPE, "x has rank %d; batch_norm needs [n, channels, ...]",
                       src[x].rank);
        wf_hint(why, "add the missing axes with weft_reshape");
    }
    return code;
}

WF_INFER(batch_norm)
{
    static const char *const names[] = {"x", "weight", "bias", "running mean", "running variance"};
    int code = check_images(src, 0, why);
    for (int i = 1; i < 5 && code == 0; i++) {
        code = check_channels(src, 0, i, names[i], why);
    }
    if (code != 0) {
        return code;
    }
    dst[0] = src[0];
    dst[1] = (wf_type){.dtype = (uint8_t)wf_dtype_compute(src[0].dtype), .rank = 1};
    dst[1].dims[0] = src[0].dims[1];
    dst[2] = dst[1];
    return 0;
}

WF_INFER(batch_norm_bwd)
{
    int code = check_images(src, 1, why);
    if (code || (code = wf_check_same_dtype(src, 0, 1, why)) ||
        (code = check_same_dims(src, 0, 1, why)) ||
        (code = check_channels(src, 1, 2, "weight", why))) {
        return code;
    }
    wf_type want = {.dtype = (uint8_t)wf_dtype_compute(src[1].dtype), .rank = 1};
    want.dims[0] = src[1].dims[1];
    if ((code = check_statistic(src, 3, &want, why)) ||
        (code = check_statistic(src, 4, &want, why))) {
        return code;
    }
    dst[0] = src[1];
    dst[1] = want;
    dst[1].dtype = wf_type_present(&src[2]) ? src[2].dtype : src[1].dtype;
    dst[2] = dst[1];
    return 0;
}

/* -- cross entropy ------------------------------------------------------------------------------------- */

static int check_logits(const wf_attr *attr, const wf_type *src, int logits, int targets,
                        wf_why *why)
{
    int code = wf_check_dtype(&src[logits], logits, WF_DT_F, FLOATS, why);
    if (code || (code = wf_check_rank(src, logits, 2, "logits[n, classes]", why)) ||
        (code = wf_check_rank(src, targets, 1, "targets[n]", why)) ||
        (code = wf_check_index(src, targets, why))) {
        return code;
    }
    if (src[logits].dims[0] != src[targets].dims[0]) {
        code = wf_fail(why, WEFT_ESHAPE, "%" PRId64 " rows of logits, %" PRId64 " targets",
                       src[logits].dims[0], src[targets].dims[0]);
        wf_hint(why,
                "one class index for each row; reshape logits to [n, classes], targets to [n]");
        return code;
    }
    if (src[logits].dims[1] == 0 && src[logits].dims[0] > 0) {
        code = wf_fail(why, WEFT_ESHAPE, "the logits have no classes (axis 1 is empty)");
        wf_hint(why, "give logits[n, classes] at least one class");
        return code;
    }
    if (attr->n_flt > 0 && !(attr->flt[0] >= 0.0 && attr->flt[0] <= 1.0)) {
        code = wf_fail(why, WEFT_EINVALID, "label smoothing is %g", attr->flt[0]);
        wf_hint(why, "choose a share in [0, 1]");
        return code;
    }
    return 0;
}

WF_INFER(cross_entropy)
{
    int code = check_logits(attr, src, 0, 1, why);
    if (code != 0) {
        return code;
    }
    dst[0] = (wf_type){.dtype = src[0].dtype, .rank = 1};
    dst[0].dims[0] = src[0].dims[0];
    dst[1] = dst[0];
    dst[1].dtype = (uint8_t)wf_dtype_compute(src[0].dtype);
    return 0;
}

WF_INFER(cross_entropy_bwd)
{
    int code = check_logits(attr, src, 1, 2, why);
    if (code || (code = wf_check_rank(src, 0, 1, "g[n]", why)) ||
        (code = wf_check_dtype(&src[0], 0, WF_DT_F, FLOATS, why))) {
        return code;
    }
    wf_type want = {.dtype = (uint8_t)wf_dtype_compute(src[1].dtype), .rank = 1};
    want.dims[0] = src[1].dims[0];
    if ((code = check_statistic(src, 3, &want, why))) {
        return code;
    }
    if (src[0].dims[0] != src[1].dims[0]) {
        code = wf_fail(why, WEFT_ESHAPE, "%" PRId64 " gradients for %" PRId64 " rows of logits",
                       src[0].dims[0], src[1].dims[0]);
        wf_hint(why, "one gradient for each row's loss");
        return code;
    }
    dst[0] = src[1];
    return 0;
}
