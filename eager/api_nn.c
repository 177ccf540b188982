/*
 * eager/api_nn.c -- layers called as one op (weft/ops_nn.h).
 *
 * Invariants: optional operands that were not given go to dispatch as WF_ABSENT; float operands of
 * different types are promoted to one; compositions open a scope of their own.
 */
#include <math.h>
#include <string.h>

#include "eager/api.h"
#include "eager/device.h"
#include "eager/pool.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* Promotes src and runs op on it; the first of ndst results is returned. */
static weft_tensor promoted(wf_op op, const wf_attr *attr, int nsrc, weft_tensor *src, int ndst)
{
    weft_tensor r[WF_MAX_DST], given[4] = {WEFT_NONE};
    if (__builtin_expect(wf_api_alike(nsrc, src), 1)) {
        wf_dispatch(op, attr, nsrc, src, ndst, r);
        for (int i = 1; i < ndst; i++) {
            weft_free(r[i]);
        }
        return r[0];
    }
    for (int i = 0; i < nsrc && i < 4; i++) {
        given[i] = src[i];
    }
    wf_called w;
    wf_called_begin(&w, wf_rows[op].name, nsrc, given);
    weft_scope sc = weft_scope_begin();
    wf_api_unify(nsrc, src);
    wf_dispatch(op, attr, nsrc, src, ndst, r);
    return wf_called_end(&w, weft_scope_return(sc, r[0]));
}

weft_tensor(weft_linear)(weft_tensor x, weft_tensor weight, weft_tensor bias)
{
    weft_tensor src[3] = {x, weight, wf_optional(bias)};
    return promoted(WF_OP_LINEAR, NULL, wf_is_absent(src[2]) ? 2 : 3, src, 1);
}

weft_tensor(weft_softmax)(weft_tensor x, int axis)
{
    return wf_api_along(WF_OP_SOFTMAX, x, axis);
}

weft_tensor(weft_log_softmax)(weft_tensor x, int axis)
{
    return wf_api_along(WF_OP_LOG_SOFTMAX, x, axis);
}

/* -- normalisation ------------------------------------------------------------------------------------------ */

weft_tensor(weft_layer_norm)(const weft_layer_norm_args *args)
{
    if (!args) {
        return wf_api_null("layer_norm", "the argument struct");
    }
    int64_t axes = args->axes ? args->axes : 1;
    double eps = wf_option(args->eps, 1e-5);
    weft_tensor src[3] = {args->x, wf_optional(args->weight), wf_optional(args->bias)};
    wf_attr attr = {.n_ints = 1, .ints = &axes, .n_flt = 1, .flt = &eps};
    return promoted(WF_OP_LAYER_NORM, &attr, 3, src, 3);
}

weft_tensor(weft_rms_norm)(const weft_rms_norm_args *args)
{
    if (!args) {
        return wf_api_null("rms_norm", "the argument struct");
    }
    int64_t axes = args->axes ? args->axes : 1;
    double eps = wf_option(args->eps, 1e-6);
    weft_tensor src[2] = {args->x, wf_optional(args->weight)};
    wf_attr attr = {.n_ints = 1, .ints = &axes, .n_flt = 1, .flt = &eps};
    return promoted(WF_OP_RMS_NORM, &attr, 2, src, 2);
}

/* running += momentum * (batch - running), not recorded. */
static weft_tensor move_running(weft_tensor running, weft_tensor batch, double momentum)
{
    if (wf_is_absent(running)) {
        return WEFT_NONE;
    }
    wf_ctx *c = wf_ctx_get();
    weft_tensor src[3] = {running, batch, weft_f(momentum)};
    c->grad_off++;
    int rc = wf_dispatch_inplace(WF_OP_LERP, NULL, 3, src, running);
    c->grad_off--;
    c->last_write = WEFT_NONE; /* the caller gets a tensor: the next status is of another call */
    if (rc) {
        return wf_last_error(c);
    }
    wf_wrote_as(c, running, WF_WRITE_BATCH_NORM, NULL);
    return WEFT_NONE;
}

/* The statistics of a batch of `count` values per channel, as the update of the running ones, which hold the sample
 * variance. An empty batch says nothing. */
