/*
 * eager/cuda/memory.c -- device memory: blocks, who uses them, copies on the device.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/graph.h"
#include "eager/cuda/stream.h"
#include "eager/cuda/timeline.h"
#include "eager/device.h"
#include "eager/env.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { READERS = 6 };
enum { NO_POOL = -1 }; /* it stands for memory that a graph has */

typedef struct use {
    wf_cuda_stream *stream; /* NULL: nobody */
    uint64_t op;
} use;

typedef struct block {
    wf_cuda_block base; /* first: what callers hold */
    wf_cuda_device *device;
    wf_cuda_stream *home; /* whose pool it is from */
    wf_cache_chunk *chunk;
    int refs; /* the owner, and graphs that use it */
    int key;  /* of its pool, or NO_POOL */
    wf_cuda_part part;
    use writer, readers[READERS];
    int n_readers;
    bool crowd; /* of more streams than that: whoever asks waits for all */
} block;

/* Lock held. 0, or the books' error. */
static int take(wf_cuda_device *d, wf_cuda_stream *s, size_t nbytes, block *b)
{
    if (!d->cache) {
        d->cache = wf_cuda_cache_new(d);
        d->cap = wf_env()->WEFT_CUDA_CAP;
    }
    b->key = s->capture ? wf_cuda_graph_key(s->capture) : s->slot;
    b->part.graph = s->capture;
    int code = d->cache
                   ? wf_cache_alloc(d->cache, b->key, nbytes, wf_device_lasts(nbytes), &b->chunk)
                   : WF_CACHE_NO_HOST_MEMORY;
    if (!code && b->key >= WF_CUDA_STREAMS) {
        d->graph_live[b->key - WF_CUDA_STREAMS]++;
    }
    return code;
}

wf_cuda_block *wf_cuda_alloc(int ordinal, size_t nbytes, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_reach(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return NULL;
    }
    if (wf_cuda_renewed) {
        return wf_cuda_renew_memory(ordinal, nbytes, why);
    }
    block *b = wf_calloc(1, sizeof *b);
    pthread_mutex_lock(&d->lock);
    int code = b ? take(d, s, nbytes, b) : WF_CACHE_NO_HOST_MEMORY;
    pthread_mutex_unlock(&d->lock);
    if (code) {
        wf_mfree(b);
        if (code < 0 || code == CU_OUT_OF_MEMORY) {
            wf_cuda_report_oom(d, nbytes, code, why);
        } else {
            wf_cuda_check(d, code, "allocating memory", why);
        }
        return NULL;
    }
    b->base = (wf_cuda_block){(void *)(uintptr_t)wf_cache_address(b->chunk), nbytes, ordinal};
    b->device = d;
    b->home = s;
    b->refs = 1;
    if (wf_cuda_marking(s) && wf_cuda_mark_memory(s->capture, b->base.address, nbytes, why)) {
        wf_cuda_free(&b->base);
        return NULL;
    }
    return &b->base;
}

wf_cuda_block *wf_cuda_block_echo(int ordinal, void *address, size_t size, wf_why *why)
{
    block *b = wf_calloc(1, sizeof *b);
    if (!b) {
        wf_fail(why, WEFT_ENOMEM, "no host memory for a block");
        return NULL;
    }
    b->base = (wf_cuda_block){address, size, ordinal};
    b->key = NO_POOL;
    return &b->base;
}

/* Lock held. Notes that the first `work` pieces of s, which is not b's home, have to be over before b is used again, unless that is
 * certain. */
static int add_work(const block *b, wf_cuda_stream *s, uint64_t work, wf_cache_mark *out)
{
    if (b->home->seen[s->slot] >= work) {
        return 0;
    }
    wf_why ignored = {0};
    const wf_cuda_point *p =
        wf_cuda_make_current(b->device, &ignored) ? NULL : wf_cuda_point_of(s, work, &ignored);
    if (!p) { /* no event to be had: wait */
        WF_CUDA_COUNT(hidden_waits, 1);
        wf_cu->stream_synchronize(s->handle);
        return 0;
    }
    *out = (wf_cache_mark){s->slot, p->work};
    return 1;
}

/* Lock held. The same of a use by any stream; its home runs in order. */
static int add_use(const block *b, const use *u, wf_cache_mark *out)
{
    return !u->stream || u->stream == b->home
               ? 0
               : add_work(b, u->stream, wf_cuda_op_last(u->stream, u->op), out);
}

