/*
 * jit/ir/infer_nn.c -- result types of matmul, linear, convolution, attention and pooling.
 *
 * One function computes the output extent of a window (convolution and pooling), so that forward
 * and gradient rows cannot disagree.
 */
#include <string.h>

#include "jit/ir/infer.h"

#define FLOATS "a floating-point type"

/* -- matrix products
 * ------------------------------------------------------------------------------- */
WF_INFER(matmul)
{
    int code = wf_check_dtype(&src[0], 0, WF_DT_FI, "numbers", why);
    if (code || (code = wf_check_same_dtype(src, 0, 1, why))) {
        return code;
    }
    int ra = src[0].rank, rb = src[1].rank;
    if (ra == 0 || rb == 0) {
        code = wf_fail(why, WEFT_ESHAPE, "the %s operand is a scalar; matmul needs rank 1 or more",
                       wf_ordinal(ra == 0 ? 0 : 1));
        wf_hint(why, "multiply by a scalar with weft_mul");
        return code;
    }
    int ax_a = ra - 1, ax_b = rb == 1 ? 0 : rb - 2;
    int64_t ka = src[0].dims[ax_a], kb = src[1].dims[ax_b];
    if (ka != kb) {
        code =
            wf_fail(why, WEFT_ESHAPE,
                    "inner dimensions differ: %" PRId64 " (axis %d of the first operand) against "
                    "%" PRId64 " (axis %d of the second)",
                    ka, ax_a, kb, ax_b);
        if (rb >= 2 && src[1].dims[rb - 1] == ka) {
            wf_hint(why, "transpose the second operand: weft_transpose(b, %d, %d)", rb - 2, rb - 1);
        } else if (ra >= 2 && src[0].dims[ra - 2] == kb) {
            wf_hint(why, "transpose the first operand: weft_transpose(a, %d, %d)", ra - 2, ra - 1);
        } else {
            wf_hint(why, "the last axis of the first operand meets the last but one of the second");
        }
        return code;
    }
    wf_type batch = {.dtype = src[0].dtype, .rank = (uint8_t)(ra > 2 ? ra - 2 : 0)};
    wf_type other = {.dtype = src[0].dtype, .rank = (uint8_t)(rb > 2 ? rb - 2 : 0)};
    memcpy(batch.dims, src[0].dims, batch.rank * sizeof batch.dims[0]);
    memcpy(other.dims, src[1].dims, other.rank * sizeof other.dims[0]);
    if ((code = wf_broadcast(&batch, &other, why))) {
        return code;
    }
    dst[0] = batch;
    if (ra > 1) {
        dst[0].dims[dst[0].rank++] = src[0].dims[ra - 2];
    }
    if (rb > 1) {
        dst[0].dims[dst[0].rank++] = src[1].dims[rb - 1];
    }
    return 0;
}

/* Operand 2, where there is one: as many elements as the weight has rows, which the op calls `rows`. */
static int check_bias(const wf_type *src, int nsrc, const char *rows, const char *hint, wf_why *why)
{
    int code = 0;
    if (nsrc <= 2 || !wf_type_present(&src[2]) || (code = wf_check_same_dtype(src, 0, 2, why)) ||
        (code = wf_check_rank(src, 2, 1, "bias[out]", why))) {
        return code;
    }
    if (src[2].dims[0] != src[1].dims[0]) {
        code = wf_fail(why, WEFT_ESHAPE,
                       "the bias has %" PRId64 " elements, the weight %" PRId64 " %s",
                       src[2].dims[0], src[1].dims[0], rows);
        wf_hint(why, "%s", hint);
    }
    return code;
}

