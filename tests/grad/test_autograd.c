/*
 * tests/grad/test_autograd.c -- what autograd promises besides right derivatives.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/support/effort.h"
#include "tests/support/support.h"
#include "weft/weft.h"

static weft_tensor leaf(double v)
{
    weft_tensor t = weft_full(weft_shape(2), v, WEFT_F32);
    weft_requires_grad_(t, true);
    return t;
}

static double first(weft_tensor t)
{
    float v[64] = {0};
    weft_to_array(t, v, weft_numel(t), WEFT_F32);
    return weft_ok(t) ? (double)v[0] : -12345;
}

Test(autograd, gradients_accumulate_until_dropped)
{
    weft_tensor x = leaf(3);
    for (int i = 1; i <= 3; i++) {
        cr_assert_eq(weft_backward(weft_sum(weft_square(x))), WEFT_OK);
        cr_assert_eq(first(weft_grad(x)), 6.0 * i);
    }
    cr_assert_eq(weft_set_grad(x, WEFT_NONE), WEFT_OK);
    cr_assert(!weft_has_grad(x));
    cr_assert(!weft_ok(weft_grad(x)));
    cr_assert_eq(weft_last_status(), WEFT_EGRAD);
}

/* A layer that is frozen between forward and backward keeps its weights: an optimiser steps what has a gradient. */
Test(autograd, a_leaf_that_no_longer_requires_a_gradient_gets_none)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = leaf(3), w = leaf(5), y = weft_sum(weft_mul(x, w));
    cr_assert_eq(weft_backward(y, .retain_graph = true), WEFT_OK);
    cr_assert_eq(weft_requires_grad_(w, false), WEFT_OK);
    cr_assert_eq(weft_backward(y, .retain_graph = true), WEFT_OK);
    cr_assert_eq(first(weft_grad(x)), 10);
    cr_assert_eq(first(weft_grad(w)), 3);
    cr_assert_eq(weft_requires_grad_(w, true), WEFT_OK);
    cr_assert_eq(weft_backward(y), WEFT_OK);
    cr_assert_eq(first(weft_grad(x)), 15);
    cr_assert_eq(first(weft_grad(w)), 6);
    weft_scope_end(sc);
}

Test(autograd, shared_gradients_do_not_alias)
{
    /* d(x + y) hands one gradient to both: writing to one must not show in the other */
    weft_tensor x = leaf(1), y = leaf(1);
    weft_backward(weft_sum(weft_add(x, y)));
    cr_assert(!weft_shares_memory(weft_grad(x), weft_grad(y)));
    weft_mul_(weft_grad(x), weft_f(5));
    cr_assert_eq(first(weft_grad(x)), 5);
    cr_assert_eq(first(weft_grad(y)), 1);
}

Test(autograd, no_grad_detach_and_modes)
{
    weft_tensor x = leaf(2);
    weft_no_grad_begin();
    cr_assert(!weft_is_grad_enabled());
    weft_tensor a = weft_square(x);
    uint32_t saved = weft_enable_grad_begin();
    weft_tensor b = weft_square(x);
    weft_enable_grad_end(saved);
    cr_assert(!weft_is_grad_enabled());
    weft_no_grad_end();
    cr_assert(weft_is_grad_enabled());
    cr_assert(!weft_requires_grad(a));
    cr_assert(weft_requires_grad(b) && !weft_is_leaf(b) && weft_is_leaf(x));
    weft_tensor d = weft_detach(b);
    cr_assert(!weft_requires_grad(d) && weft_shares_memory(d, b));
    /* d is a constant: the gradient of b * d sees d as 4 */
    weft_backward(weft_sum(weft_mul(b, d)));
    cr_assert_eq(first(weft_grad(x)), 16);
    cr_assert_eq(weft_backward(weft_sum(d)), WEFT_EGRAD);
    cr_assert(strstr(weft_last_error(), "requires a gradient"));
}

Test(autograd, retain_graph_and_retain_grad)
{
    weft_tensor x = leaf(2), h = weft_square(x);
    cr_assert_eq(weft_retain_grad(h), WEFT_OK);
    weft_tensor loss = weft_sum(weft_exp(h));
    cr_assert_eq(weft_backward(loss, .retain_graph = true), WEFT_OK);
    cr_assert_float_eq(first(weft_grad(h)), 54.59815, 1e-4);
    cr_assert_eq(weft_backward(loss), WEFT_OK);
    cr_assert_float_eq(first(weft_grad(x)), 2 * 4 * 54.59815, 1e-3);
    cr_assert_eq(weft_backward(loss), WEFT_EGRAD);
    cr_assert(strstr(weft_last_error(), "retain_graph"), "%s", weft_last_error());
}

Test(autograd, stale_saved_value_names_everything)
{
    weft_tensor x = leaf(2);
    weft_tensor h = weft_mul(x, weft_f(3));
    weft_set_name(h, "hidden");
    weft_tensor y = weft_square(h);
    cr_assert_eq(weft_add_(h, weft_f(1)), WEFT_OK);
    cr_assert_eq(weft_backward(weft_sum(y)), WEFT_EGRAD);
    const char *e = weft_last_error();
    cr_assert(strstr(e, "square") && strstr(e, "'hidden'") && strstr(e, "version 0") &&
                  strstr(e, "version 1") && strstr(e, "add_") && strstr(e, "test_autograd.c:") &&
                  !strstr(e, "unknown site"),
              "%s", e);
    /* the same writes are fine when no derivative reads the old value */
    weft_tensor g = weft_mul(x, weft_f(3)), s = weft_add(g, weft_f(1));
    cr_assert_eq(weft_exp_(g), WEFT_OK);
    weft_set_grad(x, WEFT_NONE);
    cr_assert_eq(weft_backward(weft_sum(weft_add(s, g))), WEFT_OK, "%s", weft_last_error());
    cr_assert_float_eq(first(weft_grad(x)), 3 + 3 * 403.42879, 2e-3);
}

