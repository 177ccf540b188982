/*
 * eager/cuda/dnn_sdpa.c -- attention and its gradient as graphs of cuDNN; pure: descriptors only.
 *
 * The library knows these graphs by their shape and runs each as one kernel (forward) or a few (backward), in which the
 * scores never reach memory: which operations, in which order and of which types is what its engines look for, and is that
 * of NVIDIA's own front end. Changing an operation here means that no engine is found.
 *
 *   forward    s = q k^T, s scale, causal: s where row >= column else -inf; most = max s, e = exp(s - most), sum = add e,
 *              lse = most + log sum, p = e / sum in the operands' type, o = p v
 *   backward   delta = add(g o); p = exp(s - lse) as above; dv = p^T g; ds = (g v^T - delta) p scale; dk = ds^T q, dq = ds k
 *
 * dq is a product's result and not a sum in memory that blocks add to: that is the deterministic form.
 */
#include <math.h>
#include <string.h>

#include "eager/cuda/dnn_attention.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

typedef struct sdpa {
    wf_dnn_graph *g;
    const wf_cuda_sdpa *a;
    int type;
    wf_dnn_shape scores, column; /* (.., l, s) and (.., l, 1) */
} sdpa;

static wf_dnn_shape dense(int64_t b, int64_t h, int64_t rows, int64_t cols)
{
    return (wf_dnn_shape){{b, h, rows, cols}, {h * rows * cols, rows * cols, cols, 1}};
}

static wf_dnn_shape swap(wf_dnn_shape s)
{
    const int64_t dim = s.dims[2], stride = s.strides[2];
    s.dims[2] = s.dims[3];
    s.strides[2] = s.strides[3];
    s.dims[3] = dim;
    s.strides[3] = stride;
    return s;
}

/* Operand `which` as it lies. */
static wf_dnn_shape shape_of(const wf_cuda_sdpa *a, int which)
{
    const bool keys = which == WF_CUDA_SDPA_K || which == WF_CUDA_SDPA_V ||
                      which == WF_CUDA_SDPA_DK || which == WF_CUDA_SDPA_DV;
    const bool values = which == WF_CUDA_SDPA_V || which == WF_CUDA_SDPA_O ||
                        which == WF_CUDA_SDPA_G || which == WF_CUDA_SDPA_DV;
    wf_dnn_shape s = {{a->batch, a->heads, keys ? a->s : a->l, values ? a->value_width : a->width},
                      {0}};
    memcpy(s.strides, a->strides[which], sizeof s.strides);
    return s;
}

static dnn_handle operand(const sdpa *t, int which, bool turned)
{
    const wf_dnn_shape s = shape_of(t->a, which), back = swap(s);
    return wf_dnn_tensor(t->g, 1 + which, t->type, turned ? &back : &s);
}

static dnn_handle map(const sdpa *t, int mode, dnn_handle x, dnn_handle b, const wf_dnn_shape *s)
{
    dnn_handle y = wf_dnn_virtual(t->g, DNN_F32, s);
    wf_dnn_map(t->g, &(wf_dnn_pointwise){mode, DNN_F32, 0, x, b, NULL, y});
    return y;
}

static dnn_handle index_of(const sdpa *t, dnn_handle scores, int axis)
{
    dnn_handle y = wf_dnn_virtual(t->g, DNN_I32, &t->scores);
    wf_dnn_map(t->g, &(wf_dnn_pointwise){DNN_PW_INDEX, DNN_F32, axis, scores, NULL, NULL, y});
    return y;
}

/* A query sees the keys up to its own number. */
static dnn_handle causal(const sdpa *t, dnn_handle scores)
{
    if (!t->a->causal) {
        return scores;
    }
    dnn_handle row = index_of(t, scores, 2), column = index_of(t, scores, 3);
    dnn_handle seen = wf_dnn_virtual(t->g, DNN_BOOL, &t->scores);
    wf_dnn_map(t->g, &(wf_dnn_pointwise){DNN_PW_GE, DNN_BOOL, 0, row, column, NULL, seen});
    dnn_handle never = wf_dnn_scalar(t->g, WF_CUDA_SDPA_NEVER);
    dnn_handle y = wf_dnn_virtual(t->g, DNN_F32, &t->scores);
    wf_dnn_map(t->g, &(wf_dnn_pointwise){DNN_PW_SELECT, DNN_F32, 0, scores, never, seen, y});
    return y;
}

static dnn_handle reduced(const sdpa *t, int mode, dnn_handle x)
{
    dnn_handle y = wf_dnn_virtual(t->g, DNN_F32, &t->column);
    wf_dnn_reduce(t->g, mode, x, y);
    return y;
}

/* (scale) q k^T */
static dnn_handle scaled_scores(const sdpa *t, dnn_handle q, dnn_handle k, dnn_handle scale)
{
    dnn_handle s = wf_dnn_virtual(t->g, DNN_F32, &t->scores);
    wf_dnn_matmul(t->g, q, k, s);
    return map(t, DNN_PW_MUL, s, scale, &t->scores);
}

