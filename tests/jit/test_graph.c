/*
 * tests/jit/test_graph.c -- graphs: recording with symbols, files, runs beside the function itself.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/other_locale.h"
#include "tests/support/sanitized.h"
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
    char path[TEST_PATH];
    close(test_new_file(path));
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

/* Fractions as attributes and as scalars. */
static weft_status fractions(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] =
        weft_layer_norm(weft_mul(weft_leaky_relu(in[0], weft_f(0.05)), weft_f(1.5)), .eps = 1e-3);
    return weft_error_status(out[0]);
}

static char *bytes_of(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *b = malloc(1 << 20);
    cr_assert(f && b);
    *n = fread(b, 1, 1 << 20, f);
    fclose(f);
    return b;
}

Test(graph, files_are_the_same_in_every_locale)
{
    char here[TEST_PATH], there[TEST_PATH];
    close(test_new_file(here));
    close(test_new_file(there));
    weft_tensor x = weft_randn(weft_shape(4, 3)), want, got;
    weft_graph *g = weft_jit_graph(fractions, NULL, &x, 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    cr_assert_eq(weft_graph_save(g, here), WEFT_OK);
    if (!test_set_other_locale()) {
        unlink(here);
        unlink(there);
        cr_skip_test("the C library reads no locale made by hand");
    }
    cr_assert_eq(weft_graph_save(g, there), WEFT_OK);
    cr_assert_eq(weft_graph_run(g, &x, 1, &want, 1), WEFT_OK);
    weft_graph_free(g);
    size_t n[2];
    char *a = bytes_of(here, &n[0]), *b = bytes_of(there, &n[1]);
    cr_expect(n[0] == n[1] && n[0] > 100 && memcmp(a, b, n[0]) == 0, "%s\n%s", a + 8, b + 8);
    free(a);
    free(b);
    g = weft_graph_load(here);
    cr_assert_not_null(g, "%s", weft_last_error());
    cr_assert_eq(weft_graph_run(g, &x, 1, &got, 1), WEFT_OK);
    cr_assert_eq(memcmp(weft_data(got), weft_data(want), 48), 0);
    weft_graph_free(g);
    cr_assert(test_other_locale_is_set(), "the caller's locale was changed");
    unlink(here);
    unlink(there);
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
    cr_assert_eq(weft_graph_run(g, NULL, 1, y, 2), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), "NULL"), "%s", weft_last_error());
    cr_assert_eq(weft_graph_run(NULL, NULL, 0, y, 2), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), "the graph is NULL"), "%s", weft_last_error());
    /* results carry the error; an input that is one is told as it was */
    x = weft_zeros(weft_shape(4, 4), WEFT_F32);
    cr_assert_eq(weft_graph_run(g, &x, 1, y, 2), WEFT_ESHAPE);
    cr_assert(strstr(weft_error_text(y[1]), "input_0"), "%s", weft_error_text(y[1]));
    x = weft_matmul(x, weft_zeros(weft_shape(3, 3), WEFT_F32));
    cr_assert_eq(weft_graph_run(g, &x, 1, y, 2), WEFT_ESHAPE);
    cr_assert(strstr(weft_last_error(), "matmul: inner"), "%s", weft_last_error());
    cr_assert_str_eq(weft_error_text(y[0]), weft_error_text(x));
    weft_graph_free(g);
}

/* A tensor that is kept, and which the call fails to compute. */
static weft_status gather_far(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)n_in, (void)n_out;
    weft_tensor *left = self;
    *left = weft_keep(weft_mul(weft_index_select(in[0], 0, in[1]), weft_f(2)));
    out[0] = weft_neg(*left);
    return weft_error_status(out[0]);
}

Test(graph, a_value_that_a_failed_call_left_is_refused)
{
    model m = make_model();
    weft_graph *g = record(&m, 2);
    weft_tensor in[2] = {weft_ones(weft_shape(6, 3), WEFT_F32), weft_arange(4, 9, 1, WEFT_I64)};
    weft_tensor left = WEFT_NONE, y[2];
    weft_jit *j = weft_jit_trace(gather_far, &left, .always_record = true);
    cr_assert_eq(weft_jit_call(j, in, 2, y, 1), WEFT_EINDEX);
    check_status("graph_run", weft_graph_run(g, &left, 1, y, 2), WEFT_EINVALID, "no valid value");
    cr_assert_eq(weft_fill_(left, 1), WEFT_OK);
    cr_assert_eq(weft_graph_run(g, &left, 1, y, 2), WEFT_OK, "%s", weft_last_error());
    weft_free(left);
    weft_jit_free(j);
    weft_graph_free(g);
}

static weft_status doubles(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_add(in[0], in[0]);
    return weft_error_status(out[0]);
}

Test(graph, inputs_and_results_may_be_one_array)
{
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32);
    weft_graph *g = weft_jit_graph(doubles, NULL, &x, 1);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(weft_graph_run(g, &x, 1, &x, 1), WEFT_OK, "%s", weft_last_error());
    }
    cr_assert_eq(weft_item_f64(weft_sum(x)), 3 * 32);
    weft_graph_free(g);
}

/* Caches of a decoder: each takes one row more. */
static weft_status grow_caches(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self;
    for (int i = 0; i < n_out && i + 1 < n_in; i++) {
        out[i] = weft_concat(WEFT_LIST(in[i + 1], weft_add(in[0], weft_f(i))), 1);
    }
    return weft_error_status(out[n_out - 1]);
}

Test(graph, caches_of_many_layers)
{
    enum { CACHES = 2 * 40 };
    char path[TEST_PATH];
    weft_tensor in[CACHES + 1], got[CACHES], want[CACHES];
    weft_graph_dim dims[2 * CACHES + 1] = {{0, 0, "batch"}};
    in[0] = weft_randn(weft_shape(3, 1, 2), WEFT_F32);
    for (int i = 1; i <= CACHES; i++) {
        in[i] = weft_randn(weft_shape(3, 5, 2), WEFT_F32);
        dims[2 * i - 1] = (weft_graph_dim){i, 0, "batch"};
        dims[2 * i] = (weft_graph_dim){i, 1, "past"};
    }
    weft_graph *g = weft_jit_graph(grow_caches, NULL, in, CACHES + 1, CACHES, .dims = dims,
                                   .n_dims = 2 * CACHES + 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    close(test_new_file(path));
    cr_assert_eq(weft_graph_save(g, path), WEFT_OK, "%s", weft_last_error());
    weft_graph_free(g);
    g = weft_graph_load(path);
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_graph_port last;
    cr_assert_eq(weft_graph_output(g, CACHES - 1, &last), WEFT_OK);
    cr_assert_str_eq(last.symbols[1], "past+1");
    for (int64_t past = 0; past < 8; past += 7) {
        in[0] = weft_randn(weft_shape(2, 1, 2), WEFT_F32);
        for (int i = 1; i <= CACHES; i++) {
            in[i] = weft_randn(weft_shape(2, past, 2), WEFT_F32);
        }
        cr_assert_eq(grow_caches(NULL, in, CACHES + 1, want, CACHES), WEFT_OK);
        cr_assert_eq(weft_graph_run(g, in, CACHES + 1, got, CACHES), WEFT_OK, "%s",
                     weft_last_error());
        for (int i = 0; i < CACHES; i++) {
            check_bits("cache", want[i], got[i]);
        }
    }
    in[7] = weft_zeros(weft_shape(2, 6, 2), WEFT_F32);
    cr_assert_eq(weft_graph_run(g, in, CACHES + 1, got, CACHES), WEFT_ESHAPE);
    cr_assert_not_null(strstr(weft_last_error(), "'input_7': axis 1 is 6, but 'past' is 7"), "%s",
                       weft_last_error());
    weft_graph_free(g);
    unlink(path);
}

Test(graph, counts_out_of_range)
{
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32);
    cr_assert_null(weft_jit_graph(doubles, NULL, &x, 65537));
    cr_assert_not_null(strstr(weft_last_error(), "65537 inputs: a graph has 0 to 65536"), "%s",
                       weft_last_error());
    cr_assert_null(weft_jit_graph(doubles, NULL, &x, -1));
    cr_assert_null(weft_jit_graph(doubles, NULL, &x, 1, 65537));
    cr_assert_not_null(strstr(weft_last_error(), "65537 outputs: a graph has 1 to 65536"), "%s",
                       weft_last_error());
    static const weft_graph_dim dim = {0, 0, "n"};
    cr_assert_null(weft_jit_graph(doubles, NULL, &x, 1, .dims = &dim, .n_dims = -1));
    cr_assert_null(weft_jit_graph(doubles, NULL, &x, 1, .n_dims = 1));
}

static weft_status sums_of_weights(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                   int n_out)
{
    (void)n_in;
    const weft_tensor *w = self;
    for (int i = 0; i < n_out; i++) {
        out[i] = weft_add(in[0], weft_sum(weft_cast(w[i], WEFT_F32)));
    }
    return weft_error_status(out[0]);
}

