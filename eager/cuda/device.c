/*
 * eager/cuda/device.c -- devices: opening them, making them current, what their errors mean.
 *
 * The primary context is held from the first use to the end of the process, so that other CUDA code in
 * the process shares it. It is made current whenever the driver is called: other code may have changed it in
 * between, and asking costs less than being wrong. What only looks into the books does not ask.
 */
#include "eager/cuda/device.h"

#include <stdio.h>
#include <string.h>

#include "eager/env.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

const wf_cuda_driver *wf_cu;
wf_cuda_counters wf_cuda_count_of;
static wf_cuda_device devices[WF_CUDA_DEVICES];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool opened[WF_CUDA_DEVICES];

int wf_cuda_count(void)
{
    const wf_cuda_driver *cu = wf_cuda_driver_open();
    int n = cu ? cu->devices : 0;
    return n < WF_CUDA_DEVICES ? n : WF_CUDA_DEVICES;
}

static cu_result read_info(wf_cuda_device *d)
{
    wf_cuda_info *i = &d->info;
    int l2 = 0, vm = 0;
    size_t memory = 0;
    const struct {
        int attribute, *value;
    } facts[] = {
        {CU_ATTR_MAJOR, &i->major},
        {CU_ATTR_MINOR, &i->minor},
        {CU_ATTR_PROCESSORS, &i->processors},
        {CU_ATTR_THREADS_PER_PROCESSOR, &i->threads_per_processor},
        {CU_ATTR_WARP, &i->warp},
        {CU_ATTR_SHARED_OPTIN, &i->shared_per_block},
        {CU_ATTR_L2, &l2},
        {CU_ATTR_VIRTUAL_MEMORY, &vm},
    };
    cu_result r = wf_cu->device_name(i->name, sizeof i->name, d->id);
    for (size_t k = 0; r == CU_OK && k < sizeof facts / sizeof *facts; k++) {
        r = wf_cu->device_attribute(facts[k].value, facts[k].attribute, d->id);
    }
    r = r == CU_OK ? wf_cu->device_memory(&memory, d->id) : r;
    snprintf(i->arch, sizeof i->arch, "sm_%d%d", i->major, i->minor);
    i->l2_bytes = l2;
    i->memory_bytes = (int64_t)memory;
    i->driver = wf_cu->version;
    /* until a granule has been tried, vm.c */
    i->expandable =
        vm && wf_cu->has_vm && wf_env()->WEFT_CUDA_EXPANDABLE && !wf_env()->WEFT_CUDA_MEMCHECK;
    return r;
}

/* Fills d->missing on failure. */
static bool start(wf_cuda_device *d, int ordinal)
{
    wf_cu = wf_cuda_driver_open();
    if (!wf_cu) {
        snprintf(d->missing, sizeof d->missing, "%s", wf_cuda_driver_missing());
        return false;
    }
    if (ordinal >= wf_cuda_count()) {
        snprintf(d->missing, sizeof d->missing,
                 "the CUDA driver lists %d device%s; CUDA_VISIBLE_DEVICES may hide others",
                 wf_cuda_count(), wf_cuda_count() == 1 ? "" : "s");
        return false;
    }
    d->ordinal = ordinal;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->label_lock, NULL);
    const char *call = "cuDeviceGet";
    cu_result r = wf_cu->device_get(&d->id, ordinal);
    if (r == CU_OK) {
        call = "cuDeviceGetAttribute";
        r = read_info(d);
    }
    if (r == CU_OK && d->info.major < 7) {
        const wf_cuda_info info = d->info;
        snprintf(d->missing, sizeof d->missing,
                 "%.90s is %s; compute capability 7.0 or later is needed", info.name, info.arch);
        return false;
    }
    if (r == CU_OK) {
        call = "cuDevicePrimaryCtxRetain";
        r = wf_cu->context_retain(&d->context, d->id);
    }
    if (r != CU_OK) {
        snprintf(d->missing, sizeof d->missing, "%s: %s", call, wf_cuda_result_name(r));
        return false;
    }
    return true;
}

/* NULL: there can be no such device. */
static wf_cuda_device *find(int ordinal)
{
    if (ordinal < 0 || ordinal >= WF_CUDA_DEVICES) {
        return NULL;
    }
    wf_cuda_device *d = &devices[ordinal];
    if (!atomic_load_explicit(&opened[ordinal], memory_order_acquire)) {
        pthread_mutex_lock(&opening);
        if (!atomic_load_explicit(&opened[ordinal], memory_order_relaxed)) {
            d->usable = start(d, ordinal);
            atomic_store_explicit(&opened[ordinal], true, memory_order_release);
        }
        pthread_mutex_unlock(&opening);
    }
    return d;
}

int wf_cuda_open(int ordinal, wf_why *why)
{
    wf_cuda_device *d = find(ordinal);
    if (d && d->usable) {
        return 0;
    }
    wf_fail(why, WEFT_EUNSUPPORTED, "cuda:%d cannot be used: %s", ordinal,
            d ? d->missing : "there is no such device");
    wf_hint(why, "weft_doctor lists what is found");
    return WEFT_EUNSUPPORTED;
}

