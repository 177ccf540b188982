/*
 * tests/jit/test_flops.c -- floating-point operations and bytes that are counted from the IR, against counts by hand.
 *
 * Every case is a function of one row; its operations were counted on paper from the row's formula, its bytes are those
 * of its operands and results. exp, log, ... are E(..) there: those are counted from their bodies below.
 */
#include <math.h>

#include "jit/ir/flops.h"
#include "jit/passes/cost.h"
#include "tests/jit/plan_support.h"

typedef struct counted {
    const char *text;     /* operands, then the row */
    int64_t flops, reads; /* bytes */
    int64_t writes;
} counted;

#define IN(n, type) "  %" #n " = input " type "\n"
#define E(op) wf_flops_element(WF_OP_##op, -1, WEFT_F32)

/* Sizes that a hostile file may have: sums stay what they are at most, and what no memory holds is refused. */
Test(flops, sizes_beyond_any_memory)
{
    static const char *const refused[] = {
        /* three tensors of 2^62 bytes; one that is repeated so often, read to its end */
        IN(1,
           "f32[1152921504606846976]") "  %2 = exp f32[1152921504606846976] %1\n"
                                       "  %3 = neg f32[1152921504606846976] %2\n  return %2, %3\n",
        IN(1, "f32[1]") "  %2 = expand f32[1125899906842624,2] %1 dyn(1125899906842624,2)\n"
                        "  %3 = sum f32[2] %2 ints(0) dtype(f32)\n  return %3\n"};
    wf_why why;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char text[1000];
        snprintf(text, sizeof text, "fn f {\n%s}\n", refused[i]);
        wf_fn *f = plan_parse(text);
        wf_why_clear(&why);
        cr_assert_null(wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why), "%s", text);
        cr_assert(why.code == WEFT_ENOMEM && strstr(why.rule, "more than any memory has"), "%s",
                  why.rule);
        wf_fn_free(f);
    }
    for (int returned = 0; returned < 2; returned++) { /* 300 of 2^52 bytes; one, 300 times */
        enum { MANY = 300 };
        char text[64 * MANY], *t = text;
        t = stpcpy(t, "fn f {\n" IN(1, "f32[1125899906842624]"));
        for (int v = 2; v < MANY && !returned; v++) {
            t += sprintf(t, "  %%%d = exp f32[1125899906842624] %%%d\n", v, v - 1);
        }
        t += sprintf(t, returned ? "  return %%1" : "  return %%%d", MANY - 1);
        for (int o = 0; o < MANY && returned; o++) {
            t += sprintf(t, ", %%1");
        }
        sprintf(t, "\n}\n");
        wf_fn *many = plan_parse(text);
        wf_why_clear(&why);
        cr_assert_null(wf_plan_build(many, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why));
        cr_assert(why.code == WEFT_ENOMEM && strstr(why.rule, "more than any memory has"), "%s",
                  why.rule);
        wf_fn_free(many);
    }
    /* of a view only what is read counts */
    wf_fn *view = plan_parse("fn f {\n" IN(
        1, "f32[1]") "  %2 = expand f32[1125899906842624,1024] %1 dyn(1125899906842624,1024)\n"
                     "  %3 = slice f32[4,1024] %2 ints(0) dyn(0,4,1)\n"
                     "  %4 = exp f32[4,1024] %3\n  return %4\n}\n");
    wf_plan *small = wf_plan_build(view, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
    cr_assert_not_null(small, "%s", why.rule);
    wf_plan_release(small);
    wf_fn_free(view);
    wf_fn *f = plan_parse("fn f {\n" IN(1, "f32[33554432,33554432]") IN(
        2, "f32[33554432,33554432]") "  %3 = matmul f32[33554432,33554432] %1, %2\n"
                                     "  %4 = matmul f32[33554432,33554432] %3, %1\n"
                                     "  return %3, %4\n}\n");
    int32_t launch[4];
    wf_plan_cost cost[4] = {{0}};
    int64_t all = 0;
    wf_why_clear(&why);
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    cr_assert_eq(wf_plan_costs(p, launch, cost, &why), 0);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(cost[i].flops, INT64_MAX);
        wf_cost_add(&all, cost[i].flops);
        cr_expect_gt(cost[i].alone_bytes, (int64_t)1 << 48);
    }
    cr_expect_eq(all, INT64_MAX);
    wf_plan_release(p);
    wf_fn_free(f);
}

