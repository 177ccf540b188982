/*
 * jit/gpu/row_attention_dnn.c -- attention and its gradient in half types by cuDNN, where it takes them.
 *
 * The batch is two axes at most for the library, each stepped evenly by every operand. A broadcast operand is left to
 * row_flash.c, and so is a mask: a query that it leaves nothing gives 0 there and NaN in the library. An operand whose
 * columns are not neighbours, or that does not lie at multiples of 16 bytes, is copied first.
 */
#include "eager/cuda/dnn_attention.h"
#include "eager/dense.h"
#include "jit/gpu/impl.h"

enum { AXES = 2, LAID = 8 }; /* elements that 16 bytes are */

typedef struct request {
    wf_exec *e;
    wf_gpu_temps temps;
    int rank;
    int64_t dims[WF_MAX_RANK]; /* of the result */
    wf_view v[WF_CUDA_SDPA_TENSORS];
    bool there[WF_CUDA_SDPA_TENSORS];
    wf_cuda_sdpa a;
} request;

/* Does the view have every batch axis of the result itself? */
static bool is_whole(const request *t, const wf_view *v)
{
    bool whole = v->rank == t->rank;
    for (int d = 0; whole && d < t->rank - 2; d++)
        whole = v->dims[d] == t->dims[d] && (v->dims[d] == 1 || v->strides[d] != 0);
    return whole;
}

/* Can the library read it as it lies? */
static bool is_laid(const wf_view *v)
{
    bool laid = (uintptr_t)v->data % 16 == 0 && v->strides[v->rank - 1] == 1;
    for (int d = 0; d < v->rank - 1; d++)
        laid &= v->dims[d] == 1 || (v->strides[d] > 0 && v->strides[d] % LAID == 0);
    return laid;
}

/* Joins the batch axes of all operands; false: more than AXES are left. */
static bool put_strides(request *t)
{
    int64_t extent[AXES], step[AXES][WF_CUDA_SDPA_TENSORS];
    int n = 0;
    for (int d = t->rank - 3; d >= 0; d--) {
        bool joins = n > 0;
        if (t->dims[d] == 1)
            continue;
        for (int i = 0; i < WF_CUDA_SDPA_TENSORS && joins; i++)
            joins = !t->there[i] || t->v[i].strides[d] == step[n - 1][i] * extent[n - 1];
        if (!joins && n == AXES)
            return false;
        if (joins) {
            extent[n - 1] *= t->dims[d];
            continue;
        }
        for (int i = 0; i < WF_CUDA_SDPA_TENSORS; i++)
            step[n][i] = t->there[i] ? t->v[i].strides[d] : 0;
        extent[n++] = t->dims[d];
    }
    t->a.heads = n > 0 ? extent[0] : 1;
    t->a.batch = n > 1 ? extent[1] : 1;
    for (int i = 0; i < WF_CUDA_SDPA_TENSORS; i++) {
        const wf_view *v = &t->v[i];
        int64_t *s = t->a.strides[i];
        if (!t->there[i])
            continue;
        s[3] = 1; /* axes of one step: by any number, here what a dense operand has */
        s[2] = v->dims[t->rank - 2] == 1 ? v->dims[t->rank - 1] : v->strides[t->rank - 2];
        s[1] = n > 0 ? step[0][i] : s[2] * v->dims[t->rank - 2];
        s[0] = n > 1 ? step[1][i] : s[1] * t->a.heads;
        t->a.data[i] = v->data;
    }
    return true;
}

/* An operand as it lies, or a copy that the library can read. */
static int read_view(request *t, int which, const wf_view *v)
{
    wf_view *to = &t->v[which];
    t->there[which] = true;
    *to = *v;
    if (is_laid(v))
        return 0;
    const int status = wf_gpu_temp_view(&t->temps, v->dtype, v->rank, v->dims, to, t->e->why);
    return status ? status : wf_gpu_copy(t->temps.ordinal, to, v, t->e->why);
}

/* false: not for the library, whatever it says. */
static bool open(request *t, const wf_view *src, const wf_view *out, const wf_view *mask)
{
    wf_exec *e = t->e;
    const int rank = t->rank = out->rank, dtype = out->dtype;
    memcpy(t->dims, out->dims, sizeof t->dims);
    bool takes = (dtype == WEFT_F16 || dtype == WEFT_BF16) && !(mask && mask->data);
    for (int i = 0; i < 3; i++)
        takes = takes && src[i].dtype == dtype && is_whole(t, &src[i]);
    for (int i = 0; i < e->ndst; i++)
        takes = takes && wf_view_is_contiguous(&e->dst[i]) && (uintptr_t)e->dst[i].data % 16 == 0;
    if (!takes)
        return false;
    t->a.dtype = dtype;
    t->a.causal = (e->attr->flags & WF_FLAG_CAUSAL) != 0;
    t->a.scale = (float)e->attr->flt[0];
    t->a.l = src[0].dims[rank - 2];
    t->a.width = src[0].dims[rank - 1];
    t->a.s = src[1].dims[rank - 2];
    t->a.value_width = src[2].dims[rank - 1];
    t->a.batch = t->a.heads = 1; /* until put_strides */
    for (int d = 0; d < rank - 2; d++)
        takes = takes && t->dims[d] > 0;
    return takes && wf_cuda_sdpa_takes(t->temps.ordinal, &t->a);
}

static void write_view(request *t, int which, const wf_view *v)
{
    t->there[which] = true;
    t->v[which] = *v;
}

static int forward(request *t)
{
    wf_exec *e = t->e;
    if (!open(t, e->src, &e->dst[0], e->nsrc > 3 ? &e->src[3] : NULL))
        return WEFT_EUNSUPPORTED;
    int status = 0;
    for (int i = 0; i < 3 && status == 0; i++)
        status = read_view(t, WF_CUDA_SDPA_Q + i, &e->src[i]);
    write_view(t, WF_CUDA_SDPA_O, &e->dst[0]);
    t->a.lse = e->dst[1].data;
    if (status)
        return status;
    return put_strides(t) ? wf_cuda_sdpa_run(t->temps.ordinal, &t->a, e->why) : WEFT_EUNSUPPORTED;
}

static int backward(request *t)
{
    wf_exec *e = t->e;
    wf_view lse;
    t->a.backward = true;
    if (!open(t, e->src + 1, &e->src[4], e->nsrc > 6 ? &e->src[6] : NULL))
        return WEFT_EUNSUPPORTED;
    int status = wf_gpu_dense(&t->temps, &e->src[5], WEFT_F32, &lse, e->why);
    for (int i = 0; i < 3 && status == 0; i++) {
        write_view(t, WF_CUDA_SDPA_DQ + i, &e->dst[i]);
        status = read_view(t, WF_CUDA_SDPA_Q + i, &e->src[1 + i]);
    }
    if (status == 0)
        status = read_view(t, WF_CUDA_SDPA_O, &e->src[4]);
    if (status == 0)
        status = read_view(t, WF_CUDA_SDPA_G, &e->src[0]);
    if (status)
        return status;
    t->a.lse = lse.data;
    return put_strides(t) ? wf_cuda_sdpa_run(t->temps.ordinal, &t->a, e->why) : WEFT_EUNSUPPORTED;
}

int wf_gpu_row_attention_dnn(int ordinal, wf_exec *e)
{
    request t = {.e = e, .temps.ordinal = ordinal};
    const int status = e->op == WF_OP_SDPA ? forward(&t) : backward(&t);
    wf_gpu_drop(&t.temps);
    return status;
}
