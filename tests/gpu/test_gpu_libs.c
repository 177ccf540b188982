/*
 * tests/gpu/test_gpu_libs.c -- products, convolutions and attention through cuBLASLt and cuDNN against the host: the vendor's on a GPU,
 * fakes of them elsewhere.
 *
 * The library's order of summation is its own, so that operands are small integers: every order gives the same bits (but
 * in attention, which is compared within a few roundings).
 */
#include <math.h>

#include "eager/cuda/blaslt.h"
#include "eager/cuda/dnn.h"
#include "eager/cuda/dnn_attention.h"
#include "tests/gpu/equal.h"
#include "tests/gpu/gpu.h"

static void with_libraries(void)
{
#ifndef WEFT_GPU_RUNNER /* there: those that the machine has, or that the environment names */
    if (setenv("WEFT_CUBLASLT", WEFT_FAKE_CUBLAS, 1) || setenv("WEFT_CUDNN", WEFT_FAKE_CUDNN, 1)) {
        cr_skip_test("no environment");
    }
#endif
    gpu_open_as_set(5);
}

/* Integers in [-3, 3]. */
static weft_tensor numbers(double from, weft_shape s, weft_dtype dtype)
{
    int64_t n = 1;
    for (int i = 0; i < s.n; i++) {
        n *= s.v[i];
    }
    weft_tensor t = weft_arange(from, from + (double)n, 1, WEFT_F32);
    t = weft_sub(weft_remainder(weft_mul(t, weft_add(t, weft_f(1))), weft_f(7)), weft_f(3));
    return weft_reshape(weft_cast(t, dtype), s);
}

static weft_tensor away(weft_tensor t)
{
    return weft_to(t, WEFT_CUDA(0));
}

static void product(weft_tensor a, weft_tensor b)
{
    weft_tensor want = weft_matmul(a, b), got = weft_matmul(away(a), away(b));
    cr_assert(weft_ok(got), "%s", weft_error_text(got));
    check_equal("product", want, got);
}

Test(gpu_libs, products)
{
    with_libraries();
    if (strstr(wf_cuda_gemm_name(), "not found")) {
        cr_skip_test("%s", wf_cuda_gemm_name());
    }
    static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
    static const int64_t sizes[][3] = {{33, 17, 20}, {64, 64, 24}, {1, 40, 16}, {24, 1, 7}};
    for (size_t t = 0; t < 4; t++) {
        for (size_t i = 0; i < 4; i++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            weft_scope s = weft_scope_begin();
            weft_tensor a = numbers(1, weft_shape(m, k), types[t]),
                        b = numbers(5, weft_shape(k, n), types[t]);
            weft_tensor at = numbers(2, weft_shape(k, m), types[t]),
                        bt = numbers(9, weft_shape(n, k), types[t]);
            product(a, b);
            product(weft_transpose(at, 0, 1), b);
            product(a, weft_transpose(bt, 0, 1));
            product(weft_transpose(at, 0, 1), weft_transpose(bt, 0, 1));
            product(numbers(3, weft_shape(3, m, k), types[t]), b);
            weft_tensor bias = numbers(4, weft_shape(n), types[t]);
            check_equal("linear", weft_linear(a, bt, bias),
                        weft_linear(away(a), away(bt), away(bias)));
            weft_scope_end(s);
        }
    }
    cr_assert(wf_cuda_gemm_plans() > 30, "the library was used for %d shapes",
              (int)wf_cuda_gemm_plans());
}

Test(gpu_libs, a_step_repeated_neither_allocates_nor_waits)
{
    with_libraries();
    if (!gpu_has_pools()) {
        cr_skip_test("memory is not pooled");
    }
    weft_scope s = weft_scope_begin();
    weft_tensor x = away(numbers(1, weft_shape(128, 64), WEFT_F32)),
                w = away(numbers(2, weft_shape(64, 64), WEFT_F32));
    wf_cuda_counters before, after;
    int64_t slow = 0;
    wf_cuda_get_counters(&before);
    for (int i = 0; i < 12; i++) {
        if (i == 2) {
            wf_cuda_get_counters(&before);
            slow = gpu_slow_calls();
        }
        weft_scope step = weft_scope_begin();
        weft_linear(weft_relu(weft_linear(x, w, WEFT_NONE)), w, WEFT_NONE);
        weft_scope_end(step);
    }
    wf_cuda_get_counters(&after);
    cr_assert_eq(gpu_slow_calls(), slow, "%d calls that may wait", (int)(gpu_slow_calls() - slow));
    cr_assert_eq(after.driver_allocs, before.driver_allocs);
    cr_assert_eq(after.waits + after.hidden_waits, before.waits + before.hidden_waits);
    cr_assert_eq(weft_synchronize(WEFT_CUDA(0)), WEFT_OK, "%s", weft_last_error());
    weft_scope_end(s);
}

static weft_status biased(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)n, (void)n_out;
    out[0] = weft_linear(in[0], in[1], in[2]);
    out[0] = self ? weft_relu(out[0]) : out[0];
    return weft_error_status(out[0]);
}

