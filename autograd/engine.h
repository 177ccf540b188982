/*
 * autograd/engine.h -- a running backward, for the files that are its engine: backward.c walks the nodes, parts.c makes
 * one gradient of those that reach parts of a value.
 */
#ifndef AUTOGRAD_ENGINE_H
#define AUTOGRAD_ENGINE_H

#include "autograd/backward.h"
#include "autograd/tape.h"

/* The gradient of elements [start, stop) along an axis of a node's value. */
typedef struct wf_part {
    wf_ref node;
    int64_t axis, start, stop;
    weft_tensor g;
} wf_part;

/* A node that waits, and what it is sorted by. */
typedef struct wf_queued {
    uint64_t key;
    wf_ref ref;
} wf_queued;

typedef struct wf_engine {
    wf_ctx *c;
    wf_tape *t;
    wf_queued *heap;
    uint32_t n, cap;
    weft_scope scope;
    bool retain, create;
    const wf_grad_capture *cap_in;
    int n_cap;
    wf_ref current;          /* the node being processed: not in the heap */
    struct reached *reached; /* nodes that grad_of looked at, each held */
    size_t n_reached;
    wf_part *part; /* in the order they came in */
    uint32_t n_part, cap_part;
    struct wf_engine *outer;
} wf_engine;

/* Puts r in the queue if it is not there. */
int wf_engine_queue(wf_engine *e, wf_ref r);
/* *to += g, where g is owned by the caller's scope; gives it to the engine's. */
int wf_engine_accumulate(wf_engine *e, weft_tensor *to, weft_tensor g);
/* g, a copy of it on the device of the node's value if it is elsewhere: what a number of the host was multiplied with on
 * a device gives its gradient there. */
weft_tensor wf_engine_home(wf_engine *e, const wf_tnode *n, weft_tensor g);

/* Node r's parts become one gradient, added to what it has. */
int wf_parts_settle(wf_engine *e, wf_ref r);
/* Frees those that are left (after an error). */
void wf_parts_drop(wf_engine *e);

#endif
