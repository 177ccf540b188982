/*
 * eager/cpu/dnnl.c -- opens oneDNN, keeps it single-threaded, caches primitives per thread.
 */
#include "eager/cpu/dnnl.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/cpuid.h"
#include "eager/env.h"

static dnnl_functions functions;
static _Atomic bool loaded;
static char name[160], builtin_name[192], unit_name[192], builtin_unit_name[224];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int backend = WF_GEMM_AUTO;

/* The OpenMP runtime that libdnnl calls, if it calls one. */
static int (*omp_get_threads)(void);
static void (*omp_set_threads)(int);

static int lookup(void *library, const char *symbol, void *out)
{
    void *p = dlsym(library, symbol);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}

/*
 * What a library's import of `symbol` is bound to, read from its relocations: with several OpenMP
 * runtimes in a process no search order of ours could tell which of them libdnnl calls.
 */
static void *bound_import(const struct link_map *map, const char *symbol)
{
    const char *strings = NULL;
    const ElfW(Sym) *symbols = NULL;
    const ElfW(Rela) * tables[2] = {NULL, NULL};
    size_t sizes[2] = {0, 0};
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        const void *p = (const void *)d->d_un.d_ptr; /* glibc has relocated these in place */
        if (d->d_tag == DT_STRTAB)
            strings = p;
        else if (d->d_tag == DT_SYMTAB)
            symbols = p;
        else if (d->d_tag == DT_JMPREL)
            tables[0] = p;
        else if (d->d_tag == DT_PLTRELSZ)
            sizes[0] = d->d_un.d_val;
        else if (d->d_tag == DT_RELA)
            tables[1] = p;
        else if (d->d_tag == DT_RELASZ)
            sizes[1] = d->d_un.d_val;
    }
    for (int t = 0; t < 2 && strings && symbols; t++)
        for (size_t i = 0; tables[t] && i < sizes[t] / sizeof *tables[t]; i++) {
            const ElfW(Rela) *r = &tables[t][i];
            uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info), s = (uint32_t)ELF64_R_SYM(r->r_info);
            if ((type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT) &&
                strcmp(strings + symbols[s].st_name, symbol) == 0)
                return *(void **)(map->l_addr + r->r_offset);
        }
    return NULL;
}

/* Finds omp_set_num_threads beside the omp_get_max_threads that libdnnl is bound to. */
static int find_openmp(void *library)
{
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) || !map)
        return 0;
    void *get = bound_import(map, "omp_get_max_threads");
    Dl_info where;
    if (!get || !dladdr(get, &where) || !where.dli_fname)
        return 0;
    memcpy(&omp_get_threads, &get, sizeof get);
    void *runtime = dlopen(where.dli_fname, RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
    if (!runtime) /* a runtime linked into the program itself has no file of its own to open */
        runtime = dlopen(NULL, RTLD_LAZY);
    return runtime && lookup(runtime, "omp_set_num_threads", &omp_set_threads);
}

static const char *load(void)
{
    void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return "libdnnl.so.2 not found";
    dnnl_functions *f = &functions;
    int ok = lookup(library, "dnnl_version", &f->version);
    if (!ok || f->version()->major != 2 || f->version()->minor < 6)
        return "libdnnl.so.2 is not version 2.6 or later of 2.x";
#define F(function, params) ok &= lookup(library, "dnnl_" #function, &f->function);
    DNNL_STATUS_FUNCTIONS(F)
#undef F
    ok &= lookup(library, "dnnl_get_effective_cpu_isa", &f->get_effective_cpu_isa);
    ok &= lookup(library, "dnnl_primitive_desc_iterator_fetch", &f->primitive_desc_iterator_fetch);
    ok &= lookup(library, "dnnl_primitive_desc_query_md", &f->primitive_desc_query_md);
    ok &= lookup(library, "dnnl_memory_desc_get_size", &f->memory_desc_get_size);
    ok &= lookup(library, "dnnl_memory_desc_equal", &f->memory_desc_equal);
    if (!ok)
        return "libdnnl.so.2 lacks a function";
    unsigned runtime = f->version()->cpu_runtime;
    if (runtime == DNNL_RUNTIME_OPENMP ? !find_openmp(library) : runtime != DNNL_RUNTIME_SEQUENTIAL)
        return "libdnnl.so.2 uses a threading runtime that cannot be kept serial";
    int saved = wf_dnnl_enter();
    ok = f->engine_create(&f->engine, DNNL_CPU, 0) == DNNL_SUCCESS;
    wf_dnnl_leave(saved);
    return ok ? NULL : "oneDNN failed to start";
}

