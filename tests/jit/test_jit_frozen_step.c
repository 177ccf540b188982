/*
 * tests/jit/test_jit_frozen_step.c -- frozen training steps: gradients that come and go, optimisers whose rate and step are
 * other numbers at each call. Two equal models, one trained by the function called, one by its replays: losses, parameters,
 * gradients and the optimiser's state agree in every bit.
 *
 * ctest: threads
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/gpu/equal.h"
#include "tests/jit/corner_support.h"
#include "tests/support/device_double.h"
#include "tests/support/optims.h"
#include "weft/io.h"

enum { ROWS = 6, IN = 5, OUT = 3, UNUSED = 4 };

/* What the function does beside forward, backward and the step. */
enum {
    ZERO_FIRST = 1, /* drops gradients before the backward */
    ZERO_LAST = 2,  /* after the step */
    CLIP = 4,
    RATE = 8,   /* sets the learning rate */
    TWICE = 16, /* steps twice */
    STEP_ONLY = 32,
    OFTEN = 64 /* more steps than a replay can have */
};

typedef struct model {
    weft_module *m;
    weft_nn_linear fc1, fc2;
    weft_tensor unused;
    weft_optim *optim;
    unsigned does;
    int runs;
} model;

static void model_open(model *k, unsigned does, bool sgd)
{
    weft_generator g = {5, 0};
    *k = (model){.m = weft_module_new(&g), .does = does};
    weft_nn_linear_init(&k->fc1, k->m, "fc1", IN, 7);
    weft_nn_linear_init(&k->fc2, k->m, "fc2", 7, OUT);
    k->unused = weft_module_parameter(k->m, "unused", weft_ones(weft_shape(UNUSED), WEFT_F32));
    OK(weft_module_status(k->m));
    k->optim = sgd ? weft_sgd_new(k->m, 0.1, .momentum = 0.9, .nesterov = true)
                   : weft_adamw_new(k->m, 0.05, .weight_decay = 0.1, .decay_min_rank = 2);
    cr_assert(k->optim != NULL, "%s", weft_last_error());
}

/* With an optimiser of any kind, and parameters of two groups. */
static void model_open_kind(model *k, unsigned does, const optim_kind *kind)
{
    model_open(k, does, true);
    weft_optim_free(k->optim);
    k->optim = optim_of(k->m, kind);
    OK(weft_optim_group(k->optim, "*.bias", .lr_scale = 0.5, .weight_decay = WEFT_ZERO));
}

static void model_close(model *k)
{
    weft_optim_free(k->optim);
    weft_module_free(k->m);
}

static weft_status backward_of(model *k, weft_tensor x, weft_tensor y, weft_tensor *loss)
{
    weft_tensor h = weft_relu(weft_nn_linear_forward(&k->fc1, x));
    weft_tensor l = weft_mse_loss(weft_nn_linear_forward(&k->fc2, h), y);
    *loss = weft_detach(l);
    return weft_backward(l);
}

FN(train)
{
    model *k = self;
    k->runs++;
    weft_status s = WEFT_OK;
    if (k->does & ZERO_FIRST)
        s = weft_module_zero_grad(k->m);
    if (!(k->does & STEP_ONLY))
        s = s ? s : backward_of(k, in[0], in[1], &out[0]);
    if (k->does & CLIP)
        s = s ? s : weft_module_clip_grad_norm(k->m, 0.5, NULL);
    if (k->does & RATE)
        s = s ? s : weft_optim_set_lr(k->optim, 0.01);
    s = s ? s : weft_optim_step(k->optim);
    for (int more = k->does & OFTEN ? 40 : (k->does & TWICE) != 0; more > 0; more--)
        s = s ? s : weft_optim_step(k->optim);
    if (k->does & ZERO_LAST)
        s = s ? s : weft_module_zero_grad(k->m);
    return s;
}

static void check_models(model *a, model *b)
{
    for (int i = 0; i < weft_module_count(a->m); i++) {
        weft_tensor x = weft_module_at(a->m, i).tensor, y = weft_module_at(b->m, i).tensor;
        check_bits(weft_module_at(a->m, i).name, x, y);
        cr_assert_eq(weft_has_grad(x), weft_has_grad(y), "%s", weft_module_at(a->m, i).name);
        if (weft_has_grad(x)) {
            check_bits("gradient", weft_grad(x), weft_grad(y));
            cr_assert_eq(weft_requires_grad(weft_grad(y)), false);
        }
    }
    for (int i = 0; i < weft_optim_state_count(a->optim); i++) {
        check_bits(weft_optim_state(a->optim)[i].name, weft_optim_state(a->optim)[i].tensor,
                   weft_optim_state(b->optim)[i].tensor);
    }
}

