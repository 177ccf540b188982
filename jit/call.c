/*
 * jit/call.c -- traced functions and regions (weft/jit.h): record, find the plan, run it.
 *
 * Invariants: the lock guards the cache, the counts and the list of idle traces, and is never held while user
 * code, a planner or a kernel runs. Giving up a plan or a frozen call is such: native code is unloaded, the deleter of
 * a captured tensor may call back. So what leaves a list under the lock is released after it. A plan in use is
 * retained, so that eviction by another thread is harmless.
 */
#define WEFT_NO_SITES

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "jit/frozen.h"
#include "jit/key.h"
#include "jit/plan.h"
#include "jit/trace.h"
#include "weft/jit.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum {
    MAX_PLANS = 256,
    MAX_BREAKS = 32,
    MAX_REASONS = 32,
    MAX_NAME = 64,
    MAX_FROZEN = 8,
    MAX_WAITING = 4,
    VERIFY = 100
};
_Static_assert(sizeof((weft_jit_reason *)0)->text == WF_REASON, "reasons fit");

typedef struct entry {
    uint64_t hash, used;
    int device;
    wf_fn *fn; /* the recording that the plan was built for: the key */
    int32_t *writes;
    wf_plan *plan;
} entry;

/* The last recording of calls with such arguments, and its hash: the next one may agree with it. */
typedef struct waiting {
    wf_frozen *call;
    uint64_t hash;
} waiting;

struct weft_jit {
    weft_jit_fn fn;
    void *self;
    char name[MAX_NAME];
    bool single_graph, no_fuse, synchronous, freezes;
    int max_plans, verify_every;
    pthread_mutex_t lock;
    entry *plans; /* in no order: recordings differ in few plans, and the hash decides at once */
    int nplans, capplans, latest; /* the plan that was hit last */
    uint64_t clock;
    wf_trace **idle;
    int nidle, capidle;
    weft_jit_stats stats;    /* but for `frozen` */
    _Atomic int64_t replays; /* of frozen calls: counted without the lock */
    weft_jit_break breaks[MAX_BREAKS];
    int nbreaks;
    weft_jit_reason reasons[MAX_REASONS];
    int nreasons;
    wf_frozen *frozen[MAX_FROZEN]; /* the newest first */
    int nfrozen;
    waiting wait[MAX_WAITING]; /* by arguments and by hash each a single one; the newest first */
    int nwait;
};

/* A call that may be frozen. */
typedef struct freezing {
    wf_frozen *now;    /* describes this recording; NULL: it cannot be frozen */
    wf_frozen *verify; /* to be compared with it, or NULL */
    int home;          /* the default device that the call began with */
} freezing;

/* Called with the lock. */
static void note_reason(weft_jit *j, const char *what, const char *reason)
{
    char text[WF_REASON];
    snprintf(text, sizeof text, "%s: %.160s", what, reason);
    int i = 0;
    while (i < j->nreasons && strcmp(j->reasons[i].text, text) != 0) {
        i++;
    }
    if (i < MAX_REASONS) {
        if (i == j->nreasons) {
            memcpy(j->reasons[j->nreasons++].text, text, sizeof text);
        }
        j->reasons[i].count++;
    }
}

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
    j->freezes = args->frozen;
    j->verify_every = args->verify_every ? args->verify_every : VERIFY;
    j->max_plans = args->max_plans > 0 ? args->max_plans : MAX_PLANS;
    pthread_mutex_init(&j->lock, NULL);
    return j;
}

static void entry_free(entry *e)
{
    wf_fn_free(e->fn);
    wf_mfree(e->writes);
    wf_plan_release(e->plan);
}

