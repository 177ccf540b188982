/*
 * eager/kernels/program.inc.c -- kernels on two-dimensional tiles, compiled once per instruction set; see
 * eager/kernels/program.h.
 *
 * Invariant: each element gets the bits of the elementwise row of the same name.
 */
#include <string.h>

#include "eager/kernels/program.h"

#if defined(__clang__)
#define WF_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define WF_IVDEP _Pragma("GCC ivdep")
#endif

#define LOOP(EXPR)                                                                                 \
    WF_IVDEP for (int64_t j = 0; j < n; j++)                                                       \
    {                                                                                              \
        d[j] = EXPR;                                                                               \
    }
#define GRID(name, T, OP)                                                                          \
    static void name(void *dst, const wf_grid_src *a, const wf_grid_src *b, int64_t m, int64_t n)  \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *x = a->data, *y = b->data;                                                        \
        for (int64_t i = 0; i < m; i++, d += n, x += a->line, y += b->line) {                      \
            if (a->along && b->along) {                                                            \
                LOOP(x[j] OP y[j])                                                                 \
            } else if (a->along) {                                                                 \
                const T s = *y;                                                                    \
                LOOP(x[j] OP s)                                                                    \
            } else if (b->along) {                                                                 \
                const T s = *x;                                                                    \
                LOOP(s OP y[j])                                                                    \
            } else {                                                                               \
                const T s = *x OP * y;                                                             \
                LOOP(s)                                                                            \
            }                                                                                      \
        }                                                                                          \
    }
GRID(add_f32, float, +)
GRID(sub_f32, float, -)
GRID(mul_f32, float, *)
GRID(div_f32, float, /)
GRID(add_f64, double, +)
GRID(sub_f64, double, -)
GRID(mul_f64, double, *)
GRID(div_f64, double, /)

#define SPREAD(name, T)                                                                            \
    static void name(void *dst, const wf_grid_src *src, int64_t m, int64_t n)                      \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *x = src->data;                                                                    \
        for (int64_t i = 0; i < m; i++, d += n, x += src->line) {                                  \
            if (src->along) {                                                                      \
                memcpy(d, x, (size_t)n * sizeof(T));                                               \
            } else {                                                                               \
                const T s = *x;                                                                    \
                LOOP(s)                                                                            \
            }                                                                                      \
        }                                                                                          \
    }
SPREAD(spread_1, uint8_t)
SPREAD(spread_2, uint16_t)
SPREAD(spread_4, uint32_t)
SPREAD(spread_8, uint64_t)

const wf_grid_kernels WF_SYM(wf_grid_kernels) = {
    .binary = {{add_f32, sub_f32, mul_f32, div_f32}, {add_f64, sub_f64, mul_f64, div_f64}},
    .spread = {spread_1, spread_2, spread_4, spread_8},
};
