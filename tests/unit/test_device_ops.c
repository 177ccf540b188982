/*
 * tests/unit/test_device_ops.c -- the op table, gradients, layers and optimisers on a device: the host's bits.
 *
 * Every case is a function that is run twice, on host tensors and on a device's; all results must have equal bits, and be
 * where the operands are. The device is tests/support/device_double.h, whose memory the host cannot touch.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "eager/device.h"
#include "tests/support/device_double.h"
#include "tests/support/support.h"
#include "weft/nn.h"

enum { MOST = 8 };
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

static void check_equal(const char *what, weft_tensor a, weft_tensor b)
{
    int64_t n = weft_numel(a);
    size_t bytes = (size_t)n * weft_dtype_size(weft_dtype_of(a));
    cr_assert_eq(weft_dtype_of(a), weft_dtype_of(b));
    cr_assert_eq(n, weft_numel(b), "%s", what);
    char *p = malloc(bytes + 1), *q = malloc(bytes + 1);
    cr_assert_eq(weft_to_array(a, p, n, WEFT_DTYPE_DEFAULT), WEFT_OK);
    cr_assert_eq(weft_to_array(b, q, n, WEFT_DTYPE_DEFAULT), WEFT_OK, "%s", weft_last_error());
    cr_assert(memcmp(p, q, bytes) == 0, "%s: bits differ", what);
    free(p);
    free(q);
}

/* f with the same random numbers on both. */
static void check_both(const char *what, void (*f)(results *r))
{
    results host = {.n = 0}, device = {.n = 0};
    device_double_install();
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

Test(device_ops, elementwise)
{
    check_both("elementwise", elementwise);
    cr_assert_eq(weft_device_fallbacks(NULL, 0), 0);
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

Test(device_ops, in_place)
{
    check_both("in place", in_place);
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

Test(device_ops, reductions_are_programs)
{
    check_both("reductions", reductions);
    weft_device_fallback f[8];
    int n = weft_device_fallbacks(f, 8);
    cr_assert(n <= 1, "%s", f[0].op); /* flip */
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
}

Test(device_ops, rows_without_a_kernel_go_through_the_host_and_are_counted)
{
    weft_device_fallback f[16];
    check_both("rows", rows);
    int n = weft_device_fallbacks(f, 16), seen = 0;
    for (int i = 0; i < n; i++) {
        seen += strcmp(f[i].op, "sort") == 0 && f[i].count == 1;
    }
    cr_assert_eq(seen, 1);
    cr_assert_gt(n, 4);
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

Test(device_ops, gradients)
{
    check_both("gradients", gradients);
}

Test(device_ops, a_failed_allocation_is_an_error)
{
    device_double_install();
    weft_tensor x = weft_to(weft_ones(weft_shape(5000), WEFT_F32), WEFT_CUDA(0));
    for (int i = 1; i <= 2; i++) {
        device_double_fail_alloc(1);
        check_error("add", weft_add(x, i == 1 ? weft_f(1) : weft_slice(x, 0, 0, 1, 1)), WEFT_ENOMEM,
                    "20000");
    }
    device_double_fail_alloc(1);
    check_error("row", weft_softmax(x, 0), WEFT_ENOMEM, "20000");
    device_double_fail_alloc(1);
    check_error("transfer", weft_to(x, WEFT_CUDA(1)), WEFT_ENOMEM, "20000");
    device_double_counts before = device_double_read();
    weft_scope sc = weft_scope_begin();
    for (int i = 0; i < 10; i++) {
        weft_mul(x, weft_relu(x));
    }
    weft_scope_end(sc);
    device_double_counts after = device_double_read();
    cr_assert_eq(after.allocs - before.allocs, after.frees - before.frees);
    cr_assert_eq(after.downloads, before.downloads);
}
