/*
 * jit/codegen_cpu/llvm_calls.c -- the functions that generated code calls: what compilers call (fma, memcpy),
 * and what is the same in every kernel, so that no kernel pays for compiling it.
 *
 * wf_tail runs a kernel's last, short group: the operands go through a group of their own in zeroed buffers, so
 * kernels have no second copy of their body and nothing is read outside the operands.
 * wf_rows is the driver of kernels over rows (llvm_rows.c).
 */
#include "jit/codegen_cpu/llvm_calls.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "jit/codegen_cpu/llvm_rows.h"
#include "jit/codegen_cpu/render.h"

typedef void kernel(void *const *ptr, const int64_t *size, const uint64_t *scalar, int64_t begin,
                    int64_t end, uint64_t flags);

/* Elements [begin, end) of a MAP kernel, fewer than its lanes. shape: the number of operands, how many of them are
 * destinations, then the bytes of an element of each, 0 where one element serves all. */
static void run_tail(kernel *run, const uint8_t *shape, void *const *ptr, const int64_t *size,
                     const uint64_t *scalar, int64_t begin, int64_t end, int64_t lanes)
{
    enum { WIDEST = 8 };
    _Alignas(64) char room[WF_KERNEL_MAX_PTR][WF_LL_LANES * WIDEST];
    void *group[WF_KERNEL_MAX_PTR];
    const int n = shape[0], ndst = shape[1];
    const uint8_t *bytes = shape + 2;
    for (int i = 0; i < n; i++) {
        const size_t left = (size_t)(end - begin) * bytes[i];
        group[i] = bytes[i] ? room[i] : ptr[i];
        if (i >= ndst && bytes[i]) {
            memset(room[i], 0, (size_t)lanes * bytes[i]);
            memcpy(room[i], (const char *)ptr[i] + begin * bytes[i], left);
        }
    }
    run(group, size, scalar, 0, lanes, 0);
    for (int i = 0; i < ndst; i++)
        memcpy((char *)ptr[i] + begin * bytes[i], room[i], (size_t)(end - begin) * bytes[i]);
}

const wf_ll_callee wf_ll_callees[WF_LL_CALLEES] = {
    {"fma", (void *)fma},          {"fmaf", (void *)fmaf},          {"rint", (void *)rint},
    {"rintf", (void *)rintf},      {"floor", (void *)floor},        {"floorf", (void *)floorf},
    {"ceil", (void *)ceil},        {"ceilf", (void *)ceilf},        {"trunc", (void *)trunc},
    {"truncf", (void *)truncf},    {"memcpy", (void *)memcpy},      {"memset", (void *)memset},
    {"wf_tail", (void *)run_tail}, {"wf_rows", (void *)wf_llr_run},
};
