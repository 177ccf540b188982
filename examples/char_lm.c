/*
 * examples/char_lm.c -- a character-level transformer language model, trained on a text file.
 *
 * A GPT over bytes; AdamW, clipped gradients, warm-up and cosine decay; a tenth of the text is held out. The same seed gives
 * the same loss bits at any number of threads, step by step, traced (--jit 1) and frozen (--jit 2), and where a run is saved and resumed.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <weft/weft.h>

enum { VOCAB = 256, LONGEST = 1 << 26 /* bytes of text */ };
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

/* The file's bytes as integers [n]. entropy: of how often each occurs, in nats, the loss of a model that knows nothing else. */
static double entropy;
static weft_tensor read_text(void)
{
    static unsigned char bytes[LONGEST];
    FILE *in = fopen(file, "rb");
    size_t n = in ? fread(bytes, 1, LONGEST, in) : 0;
    double count[VOCAB] = {0};
    for (size_t i = 0; i < n; i++)
        count[bytes[i]]++;
    for (int c = 0; c < VOCAB; c++)
        entropy -= count[c] > 0 ? count[c] / (double)n * log(count[c] / (double)n) : 0;
    if (!in || fclose(in) || (int64_t)n / 10 <= context)
        die("the text cannot be read, or its last tenth is shorter than the context");
    return weft_cast(weft_from_data(bytes, weft_shape((int64_t)n), WEFT_U8), WEFT_I64);
}

/* Windows of the text at random places: [batch, context + 1] */
static weft_tensor draw_windows(weft_tensor text, weft_generator *rng)
{
    int64_t places = weft_numel(text) - context;
    weft_tensor start = weft_randint(weft_shape(batch, 1), 0, places, .generator = rng);
    weft_tensor at = weft_add(start, weft_arange(0, (double)context + 1, 1, WEFT_I64));
    return weft_index_select(text, 0, at);
}

