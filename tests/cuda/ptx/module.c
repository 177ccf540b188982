/*
 * tests/cuda/ptx/module.c -- the text of a module: directives, variables, kernels, operands.
 *
 * Names are looked up in the scopes that are open, innermost first; registers of "%r<100>" are a range with one entry.
 * Variables in shared memory are given places kernel by kernel, in the order in which a kernel first names them.
 */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/ptx/machine.h"

enum symbol_kind { A_REGISTER, A_RANGE, A_SHARED, A_DYNAMIC, A_LOCAL, A_DATA, A_PARAM, A_LABEL };
enum { MOST_DATA = 1 << 20 };
typedef struct symbol {
    char name[200];
    enum symbol_kind kind;
    int scope;
    unsigned bits; /* of a register */
    int64_t at;    /* register, offset, instruction */
    int64_t count; /* of a range */
    unsigned size, align;
    int kernel; /* shared: has a place in this one */
} symbol;

typedef struct parser {
    ptx_module *m;
    ptx_kernel *k;
    const char *s, *token;
    size_t length;
    int line, scope;
    symbol *symbols;
    size_t nsymbol, symbols_room;
    struct {
        int insn;
        char name[64];
    } * jumps;
    size_t njump, jumps_room, insns_room;
    char *error;
    size_t nerror;
    jmp_buf out;
} parser;

__attribute__((format(printf, 2, 3), noreturn)) static void fail(parser *p, const char *fmt, ...)
{
    va_list args;
    int n = snprintf(p->error, p->nerror, "line %d: ", p->line);
    va_start(args, fmt);
    vsnprintf(p->error + n, p->nerror - (size_t)n, fmt, args);
    va_end(args);
    longjmp(p->out, 1);
}

/* One more element of an array; the rest of the array may move. */
static void *grow(parser *p, void *array, size_t n, size_t *room, size_t size)
{
    if (n < *room) {
        return array;
    }
    *room = *room ? 2 * *room : 64;
    void *more = realloc(array, *room * size);
    if (!more) {
        fail(p, "no memory");
    }
    return more;
}

/* -- tokens ----------------------------------------------------------------------------------------------------- */
static bool in_word(const char *s)
{
    return isalnum((unsigned char)*s) || *s == '_' || *s == '$' || *s == '.' || *s == '%';
}

static void skip_space(parser *p)
{
    for (;;) {
        if (*p->s == '\n') {
            p->line++;
            p->s++;
        } else if (isspace((unsigned char)*p->s)) {
            p->s++;
        } else if (p->s[0] == '/' && p->s[1] == '/') {
            p->s += strcspn(p->s, "\n");
        } else {
            return;
        }
    }
}

/* The next word, number or sign; "::" belongs to the word that it stands in. False: the end. */
static bool next(parser *p)
{
    skip_space(p);
    p->token = p->s;
    p->length = 0;
    if (!*p->s) {
        return false;
    }
    const char *s = p->s;
    if (*s == '"') {
        s += 1 + strcspn(s + 1, "\"");
        s += *s == '"';
    } else if (in_word(s)) {
        while (in_word(s) || (s[0] == ':' && s[1] == ':')) {
            s += *s == ':' ? 2 : 1;
        }
    } else {
        s++;
    }
    p->length = (size_t)(s - p->token);
    p->s = s;
    return true;
}

static bool is(const parser *p, const char *what)
{
    return strlen(what) == p->length && memcmp(p->token, what, p->length) == 0;
}

static char peek(parser *p)
{
    skip_space(p);
    return *p->s;
}

static void want(parser *p, const char *what)
{
    if (!next(p) || !is(p, what)) {
        fail(p, "%s expected, not %.*s", what, (int)p->length, p->token);
    }
}

static bool take(parser *p, char what)
{
    if (peek(p) != what) {
        return false;
    }
    p->s++;
    return true;
}

static void copy_token(parser *p, char *to, size_t n)
{
    if (p->length >= n) {
        fail(p, "a name of %d letters", (int)p->length);
    }
    memcpy(to, p->token, p->length);
    to[p->length] = 0;
}

