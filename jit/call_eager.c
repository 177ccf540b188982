/*
 * jit/call_eager.c -- calls of a traced function that are faster when nothing is recorded.
 *
 * Recording, finding the plan and running it cost some hundred nanoseconds, more than an op on a few elements, and so does
 * replaying a frozen call. A call may as well run the function: the bits are the same. Which is faster is measured, for each kind
 * of call that can be told before it is made (jit/call_ways.c).
 *
 * A trial comes after some recorded or replayed calls: TURNS blocks of recorded and of plain calls, in turns. The first call of a
 * block warms the caches, the best of the others counts. The way that the calls had so far must be beaten clearly (recording, where
 * the plan saves no traffic, by any time). It is measured again later on, less and less often once the plan has settled: the
 * host's control flow may have changed, kernels may have become native.
 *
 * Long calls (WORTH) have shorter trials, of two calls the other way at least, which wait until one part in BUDGET of the time
 * pays for them, and none where the function would take much more memory op by op.
 *
 * Short calls (SHORT) are worth less than a look at them. A thread gets a seat: GIVEN calls that it may make without a look
 * (GIVEN_LATER where all looks found the same kind; the straight way is in call.c). Their first arguments must be like those of
 * kinds that it has seen run plainly, and of no other.
 *
 * Calls whose plan is dropped at the limit of max_plans and built again have their trial at once: what is timed there are
 * recordings with the building of a plan. They are tried again much later.
 *
 * Invariants: a way is a choice between bit-identical ones, so a key that two kinds of calls share, or a call made without
 * a look, costs time and nothing else; calls find and take ways without the lock; a seat is its thread's alone; what has run
 * on a device, or met a kernel's error, records from then on. In a trace that freezes calls the other way is a replay where a
 * guard lets it pass; two recordings in a row that freeze one are part of a block.
 */
#include <stdio.h>
#include <unistd.h>

#include "eager/borrow.h"
#include "eager/device.h"
#include "eager/env.h"
#include "jit/call_impl.h"
#include "jit/plan_int.h"

enum {
    BLOCK = 4,         /* calls of a block */
    TURNS = 4,         /* blocks of a trial: recorded, plain, recorded, plain */
    SELDOM = 1 << 20,  /* calls until the next trial at most */
    CROWDED = 1 << 16, /* at least, of those whose plan is built again and again: ... */
    REBUILT = 2,       /* ... so often */
    WORTH = 1000000,   /* ns: a recorded call that takes longer is a long one */
    LONG_TURNS = 7,    /* calls of its trial: its way, twice the other, ... */
    LONG_AGAIN = 250,  /* calls until the second trial, at least */
    BUDGET = 50,       /* one part in so many of the time may go into the slower way */
    CLEARLY = 97,      /* percent of the other's time */
    SHORT = 20000,     /* ns */
    GIVEN =
        126, /* calls without a look at the arguments; 127 is a prime: every period of kinds is seen */
    STEADY = 16,        /* looks in a row that found the same kind: the next are as rare as ... */
    GIVEN_LATER = 1020, /* (1021 is one, too) */
    RECENT = 1024,      /* looks */
    LISTED = 16,        /* kinds that weft_jit_explain describes */
    MEMORY = 16,        /* a trial may take one part in so many of the machine's memory */
};

bool wf_call_may_run_eagerly(const weft_jit_args *a)
{
    const wf_env_values *e = wf_env();
    return !a->single_graph && !a->no_fuse && !a->synchronous && !a->always_record &&
           !a->fast_math && !e->WEFT_FAST_MATH && e->WEFT_JIT_EAGER && e->WEFT_JIT == 1 &&
           !e->WEFT_DEBUG && !e->WEFT_VALIDATE && !e->WEFT_BISECT && !*e->WEFT_DUMP &&
           !*e->WEFT_STATS && !*e->WEFT_STRESS && !*e->WEFT_PASS && !*e->WEFT_PROFILE;
}

/* -- choosing --------------------------------------------------------------------------------------------------- */

static void keep_least(_Atomic int64_t *best, int64_t t)
{
    int64_t old = atomic_load_explicit(best, memory_order_relaxed);
    while (t < old && !atomic_compare_exchange_weak_explicit(best, &old, t, memory_order_relaxed,
                                                             memory_order_relaxed)) {
    }
}

