/*
 * jit/gpu/cache.c -- kernels of the device by the bytes of what they compute; see impl.h.
 *
 * Invariants
 *  - One lock guards the table and the lists of variants; nothing is rendered, compiled or loaded under it.
 *  - A variant that is being made stays in its list as pending, so no kernel is made twice; others wait.
 *  - A variant that could not be made or launched keeps its reason: the compiler is not asked again. But for want of
 *    memory, which may be there the next time.
 *  - On disk a module is found by its text and what NVRTC depends on (identify), never by a hash alone. One that the
 *    driver does not load is compiled anew and replaced there.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/cuda/library.h"
#include "eager/env.h"
#include "eager/profile.h"
#include "jit/diskcache.h"
#include "jit/gpu/impl.h"
#include "jit/kernels_impl.h"
#include "jit/lower.h"
#include "jit/passes/page.h"
#include "jit/passes/pass.h"

enum { BUCKETS = 1024 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t made;
    wf_gpu_entry *bucket[BUCKETS];
    wf_gpu_stats stats;
    bool ready;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .made = PTHREAD_COND_INITIALIZER};

void wf_gpu_get_stats(wf_gpu_stats *s)
{
    pthread_mutex_lock(&cache.lock);
    *s = cache.stats;
    pthread_mutex_unlock(&cache.lock);
}

/* -- entries -------------------------------------------------------------------------------------------- */
static wf_gpu_entry *find(uint64_t hash, const void *key, size_t nkey)
{
    wf_gpu_entry *e = cache.bucket[hash % BUCKETS];
    while (e && (e->hash != hash || e->nkey != nkey || memcmp(e->key, key, nkey) != 0))
        e = e->chain;
    return e;
}

/* Lists fresh unless somebody was quicker. */
static wf_gpu_entry *list(wf_gpu_entry *fresh)
{
    pthread_mutex_lock(&cache.lock);
    wf_gpu_entry *e = find(fresh->hash, fresh->key, fresh->nkey);
    if (!e) {
        fresh->chain = cache.bucket[fresh->hash % BUCKETS];
        cache.bucket[fresh->hash % BUCKETS] = fresh;
        cache.stats.programs++;
    }
    pthread_mutex_unlock(&cache.lock);
    if (!e)
        return fresh;
    wf_kernel_free(&fresh->kernel);
    free(fresh->key);
    free(fresh);
    return e;
}

static int lower_program(wf_kernel *k, const void *arg, wf_why *why)
{
    return wf_lower_device(arg, k, why);
}

static const wf_gpu_entry *entry(const char *name, wf_gpu_build build, const void *arg,
                                 wf_text *key, bool contract, wf_why *why)
{
    uint64_t hash[2];
    if (key->failed) {
        wf_text_free(key);
        wf_fail(why, WEFT_ENOMEM, "no memory for a kernel of the device");
        return NULL;
    }
    wf_hash128(key->s, key->n, hash);
    pthread_mutex_lock(&cache.lock);
    wf_gpu_entry *e = find(hash[0], key->s, key->n);
    pthread_mutex_unlock(&cache.lock);
    if (e) {
        wf_text_free(key);
        return e;
    }
    e = calloc(1, sizeof *e);
    int status = e ? 0 : wf_fail(why, WEFT_ENOMEM, "no memory for a kernel of the device");
    if (status == 0 && build)
        status = build(&e->kernel, arg, why);
    if (status != 0) {
        free(e);
        wf_text_free(key);
        return NULL;
    }
    char base[40];
    snprintf(base, sizeof base, "%.39s", name ? name : e->kernel.name);
    snprintf(e->kernel.name, sizeof e->kernel.name, "%s__%08x", base, (unsigned)(hash[1] >> 32));
    e->contract = contract;
    e->hash = hash[0];
    e->key = key->s;
    e->nkey = key->n;
    return list(e);
}

