/*
 * tests/jit/test_kir.c -- kernel IR: every elementwise row and every derivative column, expanded into
 * primitives and run by the reference interpreter, gives the bits of the eager kernels.
 *
 * ctest: timeout=300
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/exec.h"
#include "jit/ir/kir.h"
#include "tests/jit/values.h"

static const int computes[] = {WEFT_BOOL, WEFT_U8,  WEFT_I8,  WEFT_I16,
                               WEFT_I32,  WEFT_I64, WEFT_F32, WEFT_F64};
enum { NCOMPUTE = sizeof computes / sizeof *computes, COUNT = 3000 };

static int result_of(wf_op op, int dtype)
{
    const int kind = wf_rows[op].kind;
    return kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE ? WEFT_BOOL : dtype;
}

typedef struct data {
    int nsrc;
    uint8_t dtype[5];
    void *src[5];
    int64_t n;
} data;

static data make(int nsrc, const uint8_t *dtype, int64_t n)
{
    data d = {.nsrc = nsrc, .n = n};
    for (int s = 0; s < nsrc; s++) {
        d.dtype[s] = dtype[s];
        d.src[s] = values_new(dtype[s], n, s);
    }
    return d;
}
static void drop(data *d)
{
    for (int s = 0; s < d->nsrc; s++)
        free(d->src[s]);
}

static wf_view vector(void *p, int dtype, int64_t n)
{
    return (wf_view){.data = p, .dtype = (uint8_t)dtype, .rank = 1, .dims = {n}, .strides = {1}};
}

/* Runs the program on every element and compares with what eager left in `want`. */
static void compare(const wf_kir *k, const data *d, const void *want, int dtype, const char *what)
{
    uint64_t *scratch = malloc((k->n + 1) * sizeof *scratch);
    cr_assert_not_null(scratch);
    const wf_kty type = wf_kir_storage(dtype);
    for (int64_t i = 0; i < d->n; i++) {
        uint64_t params[5], out;
        for (int s = 0; s < d->nsrc; s++)
            params[s] = wf_kir_peek(d->src[s], wf_kir_storage(d->dtype[s]), i);
        wf_kir_run(k, scratch, params, &out);
        const uint64_t ref = wf_kir_peek(want, type, i);
        if (!values_same(out, ref, dtype))
            cr_assert_fail("%s -> %s, element %lld: operands %llx %llx %llx, kernel IR %llx, eager "
                           "%llx",
                           what, wf_dtype_name(dtype), (long long)i, (unsigned long long)params[0],
                           (unsigned long long)(d->nsrc > 1 ? params[1] : 0),
                           (unsigned long long)(d->nsrc > 2 ? params[2] : 0),
                           (unsigned long long)out, (unsigned long long)ref);
    }
    free(scratch);
}

static void check_row(wf_op op, int compute, const uint8_t *src_dtype, int dst_dtype)
{
    const int nsrc = wf_rows[op].min_src;
    data d = make(nsrc, src_dtype, COUNT);
    void *want = calloc(COUNT, 8);
    wf_view v[3], out = vector(want, dst_dtype, COUNT);
    for (int s = 0; s < nsrc; s++)
        v[s] = vector(d.src[s], d.dtype[s], COUNT);
    cr_assert_eq(wf_exec_map(op, compute, &out, nsrc, v), 0, "%s", wf_rows[op].name);
    wf_kir k;
    wf_why why = {0};
    wf_kir_init(&k);
    cr_assert_eq(wf_kir_row_program(&k, op, compute, nsrc, src_dtype, dst_dtype, &why), 0, "%s: %s",
                 wf_rows[op].name, why.rule);
    compare(&k, &d, want, dst_dtype, wf_rows[op].name);
    wf_kir_free(&k);
    free(want);
    drop(&d);
}

