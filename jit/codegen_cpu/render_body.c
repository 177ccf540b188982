/*
 * jit/codegen_cpu/render_body.c -- kernel IR as LLVM instructions on vectors of any width.
 *
 * Invariants: fast-math flags on relaxed instructions (wf_kir_relax) and nowhere else, never nnan or ninf; llvm.fma where
 * the FMA primitive stands and nowhere else.
 * Divisors and shift counts are made harmless before the instruction that could not take them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/codegen_cpu/render.h"

static const char *scalar_type(wf_kty type)
{
    switch (type) {
    case WF_KT_BOOL:
        return "i1";
    case WF_KT_U8:
    case WF_KT_I8:
        return "i8";
    case WF_KT_U16:
    case WF_KT_I16:
        return "i16";
    case WF_KT_U32:
    case WF_KT_I32:
        return "i32";
    case WF_KT_U64:
    case WF_KT_I64:
        return "i64";
    case WF_KT_F32:
        return "float";
    case WF_KT_F64:
        return "double";
    case WF_KT_COUNT:
        break;
    }
    return "void";
}

static wf_ll named_type(const char *scalar, int lanes)
{
    wf_ll r;
    if (lanes == 1)
        snprintf(r.s, sizeof r.s, "%s", scalar);
    else
        snprintf(r.s, sizeof r.s, "<%d x %s>", lanes, scalar);
    return r;
}

wf_ll wf_ll_type(wf_kty type, int lanes)
{
    return named_type(scalar_type(type), lanes);
}

wf_ll wf_ll_const(wf_kty type, int lanes, uint64_t bits)
{
    char one[40];
    if (type == WF_KT_F32) { /* LLVM writes floats as the double of the same value */
        const uint32_t u = (uint32_t)bits;
        float f;
        double x;
        memcpy(&f, &u, sizeof f);
        x = (double)f;
        memcpy(&bits, &x, sizeof bits);
    }
    if (wf_kty_is_float(type))
        snprintf(one, sizeof one, "0x%016" PRIX64, bits);
    else if (type == WF_KT_BOOL)
        snprintf(one, sizeof one, "%s", bits ? "true" : "false");
    else
        snprintf(one, sizeof one, "%" PRIu64, bits);
    wf_ll r;
    if (lanes == 1)
        snprintf(r.s, sizeof r.s, "%s", one);
    else
        snprintf(r.s, sizeof r.s, "splat (%s %s)", scalar_type(type), one);
    return r;
}

wf_ll wf_ll_identity(wf_kty type, int lanes)
{
    return wf_ll_const(type, lanes,
                       type == WF_KT_F32   ? UINT64_C(0x80000000)
                       : type == WF_KT_F64 ? UINT64_C(0x8000000000000000)
                                           : 0);
}

wf_ll wf_ll_ref(const wf_kir *k, wf_kref r, int lanes, const char *prefix, const wf_ll *param)
{
    const wf_kinstr *i = &k->ins[r];
    wf_ll text;
    if (i->prim == WF_KP_CONST)
        return wf_ll_const((wf_kty)i->type, lanes, i->imm);
    if (i->prim == WF_KP_PARAM)
        return param[i->imm];
    snprintf(text.s, sizeof text.s, "%%%s%u", prefix, r);
    return text;
}

void wf_ll_add(wf_text *t, wf_kty type, int lanes, const char *name, const char *a, const char *b)
{
    wf_text_putf(t, "  %%%s = %s %s %s, %s\n", name, wf_kty_is_float(type) ? "fadd" : "add",
                 wf_ll_type(type, lanes).s, a, b);
}

void wf_ll_table(wf_text *t, const wf_kir_table *table)
{
    const char *type = scalar_type(table->type);
    wf_text_putf(t, "@%s = private unnamed_addr constant [%u x %s] [", table->name, table->n, type);
    for (uint32_t i = 0; i < table->n; i++)
        wf_text_putf(t, "%s%s %" PRIu64, i ? ", " : "", type,
                     wf_kir_peek(table->data, table->type, i));
    wf_text_putf(t, "]\n");
}