/* A call of a trial, recorded or plain, took so long. */
static void note_time(wf_way *w, bool plain, int64_t ns)
{
    keep_least(&w->best[plain], ns);
    if (plain != atomic_load_explicit(&w->eager, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&w->spent, ns, memory_order_relaxed);
    }
}

static void start_trial(wf_way *w)
{
    atomic_store_explicit(&w->spent, 0, memory_order_relaxed);
    atomic_store_explicit(&w->best[0], INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&w->best[1], INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&w->turn, 0, memory_order_relaxed);
    atomic_store_explicit(&w->trial, true, memory_order_release);
}

/* Calls that pay for `calls` of them that took `all` together, in place of `old` each. */
static int64_t pay(int64_t old, int64_t all, int calls)
{
    const double more = (double)all / (double)old - calls, n = more > 0 ? (double)BUDGET * more : 0;
    return n < (double)SELDOM ? (int64_t)n : (int64_t)SELDOM;
}

/* The thread whose turn is the first behind the last. A way without a time (its calls failed) is not chosen. calls: made
 * the other way. */
static void decide(weft_jit *j, wf_way *w, int calls)
{
    const int64_t traced = atomic_load_explicit(&w->best[0], memory_order_relaxed);
    const int64_t plain = atomic_load_explicit(&w->best[1], memory_order_relaxed);
    pthread_mutex_lock(&j->lock);
    if (atomic_load_explicit(&w->trial, memory_order_relaxed)) {
        const bool was = atomic_load_explicit(&w->eager, memory_order_relaxed);
        const int64_t old = was ? plain : traced, other = was ? traced : plain;
        /* a plan that saves no traffic has nothing but its price: then what is faster at all is faster */
        const int clearly = !was && w->modelled == 100 ? 100 : CLEARLY;
        const bool better = other != INT64_MAX && other < old / 100 * clearly + old % 100;
        const bool paid = !w->is_long || better || other == INT64_MAX || old == INT64_MAX;
        const int64_t spent = atomic_load_explicit(&w->spent, memory_order_relaxed);
        const int64_t debt = paid ? 0 : pay(old, spent, calls);
        w->ns[0] = traced;
        w->ns[1] = plain;
        atomic_store_explicit(&w->is_short, plain < SHORT, memory_order_relaxed);
        atomic_store_explicit(&w->eager, was != better, memory_order_relaxed);
        int64_t until = w->period > debt ? w->period : debt;
        if (atomic_load_explicit(&w->crowded, memory_order_relaxed)) {
            until = until > CROWDED ? until : CROWDED;
            atomic_store_explicit(&w->crowded, false, memory_order_relaxed);
            atomic_store_explicit(&w->rebuilt, 0, memory_order_relaxed);
        }
        atomic_store_explicit(&w->left, until, memory_order_relaxed);
        w->period = w->settled && w->period < SELDOM ? w->period * 2 : w->period;
        atomic_store_explicit(&w->trial, false, memory_order_release);
        wf_way_note_choice(j, w);
        wf_ways_shut(j, atomic_load_explicit(&j->looks, memory_order_relaxed), RECENT);
    }
    pthread_mutex_unlock(&j->lock);
}

/* Calls like this one turn out to be long. It has cost next to nothing to find out; the first call the other way waits until as many
 * have been made as pay for what the model says that it costs. */
static void be_long(weft_jit *j, wf_way *w)
{
    pthread_mutex_lock(&j->lock);
    if (atomic_load_explicit(&w->trial, memory_order_relaxed)) {
        w->is_long = true;
        w->period = LONG_AGAIN;
        w->ns[0] = atomic_load_explicit(&w->best[0], memory_order_relaxed);
        w->ns[1] = INT64_MAX;
        atomic_store_explicit(&w->left, 1 + pay(100, w->modelled, 1), memory_order_relaxed);
        atomic_store_explicit(&w->trial, false, memory_order_release);
    }
    pthread_mutex_unlock(&j->lock);
}

/* Turn t of a long call's trial goes the other way than calls do. */
static bool is_other(int turn)
{
    return turn % 3 != 0;
}

/* A call of a trial has been timed: need more of a long one be made? No better at the second try is enough. The first may have been
 * waiting for memory that the function had not needed for long (pages that the system clears: 561 ms, where the next calls took 60). */
