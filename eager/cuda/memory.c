/*
 * eager/cuda/memory.c -- device memory: blocks, who uses them, copies on the device.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/stream.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { READERS = 6 };

typedef struct use {
    wf_cuda_stream *stream; /* NULL: nobody */
    uint64_t op;
} use;

typedef struct block {
    wf_cuda_block base; /* first: what callers hold */
    wf_cuda_device *device;
    wf_cuda_stream *home;
    use writer, readers[READERS];
    int n_readers;
} block;

wf_cuda_block *wf_cuda_alloc(int ordinal, size_t nbytes, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return NULL;
    }
    block *b = wf_calloc(1, sizeof *b);
    if (!b) {
        wf_fail(why, WEFT_ENOMEM, "no host memory for a block on cuda:%d", ordinal);
        return NULL;
    }
    cu_address at = 0;
    WF_CUDA_COUNT(driver_allocs, 1);
    if (wf_cuda_check(d, wf_cu->memory_alloc(&at, nbytes ? nbytes : 1), "cuMemAlloc", why)) {
        wf_mfree(b);
        return NULL;
    }
    b->base = (wf_cuda_block){(void *)(uintptr_t)at, nbytes, ordinal};
    b->device = d;
    b->home = s;
    return &b->base;
}

void wf_cuda_free(wf_cuda_block *base)
{
    block *b = (block *)base;
    wf_why ignored = {0};
    if (b && wf_cuda_enter(base->ordinal, &ignored)) {
        WF_CUDA_COUNT(driver_frees, 1);
        wf_cu->memory_free((cu_address)(uintptr_t)base->address);
    }
    wf_mfree(b);
}

/* Lock held. s's next work comes behind everything that must be over before it reads or writes b. */
static int order_behind(block *b, wf_cuda_stream *s, bool write, wf_why *why)
{
    int code = b->writer.stream ? wf_cuda_order(s, b->writer.stream, b->writer.op, why) : 0;
    for (int i = 0; write && i < b->n_readers && !code; i++) {
        code = wf_cuda_order(s, b->readers[i].stream, b->readers[i].op, why);
    }
    return code;
}

/* Lock held. */
static int note_read(block *b, wf_cuda_stream *s, uint64_t op, wf_why *why)
{
    for (int i = 0; i < b->n_readers; i++) {
        if (b->readers[i].stream == s) {
            b->readers[i].op = op;
            return 0;
        }
    }
    if (b->n_readers == READERS) { /* behind the first one, s stands for both */
        int code = wf_cuda_order(s, b->readers[0].stream, b->readers[0].op, why);
        if (code) {
            return code;
        }
        b->readers[0] = (use){s, op};
        return 0;
    }
    b->readers[b->n_readers++] = (use){s, op};
    return 0;
}

int wf_cuda_use(wf_cuda_block *base, bool write, wf_why *why)
{
    block *b = (block *)base;
    wf_cuda_device *d = wf_cuda_enter(base->ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    pthread_mutex_lock(&d->lock);
    uint64_t op = wf_cuda_op_begin(s);
    int code = order_behind(b, s, write, why);
    if (!code && write) {
        b->writer = (use){s, op};
        b->n_readers = 0;
    } else if (!code) {
        code = note_read(b, s, op, why);
    }
    pthread_mutex_unlock(&d->lock);
    return code;
}

int wf_cuda_move(int ordinal, void *dst, const void *src, size_t n, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    WF_CUDA_COUNT(copies, 1);
    cu_result r =
        n ? wf_cu->copy((cu_address)(uintptr_t)dst, (cu_address)(uintptr_t)src, n, s->handle)
          : CU_OK;
    int code = wf_cuda_check(d, r, "cuMemcpyDtoDAsync", why);
    if (!code) {
        wf_cuda_queued(s, "copy on the device");
    }
    return code;
}

int wf_cuda_clear(int ordinal, void *dst, size_t n, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    WF_CUDA_COUNT(copies, 1);
    cu_result r = n ? wf_cu->set_bytes((cu_address)(uintptr_t)dst, 0, n, s->handle) : CU_OK;
    int code = wf_cuda_check(d, r, "cuMemsetD8Async", why);
    if (!code) {
        wf_cuda_queued(s, "clear");
    }
    return code;
}
