/*
 * eager/cuda/dnn_attention.h -- scaled dot-product attention and its gradient through cuDNN's graphs.
 *
 * f16 and bf16, on compute capability 8 and 9 (forward: 8 and up), heads of at most 128 in multiples of 8, causal or not,
 * without a mask. Scores and sums are f32, probabilities are rounded to the operands' type before they meet the values. Only
 * engines that the library calls deterministic are taken.
 */
#ifndef EAGER_CUDA_DNN_ATTENTION_H
#define EAGER_CUDA_DNN_ATTENTION_H

#include "eager/cuda/dnn_graph.h"
#include "eager/cuda/runtime.h"

/* The operands, by which the strides and addresses below are found. */
enum {
    WF_CUDA_SDPA_Q,
    WF_CUDA_SDPA_K,
    WF_CUDA_SDPA_V,
    WF_CUDA_SDPA_O,
    WF_CUDA_SDPA_G, /* gradient of the result */
    WF_CUDA_SDPA_DQ,
    WF_CUDA_SDPA_DK,
    WF_CUDA_SDPA_DV,
    WF_CUDA_SDPA_TENSORS
};
/* Names of tensors in the graph: an operand's is its number plus one. */
enum {
    WF_CUDA_SDPA_LSE = WF_CUDA_SDPA_TENSORS + 1,
    WF_CUDA_SDPA_DELTA,
    WF_CUDA_SDPA_SCALE,
    WF_CUDA_SDPA_NEVER,
    WF_CUDA_SDPA_ONE
};

/* All (batch, heads, rows, columns): q (l, width), k (s, width), v (s, value_width). lse: logarithm of each row's sum, f32,
 * dense. Forward: o and lse are written. Backward: they are read, and dq, dk, dv are written. */
typedef struct wf_cuda_sdpa {
    bool backward, causal;
    int dtype;
    float scale;
    int64_t batch, heads, l, s, width, value_width;
    int64_t strides[WF_CUDA_SDPA_TENSORS][4]; /* elements; the last is 1 */
    void *data[WF_CUDA_SDPA_TENSORS];
    void *lse;
} wf_cuda_sdpa;

/* On the current stream; the blocks are the caller's to wf_cuda_use first. WEFT_EUNSUPPORTED with why empty: there is no
 * library, or it has nothing for this; another way has to be taken. */
int wf_cuda_sdpa_run(int ordinal, const wf_cuda_sdpa *a, wf_why *why);
/* Is it worth preparing operands for? Opens the library. */
bool wf_cuda_sdpa_takes(int ordinal, const wf_cuda_sdpa *a);
/* The operations of the graph; data and scale do not matter (tests). */
void wf_cuda_sdpa_graph(wf_dnn_graph *g, const wf_cuda_sdpa *a);
/* Graphs planned so far (tests). */
int64_t wf_cuda_sdpa_plans(void);

#endif
