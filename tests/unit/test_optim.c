/*
 * tests/unit/test_optim.c -- optimisers, their groups and checkpoints, learning-rate schedules.
 *
 * Every kind is compared with its published rule in double precision over 100 steps; the one pass over memory with the ops
 * called one by one, at every instruction set.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eager/cpuid.h"
#include "tests/support/optims.h"
#include "weft/weft.h"

static weft_module *fresh(uint64_t seed)
{
    weft_manual_seed(seed);
    weft_module *m = weft_module_new(NULL);
    cr_assert(m != NULL);
    return m;
}

/* -- optimisers -------------------------------------------------------------------------------------------- */

enum { N = 5 };

/* The gradient of sum(w^4 / 4 + sin-like tilt): different at every step. */
static void set_gradient(weft_tensor p)
{
    weft_set_grad(p, WEFT_NONE);
    weft_tensor loss = weft_add(weft_sum(weft_mul(weft_square(weft_square(p)), weft_f(0.25))),
                                weft_sum(weft_mul(p, weft_f(0.3))));
    cr_assert_eq(weft_backward(loss), WEFT_OK, "%s", weft_last_error());
}

static double gradient_of(double w)
{
    return w * w * w + 0.3;
}

/* Step t of one element, as the papers write it: w the parameter, a, b and c its state, g the gradient. */
static double reference(const optim_kind *k, double w, double *a, double *b, double *c, int t)
{
    const bool decoupled = k->rule == 'w' || k->rule == 'l';
    const double g = gradient_of(w) + (decoupled ? 0 : k->decay * w);
    const double shrunk = decoupled ? w - k->lr * k->decay * w : w;
    double mix;
    switch (k->rule) {
    case 's':
        if (k->momentum == 0) {
            return w - k->lr * g;
        }
        *a = t == 1 ? g : k->momentum * *a + (1 - k->dampening) * g;
        return w - k->lr * (k->nesterov ? g + k->momentum * *a : *a);
    case 'w':
    case 'a':
        *a = k->beta1 * *a + (1 - k->beta1) * g;
        *b = k->beta2 * *b + (1 - k->beta2) * g * g;
        *c = fmax(*c, *b);
        mix = (k->amsgrad ? *c : *b) / (1 - pow(k->beta2, t));
        return shrunk - k->lr * (*a / (1 - pow(k->beta1, t))) / (sqrt(mix) + 1e-8);
    case 'r':
        *a = k->beta2 * *a + (1 - k->beta2) * g * g;
        *b = k->beta2 * *b + (1 - k->beta2) * g;
        mix = k->centered ? *a - *b * *b : *a;
        *c = k->momentum * *c + g / (sqrt(mix) + 1e-8);
        return w - k->lr * *c;
    case 'g':
        *a = (t == 1 ? k->initial : *a) + g * g;
        return w - k->lr / (1 + (t - 1) * k->lr_decay) * g / (sqrt(*a) + 1e-10);
    default:
        mix = k->beta1 * *a + (1 - k->beta1) * g;
        *a = k->beta2 * *a + (1 - k->beta2) * g;
        return shrunk - k->lr * (mix > 0 ? 1 : mix < 0 ? -1 : 0);
    }
}

static void follow(const optim_kind *k, weft_dtype dtype, double limit)
{
    weft_module *m = fresh(1);
    double w[N] = {1, -1, 0.5, -2, 0.01}, a[N] = {0}, b[N] = {0}, c[N] = {0}, got[N];
    weft_tensor p = weft_cast(weft_from_data(w, weft_shape(N), WEFT_F64), dtype);
    p = weft_module_parameter(m, "p", weft_clone(p));
    weft_optim *o = optim_of(m, k);
    for (int t = 1; t <= 100; t++) {
        weft_scope s = weft_scope_begin();
        set_gradient(p);
        cr_assert_eq(weft_optim_step(o), WEFT_OK, "%s", weft_last_error());
        for (int i = 0; i < N; i++) {
            w[i] = reference(k, w[i], &a[i], &b[i], &c[i], t);
        }
        weft_scope_end(s);
    }
    weft_to_array(p, got, N, WEFT_F64);
    for (int i = 0; i < N; i++) {
        cr_assert_lt(fabs(got[i] - w[i]), limit, "%s: element %d is %.17g, want %.17g", k->name, i,
                     got[i], w[i]);
    }
    weft_optim_free(o);
    weft_module_free(m);
}

