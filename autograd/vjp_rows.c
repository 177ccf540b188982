/*
 * autograd/vjp_rows.c -- the vjp column of elementwise rows, twice.
 *
 * Eager backward runs the row's fused kernel (wf_exec_vjp): g, operands and result in, gradient out,
 * one pass, one rounding. When the gradients are to be differentiated again, the same row text is
 * expanded in the graph dictionary below: every row name is a function that calls the op. Half types
 * are widened first and rounded once at the end, so both ways give the same bits.
 */
#include <string.h>

#include "autograd/tape.h"
#include "autograd/vjp.h"
#include "eager/device.h"
#include "eager/kernels/kernels.h"
#include "eager/layout.h"
#include "eager/map.h"
#include "eager/pool.h"
#include "eager/quick_int.h"
#include "eager/reduce.h"

/* -- the graph dictionary: row names are functions on tensors ---------------------------------------------- */
/* clang-format off */
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    __attribute__((unused)) static weft_tensor NAME(weft_tensor x) { return wf_op1(WF_OP_##NAME, NULL, x); }
#define PREDICATE(NAME, name, types, expr)                                                         \
    __attribute__((unused)) static weft_tensor NAME(weft_tensor x) { return wf_op1(WF_OP_##NAME, NULL, x); }
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    __attribute__((unused)) static weft_tensor NAME(weft_tensor a, weft_tensor b) { return wf_op2(WF_OP_##NAME, NULL, a, b); }
#define COMPARE(NAME, name, types, expr)                                                           \
    __attribute__((unused)) static weft_tensor NAME(weft_tensor a, weft_tensor b) { return wf_op2(WF_OP_##NAME, NULL, a, b); }
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    __attribute__((unused)) static weft_tensor NAME(weft_tensor a, weft_tensor b, weft_tensor c) { return wf_op3(WF_OP_##NAME, NULL, a, b, c); }
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    __attribute__((unused)) static weft_tensor NAME(weft_tensor a, weft_tensor b, weft_tensor c) { return wf_op3(WF_OP_##NAME, NULL, a, b, c); }
#include "jit/ir/ops.def"
#define K(v) weft_f(v)
#define ZERO weft_f(0)
#define NODIFF WEFT_NONE

static weft_tensor graph_vjp(wf_op op, int which, weft_tensor g, weft_tensor s0, weft_tensor s1,
                             weft_tensor s2, weft_tensor y)
{
    const weft_tensor x = s0, p = s0;
    weft_tensor a = s0, b = s1, c = s2;
    (void)x; (void)p; (void)a; (void)b; (void)c; (void)y;
    switch ((int)op) {
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) case WF_OP_##NAME: return vjp;
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) case WF_OP_##NAME: return which == 0 ? (vjp_a) : (vjp_b);
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) case WF_OP_##NAME: return which == 0 ? (vjp_a) : which == 1 ? (vjp_b) : (vjp_c);
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) case WF_OP_##NAME: return which == 1 ? (vjp_a) : (vjp_b);
#include "jit/ir/ops.def"
    }
    return WEFT_NONE;
}

/* Columns that are exactly `g`: the gradient passes through untouched. */
static bool passes_through(wf_op op, int which)
{
#define IS_G(vjp) (sizeof(#vjp) == 2 && #vjp[0] == 'g')
    switch ((int)op) {
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) case WF_OP_##NAME: return which == 0 ? IS_G(vjp_a) : IS_G(vjp_b);
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) case WF_OP_##NAME: return which == 0 ? IS_G(vjp_a) : which == 1 ? IS_G(vjp_b) : IS_G(vjp_c);
#include "jit/ir/ops.def"
    }
    return false;
#undef IS_G
}
/* clang-format on */
#undef K
#undef ZERO
#undef NODIFF

weft_tensor wf_as_dtype(weft_tensor g, int dt)
{
    if (g.slot == 0 || wf_is_scalar(g)) {
        return g;
    }
    bool pinned;
    wf_ctx *c = wf_ctx_get();
    wf_slot *s = wf_pin(c, g, &pinned, NULL);
    bool same = s && s->dtype == dt;
    if (s && pinned) {
        wf_unpin(c, s);
    }
    wf_attr a = {.dtype = (uint8_t)dt};
    return same ? g : wf_op1(WF_OP_CAST, &a, g);
}

weft_tensor wf_sum_to(weft_tensor g, int rank, const int64_t *dims)
{
    wf_ctx *c = wf_ctx_get();
    bool pinned;
    wf_why why = {0};
    if (g.slot == 0) {
        return g;
    }
    wf_slot *s = wf_pin(c, g, &pinned, &why);
    if (!s) {
        return wf_raise(c, "backward", 1, &g, &why);
    }
    wf_type t;
    wf_slot_type(s, &t);
    if (pinned) {
        wf_unpin(c, s);
    }
    int64_t axes[WF_MAX_RANK];
    int n = 0, lead = t.rank - rank;
    for (int i = 0; i < t.rank; i++) {
        if (i < lead || (dims[i - lead] == 1 && t.dims[i] != 1)) {
            axes[n++] = i;
        }
    }
    if (n == 0) {
        return g;
    }
    wf_attr sum = {.flags = WF_FLAG_KEEPDIM, .n_ints = (uint8_t)n, .ints = axes, .dtype = t.dtype};
    weft_tensor r = wf_op1(WF_OP_SUM, &sum, g);
    wf_attr reshape = {.n_dyn = (uint8_t)rank, .dyn = dims};
    return lead > 0 ? wf_op1(WF_OP_RESHAPE, &reshape, r) : r;
}

/* One operand as a broadcast view for the kernel. 0 or a status with an error recorded. */
static int bind(wf_vjp *v, weft_tensor h, const wf_type *out, int compute, wf_view *view,
                double *scalar)
{
    view->rank = out->rank;
    memcpy(view->dims, out->dims, (size_t)out->rank * sizeof(int64_t));
    memset(view->strides, 0, (size_t)out->rank * sizeof(int64_t));
    view->dtype = (uint8_t)compute;
    if (wf_is_scalar(h)) {
        wf_scalar_store(h, compute, scalar);
        view->data = scalar;
        return 0;
    }
    wf_why why = {0};
    bool pinned = false;
    wf_slot *s = wf_pin(v->c, h, &pinned, &why);
    if (!s || wf_storage_use(s->st, false, &why)) {
        if (pinned) {
            wf_unpin(v->c, s);
        }
        return wf_raise_status(v->c, wf_rows[v->op].name, 0, NULL, &why);
    }
    view->data = wf_slot_data(s);
    view->dtype = s->dtype;
    view->device = s->st->device;
    int lead = out->rank - s->rank;
    for (int i = lead; i < out->rank; i++) {
        view->strides[i] = wf_dims(s)[i - lead] == out->dims[i] ? wf_strides(s)[i - lead] : 0;
    }
    if (pinned) {
        wf_unpin(v->c, s);
    }
    return 0;
}

/* Do the tensors that are read, with the extents of t, lie channels-last? Then the derivative does. */
static bool reads_last(wf_ctx *c, int nsrc, const weft_tensor *src, const wf_type *t)
{
    wf_slot *slot[5] = {NULL};
    bool pinned[5] = {false}, last = false;
    if (c->device != WF_DEVICE_HOST || t->rank != 4) {
        return false;
    }
    for (int i = 0; i < nsrc; i++) {
        if (!wf_is_absent(src[i]) && !wf_is_scalar(src[i])) {
            slot[i] = wf_pin(c, src[i], &pinned[i], NULL);
        }
    }
    last = wf_all_lie_last(nsrc, slot, t->rank, t->dims);
    for (int i = 0; i < nsrc; i++) {
        if (pinned[i]) {
            wf_unpin(c, slot[i]);
        }
    }
    return last;
}

/* A fresh uninitialised tensor of the current scope, row-major or channels-last. */
static weft_tensor empty_like(wf_ctx *c, const wf_type *t, bool last)
{
    int64_t strides[4];
    wf_why why = {0};
    wf_recorder *r = c->recorder;
    if (r && r->device != c->device && r->enter(r, c->device, &why)) {
        return wf_raise(c, "backward", 0, NULL, &why);
    }
    size_t bytes = (size_t)wf_type_numel(t) * wf_dtype_size(t->dtype);
    wf_storage *st = wf_result_storage(c, bytes, c->device, &why);
    if (!st) {
        return why.code ? wf_raise(c, "backward", 0, NULL, &why)
                        : wf_raise_text(c, WEFT_ENOMEM, "backward", "out of memory for a gradient");
    }
    if (last) {
        wf_last_strides(t->dims, strides);
    }
    weft_tensor h =
        wf_wrap_view(c, st, st->data, t->dtype, t->rank, t->dims, last ? strides : NULL);
    wf_storage_release(st);
    return h;
}

/* Runs the kernel on what `src` names, into h. */
static weft_tensor run_fused(wf_vjp *v, int which, const wf_type *out, int compute,
                             const weft_tensor *src, weft_tensor h)
{
    wf_view view[5], d;
    double scalar[5];
    for (int i = 0; i < v->nsrc + 2; i++) {
        memset(&view[i], 0, offsetof(wf_view, dims));
        if (!wf_is_absent(src[i]) && bind(v, src[i], out, compute, &view[i], &scalar[i])) {
            return wf_last_error(v->c);
        }
    }
    wf_slot *s = wf_slot_at(v->c, h.slot);
    wf_slot_view(s, &d);
    if (d.device != WF_DEVICE_HOST) {
        wf_why why = {0};
        return wf_storage_use(s->st, true, &why) ||
                       wf_device_vjp(d.device, v->op, which, compute, &d, v->nsrc + 2, view, &why)
                   ? wf_raise(v->c, wf_rows[v->op].name, 0, NULL, &why)
                   : h;
    }
    unsigned mode = wf_fpenv_enter();
    int rc = wf_exec_vjp(v->op, which, compute, &d, v->nsrc + 2, view);
    wf_fpenv_leave(mode);
    return rc ? wf_raise_text(v->c, rc, wf_rows[v->op].name, "out of memory in backward") : h;
}

/* Kernels read elements of their own device, and single numbers of the host: anything else is an error. */
static int is_elsewhere(wf_vjp *v, weft_tensor h, wf_why *why)
{
    if (wf_is_absent(h) || wf_is_scalar(h)) {
        return 0;
    }
    bool pinned;
    wf_slot *s = wf_pin(v->c, h, &pinned, why);
    if (!s) {
        return why->code;
    }
    wf_type t;
    wf_slot_type(s, &t);
    int device = wf_slot_device(s);
    if (pinned) {
        wf_unpin(v->c, s);
    }
    if (device == v->c->device || (device == WF_DEVICE_HOST && wf_type_numel(&t) == 1)) {
        return 0;
    }
    return wf_fail(why, WEFT_EINVALID, "its derivative runs on %s but reads a tensor on %s",
                   wf_device_code_name(v->c->device), wf_device_code_name(device));
}

static weft_tensor fused_vjp(wf_vjp *v, int which, const wf_type *out, int compute, int store)
{
    unsigned reads = wf_vjp_reads(v->op, which);
    weft_tensor src[5];
    for (int i = 0; i < v->nsrc + 2; i++) {
        bool result = i == v->nsrc + 1;
        unsigned bit = i == 0 ? 64u : result ? 128u : 1u << (i - 1);
        src[i] = !(reads & bit) ? WF_ABSENT
                 : i == 0       ? v->g[0]
                 : result       ? wf_vjp_dst(v, 0)
                                : wf_vjp_src(v, i - 1);
        if (src[i].slot == 0) {
            return src[i];
        }
    }
    wf_type t = *out;
    t.dtype = (uint8_t)store;
    wf_why why = {0};
    for (int i = 0; wf_device_api && i < v->nsrc + 2; i++) {
        if (is_elsewhere(v, src[i], &why)) {
            return wf_raise(v->c, wf_rows[v->op].name, 1, &src[i], &why);
        }
    }
    weft_tensor h = empty_like(v->c, &t, reads_last(v->c, v->nsrc + 2, src, &t));
    wf_recorder *r = v->c->recorder;
    if (h.slot == 0 || !r) {
        return h.slot ? run_fused(v, which, out, compute, src, h) : h;
    }
    for (int i = 0; i < v->nsrc + 2 && r->device != WF_DEVICE_HOST; i++) {
        src[i] = wf_device_number(v->c, src[i], &why);
    }
    wf_slot *dst = wf_slot_at(v->c, h.slot);
    int rc = r->vjp(r, v->op, which, v->nsrc + 2, src, dst, &why);
    return rc ? wf_raise(v->c, wf_rows[v->op].name, 0, NULL, &why) : h;
}

/* A number as a tensor of rank 0 where the row computes in f64: what a column does with numbers alone would be of f32. */
static weft_tensor wide_number(weft_tensor h, int compute)
{
    if (compute != WEFT_F64 || !wf_is_scalar(h) || h.context == WF_SCALAR_BOOL) {
        return h;
    }
    double d;
    memcpy(&d, &h.serial, sizeof d);
    d = h.context == WF_SCALAR_FLOAT ? d : (double)(int64_t)h.serial;
    wf_attr full = {.dtype = WEFT_F64, .n_flt = 1, .flt = &d};
    return wf_op0(WF_OP_FULL, &full);
}

static weft_tensor expanded_vjp(wf_vjp *v, int which, const wf_type *out, int compute)
{
    weft_tensor s[3] = {WEFT_NONE, WEFT_NONE, WEFT_NONE}, y = WEFT_NONE;
    unsigned reads = wf_vjp_reads(v->op, which);
    for (int i = 0; i < v->nsrc; i++) {
        if (reads & (1u << i)) {
            s[i] = wf_vjp_src(v, i);
            wf_type t;
            bool value = !wf_is_scalar(s[i]) && s[i].slot != 0;
            if (value) {
                wf_vjp_src_type(v, i, &t);
                value = wf_dtype_kind(t.dtype) == 2;
            }
            s[i] = value ? wf_as_dtype(s[i], compute) : wide_number(s[i], compute);
        }
    }
    if (reads & 128u) {
        y = wf_as_dtype(wf_vjp_dst(v, 0), compute);
    }
    weft_tensor g = wf_as_dtype(v->g[0], compute);
    weft_tensor r = graph_vjp(v->op, which, g, s[0], s[1], s[2], y);
    if (wf_is_scalar(r)) { /* zero: as a tensor of the result's extents */
        wf_attr full = {.dtype = (uint8_t)compute, .n_dyn = out->rank, .dyn = out->dims};
        double zero = 0;
        full.n_flt = 1;
        full.flt = &zero;
        r = wf_op0(WF_OP_FULL, &full);
    }
    return r;
}

/* Elements of v that stand where others do, for each that is there. */
static int64_t repeats(const wf_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++) {
        n *= v->strides[i] == 0 ? v->dims[i] : 1;
    }
    return n;
}

/*
 * The gradient of a factor that was broadcast, summed over what it was broadcast to: g times the other factor is not
 * stored on the way. The map of batch norm's gradient, y * ((x - p) * q), has the product's bits for p = 0, q = 1. False: it
 * is another case.
 */
static bool sum_of_products(wf_vjp *v, int which, const wf_type *out, const wf_type *to,
                            int compute, weft_tensor *r)
{
    const int other = (v->op == WF_OP_MUL || v->op == WF_OP_FMA) && which < 2 ? 1 - which
                      : v->op == WF_OP_ADDCMUL && which > 0                   ? 3 - which
                                                                              : -1;
    if (other < 0 || v->create_graph || v->c->recorder || v->c->device != WF_DEVICE_HOST ||
        wf_type_numel(out) == 0) {
        return false;
    }
    const weft_tensor src[2] = {v->g[0], wf_vjp_src(v, other)};
    wf_view view[2], d;
    double scalar;
    for (int i = 0; i < 2; i++) {
        if (src[i].slot == 0 || wf_is_scalar(src[i]) ||
            bind(v, src[i], out, compute, &view[i], &scalar) || view[i].device != WF_DEVICE_HOST ||
            !(WF_DT_F & WF_BIT(view[i].dtype)) || wf_dtype_compute(view[i].dtype) != compute) {
            return false; /* an error comes again */
        }
    }
    wf_type t = *to;
    t.dtype = (uint8_t)compute;
    *r = empty_like(v->c, &t, false);
    if (r->slot == 0) {
        return true;
    }
    static const double one = 1, nothing = 0;
    static const float one_f32 = 1;
    /* what is walked as it lies: not the factor that was broadcast, too */
    const int first = repeats(&view[0]) < repeats(&view[1]) ? 0 : 1;
    wf_slot_view(wf_slot_at(v->c, r->slot), &d);
    wf_red_job job = {.op = WF_RED_SUM,
                      .map = WF_MAP_XHAT,
                      .compute = compute,
                      .x = &view[first],
                      .y = &view[1 - first],
                      .p = &nothing,
                      .q = compute == WEFT_F64 ? (const void *)&one : &one_f32,
                      .one_param = true,
                      .out = d.data};
    const int lead = out->rank - t.rank;
    for (int i = 0; i < out->rank; i++) {
        job.axes |= (unsigned)(i < lead || t.dims[i - lead] != out->dims[i]) << i;
    }
    unsigned mode = wf_fpenv_enter();
    const int rc = wf_red_run(&job);
    wf_fpenv_leave(mode);
    if (rc) {
        *r = wf_raise_text(v->c, rc, wf_rows[v->op].name, "out of memory in backward");
    }
    return true;
}

/* -- the short way ------------------------------------------------------------------------------------------------ */

static bool has_type(const wf_tnode *n, int dtype, int rank, const int64_t *dims)
{
    const int64_t *d = wf_tnode_dims(n);
    bool has = n->dtype == dtype && n->rank == rank;
    for (int i = 0; has && i < rank; i++) {
        has = d[i] == dims[i];
    }
    return has;
}

static bool same_type(const wf_tnode *a, const wf_tnode *b)
{
    return has_type(a, b->dtype, b->rank, wf_tnode_dims(b));
}

/* The row-major elements of a gradient that has the node's type; -1: it is another, or they are more than one call of a kernel
 * runs. */
static int64_t few_elements(const wf_tnode *n, wf_slot *g)
{
    const bool plain = is_plain(g->st, NULL) && has_type(n, g->dtype, g->rank, wf_dims(g));
    const int64_t all = plain ? wf_slot_row_major(g) : -1;
    return all <= WF_MAP_SMALL ? all : -1;
}

/* What the kernel reads for operand i of node r, or for its result (i == nsrc); NULL: it is not that simple. bcast: a number. */
static const void *reads_at(wf_vjp *v, wf_tape *t, wf_tnode *n, int i, double *scalar, bool *bcast)
{
    const wf_ref s = i == v->nsrc ? v->node : wf_tnode_src(n)[i];
    if (!s) {
        if (!n->aux || !n->aux->scalar || !wf_is_scalar(n->aux->scalar[i])) {
            return NULL;
        }
        wf_scalar_store(n->aux->scalar[i], n->dtype, scalar);
        *bcast = true;
        return scalar;
    }
    return same_type(wf_tnode_at(t, s), n) ? wf_tape_elements(t, s, v->node) : NULL;
}

/* Few elements of one type, row-major and as they were saved: one call of the kernel, on memory that has no views and handles
 * yet. False: nothing was done. */
static bool quick_vjp(wf_vjp *v, int which)
{
    wf_tape *t = v->c->tape;
    wf_tnode *n = wf_tnode_at(t, v->node);
    const wf_ref to = wf_tnode_src(n)[which];
    const int ct = n->dtype == WEFT_F32 ? 0 : n->dtype == WEFT_F64 ? 1 : -1;
    wf_slot *g = wf_slot_of(v->c, v->g[0]);
    if (v->create_graph || v->c->recorder || v->c->away || ct < 0 || !to || !g ||
        g->dtype != n->dtype || !same_type(wf_tnode_at(t, to), n)) {
        return false;
    }
    if (passes_through(v->op, which)) {
        v->dsrc[which] = v->g[0];
        return true;
    }
    enum { MOST = WF_VJP_MAX + 2 };
    const unsigned reads = wf_vjp_reads(v->op, which);
    const wf_map_fn fn = wf_kernels_now()->vjp[ct][v->op][which];
    const int64_t all = few_elements(n, g);
    if (!fn || !(reads & 64u) || wf_rows[v->op].kind == WF_KIND_CHOOSE || all < 1) {
        return false;
    }
    const void *at[MOST] = {wf_slot_data(g)};
    double scalar[MOST];
    unsigned repeats = 0;
    for (int i = 0; i <= v->nsrc; i++) {
        bool bcast = false;
        at[i + 1] = at[0];
        if (reads >> (i == v->nsrc ? 7 : i) & 1 &&
            !(at[i + 1] = reads_at(v, t, n, i, &scalar[i], &bcast))) {
            return false;
        }
        repeats |= (unsigned)(bcast && all > 1) << (i + 1);
    }
    weft_tensor h;
    wf_slot *r = make_as_wide(v->c, n->dtype, g, all, &h);
    if (__builtin_expect(!r, 0)) {
        return false;
    }
    const unsigned mode = wf_fpenv_enter();
    fn(wf_slot_data(r), at, (size_t)all, repeats);
    wf_fpenv_leave(mode);
    v->dsrc[which] = h;
    return true;
}

/* -- every way ---------------------------------------------------------------------------------------------------- */

__attribute__((noinline)) static int any_vjp(wf_vjp *v, int i)
{
    wf_type out, t;
    wf_vjp_dst_type(v, 0, &out);
    const int compute = wf_dtype_compute(out.dtype);
    wf_vjp_src_type(v, i, &t);
    bool reduce = !wf_type_same_dims(&t, &out);
    weft_tensor g;
    if (passes_through(v->op, i)) {
        g = reduce ? wf_as_dtype(v->g[0], compute) : v->g[0];
    } else if (reduce && sum_of_products(v, i, &out, &t, compute, &g)) {
        reduce = false;
    } else if (v->create_graph) {
        g = expanded_vjp(v, i, &out, compute);
    } else {
        g = fused_vjp(v, i, &out, compute, reduce ? compute : t.dtype);
    }
    if (reduce) {
        g = wf_sum_to(g, t.rank, t.dims);
    }
    v->dsrc[i] = wf_as_dtype(g, t.dtype);
    return v->dsrc[i].slot ? 0 : (int)weft_error_status(v->dsrc[i]);
}

int wf_vjp_elementwise(wf_vjp *v)
{
    int rc = 0;
    for (int i = 0; i < v->nsrc && !rc; i++) {
        rc = v->need[i] && !quick_vjp(v, i) ? any_vjp(v, i) : 0;
    }
    return rc;
}
