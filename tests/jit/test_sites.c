/*
 * tests/jit/test_sites.c -- what traces and graphs say of where they were called: errors of kernels name op, operands and line;
 * writes in place and ops inside layers have the line of the program's own call; edges name who made a value, not a view of it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "weft/weft.h"

/* "test_sites.c:12" */
static const char *at_line(int line)
{
    static char text[4][32];
    static int n;
    char *p = text[n++ % 4];
    snprintf(p, sizeof text[0], "test_sites.c:%d", line);
    return p;
}

/* -- errors of kernels ------------------------------------------------------------------------------------------ */

static int select_line, loss_line, nll_line, weights_line, rows_line;

static weft_status select_rows(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_mul(in[0], weft_f(2));
    select_line = __LINE__ + 1;
    out[0] = weft_index_select(h, 0, in[1]);
    return weft_error_status(out[0]);
}

static weft_status loss_of(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_mul(in[0], weft_f(2));
    loss_line = __LINE__ + 1;
    out[0] = weft_cross_entropy(h, in[1]);
    return weft_error_status(out[0]);
}

/* Rows that are parts of another call: that is what is named. */
static weft_status nll_of(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_log_softmax(in[0], -1);
    nll_line = __LINE__ + 1;
    out[0] = weft_nll_loss(h, in[1]);
    return weft_error_status(out[0]);
}

static weft_status weighted_loss_of(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                    int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor weight = weft_sum(in[0], weft_axes(0));
    weights_line = __LINE__ + 1;
    out[0] = weft_cross_entropy(in[0], in[1], .weight = weight);
    return weft_error_status(out[0]);
}

static weft_status embedding_of(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_mul(in[0], weft_f(2));
    rows_line = __LINE__ + 1;
    out[0] = weft_embedding(h, in[1]);
    return weft_error_status(out[0]);
}

static void check_says(const char *way, const char *op, const char *operands, int line)
{
    const char *text = weft_last_error();
    cr_assert_eq(weft_last_status(), WEFT_EINDEX, "%s: %s", way, text);
    cr_assert(strstr(text, op) && strstr(text, operands) && strstr(text, at_line(line)), "%s: %s",
              way, text);
    cr_assert_null(strstr(strstr(text, op) + strlen(op), op), "named twice: %s", text);
    weft_clear_error();
}

Test(sites, an_index_out_of_range_names_op_operands_and_line)
{
    const int64_t good[5] = {1, 1, 0, 1, 1};
    struct {
        weft_jit_fn fn;
        int64_t bad;
        const char *op, *operands;
        int *line;
    } cases[] = {
        {select_rows, 9, "index_select: index 9", "; operands: f32[5,3], i64[5]", &select_line},
        {loss_of, 9, "cross_entropy: ", "; operands: f32[5,3], i64[5]", &loss_line},
        {nll_of, 9, "nll_loss: index 9 ", "extent 3", &nll_line},
        {nll_of, -1,
         "nll_loss: index 9223372036854775807 (element 2 of the indices; -1 if a loss took its "
         "sign off) ",
         "extent 3", &nll_line},
        {weighted_loss_of, 9, "cross_entropy: ", "", &weights_line},
        {embedding_of, 9, "embedding: index 9", "; operands: f32[5,3], i64[5]", &rows_line}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t bad[5] = {1, 1, cases[k].bad, 1, 1};
        weft_tensor in[2] = {weft_randn(weft_shape(5, 3)),
                             weft_from_data(bad, weft_shape(5), WEFT_I64)},
                    y, fine = weft_from_data(good, weft_shape(5), WEFT_I64);
        const char *op = cases[k].op, *operands = cases[k].operands;
        for (int frozen = 0; frozen < 2; frozen++) {
            weft_jit *j =
                weft_jit_trace(cases[k].fn, NULL, .frozen = frozen, .always_record = !frozen);
            weft_tensor with[2] = {in[0], fine};
            for (int i = 0; i < 6; i++) { /* so that it is replayed */
                cr_assert_eq(weft_jit_call(j, with, 2, &y, 1), WEFT_OK, "%s", weft_last_error());
            }
            cr_assert_eq(weft_jit_call(j, in, 2, &y, 1), WEFT_EINDEX);
            check_says(frozen ? "frozen" : "traced", op, operands, *cases[k].line);
            weft_jit_free(j);
        }
        weft_graph *g = weft_jit_graph(cases[k].fn, NULL, in, 2);
        cr_assert_eq(weft_graph_run(g, in, 2, &y, 1), WEFT_EINDEX);
        check_says("graph", op, operands, *cases[k].line);
        g = test_reloaded(g);
        cr_assert_eq(weft_graph_run(g, in, 2, &y, 1), WEFT_EINDEX);
        check_says("loaded", op, operands, *cases[k].line);
        weft_graph_free(g);
    }
}