/* f64 differs from the formula only by the order of roundings, 100 steps of a few ULP; f32 by 2^29 times
 * that. */
Test(optim, optimisers_follow_their_formulas_for_100_steps)
{
    for (int k = 0; k < OPTIM_KINDS; k++) {
        follow(&optim_kinds[k], WEFT_F64, 1e-13);
        follow(&optim_kinds[k], WEFT_F32, 1e-13 * 0x1p29);
    }
}

/* A dense parameter is updated in one pass, a transposed one op by op. */
enum { ROWS = 401, COLS = 211 };
static void run_layout(int kind, bool dense, weft_dtype dtype, double *out)
{
    weft_module *m = fresh(5);
    weft_tensor x = weft_cast(weft_randn(weft_shape(ROWS, COLS)), dtype);
    weft_tensor p =
        dense ? weft_clone(weft_transpose(x, 0, 1)) : weft_transpose(weft_clone(x), 0, 1);
    weft_module_parameter(m, "p", p);
    cr_assert_eq(weft_is_contiguous(p), dense);
    weft_optim *o = optim_of(m, &optim_kinds[kind]);
    for (int t = 0; t < 3; t++) {
        weft_scope s = weft_scope_begin();
        set_gradient(p);
        cr_assert_eq(weft_optim_step(o), WEFT_OK, "%s", weft_last_error());
        weft_scope_end(s);
    }
    cr_assert_eq(weft_to_array(p, out, ROWS * COLS, WEFT_F64), WEFT_OK);
    weft_optim_free(o);
    weft_module_free(m);
}

Test(optim, one_pass_updates_have_the_bits_of_single_ops)
{
    enum { SIZE = ROWS * COLS };
    double *a = malloc(SIZE * sizeof *a), *b = malloc(SIZE * sizeof *b);
    const int widest = wf_isa();
    for (int kind = 0; kind < OPTIM_KINDS; kind++) {
        for (int f64 = 0; f64 < 2; f64++) {
            run_layout(kind, false, f64 ? WEFT_F64 : WEFT_F32, b);
            for (int isa = WF_ISA_SSE2; isa <= widest; isa++) {
                wf_set_isa(isa);
                weft_set_num_threads(1 + isa);
                run_layout(kind, true, f64 ? WEFT_F64 : WEFT_F32, a);
                cr_assert_eq(memcmp(a, b, SIZE * sizeof *a), 0, "%s, f64 %d, isa %d",
                             optim_kinds[kind].name, f64, isa);
            }
            wf_set_isa(widest);
        }
    }
    free(a);
    free(b);
}

/* Imports of the same bytes are tensors of their own: what the first line writes to the parameter, the next ones read as the
 * gradient, as if each were called by itself. */
