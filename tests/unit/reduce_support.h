/*
 * tests/unit/reduce_support.h -- independent references and random operands for the reduction tests.
 *
 * The reference of a canonical reduction is a direct transcription of the definition in
 * docs/reductions.md on scalars; operands are read element by element through their strides.
 */
#ifndef TESTS_UNIT_REDUCE_SUPPORT_H
#define TESTS_UNIT_REDUCE_SUPPORT_H

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/cpuid.h"
#include "eager/exec.h"
#include "eager/pool.h"
#include "tests/support/table.h"

#define UNUSED __attribute__((unused))

/* -- random numbers ---------------------------------------------------------------------------------- */
static uint64_t rng_state = 88172645463325252ull;
UNUSED static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}
UNUSED static int64_t pick(int64_t n)
{
    return (int64_t)(rng() % (uint64_t)n);
}
UNUSED static double uniform(double lo, double hi)
{
    return lo + (hi - lo) * (double)(rng() >> 11) * 0x1p-53;
}

/* -- elements ----------------------------------------------------------------------------------------- */
/* Elements at n places, as doubles. */
UNUSED static void get_elems(double *out, const void *base, int dt, const int64_t *at, int64_t n)
{
#define AS_IS(x) (double)(x)
#define TRUTH(x) (double)((x) != 0)
#define F16(x) (double)wf_f32_of_f16(x)
#define BF16(x) (double)wf_f32_of_bf16(x)
#define GET(type, as)                                                                              \
    for (int64_t i = 0; i < n; i++) {                                                              \
        out[i] = as(((const type *)base)[at[i]]);                                                  \
    }                                                                                              \
    break
    switch ((weft_dtype)dt) {
    case WEFT_BOOL:
        GET(uint8_t, TRUTH);
    case WEFT_U8:
        GET(uint8_t, AS_IS);
    case WEFT_I8:
        GET(int8_t, AS_IS);
    case WEFT_I16:
        GET(int16_t, AS_IS);
    case WEFT_I32:
        GET(int32_t, AS_IS);
    case WEFT_I64:
        GET(int64_t, AS_IS);
    case WEFT_F16:
        GET(uint16_t, F16);
    case WEFT_BF16:
        GET(uint16_t, BF16);
    case WEFT_F32:
        GET(float, AS_IS);
    case WEFT_F64:
        GET(double, AS_IS);
    case WEFT_DTYPE_DEFAULT:
    case WEFT_DTYPE_COUNT:
        break;
    }
#undef GET
#undef BF16
#undef F16
#undef TRUTH
#undef AS_IS
}
UNUSED static double get_elem(const void *base, int dt, int64_t i)
{
    double x = 0;
    get_elems(&x, base, dt, &i, 1);
    return x;
}
UNUSED static int64_t get_int(const void *base, int dt, int64_t i)
{
    return dt == WEFT_I64 ? ((const int64_t *)base)[i] : (int64_t)get_elem(base, dt, i);
}
/* v must be exactly representable or already of the compute type (halves round from f32). */
UNUSED static void set_elem(void *base, int dt, int64_t i, double v)
{
    switch ((weft_dtype)dt) {
    case WEFT_BOOL:
        ((uint8_t *)base)[i] = v != 0;
        break;
    case WEFT_U8:
        ((uint8_t *)base)[i] = (uint8_t)(int64_t)v; /* may be -1 */
        break;
    case WEFT_I8:
        ((int8_t *)base)[i] = (int8_t)v;
        break;
    case WEFT_I16:
        ((int16_t *)base)[i] = (int16_t)v;
        break;
    case WEFT_I32:
        ((int32_t *)base)[i] = (int32_t)v;
        break;
    case WEFT_I64:
        ((int64_t *)base)[i] = (int64_t)v;
        break;
    case WEFT_F16:
        ((uint16_t *)base)[i] = wf_f16_of_f32((float)v);
        break;
    case WEFT_BF16:
        ((uint16_t *)base)[i] = wf_bf16_of_f32((float)v);
        break;
    case WEFT_F32:
        ((float *)base)[i] = (float)v;
        break;
    case WEFT_F64:
        ((double *)base)[i] = v;
        break;
    case WEFT_DTYPE_DEFAULT:
    case WEFT_DTYPE_COUNT:
        break;
    }
}
UNUSED static bool is_float(int dt)
{
    return (WF_BIT(dt) & WF_DT_F) != 0;
}
/* Same bits, or both NaN. */
UNUSED static bool same_elem(const void *a, const void *b, int dt, int64_t i)
{
    if (is_float(dt)) {
        double x = get_elem(a, dt, i), y = get_elem(b, dt, i);
        if (x != x || y != y) {
            return x != x && y != y;
        }
    }
    size_t s = wf_dtype_size(dt);
    return memcmp((const char *)a + (size_t)i * s, (const char *)b + (size_t)i * s, s) == 0;
}