void wf_ll_tables(wf_text *t, const wf_kir *k)
{
    for (uint32_t n = 0; n < k->ntable; n++)
        wf_ll_table(t, k->table[n]);
}

/* -- constants in memory ------------------------------------------------------------------------------------------
 * LLVM builds a constant of 64 lanes from 64 elements, and tries to negate it, lane by lane, for every operand of
 * every fma. Operands of arithmetic are loaded instead, which comes to the same machine instruction: a load that
 * broadcasts. The constants are globals, named by their bits. Operands that LLVM's own rules look at (0, 1, 2,
 * divisors, what fast math may reorder) stay where they are. */
static bool is_pooled(const wf_kinstr *user, const wf_kinstr *i)
{
    const wf_kprim prim = (wf_kprim)user->prim;
    const uint64_t magnitude = i->imm & INT32_MAX;
    return i->prim == WF_KP_CONST && i->type == WF_KT_F32 && !user->relaxed &&
           (prim == WF_KP_ADD || prim == WF_KP_SUB || prim == WF_KP_MUL || prim == WF_KP_FMA) &&
           magnitude != 0 && magnitude != 0x3F800000 && magnitude != 0x40000000;
}

static wf_ll pooled(wf_kref r, const char *prefix)
{
    wf_ll text;
    snprintf(text.s, sizeof text.s, "%%%sk%u", prefix, r);
    return text;
}

/* Loads those of instruction n that are not loaded yet: where they are first used, or all would lie in registers. */
static void load_constants(wf_text *t, const wf_kir *k, uint32_t n, int lanes, const char *prefix,
                           bool *loaded)
{
    for (int s = 0; s < k->ins[n].nsrc; s++) {
        const wf_kref r = k->ins[n].src[s];
        if (loaded[r] || !is_pooled(&k->ins[n], &k->ins[r]))
            continue;
        const wf_ll name = pooled(r, prefix);
        wf_ll one;
        snprintf(one.s, sizeof one.s, "%.40s.m", name.s);
        wf_text_putf(t, "  %s = load float, ptr " WF_LL_POOLED "%08X\n", one.s,
                     (unsigned)k->ins[r].imm);
        wf_ll_spread(t, name.s + 1, WF_KT_F32, lanes, one.s);
        loaded[r] = true;
    }
}

/* Definitions of what the text so far loads, each once. */
void wf_ll_constants(wf_text *t)
{
    static const char load[] = "load float, ptr " WF_LL_POOLED;
    const size_t end = t->n;
    for (size_t from = 0; !t->failed && from < end;) {
        const char *at = strstr(t->s + from, load);
        char name[24];
        if (!at || (size_t)(at - t->s) >= end)
            return;
        const uint32_t bits = (uint32_t)strtoul(at + sizeof load - 1, NULL, 16);
        from = (size_t)(at - t->s) + sizeof load;
        snprintf(name, sizeof name, WF_LL_POOLED "%08X = ", (unsigned)bits);
        if (t->n == end || !strstr(t->s + end, name))
            wf_text_putf(t, "%sprivate unnamed_addr constant float %s\n", name,
                         wf_ll_const(WF_KT_F32, 1, bits).s);
    }
}

/* -- one instruction ------------------------------------------------------------------------------- */
typedef struct at {
    wf_text *t;
    const wf_kir *k;
    const wf_kinstr *i;
    int lanes;
    const char *name;  /* result, without % */
    wf_kty type, from; /* of the result and of the first operand */
    const char *T, *F; /* the same as text */
    const char *a, *b, *c;
} at;

#define PUT(...) wf_text_putf(x->t, __VA_ARGS__)
#define KONST(bits) wf_ll_const(x->type, x->lanes, bits).s

static void plain(const at *x, const char *instruction)
{
    const char *flags = x->i->relaxed ? "reassoc nsz arcp contract " : "";
    if (x->i->nsrc == 2)
        PUT("  %%%s = %s %s%s %s, %s\n", x->name, instruction, flags, x->F, x->a, x->b);
    else
        PUT("  %%%s = %s %s%s %s\n", x->name, instruction, flags, x->F, x->a);
}