/* Launches of a call after the first few, traced and eager. */
static void launches_of(void *relu, const weft_tensor in[3], weft_tensor want, int64_t launches)
{
    weft_jit *j = weft_jit_trace(biased, relu, .synchronous = true);
    wf_cuda_counters before = {0}, after;
    for (int i = 0; i < 8; i++) {
        weft_tensor y;
        wf_cuda_get_counters(&before);
        cr_assert_eq(i % 2 ? weft_jit_call(j, in, 3, &y, 1) : biased(relu, in, 3, &y, 1), WEFT_OK,
                     "%s", weft_last_error());
        wf_cuda_get_counters(&after);
        cr_assert(i < 6 || after.launches - before.launches == launches, "%d launches, %d, call %d",
                  (int)(after.launches - before.launches), (int)launches, i);
        check_equal("linear", want, y);
    }
    weft_jit_free(j);
}

/* A bias is the product's epilogue, eager and in plans: one launch. An activation is one of its own: the library's
 * lose NaN and the sign of zero (relu), or are approximations (gelu). */
Test(gpu_libs, a_bias_is_no_launch)
{
    static char yes;
    with_libraries();
    if (strstr(wf_cuda_gemm_name(), "not found")) {
        cr_skip_test("%s", wf_cuda_gemm_name());
    }
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16};
    for (int t = 0; t < 2; t++) {
        weft_tensor x = numbers(1, weft_shape(24, 16), types[t]),
                    w = numbers(2, weft_shape(32, 16), types[t]),
                    b = numbers(4, weft_shape(32), types[t]);
        const weft_tensor in[3] = {away(x), away(w), away(b)};
        launches_of(NULL, in, weft_linear(x, w, b), 1);
        launches_of(&yes, in, weft_relu(weft_linear(x, w, b)), 2);
    }
}

/* Half types whose rows do not begin at multiples of 16 bytes are copied, before and after, where the product is large; its last
 * column, and the last of the products that are summed, are products of their own. */
Test(gpu_libs, rows_that_begin_anywhere)
{
    enum { M = 1031, N = 1025, K = 1027 };
    with_libraries();
    if (strstr(wf_cuda_gemm_name(), "not found")) {
        cr_skip_test("%s", wf_cuda_gemm_name());
    }
    weft_tensor a = numbers(1, weft_shape(M, K), WEFT_BF16),
                b = numbers(5, weft_shape(N, K), WEFT_BF16);
    weft_tensor want = weft_matmul(a, weft_transpose(b, 0, 1)), da = away(a), db = away(b);
    const int64_t before = gpu_launches();
    weft_tensor got = weft_matmul(da, weft_transpose(db, 0, 1));
    cr_assert_eq(gpu_launches() - before, 7, "%d launches", (int)(gpu_launches() - before));
    check_equal("odd rows", want, got);
}

static weft_status product_and_more(void *self, const weft_tensor *in, int n, weft_tensor *out,
                                    int n_out)
{
    (void)self, (void)n, (void)n_out;
    weft_tensor x = weft_relu(weft_matmul(in[0], weft_transpose(in[1], 0, 1)));
    out[0] = weft_matmul(x, in[2]);
    return weft_error_status(out[0]);
}