Test(kir, rows_equal_eager)
{
    int checked = 0;
    for (wf_op op = 1; op < WF_OP_COUNT; op++)
        for (int t = 0; t < NCOMPUTE; t++) {
            const int compute = computes[t];
            const bool row = wf_op_is_elementwise(op) && (wf_rows[op].types & WF_BIT(compute));
            cr_assert_eq(wf_kir_has_row(op, compute), row, "%s %s",
                         wf_op_is_elementwise(op) ? wf_rows[op].name : "?", wf_dtype_name(compute));
            if (!row)
                continue;
            uint8_t dtype[3] = {(uint8_t)compute, (uint8_t)compute, (uint8_t)compute};
            if (wf_rows[op].kind == WF_KIND_CHOOSE)
                dtype[0] = WEFT_BOOL;
            check_row(op, compute, dtype, result_of(op, compute));
            checked++;
        }
    cr_assert_gt(checked, 280);
}

/* Loads from any dtype and the rounding store, by way of rows that compute in f32 and f64. */
Test(kir, casts_equal_eager)
{
    static const int all[] = {WEFT_BOOL, WEFT_U8,  WEFT_I8,   WEFT_I16, WEFT_I32,
                              WEFT_I64,  WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    enum { N = sizeof all / sizeof *all };
    static const wf_op ops[] = {WF_OP_SQUARE, WF_OP_TRUNC, WF_OP_SIGMOID};
    for (int f = 0; f < N; f++)
        for (int t = 0; t < N; t++)
            for (size_t o = 0; o < 3; o++)
                for (int c = 0; c < 2; c++) {
                    const uint8_t from = (uint8_t)all[f];
                    check_row(ops[o], c ? WEFT_F64 : WEFT_F32, &from, all[t]);
                }
    for (int f = 0; f < N; f++) /* integers to halves round once */
        for (int t = 0; t < N; t++)
            for (int c = 0; c < NCOMPUTE - 2; c++)
                if (computes[c] != WEFT_BOOL) {
                    const uint8_t from = (uint8_t)all[f];
                    check_row(WF_OP_TRUNC, computes[c], &from, all[t]);
                }
}

Test(kir, derivatives_equal_eager)
{
    int checked = 0;
    for (wf_op op = 1; op < WF_OP_COUNT; op++)
        for (int c = 0; c < 4; c++) {
            static const int stores[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
            const int compute = wf_dtype_compute(stores[c]);
            const int nsrc = wf_op_is_elementwise(op) ? wf_rows[op].min_src : 0;
            for (int which = 0; which < nsrc; which++) {
                if (!wf_kir_has_vjp(op, which, compute))
                    continue;
                uint8_t dtype[5];
                memset(dtype, stores[c], sizeof dtype);
                if (wf_rows[op].kind == WF_KIND_CHOOSE)
                    dtype[1] = WEFT_BOOL;
                data d = make(nsrc + 2, dtype, COUNT / 3);
                void *want = calloc(COUNT, 8);
                wf_view v[5], out = vector(want, stores[c], d.n);
                for (int s = 0; s < nsrc + 2; s++)
                    v[s] = vector(d.src[s], d.dtype[s], d.n);
                cr_assert_eq(wf_exec_vjp(op, which, compute, &out, nsrc + 2, v), 0);
                wf_kir k;
                wf_why why = {0};
                wf_kir_init(&k);
                cr_assert_eq(
                    wf_kir_vjp_program(&k, op, which, compute, nsrc + 2, dtype, stores[c], &why), 0,
                    "%s: %s", wf_rows[op].name, why.rule);
                compare(&k, &d, want, stores[c], wf_rows[op].name);
                wf_kir_free(&k);
                free(want);
                drop(&d);
                checked++;
            }
        }
    cr_assert_gt(checked, 300);
}

/* Every row that eager differentiates has its column here. */
Test(kir, every_derivative_is_there)
{
    for (wf_op op = 1; op < WF_OP_COUNT; op++) {
        const int kind = wf_rows[op].kind;
        const bool values = wf_op_is_elementwise(op) && kind != WF_KIND_PREDICATE &&
                            kind != WF_KIND_COMPARE && (wf_rows[op].types & WF_DT_F);
        for (int which = 0; which < 3; which++) {
            const bool want =
                values && which < wf_rows[op].min_src && !(kind == WF_KIND_CHOOSE && which == 0);
            cr_assert_eq(wf_kir_has_vjp(op, which, WEFT_F64), want, "op %d operand %d", (int)op,
                         which);
        }
    }
}

/* Ordinary lanes of rows with a rare branch: the short body gives the same bits. */
Test(kir, ordinary_lanes)
{
    static const wf_op ops[] = {WF_OP_SIN,  WF_OP_COS,       WF_OP_TAN,
                                WF_OP_FMOD, WF_OP_REMAINDER, WF_OP_FLOOR_DIVIDE};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int c = 0; c < 2; c++) {
            const int compute = c ? WEFT_F64 : WEFT_F32, nsrc = wf_rows[ops[o]].min_src;
            const uint8_t dtype[2] = {(uint8_t)compute, (uint8_t)compute};
            data d = make(nsrc, dtype, COUNT);
            wf_kir full, fast;
            wf_kir_init(&full);
            wf_kir_init(&fast);
            fast.fast = true;
            cr_assert_eq(wf_kir_row_program(&full, ops[o], compute, nsrc, dtype, compute, NULL), 0);
            cr_assert_eq(wf_kir_row_program(&fast, ops[o], compute, nsrc, dtype, compute, NULL), 0);
            cr_assert_neq(fast.rare, WF_KREF_NONE);
            cr_assert_eq(full.rare, WF_KREF_NONE);
            cr_assert_lt(fast.n, full.n);
            uint64_t *scratch = malloc((full.n + 1) * sizeof *scratch);
            int ordinary = 0;
            for (int64_t i = 0; i < d.n; i++) {
                uint64_t params[2], quick, slow;
                for (int s = 0; s < nsrc; s++)
                    params[s] = wf_kir_peek(d.src[s], wf_kir_storage(compute), i);
                wf_kir_run(&full, scratch, params, &slow);
                wf_kir_run(&fast, scratch, params, &quick);
                if (scratch[fast.rare])
                    continue;
                ordinary++;
                cr_assert(values_same(quick, slow, compute), "%s %llx: %llx, %llx",
                          wf_rows[ops[o]].name, (unsigned long long)params[0],
                          (unsigned long long)quick, (unsigned long long)slow);
            }
            cr_assert_gt(ordinary, COUNT / 3);
            free(scratch);
            wf_kir_free(&full);
            wf_kir_free(&fast);
            drop(&d);
        }
}

static uint64_t get_f32(void *ctx, int64_t i)
{
    return wf_kir_peek(ctx, WF_KT_F32, i);
}
static uint64_t get_f64(void *ctx, int64_t i)
{
    return wf_kir_peek(ctx, WF_KT_F64, i);
}
static uint64_t get_bf16(void *ctx, int64_t i)
{
    return wf_kir_peek(ctx, WF_KT_U16, i) << 16;
}

int wf_exec_reduce(wf_exec *e);

Test(kir, sum_equals_eager)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 63, 64, 65, 127, 4095, 4096, 4097, 8192, 100003};
    static const int dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = 0; t < 3; t++) {
            const int64_t n = sizes[s];
            void *x = values_ordinary(dtypes[t], n, (int)s);
            uint64_t y = 0;
            wf_view in = vector(x, dtypes[t], n), out = {.data = &y};
            out.dtype = dtypes[t] == WEFT_F64 ? WEFT_F64 : WEFT_F32;
            const int64_t axis = 0;
            const wf_attr attr = {.dtype = out.dtype, .n_ints = 1, .ints = &axis};
            wf_why why = {0};
            wf_exec e = {WF_OP_SUM, 1, 1, &in, &out, &attr, &why, NULL, false};
            cr_assert_eq(wf_exec_reduce(&e), 0, "%s", why.rule);
            const uint64_t got = wf_kir_sum(wf_kir_storage(out.dtype), n,
                                            dtypes[t] == WEFT_F32   ? get_f32
                                            : dtypes[t] == WEFT_F64 ? get_f64
                                                                    : get_bf16,
                                            x);
            cr_assert(values_same(got, y, out.dtype), "%lld %s: %llx, eager %llx", (long long)n,
                      wf_dtype_name(dtypes[t]), (unsigned long long)got, (unsigned long long)y);
            free(x);
        }
}

