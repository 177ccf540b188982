/*
 * tests/jit/test_fuse.c -- what fuses, what does not and why, and that bits never change.
 */
/* ctest: optimised timeout=600 */
#include "jit/plan_int.h"
#include "tests/jit/fuse_cases.h"
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
    for (size_t i = 0; i < sizeof fuse_shapes / sizeof *fuse_shapes; i++) {
        wf_plan_info info = plan_check_text(fuse_shapes[i].text);
        cr_expect(info.steps == fuse_shapes[i].steps && info.groups == fuse_shapes[i].groups,
                  "%s: %d steps, %d groups", fuse_shapes[i].what, info.steps, info.groups);
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
    for (size_t i = 0; i < sizeof fuse_rows / sizeof *fuse_rows; i++) {
        wf_fn *f = plan_parse(fuse_rows[i].text);
        wf_plan_info info;
        plan_check(f, WF_PLAN_ROWS | WF_PLAN_TIER0, NULL);
        plan_check(f, WF_PLAN_ROWS | WF_PLAN_SYNC, &info);
        cr_expect(info.steps == fuse_rows[i].steps && info.groups == fuse_rows[i].groups,
                  "%s: %d steps, %d groups", fuse_rows[i].what, info.steps, info.groups);
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
            cr_expect_str_eq(why.rule, "cross_entropy: targets[3] is 7, which is not a class in "
                                       "[0, 7); operands: f32[5,7], i64[5]");
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

/* Groups behind products run on their rows: block by block where there are blocks for all threads. */
Test(fuse, epilogues_of_products)
{
    static const struct {
        const char *what, *text;
        int steps, opened; /* launches, and with rows opened */
    } cases[] = {
        {"bias, gelu, residual",
         "fn a {\n  %1 = input f32[4,512,128]\n  %2 = input f32[96,128]\n  %3 = input f32[96]\n"
         "  %4 = input f32[4,512,96]\n  %5 = linear f32[4,512,96] %1, %2, %3\n"
         "  %6 = gelu f32[4,512,96] %5\n  %7 = add f32[4,512,96] %6, %4\n  return %7\n}\n",
         1, 1},
        {"the product is a result as well",
         "fn a {\n  %1 = input bf16[2048,128]\n  %2 = input bf16[128,96]\n  %3 = input bf16[96]\n"
         "  %4 = matmul bf16[2048,96] %1, %2\n  %5 = add bf16[2048,96] %4, %3\n"
         "  %6 = relu bf16[2048,96] %5\n  return %6, %4\n}\n",
         1, 1},
        {"halves with a bias of the row's own",
         "fn a {\n  %1 = input bf16[2048,128]\n  %2 = input bf16[96,128]\n  %3 = input bf16[96]\n"
         "  %4 = linear bf16[2048,96] %1, %2, %3\n  %5 = silu bf16[2048,96] %4\n"
         "  return %5\n}\n",
         1, 1},
        {"batches",
         "fn a {\n  %1 = input f32[3,700,64]\n  %2 = input f32[3,64,80]\n  %3 = input f32[80]\n"
         "  %4 = matmul f32[3,700,80] %1, %2\n  %5 = add f32[3,700,80] %4, %3\n"
         "  %6 = tanh f32[3,700,80] %5\n  return %6\n}\n",
         1, 1},
        {"the residual is what the product reads",
         "fn a {\n  %1 = input f32[2048,128]\n  %2 = input f32[128,128]\n"
         "  %3 = cumsum f32[2048,128] %1 ints(1)\n  %4 = linear f32[2048,128] %3, %2\n"
         "  %5 = add f32[2048,128] %4, %3\n  %6 = cumsum f32[2048,128] %5 ints(1)\n"
         "  return %6\n}\n",
         3, 3},
        {"a norm of its rows",
         "fn a {\n  %1 = input f32[2,1024,128]\n  %2 = input f32[96,128]\n  %3 = input f32[96]\n"
         "  %4 = input f32[2,1024,96]\n  %5 = linear f32[2,1024,96] %1, %2, %3\n"
         "  %6 = add f32[2,1024,96] %5, %4\n"
         "  %7 = layer_norm f32[2,1024,96] %6, %3, %3 ints(1) flt(0x1p-10)\n"
         "  %8 = result f32[2,1024] %7 #1\n  %9 = result f32[2,1024] %7 #2\n"
         "  return %7, %6, %9\n}\n",
         2, 1},
        {"sums across its rows need all of them",
         "fn a {\n  %1 = input f32[2048,128]\n  %2 = input f32[96,128]\n"
         "  %3 = linear f32[2048,96] %1, %2\n  %4 = square f32[2048,96] %3\n"
         "  %5 = sum f32[96] %4 ints(0) dtype(f32)\n  return %5\n}\n",
         2, 2},
        {"a turned product is not read by rows",
         "fn a {\n  %1 = input f32[512,128]\n  %2 = input f32[512,128]\n"
         "  %3 = linear f32[512,512] %1, %2\n  %4 = permute f32[512,512] %3 ints(1, 0)\n"
         "  %5 = add f32[512,512] %3, %4\n  return %5\n}\n",
         2, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_fn *f = plan_parse(cases[i].text);
        wf_plan_info closed, opened;
        plan_check(f, WF_PLAN_NO_FUSE | WF_PLAN_TIER0, NULL);
        plan_check(f, WF_PLAN_TIER0, NULL);
        plan_check(f, WF_PLAN_SYNC | WF_PLAN_PLAIN, &closed);
        plan_check(f, WF_PLAN_ROWS | WF_PLAN_TIER0, NULL);
        plan_check(f, WF_PLAN_ROWS | WF_PLAN_SYNC, &opened);
        cr_expect(closed.steps == cases[i].steps && opened.steps == cases[i].opened,
                  "%s: %d launches, %d opened", cases[i].what, closed.steps, opened.steps);
        wf_fn_free(f);
    }
}

/* A cheap group behind a row-wise row that stays closed runs on its rows where no cache holds them, and it takes their place. */
Test(fuse, epilogues_of_rows)
{
#define LARGE "f32[6301,1003]"
    static const struct {
        const char *what, *text;
        int steps;
        bool native; /* as a kernel, too */
    } cases[] = {
        {"softmax, scaled",
         "fn a {\n  %1 = input " LARGE "\n  %2 = softmax " LARGE " %1 ints(1)\n"
         "  %3 = scalar f64 0x1p-1\n  %4 = mul " LARGE " %2, %3\n  return %4\n}\n",
         1, true},
        {"log_softmax of f64 in three axes, cast",
         "fn a {\n  %1 = input f64[7,451,1003]\n  %2 = log_softmax f64[7,451,1003] %1 ints(2)\n"
         "  %3 = cast f32[7,451,1003] %2 dtype(f32)\n  %4 = neg f32[7,451,1003] %3\n  return "
         "%4\n}\n",
         1, false},
        {"its backward",
         "fn a {\n  %1 = input " LARGE "\n  %2 = input " LARGE "\n"
         "  %3 = log_softmax_bwd " LARGE " %1, %2 ints(1)\n  %4 = square " LARGE " %3\n"
         "  return %4\n}\n",
         1, false},
        {"cross entropy's backward, scaled",
         "fn a {\n  %1 = input " LARGE "\n  %2 = input f32[6301]\n  %3 = input f32[6301]\n"
         "  %4 = input i64[6301]\n  %5 = scalar f64 0x1p-3\n"
         "  %6 = cross_entropy_bwd " LARGE " %2, %1, %4, %3 dyn(-100) flt(0x1p-3)\n"
         "  %7 = mul " LARGE " %6, %5\n  return %7\n}\n",
         1, true},
        {"the row is a result as well",
         "fn a {\n  %1 = input " LARGE "\n  %2 = softmax " LARGE " %1 ints(1)\n"
         "  %3 = neg " LARGE " %2\n  return %3, %2\n}\n",
         2, false},
        {"another operand",
         "fn a {\n  %1 = input " LARGE "\n  %2 = input " LARGE "\n"
         "  %3 = softmax " LARGE " %1 ints(1)\n  %4 = mul " LARGE " %3, %2\n  return %4\n}\n",
         2, false},
        {"much to compute",
         "fn a {\n  %1 = input " LARGE "\n  %2 = softmax " LARGE " %1 ints(1)\n"
         "  %3 = gelu " LARGE " %2\n  return %3\n}\n",
         2, false},
        {"along another axis",
         "fn a {\n  %1 = input " LARGE "\n  %2 = softmax " LARGE " %1 ints(0)\n"
         "  %3 = neg " LARGE " %2\n  return %3\n}\n",
         2, false},
        {"small",
         "fn a {\n  %1 = input f32[630,1003]\n  %2 = softmax f32[630,1003] %1 ints(1)\n"
         "  %3 = neg f32[630,1003] %2\n  return %3\n}\n",
         2, false},
    };
#undef LARGE
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_fn *f = plan_parse(cases[i].text);
        wf_plan_info closed;
        wf_plan *p =
            wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_PLAIN | WF_PLAN_TIER0}, NULL);
        wf_plan_get_info(p, &closed);
        cr_expect_eq(closed.steps, cases[i].steps, "%s: %d launches", cases[i].what, closed.steps);
        wf_plan_release(p);
        if (closed.steps == 1 && (cases[i].native || !EFFORT_ONE_ISA)) {
            plan_check(f, WF_PLAN_TIER0 | WF_PLAN_PLAIN, NULL);
        }
        if (cases[i].native && !EFFORT_ONE_ISA) {
            plan_check(f, WF_PLAN_SYNC | WF_PLAN_PLAIN, NULL);
        }
        wf_fn_free(f);
    }
}

