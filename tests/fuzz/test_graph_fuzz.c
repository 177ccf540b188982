/*
 * tests/fuzz/test_graph_fuzz.c -- random functions of all rows, run every way there is: eager dispatch,
 * the reference interpreter, after every pass and after all of them, as a plan on the tile interpreter
 * and with native kernels, with other scalar slots than those the plan was built with. Bits are equal.
 *
 * Eager dispatch, the interpreter, the tile interpreter and all passes see every function; the share of the
 * slower ways is in `every`. Most operands are small, since the interpreter is slow by design.
 *
 * WEFT_FUZZ_GRAPHS: how many (10000, less by WEFT_TEST_EFFORT); WEFT_FUZZ_SEED: the first one. A failing
 * function is shrunk and printed as IR: weft-opt reads it.
 */
/* ctest: timeout=600 cost=100 */
#include <criterion/criterion.h>

#include "eager/alloc.h"
#include "jit/plan.h"
#include "tests/jit/graph_support.h"
#include "tests/jit/random_graph.h"
#include "tests/jit/shrink.h"
#include "tests/support/effort.h"

typedef enum way {
    WAY_INTERP,
    WAY_PASSES,
    WAY_ALL,
    WAY_SLOTS,
    WAY_TIER0,
    WAY_TIER0_ROWS,
    WAY_NATIVE,
    WAY_NATIVE_ROWS,
    WAYS
} way;
static const char *const way_names[WAYS] = {
    [WAY_INTERP] = "the reference interpreter",
    [WAY_PASSES] = "one pass, interpreted",
    [WAY_ALL] = "all passes, by eager dispatch",
    [WAY_SLOTS] = "all passes, interpreted with the slots of another recording",
    [WAY_TIER0] = "a plan on the tile interpreter",
    [WAY_TIER0_ROWS] = "a plan with opened rows on the tile interpreter",
    [WAY_NATIVE] = "a plan with native kernels",
    [WAY_NATIVE_ROWS] = "a plan with opened rows and native kernels",
};
/* One in how many functions goes this way: compiling takes milliseconds, a pass alone an interpretation each. */
static const uint8_t every[WAYS] = {
    [WAY_INTERP] = 1, [WAY_PASSES] = 4,     [WAY_ALL] = 1,     [WAY_SLOTS] = 2,
    [WAY_TIER0] = 1,  [WAY_TIER0_ROWS] = 1, [WAY_NATIVE] = 16, [WAY_NATIVE_ROWS] = 16,
};

/* A function's operands and what eager dispatch makes of them. */
typedef struct expected {
    const wf_fn *f;
    void *in[GRAPH_ARGS], *out[GRAPH_ARGS];
    int status;
    wf_why why;
} expected;

static wf_interp *oracle;
static uint32_t hits[WF_FOLD_COUNT];
static wf_pass_stat stats[WF_PASS_COUNT];

/* Another recording of the structure: other scalars, fill values and slice starts that stay legal. */
static wf_fn *other_slots(const wf_fn *f)
{
    char *text = wf_fn_text(f);
    wf_why why;
    wf_fn *g = wf_fn_parse(text, strlen(text), &why);
    free(text);
    cr_assert_not_null(g, "%s", why.rule);
    for (uint32_t k = 0; k < g->n; k++) {
        const wf_ins *i = &g->ins[k];
        if (i->op == WF_OP_SCALAR) {
            int kind = g->slot_kind[i->attr];
            double v = wf_slot_f64(kind, g->slots[i->attr]);
            g->slots[i->attr] = kind == 0 ? !g->slots[i->attr] : wf_slot_bits(kind, v + 1);
        } else if (i->op == WF_OP_FULL && wf_ins_attr(g, i)->n_flt) {
            double *flt = (double *)(uintptr_t)wf_ins_attr(g, i)->flt;
            flt[0] += 2;
        }
    }
    return g;
}

static int run_plan(const wf_fn *f, unsigned flags, void *const *in, void **out, wf_why *why)
{
    wf_view iv[GRAPH_ARGS], ov[GRAPH_ARGS];
    memset(ov, 0, sizeof ov);
    for (uint32_t k = 0; k < f->ninputs; k++) {
        const wf_type *t = wf_fn_type(f, f->inputs[k]);
        int64_t step = 1;
        iv[k] = (wf_view){.data = in[k], .dtype = t->dtype, .rank = t->rank};
        for (int i = t->rank; i-- > 0;) {
            iv[k].dims[i] = t->dims[i];
            iv[k].strides[i] = step;
            step *= t->dims[i];
        }
    }
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = flags}, why);
    if (!p) {
        return why->code;
    }
    wf_plan_args a = {.fn = f, .in = iv, .out = ov};
    int rc = wf_plan_run(p, &a, why);
    for (uint32_t k = 0; k < f->noutputs && !rc; k++) {
        size_t bytes = (size_t)wf_view_numel(&ov[k]) * wf_dtype_size(ov[k].dtype);
        out[k] = malloc(bytes + 1);
        memcpy(out[k], ov[k].data, bytes);
        wf_free(ov[k].data, bytes);
    }
    wf_plan_release(p);
    return rc;
}

