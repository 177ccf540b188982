/*
 * tests/jit/test_cuda_validate.c -- WEFT_VALIDATE on a device: right kernels pass, a planted wrong one is named with its ops, the
 * element and both values; traces whose calls would be captured are looked at launch by launch.
 *
 * ctest: timeout=300
 */
#include "tests/jit/cuda_support.h"

#include <unistd.h>

#include "eager/device.h"
#include "tests/jit/validate_support.h"
#include "tests/support/support.h"
#include "weft/jit.h"

static const char chain[] = VALIDATE_CHAIN "  %10 = slice f32[0,9] %9 ints(0) dyn(0,0,1)\n"
                                           "  %11 = exp f32[0,9] %10\n  return %9, %6, %11\n}\n";

typedef struct results {
    const wf_plan *p;
    wf_view *out;
    void *block[PLAN_ARGS];
} results;

static int give(void *user, uint32_t k, wf_why *why)
{
    results *r = user;
    void *address = NULL;
    r->block[k] = wf_device_alloc(1, (size_t)wf_type_bytes(&r->p->out_type[k]) + 1, &address, why);
    wf_view_of_type(&r->out[k], &r->p->out_type[k], address);
    r->out[k].device = 1;
    return r->block[k] ? 0 : why->code;
}

/* One run of p on the device with ordinary operands. */
static int run(const wf_fn *f, wf_plan *p, wf_why *why)
{
    weft_scope sc = weft_scope_begin();
    wf_view in[PLAN_ARGS], out[PLAN_ARGS];
    results r = {.p = p, .out = out};
    memset(out, 0, sizeof out);
    *why = (wf_why){0};
    for (uint32_t k = 0; k < f->ninputs; k++) {
        const weft_tensor x = weft_to(plan_input(f, k), WEFT_CUDA(0));
        cr_assert(weft_ok(x), "%s", weft_last_error());
        plan_view(x, &in[k]);
    }
    wf_plan_args a = {.fn = f, .in = in, .out = out, .back = give, .user = &r, .device = 1};
    const int rc = wf_plan_run(p, &a, why);
    for (uint32_t k = 0; k < f->noutputs; k++) {
        if (r.block[k]) {
            wf_device_free(r.block[k]);
        }
    }
    weft_scope_end(sc);
    return rc;
}

static wf_inst *inst_of(const wf_plan *p, wf_op op)
{
    wf_inst *inst;
    wf_program_number(validate_program(p, op, &inst)->program); /* it becomes another one */
    return inst;
}

Test(cuda_validate, right_kernels_pass)
{
    static const unsigned flags[] = {WF_PLAN_DEVICE, WF_PLAN_DEVICE | WF_PLAN_SYNC,
                                     WF_PLAN_DEVICE | WF_PLAN_NO_FUSE,
                                     WF_PLAN_DEVICE | WF_PLAN_FAST};
    NEED_FIBERS();
    wf_why why;
    wf_fn *f = plan_parse(chain);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        wf_plan *p = validate_build(f, flags[i]);
        for (int n = 0; n < 2; n++) {
            cr_expect_eq(run(f, p, &why), 0, "%s", why.rule);
        }
        cr_expect_eq(p->reference == NULL, (flags[i] & WF_PLAN_FAST) != 0); /* not compared */
        wf_plan_release(p);
    }
    wf_fn_free(f);
}

Test(cuda_validate, a_wrong_kernel_is_named)
{
    NEED_FIBERS();
    wf_why why;
    wf_fn *f = plan_parse(chain);
    wf_plan *p = validate_build(f, WF_PLAN_DEVICE); /* its kernels are waited for */
    inst_of(p, WF_OP_TANH)->op = WF_OP_SIN;
    cr_expect_eq(run(f, p, &why), WEFT_EINVALID);
    validate_says(&why, "validation: ");
    validate_says(&why, "(step 0, cuda:0)");
    validate_says(&why, " for element 0 of %");
    validate_says(&why, "mul (model.c:3) tanh (model.c:4)");
    inst_of(p, WF_OP_SIN)->op = WF_OP_TANH; /* and right again */
    cr_expect_eq(run(f, p, &why), 0, "%s", why.rule);
    wf_plan_release(p);
    p = validate_build(f, WF_PLAN_DEVICE);
    inst_of(p, WF_OP_ADD)->op = WF_OP_SUB;
    cr_expect_eq(run(f, p, &why), WEFT_EINVALID);
    validate_says(&why, "add (model.c:6)");
    p->flags |= WF_PLAN_FAST; /* as it would be under fast math: nothing is said */
    cr_expect_eq(run(f, p, &why), 0, "%s", why.rule);
    wf_plan_release(p);
    wf_fn_free(f);
}

/* A value in the memory of another that still lives. */
Test(cuda_validate, a_wrong_place_is_named)
{
    NEED_FIBERS();
    wf_why why;
    wf_fn *f = plan_parse(chain);
    wf_plan *p = validate_build(f, WF_PLAN_DEVICE | WF_PLAN_NO_FUSE);
    validate_misplace(p);
    cr_expect_eq(run(f, p, &why), WEFT_EINVALID);
    validate_says(&why, "add (model.c:6)");
    wf_plan_release(p);
    wf_fn_free(f);
}

static weft_status step(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_dropout(weft_gelu(weft_mul(in[0], weft_f(3))), 0.25);
    out[0] = weft_softmax(weft_matmul(h, in[1]), -1);
    return weft_add_(in[1], weft_mean(out[0]));
}

static weft_status picks(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_exp(weft_index_select(in[0], 0, in[1]));
    return weft_error_status(out[0]);
}

/* By the environment, which is read once: a process of its own. 0: all calls were right, none was captured, an index that is
 * outside is the run's own error. */
static int child(void)
{
    setenv("WEFT_VALIDATE", "1", 1);
    setenv("WEFT_CUDA_GRAPHS", "2", 1);
    weft_jit *j = weft_jit_trace(step, NULL, .name = "step"),
             *k = weft_jit_trace(picks, NULL, .name = "picks");
    weft_tensor in[2] = {weft_to(weft_randn(weft_shape(8, 64), WEFT_F32), WEFT_CUDA(0)),
                         weft_to(weft_randn(weft_shape(64, 5), WEFT_F32), WEFT_CUDA(0))},
                at[2] = {in[0], weft_to(weft_full(weft_shape(3), 9, WEFT_I64), WEFT_CUDA(0))}, y;
    int rc = 0;
    for (int i = 0; i < 5 && !rc; i++) {
        rc = (int)weft_jit_call(j, in, 2, &y, 1);
    }
    if (rc || !weft_ok(weft_to(y, WEFT_CPU)) || wf_device_gpu.graphs->wanted() != 0) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    rc = (int)weft_jit_call(k, at, 2, &y, 1);
    rc = rc ? rc : (int)weft_error_status(weft_to(y, WEFT_CPU));
    weft_jit_free(j);
    weft_jit_free(k);
    return rc == WEFT_EINDEX && !strstr(weft_last_error(), "validation") ? 0 : 2;
}

Test(cuda_validate, the_environment_asks_for_it)
{
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(child());
    }
    test_wait(pid);
}
