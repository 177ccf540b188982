/*
 * bench/bench_fuse.c -- traced functions beside the same functions called, and the machine's copy bandwidth.
 *
 *   bench_fuse [case] [threads]
 *
 * One JSON line per case, size and thread count: us a call of the traced function; over_eager: how many
 * times as fast it is as the function called (of_best: the best of each, which say more on a machine that does other things);
 * of_limit: the bandwidth it reaches as a share of a copy's, counting what the whole function must read and write once (cases
 * without matrix products). It has a target where the kernel is bound by memory, as in bench_eager: where what its arithmetic
 * takes, on few rows that lie in the first cache, is less than the limit. tier0_us: a trace of the same function that stays on
 * the tile interpreter, as where there is no LLVM; tier0_ratio: its speed over the traced function's; tier0_over_eager: over
 * eager's. Both traces run the function itself where that is faster (ran_eagerly). A traced call includes recording. The tiny_
 * cases are short functions on small tensors, one size and one thread: what recording costs them, or the choice not to
 * (jit/call_eager.c); region_ the same between weft_jit_begin and weft_jit_end. turns_ are softmax and a product of 4 to 323
 * rows of 16, 2 to 320 shapes by turns, recorded and frozen: a round of calls against a round of the function.
 *
 * Case plan_build: ns an instruction to plan functions of 10 to 10^5 instructions (blocks of a transformer's
 * rows); plan_run: ns a step to run them on the smallest of tensors.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/support/bench.h"
#include "eager/alloc.h"
#include "jit/call_impl.h"
#include "jit/plan.h"
#include "weft/jit.h"
#include "weft/weft.h"

enum { MOST_TENSORS = 160, CHAIN = 20, WIDTH = 1024 };

/* What is asked of tier 0, and beside peers, depends on what a case holds. */
typedef struct fuse_case {
    const char *name;
    double tier0;   /* tier 0's share of tier 1's speed: 0 where it is not asked for */
    bool peers;     /* bench/peers/fused.py has it */
    bool of_chains; /* a chain of elementwise rows: faster than PyTorch called op by op */
} fuse_case;
enum { CHEAP = 25, TRANSCENDENTAL = 60, OVER_PYTORCH = 3 };
static const fuse_case cases[] = {
    {"gelu_chain", TRANSCENDENTAL, true, true},
    {"chain_of_20", CHEAP, true, true},
    {"softmax", TRANSCENDENTAL, true, false},
    {"scaled_softmax", TRANSCENDENTAL, true, false},
    {"layer_norm", CHEAP, true, false},
    {"norm_block", TRANSCENDENTAL, true, false},
    {"mlp", TRANSCENDENTAL, true, false},
    {"adamw", CHEAP, true, false},
    {"dropout", CHEAP, false, false},
    {"cross_entropy", TRANSCENDENTAL, false, false},
    {"mse", CHEAP, false, false},
    {"column_sum", CHEAP, false, false},
    {"linear_gelu", TRANSCENDENTAL, false, false},
    {"gelu_alone", TRANSCENDENTAL, false, false},
    {"tiny_add", 0, false, false},
    {"tiny_chain", 0, false, false},
    {"tiny_matmul", 0, false, false},
    {"tiny_softmax", 0, false, false},
    {"region_add", 0, false, false},
    {"region_chain", 0, false, false},
    {"region_matmul", 0, false, false},
    {"region_softmax", 0, false, false},
};

typedef struct job {
    weft_jit_fn fn;
    weft_jit *jit, *tier0;
    weft_tensor in[8];
    int n_in, n_out;
    weft_tensor param[MOST_TENSORS];
    int n_param;
    weft_optim *optim;
    bool region;  /* the function is called between weft_jit_begin and weft_jit_end */
    double moved; /* bytes that must be read and written; 0: not bound by memory */
} job;

static weft_tensor randn(int64_t a, int64_t b)
{
    weft_tensor t = weft_keep(weft_randn(weft_shape(a, b), WEFT_F32));
    if (t.slot == 0)
        bench_die(weft_last_error());
    return t;
}

/* -- the functions ------------------------------------------------------------------------------------------ */

static weft_status gelu_chain(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_gelu(weft_add(weft_mul(in[0], in[1]), in[2]));
    out[0] = weft_add(weft_mul(h, in[3]), in[4]);
    return WEFT_OK;
}

