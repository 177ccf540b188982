/*
 * tests/unit/test_core.c -- handles, ownership, re-entrancy and modes of the core under use that is odd
 * but allowed: hooks that keep, free and run backward, custom functions that free their operands,
 * tensors written on another thread, hostile sizes, a foreign floating-point mode.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <fenv.h>
#include <float.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "eager/alloc.h"
#include "eager/tensor.h"
#include "jit/trace.h"
#include "tests/support/sanitized.h"
#include "weft/weft.h"

#define OK(call) cr_assert_eq(call, WEFT_OK, "%s", weft_last_error())
#define S(...) weft_shape(__VA_ARGS__)

static double value(weft_tensor t)
{
    double v = NAN;
    OK(weft_item(t, &v));
    return v;
}

static weft_tensor leaf(int64_t n, double x)
{
    weft_tensor t = weft_full(S(n), x, WEFT_F32);
    OK(weft_requires_grad_(t, true));
    return t;
}

/* -- hooks ------------------------------------------------------------------------------------------ */

static weft_tensor hook_keep(void *user, weft_tensor g)
{
    *(weft_tensor *)user = weft_keep(g);
    return WEFT_NONE;
}

static weft_tensor hook_free(void *user, weft_tensor g)
{
    (void)user;
    weft_free(g);
    return WEFT_NONE;
}

Test(hooks, may_keep_or_free_what_they_are_shown)
{
    weft_tensor x = leaf(3, 2), kept = WEFT_NONE, post = WEFT_NONE;
    weft_tensor y = weft_mul(x, x);
    cr_assert(weft_register_hook(y, hook_keep, &kept, NULL));
    cr_assert(weft_register_hook(y, hook_free, NULL, NULL));
    cr_assert(weft_register_post_hook(x, hook_keep, &post, NULL));
    cr_assert(weft_register_post_hook(x, hook_free, NULL, NULL));
    OK(weft_backward(weft_sum(y)));
    cr_assert(weft_ok(kept) && weft_ok(post), "a kept gradient died with backward");
    cr_assert_eq(value(weft_sum(kept)), 3);
    cr_assert_eq(value(weft_sum(weft_grad(x))), 12);
    OK(weft_free(kept));
    OK(weft_free(post));
    cr_assert(weft_has_grad(x) && weft_ok(weft_grad(x)), "a post hook freed the gradient itself");
    cr_assert_eq(weft_leak_report(NULL), 1); /* the gradient itself */
}

typedef struct pair {
    weft_tensor t;
    uint64_t first, second;
    int calls;
} pair;

static weft_tensor hook_remove_both(void *user, weft_tensor g)
{
    pair *p = user;
    (void)g;
    p->calls++;
    OK(weft_remove_hook(p->t, p->first));
    OK(weft_remove_hook(p->t, p->second));
    return WEFT_NONE;
}

Test(hooks, may_remove_themselves_and_the_next)
{
    pair p = {.t = leaf(2, 1)};
    p.first = weft_register_hook(p.t, hook_remove_both, &p, NULL);
    p.second = weft_register_hook(p.t, hook_remove_both, &p, NULL);
    OK(weft_backward(weft_sum(p.t)));
    cr_assert_eq(p.calls, 1);
}

static weft_tensor hook_backward(void *user, weft_tensor g)
{
    weft_tensor x = *(weft_tensor *)user;
    (void)g;
    uint32_t mode = weft_enable_grad_begin();
    OK(weft_backward(weft_sum(weft_mul(x, weft_f(10)))));
    cr_assert_eq(value(weft_grad(x)), 10); /* without what the outer one has under way */
    weft_enable_grad_end(mode);
    return WEFT_NONE;
}

Test(hooks, may_run_backward_over_the_same_leaves)
{
    weft_tensor x = leaf(1, 3);
    weft_tensor a = weft_mul(x, weft_f(2));
    weft_tensor loss =
        weft_sum(weft_add(weft_mul(x, weft_f(7)), a)); /* x has 7 pending at a's hook */
    cr_assert(weft_register_hook(a, hook_backward, &x, NULL));
    OK(weft_backward(loss));
    cr_assert_eq(value(weft_grad(x)), 19);
}

