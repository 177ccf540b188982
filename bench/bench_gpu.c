/*
 * bench/bench_gpu.c -- a GPU: copy bandwidth first, then kernels as parts of it, launches, products, a training step.
 *
 *   bench_gpu [--smoke] [case]      cases: copy kernels launch matmul train
 *
 * Times are the device's, between two events around a batch of calls; "host_us" is what the calling thread spent queueing.
 * "part_ratio" is the share of the measured copy bandwidth, by the bytes that the case must read and write; "ahead_ratio" how often what
 * the device does takes as long as queueing it; "driver_allocs" and "waits" are of one call after the warm-up. Rows of
 * bench/peers/gpu.py have the same names, so that they stand beside these in the table (script/bench_table.awk), which
 * says where PyTorch is faster by over 3 %. Without a GPU it says so and does nothing. --smoke: no figures worth
 * anything, every case once on a few elements, for tests.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/support/bench.h"
#include "examples/transformer.h"
#include "weft/cuda.h"
#include "weft/jit.h"

enum { ROUNDS = 11, WARM_UP = 3 };

static double copy_gbps; /* of the first case */
static bool smoke;

static double host_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

typedef void (*body)(void *arg);

/* Medians per call, in microseconds: of the device, and of the thread that queues. */
static double time_calls(body run, void *arg, int calls, double *queueing)
{
    double device[ROUNDS], host[ROUNDS];
    const int rounds = smoke ? 1 : ROUNDS, warm_up = smoke ? 5 : WARM_UP;
    calls = smoke ? 1 : calls;
    weft_event *begin = weft_event_new(WEFT_CUDA(0)), *end = weft_event_new(WEFT_CUDA(0));
    for (int r = -warm_up; r < rounds; r++) {
        double ms = 0, start = host_us();
        weft_event_record(begin);
        for (int i = 0; i < calls; i++) {
            weft_scope s = weft_scope_begin();
            run(arg);
            weft_scope_end(s);
        }
        weft_event_record(end);
        double queued = host_us() - start;
        if (weft_event_elapsed(begin, end, &ms) != WEFT_OK)
            bench_die(weft_last_error());
        if (r >= 0) {
            device[r] = ms * 1e3 / calls;
            host[r] = queued / calls;
        }
    }
    weft_event_free(begin);
    weft_event_free(end);
    *queueing = bench_median(host, rounds);
    return bench_median(device, rounds);
}

static weft_tensor check(weft_tensor t)
{
    if (!weft_ok(t))
        bench_die(weft_error_text(t));
    return t;
}

static weft_tensor fill(int64_t rows, int64_t columns, weft_dtype dtype)
{
    weft_tensor t = weft_randn(weft_shape(rows, columns));
    return weft_keep(check(weft_cast(t, dtype)));
}

static void report(const char *what, const char *size, const char *dtype, double us,
                   double queueing, double bytes)
{
    bench_open("gpu", what, size, dtype, 0);
    bench_text("clock", "device");
    bench_number("us", us);
    bench_number("host_us", queueing);
    if (bytes > 0) {
        bench_number("gbps", bytes / us * 1e-3);
        if (copy_gbps > 0) {
            bench_number("part_ratio", bytes / us * 1e-3 / copy_gbps);
            bench_number("target_part_ratio", 0.9);
        }
    }
    bench_close();
}

/* -- kernels ------------------------------------------------------------------------------------------------------- */

enum { LAUNCHES = 32 };

typedef struct operands {
    weft_tensor x, y, row;
    weft_jit *chain;
} operands;

