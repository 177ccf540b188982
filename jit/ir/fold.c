/*
 * jit/ir/fold.c -- the rules of fold.def: what each does when its operators fit.
 *
 * A body looks at the instruction in *x and answers 0 (not this one), a value that *x is, or
 * WF_FOLD_AGAIN after rewriting *x in place. Rules are found by op: a list per op, made once, with
 * the most specific operands first.
 *
 * Requirements on whoever adds a rule stand in fold.def.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "jit/ir/build.h"

/* Operand n of the instruction that made v. */
static wf_val inner(const wf_folding *x, wf_val v, int n)
{
    return wf_fn_at(x->f, v)->src[n];
}

static wf_val left(const wf_folding *x)
{
    return inner(x, x->src[0], 0);
}

static bool is_float(const wf_folding *x)
{
    return wf_dtype_kind(x->type->dtype) == 2;
}

/* *x becomes op(a, b). */
static wf_val become(wf_folding *x, wf_op op, int nsrc, wf_val a, wf_val b)
{
    x->op = op;
    x->nsrc = nsrc;
    x->src[0] = a;
    x->src[1] = b;
    x->src[2] = 0;
    return WF_FOLD_AGAIN;
}

/* op(inner(y)) = op(y). */
static wf_val skip_inner(wf_folding *x)
{
    x->src[0] = left(x);
    return WF_FOLD_AGAIN;
}

static wf_val same_operands(const wf_folding *x)
{
    return x->src[0] == x->src[1] ? x->src[0] : 0;
}

/* -- signs --------------------------------------------------------------------------------------------- */

static wf_val fold_NEG_NEG(wf_folding *x)
{
    return left(x);
}
static wf_val fold_ABS_ABS(wf_folding *x)
{
    return x->src[0];
}
static wf_val fold_ABS_NEG(wf_folding *x)
{
    return x->type->dtype == WEFT_U8 ? 0 : skip_inner(x);
}
static wf_val fold_SQUARE_NEG(wf_folding *x)
{
    return skip_inner(x);
}
static wf_val fold_SQUARE_ABS(wf_folding *x)
{
    return skip_inner(x);
}
static wf_val fold_SIGN_SIGN(wf_folding *x)
{
    return x->src[0];
}
static wf_val fold_ADD_NEG_LEFT(wf_folding *x)
{
    return become(x, WF_OP_SUB, 2, x->src[1], left(x));
}
static wf_val fold_ADD_NEG_RIGHT(wf_folding *x)
{
    return become(x, WF_OP_SUB, 2, x->src[0], inner(x, x->src[1], 0));
}
static wf_val fold_SUB_NEG_RIGHT(wf_folding *x)
{
    return become(x, WF_OP_ADD, 2, x->src[0], inner(x, x->src[1], 0));
}
static wf_val fold_MUL_NEG_NEG(wf_folding *x)
{
    return become(x, x->op, 2, left(x), inner(x, x->src[1], 0));
}
static wf_val fold_DIV_NEG_NEG(wf_folding *x)
{
    return fold_MUL_NEG_NEG(x);
}
static wf_val fold_FMA_NEG_NEG(wf_folding *x)
{
    wf_val c = x->src[2];
    become(x, x->op, 3, left(x), inner(x, x->src[1], 0));
    x->src[2] = c;
    return WF_FOLD_AGAIN;
}

/* -- idempotence --------------------------------------------------------------------------------------- */

