/*
 * nn/init.c -- initial values of weights, by formula.
 *
 * Xavier: Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural
 * networks", eq. 12 and 16. Kaiming: He et al. 2015, "Delving Deep into Rectifiers", eq. 10 to 15. A uniform
 * distribution over +-b has variance b^2 / 3, hence the square roots of 3. Orthogonal: Saxe et al. 2014, "Exact solutions to the
 * nonlinear dynamics of learning in deep linear neural networks"; Q of a normal matrix's QR with a diagonal above 0 is uniform
 * (Mezzadri 2007, "How to generate random matrices from the classical compact groups").
 *
 * Invariant: values depend on the generator's state, the shape and the arguments only.
 */
#include <math.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/pool.h"
#include "nn/nn.h"

/* t := value inside a scope of its own; value was made in that scope. */
static weft_status store(weft_scope scope, weft_tensor t, weft_tensor value)
{
    weft_no_grad_begin();
    weft_status s = weft_ok(value) ? weft_copy_(t, value) : weft_error_status(value);
    weft_no_grad_end();
    weft_scope_end(scope);
    return s;
}

/* The type that numbers are drawn in: half types round afterwards. */
static weft_dtype draw_dtype(weft_tensor t)
{
    return weft_dtype_of(t) == WEFT_F64 ? WEFT_F64 : WEFT_F32;
}

static weft_status check(const char *op, weft_tensor t)
{
    if (!weft_ok(t)) {
        if (wf_is_error(t)) { /* an error has its text already */
            return (weft_status)wf_error_again(wf_ctx_get(), t);
        }
        wf_api_error(op, WEFT_EHANDLE, "the tensor is %s",
                     t.slot == 0 ? "the empty handle" : "not alive");
        return WEFT_EHANDLE;
    }
    weft_dtype d = weft_dtype_of(t);
    if (d != WEFT_F16 && d != WEFT_BF16 && d != WEFT_F32 && d != WEFT_F64) {
        wf_api_error(op, WEFT_EDTYPE, "the tensor is %s; initialisers take f16, bf16, f32 or f64",
                     weft_dtype_name(d));
        return WEFT_EDTYPE;
    }
    return WEFT_OK;
}

static weft_status bad_argument(const char *op, const char *rule)
{
    wf_api_error(op, WEFT_EINVALID, "%s", rule);
    return WEFT_EINVALID;
}

static weft_status fill_uniform(weft_tensor t, double low, double high, weft_generator *g)
{
    weft_scope scope = weft_scope_begin();
    wf_ctx *c = wf_ctx_get();
    int before = wf_device_enter(c, wf_device_of_handle(c, t));
    weft_tensor drawn = (weft_rand)(&(weft_rand_args){.shape = weft_shape_of(t),
                                                      .dtype = draw_dtype(t),
                                                      .low = low,
                                                      .high = high,
                                                      .generator = g});
    wf_device_enter(c, before);
    return store(scope, t, drawn);
}

static weft_tensor draw_normal(weft_tensor t, double mean, double std, weft_generator *g)
{
    wf_ctx *c = wf_ctx_get();
    int before = wf_device_enter(c, wf_device_of_handle(c, t));
    weft_tensor drawn = (weft_randn)(&(weft_randn_args){.shape = weft_shape_of(t),
                                                        .dtype = draw_dtype(t),
                                                        .mean = mean,
                                                        .std = std == 0 ? WEFT_ZERO : std,
                                                        .generator = g});
    wf_device_enter(c, before);
    return drawn;
}

static weft_status fill_normal(weft_tensor t, double mean, double std, weft_generator *g)
{
    weft_scope scope = weft_scope_begin();
    return store(scope, t, draw_normal(t, mean, std, g));
}

weft_status weft_init_constant(weft_tensor t, double value)
{
    WF_CALLED_WRITE(w, WF_WRITE_INIT_CONSTANT, t);
    weft_status s = check("init_constant", t);
    if (s == WEFT_OK) {
        weft_no_grad_begin();
        s = weft_fill_(t, value);
        weft_no_grad_end();
    }
    return wf_called_done(&w, s);
}

weft_status weft_init_uniform(weft_tensor t, double low, double high, weft_generator *g)
{
    WF_CALLED_WRITE(w, WF_WRITE_INIT_UNIFORM, t);
    weft_status s = check("init_uniform", t);
    if (s == WEFT_OK && !(low < high)) {
        s = bad_argument("init_uniform", "low must be below high");
    }
    return wf_called_done(&w, s == WEFT_OK ? fill_uniform(t, low, high, g) : s);
}

weft_status weft_init_normal(weft_tensor t, double mean, double std, weft_generator *g)
{
    WF_CALLED_WRITE(w, WF_WRITE_INIT_NORMAL, t);
    weft_status s = check("init_normal", t);
    if (s == WEFT_OK && !(std >= 0)) {
        s = bad_argument("init_normal", "std must be 0 or above");
    }
    return wf_called_done(&w, s == WEFT_OK ? fill_normal(t, mean, std, g) : s);
}

