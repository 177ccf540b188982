/*
 * eager/cuda/stage.c -- copies between host and device, through pinned stages of 4 MiB.
 *
 * A copy from ordinary memory would make the driver wait for the stream first, so every byte passes
 * through a stage. Small uploads share one (the open stage, of one stream at a time); a stage that is
 * full goes to the busy list with an event behind its last copy, and comes back from there, oldest first,
 * when the event is done. Only with STAGES_MOST on their way does an upload wait, and that is counted.
 */
#include "eager/cuda/stage.h"
#include "eager/cuda/timeline.h"

#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/pinned.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { STAGES_MOST = 16 };

typedef struct wf_cuda_stages {
    pthread_mutex_t lock; /* taken before the device's */
    wf_cuda_stage *unused, *busy, **busy_tail;
    wf_cuda_stage *open; /* being filled by uploads to open_on */
    wf_cuda_stream *open_on;
    int n;
} wf_cuda_stages;

static wf_cuda_stages *stages_of(wf_cuda_device *d, wf_why *why)
{
    pthread_mutex_lock(&d->lock);
    wf_cuda_stages *g = d->stages;
    if (!g) {
        g = wf_calloc(1, sizeof *g);
        if (g) {
            pthread_mutex_init(&g->lock, NULL);
            g->busy_tail = &g->busy;
            d->stages = g;
        } else {
            wf_fail(why, WEFT_ENOMEM, "no host memory for copies");
        }
    }
    pthread_mutex_unlock(&d->lock);
    return g;
}

static wf_cuda_stage *make(wf_cuda_device *d, wf_why *why)
{
    wf_cuda_stage *g = wf_calloc(1, sizeof *g);
    void *host = NULL;
    if (!g) {
        wf_fail(why, WEFT_ENOMEM, "no host memory for copies");
        return NULL;
    }
    if (wf_cuda_check(d, wf_cu->event_create(&g->event, CU_EVENT_UNTIMED), "cuEventCreate", why)) {
        wf_mfree(g);
        return NULL;
    }
    if (wf_cuda_check(d, wf_cu->host_alloc(&host, WF_CUDA_STAGE_BYTES, CU_HOST_PORTABLE),
                      "cuMemHostAlloc", why)) {
        wf_cu->event_destroy(g->event);
        wf_mfree(g);
        return NULL;
    }
    g->host = host;
    return g;
}

static wf_cuda_stage *pop_busy(wf_cuda_stages *all)
{
    wf_cuda_stage *g = all->busy;
    all->busy = g->next;
    if (!all->busy) {
        all->busy_tail = &all->busy;
    }
    g->next = NULL;
    g->used = 0;
    return g;
}

/* Lock of the stages held. */
static wf_cuda_stage *take(wf_cuda_device *d, wf_cuda_stages *all, wf_why *why)
{
    wf_cuda_stage *g = all->unused;
    if (g) {
        all->unused = g->next;
        g->next = NULL;
        return g;
    }
    if (all->busy && wf_cu->event_query(all->busy->event) == CU_OK) {
        return pop_busy(all);
    }
    if (all->n < STAGES_MOST || !all->busy) {
        wf_why none = {0};
        g = make(d, all->busy ? &none : why);
        all->n += g != NULL;
        if (g || !all->busy) {
            return g;
        }
    }
    WF_CUDA_COUNT(hidden_waits, 1);
    cu_result r = wf_cu->event_synchronize(all->busy->event);
    return wf_cuda_check(d, r, "cuEventSynchronize", why) ? NULL : pop_busy(all);
}

static void put_unused(wf_cuda_stages *all, wf_cuda_stage *g)
{
    g->used = 0;
    g->next = all->unused;
    all->unused = g;
}

static int put_busy(wf_cuda_stages *all, wf_cuda_stream *s, wf_cuda_stage *g, wf_why *why)
{
    int code =
        wf_cuda_check(s->device, wf_cu->event_record(g->event, s->handle), "cuEventRecord", why);
    if (code && !atomic_load(&s->device->broken)) { /* no event to ask: wait for what is queued */
        WF_CUDA_COUNT(hidden_waits, 1);
        wf_cu->stream_synchronize(s->handle);
        put_unused(all, g);
        return code;
    }
    *all->busy_tail = g;
    all->busy_tail = &g->next;
    return code;
}

static void drop(wf_cuda_stage *g)
{
    while (g) {
        wf_cuda_stage *next = g->next;
        wf_cu->event_destroy(g->event);
        wf_cu->host_free(g->host);
        wf_mfree(g);
        g = next;
    }
}

