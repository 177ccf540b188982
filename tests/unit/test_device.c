/*
 * tests/unit/test_device.c -- devices: names, moving, mixed operands, what is not there.
 *
 * GPUs are played by tests/support/device_double.h.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "eager/device.h"
#include "tests/support/device_double.h"
#include "tests/support/support.h"
#include "weft/dlpack.h"

static bool on(weft_tensor t, weft_device d)
{
    weft_device is = weft_device_of(t);
    return is.kind == d.kind && is.index == d.index;
}

Test(device, names_and_default)
{
    weft_device zero = {0};
    cr_assert_str_eq(weft_device_name(zero), "cpu");
    cr_assert_str_eq(weft_device_name(WEFT_CPU), "cpu");
    cr_assert_str_eq(weft_device_name(WEFT_CUDA(0)), "cuda:0");
    cr_assert_str_eq(weft_device_name(WEFT_CUDA(15)), "cuda:15");
    const weft_device wrong[] = {{0, 1}, {1, -1}, {1, 16}, {2, 0}, {-1, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_str_eq(weft_device_name(wrong[i]), "invalid");
        check_error("no such device", weft_to(weft_ones(weft_shape(2), WEFT_F32), wrong[i]),
                    WEFT_EINVALID, "WEFT_CUDA(i)");
    }
    for (int code = 0; code <= WF_MAX_CUDA; code++) {
        cr_assert_eq(wf_device_code(wf_device_public(code)), code);
    }
}

Test(device, to_the_same_device_is_the_same_value)
{
    weft_tensor x = weft_ones(weft_shape(2, 3), WEFT_F32), f = weft_f(2), dead = weft_neg(x);
    weft_requires_grad_(x, true);
    cr_assert(on(x, WEFT_CPU) && on(f, WEFT_CPU) && on(weft_transpose(x, 0, 1), WEFT_CPU));
    weft_tensor y = weft_to(weft_transpose(x, 0, 1), WEFT_CPU);
    check_type("moved nowhere", y, WEFT_F32, weft_shape(3, 2));
    cr_assert(weft_shares_memory(x, y));
    cr_assert_eq(weft_backward(weft_sum(weft_square(y))), WEFT_OK);
    cr_assert_eq(weft_item_f64(weft_sum(weft_grad(x))), 12);
    cr_assert_eq(weft_item_f64(weft_to(f, WEFT_CPU)), 2);
    weft_free(dead);
    check_error("dead", weft_to(dead, WEFT_CPU), WEFT_EHANDLE, "dead");
    cr_assert_eq(weft_device_of(dead).kind, -1);
}

Test(device, a_device_that_is_not_there_says_why)
{
    weft_tensor x = weft_ones(weft_shape(2), WEFT_F32);
    weft_tensor y = weft_to(x, WEFT_CUDA(1));
    check_error("no GPU", y, WEFT_EUNSUPPORTED, "cuda:1");
    cr_assert(strstr(weft_error_text(y), "driver") && strstr(weft_error_text(y), "f32[2]"), "%s",
              weft_error_text(y));
    check_error("a scalar", weft_to(weft_f(1), WEFT_CUDA(0)), WEFT_EUNSUPPORTED, "driver");
}

static weft_tensor gpu(weft_tensor t, int i)
{
    return weft_to(t, WEFT_CUDA(i));
}

Test(device, operands_share_a_device)
{
    device_double_install();
    weft_tensor a = weft_ones(weft_shape(3), WEFT_F32), g = gpu(a, 1), h = gpu(a, 0);
    cr_assert(on(g, WEFT_CUDA(1)) && on(h, WEFT_CUDA(0)) && on(a, WEFT_CPU));
    const char *both = "operand 0 on cpu, operand 1 on cuda:1";
    check_error("host and GPU", weft_add(a, g), WEFT_EINVALID, both);
    cr_assert(strstr(weft_last_error(), "weft_to"), "%s", weft_last_error());
    check_error("two GPUs", weft_add(g, h), WEFT_EINVALID,
                "operand 0 on cuda:1, operand 1 on cuda:0");
    check_error("many", weft_concat(WEFT_LIST(a, a, a, a, g), 0), WEFT_EINVALID,
                "operand 4 on cuda:1");
    check_error("a number in a row that is not elementwise",
                weft_concat(WEFT_LIST(weft_ones(weft_shape(1), WEFT_F32), g), 0), WEFT_EINVALID,
                "operand 0 on cpu");
    check_status("into host memory", weft_add_(a, g), WEFT_EINVALID, both);
    check_status("into a number of the host", weft_add_(weft_scalar(1, WEFT_F32), g), WEFT_EINVALID,
                 "cuda:1");
    check_status("into the GPU's", weft_add_(g, a), WEFT_EINVALID, "operand 1 on cpu");
    check_error("a third GPU", weft_to(a, WEFT_CUDA(2)), WEFT_EUNSUPPORTED, "2 devices");
    cr_assert_eq(weft_item_f64(weft_sum(a)), 3);
}

Test(device, reading_and_refusing)
{
    device_double_install();
    weft_tensor x =
        weft_transpose(weft_reshape(weft_arange(0, 6, 1, WEFT_F32), weft_shape(2, 3)), 0, 1);
    weft_tensor g = gpu(x, 0), t = weft_transpose(g, 0, 1);
    float v[6];
    char text[200];
    cr_assert_null(weft_data(g));
    check_status("data", weft_last_status(), WEFT_EUNSUPPORTED, "weft_to");
    cr_assert_null(weft_data_mut(g));
    check_status("data_mut", weft_last_status(), WEFT_EUNSUPPORTED, "weft_copy_");
    cr_assert_eq(weft_to_array(t, v, 6, WEFT_F32), WEFT_OK);
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(v[i], (float)i);
    }
    double d[6];
    cr_assert_eq(weft_to_array(g, d, 6, WEFT_F64), WEFT_OK);
    cr_assert(d[0] == 0 && d[1] == 3 && d[5] == 5);
    cr_assert_eq(weft_item_f64(weft_select(weft_select(g, 0, 1), 0, 1)), 4);
    cr_assert_eq(weft_item_i64(weft_sum(weft_cast(g, WEFT_I64))), 15);
    cr_assert_gt(weft_to_string(g, text, sizeof text), 0);
    cr_assert(strstr(text, "cuda:0") && strstr(text, "[2. 5.]"), "%s", text);
    DLManagedTensorVersioned *m = weft_to_dlpack(g);
    cr_assert(m && m->dl_tensor.device.device_type == 2 && m->dl_tensor.device.device_id == 0);
    weft_tensor back = weft_from_dlpack(m);
    cr_assert(on(back, WEFT_CUDA(0)));
    cr_assert_eq(weft_item_f64(weft_sum(weft_mul(back, weft_f(2)))), 30);
    cr_assert(on(weft_to(g, WEFT_CUDA(1)), WEFT_CUDA(1)));
    cr_assert_eq(weft_item_f64(weft_sum(weft_to(g, WEFT_CUDA(1)))), 15);
}

Test(device, default_device_of_a_thread)
{
    device_double_install();
    cr_assert_eq(weft_set_default_device(WEFT_CUDA(1)), WEFT_OK);
    cr_assert_eq(weft_default_device().index, 1);
    const float data[4] = {1, 2, 3, 4};
    weft_tensor x = weft_from_data(data, weft_shape(4), WEFT_F32);
    cr_assert(on(x, WEFT_CUDA(1)) && on(weft_zeros(weft_shape(2), WEFT_F32), WEFT_CUDA(1)));
    cr_assert(on(weft_rand(weft_shape(3)), WEFT_CUDA(1)));
    cr_assert(on(weft_add(weft_f(1), weft_i(2)), WEFT_CUDA(1)));
    cr_assert_eq(weft_item_f64(weft_add(weft_f(1), weft_i(2))), 3);
    cr_assert_eq(weft_item_f64(weft_sum(weft_mul(x, x))), 30);
    check_status("absent", weft_set_default_device(WEFT_CUDA(7)), WEFT_EUNSUPPORTED, "cuda:7");
    check_status("no device", weft_set_default_device((weft_device){3, 0}), WEFT_EINVALID,
                 "kind 3");
    cr_assert_eq(weft_set_default_device(WEFT_CPU), WEFT_OK);
    cr_assert(on(weft_zeros_like(x), WEFT_CUDA(1)) &&
              on(weft_ones(weft_shape(2), WEFT_F32), WEFT_CPU));
}

Test(device, gradients_are_where_their_tensors_are)
{
    device_double_install();
    weft_tensor x = gpu(weft_ones(weft_shape(3), WEFT_F32), 0),
                h = weft_ones(weft_shape(3), WEFT_F32);
    weft_requires_grad_(x, true);
    check_status("set_grad", weft_set_grad(x, h), WEFT_EINVALID, "another device");
    check_status("backward", weft_backward(weft_mul(x, x), .gradient = h), WEFT_EINVALID,
                 "another device");
    cr_assert_eq(weft_set_grad(x, gpu(h, 0)), WEFT_OK);
    cr_assert_eq(weft_backward(weft_mul(x, x), .gradient = gpu(h, 0)), WEFT_OK, "%s",
                 weft_last_error());
    cr_assert_eq(weft_item_f64(weft_sum(weft_grad(x))), 9);
}

static weft_tensor moved(void *to, weft_tensor g)
{
    return weft_to(g, *(weft_device *)to);
}

static void check_sum_of_grad(weft_tensor x, double want)
{
    weft_tensor g = weft_grad(x);
    weft_device d = weft_device_of(x);
    cr_assert(weft_ok(g) && on(g, d), "%s", weft_last_error());
    cr_assert_float_eq(weft_item_f64(weft_sum(g)), want, 1e-4);
}

/* Of a loss on one device and a gradient from the other, in both directions. */
Test(device, a_gradient_from_another_device_is_refused)
{
    device_double_install();
    for (int k = 0; k < 3; k++) {
        weft_device here = k ? WEFT_CUDA(0) : WEFT_CPU,
                    there = k == 1 ? WEFT_CPU : WEFT_CUDA(k ? 1 : 0);
        weft_tensor one = weft_ones(weft_shape(3), WEFT_F32);
        weft_tensor x = weft_clone(weft_to(one, here)), far = weft_to(one, there), g;
        weft_requires_grad_(x, true);
        weft_tensor y = weft_mul(x, x);
        check_status("backward", weft_backward(y, .gradient = far, .retain_graph = true),
                     WEFT_EINVALID, weft_device_name(there));
        cr_assert(strstr(weft_last_error(), "weft_to"), "%s", weft_last_error());
        check_status("grad_of",
                     weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                                  .grads = &g, .grad_outputs = &far, .retain_graph = true),
                     WEFT_EINVALID, "another device");
        check_status("set_grad", weft_set_grad(x, far), WEFT_EINVALID, "another device");
        uint64_t hook = weft_register_hook(x, moved, &there, NULL);
        check_status("hook", weft_backward(weft_sum(weft_mul(x, x))), WEFT_EINVALID,
                     "another device");
        weft_remove_hook(x, hook);
        weft_tensor z = weft_exp(x);
        weft_register_hook(z, moved, &there, NULL);
        check_status("hook of a result", weft_backward(weft_sum(z)), WEFT_EINVALID,
                     "another device");
        cr_assert_not(weft_has_grad(x));
        cr_assert_eq(weft_backward(weft_sum(y)), WEFT_OK, "%s", weft_last_error());
        check_sum_of_grad(x, 6);
    }
}