/* Rows with epilogues save no walk through memory as opened ones do: these are measured all the same. */
Test(fuse, rows_with_epilogues_are_opened_too)
{
    wf_fn *f = plan_parse("fn a {\n  %1 = input f32[6301,1003]\n"
                          "  %2 = softmax f32[6301,1003] %1 ints(1)\n"
                          "  %3 = neg f32[6301,1003] %2\n  return %3\n}\n");
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, NULL);
    wf_plan *rows = wf_plan_open_rows(p);
    cr_expect_not_null(rows);
    atomic_store(&p->rows, rows); /* which goes with it */
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

/* Adds up the sums of what a loop makes of x, and their squares; of the first `kept` both are wanted outside. */
static wf_fn *sums_of_a_loop(int n, int kept)
{
    wf_fn *f = wf_fn_new("loop");
    wf_why why;
    int64_t axis = 0;
    const wf_attr along = {.ints = &axis, .n_ints = 1};
    const wf_attr over = {.ints = &axis, .n_ints = 1, .flags = 1};
    wf_val x = wf_fn_input(f, &(wf_type){WEFT_F32, 1, {90}}), total = 0, wanted[64];
    for (int i = 0; i < n; i++) {
        wf_val sum, square;
        cr_assert_eq(wf_fn_append(f, WF_OP_SIGMOID, NULL, 1, &x, &x, NULL, &why), 0);
        cr_assert_eq(wf_fn_append(f, WF_OP_SUM, &over, 1, &x, &sum, NULL, &why), 0);
        cr_assert_eq(wf_fn_append(f, WF_OP_SQUARE, NULL, 1, &sum, &square, NULL, &why), 0);
        if (i < kept) {
            wanted[2 * i] = sum;
            wanted[2 * i + 1] = square;
        }
        wf_val s[2] = {total ? total : sum, square};
        cr_assert_eq(wf_fn_append(f, WF_OP_ADD, NULL, 2, s, &total, NULL, &why), 0);
    }
    if (kept) {
        wf_val all;
        cr_assert_eq(wf_fn_append(f, WF_OP_CONCAT, &along, 2 * kept, wanted, &all, NULL, &why), 0);
        wf_fn_output(f, all);
    }
    wf_fn_output(f, total);
    return f;
}

