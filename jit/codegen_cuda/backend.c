/*
 * jit/codegen_cuda/backend.c -- the CUDA back end up to a cubin: NVRTC, opened when first needed.
 *
 * Needs neither a driver nor a device. Without the library available() says why, and rendering still
 * works. load and launch are absent until the core has a device to run on.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "jit/codegen_cuda/nvrtc_api.h"
#include "jit/codegen_cuda/render.h"
#include "jit/ir/thread_text.h"

static struct {
#define F(field, symbol, params) int(*field) params;
    NVRTC_FUNCTIONS(F)
#undef F
} nvrtc;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool ready;
static char toolkit[512], library_file[512], reason[192], version[32], build[64];

void wf_cu_set_toolkit(const char *folder)
{
    snprintf(toolkit, sizeof toolkit, "%s", folder ? folder : "");
}

void wf_cu_set_library(const char *file)
{
    snprintf(library_file, sizeof library_file, "%s", file ? file : "");
}

static void (*whole_log)(const char *text);

void wf_cu_set_log(void (*take)(const char *text))
{
    whole_log = take;
}

const char *wf_cu_log(void)
{
    return wf_thread_text_get(WF_TEXT_COMPILER);
}

const char *wf_cu_generator(void)
{
    return WF_CU_GENERATOR;
}

static bool resolve(void *library)
{
    void *symbol;
#define F(field, name, params)                                                                     \
    symbol = dlsym(library, name);                                                                 \
    if (!symbol) {                                                                                 \
        snprintf(reason, sizeof reason, "libnvrtc has no " name);                                  \
        return false;                                                                              \
    }                                                                                              \
    memcpy(&nvrtc.field, &symbol, sizeof symbol);
    NVRTC_FUNCTIONS(F)
#undef F
    return true;
}

/* The file that was opened; NULL: nobody knows. */
static const char *file_of_library(void)
{
    Dl_info info;
    void *symbol = NULL;
    memcpy(&symbol, &nvrtc.create, sizeof symbol);
    return ready && dladdr(symbol, &info) ? info.dli_fname : NULL;
}