/* One step of both on the batch `number`. */
static void both(weft_jit *j, model *a, model *b, int number)
{
    weft_scope sc = weft_scope_begin();
    weft_generator g = {(uint64_t)number, 0};
    weft_tensor in[2] = {weft_randn(weft_shape(ROWS, IN), .generator = &g),
                         weft_randn(weft_shape(ROWS, OUT), .generator = &g)};
    const int n = a->does & STEP_ONLY ? 0 : 1;
    weft_tensor x, y;
    OK(train(a, in, 2, &x, n));
    OK(weft_jit_call(j, in, 2, &y, n));
    if (n)
        check_bits("loss", x, y);
    check_models(a, b);
    weft_scope_end(sc);
}

/* Replays take the rate that the optimiser has, and its step. */
static void trains_of(model *a, model *b, int verify_every)
{
    enum { CALLS = 14 };
    const unsigned does = a->does;
    weft_jit *j = weft_jit_trace(train, b, .frozen = true, .verify_every = verify_every);
    for (int i = 0; i < CALLS; i++) {
        double lr = weft_lr_cosine(i, 3, CALLS, 0.05, 0.01);
        OK(weft_optim_set_lr(a->optim, lr));
        OK(weft_optim_set_lr(b->optim, lr));
        if (!(does & (ZERO_FIRST | ZERO_LAST | STEP_ONLY)) && i % 5 == 4) {
            OK(weft_module_zero_grad(a->m));
            OK(weft_module_zero_grad(b->m));
        }
        if (does & STEP_ONLY) {
            for (int k = 0; k < weft_module_count(a->m) && i == 0; k++) {
                weft_tensor p = weft_module_at(a->m, k).tensor, q = weft_module_at(b->m, k).tensor;
                OK(weft_set_grad(p, weft_ones_like(p)));
                OK(weft_set_grad(q, weft_ones_like(q)));
            }
        }
        both(j, a, b, i);
    }
    const weft_jit_stats s = stats_of(j);
    cr_assert_eq(s.breaks, 0);
    if (verify_every > 0) {
        cr_assert_gt(s.verified, 2);
        cr_assert_eq(s.thawed, 0, "%s", reasons(j));
    } else {
        cr_assert_geq(s.frozen, does & (ZERO_FIRST | ZERO_LAST | STEP_ONLY) ? CALLS - 3 : 3,
                      "does %u: %s", does, reasons(j));
        cr_assert_eq(b->runs + (int)s.frozen, CALLS);
    }
    weft_jit_free(j);
    model_close(a);
    model_close(b);
    cr_assert_eq(weft_leak_report(NULL), 0);
    cr_assert_eq(weft_tape_nodes(), 0);
}

static void trains(unsigned does, bool sgd, int verify_every)
{
    model a, b;
    model_open(&a, does, sgd);
    model_open(&b, does, sgd);
    trains_of(&a, &b, verify_every);
}

Test(frozen_step, follows_rate_and_step)
{
    static const unsigned does[] = {ZERO_FIRST,
                                    ZERO_LAST,
                                    0,
                                    ZERO_FIRST | CLIP,
                                    ZERO_FIRST | ZERO_LAST,
                                    STEP_ONLY,
                                    STEP_ONLY | CLIP,
                                    ZERO_FIRST | TWICE,
                                    STEP_ONLY | TWICE};
    for (size_t i = 0; i < sizeof does / sizeof *does; i++) {
        trains(does[i], false, -1);
        trains(does[i], true, -1);
    }
    trains(ZERO_FIRST | CLIP, false, 3);
    trains(ZERO_LAST, true, 2);
}

/* -- running statistics ----------------------------------------------------------------------------------------------------- */

typedef struct net {
    model k; /* its module and optimiser */
    weft_nn_conv2d conv;
    weft_nn_batch_norm2d norm;
} net;

static void net_open(net *n)
{
    weft_generator g = {6, 0};
    *n = (net){.k.m = weft_module_new(&g)};
    weft_nn_conv2d_init(&n->conv, n->k.m, "conv", 3, 4, 3, .padding = 1);
    weft_nn_batch_norm2d_init(&n->norm, n->k.m, "norm", 4, .momentum = 0.3);
    OK(weft_module_status(n->k.m));
    n->k.optim = weft_sgd_new(n->k.m, 0.1, .momentum = 0.9);
    cr_assert(n->k.optim != NULL, "%s", weft_last_error());
}

