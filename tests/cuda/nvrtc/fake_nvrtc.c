/*
 * tests/cuda/nvrtc/fake_nvrtc.c -- an NVRTC whose GPU is this machine: libfake-nvrtc.so.
 *
 * Compiling checks that the options are the strict ones (but for contraction, which it has the compiler do) and hands the text to a C compiler of the host with
 * tests/jit/shim before it. The "cubin" is a shared object that exports wf_shim_launch and wf_shim_has
 * (tests/jit/shim/machine.h). Objects are kept (store.h), so that a text is compiled once, whichever test asks.
 *
 * FAKE_NVRTC_LOG=file appends the hash and the names of the kernels of each text that is asked for; FAKE_NVRTC_TEXTS=folder
 * keeps the texts themselves, once each, for the real compiler (test_cuda_nvrtc), under the hash of text and contraction. FAKE_NVRTC_BUILTINS=1: compiles only where
 * libnvrtc-builtins is found by its name, as the real one does.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda/nvrtc/store.h"

#define EXPORT __attribute__((visibility("default")))
enum {
    OK = 0,
    OUT_OF_MEMORY = 1,
    INVALID_INPUT = 3,
    INVALID_OPTION = 5,
    COMPILATION = 6,
    BUILTIN_OPERATION = 7
};

typedef struct fake_program {
    char *text, *image;
    size_t size;
    bool contract; /* --fmad=true: fast math */
    char log[4096];
} fake_program;
typedef fake_program *program;

EXPORT int nvrtcVersion(int *major, int *minor);
EXPORT int nvrtcCreateProgram(program *p, const char *text, const char *name, int n,
                              const char *const *headers, const char *const *names);
EXPORT int nvrtcCompileProgram(program p, int n, const char *const *options);
EXPORT int nvrtcGetCUBINSize(program p, size_t *n);
EXPORT int nvrtcGetCUBIN(program p, char *image);
EXPORT int nvrtcGetPTXSize(program p, size_t *n);
EXPORT int nvrtcGetPTX(program p, char *text);
EXPORT int nvrtcGetProgramLogSize(program p, size_t *n);
EXPORT int nvrtcGetProgramLog(program p, char *log);
EXPORT int nvrtcDestroyProgram(program *p);

int nvrtcCreateProgram(program *p, const char *text, const char *name, int n,
                       const char *const *headers, const char *const *names)
{
    (void)name;
    (void)headers;
    (void)names;
    if (n != 0)
        return INVALID_INPUT;
    *p = calloc(1, sizeof **p);
    if (*p)
        (*p)->text = strdup(text);
    return *p && (*p)->text ? OK : OUT_OF_MEMORY;
}

int nvrtcDestroyProgram(program *p)
{
    free((*p)->text);
    free((*p)->image);
    free(*p);
    *p = NULL;
    return OK;
}

/* -- options ------------------------------------------------------------------------------------------------ */
static bool has_option(int n, const char *const *options, const char *wanted)
{
    for (int i = 0; i < n; i++)
        if (strncmp(options[i], wanted, strlen(wanted)) == 0)
            return true;
    return false;
}

static bool check_options(program p, int n, const char *const *options)
{
    static const char *const strict[] = {
        "--fmad=",  "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--gpu-architecture=sm_",
        "--minimal"};
    for (size_t i = 0; i < sizeof strict / sizeof *strict; i++)
        if (!has_option(n, options, strict[i])) {
            snprintf(p->log, sizeof p->log, "fake NVRTC: %s is not among the options", strict[i]);
            return false;
        }
    if (has_option(n, options, "--use_fast_math") || has_option(n, options, "-use_fast_math")) {
        snprintf(p->log, sizeof p->log, "fake NVRTC: fast math");
        return false;
    }
    if (has_option(n, options, "--gpu-architecture=sm_999")) {
        snprintf(p->log, sizeof p->log, "fake NVRTC: an architecture of the future");
        return false;
    }
    if (has_option(n, options, "--gpu-architecture=sm_70") ||
        has_option(n, options, "--gpu-architecture=sm_72")) {
        snprintf(p->log, sizeof p->log, "fake NVRTC: an architecture that CUDA 13 dropped");
        return false;
    }
    p->contract = has_option(n, options, "--fmad=true");
    return true;
}