Test(autograd, writes_through_views_reach_every_alias)
{
    weft_tensor x = leaf(2);
    weft_tensor base = weft_mul(x, weft_f(1)), view = weft_narrow(base, 0, 0, 1);
    cr_assert_eq(weft_mul_(view, weft_f(10)), WEFT_OK);
    cr_assert_eq(first(base), 20);
    weft_backward(weft_sum(weft_mul(base, base)));
    float g[2];
    weft_to_array(weft_grad(x), g, 2, WEFT_F32);
    cr_assert_eq(g[0], 400);
    cr_assert_eq(g[1], 4);
    /* an untracked buffer that receives a tracked value becomes tracked */
    weft_tensor buf = weft_zeros(weft_shape(4), WEFT_F32);
    cr_assert_eq(weft_copy_(weft_narrow(buf, 0, 1, 2), weft_square(x)), WEFT_OK);
    cr_assert(weft_requires_grad(buf));
    weft_set_grad(x, WEFT_NONE);
    cr_assert_eq(weft_backward(weft_sum(buf)), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(first(weft_grad(x)), 4);
    /* leaves refuse in-place writes while recording */
    cr_assert_eq(weft_add_(x, weft_f(1)), WEFT_EGRAD);
    weft_no_grad_begin();
    cr_assert_eq(weft_add_(x, weft_f(1)), WEFT_OK);
    weft_no_grad_end();
    cr_assert_eq(first(x), 3);
}

/* -- hooks ---------------------------------------------------------------------------------------- */

static int order[8], n_order, released;
static weft_tensor note(void *user, weft_tensor g)
{
    (void)g;
    order[n_order++] = *(int *)user;
    return WEFT_NONE;
}
static weft_tensor twice(void *user, weft_tensor g)
{
    (void)user;
    return weft_mul(g, weft_f(2));
}
static weft_tensor broken(void *user, weft_tensor g)
{
    (void)user;
    return weft_reshape(g, weft_shape(7));
}
static weft_tensor add_to(void *user, weft_tensor g)
{
    *(double *)user += first(g);
    return WEFT_NONE;
}
static void count_release(void *user)
{
    (void)user;
    released++;
}

Test(autograd, hooks_run_in_order_and_may_replace)
{
    static int one = 1, two = 2, three = 3;
    weft_scope sc = weft_scope_begin();
    weft_tensor x = leaf(1), h = weft_mul(x, weft_f(3));
    cr_assert(weft_register_hook(h, note, &one, count_release));
    uint64_t id = weft_register_hook(h, twice, NULL, NULL);
    cr_assert(id && weft_register_hook(h, note, &two, NULL));
    cr_assert(weft_register_post_hook(x, note, &three, NULL));
    weft_tensor loss = weft_sum(h);
    weft_backward(loss, .retain_graph = true);
    cr_assert_eq(first(weft_grad(x)), 6);
    cr_assert(n_order == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3);
    cr_assert_eq(weft_remove_hook(h, id), WEFT_OK);
    cr_assert_eq(weft_remove_hook(h, id), WEFT_EINVALID);
    weft_backward(loss, .retain_graph = true);
    cr_assert_eq(first(weft_grad(x)), 9);
    weft_register_hook(h, broken, NULL, NULL);
    cr_assert_eq(weft_backward(loss), WEFT_ESHAPE);
    weft_scope_end(sc);
    cr_assert_eq(released, 1);
}

/* Removes the hook behind it, or itself, by turns. */
typedef struct pruning {
    weft_tensor of;
    uint64_t id[9];
    int at;
} pruning;
static weft_tensor prune(void *user, weft_tensor g)
{
    pruning *p = user;
    (void)g;
    const int at = p->at, behind = at % 3 == 0;
    order[n_order++] = at;
    weft_remove_hook(p->of, p->id[at + behind]);
    p->at += 1 + behind;
    return WEFT_NONE;
}

Test(autograd, hooks_remove_each_other)
{
    const test_baseline before = test_baseline_take();
    weft_scope sc = weft_scope_begin();
    weft_tensor x = leaf(1);
    pruning p = {.of = weft_mul(x, weft_f(3))};
    n_order = released = 0;
    for (int i = 0; i < 9; i++) {
        p.id[i] = weft_register_hook(p.of, prune, &p, count_release);
        cr_assert(p.id[i] && (i == 0 || p.id[i] > p.id[i - 1]));
    }
    const weft_tensor loss = weft_sum(p.of);
    cr_assert_eq(weft_backward(loss, .retain_graph = true), WEFT_OK);
    cr_assert_eq(n_order, 6);
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(order[i], i / 2 * 3 + i % 2 * 2);
    }
    cr_assert_eq(released, 6);
    for (int i = 0; i < 9; i++) {
        cr_assert_eq(weft_remove_hook(p.of, p.id[i]), i % 3 == 0 ? WEFT_OK : WEFT_EINVALID);
    }
    cr_assert_eq(released, 9);
    cr_assert_eq(weft_backward(loss), WEFT_OK);
    cr_assert_eq(n_order, 6);
    weft_scope_end(sc);
    check_baseline("hooks", &before);
}

static int64_t n_counted;
static weft_tensor count(void *user, weft_tensor g)
{
    (void)user, (void)g;
    n_counted++;
    return WEFT_NONE;
}

/* Seconds that n hooks of one value, or each of a value of its own, take to register, to run and to remove in an order of
 * their own. */
