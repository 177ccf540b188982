/*
 * tests/fuzz/test_step_fuzz.c -- random training steps, called and frozen: parameters, gradients, optimisers' state, results,
 * and whatever shares memory with them agree bit for bit, whatever the caller does between the calls.
 *
 * A step is drawn from a seed and is the same at every call: losses, backwards, optimisers, gradients dropped, shared, scaled
 * and given out, dropout and noise from two generators. Between calls come hooks, kept gradients, rates, other arguments, freed
 * optimisers, generators that are seeded, drawn from and restored. WEFT_FUZZ_GRAPHS: how many steps (600, less by WEFT_TEST_EFFORT); WEFT_FUZZ_SEED: the first; WEFT_FUZZ_PRINT=1 shows what is done.
 */
/* ctest: timeout=600 */
#include "tests/jit/corner_support.h"
#include "tests/jit/values.h"
#include "tests/support/effort.h"
#include "weft/weft.h"

enum { PARAMS = 4, SIDES = 3, N = 6, CALLS = 16, SETTLED = 4 };

typedef struct model {
    weft_module *m;
    weft_tensor param[PARAMS], kept[PARAMS]; /* kept: gradients the caller holds on to */
    weft_tensor side[SIDES];                 /* what the second argument may be */
    weft_tensor view;                        /* of a parameter */
    weft_optim *optim[2];
    uint64_t hook[PARAMS];
    weft_generator rng, own, saved; /* the model's; the thread's while it is this model's turn */
    uint64_t seed, state;
    bool print;
    /* while a step runs */
    weft_tensor x, y, last, held;
} model;

static unsigned below(model *k, unsigned n)
{
    k->state = values_hash(k->state + 1);
    return (unsigned)((k->state >> 20) % n);
}
static weft_tensor any(model *k)
{
    return k->param[below(k, PARAMS)];
}
static weft_tensor full(double v)
{
    return weft_full(weft_shape(N), v, WEFT_F32);
}
static weft_tensor view_of(const model *k)
{
    return weft_keep(weft_reshape(k->param[1], weft_shape(2, 3)));
}

static void open_model(model *k, uint64_t seed)
{
    *k = (model){.m = weft_module_new(NULL), .seed = seed, .rng = {seed, 0}, .own = {seed + 1, 7}};
    for (int i = 0; i < PARAMS; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        k->param[i] = weft_module_parameter(k->m, name, weft_div(vector(N, i + 1), weft_f(8)));
    }
    k->optim[0] = seed % 2 ? weft_sgd_new(k->m, 0.1, .momentum = seed % 3 ? 0.9 : 0)
                           : weft_adamw_new(k->m, 0.05, .weight_decay = 0.1);
    k->optim[1] = weft_sgd_new(k->m, 0.03);
    for (int i = 0; i < SIDES; i++) {
        k->side[i] = weft_keep(weft_div(vector(N, 2 - i), weft_f(4)));
        OK(weft_requires_grad_(k->side[i], i < 2));
    }
    k->view = view_of(k);
}

static void close_model(model *k)
{
    weft_free(k->view);
    for (int i = 0; i < SIDES; i++) {
        weft_free(k->side[i]);
    }
    for (int i = 0; i < PARAMS; i++) {
        weft_free(k->kept[i]);
    }
    weft_optim_free(k->optim[0]);
    weft_optim_free(k->optim[1]);
    weft_module_free(k->m);
}

/* -- what a step consists of ------------------------------------------------------------------------------------- */