WF_INFER(linear)
{
    int code = wf_check_dtype(&src[0], 0, WF_DT_F, FLOATS, why);
    if (code || (code = wf_check_same_dtype(src, 0, 1, why)) ||
        (code = wf_check_rank(src, 1, 2, "weight[out, in]", why))) {
        return code;
    }
    if (src[0].rank == 0) {
        code = wf_fail(why, WEFT_ESHAPE, "the input is a scalar; its last axis holds the features");
        wf_hint(why, "give the input rank 1 or more");
        return code;
    }
    int last = src[0].rank - 1;
    if (src[0].dims[last] != src[1].dims[1]) {
        code = wf_fail(why, WEFT_ESHAPE,
                       "features differ: %" PRId64 " (axis %d of the input) against %" PRId64
                       " (axis 1 of weight[out, in])",
                       src[0].dims[last], last, src[1].dims[1]);
        if (src[1].dims[0] == src[0].dims[last]) {
            wf_hint(why, "the weight is [out, in]: weft_transpose(weight, 0, 1)");
        } else {
            wf_hint(why, "the weight is [out, in], with as many columns as the input has features");
        }
        return code;
    }
    if ((code = check_bias(src, nsrc, "rows", "one bias element for each row of weight[out, in]",
                           why))) {
        return code;
    }
    dst[0] = src[0];
    dst[0].dims[last] = src[1].dims[0];
    return 0;
}

/* -- windows
 * --------------------------------------------------------------------------------------- */
/* Structure of convolution and pooling attributes along one of the two spatial axes. */
typedef struct window {
    int64_t kernel, stride, padding, dilation;
    bool ceil;
} window;

/* Output extent of a window over n elements; `side` is "height" or "width". */
static int window_extent(int64_t n, const window *w, const char *side, int64_t *out, wf_why *why)
{
    if (w->kernel < 1 || w->stride < 1 || w->padding < 0 || w->dilation < 1) {
        int code = wf_fail(why, WEFT_EINVALID,
                           "%s: kernel %" PRId64 ", stride %" PRId64 ", padding %" PRId64
                           ", dilation %" PRId64,
                           side, w->kernel, w->stride, w->padding, w->dilation);
        wf_hint(why, "kernel, stride and dilation are 1 or more, padding 0 or more");
        return code;
    }
    int64_t reach, padded, both;
    if (__builtin_mul_overflow(w->kernel - 1, w->dilation, &reach) ||
        __builtin_add_overflow(reach, 1, &reach) || __builtin_mul_overflow(w->padding, 2, &both) ||
        __builtin_add_overflow(n, both, &padded)) {
        return wf_fail(why, WEFT_ENOMEM, "%s: window and padding overflow 64 bits", side);
    }
    int64_t room = padded - reach;
    if (room < 0 && !(w->ceil && -room < w->stride && n + w->padding > 0)) {
        int code =
            wf_fail(why, WEFT_ESHAPE,
                    "%s: the kernel covers %" PRId64 " elements, the padded input has %" PRId64,
                    side, reach, padded);
        wf_hint(why, "make the kernel or its dilation smaller, or the padding larger");
        return code;
    }
    /* Ceil mode adds a window that starts inside the input or its left padding: the only one where room < 0. */
    *out = room < 0 ? 0 : room / w->stride + 1;
    if (w->ceil && room % w->stride != 0 && *out <= (n + w->padding - 1) / w->stride) {
        *out += 1;
    }
    return 0;
}

static window conv_window(const wf_attr *attr, int i, int64_t kernel)
{
    return (window){.kernel = kernel,
                    .stride = attr->ints[i],
                    .padding = attr->ints[2 + i],
                    .dilation = attr->ints[4 + i]};
}

/* Checks groups against channel counts: c of the input, o of the output. */
static int check_groups(int64_t groups, int64_t c, int64_t o, wf_why *why)
{
    if (groups < 1 || c % groups != 0 || o % groups != 0) {
        int code = wf_fail(why, WEFT_ESHAPE,
                           "%" PRId64 " groups do not divide %" PRId64 " input and %" PRId64
                           " output channels",
                           groups, c, o);
        wf_hint(why, "groups are 1 or more and divide both channel counts");
        return code;
    }
    return 0;
}

