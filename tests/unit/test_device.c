/*
 * tests/unit/test_device.c -- devices: names, moving, mixed operands, what is not there.
 *
 * No tensor can be on a GPU yet, so those here are host memory whose storage says otherwise.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "eager/device.h"
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

static void pretend(weft_tensor t, int code)
{
    wf_ctx *c = wf_ctx_get();
    wf_slot_at(c, t.slot)->st->device = (uint8_t)code;
}

Test(device, operands_share_a_device)
{
    weft_tensor a = weft_ones(weft_shape(3), WEFT_F32), g = weft_ones(weft_shape(3), WEFT_F32),
                h = weft_ones(weft_shape(3), WEFT_F32);
    pretend(g, 2);
    pretend(h, 3);
    cr_assert(on(g, WEFT_CUDA(1)));
    const char *both = "operand 0 on cpu, operand 1 on cuda:1";
    check_error("host and GPU", weft_add(a, g), WEFT_EINVALID, both);
    cr_assert(strstr(weft_last_error(), "weft_to"), "%s", weft_last_error());
    check_error("two GPUs", weft_add(g, h), WEFT_EINVALID,
                "operand 0 on cuda:1, operand 1 on cuda:2");
    check_error("many", weft_concat(WEFT_LIST(a, a, a, a, g), 0), WEFT_EINVALID,
                "operand 4 on cuda:1");
    check_error("a GPU", weft_neg(g), WEFT_EUNSUPPORTED, "cuda:1");
    check_error("with a scalar", weft_add(g, weft_f(1)), WEFT_EUNSUPPORTED, "cuda:1");
    check_status("into host memory", weft_add_(a, g), WEFT_EINVALID, both);
    check_status("into the GPU's", weft_copy_(g, a), WEFT_EINVALID, "cuda:1");
    check_status("filling", weft_fill_(g, 1), WEFT_EUNSUPPORTED, "cuda:1");
    cr_assert_eq(weft_item_f64(weft_sum(a)), 3);
    /* reading */
    check_error("moving", weft_to(g, WEFT_CPU), WEFT_EUNSUPPORTED, "cuda:1");
    float v[3];
    char text[64];
    cr_assert_null(weft_data(g));
    check_status("an array", weft_to_array(g, v, 3, WEFT_F32), WEFT_EUNSUPPORTED, "cuda:1");
    cr_assert_eq(weft_to_string(g, text, sizeof text), -1);
    cr_assert_null(weft_to_dlpack(g));
    cr_assert_eq(weft_last_status(), WEFT_EUNSUPPORTED);
    pretend(g, 0);
    pretend(h, 0);
}
