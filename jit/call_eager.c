/*
 * jit/call_eager.c -- calls of a traced function that are faster when nothing is recorded.
 *
 * Recording, finding the plan and running it cost some hundred nanoseconds, more than an op on a few elements. A call may
 * as well run the function: the bits are the same. Which is faster is measured, for each kind of call that can be told
 * before it is made (types, extents and devices of the arguments, whether gradients flow to them, grad mode): after WARM_UP
 * recorded calls, TURNS blocks of recorded and of plain calls, in turns; the first of a block warms the caches, the best
 * of the others count. The way that the calls had so far must be beaten clearly, and is measured again later on, less and
 * less often once the plan has settled: the host's control flow may have changed, kernels may have become native.
 *
 * Invariants: a way is a choice between bit-identical ones, so a key that two kinds of calls share costs time and nothing
 * else; calls find and take ways without the lock; only functions whose recorded calls take less than WORTH are ever run
 * plainly, so a trial costs no time and no memory to speak of; what has run on a device, or met a kernel's error, records
 * from then on.
 */
#include <stdio.h>

#include "eager/borrow.h"
#include "eager/device.h"
#include "eager/env.h"
#include "jit/call_impl.h"
#include "jit/plan_int.h"

enum {
    WARM_UP = 64,     /* recorded calls before the first trial */
    BLOCK = 4,        /* calls of a block */
    TURNS = 4,        /* blocks of a trial: recorded, plain, recorded, plain */
    AGAIN = 1000,     /* calls until the second trial; twice as many until the third, ... */
    SELDOM = 1 << 20, /* at most */
    WORTH = 1000000,  /* ns */
    CLEARLY = 97,     /* percent of the other's time */
};

bool wf_call_may_run_eagerly(const weft_jit_args *a)
{
    const wf_env_values *e = wf_env();
    return a->fn && !a->single_graph && !a->no_fuse && !a->synchronous && !a->frozen &&
           !a->always_record && !a->fast_math && !e->WEFT_FAST_MATH && e->WEFT_JIT_EAGER &&
           e->WEFT_JIT == 1 && !e->WEFT_DEBUG && !e->WEFT_BISECT && !*e->WEFT_DUMP &&
           !*e->WEFT_STATS && !*e->WEFT_STRESS && !*e->WEFT_PASS && !*e->WEFT_PROFILE;
}

/* -- kinds of calls ------------------------------------------------------------------------------------------------ */

static inline uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t mix_slot(uint64_t h, wf_slot *s)
{
    const int64_t *d = wf_dims(s);
    h = mix(h, (uint64_t)s->dtype | (uint64_t)s->rank << 8 | (uint64_t)wf_slot_tracked(s) << 16 |
                   (uint64_t)s->st->device << 24);
    for (int i = 0; i < s->rank; i++) {
        h = mix(h, (uint64_t)d[i]);
    }
    return h;
}

/* The kind of call; 0: the arguments are not all live tensors of the host, nothing is chosen. */
static uint64_t key_of(wf_ctx *c, const weft_tensor *in, int n_in, int n_out)
{
    uint64_t h = mix((uint64_t)n_in << 32 | (uint64_t)n_out, wf_grad_enabled(c));
    for (int i = 0; i < n_in; i++) {
        wf_hold how;
        wf_slot *s = wf_take_hold(c, in[i], &how);
        if (!s) {
            return 0;
        }
        const bool host = s->st->device == WF_DEVICE_HOST;
        h = mix_slot(h, s);
        wf_end_hold(c, s, how);
        if (!host) {
            return 0;
        }
    }
    return h | 1;
}

/* "f32[4,4], i64[4]", as much as there is room for. */
static void describe(wf_way *w, const weft_tensor *in, int n_in)
{
    size_t at = 0;
    w->says[0] = '\0';
    for (int i = 0; i < n_in && at < sizeof w->says; i++) {
        at += (size_t)snprintf(w->says + at, sizeof w->says - at, "%s%s[", i ? ", " : "",
                               wf_dtype_name((int)weft_dtype_of(in[i])));
        for (int k = 0; k < weft_rank(in[i]) && at < sizeof w->says; k++) {
            at += (size_t)snprintf(w->says + at, sizeof w->says - at, "%s%lld", k ? "," : "",
                                   (long long)weft_dim(in[i], k));
        }
        if (at < sizeof w->says) {
            at += (size_t)snprintf(w->says + at, sizeof w->says - at, "]");
        }
    }
}

