/*
 * eager/account.c -- what the process holds: memory statistics and the report of kept tensors never freed.
 *
 * Both walk the contexts of all threads without stopping them: counts are exact where the threads are
 * quiet, and otherwise of a moment within the walk.
 */
#include <stdio.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/tensor.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

void weft_memory_get_stats(weft_memory_stats *out)
{
    if (!out) {
        return;
    }
    wf_alloc_stats a;
    wf_alloc_get_stats(&a);
    *out = (weft_memory_stats){.live_bytes = a.live_bytes,
                               .peak_bytes = a.peak_bytes,
                               .reserved_bytes = a.reserved_bytes,
                               .allocations = a.allocs,
                               .system_allocations = a.system_allocs,
                               .cap_bytes = wf_alloc_cap()};
    for (uint32_t i = 1; i < WF_MAX_CTX; i++) {
        wf_ctx *c = wf_ctx_at(i);
        if (!c) {
            break;
        }
        out->live_tensors += atomic_load_explicit(&c->live, memory_order_relaxed) -
                             atomic_load_explicit(&c->freed_remotely, memory_order_relaxed);
        out->kept_tensors += atomic_load_explicit(&c->kept, memory_order_relaxed) -
                             atomic_load_explicit(&c->kept_freed_remotely, memory_order_relaxed);
    }
}

void weft_memory_reset_peak(void)
{
    wf_alloc_reset_peak();
}

int64_t weft_memory_trim(void)
{
    return wf_alloc_trim();
}

weft_status(weft_memory_set_cap)(int64_t bytes)
{
    if (bytes < 0) {
        wf_api_error("memory_set_cap", WEFT_EINVALID, "a cap of %lld bytes is negative",
                     (long long)bytes);
        return WEFT_EINVALID;
    }
    wf_alloc_set_cap(bytes);
    return WEFT_OK;
}

weft_status(weft_memory_set_allocator)(const weft_allocator *a)
{
    if (a && (!a->allocate || !a->release)) {
        wf_api_null("memory_set_allocator", a->allocate ? "release" : "allocate");
        return WEFT_EINVALID;
    }
    if (!wf_alloc_set_source(
            a ? &(wf_heap_source){.allocate = a->allocate, .release = a->release, .user = a->user}
              : NULL)) {
        wf_api_error("memory_set_allocator", WEFT_ENOMEM, "no memory for the allocator");
        return WEFT_ENOMEM;
    }
    return WEFT_OK;
}

static void leak_line(FILE *out, wf_ctx *me, weft_tensor t, wf_slot *s)
{
    char text[256];
    wf_describe(me, t, text, sizeof text);
    int64_t bytes = (int64_t)wf_dtype_size(s->dtype);
    for (int i = 0; i < s->rank; i++) {
        bytes *= wf_dims(s)[i];
    }
    if (!(s->flags & WF_SLOT_GRADIENT)) {
        fprintf(out, "weft: kept and never freed: %s, %lld bytes\n", text, (long long)bytes);
        return;
    }
    fprintf(out,
            "weft: a gradient%s of a tensor never freed: %s, %lld bytes; weft_set_grad(x, "
            "WEFT_NONE) drops it\n",
            s->node ? ", with its recorded history," : "", text, (long long)bytes);
}

int64_t weft_leak_report(FILE *out)
{
    wf_ctx *me = wf_ctx_get();
    int64_t n = 0;
    for (uint32_t i = 1; me && i < WF_MAX_CTX; i++) {
        wf_ctx *c = wf_ctx_at(i);
        if (!c) {
            break;
        }
        uint32_t total =
            atomic_load_explicit(&c->nchunks, memory_order_acquire) * (uint32_t)WF_CHUNK_SLOTS;
        for (uint32_t k = 1; k < total; k++) {
            uint64_t st = atomic_load_explicit(&wf_slot_at(c, k)->state, memory_order_acquire);
            if (!(st & WF_STATE_KEPT) || (st & WF_STATE_DEAD)) {
                continue;
            }
            weft_tensor t = {k, c->id, WF_STATE_SERIAL(st)};
            n++;
            if (out) {
                leak_line(out, me, t, wf_slot_at(c, k));
            }
        }
    }
    return n;
}
