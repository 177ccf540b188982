/*
 * tests/cuda/driver/core.h -- the fake driver's state, shared by its files.
 *
 * Invariants: every entry point runs under one lock; objects are found through a table of handles, so a
 * dead handle is an error and never a crash; nothing of weft but eager/cuda/api.h is used.
 */
#ifndef TESTS_CUDA_DRIVER_CORE_H
#define TESTS_CUDA_DRIVER_CORE_H

#include <stdbool.h>

#include "eager/cuda/api.h"

enum { MAX_DEVICES = 16, MAX_STREAMS = 64, MAX_RANGES = 8, MAX_PARAMS = 64, PARAM_BYTES = 8192 };
enum kind {
    NOTHING,
    CONTEXT,
    STREAM,
    EVENT,
    MODULE,
    FUNCTION,
    GRAPH,
    EXEC,
    NODE,
    MEMORY,
    HOST,
    N_KINDS
};

typedef void (*cu_host_fn)(void *arg); /* CUhostFn */

typedef struct clock_vector {
    uint64_t at[MAX_STREAMS];
} clock_vector;

/* One recording of an event: what a wait refers to. */
typedef struct record {
    int refs;
    bool done;
    int stream; /* slot of the stream it is on */
    clock_vector clock;
    double ms;
} record;

typedef struct range {
    uint64_t address;
    size_t size;
    bool write;
} range;

typedef struct image image;
typedef struct kernel {
    image *module;
    char name[240];
    int builtin, ptx;                 /* -1: the image's is not one */
    unsigned threads, fixed, dynamic; /* most of a block; shared memory declared, and allowed */
} kernel;

enum op_kind { OP_COPY, OP_SET, OP_KERNEL, OP_RECORD, OP_WAIT, OP_HOST };
typedef struct op {
    struct op *next;
    enum op_kind kind;
    int device;
    uint64_t dst, src; /* addresses of either side */
    size_t size;
    bool dst_device, src_device;
    unsigned char value;
    kernel *fn;
    unsigned grid[3], block[3], shared;
    int n_params;
    unsigned param_at[MAX_PARAMS];
    unsigned char *params;
    record *mark;
    cu_host_fn host;
    void *host_arg;
    int n_ranges;
    range ranges[MAX_RANGES];
    clock_vector clock;
    int stream;
    const char *what;
    cu_handle node;          /* in a recording that was asked for it */
    const struct op *origin; /* in what was made from a recording */
} op;

typedef struct stream {
    bool used;
    int device, slot;
    op *head, **tail;
    int64_t length;
    clock_vector clock; /* of the work queued last */
    struct graph *capture;
} stream;

typedef struct event {
    int device;
    record *last;
    struct graph *captured; /* the recording it belongs to */
} event;

typedef struct graph {
    op *head, **tail, *newest;
    int device;
    bool open;    /* still being recorded */
    bool invalid; /* something was done that a recording does not allow: it can only be ended */
} graph;

typedef struct state {
    int devices;
    size_t memory;
    int order;
    bool guard, vm;
    int version, arch; /* of the driver, of the devices: 90 is sm_90 */
    int processors;
    uint64_t random;
    stream streams[MAX_STREAMS];
    clock_vector host; /* what the host has waited for */
    cu_result broken[MAX_DEVICES];
    cu_result break_next;
    bool no_peers;                       /* no device reaches another's memory */
    bool peer[MAX_DEVICES][MAX_DEVICES]; /* [i][j]: i was allowed to reach j's */
    int retained[MAX_DEVICES];
    int64_t alive[N_KINDS];
    int64_t races;
    char first_race[512];
    char fault[512]; /* what the first launch of PTX that failed says */
    double now;
} state;
extern state fake;

/* handles.c-like part of core.c */
cu_handle handle_new(enum kind kind, void *object); /* NULL: out of memory */
void *handle_get(cu_handle h, enum kind kind);      /* NULL: not one */
void handle_drop(cu_handle h);
uint64_t next_random(void);

/* memory.c */
void memory_reset(void);
cu_result memory_alloc(int device, size_t size, uint64_t *address);
cu_result memory_free(uint64_t address);
size_t memory_used(int device);
/* Every byte may be used by the device now. */
bool memory_valid(uint64_t address, size_t size);
int memory_device(uint64_t address); /* -1: not device memory */
/* What a kernel may use around an address, device memory or pinned, to the byte that was asked for. */
bool memory_range(uint64_t address, uint64_t *low, uint64_t *high);
void memory_open(void); /* the guard is lifted, or back */
void memory_close(void);
cu_result memory_reserve(size_t size, size_t align, uint64_t *address);
cu_result memory_unreserve(uint64_t address, size_t size);
cu_result memory_create(int device, size_t size, cu_memory *handle);
cu_result memory_release(cu_memory handle);
cu_result memory_map(uint64_t address, size_t size, cu_memory handle);
cu_result memory_unmap(uint64_t address, size_t size);
cu_result memory_access(uint64_t address, size_t size, int device);
/* Of what is mapped there, may the device use all? */
bool memory_reached_by(uint64_t address, size_t size, int device);
cu_result host_alloc(size_t size, void **p);
cu_result host_free(void *p);

/* queue.c */
op *op_new(enum op_kind kind, stream *s, const char *what);
void op_free(op *o);
cu_result submit(stream *s, op *o); /* takes o */
void run_some(void);
void run_stream(stream *s); /* until it is empty */
void run_record(record *r); /* until it is done */
void run_all(int device);   /* -1: every device */
cu_result wait_event(stream *s, event *e);
cu_result record_event(stream *s, event *e);
void record_unref(record *r);
void clock_join(clock_vector *a, const clock_vector *b);

cu_result graph_begin(stream *s, graph **out);
cu_result graph_end(stream *s, graph **out);
/* s records, and was asked for what a recording cannot hold: the recording is lost. */
cu_result graph_spoil(stream *s);
cu_result graph_copy(const graph *g, graph **out);
cu_result graph_run(stream *s, const graph *g);
/* The handle of what was recorded last. */
cu_result graph_newest(graph *g, cu_handle **node);
/* Launches from now on have these arguments. */
cu_result graph_set(graph *g, const op *node, const cu_kernel_node *to);
void graph_free(graph *g);

/* race.c */
void race_check(const op *o);
void race_forget(uint64_t address, size_t size);
void race_reset(void);

/* module.c */
cu_result image_load(const void *bytes, image **out);
void image_free(image *m);
/* Is code of m queued anywhere? */
bool image_is_queued(const image *m);
cu_result image_kernel(image *m, const char *name, kernel **out);
/* Is the shape of a launch one that its kernel and a device take? */
cu_result launch_check(const op *o);
/* Copies arguments and finds out what is read and written; false: they cannot be copied. */
bool kernel_bind(op *o, void **params);
cu_result kernel_run(const op *o);
cu_result kernel_run_now(kernel *fn, const unsigned grid[3], const unsigned block[3],
                         unsigned shared, void **params);

#endif
