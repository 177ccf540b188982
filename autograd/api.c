/*
 * autograd/api.c -- the public face of autograd: leaves, gradients, modes, backward.
 *
 * Invariant: gradients handed to the user are handles of the current scope on shared memory; the
 * accumulated gradient itself is a kept handle owned by the tensor's meta.
 */
#include <string.h>

#include "autograd/backward.h"
#include "autograd/tape.h"
#include "eager/alloc.h"
#include "eager/borrow.h"
#include "eager/device.h"
#include "eager/profile.h"
#include "weft/grad.h"

/* Defined without the call-site macros. */
#undef weft_backward
#undef weft_grad_of

static const char *const no_memory = "out of memory";

weft_tensor wf_alias(wf_ctx *c, wf_slot *s)
{
    if ((s->flags & WF_SLOT_REQUIRES_GRAD) && wf_grad_enabled(c) && s->context == c->id) {
        wf_tape_node_of(c, s, NULL); /* so that the alias carries the leaf's node */
    }
    weft_tensor h = wf_wrap_at(c, s->st, s->offset, s->dtype, s->rank, wf_dims(s), wf_strides(s));
    wf_slot *a = h.slot ? wf_slot_at(c, h.slot) : NULL;
    if (a && s->context == c->id && s->node) {
        a->node = s->node;
        a->node_gen = s->node_gen;
        wf_tnode_at(c->tape, s->node)->refs++;
    } else if (a) {
        a->node_gen = s->node_gen; /* of a view apart */
    }
    if (a) {
        a->flags |= s->flags & WF_SLOT_APART;
    }
    return h;
}

weft_tensor wf_give_to(wf_ctx *c, uint32_t depth, weft_tensor t)
{
    /* weft_scope_give moves to the scope around the one it is given. */
    if (depth + 1 > c->depth) {
        return t;
    }
    weft_scope s = {depth + 1, c->id, c->scopes[depth + 1].serial};
    return weft_scope_give(s, t);
}

void wf_not_a_tensor(wf_why *why)
{
    wf_fail(why, WEFT_EINVALID, "a scalar is not a tensor");
    wf_hint(why, "numbers have no gradient: hand in a tensor (weft_scalar makes one of a number)");
}

int wf_refuse_others(wf_ctx *c, weft_tensor t, const char *op)
{
    if (wf_is_error(t)) {
        return wf_error_again(c, t);
    }
    if (t.slot < WF_ABSENT_SLOT) {
        return 0;
    }
    wf_why why = {0};
    wf_not_a_tensor(&why);
    return wf_raise_status(c, op, 1, &t, &why);
}

/* Holds t (eager/borrow.h) or records an error. */
static wf_slot *open_held(wf_ctx *c, weft_tensor t, const char *op, wf_hold *how)
{
    *how = WF_HOLD_SCOPE;
    if (wf_refuse_others(c, t, op)) {
        return NULL;
    }
    wf_why why = {0};
    wf_slot *s = wf_slot_of(c, t);
    s = s ? s : wf_take_hold_kept(c, t, how, &why);
    if (!s) {
        wf_raise(c, op, 1, &t, &why);
    }
    return s;
}

/* Pins t or records an error; the slot must be given back with wf_unpin when *pinned. */
static wf_slot *open_tensor(wf_ctx *c, weft_tensor t, const char *op, bool *pinned, int *status)
{
    wf_why why = {0};
    *pinned = false;
    *status = wf_refuse_others(c, t, op);
    if (*status) {
        return NULL;
    }
    wf_slot *s = wf_pin(c, t, pinned, &why);
    if (!s) {
        *status = wf_raise_status(c, op, 1, &t, &why);
    } else {
        wf_note_asked(c, s);
    }
    return s;
}

static weft_status closed(wf_ctx *c, wf_slot *s, bool pinned, int rc)
{
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return (weft_status)rc;
}

static int raise_for(wf_ctx *c, const char *op, weft_tensor t, int code, const char *rule,
                     const char *hint)
{
    wf_why why = {0};
    wf_fail(&why, code, "%s", rule);
    wf_hint(&why, "%s", hint);
    return wf_raise_status(c, op, 1, &t, &why);
}

