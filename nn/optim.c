/*
 * nn/optim.c -- SGD and AdamW as in-place ops on parameters and state tensors; learning-rate schedules.
 *
 * SGD with momentum: Sutskever et al. 2013 as PyTorch writes it. AdamW: Loshchilov and Hutter 2019,
 * algorithm 2. An update is written as lines of the op table (nn/update.h), which run as one pass over memory
 * per parameter.
 *
 * Invariants
 *  - State tensors are made with the optimiser, so that a checkpoint can be loaded before the first step
 *    and the names of the state never change.
 *  - Bias corrections are computed from the step count with exact products, not pow(): their bits do not
 *    depend on a math library.
 */
#include <math.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "nn/update.h"

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
    int64_t seen_steps;   /* the counter after our last write to it */
    uint32_t seen_writes; /* its write count then */
    int64_t replayed;     /* the counter after the replay that has begun */
    wf_live *live;
};

static const char *const state_names[2][2] = {{"momentum_buffer", NULL}, {"exp_avg", "exp_avg_sq"}};

/* Makes and keeps one state tensor. */
static bool add_state(weft_optim *o, const char *kind, const char *parameter, weft_tensor value)
{
    size_t size = strlen("optim.") + strlen(kind) + 1 + strlen(parameter) + 1;
    char *name = wf_malloc(size);
    if (!name || !weft_ok(value)) {
        wf_mfree(name);
        return false;
    }
    snprintf(name, size, "optim.%s%s%s", kind, *parameter ? "." : "", parameter);
    weft_set_name(value, name);
    o->state[o->n_state++] = (weft_named_tensor){name, weft_keep(value)};
    return true;
}

