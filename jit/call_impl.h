/*
 * jit/call_impl.h -- a traced function: what jit/call.c (calls), call_region.c (regions), call_plans.c (its plans), call_frozen.c (frozen
 * calls), call_ways.c (kinds of calls) and call_eager.c (what they run) share. The invariants stand in call.c.
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
#include "weft/profile.h"

enum {
    MAX_PLANS = 256,
    MAX_BREAKS = 32,
    MAX_REASONS = 32,
    MAX_NAME = 64,
    MAX_FROZEN = 64,
    MOST_OF_KIND = 8, /* frozen calls of a kind */
    FROZEN_SETS = 64,
    MAX_WAITING = 64,
    WAY_SETS = 256,
    WAY_LANES = 4,
    FAMILIES = 16,
    REBUILDS = 24,
    DROPPED = 512,
    WF_SEATS = 8,
    WF_KNOWN = 64,        /* a power of 2 */
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
    uint64_t hash, kind; /* key of its wf_call_kind */
    bool lost; /* its plan was built again since: the entry has the numbers of another recording */
} waiting;

/* A frozen call, in the list of its set. */
typedef struct frozen_call {
    wf_frozen *call;
    uint64_t kind, used;
    struct frozen_call *next;
} frozen_call;

enum { WF_TURNS = 256 /* of the trial of regions by turns */ };

/* What can be told of a call before it is made (jit/call_ways.c). */
typedef struct wf_call_kind {
    uint64_t key;   /* never 0; 0: the arguments are not all live tensors */
    uint32_t first; /* wf_first_kind of the first argument */
    bool host;      /* all arguments are the host's */
} wf_call_kind;

/* What else is known of a kind. */
typedef struct wf_way_of {
    uint64_t family; /* stands for all but the extents */
    int64_t volume;  /* elements of all arguments */
    char says[64];   /* the arguments */
} wf_way_of;

/* A kind of calls, and whether they record (jit/call_eager.c). */
typedef struct wf_way {
    _Atomic bool eager;      /* they run the function */
    _Atomic bool trial;      /* the ways are measured now */
    _Atomic int turn;        /* calls of the trial so far */
    _Atomic int64_t left;    /* calls until the next trial */
    _Atomic int64_t best[2]; /* ns of the trial: recorded, plain */
    _Atomic int64_t spent;   /* likewise: of all calls that went the other way than calls do */
    _Atomic int64_t seen;    /* number of the last look at such a call */
    _Atomic bool is_long;    /* recorded calls take more than a millisecond: set once */
    _Atomic bool is_short; /* plain ones so little that a look at their arguments is a part of it */
    _Atomic bool takes_more; /* op by op they take much more memory than recorded */
    _Atomic bool crowded;    /* their plan is dropped and built again and again */
    _Atomic int rebuilt;     /* how often it was since a recording last found it */
    _Atomic uint32_t first;  /* of their wf_call_kind */
    bool settled;     /* under the lock: the plan did in the last trial what it will always do */
    int64_t modelled; /* likewise: what it moves op by op, in percent of what the plan moves */
    int64_t period, ns[2]; /* likewise: calls between trials; best of the last one, 0: none */
    wf_way_of of;          /* likewise */
} wf_way;

/* Kinds of calls whose keys have the same first bits. Never moved, nor freed before the trace. */
typedef struct wf_way_set {
    _Atomic uint64_t key[WAY_LANES]; /* 0: none yet */
    wf_way way[WAY_LANES];
} wf_way_set;

/* Kinds that differ in nothing but extents. */
typedef struct wf_family {
    uint64_t key;   /* 0: none yet */
    int64_t looks;  /* at recorded calls of them, as long as few are known */
    int plain;      /* so many of them in a row were decided to run the function, ... */
    int64_t volume; /* ... of so many elements at most */
    bool is_short;  /* and the last of those are short calls */
} wf_family;

typedef struct wf_seat_arg {
    weft_tensor t;  /* a first argument */
    wf_slot *lends; /* its slot, if it is kept, which never moves; wf_nobody: it is a scope's */
} wf_seat_arg;

