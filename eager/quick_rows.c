/*
 * eager/quick_rows.c -- the short ways of rows that are not elementwise: views, reductions, copies, and every other one of a
 * few operands.
 *
 * As in eager/quick.c: operands of the host that hold a value, no trace, no other device; whatever is not that simple
 * is left to the general way, untouched, which says what is wrong with it.
 *   views       are mapped from slot to slot; operand and result share memory that as a rule no other thread can
 *               reach, so that counting the second reference takes no locked instruction
 *   reductions  of row-major tensors along neighbouring axes reach their kernel as [outer, reduced, inner]; so do those of
 *               small views, once their elements have been brought together
 *   copies      and casts of row-major tensors are one call of their kernel, of small views a strip at a time
 *   others      are inferred and run as ever, without a call that could be traced or moved to a device around it; those
 *               whose results lie channels-last are left out
 *
 * Invariants: the same kernel as the general way on the same elements in the same order, so the same bits; a false
 * answer has changed nothing.
 */
#include <string.h>

#include "eager/device.h"
#include "eager/kernels/kernels.h"
#include "eager/layout.h"
#include "eager/pool.h"
#include "eager/quick_int.h"
#include "eager/reduce.h"
#include "eager/strips.h"

static const wf_attr no_attr;

/* An op on its way. */
typedef struct row_call {
    wf_ctx *c;
    wf_op op;
    const wf_attr *attr;
    int nsrc, ndst;
    const weft_tensor *src;
    weft_tensor *dst;
    wf_slot *slot[WF_QUICK_ROW_SRC];
    uint64_t tracked;
    unsigned pins;
} row_call;

/* Operands that are plain tensors, or absent. */
static bool open_call(row_call *k)
{
    for (int i = 0; i < k->nsrc; i++) {
        k->slot[i] = NULL;
        if (i > 0 && wf_is_absent(k->src[i])) {
            continue;
        }
        const found f = look_up(k->c, k->src[i]);
        wf_slot *s = k->slot[i] = f.slot;
        k->pins |= f.pinned << i;
        if (!s || !is_plain(s->st, NULL)) {
            return false;
        }
        k->tracked |= (s->flags & WF_SLOT_REQUIRES_GRAD) | s->node | s->st->roots;
    }
    return true;
}

static failed failed_call(const row_call *k, int made, wf_slot *const *r)
{
    return (failed){k->c, k->op, k->nsrc, k->ndst, made, k->src, k->dst, r};
}

__attribute__((noinline, cold)) static int fail(const row_call *k, int made, wf_slot *const *r,
                                                const wf_why *why)
{
    const failed f = failed_call(k, made, r);
    return wf_quick_fail(&f, why);
}

__attribute__((noinline, cold)) static int no_memory(const row_call *k, int made, wf_slot *const *r,
                                                     int64_t n)
{
    const failed f = failed_call(k, made, r);
    return wf_quick_no_memory(&f, n);
}

/* The tape gets the op, if it is wanted there. The status. */
ALWAYS int record(row_call *k, wf_slot *const *r)
{
    if (__builtin_expect(!k->tracked || !wf_grad_enabled(k->c), 1)) {
        return 0;
    }
    wf_why why;
    wf_why_clear(&why);
    return wf_op_record(k->c, k->op, k->attr, k->nsrc, k->slot, k->src, k->ndst, r, &why)
               ? fail(k, k->ndst, r, &why)
               : 0;
}

/* -- views ------------------------------------------------------------------------------------------------------ */

/* n *= d, unless an extent of 0 or so large a product is for inference to look at. */
static inline bool times(int64_t *n, int64_t d)
{
    static const int64_t most = (int64_t)1 << 40;
    return d > 0 && !__builtin_mul_overflow(*n, d, n) && *n <= most;
}

static bool permute(wf_quick_map *m, wf_slot *s, const wf_attr *a)
{
    unsigned seen = 0;
    if (a->n_ints != s->rank) {
        return false;
    }
    for (int i = 0; i < s->rank; i++) {
        const uint64_t k = (uint64_t)a->ints[i];
        if (k >= s->rank || seen >> k & 1) {
            return false;
        }
        seen |= 1u << k;
        m->d[i] = s->dims_[k];
        m->st[i] = s->strides_[k];
    }
    return true;
}