static wf_live *new_live(weft_optim *o);

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
    /* Beside the parameters, so that a trace of the step stays on one device. */
    wf_ctx *c = wf_ctx_get();
    int before = wf_device_enter(c, o->n ? wf_device_of_handle(c, o->parameters[0]) : 0);
    weft_tensor count = weft_zeros(weft_shape_from(0, NULL), WEFT_I64);
    wf_device_enter(c, before);
    return add_state(o, "step", "", count);
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
    weft_optim *o = wf_malloc(sizeof *o);
    if (!o) {
        wf_api_error(op, WEFT_ENOMEM, "no memory for the optimiser");
        return NULL;
    }
    *o = *settings;
    for (int i = 0; i < weft_module_count(m); i++) {
        o->n += weft_module_is_parameter(m, i);
    }
    o->parameters = wf_calloc((size_t)o->n + 1, sizeof *o->parameters);
    o->state = wf_calloc((size_t)o->n * (size_t)o->per + 1, sizeof *o->state);
    weft_scope scope = weft_scope_begin();
    weft_no_grad_begin();
    o->live = new_live(o);
    bool ok = o->parameters && o->state && o->live && fill_state(o);
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
    if (o->live) {
        atomic_store(&o->live->of, NULL);
        wf_live_release(o->live);
    }
    for (int i = 0; i < o->n_state; i++) {
        weft_free(o->state[i].tensor);
        wf_mfree((char *)(uintptr_t)o->state[i].name);
    }
    wf_mfree(o->state);
    wf_mfree(o->parameters);
    wf_mfree(o);
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
    wf_ctx *c = wf_ctx_get();
    if (c && c->recorder) {
        c->recorder->never(c->recorder,
                           "it sets a learning rate (optim_set_lr), which the caller is to do");
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

/* The numbers of step t. */
static void set_numbers(const weft_optim *o, int64_t t, double k[WF_UPDATE_SCALARS])
{
    const bool sgd = o->method == SGD;
    k[WF_UPDATE_DECAY] = sgd ? o->decay : 1 - o->lr * o->decay;
    k[WF_UPDATE_MOMENTUM] = sgd ? o->momentum : 1 - o->beta1;
    k[WF_UPDATE_BETA2] = o->beta2;
    k[WF_UPDATE_REST2] = 1 - o->beta2;
    k[WF_UPDATE_ROOT] = sqrt(1 - power(o->beta2, t));
    k[WF_UPDATE_EPS] = o->eps;
    k[WF_UPDATE_STEP] = sgd ? -o->lr : -(o->lr / (1 - power(o->beta1, t)));
}

static void add_line(update *u, wf_op op, int dst, int a, int b, int c)
{
    u->line[u->n++] = (wf_line){op, dst, {a, b, c}};
}

/* Scalar `which` as a value; only those that are used are numbered. */
static int number(update *u, wf_update_scalar which)
{
    if (!u->number[which]) {
        u->scalar[u->n_scalar] = u->k[which];
        u->of[u->n_scalar] = (uint8_t)which;
        u->number[which] = (uint8_t)(SCALAR + u->n_scalar++);
    }
    return u->number[which];
}

#define ROW1(NAME, d, x) add_line(u, WF_OP_##NAME, d, x, NONE, NONE);
#define ROW2(NAME, d, a, b) add_line(u, WF_OP_##NAME, d, a, b, NONE);
#define ROW3(NAME, d, a, b, c) add_line(u, WF_OP_##NAME, d, a, b, c);
#define NUMBER(NAME) number(u, WF_UPDATE_##NAME)

static void write_sgd(const weft_optim *o, update *u)
{
    const bool decay = o->decay > 0, momentum = o->momentum > 0, nesterov = o->nesterov;
    u->with = (decay ? WF_WITH_DECAY : 0u) | (momentum ? WF_WITH_MOMENTUM : 0u) |
              (nesterov ? WF_WITH_NESTEROV : 0u);
#define WF_UPDATE_SGD
#include "eager/kernels/update.def"
}

static void write_adamw(update *u, bool decay)
{
    u->with = WF_WITH_ADAMW | (decay ? WF_WITH_DECAY : 0u);
#define WF_UPDATE_ADAMW
#include "eager/kernels/update.def"
}

static weft_status step_one(const weft_optim *o, int i, const double *k, built *b)
{
    weft_tensor p = o->parameters[i];
    if (!weft_has_grad(p)) {
        return WEFT_OK;
    }
    update u = {.n_state = o->per};
    memcpy(u.k, k, sizeof u.k);
    if (o->method == SGD) {
        write_sgd(o, &u);
    } else {
        write_adamw(&u, o->decay > 0 && weft_rank(p) >= o->decay_min_rank);
    }
    weft_scope scope = weft_scope_begin();
    u.tensor[P] = p;
    u.tensor[G] = weft_grad(p);
    for (int n = 0; n < o->per; n++) {
        u.tensor[S0 + n] = o->state[(ptrdiff_t)i * o->per + n].tensor;
    }
    weft_status s = wf_update_run(&u, b);
    weft_scope_end(scope);
    return s;
}

/* The value of the counter, before the write: a trace need not be broken to read it. On a device it is read only if
 * somebody else has written to it (a checkpoint was loaded), since that waits. */
static int64_t steps_so_far(const weft_optim *o)
{
    weft_tensor count = o->state[o->n_state - 1].tensor;
    bool known =
        weft_device_of(count).kind != WEFT_DEVICE_CPU && weft_write_count(count) == o->seen_writes;
    return known ? o->seen_steps : weft_item_i64(count);
}

static void saw_steps(weft_optim *o, int64_t steps)
{
    o->seen_steps = steps;
    o->seen_writes = weft_write_count(o->state[o->n_state - 1].tensor);
}

/* -- replays of a traced step (wf_live) ------------------------------------------------------------------------- */

_Static_assert((int)WF_UPDATE_SCALARS <= (int)WF_LIVE_NUMBERS, "numbers fit");

static int begin_replay(void *of, double number[WF_LIVE_NUMBERS])
{
    weft_optim *o = of;
    int64_t had = steps_so_far(o);
    if (had == INT64_MIN) {
        return (int)weft_last_status();
    }
    o->replayed = had + 1;
    set_numbers(o, had + 1, number);
    return 0;
}

static void end_replay(void *of)
{
    weft_optim *o = of;
    saw_steps(o, o->replayed);
}

static wf_live *new_live(weft_optim *o)
{
    wf_live *l = wf_malloc(sizeof *l);
    if (l) {
        *l = (wf_live){.begin = begin_replay, .end = end_replay};
        atomic_init(&l->refs, 1);
        atomic_init(&l->of, o);
    }
    return l;
}

/* What is recorded from here on is a step of o; NULL: no more. */
static void tell_trace(wf_live *l)
{
    wf_ctx *c = wf_ctx_get();
    if (c && c->recorder) {
        c->recorder->live(c->recorder, l);
    }
}

weft_status weft_optim_step(weft_optim *o)
{
    if (bad("optim_step", o != NULL, "the optimiser is NULL")) {
        return WEFT_EINVALID;
    }
    weft_no_grad_begin();
    tell_trace(o->live);
    int64_t had = steps_so_far(o);
    weft_status s = had == INT64_MIN ? weft_last_status()
                                     : weft_add_(o->state[o->n_state - 1].tensor, weft_i(1));
    if (s == WEFT_OK) { /* else the next step reads the counter again */
        saw_steps(o, had + 1);
    }
    double k[WF_UPDATE_SCALARS];
    set_numbers(o, had + 1, k);
    built b;
    b.tried = 0;
    for (int i = 0; i < o->n && s == WEFT_OK; i++) {
        s = step_one(o, i, k, &b);
    }
    tell_trace(NULL);
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
