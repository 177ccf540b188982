/*
 * tests/jit/test_fast_math.c -- weft_jit_args.fast_math: what it changes, and what it must not: eager calls, strict traces beside
 * it, the same numbers in every run and at every thread count, NaN and infinities.
 *
 * References are C's fma and expressions in double; the file is compiled without contraction.
 *
 * ctest: threads
 */
#include <math.h>

#include "eager/cpuid.h"
#include "eager/env.h"
#include "jit/lower.h"
#include "tests/jit/corner_support.h"
#include "weft/weft.h"

enum { N = 10007 };

static weft_tensor numbers(int seed, double scale)
{
    float v[N];
    for (int i = 0; i < N; i++) {
        v[i] = (float)(sin(1.7 * i + seed) * scale);
    }
    return weft_keep(weft_from_data(v, weft_shape(N), WEFT_F32));
}

static const float *floats(weft_tensor t)
{
    return weft_data(t);
}

static weft_jit *traced(weft_jit_fn fn, bool fast)
{
    return weft_jit_trace(fn, NULL, .fast_math = fast, .synchronous = true);
}

static bool has_fma(void)
{
    wf_why why;
    return wf_backend_cpu.available(&why) == 0 && wf_env()->WEFT_JIT != 0 &&
           wf_isa() >= WF_ISA_AVX2; /* kernels are made for what WEFT_ISA leaves */
}

/* At the end of a test that has checked all that can be without such a kernel: what it did not see is told. */
static void tell_unless_fma(void)
{
    wf_why why = {0};
    if (!has_fma()) {
        cr_skip_test("no kernel with an fma was run: %s",
                     wf_backend_cpu.available(&why) ? why.rule : "WEFT_JIT or WEFT_ISA leave none");
    }
}

FN(axpy)
{
    out[0] = weft_add(weft_mul(in[0], in[1]), in[2]);
    return weft_error_status(out[0]);
}

/* A product and a sum are one fma under fast math, and two roundings for everybody else, in the same process. */
Test(fast_math, contracts_only_what_asked_for_it)
{
    const weft_tensor x[3] = {numbers(1, 3), numbers(2, 3), numbers(3, 3)};
    weft_jit *fast = traced(axpy, true), *strict = traced(axpy, false);
    weft_tensor y, z;
    for (int round = 0; round < 3; round++) {
        OK(weft_jit_call(fast, x, 3, &y, 1));
        OK(weft_jit_call(strict, x, 3, &z, 1));
        const weft_tensor e = weft_add(weft_mul(x[0], x[1]), x[2]);
        int fused = 0;
        for (int i = 0; i < N; i++) {
            const float a = floats(x[0])[i], b = floats(x[1])[i], c = floats(x[2])[i];
            const float p = a * b, two = p + c, one = fmaf(a, b, c);
            cr_assert_eq(floats(z)[i], two, "strict, element %d", i);
            cr_assert_eq(floats(e)[i], two, "eager, element %d", i);
            cr_assert_eq(floats(y)[i], has_fma() ? one : two, "fast, element %d", i);
            fused += one != two;
        }
        cr_assert_gt(fused, N / 10); /* the two can be told apart */
    }
    weft_jit_free(fast);
    weft_jit_free(strict);
    tell_unless_fma();
}

FN(root_of_square)
{
    out[0] = weft_sqrt(weft_square(in[0]));
    return weft_error_status(out[0]);
}

/* A FAST rule of fold.def: sqrt(x x) = |x|, where xx overflows. */
Test(fast_math, folds_by_fast_rules)
{
    const float big[] = {1e30F, -1e30F, NAN, -INFINITY, -2};
    const weft_tensor x = weft_keep(weft_from_data(big, weft_shape(5), WEFT_F32));
    weft_jit *fast = traced(root_of_square, true), *strict = traced(root_of_square, false);
    weft_tensor y, z;
    OK(weft_jit_call(fast, &x, 1, &y, 1));
    OK(weft_jit_call(strict, &x, 1, &z, 1));
    cr_assert(isinf(floats(z)[0]) && isinf(floats(z)[1]));
    cr_assert_eq(floats(y)[0], big[0]);
    cr_assert_eq(floats(y)[1], big[0]);
    cr_assert(isnan(floats(y)[2]) && isinf(floats(y)[3]) && floats(y)[4] == 2);
    char *text = test_explained(fast);
    cr_assert(strstr(text, "fast math: "), "%s", text);
    free(text);
    weft_jit_free(fast);
    weft_jit_free(strict);
}