/*
 * What a thread may do without a look at all its arguments: `left` calls that run the function (jit/call_eager.c). Written by
 * the owner alone but for `owner`, which is set once, under the lock.
 */
typedef struct wf_seat {
    wf_ctx *_Atomic owner; /* contexts are never freed */
    _Atomic int64_t left, given;
    uint64_t may[4]; /* the first argument is of these wf_first_kinds */
    /* Likewise of regions. */
    _Atomic int64_t regions_left, regions_given;
    wf_slot *region_lends
        [2]; /* what the region of the last look borrowed, if regions are short, or NULL */
    wf_slot *
        second; /* what the call of the last look borrowed beside its first argument, or wf_nobody */
    const wf_way *way; /* of the last look */
    uint32_t steady;   /* looks in a row that found this way */
    char apart[128 - 14 * 8];
    wf_seat_arg known
        [WF_KNOWN]; /* of these kinds, of this thread's: each in its slot's place, where otherwise a slot of
                                    another place stands */
} wf_seat;
_Static_assert(sizeof(wf_seat) % 128 == 0, "lines of its own");

/* It knows no first argument. */
static inline void wf_seat_forget(wf_seat *s)
{
    s->second = &wf_nobody;
    for (uint32_t i = 0; i < WF_KNOWN; i++) {
        s->known[i].t.slot = i + 1;
    }
}

/* Stands for the element type, rank, flags and first extent of a first argument: 0 to 255. */
static inline uint32_t wf_first_kind(const wf_slot *s)
{
    uint32_t type;
    memcpy(&type, &s->dtype, sizeof type);
    const uint64_t extent = s->rank && !s->ext ? (uint64_t)s->dims_[0] : 0;
    return (uint32_t)((type ^ extent * UINT64_C(0x9E3779B97F4A7C15)) *
                          UINT64_C(0xD6E8FEB86659FD93) >>
                      56);
}

/* Is a like a first argument that the seat knows? */
static inline bool wf_seat_fits(const wf_seat *s, const wf_slot *a)
{
    const uint32_t first = wf_first_kind(a);
    return s->may[first >> 6] >> (first & 63) & 1;
}

/* A call of a kind. */
typedef struct wf_turn {
    wf_call_kind kind;
    wf_way *way;   /* NULL: nothing is chosen */
    int64_t start; /* 0: it is not timed */
} wf_turn;

/* Regions that record another graph by turns (jit/call_region.c). */
typedef struct wf_mixed {
    _Atomic bool on;         /* they have one way for all; set once */
    int64_t changes;         /* under the lock: how often the graph was another one, lately */
    int n[2];                /* likewise, of the trial: regions recorded and plain, ... */
    int32_t ns[2][WF_TURNS]; /* ... and their times */
} wf_mixed;

/* Why a plan was built (jit/explain.c). */
typedef struct rebuild {
    int64_t segment; /* its number */
    char text[160];
} rebuild;