/* Lock held. Everything that has to be over before b is used again. */
static int add_marks(const block *b, wf_cache_mark out[WF_CUDA_STREAMS + 1])
{
    int n = add_use(b, &b->writer, out);
    for (int i = 0; i < b->n_readers && !b->crowd; i++) {
        n += add_use(b, &b->readers[i], &out[n]);
    }
    for (int i = 0; b->crowd && i < b->device->n_streams; i++) {
        wf_cuda_stream *s = &b->device->streams[i];
        n += s == b->home ? 0 : add_work(b, s, s->work, &out[n]);
    }
    return n;
}

wf_cuda_part *wf_cuda_block_part(wf_cuda_block *b)
{
    return &((block *)b)->part;
}

void wf_cuda_retain(wf_cuda_block *b)
{
    ((block *)b)->refs++;
}

bool wf_cuda_borrow(wf_cuda_block *base)
{
    block *b = (block *)base;
    pthread_mutex_lock(&b->device->lock);
    const bool alone = b->refs == 1;
    b->refs += alone;
    pthread_mutex_unlock(&b->device->lock);
    return alone;
}

void wf_cuda_free(wf_cuda_block *base)
{
    if (!base) {
        return;
    }
    block *b = (block *)base;
    if (b->key == NO_POOL) {
        wf_mfree(b);
        return;
    }
    wf_cuda_device *d = b->device;
    wf_cache_mark after[WF_CUDA_STREAMS + 1];
    wf_why ignored;
    wf_why_clear(&ignored);
    bool works = wf_cuda_reach(base->ordinal, &ignored) != NULL; /* a broken one orders nothing */
    pthread_mutex_lock(&d->lock);
    bool last = --b->refs == 0;
    if (last) {
        wf_cuda_graph_forget(base);
        int n = works ? add_marks(b, after) : 0;
        if (b->key >= WF_CUDA_STREAMS) {
            d->graph_live[b->key - WF_CUDA_STREAMS]--;
        }
        wf_cache_free(d->cache, b->chunk, n, after);
    }
    pthread_mutex_unlock(&d->lock);
    if (last) {
        wf_mfree(b);
    }
}

int64_t wf_cuda_trim(int ordinal)
{
    wf_why ignored = {0};
    wf_cuda_device *d = wf_cuda_enter(ordinal, &ignored);
    if (!d) {
        return 0;
    }
    pthread_mutex_lock(&d->lock);
    int64_t bytes = d->cache ? wf_cache_trim(d->cache, -1) : 0;
    pthread_mutex_unlock(&d->lock);
    return bytes;
}

