/*
 * eager/cuda/stream.c -- streams and the order between them (device.h says how it is kept).
 */
#include "eager/cuda/stream.h"
#include "eager/cuda/timeline.h"
#include "eager/alloc.h"

#include <string.h>

#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/*
 * What a thread remembers of streams, from its first use of a device on. In memory of its own: thread-local memory of the
 * library is little, so that dlopen finds room for it.
 */
typedef struct streams_here {
    struct {
        wf_cuda_stream *stream; /* NULL: the default one */
        uint32_t serial;        /* it was this then; given back since, it is somebody else's */
    } current[WF_CUDA_DEVICES];
    struct {
        wf_cuda_stream *stream; /* NULL: none yet */
        uint32_t generation;
        uint64_t op; /* prepared, or queued last */
        bool has_work;
        bool held; /* goes on whatever work it has */
    } own[WF_CUDA_DEVICES];
} streams_here;
static _Thread_local streams_here *here;
static _Thread_local int holds; /* wf_cuda_op_hold */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_end;
static bool has_end;

static void end_thread(void *p)
{
    here = NULL;
    wf_mfree(p);
}

static void make_end(void)
{
    has_end = pthread_key_create(&at_end, end_thread) == 0;
}

int wf_cuda_thread_open(wf_why *why)
{
    if (here) {
        return 0;
    }
    streams_here *h = wf_calloc(1, sizeof *h);
    if (!h) {
        return wf_fail(why, WEFT_ENOMEM, "no host memory for a thread's streams");
    }
    if (pthread_once(&once, make_end) || !has_end || pthread_setspecific(at_end, h)) {
        wf_mfree(h);
        return wf_fail(why, WEFT_ENOMEM, "no key is left for a thread's streams");
    }
    here = h;
    return 0;
}

static wf_cuda_stream *chosen(int ordinal)
{
    wf_cuda_stream *s = here ? here->current[ordinal].stream : NULL;
    return s && atomic_load_explicit(&s->serial, memory_order_relaxed) ==
                       here->current[ordinal].serial
               ? s
               : NULL;
}

/* Lock held. */
static int start_stream(wf_cuda_device *d, int slot, wf_why *why)
{
    wf_cuda_stream *s = &d->streams[slot];
    cu_handle handle = NULL;
    int code = wf_cuda_make_current(d, why);
    code = code ? code
                : wf_cuda_check(d, wf_cu->stream_create(&handle, CU_STREAM_NON_BLOCKING),
                                "cuStreamCreate", why);
    if (code) {
        return code;
    }
    *s = (wf_cuda_stream){
        .device = d, .handle = handle, .slot = slot, .in_use = true, .serial = s->serial};
    d->n_streams = d->n_streams > slot ? d->n_streams : slot + 1;
    if (slot == 0) {
        atomic_store_explicit(&d->has_default, true, memory_order_release);
    }
    return 0;
}

wf_cuda_stream *wf_cuda_current(wf_cuda_device *d, wf_why *why)
{
    wf_cuda_stream *s = chosen(d->ordinal);
    if (s || atomic_load_explicit(&d->has_default, memory_order_acquire)) {
        return s ? s : &d->streams[0];
    }
    pthread_mutex_lock(&d->lock);
    int code = d->n_streams ? 0 : start_stream(d, 0, why);
    pthread_mutex_unlock(&d->lock);
    return code ? NULL : &d->streams[0];
}

wf_cuda_stream *wf_cuda_stream_for(wf_cuda_device *d, wf_cuda_graph *capture, wf_why *why)
{
    wf_cuda_stream *s = NULL;
    pthread_mutex_lock(&d->lock);
    int code = d->n_streams ? 0 : start_stream(d, 0, why);
    for (int i = 1; i < d->n_streams && !s && !code; i++) {
        s = d->streams[i].in_use ? NULL : &d->streams[i];
    }
    if (!s && !code && d->n_streams == WF_CUDA_STREAMS) {
        wf_fail(why, WEFT_EUNSUPPORTED, "cuda:%d has %d streams, the most there can be", d->ordinal,
                WF_CUDA_STREAMS);
    } else if (!s && !code) {
        code = start_stream(d, d->n_streams, why);
        s = code ? NULL : &d->streams[d->n_streams - 1];
    }
    if (s) {
        s->in_use = true;
        s->capture = capture;
    }
    pthread_mutex_unlock(&d->lock);
    return s;
}

