/*
 * tests/jit/test_fuse.c -- what fuses, what does not and why, and that bits never change.
 */
/* ctest: timeout=600 */
#include "tests/jit/plan_support.h"
#include "tests/jit/random_fn.h"
#include "tests/support/effort.h"

/* A chain of n rows over f32[rows,cols], with a broadcast operand and a scalar now and then. */
static wf_fn *chain(int n, int64_t rows, int64_t cols)
{
    static const wf_op ops[] = {WF_OP_SIN, WF_OP_NEG, WF_OP_TANH, WF_OP_SQUARE, WF_OP_SIGMOID};
    wf_fn *f = wf_fn_new("chain");
    wf_val x = wf_fn_input(f, &(wf_type){WEFT_F32, 2, {rows, cols}});
    wf_val b = wf_fn_input(f, &(wf_type){WEFT_F32, 1, {cols}});
    for (int i = 0; i < n; i++) {
        wf_val s[2] = {x, b};
        wf_why why;
        if (i % 7 == 6) {
            s[1] = wf_fn_scalar(f, 2, wf_slot_bits(2, 0.75));
        }
        bool two = i % 3 == 2 || i % 7 == 6;
        cr_assert_eq(
            wf_fn_append(f, two ? WF_OP_ADD : ops[i % 5], NULL, two ? 2 : 1, s, &x, NULL, &why), 0);
    }
    wf_fn_output(f, x);
    return f;
}

Test(fuse, chains_of_any_length)
{
    static const int lengths[] = {1, 20, 200, 1000};
    static const int groups[] = {1, 1, 1, 5};
    for (int i = 0; i < 4; i++) {
        wf_fn *f = chain(lengths[i], 33, 70);
        wf_plan_info info;
        plan_check(f, WF_PLAN_TIER0, &info);
        cr_expect_eq(info.groups, groups[i], "%d rows in %d groups", lengths[i], info.groups);
        cr_expect_eq(info.steps, info.groups);
        wf_fn_free(f);
    }
}

