/*
 * bench/bench_gpu.c -- a GPU: copy bandwidth first, then kernels as parts of it, launches, products, a training step.
 *
 *   bench_gpu [--smoke] [--trace FILE] [case]
 *
 * Cases: copy kernels launch matmul ahead conv attention train. A row takes about half a second, and not much more on a slow
 * device: fewer calls, then fewer rounds.
 *
 * Times are the device's, between two events around a batch of calls; "host_us" is what the calling thread spent queueing.
 * "part_ratio" is the share of the measured copy bandwidth, by the bytes that the case must read and write; "ahead_ratio" how often what
 * the device does takes as long as queueing it; "driver_allocs" and "waits" are of one call after the warm-up. Rows of
 * bench/peers/gpu.py have the same names, so that they stand beside these in the table (script/bench_table.awk), which
 * says where PyTorch is faster by over 3 %. Without a GPU it says so and does nothing. --smoke: no figures worth
 * anything, every case once on a few elements, for tests. --trace: the profile of the case "ahead", four calls with ranges
 * "step", for script/timeline.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/support/bench.h"
#include "weft/cuda.h"
#include "weft/jit.h"
#include "weft/profile.h"
#include "weft/weft.h"

enum { ROUNDS = 11, WARM_UP = 3 };

static double copy_gbps; /* of the first case */
static bool smoke;
static const char *trace;     /* --trace */
static double row_us = 0.5e6; /* what a row may take on the device, about */

static double host_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

typedef void (*body)(void *arg);

/* `calls` calls: microseconds between two events around them; of the thread that queues them in *queued. */
static double time_batch(body run, void *arg, int calls, double *queued)
{
    static weft_event *begin, *end;
    if (!begin)
        begin = weft_event_new(WEFT_CUDA(0)), end = weft_event_new(WEFT_CUDA(0));
    double ms = 0, start = host_us();
    weft_event_record(begin);
    for (int i = 0; i < calls; i++) {
        weft_scope s = weft_scope_begin();
        run(arg);
        weft_scope_end(s);
    }
    weft_event_record(end);
    *queued = host_us() - start;
    if (weft_event_elapsed(begin, end, &ms) != WEFT_OK)
        bench_die(weft_last_error());
    return ms * 1e3;
}

/* Medians per call, in microseconds: of the device, and of the thread that queues. */
static double time_calls(body run, void *arg, int calls, double *queueing)
{
    double device[ROUNDS], host[ROUNDS], queued, once = 0;
    for (int i = 0; i < 2; i++) /* the first makes the kernels */
        once = time_batch(run, arg, 1, &queued);
    const double fit = row_us / (ROUNDS + WARM_UP) / (once > 1 ? once : 1);
    calls = smoke || fit < 1 ? 1 : fit < calls ? (int)fit : calls;
    const double most = row_us / (once * calls > 1 ? once * calls : 1) - WARM_UP;
    const int rounds = smoke ? 1 : most < 3 ? 3 : most < ROUNDS ? (int)most : ROUNDS;
    for (int r = -WARM_UP; r < rounds; r++) {
        const double us = time_batch(run, arg, calls, &queued);
        if (r >= 0) {
            device[r] = us / calls;
            host[r] = queued / calls;
        }
    }
    *queueing = bench_median(host, rounds);
    return bench_median(device, rounds);
}

static weft_tensor check(weft_tensor t)
{
    if (!weft_ok(t))
        bench_die(weft_error_text(t));
    return t;
}

static weft_tensor fill_shape(weft_shape shape, weft_dtype dtype)
{
    return weft_keep(check(weft_cast(weft_randn(shape), dtype)));
}
static weft_tensor fill(int64_t rows, int64_t columns, weft_dtype dtype)
{
    return fill_shape(weft_shape(rows, columns), dtype);
}

static void open_row(const char *what, const char *size, weft_dtype dtype, double us,
                     double queueing)
{
    bench_open("gpu", what, size, weft_dtype_name(dtype), 0);
    bench_text("clock", "device");
    bench_number("us", us);
    bench_number("host_us", queueing);
}

/* bytes: that the case must move; 0: not told. */
static void report(const char *what, const char *size, weft_dtype dtype, double us, double queueing,
                   double bytes, bool bound_by_arithmetic)
{
    open_row(what, size, dtype, us, queueing);
    if (bytes > 0) {
        bench_number("gbps", bytes / us * 1e-3);
        if (copy_gbps > 0) {
            bench_number("part_ratio", bytes / us * 1e-3 / copy_gbps);
            if (!bound_by_arithmetic)
                bench_number("target_part_ratio", 0.9);
        }
    }
    bench_close();
}

