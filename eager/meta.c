/*
 * eager/meta.c -- the rare facts of a tensor: gradient, hooks, name.
 *
 * Invariants: a meta is shared by a tensor's slots and its tape nodes; the last one out frees it, the last
 * slot out drops the gradient. A gradient made with create_graph leads through its history to the leaf's
 * node and so to this meta: without the second rule the two would hold each other for ever.
 * A meta in a list of gradients is retained by it, its old gradient belongs to the list.
 */
#include <sched.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/tensor.h"

wf_meta *wf_slot_meta(wf_slot *s)
{
    wf_meta *have = atomic_load_explicit(&s->meta, memory_order_acquire);
    if (have) {
        return have;
    }
    wf_meta *m = wf_malloc(sizeof *m);
    if (!m) {
        return NULL;
    }
    memset(m, 0, sizeof *m);
    atomic_init(&m->refs, 1);
    atomic_init(&m->slots, 1);
    if (!atomic_compare_exchange_strong_explicit(&s->meta, &have, m, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        wf_mfree(m); /* another thread was first */
        return have;
    }
    return m;
}

void wf_slot_share_meta(wf_slot *s, wf_meta *m)
{
    atomic_fetch_add_explicit(&m->slots, 1, memory_order_relaxed);
    atomic_store_explicit(&s->meta, wf_meta_retain(m), memory_order_release);
}

void wf_slot_drop_meta(wf_slot *s)
{
    wf_meta *m = atomic_load_explicit(&s->meta, memory_order_relaxed);
    if (!m) {
        return;
    }
    atomic_store_explicit(&s->meta, NULL, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&m->slots, 1, memory_order_acq_rel) == 1) {
        wf_meta_lock(m);
        weft_tensor grad = m->grad;
        m->grad = WEFT_NONE;
        wf_meta_unlock(m);
        wf_free_handle(grad);
    }
    wf_meta_release(m);
}

wf_meta *wf_meta_retain(wf_meta *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void wf_meta_release(wf_meta *m)
{
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (size_t i = 0; m->hooks && i < m->hooks->n; i++) {
        wf_hook *h = m->hooks->at[i].is;
        if (h && h->release) {
            h->release(h->user);
        }
        wf_mfree(h);
    }
    wf_mfree(m->hooks);
    wf_mfree(m->name);
    wf_mfree(m);
}

_Atomic uint64_t wf_modes;

void wf_live_release(wf_live *l)
{
    if (l && atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1) {
        wf_mfree(l);
    }
}

void wf_meta_lock(wf_meta *m)
{
    while (atomic_exchange_explicit(&m->lock, 1, memory_order_acquire)) {
        sched_yield();
    }
}

bool wf_meta_lock_soon(wf_meta *m)
{
    int turns = 1000;
    while (atomic_exchange_explicit(&m->lock, 1, memory_order_acquire)) {
        if (turns-- == 0) {
            return false;
        }
        sched_yield();
    }
    return true;
}

void wf_meta_unlock(wf_meta *m)
{
    atomic_store_explicit(&m->lock, 0, memory_order_release);
}

char *wf_meta_name(wf_meta *m, bool *lost)
{
    if (!m) {
        return NULL;
    }
    wf_meta_lock(m);
    char *copy = m->name ? wf_strdup(m->name) : NULL;
    if (lost) {
        *lost = m->name && !copy;
    }
    wf_meta_unlock(m);
    return copy;
}

/* -- gradients to be given back ---------------------------------------------------------------------- */

static _Thread_local wf_gradients *kept __attribute__((tls_model("initial-exec")));

void wf_gradients_keep(wf_gradients *g)
{
    *g = (wf_gradients){.outer = kept};
    kept = g;
}

bool wf_gradients_are_kept(void)
{
    return kept != NULL;
}

weft_tensor wf_gradient_replaced(wf_meta *m, weft_tensor old)
{
    for (size_t i = 0; kept && i < kept->n; i++) {
        if (kept->v[i].meta == m) {
            return old;
        }
    }
    if (kept && kept->n == kept->cap) {
        size_t cap = kept->cap ? 2 * kept->cap : 16;
        struct wf_gradient_was *v = wf_realloc(kept->v, cap * sizeof *v);
        kept->failed |= v == NULL;
        kept->v = v ? v : kept->v;
        kept->cap = v ? cap : kept->cap;
    }
    if (!kept || kept->n == kept->cap) {
        return old;
    }
    kept->v[kept->n++] = (struct wf_gradient_was){wf_meta_retain(m), old};
    return WEFT_NONE;
}

void wf_gradients_restore(wf_gradients *g)
{
    kept = g->outer;
    for (size_t i = 0; i < g->n; i++) {
        wf_meta *m = g->v[i].meta;
        wf_meta_lock(m);
        bool wanted = atomic_load_explicit(&m->slots, memory_order_acquire) != 0;
        weft_tensor other = wanted ? m->grad : g->v[i].was;
        m->grad = wanted ? g->v[i].was : m->grad;
        wf_meta_unlock(m);
        wf_free_handle(other);
        wf_meta_release(m);
    }
    wf_mfree(g->v);
}