int wf_cuda_set_cap(int ordinal, int64_t cap, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    if (!d) {
        return wf_cuda_code(why);
    }
    if (cap < 0) {
        return wf_fail(why, WEFT_EINVALID, "a cap of %lld bytes is negative", (long long)cap);
    }
    pthread_mutex_lock(&d->lock);
    if (!d->cache) {
        d->cache = wf_cuda_cache_new(d);
    }
    d->cap = cap;
    wf_cache_stats s = {0};
    if (d->cache) {
        wf_cache_set_cap(d->cache, cap);
        wf_cache_get_stats(d->cache, &s);
        if (cap && s.reserved_bytes > cap) {
            wf_cache_trim(d->cache, -1);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return d->cache ? 0
                    : wf_fail(why, WEFT_ENOMEM, "no host memory for the books of cuda:%d", ordinal);
}

int wf_cuda_set_source(int ordinal, const wf_heap_source *source, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    if (!d) {
        return wf_cuda_code(why);
    }
    pthread_mutex_lock(&d->lock);
    wf_cache_stats s = {0};
    if (d->cache) {
        wf_cache_trim(d->cache, -1);
        wf_cache_get_stats(d->cache, &s);
    }
    const bool had = d->cache != NULL, empty = s.reserved_bytes == 0;
    bool known = true;
    if (empty) { /* the books are made anew, on what is below them from now on */
        const wf_heap_source before = d->source;
        const bool maps = d->maps;
        d->source = source ? *source : (wf_heap_source){0};
        wf_cache *books = had ? wf_cuda_cache_new(d) : NULL;
        known = books || !had;
        if (books) {
            wf_cache_set_cap(books, d->cap);
            wf_cache_delete(d->cache);
            d->cache = books;
        } else if (had) {
            d->source = before;
            d->maps = maps;
        }
    }
    pthread_mutex_unlock(&d->lock);
    if (!known) {
        return wf_fail(why, WEFT_ENOMEM, "no host memory for the books of cuda:%d", ordinal);
    }
    return empty
               ? 0
               : wf_fail(why, WEFT_EINVALID,
                         "cuda:%d holds memory: its allocator is set before the first tensor there",
                         ordinal);
}

/* Lock held. s's next work comes behind everything that must be over before it reads or writes b. */
static int order_behind(block *b, wf_cuda_stream *s, bool write, wf_why *why)
{
    int code = b->writer.stream ? wf_cuda_order(s, b->writer.stream, b->writer.op, why) : 0;
    for (int i = 0; write && !b->crowd && i < b->n_readers && !code; i++) {
        code = wf_cuda_order(s, b->readers[i].stream, b->readers[i].op, why);
    }
    for (int i = 0; write && b->crowd && i < b->device->n_streams && !code; i++) {
        wf_cuda_stream *other = &b->device->streams[i];
        code = wf_cuda_order_work(s, other, other->work, why);
    }
    return code;
}

/* Lock held. */
static void note_read(block *b, wf_cuda_stream *s, uint64_t op)
{
    for (int i = 0; i < b->n_readers; i++) {
        if (b->readers[i].stream == s) {
            /* of threads that share s the older op may queue last: the newest stands for all */
            b->readers[i].op = b->readers[i].op > op ? b->readers[i].op : op;
            return;
        }
    }
    if (b->n_readers < READERS) {
        b->readers[b->n_readers++] = (use){s, op};
    } else { /* s cannot stand for another one, whose work may not be queued yet */
        b->crowd = true;
    }
}

int wf_cuda_use(wf_cuda_block *base, bool write, wf_why *why)
{
    block *b = (block *)base;
    wf_cuda_device *d = wf_cuda_reach(base->ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    if (wf_cuda_renewed) {
        return 0;
    }
    pthread_mutex_lock(&d->lock);
    if (s->capture) {
        int refused = wf_cuda_graph_use(s->capture, base, write, why);
        pthread_mutex_unlock(&d->lock);
        return refused;
    }
    uint64_t op = wf_cuda_op_begin(s);
    int code = order_behind(b, s, write, why);
    if (!code && write) {
        b->writer = (use){s, op};
        b->n_readers = 0;
        b->crowd = false;
    } else if (!code) {
        note_read(b, s, op);
        wf_cuda_words_follow(b->writer.stream, b->writer.op, s, op);
    }
    pthread_mutex_unlock(&d->lock);
    return code;
}

bool wf_cuda_spoilt(const wf_cuda_block *base, wf_op *op, const char **site)
{
    if (!atomic_load_explicit(&wf_cuda_any_failed, memory_order_relaxed)) {
        return false;
    }
    const block *b = (const block *)base;
    pthread_mutex_lock(&b->device->lock);
    const bool is = wf_cuda_words_failed(b->device, b->writer.stream, b->writer.op, op, site);
    pthread_mutex_unlock(&b->device->lock);
    return is;
}

int wf_cuda_move(int ordinal, void *dst, const void *src, size_t n, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    if (wf_cuda_renewed) {
        return wf_cuda_renew_write(dst, n, why);
    }
    WF_CUDA_COUNT(copies, 1);
    wf_cuda_time_begin(s);
    cu_result r =
        n ? wf_cu->copy((cu_address)(uintptr_t)dst, (cu_address)(uintptr_t)src, n, s->handle)
          : CU_OK;
    int code = wf_cuda_check(d, r, "cuMemcpyDtoDAsync", why);
    if (!code) {
        wf_cuda_queued(s, "copy on the device");
    }
    return !code && wf_cuda_marking(s) ? wf_cuda_mark_write(s->capture, dst, n, why) : code;
}

int wf_cuda_clear(int ordinal, void *dst, size_t n, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    if (wf_cuda_renewed) {
        return wf_cuda_renew_write(dst, n, why);
    }
    WF_CUDA_COUNT(copies, 1);
    wf_cuda_time_begin(s);
    cu_result r = n ? wf_cu->set_bytes((cu_address)(uintptr_t)dst, 0, n, s->handle) : CU_OK;
    int code = wf_cuda_check(d, r, "cuMemsetD8Async", why);
    if (!code) {
        wf_cuda_queued(s, "clear");
    }
    return !code && wf_cuda_marking(s) ? wf_cuda_mark_write(s->capture, dst, n, why) : code;
}
