/*
 * eager/cuda/dnn_graph.h -- operation graphs of cuDNN, written down one operation at a time.
 *
 * Every tensor has four axes. Those inside the graph (virtual) are never in memory. The first call that fails is
 * remembered and the ones behind it do nothing, so that a graph is written without looking at each answer.
 */
#ifndef EAGER_CUDA_DNN_GRAPH_H
#define EAGER_CUDA_DNN_GRAPH_H

#include <stdbool.h>
#include <stddef.h>

#include "eager/cuda/dnn_api.h"

enum { WF_DNN_MOST_DESCRIPTORS = 256, WF_DNN_MOST_OPS = 48, WF_DNN_MOST_ENGINES = 64 };

typedef struct wf_dnn_graph {
    const dnn_graph_calls *calls;
    int status; /* of the first call that failed; DNN_OK */
    int n, nops;
    int64_t ids; /* of virtual tensors: from WF_DNN_VIRTUAL on */
    unsigned
        never; /* engines with one of these notes are not taken, nor is one that is not deterministic */
    dnn_handle made[WF_DNN_MOST_DESCRIPTORS], ops[WF_DNN_MOST_OPS];
} wf_dnn_graph;
enum { WF_DNN_VIRTUAL = 1000 };

typedef struct wf_dnn_shape {
    int64_t dims[4], strides[4];
} wf_dnn_shape;

/* Device memory at multiples of 16 bytes, called id where the graph is run. */
dnn_handle wf_dnn_tensor(wf_dnn_graph *g, int64_t id, int type, const wf_dnn_shape *s);
/* One f32 that the host hands over with each run. */
dnn_handle wf_dnn_scalar(wf_dnn_graph *g, int64_t id);
dnn_handle wf_dnn_virtual(wf_dnn_graph *g, int type, const wf_dnn_shape *s);

/* c = a b over the last two axes, summed in f32. */
void wf_dnn_matmul(wf_dnn_graph *g, dnn_handle a, dnn_handle b, dnn_handle c);
/* y = mode(x, b), b and `if_set` (of a selection: where x is taken) NULL where it has none; axis: of an index. */
typedef struct wf_dnn_pointwise {
    int mode, type;
    int64_t axis;
    dnn_handle x, b, if_set, y;
} wf_dnn_pointwise;
void wf_dnn_map(wf_dnn_graph *g, const wf_dnn_pointwise *p);
/* y = x reduced along the axes that are 1 in y. */
void wf_dnn_reduce(wf_dnn_graph *g, int mode, dnn_handle x, dnn_handle y);
/* The same elements read another way. */
void wf_dnn_reshape(wf_dnn_graph *g, dnn_handle x, dnn_handle y);

/* A convolution or one of its gradients: kind says which of w, x and y is the result. add: to what y holds. wide: all f64. */
typedef struct wf_dnn_convolution {
    int kind;
    bool add, wide;
    const int64_t *pad, *stride, *dilation; /* two of each */
    dnn_handle w, x, y;
} wf_dnn_convolution;
void wf_dnn_convolve(wf_dnn_graph *g, const wf_dnn_convolution *c);

/* A plan by the library's heuristics: the first engine that may be taken whose workspace is at most `most`. lib: the
 * library, or NULL with a device descriptor instead (tests: no GPU is needed then). It belongs to the graph; NULL:
 * there is none. */
dnn_handle wf_dnn_choose(wf_dnn_graph *g, dnn_handle lib, dnn_handle device, size_t most,
                         size_t *workspace);
/* The plan as text, its code included, malloced by wf_malloc; NULL: the release cannot. */
char *wf_dnn_save(const dnn_graph_calls *calls, dnn_handle plan, size_t *n);
/* The plan of such a text, of the same release on the same kind of device; g holds nothing else. NULL: it is none. */
dnn_handle wf_dnn_restore(wf_dnn_graph *g, dnn_handle lib, dnn_handle device, const void *text,
                          size_t n, size_t most, size_t *workspace);
/* A descriptor that belongs to the graph, not finalized. NULL: see status. */
dnn_handle wf_dnn_make(wf_dnn_graph *g, int kind);
void wf_dnn_set(wf_dnn_graph *g, dnn_handle d, int attribute, int kind, int64_t n,
                const void *values);
void wf_dnn_finalize(wf_dnn_graph *g, dnn_handle d);
/* Gives back everything. */
void wf_dnn_graph_drop(wf_dnn_graph *g);

/* Queues a run on the library's stream. A status of the library. */
int wf_dnn_execute(const dnn_graph_calls *calls, dnn_handle lib, dnn_handle plan, int64_t n,
                   const int64_t *ids, void *const *pointers, void *workspace);

#endif