/* Four cheap ops, five times. */
static weft_status chain_of_20(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor x = in[0];
    for (int i = 0; i < CHAIN / 4; i++)
        x = weft_sub(weft_maximum(weft_add(weft_mul(x, weft_f(0.9)), in[1]), weft_f(-3)),
                     weft_f(0.01));
    out[0] = x;
    return WEFT_OK;
}

static weft_status softmax(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_softmax(in[0], -1);
    return WEFT_OK;
}

static weft_status scaled_softmax(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                  int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_mul(weft_softmax(weft_add(weft_mul(in[0], weft_f(0.125)), in[1]), -1), in[2]);
    return WEFT_OK;
}

static weft_status layer_norm(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_layer_norm(in[0], in[1], in[2], 1);
    return WEFT_OK;
}

/* A norm written out, with a residual before and an activation behind it. */
static weft_status norm_block(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor x = weft_add(in[0], in[3]);
    weft_tensor d = weft_sub(x, weft_mean(x, weft_axes(-1), .keepdim = true));
    weft_tensor v = weft_mean(weft_square(d), weft_axes(-1), .keepdim = true);
    weft_tensor y = weft_mul(d, weft_rsqrt(weft_add(v, weft_f(1e-5))));
    out[0] = weft_silu(weft_add(weft_mul(y, in[1]), in[2]));
    out[1] = x;
    return WEFT_OK;
}

static weft_tensor scaled_logits(const job *j, const weft_tensor *in)
{
    return weft_add(weft_mul(j->param[0], weft_f(0.125)), in[0]);
}

/* Forward and backward of a loss of logits that are scaled and masked. */
static weft_status cross_entropy(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                 int n_out)
{
    job *j = self;
    (void)n_in, (void)n_out;
    weft_set_grad(j->param[0], WEFT_NONE);
    out[0] = weft_cross_entropy(scaled_logits(j, in), in[1]);
    return weft_backward(out[0]);
}

static weft_status mse(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    job *j = self;
    (void)n_in, (void)n_out;
    weft_set_grad(j->param[0], WEFT_NONE);
    out[0] = weft_mse_loss(scaled_logits(j, in), in[0]);
    return weft_backward(out[0]);
}

static weft_status dropout(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_add(weft_dropout(weft_relu(in[0]), 0.1, .training = true), in[1]);
    return WEFT_OK;
}

/* A sum over the leading axis of what is computed on the way: a bias's gradient. */
static weft_status column_sum(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor g = weft_mul(weft_mul(in[0], in[1]), weft_sub(weft_f(1), in[1]));
    out[0] = weft_sum(g, weft_axes(0));
    return WEFT_OK;
}

/* x W1 + b1, gelu, W2 + b2: forward and backward. */
static weft_status mlp(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    job *j = self;
    (void)n_in, (void)n_out;
    weft_tensor h = weft_gelu(weft_linear(in[0], j->param[0], j->param[1]));
    weft_tensor y = weft_add(in[0], weft_linear(h, j->param[2], j->param[3]));
    out[0] = weft_mean(weft_square(y));
    for (int i = 0; i < j->n_param; i++)
        weft_set_grad(j->param[i], WEFT_NONE);
    return weft_backward(out[0]);
}

/* The layer before a narrow one: the activation moves as much as the product. */
static weft_status linear_gelu(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_gelu(weft_linear(in[0], in[1], in[2]));
    return WEFT_OK;
}

/* One row alone: what tracing costs where there is nothing to fuse. */
static weft_status gelu_alone(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_gelu(in[0]);
    return WEFT_OK;
}

static weft_status adamw(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    job *j = self;
    (void)in, (void)n_in, (void)out, (void)n_out;
    return weft_optim_step(j->optim);
}

static weft_status tiny_add(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_add(in[0], in[0]);
    return WEFT_OK;
}

static weft_status tiny_chain(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = in[0];
    for (int i = 0; i < 50; i++)
        out[0] = i & 1 ? weft_mul(out[0], in[0]) : weft_add(out[0], in[0]);
    return WEFT_OK;
}

static weft_status tiny_matmul(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_matmul(in[0], in[0]);
    return WEFT_OK;
}

/* -- cases --------------------------------------------------------------------------------------------------- */

/* Weights are scaled by their fan-in as in real models: otherwise gelu's derivative leaves subnormal numbers, and
 * products of those are all that is measured. */
