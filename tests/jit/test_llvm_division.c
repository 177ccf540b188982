/*
 * tests/jit/test_llvm_division.c -- division by a value that a row shares, which native kernels do by the reciprocal:
 * the quotients of C, bit for bit, for ordinary operands, for those around its limits and for special ones.
 *
 * ctest: timeout=300
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jit/kernels.h"
#include "tests/jit/llvm_support.h"

enum { ROWS = 600, WIDTH = 401 };

static uint64_t state = 0x9E3779B97F4A7C15u;
static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static float number(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A float of an exponent in [from, to), or a special one if kind is 0. */
static float any_float(int kind, int from, int to)
{
    static const float special[] = {0.0F,      -0.0F,     INFINITY, -INFINITY, NAN,
                                    0x1p-149F, 0x1p-126F, 0x1p127F, 1.0F,      -1.0F};
    if (kind == 0)
        return special[draw() % (sizeof special / sizeof *special)];
    const uint32_t exponent = (uint32_t)(127 + from) + draw() % (uint32_t)(to - from);
    uint32_t mantissa = draw() & 0x7FFFFF;
    mantissa = kind == 1 ? mantissa : draw() % 2 ? 0x7FFFFF - draw() % 3 : draw() % 3;
    return number((draw() & 0x80000000u) | exponent << 23 | mantissa);
}

/* Row r: divisors and elements from the middle, around the limits, from everywhere, special. */
static void fill(float *x, float *s, int r)
{
    const int edge = r % 4;
    s[r] = r % 13 == 0 ? any_float(0, 0, 1)
           : edge == 0 ? any_float(1 + r % 2, -30, 30)
           : edge == 1 ? any_float(2, -32, -28)
           : edge == 2 ? any_float(2, 28, 32)
                       : any_float(1, -126, 127);
    s[r] = r % 5 ? fabsf(s[r]) : s[r];
    for (int c = 0; c < WIDTH; c++) {
        const bool odd = r % 3 == 0 && c % 67 == 5;
        x[r * WIDTH + c] = odd          ? any_float(c % 2, -126, 127)
                           : r % 6 == 1 ? any_float(2, -92, -88)
                           : r % 6 == 2 ? any_float(2, 88, 92)
                           : r % 6 == 3 ? any_float(1, -126, -100)
                                        : any_float(1 + c % 2, -20, 20);
        if (r % 7 == 0 && c % 2)
            x[r * WIDTH + c] = c % 4 == 1 ? 0.0F : -0.0F;
        if ((r % 13 == 0 || r % 11 == 4) && c < 192) /* whole vectors of them, of any divisor */
            x[r * WIDTH + c] = r % 2 ? 0.0F : -0.0F;
    }
}

/* y from the kernel of p for ROWS rows of x and, with two inputs, the rows' s; `native`, or by the interpreter. */
static void run(const wf_program *p, int width, bool native, const float *x, const float *s,
                float *y)
{
    const wf_view whole = {.data = (char *)x,
                           .dtype = WEFT_F32,
                           .rank = 2,
                           .dims = {ROWS, WIDTH},
                           .strides = {WIDTH, 1}};
    wf_view dst = whole, in[2] = {whole, whole};
    dst.data = (char *)y;
    in[1].data = (char *)s;
    in[1].strides[0] = 1;
    in[1].strides[1] = 0;
    const wf_program_args args = {.dst = &dst, .src = in, .axes = 2};
    memset(y, 0x5A, ROWS * WIDTH * sizeof *y);
    if (!native) {
        cr_assert_eq(wf_program_run_on(p, &args), 0);
        return;
    }
    const wf_jitk_opts opts = {.sync = true, .target = {.arch = "host", .width = width}};
    wf_jitk *k = wf_jitk_get(p, &opts);
    cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE);
    cr_assert_eq(wf_jitk_run(k, &args), 0);
    wf_jitk_release(k);
}

static void quotients(wf_program *p)
{
    wf_program_init(p);
    const int src[2] = {wf_program_input(p, WEFT_F32), wf_program_input_row(p, WEFT_F32)};
    wf_program_output(p, wf_program_map(p, WF_OP_DIV, WEFT_F32, 2, src));
    cr_assert_eq(wf_program_finish(p), 0);
}

/* The quotients closest to the middle of two floats: of a divisor B of 24 bits, odd, a * 2^k = M * B + j, M odd of 25 bits,
 * j small. Each row has those of a few divisors' mantissas scaled to be one divisor's. */
