/*
 * jit/ir/kir.c -- kernel IR: the builder with its type rules, and the canonical form.
 */
#include "jit/ir/kir.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- tables ---------------------------------------------------------------------------------------- */
enum rule { LEAF, AR, FLT, INT, BOO, CMP, SEL, KSH, CONV, LUT, CAST };

typedef struct prim_row {
    const char *name;
    uint8_t arity, rule, from, to, flops;
} prim_row;

#define RULE_LEAF .rule = LEAF
#define RULE_AR .rule = AR
#define RULE_FLT .rule = FLT
#define RULE_INT .rule = INT
#define RULE_BOO .rule = BOO
#define RULE_CMP .rule = CMP
#define RULE_SEL .rule = SEL
#define RULE_KSH .rule = KSH
#define RULE_CONV(a, b) .rule = CONV, .from = WF_KT_##a, .to = WF_KT_##b
#define RULE_LUT .rule = LUT
#define RULE_CAST .rule = CAST
static const prim_row prims[WF_KP_COUNT] = {
#define PRIM(NAME, name_, arity_, rule_, flops_, semantics)                                        \
    [WF_KP_##NAME] = {.name = #name_, .arity = arity_, .flops = flops_, RULE_##rule_},
#include "jit/ir/prims.def"
};

typedef struct type_row {
    const char *name;
    uint8_t bits, is_float, is_signed;
} type_row;
static const type_row types[WF_KT_COUNT] = {
    [WF_KT_BOOL] = {"bool", 1, 0, 0}, [WF_KT_U8] = {"u8", 8, 0, 0},
    [WF_KT_I8] = {"i8", 8, 0, 1},     [WF_KT_U16] = {"u16", 16, 0, 0},
    [WF_KT_I16] = {"i16", 16, 0, 1},  [WF_KT_U32] = {"u32", 32, 0, 0},
    [WF_KT_I32] = {"i32", 32, 0, 1},  [WF_KT_U64] = {"u64", 64, 0, 0},
    [WF_KT_I64] = {"i64", 64, 0, 1},  [WF_KT_F32] = {"f32", 32, 1, 1},
    [WF_KT_F64] = {"f64", 64, 1, 1},
};

const char *wf_kprim_name(wf_kprim prim)
{
    return prims[prim].name;
}
int wf_kprim_arity(wf_kprim prim)
{
    return prims[prim].arity;
}
int wf_kir_flops(const wf_kir *k)
{
    int n = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        const wf_kinstr *x = &k->ins[i];
        n += x->nsrc && wf_kty_is_float((wf_kty)k->ins[x->src[0]].type) ? prims[x->prim].flops : 0;
    }
    return n;
}
const char *wf_kty_name(wf_kty type)
{
    return types[type].name;
}
unsigned wf_kty_bits(wf_kty type)
{
    return types[type].bits;
}
bool wf_kty_is_float(wf_kty type)
{
    return types[type].is_float;
}
bool wf_kty_is_signed(wf_kty type)
{
    return types[type].is_signed;
}

/* -- builder ------------------------------------------------------------------------------------- */
void wf_kir_init(wf_kir *k)
{
    memset(k, 0, sizeof *k);
    k->rare = WF_KREF_NONE;
}

void wf_kir_free(wf_kir *k)
{
    free(k->ins);
    wf_kir_init(k);
}

static wf_kref fail(wf_kir *k, const char *error)
{
    if (!k->error)
        k->error = error;
    return WF_KREF_NONE;
}

static const char *const out_of_memory = "memory is exhausted";

static wf_kref append(wf_kir *k, wf_kinstr i)
{
    if (k->error)
        return WF_KREF_NONE;
    if (k->n == k->cap) {
        const uint32_t cap = k->cap ? k->cap * 2 : 64;
        wf_kinstr *grown = cap > k->cap ? realloc(k->ins, cap * sizeof *grown) : NULL;
        if (!grown)
            return fail(k, out_of_memory);
        k->ins = grown;
        k->cap = cap;
    }
    k->ins[k->n] = i;
    return k->n++;
}

wf_kty wf_kir_type(const wf_kir *k, wf_kref a)
{
    return a < k->n ? (wf_kty)k->ins[a].type : WF_KT_COUNT;
}

