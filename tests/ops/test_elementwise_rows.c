/*
 * tests/ops/test_elementwise_rows.c -- every elementwise row through its public function.
 *
 * Generated from the op table: values of every element type against tests/ref within the row's error
 * budget (NaN, infinities and signs of zeros exactly), every layout of operands bit for bit against
 * row-major copies, scalars, in-place twins, result types and refusals, and a sweep over sampled f32
 * arguments of the one-operand rows at every instruction set and number of threads.
 *
 * ctest: timeout=300 optimised
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/cpuid.h"
#include "tests/support/rows.h"
#include "tests/support/effort.h"

static weft_tensor from(const void *p, weft_shape s, int dtype)
{
    weft_tensor t = weft_from_data(p, s, (weft_dtype)dtype);
    cr_assert(weft_ok(t), "%s", weft_error_text(t));
    return t;
}

static const char *label(wf_op op, int dtype, const char *what)
{
    static char text[160];
    snprintf(text, sizeof text, "%s of %s, %s", wf_rows[op].name,
             weft_dtype_name((weft_dtype)dtype), what);
    return text;
}

/* -- values ------------------------------------------------------------------------------------------- */

static void check_values(wf_op op, int dtype)
{
    weft_scope sc = weft_scope_begin();
    row_data d = row_data_new(op, dtype);
    weft_tensor x[3];
    for (int k = 0; k < ref_rows[op].nsrc; k++) {
        x[k] = from(d.x[k], weft_shape(d.n), d.dtype[k]);
    }
    int result = row_is_bool(op) ? WEFT_BOOL : row_computes(op, dtype);
    weft_tensor y = row_call(op, x);
    check_type(label(op, dtype, "contiguous"), y, (weft_dtype)result, weft_shape(d.n));
    const char *p = weft_data(y);
    size_t size = weft_dtype_size((weft_dtype)result);
    int64_t skipped = 0, failed = 0;
    for (int64_t i = 0; i < d.n; i++) {
        double allowed, e;
        real v[3], want = row_expect(op, &d, i, v);
        real got = test_load(p + (size_t)i * size, result);
        row_verdict verdict = row_judge(op, result, want, got, v, &e, &allowed);
        skipped += verdict == ROW_SKIPPED;
        if (verdict != ROW_WRONG || ++failed > 5) {
            continue;
        }
        cr_expect(0, "%s of %s (%La, %La, %La): %La (%Lg), exactly %La (%Lg): %g ULP, %g allowed",
                  wf_rows[op].name, weft_dtype_name((weft_dtype)dtype), v[0], v[1], v[2], got, got,
                  want, want, e, allowed);
    }
    cr_expect_eq(failed, 0, "%s of %s: %lld of %lld values are wrong", wf_rows[op].name,
                 weft_dtype_name((weft_dtype)dtype), (long long)failed, (long long)d.n);
    cr_assert(skipped < d.n / 2, "%s: %lld of %lld skipped", wf_rows[op].name, (long long)skipped,
              (long long)d.n);
    row_data_free(&d);
    weft_scope_end(sc);
}

Test(elementwise_rows, values)
{
    int rows = 0;
    FOR_EACH_ELEMENTWISE(op)
    {
        for (int dtype = WEFT_BOOL; dtype < WEFT_DTYPE_COUNT; dtype++) {
            if (row_computes(op, dtype)) {
                check_values(op, dtype);
            }
        }
        rows++;
    }
    cr_assert(rows > 85, "only %d rows", rows);
}

/* -- types --------------------------------------------------------------------------------------------- */

/* A type that a row does not take is refused by name; two types join as documented, which gives the
 * bits of the cast operands. */
Test(elementwise_rows, types)
{
    FOR_EACH_ELEMENTWISE(op)
    {
        int nsrc = ref_rows[op].nsrc;
        for (int a = WEFT_BOOL; a < WEFT_DTYPE_COUNT; a++) {
            for (int b = WEFT_BOOL; b < (nsrc > 1 ? WEFT_DTYPE_COUNT : WEFT_BOOL + 1); b++) {
                weft_scope sc = weft_scope_begin();
                static const float plain[] = {1, 0, 3, 2, 5};
                weft_tensor v = from(plain, weft_shape(5), WEFT_F32), x[3], y[3];
                int dtype = nsrc == 1 ? a : row_join(a, b), computes = row_computes(op, dtype);
                int first = wf_rows[op].kind == WF_KIND_CHOOSE;
                for (int k = 0; k < nsrc; k++) {
                    int own = k < first ? WEFT_BOOL : k == first ? a : b;
                    x[k] = weft_cast(v, (weft_dtype)own);
                    y[k] = k < first || !computes ? x[k] : weft_cast(x[k], (weft_dtype)computes);
                }
                char what[64];
                snprintf(what, sizeof what, "with %s", weft_dtype_name((weft_dtype)b));
                if (!computes) {
                    check_error(label(op, a, what), row_call(op, x), WEFT_EDTYPE, wf_rows[op].name);
                } else {
                    check_bits(label(op, a, what), row_call(op, x), row_call(op, y));
                    check_type(label(op, a, what), row_call(op, x),
                               row_is_bool(op) ? WEFT_BOOL : (weft_dtype)computes, weft_shape(5));
                }
                weft_scope_end(sc);
            }
        }
    }
}

