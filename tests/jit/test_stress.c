/*
 * tests/jit/test_stress.c -- that the modes of WEFT_STRESS do what docs/testing.md says, and change no bit. The fuzzers run
 * under them too (cmake/WeftTests.cmake). Each test is a process: the environment is read once.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/ir.h"
#include "jit/passes/pass.h"
#include "weft/weft.h"

enum { CALLS = 6 };

static weft_status chain(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    weft_tensor x = in[0];
    for (int i = 0; i < 40; i++) {
        x = i % 2 ? weft_tanh(x) : weft_mul(x, in[1]);
    }
    out[0] = weft_sum(x, .axes = weft_axes(1));
    return weft_error_status(out[0]);
}

/* Calls eagerly and traced, compares bits. */
static weft_jit_stats run(int calls)
{
    weft_jit_stats s;
    weft_jit *j = weft_jit_trace(chain, NULL, .synchronous = true);
    for (int i = 0; i < calls; i++) {
        weft_tensor in[2] = {weft_randn(weft_shape(5, 7), WEFT_F32),
                             weft_randn(weft_shape(5, 7), WEFT_F32)},
                    x, y;
        cr_assert_eq(chain(NULL, in, 2, &x, 1), WEFT_OK);
        cr_assert_eq(weft_jit_call(j, in, 2, &y, 1), WEFT_OK, "%s", weft_last_error());
        cr_assert_arr_eq(weft_data(x), weft_data(y), 5 * sizeof(float));
    }
    weft_jit_get_stats(j, &s);
    weft_jit_free(j);
    return s;
}

Test(stress, nothing_without_a_mode)
{
    unsetenv("WEFT_STRESS");
    weft_jit_stats s = run(CALLS);
    cr_assert_eq(s.plans, 1);
    cr_assert_leq(s.steps, 2);
}

Test(stress, evict_knows_no_plan)
{
    setenv("WEFT_STRESS", "evict", 1);
    weft_jit_stats s = run(CALLS);
    cr_assert_eq(s.plans, CALLS);
    cr_assert_eq(s.hits, 0);
}

Test(stress, order_cuts_groups)
{
    setenv("WEFT_STRESS", "order:3", 1);
    cr_assert_gt(run(CALLS).steps, 3);
}

static const char text[] = "fn f {\n"
                           "  %1 = input f32[4]\n"
                           "  %2 = input f32[4]\n"
                           "  %3 = exp f32[4] %1\n"
                           "  %4 = tanh f32[4] %2\n"
                           "  %5 = add f32[4] %3, %4\n"
                           "  return %5\n}\n";

Test(stress, order_is_another_legal_order)
{
    wf_why why = {0};
    wf_fn *f = wf_fn_parse(text, strlen(text), &why), *g;
    cr_assert(f, "%s", why.rule);
    int other = 0;
    for (uint64_t seed = 0; seed < 32; seed++) {
        cr_assert_eq(wf_pass_shuffle(seed, f, &g, &why), 0, "%s", why.rule);
        cr_assert_eq(wf_fn_verify(g, &why), 0, "%s", why.rule);
        cr_assert_eq(g->n, f->n);
        other += !wf_fn_equal(f, g);
        wf_fn_free(g);
    }
    cr_assert(other > 4 && other < 32, "%d of 32 orders differ", other);
    wf_fn_free(f);
}

Test(stress, move_moves_at_every_append)
{
    setenv("WEFT_STRESS", "move", 1);
    run(2);
    cr_assert(wf_grow_moves);
    uint32_t cap = 0;
    int *a = NULL, moved = 0;
    for (uint32_t n = 0; n < 100; n++) {
        uintptr_t before = (uintptr_t)a;
        cr_assert_eq(wf_grow(&a, n, 1, &cap, sizeof *a), 0);
        moved += (uintptr_t)a != before;
        a[n] = (int)n;
    }
    for (int n = 0; n < 100; n++) {
        cr_assert_eq(a[n], n);
    }
    cr_assert_eq(moved, 100);
    free(a);
}