Test(hooks, may_run_backward_inside_grad_of)
{
    weft_tensor x = leaf(1, 3), other = leaf(1, 2), g;
    weft_tensor a = weft_mul(x, weft_f(2)), loss = weft_sum(weft_add(weft_mul(x, other), a));
    cr_assert(weft_register_hook(a, hook_backward, &x, NULL));
    OK(weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &x, .n_inputs = 1, .grads = &g));
    cr_assert_eq(value(g), 4);
    cr_assert_eq(value(weft_grad(x)), 10);
    OK(weft_backward(weft_sum(weft_mul(other, other)))); /* nothing stays marked as skipped */
    cr_assert_eq(value(weft_grad(other)), 4);
}

static weft_tensor hook_count(void *user, weft_tensor g)
{
    (void)g;
    ++*(int *)user;
    return WEFT_NONE;
}

Test(backward, retained_gradients_accumulate_and_grad_of_leaves_them)
{
    weft_tensor x = leaf(1, 3), y = weft_mul(x, weft_f(2)), g;
    int calls = 0;
    OK(weft_retain_grad(y));
    cr_assert(weft_register_hook(y, hook_count, &calls, NULL));
    weft_tensor z = weft_sum(weft_mul(y, weft_f(5)));
    OK(weft_grad_of(.outputs = &z, .n_outputs = 1, .inputs = &x, .n_inputs = 1, .grads = &g,
                    .retain_graph = true));
    cr_assert(!weft_has_grad(y), "grad_of touched a retained gradient");
    OK(weft_backward(z, .retain_graph = true));
    OK(weft_backward(z));
    cr_assert_eq(value(weft_grad(y)), 10);
    cr_assert_eq(value(weft_grad(x)), 20);
    cr_assert_eq(calls, 3);
}

Test(backward, a_leaf_gradient_set_by_hand_may_be_any_view)
{
    weft_tensor x = leaf(4, 1);
    OK(weft_set_grad(x, weft_expand(weft_full(S(1), 2, WEFT_F32), S(4))));
    OK(weft_backward(weft_sum(x)));
    cr_assert_eq(value(weft_sum(weft_grad(x))), 12);
}

Test(backward, grad_of_leaves_no_dead_handles_behind_on_failure)
{
    weft_tensor x = leaf(1, 3), other = leaf(1, 1), in[2] = {x, other}, g[2];
    weft_tensor z = weft_sum(weft_mul(x, x));
    cr_assert_neq(
        weft_grad_of(.outputs = &z, .n_outputs = 1, .inputs = in, .n_inputs = 2, .grads = g),
        WEFT_OK);
    cr_assert(g[0].slot == 0 && g[1].slot == 0);
}

/* -- custom functions ------------------------------------------------------------------------------- */

static weft_tensor captured;
enum { FREES, TWICE, CAPTURES };

static weft_status odd_forward(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                               weft_tensor *out, int n_out)
{
    (void)n_in;
    int how = *(int *)user;
    if (how == FREES) {
        out[0] = weft_mul(in[0], weft_f(2));
        return weft_free(in[0]);
    }
    out[0] = how == TWICE ? weft_mul(in[0], weft_f(2)) : captured;
    OK(weft_function_save(ctx, &out[0], 1));
    if (n_out > 1) {
        out[1] = out[0];
    }
    return WEFT_OK;
}

static weft_status odd_backward(weft_function_ctx *ctx, void *user, const weft_tensor *g, int n_out,
                                weft_tensor *grad_in, const bool *needs, int n_in)
{
    (void)ctx, (void)user, (void)n_in, (void)needs, (void)n_out;
    grad_in[0] = weft_mul(g[0].slot ? g[0] : g[1], weft_f(2));
    if (g[0].slot) {
        weft_free(g[0]);
    }
    return WEFT_OK;
}

static const weft_function odd = {.name = "odd", .forward = odd_forward, .backward = odd_backward};

