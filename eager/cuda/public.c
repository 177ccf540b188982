/*
 * eager/cuda/public.c -- the functions of weft/cuda.h: arguments checked, errors recorded.
 *
 * Handles of streams and events are numbers: where it is in a table that is never given back, and a serial
 * that grows when it is freed. So a freed one that is used is an error, and never a crash or somebody else's.
 */
#include "eager/api.h"

#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/pinned.h"
#include "eager/cuda/stream.h"
#include "eager/device.h"
#include "jit/ir/thread_text.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { EVENTS_PER_PAGE = 64, EVENT_PAGES = 4096 };

typedef struct event {
    struct event *next_free;
    wf_cuda_device *device;
    uint32_t generation;
    uint32_t index, serial;
    bool in_use, recorded;
    cu_handle handle;
} event;

static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static event *_Atomic event_pages[EVENT_PAGES];
static uint32_t n_event_pages;
static event *free_events;

/* Never the address of anything, and never NULL. */
static void *handle_of(uint32_t index, uint32_t serial)
{
    return (void *)(uintptr_t)((uint64_t)serial << 20 | (uint64_t)index << 1 | 1);
}
static uint32_t index_of(const void *handle)
{
    return (uint32_t)((uintptr_t)handle >> 1) & ((1u << 19) - 1);
}
static uint32_t serial_of(const void *handle)
{
    return (uint32_t)((uint64_t)(uintptr_t)handle >> 20);
}
_Static_assert(EVENTS_PER_PAGE *EVENT_PAGES <= 1 << 19 &&
                   WF_CUDA_STREAMS * WF_CUDA_DEVICES <= 1 << 19,
               "indices fit a handle");

static weft_status fail(const char *op, const wf_why *why)
{
    wf_ctx *c = wf_ctx_get();
    return c ? (weft_status)wf_raise_status(c, op, 0, NULL, why) : WEFT_ENOMEM;
}

static weft_status result(const char *op, int code, const wf_why *why)
{
    return code ? fail(op, why) : WEFT_OK;
}

/* The ordinal of a GPU; -1: why is filled. */
static int ordinal_of(weft_device device, wf_why *why)
{
    if (device.kind != WEFT_DEVICE_CUDA || device.index < 0 || device.index >= WF_CUDA_DEVICES) {
        wf_fail(why, WEFT_EINVALID, "the device is %s; WEFT_CUDA(i) is wanted, i < %d",
                weft_device_name(device), WF_CUDA_DEVICES);
        return -1;
    }
    return device.index;
}

/* The device, current; NULL: why is filled. */
static wf_cuda_device *enter(weft_device device, wf_why *why)
{
    int ordinal = ordinal_of(device, why);
    return ordinal < 0 ? NULL : wf_cuda_enter(ordinal, why);
}

/* -- devices ---------------------------------------------------------------------------------------- */

int weft_cuda_count(void)
{
    return wf_cuda_count();
}

const char *weft_cuda_missing(weft_device device)
{
    wf_why why = {0};
    if (device.kind == WEFT_DEVICE_CPU) {
        return "";
    }
    int ordinal = ordinal_of(device, &why);
    if (ordinal >= 0 && wf_cuda_open(ordinal, &why) == 0) {
        return "";
    }
    char *text = wf_thread_text(WF_TEXT_MISSING_CUDA);
    if (text) {
        snprintf(text, WF_THREAD_TEXT, "%s", why.rule);
    }
    return text ? text : "out of memory";
}

weft_status(weft_cuda_get_info)(weft_device device, weft_cuda_info *out)
{
    wf_why why = {0};
    wf_cuda_device *d = out ? enter(device, &why) : NULL;
    if (!d) {
        return out ? fail("cuda_get_info", &why)
                   : weft_error_status(wf_api_null("cuda_get_info", "out"));
    }
    *out = (weft_cuda_info){.driver = d->info.driver,
                            .processors = d->info.processors,
                            .memory_bytes = d->info.memory_bytes,
                            .l2_bytes = d->info.l2_bytes,
                            .expandable = wf_cuda_is_expandable(d->ordinal)};
    memcpy(out->name, d->info.name, sizeof out->name);
    memcpy(out->arch, d->info.arch, sizeof out->arch);
    return WEFT_OK;
}