void weft_jit_free(weft_jit *j)
{
    if (!j) {
        return;
    }
    for (int i = 0; i < j->nplans; i++) {
        entry_free(&j->plans[i]);
    }
    for (int i = 0; i < j->nidle; i++) {
        wf_trace_free(j->idle[i]);
    }
    for (int i = 0; i < j->nfrozen; i++) {
        wf_frozen_release(j->frozen[i]);
    }
    for (int i = 0; i < j->nwait; i++) {
        wf_frozen_release(j->wait[i].call);
    }
    wf_mfree(j->plans);
    wf_mfree(j->idle);
    pthread_mutex_destroy(&j->lock);
    wf_mfree(j);
}

/* -- plans --------------------------------------------------------------------------------------------------- */

static bool is_entry(const entry *e, uint64_t hash, const wf_job *job)
{
    return e->hash == hash && e->device == job->device &&
           wf_key_same(e->fn, e->writes, job->fn, job->writes);
}

/* Called with the lock. */
static entry *find_entry(weft_jit *j, uint64_t hash, const wf_job *job)
{
    for (int i = 0; i < j->nplans; i++) {
        entry *e = &j->plans[i];
        if (is_entry(e, hash, job)) {
            return e;
        }
    }
    return NULL;
}

/* Called with the lock. */
static void count_segment(weft_jit *j, const wf_fn *f, const wf_plan *p)
{
    wf_plan_info info;
    wf_plan_get_info(p, &info);
    j->stats.segments++;
    j->stats.ops = f->n;
    j->stats.inputs = f->ninputs;
    j->stats.outputs = f->noutputs;
    j->stats.steps = info.steps;
    j->stats.kernels = info.groups;
}

/* The plan of e, which a recording has hit, retained. Called with the lock. */
static wf_plan *hit(weft_jit *j, entry *e, const wf_job *job)
{
    wf_plan_retain(e->plan);
    e->used = ++j->clock;
    j->latest = (int)(e - j->plans);
    j->stats.hits++;
    count_segment(j, job->fn, e->plan);
    return e->plan;
}

/* The plan of a recording, retained; NULL: not known. The plan of the call before is compared with at once; only where
 * that is another one is *hash needed. */
static wf_plan *lookup(weft_jit *j, uint64_t *hash, const wf_job *job)
{
    wf_plan *p = NULL;
    pthread_mutex_lock(&j->lock);
    entry *e = j->latest < j->nplans ? &j->plans[j->latest] : NULL;
    if (e && is_entry(e, e->hash, job)) {
        *hash = e->hash;
        p = hit(j, e, job);
    }
    pthread_mutex_unlock(&j->lock);
    if (p) {
        return p;
    }
    *hash = wf_key_hash(job->fn, job->writes);
    pthread_mutex_lock(&j->lock);
    e = find_entry(j, *hash, job);
    p = e ? hit(j, e, job) : NULL;
    pthread_mutex_unlock(&j->lock);
    return p;
}

/* Room for one more plan, the least recently used one leaving to *gone when there are max_plans. Called with the
 * lock. */
static entry *place(weft_jit *j, entry *gone)
{
    if (j->nplans >= j->max_plans) {
        entry *old = &j->plans[0];
        for (int i = 1; i < j->nplans; i++) {
            old = j->plans[i].used < old->used ? &j->plans[i] : old;
        }
        *gone = *old;
        j->stats.evictions++;
        return old;
    }
    if (j->nplans == j->capplans) {
        int cap = j->capplans ? j->capplans * 2 : 4;
        entry *p = wf_realloc(j->plans, (size_t)cap * sizeof *p);
        if (!p) {
            return NULL;
        }
        j->plans = p;
        j->capplans = cap;
    }
    return &j->plans[j->nplans++];
}

