/*
 * tests/jit/test_plan_parts.c -- parts: what a group writes where the concat that reads it has it (jit/plan_parts.c). The bits are
 * those of the ops one by one, along any axis, on both tiers; what must not be a part is none; a plan says what it did.
 */
#include "jit/plan_int.h"
#include "tests/jit/plan_support.h"
#include "tests/jit/random_fn.h"
#include "tests/jit/validate_support.h"

typedef struct parts_case {
    const char *what, *text;
    int parts, steps; /* values that are parts; launches, rows closed */
} parts_case;

static const parts_case cases[] = {
    {"along the last axis, of one group",
     "fn a {\n  %1 = input f32[70,48]\n  %2 = slice f32[70,20] %1 ints(1) dyn(0,20,1)\n"
     "  %3 = slice f32[70,20] %1 ints(1) dyn(28,48,1)\n  %4 = mul f32[70,20] %2, %3\n"
     "  %5 = sub f32[70,20] %2, %3\n  %6 = concat f32[70,40] %4, %5 ints(1)\n  return %6\n}\n",
     2, 1},
    {"along the first, of two",
     "fn a {\n  %1 = input f32[9,50]\n  %2 = input f32[7,50]\n  %3 = exp f32[9,50] %1\n"
     "  %4 = sin f32[7,50] %2\n  %5 = concat f32[16,50] %3, %4 ints(0)\n"
     "  %6 = neg f32[16,50] %5\n  return %6\n}\n",
     2, 3},
    {"whole lines of memory, past the caches",
     "fn a {\n  %1 = input f32[5000,16,32]\n  %2 = input f32[5000,1,32]\n"
     "  %3 = mul f32[5000,16,32] %1, %2\n  %4 = tanh f32[5000,16,32] %3\n"
     "  %5 = sub f32[5000,16,32] %1, %2\n  %6 = concat f32[5000,16,64] %4, %5 ints(2)\n"
     "  return %6\n}\n",
     2, 1},
    {"in the middle",
     "fn a {\n  %1 = input f32[30,2,16,32]\n  %2 = input f32[30,2,1,32]\n"
     "  %3 = mul f32[30,2,16,32] %1, %2\n  %4 = tanh f32[30,2,16,32] %3\n"
     "  %5 = sub f32[30,2,16,32] %1, %2\n  %6 = concat f32[30,4,16,32] %4, %5 ints(1)\n"
     "  return %6\n}\n",
     2, 1},
    {"odd rows, past the caches",
     "fn a {\n  %1 = input f32[50000,37]\n  %2 = input f32[50000,37]\n"
     "  %3 = mul f32[50000,37] %1, %2\n  %4 = sub f32[50000,37] %1, %2\n"
     "  %5 = neg f32[50000,37] %4\n  %6 = concat f32[50000,74] %3, %5 ints(1)\n  return %6\n}\n",
     2, 1},
    {"pairs of single elements",
     "fn a {\n  %1 = input f64[300]\n  %2 = input f64[300]\n  %3 = mul f64[300] %1, %2\n"
     "  %4 = add f64[300] %1, %2\n  %5 = reshape f64[300,1] %3 dyn(300,1)\n"
     "  %6 = reshape f64[300,1] %4 dyn(300,1)\n  %7 = concat f64[300,2] %5, %6 ints(1)\n"
     "  return %7\n}\n",
     2, 1},
    {"two operands that no group makes, two of no elements",
     "fn a {\n  %1 = input bf16[30,8]\n  %2 = input bf16[30,5]\n  %3 = input bf16[30,0]\n"
     "  %4 = gelu bf16[30,8] %1\n  %5 = slice bf16[30,0] %1 ints(1) dyn(2,2,1)\n"
     "  %6 = concat bf16[30,18] %5, %2, %3, %4, %2 ints(1)\n  return %6\n}\n",
     1, 2},
    {"read inside its group as well",
     "fn a {\n  %1 = input f32[60,10]\n  %2 = input f32[60,4]\n  %3 = exp f32[60,10] %1\n"
     "  %4 = mul f32[60,10] %3, %1\n  %5 = concat f32[60,14] %3, %2 ints(1)\n"
     "  return %5, %4\n}\n",
     1, 2},
    {"returned, or read by another kernel: none",
     "fn a {\n  %1 = input f32[60,10]\n  %2 = input f32[60,4]\n  %3 = exp f32[60,10] %1\n"
     "  %4 = sin f32[60,4] %2\n  %5 = cumsum f32[60,4] %4 ints(1)\n"
     "  %6 = concat f32[60,14] %3, %4 ints(1)\n  return %6, %3, %5\n}\n",
     0, -1},
    {"twice the same, and in two concats: none",
     "fn a {\n  %1 = input f32[20,10]\n  %2 = exp f32[20,10] %1\n  %3 = sin f32[20,10] %1\n"
     "  %4 = concat f32[40,10] %2, %2 ints(0)\n  %5 = concat f32[20,20] %3, %1 ints(1)\n"
     "  %6 = concat f32[20,20] %1, %3 ints(1)\n  return %4, %5, %6\n}\n",
     0, -1},
    {"a view of it, and a fill: none",
     "fn a {\n  %1 = input f32[20,10]\n  %2 = exp f32[20,10] %1\n"
     "  %3 = permute f32[10,20] %2 ints(1,0)\n  %4 = full f32[10,4] dyn(10,4) flt(0x1p+1)\n"
     "  %5 = concat f32[10,24] %3, %4 ints(1)\n  return %5\n}\n",
     0, -1},
    {"in the memory of an operand",
     "fn a {\n  %1 = input f32[12,30]\n  %2 = cumsum f32[12,30] %1 ints(1)\n"
     "  %3 = slice f32[6,30] %2 ints(0) dyn(0,6,1)\n  %4 = exp f32[6,30] %3\n"
     "  %5 = input f32[6,30]\n  %6 = sin f32[6,30] %5\n  %7 = concat f32[12,30] %4, %6 ints(0)\n"
     "  %8 = cumsum f32[12,30] %7 ints(1)\n  return %8\n}\n",
     2, 4},
    {"of rows: sums, and what follows them",
     "fn a {\n  %1 = input f32[40,70]\n  %2 = mul f32[40,70] %1, %1\n"
     "  %3 = softmax f32[40,70] %2 ints(1)\n  %4 = neg f32[40,70] %3\n"
     "  %5 = sum f32[40] %4 ints(1)\n  %6 = exp f32[40] %5\n"
     "  %7 = reshape f32[40,1] %6 dyn(40,1)\n  %8 = concat f32[40,71] %7, %4 ints(1)\n"
     "  return %8\n}\n",
     -1, -1},
    {"on the rows of a product",
     "fn a {\n  %1 = input f32[64,48]\n  %2 = input f32[48,32]\n  %3 = matmul f32[64,32] %1, %2\n"
     "  %4 = gelu f32[64,32] %3\n  %5 = input f32[64,32]\n"
     "  %6 = concat f32[64,64] %4, %5 ints(1)\n  %7 = neg f32[64,64] %6\n  return %7\n}\n",
     1, 3},
    {"many of one program",
     "fn a {\n  %1 = input f32[40]\n  %2 = input f32[30]\n  %3 = input f32[20]\n"
     "  %4 = sin f32[40] %1\n  %5 = exp f32[40] %4\n  %6 = sin f32[30] %2\n  %7 = exp f32[30] %6\n"
     "  %8 = sin f32[20] %3\n  %9 = exp f32[20] %8\n  %10 = concat f32[90] %9, %5, %7 ints(0)\n"
     "  %11 = neg f32[90] %10\n  return %11\n}\n",
     3, 2},
    {"made by two launches, the later of which runs the reader's program",
     "fn a {\n  %1 = input f32[40]\n  %2 = input f32[30]\n  %3 = input f32[20]\n"
     "  %4 = sin f32[40] %1\n  %5 = neg f32[30] %2\n  %6 = sin f32[20] %3\n"
     "  %7 = concat f32[90] %4, %5, %6 ints(0)\n  %8 = neg f32[90] %7\n  return %8\n}\n",
     3, 3},
};

