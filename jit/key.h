/*
 * jit/key.h -- what a plan is found by: the structure of a recorded function and its sizes.
 *
 * Ops, operands, flags, types, structure integers of attributes, the sizes among their other integers
 * (wf_plan_is_key), outputs and what is written back. Not: names, sites, scalar slots, eps, seeds, starts.
 * Recording is deterministic, so equal calls give equal tables and comparing is a walk over arrays.
 */
#ifndef JIT_KEY_H
#define JIT_KEY_H

#include "jit/ir/ir.h"

uint64_t wf_key_hash(const wf_fn *f, const int32_t *writes);
bool wf_key_same(const wf_fn *a, const int32_t *a_writes, const wf_fn *b, const int32_t *b_writes);

#endif
