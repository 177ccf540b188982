/*
 * jit/lower_impl.h -- what the lowerings of elementwise programs and of programs with rows share.
 */
#ifndef JIT_LOWER_IMPL_H
#define JIT_LOWER_IMPL_H

#include "jit/lower.h"

typedef struct wf_lowering {
    const wf_program *p;
    wf_kir *k;
    bool device;
    bool relax;                       /* plain arithmetic is marked as relaxed */
    wf_kref value[WF_PROGRAM_VALUES]; /* what an instruction reads is there when it is lowered */
} wf_lowering;

/* The KIR type a program's value has. */
wf_kty wf_lower_type(int dtype);
/* Value v as type `to`. */
wf_kref wf_lower_as(wf_lowering *l, int v, wf_kty to);
/* A map, vjp or cast. */
wf_kref wf_lower_inst(wf_lowering *l, const wf_inst *inst);
/* Element `number` of drawn input j; its scalars have values. */
wf_kref wf_lower_draw(wf_lowering *l, int j, wf_kref number);
void wf_lower_name(const wf_program *p, wf_kernel *k);
/* Programs with ROW values; the kernel is initialised. */
int wf_lower_rows(const wf_program *p, bool device, wf_kernel *k, wf_why *why);

#endif