Test(fuse, shapes_of_groups)
{
    static const struct {
        const char *what, *text;
        int steps, groups;
    } cases[] = {
        {"gelu(x*a+b)*c+r",
         "fn a {\n  %1 = input f32[50,70]\n  %2 = input f32[70]\n  %3 = input f32[70]\n"
         "  %4 = input f32[50,1]\n  %5 = input f32[50,70]\n  %6 = mul f32[50,70] %1, %2\n"
         "  %7 = add f32[50,70] %6, %3\n  %8 = gelu f32[50,70] %7\n  %9 = mul f32[50,70] %8, %4\n"
         "  %10 = add f32[50,70] %9, %5\n  return %10\n}\n",
         1, 1},
        {"transpose, slice, add",
         "fn a {\n  %1 = input f32[60,50]\n  %2 = input f32[40,60]\n"
         "  %3 = permute f32[50,60] %1 ints(1, 0)\n  %4 = slice f32[40,60] %3 ints(0) dyn(5, 45, "
         "1)\n"
         "  %5 = add f32[40,60] %4, %2\n  return %5\n}\n",
         1, 1},
        {"a reshape between",
         "fn a {\n  %1 = input f32[6,10]\n  %2 = exp f32[6,10] %1\n"
         "  %3 = reshape f32[3,20] %2 dyn(3, 20)\n  %4 = input f32[20]\n"
         "  %5 = neg f32[3,20] %3\n  %6 = reshape f32[60] %5 dyn(60)\n  %7 = sin f32[60] %6\n"
         "  return %7, %2\n}\n",
         1, 1},
        {"extents of a later operand",
         "fn a {\n  %1 = input f32[60]\n  %2 = exp f32[60] %1\n"
         "  %3 = reshape f32[3,20] %2 dyn(3, 20)\n  %4 = input f32[20]\n"
         "  %5 = mul f32[3,20] %3, %4\n  return %5\n}\n",
         1, 1},
        {"siblings and several outputs",
         "fn a {\n  %1 = input f32[100]\n  %2 = sin f32[100] %1\n  %3 = cos f32[100] %1\n"
         "  %4 = mul f32[100] %2, %3\n  return %2, %3, %4\n}\n",
         1, 1},
        {"an operand that waits",
         "fn a {\n  %1 = input f32[20,10]\n  %2 = input f32[20,10]\n  %3 = exp f32[20,10] %1\n"
         "  %4 = cumsum f32[20,10] %2 ints(1)\n  %5 = mul f32[20,10] %3, %4\n  return %5\n}\n",
         2, 1},
        {"halves with casts",
         "fn a {\n  %1 = input bf16[30,10]\n  %2 = cast f32[30,10] %1 dtype(f32)\n"
         "  %3 = exp f32[30,10] %2\n  %4 = cast bf16[30,10] %3 dtype(bf16)\n"
         "  %5 = mul bf16[30,10] %4, %1\n  return %5\n}\n",
         1, 1},
        {"read transposed inside",
         "fn a {\n  %1 = input f32[30,30]\n  %2 = exp f32[30,30] %1\n"
         "  %3 = permute f32[30,30] %2 ints(1, 0)\n  %4 = add f32[30,30] %2, %3\n  return %4\n}\n",
         2, 2},
        {"a derivative beside its row",
         "fn a {\n  %1 = input f32[80]\n  %2 = input f32[80]\n  %3 = gelu f32[80] %1\n"
         "  %4 = vjp f32[80] %2, %1, _ of(gelu,0) dyn(80) dtype(f32)\n  %5 = add f32[80] %3, %4\n"
         "  return %5\n}\n",
         1, 1},
        {"fills are scalars",
         "fn a {\n  %1 = input f32[4,8]\n  %2 = full f32[] flt(0x1p+1) dtype(f32)\n"
         "  %3 = expand f32[4,8] %2 dyn(4, 8)\n  %4 = mul f32[4,8] %1, %3\n  return %4\n}\n",
         1, 1},
        {"so is what is made of them",
         "fn a {\n  %1 = input f32[4,8]\n  %2 = full f32[] flt(0x1p+1) dtype(f32)\n"
         "  %3 = scalar f64 0x1.8p+1\n  %4 = div f32[] %2, %3\n  %5 = exp f32[] %4\n"
         "  %6 = expand f32[4,8] %5 dyn(4, 8)\n  %7 = mul f32[4,8] %1, %6\n  return %7\n}\n",
         1, 1},
        {"dropout between neighbours, its mask kept",
         "fn a {\n  %1 = input f32[70,130]\n  %2 = relu f32[70,130] %1\n"
         "  %3 = bernoulli bool[70,130] dyn(70, 130, 7, 1000) flt(0x1.cp-1) dtype(bool)\n"
         "  %4 = scalar f64 0x1.2p+0\n  %5 = mul f32[70,130] %2, %4\n  %6 = scalar f64 0x0p+0\n"
         "  %7 = where f32[70,130] %3, %5, %6\n  return %7, %3\n}\n",
         1, 1},
        {"draws of all kinds beside a transposed operand",
         "fn a {\n  %1 = input f32[130,70]\n  %2 = permute f32[70,130] %1 ints(1, 0)\n"
         "  %3 = rand f32[70,130] dyn(70, 130, 7, 3) flt(-0x1p+0, 0x1.8p+0) dtype(f32)\n"
         "  %4 = randn bf16[70,130] dyn(70, 130, 7, 999) flt(0x1p-1, 0x1p+1) dtype(bf16)\n"
         "  %5 = randint i32[70,130] dyn(70, 130, 7, 20000, -5, 900) dtype(i32)\n"
         "  %6 = randn f64[70,130] dyn(70, 130, 5, 60000) flt(0x0p+0, 0x1p+0) dtype(f64)\n"
         "  %7 = cast f32[70,130] %4 dtype(f32)\n  %8 = cast f32[70,130] %5 dtype(f32)\n"
         "  %9 = cast f32[70,130] %6 dtype(f32)\n  %10 = mul f32[70,130] %2, %3\n"
         "  %11 = add f32[70,130] %7, %8\n  %12 = mul f32[70,130] %9, %11\n"
         "  %13 = add f32[70,130] %10, %12\n  return %13\n}\n",
         1, 1},
        {"a draw alone keeps its kernel",
         "fn a {\n  %1 = rand f32[70,130] dyn(70, 130, 7, 3) flt(0x0p+0, 0x1p+0) dtype(f32)\n"
         "  return %1\n}\n",
         1, 0},
        {"unless somebody reads it from memory",
         "fn a {\n  %1 = input f32[4,8]\n  %2 = full f32[4,8] dyn(4, 8) flt(0x1p+1) dtype(f32)\n"
         "  %3 = neg f32[4,8] %2\n  %4 = add f32[4,8] %1, %3\n"
         "  %5 = cumsum f32[4,8] %3 ints(1)\n  return %4, %5\n}\n",
         3, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_plan_info info = plan_check_text(cases[i].text);
        cr_expect(info.steps == cases[i].steps && info.groups == cases[i].groups,
                  "%s: %d steps, %d groups", cases[i].what, info.steps, info.groups);
    }
}

/* Results larger than the caches are stored past them, chunk by chunk: any number of rows cuts lines whole. */
Test(fuse, large_results_of_any_number_of_rows)
{
    for (int n = 1; n <= 9; n++) {
        wf_fn *f = wf_fn_new("large");
        wf_val x = wf_fn_input(f, &(wf_type){WEFT_F32, 1, {4000003}});
        wf_val first = x;
        for (int i = 0; i < n; i++) {
            wf_val s[2] = {x, first};
            wf_why why;
            cr_assert_eq(wf_fn_append(f, i % 2 ? WF_OP_SUB : WF_OP_MUL, NULL, 2, s, &x, NULL, &why),
                         0);
        }
        wf_fn_output(f, x);
        plan_check(f, WF_PLAN_SYNC, NULL);
        wf_fn_free(f);
    }
}

/* Reductions and row-wise rows opened into groups. */
Test(fuse, rows_in_groups)
{
    static const struct {
        const char *what, *text;
        int steps, groups;
    } cases[] = {
        {"softmax(x * a + b) * c",
         "fn a {\n  %1 = input f32[50,70]\n  %2 = scalar f64 0x1p-1\n  %3 = input f32[50,70]\n"
         "  %4 = mul f32[50,70] %1, %2\n  %5 = add f32[50,70] %4, %3\n"
         "  %6 = softmax f32[50,70] %5 ints(1)\n  %7 = mul f32[50,70] %6, %3\n  return %7\n}\n",
         1, 1},
        {"a norm written out",
         "fn a {\n  %1 = input f32[40,64]\n  %2 = mean f32[40,1] %1 ints(1) dtype(f32) flags(1)\n"
         "  %3 = sub f32[40,64] %1, %2\n  %4 = square f32[40,64] %3\n"
         "  %5 = mean f32[40] %4 ints(1) dtype(f32)\n  %6 = scalar f64 0x1p-10\n"
         "  %7 = add f32[40] %5, %6\n  %8 = rsqrt f32[40] %7\n"
         "  %9 = reshape f32[40,1] %8 dyn(40, 1)\n  %10 = expand f32[40,64] %9 dyn(40, 64)\n"
         "  %11 = mul f32[40,64] %3, %10\n  return %11, %5\n}\n",
         1, 1},
        {"residual, layer_norm, gelu",
         "fn a {\n  %1 = input bf16[3,20,64]\n  %2 = input bf16[3,20,64]\n  %3 = input bf16[64]\n"
         "  %4 = add bf16[3,20,64] %1, %2\n"
         "  %5 = layer_norm bf16[3,20,64] %4, %3, %3 ints(1) flt(0x1p-10)\n"
         "  %6 = result f32[3,20] %5 #1\n  %7 = result f32[3,20] %5 #2\n"
         "  %8 = gelu bf16[3,20,64] %5\n  return %8, %4, %7\n}\n",
         1, 1},
        {"the sum of a product over rows",
         "fn a {\n  %1 = input f32[90,20]\n  %2 = input f32[90,20]\n  %3 = mul f32[90,20] %1, %2\n"
         "  %4 = sum f32[20] %3 ints(0) dtype(f32)\n  return %4, %3\n}\n",
         1, 1},
        {"one row alone keeps its eager kernel",
         "fn a {\n  %1 = input f32[50,70]\n  %2 = softmax f32[50,70] %1 ints(1)\n  return %2\n}\n",
         1, 0},
        {"cross entropy of logits made in the group, smoothed, rows left out",
         "fn a {\n  %1 = input f32[50,70]\n  %2 = input i64[50]\n  %3 = scalar f64 0x1p-1\n"
         "  %4 = mul f32[50,70] %1, %3\n"
         "  %5 = cross_entropy f32[50] %4, %2 dyn(1) flt(0x1p-3)\n"
         "  %6 = result f32[50] %5 #1\n  %7 = mul f32[50] %5, %6\n  return %7, %6\n}\n",
         1, 1},
        {"cross entropy of logits in memory",
         "fn a {\n  %1 = input bf16[50,70]\n  %2 = input i64[50]\n"
         "  %3 = cross_entropy bf16[50] %1, %2 dyn(-100) flt(0x0p+0)\n"
         "  %4 = result f32[50] %3 #1\n  %5 = exp bf16[50] %3\n  return %5\n}\n",
         1, 1},
        {"its backward between neighbours",
         "fn a {\n  %1 = input f32[50,70]\n  %2 = input f32[50]\n  %3 = input f32[50]\n"
         "  %4 = input i64[50]\n  %5 = scalar f64 0x1p-1\n  %6 = mul f32[50,70] %1, %5\n"
         "  %7 = neg f32[50] %2\n"
         "  %8 = cross_entropy_bwd f32[50,70] %7, %6, %4, %3 dyn(2) flt(0x1p-3)\n"
         "  %9 = mul f32[50,70] %8, %5\n  return %9, %7\n}\n",
         2, 2},
        {"cross entropy and its backward",
         "fn a {\n  %1 = input f16[50,70]\n  %2 = input i64[50]\n  %3 = input f16[50]\n"
         "  %4 = cross_entropy f16[50] %1, %2 dyn(-100) flt(0x0p+0)\n"
         "  %5 = result f32[50] %4 #1\n"
         "  %6 = cross_entropy_bwd f16[50,70] %3, %1, %2, %5 dyn(-100) flt(0x0p+0)\n"
         "  return %4, %6\n}\n",
         1, 1},
        {"softmax of dropout, dropout of softmax",
         "fn a {\n  %1 = input f32[3,20,70]\n"
         "  %2 = bernoulli bool[3,20,70] dyn(3, 20, 70, 7, 1000) flt(0x1.cp-1) dtype(bool)\n"
         "  %3 = scalar f64 0x0p+0\n  %4 = where f32[3,20,70] %2, %1, %3\n"
         "  %5 = softmax f32[3,20,70] %4 ints(2)\n"
         "  %6 = randn f32[3,20,70] dyn(3, 20, 70, 7, 9000) flt(0x0p+0, 0x1p+0) dtype(f32)\n"
         "  %7 = add f32[3,20,70] %5, %6\n  return %7\n}\n",
         1, 1},
        {"a sum of noise over long rows",
         "fn a {\n  %1 = input f32[3,9000]\n"
         "  %2 = randn f32[3,9000] dyn(3, 9000, 7, 9000) flt(0x0p+0, 0x1p+0) dtype(f32)\n"
         "  %3 = mul f32[3,9000] %1, %2\n  %4 = sum f32[3] %3 ints(1) dtype(f32)\n"
         "  return %4, %3\n}\n",
         1, 1},
        {"noise is numbered along rows: sums across them read it from memory",
         "fn a {\n  %1 = input f32[90,80]\n"
         "  %2 = randn f32[90,80] dyn(90, 80, 7, 9000) flt(0x0p+0, 0x1p+0) dtype(f32)\n"
         "  %3 = mul f32[90,80] %1, %2\n  %4 = sum f32[80] %3 ints(0) dtype(f32)\n"
         "  return %4\n}\n",
         2, 1},
        {"mean squared error and its backward",
         "fn a {\n  %1 = input f32[50,70]\n  %2 = input f32[50,70]\n  %3 = sub f32[50,70] %1, %2\n"
         "  %4 = square f32[50,70] %3\n  %5 = mean f32[] %4 ints(0, 1) dtype(f32)\n"
         "  %6 = full f32[] flt(0x1p+0) dtype(f32)\n  %7 = scalar f64 0x1.b58p+11\n"
         "  %8 = div f32[] %6, %7\n  %9 = expand f32[50,70] %8 dyn(50, 70)\n"
         "  %10 = vjp f32[50,70] %9, %3, _ of(square,0) dyn(50, 70) dtype(f32)\n"
         "  return %5, %10\n}\n",
         1, 1},
        {"two ways to reduce",
         "fn a {\n  %1 = input f32[50,70]\n  %2 = exp f32[50,70] %1\n"
         "  %3 = sum f32[50] %2 ints(1) dtype(f32)\n  %4 = sum f32[70] %2 ints(0) dtype(f32)\n"
         "  return %3, %4\n}\n",
         2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_fn *f = plan_parse(cases[i].text);
        wf_plan_info info;
        plan_check(f, WF_PLAN_ROWS | WF_PLAN_TIER0, NULL);
        plan_check(f, WF_PLAN_ROWS | WF_PLAN_SYNC, &info);
        cr_expect(info.steps == cases[i].steps && info.groups == cases[i].groups,
                  "%s: %d steps, %d groups", cases[i].what, info.steps, info.groups);
        wf_fn_free(f);
    }
}

/* A class that there is not: the message of the eager kernel, the row's own name, and nothing begun. */
Test(fuse, cross_entropy_refuses_indices_before_it_runs)
{
    wf_fn *f = plan_parse("fn a {\n  %1 = input f32[5,7]\n  %2 = input i64[5]\n"
                          "  %3 = exp f32[5,7] %1\n"
                          "  %4 = cross_entropy f32[5] %3, %2 dyn(-100) flt(0x0p+0)\n"
                          "  %5 = result f32[5] %4 #1\n  %6 = neg f32[5] %4\n  return %6\n}\n");
    float x[35] = {0}, y[5] = {9};
    int64_t target[5] = {0, 6, -100, 7, 2};
    const wf_view in[2] = {
        {.data = x, .dtype = WEFT_F32, .rank = 2, .dims = {5, 7}, .strides = {7, 1}},
        {.data = target, .dtype = WEFT_I64, .rank = 1, .dims = {5}, .strides = {1}}};
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_ROWS | WF_PLAN_SYNC}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    wf_plan_info info;
    wf_plan_get_info(p, &info);
    cr_expect_eq(info.steps, 1);
    for (int bad = 1; bad >= 0; bad--) {
        uint8_t began = 7;
        wf_view out = {.data = y, .dtype = WEFT_F32, .rank = 1, .dims = {5}, .strides = {1}};
        wf_plan_args a = {.fn = f, .in = in, .out = &out, .began = &began};
        why = (wf_why){0};
        cr_expect_eq(wf_plan_run(p, &a, &why), bad ? (int)WEFT_EINDEX : 0);
        if (bad) {
            cr_expect_str_eq(why.rule, "targets[3] is 7, which is not a class in [0, 7)");
            cr_expect_eq(a.failed_op, WF_OP_CROSS_ENTROPY);
            cr_expect_eq(y[0], 9.0f);
        } else {
            cr_expect_lt(y[0], -1.9f);
            cr_expect_eq(y[2], 0.0f);
        }
        cr_expect_eq(began, 0);
        target[3] = 1;
    }
    wf_plan_release(p);
    wf_fn_free(f);
}

/* More outputs, inputs and scalars than a program takes. */
Test(fuse, limits_cut_groups)
{
    wf_fn *f = wf_fn_new("limits");
    wf_why why;
    wf_val x = wf_fn_input(f, &(wf_type){WEFT_F32, 1, {90}});
    for (int i = 0; i < 60; i++) {
        wf_val s[2] = {x, 0};
        s[1] = i < 40  ? wf_fn_input(f, &(wf_type){WEFT_F32, 1, {90}})
               : i % 2 ? wf_fn_scalar(f, 2, wf_slot_bits(2, 1 + i))
                       : x;
        cr_assert_eq(wf_fn_append(f, i % 2 ? WF_OP_ADD : WF_OP_SUB, NULL, 2, s, &x, NULL, &why), 0);
        wf_fn_output(f, x);
    }
    wf_plan_info info;
    plan_check(f, WF_PLAN_TIER0, &info);
    cr_expect(info.groups >= 3 && info.groups <= 8, "%d groups", info.groups);
    wf_fn_free(f);
}

Test(fuse, random_functions_keep_their_bits)
{
    for (uint64_t seed = 0; seed < effort_of(4000); seed++) {
        wf_fn *f = random_function(seed, 8 + (int)(seed % 40));
        plan_check(f,
                   WF_PLAN_TIER0 | (seed % 8 == 0   ? WF_PLAN_NO_FUSE
                                    : seed % 2 == 0 ? WF_PLAN_ROWS
                                                    : 0),
                   NULL);
        wf_fn_free(f);
    }
}

/* The same with native kernels (where there is a compiler; elsewhere once more the interpreter). */
Test(fuse, native_kernels_keep_the_bits)
{
    for (uint64_t seed = 50000; seed < 50000 + effort_of(60); seed++) {
        wf_fn *f = random_function(seed, 8 + (int)(seed % 24));
        plan_check(f, WF_PLAN_SYNC | (seed % 2 ? WF_PLAN_ROWS : 0), NULL);
        wf_fn_free(f);
    }
}

/* Appends op on a and b (0: unary), or on a and a new scalar slot. */
static wf_val row(wf_fn *f, wf_op op, wf_val a, wf_val b)
{
    wf_val s[2] = {a, b}, v;
    wf_why why = {0};
    cr_assert_eq(wf_fn_append(f, op, NULL, b ? 2 : 1, s, &v, NULL, &why), 0, "%s", why.rule);
    return v;
}
static wf_val slot(wf_fn *f, double x)
{
    return wf_fn_scalar(f, 2, wf_slot_bits(2, x));
}

enum { TENSORS = 200 };

/* One step of AdamW over tensors of many shapes; parameters and both moments are written back. */
static wf_fn *adamw(int32_t *writes)
{
    wf_fn *f = wf_fn_new("adamw");
    for (int i = 0; i < TENSORS; i++) {
        wf_type t = {WEFT_F32, 2, {1 + i % 7 * 33, 1 + i % 5 * 50}};
        if (i % 3 == 0) {
            t = (wf_type){WEFT_F32, 1, {1 + i % 11 * 40}};
        }
        wf_val p = wf_fn_input(f, &t), g = wf_fn_input(f, &t), m = wf_fn_input(f, &t),
               v = wf_fn_input(f, &t);
        m = row(f, WF_OP_ADD, row(f, WF_OP_MUL, m, slot(f, 0.9)),
                row(f, WF_OP_MUL, g, slot(f, 0.1)));
        v = row(f, WF_OP_ADD, row(f, WF_OP_MUL, v, slot(f, 0.999)),
                row(f, WF_OP_MUL, row(f, WF_OP_SQUARE, g, 0), slot(f, 0.001)));
        wf_val d = row(f, WF_OP_ADD, row(f, WF_OP_SQRT, row(f, WF_OP_DIV, v, slot(f, 0.5)), 0),
                       slot(f, 1e-8));
        wf_val u = row(f, WF_OP_MUL, row(f, WF_OP_DIV, row(f, WF_OP_DIV, m, slot(f, 0.25)), d),
                       slot(f, 1e-3));
        p = row(f, WF_OP_SUB, row(f, WF_OP_MUL, p, slot(f, 0.99)), u);
        wf_val out[3] = {p, m, v};
        for (int k = 0; k < 3; k++) {
            writes[f->noutputs] = 4 * i + (k ? k + 1 : 0);
            wf_fn_output(f, out[k]);
        }
    }
    return f;
}

Test(fuse, an_optimiser_step_is_a_handful_of_launches)
{
    static int32_t writes[3 * TENSORS];
    static weft_tensor in[4 * TENSORS], want[3 * TENSORS];
    static wf_view iv[4 * TENSORS], ov[3 * TENSORS], wv[3 * TENSORS];
    static const int threads[] = {1, 2, 3, 7};
    wf_fn *f = adamw(writes);
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.writes = writes, .flags = WF_PLAN_SYNC}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    wf_plan_info info;
    wf_plan_get_info(p, &info);
    cr_expect_leq(info.steps, 4, "%d launches", info.steps);
    cr_expect_eq(info.arena_bytes, 0);
    for (int t = 0; t < 4; t++) {
        weft_scope sc = weft_scope_begin();
        for (uint32_t k = 0; k < f->ninputs; k++) {
            in[k] = plan_input(f, k);
            plan_view(in[k], &iv[k]);
        }
        cr_assert_eq(wf_fn_run(f, in, NULL, want), 0);
        for (uint32_t k = 0; k < f->noutputs; k++) {
            plan_view(want[k], &wv[k]);
            ov[k] = iv[writes[k]];
        }
        weft_set_num_threads(threads[t]);
        wf_plan_args a = {.fn = f, .in = iv, .out = ov};
        cr_assert_eq(wf_plan_run(p, &a, &why), 0, "%s", why.rule);
        for (uint32_t k = 0; k < f->noutputs; k++) {
            cr_assert_eq(plan_difference(&wv[k], ov[k].data), -1, "output %u", k);
        }
        weft_set_num_threads(1);
        weft_scope_end(sc);
    }
    wf_plan_release(p);
    wf_fn_free(f);
}