static void report_flops(const char *what, const char *size, weft_dtype dtype, double us,
                         double queueing, double flops)
{
    open_row(what, size, dtype, us, queueing);
    bench_number("tflops", flops / us * 1e-6);
    if (strcmp(what, "matmul") == 0)
        bench_number("target_times_torch", 0.97);
    bench_close();
}

/* -- kernels ------------------------------------------------------------------------------------------------------- */

enum { LAUNCHES = 32 };

typedef struct operands {
    weft_tensor x, y, row;
    weft_jit *chain, *gelus;
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
static void scale_rows(void *arg)
{
    operands *o = arg;
    check(weft_mul(o->x, weft_narrow(o->x, 1, 0, 1)));
}
static void call(weft_jit *j, operands *o)
{
    weft_tensor in[2] = {o->x, o->row}, out;
    if (weft_jit_call(j, in, 2, &out, 1) != WEFT_OK)
        bench_die(weft_last_error());
}
static void chained(void *arg)
{
    call(((operands *)arg)->chain, arg);
}
static void chained_gelus(void *arg)
{
    call(((operands *)arg)->gelus, arg);
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
static void running_sums(void *arg)
{
    operands *o = arg;
    check(weft_cumsum(o->x, 1));
}
static void running_columns(void *arg)
{
    operands *o = arg;
    check(weft_cumsum(o->x, 0));
}
static void running_sum(void *arg) /* of 2^20 elements, or all: one line */
{
    operands *o = arg;
    const int64_t rows = weft_dim(o->x, 0), columns = weft_dim(o->x, 1);
    weft_tensor part = weft_narrow(o->x, 0, 0, rows < 1024 ? rows : 1024);
    check(weft_cumsum(weft_reshape(part, weft_shape(weft_dim(part, 0) * columns)), 0));
}
static void largest(void *arg)
{
    operands *o = arg;
    check(weft_argmax(weft_flatten(o->x, 0, -1)));
}
static void largest_of_rows(void *arg)
{
    operands *o = arg;
    check(weft_argmax(o->x, .axes = weft_axes(1)));
}
static void largest_of_columns(void *arg)
{
    operands *o = arg;
    check(weft_argmax(o->x, .axes = weft_axes(0)));
}
static void narrow(void *arg)
{
    operands *o = arg;
    check(weft_cast(o->x, WEFT_BF16));
}
static void widen(void *arg)
{
    operands *o = arg;
    check(weft_cast(o->x, WEFT_F32));
}

static weft_status chain_of(weft_tensor (*last)(weft_tensor), const weft_tensor *in,
                            weft_tensor *out)
{
    weft_tensor x = in[0];
    for (int i = 0; i < 4; i++)
        x = last(weft_add(weft_mul(x, in[1]), weft_f(0.1)));
    out[0] = x;
    return weft_error_status(x);
}
static weft_tensor last_relu(weft_tensor x)
{
    return weft_relu(x);
}
static weft_tensor last_gelu(weft_tensor x)
{
    return weft_gelu(x);
}
static weft_status chain(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    return chain_of(last_relu, in, out);
}
static weft_status gelus(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    return chain_of(last_gelu, in, out);
}

/* Which operands a kernel is timed with: of types, and matrices whose extents are no multiples of 4. */
enum { F32 = 1, BF16 = 2, U8 = 4, ODD = 8 };
static const struct {
    const char *name;
    body run;
    double moved; /* bytes per byte of x */
    int with;
    bool bound_by_arithmetic;
} kernels[] = {{"add", add, 3, F32 | BF16 | ODD, false},
               {"times a column", scale_rows, 2, F32 | BF16 | ODD, false},
               {"chain of 12, traced", chained, 2, F32 | BF16 | ODD, false},
               {"chain with 4 gelus, traced", chained_gelus, 2, F32, true},
               {"softmax", softmax, 2, F32 | BF16 | ODD, false},
               {"layer_norm", layer_norm, 2, F32 | BF16 | ODD, false},
               {"sum, rows", sum_rows, 1, F32 | BF16 | ODD, false},
               {"sum, columns", sum_columns, 1, F32 | BF16 | ODD, false},
               {"transpose", transpose, 2, F32 | BF16 | U8 | ODD, false},
               {"cumsum, rows", running_sums, 2, F32 | BF16 | ODD, false},
               {"cumsum, columns", running_columns, 2, F32 | BF16, true}, /* reads x twice */
               {"cumsum, 2^20 elements of a line", running_sum, 0, F32, true},
               {"argmax, all", largest, 1, F32 | BF16, false},
               {"argmax, rows", largest_of_rows, 1, F32 | BF16 | ODD, false},
               {"argmax, columns", largest_of_columns, 1, F32 | BF16, false},
               {"cast to bf16", narrow, 1.5, F32, false},
               {"cast to f32", widen, 3, BF16, false}};

static void run_kernels_on(int64_t rows, int64_t columns, weft_dtype dtype, int kind, bool odd)
{
    double bytes = (double)(rows * columns) * (double)weft_dtype_size(dtype), queueing;
    char size[32];
    if (odd)
        snprintf(size, sizeof size, "%lldx%lld", (long long)rows, (long long)columns);
    else
        bench_size_name(bytes, size, sizeof size);
    operands o = {fill(rows, columns, dtype), fill(rows, columns, dtype), fill(1, columns, dtype),
                  weft_jit_trace(chain, NULL, .frozen = true, .synchronous = true),
                  weft_jit_trace(gelus, NULL, .frozen = true, .synchronous = true)};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (!(kernels[i].with & kind) || (odd && !(kernels[i].with & ODD)))
            continue;
        double us = time_calls(kernels[i].run, &o, 20, &queueing);
        report(kernels[i].name, size, dtype, us, queueing, kernels[i].moved * bytes,
               kernels[i].bound_by_arithmetic);
    }
    weft_jit_free(o.chain);
    weft_jit_free(o.gelus);
    weft_free(o.x);
    weft_free(o.y);
    weft_free(o.row);
}

static void run_kernels(bool all)
{
    int64_t rows = smoke ? 8 : bench_quick() ? 4096 : 65536, columns = smoke ? 64 : 1024;
    double bytes = (double)(rows * columns) * 4, queueing;
    char size[32];
    bench_size_name(bytes, size, sizeof size);
    operands o = {.x = fill(rows, columns, WEFT_F32), .y = fill(rows, columns, WEFT_F32)};
    double us = time_calls(copy, &o, 20, &queueing);
    report("copy", size, WEFT_F32, us, queueing, 2 * bytes, true);
    copy_gbps = 2 * bytes / us * 1e-3;
    weft_free(o.x);
    weft_free(o.y);
    if (!all)
        return;
    run_kernels_on(rows, columns, WEFT_F32, F32, false);
    run_kernels_on(rows, columns, WEFT_BF16, BF16, false);
    run_kernels_on(2 * rows, columns, WEFT_U8, U8, false);
    run_kernels_on(rows - 3, columns - 3, WEFT_F32, F32, true);
    run_kernels_on(rows - 3, columns - 3, WEFT_BF16, BF16, true);
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
    open_row("captured graph of 32 kernels", "4", WEFT_F32, us, queueing);
    bench_number("us_per_kernel", us / (double)LAUNCHES);
    bench_number("launches", (double)(after.launches - before.launches));
    bench_text("captured", stats.captured ? "yes" : "no");
    bench_close();
    weft_jit_free(o->chain);
}

static void run_launches(void)
{
    operands o = {.x = fill(1, 1, WEFT_F32),
                  .y = fill(1, 1, WEFT_F32),
                  .row = fill(1, 1, WEFT_F32),
                  .chain = weft_jit_trace(chain, NULL, .frozen = true, .synchronous = true)};
    double queueing, us = time_calls(add, &o, 1000, &queueing);
    report("add of one element", "4", WEFT_F32, us, queueing, 0, true);
    us = time_calls(chained, &o, 1000, &queueing);
    report("frozen call of one kernel", "4", WEFT_F32, us, queueing, 0, true);
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
        report_flops("matmul", size, types[i], us, queueing, 2 * pow((double)n, 3));
        weft_free(o.x);
        weft_free(o.y);
    }
}

