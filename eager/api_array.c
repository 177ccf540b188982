/*
 * eager/api_array.c -- movement, indexing and creation of weft/ops_array.h.
 *
 * Invariants: compositions open a scope of their own, so that only the result outlives the call.
 */
#include <math.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/call.h"
#include "eager/device.h"
#include "eager/pool.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* -- movement ----------------------------------------------------------------------------------------------- */

enum { FEW = 16 };

/* Promotes parts, gives each a new axis if `stack`, and joins them. */
/* The error of a number among the parts that the type of the joined ones does not hold: it would be cut down. */
static weft_tensor misfit(const char *op, int n, const weft_tensor *parts,
                          const weft_tensor *joined)
{
    for (int k = 0; k < n; k++) {
        bool weak;
        int dt = wf_api_dtype(joined[k], &weak);
        int64_t v = (int64_t)parts[k].serial;
        if (!weak && dt && wf_is_scalar(parts[k]) && parts[k].context == WF_SCALAR_INT &&
            wf_dtype_kind(dt) < 2 && !wf_dtype_holds(dt, v)) {
            wf_why why = {0};
            wf_refuse_number(&why, v, dt, true);
            return wf_raise(wf_ctx_get(), op, n, parts, &why);
        }
    }
    return WEFT_NONE;
}

static weft_tensor join(const char *op, const weft_tensor *parts, int n, int axis, bool stack)
{
    wf_arg a;
    int64_t i;
    if (!parts && n > 0) {
        return wf_api_null(op, "the array of tensors");
    }
    if (n < 1) {
        return wf_api_error(op, WEFT_EINVALID, "%d tensors are given; 1 or more can be joined", n);
    }
    if (n > WF_MOST_SRC) {
        wf_why why = {0};
        wf_too_many(&why, WF_OP_CONCAT, n);
        return wf_raise(wf_ctx_get(), op, 0, NULL, &why);
    }
    if (!wf_arg_open(&a, op, parts[0]) || !wf_arg_axis(&a, a.type.rank + stack, axis, &i)) {
        return a.error;
    }
    for (int k = 1; stack && k < n; k++) {
        wf_arg b;
        if (!wf_arg_open(&b, op, parts[k])) {
            return b.error;
        }
        if (!wf_type_same_dims(&a.type, &b.type)) {
            wf_why why = {0};
            wf_fail(&why, WEFT_ESHAPE, "operand %d has another shape than operand 0", k);
            wf_hint(&why, "stack joins tensors of one shape along a new axis; weft_concat takes "
                          "different extents along one axis");
            return wf_raise(a.c, op, n, parts, &why);
        }
    }
    const size_t bytes = (size_t)n * sizeof(weft_tensor);
    weft_tensor few[FEW], *t = n <= FEW ? few : wf_scratch(bytes);
    if (!t) {
        return wf_api_error(op, WEFT_ENOMEM, "out of memory for %d operands", n);
    }
    weft_scope sc = weft_scope_begin();
    wf_called w;
    wf_called_begin(&w, op, n, parts);
    memcpy(t, parts, (size_t)n * sizeof *t);
    wf_api_unify(n, t);
    weft_tensor r = misfit(op, n, parts, t);
    for (int k = 0; stack && k < n; k++) {
        t[k] = (weft_unsqueeze)(t[k], (int)i);
    }
    if (r.serial == 0) {
        wf_dispatch(WF_OP_CONCAT, &(wf_attr){.n_ints = 1, .ints = &i}, n, t, 1, &r);
    }
    if (t != few) {
        wf_scratch_free(t, bytes);
    }
    return wf_called_end(&w, weft_scope_return(sc, r));
}

weft_tensor(weft_concat)(const weft_tensor *parts, int n, int axis)
{
    return join("concat", parts, n, axis, false);
}

weft_tensor(weft_stack)(const weft_tensor *parts, int n, int axis)
{
    return join("stack", parts, n, axis, true);
}

