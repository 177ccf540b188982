/*
 * jit/call.c -- traced functions (weft/jit.h): record, find the plan, run it (call_plans.c).
 *
 * Invariants: the lock guards the cache, the counts and the list of idle traces, and is never held while user
 * code, a planner or a kernel runs. Giving up a plan or a frozen call is such: native code is unloaded, the deleter of
 * a captured tensor may call back. So what leaves a list under the lock is released after it. A plan in use is
 * retained, so that eviction by another thread is harmless.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/env.h"
#include "eager/device.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "jit/call_impl.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

int weft_jit_reasons(weft_jit *j, weft_jit_reason *out, int n)
{
    if (!j) {
        return 0;
    }
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < n && i < j->nreasons; i++) {
        out[i] = j->reasons[i];
    }
    int all = j->nreasons;
    pthread_mutex_unlock(&j->lock);
    return all;
}

/* -- making ------------------------------------------------------------------------------------------------ */

weft_jit *(weft_jit_trace)(const weft_jit_args *args)
{
    wf_ctx *c = wf_ctx_get();
    if (!args) {
        wf_raise_text(c, WEFT_EINVALID, "jit_trace", "the arguments are NULL");
        return NULL;
    }
    weft_jit *j = wf_malloc(sizeof *j);
    if (!j) {
        wf_raise_text(c, WEFT_ENOMEM, "jit_trace", "out of memory");
        return NULL;
    }
    memset(j, 0, sizeof *j);
    j->fn = args->fn;
    j->self = args->self;
    snprintf(j->name, sizeof j->name, "%s", args->name && *args->name ? args->name : "f");
    j->single_graph = args->single_graph;
    j->no_fuse = args->no_fuse;
    j->synchronous = args->synchronous;
    j->fast_math = args->fast_math || wf_env()->WEFT_FAST_MATH;
    j->freezes = args->frozen;
    j->adapts = wf_call_may_run_eagerly(args);
    wf_way_reset(&j->region);
    j->verify_every = args->verify_every ? args->verify_every : VERIFY;
    j->forgets = wf_env_stress("evict", NULL);
    j->max_plans = args->max_plans > 0 ? args->max_plans : MAX_PLANS;
    j->max_frozen = args->max_frozen > 0 ? args->max_frozen : MAX_FROZEN;
    pthread_mutex_init(&j->lock, NULL);
    return j;
}

void weft_jit_free(weft_jit *j)
{
    if (!j) {
        return;
    }
    for (int i = 0; i < j->nplans; i++) {
        wf_call_entry_free(&j->plans[i]);
    }
    for (int i = 0; i < j->nidle; i++) {
        wf_trace_free(j->idle[i]);
    }
    wf_call_free_frozen(j);
    wf_ways_free(j);
    wf_mfree(j->plans);
    wf_mfree(j->idle);
    pthread_mutex_destroy(&j->lock);
    wf_mfree(j);
}

/* -- breaks ---------------------------------------------------------------------------------------------------- */

static void count_break(void *user, const char *op, const char *site)
{
    weft_jit *j = user;
    pthread_mutex_lock(&j->lock);
    j->stats.breaks++;
    wf_prof_mark("break", op, site);
    int i = 0;
    site = site ? site : "";
    while (i < j->nbreaks &&
           (strcmp(j->breaks[i].op, op) != 0 || strcmp(j->breaks[i].site, site) != 0)) {
        i++;
    }
    if (i < MAX_BREAKS) {
        j->nbreaks += i == j->nbreaks;
        j->breaks[i] = (weft_jit_break){op, site, j->breaks[i].count + 1};
    }
    pthread_mutex_unlock(&j->lock);
}

int weft_jit_breaks(weft_jit *j, weft_jit_break *out, int n)
{
    if (!j) {
        return 0;
    }
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < n && i < j->nbreaks; i++) {
        out[i] = j->breaks[i];
    }
    int all = j->nbreaks;
    pthread_mutex_unlock(&j->lock);
    return all;
}

void weft_jit_get_stats(weft_jit *j, weft_jit_stats *out)
{
    if (j && out) {
        pthread_mutex_lock(&j->lock);
        *out = j->stats;
        out->frozen = atomic_load_explicit(&j->replays, memory_order_relaxed);
        out->eager = wf_call_count_eager(j);
        pthread_mutex_unlock(&j->lock);
    }
}

/* -- calling ---------------------------------------------------------------------------------------------------- */

