/*
 * jit/call_ways.c -- kinds of calls of a traced function: what can be told of a call before it is made, and the ways of kinds.
 *
 * A kind is types, extents and devices of the arguments, whether gradients flow to them, and the grad mode, as a hash of 64
 * bits. Ways of kinds lie in WAY_SETS sets of WAY_LANES, made when they are first needed; in a full set the one goes that was
 * looked at least recently.
 *
 * Kinds that differ in extents alone are a family. Once many of its calls were recorded, further kinds warm up for less long.
 * Once FOLLOW of them in a row were decided to run the function, smaller ones begin with running it. So do all kinds that come
 * when plans have been dropped for want of room: kinds that are called once or twice, or more kinds than there are ways, shall
 * not each have a plan built.
 *
 * Invariants: two kinds with one key share a way, and a way that goes while a call uses it is another kind's by then: both
 * cost time and nothing else. Keys are found without the lock, and added with it.
 */
#include <stdio.h>

#include "eager/alloc.h"
#include "eager/borrow.h"
#include "eager/device.h"
#include "jit/call_impl.h"
#include "jit/ir/mix.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum {
    WARM_UP = 64,      /* calls before the first trial */
    WARM_SOON = 16,    /* of a family that has been seen ... */
    WELL_KNOWN = 1024, /* ... so often */
    WARM_FULL = 4,     /* where there is no room for further plans */
    AGAIN = 1000,      /* calls until the second trial; twice as many until the third, ... */
    FOLLOW = 4,
};

/* -- keys --------------------------------------------------------------------------------------------------------- */

/* An argument, but for its extents. */
static inline uint64_t type_of(const wf_slot *s)
{
    return (uint64_t)s->dtype | (uint64_t)s->rank << 8 | (uint64_t)wf_slot_tracked(s) << 16 |
           (uint64_t)s->st->device << 24;
}

/* Products that need not wait for one another. */
static inline uint64_t mix_slot(uint64_t h, wf_slot *s)
{
    uint64_t v = type_of(s), odd = UINT64_C(0xD6E8FEB86659FD93);
    const int64_t *d = wf_dims(s);
    for (int i = 0; i < s->rank; i++) {
        v += (uint64_t)d[i] * odd;
        odd += UINT64_C(0x5851F42D4C957F2E);
    }
    return wf_mix(h, v);
}

static inline uint64_t mix_modes(const wf_ctx *c, int n_in, int n_out)
{
    return wf_mix((uint64_t)n_in << 32 | (uint64_t)n_out, wf_grad_enabled(c));
}

void wf_call_kind_of(wf_ctx *c, const weft_tensor *in, int n_in, int n_out, wf_call_kind *k)
{
    uint64_t h = mix_modes(c, n_in, n_out);
    *k = (wf_call_kind){.host = true};
    for (int i = 0; i < n_in; i++) {
        wf_hold how;
        wf_slot *s = wf_take_hold(c, in[i], &how);
        if (!s) {
            return;
        }
        h = mix_slot(h, s);
        k->host &= s->st->device == WF_DEVICE_HOST;
        k->first = i == 0 ? wf_first_kind(s) : k->first;
        wf_end_hold(c, s, how);
    }
    k->key = h | 1;
}

uint64_t wf_call_kind_of_slots(const wf_ctx *c, wf_slot *const *s, int n_in, int n_out)
{
    uint64_t h = mix_modes(c, n_in, n_out);
    for (int i = 0; i < n_in; i++) {
        h = mix_slot(h, s[i]);
    }
    return h | 1;
}

/* -- families ----------------------------------------------------------------------------------------------------- */

/* What calls are like but for extents, and how many elements their arguments have. */
static void describe(wf_way_of *w, wf_ctx *c, const weft_tensor *in, int n_in, int n_out)
{
    size_t at = 0;
    uint64_t h = mix_modes(c, n_in, n_out);
    for (int i = 0; i < n_in; i++) {
        wf_hold how;
        wf_slot *s = wf_take_hold(c, in[i], &how);
        if (!s) { /* another thread has freed it */
            continue;
        }
        int64_t elements = 1;
        if (at < sizeof w->says) {
            at += (size_t)snprintf(w->says + at, sizeof w->says - at, "%s%s[", i ? ", " : "",
                                   wf_dtype_name(s->dtype));
        }
        for (int k = 0; k < s->rank; k++) {
            elements *= wf_dims(s)[k];
            if (at < sizeof w->says) {
                at += (size_t)snprintf(w->says + at, sizeof w->says - at, "%s%lld", k ? "," : "",
                                       (long long)wf_dims(s)[k]);
            }
        }
        if (at < sizeof w->says) {
            at += (size_t)snprintf(w->says + at, sizeof w->says - at, "]");
        }
        h = wf_mix(h, type_of(s));
        w->volume += elements;
        wf_end_hold(c, s, how);
    }
    w->family = h | 1;
}

/* The family of that key, in place of the one added longest ago if there are too many. Called with the lock. */
static wf_family *family_of(weft_jit *j, uint64_t key)
{
    for (int i = 0; i < FAMILIES; i++) {
        if (j->families[i].key == key) {
            return &j->families[i];
        }
    }
    j->latest_family = (j->latest_family + 1) % FAMILIES;
    wf_family *f = &j->families[j->latest_family];
    *f = (wf_family){.key = key};
    return f;
}

void wf_way_note_choice(weft_jit *j, const wf_way *w)
{
    if (!w->of.family) { /* of regions */
        return;
    }
    wf_family *f = family_of(j, w->of.family);
    if (!atomic_load_explicit(&w->eager, memory_order_relaxed)) {
        f->plain = 0;
        f->volume = 0;
        return;
    }
    f->plain++;
    f->volume = w->of.volume > f->volume ? w->of.volume : f->volume;
    f->is_short = atomic_load_explicit(&w->is_short, memory_order_relaxed);
}