/* Weights of whole lines of 64 bytes are mapped on lines, whatever lies beside them. */
Test(graph, weights_lie_on_lines)
{
    enum { WEIGHTS = 7 };
    static const struct {
        weft_dtype dtype;
        int64_t n;
    } kinds[WEIGHTS] = {{WEFT_F64, 3},  {WEFT_F32, 16}, {WEFT_F32, 5}, {WEFT_BOOL, 7},
                        {WEFT_F16, 64}, {WEFT_I64, 8},  {WEFT_BF16, 0}};
    char path[TEST_PATH], name[16];
    close(test_new_file(path));
    weft_tensor w[WEIGHTS], x = weft_ones(weft_shape(2), WEFT_F32), want[WEIGHTS], got[WEIGHTS];
    for (int i = 0; i < WEIGHTS; i++) {
        w[i] = weft_cast(weft_arange(1, (double)kinds[i].n + 1, 1, WEFT_F32), kinds[i].dtype);
        snprintf(name, sizeof name, "w%d", i);
        weft_set_name(w[i], name);
    }
    weft_graph *g = weft_jit_graph(sums_of_weights, w, &x, 1, WEIGHTS);
    cr_assert_not_null(g, "%s", weft_last_error());
    cr_assert_eq(weft_graph_save(g, path), WEFT_OK, "%s", weft_last_error());
    weft_graph_free(g);
    weft_safetensors *f = weft_safetensors_open(path);
    for (int i = 0; i < WEIGHTS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        weft_tensor t = weft_safetensors_get(f, name);
        cr_assert(weft_ok(t), "%s", weft_last_error());
        if (weft_nbytes(t) && weft_nbytes(t) % 64 == 0) {
            cr_assert_eq((uintptr_t)weft_data(t) % 64, 0, "%s", name);
        }
    }
    weft_safetensors_close(f);
    g = weft_graph_load(path);
    cr_assert_not_null(g, "%s", weft_last_error());
    cr_assert_eq(sums_of_weights(w, &x, 1, want, WEIGHTS), WEFT_OK);
    cr_assert_eq(weft_graph_run(g, &x, 1, got, WEIGHTS), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < WEIGHTS; i++) {
        check_bits("sum", want[i], got[i]);
    }
    weft_graph_free(g);
    unlink(path);
}

/* What is saved loads: names are distinct, whatever tensors are called. */
static weft_status scaled(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const weft_tensor *w = self;
    (void)n_in, (void)n_out;
    out[0] = weft_mul(weft_add(weft_mul(in[0], w[0]), w[1]), w[2]);
    out[1] = weft_add(in[0], w[0]);
    return weft_error_status(out[0]);
}

Test(graph, names_are_distinct)
{
    static const char *const called[][3] = {{"x", "x", "x"},
                                            {"w_2", "w_1", "w"},
                                            {"w_2", "w", "w"},
                                            {"x_1", "x", "x_0"},
                                            {"", "", ""},
                                            {"weight_1", "", "x_2"},
                                            {"\xe9", "__metadata__", "\xc3\xa9"}};
    static const char *const one[] = {"x"}, *const both[] = {"x", "y"}, *const twice[] = {"x", "x"};
    char path[TEST_PATH];
    close(test_new_file(path));
    weft_tensor x = weft_randn(weft_shape(4), WEFT_F32), want[2], got[2];
    for (size_t i = 0; i < sizeof called / sizeof *called; i++) {
        weft_tensor w[3];
        for (int k = 0; k < 3; k++) {
            w[k] = weft_randn(weft_shape(4), WEFT_F32);
            weft_set_name(w[k], called[i][k]);
        }
        weft_graph *g =
            weft_jit_graph(scaled, w, &x, 1, 2, .input_names = one, .output_names = both);
        cr_assert_not_null(g, "%s", weft_last_error());
        cr_assert_eq(weft_graph_save(g, path), WEFT_OK, "%s", weft_last_error());
        weft_graph_free(g);
        g = weft_graph_load(path);
        cr_assert_not_null(g, "%zu: %s", i, weft_last_error());
        cr_assert_eq(scaled(w, &x, 1, want, 2), WEFT_OK);
        cr_assert_eq(weft_graph_run(g, &x, 1, got, 2), WEFT_OK, "%s", weft_last_error());
        check_bits("scaled", want[0], got[0]);
        weft_graph_free(g);
    }
    unlink(path);
    weft_tensor w[] = {x, x, x};
    cr_assert_null(weft_jit_graph(scaled, w, &x, 1, 2, .output_names = twice));
    cr_assert_not_null(strstr(weft_last_error(), "two outputs are called 'x'"), "%s",
                       weft_last_error());
    const char *const bad[] = {"\xe9"};
    cr_assert_null(weft_jit_graph(scaled, w, &x, 1, 2, .input_names = bad));
    cr_assert_null(weft_jit_graph(
        scaled, w, &x, 1, 2, .dims = (weft_graph_dim[]){{0, 0, "n"}, {0, 0, "m"}}, .n_dims = 2));
    cr_assert_not_null(strstr(weft_last_error(), "axis 0 of input 0 is 'n' already"), "%s",
                       weft_last_error());
}

static weft_status cubes_size(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    const int64_t n = weft_dim(in[0], 0);
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_zeros(weft_shape(n * n * n), WEFT_F32);
    return WEFT_OK;
}

static weft_status halves_size(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_slice(in[0], 0, 0, WEFT_OMIT, 2);
    return WEFT_OK;
}

static weft_status clamps_size(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const int64_t n = weft_dim(in[0], 0);
    out[0] = weft_zeros(weft_shape(n < 40 ? n : 40), WEFT_F32);
    return WEFT_OK;
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
    weft_jit *j = weft_jit_trace(NULL, .always_record = true);
    cr_assert_eq(weft_jit_begin(j), WEFT_OK);
    cr_assert_null(weft_jit_graph(negates, NULL, &x, 1));
    check_status("in a region", weft_last_status(), WEFT_EINVALID, "make it before or behind");
    cr_assert_eq(weft_jit_end(j), WEFT_OK, "%s", weft_last_error());
    weft_jit_free(j);
}