static void generate(const weft_nn_gpt *lm)
{
    weft_generator rng = {(uint64_t)seed, 1u << 30};
    int64_t *seen = calloc((size_t)(sample + 1), sizeof *seen); /* a NUL starts the text */
    for (int64_t i = 0; seen && i < sample; i++) {
        weft_scope s = weft_scope_begin();
        int64_t time = i + 1 < context ? i + 1 : context;
        weft_tensor in = weft_from_data(seen + i + 1 - time, weft_shape(1, time), WEFT_I64);
        weft_tensor logits = weft_select(weft_select(weft_nn_gpt_forward(lm, in), 0, 0), 0, -1);
        weft_tensor chances = weft_softmax(weft_div(logits, weft_f(0.8)), 0);
        seen[i + 1] = weft_item_i64(weft_multinomial(chances, .generator = &rng));
        if (seen[i + 1] < 0)
            die("generate");
        putchar((int)seen[i + 1]);
        weft_scope_end(s);
    }
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
    const char **texts[] = {&save, &resume, &export, &device, &losses, &file};
    char *end;
    for (int i = 1, k = errno = 0; i < argc; i++, k = 0) {
        while (k < 16 && strcmp(argv[i], name[k]) != 0)
            k++;
        if (argv[i][0] == '-' &&
            (k == 16 || ++i == argc ||
             (k < 11 && (*numbers[k] = strtoll(argv[i], &end, 10), errno || !*argv[i] || *end))))
            die("usage: char_lm [FILE] [--save|--resume|--losses|--export PATH] [--device cpu|cuda]"
                " and numbers: --steps --stop --seed --threads --sample --dim --layers --heads "
                "--context --batch --jit");
        if (k >= 11) /* FILE is no option's: 16 */
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
    weft_module *m;
    weft_nn_gpt lm;
    weft_optim *adam;
    struct progress {             /* saved as a tensor */
        int64_t steps;            /* done */
        weft_generator data;      /* what picks the data */
        unsigned long long curve; /* hash of the losses */
    } at;
} trainer;

/* The loss of predicting each character of windows [batch, context + 1] from those before it. */
static weft_tensor loss_on(const weft_nn_gpt *lm, weft_tensor window)
{
    weft_tensor logits = weft_nn_gpt_forward(lm, weft_narrow(window, 1, 0, context));
    return weft_cross_entropy(logits, weft_narrow(window, 1, 1, context));
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
    weft_status bad = weft_module_zero_grad(t->m);
    bad = bad ? bad : weft_backward(loss);
    bad = bad ? bad : weft_module_clip_grad_norm(t->m, 1.0, NULL);
    return bad ? bad : weft_optim_step(t->adam);
}

static void train(trainer *t, weft_tensor text)
{
    int64_t last = stop && stop < steps ? stop : steps, done = 0;
    weft_jit *traced = weft_jit_trace(train_step, t, .name = "train_step", .frozen = jit > 1);
    FILE *written = fopen(losses ? losses : "/dev/null", "w"); /* steps, losses and their bits */
    if (!written)
        die("--losses");
    double start = seconds(), shown = start, average = 0, first = 0, least = 0;
    while (t->at.steps < last) {
        weft_scope s = weft_scope_begin();
        const double begin = seconds();
        weft_profile_range_begin("step");
        double lr = weft_lr_cosine(t->at.steps++, steps / 20, steps, 2e-3, 2e-4);
        weft_tensor window = draw_windows(text, &t->at.data), out = WEFT_NONE;
        if (weft_optim_set_lr(t->adam, lr) ||
            (jit ? weft_jit_call(traced, &window, 1, &out, 1) : train_step(t, &window, 1, &out, 1)))
            die("step");
        float loss = (float)weft_item_f64(out);
        weft_profile_range_end();
        uint32_t bits = 0;
        memcpy(&bits, &loss, sizeof bits);
        t->at.curve = (t->at.curve ^ bits) * 0x100000001b3u; /* FNV-1a of words */
        fprintf(written, "%lld %.9g %08x\n", (long long)t->at.steps, (double)loss, bits);
        weft_scope_end(s);
        average = done ? 0.95 * average + 0.05 * (double)loss : (double)loss;
        const double now = seconds(), took = now - begin;
        first = done ? first : took;
        least = done && least < took ? least : took;
        if (done++ == 0 || now - shown > 2 || t->at.steps == last) {
            weft_memory_stats mem;
            weft_memory_get_stats(&mem);
            printf("step %5lld  loss %.4f  %7.0f tokens/s  memory %.1f MB, peak %.1f MB\n",
                   (long long)t->at.steps, average,
                   (double)(done * batch * context) / (now - start), (double)mem.live_bytes / 1e6,
                   (double)mem.peak_bytes / 1e6);
            shown = now;
        }
    }
    printf("%lld steps in %.1f s (the first %.0f ms, the fastest %.1f ms), final loss %.4f, loss "
           "curve %016llx\n",
           (long long)done, seconds() - start, 1e3 * first, 1e3 * least, average, t->at.curve);
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
    out[0] = n == 1 && n_out == 1 ? weft_nn_gpt_forward(self, in[0]) : WEFT_NONE;
    return weft_error_status(out[0]);
}

/* The model as a graph file, with tokens to run it on and the logits that it gives. */
static void export_model(weft_nn_gpt *lm, weft_tensor text)
{
    char seq[32];
    snprintf(seq, sizeof seq, "seq<=%d", (int)context); /* there are no more positions */
    weft_tensor x = weft_reshape(weft_narrow(text, 0, 0, 2 * context), weft_shape(2, context)), y;
    weft_graph *g =
        weft_jit_graph(logits, lm, &x, 1, .name = "char_lm",
                       .dims = (weft_graph_dim[]){{0, 0, "batch"}, {0, 1, seq}}, .n_dims = 2);
    if (!g || chdir(export) || weft_graph_save(g, "model.weft") || logits(lm, &x, 1, &y, 1) ||
        weft_npy_save("tokens.npy", x) || weft_npy_save("logits.npy", y))
        die("--export");
    weft_graph_free(g);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    weft_device where = WEFT_CPU; /* everything is made there; the program is the same */
    if (batch < 1 || (threads && weft_set_num_threads((int)threads)))
        die("--batch and --threads are at least 1");
    if (device && (weft_device_from_name(device, &where) || weft_set_default_device(where)))
        die("--device");
    static trainer t; /* zeroed */
    weft_generator rng = {(uint64_t)seed, 0}, fixed = {0, 0};
    weft_tensor text = read_text();
    int64_t n = weft_numel(text), seen = n - n / 10;
    t.m = weft_module_new(&rng);
    if (weft_nn_gpt_init(&t.lm, t.m, "", VOCAB, dim, heads, layers, context))
        die("model");
    t.adam = weft_adamw_new(t.m, .beta2 = 0.99, .weight_decay = 0.1, .decay_min_rank = 2);
    t.at = (struct progress){0, rng, 0xcbf29ce484222325u};
    weft_named_tensor extra = {"progress", weft_from_blob(&t.at, weft_shape(4), WEFT_I64)};
    if (resume && weft_checkpoint_load(resume, t.m, t.adam, &extra, 1) != WEFT_OK)
        die("--resume");
    printf("%s: %lld bytes, unigram entropy %.4f nats\n%lld parameters, %d threads\n", file,
           (long long)n, entropy, (long long)weft_module_numel(t.m), weft_get_num_threads());
    train(&t, weft_narrow(text, 0, 0, seen));
    if (save && weft_checkpoint_save(save, t.m, t.adam, &extra, 1) != WEFT_OK)
        die("--save");
    weft_no_grad_begin(); /* from here on nothing is trained */
    weft_tensor held_out = draw_windows(weft_narrow(text, 0, seen, n - seen), &fixed);
    printf("loss on text that was held out: %.4f (unigram entropy %.4f)\n",
           weft_item_f64(loss_on(&t.lm, held_out)), entropy);
    generate(&t.lm);
    if (export)
        export_model(&t.lm, text);
    weft_optim_free(t.adam);
    weft_module_free(t.m);
    return 0;
}
