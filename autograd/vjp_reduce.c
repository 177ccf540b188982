/*
 * autograd/vjp_reduce.c -- derivatives of reductions and scans.
 *
 * Ties of max and min share the gradient equally. Products divide by their factors, in f64, but for those that are 0, whose
 * gradients are products of the others; gradients that will be differentiated, and those of running products, divide by nothing: what
 * is masked out at a 0 has a derivative. Arithmetic on half types runs in the type of the saved operand; each gradient rounds once.
 */
#include "autograd/vjp_util.h"
#include "eager/device.h"
#include "eager/pool.h"

/* g spread over x: reduced axes back as 1, then expanded, in x's dtype. */
static weft_tensor spread(wf_vjp *v, weft_tensor g, const wf_type *x)
{
    return expand(wf_as_dtype(keep_axes(v->attr, g, x), x->dtype), x->rank, x->dims);
}

WF_VJP(sum, WF_SAVES_NONE)
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    v->dsrc[0] = spread(v, v->g[0], &x);
    return wf_vjp_done(v);
}

WF_VJP(mean, WF_SAVES_NONE)
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    double n = (double)reduced_count(v->attr, &x);
    v->dsrc[0] = spread(v, divide(v->g[0], weft_f(n)), &x);
    return wf_vjp_done(v);
}

/* AMAX and AMIN. */
WF_VJP(amax, WF_SAVES_SRC(0) | WF_SAVES_DST(0))
{
    wf_type x;
    int64_t axes[WF_MAX_RANK];
    wf_vjp_src_type(v, 0, &x);
    int n = reduced_axes(v->attr, x.rank, axes);
    weft_tensor hit = equal(wf_vjp_src(v, 0), keep_axes(v->attr, wf_vjp_dst(v, 0), &x));
    weft_tensor count =
        n ? reduce(WF_OP_SUM, wf_as_dtype(hit, WEFT_F32), n, axes, true, WEFT_F32) : weft_f(1);
    weft_tensor g = keep_axes(v->attr, v->g[0], &x);
    int wide = wf_dtype_compute(x.dtype);
    g = divide(wf_as_dtype(g, wide), wf_as_dtype(count, wide));
    v->dsrc[0] = wf_as_dtype(where(hit, g, weft_f(0)), x.dtype);
    return wf_vjp_done(v);
}

/* x - mean(x) in the wide type. */
static weft_tensor centred(wf_vjp *v, const wf_type *x, int wide)
{
    int64_t axes[WF_MAX_RANK];
    int n = reduced_axes(v->attr, x->rank, axes);
    weft_tensor s = wf_as_dtype(wf_vjp_src(v, 0), wide);
    return n ? sub(s, reduce(WF_OP_MEAN, s, n, axes, true, wide)) : sub(s, s);
}

WF_VJP(var, WF_SAVES_SRC(0))
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    int wide = wf_dtype_compute(x.dtype);
    double n = (double)reduced_count(v->attr, &x) - v->attr->flt[0];
    weft_tensor g = wf_as_dtype(keep_axes(v->attr, v->g[0], &x), wide);
    v->dsrc[0] =
        wf_as_dtype(mul(mul(g, weft_f(wf_plain_quotient(2, n))), centred(v, &x, wide)), x.dtype);
    return wf_vjp_done(v);
}

WF_VJP(std, WF_SAVES_SRC(0) | WF_SAVES_DST(0))
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    int wide = wf_dtype_compute(x.dtype);
    double n = (double)reduced_count(v->attr, &x) - v->attr->flt[0];
    weft_tensor g = wf_as_dtype(keep_axes(v->attr, v->g[0], &x), wide);
    weft_tensor y = wf_as_dtype(keep_axes(v->attr, wf_vjp_dst(v, 0), &x), wide);
    weft_tensor scale = where(equal(y, weft_f(0)), weft_f(0), divide(g, mul(y, weft_f(n))));
    v->dsrc[0] = wf_as_dtype(mul(scale, centred(v, &x, wide)), x.dtype);
    return wf_vjp_done(v);
}

static weft_tensor sign_of(weft_tensor x)
{
    return wf_op1(WF_OP_SIGN, NULL, x);
}

