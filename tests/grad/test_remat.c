/*
 * tests/grad/test_remat.c -- weft_remat: the bits of a net that keeps everything, memory for the square root of its layers,
 * derivatives of every kind, generators, errors, traces.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

#define OK(call) cr_assert_eq(call, WEFT_OK, "%s", weft_last_error())

static bool same_bits(weft_tensor a, weft_tensor b)
{
    const size_t n = (size_t)weft_numel(a) * 8;
    double *x = calloc(1, n + 8), *y = calloc(1, n + 8);
    OK(weft_to_array(a, x, weft_numel(a), WEFT_F64));
    OK(weft_to_array(b, y, weft_numel(b), WEFT_F64));
    const bool same = weft_numel(a) == weft_numel(b) && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

/* -- a net in pieces -------------------------------------------------------------------------------------------------- */

enum { MOST = 64 };

/* `layers` linear layers with dropout, of which those of a piece are called together. */
typedef struct net {
    weft_module *m;
    weft_generator rng;
    weft_nn_linear layer[MOST], head;
    weft_nn_dropout drop;
    weft_tensor shift; /* a recorded result that pieces read beside their input */
    int layers, piece, first;
    bool remat, inner;
} net;

static void net_open(net *k, int layers, int dim, int piece, bool remat)
{
    *k = (net){.rng = {3, 0}, .layers = layers, .piece = piece, .remat = remat};
    k->m = weft_module_new(&k->rng);
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        OK(weft_nn_linear_init(&k->layer[i], k->m, name, dim, dim));
    }
    OK(weft_nn_linear_init(&k->head, k->m, "head", dim, 1));
    OK(weft_nn_dropout_init(&k->drop, k->m, 0.2));
    k->shift = WEFT_NONE;
}

typedef struct piece {
    net *k;
    int first;
} piece;

static weft_status one_layer(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    const piece *p = user;
    const net *k = p->k;
    (void)n_in, (void)n_out;
    weft_tensor h = weft_tanh(weft_nn_linear_forward(&k->layer[p->first], in[0]));
    h = weft_nn_dropout_forward(&k->drop, h);
    h = weft_add(h, weft_mul(weft_randn(weft_shape_of(h)), weft_f(0.01))); /* the thread's */
    if (weft_ok(k->shift)) {
        h = weft_mul(h, k->shift);
    }
    out[0] = weft_add(h, weft_mul(in[0], weft_select(weft_transpose(k->head.weight, 0, 1), 0, 0)));
    return weft_error_status(out[0]);
}

static weft_status layers_of(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    const piece *p = user;
    (void)n_in, (void)n_out;
    out[0] = in[0];
    for (int i = 0; i < p->k->piece; i++) {
        piece *one = &(piece){p->k, p->first + i};
        weft_status s = WEFT_OK;
        if (p->k->inner) { /* a piece of the piece; what it knows has to live on */
            static piece all[MOST];
            all[p->first + i] = *one;
            s = weft_remat(one_layer, &all[p->first + i], out, 1, out, 1);
        } else {
            s = one_layer(one, out, 1, out, 1);
        }
        if (s != WEFT_OK) {
            return s;
        }
    }
    return WEFT_OK;
}

/* pieces: to live until the backward. */
static weft_tensor forward(net *k, weft_tensor x, piece *pieces)
{
    for (int i = 0; i < k->layers / k->piece; i++) {
        pieces[i] = (piece){k, i * k->piece};
        OK(k->remat ? weft_remat(layers_of, &pieces[i], &x, 1, &x, 1)
                    : layers_of(&pieces[i], &x, 1, &x, 1));
    }
    return weft_mean(weft_square(weft_nn_linear_forward(&k->head, x)));
}

static weft_tensor hooked; /* what the hook of layer 1's weight has seen */
static weft_tensor see(void *user, weft_tensor g)
{
    ++*(int *)user;
    weft_free(hooked);
    hooked = weft_keep(weft_clone(g));
    return WEFT_NONE;
}