wf_trace *wf_call_open_trace(weft_jit *j)
{
    wf_trace_owner owner = {.name = j->name,
                            .single_graph = j->single_graph,
                            .freezes = j->freezes,
                            .user = j,
                            .run = wf_call_run_segment,
                            .broke = count_break};
    wf_trace *t = NULL;
    pthread_mutex_lock(&j->lock);
    j->stats.calls++;
    if (j->nidle) {
        t = j->idle[--j->nidle];
    }
    pthread_mutex_unlock(&j->lock);
    if (!t) {
        return wf_trace_open(&owner);
    }
    if (wf_trace_reopen(t, &owner)) {
        wf_trace_free(t);
        t = NULL;
    }
    return t;
}

void wf_call_close_trace(weft_jit *j, wf_trace *t)
{
    wf_trace_close(t);
    pthread_mutex_lock(&j->lock);
    if (j->nidle == j->capidle) {
        int cap = j->capidle ? j->capidle * 2 : 2;
        wf_trace **p = wf_realloc(j->idle, (size_t)cap * sizeof *p);
        if (p) {
            j->idle = p;
            j->capidle = cap;
        }
    }
    if (j->nidle < j->capidle) {
        j->idle[j->nidle++] = t;
        t = NULL;
    }
    pthread_mutex_unlock(&j->lock);
    wf_trace_free(t);
}

void wf_call_count_inlined(weft_jit *j)
{
    pthread_mutex_lock(&j->lock);
    j->stats.inlined++;
    pthread_mutex_unlock(&j->lock);
}

int wf_call_finish(weft_jit *j, wf_trace *t, const char *op)
{
    wf_why why;
    wf_why_clear(&why);
    int rc = wf_trace_commit(t, &why);
    if (rc) {
        wf_raise_text(t->c, why.code ? why.code : rc, op, "in '%s': %s%s%s", j->name, why.rule,
                      why.hint[0] ? "; " : "", why.hint);
    }
    return rc;
}

/* Lets the runner know what it may freeze. */
static void describe(weft_jit *j, wf_trace *t, const weft_tensor *in, int n_in,
                     const weft_tensor *out, int n_out, freezing *z)
{
    char reason[WF_REASON];
    z->now = wf_frozen_describe(t, in, n_in, out, n_out, &z->start, reason);
    z->described = true;
    if (!z->now) {
        wf_call_not_frozen(j, reason);
    }
}

/* Why a call of a function that freezes has been compared with no other. */
static void explain_unseen(weft_jit *j, const wf_trace *t, int rc, int ran, const freezing *z)
{
    if (!t) {
        wf_call_never_frozen(j, "the call is part of another trace");
    } else if (rc || ran) {
        wf_call_never_frozen(j, rc ? "the function returns an error" : "the call fails");
    } else if (z->now) {
        wf_call_never_frozen(j, "it computes nothing");
    }
}

void wf_call_note(int64_t start, const weft_jit *j, weft_profile_kind kind, const char *how)
{
    if (start) {
        wf_prof_end(start, &(wf_prof_span){kind, .name = j->name, .detail = how});
    }
}

static int check_call(wf_ctx *c, const weft_jit *j, const weft_tensor *in, int n_in,
                      const weft_tensor *out, int n_out)
{
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!j || !j->fn || n_in < 0 || n_out < 0 || (n_in && !in) || (n_out && !out)) {
        wf_raise_text(c, WEFT_EINVALID, "jit_call", "%s",
                      !j       ? "the traced function is NULL"
                      : !j->fn ? "there is no function to call: this trace is for regions "
                                 "(weft_jit_begin)"
                      : n_in < 0 || n_out < 0 ? "a count of tensors is negative"
                                              : "an array of tensors is NULL");
        return WEFT_EINVALID;
    }
    return 0;
}

static void clear(weft_tensor *out, int n_out)
{
    for (int i = 0; i < n_out; i++) {
        out[i] = WEFT_NONE;
    }
}

/* Runs frozen call z, which may be part of a trial. */
static int replay(weft_jit *j, wf_ctx *c, wf_frozen *z, wf_frozen_args *a, weft_tensor *out,
                  int n_out, const wf_turn *turn)
{
    int device;
    wf_plan *p = turn->start ? wf_frozen_plan(z, &device) : NULL;
    const int rc = wf_call_run_frozen(j, c, z, a, out, n_out);
    if (p) {
        wf_call_recorded(j, turn, device, p, rc);
        wf_plan_release(p);
    }
    return rc;
}