static weft_tensor track(const weft_tensor *src, int64_t count, double momentum, weft_tensor mean,
                         weft_tensor var)
{
    weft_tensor err = count ? move_running(src[3], mean, momentum) : WEFT_NONE;
    if (count == 0 || err.serial != 0 || wf_is_absent(src[4])) {
        return err;
    }
    const double unbias = wf_plain_quotient((double)count, (double)(count - 1));
    return move_running(src[4], wf_op2(WF_OP_MUL, NULL, var, weft_f(unbias)), momentum);
}

/* What the row cannot say: which rank x needs, when statistics stand in; statistics that are not given, or cannot be
 * computed. *count: values per channel. */
static bool batch_norm_ok(wf_arg *a, bool training, const weft_tensor *src, int64_t *count)
{
    const wf_type *t = &a->type;
    if (t->rank < 2) {
        return wf_arg_fail(a, WEFT_ESHAPE, "add the missing axes with weft_reshape",
                           "x has rank %d; batch_norm needs [n, channels, ...]", t->rank);
    }
    if (!training && (wf_is_absent(src[3]) || wf_is_absent(src[4]))) {
        return wf_arg_fail(a, WEFT_EINVALID,
                           "pass running_mean and running_var, or .training = true",
                           "without training the running statistics are needed");
    }
    *count = t->dims[1] ? wf_type_numel(t) / t->dims[1] : 0;
    if (training && *count == 1) {
        return wf_arg_fail(a, WEFT_ESHAPE,
                           "train on more samples or larger images, or pass "
                           "the running statistics and no .training",
                           "one value per channel has no variance");
    }
    return true;
}

weft_tensor(weft_batch_norm)(const weft_batch_norm_args *args)
{
    wf_arg a;
    if (!args) {
        return wf_api_null("batch_norm", "the argument struct");
    }
    if (!wf_arg_open(&a, "batch_norm", args->x)) {
        return a.error;
    }
    weft_tensor src[5] = {args->x, wf_optional(args->weight), wf_optional(args->bias),
                          wf_optional(args->running_mean), wf_optional(args->running_var)};
    int64_t count;
    if (!batch_norm_ok(&a, args->training, src, &count)) {
        return a.error;
    }
    double eps = wf_option(args->eps, 1e-5), momentum = wf_option(args->momentum, 0.1);
    wf_attr attr = {.flags = args->training ? WF_FLAG_TRAINING : 0, .n_flt = 1, .flt = &eps};
    weft_tensor r[3], all[5];
    WF_CALLED(w, "batch_norm", src[0], src[1], src[2], src[3], src[4]);
    weft_scope sc = weft_scope_begin();
    int before = wf_device_enter(a.c, a.device);
    for (int i = 0; i < 5; i++) { /* the row takes all five: 1, 0, 0, 1 stand in */
        bool stand_in = wf_is_absent(src[i]);
        weft_shape channels = weft_shape_from(1, &a.type.dims[1]);
        all[i] = stand_in ? weft_full(channels, i == 1 || i == 4,
                                      (weft_dtype)wf_dtype_compute(a.type.dtype))
                          : src[i];
    }
    wf_device_enter(a.c, before);
    wf_dispatch(WF_OP_BATCH_NORM, &attr, 5, all, 3, r);
    if (args->training && r[0].slot != 0) {
        weft_tensor err = track(src, count, momentum, r[1], r[2]);
        r[0] = err.serial != 0 ? err : r[0];
    }
    return wf_called_end(&w, weft_scope_return(sc, r[0]));
}

/* [channels], of which messages say what they are. */
static bool channels_ok(wf_arg *a, const char *what, weft_tensor t, int64_t channels)
{
    wf_arg b;
    if (wf_is_absent(t)) {
        return true;
    }
    if (!wf_arg_open(&b, a->op, t)) {
        a->error = b.error;
        return false;
    }
    if (b.type.rank != 1 || b.type.dims[0] != channels) {
        return wf_arg_fail(a, WEFT_ESHAPE, "one element for each channel",
                           "%s is not of shape [%lld]", what, (long long)channels);
    }
    return true;
}

/* layer_norm of each group of channels, with all that lies behind them, as a row; with weight or bias, which are of channels,
 * as c rows of it. */