static void copy(void *arg)
{
    operands *o = arg;
    weft_copy_(o->y, o->x);
}
static void add(void *arg)
{
    operands *o = arg;
    check(weft_add(o->x, o->y));
}
static void chained(void *arg)
{
    operands *o = arg;
    weft_tensor in[2] = {o->x, o->row}, out;
    if (weft_jit_call(o->chain, in, 2, &out, 1) != WEFT_OK)
        bench_die(weft_last_error());
}
static void softmax(void *arg)
{
    operands *o = arg;
    check(weft_softmax(o->x, -1));
}
static void layer_norm(void *arg)
{
    operands *o = arg;
    check(weft_layer_norm(o->x));
}
static void sum_rows(void *arg)
{
    operands *o = arg;
    check(weft_sum(o->x, .axes = weft_axes(1)));
}
static void sum_columns(void *arg)
{
    operands *o = arg;
    check(weft_sum(o->x, .axes = weft_axes(0)));
}
static void transpose(void *arg)
{
    operands *o = arg;
    check(weft_contiguous(weft_transpose(o->x, 0, 1)));
}
static void narrow(void *arg)
{
    operands *o = arg;
    check(weft_cast(o->x, WEFT_BF16));
}

static weft_status chain(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    weft_tensor x = in[0];
    for (int i = 0; i < 4; i++)
        x = weft_gelu(weft_add(weft_mul(x, in[1]), weft_f(0.1)));
    out[0] = x;
    return weft_error_status(x);
}

/* moved: bytes per byte of x. */
static const struct {
    const char *name;
    body run;
    double moved;
} kernels[] = {{"add", add, 3},
               {"chain of 12, traced", chained, 2},
               {"softmax", softmax, 2},
               {"layer_norm", layer_norm, 2},
               {"sum, rows", sum_rows, 1},
               {"sum, columns", sum_columns, 1},
               {"transpose", transpose, 2},
               {"cast to bf16", narrow, 1.5}};

static void run_kernels(bool all)
{
    int64_t rows = smoke ? 8 : bench_quick() ? 4096 : 65536, columns = smoke ? 64 : 1024;
    double bytes = (double)(rows * columns) * 4, queueing;
    char size[32];
    bench_size_name(bytes, size, sizeof size);
    operands o = {fill(rows, columns, WEFT_F32), fill(rows, columns, WEFT_F32),
                  fill(1, columns, WEFT_F32),
                  weft_jit_trace(chain, NULL, .frozen = true, .synchronous = true)};
    double us = time_calls(copy, &o, 20, &queueing);
    report("copy", size, "f32", us, queueing, 2 * bytes);
    copy_gbps = 2 * bytes / us * 1e-3;
    for (size_t i = 0; all && i < sizeof kernels / sizeof *kernels; i++) {
        us = time_calls(kernels[i].run, &o, 20, &queueing);
        report(kernels[i].name, size, "f32", us, queueing, kernels[i].moved * bytes);
    }
    weft_jit_free(o.chain);
    weft_free(o.x);
    weft_free(o.y);
    weft_free(o.row);
}

static weft_status sums(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    out[0] = in[0];
    for (int i = 0; i < LAUNCHES; i++)
        out[0] = weft_add(out[0], in[1]);
    return weft_error_status(out[0]);
}

/* As many launches op by op and as a captured graph: what one of them costs either way. */
static void run_captured(operands *o)
{
    weft_cuda_counters before, after;
    weft_jit_stats stats;
    o->chain = weft_jit_trace(sums, NULL, .frozen = true, .synchronous = true, .no_fuse = true);
    double queueing, us = time_calls(chained, o, 200, &queueing);
    weft_cuda_get_counters(&before);
    weft_scope s = weft_scope_begin();
    chained(o);
    weft_scope_end(s);
    weft_cuda_get_counters(&after);
    weft_jit_get_stats(o->chain, &stats);
    bench_open("gpu", "captured graph of 32 kernels", "4", "f32", 0);
    bench_text("clock", "device");
    bench_number("us", us);
    bench_number("host_us", queueing);
    bench_number("us_per_kernel", us / (double)LAUNCHES);
    bench_number("launches", (double)(after.launches - before.launches));
    bench_text("captured", stats.captured ? "yes" : "no");
    bench_close();
    weft_jit_free(o->chain);
}