static void look_at_long(weft_jit *j, wf_way *w)
{
    const int turn = atomic_load_explicit(&w->turn, memory_order_relaxed);
    if (!w->is_long || turn > LONG_TURNS || turn < 3) {
        return;
    }
    const bool was = atomic_load_explicit(&w->eager, memory_order_relaxed);
    const int64_t old = atomic_load_explicit(&w->best[was], memory_order_relaxed);
    const int64_t other = atomic_load_explicit(&w->best[!was], memory_order_relaxed);
    if (other != INT64_MAX && old != INT64_MAX && other > old) {
        decide(j, w, turn < 5 ? 2 : turn < 6 ? 3 : 4);
    }
}

bool wf_way_choose(weft_jit *j, wf_way *w, bool *timed)
{
    const bool eager = atomic_load_explicit(&w->eager, memory_order_relaxed);
    *timed = false;
    if (__builtin_expect(atomic_load_explicit(&w->trial, memory_order_acquire), 0)) {
        const int turn = atomic_fetch_add_explicit(&w->turn, 1, memory_order_relaxed);
        const int last = w->is_long ? LONG_TURNS : TURNS * BLOCK;
        if (turn >= last) {
            decide(j, w, 4);
        } else if (w->is_long) {
            *timed = true;
            return eager != is_other(turn);
        } else if (turn == BLOCK && !eager && /* it has been timed by now */
                   atomic_load_explicit(&w->best[0], memory_order_relaxed) > WORTH) {
            be_long(j, w);
        } else {
            *timed = turn % BLOCK != 0;
            return turn / BLOCK % 2 != 0;
        }
    } else if (atomic_fetch_sub_explicit(&w->left, 1, memory_order_relaxed) <= 1) {
        if (atomic_load_explicit(&w->takes_more, memory_order_relaxed) && w->is_long) {
            atomic_store_explicit(&w->left, SELDOM, memory_order_relaxed);
        } else {
            start_trial(w);
        }
    }
    return atomic_load_explicit(&w->eager, memory_order_relaxed);
}

/* Calls of this kind record from now on. */
static void give_up(wf_way *w)
{
    atomic_store_explicit(&w->eager, false, memory_order_relaxed);
    atomic_store_explicit(&w->left, INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&w->trial, false, memory_order_release);
}

/* -- running ------------------------------------------------------------------------------------------------------ */

/* The function ran well, but a kernel did not: its error is the call's, as if it had been recorded. What the function was
 * told of when it made the call or asked for a value is its own affair. */
static int kernel_error(wf_ctx *c, uint64_t since)
{
    const uint64_t id = c->error_seen == since ? 0 : wf_error_untold(c, since);
    if (!id) {
        return 0;
    }
    c->error_last = id;
    return (int)weft_error_status((weft_tensor){0, c->id, id});
}

int wf_way_ran_plainly(weft_jit *j, wf_ctx *c, wf_way *w, int64_t start, uint64_t errors)
{
    const int failed = kernel_error(c, errors);
    if (failed) {
        give_up(w);
    } else if (start) {
        note_time(w, true, wf_plan_now() - start);
        look_at_long(j, w);
    }
    return failed;
}

/* What the function left has no straight end; `plain` regions were there before it. *sound: nothing happened that recording does in another way. */
WF_COLD static int end_badly(const weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in,
                             weft_tensor *r, int n_out, int rc, uint64_t errors, uint32_t plain,
                             bool *sound)
{
    if (rc) {
        wf_function_failed(c, "jit_call", j->name, rc, errors, in, n_in);
    }
    if (c->recorder || c->region.depth != plain) {
        const int ended = wf_call_end_regions(c, plain);
        rc = rc ? rc : ended;
        *sound = false;
    }
    const int failed = rc ? 0 : kernel_error(c, errors);
    for (int i = 0; i < n_out && failed; i++) {
        r[i] = wf_last_error(c);
    }
    *sound = *sound && !failed;
    return rc ? rc : failed;
}

