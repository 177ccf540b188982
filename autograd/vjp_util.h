/*
 * autograd/vjp_util.h -- short names for the ops that derivatives are written in.
 *
 * Everything returns a handle of the current scope; an empty operand passes its error through, so a
 * derivative checks once, when it returns what it stored (wf_vjp_done).
 */
#ifndef AUTOGRAD_VJP_UTIL_H
#define AUTOGRAD_VJP_UTIL_H

#include <string.h>

#include "autograd/vjp.h"

#define WF_U __attribute__((unused)) static inline

WF_U weft_tensor add(weft_tensor a, weft_tensor b)
{
    return wf_op2(WF_OP_ADD, NULL, a, b);
}
WF_U weft_tensor sub(weft_tensor a, weft_tensor b)
{
    return wf_op2(WF_OP_SUB, NULL, a, b);
}
WF_U weft_tensor mul(weft_tensor a, weft_tensor b)
{
    return wf_op2(WF_OP_MUL, NULL, a, b);
}
WF_U weft_tensor divide(weft_tensor a, weft_tensor b)
{
    return wf_op2(WF_OP_DIV, NULL, a, b);
}
WF_U weft_tensor neg(weft_tensor a)
{
    return wf_op1(WF_OP_NEG, NULL, a);
}
WF_U weft_tensor expo(weft_tensor a)
{
    return wf_op1(WF_OP_EXP, NULL, a);
}
WF_U weft_tensor equal(weft_tensor a, weft_tensor b)
{
    return wf_op2(WF_OP_EQUAL, NULL, a, b);
}
WF_U weft_tensor where(weft_tensor p, weft_tensor a, weft_tensor b)
{
    return wf_op3(WF_OP_WHERE, NULL, p, a, b);
}
WF_U weft_tensor matmul(weft_tensor a, weft_tensor b)
{
    return wf_op2(WF_OP_MATMUL, NULL, a, b);
}

WF_U weft_tensor reshape(weft_tensor x, int rank, const int64_t *dims)
{
    wf_attr a = {.n_dyn = (uint8_t)rank, .dyn = dims};
    return wf_op1(WF_OP_RESHAPE, &a, x);
}
WF_U weft_tensor expand(weft_tensor x, int rank, const int64_t *dims)
{
    wf_attr a = {.n_dyn = (uint8_t)rank, .dyn = dims};
    return wf_op1(WF_OP_EXPAND, &a, x);
}
WF_U weft_tensor permute(weft_tensor x, int rank, const int64_t *perm)
{
    wf_attr a = {.n_ints = (uint8_t)rank, .ints = perm};
    return wf_op1(WF_OP_PERMUTE, &a, x);
}
WF_U weft_tensor slice(weft_tensor x, int64_t axis, int64_t start, int64_t stop, int64_t step)
{
    int64_t d[3] = {start, stop, step};
    wf_attr a = {.n_ints = 1, .ints = &axis, .n_dyn = 3, .dyn = d};
    return wf_op1(WF_OP_SLICE, &a, x);
}
/* The axis in reverse order. */
WF_U weft_tensor flip(weft_tensor x, int64_t axis, int64_t extent)
{
    return extent < 2 ? x : slice(x, axis, extent - 1, -1, -1);
}
WF_U weft_tensor full(int dtype, int rank, const int64_t *dims, double value)
{
    wf_attr a = {
        .dtype = (uint8_t)dtype, .n_dyn = (uint8_t)rank, .dyn = dims, .n_flt = 1, .flt = &value};
    return wf_op0(WF_OP_FULL, &a);
}
WF_U weft_tensor zeros_of(const wf_type *t)
{
    return full(t->dtype, t->rank, t->dims, 0);
}
/* Sum or mean over axes (sorted), in x's own dtype. */
WF_U weft_tensor reduce(wf_op op, weft_tensor x, int n, const int64_t *axes, bool keepdim,
                        int dtype)
{
    wf_attr a = {.dtype = (uint8_t)dtype,
                 .flags = keepdim ? WF_FLAG_KEEPDIM : 0,
                 .n_ints = (uint8_t)n,
                 .ints = axes};
    return wf_op1(op, &a, x);
}
WF_U weft_tensor with_axis(wf_op op, int64_t axis, weft_tensor x)
{
    wf_attr a = {.n_ints = 1, .ints = &axis};
    return wf_op1(op, &a, x);
}

/* The axes a reduction row reduces (none given: all of them). */
WF_U int reduced_axes(const wf_attr *a, int rank, int64_t *axes)
{
    if (a->n_ints) {
        memcpy(axes, a->ints, a->n_ints * sizeof *axes);
        return a->n_ints;
    }
    for (int i = 0; i < rank; i++) {
        axes[i] = i;
    }
    return rank;
}
/* g or a saved result of a reduction row with its reduced axes put back as extent 1. */
WF_U weft_tensor keep_axes(const wf_attr *a, weft_tensor g, const wf_type *x)
{
    int64_t axes[WF_MAX_RANK], dims[WF_MAX_RANK];
    if (a->flags & WF_FLAG_KEEPDIM) {
        return g;
    }
    int n = reduced_axes(a, x->rank, axes);
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 0; i < n; i++) {
        dims[axes[i]] = 1;
    }
    return reshape(g, x->rank, dims);
}
WF_U int64_t reduced_count(const wf_attr *a, const wf_type *x)
{
    int64_t axes[WF_MAX_RANK], n = 1;
    int k = reduced_axes(a, x->rank, axes);
    for (int i = 0; i < k; i++) {
        n *= x->dims[axes[i]];
    }
    return n;
}

/* Status of what a vjp stored; use as its return value. */
WF_U int wf_vjp_done(wf_vjp *v)
{
    for (int i = 0; i < v->nsrc; i++) {
        if (wf_is_error(v->dsrc[i])) {
            return (int)weft_error_status(v->dsrc[i]);
        }
    }
    return 0;
}

#undef WF_U
#endif
