/*
 * autograd/vjp_nn.c -- derivatives of matrix products, convolution, attention, norms and losses.
 *
 * Rows with a fused backward (softmax, norms, cross entropy, attention) call it when the gradient is
 * final; when it will be differentiated again they spell the same computation out in ops, recomputing
 * from the operands so that every dependence is on the tape. GRAD rows are therefore never recorded.
 */
#include "autograd/vjp_util.h"

#include "eager/device.h"
#include "eager/layout.h"
#include "eager/pool.h"

/* Is t an image of the host that lies channels-last? */
static bool lies_last(wf_vjp *v, weft_tensor t)
{
    bool pinned;
    wf_slot *s = v->c->device == WF_DEVICE_HOST ? wf_pin(v->c, t, &pinned, NULL) : NULL;
    const bool yes = s && wf_slot_lies_last(s);
    if (s && pinned) {
        wf_unpin(v->c, s);
    }
    return yes;
}

static weft_tensor turn(weft_tensor x)
{
    static const int64_t axes[4] = WF_LAST_AXES;
    return permute(x, 4, axes);
}
static weft_tensor turn_back(weft_tensor x)
{
    static const int64_t axes[4] = WF_FIRST_AXES;
    return permute(x, 4, axes);
}

static weft_tensor swap_last(weft_tensor x, int rank)
{
    int64_t p[WF_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        p[i] = i;
    }
    p[rank - 1] = rank - 2;
    p[rank - 2] = rank - 1;
    return permute(x, rank, p);
}

/* -- matrix products ---------------------------------------------------------------------------- */

/* d(a @ b): with 1-D operands seen as a row or a column. */
WF_VJP(matmul, WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_TYPES)
{
    wf_type a, b, y;
    wf_vjp_src_type(v, 0, &a);
    wf_vjp_src_type(v, 1, &b);
    wf_vjp_dst_type(v, 0, &y);
    wf_type a2 = a, b2 = b, g2 = y;
    if (a.rank == 1) { /* [k] -> [1, k]; the result lacks the row axis */
        a2 = (wf_type){a.dtype, 2, {1, a.dims[0]}};
        int at = b.rank == 1 ? y.rank : y.rank - 1;
        memmove(&g2.dims[at + 1], &g2.dims[at], (size_t)(g2.rank - at) * sizeof(int64_t));
        g2.dims[at] = 1;
        g2.rank++;
    }
    if (b.rank == 1) {
        b2 = (wf_type){b.dtype, 2, {b.dims[0], 1}};
        g2.dims[g2.rank++] = 1;
    }
    weft_tensor g = reshape(v->g[0], g2.rank, g2.dims);
    if (v->need[0]) {
        weft_tensor bt = swap_last(reshape(wf_vjp_src(v, 1), b2.rank, b2.dims), b2.rank);
        v->dsrc[0] = reshape(wf_sum_to(matmul(g, bt), a2.rank, a2.dims), a.rank, a.dims);
    }
    if (v->need[1]) {
        weft_tensor x = reshape(wf_vjp_src(v, 0), a2.rank, a2.dims);
        int64_t xm[2] = {1, a2.dims[a2.rank - 1]}, gm[2] = {1, g2.dims[g2.rank - 1]};
        if (b2.rank == 2 && a2.rank > 2) { /* one product over all batches */
            for (int i = 0; i < a2.rank - 1; i++) {
                xm[0] *= a2.dims[i];
            }
            gm[0] = xm[0];
            x = swap_last(reshape(x, 2, xm), 2);
            v->dsrc[1] = matmul(x, reshape(g, 2, gm));
        } else {
            v->dsrc[1] = wf_sum_to(matmul(swap_last(x, a2.rank), g), b2.rank, b2.dims);
        }
        v->dsrc[1] = reshape(v->dsrc[1], b.rank, b.dims);
    }
    return wf_vjp_done(v);
}

