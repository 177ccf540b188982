/*
 * eager/kernels/map_vjp.h -- vjp columns as kernels for one float type. The includer defines WF_T,
 * WF_S and WF_LANE.
 *
 * Row names in a vjp column are functions here, one per row, made from the row's own value: a new row
 * can be named in another's derivative at once. Names that dict_c.h has as macros (ADD, MUL, ...) are
 * the same values.
 *
 * With WF_VJP_FAST only rows with a rare branch exist, their TC(fn, ...) is fn_<type>_fast, and the
 * kernels test blocks of lanes as in the forward direction.
 *
 * Sources of a kernel: g, the operands, y.
 */
#ifndef EAGER_KERNELS_MAP_VJP_H
#define EAGER_KERNELS_MAP_VJP_H

#include "eager/kernels/map_rows.h"

#ifdef WF_VJP_FAST
#define TC(fn, ...) WF_CAT(WF_CAT(WF_CAT(fn, _), WF_S), _fast)(__VA_ARGS__)
#define WF_USE(types, rare) WF_IF(WF_RARE_OF_##rare)
#define ROUND(x) RINT(x) /* a row of another kind that their columns name */
#else
#define TC(fn, ...) WF_CAT(WF_CAT(fn, _), WF_S)(__VA_ARGS__)
#define WF_USE(types, rare) WF_IF(WF_IN_FLT_##types)
#endif