static int count_parts(const wf_plan *p)
{
    wf_plan_edge_info e;
    int n = 0;
    for (uint32_t i = 0; wf_plan_edge_at(p, i, &e); i++) {
        n += strcmp(e.reason, "PART") == 0;
    }
    return n;
}

static wf_plan *build(const wf_fn *f, unsigned flags)
{
    wf_why why = {0};
    const wf_plan_opts o = {.flags = flags};
    wf_plan *p = wf_plan_build(f, &o, &why);
    cr_assert_not_null(p, "%s", why.rule);
    cr_assert_eq(wf_plan_verify(p, wf_plan_fn(p), &o, &why), 0, "%s", why.rule);
    return p;
}

Test(parts, keep_the_bits)
{
    static const unsigned flags[] = {WF_PLAN_TIER0, WF_PLAN_SYNC, WF_PLAN_TIER0 | WF_PLAN_ROWS,
                                     WF_PLAN_SYNC | WF_PLAN_ROWS};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_fn *f = plan_parse(cases[i].text);
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
            wf_plan_info info;
            wf_plan *p = build(f, flags[k]);
            const int parts = count_parts(p);
            wf_plan_release(p);
            cr_expect(cases[i].parts < 0 || parts == cases[i].parts, "%s: %d parts", cases[i].what,
                      parts);
            plan_check(f, flags[k], &info);
            cr_expect(cases[i].steps < 0 || info.steps == cases[i].steps, "%s: %d steps",
                      cases[i].what, info.steps);
        }
        wf_fn_free(f);
    }
}

