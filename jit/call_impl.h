/*
 * jit/call_impl.h -- a traced function: what jit/call.c (the interface) and jit/call_plans.c (its plans and frozen calls)
 * share. The invariants stand in call.c.
 */
#ifndef JIT_CALL_IMPL_H
#define JIT_CALL_IMPL_H

#include <pthread.h>
#include <string.h>

#include "eager/borrow.h"
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
    MAX_WAYS = 12,
    REBUILDS = 24,
    DROPPED = 64,
    WF_SEATS = 8,
    WF_EAGER_RESULTS = 8, /* calls of more results are recorded */
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

/* A kind of calls, and whether they record (jit/call_eager.c). */
typedef struct wf_way {
    _Atomic uint64_t key;    /* 0: none yet */
    _Atomic bool eager;      /* they run the function */
    _Atomic bool trial;      /* the ways are measured now */
    _Atomic int turn;        /* calls of the trial so far */
    _Atomic int64_t left;    /* calls until the next trial */
    _Atomic int64_t best[2]; /* ns of the trial: recorded, plain */
    _Atomic int64_t seen;    /* number of the last look at such a call */
    _Atomic bool is_long;    /* recorded calls take more than a millisecond: set once */
    _Atomic bool is_short; /* plain ones so little that a look at their arguments is a part of it */
    _Atomic bool takes_more; /* op by op they take much more memory than recorded */
    bool settled;     /* under the lock: the plan did in the last trial what it will always do */
    int64_t modelled; /* likewise: what it moves op by op, in percent of what the plan moves */
    int64_t period, ns[2]; /* likewise: calls between trials; best of the last one, 0: none */
    char says[64];         /* the arguments */
} wf_way;

/*
 * What a thread may do without a look at all its arguments: `left` calls that run the function (jit/call_eager.c). Written by
 * the owner alone but for `owner`, which is set once, under the lock.
 */
typedef struct wf_seat {
    wf_ctx *_Atomic owner; /* contexts are never freed */
    _Atomic int64_t left, given;
    uint64_t mask;     /* not 0: the first argument has a first extent, ... */
    int64_t extent;    /* ... this one */
    uint32_t type;     /* of it: wf_seat_type */
    bool kept;         /* it was kept by this thread: ... */
    wf_slot *slot;     /* ... here, ... */
    weft_tensor first; /* ... this one */
    char apart[128 - 9 * 8];
} wf_seat;
_Static_assert(sizeof(wf_seat) == 128, "lines of its own");

/* What a tensor is like, in a word: its element type, rank, flags. */
static inline uint32_t wf_seat_type(const wf_slot *s)
{
    uint32_t type;
    memcpy(&type, &s->dtype, sizeof type);
    return type;
}

/* Is a like the first argument that the seat knows? */
static inline bool wf_seat_fits(const wf_seat *s, const wf_slot *a)
{
    return ((wf_seat_type(a) ^ s->type) | ((uint64_t)(a->dims_[0] ^ s->extent) & s->mask)) == 0;
}

/* A call of a kind. */
typedef struct wf_turn {
    wf_way *way;   /* NULL: nothing is chosen */
    int64_t start; /* 0: it is not timed */
} wf_turn;

/* Why a plan was built (jit/explain.c). */
typedef struct rebuild {
    int64_t segment; /* its number */
    char text[160];
} rebuild;

