/*
 * tests/fuzz/graph_ways.h -- the ways to run a random function, which all give the bits of eager dispatch, and what is left of a
 * function that some way computes otherwise, when it has been shrunk: IR that weft-opt reads.
 *
 * graph_ways_begin() comes first, graph_ways_end() last.
 */
#ifndef TESTS_FUZZ_GRAPH_WAYS_H
#define TESTS_FUZZ_GRAPH_WAYS_H

#include <criterion/criterion.h>

#include "eager/alloc.h"
#include "eager/env.h"
#include "jit/plan.h"
#include "tests/jit/graph_support.h"
#include "tests/jit/random_graph.h"
#include "tests/jit/shrink.h"

typedef enum way {
    WAY_INTERP,
    WAY_PASSES,
    WAY_ALL,
    WAY_SLOTS,
    WAY_TIER0,
    WAY_TIER0_ROWS,
    WAY_NARROW,
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
    [WAY_NARROW] = "a plan with native kernels of few lanes",
    [WAY_NATIVE] = "a plan with native kernels",
    [WAY_NATIVE_ROWS] = "a plan with opened rows and native kernels",
};
/* Lanes and flags of WAY_NARROW, by turns: of all counts that programs do not get, most often those that compile quickest. */
static const uint8_t narrow[] = {4, 8, 4, 8, 2, 8, 4, 16};

/* A function's operands and what eager dispatch makes of them. */
typedef struct expected {
    const wf_fn *f;
    uint64_t seed;
    void *in[GRAPH_ARGS], *out[GRAPH_ARGS];
    int status;
    wf_why why;
} expected;

static wf_interp *oracle;
static uint32_t hits[WF_FOLD_COUNT];
static wf_pass_stat stats[WF_PASS_COUNT];

/* The function that a seed stands for. */
static inline wf_fn *graph_of_seed(uint64_t seed)
{
    return random_graph(seed, 6 + (int)(seed % 30));
}

/* Another recording of the structure: other scalars, fill values and slice starts that stay legal. */
static inline wf_fn *other_slots(const wf_fn *f)
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

static inline int run_plan(const wf_fn *f, wf_plan_opts opts, void *const *in, void **out,
                           wf_why *why)
{
    wf_view iv[GRAPH_ARGS], ov[GRAPH_ARGS];
    memset(ov, 0, sizeof ov);
    for (uint32_t k = 0; k < f->ninputs; k++) {
        wf_view_of_type(&iv[k], wf_fn_type(f, f->inputs[k]), in[k]);
    }
    wf_plan *p = wf_plan_build(f, &opts, why);
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

static inline wf_plan_opts narrow_plan(uint64_t seed)
{
    const uint64_t hash = values_hash(seed);
    const bool quickly =
        hash / 16 % 4 !=
        0; /* the text is what is compared; programs' level is a quarter's, and WAY_NATIVE's */
    return (wf_plan_opts){.flags = WF_PLAN_SYNC | (hash & 1 ? WF_PLAN_ROWS : 0),
                          .target = {.arch = quickly && !*wf_env()->WEFT_ISA ? "host/0" : NULL,
                                     .width = narrow[hash / 2 % sizeof narrow]}};
}

/* Runs f one way. */
static inline int run_way(const wf_fn *f, way w, int pass, uint64_t seed, void *const *in,
                          void **out, wf_why *why)
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
        return run_plan(f, (wf_plan_opts){.flags = WF_PLAN_TIER0}, in, out, why);
    case WAY_TIER0_ROWS:
        return run_plan(f, (wf_plan_opts){.flags = WF_PLAN_TIER0 | WF_PLAN_ROWS}, in, out, why);
    case WAY_NARROW:
        return run_plan(f, narrow_plan(seed), in, out, why);
    case WAY_NATIVE_ROWS:
        return run_plan(f, (wf_plan_opts){.flags = WF_PLAN_SYNC | WF_PLAN_ROWS}, in, out, why);
    case WAY_NATIVE:
        return run_plan(f, (wf_plan_opts){.flags = WF_PLAN_SYNC}, in, out, why);
    case WAYS:
        break;
    }
    wf_fn_free(g);
    wf_fn_free(now);
    return rc;
}

static inline void expect_of(expected *e, const wf_fn *f, uint64_t seed)
{
    *e = (expected){.f = f, .seed = seed};
    graph_inputs(f, seed, e->in);
    e->status = graph_eager(f, e->in, e->out, &e->why);
}

static inline void drop_expected(expected *e)
{
    graph_free(e->out, e->f->noutputs);
    graph_free(e->in, e->f->ninputs);
}

/* NULL, or what went wrong (a static text). */
static inline const char *check_way(const expected *e, way w, int pass)
{
    static char message[400];
    void *got[GRAPH_ARGS] = {0};
    wf_why why = {0};
    uint32_t k = 0;
    const char *bad = NULL;
    int rc = e->status, rc2 = run_way(e->f, w, pass, e->seed, e->in, got, &why);
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

static inline const char *check_again(const wf_fn *f, void *arg)
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

static inline void graph_ways_begin(void)
{
    oracle = wf_interp_new(wf_oracle_primitive);
    cr_assert_not_null(oracle);
}

static inline void graph_ways_end(void)
{
    wf_interp_free(oracle);
}

#endif