/* One step of two nets, of which b makes results again: everything has the same bits. */
static void compare(net *a, net *b, bool shifted)
{
    net *both[] = {a, b};
    weft_tensor loss[2], gx[2], seen[2];
    weft_generator end[2][2];
    for (int i = 0; i < 2; i++) {
        net *k = both[i];
        piece pieces[MOST];
        int hooks = 0;
        weft_manual_seed(8);
        weft_generator g = {4, 0};
        weft_tensor x = weft_randn(weft_shape(7, 12), .generator = &g);
        OK(weft_requires_grad_(x, true));
        const uint64_t hook = weft_register_hook(k->layer[1].weight, see, &hooks, NULL);
        k->shift = shifted ? weft_mean(x, .axes = weft_axes(0)) : WEFT_NONE;
        loss[i] = forward(k, x, pieces);
        OK(weft_backward(loss[i]));
        gx[i] = weft_grad(x);
        end[i][0] = *weft_default_generator();
        end[i][1] = k->rng;
        cr_assert_eq(hooks, 1);
        seen[i] = hooked;
        hooked = WEFT_NONE;
        OK(weft_remove_hook(k->layer[1].weight, hook));
        k->shift = WEFT_NONE;
    }
    cr_assert(same_bits(loss[0], loss[1]), "loss");
    cr_assert(same_bits(gx[0], gx[1]), "input");
    cr_assert(same_bits(seen[0], seen[1]), "what a hook sees");
    cr_assert_eq(memcmp(end[0], end[1], sizeof end[0]), 0, "generators");
    for (int i = 0; i < weft_module_count(a->m); i++) {
        weft_named_tensor p = weft_module_at(a->m, i), q = weft_module_at(b->m, i);
        cr_assert(same_bits(weft_grad(p.tensor), weft_grad(q.tensor)), "%s", p.name);
    }
    weft_free(seen[0]);
    weft_free(seen[1]);
}

Test(remat, gradients_have_the_same_bits)
{
    for (int kind = 0; kind < 8; kind++) {
        net a, b;
        weft_scope s = weft_scope_begin();
        weft_set_num_threads((int[]){1, 2, 3, 7}[kind % 4]);
        net_open(&a, 12, 12, kind % 2 ? 3 : 4, false);
        net_open(&b, 12, 12, kind % 2 ? 3 : 4, true);
        b.inner = kind & 2;
        compare(&a, &b, kind & 4);
        compare(&a, &b, kind & 4); /* added to the gradients that are there */
        weft_scope_end(s);
        weft_module_free(a.m);
        weft_module_free(b.m);
        cr_assert_eq(weft_tape_nodes(), 0);
        cr_assert_eq(weft_leak_report(NULL), 0);
    }
}

/* A graph that is retained is walked twice: dropout and all give the same gradients again, in pieces of pieces, too. */
Test(remat, draws_of_a_retained_graph_are_made_again_each_time)
{
    for (int inner = 0; inner < 2; inner++) {
        net k;
        piece pieces[MOST];
        net_open(&k, 4, 12, 2, true);
        k.inner = inner;
        weft_tensor w = k.layer[1].weight, g[3];
        weft_tensor loss = forward(&k, weft_randn(weft_shape(7, 12)), pieces);
        for (int i = 0; i < 3; i++) {
            const weft_generator before[2] = {*weft_default_generator(), k.rng};
            OK(weft_grad_of(&loss, 1, &w, 1, &g[i], .retain_graph = true));
            const weft_generator after[2] = {*weft_default_generator(), k.rng};
            cr_assert_eq(memcmp(before, after, sizeof before), 0);
            cr_assert(same_bits(g[0], g[i]), "inner %d, time %d", inner, i);
        }
        weft_module_free(k.m);
    }
}

static weft_status noise(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)user, (void)n_in, (void)n_out;
    out[0] = weft_add(in[0], weft_randn(weft_shape_of(in[0])));
    return weft_error_status(out[0]);
}

static weft_status noisy(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    weft_tensor zeros = weft_zeros(weft_shape_of(in[0]), WEFT_F32), drawn;
    (void)n_in, (void)n_out;
    weft_status s = weft_jit_call(user, &zeros, 1, &drawn, 1);
    out[0] = s ? WEFT_NONE : weft_mul(in[0], drawn);
    return s;
}