weft_status(weft_requires_grad_)(weft_tensor t, bool on)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    bool pinned;
    int rc;
    wf_slot *s = open_tensor(c, t, "requires_grad_", &pinned, &rc);
    if (!s) {
        return (weft_status)rc;
    }
    if (wf_dtype_kind(s->dtype) != 2) {
        rc = raise_for(c, "requires_grad_", t, WEFT_EDTYPE,
                       "only floating-point tensors have gradients", "cast it first: weft_cast");
    } else if (!(s->flags & WF_SLOT_REQUIRES_GRAD) && wf_slot_tracked(s)) {
        rc = raise_for(c, "requires_grad_", t, WEFT_EGRAD,
                       "the tensor is the result of a recorded op, not a leaf",
                       "detach it first (weft_detach), or use weft_retain_grad");
    } else if (on && !wf_slot_meta(s)) {
        rc = raise_for(c, "requires_grad_", t, WEFT_ENOMEM, no_memory, "");
    } else {
        atomic_store(&wf_tape_api, &wf_tape_hook_table);
        if (!on && s->node) {
            wf_tape_api->release(c, s->context, s->node);
            s->node = 0;
        }
        if (s->meta) {
            atomic_store_explicit(&s->meta->off, !on, memory_order_relaxed);
        }
        s->flags =
            (uint8_t)(on ? s->flags | WF_SLOT_REQUIRES_GRAD : s->flags & ~WF_SLOT_REQUIRES_GRAD);
    }
    return closed(c, s, pinned, rc);
}

bool weft_requires_grad(weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    bool pinned;
    wf_slot *s = c && t.slot < WF_ABSENT_SLOT ? wf_pin(c, t, &pinned, NULL) : NULL;
    bool yes = s && wf_slot_flows(s);
    if (s) {
        wf_note_asked(c, s);
        closed(c, s, pinned, 0);
    }
    return yes;
}

bool weft_is_leaf(weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    bool pinned;
    wf_slot *s = c && t.slot < WF_ABSENT_SLOT ? wf_pin(c, t, &pinned, NULL) : NULL;
    bool yes = s && ((s->flags & WF_SLOT_REQUIRES_GRAD) || !wf_slot_tracked(s));
    if (s) {
        wf_note_asked(c, s);
        closed(c, s, pinned, 0);
    }
    return yes;
}

/* A trace that may be replayed wants to know what becomes of gradients. */
static void note_gradient(wf_ctx *c, wf_meta *m, weft_tensor had, bool looked)
{
    if (c->recorder) {
        c->recorder->gradient(c->recorder, m, had, looked);
    }
}

/* What may hang on s; NULL: nothing. In a trace that there was nothing is noted there. */
static wf_meta *meta_to_look_at(wf_ctx *c, wf_slot *s)
{
    wf_meta *m = wf_meta_find(c, s);
    if (!m && c->recorder) {
        m = wf_slot_meta(s);
        if (!m) {
            c->recorder->never(c->recorder, no_memory);
        }
    }
    return m;
}

bool weft_has_grad(weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    wf_hold how;
    wf_slot *s = c && t.slot < WF_ABSENT_SLOT ? wf_take_hold(c, t, &how) : NULL;
    bool yes = false;
    wf_meta *m = s ? meta_to_look_at(c, s) : NULL;
    if (m) {
        wf_meta_lock(m);
        const weft_tensor g = m->grad;
        wf_meta_unlock(m);
        yes = g.slot != 0;
        note_gradient(c, m, g, true);
    }
    if (s) {
        wf_end_hold(c, s, how);
    }
    return yes;
}

weft_tensor wf_meta_gradient(wf_ctx *c, wf_meta *m)
{
    bool pinned = false;
    wf_meta_lock(m); /* pinned under the lock: another thread's backward may be replacing it */
    const weft_tensor had = m->grad;
    wf_slot *g = had.slot ? wf_pin(c, had, &pinned, NULL) : NULL;
    wf_meta_unlock(m);
    note_gradient(c, m, had, true);
    weft_tensor r = g ? wf_alias(c, g) : WEFT_NONE;
    closed(c, g, pinned, 0);
    return r;
}