weft_status(weft_synchronize)(weft_device device)
{
    wf_why why = {0};
    if (device.kind == WEFT_DEVICE_CPU && device.index == 0) {
        return WEFT_OK;
    }
    int ordinal = ordinal_of(device, &why);
    return result("synchronize", ordinal < 0 ? why.code : wf_cuda_synchronize(ordinal, &why), &why);
}

/* -- streams ---------------------------------------------------------------------------------------- */

static weft_stream *public_stream(const wf_cuda_stream *s)
{
    uint32_t index = (uint32_t)(s->device->ordinal * WF_CUDA_STREAMS + s->slot);
    return handle_of(index, atomic_load(&s->serial));
}

static wf_cuda_stream *stream_of(weft_stream *stream, wf_why *why)
{
    uint32_t index = index_of(stream);
    int ordinal = (int)(index / WF_CUDA_STREAMS), slot = (int)(index % WF_CUDA_STREAMS);
    bool some = (uintptr_t)stream & 1 && ordinal < WF_CUDA_DEVICES;
    wf_cuda_device *d = some ? wf_cuda_peek(ordinal) : NULL;
    bool live = false;
    if (d) {
        pthread_mutex_lock(&d->lock);
        const wf_cuda_stream *s = &d->streams[slot];
        live = slot < d->n_streams && s->in_use && atomic_load(&s->serial) == serial_of(stream);
        pthread_mutex_unlock(&d->lock);
    }
    if (!live) {
        wf_fail(why, stream ? WEFT_EHANDLE : WEFT_EINVALID, "the stream %s",
                stream ? "is freed" : "is NULL");
        return NULL;
    }
    return wf_cuda_enter(ordinal, why) ? &d->streams[slot] : NULL;
}

weft_stream *weft_stream_new(weft_device device)
{
    wf_why why = {0};
    wf_cuda_device *d = enter(device, &why);
    wf_cuda_stream *s = d ? wf_cuda_stream_take(d, &why) : NULL;
    if (!s) {
        fail("stream_new", &why);
    }
    return s ? public_stream(s) : NULL;
}

weft_status(weft_stream_free)(weft_stream *stream)
{
    wf_why why = {0};
    wf_cuda_stream *s = stream ? stream_of(stream, &why) : NULL;
    if (s) {
        wf_cuda_stream_give(s);
    }
    return result("stream_free", stream && !s, &why);
}

weft_stream *weft_stream_current(weft_device device)
{
    wf_why why = {0};
    wf_cuda_device *d = enter(device, &why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, &why) : NULL;
    if (!s) {
        fail("stream_current", &why);
    }
    return s && s->slot ? public_stream(s) : NULL;
}

weft_status(weft_stream_set)(weft_device device, weft_stream *stream)
{
    wf_why why = {0};
    wf_cuda_stream *s = stream ? stream_of(stream, &why) : NULL;
    wf_cuda_device *d = !stream || s ? enter(device, &why) : NULL;
    if (d && s && s->device != d) {
        wf_fail(&why, WEFT_EINVALID, "the stream is of cuda:%d, not of %s", s->device->ordinal,
                weft_device_name(device));
        d = NULL;
    }
    if (d && wf_cuda_capturing(d->ordinal)) {
        wf_fail(&why, WEFT_EUNSUPPORTED, "the thread's stream is recording a graph");
        d = NULL;
    }
    if (d) {
        wf_cuda_set_current(d, s);
    }
    return result("stream_set", !d, &why);
}

weft_status(weft_stream_synchronize)(weft_stream *stream)
{
    wf_why why = {0};
    wf_cuda_stream *s = stream_of(stream, &why);
    if (s) {
        WF_CUDA_COUNT(waits, 1);
    }
    return result("stream_synchronize", s ? wf_cuda_stream_wait(s, &why) : why.code, &why);
}

bool weft_stream_done(weft_stream *stream)
{
    wf_why why = {0};
    wf_cuda_stream *s = stream_of(stream, &why);
    cu_result r = s ? wf_cu->stream_query(s->handle) : CU_OK;
    if (!s || (r != CU_NOT_READY && wf_cuda_check(s->device, r, "cuStreamQuery", &why))) {
        fail("stream_done", &why);
        return false;
    }
    return r == CU_OK;
}

/* -- events ----------------------------------------------------------------------------------------- */