static void convert(const at *x, const char *instruction)
{
    PUT("  %%%s = %s %s %s to %s\n", x->name, instruction, x->F, x->a, x->T);
}

/* "v64f32" */
static wf_ll suffix(const char *letter, unsigned bits, int lanes)
{
    wf_ll r;
    if (lanes == 1)
        snprintf(r.s, sizeof r.s, "%s%u", letter, bits);
    else
        snprintf(r.s, sizeof r.s, "v%d%s%u", lanes, letter, bits);
    return r;
}

static void intrinsic(const at *x, const char *name)
{
    PUT("  %%%s = call %s @llvm.%s.%s(%s %s", x->name, x->T, name,
        suffix("f", wf_kty_bits(x->type), x->lanes).s, x->T, x->a);
    if (x->i->nsrc > 1)
        PUT(", %s %s", x->T, x->b);
    if (x->i->nsrc > 2)
        PUT(", %s %s", x->T, x->c);
    PUT(")\n");
}

/* a * b - 0 is a * b in every bit: how rows write a product that no compiler may contract. */
static void fused(const at *x)
{
    const wf_kinstr *c = &x->k->ins[x->i->src[2]];
    if (c->prim == WF_KP_CONST && c->imm == UINT64_C(1) << (wf_kty_bits(x->type) - 1))
        PUT("  %%%s = fmul %s %s, %s\n", x->name, x->T, x->a, x->b);
    else
        intrinsic(x, "fma");
}

static void select_(const at *x, const char *name, const char *test, const char *a, const char *b)
{
    PUT("  %%%s = select %s %s, %s %s, %s %s\n", name, wf_ll_type(WF_KT_BOOL, x->lanes).s, test,
        x->T, a, x->T, b);
}

static void divide(const at *x)
{
    const char *n = x->name;
    if (wf_kty_is_float(x->type)) {
        plain(x, "fdiv");
        return;
    }
    char p[7][48];
    for (int i = 0; i < 7; i++)
        snprintf(p[i], sizeof p[i], "%%%s.%d", n, i);
    PUT("  %s = icmp eq %s %s, %s\n", p[0], x->T, x->b, KONST(0));
    if (!wf_kty_is_signed(x->type)) {
        select_(x, p[1] + 1, p[0], KONST(1), x->b);
        PUT("  %s = udiv %s %s, %s\n", p[2], x->T, x->a, p[1]);
        select_(x, n, p[0], KONST(0), p[2]);
        return;
    }
    const unsigned bits = wf_kty_bits(x->type);
    const uint64_t ones = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    PUT("  %s = icmp eq %s %s, %s\n", p[1], x->T, x->b, KONST(ones));
    select_(x, p[2] + 1, p[0], KONST(1), x->b);
    select_(x, p[6] + 1, p[1], KONST(1), p[2]);
    PUT("  %s = sdiv %s %s, %s\n", p[3], x->T, x->a, p[6]);
    PUT("  %s = sub %s %s, %s\n", p[4], x->T, KONST(0), x->a);
    select_(x, p[5] + 1, p[1], p[4], p[3]);
    select_(x, n, p[0], KONST(0), p[5]);
}

/* IEEE minimum and maximum; integers by comparison. Each of the two choices is one instruction and gives its second
 * operand for zeros and NaN; they differ there only. The minimum is the `or` of both: -0 of two zeros, NaN of a NaN
 * and anything. The maximum is the same but for the sign, which is the `and` of both signs. */