Test(custom, survives_functions_that_free_their_operands)
{
    int how = FREES;
    weft_tensor x = leaf(2, 1), y = weft_mul(x, weft_f(3)), out;
    weft_status st = weft_apply(&odd, &how, &y, 1, &out, 1);
    cr_assert_eq(st, WEFT_EHANDLE, "%d: %s", (int)st, weft_last_error());
}

Test(custom, one_tensor_may_be_two_results)
{
    int how = TWICE;
    weft_tensor x = leaf(2, 1), out[2];
    OK(weft_apply(&odd, &how, &x, 1, out, 2));
    OK(weft_backward(weft_sum(out[1])));
    cr_assert_eq(value(weft_sum(weft_grad(x))), 4);
}

Test(custom, a_captured_tensor_as_result_keeps_its_own_record)
{
    int how = CAPTURES;
    captured = leaf(2, 5);
    weft_tensor x = leaf(2, 1), out;
    OK(weft_apply(&odd, &how, &x, 1, &out, 1));
    cr_assert(weft_is_leaf(captured));
    OK(weft_backward(weft_sum(captured)));
    cr_assert(!weft_has_grad(x) && weft_has_grad(captured));
}

/* -- threads ---------------------------------------------------------------------------------------- */

static weft_tensor shared;

static void *write_recorded(void *arg)
{
    weft_tensor w = leaf(4, 3);
    for (int i = 0; i < 700; i++) { /* so that this tape's numbers mean nothing elsewhere */
        weft_mul(w, w);
    }
    (void)arg;
    OK(weft_copy_(shared, weft_mul(w, weft_f(2))));
    OK(weft_backward(weft_sum(weft_mul(shared, shared))));
    cr_assert_eq(value(weft_sum(weft_grad(w))), 4 * 2 * 6 * 2);
    return NULL;
}

Test(threads, a_recorded_write_to_a_tensor_of_another_thread)
{
    pthread_t t;
    shared = weft_keep(weft_zeros(S(4), WEFT_F32));
    pthread_create(&t, NULL, write_recorded, NULL);
    pthread_join(t, NULL);
    weft_status st = weft_free(shared);
    cr_assert_eq(st, WEFT_OK);
    weft_tensor x = leaf(2, 1);
    OK(weft_backward(weft_sum(weft_mul(x, x))));
}

static void *free_many(void *arg)
{
    weft_tensor *t = arg;
    for (int i = 0; i < 2000; i++) {
        weft_free(t[i]);
    }
    return NULL;
}

Test(threads, counting_live_tensors_freed_elsewhere)
{
    static weft_tensor t[2000];
    weft_memory_stats a, b;
    weft_memory_get_stats(&a);
    for (int i = 0; i < 2000; i++) {
        t[i] = weft_keep(weft_zeros(S(1), WEFT_F32));
    }
    pthread_t other;
    pthread_create(&other, NULL, free_many, t);
    for (int i = 0; i < 20000; i++) {
        weft_free(weft_zeros(S(1), WEFT_F32));
    }
    pthread_join(other, NULL);
    weft_memory_get_stats(&b);
    cr_assert_eq(a.live_tensors, b.live_tensors);
    cr_assert_eq(a.kept_tensors, b.kept_tensors);
}

static weft_status doubled(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_mul(in[0], shared);
    return weft_error_status(out[0]);
}

static void *rename_shared(void *arg)
{
    (void)arg;
    for (int i = 0; i < 300; i++) {
        OK(weft_set_name(shared, i % 3 ? "a name" : i % 2 ? "another, which is longer" : NULL));
    }
    return NULL;
}

/* What copies a name does so while another thread gives the tensor a new one: tape, its text, graphs. */
Test(threads, renaming_a_leaf_that_is_printed_and_captured)
{
    shared = weft_keep(leaf(4, 1));
    pthread_t t;
    pthread_create(&t, NULL, rename_shared, NULL);
    for (int i = 0; i < 30; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor x = weft_ones(S(4), WEFT_F32), y = weft_square(weft_mul(x, shared));
        char text[4096] = "";
        FILE *out = fmemopen(text, sizeof text, "w");
        OK(weft_tape_print(out, y));
        fclose(out);
        cr_assert(strstr(text, "square"));
        weft_no_grad_begin();
        weft_graph *g = weft_jit_graph(doubled, NULL, &x, 1);
        weft_no_grad_end();
        cr_assert(g, "%s", weft_last_error());
        weft_graph_free(g);
        weft_scope_end(s);
    }
    pthread_join(t, NULL);
    OK(weft_free(shared));
}

