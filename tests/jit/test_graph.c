/*
 * tests/jit/test_graph.c -- graphs: recording with symbols, files, runs beside the function itself.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/support.h"
#include "weft/weft.h"

typedef struct model {
    weft_tensor w, b;
} model;

static weft_status forward(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    model *m = self;
    cr_assert(n_in == 1 && n_out == 2);
    weft_tensor h = weft_gelu(weft_linear(in[0], m->w, m->b));
    out[0] = weft_softmax(weft_mul(h, weft_f(0.5)), -1);
    out[1] = weft_sum(h, .axes = weft_axes(0));
    return weft_error_status(out[0]);
}

static model make_model(void)
{
    model m = {weft_randn(weft_shape(5, 3), WEFT_F32), weft_randn(weft_shape(5), WEFT_F32)};
    weft_set_name(m.w, "layer.weight");
    weft_set_name(m.b, "layer.bias");
    return m;
}

static weft_graph *record(model *m, int64_t batch)
{
    weft_tensor x = weft_zeros(weft_shape(batch, 3), WEFT_F32);
    static const weft_graph_dim dims[] = {{0, 0, "batch"}};
    weft_graph *g = weft_jit_graph(forward, m, &x, 1, .n_outputs = 2, .dims = dims, .n_dims = 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    return g;
}

static void check_runs(weft_graph *g, model *m)
{
    static const int64_t sizes[] = {1, 2, 5, 3, 64, 7, 11, 12, 13, 14, 15, 2, 0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        weft_tensor x = weft_randn(weft_shape(sizes[i], 3), WEFT_F32), want[2], got[2];
        cr_assert_eq(forward(m, &x, 1, want, 2), WEFT_OK);
        cr_assert_eq(weft_graph_run(g, &x, 1, got, 2), WEFT_OK, "%s", weft_last_error());
        for (int k = 0; k < 2; k++) {
            cr_assert_eq(weft_nbytes(got[k]), weft_nbytes(want[k]));
            cr_assert_eq(weft_nbytes(got[k]) ? memcmp(weft_data(got[k]), weft_data(want[k]),
                                                      (size_t)weft_nbytes(got[k]))
                                             : 0,
                         0, "batch %d output %d", (int)sizes[i], k);
        }
    }
}

Test(graph, runs_any_batch_saved_or_not)
{
    char path[] = "/tmp/weft_graph_......";
    memset(strchr(path, '.'), 'X', 6);
    close(mkstemp(path));
    model m = make_model();
    weft_graph *g = record(&m, 3); /* as large as an axis of the weights */
    check_runs(g, &m);
    cr_assert_eq(weft_graph_save(g, path), WEFT_OK, "%s", weft_last_error());
    weft_graph_free(g);
    g = weft_graph_load(path);
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_graph_port p;
    cr_assert(weft_graph_inputs(g) == 1 && weft_graph_outputs(g) == 2 &&
              weft_graph_weights(g) == 2);
    cr_assert_eq(weft_graph_input(g, 0, &p), WEFT_OK);
    cr_assert(p.dims[0] == -1 && p.dims[1] == 3 && strcmp(p.symbols[0], "batch") == 0);
    cr_assert_eq(weft_graph_weight(g, 0, &p), WEFT_OK);
    cr_assert_str_eq(p.name, "layer.weight");
    cr_assert_eq(weft_graph_output(g, 0, &p), WEFT_OK);
    cr_assert_eq(weft_graph_output(g, 2, &p), WEFT_EINVALID);
    check_runs(g, &m);
    /* the file is safetensors */
    weft_safetensors *f = weft_safetensors_open(path);
    cr_assert(weft_ok(weft_safetensors_get(f, "layer.bias")));
    cr_assert_not_null(weft_safetensors_metadata(f, "weft.graph"));
    weft_safetensors_close(f);
    /* results outlive the graph */
    weft_tensor x = weft_zeros(weft_shape(2, 3), WEFT_F32), y[2];
    cr_assert_eq(weft_graph_run(g, &x, 1, y, 2), WEFT_OK);
    weft_graph_free(g);
    cr_assert_eq(weft_dim(y[0], 0), 2);
    unlink(path);
}

