/*
 * tests/unit/test_map.c -- elementwise execution: layouts, casts, instruction sets, threads.
 *
 * What is proved here is that a row gives the same bits however its operands lie in memory, whatever
 * instruction set and number of threads run it: the reference is the row on one element at a time with
 * the SSE2 kernels. That those values are right is the business of the tests generated from the rows
 * against independent references. Derivatives are checked against their own definitions; casts and copies: test_copy.c.
 *
 * ctest: threads timeout=600 optimised
 */
#include "eager/kernels/kernels.h"
#include "eager/alloc.h"
#include "tests/unit/map_support.h"

static int nsrc_of(wf_op op)
{
    return wf_rows[op].min_src;
}
static int result_of(wf_op op, int compute)
{
    const int kind = wf_rows[op].kind;
    return kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE ? WEFT_BOOL : compute;
}

/* The row on single elements with SSE2 kernels, casts apart. */
static void reference(wf_op op, int compute, const wf_view *dst, int nsrc, const wf_view *src,
                      char *out)
{
    const size_t size = wf_dtype_size(dst->dtype);
    wf_set_isa(WF_ISA_SSE2);
    for (int64_t i = 0; i < wf_view_numel(dst); i++) {
        uint64_t value[3], y;
        wf_view v[3];
        for (int k = 0; k < nsrc; k++) {
            const int type = wf_rows[op].kind == WF_KIND_CHOOSE && k == 0 ? WEFT_BOOL : compute;
            cast_one(&value[k], type, element(&src[k], i), src[k].dtype);
            v[k] = one(&value[k], type);
        }
        wf_view d = one(&y, result_of(op, compute));
        cr_assert_eq(wf_exec_map(op, compute, &d, nsrc, v), 0, "%s", wf_rows[op].name);
        cast_one(out + (size_t)i * size, dst->dtype, &y, d.dtype);
    }
}

static void compare(wf_op op, const wf_view *dst, const char *want, const char *what)
{
    const size_t size = wf_dtype_size(dst->dtype);
    for (int64_t i = 0; i < wf_view_numel(dst); i++)
        if (!same(element(dst, i), want + (size_t)i * size, dst->dtype)) {
            uint64_t got = 0, ref = 0;
            memcpy(&got, element(dst, i), size);
            memcpy(&ref, want + (size_t)i * size, size);
            cr_assert_fail("%s (%s, %s) element %lld: %llx, expected %llx", wf_rows[op].name,
                           wf_dtype_name(dst->dtype), what, (long long)i, (unsigned long long)got,
                           (unsigned long long)ref);
        }
}

/* Nothing is written beside d's elements (which are overwritten); it was all 0x5A. */
static void check_beside(wf_op op, operand *d, const char *what)
{
    for (int64_t i = 0; i < wf_view_numel(&d->v); i++)
        memset((char *)d->base + ((const char *)element(&d->v, i) - (const char *)d->base), 0x5A,
               wf_dtype_size(d->v.dtype));
    for (size_t i = 0; i < d->bytes; i++)
        if (d->base[i] != 0x5A)
            cr_assert_fail("%s (%s, %s): byte %zu beside the elements is written", wf_rows[op].name,
                           wf_dtype_name(d->v.dtype), what, i);
}

static const int computes[] = {WEFT_BOOL, WEFT_U8,  WEFT_I8,  WEFT_I16,
                               WEFT_I32,  WEFT_I64, WEFT_F32, WEFT_F64};
enum { NCOMPUTE = sizeof computes / sizeof *computes };

/* Runs one combination on every instruction set. */
static int check(wf_op op, int compute, int rank, const int64_t *dims, int dst_type,
                 enum layout dst_lay, const int *src_type, const enum layout *src_lay,
                 const char *what)
{
    const int nsrc = nsrc_of(op);
    operand s[3];
    wf_view v[3];
    for (int k = 0; k < nsrc; k++) {
        const int choice = wf_rows[op].kind == WF_KIND_CHOOSE && k == 0 ? WEFT_BOOL : src_type[k];
        s[k] = make(choice, rank, dims, src_lay[k]);
        fill_random(&s[k]);
        v[k] = s[k].v;
    }
    operand d = make(dst_type, rank, dims, dst_lay);
    char *want = malloc((size_t)wf_view_numel(&d.v) * 8 + 8);
    cr_assert_not_null(want);
    reference(op, compute, &d.v, nsrc, v, want);
    const int most = isa_most();
    for (int isa = WF_ISA_SSE2; isa <= most; isa++) {
        wf_set_isa(isa);
        memset(d.base, 0x5A, d.bytes);
        cr_assert_eq(wf_exec_map(op, compute, &d.v, nsrc, v), 0);
        char text[96];
        snprintf(text, sizeof text, "%s, %s, compute %s", what, wf_isa_name(isa),
                 wf_dtype_name(compute));
        compare(op, &d.v, want, text);
        check_beside(op, &d, text);
    }
    for (int k = 0; k < nsrc; k++)
        free(s[k].base);
    free(d.base);
    free(want);
    return 1;
}

static bool accepts(wf_op op, int dtype)
{
    return wf_op_is_elementwise(op) && (wf_rows[op].types & WF_BIT(dtype));
}

