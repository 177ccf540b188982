/*
 * tests/unit/test_sequences.c -- LSTM, GRU, attention to a memory, the encoder layer, GPT: against loops in double precision
 * written from the papers, gradients against differences, called, traced and replayed; and that they learn.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

#define OK(call) cr_assert_eq(call, WEFT_OK, "%s", weft_last_error())

static weft_module *fresh(uint64_t seed)
{
    weft_manual_seed(seed);
    weft_module *m = weft_module_new(NULL);
    cr_assert(m != NULL);
    return m;
}

static double *elements(weft_tensor t)
{
    double *v = calloc((size_t)weft_numel(t) + 1, sizeof *v);
    cr_assert(v && weft_ok(t), "%s", weft_error_text(t));
    OK(weft_to_array(t, v, weft_numel(t), WEFT_F64));
    return v;
}

static void check_near(const char *what, weft_tensor got, const double *want, double limit)
{
    double *v = elements(got);
    for (int64_t i = 0; i < weft_numel(got); i++) {
        cr_assert_lt(fabs(v[i] - want[i]), limit, "%s[%d] is %.17g, want %.17g", what, (int)i, v[i],
                     want[i]);
    }
    free(v);
}

static void check_bits(const char *what, weft_tensor a, weft_tensor b)
{
    double *x = elements(a), *y = elements(b);
    cr_assert_eq(weft_numel(a), weft_numel(b));
    cr_assert_eq(memcmp(x, y, (size_t)weft_numel(a) * sizeof *x), 0, "%s", what);
    free(x);
    free(y);
}

/* -- references --------------------------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Row r of weight[.., n] times v, plus bias[r]. */
static double row_of(weft_tensor weight, weft_tensor bias, int r, int n, const double *v)
{
    double *w = elements(weight), *b = weft_ok(bias) ? elements(bias) : NULL;
    double sum = b ? b[r] : 0;
    for (int i = 0; i < n; i++) {
        sum += w[r * n + i] * v[i];
    }
    free(w);
    free(b);
    return sum;
}

/* One step of one example: h and c are replaced. */
static void reference_step(const weft_nn_gates *l, bool lstm, int in, int hidden, const double *x,
                           double *h, double *c)
{
    double a[64], b[64], old[16];
    const int gates = lstm ? 4 : 3;
    for (int r = 0; r < gates * hidden; r++) {
        a[r] = row_of(l->weight_ih, l->bias_ih, r, in, x);
        b[r] = row_of(l->weight_hh, l->bias_hh, r, hidden, h);
    }
    memcpy(old, h, (size_t)hidden * sizeof *h);
    for (int k = 0; k < hidden; k++) {
        const int r0 = k, r1 = hidden + k, r2 = 2 * hidden + k, r3 = 3 * hidden + k;
        if (lstm) {
            c[k] = sigmoid(a[r1] + b[r1]) * c[k] + sigmoid(a[r0] + b[r0]) * tanh(a[r2] + b[r2]);
            h[k] = sigmoid(a[r3] + b[r3]) * tanh(c[k]);
        } else {
            const double reset = sigmoid(a[r0] + b[r0]), update = sigmoid(a[r1] + b[r1]);
            const double made = tanh(a[r2] + reset * b[r2]);
            h[k] = (1 - update) * made + update * old[k];
        }
    }
}

enum { TIME = 4, BATCH = 2, IN = 3, HIDDEN = 2 };

/* Every level over x[time][batch][in], which becomes the next level's input; the states as [levels][batch][hidden]. */
static void reference_run(const weft_nn_recurrent *l, double x[TIME][BATCH][2 * HIDDEN + IN],
                          double *h, double *c)
{
    for (int layer = 0, in = IN; layer < l->layers; layer++, in = l->ways * HIDDEN) {
        double out[TIME][BATCH][2 * HIDDEN];
        for (int level = layer * l->ways; level < (layer + 1) * l->ways; level++) {
            const int back = level % l->ways;
            for (int i = 0; i < TIME * BATCH; i++) {
                const int t = back ? TIME - 1 - i / BATCH : i / BATCH, n = i % BATCH;
                double *state = h + (level * BATCH + n) * HIDDEN;
                reference_step(&l->level[level], l->gates == 4, in, HIDDEN, x[t][n], state,
                               c + (level * BATCH + n) * HIDDEN);
                memcpy(&out[t][n][back * HIDDEN], state, HIDDEN * sizeof *state);
            }
        }
        for (int i = 0; i < TIME * BATCH; i++) {
            memcpy(x[i / BATCH][i % BATCH], out[i / BATCH][i % BATCH], sizeof out[0][0]);
        }
    }
}