/* -- the text as a C program ---------------------------------------------------------------------------------- */
static const char mark[] = "WF_EXTERN __global__ void ";

typedef struct wf_pieces {
    char s[4096];
    size_t at;
} wf_pieces;

/* The name of the kernel whose mark is at s; *threads: its bounds. A kernel that states none may use every register
 * that a block of 256 has. */
static const char *kernel_name(const char *s, unsigned *threads)
{
    static const char bounds[] = "__launch_bounds__(";
    s += sizeof mark - 1;
    *threads = 256;
    if (strncmp(s, bounds, sizeof bounds - 1) == 0) {
        *threads = (unsigned)atoi(s + sizeof bounds - 1);
        s = strchr(s, ')') + 2;
    }
    return s;
}

/* "+ sizeof(T[64]) ..." of the declarations "__shared__ T name[64];" between begin and end. */
static void put_shared(FILE *f, const char *begin, const char *end)
{
    static const char word[] = "__shared__ ";
    for (const char *s = begin; (s = strstr(s, word)) != NULL && s < end;) {
        s += sizeof word - 1;
        const char *stop = strchr(s, ';'), *extents = s, *name;
        while (extents < stop && *extents != '[')
            extents++;
        name = extents;
        while (name > s && name[-1] != ' ')
            name--;
        fprintf(f, " + sizeof(%.*s%.*s)", (int)(name - s), s, (int)(stop - extents), extents);
    }
}

static bool has_sync(const char *begin, const char *end)
{
    for (const char *s = begin; (s = strstr(s, "sync")) != NULL && s < end; s++)
        if (strncmp(s - 2, "__syncthreads", 13) == 0 || s[-1] == '_')
            return true;
    return false;
}

/* A call "k(*(T *)params[0], ...);" from "T name, ...", and the sizes of the arguments. */
static void put_call(FILE *f, const char *name, int nname, const char *params, const char *end)
{
    wf_pieces sizes = {0};
    fprintf(f, "static void call_%.*s(void **params)\n{\n    %.*s(", nname, name, nname, name);
    for (int i = 0; params < end; i++) {
        const char *stop = params;
        while (stop < end && *stop != ',')
            stop++;
        const char *type = stop; /* without the name */
        while (
            type > params &&
            (type[-1] == '_' || (type[-1] | 32) >= 'a' || (type[-1] >= '0' && type[-1] <= '9')) &&
            (type[-1] | 32) <= 'z')
            type--;
        fprintf(f, "%s*(%.*s *)params[%d]", i ? ", " : "", (int)(type - params), params, i);
        sizes.at += (size_t)snprintf(sizes.s + sizes.at, sizeof sizes.s - sizes.at,
                                     "sizeof(%.*s), ", (int)(type - params), params);
        params = stop < end ? stop + 1 : end;
    }
    fprintf(f, ");\n}\nstatic const unsigned sizes_%.*s[] = {%s0};\n", nname, name, sizes.s);
}