Test(map, rows_and_layouts)
{
    static const int64_t dims[3] = {3, 5, 67};
    static const enum layout cases[][4] = {
        {CONTIGUOUS, CONTIGUOUS, CONTIGUOUS, CONTIGUOUS},
        {STRIDED, STRIDED, CONTIGUOUS, REVERSED},
        {TRANSPOSED, CONTIGUOUS, TRANSPOSED, STRIDED},
        {CONTIGUOUS, TRANSPOSED, SCALAR, CONTIGUOUS},
        {CONTIGUOUS, CONTIGUOUS, BROADCAST_ROW, SCALAR},
        {CONTIGUOUS, BROADCAST_COL, CONTIGUOUS, SCALAR},
        {REVERSED, SCALAR, CONTIGUOUS, BROADCAST_COL},
        {CONTIGUOUS, SCALAR, SCALAR, SCALAR},
    };
    int combinations = 0, drawn = 0;
    for (wf_op op = 1; op < WF_OP_COUNT; op++)
        for (int t = 0; t < NCOMPUTE; t++)
            for (size_t c = 0; c < sizeof cases / sizeof *cases && accepts(op, computes[t]); c++) {
                if (drawn++ % (THIN * 2 - 1) != 0)
                    continue;
                const int type[3] = {computes[t], computes[t], computes[t]};
                char what[32];
                snprintf(what, sizeof what, "layouts %zu", c);
                combinations += check(op, computes[t], 3, dims, result_of(op, computes[t]),
                                      cases[c][0], type, cases[c] + 1, what);
            }
    cr_assert_gt(combinations, 2000 / (THIN * 2 - 1));
}

/* A kernel of two operands takes a scalar on either side for what that is spread over every element: a zero, and values of any kind. */
Test(map, scalars_stand_for_all)
{
    enum { N = 77, SCALARS = 24 };
    static const int64_t n[1] = {N}, few[1] = {SCALARS};
    const int most = isa_most();
    int kernels = 0;
    for (wf_op op = 1; op < WF_OP_COUNT; op++)
        for (int t = 0; t < NCOMPUTE; t++) {
            if (!accepts(op, computes[t]) || nsrc_of(op) != 2)
                continue;
            const size_t size = wf_dtype_size(computes[t]);
            operand x = make(computes[t], 1, n, CONTIGUOUS),
                    all = make(computes[t], 1, n, CONTIGUOUS),
                    s = make(computes[t], 1, few, CONTIGUOUS);
            fill_random(&x);
            fill_random(&s);
            memset(element(&s.v, 0), 0, size);
            for (int k = 0; k < SCALARS * (most + 1); k++) {
                const void *one = element(&s.v, k % SCALARS), *many = element(&all.v, 0);
                for (int i = 0; i < N; i++)
                    memcpy(element(&all.v, i), one, size);
                wf_set_isa(k / SCALARS);
                const wf_map_fn fn = wf_kernels_now()->map[wf_ct(computes[t])][op];
                for (int side = 0; side < 2; side++) {
                    const void *v = element(&x.v, 0);
                    uint64_t got[N], want[N];
                    fn(want, (const void *const[]){side ? v : many, side ? many : v}, N, 0);
                    fn(got, (const void *const[]){side ? v : one, side ? one : v}, N, 1U << side);
                    const int type = result_of(op, computes[t]);
                    for (size_t i = 0; i < N; i++)
                        cr_assert(same((char *)got + i * wf_dtype_size(type),
                                       (char *)want + i * wf_dtype_size(type), type),
                                  "%s of %s, scalar %d on side %d, element %zu", wf_rows[op].name,
                                  wf_dtype_name(computes[t]), k % SCALARS, side, i);
                }
                kernels++;
            }
            free(x.base);
            free(all.base);
            free(s.base);
        }
    cr_assert_gt(kernels, 1000);
}

/* A transposed operand goes through scratch a band of rows at a time: whole bands and less, rows that are whole and
 * rows that are cut, beside operands of any other layout and type; shares of workers that are awake. So do views in reverse
 * and with steps, where nothing is cast. */
Test(map, bands_of_transposed_operands)
{
    enum { SHAPES = 8, CASES = 6, TYPES = 5, EACH = SHAPES * CASES * TYPES };
    static const int64_t shapes[SHAPES][2] = {{16, 64},   {32, 256}, {37, 256},  {21, 300},
                                              {240, 131}, {66, 700}, {20, 1024}, {5, 2000}};
    static const enum layout cases[CASES][3] = {
        {CONTIGUOUS, TRANSPOSED, CONTIGUOUS},    {TRANSPOSED, TRANSPOSED, TRANSPOSED},
        {TRANSPOSED, BROADCAST_ROW, STRIDED},    {TRANSPOSED, SCALAR, BROADCAST_COL},
        {TRANSPOSED, BROADCAST_COL, CONTIGUOUS}, {REVERSED, STRIDED, BROADCAST_COL}};
    static const wf_op ops[] = {WF_OP_ADD, WF_OP_WHERE};
    static const int types[TYPES][4] = {/* of the result, of the operands */
                                        {WEFT_F32, WEFT_F32, WEFT_F32, WEFT_F32},
                                        {WEFT_BF16, WEFT_BF16, WEFT_F32, WEFT_BF16},
                                        {WEFT_F64, WEFT_F64, WEFT_F64, WEFT_F32},
                                        {WEFT_U8, WEFT_U8, WEFT_U8, WEFT_U8},
                                        {WEFT_F16, WEFT_F32, WEFT_F16, WEFT_F32}};
    for (size_t i = 0; i < 2 * EACH; i += EFFORT_LIST_STEP) {
        const size_t s = i % SHAPES, c = i / SHAPES % CASES, t = i / (SHAPES * CASES) % TYPES;
        if (!effort_walks(i, 7)) /* prime to all of them */
            continue;
        const int *type = types[t];
        wf_set_num_threads(1 + (int)(i % 3));
        wake_workers();
        check(ops[i / EACH], wf_dtype_compute(type[0]), 2, shapes[s], type[0], CONTIGUOUS, type + 1,
              cases[c], "bands");
    }
}