Test(graph, refuses_what_it_cannot_say)
{
    static const weft_graph_dim dims[] = {{0, 0, "n"}};
    weft_tensor x = weft_ones(weft_shape(60, 3), WEFT_F32);
    weft_graph *g = weft_jit_graph(flattens, NULL, &x, 1); /* fine without symbols */
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_graph_free(g);
    cr_assert_null(weft_jit_graph(cubes_size, NULL, &x, 1, .dims = dims, .n_dims = 1));
    cr_assert(strstr(weft_last_error(), "symbol"), "%s", weft_last_error());
    cr_assert_null(weft_jit_graph(halves_size, NULL, &x, 1, .dims = dims, .n_dims = 1));
    cr_assert(strstr(weft_last_error(), "products of two of them"), "%s", weft_last_error());
    cr_assert_null(weft_jit_graph(clamps_size, NULL, &x, 1, .dims = dims, .n_dims = 1));
    cr_assert_null(weft_jit_graph(branches, NULL, &x, 1, .dims = dims, .n_dims = 1));
    cr_assert_null(weft_jit_graph(reads, NULL, &x, 1));
    cr_assert_null(weft_jit_graph(fails, NULL, &x, 1));
    cr_assert_null(weft_jit_graph(NULL, NULL, &x, 1));
    cr_assert_null(weft_jit_graph(negates, NULL, &x, 1, .n_outputs = 2));
    cr_assert(strstr(weft_last_error(), "setting out[1]"), "%s", weft_last_error());
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
                                words[] = {
                                    {0, 1, "seq<="},     {0, 1, "seq<=0"},
                                    {0, 1, "seq<=9x"},   {0, 1, "<=9"},
                                    {0, 1, "3<=seq<=2"}, {0, 1, "3<seq"},
                                    {0, 1, "0<=seq"},    {0, 1, "99999999999999999999<=seq"}};
    static const int64_t sizes[][2] = {{2, 5}, {1, 1}, {3, 20}, {64, 19}, {0, 7}, {20, 20}};
    model m = {weft_randn(weft_shape(20, 3), WEFT_F32), WEFT_NONE};
    weft_tensor x = weft_randn(weft_shape(2, 5, 3), WEFT_F32), want, got;
    weft_graph *g = weft_jit_graph(positions, &m, &x, 1, .dims = dims, .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    g = test_reloaded(g);
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
    m.w = weft_randn(weft_shape(64, 3), WEFT_F32); /* enough for recordings, not for any size */
    cr_assert_null(weft_jit_graph(positions, &m, &x, 1, .dims = free_dims, .n_dims = 2));
    cr_assert(strstr(weft_last_error(), "slice (%") &&
                  strstr(weft_last_error(), "give the symbol that range"),
              "%s", weft_last_error());
    cr_assert_null(weft_jit_graph(positions, &m, &x, 1, .dims = small, .n_dims = 1));
    cr_assert(strstr(weft_last_error(), "5 in the example"), "%s", weft_last_error());
    for (int i = 0; i < 8; i++) {
        cr_assert_null(weft_jit_graph(negates, NULL, &x, 1, .dims = &words[i], .n_dims = 1));
        cr_assert(strstr(weft_last_error(), "dims[0]"), "%s", weft_last_error());
    }
    g = weft_jit_graph(negates, NULL, &x, 1, .dims = one, .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_graph_free(g);
}

/* One result of an input x and its first extent n. */
#define MADE(name, ...)                                                                            \
    static weft_status name(void *self, const weft_tensor *in, int n_in, weft_tensor *out,         \
                            int n_out)                                                             \
    {                                                                                              \
        (void)self, (void)n_in, (void)n_out;                                                       \
        const weft_tensor x = in[0];                                                               \
        const int64_t n = weft_dim(x, 0);                                                          \
        weft_tensor b = WEFT_NONE;                                                                 \
        (void)n, (void)b;                                                                          \
        out[0] = __VA_ARGS__;                                                                      \
        return weft_error_status(out[0]);                                                          \
    }
static weft_tensor rows(weft_tensor x, int64_t from, int64_t to)
{
    return weft_slice(x, 0, from, to, 1);
}

/* The graph's text has this in it. */
static void check_says(const weft_graph *g, const char *what)
{
    char *text = test_written(g, weft_graph_print);
    cr_assert(strstr(text, what), "no %s in %s", what, text);
    free(text);
}

MADE(convolves, weft_conv2d(x, ((const model *)self)->w))
MADE(past_two, weft_max(rows(x, 2, WEFT_OMIT)))
/* A row of n from one of m. */
MADE(takes_some, weft_add(weft_narrow(in[1], 0, 0, n), x))

static weft_status wants_four(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_exp(in[0]);
    return weft_dim(in[0], 0) < 4 ? WEFT_EINVALID : WEFT_OK;
}

/* n wants to be 2 by the function alone, m 4 by its rows, too, so that with 1 of both nothing is compared. */
MADE(pairs_and_four, weft_add(weft_sum(weft_unfold(x, 0, 2, 1)), rows(in[1], 0, 4)))

/* What the rows of a function, or the function, want of a size is found, printed, read again and said when a run has another. */
Test(graph, ranges_are_found)
{
    static const struct {
        weft_jit_fn fn;
        const char *dim, *range, *cause;
        int64_t good, bad;
    } cases[] = {
        {convolves, "n", "symbols(3<=n)", "conv2d (%3, test_graph.c:", 3, 2},
        {past_two, "n", "symbols(3<=n)", "the max of nothing", 3, 2},
        {past_two, "5<=n", "symbols(5<=n)", "'n' is at least 5", 5, 4},
        {past_two, "2<=n<=600", "symbols(3<=n<=600)", "'n' is at most 600", 600, 601},
        {wants_four, "n", "symbols(4<=n)", "'n' is at least 4", 4, 3},
        {wants_four, "100<=n<=101", "symbols(100<=n<=101)", "'n' is at least 100", 101, 99}};
    model m = {weft_randn(weft_shape(2, 1, 3, 3)), WEFT_NONE};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool image = cases[i].fn == convolves;
        weft_shape shape = image ? weft_shape(1, 1, 9, 9) : weft_shape(cases[i].good > 9 ? 100 : 9);
        const int axis = image ? 2 : 0;
        weft_tensor x = weft_ones(shape, WEFT_F32), y, want;
        weft_graph *g =
            weft_jit_graph(cases[i].fn, &m, &x, 1,
                           .dims = (weft_graph_dim[]){{0, axis, cases[i].dim}}, .n_dims = 1);
        cr_assert_not_null(g, "%s: %s", cases[i].range, weft_last_error());
        for (int saved = 0; saved < 2; saved++) {
            check_says(g, cases[i].range);
            shape.v[axis] = cases[i].good;
            x = weft_randn(shape, WEFT_F32);
            cr_assert_eq(cases[i].fn(&m, &x, 1, &want, 1), WEFT_OK);
            cr_assert_eq(weft_graph_run(g, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
            check_bits(cases[i].range, want, y);
            shape.v[axis] = cases[i].bad;
            x = weft_randn(shape, WEFT_F32);
            check_status("out of range", weft_graph_run(g, &x, 1, &y, 1), WEFT_ESHAPE,
                         cases[i].cause);
            cr_assert(strstr(weft_last_error(), "input 'input_0': axis ") &&
                          strstr(weft_last_error(), "but 'n' is at "),
                      "%s", weft_last_error());
            g = saved ? g : test_reloaded(g);
        }
        weft_graph_free(g);
    }
    /* how two sizes are to one another is no range of either */
    weft_tensor two[2] = {weft_ones(weft_shape(5), WEFT_F32), weft_ones(weft_shape(40), WEFT_F32)},
                y;
    weft_graph *g =
        weft_jit_graph(takes_some, NULL, two, 2,
                       .dims = (weft_graph_dim[]){{0, 0, "n"}, {1, 0, "100<=m"}}, .n_dims = 2);
    cr_assert_null(g);
    cr_assert(strstr(weft_last_error(), "at least 100"), "%s", weft_last_error());
    g = weft_jit_graph(takes_some, NULL, two, 2,
                       .dims = (weft_graph_dim[]){{0, 0, "n<=7"}, {1, 0, "8<=m"}}, .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    check_says(g, "symbols(n<=7, 8<=m)");
    two[1] = weft_ones(weft_shape(8), WEFT_F32);
    cr_assert_eq(weft_graph_run(g, two, 2, &y, 1), WEFT_OK, "%s", weft_last_error());
    weft_graph_free(g);
    g = weft_jit_graph(pairs_and_four, NULL, two, 2,
                       .dims = (weft_graph_dim[]){{0, 0, "n"}, {1, 0, "m"}}, .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    check_says(g, "symbols(2<=n, 4<=m)");
    weft_graph_free(g);
}

MADE(fours, weft_sum(weft_reshape(x, weft_shape(-1, 4)), .axes = weft_axes(1)))
MADE(half_rows, weft_reshape(weft_tile(x, weft_shape(6)), weft_shape(n / 2, -1)))
MADE(six_of_four,
     weft_reshape(weft_concat((weft_tensor[]){x, rows(x, 0, n / 2)}, 2, 0), weft_shape(-1, 6)))
MADE(halves, weft_add(rows(x, 0, n / 2), rows(x, n / 2, n)))
MADE(but_the_first, weft_exp(weft_reshape(rows(x, 8, WEFT_OMIT), weft_shape(-1, 8))))
MADE(strided, weft_conv2d(x, ((const model *)self)->w, .stride = weft_shape(2, 2),
                          .padding = weft_shape(1, 1)))
/* A first row, and what is four to a row behind it. */
MADE(first_apart, (b = rows(x, 0, 1), /* of two arguments the compiler may choose either first */
                   weft_add(weft_reshape(rows(x, 1, WEFT_OMIT), weft_shape(-1, 4)), b)))
MADE(odd_halves, weft_mul(rows(x, 0, n / 2), rows(x, n / 2 + 1, n)))
/* Sixteen halves are read where there are that many. */
MADE(positioned, weft_add(weft_reshape(x, weft_shape(-1, 2)),
                          weft_narrow(((const model *)self)->w, 0, 0, n / 2)))

static weft_status wants_even(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_exp(in[0]);
    return weft_dim(in[0], 0) % 2 ? WEFT_EINVALID : WEFT_OK;
}

/* x twice, at multiples of 4 and at 13; at 4 it is another function. A range may have too few multiples to say that 2n is an extent. */
static weft_status doubles_some(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const int64_t n = weft_dim(in[0], 0);
    out[0] = weft_concat((weft_tensor[]){in[0], in[0]}, 2, 0);
    out[0] = n == 4 ? weft_neg(out[0]) : out[0];
    return n % 4 && n != 13 ? WEFT_EINVALID : WEFT_OK;
}

/* Of a function that goes with multiples only it is found what of, and printed, read again, and said when a run has another. */
Test(graph, multiples_are_found)
{
    static const struct {
        weft_jit_fn fn;
        const char *dim, *range, *cause;
        int64_t example, good, bad;
    } cases[] = {
        {fours, "n", "symbols(n%4==0)", "'n' is a multiple of 4: reshape (%2, test_graph.c:", 8, 4,
         6},
        {fours, "n", "f32[n/4,4]", "'n' is a multiple of 4", 4, 0, 1},
        {fours, "n%8==0", "symbols(n%8==0)", "'n' is a multiple of 8", 16, 64, 12},
        {fours, "6<=n<=64", "symbols(8<=n<=64, n%4==0)", "'n' is a multiple of 4", 64, 8, 9},
        {fours, "6<=n<=66, n%2==0", "symbols(8<=n<=66, n%4==0)", "'n' is at most 66", 64, 64, 68},
        {six_of_four, "n", "f32[n/4,6]", "'n' is a multiple of 4", 12, 20, 22},
        {halves, "n", "slice f32[n/2]", "'n' is a multiple of 2", 10, 2, 7},
        {but_the_first, "n", "f32[n/8-1,8]", "'n' is at least 8", 24, 8, 0},
        {but_the_first, "n", "symbols(8<=n, n%8==0)", "'n' is a multiple of 8", 24, 40, 42},
        {positioned, "n<=32", "symbols(n<=32, n%2==0)", "'n' is a multiple of 2", 12, 32, 31},
        {wants_even, "n", "symbols(n%2==0)", "'n' is a multiple of 2", 8, 2, 3},
        {doubles_some, "7<=n<=13", "symbols(8<=n<=13)", "'n' is at least 8", 8, 13, 7},
        {doubles_some, "7<=n<=13", "concat f32[2*n]", "'n' is at most 13", 8, 12, 14},
        {first_apart, "n", "symbols(n%4==1)", "'n' is 1 more than a multiple of 4: reshape (%4,",
         13, 1, 12},
        {first_apart, "n", "f32[n/4,4]", "'n' is 1 more than a multiple of 4", 5, 41, 7},
        {first_apart, "n%3==2", "symbols(n%12==5)", "'n' is 5 more than a multiple of 12", 17, 29,
         20},
        {odd_halves, "n<=64", "symbols(n<=64, n%2==1)", "'n' is 1 more than a multiple of 2", 7, 1,
         8},
        {strided, "n%2==1", "f32[1,2,n/2+1,4]", "'n' is 1 more than a multiple of 2", 9, 1, 8},
        {strided, "n%2==0", "f32[1,2,n/2,4]", "'n' is a multiple of 2", 8, 10, 9}};
    model m = {weft_randn(weft_shape(2, 1, 3, 3)), WEFT_NONE};
    const model table = {weft_randn(weft_shape(16, 2)), WEFT_NONE};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool image = cases[i].fn == strided;
        weft_shape shape =
            image ? weft_shape(1, 1, cases[i].example, 8) : weft_shape(cases[i].example);
        const int axis = image ? 2 : 0;
        model of = cases[i].fn == positioned ? table : m;
        weft_tensor x = weft_ones(shape, WEFT_F32), y, want;
        weft_graph *g =
            weft_jit_graph(cases[i].fn, &of, &x, 1,
                           .dims = (weft_graph_dim[]){{0, axis, cases[i].dim}}, .n_dims = 1);
        cr_assert_not_null(g, "%s: %s", cases[i].range, weft_last_error());
        for (int saved = 0; saved < 2; saved++) {
            check_says(g, cases[i].range);
            for (int k = 0; k < 2; k++) {
                shape.v[axis] = k ? cases[i].good : cases[i].example;
                x = weft_randn(shape, WEFT_F32);
                cr_assert_eq(cases[i].fn(&of, &x, 1, &want, 1), WEFT_OK, "%s", weft_last_error());
                cr_assert_eq(weft_graph_run(g, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
                check_bits(cases[i].range, want, y);
            }
            shape.v[axis] = cases[i].bad;
            x = weft_randn(shape, WEFT_F32);
            check_status("no multiple", weft_graph_run(g, &x, 1, &y, 1), WEFT_ESHAPE,
                         cases[i].cause);
            cr_assert(strstr(weft_last_error(), "input 'input_0': axis "), "%s", weft_last_error());
            g = saved ? g : test_reloaded(g);
        }
        weft_graph_free(g);
    }
}

/* Two symbols, one of them divided; what is no multiple, or of too much, is refused with its reason. */
static weft_status all_as_they_are(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                                   int n_out)
{
    (void)user, (void)n_out;
    bool all = true;
    for (int i = 0; i < n_in; i++) {
        all = all && weft_dim(in[i], 0) == 3 && weft_dim(in[i], 1) == 3;
    }
    out[0] = all ? weft_relu(in[0]) : weft_reshape(in[0], weft_shape(7, 9999));
    return weft_error_status(out[0]);
}

/* Of many symbols pairs are tried, each of which fails: what failed first is told all the same, and sizes in whole. */
Test(graph, the_cause_is_told_for_many_symbols)
{
    weft_graph_dim dims[14];
    weft_tensor x[7];
    char names[14][4];
    for (int i = 0; i < 14; i++) {
        snprintf(names[i], sizeof names[i], "s%d", i);
        dims[i] = (weft_graph_dim){i / 2, i % 2, names[i]};
        x[i / 2] = weft_zeros(weft_shape(3, 3), WEFT_F32);
    }
    cr_assert_null(weft_jit_graph(all_as_they_are, NULL, x, 7, .dims = dims, .n_dims = 14));
    const char *said = weft_last_error();
    cr_assert(strstr(said, "fails where 's0' is ") && strstr(said, ", ...: ") &&
                  strstr(said, "reshape: 12091 elements do not fill"),
              "%s", said);
}

Test(graph, multiples_of_symbols)
{
    static const struct {
        weft_jit_fn fn;
        weft_graph_dim dim[2];
        int n;
        int64_t size;
        const char *says;
    } bad[] = {
        {fours, {{0, 0, "n%3==0"}}, 1, 8, "8 in the example, but a multiple of 3"},
        {fours, {{0, 0, "n%3==0"}}, 1, 9, "reshape"},
        {half_rows, {{0, 0, "n"}}, 1, 8, "with other sizes, too, fails where 'n' is "}, /* 7 goes */
        {negates, {{0, 0, "n%1000==0"}, {0, 0, "n%1024==0"}}, 2, 128000, "more than 1024"},
        {negates, {{0, 0, "n%4==0"}, {0, 0, "n%6==0"}}, 2, 8, "a multiple of 12"},
        {negates, {{0, 0, "4<=n<=4, n%4==0"}}, 1, 4, "'4<=n<=4, n%4==0' leaves no other"},
        {doubles_some, {{0, 0, "3<=n<=13"}}, 1, 8, "something else where 'n' is 4"},
        {negates, {{0, 0, "n%0==0"}}, 1, 8, "dims[0]: 'n%0==0'"},
        {negates, {{0, 0, "n%4==4"}}, 1, 8, "dims[0]: 'n%4==4'"},
        {negates, {{0, 0, "n%4==-1"}}, 1, 8, "dims[0]: 'n%4==-1'"},
        {negates, {{0, 0, "n%4==1"}}, 1, 8, "8 in the example, but 1 more than a multiple of 4"},
        {negates, {{0, 0, "n%4==1"}, {0, 0, "n%6==2"}}, 2, 9, "leave two remainders"},
        {first_apart, {{0, 0, "n%4==2"}}, 1, 6, "reshape"},
        {negates, {{0, 0, "n, m"}}, 1, 8, "dims[0]: 'n, m'"},
        {negates, {{0, 0, "n) { return } ;"}}, 1, 8, "dims[0]: 'n) { return } ;'"},
        {strided, {{0, 2, "n"}}, 1, 8, "a quotient can be one where only multiples are sizes"}};
    model m = {weft_randn(weft_shape(2, 1, 3, 3)), WEFT_NONE};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_tensor x = bad[i].fn == strided ? weft_ones(weft_shape(1, 1, 8, 8), WEFT_F32)
                                             : weft_ones(weft_shape(bad[i].size), WEFT_F32);
        weft_graph *g =
            weft_jit_graph(bad[i].fn, &m, &x, 1, .dims = bad[i].dim, .n_dims = bad[i].n);
        cr_assert_null(g, "case %zu", i);
        cr_assert(strstr(weft_last_error(), bad[i].says), "%s in %s", bad[i].says,
                  weft_last_error());
    }
    weft_clear_error();
    weft_tensor x = weft_randn(weft_shape(6, 4), WEFT_F32), y;
    weft_graph *g = weft_jit_graph(
        six_of_four, NULL, &x, 1,
        .dims = (weft_graph_dim[]){{0, 0, "rows"}, {0, 1, "cols, cols%2==0"}}, .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    check_says(g, "symbols(rows%2==0, cols%2==0)"); /* is found; a product of symbols, divided */
    weft_tensor wide = weft_randn(weft_shape(12, 10), WEFT_F32), sixes;
    cr_assert_eq(six_of_four(NULL, &wide, 1, &sixes, 1), WEFT_OK);
    cr_assert_eq(weft_graph_run(g, &wide, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    check_bits("sixes", sixes, y);
    weft_graph_free(g);
    g = weft_jit_graph(halves, NULL, &x, 1,
                       .dims = (weft_graph_dim[]){{0, 0, "rows"}, {0, 1, "cols, cols%2==0"}},
                       .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    cr_assert_str_eq(weft_last_error(), ""); /* failures at other sizes are nobody's */
    check_says(g, "symbols(rows%2==0, cols%2==0)");
    weft_graph_port p;
    cr_assert_eq(weft_graph_output(g, 0, &p), WEFT_OK);
    cr_assert_str_eq(p.symbols[0], "rows/2");
    x = weft_randn(weft_shape(14, 22), WEFT_F32);
    cr_assert_eq(weft_graph_run(g, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    weft_graph_free(g);
}

/* -- branches on a size ------------------------------------------------------------------------------------------ */

/* One thing where the size is as `self` says, else another. */
typedef struct branch {
    char how; /* '=', '<', or of other tensors: 'w' one of two, 'c' a constant, 'n' a number */
    int64_t n;
    weft_tensor w[2];
} branch;

static weft_status branch_on_size(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                  int n_out)
{
    (void)n_in, (void)n_out;
    const branch *b = self;
    const int64_t n = weft_dim(in[0], 0);
    const bool yes = b->how == '=' ? n == b->n : n < b->n;
    const float number = b->how == 'n' ? 1 / (float)n : 3;
    if (b->how == 'w') {
        out[0] = weft_mul(in[0], b->w[yes]);
    } else if (b->how == 'c' || b->how == 'n') {
        out[0] = weft_mul(in[0], weft_from_data(&number, weft_shape(1), WEFT_F32));
    } else {
        out[0] = yes ? weft_neg(in[0]) : weft_relu(in[0]);
    }
    return weft_error_status(out[0]);
}

Test(graph, branches_on_a_size_are_refused)
{
    struct {
        branch b;
        const char *dim, *says; /* NULL: it is fine */
    } cases[] = {{{.how = '=', .n = 1}, "n", "'n' is 1: %2 neg at test_graph.c:"},
                 {{.how = '=', .n = 2}, "n", "'n' is 2: %2 neg"},
                 {{.how = '<', .n = 2}, "n", "'n' is 1: %2 neg"},
                 {{.how = '<', .n = 4}, "n", "'n' is 1: %2 neg"},
                 {{.how = '<', .n = 6}, "n", "does something else"},
                 {{.how = '<', .n = 2048}, "n", "relu at test_graph.c:"},
                 {{.how = '<', .n = 60}, "n<=64", "'n' is 64: %2 relu"},
                 {{.how = '=', .n = 1}, "n<=6", "'n' is 1"},
                 {{.how = '<', .n = 0}, "n", NULL},
                 {{.how = '<', .n = 65}, "n<=64", NULL},
                 {{.how = 'w', .n = 6}, "n", "'small'"},
                 {{.how = 'w', .n = 3}, "n", "reads other tensors from outside"},
                 {{.how = 'n'}, "n", "reads other tensors from outside"},
                 {{.how = 'c'}, "n", NULL}};
    weft_tensor w[2] = {weft_ones(weft_shape(3), WEFT_F32), weft_zeros(weft_shape(3), WEFT_F32)};
    weft_set_name(w[0], "large");
    weft_set_name(w[1], "small");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tensor x = weft_ones(weft_shape(5, 3), WEFT_F32);
        branch b = cases[i].b;
        memcpy(b.w, w, sizeof w);
        weft_clear_error();
        weft_graph *g =
            weft_jit_graph(branch_on_size, &b, &x, 1,
                           .dims = (weft_graph_dim[]){{0, 0, cases[i].dim}}, .n_dims = 1);
        cr_assert_eq(g == NULL, cases[i].says != NULL, "case %d: %s", (int)i, weft_last_error());
        if (!g) {
            check_status("branch", weft_last_status(), WEFT_EUNSUPPORTED, cases[i].says);
        }
        weft_graph_free(g);
    }
}

/* -- two symbols -------------------------------------------------------------------------------------------------- */

MADE(adds, weft_add(in[0], weft_mul(in[1], weft_f(2))))
MADE(takes_some_of_first, weft_add(weft_narrow(in[0], 0, 0, weft_dim(in[1], 0)), in[1]))
MADE(joins, weft_concat(((weft_tensor[]){in[0], in[1]}), 2, 0))
MADE(pairs,
     weft_reshape(weft_mul(weft_unsqueeze(in[0], 1), in[1]), weft_shape(n *weft_dim(in[1], 0))))
/* Two things, by how the sizes are to one another. */
MADE(alike, n == weft_dim(in[1], 0) ? weft_neg(in[1]) : weft_exp(in[1]))
MADE(ordered, n <= weft_dim(in[1], 0) ? weft_neg(in[1]) : weft_exp(in[1]))
MADE(one_of_many, n == 1 && weft_dim(in[1], 0) > 1 ? weft_neg(in[1]) : weft_exp(in[1]))
MADE(many_of_one, n > 1 && weft_dim(in[1], 0) == 1 ? weft_neg(in[1]) : weft_exp(in[1]))

/* How two sizes are to one another is found where it can be said, else named. */
Test(graph, conditions_on_two_symbols)
{
    static const struct {
        weft_jit_fn fn;
        int64_t n, m;
        const char *says; /* NULL: it is fine */
    } cases[] = {
        {takes_some, 5, 5, NULL}, /* n <= m */
        {takes_some_of_first, 5, 5, NULL},
        {takes_some_of_first, 9, 5, NULL},
        {adds, 5, 5, "'n' and 'm' have to be one size, so give both axes one name; where"},
        {alike, 5, 5, "'n' and 'm' have to be one size, so give both axes one name; where"},
        {alike, 5, 4, "something else where 'n' is 1, 'm' is 1: %3 neg"},
        {ordered, 4, 5, "'n' is 4, 'm' is 1: %3 exp"},
        {one_of_many, 4, 5, "'n' is 1, 'm' is 5: %3 neg"},
        {many_of_one, 4, 5, "'n' is 4, 'm' is 1: %3 neg"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tensor x[2] = {weft_ones(weft_shape(cases[i].n), WEFT_F32),
                            weft_ones(weft_shape(cases[i].m), WEFT_F32)},
                    y, want;
        weft_clear_error();
        weft_graph *g =
            weft_jit_graph(cases[i].fn, NULL, x, 2,
                           .dims = (weft_graph_dim[]){{0, 0, "n"}, {1, 0, "m"}}, .n_dims = 2);
        cr_assert_eq(g == NULL, cases[i].says != NULL, "case %d: %s", (int)i, weft_last_error());
        if (!g) {
            cr_assert_neq(weft_last_status(), WEFT_OK);
            cr_assert(strstr(weft_last_error(), cases[i].says), "case %d: %s", (int)i,
                      weft_last_error());
            continue;
        }
        cr_assert_str_eq(weft_last_error(), "");
        const bool first = cases[i].fn == takes_some_of_first; /* is the larger one */
        x[first ? 0 : 1] = weft_randn(weft_shape(11), WEFT_F32);
        x[first ? 1 : 0] = weft_randn(weft_shape(6), WEFT_F32);
        cr_assert_eq(cases[i].fn(NULL, x, 2, &want, 1), WEFT_OK);
        cr_assert_eq(weft_graph_run(g, x, 2, &y, 1), WEFT_OK, "%s", weft_last_error());
        check_bits("n <= m", want, y);
        x[first ? 0 : 1] = weft_randn(weft_shape(5), WEFT_F32);
        cr_assert_neq(weft_graph_run(g, x, 2, &y, 1), WEFT_OK);
        weft_graph_free(g);
    }
    weft_tensor x[2] = {weft_ones(weft_shape(5), WEFT_F32), weft_ones(weft_shape(5), WEFT_F32)};
    weft_graph *g =
        weft_jit_graph(adds, NULL, x, 2, .dims = (weft_graph_dim[]){{0, 0, "n"}, {1, 0, "n"}},
                       .n_dims = 2); /* as it was told */
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_graph_free(g);
}

/* Most bytes that the process has had in memory. */
static double most_resident(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)r.ru_maxrss * 1024;
}

static weft_status rectified(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_relu(in[0]);
    return weft_error_status(out[0]);
}

/* What is recorded at a size far above the example's costs no memory there: 255 images of 3 MB. */
Test(graph, large_sizes_are_recorded_without_their_memory,
     .disabled = UNDER_MSAN /* whose shadow has pages */)
{
    weft_tensor x = weft_zeros(weft_shape(2, 3, 512, 512), WEFT_F32);
    const double before = most_resident();
    weft_graph *g = weft_jit_graph(rectified, NULL, &x, 1,
                                   .dims = (weft_graph_dim[]){{0, 0, "batch"}}, .n_dims = 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    cr_assert_lt(most_resident() - before, 0.5 * 255 * (double)weft_nbytes(x) / 2);
    weft_graph_free(g);
}

/* What is written otherwise where an extent is 1, but computes the same: views that are contiguous there, nothing to expand. */
static weft_status heads(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    const model *m = self;
    const int64_t batch = weft_dim(in[0], 0), seq = weft_dim(in[0], 1);
    weft_tensor at = weft_index_select(m->w, 0, weft_reshape(in[0], weft_shape(batch * 1, seq)));
    weft_tensor x = weft_reshape(at, weft_shape(batch, seq, 2, 3));
    x = weft_contiguous(weft_permute(x, weft_axes(0, 2, 1, 3)));
    weft_tensor y = weft_scaled_dot_product_attention(x, x, x);
    y = weft_reshape(weft_contiguous(weft_permute(y, weft_axes(0, 2, 1, 3))),
                     weft_shape(batch, seq, 6));
    weft_tensor shift =
        weft_expand(weft_mean(y, .axes = weft_axes(1), .keepdim = true), weft_shape(batch, seq, 6));
    out[0] = weft_softmax(weft_add(weft_contiguous(shift), weft_flip(y, weft_axes(1))), -1);
    return weft_error_status(out[0]);
}

Test(graph, what_is_the_same_at_one_is_not_refused)
{
    static const int64_t sizes[][2] = {{1, 1}, {1, 4}, {5, 1}, {2, 2}, {3, 9}};
    model m = {weft_randn(weft_shape(11, 6), WEFT_F32), WEFT_NONE};
    weft_tensor x = weft_randint(weft_shape(4, 5), 0, 11), want, got;
    weft_graph *g = weft_jit_graph(
        heads, &m, &x, 1, .dims = (weft_graph_dim[]){{0, 0, "batch"}, {0, 1, "seq"}}, .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    cr_assert_eq(weft_last_status(), WEFT_OK, "%s", weft_last_error());
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        x = weft_randint(weft_shape(sizes[i][0], sizes[i][1]), 0, 11);
        cr_assert_eq(heads(&m, &x, 1, &want, 1), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_graph_run(g, &x, 1, &got, 1), WEFT_OK, "%s", weft_last_error());
        check_bits("heads", want, got);
    }
    weft_graph_free(g);
}

static weft_status contracted(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)n_in, (void)n_out;
    const model *m = self;
    out[0] = weft_einsum("ni,ij,kj->nk", in[0], m->w, m->w);
    return weft_error_status(out[0]);
}

/* What einsum records does not depend on the handles that its operands and steps happen to have. */
Test(graph, einsum_is_recorded_alike)
{
    model m = {weft_randn(weft_shape(4, 4)), WEFT_NONE};
    weft_tensor x = weft_randn(weft_shape(5, 4));
    for (int i = 0; i < 40; i++) {
        weft_scope scope = weft_scope_begin();
        weft_tensor other = i % 2 ? weft_clone(x) : x;
        weft_graph *g = weft_jit_graph(contracted, &m, &other, 1,
                                       .dims = (weft_graph_dim[]){{0, 0, "n"}}, .n_dims = 1);
        cr_assert_not_null(g, "time %d: %s", i, weft_last_error());
        weft_graph_free(g);
        weft_scope_end(scope);
    }
}

typedef struct upsampled {
    weft_interpolation mode;
    double scale;
} upsampled;

static weft_status upsample(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    const upsampled *k = self;
    (void)n_in, (void)n_out;
    out[0] = weft_interpolate(in[0], .scale = k->scale, .mode = k->mode);
    return weft_error_status(out[0]);
}

/* By a whole number images of any extents are made larger. */
Test(graph, images_of_any_extents_are_made_larger)
{
    weft_graph_dim dims[] = {{0, 0, "n"}, {0, 2, "h"}, {0, 3, "w"}};
    weft_tensor x = weft_randn(weft_shape(2, 3, 5, 4));
    for (int mode = 0; mode < 3; mode++) {
        for (int scale = 1; scale <= 3; scale++) {
            upsampled k = {(weft_interpolation)mode, scale};
            weft_graph *g = weft_jit_graph(upsample, &k, &x, 1, .dims = dims, .n_dims = 3);
            cr_assert(g != NULL, "%d %d: %s", mode, scale, weft_last_error());
            static const int64_t other[][3] = {{1, 1, 1}, {3, 1, 9}, {2, 8, 3}};
            for (int i = 0; i < 3; i++) {
                const int64_t *o = other[i];
                weft_tensor in = weft_randn(weft_shape(o[0], 3, o[1], o[2])), want, got;
                cr_assert_eq(upsample(&k, &in, 1, &want, 1), WEFT_OK);
                cr_assert_eq(weft_graph_run(g, &in, 1, &got, 1), WEFT_OK, "%s", weft_last_error());
                check_bits("image", want, got);
            }
            weft_graph_free(g);
        }
    }
}

/* -- extents that are computed from a symbol ----------------------------------------------------------------- */

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

/* Sizes of the recordings are not to each other as those of the first: no symbol is taken for twice another, or for as much more. */
Test(graph, symbols_are_told_apart)
{
    static const weft_graph_dim dims[][2] = {{{0, 0, "batch<=40"}, {0, 1, "seq<=80"}},
                                             {{0, 0, "batch"}, {0, 1, "seq"}}};
    static const int64_t sizes[][4] = {{3, 6, 2, 0}, {3, 4, 1, 1}, {3, 9, 1, 6}, {4, 8, 2, 0}};
    static const char *const says[] = {"2*batch", "batch+1", "batch+6", "2*batch"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int k = 0; k < 2; k++) {
            weft_tensor x = weft_zeros(weft_shape(sizes[i][0], sizes[i][1]), WEFT_F32), y[2];
            weft_graph *g = weft_jit_graph(twice_as_long, (void *)(uintptr_t)&sizes[i][2], &x, 1,
                                           .dims = dims[k], .n_dims = 2, .n_outputs = 2);
            cr_assert_not_null(g, "%s", weft_last_error());
            weft_graph_port port;
            weft_graph_output(g, 0, &port);
            cr_assert_str_eq(port.symbols[0], says[i]);
            x = weft_zeros(weft_shape(7, 5), WEFT_F32);
            cr_assert_eq(weft_graph_run(g, &x, 1, y, 2), WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_dim(y[0], 0), 7 * sizes[i][2] + sizes[i][3]);
            weft_graph_free(g);
        }
    }
}

MADE(differences, (b = rows(x, 0, -1), weft_sub(rows(x, 1, WEFT_OMIT), b)))
MADE(second_differences,
     weft_sub(weft_add(rows(x, 2, WEFT_OMIT), rows(x, 0, -2)), weft_mul(rows(x, 1, -1), weft_f(2))))
MADE(narrows, weft_exp(weft_narrow(x, 0, 2, n - 3)))
MADE(last_rows, weft_exp(rows(x, -3, WEFT_OMIT)))
MADE(but_last_rows, weft_mul(rows(x, 0, -5), weft_f(2)))
MADE(flat, weft_tanh(weft_reshape(x, weft_shape(n * 3))))
MADE(doubled, weft_concat(((weft_tensor[]){x, weft_neg(x)}), 2, 0))
MADE(longer, weft_concat(((weft_tensor[]){x, weft_ones(weft_shape(2, 3), WEFT_F32)}), 2, 0))
MADE(padded, weft_pad(x, weft_shape(1, 0), weft_shape(2, 0), 7))
MADE(pushed, weft_pad(x, weft_shape(n - 5, 0), weft_shape(5, 0), 1))
MADE(shifted, weft_add(x, weft_pad(rows(x, 0, -1), weft_shape(1, 0), weft_shape(0, 0), 0)))
MADE(flipped, weft_sub(x, weft_flip(x, weft_axes(0))))
MADE(summed, weft_sum(weft_square(rows(x, 1, WEFT_OMIT)), .axes = weft_axes(1)))
MADE(far_off, weft_neg(weft_narrow(x, 0, 100, n - 100)))
static weft_status slope_of_differences(void *self, const weft_tensor *in, int n_in,
                                        weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor x = weft_clone(in[0]);
    weft_status bad = weft_requires_grad_(x, true);
    weft_tensor y = weft_sum(weft_square(weft_sub(rows(x, 1, WEFT_OMIT), rows(x, 0, -1))));
    return bad ? bad
               : weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                              .grads = out);
}

Test(graph, extents_computed_from_a_symbol)
{
    static const weft_graph_dim dims[] = {{0, 0, "n"}};
    static const struct {
        weft_jit_fn fn;
        const char *name, *extent; /* of the result's first axis */
        int64_t least;             /* size of the symbol that there may be */
    } cases[] = {{differences, "differences", "n-1", 1},
                 {second_differences, "second_differences", "n-2", 2},
                 {narrows, "narrows", "n-3", 3},
                 {but_last_rows, "but_last_rows", "n-5", 5},
                 {flat, "flat", "3*n", 0},
                 {doubled, "doubled", "2*n", 0},
                 {longer, "longer", "n+2", 0},
                 {padded, "padded", "n+3", 0},
                 {pushed, "pushed", "2*n", 5},
                 {shifted, "shifted", "n", 1},
                 {flipped, "flipped", "n", 0},
                 {summed, "summed", "n-1", 1},
                 {far_off, "far_off", "n-100", 100},
                 {slope_of_differences, "slope_of_differences", "n", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tensor x = weft_randn(weft_shape(140, 3), WEFT_F32), want, got;
        weft_graph *g = weft_jit_graph(cases[i].fn, NULL, &x, 1, .dims = dims, .n_dims = 1);
        cr_assert_not_null(g, "%s: %s", cases[i].name, weft_last_error());
        for (int saved = 0; saved < 2; saved++) {
            weft_graph_port port;
            weft_graph_output(g, 0, &port);
            cr_assert_eq(port.dims[0], -1);
            cr_assert_str_eq(port.symbols[0], cases[i].extent, "%s", cases[i].name);
            for (int64_t n = cases[i].least; n < cases[i].least + 70; n += n < 4 ? 1 : 13) {
                x = weft_randn(weft_shape(n, 3), WEFT_F32);
                cr_assert_eq(cases[i].fn(NULL, &x, 1, &want, 1), WEFT_OK, "%s", weft_last_error());
                cr_assert_eq(weft_graph_run(g, &x, 1, &got, 1), WEFT_OK, "%s, %lld: %s",
                             cases[i].name, (long long)n, weft_last_error());
                cr_assert_eq(weft_dim(got, 0), weft_dim(want, 0));
                check_bits(cases[i].name, want, got);
            }
            if (cases[i].least > 0) {
                x = weft_zeros(weft_shape(cases[i].least - 1, 3), WEFT_F32);
                cr_assert_neq(weft_graph_run(g, &x, 1, &got, 1), WEFT_OK, "%s", cases[i].name);
            }
            char range[32];
            snprintf(range, sizeof range, cases[i].least ? "symbols(%d<=n)" : "symbols(n)",
                     (int)cases[i].least);
            check_says(g, range);
            FILE *null = fopen("/dev/null", "w");
            cr_assert_eq(weft_graph_svg(g, null), WEFT_OK, "%s", weft_last_error());
            fclose(null);
            g = saved ? g : test_reloaded(g);
        }
        weft_graph_free(g);
    }
    weft_tensor x = weft_zeros(weft_shape(9, 3), WEFT_F32), y;
    weft_graph *g = weft_jit_graph(last_rows, NULL, &x, 1, .dims = dims, .n_dims = 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    x = weft_zeros(weft_shape(2, 3), WEFT_F32); /* the function would give both */
    check_status("too short", weft_graph_run(g, &x, 1, &y, 1), WEFT_ESHAPE,
                 "'n-3' would be -1, since 'n' is 2");
    weft_graph_free(g);
    x = weft_zeros(weft_shape(9, 3), WEFT_F32);
    g = weft_jit_graph(differences, NULL, &x, 1, .dims = dims, .n_dims = 1);
    x = weft_zeros(weft_shape(0, 3), WEFT_F32);
    check_status("too short", weft_graph_run(g, &x, 1, &y, 1), WEFT_ESHAPE,
                 "'n-1' would be -1, since 'n' is 0");
    weft_graph_free(g);
}

/* -- extents of several symbols ------------------------------------------------------------------------------------- */

MADE(joins_all, weft_concat(in, 3, 0))
MADE(joins_but_one, weft_exp(rows(weft_concat(in, 2, 0), 0, -1)))
MADE(pairs_and_first,
     weft_concat(((weft_tensor[]){weft_reshape(weft_mul(weft_unsqueeze(in[0], 1), in[1]),
                                               weft_shape(n *weft_dim(in[1], 0))),
                                  in[0]}),
                 2, 0))
MADE(pairs_of_joined,
     weft_reshape(weft_mul(weft_unsqueeze(weft_concat(in, 2, 0), 1), in[1]), weft_shape(-1)))
MADE(gram, weft_tanh(weft_reshape(weft_mul(weft_unsqueeze(x, 1), x), weft_shape(-1))))
MADE(spread_and_summed,
     weft_sum(weft_reshape(weft_mul(weft_unsqueeze(in[0], 1), in[1]), weft_shape(-1)),
              .axes = weft_axes(0), .keepdim = true))
/* Rows of four to squares of two by two: n / 2 of m / 2. */
MADE(patches,
     weft_reshape(weft_mul(weft_reshape(in[0], weft_shape(n / 2, 2, 1, 1)),
                           weft_reshape(in[1], weft_shape(1, 1, weft_dim(in[1], 0) / 2, 2))),
                  weft_shape(n / 2 * (weft_dim(in[1], 0) / 2) * 4)))
MADE(in_halves,
     weft_concat(((weft_tensor[]){weft_reshape(in[0], weft_shape(n / 2, 2)),
                                  weft_reshape(in[1], weft_shape(weft_dim(in[1], 0) / 2, 2))}),
                 2, 0))

/* The function at these sizes, and its graph's run of the same. */
static void check_at_sizes(weft_graph *g, weft_jit_fn fn, int n_in, const int64_t *sizes)
{
    weft_tensor x[3], want, got;
    for (int i = 0; i < n_in; i++) {
        x[i] = weft_randn(weft_shape(sizes[i]), WEFT_F32);
    }
    cr_assert_eq(fn(NULL, x, n_in, &want, 1), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_graph_run(g, x, n_in, &got, 1), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_dim(got, 0), weft_dim(want, 0));
    check_bits("several symbols", want, got);
}

Test(graph, extents_of_several_symbols)
{
    static const struct {
        weft_jit_fn fn;
        int n_in;
        const char *extent, *says; /* of the result's first axis; of the symbols */
    } cases[] = {{joins, 2, "n+m", "symbols(n, m)"},
                 {joins_all, 3, "n+m+k", "symbols(n, m, k)"},
                 {joins_but_one, 2, "n+m-1", "symbols(n, m)"},
                 {pairs, 2, "n*m", "symbols(n, m)"},
                 {pairs_and_first, 2, "n*m+n", "symbols(n, m)"},
                 {pairs_of_joined, 2, "n*m+m*m", "symbols(n, m)"},
                 {gram, 1, "n*n", "symbols(n)"},
                 {spread_and_summed, 2, NULL, "reshape f32[n*m]"},
                 {patches, 2, "n*m", "symbols(n%2==0, m%2==0)"},
                 {in_halves, 2, "n/2+m/2", "symbols(n%2==0, m%2==0)"}};
    static const int64_t sizes[][3] = {{2, 4, 6}, {8, 2, 4}, {14, 22, 2}, {36, 10, 12}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tensor x[3] = {weft_ones(weft_shape(4), WEFT_F32), weft_ones(weft_shape(6), WEFT_F32),
                            weft_ones(weft_shape(8), WEFT_F32)};
        weft_clear_error();
        weft_graph *g =
            weft_jit_graph(cases[i].fn, NULL, x, cases[i].n_in,
                           .dims = (weft_graph_dim[]){{0, 0, "n"}, {1, 0, "m"}, {2, 0, "k"}},
                           .n_dims = cases[i].n_in);
        cr_assert_not_null(g, "case %d: %s", (int)i, weft_last_error());
        cr_assert_str_eq(weft_last_error(), "");
        for (int saved = 0; saved < 2; saved++) {
            weft_graph_port port;
            weft_graph_output(g, 0, &port);
            if (cases[i].extent) {
                cr_assert_eq(port.dims[0], -1);
                cr_assert_str_eq(port.symbols[0], cases[i].extent, "case %d", (int)i);
            }
            check_says(g, cases[i].says);
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                check_at_sizes(g, cases[i].fn, cases[i].n_in, sizes[k]);
            }
            FILE *null = fopen("/dev/null", "w");
            cr_assert_eq(weft_graph_svg(g, null), WEFT_OK, "%s", weft_last_error());
            fclose(null);
            g = saved ? g : test_reloaded(g);
        }
        weft_graph_free(g);
    }
    weft_tensor x[2] = {weft_ones(weft_shape(4), WEFT_F32), weft_ones(weft_shape(6), WEFT_F32)}, y;
    weft_graph *g =
        weft_jit_graph(joins_but_one, NULL, x, 2,
                       .dims = (weft_graph_dim[]){{0, 0, "n"}, {1, 0, "m"}}, .n_dims = 2);
    x[0] = x[1] = weft_zeros(weft_shape(0), WEFT_F32);
    check_status("none", weft_graph_run(g, x, 2, &y, 1), WEFT_ESHAPE,
                 "'n+m-1' would be -1, since 'n' is 0, 'm' is 0");
    weft_graph_free(g);
}

/* -- numbers computed from a size -------------------------------------------------------------------------- */

static weft_status averages(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const int64_t n = weft_dim(in[0], 0), m = weft_dim(in[0], 1);
    weft_tensor rows = weft_div(weft_sum(in[0], .axes = weft_axes(0)), weft_f((double)n));
    weft_tensor all = weft_div(weft_sum(in[0]), weft_f((double)(n * m)));
    weft_tensor last = weft_minimum(weft_arange(0, (double)m, 1, WEFT_I64), weft_i(m - 2));
    out[0] = weft_add(weft_add(rows, all), weft_cast(last, WEFT_F32));
    return weft_error_status(out[0]);
}

static weft_status scaled_by_root(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                  int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_mul(in[0], weft_f(1 / sqrt((double)weft_dim(in[0], 0))));
    return weft_error_status(out[0]);
}

static weft_status divided_by_less(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                   int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const int64_t n = weft_dim(in[0], 0);
    out[0] = weft_div(in[0], weft_f((double)(n < 300 ? n : 300)));
    return weft_error_status(out[0]);
}

/* At a size of 1 the number is another. */
static weft_status at_most(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const int64_t n = weft_dim(in[0], 0);
    out[0] = weft_minimum(in[0], weft_f(n == 1 ? 1000 : (double)n + 5));
    return weft_error_status(out[0]);
}

static weft_status scaled_down(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_mul(in[0], weft_f((double)-weft_dim(in[0], 0)));
    return weft_error_status(out[0]);
}

static weft_status scaled_by_square(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                    int n_out)
{
    const double n = (double)weft_dim(in[0], 0);
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_mul(weft_sum(in[0]), weft_f(n * n));
    return weft_error_status(out[0]);
}

static weft_status places(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    const double n = (double)weft_dim(in[0], 0);
    const bool whole = self != NULL;
    out[0] = weft_cast(weft_arange(n, 2 * n, 1, whole ? WEFT_I64 : WEFT_F32), WEFT_F32);
    return weft_error_status(out[0]);
}

static weft_status steps(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_select(in[0], 0, 0);
    for (int64_t t = 1; t < weft_dim(in[0], 0); t++) {
        out[0] = weft_tanh(weft_add(out[0], weft_select(in[0], 0, t)));
    }
    return weft_error_status(out[0]);
}

Test(graph, numbers_computed_from_a_size)
{
    static const weft_graph_dim dims[] = {{0, 0, "n"}, {0, 1, "m"}};
    static const int64_t sizes[][2] = {{1, 1}, {1, 9}, {7, 2}, {40, 3}, {5, 100}};
    weft_tensor x = weft_randn(weft_shape(4, 6), WEFT_F32), want, got;
    weft_graph *g = weft_jit_graph(averages, NULL, &x, 1, .dims = dims, .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    g = test_reloaded(g);
    check_says(g, "scalar f64 [n]");
    check_says(g, "scalar f64 [n*m]");
    check_says(g, "scalar i64 [m-2]");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        x = weft_randn(weft_shape(sizes[i][0], sizes[i][1]), WEFT_F32);
        cr_assert_eq(averages(NULL, &x, 1, &want, 1), WEFT_OK);
        cr_assert_eq(weft_graph_run(g, &x, 1, &got, 1), WEFT_OK, "%s", weft_last_error());
        check_bits("averages", want, got);
    }
    weft_graph_free(g);
    g = weft_jit_graph(places, &x, &x, 1, .dims = dims, .n_dims = 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_graph_free(g);
    static const struct {
        weft_jit_fn fn;
        const char *says;
    } refused[] = {
        {scaled_by_root, ": it is 0.5, then "},
        {scaled_down, ": it is -4, then "},
        {at_most, "something else where 'n' is 1: the number %2 is 1000, by the symbols 6"},
        {divided_by_less, "does something else where 'n' is "},
        {places, "its numbers is computed from a size; make it an arange of integers"},
        {steps, "rows for the example and"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        x = weft_randn(weft_shape(4, 6), WEFT_F32);
        cr_assert_null(weft_jit_graph(refused[i].fn, NULL, &x, 1, .dims = dims, .n_dims = 1));
        cr_assert_not_null(strstr(weft_last_error(), refused[i].says), "%s", weft_last_error());
    }
    /* a number is one that f64 has */
    x = weft_zeros(weft_shape(4, 0), WEFT_F32);
    g = weft_jit_graph(scaled_by_square, NULL, &x, 1, .dims = dims, .n_dims = 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    x = weft_zeros(weft_shape(3037000500, 0), WEFT_F32);
    cr_assert_eq(weft_graph_run(g, &x, 1, &got, 1), WEFT_ESHAPE);
    cr_assert_not_null(strstr(weft_last_error(), "the number 'n*n'"), "%s", weft_last_error());
    weft_graph_free(g);
    x = weft_randn(weft_shape(4, 6), WEFT_F32);
    /* who takes the number, and where */
    cr_assert_null(weft_jit_graph(scaled_by_root, NULL, &x, 1, .dims = dims, .n_dims = 1));
    cr_assert_not_null(strstr(weft_last_error(), "computes a number from a size (mul, %"), "%s",
                       weft_last_error());
    cr_assert_not_null(strstr(weft_last_error(), "test_graph.c:"), "%s", weft_last_error());
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
    cr_assert_null(decode("1", "fn f {\n  %1 = input f32[4611686018427387903,3]\n  return %1\n}\n",
                          "x\n", "", "y\n"));
    /* names that no graph has, since they are printed */
    cr_assert_null(decode("1", GOOD, "x\x1b[2J\n", "w\n", "y\n"));
    cr_assert_null(decode("1", GOOD, "x\n", "w\n", "y\x1b]0;owned\a\n"));
    cr_assert_null(decode("1", GOOD,
                          "x\xc2\x9b"
                          "2J\n",
                          "w\n", "y\n"));
    cr_assert_null(decode("1",
                          "fn f {\n  %1 = input f32[3]\n  %2 = exp f32[3] %1 at \"a\x1b[2J.c:1\"\n"
                          "  return %2\n}\n",
                          "x\n", "", "y\n"));
    cr_assert_null(decode("1", GOOD, "x x\n", "w\n", "y\n"));
    cr_assert(strstr(weft_last_error(), "control characters"), "%s", weft_last_error());
    /* a weight whose extent is a symbol; a symbol of no input; a weight of another type */
    cr_assert_null(
        decode("1", "fn f symbols(n) {\n  %1 = input f32[3]\n  %2 = input f32[n]\n  return %2\n}\n",
               "x\n", "w\n", "y\n"));
    cr_assert_null(decode("1", "fn f {\n  %1 = input f32[3]\n  %2 = input f64[3]\n  return %2\n}\n",
                          "x\n", "w\n", "y\n"));
    /* an input whose extent is computed, and what is no extent */
    static const char *const extents[] = {
        "n-1",           "2*n", "n+",  "0*n",        "-1*n",
        "99999999999*n", "2*",  "n*2", "n+99999999", "4611686018427387904",
        "n*n*n",         "n*n", "-n",  "n+n*n",      "9223372036854775807*n*n"};
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++) {
        char text[200];
        snprintf(
            text, sizeof text,
            "fn f symbols(n) {\n  %%1 = input f32[n]\n  %%2 = input f32[%s]\n  return %%2\n}\n",
            extents[i]);
        cr_assert_null(decode("1", text, "x\ny\n", "", "z\n"), "%s", extents[i]);
    }
    /* multiples: an input of a quotient, a range without one, a quotient that is not of the multiple */
    static const char *const multiples[][2] = {
        {"n%4==0", "n/4"},   {"5<=n<=7, n%4==0", "n"},
        {"n%4==0", "n/3"},   {"n%4==0, n%8==0", "n"},
        {"n%1025==0", "n"},  {"n%-4==0", "n"},
        {"n%4==0", "n/4/4"}, {"n%4==0", "n/99999999999999999999"}};
    for (size_t i = 0; i < sizeof multiples / sizeof *multiples; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "fn f symbols(%s) {\n  %%1 = input f32[n]\n  %%2 = input f32[%s]\n  return "
                 "%%2\n}\n",
                 multiples[i][0], multiples[i][1]);
        cr_assert_null(decode("1", text, "x\ny\n", "", "z\n"), "%s", text);
    }
    /* more outputs than a graph has */
    enum { TOO_MANY = 65537 };
    static char text[200 + 4 * TOO_MANY];
    size_t at = (size_t)sprintf(text, "fn f {\n  %%1 = input f32[3]\n  return %%1");
    for (int i = 1; i < TOO_MANY; i++) {
        at += (size_t)sprintf(text + at, ", %%1");
    }
    sprintf(text + at, "\n}\n");
    cr_assert_null(decode("1", text, "x\n", "", "y\n"));
    cr_assert_not_null(strstr(weft_last_error(), "1 inputs and 65537 outputs: a graph has at most"),
                       "%s", weft_last_error());
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
        char *text = test_written(g, shows[i]);
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

/* Sizes for pictures are such as a symbol has; an explanation says them, and of what range they are. */
Test(graph, pictures_of_multiples)
{
    weft_tensor x = weft_ones(weft_shape(30, 3), WEFT_F32);
    weft_graph *g = weft_jit_graph(
        negates, NULL, &x, 1, .dims = (weft_graph_dim[]){{0, 0, "9<=n<=90, n%30==0"}, {0, 1, "m"}},
        .n_dims = 2);
    cr_assert_not_null(g, "%s", weft_last_error());
    char *text = test_written(g, weft_graph_svg), *said = NULL;
    size_t size = 0;
    free(text);
    FILE *out = open_memstream(&said, &size);
    cr_assert_eq(weft_graph_explain(g, &x, 1, out), WEFT_OK);
    fclose(out);
    cr_assert_eq(strncmp(said, "symbol n = 30, of 30<=n<=90, n%30==0\nsymbol m = 3\nstep 0 ", 56),
                 0, "%s", said);
    free(said);
    cr_assert_eq(weft_graph_explain(g, &x, 1, NULL), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), "graph_explain: the file is NULL"), "%s",
              weft_last_error());
    weft_graph_free(g);
}
