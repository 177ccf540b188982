/*
 * tests/gpu/gpu.h -- the GPU of a test: the real one under script/gpu, else the fake driver and the fake NVRTC, or what
 * WEFT_NVRTC names (libptx-nvrtc.so: the real one's PTX).
 */
#ifndef TESTS_GPU_GPU_H
#define TESTS_GPU_GPU_H

#include <stdlib.h>

#include "eager/cuda/runtime.h"
#include "tests/gpu/runner.h"
#include "weft/jit.h"

#ifndef WEFT_GPU_RUNNER
#include "tests/cuda/driver/fake.h"
#endif

/* The environment of the GPU; false: there is neither. seed: of the fake's order of execution. */
static inline bool gpu_prepare(uint64_t seed)
{
#ifdef WEFT_GPU_RUNNER
    (void)seed;
    return true;
#else
    /* as many processors as an H100 or H200 has: which kernels are chosen, and how many, is what it will be there */
    return setenv("FAKE_CUDA_PROCESSORS", "132", 0) == 0 && fake_cuda(FAKE_RANDOM, seed) &&
           setenv("WEFT_NVRTC", WEFT_FAKE_NVRTC, 0) == 0;
#endif
}

/* Not under compute-sanitizer, where each block has memory of its own and what the driver is asked for says nothing. */
static inline bool gpu_has_pools(void)
{
    const char *single = getenv("WEFT_CUDA_MEMCHECK");
    return !single || atoi(single) == 0;
}

/* The GPU with the vendor's libraries as the environment names them. */
static inline void gpu_open_as_set(uint64_t seed)
{
    wf_why why = {0};
    if (!gpu_prepare(seed)) {
        cr_skip_test("no fake driver");
    }
    if (wf_cuda_open(0, &why)) {
        cr_skip_test("no GPU: %s", why.rule);
    }
}

/* First in a test, before anything reads the environment. Skips it where there is neither. Without the vendor's libraries, whatever
 * the environment names: they sum in an order of their own, and test_gpu_libs.c is about them. */
static inline void gpu_open(uint64_t seed)
{
    if (setenv("WEFT_CUBLASLT", "none", 1) || setenv("WEFT_CUDNN", "none", 1)) {
        cr_skip_test("no environment");
    }
    gpu_open_as_set(seed);
}

static inline weft_jit_stats stats_of(weft_jit *j)
{
    weft_jit_stats s;
    weft_jit_get_stats(j, &s);
    return s;
}

/* Launches of the process so far. */
static inline int64_t gpu_launches(void)
{
    wf_cuda_counters c;
    wf_cuda_get_counters(&c);
    return c.launches;
}

#ifndef WEFT_GPU_RUNNER
/* The fake driver as it is, once it is open. */
static inline const fake_driver *gpu_fake(void)
{
    void *library = dlopen(WEFT_FAKE_CUDA, RTLD_NOW | RTLD_NOLOAD);
    const fake_driver *fake = library ? dlsym(library, "fake_driver_control") : NULL;
    cr_assert(fake);
    return fake;
}
#endif

/* Calls so far, of whatever code, that may wait for the device: all but those that queue work, look whether it is done, or bring a
 * kernel. A real driver does not count. */
static inline int64_t gpu_slow_calls(void)
{
    int64_t n = 0;
#ifndef WEFT_GPU_RUNNER
    static const char *const quick[] = {"cuCtxSetCurrent",
                                        "cuLaunchKernel",
                                        "cuLaunchKernelEx",
                                        "cuGraphLaunch",
                                        "cuMemcpyDtoDAsync_v2",
                                        "cuMemcpyHtoDAsync_v2",
                                        "cuMemsetD8Async",
                                        "cuEventRecord",
                                        "cuEventQuery",
                                        "cuStreamWaitEvent",
                                        "cuStreamQuery",
                                        "cuModuleLoadData",
                                        "cuModuleGetFunction",
                                        "cuFuncGetAttribute",
                                        "cuFuncSetAttribute",
                                        "cuEventCreate",
                                        "cuGraphExecKernelNodeSetParams_v2",
                                        "cuLaunchHostFunc" /* of the fake libraries */};
    const fake_driver *fake = gpu_fake();
    n = fake->calls(NULL);
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) {
        n -= fake->calls(quick[i]);
    }
#endif
    return n;
}

/* Was anything left unordered? Of a real GPU nobody can tell. */
static inline void gpu_check_races(void)
{
#ifndef WEFT_GPU_RUNNER
    const fake_driver *fake = fake_cuda(FAKE_RANDOM, 1);
    cr_assert_eq(fake->races(), 0, "%s", fake->first_race());
#endif
}

#endif