/* A source that repeats is cast once for all blocks that read it, of which the last of a row may be one element; and of three stepped
 * sources of 8 bytes rows are too wide for tiles of a band. */
Test(map, sources_that_repeat_and_wide_views)
{
    static const int64_t repeated[2] = {64, 1025}, wide[2] = {1000, 200};
    static const int halves[2] = {WEFT_BF16, WEFT_BF16};
    static const enum layout row[2] = {CONTIGUOUS, BROADCAST_ROW};
    check(WF_OP_ADD, WEFT_F32, 2, repeated, WEFT_BF16, CONTIGUOUS, halves, row, "repeated");
    static const int doubles[3] = {WEFT_F64, WEFT_F64, WEFT_F64};
    static const enum layout stepped[3] = {STRIDED, STRIDED, STRIDED};
    check(WF_OP_FMA, WEFT_F64, 2, wide, WEFT_F64, CONTIGUOUS, doubles, stepped, "wide");
}

/* A transposed operand is turned in the result's memory, if that is its own: not what a block of other rows left there,
 * and not where the result is an operand. */
Test(map, turned_in_the_result)
{
    static const int64_t square[2] = {16, 128}, dims[3] = {3, 16, 128};
    const int most = isa_most();
    for (int in_place = 0; in_place < 2; in_place++) {
        operand x = make(WEFT_F32, 3, dims, CONTIGUOUS), d = make(WEFT_F32, 3, dims, CONTIGUOUS);
        operand y = make(WEFT_F32, 2, square, TRANSPOSED);
        fill_random(&x);
        fill_random(&y);
        wf_view v[2] = {x.v, x.v}, to = in_place ? x.v : d.v;
        v[1].data = y.v.data;
        for (int i = 0; i < 3; i++)
            v[1].strides[i] = i > 0 ? y.v.strides[i - 1] : 0;
        char *want = malloc((size_t)wf_view_numel(&to) * 8), *keep = malloc(x.bytes);
        cr_assert(want && keep);
        memcpy(keep, x.base, x.bytes);
        reference(WF_OP_SUB, WEFT_F32, &to, 2, v, want);
        for (int isa = 0; isa <= most; isa++) {
            wf_set_isa(isa);
            memcpy(x.base, keep, x.bytes);
            cr_assert_eq(wf_exec_map(WF_OP_SUB, WEFT_F32, &to, 2, v), 0);
            compare(WF_OP_SUB, &to, want, in_place ? "in place" : "repeated");
        }
        free(x.base);
        free(y.base);
        free(d.base);
        free(want);
        free(keep);
    }
}

/* So large that results are stored past the caches: small whole numbers, whose sums are exact in every type. */
Test(map, transposed_past_caches)
{
    /* PITCH: rows of the transposed operand whole pages apart */
    enum { ROWS = 2131, COLS = 2083, PITCH = 4096, CASES = 8, WITHOUT_MEMORY = CASES - 1 };
    static const int types[CASES] = {WEFT_F32,  WEFT_BF16, WEFT_F64,  WEFT_F32,
                                     WEFT_BF16, WEFT_F32,  WEFT_BF16, WEFT_BF16};
    static const int amd[CASES] = {0, 1, 2, 1, 1, 2, 2, 2};
    wf_view whole = {.dtype = WEFT_U8, .rank = 2, .dims = {ROWS, COLS}, .strides = {COLS, 1}};
    uint8_t *number = malloc((size_t)ROWS * COLS), *sum = malloc((size_t)ROWS * COLS);
    char *memory = malloc((size_t)(2 * ROWS + PITCH) * COLS * 8);
    cr_assert(number && sum && memory);
    for (int64_t i = 0; i < ROWS * COLS; i++)
        number[i] = (uint8_t)(i * 7919 % 113);
    for (int t = 0; t < CASES; t++) {
        wf_view v[3];
        for (int k = 0; k < 3; k++) {
            v[k] = whole;
            v[k].dtype = (uint8_t)types[t];
            v[k].data = memory + (size_t)k * ROWS * COLS * 8;
        }
        wf_view turned = whole;
        turned.data = whole.data = number;
        v[2].strides[0] = turned.strides[0] = 1;
        v[2].strides[1] = t < 3 ? ROWS : PITCH;
        turned.strides[1] = ROWS;
        wf_copy(&v[1], &whole);
        wf_copy(&v[2], &turned);
        wf_set_isa(WF_NISA - 1 - t % 3);
        wf_set_amd(amd[t]);
        wf_alloc_fail_after(t == WITHOUT_MEMORY, 1);
        cr_assert_eq(wf_exec_map(WF_OP_ADD, wf_dtype_compute(types[t]), &v[0], 2, v + 1), 0);
        wf_alloc_fail_after(0, 0);
        whole.data = sum;
        wf_copy(&whole, &v[0]);
        for (int64_t i = 0; i < ROWS; i++)
            for (int64_t j = 0; j < COLS; j++)
                if (sum[i * COLS + j] != number[i * COLS + j] + number[j * ROWS + i])
                    cr_assert(0, "%s: element %lld, %lld", wf_dtype_name(types[t]), (long long)i,
                              (long long)j);
    }
    isa_most();
    free(number);
    free(sum);
    free(memory);
}

/* Small types past the caches have the bits of the same row a piece at a time, which stays in them; also where results do not begin with a
 * line, or are not as long as whole ones. */
