/*
 * eager/inplace.c -- writes into existing memory.
 *
 * A write that no gradient watches runs the row's kernel straight into the view. A watched one is
 * computed out of place like any op and then stored, so that tape and memory see one assignment
 * `storage := update(storage, map, value)`: aliases are right by construction.
 *
 * Invariants: the version of the storage grows by one per write; operands that overlap the target in
 * any way but exactly are copied first; a target that is not fully written is marked broken.
 */
#include <stdio.h>
#include <string.h>

#include "eager/call.h"
#include "eager/dense.h"
#include "eager/device.h"
#include "eager/exec.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "eager/quick.h"

/* Bytes [*lo, *hi) that a slot's view touches. */
static void byte_range(wf_slot *s, const char **lo, const char **hi)
{
    const int64_t *d = wf_dims(s), *st = wf_strides(s);
    int64_t size = (int64_t)wf_dtype_size(s->dtype);
    int64_t a = 0, b = 0;
    for (int i = 0; i < s->rank; i++) {
        int64_t span = (d[i] - 1) * st[i];
        if (span < 0) {
            a += span;
        } else {
            b += span;
        }
    }
    *lo = wf_slot_data(s) + a * size;
    *hi = wf_slot_data(s) + (b + 1) * size;
}

static bool same_view(wf_slot *a, wf_slot *b)
{
    return wf_slot_data(a) == wf_slot_data(b) && a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(wf_dims(a), wf_dims(b), (size_t)a->rank * sizeof(int64_t)) == 0 &&
           memcmp(wf_strides(a), wf_strides(b), (size_t)a->rank * sizeof(int64_t)) == 0;
}

static bool overlaps(wf_slot *a, wf_slot *b)
{
    const char *al, *ah, *bl, *bh;
    byte_range(a, &al, &ah);
    byte_range(b, &bl, &bh);
    return al < bh && bl < ah;
}

/* Two indices of one view at one address, as far as strides tell: an expanded axis, or as_strided with small strides. */
static bool self_overlaps(wf_slot *s)
{
    return !wf_map_is_injective(s->rank, wf_dims(s), wf_strides(s));
}

/* The op runs where the target is; operands may be numbers of the host. */
__attribute__((noinline, cold)) static int settle_device(wf_call *k, wf_slot *dst)
{
    wf_slot *all[SMALL_SRC + 1];
    int n = k->nsrc < SMALL_SRC ? k->nsrc : SMALL_SRC, device;
    memcpy(all, k->slot, (size_t)n * sizeof *all);
    all[n] = dst;
    device = wf_slot_device(dst);
    /* A copy comes from anywhere; a 0-d host target is no number for a device's operands. */
    bool numbers = wf_op_is_elementwise(k->op) && device != WF_DEVICE_HOST;
    if (k->op != WF_OP_COPY && wf_device_of_operands(n + 1, all, numbers, 0, &k->why) < 0) {
        return k->why.code;
    }
    k->device = (uint8_t)device;
    wf_recorder *r = k->c->recorder;
    return r && r->device != device ? r->enter(r, device, &k->why) : 0;
}

static int device_check(wf_call *k, wf_slot *dst)
{
    return __builtin_expect((dst->st->device | k->device | k->c->away) != 0, 0)
               ? settle_device(k, dst)
               : 0;
}

static int target_check(wf_call *k, wf_slot *dst)
{
    if (wf_storage_is_foreign(dst->st, k->c->recorder)) {
        wf_fail(&k->why, WEFT_EUNSUPPORTED,
                "the target belongs to a running trace of another thread");
        wf_hint(&k->why, "write to it after the traced call has returned");
    } else if (dst->st->read_only) {
        wf_fail(&k->why, WEFT_EINVALID, "the target's memory is read-only");
        wf_hint(&k->why, "write to a copy: weft_clone(x)");
    } else if (self_overlaps(dst)) {
        wf_fail(&k->why, WEFT_ESHAPE, "several elements of the target share one address");
        wf_hint(&k->why, "write to a copy: weft_clone(x)");
    } else if ((dst->flags & WF_SLOT_REQUIRES_GRAD) && wf_grad_enabled(k->c)) {
        wf_fail(&k->why, WEFT_EGRAD, "the target is a leaf that requires a gradient");
        wf_hint(&k->why, "update parameters between weft_no_grad_begin and weft_no_grad_end");
    } else if ((dst->flags & WF_SLOT_UNRECORDED) && wf_grad_enabled(k->c)) {
        wf_fail(&k->why, WEFT_EGRAD,
                "the target is a view, made while recording was off, of a value with a history");
        wf_hint(&k->why, "make the view anew, or write between weft_no_grad_begin and "
                         "weft_no_grad_end; weft_detach is for what shall have no history");
    } else if (dst->st->broken == WF_ARRIVING) {
        wf_storage_arrive(dst->st, &k->why); /* else it would arrive over what is written */
    }
    return k->why.code;
}

