/*
 * bench/bench_unroll.c -- what an instruction of an unrolled graph costs to record, optimise, plan and compile, from 10 to 10^5 of
 * them.
 *
 *   bench_unroll [most]                    n up to `most`, default 100000; 10000 where WEFT_BENCH_QUICK is set
 *
 *   {"bench":"unroll","case":"unrolled" or "sums","size":"1000 ops","threads":1,"clock":"cpu","record_ns":...,"optimise_ns":...,
 *    "plan_ns":...,"compile_ns":...,"kernels":...,"X_grown":...}
 *
 * The graph is one long chain on matrices of 8 x 8 without a period, so that kernels are as many as its length asks for: per
 * 16 ops a product, a softmax, a sum over rows that is taken from them, and between these elementwise rows in an order that is
 * drawn (the chain of 10^3 is how that of 10^4 begins). "sums" adds up sums of one matrix times numbers, as a loop does with losses:
 * readers of one value and one total that all of them go into. Every figure is nanoseconds an op, an op being an instruction of the recording:
 * record: public calls, each operand freed as the next one is made; optimise: all passes; plan: fusion, programs, buffers;
 * compile: the native kernels of its groups, of an empty cache. 10^5 takes a minute for these.
 *
 * X_grown is X_ns over that of 10^3 ops: linear means 1. Fewer ops than that pay what every graph does, once: a kernel for three
 * of them, and the like.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/support/bench.h"
#include "jit/kernels.h"
#include "jit/passes/pass.h"
#include "jit/plan.h"
#include "jit/trace.h"
#include "weft/weft.h"

enum { LENGTH = 16, BASE = 1000 };

typedef struct chain {
    int n;
    bool sums;
    weft_tensor x, y, w;
    wf_trace *trace;
    wf_fn *f;
} chain;

static weft_tensor elementwise(const chain *c, uint32_t which, weft_tensor h)
{
    switch (which % 10) {
    case 0:
        return (weft_add)(h, c->y);
    case 1:
        return (weft_mul)(h, c->y);
    case 2:
        return (weft_sub)(c->y, h);
    case 3:
        return (weft_tanh)(h);
    case 4:
        return (weft_sigmoid)(h);
    case 5:
        return (weft_relu)(h);
    case 6:
        return (weft_square)(h);
    case 7:
        return (weft_maximum)(h, c->y);
    case 8:
        return (weft_abs)(h);
    default:
        return (weft_exp)(h);
    }
}

/* One op, or two that are one row: the sum and what takes it away. */
static weft_tensor next(const chain *c, int i, uint32_t which, weft_tensor h)
{
    if (i % LENGTH == 5) {
        return (weft_matmul)(h, c->w);
    }
    if (i % LENGTH == 10) {
        return (weft_softmax)(h, -1);
    }
    if (i % LENGTH != 15) {
        return elementwise(c, which, h);
    }
    weft_tensor sum = weft_sum(h, .axes = weft_axes(1), .keepdim = true);
    weft_tensor r = (weft_sub)(h, sum);
    weft_free(sum);
    return r;
}

/* Three ops an iteration. */
static weft_tensor sums(const chain *c)
{
    weft_tensor total = (weft_sum)(&(weft_reduce_args){.x = c->x});
    for (int i = 1; 3 * i < c->n; i++) {
        weft_tensor m = (weft_mul)(c->x, weft_f(i)), sum = (weft_sum)(&(weft_reduce_args){.x = m});
        weft_tensor now = (weft_add)(total, sum);
        weft_free(m);
        weft_free(sum);
        weft_free(total);
        total = now;
    }
    return total;
}

/* The chain; an iteration that takes two ops counts as two. */
static weft_tensor chained(const chain *c)
{
    uint32_t drawn = 1;
    weft_tensor h = (weft_add)(c->x, c->y);
    for (int i = 1, done = 1; done < c->n; i++) {
        drawn = drawn * UINT32_C(1664525) + UINT32_C(1013904223);
        weft_tensor r = next(c, i, drawn >> 16, h);
        weft_free(h);
        h = r;
        done += i % LENGTH == 15 ? 2 : 1;
    }
    return h;
}

static weft_tensor ops(const chain *c)
{
    weft_tensor h = c->sums ? sums(c) : chained(c);
    if (!weft_ok(h)) {
        bench_die(weft_error_text(h));
    }
    return h;
}

static int no_run(void *user, wf_job *job, wf_why *why)
{
    (void)user, (void)job, (void)why;
    return 0;
}

static const wf_trace_owner owner = {.name = "unrolled", .run = no_run};

static void run_record(void *arg)
{
    chain *c = arg;
    weft_scope s = weft_scope_begin();
    wf_trace_reopen(c->trace, &owner);
    weft_free(ops(c));
    wf_trace_close(c->trace);
    weft_scope_end(s);
}