static void put_program(FILE *f, const char *text)
{
    const char *first = strstr(text, mark);
    const bool helper = first && has_sync(text, first);
    fprintf(f, "#include \"cuda_shim.h\"\n%s\n", text);
    for (const char *s = first; s; s = strstr(s + 1, mark)) {
        unsigned threads;
        const char *name = kernel_name(s, &threads), *open = strchr(name, '('),
                   *close = strchr(open, ')');
        put_call(f, name, (int)(open - name), open + 1, close);
    }
    fprintf(f, "struct shim_kernel { const char *name; void (*call)(void **); _Bool fibers; "
               "const unsigned *sizes; unsigned shared, threads; };\n"
               "const struct shim_kernel shim_kernels[] = {\n");
    for (const char *s = first; s; s = strstr(s + 1, mark)) {
        unsigned threads;
        const char *name = kernel_name(s, &threads), *next = strstr(name, mark);
        const char *end = next ? next : name + strlen(name);
        const int n = (int)(strchr(name, '(') - name);
        fprintf(f, "    {\"%.*s\", call_%.*s, %d, sizes_%.*s, 0", n, name, n, name,
                helper || has_sync(name, end), n, name);
        put_shared(f, name, end);
        fprintf(f, ", %u},\n", threads);
    }
    fprintf(f, "    {0}};\n");
    for (const char *s = first; s; s = strstr(s + 1, mark)) {
        const char *next = strstr(s + 1, mark);
        fprintf(f, "_Static_assert(0");
        put_shared(f, s, next ? next : s + strlen(s));
        fprintf(f, " <= 48 << 10, \"a kernel declares more shared memory than there is\");\n");
    }
}

/* -- compiling -------------------------------------------------------------------------------------------------- */
/* Another minor version for every other fake: what depends on NVRTC's version is made anew. */
int nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = (int)(store_key_of(1, (const char *[]){FAKE_VERSION}).a % 1000000);
    return OK;
}

static int read_image(program p, const char *path)
{
    p->image = store_read(path, &p->size);
    return p->image ? OK : COMPILATION;
}

static void read_log(program p, const char *path)
{
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(p->log, 1, sizeof p->log - 1, f) : 0;
    p->log[n] = 0;
    if (f)
        fclose(f);
}

/* Products and attention go through tiles of numbers, a training step's for most of its time. */
static bool has_tiles(const char *text)
{
    return strstr(text, "/* == tile_common") || strstr(text, "/* == flash_common") ||
           strstr(text, "/* == transpose");
}

/* A kernel runs on a few elements, in less time than it takes gcc to read it: tcc translates it in a tenth. Contraction is an
 * optimiser's. */
static void put_compiler(program p, char *out, size_t n)
{
    const char *const fma = __builtin_cpu_supports("fma") ? "-mfma" : ""; /* else a call each */
    if (p->contract)
        snprintf(out, n, FAKE_CC " -O1 -ffp-contract=fast -mfma -fexpensive-optimizations");
    else if (has_tiles(p->text))
        snprintf(out, n, FAKE_CC " -O2 -ffp-contract=off %s", fma);
    else
        snprintf(out, n, FAKE_QUICK_CC);
}

static int build(program p, const char *folder, const char *target)
{
    static _Atomic int serial;
    char base[256], path[300], log[300], object[300], with[512], command[2560];
    snprintf(base, sizeof base, "%s/%d-%d", folder, (int)getpid(), serial++);
    snprintf(path, sizeof path, "%s.c", base);
    snprintf(log, sizeof log, "%s.log", base);
    FILE *f = fopen(path, "w");
    if (!f)
        return COMPILATION;
    put_program(f, p->text);
    if (fclose(f) != 0)
        return COMPILATION;
    put_compiler(p, with, sizeof with);
    snprintf(command, sizeof command,
             "exec %s -I" FAKE_SOURCE_DIR
             "/tests/jit/shim %s -shared -Wl,--whole-archive " FAKE_MACHINE
             " -Wl,--no-whole-archive -o %s.so -lm 2>%s",
             with, path, base, log);
    snprintf(object, sizeof object, "%s.so", base);
    const int status = system(command) || rename(object, target);
    if (status != 0)
        read_log(p, log);
    if (status == 0 || !getenv("FAKE_NVRTC_KEEP")) {
        unlink(path);
        unlink(log);
    }
    return status == 0 ? read_image(p, target) : COMPILATION;
}

