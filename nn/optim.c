/*
 * nn/optim.c -- optimisers as in-place ops on parameters and state tensors.
 *
 * SGD with momentum: Sutskever et al. 2013 as PyTorch writes it. Adam: Kingma and Ba 2015, algorithm 1; AMSGrad: Reddi et
 * al. 2018. AdamW: Loshchilov and Hutter 2019, algorithm 2. RMSprop: Hinton 2012, centered as Graves 2013, eq. 38 to 45.
 * Adagrad: Duchi et al. 2011. Lion: Chen et al. 2023, algorithm 2. An update is written as lines of the op table
 * (nn/update.h), which run as one pass over memory per parameter.
 *
 * Invariants
 *  - State tensors are made with the optimiser, so that a checkpoint can be loaded before the first step
 *    and the names of the state never change.
 *  - Bias corrections are computed from the step count with exact products, not pow(): their bits do not
 *    depend on a math library.
 *  - Groups do not change after the first step: what replays a recorded step knows which lines it has.
 */
#include <math.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/pool.h"
#include "nn/update.h"

enum { MAX_GROUPS = 4 };

/* Parameters with a rate and a decay of their own. */
typedef struct group {
    weft_optim *of;
    wf_live *live; /* its numbers, for replays */
    double scale, decay;
    int decay_min_rank;
} group;

struct weft_optim {
    unsigned with; /* the update, without the decay, which is the group's */
    const weft_module *module;
    int n;                   /* parameters */
    weft_tensor *parameters; /* handles of the module's */
    uint8_t *group_of;       /* of each */
    weft_named_tensor
        *state; /* slots of parameter i are state[i * per], ...; the last entry is the step */
    int per, n_state;
    double lr, momentum, beta1, beta2, eps;
    double dampening, lr_decay, initial; /* SGD; Adagrad, twice */
    group group[MAX_GROUPS];             /* 0: the parameters of no other */
    int n_group;
    bool stepped;
    const char *site;     /* of the step that runs, or NULL */
    int64_t seen_steps;   /* the counter after our last write to it */
    uint32_t seen_writes; /* its write count then */
    int64_t replayed;     /* the counter after the replay that has begun */
};

/* The state `k` of an update, under PyTorch's name. */
static const char *state_name(unsigned with, int k)
{
    const unsigned method = with & WF_UPDATE_METHOD;
    if (method == WF_UPDATE_SGD) {
        return "momentum_buffer";
    }
    if (method == WF_UPDATE_RMSPROP) {
        return k == 0                              ? "square_avg"
               : k == 1 && with & WF_WITH_CENTERED ? "grad_avg"
                                                   : "momentum_buffer";
    }
    if (method == WF_UPDATE_ADAGRAD) {
        return "sum";
    }
    return k == 0 ? "exp_avg" : k == 1 ? "exp_avg_sq" : "max_exp_avg_sq";
}

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

static wf_live *new_live(group *g);

