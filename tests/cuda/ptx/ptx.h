/*
 * tests/cuda/ptx/ptx.h -- PTX executed on the host, instruction by instruction: what NVRTC really makes of a kernel.
 *
 * A text is decoded as a whole when it is loaded: a directive, an instruction, a modifier or a type that is not known is an
 * error with its line, and nothing is ever passed over. Arithmetic is that of the manual, to the bit; of approximations, for
 * which the manual gives a bound only, a hash of the operand chooses among the results within it.
 *
 * Warps of a block are run one after the other, each until it has to meet others at a barrier; of its lanes those that are behind go first, and
 * those that stand at one instruction carry it out together. A launch
 * fails, naming the instruction, the block and the thread, at: an access outside of what the device may reach, or that is no
 * multiple of its size; two threads that touch the same byte of shared or global memory, one of them to write something else
 * than what stands there, with nothing between that orders them (of allocations up to 1 MiB, and but for atomics); threads that meet at different barriers, or wait for one that is not coming; a lane that is asked for a
 * value and does not take part; .nc of what is written; and global memory before griddepcontrol.wait in a kernel that has one.
 */
#ifndef TESTS_CUDA_PTX_PTX_H
#define TESTS_CUDA_PTX_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx_module ptx_module;

/* NULL with a text in error: what is not understood, or no memory. */
ptx_module *ptx_load(const char *text, char *error, size_t n);
void ptx_free(ptx_module *m);
/* Its number, or -1. */
int ptx_find(const ptx_module *m, const char *kernel);
/* Bytes of parameter i; 0 past the last. */
unsigned ptx_param_size(const ptx_module *m, int kernel, int i);
/* What .maxntid says (1024 without), and the bytes of shared memory that it declares. */
unsigned ptx_threads(const ptx_module *m, int kernel);
unsigned ptx_shared(const ptx_module *m, int kernel);

typedef struct ptx_launch {
    unsigned grid[3], block[3];
    unsigned shared; /* dynamic */
    void **params;
    /* The memory that the device may use around an address, [*low, *high); false: none. */
    bool (*reach)(uint64_t address, uint64_t *low, uint64_t *high);
} ptx_launch;

/* What a launch comes to: a CUresult. */
enum {
    PTX_OK = 0,
    PTX_OUT_OF_MEMORY = 2,
    PTX_ILLEGAL_ADDRESS = 700,
    PTX_MISALIGNED = 716,
    PTX_LAUNCH_FAILED = 719
};
int ptx_run(const ptx_module *m, int kernel, const ptx_launch *l, char *error, size_t n);

#endif
