/*
 * autograd/vjp_move.c -- derivatives of views, copies and indexing: all linear maps.
 */
#include "autograd/vjp_util.h"

WF_VJP(reshape, WF_SAVES_NONE)
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    v->dsrc[0] = reshape(v->g[0], x.rank, x.dims);
    return wf_vjp_done(v);
}

WF_VJP(permute, WF_SAVES_NONE)
{
    int64_t inverse[WF_MAX_RANK];
    int rank = v->attr->n_ints;
    for (int i = 0; i < rank; i++) {
        inverse[v->attr->ints[i]] = i;
    }
    v->dsrc[0] = permute(v->g[0], rank, inverse);
    return wf_vjp_done(v);
}

WF_VJP(expand, WF_SAVES_NONE)
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    v->dsrc[0] = wf_sum_to(v->g[0], x.rank, x.dims);
    return wf_vjp_done(v);
}

WF_VJP(slice, WF_SAVES_NONE)
{
    wf_type x, y;
    wf_vjp_src_type(v, 0, &x);
    wf_vjp_dst_type(v, 0, &y);
    const int64_t *d = v->attr->dyn;
    if (d[2] == -1 && y.dims[v->attr->ints[0]] == x.dims[v->attr->ints[0]]) {
        v->dsrc[0] =
            wf_op1(WF_OP_SLICE, v->attr, v->g[0]); /* the other way round: its own inverse */
        return wf_vjp_done(v);
    }
    int64_t axis = v->attr->ints[0], full_map[4] = {d[0], d[1], d[2], x.dims[axis]};
    if (!v->create_graph && d[2] == 1 && d[1] > d[0]) {
        return wf_vjp_add_part(v, axis, d[0], d[1]);
    }
    wf_attr a = {.n_ints = 1, .ints = &axis, .n_dyn = 4, .dyn = full_map};
    v->dsrc[0] = wf_op1(WF_OP_SLICE_GRAD, &a, v->g[0]);
    return wf_vjp_done(v);
}

WF_VJP(slice_grad, WF_SAVES_NONE)
{
    const int64_t *d = v->attr->dyn;
    v->dsrc[0] = slice(v->g[0], v->attr->ints[0], d[0], d[1], d[2]);
    return wf_vjp_done(v);
}

/* zeros of type x with g added at an index map over x seen as row-major memory. */
static weft_tensor strided_grad(weft_tensor g, const wf_type *x, int rank, const int64_t *strides,
                                int64_t offset)
{
    int64_t d[2 * WF_MAX_RANK + 1], r = x->rank;
    memcpy(d, x->dims, (size_t)x->rank * sizeof *d);
    memcpy(d + x->rank, strides, (size_t)rank * sizeof *d);
    d[x->rank + rank] = offset;
    wf_attr a = {.n_ints = 1, .ints = &r, .n_dyn = (uint8_t)(x->rank + rank + 1), .dyn = d};
    return wf_op1(WF_OP_STRIDED_GRAD, &a, g);
}

WF_VJP(as_strided, WF_SAVES_NONE)
{
    wf_type x, y;
    wf_vjp_src_type(v, 0, &x);
    wf_vjp_dst_type(v, 0, &y);
    const int64_t *d = v->attr->dyn;
    v->dsrc[0] = strided_grad(v->g[0], &x, y.rank, d + y.rank, d[2 * y.rank]);
    return wf_vjp_done(v);
}

static weft_tensor as_strided(weft_tensor x, int rank, const int64_t *dims, const int64_t *strides,
                              int64_t offset)
{
    int64_t d[2 * WF_MAX_RANK + 1], r = rank;
    memcpy(d, dims, (size_t)rank * sizeof *d);
    memcpy(d + rank, strides, (size_t)rank * sizeof *d);
    d[2 * rank] = offset;
    wf_attr contiguous = {0};
    wf_attr a = {.n_ints = 1, .ints = &r, .n_dyn = (uint8_t)(2 * rank + 1), .dyn = d};
    return wf_op1(WF_OP_AS_STRIDED, &a, wf_op1(WF_OP_COPY, &contiguous, x));
}

WF_VJP(strided_grad, WF_SAVES_NONE)
{
    wf_type x, y;
    wf_vjp_src_type(v, 0, &x);
    wf_vjp_dst_type(v, 0, &y);
    const int64_t *d = v->attr->dyn + y.rank;
    v->dsrc[0] = as_strided(v->g[0], x.rank, x.dims, d, d[x.rank]);
    return wf_vjp_done(v);
}

WF_VJP(diagonal, WF_SAVES_NONE)
{
    wf_type x;
    int64_t row[WF_MAX_RANK], st[WF_MAX_RANK], step = 1;
    int64_t a1 = v->attr->ints[0], a2 = v->attr->ints[1], off = v->attr->dyn[0];
    wf_vjp_src_type(v, 0, &x);
    for (int i = x.rank; i-- > 0;) {
        row[i] = step;
        step *= x.dims[i];
    }
    int k = 0;
    for (int i = 0; i < x.rank; i++) {
        if (i != a1 && i != a2) {
            st[k++] = row[i];
        }
    }
    st[k++] = row[a1] + row[a2];
    v->dsrc[0] = strided_grad(v->g[0], &x, k, st, off >= 0 ? off * row[a2] : -off * row[a1]);
    return wf_vjp_done(v);
}