static void make_param(job *j, int64_t a, int64_t b)
{
    weft_tensor t = weft_keep(weft_randn(b ? weft_shape(a, b) : weft_shape(a), WEFT_F32,
                                         .std = b ? 1.0 / sqrt((double)b) : 1.0));
    if (weft_requires_grad_(t, true) != WEFT_OK)
        bench_die(weft_last_error());
    j->param[j->n_param++] = t;
}

static void open_mlp(job *j, int64_t rows)
{
    const int64_t d = 256;
    j->fn = mlp;
    j->in[j->n_in++] = randn(rows, d);
    make_param(j, 4 * d, d);
    make_param(j, 4 * d, 0);
    make_param(j, d, 4 * d);
    make_param(j, d, 0);
    j->n_out = 1;
}

static void open_loss(job *j, weft_jit_fn fn, int64_t rows)
{
    const int64_t n = 1024;
    j->fn = fn;
    make_param(j, rows, n);
    j->in[j->n_in++] = randn(rows, n);
    j->in[j->n_in++] = weft_keep(weft_randint(weft_shape(rows), 0, n));
    j->n_out = 1;
}

static void open_adamw(job *j, int64_t rows)
{
    weft_module *m = weft_module_new(NULL);
    j->fn = adamw;
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        const int64_t n = i % 2 ? rows : rows * (1 + i % 4) / 2;
        j->param[j->n_param++] = weft_module_parameter(
            m, name, weft_randn(i % 2 ? weft_shape(n) : weft_shape(n, 256), WEFT_F32));
        weft_tensor loss = weft_sum(weft_square(j->param[i]));
        if (weft_backward(loss) != WEFT_OK)
            bench_die(weft_last_error());
        j->moved += 7.0 * 4 * (double)weft_numel(j->param[i]); /* p m v: read and written; g read */
    }
    j->optim = weft_adamw_new(.module = m, .lr = 1e-3);
    if (!j->optim)
        bench_die(weft_last_error());
}

static void open_rows(job *j, weft_jit_fn fn, int64_t rows, int64_t n, int reads)
{
    j->fn = fn;
    j->n_out = fn == norm_block ? 2 : 1;
    j->in[j->n_in++] = randn(rows, n);
    const bool vectors = fn == layer_norm || fn == norm_block || fn == gelu_chain;
    for (int i = 1; i < reads; i++) {
        const bool wide = !vectors || i > 2;
        j->in[j->n_in++] = wide ? randn(rows, n) : weft_keep(weft_randn(weft_shape(n), WEFT_F32));
        j->moved += wide ? 4.0 * (double)(rows * n) : 0;
    }
    j->moved += 4.0 * (double)(rows * n) * (1 + j->n_out);
}

static void open_columns(job *j, int64_t rows, int64_t n)
{
    j->fn = column_sum;
    j->in[j->n_in++] = randn(rows, n);
    j->in[j->n_in++] = randn(rows, n);
    j->n_out = 1;
    j->moved = 4.0 * (double)(2 * rows * n + n);
}

static void open_tiny(job *j, const char *name)
{
    const bool wide = strcmp(name, "matmul") == 0 || strcmp(name, "softmax") == 0;
    j->fn = strcmp(name, "matmul") == 0    ? tiny_matmul
            : strcmp(name, "softmax") == 0 ? softmax
            : strcmp(name, "chain") == 0   ? tiny_chain
                                           : tiny_add;
    j->in[j->n_in++] = wide ? randn(64, 64) : randn(4, 4);
    j->n_out = 1;
}

static weft_status shifted_softmax(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                   int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_softmax(weft_add(in[0], weft_f(1)), -1);
    return weft_error_status(out[0]);
}

static void open_region(job *j, const char *name)
{
    j->region = true;
    if (strcmp(name, "softmax") == 0) {
        j->fn = shifted_softmax;
        j->in[j->n_in++] = randn(16, 16);
        j->n_out = 1;
    } else {
        open_tiny(j, name);
    }
}

