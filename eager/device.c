/*
 * eager/device.c -- devices by name: where a tensor is, moving it, and why a device cannot be used.
 *
 * Nothing here knows what a device is made of: the table wf_device_api does, and is opened when a device is first asked
 * for. A program that never asks pays one branch an op.
 */
#include "eager/borrow.h"
#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/device.h"
#include "jit/ir/thread_text.h"

#include <stdio.h>
#include <string.h>

#pragma GCC diagnostic error "-Wmissing-prototypes"

const wf_device_ops *_Atomic wf_device_api;

int wf_device_code(weft_device d)
{
    if (d.kind == WEFT_DEVICE_CPU && d.index == 0) {
        return WF_DEVICE_HOST;
    }
    return d.kind == WEFT_DEVICE_CUDA && d.index >= 0 && d.index < WF_MAX_CUDA ? 1 + d.index : -1;
}

weft_device wf_device_public(int code)
{
    return code == WF_DEVICE_HOST ? (weft_device){WEFT_DEVICE_CPU, 0}
                                  : (weft_device){WEFT_DEVICE_CUDA, code - 1};
}

const char *wf_device_code_name(int code)
{
    static const char *const names[1 + WF_MAX_CUDA] = {
        [0] = "cpu",      [1] = "cuda:0",   [2] = "cuda:1",   [3] = "cuda:2",   [4] = "cuda:3",
        [5] = "cuda:4",   [6] = "cuda:5",   [7] = "cuda:6",   [8] = "cuda:7",   [9] = "cuda:8",
        [10] = "cuda:9",  [11] = "cuda:10", [12] = "cuda:11", [13] = "cuda:12", [14] = "cuda:13",
        [15] = "cuda:14", [16] = "cuda:15"};
    return code >= 0 && code <= WF_MAX_CUDA ? names[code] : "invalid";
}

int wf_device_open(int device, wf_why *why)
{
    if (device == WF_DEVICE_HOST) {
        return 0;
    }
    const wf_device_ops *none = NULL;
    atomic_compare_exchange_strong(&wf_device_api, &none, &wf_device_gpu);
    return atomic_load(&wf_device_api)->open(device - 1, why);
}

const char *wf_device_missing(int code)
{
    wf_why why = {0};
    if (!wf_device_open(code, &why)) {
        return NULL;
    }
    char *text = wf_thread_text(WF_TEXT_MISSING_DEVICE);
    if (text) {
        snprintf(text, WF_THREAD_TEXT, "%s", why.rule);
    }
    return text ? text : "out of memory";
}

int wf_device_refuse_read(const wf_slot *s, wf_why *why)
{
    int device = wf_slot_device(s);
    if (device == WF_DEVICE_HOST) {
        return 0;
    }
    wf_fail(why, WEFT_EUNSUPPORTED, "the memory is on %s", wf_device_code_name(device));
    wf_hint(why, "copy it first: weft_to(x, WEFT_CPU)");
    return why->code;
}

int wf_device_of_operands(int n, wf_slot *const *s, bool numbers, int none, wf_why *why)
{
    int first = -1, device = WF_DEVICE_HOST;
    for (int i = 0; i < n; i++) { /* where the op runs: the first device that somebody is on */
        first = s[i] && first < 0 ? i : first;
        device = s[i] && device == WF_DEVICE_HOST ? wf_slot_device(s[i]) : device;
    }
    if (first < 0) {
        return none;
    }
    for (int i = 0; i < n; i++) {
        int is = s[i] ? wf_slot_device(s[i]) : device;
        if (is == device || (numbers && is == WF_DEVICE_HOST && s[i]->rank == 0)) {
            continue;
        }
        int other = first;
        for (int k = 0; k < n && wf_slot_device(s[other]) == is; k++) {
            other = s[k] ? k : other;
        }
        int lo = other < i ? other : i, hi = other < i ? i : other;
        wf_fail(why, WEFT_EINVALID,
                "operands are on two devices: operand %d on %s, operand %d on %s", lo,
                wf_device_code_name(wf_slot_device(s[lo])), hi,
                wf_device_code_name(wf_slot_device(s[hi])));
        wf_hint(why, "move one of them: weft_to(x, device)");
        return -1;
    }
    return device;
}

int wf_device_of_handle(wf_ctx *c, weft_tensor t)
{
    wf_hold how;
    wf_slot *s = wf_take_hold(c, t, &how);
    const int device = s ? wf_slot_device(s) : WF_DEVICE_HOST;
    if (s) {
        wf_end_hold(c, s, how);
    }
    return device;
}

weft_tensor wf_device_on_host(weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    int from = c ? wf_device_of_handle(c, t) : WF_DEVICE_HOST;
    if (from == WF_DEVICE_HOST) {
        return t;
    }
    int64_t ints[2] = {WF_DEVICE_HOST, from};
    c->grad_off++;
    t = wf_op1(WF_OP_COPY, &(wf_attr){.n_ints = 2, .ints = ints}, t);
    c->grad_off--;
    return t;
}