/* Chains, rows with a rare branch (whose choice depends on neighbours), rows that reduce, a division by what is uniform. */
FN(busy)
{
    const weft_tensor h = weft_add(weft_mul(in[0], in[1]), weft_mul(in[2], weft_f(0.3)));
    const weft_tensor s = weft_add(weft_mul(weft_sin(weft_mul(h, weft_f(9e5))), in[1]), in[2]);
    const weft_tensor m = weft_reshape(weft_narrow(h, 0, 0, 10000), weft_shape(40, 250));
    const weft_tensor soft = weft_softmax(weft_add(weft_mul(m, m), m), -1);
    const weft_tensor mean = weft_mean(weft_mul(m, soft), .axes = weft_axes(1));
    out[0] = weft_div(s, weft_f(3));
    out[1] = weft_layer_norm(soft);
    out[2] = weft_div(mean, weft_add(weft_max(weft_abs(m), .axes = weft_axes(1)), weft_f(1)));
    return weft_error_status(weft_add(out[2], out[2]));
}

static void check_same(weft_tensor a, weft_tensor b, int run)
{
    cr_assert_eq(weft_nbytes(a), weft_nbytes(b));
    cr_assert(memcmp(weft_data(a), weft_data(b), (size_t)weft_nbytes(a)) == 0, "run %d", run);
}

Test(fast_math, gives_the_same_numbers_at_every_run_and_thread_count)
{
    const weft_tensor x[3] = {numbers(1, 3), numbers(2, 3), numbers(3, 3)};
    const int threads[] = {1, 2, 3, 7};
    const int before = weft_get_num_threads();
    weft_tensor first[3];
    for (int run = 0; run < 12;
         run++) { /* new traces and old ones, other cuts, longer than trials would be */
        weft_jit *j = weft_jit_trace(busy, NULL, .fast_math = true, .frozen = run % 3 == 2);
        weft_set_num_threads(threads[run % 4]);
        for (int again = 0; again < 8; again++) {
            weft_tensor y[3];
            OK(weft_jit_call(j, x, 3, y, 3));
            for (int o = 0; o < 3; o++) {
                if (run + again == 0) {
                    first[o] = weft_keep(y[o]);
                } else {
                    check_same(first[o], y[o], run);
                }
            }
        }
        cr_assert_eq(stats_of(j).eager, 0);
        weft_jit_free(j);
    }
    weft_set_num_threads(before);
}

/* Near the strict results: what is relaxed is a few roundings of each element. */
Test(fast_math, stays_near_strict_results)
{
    const weft_tensor x[3] = {numbers(4, 3), numbers(5, 3), numbers(6, 3)};
    weft_jit *fast = traced(busy, true), *strict = traced(busy, false);
    weft_tensor y[3], z[3];
    OK(weft_jit_call(fast, x, 3, y, 3));
    OK(weft_jit_call(strict, x, 3, z, 3));
    for (int o = 1; o < 3; o++) { /* sin(9e5 h) makes much of the last place of h */
        for (int64_t i = 0; i < weft_numel(y[o]); i++) {
            const double a = floats(y[o])[i], b = floats(z[o])[i];
            cr_assert(fabs(a - b) <= 2e-5 * (fabs(b) + 1), "output %d, element %d: %a, %a", o,
                      (int)i, a, b);
        }
    }
    weft_jit_free(fast);
    weft_jit_free(strict);
}

