/*
 * eager/profile.h -- events of weft/profile.h as the library makes them.
 *
 * A place that can be profiled asks wf_prof_start once; 0 says that nobody wants to know, and is all it costs.
 * Buffers are per thread and written without a lock; a full one is handed out by its own thread.
 *
 * Invariants: events are recorded when they end, whole, so that a track never has an end without a beginning; what
 * belongs to a thread lies in it, so spans of a track nest. Recording never fails: what cannot be kept is counted.
 */
#ifndef EAGER_PROFILE_H
#define EAGER_PROFILE_H

#include <stdatomic.h>

#include "jit/ir/kir.h"
#include "weft/profile.h"

extern _Atomic bool wf_prof_on;

/* Is a profile being taken? */
static inline bool wf_prof_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&wf_prof_on, memory_order_relaxed), 0);
}

int64_t wf_prof_clock(void);
/* The time now; 0 if no profile is being taken. */
static inline int64_t wf_prof_start(void)
{
    return wf_prof_is_on() ? wf_prof_clock() : 0;
}

typedef struct wf_prof_span {
    weft_profile_kind kind;
    const char *name, *detail; /* copied; NULL: none */
    const char *site;          /* static, or NULL */
    int64_t bytes;
    int64_t end;   /* 0: now */
    uint64_t flow; /* of a launch: the number of the device event it causes */
} wf_prof_span;

/* Ends what began at `start`, which is not 0. */
void wf_prof_end(int64_t start, const wf_prof_span *s);
/* The same of an op. Its site follows with wf_prof_site. */
void wf_prof_op(int64_t start, wf_op op, bool inplace, int nsrc, const weft_tensor *src, int ndst,
                const weft_tensor *dst);
/* t was made, or written, by a call at this site. */
void wf_prof_site(const char *site, weft_tensor t);
/* Something happened now. */
void wf_prof_mark(const char *name, const char *detail, const char *site);
/* Notes tensor memory in use, if it has changed by more than a little. */
void wf_prof_memory(void);

/* Work of a device, whose times (on wf_prof_clock) have become known. `stream` of device 0 .. 1023 is a track. */
void wf_prof_device(int device, int stream, int64_t start, int64_t ns, const wf_prof_span *s);
/* A number for wf_prof_span.flow. */
uint64_t wf_prof_new_flow(void);
/* Called before events are handed out by weft_profile_flush, _end and at exit: a back end turns event timers that
 * have finished into wf_prof_device. One per process; NULL: none. */
void wf_prof_set_collector(void (*collect)(void));

/* What the calling thread is doing, for the share that pool workers have in it. Static, or living longer. */
extern _Thread_local const char *wf_prof_label __attribute__((tls_model("initial-exec")));

/* Where the ops come from that this thread runs without a site of their own: in a backward pass, the call whose
 * gradient they compute. */
extern _Thread_local const char *wf_prof_default_site __attribute__((tls_model("initial-exec")));

/* Begins the profile that WEFT_PROFILE asks for; the first call only. */
void wf_prof_from_env(void);

/* eager/profile_write.c: a string of JSON, quotes included (what is not UTF-8 is replaced). */
void wf_prof_put_string(wf_text *t, const char *string);
/* Text as it is, a number, at p, where there is room (20 bytes of a number). Where it ends. */
char *wf_prof_put_text(char *p, const char *s);
char *wf_prof_put_int(char *p, int64_t v);

/* eager/profile_write.c: the file. NULL with *why (static text). */
typedef struct wf_prof_file wf_prof_file;
/* No larger than max bytes, but for its first lines and its end. */
wf_prof_file *wf_prof_file_open(const char *path, int64_t max, const char **why);
/* false: there is no room for it; nor will there be for others. */
bool wf_prof_file_put(wf_prof_file *f, const weft_profile_event *e);
/* Writes what was put, and the end of the file with this number of dropped events. false: it could not. */
bool wf_prof_file_sync(wf_prof_file *f, int64_t events, int64_t dropped);
void wf_prof_file_close(wf_prof_file *f);

#endif