static weft_tensor net_forward(const net *n, weft_tensor x)
{
    weft_tensor y = weft_nn_batch_norm2d_forward(&n->norm, weft_nn_conv2d_forward(&n->conv, x));
    return weft_mean(weft_square(weft_relu(y)));
}

FN(train_net)
{
    net *n = self;
    n->k.runs++;
    weft_tensor loss = net_forward(n, in[0]);
    out[0] = weft_detach(loss);
    weft_status s = weft_module_zero_grad(n->k.m);
    s = s ? s : weft_backward(loss);
    return s ? s : weft_optim_step(n->k.optim);
}

FN(evaluate_net)
{
    const net *n = self;
    out[0] = net_forward(n, in[0]);
    return weft_error_status(out[0]);
}

/* A convolution, its norm whose running statistics move and SGD: called, traced and frozen, and then evaluated with them. */
static void running_statistics(bool frozen)
{
    enum { CALLS = 10 };
    net a, b;
    net_open(&a);
    net_open(&b);
    weft_jit *j = weft_jit_trace(train_net, &b, .frozen = frozen, .always_record = true,
                                 .verify_every = -1),
             *e = weft_jit_trace(evaluate_net, &b, .frozen = frozen, .always_record = true);
    weft_tensor mean = weft_clone(a.norm.running_mean), var = weft_clone(a.norm.running_var);
    for (int i = 0; i < 2 * CALLS; i++) {
        weft_scope sc = weft_scope_begin();
        weft_generator g = {(uint64_t)i, 0};
        weft_tensor image = weft_randn(weft_shape(5, 3, 6, 7), .mean = 2, .generator = &g), x, y;
        const bool trains = i < CALLS;
        weft_module_train(a.k.m, trains);
        weft_module_train(b.k.m, trains);
        OK(trains ? train_net(&a, &image, 1, &x, 1) : evaluate_net(&a, &image, 1, &x, 1));
        OK(weft_jit_call(trains ? j : e, &image, 1, &y, 1));
        check_bits("loss", x, y);
        check_models(&a.k, &b.k);
        check_bits("running mean", a.norm.running_mean, b.norm.running_mean);
        check_bits("running variance", a.norm.running_var, b.norm.running_var);
        cr_assert_eq(weft_item_i64(b.norm.batches), trains ? i + 1 : CALLS);
        weft_scope_end(sc);
    }
    cr_assert_gt(weft_item_f64(weft_max(weft_abs(weft_sub(b.norm.running_mean, mean)))), 0.05);
    cr_assert_gt(weft_item_f64(weft_max(weft_abs(weft_sub(b.norm.running_var, var)))), 0.05);
    const weft_jit_stats s = stats_of(j);
    cr_assert_eq(s.breaks, 0);
    cr_assert(frozen ? s.frozen >= CALLS - 3 && b.k.runs + (int)s.frozen == CALLS
                     : b.k.runs == CALLS,
              "%s", reasons(j));
    weft_jit_free(j);
    weft_jit_free(e);
    model_close(&a.k);
    model_close(&b.k);
}

Test(frozen_step, running_statistics_move)
{
    running_statistics(false);
    running_statistics(true);
}

/* Of every rule: the numbers of a step that move with the step, and those of a group. */
Test(frozen_step, every_optimiser_replays)
{
    for (int i = 0; i < OPTIM_KINDS; i++) {
        model a, b;
        const unsigned does = ZERO_FIRST | (i % 2 ? TWICE : 0);
        model_open_kind(&a, does, &optim_kinds[i]);
        model_open_kind(&b, does, &optim_kinds[i]);
        trains_of(&a, &b, i % 3 ? -1 : 3);
    }
}

/* -- guards ------------------------------------------------------------------------------------------------------ */

/* Both models get a gradient from elsewhere, which the function adds to where it does not drop it first. */
static void give_gradients(model *a, model *b)
{
    model *each[] = {a, b};
    for (int i = 0; i < 2; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor loss;
        OK(backward_of(each[i], weft_ones(weft_shape(2, IN), WEFT_F32),
                       weft_zeros(weft_shape(2, OUT), WEFT_F32), &loss));
        weft_scope_end(sc);
    }
}