/* The text does not depend on the order in which a compiler evaluates arguments. */
Test(kir, canonical_text)
{
    wf_kir k;
    wf_text text = {0};
    const uint8_t dtype = WEFT_BF16;
    wf_kir_init(&k);
    cr_assert_eq(wf_kir_row_program(&k, WF_OP_SQRT, WEFT_F32, 1, &dtype, WEFT_BF16, NULL), 0);
    wf_kir_print(&k, &text);
    cr_assert_str_eq(text.s, "%0 = param u16 0\n"
                             "%1 = cast u32 %0\n"
                             "%2 = shlk u32 %1 16\n"
                             "%3 = flt32 f32 %2\n"
                             "%4 = sqrt f32 %3\n"
                             "%5 = bits32 u32 %4\n"
                             "%6 = const u32 0x7fffffff\n"
                             "%7 = iand u32 %5 %6\n"
                             "%8 = const u32 0x7f800000\n"
                             "%9 = gt bool %7 %8\n"
                             "%10 = shrk u32 %5 16\n"
                             "%11 = const u32 0x00000040\n"
                             "%12 = ior u32 %10 %11\n"
                             "%13 = const u32 0x00007fff\n"
                             "%14 = add u32 %5 %13\n"
                             "%15 = const u32 0x00000001\n"
                             "%16 = iand u32 %10 %15\n"
                             "%17 = add u32 %14 %16\n"
                             "%18 = shrk u32 %17 16\n"
                             "%19 = select u32 %9 %12 %18\n"
                             "%20 = cast u16 %19\n"
                             "return %20\n");
    wf_text_free(&text);
    wf_kir_free(&k);
    wf_kir_init(&k);
    const uint8_t f32x2[4] = {WEFT_F32, WEFT_F32, WEFT_F32, WEFT_F32};
    cr_assert_eq(wf_kir_vjp_program(&k, WF_OP_DIV, 1, WEFT_F32, 4, f32x2, WEFT_F32, NULL), 0);
    wf_kir_print(&k, &text);
    cr_assert_str_eq(text.s, "%0 = param f32 0\n"
                             "%1 = param f32 1\n"
                             "%2 = param f32 2\n"
                             "%3 = param f32 3\n"
                             "%4 = mul f32 %0 %3\n"
                             "%5 = div f32 %4 %2\n"
                             "%6 = neg f32 %5\n"
                             "return %6\n");
    wf_text_free(&text);
    wf_kir_free(&k);
}

