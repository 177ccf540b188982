/*
 * tests/gpu/op_cases.h -- functions of tensors that are run twice, on the host and on a device: the results have equal bits,
 * and are where the operands are.
 */
#ifndef TESTS_GPU_OP_CASES_H
#define TESTS_GPU_OP_CASES_H

#include <math.h>

#include "tests/gpu/equal.h"

enum { MOST = 10 };
typedef struct results {
    weft_tensor t[MOST];
    int n;
} results;

static weft_device where;

static weft_tensor here(weft_tensor t)
{
    return weft_to(t, where);
}

static void give(results *r, weft_tensor t)
{
    cr_assert(weft_ok(t), "%s", weft_error_text(t));
    cr_assert(weft_device_of(t).kind == where.kind);
    r->t[r->n++] = t;
}

/* f with the same random numbers on both. */
static void check_both(const char *what, void (*f)(results *r))
{
    results host = {.n = 0}, device = {.n = 0};
    where = WEFT_CPU;
    weft_manual_seed(7);
    f(&host);
    where = WEFT_CUDA(0);
    weft_manual_seed(7);
    f(&device);
    cr_assert_eq(host.n, device.n);
    for (int i = 0; i < host.n; i++) {
        check_equal(what, host.t[i], device.t[i]);
    }
}

static weft_tensor input(int seed, weft_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.n; i++) {
        n *= s.v[i];
    }
    weft_tensor t = weft_sin(
        weft_mul(weft_add(weft_arange(0, (double)n, 1, WEFT_F32), weft_f(seed)), weft_f(1.7)));
    return here(weft_reshape(t, s));
}

static void elementwise(results *r)
{
    weft_tensor x = input(1, weft_shape(3, 5)), y = input(2, weft_shape(3, 5)),
                row = input(3, weft_shape(5));
    give(r, weft_add(x, y));
    give(r, weft_mul(weft_transpose(x, 0, 1), weft_transpose(y, 0, 1)));
    give(r, weft_div(x, row));
    give(r, weft_exp(weft_mul(x, weft_f(0.3))));
    give(r, weft_where(weft_less(x, weft_f(0)), row, weft_f(2)));
    give(r, weft_add(weft_cast(x, WEFT_F16), y));
    give(r, weft_add(weft_scalar(0.1, WEFT_F64), x));
    give(r, weft_gelu(weft_slice(x, 1, 1, 5, 2)));
}

static void in_place(results *r)
{
    weft_tensor x = input(1, weft_shape(4, 6)), v = weft_slice(x, 1, 0, 6, 2);
    weft_add_(x, weft_f(1));
    weft_mul_(v, input(4, weft_shape(3)));
    weft_copy_(weft_select(x, 0, 0), weft_f(9));
    weft_copy_(weft_select(x, 0, 1), weft_select(x, 0, 2));
    weft_copy_(weft_select(x, 0, 3), weft_arange(0, 6, 1, WEFT_I32)); /* from the host */
    weft_fill_(weft_select(x, 1, 5), 0.25);
    weft_sub_(x, weft_scalar(0.5, WEFT_F32));
    give(r, x);
    weft_tensor h = weft_zeros(weft_shape(4, 6), WEFT_F64);
    cr_assert_eq(weft_copy_(h, x), WEFT_OK); /* to the host */
    r->t[r->n++] = h;
    cr_assert_eq(weft_device_of(h).kind, WEFT_DEVICE_CPU);
}

static void reductions(results *r)
{
    weft_tensor x = input(1, weft_shape(7, 33, 5));
    give(r, weft_sum(x));
    give(r, weft_sum(x, .axes = weft_axes(1)));
    give(r, weft_mean(weft_transpose(x, 0, 2), .axes = weft_axes(0, 1)));
    give(r, weft_max(weft_slice(x, 1, 3, 30, 3), .axes = weft_axes(2)));
    give(r, weft_softmax(x, 1));
    give(r, weft_var(weft_flip(x, weft_axes(1)), .axes = weft_axes(1)));
    give(r, weft_layer_norm(x));
    give(r, weft_any(weft_greater(x, weft_f(0.9)), .axes = weft_axes(0)));
}

static void norms(results *r)
{
    weft_tensor x = input(1, weft_shape(9, 70));
    give(r, weft_norm(x));
    give(r, weft_norm(x, .axes = weft_axes(1), .order = 1));
    give(r, weft_norm(x, .axes = weft_axes(0), .order = INFINITY));
    give(r, weft_norm(weft_transpose(x, 0, 1), .axes = weft_axes(0), .order = -INFINITY,
                      .keepdim = true));
    give(r, weft_norm(x, .axes = weft_axes(1), .order = 3));
    give(r, weft_norm(weft_relu(x), .axes = weft_axes(1), .order = WEFT_ZERO));
    give(r, weft_norm(weft_cast(x, WEFT_F16), .axes = weft_axes(1)));
    give(r, weft_norm(weft_cast(x, WEFT_F64)));
}

