/*
 * jit/call_region.c -- regions of ordinary code (weft/jit.h): recorded, or left to run as they are where that is faster.
 *
 * A region is a call whose arguments are not known before it is made, so a trace has one way for its regions
 * (call_eager.c), which holds as long as they record the same graph: some of the plain ones are recorded to see that, one in
 * 2 (GIVEN + 1) at first, one in RARELY (GIVEN + 1) once that has often been found, and where another plan answers, measuring
 * begins anew.
 * Of regions by turns (tokens of a sequence, training and validation) no two need be alike: where the graph is another one
 * again and again, WF_TURNS of them, taken at random, are recorded or left alone, and the mean of each half counts. What all
 * this costs is as much as a small op: a thread's seat has GIVEN regions that begin without it.
 *
 * Invariant: a plain region is a count in the context and nothing else: ops run at once, so all of it is bit for bit what the
 * recorded region leaves.
 */
#include <stdlib.h>

#include "eager/pool.h"
#include "eager/profile.h"
#include "jit/call_impl.h"
#include "jit/plan_int.h"

enum {
    GIVEN = 126,
    RARELY = 11,     /* a prime, as GIVEN + 1 is: regions that come by turns are all seen */
    CHANGE = 64,     /* so many alike make up for a change */
    CHANGES = 48,    /* with no others between them: by turns */
    AGAIN = 1000,    /* regions between their trials, at first, ... */
    SELDOM = 1 << 20 /* ... and at most */
};

/* -- regions by turns ------------------------------------------------------------------------------------------------- */

/* Another graph than last time, or the same. */
static void count_change(weft_jit *j, bool changed)
{
    wf_mixed *m = &j->mixed;
    m->changes += changed ? CHANGE : m->changes ? -1 : 0;
    if (m->changes >= CHANGE * CHANGES) {
        wf_way_reset(&j->region); /* its first trial comes when plans have been made */
        j->region.period = AGAIN;
        atomic_store_explicit(&m->on, true, memory_order_release);
    }
}

/* Half of the turns, in no order that regions could have. */
static bool is_plain_turn(int turn)
{
    uint32_t h = (uint32_t)turn * 0x9E3779B1u;
    h = (h ^ h >> 15) * 0x85EBCA77u;
    return (h ^ h >> 13) >> 16 & 1;
}

static void start_turns(weft_jit *j)
{
    pthread_mutex_lock(&j->lock);
    j->mixed.n[0] = j->mixed.n[1] = 0;
    pthread_mutex_unlock(&j->lock);
    atomic_store_explicit(&j->region.turn, 0, memory_order_relaxed);
    atomic_store_explicit(&j->region.trial, true, memory_order_release);
}

