/*
 * eager/cuda/module.c -- loaded images, their kernels, launches.
 */
#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/graph.h"
#include "eager/cuda/timeline.h"
#include "eager/env.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

struct wf_cuda_fn {
    wf_cuda_fn *next;
    wf_cuda_module *module;
    cu_handle handle;
    _Atomic unsigned shared; /* dynamic shared memory it may ask for */
    unsigned fixed;          /* shared memory that its code declares */
    _Atomic bool refused;    /* it does not fit on the device */
    bool overlaps;           /* it waits for what is before it */
    char name[];
};
struct wf_cuda_module {
    int ordinal;
    cu_handle handle;
    pthread_mutex_t lock;
    wf_cuda_fn *functions;
};

/* Shared memory of a kernel, declared and asked for at launch, that needs no permission. */
enum { SHARED_ALWAYS = 48 << 10 };

int wf_cuda_module_new(int ordinal, const void *image, size_t n, wf_cuda_module **out, wf_why *why)
{
    *out = NULL;
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    if (!d) {
        return wf_cuda_code(why);
    }
    if (n < 16) {
        return wf_fail(why, WEFT_EINVALID, "a kernel image of %zu bytes is none", n);
    }
    wf_cuda_module *m = wf_calloc(1, sizeof *m);
    if (!m) {
        return wf_fail(why, WEFT_ENOMEM, "no host memory for a kernel image");
    }
    cu_result r = wf_cu->module_load(&m->handle, image);
    if (r == CU_NO_BINARY_FOR_GPU || r == CU_INVALID_IMAGE) {
        wf_mfree(m);
        return wf_fail(why, WEFT_EUNSUPPORTED,
                       "driver %d.%d does not take a kernel for %s: %s; "
                       "update it, or name an older NVRTC in WEFT_NVRTC",
                       d->info.driver / 1000, d->info.driver % 1000 / 10, d->info.arch,
                       wf_cuda_result_name(r));
    }
    int code = wf_cuda_check(d, r, "cuModuleLoadData", why);
    if (code) {
        wf_mfree(m);
        return code;
    }
    m->ordinal = ordinal;
    atomic_fetch_add(&d->modules, 1);
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return 0;
}

/* Nobody promises that queued launches outlive their code. */
static void wait_for_all(wf_cuda_device *d)
{
    pthread_mutex_lock(&d->lock);
    int n = d->n_streams;
    pthread_mutex_unlock(&d->lock);
    WF_CUDA_COUNT(hidden_waits, n > 0);
    for (int i = 0; i < n; i++) {
        wf_cuda_wait_for(&d->streams[i]);
    }
}

/* A message that says what was launched last may name it all the same. */
static void forget_name(wf_cuda_device *d, const char *name)
{
    if (!d) {
        return;
    }
    pthread_mutex_lock(&d->label_lock);
    if (atomic_load_explicit(&d->last, memory_order_relaxed) == name) {
        snprintf(d->kept, sizeof d->kept, "%s", name);
        atomic_store_explicit(&d->last, d->kept, memory_order_release);
    }
    pthread_mutex_unlock(&d->label_lock);
}

void wf_cuda_module_free(wf_cuda_module *m)
{
    if (!m) {
        return;
    }
    wf_cuda_device *d = wf_cuda_peek(m->ordinal);
    if (d) {
        wf_cu->context_set(d->context);
        wait_for_all(d);
        wf_cu->module_unload(m->handle);
        atomic_fetch_sub(&d->modules, 1);
    }
    while (m->functions) {
        wf_cuda_fn *f = m->functions;
        m->functions = f->next;
        forget_name(d, f->name);
        wf_mfree(f);
    }
    pthread_mutex_destroy(&m->lock);
    wf_mfree(m);
}

static wf_cuda_fn *find_function(wf_cuda_module *m, const char *name)
{
    pthread_mutex_lock(&m->lock);
    wf_cuda_fn *f = m->functions;
    while (f && strcmp(f->name, name) != 0) {
        f = f->next;
    }
    pthread_mutex_unlock(&m->lock);
    return f;
}

int wf_cuda_function(wf_cuda_module *m, const char *name, wf_cuda_fn **out, wf_why *why)
{
    *out = NULL;
    wf_cuda_device *d = wf_cuda_enter(m->ordinal, why);
    if (!d) {
        return wf_cuda_code(why);
    }
    *out = find_function(m, name);
    if (*out) {
        return 0;
    }
    cu_handle handle = NULL;
    cu_result r = wf_cu->module_function(&handle, m->handle, name);
    if (r == CU_NOT_FOUND) {
        return wf_fail(why, WEFT_EINVALID, "the kernel image has no kernel %.100s", name);
    }
    int code = wf_cuda_check(d, r, "cuModuleGetFunction", why);
    if (code) {
        return code;
    }
    size_t n = strlen(name) + 1;
    wf_cuda_fn *f = wf_calloc(1, sizeof *f + n);
    if (!f) {
        return wf_fail(why, WEFT_ENOMEM, "no host memory for a kernel");
    }
    int fixed = 0;
    code = wf_cuda_check(d, wf_cu->function_get(&fixed, CU_FN_SHARED_STATIC, handle),
                         "cuFuncGetAttribute", why);
    if (code) {
        wf_mfree(f);
        return code;
    }
    f->module = m;
    f->handle = handle;
    f->fixed = (unsigned)(fixed > 0 ? fixed : 0);
    atomic_store(&f->shared, f->fixed < SHARED_ALWAYS ? SHARED_ALWAYS - f->fixed : 0);
    memcpy(f->name, name, n);
    pthread_mutex_lock(&m->lock);
    f->next = m->functions;
    m->functions = f;
    pthread_mutex_unlock(&m->lock);
    *out = f;
    return 0;
}