/* A number goes with any device, as an operand does. */
Test(device, a_single_number_is_moved_to_where_its_tensor_is)
{
    device_double_install();
    weft_tensor x = weft_clone(gpu(weft_ones(weft_shape(3), WEFT_F32), 0));
    weft_tensor scale = weft_full(weft_shape_from(0, NULL), 128, WEFT_F32);
    weft_requires_grad_(x, true);
    cr_assert_eq(weft_backward(weft_sum(weft_square(x)), .gradient = scale), WEFT_OK, "%s",
                 weft_last_error());
    check_sum_of_grad(x, 768);
    weft_tensor n = weft_clone(gpu(scale, 0));
    weft_requires_grad_(n, true);
    cr_assert_eq(weft_set_grad(n, scale), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_backward(weft_square(n)), WEFT_OK, "%s", weft_last_error());
    check_sum_of_grad(n, 384);
}

/* Numbers computed on the host and used on a device: their gradients come home. */
Test(device, gradients_of_numbers_of_the_host_are_on_the_host)
{
    device_double_install();
    weft_tensor h = weft_full(weft_shape(3), 2, WEFT_F32),
                d = gpu(weft_ones(weft_shape(4), WEFT_F32), 0);
    weft_requires_grad_(h, true);
    weft_tensor number = weft_log(weft_sum(weft_square(h))); /* of 12 */
    for (int i = 1; i < 3; i++) {
        cr_assert_eq(weft_backward(weft_sum(weft_mul(d, number)), .retain_graph = true), WEFT_OK,
                     "%s", weft_last_error());
        check_sum_of_grad(h, i * 4 * 3 * 4.0 / 12);
    }
}