static bool expand(wf_quick_map *m, wf_slot *s, const wf_attr *a)
{
    const int lead = a->n_dyn - s->rank;
    int64_t n = 1;
    if (lead < 0 || a->n_dyn > WF_INLINE_RANK) {
        return false;
    }
    m->rank = a->n_dyn;
    for (int i = 0; i < m->rank; i++) {
        const int64_t want = a->dyn[i], is = i < lead ? 1 : s->dims_[i - lead];
        if ((is != want && is != 1) || !times(&n, want)) {
            return false;
        }
        m->d[i] = want;
        m->st[i] = i >= lead && is == want ? s->strides_[i - lead] : 0;
    }
    return true;
}

/* Of a slice that has elements, one after the other. */
static bool slice(wf_quick_map *m, wf_slot *s, const wf_attr *a)
{
    if (a->n_ints != 1 || a->n_dyn != 3 || a->n_flt != 0) {
        return false;
    }
    const uint64_t axis = (uint64_t)a->ints[0];
    const int64_t start = a->dyn[0], stop = a->dyn[1];
    if (axis >= s->rank || a->dyn[2] != 1 || start < 0 || start >= stop || stop > s->dims_[axis]) {
        return false;
    }
    for (int i = 0; i < s->rank; i++) {
        m->d[i] = s->dims_[i];
        m->st[i] = s->strides_[i];
        if (m->d[i] == 0) {
            return false;
        }
    }
    m->d[axis] = stop - start;
    m->at = start * s->strides_[axis];
    return true;
}

/* Of a row-major tensor with elements. */
static bool reshape(wf_quick_map *m, wf_slot *s, const wf_attr *a)
{
    int64_t n = 1;
    if (a->n_dyn > WF_INLINE_RANK) {
        return false;
    }
    m->rank = a->n_dyn;
    for (int i = m->rank; i-- > 0;) {
        m->d[i] = a->dyn[i];
        m->st[i] = n;
        if (!times(&n, m->d[i])) {
            return false;
        }
    }
    return wf_slot_row_major(s) == n;
}

static bool detach(wf_quick_map *m, wf_slot *s)
{
    for (int i = 0; i < s->rank; i++) {
        m->d[i] = s->dims_[i];
        m->st[i] = s->strides_[i];
    }
    return true;
}

bool wf_quick_map_view(wf_quick_map *m, wf_op op, const wf_attr *a, wf_slot *s)
{
    m->rank = s->rank;
    m->at = 0;
    return s->rank <= WF_INLINE_RANK && (op == WF_OP_PERMUTE   ? permute(m, s, a)
                                         : op == WF_OP_RESHAPE ? reshape(m, s, a)
                                         : op == WF_OP_SLICE   ? slice(m, s, a)
                                         : op == WF_OP_EXPAND  ? expand(m, s, a)
                                         : op == WF_OP_DETACH  ? detach(m, s)
                                                               : false);
}

static bool run_view(row_call *k, int *rc)
{
    wf_quick_map m;
    wf_slot *s = k->slot[0];
    if (!wf_quick_map_view(&m, k->op, k->attr, s)) {
        return false;
    }
    wf_slot *r = put_view_in_slot(k->c, s, &m, k->dst);
    if (__builtin_expect(!r, 0)) {
        return false; /* the general way will not get one, either */
    }
    *rc = record(k, &r);
    if (__builtin_expect(!*rc, 1)) {
        wf_slot_view_made(k->c, k->op, s, r);
    }
    return true;
}

/* -- reductions ------------------------------------------------------------------------------------------------- */

/* Row-major elements as [outer, reduced, inner]; or, where outer or inner is 1, rows of the last one of the other two, `pitch`
 * elements apart. */
typedef struct split {
    int64_t outer, reduced, inner, pitch;
    unsigned axes;
} split;