/* At the program's end oneDNN's objects are destroyed before those of programs that were there before it was opened, whose destructors
 * and handlers may still use weft: they get the built-in kernels. Handlers run in reverse order, so this one is called before
 * oneDNN's. */
static void stop_at_exit(void)
{
    atomic_store_explicit(&loaded, false, memory_order_relaxed);
}

static bool in_order; /* what wf_dnnl_in_order says of the library */
static pthread_key_t thread_key;
static void drop_thread(void *state);

static void load_once(void)
{
    const char *why = wf_env()->WEFT_NO_ONEDNN ? "WEFT_NO_ONEDNN is set" : load();
    if (!why && (pthread_key_create(&thread_key, drop_thread) || atexit(stop_at_exit)))
        why = "no thread-specific key, or no handler of the program's end, left";
    loaded = !why;
    in_order = !why && !(DNNL_ISA_AVX512_CORE & ~(unsigned)functions.get_effective_cpu_isa());
    if (why)
        snprintf(name, sizeof name, "%s", why);
    snprintf(builtin_name, sizeof builtin_name, "built-in (%s)",
             why ? why : "chosen by the program");
    if (!why)
        snprintf(name, sizeof name, "oneDNN %d.%d.%d", functions.version()->major,
                 functions.version()->minor, functions.version()->patch);
    snprintf(unit_name, sizeof unit_name, "%s, bf16 products on AMX", name);
    snprintf(builtin_unit_name, sizeof builtin_unit_name, "%s, bf16 products on AMX", builtin_name);
}

const dnnl_functions *wf_dnnl(void)
{
    pthread_once(&once, load_once);
    return atomic_load_explicit(&loaded, memory_order_relaxed) ? &functions : NULL;
}

const char *wf_dnnl_name(void)
{
    pthread_once(&once, load_once);
    return name;
}

int wf_dnnl_active(void)
{
    return atomic_load_explicit(&backend, memory_order_relaxed) != WF_GEMM_BUILTIN && wf_dnnl();
}

int wf_dnnl_in_order(void)
{
    return wf_dnnl_active() && in_order;
}

int wf_gemm_amx_active(void)
{
    return atomic_load_explicit(&backend, memory_order_relaxed) == WF_GEMM_AUTO && wf_amx();
}

int wf_gemm_pairs_active(void)
{
    return atomic_load_explicit(&backend, memory_order_relaxed) != WF_GEMM_ONEDNN &&
           wf_bf16_pairs();
}

int wf_gemm_set_backend(int which)
{
    atomic_store(&backend, which);
    return wf_dnnl_active() ? WF_GEMM_ONEDNN : WF_GEMM_BUILTIN;
}

const char *wf_gemm_backend_name(void)
{
    const bool units = wf_gemm_amx_active();
    wf_dnnl();
    if (wf_dnnl_active())
        return units ? unit_name : name;
    return units ? builtin_unit_name : builtin_name;
}

int wf_dnnl_enter(void)
{
    if (!omp_get_threads)
        return 1;
    int saved = omp_get_threads();
    if (saved != 1)
        omp_set_threads(1);
    return saved;
}

void wf_dnnl_leave(int saved)
{
    if (saved != 1)
        omp_set_threads(saved);
}

/* Per thread: a set-associative cache, least recently used way replaced. */
enum { SETS = 64, WAYS = 4 };
typedef struct thread_state {
    dnnl_handle stream;
    uint64_t clock;
    wf_dnnl_plan *plans[SETS][WAYS];
} thread_state;

static _Thread_local thread_state *mine;

static void drop_plan(wf_dnnl_plan *p)
{
    if (!p)
        return;
    for (int i = 0; i < WF_DNNL_ARGS; i++)
        if (p->args[i].memory)
            functions.memory_destroy(p->args[i].memory);
    if (p->primitive)
        functions.primitive_destroy(p->primitive);
    wf_mfree(p);
}

static void drop_thread(void *arg)
{
    thread_state *t = arg;
    for (int s = 0; s < SETS; s++)
        for (int w = 0; w < WAYS; w++)
            drop_plan(t->plans[s][w]);
    functions.stream_destroy(t->stream);
    wf_mfree(t);
    mine = NULL;
}

static thread_state *new_thread(void)
{
    thread_state *t = wf_malloc(sizeof *t);
    if (!t)
        return NULL;
    memset(t, 0, sizeof *t);
    if (functions.stream_create(&t->stream, functions.engine, DNNL_IN_ORDER) != DNNL_SUCCESS) {
        wf_mfree(t);
        return NULL;
    }
    if (pthread_setspecific(thread_key, t)) {
        functions.stream_destroy(t->stream);
        wf_mfree(t);
        return NULL;
    }
    return mine = t;
}