/* The cache takes the recording over: the trace gets another. Not being remembered is no failure. */
static void remember(weft_jit *j, uint64_t hash, wf_job *job, wf_plan *p)
{
    size_t bytes = job->fn->noutputs * sizeof *job->writes;
    int32_t *writes = wf_malloc(bytes ? bytes : 1);
    wf_fn *next = wf_fn_new(j->name);
    entry gone = {0};
    pthread_mutex_lock(&j->lock);
    j->stats.plans++;
    entry *e = writes && next ? place(j, &gone) : NULL;
    if (e) {
        memcpy(writes, job->writes, bytes);
        *e = (entry){hash, ++j->clock, job->device, job->fn, writes, p};
        j->latest = (int)(e - j->plans);
        wf_plan_retain(p);
        job->fn = next;
        writes = NULL;
        next = NULL;
    }
    pthread_mutex_unlock(&j->lock);
    entry_free(&gone);
    wf_mfree(writes);
    wf_fn_free(next);
}

/* -- freezing ------------------------------------------------------------------------------------------------ */

/* z becomes the first to be tried; returns what leaves for it, or NULL. */
static wf_frozen *add_frozen(weft_jit *j, wf_frozen *z)
{
    wf_frozen *gone = j->nfrozen == MAX_FROZEN ? j->frozen[--j->nfrozen] : NULL;
    memmove(&j->frozen[1], &j->frozen[0], (size_t)j->nfrozen * sizeof j->frozen[0]);
    j->frozen[0] = z;
    j->nfrozen++;
    return gone;
}

/* Takes z off the list; returns the list's reference, or NULL if another thread was first. */
static wf_frozen *take_frozen(weft_jit *j, const wf_frozen *z)
{
    for (int i = 0; i < j->nfrozen; i++) {
        if (j->frozen[i] == z) {
            wf_frozen *gone = j->frozen[i];
            memmove(&j->frozen[i], &j->frozen[i + 1],
                    (size_t)(--j->nfrozen - i) * sizeof j->frozen[0]);
            return gone;
        }
    }
    return NULL;
}

/* Frozen calls to be released once the lock is not held. */
typedef struct discarded {
    wf_frozen *z[MAX_WAITING + 2];
    int n;
} discarded;

static void discard(const discarded *d)
{
    for (int i = 0; i < d->n; i++) {
        wf_frozen_release(d->z[i]);
    }
}

/* Likewise a waiting call. */
static wf_frozen *take_waiting(weft_jit *j, int i)
{
    wf_frozen *gone = j->wait[i].call;
    memmove(&j->wait[i], &j->wait[i + 1], (size_t)(--j->nwait - i) * sizeof j->wait[0]);
    return gone;
}

/* z waits for the next call with such arguments. Of a hash one waits: its entry keeps one recording's numbers. */
static void wait_for_next(weft_jit *j, uint64_t hash, wf_frozen *z, discarded *gone)
{
    for (int i = j->nwait; i-- > 0;) {
        if (j->wait[i].hash == hash || wf_frozen_same_arguments(j->wait[i].call, z)) {
            gone->z[gone->n++] = take_waiting(j, i);
        }
    }
    if (j->nwait == MAX_WAITING) {
        gone->z[gone->n++] = take_waiting(j, MAX_WAITING - 1);
    }
    memmove(&j->wait[1], &j->wait[0], (size_t)j->nwait++ * sizeof j->wait[0]);
    j->wait[0] = (waiting){z, hash};
}

/* The recording of this call, which ran, against the one before it with such arguments. Called with the lock; gone
 * receives what is to be released. */
static void compare(weft_jit *j, uint64_t hash, wf_job *job, wf_plan *p, entry *e, discarded *gone)
{
    freezing *z = job->note;
    char reason[WF_REASON] = "the graph is another than before";
    int i = 0;
    while (i < j->nwait && !wf_frozen_same_arguments(j->wait[i].call, z->now)) {
        i++;
    }
    bool before = e && i < j->nwait && j->wait[i].hash == hash;
    bool same = before && wf_frozen_numbers(e->fn, job->fn, reason) &&
                wf_frozen_agree(j->wait[i].call, z->now, reason);
    wf_fn *next = same ? wf_fn_new(j->name) : NULL;
    if (next) {
        wf_frozen_arm(z->now, job->fn, job->writes, p);
        gone->z[gone->n++] = add_frozen(j, z->now);
        gone->z[gone->n++] = take_waiting(j, i); /* it has served, and holds captured tensors */
        job->fn = next;
    } else {
        if (before) {
            j->stats.refusals++;
            note_reason(j, "not frozen", reason);
        }
        if (e) { /* the next recording is compared with this one */
            wf_fn *old = e->fn;
            e->fn = job->fn;
            job->fn = old;
        }
        wait_for_next(j, hash, z->now, gone);
    }
    z->now = NULL;
}

