/*
 * eager/storage.c -- reference-counted memory of tensors.
 *
 * Invariants: a storage is freed the moment its last reference goes; small payloads live in the same
 * block as the header; external memory calls its deleter exactly once; memory of a place that keeps blocks goes back there.
 * A trace holds a reference of each of its virtual storages, so that a
 * release on another thread is never the last one while the trace runs.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/kept.h"

enum { HEADER = 128, INLINE_MAX = 896 };
_Static_assert(sizeof(wf_storage) <= HEADER && HEADER == 128,
               "the payload starts behind the header, which storage_init zeros");

static inline void storage_init(wf_storage *st)
{
    char *p = (void *)st;
    wf_zero16(p);
    wf_zero16(p + 16);
    wf_zero16(p + 32);
    wf_zero16(p + 48);
    wf_zero16(p + 64);
    wf_zero16(p + 80);
    wf_zero16(p + 96);
    wf_zero16(p + 112);
    atomic_store_explicit(&st->refs, 1, memory_order_relaxed);
}

/* In one block, made by `get`. */
static inline wf_storage *storage_inline(void *(*get)(size_t), size_t nbytes)
{
    wf_storage *st = get(HEADER + nbytes);
    if (!st) {
        return NULL;
    }
    storage_init(st);
    st->inline_data = WF_STORAGE_INLINE;
    st->data = (char *)st + HEADER;
    st->nbytes = nbytes;
    return st;
}

wf_storage *wf_storage_new(size_t nbytes)
{
    if (nbytes <= INLINE_MAX) {
        return storage_inline(wf_alloc, nbytes);
    }
    wf_storage *st = wf_object(HEADER);
    if (!st) {
        return NULL;
    }
    storage_init(st);
    st->nbytes = nbytes;
    st->data = wf_alloc(nbytes);
    if (!st->data) {
        wf_free(st, HEADER);
        return NULL;
    }
    return st;
}

wf_storage *wf_storage_new_again(wf_kept *k, size_t nbytes)
{
    if (nbytes <= INLINE_MAX) {
        return storage_inline(wf_object, nbytes);
    }
    wf_storage *st = wf_object(HEADER);
    if (!st) {
        return NULL;
    }
    storage_init(st);
    st->nbytes = nbytes;
    k = k && wf_kept_size(k) == nbytes ? k : NULL;
    st->data = k ? wf_kept_take(k) : wf_object(nbytes);
    st->deleter_arg = k;
    if (!st->data) {
        wf_free(st, HEADER);
        return NULL;
    }
    return st;
}

wf_storage *wf_storage_wrap(void *data, size_t nbytes, void (*deleter)(void *), void *arg)
{
    wf_storage *st = wf_object(HEADER);
    if (!st) {
        return NULL;
    }
    storage_init(st);
    st->data = data;
    st->nbytes = nbytes;
    st->deleter = deleter;
    st->deleter_arg = arg;
    st->inline_data = WF_STORAGE_EXTERNAL; /* not ours to free */
    return st;
}

/* Of no bytes: an address that nobody reads. */
static int back_on_device(wf_storage *st, wf_why *why)
{
    wf_why local = {0};
    st->deleter_arg =
        wf_device_alloc(st->device, st->nbytes ? st->nbytes : 1, &st->data, why ? why : &local);
    if (!st->deleter_arg) {
        return WEFT_ENOMEM;
    }
    st->inline_data = WF_STORAGE_DEVICE;
    return 0;
}

wf_storage *wf_storage_new_on(int device, size_t nbytes, wf_why *why)
{
    if (device == WF_DEVICE_HOST) {
        return wf_storage_new(nbytes);
    }
    wf_storage *st = wf_object(HEADER);
    if (!st) {
        return NULL;
    }
    storage_init(st);
    st->nbytes = nbytes;
    st->device = (uint8_t)device;
    st->shared = 1; /* captured launches hold it */
    if (back_on_device(st, why)) {
        wf_free(st, HEADER);
        return NULL;
    }
    return st;
}

