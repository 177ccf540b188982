/*
 * eager/dispatch.c -- the choke point of every op.
 *
 * dispatch: check and infer the type -> make the result -> run the row's kernel, or hand it to the trace
 * that is recording -> if a gradient is wanted the tape appends the same node. There is no per-op code here
 * beyond what a row's kind says, and a trace changes nothing but who computes the elements.
 *
 * Invariants: a failing call leaves operands as they were, returns empty handles that carry one error
 * number, and an empty operand passes its error on unchanged. Pins are held for the whole call.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/call.h"
#include "eager/device.h"
#include "eager/exec.h"
#include "eager/pool.h"
#include "eager/profile.h"

static const wf_attr no_attr;

/* clang-format off */
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes)               \
    WF_EXEC_DECL(exec);
#include "jit/ir/ops.def"
static const wf_exec_fn exec_table[WF_OP_COUNT] = {
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) [WF_OP_##NAME] = wf_exec_##exec,
#include "jit/ir/ops.def"
};
/* Rows that gradients flow through. */
#define IS_DIFF(vjp) (sizeof(#vjp) != sizeof("NODIFF") || memcmp(#vjp, "NODIFF", 6) != 0)
static bool differentiable(wf_op op)
{
    switch ((int)op) {
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) case WF_OP_##NAME: return IS_DIFF(vjp);
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) case WF_OP_##NAME: return IS_DIFF(vjp_a);
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) case WF_OP_##NAME: return IS_DIFF(vjp_a);
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) case WF_OP_##NAME: return true;
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) case WF_OP_##NAME: return IS_DIFF(vjp);
#include "jit/ir/ops.def"
    }
    return false;
}
/* clang-format on */

wf_exec_fn wf_exec_of(wf_op op)
{
    return exec_table[op];
}

/* Views never reach the table's entry: dispatch maps them. */
int wf_exec_view(wf_exec *e)
{
    return wf_fail(e->why, WEFT_EUNSUPPORTED, "a view was sent to a kernel");
}

/* COPY and CAST: the copy converts. */
int wf_exec_copy(wf_exec *e)
{
    wf_copy(&e->dst[0], &e->src[0]);
    return 0;
}

int wf_exec_row(wf_exec *e)
{
    int rc = exec_table[e->op](e);
    if (rc && e->why->rule[0] == '\0') {
        wf_fail(e->why, rc, "out of memory while it ran");
    }
    return rc;
}

/* -- operands ---------------------------------------------------------------------------------------- */

void wf_call_close(wf_call *k)
{
    for (int i = 0; i < k->nsrc; i++) {
        if (k->pinned[i]) {
            wf_unpin(k->c, k->slot[i]);
        }
    }
    if (k->slot != k->slot_) {
        wf_mfree(k->slot);
        wf_mfree(k->pinned);
    }
}

/* A value that another thread's trace has not computed yet. */
static inline bool foreign(const wf_ctx *c, const wf_slot *s)
{
    return wf_storage_is_foreign(s->st, c->recorder);
}

__attribute__((noinline, cold)) static int refuse(wf_call *k, wf_slot *s, int i)
{
    if (s->st->broken) {
        wf_fail(&k->why, WEFT_EINVALID, "operand %d holds no valid value: %s on it failed", i,
                wf_rows[s->st->write_op].name);
        wf_hint(&k->why, "write it anew (weft_copy_, weft_fill_) before reading it");
    } else {
        wf_fail(&k->why, WEFT_EUNSUPPORTED,
                "operand %d belongs to a running trace of another thread", i);
        wf_hint(&k->why, "use it after the traced call has returned");
    }
    return k->why.code;
}

/* Pins operands. Returns 0, a status with why filled, or -1 with *failed set to an operand that is
 * already an error. */