Test(optim, updates_of_overlapping_imports_run_op_by_op)
{
    enum { COUNT = 1000 };
    static float bytes[COUNT], want[COUNT];
    const float keep = (float)(1 - 0.1 * 0.5), mix = (float)(1 - 0.9), rest = (float)(1 - 0.99);
    const float root = (float)sqrt(1 - 0.99), step = (float)(-(0.1 / (1 - 0.9)));
    for (int i = 0; i < COUNT; i++) {
        bytes[i] = (float)(i - 500) / 64;
        const float g = bytes[i] * keep, squares = g * rest * g;
        want[i] = g + mix * g / (sqrtf(squares) / root + 1e-8f) * step;
    }
    weft_module *m = fresh(1);
    weft_tensor p = weft_from_blob(bytes, weft_shape(COUNT));
    p = weft_module_parameter(m, "p", p);
    cr_assert(weft_ok(p), "%s", weft_last_error());
    weft_optim *o = weft_adamw_new(m, 0.1, .beta2 = 0.99, .weight_decay = 0.5);
    cr_assert_eq(weft_set_grad(p, weft_from_blob(bytes, weft_shape(COUNT))), WEFT_OK);
    cr_assert_eq(weft_optim_step(o), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(bytes[i], want[i], "element %d is %.9g, want %.9g", i, (double)bytes[i],
                     (double)want[i]);
    }
    weft_optim_free(o);
    weft_module_free(m);
}

Test(optim, optimisers_check_their_arguments)
{
    weft_module *m = fresh(1);
    weft_module_parameter(m, "p", weft_ones(weft_shape(3), WEFT_F32));
    cr_assert_null(weft_sgd_new(m));
    cr_assert_null(weft_sgd_new(m, -1.0));
    cr_assert_null(weft_sgd_new(m, 0.1, .nesterov = true));
    cr_assert_null(weft_sgd_new(NULL, 0.1));
    cr_assert_null(weft_adamw_new(m, .beta1 = 1));
    cr_assert_null(weft_adamw_new(m, .eps = -1));
    cr_assert_null(weft_sgd_new(m, 0.1, .momentum = 0.9, .nesterov = true, .dampening = 0.1));
    cr_assert_null(weft_adam_new(m, .beta2 = 1));
    cr_assert_null(weft_rmsprop_new(m, .alpha = 1));
    cr_assert_null(weft_rmsprop_new(m, .momentum = -0.1));
    cr_assert_null(weft_adagrad_new(m, .lr_decay = -1));
    cr_assert_null(weft_adagrad_new(m, .initial = -1));
    cr_assert_null(weft_lion_new(m, .lr = -1));
    cr_assert_null(weft_adam_new(m, .eps = INFINITY));
    cr_assert_null(weft_rmsprop_new(m, .eps = NAN));
    cr_assert_null(weft_adagrad_new(m, .lr_decay = INFINITY));
    cr_assert_null(weft_adagrad_new(m, .initial = NAN));
    cr_assert_null(weft_lion_new(m, .weight_decay = -1));
    cr_assert_null((weft_adamw_new)(NULL));
    cr_assert_null((weft_adam_new)(NULL));
    cr_assert_null((weft_rmsprop_new)(NULL));
    cr_assert_null((weft_adagrad_new)(NULL));
    cr_assert_null((weft_lion_new)(NULL));
    cr_assert_eq(weft_optim_step(NULL), WEFT_EINVALID);
    weft_optim_free(NULL);
    weft_optim *o = weft_adamw_new(m, .weight_decay = 0.5, .decay_min_rank = 2);
    cr_assert_eq(weft_optim_set_lr(o, -1), WEFT_EINVALID);
    cr_assert_eq(weft_optim_step(o), WEFT_OK, "a parameter without gradient is left alone");
    cr_assert_eq(weft_item_f64(weft_sum(weft_module_get(m, "p"))), 3);
    cr_assert_eq(weft_optim_state_count(o), 3);
    cr_assert_str_eq(weft_optim_state(o)[0].name, "optim.exp_avg.p");
    cr_assert_str_eq(weft_optim_state(o)[1].name, "optim.exp_avg_sq.p");
    cr_assert_str_eq(weft_optim_state(o)[2].name, "optim.step");
    weft_optim_free(o);
    weft_module_free(m);
}