/* The types x[n,c,h,w], weight[o,c/g,kh,kw] give y[n,o,oh,ow]. */
static int conv_result(const wf_attr *attr, const wf_type *x, const wf_type *w, wf_type *y,
                       wf_why *why)
{
    int64_t groups = attr->ints[6];
    int code = check_groups(groups, x->dims[1], w->dims[0], why);
    if (code) {
        return code;
    }
    if (x->dims[1] / groups != w->dims[1]) {
        code = wf_fail(why, WEFT_ESHAPE,
                       "the input has %" PRId64 " channels (axis 1) in %" PRId64
                       " groups; the weight takes %" PRId64 " (axis 1)",
                       x->dims[1], groups, w->dims[1]);
        wf_hint(why, "the weight is [out, in / groups, height, width]");
        return code;
    }
    *y = (wf_type){.dtype = x->dtype, .rank = 4};
    y->dims[0] = x->dims[0];
    y->dims[1] = w->dims[0];
    for (int i = 0; i < 2; i++) {
        window win = conv_window(attr, i, w->dims[2 + i]);
        code = window_extent(x->dims[2 + i], &win, i ? "width" : "height", &y->dims[2 + i], why);
        if (code) {
            return code;
        }
    }
    return 0;
}

/* g must be the result of that convolution. */
static int check_conv_grad(const wf_type *g, const wf_type *y, wf_why *why)
{
    for (int i = 0; i < 4; i++) {
        if (g->dims[i] != y->dims[i]) {
            int code = wf_fail(why, WEFT_ESHAPE,
                               "axis %d of the gradient has extent %" PRId64
                               "; the convolution gives %" PRId64,
                               i, g->dims[i], y->dims[i]);
            wf_hint(why, "the gradient has the shape of the convolution's result");
            return code;
        }
    }
    return 0;
}

WF_INFER(conv2d)
{
    int code = wf_check_attr(attr, 7, 0, 0, why);
    if (code || (code = wf_check_dtype(&src[0], 0, WF_DT_F, FLOATS, why)) ||
        (code = wf_check_same_dtype(src, 0, 1, why)) ||
        (code = wf_check_rank(src, 0, 4, "input[n, channels, height, width]", why)) ||
        (code = wf_check_rank(src, 1, 4, "weight[out, in / groups, height, width]", why)) ||
        (code = conv_result(attr, &src[0], &src[1], &dst[0], why))) {
        return code;
    }
    return check_bias(src, nsrc, "filters", "one bias element for each output channel", why);
}

WF_INFER(conv2d_dx)
{
    int code = wf_check_attr(attr, 7, 2, 0, why);
    if (code || (code = wf_check_dtype(&src[0], 0, WF_DT_F, FLOATS, why)) ||
        (code = wf_check_same_dtype(src, 0, 1, why)) ||
        (code = wf_check_rank(src, 0, 4, "gradient[n, out, height, width]", why)) ||
        (code = wf_check_rank(src, 1, 4, "weight[out, in / groups, height, width]", why))) {
        return code;
    }
    int64_t channels;
    if (__builtin_mul_overflow(src[1].dims[1], attr->ints[6], &channels)) {
        return wf_fail(why, WEFT_ENOMEM, "the number of channels overflows 64 bits");
    }
    int64_t dims[4] = {src[0].dims[0], channels, attr->dyn[0], attr->dyn[1]};
    dst[0].dtype = src[0].dtype;
    wf_type y;
    if ((code = wf_check_dims(&dst[0], dims, 4, why)) ||
        (code = conv_result(attr, &dst[0], &src[1], &y, why))) {
        return code;
    }
    return check_conv_grad(&src[0], &y, why);
}

