/*
 * tests/jit/test_cuda_rows.c -- rows with device kernels of their own against the host's, operands in every layout.
 *
 * Everything that moves, counts, draws or adds in a stated order has the host's bits; products and attention have
 * the device's order and are held to a bound.
 *
 * ctest: timeout=900
 */
#include <math.h>
#include <stdio.h>

#include "eager/cpuid.h"
#include "eager/dense.h"
#include "eager/exec.h"
#include "tests/jit/cuda_support.h"
#include "jit/gpu/impl.h"
#include "jit/ir/kir.h"
#include "tests/support/effort.h"
#include "tests/jit/values.h"

enum { SRC = 8, LAYOUTS = 4 };

typedef struct row_case {
    wf_op op;
    int nsrc;
    wf_type src[SRC];
    int64_t ints[16], dyn[32];
    double flt[4];
    wf_attr attr;
    double bound; /* 0: bits; else relative to the largest element */
    int64_t
        index_most; /* integers of i64 and i32 operands are taken from [-most, most), or [0, most) */
    bool from_zero, small; /* small: elements of f32 are from -1 to 1 */
    int equal; /* 1: elements are few numbers, zeros of either sign among them; 2: and a NaN here and there; 3: and the last one
                  is the largest; 4: elements are numbers near 1 */
    int shift; /* elements that an operand begins later */
} row_case;

static wf_type type(int dtype, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (wf_type){.dtype = (uint8_t)dtype, .rank = (uint8_t)rank, .dims = {a, b, c, d}};
}

static void ints(row_case *c, int n, int64_t a, int64_t b)
{
    c->ints[0] = a;
    c->ints[1] = b;
    c->attr.n_ints = (uint8_t)n;
}

static void dyns(row_case *c, int n, const int64_t *v)
{
    memcpy(c->dyn, v, (size_t)n * sizeof *v);
    c->attr.n_dyn = (uint8_t)n;
}

/* n elements, and as many as are stepped over: few numbers, or numbers near 1. Memory of the caller. */
static void *alike(const row_case *c, int dtype, int64_t n)
{
    double *x = malloc((size_t)(2 * n + 1) * sizeof *x);
    char *p = calloc((size_t)(2 * n + 2), 8);
    cr_assert(x && p);
    for (int64_t i = 0; i < 2 * n + 1; i++) {
        static const double few[] = {-2, -1, -0.0, 0, 1, 2, 2};
        const uint64_t r = values_hash((uint64_t)i);
        x[i] = c->equal == 4                                 ? 0.95 + (double)(r % 999983) * 1e-7
               : c->equal == 2 && r % 7 == 6 && r % 4099 < 3 ? NAN
                                                             : few[r % 7];
    }
    if (c->equal == 3 && n > 0)
        x[n + c->shift - 1] = 100;
    const wf_view from = {
        .data = x, .dtype = WEFT_F64, .rank = 1, .dims = {2 * n + 1}, .strides = {1}};
    wf_view to = from;
    to.data = p;
    to.dtype = (uint8_t)dtype;
    wf_copy(&to, &from);
    free(x);
    return p;
}

/* Elements in memory, permuted (1), stepped (2) or from the end (3). */
static wf_view operand(const row_case *c, int s, int layout, void **memory)
{
    const wf_type *t = &c->src[s];
    wf_view v;
    const int64_t n = wf_type_numel(t);
    wf_view_of_type(&v, t, NULL);
    *memory = c->equal                                ? alike(c, t->dtype, n)
              : c->bound > 0 || t->dtype == WEFT_BOOL ? values_ordinary(t->dtype, 2 * n + 1, s + 1)
                                                      : values_new(t->dtype, 2 * n + 1, s + 1);
    v.data = (char *)*memory + (size_t)c->shift * wf_dtype_size(t->dtype);
    for (int64_t i = 0; c->small && t->dtype == WEFT_F32 && i < 2 * n; i++)
        ((float *)v.data)[i] /= 100;
    for (int64_t i = 0;
         c->index_most && i < 2 * n && (t->dtype == WEFT_I64 || t->dtype == WEFT_I32); i++) {
        const int64_t most = c->index_most,
                      r = (int64_t)(values_hash((uint64_t)(i + s)) % (uint64_t)(2 * most)) - most;
        const int64_t index = c->from_zero && r < 0 ? r + most : r;
        if (t->dtype == WEFT_I64)
            ((int64_t *)v.data)[i] = index;
        else
            ((int32_t *)v.data)[i] = (int32_t)index;
    }
    if (layout == 1) {
        int64_t step = 1;
        for (int i = 0; i < v.rank; i++) {
            v.strides[i] = step;
            step *= v.dims[i];
        }
    } else if (layout == 2) {
        for (int i = 0; i < v.rank; i++)
            v.strides[i] *= 2;
    } else if (layout == 3 && v.rank > 0 && n > 0) {
        v.data = (char *)v.data +
                 (v.dims[v.rank - 1] - 1) * v.strides[v.rank - 1] * (int64_t)wf_dtype_size(v.dtype);
        v.strides[v.rank - 1] *= -1;
    }
    return v;
}

static double number(int dtype, const void *p, int64_t i)
{
    const int64_t one = 1;
    double out = 0;
    wf_view from = {.data = (char *)(uintptr_t)p + i * (int64_t)wf_dtype_size(dtype),
                    .dtype = (uint8_t)dtype,
                    .rank = 1,
                    .dims = {1},
                    .strides = {1}};
    wf_view to = {.data = &out, .dtype = WEFT_F64, .rank = 1, .dims = {1}, .strides = {1}};
    (void)one;
    wf_copy(&to, &from);
    return out;
}

static void compare_results(const row_case *c, const wf_view *got, const wf_view *want, int layout)
{
    const int64_t n = wf_view_numel(want);
    const wf_kty kty = wf_kir_storage(want->dtype);
    double most = 0;
    if (memcmp(got->data, want->data, (size_t)n * wf_dtype_size(want->dtype)) == 0)
        return;
    for (int64_t i = 0; i < n && c->bound > 0; i++) {
        const double v = fabs(number(want->dtype, want->data, i));
        most = isfinite(v) && v > most ? v : most;
    }
    for (int64_t i = 0; i < n; i++) {
        bool same;
        if (c->bound > 0) {
            const double x = number(got->dtype, got->data, i),
                         y = number(want->dtype, want->data, i);
            same = fabs(x - y) <= c->bound * most || x == y || (x != x && y != y);
        } else {
            same = values_same(wf_kir_peek(got->data, kty, i), wf_kir_peek(want->data, kty, i),
                               want->dtype);
        }
        if (!same)
            cr_assert_fail(
                "%s of %s, layout %d, element %lld of %lld: %llx (%g), expected %llx (%g)",
                wf_rows[c->op].name, wf_dtype_name(c->nsrc ? c->src[0].dtype : want->dtype), layout,
                (long long)i, (long long)n, (unsigned long long)wf_kir_peek(got->data, kty, i),
                number(got->dtype, got->data, i),
                (unsigned long long)wf_kir_peek(want->data, kty, i),
                number(want->dtype, want->data, i));
    }
}

