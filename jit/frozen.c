/*
 * jit/frozen.c -- describing frozen calls, and their lives; see frozen.h.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/borrow.h"
#include "jit/frozen_impl.h"

void wf_frozen_retain(wf_frozen *z)
{
    atomic_fetch_add_explicit(&z->refs, 1, memory_order_relaxed);
}

wf_plan *wf_frozen_plan(const wf_frozen *z, int *device)
{
    wf_plan_retain(z->plan);
    *device = z->device;
    return z->plan;
}

void wf_frozen_release(wf_frozen *z)
{
    if (!z || atomic_fetch_sub_explicit(&z->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (int i = 0; z->src && i < z->n_source; i++) {
        if (z->src[i].st) {
            atomic_fetch_sub_explicit(&z->src[i].st->held, 1, memory_order_relaxed);
            wf_storage_release(z->src[i].st);
        }
    }
    wf_frozen_drop_state(z);
    wf_mfree(z->spare);
    wf_capture_release(z->capture);
    pthread_mutex_destroy(&z->lock);
    wf_fn_free(z->fn);
    wf_plan_release(z->plan);
    wf_free(z, z->bytes);
}

uint32_t wf_frozen_count(wf_frozen *z)
{
    return atomic_fetch_add_explicit(&z->count, 1, memory_order_relaxed) + 1;
}

void wf_frozen_arm(wf_frozen *z, const wf_frozen *before, wf_fn *fn, const int32_t *writes,
                   wf_plan *p)
{
    z->fn = fn;
    z->plan = p;
    for (uint32_t k = 0; k < fn->noutputs; k++) {
        z->writes[k] = writes[k];
    }
    for (int i = 0; i < z->n_in; i++) {
        if (!wf_same_handle(z->in[i].only, before->in[i].only)) {
            z->in[i].only = WEFT_NONE;
        }
    }
    wf_plan_retain(p);
    wf_frozen_let_move(z, before);
}

/* -- describing ------------------------------------------------------------------------------------------------ */

/* A backward of the call goes back over what a tensor from outside was computed from, which no guard sees. */
static bool has_history(const wf_trace *t, const wf_slot *s)
{
    return t->backwards != t->c->backwards && wf_slot_tracked(s) &&
           (!(s->flags & WF_SLOT_REQUIRES_GRAD) || s->st->roots != 0);
}

/* The argument whose gradient lies in st; -1: of none. */
static int owner_of(const wf_frozen_args *a, const wf_storage *st)
{
    for (int i = 0; i < a->n; i++) {
        if (wf_frozen_gradient(a->c, a->slot[i]) == st) {
            return i;
        }
    }
    return -1;
}

/* Of the tensor that was used as t there is no kept handle. */
WF_COLD static bool refuse_captured(wf_ctx *c, weft_tensor t, char *reason)
{
    char what[120];
    if (!weft_ok(t)) { /* its handle went with the call, or before */
        return wf_frozen_refuse(reason,
                                "it uses a tensor that is gone when it returns: one that it "
                                "makes from memory, or a gradient that it replaces");
    }
    wf_describe(c, t, what, sizeof what);
    return wf_frozen_refuse(reason, "it uses %s, which is not kept (weft_keep it)", what);
}

/* A captured tensor, and a kept handle of it. False: made by the call, or of a scope that may end, or with a history. */
static bool describe_captured(wf_frozen_source *s, wf_trace *t, const wf_frozen_args *a,
                              const wf_outer *o, uint32_t *gradient, char *reason)
{
    wf_ctx *c = t->c;
    bool pinned;
    s->handle = o->first;
    wf_slot *slot = wf_pin(c, s->handle, &pinned, NULL);
    if (!slot || !pinned) { /* weft_grad gave out another handle than the one that is kept */
        s->handle = wf_frozen_gradient_in(t, o->st, gradient);
        slot = s->handle.slot ? wf_pin(c, s->handle, &pinned, NULL) : NULL;
    }
    if (!slot || !pinned) {
        return refuse_captured(c, o->first, reason);
    }
    const bool history = has_history(t, slot);
    s->flow = wf_frozen_flow(slot);
    s->hooks = wf_frozen_hooks(slot);
    s->owner = slot->flags & WF_SLOT_GRADIENT ? owner_of(a, o->st) : -1;
    wf_unpin(c, slot);
    return !history ||
           wf_frozen_refuse(reason, "gradients flow into the history of a captured tensor");
}