static void batch_norms(results *r)
{
    weft_tensor x = input(1, weft_shape(4, 3, 5, 6)), w = input(2, weft_shape(3)),
                b = input(3, weft_shape(3)), mean = input(4, weft_shape(3)),
                var = weft_square(input(5, weft_shape(3)));
    give(r, weft_batch_norm(x, w, b, mean, var));
    weft_requires_grad_(x, true);
    weft_requires_grad_(w, true);
    weft_tensor y = weft_batch_norm(x, w, b, mean, var, .training = true);
    cr_assert_eq(weft_backward(weft_sum(weft_sin(y))), WEFT_OK, "%s", weft_last_error());
    give(r, y);
    give(r, weft_grad(x));
    give(r, weft_grad(w));
    give(r, mean);
    give(r, var);
    give(r, weft_batch_norm(weft_cast(weft_detach(x), WEFT_F16), .training = true));
    give(r, weft_batch_norm(input(6, weft_shape(9, 3)), w, .training = true));
}

static void rows(results *r)
{
    weft_tensor x = input(1, weft_shape(6, 8)), w = input(2, weft_shape(4, 8)),
                index = here(weft_from_data((const int64_t[]){3, 0, 5}, weft_shape(3), WEFT_I64));
    give(r, weft_matmul(x, weft_transpose(w, 0, 1)));
    give(r, weft_linear(x, w, input(3, weft_shape(4))));
    give(r, weft_index_select(x, 0, index));
    give(r, weft_concat(WEFT_LIST(x, w), 0));
    weft_tensor values, indices;
    cr_assert_eq(weft_sort(x, 1, false, &values, &indices), WEFT_OK);
    give(r, values);
    give(r, weft_cumsum(x, 0));
    give(r, weft_reshape(weft_transpose(x, 0, 1), weft_shape(48)));
    give(r, indices);
    give(r, weft_searchsorted(values, x, true));
    give(r, weft_searchsorted(weft_select(values, 0, 2), w, false));
}

static weft_tensor doubled(void *user, weft_tensor g)
{
    cr_assert_eq(weft_device_of(g).kind, where.kind);
    ++*(int *)user;
    return weft_mul(g, weft_f(2));
}

static void gradients(results *r)
{
    weft_tensor x = input(1, weft_shape(5, 7)), w = input(2, weft_shape(4, 7)),
                b = input(3, weft_shape(4));
    weft_tensor number = weft_scalar(0.7, WEFT_F32); /* of the host */
    int calls = 0;
    weft_requires_grad_(x, true);
    weft_requires_grad_(w, true);
    weft_requires_grad_(b, true);
    weft_requires_grad_(number, true);
    weft_register_hook(b, doubled, &calls, NULL);
    weft_tensor y = weft_gelu(weft_linear(x, w, b));
    y = weft_mul(weft_layer_norm(weft_mul(y, number)),
                 weft_add(weft_slice(x, 1, 0, 4, 1), weft_f(0.5)));
    weft_tensor z = weft_softmax(weft_transpose(y, 0, 1), 0);
    weft_tensor loss =
        weft_mean(weft_square(weft_where(weft_greater(z, weft_f(0.2)), z, weft_sin(z))));
    cr_assert_eq(weft_backward(loss), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(calls, 1);
    give(r, loss);
    give(r, weft_grad(x));
    give(r, weft_grad(w));
    give(r, weft_grad(b));
    r->t[r->n++] = weft_grad(number);
    cr_assert_eq(weft_device_of(weft_grad(number)).kind, WEFT_DEVICE_CPU);
    /* through a transfer, and twice */
    weft_tensor u = weft_to(x, WEFT_CPU), twice[1];
    weft_tensor out = weft_sum(weft_exp(u)), first[1];
    cr_assert_eq(weft_grad_of(.outputs = &out, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                              .grads = first, .create_graph = true),
                 WEFT_OK, "%s", weft_last_error());
    weft_tensor s = weft_sum(weft_mul(first[0], first[0]));
    cr_assert_eq(
        weft_grad_of(.outputs = &s, .n_outputs = 1, .inputs = &x, .n_inputs = 1, .grads = twice),
        WEFT_OK, "%s", weft_last_error());
    give(r, twice[0]);
}

#endif
