/*
 * jit/codegen_cpu/llvm_fold.h -- reductions of kernels over rows behind their loops: lanes, and blocks, combined in the canonical order.
 */
#ifndef JIT_CODEGEN_CPU_LLVM_FOLD_H
#define JIT_CODEGEN_CPU_LLVM_FOLD_H

#include "jit/codegen_cpu/llvm_rows.h"

typedef struct wf_llr_folding {
    /* The lanes at now combined by halving, in place, those from `seen` on taken from before. The value's bits. */
    uint64_t (*lanes)(void *now, const void *before, int64_t seen, int64_t count);
    /* What block b of `blocks` came to, combined with what the others of its lane in `level` did; behind the last one that of all. */
    uint64_t (*block)(void *level, uint64_t bits, int64_t b, int64_t blocks);
    const void *start; /* lanes before the first element */
    uint64_t sign;     /* bit that negates a value */
    bool ordered;      /* blocks are combined one by one; others go on in the same lanes */
} wf_llr_folding;

/* Lanes are 16, 32 or 64 of f32, for the instructions that this CPU has. */
const wf_llr_folding *wf_llr_folding_of(wf_llr_fold fold);

#endif