static int by_handle(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(weft_tensor));
}

static bool is_argument(const wf_frozen_args *a, weft_tensor t)
{
    int i = 0;
    while (i < a->n && !wf_same_handle(a->in[i], t)) {
        i++;
    }
    return i < a->n;
}

/* Other kept tensors on captured memory, and those that the function asked about: whoever frees one, or asks for its gradient,
 * means another call. What it asked of its arguments is guarded already. */
static bool describe_also(wf_frozen *z, wf_trace *t, const wf_frozen_args *a, char *reason)
{
    wf_follow *w = &t->follow;
    if (w->nalso) {
        qsort(w->also, w->nalso, sizeof *w->also, by_handle);
    }
    for (uint32_t i = 0; i < w->nalso; i++) {
        if ((i && wf_same_handle(w->also[i], w->also[i - 1])) || is_argument(a, w->also[i])) {
            continue;
        }
        bool pinned;
        wf_slot *s = wf_pin(t->c, w->also[i], &pinned, NULL);
        if (!s || !pinned) {
            return refuse_captured(t->c, w->also[i], reason);
        }
        const wf_outer *o = wf_trace_outer(t, s->st);
        const bool own = o && wf_same_handle(o->first, w->also[i]); /* guarded as a source */
        const bool history = o && !own && has_history(t, s);
        if (!own) {
            z->also[z->n_also++] =
                (wf_frozen_also){w->also[i], wf_frozen_flow(s), wf_frozen_hooks(s)};
        }
        wf_unpin(t->c, s);
        if (history) {
            return wf_frozen_refuse(reason, "gradients flow into the history of a captured tensor");
        }
    }
    return true;
}

static bool describe_sources(wf_frozen *z, wf_trace *t, const wf_frozen_args *a, char *reason)
{
    for (int i = 0; i < a->n; i++) {
        wf_frozen_look(&z->in[i], a, i);
        if (has_history(t, a->slot[i])) {
            return wf_frozen_refuse(reason, "gradients flow into the history of argument %d", i);
        }
    }
    uint32_t gradient = 0;
    for (int k = 0; k < z->n_source; k++) {
        const wf_outer *o = &t->outer[k];
        wf_frozen_source *s = &z->src[k];
        *s = (wf_frozen_source){.arg = -1, .owner = -1, .written = o->written};
        for (int i = a->n; i-- > 0;) {
            if (a->st[i] == o->st) {
                z->in[i].outer = k;
                s->arg = wf_same_handle(o->first, a->in[i]) ? i : s->arg;
            }
        }
        if (o->mixed && s->arg >= 0) {
            return wf_frozen_refuse(reason, "argument %d is a captured tensor too", s->arg);
        }
        s->bumps = atomic_load(&o->st->version) - o->version;
        s->write_op = o->st->write_op;
        s->write_site = o->st->write_site;
        if (o->st->roots) {
            return wf_frozen_refuse(reason, "a tensor that is written takes part in gradients");
        }
        if (s->arg >= 0) {
            continue;
        }
        if (!describe_captured(s, t, a, o, &gradient, reason)) {
            return false;
        }
        s->st = o->st;
        z->captured |= wf_frozen_bit(s->st);
        atomic_fetch_add_explicit(&s->st->held, 1, memory_order_relaxed);
        wf_storage_retain(s->st);
    }
    return describe_also(z, t, a, reason);
}

int wf_frozen_made(const wf_trace *t, const wf_storage *st)
{
    int k = 0;
    for (const wf_storage *p = t->first; p; p = p->next) {
        if (p == st) {
            return p->value ? k : -1;
        }
        k += p->value != 0;
    }
    return -1;
}