static bool pick_axes(split *g, const wf_slot *s, const wf_attr *a)
{
    g->axes = 0;
    for (int k = 0; k < a->n_ints; k++) {
        const uint64_t axis = (uint64_t)a->ints[k];
        if (axis >= s->rank || g->axes >> axis & 1) {
            return false;
        }
        g->axes |= 1u << axis;
    }
    g->axes = a->n_ints ? g->axes : (1u << s->rank) - 1;
    return true;
}

/* False: the strides are others, or the axes not neighbours. */
static bool split_axes(split *g, int rank, const int64_t *d, const int64_t *st)
{
    int64_t n = 1;
    int i = rank;
    g->outer = g->reduced = g->inner = 1;
    for (; i > 0 && !(g->axes >> (i - 1) & 1); i--) {
        if (st[i - 1] != n) {
            return false;
        }
        n *= d[i - 1];
    }
    g->inner = n;
    for (; i > 0 && g->axes >> (i - 1) & 1; i--) {
        if (st[i - 1] != n) {
            return false;
        }
        n *= d[i - 1];
        g->reduced *= d[i - 1];
    }
    for (; i > 0; i--) {
        if (st[i - 1] != n || g->axes >> (i - 1) & 1) {
            return false;
        }
        n *= d[i - 1];
        g->outer *= d[i - 1];
    }
    g->pitch = g->inner > 1 ? g->inner : g->reduced;
    return n > 0;
}

/* The same of a matrix that lies transposed, or whose rows in memory are apart: they are what is reduced, or what is kept. *last: not
 * transposed. */
static bool split_matrix(split *g, const wf_slot *s, bool *last)
{
    int64_t n[2] = {1, 1}, st[2] = {0, 0};
    int inner = -1;
    for (int i = s->rank; i-- > 0;) {
        const int64_t d = s->dims_[i];
        const int w = g->axes >> i & 1;
        if (d == 1) {
            continue;
        }
        if (n[w] != 1 && s->strides_[i] != st[w] * n[w]) {
            return false;
        }
        st[w] = n[w] == 1 ? s->strides_[i] : st[w];
        n[w] *= d;
        inner = inner < 0 ? w : inner;
    }
    const int row = st[0] == 1 ? 0 : 1;
    if (n[0] < 2 || n[1] < 2 || st[row] != 1 || st[!row] < n[row]) {
        return false;
    }
    g->reduced = n[1];
    g->inner = row ? 1 : n[0];
    g->outer = row ? n[0] : 1;
    g->pitch = st[!row];
    *last = inner == row;
    return true;
}

/* Type of the result: inference says which; 0: it is to be asked about it. */
static int result_type(wf_op op, int want, int dtype)
{
    switch (wf_rows[op].kind == WF_KIND_REDUCE ? (int)op : 0) {
    case WF_OP_AMAX:
    case WF_OP_AMIN:
        return dtype;
    case WF_OP_ANY:
    case WF_OP_ALL:
        return WEFT_BOOL;
    case WF_OP_COUNT_NONZERO:
    case WF_OP_ARGMAX:
    case WF_OP_ARGMIN:
        return WEFT_I64;
    case WF_OP_SUM:
    case WF_OP_PROD:
    case WF_OP_MEAN:
    case WF_OP_VAR:
    case WF_OP_STD:
    case WF_OP_NORM:
    case WF_OP_LOGSUMEXP:
        return want == WEFT_DTYPE_DEFAULT && wf_dtype_kind(dtype) == 2 ? dtype : 0;
    }
    return 0;
}

/* Extents of the result. */
ALWAYS void reduced_shape(wf_slot *r, wf_slot *s, const split *g, bool keep)
{
    const int64_t *d = wf_dims(s);
    int64_t step = 1;
    int at = s->rank;
    for (int i = s->rank; !keep && i-- > 0;) {
        at -= (int)(g->axes >> i & 1);
    }
    r->rank = (uint8_t)at;
    for (int i = s->rank; i-- > 0;) {
        const bool gone = g->axes >> i & 1;
        if (!gone || keep) {
            r->dims_[--at] = gone ? 1 : d[i];
            r->strides_[at] = step;
            step *= r->dims_[at];
        }
    }
}