/* Concats of what groups make, of views, of inputs and of other concats, with whatever else reads them. */
Test(parts, random_concats_keep_their_bits)
{
    const uint64_t first = effort_option("WEFT_FUZZ_SEED", 0), n = effort_of(1500);
    int parts = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        const unsigned rows = seed % 3 == 0 ? WF_PLAN_ROWS : 0;
        wf_fn *f = random_function_with(seed, 8 + (int)(seed % 24), seed % 4 == 0, true, true);
        wf_plan *p = build(f, WF_PLAN_TIER0 | rows);
        const int here = count_parts(p);
        wf_plan_release(p);
        parts += here;
        plan_check(f, WF_PLAN_TIER0 | rows, NULL);
        if (here && seed % 16 == 1) {
            plan_check(f, WF_PLAN_SYNC | rows, NULL);
        }
        wf_fn_free(f);
    }
    cr_expect_geq(parts, (int)n / 8, "%d parts", parts);
}

/* Stored into a captured tensor, which the first part still reads. */
Test(parts, replace_an_input)
{
    static const int32_t writes[] = {0};
    wf_why why = {0};
    wf_fn *f =
        plan_parse("fn a {\n  %1 = input f32[8,6]\n  %2 = slice f32[8,3] %1 ints(1) dyn(0,3,1)\n"
                   "  %3 = slice f32[8,3] %1 ints(1) dyn(3,6,1)\n  %4 = exp f32[8,3] %3\n"
                   "  %5 = sin f32[8,3] %2\n  %6 = concat f32[8,6] %4, %5 ints(1)\n"
                   "  return %6\n}\n");
    const wf_plan_opts o = {.flags = WF_PLAN_TIER0, .writes = writes};
    wf_plan *p = wf_plan_build(f, &o, &why);
    cr_assert_not_null(p, "%s", why.rule);
    cr_assert_eq(wf_plan_verify(p, wf_plan_fn(p), &o, &why), 0, "%s", why.rule);
    cr_expect_eq(count_parts(p), 2);
    weft_scope sc = weft_scope_begin();
    wf_view in, out, want;
    weft_tensor x = plan_input(f, 0), y;
    cr_assert_eq(wf_fn_run(f, &x, NULL, &y), 0);
    plan_view(y, &want);
    plan_view(x, &in);
    out = in;
    cr_assert_eq(wf_plan_run(p, &(wf_plan_args){.fn = f, .in = &in, .out = &out}, &why), 0, "%s",
                 why.rule);
    cr_expect_eq(plan_difference(&want, in.data), -1);
    weft_scope_end(sc);
    wf_plan_release(p);
    wf_fn_free(f);
}

/* The plan of a function that holds two operands of 1.6 MB at once, and no more: it is checked, and returned. */
static wf_plan_info check_memory(const char *text)
{
    wf_fn *f = plan_parse(text);
    wf_plan_info info;
    plan_check(f, WF_PLAN_TIER0, &info);
    cr_expect_leq(info.peak_bytes, 2 * 1600000 + (64 << 10), "%lld", (long long)info.peak_bytes);
    wf_fn_free(f);
    return info;
}