static int on_device(const row_case *c, const wf_view *src, wf_view *dst, int ndst, wf_why *why)
{
    mirror m = {0};
    wf_view dsrc[SRC], ddst[WF_MAX_DST];
    for (int i = 0; i < ndst; i++)
        mirror_add(&m, &dst[i]);
    for (int i = 0; i < c->nsrc; i++)
        mirror_add(&m, &src[i]);
    mirror_upload(&m);
    for (int i = 0; i < ndst; i++)
        ddst[i] = mirror_view(&m, &dst[i]);
    for (int i = 0; i < c->nsrc; i++)
        dsrc[i] = mirror_view(&m, &src[i]);
    wf_exec e = {c->op, c->nsrc, ndst, dsrc, ddst, &c->attr, why, NULL, false};
    const int status = wf_gpu_row(0, &e), late = mirror_download(&m, why);
    mirror_check(&m);
    return status ? status : late;
}

static void check_layout(row_case *c, int layout)
{
    wf_type types[WF_MAX_DST];
    wf_view src[SRC], got[WF_MAX_DST], want[WF_MAX_DST];
    void *memory[SRC];
    wf_why why = {0};
    const int ndst = wf_rows[c->op].ndst;
    static uint64_t cases;
    if (!effort_walks(cases++, 5)) /* of every case another layout */
        return;
    c->attr.ints = c->ints;
    c->attr.dyn = c->dyn;
    c->attr.flt = c->flt;
    cr_assert_eq(wf_infer(c->op, &c->attr, c->nsrc, c->src, types, &why), 0, "%s: %s",
                 wf_rows[c->op].name, why.rule);
    for (int i = 0; i < c->nsrc; i++)
        src[i] = operand(c, i, layout, &memory[i]);
    for (int i = 0; i < ndst; i++) {
        const size_t bytes = (size_t)wf_type_numel(&types[i]) * wf_dtype_size(types[i].dtype);
        wf_view_of_type(&got[i], &types[i], memset(malloc(bytes + 8), 0x5A, bytes + 8));
        wf_view_of_type(&want[i], &types[i], memset(malloc(bytes + 8), 0xA5, bytes + 8));
    }
    wf_exec e = {c->op, c->nsrc, ndst, src, want, &c->attr, &why, NULL, false};
    const int status = wf_exec_row(&e);
    wf_why late = {0};
    const int device = on_device(c, src, got, ndst, &late);
    cr_assert_eq(device, status, "%s: %d %s, the host: %d %s", wf_rows[c->op].name, device,
                 late.rule, status, why.rule);
    for (int i = 0; i < ndst; i++) {
        if (status == 0)
            compare_results(c, &got[i], &want[i], layout);
        free(got[i].data);
        free(want[i].data);
    }
    for (int i = 0; i < c->nsrc; i++)
        free(memory[i]);
}

static void check(row_case *c)
{
    for (int layout = 0; layout < (c->nsrc ? LAYOUTS : 1); layout++)
        check_layout(c, layout);
}

static const int all[] = {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_BOOL, WEFT_U8,
                          WEFT_I16, WEFT_I32,  WEFT_I64, WEFT_F16};
static const int floats[] = {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_F16};
#define EACH(list, d) for (size_t d = 0; d < sizeof list / sizeof *list; d++)

Test(cuda_rows, moves)
{
    NEED_FIBERS();
    EACH(all, d)
    {
        const int t = all[d];
        row_case c = {
            .op = WF_OP_CONCAT,
            .nsrc = 3,
            .src = {type(t, 3, 3, 5, 7, 0), type(t, 3, 3, 1, 7, 0), type(t, 3, 3, 0, 7, 0)}};
        ints(&c, 1, 1, 0);
        check(&c);
        c = (row_case){.op = WF_OP_PAD,
                       .nsrc = 1,
                       .src = {type(t, 2, 5, 6, 0, 0)},
                       .flt = {1},
                       .attr.n_flt = 1};
        dyns(&c, 4, (int64_t[]){2, 1, -1, 3});
        check(&c);
        for (int mode = 0; mode < 3; mode++) {
            static const int64_t by[3][6] = {
                {0, 0, 4, 2, 1, 5}, {2, 0, 0, 7, 3, 1}, {0, 0, 5, 0, 6, 2}};
            const bool sums = wf_dtype_kind(t) == 2;
            c = (row_case){.op = WF_OP_PAD_MODE, .nsrc = 1, .src = {type(t, 3, 2, 5, 6, 0)}};
            ints(&c, 1, mode, 0);
            dyns(&c, 6, by[mode]);
            check(&c);
            for (int k = 0; k < 3; k++)
                c.src[0].dims[k] += by[mode][2 * k] + by[mode][2 * k + 1];
            c.op = WF_OP_PAD_MODE_BWD;
            if (sums)
                check(&c);
        }
        c = (row_case){.op = WF_OP_ROLL, .nsrc = 1, .src = {type(t, 2, 5, 6, 0, 0)}};
        ints(&c, 2, 0, 1);
        dyns(&c, 2, (int64_t[]){7, -2});
        check(&c);
        for (int k = -3; k <= 3; k += 2) {
            c = (row_case){
                .op = k < 0 ? WF_OP_TRIL : WF_OP_TRIU, .nsrc = 1, .src = {type(t, 3, 2, 5, 6, 0)}};
            dyns(&c, 1, (int64_t[]){k});
            check(&c);
        }
        c = (row_case){.op = WF_OP_SLICE_GRAD, .nsrc = 1, .src = {type(t, 2, 3, 4, 0, 0)}};
        ints(&c, 1, 1, 0);
        dyns(&c, 4, (int64_t[]){1, 9, 2, 10});
        check(&c);
        if (t != WEFT_BOOL) { /* windows that overlap, one element for all */
            c = (row_case){.op = WF_OP_STRIDED_GRAD, .nsrc = 1, .src = {type(t, 2, 40, 9, 0, 0)}};
            ints(&c, 1, 1, 0);
            dyns(&c, 4, (int64_t[]){110, 2, 3, 5});
            check(&c);
            dyns(&c, 4, (int64_t[]){110, 0, 1, 91});
            check(&c);
        }
        c = (row_case){.op = WF_OP_UPDATE,
                       .nsrc = 2,
                       .src = {type(t, 1, 110, 0, 0, 0), type(t, 2, 40, 9, 0, 0)}};
        dyns(&c, 5, (int64_t[]){40, 9, 2, 3, 5});
        check(&c);
        dyns(&c, 5, (int64_t[]){40, 9, 1, -1, 30});
        check(&c);
        c = (row_case){.op = WF_OP_COPY, .nsrc = 1, .src = {type(t, 3, 33, 65, 2, 0)}};
        check(&c);
        c = (row_case){.op = WF_OP_COPY, .nsrc = 1, .src = {type(t, 2, 65, 130, 0, 0)}};
        check(&c);
        c = (row_case){.op = WF_OP_COPY, .nsrc = 1, .src = {type(t, 3, 3, 33, 40, 0)}};
        check(&c);
        c = (row_case){
            .op = WF_OP_CAST, .nsrc = 1, .src = {type(t, 2, 33, 7, 0, 0)}, .attr.dtype = WEFT_F32};
        check(&c);
    }
}

