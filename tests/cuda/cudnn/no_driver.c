/*
 * tests/cuda/cudnn/no_driver.c -- a libcuda.so.1 that does nothing: for asking the real cuDNN what it would run.
 *
 * The library's engines are linked with the driver; choosing and compiling one only loads what was compiled. Built with the
 * driver's name as its own, so that it is found where a process has it open.
 */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, NO_DEVICE = 100, STUB = 34 };

#define NOTHING(name)                                                                              \
    EXPORT int name(void);                                                                         \
    EXPORT int name(void)                                                                          \
    {                                                                                              \
        return OK;                                                                                 \
    }
#define HANDLE(name)                                                                               \
    EXPORT int name(void **out);                                                                   \
    EXPORT int name(void **out)                                                                    \
    {                                                                                              \
        static int something;                                                                      \
        *out = &something;                                                                         \
        return OK;                                                                                 \
    }
#define NUMBER(name, value)                                                                        \
    EXPORT int name(int *out);                                                                     \
    EXPORT int name(int *out)                                                                      \
    {                                                                                              \
        *out = (value);                                                                            \
        return OK;                                                                                 \
    }
#define REFUSES(name, status)                                                                      \
    EXPORT int name(void);                                                                         \
    EXPORT int name(void)                                                                          \
    {                                                                                              \
        return status;                                                                             \
    }
#define TEXT(name)                                                                                 \
    EXPORT int name(int status, const char **out);                                                 \
    EXPORT int name(int status, const char **out)                                                  \
    {                                                                                              \
        (void)status;                                                                              \
        *out = "there is no driver";                                                               \
        return OK;                                                                                 \
    }

REFUSES(cuInit, NO_DEVICE)
REFUSES(cuGetProcAddress, STUB)
REFUSES(cuGetProcAddress_v2, STUB)
NUMBER(cuDriverGetVersion, 13000)
NUMBER(cuKernelGetAttribute, 0)
NUMBER(cuFuncGetAttribute, 0)
TEXT(cuGetErrorName)
TEXT(cuGetErrorString)
HANDLE(cuLibraryLoadData)
HANDLE(cuLibraryGetKernel)
HANDLE(cuKernelGetFunction)
HANDLE(cuModuleLoadData)
HANDLE(cuModuleLoadDataEx)
HANDLE(cuModuleGetFunction)
NOTHING(cuModuleUnload)
NOTHING(cuCtxGetCurrent)
NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuDeviceGet)
NOTHING(cuDeviceGetCount)
NOTHING(cuFuncSetAttribute)
NOTHING(cuKernelSetAttribute)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryLoadFromFile)
NOTHING(cuLibraryUnload)
NOTHING(cuLinkAddData)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate)
NOTHING(cuLinkDestroy)
NOTHING(cuOccupancyMaxActiveClusters)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamGetCtx)
NOTHING(cuTensorMapEncodeIm2col)
NOTHING(cuTensorMapEncodeTiled)