void wf_cuda_stages_close(wf_cuda_device *d)
{
    wf_cuda_stages *all = d->stages;
    if (all) {
        drop(all->unused);
        drop(all->busy);
        drop(all->open);
        pthread_mutex_destroy(&all->lock);
        wf_mfree(all);
        d->stages = NULL;
    }
}

wf_cuda_stage *wf_cuda_stage_take(wf_cuda_device *d, wf_why *why)
{
    wf_cuda_stages *all = stages_of(d, why);
    if (!all) {
        return NULL;
    }
    pthread_mutex_lock(&all->lock);
    wf_cuda_stage *g = take(d, all, why);
    pthread_mutex_unlock(&all->lock);
    return g;
}

void wf_cuda_stage_free(wf_cuda_device *d, wf_cuda_stage *g)
{
    if (g) {
        pthread_mutex_lock(&d->stages->lock);
        put_unused(d->stages, g);
        pthread_mutex_unlock(&d->stages->lock);
    }
}

int wf_cuda_stage_busy(wf_cuda_stream *s, wf_cuda_stage *g, wf_why *why)
{
    wf_cuda_stages *all = s->device->stages;
    pthread_mutex_lock(&all->lock);
    int code = put_busy(all, s, g, why);
    pthread_mutex_unlock(&all->lock);
    return code;
}

/* The open stage with room for some of n bytes, on s. */
static wf_cuda_stage *open_stage(wf_cuda_stages *all, wf_cuda_stream *s, wf_why *why)
{
    bool full = all->open && all->open->used == WF_CUDA_STAGE_BYTES;
    if (all->open && (full || all->open_on != s)) {
        wf_cuda_stage *g = all->open;
        all->open = NULL;
        if (put_busy(all, all->open_on, g, why)) {
            return NULL;
        }
    }
    if (!all->open) {
        all->open = take(s->device, all, why);
        all->open_on = s;
    }
    return all->open;
}

void wf_cuda_stage_leave(wf_cuda_stream *s)
{
    wf_cuda_device *d = s->device;
    pthread_mutex_lock(&d->lock);
    wf_cuda_stages *all = d->stages;
    pthread_mutex_unlock(&d->lock);
    if (!all) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    wf_cuda_stage *g = all->open_on == s ? all->open : NULL;
    if (g) {
        wf_why ignored = {0}; /* the stage waited then */
        all->open = NULL;
        put_busy(all, s, g, &ignored);
    }
    pthread_mutex_unlock(&all->lock);
}

static int upload(wf_cuda_stages *all, wf_cuda_stream *s, cu_address dst, const unsigned char *src,
                  size_t n, wf_why *why)
{
    while (n) {
        wf_cuda_stage *g = open_stage(all, s, why);
        if (!g) {
            return wf_cuda_code(why);
        }
        size_t room = WF_CUDA_STAGE_BYTES - g->used, part = n < room ? n : room;
        memcpy(g->host + g->used, src, part);
        wf_cuda_time_begin(s);
        cu_result r = wf_cu->copy_in(dst, g->host + g->used, part, s->handle);
        int code = wf_cuda_check(s->device, r, "cuMemcpyHtoDAsync", why);
        if (code) {
            return code;
        }
        wf_cuda_queued(s, "copy from the host");
        g->used += (part + 63) & ~(size_t)63; /* n < room leaves a multiple of 64 */
        dst += part;
        src += part;
        n -= part;
    }
    return 0;
}

static _Thread_local bool directly;

bool wf_cuda_upload_directly(bool on)
{
    bool before = directly;
    directly = on;
    return before;
}

static int upload_pinned(wf_cuda_stream *s, cu_address dst, const void *src, size_t n, wf_why *why)
{
    int code =
        wf_cuda_check(s->device, wf_cu->copy_in(dst, src, n, s->handle), "cuMemcpyHtoDAsync", why);
    if (!code) {
        wf_cuda_queued(s, "copy from pinned memory");
        wf_cuda_pinned_used(src, s);
    }
    return code;
}

int wf_cuda_upload(int ordinal, void *dst, const void *src, size_t n, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (s && s->capture) {
        return wf_cuda_graph_refuse(s->capture, "a copy from host memory", why);
    }
    wf_cuda_stages *all = s ? stages_of(d, why) : NULL;
    if (!all) {
        return wf_cuda_code(why);
    }
    WF_CUDA_COUNT(copies_in, 1);
    WF_CUDA_COUNT(bytes_in, (int64_t)n);
    if (directly && n && wf_cuda_is_pinned(src)) {
        return upload_pinned(s, (cu_address)(uintptr_t)dst, src, n, why);
    }
    pthread_mutex_lock(&all->lock);
    int code = upload(all, s, (cu_address)(uintptr_t)dst, src, n, why);
    pthread_mutex_unlock(&all->lock);
    return code;
}

