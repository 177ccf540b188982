/*
 * tests/fuzz/test_graph_fuzz.c -- random functions of all rows, run every way there is: eager dispatch,
 * the reference interpreter, after every pass and after all of them, as a plan on the tile interpreter
 * and with native kernels, with other scalar slots than those the plan was built with. Bits are equal.
 *
 * Eager dispatch, the interpreter, the tile interpreter and all passes see every function; the share of the
 * slower ways is in `every`. Most operands are small, since the interpreter is slow by design. Compiling takes most of the time, by
 * the length of vectors: a kernel of few lanes takes half of one as programs get it, which one function in 16 has each of two ways.
 * Every other function has kernels of few lanes, the others' turn comes with another commit (WEFT_TEST_TURN, script/test).
 *
 * WEFT_FUZZ_GRAPHS: how many (10000, less by WEFT_TEST_EFFORT); WEFT_FUZZ_SEED: the first one. A failing
 * function is shrunk and printed as IR: weft-opt reads it. CTest runs it as two halves (cmake/WeftTests.cmake).
 * tests/planted holds that wrong kernels are found.
 */
/* ctest: timeout=900 cost=100 optimised */
#include "tests/fuzz/graph_ways.h"
#include "tests/support/effort.h"

/* One in how many functions goes this way: compiling takes milliseconds, a pass alone an interpretation each. */
static const uint8_t every[WAYS] = {
    [WAY_INTERP] = 1, [WAY_PASSES] = 4,  [WAY_ALL] = 1,
    [WAY_SLOTS] = 2,  [WAY_TIER0] = 1,   [WAY_TIER0_ROWS] = 1,
    [WAY_NARROW] = 2, [WAY_NATIVE] = 16, [WAY_NATIVE_ROWS] = 16,
};

static void report(const wf_fn *f, failure x)
{
    wf_fn *small = shrink(f, check_again, &x);
    const char *bad = small ? check_again(small, &x) : NULL;
    char *text = wf_fn_text(bad ? small : f);
    cr_expect_fail("seed %llu: %s\n%s", (unsigned long long)x.seed, bad ? bad : check_again(f, &x),
                   text);
    free(text);
    wf_fn_free(small);
}

/* f every way that is its turn. Returns how many of them failed. */
static int check_function(const wf_fn *f, uint64_t seed)
{
    int failures = 0;
    expected e;
    const uint64_t turns = effort_option("WEFT_TEST_TURN", 0);
    expect_of(&e, f, seed);
    for (int w = 0; w < WAYS; w++) {
        const uint64_t others = w == WAY_NARROW ? turns : 0;
        const bool turn = (values_hash(seed * WAYS + (uint64_t)w) + others) % every[w] == 0;
        for (int pass = 0; turn && pass < (w == WAY_PASSES ? (int)WF_PASS_COUNT : 1); pass++) {
            if (check_way(&e, (way)w, pass)) {
                report(f, (failure){seed, (way)w, pass});
                failures++;
            }
        }
    }
    drop_expected(&e);
    return failures;
}

Test(graph_fuzz, every_way_gives_the_same_bits)
{
    uint64_t n = effort_option("WEFT_FUZZ_GRAPHS", effort_of(10000));
    uint64_t first = effort_option("WEFT_FUZZ_SEED", 1), checked = 0;
    int failures = 0;
    graph_ways_begin();
    for (uint64_t seed = first; seed < first + n && failures < 5; seed++) {
        wf_fn *f = graph_of_seed(seed);
        if (f->ninputs < GRAPH_ARGS) {
            failures += check_function(f, seed);
            checked++;
        }
        wf_fn_free(f);
    }
    graph_ways_end();
    cr_expect(failures || checked > n - n / 10 - 1, "only %llu functions ran",
              (unsigned long long)checked);
    cr_expect(stats[WF_PASS_fold].rewrites > n / 2, "passes had nothing to do");
}

static bool is_binary(const wf_ins *i)
{
    return wf_rows[i->op].kind == WF_KIND_BINARY;
}

/* A fault that is planted: two binary rows in a chain. */
static const char *planted(const wf_fn *f, void *arg)
{
    (void)arg;
    for (wf_val v = 1; v <= f->n; v++) {
        const wf_ins *i = wf_fn_at(f, v);
        for (int s = 0; is_binary(i) && s < i->nsrc; s++) {
            if (is_binary(wf_fn_at(f, wf_ins_src(f, i)[s]))) {
                return "two binary rows in a chain";
            }
        }
    }
    return NULL;
}

Test(graph_fuzz, failures_shrink)
{
    int shrunk = 0;
    for (uint64_t seed = 1; shrunk < 20 && seed < 10000; seed++) {
        wf_fn *f = random_graph(seed, 30);
        if (planted(f, NULL)) {
            wf_fn *small = shrink(f, planted, NULL);
            cr_assert_not_null(small);
            /* the two rows and what they read from outside */
            if (planted(small, NULL)) {
                cr_expect_leq(small->n, 5u, "seed %llu: %u", (unsigned long long)seed, small->n);
                shrunk++;
            }
            wf_fn_free(small);
        }
        wf_fn_free(f);
    }
    cr_expect_eq(shrunk, 20);
}