int wf_call_open(wf_call *k, wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc,
                 const weft_tensor *src, weft_tensor *failed)
{
    k->c = c;
    k->op = op;
    k->attr = attr ? attr : &no_attr;
    k->nsrc = 0;
    k->src = src;
    k->slot = k->slot_;
    k->pinned = k->pinned_;
    k->tracked = false;
    k->why.code = 0;
    k->why.rule[0] = k->why.hint[0] = '\0';
    unsigned away = c->away; /* somebody is not in host memory */
    if (nsrc > SMALL_SRC) {
        k->slot = wf_malloc((size_t)nsrc * sizeof *k->slot);
        k->pinned = wf_malloc((size_t)nsrc * sizeof *k->pinned);
        if (!k->slot || !k->pinned) {
            return wf_fail(&k->why, WEFT_ENOMEM, "out of memory for %d operands", nsrc);
        }
    }
    for (int i = 0; i < nsrc; i++) {
        k->slot[i] = NULL;
        k->pinned[i] = false;
        k->nsrc = i + 1;
        if (src[i].slot >= WF_ABSENT_SLOT) {
            continue;
        }
        if (src[i].slot == 0 && src[i].serial != 0) {
            *failed = src[i];
            return -1;
        }
        wf_slot *s = wf_pin(c, src[i], &k->pinned[i], &k->why);
        if (!s) {
            return k->why.code;
        }
        k->slot[i] = s;
        if (__builtin_expect(s->st->broken != 0 || foreign(c, s), 0)) {
            return refuse(k, s, i);
        }
        k->tracked |= wf_slot_tracked(s);
        away |= s->st->device;
    }
    k->device = WF_DEVICE_HOST;
    return __builtin_expect(away != 0, 0) ? wf_call_settle_device(k) : 0;
}

static double scalar_double(weft_tensor t)
{
    double d;
    if (t.context != WF_SCALAR_FLOAT) {
        return (double)(int64_t)t.serial;
    }
    memcpy(&d, &t.serial, sizeof d);
    return d;
}

/* Writes scalar t as an element of dtype dt (a compute type or bool). */
static void scalar_store(weft_tensor t, int dt, void *out)
{
    int64_t i = (int64_t)t.serial;
    double d = scalar_double(t);
    switch (dt) {
    case WEFT_F64:
        memcpy(out, &d, sizeof d);
        break;
    case WEFT_F32: {
        float f = t.context == WF_SCALAR_FLOAT ? (float)d : (float)i;
        memcpy(out, &f, sizeof f);
        break;
    }
    case WEFT_I64:
        memcpy(out, &i, 8);
        break;
    case WEFT_I32:
        memcpy(out, &i, 4);
        break;
    case WEFT_I16:
        memcpy(out, &i, 2);
        break;
    case WEFT_BOOL: {
        uint8_t b = t.context == WF_SCALAR_FLOAT ? d != 0 : i != 0;
        memcpy(out, &b, 1);
        break;
    }
    default:
        memcpy(out, &i, 1);
        break;
    }
}

/* -- elementwise --------------------------------------------------------------------------------------- */

static const int kind_default[3] = {WEFT_BOOL, WEFT_I64, WEFT_F32};

int wf_call_settle_type(wf_op op, int strong, int weak)
{
    int join = strong;
    if (weak >= 0 && (join == 0 || wf_dtype_kind(join) < weak)) {
        join = kind_default[weak];
    }
    unsigned mask = wf_rows[op].types;
    bool floats_only = (mask & WF_DT_F) && !(mask & WF_DT_I) && !(mask & WF_BIT(join));
    return floats_only && wf_dtype_kind(join) <= 1 ? WEFT_F32 : join;
}

/* The common type of the value operands under promotion and weak scalars; 0 = error in why. */
int wf_call_join_types(wf_call *k, int first)
{
    int join = 0, weak = -1;
    for (int i = first; i < k->nsrc; i++) {
        if (k->slot[i]) {
            int dt = k->slot[i]->dtype;
            join = join ? (join == dt ? dt : wf_dtype_promote(join, dt)) : dt;
        } else if ((int)k->src[i].context > weak) {
            weak = (int)k->src[i].context;
        }
    }
    join = wf_call_settle_type(k->op, join, weak);
    unsigned mask = wf_rows[k->op].types;
    if (!(mask & WF_BIT(join))) {
        wf_fail(&k->why, WEFT_EDTYPE, "%s operands are not accepted", wf_dtype_name(join));
        wf_hint(&k->why, "cast first: weft_cast(x, %s)",
                join == WEFT_BOOL  ? "WEFT_I64"
                : (mask & WF_DT_F) ? "WEFT_F32"
                                   : "WEFT_I32 or WEFT_BOOL");
        return 0;
    }
    return join;
}

/* Result extents: all tensor operands broadcast. Sets *same when every tensor has the result's extents
 * and is contiguous. */