/* What replays of a frozen call draw is drawn again, too. */
Test(remat, replayed_draws_are_made_again)
{
    weft_jit *j = weft_jit_trace(noise, NULL, .frozen = true, .always_record = true);
    weft_tensor x = weft_ones(weft_shape(50), WEFT_F32), y;
    OK(weft_requires_grad_(x, true));
    for (int i = 0; i < 5; i++) {
        weft_set_grad(x, WEFT_NONE);
        OK(weft_remat(noisy, j, &x, 1, &y, 1));
        OK(weft_backward(weft_sum(y)));
        cr_assert(same_bits(weft_grad(x), y), "call %d", i); /* both are what was drawn */
    }
    weft_jit_stats s;
    weft_jit_get_stats(j, &s);
    cr_assert_gt(s.frozen, 4);
    weft_jit_free(j);
}

static weft_status draws_from_its_own(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                                      int n_out)
{
    weft_generator own[10]; /* more than can be watched */
    (void)user, (void)n_in, (void)n_out;
    out[0] = in[0];
    for (int i = 0; i < 10; i++) {
        own[i] = (weft_generator){(uint64_t)i, 7};
        out[0] = weft_mul(out[0], weft_rand(weft_shape_of(in[0]), .generator = &own[i]));
    }
    return weft_error_status(out[0]);
}

/* Generators that end with the function are not those of the backward: nothing is written where they were. */
Test(remat, generators_of_the_function_itself_are_its_own_affair)
{
    weft_tensor x = weft_ones(weft_shape(50), WEFT_F32), y, g[2];
    OK(weft_requires_grad_(x, true));
    for (int remat = 0; remat < 2; remat++) {
        OK(remat ? weft_remat(draws_from_its_own, NULL, &x, 1, &y, 1)
                 : draws_from_its_own(NULL, &x, 1, &y, 1));
        weft_tensor loss = weft_sum(y);
        OK(weft_grad_of(&loss, 1, &x, 1, &g[remat]));
    }
    cr_assert(same_bits(g[0], g[1]));
}

/* A parameter that the function returns, or a recorded result from before it, is used outside, too: by itself and by way of
 * the function, before and after. Three gradients and more have another sum in another order. */
typedef struct hands {
    weft_tensor w, h; /* kept, and of the caller's scope */
} hands;

static weft_status hand_out(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    const hands *p = user;
    (void)n_in, (void)n_out;
    out[0] = weft_mul(in[0], weft_tanh(p->w));
    out[1] = p->w;
    out[2] = p->h;
    return weft_error_status(out[0]);
}