static void consider(weft_jit *j, uint64_t hash, wf_job *job, wf_plan *p, bool known)
{
    freezing *z = job->note;
    char reason[WF_REASON] = "its call can no longer be frozen";
    discarded gone = {.n = 0};
    pthread_mutex_lock(&j->lock);
    if (z->verify) {
        j->stats.verified++;
        /* a structure that the cache did not know is another one, and the recording is the cache's by now */
        if (!known || !z->now || !wf_frozen_same(z->verify, z->now, job->fn, job->writes, reason)) {
            j->stats.thawed++;
            note_reason(j, "thawed", known ? reason : "the function records other ops than it did");
            gone.z[gone.n++] = take_frozen(j, z->verify);
        }
    } else if (z->now) {
        compare(j, hash, job, p, known ? find_entry(j, hash, job) : NULL, &gone);
    }
    pthread_mutex_unlock(&j->lock);
    discard(&gone);
}

/* The newest frozen call, retained; NULL: there is none. */
static wf_frozen *first_frozen(weft_jit *j)
{
    pthread_mutex_lock(&j->lock);
    wf_frozen *z = j->nfrozen ? j->frozen[0] : NULL;
    if (z) {
        wf_frozen_retain(z);
    }
    pthread_mutex_unlock(&j->lock);
    return z;
}

/* All of them, retained: guards run without the lock. */
static int list_frozen(weft_jit *j, wf_frozen *list[MAX_FROZEN])
{
    pthread_mutex_lock(&j->lock);
    int n = j->nfrozen;
    for (int i = 0; i < n; i++) {
        list[i] = j->frozen[i];
        wf_frozen_retain(list[i]);
    }
    pthread_mutex_unlock(&j->lock);
    return n;
}

/* Drops the frozen calls of a list that can never be replayed again. */
static void drop_dead(weft_jit *j, wf_ctx *c, wf_frozen **list, int n)
{
    for (int i = 0; i < n; i++) {
        if (wf_frozen_is_dead(list[i], c)) {
            pthread_mutex_lock(&j->lock);
            wf_frozen *gone = take_frozen(j, list[i]);
            pthread_mutex_unlock(&j->lock);
            wf_frozen_release(gone);
        }
    }
}

/* The newest does not hold: another one, retained, or NULL. a NULL: no guard can pass. */
static wf_frozen *other_frozen(weft_jit *j, wf_ctx *c, const wf_frozen_args *a, int n_out)
{
    char reason[WF_REASON];
    wf_frozen *list[MAX_FROZEN], *z = NULL;
    int n = list_frozen(j, list);
    for (int i = 0; i < n && a && !z; i++) {
        z = wf_frozen_guard(list[i], a, n_out, reason) ? list[i] : NULL;
    }
    if (z) {
        wf_frozen_retain(z);
    } else {
        drop_dead(j, c, list, n);
    }
    for (int i = 0; i < n; i++) {
        wf_frozen_release(list[i]);
    }
    return z;
}

/* A frozen call whose guards pass, retained, with the arguments of this call in *a, which the caller closes. *verify:
 * one that is due to be checked instead. Both NULL: a is closed. */
