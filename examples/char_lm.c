/*
 * examples/char_lm.c -- a character-level transformer language model, trained on a text file.
 *
 * Pre-norm blocks of causal self-attention and a GELU MLP (Radford et al. 2019), AdamW, clipped gradients,
 * linear warm-up and cosine decay. The same seed gives the same loss bits at any number of threads; stopping,
 * saving and resuming gives the same bits as not stopping. It uses nothing but the public headers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft/weft.h>

enum { VOCAB = 256, MAX_LAYERS = 24, MAX_TEXT = 1 << 26 };

/* Options: numbers, then texts. */
static int64_t steps = 1200, stop, seed = 1, threads, sample = 600, dim = 128, layers = 4,
               heads = 4, context = 128, batch = 16;
static const char *file = "/usr/share/common-licenses/GPL-3", *save, *resume;

typedef struct block {
    weft_nn_norm ln_1, ln_2;
    weft_nn_attention attn;
    weft_nn_linear fc, proj;
} block;

typedef struct model {
    weft_module *m;
    weft_nn_embedding wte, wpe;
    block h[MAX_LAYERS];
    weft_nn_norm ln_f;
    weft_nn_linear head;
} model;

static void die(const char *what)
{
    fprintf(stderr, "char_lm: %s\n%s\n", what, weft_last_error());
    exit(1);
}

static void init_model(model *l, weft_generator *rng)
{
    weft_module *m = l->m = weft_module_new(rng);
    weft_nn_embedding_init(&l->wte, m, "wte", VOCAB, dim);
    weft_nn_embedding_init(&l->wpe, m, "wpe", context, dim);
    weft_init_normal(l->wpe.weight, 0, 0.02, rng);
    for (int i = 0; i < layers; i++) {
        block *b = &l->h[i];
        weft_module_push(m, "h.%d", i);
        weft_nn_layer_norm_init(&b->ln_1, m, "ln_1", dim);
        weft_nn_attention_init(&b->attn, m, "attn", dim, heads, .causal = true);
        weft_nn_layer_norm_init(&b->ln_2, m, "ln_2", dim);
        weft_nn_linear_init(&b->fc, m, "fc", dim, 4 * dim);
        weft_nn_linear_init(&b->proj, m, "proj", 4 * dim, dim);
        weft_module_pop(m);
    }
    weft_nn_layer_norm_init(&l->ln_f, m, "ln_f", dim);
    weft_nn_linear_init(&l->head, m, "head", dim, VOCAB, .no_bias = true);
    if (weft_init_normal(l->wte.weight, 0, 0.02, rng) || weft_module_status(m)) {
        die("model");
    }
}

/* tokens[batch, time] -> logits[batch, time, vocab] */
static weft_tensor forward(const model *l, weft_tensor tokens)
{
    weft_scope s = weft_scope_begin();
    int64_t time = weft_dim(tokens, 1);
    weft_tensor x = weft_add(weft_nn_embedding_forward(&l->wte, tokens),
                             weft_narrow(l->wpe.weight, 0, 0, time));
    for (int i = 0; i < layers; i++) {
        const block *b = &l->h[i];
        x = weft_add(x,
                     weft_nn_attention_forward(&b->attn, weft_nn_layer_norm_forward(&b->ln_1, x)));
        weft_tensor y = weft_nn_linear_forward(&b->fc, weft_nn_layer_norm_forward(&b->ln_2, x));
        x = weft_add(x, weft_nn_linear_forward(&b->proj, weft_gelu(y)));
    }
    x = weft_nn_linear_forward(&l->head, weft_nn_layer_norm_forward(&l->ln_f, x));
    return weft_scope_return(s, x);
}

/* Random windows of the text: one forward and backward pass; returns the loss. */
static weft_tensor loss_of_batch(const model *l, weft_tensor text, weft_generator *rng)
{
    weft_tensor start =
        weft_randint(weft_shape(batch, 1), 0, weft_numel(text) - context, .generator = rng);
    weft_tensor at = weft_add(start, weft_arange(0, (double)context + 1, 1, WEFT_I64));
    weft_tensor window = weft_index_select(text, 0, at); /* [batch, context + 1] */
    weft_tensor logits = forward(l, weft_narrow(window, 1, 0, context));
    return weft_cross_entropy(logits, weft_narrow(window, 1, 1, context));
}

static void generate(const model *l)
{
    weft_generator rng = {(uint64_t)seed, 1u << 30};
    int64_t *seen = calloc((size_t)(sample + 1), sizeof *seen); /* a NUL starts the text */
    weft_no_grad_begin();
    for (int64_t i = 0; seen && i < sample; i++) {
        weft_scope s = weft_scope_begin();
        int64_t time = i + 1 < context ? i + 1 : context;
        weft_tensor in = weft_from_data(seen + i + 1 - time, weft_shape(1, time), WEFT_I64);
        weft_tensor logits = weft_select(weft_select(forward(l, in), 0, 0), 0, -1);
        weft_tensor up_to = weft_cumsum(weft_softmax(weft_div(logits, weft_f(0.8)), 0), 0);
        weft_tensor below = weft_less_equal(up_to, weft_rand(weft_shape(), .generator = &rng));
        int64_t next = weft_item_i64(weft_sum(below));
        if (next < 0) {
            die("generate");
        }
        seen[i + 1] = next = next < VOCAB ? next : VOCAB - 1;
        putchar((int)next);
        weft_scope_end(s);
    }
    weft_no_grad_end();
    putchar('\n');
    free(seen);
}

/* The file's bytes as an i64 tensor. Prints their unigram entropy: the loss of a model that knows how often
 * each byte occurs and nothing else. */
