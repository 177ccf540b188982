/*
 * bench/bench_train.c -- training steps of language models (weft_nn_gpt): time, tokens a second, peak memory,
 * and where the time goes.
 *
 *   bench_train [seconds [model...]]       seconds per measurement, default 8; models: char gpt2-2 gpt2-4 gpt2
 *
 *   {"bench":"train","case":"step","threads":1,"ms":...,"tokens_per_s":...,"peak_mb":...,"live_mb":...,"cpu_ms":...,
 *    "forward_ms":...,"backward_ms":...,"clip_ms":...,"update_ms":...}
 *
 * peak_mb is by how much the resident memory of a process that does nothing else grows, as the peers' is, of traced steps that of
 * the warm-up with compiling; live_mb the most that tensors held at once. Medians over steps after a warm-up; cpu_ms is
 * processor time a step, which other programs disturb less. char is the model of examples/char_lm; gpt2 is GPT-2 124M (Radford
 * et al. 2019) with random weights and as many tokens a step as llm.c's CPU program takes (4 x 64), gpt2-2 and gpt2-4 are that
 * with 2 and 4 layers. bench/peers/train_step.py is the same in PyTorch. The case "step traced" is the same step under
 * weft_jit_trace: first_ms is its first call (recording, planning, tier 0; first_cpu_ms its processor time, compiling beside it
 * included), native_ms when the last of its kernels was native, compile_ms the processor time that took (no disk cache),
 * first_of_eager the first call over an eager step (of the eager case first_ms is the first step, which opens and warms up as
 * much as the first call does). It is timed in turns with the eager step, on the same parameters: eager_ms and eager_cpu_ms are
 * those steps, times_eager and times_eager_cpu how often the traced step fits into the eager one behind it, the median over
 * wall times and over processor times (best: of the least ones). peers_of: the row whose peers it is compared with
 * (script/bench_table.awk). "step frozen" is the same with .frozen: what is left of it is not recorded (replays says how many
 * calls were).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weft/weft.h>

#include "jit/kernels.h"

enum { MAX_STEPS = 2000, TRIED = 30 /* calls in which a plan has settled on a way */ };

typedef struct model {
    const char *name, *prefix; /* prefix: of the case */
    weft_nn_gpt_args n;
    int64_t batch;
} model;

#define GPT2(n)                                                                                    \
    {                                                                                              \
        .vocab = 50257, .dim = 768, .layers = (n), .heads = 12, .context = 64, .tied = true        \
    }
static const model models[] = {
    {"char", "", {.vocab = 256, .dim = 128, .layers = 4, .heads = 4, .context = 128}, 16},
    {"gpt2-2", "gpt2-2 ", GPT2(2), 4},
    {"gpt2-4", "gpt2-4 ", GPT2(4), 4},
    {"gpt2", "gpt2 ", GPT2(12), 4},
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

enum { FORWARD, BACKWARD, CLIP, UPDATE, STEP, STEP_CPU, TRACED, TRACED_CPU, PARTS };
static double times[PARTS][MAX_STEPS];

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* The most that the process has had in memory. */
static double resident_mb(void)
{
    struct rusage used;
    return getrusage(RUSAGE_SELF, &used) ? 0 : (double)used.ru_maxrss / 1e3;
}

typedef struct job {
    const model *of;
    weft_module *m;
    const weft_nn_gpt *net;
    weft_optim *optim;
} job;

static weft_tensor loss_of(const job *k)
{
    const int64_t time = k->of->n.context;
    weft_tensor tokens = weft_randint(weft_shape(k->of->batch, time + 1), 0, k->of->n.vocab);
    weft_tensor logits = weft_nn_gpt_forward(k->net, weft_narrow(tokens, 1, 0, time));
    return weft_cross_entropy(logits, weft_narrow(tokens, 1, 1, time));
}

static bool train_step(const job *k, int i)
{
    double t[5] = {now_ms()}, cpu = cpu_ms();
    weft_scope s = weft_scope_begin();
    weft_tensor loss = loss_of(k);
    t[1] = now_ms();
    bool ok = weft_module_zero_grad(k->m) == WEFT_OK && weft_backward(loss) == WEFT_OK;
    t[2] = now_ms();
    ok = ok && weft_module_clip_grad_norm(k->m, 1, NULL) == WEFT_OK;
    t[3] = now_ms();
    ok = ok && weft_optim_step(k->optim) == WEFT_OK && weft_item_f64(loss) > 0;
    weft_scope_end(s);
    t[4] = now_ms();
    for (int part = 0; part < STEP; part++) {
        times[part][i] = t[part + 1] - t[part];
    }
    times[STEP][i] = t[4] - t[0];
    times[STEP_CPU][i] = cpu_ms() - cpu;
    return ok;
}

/* The step again, as a function that can be traced. */
static weft_status whole_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    const job *k = self;
    weft_tensor loss = loss_of(k);
    out[0] = weft_detach(loss);
    weft_status bad = in || n_in != 0 || n_out != 1 ? WEFT_EINVALID : WEFT_OK;
    bad = bad ? bad : weft_module_zero_grad(k->m);
    bad = bad ? bad : weft_backward(loss);
    bad = bad ? bad : weft_module_clip_grad_norm(k->m, 1, NULL);
    return bad ? bad : weft_optim_step(k->optim);
}

