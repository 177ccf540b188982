/*
 * jit/ir/rows.c -- the row table and the door to inference.
 *
 * Everything here is an expansion of ops.def. Elementwise rows share one inference (broadcast, one
 * element type inside the row's mask); every other row names its function, so that a row without
 * one does not link.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jit/ir/infer.h"
#include "jit/ir/plain_numbers.h"

enum { ANY_TYPES = WF_DT_ALL };

const wf_row wf_rows[WF_OP_COUNT] = {
    [WF_OP_INVALID] = {.name = "invalid", .kind = WF_KIND_LEAF, .attributes = ""},
    [WF_OP_INPUT] = {.name = "input", .kind = WF_KIND_LEAF, .ndst = 1, .attributes = ""},
    [WF_OP_SCALAR] = {.name = "scalar", .kind = WF_KIND_LEAF, .ndst = 1, .attributes = ""},
    [WF_OP_CONST] = {.name = "const", .kind = WF_KIND_LEAF, .ndst = 1, .attributes = ""},
    [WF_OP_CUSTOM] = {.name = "custom", .kind = WF_KIND_LEAF, .attributes = ""},
    [WF_OP_RESULT] = {.name = "result", .kind = WF_KIND_LEAF, .attributes = ""},
#define ELEMENTWISE(NAME, row_name, k, n, mask, budget)                                            \
    [WF_OP_##NAME] = {.name = row_name,                                                            \
                      .kind = WF_KIND_##k,                                                         \
                      .min_src = n,                                                                \
                      .max_src = n,                                                                \
                      .ndst = 1,                                                                   \
                      .types = (uint16_t)(mask),                                                   \
                      .ulp = budget,                                                               \
                      .attributes = ""},
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    ELEMENTWISE(NAME, #name, UNARY, 1, WF_DT_##types, ulp)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    ELEMENTWISE(NAME, #name, BINARY, 2, WF_DT_##types, ulp)
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    ELEMENTWISE(NAME, #name, TERNARY, 3, WF_DT_##types, ulp)
#define PREDICATE(NAME, name, types, expr) ELEMENTWISE(NAME, #name, PREDICATE, 1, WF_DT_##types, 0)
#define COMPARE(NAME, name, types, expr) ELEMENTWISE(NAME, #name, COMPARE, 2, WF_DT_##types, 0)
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b)                                              \
    ELEMENTWISE(NAME, #name, CHOOSE, 3, WF_DT_##types, 0)
#define ROW(NAME, row_name, k, lo, hi, n_dst, infer, exec, vjp, text)                              \
    [WF_OP_##NAME] = {.name = #row_name,                                                           \
                      .kind = WF_KIND_##k,                                                         \
                      .min_src = lo,                                                               \
                      .max_src = hi,                                                               \
                      .ndst = n_dst,                                                               \
                      .attributes = text},
#include "jit/ir/ops.def"
#undef ELEMENTWISE
};

/* One prototype per distinct `infer` column; repeating a declaration is harmless. */
#define ROW(NAME, name, kind, lo, hi, n_dst, infer, exec, vjp, text) WF_INFER(infer);
#include "jit/ir/ops.def"

static const wf_infer_fn infer_of[WF_OP_COUNT] = {
#define ROW(NAME, name, kind, lo, hi, n_dst, infer, exec, vjp, text)                               \
    [WF_OP_##NAME] = wf_infer_##infer,
#include "jit/ir/ops.def"
};

wf_op wf_op_parse(const char *s, size_t n)
{
    for (int op = WF_OP_INPUT; op < WF_OP_COUNT; op++) {
        const char *name = wf_rows[op].name;
        if (strlen(name) == n && memcmp(name, s, n) == 0) {
            return (wf_op)op;
        }
    }
    return WF_OP_INVALID;
}

int64_t wf_type_numel(const wf_type *t)
{
    /* Extents of 0 do not excuse the others: strides of an empty tensor are products too. */
    int64_t n = 1;
    bool empty = false;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0) {
            return -1;
        }
        empty |= t->dims[i] == 0;
        if (t->dims[i] != 0 && __builtin_mul_overflow(n, t->dims[i], &n)) {
            return -1;
        }
    }
    int64_t bytes;
    size_t size = t->dtype == WEFT_DTYPE_DEFAULT ? 1 : wf_dtype_size(t->dtype);
    if (__builtin_mul_overflow(n, (int64_t)size, &bytes)) {
        return -1;
    }
    return empty ? 0 : n;
}

/* -- sentences
 * ------------------------------------------------------------------------------------- */
