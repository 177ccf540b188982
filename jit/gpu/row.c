/*
 * jit/gpu/row.c -- rows that are not elementwise, on the device: which file has their kernels; see gpu.h.
 */
#include "jit/gpu/impl.h"

typedef int (*row_fn)(int ordinal, wf_exec *e);

/* NULL: none. Reductions, softmax and norms are programs (jit/plan_rows.c). */
static row_fn row_of(wf_op op)
{
    static const row_fn rows[WF_OP_COUNT] = {
        [WF_OP_COPY] = wf_gpu_row_move,
        [WF_OP_CAST] = wf_gpu_row_move,
        [WF_OP_CONCAT] = wf_gpu_row_move,
        [WF_OP_PAD] = wf_gpu_row_move,
        [WF_OP_PAD_MODE] = wf_gpu_row_move,
        [WF_OP_PAD_MODE_BWD] = wf_gpu_row_move,
        [WF_OP_ROLL] = wf_gpu_row_move,
        [WF_OP_TRIL] = wf_gpu_row_move,
        [WF_OP_TRIU] = wf_gpu_row_move,
        [WF_OP_SLICE_GRAD] = wf_gpu_row_move,
        [WF_OP_STRIDED_GRAD] = wf_gpu_row_move,
        [WF_OP_UPDATE] = wf_gpu_row_move,
        [WF_OP_TAKE_ALONG] = wf_gpu_row_index,
        [WF_OP_INDEX_SELECT] = wf_gpu_row_index,
        [WF_OP_SCATTER_ADD] = wf_gpu_row_index,
        [WF_OP_INDEX_ADD] = wf_gpu_row_index,
        [WF_OP_ONE_HOT] = wf_gpu_row_index,
        [WF_OP_FULL] = wf_gpu_row_create,
        [WF_OP_ARANGE] = wf_gpu_row_create,
        [WF_OP_LINSPACE] = wf_gpu_row_create,
        [WF_OP_EYE] = wf_gpu_row_create,
        [WF_OP_RAND] = wf_gpu_row_create,
        [WF_OP_RANDN] = wf_gpu_row_create,
        [WF_OP_RANDINT] = wf_gpu_row_create,
        [WF_OP_BERNOULLI] = wf_gpu_row_create,
        [WF_OP_RANDPERM] = wf_gpu_row_order,
        [WF_OP_MATMUL] = wf_gpu_row_product,
        [WF_OP_LINEAR] = wf_gpu_row_product,
        [WF_OP_CONV2D] = wf_gpu_row_conv,
        [WF_OP_CONV2D_DX] = wf_gpu_row_conv,
        [WF_OP_CONV2D_DW] = wf_gpu_row_conv,
        [WF_OP_MAX_POOL2D] = wf_gpu_row_pool,
        [WF_OP_AVG_POOL2D] = wf_gpu_row_pool,
        [WF_OP_AVG_POOL2D_BWD] = wf_gpu_row_pool,
        [WF_OP_SDPA] = wf_gpu_row_attention,
        [WF_OP_SDPA_BWD] = wf_gpu_row_attention,
        [WF_OP_NORM] = wf_gpu_row_norm,
        [WF_OP_LAYER_NORM_BWD] = wf_gpu_row_norm_bwd,
        [WF_OP_RMS_NORM_BWD] = wf_gpu_row_norm_bwd,
        [WF_OP_CROSS_ENTROPY] = wf_gpu_row_loss,
        [WF_OP_CROSS_ENTROPY_BWD] = wf_gpu_row_loss,
        [WF_OP_ARGMAX] = wf_gpu_row_order,
        [WF_OP_ARGMIN] = wf_gpu_row_order,
        [WF_OP_CUMSUM] = wf_gpu_row_order,
        [WF_OP_CUMPROD] = wf_gpu_row_order,
        [WF_OP_SORT] = wf_gpu_row_order,
        [WF_OP_TOPK] = wf_gpu_row_order,
    };
    return rows[op];
}

int wf_gpu_row(int ordinal, wf_exec *e)
{
    const row_fn fn = row_of(e->op);
    return fn ? fn(ordinal, e) : WEFT_EUNSUPPORTED;
}