static int by_time(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Of n > 0 times, but the longest eighth: those in which the machine did something else. */
static int64_t mean_of(int32_t *ns, int n)
{
    const int most = n - n / 8;
    int64_t sum = 0;
    qsort(ns, (size_t)n, sizeof *ns, by_time);
    for (int i = 0; i < most; i++) {
        sum += ns[i];
    }
    return sum / most;
}

static void decide_turns(weft_jit *j)
{
    wf_way *w = &j->region;
    wf_mixed *m = &j->mixed;
    pthread_mutex_lock(&j->lock);
    if (atomic_load_explicit(&w->trial, memory_order_relaxed)) {
        int64_t until = w->period;
        if (m->n[0] && m->n[1]) {
            w->ns[0] = mean_of(m->ns[0], m->n[0]);
            w->ns[1] = mean_of(m->ns[1], m->n[1]);
            const bool plain = w->ns[1] < w->ns[0] / 100 * 97 + w->ns[0] % 100;
            /* what the slower way took longer is to be one part in fifty of the time until it is tried again */
            const int64_t lost = (w->ns[!plain] - w->ns[plain]) * m->n[!plain];
            const int64_t paid = lost > 0 && w->ns[plain] ? 50 * lost / w->ns[plain] : 0;
            until = paid > until ? paid : until;
            atomic_store_explicit(&w->eager, plain, memory_order_relaxed);
        }
        atomic_store_explicit(&w->left, until < SELDOM ? until : SELDOM, memory_order_relaxed);
        w->period = w->period < SELDOM ? w->period * 2 : w->period;
        atomic_store_explicit(&w->trial, false, memory_order_release);
    }
    pthread_mutex_unlock(&j->lock);
}

/* Is the next one of them to be left alone? */
static bool choose_turn(weft_jit *j, bool *timed)
{
    wf_way *w = &j->region;
    *timed = false;
    if (atomic_load_explicit(&w->trial, memory_order_acquire)) {
        const int turn = atomic_fetch_add_explicit(&w->turn, 1, memory_order_relaxed);
        if (turn < WF_TURNS) {
            *timed = true;
            return is_plain_turn(turn) &&
                   !atomic_load_explicit(&w->takes_more, memory_order_relaxed);
        }
        decide_turns(j);
    } else if (atomic_fetch_sub_explicit(&w->left, 1, memory_order_relaxed) <= 1) {
        start_turns(j);
    }
    return atomic_load_explicit(&w->eager, memory_order_relaxed);
}

static void add_turn(weft_jit *j, bool plain, int64_t start)
{
    if (start && atomic_load_explicit(&j->mixed.on, memory_order_acquire)) {
        const int64_t t = wf_plan_now() - start;
        pthread_mutex_lock(&j->lock);
        wf_mixed *m = &j->mixed;
        if (m->n[plain] < WF_TURNS) {
            m->ns[plain][m->n[plain]++] = (int32_t)(t < INT32_MAX ? t : INT32_MAX);
        }
        pthread_mutex_unlock(&j->lock);
    }
}

/* -- choosing --------------------------------------------------------------------------------------------------------- */

/* Is a plain region to be recorded, to be compared? Else the thread gets further ones. */
static bool is_looked_at(weft_jit *j, wf_ctx *c, bool mixed)
{
    wf_seat *s = wf_seat_take(j, c);
    pthread_mutex_lock(&j->lock);
    const bool look = !mixed && --j->region_looks < 0;
    if (look) {
        j->region_period += j->region_period < RARELY ? 1 : 0;
        j->region_looks = j->region_period;
    }
    pthread_mutex_unlock(&j->lock);
    const int64_t until = atomic_load_explicit(&j->region.left, memory_order_relaxed) - 1;
    const int64_t n = until < GIVEN ? until : GIVEN;
    if (s) {
        s->region_lends[0] = NULL; /* known again when this one has run */
        wf_forget_loans(c);
    }
    if (!look && s && n > 0) {
        atomic_fetch_sub_explicit(&j->region.left, n, memory_order_relaxed);
        atomic_store_explicit(&s->regions_given,
                              atomic_load_explicit(&s->regions_given, memory_order_relaxed) + n,
                              memory_order_relaxed);
        atomic_store_explicit(&s->regions_left, n, memory_order_relaxed);
    }
    return look;
}

/* Is the region that begins now to be left alone? r->start: when it began, if it is part of a trial. */
static bool is_plain(weft_jit *j, wf_ctx *c, wf_plain_region *r)
{
    bool timed;
    r->start = 0;
    r->paid = false;
    if (!j->adapts || c->away || wf_prof_is_on()) {
        return false;
    }
    const bool mixed = atomic_load_explicit(&j->mixed.on, memory_order_acquire);
    bool plain = mixed ? choose_turn(j, &timed) : wf_way_choose(j, &j->region, &timed);
    if (plain && !timed && !atomic_load_explicit(&j->region.trial, memory_order_relaxed)) {
        plain = !is_looked_at(j, c, mixed);
    }
    r->start = timed ? wf_plan_now() : 0;
    return plain;
}

/* Region j has run plainly, unpaid: what it borrowed last the next ones will need, too. Tensors that are freed inside one stay until
 * it has ended, so only of short ones. */
static void learn_loans(weft_jit *j, wf_ctx *c)
{
    wf_seat *s = wf_seat_of(j, c);
    wf_slot *first = wf_last_loan(c, NULL);
    if (s && !wf_lends_some(c) && first != &wf_nobody &&
        atomic_load_explicit(&j->region.is_short, memory_order_relaxed)) {
        s->region_lends[0] = first;
        s->region_lends[1] = wf_last_loan(c, first);
    }
}

/* May it begin on the account of seat s? */
static inline bool pays(wf_seat *s, const wf_ctx *c)
{
    const int64_t left = atomic_load_explicit(&s->regions_left, memory_order_relaxed);
    if (left <= 0 || c->away || wf_prof_is_on()) {
        return false;
    }
    atomic_store_explicit(&s->regions_left, left - 1, memory_order_relaxed);
    return true;
}

/* -- beginning and ending --------------------------------------------------------------------------------------------- */

/* The thread's regions that have begun, and how many of them were there before the function that runs now. */
static uint32_t *depth_of(wf_ctx *c, uint32_t *floor)
{
    wf_trace *t = c->recorder ? wf_trace_current(c) : NULL;
    *floor = t ? t->floor : c->region.floor;
    return t ? &t->depth : &c->region.depth;
}

/* Where c->inner has the region at that depth, 2 at least: those of a call that is recorded lie behind the plain ones around it. */
static uint32_t place_of(const wf_ctx *c, uint32_t depth)
{
    return depth - 2 + (c->recorder ? c->region.depth : 0);
}

/* Whose region began last of those at that depth; NULL: there is none. */
static weft_jit *innermost(wf_ctx *c, uint32_t depth)
{
    return depth > 1     ? c->inner[place_of(c, depth)]
           : c->recorder ? wf_trace_current(c)->owner.user
                         : c->region.of;
}

/* A region inside another is noted, and part of it. */
static weft_status go_in(wf_ctx *c, weft_jit *j)
{
    uint32_t floor, *depth = depth_of(c, &floor);
    const uint32_t at = place_of(c, *depth + 1);
    if (wf_grow(&c->inner, at, 1, &c->inner_cap, sizeof *c->inner)) {
        wf_raise_text(c, WEFT_ENOMEM, "jit_begin", "out of memory");
        return WEFT_ENOMEM;
    }
    c->inner[at] = j;
    ++*depth;
    wf_call_count_inlined(j);
    return WEFT_OK;
}

/* What is not short: the first one, one inside another, one that is looked at or recorded. */
__attribute__((noinline)) static weft_status begin(weft_jit *j)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!j) {
        wf_raise_text(c, WEFT_EINVALID, "jit_begin", "the trace is NULL");
        return WEFT_EINVALID;
    }
    if (c->sealed) {
        wf_raise_text(c, WEFT_EINVALID, "jit_begin",
                      "a deleter that runs in the middle of an op begins no region");
        return WEFT_EINVALID;
    }
    if (c->recorder || c->region.of) {
        return go_in(c, j);
    }
    wf_plain_region r = {.of = j, .depth = 1, .errors = c->error_seen};
    wf_seat *s = wf_seat_of(j, c);
    r.paid = s && pays(s, c);
    if (r.paid || is_plain(j, c, &r)) {
        c->region = r;
        return WEFT_OK;
    }
    wf_trace *t = wf_call_open_trace(j);
    if (!t) {
        return WEFT_ENOMEM;
    }
    t->floor = 0;
    t->since = wf_prof_start();
    t->timed = r.start;
    return WEFT_OK;
}