static wf_val fold_RELU_RELU(wf_folding *x)
{
    return x->src[0];
}
static wf_val fold_RELU_RELU6(wf_folding *x)
{
    return x->src[0];
}
static wf_val fold_RELU6_RELU(wf_folding *x)
{
    return skip_inner(x);
}
static wf_val fold_RELU6_RELU6(wf_folding *x)
{
    return x->src[0];
}
static wf_val fold_RELU_ABS(wf_folding *x)
{
    return is_float(x) ? x->src[0] : 0;
}
static wf_val fold_RELU_SQUARE(wf_folding *x)
{
    return is_float(x) ? x->src[0] : 0;
}
/* Whole numbers already: integers, or a rounding below. */
static wf_val fold_rounding(wf_folding *x)
{
    int op = wf_fn_at(x->f, x->src[0])->op;
    bool whole = op == WF_OP_FLOOR || op == WF_OP_CEIL || op == WF_OP_TRUNC || op == WF_OP_ROUND;
    return whole || !is_float(x) ? x->src[0] : 0;
}
static wf_val fold_FLOOR(wf_folding *x)
{
    return fold_rounding(x);
}
static wf_val fold_CEIL(wf_folding *x)
{
    return fold_rounding(x);
}
static wf_val fold_TRUNC(wf_folding *x)
{
    return fold_rounding(x);
}
static wf_val fold_ROUND(wf_folding *x)
{
    return fold_rounding(x);
}
static wf_val fold_MAX_SAME(wf_folding *x)
{
    return same_operands(x);
}
static wf_val fold_MIN_SAME(wf_folding *x)
{
    return same_operands(x);
}

/* -- bits and truth -------------------------------------------------------------------------------------- */

static wf_val fold_NOT_NOT(wf_folding *x)
{
    return left(x);
}
static wf_val fold_AND_SAME(wf_folding *x)
{
    return same_operands(x);
}
static wf_val fold_OR_SAME(wf_folding *x)
{
    return same_operands(x);
}
static wf_val fold_LNOT_LNOT(wf_folding *x)
{
    return left(x); /* refused unless left(x) is bool as well */
}
static wf_val negate_compare(wf_folding *x, wf_op op, bool swap, bool whole)
{
    wf_val a = left(x), b = inner(x, x->src[0], 1);
    bool flt = wf_dtype_kind(wf_fn_type(x->f, a)->dtype) == 2 ||
               wf_dtype_kind(wf_fn_type(x->f, b)->dtype) == 2;
    if (whole && flt) {
        return 0;
    }
    return become(x, op, 2, swap ? b : a, swap ? a : b);
}
static wf_val fold_LNOT_EQUAL(wf_folding *x)
{
    return negate_compare(x, WF_OP_NOT_EQUAL, false, false);
}
static wf_val fold_LNOT_NOT_EQUAL(wf_folding *x)
{
    return negate_compare(x, WF_OP_EQUAL, false, false);
}
static wf_val fold_LNOT_LESS(wf_folding *x)
{
    return negate_compare(x, WF_OP_LESS_EQUAL, true, true);
}
static wf_val fold_LNOT_LESS_EQUAL(wf_folding *x)
{
    return negate_compare(x, WF_OP_LESS, true, true);
}
static wf_val fold_LAND_SAME(wf_folding *x)
{
    return same_operands(x);
}
static wf_val fold_LOR_SAME(wf_folding *x)
{
    return same_operands(x);
}
static wf_val fold_GREATER(wf_folding *x)
{
    return become(x, WF_OP_LESS, 2, x->src[1], x->src[0]);
}
static wf_val fold_GREATER_EQUAL(wf_folding *x)
{
    return become(x, WF_OP_LESS_EQUAL, 2, x->src[1], x->src[0]);
}
static wf_val fold_WHERE_SAME(wf_folding *x)
{
    return x->src[1] == x->src[2] ? x->src[1] : 0;
}
static wf_val fold_WHERE_NOT(wf_folding *x)
{
    wf_val p = left(x), a = x->src[1];
    if (wf_fn_type(x->f, p)->dtype != WEFT_BOOL) {
        return 0;
    }
    x->src[0] = p;
    x->src[1] = x->src[2];
    x->src[2] = a;
    return WF_FOLD_AGAIN;
}

/* -- casts ----------------------------------------------------------------------------------------------- */

/* Bits of an integer's magnitude. */
static int magnitude(int dt)
{
    int bits = 8 * (int)wf_dtype_size(dt);
    return dt == WEFT_BOOL ? 1 : dt == WEFT_U8 ? 8 : bits - 1;
}

