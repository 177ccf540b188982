/*
 * eager/api_resample.c -- adaptive pooling and interpolation of weft/ops_nn.h: x at other extents.
 *
 * Each axis is taken alone. Which elements meet in one of the result follows from the extents, so it is computed by rows
 * from arange, on x's device and inside a trace as everything else; x goes through index_select, whose gradient adds in index
 * order. Places that two integers give exactly are computed in integers, others in f64, whatever type x has.
 *
 * Invariants: elements that do not belong to a result are never multiplied by zero, so that infinities and NaN stay where
 * they are; halves are widened first and rounded once.
 */
#include <math.h>

#include "eager/api.h"
#include "eager/device.h"
#include "eager/pool.h"
#include "eager/resample.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

static weft_tensor count_to(int64_t n, weft_dtype dtype)
{
    double start[2] = {0, 1};
    int64_t whole[3] = {n, 0, 1};
    wf_attr attr = {.dtype = (uint8_t)dtype, .n_dyn = 3, .dyn = whole};
    if (dtype == WEFT_F64) {
        attr =
            (wf_attr){.dtype = (uint8_t)dtype, .n_dyn = 1, .dyn = whole, .n_flt = 2, .flt = start};
    }
    return wf_op0(WF_OP_ARANGE, &attr);
}

static weft_tensor op2(wf_op op, weft_tensor a, weft_tensor b)
{
    return wf_op2(op, NULL, a, b);
}

/* floor((i * a + b) / c) of i64 places. */
static weft_tensor spread(weft_tensor i, int64_t a, int64_t b, int64_t c)
{
    weft_tensor y = op2(WF_OP_ADD, op2(WF_OP_MUL, i, weft_i(a)), weft_i(b));
    return op2(WF_OP_FLOOR_DIVIDE, y, weft_i(c));
}

static weft_tensor choose(weft_tensor x, int64_t axis, weft_tensor indices)
{
    return wf_op2(WF_OP_INDEX_SELECT, &(wf_attr){.n_ints = 1, .ints = &axis}, x, indices);
}

/* t, of one or two extents, with `more` of 1 behind them: as it stands to the axes of x from `axis` on. */
static weft_tensor beside(weft_tensor t, int64_t n, int64_t m, int more)
{
    int64_t dims[WF_MAX_RANK + 1] = {n, m};
    int rank = m < 0 ? 1 : 2;
    for (int i = 0; i < more; i++) {
        dims[rank++] = 1;
    }
    return wf_api_reshape(t, rank, dims);
}

/* -- adaptive pooling --------------------------------------------------------------------------------------- */

static weft_tensor adaptive_means(const wf_arg *a, const int64_t *size)
{
    const int64_t *d = a->type.dims;
    bool even = size[0] > 0 && size[1] > 0 && d[2] % size[0] == 0 && d[3] % size[1] == 0;
    if (size[0] == 1 && size[1] == 1) { /* all of a channel, which lies in one piece */
        const int64_t behind[2] = {2, 3}, ones[4] = {d[0], d[1], 1, 1};
        const wf_attr axes = {.n_ints = 2, .ints = behind};
        return wf_api_reshape(wf_op1(WF_OP_MEAN, &axes, a->x), 4, ones);
    }
    if (even) { /* windows of one size, side by side */
        int64_t h = d[2] / size[0], w = d[3] / size[1], ints[6] = {h, w, h, w, 0, 0};
        return wf_op1(WF_OP_AVG_POOL2D, &(wf_attr){.n_ints = 6, .ints = ints}, a->x);
    }
    const int64_t ints[6] = {size[0], size[1], 1, 1, 0, 0};
    const wf_attr windows = {.flags = WF_FLAG_ADAPTIVE, .n_ints = 6, .ints = ints};
    return wf_op1(WF_OP_AVG_POOL2D, &windows, a->x);
}

