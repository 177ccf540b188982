/*
 * jit/passes/fuse.h -- which instructions run together: a function's schedule of steps.
 *
 * A step is one instruction for an eager kernel, or a group over one iteration space (space.h) that
 * becomes one program: elementwise instructions, casts and copies, and (if asked) reductions and
 * row-wise instructions over the same axes. Views and leaves are in no step. Steps stand in an order in
 * which every operand is made before it is read.
 *
 * A fill is read as a scalar by groups, whatever view it is seen through.
 */
#ifndef JIT_PASSES_FUSE_H
#define JIT_PASSES_FUSE_H

#include "jit/passes/space.h"

typedef enum wf_step_kind {
    WF_STEP_OP,  /* one row, by its eager kernel */
    WF_STEP_MAP, /* a program over one space */
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
    wf_iter space;
    uint32_t first, n;               /* members[first .. first + n), each behind those it reads */
    uint32_t insts, inputs, scalars; /* of its program, at most */
    uint32_t streams;                /* inputs that are no smaller than the space */
} wf_group;

typedef struct wf_schedule {
    wf_group *groups;
    uint32_t ngroups;
    uint32_t *members;  /* instruction indices */
    uint32_t *group_of; /* of instruction k; WF_NO_GROUP for leaves and views */
    uint8_t *level;     /* of value v: WF_AT_* in its group */
    uint8_t *dear; /* instruction k stayed apart for the sake of memory; NULL: none does (_LEAN) */
    bool off, rows, alone; /* WF_FUSE_OFF, _ROWS, _ALONE were given */
    /* What wf_choose_again decided; NULL where it had nothing to weigh. */
    uint32_t *again_of; /* of root v: the first of again[], WF_NO_GROUP: none */
    struct wf_again *again;
    uint32_t nagain, capagain;
    struct wf_weighed *weighed; /* of root v */
} wf_schedule;
#define WF_NO_GROUP UINT32_MAX

#define WF_FUSE_OFF 1u
#define WF_FUSE_ROWS                                                                               \
    2u /* reductions and row-wise instructions are opened (small sums to one number always are) */
#define WF_FUSE_ALONE                                                                              \
    4u /* also those that are a group of their own: there is no eager kernel to leave them to */

#define WF_FUSE_LEAN                                                                               \
    8u /* no group waits for its reader with more memory than it would leave behind */
#define WF_FUSE_LATE                                                                               \
    16u /* nothing runs early beside what it reads, where that has other readers as well */

/* 0 or a status; wf_schedule_free in either case. live: values that a result depends on. most:
 * members a group may have at most, 0: as many as a program holds. */
int wf_fuse(wf_schedule *s, wf_layout *l, const uint8_t *live, unsigned flags, uint32_t most,
            wf_why *why);
void wf_schedule_free(wf_schedule *s);

/* Does instruction k, as a member of group g over that space, read v as a value that the group makes? Fills are
 * nobody's. */
bool wf_is_made_inside(const wf_schedule *s, wf_layout *l, uint32_t g, const wf_iter *space,
                       uint32_t k, wf_val v);

/* Does group g compute root v, which another group makes? */
bool wf_is_again(const wf_schedule *s, uint32_t g, wf_val root);

/* Why instruction k does not run together with the producer of its operand u; NONE if it does, or if u
 * is not made by a step. */
wf_reason wf_edge_reason(const wf_schedule *s, const wf_layout *l, uint32_t k, wf_val u);

#endif