/* Does type b hold every value of type a? */
static bool holds(int b, int a)
{
    static const int digits[WEFT_DTYPE_COUNT] = {
        [WEFT_F16] = 11, [WEFT_BF16] = 8, [WEFT_F32] = 24, [WEFT_F64] = 53};
    int ka = wf_dtype_kind(a), kb = wf_dtype_kind(b);
    if (a == b || a == WEFT_BOOL) {
        return true;
    }
    if (ka == 2) {
        return kb == 2 && digits[b] > digits[a] && b != WEFT_F16 &&
               wf_dtype_size(b) > wf_dtype_size(a);
    }
    if (kb == 2) { /* f16 reaches 65504: further than 11 bits */
        return magnitude(a) <= digits[b];
    }
    return kb == 1 && magnitude(b) >= magnitude(a) && (a == WEFT_U8 || b != WEFT_U8);
}

/* cast(cast(y)): through `mid` nothing is lost if mid holds every value of y's type and the second cast
 * does the same to both; or among integers, if mid has the bits that the result keeps. */
static wf_val fold_CAST_CAST(wf_folding *x)
{
    int from = wf_fn_type(x->f, left(x))->dtype, mid = wf_fn_type(x->f, x->src[0])->dtype;
    int to = x->type->dtype;
    bool whole = wf_dtype_kind(from) == 1 && wf_dtype_kind(mid) == 1 && wf_dtype_kind(to) == 1;
    bool fits = holds(mid, from);
    if (fits && wf_dtype_kind(mid) == 2 && wf_dtype_kind(from) < 2 && wf_dtype_kind(to) == 1) {
        fits = holds(to, from); /* floats saturate where integers wrap */
    }
    fits |= whole && wf_dtype_size(mid) >= wf_dtype_size(to);
    return fits ? skip_inner(x) : 0;
}
static wf_val fold_CAST_SAME(wf_folding *x)
{
    return x->src[0]; /* refused when the types differ */
}

/* -- storage, views ---------------------------------------------------------------------------------------- */

static wf_val fold_DETACH(wf_folding *x)
{
    return x->src[0];
}
/* as_strided names elements by their place in row-major order; a plan composes it with memory that is in that
 * order, so the copy that made a view into such memory stays. */
static bool is_view(const wf_folding *x, wf_val v)
{
    const wf_ins *i = wf_fn_at(x->f, v);
    while (i->op == WF_OP_RESHAPE || i->op == WF_OP_DETACH) {
        i = wf_fn_at(x->f, i->src[0]);
    }
    return wf_rows[i->op].kind == WF_KIND_VIEW;
}
static wf_val fold_COPY(wf_folding *x)
{
    return is_view(x, x->src[0]) ? 0 : x->src[0];
}
static wf_val fold_RESHAPE_SAME(wf_folding *x)
{
    return x->src[0];
}
static wf_val fold_RESHAPE_RESHAPE(wf_folding *x)
{
    return skip_inner(x);
}
static wf_val fold_EXPAND_SAME(wf_folding *x)
{
    return x->src[0];
}
static wf_val fold_EXPAND_EXPAND(wf_folding *x)
{
    return skip_inner(x);
}
static wf_val fold_PERMUTE_SAME(wf_folding *x)
{
    for (int i = 0; i < x->attr.n_ints; i++) {
        if (x->attr.ints[i] != i) {
            return 0;
        }
    }
    return x->src[0];
}
static wf_val fold_PERMUTE_PERMUTE(wf_folding *x)
{
    const wf_attr *first = wf_ins_attr(x->f, wf_fn_at(x->f, x->src[0]));
    int64_t axes[WF_MAX_RANK];
    for (int i = 0; i < x->attr.n_ints; i++) {
        axes[i] = first->ints[x->attr.ints[i]];
    }
    memcpy(x->ints, axes, x->attr.n_ints * sizeof axes[0]);
    x->attr.ints = x->ints;
    return skip_inner(x);
}
static wf_val fold_SLICE_ALL(wf_folding *x)
{
    int64_t n = wf_fn_type(x->f, x->src[0])->dims[x->attr.ints[0]];
    bool all = x->type->dims[x->attr.ints[0]] == n && (n <= 1 || x->attr.dyn[2] == 1);
    return all ? x->src[0] : 0;
}