/* The states that a checkpoint holds have PyTorch's names. */
Test(optim, states_are_named_as_pytorch_does)
{
    static const struct {
        const char *kind, *states;
    } want[] = {{"sgd", ""},
                {"dampening", "momentum_buffer "},
                {"amsgrad", "exp_avg exp_avg_sq max_exp_avg_sq "},
                {"rmsprop momentum", "square_avg momentum_buffer "},
                {"centered", "square_avg grad_avg "},
                {"centered momentum decay", "square_avg grad_avg momentum_buffer "},
                {"adagrad", "sum "},
                {"lion", "exp_avg "}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const optim_kind *k = optim_kinds;
        while (strcmp(k->name, want[i].kind) != 0) {
            k++;
        }
        weft_module *m = fresh(1);
        weft_module_parameter(m, "p", weft_ones(weft_shape(3), WEFT_F32));
        weft_optim *o = optim_of(m, k);
        char got[200] = "";
        for (int s = 0; s + 1 < weft_optim_state_count(o); s++) {
            const char *name = weft_optim_state(o)[s].name + strlen("optim.");
            const size_t end = strlen(got);
            snprintf(got + end, sizeof got - end, "%.*s ", (int)strcspn(name, "."), name);
        }
        cr_assert_str_eq(got, want[i].states, "%s", k->name);
        weft_optim_free(o);
        weft_module_free(m);
    }
}

/* Steps from..to of a parameter; with a path, from the checkpoint there. */
static void run_from(const optim_kind *k, int from, int to, const char *load, const char *save,
                     double *out)
{
    weft_module *m = fresh(4);
    weft_tensor p = weft_module_parameter(m, "p", weft_randn(weft_shape(N)));
    weft_optim *o = optim_of(m, k);
    if (load) {
        cr_assert_eq(weft_checkpoint_load(load, m, o), WEFT_OK, "%s", weft_last_error());
    }
    for (int t = from; t < to; t++) {
        weft_scope s = weft_scope_begin();
        set_gradient(p);
        cr_assert_eq(weft_optim_step(o), WEFT_OK, "%s", weft_last_error());
        weft_scope_end(s);
    }
    if (save) {
        cr_assert_eq(weft_checkpoint_save(save, m, o), WEFT_OK, "%s", weft_last_error());
    }
    cr_assert_eq(weft_to_array(p, out, N, WEFT_F64), WEFT_OK);
    weft_optim_free(o);
    weft_module_free(m);
}

Test(optim, every_optimiser_resumes_from_a_checkpoint_bit_for_bit)
{
    char path[100];
    snprintf(path, sizeof path, "/tmp/weft-test-optim-%ld", (long)getpid());
    for (int k = 0; k < OPTIM_KINDS; k++) {
        double whole[N], part[N], short_of[N];
        run_from(&optim_kinds[k], 0, 9, NULL, NULL, whole);
        run_from(&optim_kinds[k], 0, 4, NULL, path, part);
        run_from(&optim_kinds[k], 4, 9, path, NULL, part);
        run_from(&optim_kinds[k], 0, 8, NULL, NULL, short_of);
        cr_assert_eq(memcmp(whole, part, sizeof whole), 0, "%s", optim_kinds[k].name);
        cr_assert_neq(memcmp(whole, short_of, sizeof whole), 0, "%s", optim_kinds[k].name);
    }
    unlink(path);
}

/* What a damaged file leaves there would be a rate of 0 / 0. */
Test(optim, a_counter_that_counts_no_steps_is_an_error)
{
    static const int64_t counts[] = {-1, -5, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        weft_module *m = fresh(1);
        weft_tensor p = weft_module_parameter(m, "p", weft_ones(weft_shape(3), WEFT_F32));
        weft_optim *o = weft_adam_new(m, 0.1);
        weft_tensor count = weft_optim_state(o)[weft_optim_state_count(o) - 1].tensor;
        cr_assert_eq(weft_copy_(count, weft_i(counts[i])), WEFT_OK);
        weft_set_grad(p, weft_ones_like(p));
        weft_clear_error();
        cr_assert_eq(weft_optim_step(o), WEFT_EINVALID, "%lld", (long long)counts[i]);
        cr_assert(strstr(weft_last_error(), "optim.step"), "%s", weft_last_error());
        cr_assert_eq(weft_item_f64(weft_sum(p)), 3);
        cr_assert_eq(weft_item_i64(count), counts[i]);
        weft_optim_free(o);
        weft_module_free(m);
    }
}