static void extreme(const at *x, bool min)
{
    const char *n = x->name;
    if (!wf_kty_is_float(x->type)) {
        PUT("  %%%s.0 = icmp %c%s %s %s, %s\n", n, wf_kty_is_signed(x->type) ? 's' : 'u',
            min ? "lt" : "gt", x->T, x->a, x->b);
        PUT("  %%%s = select %s %%%s.0, %s %s, %s %s\n", n, wf_ll_type(WF_KT_BOOL, x->lanes).s, n,
            x->T, x->a, x->T, x->b);
        return;
    }
    const wf_kty unsigned_ = x->type == WF_KT_F32 ? WF_KT_U32 : WF_KT_U64;
    const wf_ll word = wf_ll_type(unsigned_, x->lanes), truth = wf_ll_type(WF_KT_BOOL, x->lanes);
    const char *test = min ? "olt" : "ogt";
    PUT("  %%%s.0 = fcmp %s %s %s, %s\n", n, test, x->T, x->a, x->b);
    PUT("  %%%s.1 = select %s %%%s.0, %s %s, %s %s\n", n, truth.s, n, x->T, x->a, x->T, x->b);
    PUT("  %%%s.2 = fcmp %s %s %s, %s\n", n, test, x->T, x->b, x->a);
    PUT("  %%%s.3 = select %s %%%s.2, %s %s, %s %s\n", n, truth.s, n, x->T, x->b, x->T, x->a);
    PUT("  %%%s.4 = bitcast %s %%%s.1 to %s\n", n, x->T, n, word.s);
    PUT("  %%%s.5 = bitcast %s %%%s.3 to %s\n", n, x->T, n, word.s);
    PUT("  %%%s.6 = or %s %%%s.4, %%%s.5\n", n, word.s, n, n);
    if (!min) {
        PUT("  %%%s.7 = and %s %%%s.4, %%%s.5\n", n, word.s, n, n);
        PUT("  %%%s.8 = and %s %%%s.6, %s\n", n, word.s, n,
            wf_ll_const(unsigned_, x->lanes, x->type == WF_KT_F32 ? INT32_MAX : INT64_MAX).s);
        PUT("  %%%s.9 = or %s %%%s.7, %%%s.8\n", n, word.s, n, n);
    }
    PUT("  %%%s = bitcast %s %%%s.%d to %s\n", n, word.s, n, min ? 6 : 9, x->T);
}

static void compare(const at *x, const char *name)
{
    if (wf_kty_is_float(x->from))
        PUT("  %%%s = fcmp %s%s %s %s, %s\n", x->name, strcmp(name, "ne") ? "o" : "u", name, x->F,
            x->a, x->b);
    else
        PUT("  %%%s = icmp %s%s %s %s, %s\n", x->name,
            name[0] == 'e' || name[0] == 'n' ? ""
            : wf_kty_is_signed(x->from)      ? "s"
                                             : "u",
            name, x->F, x->a, x->b);
}

static void shift(const at *x, bool left)
{
    const char *n = x->name;
    const unsigned bits = wf_kty_bits(x->type);
    const bool sign = !left && wf_kty_is_signed(x->type);
    PUT("  %%%s.0 = icmp ult %s %s, %s\n", n, x->T, x->b, KONST(bits));
    PUT("  %%%s.1 = and %s %s, %s\n", n, x->T, x->b, KONST(bits - 1));
    PUT("  %%%s.2 = %s %s %s, %%%s.1\n", n, left ? "shl" : sign ? "ashr" : "lshr", x->T, x->a, n);
    if (sign)
        PUT("  %%%s.3 = ashr %s %s, %s\n", n, x->T, x->a, KONST(bits - 1));
    PUT("  %%%s = select %s %%%s.0, %s %%%s.2, %s ", n, wf_ll_type(WF_KT_BOOL, x->lanes).s, n, x->T,
        n, x->T);
    if (sign)
        PUT("%%%s.3\n", n);
    else
        PUT("%s\n", KONST(0));
}

static void shift_by(const at *x, const char *instruction)
{
    PUT("  %%%s = %s %s %s, %s\n", x->name, instruction, x->T, x->a, KONST(x->i->imm));
}

static void widening(const at *x, bool high)
{
    const char *n = x->name;
    const wf_ll wide = named_type(high ? "i128" : "i64", x->lanes);
    PUT("  %%%s.0 = zext %s %s to %s\n", n, x->F, x->a, wide.s);
    PUT("  %%%s.1 = zext %s %s to %s\n", n, x->F, x->b, wide.s);
    PUT("  %%%s%s = mul %s %%%s.0, %%%s.1\n", n, high ? ".2" : "", wide.s, n, n);
    if (!high)
        return;
    if (x->lanes == 1)
        PUT("  %%%s.3 = lshr i128 %%%s.2, 64\n", n, n);
    else
        PUT("  %%%s.3 = lshr %s %%%s.2, splat (i128 64)\n", n, wide.s, n);
    PUT("  %%%s = trunc %s %%%s.3 to %s\n", n, wide.s, n, x->T);
}