wf_cuda_stream *wf_cuda_stream_take(wf_cuda_device *d, wf_why *why)
{
    return wf_cuda_stream_for(d, NULL, why);
}

void wf_cuda_stream_give(wf_cuda_stream *s)
{
    pthread_mutex_lock(&s->device->lock);
    s->in_use = false;
    s->capture = NULL;
    atomic_fetch_add(&s->serial, 1);
    pthread_mutex_unlock(&s->device->lock);
}

void wf_cuda_set_current(wf_cuda_device *d, wf_cuda_stream *s)
{
    if (here) { /* else no stream was ever entered, and the default one is current */
        here->current[d->ordinal].stream = s;
        here->current[d->ordinal].serial = s ? atomic_load(&s->serial) : 0;
    }
}

bool wf_cuda_capturing(int ordinal)
{
    const wf_cuda_stream *s = chosen(ordinal);
    return s && s->capture;
}

const wf_cuda_point *wf_cuda_point_of(wf_cuda_stream *s, uint64_t work, wf_why *why)
{
    const wf_cuda_point *best = NULL;
    for (int i = 0; i < WF_CUDA_RING; i++) {
        const wf_cuda_point *p = &s->ring[i];
        if (p->event && p->work >= work && (!best || p->work < best->work)) {
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
    p->work = 0; /* whoever looked for it meanwhile must not find a half-made one */
    if (wf_cuda_check(d, wf_cu->event_record(p->event, s->handle), "cuEventRecord", why)) {
        return NULL;
    }
    p->work = s->work;
    s->ring_next++;
    return p;
}

/* s waits for p, a point of `other`. */
static int wait_for(wf_cuda_stream *s, const wf_cuda_stream *other, const wf_cuda_point *p,
                    wf_why *why)
{
    uint64_t *seen = &s->seen[other->slot];
    int code = wf_cuda_check(s->device, wf_cu->stream_wait(s->handle, p->event, 0),
                             "cuStreamWaitEvent", why);
    *seen = !code && *seen < p->work ? p->work : *seen;
    return code;
}

int wf_cuda_order(wf_cuda_stream *s, wf_cuda_stream *other, uint64_t op, wf_why *why)
{
    uint64_t work = s == other ? 0 : wf_cuda_op_last(other, op);
    if (s->seen[other->slot] >= work) {
        return 0;
    }
    const wf_cuda_point *p =
        wf_cuda_make_current(s->device, why) ? NULL : wf_cuda_point_of(other, work, why);
    return p ? wait_for(s, other, p, why) : wf_cuda_code(why);
}

int wf_cuda_order_work(wf_cuda_stream *s, wf_cuda_stream *other, uint64_t work, wf_why *why)
{
    if (s == other || s->seen[other->slot] >= work) {
        return 0;
    }
    const wf_cuda_point *p =
        wf_cuda_make_current(s->device, why) ? NULL : wf_cuda_point_of(other, work, why);
    return !p                                      ? wf_cuda_code(why)
           : wf_cu->event_query(p->event) == CU_OK ? 0
                                                   : wait_for(s, other, p, why);
}

/* -- ops: whose work is whose -------------------------------------------------------------------------- */

static bool is_own(const wf_cuda_stream *s)
{
    int i = s->device->ordinal;
    return here && here->own[i].stream == s && here->own[i].generation == s->device->generation;
}

uint64_t wf_cuda_op_begin(wf_cuda_stream *s)
{
    int i = s->device->ordinal;
    if (!is_own(s) || (here->own[i].has_work && !here->own[i].held)) {
        wf_cuda_words_close_op(s->device);
        uint64_t op = ++s->op;
        wf_cuda_op *at = &s->ops[op % WF_CUDA_OPS];
        s->older = s->older > at->last ? s->older : at->last;
        *at = (wf_cuda_op){op, 0};
        if (!here) {
            return op;
        }
        here->own[i].stream = s;
        here->own[i].generation = s->device->generation;
        here->own[i].op = op;
        here->own[i].has_work = false;
        here->own[i].held = holds > 0;
    }
    return here->own[i].op;
}

void wf_cuda_op_hold(bool on)
{
    holds += on ? 1 : -1;
    for (int i = 0; here && i < WF_CUDA_DEVICES && holds <= 1; i++) {
        here->own[i].held = holds == 1 && on ? !here->own[i].has_work
                            : holds == 0     ? false
                                             : here->own[i].held;
    }
}

uint64_t wf_cuda_op_now(const wf_cuda_stream *s)
{
    return is_own(s) ? here->own[s->device->ordinal].op : 0;
}

/* Lock held: the newest piece of work of s is of this thread's op. */
static void note_work(wf_cuda_stream *s)
{
    int i = s->device->ordinal;
    if (is_own(s)) {
        wf_cuda_op *at = &s->ops[here->own[i].op % WF_CUDA_OPS];
        *(at->op == here->own[i].op ? &at->last : &s->older) = s->work;
        here->own[i].has_work = true;
    }
}

uint64_t wf_cuda_op_last(const wf_cuda_stream *s, uint64_t op)
{
    uint64_t last = s->older;
    for (int i = 0; i < WF_CUDA_OPS; i++) {
        last = s->ops[i].op <= op && s->ops[i].last > last ? s->ops[i].last : last;
    }
    return last;
}

void wf_cuda_queued(wf_cuda_stream *s, const char *label)
{
    wf_cuda_device *d = s->device;
    wf_cuda_time_end(s, label);
    pthread_mutex_lock(&d->lock);
    if (!s->capture) { /* what is recorded is no work yet */
        s->work++;
        note_work(s);
    }
    pthread_mutex_unlock(&d->lock);
}

void wf_cuda_launched(wf_cuda_stream *s, const char *label)
{
    WF_CUDA_COUNT(launches, 1);
    wf_cuda_queued(s, label);
    atomic_store_explicit(&s->device->last, label, memory_order_release);
}

int wf_cuda_stream_wait(wf_cuda_stream *s, wf_why *why)
{
    wf_cuda_device *d = s->device;
    pthread_mutex_lock(&d->lock);
    uint64_t work = s->work;
    pthread_mutex_unlock(&d->lock);
    int code = wf_cuda_check(d, wf_cuda_wait_for(s), "cuStreamSynchronize", why);
    return code ? code : wf_cuda_words_check(d, s, work, why);
}

cu_handle wf_cuda_end_of(wf_cuda_stream *s)
{
    wf_why ignored = {0};
    /* but for the default stream: whoever owns another may give it back, and a capture take it, at any moment */
    const wf_cuda_point *p = s->slot == 0 ? NULL : wf_cuda_point_of(s, s->work, &ignored);
    return p ? p->event : NULL;
}

cu_result wf_cuda_wait_for(wf_cuda_stream *s)
{
    pthread_mutex_lock(&s->device->lock);
    cu_handle event = wf_cuda_end_of(s);
    pthread_mutex_unlock(&s->device->lock);
    return event ? wf_cu->event_synchronize(event) : wf_cu->stream_synchronize(s->handle);
}

int wf_cuda_synchronize(int ordinal, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    if (!d) {
        return wf_cuda_code(why);
    }
    if (wf_cuda_capturing(ordinal)) {
        return wf_cuda_graph_refuse(wf_cuda_current(d, why)->capture, "a wait for the device", why);
    }
    WF_CUDA_COUNT(waits, 1);
    pthread_mutex_lock(&d->lock);
    int n = d->n_streams;
    pthread_mutex_unlock(&d->lock);
    int code = 0; /* of the first stream that has one; all are waited for */
    for (int i = 0; i < n; i++) {
        wf_cuda_stream *s = &d->streams[i];
        int waited = wf_cuda_stream_wait(s, code ? NULL : why);
        code = code ? code : waited;
    }
    return code;
}

void wf_cuda_streams_close(wf_cuda_device *d)
{
    wf_cuda_timeline_close(d);
    for (int i = 0; i < d->n_streams; i++) {
        wf_cuda_stream *s = &d->streams[i];
        for (int k = 0; k < WF_CUDA_RING; k++) {
            if (s->ring[k].event) {
                wf_cu->event_destroy(s->ring[k].event);
            }
        }
        wf_cu->stream_destroy(s->handle);
        uint32_t serial = atomic_load(&s->serial) + 1; /* who has it current, or a handle of it */
        memset(s, 0, sizeof *s);
        atomic_store(&s->serial, serial);
    }
    atomic_store(&d->has_default, false);
    d->n_streams = 0;
}