/* Whole numbers of any base, and bits of floats, as 0f3F800000 and 0d3FF0000000000000. */
static uint64_t number(parser *p)
{
    char text[40], *end;
    const bool negative = take(p, '-');
    if (!next(p)) {
        fail(p, "a number expected");
    }
    copy_token(p, text, sizeof text);
    const bool bits = text[0] == '0' && strchr("fFdD", text[1]) && text[1];
    const uint64_t v = strtoull(bits ? text + 2 : text, &end, bits ? 16 : 0);
    end += *end == 'U' && !bits;
    if (*end || end == text || !isdigit((unsigned char)text[0])) {
        fail(p, "%s is no number that is known", text);
    }
    return negative ? 0 - v : v;
}

/* -- names -------------------------------------------------------------------------------------------------------- */
static symbol *add_symbol(parser *p, enum symbol_kind kind)
{
    p->symbols = grow(p, p->symbols, p->nsymbol, &p->symbols_room, sizeof *p->symbols);
    symbol *s = &p->symbols[p->nsymbol++];
    *s = (symbol){.kind = kind, .scope = p->scope, .kernel = -1};
    return s;
}

/* `token`: a name, or a range's name and a number. */
static symbol *find(const parser *p, const char *name)
{
    const size_t n = strlen(name);
    size_t stem = n;
    while (stem > 0 && isdigit((unsigned char)name[stem - 1])) {
        stem--;
    }
    for (size_t i = p->nsymbol; i-- > 0;) {
        symbol *s = &p->symbols[i];
        if (s->kind == A_RANGE
                ? stem < n && strlen(s->name) == stem && memcmp(s->name, name, stem) == 0 &&
                      atoll(name + stem) < s->count
                : strcmp(s->name, name) == 0) {
            return s;
        }
    }
    return NULL;
}

static int type_of_directive(parser *p)
{
    static const char *const names[] = {
#define X(name, text, bits) "." text,
        PTX_TYPES(X)
#undef X
    };
    for (int k = 0; k < (int)(sizeof names / sizeof *names); k++) {
        if (is(p, names[k])) {
            return k + 1;
        }
    }
    fail(p, "%.*s is no type", (int)p->length, p->token);
}

static void registers(parser *p)
{
    next(p);
    const unsigned bits = ptx_bits[type_of_directive(p)];
    do {
        symbol *s = add_symbol(p, A_REGISTER);
        next(p);
        copy_token(p, s->name, sizeof s->name);
        s->bits = bits;
        s->at = p->k->nreg;
        s->count = 1;
        if (take(p, '<')) {
            s->kind = A_RANGE;
            s->count = (int64_t)number(p);
            want(p, ">");
        }
        if (s->count > 100000) {
            fail(p, "%lld registers", (long long)s->count);
        }
        p->k->nreg += (int)s->count;
    } while (take(p, ','));
    want(p, ";");
}

/* -- variables ---------------------------------------------------------------------------------------------------- */
static void initial_values(parser *p, unsigned char *to, unsigned size, unsigned n)
{
    unsigned i = 0;
    want(p, "{");
    do {
        const uint64_t v = number(p);
        if (i == n) {
            fail(p, "more values than there is room for");
        }
        memcpy(to + (size_t)i++ * size, &v, size);
    } while (take(p, ','));
    want(p, "}");
}

/* Behind ".shared" and the like: alignment, type, name, extent, values. Data is one block of a fixed size, since addresses
 * into it are taken while it is read. */
static void variable(parser *p, enum symbol_kind kind)
{
    unsigned align = 0, n = 1;
    next(p);
    if (is(p, ".align")) {
        align = (unsigned)number(p);
        next(p);
    }
    const unsigned size = ptx_bits[type_of_directive(p)] / 8;
    align = align ? align : size;
    if (align == 0 || (align & (align - 1)) || align > 4096) {
        fail(p, "alignment to %u", align);
    }
    symbol *s = add_symbol(p, kind);
    next(p);
    copy_token(p, s->name, sizeof s->name);
    if (take(p, '[')) {
        n = peek(p) == ']' ? 0 : (unsigned)number(p);
        want(p, "]");
    }
    if (n > 1u << 24 || (n == 0) != (kind == A_DYNAMIC)) {
        fail(p, "an extent of %u", n);
    }
    s->size = n * size;
    s->align = align;
    if (kind == A_LOCAL) {
        s->at = (p->k->local + align - 1) & ~(int64_t)(align - 1);
        p->k->local = (unsigned)s->at + s->size;
    } else if (kind == A_DATA) {
        const size_t at = (p->m->ndata + align - 1) & ~(size_t)(align - 1);
        if (at + s->size > MOST_DATA) {
            fail(p, "more data than there is room for");
        }
        s->at = (int64_t)(uintptr_t)(p->m->data + at);
        p->m->ndata = at + s->size;
        if (take(p, '=')) {
            if (peek(p) == '{') {
                initial_values(p, p->m->data + at, size, n);
            } else {
                const uint64_t v = number(p);
                memcpy(p->m->data + at, &v, size);
            }
        }
    }
    want(p, ";");
}

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
    symbol *s = find(p, name);
    if (!s) {
        fail(p, "%s is not known", name);
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
        fail(p, "a label as an operand");
    }
    return o;
}