Test(remat, what_the_function_captures_and_returns)
{
    for (int seed = 0; seed < 24; seed++) {
        weft_tensor g[2][2];
        const weft_scope s = weft_scope_begin();
        for (int remat = 0; remat < 2; remat++) {
            weft_manual_seed((uint64_t)seed);
            const weft_shape n = weft_shape(64);
            weft_tensor u = weft_randn(n), w = weft_keep(weft_randn(n)), y[3];
            OK(weft_requires_grad_(w, true));
            OK(weft_requires_grad_(u, true));
            const hands p = {w, weft_sin(u)};
            weft_tensor sum = weft_mul(weft_add(w, p.h), weft_randn(n));
            for (int i = 0; i < 2; i++) {
                const weft_tensor x = weft_add(w, u);
                OK(remat ? weft_remat(hand_out, (void *)(uintptr_t)&p, &x, 1, y, 3)
                         : hand_out((void *)(uintptr_t)&p, &x, 1, y, 3));
                for (int k = 0; k < 3; k++) {
                    sum = weft_add(sum, weft_mul(y[k], weft_randn(n)));
                    sum = weft_add(sum, weft_mul(y[2 - k], weft_randn(n)));
                }
                sum = weft_add(sum, weft_mul(w, weft_randn(n)));
            }
            OK(weft_backward(weft_sum(sum)));
            g[remat][0] = weft_clone(weft_grad(w));
            g[remat][1] = weft_clone(weft_grad(u));
            OK(weft_free(w));
        }
        cr_assert(same_bits(g[0][0], g[1][0]), "seed %d: the parameter", seed);
        cr_assert(same_bits(g[0][1], g[1][1]), "seed %d: behind the result", seed);
        weft_scope_end(s);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* weft_grad_of asks for x alone: hooks of the weights are none of its business, whether their layers are made again or not. */
Test(remat, grad_of_runs_no_hooks_of_what_it_was_not_asked_for)
{
    for (int remat = 0; remat < 2; remat++) {
        net k;
        piece pieces[MOST];
        net_open(&k, 4, 12, 2, remat);
        weft_tensor x = weft_randn(weft_shape(7, 12)), g;
        OK(weft_requires_grad_(x, true));
        int seen = 0;
        cr_assert(weft_register_hook(k.layer[1].weight, see, &seen, NULL));
        weft_tensor loss = forward(&k, x, pieces);
        OK(weft_grad_of(&loss, 1, &x, 1, &g));
        cr_assert_eq(seen, 0, "remat %d", remat);
        weft_module_free(k.m);
    }
}

/* Bytes at the highest above those at the start. */
static int64_t peak_of(int layers, int pieces, bool remat)
{
    net k;
    piece room[MOST];
    net_open(&k, layers, 16, layers / pieces, remat);
    weft_module_train(k.m, false);
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_randn(weft_shape(2048, 16));
    weft_memory_stats before, after;
    weft_memory_get_stats(&before);
    weft_memory_reset_peak();
    OK(weft_backward(forward(&k, x, room)));
    weft_memory_get_stats(&after);
    weft_scope_end(s);
    weft_module_free(k.m);
    return after.peak_bytes - before.live_bytes;
}

Test(remat, memory_grows_with_the_square_root_of_the_layers)
{
    const int64_t few = peak_of(16, 4, true), many = peak_of(64, 8, true);
    const int64_t all = peak_of(64, 8, false), some = peak_of(16, 4, false);
    cr_assert_gt(all * 10, some * 36, "without, with the layers: %lld, %lld", (long long)some,
                 (long long)all);
    cr_assert_lt(many * 10, few * 24, "twice, not four times: %lld, %lld", (long long)few,
                 (long long)many);
    cr_assert_lt(many * 3, all, "%lld of %lld bytes", (long long)many, (long long)all);
}

/* -- writes in place ---------------------------------------------------------------------------------------------------- */

/* Ten sines, of which the last is written to where it lies: the memory of the result knows how it was made. */
static weft_status written(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    weft_tensor h = in[0];
    for (int i = 0; i < 10; i++) {
        h = weft_sin(h);
    }
    if (*(bool *)user) {
        OK(weft_mul_(weft_slice(h, 0, 0, 2, 1), weft_f(2)));
        OK(weft_relu_(h));
    }
    out[0] = h;
    return weft_error_status(h);
}

Test(remat, a_result_that_was_written_in_place_keeps_nothing_of_its_making)
{
    int64_t nodes[2], bytes[2];
    weft_tensor start = weft_keep(weft_rand(weft_shape(1000), .dtype = WEFT_F64)), g[2];
    for (int writes = 0; writes < 2; writes++) {
        for (int plain = 0; plain < 2; plain++) {
            bool user = writes;
            weft_scope scope = weft_scope_begin();
            weft_tensor x = weft_clone(start), h;
            OK(weft_requires_grad_(x, true));
            OK(plain ? written(&user, &x, 1, &h, 1) : weft_remat(written, &user, &x, 1, &h, 1));
            weft_memory_stats now;
            weft_memory_get_stats(&now);
            if (!plain) {
                nodes[writes] = weft_tape_nodes();
                bytes[writes] = now.live_bytes;
            }
            OK(weft_add_(h, weft_f(1)));
            OK(weft_backward(weft_sum(weft_square(h))));
            g[plain] = weft_keep(weft_clone(weft_grad(x)));
            weft_scope_end(scope);
        }
        cr_assert(same_bits(g[0], g[1]), "%d", writes);
        OK(weft_free(g[0]));
        OK(weft_free(g[1]));
    }
    cr_assert_eq(nodes[0], nodes[1]);
    cr_assert_eq(bytes[0], bytes[1]);
    OK(weft_free(start));
}

/* Its input in another shape, or a value of its own. */
static weft_status shown(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    out[0] = *(bool *)user ? weft_reshape(in[0], weft_shape(2, 1)) : weft_sin(in[0]);
    return weft_error_status(out[0]);
}

/* What is written to a result is the history of its memory, its input's if it shows that (which it cannot read again then), and of no
 * detached view. */
Test(remat, a_result_that_is_written_in_place_has_the_history_of_its_memory)
{
    for (int of_input = 0; of_input < 2; of_input++) {
        bool user = of_input;
        weft_scope scope = weft_scope_begin();
        weft_tensor x = weft_full(weft_shape(2), 0, WEFT_F32), y, plain = weft_clone(x), z;
        OK(weft_requires_grad_(x, true));
        weft_tensor h = weft_mul(x, weft_f(3));
        OK(weft_remat(shown, &user, &h, 1, &y, 1));
        OK(weft_remat(shown, &user, &plain, 1, &z, 1)); /* of what has no history */
        const weft_tensor cut_off = weft_detach(y), cut_plain = weft_detach(z);
        OK(weft_mul_(y, weft_f(5)));
        OK(weft_add_(z, weft_reshape(h, weft_shape_of(z))));
        cr_expect_not(weft_requires_grad(cut_off), "%d", of_input);
        cr_expect_not(weft_requires_grad(cut_plain), "%d", of_input);
        cr_expect(weft_requires_grad(plain) == of_input, "%d", of_input);
        const weft_status s = weft_backward(weft_sum(of_input ? h : y));
        cr_expect_eq(s, of_input ? WEFT_EGRAD : WEFT_OK, "%d: %s", of_input, weft_last_error());
        double g = 15;
        if (!of_input) {
            OK(weft_item(weft_narrow(weft_grad(x), 0, 0, 1), &g));
        }
        cr_expect_eq(g, 15, "%g", g);
        weft_scope_end(scope);
    }
}

/* -- derivatives of every kind ------------------------------------------------------------------------------------------ */

/* Two results of an input and a parameter that is not one; x * 3 is made again for both. */
static weft_status two(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const weft_tensor *w = user;
    (void)n_in, (void)n_out;
    weft_tensor y = weft_mul(in[0], in[1]);
    out[0] = weft_sin(weft_mul(y, *w));
    out[1] = weft_mul(y, weft_square(y));
    return WEFT_OK;
}

static weft_tensor parameter;

static weft_status through(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    weft_tensor y[2], x[2] = {in[0], weft_f(3)};
    (void)user, (void)n_in, (void)n_out;
    parameter = in[1];
    weft_status s = weft_remat(two, &parameter, x, 2, y, 2);
    out[0] = weft_sum(weft_mul(y[0], weft_exp(y[1])));
    return s;
}

Test(remat, derivatives_are_differences)
{
    weft_tensor in[2] = {weft_mul(weft_randn(weft_shape(4), WEFT_F64), weft_f(0.3)),
                         weft_randn(weft_shape(4), WEFT_F64)};
    char report[400] = "";
    for (int i = 0; i < 2; i++) {
        in[i] = weft_clone(in[i]);
        OK(weft_requires_grad_(in[i], true));
    }
    cr_assert_eq(
        weft_gradcheck(through, NULL, in, 2, 1, .report = report, .report_size = sizeof report),
        WEFT_OK, "%s", report);
    cr_assert_eq(
        weft_gradgradcheck(through, NULL, in, 2, 1, .report = report, .report_size = sizeof report),
        WEFT_OK, "%s", report);
}

/* grad_of of what is and what is not an input; twice, with the graph retained; forward mode. */
Test(remat, gradients_of_chosen_tensors)
{
    weft_tensor x = weft_clone(weft_randn(weft_shape(5), WEFT_F64)), g[2], h[2], w, t[2];
    w = weft_clone(weft_randn(weft_shape(5), WEFT_F64));
    OK(weft_requires_grad_(x, true));
    OK(weft_requires_grad_(w, true));
    weft_tensor in[2] = {weft_mul(x, weft_f(0.5)), weft_f(2)}, y[2], z[2];
    OK(weft_remat(two, &w, in, 2, y, 2));
    OK(two(&w, in, 2, z, 2));
    weft_tensor a = weft_sum(y[0]), b = weft_sum(z[0]);
    for (int i = 0; i < 2; i++) {
        OK(weft_grad_of(&a, 1, (weft_tensor[]){w, x}, 2, g, .retain_graph = true));
        OK(weft_grad_of(&b, 1, (weft_tensor[]){w, x}, 2, h, .retain_graph = true));
        cr_assert(same_bits(g[0], h[0]) && same_bits(g[1], h[1]));
        OK(weft_grad_of(&a, 1, &w, 1, g, .retain_graph = true)); /* of no operand */
        cr_assert(same_bits(g[0], h[0]));
    }
    cr_assert_not(weft_has_grad(w));
    weft_tensor ones = weft_ones_like(x);
    OK(weft_jvp(y, 2, &x, 1, &ones, t));
    OK(weft_jvp(z, 2, &x, 1, &ones, h));
    cr_assert(same_bits(t[0], h[0]) && same_bits(t[1], h[1]));
    weft_tensor e = weft_sum(weft_mul(y[0], y[1])), f = weft_sum(weft_mul(z[0], z[1]));
    OK(weft_grad_of(&e, 1, &x, 1, g, .create_graph = true));
    OK(weft_grad_of(&f, 1, &x, 1, h, .create_graph = true));
    cr_assert(same_bits(g[0], h[0]));
    e = weft_sum(weft_square(g[0]));
    f = weft_sum(weft_square(h[0]));
    OK(weft_grad_of(&e, 1, (weft_tensor[]){w, x}, 2, g, .retain_graph = true));
    OK(weft_grad_of(&f, 1, (weft_tensor[]){w, x}, 2, h));
    for (int i = 0; i < 2; i++) { /* sums of other groups: by both ways through the function */
        cr_assert_lt(weft_item_f64(weft_max(weft_abs(weft_sub(g[i], h[i])))), 1e-10);
    }
}

/* One value as two results, and the input as the third. */
static weft_status thrice(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)user, (void)n_in, (void)n_out;
    out[0] = out[1] = weft_tanh(in[0]);
    out[2] = in[0];
    return weft_error_status(out[0]);
}

/* Gradients that meet in one value are summed in one order, by whichever name it goes. */
Test(remat, results_that_are_one_value)
{
    weft_tensor start = weft_randn(weft_shape(999)), scale[6], g[2];
    for (int i = 0; i < 6; i++) {
        scale[i] = weft_randn(weft_shape(999), .mean = i * i * i);
    }
    for (int remat = 0; remat < 2; remat++) {
        weft_tensor x = weft_clone(start), y[3];
        OK(weft_requires_grad_(x, true));
        weft_tensor in = weft_mul(x, weft_f(3));
        OK(remat ? weft_remat(thrice, NULL, &in, 1, y, 3) : thrice(NULL, &in, 1, y, 3));
        weft_tensor loss = weft_f(0);
        for (int i = 0; i < 6; i++) { /* through 0, 1, 2, in, 0, 1 */
            loss = weft_add(loss, weft_sum(weft_mul(i == 3 ? in : y[i % 4 % 3], scale[i])));
        }
        OK(weft_backward(loss));
        g[remat] = weft_grad(x);
    }
    cr_assert(same_bits(g[0], g[1]));
}

static int let_go;
static void count_out(void *user)
{
    (void)user;
    let_go++;
}

static weft_status watched(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    out[0] = weft_mul(in[0], in[0]);
    weft_register_hook(in[0], see, user, count_out);
    weft_register_hook(out[0], see, user, count_out);
    out[0] = weft_exp(out[0]);
    return weft_error_status(out[0]);
}

/* Hooks that a function registers, on its input and on an inner result, run as often as without, in each backward. */
Test(remat, hooks_of_the_function_itself_run_once)
{
    for (int k = 0; k < 4; k++) {
        const bool leaf = k % 2, remat = k / 2;
        weft_scope scope = weft_scope_begin();
        weft_tensor x = weft_clone(weft_ones(weft_shape(3), WEFT_F32)), y;
        int seen = 0;
        let_go = 0;
        OK(weft_requires_grad_(x, true));
        weft_tensor in = leaf ? x : weft_mul(x, weft_f(2));
        OK(remat ? weft_remat(watched, &seen, &in, 1, &y, 1) : watched(&seen, &in, 1, &y, 1));
        weft_tensor loss = weft_sum(y);
        OK(weft_backward(loss, .retain_graph = true));
        cr_assert_eq(seen, 2, "%d", k);
        OK(weft_backward(loss));
        cr_assert_eq(seen, 4, "%d", k);
        weft_scope_end(scope);
        cr_assert_eq(let_go, remat ? 6 : 2, "released as often as registered: %d of %d", let_go, k);
        weft_free(hooked);
        hooked = WEFT_NONE;
    }
}

static weft_tensor nothing_of_it(void *user, weft_tensor g)
{
    (void)user, (void)g;
    return WEFT_NONE;
}

static void register_again(void *user)
{
    let_go++;
    if (let_go < 100) {
        weft_register_hook(*(weft_tensor *)user, nothing_of_it, user, register_again);
    }
}

static weft_status watched_for_ever(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                                    int n_out)
{
    (void)n_in, (void)n_out;
    *(weft_tensor *)user = in[0];
    weft_register_hook(in[0], nothing_of_it, user, register_again);
    out[0] = weft_exp(in[0]);
    return weft_error_status(out[0]);
}

/* What the second run registers is dropped once, not with it what the release of that registers. */
Test(remat, hooks_whose_release_registers_more)
{
    weft_scope scope = weft_scope_begin();
    weft_tensor x = weft_clone(weft_ones(weft_shape(3), WEFT_F32)), y, seen = WEFT_NONE;
    let_go = 0;
    OK(weft_requires_grad_(x, true));
    weft_tensor in = weft_mul(x, weft_f(2));
    OK(weft_remat(watched_for_ever, &seen, &in, 1, &y, 1));
    OK(weft_backward(weft_sum(y)));
    cr_assert_lt(let_go, 4, "releases: %d", let_go);
    weft_scope_end(scope);
}

static weft_status plain(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    ++*(int *)user;
    out[0] = weft_square(in[0]);
    return WEFT_OK;
}

/* Where no gradient flows nothing is recorded, and the function is not called again. */
Test(remat, nothing_is_recorded_where_no_gradient_flows)
{
    int calls = 0;
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32), y;
    OK(weft_remat(plain, &calls, &x, 1, &y, 1));
    cr_assert_not(weft_requires_grad(y));
    OK(weft_requires_grad_(x, true));
    weft_no_grad_begin();
    OK(weft_remat(plain, &calls, &x, 1, &y, 1));
    weft_no_grad_end();
    cr_assert_not(weft_requires_grad(y));
    cr_assert_eq(calls, 2);
    OK(weft_remat(plain, &calls, &x, 1, &y, 1));
    cr_assert(weft_requires_grad(y));
    OK(weft_backward(weft_sum(y)));
    cr_assert_eq(calls, 4);
    cr_assert_eq(weft_item_f64(weft_sum(weft_grad(x))), 6);
}

