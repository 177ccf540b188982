/*
 * bench/peers/llmc_step.c -- the training steps of GPT-2's shape (bench/bench_train.c) in llm.c.
 *
 *   llmc_step seconds layers
 *
 * Built by script/bench from a copy of llm.c (https://github.com/karpathy/llm.c, MIT) in $WEFT_LLMC, whose train_gpt2.c
 * this includes, with llm.c's own flags. Random weights, random tokens, 4 x 64 a step; the vocabulary is padded to 50304 as llm.c
 * does; no gradient clipping, which llm.c's CPU program has not. One JSON line of the form of bench_train's, threads as OMP_NUM_THREADS says.
 */
#define TESTING /* leaves out main and the samplers */
#include "train_gpt2.c"

#include <sys/resource.h>

enum { VOCABULARY = 50257, BATCH = 4, TIME = 64, MOST_STEPS = 1000 };

static double now_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t state = 1;
static float uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / 16777216.0f;
}

/* As gpt2_build_from_checkpoint, without a file. */
static void build(GPT2 *model, int layers)
{
    *model = (GPT2){.mean_loss = -1.0f};
    model->config = (GPT2Config){1024, VOCABULARY, 50304, layers, 12, 768};
    fill_in_parameter_sizes(model->param_sizes, model->config);
    for (size_t i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        model->num_parameters += model->param_sizes[i];
    }
    model->params_memory = malloc_and_point_parameters(&model->params, model->param_sizes);
    for (size_t i = 0; i < model->num_parameters; i++) {
        model->params_memory[i] = 0.08f * (uniform() - 0.5f);
    }
}

int main(int argc, char **argv)
{
    static double ms[MOST_STEPS];
    static int inputs[BATCH * TIME], targets[BATCH * TIME];
    const double seconds = argc > 1 ? atof(argv[1]) : 8;
    const int layers = argc > 2 ? atoi(argv[2]) : 12;
    const char *threads = getenv("OMP_NUM_THREADS");
    GPT2 model;
    build(&model, layers);
    double end = 0, first = 0, cpu = 0;
    int n = 0;
    for (int step = 1; n < MOST_STEPS && (end == 0 || n < 5 || now_ms(CLOCK_MONOTONIC) < end);
         step++) {
        for (int i = 0; i < BATCH * TIME; i++) {
            inputs[i] = (int)(uniform() * VOCABULARY);
            targets[i] = (int)(uniform() * VOCABULARY);
        }
        const double start = now_ms(CLOCK_MONOTONIC);
        gpt2_forward(&model, inputs, targets, BATCH, TIME);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.1f, step);
        ms[n++] = now_ms(CLOCK_MONOTONIC) - start;
        first = first > 0 ? first : ms[0];
        if (end == 0 && step == 2) { /* two to warm up */
            n = 0;
            end = now_ms(CLOCK_MONOTONIC) + 1e3 * seconds;
            cpu = now_ms(CLOCK_PROCESS_CPUTIME_ID);
        }
    }
    cpu = (now_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu) / n;
    qsort(ms, (size_t)n, sizeof *ms, by_value);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    char name[32] = "gpt2";
    if (layers != 12) {
        snprintf(name, sizeof name, "gpt2-%d", layers);
    }
    printf("{\"bench\":\"train\",\"case\":\"%s step\",\"peer\":\"llm.c\",\"threads\":%s,"
           "\"ms\":%.2f,\"best_ms\":%.2f,\"cpu_ms\":%.2f,\"first_ms\":%.2f,\"tokens_per_s\":%.0f,"
           "\"peak_mb\":%.1f,\"steps\":%d}\n",
           name, threads ? threads : "1", ms[n / 2], ms[0], cpu, first,
           1e3 * BATCH * TIME / ms[n / 2], (double)used.ru_maxrss / 1e3, n);
    gpt2_free(&model);
    return model.mean_loss > 0 ? 0 : 1;
}