/* Runs the function with its kernels put off, in a scope that only its results r leave: into trace `own`, or into the one around
 * it if that is NULL. *refused: `own` says that the call fails, whatever the function returned. */
static int run_recorded(wf_ctx *c, const weft_jit *j, wf_trace *own, const weft_tensor *in,
                        int n_in, weft_tensor *r, int n_out, int *refused)
{
    wf_trace *current = wf_trace_current(c);
    int rc = 0;
    weft_scope sc = weft_scope_begin();
    if (!r || !sc.depth) {
        rc = WEFT_ENOMEM;
        wf_raise_text(c, rc, "jit_call", "out of memory");
    }
    clear(r, r ? n_out : 0); /* in and out may be one array */
    const uint32_t floor = current->floor, depth = current->depth;
    current->floor = current->depth = depth + !own;
    rc = rc ? rc : wf_run_function(c, "jit_call", j->name, j->fn, j->self, in, n_in, r, n_out);
    *refused = own && !rc ? wf_trace_refusal(own, "jit_call") : 0;
    current->floor = floor;
    current->depth = depth; /* regions that the function left open end with it */
    for (int i = 0; r && !*refused && i < n_out; i++) {
        r[i] = r[i].slot < WF_ABSENT_SLOT ? weft_scope_give(sc, r[i]) : r[i];
    }
    weft_scope_end(sc);
    return rc;
}

__attribute__((noinline)) weft_status wf_call_watched(weft_jit *j, const weft_tensor *in, int n_in,
                                                      weft_tensor *out, int n_out,
                                                      wf_call_watch *watch)
{
    wf_ctx *c = wf_ctx_get();
    int rc = check_call(c, j, in, n_in, out, n_out);
    if (rc) {
        return (weft_status)rc;
    }
    freezing z = {.watch = watch};
    const bool freezes = j->freezes && !watch;
    wf_turn turn = {.way = NULL};
    int64_t start = wf_prof_start();
    if (j->adapts && !watch && !c->recorder && !start &&
        wf_call_eagerly(j, c, in, n_in, out, n_out, &turn, &rc)) {
        return (weft_status)rc;
    }
    if (freezes && !c->recorder) {
        wf_frozen_args a;
        z.kind = turn.kind.key;
        wf_frozen *frozen = wf_call_find_frozen(j, c, in, n_in, n_out, &a, &z);
        if (frozen) {
            rc = replay(j, c, frozen, &a, out, n_out, &turn);
            wf_call_note(start, j, WEFT_PROFILE_CALL, "frozen");
            return (weft_status)rc;
        }
        wf_call_start(j, c, &z);
    }
    z.way = turn.way;
    wf_trace *t =
        c->recorder ? NULL : wf_call_open_trace(j); /* NULL: part of another trace, or no memory */
    if (!wf_trace_current(c)) {
        wf_frozen_release(z.verify);
        clear(out, n_out);
        return WEFT_ENOMEM;
    }
    weft_tensor results[8];
    weft_tensor *r = n_out <= 8 ? results : wf_malloc((size_t)n_out * sizeof *r);
    if (t) {
        t->frame = __builtin_frame_address(0);
        t->base.outside = freezes ? c->depth : 0;
        t->note = &z;
    } else {
        wf_call_count_inlined(j);
    }
    int refused;
    rc = run_recorded(c, j, t, in, n_in, r, n_out, &refused);
    if (t && freezes && !rc && !refused) {
        describe(j, t, in, n_in, r, n_out, &z);
    }
    wf_call_note(start, j, WEFT_PROFILE_RECORD, t ? "" : "part of another trace");
    int ran = t ? wf_call_finish(j, t, "jit_call") : 0;
    ran = refused ? refused : ran;
    if (freezes && !z.seen) {
        explain_unseen(j, t, rc, ran, &z);
    }
    wf_frozen_release(z.now);
    wf_frozen_release(z.verify);
    for (int i = 0; i < n_out; i++) {
        out[i] = ran ? wf_last_error(c) : r ? r[i] : WEFT_NONE;
    }
    const int device = t ? t->base.device : WF_DEVICE_HOST;
    if (t) {
        wf_call_close_trace(j, t);
    }
    if (r != results) {
        wf_mfree(r);
    }
    c->last_write = WEFT_NONE;
    if (t) {
        wf_call_note(start, j, WEFT_PROFILE_CALL, "recorded");
    }
    wf_call_recorded(j, &turn, device, NULL, rc ? rc : ran);
    c->here = NULL;
    return (weft_status)(rc ? rc : ran);
}