/* rows of WIDTH elements, or what takes about as much memory. */
static bool open_case(job *j, const char *name, int64_t rows)
{
    const int64_t n = WIDTH;
    *j = (job){0};
    if (strcmp(name, "gelu_chain") == 0)
        open_rows(j, gelu_chain, rows, n, 5);
    else if (strcmp(name, "gelu_alone") == 0)
        open_rows(j, gelu_alone, rows, n, 1);
    else if (strcmp(name, "chain_of_20") == 0)
        open_rows(j, chain_of_20, rows, n, 2);
    else if (strcmp(name, "softmax") == 0)
        open_rows(j, softmax, rows, n, 1);
    else if (strcmp(name, "scaled_softmax") == 0)
        open_rows(j, scaled_softmax, rows, n, 3);
    else if (strcmp(name, "layer_norm") == 0)
        open_rows(j, layer_norm, rows, n, 3);
    else if (strcmp(name, "norm_block") == 0)
        open_rows(j, norm_block, rows, n, 4);
    else if (strcmp(name, "dropout") == 0)
        open_rows(j, dropout, rows, n, 2);
    else if (strcmp(name, "cross_entropy") == 0)
        open_loss(j, cross_entropy, rows);
    else if (strcmp(name, "mse") == 0)
        open_loss(j, mse, rows);
    else if (strcmp(name, "column_sum") == 0)
        open_columns(j, rows, n);
    else if (strcmp(name, "linear_gelu") == 0) {
        j->fn = linear_gelu;
        j->in[j->n_in++] = randn(rows, 64);
        j->in[j->n_in++] = weft_keep(weft_randn(weft_shape(n, 64), WEFT_F32, .std = 0.125));
        j->in[j->n_in++] = weft_keep(weft_randn(weft_shape(n), WEFT_F32));
        j->n_out = 1;
    } else if (strcmp(name, "mlp") == 0)
        open_mlp(j, rows > 4096 ? 4096 : rows);
    else if (strcmp(name, "adamw") == 0)
        open_adamw(j, rows >= 16384 ? 512 : rows >= 128 ? 8 : 2 * rows);
    else if (strncmp(name, "tiny_", 5) == 0)
        open_tiny(j, name + 5);
    else if (strncmp(name, "region_", 7) == 0)
        open_region(j, name + 7);
    else
        return false;
    return true;
}

/* -- measuring ----------------------------------------------------------------------------------------------- */

static void run_eager(void *arg)
{
    job *j = arg;
    weft_tensor out[2];
    weft_scope s = weft_scope_begin();
    if (j->fn(j, j->in, j->n_in, out, j->n_out) != WEFT_OK)
        bench_die(weft_last_error());
    weft_scope_end(s);
}

static void call(job *j, weft_jit *jit)
{
    weft_tensor out[2];
    weft_scope s = weft_scope_begin();
    if (weft_jit_call(jit, j->in, j->n_in, out, j->n_out) != WEFT_OK)
        bench_die(weft_last_error());
    weft_scope_end(s);
}

static void run_region(void *arg)
{
    job *j = arg;
    weft_tensor out[2];
    weft_scope s = weft_scope_begin();
    if (weft_jit_begin(j->jit) != WEFT_OK || j->fn(j, j->in, j->n_in, out, j->n_out) != WEFT_OK ||
        weft_jit_end(j->jit) != WEFT_OK)
        bench_die(weft_last_error());
    weft_scope_end(s);
}

static void run_traced(void *arg)
{
    job *j = arg;
    call(j, j->jit);
}

static void run_tier0(void *arg)
{
    job *j = arg;
    call(j, j->tier0);
}

static job *new_job(const fuse_case *c, int64_t rows)
{
    job *j = malloc(sizeof *j);
    if (!j)
        bench_die("out of memory");
    if (!open_case(j, c->name, rows))
        bench_die("no such case");
    return j;
}

/* Seconds a byte that the kernel's arithmetic takes on one thread: what more rows cost that lie in the first cache. 0: no kernel
 * of a case that is said to move memory. */
static double arithmetic(const fuse_case *c)
{
    enum { SIZES = 2 };
    static const int64_t rows[SIZES] = {1, 3};
    job *j[SIZES] = {new_job(c, rows[0]), new_job(c, rows[1])};
    const double more = j[1]->moved - j[0]->moved;
    bench_side sides[SIZES];
    double t = 0;
    weft_set_num_threads(1);
    for (int i = 0; i < SIZES && more > 0; i++) {
        j[i]->jit = weft_jit_trace(j[i]->fn, j[i], .synchronous = true, .always_record = true);
        sides[i] = (bench_side){.run = run_traced, .arg = j[i]};
        for (int k = 0; k < 200; k++) /* until a plan has chosen its steps */
            run_traced(j[i]);
    }
    if (more > 0) {
        bench_race(sides, SIZES, &(bench_plan){.threads = 1, .rounds = 15, .batch = 5e-4});
        t = sides[1].median - sides[0].median;
    }
    for (int i = 0; i < SIZES; i++) {
        weft_jit_free(j[i]->jit);
        free(j[i]); /* kept tensors go with the process */
    }
    return t > 0 ? t / more : 0;
}

