/*
 * eager/report.h -- reports of memory that could not be had: text in a thread's buffer, sizes, the largest tensors.
 *
 * Shared by the host's allocator (eager/oom.c) and the devices' (eager/cuda/report.c). Nothing here takes memory from
 * weft's allocator.
 */
#ifndef EAGER_REPORT_H
#define EAGER_REPORT_H

#include <stdio.h>

#include <stddef.h>
#include <stdint.h>

#include "jit/ir/op.h"
#include "jit/ir/thread_text.h"

/* A text of the calling thread that grows; what does not fit is cut. */
typedef struct wf_report {
    char *text; /* WF_THREAD_TEXT bytes; NULL: no memory, and nothing is written */
    size_t at;
} wf_report;
wf_report wf_report_new(wf_thread_text_id id);
void wf_report_put(wf_report *r, const char *fmt, ...) WF_PRINTF(2, 3);

/* "1.50 GiB": one of eight buffers of the thread by turns. */
const char *wf_size_text(int64_t bytes);

/* One holder of memory. */
typedef struct wf_holder {
    int64_t bytes;
    char what[120]; /* f32[1024,1024] 'weight' (made at model.c:17) */
} wf_holder;
/* Fills top[n], n <= 16, with the largest tensors on a device (eager/device.h), largest first; returns how many. Seen are
 * this thread's and kept ones. */
int wf_memory_holders(int device, wf_holder *top, int n);
void wf_report_tensors(wf_report *r, const wf_holder *top, int n);

/* Host memory of n bytes could not be had: writes the report that weft_oom_report returns, and the end of an error's
 * sentence to hint. */
void wf_oom_report(size_t n, char *hint, size_t size);

/* What eager/ knows for weft_doctor, one fact a line. */
void wf_doctor(FILE *out);

/* One fact of weft_doctor: its name, what it is, and how to change it ("": nothing to say). */
void wf_doctor_fact(FILE *out, const char *name, const char *value, const char *remark);

#endif