/* Slot and context of a handle in one, as who made it stored them: of halves a load would have to wait for both. */
static inline uint64_t place_of(const weft_tensor *t)
{
    uint64_t place;
    memcpy(&place, t, sizeof place);
    return place;
}

/* The same handle? */
static inline bool is_same(const weft_tensor *a, const weft_tensor *b)
{
    return ((place_of(a) ^ place_of(b)) | (a->serial ^ b->serial)) == 0;
}

/* A call that the first seat has paid for is not made on its account. */
static weft_status refund(weft_jit *j, const weft_tensor *in, int n_in, weft_tensor *out)
{
    const int64_t left = atomic_load_explicit(&j->seat[0].left, memory_order_relaxed);
    atomic_store_explicit(&j->seat[0].left, left + 1, memory_order_relaxed);
    return wf_call_watched(j, in, n_in, out, 1, NULL);
}

/* `scope` ends; s, which is all it holds, and that r names, goes to the one around it. A deleter may have left others open. */
static inline void leave(wf_ctx *c, uint32_t scope, wf_slot *s, weft_tensor *r)
{
    wf_scope_rec *from = &c->scopes[scope], *to = from - 1;
    if (__builtin_expect(c->depth != scope, 0)) {
        wf_scopes_leave(c, scope, scope - 1, r, 1);
        return;
    }
    s->next = to->head;
    s->scope = c->depth = scope - 1;
    if (to->head) {
        wf_slot_at(c, to->head)->prev = r->slot;
    }
    to->head = r->slot;
    *from = (wf_scope_rec){0, 0};
}

/* What a seat's call must know when the function has returned: where that finds its result, so it is not in registers. */
typedef struct seat_call {
    weft_tensor r;
    weft_jit *j;
    const weft_tensor *in;
    weft_tensor *out;
    uint64_t errors;
    int n_in;
    uint32_t scope;
} seat_call;

/* Its result is not one tensor of the scope, or something else has happened. */
WF_COLD __attribute__((noinline)) static weft_status end_otherwise(wf_ctx *c, seat_call *k, int rc,
                                                                   bool inside)
{
    rc = wf_call_end(k->j, c, k->in, k->n_in, &k->r, rc, k->errors, k->scope);
    if (inside) {
        wf_scopes_leave(c, k->scope, k->scope - 1, &k->r, 1);
    }
    *k->out = k->r;
    return (weft_status)rc;
}

/*
 * A seat's call of one result: in the caller's scope where that is empty, else in one of its own, out of which the result moves (`inside`). The
 * result and nothing else is there afterwards, or wf_call_end sees to it. first, second: borrowed for the call, or NULL. What all this costs beside the
 * function is some 110 instructions; borrowing saves 75 of them for each operand that comes. What is asked of the result is ored, as a product
 * of few rows, whose loops differ from call to call, is slowed down by every branch that the processor remembers between them.
 */
static inline __attribute__((always_inline)) weft_status
run_plain(weft_jit *j, const weft_tensor *in, int n_in, weft_tensor *out, wf_ctx *c, wf_slot *first,
          wf_slot *second, bool inside)
{
    seat_call k = {.r = WEFT_NONE, /* in and out may be one array */
                   .j = j,
                   .in = in,
                   .out = out,
                   .errors = c->error_seen,
                   .n_in = n_in,
                   .scope = c->depth};
    if (first) {
        wf_lend(c, first, second);
    }
    const int rc = (int)j->fn(j->self, in, n_in, &k.r, 1);
    if (first) {
        wf_end_lend(c);
    }
    const uint64_t place = place_of(&k.r);
    const uint32_t slot = c->scopes[k.scope].head;
    const uint64_t odd = (uint64_t)(uint32_t)rc | (uint64_t)(uintptr_t)c->recorder |
                         (uint64_t)(uintptr_t)c->region.of | (c->error_seen ^ k.errors) |
                         (c->depth ^ k.scope) | (place ^ ((uint64_t)c->id << 32 | slot));
    if (__builtin_expect(odd == 0 && slot != 0, 1)) {
        wf_slot *s = wf_slot_at(c, slot);
        const uint64_t state = atomic_load_explicit(&s->state, memory_order_relaxed);
        if (__builtin_expect(WF_STATE_SERIAL(state) == k.r.serial, 1)) {
            if (s->next) {
                wf_scope_trim(c, slot);
            }
            if (inside) {
                leave(c, k.scope, s, &k.r);
            }
            c->last_write.slot = 0;
            c->here = NULL;
            weft_tensor *to = k.out;
            memcpy(to, &place, sizeof place);
            to->serial = k.r.serial;
            return WEFT_OK;
        }
    }
    return end_otherwise(c, &k, rc, inside);
}

