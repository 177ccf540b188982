/*
 * tests/cuda/driver/module.c -- images and kernels of the fake driver (fake.h says what an image is).
 */
#include "tests/cuda/driver/core.h"
#include "tests/cuda/ptx/ptx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*launch_fn)(const char *kernel, const unsigned grid[3], const unsigned block[3],
                         unsigned shared, void **params);
struct image {
    ptx_module *ptx;
    void *library; /* NULL, and no ptx: built in */
    int fd; /* kept: an object's number must not be another's while it is loaded under that name */
    launch_fn launch;
    int (*has)(const char *kernel);
    int (*param_size)(const char *kernel, int i);
    int (*attribute)(const char *kernel, int attribute);
};

enum builtin { FILL_I32, ADD_I32, STORE_I64, CRASH, N_BUILTIN };
static const struct {
    const char *name;
    int n;
    unsigned char sizes[4];
} builtins[N_BUILTIN] = {
    [FILL_I32] = {"fill_i32", 3, {8, 8, 4}},
    [ADD_I32] = {"add_i32", 4, {8, 8, 8, 8}},
    [STORE_I64] = {"store_i64", 2, {8, 8}},
    [CRASH] = {"crash", 0, {0}},
};

static int find_builtin(const char *name)
{
    for (int i = 0; i < N_BUILTIN; i++) {
        if (strcmp(name, builtins[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

/* The size of an object file without the one who made it: the end of its section table. */
static size_t elf_size(const unsigned char *p)
{
    uint64_t table;
    uint16_t each, n;
    memcpy(&table, p + 40, 8);
    memcpy(&each, p + 58, 2);
    memcpy(&n, p + 60, 2);
    return (size_t)(table + (uint64_t)each * n);
}

static void find(void *library, const char *symbol, void *out)
{
    void *p = dlsym(library, symbol);
    memcpy(out, &p, sizeof p);
}

static cu_result open_object(image *m, const void *bytes)
{
    size_t n = elf_size(bytes);
    int fd = memfd_create("fake-cubin", MFD_CLOEXEC);
    if (fd < 0) {
        return CU_OUT_OF_MEMORY;
    }
    const char *p = bytes;
    for (size_t at = 0; at < n;) {
        ssize_t k = write(fd, p + at, n - at);
        if (k <= 0) {
            close(fd);
            return CU_OUT_OF_MEMORY;
        }
        at += (size_t)k;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    m->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    m->fd = fd;
    if (!m->library) {
        close(fd);
        return CU_INVALID_IMAGE;
    }
    find(m->library, "wf_shim_launch", &m->launch);
    find(m->library, "wf_shim_has", &m->has);
    find(m->library, "wf_shim_param_size", &m->param_size);
    find(m->library, "wf_shim_attribute", &m->attribute);
    return m->launch && m->has ? CU_OK : CU_INVALID_IMAGE;
}

static void note_fault(const char *what)
{
    fprintf(stderr, "PTX: %s\n", what);
    if (!fake.fault[0]) {
        snprintf(fake.fault, sizeof fake.fault, "%s", what);
    }
}

static cu_result load_ptx(image *m, const char *text)
{
    char error[512];
    m->ptx = ptx_load(text, error, sizeof error);
    if (!m->ptx) {
        note_fault(error);
    }
    return m->ptx ? CU_OK : CU_INVALID_IMAGE;
}

cu_result image_load(const void *bytes, image **out)
{
    image *m = calloc(1, sizeof *m);
    if (!m) {
        return CU_OUT_OF_MEMORY;
    }
    cu_result r = CU_INVALID_IMAGE;
    if (memcmp(bytes, "fake-cuda", 9) == 0) {
        r = CU_OK;
    } else if (memcmp(bytes, "//\n", 3) == 0 || memcmp(bytes, ".version", 8) == 0) {
        r = load_ptx(m, bytes);
    } else if (memcmp(bytes, "\177ELF\2\1", 6) == 0) {
        r = open_object(m, bytes);
    }
    if (r != CU_OK) {
        image_free(m);
        return r;
    }
    *out = m;
    return CU_OK;
}

void image_free(image *m)
{
    if (m->library) {
        dlclose(m->library);
        close(m->fd);
    }
    ptx_free(m->ptx);
    free(m);
}

cu_result image_kernel(image *m, const char *name, kernel **out)
{
    const int builtin = m->library || m->ptx ? -1 : find_builtin(name);
    const int number = m->ptx ? ptx_find(m->ptx, name) : -1;
    bool has = m->library ? m->has(name) != 0 : builtin >= 0 || number >= 0;
    kernel *k = has && strlen(name) < sizeof k->name ? calloc(1, sizeof *k) : NULL;
    if (!k) {
        return has ? CU_OUT_OF_MEMORY : CU_NOT_FOUND;
    }
    k->module = m;
    k->builtin = builtin;
    k->ptx = number;
    memcpy(k->name, name, strlen(name) + 1);
    k->threads = m->ptx         ? ptx_threads(m->ptx, number)
                 : m->attribute ? (unsigned)m->attribute(name, CU_FN_THREADS)
                                : 1024;
    k->fixed = m->ptx         ? ptx_shared(m->ptx, number)
               : m->attribute ? (unsigned)m->attribute(name, CU_FN_SHARED_STATIC)
                              : 0;
    k->dynamic = k->fixed < 48 << 10 ? (48u << 10) - k->fixed : 0;
    *out = k;
    return CU_OK;
}

static unsigned param_size(const kernel *k, int i)
{
    if (k->builtin >= 0) {
        return i < builtins[k->builtin].n ? builtins[k->builtin].sizes[i] : 0;
    }
    if (k->ptx >= 0) {
        return ptx_param_size(k->module->ptx, k->ptx, i);
    }
    int n = k->module->param_size(k->name, i);
    return n > 0 ? (unsigned)n : 0;
}

static void add_range(op *o, uint64_t address, int64_t size, bool write)
{
    if (size > 0) {
        o->ranges[o->n_ranges++] = (range){address, (size_t)size, write};
    }
}

static void param(const op *o, int i, void *out, size_t n)
{
    memcpy(out, o->params + o->param_at[i], n);
}

static void bind_ranges(op *o)
{
    uint64_t p[3] = {0, 0, 0};
    int64_t n = 0;
    if (o->fn->builtin == FILL_I32) {
        param(o, 0, &p[0], 8);
        param(o, 1, &n, 8);
        add_range(o, p[0], n * 4, true);
    } else if (o->fn->builtin == ADD_I32) {
        param(o, 3, &n, 8);
        for (int i = 0; i < 3; i++) {
            param(o, i, &p[i], 8);
            add_range(o, p[i], n * 4, i == 0);
        }
    } else if (o->fn->builtin == STORE_I64) {
        param(o, 0, &p[0], 8);
        add_range(o, p[0], 8, true);
    }
}

bool kernel_bind(op *o, void **params)
{
    if (o->fn->builtin < 0 && o->fn->ptx < 0 && !o->fn->module->param_size) {
        return false;
    }
    unsigned at = 0;
    o->params = malloc(PARAM_BYTES);
    for (int i = 0; o->params && i < MAX_PARAMS; i++) {
        unsigned n = param_size(o->fn, i);
        if (n == 0) {
            o->n_params = i;
            bind_ranges(o);
            return true;
        }
        at = (at + 15) & ~15u;
        if (at + n > PARAM_BYTES) {
            return false;
        }
        memcpy(o->params + at, params[i], n);
        o->param_at[i] = at;
        at += n;
    }
    return false;
}

static cu_result run_builtin(const op *o)
{
    uint64_t p[3] = {0, 0, 0};
    int64_t n = 0;
    int32_t v = 0;
    for (int i = 0; i < o->n_ranges; i++) {
        if (memory_device(o->ranges[i].address) >= 0 &&
            !memory_valid(o->ranges[i].address, o->ranges[i].size)) {
            return CU_ILLEGAL_ADDRESS;
        }
    }
    switch ((enum builtin)o->fn->builtin) {
    case FILL_I32:
        param(o, 0, &p[0], 8);
        param(o, 1, &n, 8);
        param(o, 2, &v, 4);
        for (int64_t i = 0; i < n; i++) {
            ((int32_t *)(uintptr_t)p[0])[i] = v;
        }
        return CU_OK;
    case ADD_I32:
        for (int i = 0; i < 3; i++) {
            param(o, i, &p[i], 8);
        }
        param(o, 3, &n, 8);
        for (int64_t i = 0; i < n; i++) {
            ((int32_t *)(uintptr_t)p[0])[i] =
                ((const int32_t *)(uintptr_t)p[1])[i] + ((const int32_t *)(uintptr_t)p[2])[i];
        }
        return CU_OK;
    case STORE_I64:
        param(o, 0, &p[0], 8);
        param(o, 1, &n, 8);
        *(int64_t *)(uintptr_t)p[0] = n;
        return CU_OK;
    case CRASH:
        return CU_ILLEGAL_ADDRESS;
    case N_BUILTIN:
        break;
    }
    return CU_UNKNOWN;
}

cu_result kernel_run(const op *o)
{
    if (o->fn->builtin >= 0) {
        return run_builtin(o);
    }
    void *params[MAX_PARAMS];
    for (int i = 0; i < o->n_params; i++) {
        params[i] = o->params + o->param_at[i];
    }
    return kernel_run_now(o->fn, o->grid, o->block, o->shared, params);
}

cu_result kernel_run_now(kernel *fn, const unsigned grid[3], const unsigned block[3],
                         unsigned shared, void **params)
{
    if (fn->ptx < 0) {
        return fn->module->launch(fn->name, grid, block, shared, params);
    }
    char error[512];
    const ptx_launch l = {
        {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, params, memory_range};
    const int r = ptx_run(fn->module->ptx, fn->ptx, &l, error, sizeof error);
    if (r != PTX_OK) {
        note_fault(error);
    }
    return r;
}
