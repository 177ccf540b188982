/*
 * weft/profile.h -- what a program spends its time on, as a timeline.
 *
 *     weft_profile_begin(.path = "trace.json");       or WEFT_PROFILE=trace.json in the environment
 *     ... ops, traced calls, training steps ...
 *     weft_profile_end();
 *
 * Open the file in Perfetto (ui.perfetto.dev) or chrome://tracing: one track a thread, spans inside one another, and
 * a counter of tensor memory. Recorded are ops that run at once (operands, results, bytes, file:line), traced calls
 * with their recording, planning and running, every launch of a plan (fused kernels by name, with the ops in them),
 * compilations on the thread that compiles, backward passes, what workers of the pool do, and ranges of your own.
 * Work on a device has tracks of its own, one a stream; its times may come in later than those of the host.
 *
 * The file is valid JSON at every moment after weft_profile_begin: events are appended a batch at a time, so a program
 * that is killed loses at most the last batch of each thread (64 KiB of memory a thread). At exit the rest is written.
 * A path that ends in ".gz" makes it a gzip file, as whole at every moment, which the viewers open too: 20 to 35 bytes an event of
 * an op, of which 50 MB hold the million that is the default, and not 110 to 170.
 *
 * Size is bounded: after max_events events, and those that would make the file larger than max_bytes, further ones are
 * counted and not kept; the trace says how many. When no profile is being taken an op pays one predictable branch.
 */
#ifndef WEFT_PROFILE_H
#define WEFT_PROFILE_H

#include "weft/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_profile_kind {
    WEFT_PROFILE_OP,     /* an op that ran at once; detail: operands -> results */
    WEFT_PROFILE_CALL,   /* a traced call, from begin to end */
    WEFT_PROFILE_RECORD, /* in it: the function recorded */
    WEFT_PROFILE_PLAN,   /* in it: a plan built */
    WEFT_PROFILE_RUN,    /* a plan run */
    WEFT_PROFILE_KERNEL, /* in it: a launch; detail: what it computes; bytes: counted from the IR */
    WEFT_PROFILE_COMPILE,  /* a kernel made native; detail: how that went */
    WEFT_PROFILE_BACKWARD, /* a backward pass */
    WEFT_PROFILE_WORKER,   /* a pool thread's share of a job; named as what asked for it */
    WEFT_PROFILE_RANGE,    /* weft_profile_range_begin to _end */
    WEFT_PROFILE_MARK,     /* a moment: a read that broke a trace */
    WEFT_PROFILE_MEMORY,   /* a moment: bytes of tensor storage in use */
    WEFT_PROFILE_LAUNCH,   /* work handed to a device */
    WEFT_PROFILE_DEVICE,   /* that work, on a stream of the device */
    WEFT_PROFILE_KIND_COUNT
} weft_profile_kind;

/* Strings live as long as the call that hands the event out. */
typedef struct weft_profile_event {
    weft_profile_kind kind;
    const char *name;   /* the op, kernel, function or range */
    const char *detail; /* "" for none */
    const char *site;   /* file:line, "" where it is not known */
    int64_t start_ns;   /* CLOCK_MONOTONIC */
    int64_t duration_ns;
    int64_t bytes; /* read and written; in use (MEMORY); 0 where it is not known */
    int64_t thread;
    const char *thread_name;
    int device, stream; /* -1: the host */
    uint64_t flow;      /* not 0: the same as that of the event this one caused, or was caused by */
} weft_profile_event;

typedef struct weft_profile_args {
    const char *
        path; /* Chrome trace events; compressed if it ends in ".gz"; "%p" in it becomes the process number; NULL: no file */
    int64_t max_events; /* default 1000000 */
    int64_t
        max_bytes; /* of the file; default 50000000, or 50 for each of max_events if that is more */
    /* Receives every event instead of, or beside, the file: in batches, from the thread whose buffer is full and from
     * weft_profile_flush and _end. Never two calls at once; it must not call weft. */
    void (*event)(void *user, const weft_profile_event *e);
    void *user;
    int end_;
} weft_profile_args;
/* Starts a profile of the whole process, all threads: `weft_profile_begin(.path = "trace.json")`. WEFT_EIO: the file
 * cannot be written. WEFT_EINVALID: one is being taken already; neither path nor event. */
WEFT_API weft_status weft_profile_begin(const weft_profile_args *args);
/* Hands out what was recorded so far; WEFT_EINVALID if no profile is being taken. */
WEFT_API weft_status weft_profile_flush(void);
/* Ends the profile; spans that are open are not in it. WEFT_EIO: something could not be written. */
WEFT_API weft_status weft_profile_end(void);

/* A span of the calling thread, around whatever it does: a step, an epoch, loading data. The name is copied (63 bytes
 * at most). Ranges nest, 32 deep; without a profile, and beyond that depth, nothing is recorded. */
WEFT_API void weft_profile_range_begin(const char *name);
WEFT_API void weft_profile_range_end(void);

typedef struct weft_profile_stats {
    bool active;
    int64_t events; /* of this profile, or the last one */
    int64_t
        dropped; /* that came after max_events or max_bytes, found no memory, or could not be written */
} weft_profile_stats;
WEFT_API void weft_profile_get_stats(weft_profile_stats *out);
/* "op", "kernel", ...: the category of a kind in the file. Never NULL. */
WEFT_API const char *weft_profile_kind_name(weft_profile_kind kind);

/* -- kernels ---------------------------------------------------------------------------------------------
 * Compiled kernels of fused groups, as long as the cache has them (WEFT_JIT_MEMORY). */
typedef struct weft_kernel_info {
    char name
        [64]; /* its rows, and a hash of all that its code depends on: as in timelines, perf and gdb */
    char reason[224];    /* why it stays on the tile interpreter; "" if it does not */
    const char *backend; /* what makes it native: "cpu" */
    bool pending;        /* not compiled yet; it has no name so far */
    bool native;
    bool from_disk;   /* loaded, not compiled */
    int64_t hash;     /* by which the cache finds it */
    int64_t hits;     /* plans that found it there, after the one that asked first */
    int64_t bytes;    /* of memory that its code takes */
    int64_t build_ns; /* time that compiling or loading took */
    int64_t runs;     /* launches while a profile was being taken */
    int64_t run_ns;   /* time of those launches */
} weft_kernel_info;
/* Fills at most n entries, the last used one first; returns how many there are. */
WEFT_API int weft_kernels(weft_kernel_info *out, int n);
/* Writes what a kernel of this name computes, and the text that the compiler gets. WEFT_EINVALID: there is none. */
WEFT_API weft_status weft_kernel_print(const char *name, FILE *out);

#ifdef __cplusplus
}
inline weft_status weft_profile_begin(const char *path, int64_t max_events = 0,
                                      int64_t max_bytes = 0,
                                      void (*event)(void *, const weft_profile_event *) = nullptr,
                                      void *user = nullptr)
{
    weft_profile_args a = {path, max_events, max_bytes, event, user, 0};
    return weft_profile_begin(&a);
}
WEFT_BY_STRUCT_(weft_status, weft_profile_begin, weft_profile_args)
#endif

#define weft_profile_begin(...)                                                                    \
    WEFT_F_((weft_profile_begin)WEFT_ARGS_(weft_profile_args, __VA_ARGS__))
#ifndef WEFT_NO_SITES
#define weft_profile_flush() WEFT_F_((weft_profile_flush)())
#define weft_profile_end() WEFT_F_((weft_profile_end)())
#endif

#endif
