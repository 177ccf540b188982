/*
 * tests/unit/map_support.h -- strided operands in memory of their own, for the tests of elementwise kernels and copies.
 */
#ifndef TESTS_UNIT_MAP_SUPPORT_H
#define TESTS_UNIT_MAP_SUPPORT_H

#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/cpuid.h"
#include "eager/exec.h"
#include "eager/kernels/cast.h"
#include "eager/pool.h"
#include "jit/ir/op.h"
#include "tests/support/effort.h"
#include "tests/unit/nan.h"

#define UNUSED __attribute__((unused))

/* ThreadSanitizer multiplies the time of a loop over elements by 20 to 50 and needs threads, not every
 * combination of types and layouts: it runs one in THIN or so, at sizes that still make several chunks. */
#if UNDER_TSAN
enum { THIN = 8 };
#elif UNDER_ASAN
enum { THIN = 4 };
#else
enum { THIN = 1 };
#endif

UNUSED static void join_in(void *arg, int64_t begin, int64_t end)
{
    atomic_fetch_add((atomic_int *)arg, (int)(end - begin));
    for (int i = 0; i < 1000 && atomic_load((atomic_int *)arg) < 2; i++)
        sched_yield();
}
/* So that workers are awake, mostly, and small work is cut for them. */
UNUSED static void wake_workers(void)
{
    atomic_int here = 0;
    wf_parallel_for(2, 1, join_in, &here);
}

static uint64_t rng_state = 0x9E3779B97F4A7C15u;

UNUSED static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

UNUSED static int isa_most(void)
{
    return wf_set_isa(WF_NISA);
}

/* One element of `dtype` from the bits of a double or an integer. */
UNUSED static void put(void *p, int dtype, double x)
{
    const int64_t i = x != x ? 0 : (int64_t)(x > 1e18 ? 1e18 : x < -1e18 ? -1e18 : x);
    const float f = (float)x;
    const uint16_t h = wf_f16_of_f32(f), b = wf_bf16_of_f32(f);
    const uint8_t truth = x != 0;
    const uint8_t u1 = (uint8_t)i;
    const uint16_t u2 = (uint16_t)i;
    const uint32_t u4 = (uint32_t)i;
    const void *from = dtype == WEFT_F64    ? (const void *)&x
                       : dtype == WEFT_F32  ? (const void *)&f
                       : dtype == WEFT_F16  ? (const void *)&h
                       : dtype == WEFT_BF16 ? (const void *)&b
                       : dtype == WEFT_BOOL ? (const void *)&truth
                       : dtype == WEFT_I64  ? (const void *)&i
                       : dtype == WEFT_I32  ? (const void *)&u4
                       : dtype == WEFT_I16  ? (const void *)&u2
                                            : (const void *)&u1;
    memcpy(p, from, wf_dtype_size(dtype));
}

/* Equal bits, or both NaN. */
UNUSED static bool same(const void *a, const void *b, int dtype)
{
    return memcmp(a, b, wf_dtype_size(dtype)) == 0 || (is_nan(a, dtype) && is_nan(b, dtype));
}

/* Ordinary values, and now and then one that is not. */
UNUSED static double sample(void)
{
    static const double special[] = {
        0.0,    -0.0, 1.0,  -1.0,  INFINITY, -INFINITY, NAN, 0.5,      2.0, 1e-310, -1e-40, 3.4e38,
        -1e300, 1e10, -7.0, 255.0, -3.0,     6.0,       1e5, 0x1p-149, 4e9, -128.0, 3.0,    127.0};
    const uint64_t r = rng();
    if (r % 5 == 0)
        return special[(r >> 8) % (sizeof special / sizeof *special)];
    const double u = (double)(r >> 11) * 0x1p-53 * 2 - 1;
    return r % 5 == 1 ? u : r % 5 == 2 ? u * 10 : r % 5 == 3 ? u * 100 : u * 1e4;
}

/* -- a strided operand in memory of its own ------------------------------------------------------------------ */
typedef struct operand {
    wf_view v;
    char *base;
    size_t bytes;
} operand;

enum layout {
    CONTIGUOUS,
    REVERSED,
    STRIDED,
    TRANSPOSED,
    BROADCAST_ROW,
    BROADCAST_COL,
    SCALAR,
    NLAYOUT
};

