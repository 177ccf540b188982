/*
 * tests/cuda/ptx/real_nvrtc.c -- the real NVRTC, which hands out PTX where it is asked for a cubin: libptx-nvrtc.so.
 *
 * Texts and options go through as they are but for the architecture, of which sm_90 becomes compute_90: the same PTX, without
 * the time that its assembler takes. PTX_NVRTC names the library; otherwise it is looked for where a toolkit has it. Where there
 * is none, nothing has a version and whoever asks skips. PTX_LIST names a file that
 * gets a line a text, PTX_KEEP a folder that gets what was made of them.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/codegen_cuda/nvrtc_api.h"

#define EXPORT __attribute__((visibility("default")))

static struct {
#define F(field, symbol, params) int(*field) params;
    NVRTC_FUNCTIONS(F)
#undef F
} real;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool there;

enum { ABSENT = 11 }; /* NVRTC_ERROR_INTERNAL_ERROR */

EXPORT int nvrtcVersion(int *major, int *minor);
EXPORT int nvrtcCreateProgram(nvrtc_handle *p, const char *text, const char *name, int n,
                              const char *const *headers, const char *const *names);
EXPORT int nvrtcCompileProgram(nvrtc_handle p, int n, const char *const *options);
EXPORT int nvrtcGetCUBINSize(nvrtc_handle p, size_t *n);
EXPORT int nvrtcGetCUBIN(nvrtc_handle p, char *image);
EXPORT int nvrtcGetPTXSize(nvrtc_handle p, size_t *n);
EXPORT int nvrtcGetPTX(nvrtc_handle p, char *text);
EXPORT int nvrtcGetProgramLogSize(nvrtc_handle p, size_t *n);
EXPORT int nvrtcGetProgramLog(nvrtc_handle p, char *text);
EXPORT int nvrtcDestroyProgram(nvrtc_handle *p);

static bool resolve(void *library)
{
    void *symbol;
    bool all = true;
#define F(field, name, params)                                                                     \
    symbol = dlsym(library, name);                                                                 \
    all &= symbol != NULL;                                                                         \
    memcpy(&real.field, &symbol, sizeof symbol);
    NVRTC_FUNCTIONS(F)
#undef F
    return all;
}

/* The declarations of the language lie beside it, and are looked for by name. */
static void open_builtins(const char *path)
{
    char beside[700];
    int major = 0, minor = 0;
    const char *end = strrchr(path, '/');
    if (end && real.version(&major, &minor) == 0) {
        snprintf(beside, sizeof beside, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(end - path), path,
                 major, minor);
        dlopen(beside, RTLD_NOW | RTLD_LOCAL);
    }
}

static bool take(const char *folder, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s", folder, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    there = library && resolve(library);
    if (there) {
        open_builtins(path);
    }
    return there;
}

static void open_real(void)
{
    static const char *const names[] = {"/lib64/libnvrtc.so.13", "/lib64/libnvrtc.so.12",
                                        "/targets/x86_64-linux/lib/libnvrtc.so.13"};
    const char *home = getenv("CUDA_HOME"), *named = getenv("PTX_NVRTC");
    if (named) {
        take("", named);
        return;
    }
    for (int i = 0; i < 6 && !there; i++) {
        if (i >= 3 || home) {
            take(i < 3 ? home : "/usr/local/cuda", names[i % 3]);
        }
    }
    if (!there && !take("", "libnvrtc.so.13")) {
        take("", "libnvrtc.so.12");
    }
}

static bool is_there(void)
{
    pthread_once(&once, open_real);
    return there;
}

int nvrtcVersion(int *major, int *minor)
{
    return is_there() ? real.version(major, minor) : ABSENT;
}

int nvrtcCreateProgram(nvrtc_handle *p, const char *text, const char *name, int n,
                       const char *const *headers, const char *const *names)
{
    return is_there() ? real.create(p, text, name, n, headers, names) : ABSENT;
}

int nvrtcCompileProgram(nvrtc_handle p, int n, const char *const *options)
{
    static const char arch[] = "--gpu-architecture=sm_";
    const char *own[16];
    char virtual_arch[64];
    int count = 0;
    for (int i = 0; i < n && count < 16; i++) {
        if (strncmp(options[i], arch, sizeof arch - 1) == 0) {
            snprintf(virtual_arch, sizeof virtual_arch, "--gpu-architecture=compute_%s",
                     options[i] + sizeof arch - 1);
            own[count++] = virtual_arch;
        } else if (strncmp(options[i], "--ptxas-options", 15) != 0) {
            own[count++] = options[i];
        }
    }
    return real.compile(p, count, own);
}

int nvrtcGetCUBINSize(nvrtc_handle p, size_t *n)
{
    return real.ptx_size(p, n);
}

static void keep(const char *text)
{
    static int serial;
    char path[600];
    const char *folder = getenv("PTX_KEEP"), *list = getenv("PTX_LIST");
    FILE *l = list && list[0] ? fopen(list, "a") : NULL;
    if (l) {
        fprintf(l, "%zu bytes\n", strlen(text));
        fclose(l);
    }
    if (!folder || !folder[0]) {
        return;
    }
    snprintf(path, sizeof path, "%s/%d-%d.ptx", folder, (int)getpid(),
             __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED));
    FILE *f = fopen(path, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

int nvrtcGetCUBIN(nvrtc_handle p, char *image)
{
    const int code = real.ptx(p, image);
    if (code == 0) {
        keep(image);
    }
    return code;
}

int nvrtcGetPTXSize(nvrtc_handle p, size_t *n)
{
    return real.ptx_size(p, n);
}

int nvrtcGetPTX(nvrtc_handle p, char *text)
{
    return real.ptx(p, text);
}

int nvrtcGetProgramLogSize(nvrtc_handle p, size_t *n)
{
    return real.log_size(p, n);
}

int nvrtcGetProgramLog(nvrtc_handle p, char *text)
{
    return real.log(p, text);
}

int nvrtcDestroyProgram(nvrtc_handle *p)
{
    return real.destroy(p);
}
