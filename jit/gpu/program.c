/*
 * jit/gpu/program.c -- programs, copies and fills on views of device memory.
 */
#include "eager/env.h"
#include "jit/gpu/impl.h"

static int start(int ordinal, const wf_program *p, const wf_program_args *a, bool later,
                 wf_why *why)
{
    return p->rows ? wf_gpu_rows_program(ordinal, p, a, later, why)
                   : wf_gpu_map_program(ordinal, p, a, later, why);
}

int wf_gpu_program_now(int ordinal, const wf_program *p, const wf_program_args *a, wf_why *why)
{
    return start(ordinal, p, a, false, why);
}

int wf_gpu_program(int ordinal, const wf_program *p, uint32_t one, const wf_program_args *a,
                   wf_why *why)
{
    (void)one;
    const bool later = wf_env()->WEFT_JIT == 1 && wf_gpu_can_single(p);
    const int status = start(ordinal, p, a, later, why);
    if (status != WF_GPU_PENDING)
        return status;
    if (why)
        *why = (wf_why){0};
    wf_gpu_count_single();
    return wf_gpu_run_singles(ordinal, p, a, why);
}

int wf_gpu_copy(int ordinal, const wf_view *dst, const wf_view *src, wf_why *why)
{
    wf_program p;
    if (wf_view_numel(dst) == 0)
        return 0;
    if (dst->dtype == src->dtype && wf_view_is_contiguous(dst) && wf_view_is_contiguous(src))
        return wf_cuda_move(ordinal, dst->data, src->data,
                            (size_t)wf_view_numel(dst) * wf_dtype_size(dst->dtype), why);
    wf_program_init(&p);
    wf_program_output(&p, wf_program_cast(&p, wf_program_input(&p, src->dtype), dst->dtype));
    if (wf_program_finish(&p) != 0)
        return wf_fail(why, WEFT_EUNSUPPORTED, "no program copies %s to %s",
                       wf_dtype_name(src->dtype), wf_dtype_name(dst->dtype));
    return wf_gpu_map_program(ordinal, &p, &(wf_program_args){.dst = dst, .src = src}, false, why);
}

int wf_gpu_fill(int ordinal, const wf_view *dst, const void *value, wf_why *why)
{
    wf_program p;
    wf_program_init(&p);
    wf_program_output(&p, wf_program_scalar(&p, dst->dtype));
    if (wf_program_finish(&p) != 0)
        return wf_fail(why, WEFT_EUNSUPPORTED, "no program fills %s", wf_dtype_name(dst->dtype));
    return wf_gpu_map_program(ordinal, &p, &(wf_program_args){.dst = dst, .scalars = &value}, false,
                              why);
}
