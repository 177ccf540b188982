/*
 * jit/ir/kir_rows_t.h -- template: every elementwise row of one compute type as builder functions.
 *
 * The includer has included dict_kir.h, the math bodies and rowfun.h, and defines WF_S (suffix), WF_KT
 * (value type), WF_FLT (1 for floats) and K(v) (a constant of the type in kb). It gets wf_kir_rows_<S>.
 *
 * Row names in a vjp column are functions of the row's own value, so that a new row can be named in
 * another's derivative at once. Those that dict_kir.h has as macros are the same values.
 */
#define WF_CAT_(a, b) a##b
#define WF_CAT(a, b) WF_CAT_(a, b)
#define WF_IF_0(...)
#define WF_IF_1(...) __VA_ARGS__
#define WF_IF(flag) WF_CAT(WF_IF_, flag)
#define FN(name) WF_CAT(name##_, WF_S)

/* Does a row of this type column have this compute type? */
#define WF_IN_1_FI 1
#define WF_IN_1_F 1
#define WF_IN_1_I 0
#define WF_IN_1_BI 0
#define WF_IN_1_B 0
#define WF_IN_1_ALL 1
#define WF_IN_0_FI 1
#define WF_IN_0_F 0
#define WF_IN_0_I 1
#define WF_IN_0_BI 1
#define WF_IN_0_B 1
#define WF_IN_0_ALL 1
#define WF_USE(types) WF_IF(WF_CAT(WF_CAT(WF_IN_, WF_FLT), _##types))

#define WF_RARE_1_NORARE 0
#define WF_RARE_1_RARE(fn, ...) 1
#define WF_RARE_0_NORARE 0
#define WF_RARE_0_RARE(fn, ...) 0
#define WF_RARE_OF(rare) WF_IF(WF_CAT(WF_CAT(WF_RARE_, WF_FLT), _##rare))
#define WF_TEST_NORARE
#define WF_TEST_RARE(fn, ...) CALL(WF_CAT(WF_CAT(fn, _), WF_CAT(WF_S, _rare)), __VA_ARGS__)

#define OPERANDS_1 const wf_kval x = s[0];
#define OPERANDS_2 const wf_kval a = s[0], b = s[1];
#define OPERANDS_3 const wf_kval a = s[0], b = s[1], c = s[2];
#define OPERANDS_C const wf_kval p = s[0], a = s[1], b = s[2];
#define BUILD(name, operands, expr)                                                                \
    static wf_kval name(__attribute__((unused)) wf_kir *kb, const wf_kval *s)                      \
    {                                                                                              \
        operands return expr;                                                                      \
    }

