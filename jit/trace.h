/*
 * jit/trace.h -- recording as virtual execution: ops run as always, only their kernels are put off.
 *
 * While a trace is open on a thread, dispatch checks, promotes, makes views and handles, bumps versions and
 * appends to the tape exactly as it does without one; results get virtual storages (eager/tensor.h) and the
 * op itself goes into an IR function. Because the tape sees ordinary slots, backward, hooks, optimisers and
 * random generators need nothing of their own.
 *
 * The function is about storages, not handles. Every storage has one current SSA value, all of its elements
 * in row-major order. A slot reads that value through its index map; a write in place makes a new one,
 * UPDATE(old, new; map), or the new elements themselves when the map is the whole storage. Storages from
 * outside become inputs, once, when they are first touched, whole. So aliases are right by construction.
 *
 * A commit ends a segment: everything that is still reachable (handles, saved values of the tape, gradients)
 * is an output, storages from outside whose value changed are written back, a runner computes all of it, and
 * virtual storages become ordinary ones. A read in the middle of a trace is a commit with a new segment after
 * it.
 *
 * Invariants: recording appends, no folding, no merging; what is recorded is what dispatch would have done,
 * casts of promotion included; one thread, one trace (an inner one is part of the outer one); if a runner
 * fails, storages without a value are marked broken and name the op that failed.
 */
#ifndef JIT_TRACE_H
#define JIT_TRACE_H

#include "eager/tensor.h"
#include "jit/ir/ir.h"

/* A storage from outside; number k is input k of the function. */
typedef struct wf_outer {
    wf_storage *st; /* referenced, and counted in its `held` */
    wf_val value;   /* current */
    bool written;
    uint64_t broken;    /* the storage's, before any write was recorded */
    weft_tensor handle; /* kept, only where captured tensors are asked for */
    /* Only where a frozen call may come of it. */
    weft_tensor first; /* through which it was first used */
    uint32_t version;  /* then */
    bool mixed;        /* other kept handles were used, too */
} wf_outer;

/* A note on a kept tensor, which other threads see: what record_int.h says of slots' own. */
enum { WF_KEPT_NOTES = 32 };
typedef struct wf_kept_note {
    const wf_slot *slot;
    const wf_storage *st;
    uint64_t serial; /* of the handle */
    uint32_t noted, seen_base, seen;
} wf_kept_note;

/* What a call does to a gradient, where a frozen call may come of it. */
typedef struct wf_leaf {
    wf_meta *meta; /* referenced */
    weft_tensor had;
    bool looked; /* at `had`, before it was replaced */
    bool alone;  /* what was looked at was added to in place, if it was added to */
} wf_leaf;

/* A scalar slot that is a number of an optimiser. */
typedef struct wf_live_slot {
    uint32_t slot;
    uint8_t live, number; /* of wf_follow.live, of that one's numbers */
} wf_live_slot;

/* A generator that a call draws from: as it was before the first draw, as the last one left it. */
typedef struct wf_drawn_from {
    weft_generator *of; /* NULL: the thread's own */
    bool named;         /* the thread's own, given by its address */
    weft_generator first, next;
} wf_drawn_from;

/* A draw: how far its generator had come since the first one. */
typedef struct wf_drawn {
    uint64_t after;
    uint8_t from; /* of wf_follow.from */
} wf_drawn;

/* What a call does besides its graph, noted for a replay; record_state.c. */
enum { WF_MOST_LIVE = 32, WF_MOST_GENERATORS = 8 };
typedef struct wf_follow {
    wf_leaf *leaf; /* in the order in which they were first used */
    uint32_t nleaf, capleaf;
    wf_live *live[WF_MOST_LIVE]; /* one for each step, in their order; referenced */
    uint32_t nlive, now;         /* now: 1 + the step that is taken, or 0 */
    wf_live_slot *slot;          /* by ascending slot */
    uint32_t nslot, capslot;
    wf_drawn_from from[WF_MOST_GENERATORS];
    wf_drawn *drawn; /* one for each random row, in their order */
    uint32_t nfrom, ndrawn, capdrawn;
    weft_tensor *also; /* kept tensors beside wf_outer.first that are used; some may come again */
    uint32_t nalso, capalso;
    const char *never; /* why this call cannot be replayed, or NULL */
} wf_follow;