static weft_tensor grouped_norm(wf_arg *a, const weft_tensor *given, int64_t groups, double eps)
{
    const wf_type *t = &a->type;
    weft_tensor src[3] = {given[0], given[1], given[2]};
    if (t->rank < 2) {
        wf_arg_fail(a, WEFT_ESHAPE, "add the missing axes with weft_reshape",
                    "x has rank %d; %s needs [n, channels, ...]", t->rank, a->op);
        return a->error;
    }
    const int64_t n = t->dims[0], channels = t->dims[1];
    if (groups < 1 || channels % groups != 0) {
        wf_arg_fail(a, WEFT_ESHAPE, "groups are 1 or more and divide the channels",
                    "%lld groups do not divide %lld channels", (long long)groups,
                    (long long)channels);
        return a->error;
    }
    if (!channels_ok(a, "the weight", src[1], channels) ||
        !channels_ok(a, "the bias", src[2], channels)) {
        return a->error;
    }
    wf_api_unify(3, src);
    const int64_t c = channels / groups;
    int64_t each = 1;
    for (int i = 2; i < t->rank; i++) {
        each *= t->dims[i];
    }
    const bool affine = !wf_is_absent(src[1]) || !wf_is_absent(src[2]);
    int64_t axes = affine ? 2 : 1;
    weft_tensor row[3] = {affine ? wf_api_reshape(src[0], 4, (int64_t[]){n, groups, c, each})
                                 : wf_api_reshape(src[0], 3, (int64_t[]){n, groups, c * each}),
                          WF_ABSENT, WF_ABSENT};
    for (int i = 1; i < 3; i++) {
        row[i] =
            wf_is_absent(src[i]) ? row[i] : wf_api_reshape(src[i], 3, (int64_t[]){groups, c, 1});
    }
    weft_tensor r[3];
    wf_attr attr = {.flags = affine ? WF_FLAG_CHANNELS : 0,
                    .n_ints = 1,
                    .ints = &axes,
                    .n_flt = 1,
                    .flt = &eps};
    wf_dispatch(WF_OP_LAYER_NORM, &attr, 3, row, 3, r);
    return wf_api_reshape(r[0], t->rank, t->dims);
}

weft_tensor(weft_group_norm)(const weft_group_norm_args *args)
{
    wf_arg a;
    if (!args) {
        return wf_api_null("group_norm", "the argument struct");
    }
    if (!wf_arg_open(&a, "group_norm", args->x)) {
        return a.error;
    }
    WF_CALLED(w, "group_norm", args->x, wf_optional(args->weight), wf_optional(args->bias));
    weft_scope sc = weft_scope_begin();
    weft_tensor y = grouped_norm(&a, w_src, args->groups, wf_option(args->eps, 1e-5));
    return wf_called_end(&w, weft_scope_return(sc, y));
}

weft_tensor(weft_instance_norm)(const weft_instance_norm_args *args)
{
    wf_arg a;
    if (!args) {
        return wf_api_null("instance_norm", "the argument struct");
    }
    if (!wf_arg_open(&a, "instance_norm", args->x)) {
        return a.error;
    }
    WF_CALLED(w, "instance_norm", args->x, wf_optional(args->weight), wf_optional(args->bias));
    weft_scope sc = weft_scope_begin();
    int64_t channels = a.type.rank < 2 ? 1 : a.type.dims[1], spatial = 1;
    for (int i = 2; i < a.type.rank; i++) {
        spatial *= a.type.dims[i];
    }
    weft_tensor y;
    if (a.type.rank >= 2 && spatial == 1) {
        wf_arg_fail(&a, WEFT_ESHAPE,
                    "an instance is a channel of one sample; weft_layer_norm takes all channels",
                    "one value per instance has no variance");
        y = a.error;
    } else { /* of no channels there is one empty group */
        y = grouped_norm(&a, w_src, channels ? channels : 1, wf_option(args->eps, 1e-5));
    }
    return wf_called_end(&w, weft_scope_return(sc, y));
}

/* -- windows -------------------------------------------------------------------------------------------------- */

/* One or two numbers into out[2]; none: dflt. */
static bool pair(wf_arg *a, const char *what, const weft_shape *s, const int64_t *dflt,
                 int64_t *out)
{
    if (wf_is_bare(s)) {
        return wf_arg_fail(a, WEFT_EINVALID, "write weft_shape(2) or weft_shape(2, 3)",
                           "a bare number stands where the %s belongs", what);
    }
    if (s->n == 0 && dflt) {
        out[0] = dflt[0];
        out[1] = dflt[1];
        return true;
    }
    if (s->n != 1 && s->n != 2) {
        return wf_arg_fail(a, WEFT_EINVALID, "one number stands for both axes",
                           "%s has %lld numbers; height and width are needed", what,
                           (long long)s->n);
    }
    out[0] = s->v[0];
    out[1] = s->v[s->n - 1];
    return true;
}

