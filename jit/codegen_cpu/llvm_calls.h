/*
 * jit/codegen_cpu/llvm_calls.h -- what generated code may call, for libweft-llvm's loader.
 */
#ifndef JIT_CODEGEN_CPU_LLVM_CALLS_H
#define JIT_CODEGEN_CPU_LLVM_CALLS_H

typedef struct wf_ll_callee {
    const char *name;
    void *address;
} wf_ll_callee;

enum { WF_LL_CALLEES = 14 };
extern const wf_ll_callee wf_ll_callees[WF_LL_CALLEES];

#endif