/* (before, after) of each axis into dyn. */
static bool paddings(wf_arg *a, const weft_shape *before, const weft_shape *after, int64_t *dyn)
{
    if (before->n != a->type.rank || after->n != a->type.rank) {
        return wf_arg_fail(a, WEFT_ESHAPE, "give one number before and one after for every axis",
                           "%lld numbers before and %lld after for %d axes", (long long)before->n,
                           (long long)after->n, a->type.rank);
    }
    for (int i = 0; i < a->type.rank; i++) {
        dyn[2 * i] = before->v[i];
        dyn[2 * i + 1] = after->v[i];
        if (before->v[i] < 0 || after->v[i] < 0) {
            return wf_arg_fail(a, WEFT_ESHAPE, "weft_slice removes elements",
                               "padding %lld and %lld of axis %d is negative",
                               (long long)before->v[i], (long long)after->v[i], i);
        }
    }
    return true;
}

weft_tensor(weft_pad)(weft_tensor x, weft_shape before, weft_shape after, double value)
{
    wf_arg a;
    int64_t dyn[2 * WF_MAX_RANK];
    if (!wf_arg_open(&a, "pad", x) || !paddings(&a, &before, &after, dyn)) {
        return a.error;
    }
    wf_attr attr = {.n_dyn = (uint8_t)(2 * a.type.rank), .dyn = dyn, .n_flt = 1, .flt = &value};
    return wf_op1(WF_OP_PAD, &attr, x);
}

/* Has axis i, of n elements, those that `mode` repeats before and after it? */
static bool repeats_ok(wf_arg *a, weft_padding mode, int i, int64_t before, int64_t after)
{
    int64_t n = a->type.dims[i], most = mode == WEFT_PAD_REFLECT ? n - 1 : n;
    bool fits = mode == WEFT_PAD_REPLICATE ? n > 0 : before <= most && after <= most;
    return fits || (before | after) == 0 ||
           wf_arg_fail(a, WEFT_ESHAPE,
                       mode == WEFT_PAD_REFLECT    ? "reflected are fewer elements than there are"
                       : mode == WEFT_PAD_CIRCULAR ? "an axis goes round at most once"
                                                   : "there is no element to repeat",
                       "padding %lld and %lld of axis %d, which has %lld elements",
                       (long long)before, (long long)after, i, (long long)n);
}

weft_tensor(weft_pad_mode)(weft_tensor x, weft_shape before, weft_shape after, weft_padding mode)
{
    wf_arg a;
    int64_t dyn[2 * WF_MAX_RANK];
    if (!wf_arg_open(&a, "pad_mode", x) || !paddings(&a, &before, &after, dyn)) {
        return a.error;
    }
    if ((unsigned)mode > WEFT_PAD_CIRCULAR) {
        wf_arg_fail(&a, WEFT_EINVALID, "use WEFT_PAD_REFLECT, _REPLICATE or _CIRCULAR",
                    "%d is not a way to pad", (int)mode);
        return a.error;
    }
    for (int i = 0; i < a.type.rank; i++) {
        if (!repeats_ok(&a, mode, i, dyn[2 * i], dyn[2 * i + 1])) {
            return a.error;
        }
    }
    bool some = false;
    for (int i = 0; i < 2 * a.type.rank; i++) {
        some |= dyn[i] != 0;
    }
    if (!some) {
        WF_CALLED(w, "pad_mode", x);
        return wf_called_end(&w, wf_op1(WF_OP_COPY, NULL, x));
    }
    int64_t way = mode;
    wf_attr attr = {.n_ints = 1, .ints = &way, .n_dyn = (uint8_t)(2 * a.type.rank), .dyn = dyn};
    return wf_op1(WF_OP_PAD_MODE, &attr, x);
}

