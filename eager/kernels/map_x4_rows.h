/*
 * eager/kernels/map_x4_rows.h -- kernels of the rows of map_x4.h for values of WF_REGISTERS registers.
 *
 * One register: any number of elements, by masked loads and stores. Several: whole values; what is left at
 * the end goes to the kernels of one.
 *
 * Invariant: the bits are those of the scalar bodies (dict_x4.h), whatever the number of elements.
 */
#ifndef EAGER_KERNELS_MAP_X4_ROWS_H
#define EAGER_KERNELS_MAP_X4_ROWS_H

#include "eager/kernels/dict_x4.h"

#include <stdbool.h>

#include "eager/kernels/map_x4.h"

#ifdef WF_HAS_X4
#include "jit/ir/math_f32_pure.h"

#define K(v) KF32(v)

#if WF_REGISTERS == 1
#define WF_X4_KERNEL(X4, X1, nsrc, loads, expr)                                                    \
    void X1(void *dst, const void *const *src, size_t n, unsigned bcast)                           \
    {                                                                                              \
        float *d = dst;                                                                            \
        for (size_t i = 0; i < n; i += WF_X4) {                                                    \
            const size_t m = n - i < WF_X4 ? n - i : WF_X4;                                        \
            loads wf_x4_store_some(d + i, expr, m);                                                \
        }                                                                                          \
    }
#define WF_AT(k)                                                                                   \
    (bcast >> k & 1 ? wf_x4_all(*(const float *)src[k])                                            \
                    : wf_x4_load_some((const float *)src[k] + i, m))
#else
enum { AHEAD = 1024 }; /* elements: past the page, at whose end hardware stops looking ahead */

/* Stores a value; past the caches it asks for operands to come as well. */
WF_INLINE void put(float *d, wf_x4 y, const void *const *at, int nsrc, bool past)
{
    if (!past) {
        wf_x4_store(d, y);
        return;
    }
    for (int k = 0; k < nsrc; k++)
        for (int l = 0; l < WF_X4; l += 16)
            __builtin_prefetch((const float *)at[k] + AHEAD + l);
    wf_x4_stream(d, y);
}

/* A broadcast operand is spread over one value that every step reads. */
#define WF_X4_KERNEL(X4, X1, nsrc, loads, expr)                                                    \
    void X4(void *dst, const void *const *src, size_t n, unsigned bcast)                           \
    {                                                                                              \
        _Alignas(64) float spread[nsrc][WF_X4];                                                    \
        const void *at[nsrc];                                                                      \
        float *d = dst;                                                                            \
        const size_t whole = n / WF_X4 * WF_X4;                                                    \
        const bool past = bcast & WF_PAST_CACHES;                                                  \
        size_t step[nsrc];                                                                         \
        for (int k = 0; k < nsrc; k++) {                                                           \
            at[k] = src[k];                                                                        \
            step[k] = WF_X4;                                                                       \
            if (whole && bcast >> k & 1) {                                                         \
                wf_x4_store(spread[k], wf_x4_all(*(const float *)src[k]));                         \
                at[k] = spread[k];                                                                 \
                step[k] = 0;                                                                       \
            }                                                                                      \
        }                                                                                          \
        for (size_t i = 0; i < whole; i += WF_X4) {                                                \
            loads put(d + i, expr, at, nsrc, past);                                                \
            for (int k = 0; k < nsrc; k++)                                                         \
                at[k] = (const float *)at[k] + step[k];                                            \
        }                                                                                          \
        if (whole < n)                                                                             \
            X1(d + whole, at, n - whole, bcast);                                                   \
    }
#define WF_AT(k) wf_x4_load(at[k])
#endif
#define WF_L1 const wf_x4 x = WF_AT(0);
#define WF_L2                                                                                      \
    const wf_x4 a = WF_AT(0);                                                                      \
    const wf_x4 b = WF_AT(1);

#define WF_KEEP_0(...)
#define WF_KEEP_1(...) __VA_ARGS__
#define WF_KEEP(NAME) WF_CAT(WF_KEEP_, WF_ON_X4(NAME))

/* SIN and COS have a rare branch (map_float.h): here, ordinary arguments only. */
#define WF_FAST_sin ~, 1
#define WF_FAST_cos ~, 1
#define WF_BODY_0 _f32
#define WF_BODY_1 _f32_fast
#define TC(fn, ...) WF_CAT(fn, WF_CAT(WF_BODY_, WF_PROBE(WF_FAST_##fn)))(__VA_ARGS__)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_KEEP(NAME)(WF_X4_KERNEL(WF_X4_FN(NAME), WF_X1_FN(NAME), 1, WF_L1, expr))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_KEEP(NAME)(WF_X4_KERNEL(WF_X4_FN(NAME), WF_X1_FN(NAME), 2, WF_L2, expr))
#include "jit/ir/ops.def"

/* -- vjp columns: sources g, x, y, as in map_vjp.h; row names in them are functions -------------------- */
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_KEEP(NAME)(__attribute__((unused)) WF_INLINE wf_x4 NAME(wf_x4 x) { return expr; })
#include "jit/ir/ops.def"

#define WF_LV                                                                                      \
    const wf_x4 g = WF_AT(0);                                                                      \
    const wf_x4 x = WF_AT(1);
#define WF_KEEP_VJP(NAME) WF_CAT(WF_KEEP_, WF_VJP_ON_X4(NAME))
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_KEEP_VJP(NAME)(WF_X4_KERNEL(WF_X4_VJP_FN(NAME), WF_X1_VJP_FN(NAME), 3, WF_LV, vjp))
#include "jit/ir/ops.def"
#endif
#endif
