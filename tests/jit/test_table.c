/*
 * tests/jit/test_table.c -- tables of launches (weft/table.h): rows add up to their totals, of graphs and of traced
 * functions, and making one of a function is a call of it and nothing more.
 */
#include <math.h>

#include "tests/jit/corner_support.h"
#include "tests/support/other_locale.h"

/* Sums of the rows are the totals, of both sides. */
static void check_sums(const weft_table *t)
{
    weft_table_total all;
    weft_table_row r;
    double seconds = 0, unfused = 0;
    int64_t bytes = 0, flops = 0;
    int n = 0, graph = 0;
    weft_table_get_total(t, &all);
    for (; weft_table_at(t, n, &r); n++) {
        cr_assert(*r.name && *r.kind && *r.row && *r.ops && r.sites && r.not_fused && r.kernel);
        cr_assert(r.graph == graph || r.graph == graph + 1);
        cr_assert(r.seconds > 0 && r.least_seconds >= 0 && r.read_bytes >= 0 && r.flops >= 0);
        graph = r.graph;
        seconds += r.seconds;
        unfused += r.unfused_seconds;
        bytes += r.read_bytes + r.write_bytes;
        flops += r.flops;
    }
    cr_assert(n == all.rows && n == all.fused.launches && graph + 1 == all.graphs);
    cr_assert_float_eq(seconds, all.fused.kernels, 1e-12);
    cr_assert_eq(bytes, all.fused.bytes);
    cr_assert_eq(flops, all.fused.flops);
    const weft_table_side *const sides[] = {&all.fused, &all.unfused};
    for (int i = 0; i < (all.compared ? 2 : 1); i++) {
        const weft_table_side *s = sides[i];
        cr_assert_float_eq(s->kernels + s->launching + s->call, s->whole, 1e-12);
        cr_assert(s->whole > 0 && s->launches >= 1 && s->launching > -1e-9);
    }
    if (all.compared) {
        cr_assert_float_eq(unfused + all.unfused_elsewhere, all.unfused.kernels, 1e-12);
        cr_assert_geq(all.unfused.launches, all.fused.launches);
        cr_assert_eq(all.unfused.fused_kernels, 0);
    }
    cr_assert(all.threads >= 1 && all.f32_flops > 0 && all.f64_flops > 0 && all.n_speeds >= 2);
    cr_assert_not(weft_table_at(t, n, &r) || weft_table_at(t, -1, &r) || weft_table_at(t, 0, NULL));
}

/* What the machine can do is measured for each table, by time, on the threads that ops use: of_a_graph has all of them. */
static void measure_on_one_thread(void)
{
    cr_assert_eq(weft_set_num_threads(1), WEFT_OK);
}

FN(pointwise)
{
    out[0] = weft_sqrt(weft_mul(weft_add(in[0], in[1]), in[1]));
    return WEFT_OK;
}

Test(table, of_a_graph)
{
    weft_tensor x[2] = {weft_ones(weft_shape(64, 64), WEFT_F32),
                        weft_ones(weft_shape(64, 64), WEFT_F32)};
    weft_graph *g = weft_jit_graph(pointwise, NULL, x, 2, .name = "pointwise");
    cr_assert_not_null(g, "%s", weft_last_error());
    weft_table *t = weft_table_new(.graph = g, .inputs = x, .n_inputs = 2, .runs = 5);
    cr_assert_not_null(t, "%s", weft_last_error());
    check_sums(t);
    weft_table_total all;
    weft_table_row r;
    weft_table_get_total(t, &all);
    cr_assert(strcmp(all.name, "pointwise") == 0 && all.runs == 5 && all.fastest == 1);
    cr_assert(all.rows == 1 && all.ops == 3 && all.unfused.launches == 3 &&
              all.fused.fused_kernels == 1 && weft_table_at(t, 0, &r));
    /* by hand: two operands and a result; three passes of which two have two operands */
    cr_assert(r.read_bytes == 2 * 4096 * 4 && r.write_bytes == 4096 * 4 && r.flops == 3 * 4096);
    cr_assert_eq(r.unfused_bytes, (3 + 3 + 2) * 4096 * 4);
    cr_assert(strcmp(r.ops, "add mul sqrt") == 0 && strstr(r.sites, "test_table.c:"), "%s; %s",
              r.ops, r.sites);
    char *text = NULL;
    size_t size;
    const bool other = test_set_other_locale(); /* JSON has points in every locale */
    FILE *out = open_memstream(&text, &size);
    cr_assert_eq(weft_table_print(t, out), WEFT_OK);
    cr_assert_eq(weft_table_json(t, out), WEFT_OK);
    fclose(out);
    cr_assert_null(strstr(text, "\xd9\xab"), "%s", text);
    cr_assert(strstr(text, "3 ops ran as 1 launches") && strstr(text, "whole run") &&
                  strstr(text, "\"unfused_elsewhere_ms\": "),
              "%s", text);
    free(text);
    cr_assert_eq(weft_table_print(NULL, stdout), WEFT_EINVALID);
    cr_assert_eq(weft_table_json(t, NULL), WEFT_EINVALID);
    weft_table_free(t);
    t = weft_table_new(.graph = g, .inputs = x, .n_inputs = 2, .runs = 2, .fused_only = true);
    check_sums(t);
    weft_table_free(t);
    weft_table_free(NULL);
    weft_graph_free(g);
    if (!other) {
        cr_skip_test("all but JSON in another locale: the C library reads none made by hand");
    }
}