weft_tensor(weft_roll)(weft_tensor x, weft_shape shifts, weft_axes axes)
{
    wf_arg a;
    int64_t ints[WF_MAX_RANK];
    int n;
    if (!wf_arg_open(&a, "roll", x) || !wf_arg_axes(&a, &axes, ints, &n)) {
        return a.error;
    }
    if (shifts.n != n) {
        wf_arg_fail(&a, WEFT_EINVALID, "give one shift for every axis", "%lld shifts for %d axes",
                    (long long)shifts.n, n);
        return a.error;
    }
    if (n == 0) {
        WF_CALLED(w, "roll", x);
        return wf_called_end(&w, wf_op1(WF_OP_COPY, NULL, x));
    }
    for (int i = 0; i < n; i++) {
        int64_t extent = a.type.dims[ints[i]];
        shifts.v[i] = extent ? shifts.v[i] % extent : 0;
        shifts.v[i] += shifts.v[i] < 0 ? extent : 0;
    }
    wf_attr attr = {.n_ints = (uint8_t)n, .ints = ints, .n_dyn = (uint8_t)n, .dyn = shifts.v};
    return wf_op1(WF_OP_ROLL, &attr, x);
}

weft_tensor(weft_tril)(weft_tensor x, int64_t diagonal)
{
    return wf_op1(WF_OP_TRIL, &(wf_attr){.n_dyn = 1, .dyn = &diagonal}, x);
}

weft_tensor(weft_triu)(weft_tensor x, int64_t diagonal)
{
    return wf_op1(WF_OP_TRIU, &(wf_attr){.n_dyn = 1, .dyn = &diagonal}, x);
}

/* x[outer, inner] -> [outer, times, inner] with both neighbours merged into `dims`. */
static weft_tensor repeat_at(weft_tensor x, int64_t outer, int64_t times, int64_t inner, int rank,
                             const int64_t *dims)
{
    weft_tensor t = wf_api_reshape(x, 3, (int64_t[]){outer, 1, inner});
    int64_t wide[3] = {outer, times, inner};
    t = wf_op1(WF_OP_EXPAND, &(wf_attr){.n_dyn = 3, .dyn = wide}, t);
    return wf_api_reshape(t, rank, dims);
}

/* Products of extents [0, axis) and [axis, rank). */
static void halves(int rank, const int64_t *dims, int axis, int64_t *outer, int64_t *inner)
{
    *outer = *inner = 1;
    for (int i = 0; i < rank; i++) {
        *(i < axis ? outer : inner) *= dims[i];
    }
}

/* t, which views of x made, on memory of its own: where nothing or an axis of extent 1 was repeated they made no copy. */
static weft_tensor in_own_memory(weft_tensor x, weft_tensor t)
{
    const bool view = t.slot != 0 && !wf_is_scalar(x) && weft_shares_memory(x, t);
    return view ? wf_op1(WF_OP_COPY, NULL, t) : t;
}

weft_tensor(weft_tile)(weft_tensor x, weft_shape reps)
{
    wf_arg a;
    if (!wf_arg_open(&a, "tile", x) || !wf_arg_shape(&a, &reps)) {
        return a.error;
    }
    int rank = reps.n > a.type.rank ? (int)reps.n : a.type.rank;
    int64_t dims[WF_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int k = i - (rank - a.type.rank);
        dims[i] = k < 0 ? 1 : a.type.dims[k];
    }
    WF_CALLED(w, "tile", x);
    weft_scope sc = weft_scope_begin();
    weft_tensor t = rank == a.type.rank ? x : wf_api_reshape(x, rank, dims);
    for (int k = 0; k < reps.n; k++) {
        int axis = rank - (int)reps.n + k;
        int64_t outer, inner;
        if (reps.v[k] < 0 || __builtin_mul_overflow(dims[axis], reps.v[k], &inner)) {
            wf_arg_fail(&a, WEFT_ESHAPE, "repetitions are 0 or more, within memory",
                        "%lld repetitions of axis %d of %lld elements", (long long)reps.v[k], axis,
                        (long long)dims[axis]);
            return wf_called_end(&w, weft_scope_return(sc, a.error));
        }
        if (reps.v[k] != 1) {
            halves(rank, dims, axis, &outer, &inner);
            dims[axis] *= reps.v[k];
            t = repeat_at(t, outer, reps.v[k], inner, rank, dims);
        }
    }
    return wf_called_end(&w, weft_scope_return(sc, in_own_memory(x, t)));
}