Test(graph, refuses_wrong_inputs)
{
    model m = make_model();
    weft_graph *g = record(&m, 4);
    weft_tensor y[2];
    weft_tensor x = weft_zeros(weft_shape(4, 4), WEFT_F32);
    cr_assert_eq(weft_graph_run(g, &x, 1, y, 2), WEFT_ESHAPE);
    cr_assert(strstr(weft_last_error(), "input_0"), "%s", weft_last_error());
    x = weft_zeros(weft_shape(4), WEFT_F32);
    cr_assert_eq(weft_graph_run(g, &x, 1, y, 2), WEFT_ESHAPE);
    x = weft_zeros(weft_shape(4, 3), WEFT_F64);
    cr_assert_eq(weft_graph_run(g, &x, 1, y, 2), WEFT_EDTYPE);
    x = WEFT_NONE;
    cr_assert_neq(weft_graph_run(g, &x, 1, y, 2), WEFT_OK);
    cr_assert_eq(weft_graph_run(g, NULL, 0, y, 2), WEFT_EINVALID);
    cr_assert_eq(weft_graph_run(NULL, NULL, 0, y, 2), WEFT_EINVALID);
    weft_graph_free(g);
}

static weft_status flattens(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_reshape(in[0], weft_shape(weft_dim(in[0], 0) * weft_dim(in[0], 1)));
    return WEFT_OK;
}

static weft_status branches(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_dim(in[0], 0) > 50 ? weft_exp(in[0]) : weft_neg(in[0]);
    return WEFT_OK;
}

static weft_status reads(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    double v = 0;
    weft_status s = weft_item(weft_sum(in[0], .axes = weft_axes(0, 1)), &v);
    out[0] = weft_mul(in[0], weft_f(v));
    return s;
}

static weft_status fails(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)in, (void)n_in, (void)out, (void)n_out;
    return WEFT_EINDEX;
}

static weft_status negates(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_neg(in[0]);
    return WEFT_OK;
}

/* Functions that do what a graph cannot, and look at no status: each would make a constant of a value, or drop a write. */
static weft_status looks(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    weft_tensor x = in[0],
                value = self ? *(weft_tensor *)self : weft_select(weft_select(x, 0, 0), 0, 0);
    out[0] = weft_item_f64(value) > 0 ? weft_exp(x) : weft_neg(x);
    return WEFT_OK;
}

static weft_status sums(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_item_f64(weft_sum(in[0])) > 0 ? weft_exp(in[0]) : weft_neg(in[0]);
    return WEFT_OK;
}

static weft_status counts(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    weft_tensor calls = *(weft_tensor *)self;
    weft_add_(calls, weft_i(1));
    out[0] = weft_mul(in[0], calls);
    return WEFT_OK;
}

Test(graph, no_value_becomes_a_constant_unseen)
{
    weft_tensor x = weft_ones(weft_shape(4, 3), WEFT_F32), w = weft_ones(weft_shape(1), WEFT_F32);
    weft_set_name(w, "calls");
    struct {
        const char *what, *says;
        weft_jit_fn fn;
        void *self;
    } cases[] = {{"a computed value", "item", sums, NULL},
                 {"an input's value", "item", looks, NULL},
                 {"a captured value", "item", looks, &w},
                 {"a write to a captured tensor", "'calls'", counts, &w}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_null(weft_jit_graph(cases[i].fn, cases[i].self, &x, 1), "%s", cases[i].what);
        check_status(cases[i].what, weft_last_status(), WEFT_EUNSUPPORTED, cases[i].says);
    }
    cr_assert_eq(weft_item_f64(w), 1);
}

