/*
 * jit/device_gpu.c -- the table of a GPU (eager/device.h): the CUDA runtime's memory, generated kernels.
 */
#include <dlfcn.h>

#include "eager/device.h"

static int open_gpu(int ordinal, wf_why *why)
{
    (void)ordinal;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver) {
        dlclose(driver);
    }
    return wf_fail(why, WEFT_EUNSUPPORTED, "%s",
                   driver
                       ? "the CUDA driver is there, but this version of weft runs no ops on it yet"
                       : "the CUDA driver (libcuda.so.1) is not found");
}

const wf_device_ops wf_device_gpu = {.name = "cuda", .open = open_gpu};