Test(map, small_types_past_caches)
{
    enum { BYTES = 13 << 20, PIECE = 1000, AT = 64, ROWS = 5 };
    static const int rows[ROWS] = {WF_OP_ADD, WF_OP_SQUARE, WF_OP_MAXIMUM, WF_OP_LESS, WF_OP_EXP};
    static const int types[] = {WEFT_U8, WEFT_I16, WEFT_BF16, WEFT_F16, WEFT_F64};
    char *memory = aligned_alloc(64, 4 * (size_t)(BYTES + 2 * AT)), *at[4];
    cr_assert_not_null(memory);
    for (int k = 0; k < 4; k++)
        at[k] = memory + (size_t)k * (BYTES + 2 * AT);
    for (int i = 0; i < 2 * (BYTES + 2 * AT); i++)
        at[0][i] = (char)((unsigned)i * 2654435761u >> 13);
    for (int t = 0; t < (int)(sizeof types / sizeof *types) * ROWS; t++) {
        const int type = types[t / ROWS], row = rows[t % ROWS], compute = wf_dtype_compute(type);
        const int64_t size = (int64_t)wf_dtype_size(type), n = BYTES / size - t;
        const int to = row == WF_OP_LESS ? WEFT_BOOL : type;
        const int64_t step = (int64_t)wf_dtype_size(to);
        const int nsrc = row == WF_OP_SQUARE || row == WF_OP_EXP ? 1 : 2;
        if (row == WF_OP_EXP && wf_dtype_kind(type) != 2)
            continue;
        for (int pass = 0; pass < 2; pass++) { /* all at once, which is checked, and by pieces */
            char *out = at[2 + pass] + (t % 2 ? step : 0);
            const int64_t each = pass ? PIECE : n;
            wf_set_isa(pass ? WF_ISA_SSE2 : WF_NISA - 1 - t % 3);
            memset(at[2 + pass], 77, BYTES + 2 * AT);
            for (int64_t i = 0; i < n; i += each) {
                wf_view v[3] = {{.data = out + i * step, .dtype = (uint8_t)to, .rank = 1}};
                v[0].dims[0] = n - i < each ? n - i : each;
                v[0].strides[0] = 1;
                for (int k = 1; k <= nsrc; k++) {
                    v[k] = v[0];
                    v[k].dtype = (uint8_t)type;
                    v[k].data = at[k - 1] + i * size;
                }
                cr_assert_eq(wf_exec_map((wf_op)row, compute, v, nsrc, v + 1), 0);
            }
        }
        wf_view got = {.dtype = (uint8_t)to, .rank = 1, .dims = {PIECE}, .strides = {1}};
        for (int64_t i = 0; i < BYTES + 2 * AT; i += PIECE * step) {
            const int64_t left = BYTES + 2 * AT - i;
            const int64_t bytes = left < PIECE * step ? left : PIECE * step;
            if (memcmp(at[2] + i, at[3] + i, (size_t)bytes) == 0)
                continue;
            got.data = at[2] + i; /* any NaN is any other */
            got.dims[0] = bytes / step;
            compare((wf_op)row, &got, at[3] + i, "past the caches");
        }
    }
    isa_most();
    free(memory);
}

/* A transposed source that is repeated over an outer axis, behind a block of one column, which lies in rows as well. */
Test(map, repeated_transposed_past_caches)
{
    static const int64_t shapes[][3] = {{1600, 32, 65}, {3200, 16, 65}, {260, 100, 129}};
    for (int i = 0; i < 3 * 3; i++) {
        const int64_t *d = shapes[i / 3], each = d[1] * d[2];
        float *a = malloc((size_t)(d[0] * each) * sizeof *a), *b = malloc((size_t)each * sizeof *b);
        float *y = malloc((size_t)(d[0] * each) * sizeof *y);
        cr_assert(a && b && y);
        for (int64_t k = 0; k < d[0] * each; k++)
            a[k] = (float)(k * 7919 % 1013);
        for (int64_t k = 0; k < each; k++)
            b[k] = (float)(k * 31 % 977);
        wf_view v[3] = {{.data = y,
                         .dtype = WEFT_F32,
                         .rank = 3,
                         .dims = {d[0], d[1], d[2]},
                         .strides = {each, d[2], 1}}};
        v[1] = v[2] = v[0];
        v[1].data = a;
        v[2].data = b;
        v[2].strides[0] = 0;
        v[2].strides[1] = 1;
        v[2].strides[2] = d[1];
        wf_set_amd(i % 3);
        cr_assert_eq(wf_exec_map(WF_OP_ADD, wf_dtype_compute(WEFT_F32), &v[0], 2, v + 1), 0);
        for (int64_t k = 0; k < d[0] * each; k++) {
            const float want = a[k] + b[k % each % d[2] * d[1] + k % each / d[2]];
            cr_assert(y[k] == want, "[%lld,%lld,%lld], element %lld: %g, not %g", (long long)d[0],
                      (long long)d[1], (long long)d[2], (long long)k, (double)y[k], (double)want);
        }
        free(a);
        free(b);
        free(y);
    }
}

Test(map, casting_operands)
{
    static const int64_t dims[2] = {9, 131};
    static const int storage[] = {WEFT_F16, WEFT_BF16, WEFT_BOOL, WEFT_U8,
                                  WEFT_I32, WEFT_I64,  WEFT_F64};
    int combinations = 0, drawn = 0;
    for (wf_op op = 1; op < WF_OP_COUNT; op++)
        for (size_t t = 0; t < sizeof storage / sizeof *storage && accepts(op, WEFT_F32); t++) {
            if (drawn++ % (THIN * 2 - 1) != 0)
                continue;
            const int type[3] = {storage[t], WEFT_F32, storage[t]};
            const int to = storage[(t + (size_t)op) % 2 ? 0 : 1];
            const enum layout lay[3] = {t % 2 ? TRANSPOSED : CONTIGUOUS, CONTIGUOUS, BROADCAST_COL};
            combinations += check(op, WEFT_F32, 2, dims, result_of(op, to),
                                  t % 3 ? CONTIGUOUS : STRIDED, type, lay, "casts");
        }
    cr_assert_gt(combinations, 400 / (THIN * 2 - 1));
}

