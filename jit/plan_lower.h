/*
 * jit/plan_lower.h -- a group on its way to a program: shared by plan_build.c and plan_rows.c.
 */
#ifndef JIT_PLAN_LOWER_H
#define JIT_PLAN_LOWER_H

#include "jit/plan_int.h"

typedef struct wf_lowering {
    wf_planner *b;
    const wf_group *g;
    uint32_t number; /* of the group */
    wf_program *prog;
    int32_t *value; /* of SSA value v, if its stamp is the group's number + 1 */
    uint32_t *stamp;
    wf_map_of in[WF_PROGRAM_INPUTS];
    int in_value[WF_PROGRAM_INPUTS];
    wf_scalar_of scalar[WF_PROGRAM_SCALARS];
    int scalar_value[WF_PROGRAM_SCALARS];
    uint32_t *kept; /* programs of the plan + 1 by hash; 0: none */
    uint32_t nkept; /* places, a power of two */
} wf_lowering;

/* A scalar of the run as a value of the program; -1: the program is full. */
int wf_lower_scalar(wf_lowering *w, wf_scalar_of s);
/* Operand v of k as a value of the program; dtype: of a scalar slot. -1: the program is full, or the
 * planner's why is set. */
int wf_lower_read(wf_lowering *w, uint32_t k, wf_val v, int dtype);
/* A reduction or row-wise instruction, spelled out: its results in r (rounded). 0 or -1. */
int wf_lower_row_op(wf_lowering *w, uint32_t k, int *r);

#endif
