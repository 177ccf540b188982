/*
 * jit/trace.c -- the recorder behind dispatch, and running a recorded function op by op.
 *
 * Invariant: what is recorded is what dispatch would have done: promotions appear as casts, so that a
 * recorded function has the bits of the eager calls it came from.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/call.h"
#include "jit/trace.h"

struct wf_trace {
    wf_recorder base; /* first: dispatch calls through it */
    wf_ctx *c;
    wf_fn *fn;
    weft_tensor *captured; /* kept handles, one per input */
    wf_storage **storage;  /* identity of each captured tensor */
    char **data;
    int n, cap;
};

static int capture(wf_trace *t, wf_slot *s, wf_val *v, wf_why *why)
{
    for (int i = 0; i < t->n; i++) {
        wf_type have, want;
        wf_slot_type(s, &want);
        have = *wf_fn_type(t->fn, t->fn->inputs[i]);
        bool same = t->storage[i] == s->st && t->data[i] == s->data && have.dtype == want.dtype &&
                    have.rank == want.rank &&
                    memcmp(have.dims, want.dims, have.rank * sizeof have.dims[0]) == 0;
        bool pinned;
        wf_slot *c = same ? wf_pin(t->c, t->captured[i], &pinned, NULL) : NULL;
        same = c && memcmp(wf_strides(c), wf_strides(s), s->rank * sizeof(int64_t)) == 0;
        if (c && pinned) {
            wf_unpin(t->c, c);
        }
        if (same) {
            *v = t->fn->inputs[i];
            return 0;
        }
    }
    if (t->n == t->cap) {
        int cap = t->cap ? t->cap * 2 : 16;
        weft_tensor *h = wf_realloc(t->captured, (size_t)cap * sizeof *h);
        t->captured = h ? h : t->captured;
        wf_storage **st = wf_realloc(t->storage, (size_t)cap * sizeof *st);
        t->storage = st ? st : t->storage;
        char **d = wf_realloc(t->data, (size_t)cap * sizeof *d);
        t->data = d ? d : t->data;
        if (!h || !st || !d) {
            return wf_fail(why, WEFT_ENOMEM, "out of memory for captured tensors");
        }
        t->cap = cap;
    }
    weft_tensor h =
        wf_wrap_view(t->c, s->st, s->data, s->dtype, s->rank, wf_dims(s), wf_strides(s));
    wf_type type;
    wf_slot_type(s, &type);
    *v = h.slot ? wf_fn_input(t->fn, &type) : 0;
    if (!*v) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for captured tensors");
    }
    t->captured[t->n] = weft_keep(h);
    t->storage[t->n] = s->st;
    t->data[t->n++] = s->data;
    return 0;
}

/* The SSA value of an operand. */
static int value_of(wf_trace *t, weft_tensor h, wf_val *v, wf_why *why)
{
    *v = 0;
    if (wf_is_absent(h)) {
        return 0;
    }
    if (wf_is_scalar(h)) {
        *v = wf_fn_scalar(t->fn, (int)h.context, h.serial);
        return *v ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory for the trace");
    }
    bool pinned;
    wf_slot *s = wf_pin(t->c, h, &pinned, why);
    if (!s) {
        return why->code;
    }
    int rc = 0;
    if (s->flags & WF_SLOT_TRACED) {
        *v = s->node;
    } else {
        rc = capture(t, s, v, why);
    }
    if (pinned) {
        wf_unpin(t->c, s);
    }
    return rc;
}

/* Casts operands of an elementwise row to their common type, as dispatch does. */
static int promote(wf_trace *t, wf_op op, int nsrc, wf_val *v, wf_why *why)
{
    int first = wf_rows[op].kind == WF_KIND_CHOOSE ? 1 : 0, join = 0, weak = -1;
    for (int i = first; i < nsrc; i++) {
        int dt = wf_fn_type(t->fn, v[i])->dtype;
        if (wf_fn_at(t->fn, v[i])->op == WF_OP_SCALAR) {
            weak = wf_dtype_kind(dt) > weak ? wf_dtype_kind(dt) : weak;
        } else {
            join = join ? wf_dtype_promote(join, dt) : dt;
        }
    }
    join = wf_call_settle_type(op, join, weak);
    for (int i = first; i < nsrc; i++) {
        if (wf_fn_at(t->fn, v[i])->op != WF_OP_SCALAR && wf_fn_type(t->fn, v[i])->dtype != join) {
            wf_attr a = {.dtype = (uint8_t)join};
            int rc = wf_fn_append(t->fn, WF_OP_CAST, &a, 1, &v[i], &v[i], NULL, why);
            if (rc) {
                return rc;
            }
        }
    }
    return 0;
}

static int result_handle(wf_trace *t, wf_val v, weft_tensor *h, wf_why *why)
{
    const wf_type *type = wf_fn_type(t->fn, v);
    wf_slot *s = wf_slot_new(t->c, h);
    if (!s || wf_slot_shape(s, type->rank, type->dims, NULL)) {
        if (s) {
            wf_slot_destroy(t->c, s);
        }
        return wf_fail(why, WEFT_ENOMEM, "out of memory for a traced handle");
    }
    s->dtype = type->dtype;
    s->flags = WF_SLOT_TRACED;
    s->node = v;
    return 0;
}

