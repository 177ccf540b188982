/*
 * eager/cuda/device.h -- a device's state, shared by the files of the runtime.
 *
 * Locks: `lock` of a device guards its streams' books, its memory and its error words. It may be held
 * over driver calls that only queue; never over one that waits.
 *
 * How streams are ordered. An op calls wf_cuda_use for each operand and then queues its work, so a use
 * that follows work of the same thread starts a new op; memory remembers the op that used it. Threads that
 * share a stream prepare their ops side by side: which pieces of work are an op's is known by the thread that
 * queues them, and the stream remembers of each op its last piece. An event covers an op if it covers that.
 * Whoever asks about an op knows that all of it was queued (it was told so by the op's thread).
 */
#ifndef EAGER_CUDA_DEVICE_H
#define EAGER_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "eager/cuda/cache.h"
#include "eager/cuda/driver.h"
#include "eager/cuda/runtime.h"

enum {
    WF_CUDA_DEVICES = 16,
    WF_CUDA_STREAMS = 64,
    WF_CUDA_GRAPHS = 256, /* memory pools of captured graphs: keys from WF_CUDA_STREAMS on */
    WF_CUDA_RING = 16,
    WF_CUDA_OPS = 64, /* the last ops of a stream whose work is known by number */
    WF_CUDA_LABEL = 120
};

typedef struct wf_cuda_device wf_cuda_device;

/* A recorded event. */
typedef struct wf_cuda_point {
    cu_handle event; /* NULL: this entry is not in use yet */
    uint64_t work;   /* pieces of work queued before it */
} wf_cuda_point;

typedef struct wf_cuda_op {
    uint64_t op, last; /* its number, its last piece of work (0: none) */
} wf_cuda_op;

typedef struct wf_cuda_stream {
    wf_cuda_device *device;
    cu_handle handle;
    int slot;
    bool in_use;                 /* the default stream, or somebody's */
    _Atomic uint32_t serial;     /* of its owner: grows when it changes hands */
    uint64_t work;               /* pieces queued so far */
    uint64_t op;                 /* the newest op */
    wf_cuda_op ops[WF_CUDA_OPS]; /* op k at k % WF_CUDA_OPS */
    uint64_t older;              /* no op that is not there any more has work beyond this */
    wf_cuda_point ring[WF_CUDA_RING];
    unsigned ring_next;
    wf_cuda_graph *_Atomic capture; /* what is queued is recorded into it; NULL: it is done */
    uint64_t seen[WF_CUDA_STREAMS]; /* work of the others that this one's next work is behind */
} wf_cuda_stream;

struct wf_cuda_device {
    int ordinal;
    bool usable;
    char missing[320];
    cu_device id;
    cu_handle context;
    wf_cuda_info info;
    pthread_mutex_t lock;
    wf_cuda_stream streams[WF_CUDA_STREAMS]; /* slot 0: the default one; made when first needed */
    int n_streams;
    _Atomic bool has_default;        /* slot 0 is made */
    uint32_t generation;             /* grows when it is closed */
    wf_cache *cache;                 /* memory.c */
    int64_t cap;                     /* of the cache, 0: none */
    wf_heap_source source;           /* gives segments in place of the driver; zeros: none */
    bool graph_pool[WF_CUDA_GRAPHS]; /* in use by a graph that lives */
    int graph_live[WF_CUDA_GRAPHS];  /* blocks of the pool that live */
    struct wf_cuda_stages *stages;   /* stage.c */
    struct wf_cuda_words *words;     /* words.c */
    struct wf_cuda_blas *blas;       /* blaslt.c */
    struct wf_cuda_dnn *dnn;         /* dnn.c */
    bool dnn_failed;
    bool blas_failed; /* the library does not start here */
    const char
        *_Atomic last; /* the launch that was queued last, or NULL: a literal, or a kernel's name */
    pthread_mutex_t
        label_lock; /* of the next two, and of names that may be `last`; the last lock taken */
    char kept[WF_CUDA_LABEL]; /* a name whose kernel is gone */
    bool broken_reported;
    bool maps;           /* its memory is mapped piece by piece */
    uint32_t reached_by; /* bit i: device i may reach what is mapped, by peer copies */
    _Atomic uint8_t
        peer[WF_CUDA_DEVICES]; /* how copies from that device get here: peer.c; 0: not asked yet */
    _Atomic int modules;       /* alive */
    _Atomic int broken;        /* the sticky error, 0: none */
};

/* The opened driver; only after a device was opened. */
extern const wf_cuda_driver *wf_cu;

/* The device, opened and current on this thread; NULL: why is filled (also when it broke earlier). */
wf_cuda_device *wf_cuda_enter(int ordinal, wf_why *why);
/* The same, but not current: for what is in the books alone, as memory and its uses mostly are. What then calls the driver
 * after all makes it current there. */
wf_cuda_device *wf_cuda_reach(int ordinal, wf_why *why);
int wf_cuda_make_current(wf_cuda_device *d, wf_why *why);
/* The device without making it current; NULL: it is not usable. For giving things back. */
wf_cuda_device *wf_cuda_peek(int ordinal);
/* CU_OK: 0. Else fills why with the call and the driver's word for it, and remembers sticky errors. */
int wf_cuda_check(wf_cuda_device *d, cu_result r, const char *call, wf_why *why);