/* -- ways --------------------------------------------------------------------------------------------------------- */

/* It begins plainly or not, with a trial after `warm` calls. */
static void begin(wf_way *w, bool plain, bool is_short, int64_t warm)
{
    w->period = AGAIN;
    w->settled = false;
    w->modelled = 0;
    w->ns[0] = w->ns[1] = 0;
    atomic_store_explicit(&w->eager, plain, memory_order_relaxed);
    atomic_store_explicit(&w->is_short, is_short, memory_order_relaxed);
    atomic_store_explicit(&w->trial, false, memory_order_relaxed);
    atomic_store_explicit(&w->turn, 0, memory_order_relaxed);
    atomic_store_explicit(&w->left, warm, memory_order_relaxed);
    atomic_store_explicit(&w->seen, 0, memory_order_relaxed);
    atomic_store_explicit(&w->is_long, false, memory_order_relaxed);
    atomic_store_explicit(&w->takes_more, false, memory_order_relaxed);
    atomic_store_explicit(&w->crowded, false, memory_order_relaxed);
    atomic_store_explicit(&w->rebuilt, 0, memory_order_relaxed);
}

void wf_way_reset(wf_way *w)
{
    w->of = (wf_way_of){.says = "a region"};
    begin(w, false, false, WARM_UP);
}

/* As if it had been made now. */
static void begin_kind(weft_jit *j, wf_way *w, const wf_call_kind *k, const wf_way_of *of)
{
    wf_family *f = family_of(j, of->family);
    const bool full = j->stats.evictions > 0 && j->nplans >= j->max_plans;
    const bool plain = full || (f->plain >= FOLLOW && of->volume <= f->volume);
    const int64_t warm = full ? WARM_FULL : f->looks > WELL_KNOWN ? WARM_SOON : WARM_UP;
    w->of = *of;
    f->looks += plain ? 0 : warm; /* that it will have been seen */
    begin(w, plain, plain && f->plain && f->is_short, warm);
    atomic_store_explicit(&w->first, k->first, memory_order_relaxed);
}

/* Called with the lock. */
static wf_way *add_way(weft_jit *j, wf_way_set *set, const wf_call_kind *k, const wf_way_of *of)
{
    int lane = 0;
    for (int i = 0; i < WAY_LANES; i++) {
        const uint64_t key = atomic_load_explicit(&set->key[i], memory_order_relaxed);
        if (key == k->key) {
            return &set->way[i]; /* another thread was first */
        }
        if (key == 0) {
            lane = i;
            break;
        }
        lane = atomic_load_explicit(&set->way[i].seen, memory_order_relaxed) <
                       atomic_load_explicit(&set->way[lane].seen, memory_order_relaxed)
                   ? i
                   : lane;
    }
    atomic_store_explicit(&set->key[lane], 0, memory_order_relaxed);
    begin_kind(j, &set->way[lane], k, of);
    atomic_store_explicit(&set->key[lane], k->key, memory_order_release);
    return &set->way[lane];
}

/* Called with the lock; NULL: there is no memory. */
static wf_way_set *find_set(weft_jit *j, int at)
{
    wf_way_set *set = atomic_load_explicit(&j->ways[at], memory_order_relaxed);
    if (!set) {
        set = wf_calloc(1, sizeof *set);
        atomic_store_explicit(&j->ways[at], set, memory_order_release);
    }
    return set;
}

wf_way *wf_way_find(weft_jit *j, wf_ctx *c, const wf_call_kind *k, const weft_tensor *in, int n_in,
                    int n_out)
{
    wf_way_of of = {.volume = 0};
    const int at = (int)(k->key >> 56) % WAY_SETS;
    wf_way_set *set = atomic_load_explicit(&j->ways[at], memory_order_acquire);
    for (int i = 0; i < WAY_LANES && set; i++) {
        if (atomic_load_explicit(&set->key[i], memory_order_acquire) == k->key) {
            return &set->way[i];
        }
    }
    describe(&of, c, in, n_in, n_out); /* may end a tensor, and run user code */
    pthread_mutex_lock(&j->lock);
    set = find_set(j, at);
    wf_way *w = set ? add_way(j, set, k, &of) : NULL;
    pthread_mutex_unlock(&j->lock);
    return w;
}

void wf_ways_shut(weft_jit *j, int64_t now, int64_t recent)
{
    uint64_t shut[4] = {0};
    for (int k = 0; k < WAY_SETS; k++) {
        const wf_way_set *set = atomic_load_explicit(&j->ways[k], memory_order_relaxed);
        for (int i = 0; i < WAY_LANES && set; i++) {
            const wf_way *w = &set->way[i];
            if (atomic_load_explicit(&set->key[i], memory_order_relaxed) &&
                (!atomic_load_explicit(&w->eager, memory_order_relaxed) ||
                 atomic_load_explicit(&w->trial, memory_order_relaxed)) &&
                now - atomic_load_explicit(&w->seen, memory_order_relaxed) < recent) {
                const uint32_t first = atomic_load_explicit(&w->first, memory_order_relaxed);
                shut[first >> 6] |= UINT64_C(1) << (first & 63);
            }
        }
    }
    for (int i = 0; i < 4; i++) {
        atomic_store_explicit(&j->shut[i], shut[i], memory_order_relaxed);
    }
}

void wf_ways_free(weft_jit *j)
{
    for (int i = 0; i < WAY_SETS; i++) {
        wf_mfree(atomic_load_explicit(&j->ways[i], memory_order_relaxed));
    }
}
