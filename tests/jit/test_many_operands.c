/*
 * tests/jit/test_many_operands.c -- rows with any number of operands: around what a byte counts, far beyond it, and at the limit.
 *
 * Values are small integers, so that what they add up to is exact and can be said without weft.
 */
/* ctest: timeout=300 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/op.h"
#include "tests/support/support.h"
#include "weft/weft.h"

enum { WIDTH = 4, TOO_MANY = 70000 };
static const int counts[] = {255, 256, 257, 300, 600};
#define COUNTS ((int)(sizeof counts / sizeof *counts))

typedef enum wanted { VALUE, GRADIENT, SECOND } wanted;
typedef struct joined {
    int n;
    bool stack;
    wanted wanted;
} joined;

static int factor(int i)
{
    return i * 7 % 5 - 2;
}

/* The parts i x factor(i) joined; or d(sum of squares); or the derivative of the sum of that. */
static weft_status join(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const joined *k = self;
    weft_tensor *part = malloc((size_t)k->n * sizeof *part);
    weft_tensor x = k->wanted == VALUE ? in[0] : weft_clone(in[0]);
    weft_status rc = weft_requires_grad_(x, k->wanted != VALUE);
    (void)n_in, (void)n_out;
    for (int i = 0; i < k->n; i++) {
        part[i] = weft_mul(x, weft_f(factor(i)));
    }
    weft_tensor y = k->stack ? weft_stack(part, k->n, 0) : weft_concat(part, k->n, 0), loss, g;
    free(part);
    if (k->wanted == VALUE || !weft_ok(y)) {
        out[0] = y;
        return weft_error_status(y);
    }
    loss = weft_sum(weft_mul(y, y));
    rc = rc ? rc
            : weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                           .grads = &g, .create_graph = k->wanted == SECOND);
    if (k->wanted == SECOND && rc == WEFT_OK) {
        loss = weft_sum(g);
        rc = weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                          .grads = &g);
    }
    out[0] = g;
    return rc;
}

static void check(const joined *k, const float *x, weft_tensor y, const char *how)
{
    float sum = 0;
    for (int i = 0; i < k->n; i++) {
        sum += (float)(factor(i) * factor(i));
    }
    const int64_t n = k->wanted == VALUE ? (int64_t)k->n * WIDTH : WIDTH;
    cr_assert_eq(weft_numel(y), n, "%s of %d operands: %s", how, k->n, weft_error_text(y));
    cr_assert_eq(weft_rank(y), k->wanted == VALUE && k->stack ? 2 : 1);
    const float *v = weft_data(y);
    for (int64_t i = 0; i < n; i++) {
        const float want = k->wanted == VALUE      ? x[i % WIDTH] * (float)factor((int)(i / WIDTH))
                           : k->wanted == GRADIENT ? 2 * sum * x[i]
                                                   : 2 * sum;
        cr_assert_eq(v[i], want, "%s of %d operands, element %d: %g, not %g", how, k->n, (int)i,
                     (double)v[i], (double)want);
    }
}

