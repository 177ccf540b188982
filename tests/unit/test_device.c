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
