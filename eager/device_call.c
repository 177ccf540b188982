/*
 * eager/device_call.c -- what dispatch does when somebody is not in host memory.
 *
 * Kept apart from call.c and elementwise.c, whose ordinary path pays one branch for it. A transfer is the row COPY
 * with an attribute: the device to go to and the one to come from, for its derivative. It is never part of a trace.
 */
#include "eager/call.h"
#include "eager/device.h"

int wf_call_settle_device(wf_call *k)
{
    wf_ctx *c = k->c;
    int device =
        wf_device_of_operands(k->nsrc, k->slot, wf_op_is_elementwise(k->op), c->device, &k->why);
    if (device < 0) {
        return k->why.code;
    }
    k->device = (uint8_t)device;
    return 0;
}

int wf_call_enter_device(wf_call *k)
{
    wf_recorder *r = k->c->recorder;
    return r && r->device != k->device ? r->enter(r, k->device, &k->why) : 0;
}

int wf_call_use(wf_call *k, int ndst, wf_slot *const *dst)
{
    for (int i = 0; i < k->nsrc; i++) {
        if (k->slot[i] && wf_storage_use(k->slot[i]->st, false, &k->why)) {
            return k->why.code;
        }
    }
    for (int i = 0; i < ndst; i++) {
        if (wf_storage_use(dst[i]->st, true, &k->why)) {
            return k->why.code;
        }
    }
    return 0;
}

int wf_call_map_on_device(wf_call *k, int compute, wf_slot *r, const wf_view *dst, const wf_view *v)
{
    return wf_call_use(k, 1, &r)
               ? k->why.code
               : wf_device_map(k->device, k->op, compute, dst, k->nsrc, v, &k->why);
}

int wf_call_row_on_device(wf_call *k, wf_slot *const *r, wf_exec *e)
{
    return wf_call_use(k, e->ndst, r) ? k->why.code : wf_device_row(k->device, e);
}

/* -- numbers of the host ------------------------------------------------------------------------------------------ */

int wf_call_record_numbers(wf_call *k, int join, wf_slot *dst)
{
    wf_recorder *rec = k->c->recorder;
    wf_slot *slot[SMALL_SRC];
    weft_tensor src[SMALL_SRC];
    for (int i = 0; i < k->nsrc; i++) { /* of an elementwise row: few */
        src[i] = k->slot[i] && !k->slot[i]->st->device ? wf_device_number(k->c, k->src[i], &k->why)
                                                       : k->src[i];
        slot[i] = wf_is_scalar(src[i]) ? NULL : k->slot[i];
    }
    return k->why.code ? k->why.code : rec->map(rec, k->op, join, k->nsrc, slot, src, dst, &k->why);
}

bool wf_call_has_tracked_number(const wf_call *k)
{
    for (int i = 0; i < k->nsrc && k->tracked && wf_grad_enabled(k->c); i++) {
        if (k->slot[i] && !k->slot[i]->st->device && wf_slot_tracked(k->slot[i])) {
            return true;
        }
    }
    return false;
}

weft_tensor wf_call_move_numbers(wf_call *k)
{
    weft_tensor t[3], r;
    weft_scope sc = weft_scope_begin();
    int64_t ints[2] = {k->device, WF_DEVICE_HOST};
    for (int i = 0; i < k->nsrc; i++) {
        bool number = k->slot[i] && !k->slot[i]->st->device;
        t[i] = number ? wf_op1(WF_OP_COPY, &(wf_attr){.n_ints = 2, .ints = ints}, k->src[i])
                      : k->src[i];
    }
    wf_dispatch(k->op, k->attr, k->nsrc, t, 1, &r);
    return weft_scope_return(sc, r);
}

/* -- transfers ---------------------------------------------------------------------------------------------------- */

/* NULL: the result on the host is waited for. */
static wf_storage *storage_later(const wf_call *k, const wf_type *t)
{
    const size_t bytes = (size_t)wf_type_numel(t) * wf_dtype_size(t->dtype);
    return bytes ? wf_device_storage_later(wf_slot_device(k->slot[0]), bytes) : NULL;
}

weft_tensor wf_call_transfer(wf_call *k)
{
    int rc = 0, to = (int)k->attr->ints[0];
    wf_recorder *rec = wf_pause(k->c, "to", &rc, &k->why);
    rc = rc ? rc : wf_need_operand(k->c, k->slot[0], "to", &k->why);
    weft_tensor h;
    wf_slot *r = NULL;
    wf_storage *later = NULL;
    wf_type t;
    wf_slot_type(k->slot[0], &t);
    k->device = (uint8_t)to;
    if (!rc) {
        later = to ? NULL : storage_later(k, &t);
        r = later ? wf_call_result_in(k, &t, later, &h) : wf_call_result(k, &t, &h);
        rc = r ? wf_call_use(k, 1, &r) : k->why.code;
    }
    if (!rc) {
        wf_view d, s;
        wf_slot_view(r, &d);
        wf_slot_view(k->slot[0], &s);
        rc = later ? wf_device_queue_read(s.device, later, &s, &k->why)
                   : wf_device_move(&d, &s, &k->why);
    }
    if (!rc && k->tracked && wf_grad_enabled(k->c)) {
        rc = wf_call_record(k, 1, &r);
    }
    wf_resume(k->c, rec ? rec : k->c->recorder);
    if (rc && r) {
        wf_slot_destroy(k->c, r);
    }
    return rc ? wf_call_fail(k) : h;
}

bool wf_call_is_transfer(const wf_call *k)
{
    return k->op == WF_OP_COPY && k->attr->n_ints == 2 && k->slot[0];
}
