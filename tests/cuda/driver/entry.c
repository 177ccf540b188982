/*
 * tests/cuda/driver/entry.c -- the exported functions: one lock, counted calls, planned failures.
 *
 * Arguments are checked as strictly as the manual says, so that what passes here has a chance there: a
 * context must be current, handles must live, ranges must be memory of the device.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/driver/api.h"
#include "tests/cuda/driver/entry.h"

static const char *const symbols[N_ENTRIES] = {
#define F(field, symbol, params) [E_##field] = symbol,
    CU_FUNCTIONS(F) CU_OPTIONAL_FUNCTIONS(F) FAKE_FUNCTIONS(F)
#undef F
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t counts[N_ENTRIES];
static struct {
    int entry; /* -1: any */
    int64_t left;
    cu_result result;
    int met; /* 1 + the entry that failed; 0: none yet */
} plan;
static _Thread_local int current = -1; /* device of the current context */
static cu_handle contexts[MAX_DEVICES];

void api_lock(void)
{
    pthread_mutex_lock(&lock);
}
void api_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void api_reset(void)
{
    memset(counts, 0, sizeof counts);
    memset(contexts, 0, sizeof contexts);
    plan.left = 0;
}

int64_t api_calls(const char *symbol)
{
    int64_t n = 0;
    api_lock();
    for (int i = 0; i < N_ENTRIES; i++) {
        n += !symbol || strcmp(symbol, symbols[i]) == 0 ? counts[i] : 0;
    }
    api_unlock();
    return n;
}

void api_fail(const char *symbol, int64_t n, int result)
{
    api_lock();
    plan.entry = -1;
    for (int i = 0; symbol && i < N_ENTRIES; i++) {
        plan.entry = strcmp(symbol, symbols[i]) == 0 ? i : plan.entry;
    }
    plan.left = n;
    plan.result = result;
    plan.met = 0;
    api_unlock();
}

const char *api_failed(void)
{
    return plan.met ? symbols[plan.met - 1] : "";
}

cu_result enter(enum entry e)
{
    api_lock();
    counts[e]++;
    cu_result r = CU_OK;
    if (plan.left > 0 && (plan.entry < 0 || plan.entry == (int)e) && --plan.left == 0) {
        r = plan.result;
        plan.met = 1 + (int)e;
    }
    if (r != CU_OK) {
        api_unlock();
    }
    return r;
}

int current_device(void)
{
    return current;
}

cu_result leave(cu_result r)
{
    api_unlock();
    return r;
}

cu_result enter_context(enum entry e)
{
    cu_result r = enter(e);
    if (r != CU_OK) {
        return r;
    }
    r = current < 0 || !fake.retained[current] ? CU_INVALID_CONTEXT : fake.broken[current];
    if (r != CU_OK) {
        api_unlock();
    }
    return r;
}

/* -- the driver and its devices --------------------------------------------------------------------- */

EXPORT cu_result cuInit(unsigned flags)
{
    ENTER(init);
    return leave(flags ? CU_INVALID_VALUE : CU_OK);
}

EXPORT cu_result cuDriverGetVersion(int *version)
{
    ENTER(driver_version);
    *version = fake.version;
    return leave(CU_OK);
}