/* Lock held. */
static bool add_events(void)
{
    event *p = n_event_pages < EVENT_PAGES ? wf_calloc(EVENTS_PER_PAGE, sizeof *p) : NULL;
    for (uint32_t i = 0; p && i < EVENTS_PER_PAGE; i++) {
        p[i].index = n_event_pages * EVENTS_PER_PAGE + i;
        p[i].next_free = free_events;
        free_events = &p[i];
    }
    if (p) {
        atomic_store(&event_pages[n_event_pages++], p);
    }
    return p != NULL;
}

static event *take_event(wf_why *why)
{
    pthread_mutex_lock(&event_lock);
    event *e = free_events || add_events() ? free_events : NULL;
    if (e) {
        free_events = e->next_free;
    } else {
        wf_fail(why, WEFT_ENOMEM, "no host memory for an event, or %d live",
                EVENTS_PER_PAGE * EVENT_PAGES);
    }
    pthread_mutex_unlock(&event_lock);
    return e;
}

static void give_event(event *e)
{
    pthread_mutex_lock(&event_lock);
    e->in_use = false;
    e->serial++;
    e->next_free = free_events;
    free_events = e;
    pthread_mutex_unlock(&event_lock);
}

weft_event *weft_event_new(weft_device device)
{
    wf_why why = {0};
    wf_cuda_device *d = enter(device, &why);
    event *e = d ? take_event(&why) : NULL;
    cu_handle handle = NULL;
    if (e &&
        wf_cuda_check(d, wf_cu->event_create(&handle, CU_EVENT_TIMED), "cuEventCreate", &why)) {
        give_event(e);
        e = NULL;
    }
    if (!e) {
        fail("event_new", &why);
        return NULL;
    }
    e->device = d;
    e->generation = d->generation;
    e->in_use = true;
    e->recorded = false;
    e->handle = handle;
    return handle_of(e->index, e->serial);
}

/* NULL: it is freed, or none. */
static event *find_event(const weft_event *handle)
{
    uint32_t i = index_of(handle);
    bool some = (uintptr_t)handle & 1 && i < EVENTS_PER_PAGE * EVENT_PAGES;
    event *p = some ? atomic_load(&event_pages[i / EVENTS_PER_PAGE]) : NULL;
    event *e = p ? p + i % EVENTS_PER_PAGE : NULL;
    return e && e->in_use && e->serial == serial_of(handle) ? e : NULL;
}

/* Its device is current then; NULL: why is filled. */
static event *event_of(const weft_event *handle, wf_why *why)
{
    event *e = find_event(handle);
    if (!e || e->generation != e->device->generation) {
        wf_fail(why, handle ? WEFT_EHANDLE : WEFT_EINVALID, "the event %s",
                handle ? "is freed" : "is NULL");
        return NULL;
    }
    return wf_cuda_enter(e->device->ordinal, why) ? e : NULL;
}

weft_status(weft_event_free)(weft_event *handle)
{
    wf_why why = {0};
    if (!handle) {
        return WEFT_OK;
    }
    event *e = find_event(handle);
    bool closed =
        e && e->generation != e->device->generation; /* the driver's went with its device */
    if (!closed && !event_of(handle, &why) && !(e && atomic_load(&e->device->broken))) {
        return fail("event_free", &why);
    }
    if (!closed) {
        wf_cu->event_destroy(e->handle);
    }
    give_event(e);
    return WEFT_OK;
}

weft_status(weft_event_record)(weft_event *handle)
{
    wf_why why = {0};
    event *e = event_of(handle, &why);
    wf_cuda_stream *s = e ? wf_cuda_current(e->device, &why) : NULL;
    if (!s || (s->capture && wf_cuda_graph_refuse(s->capture, "an event", &why))) {
        return fail("event_record", &why);
    }
    int code =
        wf_cuda_check(e->device, wf_cu->event_record(e->handle, s->handle), "cuEventRecord", &why);
    e->recorded |= !code;
    return result("event_record", code, &why);
}

weft_status(weft_event_wait)(weft_event *handle)
{
    wf_why why = {0};
    event *e = event_of(handle, &why);
    wf_cuda_stream *s = e ? wf_cuda_current(e->device, &why) : NULL;
    if (!s || (s->capture && wf_cuda_graph_refuse(s->capture, "an event", &why))) {
        return fail("event_wait", &why);
    }
    cu_result r = e->recorded ? wf_cu->stream_wait(s->handle, e->handle, 0) : CU_OK;
    return result("event_wait", wf_cuda_check(e->device, r, "cuStreamWaitEvent", &why), &why);
}

