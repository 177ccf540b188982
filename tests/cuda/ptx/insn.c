/*
 * tests/cuda/ptx/insn.c -- an instruction's guard, opcode and operands, from the text to their places in ptx_insn.
 *
 * Variables in shared memory are given places kernel by kernel, in the order in which a kernel first names them.
 */
#include <ctype.h>

#include "tests/cuda/ptx/parse.h"

/* A place in this kernel's shared memory, from its first use on. */
static uint64_t shared_place(parser *p, symbol *s)
{
    const int kernel = p->m->nkernel - 1;
    if (s->kernel != kernel) {
        s->kernel = kernel;
        s->at = (p->k->shared + s->align - 1) & ~(int64_t)(s->align - 1);
        p->k->shared = (unsigned)s->at + s->size;
    }
    return (uint64_t)s->at;
}

/* -- operands -------------------------------------------------------------------------------------------------------- */
static int special(const char *name)
{
    static const struct {
        const char *name;
        int reg;
    } all[] = {{"%tid.x", R_TID},       {"%tid.y", R_TID + 1},       {"%tid.z", R_TID + 2},
               {"%ntid.x", R_NTID},     {"%ntid.y", R_NTID + 1},     {"%ntid.z", R_NTID + 2},
               {"%ctaid.x", R_CTAID},   {"%ctaid.y", R_CTAID + 1},   {"%ctaid.z", R_CTAID + 2},
               {"%nctaid.x", R_NCTAID}, {"%nctaid.y", R_NCTAID + 1}, {"%nctaid.z", R_NCTAID + 2},
               {"%laneid", R_LANE}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        if (strcmp(name, all[k].name) == 0) {
            return all[k].reg;
        }
    }
    return -1;
}

static ptx_operand of_name(parser *p, const char *name)
{
    const int known = special(name);
    if (known >= 0) {
        return (ptx_operand){.place = REGISTER, .bits = 32, .reg = known};
    }
    symbol *s = parse_find(p, name);
    if (!s) {
        parse_fail(p, "%s is not known", name);
    }
    ptx_operand o = {.place = VALUE, .value = (uint64_t)s->at};
    switch (s->kind) {
    case A_REGISTER:
        return (ptx_operand){.place = REGISTER, .bits = (uint8_t)s->bits, .reg = (int32_t)s->at};
    case A_RANGE:
        return (ptx_operand){.place = REGISTER,
                             .bits = (uint8_t)s->bits,
                             .reg = (int32_t)(s->at + atoll(name + strlen(s->name)))};
    case A_SHARED:
        o.value = shared_place(p, s);
        break;
    case A_DYNAMIC: /* where it begins is known at the end of the kernel */
        p->k->dynamic_at = 0;
        o.dynamic = true;
        o.value = 0;
        break;
    case A_LOCAL:
    case A_DATA:
    case A_PARAM:
        break;
    case A_LABEL:
        parse_fail(p, "a label as an operand");
    }
    return o;
}

static ptx_operand simple(parser *p)
{
    char name[200];
    if (parse_peek(p) == '-' || isdigit((unsigned char)parse_peek(p))) {
        return (ptx_operand){.place = VALUE, .value = parse_number(p)};
    }
    const bool not = parse_take(p, '!');
    parse_next(p);
    parse_name(p, name, sizeof name);
    if (strcmp(name, "_") == 0) {
        return (ptx_operand){0};
    }
    ptx_operand o = of_name(p, name);
    if (not &&(o.place != REGISTER || o.bits != 1)) {
        parse_fail(p, "! before what is no predicate");
    }
    o.not = not ;
    return o;
}

/* "[name+8]", behind the bracket. */
static ptx_operand address(parser *p)
{
    ptx_operand o = simple(p);
    if (o.place == VALUE) {
        o.reg = -1;
    } else if (o.place != REGISTER || o.bits < 32 || o.not ) {
        parse_fail(p, "no address");
    }
    o.place = ADDRESS;
    if (parse_take(p, '+')) {
        o.value += parse_number(p);
    } else if (parse_peek(p) == '-') {
        o.value += parse_number(p);
    }
    parse_want(p, "]");
    return o;
}

static void put_operand(parser *p, ptx_insn *i, ptx_operand o)
{
    if (i->n == MOST_OPERANDS) {
        parse_fail(p, "more operands than any instruction has");
    }
    i->o[i->n++] = o;
}

