/*
 * jit/plan.h -- from a recorded function to steps that run it: fused groups, eager kernels, copies.
 *
 * A plan is built once for a structure (ops, operands, attributes' ints, dtypes, extents, what the
 * function writes) and runs for every recording of that structure. Nothing of the recording is kept:
 * scalar slots, fill values, eps, seeds and slice starts are read at each run from the recording of that
 * call. What the plan's key must hold besides structure is said by wf_plan_is_key.
 *
 * The bits are those of the recorded calls run one after another, at any thread count.
 *
 * Invariants: a plan is immutable after wf_plan_build and may run on several threads at once; views are
 * not steps but index maps of the steps that read them; a run takes one block of
 * temporary memory and the results the caller did not bring, each before the first step that puts something into
 * it, and few blocks more where that takes less memory; from the second run on the plan keeps them for the next one, for as long as
 * nobody has them (eager/kept.h); kernels take their scratch besides. Memory of
 * results that replace no input may hold temporaries before it holds them.
 */
#ifndef JIT_PLAN_H
#define JIT_PLAN_H

#include <stdio.h>

#include "eager/view.h"
#include "jit/ir/backend.h"
#include "jit/ir/ir.h"

typedef struct wf_plan wf_plan;

#define WF_PLAN_NO_FUSE 1u /* one step an instruction: the yardstick of the fused plan */
#define WF_PLAN_TIER0 2u   /* no native kernels: groups stay on the tile interpreter */
#define WF_PLAN_ROWS                                                                               \
    8u /* open reductions and row-wise rows into groups, whatever the timings say */
#define WF_PLAN_PLAIN 16u /* never open them: neither flag leaves the choice to measurement */
#define WF_PLAN_SYNC 4u   /* native kernels are ready before the plan is returned */
/* For runs on a device: no native kernels of the host, and rows are opened wherever they can be. */
#define WF_PLAN_ALONE 32u
/* Fast math: FAST rules of fold.def and kernels that need not round as the rows say. Results are another plan's only to
 * within their error; they are the same in every run and at every thread count, since kernels are ready before the first
 * (WF_PLAN_SYNC) and nothing is chosen by time (WF_PLAN_ROWS, unless _PLAIN or _NO_FUSE). WEFT_FAST_MATH=1 sets it. */
#define WF_PLAN_FAST 64u
#define WF_PLAN_DEVICE (WF_PLAN_TIER0 | WF_PLAN_ROWS | WF_PLAN_ALONE)

typedef struct wf_plan_opts {
    unsigned flags; /* WF_PLAN_* */
    /* writes[k]: the input whose memory output k replaces (a write-back), -1 for none; NULL: none at all.
     * Such an output has the input's element type and count. */
    const int32_t *writes;
    wf_target
        target; /* of native kernels; all zero: this machine, vectors of what is fastest (tests of bits take short ones) */
} wf_plan_opts;

/* NULL with why filled: no memory, symbols that are not bound to sizes, or an operand no step can read. */
wf_plan *wf_plan_build(const wf_fn *recorded, const wf_plan_opts *opts, wf_why *why);
/* Where blocks are kept for the results of runs on the host, one place an output, NULL where there is none: from a run that is not
 * the first. NULL: no memory for that. */
struct wf_kept *const *wf_plan_results(wf_plan *p);
void wf_plan_retain(wf_plan *p);
void wf_plan_release(wf_plan *p); /* NULL is ignored */

typedef struct wf_plan_args {
    const wf_fn
        *fn; /* this call's recording, of the plan's structure; slot values are read from it */
    /* One per input: row-major memory of the input's type. Memory of inputs does not overlap where one
     * of them is written. */
    const wf_view *in;
    /* One per output, row-major. data == NULL: the run gets it from `back`, or allocates it (wf_alloc of numel * element
     * size bytes, the caller's from then on) and fills the whole view in. Otherwise the run writes there: the
     * memory of input writes[k], or memory that nothing else names. */
    wf_view *out;
    /* NULL, or gives out[k], whose data is NULL, its memory: called before the first step that puts something there. 0,
     * or a status with why filled. */
    int (*back)(void *user, uint32_t k, wf_why *why);
    /* NULL, or told that no step reads input j any more, which no output replaces. */
    void (*drop)(void *user, uint32_t j);
    void *user;
    int device; /* of all of it, eager/device.h; results that the run allocates are the host's */
    /* Filled in when a run fails in a step: the row, and the site that recorded it (NULL unknown). */
    wf_op failed_op;
    const char *failed_site;
    bool
        failed_named; /* why begins with an op's name: of that row, or of an earlier one whose failure a device found late */
    /* NULL, or room for as many times (ns) as the plan has steps: zeroed by the caller, added to. Steps are
     * those of the way that ran, so a plan that has not chosen yet must not be asked. */
    int64_t *step_ns;
    /* NULL, or room for a byte an output, filled in when a run fails: it may have begun to write this one. */
    uint8_t *began;
    const struct wf_plan_changes *changes; /* NULL, or for a run that a device records */
} wf_plan_args;

