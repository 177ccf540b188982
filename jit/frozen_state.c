/*
 * jit/frozen_state.c -- what a frozen call does that is not in its graph: gradients come and go, optimisers step; see
 * frozen.h and record_state.c.
 *
 * A gradient is a kept tensor that hangs on another one. Of each that a call touched its recording says whether it was
 * looked at (then a replay needs the very same one, or none) or replaced whatever it was, and what is there in the end:
 * nothing, a result of the function, or the tensor that was there. Of numbers of an optimiser (its rate, corrections
 * for its step) a recording says which scalar slots they are; each replay asks the optimiser for them.
 *
 * Invariants: gradients that go are freed before memory for new ones is taken; nothing is given to a tensor before all
 * that can fail has been done; a tensor or an optimiser that has been freed is a guard that misses.
 */
#include <string.h>

#include "autograd/backward.h"
#include "eager/alloc.h"
#include "eager/borrow.h"
#include "jit/frozen_impl.h"

/* -- describing ------------------------------------------------------------------------------------------------ */

/* hooks: NULL, or takes what stands for its hooks. */
static weft_tensor gradient_now(wf_meta *m, uint64_t *hooks)
{
    wf_meta_lock(m);
    const weft_tensor g = m->grad;
    if (hooks) {
        *hooks = wf_frozen_hooks_of(m);
    }
    wf_meta_unlock(m);
    return g;
}

static bool is_alive(const wf_meta *m)
{
    return atomic_load_explicit(&m->slots, memory_order_acquire) != 0;
}

static int argument_of(const wf_frozen_args *a, const wf_meta *m)
{
    for (int i = 0; i < a->n; i++) {
        if (wf_meta_find(a->c, a->slot[i]) == m) {
            return i;
        }
    }
    return -1;
}

/* What the call leaves of the gradient of x, which is g now. */
static bool describe_left(wf_frozen_leaf *x, const wf_trace *t, weft_tensor g, int *made,
                          char *reason)
{
    wf_hold how;
    if (g.slot == 0) {
        x->left.kind = WF_LEAF_NONE;
        return true;
    }
    if (wf_same_handle(g, x->had)) {
        x->left.kind = WF_LEAF_KEPT;
        return true;
    }
    wf_slot *s = wf_take_hold(t->c, g, &how);
    const int index = s ? wf_frozen_made(t, s->st) : -1;
    const bool plain = index >= 0 && !wf_slot_tracked(s);
    if (plain) {
        x->left.kind = WF_LEAF_MADE;
        wf_frozen_map(&x->left, s, index);
        x->version = atomic_load_explicit(&s->st->version, memory_order_relaxed);
        *made += 1;
    }
    if (s) {
        wf_end_hold(t->c, s, how);
    }
    return plain || wf_frozen_refuse(
                        reason, index < 0 ? "it gives a tensor a gradient that it does not compute"
                                          : "it leaves a gradient that has a history");
}

static bool describe_leaf(wf_frozen *z, const wf_trace *t, const wf_frozen_args *a,
                          const wf_leaf *l, int *made, char *reason)
{
    wf_frozen_leaf *x = &z->leaf[z->n_leaf];
    *x = (wf_frozen_leaf){
        .arg = argument_of(a, l->meta), .looked = l->looked, .alone = l->alone, .had = l->had};
    const weft_tensor g = gradient_now(l->meta, x->arg < 0 ? &x->hooks : NULL);
    if (!describe_left(x, t, g, made, reason)) {
        return false;
    }
    if (x->arg >= 0 && x->left.kind == WF_LEAF_MADE) {
        return wf_frozen_refuse(
            reason, "it leaves a new gradient of argument %d, which outlives it", x->arg);
    }
    x->meta = x->arg < 0 ? wf_meta_retain(l->meta) : NULL;
    z->n_leaf++;
    return true;
}

bool wf_frozen_describe_state(wf_frozen *z, const wf_trace *t, const wf_frozen_args *a, int *made,
                              char *reason)
{
    const wf_follow *w = &t->follow;
    for (uint32_t i = 0; i < w->nleaf; i++) {
        if (is_alive(w->leaf[i].meta) && /* else it ended with the call */
            !describe_leaf(z, t, a, &w->leaf[i], made, reason)) {
            return false;
        }
    }
    for (; z->n_live < w->nlive; z->n_live++) {
        z->live[z->n_live] = w->live[z->n_live];
        atomic_fetch_add_explicit(&z->live[z->n_live]->refs, 1, memory_order_relaxed);
    }
    z->n_number = w->nslot;
    if (w->nslot) {
        memcpy(z->number, w->slot, w->nslot * sizeof *z->number);
    }
    return true;
}