static weft_tensor loss_of(model *k)
{
    weft_tensor l = weft_mul(k->x, any(k));
    for (int i = 0; i < 3; i++) {
        weft_tensor q = any(k);
        const unsigned form = below(k, 4);
        l = form < 2 ? weft_mul(weft_tanh(l), q) : weft_add(l, form == 2 ? weft_sin(q) : q);
    }
    if (below(k, 4) == 0) {
        l = weft_add(l, weft_reshape(k->view, weft_shape(N)));
    }
    return weft_sum(l);
}
static weft_status backward(weft_tensor l)
{
    return weft_requires_grad(l) ? weft_backward(l) : WEFT_OK;
}
static weft_status learn(model *k)
{
    weft_tensor l = loss_of(k);
    k->last = weft_detach(l);
    return backward(l);
}
static weft_status learn_side(model *k)
{
    weft_tensor l = weft_sum(weft_mul(k->y, weft_tanh(any(k))));
    k->last = weft_detach(l);
    return backward(l);
}
static weft_status learn_twice(model *k)
{
    weft_tensor l = weft_sum(weft_mul(weft_exp(weft_mul(any(k), weft_f(0.1))), k->y));
    if (!weft_requires_grad(l)) {
        return WEFT_OK;
    }
    weft_status s = weft_backward(l, .retain_graph = true);
    return s ? s : weft_backward(l);
}
static weft_status ask_gradient(model *k)
{
    weft_tensor l = loss_of(k), g = WEFT_NONE;
    if (!weft_requires_grad(l) || !weft_requires_grad(k->y)) {
        return WEFT_OK;
    }
    weft_status s = weft_grad_of(.outputs = &l, .n_outputs = 1, .inputs = &k->y, .n_inputs = 1,
                                 .grads = &g, .allow_unused = true);
    k->last = !s && g.slot ? weft_detach(g) : k->last;
    return s;
}
static weft_status zero(model *k)
{
    return weft_module_zero_grad(k->m);
}
static weft_status optimise(model *k)
{
    return weft_optim_step(k->optim[below(k, 2)]);
}
static weft_status look(model *k)
{
    weft_tensor q = any(k);
    if (weft_has_grad(q)) {
        k->last = weft_add(weft_sum(weft_grad(q)), weft_f(1));
    }
    return WEFT_OK;
}
static weft_status look_at_side(model *k)
{
    if (weft_has_grad(k->y)) {
        k->last = weft_add(weft_grad(k->y), weft_f(3));
    }
    return WEFT_OK;
}
static weft_status scale_gradient(model *k)
{
    weft_tensor q = any(k);
    return weft_has_grad(q) ? weft_mul_(weft_grad(q), weft_f(0.5)) : WEFT_OK;
}
static weft_status share_gradient(model *k)
{
    weft_tensor q = any(k), r = any(k);
    return weft_has_grad(q) ? weft_set_grad(r, weft_grad(q)) : WEFT_OK;
}
static weft_status derive_gradient(model *k)
{
    weft_tensor q = any(k), r = any(k);
    return weft_has_grad(q) ? weft_set_grad(r, weft_mul(weft_grad(q), weft_f(0.25))) : WEFT_OK;
}
static weft_status drop_gradient(model *k)
{
    return weft_set_grad(any(k), WEFT_NONE);
}
static weft_status drop_side_gradient(model *k)
{
    return weft_set_grad(k->y, WEFT_NONE);
}
static weft_status give_out_gradient(model *k)
{
    weft_tensor q = any(k);
    k->held = weft_has_grad(q) ? weft_grad(q) : k->held;
    return WEFT_OK;
}
static weft_generator *one_of(model *k)
{
    return below(k, 2) ? &k->rng : NULL;
}
static weft_status learn_noisily(model *k)
{
    weft_generator *g = one_of(k);
    weft_tensor h =
        weft_dropout(weft_mul(k->x, any(k)), .p = 0.4, .training = true, .generator = g);
    h = weft_add(weft_tanh(h), weft_randn(weft_shape(N), .generator = one_of(k)));
    weft_tensor l = weft_sum(weft_mul(weft_add(h, weft_rand(weft_shape(N))), any(k)));
    k->last = weft_detach(l);
    return backward(l);
}
static weft_status draw(model *k)
{
    weft_generator *g = one_of(k);
    weft_tensor t = below(k, 2) ? weft_randint(weft_shape(N), -4, 9, WEFT_F32, .generator = g)
                                : weft_bernoulli(weft_shape(N), 0.3, WEFT_F32, .generator = g);
    k->last = weft_add(weft_mul(k->x, t), weft_cast(weft_randperm(N), WEFT_F32));
    return WEFT_OK;
}
static weft_status dirty(model *k)
{
    weft_no_grad_begin();
    weft_status s =
        weft_add_(any(k), weft_rand(weft_shape(N), .high = 0.01, .generator = one_of(k)));
    weft_no_grad_end();
    return s;
}
static weft_status decay(model *k)
{
    weft_no_grad_begin();
    weft_status s = weft_mul_(any(k), weft_f(0.99));
    weft_no_grad_end();
    return s;
}
static weft_status nudge_part(model *k)
{
    weft_no_grad_begin();
    weft_status s = weft_add_(weft_narrow(weft_detach(any(k)), 0, 1, 3), weft_f(0.01));
    weft_no_grad_end();
    return s;
}