static double hooks_take(int n, uint64_t *id, bool written)
{
    const weft_scope sc = weft_scope_begin();
    const weft_tensor x = leaf(1), y = weft_mul(x, weft_f(3));
    struct timespec a, b;
    n_counted = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (int i = 0; i < n; i++) {
        cr_assert(!written || weft_neg_(y) == WEFT_OK);
        id[i] = weft_register_hook(y, count, NULL, NULL);
    }
    const weft_tensor loss = weft_sum(y);
    cr_assert_eq(weft_backward(loss, .retain_graph = true), WEFT_OK);
    cr_assert_eq(n_counted, n);
    for (int i = 0; i < n; i++) { /* every one, far from the last */
        cr_assert_eq(weft_remove_hook(y, id[(int64_t)i * 7919 % n]), WEFT_OK);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    cr_assert_eq(weft_backward(loss), WEFT_OK);
    cr_assert_eq(n_counted, n);
    weft_scope_end(sc);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

/* A hook costs the same among many: 32 times as many took 1000 times as long. */
Test(autograd, many_hooks)
{
    enum { FEW = 2048, MANY = 32 * FEW };
    uint64_t *id = malloc(MANY * sizeof *id);
    for (int written = 0; written < 2; written++) {
        double few = 1, many = 100;
        hooks_take(FEW, id, written);
        for (int i = 0; i < (int)effort_of(3); i++) {
            const double f = hooks_take(FEW, id, written), m = hooks_take(MANY, id, written);
            few = f < few ? f : few;
            many = m < many ? m : many;
        }
        cr_assert_lt(many, 150 * few, "%d hooks take %g s, %d take %g s", FEW, few, MANY, many);
    }
    free(id);
}

static weft_tensor widened(void *user, weft_tensor grad)
{
    (void)user;
    return weft_cast(grad, WEFT_F64);
}

/* What a gradient of another element type, or another shape, is called, whoever gives it. */
Test(autograd, gradients_that_do_not_fit)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = leaf(3), y = weft_mul(x, weft_f(2));
    weft_tensor wide = weft_cast(x, WEFT_F64), more = weft_ones(weft_shape(7, 5, 3), WEFT_F32);
    cr_assert_eq(weft_set_grad(x, wide), WEFT_EDTYPE);
    cr_assert_eq(weft_set_grad(x, more), WEFT_ESHAPE);
    cr_assert_not(weft_has_grad(x));
    cr_assert_eq(weft_backward(y, .gradient = wide), WEFT_EDTYPE);
    cr_assert_eq(weft_backward(y, .gradient = more), WEFT_ESHAPE);
    weft_register_hook(y, widened, NULL, NULL);
    cr_assert_eq(weft_backward(weft_sum(y)), WEFT_EDTYPE);
    weft_scope_end(sc);
}

static weft_tensor give_kept(void *user, weft_tensor grad)
{
    (void)grad;
    return *(weft_tensor *)user;
}

/* A gradient that an op passes through as it is goes on without a copy, and is nobody else's in the end. */
Test(autograd, gradients_that_pass_through)
{
    const test_baseline before = test_baseline_take();
    const weft_scope s = weft_scope_begin();
    const weft_tensor x = weft_ones(weft_shape(2), WEFT_F32),
                      k = weft_ones(weft_shape(2), WEFT_F32);
    const weft_tensor g = weft_full(weft_shape(2), 3, WEFT_F32);
    weft_tensor kept = weft_keep(weft_full(weft_shape(2), 5, WEFT_F32));
    weft_requires_grad_(x, true);
    for (int hooked = 0; hooked < 2; hooked++) {
        const weft_tensor y = weft_add(x, k), z = weft_add(weft_add(y, y), weft_add(k, y));
        weft_retain_grad(y);
        if (hooked) {
            weft_register_hook(y, give_kept, &kept, NULL);
        }
        cr_assert_eq(weft_backward(.loss = z, .gradient = g, .retain_graph = true), WEFT_OK, "%s",
                     weft_last_error());
        const double want = hooked ? 5 : 9;
        cr_assert_eq(weft_item_f64(weft_min(weft_grad(x))), want);
        cr_assert_eq(weft_item_f64(weft_min(weft_grad(y))), want);
        weft_no_grad_begin();
        cr_assert_eq(weft_add_(weft_grad(x), weft_f(100)), WEFT_OK, "%s", weft_last_error());
        weft_no_grad_end();
        cr_assert_eq(weft_item_f64(weft_max(weft_grad(y))), want);
        cr_assert_eq(weft_item_f64(weft_max(g)), 3.0);
        cr_assert_eq(weft_item_f64(weft_max(kept)), 5.0);
        weft_set_grad(x, WEFT_NONE);
    }
    weft_free(kept);
    weft_requires_grad_(x, false);
    weft_scope_end(s);
    check_baseline("passed through", &before);
}

/* One hook before a write in place, one after: each sees the gradient of its own value, once. */
Test(autograd, hooks_belong_to_values_and_kept_gradients_to_tensors)
{
    static double seen[2];
    for (int part = 0; part < 2; part++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = leaf(1), y = weft_mul(x, weft_f(2));
        seen[0] = seen[1] = 0;
        weft_retain_grad(y);
        weft_register_hook(y, add_to, &seen[0], NULL);
        weft_mul_(part ? weft_narrow(y, 0, 0, 1) : y, weft_f(5));
        weft_register_hook(y, add_to, &seen[1], NULL);
        cr_assert_eq(weft_backward(weft_sum(weft_mul(y, weft_f(7)))), WEFT_OK);
        cr_assert_eq(seen[0], 35);
        cr_assert_eq(seen[1], 7);
        cr_assert_eq(first(weft_grad(y)), 7);
        cr_assert_eq(first(weft_grad(x)), 70);
        weft_scope_end(sc);
    }
}

/* Written through a view, and read through others: the gradient is that of the memory's last value all the same. */
Test(autograd, kept_gradients_are_of_all_that_reads_the_last_value)
{
    for (int part = 0; part < 4; part++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = leaf(1), y = weft_mul(x, weft_f(3)), head = weft_narrow(y, 0, 0, 1);
        weft_tensor turned = weft_flip(y, weft_axes());
        if (part < 2) {
            cr_assert_eq(weft_retain_grad(y), WEFT_OK);
        }
        cr_assert_eq(weft_mul_(head, weft_f(5)), WEFT_OK);
        if (part > 1) {
            cr_assert_eq(weft_retain_grad(y), WEFT_OK);
        }
        if (part == 3) { /* written once more after it */
            cr_assert_eq(weft_mul_(weft_reshape(y, weft_shape(2, 1)), weft_f(2)), WEFT_OK);
        }
        weft_tensor loss = part == 0 ? weft_sum(head) : weft_sum(turned);
        if (part == 1) {
            loss = weft_add(loss, weft_sum(weft_mul(y, weft_f(10))));
        }
        cr_assert_eq(weft_backward(loss), WEFT_OK, "%s", weft_last_error());
        float g[2], d[2];
        cr_assert_eq(weft_to_array(weft_grad(y), g, 2, WEFT_F32), WEFT_OK, "%d", part);
        cr_assert_eq(weft_to_array(weft_grad(x), d, 2, WEFT_F32), WEFT_OK);
        static const float want[4][4] = {
            {1, 0, 15, 0}, {11, 11, 165, 33}, {1, 1, 15, 3}, {1, 1, 30, 6}};
        cr_assert(g[0] == want[part][0] && g[1] == want[part][1], "%d: %g %g", part, (double)g[0],
                  (double)g[1]);
        cr_assert(d[0] == want[part][2] && d[1] == want[part][3], "%d: %g %g", part, (double)d[0],
                  (double)d[1]);
        weft_scope_end(sc);
    }
}

/* A tensor's gradient is that of what reads its parts, too, wherever the slots of both lie; a part's that of its own readers. */
Test(autograd, kept_gradients_of_a_tensor_and_a_part_of_it)
{
    unsigned orders = 0;
    for (int n = 0; n < 8; n++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = leaf(1), room = leaf(1), y = weft_mul(x, weft_f(3));
        if (n % 2) { /* the part's slot lies before */
            weft_free(room);
        }
        weft_tensor head = weft_narrow(y, 0, 0, 1);
        orders |= 1u << (n / 2 % 2 * 2 + (head.slot < y.slot));
        cr_assert_eq(weft_retain_grad(y), WEFT_OK);
        cr_assert_eq(weft_retain_grad(head), WEFT_OK);
        cr_assert_eq(weft_mul_(n / 2 % 2 ? y : head, weft_f(5)), WEFT_OK);
        cr_assert_eq(weft_backward(weft_add(weft_sum(head), weft_mul(weft_sum(y), weft_f(10)))),
                     WEFT_OK, "%s", weft_last_error());
        float g[2], h;
        cr_assert_eq(weft_to_array(weft_grad(y), g, 2, WEFT_F32), WEFT_OK, "%d", n);
        cr_assert_eq(weft_to_array(weft_grad(head), &h, 1, WEFT_F32), WEFT_OK);
        cr_expect(g[0] == 11 && g[1] == 10 && h == 1, "%d: %g %g, %g", n, (double)g[0],
                  (double)g[1], (double)h);
        weft_scope_end(sc);
    }
    cr_assert_eq(orders, 15, "%u", orders);
}

/* A constant over all of a result cuts its history off, but not its gradient: it is a value like any other. */
Test(autograd, what_a_constant_was_written_over_keeps_its_gradient)
{
    for (int part = 0; part < 3; part++) {
        double seen = 0;
        weft_scope sc = weft_scope_begin();
        weft_tensor x = leaf(2), y = weft_mul(x, weft_f(2)), g = WEFT_NONE;
        if (part == 1) {
            weft_copy_(y, weft_full(weft_shape_of(y), 3, weft_dtype_of(y)));
        } else if (part == 2) {
            weft_fill_(weft_reshape(y, weft_shape(1, -1)), 3);
        } else {
            weft_fill_(y, 3);
        }
        cr_assert_eq(weft_retain_grad(y), WEFT_OK);
        cr_assert_neq(weft_register_hook(y, add_to, &seen, NULL), 0);
        weft_tensor loss = weft_sum(weft_square(y));
        cr_assert_eq(weft_grad_of(&loss, 1, &y, 1, &g, .retain_graph = true), WEFT_OK, "%s",
                     weft_last_error());
        cr_assert_eq(first(g), 6);
        cr_assert_eq(seen, 6);
        cr_assert_eq(weft_backward(loss), WEFT_OK);
        cr_assert(weft_has_grad(y) && !weft_has_grad(x));
        cr_assert_eq(first(weft_grad(y)), 6);
        weft_scope_end(sc);
    }
}

/* -- custom functions ------------------------------------------------------------------------------- */

static weft_status cube_fwd(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                            weft_tensor *out, int n_out)
{
    (void)user, (void)n_out;
    out[0] = weft_mul(in[0], weft_square(in[0]));
    return weft_function_save(ctx, in, n_in);
}
static weft_status cube_bwd(weft_function_ctx *ctx, void *user, const weft_tensor *g, int n_out,
                            weft_tensor *gi, const bool *needs, int n_in)
{
    (void)user, (void)n_out, (void)needs, (void)n_in;
    gi[0] = weft_mul(g[0], weft_mul(weft_f(3), weft_square(weft_function_saved(ctx, 0))));
    return weft_error_status(gi[0]);
}
/* Saves its own result: d exp = y. */
static weft_status exp_fwd(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                           weft_tensor *out, int n_out)
{
    (void)user, (void)n_in;
    out[0] = weft_exp(in[0]);
    return weft_function_save(ctx, out, n_out);
}
static weft_status exp_bwd(weft_function_ctx *ctx, void *user, const weft_tensor *g, int n_out,
                           weft_tensor *gi, const bool *needs, int n_in)
{
    (void)user, (void)n_out, (void)needs, (void)n_in;
    gi[0] = weft_mul(g[0], weft_function_saved(ctx, 0));
    return weft_error_status(gi[0]);
}
static const weft_function cube = {"cube", cube_fwd, cube_bwd, count_release};
/* x and 3 x. */
static weft_status pair_fwd(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                            weft_tensor *out, int n_out)
{
    (void)ctx, (void)user, (void)n_in, (void)n_out;
    out[0] = weft_clone(in[0]);
    out[1] = weft_mul(in[0], weft_f(3));
    return weft_error_status(out[1]);
}
static weft_status pair_bwd(weft_function_ctx *ctx, void *user, const weft_tensor *g, int n_out,
                            weft_tensor *gi, const bool *needs, int n_in)
{
    (void)ctx, (void)user, (void)n_out, (void)needs, (void)n_in;
    gi[0] = weft_add(g[0], weft_mul(g[1], weft_f(3)));
    return weft_error_status(gi[0]);
}
static const weft_function pair = {"pair", pair_fwd, pair_bwd, NULL};
static const weft_function own_exp = {"own_exp", exp_fwd, exp_bwd, count_release};

static weft_status run_custom(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    weft_tensor h;
    (void)user, (void)n_in, (void)n_out;
    weft_status st = weft_apply(&cube, NULL, in, 1, &h, 1);
    return st != WEFT_OK ? st : weft_apply(&own_exp, NULL, &h, 1, out, 1);
}

Test(autograd, custom_functions_to_second_order)
{
    char why[256] = "";
    released = 0;
    weft_scope sc = weft_scope_begin();
    weft_tensor x = weft_linspace(0.1, 0.9, 4, WEFT_F64);
    weft_requires_grad_(x, true);
    weft_status st = weft_gradcheck(.fn = run_custom, .inputs = &x, .n_in = 1, .n_out = 1,
                                    .report = why, .report_size = sizeof why);
    cr_assert_eq(st, WEFT_OK, "%s %s", why, weft_last_error());
    st = weft_gradgradcheck(.fn = run_custom, .inputs = &x, .n_in = 1, .n_out = 1, .report = why,
                            .report_size = sizeof why);
    cr_assert_eq(st, WEFT_OK, "%s %s", why, weft_last_error());
    weft_scope_end(sc);
    cr_assert(released > 0);
    cr_assert_eq(weft_tape_nodes(), 0, "%lld nodes left", (long long)weft_tape_nodes());
}

static weft_status bare_bwd(weft_function_ctx *ctx, void *user, const weft_tensor *g, int n_out,
                            weft_tensor *gi, const bool *needs, int n_in)
{
    (void)ctx, (void)user, (void)g, (void)n_out, (void)gi, (void)needs, (void)n_in;
    return WEFT_EUNSUPPORTED; /* and says nothing */
}
static weft_status bare_fwd(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                            weft_tensor *out, int n_out)
{
    (void)ctx, (void)user, (void)in, (void)n_in, (void)out, (void)n_out;
    return WEFT_EINDEX;
}

static void says(weft_status got, weft_status want, const char *part, const char *not_part)
{
    cr_assert_eq(got, want, "%s: %s", weft_status_name(got), weft_last_error());
    cr_assert(strstr(weft_last_error(), part), "no \"%s\" in: %s", part, weft_last_error());
    cr_assert(!not_part || !strstr(weft_last_error(), not_part), "%s", weft_last_error());
}

/* Gives its operand back, or a view of it, or two views of one value; its derivative is twice as steep. */
static weft_status steep_fwd(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                             weft_tensor *out, int n_out)
{
    (void)n_in;
    const int how = *(int *)user;
    out[0] = how == 0 ? in[0] : how == 1 ? weft_reshape(in[0], weft_shape(-1)) : weft_clone(in[0]);
    if (n_out > 1) {
        out[1] = weft_reshape(out[0], weft_shape(-1));
    }
    return weft_function_save(ctx, out, 1);
}
static weft_status steep_bwd(weft_function_ctx *ctx, void *user, const weft_tensor *g, int n_out,
                             weft_tensor *gi, const bool *needs, int n_in)
{
    (void)ctx, (void)user, (void)needs, (void)n_in;
    gi[0] = weft_mul(g[0].slot ? g[0] : g[n_out - 1], weft_f(2));
    return weft_error_status(gi[0]);
}
static const weft_function steep = {"steep", steep_fwd, steep_bwd, NULL};

/* What shows the memory of something else would lose its record to writes there, or give that one to it. */
Test(autograd, results_of_custom_functions_have_memory_of_their_own)
{
    for (int how = 0; how < 3; how++) {
        for (int written = 0; written < 2; written++) { /* the operand, or a result before it */
            weft_scope sc = weft_scope_begin();
            weft_tensor x = leaf(1), h = weft_mul(x, weft_f(3)), two[2];
            cr_assert_eq(weft_apply(&steep, &how, &h, 1, two, how == 2 ? 2 : 1), WEFT_OK);
            weft_tensor y = two[how == 2];
            cr_assert_eq(weft_mul_(written ? y : how == 2 ? two[0] : h, weft_f(5)), WEFT_OK);
            cr_assert_eq(first(y), written ? 15 : 3);
            cr_assert_eq(first(h), !written && how < 2 ? 15 : 3);
            cr_assert_eq(weft_backward(weft_sum(y), .retain_graph = true), WEFT_OK, "%s",
                         weft_last_error());
            cr_assert_eq(first(weft_grad(x)), written ? 30 : 6);
            weft_set_grad(x, WEFT_NONE);
            cr_assert_eq(weft_backward(weft_sum(h)), WEFT_OK);
            cr_assert_eq(first(weft_grad(x)), !written && how < 2 ? 15 : 3);
            weft_scope_end(sc);
        }
    }
}

Test(autograd, a_custom_function_without_recording_has_no_history_to_give)
{
    int how = 0;
    weft_scope sc = weft_scope_begin();
    weft_tensor x = leaf(1), h = weft_mul(x, weft_f(3)), y;
    weft_no_grad_begin();
    cr_assert_eq(weft_apply(&steep, &how, &h, 1, &y, 1), WEFT_OK);
    weft_no_grad_end();
    cr_assert(!weft_requires_grad(y) && weft_requires_grad(h));
    weft_scope_end(sc);
}

Test(autograd, errors_of_custom_functions_name_them_and_their_line)
{
    static const weft_function mute = {"mute", cube_fwd, bare_bwd, NULL},
                               mute_fwd = {"mute_fwd", bare_fwd, bare_bwd, NULL};
    weft_scope sc = weft_scope_begin();
    weft_tensor x = leaf(1), h = weft_mul(x, weft_f(2)), y;
    /* a saved value that was written since */
    cr_assert_eq(weft_apply(&cube, NULL, &h, 1, &y, 1), WEFT_OK);
    char at[64];
    snprintf(at, sizeof at, "cube (%s:%d)", __FILE__, __LINE__ - 2);
    cr_assert_eq(weft_add_(h, weft_f(1)), WEFT_OK);
    weft_tensor loss = weft_sum(weft_square(y)), g = WEFT_NONE;
    says(weft_backward(weft_sum(y)), WEFT_EGRAD, at, "custom");
    cr_assert_eq(weft_grad_of(&loss, 1, &y, 1, &g), WEFT_OK, "%s", /* not asked to differentiate */
                 weft_last_error());
    cr_assert_eq(first(g), 16);
    cr_assert(strstr(weft_last_error(), "saved tensor 0"), "%s", weft_last_error());
    /* a second backward over released values */
    cr_assert_eq(weft_apply(&cube, NULL, &x, 1, &y, 1), WEFT_OK);
    y = weft_sum(y);
    cr_assert_eq(weft_backward(y), WEFT_OK);
    /* operand and result in one variable */
    weft_tensor z = x;
    cr_assert_eq(weft_apply(&cube, NULL, &z, 1, &z, 1), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_backward(weft_sum(z)), WEFT_OK);
    /* statuses that were made up: never the text of an earlier error */
    weft_add(x, weft_zeros(weft_shape(7, 5), WEFT_F32));
    cr_assert_eq(weft_apply(&mute, NULL, &x, 1, &y, 1), WEFT_OK);
    says(weft_backward(weft_sum(y)), WEFT_EUNSUPPORTED, "mute: its backward returned status",
         "broadcast");
    says(weft_apply(&mute_fwd, NULL, &x, 1, &y, 1), WEFT_EINDEX, "mute_fwd: its forward returned",
         "mute: ");
    cr_assert(strstr(weft_error_text(y), "mute_fwd: its forward"), "%s", weft_error_text(y));
    weft_scope_end(sc);
}

Test(autograd, every_result_of_one_op_keeps_its_gradient)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor x = leaf(1), two[2];
    cr_assert_eq(weft_apply(&pair, NULL, &x, 1, two, 2), WEFT_OK);
    cr_assert(weft_retain_grad(two[0]) == WEFT_OK && weft_retain_grad(two[1]) == WEFT_OK);
    weft_tensor loss = weft_sum(weft_add(two[0], weft_mul(two[1], weft_f(7))));
    cr_assert_eq(weft_backward(loss), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(first(weft_grad(two[0])), 1);
    cr_assert_eq(first(weft_grad(two[1])), 7);
    cr_assert_eq(first(weft_grad(x)), 22);
    weft_scope_end(sc);
}

/* -- first and second order give the same bits ------------------------------------------------------- */

static void same_bits(weft_dtype dt)
{
    weft_scope sc = weft_scope_begin();
    weft_manual_seed(7);
    weft_tensor x = weft_cast(weft_randn(weft_shape(6, 40), WEFT_F32), dt);
    weft_tensor w = weft_cast(weft_randn(weft_shape(40), WEFT_F32), dt);
    weft_requires_grad_(x, true);
    weft_requires_grad_(w, true);
    float g[4][240];
    for (int create = 0; create < 2; create++) {
        weft_tensor h = weft_gelu(weft_mul(x, w));
        h = weft_softmax(weft_layer_norm(h, .weight = w), -1);
        weft_tensor loss = weft_sum(weft_mul(weft_log(weft_add(h, weft_f(1))), weft_tanh(x)));
        cr_assert_eq(weft_backward(loss, .create_graph = create == 1), WEFT_OK, "%s",
                     weft_last_error());
        weft_to_array(weft_grad(x), g[2 * create], 240, WEFT_F32);
        weft_to_array(weft_grad(w), g[2 * create + 1], 40, WEFT_F32);
        weft_set_grad(x, WEFT_NONE);
        weft_set_grad(w, WEFT_NONE);
    }
    cr_expect_arr_eq(g[0], g[2], sizeof g[0], "%s: gradient of x", weft_dtype_name(dt));
    cr_expect_arr_eq(g[1], g[3], 40 * sizeof(float), "%s: gradient of w", weft_dtype_name(dt));
    weft_scope_end(sc);
}

Test(autograd, fused_and_expanded_derivatives_agree_bit_for_bit)
{
    same_bits(WEFT_F32);
    same_bits(WEFT_F64);
}

/* -- scale ---------------------------------------------------------------------------------------------- */

static void *long_chain(void *arg)
{
    weft_tensor x = leaf(1), h = weft_keep(weft_mul(x, weft_f(1)));
    const int n = (int)effort_of(1000000); /* a frame each of a tenth of them is 5 MB, too */
    for (int i = 0; i < n; i++) {
        weft_assign(&h, weft_neg(h));
    }
    weft_status st = weft_backward(weft_sum(h));
    *(double *)arg = st == WEFT_OK ? first(weft_grad(x)) : -1;
    weft_free(h);
    return NULL;
}

Test(autograd, a_million_ops_need_no_stack)
{
    pthread_attr_t a;
    pthread_t t;
    double g = 0;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 1 << 20); /* an eighth of the promised 8 MB */
    cr_assert_eq(pthread_create(&t, &a, long_chain, &g), 0);
    pthread_join(t, NULL);
    cr_assert_eq(g, 1);
}