/* -- errors ------------------------------------------------------------------------------------------------------------- */

static weft_status odd(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const int kind = (*(int *)user)++;
    (void)n_in, (void)n_out;
    switch (kind) {
    case 0: /* then the next */
        out[0] = weft_square(in[0]);
        return WEFT_OK;
    case 1:
        out[0] = weft_sum(weft_square(in[0]));
        return WEFT_OK;
    case 10:
        return WEFT_EINVALID;
    case 20:
        out[0] = weft_add(in[0], weft_ones(weft_shape(77), WEFT_F32));
        return WEFT_OK;
    case 30:
        return WEFT_OK;
    case 40:
        weft_no_grad_begin();
        weft_mul_(in[0], weft_f(2));
        weft_no_grad_end();
        out[0] = weft_square(in[0]);
        return WEFT_OK;
    default:
        out[0] = weft_square(in[0]);
        return kind == 51 ? WEFT_EIO : WEFT_OK;
    }
}

static void fails(int kind, const char *forwards, const char *backwards)
{
    int at = kind;
    weft_tensor x = weft_clone(weft_ones(weft_shape(3), WEFT_F32)), y;
    OK(weft_requires_grad_(x, true));
    weft_status s = weft_remat(odd, &at, &x, 1, &y, 1);
    if (forwards) {
        cr_assert_neq(s, WEFT_OK);
        cr_assert(strstr(weft_last_error(), forwards), "%d: %s", kind, weft_last_error());
        return;
    }
    OK(s);
    cr_assert_neq(weft_backward(weft_sum(y)), WEFT_OK);
    cr_assert(strstr(weft_last_error(), backwards), "%d: %s", kind, weft_last_error());
}

