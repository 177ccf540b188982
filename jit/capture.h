/*
 * jit/capture.h -- a plan's run on a device, captured: replayed by one launch instead of one for each step.
 *
 * The device's graph has addresses in it, so a capture has memory of its own for what changes from call to call:
 * arguments are copied in, results are copied out into the caller's new memory. What a call hands out is never written
 * again by a later one. Captured tensors are used where they lie, and the capture ends with their memory.
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

typedef struct wf_capture wf_capture;

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
} wf_capture_of;

/* Can the device capture at all? */
bool wf_capture_can(int device);
/* Runs of this thread so far that did not do what they will do later on: a kernel is still being made. */
int64_t wf_capture_unsettled(int device);
/* NULL with why filled: it cannot be captured. */
wf_capture *wf_capture_new(const wf_capture_of *what, wf_why *why);
/* Are captured tensors where they were? */
bool wf_capture_holds(const wf_capture *c, wf_storage *const *source);
/* Queues a run. shift: of each source, how many bytes further in its storage the argument lies than in the recording; what
 * the plan touches lies in the storage there, too. *launched: results and written tensors are changed, whatever is returned. */
int wf_capture_run(wf_capture *c, wf_storage *const *source, const int64_t *shift,
                   wf_storage *const *made, bool *launched, wf_why *why);
void wf_capture_free(wf_capture *c); /* NULL is ignored */

#endif