#ifndef WEFT_GPU_RUNNER
/* Offsets of 32 bits serve what they reach; what 64 do not count is not near, either. */
Test(cuda_rows, views_that_are_far)
{
    static const struct {
        int64_t dims[2], strides[2];
        bool far;
    } views[] = {{{3, 2}, {2, 1}, false},
                 {{3, 2}, {INT64_C(1) << 30, 1}, true},
                 {{2, 2}, {-(INT64_C(1) << 31), 1}, true},
                 {{3, 2}, {INT64_C(1) << 62, 1}, true},
                 {{2, 2}, {INT64_MAX, 1}, true},
                 {{3, 0}, {INT64_C(1) << 62, 1}, false}};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        wf_view v = {.dtype = WEFT_F32, .rank = 2};
        memcpy(v.dims, views[i].dims, sizeof views[i].dims);
        memcpy(v.strides, views[i].strides, sizeof views[i].strides);
        cr_assert_eq(wf_gpu_is_far(&v), views[i].far, "view %zu", i);
    }
}

/* Hundreds of small parts, of which some are empty, some too large to be joined and some not contiguous: the host's bits, in a few
 * launches. */
Test(cuda_rows, many_parts)
{
    NEED_FIBERS();
    enum { PARTS = 600 };
    EACH(all, d)
    for (int axis = 0; axis < 2; axis++) {
        static wf_view src[PARTS], dsrc[PARTS];
        const int64_t size = (int64_t)wf_dtype_size(all[d]), rows = axis ? 3 : 1;
        int64_t sizes[PARTS], from = 0, total = 0, one[2] = {1, 1};
        for (int i = 0; i < PARTS; i++) {
            sizes[i] = i == 350 ? 40000 : i % 50 == 7 ? 0 : 1 + i * 7 % (i % 11 == 3 ? 90 : 5);
            total += sizes[i];
        }
        char *memory = values_new(all[d], 2 * rows * total + 1, (int)d);
        for (int i = 0; i < PARTS; i++) {
            one[axis] = sizes[i];
            one[1 - axis] = rows;
            src[i] = wf_view_dense(memory + from * size, all[d], 2, one);
            if (axis && i % 100 == 30) { /* not contiguous */
                src[i].strides[0] = 1;
                src[i].strides[1] = rows;
            }
            from += rows * sizes[i];
        }
        one[axis] = total;
        wf_view whole = wf_view_dense(memory, all[d], 2, (int64_t[]){1, rows * total}), v[2];
        for (int i = 0; i < 2; i++)
            v[i] = wf_view_dense(calloc((size_t)(rows * total + 1), (size_t)size), all[d], 2, one);
        int64_t place = axis;
        wf_attr attr = {.ints = &place, .n_ints = 1};
        wf_why why = {0};
        mirror m = {0};
        wf_cuda_counters before, after;
        mirror_add(&m, &v[1]);
        mirror_add(&m, &whole);
        mirror_upload(&m);
        for (int i = 0; i < PARTS; i++)
            dsrc[i] = wf_view_numel(&src[i]) ? mirror_view(&m, &src[i]) : src[i];
        wf_view dst = mirror_view(&m, &v[1]);
        wf_exec host = {WF_OP_CONCAT, PARTS, 1, src, &v[0], &attr, &why, NULL, false};
        wf_exec device = {WF_OP_CONCAT, PARTS, 1, dsrc, &dst, &attr, &why, NULL, false};
        cr_assert_eq(wf_exec_row(&host), 0, "%s", why.rule);
        wf_cuda_get_counters(&before);
        cr_assert_eq(wf_gpu_row(0, &device), 0, "%s", why.rule);
        wf_cuda_get_counters(&after);
        cr_assert_lt(after.launches + after.copies, before.launches + before.copies + 30);
        cr_assert_eq(mirror_download(&m, &why), 0, "%s", why.rule);
        mirror_check(&m);
        cr_assert_eq(memcmp(v[0].data, v[1].data, (size_t)(rows * total * size)), 0, "%s, %d",
                     wf_dtype_name(all[d]), axis);
        free(v[0].data);
        free(v[1].data);
        free(memory);
    }
}
#endif

/* Copies between two orders of axes by tiles: whole ones, edges, batches, strides that no word of 4 bytes fits, what begins at an
 * odd place; sides so short that there are no tiles; tiles of every height, several strips and an empty end of the last. */
Test(cuda_rows, transposes)
{
    setenv("FAKE_CUDA_PROCESSORS", "1", 1);
    NEED_FIBERS();
    static const int64_t dims[][3] = {
        {64, 1, 128},  {128, 1, 192}, {65, 1, 130},  {66, 1, 130},   {68, 1, 132},  {192, 3, 68},
        {130, 2, 67},  {16, 5, 20},   {70, 0, 64},   {15, 2, 64},    {300, 1, 17},  {128, 2, 128},
        {384, 1, 450}, {131, 2, 517}, {4400, 1, 20}, {1100, 1, 261}, {33, 3, 1030}, {4097, 1, 37},
        {137, 1, 771}, {20, 1, 1100}, {256, 1, 768}, {130, 2, 1024}};
    EACH(all, d)
    for (int z = 0; z < (int)(sizeof dims / sizeof *dims); z++)
        for (int shift = 0; shift < 3; shift++) {
            if (!effort_walks((d + (size_t)z) * 3 + (size_t)shift, 4))
                continue;
            wf_view v[3];
            wf_why why = {0};
            mirror m = {0};
            const int64_t size = (int64_t)wf_dtype_size(all[d]), *n = dims[z];
            const int64_t count = n[0] * n[1] * n[2];
            void *memory = values_new(all[d], count + 2, z + 1), *to[2];
            for (int i = 0; i < 2; i++) {
                to[i] = memset(malloc((size_t)((count + 2) * size)), 0x5A,
                               (size_t)((count + 2) * size));
                v[i] = wf_view_dense((char *)to[i] + (shift == 2) * size, all[d], 3, n);
            }
            v[2] = wf_view_dense((char *)memory + (shift == 1) * size, all[d], 3, n);
            v[2].strides[0] = 1;
            v[2].strides[1] = n[0];
            v[2].strides[2] = n[0] * n[1];
            wf_copy(&v[0], &v[2]);
            for (
                int i = 1; i < 3;
                i++) { /* all of it, so that the device's copy begins as far from what is aligned */
                const wf_view whole =
                    wf_view_dense(i == 1 ? to[1] : memory, all[d], 1, (int64_t[]){count + 2});
                mirror_add(&m, &whole);
            }
            mirror_upload(&m);
            const wf_view dst = mirror_view(&m, &v[1]), src = mirror_view(&m, &v[2]);
            cr_assert_eq(wf_gpu_copy(0, &dst, &src, &why), 0, "%s", why.rule);
            cr_assert_eq(mirror_download(&m, &why), 0, "%s", why.rule);
            mirror_check(&m);
            cr_assert_eq(memcmp(to[0], to[1], (size_t)((count + 2) * size)), 0, "%s, %d, %d",
                         wf_dtype_name(all[d]), z, shift);
            free(to[0]);
            free(to[1]);
            free(memory);
        }
}