static weft_tensor read_text(void)
{
    FILE *in = fopen(file, "rb");
    unsigned char *bytes = malloc(MAX_TEXT);
    size_t n = in && bytes ? fread(bytes, 1, MAX_TEXT, in) : 0;
    if (n < (size_t)context + 2) {
        die("the text cannot be read, or is shorter than the context");
    }
    fclose(in);
    double count[VOCAB] = {0}, entropy = 0;
    for (size_t i = 0; i < n; i++) {
        count[bytes[i]]++;
    }
    for (int c = 0; c < VOCAB; c++) {
        entropy -= count[c] > 0 ? count[c] / (double)n * log(count[c] / (double)n) : 0;
    }
    printf("%s: %zu bytes, unigram entropy %.4f nats\n", file, n, entropy);
    weft_tensor text = weft_cast(weft_from_data(bytes, weft_shape((int64_t)n), WEFT_U8), WEFT_I64);
    free(bytes);
    return text;
}

static void parse(int argc, char **argv)
{
    const char *text[] = {"--save", "--resume"}, **texts[] = {&save, &resume};
    const char *number[] = {"--steps", "--stop",   "--seed",  "--threads", "--sample",
                            "--dim",   "--layers", "--heads", "--context", "--batch"};
    int64_t *numbers[] = {&steps, &stop,   &seed,  &threads, &sample,
                          &dim,   &layers, &heads, &context, &batch};
    for (int i = 1; i < argc; i++) {
        int known = argv[i][0] != '-';
        file = known ? argv[i] : file;
        for (int k = 0; k < 10 && !known && i + 1 < argc; k++) {
            if (strcmp(argv[i], number[k]) == 0) {
                *numbers[k] = atoll(argv[++i]), known = 1;
            } else if (k < 2 && strcmp(argv[i], text[k]) == 0) {
                *texts[k] = argv[++i], known = 1;
            }
        }
        if (!known || layers > MAX_LAYERS || batch < 1) {
            die("usage: char_lm [FILE] [--save FILE] [--resume FILE], and with a number: --steps "
                "--stop "
                "--seed --threads --sample --dim --layers --heads --context --batch");
        }
    }
}

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One step of training, at step progress[0]; returns the loss. */
static float train_step(const model *l, weft_optim *adam, weft_tensor text, int64_t *progress)
{
    weft_scope s = weft_scope_begin();
    weft_generator rng = {(uint64_t)progress[1], (uint64_t)progress[2]};
    double lr = weft_lr_cosine(progress[0], steps / 20, steps, 2e-3, 2e-4);
    weft_tensor loss = loss_of_batch(l, text, &rng);
    if (weft_module_zero_grad(l->m) != WEFT_OK || weft_backward(loss) != WEFT_OK ||
        weft_module_clip_grad_norm(l->m, 1.0, NULL) != WEFT_OK ||
        weft_optim_set_lr(adam, lr) != WEFT_OK || weft_optim_step(adam) != WEFT_OK) {
        die("step");
    }
    float value = (float)weft_item_f64(loss);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    progress[0]++;
    progress[2] = (int64_t)rng.offset;
    progress[3] = (int64_t)(((uint64_t)progress[3] ^ bits) * 0x100000001b3u); /* FNV-1a of words */
    weft_scope_end(s);
    return value;
}

static void train(const model *l, weft_optim *adam, weft_tensor text, int64_t *progress)
{
    int64_t last = stop && stop < steps ? stop : steps, done = 0;
    double start = seconds(), shown = start, average = 0;
    while (progress[0] < last) {
        float loss = train_step(l, adam, text, progress);
        average = done ? 0.95 * average + 0.05 * (double)loss : (double)loss;
        double now = seconds();
        if (done++ == 0 || now - shown > 2 || progress[0] == last) {
            weft_memory_stats mem;
            weft_memory_get_stats(&mem);
            printf("step %5lld  loss %.4f  %7.0f tokens/s  memory %.1f MB, peak %.1f MB\n",
                   (long long)progress[0], average,
                   (double)(done * batch * context) / (now - start), (double)mem.live_bytes / 1e6,
                   (double)mem.peak_bytes / 1e6);
            shown = now;
        }
    }
    printf("%lld steps in %.1f s, final loss %.4f, loss curve %016llx\n", (long long)done,
           seconds() - start, average, (unsigned long long)progress[3]);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    if (threads && weft_set_num_threads((int)threads) != WEFT_OK) {
        die("--threads");
    }
    static model lm; /* zeroed */
    weft_generator rng = {(uint64_t)seed, 0};
    weft_tensor text = read_text();
    init_model(&lm, &rng);
    weft_optim *adam =
        weft_adamw_new(lm.m, .beta2 = 0.99, .weight_decay = 0.1, .decay_min_rank = 2);
    /* Steps done, seed and offset of the random stream that picks the data, hash of the losses. */
    int64_t at[4] = {0, seed, (int64_t)rng.offset, (int64_t)0xcbf29ce484222325u};
    weft_tensor progress = weft_from_blob(at, weft_shape(4), WEFT_I64); /* the same memory */
    weft_named_tensor extra = {"progress", progress};
    if (resume && weft_checkpoint_load(resume, lm.m, adam, &extra, 1) != WEFT_OK) {
        die("--resume");
    }
    printf("%lld parameters, %d threads\n", (long long)weft_module_numel(lm.m),
           weft_get_num_threads());
    train(&lm, adam, text, at);
    if (save && weft_checkpoint_save(save, lm.m, adam, &extra, 1) != WEFT_OK) {
        die("--save");
    }
    generate(&lm);
    weft_optim_free(adam);
    weft_module_free(lm.m);
    return 0;
}
