/*
 * tests/jit/programs.h -- programs with reductions: softmax and its kin written out, and random ones.
 */
#ifndef TESTS_JIT_PROGRAMS_H
#define TESTS_JIT_PROGRAMS_H

#include "tests/jit/kernel_support.h"

typedef void (*program_maker)(wf_program *p, int dtype);

static inline int program_map2(wf_program *p, wf_op op, int a, int b)
{
    const int src[2] = {a, b};
    return wf_program_map(p, op, WEFT_F32, 2, src);
}
static inline int program_map1(wf_program *p, wf_op op, int a)
{
    return wf_program_map(p, op, WEFT_F32, 1, &a);
}

static inline void program_softmax(wf_program *p, int dtype)
{
    const int x = wf_program_cast(p, wf_program_input(p, dtype), WEFT_F32);
    const int m = wf_program_reduce(p, WF_OP_AMAX, x);
    const int e = program_map1(p, WF_OP_EXP, program_map2(p, WF_OP_SUB, x, m));
    const int y = program_map2(p, WF_OP_DIV, e, wf_program_reduce(p, WF_OP_SUM, e));
    wf_program_output(p, wf_program_cast(p, y, dtype));
}

static inline void program_layer_norm(wf_program *p, int dtype)
{
    const int x = wf_program_cast(p, wf_program_input(p, dtype), WEFT_F32);
    const int w = wf_program_cast(p, wf_program_input(p, dtype), WEFT_F32);
    const int n = wf_program_scalar(p, WEFT_F32), eps = wf_program_scalar(p, WEFT_F32);
    const int mean = program_map2(p, WF_OP_DIV, wf_program_reduce(p, WF_OP_SUM, x), n);
    const int d = program_map2(p, WF_OP_SUB, x, mean);
    const int var = program_map2(
        p, WF_OP_DIV, wf_program_reduce(p, WF_OP_SUM, program_map2(p, WF_OP_MUL, d, d)), n);
    const int sd = program_map1(p, WF_OP_SQRT,
                                program_map2(p, WF_OP_ADD, program_map1(p, WF_OP_ABS, var), eps));
    wf_program_output(
        p, wf_program_cast(p, program_map2(p, WF_OP_MUL, program_map2(p, WF_OP_DIV, d, sd), w),
                           dtype));
    wf_program_output(p, mean);
    wf_program_output(p, sd);
}

/* Cross entropy with its check, and the gradient's share. */
static inline void program_cross_entropy(wf_program *p, int dtype)
{
    const int x0 = wf_program_input(p, dtype);
    const int x = wf_program_cast(p, x0, WEFT_F32), target = wf_program_input_row(p, WEFT_I64);
    const int m = wf_program_reduce(p, WF_OP_AMAX, x);
    const int e = program_map1(p, WF_OP_EXP, program_map2(p, WF_OP_SUB, x, m));
    const int lse = program_map2(p, WF_OP_ADD, m,
                                 program_map1(p, WF_OP_LOG, wf_program_reduce(p, WF_OP_SUM, e)));
    const int at = wf_program_cast(p, wf_program_pick(p, x0, target), WEFT_F32);
    wf_program_output(p, program_map2(p, WF_OP_SUB, lse, at));
    const int pair[2] = {wf_program_iota(p, WEFT_I64), target};
    const int hit = wf_program_map(p, WF_OP_EQUAL, WEFT_I64, 2, pair);
    const int q = program_map1(p, WF_OP_EXP, program_map2(p, WF_OP_SUB, x, lse));
    wf_program_output(p, program_map2(p, WF_OP_SUB, q, wf_program_cast(p, hit, WEFT_F32)));
    wf_program_check(p, wf_program_map(p, WF_OP_ISFINITE, WEFT_F32, 1, &lse));
}

static inline void program_everything_reduced(wf_program *p, int dtype)
{
    static const wf_op ops[] = {WF_OP_SUM,  WF_OP_PROD, WF_OP_AMAX,
                                WF_OP_AMIN, WF_OP_ANY,  WF_OP_ALL};
    const int x = wf_program_input(p, dtype);
    for (int i = 0; i < 6; i++)
        wf_program_output(p, wf_program_reduce(p, ops[i], x));
}

static inline void program_reduce_some(sample *s)
{
    static const wf_op ops[] = {WF_OP_SUM,  WF_OP_SUM, WF_OP_PROD, WF_OP_AMAX,
                                WF_OP_AMIN, WF_OP_ANY, WF_OP_ALL};
    const int value = s->value[below(s->count)];
    keep(s, wf_program_reduce(&s->p, ops[below(7)], value));
}

static inline void program_draw_rows(sample *s)
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
        program_reduce_some(s);
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

#endif
