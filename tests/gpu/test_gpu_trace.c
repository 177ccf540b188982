/*
 * tests/gpu/test_gpu_trace.c -- traces and graphs of a GPU's tensors.
 *
 * ctest: timeout=600
 */
#include <math.h>

#include "tests/gpu/gpu.h"
#include "tests/gpu/trace_cases.h"

static weft_status product_and_sum(void *self, const weft_tensor *in, int n, weft_tensor *out,
                                   int m)
{
    (void)self, (void)n, (void)m;
    out[0] = weft_add(weft_mul(in[0], in[1]), in[2]);
    return weft_error_status(out[0]);
}

/* A product and a sum are one fma under fast math alone, from the first call on: it waits for the compiler. */
static void check_fast_math_contracts(void)
{
    enum { N = 300 };
    weft_tensor h[3], d[3], y;
    float v[4][N];
    for (int k = 0; k < 3; k++) {
        h[k] = weft_reshape(weft_slice(numbers(20, 30), 0, k, k + 10, 1), weft_shape(N));
        d[k] = weft_to(h[k], WEFT_CUDA(0));
        cr_assert_eq(weft_to_array(h[k], v[k], N, WEFT_F32), WEFT_OK);
    }
    for (int fast = 0; fast < 2; fast++) {
        weft_jit *j = weft_jit_trace(product_and_sum, NULL, .fast_math = fast);
        int differ = 0;
        for (int round = 0; round < 2; round++) {
            cr_assert_eq(weft_jit_call(j, d, 3, &y, 1), WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_to_array(y, v[3], N, WEFT_F32), WEFT_OK);
            for (int i = 0; i < N; i++) {
                const float p = v[0][i] * v[1][i], two = p + v[2][i];
                const float one = fmaf(v[0][i], v[1][i], v[2][i]);
                cr_assert_eq(v[3][i], fast ? one : two, "fast %d, element %d", fast, i);
                differ += one != two;
            }
        }
        cr_assert_gt(differ, 0);
        weft_jit_free(j);
    }
}

Test(gpu_trace, frozen_calls_guard_the_device)
{
    gpu_open(21);
    check_frozen_guards_the_device();
    gpu_check_races();
}

Test(gpu_trace, fast_math_contracts)
{
    gpu_open(26);
    check_fast_math_contracts();
    gpu_check_races();
}

Test(gpu_trace, breaks)
{
    gpu_open(22);
    check_breaks();
    gpu_check_races();
}

Test(gpu_trace, graphs)
{
    gpu_open(23);
    check_graphs();
    gpu_check_races();
}

static int select_line;

static weft_status selects(void *self, const weft_tensor *in, int n, weft_tensor *out, int m)
{
    (void)self, (void)n, (void)m;
    weft_tensor h = weft_mul(in[0], weft_f(2));
    select_line = __LINE__ + 1;
    out[0] = weft_index_select(h, 0, in[1]);
    return weft_error_status(out[0]);
}

/* An index that a kernel of a trace finds: the wait that tells of it names the op and the line in the function. */
Test(gpu_trace, an_index_out_of_range_names_the_op)
{
    gpu_open(28);
    char line[64];
    weft_tensor x = weft_to(numbers(5, 3), WEFT_CUDA(0)), y;
    weft_tensor at = weft_from_data((int64_t[]){1, 9}, weft_shape(2), WEFT_I64);
    weft_tensor in[2] = {x, weft_to(at, WEFT_CUDA(0))};
    weft_jit *j = weft_jit_trace(selects, NULL);
    float v[6];
    for (int i = 0; i < 3; i++) {
        weft_status rc = weft_jit_call(j, in, 2, &y, 1);
        rc = rc ? rc : weft_to_array(y, v, 6, WEFT_F32);
        snprintf(line, sizeof line, "test_gpu_trace.c:%d", select_line);
        cr_assert_eq(rc, WEFT_EINDEX);
        cr_assert(strstr(weft_last_error(), "index_select found index 9") &&
                      strstr(weft_last_error(), line),
                  "%s", weft_last_error());
        weft_clear_error();
    }
    weft_jit_free(j);
}

Test(gpu_trace, more_operands_than_a_byte_counts)
{
    gpu_open(27);
    check_many_operands();
    gpu_check_races();
}

Test(gpu_trace, frozen_calls_guard_the_default_device)
{
    gpu_open(25);
    check_frozen_guards_the_default_device();
    gpu_check_races();
}
