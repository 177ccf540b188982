/*
 * eager/weak.c -- numbers that an integer type does not hold.
 *
 * A number beside integer tensors takes their type (docs/dtypes.md). One that the type does not hold is never cut down
 * in silence; what becomes of it is a rule of the row:
 *  - comparisons run in a type that holds it: their result is bool, so nobody sees which;
 *  - bounds (maximum, minimum, clamp) become the type's own end: clamping every operand clamps the result, which is
 *    exact wherever the exact result is in the type, and refused where it cannot be;
 *  - sums, products and bits wrap: the low bits of the number give the low bits of the exact result, which is what
 *    integer arithmetic means by wrapping, and what NumPy before 2 and PyTorch do;
 *  - counts of shifts become the largest number of the type: more than the width, as they were;
 *  - everything else (where, quotients, remainders, values that are written) is an error.
 * All of it happens at the call, so that kernels, traces and devices only ever see numbers of the type.
 *
 * Invariant: called only where a number does not fit; the caller's operands are not changed.
 */
#include <string.h>

#include "eager/call.h"

typedef enum rule { REFUSE, WRAP, WIDEN, BOUND, COUNT } rule;

static const uint8_t rules[WF_OP_COUNT] = {
#define COMPARE(NAME, name, types, expr) [WF_OP_##NAME] = WIDEN,
#include "jit/ir/ops.def"
    [WF_OP_MAXIMUM] = BOUND,    [WF_OP_MINIMUM] = BOUND,    [WF_OP_CLAMP] = BOUND,
    [WF_OP_ADD] = WRAP,         [WF_OP_SUB] = WRAP,         [WF_OP_MUL] = WRAP,
    [WF_OP_ADDCMUL] = WRAP,     [WF_OP_BITWISE_AND] = WRAP, [WF_OP_BITWISE_OR] = WRAP,
    [WF_OP_BITWISE_XOR] = WRAP, [WF_OP_SHIFT_LEFT] = COUNT, [WF_OP_SHIFT_RIGHT] = COUNT,
};

static int64_t high_of(int dt)
{
    return dt == WEFT_BOOL ? 1
           : dt == WEFT_U8 ? UINT8_MAX
                           : INT64_MAX >> (64 - 8 * (int)wf_dtype_size(dt));
}

static int64_t low_of(int dt)
{
    return dt == WEFT_BOOL || dt == WEFT_U8 ? 0 : -high_of(dt) - 1;
}

int64_t wf_dtype_clamped(int dt, int64_t v)
{
    return v < low_of(dt) ? low_of(dt) : v > high_of(dt) ? high_of(dt) : v;
}

/* The smallest type that holds v and everything of dt. */
static int holder(int dt, int64_t v)
{
    static const uint8_t wider[] = {WEFT_I16, WEFT_I32, WEFT_I64};
    int i = 0;
    while (i < 2 && !wf_dtype_holds(wider[i], v)) {
        i++;
    }
    return wf_dtype_promote(dt, wider[i]);
}

int wf_refuse_number(wf_why *why, int64_t v, int dt, bool tensor)
{
    static const char *const macros[] = {
        [WEFT_I16] = "WEFT_I16", [WEFT_I32] = "WEFT_I32", [WEFT_I64] = "WEFT_I64"};
    wf_fail(why, WEFT_EINVALID, "%lld is outside of %s, which holds %lld to %lld", (long long)v,
            wf_dtype_name(dt), (long long)low_of(dt), (long long)high_of(dt));
    wf_hint(why, tensor ? "cast the tensor first: weft_cast(x, %s)" : "ask for %s",
            macros[holder(dt, v)]);
    return why->code;
}

/* Below (-1), in (0) or above (1) the type; tensors are in it. */
static int side(const wf_call *k, int i, int dt)
{
    if (k->slot[i] || !wf_is_scalar(k->src[i]) || k->src[i].context != WF_SCALAR_INT) {
        return 0;
    }
    int64_t v = (int64_t)k->src[i].serial;
    return wf_dtype_holds(dt, v) ? 0 : v < 0 ? -1 : 1;
}

/* Is every result of these bounds on one side of the type? */
static bool bounds_miss(const wf_call *k, int dt)
{
    int a = side(k, 0, dt), b = side(k, 1, dt);
    if (k->op == WF_OP_CLAMP) {
        int top = side(k, 2, dt);
        return top < 0 || (a < 0 && b < 0) || (top > 0 && (a > 0 || b > 0));
    }
    return k->op == WF_OP_MAXIMUM ? a > 0 || b > 0 : a < 0 || b < 0;
}

/* Operand i, a number outside of dt, for every rule but WIDEN. 0 or a status with why filled. */
static int replace(wf_call *k, int i, int dt, weft_tensor *t)
{
    bool is_count = rules[k->op] == COUNT && i == 1;
    if (rules[k->op] == BOUND && !bounds_miss(k, dt)) {
        t->serial = (uint64_t)wf_dtype_clamped(dt, (int64_t)t->serial);
        return 0;
    }
    if (is_count) {
        t->serial = (uint64_t)high_of(dt);
        return 0;
    }
    if (rules[k->op] == WRAP || k->op == WF_OP_SHIFT_LEFT) {
        return 0; /* whoever stores it keeps the low bits */
    }
    return wf_refuse_number(&k->why, (int64_t)t->serial, dt, true);
}

int wf_call_fit_numbers(wf_call *k, int first, int join, weft_tensor *held)
{
    int type = join;
    memcpy(held, k->src, (size_t)k->nsrc * sizeof *held);
    for (int i = first; i < k->nsrc; i++) {
        if (side(k, i, join) == 0) {
            continue;
        }
        if (rules[k->op] == WIDEN) {
            type = wf_dtype_promote(type, holder(join, (int64_t)held[i].serial));
        } else if (replace(k, i, join, &held[i])) {
            return 0;
        }
    }
    k->src = held;
    return type;
}
