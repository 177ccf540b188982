/*
 * jit/codegen_cpu/backend.c -- the CPU back end as the core sees it: renders by itself, and opens
 * libweft-llvm.so when something is to be compiled.
 *
 * The library is looked for beside this code (the build tree and an installation have it there or next
 * door), then on the loader's path. Its absence is a capability that is reported once and remembered.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/codegen_cpu/backend_gdb.h"
#include "jit/codegen_cpu/llvm_api.h"
#include "jit/codegen_cpu/render.h"

#define LIBRARY "libweft-llvm.so.0.1"

struct wf_exe {
    size_t size; /* of the code */
    wf_gdb_entry *gdb;
    void *handle;
    void (*run)(void *const *ptr, const int64_t *size, const uint64_t *scalar, int64_t begin,
                int64_t end, uint64_t flags);
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const wf_llvm_api *llvm;
static char reason[192];
static atomic_bool for_gdb;

static bool try_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(reason, sizeof reason, "%.180s", dlerror());
        return false;
    }
    const wf_llvm_api *(*entry)(void);
    void *symbol = dlsym(library, "wf_llvm_open");
    memcpy(&entry, &symbol, sizeof entry);
    llvm = symbol ? entry() : NULL;
    if (llvm && llvm->abi == WF_LLVM_ABI && strcmp(llvm->generator, WF_LL_GENERATOR) == 0)
        return true;
    llvm = NULL;
    snprintf(reason, sizeof reason, "libweft-llvm is of another version than libweft");
    dlclose(library);
    return false;
}

/* Tries the folder of a file, and those next door where installations keep libraries. */
static bool try_beside(const char *file)
{
    static const char *const beside[] = {"", "../", "../lib/", "../lib/x86_64-linux-gnu/"};
    const char *slash = strrchr(file, '/');
    char path[1200];
    for (size_t i = 0; slash && i < sizeof beside / sizeof *beside; i++) {
        const int n =
            snprintf(path, sizeof path, "%.*s%s" LIBRARY, (int)(slash - file) + 1, file, beside[i]);
        if (n > 0 && (size_t)n < sizeof path && try_open(path))
            return true;
    }
    return false;
}

static void open_library(void)
{
    Dl_info self;
    char program[1024];
    if (dladdr((void *)open_library, &self) && self.dli_fname && try_beside(self.dli_fname))
        return;
    /* linked statically: the loader knows the program by the name it was called by only */
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    if (!try_beside(program))
        (void)try_open(LIBRARY);
}

static int available(wf_why *why)
{
    pthread_once(&once, open_library);
    return llvm ? 0 : wf_fail(why, WEFT_EUNSUPPORTED, "no LLVM back end: %s", reason);
}

static int identify(const wf_target *target, wf_text *out, wf_why *why)
{
    char text[4096];
    const int status = available(why);
    if (status != 0)
        return status;
    if (llvm->describe(target->arch, text, sizeof text) != 0)
        return wf_fail(why, WEFT_EUNSUPPORTED, "LLVM does not name its target");
    wf_text_putf(out, "generator " WF_LL_GENERATOR ", width %d, %s", target->width, text);
    return out->failed ? wf_fail(why, WEFT_ENOMEM, "no memory for a kernel's identity") : 0;
}

static int compile(const wf_target *target, const wf_text *text, wf_blob *out, wf_why *why)
{
    char message[200] = "";
    const int status = available(why);
    if (status != 0)
        return status;
    *out = (wf_blob){0};
    if (llvm->compile(target->arch, text->s, text->n, &out->data, &out->size, message,
                      sizeof message) != 0)
        return wf_fail(why, WEFT_EUNSUPPORTED, "LLVM: %s", message);
    return 0;
}

static int assemble(const wf_target *target, const wf_text *text, wf_text *out, wf_why *why)
{
    char message[200] = "";
    void *assembly;
    size_t size;
    const int status = available(why);
    if (status != 0)
        return status;
    if (llvm->assemble(target->arch, text->s, text->n, &assembly, &size, message, sizeof message) !=
        0)
        return wf_fail(why, WEFT_EUNSUPPORTED, "LLVM: %s", message);
    wf_text_put(out, assembly, size);
    free(assembly);
    return out->failed ? wf_fail(why, WEFT_ENOMEM, "no memory for a kernel's assembly") : 0;
}

static int load(const wf_blob *binary, const char *name, wf_exe **out, wf_why *why)
{
    char message[200] = "";
    const int status = available(why);
    if (status != 0)
        return status;
    wf_exe *e = malloc(sizeof *e);
    void *function = NULL;
    *out = NULL;
    if (!e)
        return wf_fail(why, WEFT_ENOMEM, "no memory for kernel %s", name);
    if (llvm->load(binary->data, binary->size, name, &e->handle, &function, message,
                   sizeof message) != 0) {
        free(e);
        return wf_fail(why, WEFT_EUNSUPPORTED, "LLVM: %s", message);
    }
    memcpy(&e->run, &function, sizeof e->run);
    Elf64_Sym symbol;
    e->size = wf_elf_symbol(binary, name, &symbol) ? symbol.st_size : 0;
    e->gdb = atomic_load(&for_gdb) ? wf_gdb_tell(binary, name, function) : NULL;
    *out = e;
    return 0;
}

static int launch(const wf_exe *e, const wf_launch *l)
{
    e->run(l->ptr, l->size, l->scalar, l->begin, l->end, l->flags);
    return 0;
}

static void unload(wf_exe *e)
{
    if (e) {
        wf_gdb_forget(e->gdb);
        llvm->unload(e->handle);
    }
    free(e);
}

static void locate(const wf_exe *e, const void **code, size_t *size)
{
    memcpy(code, &e->run, sizeof *code);
    *size = e->size;
}

static void debug(void)
{
    atomic_store(&for_gdb, true);
}

const wf_backend wf_backend_cpu = {
    .name = "cpu",
    .available = available,
    .identify = identify,
    .render = wf_llvm_render,
    .compile = compile,
    .assemble = assemble,
    .load = load,
    .launch = launch,
    .unload = unload,
    .locate = locate,
    .debug = debug,
};