static void lookup(const at *x)
{
    const wf_kir_table *table = x->k->table[x->i->imm];
    const char *n = x->name, *element = scalar_type(table->type);
    const wf_ll index = named_type("i64", x->lanes), pointer = named_type("ptr", x->lanes);
    const char *a = x->a;
    char wide[56];
    if (table->type == WF_KT_U32) {
        PUT("  %%%s.0 = zext %s %s to %s\n", n, x->F, x->a, index.s);
        snprintf(wide, sizeof wide, "%%%s.0", n);
        a = wide;
    }
    PUT("  %%%s.1 = getelementptr [%u x %s], ptr @%s, i64 0, %s %s\n", n, table->n, element,
        table->name, index.s, a);
    if (x->lanes == 1) {
        PUT("  %%%s = load %s, ptr %%%s.1\n", n, element, n);
        return;
    }
    PUT("  %%%s = call %s @llvm.masked.gather.%s.v%dp0(%s %%%s.1, i32 %u, %s %s, %s poison)\n", n,
        x->T, suffix("i", wf_kty_bits(table->type), x->lanes).s, x->lanes, pointer.s, n,
        wf_kty_bits(table->type) / 8, wf_ll_type(WF_KT_BOOL, x->lanes).s,
        wf_ll_const(WF_KT_BOOL, x->lanes, 1).s, x->T);
}

static void cast(const at *x)
{
    const bool from_float = wf_kty_is_float(x->from), to_float = wf_kty_is_float(x->type);
    const unsigned from = wf_kty_bits(x->from), to = wf_kty_bits(x->type);
    const bool sign = wf_kty_is_signed(x->from);
    if (x->type == WF_KT_BOOL) {
        PUT("  %%%s = %s %s %s, %s\n", x->name, from_float ? "fcmp une" : "icmp ne", x->F, x->a,
            wf_ll_const(x->from, x->lanes, 0).s);
    } else if (from_float && to_float) {
        convert(x, to > from ? "fpext" : "fptrunc");
    } else if (from_float) {
        PUT("  %%%s = call %s @llvm.fpto%s.sat.%s.%s(%s %s)\n", x->name, x->T,
            wf_kty_is_signed(x->type) ? "si" : "ui", suffix("i", to, x->lanes).s,
            suffix("f", from, x->lanes).s, x->F, x->a);
    } else if (to_float) {
        convert(x, sign ? "sitofp" : "uitofp");
    } else if (to == from) {
        convert(x, "bitcast");
    } else {
        convert(x, to < from ? "trunc" : sign ? "sext" : "zext");
    }
}

static void negate(const at *x)
{
    if (wf_kty_is_float(x->type))
        plain(x, "fneg");
    else
        PUT("  %%%s = sub %s %s, %s\n", x->name, x->T, KONST(0), x->a);
}

static void invert(const at *x)
{
    PUT("  %%%s = xor %s %s, %s\n", x->name, x->T, x->a,
        KONST(x->type == WF_KT_BOOL        ? 1
              : wf_kty_bits(x->type) == 64 ? UINT64_MAX
                                           : (UINT64_C(1) << wf_kty_bits(x->type)) - 1));
}