/* bits of kind: 1 LSTM, 2 bidirectional, 4 batch first, 8 no bias, 16 a state is given. */
static void follow(int kind)
{
    const bool lstm = kind & 1, first = kind & 4, given = kind & 16;
    weft_module *m = fresh(9);
    weft_nn_recurrent l;
    weft_status s =
        lstm ? weft_nn_lstm_init(&l, m, "l", IN, HIDDEN, .layers = 2, .bidirectional = kind & 2,
                                 .batch_first = first, .no_bias = kind & 8, .dtype = WEFT_F64)
             : weft_nn_gru_init(&l, m, "l", IN, HIDDEN, .layers = 2, .bidirectional = kind & 2,
                                .batch_first = first, .no_bias = kind & 8, .dtype = WEFT_F64);
    OK(s);
    const int levels = kind & 2 ? 4 : 2;
    weft_tensor x = weft_randn(weft_shape(TIME, BATCH, IN), WEFT_F64);
    weft_tensor h = WEFT_NONE, c = WEFT_NONE;
    double *v = elements(x), in[TIME][BATCH][2 * HIDDEN + IN] = {0}, *h0, *c0;
    for (int i = 0; i < TIME * BATCH * IN; i++) {
        in[i / BATCH / IN][i / IN % BATCH][i % IN] = v[i];
    }
    h0 = calloc((size_t)levels * BATCH * HIDDEN, sizeof *h0);
    c0 = calloc((size_t)levels * BATCH * HIDDEN, sizeof *c0);
    if (given) {
        free(h0);
        free(c0);
        h = weft_randn(weft_shape(levels, BATCH, HIDDEN), WEFT_F64);
        c = weft_randn(weft_shape(levels, BATCH, HIDDEN), WEFT_F64);
        h0 = elements(h);
        c0 = elements(c);
    }
    x = first ? weft_transpose(x, 0, 1) : x;
    weft_tensor y = lstm ? weft_nn_lstm_forward(&l, x, &h, &c) : weft_nn_gru_forward(&l, x, &h);
    cr_assert(weft_ok(y), "%s", weft_error_text(y));
    y = first ? weft_transpose(y, 0, 1) : y;
    reference_run(&l, in, h0, c0);
    double want[TIME * BATCH * 2 * HIDDEN];
    const int wide = levels / 2 * HIDDEN;
    for (int i = 0; i < TIME * BATCH * wide; i++) {
        want[i] = in[i / BATCH / wide][i / wide % BATCH][i % wide];
    }
    cr_assert_eq(weft_numel(y), TIME * BATCH * wide);
    check_near("y", y, want, 1e-14);
    check_near("h", h, h0, 1e-14);
    if (lstm) {
        check_near("c", c, c0, 1e-14);
    }
    free(v);
    free(h0);
    free(c0);
    weft_module_free(m);
}

