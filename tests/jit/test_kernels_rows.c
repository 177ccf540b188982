/*
 * tests/jit/test_kernels_rows.c -- fused groups with reductions compiled: the bits of the interpreter at every width.
 *
 * ctest: threads timeout=900
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/jit/kernel_support.h"
#include "tests/support/effort.h"

static const wf_target targets[] = {{"host", 0},  {"host", 1},       {"host", 4},
                                    {"host", 16}, {"x86-64-v3", 32}, {"x86-64", 64}};
enum { NTARGETS = sizeof targets / sizeof *targets };
static const int64_t shapes[][2] = {{3, 70},   {5, 64},   {7, 1000}, {1, 4096}, {2, 4097},
                                    {2, 9000}, {40, 129}, {9, 16},   {4, 3},    {1, 70001}};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

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
    const int y = map2(p, WF_OP_MUL, map2(p, WF_OP_DIV, d, sd), w);
    wf_program_output(p, wf_program_cast(p, y, dtype));
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
        for (int t = 0; t < NTARGETS; t++) {
            wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.target = targets[t]});
            for (int z = 0; z < NSHAPES; z++) {
                operands o;
                make_operands(&o, &p, 2, shapes[z], (z + t) % 2, z);
                o.axes = 2;
                for (int i = 0; i < p.ninput; i++)
                    if (p.type[p.input[i]] == WEFT_I64 && p.level[p.input[i]] == WF_LEVEL_ROW)
                        for (int64_t j = 0; j < 2 * shapes[z][0]; j++)
                            ((int64_t *)o.src[i].data)[j] = j * 7 % shapes[z][1];
                run_both(k, &p, &o, targets[t].width);
                drop_operands(&o);
            }
            wf_jitk_release(k);
        }
    }
}

Test(kernels_rows, named_groups_at_every_width)
{
    NEED_LLVM();
    static const int floats[] = {WEFT_F32, WEFT_BF16};
    static const int all[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_I32, WEFT_BOOL};
    check_named(softmax, floats, 2);
    check_named(layer_norm, floats, 2);
    check_named(cross_entropy, floats, 2);
    check_named(everything_reduced, all, 5);
}

/* -- random ones ------------------------------------------------------------------------------------------- */
static void reduce_some(sample *s)
{
    static const wf_op ops[] = {WF_OP_SUM,  WF_OP_SUM, WF_OP_PROD, WF_OP_AMAX,
                                WF_OP_AMIN, WF_OP_ANY, WF_OP_ALL};
    keep(s, wf_program_reduce(&s->p, ops[below(7)], s->value[below(s->count)]));
}

static void draw_rows(sample *s)
{
    memset(s, 0, sizeof *s);
    wf_program_init(&s->p);
    for (int i = 0; i < 3; i++)
        keep(s, i == 2 ? wf_program_input_row(&s->p, storage[below(NSTORAGE)])
                       : wf_program_input(&s->p, storage[below(NSTORAGE)]));
    keep(s, wf_program_scalar(&s->p, storage[below(NSTORAGE)]));
    keep(s, wf_program_iota(&s->p, WEFT_I32));
    for (int r = 0; r < 1 + below(3); r++) {
        for (int steps = 1 + below(4); steps > 0;)
            steps -= step(s);
        reduce_some(s);
    }
    for (int steps = 1 + below(3); steps > 0;)
        steps -= step(s);
    for (int o = 0; o < 3; o++) {
        const int v = s->value[o == 0 ? s->count - 1 : below(s->count)];
        if (below(3) == 0)
            wf_program_output_at(&s->p, v, WF_LEVEL_ELEM);
        else
            wf_program_output(&s->p, v);
    }
    cr_assert_eq(wf_program_finish(&s->p), 0);
}

Test(kernels_rows, random_groups)
{
    NEED_LLVM();
    for (int t = 0; t < (int)effort_of(150); t++) {
        static sample s;
        draw_rows(&s);
        if (!s.p.rows)
            continue;
        const wf_target *target = &targets[t % NTARGETS];
        wf_jitk *k = wf_jitk_get(&s.p, &(wf_jitk_opts){.target = *target});
        for (int c = 0; c < 3; c++) {
            operands o;
            make_operands(&o, &s.p, 2, shapes[below(NSHAPES)], c == 0, t);
            o.axes = 2;
            run_both(k, &s.p, &o, target->width);
            drop_operands(&o);
        }
        wf_jitk_release(k);
    }
}

/* A destination in the memory of a source that a later stage still reads. */
Test(kernels_rows, in_place)
{
    NEED_LLVM();
    static const maker makers[] = {softmax, layer_norm, cross_entropy};
    for (int m = 0; m < 3; m++)
        for (int z = 0; z < NSHAPES; z++) {
            static wf_program p;
            operands o;
            wf_program_init(&p);
            makers[m](&p, WEFT_F32);
            const int d = wf_program_map(&p, WF_OP_NEG, WEFT_F32, 1, (int[]){p.input[0]});
            wf_program_output(&p, d);
            cr_assert_eq(wf_program_finish(&p), 0);
            make_operands(&o, &p, 2, shapes[z], true, z);
            o.axes = 2;
            const size_t bytes = (size_t)(shapes[z][0] * shapes[z][1]) * 4;
            void *x = malloc(bytes + 64);
            const wf_program_args tiles = {o.want, o.src, o.scalar, o.axes};
            const int status = wf_program_run_on(&p, &tiles);
            memcpy(x, o.src[0].data, bytes);
            memset((char *)x + bytes, 0x5A, 64);
            o.src[0].data = o.dst[p.noutput - 1].data = x;
            wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
            cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
            const wf_program_args native = {o.dst, o.src, o.scalar, o.axes};
            cr_assert_eq(wf_jitk_run(k, &native), status);
            check_outputs(&o, &p, wf_jitk_name(k), 0);
            wf_jitk_release(k);
            drop_operands(&o);
            free(x);
        }
}
