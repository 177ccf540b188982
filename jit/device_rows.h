/*
 * jit/device_rows.h -- rows that a device runs as a few programs.
 */
#ifndef JIT_DEVICE_ROWS_H
#define JIT_DEVICE_ROWS_H

#include "eager/exec.h"

/* The `composite` of wf_device_ops. */
int wf_device_composite(int device, wf_exec *e);

#endif