int wf_call_join_shapes(wf_call *k, wf_type *out, bool *same)
{
    bool have = false;
    *same = true;
    out->rank = 0;
    for (int i = 0; i < k->nsrc; i++) {
        wf_slot *s = k->slot[i];
        if (!s) {
            continue;
        }
        const int64_t *d = wf_dims(s);
        if (!have) {
            have = true;
            out->rank = s->rank;
            memcpy(out->dims, d, (size_t)s->rank * sizeof *d);
            continue;
        }
        if (s->rank != out->rank || memcmp(d, out->dims, (size_t)s->rank * sizeof *d) != 0) {
            wf_type t;
            wf_slot_type(s, &t);
            *same = false;
            if (wf_broadcast(out, &t, &k->why)) {
                return k->why.code;
            }
        }
    }
    for (int i = 0; *same && i < k->nsrc; i++) {
        if (k->slot[i] && !wf_slot_is_contiguous(k->slot[i])) {
            *same = false;
        }
    }
    return 0;
}

/* Operand i as a view with the result's extents (flat: one axis of n). */
void wf_call_operand_view(wf_call *k, int i, int dt, bool flat, int64_t n, const wf_type *out,
                          wf_view *v, void *scalar)
{
    wf_slot *s = k->slot[i];
    v->rank = flat ? 1 : out->rank;
    v->device = s ? s->st->device : WF_DEVICE_HOST;
    if (flat) {
        v->dims[0] = n;
    } else {
        memcpy(v->dims, out->dims, (size_t)out->rank * sizeof(int64_t));
    }
    if (!s) {
        scalar_store(k->src[i], dt, scalar);
        v->data = scalar;
        v->dtype = (uint8_t)dt;
        for (int a = 0; a < v->rank; a++) {
            v->strides[a] = 0;
        }
        return;
    }
    v->data = wf_slot_data(s);
    v->dtype = s->dtype;
    if (flat) {
        v->strides[0] = 1;
        return;
    }
    const int64_t *d = wf_dims(s), *st = wf_strides(s);
    int lead = out->rank - s->rank;
    for (int a = 0; a < out->rank; a++) {
        int b = a - lead;
        v->strides[a] = b >= 0 && (d[b] == out->dims[a]) ? st[b] : 0;
    }
}

static weft_tensor cast_to(weft_tensor t, int dt)
{
    wf_attr a = {.dtype = (uint8_t)dt};
    return wf_op1(WF_OP_CAST, &a, t);
}

/* Operands that must really be converted before the op: tracked ones (their gradient converts back)
 * and integers meeting a half type (they round to it first). */
static bool needs_cast(const wf_call *k, int first, int join)
{
    bool half = join == WEFT_F16 || join == WEFT_BF16;
    for (int i = first; i < k->nsrc; i++) {
        wf_slot *s = k->slot[i];
        if (s && s->dtype != join && (half || (k->tracked && wf_grad_enabled(k->c)))) {
            return true;
        }
    }
    return false;
}

weft_tensor wf_call_fail(wf_call *k)
{
    return wf_raise(k->c, wf_rows[k->op].name, k->nsrc, k->src, &k->why);
}

wf_slot *wf_call_result(wf_call *k, const wf_type *t, weft_tensor *h)
{
    int64_t n = wf_type_numel(t);
    if (n < 0) {
        wf_fail(&k->why, WEFT_ENOMEM, "the result's size overflows");
        return NULL;
    }
    size_t bytes = (size_t)n * wf_dtype_size(t->dtype);
    wf_storage *st = wf_result_storage(k->c, bytes, k->device, &k->why);
    wf_slot *s = st ? wf_slot_new(k->c, h) : NULL;
    if (!s || wf_slot_shape(s, t->rank, t->dims, NULL) != 0) {
        if (s) {
            wf_slot_destroy(k->c, s);
        }
        if (st) {
            wf_storage_release(st);
        }
        if (!k->why.code) {
            wf_fail(&k->why, WEFT_ENOMEM, "out of memory for a result of %zu bytes", bytes);
            wf_hint(&k->why, "free tensors, end scopes sooner, or call weft_memory_trim");
        }
        return NULL;
    }
    s->dtype = t->dtype;
    s->st = st;
    atomic_store_explicit(&st->handles, 1, memory_order_relaxed);
    return s;
}

int wf_call_record(wf_call *k, int ndst, wf_slot *const *dst)
{
    bool flt = false;
    for (int i = 0; i < ndst; i++) {
        flt |= wf_dtype_kind(dst[i]->dtype) == 2;
    }
    if (!flt || !wf_tape_api || !differentiable(k->op)) {
        return 0;
    }
    return wf_tape_api->append(k->c, k->op, k->attr, k->nsrc, k->slot, k->src, ndst, dst, &k->why);
}

int wf_call_output_dtype(wf_op op, int join)
{
    int kind = wf_rows[op].kind;
    return kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE ? WEFT_BOOL : join;
}