WF_INFER(conv2d_dw)
{
    int code = wf_check_attr(attr, 7, 2, 0, why);
    if (code || (code = wf_check_dtype(&src[0], 0, WF_DT_F, FLOATS, why)) ||
        (code = wf_check_same_dtype(src, 0, 1, why)) ||
        (code = wf_check_rank(src, 0, 4, "gradient[n, out, height, width]", why)) ||
        (code = wf_check_rank(src, 1, 4, "input[n, channels, height, width]", why)) ||
        (code = check_groups(attr->ints[6], src[1].dims[1], src[0].dims[1], why))) {
        return code;
    }
    int64_t dims[4] = {src[0].dims[1], src[1].dims[1] / attr->ints[6], attr->dyn[0], attr->dyn[1]};
    dst[0].dtype = src[0].dtype;
    wf_type y;
    if ((code = wf_check_dims(&dst[0], dims, 4, why)) ||
        (code = conv_result(attr, &src[1], &dst[0], &y, why))) {
        return code;
    }
    return check_conv_grad(&src[0], &y, why);
}

/* -- pooling: I kernel[2], stride[2], padding[2] (and dilation[2] for the maximum)
 * ------------------ */
/* Windows of which there are as many as the kernel says: [floor(i n / m), ceil((i + 1) n / m)) of n elements and m windows. */
static int adaptive_result(const wf_attr *attr, const wf_type *x, wf_type *y, wf_why *why)
{
    for (int i = 0; i < 2; i++) {
        const int64_t n = x->dims[2 + i], m = attr->ints[i];
        int64_t most;
        if (m < 0 || n < 1 || attr->ints[2 + i] != 1 || attr->ints[4 + i] != 0) {
            return wf_fail(why, WEFT_ESHAPE,
                           "%s: %" PRId64 " elements cannot become %" PRId64 " means",
                           i ? "width" : "height", n, m);
        }
        if (m == INT64_MAX || __builtin_mul_overflow(n, m + 1, &most)) {
            return wf_fail(why, WEFT_ENOMEM, "%" PRId64 " windows overflow 64 bits", m);
        }
        y->dims[2 + i] = m;
    }
    return 0;
}

static int pool_result(const wf_attr *attr, bool dilated, const wf_type *x, wf_type *y, wf_why *why)
{
    int64_t window_size;
    if (__builtin_mul_overflow(attr->ints[0], attr->ints[1], &window_size)) {
        return wf_fail(why, WEFT_ENOMEM, "a kernel of %" PRId64 " x %" PRId64 " overflows 64 bits",
                       attr->ints[0], attr->ints[1]);
    }
    *y = *x;
    if (attr->flags & WF_FLAG_ADAPTIVE && !dilated) {
        return adaptive_result(attr, x, y, why);
    }
    for (int i = 0; i < 2; i++) {
        const char *side = i ? "width" : "height";
        window win = {.kernel = attr->ints[i],
                      .stride = attr->ints[2 + i],
                      .padding = attr->ints[4 + i],
                      .dilation = dilated ? attr->ints[6 + i] : 1,
                      .ceil = attr->flags & WF_FLAG_CEIL};
        int code = window_extent(x->dims[2 + i], &win, side, &y->dims[2 + i], why);
        if (code) {
            return code;
        }
        /* A window wholly inside the padding would have no maximum and no mean. */
        if (win.padding > win.kernel / 2) {
            code = wf_fail(why, WEFT_ESHAPE,
                           "%s: padding %" PRId64 " is more than half of the kernel %" PRId64, side,
                           win.padding, win.kernel);
            wf_hint(why, "every window must meet the input; pad with weft_pad for more");
            return code;
        }
        if (win.padding > 0 && x->dims[2 + i] < win.dilation) {
            code = wf_fail(why, WEFT_ESHAPE,
                           "%s: dilation %" PRId64 " steps from the padding over all %" PRId64
                           " elements",
                           side, win.dilation, x->dims[2 + i]);
            wf_hint(why, "every window must meet the input; pad with weft_pad for more");
            return code;
        }
        if (x->dims[2 + i] == 0) {
            code = wf_fail(why, WEFT_ESHAPE, "%s: the input has no elements", side);
            wf_hint(why, "pooling needs an input of 1 x 1 or more; batch and channels may be 0");
            return code;
        }
    }
    return 0;
}