Test(remat, errors)
{
    weft_tensor x = weft_clone(weft_ones(weft_shape(3), WEFT_F32)), y;
    int at = 60;
    cr_assert_eq(weft_remat(NULL, NULL, &x, 1, &y, 1), WEFT_EINVALID);
    cr_assert_eq(weft_remat(odd, &at, &x, 0, &y, 1), WEFT_EINVALID);
    cr_assert_eq(weft_remat(odd, &at, &x, 9, &y, 1), WEFT_EINVALID);
    cr_assert_eq(weft_remat(odd, &at, &x, 1, &y, 4), WEFT_EINVALID);
    fails(0, NULL, "another shape");
    fails(10, "its function", NULL);
    fails(20, "add", NULL);
    fails(30, "left a result empty", NULL);
    fails(40, "writes to its input", NULL);
    fails(50, NULL, "its function");
    OK(weft_requires_grad_(x, true));
    OK(weft_remat(odd, &at, &x, 1, &y, 1));
    weft_no_grad_begin();
    OK(weft_mul_(x, weft_f(2)));
    weft_no_grad_end();
    cr_assert_eq(weft_backward(weft_sum(y)), WEFT_EGRAD);
    cr_assert(strstr(weft_last_error(), "remat"), "%s", weft_last_error());
    weft_clear_error();
}

