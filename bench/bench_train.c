/*
 * bench/bench_train.c -- training steps of language models (examples/transformer.h): time, tokens a second, peak memory,
 * and where the time goes.
 *
 *   bench_train [seconds [model...]]       seconds per measurement, default 8; models: char gpt2-2 gpt2-4 gpt2
 *
 *   {"bench":"train","case":"step","threads":1,"ms":...,"tokens_per_s":...,"peak_mb":...,"cpu_ms":...,"forward_ms":...,
 *    "backward_ms":...,"clip_ms":...,"update_ms":...}
 *
 * Medians over steps after a warm-up; cpu_ms is processor time a step, which other programs disturb less. char is the
 * model of examples/char_lm; gpt2 is GPT-2 124M (Radford et al. 2019) with random weights and as many tokens a step
 * as llm.c's CPU program takes (4 x 64), gpt2-2 and gpt2-4 are that with 2 and 4 layers. bench/peers/train_step.py is
 * the same in PyTorch. The case "step traced" is the same step under weft_jit_trace: first_ms is its first call (recording,
 * planning, tier 0), native_ms when the last of its kernels was native, compile_ms the processor time that took (no
 * disk cache), times_eager how often it fits into an eager step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "examples/transformer.h"
#include "jit/kernels.h"

enum { MAX_STEPS = 2000 };

typedef struct model {
    const char *name, *prefix; /* prefix: of the case */
    transformer_sizes n;
    int64_t batch;
} model;

static const model models[] = {
    {"char", "", {.vocab = 256, .dim = 128, .layers = 4, .heads = 4, .context = 128}, 16},
    {"gpt2-2", "gpt2-2 ", {50257, 768, 2, 12, 64, .tied = true}, 4},
    {"gpt2-4", "gpt2-4 ", {50257, 768, 4, 12, 64, .tied = true}, 4},
    {"gpt2", "gpt2 ", {50257, 768, 12, 12, 64, .tied = true}, 4},
};
enum { MODELS = sizeof models / sizeof *models };

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

typedef struct job {
    const model *of;
    transformer *model;
    weft_optim *optim;
} job;

static weft_tensor loss_of(const job *k)
{
    const int64_t time = k->of->n.context;
    weft_tensor tokens = weft_randint(weft_shape(k->of->batch, time + 1), 0, k->of->n.vocab);
    weft_tensor logits = transformer_forward(k->model, weft_narrow(tokens, 1, 0, time));
    return weft_cross_entropy(logits, weft_narrow(tokens, 1, 1, time));
}

static bool train_step(const job *k, int i)
{
    double t[5] = {now_ms()};
    weft_scope s = weft_scope_begin();
    weft_tensor loss = loss_of(k);
    t[1] = now_ms();
    bool ok = weft_module_zero_grad(k->model->m) == WEFT_OK && weft_backward(loss) == WEFT_OK;
    t[2] = now_ms();
    ok = ok && weft_module_clip_grad_norm(k->model->m, 1, NULL) == WEFT_OK;
    t[3] = now_ms();
    ok = ok && weft_optim_step(k->optim) == WEFT_OK && weft_item_f64(loss) > 0;
    weft_scope_end(s);
    t[4] = now_ms();
    for (int part = 0; part < STEP; part++) {
        times[part][i] = t[part + 1] - t[part];
    }
    times[STEP][i] = t[4] - t[0];
    return ok;
}

/* The step again, as a function that can be traced. */
static weft_status whole_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    const job *k = self;
    out[0] = loss_of(k);
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

/* What the traced step's kernels cost. */
typedef struct compile {
    double first_ms, native_ms, ms;
    int64_t kernels, tier0; /* those that stay on the interpreter */
} compile;