weft_tensor(weft_repeat)(weft_tensor x, int64_t n, int axis)
{
    wf_arg a;
    int64_t i, outer, inner, extent;
    if (!wf_arg_open(&a, "repeat", x) || !wf_arg_axis(&a, a.type.rank, axis, &i)) {
        return a.error;
    }
    if (n < 0 || __builtin_mul_overflow(a.type.dims[i], n, &extent)) {
        wf_arg_fail(&a, WEFT_ESHAPE, "repetitions are 0 or more, within memory",
                    "%lld repetitions of axis %d of %lld elements", (long long)n, (int)i,
                    (long long)a.type.dims[i]);
        return a.error;
    }
    halves(a.type.rank, a.type.dims, (int)i + 1, &outer, &inner);
    a.type.dims[i] = extent;
    WF_CALLED(w, "repeat", x);
    weft_scope sc = weft_scope_begin();
    weft_tensor t = repeat_at(x, outer, n, inner, a.type.rank, a.type.dims);
    return wf_called_end(&w, weft_scope_return(sc, in_own_memory(x, t)));
}

/* -- indexing -------------------------------------------------------------------------------------------------- */

/* Values go to the base's type where that loses no kind; else inference refuses them. */
static weft_tensor as_base(weft_tensor values, int dtype)
{
    bool weak;
    int dt = wf_api_dtype(values, &weak);
    if (dt && dt != dtype && wf_dtype_promote(dt, dtype) == dtype) {
        return wf_op1(WF_OP_CAST, &(wf_attr){.dtype = (uint8_t)dtype}, values);
    }
    return values;
}

static weft_tensor indexed(wf_op op, const char *name, int axis, int n, weft_tensor *src)
{
    wf_arg a;
    int64_t i;
    if (!wf_arg_open(&a, name, src[0]) || !wf_arg_axis(&a, a.type.rank, axis, &i)) {
        return a.error;
    }
    weft_tensor given[3] = {src[0], src[1], n == 3 ? src[2] : WEFT_NONE};
    wf_called w;
    wf_called_begin(&w, name, n, given);
    weft_scope sc = weft_scope_begin();
    if (n == 3) {
        src[2] = as_base(src[2], a.type.dtype);
    }
    weft_tensor r;
    wf_dispatch(op, &(wf_attr){.n_ints = 1, .ints = &i}, n, src, 1, &r);
    return wf_called_end(&w, weft_scope_return(sc, r));
}

weft_tensor(weft_take_along)(weft_tensor x, int axis, weft_tensor indices)
{
    return indexed(WF_OP_TAKE_ALONG, "take_along", axis, 2, (weft_tensor[]){x, indices});
}

weft_tensor(weft_gather)(weft_tensor x, int axis, weft_tensor indices)
{
    return indexed(WF_OP_TAKE_ALONG, "gather", axis, 2, (weft_tensor[]){x, indices});
}

weft_tensor(weft_index_select)(weft_tensor x, int axis, weft_tensor indices)
{
    return indexed(WF_OP_INDEX_SELECT, "index_select", axis, 2, (weft_tensor[]){x, indices});
}

weft_tensor(weft_embedding)(weft_tensor weight, weft_tensor indices)
{
    wf_arg a;
    if (!wf_arg_open(&a, "embedding", weight)) {
        return a.error;
    }
    if (a.type.rank != 2) {
        wf_arg_fail(&a, WEFT_ESHAPE, "one row per index; weft_index_select takes any rank",
                    "the weight has rank %d; [rows, features] is needed", a.type.rank);
        return a.error;
    }
    return indexed(WF_OP_INDEX_SELECT, "embedding", 0, 2, (weft_tensor[]){weight, indices});
}

weft_tensor(weft_scatter_add)(weft_tensor base, int axis, weft_tensor indices, weft_tensor values)
{
    return indexed(WF_OP_SCATTER_ADD, "scatter_add", axis, 3,
                   (weft_tensor[]){base, indices, values});
}

weft_tensor(weft_index_add)(weft_tensor base, int axis, weft_tensor indices, weft_tensor values)
{
    return indexed(WF_OP_INDEX_ADD, "index_add", axis, 3, (weft_tensor[]){base, indices, values});
}