/* NULL: there are too many kinds of calls. */
static wf_way *add_way(weft_jit *j, uint64_t key, const weft_tensor *in, int n_in)
{
    pthread_mutex_lock(&j->lock);
    wf_way *w = NULL;
    for (int i = 0; i < MAX_WAYS && !w; i++) {
        const uint64_t k = atomic_load_explicit(&j->ways[i].key, memory_order_relaxed);
        w = k == key || k == 0 ? &j->ways[i] : NULL;
    }
    if (w && atomic_load_explicit(&w->key, memory_order_relaxed) == 0) {
        describe(w, in, n_in);
        atomic_store_explicit(&w->left, WARM_UP, memory_order_relaxed);
        w->period = AGAIN;
        atomic_store_explicit(&w->key, key, memory_order_release);
    }
    pthread_mutex_unlock(&j->lock);
    return w;
}

static wf_way *find_way(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, int n_out)
{
    const uint64_t key = key_of(c, in, n_in, n_out);
    for (int i = 0; i < MAX_WAYS && key; i++) {
        const uint64_t k = atomic_load_explicit(&j->ways[i].key, memory_order_acquire);
        if (k == key) {
            return &j->ways[i];
        }
        if (k == 0) {
            return add_way(j, key, in, n_in);
        }
    }
    return NULL;
}

/* -- choosing --------------------------------------------------------------------------------------------------- */

static void keep_least(_Atomic int64_t *best, int64_t t)
{
    int64_t old = atomic_load_explicit(best, memory_order_relaxed);
    while (t < old && !atomic_compare_exchange_weak_explicit(best, &old, t, memory_order_relaxed,
                                                             memory_order_relaxed)) {
    }
}

static void start_trial(wf_way *w)
{
    atomic_store_explicit(&w->best[0], INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&w->best[1], INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&w->turn, 0, memory_order_relaxed);
    atomic_store_explicit(&w->trial, true, memory_order_release);
}

/* The thread whose turn is the first behind the last. A way without a time (its calls failed) is not chosen. */
static void decide(weft_jit *j, wf_way *w)
{
    const int64_t traced = atomic_load_explicit(&w->best[0], memory_order_relaxed);
    const int64_t plain = atomic_load_explicit(&w->best[1], memory_order_relaxed);
    pthread_mutex_lock(&j->lock);
    const bool was = atomic_load_explicit(&w->eager, memory_order_relaxed);
    const int64_t old = was ? plain : traced, other = was ? traced : plain;
    const bool better = other != INT64_MAX && other < old / 100 * CLEARLY + old % 100;
    w->ns[0] = traced;
    w->ns[1] = plain;
    atomic_store_explicit(&w->eager, was != better, memory_order_relaxed);
    atomic_store_explicit(&w->left, w->period, memory_order_relaxed);
    w->period = w->settled && w->period < SELDOM ? w->period * 2 : w->period;
    atomic_store_explicit(&w->trial, false, memory_order_release);
    pthread_mutex_unlock(&j->lock);
}

