/*
 * eager/cuda/library.h -- opening the vendor's libraries.
 */
#ifndef EAGER_CUDA_LIBRARY_H
#define EAGER_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* The first of the names that there is, as a path: in the folders of CUDA_HOME, of a toolkit in its usual place, among what pip
 * or conda installed for the Python that is active (VIRTUAL_ENV, CONDA_PREFIX). */
bool wf_cuda_library_find(const char *const *names, size_t n, char *path, size_t size);
/* Is there a driver, and is it one of CUDA 12, which runs nothing that CUDA 13's libraries and compiler make? Opens it. */
bool wf_cuda_is_before_13(void);
/* The same as wf_cuda_library_find of NVRTC, the compiler: the release that the driver takes code of, if it is there. */
bool wf_cuda_nvrtc_find(char *path, size_t size);
enum { WF_CUDA_WHY = 200 };
/* Opens a file, or what the loader finds of that name, for as long as the process lives. Of the first of a caller's that is there
 * and does not open, why says "(FILE) cannot be opened: " and the loader's reason; it stays "" while none is there. */
void *wf_cuda_library_load(const char *file, char why[WF_CUDA_WHY]);
/* setting: what the library's variable says: a file, "none" or "" for the usual: `names` one after the other, by name,
 * then what wf_cuda_library_find finds. With a driver of tests the usual is none, since
 * the library would look for a driver of its own. NULL: why says that `what` "is not found", or what wf_cuda_library_load says of it. */
void *wf_cuda_library_open(const char *setting, const char *what, const char *const *names,
                           size_t n, char why[WF_CUDA_WHY]);
/* *out := the function; false: the library has none of that name. */
bool wf_cuda_library_symbol(void *library, const char *symbol, void *out);

#endif