static bool traced_step(weft_jit *traced, int i)
{
    double start = now_ms(), cpu = cpu_ms();
    weft_scope s = weft_scope_begin();
    weft_tensor loss;
    bool ok = weft_jit_call(traced, NULL, 0, &loss, 1) == WEFT_OK && weft_item_f64(loss) > 0;
    weft_scope_end(s);
    times[TRACED][i] = now_ms() - start;
    times[TRACED_CPU][i] = cpu_ms() - cpu;
    return ok;
}

/* What the traced step's kernels cost, and the memory of either. */
typedef struct compile {
    double first_ms, first_cpu_ms, native_ms, ms;
    int64_t kernels, tier0; /* those that stay on the interpreter */
    int64_t replays;
    bool frozen;
    double peak_mb, live_mb;
} compile;

/* n steps. */
static void print(const job *k, int threads, int n, bool traced, const compile *c)
{
    static double eager[MAX_STEPS], eager_cpu[MAX_STEPS];
    memcpy(eager, times[STEP], sizeof eager);
    memcpy(eager_cpu, times[STEP_CPU], sizeof eager_cpu);
    double *wall = traced ? times[TRACED] : eager, *cpu = traced ? times[TRACED_CPU] : eager_cpu;
    /* Of a traced step: how often it fits into the eager one behind it. */
    static double by_turns[2][MAX_STEPS];
    for (int i = 0; i < n; i++) {
        by_turns[0][i] = eager[i] / wall[i];
        by_turns[1][i] = eager_cpu[i] / cpu[i];
    }
    const double ms = median(wall, n), cpu_here = median(cpu, n); /* sorted from here on */
    const double eager_ms = median(eager, n), eager_cpu_ms = median(eager_cpu, n);
    const char *way = !traced ? "" : c->frozen ? " frozen" : " traced";
    printf("{\"bench\":\"train\",\"case\":\"%sstep%s\",\"threads\":%d,\"ms\":%.2f,\"best_ms\":%.2f,"
           "\"cpu_ms\":%.2f,\"best_cpu_ms\":%.2f,\"tokens_per_s\":%.0f,\"peak_mb\":%.1f,"
           "\"live_mb\":%.1f,",
           k->of->prefix, way, threads, ms, wall[0], cpu_here, cpu[0],
           1e3 * (double)(k->of->batch * k->of->n.context) / ms, c->peak_mb, c->live_mb);
    /* The demo's model eager beside PyTorch's, GPT-2 traced beside whatever trains it on a CPU. */
    if (!traced && !*k->of->prefix)
        printf("\"target_times_torch\":1,\"target_peak_of_torch\":1.1,");
    if (traced)
        printf("\"peers_of\":\"%sstep\",", k->of->prefix);
    if (traced && !c->frozen && *k->of->prefix)
        printf("\"first_of_eager\":%.3f,\"target_first_of_eager\":1.2,\"target_compile_ms\":1000,"
               "\"target_times_torch\":1,\"target_times_torch.compile\":1,"
               "\"target_times_llm.c\":1,\"target_peak_of_torch\":1,"
               "\"target_peak_of_torch.compile\":1,",
               c->first_ms / eager_ms);
    if (traced)
        printf("\"first_ms\":%.2f,\"first_cpu_ms\":%.2f,\"native_ms\":%.2f,\"compile_ms\":%.2f,"
               "\"kernels\":%lld,"
               "\"tier0\":%lld,\"replays\":%lld,\"eager_ms\":%.2f,\"eager_cpu_ms\":%.2f,"
               "\"times_eager\":%.3f,\"times_eager_cpu\":%.3f,\"times_eager_best_cpu\":%.3f,",
               c->first_ms, c->first_cpu_ms, c->native_ms, c->ms, (long long)c->kernels,
               (long long)c->tier0, (long long)c->replays, eager_ms, eager_cpu_ms,
               median(by_turns[0], n), median(by_turns[1], n), eager_cpu[0] / cpu[0]);
    else
        printf("\"first_ms\":%.2f,\"first_cpu_ms\":%.2f,\"forward_ms\":%.2f,\"backward_ms\":%.2f,"
               "\"clip_ms\":%.2f,\"update_ms\":%.2f,",
               c->first_ms, c->first_cpu_ms, median(times[FORWARD], n), median(times[BACKWARD], n),
               median(times[CLIP], n), median(times[UPDATE], n));
    printf("\"steps\":%d}\n", n);
    fflush(stdout);
}

