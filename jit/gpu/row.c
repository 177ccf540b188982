/*
 * jit/gpu/row.c -- rows that are not elementwise, on the device; see gpu.h.
 */
#include "jit/gpu/impl.h"

int wf_gpu_row(int ordinal, wf_exec *e)
{
    (void)ordinal;
    (void)e;
    return WEFT_EUNSUPPORTED;
}