/* Into the order of machine.h: addresses before vectors, an empty place where a second result is left out. */
static void operands(parser *p, ptx_insn *i)
{
    const bool second = i->op == P_SETP || i->op == P_SHFL;
    int at_address = -1;
    while (parse_peek(p) != ';') {
        if (parse_take(p, '[')) {
            at_address = i->n;
            put_operand(p, i, address(p));
        } else if (parse_take(p, '{')) {
            i->splits |= i->op == P_MOV && i->n == 0;
            do {
                put_operand(p, i, simple(p));
                i->nvector++;
            } while (parse_take(p, ','));
            parse_want(p, "}");
        } else {
            put_operand(p, i, simple(p));
        }
        if (i->n == 1 && second && !parse_take(p, '|')) {
            put_operand(p, i, (ptx_operand){0});
        } else if (i->n == 1 && second) {
            continue;
        }
        if (parse_peek(p) != ';') {
            parse_want(p, ",");
        }
    }
    parse_want(p, ";");
    const bool first_is_last = i->splits || (i->op == P_LD && at_address > 0);
    if (first_is_last && i->n > 1) {
        const ptx_operand last = i->o[i->n - 1];
        memmove(i->o + 1, i->o, (size_t)(i->n - 1) * sizeof *i->o);
        i->o[0] = last;
    }
}

static void check_vector(parser *p, const ptx_insn *i)
{
    const int n = i->mod[K_VECTOR] == M_V4 ? 4 : i->mod[K_VECTOR] == M_V2 ? 2 : 0;
    unsigned bits = 0;
    if (i->op != P_MOV) { /* one element may stand in braces */
        if (i->nvector != n && !(i->nvector == 1 && n == 0)) {
            parse_fail(p, "a vector of %d", i->nvector);
        }
        return;
    }
    for (int k = 1; k <= i->nvector; k++) {
        bits += ptx_bits[i->type] / i->nvector;
        if (i->o[k].place == REGISTER && i->o[k].bits != ptx_bits[i->type] / i->nvector) {
            parse_fail(p, "a part of %u bits", i->o[k].bits);
        }
    }
    if (i->nvector && bits != ptx_bits[i->type]) {
        parse_fail(p, "parts that are no whole");
    }
}

/* Results are registers (or left out), of a width that the type has. */
static void check_results(parser *p, const ptx_insn *i)
{
    const bool load = i->op == P_LD;
    const int first = load || i->splits ? 1 : 0,
              n = load || i->splits ? i->n - 1 : ptx_results(i->op);
    for (int k = first; k < first + n; k++) {
        const ptx_operand *o = &i->o[k];
        if (o->place == NOTHING) {
            continue;
        }
        if (o->place != REGISTER || o->reg < R_FIRST) {
            parse_fail(p, "a result that is no register");
        }
        const unsigned bits = i->op == P_SETP                              ? 1
                              : i->op == P_MUL && i->mod[K_MODE] == M_WIDE ? 2u * ptx_bits[i->type]
                              : i->op == P_MAD && i->mod[K_MODE] == M_WIDE ? 2u * ptx_bits[i->type]
                              : i->op == P_POPC || i->op == P_CLZ || i->op == P_BFIND ? 32
                              : i->splits                                             ? o->bits
                                          : ptx_bits[i->type];
        const bool extends = load || i->op == P_CVT; /* and a register may be wider */
        if (extends ? o->bits < bits : o->bits != bits) {
            parse_fail(p, "a result of %u bits in a register of %u", bits, o->bits);
        }
    }
}

static void add_jump(parser *p, int insn)
{
    p->jumps = parse_grow(p, p->jumps, p->njump, &p->jumps_room, sizeof *p->jumps);
    parse_next(p);
    parse_name(p, p->jumps[p->njump].name, sizeof p->jumps->name);
    p->jumps[p->njump++].insn = insn;
    parse_want(p, ";");
}

ptx_insn *parse_insn(parser *p)
{
    ptx_kernel *k = p->k;
    k->insn = parse_grow(p, k->insn, (size_t)k->ninsn, &p->insns_room, sizeof *k->insn);
    ptx_insn *i = &k->insn[k->ninsn++];
    *i = (ptx_insn){.line = p->line, .guard = -1, .target = -1};
    return i;
}

/* At its opcode, or at @. */
void parse_instruction(parser *p)
{
    char opcode[100], piece[100] = "";
    ptx_insn *i = parse_insn(p);
    if (parse_is(p, "@")) {
        const ptx_operand guard = simple(p);
        if (guard.place != REGISTER || guard.bits != 1) {
            parse_fail(p, "a guard that is no predicate");
        }
        i->guarded = true;
        i->guard = guard.reg;
        i->guard_not = guard.not ;
        parse_next(p);
    }
    parse_name(p, opcode, sizeof opcode);
    const char *wrong = ptx_decode(opcode, i, piece, sizeof piece);
    if (wrong) {
        parse_fail(p, "%s: %s%s", opcode, wrong, piece);
    }
    p->k->waits |= i->op == P_DEPENDENTS && i->mod[K_MODE] == M_WAIT;
    if (i->op == P_BRA) {
        add_jump(p, p->k->ninsn - 1);
        return;
    }
    operands(p, i);
    wrong = ptx_check(i);
    if (wrong) {
        parse_fail(p, "%s: %s", opcode, wrong);
    }
    check_vector(p, i);
    check_results(p, i);
}
