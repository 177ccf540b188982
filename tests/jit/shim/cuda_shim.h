/*
 * tests/jit/shim/cuda_shim.h -- what makes CUDA text a C program: stands before the text when the host
 * compiler builds it. The machine that runs it is tests/jit/shim/fibers.h.
 */
#ifndef TESTS_JIT_SHIM_CUDA_SHIM_H
#define TESTS_JIT_SHIM_CUDA_SHIM_H

#include <math.h>

typedef struct shim_dim {
    unsigned x, y, z;
} shim_dim;

typedef struct shim_thread {
    shim_dim thread, block;
} shim_thread;

typedef struct shim_machine {
    shim_thread *self; /* the thread that runs */
    shim_dim block_dim, grid_dim;
    void (*sync)(int line);
    /* Publishes v, waits for the warp, leaves the value of lane `from` in v. */
    void (*shuffle)(int line, unsigned mask, void *v, unsigned size, int down, int from);
} shim_machine;

extern shim_machine *shim; /* set by whoever loads the program */
shim_machine *shim;

#define threadIdx (shim->self->thread)
#define blockIdx (shim->self->block)
#define blockDim (shim->block_dim)
#define gridDim (shim->grid_dim)
#define __global__
#define __device__
#define __forceinline__ __attribute__((unused)) inline
#define __shared__ static
#define __syncthreads() shim->sync(__LINE__)
#define __shfl_down_sync(mask, v, h)                                                               \
    ({                                                                                             \
        __typeof__(v) v_ = (v);                                                                    \
        shim->shuffle(__LINE__, mask, &v_, sizeof v_, 1, h);                                       \
        v_;                                                                                        \
    })
#define __shfl_sync(mask, v, lane)                                                                 \
    ({                                                                                             \
        __typeof__(v) v_ = (v);                                                                    \
        shim->shuffle(__LINE__, mask, &v_, sizeof v_, 0, lane);                                    \
        v_;                                                                                        \
    })
#define atomicMin(p, v)                                                                            \
    ({                                                                                             \
        __typeof__(*(p)) old_ = *(p);                                                              \
        *(p) = (v) < old_ ? (v) : old_;                                                            \
        old_;                                                                                      \
    })
#define __umul64hi(a, b) ((unsigned long long)(((unsigned __int128)(a) * (b)) >> 64))

#endif
