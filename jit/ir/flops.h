/*
 * jit/ir/flops.h -- how much arithmetic an instruction asks for, and what it must read: counted from its row, types
 * and attributes (flops.def, prims.def), nothing modelled.
 */
#ifndef JIT_IR_FLOPS_H
#define JIT_IR_FLOPS_H

#include "jit/ir/ir.h"

/* Floating-point operations of instruction k of f; 0 for integers, leaves, and where extents are symbols. */
int64_t wf_flops(const wf_fn *f, uint32_t k);
/* Of one element of an elementwise row (which < 0), or of its derivative by an operand, in f32 or f64. */
int wf_flops_element(wf_op op, int which, int compute);
/* Does the row read as many elements of operand 0 as its result has, and not all of them? */
bool wf_flops_picks(wf_op op);

#endif