/* The plain ones, in one task: the kernel at once. */
static bool reduce_now(wf_op op, wf_slot *s, const void *x, const split *g, wf_slot *r)
{
    enum { FEW = 1024 };
    _Alignas(64) char few[FEW * 8];
    static const uint8_t red[WF_OP_COUNT] = {[WF_OP_SUM] = WF_RED_SUM + 1,
                                             [WF_OP_MEAN] = WF_RED_SUM + 1,
                                             [WF_OP_PROD] = WF_RED_PROD + 1,
                                             [WF_OP_AMAX] = WF_RED_MAX + 1,
                                             [WF_OP_AMIN] = WF_RED_MIN + 1};
    const int compute = wf_red_compute(s->dtype);
    const int64_t n = g->outer * g->inner;
    const bool direct = r->dtype == compute;
    if (!red[op] || r->dtype != s->dtype || (!direct && n > FEW)) {
        return false;
    }
    const wf_red what = (wf_red)(red[op] - 1);
    void *out = direct ? wf_slot_data(r) : few;
    if (!(g->inner == 1   ? wf_red_rows(what, s->dtype, out, x, g->reduced, n, g->pitch)
          : g->outer == 1 ? wf_red_columns(what, s->dtype, out, x, g->reduced, n, g->pitch)
                          : false)) {
        return false;
    }
    if (op == WF_OP_MEAN) {
        wf_red_divide(out, compute, (double)g->reduced, false, n);
    }
    if (!direct) {
        wf_red_kernels_of(compute)->store(wf_slot_data(r), r->dtype, few, n);
    }
    return true;
}

/* The row's way, on a view without axes of one element. */
__attribute__((noinline)) static int reduce_by_row(row_call *k, wf_slot *s, void *data,
                                                   const split *g, wf_slot *r)
{
    wf_view x, d = {.data = wf_slot_data(r), .dtype = r->dtype, .rank = 1};
    int64_t axis;
    wf_why why;
    wf_why_clear(&why);
    wf_slot_view(s, &x);
    x.data = data;
    x.rank = 0;
    if (g->outer > 1) {
        x.dims[x.rank] = g->outer;
        x.strides[x.rank++] = g->inner > 1 ? g->reduced * g->inner : g->pitch;
    }
    axis = x.rank;
    x.dims[x.rank] = g->reduced;
    x.strides[x.rank++] = g->inner > 1 ? g->pitch : 1;
    if (g->inner > 1) {
        x.dims[x.rank] = g->inner;
        x.strides[x.rank++] = 1;
    }
    d.dims[0] = g->outer * g->inner;
    d.strides[0] = 1;
    wf_attr along = *k->attr;
    along.n_ints = 1;
    along.ints = &axis;
    wf_exec e = {
        .op = k->op, .nsrc = 1, .ndst = 1, .src = &x, .dst = &d, .attr = &along, .why = &why};
    const int rc = wf_exec_row(&e);
    return __builtin_expect(rc != 0, 0) ? fail(k, 1, &r, &why) : 0;
}

/* Of elements that lie at x. The status. */
ALWAYS int reduce(row_call *k, int dtype, void *x, const split *g)
{
    wf_slot *s = k->slot[0];
    const int64_t n = g->outer * g->inner;
    wf_slot *r = make(k->c, dtype, n, k->dst);
    if (__builtin_expect(!r, 0)) {
        return no_memory(k, 0, NULL, n);
    }
    reduced_shape(r, s, g, k->attr->flags & WF_FLAG_KEEPDIM);
    const unsigned mode = wf_fpenv_enter();
    const int rc =
        __builtin_expect(reduce_now(k->op, s, x, g, r), 1) ? 0 : reduce_by_row(k, s, x, g, r);
    wf_fpenv_leave(mode);
    return __builtin_expect(rc != 0, 0) ? rc : record(k, &r);
}

/* Bytes that are brought together: what a first cache holds, and of columns, which take longer where they are, twice that. */
enum {
    FEW_BYTES = 1 << 15,
    FEW_COLUMNS = 1 << 16,
    LEAST_BYTES = 256 /* of rows apart that are reduced where they lie */
};