static weft_status add_in_place(wf_op op, weft_tensor x, int axis, weft_tensor indices,
                                weft_tensor values)
{
    wf_arg a;
    int64_t i;
    if (!wf_arg_open(&a, wf_rows[op].name, x) || !wf_arg_axis(&a, a.type.rank, axis, &i)) {
        return weft_error_status(a.error);
    }
    weft_scope sc = weft_scope_begin();
    weft_tensor src[3] = {x, indices, as_base(values, a.type.dtype)};
    int rc = wf_dispatch_inplace(op, &(wf_attr){.n_ints = 1, .ints = &i}, 3, src, x);
    weft_scope_end(sc);
    return (weft_status)rc;
}

weft_status(weft_scatter_add_)(weft_tensor x, int axis, weft_tensor indices, weft_tensor values)
{
    return add_in_place(WF_OP_SCATTER_ADD, x, axis, indices, values);
}

weft_status(weft_index_add_)(weft_tensor x, int axis, weft_tensor indices, weft_tensor values)
{
    return add_in_place(WF_OP_INDEX_ADD, x, axis, indices, values);
}

weft_tensor(weft_one_hot)(weft_tensor indices, int64_t classes, weft_dtype dtype)
{
    if (!wf_api_dtype_ok(dtype)) {
        return wf_api_error("one_hot", WEFT_EDTYPE, "%d is not an element type", (int)dtype);
    }
    wf_attr attr = {.dtype = (uint8_t)(dtype ? dtype : WEFT_F32), .n_dyn = 1, .dyn = &classes};
    return wf_op1(WF_OP_ONE_HOT, &attr, indices);
}

/* Runs a row with two results; either may be unwanted. */
static weft_status two_results(wf_op op, const wf_attr *attr, weft_tensor x, weft_tensor *values,
                               weft_tensor *indices)
{
    weft_tensor r[2];
    int rc = wf_dispatch(op, attr, 1, &x, 2, r);
    weft_tensor *out[2] = {values, indices};
    for (int i = 0; i < 2; i++) {
        if (out[i]) {
            *out[i] = r[i];
        } else if (!rc) {
            weft_free(r[i]);
        }
    }
    return (weft_status)rc;
}

static weft_status ranked(const char *name, wf_op op, weft_tensor x, int axis, unsigned flags,
                          const int64_t *k, weft_tensor *values, weft_tensor *indices)
{
    wf_arg a;
    int64_t i = 0, one = 1;
    bool open = wf_arg_open(&a, name, x), point = open && wf_arg_is_point(&a, axis);
    if (point && k && *k != 1) { /* [0] is no shape of rank 0 */
        open = wf_arg_fail(&a, WEFT_ESHAPE, "choose k = 1, or give it an axis: weft_reshape",
                           "k is %lld; a tensor of rank 0 is one element", (long long)*k);
    }
    if (!open || (!point && !wf_arg_axis(&a, a.type.rank, axis, &i))) {
        if (values) {
            *values = a.error;
        }
        if (indices) {
            *indices = a.error;
        }
        return weft_error_status(a.error);
    }
    wf_attr attr = {.flags = (uint8_t)flags, .n_ints = 1, .ints = &i, .n_dyn = k ? 1 : 0, .dyn = k};
    WF_CALLED(w, name, x);
    if (!point) {
        return wf_called_done(&w, two_results(op, &attr, x, values, indices));
    }
    weft_scope sc = weft_scope_begin();
    weft_status rc = two_results(op, &attr, wf_api_reshape(x, 1, &one), values, indices);
    weft_tensor *out[2] = {values, indices};
    for (int j = 0; j < 2; j++) {
        if (out[j]) {
            *out[j] = weft_scope_give(sc, wf_api_reshape(*out[j], 0, NULL));
            rc = rc ? rc : weft_error_status(*out[j]);
        }
    }
    weft_scope_end(sc);
    return wf_called_done(&w, rc);
}

