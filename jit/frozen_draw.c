/*
 * jit/frozen_draw.c -- random numbers of frozen calls; see frozen.h and record_state.c.
 *
 * Where a random row starts in its generator's stream is a number of a recording. In a replay it is the generator's state
 * then, and as many blocks more as the recording had taken before that row; so a replay draws what the function would, and
 * moves the generator as far. What a caller does to a generator between calls (seeding, restoring, drawing) needs no guard.
 *
 * Invariants: a generator has no owner, so one is read only while what was recorded with it waits or may be replayed; a call is
 * frozen only after a recording that saw each of its generators untouched before the first draw and after the last one.
 */
#include <string.h>

#include "eager/alloc.h"
#include "jit/frozen_impl.h"

void wf_frozen_start_now(wf_frozen_start *s, const wf_ctx *c)
{
    s->grad_off = c->grad_off;
    s->home = c->device;
    s->modes = atomic_load_explicit(&wf_modes, memory_order_relaxed);
    s->errors = c->error_seen;
    s->own = c->rng;
    s->n = 0;
}

static bool is_same(const weft_generator *a, const weft_generator *b)
{
    return a->seed == b->seed && a->offset == b->offset;
}

/* How it was when the call began; NULL: nobody knew that it would be drawn from. */
static const weft_generator *start_of(const wf_frozen_start *s, const weft_generator *g)
{
    for (uint32_t i = 0; g && i < s->n; i++) {
        if (s->of[i] == g) {
            return &s->was[i];
        }
    }
    return g ? NULL : &s->own;
}

void wf_frozen_start_add(wf_frozen_start *s, const wf_frozen *z, wf_ctx *c)
{
    if (!z->n_from || wf_frozen_is_dead(z, c)) {
        return;
    }
    for (uint32_t i = 0; i < z->n_from; i++) {
        const weft_generator *g = z->from[i].of;
        if (g && s->n < WF_MOST_GENERATORS && !start_of(s, g)) {
            s->of[s->n] = g;
            s->was[s->n++] = *g;
        }
    }
}

/* -- describing ---------------------------------------------------------------------------------------------- */

static bool describe_generator(wf_frozen_from *x, const wf_trace *t, const wf_drawn_from *f,
                               const wf_frozen_start *s, char *reason)
{
    const weft_generator *was = start_of(s, f->of);
    *x = (wf_frozen_from){f->of, f->named, was != NULL, f->next.offset - f->first.offset};
    return !was || (is_same(was, &f->first) && is_same(f->of ? f->of : &t->c->rng, &f->next)) ||
           wf_frozen_refuse(reason,
                            "it sets a generator that it draws from: set it before the call");
}

bool wf_frozen_describe_draws(wf_frozen *z, const wf_trace *t, const wf_frozen_start *s,
                              char *reason)
{
    const wf_follow *w = &t->follow;
    const wf_fn *f = t->fn;
    z->context = t->c->id;
    for (uint32_t k = 0; k < f->n; k++) {
        if (wf_frozen_is_random((wf_op)f->ins[k].op)) {
            if (z->n_draw == w->ndrawn) {
                return wf_frozen_refuse(reason, "it draws random numbers from no generator");
            }
            z->draw[z->n_draw] = w->drawn[z->n_draw];
            z->n_draw++;
            z->draw_words += f->attrs[f->ins[k].attr].n_dyn;
        }
    }
    if (z->n_draw != w->ndrawn) {
        return wf_frozen_refuse(reason, "it draws random numbers that it does not record");
    }
    bool own = false;
    for (uint32_t i = 0; i < w->nfrom; i++) {
        own |= !w->from[i].of;
    }
    if (!own && !is_same(&s->own, &t->c->rng)) {
        return wf_frozen_refuse(reason, "it sets the thread's generator: set it before the call");
    }
    for (; z->n_from < w->nfrom; z->n_from++) {
        if (!describe_generator(&z->from[z->n_from], t, &w->from[z->n_from], s, reason)) {
            return false;
        }
    }
    return true;
}

/* -- comparing and guarding ---------------------------------------------------------------------------------- */

bool wf_frozen_same_draws(const wf_frozen *a, const wf_frozen *b, char *reason)
{
    bool same = a->n_draw == b->n_draw && a->n_from == b->n_from;
    for (uint32_t i = 0; i < a->n_draw && same; i++) {
        same = a->draw[i].from == b->draw[i].from && a->draw[i].after == b->draw[i].after;
    }
    for (uint32_t i = 0; i < a->n_from && same; i++) {
        const wf_frozen_from *x = &a->from[i], *y = &b->from[i];
        same = x->of == y->of && x->named == y->named && x->blocks == y->blocks;
        if (same && !y->known) {
            return wf_frozen_refuse(reason, "a generator was not known when the call began");
        }
    }
    return same || wf_frozen_refuse(reason, "it draws from other generators than before");
}

bool wf_frozen_same_draw(const wf_fn *f, const wf_ins *x, const wf_attr *p, const wf_attr *q)
{
    const int rank = wf_fn_type(f, (wf_val)(x - f->ins) + 1)->rank, rest = rank + 2;
    return memcmp(p->dyn, q->dyn, (size_t)rank * sizeof *p->dyn) == 0 &&
           memcmp(p->dyn + rest, q->dyn + rest, (size_t)(p->n_dyn - rest) * sizeof *p->dyn) == 0;
}

bool wf_frozen_guard_draws(const wf_frozen *z, const wf_frozen_args *a, char *reason)
{
    for (uint32_t i = 0; i < z->n_from; i++) {
        const wf_frozen_from *x = &z->from[i];
        if (x->of == &a->c->rng || (x->named && z->context != a->c->id)) {
            return wf_frozen_refuse(reason, "it draws from the generator of another thread");
        }
    }
    return true;
}

/* -- replaying ------------------------------------------------------------------------------------------------ */

size_t wf_frozen_draw_bytes(const wf_frozen *z)
{
    return z->n_draw ? z->fn->nattrs * sizeof(wf_attr) + z->draw_words * sizeof(int64_t) : 0;
}

void wf_frozen_draw(const wf_frozen *z, wf_ctx *c, wf_fn *f, void *room)
{
    wf_attr *attrs = room;
    int64_t *dyn = (int64_t *)(void *)(attrs + f->nattrs);
    memcpy(attrs, f->attrs, f->nattrs * sizeof *attrs);
    uint32_t n = 0;
    for (uint32_t k = 0; n < z->n_draw; k++) {
        const wf_ins *x = &f->ins[k];
        if (!wf_frozen_is_random((wf_op)x->op)) {
            continue;
        }
        const wf_frozen_from *from = &z->from[z->draw[n].from];
        const weft_generator *g = from->of ? from->of : &c->rng;
        const int rank = wf_fn_type(f, k + 1)->rank;
        wf_attr *at = &attrs[x->attr];
        memcpy(dyn, at->dyn, at->n_dyn * sizeof *dyn);
        dyn[rank] = (int64_t)g->seed;
        dyn[rank + 1] = (int64_t)(g->offset + z->draw[n].after);
        at->dyn = dyn;
        dyn += at->n_dyn;
        n++;
    }
    f->attrs = attrs;
    for (uint32_t i = 0; i < z->n_from; i++) {
        weft_generator *g = z->from[i].of ? z->from[i].of : &c->rng;
        wf_tell_draw(c, g);
        g->offset += z->from[i].blocks;
    }
}