/* Type errors are values, and stay. */
Test(kir, refuses_what_breaks_a_rule)
{
    wf_kir k;
    wf_why why = {0};
    wf_kir_init(&k);
    const wf_kref x = wf_kir_param(&k, WF_KT_F32), i = wf_kir_param(&k, WF_KT_U32);
    cr_assert_eq(wf_kir_op(&k, WF_KP_ADD, x, i, WF_KREF_NONE), WF_KREF_NONE);
    cr_assert_eq(wf_kir_op(&k, WF_KP_NEG, x, WF_KREF_NONE, WF_KREF_NONE), WF_KREF_NONE);
    cr_assert_eq(wf_kir_finish(&k, &why), WEFT_EINVALID);
    wf_kir_free(&k);
    wf_kir_init(&k);
    cr_assert_eq(wf_kir_shift(&k, WF_KP_SHLK, wf_kir_param(&k, WF_KT_U32), 32), WF_KREF_NONE);
    wf_kir_free(&k);
    wf_kir_init(&k);
    cr_assert_eq(wf_kir_op(&k, WF_KP_SQRT, wf_kir_param(&k, WF_KT_I32), 0, 0), WF_KREF_NONE);
    wf_kir_free(&k);
    wf_kir_init(&k);
    const uint8_t f32 = WEFT_F32;
    cr_assert_eq(wf_kir_row_program(&k, WF_OP_BITWISE_NOT, WEFT_F32, 1, &f32, WEFT_F32, &why),
                 WEFT_EDTYPE);
    cr_assert_eq(wf_kir_row_program(&k, WF_OP_SUM, WEFT_F32, 1, &f32, WEFT_F32, &why), WEFT_EDTYPE);
    cr_assert_eq(wf_kir_row(&k, WF_OP_ADD, WEFT_F16, 2, k.param), WF_KREF_NONE);
    wf_kir_free(&k);
}