/* -- groups --------------------------------------------------------------------------------------------------- */

/* Two optimisers of a module each do what one with a group does. */
Test(optim, groups_have_a_rate_and_a_decay_of_their_own)
{
    for (int k = 0; k < OPTIM_KINDS; k++) {
        optim_kind other = optim_kinds[k];
        other.lr *= 0.25;
        other.decay = 0.5;
        weft_module *both = fresh(1), *one = fresh(1), *two = fresh(1);
        weft_tensor x = weft_randn(weft_shape(2, N));
        weft_tensor p[4] = {weft_module_parameter(both, "fc.weight", weft_clone(x)),
                            weft_module_parameter(both, "fc.bias", weft_clone(x)),
                            weft_module_parameter(one, "fc.weight", weft_clone(x)),
                            weft_module_parameter(two, "fc.bias", weft_clone(x))};
        weft_optim *o[3] = {optim_of(both, &optim_kinds[k]), optim_of(one, &optim_kinds[k]),
                            optim_of(two, &other)};
        cr_assert_eq(weft_optim_group(o[0], "*.b*s", .lr_scale = 0.25, .weight_decay = 0.5),
                     WEFT_OK, "%s", weft_last_error());
        for (int t = 0; t < 5; t++) {
            weft_scope s = weft_scope_begin();
            for (int i = 0; i < 4; i++) {
                set_gradient(p[i]);
            }
            for (int i = 0; i < 3; i++) {
                cr_assert_eq(weft_optim_step(o[i]), WEFT_OK, "%s", weft_last_error());
            }
            for (int i = 0; i < 2; i++) {
                cr_assert(weft_item_i64(weft_cast(weft_all(weft_equal(p[i], p[2 + i])), WEFT_I64)),
                          "%s, parameter %d, step %d", optim_kinds[k].name, i, t);
            }
            weft_scope_end(s);
        }
        weft_optim_free(o[0]);
        weft_optim_free(o[1]);
        weft_optim_free(o[2]);
        weft_module_free(both);
        weft_module_free(one);
        weft_module_free(two);
    }
}

Test(optim, groups_check_their_arguments)
{
    weft_module *m = fresh(1);
    weft_tensor w = weft_module_parameter(m, "h.0.weight", weft_ones(weft_shape(2, 2), WEFT_F32));
    weft_tensor b = weft_module_parameter(m, "h.0.bias", weft_ones(weft_shape(2), WEFT_F32));
    weft_module_buffer(m, "h.0.buffer", weft_ones(weft_shape(2), WEFT_F32));
    weft_optim *o = weft_adamw_new(m, 0.1, .weight_decay = 0.5);
    cr_assert_eq((weft_optim_group)(NULL), WEFT_EINVALID);
    cr_assert_eq(weft_optim_group(o, NULL), WEFT_EINVALID);
    cr_assert_eq(weft_optim_group(NULL, "*"), WEFT_EINVALID);
    cr_assert_eq(weft_optim_group(o, "*", .lr_scale = -1), WEFT_EINVALID);
    cr_assert_eq(weft_optim_group(o, "*", .weight_decay = -1), WEFT_EINVALID);
    cr_assert_eq(weft_optim_group(o, "*", .weight_decay = -2), WEFT_EINVALID);
    static const char *const wrong[] = {"bias", "h.0.bia", "h.0.bias.", "*.buffer", "*.0.*x", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(weft_optim_group(o, wrong[i]), WEFT_EINVALID, "%s", wrong[i]);
        cr_assert(strstr(weft_last_error(), "no parameter's name looks like"), "%s", wrong[i]);
    }
    cr_assert_eq(weft_optim_group(o, "h*0.bias", .weight_decay = WEFT_ZERO), WEFT_OK);
    cr_assert_eq(weft_optim_group(o, "h.0.weight*", .lr_scale = WEFT_ZERO), WEFT_OK);
    weft_set_grad(w, weft_ones_like(w));
    weft_set_grad(b, weft_zeros_like(b));
    cr_assert_eq(weft_optim_step(o), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_item_f64(weft_sum(w)), 4, "a rate of 0 leaves it, decay and all");
    cr_assert_eq(weft_item_f64(weft_sum(b)), 2, "no decay of a bias without gradient");
    cr_assert_eq(weft_optim_group(o, "*"), WEFT_EINVALID, "after the first step");
    weft_optim_free(o);
    weft_module_free(m);
}