wf_storage *wf_storage_over(const wf_storage *owner)
{
    wf_storage *st = wf_object(HEADER);
    if (st) {
        storage_init(st);
        st->nbytes = owner->nbytes;
        st->device = owner->device;
        st->shared = 1;
        st->data = owner->data;
        st->deleter_arg = owner->deleter_arg;
        st->inline_data = WF_STORAGE_DEVICE;
    }
    return st;
}

wf_storage *wf_storage_new_virtual(size_t nbytes, wf_recorder *r, void *address)
{
    wf_storage *st = wf_object(HEADER);
    if (st) {
        storage_init(st);
        atomic_store_explicit(&st->held, 1, memory_order_relaxed);
        atomic_store_explicit(&st->is_virtual, 1, memory_order_relaxed);
        atomic_store_explicit(&st->recorder, r, memory_order_relaxed);
        st->shared = 1;
        wf_storage_begin_virtual(st, nbytes, r->device, address);
    }
    return st;
}

void wf_storage_free_header(wf_storage *st)
{
    wf_free(st, HEADER);
}

int wf_storage_back(wf_storage *st, wf_kept *k, wf_why *why)
{
    if (st->device != WF_DEVICE_HOST) {
        return back_on_device(st, why);
    }
    k = k && wf_kept_size(k) == st->nbytes ? k : NULL;
    void *p = k ? wf_kept_take(k) : wf_object(st->nbytes);
    if (!p) {
        return WEFT_ENOMEM;
    }
    st->data = p;
    st->deleter_arg = k;
    return 0;
}

void wf_storage_commit(wf_storage *st)
{
    atomic_store_explicit(&st->recorder, NULL, memory_order_release);
    atomic_store_explicit(&st->is_virtual, 0, memory_order_release);
    atomic_fetch_sub_explicit(&st->held, 1, memory_order_relaxed);
    wf_storage_release(st);
}

void wf_storage_retain(wf_storage *st)
{
    wf_storage_share(st);
    atomic_fetch_add_explicit(&st->refs, 1, memory_order_relaxed);
}

/* The running trace of this thread that computes st, or NULL. */
static wf_recorder *own_recorder(wf_storage *st)
{
    wf_recorder *r = atomic_load_explicit(&st->recorder, memory_order_relaxed);
    return r && wf_tls_ctx && wf_tls_ctx->recorder == r ? r : NULL;
}

/* In the middle of other work (wf_ctx.busy) a deleter finds recording off, and may not end what that work stands on. What the
 * running trace computes is to it what another thread's is. */
static void run_deleter(wf_storage *st)
{
    wf_ctx *c = wf_tls_ctx;
    if (!c || !c->busy) {
        st->deleter(st->deleter_arg);
        return;
    }
    const uint32_t sealed = c->sealed, off = c->grad_off;
    wf_recorder *r = c->recorder;
    c->sealed = c->depth;
    c->grad_off = 1;
    c->recorder = NULL;
    st->deleter(st->deleter_arg);
    c->recorder = r;
    c->grad_off = off;
    c->sealed = sealed;
}

void wf_storage_release(wf_storage *st)
{
    int32_t refs = atomic_load_explicit(&st->refs, memory_order_acquire);
    /* A sole owner needs no locked decrement: nobody else can reach the count. */
    if (refs == 2) {
        wf_recorder *r = own_recorder(st);
        if (r) { /* the other one is the trace's, of this thread */
            atomic_store_explicit(&st->refs, 1, memory_order_relaxed);
            r->dead(r, st);
            return;
        }
    }
    /* If other threads let go meanwhile, a trace finds what has only its own reference when it commits. */
    if (refs != 1 && wf_storage_uncount(st, &st->refs) != 0) {
        return;
    }
    if (st->inline_data == WF_STORAGE_INLINE) {
        wf_free(st, HEADER + st->nbytes);
        return;
    }
    if (st->inline_data == WF_STORAGE_EXTERNAL) {
        if (st->order) {
            wf_device_finish(st->device);
        }
        if (st->deleter) {
            run_deleter(st);
        }
        wf_device_free(st->order);
    } else if (st->inline_data == WF_STORAGE_DEVICE) {
        wf_device_free(st->deleter_arg);
    } else if (st->deleter_arg) {
        wf_kept_give(st->deleter_arg, st->data);
    } else {
        wf_free(st->data, st->nbytes);
    }
    wf_free(st, HEADER);
}
