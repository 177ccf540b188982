/*
 * tests/jit/test_cuda_division.c -- rows divided by a value of their own on the device: by its reciprocal and a correction, or by the
 * division where an operand is too small or too large for that. Bits are the host's quotients either way.
 */
#include <math.h>

#include "tests/jit/cuda_support.h"
#include "tests/jit/kernel_support.h"
#include "tests/jit/programs.h"
#include "tests/jit/values.h"

/* Divisors and elements at, within and beyond the bounds, and what is special. */
static const double odd[] = {
    0x1p-30,        0x1.fffffep-31, 0x1.fffffep29,  0x1p30,        -3,       0,
    -0.0,           0x1p-149,       0x1.fffffep127, INFINITY,      NAN,      0x1p-126,
    0x1.fffffep-91, 0x1p-90,        -0x1p90,        0x1.000002p90, 0x1p-130, -0x1.8p-100};
enum { ODD = sizeof odd / sizeof *odd, ROWS = 3 * ODD, COLUMNS = 700 };

static float ordinary(uint64_t seed)
{
    const uint64_t h = values_hash(seed);
    return ldexpf(1 + (float)(h & 0x7FFFFF) * 0x1p-23f, (int)(h >> 32) % 25 - 12) *
           (h >> 63 ? -1 : 1);
}

/* x / s; or, with totals of x in the same stage. */
static void write_quotient(wf_program *p, bool totals)
{
    const int x = wf_program_input(p, WEFT_F32), s = wf_program_input_row(p, WEFT_F32);
    const int q = program_map2(p, WF_OP_DIV, x, s);
    wf_program_output(p, q);
    wf_program_output(p, wf_program_reduce(p, WF_OP_AMAX, totals ? q : x));
}

static void check_quotients(const float *x, const float *s, bool totals)
{
    static wf_program p;
    static float got[ROWS * COLUMNS], most[ROWS];
    wf_why why = {0};
    wf_program_init(&p);
    write_quotient(&p, totals);
    cr_assert_eq(wf_program_finish(&p), 0);
    wf_view matrix = {.data = (void *)(uintptr_t)x,
                      .dtype = WEFT_F32,
                      .rank = 2,
                      .dims = {ROWS, COLUMNS},
                      .strides = {COLUMNS, 1}};
    wf_view column = matrix, dst[2];
    column.strides[0] = 1;
    column.strides[1] = 0;
    dst[0] = matrix;
    dst[0].data = got;
    dst[1] = column;
    dst[1].data = most;
    column.data = (void *)(uintptr_t)s;
    const wf_view src[2] = {matrix, column};
    cr_assert_eq(device_program(&p, &(wf_program_args){.dst = dst, .src = src, .axes = 2}, &why), 0,
                 "%s", why.rule);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const float want = x[i] / s[i / COLUMNS];
        uint32_t a, b;
        memcpy(&a, &got[i], 4);
        memcpy(&b, &want, 4);
        cr_assert(a == b || (got[i] != got[i] && want != want), "%a / %a is %a, expected %a",
                  (double)x[i], (double)s[i / COLUMNS], (double)got[i], (double)want);
    }
}

/* A third of the rows has one odd element each, a third many, a third none; every divisor comes in all three. */
Test(cuda_division, of_rows)
{
    static float x[ROWS * COLUMNS], s[ROWS];
    NEED_FIBERS();
    for (int totals = 0; totals < 2; totals++)
        for (int odd_divisors = 0; odd_divisors < 2; odd_divisors++) {
            for (int r = 0; r < ROWS; r++) {
                s[r] = odd_divisors ? (float)odd[r / 3] : ordinary((uint64_t)r);
                for (int c = 0; c < COLUMNS; c++) {
                    const uint64_t h = values_hash((uint64_t)(r * COLUMNS + c));
                    const bool special =
                        r % 3 == 0 ? c == r * 13 % COLUMNS : r % 3 == 1 && h % 5 == 0;
                    x[r * COLUMNS + c] =
                        !special ? ordinary(h) : (float)odd[r % 3 ? h / 5 % ODD : (uint64_t)r / 3];
                }
            }
            check_quotients(x, s, totals);
        }
}