/* Draws whole tensors until every element has had a value inside: which draw an element takes does not
 * depend on the others, so its distribution is the truncated one. */
static weft_tensor draw_truncated(weft_tensor t, const double arg[4], weft_generator *g)
{
    weft_tensor low = weft_f(arg[2]), high = weft_f(arg[3]);
    weft_tensor x = draw_normal(t, arg[0], arg[1], g);
    for (;;) {
        weft_scope round = weft_scope_begin();
        weft_tensor out = weft_less(x, low);
        out = weft_logical_or(out, weft_greater(x, high));
        double left = (weft_item_f64)((weft_any)(&(weft_reduce_args){.x = out}));
        if (left != 1) {
            weft_scope_end(round);
            return x; /* an error too: x is empty, and item gave NaN */
        }
        x = weft_scope_return(round, weft_where(out, draw_normal(t, arg[0], arg[1], g), x));
    }
}

weft_status weft_init_trunc_normal(weft_tensor t, double mean, double std, double low, double high,
                                   weft_generator *g)
{
    WF_CALLED_WRITE(w, WF_WRITE_INIT_TRUNC_NORMAL, t);
    weft_status s = check("init_trunc_normal", t);
    if (s != WEFT_OK) {
        return wf_called_done(&w, s);
    }
    double mass =
        0.5 * (erfc((low - mean) / (std * M_SQRT2)) - erfc((high - mean) / (std * M_SQRT2)));
    if (!(std > 0) || !(mass >= 0.01)) {
        return wf_called_done(&w, bad_argument("init_trunc_normal",
                                               "std must be above 0, and [low, high] hold at least "
                                               "1 % of the distribution"));
    }
    weft_no_grad_begin();
    weft_scope scope = weft_scope_begin();
    s = store(scope, t, draw_truncated(t, (double[]){mean, std, low, high}, g));
    weft_no_grad_end();
    return wf_called_done(&w, s);
}

/* fan[0] = inputs, fan[1] = outputs of one unit: extents 1 and 0, times the extents behind them. */
static weft_status fans(const char *op, weft_tensor t, double fan[2])
{
    weft_status s = check(op, t);
    if (s != WEFT_OK) {
        return s;
    }
    weft_shape shape = weft_shape_of(t);
    if (shape.n < 2) {
        wf_api_error(op, WEFT_ESHAPE,
                     "the tensor has rank %d; fan-in and fan-out need at least 2 axes",
                     (int)shape.n);
        return WEFT_ESHAPE;
    }
    double field = 1;
    for (int i = 2; i < shape.n; i++) {
        field *= (double)shape.v[i];
    }
    fan[0] = (double)shape.v[1] * field;
    fan[1] = (double)shape.v[0] * field;
    return WEFT_OK;
}

/* What is drawn: values of a variance. */
typedef struct spread {
    double (*variance)(const struct spread *s);
    double by; /* gain or slope */
    double fan;
    bool uniform;
} spread;

static double xavier_variance(const spread *s)
{
    return s->by * s->by * 2 / s->fan; /* of both */
}

static double kaiming_variance(const spread *s)
{
    return 2 / ((1 + s->by * s->by) * s->fan);
}

/* Half the width of the uniform distribution, or the deviation of the normal one. */
static double width_of(const void *arg)
{
    const spread *s = arg;
    const double variance = s->variance(s);
    return sqrt(s->uniform ? 3 * variance : variance);
}

/* A tensor without elements has fans of 0 and nothing to fill. */
static weft_status fill_spread(weft_tensor t, const spread *s, weft_generator *g)
{
    if (weft_numel(t) == 0) {
        return WEFT_OK;
    }
    const double width = wf_plainly(width_of, s);
    return s->uniform && width > 0 ? fill_uniform(t, -width, width, g)
                                   : fill_normal(t, 0, width, g);
}

static weft_status xavier(const char *op, weft_tensor t, double gain, bool uniform,
                          weft_generator *g)
{
    double fan[2];
    weft_status s = fans(op, t, fan);
    return s == WEFT_OK
               ? fill_spread(t, &(spread){xavier_variance, gain, fan[0] + fan[1], uniform}, g)
               : s;
}

weft_status weft_init_xavier_uniform(weft_tensor t, double gain, weft_generator *g)
{
    WF_CALLED_WRITE(w, WF_WRITE_INIT_XAVIER_UNIFORM, t);
    return wf_called_done(&w, xavier("init_xavier_uniform", t, gain, true, g));
}

weft_status weft_init_xavier_normal(weft_tensor t, double gain, weft_generator *g)
{
    WF_CALLED_WRITE(w, WF_WRITE_INIT_XAVIER_NORMAL, t);
    return wf_called_done(&w, xavier("init_xavier_normal", t, gain, false, g));
}