static const char explained[] =
    "step 0 map: %4 mul, %5 gelu\n"
    "step 1 op: %6 matmul\n"
    "step 2 map: %7 exp\n"
    "step 3 map: %9 add\n"
    "step 4 op: %10 sum\n"
    "edge %5 -> %6 matmul: READS_MEMORY (the reader is a kernel of its own, which takes its "
    "operands from "
    "memory)\n"
    "edge %6 -> %7 exp: OPAQUE (the producer is a kernel of its own (matrix product, convolution, "
    "attention))\n"
    "edge %7 -> %9 add: ORDER (another step that needs the one lies before the other)\n"
    "edge %8 -> %9 add: VIEW (it is read in another order than it is computed in (a view between "
    "the "
    "two))\n"
    "edge %9 -> %10 sum: CLOSED (the row runs on its eager kernel: opening it into the group was "
    "not "
    "faster, or is not measured yet)\n";

/* What was fused, what was not, and why: stable text. */
Test(fuse, explains_itself)
{
    wf_fn *f =
        plan_parse("fn a {\n  %1 = input f32[20,30]\n  %2 = input f32[30]\n"
                   "  %3 = input f32[30,20]\n  %4 = mul f32[20,30] %1, %2\n"
                   "  %5 = gelu f32[20,30] %4\n  %6 = matmul f32[20,20] %5, %3\n"
                   "  %7 = exp f32[20,20] %6\n  %8 = permute f32[20,20] %7 ints(1, 0)\n"
                   "  %9 = add f32[20,20] %7, %8\n  %10 = sum f32[20] %9 ints(1) dtype(f32)\n"
                   "  return %10, %5\n}\n");
    wf_why why;
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    cr_assert_eq(wf_plan_explain(p, out), 0);
    fclose(out);
    cr_expect_str_eq(text, explained);
    free(text);
    wf_plan_info info;
    wf_plan_get_info(p, &info);
    /* reads: x, its broadcast row; gelu's result and w; the product; neg's result twice; the sum's operand */
    int64_t a = 20 * 30 * 4, b = 20 * 20 * 4;
    cr_expect_eq(info.read_bytes, a + 120 + a + 30 * 20 * 4 + b + 2 * b + b);
    cr_expect_eq(info.write_bytes, a + b + b + b + 80);
    cr_expect_eq(info.eager_read_bytes, info.read_bytes + a);
    cr_expect_eq(info.eager_write_bytes, info.write_bytes + a);
    wf_plan_step_info step;
    cr_expect(wf_plan_step_at(p, 0, &step));
    cr_expect(step.ops == 2 && step.runs == 1 && step.read_bytes == a + 120 &&
              step.write_bytes == a);
    cr_expect_not(wf_plan_step_at(p, info.steps, &step));
    wf_plan_release(p);
    wf_fn_free(f);
}