/* -- a training step: parameters, optimiser, generator ---------------------------------------------------- */

typedef struct net {
    weft_module *m;
    weft_tensor w, b;
    weft_optim *opt;
    weft_generator random;
} net;

FN(step)
{
    net *m = self;
    weft_module_zero_grad(m->m);
    weft_tensor h = weft_add(weft_matmul(in[0], m->w), m->b);
    h = weft_mul(weft_tanh(h), weft_rand(weft_shape(8, 5), .generator = &m->random));
    weft_tensor loss = weft_mean(weft_mul(h, h));
    weft_backward(loss);
    weft_optim_step(m->opt);
    out[0] = weft_detach(loss);
    return WEFT_OK;
}

static void make(net *m)
{
    m->random = (weft_generator){7, 0};
    m->m = weft_module_new(&m->random);
    weft_module_parameter(m->m, "w", weft_randn(weft_shape(6, 5), .generator = &m->random));
    weft_module_parameter(m->m, "b", weft_zeros(weft_shape(5), WEFT_F32));
    m->w = weft_module_get(m->m, "w");
    m->b = weft_module_get(m->m, "b");
    m->opt = weft_adamw_new(m->m, .lr = 0.01);
    cr_assert_not_null(m->opt, "%s", weft_last_error());
}

static void free_net(net *m)
{
    weft_optim_free(m->opt);
    weft_module_free(m->m);
}

Test(table, of_a_training_step_is_one_step)
{
    measure_on_one_thread();
    for (int frozen = 0; frozen < 2; frozen++) {
        net a, b;
        make(&a);
        make(&b);
        weft_tensor x = weft_randn(weft_shape(8, 6), WEFT_F32), la, lb;
        weft_jit *ja = weft_jit_trace(step, &a, .frozen = frozen),
                 *jb = weft_jit_trace(step, &b, .frozen = frozen);
        for (int i = 0; i < 8; i++) {
            weft_table *t = NULL;
            if (i % 3 == 2) { /* in the middle of calls that record, are frozen, are replayed */
                t = weft_table_new(.jit = ja, .inputs = &x, .n_inputs = 1, .outputs = &la,
                                   .runs = 3);
                cr_assert_not_null(t, "%s", weft_last_error());
                check_sums(t);
                weft_table_free(t);
            } else {
                cr_assert_eq(weft_jit_call(ja, &x, 1, &la, 1), WEFT_OK, "%s", weft_last_error());
            }
            cr_assert_eq(weft_jit_call(jb, &x, 1, &lb, 1), WEFT_OK);
            check_bits("loss", la, lb);
            check_bits("weights", a.w, b.w);
            check_bits("biases", a.b, b.b);
            check_bits("gradients", weft_grad(a.w), weft_grad(b.w));
            cr_assert_eq(memcmp(&a.random, &b.random, sizeof a.random), 0);
        }
        weft_jit_free(ja);
        weft_jit_free(jb);
        free_net(&a);
        free_net(&b);
    }
}

/* -- corners ---------------------------------------------------------------------------------------------- */