Test(cuda_rows, gathers)
{
    NEED_FIBERS();
    EACH(all, d)
    {
        const int t = all[d];
        for (int axis = 0; axis < 3; axis++) {
            row_case c = {
                .op = WF_OP_INDEX_SELECT,
                .nsrc = 2,
                .src = {type(t, 3, 6, 6, 6, 0), type(d % 2 ? WEFT_I32 : WEFT_I64, 2, 3, 5, 0, 0)},
                .index_most = 6};
            ints(&c, 1, axis, 0);
            check(&c);
            /* rows that are taken by several elements at once, or cannot be; more than a thread each */
            for (int row = 7; row < 9; row++) {
                c = (row_case){.op = WF_OP_INDEX_SELECT,
                               .nsrc = 2,
                               .src = {type(t, 3, 9, 5, 8 * row + (row == 7) * (int)d % 4, 0),
                                       type(WEFT_I64, 1, 11 * row, 0, 0, 0)},
                               .index_most = 5};
                ints(&c, 1, axis, 0);
                check(&c);
            }
            c = (row_case){
                .op = WF_OP_TAKE_ALONG,
                .nsrc = 2,
                .src = {type(t, 3, 6, 6, 6, 0), type(WEFT_I64, 3, axis == 0 ? 9 : 6,
                                                     axis == 1 ? 9 : 6, axis == 2 ? 9 : 6, 0)},
                .index_most = 6};
            ints(&c, 1, axis, 0);
            check(&c);
        }
    }
}

Test(cuda_rows, scatters)
{
    NEED_FIBERS();
    EACH(all, d)
    {
        const int t = all[d];
        if (t == WEFT_BOOL || (d % 2 == 0 && d > 2))
            continue;
        for (int axis = 0; axis < 2; axis++) {
            row_case c = {.op = WF_OP_INDEX_ADD,
                          .nsrc = 3,
                          .src = {type(t, 2, 5, 5, 0, 0), type(WEFT_I64, 1, 77, 0, 0, 0),
                                  type(t, 2, axis ? 5 : 77, axis ? 77 : 5, 0, 0)},
                          .index_most = 5};
            if (t == WEFT_I64 || t == WEFT_I32)
                c.src[1].dims[0] = 77;
            ints(&c, 1, axis, 0);
            check(&c);
            /* so many places and indices that they are sorted; many places without an index, many with several */
            c = (row_case){.op = WF_OP_INDEX_ADD,
                           .nsrc = 3,
                           .src = {type(t, 2, axis ? 3 : 1500, axis ? 1500 : 3, 0, 0),
                                   type(WEFT_I64, 1, 901, 0, 0, 0),
                                   type(t, 2, axis ? 3 : 901, axis ? 901 : 3, 0, 0)},
                           .index_most = axis ? 1500 : 400};
            ints(&c, 1, axis, 0);
            check(&c);
            /* a warp has all columns of a place, or there are so few places that several share them */
            for (int few = 0; few < 2 && axis == 0 && d < 3; few++) {
                c = (row_case){.op = WF_OP_INDEX_ADD,
                               .nsrc = 3,
                               .src = {type(t, 2, few ? 200 : 2100, 299, 0, 0),
                                       type(WEFT_I64, 1, few ? 5300 : 530, 0, 0, 0),
                                       type(t, 2, few ? 5300 : 530, 299, 0, 0)},
                               .index_most = few ? 200 : 300};
                ints(&c, 1, axis, 0);
                check_layout(&c, few);
            }
            c = (row_case){.op = WF_OP_SCATTER_ADD,
                           .nsrc = 3,
                           .src = {type(t, 2, 5, 5, 0, 0),
                                   type(WEFT_I64, 2, axis ? 4 : 21, axis ? 21 : 4, 0, 0),
                                   type(t, 2, axis ? 4 : 21, axis ? 21 : 4, 0, 0)},
                           .index_most = 5};
            ints(&c, 1, axis, 0);
            check(&c);
        }
        /* of vectors: not sorted, and sorted */
        for (int many = 0; many < 2; many++) {
            row_case c = {.op = WF_OP_SCATTER_ADD,
                          .nsrc = 3,
                          .src = {type(t, 1, many ? 1500 : 9, 0, 0, 0),
                                  type(WEFT_I64, 1, 901, 0, 0, 0), type(t, 1, 901, 0, 0, 0)},
                          .index_most = many ? 1500 : 9};
            ints(&c, 1, 0, 0);
            check(&c);
        }
    }
    row_case c = {.op = WF_OP_ONE_HOT,
                  .nsrc = 1,
                  .src = {type(WEFT_I64, 2, 3, 5, 0, 0)},
                  .index_most = 9,
                  .attr.dtype = WEFT_F32};
    dyns(&c, 1, (int64_t[]){9});
    check(&c);
}

Test(cuda_rows, bad_indices)
{
    NEED_FIBERS();
    row_case c = {.op = WF_OP_INDEX_SELECT,
                  .nsrc = 2,
                  .src = {type(WEFT_F32, 2, 3, 6, 0, 0), type(WEFT_I64, 1, 50, 0, 0, 0)},
                  .index_most = 9};
    ints(&c, 1, 0, 0);
    check(&c);
    c = (row_case){.op = WF_OP_INDEX_ADD,
                   .nsrc = 3,
                   .src = {type(WEFT_F32, 2, 5, 5, 0, 0), type(WEFT_I64, 1, 77, 0, 0, 0),
                           type(WEFT_F32, 2, 77, 5, 0, 0)},
                   .index_most = 9};
    ints(&c, 1, 0, 0);
    check(&c);
    c = (row_case){.op = WF_OP_INDEX_ADD, /* sorted */
                   .nsrc = 3,
                   .src = {type(WEFT_F32, 2, 1500, 2, 0, 0), type(WEFT_I64, 1, 901, 0, 0, 0),
                           type(WEFT_F32, 2, 901, 2, 0, 0)},
                   .index_most = 1700};
    ints(&c, 1, 0, 0);
    check(&c);
    c = (row_case){.op = WF_OP_CROSS_ENTROPY,
                   .nsrc = 2,
                   .src = {type(WEFT_F32, 2, 9, 6, 0, 0), type(WEFT_I64, 1, 9, 0, 0, 0)},
                   .index_most = 9};
    check(&c);
}