wf_kref wf_kir_param(wf_kir *k, wf_kty type)
{
    if (k->nparam == WF_KIR_MAX_PARAM)
        return fail(k, "too many parameters");
    const wf_kref r =
        append(k, (wf_kinstr){.prim = WF_KP_PARAM, .type = (uint8_t)type, .imm = k->nparam});
    k->param_type[k->nparam] = (uint8_t)type;
    k->param[k->nparam++] = r;
    return r;
}

wf_kref wf_kir_const(wf_kir *k, wf_kty type, uint64_t bits)
{
    const unsigned width = types[type].bits;
    if (width < 64)
        bits &= (UINT64_C(1) << width) - 1;
    return append(k, (wf_kinstr){.prim = WF_KP_CONST, .type = (uint8_t)type, .imm = bits});
}

wf_kref wf_kir_f32(wf_kir *k, float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return wf_kir_const(k, WF_KT_F32, u);
}

wf_kref wf_kir_f64(wf_kir *k, double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return wf_kir_const(k, WF_KT_F64, u);
}

/* The type of the result, WF_KT_COUNT if the operands break the rule. */
static wf_kty result_type(wf_kprim prim, const wf_kty *t, int n)
{
    const prim_row *row = &prims[prim];
    bool same = true;
    for (int i = 1; i < n; i++)
        same &= t[i] == t[0];
    const wf_kty no = WF_KT_COUNT;
    const bool word = t[0] == WF_KT_U32 || t[0] == WF_KT_U64;
    switch ((enum rule)row->rule) {
    case AR:
        return same && t[0] != WF_KT_BOOL && t[0] != WF_KT_U16 ? t[0] : no;
    case FLT:
        return same && types[t[0]].is_float ? t[0] : no;
    case INT:
        return same && !types[t[0]].is_float && t[0] != WF_KT_BOOL ? t[0] : no;
    case BOO:
        return same && t[0] == WF_KT_BOOL ? t[0] : no;
    case CMP:
        return same ? WF_KT_BOOL : no;
    case SEL:
        return t[0] == WF_KT_BOOL && t[1] == t[2] ? t[1] : no;
    case KSH:
    case LUT:
        return word ? t[0] : no;
    case CONV:
        return same && t[0] == row->from ? (wf_kty)row->to : no;
    case LEAF:
    case CAST:
        return no; /* have builders of their own */
    }
    return no;
}

static wf_kref op_imm(wf_kir *k, wf_kprim prim, wf_kref a, wf_kref b, wf_kref c, uint64_t imm)
{
    const int n = prims[prim].arity;
    const wf_kref src[3] = {a, b, c};
    wf_kinstr i = {.prim = (uint8_t)prim, .nsrc = (uint8_t)n, .imm = imm};
    wf_kty t[3] = {WF_KT_COUNT, WF_KT_COUNT, WF_KT_COUNT};
    if (k->error)
        return WF_KREF_NONE;
    for (int s = 0; s < n; s++) {
        if (src[s] >= k->n)
            return fail(k, "an operand is missing");
        t[s] = (wf_kty)k->ins[src[s]].type;
        i.src[s] = src[s];
    }
    const wf_kty type = n ? result_type(prim, t, n) : WF_KT_COUNT;
    if (type == WF_KT_COUNT)
        return fail(k, "operand types break the rule of a primitive");
    i.type = (uint8_t)type;
    return append(k, i);
}

wf_kref wf_kir_op(wf_kir *k, wf_kprim prim, wf_kref a, wf_kref b, wf_kref c)
{
    return op_imm(k, prim, a, b, c, 0);
}

wf_kref wf_kir_shift(wf_kir *k, wf_kprim prim, wf_kref a, unsigned count)
{
    if (prims[prim].rule != KSH || (a < k->n && count >= types[k->ins[a].type].bits))
        return fail(k, "a shift count is outside the width");
    return op_imm(k, prim, a, WF_KREF_NONE, WF_KREF_NONE, count);
}

static bool table_equal(const wf_kir_table *a, const wf_kir_table *b)
{
    return a == b || (a->type == b->type && a->n == b->n && strcmp(a->name, b->name) == 0 &&
                      memcmp(a->data, b->data, a->n * (types[a->type].bits / 8u)) == 0);
}