Test(graph, refuses_what_it_cannot_say)
{
    static const weft_graph_dim dims[] = {{0, 0, "n"}};
    weft_tensor x = weft_ones(weft_shape(60, 3), WEFT_F32);
    weft_graph *g = weft_jit_graph(flattens, NULL, &x, 1); /* fine without symbols */
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_graph_free(g);
    cr_assert_null(weft_jit_graph(flattens, NULL, &x, 1, .dims = dims, .n_dims = 1));
    cr_assert(strstr(weft_last_error(), "symbol"), "%s", weft_last_error());
    cr_assert_null(weft_jit_graph(branches, NULL, &x, 1, .dims = dims, .n_dims = 1));
    cr_assert_null(weft_jit_graph(reads, NULL, &x, 1));
    cr_assert_null(weft_jit_graph(fails, NULL, &x, 1));
    cr_assert_null(weft_jit_graph(NULL, NULL, &x, 1));
    static const weft_graph_dim bad[] = {{0, 7, "n"},   {1, 0, "n"},   {0, 0, "no name"},
                                         {0, 0, "a-b"}, {0, 0, "1st"}, {0, 0, ""}};
    for (int i = 0; i < 6; i++) { /* what would not load is not made */
        cr_assert_null(weft_jit_graph(negates, NULL, &x, 1, .dims = &bad[i], .n_dims = 1));
        cr_assert(strstr(weft_last_error(), "dims[0]"), "%s", weft_last_error());
    }
    cr_assert_null(weft_jit_graph(negates, NULL, &x, 1, .name = "my model"));
    cr_assert(strstr(weft_last_error(), "'my model'"), "%s", weft_last_error());
    x = weft_add(x, x); /* tracing has ended */
    cr_assert_eq(weft_item_f64(weft_max(x, .axes = weft_axes(0, 1))), 2.0);
}

/* -- symbols with a range ------------------------------------------------------------------------------ */

/* Positions are the first of 20. */
static weft_status positions(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)n_in, (void)n_out;
    const model *m = self;
    weft_tensor at = weft_narrow(m->w, 0, 0, weft_dim(in[0], 1));
    out[0] = weft_softmax(weft_add(in[0], at), -1);
    return weft_error_status(out[0]);
}