weft_tensor wf_frozen_gradient_in(const wf_trace *t, const wf_storage *st, uint32_t *at)
{
    const wf_follow *w = &t->follow;
    for (uint32_t n = 0; n < w->nleaf; n++) {
        const uint32_t i = (*at + n) % w->nleaf; /* as a rule they are used in their order */
        wf_hold how;
        wf_slot *s = w->leaf[i].looked && w->leaf[i].had.slot
                         ? wf_take_hold(t->c, w->leaf[i].had, &how)
                         : NULL;
        const bool hit = s && s->st == st;
        if (s) {
            wf_end_hold(t->c, s, how);
        }
        if (hit) {
            *at = i + 1;
            return w->leaf[i].had;
        }
    }
    return WEFT_NONE;
}

void wf_frozen_drop_state(wf_frozen *z)
{
    for (uint32_t i = 0; i < z->n_leaf; i++) {
        if (z->leaf[i].meta) {
            wf_meta_release(z->leaf[i].meta);
        }
    }
    for (uint32_t i = 0; i < z->n_live; i++) {
        wf_live_release(z->live[i]);
    }
}

/* -- comparing and guarding -------------------------------------------------------------------------------------- */

/* Is g the gradient that was there? An argument's that is left is another tensor with each argument, but not none: where its
 * memory is used, sources know whose it is. */
static bool is_gradient(const wf_frozen_leaf *x, weft_tensor g)
{
    return x->arg >= 0 && x->left.kind == WF_LEAF_KEPT ? g.slot != 0 : wf_same_handle(g, x->had);
}

static bool same_leaf(const wf_frozen_leaf *x, const wf_frozen_leaf *y)
{
    return x->looked == y->looked && x->alone == y->alone && x->hooks == y->hooks &&
           (!x->looked || is_gradient(x, y->had)) && x->left.kind == y->left.kind &&
           (x->left.kind != WF_LEAF_MADE ||
            (x->version == y->version && wf_frozen_same_map(&x->left, &y->left)));
}

/* The leaf of b of the same tensor, as a rule at the same place: in which order they are first used says nothing. NULL: none. */
static const wf_frozen_leaf *leaf_like(const wf_frozen *b, const wf_frozen_leaf *x, uint32_t at)
{
    for (uint32_t n = 0; n < b->n_leaf; n++) {
        const wf_frozen_leaf *y = &b->leaf[(at + n) % b->n_leaf];
        if (x->meta == y->meta && x->arg == y->arg) {
            return y;
        }
    }
    return NULL;
}

bool wf_frozen_same_state(const wf_frozen *a, const wf_frozen *b, char *reason)
{
    bool same = a->n_leaf == b->n_leaf;
    for (uint32_t i = 0; i < a->n_leaf && same; i++) {
        const wf_frozen_leaf *y = leaf_like(b, &a->leaf[i], i);
        same = y && same_leaf(&a->leaf[i], y);
    }
    if (!same) {
        return wf_frozen_refuse(reason, "it finds or leaves other gradients than before");
    }
    same = a->n_live == b->n_live && a->n_number == b->n_number;
    for (uint32_t i = 0; i < a->n_live && same; i++) {
        same = a->live[i] == b->live[i];
    }
    for (uint32_t i = 0; i < a->n_number && same; i++) {
        const wf_live_slot *x = &a->number[i], *y = &b->number[i];
        same = x->slot == y->slot && x->live == y->live && x->number == y->number;
    }
    return same || wf_frozen_refuse(reason, "it steps other optimisers than before");
}

/* NULL: nothing ever hung on the argument. */
static wf_meta *meta_of(const wf_frozen_leaf *x, const wf_frozen_args *a)
{
    return x->arg < 0 ? x->meta : wf_meta_find(a->c, a->slot[x->arg]);
}

/* An argument that was none of the tensors whose gradients the call looked at or left is none of them. */
static bool guard_leaf_sharing(const wf_frozen *z, const wf_frozen_args *a, char *reason)
{
    for (int k = 0; k < a->n; k++) {
        const wf_meta *m = wf_meta_find(a->c, a->slot[k]);
        for (uint32_t i = 0; m && i < z->n_leaf; i++) {
            if (z->leaf[i].meta == m) {
                return wf_frozen_refuse(
                    reason, "argument %d is a tensor whose gradient it looks at or leaves", k);
            }
        }
    }
    return true;
}