const wf_gpu_entry *wf_gpu_entry_of(const wf_program *p, wf_why *why)
{
    wf_text key = {0};
    static const char kind[] = "program ";
    wf_text_put(&key, kind, sizeof kind - 1);
    wf_lower_key(p, 0, &key);
    return entry(NULL, lower_program, p, &key, p->fast, why);
}

const wf_gpu_entry *wf_gpu_entry_named(const char *name, wf_gpu_build build, const void *arg,
                                       wf_why *why)
{
    wf_text key = {0};
    static const char kind[] = "named ";
    wf_text_put(&key, kind, sizeof kind - 1);
    wf_text_put(&key, name, strlen(name));
    return entry(name, build, arg, &key, false, why);
}

/* -- making a variant ----------------------------------------------------------------------------------- */
static void set_up(void)
{
    const wf_env_values *env = wf_env();
    if (cache.ready)
        return;
    cache.ready = true;
    char file[WF_ENV_STR_MAX + 160];
    if (env->WEFT_NVRTC[0])
        wf_cu_set_library(env->WEFT_NVRTC);
    else if (wf_cuda_nvrtc_find(file, sizeof file))
        wf_cu_set_library(file);
}

/* *from_disk: whether it may come from there; then, whether it did. */
static int image_of(const wf_text *text, const wf_target *target, wf_blob *image, bool *from_disk,
                    wf_why *why)
{
    const bool may = *from_disk;
    *from_disk = false;
    wf_text identity = {0};
    int status = wf_backend_cuda.identify(target, &identity, why);
    wf_text_put(&identity, text->s, text->n);
    if (status == 0 && may && !identity.failed && wf_disk_get(identity.s, identity.n, image)) {
        *from_disk = true;
    } else if (status == 0) {
        status = wf_backend_cuda.compile(target, text, image, why);
        if (status == 0 && !identity.failed)
            wf_disk_put(identity.s, identity.n, image);
    }
    wf_text_free(&identity);
    return status;
}

static int load(wf_gpu_variant *v, const wf_gpu_entry *e, const wf_blob *image, int functions,
                wf_why *why)
{
    char name[80];
    int status = wf_cuda_module_new(v->ordinal, image->data, image->size, &v->module, why);
    for (int i = 0; i < (functions ? functions : 1) && status == 0; i++) {
        if (functions == 0)
            snprintf(name, sizeof name, "%s", e->kernel.name);
        else
            snprintf(name, sizeof name, "%s_%d", e->kernel.name, i);
        status = wf_cuda_function(v->module, name, &v->fn[i], why);
        if (status == 0)
            wf_cuda_overlap(v->fn[i]); /* WF_BEGIN */
    }
    v->nfn = functions ? functions : 1;
    if (status != 0) {
        wf_cuda_module_free(v->module);
        v->module = NULL;
    }
    return status;
}

/* What the variant's files are called: as its kernel is, which others share, and by the bytes that tell it from them. */
static void name_files(const wf_gpu_variant *v, const wf_gpu_entry *e, char file[80])
{
    uint64_t hash[2];
    wf_hash128(v->bytes, (size_t)v->n, hash);
    snprintf(file, 80, "%.60s-%08x", e->kernel.name,
             (unsigned)(hash[0] >> 32) + (unsigned)v->ordinal);
}

/* The image of the text, in the device. file: its name, if it is dumped. */
static int bring(wf_gpu_variant *v, const wf_gpu_entry *e, const char *file, const wf_text *text,
                 int functions, bool *from_disk, wf_why *why)
{
    const wf_target target = {.arch = wf_cuda_get_info(v->ordinal)->arch, .contract = e->contract};
    wf_blob image = {0};
    const int before = wf_work_enter(WF_TIMED_compile);
    int status = image_of(text, &target, &image, from_disk, why);
    (void)wf_work_enter(WF_TIMED_load);
    if (status == 0) {
        wf_dump_bytes(file, "cubin", image.data, image.size);
        status = load(v, e, &image, functions, why);
    }
    if (status == WEFT_ENOMEM && image.data) { /* what tensors do not use is the allocator's */
        wf_cuda_trim(v->ordinal);
        *why = (wf_why){0};
        status = load(v, e, &image, functions, why);
    }
    wf_work_leave(before);
    wf_blob_free(&image);
    return status;
}