/* What a commit asks to be computed. */
typedef struct wf_job {
    wf_fn *fn;             /* the runner may keep it and put another, or NULL, in its place */
    const int32_t *writes; /* per output: the input whose memory it replaces, or -1 */
    const wf_view *in;     /* ninputs, row-major */
    wf_view *out; /* noutputs, row-major; data NULL: the runner asks wf_job_back for its memory */
    int device;   /* of all of it, eager/device.h */
    wf_op failed_op; /* when it fails */
    const char *failed_site;
    uint8_t *began; /* per output: a failing run began to change its memory; comes in zeroed */
    uint32_t noutputs;
    struct wf_kept *const
        *kept; /* NULL, or where the runner keeps blocks for outputs; entries may be NULL */
    struct wf_trace *of;
    void *note; /* the trace's */
} wf_job;

typedef struct wf_trace wf_trace;

/* What is done with a trace's segments and breaks. */
typedef struct wf_trace_owner {
    const char *name;
    bool single_graph; /* a read in the middle is an error */
    bool
        function; /* recorded for its own sake: every read, and every write to a tensor from outside, is one */
    bool freezes; /* what jit/frozen.h asks about is noted */
    void *user;
    /* Computes a segment; every output has memory then. 0 or a status with why filled. */
    int (*run)(void *user, wf_job *job, wf_why *why);
    /* `op` at `site` (NULL: unknown) breaks the trace, or broke it: the site may be known when the call returns only. */
    void (*broke)(void *user, const char *op, const char *site);
} wf_trace_owner;

struct wf_trace {
    wf_recorder base; /* first: dispatch calls through it */
    wf_ctx *c;
    wf_trace_owner owner;
    wf_fn *fn;
    wf_fn *
        before; /* the segment recorded before this one, or NULL: record_quick.c compares with it */
    uint32_t serial;  /* of the segment; slots note it */
    uint32_t depth;   /* calls and regions inside one another; 1: only what opened the trace */
    uint32_t floor;   /* the depth of the innermost call: what ends regions stays above */
    uint64_t address; /* the next virtual storage lies here */
    wf_storage *first, *last;         /* virtual storages in order of creation */
    wf_storage *spare;                /* headers of dead ones, to be used again */
    uint32_t epoch;                   /* writes to storages from outside, and segments */
    wf_kept_note kept[WF_KEPT_NOTES]; /* by address */
    wf_outer *outer;
    uint32_t nouter, capouter;
    uint32_t *table; /* outer + 1 by hash of the storage; capacity a power of two */
    uint32_t table_cap;
    uint32_t wrapped, written; /* outer storages on imported memory; written ones */
    wf_why refused;            /* the first read or write that was refused; code 0: none */
    uint64_t refusal;          /* the number that its error has */
    bool noted;                /* names and sites of inputs are kept, for who reads the text */
    const char *
        unsited; /* what broke the trace, not told yet, or NULL: its call has not said where it is */
    const char *peeked; /* what read a tensor from outside without a break, or NULL */
    wf_follow follow;
    const void *
        frame; /* of the call: what lies below it on the stack ends with the function; NULL: a region */
    uint32_t backwards; /* the thread's when it began */
    uint32_t commits;   /* segments so far */
    void *note;         /* handed to the runner with each job */
    int64_t since;      /* a region's begin, for a profile; 0: none is being taken */
    int64_t timed;      /* likewise, for a trial (jit/call_eager.c) */
    wf_view *views;     /* scratch of a commit */
    int32_t *writes;
    uint8_t *began;
    wf_storage **made; /* per output that is no write-back */
    uint32_t capviews;
};

/* Starts recording on this thread. NULL with an error recorded: no memory, or a trace is open. */
wf_trace *wf_trace_open(const wf_trace_owner *owner);
/* A trace that was closed starts again, with the memory it has. 0 or a status with an error recorded. */
int wf_trace_reopen(wf_trace *t, const wf_trace_owner *owner);
/* Runs what was recorded. Afterwards no storage is virtual. 0 or a status with why filled. */
int wf_trace_commit(wf_trace *t, wf_why *why);
/* 0, or the status of a read or write that was refused, with the error recorded under `op`: what was computed instead of
 * the value means nothing, whether or not the function looked at the status. */