static wf_frozen *find_frozen(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, int n_out,
                              wf_frozen_args *a, wf_frozen **verify)
{
    char reason[WF_REASON];
    wf_frozen *z = first_frozen(j);
    *verify = NULL;
    if (!z) {
        return NULL;
    }
    bool open = wf_frozen_open(a, c, in, n_in, reason);
    if (!open || !wf_frozen_guard(z, a, n_out, reason)) {
        wf_frozen_release(z);
        z = other_frozen(j, c, open ? a : NULL, n_out);
    }
    if (z && (j->verify_every <= 0 || wf_frozen_count(z) % (uint32_t)j->verify_every != 0)) {
        atomic_fetch_add_explicit(&j->replays, 1, memory_order_relaxed);
        return z;
    }
    *verify = z;
    wf_frozen_close(a);
    if (!z) {
        pthread_mutex_lock(&j->lock);
        j->stats.misses++;
        note_reason(j, "guard", reason);
        pthread_mutex_unlock(&j->lock);
    }
    return NULL;
}

static int run_frozen(weft_jit *j, wf_ctx *c, wf_frozen *z, wf_frozen_args *a, weft_tensor *out,
                      int n_out)
{
    wf_why why;
    wf_frozen_how how;
    why.code = 0;
    why.rule[0] = why.hint[0] = '\0';
    int rc = wf_frozen_run(z, a, out, &how, &why);
    wf_frozen_close(a);
    wf_frozen_release(z);
    if (how.captured || how.reason[0]) {
        pthread_mutex_lock(&j->lock);
        j->stats.captured += how.captured;
        if (how.reason[0]) {
            note_reason(j, "not captured", how.reason);
        }
        pthread_mutex_unlock(&j->lock);
    }
    if (rc) {
        weft_tensor e = wf_raise_text(c, why.code ? why.code : rc, "jit_call", "in '%s': %s%s%s",
                                      j->name, why.rule, why.hint[0] ? "; " : "", why.hint);
        for (int i = 0; i < n_out; i++) {
            out[i] = e;
        }
    }
    return rc;
}

static int run_segment(void *user, wf_job *job, wf_why *why)
{
    weft_jit *j = user;
    uint64_t hash;
    wf_plan *p = lookup(j, &hash, job);
    bool known = p != NULL;
    if (!p) {
        wf_plan_opts o = {.flags = (j->no_fuse ? WF_PLAN_NO_FUSE : 0) |
                                   (j->synchronous ? WF_PLAN_SYNC : 0) |
                                   (job->device ? WF_PLAN_DEVICE : 0),
                          .writes = job->writes};
        p = wf_plan_build(job->fn, &o, why);
    }
    if (!p) {
        return why->code;
    }
    if (!known) {
        pthread_mutex_lock(&j->lock);
        count_segment(j, job->fn, p);
        pthread_mutex_unlock(&j->lock);
    }
    wf_plan_args a = {
        .fn = job->fn, .in = job->in, .out = job->out, .device = job->device, .began = job->began};
    unsigned mode = wf_fpenv_enter();
    int rc = wf_plan_run(p, &a, why);
    wf_fpenv_leave(mode);
    job->failed_op = a.failed_op;
    job->failed_site = a.failed_site;
    if (!known) {
        remember(j, hash, job, p);
    }
    if (!rc && job->note) {
        consider(j, hash, job, p, known);
    }
    wf_plan_release(p);
    return rc;
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
        pthread_mutex_unlock(&j->lock);
    }
}

/* -- calling ---------------------------------------------------------------------------------------------------- */