Test(frozen_step, gradients_are_guarded)
{
    static const struct {
        unsigned does;
        const char *says; /* NULL: whatever gradients there are, they are dropped */
    } cases[] = {{ZERO_FIRST, NULL}, {ZERO_LAST, "has a gradient that had none"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        model a, b;
        model_open(&a, cases[k].does, false);
        model_open(&b, cases[k].does, false);
        weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = -1);
        for (int i = 0; i < 8; i++) {
            if (i == 5) {
                give_gradients(&a, &b);
            }
            both(j, &a, &b, i);
        }
        cr_assert_eq(stats_of(j).frozen, cases[k].says ? 5 : 6, "%s", reasons(j));
        cr_assert(!cases[k].says || has_reason(j, cases[k].says), "%s", reasons(j));
        weft_jit_free(j);
        model_close(&a);
        model_close(&b);
    }
}

/* A tensor that no recording had a gradient of, and one that the caller puts another one on. */
Test(frozen_step, other_gradients_are_seen)
{
    model a, b;
    model_open(&a, STEP_ONLY, false);
    model_open(&b, STEP_ONLY, false);
    give_gradients(&a, &b);
    weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 9; i++) {
        if (i == 4) {
            OK(weft_set_grad(a.unused, weft_full(weft_shape(UNUSED), 2, WEFT_F32)));
            OK(weft_set_grad(b.unused, weft_full(weft_shape(UNUSED), 2, WEFT_F32)));
        }
        if (i == 8) {
            OK(weft_set_grad(a.fc1.weight, weft_full(weft_shape(7, IN), 2, WEFT_F32)));
            OK(weft_set_grad(b.fc1.weight, weft_full(weft_shape(7, IN), 2, WEFT_F32)));
        }
        both(j, &a, &b, i);
    }
    cr_assert_eq(stats_of(j).frozen, 4, "%s", reasons(j));
    cr_assert(has_reason(j, "a tensor has a gradient that had none"), "%s", reasons(j));
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
}

FN(by_gradient)
{
    out[0] = weft_mul(in[0], weft_f(weft_has_grad(in[0]) ? 2 : 3));
    return WEFT_OK;
}

/* Whether an argument has a gradient decides what is computed: which one it has does not matter. */
Test(frozen_step, arguments_with_gradients)
{
    weft_jit *j = weft_jit_trace(by_gradient, NULL, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 6; i++) {
        weft_tensor x = weft_clone(vector(4, 1)), y;
        OK(weft_requires_grad_(x, true));
        if (i < 4) {
            OK(weft_set_grad(x, weft_ones_like(x)));
        }
        weft_no_grad_begin();
        OK(weft_jit_call(j, &x, 1, &y, 1));
        weft_no_grad_end();
        cr_assert_eq(at(y, 0), i < 4 ? 2 : 3, "call %d", i);
    }
    cr_assert_eq(stats_of(j).frozen, 2, "%s", reasons(j));
    weft_jit_free(j);
}

/* Gradients are added to in place where nobody else has their memory: what the caller keeps of one does not change. */
Test(frozen_step, gradients_that_are_kept)
{
    model a, b;
    model_open(&a, 0, true);
    model_open(&b, 0, true);
    weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = -1);
    weft_tensor kept = WEFT_NONE, was = WEFT_NONE;
    for (int i = 0; i < 9; i++) {
        if (i == 5) {
            kept = weft_keep(weft_grad(b.fc1.weight));
            was = weft_keep(weft_clone(kept));
        }
        both(j, &a, &b, i);
    }
    check_bits("kept", was, kept);
    cr_assert_geq(stats_of(j).frozen, 3, "%s", reasons(j));
    cr_assert(has_reason(j, "shares memory with another tensor now"), "%s", reasons(j));
    weft_free(kept);
    weft_free(was);
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* Adds to the gradient of the argument, steps what has a gradient. */
FN(back_and_step)
{
    model *k = self;
    weft_status s = weft_module_zero_grad(k->m);
    s = s ? s : weft_set_grad(in[0], WEFT_NONE);
    s = s ? s : weft_backward(weft_sum(weft_square(in[0])));
    s = s ? s : weft_optim_step(k->optim);
    return s ? s : weft_set_grad(in[0], WEFT_NONE);
}

