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
    g = wf_as_dtype(g, wide);
    g = divide(g, wf_as_dtype(count, wide));
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
    g = mul(g, weft_f(wf_plain_quotient(2, n)));
    v->dsrc[0] = wf_as_dtype(mul(g, centred(v, &x, wide)), x.dtype);
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
    weft_tensor flat = equal(y, weft_f(0));
    weft_tensor scale = where(flat, weft_f(0), divide(g, mul(y, weft_f(n))));
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
        weft_tensor none = equal(y, zero);
        d = mul(x, where(none, zero, divide(g, y)));
    } else if (p == 1) {
        d = mul(sign_of(x), g);
    } else if (p == 0) {
        d = mul(g, zero);
        d = mul(sign_of(x), d);
    } else if (p > 1e308 || p < -1e308) {
        weft_tensor hit = equal(mag, y);
        weft_tensor count =
            n ? reduce(WF_OP_SUM, wf_as_dtype(hit, wide), n, axes, true, wide) : weft_f(1);
        d = where(hit, divide(g, count), zero);
        d = mul(d, sign_of(x));
    } else {
        /* none to or beside a zero that makes the norm zero; its ratio is 1, since another power may be infinite */
        weft_tensor one = weft_f(1), none = equal(y, zero);
        weft_tensor dead = wf_op2(WF_OP_LOGICAL_OR, NULL, equal(x, zero), none);
        weft_tensor ratio = where(dead, one, mag);
        ratio = divide(ratio, where(none, one, y));
        weft_tensor power = wf_op2(WF_OP_POW, NULL, ratio, weft_f(p - 1));
        power = where(dead, zero, power);
        d = mul(mul(power, sign_of(x)), g);
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
    const weft_tensor one = equal(there, weft_i(cols - 1)), none = equal(there, weft_i(cols));
    const weft_tensor its = where(one, rest, nothing), all = divide(rest, x);
    return where(zero, its, where(none, all, nothing));
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

/* `before` and `after` elements of `value` around the middle axis of x. */
static weft_tensor pad_lines(weft_tensor x, int64_t before, int64_t after, double value)
{
    int64_t d[6] = {0, 0, before, after, 0, 0};
    wf_attr a = {.n_dyn = 6, .dyn = d, .n_flt = 1, .flt = &value};
    return before || after ? wf_op1(WF_OP_PAD, &a, x) : x;
}

/* Gradient of the running products along the middle axis of x[d], n of them, given that of the results. Nothing is divided, and what lies
 * before an element is multiplied first, so that zeros are right whatever follows them. Lines are taken in blocks: of block b
 * y[b, t] = before[b] * c[b, t], of which c are running products of the block alone, and before[b] those of the last c of
 * blocks before it. d y[b, j] / d x[b, i] = before[b] * the product of x[b, k], k <= j, k != i. */
static weft_tensor cumprod_gradient(weft_tensor g, weft_tensor x, const int64_t *d)
{
    enum { BLOCK = 4 };
    const int r = d[1] < BLOCK ? (int)d[1] : BLOCK;
    const int64_t m = (d[1] + r - 1) / r, all[3] = {d[0], m * r, d[2]};
    weft_tensor at[BLOCK], of[BLOCK], c[BLOCK],
        dx[BLOCK];                                      /* every r-th element, from the t-th on */
    weft_tensor all_of = WEFT_NONE, finite = WEFT_NONE; /* the gradient of a block's product */
    x = pad_lines(x, 0, all[1] - d[1], 1);
    g = pad_lines(g, 0, all[1] - d[1], 0);
    for (int t = 0; t < r; t++) {
        at[t] = slice(x, 1, t, all[1], r);
        of[t] = slice(g, 1, t, all[1], r);
        c[t] = t ? mul(c[t - 1], at[t]) : at[0];
    }
    if (m > 1) {
        const int64_t fewer[3] = {d[0], m - 1, d[2]};
        weft_tensor last = slice(c[r - 1], 1, 0, m - 1, 1), sum = mul(of[0], c[0]);
        const weft_tensor before = pad_lines(with_axis(WF_OP_CUMPROD, 1, last), 1, 0, 1);
        for (int t = 1; t < r; t++) {
            sum = wf_op3(WF_OP_ADDCMUL, NULL, sum, of[t], c[t]);
        }
        all_of = pad_lines(cumprod_gradient(slice(sum, 1, 1, m, 1), last, fewer), 0, 1, 0);
        finite = wf_op2(WF_OP_MAXIMUM, NULL, all_of, weft_f(-0x1.fffffffffffffp1023));
        finite = wf_op2(WF_OP_MINIMUM, NULL, finite, weft_f(0x1.fffffffffffffp1023));
        for (int t = 0; t < r; t++) {
            of[t] = mul(of[t], before);
        }
    }
    if (d[1] == 1) { /* times nothing, but of x */
        of[0] = mul(of[0], pad_lines(slice(x, 1, 0, 0, 1), 1, 0, 1));
    }
    for (int i = 0; i < r; i++) {
        const int64_t one[4] = {d[0], m, 1, d[2]};
        weft_tensor product = i ? c[i - 1] : at[0];
        dx[i] = i ? mul(product, of[i]) : of[0];
        for (int j = i + 1; j < r; j++) {
            product = j == 1 ? at[1] : mul(product, at[j]);
            dx[i] = wf_op3(WF_OP_ADDCMUL, NULL, dx[i], product, of[j]);
        }
        if (m > 1) { /* it may overflow: nothing of that is nothing */
            dx[i] = wf_op3(WF_OP_ADDCMUL, NULL, dx[i], product,
                           where(equal(product, weft_f(0)), finite, all_of));
        }
        dx[i] = reshape(dx[i], 4, one);
    }
    wf_attr along = {.n_ints = 1, .ints = &(const int64_t){2}};
    wf_dispatch(WF_OP_CONCAT, &along, r, dx, 1, &x);
    return slice(reshape(x, 3, all), 1, 0, d[1], 1);
}

/* The same of x[d] of any type along the middle axis, to that type. turned: lines of memory are laid side by side, so that a step of
 * them all is one of whole registers. */
static weft_tensor cumprod_lines(weft_tensor g, weft_tensor x, const int64_t *d, int dtype,
                                 bool turned)
{
    const int wide = WEFT_F64; /* as the row itself, so that partial products overflow no sooner */
    const int64_t turn[3] = {2, 1, 0}, beside[3] = {d[2], d[1], d[0]};
    x = wf_as_dtype(turned ? permute(x, 3, turn) : x, wide);
    g = wf_as_dtype(turned ? permute(g, 3, turn) : g, wide);
    g = d[1] > 0 ? cumprod_gradient(g, x, turned ? beside : d) : g;
    g = wf_as_dtype(g, dtype);
    return turned ? permute(g, 3, turn) : g;
}

/* What is in between is many times as large: lines, which know nothing of each other, are taken some at a time, so that it stays in a
 * cache. */
static weft_tensor cumprod_parts(weft_tensor g, weft_tensor x, const int64_t *d, int dtype,
                                 bool turned)
{
    enum { PART = 1 << 16, MOST = 64 };
    const int axis = d[0] > 1 ? 0 : 2;
    const int64_t lines = d[axis], wanted = d[0] * d[1] * d[2] / PART;
    const int64_t parts = wanted < MOST ? wanted : MOST, each = (lines + parts - 1) / parts;
    weft_tensor part[MOST], y;
    int n = 0;
    for (int64_t at = 0; at < lines; at += each) {
        const int64_t end = lines - at < each ? lines : at + each;
        int64_t some[3] = {d[0], d[1], d[2]};
        some[axis] = end - at;
        weft_scope sc = weft_scope_begin();
        const weft_tensor some_g = slice(g, axis, at, end, 1);
        y = cumprod_lines(some_g, slice(x, axis, at, end, 1), some, dtype, turned);
        part[n++] = weft_scope_return(sc, y);
    }
    wf_attr along = {.n_ints = 1, .ints = &(const int64_t){axis}};
    wf_dispatch(WF_OP_CONCAT, &along, n, part, 1, &y);
    return y;
}

WF_VJP(cumprod, WF_SAVES_SRC(0))
{
    enum { LARGE = 1 << 18 }; /* elements */
    wf_type t;
    wf_vjp_src_type(v, 0, &t);
    const int64_t axis = v->attr->ints[0], n = t.rank ? t.dims[axis] : 1;
    int64_t d[3] = {1, n, 1};
    for (int i = 0; i < t.rank; i++) {
        d[i < axis ? 0 : 2] *= i == axis ? 1 : t.dims[i];
    }
    const bool turned = t.rank > 1 && axis == t.rank - 1;
    const bool parts = !v->create_graph && !v->c->recorder && v->c->device == WF_DEVICE_HOST &&
                       d[0] * n * d[2] > LARGE;
    weft_tensor g = reshape(v->g[0], 3, d), x = reshape(wf_vjp_src(v, 0), 3, d);
    g = (parts ? cumprod_parts : cumprod_lines)(g, x, d, t.dtype, turned);
    v->dsrc[0] = reshape(g, t.rank, t.dims);
    return wf_vjp_done(v);
}