#define MOVES(X)                                                                                   \
    X(learn)                                                                                       \
    X(learn)                                                                                       \
    X(learn)                                                                                       \
    X(learn)                                                                                       \
    X(learn_side)                                                                                  \
    X(learn_twice)                                                                                 \
    X(ask_gradient)                                                                                \
    X(zero)                                                                                        \
    X(optimise)                                                                                    \
    X(optimise)                                                                                    \
    X(look)                                                                                        \
    X(look_at_side)                                                                                \
    X(scale_gradient)                                                                              \
    X(share_gradient)                                                                              \
    X(derive_gradient)                                                                             \
    X(drop_gradient)                                                                               \
    X(drop_side_gradient)                                                                          \
    X(give_out_gradient)                                                                           \
    X(learn_noisily)                                                                               \
    X(learn_noisily)                                                                               \
    X(draw)                                                                                        \
    X(dirty)                                                                                       \
    X(decay)                                                                                       \
    X(nudge_part)
#define ROW(name) {name, #name},
static const struct move {
    weft_status (*run)(model *k);
    const char *name;
} moves[] = {MOVES(ROW)};
enum { COUNT = sizeof moves / sizeof *moves };

FN(step)
{
    model *k = self;
    k->state = k->seed;
    k->x = in[0];
    k->y = in[1];
    k->last = weft_mul(in[0], weft_f(2));
    k->held = WEFT_NONE;
    weft_status s = WEFT_OK;
    for (int n = 2 + (int)below(k, 7); n > 0 && !s; n--) {
        const struct move *move = &moves[below(k, COUNT)];
        if (k->print) {
            fprintf(stderr, " %s", move->name);
        }
        s = move->run(k);
    }
    out[0] = weft_detach(k->last);
    out[1] = k->held.slot ? k->held : weft_add(out[0], weft_f(1));
    return s;
}

/* -- what the caller does between calls ------------------------------------------------------------------------- */

static weft_tensor half(void *user, weft_tensor g)
{
    (void)user;
    return weft_mul(g, weft_f(0.5));
}

typedef struct choice {
    unsigned act, param, side, number;
} choice;

/* Another tensor of the same value as second argument. */
static void replace_side(model *k, const choice *c)
{
    weft_tensor had = k->side[c->side], t = weft_keep(weft_clone(weft_detach(had)));
    OK(weft_requires_grad_(t, weft_requires_grad(had)));
    if (weft_has_grad(had) && c->number % 2) {
        OK(weft_set_grad(t, weft_clone(weft_grad(had))));
    }
    weft_free(had);
    k->side[c->side] = t;
}
static void toggle_hook(model *k, unsigned p)
{
    if (k->hook[p]) {
        OK(weft_remove_hook(k->param[p], k->hook[p]));
        k->hook[p] = 0;
    } else if (weft_requires_grad(k->param[p])) {
        k->hook[p] = weft_register_hook(k->param[p], half, NULL, NULL);
    }
}
static void with_gradient(model *k, const choice *c)
{
    weft_tensor g = weft_grad(k->param[c->param]);
    switch (c->act) {
    case 0:
        OK(weft_set_grad(k->param[(c->param + 1) % PARAMS], g));
        break;
    case 1:
        OK(weft_set_grad(k->side[c->side], g));
        break;
    case 2:
        OK(weft_mul_(g, weft_f(2)));
        break;
    default:
        weft_free(k->kept[c->param]);
        k->kept[c->param] = weft_keep(g);
    }
}

