/*
 * jit/passes/fuse.h -- which instructions run together: a function's schedule of steps.
 *
 * A step is one instruction for an eager kernel, or a group of elementwise instructions (casts and
 * copies included) over one iteration space that becomes one tile program. Views and leaves are in no
 * step. Steps stand in an order in which every operand is made before it is read.
 */
#ifndef JIT_PASSES_FUSE_H
#define JIT_PASSES_FUSE_H

#include "jit/passes/layout.h"

typedef enum wf_step_kind {
    WF_STEP_OP,  /* one row, by its eager kernel */
    WF_STEP_MAP, /* elementwise rows over one space */
    WF_STEP_COPY /* a value to its place (made by the plan, never by the fuser) */
} wf_step_kind;

typedef struct wf_group {
    uint8_t kind; /* wf_step_kind */
    uint8_t rank;
    uint32_t dims;     /* words of the layout: extents of the space */
    uint32_t first, n; /* members[first .. first + n), in order of the function */
} wf_group;

typedef struct wf_schedule {
    wf_group *groups;
    uint32_t ngroups;
    uint32_t *members;  /* instruction indices */
    uint32_t *group_of; /* of instruction k; WF_NO_GROUP for leaves and views */
} wf_schedule;
#define WF_NO_GROUP UINT32_MAX

#define WF_FUSE_OFF 1u

/* 0 or a status; wf_schedule_free in either case. live: instructions that a result depends on. */
int wf_fuse(wf_schedule *s, wf_layout *l, const uint8_t *live, unsigned flags, wf_why *why);
void wf_schedule_free(wf_schedule *s);

/* Can the instruction be a member of a MAP group: an elementwise row, a cast, a copy, a vjp column? */
bool wf_is_mappable(const wf_layout *l, uint32_t ins);
/* A creation row that fills with one value, which readers take as a scalar. */
bool wf_is_fill(const wf_fn *f, wf_val v);

#endif