/* An argument that is one of the tensors that the function steps if they have gradients. */
Test(frozen_step, parameters_as_arguments)
{
    model a, b;
    model_open(&a, 0, true);
    model_open(&b, 0, true);
    weft_tensor x = weft_keep(leaf(UNUSED, 1));
    weft_jit *j = weft_jit_trace(back_and_step, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 6; i++) {
        OK(back_and_step(&a, i < 5 ? &x : &a.unused, 1, NULL, 0));
        OK(weft_jit_call(j, i < 5 ? &x : &b.unused, 1, NULL, 0));
        check_models(&a, &b);
    }
    cr_assert_eq(stats_of(j).frozen, 3, "%s", reasons(j));
    cr_assert(has_reason(j, "argument 0 is a tensor whose gradient"), "%s", reasons(j));
    weft_free(x);
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
}

typedef struct past {
    weft_tensor leaf, value;
} past;

/* The value that gradients flow through was computed outside. */
FN(back_from_loss)
{
    const past *k = self;
    out[0] = weft_neg(in[0]);
    weft_status s = weft_set_grad(k->leaf, WEFT_NONE);
    return s ? s : weft_backward(k->value, .retain_graph = true);
}

FN(back_through_view)
{
    const past *k = self;
    out[0] = weft_neg(in[0]);
    weft_status s = weft_set_grad(k->leaf, WEFT_NONE);
    return s ? s : weft_backward(weft_sum(weft_mul(k->value, weft_f(3))), .retain_graph = true);
}

static weft_tensor tenfold(void *user, weft_tensor g)
{
    ++*(int *)user;
    return weft_mul(g, weft_f(10));
}

/* A hook that a leaf gets after recordings have agreed is called, where the function never uses the leaf itself. */
/* Drops gradients in one order or the other. */
FN(in_any_order)
{
    model *k = self;
    weft_tensor p[2] = {k->fc1.weight, k->fc2.weight};
    const int first = k->runs++ % 2;
    weft_status s = weft_set_grad(p[first], WEFT_NONE);
    s = s ? s : weft_set_grad(p[!first], WEFT_NONE);
    s = s ? s : weft_module_zero_grad(k->m);
    s = s ? s : backward_of(k, in[0], in[1], &out[0]);
    return s ? s : weft_optim_step(k->optim);
}

/* In which order gradients are first touched is no difference between two calls. */
Test(frozen_step, the_order_of_gradients_is_free)
{
    model a, b;
    model_open(&a, ZERO_FIRST, false);
    model_open(&b, ZERO_FIRST, false);
    weft_jit *j = weft_jit_trace(in_any_order, &b, .frozen = true, .verify_every = 3);
    for (int i = 0; i < 16; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor in[2] = {weft_randn(weft_shape(ROWS, IN)), weft_randn(weft_shape(ROWS, OUT))},
                    x, y;
        OK(in_any_order(&a, in, 2, &x, 1));
        OK(weft_jit_call(j, in, 2, &y, 1));
        check_bits("loss", x, y);
        check_models(&a, &b);
        weft_scope_end(sc);
    }
    cr_assert_eq(stats_of(j).thawed, 0, "%s", reasons(j));
    cr_assert_gt(stats_of(j).verified, 3, "%s", reasons(j));
    cr_assert_gt(stats_of(j).frozen, 8, "%s", reasons(j));
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
}

Test(frozen_step, hooks_of_leaves)
{
    static const weft_jit_fn fn[] = {back_from_loss, back_through_view};
    for (int f = 0; f < 2; f++) {
        past k = {.leaf = weft_keep(leaf(4, 1))};
        weft_tensor w =
            weft_keep(weft_full(weft_shape(4), 3, WEFT_F32)); /* the loss has saved it */
        k.value =
            weft_keep(f ? weft_reshape(k.leaf, weft_shape(2, 2)) : weft_sum(weft_mul(k.leaf, w)));
        weft_jit *j = weft_jit_trace(fn[f], &k, .frozen = true, .verify_every = -1);
        int hooked = 0;
        for (int i = 0; i < 6; i++) {
            if (i == 4) {
                cr_assert_neq(weft_register_hook(k.leaf, tenfold, &hooked, NULL), 0);
            }
            weft_tensor unused;
            OK(weft_jit_call(j, &w, 1, &unused, 1));
            cr_assert_eq(at(weft_grad(k.leaf), 0), i < 4 ? 3 : 30, "%d, call %d: %s", f, i,
                         reasons(j));
        }
        cr_assert_geq(hooked, 1);
        cr_assert(has_reason(j, f ? "history of a captured tensor" : "has other hooks"), "%s",
                  reasons(j));
        weft_jit_free(j);
        weft_free(k.value);
        weft_free(k.leaf);
        weft_free(w);
    }
}

