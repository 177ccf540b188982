/*
 * tests/cuda/real_dnn.h -- the real cuDNN asked what it would run on a GPU that is only described.
 *
 * Its engines link the driver, which need not be there: a library of that name whose functions do nothing is.
 */
#ifndef TESTS_CUDA_REAL_DNN_H
#define TESTS_CUDA_REAL_DNN_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "eager/cuda/dnn_graph.h"
#include "eager/cuda/library.h"
#include "tests/support/sanitized.h"
#if UNDER_ASAN
#include <sanitizer/lsan_interface.h>
#endif

/* What the library would read of a GPU; 9.19 and 9.28 ask for these. */
#define REAL_DNN_SM90(name, memory, clock, cache, width)                                           \
    "{\"version\":1,\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,\"deviceName\":"      \
    "\"" name "\",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"       \
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"                          \
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"                   \
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"       \
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"    \
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":" memory                                           \
    ",\"smClockRateKHz\":1980000,\"memClockRateKHz\":" clock ",\"l2CacheSize\":" cache             \
    ",\"memoryBusWidth\":" width ",\"oversizedSharedMemoryPerBlock\":0,\"smCountOrigin\":0}"
#define REAL_DNN_H100                                                                              \
    REAL_DNN_SM90("NVIDIA H100 80GB HBM3", "85014544384", "2619000", "52428800", "5120")
#define REAL_DNN_H200 REAL_DNN_SM90("NVIDIA H200", "150754820096", "3201000", "62914560", "6144")

/* The description as a descriptor of `about`; skips the test where there is no library that takes it. */
static inline dnn_handle real_dnn_device(dnn_graph_calls *calls, wf_dnn_graph *about,
                                         const char *description)
{
    static const char *const names[] = {"libcudnn.so.9"};
#if UNDER_ASAN
    __lsan_disable(); /* engines that the library unloads leave what they had */
#endif
    setenv("WEFT_CUDA_DRIVER", "", 1);
    void *driver = dlopen(WEFT_NO_DRIVER, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    char said[WF_CUDA_WHY] = "libcudnn.so.9 is not found";
    void *lib = driver ? wf_cuda_library_open("", names[0], names, 1, said) : NULL;
    if (!lib)
        cr_skip_test("%s", said);
#define F(field, symbol, params)                                                                   \
    cr_assert(wf_cuda_library_symbol(lib, symbol, &calls->field), symbol);
    DNN_GRAPH_FUNCTIONS(F)
#undef F
    *about = (wf_dnn_graph){.calls = calls};
    dnn_handle device = wf_dnn_make(about, DNN_DEVICE);
    wf_dnn_set(about, device, DNN_A_DEVICE_JSON, DNN_V_CHAR, (int64_t)strlen(description) + 1,
               description);
    wf_dnn_finalize(about, device);
    if (about->status != DNN_OK)
        cr_skip_test("this release of cuDNN plans for no GPU but the one it has (status %d)",
                     about->status);
    return device;
}

#endif