static void *shared_backward(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++) {
        weft_scope s = weft_scope_begin();
        OK(weft_backward(weft_sum(weft_mul(shared, shared))));
        weft_tensor g = weft_grad(shared);
        cr_assert(weft_ok(g), "%s", weft_error_text(g));
        cr_assert(weft_has_grad(shared));
        uint64_t h = weft_register_hook(shared, hook_free, NULL, NULL);
        OK(weft_remove_hook(shared, h));
        weft_scope_end(s);
    }
    return NULL;
}

Test(threads, backward_into_one_leaf_while_its_gradient_is_read)
{
    pthread_t t[2];
    shared = weft_keep(leaf(4, 1));
    for (int i = 0; i < 2; i++) {
        pthread_create(&t[i], NULL, shared_backward, NULL);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
    }
    cr_assert_eq(value(weft_sum(weft_grad(shared))), 2 * 50 * 8);
    OK(weft_free(shared));
}

/* -- operands, sizes, writes ------------------------------------------------------------------------ */

Test(operands, many_with_scalars_among_them)
{
    weft_tensor part[40];
    for (int i = 0; i < 40; i++) {
        part[i] = i % 2 ? weft_f(i) : weft_full(S(1), i, WEFT_F32);
    }
    weft_tensor y = weft_concat(part, 40, 0); /* 0-d scalars do not fit: an error, not a crash */
    cr_assert(!weft_ok(y));
    for (int i = 0; i < 40; i++) {
        part[i] = i % 2 ? weft_f(i) : weft_full(weft_shape(), i, WEFT_F32);
    }
    y = weft_stack(part, 40, 0);
    cr_assert(weft_ok(y), "%s", weft_error_text(y));
    cr_assert_eq(value(weft_sum(y)), 780);
}

Test(operands, sizes_that_overflow)
{
    int64_t big = INT64_C(1) << 61;
    cr_assert(!weft_ok(weft_zeros(S(big), WEFT_F64)));
    cr_assert(!weft_ok(weft_zeros(S(big, big), WEFT_I8)));
    weft_tensor z = weft_zeros(S(big, 0), WEFT_F32), one = weft_ones(S(1), WEFT_F32);
    weft_add(z, z);
    weft_sum(z);
    weft_add(weft_expand(one, S(big)), weft_expand(one, S(big)));
    weft_as_strided(one, S(0), S(INT64_MIN), INT64_MAX / 32);
    weft_tensor v = weft_as_strided(one, S(big, 0), S(INT64_MIN, INT64_MAX), 0);
    if (weft_ok(v)) {
        weft_fill_(v, 1);
        weft_add_(v, weft_f(1));
        weft_add(v, v);
    }
    cr_assert(!weft_ok(weft_as_strided(one, S(2), S(INT64_MIN), 0)));
    cr_assert(!weft_ok(weft_as_strided(one, S(3, 3), S(INT64_MAX, INT64_MAX), 0)));
    weft_clear_error();
}

Test(writes, rounding_does_not_depend_on_being_in_place)
{
    weft_tensor i = weft_full(S(1), 2049, WEFT_I32), h = weft_full(S(1), 3, WEFT_F16);
    double apart = value(weft_add(h, i));
    OK(weft_add_(h, i));
    cr_assert_eq(value(h), apart);
}

Test(writes, two_imports_of_one_memory_may_overlap)
{
    float memory[5] = {1, 2, 3, 4, 5};
    weft_tensor a = weft_from_blob(.data = memory, .shape = S(4), .dtype = WEFT_F32);
    weft_tensor b = weft_from_blob(.data = memory + 1, .shape = S(4), .dtype = WEFT_F32);
    OK(weft_copy_(b, a));
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(memory[i + 1], (float)(i + 1));
    }
}