/* Lines of code of their own, side by side: where they begin inside one decides over a tenth of a small product's time. */
#define STRAIGHT __attribute__((aligned(64)))

/* Functions of their own, jumped to: what comes before them needs no stack. */
STRAIGHT __attribute__((noinline)) static weft_status
run_lent(weft_jit *j, const weft_tensor *in, int n_in, weft_tensor *out, wf_ctx *c, wf_slot *first)
{
    if (!first) {
        __builtin_unreachable();
    }
    return run_plain(j, in, n_in, out, c, first, j->seat[0].second, false);
}

/* In a scope that holds tensors. */
STRAIGHT __attribute__((noinline)) static weft_status run_inside(weft_jit *j, const weft_tensor *in,
                                                                 int n_in, weft_tensor *out,
                                                                 wf_ctx *c, wf_slot *first)
{
    if (!wf_scope_push(c)) {
        return refund(j, in, n_in, out);
    }
    return run_plain(j, in, n_in, out, c, first, j->seat[0].second, true);
}

/* In another such call, which has lent what can be. */
__attribute__((noinline)) static weft_status run_further(weft_jit *j, const weft_tensor *in,
                                                         int n_in, weft_tensor *out, wf_ctx *c)
{
    return run_inside(j, in, n_in, out, c, NULL);
}

/* first: of the argument, or wf_nobody. */
static inline weft_status run_as(weft_jit *j, const weft_tensor *in, int n_in, weft_tensor *out,
                                 wf_ctx *c, wf_slot *first)
{
    return wf_lends_some(c)           ? run_further(j, in, n_in, out, c)
           : c->scopes[c->depth].head ? run_inside(j, in, n_in, out, c, first)
                                      : run_lent(j, in, n_in, out, c, first);
}

/* A call of one result whose first argument is not one that the seat knows; it has paid. It knows it from now on, if
 * a call may be made on it. */
__attribute__((noinline)) static weft_status run_other(weft_jit *j, const weft_tensor *in, int n_in,
                                                       weft_tensor *out, wf_ctx *c)
{
    wf_seat *seat = &j->seat[0];
    wf_hold how;
    wf_slot *a = wf_take_hold(c, in[0], &how);
    const bool fits = a && wf_seat_fits(seat, a);
    if (a) {
        wf_end_hold(c, a, how);
    }
    if (!fits) {
        return refund(j, in, n_in, out);
    }
    wf_slot *lends = how == WF_HOLD_LENT || wf_is_lent(c, a) ? a : &wf_nobody;
    if (how != WF_HOLD_PINNED) {
        seat->known[in[0].slot % WF_KNOWN] = (wf_seat_arg){in[0], lends};
    }
    return run_as(j, in, n_in, out, c, lends);
}

STRAIGHT weft_status(weft_jit_call)(weft_jit *j, const weft_tensor *in, int n_in, weft_tensor *out,
                                    int n_out)
{
    wf_ctx *c = wf_tls_ctx;
    if (__builtin_expect(!j, 0) || __builtin_expect(!in, 0) || __builtin_expect(!out, 0) ||
        __builtin_expect(n_in < 1, 0) || __builtin_expect(n_out != 1, 0)) {
        return wf_call_watched(j, in, n_in, out, n_out, NULL);
    }
    wf_seat *seat = &j->seat[0];
    const wf_ctx *owner = atomic_load_explicit(&seat->owner, memory_order_relaxed);
    const int64_t left = atomic_load_explicit(&seat->left, memory_order_relaxed) - 1;
    /* (a seat without an owner has no calls left: past it there is a context) */
    if (__builtin_expect(owner != c || left < 0 || c->recorder || c->region.of || wf_prof_is_on(),
                         0)) {
        return wf_call_watched(j, in, n_in, out, n_out, NULL);
    }
    atomic_store_explicit(&seat->left, left, memory_order_relaxed);
    const wf_seat_arg *known = &seat->known[(uint32_t)place_of(in) % WF_KNOWN];
    if (!is_same(in, &known->t)) {
        return run_other(j, in, n_in, out, c);
    }
    return run_as(j, in, n_in, out, c, known->lends);
}