/* What a function returns whose callee has filled why, if there is one. */
static inline int wf_cuda_code(const wf_why *why)
{
    return why && why->code ? why->code : 9; /* WEFT_EUNSUPPORTED */
}

extern wf_cuda_counters wf_cuda_count_of;
#define WF_CUDA_COUNT(field, n) __atomic_fetch_add(&wf_cuda_count_of.field, (n), __ATOMIC_RELAXED)

/* -- streams (the device's lock is not held unless said) --------------------------------------------- */

/* This thread has where to remember its streams and ops. */
int wf_cuda_thread_open(wf_why *why);
/* This thread's current stream of d, which need not be current; NULL: it cannot be made. */
wf_cuda_stream *wf_cuda_current(wf_cuda_device *d, wf_why *why);
/* A piece of work called `label` was queued on s: a literal, or a kernel's name. */
void wf_cuda_queued(wf_cuda_stream *s, const char *label);
/* The same of a launch, which may be what breaks the device: copies of weft's memory are not. */
void wf_cuda_launched(wf_cuda_stream *s, const char *label);
/* Lock held: the last piece of work of op `op` of s and of those before it, all of which is queued, or a later one. */
uint64_t wf_cuda_op_last(const wf_cuda_stream *s, uint64_t op);
/* Lock held: s's next work comes behind op `op` of `other`. Their device need not be current. */
int wf_cuda_order(wf_cuda_stream *s, wf_cuda_stream *other, uint64_t op, wf_why *why);
/* Waits for everything on s and looks at its error words. */
int wf_cuda_stream_wait(wf_cuda_stream *s, wf_why *why);

/* -- giving back, by wf_cuda_close: nothing is under way and no other thread is inside ------------------ */

void wf_cuda_streams_close(wf_cuda_device *d);
void wf_cuda_stages_close(wf_cuda_device *d);
void wf_cuda_words_close(wf_cuda_device *d);
void wf_cuda_blas_close(wf_cuda_device *d);
void wf_cuda_dnn_close(wf_cuda_device *d);

/* -- memory ------------------------------------------------------------------------------------------- */

/* Lock held. What the device's cache stands on (vm.c). */
wf_cache *wf_cuda_cache_new(wf_cuda_device *d);
/* Lock of d held: its memory, mapped or to be mapped, may be read by the other device. False: the driver refuses. */
bool wf_cuda_let_reach(wf_cuda_device *d, const wf_cuda_device *by);
/* The report of memory that could not be had; fills why. Lock not held. */
int wf_cuda_report_oom(wf_cuda_device *d, size_t nbytes, int cache_code, wf_why *why);

/* -- captured graphs: the lock is held --------------------------------------------------------------------- */

/* A block takes part in what g records; 0 or a status. */
int wf_cuda_graph_use(wf_cuda_graph *g, wf_cuda_block *b, bool write, wf_why *why);
int wf_cuda_graph_key(const wf_cuda_graph *g); /* of its memory pool */
/* Refuses what cannot be recorded: fills why, and g fails with it. */
int wf_cuda_graph_refuse(wf_cuda_graph *g, const char *what, wf_why *why);
/* One more holder of b. */
void wf_cuda_retain(wf_cuda_block *b);
/* b is freed: its graph, if it is an output of one, forgets it. */
void wf_cuda_graph_forget(wf_cuda_block *b);
/* What a graph notes in a block. */
typedef struct wf_cuda_part {
    wf_cuda_graph *graph; /* made during its capture; NULL: ordinary, or the graph is gone */
    int index;            /* where in the parts of the graph that asked last: a hint */
} wf_cuda_part;
wf_cuda_part *wf_cuda_block_part(wf_cuda_block *b);
/* Stands for memory that a graph has; without the lock. */
wf_cuda_block *wf_cuda_block_echo(int ordinal, void *address, size_t size, wf_why *why);
/* Words handed out to the graph stay with it until this. */
void wf_cuda_words_release(wf_cuda_device *d, const wf_cuda_graph *g, wf_cuda_stream *last);

/* -- error words -------------------------------------------------------------------------------------- */

/* Lock held: this thread begins another op; all that may set the words of the one before is queued. */
void wf_cuda_words_close_op(wf_cuda_device *d);
/* Lock held: did s's op of this number meet a bad index, as far as waits have seen? Which row's it was, and where. */
bool wf_cuda_words_failed(wf_cuda_device *d, const wf_cuda_stream *s, uint64_t number, wf_op *op,
                          const char **site);
/* Lock held: op of s, this thread's, reads what op `number` of `from` wrote. If that one has a word, and the public call which
 * it is of is not over, then both are wrong if one is: of scatter_add_ the copy into the target, of nll_loss the mean. */
void wf_cuda_words_follow(const wf_cuda_stream *from, uint64_t number, const wf_cuda_stream *s,
                          uint64_t op);
/* Lock held: g, which has words, is about to be launched on s as op `op`, or (queued) has been. */
void wf_cuda_words_launch(wf_cuda_device *d, const wf_cuda_graph *g, const wf_cuda_stream *s,
                          uint64_t op, bool queued);
/* Some op of some device did. */
extern _Atomic bool wf_cuda_any_failed;
/* After a wait for s that began when s had queued `work` pieces (NULL: for something else): an error that kernels
 * of any stream found, once. why NULL: it is kept for the next wait. */
int wf_cuda_words_check(wf_cuda_device *d, wf_cuda_stream *s, uint64_t work, wf_why *why);

#endif
