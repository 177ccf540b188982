/*
 * eager/cuda/plans.c -- tables of plans; see plans.h.
 */
#include "eager/cuda/plans.h"

#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/timeline.h"
#include "eager/env.h"
#include "jit/ir/mix.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

static const wf_cuda_store *_Atomic store;
static const char *_Atomic last_refused;

const char *wf_cuda_last_refused(void)
{
    return atomic_load(&last_refused);
}

void wf_cuda_set_store(const wf_cuda_store *s)
{
    atomic_store(&store, s);
}

const wf_cuda_store *wf_cuda_get_store(void)
{
    return atomic_load(&store);
}

int wf_cuda_not_here(wf_why *why)
{
    if (why) {
        memset(why, 0, sizeof *why);
    }
    return WEFT_EUNSUPPORTED;
}

void wf_cuda_plans_drop(wf_cuda_plans *t)
{
    for (int i = 0; i < WF_CUDA_PLAN_BUCKETS; i++) {
        while (t->bucket[i]) {
            wf_cuda_plan *p = t->bucket[i];
            t->bucket[i] = p->next;
            t->drop(p);
            wf_mfree(p);
        }
    }
    t->n = 0;
}

static unsigned hash(const void *key, size_t size)
{
    uint64_t h = 0;
    for (size_t i = 0; i < size; i += sizeof h) {
        uint64_t word;
        memcpy(&word, (const char *)key + i, sizeof word);
        h = wf_mix(h, word);
    }
    return (unsigned)(h % WF_CUDA_PLAN_BUCKETS);
}

/* Nothing is wrong with the result, but it comes from a kernel that may be slower: seen in the counters, by weft_doctor and with
 * WEFT_DEBUG. status 0: it was not called. */
static void note_refusal(const wf_cuda_ask *a, int status)
{
    WF_CUDA_COUNT(refused, 1);
    atomic_store(&last_refused, a->what);
    if (!wf_env_debug(WF_DEBUG_COMPILE)) {
        return;
    }
    if (status) {
        fprintf(stderr, "weft: %s failed with status %d: another way is taken\n", a->what, status);
    } else {
        fprintf(stderr, "weft: %s: the library has nothing for it, another way is taken\n",
                a->what);
    }
}

/* Lock held. NULL: no host memory, or no room. */
static wf_cuda_plan *plan_of(wf_cuda_plans *t, const wf_cuda_ask *a)
{
    const unsigned h = hash(a->key, t->key_size);
    for (wf_cuda_plan *p = t->bucket[h]; p; p = p->next) {
        if (memcmp(p + 1, a->key, t->key_size) == 0) {
            return p;
        }
    }
    if (t->n == t->most && t->keep) {
        return NULL;
    }
    if (t->n == t->most) {
        wf_cuda_plans_drop(t);
    }
    wf_cuda_plan *p = wf_calloc(1, t->size);
    if (p) {
        memcpy(p + 1, a->key, t->key_size);
        p->refused = !a->make(p, a->arg, SIZE_MAX);
        if (p->refused) {
            note_refusal(a, 0);
        }
        p->next = t->bucket[h];
        t->bucket[h] = p;
        t->n++;
        atomic_fetch_add(t->made, 1);
    }
    return p;
}

/* Memory for a call. Where there is none, and no call has given results yet, the plan becomes one that needs less, or is
 * refused. Lock held; a status. */
static int room_for(wf_cuda_plans *t, wf_cuda_plan *p, const wf_cuda_ask *a,
                    const wf_cuda_stream *s, wf_cuda_block **out, wf_why *why)
{
    while (!p->refused && p->workspace) {
        const size_t size = p->workspace;
        *out = wf_cuda_alloc(s->device->ordinal, size, why);
        if (*out || wf_cuda_code(why) != WEFT_ENOMEM || p->proven || s->capture) {
            return *out ? 0 : wf_cuda_code(why);
        }
        wf_cuda_plan *next = p->next;
        t->drop(p);
        memset(p, 0, t->size);
        p->next = next;
        memcpy(p + 1, a->key, t->key_size);
        p->refused = !a->make(p, a->arg, size / 4) || p->workspace >= size;
        if (p->refused) {
            note_refusal(a, 0);
        }
        wf_cuda_not_here(why); /* what was said of memory */
    }
    return 0;
}

int wf_cuda_plans_run(wf_cuda_plans *t, const wf_cuda_ask *a, wf_cuda_stream *s, wf_why *why)
{
    wf_cuda_block *workspace = NULL;
    int r = 0, code = 0;
    pthread_mutex_lock(t->lock);
    wf_cuda_plan *p = plan_of(t, a);
    if (p) {
        code = room_for(t, p, a, s, &workspace, why);
    }
    const bool there = p && !p->refused;
    if (there && !code) {
        wf_cuda_time_begin(s);
        r = a->call(p, a->arg, workspace ? workspace->address : NULL, s);
        /* A library may offer what it then cannot do. Before a plan has given results another way may still be taken; if it is
         * the device that broke, the next call says so. */
        p->refused = r != 0 && (a->refuses(r) || (!p->proven && !s->capture));
        p->proven |= r == 0;
        if (p->refused) {
            note_refusal(a, r);
        }
    }
    const bool refused = !there || p->refused;
    pthread_mutex_unlock(t->lock);
    if (!code && refused) {
        code = wf_cuda_not_here(why);
    } else if (!code && r == 0) {
        wf_cuda_launched(s, a->what);
    } else if (!code) {
        code = wf_fail(why, WEFT_EUNSUPPORTED, "%s failed with status %d on cuda:%d", a->what, r,
                       s->device->ordinal);
        wf_hint(why, "%s", a->remedy);
    }
    wf_cuda_free(workspace); /* in stream order: behind the call */
    return code;
}