static wf_trace *open_trace(weft_jit *j)
{
    wf_trace_owner owner = {.name = j->name,
                            .single_graph = j->single_graph,
                            .freezes = j->freezes,
                            .user = j,
                            .run = run_segment,
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

static void close_trace(weft_jit *j, wf_trace *t)
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

static void count_inlined(weft_jit *j)
{
    pthread_mutex_lock(&j->lock);
    j->stats.inlined++;
    pthread_mutex_unlock(&j->lock);
}

/* Commits what is left; an error is recorded. */
static int finish(weft_jit *j, wf_trace *t, const char *op)
{
    wf_why why;
    why.code = 0;
    why.rule[0] = why.hint[0] = '\0';
    int rc = wf_trace_commit(t, &why);
    if (rc) {
        wf_raise_text(t->c, why.code ? why.code : rc, op, "in '%s': %s%s%s", j->name, why.rule,
                      why.hint[0] ? "; " : "", why.hint);
    }
    return rc;
}

/* Lets the runner know what it may freeze. */
static void describe(weft_jit *j, wf_trace *t, const weft_tensor *in, int n_in,
                     const weft_tensor *out, int n_out, bool grad, freezing *z)
{
    char reason[WF_REASON];
    z->now = wf_frozen_describe(t, in, n_in, out, n_out, grad, z->home, reason);
    t->note = z;
    if (!z->now) {
        pthread_mutex_lock(&j->lock);
        j->stats.refusals++;
        note_reason(j, "not frozen", reason);
        discarded gone = {.n = 0};
        while (j->nwait) { /* two recordings in a row must agree */
            gone.z[gone.n++] = take_waiting(j, 0);
        }
        pthread_mutex_unlock(&j->lock);
        discard(&gone);
    }
}

static void note_call(int64_t start, const weft_jit *j, weft_profile_kind kind, const char *how)
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

weft_status(weft_jit_call)(weft_jit *j, const weft_tensor *in, int n_in, weft_tensor *out,
                           int n_out)
{
    wf_ctx *c = wf_ctx_get();
    int rc = check_call(c, j, in, n_in, out, n_out);
    if (rc) {
        return (weft_status)rc;
    }
    freezing z = {NULL, NULL, 0};
    int64_t start = wf_prof_start();
    if (j->freezes && !c->recorder) {
        wf_frozen_args a;
        wf_frozen *frozen = find_frozen(j, c, in, n_in, n_out, &a, &z.verify);
        if (frozen) {
            rc = run_frozen(j, c, frozen, &a, out, n_out);
            note_call(start, j, WEFT_PROFILE_CALL, "frozen");
            return (weft_status)rc;
        }
    }
    bool grad = wf_grad_enabled(c);
    z.home = c->device;
    wf_trace *t = c->recorder ? NULL : open_trace(j), *all = wf_trace_current(c);
    if (!all) {
        wf_frozen_release(z.verify);
        clear(out, n_out);
        return WEFT_ENOMEM;
    }
    weft_tensor results[8];
    weft_tensor *r = n_out <= 8 ? results : wf_malloc((size_t)n_out * sizeof *r);
    weft_scope sc = weft_scope_begin();
    if (!r || !sc.depth) {
        rc = WEFT_ENOMEM;
        wf_raise_text(c, rc, "jit_call", "out of memory");
    }
    clear(r, r ? n_out : 0); /* in and out may be one array */
    if (!t) {
        count_inlined(j);
    }
    uint32_t floor = all->floor, depth = all->depth;
    all->floor = all->depth = depth + !t;
    rc = rc ? rc : (int)j->fn(j->self, in, n_in, r, n_out);
    int refused = t && !rc ? wf_trace_refusal(t, "jit_call") : 0;
    all->floor = floor;
    all->depth = depth; /* regions that the function left open end with it */
    for (int i = 0; r && !refused && i < n_out; i++) {
        r[i] = r[i].slot < WF_ABSENT_SLOT ? weft_scope_give(sc, r[i]) : r[i];
    }
    weft_scope_end(sc);
    if (t && j->freezes && !rc && !refused) {
        describe(j, t, in, n_in, r, n_out, grad, &z);
    }
    note_call(start, j, WEFT_PROFILE_RECORD, t ? "" : "part of another trace");
    int ran = t ? finish(j, t, "jit_call") : 0;
    ran = refused ? refused : ran;
    wf_frozen_release(z.now);
    wf_frozen_release(z.verify);
    for (int i = 0; i < n_out; i++) {
        out[i] = ran ? (weft_tensor){0, c->id, c->error_last} : r ? r[i] : WEFT_NONE;
    }
    if (t) {
        close_trace(j, t);
    }
    if (r != results) {
        wf_mfree(r);
    }
    c->last_write = WEFT_NONE;
    if (t) {
        note_call(start, j, WEFT_PROFILE_CALL, "recorded");
    }
    return (weft_status)(rc ? rc : ran);
}

weft_status weft_jit_begin(weft_jit *j)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!j) {
        wf_raise_text(c, WEFT_EINVALID, "jit_begin", "the trace is NULL");
        return WEFT_EINVALID;
    }
    if (c->recorder) {
        wf_trace_current(c)->depth++;
        count_inlined(j);
        return WEFT_OK;
    }
    wf_trace *t = open_trace(j);
    if (!t) {
        return WEFT_ENOMEM;
    }
    t->floor = 0;
    t->since = wf_prof_start();
    return WEFT_OK;
}