struct weft_jit {
    weft_jit_fn fn;
    void *self;
    char name[MAX_NAME];
    bool single_graph, no_fuse, synchronous, fast_math, freezes, adapts;
    bool forgets; /* WEFT_STRESS=evict: no plan is found again */
    int max_plans, verify_every;
    pthread_mutex_t lock;
    entry *plans; /* in no order: recordings differ in few plans, and the hash decides at once */
    int nplans, capplans, latest; /* the plan that was hit last */
    uint64_t clock;
    wf_trace **idle;
    int nidle, capidle;
    weft_jit_stats stats;    /* but for `frozen` */
    _Atomic int64_t replays; /* of frozen calls: counted without the lock */
    _Atomic int64_t eager;   /* calls that ran the function, but for those of seats: likewise */
    _Atomic bool froze;      /* some call has been frozen */
    _Atomic int64_t looks;   /* calls whose kind was looked up */
    wf_way ways[MAX_WAYS];   /* the first ones have a key */
    wf_seat seat[WF_SEATS];  /* the first ones have an owner */
    weft_jit_break breaks[MAX_BREAKS];
    int nbreaks;
    weft_jit_reason reasons[MAX_REASONS];
    int nreasons;
    rebuild rebuilds[REBUILDS]; /* of plan i: i % REBUILDS */
    uint64_t dropped[DROPPED];  /* hashes of plans dropped at the limit */
    int ndropped;
    wf_frozen *frozen[MAX_FROZEN]; /* the newest first */
    int nfrozen;
    waiting wait[MAX_WAITING]; /* by arguments and by hash each a single one; the newest first */
    int nwait;
};

/* A call that may be frozen. */
typedef struct freezing {
    wf_frozen *now;    /* describes this recording; NULL: it cannot be frozen */
    wf_frozen *verify; /* to be compared with it, or NULL */
    wf_frozen_start start;
    bool seen; /* it has been compared with others: its graph was run */
} freezing;

/* Called with the lock. */
void wf_call_note_reason(weft_jit *j, const char *what, const char *reason);
void wf_call_entry_free(entry *e);
/* A plan is being added for a recording of that hash: why, against those that are there. stats.plans counts it. */
void wf_call_note_build(weft_jit *j, uint64_t hash, const wf_job *job);
void wf_call_note_drop(weft_jit *j, uint64_t hash);
/* A frozen call whose guards pass, retained, with the arguments of this call in *a, which the caller closes. *verify:
 * one that is due to be checked instead. Both NULL: a is closed. */
wf_frozen *wf_call_find_frozen(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, int n_out,
                               wf_frozen_args *a, wf_frozen **verify);
/* What a call that is to be recorded begins with; verify: as above. */
void wf_call_start(weft_jit *j, wf_ctx *c, const wf_frozen *verify, wf_frozen_start *start);
/* This call cannot be frozen; two recordings in a row must agree, so those that wait wait no more. */
void wf_call_not_frozen(weft_jit *j, const char *reason);
/* The same of something that is never frozen, and says nothing about the function. */
void wf_call_never_frozen(weft_jit *j, const char *reason);
/* Replays z on a, and gives both back. */
int wf_call_run_frozen(weft_jit *j, wf_ctx *c, wf_frozen *z, wf_frozen_args *a, weft_tensor *out,
                       int n_out);
/* Runs a recorded segment by its plan, made now if there is none; user: the weft_jit. */
int wf_call_run_segment(void *user, wf_job *job, wf_why *why);

/* The straight way of a call that a seat has paid for, in the caller's own scope, which was empty, has come to another end than its one result: with
 * rc, and errors since `errors`. */
WF_COLD int wf_call_end(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *r,
                        int rc, uint64_t errors, uint32_t scope);
/* Calls that ran the function. */
int64_t wf_call_count_eager(const weft_jit *j);

/* May calls of such a trace run the function itself? */
bool wf_call_may_run_eagerly(const weft_jit_args *a);
/* Runs the function if that is this call's way, or its turn: true, with the status in *rc. Else the call is to be recorded,
 * and *t given to wf_call_recorded. */
bool wf_call_eagerly(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *out,
                     int n_out, wf_turn *t, int *rc);
/* The call has been recorded and run, on a device; rc: its status. */
void wf_call_recorded(weft_jit *j, const wf_turn *t, int device, int rc);
/* Called with the lock. */
void wf_call_explain_ways(weft_jit *j, FILE *out);

#endif
