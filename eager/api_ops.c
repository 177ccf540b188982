/*
 * eager/api_ops.c -- the elementwise ops and reductions of weft/ops.h.
 *
 * Every elementwise row of the op table becomes a function here, and its in-place twin. Compiled with
 * -Wmissing-prototypes: a row whose prototype is missing from ops.h does not build.
 */
#include "eager/api.h"
#include "eager/layout.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* -- rows ------------------------------------------------------------------------------------------------ */

static weft_status in_place(wf_op op, int nsrc, const weft_tensor *src, weft_tensor dst)
{
    return (weft_status)wf_dispatch_inplace(op, NULL, nsrc, src, dst);
}

#define UNARY_FN(NAME, name)                                                                       \
    weft_tensor(weft_##name)(weft_tensor x)                                                        \
    {                                                                                              \
        return wf_op1(WF_OP_##NAME, NULL, x);                                                      \
    }
#define BINARY_FN(NAME, name)                                                                      \
    weft_tensor(weft_##name)(weft_tensor a, weft_tensor b)                                         \
    {                                                                                              \
        return wf_op2(WF_OP_##NAME, NULL, a, b);                                                   \
    }
#define TERNARY_FN(NAME, name)                                                                     \
    weft_tensor(weft_##name)(weft_tensor a, weft_tensor b, weft_tensor c)                          \
    {                                                                                              \
        return wf_op3(WF_OP_##NAME, NULL, a, b, c);                                                \
    }

#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    UNARY_FN(NAME, name)                                                                           \
    weft_status(weft_##name##_)(weft_tensor x)                                                     \
    {                                                                                              \
        return in_place(WF_OP_##NAME, 1, &x, x);                                                   \
    }
/* pow takes most floats as a row, the rest as compositions. The constant op leaves the others as they were. */
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    weft_tensor(weft_##name)(weft_tensor a, weft_tensor b)                                         \
    {                                                                                              \
        return WF_OP_##NAME == WF_OP_POW && wf_api_power_apart(a, b)                               \
                   ? wf_api_power(a, b)                                                            \
                   : wf_op2(WF_OP_##NAME, NULL, a, b);                                             \
    }                                                                                              \
    weft_status(weft_##name##_)(weft_tensor x, weft_tensor b)                                      \
    {                                                                                              \
        if (WF_OP_##NAME == WF_OP_POW && wf_api_power_apart(x, b)) {                               \
            return wf_api_power_(x, b);                                                            \
        }                                                                                          \
        return in_place(WF_OP_##NAME, 2, (weft_tensor[]){x, b}, x);                                \
    }
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    TERNARY_FN(NAME, name)                                                                         \
    weft_status(weft_##name##_)(weft_tensor x, weft_tensor b, weft_tensor c)                       \
    {                                                                                              \
        return in_place(WF_OP_##NAME, 3, (weft_tensor[]){x, b, c}, x);                             \
    }
#define PREDICATE(NAME, name, types, expr) UNARY_FN(NAME, name)
#define COMPARE(NAME, name, types, expr) BINARY_FN(NAME, name)
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) TERNARY_FN(NAME, name)
#include "jit/ir/ops.def"

/* -- elementwise that are not rows ------------------------------------------------------------------------ */

weft_tensor(weft_masked_fill)(weft_tensor x, weft_tensor mask, weft_tensor value)
{
    WF_CALLED(w, "masked_fill", x, mask, value);
    return wf_called_end(&w, wf_op3(WF_OP_WHERE, NULL, mask, value, x));
}

weft_status(weft_masked_fill_)(weft_tensor x, weft_tensor mask, weft_tensor value)
{
    WF_CALLED_WRITE(w, WF_WRITE_MASKED_FILL, x, mask, value);
    return wf_called_done(&w, in_place(WF_OP_WHERE, 3, (weft_tensor[]){mask, value, x}, x));
}

weft_status(weft_copy_)(weft_tensor x, weft_tensor value)
{
    WF_CALLED(w, "copy_", x, value);
    return wf_called_done(&w, in_place(WF_OP_COPY, 1, &value, x));
}

static weft_status fill(wf_write write, const char *name, weft_tensor x, double value)
{
    bool weak;
    int dt = wf_api_dtype(x, &weak);
    weft_tensor v = weft_f(value);
    if (dt == WEFT_BOOL) {
        v = weft_b(value != 0);
    } else if (dt != WEFT_DTYPE_DEFAULT && wf_dtype_kind(dt) == 1) {
        int64_t i;
        weft_tensor error;
        if (!wf_api_whole(name, value, dt, &i, &error)) {
            return weft_error_status(error);
        }
        v = weft_i(i);
    }
    WF_CALLED_WRITE(w, write, x, v);
    return wf_called_done(&w, in_place(WF_OP_COPY, 1, &v, x));
}

weft_status(weft_fill_)(weft_tensor x, double value)
{
    return fill(WF_WRITE_FILL, "fill_", x, value);
}

weft_status(weft_zero_)(weft_tensor x)
{
    return fill(WF_WRITE_ZERO, "zero_", x, 0);
}

/* -- reductions --------------------------------------------------------------------------------------------- */

/* The axes of a reduction: sorted; all of them when none are named. */
static bool reduce_axes(wf_arg *a, const weft_axes *axes, bool none_is_all, int64_t *out, int *n)
{
    if (!wf_arg_axes(a, axes, out, n)) {
        return false;
    }
    if (axes->n == 0 && none_is_all) {
        *n = a->type.rank;
        for (int i = 0; i < *n; i++) {
            out[i] = i;
        }
        return true;
    }
    for (int i = 1; i < *n; i++) {
        int64_t v = out[i];
        int k = i;
        for (; k > 0 && out[k - 1] > v; k--) {
            out[k] = out[k - 1];
        }
        out[k] = v;
    }
    return true;
}

/* All axes, or one, of a tensor that this thread owns: nothing to be said about them. */
static bool plain_axes(weft_tensor x, const weft_axes *axes, int64_t *out, int *n)
{
    wf_ctx *c = wf_tls_ctx;
    const wf_slot *s = c && (uint64_t)axes->n <= 1 && !axes->bare_number ? wf_slot_of(c, x) : NULL;
    if (!s) {
        return false;
    }
    if (axes->n == 1) {
        *n = 1;
        out[0] = axes->v[0] < 0 ? axes->v[0] + s->rank : axes->v[0];
        return (uint64_t)out[0] < s->rank;
    }
    *n = s->rank;
    for (int i = 0; i < s->rank; i++) {
        out[i] = i;
    }
    return true;
}

static weft_tensor reduce(wf_op op, weft_tensor x, const weft_axes *axes, bool keepdim, int dtype,
                          const double *flt)
{
    wf_arg a;
    int64_t ints[WF_MAX_RANK];
    int n;
    bool arg = op == WF_OP_ARGMAX || op == WF_OP_ARGMIN;
    if (!(arg && axes->n == 0) && plain_axes(x, axes, ints, &n)) {
        return wf_op1(op,
                      &(wf_attr){.dtype = (uint8_t)dtype,
                                 .flags = keepdim ? WF_FLAG_KEEPDIM : 0,
                                 .n_ints = (uint8_t)n,
                                 .ints = ints,
                                 .n_flt = flt ? 1 : 0,
                                 .flt = flt},
                      x);
    }
    if (!wf_arg_open(&a, wf_rows[op].name, x)) {
        return a.error;
    }
    if (!reduce_axes(&a, axes, !arg, ints, &n)) {
        return a.error;
    }
    if (arg && axes->n < 0) {
        wf_arg_fail(&a, WEFT_EINVALID, "name one axis, or leave .axes out for the flattened tensor",
                    "no axis is left to search");
        return a.error;
    }
    wf_attr attr = {.dtype = (uint8_t)dtype,
                    .flags = keepdim ? WF_FLAG_KEEPDIM : 0,
                    .n_ints = (uint8_t)n,
                    .ints = ints,
                    .n_flt = flt ? 1 : 0,
                    .flt = flt};
    if (axes->n >= 0) {
        return wf_op1(op, &attr, x);
    }
    /* No axis: each element is reduced by itself, over an axis made for it. */
    weft_scope sc = weft_scope_begin();
    ints[0] = a.type.rank;
    attr.n_ints = 1;
    attr.flags = 0;
    return weft_scope_return(sc, wf_op1(op, &attr, (weft_unsqueeze)(x, -1)));
}

static weft_tensor reduce_args(wf_op op, const weft_reduce_args *args, bool typed)
{
    const char *name = wf_rows[op].name;
    if (!args) {
        return wf_api_null(name, "the argument struct");
    }
    if (!wf_api_dtype_ok(args->dtype)) {
        return wf_api_error(name, WEFT_EDTYPE, "%d is not an element type; use WEFT_F32, ...",
                            (int)args->dtype);
    }
    if (!typed && args->dtype != WEFT_DTYPE_DEFAULT) {
        return wf_api_error(name, WEFT_EINVALID,
                            "it takes no .dtype; cast the result: weft_cast(y, ...)");
    }
    return reduce(op, args->x, &args->axes, args->keepdim, (int)args->dtype, NULL);
}

#define REDUCE(NAME, name, typed)                                                                  \
    weft_tensor(weft_##name)(const weft_reduce_args *args)                                         \
    {                                                                                              \
        return reduce_args(WF_OP_##NAME, args, typed);                                             \
    }
REDUCE(SUM, sum, true)
REDUCE(PROD, prod, true)
REDUCE(MEAN, mean, true)
REDUCE(AMAX, max, false)
REDUCE(AMIN, min, false)
REDUCE(LOGSUMEXP, logsumexp, false)
REDUCE(ANY, any, false)
REDUCE(ALL, all, false)
REDUCE(COUNT_NONZERO, count_nonzero, false)
REDUCE(ARGMAX, argmax, false)
REDUCE(ARGMIN, argmin, false)

static weft_tensor variance(wf_op op, const weft_var_args *args)
{
    if (!args) {
        return wf_api_null(wf_rows[op].name, "the argument struct");
    }
    return reduce(op, args->x, &args->axes, args->keepdim, WEFT_DTYPE_DEFAULT, &args->correction);
}

weft_tensor(weft_var)(const weft_var_args *args)
{
    return variance(WF_OP_VAR, args);
}

weft_tensor(weft_std)(const weft_var_args *args)
{
    return variance(WF_OP_STD, args);
}

weft_tensor(weft_norm)(const weft_norm_args *args)
{
    if (!args) {
        return wf_api_null("norm", "the argument struct");
    }
    double order = wf_option(args->order, 2);
    return reduce(WF_OP_NORM, args->x, &args->axes, args->keepdim, WEFT_DTYPE_DEFAULT, &order);
}

weft_tensor(weft_cumsum)(weft_tensor x, int axis)
{
    return wf_api_along(WF_OP_CUMSUM, x, axis);
}

weft_tensor(weft_cumprod)(weft_tensor x, int axis)
{
    return wf_api_along(WF_OP_CUMPROD, x, axis);
}

/* -- element types and copies --------------------------------------------------------------------------------- */

weft_tensor(weft_cast)(weft_tensor x, weft_dtype dtype)
{
    wf_arg a;
    if (!wf_arg_open(&a, "cast", x)) {
        return a.error;
    }
    if (dtype == WEFT_DTYPE_DEFAULT || !wf_api_dtype_ok(dtype)) {
        wf_arg_fail(&a, WEFT_EDTYPE, "name one: WEFT_F32, WEFT_I64, ...",
                    "%d is not an element type", (int)dtype);
        return a.error;
    }
    if (wf_is_scalar(x)) {
        return wf_api_scalar(x, (int)dtype);
    }
    if (a.type.dtype == (int)dtype) {
        return wf_api_alias(x, &a.type);
    }
    return wf_op1(WF_OP_CAST, &(wf_attr){.dtype = (uint8_t)dtype}, x);
}

weft_tensor(weft_clone)(weft_tensor x)
{
    return wf_op1(WF_OP_COPY, NULL, x);
}

weft_tensor(weft_detach)(weft_tensor x)
{
    return wf_op1(WF_OP_DETACH, NULL, x);
}

weft_tensor(weft_contiguous)(weft_tensor x)
{
    wf_arg a;
    if (!wf_arg_open(&a, "contiguous", x)) {
        return a.error;
    }
    int64_t step = 1;
    for (int i = a.type.rank; i-- > 0;) {
        if (a.type.dims[i] != 1 && a.strides[i] != step && wf_type_numel(&a.type) != 0) {
            return wf_op1(WF_OP_COPY, NULL, x);
        }
        step *= a.type.dims[i];
    }
    return wf_api_alias(x, &a.type);
}

weft_tensor(weft_channels_last)(weft_tensor x)
{
    static const int64_t last[4] = WF_LAST_AXES, first[4] = WF_FIRST_AXES;
    wf_arg a;
    if (!wf_arg_open(&a, "channels_last", x)) {
        return a.error;
    }
    if (a.type.rank != 4) {
        wf_arg_fail(&a, WEFT_ESHAPE,
                    "give images [n, channels, height, width]; weft_unsqueeze adds axes",
                    "x has rank %d, not 4", a.type.rank);
        return a.error;
    }
    if (wf_lies_last(4, a.type.dims, a.strides)) {
        return wf_api_alias(x, &a.type);
    }
    if (!wf_can_lie_last(4, a.type.dims)) {
        return (weft_contiguous)(x);
    }
    /* row-major memory of the axes in that order, seen from the outside as before */
    weft_scope sc = weft_scope_begin();
    wf_attr order = {.n_ints = 4, .ints = last};
    x = wf_op1(WF_OP_COPY, NULL, wf_op1(WF_OP_PERMUTE, &order, x));
    order.ints = first;
    return weft_scope_return(sc, wf_op1(WF_OP_PERMUTE, &order, x));
}

/* -- matrix product ---------------------------------------------------------------------------------------------- */

weft_tensor(weft_matmul)(weft_tensor a, weft_tensor b)
{
    weft_tensor t[2] = {a, b};
    if (__builtin_expect(wf_api_alike(2, t), 1)) {
        return wf_op2(WF_OP_MATMUL, NULL, a, b);
    }
    weft_scope sc = weft_scope_begin();
    wf_api_unify(2, t);
    return weft_scope_return(sc, wf_op2(WF_OP_MATMUL, NULL, t[0], t[1]));
}
