/*
 * eager/cuda/pinned.c -- pinned host memory for tensors, cached in powers of two.
 *
 * Pinning costs the driver milliseconds and stops it meanwhile, so what is given back is kept for the next
 * request of its size. Memory whose last copy may still be under way is passed over when it is asked
 * whether it can be handed out: an event tells.
 */
#include "eager/cuda/pinned.h"

#include "eager/alloc.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { SMALLEST = 12 }; /* 4 KiB */

typedef struct pin {
    struct pin *next; /* of all */
    unsigned char *host;
    size_t size;
    int ordinal;
    bool in_use, has_work;
    cu_handle
        event; /* behind the last copy, if has_work; of the device `event_on`, while that is the one it was made in */
    wf_cuda_device *event_on;
    uint32_t generation;
    wf_cuda_stream *stream; /* where that copy is, */
    uint64_t work;          /* and what there is until then */
} pin;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* taken before a device's */
static pin *pins;

static pin *find(const void *p)
{
    for (pin *x = pins; x; x = x->next) {
        if ((const unsigned char *)p >= x->host && (const unsigned char *)p < x->host + x->size) {
            return x;
        }
    }
    return NULL;
}

/* The event went with the device, when all was done. */
static void forget_closed(pin *x)
{
    if (x->event && x->generation != x->event_on->generation) {
        x->event = NULL;
        x->has_work = false;
    }
}

static bool idle(pin *x)
{
    forget_closed(x);
    if (x->has_work && wf_cu->context_set(x->event_on->context) == CU_OK &&
        wf_cu->event_query(x->event) == CU_OK) {
        x->has_work = false;
    }
    return !x->has_work;
}

static pin *make(wf_cuda_device *d, size_t size, wf_why *why)
{
    void *host = NULL;
    pin *x = wf_calloc(1, sizeof *x);
    if (!x) {
        wf_fail(why, WEFT_ENOMEM, "no host memory");
        return NULL;
    }
    cu_result r = wf_cu->host_alloc(&host, size, CU_HOST_PORTABLE);
    if (r == CU_OUT_OF_MEMORY) {
        wf_fail(why, WEFT_ENOMEM, "the system has no %zu bytes of memory to pin", size);
        wf_hint(why, "pinned memory cannot be swapped out: use less of it, or ordinary tensors");
    } else if (r != CU_OK) {
        wf_cuda_check(d, r, "cuMemHostAlloc", why);
    }
    if (r != CU_OK) {
        wf_mfree(x);
        return NULL;
    }
    *x = (pin){.host = host, .size = size, .ordinal = d->ordinal, .next = pins};
    pins = x;
    return x;
}

void *wf_cuda_pinned_alloc(wf_cuda_device *d, size_t nbytes, wf_why *why)
{
    int shift = SMALLEST;
    while (shift < 46 && ((size_t)1 << shift) < nbytes) {
        shift++;
    }
    size_t size = (size_t)1 << shift;
    if (size < nbytes) {
        wf_fail(why, WEFT_ENOMEM, "%zu bytes of pinned memory are too many", nbytes);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    pin *x = pins;
    while (x && (x->in_use || x->size != size || !idle(x))) {
        x = x->next;
    }
    wf_cu->context_set(d->context);
    x = x ? x : make(d, size, why);
    if (x) {
        x->in_use = true;
    }
    pthread_mutex_unlock(&lock);
    return x ? x->host : NULL;
}

void *wf_cuda_host_alloc(int ordinal, size_t nbytes)
{
    wf_why ignored = {0};
    wf_cuda_device *d = wf_cuda_enter(ordinal, &ignored);
    return d ? wf_cuda_pinned_alloc(d, nbytes, &ignored) : NULL;
}

void wf_cuda_pinned_free(void *p)
{
    pthread_mutex_lock(&lock);
    pin *x = find(p);
    if (x) {
        x->in_use = false;
    }
    pthread_mutex_unlock(&lock);
}

bool wf_cuda_is_pinned(const void *p)
{
    pthread_mutex_lock(&lock);
    const pin *x = find(p);
    bool is = x && x->in_use;
    pthread_mutex_unlock(&lock);
    return is;
}

cu_result wf_cuda_pinned_used(const void *p, wf_cuda_stream *s)
{
    cu_result r = CU_OK;
    pthread_mutex_lock(&lock);
    pin *x = find(p);
    bool waited = false;
    if (x) {
        forget_closed(x);
    }
    if (x && x->event && x->event_on != s->device) { /* events are of one device */
        wf_cu->event_synchronize(x->event);
        wf_cu->event_destroy(x->event);
        x->event = NULL;
    }
    if (x && !x->event) {
        x->event_on = s->device;
        x->generation = s->device->generation;
        waited = wf_cu->event_create(&x->event, CU_EVENT_UNTIMED) != CU_OK;
        x->event = waited ? NULL : x->event;
    }
    if (x && !waited) {
        waited = wf_cu->event_record(x->event, s->handle) != CU_OK;
        x->has_work = !waited;
        pthread_mutex_lock(&s->device->lock);
        x->stream = s;
        x->work = s->work;
        pthread_mutex_unlock(&s->device->lock);
    }
    if (waited) {
        WF_CUDA_COUNT(hidden_waits, 1);
        r = wf_cu->stream_synchronize(s->handle);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

int wf_cuda_arrive(void *host, wf_why *why)
{
    pthread_mutex_lock(&lock);
    pin *at = find(host);
    if (at) {
        forget_closed(at);
    }
    pin x = at ? *at : (pin){0};
    pthread_mutex_unlock(&lock);
    WF_CUDA_COUNT(waits, 1);
    if (!x.has_work) { /* its copy was waited for when it was queued, or with the device */
        bool open = x.event_on && x.generation == x.event_on->generation;
        return open ? wf_cuda_words_check(x.event_on, NULL, 0, why) : 0;
    }
    wf_cuda_device *d = wf_cuda_enter(x.event_on->ordinal, why);
    if (!d) {
        return wf_cuda_code(why);
    }
    int code = wf_cuda_check(d, wf_cu->event_synchronize(x.event), "cuEventSynchronize", why);
    return code ? code : wf_cuda_words_check(d, x.stream, x.work, why);
}

void wf_cuda_pinned_trim(void)
{
    pthread_mutex_lock(&lock);
    for (pin **at = &pins; *at;) {
        pin *x = *at;
        if (x->in_use || !idle(x)) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        if (x->event) {
            wf_cu->event_destroy(x->event);
        }
        wf_cuda_device *d = wf_cuda_peek(x->ordinal);
        if (d) {
            wf_cu->context_set(d->context);
        }
        wf_cu->host_free(x->host);
        wf_mfree(x);
    }
    pthread_mutex_unlock(&lock);
}