static void instruction(const at *x)
{
    const bool flt = wf_kty_is_float(x->type);
    /* clang-format off */
    switch ((wf_kprim)x->i->prim) {
    case WF_KP_PARAM: case WF_KP_CONST: case WF_KP_COUNT: return;
    case WF_KP_ADD: plain(x, flt ? "fadd" : "add"); return;
    case WF_KP_SUB: plain(x, flt ? "fsub" : "sub"); return;
    case WF_KP_MUL: plain(x, flt ? "fmul" : "mul"); return;
    case WF_KP_DIV: divide(x); return;
    case WF_KP_MIN: extreme(x, true); return;
    case WF_KP_MAX: extreme(x, false); return;
    case WF_KP_NEG: negate(x); return;
    case WF_KP_FMA: fused(x); return;
    case WF_KP_SQRT: intrinsic(x, "sqrt"); return;
    case WF_KP_RINT: intrinsic(x, "rint"); return;
    case WF_KP_FLOOR: intrinsic(x, "floor"); return;
    case WF_KP_CEIL: intrinsic(x, "ceil"); return;
    case WF_KP_TRUNC: intrinsic(x, "trunc"); return;
    case WF_KP_FABS: intrinsic(x, "fabs"); return;
    case WF_KP_COPYSIGN: intrinsic(x, "copysign"); return;
    case WF_KP_LT: compare(x, "lt"); return;
    case WF_KP_LE: compare(x, "le"); return;
    case WF_KP_GT: compare(x, "gt"); return;
    case WF_KP_GE: compare(x, "ge"); return;
    case WF_KP_EQ: compare(x, "eq"); return;
    case WF_KP_NE: compare(x, "ne"); return;
    case WF_KP_BAND: case WF_KP_IAND: plain(x, "and"); return;
    case WF_KP_BOR: case WF_KP_IOR: plain(x, "or"); return;
    case WF_KP_BXOR: case WF_KP_IXOR: plain(x, "xor"); return;
    case WF_KP_BNOT: case WF_KP_INOT: invert(x); return;
    case WF_KP_SELECT: select_(x, x->name, x->a, x->b, x->c); return;
    case WF_KP_SHL: shift(x, true); return;
    case WF_KP_SHR: shift(x, false); return;
    case WF_KP_SHLK: shift_by(x, "shl"); return;
    case WF_KP_SHRK: shift_by(x, "lshr"); return;
    case WF_KP_SARK: shift_by(x, "ashr"); return;
    case WF_KP_BITS32: case WF_KP_FLT32: case WF_KP_BITS64: case WF_KP_FLT64:
        convert(x, "bitcast"); return;
    case WF_KP_MULHI64: widening(x, true); return;
    case WF_KP_MULW32: widening(x, false); return;
    case WF_KP_F64_OF_F32: convert(x, "fpext"); return;
    case WF_KP_F32_OF_F64: convert(x, "fptrunc"); return;
    case WF_KP_U64_OF_U32: convert(x, "zext"); return;
    case WF_KP_U32_OF_U64: convert(x, "trunc"); return;
    case WF_KP_F32_OF_S32: case WF_KP_F64_OF_S32: case WF_KP_F64_OF_S64: convert(x, "sitofp"); return;
    case WF_KP_S32_OF_F32: case WF_KP_S64_OF_F64: convert(x, "fptosi"); return;
    case WF_KP_LOOKUP: lookup(x); return;
    case WF_KP_CAST: cast(x); return;
    }
    /* clang-format on */
}

/* -- the order of instructions ---------------------------------------------------------------------- */
typedef struct order {
    const wf_kir *k;
    uint32_t *users, *ready,
        *at; /* uses that are not placed yet; values whose uses all are; the order, from `first` on */
    bool *live;
    uint32_t nready, first;
} order;

static bool is_computed(const wf_kir *k, wf_kref r)
{
    return k->ins[r].prim != WF_KP_CONST && k->ins[r].prim != WF_KP_PARAM;
}

/* Values that are alive before instruction n and not behind it, but for its own. */
static int begun(const order *o, uint32_t n)
{
    const wf_kinstr *i = &o->k->ins[n];
    int count = 0;
    for (int s = 0; s < i->nsrc; s++) {
        bool seen = o->live[i->src[s]] || !is_computed(o->k, i->src[s]);
        for (int q = 0; q < s; q++)
            seen |= i->src[q] == i->src[s];
        count += !seen;
    }
    return count;
}

static void place(order *o, uint32_t n)
{
    const wf_kinstr *i = &o->k->ins[n];
    o->at[--o->first] = n;
    for (int s = 0; s < i->nsrc; s++) {
        const wf_kref r = i->src[s];
        o->live[r] = true;
        if (--o->users[r] == 0 && is_computed(o->k, r))
            o->ready[o->nready++] = r;
    }
}