int wf_device_touch(wf_ctx *c, wf_slot *s, const char *op, unsigned write, wf_why *why)
{
    if (wf_need_value(c, s, write != 0, op, why) || wf_storage_use(s->st, write != 0, why)) {
        return why->code;
    }
    if (write && s->st->read_only) {
        wf_fail(why, WEFT_EINVALID, "the memory is read-only");
        wf_hint(why, "write to a copy: weft_clone(x)");
        return why->code;
    }
    if (write && wf_grad_enabled(c) && wf_slot_tracked(s)) {
        return wf_fail(why, WEFT_EGRAD, "a gradient is recorded for the value");
    }
    if (write) {
        atomic_fetch_add_explicit(&s->st->version, 1, memory_order_relaxed);
        s->st->write_op = (uint16_t)write;
        s->st->write_site = NULL;
    }
    return 0;
}

int wf_device_view(const char *op, weft_tensor t, unsigned write, wf_view *v)
{
    wf_ctx *c = wf_ctx_get();
    wf_why why = {0};
    bool pinned = false;
    wf_slot *s = c && t.slot && t.slot < WF_ABSENT_SLOT ? wf_pin(c, t, &pinned, &why) : NULL;
    int rc = s                         ? wf_device_touch(c, s, op, write, &why)
             : t.slot == 0 && t.serial ? -1
             : why.code                ? why.code
                                       : wf_fail(&why, WEFT_EINVALID, "a scalar has no memory");
    if (s && !rc) {
        wf_slot_view(s, v);
    }
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return rc > 0 ? wf_raise_status(c, op, 1, &t, &why) : rc ? (int)weft_error_status(t) : 0;
}

/* A gradient that t has accumulated, or an empty handle. */
static weft_tensor gradient_of(wf_slot *s)
{
    wf_meta *m = atomic_load(&s->meta);
    weft_tensor g = WEFT_NONE;
    if (m) {
        wf_meta_lock(m);
        g = m->grad;
        wf_meta_unlock(m);
    }
    return g;
}

/* Leaves move, with graphs that read them or without; results do not. device: of the leaf's gradients to come, or -1. */
static int may_move(wf_ctx *c, const wf_slot *s, int device, wf_why *why)
{
    const wf_tape_hooks *tape = wf_tape_api;
    bool plain =
        s->node == 0 || (s->context == c->id && tape && c->tape && tape->leaf(c, s->node, device));
    if (!plain || s->st->roots != 0) {
        wf_fail(why, WEFT_EGRAD, "its value has a recorded history");
        wf_hint(why, "move results with weft_to(x, device)");
        return why->code;
    }
    return 0;
}

static int relocate(wf_ctx *c, weft_tensor t, wf_slot *s, int device, wf_why *why)
{
    if (may_move(c, s, -1, why)) {
        return why->code;
    }
    int64_t ints[2] = {device, s->st->device};
    weft_scope sc = weft_scope_begin();
    c->grad_off++;
    weft_tensor there = wf_op1(WF_OP_COPY, &(wf_attr){.n_ints = 2, .ints = ints}, t);
    c->grad_off--;
    if (there.slot) {
        wf_slot_relocate(c, s, wf_slot_at(c, there.slot)->st);
        may_move(c, s, device, why);
    }
    weft_scope_end(sc);
    return there.slot ? 0 : -1;
}

int wf_device_relocatable(weft_tensor t, int device)
{
    wf_ctx *c = wf_ctx_get();
    wf_why why = {0};
    bool pinned = false;
    wf_slot *s = c && t.slot && t.slot < WF_ABSENT_SLOT ? wf_pin(c, t, &pinned, &why) : NULL;
    weft_tensor g = s ? gradient_of(s) : WEFT_NONE;
    if (s && wf_slot_device(s) != device) {
        may_move(c, s, -1, &why);
    }
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return why.code ? wf_raise_status(c, "to", 1, &t, &why)
           : g.slot ? wf_device_relocatable(g, device)
                    : 0;
}

int wf_device_relocate(weft_tensor t, int device)
{
    wf_ctx *c = wf_ctx_get();
    wf_why why = {0};
    bool pinned = false;
    wf_slot *s = c && t.slot && t.slot < WF_ABSENT_SLOT ? wf_pin(c, t, &pinned, &why) : NULL;
    if (!s) {
        return why.code ? wf_raise_status(c, "to", 1, &t, &why) : 0;
    }
    weft_tensor g = gradient_of(s);
    int rc = wf_slot_device(s) == device ? 0 : relocate(c, t, s, device, &why);
    if (pinned) {
        wf_unpin(c, s);
    }
    if (rc) {
        return rc > 0 ? wf_raise_status(c, "to", 1, &t, &why) : (int)weft_last_status();
    }
    return g.slot ? wf_device_relocate(g, device) : 0;
}