static double eagerly(weft_jit *j)
{
    weft_jit_stats st;
    weft_jit_get_stats(j, &st);
    return (double)st.eager / (double)(st.eager + st.calls);
}

/* The sides of measure(), in the order of the line. */
enum { TRACED, EAGER, TIER0 };

static void report_limit(const job *j, const bench_side *sides, const bench_limit *limit, int first,
                         double alone)
{
    const double most = bench_limit_gbps(limit, sides, first, false);
    const bool memory = alone * 1e9 <= j->moved / most;
    bench_number("of_limit", j->moved / sides[TRACED].median * 1e-9 / most);
    if (memory)
        bench_number("target_of_limit", 0.9);
    bench_text("bound", memory ? "memory" : "arithmetic");
}

static void report_tier0(const fuse_case *c, const job *j, const bench_side *sides)
{
    bench_number("tier0_us", sides[TIER0].median * 1e6);
    bench_number("tier0_ratio", bench_ratio(TRACED, TIER0));
    bench_number("target_tier0_ratio", c->tier0 / 100);
    bench_number("tier0_over_eager", bench_ratio(EAGER, TIER0));
    bench_number("target_tier0_over_eager", 1);
    bench_number("tier0_ran_eagerly", eagerly(j->tier0));
}

/* per_byte: of arithmetic() */
static void measure(const fuse_case *c, double per_byte, bool large, int threads)
{
    weft_scope scope = weft_scope_begin();
    job *j = new_job(c, large ? 16384 : 128); /* 64 MiB, 512 KiB a tensor */
    const double alone = per_byte * j->moved / threads;
    weft_set_num_threads(threads);
    j->jit = weft_jit_trace(j->fn, j, .name = c->name);
    j->tier0 = weft_jit_trace(j->fn, j, .name = c->name);
    j->tier0->tier0 = true;
    const bool tiny = c->tier0 == 0;
    const int warm = tiny ? 20000 : 150;
    void (*traced)(void *) = j->region ? run_region : run_traced;
    for (int i = 0; i < warm; i++) { /* until every kernel is native and the way is chosen */
        traced(j);
        if (!tiny)
            run_tier0(j);
        if (i < 10)
            usleep(20000);
    }
    bench_side sides[TIER0 + 1 + BENCH_LIMIT_SIDES] = {[TRACED] = {.run = traced, .arg = j},
                                                       [EAGER] = {.run = run_eager, .arg = j},
                                                       [TIER0] = {.run = run_tier0, .arg = j}};
    int count = tiny ? TIER0 : TIER0 + 1;
    const int first = count;
    bench_limit limit;
    if (j->moved > 0)
        bench_limit_open(&limit, BENCH_COPY, j->moved, threads, sides, &count);
    const int rounds = large ? 0 : 101; /* of what takes a millisecond there is time for many */
    bench_race(sides, count, &(bench_plan){.threads = threads, .rounds = rounds, .seconds = 4});
    weft_jit_stats st;
    weft_jit_get_stats(j->jit, &st);
    bench_open("fuse", c->name, tiny ? "tiny" : large ? "large" : "L2", "f32", threads);
    bench_number("us", sides[TRACED].median * 1e6);
    bench_number("over_eager", bench_ratio(EAGER, TRACED));
    bench_number("of_best", sides[EAGER].best / sides[TRACED].best);
    bench_number("target_over_eager", 0.97);
    bench_number("steps", (double)st.steps);
    bench_number("ops", (double)st.ops);
    bench_number("ran_eagerly", eagerly(j->jit));
    if (j->moved > 0) {
        report_limit(j, sides, &limit, first, alone);
        bench_limit_close(&limit);
    }
    if (!tiny)
        report_tier0(c, j, sides);
    if (c->peers)
        bench_number("target_times_torch.compile", 1);
    if (c->peers && j->moved > 0) /* where torch.compile leaves room below the limit */
        bench_number("target_times_torch.compile_below_75", 1.2);
    if (c->of_chains)
        bench_number("target_times_torch", OVER_PYTORCH);
    bench_close();
    weft_jit_free(j->jit);
    weft_jit_free(j->tier0);
    weft_scope_end(scope);
    free(j); /* kept tensors go with the process */
}

