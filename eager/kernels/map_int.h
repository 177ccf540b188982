/*
 * eager/kernels/map_int.h -- every elementwise row that takes integers, for one integer type: the
 * body of map_u8.inc.c (which serves bool too) to map_i64.inc.c, which define WF_T and WF_S.
 */
#ifndef EAGER_KERNELS_MAP_INT_H
#define EAGER_KERNELS_MAP_INT_H

#include "eager/kernels/map_two.h"

/* Rows that divide: vectors of integers are divided lane by lane, which clang writes out, 64 times for bytes. */
#define WF_ONE_BY_ONE_0(expr) expr
#if defined(__clang__)
#define WF_ONE_BY_ONE_1(expr)                                                                      \
    ({                                                                                             \
        __asm__ volatile("");                                                                      \
        expr;                                                                                      \
    })
#else
#define WF_ONE_BY_ONE_1(expr) expr
#endif

#define TC(fn, ...) WF_CAT(WF_CAT(fn, _), WF_S)(__VA_ARGS__)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_IF(WF_IN_INT_##types)(WF_KERNEL(k_##NAME, WF_T, 1, 0, WF_P1, WF_L1, expr))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_IF(WF_IN_INT_##types)                                                                       \
    (WF_BINARY(ulp, NAME, WF_CAT(WF_ONE_BY_ONE_, WF_RARE_OF_##rare)(expr)))
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_IF(WF_IN_INT_##types)(WF_KERNEL(k_##NAME, WF_T, 3, 0, WF_P3, WF_L3, expr))
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    WF_IF(WF_IN_INT_##types)(WF_KERNEL(k_##NAME, WF_T, 3, 1, WF_PC, WF_LC, expr))
#define PREDICATE(NAME, name, types, expr)                                                         \
    WF_IF(WF_IN_INT_##types)(WF_KERNEL(k_##NAME, uint8_t, 1, 0, WF_P1, WF_L1, expr))
#define COMPARE(NAME, name, types, expr)                                                           \
    WF_IF(WF_IN_INT_##types)(WF_KERNEL2_OF(NAME, uint8_t, expr))
#include "jit/ir/ops.def"

extern const wf_map_fn WF_SYM(WF_CAT(wf_map_, WF_S))[WF_OP_ELEMENTWISE];
const wf_map_fn WF_SYM(WF_CAT(wf_map_, WF_S))[WF_OP_ELEMENTWISE] = {
#define ENTRY(NAME, types) WF_IF(WF_IN_INT_##types)([WF_OP_##NAME] = k_##NAME, )
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) ENTRY(NAME, types)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) ENTRY(NAME, types)
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) ENTRY(NAME, types)
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) ENTRY(NAME, types)
#define PREDICATE(NAME, name, types, expr) ENTRY(NAME, types)
#define COMPARE(NAME, name, types, expr) ENTRY(NAME, types)
#include "jit/ir/ops.def"
};

#endif