/* y = x W^T + b */
WF_VJP(linear, WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_TYPES)
{
    wf_type x, w;
    wf_vjp_src_type(v, 0, &x);
    wf_vjp_src_type(v, 1, &w);
    int64_t rows = 1;
    for (int i = 0; i < x.rank - 1; i++) {
        rows *= x.dims[i];
    }
    int64_t xm[2] = {rows, w.dims[1]}, gm[2] = {rows, w.dims[0]};
    if (v->need[0]) {
        v->dsrc[0] = x.rank == 1
                         ? reshape(matmul(reshape(v->g[0], 2, gm), wf_vjp_src(v, 1)), 1, x.dims)
                         : matmul(v->g[0], wf_vjp_src(v, 1));
    }
    if (v->need[1]) {
        weft_tensor gt = swap_last(reshape(v->g[0], 2, gm), 2);
        v->dsrc[1] = matmul(gt, reshape(wf_vjp_src(v, 0), 2, xm));
    }
    if (v->nsrc > 2 && v->need[2]) {
        int64_t axis = 0;
        v->dsrc[2] = reduce(WF_OP_SUM, reshape(v->g[0], 2, gm), 1, &axis, false, w.dtype);
    }
    return wf_vjp_done(v);
}

/* -- convolution: bilinear, so each derivative is another of the three rows -------------------- */

/* `op` (CONV2D, CONV2D_DX or CONV2D_DW) with this row's windows and the extents it asks for. */
static weft_tensor conv(wf_vjp *v, wf_op op, weft_tensor a, weft_tensor b, const int64_t *extent)
{
    wf_attr k = *v->attr;
    k.n_dyn = extent ? 2 : 0;
    k.dyn = extent;
    return wf_op2(op, &k, a, b);
}

WF_VJP(conv2d, WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_TYPES)
{
    wf_type x, w;
    int64_t axes[3] = {0, 2, 3};
    wf_vjp_src_type(v, 0, &x);
    wf_vjp_src_type(v, 1, &w);
    /* channels-last images have such gradients: what comes in another order is put into this one, once for both */
    weft_tensor g = v->g[0];
    if (lies_last(v, wf_vjp_src(v, 0)) && !lies_last(v, g)) {
        g = turn_back(wf_op1(WF_OP_COPY, NULL, turn(g)));
    }
    if (v->need[0]) {
        v->dsrc[0] = conv(v, WF_OP_CONV2D_DX, g, wf_vjp_src(v, 1), &x.dims[2]);
    }
    if (v->need[1]) {
        v->dsrc[1] = conv(v, WF_OP_CONV2D_DW, g, wf_vjp_src(v, 0), &w.dims[2]);
    }
    if (v->nsrc > 2 && v->need[2]) {
        v->dsrc[2] = reduce(WF_OP_SUM, g, 3, axes, false, x.dtype);
    }
    return wf_vjp_done(v);
}

/* src: g, weight */
WF_VJP(conv2d_dx, WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_TYPES)
{
    wf_type w;
    wf_vjp_src_type(v, 1, &w);
    if (v->need[0]) {
        v->dsrc[0] = conv(v, WF_OP_CONV2D, v->g[0], wf_vjp_src(v, 1), NULL);
    }
    if (v->need[1]) {
        v->dsrc[1] = conv(v, WF_OP_CONV2D_DW, wf_vjp_src(v, 0), v->g[0], &w.dims[2]);
    }
    return wf_vjp_done(v);
}

/* src: g, x */
WF_VJP(conv2d_dw, WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_TYPES)
{
    wf_type x;
    wf_vjp_src_type(v, 1, &x);
    if (v->need[0]) {
        v->dsrc[0] = conv(v, WF_OP_CONV2D, wf_vjp_src(v, 1), v->g[0], NULL);
    }
    if (v->need[1]) {
        v->dsrc[1] = conv(v, WF_OP_CONV2D_DX, wf_vjp_src(v, 0), v->g[0], &x.dims[2]);
    }
    return wf_vjp_done(v);
}