/* -- convolution, attention ---------------------------------------------------------------------------------------- */

/* Operands of a case whose gradients are taken too, and the gradient of its result. */
typedef struct differentiated {
    weft_tensor in[3], gradient;
    weft_tensor (*run)(const weft_tensor *in);
} differentiated;

static weft_tensor convolve(const weft_tensor *in)
{
    return weft_conv2d(in[0], in[1], .padding = weft_shape(1));
}
static weft_tensor attend(const weft_tensor *in)
{
    return weft_scaled_dot_product_attention(in[0], in[1], in[2], .causal = true);
}
static void forward(void *arg)
{
    differentiated *d = arg;
    weft_no_grad_begin();
    check(d->run(d->in));
    weft_no_grad_end();
}
static void forward_backward(void *arg)
{
    differentiated *d = arg;
    for (int i = 0; i < 3; i++)
        if (weft_ok(d->in[i]))
            weft_set_grad(d->in[i], WEFT_NONE);
    if (weft_backward(check(d->run(d->in)), .gradient = d->gradient) != WEFT_OK)
        bench_die(weft_last_error());
}

/* Forward, and with gradients, which is `more` times the arithmetic. Frees the operands. */
static void run_differentiated(differentiated *d, const char *name, const char *size,
                               weft_dtype dtype, double flops, double more)
{
    char both[64];
    double queueing, us = time_calls(forward, d, 10, &queueing);
    report_flops(name, size, dtype, us, queueing, flops);
    for (int i = 0; i < 3; i++)
        if (weft_ok(d->in[i]))
            weft_requires_grad_(d->in[i], true);
    weft_scope s = weft_scope_begin();
    d->gradient = fill_shape(weft_shape_of(check(d->run(d->in))), dtype);
    weft_scope_end(s);
    us = time_calls(forward_backward, d, 10, &queueing);
    snprintf(both, sizeof both, "%s, with gradients", name);
    report_flops(both, size, dtype, us, queueing, more * flops);
    for (int i = 0; i < 3; i++)
        if (weft_ok(d->in[i]))
            weft_free(d->in[i]);
    weft_free(d->gradient);
}