static const int64_t ones[2] = {1, 1}, zeros[2] = {0, 0};

/* pair() of an op with `axes` spatial axes; of one, it is the width of two. */
static bool spatial(wf_arg *a, int axes, const char *what, const weft_shape *s, const int64_t *dflt,
                    int64_t *out)
{
    if (axes == 1 && s->n > 1) {
        return wf_arg_fail(a, WEFT_EINVALID, "give one number for the one axis",
                           "%s has %lld numbers", what, (long long)s->n);
    }
    if (!pair(a, what, s, dflt, out)) {
        return false;
    }
    out[0] = axes == 1 ? dflt[0] : out[0];
    return true;
}

/* Is t of the rank that its axes are named for? *type: its type. */
static bool rank_ok(wf_arg *a, weft_tensor t, int rank, const char *needed, wf_type *type)
{
    wf_arg b;
    if (!wf_arg_open(&b, a->op, t)) {
        a->error = b.error;
        return false;
    }
    *type = b.type;
    return b.type.rank == rank || wf_arg_fail(a, WEFT_ESHAPE, "weft_reshape adds missing axes",
                                              "%s is needed; it has rank %d", needed, b.type.rank);
}

weft_tensor(weft_conv2d)(const weft_conv2d_args *args)
{
    wf_arg a;
    int64_t ints[7];
    if (!args) {
        return wf_api_null("conv2d", "the argument struct");
    }
    if (!wf_arg_open(&a, "conv2d", args->x) || !pair(&a, "stride", &args->stride, ones, ints) ||
        !pair(&a, "padding", &args->padding, zeros, ints + 2) ||
        !pair(&a, "dilation", &args->dilation, ones, ints + 4)) {
        return a.error;
    }
    ints[6] = args->groups ? args->groups : 1;
    weft_tensor src[3] = {args->x, args->weight, wf_optional(args->bias)};
    wf_attr attr = {.n_ints = 7, .ints = ints};
    return promoted(WF_OP_CONV2D, &attr, wf_is_absent(src[2]) ? 2 : 3, src, 1);
}

weft_tensor(weft_conv1d)(const weft_conv2d_args *args)
{
    wf_arg a;
    wf_type t;
    int64_t ints[7];
    if (!args) {
        return wf_api_null("conv1d", "the argument struct");
    }
    if (!wf_arg_open(&a, "conv1d", args->x)) {
        return a.error;
    }
    weft_tensor src[3] = {args->x, args->weight, wf_optional(args->bias)};
    WF_CALLED(w, "conv1d", src[0], src[1], src[2]);
    weft_scope sc = weft_scope_begin();
    weft_tensor y = WEFT_NONE;
    if (spatial(&a, 1, "stride", &args->stride, ones, ints) &&
        spatial(&a, 1, "padding", &args->padding, zeros, ints + 2) &&
        spatial(&a, 1, "dilation", &args->dilation, ones, ints + 4) &&
        rank_ok(&a, src[0], 3, "x[n, channels, width]", &t) &&
        rank_ok(&a, src[1], 3, "weight[out, in / groups, width]", &t)) {
        ints[6] = args->groups ? args->groups : 1;
        wf_attr attr = {.n_ints = 7, .ints = ints};
        src[0] = (weft_unsqueeze)(src[0], 2);
        src[1] = (weft_unsqueeze)(src[1], 2);
        wf_api_unify(3, src);
        wf_dispatch(WF_OP_CONV2D, &attr, wf_is_absent(src[2]) ? 2 : 3, src, 1, &y);
        y = (weft_squeeze)(y, (weft_axes){.n = 1, .v = {2}});
    } else {
        y = a.error;
    }
    return wf_called_end(&w, weft_scope_return(sc, y));
}

/* -- transposed convolution: what conv2d's gradient does to that of its result ------------------------------ */

typedef struct transposed {
    int axes;        /* spatial: 1 or 2 */
    wf_type x, w;    /* of two spatial axes */
    int64_t ints[7]; /* of conv2d */
    int64_t more[2]; /* output_padding */
    int64_t room[2]; /* zeros behind x: output_padding that is no remainder of the stride */
    int64_t dims[2]; /* of the result */
} transposed;