/* Runs f one way. */
static int run_way(const wf_fn *f, way w, int pass, void *const *in, void **out, wf_why *why)
{
    const void *const *cin = (const void *const *)in;
    wf_pass_opts o = {.verify = true, .dump = "", .hits = hits, .stats = stats};
    wf_fn *g = NULL, *now = NULL;
    int rc = 0;
    switch (w) {
    case WAY_INTERP:
        return wf_interp_run(oracle, f, NULL, cin, out, why);
    case WAY_PASSES:
        o.only = wf_passes[pass].name;
        rc = wf_pass_all(f, &o, &g, why);
        rc = rc ? rc : wf_interp_run(oracle, g, NULL, cin, out, why);
        break;
    case WAY_ALL:
        rc = wf_pass_all(f, &o, &g, why);
        rc = rc ? rc : graph_eager(g, in, out, why);
        break;
    case WAY_SLOTS: /* f is the other recording; the passes saw the first one */
        now = other_slots(f);
        rc = wf_pass_all(now, &o, &g, why);
        rc = rc ? rc : wf_interp_run(oracle, g, f, cin, out, why);
        break;
    case WAY_TIER0:
        return run_plan(f, WF_PLAN_TIER0, in, out, why);
    case WAY_TIER0_ROWS:
        return run_plan(f, WF_PLAN_TIER0 | WF_PLAN_ROWS, in, out, why);
    case WAY_NATIVE_ROWS:
        return run_plan(f, WF_PLAN_SYNC | WF_PLAN_ROWS, in, out, why);
    case WAY_NATIVE:
        return run_plan(f, WF_PLAN_SYNC, in, out, why);
    case WAYS:
        break;
    }
    wf_fn_free(g);
    wf_fn_free(now);
    return rc;
}

static void expect_of(expected *e, const wf_fn *f, uint64_t seed)
{
    *e = (expected){.f = f};
    graph_inputs(f, seed, e->in);
    e->status = graph_eager(f, e->in, e->out, &e->why);
}

static void drop_expected(expected *e)
{
    graph_free(e->out, e->f->noutputs);
    graph_free(e->in, e->f->ninputs);
}

/* NULL, or what went wrong (a static text). */
static const char *check_way(const expected *e, way w, int pass)
{
    static char message[400];
    void *got[GRAPH_ARGS] = {0};
    wf_why why = {0};
    uint32_t k = 0;
    const char *bad = NULL;
    int rc = e->status, rc2 = run_way(e->f, w, pass, e->in, got, &why);
    int64_t at = !rc && !rc2 ? graph_difference(e->f, e->out, got, &k) : -1;
    if (rc && rc2 == 0 && w != WAY_INTERP) {
        /* the failing op was dead: passes drop it, and its error */
    } else if (rc != rc2 || at >= 0) {
        snprintf(message, sizeof message,
                 "%s: status %d (%.90s) and %d (%.90s), output %u differs at %lld",
                 w == WAY_PASSES ? wf_passes[pass].name : way_names[w], rc, e->why.rule, rc2,
                 why.rule, k, (long long)at);
        bad = message;
    }
    graph_free(got, e->f->noutputs);
    return bad;
}

/* How a function failed: what shrinking has to keep. */
typedef struct failure {
    uint64_t seed;
    way w;
    int pass;
} failure;

static const char *check_again(const wf_fn *f, void *arg)
{
    const failure *x = arg;
    expected e;
    if (f->ninputs >= GRAPH_ARGS) {
        return NULL;
    }
    expect_of(&e, f, x->seed);
    const char *bad = check_way(&e, x->w, x->pass);
    drop_expected(&e);
    return bad;
}

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
    expect_of(&e, f, seed);
    for (int w = 0; w < WAYS; w++) {
        const bool turn = values_hash(seed * WAYS + (uint64_t)w) % every[w] == 0;
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
    oracle = wf_interp_new(wf_oracle_primitive);
    for (uint64_t seed = first; seed < first + n && failures < 5; seed++) {
        wf_fn *f = random_graph(seed, 6 + (int)(seed % 30));
        if (f->ninputs < GRAPH_ARGS) {
            failures += check_function(f, seed);
            checked++;
        }
        wf_fn_free(f);
    }
    wf_interp_free(oracle);
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
