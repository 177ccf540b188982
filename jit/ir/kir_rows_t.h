/*
 * jit/ir/kir_rows_t.h -- template: every elementwise row of one compute type as builder functions.
 *
 * The includer has included dict_kir.h, the math bodies and rowfun.h, and defines WF_S (suffix), WF_KT
 * (value type), WF_FLT (1 for floats) and K(v) (a constant of the type). It gets wf_kir_rows_<S>.
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
    static wf_kval name(const wf_kval *s)                                                          \
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
    (static wf_kval FN(fast_##NAME)(const wf_kval *s) {                                            \
        operands wf_kv_note_rare(WF_TEST_##rare);                                                  \
        return expr;                                                                               \
    }) static wf_kval                                                                              \
    FN(row_##NAME)(const wf_kval *s)                                                               \
    {                                                                                              \
        WF_RARE_OF(rare)(if (wf_kv_fast()) return FN(fast_##NAME)(s);) return FN(full_##NAME)(s);  \
    }
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_USE(types)(ROW_OF(NAME, rare, OPERANDS_1, expr))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_USE(types)(ROW_OF(NAME, rare, OPERANDS_2, expr))
#include "jit/ir/ops.def"
#undef TC

/* -- the tables --------------------------------------------------------------------------------------- */
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
};
#undef ENTRY
#undef WF_S
#undef WF_KT
#undef WF_FLT
#undef K