static weft_status double_forward(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n,
                                  weft_tensor *out, int n_out)
{
    (void)ctx, (void)user, (void)n, (void)n_out;
    out[0] = weft_mul(in[0], weft_f(2));
    return weft_error_status(out[0]);
}

static weft_status double_backward(weft_function_ctx *ctx, void *user, const weft_tensor *g, int n,
                                   weft_tensor *dsrc, const bool *need, int n_src)
{
    (void)ctx, (void)n, (void)need, (void)n_src;
    dsrc[0] = weft_to(weft_mul(g[0], weft_f(2)), *(weft_device *)user);
    return weft_error_status(dsrc[0]);
}

Test(device, custom_functions_give_gradients_where_their_operands_are)
{
    device_double_install();
    const weft_function f = {
        .name = "double", .forward = double_forward, .backward = double_backward};
    weft_device cpu = WEFT_CPU, zero = WEFT_CUDA(0);
    weft_tensor x = weft_clone(gpu(weft_ones(weft_shape(3), WEFT_F32), 0)), y;
    weft_requires_grad_(x, true);
    cr_assert_eq(weft_apply(&f, &cpu, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    check_status("custom", weft_backward(weft_sum(y)), WEFT_EINVALID, "another device");
    cr_assert(strstr(weft_last_error(), "cuda:0"), "%s", weft_last_error());
    cr_assert_eq(weft_apply(&f, &zero, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_backward(weft_sum(y)), WEFT_OK, "%s", weft_last_error());
    check_sum_of_grad(x, 6);
}

/* Results of an old graph may be alive when parameters move: its gradients follow them. */
Test(device, a_module_moves_while_graphs_of_it_live)
{
    device_double_install();
    weft_module *m = weft_module_new(NULL);
    weft_tensor w = weft_module_parameter(m, "w", weft_full(weft_shape(3), 2, WEFT_F32));
    weft_tensor old = weft_sum(weft_square(w)), older = weft_sum(weft_exp(weft_mul(w, w)));
    cr_assert_eq(weft_module_to(m, WEFT_CUDA(0)), WEFT_OK, "%s", weft_last_error());
    cr_assert(on(w, WEFT_CUDA(0)));
    for (int i = 1; i < 3; i++) { /* the first gradient, and one that is added */
        cr_assert_eq(weft_backward(old, .retain_graph = true), WEFT_OK, "%s", weft_last_error());
        check_sum_of_grad(w, 12 * i);
    }
    weft_tensor there = weft_sum(weft_square(w));
    cr_assert_eq(weft_backward(there, .retain_graph = true), WEFT_OK, "%s", weft_last_error());
    check_sum_of_grad(w, 36);
    cr_assert_eq(weft_module_to(m, WEFT_CPU), WEFT_OK, "%s", weft_last_error());
    check_sum_of_grad(w, 36);
    cr_assert_eq(weft_backward(there), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_backward(weft_sum(weft_square(w))), WEFT_OK, "%s", weft_last_error());
    check_sum_of_grad(w, 60);
    weft_module_zero_grad(m);
    cr_assert_eq(weft_backward(older), WEFT_OK, "%s", weft_last_error());
    cr_assert_float_eq(weft_item_f64(weft_sum(weft_grad(w))), 12 * 54.598150, 1e-2);
    weft_module_free(m);
}

Test(device, a_module_that_cannot_move_stays_whole)
{
    device_double_install();
    weft_module *m = weft_module_new(NULL);
    weft_tensor w = weft_module_parameter(m, "w", weft_ones(weft_shape(3), WEFT_F32));
    weft_tensor b = weft_module_buffer(m, "b", weft_ones(weft_shape(3), WEFT_F32));
    weft_copy_(b, weft_square(w)); /* a history */
    check_status("module_to", weft_module_to(m, WEFT_CUDA(0)), WEFT_EGRAD, "recorded history");
    cr_assert(on(w, WEFT_CPU) && on(b, WEFT_CPU));
    weft_module_free(m);
}