weft_tensor(weft_adaptive_avg_pool2d)(weft_tensor x, weft_shape size)
{
    wf_arg a;
    if (!wf_arg_open(&a, "adaptive_avg_pool2d", x)) {
        return a.error;
    }
    int64_t to[2] = {size.v[0], size.v[size.n == 2]};
    const int64_t *d = a.type.dims;
    if (size.n != 1 && size.n != 2) {
        wf_arg_fail(&a, WEFT_EINVALID, "one number stands for both axes",
                    "the size has %lld numbers; height and width are needed", (long long)size.n);
    } else if (!(WF_BIT(a.type.dtype) & WF_DT_F)) {
        wf_arg_fail(&a, WEFT_EDTYPE, "cast first: weft_cast(x, WEFT_F32)", "%s has no means",
                    wf_dtype_name(a.type.dtype));
    } else if (a.type.rank != 4) {
        wf_arg_fail(&a, WEFT_ESHAPE, "add the missing axes with weft_reshape",
                    "x[n, channels, height, width] is needed; it has rank %d", a.type.rank);
    } else if (to[0] < 0 || to[1] < 0 || d[2] < 1 || d[3] < 1) {
        wf_arg_fail(&a, WEFT_ESHAPE, "the input is 1 x 1 or more, no extent is negative",
                    "%lld x %lld elements cannot become %lld x %lld", (long long)d[2],
                    (long long)d[3], (long long)to[0], (long long)to[1]);
    } else {
        WF_CALLED(w, "adaptive_avg_pool2d", x);
        weft_scope sc = weft_scope_begin();
        int before = wf_device_enter(a.c, a.device);
        weft_tensor y = adaptive_means(&a, to);
        wf_device_enter(a.c, before);
        return wf_called_end(&w, weft_scope_return(sc, y));
    }
    return a.error;
}

/* -- interpolation -------------------------------------------------------------------------------------------- */

/* How an axis of n elements becomes one of m. */
typedef struct resize {
    int64_t axis, n, m;
    int behind;   /* axes that follow */
    double scale; /* elements of the result for one of x; 0: m / n, exactly */
} resize;

/* The scale where it is a whole number that the extents have to each other, else 0. */
static int64_t whole_scale(const resize *r)
{
    return r->scale >= 1 && r->scale < 0x1p31 && r->scale == floor(r->scale) &&
                   r->m == r->n * (int64_t)r->scale
               ? (int64_t)r->scale
               : 0;
}

/* The element each of the result is, [m] of i64. */
static weft_tensor nearest(const resize *r, bool exact)
{
    const int64_t times = whole_scale(r);
    if (times) {
        return op2(WF_OP_FLOOR_DIVIDE, count_to(r->m, WEFT_I64), weft_i(times));
    }
    if (r->scale == 0) {
        weft_tensor i = count_to(r->m, WEFT_I64);
        return exact ? spread(i, 2 * r->n, r->n, 2 * r->m) : spread(i, r->n, 0, r->m);
    }
    weft_tensor i = count_to(r->m, WEFT_F64);
    i = exact ? op2(WF_OP_ADD, i, weft_f(0.5)) : i;
    i = (weft_cast)(op2(WF_OP_DIV, i, weft_f(r->scale)),
                    WEFT_I64); /* 0 or more: truncation is floor */
    return op2(WF_OP_MINIMUM, i, weft_i(r->n - 1));
}

/* Where linear interpolation reads an axis, [m] of i64 each, and how much of either element it takes, [m] of dt. */
typedef struct corners {
    weft_tensor below, above, near, far;
} corners;

static corners corners_of(const resize *r, bool align_corners, weft_dtype dt)
{
    double n = (double)r->n, m = (double)r->m;
    corners k;
    weft_tensor at = count_to(r->m, WEFT_F64);
    if (align_corners) {
        at = op2(WF_OP_DIV, op2(WF_OP_MUL, at, weft_f(n - 1)), weft_f(m > 1 ? m - 1 : 1));
    } else {
        at = op2(WF_OP_ADD, at, weft_f(0.5));
        at = r->scale == 0 ? op2(WF_OP_DIV, op2(WF_OP_MUL, at, weft_f(n)), weft_f(m))
                           : op2(WF_OP_DIV, at, weft_f(r->scale));
        at = op2(WF_OP_MAXIMUM, op2(WF_OP_SUB, at, weft_f(0.5)), weft_f(0));
    }
    weft_tensor last = weft_i(r->n - 1);
    k.below = op2(WF_OP_MINIMUM, (weft_cast)(at, WEFT_I64), last);
    k.above = op2(WF_OP_MINIMUM, op2(WF_OP_ADD, k.below, weft_i(1)), last);
    k.far = op2(WF_OP_SUB, at, (weft_cast)(k.below, WEFT_F64));
    k.near = op2(WF_OP_SUB, weft_f(1), k.far);
    k.far = (weft_cast)(k.far, dt);
    k.near = (weft_cast)(k.near, dt);
    return k;
}

static weft_tensor linear(weft_tensor x, const resize *r, const corners *k)
{
    /* What has been used goes at once: the next op writes to memory that is in the cache. */
    weft_tensor one = choose(x, r->axis, k->below);
    weft_tensor part = op2(WF_OP_MUL, one, beside(k->near, r->m, -1, r->behind));
    weft_free(one);
    one = choose(x, r->axis, k->above);
    weft_tensor y = wf_op3(WF_OP_FMA, NULL, one, beside(k->far, r->m, -1, r->behind), part);
    weft_free(one);
    weft_free(part);
    return y;
}