/* Sizes around vector widths and tiles, all sources contiguous or one of them a scalar. */
Test(map, tails)
{
    static const wf_op ops[] = {WF_OP_ADD, WF_OP_EXP,  WF_OP_SIN,   WF_OP_FMOD,
                                WF_OP_POW, WF_OP_ERFC, WF_OP_WHERE, WF_OP_LESS};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int64_t n = 0; n < 1100; n += n < 70 ? 1 : 257) {
            const int type[3] = {WEFT_F32, WEFT_F32, WEFT_F32};
            const enum layout all[3] = {CONTIGUOUS, CONTIGUOUS, CONTIGUOUS};
            const enum layout scalar[3] = {CONTIGUOUS, SCALAR, CONTIGUOUS};
            check(ops[o], WEFT_F32, 1, &n, result_of(ops[o], WEFT_F32), CONTIGUOUS, type, all,
                  "tail");
            check(ops[o], WEFT_F32, 1, &n, result_of(ops[o], WEFT_F32), CONTIGUOUS, type, scalar,
                  "tail");
        }
}

/* Some rows of halves round in their own kernels, and some look at their bits alone: of every value what the way by f32 gives, NaNs
 * included, and at every size around a vector. */
Test(map, halves)
{
    enum { ALL = 1 << 16 };
    static const wf_op ops[] = {WF_OP_GELU,    WF_OP_SILU,       WF_OP_EXP,     WF_OP_ADD,
                                WF_OP_SUB,     WF_OP_MUL,        WF_OP_DIV,     WF_OP_SQUARE,
                                WF_OP_RELU,    WF_OP_RECIPROCAL, WF_OP_LERP,    WF_OP_ADDCMUL,
                                WF_OP_MAXIMUM, WF_OP_MINIMUM,    WF_OP_COPYSIGN};
    static const enum layout all[3] = {CONTIGUOUS}, scalar[3] = {SCALAR},
                             second[3] = {CONTIGUOUS, SCALAR},
                             both[3] = {SCALAR, SCALAR, CONTIGUOUS};
    const int64_t dims[] = {ALL};
    const int most = isa_most();
    for (size_t o = 0; o < 2 * (sizeof ops / sizeof *ops); o++) {
        const wf_op op = ops[o / 2];
        const int half = o % 2 ? WEFT_F16 : WEFT_BF16, nsrc = nsrc_of(op);
        const int type[3] = {half, half, half};
        operand x = make(half, 1, dims, CONTIGUOUS), y = make(half, 1, dims, CONTIGUOUS);
        operand z = make(half, 1, dims, CONTIGUOUS), u = make(half, 1, dims, CONTIGUOUS);
        char *want = malloc(ALL * sizeof(uint16_t));
        cr_assert_not_null(want);
        const wf_view src[3] = {x.v, z.v, u.v};
        for (int turn = 0; turn < (nsrc > 1 ? 2 : 1);
             turn++) { /* beside near values, and opposites */
            for (int64_t i = 0; i < ALL; i++) {
                const int64_t near = i + (i * 40503 >> 8) % 1031;
                ((uint16_t *)x.v.data)[i] = (uint16_t)i;
                ((uint16_t *)z.v.data)[i] = (uint16_t)(turn ? i ^ 0x8000 : near);
                ((uint16_t *)u.v.data)[i] = (uint16_t)(i * 40503 >> 5);
            }
            reference(op, WEFT_F32, &y.v, nsrc, src, want);
            for (int isa = WF_ISA_SSE2; isa <= most; isa++) {
                wf_set_isa(isa);
                cr_assert_eq(wf_exec_map(op, WEFT_F32, &y.v, nsrc, src), 0);
                compare(op, &y.v, want, wf_isa_name(isa));
            }
            wf_set_isa(most);
            cr_assert_eq(wf_exec_map(op, WEFT_F32, &x.v, nsrc, src), 0);
            compare(op, &x.v, want, "in place");
        }
        free(x.base);
        free(y.base);
        free(z.base);
        free(u.base);
        free(want);
        for (int64_t n = 0; n < 200; n += n < 140 ? 1 : 7) {
            check(op, WEFT_F32, 1, &n, half, CONTIGUOUS, type, all, "tail");
            check(op, WEFT_F32, 1, &n, half, CONTIGUOUS, type, scalar, "tail");
            if (nsrc > 1)
                check(op, WEFT_F32, 1, &n, half, CONTIGUOUS, type, second, "tail");
            if (nsrc > 1)
                check(op, WEFT_F32, 1, &n, half, CONTIGUOUS, type, both, "tail");
        }
        const int64_t two[] = {7, 70};
        check(op, WEFT_F32, 2, two, half, STRIDED, type,
              (enum layout[]){TRANSPOSED, CONTIGUOUS, BROADCAST_COL}, "views");
    }
}