static void run_launches(void)
{
    operands o = {fill(1, 1, WEFT_F32), fill(1, 1, WEFT_F32), fill(1, 1, WEFT_F32),
                  weft_jit_trace(chain, NULL, .frozen = true, .synchronous = true)};
    double queueing, us = time_calls(add, &o, 1000, &queueing);
    report("add of one element", "4", "f32", us, queueing, 0);
    us = time_calls(chained, &o, 1000, &queueing);
    report("frozen call of one kernel", "4", "f32", us, queueing, 0);
    weft_jit_free(o.chain);
    run_captured(&o);
    weft_free(o.x);
    weft_free(o.y);
    weft_free(o.row);
}

/* -- products ------------------------------------------------------------------------------------------------------ */

static void product(void *arg)
{
    operands *o = arg;
    check(weft_matmul(o->x, o->y));
}

static void run_products(void)
{
    const weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    for (int i = 0; i < 3; i++) {
        int64_t n = smoke ? 32 : bench_quick() ? 512 : types[i] == WEFT_F32 ? 4096 : 8192;
        operands o = {.x = fill(n, n, types[i]), .y = fill(n, n, types[i])};
        char size[32];
        snprintf(size, sizeof size, "%lld", (long long)n);
        double queueing, us = time_calls(product, &o, 5, &queueing);
        bench_open("gpu", "matmul", size, weft_dtype_name(types[i]), 0);
        bench_text("clock", "device");
        bench_number("us", us);
        bench_number("host_us", queueing);
        bench_number("tflops", 2 * pow((double)n, 3) / us * 1e-6);
        bench_close();
        weft_free(o.x);
        weft_free(o.y);
    }
}

/* -- a training step ----------------------------------------------------------------------------------------------- */

typedef struct trainer {
    transformer lm;
    weft_optim *adam;
    weft_tensor tokens; /* [batch, context + 1] */
    weft_jit *traced;
    bool
        halves; /* activations, products and what they read of the parameters are bf16; the loss, the parameters and the optimiser f32 */
} trainer;

static void narrow_(weft_tensor *t)
{
    *t = check(weft_cast(*t, WEFT_BF16));
}

/* The model on its parameters as bf16, of the open scope; gradients come back to the f32 ones. */
static transformer in_halves(const transformer *lm)
{
    transformer h = *lm;
    narrow_(&h.wte.weight);
    narrow_(&h.wpe.weight);
    narrow_(&h.ln_f.weight);
    narrow_(&h.ln_f.bias);
    for (int i = 0; i < h.n.layers; i++) {
        transformer_block *b = &h.h[i];
        weft_tensor *all[] = {&b->ln_1.weight,     &b->ln_1.bias,      &b->ln_2.weight,
                              &b->ln_2.bias,       &b->attn.in_weight, &b->attn.in_bias,
                              &b->attn.out.weight, &b->attn.out.bias,  &b->fc.weight,
                              &b->fc.bias,         &b->proj.weight,    &b->proj.bias};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            narrow_(all[k]);
    }
    return h;
}

static weft_tensor logits_of(const trainer *t, weft_tensor tokens)
{
    if (!t->halves)
        return transformer_forward(&t->lm, tokens);
    transformer h = in_halves(&t->lm);
    return weft_cast(transformer_forward(&h, tokens), WEFT_F32);
}

static weft_status train_step(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    trainer *t = self;
    (void)in, (void)n, (void)n_out;
    int64_t context = t->lm.n.context;
    weft_tensor logits = logits_of(t, weft_narrow(t->tokens, 1, 0, context));
    out[0] = weft_cross_entropy(logits, weft_narrow(t->tokens, 1, 1, context));
    weft_status bad = weft_module_zero_grad(t->lm.m);
    bad = bad ? bad : weft_backward(out[0]);
    bad = bad ? bad : weft_module_clip_grad_norm(t->lm.m, 1.0, NULL);
    return bad ? bad : weft_optim_step(t->adam);
}

static void eager_step(void *arg)
{
    weft_tensor loss;
    if (train_step(arg, NULL, 0, &loss, 1) != WEFT_OK)
        bench_die(weft_last_error());
}