static weft_scope ended[3]; /* by deleters: the one that is being ended, one around it */

static void end_one(void *which)
{
    weft_scope_end(*(const weft_scope *)which);
}

static void leave_one_open(void *unused)
{
    (void)unused;
    weft_scope_begin();
    weft_ones(weft_shape(3), WEFT_F32);
}

/* Deleters run while a scope ends, and may end and begin others. */
Test(scopes, deleters_that_end_and_begin_them)
{
    static float memory[4];
    for (int which = 0; which < 3; which++) {
        ended[2] = weft_scope_begin();
        weft_ones(weft_shape(2), WEFT_F32);
        ended[1] = weft_scope_begin();
        const weft_tensor outer = weft_ones(weft_shape(3), WEFT_F32);
        ended[0] = weft_scope_begin();
        weft_scope_begin(); /* left open: ends with the one around it */
        weft_from_blob(memory, weft_shape(4), WEFT_F32, .deleter = which ? end_one : leave_one_open,
                       .arg = &ended[which - 1 + !which]);
        cr_assert_eq(weft_scope_end(ended[0]), WEFT_OK);
        cr_assert_eq(weft_last_status(), which == 1 ? WEFT_EHANDLE : WEFT_OK);
        weft_clear_error();
        cr_assert_eq(weft_ok(outer), which != 2);
        weft_clear_error();
        cr_assert_eq(weft_scope_end(ended[1]), which == 2 ? WEFT_EHANDLE : WEFT_OK);
        weft_clear_error();
        cr_assert_eq(weft_scope_end(ended[2]), WEFT_OK);
        cr_assert_eq(weft_leak_report(NULL), 0);
    }
}

Test(assign, leaves_the_variable_alone_when_the_value_is_dead)
{
    weft_tensor x = weft_keep(weft_ones(S(1), WEFT_F32)), v = weft_ones(S(1), WEFT_F32);
    OK(weft_free(v));
    cr_assert_eq(weft_assign(&x, v), WEFT_EHANDLE);
    /* `return weft_error_status(y)` of a tensor whose scope has ended is no success. */
    cr_assert_eq(weft_error_status(v), WEFT_EHANDLE);
    cr_assert(strstr(weft_error_text(v), "dead"));
    cr_assert_eq(weft_error_status(weft_f(1)), WEFT_OK);
    cr_assert(weft_ok(x));
    OK(weft_free(x));
}

/* -- modes ------------------------------------------------------------------------------------------- */

/* A trace that is given up takes the values with it: what was made in it says so. */
Test(trace, autograd_in_a_trace_that_is_given_up)
{
    weft_tensor x = leaf(2, 1), y = weft_sum(weft_mul(x, x));
    wf_trace *t = wf_trace_begin("f");
    weft_tensor z = weft_sum(weft_mul(x, x)), v = weft_mul(x, x);
    OK(weft_retain_grad(v));
    cr_assert_neq(weft_requires_grad_(z, true), WEFT_OK); /* no leaf, traced or not */
    int calls = 0;
    cr_assert_neq(weft_register_hook(z, hook_count, &calls, NULL), 0);
    OK(weft_backward(z));
    cr_assert_eq(calls, 1);
    cr_assert_neq(weft_backward(z), WEFT_OK); /* spent */
    cr_assert(weft_has_grad(x));
    wf_trace_abort(t);
    double d;
    cr_assert_neq(weft_item(z, &d), WEFT_OK);
    cr_assert_neq(weft_item(weft_sum(weft_grad(x)), &d), WEFT_OK);
    OK(weft_set_grad(x, WEFT_NONE));
    OK(weft_backward(y));
    cr_assert_eq(value(weft_sum(weft_grad(x))), 4);
}