weft_tensor(weft_grad)(weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return (weft_tensor){0, 0, UINT64_MAX};
    }
    wf_hold how;
    wf_slot *s = open_held(c, t, "grad", &how);
    if (!s) {
        return t.slot == 0 && t.serial ? t : wf_last_error(c);
    }
    wf_meta *m = meta_to_look_at(c, s);
    weft_tensor r = m ? wf_meta_gradient(c, m) : WEFT_NONE;
    if (wf_is_none(r)) {
        raise_for(c, "grad", t, WEFT_EGRAD, "the tensor has no gradient",
                  "mark it with weft_requires_grad_ (or weft_retain_grad) and run weft_backward");
        r = wf_last_error(c);
    }
    wf_end_hold(c, s, how);
    return r;
}

weft_tensor wf_keep_gradient(wf_ctx *c, weft_tensor own)
{
    if (own.slot) {
        wf_slot_at(c, own.slot)->flags |= WF_SLOT_GRADIENT;
    }
    return wf_keep(own);
}

/* A kept handle on g, or on a copy of it on the device. */
static weft_tensor set_gradient(wf_ctx *c, wf_slot *gs, weft_tensor g, int device)
{
    weft_tensor there = wf_gradient_given(c, "set_grad", g, device);
    const bool same = wf_same_handle(there, g);
    return there.slot ? wf_keep_gradient(c, same ? wf_alias(c, gs) : there) : there;
}

weft_status(weft_set_grad)(weft_tensor t, weft_tensor g)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    bool pinned, gp = false;
    int rc;
    wf_slot *s = open_tensor(c, t, "set_grad", &pinned, &rc), *gs = NULL;
    if (!s) {
        return (weft_status)rc;
    }
    wf_meta *m = wf_meta_find(c, s);
    m = m ? m : wf_slot_meta(s);
    if (!m) {
        rc = raise_for(c, "set_grad", t, WEFT_ENOMEM, no_memory, "");
    } else if (wf_is_error(g)) {
        rc = wf_error_again(c, g);
    } else {
        weft_tensor own = WEFT_NONE;
        if (g.slot != 0) {
            gs = open_tensor(c, g, "set_grad", &gp, &rc);
            wf_type a, b;
            if (gs) {
                wf_slot_type(s, &a);
                wf_slot_type(gs, &b);
                if (!wf_type_same(&a, &b)) {
                    wf_why why = {0};
                    wf_fail(&why, wf_gradient_unlike(&a, &b),
                            "the gradient's shape or dtype differs from the tensor's");
                    wf_hint(&why, "a gradient is like its tensor: weft_cast, weft_reshape");
                    rc = wf_raise_status(c, "set_grad", 2, (weft_tensor[]){t, g}, &why);
                } else {
                    own = set_gradient(c, gs, g, wf_slot_device(s));
                    rc = own.slot ? 0 : (int)weft_error_status(own);
                }
            }
        }
        if (!rc) {
            wf_meta_lock(m);
            weft_tensor old = m->grad;
            m->grad = own;
            wf_meta_unlock(m);
            note_gradient(c, m, old, false);
            wf_free_handle(wf_gradient_replaced(m, old));
        }
    }
    closed(c, gs, gp, 0);
    return closed(c, s, pinned, rc);
}

weft_status(weft_retain_grad)(weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    bool pinned;
    int rc;
    wf_slot *s = open_tensor(c, t, "retain_grad", &pinned, &rc);
    if (!s) {
        return (weft_status)rc;
    }
    wf_why why = {0};
    wf_meta *m = NULL;
    uint64_t value = 0;
    if (!wf_slot_tracked(s)) {
        rc =
            raise_for(c, "retain_grad", t, WEFT_EGRAD, "the tensor does not take part in gradients",
                      "weft_requires_grad_ it, or an operand it is computed from");
    } else if ((m = wf_meta_attach(c, s, &value, &why)) != NULL) {
        atomic_store_explicit(&m->retain, value, memory_order_relaxed);
        s->st->grad_kept = 1;
        if (wf_slot_root(s)) {
            wf_tape_keep_gradients(c, s->st, s);
        }
    } else {
        rc = wf_raise_status(c, "retain_grad", 1, &t, &why);
    }
    return closed(c, s, pinned, rc);
}

bool wf_meta_retains(const wf_meta *m, uint64_t value)
{
    return atomic_load_explicit(&m->retain, memory_order_relaxed) == value;
}

/* -- modes ---------------------------------------------------------------------------------------------- */