/* Is this call to run plainly? *timed: it is part of a trial. */
static bool choose(weft_jit *j, wf_way *w, bool *timed)
{
    *timed = false;
    if (__builtin_expect(atomic_load_explicit(&w->trial, memory_order_acquire), 0)) {
        const int turn = atomic_fetch_add_explicit(&w->turn, 1, memory_order_relaxed);
        const bool slow = turn == BLOCK && /* it has been timed by now */
                          atomic_load_explicit(&w->best[0], memory_order_relaxed) > WORTH;
        if (slow) {
            atomic_store_explicit(&w->turn, TURNS * BLOCK + 1, memory_order_relaxed);
        }
        if (slow || turn == TURNS * BLOCK) {
            decide(j, w);
        } else if (turn < TURNS * BLOCK) {
            *timed = turn % BLOCK != 0;
            return turn / BLOCK % 2 != 0;
        }
    } else if (atomic_fetch_sub_explicit(&w->left, 1, memory_order_relaxed) == 1) {
        start_trial(w);
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

/* Regions that the function left open end with it. */
static int end_regions(wf_ctx *c)
{
    int rc = 0;
    while (c->recorder) {
        const int ended = (int)weft_jit_end(wf_trace_current(c)->owner.user);
        rc = rc ? rc : ended;
    }
    return rc;
}

/* The function ran well, but a kernel did not: its error is the call's, as if it had been recorded. What the function was
 * told of when it made the call or asked for a value is its own affair. */
static int kernel_error(wf_ctx *c, uint64_t since)
{
    const uint64_t id = c->error_next == since ? 0 : wf_error_untold(c, since);
    if (!id) {
        return 0;
    }
    c->error_last = id;
    return (int)weft_error_status((weft_tensor){0, c->id, id});
}

/* *sound: nothing happened that recording does in another way. */
static int run(const weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *r,
               int n_out, bool *sound)
{
    const uint64_t errors = c->error_next;
    for (int i = 0; i < n_out; i++) {
        r[i] = WEFT_NONE;
    }
    const weft_scope sc = weft_scope_begin();
    if (!sc.depth) {
        return WEFT_ENOMEM;
    }
    int rc = wf_run_function(c, "jit_call", j->name, j->fn, j->self, in, n_in, r, n_out);
    if (__builtin_expect(c->recorder != NULL, 0)) {
        const int ended = end_regions(c);
        rc = rc ? rc : ended;
        *sound = false;
    }
    const int failed = rc ? 0 : kernel_error(c, errors);
    for (int i = 0; i < n_out; i++) {
        r[i] = failed                       ? (weft_tensor){0, c->id, c->error_last}
               : r[i].slot < WF_ABSENT_SLOT ? weft_scope_give(sc, r[i])
                                            : r[i];
    }
    weft_scope_end(sc);
    c->last_write = WEFT_NONE;
    *sound = *sound && !failed;
    return rc ? rc : failed;
}

bool wf_call_eagerly(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *out,
                     int n_out, wf_turn *t, int *rc)
{
    weft_tensor r[WF_EAGER_RESULTS];
    bool timed, sound = true;
    wf_way *w = n_out <= WF_EAGER_RESULTS && !c->away ? find_way(j, c, in, n_in, n_out) : NULL;
    if (!w) {
        return false;
    }
    const bool eager = choose(j, w, &timed);
    t->way = w;
    t->start = timed ? wf_plan_now() : 0;
    if (!eager) {
        return false;
    }
    *rc = run(j, c, in, n_in, r, n_out, &sound);
    for (int i = 0; i < n_out; i++) {
        out[i] = r[i];
    }
    atomic_fetch_add_explicit(&j->eager, 1, memory_order_relaxed);
    if (!sound) {
        give_up(w);
    } else if (timed && !*rc) {
        keep_least(&w->best[1], wf_plan_now() - t->start);
    }
    return true;
}

void wf_call_recorded(weft_jit *j, const wf_turn *t, int device, int rc)
{
    if (t->way && device != WF_DEVICE_HOST) {
        give_up(t->way);
    } else if (t->start && !rc) {
        keep_least(&t->way->best[0], wf_plan_now() - t->start);
        pthread_mutex_lock(&j->lock);
        t->way->settled = j->latest >= j->nplans || wf_plan_is_settled(j->plans[j->latest].plan);
        pthread_mutex_unlock(&j->lock);
    }
}

void wf_call_explain_ways(weft_jit *j, FILE *out)
{
    for (int i = 0; i < MAX_WAYS; i++) {
        const wf_way *w = &j->ways[i];
        if (atomic_load_explicit(&w->key, memory_order_acquire) && w->ns[0] &&
            w->ns[0] != INT64_MAX) {
            const bool eager = atomic_load_explicit(&w->eager, memory_order_relaxed);
            const double traced = (double)w->ns[0] * 1e-3, plain = (double)w->ns[1] * 1e-3;
            if (w->ns[1] == INT64_MAX) {
                fprintf(out, "  (%s) is recorded: %.1f us traced, too long to try it eagerly\n",
                        w->says, traced);
            } else {
                fprintf(out, "  (%s) %s: %.2f us against %.2f us %s\n", w->says,
                        eager ? "runs eagerly" : "is recorded", eager ? plain : traced,
                        eager ? traced : plain, eager ? "traced" : "eagerly");
            }
        }
    }
}
