/*
 * jit/gpu/gpu.h -- work on views of device memory: programs, copies, fills and the rows that have kernels.
 *
 * Everything is queued on the calling thread's current stream of the device; nothing waits for it. Whoever
 * calls has ordered the operands with wf_cuda_use. Views hold device addresses and any strides. Errors found
 * on the device (a bad index) come out of the next download or synchronisation.
 *
 * Kernels are made on first need by NVRTC from the rows' own text, kept for the life of the process and on
 * disk (docs/cuda-kernels.md). Elementwise results, reductions and random numbers have the CPU's bits.
 */
#ifndef JIT_GPU_GPU_H
#define JIT_GPU_GPU_H

#include "eager/exec.h"
#include "eager/program.h"

/* A finished program. `one` is not needed here: broadcast operands are seen from their strides. */
int wf_gpu_program(int ordinal, const wf_program *p, uint32_t one, const wf_program_args *a,
                   wf_why *why);
/* n runs of it, none of which reads or writes what another writes, in few launches. */
int wf_gpu_programs(int ordinal, const wf_program *p, int n, const wf_program_args *a, wf_why *why);
/* dst := src, as wf_copy: same dims, any strides, a rounding cast between dtypes. */
int wf_gpu_copy(int ordinal, const wf_view *dst, const wf_view *src, wf_why *why);
/* dst := one element of its dtype, in host memory. */
int wf_gpu_fill(int ordinal, const wf_view *dst, const void *value, wf_why *why);
/* A row that is not elementwise. WEFT_EUNSUPPORTED with e->why->rule empty: it has no kernel here (or not for
 * these operands) and nothing was queued; other errors as wf_exec_row. */
int wf_gpu_row(int ordinal, wf_exec *e);

typedef struct wf_gpu_stats {
    int64_t programs;         /* distinct programs and hand-written kernels seen */
    int64_t compiled, loaded; /* modules made by the compiler, or from disk */
    int64_t singles; /* runs instruction by instruction, as there was no fused kernel (yet) */
    int64_t compile_ns;
} wf_gpu_stats;
void wf_gpu_get_stats(wf_gpu_stats *s);
/* `singles` of this thread. */
int64_t wf_gpu_unsettled(void);
/* Until no kernel is being made (tests). */
void wf_gpu_wait_kernels(void);

#endif