/* More shared memory than any kernel may have has to be asked for: all that there is, once. Asking for what a launch needs, two
 * threads could leave the smaller number standing, and the larger launch would be refused. */
static int allow_shared(wf_cuda_device *d, const wf_cuda_fn *f, unsigned shared, wf_why *why)
{
    wf_cuda_fn *g = (wf_cuda_fn *)(uintptr_t)f;
    if (shared <= atomic_load_explicit(&g->shared, memory_order_relaxed)) {
        return 0;
    }
    if ((uint64_t)shared + f->fixed > (uint64_t)d->info.shared_per_block) {
        return wf_fail(
            why, WEFT_EUNSUPPORTED,
            "kernel %.100s asks for %u bytes of shared memory besides its own %u, %s has "
            "%d",
            f->name, shared, f->fixed, d->info.arch, d->info.shared_per_block);
    }
    const int most = d->info.shared_per_block - (int)f->fixed;
    int code = wf_cuda_check(d, wf_cu->function_set(f->handle, CU_FN_SHARED_DYNAMIC, most),
                             "cuFuncSetAttribute", why);
    if (!code) {
        atomic_store_explicit(&g->shared, (unsigned)most, memory_order_relaxed);
    }
    return code;
}

void wf_cuda_overlap(wf_cuda_fn *f)
{
    f->overlaps = true;
}

/* Drivers before 12.3 have no edges of graphs by which a kernel begins early. */
enum { OVERLAPS_IN_GRAPHS = 12030 };

static bool may_overlap(const wf_cuda_fn *f, const wf_cuda_stream *s)
{
    const wf_cuda_info *d = &s->device->info;
    return f->overlaps && wf_env()->WEFT_CUDA_OVERLAP && wf_cu->launch_ex && d->major >= 9 &&
           (!s->capture || d->driver >= OVERLAPS_IN_GRAPHS);
}

/* The driver takes the attribute where the GPU has no such launches, too, and then ignores it; one that is too old for it has
 * no such function. */
static cu_result queue(const wf_cuda_fn *f, const wf_cuda_stream *s, const unsigned grid[3],
                       const unsigned block[3], unsigned shared, void **params)
{
    if (!may_overlap(f, s)) {
        return wf_cu->launch(f->handle, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                             shared, s->handle, params, NULL);
    }
    cu_launch_attribute overlaps = {.id = CU_LAUNCH_OVERLAPS, .value.overlaps = 1};
    const cu_launch_config config = {.grid = {grid[0], grid[1], grid[2]},
                                     .block = {block[0], block[1], block[2]},
                                     .shared = shared,
                                     .stream = s->handle,
                                     .attributes = &overlaps,
                                     .n = 1};
    return wf_cu->launch_ex(&config, f->handle, params, NULL);
}

int wf_cuda_launch(const wf_cuda_fn *f, const unsigned grid[3], const unsigned block[3],
                   unsigned shared, void **params, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(f->module->ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    int code = allow_shared(d, f, shared, why);
    if (code) {
        return code;
    }
    if (wf_cuda_renewed) {
        return wf_cuda_renew_kernel(f, f->handle, grid, block, shared, params, why);
    }
    wf_cuda_time_begin(s);
    cu_result r = queue(f, s, grid, block, shared, params);
    if (r == CU_INVALID_VALUE || r == CU_LAUNCH_OUT_OF_RESOURCES) {
        atomic_store(&((wf_cuda_fn *)(uintptr_t)f)->refused, true);
    }
    if (r != CU_OK && !wf_cuda_result_is_sticky(r)) {
        return wf_fail(why, WEFT_EUNSUPPORTED,
                       "kernel %.100s cannot be launched on cuda:%d (grid %ux%ux%u, block "
                       "%ux%ux%u): %s",
                       f->name, d->ordinal, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                       wf_cuda_result_name(r));
    }
    code = wf_cuda_check(d, r, "cuLaunchKernel", why);
    if (code) {
        return code;
    }
    code = wf_cuda_marking(s) ? wf_cuda_mark_kernel(s, f, shared, why) : 0;
    wf_cuda_launched(s, f->name);
    if (code) {
        return code;
    }
    return wf_env()->WEFT_CUDA_BLOCKING && !s->capture ? wf_cuda_stream_wait(s, why) : 0;
}

bool wf_cuda_is_refused(const wf_cuda_fn *f)
{
    return atomic_load(&f->refused);
}