static void traced_step(void *arg)
{
    trainer *t = arg;
    weft_tensor loss;
    if (weft_jit_call(t->traced, NULL, 0, &loss, 1) != WEFT_OK)
        bench_die(weft_last_error());
}

static void run_step(trainer *t, const char *what, const char *size, int64_t tokens, body run)
{
    weft_cuda_counters before, after;
    double queueing, us = time_calls(run, t, 1, &queueing);
    weft_cuda_get_counters(&before);
    weft_scope s = weft_scope_begin();
    run(t);
    weft_scope_end(s);
    weft_cuda_get_counters(&after);
    bench_open("gpu", what, size, t->halves ? "bf16" : "f32", 0);
    bench_text("clock", "device");
    bench_number("ms", us * 1e-3);
    bench_number("host_ms", queueing * 1e-3);
    bench_number("ahead_ratio", us / queueing);
    bench_number("target_ahead_ratio", 3);
    bench_number("tokens_per_s", (double)tokens / us * 1e6);
    bench_number("launches", (double)(after.launches - before.launches));
    bench_number("driver_allocs", (double)(after.driver_allocs - before.driver_allocs));
    bench_number("target_driver_allocs", 0);
    bench_number("waits",
                 (double)(after.waits + after.hidden_waits - before.waits - before.hidden_waits));
    bench_number("target_waits", 0);
    bench_close();
}

static void run_training(bool halves)
{
    bool quick = smoke || bench_quick();
    transformer_sizes n = quick ? (transformer_sizes){256, 64, 2, 2, 64, .tied = true}
                                : (transformer_sizes){50257, 768, 12, 12, 1024, .tied = true};
    int64_t batch = quick ? 2 : 8;
    if (smoke)
        n = (transformer_sizes){32, 16, 1, 2, 8, .tied = true};
    trainer t = {.halves = halves,
                 .traced = weft_jit_trace(train_step, &t, .name = "step", .synchronous = true)};
    weft_generator rng = {1, 0};
    if (transformer_init(&t.lm, n, &rng) != WEFT_OK)
        bench_die(weft_last_error());
    t.adam = weft_adamw_new(t.lm.m, .weight_decay = 0.1, .decay_min_rank = 2);
    t.tokens = weft_keep(check(weft_randint(weft_shape(batch, n.context + 1), 0, n.vocab)));
    const char *size = quick ? "small" : "124M";
    run_step(&t, "training step", size, batch * n.context, eager_step);
    run_step(&t, "training step, traced", size, batch * n.context, traced_step);
    weft_jit_free(t.traced);
    weft_optim_free(t.adam);
    weft_module_free(t.lm.m);
    weft_free(t.tokens);
}

int main(int argc, char **argv)
{
    smoke = argc > 1 && strcmp(argv[1], "--smoke") == 0;
    const char *only = argc > 1 + smoke ? argv[1 + smoke] : "";
    const char *missing = weft_cuda_missing(WEFT_CUDA(0));
    if (*missing) {
        fprintf(stderr, "bench_gpu: nothing is timed: %s\n", missing);
        return 0;
    }
    weft_set_default_device(WEFT_CUDA(0));
    bool all = !*only;
    if (all || strcmp(only, "kernels") == 0 || strcmp(only, "copy") == 0)
        run_kernels(strcmp(only, "copy") != 0);
    if (all || strcmp(only, "launch") == 0)
        run_launches();
    if (all || strcmp(only, "matmul") == 0)
        run_products();
    if (all || strcmp(only, "train") == 0)
        run_training(false), run_training(true);
    weft_device_fallback f[64];
    int n = weft_device_fallbacks(f, 64);
    for (int i = 0; i < n && i < 64; i++)
        fprintf(stderr, "bench_gpu: %s ran on the CPU %lld times\n", f[i].op,
                (long long)f[i].count);
    weft_cuda_counters c;
    weft_cuda_get_counters(&c);
    if (c.refused)
        fprintf(stderr,
                "bench_gpu: cuBLASLt or cuDNN had nothing for %lld shapes: weft's own kernels did "
                "them\n",
                (long long)c.refused);
    return 0;
}