/* -- traces --------------------------------------------------------------------------------------------------------------- */

typedef struct trained {
    net k;
    piece pieces[MOST];
    weft_optim *optim;
} trained;

static weft_status step(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    trained *t = self;
    (void)n_in, (void)n_out;
    weft_tensor loss = forward(&t->k, in[0], t->pieces);
    out[0] = weft_detach(loss);
    weft_status s = weft_module_zero_grad(t->k.m);
    s = s ? s : weft_backward(loss);
    return s ? s : weft_optim_step(t->optim);
}

Test(remat, traced_and_replayed_it_has_the_same_bits)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        trained a, b;
        net_open(&a.k, 4, 12, 2, true);
        net_open(&b.k, 4, 12, 2, true);
        a.optim = weft_adamw_new(a.k.m);
        b.optim = weft_adamw_new(b.k.m);
        weft_jit *j = weft_jit_trace(step, &b, .frozen = frozen);
        for (int i = 0; i < 5; i++) {
            weft_scope s = weft_scope_begin();
            weft_tensor x = weft_randn(weft_shape(7, 12)), y, z;
            weft_manual_seed(77 + (uint64_t)i);
            OK(step(&a, &x, 1, &y, 1));
            weft_manual_seed(77 + (uint64_t)i);
            OK(weft_jit_call(j, &x, 1, &z, 1));
            cr_assert(same_bits(y, z));
            for (int p = 0; p < weft_module_count(a.k.m); p++) {
                cr_assert(
                    same_bits(weft_module_at(a.k.m, p).tensor, weft_module_at(b.k.m, p).tensor));
            }
            weft_scope_end(s);
        }
        weft_jit_stats s;
        weft_jit_get_stats(j, &s);
        cr_assert_eq(s.breaks, 0);
        cr_assert(!frozen || s.frozen >= 2);
        weft_jit_free(j);
        weft_optim_free(a.optim);
        weft_optim_free(b.optim);
        weft_module_free(a.k.m);
        weft_module_free(b.k.m);
    }
}
