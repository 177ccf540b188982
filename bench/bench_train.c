/*
 * bench/bench_train.c -- the language model's training step (examples/char_lm): time, tokens a second, peak
 * memory, and where the time goes.
 *
 *   {"bench":"train","case":"step","threads":1,"ms":...,"tokens_per_s":...,"peak_mb":...,"cpu_ms":...,"forward_ms":...,
 *    "backward_ms":...,"clip_ms":...,"update_ms":...}
 *
 * Medians over steps after a warm-up; cpu_ms is processor time a step, which other programs disturb less. bench/peers/train_step.py is the same model in PyTorch. Argument: seconds
 * per measurement (default 8). The case "step traced" is the same step under weft_jit_trace: first_ms is its first call
 * (recording, planning, tier 0), times_eager how often it fits into an eager step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "examples/transformer.h"

enum { DIM = 128, LAYERS = 4, HEADS = 4, CONTEXT = 128, BATCH = 16, VOCAB = 256, MAX_STEPS = 2000 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

enum { FORWARD, BACKWARD, CLIP, UPDATE, STEP, PARTS };
static double times[PARTS][MAX_STEPS];

static bool train_step(const transformer *l, weft_optim *o, int i)
{
    double t[5] = {now_ms()};
    weft_scope s = weft_scope_begin();
    weft_tensor tokens = weft_randint(weft_shape(BATCH, CONTEXT + 1), 0, VOCAB);
    weft_tensor logits = transformer_forward(l, weft_narrow(tokens, 1, 0, CONTEXT));
    weft_tensor loss = weft_cross_entropy(logits, weft_narrow(tokens, 1, 1, CONTEXT));
    t[1] = now_ms();
    bool ok = weft_module_zero_grad(l->m) == WEFT_OK && weft_backward(loss) == WEFT_OK;
    t[2] = now_ms();
    ok = ok && weft_module_clip_grad_norm(l->m, 1, NULL) == WEFT_OK;
    t[3] = now_ms();
    ok = ok && weft_optim_step(o) == WEFT_OK && weft_item_f64(loss) > 0;
    weft_scope_end(s);
    t[4] = now_ms();
    for (int k = 0; k < STEP; k++) {
        times[k][i] = t[k + 1] - t[k];
    }
    times[STEP][i] = t[4] - t[0];
    return ok;
}

typedef struct job {
    transformer *model;
    weft_optim *optim;
} job;

/* The step again, as a function that can be traced. */
static weft_status whole_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    const job *k = self;
    weft_tensor tokens = weft_randint(weft_shape(BATCH, CONTEXT + 1), 0, VOCAB);
    weft_tensor logits = transformer_forward(k->model, weft_narrow(tokens, 1, 0, CONTEXT));
    out[0] = weft_cross_entropy(logits, weft_narrow(tokens, 1, 1, CONTEXT));
    weft_status bad = in || n_in != 0 || n_out != 1 ? WEFT_EINVALID : WEFT_OK;
    bad = bad ? bad : weft_module_zero_grad(k->model->m);
    bad = bad ? bad : weft_backward(out[0]);
    bad = bad ? bad : weft_module_clip_grad_norm(k->model->m, 1, NULL);
    return bad ? bad : weft_optim_step(k->optim);
}

static bool traced_step(weft_jit *traced, int i)
{
    double start = now_ms();
    weft_scope s = weft_scope_begin();
    weft_tensor loss;
    bool ok = weft_jit_call(traced, NULL, 0, &loss, 1) == WEFT_OK && weft_item_f64(loss) > 0;
    weft_scope_end(s);
    times[STEP][i] = now_ms() - start;
    return ok;
}

static void print(int threads, int n, double cpu_ms, const weft_jit *traced, double first_ms,
                  double eager_ms)
{
    weft_memory_stats mem;
    weft_memory_get_stats(&mem);
    double ms = median(times[STEP], n);
    printf("{\"bench\":\"train\",\"case\":\"%s\",\"threads\":%d,\"ms\":%.2f,\"best_ms\":%.2f,"
           "\"cpu_ms\":%.2f,\"tokens_per_s\":%.0f,\"peak_mb\":%.1f,",
           traced ? "step traced" : "step", threads, ms, times[STEP][0], cpu_ms,
           1e3 * BATCH * CONTEXT / ms, (double)mem.peak_bytes / 1e6);
    if (traced)
        printf("\"first_ms\":%.2f,\"times_eager\":%.3f,", first_ms, eager_ms / ms);
    else
        printf("\"forward_ms\":%.2f,\"backward_ms\":%.2f,\"clip_ms\":%.2f,\"update_ms\":%.2f,",
               median(times[FORWARD], n), median(times[BACKWARD], n), median(times[CLIP], n),
               median(times[UPDATE], n));
    printf("\"steps\":%d}\n", n);
    fflush(stdout);
}

/* Eager steps, or traced ones where eager_ms > 0. Returns the median, 0 on failure. */
static double measure(int threads, double seconds, double eager_ms)
{
    static transformer l;
    weft_set_num_threads(threads);
    weft_manual_seed(1);
    const transformer_sizes sizes = {VOCAB, DIM, LAYERS, HEADS, CONTEXT};
    bool ok = transformer_init(&l, sizes, NULL) == WEFT_OK;
    weft_optim *o = weft_adamw_new(l.m, 2e-3, .weight_decay = 0.1, .decay_min_rank = 2);
    job k = {&l, o};
    weft_jit *traced = eager_ms > 0 ? weft_jit_trace(whole_step, &k, .name = "train_step") : NULL;
    double first = 0;
    ok = ok && o;
    for (int i = 0; i < 5 && ok; i++) {
        ok = traced ? traced_step(traced, 0) : train_step(&l, o, 0);
        first = i == 0 ? times[STEP][0] : first;
    }
    weft_memory_reset_peak();
    int n = 0;
    clock_t cpu = clock();
    for (double end = now_ms() + 1e3 * seconds; ok && n < MAX_STEPS && (n < 5 || now_ms() < end);
         n++)
        ok = traced ? traced_step(traced, n) : train_step(&l, o, n);
    double cpu_ms = 1e3 * (double)(clock() - cpu) / CLOCKS_PER_SEC / n;
    if (ok)
        print(threads, n, cpu_ms, traced, first, eager_ms);
    else
        fprintf(stderr, "bench_train: %s\n", weft_last_error());
    weft_jit_free(traced);
    weft_optim_free(o);
    weft_module_free(l.m);
    return ok ? median(times[STEP], n) : 0;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 8;
    bool ok = true;
    for (int threads = 1; threads <= 2 && ok; threads++) {
        double eager_ms = measure(threads, seconds, 0);
        ok = eager_ms > 0 && measure(threads, seconds, eager_ms) > 0;
    }
    return ok ? 0 : 1;
}