/* A region that the first seat pays for is a few stores: as long as a fifth of a small op, together with its end. */
weft_status(weft_jit_begin)(weft_jit *j)
{
    wf_ctx *c = wf_tls_ctx;
    if (__builtin_expect(!c || !j || c->sealed || c->recorder || c->region.of, 0)) {
        return begin(j);
    }
    wf_seat *s = &j->seat[0];
    if (__builtin_expect(atomic_load_explicit(&s->owner, memory_order_relaxed) != c || !pays(s, c),
                         0)) {
        return begin(j);
    }
    wf_slot *first = s->region_lends[0];
    c->region.of = j;
    c->region.depth = 1;
    c->region.floor = 0;
    c->region.paid = true;
    c->region.lends = first && !wf_lends_some(c);
    c->region.start = 0;
    c->region.errors = c->error_seen;
    if (c->region.lends) {
        wf_lend(c, first, s->region_lends[1]);
    }
    return WEFT_OK;
}

/* It has run; what it computed was another graph than last time: its way is to be found. */
static void look_at_plan(weft_jit *j)
{
    pthread_mutex_lock(&j->lock);
    const uint64_t hash = j->latest < j->nplans ? j->plans[j->latest].hash : 0;
    if (!atomic_load_explicit(&j->mixed.on, memory_order_relaxed)) {
        if (hash != j->region_hash) {
            wf_way_reset(&j->region);
            j->region_looks = j->region_period = 1;
        }
        count_change(j, hash != j->region_hash);
        j->region_hash = hash;
    }
    pthread_mutex_unlock(&j->lock);
}

