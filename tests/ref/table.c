/*
 * tests/ref/table.c -- one reference and one public function per row, by name.
 *
 * Invariant: the rows are the op table's own, so a row whose ref_<name> or weft_<name> is not declared
 * does not compile (tests/lint/check_rows proves it).
 */
#include "tests/ref/ref.h"

/* Which references a row needs follows from the element types it takes. */
#define REAL_F(f) f
#define REAL_FI(f) f
#define REAL_ALL(f) f
#define REAL_I(f) NULL
#define REAL_BI(f) NULL
#define INT_F(f) NULL
#define INT_FI(f) f
#define INT_ALL(f) f
#define INT_I(f) f
#define INT_BI(f) f

/* clang-format off */
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) \
    [WF_OP_##NAME] = {.call1 = weft_##name, .write1 = weft_##name##_, .f1 = REAL_##types(ref_##name), .i1 = INT_##types(ref_int_##name), .nsrc = 1},
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) \
    [WF_OP_##NAME] = {.call2 = weft_##name, .write2 = weft_##name##_, .f2 = REAL_##types(ref_##name), .i2 = INT_##types(ref_int_##name), .nsrc = 2},
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) \
    [WF_OP_##NAME] = {.call3 = weft_##name, .write3 = weft_##name##_, .f3 = REAL_##types(ref_##name), .i3 = INT_##types(ref_int_##name), .nsrc = 3},
#define PREDICATE(NAME, name, types, expr) \
    [WF_OP_##NAME] = {.call1 = weft_##name, .f1 = REAL_##types(ref_##name), .i1 = INT_##types(ref_int_##name), .nsrc = 1},
#define COMPARE(NAME, name, types, expr) \
    [WF_OP_##NAME] = {.call2 = weft_##name, .f2 = REAL_##types(ref_##name), .i2 = INT_##types(ref_int_##name), .nsrc = 2},
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) \
    [WF_OP_##NAME] = {.call3 = weft_##name, .f3 = REAL_##types(ref_##name), .i3 = INT_##types(ref_int_##name), .nsrc = 3},
const ref_row ref_rows[WF_OP_COUNT] = {
#include "jit/ir/ops.def"
};

/* sizeof weft_<name>'s type: the prototype must exist, whatever its arguments are. */
#define REDUCE_REDUCE(NAME, name) [WF_OP_##NAME] = sizeof(__typeof__(&weft_##name)) ? ref_##name : NULL,
#define REDUCE_VIEW(NAME, name)
#define REDUCE_MOVE(NAME, name)
#define REDUCE_INDEX(NAME, name)
#define REDUCE_CREATE(NAME, name)
#define REDUCE_OPAQUE(NAME, name)
#define REDUCE_ROWWISE(NAME, name)
#define REDUCE_GRAD(NAME, name)
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) REDUCE_##kind(NAME, name)
const ref_reduce ref_reductions[WF_OP_COUNT] = {
#include "jit/ir/ops.def"
};
/* clang-format on */