/* Height (0) or width (1) of the result. */
static bool transposed_extent(wf_arg *a, transposed *p, int i)
{
    const char *side = i ? "width" : "height";
    int64_t n = p->x.dims[2 + i], k = p->w.dims[2 + i], stride = p->ints[i], pad = p->ints[2 + i],
            dilation = p->ints[4 + i], more = p->more[i], reach, out;
    if (k < 1 || stride < 1 || pad < 0 || dilation < 1) {
        return wf_arg_fail(a, WEFT_EINVALID,
                           "kernel, stride and dilation are 1 or more, padding 0 or more",
                           "%s: kernel %lld, stride %lld, padding %lld, dilation %lld", side,
                           (long long)k, (long long)stride, (long long)pad, (long long)dilation);
    }
    if (more < 0 || more >= (stride > dilation ? stride : dilation)) {
        return wf_arg_fail(a, WEFT_EINVALID,
                           "output_padding is 0 or more, and below the stride or the dilation",
                           "%s: output_padding %lld beside stride %lld and dilation %lld", side,
                           (long long)more, (long long)stride, (long long)dilation);
    }
    p->room[i] = more / stride;
    if (__builtin_mul_overflow(n - 1, stride, &out) ||
        __builtin_mul_overflow(k - 1, dilation, &reach) ||
        __builtin_add_overflow(out, reach, &out) || __builtin_add_overflow(out, more + 1, &out) ||
        __builtin_mul_overflow(pad, 2, &pad) || __builtin_sub_overflow(out, pad, &out)) {
        return wf_arg_fail(a, WEFT_ENOMEM, NULL, "%s: the result overflows 64 bits", side);
    }
    if (n < 1 || out < 1) {
        return wf_arg_fail(a, WEFT_ESHAPE, "there must be an element, and less padding than result",
                           "%s: of %lld elements nothing is left", side, (long long)n);
    }
    p->dims[i] = out;
    return true;
}

static bool transposed_ok(wf_arg *a, transposed *p, const weft_tensor *src)
{
    static const char *const x_axes[2] = {"x[n, channels, width]", "x[n, channels, height, width]"};
    static const char *const w_axes[2] = {"weight[in, out / groups, width]",
                                          "weight[in, out / groups, height, width]"};
    int axes = p->axes;
    if (!rank_ok(a, src[0], 2 + axes, x_axes[axes - 1], &p->x) ||
        !rank_ok(a, src[1], 2 + axes, w_axes[axes - 1], &p->w)) {
        return false;
    }
    if (axes == 1) {
        p->x.dims[3] = p->x.dims[2];
        p->w.dims[3] = p->w.dims[2];
        p->x.dims[2] = p->w.dims[2] = 1;
    }
    int64_t channels = p->x.dims[1], groups = p->ints[6], out;
    if (groups < 1 || channels % groups != 0) {
        return wf_arg_fail(a, WEFT_ESHAPE, "groups are 1 or more and divide the channels",
                           "%lld groups do not divide %lld channels", (long long)groups,
                           (long long)channels);
    }
    if (p->w.dims[0] != channels) {
        return wf_arg_fail(a, WEFT_ESHAPE, "the weight is that of the convolution it transposes",
                           "the input has %lld channels (axis 1); the weight takes %lld (axis 0)",
                           (long long)channels, (long long)p->w.dims[0]);
    }
    if (__builtin_mul_overflow(p->w.dims[1], groups, &out)) {
        return wf_arg_fail(a, WEFT_ENOMEM, NULL, "the number of channels overflows 64 bits");
    }
    return channels_ok(a, "the bias", src[2], out) && transposed_extent(a, p, 0) &&
           transposed_extent(a, p, 1);
}

/* src are unified and of two spatial axes. */
static weft_tensor transpose_conv(const transposed *p, const weft_tensor *src)
{
    weft_tensor x = src[0];
    if (p->room[0] || p->room[1]) {
        int64_t around[8] = {0, 0, 0, 0, 0, p->room[0], 0, p->room[1]};
        double zero = 0;
        x = wf_op1(WF_OP_PAD, &(wf_attr){.n_dyn = 8, .dyn = around, .n_flt = 1, .flt = &zero}, x);
    }
    wf_attr attr = {.n_ints = 7, .ints = p->ints, .n_dyn = 2, .dyn = p->dims};
    weft_tensor y = wf_op2(WF_OP_CONV2D_DX, &attr, x, src[1]);
    if (wf_is_absent(src[2])) {
        return y;
    }
    const int64_t channels[3] = {p->w.dims[1] * p->ints[6], 1, 1};
    return wf_op2(WF_OP_ADD, NULL, y, wf_api_reshape(src[2], 3, channels));
}