static int end_plain(weft_jit *j, wf_ctx *c)
{
    const wf_plain_region r = c->region;
    c->region = (wf_plain_region){.of = NULL};
    if (r.lends) {
        wf_end_lend(c);
    }
    if (r.paid && c->error_seen == r.errors) {
        return 0;
    }
    atomic_fetch_add_explicit(&j->eager, r.paid ? 0 : 1, memory_order_relaxed);
    const int failed = wf_way_ran_plainly(j, c, &j->region, r.start, r.errors);
    add_turn(j, true, failed ? 0 : r.start);
    if (!failed && !r.paid) {
        learn_loans(j, c);
    }
    wf_seat *s = failed ? wf_seat_of(j, c) : NULL;
    if (s) { /* regions are recorded from now on */
        const int64_t left = atomic_exchange_explicit(&s->regions_left, 0, memory_order_relaxed);
        atomic_fetch_sub_explicit(&s->regions_given, left, memory_order_relaxed);
    }
    return failed;
}

static int end_recorded(weft_jit *j, wf_trace *t)
{
    const int64_t start = t->since;
    const wf_turn turn = {.way = j->adapts ? &j->region : NULL, .start = t->timed};
    if (j->freezes) {
        wf_call_never_frozen(
            j, "a region is recorded each time; only calls of a function are replayed");
    }
    wf_call_note(start, j, WEFT_PROFILE_RECORD, "a region");
    const int refused = wf_trace_refusal(t, "jit_end"), ran = wf_call_finish(j, t, "jit_end");
    const int device = t->base.device, rc = refused ? refused : ran;
    wf_call_close_trace(j, t);
    wf_call_note(start, j, WEFT_PROFILE_CALL, "a region");
    if (j->adapts) {
        wf_call_recorded(j, &turn, device, NULL, rc);
        add_turn(j, false, rc ? 0 : turn.start);
        look_at_plan(j);
    }
    return rc;
}

__attribute__((noinline)) static weft_status end(weft_jit *j)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    uint32_t floor, *depth = depth_of(c, &floor);
    const weft_jit *last = *depth > floor && !c->sealed ? innermost(c, *depth) : NULL;
    if (!j || !last) {
        wf_raise_text(c, WEFT_EINVALID, "jit_end",
                      "this region was not begun on this thread, or in this call, or has ended; a "
                      "deleter that runs in the middle of an op ends none");
        return WEFT_EINVALID;
    }
    if (j != last) {
        wf_raise_text(
            c, WEFT_EINVALID, "jit_end",
            "a region of '%s' began last, not one of '%s'; end regions in the reverse order",
            last->name, j->name);
        return WEFT_EINVALID;
    }
    if (*depth > 1) {
        --*depth;
        return WEFT_OK;
    }
    const int rc = c->recorder ? end_recorded(j, wf_trace_current(c)) : end_plain(j, c);
    c->last_write = WEFT_NONE; /* its call has a site, or none */
    return (weft_status)rc;
}

weft_status(weft_jit_end)(weft_jit *j)
{
    wf_ctx *c = wf_tls_ctx;
    if (__builtin_expect(!c || !j || c->sealed || c->recorder || c->region.of != j ||
                             c->region.depth != 1 || c->region.floor || !c->region.paid ||
                             c->error_seen != c->region.errors,
                         0)) {
        return end(j);
    }
    c->region.of = NULL;
    c->region.depth = 0;
    if (c->region.lends) {
        wf_end_lend(c);
    }
    c->last_write.slot = 0;
    c->here = NULL;
    return WEFT_OK;
}

int wf_call_end_regions(wf_ctx *c, uint32_t plain)
{
    int rc = 0;
    while (c->recorder || c->region.depth > plain) {
        uint32_t floor, *depth = depth_of(c, &floor);
        const int ended = (int)weft_jit_end(innermost(c, *depth));
        rc = rc ? rc : ended;
    }
    return rc;
}
