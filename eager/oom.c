/*
 * eager/oom.c -- host memory that could not be had: who holds it, and what to do.
 *
 * Made where an error of that kind is recorded (eager/error.c), once for each failed request. Seen are the tensors of
 * this thread's scopes and the kept ones of all threads; what only the tape or a plan holds has no handle: it is the
 * difference between what is in use and the tensors that are listed.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/report.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { TOP = 10 };

const char *weft_oom_report(void)
{
    return wf_thread_text_get(WF_TEXT_HOST_REPORT);
}

static const char *remedy(const weft_memory_stats *m, int64_t wanted, int64_t cap)
{
    if (cap > 0 && m->live_bytes + wanted > cap) {
        return "raise WEFT_ALLOC_CAP or weft_memory_set_cap, or hold less";
    }
    if (wf_alloc_has_source()) {
        return "the allocator that the program set gave none (weft_memory_set_allocator): let it "
               "give more, or hold less";
    }
    if (m->reserved_bytes - m->live_bytes >= wanted) {
        return "enough is cached, but in pieces: make the large tensors first, or "
               "weft_memory_trim()";
    }
    return "make the batch smaller, give loops a scope, free what is kept (weft_leak_report lists "
           "it), evaluate inside "
           "weft_no_grad_begin, or use a smaller type (f16, bf16)";
}

void wf_oom_report(size_t n, char *hint, size_t size)
{
    weft_memory_stats m;
    wf_holder top[TOP];
    wf_report r = wf_report_new(WF_TEXT_HOST_REPORT);
    int64_t wanted = n > INT64_MAX ? INT64_MAX : (int64_t)n;
    int64_t page = sysconf(_SC_PAGESIZE), unused = sysconf(_SC_AVPHYS_PAGES) * page;
    weft_memory_get_stats(&m);
    const int64_t cap = m.cap_bytes;
    const char *what = remedy(&m, wanted, cap);
    wf_report_put(&r, "out of memory on cpu\n");
    wf_report_put(&r, "requested            %s\n", wf_size_text(wanted));
    wf_report_put(&r, "unused by the system %s of %s\n", wf_size_text(unused),
                  wf_size_text(sysconf(_SC_PHYS_PAGES) * page));
    wf_report_put(&r, "held by weft         %s: %s in use, %s cached\n",
                  wf_size_text(m.reserved_bytes), wf_size_text(m.live_bytes),
                  wf_size_text(m.reserved_bytes - m.live_bytes));
    wf_report_put(&r, "tensors              %lld, %lld of them kept\n", (long long)m.live_tensors,
                  (long long)m.kept_tensors);
    if (cap > 0) {
        wf_report_put(&r, "cap                  %s\n", wf_size_text(cap));
    }
    wf_report_tensors(&r, top, wf_memory_holders(WF_DEVICE_HOST, top, TOP));
    wf_report_put(&r, "what to do: %s\n", what);
    snprintf(hint, size,
             "; %s asked for, weft holds %s (%s in use): %s; weft_oom_report() lists the largest "
             "tensors",
             wf_size_text(wanted), wf_size_text(m.reserved_bytes), wf_size_text(m.live_bytes),
             what);
}
