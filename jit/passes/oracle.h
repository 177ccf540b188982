/*
 * jit/passes/oracle.h -- the reference interpreter joined to the runtime's primitives.
 *
 * Products, convolutions, attention and random draws are defined by the primitive that computes them;
 * everything else is interpreted (jit/ir/interp.h).
 */
#ifndef JIT_PASSES_ORACLE_H
#define JIT_PASSES_ORACLE_H

#include "jit/ir/interp.h"

/* The eager kernel of a row on dense arrays: a wf_primitive. */
int wf_oracle_primitive(wf_op op, const wf_attr *attr, int nsrc, const wf_array *src, int ndst,
                        wf_array *dst, wf_why *why);

/* Index of the first element in which two arrays of t differ (any NaN equals any NaN), or -1. */
int64_t wf_oracle_difference(const wf_type *t, const void *a, const void *b);

#endif
