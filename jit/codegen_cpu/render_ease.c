/*
 * jit/codegen_cpu/render_ease.c -- a body in primitives that take less time where an operand is uniform.
 *
 * The maximum of IEEE 754 (NaN propagates, -0 < +0) is four instructions of vectors. With a uniform operand s it is
 *
 *     max(a, s) = (s > a ? s : a) + fix(s),   fix(s) = s if it is NaN, +0 if it is +0, else -0
 *
 * two, since `s > a ? s : a` is one (maxps) and fix(s) is computed once a launch. The choice is right but
 * where it picks the wrong one of two zeros, or drops a NaN: of a NaN a it takes a; adding NaN gives NaN; adding +0
 * makes +0 of either zero, which is max(-0, +0) and max(+0, +0); adding -0 changes no bits of anything. With a
 * constant s the addition is only there for +0. The minimum has no such sum (nothing makes -0 of +0), so only
 * constants are eased: s < a ? s : a, with <= for -0, which beats +0.
 *
 * A division by a uniform s has the divider do what it did for the element before. With y = 1 / s, rounded, the
 * quotient is
 *
 *     q0 = a y,   q = q0 - (q0 s - a) y        (each difference one fma)
 *
 * The last fma rounds a / s + e, |e| = |a / s - q0| |1 - s y|. Were it to round to another float than a / s does, a midpoint M
 * of two floats would be between. Say s in (1, 2), a / s in [1/2, 1), u = 2^-24 the unit there: |1 - s y| <= s u / 2. q0 is
 * less than 3/2 units off, and where a / s is as close to M as e is large it is one of the two floats beside M, half a
 * unit away: |e| <= s u^2 / 4, while a / s, a quotient of integers below 2^24, is at least u^2 / s from M, which is more.
 * In [1, 2), u = 2^-23, it is s u^2 / 8 and u^2 / 2s. (Markstein's theorem; y must be the rounded reciprocal, as it is. Tried for
 * every a with a thousand divisors, and for the quotients closest to midpoints of all divisors.) Exactness needs operands in
 * the middle of the exponents: s in [2^-30, 2^30), |a| in [2^-90, 2^90] or 0; zeros keep their sign, since their residual is
 * +0. Other elements are rare: the whole body divides. Where a is known to be small (wf_port) only the lower end is tested,
 * and a NaN takes either way.
 *
 * A relaxed division by a uniform s is a multiplication by 1 / s, computed once.
 *
 * Invariant: the bits of every value that is read are those of the program given (any NaN is any NaN), but for that.
 */
#include <stdlib.h>

#include "jit/codegen_cpu/render.h"

/* Bits of +0 are 0. */
static uint64_t minus_zero(wf_kty type)
{
    return UINT64_C(1) << (wf_kty_bits(type) - 1);
}

static bool is_nan(wf_kty type, uint64_t bits)
{
    const uint64_t inf = type == WF_KT_F32 ? UINT64_C(0x7F800000) : UINT64_C(0x7FF0000000000000);
    return (bits & ~minus_zero(type)) > inf;
}

/* Which instructions are the same for every element; constants are. */
static void find_uniform(const wf_kir *k, const bool *uniform_param, bool *uniform)
{
    for (uint32_t n = 0; n < k->n; n++) {
        const wf_kinstr *i = &k->ins[n];
        uniform[n] = i->prim != WF_KP_PARAM || uniform_param[i->imm];
        for (int s = 0; s < i->nsrc; s++)
            uniform[n] &= uniform[i->src[s]];
    }
}

/* The uniform operand of a maximum or minimum that can be eased: 0 or 1, or -1. */
static int easy_operand(const wf_kir *k, const wf_kinstr *i, const bool *uniform)
{
    if ((i->prim != WF_KP_MAX && i->prim != WF_KP_MIN) || !wf_kty_is_float((wf_kty)i->type) ||
        uniform[i->src[0]] == uniform[i->src[1]])
        return -1;
    const int side = uniform[i->src[1]];
    const wf_kinstr *s = &k->ins[i->src[side]];
    const bool known = s->prim == WF_KP_CONST;
    return known ? (is_nan((wf_kty)s->type, s->imm) ? -1 : side)
                 : (i->prim == WF_KP_MAX ? side : -1);
}