/* Sums join one another as far as a program has room for their results. Each of 20000 asks for that, which as a walk over the
 * whole function took minutes. */
Test(fuse, sums_of_a_loop_join)
{
    for (int kept = 0; kept <= 30; kept += 30) {
        wf_plan_info info;
        wf_fn *f = sums_of_a_loop(60, kept);
        plan_check(f, WF_PLAN_TIER0, &info);
        cr_expect_leq(info.groups, kept ? 60 : 10, "%d kept: %d groups", kept, info.groups);
        wf_fn_free(f);
    }
    wf_why why = {0};
    wf_fn *f = sums_of_a_loop(20000, 0);
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    wf_plan_release(p);
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
    cr_expect_eq(info.peak_bytes, 0);
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
    "step 0 map: %4 mul, %5 gelu; at a.c:3 a.c:4\n"
    "step 1 op: %6 matmul\n"
    "step 1 map: %7 exp\n"
    "step 2 map: %9 add\n"
    "step 3 op: %10 sum\n"
    "edge %5 gelu -> %6 matmul: READS_MEMORY (the reader is a kernel of its own, which takes its "
    "operands from memory)\n"
    "edge %6 matmul -> %7 exp: EPILOGUE (one launch: the group runs on rows of what it reads as "
    "they "
    "are finished, from the caches)\n"
    "edge %7 exp -> %9 add: ORDER (another step that needs the one lies before the other)\n"
    "edge %7 exp -> %9 add, through %8 permute: VIEW (it is read in another order than it is "
    "computed in (a view between the two))\n"
    "edge %9 add -> %10 sum: UNMEASURED (the row runs on its eager kernel so far: both ways are "
    "measured after some runs)\n";

/* The reason of the first edge of a plan that reads `op`. */
static const char *reason_at(const wf_plan *p, wf_op op)
{
    wf_plan_edge_info e;
    for (uint32_t i = 0; wf_plan_edge_at(p, i, &e); i++) {
        if (wf_plan_fn(p)->ins[e.reader].op == op) {
            return e.reason;
        }
    }
    return "";
}

static void run_plan(wf_plan *p, const wf_fn *f, float *x, float *y)
{
    wf_why why = {0};
    wf_view in, out;
    wf_view_of_type(&in, wf_fn_type(f, f->inputs[0]), x);
    wf_view_of_type(&out, wf_fn_type(f, f->outputs[0]), y);
    cr_assert_eq(wf_plan_run(p, &(wf_plan_args){.fn = f, .in = &in, .out = &out}, &why), 0, "%s",
                 why.rule);
}

/* A copy into another layout is no kernel to be compiled, with something to compute in it it is one. */
Test(fuse, copies_are_not_compiled)
{
    static const char text[] =
        "fn a {\n  %%1 = input f32[6,40,5]\n  %%2 = permute f32[40,6,5] %%1 ints(1,0,2)\n"
        "  %%3 = reshape f32[40,30] %%2 dyn(40,30)\n%s}\n";
    static const char *const ends[] = {
        "  return %3\n", "  %4 = exp f32[40,30] %3\n  %5 = add f32[40,30] %4, %3\n  return %5\n"};
    static float x[1200], y[1200];
    for (int i = 0; i < 1200; i++) {
        x[i] = (float)i;
    }
    for (int k = 0; k < 2; k++) {
        char s[512];
        snprintf(s, sizeof s, text, ends[k]);
        wf_fn *f = plan_parse(s);
        wf_why why;
        wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_SYNC}, &why);
        wf_plan_step_info step;
        cr_assert(wf_plan_step_at(p, 0, &step));
        cr_expect_eq(step.kernel[0] != '\0', k == 1, "%s", step.kernel);
        run_plan(p, f, x, y);
        for (int i = 0; i < 1200 && k == 0; i++) {
            cr_assert_eq(y[i], x[i / 5 % 6 * 200 + i / 30 * 5 + i % 5]);
        }
        wf_plan_release(p);
        wf_fn_free(f);
    }
}