/* -- schedules ------------------------------------------------------------------------------------------------ */

Test(optim, the_schedule_warms_up_and_follows_a_cosine)
{
    cr_assert_eq(weft_lr_cosine(0, 10, 110, 1, 0.1), 0.1);
    cr_assert_eq(weft_lr_cosine(9, 10, 110, 1, 0.1), 1);
    cr_assert_eq(weft_lr_cosine(10, 10, 110, 1, 0.1), 1);
    cr_assert_float_eq(weft_lr_cosine(60, 10, 110, 1, 0.1), 0.55, 1e-12);
    cr_assert_eq(weft_lr_cosine(110, 10, 110, 1, 0.1), 0.1);
    cr_assert_eq(weft_lr_cosine(500, 10, 110, 1, 0.1), 0.1);
    cr_assert_eq(weft_lr_cosine(0, 0, 10, 1, 0), 1, "no warm-up");
    cr_assert_eq(weft_lr_cosine(-1, 0, 0, 1, 0.5), 0.5);
    cr_assert_eq(weft_lr_cosine(-1, 0, 10, 1, 0), 1);
    cr_assert_eq(weft_lr_linear(-5, 4, 14, 1, 0.5), 0.25);
    cr_assert_eq(weft_lr_step(-3, 2, 1, 0.5), 1);
}

Test(optim, other_schedules)
{
    cr_assert_eq(weft_lr_linear(0, 4, 14, 1, 0.5), 0.25);
    cr_assert_eq(weft_lr_linear(3, 4, 14, 1, 0.5), 1);
    cr_assert_eq(weft_lr_linear(4, 4, 14, 1, 0.5), 1);
    cr_assert_eq(weft_lr_linear(9, 4, 14, 1, 0.5), 0.75);
    cr_assert_eq(weft_lr_linear(14, 4, 14, 1, 0.5), 0.5);
    cr_assert_eq(weft_lr_linear(99, 4, 14, 1, 0.5), 0.5);
    cr_assert_eq(weft_lr_linear(5, 0, 10, 1, 0), 0.5, "no warm-up");
    cr_assert_eq(weft_lr_inverse_sqrt(0, 4, 1), 0.25);
    cr_assert_eq(weft_lr_inverse_sqrt(3, 4, 1), 1);
    cr_assert_eq(weft_lr_inverse_sqrt(15, 4, 1), 0.5);
    cr_assert_eq(weft_lr_inverse_sqrt(0, 0, 1), 1, "no warm-up");
    cr_assert_eq(weft_lr_step(9, 10, 1, 0.5), 1);
    cr_assert_eq(weft_lr_step(10, 10, 1, 0.5), 0.5);
    cr_assert_eq(weft_lr_step(39, 10, 1, 0.5), 0.125);
    cr_assert_eq(weft_lr_step(39, 0, 1, 0.5), 1);
    cr_assert_eq(weft_lr_exponential(0, 2, 0.5), 2);
    cr_assert_eq(weft_lr_exponential(3, 2, 0.5), 0.25);
    cr_assert_float_eq(weft_lr_exponential(1000, 1, 0.999), pow(0.999, 1000), 1e-13);
}