/* -- row names as functions ---------------------------------------------------------------------------- */
#define WF_FN __attribute__((unused)) static inline
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_USE(types, rare)(WF_FN WF_T(NAME)(WF_T x) { return expr; })
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_USE(types, rare)(WF_FN WF_T(NAME)(WF_T a, WF_T b) { return expr; })
#ifndef WF_VJP_FAST
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_IF(WF_IN_FLT_##types)(WF_FN WF_T(NAME)(WF_T a, WF_T b, WF_T c) { return expr; })
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    WF_IF(WF_IN_FLT_##types)(WF_FN WF_T(NAME)(bool p, WF_T a, WF_T b) { return expr; })
#define PREDICATE(NAME, name, types, expr)                                                         \
    WF_IF(WF_IN_FLT_##types)(WF_FN bool(NAME)(WF_T x) { return expr; })
#define COMPARE(NAME, name, types, expr)                                                           \
    WF_IF(WF_IN_FLT_##types)(WF_FN bool(NAME)(WF_T a, WF_T b) { return expr; })
#endif
#include "jit/ir/ops.def"

/* -- kernels -------------------------------------------------------------------------------------------- */
#define ZERO K(0)
#define WF_VP1                                                                                     \
    const WF_T *pg = src[0];                                                                       \
    const WF_T *px = src[1];                                                                       \
    const WF_T *py = src[2];
#define WF_VL1                                                                                     \
    const WF_T g = pg[i];                                                                          \
    const WF_T x = px[i];                                                                          \
    const WF_T y = py[i];                                                                          \
    (void)g;                                                                                       \
    (void)x;                                                                                       \
    (void)y;
#define WF_VP2                                                                                     \
    const WF_T *pg = src[0];                                                                       \
    const WF_T *pa = src[1];                                                                       \
    const WF_T *pb = src[2];                                                                       \
    const WF_T *py = src[3];
#define WF_VL2                                                                                     \
    const WF_T g = pg[i];                                                                          \
    const WF_T a = pa[i];                                                                          \
    const WF_T b = pb[i];                                                                          \
    const WF_T y = py[i];                                                                          \
    (void)g;                                                                                       \
    (void)a;                                                                                       \
    (void)b;                                                                                       \
    (void)y;
#define WF_VP3                                                                                     \
    const WF_T *pg = src[0];                                                                       \
    const WF_T *pa = src[1];                                                                       \
    const WF_T *pb = src[2];                                                                       \
    const WF_T *pc = src[3];                                                                       \
    const WF_T *py = src[4];
#define WF_VL3                                                                                     \
    const WF_T g = pg[i];                                                                          \
    const WF_T a = pa[i];                                                                          \
    const WF_T b = pb[i];                                                                          \
    const WF_T c = pc[i];                                                                          \
    const WF_T y = py[i];                                                                          \
    (void)g;                                                                                       \
    (void)a;                                                                                       \
    (void)b;                                                                                       \
    (void)c;                                                                                       \
    (void)y;
#define WF_VPC                                                                                     \
    const WF_T *pg = src[0];                                                                       \
    const uint8_t *pp = src[1];                                                                    \
    const WF_T *pa = src[2];                                                                       \
    const WF_T *pb = src[3];                                                                       \
    const WF_T *py = src[4];
#define WF_VLC                                                                                     \
    const WF_T g = pg[i];                                                                          \
    const uint8_t p = pp[i];                                                                       \
    const WF_T a = pa[i];                                                                          \
    const WF_T b = pb[i];                                                                          \
    const WF_T y = py[i];                                                                          \
    (void)g;                                                                                       \
    (void)p;                                                                                       \
    (void)a;                                                                                       \
    (void)b;                                                                                       \
    (void)y;

#define WF_V1(ulp, pre, NAME, vjp) WF_KERNEL_OF(ulp)(pre##0_##NAME, 3, WF_VP1, WF_VL1, vjp)
#define WF_V2(ulp, pre, NAME, w, vjp) WF_KERNEL_OF(ulp)(pre##w##_##NAME, 4, WF_VP2, WF_VL2, vjp)
#define WF_V3(pre, NAME, w, vjp) WF_KERNEL(pre##w##_##NAME, WF_T, 5, 0, WF_VP3, WF_VL3, vjp)
#define WF_VC(pre, NAME, w, vjp) WF_KERNEL(pre##w##_##NAME, WF_T, 5, 2, WF_VPC, WF_VLC, vjp)

typedef const wf_map_fn vjp_row[WF_VJP_MAX];
#define WF_VJP WF_SYM(WF_CAT(wf_vjp_, WF_S))
/* Kernels of rare rows cross the two files under these names. */
#define WF_VJP_SYM(kind, w, NAME) WF_SYM(WF_CAT(WF_CAT(wf_vjp_##kind##w##_##NAME, _), WF_S))
#define WF_DECLARE(kind, w, NAME)                                                                  \
    void WF_VJP_SYM(kind, w, NAME)(void *dst, const void *const *src, size_t n, unsigned bcast);
#define WF_EXPORT(kind, w, NAME, fn)                                                               \
    WF_DECLARE(kind, w, NAME)                                                                      \
    void WF_VJP_SYM(kind, w, NAME)(void *dst, const void *const *src, size_t n, unsigned bcast)    \
    {                                                                                              \
        fn(dst, src, n, bcast);                                                                    \
    }

#ifdef WF_VJP_FAST
#define WF_RARE_V(NAME, w, nsrc, pointers, loads, test)                                            \
    WF_DECLARE(full, w, NAME)                                                                      \
    WF_RARE_KERNEL(r##w##_##NAME, WF_VJP_SYM(full, w, NAME), f##w##_##NAME, WF_T, nsrc, pointers,  \
                   loads, test)                                                                    \
    WF_EXPORT(quick, w, NAME, r##w##_##NAME)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_IF(WF_RARE_OF_##rare)                                                                       \
    (WF_V1(ulp, f, NAME, vjp) WF_RARE_V(NAME, 0, 3, WF_VP1, WF_VL1, WF_TEST_##rare))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_IF(WF_RARE_OF_##rare)                                                                       \
    (WF_V2(ulp, f, NAME, 0, vjp_a) WF_RARE_V(NAME, 0, 4, WF_VP2, WF_VL2, WF_TEST_##rare)           \
         WF_V2(ulp, f, NAME, 1, vjp_b) WF_RARE_V(NAME, 1, 4, WF_VP2, WF_VL2, WF_TEST_##rare))
#include "jit/ir/ops.def"
#else

/* Columns whose kernels map_x4.inc.c makes. */
#ifdef WF_X4_ROWS
#include "eager/kernels/map_x4.h"
#else
#define WF_VJP_ON_X4(NAME) 0
#endif
#define WF_UNLESS_X4_0(...) __VA_ARGS__
#define WF_UNLESS_X4_1(...)
#define WF_VENTRY_0(rare, NAME) WF_CAT(WF_VPICK_, WF_RARE_OF_##rare)(0, NAME)
#define WF_VENTRY_1(rare, NAME) WF_X4_VJP_FN(NAME)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_IF(WF_IN_FLT_##types)                                                                       \
    (WF_CAT(WF_UNLESS_X4_, WF_VJP_ON_X4(NAME))(WF_V1(ulp, v, NAME, vjp))                           \
         WF_IF(WF_RARE_OF_##rare)(WF_EXPORT(full, 0, NAME, v0_##NAME) WF_DECLARE(quick, 0, NAME)))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_IF(WF_IN_FLT_##types)                                                                       \
    (WF_V2(ulp, v, NAME, 0, vjp_a) WF_V2(ulp, v, NAME, 1, vjp_b) WF_IF(WF_RARE_OF_##rare)(         \
        WF_EXPORT(full, 0, NAME, v0_##NAME) WF_DECLARE(quick, 0, NAME)                             \
            WF_EXPORT(full, 1, NAME, v1_##NAME) WF_DECLARE(quick, 1, NAME)))
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_IF(WF_IN_FLT_##types)                                                                       \
    (WF_V3(v, NAME, 0, vjp_a) WF_V3(v, NAME, 1, vjp_b) WF_V3(v, NAME, 2, vjp_c))
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    WF_IF(WF_IN_FLT_##types)(WF_VC(v, NAME, 1, vjp_a) WF_VC(v, NAME, 2, vjp_b))
#include "jit/ir/ops.def"

#define WF_VPICK_0(w, NAME) v##w##_##NAME
#define WF_VPICK_1(w, NAME) WF_VJP_SYM(quick, w, NAME)
extern vjp_row WF_VJP[WF_OP_ELEMENTWISE];
vjp_row WF_VJP[WF_OP_ELEMENTWISE] = {
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_IF(WF_IN_FLT_##types)                                                                       \
    ([WF_OP_##NAME] = {WF_CAT(WF_VENTRY_, WF_VJP_ON_X4(NAME))(rare, NAME)}, )
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_IF(WF_IN_FLT_##types)                                                                       \
    ([WF_OP_##NAME] = {WF_CAT(WF_VPICK_, WF_RARE_OF_##rare)(0, NAME),                              \
                       WF_CAT(WF_VPICK_, WF_RARE_OF_##rare)(1, NAME)}, )
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_IF(WF_IN_FLT_##types)([WF_OP_##NAME] = {v0_##NAME, v1_##NAME, v2_##NAME}, )
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    WF_IF(WF_IN_FLT_##types)([WF_OP_##NAME] = {NULL, v1_##NAME, v2_##NAME}, )
#include "jit/ir/ops.def"
};
#endif

#endif