static void forward(const sdpa *t)
{
    wf_dnn_graph *g = t->g;
    dnn_handle q = operand(t, WF_CUDA_SDPA_Q, false), k = operand(t, WF_CUDA_SDPA_K, true);
    dnn_handle scale = wf_dnn_scalar(g, WF_CUDA_SDPA_SCALE);
    dnn_handle s = causal(t, scaled_scores(t, q, k, scale));
    dnn_handle most = reduced(t, DNN_REDUCE_MAX, s);
    dnn_handle e = map(t, DNN_PW_EXP, map(t, DNN_PW_SUB, s, most, &t->scores), NULL, &t->scores);
    dnn_handle sum = reduced(t, DNN_REDUCE_ADD, e);
    dnn_handle log = map(t, DNN_PW_LOG, sum, NULL, &t->column);
    dnn_handle lse = wf_dnn_tensor(g, WF_CUDA_SDPA_LSE, DNN_F32, &t->column);
    wf_dnn_map(g, &(wf_dnn_pointwise){DNN_PW_ADD, DNN_F32, 0, most, log, NULL, lse});
    dnn_handle p = wf_dnn_virtual(g, t->type, &t->scores);
    wf_dnn_map(g, &(wf_dnn_pointwise){DNN_PW_DIV, DNN_F32, 0, e, sum, NULL, p});
    wf_dnn_matmul(g, p, operand(t, WF_CUDA_SDPA_V, false), operand(t, WF_CUDA_SDPA_O, false));
}

/* x^T in the operands' type */
static dnn_handle turned(const sdpa *t, dnn_handle x)
{
    const wf_dnn_shape s = swap(t->scores);
    dnn_handle y = wf_dnn_virtual(t->g, t->type, &s);
    wf_dnn_reshape(t->g, x, y);
    return y;
}

/* What every row of g o adds up to, times one (the factor of a dropout, elsewhere); in memory. */
static dnn_handle row_dots(const sdpa *t, dnn_handle grad, dnn_handle out)
{
    const wf_cuda_sdpa *a = t->a;
    const wf_dnn_shape rows = {
        {a->batch, a->heads, a->l, a->value_width},
        {a->heads * a->l * a->value_width, a->l * a->value_width, a->heads * a->value_width, 1}};
    dnn_handle dot = reduced(t, DNN_REDUCE_ADD, map(t, DNN_PW_MUL, grad, out, &rows));
    dnn_handle one = wf_dnn_scalar(t->g, WF_CUDA_SDPA_ONE);
    dnn_handle delta = wf_dnn_tensor(t->g, WF_CUDA_SDPA_DELTA, DNN_F32, &t->column);
    wf_dnn_map(t->g, &(wf_dnn_pointwise){DNN_PW_MUL, DNN_F32, 0, dot, one, NULL, delta});
    return delta;
}

static void backward(const sdpa *t)
{
    wf_dnn_graph *g = t->g;
    dnn_handle q = operand(t, WF_CUDA_SDPA_Q, false), k = operand(t, WF_CUDA_SDPA_K, true),
               v = operand(t, WF_CUDA_SDPA_V, true), out = operand(t, WF_CUDA_SDPA_O, false),
               grad = operand(t, WF_CUDA_SDPA_G, false);
    dnn_handle delta = row_dots(t, grad, out);
    dnn_handle scale = wf_dnn_scalar(g, WF_CUDA_SDPA_SCALE);
    dnn_handle lse = wf_dnn_tensor(g, WF_CUDA_SDPA_LSE, DNN_F32, &t->column);
    dnn_handle s = map(t, DNN_PW_SUB, scaled_scores(t, q, k, scale), lse, &t->scores);
    dnn_handle p = map(t, DNN_PW_EXP, causal(t, s), NULL, &t->scores);
    wf_dnn_matmul(g, turned(t, p), grad, operand(t, WF_CUDA_SDPA_DV, false));
    dnn_handle dp = wf_dnn_virtual(g, DNN_F32, &t->scores);
    wf_dnn_matmul(g, grad, v, dp);
    dp = map(t, DNN_PW_MUL, map(t, DNN_PW_SUB, dp, delta, &t->scores), p, &t->scores);
    dnn_handle ds = map(t, DNN_PW_MUL, dp, scale, &t->scores);
    wf_dnn_matmul(g, turned(t, ds), q, operand(t, WF_CUDA_SDPA_DK, false));
    const wf_dnn_shape rows = shape_of(t->a, WF_CUDA_SDPA_K);
    dnn_handle keys = wf_dnn_virtual(g, t->type, &rows);
    wf_dnn_reshape(g, k, keys);
    wf_dnn_matmul(g, ds, keys, operand(t, WF_CUDA_SDPA_DQ, false));
}

void wf_cuda_sdpa_graph(wf_dnn_graph *g, const wf_cuda_sdpa *a)
{
    const sdpa t = {.g = g,
                    .a = a,
                    .type = a->dtype == WEFT_F16 ? DNN_F16 : DNN_BF16,
                    .scores = dense(a->batch, a->heads, a->l, a->s),
                    .column = dense(a->batch, a->heads, a->l, 1)};
    if (a->backward) {
        backward(&t);
    } else {
        forward(&t);
    }
}
