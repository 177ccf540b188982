/*
 * jit/codegen_cpu/llvm_api.h -- what libweft-llvm.so offers the core: plain functions in one struct.
 *
 * Messages go to err, a buffer of errn bytes. Everything may be called from any thread. The ABI number is that of
 * this struct. What kernels call (llvm_calls.c) and the texts that call it change more often: two libraries whose sources of
 * these differ are not used together (`generator`), as a kernel that calls what it does not know computes anything.
 */
#ifndef JIT_CODEGEN_CPU_LLVM_API_H
#define JIT_CODEGEN_CPU_LLVM_API_H

#include <stddef.h>

enum { WF_LLVM_ABI = 5 };

typedef struct wf_llvm_api {
    unsigned abi;
    const char
        *generator; /* WF_LL_GENERATOR of cmake/WeftLibrary.cmake: a hash of render* and llvm* */
    /* What object code for the arch depends on: LLVM's version, the CPU and its features. */
    int (*describe)(const char *arch, char *out, size_t n);
    /* Object code of a module given as text, malloced. arch: "host" or a CPU name; "/0" behind it: made in the
     * least time, whatever it takes to run. 0 or -1. */
    int (*compile)(const char *arch, const char *text, size_t n, void **object, size_t *size,
                   char *err, size_t errn);
    /* The same as assembly, n bytes, malloced. */
    int (*assemble)(const char *arch, const char *text, size_t n, void **assembly, size_t *size,
                    char *err, size_t errn);
    /* Makes an object's function callable. 0 or -1. */
    int (*load)(const void *object, size_t size, const char *name, void **handle, void **function,
                char *err, size_t errn);
    void (*unload)(void *handle);
} wf_llvm_api;

/* The one exported symbol, "wf_llvm_open". */
const wf_llvm_api *wf_llvm_open(void);

#endif
