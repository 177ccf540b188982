/*
 * jit/codegen_cpu/render_total.h -- LLVM text of reductions in kernels over rows: combining lanes.
 */
#ifndef JIT_CODEGEN_CPU_RENDER_TOTAL_H
#define JIT_CODEGEN_CPU_RENDER_TOTAL_H

#include "jit/codegen_cpu/render.h"

/* One reduction of a stage. */
typedef struct wf_ll_total {
    int out; /* output of the body */
    wf_kty type;
    wf_kir combine;
    wf_kprim op;
    bool ordered;
    bool mirrored; /* the least of negated elements */
} wf_ll_total;

/* The reduction that the lanes do for op: for a largest float the least of the negated elements, of which the minimum takes
 * two instructions fewer than the maximum. */
void wf_ll_set_op(wf_ll_total *x, wf_kprim op);
/* a and b combined; the operand of the result. */
wf_ll wf_ll_combine(wf_text *t, const wf_ll_total *x, int lanes, const char *prefix, const char *a,
                    const char *b);
/* wf_llr_fold of its lanes; -1: there is none. */
int wf_ll_fold_of(const wf_ll_total *x);
/* <type from, type from + 1, ...> */
void wf_ll_counting(wf_text *t, int lanes, const char *type, int from);
/* %<tag>any := is some lane not ordinary? test: as wf_ll_hurry has them, "" for none. */
void wf_ll_any_rare(wf_text *t, int lanes, const char *tag, const wf_ll *test);

#endif