/* -- complete bodies ------------------------------------------------------------------------------- */
#define TC(fn, ...) CALL(WF_CAT(WF_CAT(fn, _), WF_S), __VA_ARGS__)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_USE(types)(BUILD(FN(full_##NAME), OPERANDS_1, expr))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_USE(types)(BUILD(FN(full_##NAME), OPERANDS_2, expr))
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_USE(types)(BUILD(FN(row_##NAME), OPERANDS_3, expr))
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    WF_USE(types)(BUILD(FN(row_##NAME), OPERANDS_C, expr))
#define PREDICATE(NAME, name, types, expr) WF_USE(types)(BUILD(FN(row_##NAME), OPERANDS_1, expr))
#define COMPARE(NAME, name, types, expr) WF_USE(types)(BUILD(FN(row_##NAME), OPERANDS_2, expr))
#include "jit/ir/ops.def"
#undef TC

/* -- ordinary lanes, and the choice ------------------------------------------------------------------ */
#define TC(fn, ...) CALL(WF_CAT(WF_CAT(fn, _), WF_CAT(WF_S, _fast)), __VA_ARGS__)
#define ROW_OF(NAME, rare, operands, expr)                                                         \
    WF_RARE_OF(rare)                                                                               \
    (static wf_kval FN(fast_##NAME)(wf_kir * kb, const wf_kval *s) {                               \
        operands wf_kv_note_rare(kb, WF_TEST_##rare);                                              \
        return expr;                                                                               \
    }) static wf_kval                                                                              \
    FN(row_##NAME)(wf_kir * kb, const wf_kval *s)                                                  \
    {                                                                                              \
        WF_RARE_OF(rare)                                                                           \
        (if (kb->fast) return FN(fast_##NAME)(kb, s);) return FN(full_##NAME)(kb, s);              \
    }
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_USE(types)(ROW_OF(NAME, rare, OPERANDS_1, expr))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_USE(types)(ROW_OF(NAME, rare, OPERANDS_2, expr))
#include "jit/ir/ops.def"
#undef TC

/* -- gradients --------------------------------------------------------------------------------------- */
#if WF_FLT
/* A truth value read as a number, as C does. */
static wf_kval FN(number)(wf_kval x)
{
    wf_kir *const kb = x.kb;
    return wf_kir_type(kb, x.ref) == WF_KT_BOOL ? SELECT(x, K(1), K(0)) : x;
}
#define NAMED __attribute__((unused)) static wf_kval
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_USE(types)                                                                                  \
    (NAMED(NAME)(wf_kval x) {                                                                      \
        const wf_kval s[1] = {FN(number)(x)};                                                      \
        return FN(row_##NAME)(x.kb, s);                                                            \
    })
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_USE(types)                                                                                  \
    (NAMED(NAME)(wf_kval a, wf_kval b) {                                                           \
        const wf_kval s[2] = {FN(number)(a), FN(number)(b)};                                       \
        return FN(row_##NAME)(a.kb, s);                                                            \
    })
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_USE(types)                                                                                  \
    (NAMED(NAME)(wf_kval a, wf_kval b, wf_kval c) {                                                \
        const wf_kval s[3] = {FN(number)(a), FN(number)(b), FN(number)(c)};                        \
        return FN(row_##NAME)(a.kb, s);                                                            \
    })
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    WF_USE(types)                                                                                  \
    (NAMED(NAME)(wf_kval p, wf_kval a, wf_kval b) {                                                \
        const wf_kval s[3] = {p, FN(number)(a), FN(number)(b)};                                    \
        return FN(row_##NAME)(a.kb, s);                                                            \
    })
#define PREDICATE(NAME, name, types, expr) UNARY(NAME, name, types, NORARE, 0, expr, NODIFF)
#define COMPARE(NAME, name, types, expr) BINARY(NAME, name, types, NORARE, 0, expr, NODIFF, NODIFF)
#include "jit/ir/ops.def"
#undef NAMED

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
    static wf_kval name(__attribute__((unused)) wf_kir *kb, const wf_kval *s)                      \
    {                                                                                              \
        const wf_kval g = s[0];                                                                    \
        VJP_OPERANDS_##n(void) g;                                                                  \
        (void)y;                                                                                   \
        USED_##n return expr;                                                                      \
    }
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) WF_USE(types)(VJP(FN(vjp0_##NAME), 1, vjp))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_USE(types)(VJP(FN(vjp0_##NAME), 2, vjp_a) VJP(FN(vjp1_##NAME), 2, vjp_b))
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_USE(types)                                                                                  \
    (VJP(FN(vjp0_##NAME), 3, vjp_a) VJP(FN(vjp1_##NAME), 3, vjp_b) VJP(FN(vjp2_##NAME), 3, vjp_c))
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    WF_USE(types)(VJP(FN(vjp1_##NAME), C, vjp_a) VJP(FN(vjp2_##NAME), C, vjp_b))
#include "jit/ir/ops.def"
#undef ZERO
#endif

/* -- the tables --------------------------------------------------------------------------------------- */
#if WF_FLT
static const wf_kir_row_fn FN(vjp_rows)[WF_OP_ELEMENTWISE][3] = {
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_USE(types)([WF_OP_##NAME] = {FN(vjp0_##NAME)}, )
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_USE(types)([WF_OP_##NAME] = {FN(vjp0_##NAME), FN(vjp1_##NAME)}, )
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_USE(types)([WF_OP_##NAME] = {FN(vjp0_##NAME), FN(vjp1_##NAME), FN(vjp2_##NAME)}, )
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    WF_USE(types)([WF_OP_##NAME] = {NULL, FN(vjp1_##NAME), FN(vjp2_##NAME)}, )
#include "jit/ir/ops.def"
};
#endif

const wf_kir_row_set FN(wf_kir_rows) = {
    .type = WF_KT,
    .row =
        {
#define ENTRY(NAME, types) WF_USE(types)([WF_OP_##NAME] = FN(row_##NAME), )
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) ENTRY(NAME, types)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) ENTRY(NAME, types)
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) ENTRY(NAME, types)
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) ENTRY(NAME, types)
#define PREDICATE(NAME, name, types, expr) ENTRY(NAME, types)
#define COMPARE(NAME, name, types, expr) ENTRY(NAME, types)
#include "jit/ir/ops.def"
        },
#if WF_FLT
    .vjp = FN(vjp_rows),
#endif
};
#undef ENTRY
#undef WF_S
#undef WF_KT
#undef WF_FLT
#undef K
