/*
 * tests/jit/test_cuda_programs.c -- programs on the device: the bits of the interpreter, whatever the strides.
 *
 * ctest: timeout=900
 */
#include <stdio.h>

#include "tests/jit/kernel_support.h"

#include "tests/jit/cuda_support.h"

static const int64_t shapes[][2] = {
    {3, 70}, {5, 64},    {7, 1000}, {1, 4096}, {2, 4097},  {2, 9000}, {40, 129}, {9, 16},
    {4, 3},  {1, 70001}, {33, 1},   {5, 0},    {100, 300}, {9, 5000}, {0, 7},    {2, 100003}};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

static void run_on_device(const wf_program *p, operands *o, const char *what)
{
    const wf_program_args device = {o->dst, o->src, o->scalar, o->axes};
    const wf_program_args tiles = {o->want, o->src, o->scalar, o->axes};
    wf_why why = {0};
    const int want = wf_program_run_on(p, &tiles);
    const int got = device_program(p, &device, &why);
    cr_assert_eq(got, want, "%s: %d %s", what, got, why.rule);
    if (want == 0)
        check_outputs(o, p, what, 0);
}

Test(cuda_programs, random_elementwise)
{
    NEED_FIBERS();
    static const int64_t dims[][2] = {{37, 129}, {64, 64}, {1, 1000}, {5, 8}, {3, 0}, {257, 3}};
    for (int t = 0; t < 60; t++) {
        static sample s;
        draw(&s, 1 + t % 12);
        for (int c = 0; c < 2; c++) {
            operands o;
            make_operands(&o, &s.p, 1 + (t + c) % 2, dims[below(6)] + ((t + c) % 2 == 0), c == 0,
                          t);
            run_on_device(&s.p, &o, "random program");
            drop_operands(&o);
        }
    }
}

/* -- with reductions -------------------------------------------------------------------------------------- */
static int map2(wf_program *p, wf_op op, int a, int b)
{
    const int src[2] = {a, b};
    return wf_program_map(p, op, WEFT_F32, 2, src);
}
static int map1(wf_program *p, wf_op op, int a)
{
    return wf_program_map(p, op, WEFT_F32, 1, &a);
}

static void softmax(wf_program *p, int dtype)
{
    const int x = wf_program_cast(p, wf_program_input(p, dtype), WEFT_F32);
    const int m = wf_program_reduce(p, WF_OP_AMAX, x);
    const int e = map1(p, WF_OP_EXP, map2(p, WF_OP_SUB, x, m));
    const int y = map2(p, WF_OP_DIV, e, wf_program_reduce(p, WF_OP_SUM, e));
    wf_program_output(p, wf_program_cast(p, y, dtype));
}

static void layer_norm(wf_program *p, int dtype)
{
    const int x = wf_program_cast(p, wf_program_input(p, dtype), WEFT_F32);
    const int w = wf_program_cast(p, wf_program_input(p, dtype), WEFT_F32);
    const int n = wf_program_scalar(p, WEFT_F32), eps = wf_program_scalar(p, WEFT_F32);
    const int mean = map2(p, WF_OP_DIV, wf_program_reduce(p, WF_OP_SUM, x), n);
    const int d = map2(p, WF_OP_SUB, x, mean);
    const int var =
        map2(p, WF_OP_DIV, wf_program_reduce(p, WF_OP_SUM, map2(p, WF_OP_MUL, d, d)), n);
    const int sd = map1(p, WF_OP_SQRT, map2(p, WF_OP_ADD, map1(p, WF_OP_ABS, var), eps));
    wf_program_output(p,
                      wf_program_cast(p, map2(p, WF_OP_MUL, map2(p, WF_OP_DIV, d, sd), w), dtype));
    wf_program_output(p, mean);
    wf_program_output(p, sd);
}

/* Cross entropy with its check, and the gradient's share. */
static void cross_entropy(wf_program *p, int dtype)
{
    const int x0 = wf_program_input(p, dtype);
    const int x = wf_program_cast(p, x0, WEFT_F32), target = wf_program_input_row(p, WEFT_I64);
    const int m = wf_program_reduce(p, WF_OP_AMAX, x);
    const int e = map1(p, WF_OP_EXP, map2(p, WF_OP_SUB, x, m));
    const int lse = map2(p, WF_OP_ADD, m, map1(p, WF_OP_LOG, wf_program_reduce(p, WF_OP_SUM, e)));
    const int at = wf_program_cast(p, wf_program_pick(p, x0, target), WEFT_F32);
    wf_program_output(p, map2(p, WF_OP_SUB, lse, at));
    const int pair[2] = {wf_program_iota(p, WEFT_I64), target};
    const int hit = wf_program_map(p, WF_OP_EQUAL, WEFT_I64, 2, pair);
    const int q = map1(p, WF_OP_EXP, map2(p, WF_OP_SUB, x, lse));
    wf_program_output(p, map2(p, WF_OP_SUB, q, wf_program_cast(p, hit, WEFT_F32)));
    wf_program_check(p, wf_program_map(p, WF_OP_ISFINITE, WEFT_F32, 1, &lse));
}

static void everything_reduced(wf_program *p, int dtype)
{
    static const wf_op ops[] = {WF_OP_SUM,  WF_OP_PROD, WF_OP_AMAX,
                                WF_OP_AMIN, WF_OP_ANY,  WF_OP_ALL};
    const int x = wf_program_input(p, dtype);
    for (int i = 0; i < 6; i++)
        wf_program_output(p, wf_program_reduce(p, ops[i], x));
}

typedef void (*maker)(wf_program *p, int dtype);

static void check_named(maker make, const int *dtypes, int ndtypes)
{
    for (int d = 0; d < ndtypes; d++) {
        static wf_program p;
        wf_program_init(&p);
        make(&p, dtypes[d]);
        cr_assert_eq(wf_program_finish(&p), 0);
        for (int z = 0; z < NSHAPES; z++)
            for (int plain = 0; plain < 2; plain++) {
                char what[64];
                operands o;
                snprintf(what, sizeof what, "%s, %d x %d", wf_dtype_name(dtypes[d]),
                         (int)shapes[z][0], (int)shapes[z][1]);
                make_operands(&o, &p, 2, shapes[z], plain, z);
                o.axes = 2;
                for (int i = 0; i < p.ninput && shapes[z][1] > 0; i++)
                    if (p.type[p.input[i]] == WEFT_I64 && p.level[p.input[i]] == WF_LEVEL_ROW)
                        for (int64_t j = 0; j < 2 * shapes[z][0]; j++)
                            ((int64_t *)o.src[i].data)[j] = j * 7 % shapes[z][1];
                run_on_device(&p, &o, what);
                drop_operands(&o);
            }
    }
}

static const int floats[] = {WEFT_F32, WEFT_BF16};
static const int all[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_I32, WEFT_BOOL};

Test(cuda_programs, softmax)
{
    NEED_FIBERS();
    check_named(softmax, floats, 2);
}
Test(cuda_programs, layer_norm)
{
    NEED_FIBERS();
    check_named(layer_norm, floats, 2);
}
Test(cuda_programs, cross_entropy)
{
    NEED_FIBERS();
    check_named(cross_entropy, floats, 2);
}
Test(cuda_programs, everything_reduced)
{
    NEED_FIBERS();
    check_named(everything_reduced, all, 5);
}