/* Steps until kernels are native and every way has been tried, of long ones fewer. */
static bool warm_up(const job *k, weft_jit *traced, double seconds, compile *c)
{
    wf_jitk_stats before, now;
    wf_jitk_get_stats(&before);
    const double start = now_ms();
    bool ok = true, pending = true;
    for (int i = 0; ok && (i < 5 || (traced && pending && i < 50) ||
                           (traced && i < TRIED && now_ms() - start < 2e3 * seconds));
         i++) {
        ok = traced ? traced_step(traced, 0) : train_step(k, 0);
        c->first_ms = i == 0 ? times[traced ? TRACED : STEP][0] : c->first_ms;
        c->first_cpu_ms = i == 0 ? times[traced ? TRACED_CPU : STEP_CPU][0] : c->first_cpu_ms;
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

/* Traced steps, and eager ones in turns with them; of a peak only what the traced ones do. */
static bool take_turns(const job *k, weft_jit *traced, compile *c, int i)
{
    weft_memory_stats mem;
    weft_memory_reset_peak();
    bool ok = traced_step(traced, i);
    weft_memory_get_stats(&mem);
    const double mb = (double)mem.peak_bytes / 1e6;
    c->live_mb = mb > c->live_mb ? mb : c->live_mb;
    return ok && train_step(k, i);
}

/* Eager steps, or traced ones, recorded or frozen. */
enum { EAGER, RECORDED, FROZEN, WAYS };
static bool measure(const model *of, int threads, double seconds, int way)
{
    static weft_nn_gpt net;
    const double idle = resident_mb();
    weft_set_num_threads(threads);
    weft_manual_seed(1);
    weft_module *m = weft_module_new(NULL);
    weft_nn_gpt_args args = of->n;
    args.layer = &net;
    args.module = m;
    args.name = "";
    bool ok = (weft_nn_gpt_init)(&args) == WEFT_OK;
    weft_optim *o = weft_adamw_new(m, 2e-3, .weight_decay = 0.1, .decay_min_rank = 2);
    job k = {of, m, &net, o};
    compile c = {.frozen = way == FROZEN};
    weft_jit *traced = way == EAGER ? NULL
                                    : weft_jit_trace(whole_step, &k, .name = "train_step",
                                                     .frozen = way == FROZEN);
    ok = ok && o && warm_up(&k, traced, seconds, &c);
    c.peak_mb = resident_mb() - idle;
    weft_memory_reset_peak();
    int n = 0;
    for (double end = now_ms() + 1e3 * seconds; ok && n < MAX_STEPS && (n < 5 || now_ms() < end);
         n++)
        ok = traced ? take_turns(&k, traced, &c, n) : train_step(&k, n);
    weft_jit_reason why;
    if (way == FROZEN && ok && weft_jit_reasons(traced, &why, 1) > 0)
        fprintf(stderr, "bench_train: %s\n", why.text);
    if (traced) {
        weft_jit_stats stats;
        weft_jit_get_stats(traced, &stats);
        c.replays = stats.frozen;
    }
    if (!traced) {
        weft_memory_stats mem;
        weft_memory_get_stats(&mem);
        c.live_mb = (double)mem.peak_bytes / 1e6;
        c.peak_mb = resident_mb() - idle;
    }
    if (ok)
        print(&k, threads, n, traced != NULL, &c);
    else
        fprintf(stderr, "bench_train: %s\n", weft_last_error());
    weft_jit_free(traced);
    weft_optim_free(o);
    weft_module_free(m);
    return ok;
}

/* In a process of its own: resident memory only ever grows, and what was compiled before would be found again. */
static bool measure_alone(const model *of, int threads, double seconds, int way)
{
    int status = 1;
    const pid_t child = fork();
    if (child == 0)
        _exit(measure(of, threads, seconds, way) ? 0 : 1);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
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
            for (int way = 0; way < WAYS && ok; way++)
                ok = measure_alone(&models[m], threads, seconds, way);
        }
    return ok ? 0 : 1;
}