Test(autograd, evaluation_without_backward_does_not_grow)
{
    weft_tensor w = weft_keep(weft_randn(weft_shape(64, 64), WEFT_F32));
    weft_requires_grad_(w, true);
    weft_memory_stats a, b;
    for (int i = 0; i < 400; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor h = weft_tanh(weft_matmul(weft_ones(weft_shape(8, 64), WEFT_F32), w));
        cr_assert(weft_ok(weft_sum(h)));
        weft_scope_end(sc);
        if (i == 100) {
            weft_memory_get_stats(&a);
        }
    }
    weft_memory_get_stats(&b);
    cr_assert_eq(a.live_bytes, b.live_bytes);
    cr_assert_eq(a.reserved_bytes, b.reserved_bytes);
    cr_assert_leq(weft_tape_nodes(), 1);
    weft_free(w);
    cr_assert_eq(weft_tape_nodes(), 0);
}

/* Every layer has a parameter of the size of what it saves: what backward releases makes room for the gradients that it
 * leaves. Were it released at the end only, all of both would be alive then. */
Test(autograd, saved_memory_is_released_as_backward_passes)
{
    enum { LAYERS = 20, BYTES = 4 << 16 };
    weft_scope outer = weft_scope_begin();
    weft_tensor w[LAYERS], h = weft_ones(weft_shape(1 << 16), WEFT_F32);
    for (int i = 0; i < LAYERS; i++) {
        w[i] = weft_ones_like(h);
        weft_requires_grad_(w[i], true);
    }
    weft_scope sc = weft_scope_begin();
    for (int i = 0; i < LAYERS; i++) {
        h = weft_tanh(weft_add(h, w[i])); /* add saves nothing, tanh its result */
    }
    weft_tensor loss = weft_keep(weft_sum(h));
    weft_scope_end(sc);
    weft_memory_stats before, after;
    weft_memory_get_stats(&before);
    weft_memory_reset_peak();
    cr_assert_eq(weft_backward(loss), WEFT_OK);
    weft_memory_get_stats(&after);
    cr_assert_geq(before.live_bytes, 2 * LAYERS * BYTES); /* parameters and saved values */
    cr_assert_lt(
        after.live_bytes - before.live_bytes, 3 * BYTES, "%lld more are left",
        (long long)(after.live_bytes - before.live_bytes)); /* gradients for saved values */
    cr_assert_lt(after.peak_bytes - before.live_bytes, 6 * BYTES,
                 "the peak is %lld above the start",
                 (long long)(after.peak_bytes - before.live_bytes));
    weft_free(loss);
    weft_scope_end(outer);
}