/* A checkpoint is written and read between replays: what follows is what followed it. */
Test(frozen_step, checkpoints)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-frozen-%d.safetensors", (int)getpid());
    model a, b;
    model_open(&a, ZERO_FIRST, false);
    model_open(&b, ZERO_FIRST, false);
    weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 12; i++) {
        if (i == 4) {
            OK(weft_checkpoint_save(path, b.m, b.optim));
        }
        if (i == 8) {
            OK(weft_checkpoint_load(path, a.m, a.optim));
            OK(weft_checkpoint_load(path, b.m, b.optim));
            cr_assert_eq(weft_item_i64(weft_optim_state(b.optim)[2 * 5].tensor), 4);
        }
        both(j, &a, &b, i);
    }
    cr_assert_eq(stats_of(j).frozen, 10, "%s", reasons(j));
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
    unlink(path);
}

/* -- refusals ---------------------------------------------------------------------------------------------------- */

Test(frozen_step, refusals_have_reasons)
{
    static const struct {
        unsigned does;
        const char *says;
    } cases[] = {{RATE | ZERO_FIRST, "sets a learning rate"}, {OFTEN | ZERO_FIRST, "too often"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        model a, b;
        model_open(&a, cases[k].does, false);
        model_open(&b, cases[k].does, false);
        weft_jit *j = weft_jit_trace(train, &b, .frozen = true);
        for (int i = 0; i < 4; i++) {
            both(j, &a, &b, i);
        }
        cr_assert_eq(stats_of(j).frozen, 0);
        cr_assert(has_reason(j, cases[k].says), "%s", reasons(j));
        weft_jit_free(j);
        model_close(&a);
        model_close(&b);
    }
}

/* The numbers of tensors that are updated op by op are not followed: a rate would be the one recorded. */
Test(frozen_step, narrow_parameters_are_refused)
{
    model k = {.m = weft_module_new(NULL), .does = STEP_ONLY};
    weft_tensor p = weft_module_parameter(k.m, "p", weft_ones(weft_shape(4), WEFT_F16));
    k.optim = weft_sgd_new(k.m, 0.5);
    OK(weft_set_grad(p, weft_ones_like(p)));
    weft_jit *j = weft_jit_trace(train, &k, .frozen = true);
    for (int i = 0; i < 4; i++) {
        OK(weft_optim_set_lr(k.optim, i < 3 ? 0.5 : 0));
        OK(weft_jit_call(j, NULL, 0, NULL, 0));
    }
    cr_assert_eq(at(weft_cast(p, WEFT_F32), 0), -0.5f);
    cr_assert_eq(stats_of(j).frozen, 0);
    cr_assert(has_reason(j, "not dense f32 or f64"), "%s", reasons(j));
    weft_jit_free(j);
    model_close(&k);
}

/* An optimiser that is gone is not asked; one in its place is another. */
Test(frozen_step, freed_optimisers)
{
    model a, b;
    model_open(&a, ZERO_FIRST, true);
    model_open(&b, ZERO_FIRST, true);
    weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 10; i++) {
        if (i == 5) {
            model *each[] = {&a, &b};
            for (int k = 0; k < 2; k++) {
                weft_optim_free(each[k]->optim);
                each[k]->optim = weft_sgd_new(each[k]->m, 0.02, .momentum = 0.5);
            }
        }
        both(j, &a, &b, i);
    }
    cr_assert_eq(stats_of(j).frozen, 6, "%s", reasons(j));
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* A replay that finds no memory is an error, and the next one goes on with the step that it did not make. */
Test(frozen_step, no_memory)
{
    model k;
    model_open(&k, ZERO_FIRST | CLIP, false);
    weft_jit *j = weft_jit_trace(train, &k, .frozen = true, .verify_every = -1);
    weft_tensor in[2] = {weft_ones(weft_shape(ROWS, IN), WEFT_F32),
                         weft_zeros(weft_shape(ROWS, OUT), WEFT_F32)};
    int64_t steps = 0;
    int failed = 0;
    for (int i = 0; i < 60; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor loss;
        wf_alloc_fail_after(i > 3 ? i - 3 : 0, 1);
        const weft_status s = weft_jit_call(j, in, 2, &loss, 1);
        wf_alloc_fail_after(0, 0);
        cr_assert(s == WEFT_OK || (i > 3 && s == WEFT_ENOMEM), "call %d: %s", i, weft_last_error());
        steps += s == WEFT_OK;
        failed += s != WEFT_OK;
        weft_tensor count = weft_optim_state(k.optim)[weft_optim_state_count(k.optim) - 1].tensor;
        cr_assert_leq(weft_item_i64(count) - steps, 1);
        steps = weft_item_i64(count);
        weft_scope_end(sc);
    }
    OK(weft_jit_call(j, in, 2, &(weft_tensor){0}, 1));
    cr_assert_gt(failed, 4);
    cr_assert_gt(stats_of(j).frozen, failed);
    weft_jit_free(j);
    model_close(&k);
    cr_assert_eq(weft_tape_nodes(), 0);
}

/* Rows of the batch, some of which may not be there. */
FN(train_on_rows)
{
    const weft_tensor chosen[2] = {weft_index_select(in[0], 0, in[2]), in[1]};
    return train(self, chosen, 2, out, n_out);
}

/* A replay that fails: gradients that the function drops are gone, nothing else has changed, and the next one is right. */
Test(frozen_step, a_replay_that_fails)
{
    model a, b;
    model_open(&a, ZERO_FIRST | CLIP, false);
    model_open(&b, ZERO_FIRST | CLIP, false);
    weft_jit *j = weft_jit_trace(train_on_rows, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 14; i++) {
        const bool fails = i > 4 && i % 3 == 0;
        weft_scope sc = weft_scope_begin();
        weft_tensor in[3] = {weft_randn(weft_shape(ROWS, IN)), weft_randn(weft_shape(ROWS, OUT)),
                             weft_add(weft_arange(0, ROWS, 1, WEFT_I64), weft_i(fails))},
                    x, y;
        const int64_t replayed = stats_of(j).frozen;
        const weft_status s = weft_jit_call(j, in, 3, &y, 1);
        cr_assert_eq(s != WEFT_OK, fails);
        if (fails) {
            cr_assert_eq(stats_of(j).frozen, replayed + 1, "%s", reasons(j));
            cr_assert(!weft_has_grad(b.fc1.weight) && !weft_has_grad(b.fc2.bias));
            OK(weft_module_zero_grad(a.m));
        } else {
            OK(train_on_rows(&a, in, 3, &x, 1));
            check_bits("loss", x, y);
        }
        check_models(&a, &b);
        weft_scope_end(sc);
    }
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
}

/* -- devices ----------------------------------------------------------------------------------------------------- */

/* The step is known without asking the device; its numbers are this call's. */
static void on_a_device(unsigned does)
{
    model a, b;
    model_open(&a, does, false);
    model_open(&b, does, false);
    weft_optim_free(b.optim);
    OK(weft_module_to(b.m, WEFT_CUDA(0)));
    b.optim = weft_adamw_new(b.m, 0.05, .weight_decay = 0.1, .decay_min_rank = 2);
    weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 9; i++) {
        weft_scope sc = weft_scope_begin();
        weft_generator g = {(uint64_t)i, 0};
        weft_tensor in[2] = {weft_randn(weft_shape(ROWS, IN), .generator = &g),
                             weft_randn(weft_shape(ROWS, OUT), .generator = &g)};
        weft_tensor there[2] = {weft_to(in[0], WEFT_CUDA(0)), weft_to(in[1], WEFT_CUDA(0))}, x, y;
        OK(weft_optim_set_lr(a.optim, 0.01 * (i + 1)));
        OK(weft_optim_set_lr(b.optim, 0.01 * (i + 1)));
        OK(train(&a, in, 2, &x, 1));
        OK(weft_jit_call(j, there, 2, &y, 1));
        check_equal("loss", x, y);
        for (int k = 0; k < weft_module_count(a.m); k++) {
            weft_tensor p = weft_module_at(a.m, k).tensor, q = weft_module_at(b.m, k).tensor;
            check_equal("parameter", p, q);
            cr_assert_eq(weft_has_grad(p), weft_has_grad(q));
            if (weft_has_grad(p))
                check_equal("gradient", weft_grad(p), weft_grad(q));
        }
        weft_scope_end(sc);
    }
    cr_assert_eq(stats_of(j).frozen, 7, "%s", reasons(j));
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
}

