/*
 * tests/jit/shim/machine.h -- the fibers of fibers.h for one loaded image: stands in libweft_shim.a, which
 * every image of the fake NVRTC is linked with.
 */
#ifndef TESTS_JIT_SHIM_MACHINE_H
#define TESTS_JIT_SHIM_MACHINE_H

#include <stdbool.h>

typedef struct shim_kernel {
    const char *name;
    void (*call)(void **params);
    bool fibers;           /* the text of the kernel has barriers or shuffles */
    const unsigned *sizes; /* of the arguments, in bytes, then 0 */
    unsigned shared;       /* bytes that __shared__ declares */
    unsigned threads;      /* of a block, at most: __launch_bounds__, or 256 */
} shim_kernel;

/* Ends with a kernel without a name; defined by the image. */
extern const shim_kernel shim_kernels[];

/* 0, or a CUresult: 1 bad value, 500 no such kernel, 719 launch failed (divergence). */
int wf_shim_launch(const char *kernel, const unsigned grid[3], const unsigned block[3],
                   unsigned shared_bytes, void **params);
int wf_shim_has(const char *kernel);
/* Bytes of argument i; 0 past the end. */
int wf_shim_param_size(const char *kernel, int i);
/* A CUfunction_attribute: 0 threads, 1 static shared memory. */
int wf_shim_attribute(const char *kernel, int attribute);

#endif