/* Numbers that differ from run to run of one recording on a device (jit/capture.h). The calls of the steps that read them, or
 * draw random numbers, are marked, so that `again`, with other numbers, only those are made. A run of a settled plan. */
typedef struct wf_plan_changes {
    const uint8_t *slot; /* per scalar slot of the recording; NULL: none of those */
    bool again;
    int (*mark)(int ordinal, bool on, wf_why *why); /* of the device */
} wf_plan_changes;

/* 0, or a status with why filled; then outputs that the run allocated are freed and have data NULL; those that `back` gave
 * memory keep it. */
int wf_plan_run(wf_plan *p, wf_plan_args *a, wf_why *why);

/* Is slot i of an attribute's `dyn` part of a plan's key? Sizes and strides are; starts, offsets, seeds,
 * diagonals and fill values are not. */
bool wf_plan_is_key(wf_op op, int n_dyn, int i);
/* What of an attribute's `flt` is: whether cross entropy smooths at all, whether a norm is of
 * another order than 2: their steps depend on it. */
bool wf_plan_key_flt(wf_op op, const wf_attr *a);

typedef struct wf_plan_info {
    int steps;            /* launches: what a run does one after the other */
    int groups;           /* fused kernels among them */
    int ops;              /* instructions of the recording that compute */
    int64_t result_bytes; /* of all of them */
    /* Temporaries, and results that replace no input, at the fullest launch: what a run has then, and what lives, which is
     * the least that steps in that order can do with. */
    int64_t peak_bytes, bound_bytes;
    int64_t read_bytes, write_bytes; /* memory traffic of the steps, as modelled */
    int64_t eager_read_bytes,
        eager_write_bytes; /* the same op by op, an update of an optimiser in one pass */
} wf_plan_info;
void wf_plan_get_info(const wf_plan *p, wf_plan_info *info);

typedef struct wf_plan_step_info {
    const char *kind; /* "map", "rows" (a group that reduces), "op", "copy" */
    wf_op op;         /* the row, or the last one of a group */
    int runs, ops;    /* tensors side by side; instructions in all of them */
    const char *
        kernel; /* of a group that is compiled, or of one on the rows of a product; else "". It lives as long as
                           the plan */
    bool native; /* by now */
    int64_t read_bytes, write_bytes;
} wf_plan_step_info;
/* Step i of wf_plan_info.steps; false beyond them. */
bool wf_plan_step_at(const wf_plan *p, int i, wf_plan_step_info *out);

/* The function that the steps compute: what the passes left of the recording. Two plans of one recording have equal
 * ones, whatever their flags. */
const wf_fn *wf_plan_fn(const wf_plan *p);
typedef struct wf_plan_cost {
    int64_t flops;       /* counted from the rows (jit/ir/flops.h) */
    int64_t alone_bytes; /* what its instructions would read and write one by one */
} wf_plan_cost;
/* launch_of[k], for each instruction of wf_plan_fn: the step that computes it, or -1; cost: of each step. 0, or a
 * status with why filled. */
int wf_plan_costs(const wf_plan *p, int32_t *launch_of, wf_plan_cost *cost, wf_why *why);
/* Bytes [*lo, *hi) of an input's memory (of what is written there, too) that a run with the recording's numbers can touch; both 0:
 * none. */
void wf_plan_reach(const wf_plan *p, const wf_fn *recording, uint32_t input, int64_t *lo,
                   int64_t *hi);
/* An edge that is not fused: instruction `reader` reads v, which another step makes. */
typedef struct wf_plan_edge_info {
    uint32_t reader;
    wf_val v, maker; /* what is read, and the row that made it: of a view, what it is a view of */
    const char *reason, *text;
    /* Bytes of traffic, as modelled, that fusing (COSTS_MORE) or computing v again in all its readers (any other reason)
     * saves, and what it costs; both 0: they were not weighed. */
    int64_t saved, cost;
} wf_plan_edge_info;
bool wf_plan_edge_at(const wf_plan *p, uint32_t i, wf_plan_edge_info *out);
/* Has the plan settled on a way (or has just one)? */
bool wf_plan_is_settled(const wf_plan *p);

/* Text: one step a line, with its instructions; every edge that is not fused with its reason. 0 or
 * WEFT_EIO. */
int wf_plan_explain(const wf_plan *p, FILE *out);
/* The launches as a graph for graphviz, arrows for what they read from one another. 0, WEFT_ENOMEM or WEFT_EIO. */
int wf_plan_dot(const wf_plan *p, FILE *out);
/* Where WEFT_DUMP has it: files, and a section of the page. */
void wf_plan_dump(const wf_plan *p, const char *name);

#endif
