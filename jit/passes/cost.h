/*
 * jit/passes/cost.h -- modelled memory traffic: what a step must read and write at least.
 *
 * An operand costs its distinct elements: axes of stride 0 are read once, an operand that is given twice too, and of a
 * table that a row picks from (flops.def) no more elements than the result has. What stays in caches between steps is not
 * modelled; the figures are for tensors that do not.
 */
#ifndef JIT_PASSES_COST_H
#define JIT_PASSES_COST_H

#include "jit/passes/layout.h"

/* Adds bytes, or operations, to a sum: no further than INT64_MAX, whatever sizes a file has. */
static inline void wf_cost_add(int64_t *sum, int64_t n)
{
    *sum = n > INT64_MAX - *sum ? INT64_MAX : *sum + n;
}

/* Bytes of the distinct elements of a map: extents, then strides. */
int64_t wf_cost_bytes(int dtype, int rank, const int64_t *shape);
/* What a row reads of an operand: `bytes`, or no more elements than its result (of `result` elements) has. */
int64_t wf_cost_read(wf_op op, int operand, int dtype, int64_t bytes, int64_t result);

/* -- weights: what decisions are made by, in bytes of traffic with memory -------------------------------------------- */

enum {
    WF_NEAR = 1 << 20,    /* bytes of a tensor that is still in a core's cache when it is read */
    WF_LAUNCH = 16 << 10, /* what takes as long as a launch */
    WF_STREAMS = 16 /* tensors that a kernel walks along at full speed: a cache has as many ways */
};
/* Bytes of a tensor: those that caches hold count half. */
int64_t wf_weigh_bytes(int64_t bytes);
/* What a kernel that walks along so many tensors of `bytes` weighed bytes each loses by it. */
int64_t wf_weigh_crowd(uint32_t streams, int64_t bytes);

/* Bytes that instruction k reads and writes when it is run alone. */
void wf_cost_alone(const wf_layout *l, uint32_t k, int64_t *reads, int64_t *writes);
/* Bytes that all instructions with a group (group_of) read and write where each is run alone, but for those that are done in one
 * pass (WF_INS_JOINED): of such a run each tensor counts once, and what only its own rows read not at all. 0 or WEFT_ENOMEM. */
int wf_cost_eager(const wf_layout *l, const uint32_t *group_of, int64_t *reads, int64_t *writes);

#endif