static bool fill_state(weft_optim *o)
{
    for (int i = 0, p = 0; i < weft_module_count(o->module); i++) {
        if (!weft_module_is_parameter(o->module, i)) {
            continue;
        }
        weft_named_tensor e = weft_module_at(o->module, i);
        o->parameters[p++] = e.tensor;
        for (int k = 0; k < o->per; k++) {
            const double start = k == 0 ? o->initial : 0;
            if (!add_state(o, state_name(o->with, k), e.name, weft_full_like(e.tensor, start))) {
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

/* An optimiser of these settings, with one group. */
static weft_optim *make(const char *op, const weft_optim *settings)
{
    const weft_module *m = settings->module;
    if (!m) {
        wf_api_error(op, WEFT_EINVALID, "the module is NULL");
        return NULL;
    }
    if (weft_module_status(m) != WEFT_OK) {
        wf_api_error(op, WEFT_EINVALID, "a layer of the module failed to initialise: %s",
                     wf_module_failure(m));
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
    o->per = wf_update_states(o->with);
    o->parameters = wf_calloc((size_t)o->n + 1, sizeof *o->parameters);
    o->group_of = wf_calloc((size_t)o->n + 1, sizeof *o->group_of);
    o->state = wf_calloc((size_t)o->n * (size_t)o->per + 1, sizeof *o->state);
    weft_scope scope = weft_scope_begin();
    weft_no_grad_begin();
    o->n_group = 1;
    o->group[0].of = o;
    o->group[0].scale = 1;
    o->group[0].live = new_live(&o->group[0]);
    bool ok = o->parameters && o->group_of && o->state && o->group[0].live && fill_state(o);
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

/* An argument that breaks its rule. */
static bool is_not(const char *op, const char *argument, double value, bool ok, const char *rule)
{
    if (!ok) {
        wf_api_error(op, WEFT_EINVALID, "%s is %g; it must be %s", argument, value, rule);
    }
    return !ok;
}

static bool is_negative(const char *op, const char *argument, double value)
{
    return is_not(op, argument, value, value >= 0 && isfinite(value), "0 or above, and finite");
}

static bool is_no_share(const char *op, const char *argument, double value)
{
    return is_not(op, argument, value, value >= 0 && value < 1, "in [0, 1)");
}

/* What all have: a rate, which decays, betas in [0, 1), the rest 0 or above. */
static weft_optim *make_checked(const char *op, const weft_optim *o)
{
    const bool rmsprop = (o->with & WF_UPDATE_METHOD) == WF_UPDATE_RMSPROP;
    if (is_negative(op, "lr", o->lr) || is_no_share(op, "beta1", o->beta1) ||
        is_no_share(op, rmsprop ? "alpha" : "beta2", o->beta2) || is_negative(op, "eps", o->eps) ||
        is_negative(op, "weight_decay", o->group[0].decay) ||
        is_negative(op, "momentum", o->momentum) || is_negative(op, "lr_decay", o->lr_decay) ||
        is_negative(op, "initial", o->initial)) {
        return NULL;
    }
    return make(op, o);
}

weft_optim *(weft_sgd_new)(const weft_sgd_args *a)
{
    const char *op = "sgd_new";
    if (bad(op, a != NULL, "the argument struct is NULL") ||
        is_not(op, "lr", a->lr, a->lr > 0 && isfinite(a->lr), "above 0, and finite") ||
        is_negative(op, "momentum", a->momentum) ||
        is_negative(op, "weight_decay", a->weight_decay) ||
        is_not(op, "momentum", a->momentum, !a->nesterov || a->momentum > 0,
               "above 0 under nesterov") ||
        is_not(op, "dampening", a->dampening, !a->nesterov || a->dampening == 0,
               "0 under nesterov") ||
        is_not(op, "dampening", a->dampening, isfinite(a->dampening), "finite")) {
        return NULL;
    }
    const bool momentum = a->momentum > 0, dampening = momentum && a->dampening != 0;
    const unsigned with = WF_UPDATE_SGD | (momentum ? WF_WITH_MOMENTUM : 0u) |
                          (a->nesterov ? WF_WITH_NESTEROV : 0u) |
                          (dampening ? WF_WITH_DAMPENING : 0u);
    return make_checked(op, &(weft_optim){.with = with,
                                          .module = a->module,
                                          .lr = a->lr,
                                          .momentum = a->momentum,
                                          .dampening = a->dampening,
                                          .group = {{.decay = a->weight_decay,
                                                     .decay_min_rank = a->decay_min_rank}}});
}

static weft_optim *make_adam(const char *op, const weft_adam_args *a, unsigned with, double decay)
{
    return make_checked(
        op, &(weft_optim){.with = with | (a->amsgrad ? WF_WITH_AMSGRAD : 0u),
                          .module = a->module,
                          .lr = wf_option(a->lr, 1e-3),
                          .beta1 = wf_option(a->beta1, 0.9),
                          .beta2 = wf_option(a->beta2, 0.999),
                          .eps = wf_option(a->eps, 1e-8),
                          .group = {{.decay = decay, .decay_min_rank = a->decay_min_rank}}});
}

weft_optim *(weft_adamw_new)(const weft_adam_args *a)
{
    const char *op = "adamw_new";
    return bad(op, a != NULL, "the argument struct is NULL")
               ? NULL
               : make_adam(op, a, WF_UPDATE_ADAMW, wf_option(a->weight_decay, 0.01));
}

weft_optim *(weft_adam_new)(const weft_adam_args *a)
{
    const char *op = "adam_new";
    return bad(op, a != NULL, "the argument struct is NULL")
               ? NULL
               : make_adam(op, a, WF_UPDATE_ADAM, wf_option(a->weight_decay, 0));
}

weft_optim *(weft_rmsprop_new)(const weft_rmsprop_args *a)
{
    const char *op = "rmsprop_new";
    if (bad(op, a != NULL, "the argument struct is NULL")) {
        return NULL;
    }
    const unsigned with = WF_UPDATE_RMSPROP | (a->momentum > 0 ? WF_WITH_MOMENTUM : 0u) |
                          (a->centered ? WF_WITH_CENTERED : 0u);
    return make_checked(op, &(weft_optim){.with = with,
                                          .module = a->module,
                                          .lr = wf_option(a->lr, 1e-2),
                                          .beta2 = wf_option(a->alpha, 0.99),
                                          .eps = wf_option(a->eps, 1e-8),
                                          .momentum = a->momentum,
                                          .group = {{.decay = a->weight_decay,
                                                     .decay_min_rank = a->decay_min_rank}}});
}

weft_optim *(weft_adagrad_new)(const weft_adagrad_args *a)
{
    const char *op = "adagrad_new";
    if (bad(op, a != NULL, "the argument struct is NULL")) {
        return NULL;
    }
    return make_checked(op, &(weft_optim){.with = WF_UPDATE_ADAGRAD,
                                          .module = a->module,
                                          .lr = wf_option(a->lr, 1e-2),
                                          .lr_decay = a->lr_decay,
                                          .initial = a->initial,
                                          .eps = wf_option(a->eps, 1e-10),
                                          .group = {{.decay = a->weight_decay,
                                                     .decay_min_rank = a->decay_min_rank}}});
}

weft_optim *(weft_lion_new)(const weft_lion_args *a)
{
    const char *op = "lion_new";
    if (bad(op, a != NULL, "the argument struct is NULL")) {
        return NULL;
    }
    return make_checked(op, &(weft_optim){.with = WF_UPDATE_LION,
                                          .module = a->module,
                                          .lr = wf_option(a->lr, 1e-4),
                                          .beta1 = wf_option(a->beta1, 0.9),
                                          .beta2 = wf_option(a->beta2, 0.99),
                                          .group = {{.decay = a->weight_decay,
                                                     .decay_min_rank = a->decay_min_rank}}});
}

/* Does name look like pattern, where '*' is any text? */
static bool looks_like(const char *name, const char *pattern)
{
    const char *star = NULL, *from = NULL; /* the last star, and what it has to cover at least */
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == 0;
}

/* Gives the parameters whose names look like the pattern to group g; how many there are. */
static int take_over(weft_optim *o, const char *pattern, int g)
{
    int taken = 0;
    for (int i = 0, p = 0; i < weft_module_count(o->module) && p < o->n; i++) {
        if (!weft_module_is_parameter(o->module, i)) {
            continue;
        }
        if (looks_like(weft_module_at(o->module, i).name, pattern)) {
            o->group_of[p] = (uint8_t)g;
            taken++;
        }
        p++;
    }
    return taken;
}

weft_status(weft_optim_group)(const weft_optim_group_args *a)
{
    const char *op = "optim_group";
    if (bad(op, a != NULL, "the argument struct is NULL") ||
        bad(op, a->optim != NULL, "the optimiser is NULL") ||
        bad(op, a->pattern != NULL, "the pattern is NULL") ||
        bad(op, !a->optim->stepped, "groups are made before the first step") ||
        bad(op, a->optim->n_group < MAX_GROUPS,
            "an optimiser has at most 3 groups beside its own")) {
        return WEFT_EINVALID;
    }
    weft_optim *o = a->optim;
    const double scale = wf_option(a->lr_scale, 1), decay = wf_option(a->weight_decay, 0);
    if (is_negative(op, "lr_scale", scale) || is_negative(op, "weight_decay", decay)) {
        return WEFT_EINVALID;
    }
    group *g = &o->group[o->n_group];
    *g = (group){.of = o, .scale = scale, .decay = decay};
    if (a->weight_decay == 0) { /* as the others */
        g->decay = o->group[0].decay;
        g->decay_min_rank = o->group[0].decay_min_rank;
    }
    g->live = new_live(g);
    if (!g->live) {
        wf_api_error(op, WEFT_ENOMEM, "no memory for a group");
        return WEFT_ENOMEM;
    }
    if (take_over(o, a->pattern, o->n_group) == 0) {
        wf_live_release(g->live);
        wf_api_error(op, WEFT_EINVALID,
                     "no parameter's name looks like '%s'; '*' stands for any text, and the names "
                     "are those of weft_module_at",
                     a->pattern);
        return WEFT_EINVALID;
    }
    o->n_group++;
    return WEFT_OK;
}

void weft_optim_free(weft_optim *o)
{
    if (!o) {
        return;
    }
    for (int i = 0; i < o->n_group; i++) {
        if (o->group[i].live) {
            atomic_store(&o->group[i].live->of, NULL);
            wf_live_release(o->group[i].live);
        }
    }
    for (int i = 0; i < o->n_state; i++) {
        weft_free(o->state[i].tensor);
        wf_mfree((char *)(uintptr_t)o->state[i].name);
    }
    wf_mfree(o->state);
    wf_mfree(o->group_of);
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
    if (bad("optim_set_lr", o != NULL, "the optimiser is NULL") ||
        is_negative("optim_set_lr", "lr", lr)) {
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

/* The numbers of step t for the parameters of g, in the mode of kernels: compilers do not know that what they inline depends on
 * it. */
__attribute__((noinline)) static void set_numbers(const group *g, int64_t t,
                                                  double k[WF_UPDATE_SCALARS])
{
    const weft_optim *o = g->of;
    const unsigned method = o->with & WF_UPDATE_METHOD;
    const bool adam = method == WF_UPDATE_ADAM || method == WF_UPDATE_ADAMW;
    const bool shares =
        adam || method == WF_UPDATE_LION; /* its averages are a mix of old and new */
    const bool decoupled = method == WF_UPDATE_ADAMW || method == WF_UPDATE_LION;
    double lr = o->lr * g->scale;
    k[WF_UPDATE_DECAY] = decoupled ? 1 - lr * g->decay : g->decay;
    k[WF_UPDATE_MOMENTUM] = shares ? 1 - o->beta1 : o->momentum;
    k[WF_UPDATE_BETA2] = o->beta2;
    k[WF_UPDATE_REST2] = method != WF_UPDATE_SGD ? 1 - o->beta2 : t == 1 ? 1 : 1 - o->dampening;
    k[WF_UPDATE_ROOT] = adam ? sqrt(1 - wf_power(o->beta2, t)) : 1;
    k[WF_UPDATE_EPS] = o->eps;
    if (adam) {
        lr /= 1 - wf_power(o->beta1, t);
    } else if (method == WF_UPDATE_ADAGRAD) {
        lr /= 1 + (double)(t - 1) * o->lr_decay;
    }
    k[WF_UPDATE_STEP] = -lr;
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

static void write_lines(update *u)
{
    const unsigned with = u->with;
#include "eager/kernels/update.def"
}

/* The update of the parameters that decay, or of those that do not, by the numbers k. */
static void begin_update(update *u, const weft_optim *o, const double *k, bool decay)
{
    *u = (update){
        .n_state = o->per, .with = o->with | (decay ? WF_WITH_DECAY : 0u), .site = o->site};
    memcpy(u->k, k, sizeof u->k);
    write_lines(u);
}

/* u[0]: without decay; u[1]: with it. */
static weft_status step_one(const weft_optim *o, int i, update u[2], built *b, updates *all)
{
    weft_tensor p = o->parameters[i];
    if (!weft_has_grad(p)) {
        return WEFT_OK;
    }
    const group *g = &o->group[o->group_of[i]];
    update *mine = &u[g->decay > 0 && weft_rank(p) >= g->decay_min_rank];
    weft_scope scope = weft_scope_begin();
    mine->tensor[P] = p;
    mine->tensor[G] = weft_grad(p);
    for (int n = 0; n < o->per; n++) {
        mine->tensor[S0 + n] = o->state[(ptrdiff_t)i * o->per + n].tensor;
    }
    weft_status s = wf_update_run(mine, b, all);
    weft_scope_end(scope);
    return s;
}

/* Has the counter a value that a read would have to wait for, on a device or in a trace that has stepped already? */
static bool is_away(weft_tensor count)
{
    if (weft_device_of(count).kind != WEFT_DEVICE_CPU) {
        return true;
    }
    wf_ctx *c = wf_ctx_get();
    bool pinned, away = false;
    wf_slot *s = c && c->recorder ? wf_pin(c, count, &pinned, NULL) : NULL;
    if (s) {
        away = c->recorder->pending(c->recorder, s);
        if (pinned) {
            wf_unpin(c, s);
        }
    }
    return away;
}

/* The value of the counter, before the write: a trace need not be broken to read it. Where a read would wait, it is read only
 * if somebody else has written to it (a checkpoint was loaded). INT64_MIN: an error was recorded. */
static int64_t steps_so_far(const weft_optim *o)
{
    weft_tensor count = o->state[o->n_state - 1].tensor;
    bool known = weft_write_count(count) == o->seen_writes && is_away(count);
    const int64_t steps = known ? o->seen_steps : weft_item_i64(count);
    if (steps >= 0 && steps < INT64_MAX) {
        return steps;
    }
    if (steps != INT64_MIN || weft_last_status() == WEFT_OK) { /* else it could not be read */
        wf_api_error("optim_step", WEFT_EINVALID,
                     "'optim.step' is %lld, which is no number of steps; was it in a checkpoint?",
                     (long long)steps);
    }
    return INT64_MIN;
}

static void saw_steps(weft_optim *o, int64_t steps)
{
    o->seen_steps = steps;
    o->seen_writes = weft_write_count(o->state[o->n_state - 1].tensor);
}

/* -- replays of a traced step (wf_live) ------------------------------------------------------------------------- */

_Static_assert((int)WF_UPDATE_SCALARS <= (int)WF_LIVE_NUMBERS, "numbers fit");

static int begin_replay(void *of, uint32_t nth, double number[WF_LIVE_NUMBERS])
{
    const group *g = of;
    weft_optim *o = g->of;
    int64_t had = steps_so_far(o);
    if (had == INT64_MIN) {
        return (int)weft_last_status();
    }
    if (had >= INT64_MAX - (int64_t)nth) {
        return WEFT_EINVALID;
    }
    o->replayed = had + 1 + (int64_t)nth;
    const unsigned mode = wf_fpenv_enter(); /* as in weft_optim_step */
    set_numbers(g, o->replayed, number);
    wf_fpenv_leave(mode);
    return 0;
}

static void end_replay(void *of)
{
    weft_optim *o = ((group *)of)->of;
    saw_steps(o, o->replayed);
}

static wf_live *new_live(group *g)
{
    wf_live *l = wf_malloc(sizeof *l);
    if (l) {
        *l = (wf_live){.begin = begin_replay, .end = end_replay};
        atomic_init(&l->refs, 1);
        atomic_init(&l->of, g);
    }
    return l;
}

/* What is recorded from here on is a step of a group; NULL: no more. */
static void tell_trace(wf_live *l)
{
    wf_ctx *c = wf_ctx_get();
    if (c && c->recorder) {
        c->recorder->live(c->recorder, l);
    }
}

/* Step t of the parameters of group g. */
static weft_status step_group(const weft_optim *o, int g, int64_t t, updates *all)
{
    double k[WF_UPDATE_SCALARS];
    weft_status s = WEFT_OK;
    update u[2];
    built b;
    b.tried = 0;
    set_numbers(&o->group[g], t, k);
    for (int i = 0; i < 2; i++) {
        begin_update(&u[i], o, k, i == 1);
    }
    for (int i = 0; i < o->n && s == WEFT_OK; i++) {
        s = o->group_of[i] == g ? step_one(o, i, u, &b, all) : WEFT_OK;
    }
    return s;
}

__attribute__((noinline)) static weft_status step(weft_optim *o)
{
    weft_no_grad_begin();
    o->stepped = true;
    wf_ctx *c = wf_ctx_get();
    o->site = c ? c->here : NULL;
    tell_trace(o->group[0].live);
    updates all = {NULL};
    int64_t had = steps_so_far(o);
    weft_status s = had == INT64_MIN ? weft_last_status()
                                     : weft_add_(o->state[o->n_state - 1].tensor, weft_i(1));
    if (s == WEFT_OK) { /* else the next step reads the counter again */
        saw_steps(o, had + 1);
    }
    for (int g = 0; g < o->n_group && s == WEFT_OK; g++) {
        if (g > 0) {
            tell_trace(o->group[g].live);
        }
        s = step_group(o, g, had + 1, &all);
    }
    const weft_status rest = wf_updates_end(&all);
    s = s == WEFT_OK ? rest : s;
    tell_trace(NULL);
    weft_no_grad_end();
    return s;
}

weft_status weft_optim_step(weft_optim *o)
{
    if (bad("optim_step", o != NULL, "the optimiser is NULL")) {
        return WEFT_EINVALID;
    }
    /* One mode for all of it: factors are computed here, and the loops of updates are no op's, whose dispatch would do this. */
    const unsigned mode = wf_fpenv_enter();
    const weft_status s = step(o);
    wf_fpenv_leave(mode);
    return s;
}