/* WEFT_DUMP: the source and its PTX as files, and on the page; the code is put there by bring(). WEFT_DEBUG: on stderr. */
static void show(const char *name, int ordinal, bool contract, const wf_text *text)
{
    static const char *const kinds[] = {"cu", "ptx", "cubin"};
    const wf_target target = {.arch = wf_cuda_get_info(ordinal)->arch, .contract = contract};
    wf_page page;
    wf_why why = {0};
    wf_text ptx = {0};
    char file[80];
    if (wf_env_debug(WF_DEBUG_SOURCE))
        fprintf(stderr, "%s", text->s);
    wf_dump_text(name, "cu", text->s);
    if ((wf_dump_folder() || wf_env_debug(WF_DEBUG_ASM)) &&
        wf_backend_cuda.assemble(&target, text, &ptx, &why) == 0) {
        if (wf_env_debug(WF_DEBUG_ASM))
            fprintf(stderr, "%s", ptx.s);
        wf_dump_text(name, "ptx", ptx.s);
    }
    wf_text_free(&ptx);
    if (wf_page_begin(&page)) {
        fputs("<h3>kernel of a device</h3>\n<p>", page.out);
        for (int i = 0; i < (why.code ? 1 : 3); i++) {
            snprintf(file, sizeof file, "%.72s.%s", name, kinds[i]);
            wf_page_link(&page, file);
        }
        fputs("\n", page.out);
        wf_page_end(&page);
    }
}

static void make(wf_gpu_variant *v, const wf_gpu_entry *e, const wf_gpu_recipe *recipe)
{
    const wf_cuda_info *info = wf_cuda_get_info(v->ordinal);
    const int64_t start = wf_prof_clock();
    wf_text text = {0};
    wf_why why = {0};
    char file[80];
    bool from_disk = true;
    name_files(v, e, file);
    struct wf_stopwatch *caller = wf_work_aside();
    const int before = wf_work_enter(WF_TIMED_render);
    int status = info ? recipe->render(recipe->arg, e, &text, &why)
                      : wf_fail(&why, WEFT_EUNSUPPORTED, "there is no device %d", v->ordinal);
    wf_work_leave(before);
    if (status == 0)
        show(file, v->ordinal, e->contract, &text);
    if (status == 0)
        status = bring(v, e, file, &text, recipe->functions, &from_disk, &why);
    else
        from_disk = false;
    if (status != 0 && status != WEFT_ENOMEM && from_disk) {
        from_disk = false;
        why = (wf_why){0};
        status = bring(v, e, file, &text, recipe->functions, &from_disk, &why);
    }
    const int64_t took = wf_prof_clock() - start;
    wf_work_resume(caller, e->kernel.name);
    if (wf_env_debug(WF_DEBUG_COMPILE))
        fprintf(stderr, "weft: kernel %s %s in %.2f ms%s%s\n", e->kernel.name,
                status      ? "failed"
                : from_disk ? "loaded"
                            : "compiled",
                (double)took * 1e-6, status ? ": " : "", why.rule);
    wf_text_free(&text);
    if (wf_prof_is_on())
        wf_prof_end(start, &(wf_prof_span){WEFT_PROFILE_COMPILE, .name = e->kernel.name,
                                           .detail = status      ? "failed"
                                                     : from_disk ? "loaded"
                                                                 : "compiled"});
    pthread_mutex_lock(&cache.lock);
    v->status = status;
    snprintf(v->reason, sizeof v->reason, "%.190s", why.rule);
    v->pending = false;
    cache.stats.compile_ns += took;
    cache.stats.compiled += status == 0 && !from_disk;
    cache.stats.loaded += status == 0 && from_disk;
    pthread_cond_broadcast(&cache.made);
    pthread_mutex_unlock(&cache.lock);
}