/* -- operands ------------------------------------------------------------------------------------------ */

/* A view with its memory; `block` is what malloc gave. */
typedef struct operand {
    wf_view v;
    char *block;
} operand;

enum { PLAIN, PERMUTED, STEPPED, REVERSED, BROADCAST, NLAYOUT };

/* Memory for dims in the given layout, filled with 0x55. */
UNUSED static operand make_operand(int dt, int rank, const int64_t *dims, int layout)
{
    operand o = {.v = {.dtype = (uint8_t)dt, .rank = (uint8_t)rank}};
    int order[WF_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        o.v.dims[i] = dims[i];
        order[i] = i;
    }
    for (int i = rank - 1; layout == PERMUTED && i > 0; i--) {
        int k = (int)pick(i + 1), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    int64_t stride = layout == STEPPED ? 2 : 1, first = 0;
    for (int i = rank - 1; i >= 0; i--) {
        int a = order[i];
        o.v.strides[a] = stride;
        if (layout == BROADCAST && pick(2) == 0) {
            o.v.strides[a] = 0;
            continue;
        }
        if (layout == REVERSED && pick(2) == 0 && dims[a] > 0) {
            o.v.strides[a] = -stride;
            first += (dims[a] - 1) * stride;
        }
        stride *= dims[a] > 0 ? dims[a] : 1;
    }
    size_t size = wf_dtype_size(dt), bytes = (size_t)(stride + 1) * size;
    o.block = malloc(bytes);
    memset(o.block, 0x55, bytes);
    o.v.data = o.block + (size_t)first * size;
    return o;
}
UNUSED static void free_operand(operand *o)
{
    free(o->block);
}
/* Offset of the row-major flat index. */
UNUSED static int64_t offset_of(const wf_view *v, int64_t flat)
{
    int64_t at = 0;
    for (int i = v->rank - 1; i >= 0; i--) {
        at += flat % v->dims[i] * v->strides[i];
        flat /= v->dims[i];
    }
    return at;
}
/* Offsets of the elements over some axes, 0 along the others, in row-major order. */
UNUSED static int64_t *offsets_over(const wf_view *v, unsigned axes, int64_t *count)
{
    int64_t n = 1, room = 1;
    for (int i = 0; i < v->rank; i++) {
        room *= (axes >> i & 1u) != 0 ? v->dims[i] : 1;
    }
    int64_t *at = calloc((size_t)room + 1, sizeof *at);
    for (int i = 0; i < v->rank && room > 0; i++) {
        if ((axes >> i & 1u) == 0) {
            continue;
        }
        const int64_t dim = v->dims[i];
        for (int64_t k = n; k-- > 0;) { /* from the end: what is read lies before what is written */
            for (int64_t j = dim; j-- > 0;) {
                at[k * dim + j] = at[k] + j * v->strides[i];
            }
        }
        n *= dim;
    }
    *count = room;
    return at;
}
UNUSED static double view_get(const wf_view *v, int64_t flat)
{
    return get_elem(v->data, v->dtype, offset_of(v, flat));
}
/* Random elements as they are stored (tests/support/table.h). */
enum { ELEMENTS = 16381, KINDS = 4 };
UNUSED static const char *random_elements(int dt, int kind)
{
    static const double special[] = {NAN,   INFINITY, -INFINITY, 0.0, -0.0,
                                     1e-40, 6e-8,     65504.0,   1.0};
    static char *of[WEFT_DTYPE_COUNT][KINDS];
    if (of[dt][kind]) {
        return of[dt][kind];
    }
    char *all = of[dt][kind] = malloc(ELEMENTS * wf_dtype_size(dt));
    for (int64_t i = 0; i < ELEMENTS; i++) {
        double v = is_float(dt) ? uniform(-2.0, 2.0) : (double)(pick(100) - 30);
        if (dt == WEFT_U8 || dt == WEFT_BOOL) {
            v = (double)pick(dt == WEFT_BOOL ? 2 : 256);
        }
        if (kind == 1 && pick(8) == 0) {
            v = is_float(dt) ? special[pick(9)] : (double)pick(2);
        } else if (kind == 2) {
            v = (double)pick(4);
        } else if (kind == 3) {
            v = pick(3) == 0 ? -0.0 : pick(2) == 0 ? 0.0 : -1.0;
        }
        set_elem(all, dt, i, v);
    }
    return all;
}

/* kind 0: ordinary values; 1: with specials (floats) or extremes (integers); 2: small integers. */
UNUSED static void fill_operand(operand *o, int kind)
{
    const wf_view *v = &o->v;
    const size_t size = wf_dtype_size(v->dtype);
    const char *elements = random_elements(v->dtype, kind);
    const int last = v->rank - 1;
    const int64_t n = v->rank > 0 ? v->dims[last] : 1, step = v->rank > 0 ? v->strides[last] : 1;
    int64_t rows, *row = offsets_over(v, last > 0 ? (1u << last) - 1u : 0, &rows);
    int64_t from = pick(ELEMENTS);
    for (int64_t r = 0; r < rows; r++) {
        char *to = (char *)v->data + row[r] * (int64_t)size;
        const int64_t each = step == 1 ? n : 1;
        for (int64_t i = 0; i < n; i += each) {
            from = table_take(to + i * step * (int64_t)size, elements, ELEMENTS, from, each, size);
        }
    }
    free(row);
}

/* -- the definition of the canonical order -------------------------------------------------------------- */
#define DEFINE_CANON(NAME, T)                                                                      \
    UNUSED static T NAME(const T *v, int64_t n, bool product)                                      \
    {                                                                                              \
        T identity = product ? (T)1 : (T)-0.0;                                                     \
        int64_t blocks = n > 4096 ? (n + 4095) / 4096 : 1;                                         \
        T *part = malloc((size_t)blocks * sizeof(T));                                              \
        for (int64_t b = 0; b < blocks; b++) {                                                     \
            T lane[64];                                                                            \
            for (int l = 0; l < 64; l++) {                                                         \
                lane[l] = identity;                                                                \
            }                                                                                      \
            for (int64_t i = b * 4096; i < n && i < (b + 1) * 4096; i += 64) {                     \
                const int lanes = n - i < 64 ? (int)(n - i) : 64;                                  \
                for (int l = 0; l < lanes && product; l++) {                                       \
                    lane[l] *= v[i + l];                                                           \
                }                                                                                  \
                for (int l = 0; l < lanes && !product; l++) {                                      \
                    lane[l] += v[i + l];                                                           \
                }                                                                                  \
            }                                                                                      \
            for (int h = 32; h >= 1; h /= 2) {                                                     \
                for (int l = 0; l < h; l++) {                                                      \
                    lane[l] = product ? lane[l] * lane[l + h] : lane[l] + lane[l + h];             \
                }                                                                                  \
            }                                                                                      \
            part[b] = lane[0];                                                                     \
        }                                                                                          \
        T r = blocks == 1 ? part[0] : NAME(part, blocks, product);                                 \
        free(part);                                                                                \
        return r;                                                                                  \
    }
DEFINE_CANON(canon_f32, float)
DEFINE_CANON(canon_f64, double)
#undef DEFINE_CANON

/* -- calling a row ---------------------------------------------------------------------------------------- */

typedef struct call {
    int status;
    wf_why why;
    operand dst[WF_MAX_DST];
    int ndst;
} call;

/* Infers, allocates results and runs the row. */
UNUSED static call run_op(wf_op op, wf_exec_fn fn, const wf_attr *attr, int nsrc,
                          const wf_view *src)
{
    call c;
    memset(&c, 0, sizeof c);
    wf_type types[WF_MAX_SRC], out[WF_MAX_DST];
    memset(types, 0, sizeof types);
    memset(out, 0, sizeof out);
    for (int i = 0; i < nsrc; i++) {
        types[i].dtype = src[i].dtype;
        types[i].rank = src[i].rank;
        memcpy(types[i].dims, src[i].dims, sizeof types[i].dims);
    }
    c.status = wf_infer(op, attr, nsrc, types, out, &c.why);
    if (c.status != 0) {
        return c;
    }
    c.ndst = wf_rows[op].ndst;
    wf_view dst[WF_MAX_DST];
    for (int i = 0; i < c.ndst; i++) {
        c.dst[i] = make_operand(out[i].dtype, out[i].rank, out[i].dims, PLAIN);
        dst[i] = c.dst[i].v;
    }
    wf_exec e = {.op = op,
                 .nsrc = nsrc,
                 .ndst = c.ndst,
                 .src = src,
                 .dst = dst,
                 .attr = attr,
                 .why = &c.why};
    c.status = fn(&e);
    return c;
}
UNUSED static void free_call(call *c)
{
    for (int i = 0; i < c->ndst; i++) {
        free_operand(&c->dst[i]);
    }
}

/* Threads, instruction set and ways of walking memory of trial i: all combinations in turn. */
UNUSED static void set_machine(int i)
{
    static const int threads[] = {1, 2, 3, 7};
    wf_set_num_threads(threads[i % 4]);
    wf_set_isa(i / 4 % WF_NISA);
    wf_set_amd((i + i / 12) % 3);
}

#endif
