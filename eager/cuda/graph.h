/*
 * eager/cuda/graph.h -- a captured graph, shared by graph.c and renew.c.
 */
#ifndef EAGER_CUDA_GRAPH_H
#define EAGER_CUDA_GRAPH_H

#include "eager/cuda/stream.h"

typedef struct wf_cuda_graph_part {
    wf_cuda_block *block;
    bool write, inside; /* made during the capture: not held */
} wf_cuda_graph_part;

/* A call between marks of the capture, which is made again when launches get other numbers. */
typedef struct wf_cuda_mark {
    uint8_t kind;     /* renew.c */
    const void *what; /* a kernel; memory that is written */
    void *address;    /* of memory, or of an error word, that was handed out */
    cu_handle node;   /* of a kernel */
    size_t size;      /* of memory; a kernel's shared memory */
} wf_cuda_mark;

struct wf_cuda_graph {
    wf_cuda_device *device;
    cu_handle exec;
    cu_handle recorded;     /* kept where kernels are marked: their nodes are its */
    int slot;               /* of the device's graph_pool */
    wf_cuda_stream *before; /* the thread's stream while it records */
    uint32_t before_serial;
    wf_cuda_stream *last; /* the last launch; NULL: none yet */
    uint64_t last_op;
    wf_cuda_graph_part *parts;
    int n, room;
    wf_cuda_mark *marks;
    int n_marks, mark_room, at; /* at: the one whose call comes next, while they are made again */
    bool marking;
    bool checks;   /* some kernel has an error word */
    wf_why failed; /* the first thing that was refused; code 0: none */
};

/* -- calls between marks (renew.c) ------------------------------------------------------------------------ */

/* The graph whose marked calls this thread makes again; NULL: it does what it calls. */
extern _Thread_local wf_cuda_graph *wf_cuda_renewed;

/* While a capture's calls are marked: notes one that was recorded. 0 or a status. */
int wf_cuda_mark_kernel(wf_cuda_stream *s, const wf_cuda_fn *f, unsigned shared, wf_why *why);
int wf_cuda_mark_memory(wf_cuda_graph *g, void *address, size_t size, wf_why *why);
int wf_cuda_mark_word(wf_cuda_graph *g, void *address, wf_why *why);
int wf_cuda_mark_write(wf_cuda_graph *g, const void *address, size_t size, wf_why *why);
/* The same calls made again: nothing is done but that the kernel takes these arguments. NULL, or a status: it is not the call
 * that was recorded. */
int wf_cuda_renew_kernel(const wf_cuda_fn *f, cu_handle function, const unsigned grid[3],
                         const unsigned block[3], unsigned shared, void **params, wf_why *why);
wf_cuda_block *wf_cuda_renew_memory(int ordinal, size_t size, wf_why *why);
int wf_cuda_renew_word(void **address, wf_why *why);
int wf_cuda_renew_write(const void *address, size_t size, wf_why *why);

static inline bool wf_cuda_marking(const wf_cuda_stream *s)
{
    const wf_cuda_graph *g = atomic_load_explicit(&s->capture, memory_order_relaxed);
    return g && g->marking;
}

#endif