struct weft_jit {
    weft_jit_fn fn;
    void *self;
    char name[MAX_NAME];
    bool single_graph, no_fuse, synchronous, fast_math, freezes;
    bool adapts;  /* its calls and regions may run what they record instead */
    bool tier0;   /* plans stay on the tile interpreter: set by benchmarks, before the first call */
    bool forgets; /* WEFT_STRESS=evict: no plan is found again */
    int max_plans, max_frozen, verify_every;
    pthread_mutex_t lock;
    entry *plans; /* in no order: recordings differ in few plans, and the hash decides at once */
    int nplans, capplans, latest; /* the plan that was hit last */
    uint64_t clock;
    wf_trace **idle;
    int nidle, capidle;
    weft_jit_stats stats;    /* but for `frozen` */
    _Atomic int64_t replays; /* of frozen calls: counted without the lock */
    _Atomic int64_t eager;   /* calls that ran the function, but for those of seats: likewise */
    _Atomic int64_t looks;   /* calls whose kind was looked up */
    wf_way region;           /* of its regions, as long as they record the same graph: ... */
    uint64_t region_hash;    /* ... of this hash */
    int64_t
        region_looks; /* under the lock: plain regions until one is recorded to be compared, in hundreds */
    int64_t region_period;              /* likewise: as it began */
    wf_mixed mixed;                     /* of regions by turns */
    wf_way_set *_Atomic ways[WAY_SETS]; /* NULL: none yet */
    wf_family families[FAMILIES];
    int latest_family;
    _Atomic uint64_t shut
        [4]; /* wf_first_kinds that lately belonged to a call that does not just run the function */
    wf_seat seat[WF_SEATS]; /* the first ones have an owner */
    weft_jit_break breaks[MAX_BREAKS];
    int nbreaks;
    weft_jit_reason reasons[MAX_REASONS];
    int nreasons;
    rebuild rebuilds[REBUILDS]; /* of plan i: i % REBUILDS */
    uint64_t dropped[DROPPED];  /* hashes of plans dropped at the limit, each in its place */
    uint64_t crowded; /* up to this clock few plans leave: some were built that had been dropped */
    bool warned;      /* of that */
    frozen_call
        *frozen[FROZEN_SETS]; /* of a kind, the one that was added or hit last comes first */
    frozen_call *recent;      /* the one that was added or hit last; NULL: it has gone */
    _Atomic int nfrozen;
    uint64_t frozen_clock;
    unsigned swept;            /* the set that was last looked through for dead calls */
    waiting wait[MAX_WAITING]; /* by arguments and by hash each a single one; the newest first */
    int nwait;
    uint64_t lot; /* which of them goes where there are too many */
};

/* Is told of every graph of a call before it is run (jit/call_table.c). */
typedef struct wf_call_watch {
    void (*graph)(struct wf_call_watch *w, const weft_jit *j, const wf_job *job);
} wf_call_watch;

/* A call that may be frozen. */
typedef struct freezing {
    wf_call_watch *watch; /* or NULL; such a call is not */
    wf_frozen *now;       /* describes this recording; NULL: it cannot be frozen */
    wf_frozen *verify;    /* to be compared with it, or NULL */
    wf_frozen_start start;
    uint64_t kind; /* of wf_call_kind */
    wf_way *way;   /* of the call, or NULL */
    bool described;
    bool seen; /* it has been compared with others: its graph was run */
} freezing;

/* Called with the lock. */
void wf_call_note_reason(weft_jit *j, const char *what, const char *reason);
void wf_call_entry_free(entry *e);
/* A plan is being added for a recording of that hash: why, against those that are there. stats.plans counts it. */
void wf_call_note_build(weft_jit *j, uint64_t hash, const wf_job *job);
void wf_call_note_drop(weft_jit *j, uint64_t hash);
bool wf_call_was_dropped(const weft_jit *j, uint64_t hash);
/* An entry of that hash is made. Called with the lock. */
void wf_call_lose_numbers(weft_jit *j, uint64_t hash);
/* A plan has run, of a call that has been described. known: it had been built before. */
void wf_call_consider(weft_jit *j, uint64_t hash, wf_job *job, wf_plan *p, bool known);
/* Called with the lock. */
entry *wf_call_find_entry(weft_jit *j, uint64_t hash, const wf_job *job);
void wf_call_free_frozen(weft_jit *j);
/* A frozen call whose guards pass, retained, with the arguments of this call in *a, which the caller closes. z->verify:
 * one that is due to be checked instead. Both NULL: a is closed. z->kind: 0, or what the call is known to be. */
wf_frozen *wf_call_find_frozen(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, int n_out,
                               wf_frozen_args *a, freezing *z);
/* What a call that is to be recorded begins with. */
void wf_call_start(weft_jit *j, wf_ctx *c, freezing *z);
/* This call cannot be frozen; two recordings in a row must agree, so those that wait wait no more. */
void wf_call_not_frozen(weft_jit *j, const char *reason);
/* The same of something that is never frozen, and says nothing about the function. */
void wf_call_never_frozen(weft_jit *j, const char *reason);
/* Replays z on a, and gives both back. */
int wf_call_run_frozen(weft_jit *j, wf_ctx *c, wf_frozen *z, wf_frozen_args *a, weft_tensor *out,
                       int n_out);