/* -- attention ------------------------------------------------------------------------------------ */

/* softmax(q k^T scale + mask) in ops. */
static weft_tensor attention_weights(wf_vjp *v, weft_tensor q, weft_tensor k, weft_tensor mask,
                                     const wf_type *qt, const wf_type *kt, int wide)
{
    int64_t l = qt->dims[qt->rank - 2], s = kt->dims[kt->rank - 2];
    weft_tensor x = mul(matmul(q, swap_last(k, kt->rank)), weft_f(v->attr->flt[0]));
    if (v->attr->flags & WF_FLAG_CAUSAL) {
        int64_t d[2] = {l, s}, zero = 0;
        wf_attr tri = {.n_dyn = 1, .dyn = &zero};
        weft_tensor keep = wf_op1(WF_OP_TRIL, &tri, full(WEFT_BOOL, 2, d, 1));
        x = where(keep, x, weft_f(-__builtin_inf()));
    }
    if (!wf_is_absent(mask)) {
        wf_type m;
        wf_vjp_src_type(v, 3, &m);
        x = m.dtype == WEFT_BOOL ? where(mask, x, weft_f(-__builtin_inf()))
                                 : add(x, wf_as_dtype(mask, wide));
    }
    if (s == 0) {
        return x;
    }
    /* Queries with nothing to attend to: equal scores, whose derivatives are finite, and no weights. */
    int64_t axis = qt->rank - 1;
    weft_tensor none = equal(reduce(WF_OP_AMAX, x, 1, &axis, true, wide), weft_f(-__builtin_inf()));
    weft_tensor p = with_axis(WF_OP_SOFTMAX, axis, where(none, weft_f(0), x));
    return where(none, weft_f(0), p);
}

WF_VJP(sdpa, WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_SRC(2) | WF_SAVES_SRC(3) |
                 WF_SAVES_DST(0) | WF_SAVES_DST(1) | WF_SAVES_TYPES)
{
    wf_type t[4];
    for (int i = 0; i < v->nsrc; i++) {
        wf_vjp_src_type(v, i, &t[i]);
    }
    weft_tensor q = wf_vjp_src(v, 0), k = wf_vjp_src(v, 1), val = wf_vjp_src(v, 2);
    weft_tensor mask = v->nsrc > 3 ? wf_vjp_src(v, 3) : WF_ABSENT;
    bool mask_grad = v->nsrc > 3 && v->need[3];
    if (!v->create_graph && !mask_grad) {
        weft_tensor s[7] = {v->g[0], q, k, val, wf_vjp_dst(v, 0), wf_vjp_dst(v, 1), mask}, d[3];
        wf_dispatch(WF_OP_SDPA_BWD, v->attr, wf_is_absent(mask) ? 6 : 7, s, 3, d);
        for (int i = 0; i < 3; i++) {
            v->dsrc[i] = v->need[i] ? d[i] : WEFT_NONE;
        }
        return wf_vjp_done(v);
    }
    int wide = wf_dtype_compute(t[0].dtype);
    q = wf_as_dtype(q, wide);
    k = wf_as_dtype(k, wide);
    val = wf_as_dtype(val, wide);
    weft_tensor g = wf_as_dtype(v->g[0], wide);
    wf_type y, qt = t[0];
    wf_vjp_dst_type(v, 0, &y);
    for (int lead = y.rank - qt.rank; lead > 0;
         lead--) { /* scores have as many axes as the result */
        memmove(&qt.dims[1], &qt.dims[0], (size_t)qt.rank++ * sizeof(int64_t));
        qt.dims[0] = 1;
    }
    q = reshape(q, qt.rank, qt.dims);
    weft_tensor p = attention_weights(v, q, k, mask, &qt, &t[1], wide);
    int64_t last = y.rank - 1;
    weft_tensor dp = matmul(g, swap_last(val, t[2].rank));
    weft_tensor ds = mul(p, sub(dp, reduce(WF_OP_SUM, mul(dp, p), 1, &last, true, wide)));
    if (mask_grad) {
        v->dsrc[3] = wf_as_dtype(wf_sum_to(ds, t[3].rank, t[3].dims), t[3].dtype);
    }
    weft_tensor dx = mul(ds, weft_f(v->attr->flt[0]));
    weft_tensor d[3] = {matmul(dx, k), matmul(swap_last(dx, y.rank), q),
                        matmul(swap_last(p, y.rank), g)};
    for (int i = 0; i < 3; i++) {
        if (v->need[i]) {
            v->dsrc[i] = wf_as_dtype(wf_sum_to(d[i], t[i].rank, t[i].dims), t[i].dtype);
        }
    }
    return wf_vjp_done(v);
}