/* The error comes later: until then nobody may see what was in the memory before. */
Test(cuda_rows, bad_indices_read_zeros)
{
    NEED_FIBERS();
    static const wf_op ops[2] = {WF_OP_INDEX_SELECT, WF_OP_TAKE_ALONG};
    for (int k = 0; k < 2; k++) {
        float x[4] = {1, 2, 3, 4}, y[4] = {77, 77, 77, 77};
        int64_t index[4] = {1, 9, -9, -1};
        wf_view src[2] = {
            {.data = x, .dtype = WEFT_F32, .rank = 1, .dims = {4}, .strides = {1}},
            {.data = index, .dtype = WEFT_I64, .rank = 1, .dims = {4}, .strides = {1}}};
        wf_view dst = {.data = y, .dtype = WEFT_F32, .rank = 1, .dims = {4}, .strides = {1}};
        row_case c = {.op = ops[k], .nsrc = 2};
        mirror m = {0};
        wf_why why = {0};
        ints(&c, 1, 0, 0);
        c.attr.ints = c.ints;
        c.attr.dyn = c.dyn;
        mirror_add(&m, &dst);
        mirror_add(&m, &src[0]);
        mirror_add(&m, &src[1]);
        mirror_upload(&m);
        wf_view on[3] = {mirror_view(&m, &src[0]), mirror_view(&m, &src[1]), mirror_view(&m, &dst)};
        wf_exec e = {c.op, 2, 1, on, &on[2], &c.attr, &why, NULL, false};
        cr_assert_eq(wf_gpu_row(0, &e), 0, "%s", why.rule);
        cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
        cr_assert_eq(mirror_download(&m, &why), 0);
        cr_assert(y[0] == 2 && y[1] == 0 && y[2] == 0 && y[3] == 4, "%g %g %g %g", (double)y[0],
                  (double)y[1], (double)y[2], (double)y[3]);
    }
}

Test(cuda_rows, creation)
{
    NEED_FIBERS();
    EACH(all, d)
    {
        const int t = all[d];
        row_case c = {WF_OP_FULL, .flt = {1}, .attr = {.dtype = (uint8_t)t, .n_flt = 1}};
        dyns(&c, 2, (int64_t[]){3, 1001});
        check(&c);
        c = (row_case){WF_OP_EYE, .attr.dtype = (uint8_t)t};
        dyns(&c, 3, (int64_t[]){5, 7, -1});
        check(&c);
        if (t == WEFT_BOOL)
            continue;
        c = (row_case){WF_OP_ARANGE, .flt = {-3.5, 0.37},
                       .attr = {.dtype = (uint8_t)t, .n_flt = 2}};
        dyns(&c, 1, (int64_t[]){300});
        if (t != WEFT_F32 && t != WEFT_F64 && t != WEFT_BF16 && t != WEFT_F16) {
            dyns(&c, 3, (int64_t[]){300, -5, 3});
            c.attr.n_flt = 0;
        }
        check(&c);
        c = (row_case){WF_OP_RANDINT, .attr.dtype = (uint8_t)t};
        dyns(&c, 5, (int64_t[]){3000, 42, 7, -50, 77});
        check(&c);
    }
    EACH(floats, d)
    {
        static const wf_op ops[] = {WF_OP_RAND, WF_OP_RANDN, WF_OP_BERNOULLI, WF_OP_LINSPACE};
        for (int o = 0; o < 4; o++) {
            row_case c = {ops[o], .flt = {-0.25, 1.5},
                          .attr = {.dtype = (uint8_t)floats[d], .n_flt = 2}};
            c.flt[0] = ops[o] == WF_OP_BERNOULLI ? 0.3 : -0.25;
            c.attr.n_flt = ops[o] == WF_OP_BERNOULLI ? 1 : 2;
            dyns(&c, ops[o] == WF_OP_LINSPACE ? 1 : 3, (int64_t[]){3001, 1234567, 99});
            check(&c);
        }
    }
    row_case c = {WF_OP_RANDPERM, .attr.dtype = WEFT_I64};
    dyns(&c, 3, (int64_t[]){1000, 5, 6});
    check(&c);
}

Test(cuda_rows, products)
{
    NEED_FIBERS();
    static const int whole[] = {WEFT_U8, WEFT_I8, WEFT_I16, WEFT_I32, WEFT_I64};
    EACH(whole, d)
    {
        const int t = whole[d];
        row_case c = {.op = WF_OP_MATMUL,
                      .nsrc = 2,
                      .src = {type(t, 3, 2, 70, 33, 0), type(t, 2, 33, 65, 0, 0)}};
        check(&c);
    }
    EACH(floats, d)
    {
        const int t = floats[d];
        const double bound = t == WEFT_F64   ? 1e-13
                             : t == WEFT_F32 ? 1e-5
                             : t == WEFT_F16 ? 2e-3
                                             : 1e-2;
        row_case c = {.op = WF_OP_MATMUL,
                      .nsrc = 2,
                      .src = {type(t, 2, 70, 33, 0, 0), type(t, 2, 33, 65, 0, 0)},
                      .bound = bound};
        check(&c);
        c = (row_case){.op = WF_OP_MATMUL,
                       .nsrc = 2,
                       .src = {type(t, 4, 2, 3, 5, 17), type(t, 3, 3, 17, 9, 0)},
                       .bound = bound};
        check(&c);
        c = (row_case){.op = WF_OP_MATMUL,
                       .nsrc = 2,
                       .src = {type(t, 1, 17, 0, 0, 0), type(t, 3, 3, 17, 9, 0)},
                       .bound = bound};
        check(&c);
        c = (row_case){.op = WF_OP_MATMUL,
                       .nsrc = 2,
                       .src = {type(t, 3, 3, 9, 17, 0), type(t, 1, 17, 0, 0, 0)},
                       .bound = bound};
        check(&c);
        c = (row_case){.op = WF_OP_MATMUL,
                       .nsrc = 2,
                       .src = {type(t, 1, 17, 0, 0, 0), type(t, 1, 17, 0, 0, 0)},
                       .bound = bound};
        check(&c);
        c = (row_case){.op = WF_OP_MATMUL,
                       .nsrc = 2,
                       .src = {type(t, 2, 5, 0, 0, 0), type(t, 2, 0, 6, 0, 0)},
                       .bound = bound};
        check(&c);
        for (int bias = 0; bias < 2; bias++) {
            c = (row_case){
                .op = WF_OP_LINEAR,
                .nsrc = 2 + bias,
                .src = {type(t, 3, 4, 9, 20, 0), type(t, 2, 31, 20, 0, 0), type(t, 1, 31, 0, 0, 0)},
                .bound = bound};
            check(&c);
        }
        c = (row_case){
            .op = WF_OP_LINEAR,
            .nsrc = 3,
            .src = {type(t, 1, 20, 0, 0, 0), type(t, 2, 31, 20, 0, 0), type(t, 1, 31, 0, 0, 0)},
            .bound = bound};
        check(&c);
    }
}

/* The last two axes of a matrix. */
static void end_type(wf_type *t, int dtype, int64_t rows, int64_t cols)
{
    t->dtype = (uint8_t)dtype;
    t->dims[t->rank++] = rows;
    t->dims[t->rank++] = cols;
}