int wf_fail(wf_why *why, int code, const char *rule_fmt, ...)
{
    if (why) {
        va_list args;
        va_start(args, rule_fmt);
        why->code = code;
        why->too_large = false;
        wf_plain_vsnprintf(why->rule, sizeof why->rule, rule_fmt, args);
        why->hint[0] = 0;
        va_end(args);
    }
    return code;
}

void wf_hint(wf_why *why, const char *fmt, ...)
{
    if (why) {
        va_list args;
        va_start(args, fmt);
        wf_plain_vsnprintf(why->hint, sizeof why->hint, fmt, args);
        va_end(args);
    }
}

int wf_too_many(wf_why *why, wf_op op, int n)
{
    wf_fail(why, WEFT_EUNSUPPORTED, "%s takes at most %d operands, not %d", wf_rows[op].name,
            WF_MOST_SRC, n);
    wf_hint(why, "join parts of the list first, then their results");
    return WEFT_EUNSUPPORTED;
}

const char *wf_ordinal(int i)
{
    static const char *const names[] = {"first", "second", "third",   "fourth",
                                        "fifth", "sixth",  "seventh", "eighth"};
    return i >= 0 && i < 8 ? names[i] : "a later";
}

/* -- checks
 * ---------------------------------------------------------------------------------------- */
int wf_check_attr(const wf_attr *attr, int n_ints, int n_dyn, int n_flt, wf_why *why)
{
    int have_i = attr ? attr->n_ints : 0;
    int have_d = attr ? attr->n_dyn : 0;
    int have_f = attr ? attr->n_flt : 0;
    if ((n_ints >= 0 && have_i != n_ints) || (n_dyn >= 0 && have_d != n_dyn) ||
        (n_flt >= 0 && have_f < n_flt)) {
        return wf_fail(why, WEFT_EINVALID,
                       "attributes do not fit the op: %d structure integers, %d sizes and %d "
                       "scalars given, %d, %d and %d needed",
                       have_i, have_d, have_f, n_ints < 0 ? have_i : n_ints,
                       n_dyn < 0 ? have_d : n_dyn, n_flt < 0 ? have_f : n_flt);
    }
    return 0;
}

int wf_check_axis(int64_t axis, int rank, wf_why *why)
{
    if (axis >= 0 && axis < rank) {
        return 0;
    }
    int code = wf_fail(why, WEFT_ESHAPE, "axis %" PRId64 " does not exist: the operand has rank %d",
                       axis, rank);
    if (rank > 0) {
        wf_hint(why, "axes run from 0 to %d, or from -%d to -1 counted from the end", rank - 1,
                rank);
    } else {
        wf_hint(why, "a scalar has no axes; give it one with weft_unsqueeze(x, 0)");
    }
    return code;
}

int wf_check_axes(const int64_t *axes, int n, int rank, wf_why *why)
{
    uint32_t seen = 0;
    for (int i = 0; i < n; i++) {
        int code = wf_check_axis(axes[i], rank, why);
        if (code) {
            return code;
        }
        if (seen & (1u << axes[i])) {
            code = wf_fail(why, WEFT_ESHAPE, "axis %" PRId64 " is named twice", axes[i]);
            wf_hint(why, "name every axis at most once");
            return code;
        }
        seen |= 1u << axes[i];
    }
    return 0;
}

int wf_check_dtype(const wf_type *t, int operand, unsigned mask, const char *what, wf_why *why)
{
    if (t->dtype < WEFT_DTYPE_COUNT && (WF_BIT(t->dtype) & mask)) {
        return 0;
    }
    int code = wf_fail(why, WEFT_EDTYPE, "the %s operand is %s; this op takes %s",
                       wf_ordinal(operand), wf_dtype_name(t->dtype), what);
    if (mask & WF_BIT(WEFT_F32)) {
        wf_hint(why, "convert it first: weft_cast(x, WEFT_F32)");
    } else {
        wf_hint(why, "convert it first: weft_cast(x, WEFT_I64)");
    }
    return code;
}

int wf_check_same_dtype(const wf_type *src, int a, int b, wf_why *why)
{
    if (src[a].dtype == src[b].dtype) {
        return 0;
    }
    int code = wf_fail(why, WEFT_EDTYPE, "element types differ: %s (%s operand) against %s (%s)",
                       wf_dtype_name(src[a].dtype), wf_ordinal(a), wf_dtype_name(src[b].dtype),
                       wf_ordinal(b));
    wf_hint(why, "convert one of them with weft_cast");
    return code;
}