#ifdef __SSE2__
Test(modes, kernels_run_round_to_nearest_with_denormals)
{
    unsigned before = _mm_getcsr();
    weft_tensor x = weft_full(S(3), (double)FLT_MIN, WEFT_F32),
                third = weft_full(S(3), 3, WEFT_F32);
    weft_tensor q = weft_div(weft_full(S(3), 1, WEFT_F32), third);
    weft_tensor p = leaf(3, 0.5);
    unsigned odd_mode = before | 0x8040u | 0x6000u; /* FTZ, DAZ, toward zero */
    _mm_setcsr(odd_mode);
    weft_tensor half = weft_mul(x, weft_f(0.5));
    weft_tensor r = weft_div(weft_full(S(3), 1, WEFT_F32), third);
    weft_status st = weft_mul_(x, weft_f(0.5));
    weft_status back = weft_backward(weft_sum(weft_mul(weft_mul(p, weft_f(1.5e-38)), weft_f(0.5))));
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    cr_assert_eq(after & ~0x3Fu, odd_mode & ~0x3Fu, "the caller's mode was changed");
    OK(st);
    OK(back);
    cr_assert_eq(value(weft_max(half)), (double)FLT_MIN / 2);
    cr_assert_eq(value(weft_max(x)), (double)FLT_MIN / 2);
    cr_assert_eq(value(weft_max(r)), value(weft_max(q)));
    cr_assert_gt(value(weft_max(weft_grad(p))), 0);
}

typedef struct f64_model {
    weft_module *m;
    weft_optim *o;
    weft_tensor p;
} f64_model;

static weft_status f64_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    f64_model *m = self;
    (void)n_in;
    (void)n_out;
    weft_module_zero_grad(m->m);
    const weft_tensor loss = weft_sum(weft_mul(weft_mul(m->p, m->p), in[0]));
    weft_backward(loss);
    out[0] = weft_detach(loss);
    weft_module_clip_grad_norm(m->m, 0.7, NULL);
    return weft_optim_step(m->o);
}

/* An AdamW step in f64, clipped by the host, then six more in a trace that freezes them: the parameter. */
static weft_tensor trained(void)
{
    double norm = 0;
    const weft_tensor x = weft_linspace(0.5, 2, 300, WEFT_F64);
    f64_model m = {.m = weft_module_new(NULL), .p = weft_full(S(300), 0.3, WEFT_F64)};
    OK(weft_requires_grad_(m.p, true));
    weft_module_parameter(m.m, "p", m.p);
    m.o = weft_adamw_new(m.m, .lr = 1e-3);
    OK(weft_backward(weft_sum(weft_mul(m.p, x))));
    OK(weft_module_clip_grad_norm(m.m, 0.7, &norm));
    OK(weft_optim_step(m.o));
    weft_jit *j = weft_jit_trace(f64_step, &m, .frozen = true, .synchronous = true);
    weft_jit_stats st;
    for (int i = 0; i < 6; i++) {
        weft_tensor loss;
        OK(weft_jit_call(j, &x, 1, &loss, 1));
    }
    weft_jit_get_stats(j, &st);
    cr_expect_gt(st.frozen, 0, "no step was replayed");
    const weft_tensor end = weft_clone(weft_detach(m.p));
    weft_jit_free(j);
    weft_optim_free(m.o);
    weft_module_free(m.m);
    return end;
}

/* Initial values of three kinds, whose spread is computed from the shape. */
static weft_tensor drawn(int kind)
{
    weft_generator g = {5, 0};
    weft_tensor t = weft_zeros(S(15, 20), WEFT_F64);
    if (kind == 2) {
        weft_module *m = weft_module_new(&g);
        weft_nn_linear layer;
        OK(weft_nn_linear_init(&layer, m, "layer", 11, 13));
        t = weft_clone(layer.weight);
        weft_module_free(m);
        return t;
    }
    OK(kind ? weft_init_kaiming_normal(t, 0.3, WEFT_FAN_IN, &g)
            : weft_init_xavier_uniform(t, 1.7, &g));
    return t;
}