/* A condition that is not bool is refused. */
Test(elementwise_rows, conditions)
{
    for (int dtype = WEFT_U8; dtype < WEFT_DTYPE_COUNT; dtype++) {
        weft_tensor c = weft_ones(weft_shape(2), (weft_dtype)dtype);
        check_error("where", weft_where(c, weft_f(1), weft_f(2)), WEFT_EDTYPE, "where");
    }
}

/* -- layouts ------------------------------------------------------------------------------------------- */

enum layout {
    ROW_MAJOR,
    TRANSPOSED,
    REVERSED,
    STEPPED,
    ONE_ROW,
    ONE_COLUMN,
    SINGLE,
    EXPANDED,
    NLAYOUT
};
enum { ROWS = 5, COLUMNS = 13 };

/* An operand with that layout whose elements come from p[0, 2 * ROWS * COLUMNS). */
static weft_tensor arranged(enum layout layout, const char *p, int dtype)
{
    switch (layout) {
    case TRANSPOSED:
        return weft_transpose(from(p, weft_shape(COLUMNS, ROWS), dtype), 0, 1);
    case REVERSED:
        return weft_flip(from(p, weft_shape(ROWS, COLUMNS), dtype), weft_axes(0, 1));
    case STEPPED:
        return weft_slice(from(p, weft_shape(ROWS, 2 * COLUMNS), dtype), 1, WEFT_OMIT, WEFT_OMIT,
                          -2);
    case ONE_ROW:
        return from(p, weft_shape(COLUMNS), dtype);
    case ONE_COLUMN:
        return from(p, weft_shape(ROWS, 1), dtype);
    case SINGLE:
        return from(p, weft_shape(), dtype);
    case EXPANDED:
        return weft_expand(from(p, weft_shape(1, COLUMNS), dtype), weft_shape(ROWS, COLUMNS));
    case ROW_MAJOR:
    case NLAYOUT:
        break;
    }
    return from(p, weft_shape(ROWS, COLUMNS), dtype);
}

/* A row-major copy with the extents [ROWS, COLUMNS], element by element. */
static weft_tensor spread(weft_tensor t)
{
    char copy[ROWS * COLUMNS * 8];
    int dtype = (int)weft_dtype_of(t), rank = weft_rank(t);
    size_t size = weft_dtype_size((weft_dtype)dtype);
    const char *p = weft_data(t);
    int64_t down = rank == 2 && weft_dim(t, 0) > 1 ? weft_stride(t, 0) : 0;
    int64_t right = rank >= 1 && weft_dim(t, -1) > 1 ? weft_stride(t, -1) : 0;
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLUMNS; j++) {
            memcpy(copy + (size_t)(i * COLUMNS + j) * size,
                   p + (i * down + j * right) * (int64_t)size, size);
        }
    }
    return from(copy, weft_shape(ROWS, COLUMNS), dtype);
}

static void check_layouts(wf_op op, int dtype, const row_data *d)
{
    static const char *const names[NLAYOUT] = {"row-major", "transposed", "reversed", "stepped",
                                               "one row",   "one column", "single",   "expanded"};
    int nsrc = ref_rows[op].nsrc;
    for (int first = 0; first < NLAYOUT; first++) {
        for (int turn = 0; turn < (nsrc > 1 ? NLAYOUT : 1); turn++) {
            weft_scope sc = weft_scope_begin();
            weft_tensor x[3], plain[3];
            bool full = false;
            for (int k = 0; k < nsrc; k++) {
                enum layout l = (enum layout)((first + k * turn) % NLAYOUT);
                size_t size = weft_dtype_size((weft_dtype)d->dtype[k]);
                int64_t at = (first * 31 + k * 77 + turn * 13) % (d->n - 2 * ROWS * COLUMNS);
                x[k] = arranged(l, d->x[k] + (size_t)at * size, d->dtype[k]);
                plain[k] = spread(x[k]);
                full |= l <= STEPPED || l == EXPANDED;
            }
            if (full) {
                char what[64];
                snprintf(what, sizeof what, "%s first, turn %d", names[first], turn);
                check_bits(label(op, dtype, what), row_call(op, x), row_call(op, plain));
            }
            weft_scope_end(sc);
        }
    }
}

