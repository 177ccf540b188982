/*
 * eager/api_view.c -- views of weft/ops_array.h: what users say about axes, sizes and slices becomes
 * the normalised attributes of the VIEW rows.
 */
#include <stdio.h>
#include <string.h>

#include "eager/api.h"
#include "eager/dense.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

weft_tensor(weft_reshape)(weft_tensor x, weft_shape shape)
{
    wf_arg a;
    if (!wf_arg_open(&a, "reshape", x) || !wf_arg_shape(&a, &shape)) {
        return a.error;
    }
    int hole = -1;
    int64_t known = 1, have = wf_type_numel(&a.type);
    for (int i = 0; i < shape.n; i++) {
        if (shape.v[i] == -1 && hole < 0) {
            hole = i;
        } else if (shape.v[i] < 0) {
            wf_arg_fail(&a, WEFT_ESHAPE, "extents are 0 or more; one of them may be -1",
                        "extent %lld of axis %d is negative", (long long)shape.v[i], i);
            return a.error;
        } else if (__builtin_mul_overflow(known, shape.v[i], &known)) {
            known = shape.v[i] == 0 ? 0 : -1; /* inference reports the overflow */
            break;
        }
    }
    if (hole >= 0) {
        if (known <= 0 || have % known != 0) {
            wf_arg_fail(&a, WEFT_ESHAPE, "the product of the other extents must divide the count",
                        "no extent in place of -1 makes %lld elements out of %lld", (long long)have,
                        (long long)known);
            return a.error;
        }
        shape.v[hole] = have / known;
    }
    return wf_api_reshape(x, (int)shape.n, shape.v);
}

weft_tensor(weft_flatten)(weft_tensor x, int from, int to)
{
    wf_arg a;
    int64_t dims[WF_MAX_RANK], f = 0, t = 0;
    if (!wf_arg_open(&a, "flatten", x)) {
        return a.error;
    }
    int rank = a.type.rank;
    if (rank == 0 && (from == 0 || from == -1) && (to == 0 || to == -1)) {
        return wf_api_reshape(x, 1, (int64_t[]){1});
    }
    if (!wf_arg_axis(&a, rank, from, &f) || !wf_arg_axis(&a, rank, to, &t)) {
        return a.error;
    }
    if (f > t) {
        wf_arg_fail(&a, WEFT_ESHAPE, "name the first axis first", "axis %d comes after axis %d",
                    (int)f, (int)t);
        return a.error;
    }
    int n = 0;
    for (int i = 0; i < rank; i++) {
        if (i > f && i <= t) {
            dims[n - 1] *= a.type.dims[i];
        } else {
            dims[n++] = a.type.dims[i];
        }
    }
    return wf_api_reshape(x, n, dims);
}

weft_tensor(weft_squeeze)(weft_tensor x, weft_axes axes)
{
    wf_arg a;
    int64_t drop[WF_MAX_RANK], dims[WF_MAX_RANK];
    int n, rank = 0;
    unsigned mask = 0;
    if (!wf_arg_open(&a, "squeeze", x) || !wf_arg_axes(&a, &axes, drop, &n)) {
        return a.error;
    }
    for (int i = 0; i < n; i++) {
        if (a.type.dims[drop[i]] != 1) {
            wf_arg_fail(&a, WEFT_ESHAPE, "only axes of extent 1 can be dropped",
                        "axis %d has extent %lld", (int)drop[i], (long long)a.type.dims[drop[i]]);
            return a.error;
        }
        mask |= 1u << drop[i];
    }
    for (int i = 0; i < a.type.rank; i++) {
        if (axes.n == 0 ? a.type.dims[i] != 1 : !(mask & (1u << i))) {
            dims[rank++] = a.type.dims[i];
        }
    }
    return wf_api_reshape(x, rank, dims);
}

weft_tensor(weft_unsqueeze)(weft_tensor x, int axis)
{
    wf_arg a;
    int64_t at, dims[WF_MAX_RANK + 1];
    if (!wf_arg_open(&a, "unsqueeze", x) || !wf_arg_axis(&a, a.type.rank + 1, axis, &at)) {
        return a.error;
    }
    if (a.type.rank == WF_MAX_RANK) {
        wf_arg_fail(&a, WEFT_ESHAPE, NULL, "the result would have rank %d; 16 is the largest",
                    WF_MAX_RANK + 1);
        return a.error;
    }
    for (int i = 0; i <= a.type.rank; i++) {
        dims[i] = i == at ? 1 : a.type.dims[i - (i > at)];
    }
    return wf_api_reshape(x, a.type.rank + 1, dims);
}