static weft_tensor conv_transpose(const char *op, int axes, const weft_conv_transpose_args *args)
{
    wf_arg a;
    if (!args) {
        return wf_api_null(op, "the argument struct");
    }
    if (!wf_arg_open(&a, op, args->x)) {
        return a.error;
    }
    transposed p = {.axes = axes};
    p.ints[6] = args->groups ? args->groups : 1;
    weft_tensor src[3] = {args->x, args->weight, wf_optional(args->bias)};
    WF_CALLED(w, op, src[0], src[1], src[2]);
    weft_scope sc = weft_scope_begin();
    weft_tensor y;
    if (spatial(&a, axes, "stride", &args->stride, ones, p.ints) &&
        spatial(&a, axes, "padding", &args->padding, zeros, p.ints + 2) &&
        spatial(&a, axes, "dilation", &args->dilation, ones, p.ints + 4) &&
        spatial(&a, axes, "output_padding", &args->output_padding, zeros, p.more) &&
        transposed_ok(&a, &p, src)) {
        for (int i = 0; axes == 1 && i < 2; i++) {
            src[i] = (weft_unsqueeze)(src[i], 2);
        }
        wf_api_unify(3, src);
        y = transpose_conv(&p, src);
        y = axes == 1 ? (weft_squeeze)(y, (weft_axes){.n = 1, .v = {2}}) : y;
    } else {
        y = a.error;
    }
    return wf_called_end(&w, weft_scope_return(sc, y));
}

weft_tensor(weft_conv_transpose1d)(const weft_conv_transpose_args *args)
{
    return conv_transpose("conv_transpose1d", 1, args);
}

weft_tensor(weft_conv_transpose2d)(const weft_conv_transpose_args *args)
{
    return conv_transpose("conv_transpose2d", 2, args);
}

/* -- pooling -------------------------------------------------------------------------------------------------- */

static bool pool_ints(wf_arg *a, const weft_pool2d_args *args, int64_t *ints)
{
    return pair(a, "kernel", &args->kernel, NULL, ints) &&
           pair(a, "stride", &args->stride, ints, ints + 2) &&
           pair(a, "padding", &args->padding, zeros, ints + 4) &&
           pair(a, "dilation", &args->dilation, ones, ints + 6);
}

weft_tensor(weft_max_pool2d)(const weft_pool2d_args *args)
{
    wf_arg a;
    int64_t ints[8];
    if (!args) {
        return wf_api_null("max_pool2d", "the argument struct");
    }
    if (!wf_arg_open(&a, "max_pool2d", args->x) || !pool_ints(&a, args, ints)) {
        return a.error;
    }
    wf_attr attr = {.flags = args->ceil_mode ? WF_FLAG_CEIL : 0, .n_ints = 8, .ints = ints};
    weft_tensor r[2];
    if (wf_dispatch(WF_OP_MAX_POOL2D, &attr, 1, &args->x, 2, r) == 0 && !args->indices) {
        weft_free(r[1]);
    }
    if (args->indices) {
        *args->indices = r[1];
    }
    return r[0];
}

weft_tensor(weft_avg_pool2d)(const weft_pool2d_args *args)
{
    wf_arg a;
    int64_t ints[8];
    if (!args) {
        return wf_api_null("avg_pool2d", "the argument struct");
    }
    if (!wf_arg_open(&a, "avg_pool2d", args->x) || !pool_ints(&a, args, ints)) {
        return a.error;
    }
    if (args->indices || args->dilation.n) {
        wf_arg_fail(&a, WEFT_EINVALID, "max_pool2d has them", "it takes no %s",
                    args->indices ? ".indices" : ".dilation");
        return a.error;
    }
    unsigned flags =
        (args->ceil_mode ? WF_FLAG_CEIL : 0) | (args->count_include_pad ? WF_FLAG_COUNT_PAD : 0);
    return wf_op1(WF_OP_AVG_POOL2D, &(wf_attr){.flags = (uint8_t)flags, .n_ints = 6, .ints = ints},
                  args->x);
}

/* -- attention --------------------------------------------------------------------------------------------------- */

