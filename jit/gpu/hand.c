/*
 * jit/gpu/hand.c -- launching kernels of jit/codegen_cuda/kernels.cuh.
 */
#include <stdio.h>

#include "jit/gpu/impl.h"

static int render(const void *arg, const wf_gpu_entry *e, wf_text *out, wf_why *why)
{
    const wf_gpu_hand *h = arg;
    wf_cu_hand c = {.section = h->section, .n = h->ntype, .wide = h->wide};
    for (int i = 0; i < h->ntype; i++)
        c.dtype[i] = (uint8_t)h->type[i];
    return wf_cu_render_hand(&c, e->kernel.name, out, why);
}

int wf_gpu_hand_run(int ordinal, wf_gpu_hand *h, wf_why *why)
{
    char name[40];
    wf_why own = {0};
    why = why ? why : &own;
    if (h->work == 0)
        return 0;
    snprintf(name, sizeof name, "%s%.*d_%s%s%s", h->section, h->wide > 0, h->wide,
             h->ntype > 0 ? wf_dtype_name(h->type[0]) : "", h->ntype > 1 ? "_" : "",
             h->ntype > 1 ? wf_dtype_name(h->type[1]) : "");
    const wf_gpu_entry *e = wf_gpu_entry_named(name, NULL, NULL, why);
    const wf_gpu_recipe recipe = {render, h, sizeof *h, false, 0};
    const wf_gpu_variant *v = e ? wf_gpu_variant_of(ordinal, e, "h", 1, &recipe, why) : NULL;
    if (!v)
        return why->code;
    return wf_gpu_start(
        ordinal,
        &(wf_gpu_launch){.v = v,
                         .blocks =
                             h->alone ? h->work
                                      : wf_gpu_blocks(ordinal, h->work,
                                                      h->per_block ? h->per_block : WF_GPU_THREADS),
                         .threads = h->threads ? h->threads : WF_GPU_THREADS,
                         .shared = h->shared,
                         .words = h->many ? h->many : h->w},
        why);
}
