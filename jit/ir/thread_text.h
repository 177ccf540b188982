/*
 * jit/ir/thread_text.h -- texts that a thread keeps for whoever asks last: a compiler's log, a report.
 *
 * They are too large for thread-local storage: a library that is opened with dlopen finds about a kilobyte of the static
 * kind, which the few pointers of the hot paths need.
 */
#ifndef JIT_IR_THREAD_TEXT_H
#define JIT_IR_THREAD_TEXT_H

#include <stddef.h>

typedef enum wf_thread_text_id {
    WF_TEXT_COMPILER,
    WF_TEXT_CUDA_REPORT,
    WF_TEXT_HOST_REPORT,
    WF_TEXT_MISSING_DEVICE,
    WF_TEXT_MISSING_CUDA,
    WF_TEXT_COUNT
} wf_thread_text_id;

enum { WF_THREAD_TEXT = 16384 };

/* The calling thread's text of WF_THREAD_TEXT bytes, "" at first, freed when the thread ends. NULL: no memory. */
char *wf_thread_text(wf_thread_text_id id);
/* The same to be read; "" without memory. */
const char *wf_thread_text_get(wf_thread_text_id id);

#endif
