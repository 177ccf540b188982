/*
 * tests/jit/test_jit_long.c -- traces that live long: ten thousand shapes and a million calls in memory that does not
 * grow.
 *
 * Memory is what the program holds from malloc and from the tensors' allocator; plans, kernels and recordings are in the
 * one, results and temporaries in the other. Freed blocks that an allocator keeps do not count.
 *
 * ctest: timeout=600
 */
#include <criterion/criterion.h>
#include <malloc.h>

#include "tests/support/effort.h"
#include "weft/weft.h"

/* Bytes held now. Sanitizers replace malloc and then count nothing here: the allocator's part is left. */
static double held(void)
{
    weft_memory_stats s;
    weft_memory_get_stats(&s);
    return (double)s.live_bytes + (double)mallinfo2().uordblks + (double)mallinfo2().hblkhd;
}

/* A reduction, a view, a product and a gradient, for any number of rows. */
static weft_status step(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    weft_tensor w = *(const weft_tensor *)self;
    (void)n_in, (void)n_out;
    weft_tensor h = weft_gelu(weft_matmul(in[0], w));
    h = weft_mul(weft_softmax(h, -1),
                 weft_transpose(weft_contiguous(weft_transpose(h, 0, 1)), 0, 1));
    out[0] = weft_mean(h);
    weft_set_grad(w, WEFT_NONE);
    return weft_backward(out[0]);
}

static void call(weft_jit *j, int64_t rows)
{
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_full(weft_shape(rows, 3), 0.25, WEFT_F32), y;
    cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    const double got = weft_item_f64(y);
    cr_assert(got > 0 && got < 1, "%lld rows: %g", (long long)rows, got);
    weft_scope_end(s);
}

Test(jit_long, ten_thousand_shapes_in_flat_memory)
{
    weft_tensor w = weft_keep(weft_ones(weft_shape(3, 4), WEFT_F32));
    weft_requires_grad_(w, true);
    weft_jit *j =
        weft_jit_trace(step, &w, .name = "shapes", .max_plans = 64, .always_record = true);
    const int64_t shapes = (int64_t)effort_of(10000), more = shapes / 5;
    double before = 0;
    for (int64_t i = 0; i < shapes + more; i++) {
        before =
            i == shapes ? held() : before; /* oneDNN has filled its own bounded cache by then */
        call(j, 1 + i);
    }
    weft_jit_stats st;
    weft_jit_get_stats(j, &st);
    cr_expect(st.plans >= shapes && st.evictions >= st.plans - 64, "%lld plans, %lld evicted",
              (long long)st.plans, (long long)st.evictions);
    const double grown = held() - before;
    cr_expect_leq(grown, 262144, "%lld shapes more: %.0f bytes", (long long)more, grown);
    weft_jit_free(j);
    weft_free(w);
}

static weft_status scaled(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    double *rate = self;
    (void)n_in, (void)n_out;
    *rate += 1e-6;
    out[0] = weft_add(weft_mul(in[0], weft_f(*rate)), in[0]);
    return WEFT_OK;
}

Test(jit_long, a_million_calls_in_flat_memory)
{
    double rate = 0;
    weft_scope s = weft_scope_begin();
    weft_jit *j = weft_jit_trace(scaled, &rate, .name = "calls", .always_record = true);
    weft_tensor x = weft_ones(weft_shape(4), WEFT_F32);
    const int64_t calls = (int64_t)effort_of(1000000), warm = calls / 10;
    double before = 0;
    for (int64_t i = 0; i < calls; i++) {
        before = i == warm ? held() : before;
        weft_scope one = weft_scope_begin();
        weft_tensor y;
        cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
        if (i % 1000 == 0)
            cr_assert_float_eq(weft_item_f64(weft_select(y, 0, 3)), 1 + rate, 1e-5);
        weft_scope_end(one);
    }
    const double grown = held() - before;
    cr_expect_leq(grown, 65536, "%lld calls: %.0f bytes more", (long long)calls, grown);
    weft_jit_stats st;
    weft_jit_get_stats(j, &st);
    cr_expect(st.calls == calls && st.plans == 1, "%lld calls, %lld plans", (long long)st.calls,
              (long long)st.plans);
    weft_jit_free(j);
    weft_scope_end(s);
}
