/*
 * jit/call_plans.c -- the plans of a traced function, found by the recording.
 *
 * Invariants: those of jit/call.c. What leaves a list under the lock is released after it.
 */
#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/env.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "jit/call_impl.h"
#include "jit/kernels.h"
#include "jit/key.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { LATELY = 4, STAYS = 8 }; /* uses of plans, times max_plans */

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

entry *wf_call_find_entry(weft_jit *j, uint64_t hash, const wf_job *job)
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
    e = wf_call_find_entry(j, *hash, job);
    p = e ? hit(j, e, job) : NULL;
    pthread_mutex_unlock(&j->lock);
    return p;
}

/* Room for one more plan, the least recently used one leaving to *gone when there are max_plans. NULL: there is no memory, or
 * plans that were dropped are built again, and all that are there have been used lately: those go on working. Called with
 * the lock. */
static entry *place(weft_jit *j, uint64_t hash, entry *gone)
{
    if (j->nplans >= j->max_plans) {
        entry *old = &j->plans[0];
        for (int i = 1; i < j->nplans; i++) {
            old = j->plans[i].used < old->used ? &j->plans[i] : old;
        }
        j->stats.evictions++;
        if (j->clock < j->crowded && j->clock - old->used < LATELY * (uint64_t)j->max_plans) {
            wf_call_note_drop(j, hash);
            return NULL;
        }
        *gone = *old;
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

/* A plan is built that had been dropped. Called with the lock. */
static void note_crowd(weft_jit *j)
{
    char text[128];
    j->crowded = j->clock + STAYS * (uint64_t)j->max_plans;
    snprintf(text, sizeof text,
             "more kinds of graphs are in use than max_plans = %d plans: some are built again",
             j->max_plans);
    wf_call_note_reason(j, "plans", text);
    if (!j->warned) {
        j->warned = true;
        wf_prof_mark("max_plans", j->name, NULL);
        if (wf_env_debug(WF_DEBUG_COMPILE)) {
            fprintf(stderr, "weft: '%s': %s\n", j->name, text);
        }
    }
}

/* The cache takes the recording over: the trace gets another. Not being remembered is no failure. True: it had been dropped. */
static bool remember(weft_jit *j, uint64_t hash, wf_job *job, wf_plan *p)
{
    size_t bytes = job->fn->noutputs * sizeof *job->writes;
    int32_t *writes = wf_malloc(bytes ? bytes : 1);
    wf_fn *next = wf_fn_new(j->name);
    entry gone = {0};
    pthread_mutex_lock(&j->lock);
    j->stats.plans++;
    j->clock++;
    wf_call_note_build(j, hash, job);
    const bool again = wf_call_was_dropped(j, hash);
    if (again) {
        note_crowd(j);
    }
    entry *e = writes && next ? place(j, hash, &gone) : NULL;
    if (e) {
        memcpy(writes, job->writes, bytes);
        *e = (entry){hash, j->clock, job->device, job->fn, writes, p};
        wf_call_lose_numbers(j, hash);
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
    return again;
}

/* -- running ------------------------------------------------------------------------------------------------- */

int wf_call_run_segment(void *user, wf_job *job, wf_why *why)
{
    weft_jit *j = user;
    const freezing *z = job->note;
    uint64_t hash;
    if (__builtin_expect(z && z->watch, 0)) {
        z->watch->graph(z->watch, j, job);
    }
    wf_plan *p = lookup(j, &hash, job);
    bool known = p != NULL;
    wf_jitk_first first;
    if (!p) {
        wf_jitk_first_begin(&first);
        wf_plan_opts o = {
            .flags = (j->no_fuse ? WF_PLAN_NO_FUSE : 0) | (j->synchronous ? WF_PLAN_SYNC : 0) |
                     (j->fast_math ? WF_PLAN_FAST : 0) | (j->tier0 ? WF_PLAN_TIER0 : 0) |
                     (job->device ? WF_PLAN_DEVICE : 0),
            .writes = job->writes};
        p = wf_plan_build(job->fn, &o, why);
    }
    if (!p) {
        wf_jitk_first_end(&first);
        return why->code;
    }
    if (!known) {
        pthread_mutex_lock(&j->lock);
        count_segment(j, job->fn, p);
        pthread_mutex_unlock(&j->lock);
    }
    job->kept = known && !job->device ? wf_plan_results(p) : NULL;
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
    if (!known) {
        wf_jitk_first_end(&first);
    }
    job->failed_op = a.failed_op;
    job->failed_site = a.failed_site;
    const bool described = !rc && z && z->described, verifies = described && z->verify;
    if (verifies) { /* now: the cache takes the recording, of a plan that it does not know */
        wf_call_consider(j, hash, job, p, known);
    }
    const bool again = !known && remember(j, hash, job, p);
    if (z && z->way && (known || again)) {
        wf_call_note_plan(z->way, again);
    }
    if (described && !verifies) {
        wf_call_consider(j, hash, job, p, known);
    }
    wf_plan_release(p);
    return rc;
}