/* What the two back ends are told: relaxed instructions in the text of the one, nothing in a strict program's. */
Test(fast_math, marks_programs_and_their_keys)
{
    wf_text key[2] = {{0}}, text[2] = {{0}};
    for (int fast = 0; fast < 2; fast++) {
        wf_program p;
        wf_kernel k;
        wf_why why = {0};
        wf_program_init(&p);
        p.fast = fast;
        const int a = wf_program_input(&p, WEFT_F32), b = wf_program_input(&p, WEFT_F32);
        const int m = wf_program_map(&p, WF_OP_MUL, WEFT_F32, 2, (int[]){a, b});
        const int e = wf_program_map(&p, WF_OP_EXP, WEFT_F32, 1, &m);
        wf_program_output(&p, wf_program_map(&p, WF_OP_ADD, WEFT_F32, 2, (int[]){e, m}));
        cr_assert_eq(wf_program_finish(&p), 0);
        wf_lower_key(&p, 0, &key[fast]);
        cr_assert_eq(wf_lower(&p, 0, &k, &why), 0, "%s", why.rule);
        int relaxed = 0;
        for (uint32_t i = 0; i < k.body.n; i++) {
            relaxed += k.body.ins[i].relaxed;
        }
        cr_assert_eq(relaxed, fast ? 2 : 0); /* the product and the sum, none of exp's own */
        cr_assert_eq(wf_backend_cpu.render(&k, &(wf_target){.arch = "host"}, &text[fast], &why), 0);
        wf_kernel_free(&k);
    }
    cr_assert(key[0].n != key[1].n || memcmp(key[0].s, key[1].s, key[0].n) != 0);
    cr_assert(strstr(text[1].s, "fmul reassoc nsz arcp contract ") && !strstr(text[0].s, "nsz"));
    cr_assert(!strstr(text[1].s, "nnan") && !strstr(text[1].s, "ninf"));
    for (int fast = 0; fast < 2; fast++) {
        wf_text_free(&key[fast]);
        wf_text_free(&text[fast]);
    }
}

/* -- graphs --------------------------------------------------------------------------------------------------------- */

/* A graph made with fast math runs with it, saved and loaded too; one made without stays strict beside it. */
Test(fast_math, graphs_remember_it)
{
    const weft_tensor x[3] = {numbers(1, 3), numbers(2, 3), numbers(3, 3)};
    for (int k = 0; k < 4; k++) {
        const bool fast = k & 1;
        weft_tensor y;
        weft_graph *g = weft_jit_graph(axpy, NULL, x, 3, .fast_math = fast);
        cr_assert_not_null(g, "%s", weft_last_error());
        if (k & 2) {
            g = test_reloaded(g);
        }
        cr_assert_eq(weft_graph_fast_math(g), fast);
        OK(weft_graph_run(g, x, 3, &y, 1));
        for (int i = 0; i < N; i++) {
            const float a = floats(x[0])[i], b = floats(x[1])[i], c = floats(x[2])[i];
            const float p = a * b, two = p + c;
            cr_assert_eq(floats(y)[i], fast && has_fma() ? fmaf(a, b, c) : two, "case %d", k);
        }
        weft_graph_free(g);
    }
    cr_assert(!weft_graph_fast_math(NULL));
    tell_unless_fma();
}

/* What the file says is "fast", or nothing. */
Test(fast_math, other_words_in_a_file_are_refused)
{
    static const struct {
        const char *word;
        bool good;
    } words[] = {{"fast", true}, {"", false}, {"faster", false}, {"strict", false}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const weft_metadata meta[] = {
            {"weft.version", "1"},
            {"weft.graph", "fn f {\n  %1 = input f32[3]\n  %2 = neg f32[3] %1\n  return %2\n}\n"},
            {"weft.inputs", "x\n"},
            {"weft.weights", ""},
            {"weft.outputs", "y\n"},
            {"weft.math", words[i].word}};
        void *data;
        size_t size;
        OK(weft_safetensors_encode(NULL, 0, meta, 6, &data, &size));
        weft_graph *g = weft_graph_decode(data, size);
        free(data);
        cr_assert_eq(g != NULL, words[i].good, "'%s': %s", words[i].word, weft_last_error());
        cr_assert_eq(weft_graph_fast_math(g), words[i].good);
        weft_graph_free(g);
    }
}