static void run_optimise(void *arg)
{
    const chain *c = arg;
    wf_fn *f;
    wf_why why;
    if (wf_pass_all(c->f, &(wf_pass_opts){.verify = false}, &f, &why) != 0) {
        bench_die(why.rule);
    }
    wf_fn_free(f);
}

static wf_plan *plan(const chain *c, unsigned flags)
{
    wf_why why;
    wf_plan *p = wf_plan_build(c->f, &(wf_plan_opts){.flags = WF_PLAN_PLAIN | flags}, &why);
    if (!p) {
        bench_die(why.rule);
    }
    return p;
}

/* Passes included. */
static void run_plan(void *arg)
{
    wf_plan_release(plan(arg, WF_PLAN_TIER0));
}

static void record(chain *c)
{
    weft_tensor *captured;
    int n;
    wf_trace *t = wf_trace_begin("unrolled");
    weft_tensor h = ops(c);
    if (!t || wf_trace_output(t, h) != 0) {
        bench_die(weft_last_error());
    }
    c->f = wf_trace_end(t, &captured, &n);
    for (int i = 0; i < n; i++) {
        weft_free(captured[i]);
    }
}

typedef struct costs {
    double record, optimise, plan, compile; /* seconds of all */
    int64_t kernels;
} costs;

/* Kernels are compiled once: seconds of processor time, the plan included. */
static void compile(const chain *c, costs *x)
{
    wf_jitk_stats before, after;
    wf_jitk_trim();
    wf_jitk_get_stats(&before);
    const double start = bench_now(1);
    wf_plan *p = plan(c, WF_PLAN_SYNC);
    x->compile = bench_now(1) - start - x->plan - x->optimise;
    wf_jitk_get_stats(&after);
    x->kernels = after.compiled - before.compiled;
    wf_plan_release(p);
}

static costs measure(int n, bool sums)
{
    weft_scope s = weft_scope_begin();
    chain c = {.n = n, .sums = sums};
    c.x = weft_ones(weft_shape(8, 8), WEFT_F32);
    c.y = weft_full(weft_shape(8, 8), 0.5, WEFT_F32);
    c.w = weft_full(weft_shape(8, 8), 0.125, WEFT_F32);
    c.trace = wf_trace_open(&owner);
    wf_trace_close(c.trace);
    record(&c);
    bench_side side[] = {{.run = run_record, .arg = &c},
                         {.run = run_optimise, .arg = &c},
                         {.run = run_plan, .arg = &c}};
    bench_race(side, 3, &(bench_plan){.threads = 1, .seconds = 4});
    costs x = {.record = side[0].median, .optimise = side[1].median};
    x.plan = side[2].median - x.optimise;
    compile(&c, &x);
    wf_fn_free(c.f);
    wf_trace_free(c.trace);
    weft_scope_end(s);
    return x;
}

static double grown(double now, int n, double base)
{
    return base > 0 ? now / base * ((double)BASE / n) : 0;
}

static void report(bool sums, int most)
{
    costs base = {.record = 0};
    for (int n = 10; n <= most; n *= 10) {
        char size[32];
        snprintf(size, sizeof size, "%d ops", n);
        const costs x = measure(n, sums);
        base = n == BASE ? x : base;
        bench_open("unroll", sums ? "sums" : "unrolled", size, NULL, 1);
        bench_number("record_ns", x.record * 1e9 / n);
        bench_number("optimise_ns", x.optimise * 1e9 / n);
        bench_number("plan_ns", x.plan * 1e9 / n);
        if (x.kernels > 0) { /* there is a compiler */
            bench_number("compile_ns", x.compile * 1e9 / n);
            bench_number("kernels", (double)x.kernels);
        }
        if (n > BASE) {
            bench_number("record_grown", grown(x.record, n, base.record));
            bench_number("target_record_grown", 1.5);
            bench_number("optimise_grown", grown(x.optimise, n, base.optimise));
            bench_number("target_optimise_grown", 1.5);
            bench_number("plan_grown", grown(x.plan, n, base.plan));
            bench_number("target_plan_grown", 1.5);
            if (x.kernels > 0 && !sums) { /* those of sums are the same ones again */
                bench_number("compile_grown", grown(x.compile, n, base.compile));
                bench_number("target_compile_grown", 1.5);
            }
        }
        bench_close();
    }
}

int main(int argc, char **argv)
{
    const int most = argc > 1 ? atoi(argv[1]) : bench_quick() ? 10000 : 100000;
    if (setenv("WEFT_CACHE_SIZE", "0", 1) != 0) { /* nothing from disk */
        return 1;
    }
    report(false, most);
    report(true, most);
    return 0;
}