weft_tensor wf_device_number(wf_ctx *c, weft_tensor t, wf_why *why)
{
    bool pinned = false;
    wf_slot *s = t.slot && t.slot < WF_ABSENT_SLOT ? wf_pin(c, t, &pinned, why) : NULL;
    if (s && wf_slot_device(s) == WF_DEVICE_HOST && s->rank == 0 &&
        !wf_need_operand(c, s, "a number of the host", why)) {
        const void *at = wf_slot_data(s);
        int kind = wf_dtype_kind(s->dtype);
        double d = wf_element_f64(s->dtype, at);
        t = kind == 2              ? weft_f(d)
            : kind == 0            ? weft_b(d != 0)
            : s->dtype == WEFT_I64 ? weft_i(*(const int64_t *)at)
                                   : weft_i((int64_t)d);
    }
    if (pinned) {
        wf_unpin(c, s);
    }
    return t;
}

/* -- public ------------------------------------------------------------------------------------------------------ */

const char *weft_device_name(weft_device device)
{
    return wf_device_code_name(wf_device_code(device));
}

weft_status weft_device_from_name(const char *name, weft_device *out)
{
    if (name && out && strcmp(name, "cuda") == 0) {
        *out = WEFT_CUDA(0);
        return WEFT_OK;
    }
    for (int code = 0; name && out && code <= WF_MAX_CUDA; code++) {
        if (strcmp(name, wf_device_code_name(code)) == 0) {
            *out = wf_device_public(code);
            return WEFT_OK;
        }
    }
    wf_api_error("device_from_name", WEFT_EINVALID, "'%s' is no device; say cpu, cuda or cuda:N",
                 name ? name : "(null)");
    return WEFT_EINVALID;
}

weft_device weft_device_of(weft_tensor t)
{
    wf_arg a;
    return wf_arg_open(&a, "device_of", t) ? wf_device_public(a.device) : (weft_device){-1, 0};
}

static weft_tensor no_such_device(const char *op, weft_device d)
{
    return d.kind == WEFT_DEVICE_CUDA
               ? wf_api_error(op, WEFT_EINVALID, "there is no cuda:%d; use WEFT_CUDA(i), i < %d",
                              d.index, WF_MAX_CUDA)
               : wf_api_error(op, WEFT_EINVALID,
                              "there is no device of kind %d and index %d; use WEFT_CPU or "
                              "WEFT_CUDA(i), i < %d",
                              d.kind, d.index, WF_MAX_CUDA);
}

weft_tensor(weft_to)(weft_tensor x, weft_device device)
{
    wf_arg a;
    int to = wf_device_code(device);
    if (to < 0) {
        return no_such_device("to", device);
    }
    if (!wf_arg_open(&a, "to", x)) {
        return a.error;
    }
    const char *missing = wf_device_missing(to);
    if (missing) {
        wf_arg_fail(&a, WEFT_EUNSUPPORTED, "weft_doctor lists what is found",
                    "a tensor on %s cannot go to %s: %s", wf_device_code_name(a.device),
                    wf_device_code_name(to), missing);
        return a.error;
    }
    if (wf_is_scalar(x)) { /* a number is at home everywhere */
        return x;
    }
    if (a.device == to) {
        return wf_api_alias(x, &a.type);
    }
    int64_t ints[2] = {to, a.device};
    WF_CALLED(w, "to", x);
    return wf_called_end(&w, wf_op1(WF_OP_COPY, &(wf_attr){.n_ints = 2, .ints = ints}, x));
}

weft_device weft_default_device(void)
{
    wf_ctx *c = wf_ctx_get();
    return wf_device_public(c ? c->device : WF_DEVICE_HOST);
}

weft_status weft_set_default_device(weft_device device)
{
    wf_ctx *c = wf_ctx_get();
    int to = wf_device_code(device);
    if (to < 0) {
        return weft_error_status(no_such_device("set_default_device", device));
    }
    const char *missing = wf_device_missing(to);
    if (!c || missing) {
        return weft_error_status(wf_api_error("set_default_device", WEFT_EUNSUPPORTED,
                                              "tensors cannot be made on %s: %s; weft_doctor lists "
                                              "what is found",
                                              wf_device_code_name(to), missing ? missing : ""));
    }
    wf_device_enter(c, to);
    return WEFT_OK;
}

int weft_device_fallbacks(weft_device_fallback *out, int n)
{
    int found = 0;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        int64_t count = wf_device_fallbacks((wf_op)op);
        if (count && out && found < n) {
            out[found] = (weft_device_fallback){wf_rows[op].name, count};
        }
        found += count != 0;
    }
    return found;
}