/* Weights are exponentials of scores of some thousands, which a host without fma rounds twice a term: their last places are
 * 1e-4 of a weight. */
#define NEED_FMA()                                                                                 \
    do {                                                                                           \
        if (wf_isa() < WF_ISA_AVX2)                                                                \
            cr_skip_test("no fma");                                                                \
    } while (0)

Test(cuda_rows, attention)
{
    NEED_FIBERS();
    NEED_FMA();
    for (int variant = 0; variant < 8; variant++) {
        const int t = variant & 4 ? WEFT_BF16 : WEFT_F32;
        const wf_type q = type(t, 4, 2, 3, 20, 8), k = type(t, 4, 2, 3, variant & 1 ? 20 : 33, 8);
        const wf_type v = type(t, 4, 2, 3, k.dims[2], 6), o = type(t, 4, 2, 3, 20, 6);
        const wf_type mask = type(variant & 1 ? WEFT_BOOL : t, 2, 20, k.dims[2], 0, 0);
        row_case c = {.op = WF_OP_SDPA,
                      .nsrc = variant & 2 ? 4 : 3,
                      .src = {q, k, v, mask},
                      .flt = {0.3},
                      .attr.n_flt = 1,
                      .bound = variant & 4 ? 2e-2 : 1e-5};
        c.attr.flags = variant & 1 ? WF_FLAG_CAUSAL : 0;
        check_layout(&c, variant & 1 ? 0 : 1);
        c.op = WF_OP_SDPA_BWD;
        c.nsrc = variant & 2 ? 7 : 6;
        c.bound = variant & 4 ? 3e-2 : 1e-4;
        c.src[0] = o;
        c.src[1] = q;
        c.src[2] = k;
        c.src[3] = v;
        c.src[4] = o;
        c.src[5] = type(WEFT_F32, 3, 2, 3, 20, 0);
        c.src[6] = mask;
        check_layout(&c, 0);
    }
}

typedef struct attention_case {
    int dt, mask_dt;      /* mask_dt 0: none */
    bool causal, one_row; /* of the mask */
    int64_t l, s, e, ev;
    wf_type q, k, v, mask; /* batches alone, then whole */
} attention_case;

static wf_type batch(int rank, int64_t a, int64_t b, int64_t c)
{
    return type(0, rank, a, b, c, 0);
}

/* The batch that q, k and v broadcast to. */
static wf_type joint_batch(const attention_case *n)
{
    const wf_type *of[] = {&n->q, &n->k, &n->v};
    wf_type o = {0};
    for (int i = 0; i < 3; i++)
        o.rank = of[i]->rank > o.rank ? of[i]->rank : o.rank;
    for (int d = 0; d < o.rank; d++) {
        o.dims[d] = 1;
        for (int i = 0; i < 3; i++) {
            const int at = d - (o.rank - of[i]->rank);
            o.dims[d] = at >= 0 && of[i]->dims[at] != 1 ? of[i]->dims[at] : o.dims[d];
        }
    }
    return o;
}

static void check_attention(attention_case n, int layout, bool small)
{
    static const double bounds[] = {1e-5, 1e-12, 4e-3, 2e-2};
    const int dt = n.dt;
    wf_type o = joint_batch(&n);
    end_type(&n.q, dt, n.l, n.e);
    end_type(&n.k, dt, n.s, n.e);
    end_type(&n.v, dt, n.s, n.ev);
    end_type(&o, dt, n.l, n.ev);
    end_type(&n.mask, n.mask_dt ? n.mask_dt : dt, n.one_row ? 1 : n.l, n.s);
    wf_type lse = o;
    lse.dtype = dt == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    lse.rank--;
    row_case c = {.op = WF_OP_SDPA,
                  .nsrc = n.mask_dt ? 4 : 3,
                  .src = {n.q, n.k, n.v, n.mask},
                  .flt = {0.3},
                  .small = small,
                  .attr.n_flt = 1,
                  .bound = bounds[dt == WEFT_F32   ? 0
                                  : dt == WEFT_F64 ? 1
                                  : dt == WEFT_F16 ? 2
                                                   : 3]};
    c.attr.flags = n.causal ? WF_FLAG_CAUSAL : 0;
    check_layout(&c, layout % 3);
    row_case b = c;
    b.op = WF_OP_SDPA_BWD;
    b.nsrc = n.mask_dt ? 7 : 6;
    b.bound *= dt == WEFT_F32 ? 10 : 1.5;
    const wf_type src[] = {o, n.q, n.k, n.v, o, lse, n.mask};
    memcpy(b.src, src, sizeof src);
    check_layout(&b, layout % 2);
}

