/*
 * jit/capture.h -- a plan's run on a device, captured: replayed by one launch instead of one for each step.
 *
 * The device's graph has addresses in it, so a capture has memory of its own for what changes from call to call:
 * arguments are copied in, results are copied out into the caller's new memory. What a call hands out is never written
 * again by a later one; what nobody will have any more by the next call (a gradient that it replaces) is not copied, but lent:
 * a tensor over the graph's own memory. Captured tensors are used where they lie, and the capture ends with their memory. Numbers that change
 * (a learning rate, where random numbers start) are arguments of kernels: before a launch with others the steps that read them
 * are walked through once more, and what they would have launched is given to the graph instead.
 *
 * Invariants: nothing has run when a capture fails; a run that fails before it is launched has changed nothing of
 * the caller's. Several threads may run one capture, on any streams.
 */
#ifndef JIT_CAPTURE_H
#define JIT_CAPTURE_H

#include "eager/tensor.h"
#include "jit/plan.h"

enum {
    WF_CAPTURE_ARGUMENTS = 256 << 20, /* most bytes of arguments and results that a call copies */
};

typedef struct wf_capture wf_capture; /* counted */

/* What is captured. Outputs of fn: n_made results, then the written sources in order. */
typedef struct wf_capture_of {
    const wf_fn *fn;
    wf_plan *plan;
    int device;
    uint32_t n_source, n_made;
    wf_storage *const *source; /* of this call */
    const bool *argument;      /* per source: it differs from call to call */
    const bool *written;       /* per source */
    const size_t *made_bytes;
    const bool *lent; /* per result: not copied; NULL: none is lent */
    bool draws;       /* random numbers, from another place of a stream in each call */
    const uint8_t
        *changes; /* per scalar slot of fn: it differs from call to call; NULL: none does */
} wf_capture_of;

/* Can the device capture at all? */
bool wf_capture_can(int device);
/* Runs of this thread so far that did not do what they will do later on: a kernel is still being made. */
int64_t wf_capture_unsettled(int device);
/* NULL with why filled: it cannot be captured. */
wf_capture *wf_capture_new(const wf_capture_of *what, wf_why *why);
void wf_capture_retain(wf_capture *c);
void wf_capture_release(wf_capture *c); /* NULL is ignored */
/* made[k], for results that are lent: tensors' memory for one run, to be released. False with why filled if there is no memory,
 * and with why empty: some are still held from another run. */
bool wf_capture_lend(wf_capture *c, wf_storage **made, wf_why *why);
/* Are captured tensors where they were? */
bool wf_capture_holds(const wf_capture *c, wf_storage *const *source);
/* Queues a run with the numbers of fn, the recording. shift: of each source, how many bytes further in its storage the argument lies than in the recording; what
 * the plan touches lies in the storage there, too. *launched: results and written tensors are changed, whatever is returned. */
int wf_capture_run(wf_capture *c, const wf_fn *fn, wf_storage *const *source, const int64_t *shift,
                   wf_storage *const *made, bool *launched, wf_why *why);
/* Did its kernels not take the numbers of the last run? So it goes if the plan does other calls by now than were captured: a
 * kernel was still being made then. */
bool wf_capture_is_stale(wf_capture *c);
#endif
