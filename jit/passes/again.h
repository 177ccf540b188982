/*
 * jit/passes/again.h -- store or compute again: what a value costs that one group makes and others read.
 *
 * A value in memory costs the bytes of writing it and of reading it. A reader may instead run the rows that make it
 * itself, from what these read: then it costs that memory, where the reader would not read it anyway, and the rows'
 * arithmetic. wf_choose_again weighs the two for every such value, the largest first, and changes the schedule where
 * computing is cheaper. Where nobody else needs the value it moves into the group that reads it first, which costs no
 * arithmetic at all: that is how a row gets out of a group that it joined for the sake of an operand.
 *
 * Costs are in bytes of traffic with memory; bytes of a tensor that caches hold count less, arithmetic is converted.
 * They depend on types and extents alone, so a function has one plan, whatever the machine.
 */
#ifndef JIT_PASSES_AGAIN_H
#define JIT_PASSES_AGAIN_H

#include "jit/passes/fuse.h"

/* Group `group` computes root `v` again. */
typedef struct wf_again {
    uint32_t group;
    wf_val v;
    uint32_t next; /* of the same v; WF_NO_GROUP: the last */
} wf_again;

/* What the model found for a value: bytes that are saved where it is computed again, and what that costs. */
typedef struct wf_weighed {
    int64_t saved, cost;
} wf_weighed;

/* writes[k]: the input that output k replaces, or -1; NULL: none. 0 or WEFT_ENOMEM. */
int wf_choose_again(wf_schedule *s, wf_layout *l, const int32_t *writes);

#endif