void wf_frozen_map(wf_frozen_out *o, wf_slot *s, int index)
{
    o->index = index;
    o->dtype = s->dtype;
    o->rank = s->rank;
    o->offset = s->offset;
    o->site = s->site;
    memcpy(o->dims, wf_dims(s), (size_t)s->rank * sizeof o->dims[0]);
    memcpy(o->strides, wf_strides(s), (size_t)s->rank * sizeof o->strides[0]);
}

static bool describe_output(wf_frozen *z, wf_trace *t, const weft_tensor *in, weft_tensor h, int i,
                            int *handles, char *reason)
{
    wf_frozen_out *o = &z->out[i];
    *o = (wf_frozen_out){.kind = WF_OUT_VALUE, .value = h};
    if (h.slot == 0 || h.slot >= WF_ABSENT_SLOT) {
        return true;
    }
    for (int k = 0; k < z->n_in; k++) {
        if (wf_same_handle(in[k], h)) {
            o->kind = WF_OUT_ARG;
            o->index = k;
            return true;
        }
    }
    bool pinned;
    wf_slot *s = wf_pin(t->c, h, &pinned, NULL);
    if (!s) {
        return wf_frozen_refuse(reason, "output %d is not a live tensor", i);
    }
    o->index = wf_frozen_made(t, s->st);
    bool ok = true;
    if (o->index < 0 && !pinned) {
        ok = wf_frozen_refuse(reason, "output %d is a view of a tensor from outside", i);
    } else if (o->index >= 0 && pinned) {
        ok = wf_frozen_refuse(reason, "it keeps output %d", i);
    } else if (wf_frozen_flow(s)) {
        ok = wf_frozen_refuse(reason, "output %d has a gradient history (weft_detach it)", i);
    } else if (o->index >= 0) {
        int k = 0;
        while (k < i && !(z->out[k].kind == WF_OUT_MADE && wf_same_handle(z->out[k].value, h))) {
            k++;
        }
        o->kind = k < i ? WF_OUT_AGAIN : WF_OUT_MADE;
        if (k < i) {
            o->index = k;
        } else {
            wf_frozen_map(o, s, o->index);
            *handles += 1;
        }
    }
    z->gives |= pinned && o->kind == WF_OUT_VALUE;
    if (pinned) {
        wf_unpin(t->c, s);
    }
    return ok;
}

/* What it does that no replay could do. */
static bool describe_doings(const wf_frozen *z, const wf_trace *t, const wf_frozen_start *start,
                            char *reason)
{
    if (t->peeked) {
        return wf_frozen_refuse(reason, "it reads a value of a tensor (%s)", t->peeked);
    }
    if (t->commits) {
        return wf_frozen_refuse(reason, "it breaks its graph");
    }
    if (t->c->grad_off != start->grad_off) {
        return wf_frozen_refuse(reason, "it begins or ends weft_no_grad_begin for its caller");
    }
    if (t->c->device != z->home) {
        return wf_frozen_refuse(reason, "it changes the default device");
    }
    if (atomic_load_explicit(&wf_modes, memory_order_relaxed) != z->modes) {
        return wf_frozen_refuse(reason, "it switches a module between training and evaluation");
    }
    if (t->c->error_seen !=
        start->errors) { /* of tensors, perhaps, that are not among its inputs */
        return wf_frozen_refuse(reason, "a call in it fails: %.100s", weft_last_error());
    }
    return !t->follow.never || wf_frozen_refuse(reason, "%s", t->follow.never);
}

