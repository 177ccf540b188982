/*
 * eager/kernels/map_float.h -- every elementwise row that takes floats, for one float type: the body
 * of map_f32.inc.c and map_f64.inc.c, which define WF_T, WF_S and WF_LANE.
 */
#ifndef EAGER_KERNELS_MAP_FLOAT_H
#define EAGER_KERNELS_MAP_FLOAT_H

#include "eager/kernels/map_two.h"

/* Rows whose kernels map_x4.inc.c makes. */
#ifdef WF_X4_ROWS
#include "eager/kernels/map_x4.h"
#else
#define WF_ON_X4(NAME) 0
#endif
#define WF_UNLESS_X4_0(...) __VA_ARGS__
#define WF_UNLESS_X4_1(...)
#define WF_UNLESS_X4(NAME) WF_CAT(WF_UNLESS_X4_, WF_ON_X4(NAME))
#define WF_PLAIN_OR_X4_0(prefix, NAME) WF_CAT(prefix, NAME)
#define WF_PLAIN_OR_X4_1(prefix, NAME) WF_X4_FN(NAME)
#define WF_PLAIN_OR_X4(prefix, NAME) WF_CAT(WF_PLAIN_OR_X4_, WF_ON_X4(NAME))(prefix, NAME)

/* -- complete bodies ------------------------------------------------------------------------------- */
#define TC(fn, ...) WF_CAT(WF_CAT(fn, _), WF_S)(__VA_ARGS__)
#define WF_MADE_NORARE(NAME) WF_UNLESS_X4(NAME)
#define WF_MADE_RARE(...) WF_MADE_ALWAYS
#define WF_MADE_ALWAYS(NAME) WF_IF_1
/* Rows of two operands with a rare branch are long, whatever their error. */
#define WF_FLOAT2_OF_0(ulp, NAME, expr) WF_BINARY(ulp, NAME, expr)
#define WF_FLOAT2_OF_1(ulp, NAME, expr) WF_BINARY_0(NAME, expr)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_IF(WF_IN_FLT_##types)                                                                       \
    (WF_MADE_##rare(NAME)(WF_KERNEL_OF(ulp)(k_##NAME, 1, WF_P1, WF_L1, expr)))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_IF(WF_IN_FLT_##types)                                                                       \
    (WF_MADE_##rare(NAME)(WF_CAT(WF_FLOAT2_OF_, WF_RARE_OF_##rare)(ulp, NAME, expr)))
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_IF(WF_IN_FLT_##types)(WF_KERNEL3(k_##NAME, WF_T, expr))
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    WF_IF(WF_IN_FLT_##types)(WF_KERNEL(k_##NAME, WF_T, 3, 1, WF_PC, WF_LC, expr))
#define PREDICATE(NAME, name, types, expr)                                                         \
    WF_IF(WF_IN_FLT_##types)(WF_KERNEL(k_##NAME, uint8_t, 1, 0, WF_P1, WF_L1, expr))
#define COMPARE(NAME, name, types, expr)                                                           \
    WF_IF(WF_IN_FLT_##types)(WF_KERNEL2_OF(NAME, uint8_t, expr))
#include "jit/ir/ops.def"
#undef TC

/* -- ordinary lanes of rows with a rare branch -------------------------------------------------------- */
#define TC(fn, ...) WF_CAT(WF_CAT(WF_CAT(fn, _), WF_S), _fast)(__VA_ARGS__)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_IF(WF_RARE_OF_##rare)                                                                       \
    (WF_UNLESS_X4(NAME)(WF_KERNEL_LONG(f_##NAME, 1, WF_P1, WF_L1, expr)) WF_RARE_KERNEL(           \
        r_##NAME, k_##NAME, WF_PLAIN_OR_X4(f_, NAME), WF_T, 1, WF_P1, WF_L1, WF_TEST_##rare))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_IF(WF_RARE_OF_##rare)                                                                       \
    (WF_KERNEL_LONG(f_##NAME, 2, WF_P2, WF_L2, expr)                                               \
         WF_RARE_KERNEL(r_##NAME, k_##NAME, f_##NAME, WF_T, 2, WF_P2, WF_L2, WF_TEST_##rare))
#include "jit/ir/ops.def"
#undef TC

#define WF_ENTRY_NORARE(NAME) WF_PLAIN_OR_X4(k_, NAME)
#define WF_ENTRY_RARE(fn, ...) WF_ENTRY_OF_RARE
#define WF_ENTRY_OF_RARE(NAME) WF_CAT(r_, NAME)
extern const wf_map_fn WF_SYM(WF_CAT(wf_map_, WF_S))[WF_OP_ELEMENTWISE];
const wf_map_fn WF_SYM(WF_CAT(wf_map_, WF_S))[WF_OP_ELEMENTWISE] = {
#define ENTRY(NAME, types) WF_IF(WF_IN_FLT_##types)([WF_OP_##NAME] = k_##NAME, )
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_IF(WF_IN_FLT_##types)([WF_OP_##NAME] = WF_ENTRY_##rare(NAME), )
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_IF(WF_IN_FLT_##types)([WF_OP_##NAME] = WF_ENTRY_##rare(NAME), )
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) ENTRY(NAME, types)
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) ENTRY(NAME, types)
#define PREDICATE(NAME, name, types, expr) ENTRY(NAME, types)
#define COMPARE(NAME, name, types, expr) ENTRY(NAME, types)
#include "jit/ir/ops.def"
};

#ifdef WF_X4_ROWS
extern const bool WF_SYM(wf_map_past)[WF_OP_ELEMENTWISE];
const bool WF_SYM(wf_map_past)[WF_OP_ELEMENTWISE] = {
#define WF_PAST_NORARE(NAME) WF_ON_X4(NAME)
#define WF_PAST_RARE(...) WF_PAST_NEVER
#define WF_PAST_NEVER(NAME) 0
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) [WF_OP_##NAME] = WF_PAST_##rare(NAME),
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    [WF_OP_##NAME] = WF_PAST_##rare(NAME),
#include "jit/ir/ops.def"
};
#endif

#endif
