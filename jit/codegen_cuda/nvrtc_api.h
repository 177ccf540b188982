/*
 * jit/codegen_cuda/nvrtc_api.h -- the part of NVRTC's interface that is used, as a table of functions.
 *
 * Declared here for the reason given in eager/cuda/api.h, and compared with the toolkit's nvrtc.h like it
 * (tests/cuda/test_cuda_abi_nvrtc.c). All return 0 for success.
 */
#ifndef JIT_CODEGEN_CUDA_NVRTC_API_H
#define JIT_CODEGEN_CUDA_NVRTC_API_H

#include <stddef.h>

typedef struct nvrtc_object *nvrtc_handle; /* nvrtcProgram */

enum { NVRTC_OK = 0, NVRTC_INVALID_OPTION = 5 };

#define NVRTC_FUNCTIONS(F)                                                                         \
    F(create, "nvrtcCreateProgram",                                                                \
      (nvrtc_handle * p, const char *text, const char *name, int n, const char *const *headers,    \
       const char *const *names))                                                                  \
    F(version, "nvrtcVersion", (int *major, int *minor))                                           \
    F(destroy, "nvrtcDestroyProgram", (nvrtc_handle * p))                                          \
    F(compile, "nvrtcCompileProgram", (nvrtc_handle p, int n, const char *const *options))         \
    F(cubin_size, "nvrtcGetCUBINSize", (nvrtc_handle p, size_t * n))                               \
    F(cubin, "nvrtcGetCUBIN", (nvrtc_handle p, char *image))                                       \
    F(ptx_size, "nvrtcGetPTXSize", (nvrtc_handle p, size_t * n))                                   \
    F(ptx, "nvrtcGetPTX", (nvrtc_handle p, char *text))                                            \
    F(log_size, "nvrtcGetProgramLogSize", (nvrtc_handle p, size_t * n))                            \
    F(log, "nvrtcGetProgramLog", (nvrtc_handle p, char *text))

#endif