/* Nothing wants to know how the result came about: its axes are walked at once, to the same bits. */
static bool may_walk(weft_tensor x)
{
    const wf_ctx *c = wf_ctx_get();
    return c && c->device == WF_DEVICE_HOST && !c->recorder &&
           !(wf_grad_enabled(c) && weft_requires_grad(x));
}

/* x[outer, axes.., inner] that way, or an error. WEFT_NONE: nothing was done. */
static weft_tensor walk(weft_tensor from, int axes, const resize *r, const corners *k)
{
    wf_arg a;
    wf_blend b[WF_BLENDS];
    weft_tensor x = weft_contiguous(from);
    if (!wf_arg_open(&a, "interpolate", x)) {
        return a.error;
    }
    int64_t inner = 1;
    bool there = true;
    for (int i = 0; i < axes; i++) {
        b[i] = (wf_blend){.n = r[i].n};
        if (!wf_is_none(k[i].below)) {
            b[i] = (wf_blend){r[i].n,
                              r[i].m,
                              wf_api_data(k[i].below),
                              wf_api_data(k[i].above),
                              wf_api_data(k[i].near),
                              wf_api_data(k[i].far)};
            there = there && b[i].below && b[i].above && b[i].near && b[i].far;
        }
        a.type.dims[r[i].axis] = r[i].m;
    }
    for (int i = a.type.rank - r[axes - 1].behind; i < a.type.rank; i++) {
        inner *= a.type.dims[i];
    }
    const int64_t n = wf_type_numel(&a.type);
    const void *data = wf_api_data(x);
    void *to;
    weft_tensor y = there && data && n > 0 ? wf_api_new(a.c, &a.type, &to) : WEFT_NONE;
    if (!weft_ok(y)) {
        return y;
    }
    wf_why why = {0};
    const unsigned env = wf_fpenv_enter();
    const int rc = wf_resample(to, data, a.type.dtype, axes, b, inner, n, &why);
    wf_fpenv_leave(env);
    return rc ? WEFT_NONE : y;
}

static bool mode_ok(wf_arg *a, const weft_interpolate_args *args)
{
    if ((unsigned)args->mode > WEFT_LINEAR) {
        return wf_arg_fail(a, WEFT_EINVALID, "use WEFT_NEAREST, _NEAREST_EXACT or WEFT_LINEAR",
                           "%d is not a way to interpolate", (int)args->mode);
    }
    if (args->align_corners && args->mode != WEFT_LINEAR) {
        return wf_arg_fail(a, WEFT_EINVALID, "WEFT_LINEAR has them",
                           "the nearest element has no corners to align");
    }
    if (args->mode == WEFT_LINEAR && !(WF_BIT(a->type.dtype) & WF_DT_F)) {
        return wf_arg_fail(a, WEFT_EDTYPE, "cast first: weft_cast(x, WEFT_F32)",
                           "%s elements cannot be weighed", wf_dtype_name(a->type.dtype));
    }
    if (a->type.rank < 3 || a->type.rank > 5) {
        return wf_arg_fail(a, WEFT_ESHAPE, "add the missing axes with weft_reshape",
                           "x[n, channels, ...] has rank %d; one to three axes follow the channels",
                           a->type.rank);
    }
    return true;
}

static bool sizes_ok(wf_arg *a, const weft_interpolate_args *args, resize *r)
{
    int axes = a->type.rank - 2;
    const weft_shape *size = &args->size;
    if (wf_is_bare(size)) {
        return wf_arg_fail(a, WEFT_EINVALID, "write .size = weft_shape(2, 3)",
                           "a bare number stands where the size belongs");
    }
    if ((size->n != 0) == (args->scale != 0) || (size->n != 0 && size->n != 1 && size->n != axes)) {
        return wf_arg_fail(a, WEFT_EINVALID, "give .size, one number or one an axis, or .scale",
                           "%lld extents and a scale of %g for %d axes", (long long)size->n,
                           args->scale, axes);
    }
    for (int i = 0; i < axes; i++) {
        int64_t n = a->type.dims[2 + i];
        double scaled = floor((double)n * args->scale);
        bool fits = scaled == scaled && scaled < 0x1p62;
        int64_t m = size->n ? size->v[size->n > 1 ? i : 0] : fits ? (int64_t)fmax(scaled, -1) : -1;
        r[i] = (resize){.axis = 2 + i, .n = n, .m = m, .behind = axes - 1 - i};
        r[i].scale = size->n ? 0 : args->scale;
        if (n >= 1 && !size->n && m < 0) {
            return wf_arg_fail(a, WEFT_EINVALID, "a scale is above 0 and finite, as 2 or 0.5",
                               "axis %d of %lld elements has no extent times %g", 2 + i,
                               (long long)n, args->scale);
        }
        if (n < 1 || m < 1) {
            return wf_arg_fail(a, WEFT_ESHAPE, "both extents are 1 or more",
                               "axis %d of %lld elements cannot become one of %lld", 2 + i,
                               (long long)n, (long long)m);
        }
    }
    return true;
}

