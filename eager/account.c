/*
 * eager/account.c -- what the process holds: memory statistics and the report of kept tensors never freed.
 *
 * Both walk the contexts of all threads without stopping them: counts are exact where the threads are
 * quiet, and otherwise of a moment within the walk.
 */
#include <stdio.h>
#include <stdlib.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/tensor.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

void weft_memory_get_stats(weft_memory_stats *out)
{
    if (!out) {
        return;
    }
    wf_alloc_stats a;
    wf_alloc_get_stats(&a);
    *out = (weft_memory_stats){.live_bytes = a.live_bytes,
                               .peak_bytes = a.peak_bytes,
                               .reserved_bytes = a.reserved_bytes,
                               .allocations = a.allocs,
                               .system_allocations = a.system_allocs,
                               .cap_bytes = wf_alloc_cap()};
    for (uint32_t i = 1; i < WF_MAX_CTX; i++) {
        wf_ctx *c = wf_ctx_at(i);
        if (!c) {
            break;
        }
        out->live_tensors += atomic_load_explicit(&c->live, memory_order_relaxed) -
                             atomic_load_explicit(&c->freed_remotely, memory_order_relaxed);
        out->kept_tensors += atomic_load_explicit(&c->kept, memory_order_relaxed) -
                             atomic_load_explicit(&c->kept_freed_remotely, memory_order_relaxed);
    }
}

void weft_memory_reset_peak(void)
{
    wf_alloc_reset_peak();
}

int64_t weft_memory_trim(void)
{
    return wf_alloc_trim();
}

weft_status(weft_memory_set_cap)(int64_t bytes)
{
    if (bytes < 0) {
        wf_api_error("memory_set_cap", WEFT_EINVALID, "a cap of %lld bytes is negative",
                     (long long)bytes);
        return WEFT_EINVALID;
    }
    wf_alloc_set_cap(bytes);
    return WEFT_OK;
}

weft_status(weft_memory_set_allocator)(const weft_allocator *a)
{
    if (a && (!a->allocate || !a->release)) {
        wf_api_null("memory_set_allocator", a->allocate ? "release" : "allocate");
        return WEFT_EINVALID;
    }
    if (!wf_alloc_set_source(
            a ? &(wf_heap_source){.allocate = a->allocate, .release = a->release, .user = a->user}
              : NULL)) {
        wf_api_error("memory_set_allocator", WEFT_ENOMEM, "no memory for the allocator");
        return WEFT_ENOMEM;
    }
    return WEFT_OK;
}

/* -- the report ------------------------------------------------------------------------------------------- */

wf_slot *wf_next_live(wf_ctx *c, wf_ctx *of, uint32_t *k, bool *pinned, weft_tensor *t)
{
    const uint32_t total =
        atomic_load_explicit(&of->nchunks, memory_order_acquire) * (uint32_t)WF_CHUNK_SLOTS;
    while (++*k < total) {
        const uint64_t st = atomic_load_explicit(&wf_slot_at(of, *k)->state, memory_order_acquire);
        const weft_tensor h = {*k, of->id, WF_STATE_SERIAL(st)};
        *pinned = false;
        wf_slot *s = (st & WF_STATE_DEAD) || h.serial == 0 ? NULL : wf_pin(c, h, pinned, NULL);
        if (s) {
            if (t) {
                *t = h;
            }
            return s;
        }
    }
    return NULL;
}

/* Which tensor has which gradient. */
typedef struct owner {
    weft_tensor gradient, of;
} owner;

typedef struct owners {
    owner *v; /* by gradient */
    uint32_t n, cap;
} owners;

static int by_gradient(const void *a, const void *b)
{
    const weft_tensor *x = &((const owner *)a)->gradient, *y = &((const owner *)b)->gradient;
    return x->context != y->context ? (x->context < y->context ? -1 : 1)
                                    : (x->slot > y->slot) - (x->slot < y->slot);
}

/* Without memory for it the report names fewer of them. */
static void add_owner(owners *o, weft_tensor gradient, weft_tensor of)
{
    owner *v = o->n < o->cap ? o->v : wf_more_room(o->v, &o->cap, 64, sizeof *v);
    if (!v) {
        return;
    }
    o->v = v;
    o->v[o->n++] = (owner){gradient, of};
}

static owners find_owners(wf_ctx *me)
{
    owners o = {0};
    for (uint32_t i = 1; i < WF_MAX_CTX && wf_ctx_at(i); i++) {
        bool pinned;
        uint32_t k = 0;
        weft_tensor t;
        for (wf_slot *s; (s = wf_next_live(me, wf_ctx_at(i), &k, &pinned, &t));) {
            wf_meta *m = s->meta;
            weft_tensor g = WEFT_NONE;
            if (m) {
                wf_meta_lock(m);
                g = m->grad;
                wf_meta_unlock(m);
            }
            if (g.slot) {
                add_owner(&o, g, t);
            }
            if (pinned) {
                wf_unpin(me, s);
            }
        }
    }
    if (o.n) {
        qsort(o.v, o.n, sizeof *o.v, by_gradient);
    }
    return o;
}

static void leak_line(FILE *out, wf_ctx *me, weft_tensor t, wf_slot *s, const owners *o)
{
    char text[256];
    int64_t bytes = (int64_t)wf_dtype_size(s->dtype);
    for (int i = 0; i < s->rank; i++) {
        bytes *= wf_dims(s)[i];
    }
    if (!(s->flags & WF_SLOT_GRADIENT)) {
        wf_describe(me, t, text, sizeof text);
        fprintf(out, "weft: kept and never freed: %s, %lld bytes\n", text, (long long)bytes);
        return;
    }
    const owner key = {t, t},
                *of = o->n ? bsearch(&key, o->v, o->n, sizeof key, by_gradient) : NULL;
    wf_describe(me, of ? of->of : t, text, sizeof text);
    fprintf(out,
            "weft: the gradient%s of a tensor never freed: %s, %lld bytes; weft_set_grad(x, "
            "WEFT_NONE) drops it\n",
            s->node ? ", with its recorded history," : "", text, (long long)bytes);
}

int64_t weft_leak_report(FILE *out)
{
    wf_ctx *me = wf_ctx_get();
    int64_t n = 0;
    owners o = {0};
    if (me && out) {
        o = find_owners(me);
    }
    for (uint32_t i = 1; me && i < WF_MAX_CTX; i++) {
        wf_ctx *c = wf_ctx_at(i);
        if (!c) {
            break;
        }
        uint32_t total =
            atomic_load_explicit(&c->nchunks, memory_order_acquire) * (uint32_t)WF_CHUNK_SLOTS;
        for (uint32_t k = 1; k < total; k++) {
            uint64_t st = atomic_load_explicit(&wf_slot_at(c, k)->state, memory_order_acquire);
            if (!(st & WF_STATE_KEPT) || (st & WF_STATE_DEAD)) {
                continue;
            }
            weft_tensor t = {k, c->id, WF_STATE_SERIAL(st)};
            n++;
            if (out) {
                leak_line(out, me, t, wf_slot_at(c, k), &o);
            }
        }
    }
    wf_mfree(o.v);
    return n;
}