static int wait_event(const event *e, wf_why *why)
{
    WF_CUDA_COUNT(waits, 1);
    cu_result r = e->recorded ? wf_cu->event_synchronize(e->handle) : CU_OK;
    int code = wf_cuda_check(e->device, r, "cuEventSynchronize", why);
    return code ? code : wf_cuda_words_check(e->device, NULL, 0, why);
}

weft_status(weft_event_synchronize)(weft_event *handle)
{
    wf_why why = {0};
    const event *e = event_of(handle, &why);
    return result("event_synchronize", !e || wait_event(e, &why), &why);
}

bool weft_event_done(weft_event *handle)
{
    wf_why why = {0};
    const event *e = event_of(handle, &why);
    cu_result r = e && e->recorded ? wf_cu->event_query(e->handle) : CU_OK;
    if (!e || (r != CU_NOT_READY && wf_cuda_check(e->device, r, "cuEventQuery", &why))) {
        fail("event_done", &why);
        return false;
    }
    return r == CU_OK;
}

weft_status(weft_event_elapsed)(weft_event *from, weft_event *to, double *milliseconds)
{
    wf_why why = {0};
    float ms = 0;
    const event *begin = event_of(from, &why), *end = begin ? event_of(to, &why) : NULL;
    if (!begin || !end) {
        return fail("event_elapsed", &why);
    }
    if (!milliseconds || begin->device != end->device || !begin->recorded || !end->recorded) {
        wf_fail(&why, WEFT_EINVALID, "%s",
                !milliseconds                  ? "milliseconds is NULL"
                : begin->device != end->device ? "the events are of two devices"
                                               : "an event was never recorded");
        return fail("event_elapsed", &why);
    }
    int code = wait_event(end, &why);
    if (!code) {
        code = wf_cuda_check(end->device, wf_cu->event_elapsed(&ms, begin->handle, end->handle),
                             "cuEventElapsedTime", &why);
    }
    *milliseconds = (double)ms;
    return result("event_elapsed", code, &why);
}

/* -- memory ----------------------------------------------------------------------------------------- */

weft_status(weft_cuda_get_memory)(weft_device device, weft_cuda_memory *out)
{
    wf_why why = {0};
    int ordinal = ordinal_of(device, &why);
    if (!out || ordinal < 0 || wf_cuda_open(ordinal, &why)) {
        return out ? fail("cuda_get_memory", &why)
                   : weft_error_status(wf_api_null("cuda_get_memory", "out"));
    }
    wf_cuda_memory m;
    wf_cuda_get_memory(ordinal, &m);
    *out = (weft_cuda_memory){.live_bytes = m.live_bytes,
                              .peak_bytes = m.peak_bytes,
                              .asked_bytes = m.asked_bytes,
                              .reserved_bytes = m.reserved_bytes,
                              .peak_reserved_bytes = m.peak_reserved_bytes,
                              .largest_free = m.largest_free,
                              .live_blocks = m.live_blocks,
                              .allocations = m.allocs,
                              .driver_allocations = m.driver_allocs,
                              .driver_frees = m.driver_frees,
                              .retries = m.retries,
                              .failures = m.failures,
                              .cap = m.cap};
    return WEFT_OK;
}

weft_status weft_cuda_reset_peak(weft_device device)
{
    wf_why why = {0};
    int ordinal = ordinal_of(device, &why);
    if (ordinal < 0 || wf_cuda_open(ordinal, &why)) {
        return fail("cuda_reset_peak", &why);
    }
    wf_cuda_reset_peak(ordinal);
    return WEFT_OK;
}

weft_status(weft_cuda_set_cap)(weft_device device, int64_t bytes)
{
    wf_why why = {0};
    int ordinal = ordinal_of(device, &why);
    return result("cuda_set_cap", ordinal < 0 || wf_cuda_set_cap(ordinal, bytes, &why), &why);
}

weft_status(weft_cuda_set_allocator)(weft_device device, const weft_allocator *a)
{
    wf_why why = {0};
    int ordinal = ordinal_of(device, &why);
    if (ordinal >= 0 && a && (!a->allocate || !a->release)) {
        ordinal = -1;
        wf_fail(&why, WEFT_EINVALID, "%s is NULL", a->allocate ? "release" : "allocate");
    }
    const wf_heap_source source = {a ? a->allocate : NULL, a ? a->release : NULL,
                                   a ? a->user : NULL};
    return result("cuda_set_allocator",
                  ordinal < 0 || wf_cuda_set_source(ordinal, a ? &source : NULL, &why), &why);
}

