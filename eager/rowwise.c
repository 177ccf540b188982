/*
 * eager/rowwise.c -- softmax and log_softmax, forward and backward.
 *
 * Rows along the last axis run in place; along another axis the operands are copied with that axis
 * last and the result is copied back. Bits follow the compositions in eager/kernels/rowwise.h.
 */
#include "eager/rows.h"

#include "eager/alloc.h"

typedef struct softmax_job {
    const wf_row_kernels *k;
    wf_op op;
    int64_t n;
} softmax_job;

static void softmax_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const softmax_job *j = ctx;
    (void)row;
    if (j->op == WF_OP_SOFTMAX) {
        j->k->softmax(out[0], in[0], j->n, nt);
    } else if (j->op == WF_OP_LOG_SOFTMAX) {
        j->k->log_softmax(out[0], in[0], j->n, nt);
    } else if (j->op == WF_OP_SOFTMAX_BWD) {
        j->k->softmax_bwd(out[0], in[0], in[1], j->n, nt);
    } else {
        j->k->log_softmax_bwd(out[0], in[0], in[1], j->n, nt);
    }
}

static int run_packed(wf_exec *e, const wf_packed *src, void *to, int64_t n)
{
    const wf_view *dst = &e->dst[0];
    int compute = wf_red_compute(dst->dtype);
    softmax_job j = {.k = wf_row_kernels_of(compute), .op = e->op, .n = n};
    wf_row_job r = {
        .rows = wf_view_numel(dst) / n, .n = n, .compute = compute, .nin = e->nsrc, .nout = 1};
    for (int i = 0; i < e->nsrc; i++) {
        r.in[i].data = src[i].data;
        r.in[i].dtype = e->src[i].dtype;
    }
    r.out[0].data = to;
    r.out[0].dtype = dst->dtype;
    r.nt_limit = e->op == WF_OP_SOFTMAX ? WF_BLOCK : INT64_MAX;
    r.fn = softmax_row;
    r.ctx = &j;
    return wf_rows_run(&r, e->why);
}

WF_EXEC_DECL(softmax)
{
    wf_view *dst = &e->dst[0];
    int axis = e->attr->n_ints > 0 ? (int)e->attr->ints[0] : dst->rank - 1;
    int last = axis == dst->rank - 1 ? -1 : axis;
    int64_t n = dst->rank > 0 ? dst->dims[axis] : 1;
    if (wf_view_numel(dst) == 0) {
        return 0;
    }
    wf_packed src[2] = {{.data = NULL}};
    int status = 0;
    for (int i = 0; i < e->nsrc && status == 0; i++) {
        status = wf_pack(&src[i], &e->src[i], e->src[i].dtype, last, e->why);
    }
    wf_view moved = wf_move_last(dst, last);
    if (status == 0 && wf_view_is_contiguous(&moved)) {
        status = run_packed(e, src, dst->data, n);
    } else if (status == 0) {
        wf_view tmp = moved;
        size_t bytes = (size_t)wf_view_numel(dst) * wf_dtype_size(dst->dtype);
        tmp.data = wf_alloc(bytes);
        if (tmp.data == NULL) {
            status = wf_red_nomem(e->why, (int64_t)bytes);
        } else {
            int64_t stride = 1;
            for (int i = tmp.rank - 1; i >= 0; i--) {
                tmp.strides[i] = stride;
                stride *= tmp.dims[i];
            }
            status = run_packed(e, src, tmp.data, n);
            if (status == 0) {
                wf_copy(&moved, &tmp);
            }
            wf_free(tmp.data, bytes);
        }
    }
    wf_unpack(&src[0]);
    wf_unpack(&src[1]);
    return status;
}