static void map_views(wf_call *k, int first, int compute, const wf_type *out, bool flat, wf_view *v,
                      double (*scalars)[3])
{
    int64_t n = wf_type_numel(out);
    for (int i = 0; i < k->nsrc; i++) {
        wf_call_operand_view(k, i, i < first ? WEFT_BOOL : compute, flat, n, out, &v[i],
                             &(*scalars)[i]);
    }
}

/* The common case without broadcasting, promotion or scalars: every operand row-major, with the same
 * extents and an element type the row takes. Returns the number of elements, or -1. */
static int64_t flat_count(const wf_call *k)
{
    wf_slot *a = k->slot[0];
    if (!a || !(wf_rows[k->op].types & WF_BIT(a->dtype)) || wf_rows[k->op].kind == WF_KIND_CHOOSE) {
        return -1;
    }
    const int64_t *d = wf_dims(a), *st = wf_strides(a);
    int64_t n = 1;
    for (int i = a->rank; i-- > 0;) {
        if (st[i] != n) {
            return -1;
        }
        n *= d[i];
    }
    for (int j = 1; j < k->nsrc; j++) {
        wf_slot *b = k->slot[j];
        if (!b || b->dtype != a->dtype || b->rank != a->rank) {
            return -1;
        }
        const int64_t *e = wf_dims(b), *bt = wf_strides(b);
        for (int i = 0; i < a->rank; i++) {
            if (e[i] != d[i] || bt[i] != st[i]) {
                return -1;
            }
        }
    }
    return n;
}

static int exec_flat(wf_call *k, int64_t n, wf_slot *r)
{
    wf_view v[4];
    for (int i = 0; i <= k->nsrc; i++) { /* the last one is the result */
        wf_slot *s = i < k->nsrc ? k->slot[i] : r;
        v[i].data = wf_slot_data(s);
        v[i].dtype = s->dtype;
        v[i].rank = 1;
        v[i].device = WF_DEVICE_HOST;
        v[i].dims[0] = n;
        v[i].strides[0] = 1;
    }
    int compute = wf_dtype_compute(k->slot[0]->dtype);
    if (__builtin_expect(k->device != WF_DEVICE_HOST, 0)) {
        for (int i = 0; i <= k->nsrc; i++) {
            v[i].device = (i < k->nsrc ? k->slot[i] : r)->st->device;
        }
        return wf_call_map_on_device(k, compute, r, &v[k->nsrc], v);
    }
    int rc = wf_exec_map(k->op, compute, &v[k->nsrc], k->nsrc, v);
    return rc ? wf_fail(&k->why, rc, "out of memory for scratch tiles") : 0;
}

static inline int record_map(wf_call *k, int join, wf_slot *r)
{
    wf_recorder *rec = k->c->recorder;
    if (__builtin_expect(k->device != WF_DEVICE_HOST, 0)) {
        return wf_call_record_numbers(k, join, r);
    }
    return rec->map(rec, k->op, join, k->nsrc, k->slot, k->src, r, &k->why);
}

static weft_tensor run_flat(wf_call *k, int64_t n)
{
    wf_slot *a = k->slot[0];
    int out = wf_call_output_dtype(k->op, a->dtype);
    wf_storage *st = wf_result_storage(k->c, (size_t)n * wf_dtype_size(out), k->device, &k->why);
    weft_tensor h;
    wf_slot *r = st ? wf_slot_new(k->c, &h) : NULL;
    if (!r || wf_slot_shape(r, a->rank, wf_dims(a), wf_strides(a)) != 0) {
        if (r) {
            wf_slot_destroy(k->c, r);
        }
        if (st) {
            wf_storage_release(st);
        }
        if (!k->why.code) {
            wf_fail(&k->why, WEFT_ENOMEM, "out of memory for a result of %lld elements",
                    (long long)n);
        }
        return wf_call_fail(k);
    }
    r->dtype = (uint8_t)out;
    r->st = st;
    atomic_store_explicit(&st->handles, 1, memory_order_relaxed);
    int rc = k->c->recorder ? record_map(k, a->dtype, r) : exec_flat(k, n, r);
    if (!rc && k->tracked && wf_grad_enabled(k->c)) {
        rc = wf_call_record(k, 1, &r);
    }
    if (rc) {
        wf_slot_destroy(k->c, r);
        return wf_call_fail(k);
    }
    return h;
}