/* Bits of all that a number goes through on its way into a kernel, and of what is read back. */
static uint64_t bits_of_numbers(void)
{
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_linspace(-1, 1, 300, WEFT_F32), tiny = weft_full(S(3), 1e-40, WEFT_F32);
    weft_tensor w = weft_clone(x), u = leaf(300, 0.3), p = leaf(300, 0.7),
                big = weft_zeros(S(2), WEFT_F32);
    OK(weft_add_(w, weft_f(0.7)));
    OK(weft_mul_(w, weft_f(1e-39)));
    OK(weft_add_(big, weft_i(16777217 * 3L)));
    OK(weft_backward(weft_sum(weft_mul(weft_softmax(weft_mul(u, weft_f(0.3)), -1), u))));
    weft_module *m = weft_module_new(NULL);
    weft_module_parameter(m, "p", p);
    weft_optim *o = weft_adamw_new(m, .lr = 1e-3);
    OK(weft_set_grad(p, weft_clone(x)));
    OK(weft_optim_step(o));
    OK(weft_set_grad(p, weft_full(S(300), 1e-40, WEFT_F32)));
    OK(weft_optim_step(o));
    const weft_tensor made[] = {
        weft_mul(x, weft_f(0.1)),
        weft_mul(weft_transpose(weft_reshape(x, S(15, 20)), 0, 1), weft_f(0.1)),
        weft_mul(x, weft_f(1e-39)),
        weft_add(weft_zeros(S(3), WEFT_F64), weft_i((1L << 53) + 1)),
        weft_add(weft_transpose(weft_zeros(S(2, 3), WEFT_F64), 0, 1), weft_i(-(1L << 53) - 3)),
        weft_clamp(x, weft_f(-0.1), weft_f(0.1)),
        weft_where(weft_greater(x, weft_f(0.1)), weft_f(0.1), x),
        weft_pow(weft_abs(x), weft_f(0.3)),
        weft_isclose(x, weft_mul(x, weft_f(1.00001))),
        weft_arange(0, 1, 0.1, WEFT_F32),
        weft_cast(tiny, WEFT_F64),
        w,
        big,
        weft_grad(u),
        p,
        trained(),
        weft_dropout(x, .p = 0.7, .generator = &(weft_generator){5, 0}),
        drawn(0),
        drawn(1),
        drawn(2),
        weft_scaled_dot_product_attention(weft_reshape(x, S(1, 20, 15)),
                                          weft_reshape(x, S(1, 20, 15)),
                                          weft_reshape(p, S(1, 20, 15)))};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        unsigned char bytes[2400] = {0};
        double as_f64[300] = {0};
        const int64_t n = weft_numel(made[i]);
        OK(weft_error_status(made[i]));
        OK(weft_to_array(made[i], bytes, n, WEFT_DTYPE_DEFAULT));
        OK(weft_to_array(made[i], as_f64, n, WEFT_F64));
        for (size_t k = 0; k < sizeof bytes; k++) {
            hash = (hash ^ bytes[k]) * 1099511628211u;
        }
        for (size_t k = 0; k < 300; k++) {
            uint64_t b;
            memcpy(&b, &as_f64[k], sizeof b);
            hash = (hash ^ b) * 1099511628211u;
        }
    }
    float third = 0;
    OK(weft_to_array(weft_scalar(1.0 / 3, WEFT_F64), &third, 1, WEFT_F32));
    double items[] = {weft_item_f64(weft_select(tiny, 0, 1)), (double)third,
                      weft_lr_cosine(1, 7, 30, 0.1, 0.01),    weft_lr_cosine(11, 7, 30, 0.1, 0.01),
                      weft_lr_linear(11, 7, 30, 0.1, 0.01),   weft_lr_inverse_sqrt(11, 7, 0.1),
                      weft_lr_step(11, 3, 0.1, 0.7),          weft_lr_exponential(11, 0.1, 0.7)};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        uint64_t b;
        memcpy(&b, &items[i], sizeof b);
        hash = (hash ^ b) * 1099511628211u;
    }
    weft_optim_free(o);
    weft_module_free(m);
    weft_scope_end(s);
    return hash;
}

Test(modes, numbers_are_the_same_in_all)
{
    const uint64_t want = bits_of_numbers();
    const unsigned before = _mm_getcsr() & ~0x3Fu;
    const unsigned modes[] = {before | 0x8040u, before | 0x2000u, before | 0x4000u,
                              before | 0x6000u,
                              before & ~0x680u /* traps: invalid, division by zero, overflow */};
    for (int i = 0; i < 5; i++) {
        _mm_setcsr(modes[i]);
        const uint64_t got = bits_of_numbers();
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        cr_expect_eq(got, want, "mode %x", modes[i]);
        cr_expect_eq(after & ~0x3Fu, modes[i], "mode %x was changed", modes[i]);
    }
}
#endif

