/*
 * eager/cuda/vm.c -- what the allocator's books stand on: driver memory, whole or mapped piece by piece.
 *
 * Mapped memory comes in granules of its own, each released as soon as it is mapped (it lives as long as
 * the mapping), so that any of them can be unmapped. cuMemFree waits for the device, unmapping does not:
 * the books call idle before either. In a profile such calls are spans: they are what a first step waits for.
 */
#include "eager/cuda/stream.h"
#include "eager/env.h"
#include "eager/profile.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

#define MIB ((uint64_t)1 << 20)

static cu_memory_props props_of(const wf_cuda_device *d)
{
    return (cu_memory_props){.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, d->id}};
}

/* Whoever asks the books need not have made the device current (wf_cuda_reach). What goes wrong here, the next call says. */
static wf_cuda_device *enter(void *self)
{
    wf_cuda_device *d = self;
    wf_cu->context_set(d->context);
    return d;
}

/* Sticky errors are noted, whoever meets them. */
static int noted(wf_cuda_device *d, cu_result r)
{
    if (r != CU_OK && wf_cuda_result_is_sticky(r)) {
        int none = 0;
        atomic_compare_exchange_strong(&d->broken, &none, r);
    }
    return r;
}

/* What began at `start` was a call for memory. */
static void tell(int64_t start, const char *name, uint64_t size)
{
    if (start) {
        wf_prof_end(start,
                    &(wf_prof_span){WEFT_PROFILE_RANGE, .name = name, .bytes = (int64_t)size});
    }
}

static int do_reserve(void *self, uint64_t size, uint64_t *address)
{
    wf_cuda_device *d = enter(self);
    return noted(d, wf_cu->vm_reserve(address, size, 32 * MIB, 0, 0));
}

static void do_unreserve(void *self, uint64_t address, uint64_t size)
{
    enter(self);
    wf_cu->vm_unreserve(address, size);
}

static void do_unmap(void *self, uint64_t address, uint64_t size, uint64_t granule)
{
    enter(self);
    WF_CUDA_COUNT(driver_frees, 1);
    int64_t start = wf_prof_start();
    for (uint64_t at = 0; at < size; at += granule) {
        wf_cu->vm_unmap(address + at, granule);
    }
    tell(start, "driver memory: unmap", size);
}

static cu_result map_one(wf_cuda_device *d, uint64_t address, uint64_t size)
{
    cu_memory memory = 0;
    cu_memory_props props = props_of(d);
    cu_result r = wf_cu->vm_create(&memory, size, &props, 0);
    if (r == CU_OK) {
        r = wf_cu->vm_map(address, size, 0, memory, 0);
        wf_cu->vm_release(memory);
    }
    return r;
}

/* d itself, and who else reaches its memory. */
static size_t who_reaches(const wf_cuda_device *d, cu_access out[WF_CUDA_DEVICES])
{
    size_t n = 0;
    out[n++] = (cu_access){{CU_LOCATION_DEVICE, d->id}, CU_ACCESS_READ_WRITE};
    for (int i = 0; i < WF_CUDA_DEVICES; i++) {
        const wf_cuda_device *peer = d->reached_by >> i & 1 ? wf_cuda_peek(i) : NULL;
        if (peer && peer != d) {
            out[n++] = (cu_access){{CU_LOCATION_DEVICE, peer->id}, CU_ACCESS_READ_WRITE};
        }
    }
    return n;
}

/* What is mapped and lies side by side. */
typedef struct mapped {
    cu_access access;
    uint64_t address, size;
    cu_result r;
} mapped;

static void let_reach(mapped *m)
{
    if (m->size && m->r == CU_OK) {
        m->r = wf_cu->vm_access(m->address, m->size, &m->access, 1);
    }
    m->size = 0;
}

static void visit(void *arg, int key, uint64_t segment, uint64_t address, uint64_t size, int state)
{
    mapped *m = arg;
    (void)key;
    if (state == 2 || address == segment || m->address + m->size != address) {
        let_reach(m);
        m->address = address;
    }
    m->size += state == 2 ? 0 : size;
}

bool wf_cuda_let_reach(wf_cuda_device *d, const wf_cuda_device *by)
{
    mapped m = {.access = {{CU_LOCATION_DEVICE, by->id}, CU_ACCESS_READ_WRITE}};
    if (d->cache && d->maps) {
        wf_cache_walk(d->cache, visit, &m);
        let_reach(&m);
    }
    d->reached_by |= m.r == CU_OK ? UINT32_C(1) << by->ordinal : 0;
    return m.r == CU_OK;
}

static int do_map(void *self, uint64_t address, uint64_t size, uint64_t granule)
{
    wf_cuda_device *d = enter(self);
    WF_CUDA_COUNT(driver_allocs, 1);
    int64_t start = wf_prof_start();
    uint64_t at = 0;
    cu_result r = CU_OK;
    while (at < size && r == CU_OK) {
        r = map_one(d, address + at, granule);
        at += r == CU_OK ? granule : 0;
    }
    if (r == CU_OK) {
        cu_access access[WF_CUDA_DEVICES];
        r = wf_cu->vm_access(address, size, access, who_reaches(d, access));
    }
    for (uint64_t k = 0; r != CU_OK && k < at; k += granule) {
        wf_cu->vm_unmap(address + k, granule);
    }
    tell(start, "driver memory: map", size);
    return noted(d, r);
}