static int close_device(wf_cuda_device *d, wf_why *why)
{
    wf_cache_stats s = {0};
    if (d->cache) {
        wf_cache_get_stats(d->cache, &s);
    }
    int modules = atomic_load(&d->modules);
    if (s.live_chunks || modules) {
        return wf_fail(why, WEFT_EINVALID,
                       "cuda:%d cannot be closed: %lld blocks and %d modules are in use",
                       d->ordinal, (long long)s.live_chunks, modules);
    }
    wf_cu->context_set(d->context);
    wf_cuda_blas_close(d);
    wf_cuda_dnn_close(d);
    wf_cache_delete(d->cache);
    d->cache = NULL;
    wf_cuda_stages_close(d);
    wf_cuda_words_close(d);
    wf_cuda_streams_close(d);
    wf_cu->context_release(d->id);
    for (int i = 0; i < WF_CUDA_DEVICES; i++) { /* access went with the context */
        atomic_store(&devices[i].peer[d->ordinal], 0);
        devices[i].reached_by &= ~(UINT32_C(1) << d->ordinal);
        atomic_store(&d->peer[i], 0);
    }
    d->usable = d->maps = false;
    d->reached_by = 0;
    atomic_store(&d->last, NULL);
    d->generation++;
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->label_lock);
    atomic_store_explicit(&opened[d->ordinal], false, memory_order_release);
    return 0;
}

int wf_cuda_close(int ordinal, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_peek(ordinal);
    if (!d) { /* what was remembered is forgotten */
        if (ordinal >= 0 && ordinal < WF_CUDA_DEVICES) {
            atomic_store_explicit(&opened[ordinal], false, memory_order_release);
        }
        return 0;
    }
    bool broken = atomic_load(&d->broken) != 0;
    int code = broken ? 0 : wf_cuda_synchronize(ordinal, why);
    int closed = close_device(d, code ? NULL : why);
    return code ? code : closed;
}

const wf_cuda_info *wf_cuda_get_info(int ordinal)
{
    const wf_cuda_device *d = wf_cuda_peek(ordinal);
    return d ? &d->info : NULL;
}

bool wf_cuda_is_expandable(int ordinal)
{
    wf_cuda_device *d = wf_cuda_peek(ordinal);
    if (!d) {
        return false;
    }
    pthread_mutex_lock(&d->lock);
    const bool is = d->info.expandable && !d->source.allocate;
    pthread_mutex_unlock(&d->lock);
    return is;
}

wf_cuda_device *wf_cuda_peek(int ordinal)
{
    wf_cuda_device *d = find(ordinal);
    return d && d->usable ? d : NULL;
}

wf_cuda_device *wf_cuda_reach(int ordinal, wf_why *why)
{
    if (wf_cuda_open(ordinal, why) || wf_cuda_thread_open(why)) {
        return NULL;
    }
    wf_cuda_device *d = &devices[ordinal];
    int broken = atomic_load_explicit(&d->broken, memory_order_relaxed);
    if (broken) {
        wf_cuda_check(d, broken, NULL, why);
        return NULL;
    }
    return d;
}

int wf_cuda_make_current(wf_cuda_device *d, wf_why *why)
{
    return wf_cuda_check(d, wf_cu->context_set(d->context), "cuCtxSetCurrent", why);
}

wf_cuda_device *wf_cuda_enter(int ordinal, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_reach(ordinal, why);
    return d && !wf_cuda_make_current(d, why) ? d : NULL;
}

/* The first report names what was launched last; later ones are short. */
static int report_broken(wf_cuda_device *d, cu_result r, const char *call, wf_why *why)
{
    pthread_mutex_lock(&d->label_lock);
    int none = 0;
    atomic_compare_exchange_strong(&d->broken, &none, r);
    bool first = !d->broken_reported;
    d->broken_reported = true;
    if (first) {
        const char *last = atomic_load_explicit(&d->last, memory_order_acquire);
        wf_fail(why, WEFT_EUNSUPPORTED, "cuda:%d stopped: %s, seen by %s; launched last: %.119s",
                d->ordinal, wf_cuda_result_name(r), call ? call : "an earlier call",
                last ? last : "nothing");
        wf_hint(why, "the fault may be of any op since the last wait: WEFT_CUDA_BLOCKING=1 waits "
                     "after each; the device works again in a new process");
    } else {
        wf_fail(why, WEFT_EUNSUPPORTED, "cuda:%d stopped earlier: %s", d->ordinal,
                wf_cuda_result_name(r));
        wf_hint(why, "the device works again in a new process");
    }
    pthread_mutex_unlock(&d->label_lock);
    return WEFT_EUNSUPPORTED;
}

int wf_cuda_check(wf_cuda_device *d, cu_result r, const char *call, wf_why *why)
{
    if (r == CU_OK) {
        return 0;
    }
    if (wf_cuda_result_is_sticky(r)) {
        return report_broken(d, r, call, why);
    }
    int code = r == CU_OUT_OF_MEMORY                        ? WEFT_ENOMEM
               : r == CU_INVALID_VALUE || r == CU_NOT_FOUND ? WEFT_EINVALID
                                                            : WEFT_EUNSUPPORTED;
    wf_fail(why, code, "%s on cuda:%d: %s", call, d->ordinal, wf_cuda_result_name(r));
    if (r == CU_NOT_INITIALIZED) {
        wf_hint(why, "CUDA does not survive a fork: use the GPU in the process that used it first, "
                     "or not before the fork");
    }
    return code;
}

void wf_cuda_get_counters(wf_cuda_counters *out)
{
    _Static_assert(sizeof *out % sizeof(int64_t) == 0, "counters are int64_t");
    const int64_t *from = (const int64_t *)&wf_cuda_count_of;
    for (size_t i = 0; i < sizeof *out / sizeof *from; i++) {
        ((int64_t *)out)[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
}