WF_VJP(norm, WF_SAVES_SRC(0) | WF_SAVES_DST(0))
{
    wf_type t;
    int64_t axes[WF_MAX_RANK];
    wf_vjp_src_type(v, 0, &t);
    int wide = wf_dtype_compute(t.dtype);
    int n = reduced_axes(v->attr, t.rank, axes);
    double p = v->attr->flt[0];
    weft_tensor g = wf_as_dtype(keep_axes(v->attr, v->g[0], &t), wide);
    weft_tensor x = wf_as_dtype(wf_vjp_src(v, 0), wide);
    weft_tensor y = wf_as_dtype(keep_axes(v->attr, wf_vjp_dst(v, 0), &t), wide);
    weft_tensor zero = weft_f(0), d;
    weft_tensor mag = wf_op1(WF_OP_ABS, NULL, x);
    if (p == 2) {
        d = mul(x, where(equal(y, zero), zero, divide(g, y)));
    } else if (p == 1) {
        d = mul(sign_of(x), g);
    } else if (p == 0) {
        d = mul(sign_of(x), mul(g, zero));
    } else if (p > 1e308 || p < -1e308) {
        weft_tensor hit = equal(mag, y);
        weft_tensor count =
            n ? reduce(WF_OP_SUM, wf_as_dtype(hit, wide), n, axes, true, wide) : weft_f(1);
        d = mul(where(hit, divide(g, count), zero), sign_of(x));
    } else {
        /* none to or beside a zero that makes the norm zero; its ratio is 1, since another power may be infinite */
        weft_tensor one = weft_f(1), none = equal(y, zero);
        weft_tensor dead = wf_op2(WF_OP_LOGICAL_OR, NULL, equal(x, zero), none);
        weft_tensor ratio = divide(where(dead, one, mag), where(none, one, y));
        weft_tensor power = wf_op2(WF_OP_POW, NULL, ratio, weft_f(p - 1));
        d = mul(mul(where(dead, zero, power), sign_of(x)), g);
    }
    v->dsrc[0] = wf_as_dtype(d, t.dtype);
    return wf_vjp_done(v);
}

WF_VJP(logsumexp, WF_SAVES_SRC(0) | WF_SAVES_DST(0))
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    int wide = wf_dtype_compute(x.dtype);
    weft_tensor g = wf_as_dtype(keep_axes(v->attr, v->g[0], &x), wide);
    weft_tensor y = wf_as_dtype(keep_axes(v->attr, wf_vjp_dst(v, 0), &x), wide);
    weft_tensor e = expo(sub(wf_as_dtype(wf_vjp_src(v, 0), wide), y));
    v->dsrc[0] = wf_as_dtype(mul(g, e), x.dtype);
    return wf_vjp_done(v);
}

/* -- scans -------------------------------------------------------------------------------------------------- */

WF_VJP(cumsum, WF_SAVES_NONE)
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    int64_t axis = v->attr->ints[0];
    weft_tensor g = flip(v->g[0], axis, x.rank ? x.dims[axis] : 1);
    g = flip(with_axis(WF_OP_CUMSUM, axis, g), axis, x.rank ? x.dims[axis] : 1);
    v->dsrc[0] = wf_as_dtype(g, x.dtype);
    return wf_vjp_done(v);
}

/* Product of the elements before each one along the last axis of x[rows, n]. */
static weft_tensor exclusive_prefix(weft_tensor x, int dt, int64_t rows, int64_t n)
{
    int64_t one[2] = {rows, 1};
    weft_tensor s[2] = {full(dt, 2, one, 1), slice(x, 1, 0, n - 1, 1)}, r;
    int64_t axis = 1;
    wf_attr a = {.n_ints = 1, .ints = &axis};
    wf_dispatch(WF_OP_CONCAT, &a, 2, s, 1, &r);
    return with_axis(WF_OP_CUMPROD, 1, r);
}

/* Whether no factor is 0, where that can be looked at: derivatives have the same bits if it is not known. there: how many of
 * each `cols` are not. */
static bool has_no_zeros(const wf_vjp *v, weft_tensor there, int64_t cols)
{
    if (v->c->recorder || v->c->device != WF_DEVICE_HOST || there.slot == 0) {
        return false;
    }
    const int64_t *at = weft_data(there), count = weft_numel(there);
    int64_t i = 0;
    while (at && i < count && at[i] == cols) {
        i++;
    }
    return i == count;
}