/* rc; the results, if there are any, are of the call at site. */
static weft_status both_sited(const char *site, const weft_tensor *values,
                              const weft_tensor *indices, weft_status rc)
{
    for (int i = 0; i < 2 && rc == WEFT_OK; i++) {
        const weft_tensor *r = i ? indices : values;
        wf_site_results(site, r, r != NULL);
    }
    return rc;
}

weft_status(weft_sort)(weft_tensor x, int axis, bool descending, weft_tensor *values,
                       weft_tensor *indices)
{
    const char *site = wf_take_here(wf_ctx_get());
    const weft_status rc = ranked("sort", WF_OP_SORT, x, axis, descending ? WF_FLAG_DESCENDING : 0,
                                  NULL, values, indices);
    return both_sited(site, values, indices, rc);
}

weft_tensor(weft_argsort)(weft_tensor x, int axis, bool descending)
{
    weft_tensor r;
    ranked("argsort", WF_OP_SORT, x, axis, descending ? WF_FLAG_DESCENDING : 0, NULL, NULL, &r);
    return r;
}

weft_status(weft_topk)(weft_tensor x, int64_t k, int axis, bool smallest, weft_tensor *values,
                       weft_tensor *indices)
{
    const char *site = wf_take_here(wf_ctx_get());
    const weft_status rc =
        ranked("topk", WF_OP_TOPK, x, axis, smallest ? WF_FLAG_SMALLEST : 0, &k, values, indices);
    return both_sited(site, values, indices, rc);
}

/* -- creation --------------------------------------------------------------------------------------------------- */

static bool create_ok(const char *op, const weft_shape *shape, weft_dtype dtype, weft_tensor *error)
{
    if (shape && !wf_api_shape_ok(op, shape)) {
        *error = wf_api_last_error();
        return false;
    }
    if (!wf_api_dtype_ok(dtype)) {
        *error = wf_api_error(op, WEFT_EDTYPE, "%d is not an element type; use WEFT_F32, ...",
                              (int)dtype);
        return false;
    }
    return true;
}

static weft_tensor full(const char *op, const weft_shape *shape, double value, weft_dtype dtype)
{
    weft_tensor error;
    int64_t dyn[WF_MAX_RANK + 1];
    if (!create_ok(op, shape, dtype, &error)) {
        return error;
    }
    int dt = dtype ? (int)dtype : WEFT_F32, n = (int)shape->n;
    for (int i = 0; i < n; i++) {
        if (shape->v[i] < 0) {
            return wf_api_error(op, WEFT_ESHAPE, "extent %lld of axis %d is negative",
                                (long long)shape->v[i], i);
        }
    }
    bool whole = wf_dtype_kind(dt) < 2; /* integers travel as integers */
    memcpy(dyn, shape->v, (size_t)n * sizeof *dyn);
    if (whole && !wf_api_whole(op, value, dt, &dyn[n], &error)) {
        return error;
    }
    wf_attr attr = {.dtype = (uint8_t)dt,
                    .n_dyn = (uint8_t)(n + whole),
                    .dyn = dyn,
                    .n_flt = whole ? 0 : 1,
                    .flt = &value};
    wf_called w;
    wf_called_begin(&w, op, 0, NULL);
    return wf_called_end(&w, wf_op0(WF_OP_FULL, &attr));
}

weft_tensor(weft_zeros)(weft_shape shape, weft_dtype dtype)
{
    return full("zeros", &shape, 0, dtype);
}

weft_tensor(weft_ones)(weft_shape shape, weft_dtype dtype)
{
    return full("ones", &shape, 1, dtype);
}

weft_tensor(weft_full)(weft_shape shape, double value, weft_dtype dtype)
{
    return full("full", &shape, value, dtype);
}

static weft_tensor full_like(const char *op, weft_tensor x, double value)
{
    wf_arg a;
    if (!wf_arg_open(&a, op, x)) {
        return a.error;
    }
    weft_shape s = weft_shape_from(a.type.rank, a.type.dims);
    int before = wf_device_enter(a.c, a.device);
    weft_tensor r = full(op, &s, value, (weft_dtype)a.type.dtype);
    wf_device_enter(a.c, before);
    return r;
}