Test(frozen_step, on_a_device)
{
    device_double_install();
    on_a_device(ZERO_FIRST | CLIP);
    on_a_device(ZERO_FIRST | TWICE);
}

/* The order in which a function first uses its leaves is the compiler's where they stand in arguments of one call:
 * weft_add(weft_embedding(a, x), weft_narrow(b, ...)). */
typedef struct two_leaves {
    weft_tensor a, b;
    bool swapped;
    int runs;
} two_leaves;

FN(use_two)
{
    two_leaves *k = self;
    weft_tensor p = WEFT_NONE, q = WEFT_NONE;
    k->runs++;
    for (int i = 0; i < 2; i++) {
        if ((i == 0) != k->swapped)
            p = weft_embedding(k->a, in[0]);
        else
            q = weft_narrow(k->b, 0, 0, 8);
    }
    weft_tensor loss = weft_mean(weft_square(weft_add(p, q)));
    weft_set_grad(k->a, WEFT_NONE);
    weft_set_grad(k->b, WEFT_NONE);
    OK(weft_backward(loss));
    out[0] = weft_detach(loss);
    return WEFT_OK;
}

Test(frozen_step, whatever_order_its_leaves_are_used_in)
{
    for (int swapped = 0; swapped < 2; swapped++) {
        two_leaves k = {.swapped = swapped};
        weft_tensor *of[] = {&k.a, &k.b};
        for (int i = 0; i < 2; i++) {
            weft_generator g = {(uint64_t)i, 0};
            *of[i] = weft_keep(weft_randn(weft_shape(8, 4), .generator = &g));
            OK(weft_requires_grad_(*of[i], true));
        }
        weft_tensor x = weft_arange(0, 8, 1, WEFT_I64);
        weft_jit *j = weft_jit_trace(use_two, &k, .frozen = true, .verify_every = -1);
        for (int i = 0; i < 5; i++) {
            weft_scope sc = weft_scope_begin();
            weft_tensor y;
            OK(weft_jit_call(j, &x, 1, &y, 1));
            weft_scope_end(sc);
        }
        cr_assert_eq(k.runs, 2, "%d recordings, swapped %d: %s", k.runs, swapped, reasons(j));
        weft_jit_free(j);
        weft_free(x);
        weft_free(k.a);
        weft_free(k.b);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* -- threads ----------------------------------------------------------------------------------------------------- */

typedef struct watch {
    const model *of;
    atomic_bool *stop;
    int seen;
} watch;

/* Takes handles on gradients while replays replace them; their elements are not its own to read. */
static void *watch_gradients(void *arg)
{
    watch *w = arg;
    while (!atomic_load(w->stop)) {
        weft_scope sc = weft_scope_begin();
        weft_tensor p = w->of->fc1.weight;
        weft_tensor g = weft_has_grad(p) ? weft_grad(p) : WEFT_NONE;
        w->seen += g.slot && weft_numel(g) == weft_numel(p);
        weft_scope_end(sc);
    }
    return NULL;
}

/* A model of its own, trained by replays. */
static void *train_alone(void *arg)
{
    model a, b;
    (void)arg;
    model_open(&a, ZERO_FIRST | CLIP, false);
    model_open(&b, ZERO_FIRST | CLIP, false);
    weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = 4);
    for (int i = 0; i < 12; i++) {
        both(j, &a, &b, i);
    }
    cr_assert_gt(stats_of(j).frozen, 4, "%s", reasons(j));
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
    return NULL;
}

Test(frozen_step, threads)
{
    model a, b;
    atomic_bool stop = false;
    pthread_t thread[3];
    model_open(&a, ZERO_FIRST, false);
    model_open(&b, ZERO_FIRST, false);
    watch w = {&b, &stop, 0};
    cr_assert_eq(pthread_create(&thread[0], NULL, watch_gradients, &w), 0);
    cr_assert_eq(pthread_create(&thread[1], NULL, train_alone, NULL), 0);
    cr_assert_eq(pthread_create(&thread[2], NULL, train_alone, NULL), 0);
    weft_jit *j = weft_jit_trace(train, &b, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 30; i++) {
        both(j, &a, &b, i);
    }
    /* the watcher's handle on a gradient shares its memory: then a call records */
    cr_assert_gt(stats_of(j).frozen, 0, "%s", reasons(j));
    pthread_join(thread[1], NULL);
    pthread_join(thread[2], NULL);
    atomic_store(&stop, true);
    pthread_join(thread[0], NULL);
    weft_jit_free(j);
    model_close(&a);
    model_close(&b);
    cr_assert_eq(weft_leak_report(NULL), 0);
}