/* g times the product of all others: of one factor 0 the product without it, of several 0. */
static weft_tensor prod_by_division(wf_vjp *v, weft_tensor g, weft_tensor x, int n,
                                    const int64_t *axes, int64_t cols, int wide)
{
    const weft_tensor nothing = weft_f(0);
    const weft_tensor there = reduce(WF_OP_COUNT_NONZERO, x, n, axes, true, WEFT_DTYPE_DEFAULT);
    if (has_no_zeros(v, there, cols)) {
        return divide(mul(g, reduce(WF_OP_PROD, x, n, axes, true, wide)), x);
    }
    const weft_tensor zero = equal(x, nothing);
    const weft_tensor rest =
        mul(g, reduce(WF_OP_PROD, where(zero, weft_f(1), x), n, axes, true, wide));
    return where(zero, where(equal(there, weft_i(cols - 1)), rest, nothing),
                 where(equal(there, weft_i(cols)), divide(rest, x), nothing));
}

/* d prod / d x_i is the product of all others: prefix times suffix. */
static weft_tensor prod_by_scans(weft_tensor g, weft_tensor x, const wf_type *type, int n,
                                 const int64_t *axes, int64_t cols, int wide)
{
    const wf_type t = *type;
    int64_t perm[WF_MAX_RANK], back[WF_MAX_RANK], dims[WF_MAX_RANK];
    int kept = 0, at = t.rank - n;
    bool is_reduced[WF_MAX_RANK] = {false};
    for (int i = 0; i < n; i++) {
        is_reduced[axes[i]] = true;
    }
    for (int i = 0; i < t.rank; i++) {
        perm[is_reduced[i] ? at++ : kept++] = i;
    }
    int64_t rows = 1;
    for (int i = 0; i < t.rank; i++) {
        back[perm[i]] = i;
        dims[i] = t.dims[perm[i]];
        rows *= i < t.rank - n ? dims[i] : 1;
    }
    int64_t flat[2] = {rows, cols};
    x = reshape(permute(x, t.rank, perm), 2, flat);
    weft_tensor left = exclusive_prefix(x, wide, rows, cols);
    weft_tensor right = flip(exclusive_prefix(flip(x, 1, cols), wide, rows, cols), 1, cols);
    return mul(g, permute(reshape(mul(left, right), t.rank, dims), t.rank, back));
}

WF_VJP(prod, WF_SAVES_SRC(0))
{
    wf_type t;
    int64_t axes[WF_MAX_RANK];
    wf_vjp_src_type(v, 0, &t);
    /* Divided products are f64's: those of all factors may be far beyond what they are without one. */
    const int wide = v->create_graph ? wf_dtype_compute(t.dtype) : WEFT_F64;
    const int n = reduced_axes(v->attr, t.rank, axes);
    const int64_t cols = reduced_count(v->attr, &t);
    weft_tensor g = wf_as_dtype(keep_axes(v->attr, v->g[0], &t), wide);
    weft_tensor x = wf_as_dtype(wf_vjp_src(v, 0), wf_dtype_compute(t.dtype));
    if (n == 0 || cols == 0) {
        x = n == 0 ? g : x;
    } else {
        x = v->create_graph ? prod_by_scans(g, x, &t, n, axes, cols, wide)
                            : prod_by_division(v, g, x, n, axes, cols, wide);
    }
    v->dsrc[0] = wf_as_dtype(x, t.dtype);
    return wf_vjp_done(v);
}

/* d y_j / d x_i = product of x_k, k <= j, k != i: a matrix of n x n products, zeros included. */
static weft_tensor cumprod_by_matrix(weft_tensor g, weft_tensor x, int wide, int64_t rows,
                                     int64_t n)
{
    int64_t d3[3] = {rows, n, n}, row[3] = {rows, 1, n}, axis = 2;
    double one = 1;
    wf_attr eye = {.dtype = WEFT_BOOL, .n_dyn = 3, .dyn = (int64_t[]){n, n, 0}};
    int64_t diag = 0;
    wf_attr triu = {.n_dyn = 1, .dyn = &diag};
    weft_tensor skip = expand(wf_op0(WF_OP_EYE, &eye), 3, d3);
    weft_tensor m = where(skip, weft_f(one), expand(reshape(x, 3, row), 3, d3));
    m = mul(with_axis(WF_OP_CUMPROD, axis, m), reshape(g, 3, row));
    /* what lies left of the diagonal is dropped, not multiplied by 0: it may be infinite */
    return reduce(WF_OP_SUM, wf_op1(WF_OP_TRIU, &triu, m), 1, &axis, false, wide);
}