/* The result's type must fit the target: extents equal, kind not above the target's; a tensor that is copied is cast. */
static int result_check(wf_call *k, wf_slot *dst, const wf_type *out)
{
    wf_type t;
    wf_slot_type(dst, &t);
    const bool cast = k->op == WF_OP_COPY && k->slot[0];
    if (!cast && wf_dtype_kind(out->dtype) > wf_dtype_kind(dst->dtype)) {
        wf_fail(&k->why, WEFT_EDTYPE, "a result of %s does not go into a target of %s",
                wf_dtype_name(out->dtype), wf_dtype_name(dst->dtype));
        wf_hint(&k->why, "cast the value: weft_copy_(x, weft_cast(value, weft_dtype_of(x)))");
        return k->why.code;
    }
    if (wf_type_same_dims(out, &t)) {
        return 0;
    }
    wf_type wide = t;
    if (wf_broadcast(&wide, out, &k->why)) {
        return k->why.code;
    }
    if (!wf_type_same_dims(&wide, &t)) {
        wf_fail(&k->why, WEFT_ESHAPE, "the result is larger than the target");
        wf_hint(&k->why, "in-place ops broadcast operands, never the target");
    }
    return k->why.code;
}

/* As what a write of op is remembered: the user's call may have a name of its own for it. */
static inline wf_op writer(const wf_ctx *c, wf_op op)
{
    return c->called && c->called->write ? (wf_op)c->called->write : op;
}

static void wrote(wf_call *k, wf_slot *dst)
{
    wf_storage_wrote(dst->st, writer(k->c, k->op));
}

/* dst := value of the same extents. */
static int assign(wf_call *k, wf_slot *dst, wf_slot *value)
{
    wf_recorder *r = k->c->recorder;
    if (r) {
        int rc = r->device != dst->st->device ? r->enter(r, dst->st->device, &k->why) : 0;
        return rc ? rc : r->copy(r, dst, value, WEFT_NONE, &k->why);
    }
    wf_view d, s;
    wf_slot_view(dst, &d);
    wf_slot_view(value, &s);
    if (d.device != WF_DEVICE_HOST) {
        int rc = wf_storage_use(value->st, false, &k->why);
        rc = rc ? rc : wf_storage_use(dst->st, true, &k->why);
        return rc ? rc : wf_device_copy(d.device, &d, &s, &k->why);
    }
    wf_copy(&d, &s);
    return 0;
}

/* dst := value by assignment; records it when either is tracked. */
static int store(wf_call *k, wf_slot *dst, weft_tensor value)
{
    wf_ctx *c = k->c;
    bool pinned;
    wf_slot *v = wf_pin(c, value, &pinned, &k->why);
    if (!v) {
        return k->why.code;
    }
    wf_type t;
    wf_slot_type(dst, &t);
    int rc = 0;
    if (wf_grad_enabled(c) && wf_tape_api && wf_dtype_kind(dst->dtype) == 2 &&
        (wf_slot_tracked(dst) || wf_slot_tracked(v))) {
        rc = wf_tape_api->store(c, dst, v, &k->why);
    }
    rc = rc ? rc : assign(k, dst, v);
    if (!rc) {
        wrote(k, dst);
    }
    if (pinned) {
        wf_unpin(c, v);
    }
    return rc;
}

