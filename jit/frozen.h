/*
 * jit/frozen.h -- replaying a traced call without calling the function.
 *
 * A frozen call is one recording with its plan, the guards under which it may be replayed, and what it does to the
 * outside: which inputs are arguments and which are captured tensors, what is written and how often, how outputs
 * are made. Two recordings in a row must agree in everything: structure, numbers, captured tensors, outputs.
 *
 * Invariants: guards read arguments and captured handles only and never data; every refusal and every miss has a
 * reason in words; a frozen call is immutable but for its counters and its capture, and may run on several threads
 * at once.
 */
#ifndef JIT_FROZEN_H
#define JIT_FROZEN_H

#include "eager/borrow.h"
#include "jit/plan.h"
#include "jit/trace.h"

enum { WF_REASON = 192 };

typedef struct wf_frozen wf_frozen;

/* What a call begins with: modes, and the state of the thread's generator and of others that are known. */
typedef struct wf_frozen_start {
    uint32_t grad_off; /* weft_no_grad_begin without their ends */
    int home;          /* the default device */
    uint64_t modes;    /* wf_modes */
    uint64_t errors;   /* wf_ctx.error_seen */
    weft_generator own;
    uint32_t n;
    const weft_generator *of[WF_MOST_GENERATORS];
    weft_generator was[WF_MOST_GENERATORS];
} wf_frozen_start;
void wf_frozen_start_now(wf_frozen_start *s, const wf_ctx *c);
/* Looks at the generators of z, too. */
void wf_frozen_start_add(wf_frozen_start *s, const wf_frozen *z, wf_ctx *c);
/* Describes the call that t has just recorded and is about to commit. NULL with the reason: it cannot be frozen
 * (or there is no memory). */
wf_frozen *wf_frozen_describe(wf_trace *t, const weft_tensor *in, int n_in, const weft_tensor *out,
                              int n_out, const wf_frozen_start *start, char reason[WF_REASON]);
/* Two calls that the same guards would let pass, captured tensors and offsets in storages aside; else the reason. */
bool wf_frozen_same_arguments(const wf_frozen *a, const wf_frozen *b, char reason[WF_REASON]);
/* Are two calls with recordings of one structure the same call, scalar slots and attributes included, but for where
 * arguments lie in their storages? Else the reason. */
bool wf_frozen_agree(const wf_frozen *a, const wf_fn *a_fn, const wf_frozen *b, const wf_fn *b_fn,
                     char reason[WF_REASON]);
/* Makes z, which agreed with `before`, runnable: fn becomes its own, writes are copied, the plan is retained. */
void wf_frozen_arm(wf_frozen *z, const wf_frozen *before, wf_fn *fn, const int32_t *writes,
                   wf_plan *p);
/* Is this recording of a call what z, which is armed, would replay? Else the reason. */
bool wf_frozen_same(const wf_frozen *z, const wf_frozen *now, const wf_fn *fn,
                    const int32_t *writes, char reason[WF_REASON]);
void wf_frozen_retain(wf_frozen *z);
/* The plan of z, which is armed, retained; *device: where it runs. */
wf_plan *wf_frozen_plan(const wf_frozen *z, int *device);
void wf_frozen_release(wf_frozen *z); /* NULL is ignored */

/* The arguments of a call, held, and their storages one behind the other. */
enum { WF_FROZEN_FEW = 32 };
typedef struct wf_frozen_args {
    wf_ctx *c;
    const weft_tensor *in; /* the caller's */
    int n;
    wf_slot **slot;
    wf_storage **st;
    wf_hold *how;
    int most; /* arguments that there is other room for */
    wf_slot *slot_[WF_FROZEN_FEW];
    wf_storage *st_[WF_FROZEN_FEW];
    wf_hold how_[WF_FROZEN_FEW];
} wf_frozen_args;
/* False with the reason: one of them is not a live tensor with a value, or there is no memory. To be closed in any
 * case. */
bool wf_frozen_open(wf_frozen_args *a, wf_ctx *c, const weft_tensor *in, int n, char *reason);
/* May run user code: a tensor that another thread has freed meanwhile ends here. */
void wf_frozen_close(wf_frozen_args *a);

/* May z replay a call with these arguments? Else the reason. */
bool wf_frozen_guard(const wf_frozen *z, const wf_frozen_args *a, int n_out,
                     char reason[WF_REASON]);
/* Has a captured tensor been freed? Then z never replays again, and only holds memory. */
bool wf_frozen_is_dead(const wf_frozen *z, wf_ctx *c);
/* Replays after a guard that passed. 0 or a status with why filled; outputs are then untouched. On a device that can, the
 * steps are captured once they do what they will always do, and launched as one from then on; *how says. */
typedef struct wf_frozen_how {
    bool captured;          /* one launch */
    char reason[WF_REASON]; /* why it cannot be, said once; else "" */
} wf_frozen_how;
int wf_frozen_run(wf_frozen *z, const wf_frozen_args *a, weft_tensor *out, wf_frozen_how *how,
                  wf_why *why);
/* Calls so far, this one included. */
uint32_t wf_frozen_count(wf_frozen *z);

#endif