Test(graph, symbols_within_a_range)
{
    static const weft_graph_dim dims[] = {{0, 0, "batch"}, {0, 1, "seq<=20"}},
                                free_dims[] = {{0, 0, "batch"}, {0, 1, "seq"}},
                                small[] = {{0, 1, "seq<=4"}},
                                one[] = {{0, 0, "n<=2"}, {0, 1, "m<=5"}},
                                words[] = {{0, 1, "seq<="},
                                           {0, 1, "seq<=0"},
                                           {0, 1, "seq<=9x"},
                                           {0, 1, "<=9"}};
    static const int64_t sizes[][2] = {{2, 5}, {1, 1}, {3, 20}, {64, 19}, {0, 7}, {20, 20}};
    model m = {weft_randn(weft_shape(20, 3), WEFT_F32), WEFT_NONE};
    weft_tensor x = weft_randn(weft_shape(2, 5, 3), WEFT_F32), want, got;
    weft_graph *g = weft_jit_graph(positions, &m, &x, 1, .dims = dims, .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    char path[] = "/tmp/weft_graph_......";
    memset(strchr(path, '.'), 'X', 6);
    close(mkstemp(path));
    cr_assert_eq(weft_graph_save(g, path), WEFT_OK, "%s", weft_last_error());
    weft_graph_free(g);
    g = weft_graph_load(path);
    unlink(path);
    cr_assert_not_null(g, "%s", weft_last_error());
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        x = weft_randn(weft_shape(sizes[i][0], sizes[i][1], 3), WEFT_F32);
        cr_assert_eq(positions(&m, &x, 1, &want, 1), WEFT_OK);
        cr_assert_eq(weft_graph_run(g, &x, 1, &got, 1), WEFT_OK, "%s", weft_last_error());
        check_bits("positions", want, got);
    }
    x = weft_zeros(weft_shape(2, 21, 3), WEFT_F32);
    cr_assert_eq(weft_graph_run(g, &x, 1, &got, 1), WEFT_ESHAPE);
    cr_assert(strstr(weft_last_error(), "'seq' is at most 20"), "%s", weft_last_error());
    weft_graph_free(g);
    x = weft_zeros(weft_shape(2, 5, 3), WEFT_F32);
    cr_assert_null(
        weft_jit_graph(positions, &m, &x, 1, .dims = free_dims, .n_dims = 2)); /* 21 is as good */
    cr_assert_null(weft_jit_graph(positions, &m, &x, 1, .dims = small, .n_dims = 1));
    cr_assert(strstr(weft_last_error(), "5 in the example"), "%s", weft_last_error());
    for (int i = 0; i < 4; i++) {
        cr_assert_null(weft_jit_graph(negates, NULL, &x, 1, .dims = &words[i], .n_dims = 1));
        cr_assert(strstr(weft_last_error(), "dims[0]"), "%s", weft_last_error());
    }
    g = weft_jit_graph(negates, NULL, &x, 1, .dims = one, .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_graph_free(g);
}

/* An extent that is computed from one symbol. */
static weft_status twice_as_long(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                 int n_out)
{
    (void)n_in, (void)n_out;
    const int64_t n = weft_dim(in[0], 0), *more = self;
    out[0] = weft_zeros(weft_shape(n * more[0] + more[1]), WEFT_F32);
    out[1] = weft_neg(in[0]);
    return weft_error_status(out[0]);
}

/* Sizes of the second recording are not to each other as those of the first: no symbol is taken for twice another. */
Test(graph, symbols_are_told_apart)
{
    static const weft_graph_dim dims[][2] = {{{0, 0, "batch<=4"}, {0, 1, "seq<=8"}},
                                             {{0, 0, "batch"}, {0, 1, "seq"}}};
    static const int64_t sizes[][4] = {{3, 6, 2, 0}, {3, 4, 1, 1}, {3, 9, 1, 6}, {4, 8, 2, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int k = 0; k < 2; k++) {
            weft_tensor x = weft_zeros(weft_shape(sizes[i][0], sizes[i][1]), WEFT_F32);
            cr_assert_null(weft_jit_graph(twice_as_long, (void *)(uintptr_t)&sizes[i][2], &x, 1,
                                          .dims = dims[k], .n_dims = 2, .n_outputs = 2),
                           "case %zu, %d", i, k);
        }
    }
}

/* -- gradients inside --------------------------------------------------------------------------------- */

/* A step of gradient descent: the loss and new weights. */
static weft_status descend(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    const model *m = self;
    weft_set_grad(m->w, WEFT_NONE);
    weft_tensor loss = weft_mean(weft_square(weft_linear(in[0], m->w, m->b)));
    weft_status bad = weft_backward(loss);
    out[0] = weft_detach(loss);
    out[1] =
        bad ? WEFT_NONE : weft_sub(weft_detach(m->w), weft_mul(weft_grad(m->w), weft_f(0.125)));
    return bad ? bad : weft_error_status(out[1]);
}

/* The same behind a graph that cannot be made there. */
static weft_status descend_behind(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                  int n_out)
{
    cr_assert_null(weft_jit_graph(negates, NULL, in, 1));
    return descend(self, in, n_in, out, n_out);
}

/* What a call of weft_grad_of gives. */
static weft_status slope(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor x = weft_clone(in[0]);
    weft_status bad = weft_requires_grad_(x, true);
    weft_tensor y = weft_sum(weft_exp(x));
    return bad ? bad
               : weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                              .grads = out);
}

