/*
 * tests/planted/test_graph_planted.c -- wrong native kernels are found by comparing random functions (tests/fuzz/graph_ways.h), and
 * shrink to a few instructions.
 *
 * Beside this program lies a libweft-llvm.so that compiles something else than what it is given (wrong_llvm.c). What it does
 * with nothing planted has to pass: what is found is the fault, and native kernels run at all.
 */
/* ctest: cost=20 */
#include "tests/fuzz/graph_ways.h"

#include "jit/kernels.h"

enum { FUNCTIONS = 1000, SMALL = 12 };

/* The first random function that differs, shrunk; NULL: none. */
static wf_fn *find(way w, failure *x)
{
    for (uint64_t seed = 1; seed <= FUNCTIONS; seed++) {
        wf_fn *f = graph_of_seed(seed), *small = NULL;
        *x = (failure){seed, w, 0};
        if (f->ninputs < GRAPH_ARGS && check_again(f, x)) {
            small = shrink(f, check_again, x);
            cr_assert_not_null(small);
        }
        wf_fn_free(f);
        if (small) {
            return small;
        }
    }
    return NULL;
}

Test(graph_planted, wrong_kernels_are_found)
{
    static const char *const faults[] = {
        "fadd >fsub ",
        "fmul >fadd ",
        "fadd >fadd contract ;fmul >fmul contract ", /* a product that is not rounded: last places */
        "lshr >ashr ",
        "fcmp olt >fcmp ogt ",
        "reduce.or.v>reduce.and.v", /* the branch for what is rare, when any lane needs it */
    };
    graph_ways_begin();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        for (way w = WAY_NARROW; w <= (i == 0 ? WAY_NATIVE_ROWS : WAY_NARROW); w++) {
            failure x;
            setenv("WRONG_LLVM", faults[i], 1);
            wf_jitk_trim(); /* kernels of another fault */
            wf_fn *small = find(w, &x);
            cr_assert_not_null(small, "%s: not found among %d functions, %s", faults[i], FUNCTIONS,
                               way_names[w]);
            cr_expect_leq(small->n, (uint32_t)SMALL, "%s: seed %d", faults[i], (int)x.seed);
            wf_fn_free(small);
        }
    }
    graph_ways_end();
}

Test(graph_planted, right_ones_are_not)
{
    enum { SOME = 60 };
    wf_jitk_stats made;
    graph_ways_begin();
    for (uint64_t seed = 1; seed <= SOME; seed++) {
        wf_fn *f = graph_of_seed(seed);
        failure x = {seed, WAY_NARROW, 0};
        const char *bad = check_again(f, &x);
        cr_expect_null(bad, "seed %d: %s", (int)seed, bad);
        wf_fn_free(f);
    }
    wf_jitk_get_stats(&made);
    cr_expect_gt(made.compiled, SOME / 2);
    cr_expect_eq(made.failed, 0);
    graph_ways_end();
}
