/*
 * eager/cuda/library.c -- opening the vendor's libraries; see library.h.
 */
#include "eager/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "eager/env.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

static void *open_file(const char *file)
{
    return dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void *open_in(const char *home, const char *const *names, size_t n)
{
    static const char *const folders[] = {"", "/lib64", "/lib", "/targets/x86_64-linux/lib",
                                          "/targets/sbsa-linux/lib"};
    void *library = NULL;
    for (size_t f = 0; *home && !library && f < sizeof folders / sizeof *folders; f++) {
        for (size_t i = 0; i < n && !library; i++) {
            char path[WF_ENV_STR_MAX + 96];
            snprintf(path, sizeof path, "%s%s/%s", home, folders[f], names[i]);
            library = open_file(path);
        }
    }
    return library;
}

void *wf_cuda_library_open(const char *setting, const char *const *names, size_t n)
{
    if (strcmp(setting, "none") == 0 || (!*setting && *wf_env()->WEFT_CUDA_DRIVER)) {
        return NULL;
    }
    if (*setting) {
        return open_file(setting);
    }
    void *library = NULL;
    for (size_t i = 0; i < n && !library; i++) {
        library = open_file(names[i]);
    }
    library = library ? library : open_in(wf_env()->CUDA_HOME, names, n);
    return library ? library : open_in("/usr/local/cuda", names, n);
}

bool wf_cuda_library_symbol(void *library, const char *symbol, void *out)
{
    void *p = dlsym(library, symbol);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}
