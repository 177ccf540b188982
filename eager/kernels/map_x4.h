/*
 * eager/kernels/map_x4.h -- which elementwise rows run on f32 by four registers (map_x4.inc.c).
 *
 * A row belongs here if its body is in jit/ir/math_f32_pure.h and costs more than memory does. It gets one
 * line below; of a row with a rare branch the ordinary lanes run this way. Only where registers have FMA:
 * elsewhere the plain loops of map_rows.h serve.
 */
#ifndef EAGER_KERNELS_MAP_X4_H
#define EAGER_KERNELS_MAP_X4_H

#include "eager/kernels/kernels.h"

#if defined(__AVX2__)
#define WF_X4_EXP ~, 1
#define WF_X4_EXP2 ~, 1
#define WF_X4_EXPM1 ~, 1
#define WF_X4_LOG ~, 1
#define WF_X4_LOG2 ~, 1
#define WF_X4_LOG10 ~, 1
#define WF_X4_LOG1P ~, 1
#define WF_X4_SIN ~, 1
#define WF_X4_COS ~, 1
#define WF_X4_ATAN ~, 1
#define WF_X4_ATAN2 ~, 1
#define WF_X4_TANH ~, 1
#define WF_X4_SIGMOID ~, 1
#define WF_X4_LOG_SIGMOID ~, 1
#define WF_X4_ERF ~, 1
#define WF_X4_NORMCDF ~, 1
#define WF_X4_GELU ~, 1
#define WF_X4_GELU_TANH ~, 1
#define WF_X4_SILU ~, 1
#define WF_X4_SOFTPLUS ~, 1
#define WF_X4_MISH ~, 1
#define WF_X4_XLOGY ~, 1
#define WF_X4_ELU ~, 1

/* Rows whose vjp column does, too: it names no other rows than these and what dict_x4.h has. */
#define WF_X4_VJP_GELU ~, 1
#define WF_X4_VJP_GELU_TANH ~, 1
#define WF_X4_VJP_SILU ~, 1
#endif

/* Rows that also run from halves to halves, widening and rounding registers beside the body: tiles of halves that go by way of f32 ones
 * take twice as long where the body is one step, and with AVX-512 a fifth more where it is a polynomial. (What is done by
 * bits alone: map_x4.inc.c.) */
#if defined(__AVX2__)
#define WF_X4_HALF_ADD ~, 1
#define WF_X4_HALF_SUB ~, 1
#define WF_X4_HALF_MUL ~, 1
#define WF_X4_HALF_DIV ~, 1
#define WF_X4_HALF_SQUARE ~, 1
#define WF_X4_HALF_RECIPROCAL ~, 1
#define WF_X4_HALF_LERP ~, 1
#define WF_X4_HALF_ADDCMUL ~, 1
#define WF_X4_F16_ADD ~, 1
#define WF_X4_F16_SUB ~, 1
#define WF_X4_F16_MUL ~, 1
#define WF_X4_F16_DIV ~, 1
#define WF_X4_F16_SQUARE ~, 1
#define WF_X4_F16_RECIPROCAL ~, 1
#define WF_X4_F16_LERP ~, 1
#define WF_X4_F16_ADDCMUL ~, 1
#endif
#if defined(__AVX512BW__)
#define WF_X4_HALF_GELU ~, 1
#define WF_X4_HALF_SILU ~, 1
#endif

#define WF_PROBE(...) WF_SECOND(__VA_ARGS__, 0, ~)
/* 1 if the row is one of them. */
#define WF_ON_X4(NAME) WF_PROBE(WF_X4_##NAME)
#define WF_X4_FN(NAME) WF_SYM(wf_x4_##NAME)
#define WF_X1_FN(NAME) WF_SYM(wf_x1_##NAME) /* the same one register at a time, for few elements */
#define WF_VJP_ON_X4(NAME) WF_PROBE(WF_X4_VJP_##NAME)
#define WF_HALF_ON_X4(NAME) WF_PROBE(WF_X4_HALF_##NAME)
#define WF_F16_ON_X4(NAME) WF_PROBE(WF_X4_F16_##NAME)
#define WF_X4_VJP_FN(NAME) WF_SYM(wf_x4_vjp_##NAME)
#define WF_X1_VJP_FN(NAME) WF_SYM(wf_x1_vjp_##NAME)
#define WF_X4_DECLARE_VJP_0(NAME)
#define WF_X4_DECLARE_VJP_1(NAME)                                                                  \
    void WF_X4_VJP_FN(NAME)(void *dst, const void *const *src, size_t n, unsigned bcast);          \
    void WF_X1_VJP_FN(NAME)(void *dst, const void *const *src, size_t n, unsigned bcast);
#define WF_X4_DECLARE_0(NAME)
#define WF_X4_DECLARE_1(NAME)                                                                      \
    void WF_X4_FN(NAME)(void *dst, const void *const *src, size_t n, unsigned bcast);              \
    void WF_X1_FN(NAME)(void *dst, const void *const *src, size_t n, unsigned bcast);
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_CAT(WF_X4_DECLARE_, WF_ON_X4(NAME))                                                         \
    (NAME) WF_CAT(WF_X4_DECLARE_VJP_, WF_VJP_ON_X4(NAME))(NAME)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_CAT(WF_X4_DECLARE_, WF_ON_X4(NAME))(NAME)
#include "jit/ir/ops.def"

#endif
