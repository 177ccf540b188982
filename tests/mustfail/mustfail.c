/*
 * tests/mustfail/mustfail.c -- one test per check of tests/support, and each has to fail.
 *
 * A check that cannot fail is not a check: script/test runs this program and fails when one of its tests
 * passes. Keep one test for every check_* of support.h.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/support/sanitized.h"
#include "tests/support/support.h"

/* One more ULP than allowed. */
Test(mustfail, ulp)
{
    check_ulp("1 + 2 ulp", WEFT_F32, 1, 1, nextafterf(nextafterf(1, 2), 2));
}

/* -0 for +0. */
Test(mustfail, ulp_sign_of_zero)
{
    check_ulp("-0", WEFT_F64, 1e9, 0.0L, -0.0L);
}

Test(mustfail, ulp_nan)
{
    check_ulp("NaN", WEFT_F16, 1e9, 1, NAN);
}

/* The last bit of one element of many. */
Test(mustfail, bits)
{
    float x[1000] = {0}, y[1000] = {0};
    y[999] = 0x1p-149f;
    check_bits("1000 elements", weft_from_data(x, weft_shape(1000), WEFT_F32),
               weft_from_data(y, weft_shape(1000), WEFT_F32));
}

Test(mustfail, bits_of_another_type)
{
    check_bits("zeros", weft_zeros(weft_shape(3), WEFT_I32), weft_zeros(weft_shape(3), WEFT_F32));
}

Test(mustfail, shape)
{
    check_type("zeros", weft_zeros(weft_shape(2, 3), WEFT_F32), WEFT_F32, weft_shape(3, 2));
}

Test(mustfail, near)
{
    check_near("ones", weft_ones(weft_shape(1), WEFT_F64), (const long double[]){1 + 0x1p-40L},
               (const long double[]){0x1p-41L});
}

/* A result where an error was due. */
Test(mustfail, error)
{
    check_error("add", weft_add(weft_f(1), weft_f(2)), WEFT_EDTYPE, "add");
}

/* The right status with a message that does not name the op. */
Test(mustfail, error_text)
{
    check_error("exp", weft_exp(WEFT_NONE), WEFT_EINVALID, "log");
}

Test(mustfail, status)
{
    check_status("free", weft_free(WEFT_NONE), WEFT_EHANDLE, "free");
}

Test(mustfail, text)
{
    check_text("a golden text", "expected 3 rows", "expected 4 rows");
}

/* A kept tensor that is not freed. */
Test(mustfail, leak)
{
    test_baseline before = test_baseline_take();
    weft_scope sc = weft_scope_begin();
    weft_keep(weft_ones(weft_shape(4), WEFT_F32));
    weft_scope_end(sc);
    check_baseline("a kept tensor", &before);
}

/* y = x^2 with the gradient g x: half of what it is. */
static weft_status forward(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                           weft_tensor *out, int n_out)
{
    (void)user;
    (void)n_out;
    out[0] = weft_square(in[0]);
    return weft_function_save(ctx, in, n_in);
}
static weft_status backward(weft_function_ctx *ctx, void *user, const weft_tensor *grad_out,
                            int n_out, weft_tensor *grad_in, const bool *needs, int n_in)
{
    (void)user;
    (void)n_out;
    (void)n_in;
    if (needs[0]) {
        grad_in[0] = weft_mul(grad_out[0], weft_function_saved(ctx, 0));
    }
    return WEFT_OK;
}
static weft_status wrong_square(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    static const weft_function f = {
        .name = "wrong_square", .forward = forward, .backward = backward};
    return weft_apply(&f, user, in, n_in, out, n_out);
}
Test(mustfail, gradient)
{
    const double v[] = {0.5, 1.5, -2};
    weft_tensor x = weft_from_data(v, weft_shape(3), WEFT_F64);
    weft_requires_grad_(x, true);
    check_gradient("wrong_square", wrong_square, NULL, &x, 1);
}

#if UNDER_ASAN
/* Memory that nothing points at any more. */
Test(mustfail, lost_memory)
{
    void *volatile lost = malloc(100);
    lost = NULL;
    cr_assert_null(lost);
}

/* Kernels read one element more than there are. */
Test(mustfail, past_the_end)
{
    float *x = calloc(15, sizeof *x);
    weft_free(weft_add(weft_from_blob(x, weft_shape(16), WEFT_F32), weft_f(1)));
    free(x);
}
#endif
