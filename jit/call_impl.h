/*
 * jit/call_impl.h -- a traced function: what jit/call.c (the interface) and jit/call_plans.c (its plans and frozen calls)
 * share. The invariants stand in call.c.
 */
#ifndef JIT_CALL_IMPL_H
#define JIT_CALL_IMPL_H

#include <pthread.h>

#include "jit/frozen.h"
#include "jit/plan.h"
#include "jit/trace.h"
#include "weft/jit.h"

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
    bool seen;         /* it has been compared with others: its graph was run */
} freezing;

/* Called with the lock. */
void wf_call_note_reason(weft_jit *j, const char *what, const char *reason);
void wf_call_entry_free(entry *e);
/* A frozen call whose guards pass, retained, with the arguments of this call in *a, which the caller closes. *verify:
 * one that is due to be checked instead. Both NULL: a is closed. */
wf_frozen *wf_call_find_frozen(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, int n_out,
                               wf_frozen_args *a, wf_frozen **verify);
/* This call cannot be frozen; two recordings in a row must agree, so those that wait wait no more. */
void wf_call_not_frozen(weft_jit *j, const char *reason);
/* The same of something that is never frozen, and says nothing about the function. */
void wf_call_never_frozen(weft_jit *j, const char *reason);
/* Replays z on a, and gives both back. */
int wf_call_run_frozen(weft_jit *j, wf_ctx *c, wf_frozen *z, wf_frozen_args *a, weft_tensor *out,
                       int n_out);
/* Runs a recorded segment by its plan, made now if there is none; user: the weft_jit. */
int wf_call_run_segment(void *user, wf_job *job, wf_why *why);

#endif
