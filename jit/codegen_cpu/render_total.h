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
    uint64_t identity;
    wf_kprim op;
    bool ordered;
    bool mirrored; /* the least of negated elements */
} wf_ll_total;

/* The reduction that the lanes do for op: for a largest float the least of the negated elements, of which the minimum takes
 * two instructions fewer than the maximum. */
void wf_ll_set_op(wf_ll_total *x, wf_kprim op);
/* Combined with it, every value stays. */
uint64_t wf_ll_identity_of(wf_kprim op, wf_kty type);
/* a and b combined; the operand of the result. */
wf_ll wf_ll_combine(wf_text *t, const wf_ll_total *x, int lanes, const char *prefix, const char *a,
                    const char *b);
/* WF_LL_LANES / lanes vectors in `v` down to one value: the halving of the canonical order. */
wf_ll wf_ll_halve(wf_text *t, const wf_ll_total *x, int lanes, const char *prefix, wf_ll *v);
/* The function that combines 64 lanes in memory ("" where there is none, and the kernel does it). */
wf_ll wf_ll_fold_name(const wf_ll_total *x);
/* %<name> := the lanes at `lanes` combined, from lane `seen` on those behind them; in the last of some blocks those of all. */
wf_ll wf_ll_call_fold(wf_text *t, const wf_ll_total *x, const char *name, const char *lanes,
                      const char *seen, const char *block, const char *blocks);
/* <type from, type from + 1, ...> */
void wf_ll_counting(wf_text *t, int lanes, const char *type, int from);
/* %<tag>any := is some lane not ordinary? test: as wf_ll_hurry has them, "" for none. */
void wf_ll_any_rare(wf_text *t, int lanes, const char *tag, const wf_ll *test);

/* -- the cut of a kernel over rows (render_cut.c) ------------------------------------------------------------ */
void wf_ll_before_cut(wf_text *t);
/* slot: of the kernel's values; totals come to stand for those of the launch. */
void wf_ll_behind_cut(wf_text *t, const wf_kernel *k, wf_ll *slot);

#endif