bool wf_frozen_guard_state(const wf_frozen *z, const wf_frozen_args *a, char *reason)
{
    if (z->n_leaf && !guard_leaf_sharing(z, a, reason)) {
        return false;
    }
    for (uint32_t i = 0; i < z->n_leaf; i++) {
        const wf_frozen_leaf *x = &z->leaf[i];
        wf_meta *m = meta_of(x, a);
        if (x->arg < 0 && !is_alive(m)) {
            return wf_frozen_refuse(reason, "a tensor that it gives gradients to has been freed");
        }
        uint64_t hooks = 0;
        const weft_tensor g = m ? gradient_now(m, x->arg < 0 ? &hooks : NULL) : WEFT_NONE;
        if (hooks != x->hooks) {
            return wf_frozen_refuse(reason, "a tensor that it gives gradients to has other hooks");
        }
        if (x->looked && !is_gradient(x, g)) {
            return wf_frozen_refuse(reason, x->had.slot
                                                ? "a tensor has another gradient than it had"
                                                : "a tensor has a gradient that had none");
        }
        if (x->looked && g.slot && wf_gradient_is_alone(a->c, g) != x->alone) {
            return wf_frozen_refuse(reason,
                                    x->alone ? "a gradient shares memory with another tensor now"
                                             : "a gradient shares memory with no other tensor now");
        }
    }
    for (uint32_t i = 0; i < z->n_live; i++) {
        if (!atomic_load(&z->live[i]->of)) {
            return wf_frozen_refuse(reason, "an optimiser that it steps has been freed");
        }
    }
    return true;
}

bool wf_frozen_state_is_dead(const wf_frozen *z)
{
    bool dead = false;
    for (uint32_t i = 0; i < z->n_leaf && !dead; i++) {
        dead = z->leaf[i].meta && !is_alive(z->leaf[i].meta);
    }
    for (uint32_t i = 0; i < z->n_live && !dead; i++) {
        dead = !atomic_load(&z->live[i]->of);
    }
    return dead;
}

/* -- replaying ------------------------------------------------------------------------------------------------- */

/* What hung on m goes: a deleter may run. */
static void replace(wf_meta *m, weft_tensor g)
{
    wf_meta_lock(m);
    const weft_tensor old = m->grad;
    m->grad = g;
    wf_meta_unlock(m);
    weft_free(old);
}

int wf_frozen_begin_state(const wf_frozen *z, const wf_frozen_args *a, uint64_t *slots, wf_why *why)
{
    double number[WF_MOST_LIVE][WF_LIVE_NUMBERS];
    for (uint32_t i = 0; i < z->n_leaf; i++) {
        wf_meta *m = meta_of(&z->leaf[i], a);
        if (m && z->leaf[i].left.kind != WF_LEAF_KEPT) {
            replace(m, WEFT_NONE);
        }
    }
    for (uint32_t i = 0; i < z->n_live; i++) {
        void *of = atomic_load(&z->live[i]->of);
        uint32_t nth = 0;
        for (uint32_t k = 0; k < i; k++) {
            nth += z->live[k] == z->live[i];
        }
        int rc = of ? z->live[i]->begin(of, nth, number[i]) : WEFT_EINVALID;
        if (rc) {
            return wf_fail(why, rc, "an optimiser cannot say which step this is");
        }
    }
    if (z->n_number) {
        memcpy(slots, z->fn->slots, z->fn->nslots * sizeof *slots);
    }
    for (uint32_t i = 0; i < z->n_number; i++) {
        const wf_live_slot *n = &z->number[i];
        slots[n->slot] = wf_slot_bits(WF_SCALAR_FLOAT, number[n->live][n->number]);
    }
    return 0;
}

/* A kept handle over a result. */
static weft_tensor make_gradient(const wf_frozen_leaf *x, wf_ctx *c, wf_storage *st)
{
    const wf_frozen_out *o = &x->left;
    weft_tensor g =
        wf_wrap_view(c, st, (char *)st->data + o->offset, o->dtype, o->rank, o->dims, o->strides);
    return g.slot ? wf_keep_gradient(c, g) : g;
}

int wf_frozen_end_state(const wf_frozen *z, const wf_frozen_args *a, wf_storage *const *made,
                        wf_why *why)
{
    for (uint32_t i = 0; i < z->n_leaf; i++) {
        const wf_frozen_leaf *x = &z->leaf[i];
        if (x->left.kind != WF_LEAF_MADE) {
            continue;
        }
        wf_storage *st = made[x->left.index];
        atomic_store_explicit(&st->version, x->version, memory_order_relaxed);
        weft_tensor g = make_gradient(x, a->c, st);
        if (!g.slot) {
            return wf_fail(why, WEFT_ENOMEM, "out of memory for a gradient's handle");
        }
        replace(x->meta, g);
    }
    for (uint32_t i = 0; i < z->n_live; i++) {
        void *of = atomic_load(&z->live[i]->of);
        if (of) {
            z->live[i]->end(of);
        }
    }
    return 0;
}