/* A row that stays closed: not measured yet, then measured (or opened); asked for; of no elements. */
Test(fuse, says_why_a_row_is_closed)
{
    static float x[40 * 50], y[40 * 50];
    wf_fn *f = plan_parse("fn a {\n  %1 = input f32[40,50]\n  %2 = exp f32[40,50] %1\n"
                          "  %3 = softmax f32[40,50] %2 ints(1)\n  return %3\n}\n");
    wf_why why;
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
    cr_expect_str_eq(reason_at(p, WF_OP_SOFTMAX), "UNMEASURED");
    for (int i = 0; i < 40 && !wf_plan_is_settled(p); i++) {
        run_plan(p, f, x, y);
    }
    cr_expect(wf_plan_is_settled(p));
    const char *now = reason_at(p, WF_OP_SOFTMAX); /* "": opened, which was faster */
    cr_expect(strcmp(now, "CLOSED") == 0 || strcmp(now, "") == 0, "%s", now);
    wf_plan_release(p);
    p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0 | WF_PLAN_PLAIN}, &why);
    cr_expect_str_eq(reason_at(p, WF_OP_SOFTMAX), "PLAIN");
    wf_plan_release(p);
    wf_fn_free(f);
    f = plan_parse("fn a {\n  %1 = input f32[0,50]\n  %2 = exp f32[0,50] %1\n"
                   "  %3 = softmax f32[0,50] %2 ints(1)\n  return %3\n}\n");
    p = wf_plan_build(f, NULL, &why);
    cr_expect_str_eq(reason_at(p, WF_OP_SOFTMAX), "EMPTY");
    wf_plan_info info;
    wf_plan_get_info(p, &info);
    cr_expect_eq(info.read_bytes + info.write_bytes, 0);
    wf_plan_release(p);
    wf_fn_free(f);
}

