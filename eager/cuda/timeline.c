/*
 * eager/cuda/timeline.c -- event timers on streams, turned into events of the profile; see timeline.h.
 *
 * Times are measured from a base event, whose time on the host's clock was taken when it had passed: once a device.
 * cuEventElapsedTime gives a float of milliseconds, so the base moves on with the work and no distance is over a second.
 *
 * Invariants: a pair of events is open (this thread's), pending, or spare; pending ones are in the order of queueing, and
 * are looked at when there are many and when events are asked for; no lock of the device is taken here.
 */
#include "eager/cuda/timeline.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 512, LABEL = 64 };

typedef struct timing {
    struct timing *next;
    cu_handle begin, end;
    int slot;
    uint64_t flow;
    char label[LABEL];
} timing;

typedef struct timeline {
    pthread_mutex_t lock;
    timing *spare, *first, *last;
    int pending;
    cu_handle base;
    double base_ns;
    int64_t
        stream_end[WF_CUDA_STREAMS]; /* of what was handed out: spans of a stream do not overlap */
} timeline;

static timeline lines[WF_CUDA_DEVICES]; /* zero is an unlocked mutex */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What this thread is about to queue. */
static _Thread_local struct {
    timing *t;
    wf_cuda_stream *s;
    int64_t start;
} open_now;

/* -- from timers to events, under the line's lock ----------------------------------------------------------- */

static void hand_out(timeline *l, int device, timing *t)
{
    float since = 0, ms = 0;
    if (wf_cu->event_elapsed(&since, l->base, t->begin) != CU_OK ||
        wf_cu->event_elapsed(&ms, t->begin, t->end) != CU_OK) {
        return;
    }
    double begin = l->base_ns + 1e6 * (double)since;
    int64_t start = (int64_t)begin, end = start + (int64_t)(1e6 * (double)ms);
    int64_t *last = &l->stream_end[t->slot];
    start = start < *last ? *last : start; /* timers step by half a microsecond */
    end = end < start ? start : end;
    *last = end;
    wf_prof_device(device, t->slot, start, end - start,
                   &(wf_prof_span){WEFT_PROFILE_DEVICE, .name = t->label, .flow = t->flow});
    if (since > 1000) {
        cu_handle passed = l->base;
        l->base = t->begin;
        t->begin = passed;
        l->base_ns = begin;
    }
}

/* Pending work that is over; wait: all of it. */
static void harvest(timeline *l, int device, bool wait)
{
    while (l->first) {
        timing *t = l->first;
        cu_result r = wait ? wf_cu->event_synchronize(t->end) : wf_cu->event_query(t->end);
        if (r == CU_NOT_READY) {
            return;
        }
        l->first = t->next;
        l->last = l->first ? l->last : NULL;
        l->pending--;
        if (r == CU_OK) {
            hand_out(l, device, t);
        }
        t->next = l->spare;
        l->spare = t;
    }
}

static void collect(void)
{
    for (int i = 0; i < WF_CUDA_DEVICES; i++) {
        wf_why why = {0};
        timeline *l = &lines[i];
        pthread_mutex_lock(&l->lock);
        if (l->first && wf_cuda_peek(i) && wf_cuda_enter(i, &why)) {
            harvest(l, i, true);
        }
        pthread_mutex_unlock(&l->lock);
    }
}

/* Before the driver's own handlers, which were registered earlier than this. */
static void at_exit(void)
{
    if (wf_prof_is_on()) {
        collect();
    }
    wf_prof_set_collector(NULL);
}

static void set_up(void)
{
    wf_prof_set_collector(collect);
    atexit(at_exit);
}

/* -- around work -------------------------------------------------------------------------------------------- */

static bool create(cu_handle *event)
{
    return wf_cu->event_create(event, CU_EVENT_TIMED) == CU_OK;
}

/* The base has passed on both clocks. */
static bool find_base(timeline *l, wf_cuda_stream *s)
{
    if (l->base) {
        return true;
    }
    if (!create(&l->base)) {
        l->base = NULL;
        return false;
    }
    if (wf_cu->event_record(l->base, s->handle) != CU_OK ||
        wf_cu->event_synchronize(l->base) != CU_OK) {
        wf_cu->event_destroy(l->base);
        l->base = NULL;
        return false;
    }
    l->base_ns = (double)wf_prof_clock();
    return true;
}

static void give(timing *t)
{
    if (t->begin) {
        wf_cu->event_destroy(t->begin);
    }
    if (t->end) {
        wf_cu->event_destroy(t->end);
    }
    free(t);
}

static timing *take(timeline *l, wf_cuda_stream *s)
{
    timing *t = NULL;
    pthread_mutex_lock(&l->lock);
    if (find_base(l, s)) {
        t = l->spare;
        l->spare = t ? t->next : NULL;
    }
    bool base = l->base != NULL;
    pthread_mutex_unlock(&l->lock);
    if (t || !base) {
        return t;
    }
    t = calloc(1, sizeof *t);
    if (t && (!create(&t->begin) || !create(&t->end))) {
        give(t);
        t = NULL;
    }
    return t;
}

static void drop_open(void)
{
    timing *t = open_now.t;
    if (t) { /* what was to be queued was not */
        timeline *l = &lines[open_now.s->device->ordinal];
        pthread_mutex_lock(&l->lock);
        t->next = l->spare;
        l->spare = t;
        pthread_mutex_unlock(&l->lock);
        open_now.t = NULL;
    }
}

void wf_cuda_time_open(wf_cuda_stream *s)
{
    pthread_once(&once, set_up);
    drop_open();
    timing *t = s->capture ? NULL : take(&lines[s->device->ordinal], s);
    if (t) {
        open_now.t = t;
        open_now.s = s;
        open_now.start = wf_prof_clock();
        if (wf_cu->event_record(t->begin, s->handle) != CU_OK) {
            drop_open();
        }
    }
}

void wf_cuda_time_end(wf_cuda_stream *s, const char *label)
{
    timing *t = open_now.t;
    if (!t || open_now.s != s || wf_cu->event_record(t->end, s->handle) != CU_OK) {
        drop_open();
        return;
    }
    timeline *l = &lines[s->device->ordinal];
    open_now.t = NULL;
    t->slot = s->slot;
    t->flow = wf_prof_new_flow();
    t->next = NULL;
    size_t n = strnlen(label, LABEL - 1);
    memcpy(t->label, label, n);
    t->label[n] = '\0';
    wf_prof_end(open_now.start,
                &(wf_prof_span){WEFT_PROFILE_LAUNCH, .name = t->label, .flow = t->flow});
    pthread_mutex_lock(&l->lock);
    *(l->last ? &l->last->next : &l->first) = t;
    l->last = t;
    if (++l->pending > MANY) {
        harvest(l, s->device->ordinal, false);
    }
    pthread_mutex_unlock(&l->lock);
}

void wf_cuda_timeline_close(wf_cuda_device *d)
{
    timeline *l = &lines[d->ordinal];
    drop_open();
    pthread_mutex_lock(&l->lock);
    harvest(l, d->ordinal, true);
    while (l->spare) {
        timing *t = l->spare;
        l->spare = t->next;
        give(t);
    }
    if (l->base) {
        wf_cu->event_destroy(l->base);
    }
    l->base = NULL;
    memset(l->stream_end, 0, sizeof l->stream_end);
    pthread_mutex_unlock(&l->lock);
}