/* -- threads ----------------------------------------------------------------------------------------------- */

typedef struct job {
    weft_tensor w; /* kept, shared by both threads */
    double grad;
    weft_status st;
} job;

static void *own_backward(void *arg)
{
    job *j = arg;
    for (int i = 0; i < 50; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = leaf(2);
        weft_tensor loss = weft_sum(weft_mul(weft_square(x), j->w));
        j->st = weft_backward(loss);
        j->grad = first(weft_grad(x));
        weft_scope_end(sc);
    }
    return NULL;
}

Test(autograd, two_threads_run_two_backwards_on_shared_parameters)
{
    weft_tensor w = weft_keep(leaf(3));
    job j[2] = {{.w = w}, {.w = w}};
    pthread_t t[2];
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(pthread_create(&t[i], NULL, own_backward, &j[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
        cr_assert_eq(j[i].st, WEFT_OK);
        cr_assert_eq(j[i].grad, 12);
    }
    cr_assert_eq(first(weft_grad(w)), 2 * 50 * 4);
    weft_free(w);
}

/* A kept tensor without a history, which another thread writes to with one and differentiates: its slot holds no node there. */
static weft_tensor lent, factor;

static void *differentiate_lent(void *arg)
{
    double *g = arg;
    weft_tensor by = WEFT_NONE, y = WEFT_NONE;
    weft_scope sc = weft_scope_begin();
    weft_status st = weft_mul_(lent, factor);
    weft_tensor all[] = {weft_sum(weft_square(lent)), weft_sum(weft_cumsum(lent, 0)),
                         weft_sum(weft_concat(WEFT_LIST(lent, lent, lent, lent), 0)),
                         weft_sum(weft_maximum(lent, weft_f(0)))};
    for (int i = 0; i < 4 && st == WEFT_OK; i++) {
        y = all[i];
        st = weft_grad_of(&y, 1, &factor, 1, &by, .retain_graph = true);
        g[i] = st ? -1 : first(by);
    }
    weft_scope_end(sc);
    return NULL;
}

Test(autograd, grad_of_through_a_tensor_that_another_thread_made)
{
    double g[4] = {0};
    pthread_t t;
    factor = weft_keep(leaf(3));
    lent = weft_keep(weft_full(weft_shape(2), 5, WEFT_F32));
    cr_assert_eq(pthread_create(&t, NULL, differentiate_lent, g), 0);
    pthread_join(t, NULL);
    cr_assert(g[0] == 150 && g[1] == 10 && g[2] == 20 && g[3] == 5, "%g %g %g %g", g[0], g[1], g[2],
              g[3]);
    weft_free(lent);
    weft_free(factor);
}

static void *use_foreign(void *arg)
{
    weft_tensor h = *(weft_tensor *)arg;
    weft_status *st = malloc(2 * sizeof *st);
    st[0] = weft_error_status(weft_square(h));
    weft_no_grad_begin();
    st[1] = weft_error_status(weft_square(h));
    weft_no_grad_end();
    return st;
}

Test(autograd, history_stays_on_its_thread)
{
    weft_tensor h = weft_keep(weft_square(leaf(1)));
    pthread_t t;
    void *r;
    pthread_create(&t, NULL, use_foreign, &h);
    pthread_join(t, &r);
    weft_status *st = r;
    cr_assert_eq(st[0], WEFT_EGRAD);
    cr_assert_eq(st[1], WEFT_OK);
    free(r);
    weft_free(h);
}

/* Memory that one thread has recorded writes to, of which another has a detached view: it may not be written with a history there, as its
 * nodes are the first thread's, and is as it was. */
static weft_tensor cut_off;

static void *write_cut_off(void *arg)
{
    weft_tensor more[3];
    double *g = arg;
    for (int i = 0; i < 3; i++) { /* what the first thread's numbers of nodes may be here */
        more[i] = weft_mul(factor, weft_f(2));
    }
    says(weft_mul_(cut_off, factor), WEFT_EGRAD, "with gradients on another thread", NULL);
    const weft_tensor own = weft_clone(cut_off);
    weft_status st = weft_mul_(own, factor);
    st = st ? st : weft_backward(weft_sum(weft_add(own, weft_mul(more[0], more[1]))));
    g[0] = st ? -1 : first(weft_grad(factor));
    return NULL;
}

Test(autograd, a_detached_view_of_another_threads_history_is_copied_to_be_written)
{
    const int64_t before = weft_tape_nodes();
    weft_scope sc = weft_scope_begin();
    weft_tensor x = leaf(1), y = weft_mul(x, weft_f(2));
    factor = weft_keep(leaf(3));
    cr_assert_eq(weft_mul_(weft_narrow(y, 0, 0, 1), weft_f(5)), WEFT_OK);
    cut_off = weft_keep(weft_detach(y));
    pthread_t t;
    double g = 0;
    cr_assert_eq(pthread_create(&t, NULL, write_cut_off, &g), 0);
    pthread_join(t, NULL);
    cr_assert_eq(g, 10 + 8 * 3);
    cr_assert_eq(first(cut_off), 10);
    cr_assert_eq(weft_backward(weft_sum(y)), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(first(weft_grad(x)), 10);
    weft_scope_end(sc);
    weft_free(cut_off);
    weft_free(factor);
    weft_clone(leaf(1)); /* takes what came back from there */
    cr_assert_leq(weft_tape_nodes() - before, 2);
}

Test(autograd, grad_of_leaves_accumulated_gradients_alone)
{
    weft_tensor x = leaf(3), y = weft_square(x), z = weft_sum(weft_mul(y, y)), g[2];
    weft_tensor in[2] = {x, y};
    cr_assert_eq(weft_grad_of(.outputs = &z, .n_outputs = 1, .inputs = in, .n_inputs = 2,
                              .grads = g, .create_graph = true),
                 WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(first(g[0]), 4 * 27);
    cr_assert_eq(first(g[1]), 18);
    cr_assert(!weft_has_grad(x));
    weft_tensor gs = weft_sum(g[0]), g2;
    cr_assert_eq(
        weft_grad_of(.outputs = &gs, .n_outputs = 1, .inputs = &x, .n_inputs = 1, .grads = &g2),
        WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(first(g2), 12 * 9);
    weft_tensor unused = leaf(1);
    cr_assert_eq(weft_grad_of(.outputs = &gs, .n_outputs = 1, .inputs = &unused, .n_inputs = 1,
                              .grads = &g2),
                 WEFT_EGRAD);
}

/* -- forward mode ------------------------------------------------------------------------------------------ */

Test(autograd, forward_products_agree_with_backward)
{
    weft_manual_seed(11);
    weft_tensor x = weft_randn(weft_shape(3, 4), WEFT_F64),
                w = weft_randn(weft_shape(4, 4), WEFT_F64);
    weft_requires_grad_(x, true);
    weft_requires_grad_(w, true);
    weft_tensor h = weft_tanh(weft_matmul(x, w));
    weft_tensor out[2] = {weft_softmax(weft_layer_norm(h, .axes = 1), -1),
                          weft_logsumexp(h, .axes = weft_axes(0))};
    weft_tensor in[2] = {x, w}, t[2], u[2], jt[2], ju[2];
    for (int i = 0; i < 2; i++) {
        t[i] = weft_randn(weft_shape_of(in[i]), WEFT_F64);
        u[i] = weft_randn(weft_shape_of(out[i]), WEFT_F64);
    }
    cr_assert_eq(weft_jvp(.outputs = out, .n_outputs = 2, .inputs = in, .n_inputs = 2,
                          .tangents = t, .results = jt),
                 WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_grad_of(.outputs = out, .n_outputs = 2, .inputs = in, .n_inputs = 2,
                              .grads = ju, .grad_outputs = u),
                 WEFT_OK, "%s", weft_last_error());
    double left = 0, right = 0;
    for (int i = 0; i < 2; i++) {
        left += weft_item_f64(weft_sum(weft_mul(u[i], jt[i])));
        right += weft_item_f64(weft_sum(weft_mul(ju[i], t[i])));
    }
    cr_assert(left != 0);
    cr_assert_float_eq(left, right, 1e-12 * (1 + (left < 0 ? -left : left)),
                       "<u, Jt> = %.17g, <J'u, t> = %.17g", left, right);
}

/* A tangent that broadcasts with its input is refused: its elements would count several times. */
Test(autograd, tangents_are_of_their_inputs_types)
{
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32), r;
    weft_requires_grad_(x, true);
    weft_tensor y = weft_mul(x, x), dead = weft_ones(weft_shape(3), WEFT_F32);
    weft_free(dead);
    const struct {
        weft_tensor tangent;
        weft_status status;
    } bad[] = {{weft_ones(weft_shape(2, 3), WEFT_F32), WEFT_ESHAPE},
               {weft_ones(weft_shape(1), WEFT_F32), WEFT_ESHAPE},
               {weft_ones(weft_shape(3), WEFT_F64), WEFT_EDTYPE},
               {weft_f(1), WEFT_EINVALID},
               {dead, WEFT_EHANDLE},
               {weft_add(dead, x), WEFT_EHANDLE}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_eq(weft_jvp(&y, 1, &x, 1, &bad[i].tangent, &r), bad[i].status, "%zu: %s", i,
                     weft_last_error());
        cr_expect_eq(r.slot, 0);
        cr_expect_eq(weft_error_status(r), bad[i].status);
    }
    weft_tensor good = weft_full(weft_shape(3), 0.5, WEFT_F32);
    cr_assert_eq(weft_jvp(&y, 1, &x, 1, &good, &r), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_item_f64(weft_sum(r)), 3);
}

/* A write to a whole tensor is the op that made the value, and no more; of another type or extent it is made to fit. */
Test(autograd, a_write_in_place_is_one_node)
{
    weft_tensor w = weft_ones(weft_shape(2, 3), WEFT_F32);
    weft_requires_grad_(w, true);
    weft_tensor y = weft_mul(w, weft_f(1.5)), z = weft_mul(w, weft_f(1.5));
    int64_t nodes = weft_tape_nodes();
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(weft_mul_(y, weft_f(2)), WEFT_OK);
    }
    cr_assert_eq(weft_tape_nodes() - nodes, 10);
    nodes = weft_tape_nodes();
    cr_assert_eq(weft_copy_(z, y), WEFT_OK); /* y and z go on apart: hooks, kept gradients */
    cr_assert_gt(weft_tape_nodes(), nodes);
    cr_assert_eq(weft_retain_grad(z), WEFT_OK);
    cr_assert_eq(weft_exp_(weft_slice(y, 0, 0, 1, 1)), WEFT_OK);
    cr_assert_eq(weft_backward(weft_sum(weft_mul(z, weft_f(2)))), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_item_f64(weft_mean(weft_grad(w))), 2 * 1.5 * 1024);
    cr_assert_eq(weft_item_f64(weft_mean(weft_grad(z))), 2);
    cr_assert_not(weft_has_grad(y));
}
