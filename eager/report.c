/*
 * eager/report.c -- the text of reports: see eager/report.h.
 */
#include "eager/report.h"

#include <stdarg.h>
#include <stdio.h>

#include "jit/ir/plain_numbers.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

wf_report wf_report_new(wf_thread_text_id id)
{
    wf_report r = {wf_thread_text(id), 0};
    if (r.text) {
        r.text[0] = '\0';
    }
    return r;
}

void wf_report_put(wf_report *r, const char *fmt, ...)
{
    va_list ap;
    if (!r->text) {
        return;
    }
    va_start(ap, fmt);
    int n = vsnprintf(r->text + r->at, WF_THREAD_TEXT - r->at, fmt, ap);
    va_end(ap);
    r->at += n > 0 ? (size_t)n : 0;
    r->at = r->at < WF_THREAD_TEXT ? r->at : WF_THREAD_TEXT - 1;
}

const char *wf_size_text(int64_t bytes)
{
    static _Thread_local char buf[8][24];
    static _Thread_local unsigned turn;
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 1024 && u < 4) {
        v /= 1024;
        u++;
    }
    char *p = buf[turn++ % 8];
    const wf_plain_numbers was = wf_plain_numbers_begin();
    snprintf(p, sizeof buf[0], u ? "%.2f %s" : "%.0f %s", v, units[u]);
    wf_plain_numbers_end(was);
    return p;
}

void wf_report_tensors(wf_report *r, const wf_holder *top, int n)
{
    if (n > 0) {
        wf_report_put(r, "largest tensors\n");
    }
    for (int i = 0; i < n; i++) {
        wf_report_put(r, "  %12s  %s\n", wf_size_text(top[i].bytes), top[i].what);
    }
}
