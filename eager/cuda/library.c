/*
 * eager/cuda/library.c -- finding and opening the vendor's libraries; see library.h.
 */
#include "eager/cuda/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "eager/cuda/driver.h"
#include "eager/env.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { PATH_ROOM = WF_ENV_STR_MAX + 160 };

/* A text, or its end where there is no room for all: there stands what tells paths and reasons apart. */
static const char *end_of(const char *s, char *out, size_t size)
{
    const size_t n = strlen(s);
    const bool whole = n < size;
    const char *from = whole ? s : s + n - (size - sizeof "...");
    while (!whole && ((unsigned char)*from & 0xc0) == 0x80) { /* not from within a character */
        from++;
    }
    snprintf(out, size, "%s%s", whole ? "" : "...", from);
    return out;
}

/* The loader says the same of a file that is missing and of one that needs a missing one, but for the name it begins with. */
void *wf_cuda_library_load(const char *file, char why[WF_CUDA_WHY])
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *said = library ? NULL : dlerror();
    if (said && !*why) {
        const size_t n = strlen(file);
        const bool named = strncmp(said, file, n) == 0 && strncmp(said + n, ": ", 2) == 0;
        said += named ? n + 2 : 0;
        if (!named || !strstr(said, strerror(ENOENT))) {
            /* an error's sentence has room for both, with what the driver's and a tensor's say around them */
            char reason[93], name[120];
            end_of(said, reason, sizeof reason);
            snprintf(why, WF_CUDA_WHY, "(%s) cannot be opened: %s",
                     end_of(file, name, sizeof name - strlen(reason)), reason);
        }
    }
    return library;
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

void *wf_cuda_library_open(const char *setting, const char *what, const char *const *names,
                           size_t n, char why[WF_CUDA_WHY])
{
    const bool none = strcmp(setting, "none") == 0 || (!*setting && *wf_env()->WEFT_CUDA_DRIVER);
    char path[PATH_ROOM], reason[WF_CUDA_WHY] = "";
    void *library = NULL;
    if (*setting && !none) {
        library = wf_cuda_library_load(setting, reason);
    } else if (!none) {
        for (size_t i = 0; i < n && !library; i++) {
            library = wf_cuda_library_load(names[i], reason);
        }
        if (!library && wf_cuda_library_find(names, n, path, sizeof path)) {
            library = wf_cuda_library_load(path, reason);
        }
    }
    snprintf(why, WF_CUDA_WHY, "%.16s %.180s", what, *reason ? reason : "is not found");
    return library;
}

bool wf_cuda_library_symbol(void *library, const char *symbol, void *out)
{
    void *p = dlsym(library, symbol);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}