/* -- the program's end ---------------------------------------------------------------------------------- */

/* A handler from before weft was used, like a destructor of a C++ program's: it runs when oneDNN's objects are gone. */
static weft_status early = WEFT_EHANDLE; /* of the products before the end */
static void late_product(void)
{
    weft_tensor x = weft_full(S(320, 320), 2, WEFT_F32), image = weft_ones(S(1, 3, 8, 8), WEFT_F32);
    const double product = weft_item_f64(weft_sum(weft_matmul(x, x)));
    const double conv =
        weft_item_f64(weft_sum(weft_conv2d(image, weft_ones(S(2, 3, 3, 3), WEFT_F32))));
    _exit(early ? 2 : product == 320.0 * 320 * 320 * 4 && conv == 2 * 36 * 27 ? 0 : 1);
}

Test(end, handlers_may_use_weft, .timeout = 60, .disabled = UNDER_TSAN)
{
    const pid_t child = fork();
    int status = -1;
    if (child == 0) {
        alarm(50); /* it used to hang */
#ifdef M_PERTURB
        mallopt(M_PERTURB, 0xA5); /* what was freed is no lock any more */
#endif
        atexit(late_product);
        weft_tensor x = weft_ones(S(300, 300), WEFT_F32),
                    image = weft_ones(S(1, 3, 8, 8), WEFT_F32);
        weft_matmul(x, x);
        weft_conv2d(image, weft_ones(S(2, 3, 3, 3), WEFT_F32));
        early = weft_last_status();
        exit(3); /* never seen: the handler says what came of it */
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

/* -- failing allocations -------------------------------------------------------------------------------- */

static weft_status whole_story(void)
{
    int how = TWICE;
    weft_tensor x = weft_full(S(40), 2, WEFT_F32), part[12], out[2], g;
    weft_requires_grad_(x, true);
    weft_tensor y = weft_mul(weft_add(x, weft_f(1)), x);
    for (int i = 0; i < 12; i++) {
        part[i] = weft_slice(y, 0, i, i + 3, 1);
    }
    weft_tensor z = weft_concat(part, 12, 0);
    weft_status st = weft_apply(&odd, &how, &z, 1, out, 2);
    if (st == WEFT_OK) {
        weft_mul_(out[0], weft_f(2));
        weft_retain_grad(out[1]);
        weft_register_hook(out[1], hook_free, NULL, NULL);
        weft_tensor loss = weft_sum(weft_exp(weft_mul(out[1], weft_f(0.01))));
        st = weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                          .grads = &g, .create_graph = true, .allow_unused = true);
        if (st == WEFT_OK) {
            st = weft_backward(weft_sum(weft_mul(g, g)));
        }
    }
    return st;
}

Test(failing, any_allocation_of_a_whole_session)
{
    weft_scope warm = weft_scope_begin();
    whole_story();
    weft_scope_end(warm);
    int64_t nodes = weft_tape_nodes(), kept = weft_leak_report(NULL);
    for (int64_t n = 1; n < 3000; n++) {
        weft_scope s = weft_scope_begin();
        wf_alloc_fail_after(n, 0);
        weft_status st = whole_story();
        wf_alloc_fail_after(0, 0);
        weft_scope_end(s);
        cr_assert_eq(weft_leak_report(NULL), kept, "allocation %d leaks a kept tensor", (int)n);
        cr_assert_eq(weft_tape_nodes(), nodes, "allocation %d leaks %d nodes", (int)n,
                     (int)(weft_tape_nodes() - nodes));
        weft_tensor x = leaf(1, 1); /* nothing is left in a bad state */
        OK(weft_backward(weft_sum(weft_mul(x, x))));
        weft_free(x);
        nodes = weft_tape_nodes();
        kept = weft_leak_report(NULL);
        if (st == WEFT_OK && n > 1500) {
            break;
        }
    }
}