/* Lengths around vector widths, no elements, and 0-d. */
static void check_lengths(wf_op op, int dtype, const row_data *d)
{
    static const int64_t lengths[] = {1, 7, 63, 65, 1000};
    int nsrc = ref_rows[op].nsrc;
    weft_scope sc = weft_scope_begin();
    weft_tensor all[3], x[3];
    for (int k = 0; k < nsrc; k++) {
        all[k] = from(d->x[k], weft_shape(d->n), d->dtype[k]);
    }
    weft_tensor y = row_call(op, all);
    for (int64_t start = 0; start < d->n; start += d->n / 3) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            int64_t n = lengths[l] < d->n - start ? lengths[l] : d->n - start;
            for (int k = 0; k < nsrc; k++) {
                x[k] = weft_clone(weft_narrow(all[k], 0, start, n));
            }
            check_bits(label(op, dtype, "odd length"), row_call(op, x),
                       weft_narrow(y, 0, start, n));
        }
        for (int k = 0; k < nsrc; k++) {
            x[k] = weft_select(all[k], 0, start);
        }
        check_bits(label(op, dtype, "0-d"), row_call(op, x), weft_select(y, 0, start));
    }
    static const int64_t empty[][4] = {{1, 0, 0, 0}, {3, 3, 0, 2}, {2, 0, 5, 0}};
    for (int e = 0; e < 3; e++) {
        weft_shape s = weft_shape_from(empty[e][0], empty[e] + 1);
        for (int k = 0; k < nsrc; k++) {
            x[k] = k == 1 ? weft_select(all[k], 0, 0) : weft_zeros(s, (weft_dtype)d->dtype[k]);
        }
        check_type(label(op, dtype, "no elements"), row_call(op, x), weft_dtype_of(y), s);
    }
    weft_scope_end(sc);
}

Test(elementwise_rows, layouts)
{
    FOR_EACH_ELEMENTWISE(op)
    {
        for (int dtype = WEFT_BOOL; dtype < WEFT_DTYPE_COUNT; dtype++) {
            if (row_computes(op, dtype)) {
                row_data d = row_data_new(op, dtype);
                check_layouts(op, dtype, &d);
                check_lengths(op, dtype, &d);
                row_data_free(&d);
            }
        }
    }
}

/* -- scalars ------------------------------------------------------------------------------------------- */

static weft_tensor scalar_of(int dtype, double v)
{
    return dtype == WEFT_BOOL     ? weft_b(v != 0)
           : test_is_float(dtype) ? weft_f(v)
                                  : weft_i((int64_t)v);
}

/* A scalar operand gives the bits of the 0-d tensor of its value. */
Test(elementwise_rows, scalars)
{
    static const double floats[] = {0, -0.0, 1.5, -2, 3, INFINITY, NAN};
    static const double ints[] = {0, 1, 3, 100};
    FOR_EACH_ELEMENTWISE(op)
    {
        for (int dtype = WEFT_BOOL; dtype < WEFT_DTYPE_COUNT; dtype++) {
            if (!row_computes(op, dtype)) {
                continue;
            }
            row_data d = row_data_new(op, dtype);
            bool flt = test_is_float(dtype);
            int count = flt ? 7 : 4, nsrc = ref_rows[op].nsrc;
            for (int i = 0; i < count * nsrc; i++) {
                weft_scope sc = weft_scope_begin();
                weft_tensor x[3], y[3];
                double v = flt ? floats[i % count] : ints[i % count];
                int at = i / count;
                for (int k = 0; k < nsrc; k++) {
                    x[k] = y[k] = from(d.x[k], weft_shape(100), d.dtype[k]);
                }
                x[at] = scalar_of(d.dtype[at], v);
                y[at] = weft_scalar(v, (weft_dtype)d.dtype[at]);
                if (nsrc > 1) {
                    check_bits(label(op, dtype, "a scalar operand"), row_call(op, x),
                               row_call(op, y));
                } else if (dtype == WEFT_F32 || dtype == WEFT_I64 || dtype == WEFT_BOOL) {
                    check_bits(label(op, dtype, "of a scalar"), row_call(op, x), row_call(op, y));
                }
                weft_scope_end(sc);
            }
            row_data_free(&d);
        }
    }
}

/* -- in place ------------------------------------------------------------------------------------------ */

