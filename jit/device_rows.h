/*
 * jit/device_rows.h -- rows that a device runs as a few programs.
 */
#ifndef JIT_DEVICE_ROWS_H
#define JIT_DEVICE_ROWS_H

#include "eager/exec.h"
#include "jit/ir/ir.h"

/* The `composite` of wf_device_ops. */
int wf_device_composite(int device, wf_exec *e);

/* Is the row written as several? */
bool wf_device_is_composed(const wf_exec *e);
/* Those, appended to f: src are the operands' values, dst receives the results'. 0 or a status with e->why filled. */
int wf_device_compose(wf_fn *f, const wf_exec *e, const wf_val *src, wf_val *dst);

#endif
