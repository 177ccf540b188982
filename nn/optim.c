/*
 * nn/optim.c -- SGD and AdamW as in-place ops on parameters and state tensors; learning-rate schedules.
 *
 * SGD with momentum: Sutskever et al. 2013 as PyTorch writes it. AdamW: Loshchilov and Hutter 2019,
 * algorithm 2. The update is written in rows of the op table, one after the other, so that its bits are
 * those of any fused execution of the same rows.
 *
 * Invariants
 *  - State tensors are made with the optimiser, so that a checkpoint can be loaded before the first step
 *    and the names of the state never change.
 *  - Bias corrections are computed from the step count with exact products, not pow(): their bits do not
 *    depend on a math library.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"

typedef enum method { SGD, ADAMW } method;

struct weft_optim {
    method method;
    const weft_module *module;
    int n;                   /* parameters */
    weft_tensor *parameters; /* handles of the module's */
    weft_named_tensor
        *state; /* slots of parameter i are state[i * per], ...; the last entry is the step */
    int per, n_state;
    double lr, decay, momentum, beta1, beta2, eps;
    bool nesterov;
    int decay_min_rank;
};

static const char *const state_names[2][2] = {{"momentum_buffer", NULL}, {"exp_avg", "exp_avg_sq"}};

/* Makes and keeps one state tensor. */
static bool add_state(weft_optim *o, const char *kind, const char *parameter, weft_tensor value)
{
    size_t size = strlen("optim.") + strlen(kind) + 1 + strlen(parameter) + 1;
    char *name = malloc(size);
    if (!name || !weft_ok(value)) {
        free(name);
        return false;
    }
    snprintf(name, size, "optim.%s%s%s", kind, *parameter ? "." : "", parameter);
    weft_set_name(value, name);
    o->state[o->n_state++] = (weft_named_tensor){name, weft_keep(value)};
    return true;
}

static bool fill_state(weft_optim *o)
{
    for (int i = 0, p = 0; i < weft_module_count(o->module); i++) {
        if (!weft_module_is_parameter(o->module, i)) {
            continue;
        }
        weft_named_tensor e = weft_module_at(o->module, i);
        o->parameters[p++] = e.tensor;
        for (int k = 0; k < o->per; k++) {
            if (!add_state(o, state_names[o->method][k], e.name, weft_zeros_like(e.tensor))) {
                return false;
            }
        }
    }
    return add_state(o, "step", "", weft_zeros(weft_shape_from(0, NULL), WEFT_I64));
}

/* An optimiser over m's parameters with `per` state tensors each. */
static weft_optim *make(const char *op, const weft_optim *settings)
{
    const weft_module *m = settings->module;
    if (!m || weft_module_status(m) != WEFT_OK) {
        wf_api_error(op, WEFT_EINVALID,
                     m ? "a layer of the module failed to initialise" : "the module is NULL");
        return NULL;
    }
    weft_optim *o = malloc(sizeof *o);
    if (!o) {
        wf_api_error(op, WEFT_ENOMEM, "no memory for the optimiser");
        return NULL;
    }
    *o = *settings;
    for (int i = 0; i < weft_module_count(m); i++) {
        o->n += weft_module_is_parameter(m, i);
    }
    o->parameters = calloc((size_t)o->n + 1, sizeof *o->parameters);
    o->state = calloc((size_t)o->n * (size_t)o->per + 1, sizeof *o->state);
    weft_scope scope = weft_scope_begin();
    weft_no_grad_begin();
    bool ok = o->parameters && o->state && fill_state(o);
    weft_no_grad_end();
    weft_scope_end(scope);
    if (!ok) {
        wf_api_error(op, WEFT_ENOMEM, "the state of the optimiser could not be made");
        weft_optim_free(o);
        return NULL;
    }
    return o;
}

static bool bad(const char *op, bool ok, const char *rule)
{
    if (!ok) {
        wf_api_error(op, WEFT_EINVALID, "%s", rule);
    }
    return !ok;
}

weft_optim *(weft_sgd_new)(const weft_sgd_args *a)
{
    const char *op = "sgd_new";
    if (bad(op, a != NULL, "the argument struct is NULL") ||
        bad(op, a->lr > 0 && isfinite(a->lr), "lr must be above 0") ||
        bad(op, a->momentum >= 0 && a->weight_decay >= 0,
            "momentum and weight_decay must be 0 or above") ||
        bad(op, !a->nesterov || a->momentum > 0, "nesterov needs momentum above 0")) {
        return NULL;
    }
    return make(op, &(weft_optim){.method = SGD,
                                  .module = a->module,
                                  .per = a->momentum > 0,
                                  .lr = a->lr,
                                  .momentum = a->momentum,
                                  .decay = a->weight_decay,
                                  .nesterov = a->nesterov});
}