EXPORT cu_result cuGetErrorName(cu_result error, const char **name)
{
    static const struct {
        cu_result r;
        const char *name;
    } names[] = {
        {CU_OK, "CUDA_SUCCESS"},
        {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
        {CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
        {CU_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {CU_NOT_READY, "CUDA_ERROR_NOT_READY"},
        {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
        {CU_PEER_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
        {CU_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {CU_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
        {CU_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
        {CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {CU_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].r == error) {
            *name = names[i].name;
            return CU_OK;
        }
    }
    return CU_INVALID_VALUE;
}

EXPORT cu_result cuDeviceGetCount(int *count)
{
    ENTER(device_count);
    *count = fake.devices;
    return leave(CU_OK);
}

EXPORT cu_result cuDeviceGet(cu_device *device, int ordinal)
{
    ENTER(device_get);
    *device = ordinal;
    return leave(ordinal >= 0 && ordinal < fake.devices ? CU_OK : CU_INVALID_DEVICE);
}

EXPORT cu_result cuDeviceGetName(char *name, int size, cu_device device)
{
    ENTER(device_name);
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return leave(CU_OK);
}

EXPORT cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
    ENTER(device_memory);
    *bytes = fake.memory;
    return leave(device >= 0 && device < fake.devices ? CU_OK : CU_INVALID_DEVICE);
}

EXPORT cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device)
{
    ENTER(device_attribute);
    cu_result r = device >= 0 && device < fake.devices ? CU_OK : CU_INVALID_DEVICE;
    switch (attribute) {
    case CU_ATTR_WARP:
        *value = 32;
        break;
    case CU_ATTR_PROCESSORS:
        *value = fake.processors;
        break;
    case CU_ATTR_L2:
        *value = 1 << 20;
        break;
    case CU_ATTR_THREADS_PER_PROCESSOR:
        *value = 2048;
        break;
    case CU_ATTR_MAJOR:
        *value = fake.arch / 10;
        break;
    case CU_ATTR_MINOR:
        *value = fake.arch % 10;
        break;
    case CU_ATTR_SHARED_OPTIN:
        *value = 227 << 10;
        break;
    case CU_ATTR_VIRTUAL_MEMORY:
        *value = fake.vm;
        break;
    default:
        r = CU_INVALID_VALUE;
    }
    return leave(r);
}

EXPORT cu_result cuDevicePrimaryCtxRetain(cu_handle *context, cu_device device)
{
    ENTER(context_retain);
    if (device < 0 || device >= fake.devices) {
        return leave(CU_INVALID_DEVICE);
    }
    if (!contexts[device]) {
        contexts[device] = handle_new(CONTEXT, &fake.retained[device]);
    }
    fake.retained[device]++;
    *context = contexts[device];
    return leave(contexts[device] ? CU_OK : CU_OUT_OF_MEMORY);
}

EXPORT cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    ENTER(context_release);
    if (device < 0 || device >= fake.devices || !fake.retained[device]) {
        return leave(CU_INVALID_CONTEXT);
    }
    if (--fake.retained[device] == 0) {
        run_all(device);
        handle_drop(contexts[device]);
        contexts[device] = NULL;
        for (int i = 0; i < MAX_DEVICES; i++) {
            fake.peer[device][i] = fake.peer[i][device] = false;
        }
    }
    return leave(CU_OK);
}

EXPORT cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer)
{
    ENTER(peer_can);
    *can = !fake.no_peers && device != peer;
    return leave(device < fake.devices && peer < fake.devices ? CU_OK : CU_INVALID_DEVICE);
}

EXPORT cu_result cuCtxEnablePeerAccess(cu_handle peer_context, unsigned flags)
{
    ENTER_CONTEXT(peer_enable);
    const int *held = handle_get(peer_context, CONTEXT);
    if (!held || flags) {
        return leave(held ? CU_INVALID_VALUE : CU_INVALID_CONTEXT);
    }
    bool *on = &fake.peer[current][held - fake.retained];
    cu_result r = fake.no_peers ? CU_PEER_UNSUPPORTED : *on ? CU_PEER_ALREADY_ENABLED : CU_OK;
    *on = *on || r == CU_OK;
    return leave(r);
}

EXPORT cu_result cuCtxSetCurrent(cu_handle context)
{
    ENTER(context_set);
    const int *held = context ? handle_get(context, CONTEXT) : NULL;
    if (context && !held) {
        return leave(CU_INVALID_CONTEXT);
    }
    current = held ? (int)(held - fake.retained) : -1;
    return leave(CU_OK);
}

/* What the device has done by now is known to the host. */
static void host_knows(const clock_vector *c)
{
    clock_join(&fake.host, c);
}

static cu_result waited(int device)
{
    for (int i = 0; i < MAX_STREAMS; i++) {
        if (fake.streams[i].device == device && !fake.streams[i].head) {
            host_knows(&fake.streams[i].clock);
        }
    }
    return fake.broken[device];
}

/* -- streams and events ----------------------------------------------------------------------------- */

EXPORT cu_result cuStreamCreate(cu_handle *out, unsigned flags)
{
    ENTER_CONTEXT(stream_create);
    for (int i = 0; i < MAX_STREAMS && flags <= 1; i++) {
        stream *s = &fake.streams[i];
        if (!s->used && !s->head) {
            uint64_t at = s->clock.at[i];
            memset(s, 0, sizeof *s);
            s->used = true;
            s->device = current;
            s->slot = i;
            s->tail = &s->head;
            s->clock.at[i] = at;
            *out = handle_new(STREAM, s);
            return leave(*out ? CU_OK : CU_OUT_OF_MEMORY);
        }
    }
    return leave(flags <= 1 ? CU_OUT_OF_MEMORY : CU_INVALID_VALUE);
}

EXPORT cu_result cuStreamDestroy_v2(cu_handle h)
{
    ENTER(stream_destroy);
    stream *s = handle_get(h, STREAM);
    if (!s) {
        return leave(CU_INVALID_HANDLE);
    }
    run_stream(s); /* the real one lets it finish; nobody can tell */
    s->used = false;
    handle_drop(h);
    return leave(CU_OK);
}

EXPORT cu_result cuStreamWaitEvent(cu_handle h, cu_handle eh, unsigned flags)
{
    ENTER_CONTEXT(stream_wait);
    stream *s = handle_get(h, STREAM);
    event *e = handle_get(eh, EVENT);
    return leave(s && e && !flags ? wait_event(s, e) : CU_INVALID_HANDLE);
}

EXPORT cu_result cuStreamQuery(cu_handle h)
{
    ENTER_CONTEXT(stream_query);
    stream *s = handle_get(h, STREAM);
    if (!s || s->capture) {
        return leave(s ? graph_spoil(s) : CU_INVALID_HANDLE);
    }
    run_some();
    if (s->head) {
        return leave(CU_NOT_READY);
    }
    host_knows(&s->clock);
    return leave(fake.broken[s->device]);
}

EXPORT cu_result cuStreamSynchronize(cu_handle h)
{
    ENTER_CONTEXT(stream_synchronize);
    stream *s = handle_get(h, STREAM);
    if (!s || s->capture) {
        return leave(s ? graph_spoil(s) : CU_INVALID_HANDLE);
    }
    run_stream(s);
    host_knows(&s->clock);
    return leave(fake.broken[s->device]);
}

EXPORT cu_result cuEventCreate(cu_handle *out, unsigned flags)
{
    ENTER_CONTEXT(event_create);
    event *e = flags <= 3 ? calloc(1, sizeof *e) : NULL;
    if (e) {
        e->device = current;
    }
    *out = e ? handle_new(EVENT, e) : NULL;
    if (!*out) {
        free(e);
        return leave(flags <= 3 ? CU_OUT_OF_MEMORY : CU_INVALID_VALUE);
    }
    return leave(CU_OK);
}

EXPORT cu_result cuEventDestroy_v2(cu_handle h)
{
    ENTER(event_destroy);
    event *e = handle_get(h, EVENT);
    if (!e) {
        return leave(CU_INVALID_HANDLE);
    }
    record_unref(e->last);
    free(e);
    handle_drop(h);
    return leave(CU_OK);
}

EXPORT cu_result cuEventRecord(cu_handle h, cu_handle sh)
{
    ENTER_CONTEXT(event_record);
    event *e = handle_get(h, EVENT);
    stream *s = handle_get(sh, STREAM);
    bool fit = e && s && e->device == s->device && s->device == current;
    return leave(fit ? record_event(s, e) : CU_INVALID_HANDLE);
}

EXPORT cu_result cuEventQuery(cu_handle h)
{
    ENTER_CONTEXT(event_query);
    event *e = handle_get(h, EVENT);
    if (!e || (e->captured && e->last)) {
        return leave(e ? CU_CAPTURE_UNSUPPORTED : CU_INVALID_HANDLE);
    }
    run_some();
    if (e->last && !e->last->done) {
        return leave(CU_NOT_READY);
    }
    if (e->last) {
        host_knows(&e->last->clock);
    }
    return leave(fake.broken[current]);
}

EXPORT cu_result cuEventSynchronize(cu_handle h)
{
    ENTER_CONTEXT(event_synchronize);
    event *e = handle_get(h, EVENT);
    if (!e || (e->captured && e->last)) {
        return leave(e ? CU_CAPTURE_UNSUPPORTED : CU_INVALID_HANDLE);
    }
    if (e->last) {
        run_record(e->last);
        host_knows(&e->last->clock);
    }
    return leave(fake.broken[current]);
}

EXPORT cu_result cuEventElapsedTime(float *ms, cu_handle begin, cu_handle end)
{
    ENTER_CONTEXT(event_elapsed);
    const event *a = handle_get(begin, EVENT), *b = handle_get(end, EVENT);
    if (!a || !b || !a->last || !b->last) {
        return leave(CU_INVALID_HANDLE);
    }
    *ms = (float)(b->last->ms - a->last->ms);
    return leave(a->last->done && b->last->done ? CU_OK : CU_NOT_READY);
}

EXPORT cu_result cuLaunchHostFunc(cu_handle sh, cu_host_fn fn, void *arg)
{
    ENTER_CONTEXT(host_function);
    stream *s = handle_get(sh, STREAM);
    op *o = s ? op_new(OP_HOST, s, "host function") : NULL;
    if (!o) {
        return leave(s ? CU_OUT_OF_MEMORY : CU_INVALID_HANDLE);
    }
    o->host = fn;
    o->host_arg = arg;
    return leave(submit(s, o));
}

/* -- memory ----------------------------------------------------------------------------------------- */

EXPORT cu_result cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    ENTER_CONTEXT(memory_info);
    *total = fake.memory;
    *unused = fake.memory - memory_used(current);
    return leave(CU_OK);
}

EXPORT cu_result cuMemAlloc_v2(cu_address *address, size_t size)
{
    ENTER_CONTEXT(memory_alloc);
    return leave(memory_alloc(current, size, address));
}

EXPORT cu_result cuMemFree_v2(cu_address address)
{
    ENTER_CONTEXT(memory_free);
    run_all(current); /* as on a device, where freeing waits */
    waited(current);
    return leave(memory_free(address));
}

EXPORT cu_result cuMemHostAlloc(void **address, size_t size, unsigned flags)
{
    ENTER_CONTEXT(host_alloc);
    return leave(flags <= 7 ? host_alloc(size, address) : CU_INVALID_VALUE);
}

EXPORT cu_result cuMemFreeHost(void *address)
{
    ENTER_CONTEXT(host_free);
    run_all(current);
    return leave(host_free(address));
}

EXPORT cu_result cuMemHostGetDevicePointer_v2(cu_address *device, void *address, unsigned flags)
{
    ENTER_CONTEXT(host_device_address);
    *device = (cu_address)(uintptr_t)address;
    return leave(flags ? CU_INVALID_VALUE : CU_OK);
}

static cu_result queue_copy(cu_handle sh, uint64_t dst, uint64_t src, size_t size, bool dst_device,
                            bool src_device, const char *what)
{
    stream *s = handle_get(sh, STREAM);
    if (!s || s->device != current) {
        return CU_INVALID_HANDLE;
    }
    if (size == 0) {
        return CU_OK;
    }
    if ((dst_device && !memory_valid(dst, size)) || (src_device && !memory_valid(src, size))) {
        return CU_INVALID_VALUE;
    }
    op *o = op_new(OP_COPY, s, what);
    if (!o) {
        return CU_OUT_OF_MEMORY;
    }
    o->dst = dst;
    o->src = src;
    o->size = size;
    o->dst_device = dst_device;
    o->src_device = src_device;
    o->ranges[o->n_ranges++] = (range){dst, size, true};
    o->ranges[o->n_ranges++] = (range){src, size, false};
    return submit(s, o);
}

EXPORT cu_result cuMemcpyHtoDAsync_v2(cu_address dst, const void *src, size_t size, cu_handle s)
{
    ENTER_CONTEXT(copy_in);
    return leave(
        queue_copy(s, dst, (uint64_t)(uintptr_t)src, size, true, false, "copy to the device"));
}

EXPORT cu_result cuMemcpyDtoHAsync_v2(void *dst, cu_address src, size_t size, cu_handle s)
{
    ENTER_CONTEXT(copy_out);
    return leave(
        queue_copy(s, (uint64_t)(uintptr_t)dst, src, size, false, true, "copy from the device"));
}

EXPORT cu_result cuMemcpyDtoDAsync_v2(cu_address dst, cu_address src, size_t size, cu_handle s)
{
    ENTER_CONTEXT(copy);
    return leave(queue_copy(s, dst, src, size, true, true, "copy on the device"));
}

EXPORT cu_result cuMemcpyPeerAsync(cu_address dst, cu_handle dst_context, cu_address src,
                                   cu_handle src_context, size_t size, cu_handle s)
{
    ENTER_CONTEXT(copy_peer);
    const int *to = handle_get(dst_context, CONTEXT), *from = handle_get(src_context, CONTEXT);
    if (!to || !from) {
        return leave(CU_INVALID_CONTEXT);
    }
    if (memory_device(dst) != to - fake.retained || memory_device(src) != from - fake.retained) {
        return leave(CU_INVALID_VALUE);
    }
    const int reads = (int)(to - fake.retained), owns = (int)(from - fake.retained);
    if (fake.peer[reads][owns] && !memory_reached_by(src, size, reads)) {
        return leave(CU_INVALID_VALUE); /* copied without the host, and not mapped for it */
    }
    return leave(queue_copy(s, dst, src, size, true, true, "copy between devices"));
}

EXPORT cu_result cuMemsetD8Async(cu_address dst, unsigned char value, size_t n, cu_handle sh)
{
    ENTER_CONTEXT(set_bytes);
    stream *s = handle_get(sh, STREAM);
    if (!s || s->device != current || n == 0) {
        return leave(s && s->device == current ? CU_OK : CU_INVALID_HANDLE);
    }
    op *o = memory_valid(dst, n) ? op_new(OP_SET, s, "clear") : NULL;
    if (!o) {
        return leave(CU_INVALID_VALUE);
    }
    o->dst = dst;
    o->dst_device = true;
    o->size = n;
    o->value = value;
    o->ranges[o->n_ranges++] = (range){dst, n, true};
    return leave(submit(s, o));
}

/* -- modules and launches --------------------------------------------------------------------------- */

EXPORT cu_result cuModuleLoadData(cu_handle *out, const void *bytes)
{
    ENTER_CONTEXT(module_load);
    image *m = NULL;
    cu_result r = image_load(bytes, &m);
    *out = r == CU_OK ? handle_new(MODULE, m) : NULL;
    return leave(r);
}

EXPORT cu_result cuModuleUnload(cu_handle h)
{
    ENTER(module_unload);
    image *m = handle_get(h, MODULE);
    if (!m) {
        return leave(CU_INVALID_HANDLE);
    }
    if (image_is_queued(m)) { /* nobody promises that a launch outlives its code */
        run_all(-1);
        fake.broken[current < 0 ? 0 : current] = CU_ILLEGAL_ADDRESS;
        return leave(CU_ILLEGAL_ADDRESS);
    }
    image_free(m); /* functions stay as dead names */
    handle_drop(h);
    return leave(CU_OK);
}

EXPORT cu_result cuModuleGetFunction(cu_handle *out, cu_handle h, const char *name)
{
    ENTER_CONTEXT(module_function);
    image *m = handle_get(h, MODULE);
    kernel *k = NULL;
    cu_result r = m ? image_kernel(m, name, &k) : CU_INVALID_HANDLE;
    *out = r == CU_OK ? handle_new(FUNCTION, k) : NULL;
    return leave(r);
}

EXPORT cu_result cuFuncSetAttribute(cu_handle h, int attribute, int value)
{
    ENTER_CONTEXT(function_set);
    kernel *k = handle_get(h, FUNCTION);
    bool ok = k && attribute == CU_FN_SHARED_DYNAMIC && value >= 0 &&
              (unsigned)value + k->fixed <= 227 << 10;
    if (ok) {
        k->dynamic = (unsigned)value;
    }
    return leave(!k ? CU_INVALID_HANDLE : ok ? CU_OK : CU_INVALID_VALUE);
}

EXPORT cu_result cuFuncGetAttribute(int *value, int attribute, cu_handle h)
{
    ENTER_CONTEXT(function_get);
    const kernel *k = handle_get(h, FUNCTION);
    if (k) {
        *value = (int)(attribute == CU_FN_THREADS          ? k->threads
                       : attribute == CU_FN_SHARED_STATIC  ? k->fixed
                       : attribute == CU_FN_SHARED_DYNAMIC ? k->dynamic
                                                           : 0);
    }
    return leave(k ? CU_OK : CU_INVALID_HANDLE);
}

cu_result launch_check(const op *o)
{
    const uint64_t threads = (uint64_t)o->block[0] * o->block[1] * o->block[2];
    const bool ok = threads >= 1 && threads <= 1024 && o->block[2] <= 64 && o->grid[0] >= 1 &&
                    o->grid[1] >= 1 && o->grid[2] >= 1 && o->grid[0] <= 0x7fffffff &&
                    o->grid[1] <= 65535 && o->grid[2] <= 65535 && o->shared <= o->fn->dynamic;
    return !ok ? CU_INVALID_VALUE : threads > o->fn->threads ? CU_LAUNCH_OUT_OF_RESOURCES : CU_OK;
}

static cu_result queue_kernel(stream *s, op *o, void **params)
{
    cu_result r = launch_check(o);
    o->what = o->fn->name;
    if (r != CU_OK) {
        op_free(o);
        return r;
    }
    if (kernel_bind(o, params)) {
        return submit(s, o);
    }
    /* Arguments of unknown size: it runs now, after all that its stream waits for. */
    run_stream(s);
    memory_open();
    r = kernel_run_now(o->fn, o->grid, o->block, o->shared, params);
    memory_close();
    fake.broken[o->device] = r;
    op_free(o);
    return CU_OK;
}

/* What overlaps waits for what is before it as its first statement: work is done in the stream's order, as without. */
EXPORT cu_result cuLaunchKernelEx(const cu_launch_config *c, cu_handle h, void **params,
                                  void **extra)
{
    ENTER_CONTEXT(launch_ex);
    kernel *k = handle_get(h, FUNCTION);
    stream *s = handle_get(c->stream, STREAM);
    const bool known = c->n == 0 || (c->n == 1 && c->attributes[0].id == CU_LAUNCH_OVERLAPS);
    if (!k || !s || extra || !known || s->device != current) {
        return leave(extra || !known ? CU_INVALID_VALUE : CU_INVALID_HANDLE);
    }
    if (s->capture && c->n && fake.version < 12030) { /* graphs have no edges for that yet */
        return leave(CU_CAPTURE_UNSUPPORTED);
    }
    op *o = op_new(OP_KERNEL, s, k->name);
    if (!o) {
        return leave(CU_OUT_OF_MEMORY);
    }
    o->fn = k;
    memcpy(o->grid, c->grid, sizeof c->grid);
    memcpy(o->block, c->block, sizeof c->block);
    o->shared = c->shared;
    return leave(queue_kernel(s, o, params));
}

EXPORT cu_result cuLaunchKernel(cu_handle h, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z,
                                unsigned shared, cu_handle sh, void **params, void **extra)
{
    ENTER_CONTEXT(launch);
    kernel *k = handle_get(h, FUNCTION);
    stream *s = handle_get(sh, STREAM);
    if (!k || !s || extra || s->device != current) {
        return leave(extra ? CU_INVALID_VALUE : CU_INVALID_HANDLE);
    }
    op *o = op_new(OP_KERNEL, s, k->name);
    if (!o) {
        return leave(CU_OUT_OF_MEMORY);
    }
    o->fn = k;
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    memcpy(o->grid, grid, sizeof grid);
    memcpy(o->block, block, sizeof block);
    o->shared = shared;
    return leave(queue_kernel(s, o, params));
}