static void run_convolutions(void)
{
    static const int64_t layers[][2] = {{64, 56}, {256, 14}}; /* channels, extent: ResNet's */
    const weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    for (int i = 0; i < 6; i++) {
        const weft_dtype dtype = types[i % 3];
        int64_t n = smoke ? 1 : bench_quick() ? 4 : 32;
        int64_t c = smoke ? 4 : layers[i / 3][0], hw = smoke ? 8 : layers[i / 3][1];
        char size[48];
        snprintf(size, sizeof size, "%lldx%lldx%lldx%lld", (long long)n, (long long)c,
                 (long long)hw, (long long)hw);
        differentiated d = {{fill_shape(weft_shape(n, c, hw, hw), dtype),
                             fill_shape(weft_shape(c, c, 3, 3), dtype), WEFT_NONE},
                            .run = convolve};
        run_differentiated(&d, "convolution 3x3", size, dtype,
                           2.0 * 9 * (double)(n * c * c * hw * hw), 3);
        if (smoke && i == 2)
            break;
    }
}

static void run_attention(void)
{
    const weft_dtype types[] = {WEFT_BF16, WEFT_F16};
    int64_t n = smoke ? 1 : bench_quick() ? 2 : 8, heads = smoke ? 2 : 16;
    int64_t time = smoke ? 16 : bench_quick() ? 256 : 2048, dim = smoke ? 8 : 64;
    char size[48];
    snprintf(size, sizeof size, "%lldx%lldx%lldx%lld", (long long)n, (long long)heads,
             (long long)time, (long long)dim);
    for (int i = 0; i < 2; i++) {
        differentiated d = {.run = attend};
        for (int k = 0; k < 3; k++)
            d.in[k] = fill_shape(weft_shape(n, heads, time, dim), types[i]);
        /* half of the scores are masked; backwards five products for two, one of them again */
        run_differentiated(&d, "attention, causal", size, types[i],
                           2.0 * (double)(n * heads * time * time * dim), 3.5);
    }
}

/* -- a training step ----------------------------------------------------------------------------------------------- */

