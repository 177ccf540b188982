/*
 * jit/passes/fuse.h -- which instructions run together: a function's schedule of steps.
 *
 * A step is one instruction for an eager kernel, or a group of elementwise instructions (casts and
 * copies included) over one iteration space that becomes one tile program. Views and leaves are in no
 * step. Steps stand in an order in which every operand is made before it is read.
 *
 * A fill is read as a scalar by groups, whatever view it is seen through.
 *
 * Inside its group a value needs no memory: an operand is inside if it is the whole of a value of the
 * same group in row-major order. Anything else (a broadcast, a permuted or sliced read) is read from
 * memory, so its producer stands in an earlier step.
 */
#ifndef JIT_PASSES_FUSE_H
#define JIT_PASSES_FUSE_H

#include "jit/passes/layout.h"

typedef enum wf_step_kind {
    WF_STEP_OP,  /* one row, by its eager kernel */
    WF_STEP_MAP, /* elementwise rows over one space */
    WF_STEP_COPY /* a value to its place (made by the plan, never by the fuser) */
} wf_step_kind;

typedef enum wf_reason {
#define REASON(NAME, text) WF_REASON_##NAME,
#include "jit/passes/reasons.def"
    WF_REASON_COUNT
} wf_reason;
extern const char *const wf_reason_text[WF_REASON_COUNT];
extern const char *const wf_reason_name[WF_REASON_COUNT];

typedef struct wf_group {
    uint8_t kind; /* wf_step_kind */
    uint8_t rank;
    uint32_t dims;                   /* words of the layout: extents of the space */
    uint32_t first, n;               /* members[first .. first + n), each behind those it reads */
    uint32_t insts, inputs, scalars; /* of its program, at most */
} wf_group;

typedef struct wf_schedule {
    wf_group *groups;
    uint32_t ngroups;
    uint32_t *members;  /* instruction indices */
    uint32_t *group_of; /* of instruction k; WF_NO_GROUP for leaves and views */
    bool off;           /* WF_FUSE_OFF was given */
} wf_schedule;
#define WF_NO_GROUP UINT32_MAX

#define WF_FUSE_OFF 1u

/* 0 or a status; wf_schedule_free in either case. live: values that a result depends on. most:
 * members a group may have at most, 0: as many as a program holds. */
int wf_fuse(wf_schedule *s, wf_layout *l, const uint8_t *live, unsigned flags, uint32_t most,
            wf_why *why);
void wf_schedule_free(wf_schedule *s);

/* Can the instruction be a member of a MAP group: an elementwise row, a cast, a copy, a vjp column? */
bool wf_is_mappable(const wf_layout *l, uint32_t ins);
/* The instruction that fills v's memory with one value, which readers take as a scalar; 0: none. */
wf_val wf_fill_of(const wf_layout *l, wf_val v);
/* The instruction whose step makes v (the op of a further result); 0: a leaf. */
wf_val wf_maker_of(const wf_layout *l, wf_val v);
/* The extents that instruction k runs over. */
const wf_map_of *wf_space_of(const wf_layout *l, uint32_t k);
/* Does k read operand u as a value of its own group, if the root of u is in that group? */
bool wf_reads_whole(const wf_layout *l, uint32_t k, wf_val u);
/* Why instruction k does not run together with the producer of its operand u; NONE if it does, or if u
 * is not made by a step. */
wf_reason wf_edge_reason(const wf_schedule *s, const wf_layout *l, uint32_t k, wf_val u);

#endif
