/*
 * eager/cuda/plans.h -- what a vendor's library was asked once, found by the bytes of the question, and calls by it.
 *
 * A library is asked for its best way once per shape; a plan remembers what it chose, or that it has nothing. Where there is
 * no memory for the workspace of a way that has not been gone yet, it is asked for one with less. A table
 * belongs to a device. Calls take turns under a lock of the library's handle, which carries the stream.
 */
#ifndef EAGER_CUDA_PLANS_H
#define EAGER_CUDA_PLANS_H

#include "eager/cuda/device.h"

/* The first member of a plan; its key stands right behind. */
typedef struct wf_cuda_plan {
    struct wf_cuda_plan *next;
    size_t workspace; /* bytes that a call needs */
    bool refused;     /* the library has nothing for this, or its first call failed */
    bool proven;      /* a call succeeded: this way it stays, and one that fails is an error */
} wf_cuda_plan;

enum { WF_CUDA_PLAN_BUCKETS = 512 };
typedef struct wf_cuda_plans {
    pthread_mutex_t *lock;         /* of the library's handle */
    size_t size, key_size;         /* of a plan; of its key, a multiple of 8 */
    void (*drop)(wf_cuda_plan *p); /* gives back what the library made for p */
    int n, most;                   /* when `most` are there, all are dropped */
    bool keep;                     /* or no more are made: work that is under way may need them */
    _Atomic int64_t *made;         /* counts them */
    wf_cuda_plan *bucket[WF_CUDA_PLAN_BUCKETS];
} wf_cuda_plans;

/* One call. arg is handed to make and call. */
typedef struct wf_cuda_ask {
    const char *what, *remedy; /* "cuDNN convolution"; what to do when it fails */
    const void *key, *arg;
    /* With a workspace of at most `most` bytes; false: refused. */
    bool (*make)(wf_cuda_plan *p, const void *arg, size_t most);
    int (*call)(wf_cuda_plan *p, const void *arg, void *workspace, wf_cuda_stream *s);
    bool (*refuses)(int status); /* is that "not supported"? 0 is success */
} wf_cuda_ask;

/* On stream s. WEFT_EUNSUPPORTED with why empty: refused, another way has to be taken. */
int wf_cuda_plans_run(wf_cuda_plans *t, const wf_cuda_ask *a, wf_cuda_stream *s, wf_why *why);
void wf_cuda_plans_drop(wf_cuda_plans *t);
/* That answer. */
int wf_cuda_not_here(wf_why *why);

#endif