/* Builds of one version, and a test's stand-in for it, may make other code: which file it is. */
static void note_build(void)
{
    struct stat st;
    const char *file = file_of_library();
    if (file && stat(file, &st) == 0)
        snprintf(build, sizeof build, "%lld %lld.%09ld", (long long)st.st_size,
                 (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
}

/* NVRTC opens its declarations by name when it compiles, and pip's of CUDA 13 does not say that they lie beside it: what is
 * open is found. Where they are not there, the loader's own way is left. */
static void open_builtins(void)
{
    char path[640];
    const char *file = file_of_library(), *end = file ? strrchr(file, '/') : NULL;
    if (end) {
        snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%s", (int)(end - file), file,
                 version);
        dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
}

/* Of a long path the loader's sentence keeps its end, where the reason stands: as much as an error's has room for (jit/gpu/cache.c). */
static void keep_end(const char *said)
{
    enum { MOST = 97 };
    const size_t n = strlen(said);
    const char *from = n > MOST ? said + n - MOST : said;
    while (from > said && ((unsigned char)*from & 0xc0) == 0x80) { /* not from within a character */
        from++;
    }
    snprintf(reason, sizeof reason, "%s%s", from > said ? "..." : "", from);
}

static bool take(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        keep_end(dlerror());
        return false;
    }
    int major = 0, minor = 0;
    ready = resolve(library) && nvrtc.version(&major, &minor) == 0;
    snprintf(version, sizeof version, "%d.%d", major, minor);
    note_build();
    open_builtins();
    return true;
}

static void open_library(void)
{
    static const char *const folders[] = {"", "/lib64", "/lib", "/targets/x86_64-linux/lib"};
    static const char *const versions[] = {"13", "12"};
    char path[640];
    if (library_file[0]) {
        take(library_file);
        return;
    }
    for (size_t f = 0; f < 2 + sizeof folders / sizeof *folders; f++)
        for (size_t v = 0; v < 2; v++) {
            if (f < 4 && !toolkit[0])
                continue;
            if (f < 4)
                snprintf(path, sizeof path, "%s%s/libnvrtc.so.%s", toolkit, folders[f],
                         versions[v]);
            else
                snprintf(path, sizeof path, "%slibnvrtc.so.%s",
                         f == 4 ? "/usr/local/cuda/lib64/" : "", versions[v]);
            if (take(path))
                return;
        }
}

static int available(wf_why *why)
{
    pthread_once(&once, open_library);
    return ready ? 0
                 : wf_fail(why, WEFT_EUNSUPPORTED,
                           "no NVRTC to compile it (install the CUDA toolkit, or set WEFT_NVRTC or "
                           "CUDA_HOME): %s",
                           reason);
}

static void keep_log(nvrtc_handle p)
{
    size_t n = 0;
    char *compile_log = wf_thread_text(WF_TEXT_COMPILER);
    if (!compile_log)
        return;
    compile_log[0] = 0;
    if (nvrtc.log_size(p, &n) != 0 || n == 0)
        return;
    char *all = malloc(n + 1);
    if (all && nvrtc.log(p, all) == 0) {
        all[n] = 0;
        snprintf(compile_log, WF_THREAD_TEXT, "%s", all);
        if (whole_log)
            whole_log(all);
    }
    free(all);
}

/* The code, or the text that it was made of. */
static int take_result(nvrtc_handle p, bool ptx, wf_blob *out, wf_why *why)
{
    size_t n = 0;
    if ((ptx ? nvrtc.ptx_size : nvrtc.cubin_size)(p, &n) != 0 || n == 0)
        return wf_fail(why, WEFT_EUNSUPPORTED, "NVRTC made no code for this architecture");
    *out = (wf_blob){.data = malloc(n), .size = n};
    if (!out->data)
        return wf_fail(why, WEFT_ENOMEM, "no memory for %zu bytes of GPU code", n);
    if ((ptx ? nvrtc.ptx : nvrtc.cubin)(p, out->data) == 0)
        return 0;
    wf_blob_free(out);
    return wf_fail(why, WEFT_EUNSUPPORTED, "NVRTC did not hand out its code");
}

/* CUDA 13 has no compiler for Volta. */
static bool is_dropped(const char *arch)
{
    return strncmp(arch, "sm_", 3) == 0 && strtol(arch + 3, NULL, 10) < 75;
}

static int translate(const wf_target *target, const wf_text *text, bool ptx, wf_blob *out,
                     wf_why *why)
{
    int status = available(why);
    if (status != 0)
        return status;
    char arch[64];
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", target->arch);
    const char *const options[] = {arch,
                                   target->contract ? "--fmad=true" : "--fmad=false",
                                   "--ftz=false",
                                   "--prec-div=true",
                                   "--prec-sqrt=true",
                                   "--diag-suppress=177", /* helpers a kernel does not use */
                                   "--ptxas-options=-v",
                                   "--minimal"}; /* no textures, no runtime's types: a tenth */
    /* CUDA 12's first ones do not know the last. */
    const int count = (int)(sizeof options / sizeof *options) - (atoi(version) < 13);
    nvrtc_handle p = NULL;
    *out = (wf_blob){0};
    if (nvrtc.create(&p, text->s, "weft.cu", 0, NULL, NULL) != 0)
        return wf_fail(why, WEFT_ENOMEM, "NVRTC did not take the text");
    const int code = nvrtc.compile(p, count, options);
    keep_log(p);
    status = code == 0 ? take_result(p, ptx, out, why)
             : code == NVRTC_INVALID_OPTION
                 ? wf_fail(why, WEFT_EUNSUPPORTED,
                           "NVRTC %s does not know %s: name %s in WEFT_NVRTC or CUDA_HOME", version,
                           target->arch, is_dropped(target->arch) ? "CUDA 12's" : "a newer one")
                 : wf_fail(why, WEFT_EUNSUPPORTED, "NVRTC (%d): %.200s", code, wf_cu_log());
    nvrtc.destroy(&p);
    return status;
}

static int compile(const wf_target *target, const wf_text *text, wf_blob *out, wf_why *why)
{
    return translate(target, text, false, out, why);
}

/* PTX, which NVRTC makes on the way. */
static int assemble(const wf_target *target, const wf_text *text, wf_text *out, wf_why *why)
{
    wf_blob ptx;
    const int status = translate(target, text, true, &ptx, why);
    if (status == 0)
        wf_text_put(out, ptx.data, strnlen(ptx.data, ptx.size));
    wf_blob_free(&ptx);
    return status;
}

static int identify(const wf_target *target, wf_text *out, wf_why *why)
{
    const int status = available(why);
    if (status == 0)
        wf_text_putf(out, "cuda %s nvrtc %s of %s %s%s", WF_CU_GENERATOR, version, build,
                     target->arch, target->contract ? " contract" : "");
    return status;
}

const wf_backend wf_backend_cuda = {
    .name = "cuda",
    .available = available,
    .identify = identify,
    .render = wf_cuda_render,
    .compile = compile,
    .assemble = assemble,
};