WF_INFER(pool2d)
{
    bool max = op == WF_OP_MAX_POOL2D;
    int code = wf_check_attr(attr, max ? 8 : 6, 0, 0, why);
    if (code ||
        (code = max ? wf_check_dtype(&src[0], 0, WF_DT_FI, "numbers", why)
                    : wf_check_dtype(&src[0], 0, WF_DT_F, FLOATS, why)) ||
        (code = wf_check_rank(src, 0, 4, "input[n, channels, height, width]", why)) ||
        (code = pool_result(attr, max, &src[0], &dst[0], why))) {
        return code;
    }
    if (max) {
        dst[1] = dst[0];
        dst[1].dtype = WEFT_I64;
    }
    return 0;
}

WF_INFER(pool2d_bwd)
{
    int code = wf_check_attr(attr, 6, 2, 0, why);
    if (code || (code = wf_check_dtype(&src[0], 0, WF_DT_F, FLOATS, why)) ||
        (code = wf_check_rank(src, 0, 4, "gradient[n, channels, height, width]", why))) {
        return code;
    }
    int64_t dims[4] = {src[0].dims[0], src[0].dims[1], attr->dyn[0], attr->dyn[1]};
    dst[0].dtype = src[0].dtype;
    wf_type y;
    if ((code = wf_check_dims(&dst[0], dims, 4, why)) ||
        (code = pool_result(attr, false, &dst[0], &y, why))) {
        return code;
    }
    for (int i = 2; i < 4; i++) {
        if (y.dims[i] != src[0].dims[i]) {
            return wf_fail(why, WEFT_ESHAPE,
                           "axis %d of the gradient has extent %" PRId64 "; pooling gives %" PRId64,
                           i, src[0].dims[i], y.dims[i]);
        }
    }
    return 0;
}

/* -- attention
 * ------------------------------------------------------------------------------------- */
/* The mask broadcasts to [batch.., l, s] and has a type that can mask. */
static int check_mask(const wf_type *mask, int dt, const wf_type *batch, int64_t l, int64_t s,
                      wf_why *why)
{
    wf_type want = *batch, grid;
    want.dims[want.rank++] = l;
    want.dims[want.rank++] = s;
    grid = want;
    if (mask->dtype != WEFT_BOOL && mask->dtype != dt) {
        int code = wf_fail(why, WEFT_EDTYPE, "the mask is %s", wf_dtype_name(mask->dtype));
        wf_hint(why, "a mask is bool (true: attend) or %s (added to the scores)",
                wf_dtype_name(dt));
        return code;
    }
    int code = wf_broadcast(&grid, mask, why);
    if (code) {
        return code;
    }
    if (!wf_type_same_dims(&grid, &want)) {
        code = wf_fail(why, WEFT_ESHAPE,
                       "the mask is larger than the scores [.., %" PRId64 ", %" PRId64 "]", l, s);
        wf_hint(why, "the mask broadcasts to [.., l, s]");
        return code;
    }
    return 0;
}