/* In a scope of its own. */
static int run(const weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *out,
               int n_out, bool *sound)
{
    weft_tensor r[WF_EAGER_RESULTS]; /* in and out may be one array */
    const uint64_t errors = c->error_seen;
    for (int i = 0; i < n_out; i++) {
        r[i] = WEFT_NONE;
    }
    int rc = WEFT_ENOMEM;
    if (wf_scope_push(c)) {
        const uint32_t base = c->depth, plain = c->region.depth, floor = c->region.floor;
        c->region.floor = plain; /* the function ends no other than its own */
        rc = (int)j->fn(j->self, in, n_in, r, n_out);
        if (__builtin_expect(
                rc || c->recorder || c->region.depth != plain || c->error_seen != errors, 0)) {
            rc = end_badly(j, c, in, n_in, r, n_out, rc, errors, plain, sound);
        }
        c->region.floor = floor;
        wf_scopes_leave(c, base, base - 1, r, n_out);
    }
    for (int i = 0; i < n_out; i++) {
        out[i] = r[i];
    }
    c->last_write = WEFT_NONE;
    c->here = NULL;
    return rc;
}

/* -- calls without a look ----------------------------------------------------------------------------------------- */

int64_t wf_call_count_eager(const weft_jit *j)
{
    int64_t n = atomic_load_explicit(&j->eager, memory_order_relaxed);
    for (int i = 0; i < WF_SEATS; i++) {
        const wf_seat *s = &j->seat[i];
        n += atomic_load_explicit(&s->given, memory_order_relaxed) -
             atomic_load_explicit(&s->left, memory_order_relaxed) +
             atomic_load_explicit(&s->regions_given, memory_order_relaxed) -
             atomic_load_explicit(&s->regions_left, memory_order_relaxed);
    }
    return n;
}

wf_seat *wf_seat_of(weft_jit *j, const wf_ctx *c)
{
    for (int i = 0; i < WF_SEATS; i++) {
        const wf_ctx *owner = atomic_load_explicit(&j->seat[i].owner, memory_order_relaxed);
        if (owner == c || !owner) {
            return owner ? &j->seat[i] : NULL;
        }
    }
    return NULL;
}