static void check(const counted *c)
{
    char text[2000];
    int last = 0;
    for (const char *p = c->text; (p = strstr(p, "  %")) != NULL; p += 3) {
        last = atoi(p + 3); /* the last instruction is the row */
    }
    snprintf(text, sizeof text, "fn f {\n%s  return %%%d\n}\n", c->text, last);
    wf_fn *f = plan_parse(text);
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0 | WF_PLAN_PLAIN}, &why);
    cr_assert_not_null(p, "%s\n%s", why.rule, text);
    wf_plan_info info;
    wf_plan_get_info(p, &info);
    int32_t launch[64];
    wf_plan_cost cost[8] = {{0}};
    cr_assert_eq(info.steps, 1, "%s", text);
    cr_assert_leq(wf_plan_fn(p)->n, 64u);
    cr_assert_eq(wf_plan_costs(p, launch, cost, &why), 0);
    cr_expect_eq(cost[0].flops, c->flops, "%s: %lld flops, by hand %lld", text,
                 (long long)cost[0].flops, (long long)c->flops);
    wf_plan_step_info step;
    cr_assert(wf_plan_step_at(p, 0, &step));
    cr_expect_eq(step.read_bytes, c->reads, "%s: reads %lld, by hand %lld", text,
                 (long long)step.read_bytes, (long long)c->reads);
    cr_expect_eq(step.write_bytes, c->writes, "%s: writes %lld, by hand %lld", text,
                 (long long)step.write_bytes, (long long)c->writes);
    cr_expect_eq(cost[0].alone_bytes, c->reads + c->writes, "%s: alone %lld", text,
                 (long long)cost[0].alone_bytes);
    wf_plan_release(p);
    wf_fn_free(f);
}