void weft_no_grad_begin(void)
{
    wf_ctx *c = wf_ctx_get();
    if (c) {
        c->grad_off++;
    }
}

void weft_no_grad_end(void)
{
    wf_ctx *c = wf_ctx_get();
    if (c && c->grad_off) {
        c->grad_off--;
    }
}

uint32_t weft_enable_grad_begin(void)
{
    wf_ctx *c = wf_ctx_get();
    uint32_t was = c ? c->grad_off : 0;
    if (c) {
        c->grad_off = 0;
    }
    return was;
}

void weft_enable_grad_end(uint32_t saved)
{
    wf_ctx *c = wf_ctx_get();
    if (c) {
        c->grad_off = saved;
    }
}

bool weft_is_grad_enabled(void)
{
    wf_ctx *c = wf_ctx_get();
    return c && wf_grad_enabled(c);
}

int64_t weft_tape_nodes(void)
{
    wf_ctx *c = wf_ctx_get();
    return c && c->tape ? ((wf_tape *)c->tape)->live : 0;
}

/* -- backward --------------------------------------------------------------------------------------------- */

/* The gradient to start from: given, or one for a single element. */
static weft_tensor seed(wf_ctx *c, wf_slot *s, weft_tensor t, weft_tensor g, const char *op)
{
    wf_type a, b;
    wf_slot_type(s, &a);
    if (wf_is_error(g)) {
        wf_error_again(c, g);
        return g;
    }
    if (g.slot == 0) {
        if (wf_type_numel(&a) != 1) {
            raise_for(c, op, t, WEFT_EGRAD, "the loss has more than one element",
                      "reduce it (weft_sum, weft_mean) or pass .gradient of its shape");
            return wf_last_error(c);
        }
        double one = 1;
        wf_attr full = {.dtype = a.dtype, .n_dyn = a.rank, .dyn = a.dims, .n_flt = 1, .flt = &one};
        int before = wf_device_enter(c, wf_slot_device(s));
        weft_tensor started = wf_op0(WF_OP_FULL, &full);
        wf_device_enter(c, before);
        return started;
    }
    bool pinned;
    int rc;
    wf_slot *gs = open_tensor(c, g, op, &pinned, &rc);
    if (!gs) {
        return wf_last_error(c);
    }
    wf_slot_type(gs, &b);
    closed(c, gs, pinned, 0);
    if (!wf_type_same(&a, &b)) {
        weft_tensor both[2] = {t, g};
        wf_why why = {0};
        wf_fail(&why, wf_gradient_unlike(&a, &b),
                "the gradient's shape or dtype differs from the output's");
        return wf_raise(c, op, 2, both, &why);
    }
    return wf_gradient_given(c, op, g, wf_slot_device(s));
}

static wf_ref held(wf_ctx *c, wf_ref r)
{
    if (r) {
        wf_tnode_at(c->tape, r)->refs++;
    }
    return r;
}

static void let_go(wf_ctx *c, wf_ref r)
{
    if (r) {
        wf_tape_release_ref(c, r);
    }
}

/* The node of an output, held, and its seed. */
static int root_of(wf_ctx *c, weft_tensor t, weft_tensor grad, const char *op, wf_ref *node,
                   weft_tensor *g)
{
    bool pinned;
    int rc;
    wf_slot *s = open_tensor(c, t, op, &pinned, &rc);
    if (!s) {
        return rc;
    }
    wf_why why = {0};
    if (!wf_slot_flows(s)) {
        rc = raise_for(
            c, op, t, WEFT_EGRAD, "nothing it was computed from requires a gradient",
            "mark leaves with weft_requires_grad_ and compute outside weft_no_grad_begin");
    } else {
        *node = held(c, wf_tape_node_of(c, s, &why));
        rc = *node ? 0 : wf_raise_status(c, op, 1, &t, &why);
    }
    if (!rc) {
        *g = seed(c, s, t, grad, op);
        rc = g->slot ? 0 : (int)weft_error_status(*g);
    }
    return (int)closed(c, s, pinned, rc);
}