/* The elements of s in their row-major order, in `to`. False: no two axes stand for all. */
static bool bring_together(wf_slot *s, void *to)
{
    wf_strips t;
    wf_strips_open(&t, 1, 0);
    for (int i = s->rank; i-- > 0;) {
        if (!wf_strips_axis(&t, s->dims_[i], &s->strides_[i])) {
            return false;
        }
    }
    wf_strips_copy(&t, s->dtype, to, s->dtype, wf_slot_data(s));
    return true;
}

/* A view: as it lies, where kernels are as fast either way, or, of few elements, when they have been brought together. */
__attribute__((noinline)) static bool reduce_view(row_call *k, int dtype, split *g, int *rc)
{
    _Alignas(64) char few[FEW_COLUMNS];
    wf_slot *s = k->slot[0];
    int64_t dense[WF_INLINE_RANK], n = 1;
    const bool extreme = k->op == WF_OP_AMAX || k->op == WF_OP_AMIN,
               as_is = s->dtype == wf_red_compute(s->dtype);
    const bool sum = k->op == WF_OP_SUM || k->op == WF_OP_MEAN;
    bool last;
    if (split_matrix(g, s, &last) &&
        (!last ? as_is && !extreme
               : (as_is || (sum && (WF_BIT(s->dtype) & WF_DT_F))) &&
                     (g->inner > 1 ? g->inner : g->reduced) << wf_width(s->dtype) >= LEAST_BYTES)) {
        *rc = reduce(k, dtype, wf_slot_data(s), g);
        return true;
    }
    for (int i = s->rank; i-- > 0;) {
        dense[i] = n;
        if (!times(&n, s->dims_[i])) {
            return false;
        }
    }
    if (!split_axes(g, s->rank, s->dims_, dense) ||
        n > (g->inner > 1 ? FEW_COLUMNS : FEW_BYTES) >> wf_width(s->dtype) ||
        !bring_together(s, few)) {
        return false;
    }
    *rc = reduce(k, dtype, few, g);
    return true;
}

static bool run_reduce(row_call *k, int *rc)
{
    split g;
    wf_slot *s = k->slot[0];
    const wf_attr *a = k->attr;
    const int dtype = result_type(k->op, a->dtype, s->dtype);
    const bool one_axis = k->op == WF_OP_ARGMAX || k->op == WF_OP_ARGMIN;
    if (!dtype || s->rank > WF_INLINE_RANK || (one_axis && a->n_ints > 1) || !pick_axes(&g, s, a)) {
        return false;
    }
    if (__builtin_expect(!split_axes(&g, s->rank, s->dims_, s->strides_), 0)) {
        return reduce_view(k, dtype, &g, rc);
    }
    *rc = reduce(k, dtype, wf_slot_data(s), &g);
    return true;
}

/* -- copies ------------------------------------------------------------------------------------------------------- */

/* Of any other one. */
__attribute__((noinline)) static bool copy_view(row_call *k, int to, int *rc)
{
    wf_slot *x = k->slot[0];
    wf_strips s;
    int64_t n = 1;
    wf_strips_open(&s, 1, wf_width(to) > wf_width(x->dtype) ? wf_width(to) : wf_width(x->dtype));
    for (int i = x->rank; i-- > 0;) {
        if (!times(&n, x->dims_[i]) || n > s.most ||
            !wf_strips_axis(&s, x->dims_[i], &x->strides_[i])) {
            return false;
        }
    }
    wf_slot *r = make_shaped(k->c, to, x, n, k->dst);
    if (__builtin_expect(!r, 0)) {
        *rc = no_memory(k, 0, NULL, n);
        return true;
    }
    const unsigned mode = wf_fpenv_enter();
    wf_strips_copy(&s, to, wf_slot_data(r), x->dtype, wf_slot_data(x));
    wf_fpenv_leave(mode);
    *rc = record(k, &r);
    return true;
}