Test(flops, rows_by_hand)
{
    const counted cases[] = {
        {IN(1, "f32[6,10]") IN(2, "f32[6,10]") "  %3 = add f32[6,10] %1, %2\n", 60, 480, 240},
        {IN(1, "f32[6,10]") IN(2, "f32[10]") "  %3 = mul f32[6,10] %1, %2\n", 60, 280, 240},
        {IN(1, "f32[6,10]") "  %2 = mul f32[6,10] %1, %1\n", 60, 240, 240},
        {IN(1, "f32[8]") IN(2, "f32[8]") IN(3, "f32[8]") "  %4 = fma f32[8] %1, %2, %3\n", 16, 96,
         32},
        {IN(1, "f32[8]") IN(2, "f32[8]") IN(3, "f32[8]") "  %4 = lerp f32[8] %1, %2, %3\n", 24, 96,
         32},
        {IN(1, "f32[8]") "  %2 = neg f32[8] %1\n", 0, 32, 32},
        {IN(1, "f32[8]") "  %2 = relu f32[8] %1\n", 8, 32, 32},
        {IN(1, "f64[8]") "  %2 = sqrt f64[8] %1\n", 8, 64, 64},
        {IN(1, "bf16[8]") "  %2 = reciprocal bf16[8] %1\n", 8, 16, 16},
        {IN(1, "i32[8]") IN(2, "i32[8]") "  %3 = add i32[8] %1, %2\n", 0, 64, 32},
        {IN(1, "f32[8]") IN(2, "f32[8]") "  %3 = less bool[8] %1, %2\n", 0, 64, 8},
        {IN(1, "bool[8]") IN(2, "f32[8]") IN(3, "f32[8]") "  %4 = where f32[8] %1, %2, %3\n", 0, 72,
         32},
        /* fma 2, sub, fma 2, fma 2, add; a polynomial of degree 4: 8; fma 2, fma 2; mul, mul */
        {IN(1, "f32[8]") "  %2 = exp f32[8] %1\n", 8 * (8 + 8 + 4 + 2), 32, 32},
        {IN(1, "f32[5,9]") "  %2 = sum f32[5] %1 ints(1) dtype(f32)\n", 5 * 8, 180, 20},
        {IN(1, "f32[5,9]") "  %2 = max f32[9] %1 ints(0)\n", 9 * 4, 180, 36},
        {IN(1, "f32[5,9]") "  %2 = mean f32[5] %1 ints(1) dtype(f32)\n", 45, 180, 20},
        /* mean 9; 9 differences, 9 squares; 8 sums and a quotient */
        {IN(1, "f32[5,9]") "  %2 = var f32[5] %1 ints(1) flt(0x1p+0)\n", 5 * 36, 180, 20},
        {IN(1, "f32[5,9]") "  %2 = std f32[5] %1 ints(1) flt(0x1p+0)\n", 5 * 37, 180, 20},
        {IN(1, "f32[5,9]") "  %2 = norm f32[5] %1 ints(1) flt(0x1p+1)\n", 5 * (9 + 8 + 1), 180, 20},
        {IN(1, "i64[5,9]") "  %2 = sum i64[5] %1 ints(1) dtype(i64)\n", 0, 360, 40},
        {IN(1, "f32[5,9]") "  %2 = argmax i64[5] %1 ints(1)\n", 0, 180, 40},
        {IN(1, "f32[5,9]") "  %2 = cumsum f32[5,9] %1 ints(1) dtype(f32)\n", 5 * 8, 180, 180},
        {IN(1, "f32[5,9]") "  %2 = logsumexp f32[5] %1 ints(1)\n",
         5 * (8 + 9 + 9 * E(EXP) + 8 + E(LOG) + 1), 180, 20},
        {IN(1, "f32[4,5]") IN(2, "f32[5,6]") "  %3 = matmul f32[4,6] %1, %2\n", 2 * 4 * 5 * 6, 200,
         96},
        {IN(1, "f32[4,4]") "  %2 = matmul f32[4,4] %1, %1\n", 2 * 64, 64, 64},
        {IN(1, "f32[4,5]") IN(2, "f32[6,5]") IN(3, "f32[6]") "  %4 = linear f32[4,6] %1, %2, %3\n",
         4 * 6 * (10 + 1), 80 + 120 + 24, 96},
        {IN(1, "f32[2,3,8,8]") IN(2, "f32[4,3,3,3]")
             IN(3, "f32[4]") "  %4 = conv2d f32[2,4,8,8] %1, %2, %3 ints(1,1,1,1,1,1,1)\n",
         2 * 4 * 64 * (2 * 27 + 1), 4 * (384 + 108 + 4), 4 * 512},
        /* max 8, 9 differences, 8 sums, 9 quotients a row */
        {IN(1, "f32[5,9]") "  %2 = softmax f32[5,9] %1 ints(1)\n", 5 * (8 + 9 + 9 * E(EXP) + 8 + 9),
         180, 180},
        {IN(1, "f32[5,9]") "  %2 = log_softmax f32[5,9] %1 ints(1)\n",
         5 * (8 + 9 + 9 * E(EXP) + 8 + E(LOG) + 9), 180, 180},
        {IN(1, "f32[5,9]") IN(2, "f32[5,9]") "  %3 = softmax_bwd f32[5,9] %1, %2 ints(1)\n",
         5 * (9 + 8 + 9 + 9), 360, 180},
        {IN(1, "f32[7,4]") IN(2, "i64[3]") "  %3 = index_select f32[3,4] %1, %2 ints(0)\n", 0,
         4 * 12 + 24, 48},
        {IN(1, "f32[2,4]") IN(2, "i64[30]") "  %3 = index_select f32[30,4] %1, %2 ints(0)\n", 0,
         4 * 8 + 240, 480},
        {IN(1, "f32[7,4]") IN(2, "i64[3]")
             IN(3, "f32[3,4]") "  %4 = index_add f32[7,4] %1, %2, %3 ints(0)\n",
         12, 112 + 24 + 48, 112},
        {IN(1, "f32[2,3,8,8]") "  %2 = avg_pool2d f32[2,3,4,4] %1 ints(2,2,2,2,0,0)\n", 96 * 4,
         4 * 384, 4 * 96},
        {IN(1, "f32[5,9]") "  %2 = cast f64[5,9] %1 dtype(f64)\n", 0, 180, 360},
    };
    int seen = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check(&cases[i]);
        seen++;
    }
    cr_assert_geq(seen, 30);
}