static int exec_broadcast(wf_call *k, int first, int compute, const wf_type *out, bool flat,
                          wf_slot *r)
{
    double scalars[3];
    wf_view v[3], d;
    map_views(k, first, compute, out, flat, v, &scalars);
    d.data = wf_slot_data(r);
    d.dtype = out->dtype;
    d.rank = flat ? 1 : out->rank;
    d.device = r->st->device;
    if (flat) {
        d.dims[0] = wf_type_numel(out);
        d.strides[0] = 1;
    } else {
        memcpy(d.dims, out->dims, (size_t)out->rank * sizeof(int64_t));
        memcpy(d.strides, wf_strides(r), (size_t)out->rank * sizeof(int64_t));
    }
    if (__builtin_expect(d.device != WF_DEVICE_HOST, 0)) {
        return wf_call_map_on_device(k, compute, r, &d, v);
    }
    int rc = wf_exec_map(k->op, compute, &d, k->nsrc, v);
    return rc ? wf_fail(&k->why, rc, "out of memory for scratch tiles") : 0;
}

static weft_tensor run_elementwise(wf_call *k)
{
    if (__builtin_expect(k->device != WF_DEVICE_HOST, 0) && wf_call_has_tracked_number(k)) {
        return wf_call_move_numbers(k);
    }
    int64_t n = flat_count(k);
    if (n >= 0) {
        return run_flat(k, n);
    }
    int first = wf_rows[k->op].kind == WF_KIND_CHOOSE ? 1 : 0;
    int join = wf_call_join_types(k, first);
    if (!join) {
        return wf_call_fail(k);
    }
    if (first && k->slot[0] && k->slot[0]->dtype != WEFT_BOOL) {
        wf_fail(&k->why, WEFT_EDTYPE, "the condition is %s, not bool",
                wf_dtype_name(k->slot[0]->dtype));
        wf_hint(&k->why, "compare it: weft_not_equal(x, weft_i(0))");
        return wf_call_fail(k);
    }
    if (needs_cast(k, first, join)) {
        weft_tensor t[3];
        weft_scope sc = weft_scope_begin();
        for (int i = 0; i < k->nsrc; i++) {
            bool other = i >= first && k->slot[i] && k->slot[i]->dtype != join;
            t[i] = other ? cast_to(k->src[i], join) : k->src[i];
        }
        weft_tensor r;
        wf_dispatch(k->op, k->attr, k->nsrc, t, 1, &r);
        return weft_scope_return(sc, r);
    }
    wf_type out;
    bool flat;
    if (wf_call_join_shapes(k, &out, &flat)) {
        return wf_call_fail(k);
    }
    int compute = wf_dtype_compute(join);
    out.dtype = (uint8_t)wf_call_output_dtype(k->op, join);
    weft_tensor h;
    wf_slot *r = wf_call_result(k, &out, &h);
    if (!r) {
        return wf_call_fail(k);
    }
    int rc =
        k->c->recorder ? record_map(k, join, r) : exec_broadcast(k, first, compute, &out, flat, r);
    if (!rc && k->tracked && wf_grad_enabled(k->c)) {
        rc = wf_call_record(k, 1, &r);
    }
    if (rc) {
        wf_slot_destroy(k->c, r);
        return wf_call_fail(k);
    }
    return h;
}

/* -- views --------------------------------------------------------------------------------------------- */

weft_tensor wf_wrap_view(wf_ctx *c, wf_storage *st, void *data, int dtype, int rank,
                         const int64_t *dims, const int64_t *strides)
{
    weft_tensor h;
    wf_slot *s = wf_slot_new(c, &h);
    if (!s || wf_slot_shape(s, rank, dims, strides) != 0) {
        if (s) {
            wf_slot_destroy(c, s);
        }
        return wf_raise_text(c, WEFT_ENOMEM, "view", "out of memory for a handle");
    }
    s->dtype = (uint8_t)dtype;
    s->st = st;
    s->offset = (char *)data - (char *)st->data;
    wf_storage_retain(st);
    atomic_fetch_add_explicit(&st->handles, 1, memory_order_relaxed);
    return h;
}

/* as_strided and diagonal reach anywhere: every element must lie inside the storage. */
static int check_bounds(wf_call *k, const wf_view *v)
{
    wf_slot *s = k->slot[0];
    int64_t lo = 0, hi = 0, size = (int64_t)wf_dtype_size(v->dtype);
    for (int i = 0; i < v->rank; i++) {
        int64_t span;
        if (v->dims[i] == 0) {
            return 0;
        }
        if (__builtin_mul_overflow(v->dims[i] - 1, v->strides[i], &span) ||
            __builtin_add_overflow(span < 0 ? lo : hi, span, span < 0 ? &lo : &hi)) {
            return wf_fail(&k->why, WEFT_ESHAPE, "the index map overflows");
        }
    }
    int64_t base = (char *)v->data - (char *)s->st->data;
    int64_t total = (int64_t)s->st->nbytes;
    int64_t first, last;
    if (__builtin_mul_overflow(lo, size, &first) || __builtin_add_overflow(first, base, &first) ||
        __builtin_mul_overflow(hi, size, &last) ||
        __builtin_add_overflow(last, base + size, &last) || first < 0 || last > total) {
        wf_fail(&k->why, WEFT_ESHAPE,
                "the index map reaches outside the tensor's memory of %lld elements",
                (long long)(total / size));
        wf_hint(&k->why, "check extents, strides (in elements) and offset");
        return k->why.code;
    }
    return 0;
}