/* *x becomes v in the shape of the result. */
static wf_val become_reshape(wf_folding *x, wf_val v)
{
    x->attr = (wf_attr){.n_dyn = x->type->rank, .dyn = x->ints};
    memcpy(x->ints, x->type->dims, x->type->rank * sizeof x->ints[0]);
    return become(x, WF_OP_RESHAPE, 1, v, 0);
}

/* Does the map of a view reach all `total` elements in row-major order? Its offset is 0 then, since
 * inference keeps maps inside. */
static bool is_whole(const wf_type *t, const int64_t *dims, const int64_t *strides, int rank)
{
    int64_t n = 1, total = wf_type_numel(t);
    for (int i = rank; i-- > 0;) {
        if ((dims[i] != 1 && strides[i] != n) || WF_IS_SYM(dims[i]) ||
            __builtin_mul_overflow(n, dims[i], &n)) {
            return false;
        }
    }
    return n > 0 && n == total;
}
static wf_val fold_STRIDED_ALL(wf_folding *x)
{
    int rank = (int)x->attr.ints[0];
    const wf_type *t = wf_fn_type(x->f, x->src[0]);
    bool inside = is_whole(t, x->attr.dyn, x->attr.dyn + rank, rank);
    return inside ? become_reshape(x, x->src[0]) : 0;
}
static wf_val fold_UPDATE_ALL(wf_folding *x)
{
    int rank = wf_fn_type(x->f, x->src[1])->rank;
    bool all = is_whole(x->type, x->attr.dyn, x->attr.dyn + rank, rank);
    return all && !is_view(x, x->src[1]) ? become_reshape(x, x->src[1]) : 0;
}

/* -- reductions ---------------------------------------------------------------------------------------------- */

/* A reduction over axes of one element each is a reshape, and nothing where the shape stays. */
static wf_val fold_reduce_one(wf_folding *x)
{
    const wf_type *t = wf_fn_type(x->f, x->src[0]);
    if (t->dtype != x->type->dtype || (x->attr.n_ints == 0 && t->rank > 0)) {
        return 0;
    }
    for (int i = 0; i < x->attr.n_ints; i++) {
        if (t->dims[x->attr.ints[i]] != 1) {
            return 0;
        }
    }
    return become_reshape(x, x->src[0]);
}
static wf_val fold_SUM_ONE(wf_folding *x)
{
    return fold_reduce_one(x);
}
static wf_val fold_AMAX_ONE(wf_folding *x)
{
    return fold_reduce_one(x);
}
static wf_val fold_AMIN_ONE(wf_folding *x)
{
    return fold_reduce_one(x);
}

/* -- numbers ------------------------------------------------------------------------------------------------- */

/* The bits of a CONST operand are those of `want`; integers take either zero. */
static bool is_number(const wf_folding *x, int operand, double want)
{
    const wf_ins *i = wf_fn_at(x->f, x->src[operand]);
    int kind = x->f->slot_kind[i->attr];
    double have = wf_slot_f64(kind, x->f->slots[i->attr]);
    bool same =
        kind == 2 ? x->f->slots[i->attr] == wf_slot_bits(2, want) : have == want && !signbit(want);
    return same || (!is_float(x) && have == want);
}
static wf_val fold_MUL_ONE(wf_folding *x)
{
    return is_number(x, 1, 1) ? x->src[0] : 0;
}
static wf_val fold_MUL_ONE_LEFT(wf_folding *x)
{
    return is_number(x, 0, 1) ? x->src[1] : 0;
}
static wf_val fold_DIV_ONE(wf_folding *x)
{
    return fold_MUL_ONE(x);
}
static wf_val fold_ADD_ZERO(wf_folding *x)
{
    return is_number(x, 1, -0.0) ? x->src[0] : 0;
}
static wf_val fold_ADD_ZERO_LEFT(wf_folding *x)
{
    return is_number(x, 0, -0.0) ? x->src[1] : 0;
}
static wf_val fold_SUB_ZERO(wf_folding *x)
{
    return is_number(x, 1, 0.0) ? x->src[0] : 0;
}

