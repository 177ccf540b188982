/*
 * tests/unit/test_device_train.c -- training on a device whose memory the host cannot touch.
 */
#include <unistd.h>

#include "tests/gpu/train_cases.h"
#include "tests/support/device_double.h"

Test(device_train, moved_there)
{
    device_double_install();
    check_training((training){.exact = true});
}

Test(device_train, made_there)
{
    device_double_install();
    check_training((training){.exact = true, .made = true});
}

static weft_status there(void *user, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)user, (void)n, (void)n_out;
    weft_tensor x = weft_to(in[0], WEFT_CUDA(0)), w = weft_to(in[1], WEFT_CUDA(0));
    out[0] = weft_mul(weft_layer_norm(weft_matmul(x, w)), weft_sin(x));
    return weft_error_status(out[0]);
}

Test(device_train, gradients_through_a_transfer_are_right)
{
    device_double_install();
    weft_tensor in[2] = {weft_rand(weft_shape(3, 4), .dtype = WEFT_F64),
                         weft_rand(weft_shape(4, 4), .dtype = WEFT_F64)};
    weft_requires_grad_(in[0], true);
    weft_requires_grad_(in[1], true);
    cr_assert_eq(weft_gradcheck(.fn = there, .inputs = in, .n_in = 2, .n_out = 1), WEFT_OK, "%s",
                 weft_last_error());
    in[0] = weft_to(weft_detach(in[0]), WEFT_CUDA(0));
    weft_requires_grad_(in[0], true);
    cr_assert_eq(weft_gradcheck(.fn = there, .inputs = in, .n_in = 2, .n_out = 1),
                 WEFT_EUNSUPPORTED);
    cr_assert(strstr(weft_last_error(), "on cuda:0"), "%s", weft_last_error());
}

/* Saved from a device, loaded on the host and on the device: training goes on with equal bits. */
Test(device_train, checkpoints)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-device-%d.safetensors", (int)getpid());
    device_double_install();
    trainer a, b, c;
    trainer_open(&a, WEFT_CUDA(0), false, false);
    trainer_open(&b, WEFT_CUDA(0), false, false);
    trainer_open(&c, WEFT_CPU, false, false);
    trainer *all[3] = {&a, &b, &c};
    for (int i = 0; i < 4; i++) {
        if (i == 2) {
            cr_assert_eq(weft_checkpoint_save(path, a.m, a.optim), WEFT_OK, "%s",
                         weft_last_error());
            for (int k = 1; k < 3; k++) {
                cr_assert_eq(weft_checkpoint_load(path, all[k]->m, all[k]->optim), WEFT_OK, "%s",
                             weft_last_error());
                all[k]->data = a.data;
                all[k]->step = a.step;
                all[k]->init = a.init; /* dropout draws from it */
            }
            unlink(path);
        }
        for (int k = 0; k < (i < 2 ? 1 : 3); k++) {
            weft_scope sc = weft_scope_begin();
            weft_tensor loss;
            weft_manual_seed((uint64_t)i);
            cr_assert_eq(train_step(all[k], NULL, 0, &loss, 1), WEFT_OK, "%s", weft_last_error());
            weft_scope_end(sc);
        }
    }
    check_trainers("resumed on the device", &a, &b);
    check_trainers("resumed on the host", &a, &c);
    for (int k = 0; k < 3; k++) {
        trainer_close(all[k]);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* A step that could not read or write its counter leaves the optimiser as it was: the next step is the step it was to be. */
Test(device_train, a_step_that_failed_is_not_counted)
{
    device_double_install();
    weft_module *m[2];
    weft_optim *o[2];
    weft_tensor w[2], count[2];
    for (int k = 0; k < 2; k++) {
        m[k] = weft_module_new(NULL);
        w[k] = weft_module_parameter(m[k], "w", weft_ones(weft_shape(4), WEFT_F32));
        cr_assert_eq(weft_module_to(m[k], WEFT_CUDA(0)), WEFT_OK, "%s", weft_last_error());
        o[k] = weft_adamw_new(m[k], 0.1);
        count[k] = weft_optim_state(o[k])[weft_optim_state_count(o[k]) - 1].tensor;
        cr_assert_eq(weft_device_of(count[k]).kind, WEFT_DEVICE_CUDA);
    }
    for (int step = 0; step < 6; step++) {
        for (int k = 0; k < 2; k++) {
            weft_tensor loaded = weft_full(weft_shape_from(0, NULL), step, WEFT_I64);
            weft_copy_(count[k], loaded); /* a checkpoint: the counter is to be read */
            weft_module_zero_grad(m[k]);
            cr_assert_eq(weft_backward(weft_sum(weft_square(w[k]))), WEFT_OK);
            if (k == 1) {
                device_double_fail_read(1);
                cr_assert_neq(weft_optim_step(o[k]), WEFT_OK, "step %d", step);
                device_double_fail_read(0);
            }
            cr_assert_eq(weft_optim_step(o[k]), WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_item_i64(count[k]), step + 1);
        }
        check_equal("parameters", w[0], w[1]);
    }
    for (int k = 0; k < 2; k++) {
        weft_optim_free(o[k]);
        weft_module_free(m[k]);
    }
}