wf_kref wf_kir_lookup(wf_kir *k, const wf_kir_table *table, wf_kref index)
{
    uint32_t t = 0;
    while (t < k->ntable && !table_equal(k->table[t], table))
        t++;
    if (t == WF_KIR_MAX_TABLE)
        return fail(k, "too many tables");
    if (t == k->ntable)
        k->table[k->ntable++] = table;
    if (index < k->n && k->ins[index].type != table->type)
        return fail(k, "a table's index has another width than its elements");
    return op_imm(k, WF_KP_LOOKUP, index, WF_KREF_NONE, WF_KREF_NONE, t);
}

wf_kref wf_kir_cast(wf_kir *k, wf_kty type, wf_kref a)
{
    if (k->error || a >= k->n)
        return fail(k, "an operand is missing");
    if (k->ins[a].type == type)
        return a;
    return append(k, (wf_kinstr){.prim = WF_KP_CAST, .type = (uint8_t)type, .nsrc = 1, .src = {a}});
}

void wf_kir_relax(wf_kir *k, uint32_t first)
{
    for (uint32_t n = first; n < k->n; n++) {
        wf_kinstr *i = &k->ins[n];
        const bool plain = i->prim == WF_KP_ADD || i->prim == WF_KP_SUB || i->prim == WF_KP_MUL ||
                           i->prim == WF_KP_DIV || i->prim == WF_KP_NEG;
        i->relaxed = plain && types[i->type].is_float;
    }
}

/* A choice `a test b ? b : a` with a constant b. */
static bool is_clamp(const wf_kir *k, const wf_kinstr *i, wf_kprim test)
{
    if (i->prim != WF_KP_SELECT)
        return false;
    const wf_kinstr *c = &k->ins[i->src[0]], *bound = &k->ins[i->src[1]];
    return c->prim == test && c->src[0] == i->src[2] && c->src[1] == i->src[1] &&
           bound->prim == WF_KP_CONST && types[bound->type].is_float;
}

static bool is_negative(const wf_kinstr *bound)
{
    return bound->imm >> (types[bound->type].bits - 1);
}

void wf_kir_below_zero(wf_kir *k, wf_kref x, uint32_t first)
{
    wf_kref from = WF_KREF_NONE, to = WF_KREF_NONE;
    for (uint32_t n = first; n < k->n; n++) {
        wf_kinstr *i = &k->ins[n];
        for (int s = 0; s < i->nsrc; s++)
            i->src[s] = i->src[s] == from ? to : i->src[s];
        if (!is_clamp(k, i, WF_KP_GT) || is_negative(&k->ins[i->src[1]]))
            continue;
        const wf_kinstr *a = &k->ins[i->src[2]];
        const bool lower = is_clamp(k, a, WF_KP_LT) && is_negative(&k->ins[a->src[1]]);
        if (i->src[2] == x || (lower && a->src[2] == x)) {
            from = n;
            to = i->src[2];
        }
    }
}

void wf_kir_output(wf_kir *k, wf_kref a)
{
    if (k->nout == WF_KIR_MAX_OUT || a >= k->n)
        (void)fail(k, a < k->n ? "too many outputs" : "an output is missing");
    else
        k->out[k->nout++] = a;
}

void wf_kir_inline(wf_kir *k, const wf_kir *callee, const wf_kref *args, wf_kref *out)
{
    wf_kref *map = malloc((callee->n + 1) * sizeof *map);
    if (!map) {
        (void)fail(k, out_of_memory);
        for (uint32_t o = 0; o < callee->nout; o++)
            out[o] = WF_KREF_NONE;
        return;
    }
    for (uint32_t i = 0; i < callee->n; i++) {
        wf_kinstr c = callee->ins[i];
        for (int s = 0; s < c.nsrc; s++)
            c.src[s] = map[c.src[s]];
        if (c.prim == WF_KP_PARAM) {
            map[i] = args[c.imm];
            if (wf_kir_type(k, map[i]) != (wf_kty)c.type)
                map[i] = fail(k, "an argument has another type than the parameter");
        } else if (c.prim == WF_KP_LOOKUP) {
            map[i] = wf_kir_lookup(k, callee->table[c.imm], c.src[0]);
        } else {
            map[i] = append(k, c);
        }
    }
    for (uint32_t o = 0; o < callee->nout; o++)
        out[o] = map[callee->out[o]];
    if (callee->rare != WF_KREF_NONE)
        k->rare = k->rare == WF_KREF_NONE
                      ? map[callee->rare]
                      : wf_kir_op(k, WF_KP_BOR, k->rare, map[callee->rare], WF_KREF_NONE);
    free(map);
}