Test(graph, gradients)
{
    static const weft_graph_dim dims[] = {{0, 0, "batch"}};
    model m = make_model();
    weft_tensor x = weft_randn(weft_shape(4, 3), WEFT_F32), want[2], got[2];
    weft_tensor before = weft_ones(weft_shape(5, 3), WEFT_F32);
    cr_assert_eq(weft_requires_grad_(m.w, true), WEFT_OK);
    cr_assert_eq(weft_set_grad(m.w, before), WEFT_OK);
    weft_graph *g = weft_jit_graph(descend, &m, &x, 1, .n_outputs = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    check_bits("the gradient is what it was", before, weft_grad(m.w));
    cr_assert_eq(weft_graph_run(g, &x, 1, got, 2), WEFT_OK, "%s", weft_last_error());
    check_bits("a run gives none", before, weft_grad(m.w));
    cr_assert_eq(descend(&m, &x, 1, want, 2), WEFT_OK);
    check_bits("loss", want[0], got[0]);
    check_bits("weights", want[1], got[1]);
    weft_graph_free(g);
    cr_assert_eq(weft_set_grad(m.w, before), WEFT_OK);
    g = weft_jit_graph(descend_behind, &m, &x, 1, .n_outputs = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    check_bits("a graph inside changes nothing of that", before, weft_grad(m.w));
    weft_graph_free(g);
    cr_assert_eq(weft_set_grad(m.w, WEFT_NONE), WEFT_OK);
    g = weft_jit_graph(slope, NULL, &x, 1, .dims = dims, .n_dims = 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    cr_assert(!weft_has_grad(m.w));
    x = weft_randn(weft_shape(9, 3), WEFT_F32);
    cr_assert_eq(weft_graph_run(g, &x, 1, got, 1), WEFT_OK, "%s", weft_last_error());
    check_bits("slope", weft_exp(x), got[0]);
    weft_graph_free(g);
}

/* A graph file with this text in the metadata. */
static weft_graph *decode(const char *version, const char *text, const char *inputs,
                          const char *weights, const char *outputs)
{
    weft_metadata meta[] = {{"weft.version", version},
                            {"weft.graph", text},
                            {"weft.inputs", inputs},
                            {"weft.weights", weights},
                            {"weft.outputs", outputs}};
    weft_named_tensor w = {"w", weft_ones(weft_shape(3), WEFT_F32)};
    void *data;
    size_t size;
    cr_assert_eq(weft_safetensors_encode(&w, *weights ? 1 : 0, meta, 5, &data, &size), WEFT_OK);
    weft_graph *g = weft_graph_decode(data, size);
    free(data);
    return g;
}

#define GOOD                                                                                       \
    "fn f symbols(n) {\n  %1 = input f32[n,3]\n  %2 = input f32[3]\n  %3 = mul f32[n,3] %1, %2\n"  \
    "  return %3\n}\n"

Test(graph, hostile_files)
{
    weft_graph *g = decode("1", GOOD, "x\n", "w\n", "y\n");
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_tensor x = weft_full(weft_shape(2, 3), 3, WEFT_F32), y;
    cr_assert_eq(weft_graph_run(g, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(((const float *)weft_data(y))[5], 3.0f);
    weft_graph_free(g);
    cr_assert_null(decode("2", GOOD, "x\n", "w\n", "y\n"));
    cr_assert_null(decode("1", "nonsense", "x\n", "w\n", "y\n"));
    cr_assert_null(decode("1", GOOD, "x\n", "w\n", "y\nz\n"));
    cr_assert_null(decode("1", GOOD, "x\n", "v\n", "y\n"));
    cr_assert_null(decode("1", GOOD, "x\nx\n", "", "y\n"));
    cr_assert_null(decode("1", GOOD, "x", "w\n", "y\n"));
    cr_assert_null(decode("1", GOOD, "", "w\nx\n", "y\n"));
    /* a weight whose extent is a symbol; a symbol of no input; a weight of another type */
    cr_assert_null(
        decode("1", "fn f symbols(n) {\n  %1 = input f32[3]\n  %2 = input f32[n]\n  return %2\n}\n",
               "x\n", "w\n", "y\n"));
    cr_assert_null(decode("1", "fn f {\n  %1 = input f32[3]\n  %2 = input f64[3]\n  return %2\n}\n",
                          "x\n", "w\n", "y\n"));
    cr_assert_null(weft_graph_load("/nonexistent"));
    cr_assert_null(weft_graph_decode("x", 1));
    cr_assert_null(weft_graph_decode(NULL, 0));
}

Test(graph, pictures)
{
    model m = make_model();
    weft_graph *g = record(&m, 4);
    static weft_status (*const shows[])(const weft_graph *, FILE *) = {
        weft_graph_print, weft_graph_dot, weft_graph_svg};
    static const char *const starts[] = {"fn f", "digraph", "<svg"};
    for (int i = 0; i < 3; i++) {
        char *text;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        cr_assert_eq(shows[i](g, out), WEFT_OK);
        fclose(out);
        cr_assert_eq(strncmp(text, starts[i], strlen(starts[i])), 0);
        cr_assert(strstr(text, "gelu"));
        cr_assert(i == 0 || strstr(text, "layer.weight"));
        free(text);
    }
    weft_tensor x = weft_zeros(weft_shape(4, 3), WEFT_F32);
    FILE *null = fopen("/dev/null", "w");
    cr_assert_eq(weft_graph_explain(g, &x, 1, null), WEFT_OK);
    fclose(null);
    weft_graph_free(g);
}