Test(sequences, recurrent_layers_are_the_loops_of_the_papers)
{
    for (int kind = 0; kind < 32; kind++) {
        follow(kind);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

Test(sequences, names_are_those_of_pytorch)
{
    weft_module *m = fresh(1);
    weft_nn_recurrent l;
    weft_nn_gates cell;
    weft_nn_encoder e;
    OK(weft_nn_gru_init(&l, m, "gru", 3, 5, .layers = 2, .bidirectional = true));
    OK(weft_nn_lstm_cell_init(&cell, m, "cell", 3, 5));
    OK(weft_nn_encoder_init(&e, m, "encoder", 8, 2, 16));
    static const struct {
        const char *name;
        int64_t rows, cols;
    } want[] = {
        {"gru.weight_ih_l0", 15, 3},
        {"gru.weight_hh_l0", 15, 5},
        {"gru.bias_ih_l0", 15, 0},
        {"gru.bias_hh_l0", 15, 0},
        {"gru.weight_ih_l0_reverse", 15, 3},
        {"gru.weight_hh_l0_reverse", 15, 5},
        {"gru.bias_ih_l0_reverse", 15, 0},
        {"gru.bias_hh_l0_reverse", 15, 0},
        {"gru.weight_ih_l1", 15, 10},
        {"gru.weight_hh_l1", 15, 5},
        {"gru.bias_ih_l1", 15, 0},
        {"gru.bias_hh_l1", 15, 0},
        {"gru.weight_ih_l1_reverse", 15, 10},
        {"gru.weight_hh_l1_reverse", 15, 5},
        {"gru.bias_ih_l1_reverse", 15, 0},
        {"gru.bias_hh_l1_reverse", 15, 0},
        {"cell.weight_ih", 20, 3},
        {"cell.weight_hh", 20, 5},
        {"cell.bias_ih", 20, 0},
        {"cell.bias_hh", 20, 0},
        {"encoder.self_attn.in_proj_weight", 24, 8},
        {"encoder.self_attn.in_proj_bias", 24, 0},
        {"encoder.self_attn.out_proj.weight", 8, 8},
        {"encoder.self_attn.out_proj.bias", 8, 0},
        {"encoder.linear1.weight", 16, 8},
        {"encoder.linear1.bias", 16, 0},
        {"encoder.linear2.weight", 8, 16},
        {"encoder.linear2.bias", 8, 0},
        {"encoder.norm1.weight", 8, 0},
        {"encoder.norm1.bias", 8, 0},
        {"encoder.norm2.weight", 8, 0},
        {"encoder.norm2.bias", 8, 0},
    };
    const int n = sizeof want / sizeof *want;
    cr_assert_eq(weft_module_count(m), n);
    for (int i = 0; i < n; i++) {
        weft_named_tensor e_i = weft_module_at(m, i);
        cr_assert_str_eq(e_i.name, want[i].name);
        weft_shape s = weft_shape_of(e_i.tensor);
        cr_assert_eq(s.v[0], want[i].rows, "%s", e_i.name);
        cr_assert_eq(s.n, want[i].cols ? 2 : 1, "%s", e_i.name);
        cr_assert(!want[i].cols || s.v[1] == want[i].cols, "%s", e_i.name);
    }
    double *w = elements(l.level[0].weight_ih);
    for (int i = 0; i < 45; i++) {
        cr_assert_leq(fabs(w[i]), 1 / sqrt(5.0));
    }
    free(w);
    weft_module_free(m);
}

/* Cells called one after another are the layer. */
Test(sequences, cells_are_the_steps_of_a_layer)
{
    for (int lstm = 0; lstm < 2; lstm++) {
        weft_module *m = fresh(4);
        weft_nn_recurrent l;
        OK(lstm ? weft_nn_lstm_init(&l, m, "l", IN, HIDDEN)
                : weft_nn_gru_init(&l, m, "l", IN, HIDDEN));
        weft_tensor x = weft_randn(weft_shape(TIME, BATCH, IN)), h = WEFT_NONE, c = WEFT_NONE;
        weft_tensor y =
            lstm ? weft_nn_lstm_forward(&l, x, NULL, NULL) : weft_nn_gru_forward(&l, x, NULL);
        for (int t = 0; t < TIME; t++) {
            weft_tensor now = weft_select(x, 0, t);
            h = lstm ? weft_nn_lstm_cell_forward(&l.level[0], now, h, &c)
                     : weft_nn_gru_cell_forward(&l.level[0], now, h);
            check_bits("step", h, weft_select(y, 0, t));
        }
        weft_module_free(m);
    }
}

/* -- gradients ------------------------------------------------------------------------------------------------------ */

typedef struct net {
    weft_module *m;
    weft_nn_recurrent rnn;
    weft_nn_encoder encoder;
    int kind; /* 0 GRU, 1 LSTM, 2 encoder, 3 attention to a memory */
} net;

static weft_tensor run_net(net *k, weft_tensor x, weft_tensor h)
{
    weft_tensor c = h, y;
    switch (k->kind) {
    case 0:
        y = weft_nn_gru_forward(&k->rnn, x, &h);
        return weft_add(weft_sum(weft_square(y)), weft_sum(h));
    case 1:
        y = weft_nn_lstm_forward(&k->rnn, x, &h, &c);
        return weft_add(weft_sum(weft_square(y)), weft_sum(weft_mul(h, c)));
    case 2:
        return weft_sum(weft_square(weft_nn_encoder_forward(&k->encoder, x, WEFT_NONE)));
    default:
        return weft_sum(
            weft_square(weft_nn_attention_attend(&k->encoder.self_attn, x, h, WEFT_NONE)));
    }
}

/* in: x, h, then one of the parameters, which is put in its place. */
static weft_status loss_of(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    net *k = user;
    (void)n_out;
    cr_assert_eq(n_in, 3);
    weft_tensor *at = k->kind < 2 ? &k->rnn.level[0].weight_hh : &k->encoder.self_attn.in_weight;
    *at = in[2];
    out[0] = run_net(k, in[0], in[1]);
    return weft_error_status(out[0]);
}

Test(sequences, gradients_are_differences)
{
    for (int kind = 0; kind < 4; kind++) {
        net k = {.m = fresh(3), .kind = kind};
        if (kind == 0) {
            OK(weft_nn_gru_init(&k.rnn, k.m, "l", IN, HIDDEN, .bidirectional = true,
                                .dtype = WEFT_F64));
        } else if (kind == 1) {
            OK(weft_nn_lstm_init(&k.rnn, k.m, "l", IN, HIDDEN, .layers = 2, .dtype = WEFT_F64));
        } else {
            OK(weft_nn_encoder_init(&k.encoder, k.m, "l", 4, 2, 5, .dropout = WEFT_ZERO,
                                    .gelu = true, .norm_first = true, .dtype = WEFT_F64));
        }
        weft_tensor p = kind < 2 ? k.rnn.level[0].weight_hh : k.encoder.self_attn.in_weight;
        weft_tensor in[3] = {
            weft_randn(kind < 2 ? weft_shape(3, 2, IN) : weft_shape(2, 3, 4), WEFT_F64),
            weft_randn(kind < 2 ? weft_shape(2, 2, HIDDEN) : weft_shape(2, 5, 4), WEFT_F64),
            weft_clone(weft_detach(p))};
        for (int i = 0; i < 3; i++) {
            OK(weft_requires_grad_(in[i], kind != 2 || i != 1)); /* an encoder has no memory */
        }
        char report[400] = "";
        cr_assert_eq(
            weft_gradcheck(loss_of, &k, in, 3, 1, .report = report, .report_size = sizeof report),
            WEFT_OK, "kind %d: %s %s", kind, report, weft_last_error());
        weft_module_free(k.m);
    }
}

/* -- attention ------------------------------------------------------------------------------------------------------ */

Test(sequences, a_memory_of_itself_is_self_attention)
{
    weft_module *m = fresh(6);
    weft_nn_attention l;
    OK(weft_nn_attention_init(&l, m, "l", 8, 2, .dtype = WEFT_F64));
    OK(weft_init_normal(l.in_bias, 0, 1, NULL));
    weft_tensor x = weft_randn(weft_shape(2, 5, 8), WEFT_F64);
    double *want = elements(weft_nn_attention_forward(&l, x));
    check_near("self", weft_nn_attention_attend(&l, x, x, WEFT_NONE), want, 1e-14);
    free(want);
    /* A mask that hides the last keys is a shorter memory, for each of the batch. */
    weft_tensor mask = weft_less(weft_arange(0, 5, 1, WEFT_I64), weft_i(3));
    want = elements(weft_nn_attention_attend(&l, x, weft_narrow(x, 1, 0, 3), WEFT_NONE));
    check_near("mask", weft_nn_attention_attend(&l, x, WEFT_NONE, mask), want, 1e-14);
    free(want);
    weft_tensor bad = weft_nn_attention_attend(&l, x, weft_select(x, 0, 0), WEFT_NONE);
    cr_assert(strstr(weft_error_text(bad), "memory has rank 2"), "%s", weft_error_text(bad));
    bad = weft_nn_attention_forward(&l, weft_select(x, 0, 0));
    cr_assert(strstr(weft_error_text(bad), "x has rank 2"), "%s", weft_error_text(bad));
    weft_module_free(m);
}

Test(sequences, an_encoder_is_its_parts)
{
    for (int first = 0; first < 2; first++) {
        weft_module *m = fresh(6);
        weft_nn_encoder e;
        OK(weft_nn_encoder_init(&e, m, "e", 8, 2, 12, .norm_first = first, .gelu = first,
                                .causal = true));
        weft_tensor x = weft_randn(weft_shape(2, 5, 8)), y = x;
        weft_module_train(m, false);
        if (first) {
            y = weft_nn_layer_norm_forward(&e.norm1, y);
            y = weft_add(x, weft_nn_attention_forward(&e.self_attn, y));
            weft_tensor z =
                weft_nn_linear_forward(&e.linear1, weft_nn_layer_norm_forward(&e.norm2, y));
            y = weft_add(y, weft_nn_linear_forward(&e.linear2, weft_gelu(z)));
        } else {
            y = weft_add(x, weft_nn_attention_forward(&e.self_attn, y));
            y = weft_nn_layer_norm_forward(&e.norm1, y);
            weft_tensor z = weft_relu(weft_nn_linear_forward(&e.linear1, y));
            y = weft_add(y, weft_nn_linear_forward(&e.linear2, z));
            y = weft_nn_layer_norm_forward(&e.norm2, y);
        }
        check_bits("encoder", weft_nn_encoder_forward(&e, x, WEFT_NONE), y);
        weft_module_train(m, true);
        weft_tensor z = weft_nn_encoder_forward(&e, x, WEFT_NONE);
        cr_assert_gt(weft_item_f64(weft_max(weft_abs(weft_sub(y, z)))), 0.01, "dropout");
        weft_module_free(m);
    }
}

/* -- GPT ------------------------------------------------------------------------------------------------------------ */

Test(sequences, gpt_has_the_names_of_gpt_2)
{
    static const char *const want[] = {"wte.weight",
                                       "wpe.weight",
                                       "h.0.ln_1.weight",
                                       "h.0.ln_1.bias",
                                       "h.0.attn.in_proj_weight",
                                       "h.0.attn.in_proj_bias",
                                       "h.0.attn.out_proj.weight",
                                       "h.0.attn.out_proj.bias",
                                       "h.0.ln_2.weight",
                                       "h.0.ln_2.bias",
                                       "h.0.fc.weight",
                                       "h.0.fc.bias",
                                       "h.0.proj.weight",
                                       "h.0.proj.bias",
                                       "ln_f.weight",
                                       "ln_f.bias",
                                       "head.weight"};
    for (int tied = 0; tied < 2; tied++) {
        weft_module *m = fresh(6);
        static weft_nn_gpt g;
        OK(weft_nn_gpt_init(&g, m, tied ? "" : "lm", 11, 8, 2, 1, 5, .tied = tied));
        cr_assert_eq(weft_module_count(m), tied ? 16 : 17);
        for (int i = 0; i < weft_module_count(m); i++) {
            const char *name = weft_module_at(m, i).name;
            cr_assert_str_eq(tied ? name : name + strlen("lm."), want[i]);
        }
        cr_assert_eq(weft_module_numel(m), 11 * 8 + 5 * 8 + 4 * 8 + 24 * 8 + 24 + 8 * 8 + 8 +
                                               32 * 8 + 32 + 32 * 8 + 8 + 2 * 8 +
                                               (tied ? 0 : 11 * 8));
        double *w = elements(g.wte.weight);
        for (int i = 0; i < 11 * 8; i++) {
            cr_assert_lt(fabs(w[i]), 0.02 * 6);
        }
        free(w);
        weft_module_free(m);
    }
}

/* Of the public layers, on the model's own parameters. */
static weft_tensor by_its_parts(const weft_nn_gpt *g, weft_tensor tokens)
{
    weft_tensor x = weft_embedding(g->wte.weight, tokens);
    x = weft_add(x, weft_slice(g->wpe.weight, 0, 0, weft_dim(tokens, 1), 1));
    for (int i = 0; i < g->layers; i++) {
        const weft_nn_encoder *b = &g->h[i];
        weft_tensor y = weft_nn_layer_norm_forward(&b->norm1, x);
        x = weft_add(x, weft_nn_attention_forward(&b->self_attn, y));
        y = weft_nn_linear_forward(&b->linear1, weft_nn_layer_norm_forward(&b->norm2, x));
        x = weft_add(x, weft_nn_linear_forward(&b->linear2, weft_gelu(y)));
    }
    x = weft_nn_layer_norm_forward(&g->ln_f, x);
    return weft_linear(x, g->tied ? g->wte.weight : g->head.weight, WEFT_NONE);
}

Test(sequences, gpt_is_its_parts)
{
    static weft_nn_gpt g;
    for (int tied = 0; tied < 2; tied++) {
        weft_module *m = fresh(7);
        OK(weft_nn_gpt_init(&g, m, "", .vocab = 11, .dim = 8, .heads = 2, .layers = 3, .context = 6,
                            .tied = tied, .dropout = tied ? 0.4 : 0));
        weft_tensor tokens = weft_randint(weft_shape(2, 5), 0, 11), y = by_its_parts(&g, tokens);
        weft_module_train(m, false);
        check_bits("at rest", weft_nn_gpt_forward(&g, tokens), y);
        weft_module_train(m, true);
        weft_tensor z = weft_nn_gpt_forward(&g, tokens);
        cr_assert_eq(weft_item_f64(weft_max(weft_abs(weft_sub(y, z)))) > 0.01, tied, "dropout");
        /* what comes later changes nothing before it */
        weft_module_train(m, false);
        weft_tensor first = weft_nn_gpt_forward(&g, weft_narrow(tokens, 1, 0, 3));
        double *want = elements(weft_narrow(y, 1, 0, 3));
        check_near("the first steps", first, want, 1e-5);
        free(want);
        weft_module_free(m);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* in: the embedding of tokens and a weight of the last block. */
static weft_status gpt_loss(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    weft_nn_gpt g = *(const weft_nn_gpt *)user;
    static const int64_t tokens[] = {3, 1, 4, 1, 5, 2}, next[] = {1, 4, 1, 5, 2, 0};
    cr_assert(n_in == 2 && n_out == 1);
    g.wte.weight = in[0];
    g.h[1].self_attn.in_weight = in[1];
    out[0] = weft_cross_entropy(
        weft_nn_gpt_forward(&g, weft_from_data(tokens, weft_shape(2, 3), WEFT_I64)),
        weft_from_data(next, weft_shape(2, 3), WEFT_I64));
    return weft_error_status(out[0]);
}

Test(sequences, gradients_of_gpt_are_differences)
{
    weft_module *m = fresh(8);
    static weft_nn_gpt g;
    char report[400] = "";
    OK(weft_nn_gpt_init(&g, m, "", 6, 4, 2, 2, 3, .tied = true, .dtype = WEFT_F64));
    weft_tensor in[] = {weft_clone(weft_detach(g.wte.weight)),
                        weft_clone(weft_detach(g.h[1].self_attn.in_weight))};
    OK(weft_requires_grad_(in[0], true));
    OK(weft_requires_grad_(in[1], true));
    cr_assert_eq(
        weft_gradcheck(gpt_loss, &g, in, 2, 1, .report = report, .report_size = sizeof report),
        WEFT_OK, "%s %s", report, weft_last_error());
    weft_module_free(m);
}

/* -- errors --------------------------------------------------------------------------------------------------------- */

static void says(weft_tensor t, const char *part)
{
    cr_assert_not(weft_ok(t));
    cr_assert(strstr(weft_error_text(t), part), "%s", weft_error_text(t));
}

Test(sequences, errors_say_what_is_wrong)
{
    weft_module *m = fresh(1);
    weft_nn_recurrent l, gru;
    weft_nn_gates cell;
    cr_assert_eq(weft_nn_lstm_init(&l, m, "a", 0, 4), WEFT_ESHAPE);
    cr_assert_eq(weft_nn_lstm_init(&l, m, "b", 4, 4, .layers = 9), WEFT_ESHAPE);
    cr_assert_eq(weft_nn_lstm_init(&l, m, "c", 4, 4, .dropout = 2), WEFT_ESHAPE);
    cr_assert_eq(weft_nn_gru_cell_init(&cell, m, "d", 4, 0), WEFT_ESHAPE);
    cr_assert_eq(weft_nn_lstm_init(NULL, m, "e", 4, 4), WEFT_EINVALID);
    cr_assert_eq((weft_nn_lstm_init)(NULL), WEFT_EINVALID);
    cr_assert_eq((weft_nn_lstm_cell_init)(NULL), WEFT_EINVALID);
    cr_assert_eq((weft_nn_encoder_init)(NULL), WEFT_EINVALID);
    weft_tensor x = weft_ones(weft_shape(5, 2, 3), WEFT_F32),
                h = weft_ones(weft_shape(2, 2, 4), WEFT_F32);
    weft_tensor had[2] = {x, x};
    says(weft_nn_lstm_forward(&l, x, &had[0], &had[1]),
         "nn_lstm_init 'c': dropout is 2; it must be in [0, 1]");
    says(had[0], "nn_lstm_init 'c': dropout is 2; it must be in [0, 1]");
    says(had[1], "nn_lstm_init 'c': dropout is 2; it must be in [0, 1]");
    OK(weft_nn_lstm_init(&l, m, "l", 3, 4));
    OK(weft_nn_gru_init(&gru, m, "gru", 3, 4, .batch_first = true));
    says(weft_nn_gru_forward(&l, x, NULL), "not made by weft_nn_gru_init");
    says(weft_nn_lstm_forward(NULL, x, NULL, NULL), "NULL");
    says(weft_nn_lstm_forward(&l, weft_select(x, 0, 0), NULL, NULL), "x has rank 2");
    says(weft_nn_lstm_forward(&l, weft_ones(weft_shape(5, 2, 4), WEFT_F32), NULL, NULL),
         "[time, batch, 3]");
    says(weft_nn_gru_forward(&gru, weft_ones(weft_shape(5, 0, 3), WEFT_F32), NULL),
         "[batch, time, 3]");
    says(weft_nn_lstm_forward(&l, x, &h, NULL), "h must be [1, 2, 4]");
    says(h, "h must be [1, 2, 4]");
    weft_tensor c = weft_ones(weft_shape(1, 3, 4), WEFT_F32);
    says(weft_nn_lstm_forward(&l, x, NULL, &c), "c must be [1, 2, 4]");
    weft_tensor none = WEFT_NONE;
    says(weft_nn_lstm_cell_forward(&l.level[0], x, none, &none), "x has rank 3");
    says(none, "x has rank 3");
    weft_tensor row = weft_select(x, 0, 0), state;
    h = weft_ones(weft_shape(2, 4), WEFT_F32);
    for (int i = 0; i < 3; i++) { /* none of them broadcasts */
        weft_shape wrong = i == 0 ? weft_shape(1, 4) : i == 1 ? weft_shape(2, 1) : weft_shape(3, 4);
        c = state = weft_ones(wrong, WEFT_F32);
        says(weft_nn_lstm_cell_forward(&l.level[0], row, h, &c), "it must be [2, 4]");
        says(c, "c is [");
        says(weft_nn_lstm_cell_forward(&l.level[0], row, state, &none), "h is [");
        none = WEFT_NONE;
        says(weft_nn_gru_cell_forward(&gru.level[0], row, state), "it must be [2, 4]");
    }
    c = h;
    says(weft_nn_lstm_cell_forward(&gru.level[0], row, h, &c), "weft_nn_lstm_cell_init");
    says(c, "weft_nn_lstm_cell_init");
    says(weft_nn_gru_cell_forward(&l.level[0], row, h), "weft_nn_gru_cell_init");
    says(weft_nn_lstm_cell_forward(&l.level[0], x, WEFT_NONE, NULL), "c is NULL");
    says(weft_nn_gru_cell_forward(NULL, x, WEFT_NONE), "NULL");
    says(weft_nn_encoder_forward(NULL, x, WEFT_NONE), "NULL");
    static weft_nn_gpt g;
    cr_assert_eq((weft_nn_gpt_init)(NULL), WEFT_EINVALID);
    cr_assert_eq(weft_nn_gpt_init(&g, m, "deep", 11, 8, 2, 49, 5), WEFT_EINVALID);
    says(weft_nn_gpt_forward(&g, x), "nn_gpt_init 'deep': layers is 49; it must be at most 48");
    cr_assert_eq(weft_nn_gpt_init(&g, m, "odd", 11, 8, 3, 2, 5), WEFT_ESHAPE);
    says(weft_nn_gpt_forward(&g, x), "nn_gpt_init 'odd.h.0.attn': dim is 8 and heads is 3");
    cr_assert_eq(weft_nn_gpt_init(&g, m, "wet", 11, 8, 2, 2, 5, .dropout = 2), WEFT_ESHAPE);
    says(weft_nn_gpt_forward(&g, x), "nn_gpt_init 'wet': dropout is 2; it must be in [0, 1]");
    cr_assert_eq(weft_nn_gpt_init(&g, m, "wide", 11, INT64_MAX, 2, 2, 5), WEFT_ESHAPE);
    cr_assert_eq(weft_nn_gpt_init(&g, m, "none", 0, 8, 2, 2, 5), WEFT_ESHAPE);
    says(weft_nn_gpt_forward(NULL, x), "NULL");
    OK(weft_nn_gpt_init(&g, m, "gpt", 11, 8, 2, 0, 5));
    weft_tensor tokens = weft_zeros(weft_shape(2, 6), WEFT_I64);
    says(weft_nn_gpt_forward(&g, tokens), "tokens has 6 steps; the model's context is 5");
    says(weft_nn_gpt_forward(&g, weft_select(tokens, 0, 0)), "tokens has rank 1");
    says(weft_nn_gpt_forward(&g, weft_ones(weft_shape(2, 5), WEFT_F32)), "embedding");
    h = WEFT_NONE;
    weft_tensor lost = weft_add(x, weft_ones(weft_shape(7), WEFT_F32));
    says(weft_nn_lstm_forward(&l, lost, &h, NULL), "add");
    says(weft_nn_gpt_forward(&g, lost), "add");
    weft_module_free(m);
}

/* -- learning, called and replayed ---------------------------------------------------------------------------------- */

enum { SYMBOLS = 6, LENGTH = 8, LATE = 2, EXAMPLES = 16, WIDE = 32 };

/* Says each symbol again, two steps later. */
typedef struct echo {
    weft_module *m;
    weft_generator init, data;
    weft_nn_embedding in;
    weft_nn_recurrent rnn;
    weft_nn_linear out;
    weft_optim *optim;
    bool lstm;
} echo;

static void echo_open(echo *k, bool lstm)
{
    *k = (echo){.init = {5, 0}, .data = {6, 0}, .lstm = lstm};
    k->m = weft_module_new(&k->init);
    OK(weft_nn_embedding_init(&k->in, k->m, "in", SYMBOLS, 8));
    OK(lstm ? weft_nn_lstm_init(&k->rnn, k->m, "rnn", 8, WIDE, .batch_first = true)
            : weft_nn_gru_init(&k->rnn, k->m, "rnn", 8, WIDE, .batch_first = true));
    OK(weft_nn_linear_init(&k->out, k->m, "out", WIDE, SYMBOLS));
    k->optim = weft_adam_new(k->m, 0.02);
    cr_assert(k->optim != NULL);
}

static void echo_close(echo *k)
{
    weft_optim_free(k->optim);
    weft_module_free(k->m);
}

static weft_status echo_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    echo *k = self;
    (void)in, (void)n_in, (void)n_out;
    weft_tensor text =
        weft_randint(weft_shape(EXAMPLES, LENGTH), 0, SYMBOLS, .generator = &k->data);
    weft_tensor x = weft_nn_embedding_forward(&k->in, text);
    x = k->lstm ? weft_nn_lstm_forward(&k->rnn, x, NULL, NULL)
                : weft_nn_gru_forward(&k->rnn, x, NULL);
    weft_tensor y = weft_nn_linear_forward(&k->out, weft_narrow(x, 1, LATE, LENGTH - LATE));
    weft_tensor loss = weft_cross_entropy(y, weft_narrow(text, 1, 0, LENGTH - LATE));
    out[0] = weft_detach(loss);
    weft_status s = weft_module_zero_grad(k->m);
    s = s ? s : weft_backward(loss);
    s = s ? s : weft_module_clip_grad_norm(k->m, 1, NULL);
    return s ? s : weft_optim_step(k->optim);
}

Test(sequences, they_learn_to_repeat_what_they_heard)
{
    for (int lstm = 0; lstm < 2; lstm++) {
        echo k;
        echo_open(&k, lstm);
        double loss = 0;
        for (int i = 0; i < 200; i++) {
            weft_scope s = weft_scope_begin();
            weft_tensor out;
            OK(echo_step(&k, NULL, 0, &out, 1));
            loss = weft_item_f64(out);
            weft_scope_end(s);
        }
        cr_assert_lt(loss, 0.1, "%s, of %g at the start", lstm ? "LSTM" : "GRU", log(SYMBOLS));
        echo_close(&k);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

Test(sequences, traced_and_replayed_they_have_the_same_bits)
{
    for (int kind = 0; kind < 4; kind++) {
        echo a, b;
        echo_open(&a, kind % 2);
        echo_open(&b, kind % 2);
        weft_set_num_threads(1 + kind);
        weft_jit *j = weft_jit_trace(echo_step, &b, .frozen = kind / 2);
        for (int i = 0; i < 5; i++) {
            weft_scope s = weft_scope_begin();
            weft_tensor x, y;
            OK(echo_step(&a, NULL, 0, &x, 1));
            OK(weft_jit_call(j, NULL, 0, &y, 1));
            check_bits("loss", x, y);
            for (int p = 0; p < weft_module_count(a.m); p++) {
                check_bits(weft_module_at(a.m, p).name, weft_module_at(a.m, p).tensor,
                           weft_module_at(b.m, p).tensor);
            }
            weft_scope_end(s);
        }
        weft_jit_stats s;
        weft_jit_get_stats(j, &s);
        cr_assert_eq(s.breaks, 0);
        cr_assert(kind < 2 || s.frozen >= 2);
        weft_jit_free(j);
        echo_close(&a);
        echo_close(&b);
    }
}