/* -- softmax -------------------------------------------------------------------------------------- */

static int softmax_vjp(wf_vjp *v, wf_op fused, bool log)
{
    weft_tensor y = wf_vjp_dst(v, 0);
    wf_type t;
    wf_vjp_dst_type(v, 0, &t);
    if (!v->create_graph) {
        v->dsrc[0] = wf_op2(fused, v->attr, v->g[0], y);
        return wf_vjp_done(v);
    }
    int wide = wf_dtype_compute(t.dtype);
    int64_t axis = v->attr->ints[0];
    weft_tensor g = wf_as_dtype(v->g[0], wide), d;
    y = wf_as_dtype(y, wide);
    if (log) {
        weft_tensor p = expo(y);
        d = sub(g, mul(p, reduce(WF_OP_SUM, g, 1, &axis, true, wide)));
    } else {
        d = mul(y, sub(g, reduce(WF_OP_SUM, mul(g, y), 1, &axis, true, wide)));
    }
    v->dsrc[0] = wf_as_dtype(d, t.dtype);
    return wf_vjp_done(v);
}

WF_VJP(softmax, WF_SAVES_DST(0))
{
    return softmax_vjp(v, WF_OP_SOFTMAX_BWD, false);
}

WF_VJP(log_softmax, WF_SAVES_DST(0))
{
    return softmax_vjp(v, WF_OP_LOG_SOFTMAX_BWD, true);
}

/* -- norms ---------------------------------------------------------------------------------------- */

/* Hands fused results to the operands that want them: d[0] to operand 0, d[1] to 1, ... */
static int hand_out(wf_vjp *v, const weft_tensor *d, int n)
{
    for (int i = 0; i < n && i < v->nsrc; i++) {
        if (v->need[i]) {
            v->dsrc[i] = d[i];
        }
    }
    if (d[0].slot == 0) {
        return (int)weft_error_status(d[0]);
    }
    return wf_vjp_done(v);
}

/* A fused gradient of a norm, without the sums over rows where no operand wants them. */
static int norm_bwd(wf_vjp *v, wf_op fused, int nsrc, weft_tensor *s, int ndst)
{
    weft_tensor d[3];
    wf_attr attr = *v->attr;
    if (!(v->nsrc > 1 && v->need[1]) && !(v->nsrc > 2 && v->need[2])) {
        attr.flags |= WF_FLAG_DX_ONLY;
    }
    wf_dispatch(fused, &attr, nsrc, s, ndst, d);
    return hand_out(v, d, ndst);
}

static weft_tensor rsqrt_of(weft_tensor var, double eps)
{
    return wf_op1(WF_OP_RECIPROCAL, NULL, wf_op1(WF_OP_SQRT, NULL, add(var, weft_f(eps))));
}

/* dx of y = xhat * w given gw = g * w, over the axes that mean and variance were taken on:
 * rstd * (gw - mean(gw) - xhat * mean(gw * xhat)). */
static weft_tensor norm_dx(weft_tensor gw, weft_tensor xhat, weft_tensor rstd, int n,
                           const int64_t *axes, int wide, bool centre)
{
    weft_tensor m2 = reduce(WF_OP_MEAN, mul(gw, xhat), n, axes, true, wide);
    weft_tensor d = centre ? sub(gw, reduce(WF_OP_MEAN, gw, n, axes, true, wide)) : gw;
    return mul(rstd, sub(d, mul(xhat, m2)));
}

