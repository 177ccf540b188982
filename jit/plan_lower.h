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

/* Finds what its group writes where the concat that reads it has it; that gets no buffer. reads: of root v, by how many operands
 * and results it is read from memory. 0 or WEFT_ENOMEM. */
int wf_plan_find_parts(wf_planner *b, const uint32_t *reads);
/* What root v is a part of. */
wf_part wf_part_of(const wf_planner *b, wf_val root);
/* An operand's place in the memory of a concat, in the operand's extents. 0 or WEFT_ENOMEM. */
int wf_part_operand_map(wf_planner *b, const wf_part *at, wf_map_of *out);
/* The same of part v, which a group over that space makes; 1: it does not run over it so. */
int wf_part_map(wf_planner *b, const wf_iter *s, wf_val v, int level, wf_map_of *out);

#endif