/* value as the target's element type and extents, through ordinary recorded ops. */
static weft_tensor fit(weft_tensor value, wf_slot *dst)
{
    wf_attr cast = {.dtype = dst->dtype};
    wf_attr dims = {.n_dyn = dst->rank, .dyn = wf_dims(dst)};
    weft_tensor v = wf_op1(WF_OP_CAST, &cast, value);
    return wf_op1(WF_OP_EXPAND, &dims, v);
}

/* Operands for the out-of-place op: where a derivative will read the target's old value, a copy of it,
 * since the memory is about to change. */
static void save_target(wf_call *k, wf_slot *dst, weft_tensor *src)
{
    unsigned reads = 0;
    for (int i = 0; i < k->nsrc && wf_op_is_elementwise(k->op); i++) {
        if (k->slot[i] && wf_slot_tracked(k->slot[i])) {
            reads |= wf_vjp_reads(k->op, i);
        }
    }
    for (int i = 0; i < k->nsrc && i < SMALL_SRC; i++) {
        bool old = k->slot[i] && k->slot[i]->st == dst->st && (reads & (1u << i));
        src[i] = old ? wf_op1(WF_OP_COPY, NULL, k->src[i]) : k->src[i];
    }
}

/* The value that is copied, as a tensor beside the target. */
static weft_tensor copied_value(wf_call *k, wf_slot *dst)
{
    int64_t ints[2] = {wf_slot_device(dst), WF_DEVICE_HOST};
    if (k->slot[0] && wf_slot_device(k->slot[0]) != ints[0]) {
        ints[1] = wf_slot_device(k->slot[0]);
        return wf_op1(WF_OP_COPY, &(wf_attr){.n_ints = 2, .ints = ints}, k->src[0]);
    }
    if (!wf_is_scalar(k->src[0])) {
        return k->src[0];
    }
    int before = wf_device_enter(k->c, (int)ints[0]);
    weft_tensor r = wf_scalar_tensor(k->src[0]);
    wf_device_enter(k->c, before);
    return r;
}

static int run_tracked(wf_call *k, wf_slot *dst)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor r;
    int rc = 0;
    if (k->op == WF_OP_COPY) {
        r = copied_value(k, dst);
    } else {
        weft_tensor src[SMALL_SRC];
        save_target(k, dst, src);
        wf_dispatch(k->op, k->attr, k->nsrc, k->nsrc <= SMALL_SRC ? src : k->src, 1, &r);
    }
    if (r.slot != 0) {
        wf_type t;
        bool pinned;
        wf_slot *s = wf_pin(k->c, r, &pinned, &k->why);
        if (s) {
            wf_slot_type(s, &t);
            rc = result_check(k, dst, &t);
            bool alias = s->st == dst->st ? overlaps(s, dst) : wf_storage_overlap(s->st, dst->st);
            if (pinned) {
                wf_unpin(k->c, s);
            }
            if (!rc) {
                /* an op's own result of the target's type is its value; a tensor that is copied has a node of its own */
                const bool fits = k->op != WF_OP_COPY && !alias && t.dtype == dst->dtype &&
                                  t.rank == dst->rank &&
                                  memcmp(t.dims, wf_dims(dst), t.rank * sizeof *t.dims) == 0;
                r = alias ? wf_op1(WF_OP_COPY, NULL, r) : r;
                r = fits ? r : fit(r, dst);
                rc = r.slot ? store(k, dst, r) : -1;
            }
        } else {
            rc = k->why.code;
        }
    } else {
        rc = -1;
    }
    weft_scope_end(sc);
    return rc;
}

/* Operand s overlaps the target without being it. In a trace, views of one storage are not in the way: they read its
 * value; of two storages in one memory (an import lies over the other) it knows two values, so that the operand is read
 * first, whatever its view. */
static bool is_in_the_way(const wf_call *k, wf_slot *dst, wf_slot *s)
{
    return s && (k->c->recorder ? wf_storage_overlap(s->st, dst->st)
                                : !same_view(s, dst) && overlaps(s, dst));
}

/* Replaces operands that are in the way by copies in the open scope. */
static int separate(wf_call *k, wf_slot *dst, weft_tensor *src)
{
    for (int i = 0; i < k->nsrc; i++) {
        src[i] = k->src[i];
        if (is_in_the_way(k, dst, k->slot[i])) {
            src[i] = wf_op1(WF_OP_COPY, NULL, src[i]);
            if (src[i].slot == 0) {
                return -1;
            }
        }
    }
    return 0;
}