/* A segment of the program's own source. */
static int ask_source(wf_cuda_device *d, uint64_t size, uint64_t *address)
{
    enum { ALIGNMENT = 512 };
    void *p = d->source.allocate(d->source.user, size, ALIGNMENT);
    if (p && (uintptr_t)p % ALIGNMENT) {
        d->source.release(d->source.user, p, size);
        p = NULL;
    }
    *address = (uint64_t)(uintptr_t)p;
    return p ? CU_OK : CU_OUT_OF_MEMORY;
}

static int do_segment(void *self, uint64_t size, uint64_t *address)
{
    WF_CUDA_COUNT(driver_allocs, 1);
    int64_t start = wf_prof_start();
    wf_cuda_device *d = enter(self);
    cu_result r = d->source.allocate ? (cu_result)ask_source(d, size, address)
                                     : wf_cu->memory_alloc(address, size);
    tell(start, "driver memory: allocate", size);
    return noted(d, r);
}

static void do_segment_free(void *self, uint64_t address, uint64_t size)
{
    wf_cuda_device *d = enter(self);
    WF_CUDA_COUNT(driver_frees, 1);
    int64_t start = wf_prof_start();
    if (d->source.allocate) {
        d->source.release(d->source.user, (void *)(uintptr_t)address, size);
    } else {
        wf_cu->memory_free(address);
    }
    tell(start, "driver memory: free", size);
}

static void do_idle(void *self)
{
    wf_cuda_device *d = enter(self);
    WF_CUDA_COUNT(hidden_waits, 1);
    for (int i = 0; i < d->n_streams; i++) {
        wf_cuda_stream *s = &d->streams[i];
        cu_handle event = wf_cuda_end_of(s);
        noted(d, event ? wf_cu->event_synchronize(event) : wf_cu->stream_synchronize(s->handle));
    }
}

static bool is_kept(void *self, int key)
{
    const wf_cuda_device *d = self;
    return key >= WF_CUDA_STREAMS && d->graph_pool[key - WF_CUDA_STREAMS];
}

static int do_order(void *self, int key, wf_cache_mark m)
{
    wf_cuda_device *d = self;
    if (key >= WF_CUDA_STREAMS) { /* a graph's memory: its launches are ordered as a whole */
        return 0;
    }
    wf_why why = {0};
    int code = wf_cuda_order_work(&d->streams[key], &d->streams[m.stream], m.work, &why);
    /* no error that stands for a broken device: if it is one, that is noted */
    return !code ? 0 : code == WEFT_ENOMEM ? CU_OUT_OF_MEMORY : CU_NOT_SUPPORTED;
}

/* A driver may list the functions and yet refuse memory by them (in some containers and virtual machines): tried once, with a
 * granule. Want of memory is no refusal. */
static bool maps_memory(wf_cuda_device *d, uint64_t granule)
{
    uint64_t address = 0;
    cu_access access = {{CU_LOCATION_DEVICE, d->id}, CU_ACCESS_READ_WRITE};
    cu_result r = wf_cu->vm_reserve(&address, granule, 0, 0, 0);
    if (r != CU_OK) {
        return false;
    }
    r = map_one(d, address, granule);
    if (r == CU_OK) {
        r = wf_cu->vm_access(address, granule, &access, 1);
        wf_cu->vm_unmap(address, granule);
    }
    wf_cu->vm_unreserve(address, granule);
    return r == CU_OK || r == CU_OUT_OF_MEMORY;
}

wf_cache *wf_cuda_cache_new(wf_cuda_device *d)
{
    wf_cache_driver below = {.self = d,
                             .unreserve = do_unreserve,
                             .map = do_map,
                             .unmap = do_unmap,
                             .segment = do_segment,
                             .segment_free = do_segment_free,
                             .idle = do_idle,
                             .kept = is_kept,
                             .order = do_order};
    wf_cache_rules rules = {.small_granule = 2 * MIB, .large_granule = 8 * MIB};
    size_t granule = 0;
    cu_memory_props props = props_of(d);
    rules.single = wf_env()->WEFT_CUDA_MEMCHECK != 0;
    enter(d);
    d->maps = false;
    if (d->info.expandable && !d->source.allocate) {
        d->info.expandable = wf_cu->vm_granularity(&granule, &props, 0) == CU_OK && granule &&
                             8 * MIB % granule == 0 && maps_memory(d, granule);
        below.reserve = d->info.expandable ? do_reserve : NULL;
        d->maps = d->info.expandable;
        rules.small_granule = d->maps && granule > 2 * MIB ? granule : 2 * MIB;
    }
    uint64_t memory = (uint64_t)d->info.memory_bytes;
    rules.reserve = (memory + memory / 8 + 32 * MIB - 1) & ~(32 * MIB - 1);
    wf_cache *c = wf_cache_new(&below, &rules);
    if (c) {
        wf_cache_set_cap(c, wf_env()->WEFT_CUDA_CAP);
    }
    return c;
}