wf_seat *wf_seat_take(weft_jit *j, wf_ctx *c)
{
    wf_seat *s = wf_seat_of(j, c);
    if (s) {
        return s;
    }
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < WF_SEATS && !s; i++) {
        if (!atomic_load_explicit(&j->seat[i].owner, memory_order_relaxed)) {
            s = &j->seat[i];
            wf_seat_forget(s);
            atomic_store_explicit(&s->owner, c, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&j->lock);
    return s;
}

/* What is left of its calls. */
static void take_back(wf_seat *s)
{
    const int64_t left = atomic_load_explicit(&s->left, memory_order_relaxed);
    atomic_store_explicit(&s->left, 0, memory_order_relaxed);
    atomic_store_explicit(&s->given, atomic_load_explicit(&s->given, memory_order_relaxed) - left,
                          memory_order_relaxed);
}

/* Calls of this kind do not just run the function: none with such a first argument is made without a look. */
static void shut(weft_jit *j, const wf_ctx *c, const wf_call_kind *k)
{
    const uint64_t bit = UINT64_C(1) << (k->first & 63);
    _Atomic uint64_t *all = &j->shut[k->first >> 6];
    wf_seat *s = wf_seat_of(j, c);
    if (!(atomic_load_explicit(all, memory_order_relaxed) & bit)) {
        atomic_fetch_or_explicit(all, bit, memory_order_relaxed);
    }
    if (s) {
        if (s->may[k->first >> 6] & bit) {
            s->may[k->first >> 6] &= ~bit;
            wf_seat_forget(s);
        }
    }
}

/* A call of this kind has run the function: so may the next ones of this thread. */
static void give_calls(weft_jit *j, wf_ctx *c, wf_way *w, const wf_call_kind *k, weft_tensor first)
{
    const int at = (int)(k->first >> 6);
    const uint64_t bit = UINT64_C(1) << (k->first & 63);
    const int64_t until = atomic_load_explicit(&w->left, memory_order_relaxed) - 1;
    if (until <= 0 || !atomic_load_explicit(&w->is_short, memory_order_relaxed) ||
        atomic_load_explicit(&j->shut[at], memory_order_relaxed) & bit) {
        return;
    }
    wf_seat *s = wf_seat_take(j, c);
    if (!s) {
        return;
    }
    s->may[at] |= bit;
    if (!wf_lends_some(c)) { /* the call around it has lent what would have been borrowed */
        s->second = wf_last_loan(c, wf_slot_is_here(c, first) ? wf_slot_at(c, first.slot) : NULL);
    }
    s->steady = s->way == w ? s->steady + 1 : 0;
    s->way = w;
    const int64_t most = s->steady < STEADY ? GIVEN : GIVEN_LATER, n = until < most ? until : most;
    if (atomic_load_explicit(&s->left, memory_order_relaxed) > 0) {
        return;
    }
    uint64_t gone = 0;
    for (int i = 0; i < 4; i++) {
        const uint64_t shut = atomic_load_explicit(&j->shut[i], memory_order_relaxed);
        gone |= s->may[i] & shut;
        s->may[i] &= ~shut;
    }
    if (gone) {
        wf_seat_forget(s);
    }
    atomic_fetch_sub_explicit(&w->left, n, memory_order_relaxed);
    atomic_store_explicit(&s->given, atomic_load_explicit(&s->given, memory_order_relaxed) + n,
                          memory_order_relaxed);
    atomic_store_explicit(&s->left, n, memory_order_relaxed);
}

/* They are taken back, and the kind of this call records from now on. */
WF_COLD static void stand_up(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, int n_out)
{
    wf_call_kind k;
    wf_call_kind_of(c, in, n_in, n_out, &k);
    wf_way *w = k.key && k.host ? wf_way_find(j, c, &k, in, n_in, n_out) : NULL;
    wf_seat *s = wf_seat_of(j, c);
    if (w) {
        give_up(w);
        shut(j, c, &k);
    }
    if (s) {
        take_back(s);
    }
}

int wf_call_end(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *r, int rc,
                uint64_t errors, uint32_t scope)
{
    bool sound = true;
    if (rc || c->recorder || c->region.of || c->error_seen != errors) {
        rc = end_badly(j, c, in, n_in, r, 1, rc, errors, 0, &sound);
    }
    wf_scopes_leave(c, scope, scope, r, 1);
    c->last_write = WEFT_NONE;
    c->here = NULL;
    if (!sound) {
        stand_up(j, c, in, n_in, 1);
    }
    return rc;
}

/* A call that the thread's seat has paid for. False: it is not. */
static bool sit(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *out,
                int n_out, int *rc)
{
    bool sound = true;
    wf_seat *s = n_in > 0 && n_out <= WF_EAGER_RESULTS ? wf_seat_of(j, c) : NULL;
    const int64_t left = s ? atomic_load_explicit(&s->left, memory_order_relaxed) : 0;
    wf_hold how;
    wf_slot *first = left > 0 ? wf_take_hold(c, in[0], &how) : NULL;
    const bool fits = first && wf_seat_fits(s, first);
    if (fits) {
        atomic_store_explicit(&s->left, left - 1, memory_order_relaxed);
        *rc = run(j, c, in, n_in, out, n_out, &sound);
    }
    if (first) {
        wf_end_hold(c, first, how);
    }
    if (!sound) {
        stand_up(j, c, in, n_in, n_out);
    }
    return fits;
}

bool wf_call_eagerly(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *out,
                     int n_out, wf_turn *t, int *rc)
{
    bool timed, sound = true;
    if (sit(j, c, in, n_in, out, n_out, rc)) {
        return true;
    }
    if (n_out > WF_EAGER_RESULTS || c->away) {
        return false;
    }
    wf_call_kind_of(c, in, n_in, n_out, &t->kind);
    wf_way *w = t->kind.key && t->kind.host ? wf_way_find(j, c, &t->kind, in, n_in, n_out) : NULL;
    if (!w) {
        return false;
    }
    const int64_t now = atomic_fetch_add_explicit(&j->looks, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&w->seen, now, memory_order_relaxed);
    if (now % RECENT == 0) {
        pthread_mutex_lock(&j->lock);
        wf_ways_shut(j, now, RECENT);
        pthread_mutex_unlock(&j->lock);
    }
    const bool eager = wf_way_choose(j, w, &timed);
    t->way = w;
    t->start = timed ? wf_plan_now() : 0;
    if (timed || !eager) {
        shut(j, c, &t->kind);
    }
    if (!eager) {
        return false;
    }
    const weft_tensor first = n_in > 0 ? in[0] : WEFT_NONE; /* in and out may be one array */
    wf_forget_loans(c);
    *rc = run(j, c, in, n_in, out, n_out, &sound);
    atomic_fetch_add_explicit(&j->eager, 1, memory_order_relaxed);
    if (!sound) {
        give_up(w);
    } else if (timed && !*rc) {
        note_time(w, true, wf_plan_now() - t->start);
        look_at_long(j, w);
    } else if (!timed && n_in > 0 && !atomic_load_explicit(&w->trial, memory_order_relaxed)) {
        give_calls(j, c, w, &t->kind, first);
    }
    return true;
}

/* What the plan that has just run says of running op by op instead. Called with the lock. */
static void ask_plan(wf_way *w, const wf_plan *p)
{
    wf_plan_info i = {.read_bytes = 1};
    if (p) {
        wf_plan_get_info(p, &i);
    }
    const double moves = (double)(i.read_bytes + i.write_bytes) + 1;
    const double alone = (double)(i.eager_read_bytes + i.eager_write_bytes);
    const int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    w->settled = !p || wf_plan_is_settled(p);
    w->modelled = alone > moves ? (int64_t)(100 * alone / moves) : 100;
    atomic_store_explicit(&w->takes_more, i.eager_write_bytes - i.peak_bytes > all / MEMORY,
                          memory_order_relaxed);
}

void wf_call_note_plan(wf_way *w, bool again)
{
    if (!again) {
        atomic_store_explicit(&w->rebuilt, 0, memory_order_relaxed);
    } else if (atomic_fetch_add_explicit(&w->rebuilt, 1, memory_order_relaxed) + 1 == REBUILT) {
        atomic_store_explicit(&w->crowded, true, memory_order_relaxed);
        if (!atomic_load_explicit(&w->trial, memory_order_relaxed)) {
            atomic_store_explicit(&w->left, 1, memory_order_relaxed);
        }
    }
}

void wf_call_recorded(weft_jit *j, const wf_turn *t, int device, const wf_plan *p, int rc)
{
    if (t->way && device != WF_DEVICE_HOST) {
        give_up(t->way);
    } else if (t->start && !rc) {
        note_time(t->way, false, wf_plan_now() - t->start);
        pthread_mutex_lock(&j->lock);
        ask_plan(t->way, p ? p : j->latest < j->nplans ? j->plans[j->latest].plan : NULL);
        pthread_mutex_unlock(&j->lock);
        look_at_long(j, t->way);
    }
}

static void explain_way(const wf_way *w, bool freezes, FILE *out)
{
    const bool eager = atomic_load_explicit(&w->eager, memory_order_relaxed);
    const double traced = (double)w->ns[0] * 1e-3, plain = (double)w->ns[1] * 1e-3;
    if (w->ns[1] == INT64_MAX) {
        fprintf(out, "  (%s) is recorded: %.1f us traced, a long call: %s\n", w->of.says, traced,
                w->takes_more ? "op by op it takes too much memory to try"
                              : "not tried eagerly yet");
    } else {
        fprintf(out, "  (%s) %s: %.2f us against %.2f us %s\n", w->of.says,
                eager     ? "runs eagerly"
                : freezes ? "is replayed or recorded"
                          : "is recorded",
                eager ? plain : traced, eager ? traced : plain, eager ? "traced" : "eagerly");
    }
}

void wf_call_explain_ways(weft_jit *j, FILE *out)
{
    int64_t count[2][2] = {{0}}, n = 0; /* tried or not; run the function */
    if (j->region.ns[0] && j->region.ns[0] != INT64_MAX) {
        explain_way(&j->region, false, out);
    }
    for (int k = 0; k < WAY_SETS; k++) {
        const wf_way_set *set = atomic_load_explicit(&j->ways[k], memory_order_relaxed);
        for (int i = 0; i < WAY_LANES && set; i++) {
            const wf_way *w = &set->way[i];
            if (!atomic_load_explicit(&set->key[i], memory_order_relaxed)) {
                continue;
            }
            const bool tried = w->ns[0] && w->ns[0] != INT64_MAX;
            count[tried][atomic_load_explicit(&w->eager, memory_order_relaxed)]++;
            if (tried && n++ < LISTED) {
                explain_way(w, j->freezes, out);
            }
        }
    }
    if (n > LISTED || count[0][0] + count[0][1]) {
        fprintf(
            out,
            "  of all kinds of calls %lld run eagerly and %lld are recorded; %lld and %lld are not "
            "tried yet\n",
            (long long)count[1][1], (long long)count[1][0], (long long)count[0][1],
            (long long)count[0][0]);
    }
}