typedef struct trainer {
    weft_module *m;
    weft_nn_gpt lm;
    int64_t context;
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
static weft_nn_gpt in_halves(const weft_nn_gpt *lm)
{
    weft_nn_gpt h = *lm;
    narrow_(&h.wte.weight);
    narrow_(&h.wpe.weight);
    narrow_(&h.ln_f.weight);
    narrow_(&h.ln_f.bias);
    for (int i = 0; i < h.layers; i++) {
        weft_nn_encoder *b = &h.h[i];
        weft_nn_attention *attn = &b->self_attn;
        weft_tensor *all[] = {&b->norm1.weight,  &b->norm1.bias,     &b->norm2.weight,
                              &b->norm2.bias,    &attn->in_weight,   &attn->in_bias,
                              &attn->out.weight, &attn->out.bias,    &b->linear1.weight,
                              &b->linear1.bias,  &b->linear2.weight, &b->linear2.bias};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            narrow_(all[k]);
    }
    return h;
}

static weft_tensor logits_of(const trainer *t, weft_tensor tokens)
{
    if (!t->halves)
        return weft_nn_gpt_forward(&t->lm, tokens);
    weft_nn_gpt h = in_halves(&t->lm);
    return weft_cast(weft_nn_gpt_forward(&h, tokens), WEFT_F32);
}

static weft_status train_step(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    trainer *t = self;
    (void)in, (void)n, (void)n_out;
    int64_t context = t->context;
    weft_tensor logits = logits_of(t, weft_narrow(t->tokens, 1, 0, context));
    out[0] = weft_cross_entropy(logits, weft_narrow(t->tokens, 1, 1, context));
    weft_status bad = weft_module_zero_grad(t->m);
    bad = bad ? bad : weft_backward(out[0]);
    bad = bad ? bad : weft_module_clip_grad_norm(t->m, 1.0, NULL);
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

static double step_us; /* of the last run_step, on the device */

/* What a call costs, and that a later one asks nothing of the driver. The row is left open. */
static void run_step(body run, void *arg, const char *what, const char *size, const char *dtype)
{
    weft_cuda_counters before, after;
    double queueing, us = time_calls(run, arg, 1, &queueing);
    weft_cuda_get_counters(&before);
    weft_scope s = weft_scope_begin();
    run(arg);
    weft_scope_end(s);
    weft_cuda_get_counters(&after);
    bench_open("gpu", what, size, dtype, 0);
    bench_text("clock", "device");
    bench_number("ms", us * 1e-3);
    bench_number("host_ms", queueing * 1e-3);
    bench_number("ahead_ratio", us / queueing);
    bench_number("target_ahead_ratio", 3);
    bench_number("launches", (double)(after.launches - before.launches));
    bench_number("driver_allocs", (double)(after.driver_allocs - before.driver_allocs));
    bench_number("target_driver_allocs", 0);
    bench_number("waits",
                 (double)(after.waits + after.hidden_waits - before.waits - before.hidden_waits));
    bench_number("target_waits", 0);
    step_us = us;
}

static void run_training(bool halves)
{
    bool quick = smoke || bench_quick();
    trainer t = {.halves = halves,
                 .traced = weft_jit_trace(train_step, &t, .name = "step", .synchronous = true)};
    weft_generator rng = {1, 0};
    t.m = weft_module_new(&rng);
    weft_nn_gpt_args n =
        smoke ? (weft_nn_gpt_args){.vocab = 32, .dim = 16, .heads = 2, .layers = 1, .context = 8}
        : quick
            ? (weft_nn_gpt_args){.vocab = 256, .dim = 64, .heads = 2, .layers = 2, .context = 64}
            : (weft_nn_gpt_args){
                  .vocab = 50257, .dim = 768, .heads = 12, .layers = 12, .context = 1024};
    int64_t batch = quick ? 2 : 8;
    n.layer = &t.lm;
    n.module = t.m;
    n.name = "";
    n.tied = true;
    t.context = n.context;
    if ((weft_nn_gpt_init)(&n) != WEFT_OK)
        bench_die(weft_last_error());
    t.adam = weft_adamw_new(t.m, .weight_decay = 0.1, .decay_min_rank = 2);
    t.tokens = weft_keep(check(weft_randint(weft_shape(batch, n.context + 1), 0, n.vocab)));
    const char *size = quick ? "small" : "124M";
    row_us = 2e6;
    for (int i = 0; i < 2; i++) {
        run_step(i ? traced_step : eager_step, &t, i ? "training step, traced" : "training step",
                 size, halves ? "bf16" : "f32");
        bench_number("tokens_per_s", (double)(batch * n.context) / step_us * 1e6);
        if (i)
            bench_number("target_times_torch.compile", 0.97);
        else
            bench_number("target_times_torch", 0.97);
        bench_close();
    }
    weft_jit_free(t.traced);
    weft_optim_free(t.adam);
    weft_module_free(t.m);
    weft_free(t.tokens);
}

/* -- the host ahead of the device: the first operations of ResNet-50 (He et al. 2015) ------------------------------ */

enum { BLOCKS = 3 };

typedef struct resnet {
    weft_module *m;
    weft_nn_conv2d stem, conv[BLOCKS][3], skip;
    weft_nn_batch_norm2d stem_norm, norm[BLOCKS][3], skip_norm;
    weft_tensor images;
} resnet;

static void add_conv(resnet *r, weft_nn_conv2d *c, weft_nn_batch_norm2d *norm, const char *name,
                     int64_t in, int64_t out, int64_t kernel, int64_t stride)
{
    char of_norm[32];
    snprintf(of_norm, sizeof of_norm, "%s_norm", name);
    weft_nn_conv2d_init(c, r->m, name, in, out, kernel, .stride = stride, .padding = kernel / 2,
                        .no_bias = true);
    weft_nn_batch_norm2d_init(norm, r->m, of_norm, out);
}

static void resnet_init(resnet *r, int64_t batch, int64_t extent)
{
    r->m = weft_module_new(NULL);
    add_conv(r, &r->stem, &r->stem_norm, "stem", 3, 64, 7, 2);
    for (int b = 0; b < BLOCKS; b++)
        for (int i = 0; i < 3; i++) {
            char name[16];
            snprintf(name, sizeof name, "conv_%d_%d", b, i);
            add_conv(r, &r->conv[b][i], &r->norm[b][i], name,
                     i   ? 64
                     : b ? 256
                         : 64,
                     i < 2 ? 64 : 256, i == 1 ? 3 : 1, 1);
        }
    add_conv(r, &r->skip, &r->skip_norm, "skip", 64, 256, 1, 1);
    if (weft_module_status(r->m) != WEFT_OK)
        bench_die(weft_last_error());
    r->images = fill_shape(weft_shape(batch, 3, extent, extent), WEFT_F32);
}

static weft_tensor conv_norm(const weft_nn_conv2d *c, const weft_nn_batch_norm2d *norm,
                             weft_tensor x)
{
    return weft_nn_batch_norm2d_forward(norm, weft_nn_conv2d_forward(c, x));
}

static void first_operations(void *arg)
{
    const resnet *r = arg;
    weft_tensor x = weft_relu(conv_norm(&r->stem, &r->stem_norm, r->images));
    x = weft_max_pool2d(x, .kernel = weft_shape(3), .stride = weft_shape(2),
                        .padding = weft_shape(1));
    for (int b = 0; b < BLOCKS; b++) {
        weft_tensor y = x;
        for (int i = 0; i < 3; i++) {
            y = conv_norm(&r->conv[b][i], &r->norm[b][i], y);
            y = i < 2 ? weft_relu(y) : y;
        }
        x = weft_relu(weft_add(y, b ? x : conv_norm(&r->skip, &r->skip_norm, x)));
    }
    check(x);
}

/* Four calls with ranges "step": script/timeline says what the device does in them, and when it is idle. */
static void write_trace(body run, void *arg)
{
    if (weft_profile_begin(.path = trace) != WEFT_OK)
        bench_die(weft_last_error());
    for (int i = 0; i < 4; i++) {
        weft_profile_range_begin("step");
        weft_scope scope = weft_scope_begin();
        run(arg);
        weft_scope_end(scope);
        weft_profile_range_end();
        weft_synchronize(WEFT_CUDA(0));
    }
    weft_profile_end();
}

static void run_ahead(void)
{
    static resnet r;
    const int64_t batch = smoke ? 1 : 32;
    char size[32];
    snprintf(size, sizeof size, "batch %lld", (long long)batch);
    resnet_init(&r, batch, smoke ? 16 : bench_quick() ? 64 : 224);
    run_step(first_operations, &r, "first operations of ResNet-50", size, "f32");
    bench_close();
    if (trace)
        write_trace(first_operations, &r);
    weft_module_free(r.m);
    weft_free(r.images);
}

int main(int argc, char **argv)
{
    const char *only = "";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0)
            smoke = true;
        else if (strcmp(argv[i], "--trace") == 0 && i + 1 < argc)
            trace = argv[++i];
        else
            only = argv[i];
    }
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
    if (all || strcmp(only, "ahead") == 0)
        run_ahead();
    if (all || strcmp(only, "conv") == 0)
        run_convolutions();
    if (all || strcmp(only, "attention") == 0)
        run_attention();
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
