/*
 * tests/cuda/test_cuda_abi_nvrtc.c -- our own declarations of NVRTC (jit/codegen_cuda/nvrtc_api.h) are those of the toolkit's
 * header, and the library has the functions, where they are found.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>

#include "jit/codegen_cuda/nvrtc_api.h"

#if defined(WEFT_HAVE_CUDA_H) && defined(__has_include)
#if __has_include(<nvrtc.h>)
#define HAVE_NVRTC
#endif
#endif

#ifdef HAVE_NVRTC
#include <nvrtc.h>

_Static_assert((int)NVRTC_OK == (int)NVRTC_SUCCESS, "success");
_Static_assert((int)NVRTC_INVALID_OPTION == (int)NVRTC_ERROR_INVALID_OPTION, "option");

#define FUNCTIONS(F)                                                                               \
    F(version, nvrtcVersion)                                                                       \
    F(create, nvrtcCreateProgram)                                                                  \
    F(destroy, nvrtcDestroyProgram)                                                                \
    F(compile, nvrtcCompileProgram)                                                                \
    F(cubin_size, nvrtcGetCUBINSize)                                                               \
    F(cubin, nvrtcGetCUBIN)                                                                        \
    F(ptx_size, nvrtcGetPTXSize)                                                                   \
    F(ptx, nvrtcGetPTX)                                                                            \
    F(log_size, nvrtcGetProgramLogSize)                                                            \
    F(log, nvrtcGetProgramLog)

#define TABLE(F) NVRTC_FUNCTIONS(F)
#define RESULT int
#include "tests/cuda/abi_table.h"
#endif

Test(cuda_abi_nvrtc, declarations)
{
#ifndef HAVE_NVRTC
    cr_skip_test("nvrtc.h is not found");
#else
    cr_assert_eq(casts[0], sizeof(void *));
#endif
}

Test(cuda_abi_nvrtc, functions)
{
    void *lib = dlopen("libnvrtc.so.13", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    lib = lib ? lib : dlopen("libnvrtc.so.12", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib) {
        cr_skip_test("libnvrtc is not found");
    }
#define F(field, symbol, params) cr_assert(dlsym(lib, symbol), "%s", symbol);
    NVRTC_FUNCTIONS(F)
#undef F
}