/* -- shapes by turns -------------------------------------------------------------------------------------------- */

enum { MOST_SHAPES = 320 };

typedef struct turns {
    weft_jit_fn fn;
    weft_jit *jit; /* NULL: the function is called */
    weft_tensor w, *x;
    int n;
} turns;

static weft_status times_weight(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    const turns *t = self;
    (void)n_in, (void)n_out;
    out[0] = weft_matmul(in[0], t->w);
    return weft_error_status(out[0]);
}

static void run_round(void *arg)
{
    turns *t = arg;
    for (int i = 0; i < t->n; i++) {
        weft_tensor out;
        weft_scope s = weft_scope_begin();
        const weft_status rc =
            t->jit ? weft_jit_call(t->jit, &t->x[i], 1, &out, 1) : t->fn(t, &t->x[i], 1, &out, 1);
        if (rc != WEFT_OK)
            bench_die(weft_last_error());
        weft_scope_end(s);
    }
}

static void measure_turns(const char *name, int shapes, bool frozen)
{
    char size[48];
    weft_tensor x[MOST_SHAPES];
    weft_scope scope = weft_scope_begin();
    turns eager = {.x = x, .n = shapes, .w = weft_keep(weft_randn(weft_shape(16, 16)))};
    eager.fn = strcmp(name, "turns_matmul") == 0 ? times_weight : shifted_softmax;
    weft_set_num_threads(1);
    for (int i = 0; i < shapes; i++)
        x[i] = randn(4 + i, 16);
    turns traced = eager;
    traced.jit = weft_jit_trace(eager.fn, &eager, .name = name, .frozen = frozen);
    for (int i = 0; i < 400 + 20000 / shapes; i++) { /* until every way is chosen */
        run_round(&traced);
        if (i < 10)
            usleep(20000);
    }
    bench_side sides[2] = {{.run = run_round, .arg = &traced}, {.run = run_round, .arg = &eager}};
    bench_race(sides, 2, &(bench_plan){.threads = 1, .rounds = 101, .seconds = 2});
    weft_jit_stats st;
    weft_jit_get_stats(traced.jit, &st);
    snprintf(size, sizeof size, "%d shapes, %s", shapes, frozen ? "frozen" : "recorded");
    bench_open("fuse", name, size, "f32", 1);
    bench_number("us", sides[0].median * 1e6 / shapes);
    bench_number("over_eager", bench_ratio(1, 0));
    bench_number("of_best", sides[1].best / sides[0].best);
    bench_number("target_over_eager", 0.97);
    bench_number("plans", (double)st.plans);
    bench_number("ran_eagerly", (double)st.eager / (double)(st.eager + st.calls + st.frozen));
    bench_close();
    weft_jit_free(traced.jit);
    for (int i = 0; i < shapes; i++)
        weft_free(x[i]);
    weft_free(eager.w);
    weft_scope_end(scope);
}