static wf_gpu_variant *find_variant(const wf_gpu_entry *e, int ordinal, const void *bytes, int n)
{
    wf_gpu_variant *v = e->variants;
    while (v && (v->ordinal != ordinal || v->n != n || memcmp(v->bytes, bytes, (size_t)n) != 0))
        v = v->next;
    return v;
}

void wf_gpu_refuse(const wf_gpu_variant *v_, const wf_why *why)
{
    wf_gpu_variant *v = (wf_gpu_variant *)(uintptr_t)v_; /* ours */
    pthread_mutex_lock(&cache.lock);
    v->status = WEFT_EUNSUPPORTED;
    snprintf(v->reason, sizeof v->reason, "%.190s", why ? why->rule : "");
    pthread_mutex_unlock(&cache.lock);
}

static _Thread_local int64_t singles_here;

int64_t wf_gpu_unsettled(void)
{
    return singles_here;
}

void wf_gpu_count_single(void)
{
    singles_here++;
    pthread_mutex_lock(&cache.lock);
    cache.stats.singles++;
    pthread_mutex_unlock(&cache.lock);
}

/* A variant to be made by a thread that compiles; arg is behind it. */
typedef struct order {
    wf_gpu_variant *v;
    const wf_gpu_entry *e;
    wf_gpu_recipe recipe;
    _Alignas(16) unsigned char arg[];
} order;

static void make_order(void *arg)
{
    order *o = arg;
    make(o->v, o->e, &o->recipe);
    free(o);
}

static bool make_later(wf_gpu_variant *v, const wf_gpu_entry *e, const wf_gpu_recipe *recipe)
{
    order *o = calloc(1, sizeof *o + recipe->size);
    if (!o)
        return false;
    o->v = v;
    o->e = e;
    o->recipe = *recipe;
    memcpy(o->arg, recipe->arg, recipe->size);
    o->recipe.arg = o->arg;
    if (wf_gpu_later(make_order, o))
        return true;
    free(o);
    return false;
}

const wf_gpu_variant *wf_gpu_variant_of(int ordinal, const wf_gpu_entry *entry_, const void *bytes,
                                        int n, const wf_gpu_recipe *recipe, wf_why *why)
{
    wf_gpu_entry *e = (wf_gpu_entry *)(uintptr_t)entry_; /* ours: the lock guards what changes */
    bool mine = false;
    pthread_mutex_lock(&cache.lock);
    set_up();
    wf_gpu_variant *v = find_variant(e, ordinal, bytes, n);
    if (!v && (v = calloc(1, sizeof *v)) != NULL) {
        memcpy(v->bytes, bytes, (size_t)n);
        v->n = n;
        v->ordinal = ordinal;
        v->pending = mine = true;
        v->next = e->variants;
        e->variants = v;
    }
    if (v && !v->pending && v->status == WEFT_ENOMEM)
        v->pending = mine = true;
    while (v && v->pending && !mine && !recipe->later)
        pthread_cond_wait(&cache.made, &cache.lock);
    bool pending = v && v->pending;
    pthread_mutex_unlock(&cache.lock);
    if (mine && !(recipe->later && make_later(v, e, recipe))) {
        make(v, e, recipe);
        pending = false;
    }
    if (pending) {
        if (why)
            why->code = WF_GPU_PENDING;
        return NULL;
    }
    if (!v) {
        wf_fail(why, WEFT_ENOMEM, "no memory for a kernel of the device");
        return NULL;
    }
    pthread_mutex_lock(&cache.lock);
    const int status = v->status;
    if (status != 0)
        wf_fail(why, status, "no kernel %s: %.190s", e->kernel.name, v->reason);
    pthread_mutex_unlock(&cache.lock);
    return status == 0 ? v : NULL;
}