/* From the last instruction to the first, always the one that keeps the fewest values alive before it; the latest of those.
 * The code generator keeps the order, and where there are 16 registers that of the program, operand by operand, spills. */
static void find_order(order *o)
{
    const wf_kir *k = o->k;
    for (uint32_t n = 0; n < k->n; n++)
        for (int s = 0; s < k->ins[n].nsrc; s++)
            o->users[k->ins[n].src[s]]++;
    for (uint32_t n = 0; n < k->n; n++)
        if (is_computed(k, n) && o->users[n] == 0)
            o->ready[o->nready++] = n;
    while (o->nready > 0) {
        uint32_t best = 0;
        for (uint32_t c = 1; c < o->nready; c++) {
            const int less = begun(o, o->ready[best]) - begun(o, o->ready[c]);
            if (less > 0 || (less == 0 && o->ready[c] > o->ready[best]))
                best = c;
        }
        const uint32_t n = o->ready[best];
        o->ready[best] = o->ready[--o->nready];
        place(o, n);
    }
}

/* The most values alive at once in the program's own order; leaves `live` clear. */
static int most_alive(const order *o)
{
    const wf_kir *k = o->k;
    int count = 0, most = 0;
    for (uint32_t i = 0; i < k->nout; i++) {
        count += !o->live[k->out[i]];
        o->live[k->out[i]] = true;
    }
    for (uint32_t n = k->n; n-- > 0;) {
        most = count > most ? count : most;
        count -= o->live[n];
        if (is_computed(k, n)) {
            count += begun(o, n);
            for (int s = 0; s < k->ins[n].nsrc; s++)
                o->live[k->ins[n].src[s]] |= is_computed(k, k->ins[n].src[s]);
        }
        o->live[n] = false;
    }
    return most;
}

void wf_ll_body(wf_text *t, const wf_kir *k, int lanes, const char *prefix, const wf_ll *param)
{
    wf_ll_body_in(t, k, lanes, 0, prefix, param);
}

void wf_ll_body_in(wf_text *t, const wf_kir *k, int lanes, int registers, const char *prefix,
                   const wf_ll *param)
{
    /* without memory they are operands like any other */
    bool *loaded = lanes > 1 ? calloc(k->n, sizeof *loaded) : NULL;
    uint32_t *room = registers ? calloc(3 * (size_t)k->n, sizeof *room) : NULL;
    bool *live = room ? calloc(k->n, sizeof *live) : NULL;
    order o = {.k = k, .users = room, .live = live, .first = k->n};
    if (live && most_alive(&o) > registers) {
        o.ready = room + k->n;
        o.at = room + 2 * (size_t)k->n;
        find_order(&o);
    }
    for (uint32_t c = o.at ? o.first : 0; c < k->n; c++) {
        const uint32_t n = o.at ? o.at[c] : c;
        const wf_kinstr *i = &k->ins[n];
        wf_ll src[3] = {{""}, {""}, {""}};
        if (loaded)
            load_constants(t, k, n, lanes, prefix, loaded);
        for (int s = 0; s < i->nsrc; s++)
            src[s] = loaded && loaded[i->src[s]] && is_pooled(i, &k->ins[i->src[s]])
                         ? pooled(i->src[s], prefix)
                         : wf_ll_ref(k, i->src[s], lanes, prefix, param);
        char name[40];
        snprintf(name, sizeof name, "%s%u", prefix, n);
        const wf_kty from = i->nsrc ? (wf_kty)k->ins[i->src[0]].type : (wf_kty)i->type;
        const wf_ll T = wf_ll_type((wf_kty)i->type, lanes), F = wf_ll_type(from, lanes);
        instruction(&(at){.t = t,
                          .k = k,
                          .i = i,
                          .lanes = lanes,
                          .name = name,
                          .type = (wf_kty)i->type,
                          .from = from,
                          .T = T.s,
                          .F = F.s,
                          .a = src[0].s,
                          .b = src[1].s,
                          .c = src[2].s});
    }
    free(loaded);
    free(room);
    free(live);
}
