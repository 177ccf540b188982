/*
 * eager/cuda/dnn_impl.h -- cuDNN as its files share it: opened once (dnn.c), a handle and plans a device.
 */
#ifndef EAGER_CUDA_DNN_IMPL_H
#define EAGER_CUDA_DNN_IMPL_H

#include "eager/cuda/dnn.h"
#include "eager/cuda/dnn_graph.h"
#include "eager/cuda/plans.h"

typedef struct wf_cuda_dnn {
    pthread_mutex_t lock;
    dnn_handle lib;
    cu_handle stream; /* that lib queues on; NULL: not set. Streams live as long as this. */
    wf_cuda_plans convs, graphs;
} wf_cuda_dnn;

/* NULL: no library, or it does not start on this device. */
wf_cuda_dnn *wf_cuda_dnn_open(wf_cuda_device *d);
/* Lock of b held: what is called next is queued on s. A status of the library. */
int wf_cuda_dnn_stream(wf_cuda_dnn *b, wf_cuda_stream *s);
/* 3000 to 3999: not supported and its variants (shapes, architectures, missing parts). */
bool wf_cuda_dnn_unsupported(int status);
/* After wf_cuda_dnn_open: 91900 is 9.19.0; the functions of graphs. */
size_t wf_cuda_dnn_version(void);
const dnn_graph_calls *wf_cuda_dnn_graphs(void);
/* The operation of a convolution; data do not matter (tests). */
void wf_cuda_conv_graph(wf_dnn_graph *g, const wf_cuda_conv *c);
/* The table of dnn_attention.c. */
void wf_cuda_sdpa_init(wf_cuda_dnn *b);

#endif