/* d, the view of dst, := v. */
static int copy_into(wf_call *k, wf_slot *dst, const wf_view *d, const wf_view *v)
{
    if (d->device == WF_DEVICE_HOST) {
        wf_copy(d, v);
        return 0;
    }
    int rc = wf_storage_use(dst->st, true, &k->why);
    if (!rc && v->device != WF_DEVICE_HOST) {
        rc = wf_storage_use(k->slot[0]->st, false, &k->why);
        return rc ? rc : wf_device_copy(d->device, d, v, &k->why);
    }
    uint64_t value = 0; /* a number */
    wf_view from = {.data = v->data, .dtype = v->dtype}, to = {.data = &value, .dtype = d->dtype};
    wf_copy(&to, &from);
    return rc ? rc : wf_device_fill(d->device, d, &value, &k->why);
}

/* d, the view of dst, := the row's value. */
static int map_into(wf_call *k, wf_slot *dst, const wf_view *d, int compute, const wf_view *v)
{
    if (d->device == WF_DEVICE_HOST) {
        int rc = wf_exec_map(k->op, compute, d, k->nsrc, v);
        return rc ? wf_fail(&k->why, rc, "out of memory for scratch tiles") : 0;
    }
    int rc = wf_storage_use(dst->st, true, &k->why);
    for (int i = 0; i < k->nsrc && !rc; i++) {
        rc = k->slot[i] ? wf_storage_use(k->slot[i]->st, false, &k->why) : 0;
    }
    return rc ? rc : wf_device_map(d->device, k->op, compute, d, k->nsrc, v, &k->why);
}

/* dst[...] = src */
static int copy_direct(wf_call *k, wf_slot *dst)
{
    wf_view d, v;
    wf_slot_view(dst, &d);
    wf_type out;
    wf_slot_type(dst, &out);
    wf_recorder *rec = k->c->recorder;
    if (k->slot[0]) {
        wf_type t;
        wf_slot_type(k->slot[0], &t);
        wf_type wide = out;
        if (wf_broadcast(&wide, &t, &k->why)) {
            return k->why.code;
        }
        if (!wf_type_same_dims(&wide, &out)) {
            return wf_fail(&k->why, WEFT_ESHAPE, "the source is larger than the target");
        }
    } else if ((int)k->src[0].context > wf_dtype_kind(dst->dtype)) {
        wf_fail(&k->why, WEFT_EDTYPE, "a scalar of higher kind does not go into a target of %s",
                wf_dtype_name(dst->dtype));
        wf_hint(&k->why, "kinds are bool < integer < float; hand in weft_i(2), or cast the target");
        return k->why.code;
    }
    int rc;
    if (rec) {
        rc = rec->copy(rec, dst, k->slot[0], k->src[0], &k->why);
    } else {
        double scalar;
        int dt = k->slot[0] ? k->slot[0]->dtype : wf_dtype_compute(dst->dtype);
        wf_call_operand_view(k, 0, dt, false, 0, &out, &v, &scalar);
        rc = copy_into(k, dst, &d, &v);
    }
    if (!rc) {
        wrote(k, dst);
    }
    return rc;
}