weft_tensor(weft_zeros_like)(weft_tensor x)
{
    return full_like("zeros_like", x, 0);
}

weft_tensor(weft_ones_like)(weft_tensor x)
{
    return full_like("ones_like", x, 1);
}

weft_tensor(weft_full_like)(weft_tensor x, double value)
{
    return full_like("full_like", x, value);
}

weft_tensor(weft_scalar)(double value, weft_dtype dtype)
{
    weft_shape s = weft_shape_from(0, NULL);
    return full("scalar", &s, value, dtype);
}

static bool is_whole(double v)
{
    return v == floor(v) && fabs(v) < 9007199254740992.0;
}

/* How many elements a range from [0] to [1] by [2] has. */
static double count_steps(const void *range)
{
    const double *r = range;
    return ceil((r[1] - r[0]) / r[2]);
}

weft_tensor(weft_arange)(double start, double stop, double step, weft_dtype dtype)
{
    weft_tensor error;
    if (!create_ok("arange", NULL, dtype, &error)) {
        return error;
    }
    /* rounded as kernels round: of a quotient that was rounded up, the ceiling may be one more */
    double count = wf_plainly(count_steps, (const double[]){start, stop, step});
    if (step == 0 || isnan(count) || !isfinite(start) || !isfinite(step) || count > 0x1p62) {
        return wf_api_error("arange", WEFT_EINVALID,
                            "from %g to %g by %g has no finite number of elements; the step is not "
                            "0 and the bounds are finite",
                            start, stop, step);
    }
    int64_t dyn[3] = {count > 0 ? (int64_t)count : 0, wf_f64_to_i64(start), wf_f64_to_i64(step)};
    double flt[2] = {start, step};
    bool whole = is_whole(start) && is_whole(step);
    int dt = dtype ? (int)dtype : whole && is_whole(stop) ? WEFT_I64 : WEFT_F32;
    if (wf_dtype_kind(dt) < 2 && !whole) {
        return wf_api_error(
            "arange", WEFT_EDTYPE,
            "a start of %g and a step of %g are not whole numbers; ask for WEFT_F32", start, step);
    }
    wf_attr attr = {.dtype = (uint8_t)dt, .n_dyn = 1, .dyn = dyn, .n_flt = 2, .flt = flt};
    int64_t end;
    if (dyn[0] > 0 && wf_dtype_kind(dt) < 2 &&
        (!wf_api_whole("arange", start, dt, &end, &error) ||
         !wf_api_whole("arange", start + step * (count - 1), dt, &end, &error))) {
        return error;
    }
    if (wf_dtype_kind(dt) < 2) {
        attr.n_dyn = 3;
        attr.n_flt = 0;
    }
    return wf_op0(WF_OP_ARANGE, &attr);
}

weft_tensor(weft_linspace)(double start, double stop, int64_t n, weft_dtype dtype)
{
    weft_tensor error;
    if (!create_ok("linspace", NULL, dtype, &error)) {
        return error;
    }
    double flt[2] = {start, stop};
    int dt = dtype ? (int)dtype : WEFT_F32;
    int64_t end;
    if (wf_dtype_kind(dt) < 2 && (!wf_api_whole("linspace", start, dt, &end, &error) ||
                                  !wf_api_whole("linspace", stop, dt, &end, &error))) {
        return error;
    }
    wf_attr attr = {.dtype = (uint8_t)dt, .n_dyn = 1, .dyn = &n, .n_flt = 2, .flt = flt};
    return wf_op0(WF_OP_LINSPACE, &attr);
}

weft_tensor(weft_eye)(int64_t rows, int64_t columns, int64_t offset, weft_dtype dtype)
{
    weft_tensor error;
    if (!create_ok("eye", NULL, dtype, &error)) {
        return error;
    }
    int64_t dyn[3] = {rows, columns, offset};
    wf_attr attr = {.dtype = (uint8_t)(dtype ? dtype : WEFT_F32), .n_dyn = 3, .dyn = dyn};
    return wf_op0(WF_OP_EYE, &attr);
}