weft_status weft_backward(const weft_backward_args *args)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!args) {
        wf_raise_text(c, WEFT_EINVALID, "backward", "the arguments are NULL");
        return WEFT_EINVALID;
    }
    int64_t start = wf_prof_start();
    weft_scope sc = weft_scope_begin();
    wf_ref node = 0;
    weft_tensor g;
    int rc = root_of(c, args->loss, args->gradient, "backward", &node, &g);
    if (!rc) {
        rc = wf_backward_run(c, 1, &node, &g, args->retain_graph, args->create_graph, 0, NULL);
    }
    let_go(c, node);
    weft_scope_end(sc);
    if (start) {
        wf_prof_end(start, &(wf_prof_span){WEFT_PROFILE_BACKWARD, .name = "backward"});
    }
    return (weft_status)rc;
}

/* What identifies an input on the tape; its node is held. */
static int capture_of(wf_ctx *c, weft_tensor t, weft_tensor *result, wf_grad_capture *k)
{
    bool pinned;
    int rc;
    wf_slot *s = open_tensor(c, t, "grad_of", &pinned, &rc);
    if (!s) {
        return rc;
    }
    *result = WEFT_NONE;
    *k = (wf_grad_capture){.result = result};
    wf_why why = {0};
    if (!wf_slot_flows(s)) {
        rc = raise_for(c, "grad_of", t, WEFT_EGRAD, "an input does not require a gradient",
                       "mark it with weft_requires_grad_ before computing the outputs");
    } else if (s->flags & WF_SLOT_REQUIRES_GRAD) {
        k->meta = s->meta;
    } else {
        k->node = held(c, wf_tape_node_of(c, s, &why));
        rc = k->node ? 0 : wf_raise_status(c, "grad_of", 1, &t, &why);
    }
    return (int)closed(c, s, pinned, rc);
}

weft_status weft_grad_of(const weft_grad_of_args *args)
{
    wf_ctx *c = wf_ctx_get();
    const char *site = wf_take_here(c);
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!args || args->n_outputs < 1 || args->n_inputs < 1 || !args->outputs || !args->inputs ||
        !args->grads) {
        wf_raise_text(c, WEFT_EINVALID, "grad_of",
                      "outputs, inputs and grads must be given, with at least one of each");
        return WEFT_EINVALID;
    }
    size_t no = (size_t)args->n_outputs, ni = (size_t)args->n_inputs;
    wf_ref *node = wf_malloc(no * sizeof *node);
    weft_tensor *g = wf_malloc(no * sizeof *g);
    wf_grad_capture *cap = wf_malloc(ni * sizeof *cap);
    int rc = node && g && cap ? 0 : WEFT_ENOMEM;
    if (rc) {
        wf_raise_text(c, rc, "grad_of", "out of memory");
        no = ni = 0;
    } else {
        memset(node, 0, no * sizeof *node);
        memset(cap, 0, ni * sizeof *cap);
    }
    weft_scope sc = weft_scope_begin();
    for (size_t i = 0; i < no && !rc; i++) {
        rc = root_of(c, args->outputs[i], args->grad_outputs ? args->grad_outputs[i] : WEFT_NONE,
                     "grad_of", &node[i], &g[i]);
    }
    for (size_t i = 0; i < ni && !rc; i++) {
        rc = capture_of(c, args->inputs[i], &args->grads[i], &cap[i]);
    }
    if (!rc) {
        rc = wf_backward_run(c, args->n_outputs, node, g, args->retain_graph, args->create_graph,
                             args->n_inputs, cap);
    }
    for (size_t i = 0; i < ni && !rc; i++) {
        args->grads[i] = weft_scope_give(sc, args->grads[i]);
        if (args->grads[i].slot == 0 && !args->allow_unused) {
            rc = raise_for(c, "grad_of", args->inputs[i], WEFT_EGRAD,
                           "the outputs do not depend on this input",
                           "pass .allow_unused = true to get WEFT_NONE for it");
        }
    }
    for (int i = 0; i < args->n_inputs && rc; i++) {
        /* what was found so far ends with the scope */
        args->grads[i] = wf_last_error(c);
    }
    wf_site_results(site, args->grads, rc ? 0 : args->n_inputs);
    for (size_t i = 0; i < no; i++) {
        let_go(c, node[i]);
    }
    for (size_t i = 0; i < ni; i++) {
        let_go(c, cap[i].node);
    }
    weft_scope_end(sc);
    wf_mfree(node);
    wf_mfree(g);
    wf_mfree(cap);
    return (weft_status)rc;
}
