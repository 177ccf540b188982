/*
 * tests/jit/test_fuse_model.c -- what the memory-traffic model decides: launches and modelled bytes of functions that filling groups
 * as far as they go plans worse, and of those where storing is right.
 */
#include "tests/jit/plan_support.h"

typedef struct model_case {
    const char *what, *text;
    int steps;
    int64_t reads, writes; /* elements of f32 (4 bytes), as modelled */
} model_case;

/* 100 x 200 elements. */
enum { N = 20000 };
static const model_case cases[] = {
    {"a row reads what a group reads, but its reader comes later: it moves there",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = exp f32[100,200] %1\n"
     "  %3 = cumsum f32[100,200] %2 ints(1)\n  %4 = scalar f64 0x1p+1\n"
     "  %5 = mul f32[100,200] %1, %4\n  %6 = add f32[100,200] %5, %3\n  return %6\n}\n",
     3, 4 * N, 3 * N},
    {"cheap, and two groups read it: both compute it",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = scalar f64 0x1p+1\n"
     "  %3 = mul f32[100,200] %1, %2\n  %4 = cumsum f32[100,200] %1 ints(1)\n"
     "  %5 = add f32[100,200] %3, %4\n  %6 = cumsum f32[100,200] %5 ints(1)\n"
     "  %7 = sub f32[100,200] %3, %6\n  return %7\n}\n",
     4, 6 * N, 4 * N},
    {"dear, and two groups read it: one stores it",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = gelu f32[100,200] %1\n"
     "  %3 = cumsum f32[100,200] %1 ints(1)\n  %4 = add f32[100,200] %2, %3\n"
     "  %5 = cumsum f32[100,200] %4 ints(1)\n  %6 = sub f32[100,200] %2, %5\n  return %6\n}\n",
     4, 6 * N, 5 * N},
    {"a deviation from a mean, read forward and backward",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = input f32[200]\n"
     "  %3 = sub f32[100,200] %1, %2\n  %4 = cumsum f32[100,200] %1 ints(1)\n"
     "  %5 = mul f32[100,200] %3, %4\n  %6 = cumsum f32[100,200] %5 ints(1)\n"
     "  %7 = mul f32[100,200] %3, %6\n  return %7\n}\n",
     4, 6 * N + 400, 4 * N},
    {"widened from a half that is in memory: the half is read twice",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = exp f32[100,200] %1\n"
     "  %3 = cast bf16[100,200] %2 dtype(bf16)\n  %4 = cast f32[100,200] %3 dtype(f32)\n"
     "  %5 = mul f32[100,200] %4, %1\n  %6 = cumsum bf16[100,200] %3 ints(1)\n"
     "  %7 = cast f32[100,200] %6 dtype(f32)\n  %8 = add f32[100,200] %4, %7\n"
     "  return %8, %5\n}\n",
     3, 5 * N / 2, 3 * N},
    {"two operands for one value",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = input f32[100,200]\n"
     "  %3 = mul f32[100,200] %1, %2\n  %4 = cumsum f32[100,200] %1 ints(1)\n"
     "  %5 = add f32[100,200] %3, %4\n  %6 = cumsum f32[100,200] %5 ints(1)\n"
     "  %7 = sub f32[100,200] %3, %6\n  return %7\n}\n",
     4, 7 * N, 5 * N},
    {"the same two, which a row of the reader has anyway",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = input f32[100,200]\n"
     "  %3 = mul f32[100,200] %1, %2\n  %4 = cumsum f32[100,200] %1 ints(1)\n"
     "  %5 = add f32[100,200] %3, %4\n  %6 = cumsum f32[100,200] %5 ints(1)\n"
     "  %7 = sub f32[100,200] %3, %6\n  %8 = add f32[100,200] %1, %2\n"
     "  %9 = mul f32[100,200] %8, %6\n  return %7, %9\n}\n",
     4, 8 * N, 5 * N},
    {"two that read one operand",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = mul f32[100,200] %1, %1\n"
     "  %3 = exp f32[100,200] %1\n  return %2, %3\n}\n",
     1, N, 2 * N},
    {"siblings far apart",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = input f32[100,200]\n  %3 = exp f32[100,200] %1\n"
     "  %4 = cumsum f32[100,200] %3 ints(1)\n  %5 = add f32[100,200] %1, %2\n"
     "  %6 = cumsum f32[100,200] %5 ints(1)\n  return %4, %6\n}\n",
     3, 4 * N, 4 * N},
    {"a row that is returned is in memory: nothing is saved by not reading it",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = scalar f64 0x1p+1\n"
     "  %3 = mul f32[100,200] %1, %2\n  %4 = cumsum f32[100,200] %1 ints(1)\n"
     "  %5 = add f32[100,200] %3, %4\n  %6 = cumsum f32[100,200] %5 ints(1)\n"
     "  %7 = sub f32[100,200] %3, %6\n  return %7, %3\n}\n",
     4, 6 * N, 5 * N},
    {"unless its operand is read there as well",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = scalar f64 0x1p+1\n"
     "  %3 = mul f32[100,200] %1, %2\n  %4 = cumsum f32[100,200] %1 ints(1)\n"
     "  %5 = add f32[100,200] %3, %4\n  %6 = cumsum f32[100,200] %5 ints(1)\n"
     "  %7 = sub f32[100,200] %3, %6\n  %8 = mul f32[100,200] %7, %1\n  return %8, %3\n}\n",
     4, 6 * N, 5 * N},
    {"small and spread over many: computed once, at its own size",
     "fn a {\n  %1 = input f32[100,200]\n  %2 = input f32[200]\n  %3 = exp f32[200] %2\n"
     "  %4 = square f32[200] %3\n  %5 = add f32[200] %4, %2\n  %6 = mul f32[100,200] %1, %5\n"
     "  %7 = gelu f32[100,200] %6\n  return %7\n}\n",
     2, N + 400, N + 200},
};