/* Rows that fill the last vector up write the elements that there are, also over their operand. */
Test(map, tails_end_where_they_should)
{
    enum { MOST = 40, ROOM = 64 };
    static const wf_op ops[] = {WF_OP_EXP, WF_OP_ERFC, WF_OP_SIN, WF_OP_POW, WF_OP_FMOD};
    static const int types[] = {WEFT_F32, WEFT_F64};
    const int most = isa_most();
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (size_t c = 0; c < 2; c++) {
            const size_t size = wf_dtype_size(types[c]);
            double want[MOST], in[2][MOST], at[2][ROOM];
            wf_view v[2];
            for (int i = 0; i < 2 * MOST; i++) {
                const double x = ((double)(rng() % 2001) - 1000) / 317;
                cast_one((char *)in[i % 2] + (size_t)(i / 2) * size, types[c], &x, WEFT_F64);
            }
            wf_set_isa(WF_ISA_SSE2);
            for (int i = 0; i < MOST; i++) {
                const wf_view d = one((char *)want + (size_t)i * size, types[c]);
                for (int k = 0; k < 2; k++)
                    v[k] = one((char *)in[k] + (size_t)i * size, types[c]);
                cr_assert_eq(wf_exec_map(ops[o], types[c], &d, nsrc_of(ops[o]), v), 0);
            }
            for (int isa = WF_ISA_SSE2; isa <= most; isa++)
                for (int64_t n = 1; n <= MOST; n++) {
                    wf_set_isa(isa);
                    memset(at, 0x5A, sizeof at);
                    for (int k = 0; k < 2; k++) {
                        memcpy(at[k], in[k], (size_t)n * size);
                        v[k] = (wf_view){.data = at[k],
                                         .dtype = (uint8_t)types[c],
                                         .rank = 1,
                                         .dims = {n},
                                         .strides = {1}};
                    }
                    cr_assert_eq(wf_exec_map(ops[o], types[c], &v[0], nsrc_of(ops[o]), v), 0);
                    compare(ops[o], &v[0], (char *)want, wf_isa_name(isa));
                    for (size_t b = (size_t)n * size; b < sizeof at[0]; b++)
                        cr_assert_eq(((unsigned char *)at[0])[b], 0x5A, "%s (%s) of %lld: byte %zu",
                                     wf_rows[ops[o]].name, wf_isa_name(isa), (long long)n, b);
                }
        }
}

Test(map, in_place)
{
    static const int64_t dims[2] = {37, 211};
    static const wf_op ops[] = {WF_OP_ADD, WF_OP_EXP,   WF_OP_SIN,
                                WF_OP_POW, WF_OP_CLAMP, WF_OP_RELU};
    static const int types[] = {WEFT_F32, WEFT_BF16, WEFT_F64};
    static const enum layout lays[] = {CONTIGUOUS, STRIDED, TRANSPOSED, REVERSED};
    const int most = isa_most();
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int t = 0; t < 3; t++)
            for (int l = 0; l < 4; l++) {
                const int nsrc = nsrc_of(ops[o]), compute = wf_dtype_compute(types[t]);
                wf_view v[3];
                operand s[3];
                for (int k = 0; k < nsrc; k++) {
                    s[k] = make(types[t], 2, dims, k == 0 ? lays[l] : CONTIGUOUS);
                    fill_random(&s[k]);
                    v[k] = s[k].v;
                }
                char *want = malloc((size_t)wf_view_numel(&v[0]) * 8);
                char *keep = malloc(s[0].bytes);
                memcpy(keep, s[0].base, s[0].bytes);
                reference(ops[o], compute, &v[0], nsrc, v, want);
                for (int isa = 0; isa <= most; isa++) {
                    wf_set_isa(isa);
                    memcpy(s[0].base, keep, s[0].bytes);
                    cr_assert_eq(wf_exec_map(ops[o], compute, &v[0], nsrc, v), 0);
                    compare(ops[o], &v[0], want, "in place");
                }
                for (int k = 0; k < nsrc; k++)
                    free(s[k].base);
                free(want);
                free(keep);
            }
}

/* Large enough for several chunks and for non-temporal stores: the same bits at any thread count. */
Test(map, threads)
{
    static const int counts[] = {1, 2, 3, 7};
    static const int64_t shapes[][2] = {
        {1, 200001}, {301, 1003}, {70001, 3}, {2300, 2311}, {2300, 2368}};
    static const wf_op ops[] = {WF_OP_ADD, WF_OP_TANH, WF_OP_REMAINDER, WF_OP_GREATER};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++)
            for (int l = 0; l < 3; l++) {
                /* the streaming sizes: one row every way, the others each its own; aligned, straight and converting of that row;
                 * sanitized, one of them each */
                if ((c == 4 && (o != 0 || l == 0)) || (c == 3 && o != 0 && (int)o % 3 != l) ||
                    (THIN > 2 && c == 3 && (o != 0 || l != 0)) || (THIN > 2 && c == 4 && l != 2))
                    continue;
                const int nsrc = nsrc_of(ops[o]);
                operand s[2];
                wf_view v[2];
                for (int k = 0; k < nsrc; k++) {
                    const enum layout lay = k == 0   ? CONTIGUOUS
                                            : l == 1 ? TRANSPOSED
                                                     : BROADCAST_ROW;
                    s[k] = make(l == 2 ? WEFT_BF16 : WEFT_F32, 2, shapes[c], l ? lay : CONTIGUOUS);
                    fill_repeating(&s[k]);
                    v[k] = s[k].v;
                }
                operand d[4] = {0};
                for (int i = 0; i < 4; i += EFFORT_THREAD_STEP) {
                    d[i] = make(result_of(ops[o], s[0].v.dtype), 2, shapes[c], CONTIGUOUS);
                    wf_set_isa(i == 0 ? WF_ISA_SSE2 : i == 1 ? WF_ISA_AVX2 : WF_NISA);
                    cr_assert_eq(wf_set_num_threads(counts[i]), 0);
                    cr_assert_eq(wf_exec_map(ops[o], WEFT_F32, &d[i].v, nsrc, v), 0);
                    const size_t size = wf_dtype_size(d[0].v.dtype);
                    const size_t bytes = (size_t)wf_view_numel(&d[0].v) * size;
                    if (i == 0 || memcmp(d[0].base, d[i].base, bytes) == 0)
                        continue;
                    for (size_t e = 0; e < bytes; e += size) /* NaNs may differ in their bits */
                        if (!same(d[0].base + e, d[i].base + e, d[0].v.dtype))
                            cr_assert_fail("%s at %d threads, element %zu", wf_rows[ops[o]].name,
                                           counts[i], e / size);
                }
                for (int i = 0; i < 4; i++)
                    free(d[i].base);
                for (int k = 0; k < nsrc; k++)
                    free(s[k].base);
            }
}