static int record(wf_recorder *r, wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
                  weft_tensor *dst, wf_why *why)
{
    wf_trace *t = (wf_trace *)(void *)r;
    wf_val out[WF_MAX_DST];
    wf_val *v = malloc(((size_t)nsrc + 1) * sizeof *v);
    int rc = v ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory for the trace");
    for (int i = 0; i < nsrc && !rc; i++) {
        rc = value_of(t, src[i], &v[i], why);
    }
    if (!rc && wf_op_is_elementwise(op)) {
        rc = promote(t, op, nsrc, v, why);
    }
    rc = rc ? rc : wf_fn_append(t->fn, op, attr, nsrc, v, out, NULL, why);
    if (!rc && !wf_grad_enabled(t->c)) {
        t->fn->ins[out[0] - 1].flags |= WF_INS_NOGRAD;
    }
    for (int k = 0; k < wf_rows[op].ndst && !rc; k++) {
        rc = result_handle(t, out[k], &dst[k], why);
    }
    free(v);
    return rc;
}

wf_trace *wf_trace_begin(const char *name)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return NULL;
    }
    if (c->recorder) {
        wf_raise_text(c, WEFT_EINVALID, "trace", "a trace is already open on this thread");
        return NULL;
    }
    wf_trace *t = calloc(1, sizeof *t);
    wf_fn *f = t ? wf_fn_new(name) : NULL;
    if (!f) {
        free(t);
        wf_raise_text(c, WEFT_ENOMEM, "trace", "out of memory");
        return NULL;
    }
    t->base.record = record;
    t->c = c;
    t->fn = f;
    c->recorder = &t->base;
    return t;
}

int wf_trace_output(wf_trace *t, weft_tensor out)
{
    wf_why why = {0};
    wf_val v;
    int rc = value_of(t, out, &v, &why);
    if (!rc && (v == 0 || wf_fn_output(t->fn, v))) {
        rc = wf_fail(&why, v ? WEFT_ENOMEM : WEFT_EINVALID, "an output must be a tensor");
    }
    return rc ? wf_raise_status(t->c, "trace", 1, &out, &why) : 0;
}

wf_fn *wf_trace_end(wf_trace *t, weft_tensor **captured, int *n)
{
    wf_fn *f = t->fn;
    t->c->recorder = NULL;
    *captured = t->captured;
    *n = t->n;
    wf_mfree(t->storage);
    wf_mfree(t->data);
    free(t);
    return f;
}

void wf_trace_abort(wf_trace *t)
{
    weft_tensor *captured;
    int n;
    wf_fn_free(wf_trace_end(t, &captured, &n));
    for (int i = 0; i < n; i++) {
        weft_free(captured[i]);
    }
    wf_mfree(captured);
}

/* -- running ------------------------------------------------------------------------------------------- */

static weft_tensor slot_value(const wf_fn *f, uint32_t slot, const uint64_t *slots)
{
    return (weft_tensor){WF_SCALAR_SLOT, f->slot_kind[slot], slots ? slots[slot] : f->slots[slot]};
}

int wf_fn_run(const wf_fn *f, const weft_tensor *inputs, const uint64_t *slots, weft_tensor *out)
{
    static const wf_attr none;
    weft_tensor *v = malloc((f->n + 1u) * sizeof *v);
    wf_ctx *c = wf_ctx_get();
    if (!v || !c) {
        free(v);
        wf_raise_text(c, WEFT_ENOMEM, "run", "out of memory");
        return WEFT_ENOMEM;
    }
    weft_scope sc = weft_scope_begin();
    int rc = 0;
    v[0] = WF_ABSENT;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        const wf_ins *i = &f->ins[k];
        const wf_val *s = wf_ins_src(f, i);
        weft_tensor src[255];
        for (int a = 0; a < i->nsrc; a++) {
            src[a] = v[s[a]];
        }
        if (i->op == WF_OP_INPUT) {
            v[k + 1] = inputs[i->attr];
        } else if (wf_op_is_weak(i->op)) {
            v[k + 1] = slot_value(f, i->attr, i->op == WF_OP_CONST ? NULL : slots);
        } else if (i->op != WF_OP_RESULT) { /* further results are stored with their op */
            c->grad_off += (i->flags & WF_INS_NOGRAD) ? 1 : 0;
            rc = wf_dispatch((wf_op)i->op, i->attr ? &f->attrs[i->attr] : &none, i->nsrc, src,
                             wf_rows[i->op].ndst, &v[k + 1]);
            c->grad_off -= (i->flags & WF_INS_NOGRAD) ? 1 : 0;
        }
    }
    for (uint32_t k = 0; k < f->noutputs; k++) {
        out[k] = rc ? WEFT_NONE : weft_scope_give(sc, v[f->outputs[k]]);
    }
    weft_scope_end(sc);
    free(v);
    return rc;
}