static bool describe(wf_frozen *z, wf_trace *t, const weft_tensor *in, const weft_tensor *out,
                     const wf_frozen_start *start, char *reason)
{
    wf_frozen_args a;
    int handles = 0, refs = 0;
    if (!describe_doings(z, t, start, reason) || !wf_frozen_describe_draws(z, t, start, reason)) {
        return false;
    }
    bool ok = wf_frozen_open(&a, t->c, in, z->n_in, reason) && describe_sources(z, t, &a, reason) &&
              wf_frozen_describe_state(z, t, &a, &handles, reason);
    wf_frozen_close(&a);
    for (int i = 0; i < z->n_out && ok; i++) {
        ok = describe_output(z, t, in, out[i], i, &handles, reason);
    }
    uint32_t k = 0;
    for (const wf_storage *st = t->first; st && ok; st = st->next) {
        if (st->value) {
            int others = atomic_load(&((wf_storage *)(uintptr_t)st)->refs) - 1; /* the trace's */
            if (others == 0) { /* the commit will not compute it */
                return wf_frozen_refuse(reason, "another thread frees a tensor that it makes");
            }
            refs += others;
            z->made_bytes[k++] = st->nbytes;
        }
    }
    return ok &&
           (refs == handles ||
            wf_frozen_refuse(reason, "%d tensors or saved values besides its outputs outlive it",
                             refs - handles));
}

/* Room for n elements, *at bytes from base on, which moves behind them; NULL: there is no base yet. */
static void *array(char *base, size_t *at, size_t n, size_t size)
{
    void *p = base ? base + *at : NULL;
    *at += (n * size + 7) / 8 * 8;
    return p;
}

/* The arrays of z behind it, if they are there yet; bytes of it all. */
static size_t lay_arrays(wf_frozen *z, char *base, size_t n_in, size_t n_out, size_t n_made,
                         const wf_trace *t)
{
    const wf_follow *w = &t->follow;
    size_t at = sizeof *z;
    z->in = array(base, &at, n_in, sizeof *z->in);
    z->src = array(base, &at, t->nouter, sizeof *z->src);
    z->also = array(base, &at, w->nalso, sizeof *z->also);
    z->out = array(base, &at, n_out, sizeof *z->out);
    z->made_bytes = array(base, &at, n_made, sizeof *z->made_bytes);
    z->writes = array(base, &at, n_made + t->nouter, sizeof *z->writes);
    z->leaf = array(base, &at, w->nleaf, sizeof *z->leaf);
    z->number = array(base, &at, w->nslot, sizeof *z->number);
    z->draw = array(base, &at, w->ndrawn, sizeof *z->draw);
    return at;
}

/* Of zeros but for its arrays' elements; those of sources, too. One block: a function that is never frozen is described at
 * every call. NULL: no memory. */
static wf_frozen *new_frozen(int n_in, int n_out, uint32_t n_made, const wf_trace *t)
{
    wf_frozen none;
    const size_t in = (size_t)n_in, out = (size_t)n_out,
                 bytes = lay_arrays(&none, NULL, in, out, n_made, t);
    wf_frozen *z = wf_object(bytes);
    if (z) {
        memset(z, 0, sizeof *z);
        z->bytes = bytes;
        lay_arrays(z, (char *)z, in, out, n_made, t);
        if (t->nouter) {
            memset(z->src, 0, t->nouter * sizeof *z->src);
        }
    }
    return z;
}

wf_frozen *wf_frozen_describe(wf_trace *t, const weft_tensor *in, int n_in, const weft_tensor *out,
                              int n_out, const wf_frozen_start *start, char reason[WF_REASON])
{
    uint32_t n_made = 0;
    for (const wf_storage *st = t->first; st; st = st->next) {
        n_made += st->value != 0;
    }
    wf_frozen *z = new_frozen(n_in, n_out, n_made, t);
    if (!z) {
        wf_frozen_refuse(reason, "there is no memory");
        return NULL;
    }
    atomic_store(&z->refs, 1);
    pthread_mutex_init(&z->lock, NULL);
    z->n_in = n_in;
    z->n_source = (int)t->nouter;
    z->n_out = n_out;
    z->grad = !start->grad_off;
    z->home = (uint8_t)start->home;
    z->modes = start->modes;
    z->device = t->base.device;
    z->n_made = n_made;
    if (describe(z, t, in, out, start, reason)) {
        return z;
    }
    wf_frozen_release(z);
    return NULL;
}