/* The whole of a concat would live while much else does: the plan is made without parts. */
Test(parts, are_none_where_they_take_more_memory)
{
    static const char text[] =
        "fn a {\n  %1 = input f32[1000]\n  %2 = input f32[400000]\n  %3 = input f32[399000]\n"
        "  %4 = exp f32[1000] %1\n  %5 = cumsum f32[1000] %4 ints(0)\n  %6 = neg f32[1000] %5\n"
        "  %7 = cumsum f32[400000] %2 ints(0)\n  %8 = cumsum f32[400000] %7 ints(0)\n"
        "  %9 = cumsum f32[400000] %8 ints(0)\n  %10 = cumsum f32[400000] %9 ints(0)\n"
        "  %11 = sum f32[] %10 ints(0)\n  %12 = mul f32[399000] %3, %11\n"
        "  %13 = concat f32[400000] %6, %12 ints(0)\n  return %13\n}\n";
    check_memory(text);
}

/* They are all that is given up for that: a product whose operands wait with it for a number is in its reader's group as ever. */
Test(parts, are_what_is_given_up_first)
{
    static const char text[] =
        "fn a {\n  %1 = input f32[1000]\n  %2 = input f32[400000]\n  %3 = input f32[399000]\n"
        "  %4 = exp f32[1000] %1\n  %5 = cumsum f32[1000] %4 ints(0)\n  %6 = neg f32[1000] %5\n"
        "  %7 = cumsum f32[1000] %6 ints(0)\n  %8 = mul f32[1000] %5, %7\n"
        "  %9 = cumsum f32[400000] %2 ints(0)\n  %10 = cumsum f32[400000] %9 ints(0)\n"
        "  %11 = cumsum f32[400000] %10 ints(0)\n  %12 = cumsum f32[400000] %11 ints(0)\n"
        "  %13 = sum f32[] %12 ints(0)\n  %14 = mul f32[399000] %3, %13\n"
        "  %15 = neg f32[1000] %4\n  %16 = concat f32[400000] %15, %14 ints(0)\n"
        "  %17 = add f32[1000] %8, %13\n  return %16, %17\n}\n";
    const wf_plan_info info = check_memory(text);
    cr_expect_eq(info.steps, 12, "%d", info.steps); /* 13 where the product is a step of its own */
}

/* WEFT_VALIDATE looks at the part that a launch wrote, and at nothing else of the concat. */
Test(parts, are_validated)
{
    wf_why why = {0};
    wf_inst *inst;
    wf_fn *f = plan_parse(cases[0].text);
    wf_plan *p = validate_build(f, WF_PLAN_TIER0);
    weft_scope sc = weft_scope_begin();
    wf_view in, out = {.data = NULL};
    plan_view(plan_input(f, 0), &in);
    wf_plan_args a = {.fn = f, .in = &in, .out = &out};
    cr_expect_eq(wf_plan_run(p, &a, &why), 0, "%s", why.rule);
    cr_expect_not_null(p->reference);
    wf_free(out.data, 4 * 70 * 40);
    validate_program(p, WF_OP_SUB, &inst);
    inst->op = WF_OP_ADD;
    out.data = NULL;
    cr_expect_eq(wf_plan_run(p, &a, &why), WEFT_EINVALID);
    validate_says(&why, "element 0 of %6");
    weft_scope_end(sc);
    wf_plan_release(p);
    wf_fn_free(f);
}

Test(parts, cost_what_their_concat_would)
{
    wf_fn *f = plan_parse(cases[0].text);
    wf_plan *p = build(f, WF_PLAN_TIER0);
    wf_plan_info info;
    int32_t launch_of[8];
    wf_plan_cost cost[1];
    wf_why why = {0};
    wf_plan_get_info(p, &info);
    cr_assert_eq(info.steps, 1);
    cr_expect_eq(info.write_bytes, 4 * 70 * 40);
    cr_assert_eq(wf_plan_costs(p, launch_of, cost, &why), 0, "%s", why.rule);
    cr_expect_eq(launch_of[5], 0); /* the concat */
    cr_expect_eq(cost[0].alone_bytes, info.eager_read_bytes + info.eager_write_bytes);
    wf_plan_release(p);
    wf_fn_free(f);
}