static int last_axes(const wf_type *x, int64_t n, int64_t *axes)
{
    for (int64_t i = 0; i < n; i++) {
        axes[i] = x->rank - n + i;
    }
    return (int)n;
}

/* The sum of t over the leading axes, down to the operand's type. */
static weft_tensor to_operand(wf_vjp *v, int i, weft_tensor t)
{
    wf_type w;
    wf_vjp_src_type(v, i, &w);
    return wf_as_dtype(wf_sum_to(t, w.rank, w.dims), w.dtype);
}

WF_VJP(layer_norm,
       WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_DST(1) | WF_SAVES_DST(2) | WF_SAVES_TYPES)
{
    wf_type t;
    int64_t axes[WF_MAX_RANK];
    wf_vjp_src_type(v, 0, &t);
    bool weighted = wf_vjp_has_src(v, 1);
    weft_tensor x = wf_vjp_src(v, 0), w = weighted ? wf_vjp_src(v, 1) : WF_ABSENT;
    if (!v->create_graph) {
        weft_tensor s[5] = {v->g[0], x, wf_vjp_dst(v, 1), wf_vjp_dst(v, 2), w};
        return norm_bwd(v, WF_OP_LAYER_NORM_BWD, 5, s, 3);
    }
    int wide = wf_dtype_compute(t.dtype), n = last_axes(&t, v->attr->ints[0], axes);
    weft_tensor xw = wf_as_dtype(x, wide), g = wf_as_dtype(v->g[0], wide);
    weft_tensor xc = sub(xw, reduce(WF_OP_MEAN, xw, n, axes, true, wide));
    weft_tensor rstd =
        rsqrt_of(reduce(WF_OP_MEAN, mul(xc, xc), n, axes, true, wide), v->attr->flt[0]);
    weft_tensor xhat = mul(xc, rstd);
    weft_tensor gw = weighted ? mul(g, wf_as_dtype(w, wide)) : g;
    if (v->need[0]) {
        v->dsrc[0] = wf_as_dtype(norm_dx(gw, xhat, rstd, n, axes, wide, true), t.dtype);
    }
    if (v->nsrc > 1 && v->need[1]) {
        v->dsrc[1] = to_operand(v, 1, mul(g, xhat));
    }
    if (v->nsrc > 2 && v->need[2]) {
        v->dsrc[2] = to_operand(v, 2, g);
    }
    return wf_vjp_done(v);
}

WF_VJP(rms_norm, WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_DST(1) | WF_SAVES_TYPES)
{
    wf_type t;
    int64_t axes[WF_MAX_RANK];
    wf_vjp_src_type(v, 0, &t);
    bool weighted = wf_vjp_has_src(v, 1);
    weft_tensor x = wf_vjp_src(v, 0), w = weighted ? wf_vjp_src(v, 1) : WF_ABSENT;
    if (!v->create_graph) {
        weft_tensor s[4] = {v->g[0], x, wf_vjp_dst(v, 1), w};
        return norm_bwd(v, WF_OP_RMS_NORM_BWD, 4, s, 2);
    }
    int wide = wf_dtype_compute(t.dtype), n = last_axes(&t, v->attr->ints[0], axes);
    weft_tensor xw = wf_as_dtype(x, wide), g = wf_as_dtype(v->g[0], wide);
    weft_tensor rstd =
        rsqrt_of(reduce(WF_OP_MEAN, mul(xw, xw), n, axes, true, wide), v->attr->flt[0]);
    weft_tensor xhat = mul(xw, rstd);
    if (v->need[0]) {
        weft_tensor gw = weighted ? mul(g, wf_as_dtype(w, wide)) : g;
        v->dsrc[0] = wf_as_dtype(norm_dx(gw, xhat, rstd, n, axes, wide, false), t.dtype);
    }
    if (v->nsrc > 1 && v->need[1]) {
        v->dsrc[1] = to_operand(v, 1, mul(g, xhat));
    }
    return wf_vjp_done(v);
}