/* -- fast ------------------------------------------------------------------------------------------------------ */

static wf_val fold_NEG_SUB(wf_folding *x)
{
    return become(x, WF_OP_SUB, 2, inner(x, x->src[0], 1), left(x));
}
static wf_val fold_SQRT_SQUARE(wf_folding *x)
{
    return become(x, WF_OP_ABS, 1, left(x), 0);
}
static wf_val fold_SQUARE_SQRT(wf_folding *x)
{
    return left(x);
}
static wf_val fold_EXP_LOG(wf_folding *x)
{
    return left(x);
}
static wf_val fold_LOG_EXP(wf_folding *x)
{
    return left(x);
}

/* -- the table --------------------------------------------------------------------------------------------------- */

enum { WF_OP_X = WF_OP_INVALID };

const wf_fold_info wf_fold_rules[WF_FOLD_COUNT] = {
#define FOLD(NAME, o, l, r, c, text)                                                               \
    [WF_FOLD_##NAME] = {.name = #NAME,                                                             \
                        .law = text,                                                               \
                        .op = WF_OP_##o,                                                           \
                        .left = WF_OP_##l,                                                         \
                        .right = WF_OP_##r,                                                        \
                        .class = WF_FOLD_##c},
#include "jit/ir/fold.def"
};

static wf_val (*const bodies[WF_FOLD_COUNT])(wf_folding *x) = {
#define FOLD(NAME, op, left, right, class, law) [WF_FOLD_##NAME] = fold_##NAME,
#include "jit/ir/fold.def"
};

/* Rules of each op: order[first[op]] to order[first[op + 1] - 1]. */
static uint16_t first[WF_OP_COUNT + 1], order[WF_FOLD_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int wildcards(const wf_fold_info *r)
{
    return (r->left == WF_OP_X) + (r->right == WF_OP_X);
}

static void sort_rules(void)
{
    uint16_t n = 0;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        first[op] = n;
        for (int wild = 0; wild <= 2; wild++) {
            for (int r = 0; r < WF_FOLD_COUNT; r++) {
                if (wf_fold_rules[r].op == op && wildcards(&wf_fold_rules[r]) == wild) {
                    order[n++] = (uint16_t)r;
                }
            }
        }
    }
    first[WF_OP_COUNT] = n;
}

bool wf_fold_has(wf_op op)
{
    pthread_once(&once, sort_rules);
    return first[op] < first[op + 1];
}

wf_val wf_fold_step(wf_folding *x, int classes, wf_fold_rule *rule)
{
    pthread_once(&once, sort_rules);
    if (first[x->op] == first[x->op + 1]) {
        return 0;
    }
    int a = x->nsrc > 0 && x->src[0] ? wf_fn_at(x->f, x->src[0])->op : 0;
    int b = x->nsrc > 1 && x->src[1] ? wf_fn_at(x->f, x->src[1])->op : 0;
    for (int k = first[x->op]; k < first[x->op + 1]; k++) {
        const wf_fold_info *r = &wf_fold_rules[order[k]];
        if ((r->left == WF_OP_X || r->left == a) && (r->right == WF_OP_X || r->right == b) &&
            (r->class & classes)) {
            wf_val v = bodies[order[k]](x);
            if (v) {
                *rule = (wf_fold_rule)order[k];
                return v;
            }
        }
    }
    return 0;
}
