/*
 * eager/dispatch_rows.c -- rows that are not elementwise on their way through dispatch: views, which map memory and run
 * nothing, and rows whose results are inferred, made and filled by their kernel.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/call.h"
#include "eager/device.h"
#include "eager/exec.h"
#include "eager/layout.h"

/* -- views --------------------------------------------------------------------------------------------- */

weft_tensor wf_wrap_view(wf_ctx *c, wf_storage *st, void *data, int dtype, int rank,
                         const int64_t *dims, const int64_t *strides)
{
    return wf_wrap_at(c, st, (char *)data - (char *)st->data, dtype, rank, dims, strides);
}

weft_tensor wf_wrap_at(wf_ctx *c, wf_storage *st, int64_t offset, int dtype, int rank,
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
    s->offset = offset;
    wf_storage_view(st);
    return h;
}

/* as_strided and diagonal reach anywhere: every element must lie inside the storage. */
static int check_bounds(wf_call *k, const wf_view *v)
{
    wf_slot *s = k->slot[0];
    int64_t lo, hi, size = (int64_t)wf_dtype_size(v->dtype);
    const int names = wf_map_reach(v->rank, v->dims, v->strides, &lo, &hi);
    if (names <= 0) {
        return names ? wf_fail(&k->why, WEFT_ESHAPE, "the index map overflows") : 0;
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
    if (r->st == s->st) {
        wf_slot_view_made(k->c, k->op, s, r);
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

static void with_scalars(wf_call *k, int ndst, weft_tensor *dst)
{
    weft_tensor small[SMALL_SRC];
    const size_t bytes = (size_t)k->nsrc * sizeof(weft_tensor);
    weft_tensor *t = k->nsrc > SMALL_SRC ? wf_scratch(bytes) : small;
    if (!t) {
        wf_fail(&k->why, WEFT_ENOMEM, "out of memory for %d operands", k->nsrc);
        wf_call_fail_all(k, ndst, dst);
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
        wf_scratch_free(t, bytes);
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
        o->view = wf_scratch((size_t)k->nsrc * sizeof *o->view);
        o->type = wf_scratch((size_t)k->nsrc * sizeof *o->type);
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
    if (o->type != o->type_) {
        wf_scratch_free(o->type, (size_t)k->nsrc * sizeof *o->type);
    }
    if (o->view != o->view_) {
        wf_scratch_free(o->view, (size_t)k->nsrc * sizeof *o->view);
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
    k->last = k->device == WF_DEVICE_HOST && wf_row_lies_last(k->op, k->nsrc, k->slot, &out[0]);
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
        wf_exec e = {.op = k->op,
                     .nsrc = k->nsrc,
                     .ndst = ndst,
                     .src = o->view,
                     .dst = v,
                     .attr = k->attr,
                     .why = &k->why};
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

int wf_call_fail_all(wf_call *k, int ndst, weft_tensor *dst)
{
    weft_tensor e = wf_call_fail(k);
    for (int i = 0; i < ndst; i++) {
        dst[i] = e;
    }
    return k->why.code;
}

int wf_call_row(wf_call *k, int ndst, weft_tensor *dst)
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
    return rc ? wf_call_fail_all(k, ndst, dst) : 0;
}
