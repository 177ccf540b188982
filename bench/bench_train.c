/*
 * bench/bench_train.c -- the language model's training step (examples/char_lm): time, tokens a second, peak
 * memory, and where the time goes.
 *
 *   {"bench":"train","case":"step","threads":1,"ms":...,"tokens_per_s":...,"peak_mb":...,"cpu_ms":...,"forward_ms":...,
 *    "backward_ms":...,"clip_ms":...,"update_ms":...}
 *
 * Medians over steps after a warm-up; cpu_ms is processor time a step, which other programs disturb less. bench/peers/train_step.py is the same model in PyTorch. Argument: seconds
 * per thread count (default 8).
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "weft/weft.h"

enum { DIM = 128, LAYERS = 4, HEADS = 4, CONTEXT = 128, BATCH = 16, VOCAB = 256, MAX_STEPS = 2000 };

typedef struct block {
    weft_nn_norm ln_1, ln_2;
    weft_nn_attention attn;
    weft_nn_linear fc, proj;
} block;

typedef struct model {
    weft_module *m;
    weft_nn_embedding wte, wpe;
    block h[LAYERS];
    weft_nn_norm ln_f;
    weft_nn_linear head;
} model;

static void init_model(model *l)
{
    weft_module *m = l->m = weft_module_new(NULL);
    weft_nn_embedding_init(&l->wte, m, "wte", VOCAB, DIM);
    weft_nn_embedding_init(&l->wpe, m, "wpe", CONTEXT, DIM);
    for (int i = 0; i < LAYERS; i++) {
        block *b = &l->h[i];
        weft_module_push(m, "h.%d", i);
        weft_nn_layer_norm_init(&b->ln_1, m, "ln_1", DIM);
        weft_nn_attention_init(&b->attn, m, "attn", DIM, HEADS, .causal = true);
        weft_nn_layer_norm_init(&b->ln_2, m, "ln_2", DIM);
        weft_nn_linear_init(&b->fc, m, "fc", DIM, 4 * DIM);
        weft_nn_linear_init(&b->proj, m, "proj", 4 * DIM, DIM);
        weft_module_pop(m);
    }
    weft_nn_layer_norm_init(&l->ln_f, m, "ln_f", DIM);
    weft_nn_linear_init(&l->head, m, "head", DIM, VOCAB, .no_bias = true);
}

static weft_tensor forward(const model *l, weft_tensor tokens)
{
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_add(weft_nn_embedding_forward(&l->wte, tokens), l->wpe.weight);
    for (int i = 0; i < LAYERS; i++) {
        const block *b = &l->h[i];
        x = weft_add(x,
                     weft_nn_attention_forward(&b->attn, weft_nn_layer_norm_forward(&b->ln_1, x)));
        weft_tensor y = weft_nn_linear_forward(&b->fc, weft_nn_layer_norm_forward(&b->ln_2, x));
        x = weft_add(x, weft_nn_linear_forward(&b->proj, weft_gelu(y)));
    }
    x = weft_nn_linear_forward(&l->head, weft_nn_layer_norm_forward(&l->ln_f, x));
    return weft_scope_return(s, x);
}

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

static bool train_step(const model *l, weft_optim *o, int i)
{
    double t[5] = {now_ms()};
    weft_scope s = weft_scope_begin();
    weft_tensor tokens = weft_randint(weft_shape(BATCH, CONTEXT + 1), 0, VOCAB);
    weft_tensor logits = forward(l, weft_narrow(tokens, 1, 0, CONTEXT));
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

static bool measure(int threads, double seconds)
{
    model l;
    weft_set_num_threads(threads);
    weft_manual_seed(1);
    init_model(&l);
    weft_optim *o = weft_adamw_new(l.m, 2e-3, .weight_decay = 0.1, .decay_min_rank = 2);
    bool ok = o != NULL;
    for (int i = 0; i < 3 && ok; i++) {
        ok = train_step(&l, o, 0);
    }
    weft_memory_reset_peak();
    int n = 0;
    clock_t cpu = clock();
    for (double end = now_ms() + 1e3 * seconds; ok && n < MAX_STEPS && (n < 5 || now_ms() < end);
         n++) {
        ok = train_step(&l, o, n);
    }
    double cpu_ms = 1e3 * (double)(clock() - cpu) / CLOCKS_PER_SEC / n;
    if (ok) {
        weft_memory_stats mem;
        weft_memory_get_stats(&mem);
        double ms = median(times[STEP], n);
        printf("{\"bench\":\"train\",\"case\":\"step\",\"threads\":%d,\"ms\":%.2f,\"best_ms\":%.2f,"
               "\"cpu_ms\":%.2f,"
               "\"tokens_per_s\":%.0f,\"peak_mb\":%.1f,\"forward_ms\":%.2f,\"backward_ms\":%.2f,"
               "\"clip_ms\":%.2f,\"update_ms\":%.2f,\"steps\":%d}\n",
               threads, ms, times[STEP][0], cpu_ms, 1e3 * BATCH * CONTEXT / ms,
               (double)mem.peak_bytes / 1e6, median(times[FORWARD], n), median(times[BACKWARD], n),
               median(times[CLIP], n), median(times[UPDATE], n), n);
        fflush(stdout);
    } else {
        fprintf(stderr, "bench_train: %s\n", weft_last_error());
    }
    weft_optim_free(o);
    weft_module_free(l.m);
    return ok;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 8;
    bool ok = true;
    for (int threads = 1; threads <= 2 && ok; threads++) {
        ok = measure(threads, seconds);
    }
    return ok ? 0 : 1;
}