Test(fuse_model, stores_or_computes_again)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const model_case *c = &cases[i];
        const wf_plan_info info = plan_check_text(c->text);
        cr_expect_eq(info.steps, c->steps, "%s: %d steps", c->what, info.steps);
        cr_expect_eq(info.read_bytes, 4 * c->reads, "%s: %lld bytes read", c->what,
                     (long long)info.read_bytes);
        cr_expect_eq(info.write_bytes, 4 * c->writes, "%s: %lld bytes written", c->what,
                     (long long)info.write_bytes);
    }
}

/* The text of a plan, on one line an edge; the caller frees it. */
static char *explain(const char *text, const int32_t *writes, wf_plan_info *info)
{
    wf_fn *f = plan_parse(text);
    wf_why why;
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0, .writes = writes}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    char *said = NULL;
    size_t size;
    FILE *out = open_memstream(&said, &size);
    cr_assert_eq(wf_plan_explain(p, out), 0);
    fclose(out);
    wf_plan_get_info(p, info);
    wf_plan_release(p);
    wf_fn_free(f);
    return said;
}

Test(fuse_model, says_what_was_weighed)
{
    wf_plan_info info;
    char *cheap = explain(cases[1].text, NULL, &info), *dear = explain(cases[2].text, NULL, &info);
    cr_expect(strstr(cheap, "edge %3 mul -> %7 sub: AGAIN (the reader computes it again: that is "
                            "cheaper than its memory; computed again it saves 80000 bytes and "
                            "costs 55000)\n"),
              "%s", cheap);
    cr_expect(strstr(dear, "edge %2 gelu -> %6 sub: ORDER (another step that needs the one lies "
                           "before the other; computed again it saves 80000 bytes and costs "),
              "%s", dear);
    free(cheap);
    free(dear);
}

/* What is written over while the function runs is no operand to compute from: it would have to be saved. */
Test(fuse_model, what_is_written_over_is_not_read_again)
{
    static const char text[] =
        "fn a {\n  %1 = input f32[100,200]\n  %2 = scalar f64 0x1p+1\n"
        "  %3 = mul f32[100,200] %1, %2\n  %4 = cumsum f32[100,200] %1 ints(1)\n"
        "  %5 = add f32[100,200] %3, %4\n  %6 = cumsum f32[100,200] %5 ints(1)\n"
        "  %7 = sub f32[100,200] %3, %6\n  return %7, %5\n}\n";
    static const int32_t none[2] = {-1, -1}, second[2] = {-1, 0};
    wf_plan_info info;
    char *said = explain(text, none, &info);
    cr_expect(strstr(said, "AGAIN"), "%s", said);
    free(said);
    said = explain(text, second, &info);
    cr_expect_not(strstr(said, "AGAIN"), "%s", said);
    cr_expect_eq(info.steps, 4);
    free(said);
}

