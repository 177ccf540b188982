/*
 * tests/unit/row_case.h -- running one row on raw views, and random operands for it.
 *
 * Operands lie in random strided memory (permuted axes, steps, reversed axes) or row-major; results
 * are allocated from the inferred types and filled with a pattern first, so that an element a kernel
 * forgets is seen.
 */
#ifndef TESTS_UNIT_ROW_CASE_H
#define TESTS_UNIT_ROW_CASE_H

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eager/exec.h"
#include "eager/pool.h"
#include "tests/support/effort.h"

#define UNUSED_OK __attribute__((unused)) static

typedef struct tensor {
    wf_view v;
    void *mem;
} tensor;

static uint64_t case_state = 0x9E3779B97F4A7C15u;

UNUSED_OK uint64_t draw(void)
{
    case_state ^= case_state << 13;
    case_state ^= case_state >> 7;
    case_state ^= case_state << 17;
    return case_state;
}
UNUSED_OK int64_t between(int64_t lo, int64_t hi)
{
    return lo + (int64_t)(draw() % (uint64_t)(hi - lo + 1));
}

/* Every element type. */
UNUSED_OK const int all_types[] = {WEFT_BOOL, WEFT_U8,  WEFT_I8,   WEFT_I16, WEFT_I32,
                                   WEFT_I64,  WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
enum { NTYPES = sizeof all_types / sizeof all_types[0] };

/* Small extents, now and then one of 0. The rank is returned. */
UNUSED_OK int random_dims(int lo_rank, int hi_rank, int64_t *dims)
{
    int rank = (int)between(lo_rank, hi_rank);
    for (int i = 0; i < rank; i++) {
        dims[i] = between(0, 9) == 0 ? 0 : between(1, 6);
    }
    return rank;
}

/* Address of row-major element i. */
UNUSED_OK void *at(const wf_view *v, int64_t i)
{
    int64_t off = 0;
    for (int d = v->rank - 1; d >= 0; d--) {
        off += i % v->dims[d] * v->strides[d];
        i /= v->dims[d];
    }
    return (char *)v->data + off * (int64_t)wf_dtype_size(v->dtype);
}
/* Address of the element at an index list. */
UNUSED_OK void *at_index(const wf_view *v, const int64_t *index)
{
    int64_t off = 0;
    for (int d = 0; d < v->rank; d++) {
        off += index[d] * v->strides[d];
    }
    return (char *)v->data + off * (int64_t)wf_dtype_size(v->dtype);
}
/* Row-major i as an index list. */
UNUSED_OK void unravel(int64_t i, const wf_view *v, int64_t *index)
{
    for (int d = v->rank - 1; d >= 0; d--) {
        index[d] = i % v->dims[d];
        i /= v->dims[d];
    }
}

UNUSED_OK double load(const void *p, int dt)
{
    switch (dt) {
    case WEFT_BOOL:
    case WEFT_U8:
        return *(const uint8_t *)p;
    case WEFT_I8:
        return *(const int8_t *)p;
    case WEFT_I16:
        return *(const int16_t *)p;
    case WEFT_I32:
        return *(const int32_t *)p;
    case WEFT_I64:
        return (double)*(const int64_t *)p;
    case WEFT_F16:
        return wf_f32_of_f16(*(const uint16_t *)p);
    case WEFT_BF16:
        return wf_f32_of_bf16(*(const uint16_t *)p);
    case WEFT_F32:
        return *(const float *)p;
    default:
        return *(const double *)p;
    }
}
UNUSED_OK void store(void *p, int dt, double x)
{
    switch (dt) {
    case WEFT_BOOL:
        *(uint8_t *)p = x != 0;
        break;
    case WEFT_U8:
        *(uint8_t *)p = (uint8_t)(int)x;
        break;
    case WEFT_I8:
        *(int8_t *)p = (int8_t)(int)x;
        break;
    case WEFT_I16:
        *(int16_t *)p = (int16_t)x;
        break;
    case WEFT_I32:
        *(int32_t *)p = (int32_t)x;
        break;
    case WEFT_I64:
        *(int64_t *)p = (int64_t)x;
        break;
    case WEFT_F16:
        *(uint16_t *)p = wf_f16_of_f32((float)x);
        break;
    case WEFT_BF16:
        *(uint16_t *)p = wf_bf16_of_f32((float)x);
        break;
    case WEFT_F32:
        *(float *)p = (float)x;
        break;
    default:
        *(double *)p = x;
        break;
    }
}
UNUSED_OK double get(const tensor *t, int64_t i)
{
    return load(at(&t->v, i), t->v.dtype);
}
UNUSED_OK void put(tensor *t, int64_t i, double x)
{
    store(at(&t->v, i), t->v.dtype, x);
}

/* Memory for a view of these dims: row-major, or with shuffled axes, steps and reversals. */
UNUSED_OK tensor make(int dt, int rank, const int64_t *dims, bool strided)
{
    tensor t = {.v = {.dtype = (uint8_t)dt, .rank = (uint8_t)rank}};
    int order[WF_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        t.v.dims[i] = dims[i];
        order[i] = i;
    }
    for (int i = rank - 1; strided && i > 0; i--) {
        int j = (int)between(0, i), k = order[i];
        order[i] = order[j];
        order[j] = k;
    }
    int64_t size = 1, offset = 0;
    for (int i = rank - 1; i >= 0; i--) {
        int d = order[i];
        int64_t step = strided ? between(1, 2) : 1;
        t.v.strides[d] = size * step;
        size *= step * (dims[d] > 0 ? dims[d] : 1);
        if (strided && dims[d] > 0 && between(0, 3) == 0) {
            offset += t.v.strides[d] * (dims[d] - 1);
            t.v.strides[d] = -t.v.strides[d];
        }
    }
    size_t bytes = (size_t)size * wf_dtype_size(dt);
    t.mem = malloc(bytes ? bytes : 1);
    cr_assert(t.mem);
    memset(t.mem, 0x5A, bytes);
    t.v.data = (char *)t.mem + offset * (int64_t)wf_dtype_size(dt);
    return t;
}
UNUSED_OK tensor make1(int dt, int64_t n)
{
    return make(dt, 1, &n, false);
}
UNUSED_OK void drop(tensor *t)
{
    free(t->mem);
    t->mem = NULL;
}
/* Small integers (exact in every type), or reals in [-1, 1). */
UNUSED_OK void fill_ints(tensor *t, int lo, int hi)
{
    int64_t n = wf_view_numel(&t->v);
    for (int64_t i = 0; i < n; i++) {
        put(t, i, (double)between(lo, hi));
    }
}
UNUSED_OK void fill_reals(tensor *t)
{
    int64_t n = wf_view_numel(&t->v);
    for (int64_t i = 0; i < n; i++) {
        put(t, i, (double)(int64_t)(draw() >> 11) * 0x1p-52 - 1.0);
    }
}
UNUSED_OK tensor random_tensor(int dt, int rank, const int64_t *dims, bool strided)
{
    tensor t = make(dt, rank, dims, strided);
    if (wf_dtype_kind(dt) == 2) {
        fill_reals(&t);
    } else {
        fill_ints(&t, dt == WEFT_BOOL || dt == WEFT_U8 ? 0 : -100, dt == WEFT_BOOL ? 1 : 100);
    }
    return t;
}

/* Infers, allocates results and runs. dst[] is valid (and to be dropped) when 0 is returned. */
UNUSED_OK int run_row(wf_exec_fn fn, wf_op op, const wf_attr *attr, int nsrc, const tensor *src,
                      tensor *dst, wf_why *why)
{
    wf_type in[16], out[WF_MAX_DST];
    wf_view views[16], results[WF_MAX_DST];
    for (int i = 0; i < nsrc; i++) {
        views[i] = src[i].v;
        in[i] = (wf_type){.dtype = src[i].v.dtype, .rank = src[i].v.rank};
        memcpy(in[i].dims, src[i].v.dims, sizeof in[i].dims);
    }
    int code = wf_infer(op, attr, nsrc, in, out, why);
    if (code) {
        return code;
    }
    int n = wf_rows[op].ndst;
    for (int i = 0; i < n; i++) {
        dst[i] = make(out[i].dtype, out[i].rank, out[i].dims, false);
        results[i] = dst[i].v;
    }
    wf_exec e = {
        .op = op, .nsrc = nsrc, .ndst = n, .src = views, .dst = results, .attr = attr, .why = why};
    code = fn(&e);
    for (int i = 0; code && i < n; i++) {
        drop(&dst[i]);
    }
    return code;
}
UNUSED_OK void must_run(wf_exec_fn fn, wf_op op, const wf_attr *attr, int nsrc, const tensor *src,
                        tensor *dst)
{
    wf_why why = {0};
    int code = run_row(fn, op, attr, nsrc, src, dst, &why);
    cr_assert_eq(code, 0, "%s: %s; %s", wf_rows[op].name, why.rule, why.hint);
}
/* Same bytes in row-major order. */
UNUSED_OK void assert_same_bits(const tensor *a, const tensor *b, const char *what)
{
    int64_t n = wf_view_numel(&a->v);
    cr_assert_eq(n, wf_view_numel(&b->v), "%s: sizes differ", what);
    size_t size = wf_dtype_size(a->v.dtype);
    for (int64_t i = 0; i < n; i++) {
        cr_assert(memcmp(at(&a->v, i), at(&b->v, i), size) == 0, "%s: element %" PRId64 ": %g, %g",
                  what, i, get(a, i), get(b, i));
    }
}

/* Runs at 1, 2, 3 and 7 threads and compares the bits. */
UNUSED_OK void same_at_any_thread_count(wf_exec_fn fn, wf_op op, const wf_attr *attr, int nsrc,
                                        const tensor *src)
{
    static const int counts[] = {1, 2, 3, 7};
    tensor first[WF_MAX_DST], again[WF_MAX_DST];
    int before = wf_num_threads();
    for (int c = 0; c < 4; c += EFFORT_THREAD_STEP) {
        wf_set_num_threads(counts[c]);
        must_run(fn, op, attr, nsrc, src, c ? again : first);
        for (int i = 0; c && i < wf_rows[op].ndst; i++) {
            assert_same_bits(&first[i], &again[i], wf_rows[op].name);
            drop(&again[i]);
        }
    }
    for (int i = 0; i < wf_rows[op].ndst; i++) {
        drop(&first[i]);
    }
    wf_set_num_threads(before);
}

/* The call is refused with this status, and says why. */
UNUSED_OK void must_refuse(wf_op op, const wf_attr *attr, int nsrc, const wf_type *src, int status,
                           const char *says)
{
    wf_type out[WF_MAX_DST];
    wf_why why = {0};
    int code = wf_infer(op, attr, nsrc, src, out, &why);
    cr_assert_eq(code, status, "%s: status %d, not %d (%s)", wf_rows[op].name, code, status,
                 why.rule);
    cr_assert(strstr(why.rule, says), "%s: \"%s\" does not say \"%s\"", wf_rows[op].name, why.rule,
              says);
}

#define TYPE(dt, ...)                                                                              \
    ((wf_type){.dtype = dt,                                                                        \
               .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                         \
               .dims = {__VA_ARGS__}})
#define INTS(...)                                                                                  \
    .n_ints = sizeof((int64_t[]){__VA_ARGS__}) / 8, .ints = (int64_t[])                            \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define DYN(...)                                                                                   \
    .n_dyn = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dyn = (int64_t[])                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define FLT(...)                                                                                   \
    .n_flt = sizeof((double[]){__VA_ARGS__}) / 8, .flt = (double[])                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

#endif
