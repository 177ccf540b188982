/*
 * jit/trace.h -- recording calls into IR instead of running them.
 *
 * While a trace is open on a thread, dispatch hands it every op. Tensors from outside become inputs
 * the first time they are used; scalars become numbered slots, one per use; results are traced
 * handles: they have a type and an SSA number, but no memory. Recording appends: no folding, no
 * merging. Writes to existing tensors are refused while tracing.
 */
#ifndef JIT_TRACE_H
#define JIT_TRACE_H

#include "eager/tensor.h"
#include "jit/ir/ir.h"

typedef struct wf_trace wf_trace;

/* Starts recording on this thread. NULL with an error recorded: no memory, or a trace is open. */
wf_trace *wf_trace_begin(const char *name);
/* Makes t (a traced handle, or one from outside) an output. 0 or a status with an error recorded. */
int wf_trace_output(wf_trace *t, weft_tensor out);
/* Stops recording. The function is the caller's (wf_fn_free); *captured receives n kept handles, the
 * arguments for its inputs in order, owned by the caller (weft_free each, wf_mfree the array). */
wf_fn *wf_trace_end(wf_trace *t, weft_tensor **captured, int *n);
/* Stops and discards. */
void wf_trace_abort(wf_trace *t);

/* Runs f op by op through dispatch: the plan of last resort, and the yardstick of every other. Scalar
 * slots take `slots` (or their recorded values when NULL). out receives f->noutputs handles of the
 * current scope. 0 or a status with an error recorded. */
int wf_fn_run(const wf_fn *f, const weft_tensor *inputs, const uint64_t *slots, weft_tensor *out);

#endif