static weft_status kaiming(const char *op, weft_tensor t, double slope, weft_fan fan, bool uniform,
                           weft_generator *g)
{
    double f[2];
    weft_status s = fans(op, t, f);
    if (s == WEFT_OK && fan != WEFT_FAN_IN && fan != WEFT_FAN_OUT) {
        s = weft_error_status(wf_api_error(
            op, WEFT_EINVALID, "fan is %d; it is WEFT_FAN_IN or WEFT_FAN_OUT", (int)fan));
    }
    return s == WEFT_OK
               ? fill_spread(t, &(spread){kaiming_variance, slope, f[fan == WEFT_FAN_OUT], uniform},
                             g)
               : s;
}

weft_status weft_init_kaiming_uniform(weft_tensor t, double slope, weft_fan fan, weft_generator *g)
{
    WF_CALLED_WRITE(w, WF_WRITE_INIT_KAIMING_UNIFORM, t);
    return wf_called_done(&w, kaiming("init_kaiming_uniform", t, slope, fan, true, g));
}

weft_status weft_init_kaiming_normal(weft_tensor t, double slope, weft_fan fan, weft_generator *g)
{
    WF_CALLED_WRITE(w, WF_WRITE_INIT_KAIMING_NORMAL, t);
    return wf_called_done(&w, kaiming("init_kaiming_normal", t, slope, fan, false, g));
}

/* -- orthogonal ------------------------------------------------------------------------------------------------------ */

/* The columns of a[n][k], k <= n, made orthonormal by Gram and Schmidt's method: each is taken away from those behind it as soon as
 * it is final, and the products of the next one are added up on the way, which is one pass over the rows a column. R has a
 * diagonal above 0. dot: room for 2 k numbers. */
static void orthonormalise(double *a, int64_t n, int64_t k, double *dot)
{
    double *by =
        dot +
        k; /* how much of column p each one behind it has; in the end what each column is multiplied by */
    for (int64_t p = -1; p < k - 1; p++) {
        for (int64_t j = p + 1; j < k; j++) {
            by[j] = p >= 0 && dot[p] > 0 ? dot[j] / dot[p] : 0;
            dot[j] = 0;
        }
        for (int64_t i = 0; i < n; i++) {
            double *row = a + i * k;
            const double final = p >= 0 ? row[p] : 0;
            row[p + 1] -= final * by[p + 1];
            const double next = row[p + 1];
            dot[p + 1] += next * next;
            for (int64_t j = p + 2; j < k; j++) {
                row[j] -= final * by[j];
                dot[j] += next * row[j];
            }
        }
    }
    for (int64_t j = 0; j < k; j++) {
        by[j] = dot[j] > 0 ? 1 / sqrt(dot[j]) : 0;
    }
    for (int64_t i = 0; i < n * k; i++) {
        a[i] *= by[i % k];
    }
}

/* t, of so many rows, := gain times the orthonormal matrix of a normal one. */
static weft_status fill_orthogonal(weft_tensor t, int64_t rows, double gain, weft_generator *g)
{
    const int64_t numel = weft_numel(t), columns = numel / rows;
    const bool wide = rows < columns;
    const int64_t n = wide ? columns : rows, k = wide ? rows : columns;
    size_t bytes;
    const bool fits =
        !__builtin_mul_overflow((size_t)numel + 2 * (size_t)k, sizeof(double), &bytes);
    double *a = fits ? wf_malloc(bytes) : NULL;
    if (!a) {
        wf_api_error("init_orthogonal", WEFT_ENOMEM, "no memory for a matrix of %lld numbers",
                     (long long)numel);
        return WEFT_ENOMEM;
    }
    weft_scope scope = weft_scope_begin();
    wf_ctx *c = wf_ctx_get();
    const int before = wf_device_enter(c, WF_DEVICE_HOST);
    weft_tensor drawn = (weft_randn)(&(weft_randn_args){
        .shape = weft_shape(n, k), .dtype = draw_dtype(t), .generator = g});
    weft_status s = (weft_to_array)(drawn, a, numel, WEFT_F64);
    weft_tensor made = WEFT_NONE;
    if (s == WEFT_OK) {
        for (int pass = 0; pass < 2; pass++) { /* what the first loses to roundings is regained */
            orthonormalise(a, n, k, a + numel);
        }
        for (int64_t i = 0; i < numel; i++) {
            a[i] *= gain;
        }
        made = (weft_from_data)(a, weft_shape(n, k), WEFT_F64);
        made = wide ? weft_transpose(made, 0, 1) : made;
        made = weft_reshape(made, weft_shape_of(t));
    }
    wf_device_enter(c, before);
    wf_mfree(a);
    if (s != WEFT_OK) {
        weft_scope_end(scope);
        return s;
    }
    return store(scope, t, made);
}

weft_status weft_init_orthogonal(weft_tensor t, double gain, weft_generator *g)
{
    double fan[2];
    WF_CALLED_WRITE(w, WF_WRITE_INIT_ORTHOGONAL, t);
    weft_status s = fans("init_orthogonal", t, fan);
    if (s == WEFT_OK && weft_numel(t) > 0) {
        const unsigned mode = wf_fpenv_enter();
        s = fill_orthogonal(t, weft_dim(t, 0), gain, g);
        wf_fpenv_leave(mode);
    }
    return wf_called_done(&w, s);
}