/* The sum of n tensors of `cols` x 100. */
static wf_plan *sum_of(int n, int64_t cols, unsigned flags)
{
    wf_fn *f = wf_fn_new("sum");
    wf_val x = wf_fn_input(f, &(wf_type){WEFT_F32, 2, {100, cols}});
    wf_why why;
    for (int i = 1; i < n; i++) {
        wf_val s[2] = {x, wf_fn_input(f, &(wf_type){WEFT_F32, 2, {100, cols}})};
        cr_assert_eq(wf_fn_append(f, WF_OP_ADD, NULL, 2, s, &x, NULL, &why), 0);
    }
    wf_fn_output(f, x);
    if (n <= 24) {
        plan_check(f, flags, NULL);
    }
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = flags}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    wf_fn_free(f);
    return p;
}

/* Kernels of more tensors than a cache has ways are slower than two, unless the launch is what counts, or on a device. */
Test(fuse_model, does_not_crowd_a_kernel)
{
    static const struct {
        int n;
        int64_t cols;
        unsigned flags;
        int steps;
    } sums[] = {{15, 200, WF_PLAN_TIER0, 1}, {16, 200, WF_PLAN_TIER0, 2},
                {29, 200, WF_PLAN_TIER0, 2}, {30, 200, WF_PLAN_TIER0, 3},
                {24, 10, WF_PLAN_TIER0, 1},  {24, 200, WF_PLAN_DEVICE, 1}};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        wf_plan *p = sum_of(sums[i].n, sums[i].cols, sums[i].flags);
        wf_plan_info info;
        wf_plan_edge_info e;
        wf_plan_get_info(p, &info);
        cr_expect_eq(info.steps, sums[i].steps, "%d tensors of %lld columns: %d steps", sums[i].n,
                     (long long)sums[i].cols, info.steps);
        if (sums[i].steps > 1) {
            cr_assert(wf_plan_edge_at(p, 0, &e));
            cr_expect_str_eq(e.reason, "COSTS_MORE");
            cr_expect(e.saved > 0 && e.saved < e.cost, "%lld, %lld", (long long)e.saved,
                      (long long)e.cost);
        }
        wf_plan_release(p);
    }
}

/* The first reason of a plan with rows opened, "" if all is one step. */
static const char *first_reason(const char *text, unsigned flags, wf_plan_info *info)
{
    wf_fn *f = plan_parse(text);
    wf_why why;
    plan_check(f, flags | WF_PLAN_ROWS, info);
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = flags | WF_PLAN_ROWS}, &why);
    wf_plan_edge_info e = {.reason = ""};
    wf_plan_edge_at(p, 0, &e);
    wf_plan_release(p);
    wf_fn_free(f);
    return e.reason;
}

/* What follows the reduction of a row that no cache holds is a step of its own, and what goes over such rows several times has its
 * own kernel; a sum takes its producers in, whatever the length. */
Test(fuse_model, long_rows_are_gone_over_once)
{
    static const char shape[] =
        "fn a {\n  %%1 = input f32[2,%d]\n  %%2 = gelu f32[2,%d] %%1\n"
        "  %%3 = sum f32[2,1] %%2 ints(1) dtype(f32) flags(1)\n"
        "  %%4 = reciprocal f32[2,1] %%3\n  %%5 = mul f32[2,%d] %%2, %%4\n  return %%5\n}\n";
    static const char norm[] = "fn a {\n  %%1 = input f32[2,%d]\n  %%2 = gelu f32[2,%d] %%1\n"
                               "  %%3 = softmax f32[2,%d] %%2 ints(1)\n  return %%3\n}\n";
    static const struct {
        int n;
        unsigned flags;
        int steps;
        const char *reason;
    } lengths[] = {{70000, WF_PLAN_TIER0, 1, ""},
                   {140000, WF_PLAN_TIER0, 2, "LONG_ROWS"},
                   {140000, WF_PLAN_DEVICE, 1, ""}};
    for (size_t i = 0; i < 2 * (sizeof lengths / sizeof *lengths); i++) {
        const int n = lengths[i / 2].n;
        char text[400];
        wf_plan_info info;
        snprintf(text, sizeof text, i % 2 ? norm : shape, n, n, n);
        const char *reason = first_reason(text, lengths[i / 2].flags, &info);
        cr_expect_eq(info.steps, lengths[i / 2].steps, "%d elements, %d steps\n%s", n, info.steps,
                     text);
        cr_expect_str_eq(reason, lengths[i / 2].reason);
    }
}
