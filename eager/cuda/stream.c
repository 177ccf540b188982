/*
 * eager/cuda/stream.c -- streams and the order between them (device.h says how it is kept).
 */
#include "eager/cuda/stream.h"

#include <string.h>

#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

static _Thread_local wf_cuda_stream *current[WF_CUDA_DEVICES];

/* Lock held. */
static int start_stream(wf_cuda_device *d, int slot, wf_why *why)
{
    wf_cuda_stream *s = &d->streams[slot];
    cu_handle handle = NULL;
    int code = wf_cuda_check(d, wf_cu->stream_create(&handle, CU_STREAM_NON_BLOCKING),
                             "cuStreamCreate", why);
    if (code) {
        return code;
    }
    *s = (wf_cuda_stream){.device = d, .handle = handle, .slot = slot, .in_use = true, .op = 1};
    d->n_streams = slot + 1;
    return 0;
}

wf_cuda_stream *wf_cuda_current(wf_cuda_device *d, wf_why *why)
{
    wf_cuda_stream *s = current[d->ordinal];
    if (s) {
        return s;
    }
    pthread_mutex_lock(&d->lock);
    int code = d->n_streams ? 0 : start_stream(d, 0, why);
    pthread_mutex_unlock(&d->lock);
    return code ? NULL : &d->streams[0];
}

void wf_cuda_queued(wf_cuda_stream *s, const char *label)
{
    wf_cuda_device *d = s->device;
    pthread_mutex_lock(&d->lock);
    s->work++;
    s->op_has_work = true;
    pthread_mutex_unlock(&d->lock);
    size_t n = strlen(label);
    n = n < sizeof d->last - 1 ? n : sizeof d->last - 1;
    pthread_mutex_lock(&d->label_lock);
    memcpy(d->last, label, n);
    d->last[n] = '\0';
    pthread_mutex_unlock(&d->label_lock);
}

/* An event on s that covers op and is recorded; NULL: why is filled. */
static const wf_cuda_point *point_of(wf_cuda_stream *s, uint64_t op, wf_why *why)
{
    const wf_cuda_point *best = NULL;
    for (int i = 0; i < WF_CUDA_RING; i++) {
        const wf_cuda_point *p = &s->ring[i];
        bool covers = p->event && (p->op > op || p->work == s->work);
        if (covers && (!best || p->work < best->work)) {
            best = p;
        }
    }
    return best ? best : wf_cuda_point_new(s, why);
}

const wf_cuda_point *wf_cuda_point_new(wf_cuda_stream *s, wf_why *why)
{
    wf_cuda_device *d = s->device;
    wf_cuda_point *p = &s->ring[s->ring_next % WF_CUDA_RING];
    if (!p->event) {
        cu_handle event = NULL;
        if (wf_cuda_check(d, wf_cu->event_create(&event, CU_EVENT_UNTIMED), "cuEventCreate", why)) {
            return NULL;
        }
        p->event = event;
    }
    p->work = p->op = 0; /* whoever looked for it meanwhile must not find a half-made one */
    if (wf_cuda_check(d, wf_cu->event_record(p->event, s->handle), "cuEventRecord", why)) {
        return NULL;
    }
    p->work = s->work;
    p->op = s->op;
    s->ring_next++;
    return p;
}

int wf_cuda_order(wf_cuda_stream *s, wf_cuda_stream *other, uint64_t op, wf_why *why)
{
    wf_cuda_seen *seen = &s->seen[other->slot];
    if (s == other || seen->op > op || seen->work == other->work) {
        return 0;
    }
    const wf_cuda_point *p = point_of(other, op, why);
    if (!p) {
        return wf_cuda_code(why);
    }
    int code = wf_cuda_check(s->device, wf_cu->stream_wait(s->handle, p->event, 0),
                             "cuStreamWaitEvent", why);
    if (!code) {
        seen->work = seen->work > p->work ? seen->work : p->work;
        seen->op = seen->op > p->op ? seen->op : p->op;
    }
    return code;
}

uint64_t wf_cuda_op_begin(wf_cuda_stream *s)
{
    if (s->op_has_work) {
        s->op_has_work = false;
        s->op++;
    }
    return s->op;
}

int wf_cuda_stream_wait(wf_cuda_stream *s, wf_why *why)
{
    wf_cuda_device *d = s->device;
    pthread_mutex_lock(&d->lock);
    uint64_t work = s->work;
    pthread_mutex_unlock(&d->lock);
    int code = wf_cuda_check(d, wf_cu->stream_synchronize(s->handle), "cuStreamSynchronize", why);
    return code ? code : wf_cuda_words_check(s, work, why);
}

int wf_cuda_synchronize(int ordinal, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    if (!d) {
        return wf_cuda_code(why);
    }
    WF_CUDA_COUNT(waits, 1);
    pthread_mutex_lock(&d->lock);
    int n = d->n_streams;
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < n; i++) {
        int code = wf_cuda_stream_wait(&d->streams[i], why);
        if (code) {
            return code;
        }
    }
    return 0;
}
