/*
 * eager/cuda/report.c -- memory in numbers, and the report of memory that could not be had.
 */
#include <string.h>

#include "eager/cuda/device.h"
#include "eager/report.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { TOP = 10 };

static _Atomic(wf_cuda_live_fn) live = wf_cuda_live_tensors;

void wf_cuda_set_live(wf_cuda_live_fn fn)
{
    atomic_store(&live, fn);
}

const char *wf_cuda_oom_text(void)
{
    return wf_thread_text_get(WF_TEXT_CUDA_REPORT);
}

void wf_cuda_get_memory(int ordinal, wf_cuda_memory *out)
{
    memset(out, 0, sizeof *out);
    wf_cuda_device *d = wf_cuda_peek(ordinal);
    if (!d) {
        return;
    }
    wf_cache_stats s = {0};
    pthread_mutex_lock(&d->lock);
    if (d->cache) {
        wf_cache_get_stats(d->cache, &s);
    }
    out->cap = d->cap;
    pthread_mutex_unlock(&d->lock);
    out->live_bytes = s.live_bytes;
    out->peak_bytes = s.peak_bytes;
    out->asked_bytes = s.asked_bytes;
    out->reserved_bytes = s.reserved_bytes;
    out->peak_reserved_bytes = s.peak_reserved_bytes;
    out->live_blocks = s.live_chunks;
    out->allocs = s.allocs;
    out->frees = s.frees;
    out->driver_allocs = s.driver_allocs;
    out->driver_frees = s.driver_frees;
    out->retries = s.retries;
    out->failures = s.failures;
    out->orders = s.orders;
    out->largest_free = s.largest_free;
}

int wf_cuda_live_tensors(int ordinal, wf_cuda_live *top, int n)
{
    return wf_memory_holders(1 + ordinal, top, n);
}

static void put_tensors(wf_report *r, int ordinal)
{
    wf_cuda_live_fn fn = atomic_load(&live);
    wf_cuda_live top[TOP];
    wf_report_tensors(r, top, fn ? fn(ordinal, top, TOP) : 0);
}

/* capped: the driver was not asked. It gives more at a time than was requested, so sums of bytes do not tell. own: nor is it asked else. */
static const char *remedy(const wf_cuda_memory *m, int64_t wanted, bool capped, bool own)
{
    int64_t cached = m->reserved_bytes - m->live_bytes;
    if (capped) {
        return "raise the cap (weft_cuda_set_cap, WEFT_CUDA_CAP), or hold less";
    }
    if (own) {
        return "the allocator that the program set gave none (weft_cuda_set_allocator): let it "
               "give more, or hold less";
    }
    if (cached >= wanted) {
        return "enough is cached, but in pieces or for other streams: make the large tensors "
               "first, "
               "or fewer streams";
    }
    return "make the batch smaller, free what is not needed, or use a smaller type (f16, bf16)";
}

int wf_cuda_report_oom(wf_cuda_device *d, size_t nbytes, int cache_code, wf_why *why)
{
    if (cache_code == WF_CACHE_NO_HOST_MEMORY) {
        return wf_fail(why, WEFT_ENOMEM, "no host memory for a block on cuda:%d", d->ordinal);
    }
    wf_cuda_memory m;
    size_t unused = 0, total = (size_t)d->info.memory_bytes;
    wf_report r = wf_report_new(WF_TEXT_CUDA_REPORT);
    wf_cuda_get_memory(d->ordinal, &m);
    wf_cu->context_set(d->context);
    wf_cu->memory_info(&unused, &total);
    int64_t cached = m.reserved_bytes - m.live_bytes;
    int64_t others = (int64_t)(total - unused) - m.reserved_bytes;
    double torn = cached > 0 ? 100.0 * (1.0 - (double)m.largest_free / (double)cached) : 0;
    const bool capped = cache_code == WF_CACHE_CAP;
    const char *what = remedy(&m, (int64_t)nbytes, capped, d->source.allocate != NULL);
    wf_report_put(&r, "out of memory on cuda:%d (%s)\n", d->ordinal, d->info.name);
    wf_report_put(&r, "requested            %s\n", wf_size_text((int64_t)nbytes));
    wf_report_put(&r, "free on the device   %s of %s\n", wf_size_text((int64_t)unused),
                  wf_size_text((int64_t)total));
    wf_report_put(&r, "held by weft         %s: %s in use, %s cached\n",
                  wf_size_text(m.reserved_bytes), wf_size_text(m.live_bytes), wf_size_text(cached));
    wf_report_put(&r, "largest cached       %s (%.0f %% of what is cached is in smaller pieces)\n",
                  wf_size_text(m.largest_free), torn);
    wf_report_put(&r, "held by others       %s\n", wf_size_text(others > 0 ? others : 0));
    if (m.cap) {
        wf_report_put(&r, "cap                  %s\n", wf_size_text(m.cap));
    }
    put_tensors(&r, d->ordinal);
    wf_report_put(&r, "what to do: %s\n", what);
    wf_fail(why, WEFT_ENOMEM,
            "cuda:%d has no %s left%s%s: %s of %s are free, weft holds %s (%s in use, largest "
            "cached block %s)",
            d->ordinal, wf_size_text((int64_t)nbytes), capped ? " below its cap of " : "",
            capped ? wf_size_text(m.cap) : "", wf_size_text((int64_t)unused),
            wf_size_text((int64_t)total), wf_size_text(m.reserved_bytes),
            wf_size_text(m.live_bytes), wf_size_text(m.largest_free));
    wf_hint(why, "%s; weft_cuda_oom_report() lists the largest tensors", what);
    return WEFT_ENOMEM;
}

void wf_cuda_reset_peak(int ordinal)
{
    wf_cuda_device *d = wf_cuda_peek(ordinal);
    if (d) {
        pthread_mutex_lock(&d->lock);
        if (d->cache) {
            wf_cache_reset_peak(d->cache);
        }
        pthread_mutex_unlock(&d->lock);
    }
}