/* -- a call, a region (jit/call.c, jit/call_region.c) ----------------------------------------------------------------- */

wf_trace *wf_call_open_trace(weft_jit *j); /* NULL with an error recorded */
void wf_call_close_trace(weft_jit *j, wf_trace *t);
void wf_call_count_inlined(weft_jit *j);
/* Commits what is left; an error is recorded. */
int wf_call_finish(weft_jit *j, wf_trace *t, const char *op);
/* A span of a profile, if one was being taken at `start`. */
void wf_call_note(int64_t start, const weft_jit *j, weft_profile_kind kind, const char *how);
/* Ends the thread's regions but for the first so many plain ones. 0 or the first status of an end. */
int wf_call_end_regions(wf_ctx *c, uint32_t plain);
/* weft_jit_call, recorded whatever the function's ways are. */
weft_status wf_call_watched(weft_jit *j, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out, wf_call_watch *watch);
/* Runs a recorded segment by its plan, made now if there is none; user: the weft_jit. */
int wf_call_run_segment(void *user, wf_job *job, wf_why *why);

/* The straight way of a call that a seat has paid for, in the caller's own scope, which was empty, has come to another end than its one result: with
 * rc, and errors since `errors`. */
WF_COLD int wf_call_end(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *r,
                        int rc, uint64_t errors, uint32_t scope);
/* The thread's seat; NULL: it has none. */
wf_seat *wf_seat_of(weft_jit *j, const wf_ctx *c);
/* And a new one where it has none; NULL: others have them all. */
wf_seat *wf_seat_take(weft_jit *j, wf_ctx *c);
/* Calls that ran the function. */
int64_t wf_call_count_eager(const weft_jit *j);

/* -- kinds of calls (jit/call_ways.c) ------------------------------------------------------------------------------ */

void wf_call_kind_of(wf_ctx *c, const weft_tensor *in, int n_in, int n_out, wf_call_kind *k);
/* Its key from arguments that are held. */
uint64_t wf_call_kind_of_slots(const wf_ctx *c, wf_slot *const *s, int n_in, int n_out);
/* Its way, a new one if there is none; NULL: there is no memory. */
wf_way *wf_way_find(weft_jit *j, wf_ctx *c, const wf_call_kind *k, const weft_tensor *in, int n_in,
                    int n_out);
/* As of a kind that nothing is known of. */
void wf_way_reset(wf_way *w);
/* A way has been decided. Called with the lock. */
void wf_way_note_choice(weft_jit *j, const wf_way *w);
/* Which first arguments belong to calls that do not just run the function, of those since `now` - `recent`. Called with the lock. */
void wf_ways_shut(weft_jit *j, int64_t now, int64_t recent);
void wf_ways_free(weft_jit *j);

/* May calls of such a trace run the function itself? */
bool wf_call_may_run_eagerly(const weft_jit_args *a);
/* Is this call, or region, to run plainly? *timed: it is part of a trial. */
bool wf_way_choose(weft_jit *j, wf_way *w, bool *timed);
/* It has, since `start` (0: not timed) and errors since `errors`: 0 or the status of a kernel that failed untold. */
int wf_way_ran_plainly(weft_jit *j, wf_ctx *c, wf_way *w, int64_t start, uint64_t errors);
/* Runs the function if that is this call's way, or its turn: true, with the status in *rc. Else the call is to be recorded,
 * and *t given to wf_call_recorded. */
bool wf_call_eagerly(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, weft_tensor *out,
                     int n_out, wf_turn *t, int *rc);
/* The call has been recorded or replayed and run, on a device; rc: its status. p: the plan of a replay, or NULL. */
void wf_call_recorded(weft_jit *j, const wf_turn *t, int device, const wf_plan *p, int rc);
/* The plan of a call of this kind was found, or built again after it had been dropped. */
void wf_call_note_plan(wf_way *w, bool again);
/* Called with the lock. */
void wf_call_explain_ways(weft_jit *j, FILE *out);

#endif