/* s of k, in d: what is added to the choice. */
static wf_kref fix(wf_kir *d, const wf_kinstr *i, wf_kref s)
{
    const wf_kty type = (wf_kty)i->type;
    const bool wide = type == WF_KT_F64;
    const wf_kref bits =
        wf_kir_op(d, wide ? WF_KP_BITS64 : WF_KP_BITS32, s, WF_KREF_NONE, WF_KREF_NONE);
    const wf_kref none = wf_kir_const(d, wide ? WF_KT_U64 : WF_KT_U32, 0);
    const wf_kref zero = wf_kir_op(d, WF_KP_EQ, bits, none, WF_KREF_NONE);
    const wf_kref sign = wf_kir_op(d, WF_KP_SELECT, zero, wf_kir_const(d, type, 0),
                                   wf_kir_const(d, type, minus_zero(type)));
    return wf_kir_op(d, WF_KP_SELECT, wf_kir_op(d, WF_KP_NE, s, s, WF_KREF_NONE), s, sign);
}

static wf_kref ease(wf_kir *d, const wf_kir *k, const wf_kinstr *i, int side, const wf_kref *map)
{
    const wf_kinstr *from = &k->ins[i->src[side]];
    const wf_kref s = map[i->src[side]], a = map[i->src[1 - side]];
    const wf_kprim test = i->prim == WF_KP_MAX                          ? WF_KP_GT
                          : from->imm == minus_zero((wf_kty)from->type) ? WF_KP_LE
                                                                        : WF_KP_LT;
    const wf_kref y = wf_kir_op(d, WF_KP_SELECT, wf_kir_op(d, test, s, a, WF_KREF_NONE), s, a);
    if (i->prim == WF_KP_MIN || (from->prim == WF_KP_CONST && from->imm != 0))
        return y;
    const wf_kref add =
        from->prim == WF_KP_CONST ? wf_kir_const(d, (wf_kty)i->type, 0) : fix(d, i, s);
    return wf_kir_op(d, WF_KP_ADD, y, add, WF_KREF_NONE);
}

/* A quotient that may take the reciprocal of its divisor, which is the same for every element. */
static bool is_relaxed_division(const wf_kinstr *i, const bool *uniform)
{
    return i->prim == WF_KP_DIV && i->relaxed && uniform[i->src[1]] && !uniform[i->src[0]];
}

static wf_kref by_reciprocal(wf_kir *d, const wf_kinstr *i, const wf_kref *map)
{
    const wf_kref one = i->type == WF_KT_F32 ? wf_kir_f32(d, 1.0F) : wf_kir_f64(d, 1.0);
    const wf_kref y = wf_kir_op(d, WF_KP_DIV, one, map[i->src[1]], WF_KREF_NONE);
    const wf_kref q = wf_kir_op(d, WF_KP_MUL, map[i->src[0]], y, WF_KREF_NONE);
    wf_kir_relax(d, d->n - 1);
    return q;
}

static int rewrite(const wf_kir *k, const bool *uniform, wf_kref *map, wf_kir *d, wf_why *why)
{
    for (uint32_t p = 0; p < k->nparam; p++)
        wf_kir_param(d, (wf_kty)k->param_type[p]);
    for (uint32_t n = 0; n < k->n; n++) {
        const wf_kinstr *i = &k->ins[n];
        const int side = easy_operand(k, i, uniform);
        map[n] = i->prim == WF_KP_PARAM            ? d->param[i->imm]
                 : is_relaxed_division(i, uniform) ? by_reciprocal(d, i, map)
                 : side < 0                        ? wf_ll_copy_instr(d, k, n, map)
                                                   : ease(d, k, i, side, map);
    }
    for (uint32_t o = 0; o < k->nout; o++)
        wf_kir_output(d, map[k->out[o]]);
    d->rare = k->rare == WF_KREF_NONE ? WF_KREF_NONE : map[k->rare];
    return wf_kir_finish(d, why);
}

/* -- division --------------------------------------------------------------------------------------------------- */
static bool is_shared_division(const wf_kinstr *i, const bool *uniform)
{
    return i->prim == WF_KP_DIV && i->type == WF_KT_F32 && !i->relaxed && uniform[i->src[1]] &&
           !uniform[i->src[0]];
}

static wf_kref u32(wf_kir *d, uint32_t x)
{
    return wf_kir_const(d, WF_KT_U32, x);
}
#define OP1(prim, a) wf_kir_op(d, WF_KP_##prim, a, WF_KREF_NONE, WF_KREF_NONE)
#define OP2(prim, a, b) wf_kir_op(d, WF_KP_##prim, a, b, WF_KREF_NONE)
#define OP3(prim, a, b, c) wf_kir_op(d, WF_KP_##prim, a, b, c)