static weft_tensor permute(weft_tensor x, int rank, const int64_t *axes)
{
    return wf_op1(WF_OP_PERMUTE, &(wf_attr){.n_ints = (uint8_t)rank, .ints = axes}, x);
}

weft_tensor(weft_transpose)(weft_tensor x, int axis0, int axis1)
{
    wf_arg a;
    int64_t i, j, p[WF_MAX_RANK];
    if (!wf_arg_open(&a, "transpose", x) || !wf_arg_axis(&a, a.type.rank, axis0, &i) ||
        !wf_arg_axis(&a, a.type.rank, axis1, &j)) {
        return a.error;
    }
    for (int k = 0; k < a.type.rank; k++) {
        p[k] = k == i ? j : k == j ? i : k;
    }
    return permute(x, a.type.rank, p);
}

weft_tensor(weft_permute)(weft_tensor x, weft_axes axes)
{
    wf_arg a;
    int64_t p[WF_MAX_RANK];
    int n;
    if (!wf_arg_open(&a, "permute", x) || !wf_arg_axes(&a, &axes, p, &n)) {
        return a.error;
    }
    return permute(x, n, p);
}

static weft_tensor expand(const char *op, weft_tensor x, weft_shape shape, bool keep)
{
    wf_arg a;
    if (!wf_arg_open(&a, op, x) || !wf_arg_shape(&a, &shape)) {
        return a.error;
    }
    int lead = (int)shape.n - a.type.rank;
    for (int i = 0; keep && i < shape.n; i++) {
        if (shape.v[i] == -1 && i >= lead) {
            shape.v[i] = a.type.dims[i - lead];
        }
    }
    WF_CALLED(w, op, x);
    wf_attr attr = {.n_dyn = (uint8_t)shape.n, .dyn = shape.v};
    return wf_called_end(&w, wf_op1(WF_OP_EXPAND, &attr, x));
}

weft_tensor(weft_expand)(weft_tensor x, weft_shape shape)
{
    return expand("expand", x, shape, true);
}

weft_tensor(weft_broadcast_to)(weft_tensor x, weft_shape shape)
{
    return expand("broadcast_to", x, shape, false);
}

/* -- slices ----------------------------------------------------------------------------------------------- */

static weft_tensor slice_row(weft_tensor x, int64_t axis, int64_t start, int64_t stop, int64_t step)
{
    int64_t dyn[3] = {start, stop, step};
    return wf_op1(WF_OP_SLICE, &(wf_attr){.n_ints = 1, .ints = &axis, .n_dyn = 3, .dyn = dyn}, x);
}