int64_t weft_cuda_empty_cache(weft_device device)
{
    wf_why why = {0};
    wf_cuda_device *d = enter(device, &why);
    if (!d) {
        fail("cuda_empty_cache", &why);
        return -1;
    }
    wf_cuda_pinned_trim();
    return wf_cuda_trim(d->ordinal);
}

static void print_chunk(void *arg, int key, uint64_t segment, uint64_t address, uint64_t size,
                        int state)
{
    static const char *const names[] = {"free", "live", "hole"};
    (void)segment;
    fprintf(arg, "stream %-2d  %#014llx  %12llu  %s\n", key, (unsigned long long)address,
            (unsigned long long)size, names[state]);
}

weft_status(weft_cuda_snapshot)(weft_device device, FILE *out)
{
    wf_why why = {0};
    wf_cuda_device *d = out ? enter(device, &why) : NULL;
    if (!d) {
        return out ? fail("cuda_snapshot", &why)
                   : weft_error_status(wf_api_null("cuda_snapshot", "out"));
    }
    pthread_mutex_lock(&d->lock);
    if (d->cache) {
        wf_cache_walk(d->cache, print_chunk, out);
    }
    pthread_mutex_unlock(&d->lock);
    return WEFT_OK;
}

const char *weft_cuda_oom_report(void)
{
    return wf_cuda_oom_text();
}

void weft_cuda_get_counters(weft_cuda_counters *out)
{
    if (out) {
        wf_cuda_counters c;
        wf_cuda_get_counters(&c);
        *out = (weft_cuda_counters){.launches = c.launches,
                                    .copies_in = c.copies_in,
                                    .copies_out = c.copies_out,
                                    .copies = c.copies,
                                    .bytes_in = c.bytes_in,
                                    .bytes_out = c.bytes_out,
                                    .driver_allocs = c.driver_allocs,
                                    .driver_frees = c.driver_frees,
                                    .waits = c.waits,
                                    .hidden_waits = c.hidden_waits,
                                    .refused = c.refused};
    }
}

/* -- pinned memory ----------------------------------------------------------------------------------- */

weft_tensor(weft_pinned)(weft_shape shape, weft_dtype dtype)
{
    wf_why why = {0};
    int ordinal = 0;
    while (ordinal + 1 < wf_cuda_count() && !wf_cuda_peek(ordinal)) {
        ordinal++;
    }
    wf_cuda_device *d = wf_cuda_enter(ordinal, &why);
    weft_blob_args a = {.shape = shape, .dtype = dtype, .deleter = wf_cuda_pinned_free};
    uint64_t bytes = weft_dtype_size(dtype == WEFT_DTYPE_DEFAULT ? WEFT_F32 : dtype);
    bool sound = bytes > 0 && shape.n >= 0 && shape.n <= WEFT_MAX_RANK;
    for (int64_t i = 0; sound && i < shape.n; i++) {
        sound = shape.v[i] >= 0 && !__builtin_mul_overflow(bytes, (uint64_t)shape.v[i], &bytes);
    }
    /* What is not sound is for the blob to refuse. */
    a.data = a.arg = d && sound ? wf_cuda_pinned_alloc(d, bytes, &why) : NULL;
    if (!d || (sound && !a.data)) {
        wf_ctx *c = wf_ctx_get();
        return c ? wf_raise(c, "pinned", 0, NULL, &why) : WEFT_NONE;
    }
    weft_tensor t = wf_api_blob("pinned", &a, 0);
    if (!weft_ok(t)) {
        wf_cuda_pinned_free(a.data);
    }
    return t;
}

weft_tensor(weft_to_async)(weft_tensor x, weft_device device)
{
    bool up = wf_cuda_upload_directly(true), down = wf_device_read_later(true);
    weft_tensor y = (weft_to)(x, device);
    wf_device_read_later(down);
    wf_cuda_upload_directly(up);
    return y;
}

bool weft_is_pinned(weft_tensor t)
{
    wf_arg a;
    if (!wf_arg_open(&a, "is_pinned", t) || a.device || wf_is_scalar(t) || !wf_cu) {
        return false;
    }
    bool pinned = false;
    wf_slot *s = wf_pin(a.c, t, &pinned, NULL); /* weft_data would wait for what is arriving */
    bool is = s && wf_cuda_is_pinned(wf_slot_data(s));
    if (pinned) {
        wf_unpin(a.c, s);
    }
    return is;
}