UNUSED static operand make(int dtype, int rank, const int64_t *dims, enum layout layout)
{
    operand o = {.v = {.dtype = (uint8_t)dtype, .rank = (uint8_t)rank}};
    int64_t step = layout == STRIDED ? 2 : 1;
    int64_t total = 1;
    for (int i = 0; i < rank; i++) {
        o.v.dims[i] = dims[i];
        total *= dims[i] ? dims[i] : 1;
    }
    for (int i = 0; i < rank; i++) {
        const int k = layout == TRANSPOSED ? i : rank - 1 - i;
        o.v.strides[k] = step;
        step *= dims[k] ? dims[k] : 1;
        if (layout == STRIDED)
            step += 1;
    }
    for (int i = 0; i < rank; i++)
        if (layout == SCALAR || (layout == BROADCAST_ROW && i < rank - 1) ||
            (layout == BROADCAST_COL && i == rank - 1))
            o.v.strides[i] = 0;
    o.bytes = (size_t)(step + 2 * total + 8) * wf_dtype_size(dtype);
    o.base = calloc(1, o.bytes);
    cr_assert_not_null(o.base);
    o.v.data = o.base;
    if (layout == REVERSED) {
        int64_t last = 0;
        for (int i = 0; i < rank; i++) {
            last += dims[i] ? o.v.strides[i] * (dims[i] - 1) : 0;
            o.v.strides[i] = -o.v.strides[i];
        }
        o.v.data = o.base + (size_t)last * wf_dtype_size(dtype);
    }
    return o;
}

UNUSED static void *element(const wf_view *v, int64_t n)
{
    int64_t offset = 0;
    for (int i = v->rank - 1; i >= 0; i--) {
        offset += n % v->dims[i] * v->strides[i];
        n /= v->dims[i];
    }
    return (char *)v->data + offset * (int64_t)wf_dtype_size(v->dtype);
}

UNUSED static void fill_random(operand *o)
{
    for (int64_t i = 0; i < wf_view_numel(&o->v); i++)
        put(element(&o->v, i), o->v.dtype, sample());
}

/* Operands of millions of elements: 4099 random values (a prime, so that rows differ) over and over, in
 * memory order. */
UNUSED static void fill_repeating(operand *o)
{
    const size_t size = wf_dtype_size(o->v.dtype), part = 4099 * size;
    for (size_t i = 0; i < 4099 && (i + 1) * size <= o->bytes; i++)
        put(o->base + i * size, o->v.dtype, sample());
    for (size_t done = part; done < o->bytes; done += part)
        memcpy(o->base + done, o->base, o->bytes - done < part ? o->bytes - done : part);
}

UNUSED static wf_view one(void *p, int dtype)
{
    return (wf_view){.data = p, .dtype = (uint8_t)dtype};
}

/* Casts one element by way of wf_copy, which has a test of its own. */
UNUSED static void cast_one(void *to, int to_type, const void *from, int from_type)
{
    void *p;
    memcpy(&p, &from, sizeof p);
    wf_view d = one(to, to_type), s = one(p, from_type);
    wf_copy(&d, &s);
}

/* The value of an element as long double: exact for every type. */
UNUSED static long double value_of(const void *p, int dtype)
{
    uint64_t u = 0;
    float f;
    double d;
    int64_t i;
    memcpy(&u, p, wf_dtype_size(dtype));
    memcpy(&f, p, sizeof f < wf_dtype_size(dtype) ? sizeof f : wf_dtype_size(dtype));
    memcpy(&d, &u, sizeof d);
    memcpy(&i, &u, sizeof i);
    return dtype == WEFT_F64    ? (long double)d
           : dtype == WEFT_F32  ? (long double)f
           : dtype == WEFT_F16  ? (long double)wf_f32_of_f16((uint16_t)u)
           : dtype == WEFT_BF16 ? (long double)wf_f32_of_bf16((uint16_t)u)
           : dtype == WEFT_I64  ? (long double)i
           : dtype == WEFT_I32  ? (long double)(int32_t)u
           : dtype == WEFT_I16  ? (long double)(int16_t)u
           : dtype == WEFT_I8   ? (long double)(int8_t)u
                                : (long double)u;
}

#endif