static int64_t clip(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* One end of a slice of n elements: negative counts from the end, then clipped. */
static int64_t slice_end(int64_t v, int64_t n, int64_t lo, int64_t hi)
{
    return v < 0 ? clip(v < -n ? -1 : v + n, lo, hi) : clip(v, lo, hi);
}

/* What slice_row takes for start:stop:step of n elements; false with an error for a step of 0. */
static bool slice_ends(wf_arg *a, int64_t n, int64_t ends[3])
{
    int64_t start = ends[0], stop = ends[1], step = ends[2] == WEFT_OMIT ? 1 : ends[2];
    if (step == 0) {
        wf_arg_fail(a, WEFT_EINVALID, "a step is positive or negative", "the step is 0");
        return false;
    }
    int64_t longest = n < INT64_MAX ? n + 1 : n;
    step = clip(step, -longest, longest); /* longer steps all miss the second element */
    int64_t b, e;
    if (step > 0) {
        b = start == WEFT_OMIT ? 0 : slice_end(start, n, 0, n);
        e = stop == WEFT_OMIT ? n : slice_end(stop, n, 0, n);
        e = e < b ? b : e;
    } else {
        b = start == WEFT_OMIT ? n - 1 : slice_end(start, n, -1, n - 1);
        e = stop == WEFT_OMIT ? -1 : slice_end(stop, n, -1, n - 1);
        e = e > b ? b : e;
    }
    ends[0] = b;
    ends[1] = e;
    ends[2] = step;
    return true;
}

weft_tensor(weft_slice)(weft_tensor x, int axis, int64_t start, int64_t stop, int64_t step)
{
    wf_arg a;
    int64_t i, ends[3] = {start, stop, step};
    if (!wf_arg_open(&a, "slice", x) || !wf_arg_axis(&a, a.type.rank, axis, &i) ||
        !slice_ends(&a, a.type.dims[i], ends)) {
        return a.error;
    }
    return slice_row(x, i, ends[0], ends[1], ends[2]);
}

weft_tensor(weft_narrow)(weft_tensor x, int axis, int64_t start, int64_t length)
{
    wf_arg a;
    int64_t i;
    if (!wf_arg_open(&a, "narrow", x) || !wf_arg_axis(&a, a.type.rank, axis, &i)) {
        return a.error;
    }
    int64_t n = a.type.dims[i], s = start < 0 && start >= -n ? start + n : start;
    if (s < 0 || s > n || length < 0 || length > n - s) {
        wf_arg_fail(&a, WEFT_ESHAPE, "weft_slice clips to what there is",
                    "%lld elements from %lld do not lie inside axis %d of %lld elements",
                    (long long)length, (long long)start, (int)i, (long long)n);
        return a.error;
    }
    return slice_row(x, i, s, s + length, 1);
}

/* An element's number from 0; -1 with an error if the axis does not have it. */
static int64_t element(wf_arg *a, int64_t axis, int64_t index)
{
    int64_t n = a->type.dims[axis], s = index < 0 && index >= -n ? index + n : index;
    if (s >= 0 && s < n) {
        return s;
    }
    char hint[96];
    snprintf(hint, sizeof hint,
             n ? "indices run from 0 to %lld, or from -%lld to -1 from the end"
               : "the axis is empty, so no index is valid",
             (long long)n - 1, (long long)n);
    wf_arg_fail(a, WEFT_EINDEX, hint, "index %lld is out of range for axis %d of %lld elements",
                (long long)index, (int)axis, (long long)n);
    return -1;
}

weft_tensor(weft_select)(weft_tensor x, int axis, int64_t index)
{
    wf_arg a;
    int64_t i, s, dims[WF_MAX_RANK];
    if (!wf_arg_open(&a, "select", x) || !wf_arg_axis(&a, a.type.rank, axis, &i) ||
        (s = element(&a, i, index)) < 0) {
        return a.error;
    }
    int r = 0;
    for (int k = 0; k < a.type.rank; k++) {
        if (k != i) {
            dims[r++] = a.type.dims[k];
        }
    }
    weft_scope sc = weft_scope_begin();
    weft_tensor y = slice_row(x, i, s, s + 1, 1);
    return weft_scope_return(sc, wf_api_reshape(y, r, dims));
}

/* -- NumPy's basic indexing ------------------------------------------------------------------------------- */

/* What weft_index does: a slice of each axis of x, then the extents of the result, without the axes of single elements
 * and with the new ones. */
typedef struct index_plan {
    int64_t ends[WF_MAX_RANK][3];
    int64_t dims[2 * WF_MAX_RANK];
    int axis, rank; /* axes of x and of the result so far */
} index_plan;

/* The next `n` axes of x whole. */
static void take_whole(index_plan *p, const wf_arg *a, int n)
{
    for (; n > 0; n--, p->axis++) {
        p->ends[p->axis][1] = p->dims[p->rank++] = a->type.dims[p->axis];
        p->ends[p->axis][2] = 1;
    }
}

static int64_t slice_length(const int64_t ends[3])
{
    int64_t far = ends[2] > 0 ? ends[1] - ends[0] : ends[0] - ends[1];
    int64_t step = ends[2] > 0 ? ends[2] : -ends[2];
    return far / step + (far % step != 0);
}

/* One term; false with an error. `left`: axes of x that no term names, for the ellipsis. */
static bool take_term(index_plan *p, wf_arg *a, const weft_index_term *t, int left)
{
    int64_t *ends = p->ends[p->axis < WF_MAX_RANK ? p->axis : 0];
    switch (t->kind) {
    case WEFT_TERM_SPAN:
        ends[0] = t->start, ends[1] = t->stop, ends[2] = t->step;
        if (!slice_ends(a, a->type.dims[p->axis++], ends)) {
            return false;
        }
        p->dims[p->rank++] = slice_length(ends);
        return true;
    case WEFT_TERM_AT:
        if ((ends[0] = element(a, p->axis, t->start)) < 0) {
            return false;
        }
        ends[1] = ends[0] + 1, ends[2] = 1;
        p->axis++; /* it has no extent in the result */
        return true;
    case WEFT_TERM_NEW_AXIS:
        p->dims[p->rank++] = 1;
        return true;
    default:
        take_whole(p, a, left);
        return true;
    }
}

/* Counts what n terms name: false with an error where they do not fit x. */
static bool count_terms(wf_arg *a, const weft_index_term *terms, int n, int *left)
{
    int named = 0, added = 0, gone = 0, dots = 0;
    for (int i = 0; i < n; i++) {
        int kind = terms[i].kind;
        if (kind < WEFT_TERM_SPAN || kind > WEFT_TERM_ELLIPSIS) {
            wf_arg_fail(a, WEFT_EINVALID,
                        "terms are weft_span, weft_at, WEFT_EVERY, WEFT_NEW_AXIS, WEFT_ELLIPSIS",
                        "term %d is of no kind there is (%d)", i, kind);
            return false;
        }
        named += kind == WEFT_TERM_SPAN || kind == WEFT_TERM_AT;
        gone += kind == WEFT_TERM_AT;
        added += kind == WEFT_TERM_NEW_AXIS;
        dots += kind == WEFT_TERM_ELLIPSIS;
    }
    *left = a->type.rank - named;
    if (dots > 1) {
        wf_arg_fail(a, WEFT_EINVALID, "one ellipsis stands for all axes that are not named",
                    "%d ellipses are given", dots);
    } else if (*left < 0) {
        wf_arg_fail(a, WEFT_ESHAPE, "give at most one term for each axis",
                    "%d axes are indexed, but the tensor has %d", named, a->type.rank);
    } else if (a->type.rank - gone + added > WF_MAX_RANK) {
        wf_arg_fail(a, WEFT_ESHAPE, NULL, "the result would have rank %d; 16 is the largest",
                    a->type.rank - gone + added);
    } else {
        return true;
    }
    return false;
}

weft_tensor(weft_index)(weft_tensor x, const weft_index_term *terms, int n)
{
    wf_arg a;
    index_plan p = {0};
    int left = 0;
    if (!wf_arg_open(&a, "index", x)) {
        return a.error;
    }
    if (n < 0 || (n > 0 && !terms)) {
        wf_arg_fail(&a, WEFT_EINVALID, NULL, "%d terms at %s", n, terms ? "an address" : "NULL");
        return a.error;
    }
    if (!count_terms(&a, terms, n, &left)) {
        return a.error;
    }
    for (int i = 0; i < n; i++) {
        if (!take_term(&p, &a, &terms[i], left)) {
            return a.error;
        }
    }
    take_whole(&p, &a, a.type.rank - p.axis);
    bool same = true; /* no axis goes or comes: what is sliced has its extents */
    for (int i = 0; i < n; i++) {
        same = same && terms[i].kind != WEFT_TERM_AT && terms[i].kind != WEFT_TERM_NEW_AXIS;
    }
    weft_scope sc = weft_scope_begin();
    weft_tensor y = x;
    int sliced = 0;
    for (int i = 0; i < a.type.rank; i++) {
        const int64_t *e = p.ends[i];
        if (e[0] != 0 || e[1] != a.type.dims[i] || e[2] != 1) {
            y = slice_row(y, i, e[0], e[1], e[2]);
            sliced++;
        }
    }
    y = same && sliced ? y : wf_api_reshape(y, p.rank, p.dims);
    return weft_scope_return(sc, y);
}

weft_tensor(weft_flip)(weft_tensor x, weft_axes axes)
{
    wf_arg a;
    int64_t list[WF_MAX_RANK];
    int n;
    if (!wf_arg_open(&a, "flip", x) || !wf_arg_axes(&a, &axes, list, &n)) {
        return a.error;
    }
    if (axes.n == 0) {
        n = a.type.rank;
        for (int i = 0; i < n; i++) {
            list[i] = i;
        }
    }
    if (n == 0) {
        return wf_api_alias(x, &a.type);
    }
    weft_scope sc = weft_scope_begin();
    for (int i = 0; i < n; i++) {
        x = slice_row(x, list[i], a.type.dims[list[i]] - 1, -1, -1);
    }
    return weft_scope_return(sc, x);
}

/* -- free-form views --------------------------------------------------------------------------------------- */

/* The axes of an operand in the order of its memory, where that is without gaps, but not row-major. The derivative of
 * as_strided counts elements in the order of values: of such a view they are those of memory. */
static bool is_turned(const wf_arg *of, int64_t *axes)
{
    const int64_t *d = of->type.dims, *st = of->strides;
    int64_t step = 1;
    bool turned = false;
    for (int i = 0; i < of->type.rank; i++) {
        int at = i;
        for (; at > 0 && st[axes[at - 1]] < st[i]; at--) {
            axes[at] = axes[at - 1];
            turned = true;
        }
        axes[at] = i;
    }
    for (int i = of->type.rank; turned && i-- > 0;) {
        turned = st[axes[i]] == step;
        step *= d[axes[i]];
    }
    return turned && step > 0;
}

static weft_tensor as_strided(const wf_arg *of, int rank, const int64_t *dims,
                              const int64_t *strides, int64_t offset)
{
    int64_t ints = rank, dyn[2 * WF_MAX_RANK + 1];
    memcpy(dyn, dims, (size_t)rank * sizeof *dyn);
    memcpy(dyn + rank, strides, (size_t)rank * sizeof *dyn);
    dyn[2 * rank] = offset;
    wf_attr attr = {.n_ints = 1, .ints = &ints, .n_dyn = (uint8_t)(2 * rank + 1), .dyn = dyn};
    weft_tensor x = of->x;
    int64_t axes[WF_MAX_RANK];
    if (is_turned(of, axes)) {
        weft_scope sc = weft_scope_begin();
        x = wf_op1(WF_OP_PERMUTE, &(wf_attr){.n_ints = of->type.rank, .ints = axes}, x);
        return weft_scope_return(sc, wf_op1(WF_OP_AS_STRIDED, &attr, x));
    }
    return wf_op1(WF_OP_AS_STRIDED, &attr, x);
}

weft_tensor(weft_as_strided)(weft_tensor x, weft_shape shape, weft_shape strides, int64_t offset)
{
    wf_arg a;
    if (!wf_arg_open(&a, "as_strided", x) || !wf_arg_shape(&a, &shape)) {
        return a.error;
    }
    if (shape.n != strides.n) {
        wf_arg_fail(&a, WEFT_ESHAPE, "give one stride for every extent",
                    "%lld extents and %lld strides are given", (long long)shape.n,
                    (long long)strides.n);
        return a.error;
    }
    return as_strided(&a, (int)shape.n, shape.v, strides.v, offset);
}

weft_tensor(weft_diagonal)(weft_tensor x, int64_t offset, int axis0, int axis1)
{
    wf_arg a;
    int64_t ints[2];
    int n;
    weft_axes axes = {.n = 2, .v = {axis0, axis1}};
    if (!wf_arg_open(&a, "diagonal", x) || !wf_arg_axes(&a, &axes, ints, &n)) {
        return a.error;
    }
    return wf_op1(WF_OP_DIAGONAL, &(wf_attr){.n_ints = 2, .ints = ints, .n_dyn = 1, .dyn = &offset},
                  x);
}

static bool is_tracked(const wf_arg *a)
{
    bool pinned = false;
    wf_slot *s = wf_is_scalar(a->x) ? NULL : wf_pin(a->c, a->x, &pinned, NULL);
    const bool tracked = s && wf_slot_tracked(s);
    if (pinned) {
        wf_unpin(a->c, s);
    }
    return tracked;
}

/* x: of this thread's innermost scope, or an error. */
static void make_read_only(wf_ctx *c, weft_tensor x)
{
    bool pinned = false;
    wf_slot *s = wf_is_error(x) ? NULL : wf_pin(c, x, &pinned, NULL);
    if (s) {
        s->st->read_only = true;
    }
    if (pinned) {
        wf_unpin(c, s);
    }
}

weft_tensor(weft_unfold)(weft_tensor x, int axis, int64_t size, int64_t step)
{
    wf_arg a;
    int64_t i, dims[WF_MAX_RANK + 1], strides[WF_MAX_RANK + 1];
    if (!wf_arg_open(&a, "unfold", x) || !wf_arg_axis(&a, a.type.rank, axis, &i)) {
        return a.error;
    }
    int r = a.type.rank;
    int64_t n = a.type.dims[i];
    if (size < 0 || size > n || step < 1) {
        wf_arg_fail(&a, WEFT_ESHAPE, "the size is 0 to the extent, the step 1 or more",
                    "windows of %lld every %lld do not fit axis %d of %lld elements",
                    (long long)size, (long long)step, (int)i, (long long)n);
        return a.error;
    }
    if (r == WF_MAX_RANK) {
        wf_arg_fail(&a, WEFT_ESHAPE, NULL, "the result would have rank %d; 16 is the largest",
                    WF_MAX_RANK + 1);
        return a.error;
    }
    if (wf_grad_enabled(a.c) && !wf_map_is_injective(r, a.type.dims, a.strides) && is_tracked(&a)) {
        /* Of an expanded tensor: strides do not tell which of the indices on one element a window has, gradients do. A write to
         * the windows fails as it does without gradients, and does not go to the copy alone. */
        weft_scope sc = weft_scope_begin();
        x = wf_op1(WF_OP_COPY, &(wf_attr){0}, x);
        make_read_only(a.c, x);
        return weft_scope_return(sc, (weft_unfold)(x, axis, size, step));
    }
    memcpy(dims, a.type.dims, (size_t)r * sizeof *dims);
    memcpy(strides, a.strides, (size_t)r * sizeof *strides);
    dims[i] = (n - size) / step + 1;
    dims[r] = size;
    strides[r] = strides[i];
    strides[i] = dims[i] > 1 ? strides[i] * step : 0;
    return as_strided(&a, r + 1, dims, strides, 0);
}

/* -- several views ------------------------------------------------------------------------------------------- */

static weft_status fail_parts(wf_arg *a, int n, weft_tensor *out)
{
    for (int i = 0; i < n; i++) {
        out[i] = a->error;
    }
    return weft_error_status(a->error);
}

static bool parts_given(const char *op, const void *sizes, int n, const weft_tensor *out)
{
    if (n > 0 && (!out || !sizes)) {
        wf_api_null(op, !out ? "the array of results" : "the array of sizes");
        return false;
    }
    return true;
}

weft_status(weft_split)(weft_tensor x, int axis, const int64_t *sizes, int n, weft_tensor *out)
{
    wf_arg a;
    int64_t i, sum = 0;
    const char *site = wf_take_here(wf_ctx_get());
    if (!parts_given("split", sizes, n, out)) {
        return WEFT_EINVALID;
    }
    if (!wf_arg_open(&a, "split", x) || !wf_arg_axis(&a, a.type.rank, axis, &i)) {
        return fail_parts(&a, n, out);
    }
    for (int k = 0; k < n; k++) {
        if (sizes[k] < 0 || __builtin_add_overflow(sum, sizes[k], &sum)) {
            sum = -1;
            break;
        }
    }
    if (sum != a.type.dims[i]) {
        wf_arg_fail(&a, WEFT_ESHAPE, "sizes are 0 or more and sum to the extent",
                    "%d sizes do not sum to the %lld elements of axis %d", n,
                    (long long)a.type.dims[i], (int)i);
        return fail_parts(&a, n, out);
    }
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        out[k] = slice_row(x, i, at, at + sizes[k], 1);
        at += sizes[k];
        if (out[k].slot == 0) {
            a.error = out[k];
            return fail_parts(&a, n, out);
        }
    }
    wf_site_results(site, out, n);
    return WEFT_OK;
}

weft_status(weft_chunk)(weft_tensor x, int axis, int n, weft_tensor *out)
{
    wf_arg a;
    int64_t i;
    const char *site = wf_take_here(wf_ctx_get());
    if (!parts_given("chunk", "", n, out)) {
        return WEFT_EINVALID;
    }
    if (!wf_arg_open(&a, "chunk", x) || !wf_arg_axis(&a, a.type.rank, axis, &i)) {
        return fail_parts(&a, n, out);
    }
    if (n < 1) {
        wf_arg_fail(&a, WEFT_EINVALID, "ask for 1 or more", "%d chunks are asked for", n);
        return weft_error_status(a.error);
    }
    int64_t whole = a.type.dims[i] / n, extra = a.type.dims[i] % n, at = 0;
    for (int k = 0; k < n; k++) {
        int64_t size = whole + (k < extra);
        out[k] = slice_row(x, i, at, at + size, 1);
        at += size;
        if (out[k].slot == 0) {
            a.error = out[k];
            return fail_parts(&a, n, out);
        }
    }
    wf_site_results(site, out, n);
    return WEFT_OK;
}