/* The elements of v, row-major, into the memory of r. */
static int copy_dense(wf_call *k, wf_slot *r, const wf_view *v)
{
    wf_view d = *v;
    d.data = wf_slot_data(r);
    wf_view_make_dense(&d);
    if (k->device != WF_DEVICE_HOST) {
        int rc = wf_call_use(k, 1, &r);
        return rc ? rc : wf_device_copy(k->device, &d, v, &k->why);
    }
    wf_copy(&d, v);
    return 0;
}

static weft_tensor run_view(wf_call *k)
{
    wf_slot *s = k->slot[0];
    wf_type in, out;
    wf_view v, w;
    wf_slot_type(s, &in);
    if (wf_infer(k->op, k->attr, 1, &in, &out, &k->why)) {
        return wf_call_fail(k);
    }
    wf_slot_view(s, &v);
    int64_t delta;
    if (k->op == WF_OP_AS_STRIDED &&
        (__builtin_mul_overflow(k->attr->dyn[2 * out.rank], (int64_t)16, &delta))) {
        wf_fail(&k->why, WEFT_ESHAPE, "the offset overflows");
        return wf_call_fail(k);
    }
    int rc = wf_view_apply(k->op, k->attr, &out, &v, &w, &k->why);
    if (rc > 1) {
        return wf_call_fail(k);
    }
    weft_tensor h;
    wf_slot *r;
    if (rc == 1) { /* a reshape that needs a copy */
        r = wf_call_result(k, &out, &h);
        if (!r) {
            return wf_call_fail(k);
        }
        if (!k->c->recorder && copy_dense(k, r, &v)) {
            wf_slot_destroy(k->c, r);
            return wf_call_fail(k);
        }
    } else {
        if ((k->op == WF_OP_AS_STRIDED || k->op == WF_OP_DIAGONAL) && check_bounds(k, &w)) {
            return wf_call_fail(k);
        }
        h = wf_wrap_view(k->c, s->st, w.data, w.dtype, w.rank, w.dims, w.strides);
        if (h.slot == 0) {
            return h;
        }
        r = wf_slot_at(k->c, h.slot);
    }
    wf_recorder *rec = k->c->recorder;
    rc = rec ? rec->view(rec, k->op, k->attr, s, r, &k->why) : 0;
    if (rc || (k->tracked && wf_grad_enabled(k->c) && wf_call_record(k, 1, &r))) {
        wf_slot_destroy(k->c, r);
        return wf_call_fail(k);
    }
    return h;
}

/* -- every other row ------------------------------------------------------------------------------------ */

/* Scalars among operands of such rows become 0-d tensors. */
static bool has_scalar(const wf_call *k)
{
    for (int i = 0; i < k->nsrc; i++) {
        if (wf_is_scalar(k->src[i])) {
            return true;
        }
    }
    return false;
}

weft_tensor wf_scalar_tensor(weft_tensor t)
{
    double v = scalar_double(t);
    int64_t iv = (int64_t)t.serial;
    wf_attr a = {.dtype = (uint8_t)kind_default[t.context], .n_flt = 1, .flt = &v};
    if (t.context == WF_SCALAR_INT) { /* exact: a double does not hold every i64 */
        a = (wf_attr){.dtype = WEFT_I64, .n_dyn = 1, .dyn = &iv};
    }
    return wf_op0(WF_OP_FULL, &a);
}

static int fail_all(wf_call *k, int ndst, weft_tensor *dst);