static int run_direct(wf_call *k, wf_slot *dst)
{
    if (k->op == WF_OP_COPY) {
        return copy_direct(k, dst);
    }
    wf_view d, v[3];
    wf_slot_view(dst, &d);
    wf_type out;
    bool flat;
    int rc = 0;
    wf_recorder *rec = k->c->recorder;
    int first = wf_rows[k->op].kind == WF_KIND_CHOOSE ? 1 : 0;
    int join = wf_call_join_types(k, first);
    weft_tensor held[3];
    if (wf_dtype_kind(join) == 1 && wf_numbers_stray(join, k->nsrc - first, k->src + first)) {
        join = wf_call_fit_numbers(k, first, join, held);
    }
    if (!join || wf_call_join_shapes(k, &out, &flat)) {
        return k->why.code;
    }
    for (int i = first; (join == WEFT_F16 || join == WEFT_BF16) && i < k->nsrc; i++) {
        if (k->slot[i] && k->slot[i]->dtype != join) {
            return run_tracked(k,
                               dst); /* an integer rounds to the half type first, as out of place */
        }
    }
    int compute = wf_dtype_compute(join);
    out.dtype = (uint8_t)wf_call_output_dtype(k->op, join);
    rc = result_check(k, dst, &out);
    if (!rc && rec) {
        rc = dst->st->device ? wf_call_record_numbers(k, join, dst)
                             : rec->map(rec, k->op, join, k->nsrc, k->slot, k->src, dst, &k->why);
        if (!rc) {
            wrote(k, dst);
        }
    }
    if (rc || rec) {
        return rc;
    }
    double scalars[3];
    wf_slot_type(dst, &out);
    for (int i = 0; i < k->nsrc; i++) {
        wf_call_operand_view(k, i, i < first ? WEFT_BOOL : compute, false, 0, &out, &v[i],
                             &scalars[i]);
    }
    rc = map_into(k, dst, &d, compute, v);
    if (!rc) {
        wrote(k, dst);
    }
    return rc;
}

/* A copy between devices goes by way of a tensor beside the target, but for single numbers. */
static bool comes_from_elsewhere(const wf_call *k, const wf_slot *dst)
{
    const wf_slot *s = k->op == WF_OP_COPY ? k->slot[0] : NULL;
    return s && s->st->device != dst->st->device &&
           (s->rank > 0 || s->st->device || k->c->recorder);
}

/* Is it a row that adds to places of its first operand, which is the target, and are the others elsewhere? */
static bool is_addition_at(const wf_call *k, wf_slot *dst)
{
    if ((k->op != WF_OP_INDEX_ADD && k->op != WF_OP_SCATTER_ADD) || k->c->recorder || k->device ||
        !k->slot[0] || !same_view(k->slot[0], dst) || !wf_slot_is_contiguous(dst)) {
        return false;
    }
    return k->slot[1] && k->slot[2] && !overlaps(k->slot[1], dst) && !overlaps(k->slot[2], dst);
}

/* Its kernel then adds in the target's memory: indices are checked before anything is written. */
static int add_at(wf_call *k, wf_slot *dst)
{
    wf_view d, v[3];
    wf_type out, t[3];
    for (int i = 0; i < 3; i++) {
        wf_slot_view(k->slot[i], &v[i]);
        wf_slot_type(k->slot[i], &t[i]);
    }
    wf_slot_view(dst, &d);
    wf_exec e = {
        .op = k->op, .nsrc = 3, .ndst = 1, .src = v, .dst = &d, .attr = k->attr, .why = &k->why};
    int rc = wf_infer(k->op, k->attr, 3, t, &out, &k->why);
    rc = rc ? rc : wf_exec_row(&e);
    if (!rc) {
        wrote(k, dst);
    }
    return rc;
}

static int run_inplace(wf_call *k, wf_slot *dst)
{
    int rc = target_check(k, dst);
    rc = rc ? rc : device_check(k, dst);
    if (rc) {
        return rc;
    }
    if (k->op == WF_OP_COPY && !k->slot[0] && wf_dtype_kind(dst->dtype) == 1 &&
        wf_numbers_stray(dst->dtype, 1, k->src)) {
        return wf_refuse_number(&k->why, (int64_t)k->src[0].serial, dst->dtype, true);
    }
    if (comes_from_elsewhere(k, dst)) {
        return run_tracked(k, dst);
    }
    bool elementwise = wf_op_is_elementwise(k->op) || k->op == WF_OP_COPY;
    bool tracked = wf_grad_enabled(k->c) && wf_tape_api && (k->tracked || wf_slot_tracked(dst));
    if (tracked || !elementwise) {
        return !tracked && is_addition_at(k, dst) ? add_at(k, dst) : run_tracked(k, dst);
    }
    bool apart = k->nsrc <= SMALL_SRC;
    for (int i = 0; i < k->nsrc && apart; i++) {
        apart = !is_in_the_way(k, dst, k->slot[i]);
    }
    if (apart) {
        return run_direct(k, dst);
    }
    weft_scope sc = weft_scope_begin();
    weft_tensor src[SMALL_SRC];
    rc = k->nsrc <= SMALL_SRC ? separate(k, dst, src) : -1;
    if (!rc) {
        wf_call inner;
        weft_tensor failed;
        rc = wf_call_open(&inner, k->c, k->op, k->attr, k->nsrc, src, &failed);
        if (!rc) {
            inner.device = k->device;
            rc = run_direct(&inner, dst);
        }
        if (rc > 0) {
            k->why = inner.why;
        }
        wf_call_close(&inner);
    }
    weft_scope_end(sc);
    return rc;
}