/* -- writes in place ---------------------------------------------------------------------------------------------- */

typedef struct state {
    weft_tensor sum;
    weft_nn_linear layer;
    int first;
} state;

static weft_status accumulate(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    state *s = self;
    (void)n_in, (void)n_out;
    weft_tensor part = weft_narrow(s->sum, 0, 1, 2);
    s->first = __LINE__ + 1;
    weft_add_(part, in[0]);
    weft_mul_(s->sum, weft_f(3));
    out[0] = weft_exp(s->sum);
    return weft_error_status(out[0]);
}

/* "step ... add...; at ... LINE": some step with the op has the line. */
static bool step_has(const char *text, const char *op, int line)
{
    for (const char *p = text; (p = strstr(p, "step ")); p++) {
        char one[512];
        snprintf(one, sizeof one, "%.*s", (int)strcspn(p, "\n"), p);
        const char *site = strstr(one, at_line(line));
        if (site && strstr(one, op)) {
            return true;
        }
    }
    return false;
}

Test(sites, of_regions)
{
    cr_assert_eq(weft_jit_begin(NULL), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), at_line(__LINE__ - 1)), "%s", weft_last_error());
    cr_assert_eq(weft_jit_end(NULL), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), at_line(__LINE__ - 1)), "%s", weft_last_error());
}

Test(sites, of_writes_in_place)
{
    state s = {.sum = weft_zeros(weft_shape(4), WEFT_F32)};
    weft_tensor x = weft_ones(weft_shape(2), WEFT_F32), y;
    weft_jit *j = weft_jit_trace(accumulate, &s, .always_record = true);
    cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    char *text = test_explained(j);
    cr_assert(step_has(text, " add", s.first), "%s", text);
    cr_assert(step_has(text, " mul", s.first + 1), "%s", text);
    cr_assert(step_has(text, " exp", s.first + 2), "%s", text);
    free(text);
    weft_jit_free(j);
}

/* -- ops inside layers, and of a backward pass ---------------------------------------------------------------------- */

static weft_status train(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    state *s = self;
    (void)n_in, (void)n_out;
    s->first = __LINE__ + 1;
    weft_tensor h = weft_nn_linear_forward(&s->layer, in[0]);
    weft_tensor loss = weft_cross_entropy(h, weft_argmax(h, weft_axes(1)));
    weft_status rc = weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &s->layer.weight,
                                  .n_inputs = 1, .grads = out);
    return rc;
}

Test(sites, of_ops_inside_a_call)
{
    state s = {.first = 0};
    weft_module *m = weft_module_new(NULL);
    weft_nn_linear_init(&s.layer, m, "layer", 3, 4);
    weft_tensor x = weft_randn(weft_shape(2, 3));
    weft_graph *g = weft_jit_graph(train, &s, &x, 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    char *text = test_written(g, weft_graph_print);
    int ops = 0, lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strstr(line, " = ") && !strstr(line, "= input") && !strstr(line, "= scalar") &&
            !strstr(line, "= result")) {
            const bool forward =
                strstr(line, at_line(s.first)) || strstr(line, at_line(s.first + 1));
            const bool backward =
                strstr(line, at_line(s.first + 2)) || strstr(line, at_line(s.first + 3));
            cr_assert(forward || backward, "%s", line);
            lines += backward;
            ops++;
        }
    }
    cr_assert(ops >= 5 && lines >= 2, "%d ops, %d of the backward pass", ops, lines);
    free(text);
    weft_graph_free(g);
    weft_module_free(m);
}

static weft_status encode(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    out[0] = weft_nn_encoder_forward(self, in[0], WEFT_NONE);
    return weft_error_status(out[0]);
}