weft_optim *(weft_adamw_new)(const weft_adamw_args *a)
{
    const char *op = "adamw_new";
    if (bad(op, a != NULL, "the argument struct is NULL")) {
        return NULL;
    }
    weft_optim o = {.method = ADAMW,
                    .module = a->module,
                    .per = 2,
                    .lr = wf_option(a->lr, 1e-3),
                    .beta1 = wf_option(a->beta1, 0.9),
                    .beta2 = wf_option(a->beta2, 0.999),
                    .eps = wf_option(a->eps, 1e-8),
                    .decay = wf_option(a->weight_decay, 0.01),
                    .decay_min_rank = a->decay_min_rank};
    if (bad(op, o.lr >= 0 && isfinite(o.lr), "lr must be 0 or above") ||
        bad(op, o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
            "beta1 and beta2 must be in [0, 1)") ||
        bad(op, o.eps >= 0 && o.decay >= 0, "eps and weight_decay must be 0 or above")) {
        return NULL;
    }
    return make(op, &o);
}

void weft_optim_free(weft_optim *o)
{
    if (!o) {
        return;
    }
    for (int i = 0; i < o->n_state; i++) {
        weft_free(o->state[i].tensor);
        free((char *)(uintptr_t)o->state[i].name);
    }
    free(o->state);
    free(o->parameters);
    free(o);
}

int weft_optim_state_count(const weft_optim *o)
{
    return o ? o->n_state : 0;
}

const weft_named_tensor *weft_optim_state(const weft_optim *o)
{
    return o ? o->state : NULL;
}

double weft_optim_lr(const weft_optim *o)
{
    return o ? o->lr : 0;
}

weft_status weft_optim_set_lr(weft_optim *o, double lr)
{
    if (bad("optim_set_lr", o && lr >= 0 && isfinite(lr), "the optimiser is NULL or lr negative")) {
        return WEFT_EINVALID;
    }
    o->lr = lr;
    return WEFT_OK;
}

/* b^n by repeated squaring. */
static double power(double b, int64_t n)
{
    double r = 1;
    for (; n > 0; n >>= 1, b *= b) {
        if (n & 1) {
            r *= b;
        }
    }
    return r;
}

/* Runs the statuses of a list of in-place ops: stops at the first that fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        weft_status try_ = (call);                                                                 \
        if (try_ != WEFT_OK)                                                                       \
            return try_;                                                                           \
    } while (0)

static weft_status step_sgd(const weft_optim *o, weft_tensor p, weft_tensor g, weft_tensor v)
{
    if (o->decay > 0) {
        g = weft_addcmul(g, p, weft_f(o->decay));
    }
    if (o->momentum > 0) {
        TRY(weft_mul_(v, weft_f(o->momentum)));
        TRY(weft_add_(v, g));
        g = o->nesterov ? weft_addcmul(g, v, weft_f(o->momentum)) : v;
    }
    return weft_addcmul_(p, g, weft_f(-o->lr));
}

static weft_status step_adamw(const weft_optim *o, weft_tensor p, weft_tensor g, weft_tensor m,
                              weft_tensor v, int64_t t)
{
    double size = o->lr / (1 - power(o->beta1, t));
    double root = sqrt(1 - power(o->beta2, t));
    if (o->decay > 0 && weft_rank(p) >= o->decay_min_rank) {
        TRY(weft_mul_(p, weft_f(1 - o->lr * o->decay)));
    }
    TRY(weft_lerp_(m, g, weft_f(1 - o->beta1)));
    TRY(weft_mul_(v, weft_f(o->beta2)));
    TRY(weft_addcmul_(v, weft_mul(g, weft_f(1 - o->beta2)), g));
    weft_tensor d = weft_sqrt(v);
    TRY(weft_div_(d, weft_f(root)));
    TRY(weft_add_(d, weft_f(o->eps)));
    weft_tensor u = weft_div(m, d);
    return weft_addcmul_(p, u, weft_f(-size));
}

static weft_status step_one(const weft_optim *o, int i, int64_t t)
{
    weft_tensor p = o->parameters[i];
    if (!weft_has_grad(p)) {
        return WEFT_OK;
    }
    const weft_named_tensor *state = o->state + (ptrdiff_t)i * o->per;
    weft_scope scope = weft_scope_begin();
    weft_tensor g = weft_grad(p);
    weft_status s = o->method == SGD ? step_sgd(o, p, g, o->per ? state[0].tensor : WEFT_NONE)
                                     : step_adamw(o, p, g, state[0].tensor, state[1].tensor, t);
    weft_scope_end(scope);
    return s;
}

weft_status weft_optim_step(weft_optim *o)
{
    if (bad("optim_step", o != NULL, "the optimiser is NULL")) {
        return WEFT_EINVALID;
    }
    weft_tensor count = o->state[o->n_state - 1].tensor;
    weft_no_grad_begin();
    weft_status s = weft_add_(count, weft_i(1));
    int64_t t = weft_item_i64(count);
    for (int i = 0; i < o->n && s == WEFT_OK; i++) {
        s = step_one(o, i, t);
    }
    weft_no_grad_end();
    return s;
}

double weft_lr_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor)
{
    if (step < warmup) {
        return peak * (double)(step + 1) / (double)warmup;
    }
    if (step >= total) {
        return floor;
    }
    double x = (double)(step - warmup) / (double)(total - warmup);
    return floor + (peak - floor) * 0.5 * (1 + cos(3.14159265358979323846 * x));
}