/* Fills p from a primitive descriptor. Returns a status of oneDNN's. */
static int bind(wf_dnnl_plan *p, const wf_dnnl_recipe *recipe, dnnl_handle desc)
{
    const dnnl_functions *f = &functions;
    for (int i = 0; i < recipe->count; i++) {
        const dnnl_md *md = recipe->query[i] == WF_DNNL_QUERY_BIAS
                                ? f->primitive_desc_query_md(desc, DNNL_QUERY_WEIGHTS, 1)
                                : f->primitive_desc_query_md(desc, recipe->query[i], 0);
        if (!md)
            return DNNL_OUT_OF_MEMORY;
        p->bytes[i] = f->memory_desc_get_size(md);
        p->args[i].arg = recipe->arg[i];
        int rc = f->memory_create(&p->args[i].memory, md, f->engine, NULL);
        if (rc)
            return rc;
    }
    p->count = recipe->count;
    return f->primitive_create(&p->primitive, desc);
}

/* oneDNN's reference implementations are far slower than the built-in kernels. */
static int is_reference(dnnl_handle desc)
{
    const char *impl = NULL;
    functions.primitive_desc_query(desc, DNNL_QUERY_IMPL_NAME, 0, &impl);
    return !impl || strncmp(impl, "ref", 3) == 0 || strstr(impl, ":ref") != NULL;
}

static wf_dnnl_plan *new_plan(const wf_dnnl_key *key, const wf_dnnl_recipe *recipe)
{
    wf_dnnl_plan *p = wf_malloc(sizeof *p);
    if (!p)
        return NULL;
    memset(p, 0, sizeof *p);
    p->key = *key;
    dnnl_handle desc = NULL;
    int rc = recipe->describe(&functions, key, &desc);
    if (rc == DNNL_SUCCESS && !is_reference(desc))
        rc = bind(p, recipe, desc);
    if (desc)
        functions.primitive_desc_destroy(desc);
    if (rc == DNNL_OUT_OF_MEMORY) {
        drop_plan(p);
        return NULL;
    }
    return p; /* primitive is NULL where oneDNN declined: that is remembered too */
}

wf_dnnl_plan *wf_dnnl_get(const wf_dnnl_key *key, const wf_dnnl_recipe *recipe)
{
    thread_state *t = mine ? mine : new_thread();
    if (!t)
        return NULL;
    /* A sum of products: they do not wait for one another. */
    uint64_t hash = 0, odd = 0x9E3779B97F4A7C15u;
    for (int i = 0; i < WF_DNNL_KEY; i++, odd += 0xD1B54A32D192ED02u)
        hash += (uint64_t)key->v[i] * odd;
    hash = (hash ^ hash >> 31) * 0xD6E8FEB86659FD93u;
    wf_dnnl_plan **set = t->plans[hash >> 58];
    int victim = 0;
    for (int w = 0; w < WAYS; w++) {
        if (set[w] && memcmp(&set[w]->key, key, sizeof *key) == 0) {
            set[w]->used = ++t->clock;
            return set[w];
        }
        if (set[victim] && (!set[w] || set[w]->used < set[victim]->used))
            victim = w;
    }
    wf_dnnl_plan *p = new_plan(key, recipe);
    if (!p)
        return NULL;
    drop_plan(set[victim]);
    p->used = ++t->clock;
    return set[victim] = p;
}

const dnnl_md *wf_dnnl_layout(const wf_dnnl_plan *plan, int i)
{
    const dnnl_md *md = NULL;
    int rc = functions.memory_get_memory_desc(plan->args[i].memory, &md);
    return rc == DNNL_SUCCESS ? md : NULL;
}

int wf_dnnl_same_layout(const wf_dnnl_plan *p, const wf_dnnl_plan *q, int i)
{
    const dnnl_md *a = wf_dnnl_layout(p, i), *b = wf_dnnl_layout(q, i);
    return a && b && functions.memory_desc_equal(a, b);
}

int wf_dnnl_run(wf_dnnl_plan *p, void *const *data)
{
    if (!p->primitive)
        return WF_GEMM_UNSUPPORTED;
    for (int i = 0; i < p->count; i++)
        if (p->data[i] != data[i]) {
            functions.memory_set_data_handle(p->args[i].memory, data[i]);
            p->data[i] = data[i];
        }
    int rc = functions.primitive_execute(p->primitive, mine->stream, p->count, p->args);
    return rc == DNNL_SUCCESS ? WF_GEMM_OK : WF_GEMM_NOMEM;
}