static void print(const job *k, int threads, int n, double cpu_ms, const compile *c,
                  double eager_ms)
{
    weft_memory_stats mem;
    weft_memory_get_stats(&mem);
    double ms = median(times[STEP], n);
    printf("{\"bench\":\"train\",\"case\":\"%sstep%s\",\"threads\":%d,\"ms\":%.2f,\"best_ms\":%.2f,"
           "\"cpu_ms\":%.2f,\"tokens_per_s\":%.0f,\"peak_mb\":%.1f,",
           k->of->prefix, c ? " traced" : "", threads, ms, times[STEP][0], cpu_ms,
           1e3 * (double)(k->of->batch * k->of->n.context) / ms, (double)mem.peak_bytes / 1e6);
    if (c)
        printf("\"first_ms\":%.2f,\"native_ms\":%.2f,\"compile_ms\":%.2f,\"kernels\":%lld,"
               "\"tier0\":%lld,"
               "\"times_eager\":%.3f,",
               c->first_ms, c->native_ms, c->ms, (long long)c->kernels, (long long)c->tier0,
               eager_ms / ms);
    else
        printf("\"forward_ms\":%.2f,\"backward_ms\":%.2f,\"clip_ms\":%.2f,\"update_ms\":%.2f,",
               median(times[FORWARD], n), median(times[BACKWARD], n), median(times[CLIP], n),
               median(times[UPDATE], n));
    printf("\"steps\":%d}\n", n);
    fflush(stdout);
}

/* Steps until kernels are native and every way has been tried. */
static bool warm_up(const job *k, weft_jit *traced, compile *c)
{
    wf_jitk_stats before, now;
    wf_jitk_get_stats(&before);
    const double start = now_ms();
    bool ok = true, pending = true;
    for (int i = 0; ok && (i < 5 || (traced && pending && i < 50)); i++) {
        ok = traced ? traced_step(traced, 0) : train_step(k, 0);
        c->first_ms = i == 0 ? times[STEP][0] : c->first_ms;
        wf_jitk_get_stats(&now);
        bool still = now.misses > now.compiled + now.loaded + now.failed;
        c->native_ms = pending && !still ? now_ms() - start : c->native_ms;
        pending = still;
    }
    c->ms = 1e-6 * (double)(now.compile_ns - before.compile_ns);
    c->kernels = now.misses - before.misses;
    c->tier0 = now.failed - before.failed;
    return ok;
}

/* Eager steps, or traced ones where eager_ms > 0. Returns the median, 0 on failure. */
static double measure(const model *of, int threads, double seconds, double eager_ms)
{
    static transformer l;
    weft_set_num_threads(threads);
    weft_manual_seed(1);
    bool ok = transformer_init(&l, of->n, NULL) == WEFT_OK;
    weft_optim *o = weft_adamw_new(l.m, 2e-3, .weight_decay = 0.1, .decay_min_rank = 2);
    job k = {of, &l, o};
    compile c = {0};
    weft_jit *traced = eager_ms > 0 ? weft_jit_trace(whole_step, &k, .name = "train_step") : NULL;
    ok = ok && o && warm_up(&k, traced, &c);
    weft_memory_reset_peak();
    int n = 0;
    clock_t cpu = clock();
    for (double end = now_ms() + 1e3 * seconds; ok && n < MAX_STEPS && (n < 5 || now_ms() < end);
         n++)
        ok = traced ? traced_step(traced, n) : train_step(&k, n);
    double cpu_ms = 1e3 * (double)(clock() - cpu) / CLOCKS_PER_SEC / n;
    if (ok)
        print(&k, threads, n, cpu_ms, traced ? &c : NULL, eager_ms);
    else
        fprintf(stderr, "bench_train: %s\n", weft_last_error());
    weft_jit_free(traced);
    weft_optim_free(o);
    weft_module_free(l.m);
    weft_memory_trim();
    return ok ? median(times[STEP], n) : 0;
}

static bool chosen(const model *m, int argc, char **argv)
{
    bool any = argc <= 2 && (m == models || !getenv("WEFT_BENCH_QUICK"));
    for (int i = 2; i < argc; i++)
        any |= strcmp(argv[i], m->name) == 0;
    return any;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 8;
    bool ok = setenv("WEFT_CACHE_SIZE", "0", 1) == 0;
    for (int m = 0; m < MODELS; m++)
        for (int threads = 1; threads <= 2 && ok && chosen(&models[m], argc, argv); threads++) {
            wf_jitk_trim(); /* the first call compiles again */
            double eager_ms = measure(&models[m], threads, seconds, 0);
            ok = eager_ms > 0 && measure(&models[m], threads, seconds, eager_ms) > 0;
        }
    return ok ? 0 : 1;
}