static void disturb_generator(model *k, weft_generator *g, unsigned how)
{
    switch (how) {
    case 0:
        *g = (weft_generator){k->seed ^ 99, 1};
        break;
    case 1:
        *g = k->saved;
        break;
    case 2:
        g->offset = UINT64_MAX - 1;
        break;
    default:
        k->saved = *g;
        weft_free(weft_keep(weft_rand(weft_shape(N), .generator = g)));
    }
}

static void act(model *k, const choice *c)
{
    weft_tensor p = k->param[c->param];
    if (c->act < 4) {
        if (weft_has_grad(p)) {
            with_gradient(k, c);
        }
        return;
    }
    weft_no_grad_begin();
    switch (c->act) {
    case 4:
        OK(weft_module_zero_grad(k->m));
        break;
    case 5:
        OK(weft_set_grad(p, full(c->number)));
        break;
    case 6:
        OK(weft_set_grad(p, WEFT_NONE));
        break;
    case 7:
        toggle_hook(k, c->param);
        break;
    case 8:
        OK(weft_optim_set_lr(k->optim[c->number % 2], 0.01 * c->number));
        break;
    case 9:
        OK(weft_fill_(p, 0.125 * c->number));
        break;
    case 10:
        OK(weft_copy_(k->view, weft_full(weft_shape(2, 3), 0.1 * c->number, WEFT_F32)));
        break;
    case 11:
        weft_optim_free(k->optim[1]);
        k->optim[1] = weft_sgd_new(k->m, 0.02);
        break;
    case 12:
        OK(weft_set_grad(k->side[c->side], c->number % 2 ? WEFT_NONE : full(c->number)));
        break;
    case 13:
        replace_side(k, c);
        break;
    case 14:
        weft_free(k->kept[c->param]);
        k->kept[c->param] = WEFT_NONE;
        break;
    case 15:
        weft_free(k->view);
        k->view = view_of(k);
        break;
    case 18:
        disturb_generator(k, c->param % 2 ? &k->rng : &k->own, c->number);
        break;
    default: /* nothing */
        break;
    }
    weft_no_grad_end();
    if (c->act == 16) {
        OK(weft_backward(weft_sum(weft_mul(k->param[0], weft_f(0.5)))));
    }
}
enum { ACTS = 20 };

/* -- comparing ------------------------------------------------------------------------------------------------------ */

static bool same(weft_tensor a, weft_tensor b)
{
    double x[N], y[N];
    const int64_t n = weft_numel(a);
    if (n != weft_numel(b) || n > N) {
        return false;
    }
    weft_status r = weft_to_array(a, x, n, WEFT_F64), s = weft_to_array(b, y, n, WEFT_F64);
    return r == s && (r || memcmp(x, y, sizeof *x * (size_t)n) == 0);
}
static bool same_leaf(weft_tensor a, weft_tensor b)
{
    return same(a, b) && weft_has_grad(a) == weft_has_grad(b) &&
           (!weft_has_grad(a) || same(weft_grad(a), weft_grad(b)));
}

static bool same_generator(const weft_generator *a, const weft_generator *b)
{
    return a->seed == b->seed && a->offset == b->offset;
}

/* What differs, or NULL. */
static const char *compare(const model *a, const model *b)
{
    for (int i = 0; i < PARAMS; i++) {
        if (!same_leaf(a->param[i], b->param[i])) {
            return "a parameter or its gradient";
        }
        if (a->kept[i].slot && !same(a->kept[i], b->kept[i])) {
            return "a gradient that is kept";
        }
    }
    if (!same_generator(&a->rng, &b->rng) || !same_generator(&a->own, &b->own)) {
        return "a generator";
    }
    for (int i = 0; i < SIDES; i++) {
        if (!same_leaf(a->side[i], b->side[i])) {
            return "an argument or its gradient";
        }
    }
    for (int o = 0; o < 2; o++) {
        const weft_named_tensor *x = weft_optim_state(a->optim[o]),
                                *y = weft_optim_state(b->optim[o]);
        for (int i = 0; i < weft_optim_state_count(a->optim[o]); i++) {
            if (!same(x[i].tensor, y[i].tensor)) {
                return "an optimiser's state";
            }
        }
    }
    return NULL;
}

