/*
 * eager/api_loss.c -- losses of weft/ops_nn.h: compositions of rows, and their reductions.
 *
 * Invariant: every loss opens a scope of its own, so that only the result outlives the call.
 */
#include "eager/api.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

static weft_tensor total(wf_op op, weft_tensor x)
{
    wf_arg a;
    int64_t axes[WF_MAX_RANK];
    if (!wf_arg_open(&a, wf_rows[op].name, x)) {
        return a.error;
    }
    for (int i = 0; i < a.type.rank; i++) {
        axes[i] = i;
    }
    return wf_op1(op, &(wf_attr){.n_ints = a.type.rank, .ints = axes}, x);
}

static bool reduction_ok(const char *op, weft_reduction reduction)
{
    if ((unsigned)reduction <= WEFT_REDUCE_NONE) {
        return true;
    }
    wf_api_error(op, WEFT_EINVALID, "%d is not a reduction; use WEFT_REDUCE_MEAN, _SUM or _NONE",
                 (int)reduction);
    return false;
}

static weft_tensor reduced(weft_tensor each, weft_reduction reduction)
{
    return reduction == WEFT_REDUCE_NONE  ? each
           : reduction == WEFT_REDUCE_SUM ? total(WF_OP_SUM, each)
                                          : total(WF_OP_MEAN, each);
}

/* -- losses of two tensors -------------------------------------------------------------------------------- */

static weft_tensor op2(wf_op op, weft_tensor a, weft_tensor b)
{
    return wf_op2(op, NULL, a, b);
}

static weft_tensor squared(weft_tensor x, weft_tensor t, double delta)
{
    (void)delta;
    return wf_op1(WF_OP_SQUARE, NULL, op2(WF_OP_SUB, x, t));
}

static weft_tensor absolute(weft_tensor x, weft_tensor t, double delta)
{
    (void)delta;
    return wf_op1(WF_OP_ABS, NULL, op2(WF_OP_SUB, x, t));
}

static weft_tensor huber(weft_tensor x, weft_tensor t, double delta)
{
    /* m (d - m / 2) with m = min(d, delta) is the parabola below delta and the line above, in half of the passes */
    weft_tensor d = absolute(x, t, 0), m = op2(WF_OP_MINIMUM, d, weft_f(delta));
    return op2(WF_OP_MUL, m, wf_op3(WF_OP_FMA, NULL, m, weft_f(-0.5), d));
}

static weft_tensor cross(weft_tensor x, weft_tensor t, double delta)
{
    (void)delta;
    return op2(WF_OP_BCE, x, t);
}

static weft_tensor cross_logits(weft_tensor x, weft_tensor t, double delta)
{
    (void)delta;
    return op2(WF_OP_SUB, wf_op1(WF_OP_SOFTPLUS, NULL, x), op2(WF_OP_MUL, x, t));
}

static weft_tensor loss(const char *name, const weft_loss_args *args,
                        weft_tensor (*each)(weft_tensor, weft_tensor, double))
{
    wf_arg x, t;
    wf_why why = {0};
    if (!args) {
        return wf_api_null(name, "the argument struct");
    }
    if (!wf_arg_open(&x, name, args->x)) {
        return x.error;
    }
    if (!wf_arg_open(&t, name, args->target)) {
        return t.error;
    }
    if (wf_broadcast(&x.type, &t.type, &why)) {
        return wf_raise(x.c, name, 2, (weft_tensor[]){args->x, args->target}, &why);
    }
    if (!reduction_ok(name, args->reduction)) {
        return wf_api_last_error();
    }
    double delta = args->delta == 0 ? 1 : args->delta;
    if (!(delta > 0)) {
        return wf_api_error(name, WEFT_EINVALID, "delta is %g; it must be above 0", delta);
    }
    WF_CALLED(w, name, args->x, args->target);
    weft_scope sc = weft_scope_begin();
    weft_tensor y = reduced(each(args->x, args->target, delta), args->reduction);
    return wf_called_end(&w, weft_scope_return(sc, y));
}

weft_tensor(weft_mse_loss)(const weft_loss_args *args)
{
    return loss("mse_loss", args, squared);
}

weft_tensor(weft_l1_loss)(const weft_loss_args *args)
{
    return loss("l1_loss", args, absolute);
}

weft_tensor(weft_huber_loss)(const weft_loss_args *args)
{
    return loss("huber_loss", args, huber);
}

weft_tensor(weft_binary_cross_entropy)(const weft_loss_args *args)
{
    return loss("binary_cross_entropy", args, cross);
}

weft_tensor(weft_bce_with_logits)(const weft_loss_args *args)
{
    return loss("bce_with_logits", args, cross_logits);
}

/* -- losses of classes ------------------------------------------------------------------------------------- */

/* bool: the target counts. */
static weft_tensor not_ignored(weft_tensor targets, int64_t ignore)
{
    return op2(WF_OP_NOT_EQUAL, targets, weft_i(ignore));
}

static int64_t ignored_class(int64_t option)
{
    return option == 0 ? -100 : option == WEFT_IGNORE_ZERO ? 0 : option;
}