/* In a plan the result of such a product has such rows from the start. */
Test(gpu_libs, rows_of_plans_begin_well)
{
    enum { M = 1024, N = 1025, K = 1024 };
    with_libraries();
    if (strstr(wf_cuda_gemm_name(), "not found")) {
        cr_skip_test("%s", wf_cuda_gemm_name());
    }
    weft_tensor in[3] = {numbers(1, weft_shape(M, K), WEFT_BF16),
                         numbers(5, weft_shape(N, K), WEFT_BF16),
                         numbers(7, weft_shape(N, 8), WEFT_BF16)};
    weft_tensor want, got;
    cr_assert_eq(product_and_more(NULL, in, 3, &want, 1), WEFT_OK);
    for (int i = 0; i < 3; i++) {
        in[i] = away(in[i]);
    }
    weft_jit *j = weft_jit_trace(product_and_more, NULL, .synchronous = true);
    const int64_t before = gpu_launches();
    cr_assert_eq(weft_jit_call(j, in, 3, &got, 1), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(gpu_launches() - before, 4, "%d launches", (int)(gpu_launches() - before));
    check_equal("plan", want, got);
    weft_jit_free(j);
}

static void convolution(weft_device d, int64_t groups, weft_tensor out[3])
{
    weft_tensor x = weft_to(numbers(1, weft_shape(2, 4, 9, 7), WEFT_F32), d),
                w = weft_to(numbers(2, weft_shape(6, 4 / groups, 3, 2), WEFT_F32), d);
    weft_requires_grad_(x, true);
    weft_requires_grad_(w, true);
    out[0] =
        weft_conv2d(.x = x, .weight = w, .bias = weft_to(numbers(3, weft_shape(6), WEFT_F32), d),
                    .stride = weft_shape(2, 1), .padding = weft_shape(1, 0),
                    .dilation = weft_shape(1, 2), .groups = groups);
    cr_assert_eq(weft_backward(weft_sum(weft_mul(out[0], out[0]))), WEFT_OK, "%s",
                 weft_last_error());
    out[1] = weft_grad(x);
    out[2] = weft_grad(w);
}

Test(gpu_libs, convolutions)
{
    with_libraries();
    if (strstr(wf_cuda_conv_name(), "not found")) {
        cr_skip_test("%s", wf_cuda_conv_name());
    }
    for (int64_t groups = 1; groups <= 2; groups++) {
        weft_tensor want[3], got[3];
        convolution(WEFT_CPU, groups, want);
        convolution(WEFT_CUDA(0), groups, got);
        for (int i = 0; i < 3; i++) {
            check_equal("convolution", want[i], got[i]);
        }
    }
    cr_assert_eq(wf_cuda_conv_plans(), 6, "the library was used");
}

/* A number that TF32 has not goes through a product and a convolution; to a few roundings of f32, as some of a library's ways transform
 * their operands. */
static void check_f32(double seen)
{
    const double most = 1.0 / (1 << 20);
    const double value = 1 + 1.0 / 4096;
    weft_tensor x = away(weft_full(weft_shape(8, 8), value, WEFT_F32)),
                one = weft_zeros(weft_shape(1, 1, 3, 3), WEFT_F32);
    weft_fill_(weft_slice(weft_slice(one, 2, 1, 2, 1), 3, 1, 2, 1), 1);
    weft_tensor y = weft_matmul(x, away(weft_eye(8, 8, 0, WEFT_F32))),
                z = weft_conv2d(.x = weft_reshape(x, weft_shape(1, 1, 8, 8)), .weight = away(one));
    cr_assert(weft_ok(y) && weft_ok(z), "%s", weft_last_error());
    y = weft_max(weft_abs(weft_sub(y, weft_f(seen))));
    z = weft_max(weft_abs(weft_sub(z, weft_f(seen))));
    cr_assert(weft_item_f64(y) <= most, "a product differs by %g", weft_item_f64(y));
    cr_assert(weft_item_f64(z) <= most, "a convolution differs by %g", weft_item_f64(z));
#ifndef WEFT_GPU_RUNNER
    cr_assert(wf_cuda_gemm_plans() == 1 && wf_cuda_conv_plans() == 1, "the libraries were used");
#endif
}

Test(gpu_libs, f32_is_f32)
{
    with_libraries();
    check_f32(1 + 1.0 / 4096);
}

#ifndef WEFT_GPU_RUNNER /* a library may take TF32 then, and need not */
Test(gpu_libs, f32_is_tf32_where_that_is_asked_for)
{
    cr_assert_eq(setenv("WEFT_TF32", "1", 1), 0);
    with_libraries();
    check_f32(1);
}
#endif

enum { ATTENDED = 2 * 128 * 32 };

/* The result and the gradients of q, k and v. */
static void attention(weft_device d, float out[4][ATTENDED])
{
    weft_scope s = weft_scope_begin();
    weft_tensor in[3];
    for (int i = 0; i < 3; i++) {
        weft_tensor t = weft_mul(numbers(1 + i, weft_shape(1, 128, 2, 32), WEFT_F32), weft_f(0.25));
        in[i] = weft_to(weft_cast(t, WEFT_BF16), d);
        weft_requires_grad_(in[i], true);
        in[i] = weft_permute(in[i], weft_axes(0, 2, 1, 3));
        weft_retain_grad(in[i]);
    }
    weft_tensor y =
        weft_scaled_dot_product_attention(.q = in[0], .k = in[1], .v = in[2], .causal = true);
    weft_tensor g = weft_to(numbers(5, weft_shape(1, 2, 128, 32), WEFT_BF16), d);
    cr_assert_eq(weft_backward(weft_sum(weft_mul(y, g))), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < 4; i++) {
        weft_tensor t = weft_contiguous(i == 0 ? y : weft_grad(in[i - 1]));
        cr_assert_eq(weft_to_array(t, out[i], ATTENDED, WEFT_F32), WEFT_OK, "%s",
                     weft_last_error());
    }
    weft_scope_end(s);
}

Test(gpu_libs, attention)
{
    with_libraries();
    if (strstr(wf_cuda_conv_name(), "not found")) {
        cr_skip_test("%s", wf_cuda_conv_name());
    }
    static float want[4][ATTENDED], got[4][ATTENDED], again[4][ATTENDED];
    attention(WEFT_CPU, want);
    attention(WEFT_CUDA(0), got);
    attention(WEFT_CUDA(0), again);
    cr_assert_eq(wf_cuda_sdpa_plans(), 2, "the library was asked");
    cr_assert_eq(memcmp(got, again, sizeof got), 0, "the same bits every time");
    for (int i = 0; i < 4; i++) {
        double largest = 0;
        for (int k = 0; k < ATTENDED; k++) {
            largest = fmax(largest, fabs((double)want[i][k]));
        }
        for (int k = 0; k < ATTENDED; k++) {
            cr_assert(fabs((double)want[i][k] - (double)got[i][k]) <= 0x1.8p-6 * largest,
                      "%d [%d]: %g %g", i, k, (double)want[i][k], (double)got[i][k]);
        }
    }
}