int wf_check_index(const wf_type *src, int operand, wf_why *why)
{
    if (src[operand].dtype == WEFT_I64 || src[operand].dtype == WEFT_I32) {
        return 0;
    }
    int code = wf_fail(why, WEFT_EDTYPE, "indices must be i64 or i32; the %s operand is %s",
                       wf_ordinal(operand), wf_dtype_name(src[operand].dtype));
    wf_hint(why, "convert them: weft_cast(indices, WEFT_I64)");
    return code;
}

int wf_check_rank(const wf_type *src, int operand, int rank, const char *layout, wf_why *why)
{
    if (src[operand].rank == rank) {
        return 0;
    }
    int code = wf_fail(why, WEFT_ESHAPE, "the %s operand has rank %d; %d is needed, as %s",
                       wf_ordinal(operand), src[operand].rank, rank, layout);
    wf_hint(why, "add or remove axes with weft_reshape or weft_unsqueeze");
    return code;
}

int wf_check_result_dtype(int dt, wf_why *why)
{
    if (dt > WEFT_DTYPE_DEFAULT && dt < WEFT_DTYPE_COUNT) {
        return 0;
    }
    int code = wf_fail(why, WEFT_EDTYPE, "%d is not an element type", dt);
    wf_hint(why, "use one of WEFT_BOOL ... WEFT_F64");
    return code;
}

int wf_check_dims(wf_type *dst, const int64_t *dims, int rank, wf_why *why)
{
    if (rank < 0 || rank > WF_MAX_RANK) {
        int code = wf_fail(why, WEFT_ESHAPE, "the result would have rank %d; the limit is %d", rank,
                           WF_MAX_RANK);
        wf_hint(why, "merge axes with weft_reshape");
        return code;
    }
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            int code =
                wf_fail(why, WEFT_ESHAPE, "extent %" PRId64 " of axis %d is negative", dims[i], i);
            wf_hint(why, "extents are 0 or more");
            return code;
        }
        dst->dims[i] = dims[i];
    }
    dst->rank = (uint8_t)rank;
    return 0;
}

int wf_slice_length(int64_t n, int64_t start, int64_t stop, int64_t step, int64_t *length,
                    wf_why *why)
{
    if (step == 0 || step == INT64_MIN) {
        int code = wf_fail(why, WEFT_EINVALID, "a slice cannot have step %" PRId64, step);
        wf_hint(why, "use a step of 1, or -1 to walk backwards");
        return code;
    }
    bool good = step > 0 ? start >= 0 && start <= stop && stop <= n
                         : stop >= -1 && stop <= start && start < n;
    if (!good) {
        int code = wf_fail(why, WEFT_ESHAPE,
                           "slice %" PRId64 ":%" PRId64 ":%" PRId64
                           " does not lie in an axis of extent %" PRId64,
                           start, stop, step, n);
        wf_hint(why, "start and stop lie between 0 and %" PRId64, n);
        return code;
    }
    int64_t span = step > 0 ? stop - start : start - stop;
    int64_t stride = step > 0 ? step : -step;
    *length = span / stride + (span % stride != 0);
    return 0;
}

int wf_map_reach(int rank, const int64_t *dims, const int64_t *strides, int64_t *lo, int64_t *hi)
{
    *lo = *hi = 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 0) {
            return 0;
        }
    }
    for (int i = 0; i < rank; i++) {
        int64_t span, *end = strides[i] < 0 ? lo : hi;
        if (__builtin_mul_overflow(dims[i] - 1, strides[i], &span) ||
            __builtin_add_overflow(*end, span, end)) {
            return -1;
        }
    }
    return 1;
}

int wf_check_map(int rank, const int64_t *dims, const int64_t *strides, int64_t offset,
                 int64_t numel, wf_why *why)
{
    int64_t lo, hi;
    const int names = wf_map_reach(rank, dims, strides, &lo, &hi);
    if (names == 0) {
        return 0;
    }
    const bool overflow = names < 0 || __builtin_add_overflow(lo, offset, &lo) ||
                          __builtin_add_overflow(hi, offset, &hi);
    if (overflow || lo < 0 || hi >= numel) {
        int code = overflow ? wf_fail(why, WEFT_ESHAPE, "strides and extents overflow 64 bits")
                            : wf_fail(why, WEFT_ESHAPE,
                                      "strides and offset reach elements %" PRId64 " to %" PRId64
                                      "; the storage has %" PRId64,
                                      lo, hi, numel);
        wf_hint(why, "every element of the map must lie in the storage");
        return code;
    }
    return 0;
}

