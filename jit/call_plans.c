/*
 * jit/call_plans.c -- the plans of a traced function, found by the recording, and its calls that are frozen.
 *
 * Invariants: those of jit/call.c. What leaves a list under the lock is released after it.
 */
#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"
#include "jit/call_impl.h"
#include "jit/key.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

void wf_call_note_reason(weft_jit *j, const char *what, const char *reason)
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

void wf_call_entry_free(entry *e)
{
    wf_fn_free(e->fn);
    wf_mfree(e->writes);
    wf_plan_release(e->plan);
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
    if (j->forgets) {
        *hash = wf_key_hash(job->fn, job->writes);
        return NULL;
    }
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
        wf_call_note_drop(j, old->hash);
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
    wf_call_note_build(j, hash, job);
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
    wf_call_entry_free(&gone);
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
    atomic_store_explicit(&j->froze, true, memory_order_relaxed);
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

void wf_call_never_frozen(weft_jit *j, const char *reason)
{
    pthread_mutex_lock(&j->lock);
    wf_call_note_reason(j, "not frozen", reason);
    pthread_mutex_unlock(&j->lock);
}

void wf_call_not_frozen(weft_jit *j, const char *reason)
{
    discarded gone = {.n = 0};
    pthread_mutex_lock(&j->lock);
    j->stats.refusals++;
    wf_call_note_reason(j, "not frozen", reason);
    while (j->nwait) {
        gone.z[gone.n++] = take_waiting(j, 0);
    }
    pthread_mutex_unlock(&j->lock);
    discard(&gone);
}

/* z waits for the next call with such arguments. Of a hash one waits: its entry keeps one recording's numbers. */
static void wait_for_next(weft_jit *j, uint64_t hash, wf_frozen *z, discarded *gone)
{
    char reason[WF_REASON];
    for (int i = j->nwait; i-- > 0;) {
        if (j->wait[i].hash == hash || wf_frozen_same_arguments(j->wait[i].call, z, reason)) {
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
    char reason[WF_REASON], other[WF_REASON];
    int i = j->nwait;
    while (i > 0 && !wf_frozen_same_arguments(j->wait[i - 1].call, z->now, other)) {
        i--; /* the reason that stays is what the newest one differs in */
    }
    const bool before = i-- > 0;
    bool same = before && e && j->wait[i].hash == hash;
    if (before && !same) {
        snprintf(reason, sizeof reason, "%s",
                 j->wait[i].hash == hash ? "its plan has been dropped"
                                         : "the graph is another than before");
    }
    same = same && wf_frozen_agree(j->wait[i].call, e->fn, z->now, job->fn, reason);
    wf_fn *next = same ? wf_fn_new(j->name) : NULL;
    if (next) {
        wf_frozen_arm(z->now, j->wait[i].call, job->fn, job->writes, p);
        gone->z[gone->n++] = add_frozen(j, z->now);
        gone->z[gone->n++] = take_waiting(j, i); /* it has served, and holds captured tensors */
        job->fn = next;
    } else {
        if (before) {
            j->stats.refusals++;
            wf_call_note_reason(j, "not frozen", same ? "there is no memory" : reason);
        } else if (j->nwait) {
            wf_call_note_reason(j, "recorded to be compared with the next such call", other);
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
    z->seen = true;
    pthread_mutex_lock(&j->lock);
    if (z->verify) {
        j->stats.verified++;
        /* a structure that the cache did not know is another one, and the recording is the cache's by now */
        if (!known || !z->now || !wf_frozen_same(z->verify, z->now, job->fn, job->writes, reason)) {
            j->stats.thawed++;
            wf_call_note_reason(j, "thawed",
                                known ? reason : "the function records other ops than it did");
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

wf_frozen *wf_call_find_frozen(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, int n_out,
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
        wf_call_note_reason(j, "guard", reason);
        pthread_mutex_unlock(&j->lock);
    }
    return NULL;
}

void wf_call_start(weft_jit *j, wf_ctx *c, const wf_frozen *verify, wf_frozen_start *start)
{
    wf_frozen *list[MAX_WAITING];
    wf_frozen_start_now(start, c);
    if (verify) { /* first: there is room for so many generators */
        wf_frozen_start_add(start, verify, c);
    }
    pthread_mutex_lock(&j->lock);
    const int n = j->nwait;
    for (int i = 0; i < n; i++) {
        list[i] = j->wait[i].call;
        wf_frozen_retain(list[i]);
    }
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < n; i++) {
        wf_frozen_start_add(start, list[i], c);
        wf_frozen_release(list[i]);
    }
}

int wf_call_run_frozen(weft_jit *j, wf_ctx *c, wf_frozen *z, wf_frozen_args *a, weft_tensor *out,
                       int n_out)
{
    wf_why why;
    wf_frozen_how how;
    wf_why_clear(&why);
    int rc = wf_frozen_run(z, a, out, &how, &why);
    wf_frozen_close(a);
    wf_frozen_release(z);
    if (how.captured || how.reason[0]) {
        pthread_mutex_lock(&j->lock);
        j->stats.captured += how.captured;
        if (how.reason[0]) {
            wf_call_note_reason(j, "not captured", how.reason);
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

int wf_call_run_segment(void *user, wf_job *job, wf_why *why)
{
    weft_jit *j = user;
    uint64_t hash;
    wf_plan *p = lookup(j, &hash, job);
    bool known = p != NULL;
    if (!p) {
        wf_plan_opts o = {
            .flags = (j->no_fuse ? WF_PLAN_NO_FUSE : 0) | (j->synchronous ? WF_PLAN_SYNC : 0) |
                     (j->fast_math ? WF_PLAN_FAST : 0) | (job->device ? WF_PLAN_DEVICE : 0),
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
    wf_plan_args a = {.fn = job->fn,
                      .in = job->in,
                      .out = job->out,
                      .back = wf_job_back,
                      .drop = wf_job_drop,
                      .user = job,
                      .device = job->device,
                      .began = job->began};
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