/* -- canonical form ------------------------------------------------------------------------------ */
typedef struct canon {
    const wf_kir *k;
    wf_kinstr *ins;
    uint32_t n;
    uint32_t *map;  /* old number -> new, WF_KREF_NONE: not placed */
    uint32_t *slot; /* hash table of new numbers + 1 */
    uint32_t mask;
    uint32_t *node, *next; /* stack of the walk: node, next operand */
} canon;

static uint32_t hash_instr(const wf_kinstr *i)
{
    const unsigned char *p = (const unsigned char *)i;
    uint32_t h = 2166136261u;
    for (size_t b = 0; b < sizeof *i; b++)
        h = (h ^ p[b]) * 16777619u;
    return h ^ h >> 15;
}

/* Places one instruction whose operands are placed; equal bytes share a number. */
static void place(canon *c, uint32_t old)
{
    wf_kinstr i;
    memset(&i, 0, sizeof i); /* padding takes part in the comparison */
    const wf_kinstr *o = &c->k->ins[old];
    i.prim = o->prim;
    i.type = o->type;
    i.nsrc = o->nsrc;
    i.relaxed = o->relaxed;
    i.imm = o->imm;
    for (int s = 0; s < o->nsrc; s++)
        i.src[s] = c->map[o->src[s]];
    uint32_t h = hash_instr(&i) & c->mask;
    while (c->slot[h] && memcmp(&c->ins[c->slot[h] - 1], &i, sizeof i) != 0)
        h = (h + 1) & c->mask;
    if (!c->slot[h]) {
        c->ins[c->n++] = i;
        c->slot[h] = c->n;
    }
    c->map[old] = c->slot[h] - 1;
}

/* Post-order, first operand first, without recursion. */
static uint32_t visit(canon *c, uint32_t root)
{
    uint32_t depth = 0;
    if (c->map[root] != WF_KREF_NONE)
        return c->map[root];
    c->node[0] = root;
    c->next[0] = 0;
    for (;;) {
        const uint32_t at = c->node[depth];
        const wf_kinstr *i = &c->k->ins[at];
        if (c->next[depth] < i->nsrc) {
            const uint32_t s = i->src[c->next[depth]++];
            if (c->map[s] == WF_KREF_NONE) {
                depth++;
                c->node[depth] = s;
                c->next[depth] = 0;
            }
            continue;
        }
        place(c, at);
        if (depth == 0)
            return c->map[root];
        depth--;
    }
}

int wf_kir_finish(wf_kir *k, wf_why *why)
{
    if (k->error)
        return wf_fail(why, k->error == out_of_memory ? WEFT_ENOMEM : WEFT_EINVALID,
                       "kernel IR: %s", k->error);
    uint32_t slots = 64;
    while (slots < 2 * k->n + 2)
        slots *= 2;
    canon c = {.k = k, .mask = slots - 1};
    c.ins = calloc(k->n + 1, sizeof *c.ins);
    c.map = malloc((3 * (size_t)k->n + 3) * sizeof *c.map);
    c.slot = calloc(slots, sizeof *c.slot);
    if (!c.ins || !c.map || !c.slot) {
        free(c.ins);
        free(c.map);
        free(c.slot);
        (void)fail(k, out_of_memory);
        return wf_fail(why, WEFT_ENOMEM, "kernel IR: %s", out_of_memory);
    }
    c.node = c.map + k->n + 1;
    c.next = c.node + k->n + 1;
    memset(c.map, 0xFF, k->n * sizeof *c.map);
    for (uint32_t p = 0; p < k->nparam; p++) /* parameters first, used or not */
        k->param[p] = visit(&c, k->param[p]);
    for (uint32_t o = 0; o < k->nout; o++)
        k->out[o] = visit(&c, k->out[o]);
    if (k->rare != WF_KREF_NONE)
        k->rare = visit(&c, k->rare);
    free(k->ins);
    k->ins = c.ins;
    k->cap = k->n + 1;
    k->n = c.n;
    free(c.map);
    free(c.slot);
    return 0;
}