/* One part after the other into two stages by turns: the device copies one while the host empties the
 * other. */
static int download(wf_cuda_stream *s, wf_cuda_stage *const g[2], unsigned char *dst,
                    cu_address src, size_t n, wf_why *why)
{
    size_t asked = 0, got = 0;
    for (int turn = 0; got < n;) {
        while (asked < n && asked - got < 2 * WF_CUDA_STAGE_BYTES) {
            size_t part = n - asked < WF_CUDA_STAGE_BYTES ? n - asked : WF_CUDA_STAGE_BYTES;
            int k = (int)(asked / WF_CUDA_STAGE_BYTES % 2);
            wf_cuda_time_begin(s);
            cu_result r = wf_cu->copy_out(g[k]->host, src + asked, part, s->handle);
            int code = wf_cuda_check(s->device, r, "cuMemcpyDtoHAsync", why);
            if (!code) {
                wf_cuda_queued(s, "copy to the host");
                code = wf_cuda_check(s->device, wf_cu->event_record(g[k]->event, s->handle),
                                     "cuEventRecord", why);
            }
            if (code) {
                return code;
            }
            asked += part;
        }
        int code = wf_cuda_check(s->device, wf_cu->event_synchronize(g[turn]->event),
                                 "cuEventSynchronize", why);
        if (code) {
            return code;
        }
        size_t part = n - got < WF_CUDA_STAGE_BYTES ? n - got : WF_CUDA_STAGE_BYTES;
        memcpy(dst + got, g[turn]->host, part);
        got += part;
        turn ^= 1;
    }
    return 0;
}

static int download_pinned(wf_cuda_stream *s, void *dst, cu_address src, size_t n, wf_why *why)
{
    wf_cuda_time_begin(s);
    cu_result r = wf_cu->copy_out(dst, src, n, s->handle);
    int code = wf_cuda_check(s->device, r, "cuMemcpyDtoHAsync", why);
    if (!code) {
        wf_cuda_queued(s, "copy to pinned memory");
    }
    return code;
}

/* The thread's stream, for a copy of n bytes from it; NULL: why is filled. */
static wf_cuda_stream *begin_download(int ordinal, size_t n, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (s && s->capture) {
        wf_cuda_graph_refuse(s->capture, "a read of device memory", why);
        return NULL;
    }
    if (s) {
        WF_CUDA_COUNT(copies_out, 1);
        WF_CUDA_COUNT(bytes_out, (int64_t)n);
    }
    return s;
}

int wf_cuda_download_later(int ordinal, void *host, const void *src, size_t n, wf_why *why)
{
    wf_cuda_stream *s = begin_download(ordinal, n, why);
    int code = s ? download_pinned(s, host, (cu_address)(uintptr_t)src, n, why) : wf_cuda_code(why);
    if (!code) {
        code = wf_cuda_check(s->device, wf_cuda_pinned_used(host, s), "cuStreamSynchronize", why);
    }
    return code;
}

int wf_cuda_download(int ordinal, void *dst, const void *src, size_t n, wf_why *why)
{
    wf_cuda_stream *s = begin_download(ordinal, n, why);
    if (!s) {
        return wf_cuda_code(why);
    }
    wf_cuda_device *d = s->device;
    WF_CUDA_COUNT(waits, 1);
    if (n && wf_cuda_is_pinned(dst)) { /* no stage in between */
        int direct = download_pinned(s, dst, (cu_address)(uintptr_t)src, n, why);
        int behind = wf_cuda_stream_wait(s, direct ? NULL : why);
        return direct ? direct : behind;
    }
    wf_cuda_stage *g[2] = {n ? wf_cuda_stage_take(d, why) : NULL, NULL};
    if (n > WF_CUDA_STAGE_BYTES && g[0]) {
        g[1] = wf_cuda_stage_take(d, why);
    }
    bool staged = n == 0 || (g[0] && (g[1] || n <= WF_CUDA_STAGE_BYTES));
    int code = staged ? download(s, g, dst, (cu_address)(uintptr_t)src, n, why) : wf_cuda_code(why);
    /* Also after a failure: nothing may be on its way into a stage that is given back. */
    int waited = wf_cuda_stream_wait(s, code ? NULL : why);
    wf_cuda_stage_free(d, g[0]);
    wf_cuda_stage_free(d, g[1]);
    return code ? code : waited;
}
