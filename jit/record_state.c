/*
 * jit/record_state.c -- what a recorded call does that is not in its graph: gradients that it gives to tensors and takes from
 * them, numbers of optimisers that it steps, random numbers that it takes from generators; see trace.h.
 *
 * A call that is recorded each time needs none of this: the function does it. A replay (frozen.h) does not call the function.
 *
 * Invariant: what cannot be noted, for want of memory too, is a reason not to replay, never a failure of the call.
 */
#include <string.h>

#include "autograd/backward.h"
#include "eager/alloc.h"
#include "jit/record_int.h"

static const char no_memory[] = "there is no memory";

void wf_follow_clear(wf_follow *w)
{
    for (uint32_t i = 0; i < w->nleaf; i++) {
        wf_meta_release(w->leaf[i].meta);
    }
    for (uint32_t i = 0; i < w->nlive; i++) {
        wf_live_release(w->live[i]);
    }
    w->nleaf = w->nlive = w->nslot = w->now = w->nfrom = w->ndrawn = w->nalso = 0;
    w->never = NULL;
}

void wf_follow_free(wf_follow *w)
{
    wf_follow_clear(w);
    wf_mfree(w->leaf);
    wf_mfree(w->slot);
    wf_mfree(w->drawn);
    wf_mfree(w->also);
    memset(w, 0, sizeof *w);
}

void wf_trace_never(wf_recorder *r, const char *why)
{
    wf_follow *w = &wf_trace_of(r)->follow;
    w->never = w->never ? w->never : why;
}

void wf_trace_asked(wf_recorder *r, wf_slot *s)
{
    wf_trace *t = wf_trace_of(r);
    if (!wf_trace_is_private(t, s) &&
        !atomic_load_explicit(&s->st->is_virtual, memory_order_relaxed)) {
        wf_trace_also(t, s);
    }
}

void wf_trace_also(wf_trace *t, wf_slot *s)
{
    wf_follow *w = &t->follow;
    const weft_tensor h = wf_handle_of(t->c, s);
    if (w->nalso && wf_same_handle(h, w->also[w->nalso - 1])) {
        return;
    }
    weft_tensor *also = wf_room(w->also, w->nalso, &w->capalso, 16, sizeof *also);
    if (!also) {
        wf_trace_never(&t->base, no_memory);
        return;
    }
    w->also = also;
    w->also[w->nalso++] = h;
}

void wf_trace_gradient(wf_recorder *r, wf_meta *m, weft_tensor had, bool looked)
{
    wf_trace *t = wf_trace_of(r);
    wf_follow *w = &t->follow;
    if (!t->owner.freezes ||
        atomic_exchange_explicit(&m->noted, t->serial, memory_order_relaxed) == t->serial) {
        return;
    }
    wf_leaf *leaf = wf_room(w->leaf, w->nleaf, &w->capleaf, 16, sizeof *leaf);
    if (!leaf) {
        wf_trace_never(r, no_memory);
        return;
    }
    w->leaf = leaf;
    const bool alone = looked && had.slot && wf_gradient_is_alone(t->c, had);
    w->leaf[w->nleaf++] = (wf_leaf){wf_meta_retain(m), had, looked, alone};
}

void wf_trace_live(wf_recorder *r, wf_live *l)
{
    wf_trace *t = wf_trace_of(r);
    wf_follow *w = &t->follow;
    w->now = 0;
    if (!t->owner.freezes || !l) {
        return;
    }
    if (w->nlive == WF_MOST_LIVE) {
        wf_trace_never(r, "it steps optimisers too often");
        return;
    }
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    w->live[w->nlive++] = l;
    w->now = w->nlive;
}

void wf_trace_live_slot(wf_trace *t, wf_val v, uint8_t which)
{
    wf_follow *w = &t->follow;
    if (!w->now || !v) {
        return;
    }
    wf_live_slot *slot = wf_room(w->slot, w->nslot, &w->capslot, 16, sizeof *slot);
    if (!slot) {
        wf_trace_never(&t->base, no_memory);
        return;
    }
    w->slot = slot;
    w->slot[w->nslot++] = (wf_live_slot){wf_fn_at(t->fn, v)->attr, (uint8_t)(w->now - 1), which};
}

/* Does g end with the function that is being recorded? */
static bool is_local(const wf_trace *t, const weft_generator *g)
{
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0), at = (uintptr_t)g;
    return here < at && at < (uintptr_t)t->frame;
}

static bool same_generator(const weft_generator *a, const weft_generator *b)
{
    return a->seed == b->seed && a->offset == b->offset;
}

void wf_trace_drew(wf_recorder *r, weft_generator *g, bool named, uint64_t blocks)
{
    wf_trace *t = wf_trace_of(r);
    wf_follow *w = &t->follow;
    if (!t->owner.freezes || w->never) {
        return;
    }
    weft_generator *of = g == &t->c->rng ? NULL : g;
    wf_drawn_from *from = w->from;
    while (from < w->from + w->nfrom && from->of != of) {
        from++;
    }
    const bool first = from == w->from + w->nfrom;
    wf_drawn *drawn = wf_room(w->drawn, w->ndrawn, &w->capdrawn, 16, sizeof *drawn);
    w->drawn = drawn ? drawn : w->drawn;
    if (!drawn || is_local(t, g) || (first && w->nfrom == WF_MOST_GENERATORS) ||
        (!first && !same_generator(g, &from->next))) {
        wf_trace_never(r, !drawn           ? no_memory
                          : is_local(t, g) ? "it draws from a generator that ends with it"
                          : first
                              ? "it draws from too many generators"
                              : "it sets a generator that it draws from: set it before the call");
        return;
    }
    if (first) {
        *from = (wf_drawn_from){of, false, *g, *g};
        w->nfrom++;
    }
    from->named = from->named || (named && !of);
    drawn[w->ndrawn++] = (wf_drawn){g->offset - from->first.offset, (uint8_t)(from - w->from)};
    from->next.offset += blocks;
}
