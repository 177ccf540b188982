/*
 * tests/cuda/vendor.h -- what the fakes of NVIDIA's libraries share: calls that are to fail, work queued on the fake driver.
 */
#ifndef TESTS_CUDA_VENDOR_H
#define TESTS_CUDA_VENDOR_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "eager/cuda/api.h"

typedef void (*cu_host_fn)(void *arg); /* CUhostFn */
typedef int vendor_launch(cu_handle stream, cu_host_fn fn, void *arg);

/* Is the call that begins the one whose number the variable holds? Counts it. */
static inline bool vendor_fails(const char *variable, long *calls)
{
    const char *s = getenv(variable);
    return ++*calls, s && strtol(s, NULL, 10) == *calls;
}

/* v as tensor cores read an operand of f32: the nearest number of 10 bits of mantissa. */
static inline double vendor_tf32(double v)
{
    float f = (float)v;
    uint32_t w;
    memcpy(&w, &f, sizeof w);
    w = (w + 0xFFF + (w >> 13 & 1)) & ~UINT32_C(0x1FFF);
    memcpy(&f, &w, sizeof f);
    return (double)f;
}

/* cuLaunchHostFunc of the driver in use; NULL: there is none. */
static inline vendor_launch *vendor_driver(void)
{
    vendor_launch *launch = NULL;
    void *driver = dlopen(getenv("WEFT_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    void *fn = driver ? dlsym(driver, "cuLaunchHostFunc") : NULL;
    memcpy(&launch, &fn, sizeof fn);
    return launch;
}

#endif