weft_status(weft_jit_end)(weft_jit *j)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    wf_trace *t = c->recorder ? wf_trace_current(c) : NULL;
    if (!j || !t || t->depth == t->floor || (t->depth == 1 && t->owner.user != j)) {
        wf_raise_text(c, WEFT_EINVALID, "jit_end",
                      "this region was not begun on this thread, or in this call, or has ended");
        return WEFT_EINVALID;
    }
    if (t->depth > 1) {
        t->depth--;
        return WEFT_OK;
    }
    int64_t start = t->since;
    note_call(start, j, WEFT_PROFILE_RECORD, "a region");
    int refused = wf_trace_refusal(t, "jit_end"), rc = finish(j, t, "jit_end");
    close_trace(j, t);
    note_call(start, j, WEFT_PROFILE_CALL, "a region");
    return (weft_status)(refused ? refused : rc);
}

/* -- looking ---------------------------------------------------------------------------------------------------- */

weft_status weft_jit_explain(weft_jit *j, FILE *out)
{
    if (!j || !out) {
        wf_raise_text(wf_ctx_get(), WEFT_EINVALID, "jit_explain", "the trace or the file is NULL");
        return WEFT_EINVALID;
    }
    pthread_mutex_lock(&j->lock);
    const weft_jit_stats *s = &j->stats;
    fprintf(
        out,
        "%s: %lld calls, %lld inlined, %lld segments, %lld breaks, %lld plans built, %lld found, "
        "%lld evicted\n",
        j->name, (long long)s->calls, (long long)s->inlined, (long long)s->segments,
        (long long)s->breaks, (long long)s->plans, (long long)s->hits, (long long)s->evictions);
    if (j->freezes) {
        fprintf(out,
                "  %lld calls replayed, %lld sent to recording by a guard, %lld verified, %lld "
                "thawed\n",
                (long long)atomic_load_explicit(&j->replays, memory_order_relaxed),
                (long long)s->misses, (long long)s->verified, (long long)s->thawed);
    }
    for (int i = 0; i < j->nbreaks; i++) {
        fprintf(out, "  broken %lld times by %s%s%s\n", (long long)j->breaks[i].count,
                j->breaks[i].op, *j->breaks[i].site ? " at " : "", j->breaks[i].site);
    }
    for (int i = 0; i < j->nreasons; i++) {
        fprintf(out, "  %lld times %s\n", (long long)j->reasons[i].count, j->reasons[i].text);
    }
    int rc = ferror(out) ? WEFT_EIO : 0;
    for (int i = 0; i < j->nplans && !rc; i++) {
        fprintf(out, "plan %d\n", i + 1);
        rc = wf_plan_explain(j->plans[i].plan, out);
    }
    pthread_mutex_unlock(&j->lock);
    if (rc) {
        wf_raise_text(wf_ctx_get(), rc, "jit_explain", "the text could not be written");
    }
    return (weft_status)rc;
}