int wf_trace_refusal(wf_trace *t, const char *op);
/* Tells of what broke the trace at a site that was not known (NULL: nor is it now). */
void wf_trace_tell(wf_trace *t, const char *site);
/* For the runner of a job. Gives output k its memory. 0 or a status with why filled. */
int wf_job_back(void *job, uint32_t k, wf_why *why);
/* Input j, which no output replaces, is not read any more: if nobody else has it, it goes. */
void wf_job_drop(void *job, uint32_t j);
/* Stops recording without running anything more; values that were not computed are marked broken. */
void wf_trace_close(wf_trace *t);
void wf_trace_free(wf_trace *t); /* a closed one, or NULL */
/* The trace that is open on the thread, or NULL. */
wf_trace *wf_trace_current(wf_ctx *c);

/* -- one function, not run ------------------------------------------------------------------------------ */

/* Starts recording a function for its own sake: reads and writes to tensors from outside are errors. */
wf_trace *wf_trace_begin(const char *name);
/* Makes the value of `out` an output. 0 or a status with an error recorded. */
int wf_trace_output(wf_trace *t, weft_tensor out);
/* Stops recording and frees t. The function is the caller's (wf_fn_free); *captured receives n kept handles
 * with the names that the tensors had, the arguments for its inputs in order, owned by the caller (weft_free
 * each, wf_mfree the array). Tensors made while recording hold no value. */
wf_fn *wf_trace_end(wf_trace *t, weft_tensor **captured, int *n);
/* Stops and discards. */
void wf_trace_abort(wf_trace *t);

/* Runs f op by op through dispatch. Scalar slots take `slots` (or their recorded values when NULL). out
 * receives f->noutputs handles of the current scope. 0 or a status with an error recorded. */
int wf_fn_run(const wf_fn *f, const weft_tensor *inputs, const uint64_t *slots, weft_tensor *out);

/* -- between trace.c and record*.c ---------------------------------------------------------------------------- */
extern const wf_recorder wf_trace_hooks;
void wf_trace_unlink(wf_trace *t, wf_storage *st);
/* All but so many. */
void wf_trace_drop_spare(wf_trace *t, int keep);
/* Of what is recorded from now on. */
void wf_trace_set_device(wf_trace *t, int device);
/* The value of the slot's elements, with its extents. 0 or a status with why filled. */
int wf_trace_value(wf_trace *t, wf_slot *s, wf_val *v, wf_why *why);
/* The storage of s has the value v from now on. 0 or a status with why filled. */
int wf_trace_set_value(wf_trace *t, wf_slot *s, wf_val v, wf_why *why);
/* Forgets what was noted of a segment; with its memory. */
void wf_follow_clear(wf_follow *w);
void wf_follow_free(wf_follow *w);
/* Value v, which has just been recorded, is number `which` of the optimiser that is stepped. */
void wf_trace_live_slot(wf_trace *t, wf_val v, uint8_t which);
/* What of st is captured; NULL: nothing. */
const wf_outer *wf_trace_outer(wf_trace *t, const wf_storage *st);
/* s, a kept tensor, is used: beside others on memory from outside, or of it no more than what it is. */
void wf_trace_also(wf_trace *t, wf_slot *s);
/* wf_recorder.live, .gradient, .never, .asked */
void wf_trace_asked(wf_recorder *r, wf_slot *s);
void wf_trace_live(wf_recorder *r, wf_live *l);
void wf_trace_gradient(wf_recorder *r, wf_meta *m, weft_tensor had, bool looked);
void wf_trace_never(wf_recorder *r, const char *why);
/* wf_recorder.drew */
void wf_trace_drew(wf_recorder *r, weft_generator *g, bool named, uint64_t blocks);
/* wf_recorder.lines */
bool wf_trace_lines(wf_recorder *r, const wf_lines *l, int *rc, wf_why *why);

#endif
