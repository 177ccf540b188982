/*
 * tests/cuda/ptx/real_nvrtc.c -- the real NVRTC, which hands out PTX where it is asked for a cubin: libptx-nvrtc.so.
 *
 * Texts and options go through as they are but for the architecture, of which sm_90 becomes compute_90: the same PTX, without
 * the time that its assembler takes. PTX is kept (tests/cuda/nvrtc/store.h) by text, options and NVRTC: what a release build has
 * had compiled, a sanitized one, in which NVRTC takes three times as long, is handed. PTX_NVRTC names the library; otherwise it is looked for where a toolkit has it. Where there
 * is none, nothing has a version and whoever asks skips. PTX_LIST names a file that
 * gets a line a text with its bytes, and whether it was compiled or kept; PTX_KEEP a folder that gets what was made of them.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jit/codegen_cuda/nvrtc_api.h"
#include "tests/cuda/nvrtc/store.h"

#define EXPORT __attribute__((visibility("default")))

static struct {
#define F(field, symbol, params) int(*field) params;
    NVRTC_FUNCTIONS(F)
#undef F
} real;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool there;
static char version[100]; /* with what tells one build of it from another */

enum {
    OUT_OF_MEMORY = 1,
    INVALID_INPUT = 3,
    ABSENT = 11, /* NVRTC_ERROR_INTERNAL_ERROR */
    MOST_OPTIONS = 16
};

struct nvrtc_object {
    char *text, *name;
    char *made; /* the log, and PTX behind it */
    size_t size;
    bool kept;
    nvrtc_handle real; /* where it was needed */
};

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

/* A toolkit may be replaced by another with the same number. */
static void identify(void)
{
    void *address;
    Dl_info info;
    struct stat st = {0};
    int major = 0, minor = 0;
    memcpy(&address, &real.compile, sizeof address);
    real.version(&major, &minor);
    if (dladdr(address, &info))
        stat(info.dli_fname, &st);
    snprintf(version, sizeof version, "log and PTX of %d.%d, %lld bytes, %lld", major, minor,
             (long long)st.st_size, (long long)st.st_mtime);
}

static bool take(const char *folder, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s", folder, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    there = library && resolve(library);
    if (there) {
        open_builtins(path);
        identify();
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
    (void)headers;
    (void)names;
    if (!is_there())
        return ABSENT;
    if (n != 0)
        return INVALID_INPUT;
    *p = calloc(1, sizeof **p);
    if (*p) {
        (*p)->text = strdup(text);
        (*p)->name = strdup(name);
    }
    return *p && (*p)->text && (*p)->name ? 0 : OUT_OF_MEMORY;
}

int nvrtcDestroyProgram(nvrtc_handle *p)
{
    if ((*p)->real)
        real.destroy(&(*p)->real);
    free((*p)->text);
    free((*p)->name);
    free((*p)->made);
    free(*p);
    *p = NULL;
    return 0;
}

/* Those without an assembler; how many. */
static int own_options(int n, const char *const *options, char virtual_arch[64], const char **own)
{
    static const char arch[] = "--gpu-architecture=sm_";
    int count = 0;
    for (int i = 0; i < n && count < MOST_OPTIONS; i++) {
        if (strncmp(options[i], arch, sizeof arch - 1) == 0) {
            snprintf(virtual_arch, 64, "--gpu-architecture=compute_%s",
                     options[i] + sizeof arch - 1);
            own[count++] = virtual_arch;
        } else if (strncmp(options[i], "--ptxas-options", 15) != 0) {
            own[count++] = options[i];
        }
    }
    return count;
}

static int compile(nvrtc_handle p, int n, const char *const *options)
{
    size_t log = 0, ptx = 0;
    int code = real.create(&p->real, p->text, p->name, 0, NULL, NULL);
    if (code == 0)
        code = real.compile(p->real, n, options);
    if (code == 0)
        code = real.log_size(p->real, &log);
    if (code == 0)
        code = real.ptx_size(p->real, &ptx);
    if (code != 0)
        return code;
    p->size = log + ptx;
    p->made = malloc(p->size);
    if (!p->made)
        return OUT_OF_MEMORY;
    code = real.log(p->real, p->made);
    return code == 0 ? real.ptx(p->real, p->made + log) : code;
}

int nvrtcCompileProgram(nvrtc_handle p, int n, const char *const *options)
{
    const char *parts[MOST_OPTIONS + 3] = {version, p->name};
    char virtual_arch[64], folder[160], path[256];
    const int count = own_options(n, options, virtual_arch, parts + 2);
    parts[2 + count] = p->text;
    const store_key key = store_key_of(count + 3, parts);
    const bool stored = store_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/%016llx%016llx.ptx", folder, (unsigned long long)key.a,
             (unsigned long long)key.b);
    p->made = stored ? store_read(path, &p->size) : NULL;
    p->kept = p->made != NULL;
    if (p->kept)
        return 0;
    const int code = compile(p, count, parts + 2);
    if (code == 0 && stored)
        store_write(path, p->made, p->size);
    return code;
}

int nvrtcGetPTXSize(nvrtc_handle p, size_t *n)
{
    *n = p->made ? p->size - strlen(p->made) - 1 : 0;
    return p->made ? 0 : INVALID_INPUT;
}

int nvrtcGetPTX(nvrtc_handle p, char *text)
{
    size_t n;
    const int code = nvrtcGetPTXSize(p, &n);
    if (code == 0)
        memcpy(text, p->made + p->size - n, n);
    return code;
}

static void keep(nvrtc_handle p, const char *ptx)
{
    static int serial;
    char path[600];
    const char *folder = getenv("PTX_KEEP"), *list = getenv("PTX_LIST");
    FILE *l = list && list[0] ? fopen(list, "a") : NULL;
    if (l) {
        fprintf(l, "%zu bytes, %s\n", strlen(ptx), p->kept ? "kept" : "compiled");
        fclose(l);
    }
    if (!folder || !folder[0]) {
        return;
    }
    snprintf(path, sizeof path, "%s/%d-%d.ptx", folder, (int)getpid(),
             __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED));
    store_write(path, ptx, strlen(ptx));
}

int nvrtcGetCUBINSize(nvrtc_handle p, size_t *n)
{
    return nvrtcGetPTXSize(p, n);
}

int nvrtcGetCUBIN(nvrtc_handle p, char *image)
{
    const int code = nvrtcGetPTX(p, image);
    if (code == 0) {
        keep(p, image);
    }
    return code;
}

int nvrtcGetProgramLogSize(nvrtc_handle p, size_t *n)
{
    *n = p->made ? strlen(p->made) + 1 : 1;
    return p->made || !p->real ? 0 : real.log_size(p->real, n);
}

int nvrtcGetProgramLog(nvrtc_handle p, char *text)
{
    strcpy(text, p->made ? p->made : "");
    return p->made || !p->real ? 0 : real.log(p->real, text);
}