Test(elementwise_rows, in_place)
{
    FOR_EACH_ELEMENTWISE(op)
    {
        for (int dtype = WEFT_BOOL; dtype < WEFT_DTYPE_COUNT; dtype++) {
            if (!row_computes(op, dtype)) {
                continue;
            }
            row_data d = row_data_new(op, dtype);
            for (int l = ROW_MAJOR; l <= STEPPED; l++) {
                weft_scope sc = weft_scope_begin();
                weft_tensor x[3], copy[3];
                weft_status status = WEFT_OK;
                for (int k = 0; k < ref_rows[op].nsrc; k++) {
                    x[k] = arranged((enum layout)l, d.x[k], d.dtype[k]);
                    copy[k] = weft_clone(x[k]);
                }
                weft_tensor y = row_call(op, x);
                const char *what = label(op, dtype, "in place");
                if (row_write(op, x, &status)) {
                    if (row_computes(op, dtype) == dtype) {
                        check_status(what, status, WEFT_OK, "");
                        check_bits(what, x[0], y);
                        cr_assert_gt(weft_write_count(x[0]), 0u, "%s", what);
                    } else { /* a float result does not fit an integer target */
                        check_status(what, status, WEFT_EDTYPE, wf_rows[op].name);
                        check_bits(what, x[0], copy[0]);
                    }
                }
                weft_scope_end(sc);
            }
            row_data_free(&d);
        }
    }
}

/* -- sampled sweep ------------------------------------------------------------------------------------- */

#if UNDER_ASAN
enum { STRIDE = 98317, BLOCK = 1 << 14 };
#else
enum { STRIDE = 12289, BLOCK = 1 << 17 };
#endif

/* Every instruction set and number of threads: the same bits. */
static void check_everywhere(wf_op op, weft_tensor x, weft_tensor y, int isa_most)
{
    static const int threads[] = {1, 2, 3, 7};
    for (int isa = WF_ISA_SSE2; isa <= isa_most; isa++) {
        wf_set_isa(isa);
        for (int t = 0; t < 4; t += EFFORT_THREAD_STEP) {
            if (isa != isa_most && t % 3 != 0) {
                continue;
            }
            weft_scope sc = weft_scope_begin();
            weft_set_num_threads(threads[t]);
            char what[64];
            snprintf(what, sizeof what, "%s, %d threads", wf_isa_name(isa), threads[t]);
            check_bits(label(op, WEFT_F32, what), row_call(op, &x), y);
            weft_scope_end(sc);
        }
    }
    wf_set_isa(isa_most);
}

static int sweep(wf_op op, float *buffer, int isa_most)
{
    int blocks = 0, failed = 0;
    for (uint64_t next = 0; next <= UINT32_MAX; blocks++) {
        int64_t n = 0;
        for (; n < BLOCK && next <= UINT32_MAX; n++, next += STRIDE) {
            uint32_t bits = (uint32_t)next;
            memcpy(&buffer[n], &bits, sizeof bits);
        }
        weft_scope sc = weft_scope_begin();
        weft_tensor x = from(buffer, weft_shape(n), WEFT_F32), y = row_call(op, &x);
        cr_assert(weft_ok(y), "%s", weft_error_text(y));
        const float *p = weft_data(y);
        for (int64_t i = 0; i < n; i++) {
            real want = ref_rows[op].f1(buffer[i]), in[3] = {buffer[i]};
            double e, allowed;
            if (row_judge(op, WEFT_F32, want, p[i], in, &e, &allowed) == ROW_WRONG &&
                failed++ < 5) {
                cr_expect(0, "%s(%a = %g) is %a, exactly %La: %g ULP, the row says %d",
                          wf_rows[op].name, (double)buffer[i], (double)buffer[i], (double)p[i],
                          want, e, wf_rows[op].ulp);
            }
        }
        check_everywhere(op, x, y, isa_most);
        weft_scope_end(sc);
    }
    cr_expect_eq(failed, 0, "%s: %d arguments of the sweep", wf_rows[op].name, failed);
    return blocks;
}

Test(elementwise_rows, sweep)
{
    int isa_most = wf_set_isa(WF_NISA), rows = 0;
    float *buffer = malloc(BLOCK * sizeof *buffer);
    cr_assert(buffer);
    FOR_EACH_ELEMENTWISE(op)
    {
        if (wf_rows[op].kind == WF_KIND_UNARY && ref_rows[op].f1) {
            rows++;
            cr_assert_gt(sweep(op, buffer, isa_most), 1);
        }
    }
    cr_assert_gt(rows, 40);
    free(buffer);
}