/* What was fused, what was not, and why: stable text. */
Test(fuse, explains_itself)
{
    wf_fn *f =
        plan_parse("fn a {\n  %1 = input f32[20,30]\n  %2 = input f32[30]\n"
                   "  %3 = input f32[30,20]\n  %4 = mul f32[20,30] %1, %2 at \"a.c:3\"\n"
                   "  %5 = gelu f32[20,30] %4 at \"a.c:4\"\n  %6 = matmul f32[20,20] %5, %3\n"
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

/* A group of one row runs on that row's eager kernel: there is nothing to compile, and the bits are its own. */
Test(fuse, one_row_alone_keeps_its_kernel)
{
    static const struct {
        const char *text;
        bool compiled;
    } cases[] = {
        {"fn a {\n  %1 = input f32[70,130]\n  %2 = gelu f32[70,130] %1\n  return %2\n}\n", false},
        {"fn a {\n  %1 = input f32[3,50]\n  %2 = input f32[50]\n  %3 = sub f32[3,50] %2, %1\n"
         "  return %3\n}\n",
         false},
        {"fn a {\n  %1 = input f64[9,7]\n  %2 = scalar f64 0x1.8p+0\n"
         "  %3 = div f64[9,7] %2, %1\n  return %3\n}\n",
         false},
        {"fn a {\n  %1 = input f32[40,20]\n  %2 = square f32[40,20] %1\n"
         "  %3 = gelu f32[40,20] %2\n  return %3\n}\n",
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_fn *f = plan_parse(cases[i].text);
        wf_why why;
        wf_plan_step_info step;
        wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_SYNC}, &why);
        cr_assert(p && wf_plan_step_at(p, 0, &step));
        cr_expect_str_eq(step.kind, "map");
        cr_expect_eq(step.kernel[0] != 0, cases[i].compiled, "%s", cases[i].text);
        wf_plan_release(p);
        plan_check(f, WF_PLAN_SYNC, NULL);
        wf_fn_free(f);
    }
}

/* Rows that eager code does in one pass move each tensor once; what a second pass reads of the first is written and read. */
Test(fuse, joined_rows_are_one_pass)
{
    static const char text[] = "fn a {\n  %1 = input f32[300]\n  %2 = input f32[300]\n"
                               "  %3 = scalar f64 0x1p+1\n"
                               "  %4 = mul f32[300] %1, %3 nograd\n"
                               "  %5 = scalar f64 0x1p+2\n"
                               "  %6 = mul f32[300] %2, %5 nograd joined\n"
                               "  %7 = add f32[300] %4, %6 nograd joined\n"
                               "  %8 = sub f32[300] %7, %2 nograd\n"
                               "  %9 = sqrt f32[300] %8 nograd joined\n"
                               "  %10 = mul f32[300] %9, %7 nograd joined\n"
                               "  %11 = exp f32[300] %10 nograd\n"
                               "  return %7, %11\n}\n";
    wf_fn *f = plan_parse(text);
    char *again = wf_fn_text(f);
    cr_expect_str_eq(again, text);
    free(again);
    wf_why why;
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
    wf_plan_info info;
    wf_plan_get_info(p, &info);
    const int64_t t = 300 * 4;
    cr_expect_eq(info.eager_read_bytes, 5 * t);  /* %1 and %2; %7 and %2; %10 */
    cr_expect_eq(info.eager_write_bytes, 3 * t); /* %7; %10; %11 */
    wf_plan_release(p);
    wf_fn_free(f);
}
