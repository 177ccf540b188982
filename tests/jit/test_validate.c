/*
 * tests/jit/test_validate.c -- WEFT_VALIDATE: right kernels pass, a planted wrong one is named with its ops, the element and
 * both values, whether tier 0 or a native kernel runs it.
 */
#include <unistd.h>

#include "tests/jit/corner_support.h"
#include "tests/jit/validate_support.h"

static const char chain[] = VALIDATE_CHAIN "  return %9, %6\n}\n";

/* One run of p with ordinary operands. */
static int run(const wf_fn *f, wf_plan *p, wf_why *why)
{
    weft_scope sc = weft_scope_begin();
    wf_view in[PLAN_ARGS], out[PLAN_ARGS];
    memset(out, 0, sizeof out);
    *why = (wf_why){0};
    for (uint32_t k = 0; k < f->ninputs; k++) {
        plan_view(plan_input(f, k), &in[k]);
    }
    wf_plan_args a = {.fn = f, .in = in, .out = out};
    const int rc = wf_plan_run(p, &a, why);
    for (uint32_t k = 0; k < f->noutputs; k++) {
        if (out[k].data) {
            wf_free(out[k].data, (size_t)wf_view_numel(&out[k]) * wf_dtype_size(out[k].dtype));
        }
    }
    weft_scope_end(sc);
    return rc;
}

Test(validate, right_kernels_pass)
{
    static const unsigned flags[] = {WF_PLAN_TIER0, WF_PLAN_SYNC, WF_PLAN_SYNC | WF_PLAN_ROWS,
                                     WF_PLAN_TIER0 | WF_PLAN_ROWS, WF_PLAN_NO_FUSE};
    wf_why why;
    wf_fn *f = plan_parse(chain);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        wf_plan *p = validate_build(f, flags[i]);
        for (int n = 0; n < 2; n++) {
            cr_expect_eq(run(f, p, &why), 0, "%s", why.rule);
        }
        cr_expect_not_null(p->reference);
        wf_plan_release(p);
    }
    wf_fn_free(f);
}

Test(validate, a_wrong_program_is_named)
{
    wf_why why;
    wf_inst *inst;
    wf_fn *f = plan_parse(chain);
    wf_plan *p = validate_build(f, WF_PLAN_TIER0);
    validate_program(p, WF_OP_TANH, &inst);
    inst->op = WF_OP_SIN;
    cr_expect_eq(run(f, p, &why), WEFT_EINVALID);
    validate_says(&why, "validation: ");
    validate_says(&why, "tier 0");
    validate_says(&why, "element 0 of %4");
    validate_says(&why, "mul (model.c:3) tanh (model.c:4)");
    inst->op = WF_OP_TANH; /* and right again */
    cr_expect_eq(run(f, p, &why), 0, "%s", why.rule);
    /* one element in the last place: the one that is named */
    validate_program(p, WF_OP_ADD, &inst);
    inst->op = WF_OP_SUB;
    cr_expect_eq(run(f, p, &why), WEFT_EINVALID);
    validate_says(&why, "add (model.c:6)");
    wf_plan_release(p);
    wf_fn_free(f);
}

Test(validate, a_wrong_native_kernel_is_named)
{
    wf_why why;
    wf_inst *inst;
    if (wf_backend_cpu.available(&why)) {
        cr_skip_test("no LLVM");
    }
    wf_fn *f = plan_parse(chain);
    wf_plan *p = validate_build(f, WF_PLAN_SYNC | WF_PLAN_PLAIN);
    cr_expect_eq(run(f, p, &why), 0, "%s", why.rule);
    wf_plan_program *g = validate_program(p, WF_OP_TANH, &inst);
    wf_program wrong = *g->program;
    wrong.inst[inst - g->program->inst].op = WF_OP_SIN;
    wf_jitk *right = g->kernel;
    g->kernel = wf_jitk_get(&wrong, &(wf_jitk_opts){.one = g->one, .sync = true});
    cr_assert_eq(wf_jitk_get_state(g->kernel), WF_JITK_NATIVE);
    cr_expect_eq(run(f, p, &why), WEFT_EINVALID);
    validate_says(&why, "validation: m_mul_sin__");
    validate_says(&why, "native");
    validate_says(&why, "mul (model.c:3) tanh (model.c:4)");
    wf_jitk_release(g->kernel);
    g->kernel = right;
    wf_plan_release(p);
    wf_fn_free(f);
}

/* A value in the memory of another that still lives: no kernel is wrong, and what it is read as is. */
Test(validate, a_wrong_place_is_named)
{
    wf_why why;
    wf_fn *f = plan_parse(chain);
    wf_plan *p = validate_build(f, WF_PLAN_TIER0 | WF_PLAN_NO_FUSE);
    validate_misplace(p);
    cr_expect_eq(run(f, p, &why), WEFT_EINVALID);
    validate_says(&why, "add (model.c:6)");
    wf_plan_release(p);
    wf_fn_free(f);
}

FN(step)
{
    weft_tensor h = weft_dropout(weft_gelu(weft_mul(in[0], weft_f(3))), 0.25);
    out[0] = weft_softmax(weft_matmul(h, in[1]), -1);
    return weft_add_(in[1], weft_mean(out[0]));
}

/* By the environment, which is read once: a process of its own. 0: all calls were right and compared. */
static int child(void)
{
    setenv("WEFT_VALIDATE", "1", 1);
    weft_jit *j = weft_jit_trace(step, NULL, .name = "step");
    weft_tensor in[2] = {weft_randn(weft_shape(8, 64), WEFT_F32),
                         weft_randn(weft_shape(64, 5), WEFT_F32)},
                y;
    int rc = 0;
    for (int i = 0; i < 5 && !rc; i++) {
        rc = (int)weft_jit_call(j, in, 2, &y, 1);
    }
    weft_jit_free(j);
    wf_why why = {0};
    wf_inst *inst;
    wf_fn *f = plan_parse(chain);
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
    validate_program(p, WF_OP_TANH, &inst);
    inst->op = WF_OP_SIN;
    return rc ? 1 : run(f, p, &why) == WEFT_EINVALID ? 0 : 2;
}

Test(validate, the_environment_asks_for_it)
{
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(child());
    }
    test_wait(pid);
}
