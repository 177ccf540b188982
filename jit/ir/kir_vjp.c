/*
 * jit/ir/kir_vjp.c -- vjp columns of elementwise rows as builder functions, for whichever float type is computed in.
 *
 * Row names in a vjp column are functions of the row's own value, so that a new row can be named in
 * another's derivative at once. Those that dict_kir.h has as macros are the same values.
 */
#include "jit/ir/kir_rows.h"

#define K(v) wf_kv_number(v)

/* A truth value read as a number, as C does. */
static wf_kval number(wf_kval x)
{
    return wf_kv_type(x) == WF_KT_BOOL ? SELECT(x, K(1), K(0)) : x;
}

static wf_kval row3(wf_kval a, wf_kval b, wf_kval c, wf_op op)
{
    const wf_kir_row_set *set = wf_kv_compute() == WF_KT_F32 ? &wf_kir_rows_f32 : &wf_kir_rows_f64;
    const wf_kval s[3] = {a, b, c};
    return set->row[op](s);
}
static wf_kval row2(wf_kval a, wf_kval b, wf_op op)
{
    return row3(number(a), number(b), wf_kv(WF_KREF_NONE), op);
}
static wf_kval row1(wf_kval x, wf_op op)
{
    return row2(x, wf_kv(WF_KREF_NONE), op);
}

#define USE_FI(...) __VA_ARGS__
#define USE_F(...) __VA_ARGS__
#define USE_ALL(...) __VA_ARGS__
#define USE_I(...)
#define USE_BI(...)
#define USE_B(...)

#define NAMED __attribute__((unused)) static wf_kval
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    USE_##types(NAMED(NAME)(wf_kval x) { return row1(x, WF_OP_##NAME); })
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    USE_##types(NAMED(NAME)(wf_kval a, wf_kval b) { return row2(a, b, WF_OP_##NAME); })
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    USE_##types(NAMED(NAME)(wf_kval a, wf_kval b, wf_kval c) {                                     \
        return row3(number(a), number(b), number(c), WF_OP_##NAME);                                \
    })
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    USE_##types(NAMED(NAME)(wf_kval p, wf_kval a, wf_kval b) {                                     \
        return row3(p, number(a), number(b), WF_OP_##NAME);                                        \
    })
#define PREDICATE(NAME, name, types, expr) UNARY(NAME, name, types, NORARE, 0, expr, NODIFF)
#define COMPARE(NAME, name, types, expr) BINARY(NAME, name, types, NORARE, 0, expr, NODIFF, NODIFF)
#include "jit/ir/ops.def"

#define ZERO K(0)
#define VJP_OPERANDS_1 const wf_kval x = s[1], y = s[2];
#define VJP_OPERANDS_2 const wf_kval a = s[1], b = s[2], y = s[3];
#define VJP_OPERANDS_3 const wf_kval a = s[1], b = s[2], c = s[3], y = s[4];
#define VJP_OPERANDS_C const wf_kval p = s[1], a = s[2], b = s[3], y = s[4];
#define USED_1 (void)x;
#define USED_2 (void)a, (void)b;
#define USED_3 (void)a, (void)b, (void)c;
#define USED_C (void)p, (void)a, (void)b;
#define VJP(name, n, expr)                                                                         \
    static wf_kval name(const wf_kval *s)                                                          \
    {                                                                                              \
        const wf_kval g = s[0];                                                                    \
        VJP_OPERANDS_##n(void) g;                                                                  \
        (void)y;                                                                                   \
        USED_##n return expr;                                                                      \
    }
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) USE_##types(VJP(vjp0_##NAME, 1, vjp))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    USE_##types(VJP(vjp0_##NAME, 2, vjp_a) VJP(vjp1_##NAME, 2, vjp_b))
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    USE_##types(VJP(vjp0_##NAME, 3, vjp_a) VJP(vjp1_##NAME, 3, vjp_b) VJP(vjp2_##NAME, 3, vjp_c))
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    USE_##types(VJP(vjp1_##NAME, C, vjp_a) VJP(vjp2_##NAME, C, vjp_b))
#include "jit/ir/ops.def"

const wf_kir_row_fn wf_kir_vjps[WF_OP_ELEMENTWISE][3] = {
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) USE_##types([WF_OP_##NAME] = {vjp0_##NAME}, )
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    USE_##types([WF_OP_##NAME] = {vjp0_##NAME, vjp1_##NAME}, )
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    USE_##types([WF_OP_##NAME] = {vjp0_##NAME, vjp1_##NAME, vjp2_##NAME}, )
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    USE_##types([WF_OP_##NAME] = {NULL, vjp1_##NAME, vjp2_##NAME}, )
#include "jit/ir/ops.def"
};