/* A mask of more batch axes, or of longer ones, than the scores makes more of these: the query stands for each. What does not fit is
 * left to the row. */
static weft_tensor query_for_mask(weft_tensor q, weft_tensor mask)
{
    wf_arg a, m;
    wf_why why = {0};
    if (wf_is_absent(mask) || !wf_arg_open(&a, "scaled_dot_product_attention", q) ||
        !wf_arg_open(&m, "scaled_dot_product_attention", mask) || a.type.rank < 2 ||
        m.type.rank <= 2) {
        return q;
    }
    wf_type batch = a.type, own = m.type;
    batch.rank = (uint8_t)(batch.rank - 2);
    own.rank = (uint8_t)(own.rank - 2);
    const wf_type was = batch;
    if (wf_broadcast(&batch, &own, &why) || wf_type_same_dims(&batch, &was) ||
        batch.rank + 2 > WF_MAX_RANK) {
        return q;
    }
    memcpy(&batch.dims[batch.rank], &a.type.dims[a.type.rank - 2], 2 * sizeof batch.dims[0]);
    return wf_op1(WF_OP_EXPAND, &(wf_attr){.n_dyn = (uint8_t)(batch.rank + 2), .dyn = batch.dims},
                  q);
}

weft_tensor(weft_scaled_dot_product_attention)(const weft_attention_args *args)
{
    wf_arg a;
    if (!args) {
        return wf_api_null("scaled_dot_product_attention", "the argument struct");
    }
    if (!wf_arg_open(&a, "scaled_dot_product_attention", args->q)) {
        return a.error;
    }
    int64_t e = a.type.rank ? a.type.dims[a.type.rank - 1] : 1;
    double scale = wf_option(args->scale, e > 0 ? wf_plain_rsqrt((double)e) : 1);
    weft_tensor src[4] = {args->q, args->k, args->v, wf_optional(args->mask)};
    wf_attr attr = {.flags = args->causal ? WF_FLAG_CAUSAL : 0, .n_flt = 1, .flt = &scale};
    weft_tensor r[2];
    WF_CALLED(w, "scaled_dot_product_attention", src[0], src[1], src[2], src[3]);
    weft_scope sc = weft_scope_begin();
    wf_api_unify(3, src);
    src[0] = query_for_mask(src[0], src[3]);
    wf_dispatch(WF_OP_SDPA, &attr, wf_is_absent(src[3]) ? 3 : 4, src, 2, r);
    return wf_called_end(&w, weft_scope_return(sc, r[0]));
}

/* -- dropout ------------------------------------------------------------------------------------------------------ */

weft_tensor(weft_dropout)(const weft_dropout_args *args)
{
    wf_arg a;
    if (!args) {
        return wf_api_null("dropout", "the argument struct");
    }
    if (!wf_arg_open(&a, "dropout", args->x)) {
        return a.error;
    }
    if (!(args->p >= 0 && args->p <= 1)) {
        wf_arg_fail(&a, WEFT_EINVALID, "p is the share that is dropped",
                    "probability %g is not in [0, 1]", args->p);
        return a.error;
    }
    if (!(WF_BIT(a.type.dtype) & WF_DT_F)) {
        wf_arg_fail(&a, WEFT_EDTYPE, "cast first: weft_cast(x, WEFT_F32)",
                    "%s elements cannot be scaled", wf_dtype_name(a.type.dtype));
        return a.error;
    }
    double p = args->p == WEFT_ZERO ? 0 : args->p;
    if (!args->training || p == 0) {
        return wf_is_scalar(args->x) ? args->x : wf_api_alias(args->x, &a.type);
    }
    WF_CALLED(w, "dropout", args->x);
    weft_scope sc = weft_scope_begin();
    double keep = 1 - p;
    weft_shape shape = weft_shape_from(a.type.rank, a.type.dims);
    int before = wf_device_enter(a.c, a.device);
    weft_tensor mask = weft_bernoulli(shape, keep == 0 ? WEFT_ZERO : keep, WEFT_BOOL,
                                      .generator = args->generator);
    wf_device_enter(a.c, before);
    const double factor = keep > 0 ? wf_plain_quotient(1, keep) : 0;
    weft_tensor y = wf_op2(WF_OP_MUL, NULL, args->x, weft_f(factor));
    y = wf_op3(WF_OP_WHERE, NULL, mask, y, weft_f(0));
    return wf_called_end(&w, weft_scope_return(sc, y));
}