/* src: x, weight, bias, running mean, running variance */
WF_VJP(batch_norm,
       WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_DST(1) | WF_SAVES_DST(2) | WF_SAVES_TYPES)
{
    wf_type t;
    int64_t axes[WF_MAX_RANK], ch[WF_MAX_RANK];
    wf_vjp_src_type(v, 0, &t);
    weft_tensor x = wf_vjp_src(v, 0), w = wf_vjp_src(v, 1);
    weft_tensor mean = wf_vjp_dst(v, 1), var = wf_vjp_dst(v, 2), rstd;
    if (!v->create_graph) {
        weft_tensor s[5] = {v->g[0], x, w, mean, var}, d[3];
        wf_dispatch(WF_OP_BATCH_NORM_BWD, v->attr, 5, s, 3, d);
        return hand_out(v, d, 3);
    }
    int n = 0, wide = wf_dtype_compute(t.dtype);
    for (int i = 0; i < t.rank; i++) {
        ch[i] = i == 1 ? t.dims[1] : 1;
        if (i != 1) {
            axes[n++] = i;
        }
    }
    bool training = (v->attr->flags & WF_FLAG_TRAINING) != 0;
    weft_tensor xw = wf_as_dtype(x, wide), g = wf_as_dtype(v->g[0], wide);
    if (training) {
        mean = reduce(WF_OP_MEAN, xw, n, axes, true, wide);
        weft_tensor xc = sub(xw, mean);
        rstd = rsqrt_of(reduce(WF_OP_MEAN, mul(xc, xc), n, axes, true, wide), v->attr->flt[0]);
    } else {
        mean = reshape(mean, t.rank, ch);
        rstd = rsqrt_of(reshape(var, t.rank, ch), v->attr->flt[0]);
    }
    weft_tensor xhat = mul(sub(xw, mean), rstd);
    if (v->need
            [0]) { /* the weight is constant over the summed axes: it scales at the end, as in the
                         fused backward */
        weft_tensor scale =
            wf_vjp_has_src(v, 1) ? mul(reshape(wf_as_dtype(w, wide), t.rank, ch), rstd) : rstd;
        weft_tensor d = training ? norm_dx(g, xhat, scale, n, axes, wide, true) : mul(g, scale);
        v->dsrc[0] = wf_as_dtype(d, t.dtype);
    }
    for (int i = 1; i < 3; i++) {
        if (v->need[i]) {
            wf_type o;
            wf_vjp_src_type(v, i, &o);
            weft_tensor s = reduce(WF_OP_SUM, i == 1 ? mul(g, xhat) : g, n, axes, false, wide);
            v->dsrc[i] = wf_as_dtype(s, o.dtype);
        }
    }
    return wf_vjp_done(v);
}

/* -- pooling -------------------------------------------------------------------------------------- */

/* The same of channels-last images x and indices of the y's: pixels are an axis of memory, too. */
static weft_tensor unpool_last(const wf_type *x, const wf_type *y, weft_tensor index, weft_tensor g)
{
    const int64_t xf[3] = {x->dims[0], x->dims[2] * x->dims[3], x->dims[1]}, axis = 1;
    const int64_t yf[3] = {y->dims[0], y->dims[2] * y->dims[3], y->dims[1]};
    const int64_t dims[4] = {x->dims[0], x->dims[2], x->dims[3], x->dims[1]};
    const wf_attr a = {.n_ints = 1, .ints = &axis};
    weft_tensor none = full(x->dtype, 3, xf, 0), at = reshape(turn(index), 3, yf);
    weft_tensor d = wf_op3(WF_OP_SCATTER_ADD, &a, none, at, reshape(turn(g), 3, yf));
    return turn_back(reshape(d, 4, dims));
}