/* Several tiles of rows and columns, heads wider than one, operands and masks that batches share; f64 and wide heads. */
Test(cuda_rows, attention_of_many_tiles)
{
    NEED_FIBERS();
    const wf_type no = {0};
    const attention_case cases[] = {{WEFT_F32, 0, true, false, 130, 130, 40, 64, no, no, no, no},
                                    {WEFT_F32, WEFT_BOOL, false, true, 70, 150, 100, 17,
                                     batch(1, 2, 0, 0), batch(2, 3, 1, 0), no, batch(2, 3, 2, 0)},
                                    {WEFT_F16, 0, true, false, 65, 129, 16, 128, batch(2, 1, 2, 0),
                                     batch(2, 2, 1, 0), batch(2, 2, 2, 0), no},
                                    {WEFT_BF16, WEFT_BF16, false, false, 129, 66, 64, 65,
                                     batch(3, 2, 1, 3), batch(1, 3, 0, 0), batch(3, 1, 2, 1),
                                     batch(1, 1, 0, 0)},
                                    {WEFT_F64, WEFT_BOOL, true, false, 21, 18, 12, 9,
                                     batch(2, 2, 1, 0), batch(1, 3, 0, 0), no, no},
                                    {WEFT_F16, 0, false, false, 10, 20, 140, 129, batch(1, 2, 0, 0),
                                     batch(1, 1, 0, 0), batch(2, 3, 2, 0), no}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        check_attention(cases[n], (int)n, false);
}

/* The gradient of q from what the pass over keys keeps: more keys than queries see, queries that see more; more items than are kept at a
 * time on a device of 1 GiB. */
Test(cuda_rows, attention_keeps_scores_of_gradients)
{
    NEED_FIBERS();
    const wf_type no = {0}, two = batch(1, 2, 0, 0), many = batch(1, 15, 0, 0);
    const attention_case cases[] = {
        {WEFT_F32, 0, true, false, 70, 200, 24, 33, two, two, two, no},
        {WEFT_F32, 0, true, false, 200, 70, 33, 24, two, two, two, no},
        {WEFT_F32, 0, false, false, 100, 190, 8, 8, two, two, two, no},
        {WEFT_F32, 0, true, false, 450, 450, 8, 8, many, many, many, no}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        check_attention(cases[n], (int)n, true);
}

/* What a block can have of shared memory: narrow heads as wide ones, wide heads and gradients by scores in memory; few processors
 * and little memory, where scores of a part of the items are kept, and many, where those of a few are not. */
Test(cuda_rows, attention_of_other_devices)
{
    NEED_FIBERS();
    wf_cuda_info *info = (wf_cuda_info *)(uintptr_t)wf_cuda_get_info(0);
    const wf_cuda_info real = *info;
    const wf_type no = {0}, two = batch(1, 2, 0, 0), many = batch(1, 9, 0, 0);
    const attention_case narrow = {WEFT_F32, 0, true, false, 140, 130, 40, 64, two, two, two, no};
    const attention_case wide = {WEFT_F32, 0, false, false, 70, 70, 72, 16, two, two, two, no};
    const attention_case items = {WEFT_F32, 0, true, false, 200, 190, 8, 8, many, many, many, no};
    static const int shared[] = {48 << 10, 60 << 10, 64 << 10, 96 << 10, 99 << 10};
    for (int i = 0; i < 5; i++) {
        info->shared_per_block =
            shared[i] < real.shared_per_block ? shared[i] : real.shared_per_block;
        check_attention(narrow, i, true);
        check_attention(wide, i, true);
    }
    info->shared_per_block = real.shared_per_block;
    for (int i = 0; i < 4; i++) {
        info->memory_bytes =
            i % 2 ? 80ll << 30 : 64ll << 20; /* of the latter 3 items' are kept at a time */
        info->processors = i < 2 ? 1 : 200;
        check_attention(items, 0, true);
    }
    *info = real;
}

Test(cuda_rows, attention_without_keys)
{
    NEED_FIBERS();
    for (int d = 0; d < 3; d++) {
        const int t = (const int[]){WEFT_F32, WEFT_BF16, WEFT_F64}[d];
        row_case c = {
            .op = WF_OP_SDPA,
            .nsrc = 3,
            .src = {type(t, 4, 2, 3, 20, 8), type(t, 4, 2, 3, 0, 8), type(t, 4, 2, 3, 0, 6)},
            .flt = {0.3},
            .attr.n_flt = 1};
        check_layout(&c, 0);
    }
}

Test(cuda_rows, norms_and_losses)
{
    NEED_FIBERS();
    EACH(floats, d)
    {
        const int t = floats[d], stat = t == WEFT_F64 ? WEFT_F64 : WEFT_F32;
        for (int rows = 5; rows < 5000; rows += 4200) {
            row_case c = {.op = WF_OP_LAYER_NORM_BWD,
                          .nsrc = 5,
                          .src = {type(t, 2, rows, 37, 0, 0), type(t, 2, rows, 37, 0, 0),
                                  type(stat, 1, rows, 0, 0, 0), type(stat, 1, rows, 0, 0, 0),
                                  type(t, 1, 37, 0, 0, 0)}};
            ints(&c, 1, 1, 0);
            if (rows == 5)
                check(&c);
            else
                check_layout(&c, 0);
            c.attr.flags = WF_FLAG_DX_ONLY;
            check_layout(&c, 0);
            c.op = WF_OP_RMS_NORM_BWD;
            c.nsrc = 3;
            c.src[2] = c.src[3];
            check_layout(&c, 0);
            c.attr.flags = 0;
            check_layout(&c, 0);
        }
        for (int given = 0; given < 2; given++) { /* samples, groups, channels, elements */
            row_case c = {.op = WF_OP_LAYER_NORM_BWD,
                          .nsrc = given ? 5 : 4,
                          .src = {type(t, 4, 3, 2, 5, 37), type(t, 4, 3, 2, 5, 37),
                                  type(stat, 2, 3, 2, 0, 0), type(stat, 2, 3, 2, 0, 0),
                                  type(t, 3, 2, 5, 1, 0)}};
            ints(&c, 1, 2, 0);
            c.attr.flags = WF_FLAG_CHANNELS;
            check(&c);
            c.attr.flags |= WF_FLAG_DX_ONLY;
            check_layout(&c, 0);
        }
        for (int smooth = 0; smooth < 2; smooth++) {
            row_case c = {.op = WF_OP_CROSS_ENTROPY,
                          .nsrc = 2,
                          .src = {type(t, 2, 9, 70, 0, 0), type(WEFT_I64, 1, 9, 0, 0, 0)},
                          .index_most = 70,
                          .from_zero = true,
                          .attr = {.n_dyn = 1, .n_flt = 1}};
            c.dyn[0] = 3;
            c.flt[0] = smooth * 0.1;
            check(&c);
            c.op = WF_OP_CROSS_ENTROPY_BWD;
            c.nsrc = 4;
            c.src[0] = type(t, 1, 9, 0, 0, 0);
            c.src[1] = type(t, 2, 9, 70, 0, 0);
            c.src[2] = type(WEFT_I64, 1, 9, 0, 0, 0);
            c.src[3] = type(stat, 1, 9, 0, 0, 0);
            check(&c);
        }
    }
}

Test(cuda_rows, pooling)
{
    NEED_FIBERS();
    EACH(all, d)
    {
        const int t = all[d];
        static const int64_t windows[][8] = {
            {3, 3, 2, 1, 1, 0, 1, 2}, {2, 2, 2, 2, 0, 0, 1, 1}, {4, 13, 1, 1, 0, 0, 1, 1}};
        for (int w = 0; w < 3 && t != WEFT_BOOL; w++) {
            row_case c = {.op = WF_OP_MAX_POOL2D, .nsrc = 1, .src = {type(t, 4, 2, 3, 9, 10)}};
            memcpy(c.ints, windows[w], sizeof windows[w]);
            c.attr.n_ints = 8;
            c.attr.flags = w ? WF_FLAG_CEIL : 0;
            if (w < 2)
                check(&c);
            if (t != WEFT_F32 && t != WEFT_F64 && t != WEFT_BF16 && t != WEFT_F16)
                continue;
            c.op = WF_OP_AVG_POOL2D;
            c.attr.n_ints = 6;
            c.attr.flags = w == 2 ? WF_FLAG_ADAPTIVE : w ? WF_FLAG_CEIL : WF_FLAG_COUNT_PAD;
            check(&c);
            wf_type y;
            cr_assert_eq(wf_infer(c.op,
                                  &(wf_attr){.ints = c.ints, .n_ints = 6, .flags = c.attr.flags}, 1,
                                  c.src, &y, NULL),
                         0);
            c.op = WF_OP_AVG_POOL2D_BWD;
            c.src[0] = y;
            dyns(&c, 2, (int64_t[]){9, 10});
            check(&c);
        }
    }
}

Test(cuda_rows, vector_norms)
{
    NEED_FIBERS();
    static const double orders[] = {2, 1, 0, INFINITY, -INFINITY, 3, 2.5};
    EACH(floats, d)
    {
        for (int o = 0; o < 7; o++) {
            row_case c = {.op = WF_OP_NORM,
                          .nsrc = 1,
                          .src = {type(floats[d], 3, 4, 5, 70, 0)},
                          .flt = {orders[o]},
                          .attr.n_flt = 1};
            ints(&c, o % 3, o % 2, 2);
            check(&c);
        }
    }
}

/* Large shapes go every other way, each type others, and the rest of them with another commit (WEFT_TEST_TURN); all of them on a GPU,
 * and where more than an ordinary run was asked for (script/gpu-check). */
static bool has_turn(int64_t elements, uint64_t i)
{
#ifdef WEFT_GPU_RUNNER
    (void)elements, (void)i;
    return true;
#else
    return elements < 25000 || effort_option("WEFT_TEST_EFFORT", EFFORT_DEFAULT) > EFFORT_FULL ||
           (i + effort_option("WEFT_TEST_TURN", 0)) % 2 == 0;
#endif
}

/* Extremes that several elements are: of rows and columns of every way, where vectors begin and where they do not. */
Test(cuda_rows, extremes)
{
    static const struct {
        int rows, columns, axis; /* -1: of all */
    } shapes[] = {{1, 40001, 1}, {3, 9000, 1}, {70, 2500, 1}, {129, 40, 1},  {1030, 140, 0},
                  {300, 3, 1},   {5, 1030, 1}, {800, 20, 0},  {1500, 17, 0}, {2048, 2, 0},
                  {1, 1, 1},     {33, 6, -1},  {70, 128, -1}, {130, 300, 1}, {300, 5, -1}};
    NEED_FIBERS();
    EACH(all, d)
    for (int k = 0; k < (int)(sizeof shapes / sizeof *shapes); k++)
        for (int way = 0; way < 8; way++) {
            if (!has_turn((int64_t)shapes[k].rows * shapes[k].columns, d + (size_t)way))
                continue;
            row_case c = {.op = way < 6 && (way + k) % 2 ? WF_OP_ARGMIN : WF_OP_ARGMAX,
                          .nsrc = 1,
                          .src = {type(all[d], 2, shapes[k].rows, shapes[k].columns, 0, 0)},
                          .equal = way < 6 ? 1 + way / 2 % 2 : 3,
                          .shift = way % 3};
            ints(&c, shapes[k].axis >= 0, shapes[k].axis, 0);
            check_layout(&c, way < 3 || way > 5 ? 0 : way - 2);
        }
}

/* Running values: lines that begin at vectors and that do not, that are a warp's, several warps', of several parts; columns. */
Test(cuda_rows, running)
{
    static const struct {
        int rows, columns, axis;
    } shapes[] = {/* the last two of one type */
                  {70, 1300, 1}, {70, 1301, 1}, {66, 4300, 1},  {3, 700, 1},   {3, 1600, 1},
                  {2, 9002, 1},  {63, 40, 0},   {64, 3, 0},     {65, 33, 0},   {200, 9, 0},
                  {4200, 2, 0},  {20, 20, 1},   {4200, 140, 0}, {262200, 2, 0}};
    NEED_FIBERS();
    EACH(all, d)
    for (int k = 0; k < (int)(sizeof shapes / sizeof *shapes) - 2 * (all[d] != WEFT_F64); k++)
        for (int way = 0; way < (shapes[k].rows > 300 ? 1 : 4); way++) {
            if (shapes[k].rows <= 300 &&
                !has_turn((int64_t)shapes[k].rows * shapes[k].columns, d + (size_t)way))
                continue;
            static const int sums[] = {WEFT_I64, WEFT_F32, WEFT_U8, WEFT_I32};
            const size_t to = (d + (size_t)k) % 4;
            const int other = WF_BIT(all[d]) & WF_DT_F ? floats[to] : sums[to];
            row_case c = {.op = (way + k) % 2 ? WF_OP_CUMPROD : WF_OP_CUMSUM,
                          .nsrc = 1,
                          .src = {type(all[d], 2, shapes[k].rows, shapes[k].columns, 0, 0)},
                          .equal = way % 2 == 0 ? 4 : k % 3 == 0,
                          .shift = way == 3,
                          .attr.dtype = (uint8_t)(way == 2              ? other
                                                  : all[d] == WEFT_BOOL ? WEFT_I64
                                                                        : all[d])};
            ints(&c, 1, shapes[k].axis, 0);
            check_layout(&c, (way + k) % 4);
        }
}

Test(cuda_rows, orders)
{
    NEED_FIBERS();
    EACH(all, d)
    {
        const int t = all[d];
        for (int axis = 0; axis < 3; axis++) {
            row_case c = {.op = WF_OP_ARGMAX, .nsrc = 1, .src = {type(t, 3, 4, 5, 70, 0)}};
            ints(&c, axis < 2 ? 1 : 0, axis + 1, 0);
            check(&c);
            c.op = WF_OP_ARGMIN;
            check_layout(&c, 0);
            c = (row_case){.op = axis == 2 ? WF_OP_CUMPROD : WF_OP_CUMSUM,
                           .nsrc = 1,
                           .src = {type(t, 3, 4, 5, 33, 0)},
                           .attr.dtype = (uint8_t)(t == WEFT_BOOL ? WEFT_I64 : t)};
            ints(&c, 1, axis, 0);
            check(&c);
            c = (row_case){.op = WF_OP_SORT,
                           .nsrc = 1,
                           .src = {type(t, 3, 4, 5, 33, 0)},
                           .attr.flags = axis == 1 ? WF_FLAG_DESCENDING : 0};
            ints(&c, 1, axis, 0);
            check(&c);
        }
        /* rows in parts, lines of many groups */
        row_case c = {.op = WF_OP_ARGMIN, .nsrc = 1, .src = {type(t, 2, 3, 5001, 0, 0)}};
        ints(&c, 1, 1, 0);
        check(&c);
        c.op = WF_OP_ARGMAX;
        ints(&c, 0, 0, 0);
        check_layout(&c, 0);
        c = (row_case){.op = WF_OP_CUMSUM,
                       .nsrc = 1,
                       .src = {type(t, 2, 3, 301, 0, 0)},
                       .attr.dtype = (uint8_t)(t == WEFT_BOOL ? WEFT_I64 : t)};
        ints(&c, 1, 1, 0);
        check(&c);
        for (int k = 0; k < 4;
             k++) { /* lines of several parts, and of several at the level above */
            static const int shapes[4][2] = {{2, 1000}, {1, 4096 * 65 + 70}, {4097, 3}, {130, 9}};
            c = (row_case){.op = k % 3 ? WF_OP_CUMSUM : WF_OP_CUMPROD,
                           .nsrc = 1,
                           .src = {type(t, 2, shapes[k][0], shapes[k][1], 0, 0)},
                           .attr.dtype = (uint8_t)(t == WEFT_BOOL ? WEFT_I64 : t)};
            ints(&c, 1, k < 2, 0);
            check_layout(&c, 0);
        }
        c = (row_case){.op = WF_OP_TOPK, .nsrc = 1, .src = {type(t, 2, 4, 50, 0, 0)}};
        ints(&c, 1, 1, 0);
        dyns(&c, 1, (int64_t[]){7});
        check(&c);
    }
}
