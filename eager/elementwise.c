/*
 * eager/elementwise.c -- elementwise rows on their way through dispatch: promotion, broadcasting, the kernel or the
 * trace, the tape.
 *
 * Two ways: operands that are row-major (or all channels-last), of one type and of the same extents run as one axis;
 * everything else goes through the rules of promotion and broadcasting.
 */
#include <string.h>

#include "eager/call.h"
#include "eager/device.h"
#include "eager/exec.h"
#include "eager/layout.h"

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

static void map_views(wf_call *k, int first, int compute, const wf_type *out, bool flat, wf_view *v,
                      double (*scalars)[3])
{
    int64_t n = wf_type_numel(out);
    for (int i = 0; i < k->nsrc; i++) {
        wf_call_operand_view(k, i, i < first ? WEFT_BOOL : compute, flat, n, out, &v[i],
                             &(*scalars)[i]);
    }
}

/* The common case without broadcasting, promotion or scalars: every operand row-major or every one channels-last, with the
 * same extents and an element type the row takes. Returns the number of elements, or -1. */
static int64_t flat_count(const wf_call *k)
{
    wf_slot *a = k->slot[0];
    if (!a || !(wf_rows[k->op].types & WF_BIT(a->dtype)) || wf_rows[k->op].kind == WF_KIND_CHOOSE) {
        return -1;
    }
    const int64_t *d = wf_dims(a), *st = wf_strides(a);
    int64_t n = wf_slot_row_major(a);
    if (n < 0 && k->device == WF_DEVICE_HOST && wf_slot_lies_last(a)) {
        n = wf_slot_numel(a);
    }
    for (int j = 1; j < k->nsrc && n >= 0; j++) {
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

/* The result r, of handle h, after rc: on the tape, or gone. */
static inline weft_tensor finish(wf_call *k, int rc, wf_slot *r, weft_tensor h)
{
    if (!rc && k->tracked && wf_grad_enabled(k->c)) {
        rc = wf_call_record(k, 1, &r);
    }
    if (rc) {
        wf_slot_destroy(k->c, r);
        return wf_call_fail(k);
    }
    return h;
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
    return finish(k, rc, r, h);
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

weft_tensor wf_call_elementwise(wf_call *k)
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
    weft_tensor held[3];
    if (wf_dtype_kind(join) == 1 && wf_numbers_stray(join, k->nsrc - first, k->src + first)) {
        join = wf_call_fit_numbers(k, first, join, held);
    }
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
    k->last = k->device == WF_DEVICE_HOST && wf_all_lie_last(k->nsrc, k->slot, out.rank, out.dims);
    weft_tensor h;
    wf_slot *r = wf_call_result(k, &out, &h);
    if (!r) {
        return wf_call_fail(k);
    }
    int rc =
        k->c->recorder ? record_map(k, join, r) : exec_broadcast(k, first, compute, &out, flat, r);
    return finish(k, rc, r, h);
}