static void with_scalars(wf_call *k, int ndst, weft_tensor *dst)
{
    weft_tensor small[SMALL_SRC];
    weft_tensor *t = k->nsrc > SMALL_SRC ? wf_malloc((size_t)k->nsrc * sizeof *t) : small;
    if (!t) {
        wf_fail(&k->why, WEFT_ENOMEM, "out of memory for %d operands", k->nsrc);
        fail_all(k, ndst, dst);
        return;
    }
    weft_scope sc = weft_scope_begin();
    int before = wf_device_enter(k->c, k->device);
    for (int i = 0; i < k->nsrc; i++) {
        t[i] = wf_is_scalar(k->src[i]) ? wf_scalar_tensor(k->src[i]) : k->src[i];
    }
    wf_device_enter(k->c, before);
    wf_dispatch(k->op, k->attr, k->nsrc, t, ndst, dst);
    for (int i = 0; i < ndst; i++) {
        dst[i] = weft_scope_give(sc, dst[i]);
    }
    weft_scope_end(sc);
    if (t != small) {
        wf_mfree(t);
    }
}

/* Views and types of all operands in one block when there are many. */
typedef struct operands {
    wf_view view_[SMALL_SRC];
    wf_type type_[SMALL_SRC];
    wf_view *view;
    wf_type *type;
} operands;

static int operands_open(wf_call *k, operands *o)
{
    o->view = o->view_;
    o->type = o->type_;
    if (k->nsrc > SMALL_SRC) {
        o->view = wf_malloc((size_t)k->nsrc * sizeof *o->view);
        o->type = wf_malloc((size_t)k->nsrc * sizeof *o->type);
        if (!o->view || !o->type) {
            return wf_fail(&k->why, WEFT_ENOMEM, "out of memory for %d operands", k->nsrc);
        }
    }
    for (int i = 0; i < k->nsrc; i++) {
        if (!k->slot[i]) {
            o->view[i] = (wf_view){.data = NULL, .dtype = WEFT_DTYPE_DEFAULT};
            o->type[i] = (wf_type){.dtype = WEFT_DTYPE_DEFAULT};
            continue;
        }
        wf_slot_view(k->slot[i], &o->view[i]);
        wf_slot_type(k->slot[i], &o->type[i]);
    }
    return 0;
}

static void operands_close(wf_call *k, operands *o)
{
    (void)k;
    if (o->view != o->view_) {
        wf_mfree(o->view);
    }
    if (o->type != o->type_) {
        wf_mfree(o->type);
    }
}

static int row_results(wf_call *k, operands *o, int ndst, weft_tensor *dst)
{
    wf_type out[WF_MAX_DST];
    wf_view v[WF_MAX_DST];
    wf_slot *r[WF_MAX_DST];
    int rc = wf_infer(k->op, k->attr, k->nsrc, o->type, out, &k->why);
    if (rc) {
        return rc;
    }
    int made = 0;
    for (; made < ndst; made++) {
        r[made] = wf_call_result(k, &out[made], &dst[made]);
        if (!r[made]) {
            rc = k->why.code;
            break;
        }
        wf_slot_view(r[made], &v[made]);
    }
    if (!rc && k->c->recorder) {
        rc = k->c->recorder->row(k->c->recorder, k->op, k->attr, k->nsrc, k->slot, r, &k->why);
    } else if (!rc) {
        wf_exec e = {k->op, k->nsrc, ndst, o->view, v, k->attr, &k->why};
        rc = __builtin_expect(k->device != WF_DEVICE_HOST, 0) ? wf_call_row_on_device(k, r, &e)
                                                              : wf_exec_row(&e);
    }
    if (!rc && k->tracked && wf_grad_enabled(k->c)) {
        rc = wf_call_record(k, ndst, r);
    }
    for (int i = 0; rc && i < made; i++) {
        wf_slot_destroy(k->c, r[i]);
    }
    return rc;
}

static int fail_all(wf_call *k, int ndst, weft_tensor *dst)
{
    weft_tensor e = wf_call_fail(k);
    for (int i = 0; i < ndst; i++) {
        dst[i] = e;
    }
    return k->why.code;
}

static int run_row(wf_call *k, int ndst, weft_tensor *dst)
{
    if (has_scalar(k)) {
        with_scalars(k, ndst, dst);
        return dst[0].slot == 0 ? (int)weft_error_status(dst[0]) : 0;
    }
    if (wf_rows[k->op].kind == WF_KIND_VIEW) {
        dst[0] = run_view(k);
        return dst[0].slot == 0 ? (int)weft_error_status(dst[0]) : 0;
    }
    if (wf_call_is_transfer(k)) {
        dst[0] = wf_call_transfer(k);
        return dst[0].slot == 0 ? (int)weft_error_status(dst[0]) : 0;
    }
    operands o;
    int rc = operands_open(k, &o);
    if (!rc) {
        rc = row_results(k, &o, ndst, dst);
    }
    operands_close(k, &o);
    return rc ? fail_all(k, ndst, dst) : 0;
}

