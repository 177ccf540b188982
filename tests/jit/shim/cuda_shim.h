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
    unsigned long long *dynamic;
    void (*sync)(int line);
    /* Publishes v, waits for the warp, leaves the value of lane `from` (down: that many lanes up) of the
     * thread's segment of `width` lanes in v. */
    void (*shuffle)(int line, unsigned mask, void *v, unsigned size, int down, int from, int width);
} shim_machine;

extern shim_machine *shim; /* set by whoever loads the program */
shim_machine *shim;

#define threadIdx (shim->self->thread)
#define blockIdx (shim->self->block)
#define blockDim (shim->block_dim)
#define gridDim (shim->grid_dim)
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __forceinline__ __attribute__((unused)) inline
#define __shared__ static
#define __syncthreads() shim->sync(__LINE__)
#define __align__(n) __attribute__((aligned(n)))
#define SHIM_SHUFFLE(mask, v, down, from, width)                                                   \
    ({                                                                                             \
        __typeof__(1 ? (v) : (v)) v_ = (v); /* not const */                                        \
        shim->shuffle(__LINE__, mask, &v_, sizeof v_, down, from, width);                          \
        v_;                                                                                        \
    })
#define SHIM_DOWN(mask, v, h, width, ...) SHIM_SHUFFLE(mask, v, 1, h, width)
#define SHIM_FROM(mask, v, lane, width, ...) SHIM_SHUFFLE(mask, v, 0, lane, width)
#define __shfl_down_sync(mask, ...) SHIM_DOWN(mask, __VA_ARGS__, 32, 0)
#define __shfl_sync(mask, ...) SHIM_FROM(mask, __VA_ARGS__, 32, 0)
#define __syncwarp() ((void)SHIM_SHUFFLE(0xFFFFFFFFu, 0, 0, 0, 32))
#define __ballot_sync(mask, p)                                                                     \
    ({                                                                                             \
        unsigned v_ = (p) ? 1u : 0u;                                                               \
        shim->shuffle(__LINE__, mask, &v_, sizeof v_, 2, 0, 32);                                   \
        v_;                                                                                        \
    })
static inline unsigned shim_byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
#define __byte_perm(x, y, selector) shim_byte_perm(x, y, selector)
#define __funnelshift_l(low, high, n)                                                              \
    ((unsigned int)(((unsigned long long)(high) << 32 | (unsigned int)(low)) << ((n)&31) >> 32))
static inline int shim_ffs(unsigned x)
{
    int n = x != 0;
    for (; x && !(x & 1); x >>= 1)
        n++;
    return n;
}
#define __ffs(x) shim_ffs((unsigned)(x))
#ifdef __TINYC__
#define _Pragma(text)
#endif
#define atomicCAS(p, expected, v)                                                                  \
    ({                                                                                             \
        __typeof__(*(p)) old_ = *(p);                                                              \
        if (old_ == (expected))                                                                    \
            *(p) = (v);                                                                            \
        old_;                                                                                      \
    })
#define __umulhi(a, b) ((unsigned int)(((unsigned long long)(a) * (b)) >> 32))
#define atomicMin(p, v)                                                                            \
    ({                                                                                             \
        __typeof__(*(p)) old_ = *(p);                                                              \
        *(p) = (v) < old_ ? (v) : old_;                                                            \
        old_;                                                                                      \
    })
static inline unsigned long long shim_umul64hi(unsigned long long a, unsigned long long b)
{
    const unsigned long long low = (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu),
                             x = (a >> 32) * (b & 0xFFFFFFFFu), y = (a & 0xFFFFFFFFu) * (b >> 32),
                             middle = (low >> 32) + (x & 0xFFFFFFFFu) + y;
    return (a >> 32) * (b >> 32) + (x >> 32) + (middle >> 32);
}
#define __umul64hi(a, b) shim_umul64hi(a, b)

#endif