/* Of a row-major tensor that is one task, or of a view. */
static bool run_copy(row_call *k, int *rc)
{
    wf_slot *s = k->slot[0];
    const int64_t n = wf_slot_row_major(s);
    const int to = k->op == WF_OP_CAST ? k->attr->dtype : s->dtype;
    if (n == 0 || n > WF_COPY_SMALL || to <= WEFT_DTYPE_DEFAULT || to >= WF_NDTYPE) {
        return false;
    }
    if (n < 0) {
        return s->rank <= WF_INLINE_RANK && copy_view(k, to, rc);
    }
    wf_slot *r = make_as_wide(k->c, to, s, n, k->dst);
    if (__builtin_expect(!r, 0)) {
        *rc = no_memory(k, 0, NULL, n);
        return true;
    }
    const unsigned mode = wf_fpenv_enter();
    wf_cast_small(to, wf_slot_data(r), s->dtype, wf_slot_data(s), n);
    wf_fpenv_leave(mode);
    *rc = record(k, &r);
    return true;
}

/* -- every other row ---------------------------------------------------------------------------------------------- */

static bool run_row(row_call *k, int *rc)
{
    wf_type in[WF_QUICK_ROW_SRC], out[WF_MAX_DST];
    wf_view v[WF_QUICK_ROW_SRC], d[WF_MAX_DST];
    wf_slot *r[WF_MAX_DST];
    wf_why why;
    wf_why_clear(&why);
    for (int i = 0; i < k->nsrc; i++) {
        if (!k->slot[i]) {
            v[i].data = NULL;
            v[i].dtype = in[i].dtype = WEFT_DTYPE_DEFAULT;
            v[i].rank = in[i].rank = 0;
            continue;
        }
        wf_slot_view(k->slot[i], &v[i]);
        wf_slot_type(k->slot[i], &in[i]);
    }
    if (wf_infer(k->op, k->attr, k->nsrc, in, out, &why)) {
        return false;
    }
    for (int i = 0; i < k->ndst; i++) {
        int64_t n = 1; /* inference has seen that it fits */
        for (int axis = 0; axis < out[i].rank; axis++) {
            n *= out[i].dims[axis];
        }
        r[i] = make(k->c, out[i].dtype, n, &k->dst[i]);
        if (__builtin_expect(!r[i] || wf_slot_shape(r[i], out[i].rank, out[i].dims, NULL), 0)) {
            *rc = no_memory(k, i + (r[i] != NULL), r, n);
            return true;
        }
        wf_slot_view(r[i], &d[i]);
    }
    wf_exec e = {.op = k->op,
                 .nsrc = k->nsrc,
                 .ndst = k->ndst,
                 .src = v,
                 .dst = d,
                 .attr = k->attr,
                 .why = &why};
    const unsigned mode = wf_fpenv_enter();
    *rc = wf_exec_row(&e);
    wf_fpenv_leave(mode);
    *rc = __builtin_expect(*rc != 0, 0) ? fail(k, k->ndst, r, &why) : record(k, r);
    return true;
}

static bool run_other(row_call *k, int *rc)
{
    wf_slot *image =
        k->op == WF_OP_CAST || wf_op_keeps_last(k->op) ? k->slot[wf_image_of(k->op)] : NULL;
    if (k->op == WF_OP_VJP || (image && wf_slot_lies_last(image))) {
        return false; /* so do results: wf_row_lies_last */
    }
    return ((k->op == WF_OP_COPY || k->op == WF_OP_CAST) && run_copy(k, rc)) || run_row(k, rc);
}

bool wf_quick_row(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
                  int ndst, weft_tensor *dst, int *rc)
{
    row_call k;
    k.c = c;
    k.op = op;
    k.attr = attr ? attr : &no_attr;
    k.nsrc = nsrc;
    k.ndst = ndst;
    k.src = src;
    k.dst = dst;
    k.tracked = 0;
    k.pins = 0;
    const int kind = wf_rows[op].kind;
    if (op == WF_OP_COPY && k.attr->n_ints) {
        return false; /* to another device */
    }
    const bool done =
        open_call(&k) && (kind == WF_KIND_VIEW     ? run_view(&k, rc)
                          : kind == WF_KIND_REDUCE ? run_reduce(&k, rc) || run_row(&k, rc)
                                                   : run_other(&k, rc));
    if (__builtin_expect(k.pins != 0, 0)) {
        let_go(c, k.slot, nsrc, k.pins);
    }
    return done;
}