/* Sum of the rows' losses over the number of targets that count. */
static weft_tensor class_mean(weft_tensor each, weft_tensor targets, int64_t ignore)
{
    bool weak;
    int dt = wf_api_dtype(each, &weak);
    int wide = dt == WEFT_F64 ? WEFT_F64 : WEFT_F32; /* halves cannot hold the count */
    weft_tensor count = total(WF_OP_COUNT_NONZERO, not_ignored(targets, ignore));
    weft_tensor sum = total(WF_OP_SUM, (weft_cast)(each, (weft_dtype)wide));
    weft_tensor mean = op2(WF_OP_DIV, sum, (weft_cast)(count, (weft_dtype)wide));
    return dt == wide || !dt ? mean : (weft_cast)(mean, (weft_dtype)dt);
}

static weft_tensor classes_reduced(const weft_cross_entropy_args *args, weft_tensor each,
                                   weft_tensor targets, int64_t ignore)
{
    return args->reduction == WEFT_REDUCE_MEAN ? class_mean(each, targets, ignore)
                                               : reduced(each, args->reduction);
}

static bool classes_open(const char *name, const weft_cross_entropy_args *args, wf_arg *logits,
                         wf_arg *targets, weft_tensor *error)
{
    if (!args) {
        *error = wf_api_null(name, "the argument struct");
        return false;
    }
    if (!wf_arg_open(logits, name, args->logits)) {
        *error = logits->error;
        return false;
    }
    if (!wf_arg_open(targets, name, args->targets)) {
        *error = targets->error;
        return false;
    }
    if (!reduction_ok(name, args->reduction)) {
        *error = wf_api_last_error();
        return false;
    }
    bool fits = logits->type.rank == targets->type.rank + 1;
    for (int i = 0; fits && i < targets->type.rank; i++) {
        fits = logits->type.dims[i] == targets->type.dims[i];
    }
    if (!fits) {
        wf_why why = {.code = WEFT_ESHAPE};
        wf_fail(&why, WEFT_ESHAPE, "the targets do not have the shape of the rows");
        wf_hint(&why, "classes are the last axis: logits[.., c] and targets[..]");
        *error = wf_raise(logits->c, name, 2, (weft_tensor[]){args->logits, args->targets}, &why);
        return false;
    }
    return true;
}

weft_tensor(weft_cross_entropy)(const weft_cross_entropy_args *args)
{
    wf_arg x, t;
    weft_tensor error;
    if (!classes_open("cross_entropy", args, &x, &t, &error)) {
        return error;
    }
    double smooth = args->label_smoothing == WEFT_ZERO ? 0 : args->label_smoothing;
    if (!(smooth >= 0 && smooth <= 1)) {
        wf_arg_fail(&x, WEFT_EINVALID, NULL, "label_smoothing %g is not in [0, 1]", smooth);
        return x.error;
    }
    int64_t ignore = ignored_class(args->ignore_index);
    WF_CALLED(w, "cross_entropy", args->logits, args->targets);
    weft_scope sc = weft_scope_begin();
    weft_tensor src[2] = {args->logits, args->targets};
    if (x.type.rank != 2) {
        int64_t rows = wf_type_numel(&t.type);
        src[0] = wf_api_reshape(src[0], 2, (int64_t[]){rows, x.type.dims[x.type.rank - 1]});
        src[1] = wf_api_reshape(src[1], 1, &rows);
    }
    if (t.type.dtype != WEFT_I64 && wf_dtype_kind(t.type.dtype) == 1) {
        src[1] = (weft_cast)(src[1], WEFT_I64);
    }
    wf_attr attr = {.n_dyn = 1, .dyn = &ignore, .n_flt = 1, .flt = &smooth};
    weft_tensor r[2];
    wf_dispatch(WF_OP_CROSS_ENTROPY, &attr, 2, src, 2, r);
    weft_tensor y = classes_reduced(args, r[0], src[1], ignore);
    if (args->reduction == WEFT_REDUCE_NONE && x.type.rank != 2) {
        y = wf_api_reshape(y, t.type.rank, t.type.dims);
    }
    return wf_called_end(&w, weft_scope_return(sc, y));
}

weft_tensor(weft_nll_loss)(const weft_cross_entropy_args *args)
{
    wf_arg x, t;
    weft_tensor error;
    if (!classes_open("nll_loss", args, &x, &t, &error)) {
        return error;
    }
    int64_t ignore = ignored_class(args->ignore_index), last = x.type.rank - 1;
    WF_CALLED(w, "nll_loss", args->logits, args->targets);
    weft_scope sc = weft_scope_begin();
    weft_tensor targets = args->targets;
    if (t.type.dtype != WEFT_I64 && wf_dtype_kind(t.type.dtype) == 1) {
        targets = (weft_cast)(targets, WEFT_I64);
    }
    weft_tensor counts = not_ignored(targets, ignore);
    weft_tensor safe = wf_op3(WF_OP_WHERE, NULL, counts, targets, weft_i(0));
    weft_tensor picked = wf_op2(WF_OP_TAKE_ALONG, &(wf_attr){.n_ints = 1, .ints = &last},
                                args->logits, (weft_unsqueeze)(safe, -1));
    picked = wf_op1(WF_OP_NEG, NULL, wf_api_reshape(picked, t.type.rank, t.type.dims));
    weft_tensor each = wf_op3(WF_OP_WHERE, NULL, counts, picked, weft_f(0));
    each = classes_reduced(args, each, targets, ignore);
    return wf_called_end(&w, weft_scope_return(sc, each));
}