/* `before` and `after` elements of `value` around x[rows, n]. */
static weft_tensor pad_rows(weft_tensor x, int64_t before, int64_t after, double value)
{
    int64_t d[4] = {0, 0, before, after};
    wf_attr a = {.n_dyn = 4, .dyn = d, .n_flt = 1, .flt = &value};
    return before || after ? wf_op1(WF_OP_PAD, &a, x) : x;
}

/* Gradient of the running products of x[rows, n] given that of the results. Nothing is divided, so zeros are right. Long rows are
 * taken in blocks: y[b, t] = before[b] * c[b, t], of which c are running products of a block alone, and before[b] those
 * of the last c of blocks before it. */
static weft_tensor cumprod_gradient(weft_tensor g, weft_tensor x, int wide, int64_t rows, int64_t n)
{
    enum { BLOCK = 32 };
    if (n <= BLOCK) {
        return cumprod_by_matrix(g, x, wide, rows, n);
    }
    int64_t m = (n + BLOCK - 1) / BLOCK, rest = m * BLOCK - n, axis = 1;
    int64_t flat[2] = {rows * m, BLOCK}, whole[2] = {rows, m * BLOCK};
    int64_t one[2] = {rows * m, 1}, blocks[2] = {rows, m};
    x = reshape(pad_rows(x, 0, rest, 1), 2, flat);
    g = reshape(pad_rows(g, 0, rest, 0), 2, flat);
    weft_tensor c = with_axis(WF_OP_CUMPROD, axis, x);
    weft_tensor last = reshape(slice(c, 1, BLOCK - 1, BLOCK, 1), 2, blocks);
    weft_tensor before = reshape(exclusive_prefix(last, wide, rows, m), 2, one);
    weft_tensor d = reshape(reduce(WF_OP_SUM, mul(g, c), 1, &axis, false, wide), 2, blocks);
    d = cumprod_gradient(slice(d, 1, 1, m, 1), slice(last, 1, 0, m - 1, 1), wide, rows, m - 1);
    d = pad_rows(reshape(pad_rows(d, 0, 1, 0), 2, one), BLOCK - 1, 0, 0);
    d = cumprod_by_matrix(add(mul(g, before), d), x, wide, rows * m, BLOCK);
    return slice(reshape(d, 2, whole), 1, 0, n, 1);
}

WF_VJP(cumprod, WF_SAVES_SRC(0))
{
    wf_type t;
    wf_vjp_src_type(v, 0, &t);
    const int wide = WEFT_F64; /* as the row itself, so that partial products overflow no sooner */
    weft_tensor g = wf_as_dtype(v->g[0], wide), x = wf_as_dtype(wf_vjp_src(v, 0), wide);
    if (t.rank == 0) {
        v->dsrc[0] = wf_as_dtype(g, t.dtype);
        return wf_vjp_done(v);
    }
    int64_t axis = v->attr->ints[0], n = t.dims[axis];
    int64_t perm[WF_MAX_RANK], dims[WF_MAX_RANK], rows = 1;
    for (int i = 0; i < t.rank; i++) {
        perm[i] = i;
    }
    perm[axis] = t.rank - 1;
    perm[t.rank - 1] = axis;
    for (int i = 0; i < t.rank; i++) {
        dims[i] = t.dims[perm[i]];
        rows *= i < t.rank - 1 ? dims[i] : 1;
    }
    int64_t flat[2] = {rows, n};
    weft_tensor d = cumprod_gradient(reshape(permute(g, t.rank, perm), 2, flat),
                                     reshape(permute(x, t.rank, perm), 2, flat), wide, rows, n);
    v->dsrc[0] = wf_as_dtype(permute(reshape(d, t.rank, dims), t.rank, perm), t.dtype);
    return wf_vjp_done(v);
}