static ptx_operand simple(parser *p)
{
    char name[200];
    if (peek(p) == '-' || isdigit((unsigned char)peek(p))) {
        return (ptx_operand){.place = VALUE, .value = number(p)};
    }
    const bool not = take(p, '!');
    next(p);
    copy_token(p, name, sizeof name);
    if (strcmp(name, "_") == 0) {
        return (ptx_operand){0};
    }
    ptx_operand o = of_name(p, name);
    if (not &&(o.place != REGISTER || o.bits != 1)) {
        fail(p, "! before what is no predicate");
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
        fail(p, "no address");
    }
    o.place = ADDRESS;
    if (take(p, '+')) {
        o.value += number(p);
    } else if (peek(p) == '-') {
        o.value += number(p);
    }
    want(p, "]");
    return o;
}

static void put_operand(parser *p, ptx_insn *i, ptx_operand o)
{
    if (i->n == MOST_OPERANDS) {
        fail(p, "more operands than any instruction has");
    }
    i->o[i->n++] = o;
}

/* Into the order of machine.h: addresses before vectors, an empty place where a second result is left out. */
static void operands(parser *p, ptx_insn *i)
{
    const bool second = i->op == P_SETP || i->op == P_SHFL;
    int at_address = -1;
    while (peek(p) != ';') {
        if (take(p, '[')) {
            at_address = i->n;
            put_operand(p, i, address(p));
        } else if (take(p, '{')) {
            i->splits |= i->op == P_MOV && i->n == 0;
            do {
                put_operand(p, i, simple(p));
                i->nvector++;
            } while (take(p, ','));
            want(p, "}");
        } else {
            put_operand(p, i, simple(p));
        }
        if (i->n == 1 && second && !take(p, '|')) {
            put_operand(p, i, (ptx_operand){0});
        } else if (i->n == 1 && second) {
            continue;
        }
        if (peek(p) != ';') {
            want(p, ",");
        }
    }
    want(p, ";");
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
            fail(p, "a vector of %d", i->nvector);
        }
        return;
    }
    for (int k = 1; k <= i->nvector; k++) {
        bits += ptx_bits[i->type] / i->nvector;
        if (i->o[k].place == REGISTER && i->o[k].bits != ptx_bits[i->type] / i->nvector) {
            fail(p, "a part of %u bits", i->o[k].bits);
        }
    }
    if (i->nvector && bits != ptx_bits[i->type]) {
        fail(p, "parts that are no whole");
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
            fail(p, "a result that is no register");
        }
        const unsigned bits = i->op == P_SETP                              ? 1
                              : i->op == P_MUL && i->mod[K_MODE] == M_WIDE ? 2u * ptx_bits[i->type]
                              : i->op == P_MAD && i->mod[K_MODE] == M_WIDE ? 2u * ptx_bits[i->type]
                              : i->op == P_POPC || i->op == P_CLZ || i->op == P_BFIND ? 32
                              : i->splits                                             ? o->bits
                                          : ptx_bits[i->type];
        const bool extends = load || i->op == P_CVT; /* and a register may be wider */
        if (extends ? o->bits < bits : o->bits != bits) {
            fail(p, "a result of %u bits in a register of %u", bits, o->bits);
        }
    }
}

static void add_jump(parser *p, int insn)
{
    p->jumps = grow(p, p->jumps, p->njump, &p->jumps_room, sizeof *p->jumps);
    next(p);
    copy_token(p, p->jumps[p->njump].name, sizeof p->jumps->name);
    p->jumps[p->njump++].insn = insn;
    want(p, ";");
}