static int dispatch(wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src, int ndst,
                    weft_tensor *dst)
{
    wf_ctx *c = wf_ctx_get();
    if (__builtin_expect(!c, 0)) {
        for (int i = 0; i < ndst; i++) {
            dst[i] = (weft_tensor){0, 0, UINT64_MAX};
        }
        return WEFT_ENOMEM;
    }
    wf_call k;
    weft_tensor failed = {0, 0, 0};
    int rc = wf_call_open(&k, c, op, attr, nsrc, src, &failed);
    if (rc < 0) {
        for (int i = 0; i < ndst; i++) {
            dst[i] = failed;
        }
        rc = (int)weft_error_status(failed);
    } else if (rc > 0 || (__builtin_expect((c->away | k.device) != 0, 0) &&
                          (rc = wf_call_enter_device(&k)) != 0)) {
        rc = fail_all(&k, ndst, dst);
    } else {
        /* kernels round to nearest, denormals on, whatever the caller set */
        unsigned mode = c->recorder ? 0 : wf_fpenv_enter();
        if (wf_op_is_elementwise(op)) {
            dst[0] = run_elementwise(&k);
            rc = dst[0].slot == 0 ? (int)weft_error_status(dst[0]) : 0;
        } else {
            rc = run_row(&k, ndst, dst);
        }
        if (!c->recorder) {
            wf_fpenv_leave(mode);
        }
    }
    wf_call_close(&k);
    return rc;
}

/* With a profile being taken: the event is the call's, and names it to the pool's workers. */
__attribute__((noinline, cold)) static int dispatch_noted(wf_op op, const wf_attr *attr, int nsrc,
                                                          const weft_tensor *src, int ndst,
                                                          weft_tensor *dst)
{
    const char *outer = wf_prof_label;
    int64_t start = wf_prof_clock();
    wf_prof_label = wf_rows[op].name;
    int rc = dispatch(op, attr, nsrc, src, ndst, dst);
    wf_prof_label = outer;
    wf_prof_op(start, op, false, nsrc, src, ndst, dst);
    return rc;
}

int wf_dispatch(wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src, int ndst,
                weft_tensor *dst)
{
    if (wf_prof_is_on() && !(wf_tls_ctx && wf_tls_ctx->recorder)) {
        return dispatch_noted(op, attr, nsrc, src, ndst, dst);
    }
    return dispatch(op, attr, nsrc, src, ndst, dst);
}

/* -- values behind dispatch's back ------------------------------------------------------------------------ */

int wf_need_value(wf_ctx *c, wf_slot *s, bool write, const char *op, wf_why *why)
{
    int rc = 0;
    if (c->recorder) {
        rc = c->recorder->need(c->recorder, s, write, op, why);
    } else if (atomic_load_explicit(&s->st->is_virtual, memory_order_acquire)) {
        rc = wf_fail(why, WEFT_EUNSUPPORTED, "it belongs to a running trace of another thread");
        wf_hint(why, "read it after the traced call has returned");
    }
    if (!rc && s->st->broken) {
        rc = wf_fail(why, WEFT_EINVALID, "it holds no valid value: %s on it failed",
                     wf_rows[s->st->write_op].name);
        wf_hint(why, "write it anew (weft_copy_, weft_fill_) before reading it");
    }
    return rc;
}

wf_recorder *wf_pause(wf_ctx *c, const char *op, int *rc, wf_why *why)
{
    wf_recorder *r = c->recorder;
    *rc = r ? r->need(r, NULL, true, op, why) : 0;
    if (r && !*rc) {
        c->recorder = NULL;
    }
    return *rc ? NULL : r;
}

weft_tensor wf_op0(wf_op op, const wf_attr *attr)
{
    weft_tensor r;
    wf_dispatch(op, attr, 0, NULL, 1, &r);
    return r;
}

weft_tensor wf_op1(wf_op op, const wf_attr *attr, weft_tensor a)
{
    weft_tensor r;
    wf_dispatch(op, attr, 1, &a, 1, &r);
    return r;
}

weft_tensor wf_op2(wf_op op, const wf_attr *attr, weft_tensor a, weft_tensor b)
{
    weft_tensor s[2] = {a, b}, r;
    wf_dispatch(op, attr, 2, s, 1, &r);
    return r;
}

weft_tensor wf_op3(wf_op op, const wf_attr *attr, weft_tensor a, weft_tensor b, weft_tensor d)
{
    weft_tensor s[3] = {a, b, d}, r;
    wf_dispatch(op, attr, 3, s, 1, &r);
    return r;
}