/* Of a layer with many parameters, too: what the library calls itself (it names what a graph captures) has no line. */
Test(sites, of_a_layer_are_the_programs)
{
    weft_nn_encoder layer;
    weft_module *m = weft_module_new(NULL);
    weft_nn_encoder_init(&layer, m, "layer", 8, 2, .feedforward = 16);
    weft_tensor x = weft_randn(weft_shape(2, 3, 8));
    weft_module_train(m, false);
    weft_graph *g = weft_jit_graph(encode, &layer, &x, 1);
    cr_assert_not_null(g, "%s", weft_last_error());
    char *text = test_written(g, weft_graph_print);
    int lines = 0;
    for (const char *p = text; (p = strstr(p, " at \"")); lines++) {
        p += 5;
        cr_assert_eq(strncmp(p, "test_sites.c:", 13), 0, "%s", text);
    }
    cr_assert_gt(lines, 10);
    free(text);
    weft_graph_free(g);
    weft_module_free(m);
}

/* -- edges ---------------------------------------------------------------------------------------------------------- */

static weft_status products(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_matmul(in[0], in[1]); /* [8, 8] */
    weft_tensor r = weft_reshape(h, weft_shape(4, 16));
    out[0] = weft_matmul(r, weft_transpose(r, 0, 1));
    return weft_error_status(out[0]);
}

Test(sites, edges_name_who_made_a_value)
{
    weft_tensor in[2] = {weft_randn(weft_shape(8, 8)), weft_randn(weft_shape(8, 8))}, y;
    weft_jit *j = weft_jit_trace(products, NULL, .always_record = true);
    cr_assert_eq(weft_jit_call(j, in, 2, &y, 1), WEFT_OK, "%s", weft_last_error());
    char *text = test_explained(j);
    cr_assert(strstr(text, "edge %3 matmul -> %6 matmul, through %4 reshape: OPAQUE"), "%s", text);
    cr_assert(strstr(text, "edge %3 matmul -> %6 matmul, through %5 permute: OPAQUE"), "%s", text);
    free(text);
    weft_jit_free(j);
}

/* -- calls of several results -------------------------------------------------------------------------------------- */

static int several_line[7];
enum { SEVERAL = 11 };

static weft_status two_of(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)user, (void)n_in, (void)n_out;
    several_line[6] = __LINE__ + 1;
    out[0] = weft_exp(in[0]);
    return weft_error_status(out[0]);
}

static weft_status give_several(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const int64_t sizes[] = {1, 2};
    int line = __LINE__ + 1;
    weft_status s = weft_sort(in[0], 0, false, &out[0], &out[1]);
    several_line[0] = line;
    s = s ? s : weft_topk(in[0], 2, 0, false, &out[2], &out[3]);
    s = s ? s : weft_split(in[0], 0, sizes, 2, &out[4]);
    s = s ? s : weft_chunk(in[0], 0, 3, &out[6]);
    several_line[1] = line + 2;
    several_line[2] = line + 3;
    several_line[3] = line + 4;
    const weft_tensor x = weft_clone(in[0]);
    s = s ? s : weft_requires_grad_(x, true);
    const weft_tensor y = weft_sum(weft_square(x));
    several_line[4] = __LINE__ + 1;
    s = s ? s : weft_grad_of(&y, 1, &x, 1, &out[9]);
    return s ? s : weft_remat(two_of, NULL, &x, 1, &out[10], 1);
}

/* Each result says which call made it, recorded or not: messages about it name that. */
Test(sites, of_calls_with_several_results)
{
    static const int call_of[SEVERAL] = {0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 6};
    const weft_tensor x = weft_arange(0, 3, 1, WEFT_F32);
    weft_jit *j = weft_jit_trace(give_several, .always_record = true);
    weft_tensor v, i, n;
    for (int traced = 0; traced < 2; traced++) {
        weft_tensor out[SEVERAL];
        cr_assert_eq(traced ? weft_jit_call(j, &x, 1, out, SEVERAL)
                            : give_several(NULL, &x, 1, out, SEVERAL),
                     WEFT_OK, "%s", weft_last_error());
        for (int k = 0; k < SEVERAL; k++) {
            cr_assert(strstr(weft_site(out[k]), at_line(several_line[call_of[k]])),
                      "result %d, traced %d: %s, line %d", k, traced, weft_site(out[k]),
                      several_line[call_of[k]]);
        }
    }
    cr_assert_eq(weft_unique(x, &v, &i, &n), WEFT_OK);
    const char *here = at_line(__LINE__ - 1);
    cr_assert(strstr(weft_site(v), here) && strstr(weft_site(i), here) &&
                  strstr(weft_site(n), here),
              "%s", weft_site(v));
    weft_jit_free(j);
}