/* Each output's gradient goes to the element it was taken from. */
WF_VJP(max_pool2d, WF_SAVES_DST(1))
{
    wf_type x, y;
    wf_vjp_src_type(v, 0, &x);
    wf_vjp_dst_type(v, 0, &y);
    if (lies_last(v, wf_vjp_dst(v, 1))) {
        v->dsrc[0] = unpool_last(&x, &y, wf_vjp_dst(v, 1), v->g[0]);
        return wf_vjp_done(v);
    }
    int lead = x.rank - 2;
    int64_t planes = 1;
    for (int i = 0; i < lead; i++) {
        planes *= x.dims[i];
    }
    int64_t xf[2] = {planes, x.dims[lead] * x.dims[lead + 1]};
    int64_t yf[2] = {planes, y.dims[lead] * y.dims[lead + 1]}, axis = 1;
    wf_attr a = {.n_ints = 1, .ints = &axis};
    weft_tensor none = full(x.dtype, 2, xf, 0), at = reshape(wf_vjp_dst(v, 1), 2, yf);
    weft_tensor d = wf_op3(WF_OP_SCATTER_ADD, &a, none, at, reshape(v->g[0], 2, yf));
    v->dsrc[0] = reshape(d, x.rank, x.dims);
    return wf_vjp_done(v);
}

WF_VJP(avg_pool2d, WF_SAVES_NONE)
{
    wf_type x;
    wf_vjp_src_type(v, 0, &x);
    wf_attr a = *v->attr;
    a.n_dyn = 2;
    a.dyn = &x.dims[x.rank - 2];
    v->dsrc[0] = wf_op1(WF_OP_AVG_POOL2D_BWD, &a, v->g[0]);
    return wf_vjp_done(v);
}

WF_VJP(avg_pool2d_bwd, WF_SAVES_NONE)
{
    wf_attr a = *v->attr;
    a.n_dyn = 0;
    v->dsrc[0] = wf_op1(WF_OP_AVG_POOL2D, &a, v->g[0]);
    return wf_vjp_done(v);
}

/* -- cross entropy: logits [n, c], targets [n] ---------------------------------------------------- */

WF_VJP(cross_entropy, WF_SAVES_SRC(0) | WF_SAVES_SRC(1) | WF_SAVES_DST(1))
{
    wf_type t;
    wf_vjp_src_type(v, 0, &t);
    weft_tensor x = wf_vjp_src(v, 0), target = wf_vjp_src(v, 1);
    if (!v->create_graph) {
        weft_tensor s[4] = {v->g[0], x, target, wf_vjp_dst(v, 1)}, d;
        wf_dispatch(WF_OP_CROSS_ENTROPY_BWD, v->attr, 4, s, 1, &d);
        v->dsrc[0] = d;
        return wf_vjp_done(v);
    }
    int wide = wf_dtype_compute(t.dtype);
    int64_t rows[2] = {t.dims[0], 1}, classes = t.dims[1];
    double smooth = v->attr->flt[0];
    int64_t axis = 1;
    weft_tensor xw = wf_as_dtype(x, wide);
    weft_tensor p = expo(sub(xw, reduce(WF_OP_LOGSUMEXP, xw, 1, &axis, true, wide)));
    weft_tensor used = wf_op2(WF_OP_NOT_EQUAL, NULL, target, weft_i(v->attr->dyn[0]));
    weft_tensor safe = where(used, target, weft_i(0));
    wf_attr hot = {.dtype = (uint8_t)wide, .n_dyn = 1, .dyn = &classes};
    weft_tensor q = mul(wf_op1(WF_OP_ONE_HOT, &hot, safe), weft_f(1 - smooth));
    q = add(q, weft_f(wf_plain_quotient(smooth, (double)classes)));
    weft_tensor g = where(used, wf_as_dtype(v->g[0], wide), weft_f(0));
    g = reshape(g, 2, rows);
    v->dsrc[0] = wf_as_dtype(mul(g, sub(p, q)), t.dtype);
    return wf_vjp_done(v);
}
