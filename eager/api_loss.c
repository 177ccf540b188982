/*
 * eager/api_loss.c -- losses of weft/ops_nn.h: compositions of rows, and their reductions.
 *
 * Invariants: every loss opens a scope of its own, so that only the result outlives the call; what is wrong is said of the whole
 * call, with all its operands.
 */
#include <stdlib.h>

#include "eager/api.h"
#include "eager/pool.h"
#include "eager/rows.h"

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

static int check_reduction(weft_reduction reduction, wf_why *why)
{
    if ((unsigned)reduction <= WEFT_REDUCE_NONE) {
        return 0;
    }
    wf_fail(why, WEFT_EINVALID, "%d is not a reduction", (int)reduction);
    wf_hint(why, "use WEFT_REDUCE_MEAN, _SUM or _NONE");
    return why->code;
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

static weft_tensor weighed(weft_tensor each, weft_tensor weight)
{
    return wf_is_none(weight) ? each : op2(WF_OP_MUL, each, weight);
}

static weft_tensor squared(const weft_loss_args *a)
{
    return wf_op1(WF_OP_SQUARE, NULL, op2(WF_OP_SUB, a->x, a->target));
}

static weft_tensor absolute(const weft_loss_args *a)
{
    return wf_op1(WF_OP_ABS, NULL, op2(WF_OP_SUB, a->x, a->target));
}

static double delta_of(const weft_loss_args *a)
{
    return a->delta == 0 ? 1 : a->delta;
}

static weft_tensor huber(const weft_loss_args *a)
{
    return wf_op3(WF_OP_HUBER, NULL, a->x, a->target, weft_f(delta_of(a)));
}

static weft_tensor cross(const weft_loss_args *a)
{
    return op2(WF_OP_BCE, a->x, a->target);
}

static weft_tensor cross_logits(const weft_loss_args *a)
{
    weft_tensor x = a->x, t = a->target;
    if (wf_is_none(a->pos_weight)) {
        weft_tensor plus = wf_op1(WF_OP_SOFTPLUS, NULL, x);
        return op2(WF_OP_SUB, plus, op2(WF_OP_MUL, x, t));
    }
    /* (1 - t) x + (1 + (p - 1) t) softplus(-x) */
    weft_tensor more = op2(WF_OP_SUB, a->pos_weight, weft_f(1));
    weft_tensor log_weight = wf_op3(WF_OP_FMA, NULL, more, t, weft_f(1));
    weft_tensor other = op2(WF_OP_MUL, op2(WF_OP_SUB, weft_f(1), t), x);
    weft_tensor tail = wf_op1(WF_OP_SOFTPLUS, NULL, wf_op1(WF_OP_NEG, NULL, x));
    return wf_op3(WF_OP_FMA, NULL, log_weight, tail, other);
}

/* What has no probability costs nothing, however unlikely x says it is: 0 of an infinite logarithm is 0. That logarithm is put away
 * before it is multiplied, so that derivatives of any order are finite there; any other is left in, as the product's mixed second
 * derivative is -1 where the target is 0, too. */
static weft_tensor divergence(const weft_loss_args *a)
{
    weft_tensor x = a->x, t = a->target;
    if (a->log_target) {
        weft_tensor p = wf_op1(WF_OP_EXP, NULL, t), none = op2(WF_OP_EQUAL, p, weft_f(0));
        weft_tensor each = wf_op3(WF_OP_WHERE, NULL, none, weft_f(0), op2(WF_OP_SUB, t, x));
        return op2(WF_OP_MUL, p, each);
    }
    weft_tensor none = op2(WF_OP_EQUAL, t, weft_f(0));
    none = op2(WF_OP_LOGICAL_AND, none, wf_op1(WF_OP_ISINF, NULL, x));
    weft_tensor cross = op2(WF_OP_MUL, t, wf_op3(WF_OP_WHERE, NULL, none, weft_f(0), x));
    return op2(WF_OP_SUB, op2(WF_OP_XLOGY, t, t), cross);
}

/* Broadcasting `weight` to the losses' type must not make more of them. */
static bool weight_fits(const char *name, weft_tensor weight, const char *what, const wf_type *each,
                        weft_tensor *error)
{
    wf_arg w;
    if (wf_is_none(weight)) {
        return true;
    }
    if (!wf_arg_open(&w, name, weight)) {
        *error = w.error;
        return false;
    }
    bool fits = w.type.rank <= each->rank;
    for (int i = 1; fits && i <= w.type.rank; i++) {
        int64_t d = w.type.dims[w.type.rank - i];
        fits = d == 1 || d == each->dims[each->rank - i];
    }
    if (!fits) {
        wf_arg_fail(&w, WEFT_ESHAPE, "its trailing extents are 1 or those of x and target together",
                    "the %s does not broadcast to the shape of the losses", what);
        *error = w.error;
    }
    return fits;
}

/* *whole: both x and target are integers, or truth values. */
static bool loss_open(const char *name, const weft_loss_args *args, bool *whole, weft_tensor *error)
{
    wf_arg x, t;
    wf_why why = {0};
    if (!wf_arg_open(&x, name, args->x)) {
        *error = x.error;
        return false;
    }
    if (!wf_arg_open(&t, name, args->target)) {
        *error = t.error;
        return false;
    }
    int rc = wf_broadcast(&x.type, &t.type, &why);
    rc = rc ? rc : check_reduction(args->reduction, &why);
    if (!rc && !(delta_of(args) > 0)) {
        rc = wf_fail(&why, WEFT_EINVALID, "delta is %g", args->delta);
        wf_hint(&why, "it is above 0, and 1 where it is not given");
    }
    if (rc) {
        *error = wf_raise(x.c, name, 2, (weft_tensor[]){args->x, args->target}, &why);
        return false;
    }
    *whole = wf_dtype_kind(x.type.dtype) < 2 && wf_dtype_kind(t.type.dtype) < 2;
    return weight_fits(name, args->weight, "weight", &x.type, error) &&
           weight_fits(name, args->pos_weight, "pos_weight", &x.type, error);
}

static weft_tensor loss(const char *name, const weft_loss_args *args,
                        weft_tensor (*each)(const weft_loss_args *))
{
    weft_tensor error;
    if (!args) {
        return wf_api_null(name, "the argument struct");
    }
    weft_tensor given[4] = {args->x, args->target, args->weight, args->pos_weight};
    int n = 3 - wf_is_none(args->weight);
    given[n] = args->pos_weight;
    wf_called w;
    wf_called_begin(&w, name, n + !wf_is_none(args->pos_weight), given);
    bool whole;
    if (!loss_open(name, args, &whole, &error)) {
        return wf_called_end(&w, error);
    }
    weft_scope sc = weft_scope_begin();
    weft_loss_args of = *args;
    if (whole) { /* a difference or a product of integers would wrap */
        of.x = (weft_cast)(of.x, WEFT_F32);
    }
    weft_tensor y = weighed(each(&of), args->weight);
    return wf_called_end(&w, weft_scope_return(sc, reduced(y, args->reduction)));
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

weft_tensor(weft_kl_div)(const weft_loss_args *args)
{
    return loss("kl_div", args, divergence);
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

/* The targets, class 0 for those that do not count. */
static weft_tensor classes_of(weft_tensor targets, weft_tensor counts)
{
    return wf_op3(WF_OP_WHERE, NULL, counts, targets, weft_i(0));
}

/* The weights of the targets' classes, 0 where they do not count; the empty handle without weights. */
static weft_tensor target_weights(const weft_cross_entropy_args *args, weft_tensor counts,
                                  weft_tensor safe)
{
    if (wf_is_none(args->weight)) {
        return WEFT_NONE;
    }
    int64_t axis = 0;
    weft_tensor own =
        wf_op2(WF_OP_INDEX_SELECT, &(wf_attr){.n_ints = 1, .ints = &axis}, args->weight, safe);
    return wf_op3(WF_OP_WHERE, NULL, counts, own, weft_f(0));
}

/* Sum of the rows' losses over the number of targets that count, or over their weights. */
static weft_tensor class_mean(weft_tensor each, weft_tensor targets, weft_tensor weights,
                              int64_t ignore)
{
    bool weak;
    int dt = wf_api_dtype(each, &weak);
    weft_dtype wide = dt == WEFT_F64 ? WEFT_F64 : WEFT_F32; /* halves cannot hold the count */
    weft_tensor count = wf_is_none(weights)
                            ? total(WF_OP_COUNT_NONZERO, not_ignored(targets, ignore))
                            : total(WF_OP_SUM, (weft_cast)(weights, wide));
    weft_tensor sum = total(WF_OP_SUM, (weft_cast)(each, wide));
    weft_tensor mean = op2(WF_OP_DIV, sum, (weft_cast)(count, wide));
    return dt == (int)wide || !dt ? mean : (weft_cast)(mean, (weft_dtype)dt);
}

static weft_tensor classes_reduced(const weft_cross_entropy_args *args, weft_tensor each,
                                   weft_tensor targets, weft_tensor weights, int64_t ignore)
{
    return args->reduction == WEFT_REDUCE_MEAN ? class_mean(each, targets, weights, ignore)
                                               : reduced(each, args->reduction);
}

static bool is_floating(wf_arg *a, const char *what)
{
    return wf_dtype_kind(a->type.dtype) == 2 ||
           wf_arg_fail(a, WEFT_EDTYPE, "convert first: weft_cast(x, WEFT_F32)",
                       "the %s %s; a floating-point type is wanted", what,
                       wf_dtype_name(a->type.dtype));
}

static bool class_weights_fit(const char *name, const weft_cross_entropy_args *args,
                              int64_t classes, weft_tensor *error)
{
    wf_arg w;
    if (wf_is_none(args->weight)) {
        return true;
    }
    bool good = wf_arg_open(&w, name, args->weight);
    if (good && (w.type.rank != 1 || w.type.dims[0] != classes)) {
        good =
            wf_arg_fail(&w, WEFT_ESHAPE, "classes are the last axis: logits[.., c] and weight[c]",
                        "the weight does not have one element a class (%lld)", (long long)classes);
    }
    good = good && is_floating(&w, "weight is");
    *error = w.error;
    return good;
}

/* Targets that have the logits' shape, and logits as other libraries have them (classes behind the batch), are told apart. */
static const char *shape_hint(const wf_type *x, const wf_type *t)
{
    bool same = x->rank == t->rank, second = x->rank == t->rank + 1 && t->rank > 1;
    for (int i = 0; i < t->rank && (same || second); i++) {
        same = same && x->dims[i] == t->dims[i];
        second = second && x->dims[i + (i > 0)] == t->dims[i];
    }
    return same ? "targets are class numbers, one a row: of rows of probabilities, or of a one, "
                  "weft_argmax(targets, .axes = weft_axes(-1))"
           : second ? "classes are the last axis: weft_permute moves axis 1 there"
                    : "classes are the last axis: logits[.., c] and targets[..]";
}

static bool targets_fit(wf_arg *logits, wf_arg *targets)
{
    const wf_type *x = &logits->type, *t = &targets->type;
    bool fits = x->rank == t->rank + 1;
    for (int i = 0; fits && i < t->rank; i++) {
        fits = x->dims[i] == t->dims[i];
    }
    if (wf_dtype_kind(t->dtype) != 1) {
        return wf_arg_fail(targets, WEFT_EDTYPE,
                           fits ? "convert first: weft_cast(targets, WEFT_I64)" : shape_hint(x, t),
                           "the targets are %s; class numbers, integers, are wanted",
                           wf_dtype_name(t->dtype));
    }
    return fits || wf_arg_fail(targets, WEFT_ESHAPE, shape_hint(x, t),
                               "the targets do not have the shape of the logits without their "
                               "last axis");
}

static bool classes_open(const char *name, const weft_cross_entropy_args *args, wf_arg *logits,
                         wf_arg *targets, weft_tensor *error)
{
    if (!wf_arg_open(logits, name, args->logits)) {
        *error = logits->error;
        return false;
    }
    if (!wf_arg_open(targets, name, args->targets) || !targets_fit(logits, targets)) {
        *error = targets->error;
        return false;
    }
    wf_why why = {0};
    if (check_reduction(args->reduction, &why)) {
        *error = wf_raise(logits->c, name, 2, (weft_tensor[]){args->logits, args->targets}, &why);
        return false;
    }
    const int last = logits->type.rank - 1;
    const int64_t classes = logits->type.dims[last];
    bool good = is_floating(logits, "logits are");
    if (good && classes == 0 && wf_type_numel(&targets->type) > 0) {
        good = wf_arg_fail(logits, WEFT_ESHAPE, NULL,
                           "the logits have no classes (axis %d is empty)", last);
    }
    *error = logits->error;
    return good && class_weights_fit(name, args, classes, error);
}

/* smooth / c * the sum of -log p of all classes, each by its weight; 0 where the target does not count. */
static weft_tensor smoothed(const weft_cross_entropy_args *args, weft_tensor logits,
                            weft_tensor targets, double smooth, int64_t classes, int64_t ignore)
{
    int64_t last = 1;
    weft_tensor log_p = wf_op1(WF_OP_LOG_SOFTMAX, &(wf_attr){.n_ints = 1, .ints = &last}, logits);
    weft_tensor sum = wf_op1(WF_OP_SUM, &(wf_attr){.n_ints = 1, .ints = &last},
                             op2(WF_OP_MUL, log_p, args->weight));
    weft_tensor share = op2(WF_OP_MUL, sum, weft_f(wf_plain_quotient(-smooth, (double)classes)));
    return wf_op3(WF_OP_WHERE, NULL, not_ignored(targets, ignore), share, weft_f(0));
}

/* The rows see targets in another shape: which one is no class is said of them as they were given. */
static weft_tensor no_class(const char *name, weft_tensor refused, weft_tensor targets,
                            const wf_type *type, int64_t classes, int64_t ignore)
{
    const int64_t n = wf_type_numel(type);
    int64_t *at = malloc((size_t)n * sizeof *at + 1);
    wf_view v;
    wf_type dense = *type;
    dense.dtype = WEFT_I64;
    wf_view_of_type(&v, &dense, at);
    wf_why why = {0};
    if (at && weft_to_array(targets, at, n, WEFT_I64) == WEFT_OK &&
        wf_targets_check(&v, &(wf_attr){.n_dyn = 1, .dyn = &ignore}, classes, &why)) {
        refused = wf_raise(wf_ctx_get(), name, 1, &targets, &why);
    }
    free(at);
    return refused;
}

static weft_tensor cross_entropy(const char *name, const weft_cross_entropy_args *args)
{
    wf_arg x, t;
    weft_tensor error;
    if (!classes_open(name, args, &x, &t, &error)) {
        return error;
    }
    double smooth = args->label_smoothing == WEFT_ZERO ? 0 : args->label_smoothing;
    if (!(smooth >= 0 && smooth <= 1)) {
        wf_arg_fail(&x, WEFT_EINVALID, NULL, "label_smoothing %g is not in [0, 1]", smooth);
        return x.error;
    }
    int64_t ignore = ignored_class(args->ignore_index);
    weft_scope sc = weft_scope_begin();
    weft_tensor src[2] = {args->logits, args->targets};
    if (x.type.rank != 2) {
        int64_t rows = wf_type_numel(&t.type);
        src[0] = wf_api_reshape(src[0], 2, (int64_t[]){rows, x.type.dims[x.type.rank - 1]});
        src[1] = wf_api_reshape(src[1], 1, &rows);
    }
    if (t.type.dtype != WEFT_I64) {
        src[1] = (weft_cast)(src[1], WEFT_I64);
    }
    weft_tensor weights = WEFT_NONE;
    if (!wf_is_none(args->weight)) {
        weft_tensor counts = not_ignored(src[1], ignore);
        weights = target_weights(args, counts, classes_of(src[1], counts));
    }
    double apart = wf_is_none(weights) ? 0 : smooth, within = smooth - apart;
    wf_attr attr = {.n_dyn = 1, .dyn = &ignore, .n_flt = 1, .flt = &within};
    weft_tensor r[2];
    wf_dispatch(WF_OP_CROSS_ENTROPY, &attr, 2, src, 2, r);
    const int64_t classes = x.type.dims[x.type.rank - 1];
    if (x.type.rank != 2 && weft_error_status(r[0]) == WEFT_EINDEX) {
        return weft_scope_return(sc, no_class(name, r[0], args->targets, &t.type, classes, ignore));
    }
    weft_tensor each = weighed(r[0], weights);
    if (apart > 0) {
        weft_tensor all = smoothed(args, src[0], src[1], apart, classes, ignore);
        each = op2(WF_OP_ADD, op2(WF_OP_MUL, each, weft_f(1 - apart)), all);
    }
    weft_tensor y = classes_reduced(args, each, src[1], weights, ignore);
    if (args->reduction == WEFT_REDUCE_NONE && x.type.rank != 2) {
        y = wf_api_reshape(y, t.type.rank, t.type.dims);
    }
    return weft_scope_return(sc, y);
}

static weft_tensor nll_loss(const char *name, const weft_cross_entropy_args *args)
{
    wf_arg x, t;
    weft_tensor error;
    if (!classes_open(name, args, &x, &t, &error)) {
        return error;
    }
    int64_t ignore = ignored_class(args->ignore_index), last = x.type.rank - 1;
    weft_scope sc = weft_scope_begin();
    weft_tensor targets = args->targets;
    if (t.type.dtype != WEFT_I64) {
        targets = (weft_cast)(targets, WEFT_I64);
    }
    weft_tensor counts = not_ignored(targets, ignore);
    weft_tensor safe = classes_of(targets, counts);
    safe = op2(WF_OP_BITWISE_AND, safe, weft_i(INT64_MAX)); /* no class is counted from the end */
    weft_tensor picked = wf_op2(WF_OP_TAKE_ALONG, &(wf_attr){.n_ints = 1, .ints = &last},
                                args->logits, (weft_unsqueeze)(safe, -1));
    if (weft_error_status(picked) == WEFT_EINDEX) {
        return weft_scope_return(
            sc, no_class(name, picked, args->targets, &t.type, x.type.dims[last], ignore));
    }
    picked = wf_op1(WF_OP_NEG, NULL, wf_api_reshape(picked, t.type.rank, t.type.dims));
    weft_tensor each = wf_op3(WF_OP_WHERE, NULL, counts, picked, weft_f(0));
    weft_tensor weights = target_weights(args, counts, safe);
    each = weighed(each, weights);
    return weft_scope_return(sc, classes_reduced(args, each, targets, weights, ignore));
}

static weft_tensor of_classes(const char *name, const weft_cross_entropy_args *args,
                              weft_tensor (*body)(const char *, const weft_cross_entropy_args *))
{
    if (!args) {
        return wf_api_null(name, "the argument struct");
    }
    WF_CALLED(w, name, args->logits, args->targets, args->weight);
    w.n -= wf_is_none(args->weight);
    return wf_called_end(&w, body(name, args));
}

weft_tensor(weft_cross_entropy)(const weft_cross_entropy_args *args)
{
    return of_classes("cross_entropy", args, cross_entropy);
}

weft_tensor(weft_nll_loss)(const weft_cross_entropy_args *args)
{
    return of_classes("nll_loss", args, nll_loss);
}