FN(reads)
{
    weft_tensor s = weft_sum(weft_exp(in[0]));
    out[0] = weft_mul(weft_neg(in[0]), weft_f(weft_item_f64(s)));
    return WEFT_OK;
}

FN(gathers)
{
    out[0] = weft_add(weft_index_select(in[0], 0, in[1]), weft_f(1));
    return WEFT_OK;
}

FN(fails)
{
    return WEFT_EUNSUPPORTED;
}

FN(nested)
{
    cr_assert_null(weft_table_new(.jit = self, .inputs = in, .n_inputs = n_in));
    cr_assert(strstr(weft_last_error(), "inside a trace"), "%s", weft_last_error());
    out[0] = weft_neg(in[0]);
    return WEFT_OK;
}

Test(table, corners)
{
    measure_on_one_thread();
    weft_tensor x = weft_randn(weft_shape(100), WEFT_F32), y = WEFT_NONE;
    weft_jit *j = weft_jit_trace(reads, NULL, .name = "reads");
    weft_table *t = weft_table_new(.jit = j, .inputs = &x, .n_inputs = 1, .outputs = &y, .runs = 2);
    cr_assert_not_null(t, "%s", weft_last_error());
    check_sums(t);
    weft_table_total all;
    weft_table_get_total(t, &all);
    cr_assert(all.graphs == 2 && strcmp(all.name, "reads") == 0, "%d graphs", all.graphs);
    weft_tensor want;
    reads(NULL, &x, 1, &want, 1);
    check_bits("of a call", y, want);
    weft_table_free(t);
    weft_table_get_total(NULL, &all);
    cr_assert(all.rows == 0 && *all.name == '\0');

    cr_assert_null(weft_table_new(.inputs = &x));
    cr_assert(strstr(weft_last_error(), "neither a graph nor"), "%s", weft_last_error());
    cr_assert_null(weft_table_new(.jit = j, .inputs = &x, .n_inputs = 1, .runs = -1));
    cr_assert_null(weft_table_new(.jit = j, .inputs = NULL, .n_inputs = 1));
    weft_jit *f = weft_jit_trace(fails, NULL), *in = weft_jit_trace(nested, j);
    cr_assert_null(weft_table_new(.jit = f, .inputs = &x, .n_inputs = 1));
    cr_assert_eq(weft_jit_call(in, &x, 1, &y, 1), WEFT_OK);

    weft_tensor bad[2] = {x, weft_from_data((int64_t[]){1, 500}, weft_shape(2), WEFT_I64)};
    weft_jit *g = weft_jit_trace(gathers, NULL, .name = "gathers");
    cr_assert_null(weft_table_new(.jit = g, .inputs = bad, .n_inputs = 2));
    cr_assert(strstr(weft_last_error(), "500"), "%s", weft_last_error());
    weft_jit_free(j);
    weft_jit_free(f);
    weft_jit_free(in);
    weft_jit_free(g);
}

/* A table of one of both, while every allocation in turn fails. */
static void check_without_memory(weft_jit *j, weft_graph *g, const weft_tensor *x)
{
    int64_t n = 0;
    for (weft_table *t = NULL; !t;) {
        weft_tensor y = WEFT_NONE;
        wf_alloc_fail_after(++n, 1);
        t = weft_table_new(.jit = j, .graph = g, .inputs = x, .n_inputs = 2,
                           .outputs = j ? &y : NULL, .runs = 1);
        wf_alloc_fail_after(0, 0);
        cr_assert(t || weft_last_status() == WEFT_ENOMEM, "%s", weft_last_error());
        weft_table_free(t);
    }
    cr_assert_gt(n, 10);
}

/* Every allocation may fail: a table or an error, and whatever was taken is given back. */
Test(table, without_memory)
{
    measure_on_one_thread();
    weft_tensor x[2] = {weft_ones(weft_shape(64), WEFT_F32), weft_ones(weft_shape(64), WEFT_F32)};
    weft_jit *j = weft_jit_trace(pointwise, NULL, .synchronous = true);
    check_without_memory(j, NULL, x);
    weft_jit_free(j);
    weft_graph *g = weft_jit_graph(pointwise, NULL, x, 2);
    check_without_memory(NULL, g, x);
    weft_graph_free(g);
}