/* -- a step at every call -------------------------------------------------------------------------------------------- */

/* Both models' calls number `call`; what differs, or NULL. *over: a step has failed. */
static const char *call_both(model *a, model *b, weft_jit *j, int call, bool *over)
{
    model plan = {.state = values_hash(a->seed ^ (0x5555u + (uint64_t)call))};
    const bool quiet = call < SETTLED || a->seed & 1; /* half of the steps are never disturbed */
    choice c = {quiet ? ACTS : below(&plan, ACTS), below(&plan, PARAMS),
                (unsigned)(a->seed / 2 % SIDES), below(&plan, 7)};
    c.side = quiet || below(&plan, 5) ? c.side : below(&plan, SIDES);
    act(a, &c);
    act(b, &c);
    weft_tensor x = weft_div(vector(N, call), weft_f(16)), got[2], want[2];
    /* a parameter as argument, which is captured as well */
    const bool no_grad = c.act == 17, both = !quiet && below(&plan, call == CALLS - 1 ? 2 : 5) == 1;
    weft_tensor in_a[2] = {x, both ? a->param[c.param] : a->side[c.side]},
                in_b[2] = {x, both ? b->param[c.param] : b->side[c.side]};
    if (no_grad) {
        weft_no_grad_begin();
    }
    weft_generator *own = weft_default_generator();
    *own = a->own;
    weft_status r = step(a, in_a, 2, want, 2);
    a->own = *own;
    *own = b->own;
    weft_status s = weft_jit_call(j, in_b, 2, got, 2);
    b->own = *own;
    if (no_grad) {
        weft_no_grad_end();
    }
    if (a->print) {
        fprintf(stderr, "\n  call %d: act %u, parameter %u, argument %u\n", call, c.act, c.param,
                c.side);
    }
    *over = r != WEFT_OK;
    return r != s                                                    ? "the status"
           : !r && !(same(want[0], got[0]) && same(want[1], got[1])) ? "a result"
                                                                     : compare(a, b);
}

/* The first difference, or NULL. Adds the calls replayed. */
static const char *run(uint64_t seed, bool print, uint64_t *replayed)
{
    model a, b;
    open_model(&a, seed);
    open_model(&b, seed);
    a.print = print;
    weft_jit *j =
        weft_jit_trace(step, &b, .frozen = true, .always_record = true, .verify_every = -1);
    const char *bad = NULL;
    bool over = false;
    for (int call = 0; call < CALLS && !bad && !over; call++) {
        weft_scope sc = weft_scope_begin();
        bad = call_both(&a, &b, j, call, &over);
        weft_scope_end(sc);
    }
    *replayed += (uint64_t)stats_of(j).frozen;
    if (bad) {
        fprintf(stderr, "seed %llu: %s differs; %s\n", (unsigned long long)seed, bad, reasons(j));
    }
    weft_jit_free(j);
    close_model(&a);
    close_model(&b);
    return bad;
}

Test(step_fuzz, steps_called_and_frozen_agree)
{
    const uint64_t n = effort_option("WEFT_FUZZ_GRAPHS", effort_of(600)),
                   first = effort_option("WEFT_FUZZ_SEED", 1);
    uint64_t replayed = 0;
    int failures = 0;
    for (uint64_t seed = first; seed < first + n && failures < 3; seed++) {
        const char *bad =
            run(values_hash(seed), effort_option("WEFT_FUZZ_PRINT", 0) != 0, &replayed);
        failures += bad != NULL;
        cr_expect_null(bad, "seed %llu: %s differs", (unsigned long long)seed, bad);
    }
    cr_expect_gt(replayed, n, "only %llu calls of %llu steps were replayed",
                 (unsigned long long)replayed, (unsigned long long)n);
    cr_expect_eq(weft_leak_report(NULL), 0);
    cr_expect_eq(weft_tape_nodes(), 0);
}