static void note(program p, uint64_t hash)
{
    const char *file = getenv("FAKE_NVRTC_LOG");
    FILE *f = file && file[0] ? fopen(file, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "%016llx", (unsigned long long)hash);
    for (const char *s = strstr(p->text, mark); s; s = strstr(s + 1, mark)) {
        unsigned threads;
        const char *name = kernel_name(s, &threads);
        fprintf(f, " %.*s", (int)(strchr(name, '(') - name), name);
    }
    fprintf(f, "\n");
    fclose(f);
}

/* False: the text is lost, and nobody would miss it among those that are collected. */
static bool keep(program p)
{
    char path[300];
    const char *folder = getenv("FAKE_NVRTC_TEXTS");
    if (!folder || !folder[0])
        return true;
    snprintf(path, sizeof path, "%s/%016llx.cu", folder,
             (unsigned long long)store_text_hash(p->text, p->contract));
    return access(path, R_OK) == 0 || store_write(path, p->text, strlen(p->text));
}

static bool has_builtins(program p)
{
    char name[64];
    int major = 0, minor = 0;
    nvrtcVersion(&major, &minor);
    snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
    if (!getenv("FAKE_NVRTC_BUILTINS") || dlopen(name, RTLD_NOW | RTLD_LOCAL))
        return true;
    snprintf(p->log, sizeof p->log, "nvrtc: error: failed to open %s.", name);
    return false;
}

/* Every kernel waits for the one before it as its first statement, as its launches may begin before that one ends (wf_cuda_overlap). */
static bool kernels_wait(program p)
{
    for (const char *s = strstr(p->text, mark); s; s = strstr(s + 1, mark)) {
        const char *body = strchr(s, '{');
        body += body ? 1 + strspn(body + 1, " \n") : 0;
        if (!body || strncmp(body, "WF_BEGIN\n", 9) != 0) {
            snprintf(p->log, sizeof p->log,
                     "fake NVRTC: WF_BEGIN is not the first statement of %.60s",
                     s + sizeof mark - 1);
            return false;
        }
    }
    return true;
}

int nvrtcCompileProgram(program p, int n, const char *const *options)
{
    char folder[160], target[256];
    if (!check_options(p, n, options))
        return INVALID_OPTION;
    if (!has_builtins(p))
        return BUILTIN_OPERATION;
    if (!kernels_wait(p))
        return COMPILATION;
    if (!store_folder(folder, sizeof folder)) {
        snprintf(p->log, sizeof p->log, "fake NVRTC: %s is not a folder of this user alone",
                 folder);
        return COMPILATION;
    }
    const store_key key =
        store_key_of(3, (const char *[]){FAKE_VERSION, p->contract ? "fma" : "", p->text});
    snprintf(target, sizeof target, "%s/%016llx%016llx.so", folder, (unsigned long long)key.a,
             (unsigned long long)key.b);
    note(p, key.a);
    if (!keep(p)) {
        snprintf(p->log, sizeof p->log, "FAKE_NVRTC_TEXTS: a text cannot be kept");
        return COMPILATION;
    }
    return access(target, R_OK) == 0 ? read_image(p, target) : build(p, folder, target);
}

int nvrtcGetCUBINSize(program p, size_t *n)
{
    *n = p->size;
    return OK;
}
int nvrtcGetCUBIN(program p, char *image)
{
    memcpy(image, p->image, p->size);
    return OK;
}
/* What the real one says of its options, over the text. */
static const char ptx_head[] = "// PTX of the stand-in\n.target fake\n";
int nvrtcGetPTXSize(program p, size_t *n)
{
    *n = sizeof ptx_head + strlen(p->text);
    return OK;
}
int nvrtcGetPTX(program p, char *text)
{
    memcpy(text, ptx_head, sizeof ptx_head);
    strcat(text, p->text);
    return OK;
}
int nvrtcGetProgramLogSize(program p, size_t *n)
{
    *n = strlen(p->log) + 1;
    return OK;
}
int nvrtcGetProgramLog(program p, char *log)
{
    memcpy(log, p->log, strlen(p->log) + 1);
    return OK;
}
