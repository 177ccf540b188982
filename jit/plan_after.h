/*
 * jit/plan_after.h -- a group as the epilogue of a matrix product, or of a row-wise row.
 */
#ifndef JIT_PLAN_AFTER_H
#define JIT_PLAN_AFTER_H

#include "jit/plan_int.h"

/* A row-wise row whose kernel may hand on finished rows. */
bool wf_plan_finishes_rows(wf_op op);
/* Can the group's step run on finished rows of the product's, the step before it? */
bool wf_plan_may_follow(const wf_planner *b, const wf_plan_step *op, const wf_plan_step *s);

typedef struct wf_plan_after {
    const wf_plan_program *g;
    wf_program_args args;
    wf_view view[WF_PROGRAM_OUTPUTS + WF_PROGRAM_INPUTS]; /* [rows][the axes of a row] */
    _Atomic int status;                                   /* one that is not 0, of all runs */
    bool timed;
    _Atomic int64_t ns; /* of the runs, if timed */
} wf_plan_after;

void wf_plan_after_open(wf_plan_after *x, const wf_plan_program *g, const wf_program_args *a,
                        const wf_view *product);
/* The product is finished, and (finished) its rows were handed on; else the group runs now. 0 or a status. */
int wf_plan_after_close(wf_plan_after *x, bool finished);
/* A wf_epilogue's rows; arg: a wf_plan_after. */
void wf_plan_after_rows(void *arg, int64_t first, int64_t count);

#endif