/* -- derivatives ---------------------------------------------------------------------------------------------- */
static double forward(wf_op op, int nsrc, const double *x, const uint8_t *p)
{
    double y, in[3];
    wf_view v[3], d = one(&y, WEFT_F64);
    for (int k = 0; k < nsrc; k++) {
        in[k] = x[k];
        v[k] = one(&in[k], WEFT_F64);
    }
    uint8_t truth = *p;
    if (wf_rows[op].kind == WF_KIND_CHOOSE)
        v[0] = one(&truth, WEFT_BOOL);
    cr_assert_eq(wf_exec_map(op, WEFT_F64, &d, nsrc, v), 0);
    return y;
}

/* Does the row jump or bend within h of x? Then a difference quotient says nothing. */
static bool smooth(wf_op op, int nsrc, const double *x, const uint8_t *p, int which, double h,
                   double want)
{
    double e[3];
    memcpy(e, x, sizeof e);
    double q[2];
    for (int i = 0; i < 2; i++, h *= 4) {
        e[which] = x[which] + h;
        const double up = forward(op, nsrc, e, p);
        e[which] = x[which] - h;
        q[i] = (up - forward(op, nsrc, e, p)) / (2 * h);
    }
    return isfinite(q[0]) && fabs(q[0] - q[1]) < 1e-5 * (1 + fabs(want));
}

Test(map, vjp_against_differences)
{
    int checked = 0;
    for (wf_op op = 1; op < WF_OP_COUNT; op++) {
        const int kind = wf_rows[op].kind;
        if (!accepts(op, WEFT_F64) || kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE)
            continue;
        const int nsrc = nsrc_of(op);
        for (int which = kind == WF_KIND_CHOOSE ? 1 : 0; which < nsrc; which++) {
            int here = 0;
            for (int trial = 0; trial < (THIN > 2 ? 100 : 200); trial++) {
                double x[3], g = 1 + (double)(rng() % 100) / 50, grad = NAN;
                uint8_t p = rng() & 1;
                for (int k = 0; k < 3; k++)
                    x[k] = ((double)(rng() % 2001) - 1000) / 317 + 1e-4;
                double y = forward(op, nsrc, x, &p);
                const double h = 1e-6;
                double e[3];
                memcpy(e, x, sizeof e);
                e[which] = x[which] + h;
                double want = forward(op, nsrc, e, &p);
                e[which] = x[which] - h;
                want = (want - forward(op, nsrc, e, &p)) / (2 * h);
                if (!isfinite(y) || !isfinite(want) || !smooth(op, nsrc, x, &p, which, h, want))
                    continue;
                wf_view src[5], d = one(&grad, WEFT_F64);
                src[0] = one(&g, WEFT_F64);
                for (int k = 0; k < nsrc; k++)
                    src[k + 1] = kind == WF_KIND_CHOOSE && k == 0 ? one(&p, WEFT_BOOL)
                                                                  : one(&x[k], WEFT_F64);
                src[nsrc + 1] = one(&y, WEFT_F64);
                const unsigned reads = wf_vjp_reads(op, which);
                for (int k = 0; k < nsrc + 2; k++)
                    if (!(reads >> (k == 0 ? 6 : k == nsrc + 1 ? 7 : k - 1) & 1))
                        src[k] = (wf_view){.data = NULL};
                cr_assert_eq(wf_exec_vjp(op, which, WEFT_F64, &d, nsrc + 2, src), 0, "%s",
                             wf_rows[op].name);
                cr_assert_float_eq(grad, g * want, 1e-5 * (1 + fabs(g * want)),
                                   "%s operand %d at (%g, %g, %g): %.12g, difference %.12g",
                                   wf_rows[op].name, which, x[0], x[1], x[2], grad, g * want);
                here++;
            }
            cr_assert_gt(here, THIN > 2 ? 10 : 20, "%s operand %d: too few smooth points",
                         wf_rows[op].name, which);
            checked += here;
        }
    }
    cr_assert_gt(checked, THIN > 2 ? 2500 : 5000);
}

Test(map, vjp_layouts)
{
    static const int64_t dims[2] = {19, 83};
    for (wf_op op = 1; op < WF_OP_COUNT; op++) {
        const int kind = wf_rows[op].kind;
        if (!accepts(op, WEFT_F32) || kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE)
            continue;
        const int nsrc = nsrc_of(op);
        for (int which = kind == WF_KIND_CHOOSE ? 1 : 0; which < nsrc; which++)
            for (int form = 0; form < 3; form++) {
                operand s[5];
                wf_view v[5];
                for (int k = 0; k < nsrc + 2; k++) {
                    const bool choice = kind == WF_KIND_CHOOSE && k == 1;
                    const enum layout lay = form == 0 ? CONTIGUOUS : k == 0 ? SCALAR : TRANSPOSED;
                    s[k] = make(choice ? WEFT_BOOL : form == 2 ? WEFT_F16 : WEFT_F32, 2, dims, lay);
                    fill_random(&s[k]);
                    v[k] = s[k].v;
                }
                operand d = make(form == 2 ? WEFT_F16 : WEFT_F32, 2, dims, CONTIGUOUS);
                const int most = isa_most();
                _Alignas(8) char want[19 * 83 * 4];
                const size_t size = wf_dtype_size(d.v.dtype);
                wf_set_isa(WF_ISA_SSE2);
                for (int64_t i = 0; i < wf_view_numel(&d.v); i++) {
                    wf_view e[5], y = one(want + (size_t)i * size, d.v.dtype);
                    for (int k = 0; k < nsrc + 2; k++)
                        e[k] = one(element(&v[k], i), v[k].dtype);
                    cr_assert_eq(wf_exec_vjp(op, which, WEFT_F32, &y, nsrc + 2, e), 0);
                }
                for (int isa = 0; isa <= most; isa++) {
                    wf_set_isa(isa);
                    cr_assert_eq(wf_exec_vjp(op, which, WEFT_F32, &d.v, nsrc + 2, v), 0);
                    compare(op, &d.v, want, wf_isa_name(isa));
                }
                for (int k = 0; k < nsrc + 2; k++)
                    free(s[k].base);
                free(d.base);
            }
    }
}

