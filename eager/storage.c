/*
 * eager/storage.c -- reference-counted memory of tensors.
 *
 * Invariants: a storage is freed the moment its last reference goes; small payloads live in the same
 * block as the header; external memory calls its deleter exactly once.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/tensor.h"

enum { HEADER = 128, INLINE_MAX = 896 };
_Static_assert(sizeof(wf_storage) <= HEADER, "the payload starts behind the header");

static void storage_init(wf_storage *st)
{
    memset(st, 0, sizeof *st);
    atomic_store_explicit(&st->refs, 1, memory_order_relaxed);
}

wf_storage *wf_storage_new(size_t nbytes)
{
    if (nbytes <= INLINE_MAX) {
        wf_storage *st = wf_alloc(HEADER + nbytes);
        if (!st) {
            return NULL;
        }
        storage_init(st);
        st->inline_data = 1;
        st->data = (char *)st + HEADER;
        st->nbytes = nbytes;
        return st;
    }
    wf_storage *st = wf_alloc(HEADER);
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

wf_storage *wf_storage_wrap(void *data, size_t nbytes, void (*deleter)(void *), void *arg)
{
    wf_storage *st = wf_alloc(HEADER);
    if (!st) {
        return NULL;
    }
    storage_init(st);
    st->data = data;
    st->nbytes = nbytes;
    st->deleter = deleter;
    st->deleter_arg = arg;
    st->inline_data = 2; /* not ours to free */
    return st;
}

wf_storage *wf_storage_new_virtual(size_t nbytes, wf_recorder *r, void *address, wf_storage *again)
{
    wf_storage *st = again;
    if (!st) {
        st = wf_alloc(HEADER);
        if (!st) {
            return NULL;
        }
        storage_init(st);
    }
    /* What the life of a virtual storage changes. */
    atomic_store_explicit(&st->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&st->handles, 0, memory_order_relaxed);
    atomic_store_explicit(&st->version, 0, memory_order_relaxed);
    st->root_gen = 0;
    st->root = 0;
    st->write_op = 0;
    st->write_site = NULL;
    st->value = 0;
    st->next = NULL;
    atomic_store_explicit(&st->is_virtual, 1, memory_order_relaxed);
    st->nbytes = nbytes;
    st->data = address;
    st->recorder = r;
    return st;
}

void wf_storage_free_header(wf_storage *st)
{
    wf_free(st, HEADER);
}

int wf_storage_back(wf_storage *st)
{
    void *p = wf_alloc(st->nbytes);
    if (!p) {
        return WEFT_ENOMEM;
    }
    st->data = p;
    return 0;
}

void wf_storage_commit(wf_storage *st)
{
    st->recorder = NULL;
    atomic_store_explicit(&st->is_virtual, 0, memory_order_release);
}

void wf_storage_retain(wf_storage *st)
{
    atomic_fetch_add_explicit(&st->refs, 1, memory_order_relaxed);
}

void wf_storage_release(wf_storage *st)
{
    /* A sole owner needs no locked decrement: nobody else can reach the count. */
    if (atomic_load_explicit(&st->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&st->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (__builtin_expect(atomic_load_explicit(&st->is_virtual, memory_order_acquire), 0)) {
        /* Another thread's trace finds it without references when it ends. */
        if (wf_tls_ctx && wf_tls_ctx->recorder == st->recorder) {
            st->recorder->dead(st->recorder, st);
        } else {
            atomic_store_explicit(&st->refs, 0, memory_order_release);
        }
        return;
    }
    if (st->inline_data == 1) {
        wf_free(st, HEADER + st->nbytes);
        return;
    }
    if (st->inline_data == 2) {
        if (st->deleter) {
            st->deleter(st->deleter_arg);
        }
    } else {
        wf_free(st->data, st->nbytes);
    }
    wf_free(st, HEADER);
}
