/*
 * examples/char_lm.c -- a character-level transformer language model, trained on a text file.
 *
 * The model is transformer.h, the text text.h; AdamW, clipped gradients, warm-up and cosine decay; a tenth of the text is held out. The same seed gives
 * the same loss bits at any number of threads, step by step, traced (--jit 1) and frozen (--jit 2), and where a run is saved and resumed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text.h"
#include "transformer.h"

/* Options: numbers, then texts. */
static int64_t steps = 600, stop, seed = 1, threads, sample = 600, dim = 128, layers = 4, heads = 4,
               context = 128, batch = 16, jit;
static const char *file = "/usr/share/common-licenses/GPL-3", *save, *resume, *export, *device,
                  *losses;

static void die(const char *what)
{
    fprintf(stderr, "char_lm: %s\n%s\n", what, weft_last_error());
    exit(1);
}

static void generate(const transformer *l)
{
    weft_generator rng = {(uint64_t)seed, 1u << 30};
    int64_t *seen = calloc((size_t)(sample + 1), sizeof *seen); /* a NUL starts the text */
    weft_no_grad_begin();
    for (int64_t i = 0; seen && i < sample; i++) {
        weft_scope s = weft_scope_begin();
        int64_t time = i + 1 < context ? i + 1 : context;
        weft_tensor in = weft_from_data(seen + i + 1 - time, weft_shape(1, time), WEFT_I64);
        weft_tensor logits = weft_select(weft_select(transformer_forward(l, in), 0, 0), 0, -1);
        weft_tensor chances = weft_softmax(weft_div(logits, weft_f(0.8)), 0);
        seen[i + 1] = weft_item_i64(weft_multinomial(chances, .generator = &rng));
        if (seen[i + 1] < 0)
            die("generate");
        putchar((int)seen[i + 1]);
        weft_scope_end(s);
    }
    weft_no_grad_end();
    putchar('\n');
    free(seen);
}

static void parse(int argc, char **argv)
{
    const char *name[] = {"--steps",  "--stop",   "--seed",    "--threads", "--sample", "--dim",
                          "--layers", "--heads",  "--context", "--batch",   "--jit",    "--save",
                          "--resume", "--export", "--device",  "--losses"};
    int64_t *numbers[] = {&steps,  &stop,  &seed,    &threads, &sample, &dim,
                          &layers, &heads, &context, &batch,   &jit};
    const char **texts[] = {&save, &resume, &export, &device, &losses};
    for (int i = 1, k = 0; i < argc; i++, k = 0) {
        while (k < 16 && strcmp(argv[i], name[k]) != 0)
            k++;
        if (argv[i][0] != '-')
            file = argv[i];
        else if (k == 16 || ++i == argc)
            die("usage: char_lm [FILE] [--save FILE] [--resume FILE] [--export FOLDER] [--losses "
                "FILE] [--device cpu|cuda], and numbers: --steps --stop --seed --threads --sample "
                "--dim --layers --heads --context --batch --jit");
        else if (k < 11)
            *numbers[k] = atoll(argv[i]);
        else
            *texts[k - 11] = argv[i];
    }
}

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct trainer {
    transformer lm;
    weft_optim *adam;
    int64_t at[4]; /* steps done, seed and offset of what picks the data, hash of the losses */
} trainer;

/* The loss of predicting each character of windows [batch, context + 1] from those before it. */
static weft_tensor loss_on(const transformer *l, weft_tensor window)
{
    weft_tensor logits = transformer_forward(l, weft_narrow(window, 1, 0, context));
    return weft_cross_entropy(logits, weft_narrow(window, 1, 1, context));
}

/* The loss on text that no step has seen. */
static double held_out_loss(const transformer *l, weft_tensor text)
{
    weft_generator rng = {0, 0};
    weft_no_grad_begin();
    double loss = weft_item_f64(loss_on(l, text_windows(text, batch, context + 1, &rng)));
    weft_no_grad_end();
    return loss;
}

/* One step of training on the windows in[0]; out[0] is the loss. The same code runs eagerly, traced and frozen: what
 * changes from step to step besides tensors (the batch drawn, the learning rate) is done by the caller. */
static weft_status train_step(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    trainer *t = self;
    if (n != 1 || n_out != 1)
        return WEFT_EINVALID;
    weft_tensor loss = loss_on(&t->lm, in[0]);
    out[0] = weft_detach(loss);
    weft_status bad = weft_module_zero_grad(t->lm.m);
    bad = bad ? bad : weft_backward(loss);
    bad = bad ? bad : weft_module_clip_grad_norm(t->lm.m, 1.0, NULL);
    return bad ? bad : weft_optim_step(t->adam);
}

/* The next step: its batch and its learning rate, then train_step. */
static weft_status next_step(trainer *t, weft_jit *traced, weft_tensor text, weft_tensor *out)
{
    weft_generator rng = {(uint64_t)t->at[1], (uint64_t)t->at[2]};
    double lr = weft_lr_cosine(t->at[0]++, steps / 20, steps, 2e-3, 2e-4);
    weft_tensor window = text_windows(text, batch, context + 1, &rng);
    t->at[2] = (int64_t)rng.offset;
    weft_status bad = weft_optim_set_lr(t->adam, lr);
    if (bad || !jit)
        return bad ? bad : train_step(t, &window, 1, out, 1);
    return weft_jit_call(traced, &window, 1, out, 1);
}