/* Does an axis stay as it is? */
static bool stays(const resize *r, bool align_corners)
{
    return r->n == r->m && (r->scale == 0 || r->scale == 1 || align_corners);
}

/* x, f32 or f64, with `axes` axes as r has them, the last one first. */
static weft_tensor resample_lines(weft_tensor from, int axes, const resize *r, bool align_corners)
{
    corners k[WF_BLENDS] = {{WEFT_NONE, WEFT_NONE, WEFT_NONE, WEFT_NONE}};
    bool weak;
    const weft_dtype dt = (weft_dtype)wf_api_dtype(from, &weak);
    for (int i = 0; i < axes; i++) {
        if (!stays(&r[i], align_corners)) { /* else it has none */
            k[i] = corners_of(&r[i], align_corners, dt);
        }
    }
    weft_tensor y = may_walk(from) ? walk(from, axes, r, k) : WEFT_NONE;
    if (!wf_is_none(y)) {
        return y;
    }
    weft_tensor x = from;
    for (int i = axes - 1; i >= 0; i--) {
        if (wf_is_none(k[i].below)) {
            continue;
        }
        y = linear(x, &r[i], &k[i]);
        if (!wf_same_handle(x, from)) {
            weft_free(x);
        }
        x = y;
    }
    return x;
}

/* x with `axes` axes as r has them. */
static weft_tensor resample(weft_tensor from, int axes, const resize *r,
                            const weft_interpolate_args *args)
{
    bool weak, same = true;
    const weft_dtype dt = (weft_dtype)wf_api_dtype(from, &weak);
    for (int i = 0; i < axes; i++) {
        same = same && stays(&r[i], args->align_corners);
    }
    if (same) {
        return wf_op1(WF_OP_COPY, NULL, from);
    }
    if (args->mode == WEFT_LINEAR) {
        const bool half = wf_dtype_size((int)dt) == 2;
        weft_tensor x = half ? (weft_cast)(from, WEFT_F32) : from;
        x = resample_lines(x, axes, r, args->align_corners);
        return half ? (weft_cast)(x, dt) : x;
    }
    weft_tensor x = from;
    for (int i = axes - 1; i >= 0; i--) {
        if (stays(&r[i], false)) {
            continue;
        }
        weft_tensor before = x;
        x = choose(x, r[i].axis, nearest(&r[i], args->mode == WEFT_NEAREST_EXACT));
        if (!wf_same_handle(before, from)) {
            weft_free(before);
        }
    }
    return x;
}

weft_tensor(weft_interpolate)(const weft_interpolate_args *args)
{
    wf_arg a;
    resize r[3];
    if (!args) {
        return wf_api_null("interpolate", "the argument struct");
    }
    if (!wf_arg_open(&a, "interpolate", args->x) || !mode_ok(&a, args) || !sizes_ok(&a, args, r)) {
        return a.error;
    }
    WF_CALLED(w, "interpolate", args->x);
    weft_scope sc = weft_scope_begin();
    int before = wf_device_enter(a.c, a.device);
    weft_tensor x = args->x;
    const bool last = weft_is_channels_last(x) && !weft_is_contiguous(x);
    if (last) { /* channels behind the places, as they lie in memory */
        x = wf_op1(WF_OP_PERMUTE, &(wf_attr){.n_ints = 4, .ints = (const int64_t[]){0, 2, 3, 1}},
                   x);
        for (int i = 0; i < 2; i++) {
            r[i].axis--;
            r[i].behind++;
        }
    }
    x = resample(x, a.type.rank - 2, r, args);
    if (last) {
        x = wf_op1(WF_OP_PERMUTE, &(wf_attr){.n_ints = 4, .ints = (const int64_t[]){0, 3, 1, 2}},
                   x);
    }
    wf_device_enter(a.c, before);
    return wf_called_end(&w, weft_scope_return(sc, x));
}