WF_VJP(copy, WF_SAVES_NONE)
{
    v->dsrc[0] = v->g[0];
    if (v->attr->n_ints == 2) { /* to another device: back again */
        int64_t ints[2] = {v->attr->ints[1], v->attr->ints[0]};
        v->dsrc[0] = wf_op1(WF_OP_COPY, &(wf_attr){.n_ints = 2, .ints = ints}, v->g[0]);
        return wf_vjp_done(v);
    }
    return 0;
}

WF_VJP(cast, WF_SAVES_NONE)
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    v->dsrc[0] = wf_as_dtype(v->g[0], x.dtype);
    return wf_vjp_done(v);
}

WF_VJP(concat, WF_SAVES_TYPES)
{
    int64_t axis = v->attr->ints[0], at = 0;
    for (int i = 0; i < v->nsrc; i++) {
        wf_type x;
        wf_vjp_src_type(v, i, &x);
        v->dsrc[i] = slice(v->g[0], axis, at, at + x.dims[axis], 1);
        at += x.dims[axis];
    }
    return wf_vjp_done(v);
}

WF_VJP(pad, WF_SAVES_NONE)
{
    int64_t d[2 * WF_MAX_RANK];
    double zero = 0;
    for (int i = 0; i < v->attr->n_dyn; i++) {
        d[i] = -v->attr->dyn[i];
    }
    wf_attr a = {.n_dyn = v->attr->n_dyn, .dyn = d, .n_flt = 1, .flt = &zero};
    v->dsrc[0] = wf_op1(WF_OP_PAD, &a, v->g[0]);
    return wf_vjp_done(v);
}

/* Which elements stand where follows from the extents alone, so that both are linear and each the other's transpose. */
WF_VJP(pad_mode, WF_SAVES_NONE)
{
    v->dsrc[0] = wf_op1(WF_OP_PAD_MODE_BWD, v->attr, v->g[0]);
    return wf_vjp_done(v);
}

WF_VJP(pad_mode_bwd, WF_SAVES_NONE)
{
    v->dsrc[0] = wf_op1(WF_OP_PAD_MODE, v->attr, v->g[0]);
    return wf_vjp_done(v);
}

WF_VJP(roll, WF_SAVES_NONE)
{
    int64_t d[WF_MAX_RANK];
    for (int i = 0; i < v->attr->n_dyn; i++) {
        d[i] = -v->attr->dyn[i];
    }
    wf_attr a = *v->attr;
    a.dyn = d;
    v->dsrc[0] = wf_op1(WF_OP_ROLL, &a, v->g[0]);
    return wf_vjp_done(v);
}

/* TRIL and TRIU are projections. */
WF_VJP(tri, WF_SAVES_NONE)
{
    v->dsrc[0] = wf_op1(v->op, v->attr, v->g[0]);
    return wf_vjp_done(v);
}

/* y = x0 with the mapped elements replaced by x1. */
WF_VJP(update, WF_SAVES_NONE)
{
    wf_type x1, y;
    wf_vjp_dst_type(v, 0, &y);
    const int64_t *d = v->attr->dyn;
    int rank = (int)v->attr->ints[0];
    weft_tensor g = v->g[0];
    if (v->need[0]) {
        weft_tensor hole = full(y.dtype, rank, d, 0);
        v->dsrc[0] = wf_op2(WF_OP_UPDATE, v->attr, g, hole);
        wf_type x0;
        wf_vjp_src_type(v, 0, &x0);
        v->dsrc[0] = reshape(v->dsrc[0], x0.rank, x0.dims);
    }
    if (v->need[1]) {
        wf_vjp_src_type(v, 1, &x1);
        v->dsrc[1] = as_strided(g, rank, d, d + rank, d[2 * rank]);
    }
    return wf_vjp_done(v);
}

/* -- indexing ------------------------------------------------------------------------------------------------ */

WF_VJP(take_along, WF_SAVES_SRC(1))
{
    return v->need[0] ? wf_vjp_add_at(v, WF_OP_SCATTER_ADD, v->attr, wf_vjp_src(v, 1), v->g[0]) : 0;
}

WF_VJP(index_select, WF_SAVES_SRC(1))
{
    return v->need[0] ? wf_vjp_add_at(v, WF_OP_INDEX_ADD, v->attr, wf_vjp_src(v, 1), v->g[0]) : 0;
}

WF_VJP(scatter_add, WF_SAVES_SRC(1))
{
    if (v->need[0]) {
        v->dsrc[0] = v->g[0];
    }
    if (v->need[2]) {
        v->dsrc[2] = wf_op2(WF_OP_TAKE_ALONG, v->attr, v->g[0], wf_vjp_src(v, 1));
    }
    return wf_vjp_done(v);
}

WF_VJP(index_add, WF_SAVES_SRC(1))
{
    if (v->need[0]) {
        v->dsrc[0] = v->g[0];
    }
    if (v->need[2]) {
        v->dsrc[2] = wf_op2(WF_OP_INDEX_SELECT, v->attr, v->g[0], wf_vjp_src(v, 1));
    }
    return wf_vjp_done(v);
}

/* SORT and TOPK: values go back where they came from. */
WF_VJP(sort, WF_SAVES_DST(1))
{
    int64_t axis = v->attr->ints[0];
    wf_attr a = {.n_ints = 1, .ints = &axis};
    const bool wanted = v->need[0] && v->g[0].slot;
    return wanted ? wf_vjp_add_at(v, WF_OP_SCATTER_ADD, &a, wf_vjp_dst(v, 1), v->g[0]) : 0;
}