static ptx_insn *new_insn(parser *p)
{
    ptx_kernel *k = p->k;
    k->insn = grow(p, k->insn, (size_t)k->ninsn, &p->insns_room, sizeof *k->insn);
    ptx_insn *i = &k->insn[k->ninsn++];
    *i = (ptx_insn){.line = p->line, .guard = -1, .target = -1};
    return i;
}

/* At its opcode, or at @. */
static void instruction(parser *p)
{
    char opcode[100], piece[100] = "";
    ptx_insn *i = new_insn(p);
    if (is(p, "@")) {
        const ptx_operand guard = simple(p);
        if (guard.place != REGISTER || guard.bits != 1) {
            fail(p, "a guard that is no predicate");
        }
        i->guarded = true;
        i->guard = guard.reg;
        i->guard_not = guard.not ;
        next(p);
    }
    copy_token(p, opcode, sizeof opcode);
    const char *wrong = ptx_decode(opcode, i, piece, sizeof piece);
    if (wrong) {
        fail(p, "%s: %s%s", opcode, wrong, piece);
    }
    p->k->waits |= i->op == P_DEPENDENTS && i->mod[K_MODE] == M_WAIT;
    if (i->op == P_BRA) {
        add_jump(p, p->k->ninsn - 1);
        return;
    }
    operands(p, i);
    wrong = ptx_check(i);
    if (wrong) {
        fail(p, "%s: %s", opcode, wrong);
    }
    check_vector(p, i);
    check_results(p, i);
}

/* -- kernels ------------------------------------------------------------------------------------------------------------ */
static void parameters(parser *p)
{
    ptx_kernel *k = p->k;
    size_t room = 0;
    want(p, "(");
    if (take(p, ')')) {
        return;
    }
    do {
        unsigned align = 0, n = 1;
        want(p, ".param");
        next(p);
        if (is(p, ".align")) {
            align = (unsigned)number(p);
            next(p);
        }
        const unsigned size = ptx_bits[type_of_directive(p)] / 8;
        align = align ? align : size;
        k->param = grow(p, k->param, (size_t)k->nparam, &room, sizeof *k->param);
        ptx_param *a = &k->param[k->nparam++];
        next(p);
        copy_token(p, a->name, sizeof a->name);
        if (take(p, '[')) {
            n = (unsigned)number(p);
            want(p, "]");
        }
        a->at = (k->param_bytes + align - 1) & ~(align - 1);
        a->size = n * size;
        k->param_bytes = a->at + a->size;
        symbol *s = add_symbol(p, A_PARAM);
        memcpy(s->name, a->name, sizeof a->name);
        s->at = a->at;
    } while (take(p, ','));
    want(p, ")");
}

static void leave_scope(parser *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->nsymbol; i++) {
        if (p->symbols[i].scope < p->scope) {
            p->symbols[n++] = p->symbols[i];
        }
    }
    p->nsymbol = n;
    p->scope--;
}

static void statement(parser *p)
{
    if (is(p, "{")) {
        p->scope++;
    } else if (is(p, "}")) {
        leave_scope(p);
    } else if (is(p, ".reg")) {
        registers(p);
    } else if (is(p, ".local")) {
        variable(p, A_LOCAL);
    } else if (is(p, ".shared")) {
        variable(p, A_SHARED);
    } else if (is(p, ".pragma")) {
        next(p);
        want(p, ";");
    } else if (peek(p) == ':') {
        symbol *s = add_symbol(p, A_LABEL);
        copy_token(p, s->name, sizeof s->name);
        s->at = p->k->ninsn;
        s->scope = 1; /* known in the whole kernel: jumps are resolved at its end */
        p->s++;
    } else if (is(p, ";")) {
        return;
    } else {
        instruction(p);
    }
}

static void resolve(parser *p)
{
    ptx_kernel *k = p->k;
    for (size_t i = 0; i < p->njump; i++) {
        const symbol *s = find(p, p->jumps[i].name);
        if (!s || s->kind != A_LABEL) {
            fail(p, "%s is no label", p->jumps[i].name);
        }
        k->insn[p->jumps[i].insn].target = (int32_t)s->at;
    }
    p->njump = 0;
    new_insn(p)->op = P_RET; /* a label may stand at the end */
    if (k->dynamic_at < 0) {
        return;
    }
    k->dynamic_at = (k->shared + 15u) & ~15u;
    for (int i = 0; i < k->ninsn; i++) {
        for (int o = 0; o < k->insn[i].n; o++) {
            ptx_operand *x = &k->insn[i].o[o];
            x->value += x->dynamic ? (uint64_t)k->dynamic_at : 0;
        }
    }
}