/* Checks q k v mask; fills out[.., l, ev] with the broadcast batch. mask may be absent. */
static int attention_result(const wf_type *q, const wf_type *k, const wf_type *v,
                            const wf_type *mask, wf_type *out, wf_why *why)
{
    const wf_type *all[3] = {q, k, v};
    static const char *const names[3] = {"query", "key", "value"};
    *out = (wf_type){.dtype = q->dtype};
    int code;
    for (int i = 0; i < 3; i++) {
        if (all[i]->dtype >= WEFT_DTYPE_COUNT || !(WF_BIT(all[i]->dtype) & WF_DT_F) ||
            all[i]->dtype != q->dtype) {
            code = wf_fail(why, WEFT_EDTYPE, "the %s is %s, the query %s", names[i],
                           wf_dtype_name(all[i]->dtype), wf_dtype_name(q->dtype));
            wf_hint(why, "query, key and value have one floating-point type");
            return code;
        }
        if (all[i]->rank < 2) {
            code = wf_fail(why, WEFT_ESHAPE, "the %s has rank %d; 2 or more is needed", names[i],
                           all[i]->rank);
            wf_hint(why, "query[.., l, e], key[.., s, e], value[.., s, ev]");
            return code;
        }
        wf_type batch = *all[i];
        batch.rank = (uint8_t)(batch.rank - 2);
        if ((code = wf_broadcast(out, &batch, why))) {
            return code;
        }
    }
    int64_t l = q->dims[q->rank - 2], e = q->dims[q->rank - 1], s = k->dims[k->rank - 2];
    if (e == 0) {
        code = wf_fail(why, WEFT_ESHAPE, "the last axis of query and key is empty");
        wf_hint(why, "a query has at least one feature");
        return code;
    }
    if (k->dims[k->rank - 1] != e || v->dims[v->rank - 2] != s) {
        code = k->dims[k->rank - 1] != e
                   ? wf_fail(why, WEFT_ESHAPE,
                             "the last axis differs: %" PRId64 " of the query against %" PRId64
                             " of the key",
                             e, k->dims[k->rank - 1])
                   : wf_fail(why, WEFT_ESHAPE, "%" PRId64 " keys (axis %d) but %" PRId64 " values",
                             s, k->rank - 2, v->dims[v->rank - 2]);
        wf_hint(why, "query[.., l, e], key[.., s, e], value[.., s, ev]");
        return code;
    }
    if (wf_type_present(mask) && (code = check_mask(mask, q->dtype, out, l, s, why))) {
        return code;
    }
    if (out->rank + 2 > WF_MAX_RANK) {
        return wf_fail(why, WEFT_ESHAPE, "the result would have rank %d", out->rank + 2);
    }
    out->dims[out->rank++] = l;
    out->dims[out->rank++] = v->dims[v->rank - 1];
    return 0;
}

/* The logsumexp of out[.., l, ev]: [.., l] in the compute type. */
static wf_type attention_lse(const wf_type *out)
{
    wf_type t = *out;
    t.rank--;
    t.dtype = out->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    return t;
}

WF_INFER(sdpa)
{
    static const wf_type absent = {.dtype = WEFT_DTYPE_DEFAULT};
    int code = wf_check_attr(attr, 0, 0, 1, why);
    if (code || (code = attention_result(&src[0], &src[1], &src[2], nsrc > 3 ? &src[3] : &absent,
                                         &dst[0], why))) {
        return code;
    }
    dst[1] = attention_lse(&dst[0]);
    return 0;
}

static int check_type_is(const wf_type *have, const wf_type *want, const char *what, wf_why *why)
{
    if (have->dtype != want->dtype) {
        return wf_fail(why, WEFT_EDTYPE, "the %s is %s; %s is needed", what,
                       wf_dtype_name(have->dtype), wf_dtype_name(want->dtype));
    }
    if (!wf_type_same_dims(have, want)) {
        int code =
            wf_fail(why, WEFT_ESHAPE, "the %s does not have the shape of attention's result", what);
        wf_hint(why, "pass what scaled_dot_product_attention returned");
        return code;
    }
    return 0;
}

WF_INFER(sdpa_bwd)
{
    static const wf_type absent = {.dtype = WEFT_DTYPE_DEFAULT};
    wf_type out;
    int code = wf_check_attr(attr, 0, 0, 1, why);
    if (code || (code = attention_result(&src[1], &src[2], &src[3], nsrc > 6 ? &src[6] : &absent,
                                         &out, why))) {
        return code;
    }
    wf_type lse = attention_lse(&out);
    if ((code = check_type_is(&src[0], &out, "gradient", why)) ||
        (code = check_type_is(&src[4], &out, "output", why)) ||
        (code = check_type_is(&src[5], &lse, "logsumexp", why))) {
        return code;
    }
    for (int i = 0; i < 3; i++) {
        dst[i] = src[1 + i];
    }
    return 0;
}
