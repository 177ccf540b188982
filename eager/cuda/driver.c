/*
 * eager/cuda/driver.c -- opens libcuda.so.1 and looks its functions up.
 */
#include "eager/cuda/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "eager/cuda/library.h"
#include "eager/env.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* The oldest driver whose interface is the one in api.h: 12.0. */
enum { OLDEST_DRIVER = 12000 };
#define NEWER "install NVIDIA's driver 525 or later"

static wf_cuda_driver functions;
static bool loaded;
static char missing[320];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Fills `missing` and returns false on failure. */
static bool start(wf_cuda_driver *d)
{
    cu_result r = d->driver_version(&d->version);
    if (r == CU_OK && d->version < OLDEST_DRIVER) {
        snprintf(missing, sizeof missing,
                 "the CUDA driver is version %d.%d, too old: 12.0 or later is needed; " NEWER,
                 d->version / 1000, d->version % 1000 / 10);
        return false;
    }
    r = r == CU_OK ? d->init(0) : r;
    r = r == CU_OK ? d->device_count(&d->devices) : r;
    if (r != CU_OK && r != CU_NO_DEVICE) {
        snprintf(missing, sizeof missing,
                 "the CUDA driver does not start: %s; nvidia-smi may say more",
                 wf_cuda_result_name(r));
        return false;
    }
    if (r == CU_NO_DEVICE || d->devices <= 0) {
        snprintf(missing, sizeof missing,
                 "the CUDA driver is there, but finds no GPU; nvidia-smi lists them, "
                 "CUDA_VISIBLE_DEVICES may hide them");
        return false;
    }
    return true;
}

static bool load(void)
{
    const char *path = wf_env()->WEFT_CUDA_DRIVER;
    if (strcmp(path, "none") == 0) {
        snprintf(missing, sizeof missing, "WEFT_CUDA_DRIVER is none");
        return false;
    }
    /* containers and WSL put it where the loader need not look */
    static const char *const usual[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                                        "/usr/lib/wsl/lib/libcuda.so.1"};
    const size_t n = *path ? 1 : sizeof usual / sizeof *usual;
    const char *name = NULL;
    void *library = NULL;
    char why[WF_CUDA_WHY] = "";
    for (size_t i = 0; !library && i < n; i++) {
        name = *path ? path : usual[i];
        library = wf_cuda_library_load(name, why);
    }
    if (!library && *why) {
        snprintf(missing, sizeof missing,
                 "the CUDA driver %s; reinstall it or set WEFT_CUDA_DRIVER", why);
    } else if (!library) {
        snprintf(missing, sizeof missing,
                 "the CUDA driver (%.100s) is not found; install NVIDIA's driver, or set "
                 "WEFT_CUDA_DRIVER",
                 *path ? path : usual[0]);
    }
    if (!library) {
        return false;
    }
    wf_cuda_driver *d = &functions;
    const char *absent = NULL;
#define F(field, symbol, params)                                                                   \
    if (!wf_cuda_library_symbol(library, symbol, &d->field)) {                                     \
        absent = symbol;                                                                           \
    }
    CU_FUNCTIONS(F)
#undef F
    if (absent) {
        snprintf(missing, sizeof missing, "the CUDA driver (%.110s) lacks %s: too old; " NEWER,
                 name, absent);
        return false;
    }
#define F(field, symbol, params) wf_cuda_library_symbol(library, symbol, &d->field);
    CU_OPTIONAL_FUNCTIONS(F)
#undef F
    d->has_vm = d->vm_granularity && d->vm_reserve && d->vm_unreserve && d->vm_create &&
                d->vm_release && d->vm_map && d->vm_unmap && d->vm_access;
    d->has_graphs = d->capture_begin && d->capture_end && d->graph_instantiate && d->graph_launch &&
                    d->graph_exec_destroy && d->graph_destroy;
    return start(d);
}

static void load_once(void)
{
    loaded = load();
}

const wf_cuda_driver *wf_cuda_driver_open(void)
{
    pthread_once(&once, load_once);
    return loaded ? &functions : NULL;
}

const char *wf_cuda_driver_missing(void)
{
    return wf_cuda_driver_open() ? NULL : missing;
}

const char *wf_cuda_result_name(cu_result r)
{
    const char *name = NULL;
    if (!functions.error_name || functions.error_name(r, &name) != CU_OK || !name) {
        static _Thread_local char number[32];
        snprintf(number, sizeof number, "CUDA error %d", r);
        return number;
    }
    return name;
}

bool wf_cuda_result_is_sticky(cu_result r)
{
    static const short sticky[] = {
        CU_DEINITIALIZED,
        CU_ECC_UNCORRECTABLE,
        CU_NVLINK_UNCORRECTABLE,
        CU_CONTAINED,
        CU_ILLEGAL_ADDRESS,
        CU_LAUNCH_TIMEOUT,
        CU_CONTEXT_IS_DESTROYED,
        CU_ASSERT,
        CU_HARDWARE_STACK,
        CU_ILLEGAL_INSTRUCTION,
        CU_MISALIGNED_ADDRESS,
        CU_INVALID_ADDRESS_SPACE,
        CU_INVALID_PC,
        CU_LAUNCH_FAILED,
        CU_TENSOR_MEMORY_LEAK,
        CU_EXTERNAL_DEVICE,
        CU_UNKNOWN,
    };
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++) {
        if (sticky[i] == r) {
            return true;
        }
    }
    return false;
}