static void kernel(parser *p)
{
    ptx_module *m = p->m;
    ptx_kernel *all = realloc(m->kernel, (size_t)(m->nkernel + 1) * sizeof *all);
    if (!all) {
        fail(p, "no memory");
    }
    m->kernel = all;
    p->k = &m->kernel[m->nkernel++];
    *p->k = (ptx_kernel){.nreg = R_FIRST, .threads = MOST_THREADS, .dynamic_at = -1};
    p->insns_room = 0;
    next(p);
    copy_token(p, p->k->name, sizeof p->k->name);
    p->scope = 1;
    parameters(p);
    while (next(p) && !is(p, "{")) {
        const bool threads = is(p, ".maxntid");
        if (!threads && !is(p, ".minnctapersm") && !is(p, ".maxnreg")) {
            fail(p, "%.*s is not known", (int)p->length, p->token);
        }
        unsigned n = 1;
        do {
            n *= (unsigned)number(p);
        } while (take(p, ','));
        p->k->threads = threads ? n : p->k->threads;
    }
    while (p->scope > 0 && next(p)) {
        if (is(p, "}") && p->scope == 1) {
            resolve(p);
        }
        statement(p);
    }
    if (p->scope > 0) {
        fail(p, "the end, within a kernel");
    }
}

/* What is left of the library's functions, all of whose calls were taken in: `call` is no instruction that is known. */
static void skip_function(parser *p)
{
    int depth = 0;
    while (next(p)) {
        depth += is(p, "{") - is(p, "}");
        if (depth == 0 && is(p, "}")) {
            return;
        }
    }
    fail(p, "the end, within a function");
}

static void directive(parser *p)
{
    if (is(p, ".version") || is(p, ".target") || is(p, ".address_size")) {
        do { /* "sm_90, debug" */
            next(p);
        } while (take(p, ','));
    } else if (is(p, ".visible") || is(p, ".weak")) {
        return;
    } else if (is(p, ".extern")) {
        want(p, ".shared");
        variable(p, A_DYNAMIC);
    } else if (is(p, ".shared")) {
        variable(p, A_SHARED);
    } else if (is(p, ".const") || is(p, ".global")) {
        variable(p, A_DATA);
    } else if (is(p, ".entry")) {
        kernel(p);
    } else if (is(p, ".func")) {
        skip_function(p);
    } else {
        fail(p, "%.*s is not known", (int)p->length, p->token);
    }
}

/* False: the error is written. What it took stands in p and its module. */
static bool parse(parser *p)
{
    if (setjmp(p->out)) {
        return false;
    }
    while (next(p)) {
        directive(p);
    }
    return true;
}

ptx_module *ptx_load(const char *text, char *error, size_t n)
{
    parser *p = calloc(1, sizeof *p);
    ptx_module *m = calloc(1, sizeof *m);
    bool done = false;
    if (m) {
        m->text = strdup(text);
        m->data = aligned_alloc(4096, MOST_DATA);
    }
    if (p && m && m->text && m->data) {
        *p = (parser){.m = m, .s = m->text, .line = 1, .error = error, .nerror = n};
        done = parse(p);
        free(p->symbols);
        free(p->jumps);
    } else {
        snprintf(error, n, "no memory");
    }
    free(p);
    if (!done) {
        ptx_free(m);
    }
    return done ? m : NULL;
}

void ptx_free(ptx_module *m)
{
    for (int i = 0; m && i < m->nkernel; i++) {
        free(m->kernel[i].insn);
        free(m->kernel[i].param);
    }
    if (m) {
        free(m->kernel);
        free(m->data);
        free(m->text);
    }
    free(m);
}

int ptx_find(const ptx_module *m, const char *name)
{
    for (int i = 0; i < m->nkernel; i++) {
        if (strcmp(m->kernel[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

unsigned ptx_param_size(const ptx_module *m, int kernel, int i)
{
    return i < m->kernel[kernel].nparam ? m->kernel[kernel].param[i].size : 0;
}

unsigned ptx_threads(const ptx_module *m, int kernel)
{
    return m->kernel[kernel].threads;
}

unsigned ptx_shared(const ptx_module *m, int kernel)
{
    return m->kernel[kernel].shared;
}