int wf_broadcast(wf_type *a, const wf_type *b, wf_why *why)
{
    int rank = a->rank > b->rank ? a->rank : b->rank;
    int64_t dims[WF_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int ia = i - (rank - a->rank);
        int ib = i - (rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->dims[ia];
        int64_t db = ib < 0 ? 1 : b->dims[ib];
        if (da != db && da != 1 && db != 1) {
            int code = wf_fail(why, WEFT_ESHAPE,
                               "extents %" PRId64 " and %" PRId64
                               " of axis %d (%d from the end) do not broadcast",
                               da, db, i, rank - i);
            wf_hint(why, "extents must be equal or one of them 1, matched from the last axis; "
                         "insert axes of extent 1 with weft_unsqueeze");
            return code;
        }
        dims[i] = da == 1 ? db : da;
    }
    a->rank = (uint8_t)rank;
    memcpy(a->dims, dims, (size_t)rank * sizeof dims[0]);
    return 0;
}

/* -- inference
 * ------------------------------------------------------------------------------------- */
static const char *mask_text(unsigned mask)
{
    switch (mask) {
    case WF_DT_F:
        return "floating-point types";
    case WF_DT_I:
        return "integer types";
    case WF_DT_BI:
        return "integer types and bool";
    case WF_DT_FI:
        return "floating-point and integer types";
    default:
        return "every element type";
    }
}

static int infer_elementwise(wf_op op, int nsrc, const wf_type *src, wf_type *dst, wf_why *why)
{
    const wf_row *row = &wf_rows[op];
    int first = row->kind == WF_KIND_CHOOSE;
    int code;
    if (first && src[0].dtype != WEFT_BOOL) {
        code = wf_fail(why, WEFT_EDTYPE, "the condition is %s; it must be bool",
                       wf_dtype_name(src[0].dtype));
        wf_hint(why, "compare first, for example weft_not_equal(c, weft_f(0))");
        return code;
    }
    dst[0] = src[0];
    for (int i = first; i < nsrc; i++) {
        if ((code = wf_check_dtype(&src[i], i, row->types, mask_text(row->types), why)) ||
            (code = wf_check_same_dtype(src, first, i, why)) ||
            (i > 0 && (code = wf_broadcast(&dst[0], &src[i], why)))) {
            return code;
        }
    }
    bool to_bool = row->kind == WF_KIND_PREDICATE || row->kind == WF_KIND_COMPARE;
    dst[0].dtype = to_bool ? WEFT_BOOL : src[first].dtype;
    return 0;
}

/* Operand count, and every required operand is there. */
static int check_operands(wf_op op, int nsrc, const wf_type *src, wf_why *why)
{
    const wf_row *row = &wf_rows[op];
    if (nsrc < row->min_src || (row->max_src && nsrc > row->max_src)) {
        if (row->max_src == row->min_src) {
            return wf_fail(why, WEFT_EINVALID, "%d operands given, %d needed", nsrc, row->min_src);
        }
        return wf_fail(why, WEFT_EINVALID, "%d operands given; at least %d are needed", nsrc,
                       row->min_src);
    }
    for (int i = 0; i < nsrc; i++) {
        bool required = i < row->min_src || row->max_src == 0;
        if (required && !wf_type_present(&src[i])) {
            return wf_fail(why, WEFT_EINVALID, "the %s operand is missing", wf_ordinal(i));
        }
        if (src[i].dtype >= WEFT_DTYPE_COUNT || src[i].rank > WF_MAX_RANK) {
            return wf_fail(why, WEFT_EINVALID, "the %s operand has no valid type", wf_ordinal(i));
        }
    }
    return 0;
}

int wf_infer(wf_op op, const wf_attr *attr, int nsrc, const wf_type *src, wf_type *dst, wf_why *why)
{
    if (op <= WF_OP_RESULT || op >= WF_OP_COUNT) {
        return wf_fail(why, WEFT_EINVALID, "op %d is not a row of the table", (int)op);
    }
    int code = check_operands(op, nsrc, src, why);
    if (code) {
        return code;
    }
    code = infer_of[op] ? infer_of[op](op, attr, nsrc, src, dst, why)
                        : infer_elementwise(op, nsrc, src, dst, why);
    for (int i = 0; !code && i < wf_rows[op].ndst; i++) {
        if (wf_type_numel(&dst[i]) < 0) {
            code = wf_fail(why, WEFT_ENOMEM, "the size of the result overflows 64 bits");
            wf_hint(why, "check the extents: one of them is far larger than memory");
        }
    }
    if (code == WEFT_ENOMEM && why) { /* nothing here allocates */
        why->too_large = true;
    }
    return code;
}
