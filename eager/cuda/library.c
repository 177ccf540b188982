/*
 * eager/cuda/library.c -- finding and opening the vendor's libraries; see library.h.
 */
#include "eager/cuda/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "eager/cuda/driver.h"
#include "eager/env.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { PATH_ROOM = WF_ENV_STR_MAX + 160 };

static void *open_file(const char *file)
{
    return dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* The first of the names that lies in a folder of home, at path. */
static bool find_in(const char *home, const char *const *names, size_t n, char *path, size_t size)
{
    static const char *const folders[] = {"", "/lib64", "/lib", "/targets/x86_64-linux/lib",
                                          "/targets/sbsa-linux/lib"};
    bool found = false;
    for (size_t f = 0; *home && !found && f < sizeof folders / sizeof *folders; f++) {
        for (size_t i = 0; i < n && !found; i++) {
            const int length = snprintf(path, size, "%s%s/%s", home, folders[f], names[i]);
            found = length < (int)size && access(path, R_OK) == 0;
        }
    }
    return found;
}

/* The same of the last (by name) of the folders that match a pattern below root; an empty root is none. */
static bool find_below(const char *root, const char *pattern, const char *const *names, size_t n,
                       char *path, size_t size)
{
    char all[PATH_ROOM];
    glob_t g = {0};
    snprintf(all, sizeof all, "%s%s", root, pattern);
    bool found = false;
    if (*root && glob(all, 0, NULL, &g) == 0) {
        for (size_t i = g.gl_pathc; i-- > 0 && !found;) {
            found = find_in(g.gl_pathv[i], names, n, path, size);
        }
    }
    globfree(&g);
    return found;
}

bool wf_cuda_library_find(const char *const *names, size_t n, char *path, size_t size)
{
    /* what pip installs, of CUDA 13 (nvidia/cu13) and of others (nvidia/cublas, nvidia/cudnn, ...) */
    static const char wheels[] = "/lib/python3*/site-packages/nvidia/*";
    const wf_env_values *env = wf_env();
    return find_in(env->CUDA_HOME, names, n, path, size) ||
           find_in("/usr/local/cuda", names, n, path, size) ||
           find_below(env->VIRTUAL_ENV, wheels, names, n, path, size) ||
           find_below(env->CONDA_PREFIX, "", names, n, path, size) ||
           find_below(env->CONDA_PREFIX, wheels, names, n, path, size) ||
           find_below("/usr/local", "/cuda-1[23]*", names, n, path, size);
}

/* A driver runs what its own major release or an older one made: that of CUDA 12 refuses the code and the runtime of 13. */
bool wf_cuda_is_before_13(void)
{
    const wf_cuda_driver *cu = wf_cuda_driver_open();
    return cu && cu->version < 13000;
}

bool wf_cuda_nvrtc_find(char *path, size_t size)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
    return (wf_cuda_is_before_13() && wf_cuda_library_find(names + 1, 1, path, size)) ||
           wf_cuda_library_find(names, sizeof names / sizeof *names, path, size);
}

void *wf_cuda_library_open(const char *setting, const char *const *names, size_t n)
{
    if (strcmp(setting, "none") == 0 || (!*setting && *wf_env()->WEFT_CUDA_DRIVER)) {
        return NULL;
    }
    if (*setting) {
        return open_file(setting);
    }
    char path[PATH_ROOM];
    void *library = NULL;
    for (size_t i = 0; i < n && !library; i++) {
        library = open_file(names[i]);
    }
    return library                                             ? library
           : wf_cuda_library_find(names, n, path, sizeof path) ? open_file(path)
                                                               : NULL;
}

bool wf_cuda_library_symbol(void *library, const char *symbol, void *out)
{
    void *p = dlsym(library, symbol);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}