static void measure_all_turns(const char *name)
{
    static const int shapes[] = {2, 8, 64, MOST_SHAPES};
    for (int frozen = 0; frozen < 2; frozen++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            measure_turns(name, shapes[i], frozen);
}

/* -- plans ---------------------------------------------------------------------------------------------------- */

static wf_val append(wf_fn *f, wf_op op, const wf_attr *a, int n, wf_val x, wf_val y, wf_val z)
{
    wf_val src[3] = {x, y, z}, dst[WF_MAX_DST];
    wf_why why;
    if (wf_fn_append(f, op, a, n, src, dst, NULL, &why))
        bench_die(why.rule);
    return dst[0];
}

/* Blocks of a norm, a product and a few elementwise rows, until there are `size` instructions. */
static wf_fn *blocks(uint32_t size)
{
    wf_fn *f = wf_fn_new("blocks");
    const int64_t dims[3] = {2, 2, 4}, one = 1;
    const double eps = 1e-5;
    wf_val x = wf_fn_input(f, &(wf_type){WEFT_F32, 2, {4, 4}});
    wf_val w = wf_fn_input(f, &(wf_type){WEFT_F32, 2, {4, 4}});
    wf_val b = wf_fn_input(f, &(wf_type){WEFT_F32, 1, {4}});
    while (f->n < size) {
        wf_attr norm = {.ints = &one, .n_ints = 1, .flt = &eps, .n_flt = 1};
        wf_attr shape = {.dyn = dims, .n_dyn = 3}, back = {.dyn = (int64_t[]){4, 4}, .n_dyn = 2};
        wf_val y = append(f, WF_OP_LAYER_NORM, &norm, 3, x, b, b);
        y = append(f, WF_OP_MATMUL, NULL, 2, y, w, 0);
        y = append(f, WF_OP_RESHAPE, &shape, 1, y, 0, 0);
        y = append(f, WF_OP_GELU, NULL, 1, append(f, WF_OP_ADD, NULL, 2, y, b, 0), 0, 0);
        y = append(f, WF_OP_RESHAPE, &back, 1, y, 0, 0);
        y = append(f, WF_OP_MUL, NULL, 2, y, wf_fn_scalar(f, 2, wf_slot_bits(2, 0.5)), 0);
        x = append(f, WF_OP_ADD, NULL, 2, x, y, 0);
    }
    wf_fn_output(f, x);
    return f;
}

typedef struct planning {
    wf_fn *f;
    wf_plan *p;
    wf_view in[3];
} planning;

static void run_build(void *arg)
{
    planning *j = arg;
    wf_why why;
    wf_plan *p = wf_plan_build(j->f, &(wf_plan_opts){.flags = WF_PLAN_TIER0}, &why);
    if (!p)
        bench_die(why.rule);
    wf_plan_release(p);
}

static void run_plan(void *arg)
{
    planning *j = arg;
    wf_why why;
    wf_view out = {.data = NULL};
    if (wf_plan_run(j->p, &(wf_plan_args){.fn = j->f, .in = j->in, .out = &out}, &why))
        bench_die(why.rule);
    wf_free(out.data, 64);
}

static void measure_plans(bool build)
{
    static float data[3][16];
    weft_set_num_threads(1);
    for (uint32_t n = 10; n <= 100000; n *= 10) {
        planning j = {.f = blocks(n)};
        wf_why why;
        for (int i = 0; i < 3; i++)
            j.in[i] = (wf_view){.data = data[i],
                                .dtype = WEFT_F32,
                                .rank = i < 2 ? 2 : 1,
                                .dims = {4, 4},
                                .strides = {i < 2 ? 4 : 1, 1}};
        j.p = wf_plan_build(j.f, &(wf_plan_opts){.flags = WF_PLAN_TIER0 | WF_PLAN_PLAIN}, &why);
        if (!j.p)
            bench_die(why.rule);
        wf_plan_info info;
        wf_plan_get_info(j.p, &info);
        bench_side side = {.run = build ? run_build : run_plan, .arg = &j};
        bench_race(&side, 1, &(bench_plan){.threads = 1, .seconds = 3});
        char size[16];
        snprintf(size, sizeof size, "%u", n);
        bench_open("fuse", build ? "plan_build" : "plan_run", size, "f32", 1);
        if (build) {
            bench_number("ns_per_ins", side.median * 1e9 / j.f->n);
            bench_number("target_ns_per_ins", 1000);
        } else {
            bench_number("ns_per_step", side.median * 1e9 / info.steps);
        }
        bench_close();
        wf_plan_release(j.p);
        wf_fn_free(j.f);
    }
}

int main(int argc, char **argv)
{
    const int only = argc > 2 ? atoi(argv[2]) : 0;
    if (argc < 2 || !*argv[1] || strcmp(argv[1], "plan_build") == 0)
        measure_plans(true);
    if (argc < 2 || !*argv[1] || strcmp(argv[1], "plan_run") == 0)
        measure_plans(false);
    for (int i = 0; i < 2 && only <= 1; i++) {
        const char *turn = i ? "turns_matmul" : "turns_softmax";
        if (argc < 2 || !*argv[1] || strcmp(argv[1], turn) == 0)
            measure_all_turns(turn);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 1 && *argv[1] && strcmp(argv[1], cases[i].name) != 0)
            continue;
        const double per_byte = cases[i].tier0 > 0 ? arithmetic(&cases[i]) : 0;
        for (int large = 0; large < 2; large++)
            for (int threads = 1; threads <= 2; threads++)
                if ((cases[i].tier0 > 0 || large + threads == 1) && (only == 0 || only == threads))
                    measure(&cases[i], per_byte, large != 0, threads);
    }
    return 0;
}