/* Names the public function (add_, copy_) and each tensor once. */
static void raise_inplace(wf_ctx *c, wf_op op, int nsrc, const weft_tensor *src, weft_tensor dst,
                          const wf_why *why)
{
    char name[WF_NAME_SIZE];
    weft_tensor all[SMALL_SRC + 1] = {dst};
    bool among = false;
    int n = nsrc < SMALL_SRC ? nsrc : SMALL_SRC;
    for (int i = 0; i < n; i++) {
        among |= src[i].slot == dst.slot && src[i].serial == dst.serial;
        all[i + 1] = src[i];
    }
    wf_raise(c, wf_write_name(op, name), n + !among, all + among, why);
}

__attribute__((noinline)) static int run_call(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc,
                                              const weft_tensor *src, weft_tensor dst)
{
    c->last_write = WEFT_NONE;
    wf_call k;
    weft_tensor failed = {0, 0, 0};
    if (wf_is_error(dst)) {
        return wf_error_again(c, dst);
    }
    int rc = wf_call_open(&k, c, op, attr, nsrc, src, &failed);
    if (rc < 0) {
        rc = (int)weft_error_status(failed);
    } else if (rc == 0) {
        bool pinned = false;
        wf_slot *s = dst.slot < WF_ABSENT_SLOT ? wf_pin(c, dst, &pinned, &k.why) : NULL;
        if (s) {
            unsigned mode = c->recorder ? 0 : wf_fpenv_enter();
            rc = run_inplace(&k, s);
            if (!c->recorder) {
                wf_fpenv_leave(mode);
            }
        } else {
            rc = k.why.code
                     ? k.why.code
                     : wf_fail(&k.why, WEFT_EINVALID, "the target is a scalar, not a tensor");
        }
        if (rc > 0) {
            raise_inplace(c, op, nsrc, src, dst, &k.why);
        } else if (rc < 0) {
            rc = (int)weft_last_status();
        }
        if (s && pinned) {
            wf_unpin(c, s);
        }
        if (rc == 0) {
            c->last_write = dst;
        }
    } else {
        wf_call_fail(&k);
    }
    wf_call_close(&k);
    return rc;
}

static int dispatch(wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
                    weft_tensor dst)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    int rc = 0;
    if (c->recorder
            ? wf_quick_in_trace(c) && c->recorder->quick_into(c->recorder, op, nsrc, src, dst, &rc)
            : wf_quick_may(c, op, nsrc) && wf_quick_into(c, op, nsrc, src, dst)) {
        if (c->recorder && c->called && c->called->write && rc == 0) {
            wf_wrote_as(c, dst, (wf_write)c->called->write, NULL);
        }
        c->last_write = rc ? WEFT_NONE : dst;
        return rc;
    }
    return run_call(c, op, attr, nsrc, src, dst);
}

void wf_wrote_as(wf_ctx *c, weft_tensor dst, wf_write write, const char *site)
{
    bool pinned;
    wf_slot *s = wf_pin(c, dst, &pinned, NULL);
    if (s && s->st) {
        s->st->write_op = (uint16_t)write;
        s->st->write_site = site;
    }
    if (s && pinned) {
        wf_unpin(c, s);
    }
}

int wf_dispatch_inplace(wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
                        weft_tensor dst)
{
    if (!wf_prof_is_on() || (wf_tls_ctx && wf_tls_ctx->recorder)) {
        return dispatch(op, attr, nsrc, src, dst);
    }
    const char *outer = wf_prof_label;
    int64_t start = wf_prof_clock();
    wf_prof_label = wf_rows[op].name;
    int rc = dispatch(op, attr, nsrc, src, dst);
    wf_prof_label = outer;
    wf_prof_op(start, op, true, nsrc, src, 1, &dst);
    return rc;
}