static void train(trainer *t, weft_tensor text)
{
    int64_t last = stop && stop < steps ? stop : steps, done = 0;
    weft_jit *traced = weft_jit_trace(train_step, t, .name = "train_step", .frozen = jit > 1);
    FILE *written = fopen(losses ? losses : "/dev/null", "w"); /* steps, losses and their bits */
    if (!written)
        die("--losses");
    double start = seconds(), shown = start, average = 0, first = 0, least = 1e9;
    while (t->at[0] < last) {
        weft_scope s = weft_scope_begin();
        weft_tensor out = {0};
        const double begin = seconds();
        weft_profile_range_begin("step");
        if (next_step(t, traced, text, &out))
            die("step");
        float loss = (float)weft_item_f64(out);
        weft_profile_range_end();
        uint32_t bits = 0;
        memcpy(&bits, &loss, sizeof bits);
        t->at[3] = (int64_t)(((uint64_t)t->at[3] ^ bits) * 0x100000001b3u); /* FNV-1a of words */
        fprintf(written, "%lld %.9g %08x\n", (long long)t->at[0], (double)loss, bits);
        weft_scope_end(s);
        average = done ? 0.95 * average + 0.05 * (double)loss : (double)loss;
        const double now = seconds(), took = now - begin;
        first = done ? first : took;
        least = took < least ? took : least;
        if (done++ == 0 || now - shown > 2 || t->at[0] == last) {
            weft_memory_stats mem;
            weft_memory_get_stats(&mem);
            printf("step %5lld  loss %.4f  %7.0f tokens/s  memory %.1f MB, peak %.1f MB\n",
                   (long long)t->at[0], average, (double)(done * batch * context) / (now - start),
                   (double)mem.live_bytes / 1e6, (double)mem.peak_bytes / 1e6);
            shown = now;
        }
    }
    printf("%lld steps in %.1f s (the first %.0f ms, the fastest %.1f ms), final loss %.4f, loss "
           "curve %016llx\n",
           (long long)done, seconds() - start, 1e3 * first, 1e3 * least, average,
           (unsigned long long)t->at[3]);
    if (fclose(written))
        die("--losses");
    weft_jit_stats n;
    weft_jit_get_stats(traced, &n);
    if (jit)
        printf("traced: %lld ops ran as %lld steps, %lld of them fused kernels\n%lld of %lld calls "
               "were replayed without being recorded\n",
               (long long)n.ops, (long long)n.steps, (long long)n.kernels, (long long)n.frozen,
               (long long)(n.calls + n.frozen));
    weft_jit_free(traced);
}

static weft_status logits(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    out[0] = n == 1 && n_out == 1 ? transformer_forward(self, in[0]) : WEFT_NONE;
    return weft_error_status(out[0]);
}

/* The model as a graph file, with tokens to run it on and the logits that it gives. */
static void export_model(transformer *l, weft_tensor text)
{
    char path[3][4096];
    const char *file_name[] = {"model.weft", "tokens.npy", "logits.npy"};
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", export, file_name[i]);
    char seq[32];
    snprintf(seq, sizeof seq, "seq<=%d", (int)context); /* there are no more positions */
    weft_no_grad_begin();
    weft_tensor x = weft_reshape(weft_narrow(text, 0, 0, 2 * context), weft_shape(2, context)), y;
    weft_graph *g =
        weft_jit_graph(logits, l, &x, 1, .name = "char_lm",
                       .dims = (weft_graph_dim[]){{0, 0, "batch"}, {0, 1, seq}}, .n_dims = 2);
    if (!g || weft_graph_save(g, path[0]) || logits(l, &x, 1, &y, 1) || weft_npy_save(path[1], x) ||
        weft_npy_save(path[2], y))
        die("--export");
    weft_graph_free(g);
    weft_no_grad_end();
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    if (batch < 1 || (threads && weft_set_num_threads((int)threads) != WEFT_OK))
        die("--batch and --threads are at least 1");
    weft_device where = WEFT_CPU; /* everything is made there; the program is the same */
    if (device && (weft_device_from_name(device, &where) || weft_set_default_device(where)))
        die("--device");
    static trainer t; /* zeroed */
    weft_generator rng = {(uint64_t)seed, 0};
    double entropy;
    weft_tensor text = text_read(file, &entropy);
    int64_t n = weft_numel(text), seen = n - n / 10;
    if (n / 10 <= context)
        die("the text cannot be read, or its last tenth is shorter than the context");
    printf("%s: %lld bytes, unigram entropy %.4f nats\n", file, (long long)n, entropy);
    if (transformer_init(&t.lm, (transformer_sizes){TEXT_VOCAB, dim, layers, heads, context, 0},
                         &rng))
        die("model");
    weft_module *m = t.lm.m;
    t.adam = weft_adamw_new(m, .beta2 = 0.99, .weight_decay = 0.1, .decay_min_rank = 2);
    memcpy(t.at, (int64_t[]){0, seed, (int64_t)rng.offset, (int64_t)0xcbf29ce484222325u}, 32);
    weft_named_tensor extra = {"progress", weft_from_blob(t.at, weft_shape(4), WEFT_I64)};
    if (resume && weft_checkpoint_load(resume, m, t.adam, &extra, 1) != WEFT_OK)
        die("--resume");
    printf("%lld parameters, %d threads\n", (long long)weft_module_numel(m),
           weft_get_num_threads());
    train(&t, weft_narrow(text, 0, 0, seen));
    printf("loss on text that was held out: %.4f (unigram entropy %.4f)\n",
           held_out_loss(&t.lm, weft_narrow(text, 0, seen, n - seen)), entropy);
    if (save && weft_checkpoint_save(save, m, t.adam, &extra, 1) != WEFT_OK)
        die("--save");
    if (export)
        export_model(&t.lm, text);
    generate(&t.lm);
    weft_optim_free(t.adam);
    weft_module_free(m);
    return 0;
}