Test(llvm_division, close_to_midpoints)
{
    NEED_LLVM();
    static wf_program p;
    static float x[ROWS * WIDTH], s[ROWS], y[ROWS * WIDTH];
    quotients(&p);
    for (int r = 0; r < ROWS; r++) {
        const uint32_t b = r < 64    ? 0xFFFFFFu - 2 * (uint32_t)r
                           : r < 128 ? 0x800001u + 2 * (uint32_t)(r - 64)
                                     : 0x800001u | (draw() & 0x7FFFFEu);
        uint32_t inverse = b;
        for (int step = 0; step < 5; step++)
            inverse *= 2 - b * inverse;
        s[r] = number(127u << 23 | (b & 0x7FFFFF));
        for (int c = 0; c < WIDTH; c++) {
            const int k = 24 + c % 2, j = c / 2 % 100 - 50;
            const uint64_t ones = (UINT64_C(1) << k) - 1;
            const uint64_t m =
                ((uint64_t)(uint32_t)-j * inverse & ones) | (c / 200 && k == 24 ? ones + 1 : 0);
            const uint64_t a = (m * b + (uint64_t)(int64_t)j) >> k;
            x[r * WIDTH + c] = number(127u << 23 | ((uint32_t)a & 0x7FFFFF));
        }
    }
    run(&p, 0, true, x, s, y);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const float want = x[i] / s[i / WIDTH];
        cr_assert_eq(memcmp(&want, &y[i], sizeof want), 0, "%a / %a is %a, not %a", (double)x[i],
                     (double)s[i / WIDTH], (double)want, (double)y[i]);
    }
}

/* Softmax, whose numerators are known to be small and whose exponents below zero: down to where exp is subnormal, then
 * 0, with what is not finite; as the interpreter has it. */
Test(llvm_division, softmax)
{
    NEED_LLVM();
    static wf_program p;
    static float x[ROWS * WIDTH], y[ROWS * WIDTH], want[ROWS * WIDTH];
    wf_program_init(&p);
    const int v = wf_program_input(&p, WEFT_F32);
    const int d[2] = {v, wf_program_reduce(&p, WF_OP_AMAX, v)};
    const int under = wf_program_map(&p, WF_OP_SUB, WEFT_F32, 2, d);
    const int e = wf_program_map(&p, WF_OP_EXP, WEFT_F32, 1, &under);
    const int q[2] = {e, wf_program_reduce(&p, WF_OP_SUM, e)};
    wf_program_output(&p, wf_program_map(&p, WF_OP_DIV, WEFT_F32, 2, q));
    cr_assert_eq(wf_program_finish(&p), 0);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < WIDTH; c++) {
            const float far = r % 4 == 0 ? 4.0F : r % 4 == 1 ? 60.0F : 120.0F;
            x[r * WIDTH + c] = r % 5 == 4 && c % 3 ? -INFINITY
                               : r % 50 == 7       ? any_float(c % 9 == 0 ? 0 : 1, -126, 127)
                               : r % 6 == 5 && c % 2
                                   ? 1000.0F
                                   : 100.0F - far * number(127u << 23 | (draw() & 0x7FFFFF));
        }
    run(&p, 0, false, x, NULL, want);
    for (int width = 0; width <= 16; width += 8) {
        run(&p, width, true, x, NULL, y);
        for (int i = 0; i < ROWS * WIDTH; i++)
            cr_assert(isnan(want[i]) ? isnan(y[i]) != 0 : memcmp(&want[i], &y[i], sizeof *y) == 0,
                      "softmax of %a is %a, not %a", (double)x[i], (double)y[i], (double)want[i]);
    }
}

Test(llvm_division, by_what_a_row_shares)
{
    NEED_LLVM();
    static wf_program p;
    static float x[ROWS * WIDTH], s[ROWS], y[ROWS * WIDTH];
    quotients(&p);
    for (int r = 0; r < ROWS; r++)
        fill(x, s, r);
    for (int width = 0; width <= 16; width += 16) {
        run(&p, width, true, x, s, y);
        for (int i = 0; i < ROWS * WIDTH; i++) {
            const float want = x[i] / s[i / WIDTH];
            cr_assert(isnan(want) ? isnan(y[i]) != 0 : memcmp(&want, &y[i], sizeof want) == 0,
                      "%a / %a is %a, not %a", (double)x[i], (double)s[i / WIDTH], (double)want,
                      (double)y[i]);
        }
    }
}