Test(map, refuses_what_has_no_kernel)
{
    float x = 1, y;
    wf_view s = one(&x, WEFT_F32), d = one(&y, WEFT_F32);
    cr_assert_neq(wf_exec_map(WF_OP_BITWISE_NOT, WEFT_F32, &d, 1, &s), 0);
    cr_assert_neq(wf_exec_map(WF_OP_SUM, WEFT_F32, &d, 1, &s), 0);
    cr_assert_neq(wf_exec_map(WF_OP_EXP, WEFT_F16, &d, 1, &s), 0);
    cr_assert_eq(wf_vjp_reads(WF_OP_EXP, 0), 64u + 128u);
    cr_assert_eq(wf_vjp_reads(WF_OP_MUL, 0), 64u + 2u);
    cr_assert_eq(wf_vjp_reads(WF_OP_ADD, 1), 64u);
    cr_assert_eq(wf_vjp_reads(WF_OP_WHERE, 2), 64u + 1u);
    cr_assert_eq(wf_vjp_reads(WF_OP_CLAMP, 0), 64u + 1u + 2u + 4u);
    cr_assert_eq(wf_vjp_reads(WF_OP_SIGN, 0), 0u);
    cr_assert_eq(wf_vjp_reads(WF_OP_SUM, 0), 0u);
}

/* -- rowfun.h: division with remainder ----------------------------------------------------------------------------- */
Test(map, fmod_is_exact)
{
    const int most = isa_most();
    for (int isa = 0; isa <= most; isa++)
        for (int t = 0; t < 2; t++) {
            const int type = t ? WEFT_F64 : WEFT_F32;
            const int64_t n = 20000 / THIN;
            operand a = make(type, 1, &n, CONTIGUOUS), b = make(type, 1, &n, CONTIGUOUS);
            operand d = make(type, 1, &n, CONTIGUOUS);
            for (int64_t i = 0; i < n; i++) { /* random bits in stretches, so that blocks differ */
                for (int k = 0; k < 2; k++) {
                    uint64_t bits = rng();
                    if (i / 512 % 2)
                        put(&bits, type, sample());
                    memcpy(element(k ? &b.v : &a.v, i), &bits, wf_dtype_size(type));
                }
            }
            wf_set_isa(isa);
            cr_assert_eq(wf_exec_map(WF_OP_FMOD, type, &d.v, 2, (wf_view[]){a.v, b.v}), 0);
            for (int64_t i = 0; i < n; i++) {
                const double x = (double)value_of(element(&a.v, i), type);
                const double y = (double)value_of(element(&b.v, i), type);
                double want = fmod(x, y);
                if (t == 0) {
                    const float f = fmodf((float)x, (float)y);
                    want = (double)f;
                }
                const double got = (double)value_of(element(&d.v, i), type);
                cr_assert((isnan(want) && isnan(got)) ||
                              (want == got && signbit(want) == signbit(got)),
                          "fmod(%a, %a) = %a, not %a", x, y, got, want);
            }
            free(a.base);
            free(b.base);
            free(d.base);
        }
}

Test(map, integer_division)
{
    static const int types[] = {WEFT_U8, WEFT_I8, WEFT_I16, WEFT_I32, WEFT_I64};
    static const wf_op ops[] = {WF_OP_FLOOR_DIVIDE, WF_OP_REMAINDER, WF_OP_FMOD};
    for (int t = 0; t < 5; t++)
        for (int trial = 0; trial < 4000 / THIN; trial++) {
            const int width = (int)wf_dtype_size(types[t]) * 8;
            const int64_t min = t == 0 ? 0 : (int64_t)(UINT64_MAX << (width - 1));
            uint64_t x = rng(), y = trial % 2 ? rng() : rng() % 7 - 3, r[3];
            if (trial % 97 == 0) {
                x = (uint64_t)min;
                y = UINT64_MAX;
            }
            wf_view v[2] = {one(&x, types[t]), one(&y, types[t])};
            const __int128 a = (__int128)value_of(&x, types[t]),
                           b = (__int128)value_of(&y, types[t]);
            for (int o = 0; o < 3; o++) {
                wf_view d = one(&r[o], types[t]);
                cr_assert_eq(wf_exec_map(ops[o], types[t], &d, 2, v), 0);
            }
            __int128 q = b ? a / b : 0, m = b ? a % b : 0, f = m;
            if (m != 0 && (m < 0) != (b < 0)) {
                q--;
                m += b;
            }
            const __int128 want[3] = {q, m, f};
            for (int o = 0; o < 3; o++)
                cr_assert_eq((((uint64_t)want[o] ^ r[o]) << (64 - width)), 0u,
                             "%s %s of %lld and %lld", wf_rows[ops[o]].name,
                             wf_dtype_name(types[t]), (long long)a, (long long)b);
        }
}