/* Calls fn's trace until it has been replayed, and compares. */
static void check_traced(joined *k, const float *x, weft_tensor t, bool frozen, bool native)
{
    weft_jit *j =
        weft_jit_trace(join, k, .frozen = frozen, .synchronous = native, .always_record = !frozen);
    for (int call = 0; call < 5; call++) {
        weft_tensor y;
        weft_scope sc = weft_scope_begin();
        cr_assert_eq(weft_jit_call(j, &t, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
        check(k, x, y, frozen ? "frozen" : "traced");
        weft_scope_end(sc);
    }
    weft_jit_stats s;
    weft_jit_get_stats(j, &s);
    cr_assert(!frozen || s.frozen >= 2, "never frozen");
    weft_jit_free(j);
}

/* Saved, loaded and run. */
static void check_graph(joined *k, const float *x, weft_tensor t)
{
    weft_graph *g = weft_jit_graph(join, k, &t, 1);
    weft_tensor y;
    cr_assert_not_null(g, "%s", weft_last_error());
    cr_assert_eq(weft_graph_run(g, &t, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    check(k, x, y, "graph");
    g = test_reloaded(g);
    cr_assert_eq(weft_graph_run(g, &t, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    check(k, x, y, "graph from its file");
    weft_graph_free(g);
}

static void check_all(wanted w)
{
    static const float x[WIDTH] = {1, -2, 3, 5};
    for (int i = 0; i < 2 * COUNTS; i++) {
        joined k = {counts[i / 2], i % 2, w};
        weft_scope sc = weft_scope_begin();
        weft_tensor t = weft_from_data(x, weft_shape(WIDTH), WEFT_F32), y;
        cr_assert_eq(join(&k, &t, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
        check(&k, x, y, "eager");
        check_traced(&k, x, t, false, false);
        check_traced(&k, x, t, false, true);
        check_traced(&k, x, t, true, false);
        check_graph(&k, x, t);
        weft_scope_end(sc);
    }
}

Test(many_operands, values)
{
    check_all(VALUE);
}

Test(many_operands, gradients)
{
    check_all(GRADIENT);
}

Test(many_operands, second_derivatives)
{
    check_all(SECOND);
}

/* -- the limit -------------------------------------------------------------------------------------------------- */

static weft_status one_many_times(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                  int n_out)
{
    const joined *k = self;
    weft_tensor *part = malloc((size_t)k->n * sizeof *part), y, g;
    (void)n_in, (void)n_out;
    for (int i = 0; i < k->n; i++) {
        part[i] = in[0];
    }
    y = k->stack ? weft_stack(part, k->n, 0) : weft_concat(part, k->n, 0);
    free(part);
    out[0] = y;
    if (k->wanted == VALUE || !weft_ok(y)) {
        return weft_error_status(y);
    }
    weft_tensor loss = weft_sum(y);
    weft_status rc =
        weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = in, .n_inputs = 1, .grads = &g);
    out[0] = g;
    return rc;
}

/* One more than can be counted is an error in every way of calling, and says what to do; as many as can be work. */
Test(many_operands, limit)
{
    for (int i = 0; i < 8; i++) {
        joined k = {i & 1 ? WF_MOST_SRC + 1 : TOO_MANY, (i & 2) != 0, i & 4 ? GRADIENT : VALUE};
        weft_tensor x = weft_ones(weft_shape(1), WEFT_F32), y;
        cr_assert_eq(weft_requires_grad_(x, k.wanted != VALUE), WEFT_OK);
        weft_jit *j = weft_jit_trace(one_many_times, &k, .always_record = true);
        for (int traced = 0; traced < 2; traced++) {
            weft_status rc =
                traced ? weft_jit_call(j, &x, 1, &y, 1) : one_many_times(&k, &x, 1, &y, 1);
            cr_assert_eq(rc, WEFT_EUNSUPPORTED);
            cr_assert(strstr(weft_last_error(), k.stack ? "stack: " : "concat: "), "%s",
                      weft_last_error());
            cr_assert(strstr(weft_last_error(), "at most 65535 operands") &&
                          strstr(weft_last_error(), "join parts of the list first"),
                      "%s", weft_last_error());
            weft_clear_error();
        }
        cr_assert_null(weft_jit_graph(one_many_times, &k, &x, 1));
        weft_clear_error();
        weft_jit_free(j);
    }
}

Test(many_operands, as_many_as_can_be_counted)
{
    weft_tensor x = weft_full(weft_shape(1), 3, WEFT_F32), y;
    cr_assert_eq(weft_requires_grad_(x, true), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        joined k = {WF_MOST_SRC, false, i ? GRADIENT : VALUE};
        weft_jit *j = weft_jit_trace(one_many_times, &k, .always_record = true);
        for (int traced = 0; traced < 3; traced++) {
            weft_scope sc = weft_scope_begin();
            weft_status rc =
                traced ? weft_jit_call(j, &x, 1, &y, 1) : one_many_times(&k, &x, 1, &y, 1);
            cr_assert_eq(rc, WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_numel(y), i ? 1 : WF_MOST_SRC);
            cr_assert_eq(weft_item_f64(weft_sum(y)), i ? WF_MOST_SRC : 3.0 * WF_MOST_SRC);
            weft_scope_end(sc);
        }
        weft_jit_free(j);
    }
}

/* -- many inputs of what is fused ------------------------------------------------------------------------------- */

/* A sum of squares of 300 tensors, as one expression: groups are cut where a program is full. */
static weft_status squares(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const weft_tensor *x = self;
    (void)n_in, (void)n_out;
    weft_tensor sum = in[0];
    for (int i = 0; i < 300; i++) {
        sum = weft_add(sum, weft_mul(x[i], x[i]));
    }
    out[0] = sum;
    return weft_error_status(sum);
}

Test(many_operands, of_a_fused_expression)
{
    weft_tensor x[300], in = weft_zeros(weft_shape(9), WEFT_F32), y;
    double want = 0;
    for (int i = 0; i < 300; i++) {
        x[i] = weft_full(weft_shape(9), i % 9, WEFT_F32);
        want += (i % 9) * (i % 9);
    }
    for (int native = 0; native < 2; native++) {
        weft_jit *j = weft_jit_trace(squares, x, .synchronous = native, .always_record = true);
        for (int call = 0; call < 3; call++) {
            cr_assert_eq(weft_jit_call(j, &in, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_item_f64(weft_select(y, 0, 8)), want);
        }
        weft_jit_free(j);
    }
}

/* -- sequences -------------------------------------------------------------------------------------------------- */

enum { STEPS = 300, HIDDEN = 3 };

typedef struct layer {
    weft_nn_recurrent cell;
    bool lstm, gradients;
} layer;

/* The sequence of outputs, and gradients of the input and the first parameters. */
static weft_status sequence(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    layer *l = self;
    (void)n_in, (void)n_out;
    out[0] = l->lstm ? weft_nn_lstm_forward(&l->cell, in[0], NULL, NULL)
                     : weft_nn_gru_forward(&l->cell, in[0], NULL);
    if (!l->gradients || !weft_ok(out[0])) {
        return weft_error_status(out[0]);
    }
    weft_tensor loss = weft_sum(weft_mul(out[0], weft_sin(out[0])));
    return weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = in, .n_inputs = 1,
                        .grads = out + 1);
}

static void check_sequence(bool lstm, bool gradients)
{
    layer l = {.lstm = lstm, .gradients = gradients};
    weft_module *m = weft_module_new(NULL);
    if (lstm) {
        weft_nn_lstm_init(&l.cell, m, "l", 2, HIDDEN);
    } else {
        weft_nn_gru_init(&l.cell, m, "l", 2, HIDDEN);
    }
    weft_tensor x = weft_randn(weft_shape(STEPS, 2, 2)), want[2], got[2];
    const int n = gradients ? 2 : 1;
    cr_assert_eq(weft_requires_grad_(x, gradients), WEFT_OK);
    gradients ? (void)0 : weft_no_grad_begin();
    cr_assert_eq(sequence(&l, &x, 1, want, n), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_dim(want[0], 0), STEPS);
    for (int frozen = 0; frozen < 2; frozen++) {
        weft_jit *j = weft_jit_trace(sequence, &l, .frozen = frozen, .always_record = !frozen);
        for (int call = 0; call < 4; call++) {
            weft_scope sc = weft_scope_begin();
            cr_assert_eq(weft_jit_call(j, &x, 1, got, n), WEFT_OK, "%s", weft_last_error());
            for (int k = 0; k < n; k++) {
                check_bits(lstm ? "lstm" : "gru", want[k], got[k]);
            }
            weft_scope_end(sc);
        }
        weft_jit_free(j);
    }
    gradients ? (void)0 : weft_no_grad_end();
    weft_module_free(m);
}

Test(many_operands, sequences)
{
    for (int i = 0; i < 4; i++) {
        check_sequence(i & 1, i & 2);
    }
}