/* a / s, and what is tested of a. */
static wf_kref quick_quotient(wf_kir *d, wf_kref a, wf_kref s, bool small_a, wf_kref *test)
{
    enum { TWO_M30 = 0x30800000, TWO_60_MORE = 60 << 23, TWO_M90 = 0x12800000 };
    const wf_kref fits = OP2(LT, OP2(SUB, OP1(BITS32, s), u32(d, TWO_M30)), u32(d, TWO_60_MORE));
    const wf_kref bits = OP1(BITS32, a);
    const wf_kref size = small_a ? bits : OP2(IAND, bits, u32(d, INT32_MAX));
    /* magnitudes minus one up to here are too small; those of 0 and of all elements of a bad s: */
    test[WF_LL_LIMIT] = OP3(SELECT, fits, u32(d, TWO_M90 - 2), u32(d, UINT32_MAX));
    test[WF_LL_LEAST] = OP2(SUB, size, u32(d, 1));
    test[WF_LL_MOST] = small_a ? WF_KREF_NONE : size;
    const wf_kref y = OP2(DIV, wf_kir_f32(d, 1.0F), s), q0 = OP2(MUL, a, y);
    return OP3(FMA, OP3(FMA, q0, s, OP1(NEG, a)), OP1(NEG, y), q0);
}
#undef OP1
#undef OP2
#undef OP3

static int divide_quickly(const wf_kir *k, const bool *uniform, const bool *small, wf_kref *map,
                          wf_kir *d, wf_why *why)
{
    wf_kref test[WF_LL_TESTS] = {0};
    for (uint32_t p = 0; p < k->nparam; p++)
        wf_kir_param(d, (wf_kty)k->param_type[p]);
    for (uint32_t n = 0; n < k->n; n++) {
        const wf_kinstr *i = &k->ins[n];
        const wf_kinstr *a = i->prim == WF_KP_DIV ? &k->ins[i->src[0]] : i;
        map[n] = i->prim == WF_KP_PARAM ? d->param[i->imm]
                 : is_shared_division(i, uniform)
                     ? quick_quotient(d, map[i->src[0]], map[i->src[1]],
                                      a->prim == WF_KP_PARAM && small[a->imm], test)
                     : wf_ll_copy_instr(d, k, n, map);
    }
    for (uint32_t o = 0; o < k->nout; o++)
        wf_kir_output(d, map[k->out[o]]);
    for (int x = 0; x < WF_LL_TESTS; x++)
        if (test[x] != WF_KREF_NONE)
            wf_kir_output(d, test[x]);
    return wf_kir_finish(d, why);
}

/* -- both ---------------------------------------------------------------------------------------------------- */
typedef int rewriting(const wf_kir *k, const bool *uniform, const bool *small, wf_kref *map,
                      wf_kir *d, wf_why *why);

static int if_useful(const wf_kir *k, const bool *uniform, const bool *small, wf_kref *map,
                     wf_kir *d, wf_why *why)
{
    (void)small;
    bool any = false;
    for (uint32_t n = 0; n < k->n; n++)
        any |=
            easy_operand(k, &k->ins[n], uniform) >= 0 || is_relaxed_division(&k->ins[n], uniform);
    return any ? rewrite(k, uniform, map, d, why) : 0;
}

/* The divider works beside other instructions: where there are many, it costs nothing. */
static int if_it_divides(const wf_kir *k, const bool *uniform, const bool *small, wf_kref *map,
                         wf_kir *d, wf_why *why)
{
    enum { FEW = 12 };
    uint32_t divisions = 0, others = 0;
    for (uint32_t n = 0; n < k->n; n++) {
        const wf_kprim prim = (wf_kprim)k->ins[n].prim;
        divisions += is_shared_division(&k->ins[n], uniform);
        others += !uniform[n] && prim != WF_KP_PARAM;
    }
    return divisions == 1 && others <= FEW && k->rare == WF_KREF_NONE &&
                   k->nout + WF_LL_TESTS <= WF_KIR_MAX_OUT
               ? divide_quickly(k, uniform, small, map, d, why)
               : 0;
}

static int with_uniform(const wf_kir *k, const bool *uniform_param, const bool *small,
                        rewriting *how, wf_kir *out, wf_why *why)
{
    bool *uniform = malloc(k->n * sizeof *uniform);
    wf_kref *map = malloc(k->n * sizeof *map);
    int status;
    if (!uniform || !map) {
        status = wf_fail(why, WEFT_ENOMEM, "no memory for the text of a kernel");
    } else {
        find_uniform(k, uniform_param, uniform);
        status = how(k, uniform, small, map, out, why);
    }
    free(uniform);
    free(map);
    return status;
}

int wf_ll_ease(const wf_kir *k, const bool *uniform_param, wf_kir *out, wf_why *why)
{
    return with_uniform(k, uniform_param, NULL, if_useful, out, why);
}

int wf_ll_hurry(const wf_kir *k, const bool *uniform_param, const bool *small_param, wf_kir *out,
                wf_why *why)
{
    return with_uniform(k, uniform_param, small_param, if_it_divides, out, why);
}
