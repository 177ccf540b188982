/*
 * tests/cuda/ptx/module.c -- the text of a module: directives, registers, variables, kernels.
 */
#include "tests/cuda/ptx/parse.h"

enum { MOST_DATA = 1 << 20 };

static void registers(parser *p)
{
    parse_next(p);
    const unsigned bits = ptx_bits[parse_type(p)];
    do {
        symbol *s = parse_symbol(p, A_REGISTER);
        parse_next(p);
        parse_name(p, s->name, sizeof s->name);
        s->bits = bits;
        s->at = p->k->nreg;
        s->count = 1;
        if (parse_take(p, '<')) {
            s->kind = A_RANGE;
            s->count = (int64_t)parse_number(p);
            parse_want(p, ">");
        }
        if (s->count > 100000) {
            parse_fail(p, "%lld registers", (long long)s->count);
        }
        p->k->nreg += (int)s->count;
    } while (parse_take(p, ','));
    parse_want(p, ";");
}

/* -- variables ---------------------------------------------------------------------------------------------------- */
static void initial_values(parser *p, unsigned char *to, unsigned size, unsigned n)
{
    unsigned i = 0;
    parse_want(p, "{");
    do {
        const uint64_t v = parse_number(p);
        if (i == n) {
            parse_fail(p, "more values than there is room for");
        }
        memcpy(to + (size_t)i++ * size, &v, size);
    } while (parse_take(p, ','));
    parse_want(p, "}");
}

/* An alignment, if there is one, and the type behind it: bytes of an element, at which it lies if nothing else is said. */
static unsigned parse_layout(parser *p, unsigned *align)
{
    *align = 0;
    parse_next(p);
    if (parse_is(p, ".align")) {
        *align = (unsigned)parse_number(p);
        parse_next(p);
    }
    const unsigned size = ptx_bits[parse_type(p)] / 8;
    *align = *align ? *align : size;
    return size;
}

/* Behind ".shared" and the like: alignment, type, name, extent, values. Data is one block of a fixed size, since addresses
 * into it are taken while it is read. */
static void variable(parser *p, enum symbol_kind kind)
{
    unsigned align, n = 1;
    const unsigned size = parse_layout(p, &align);
    if (align == 0 || (align & (align - 1)) || align > 4096) {
        parse_fail(p, "alignment to %u", align);
    }
    symbol *s = parse_symbol(p, kind);
    parse_next(p);
    parse_name(p, s->name, sizeof s->name);
    if (parse_take(p, '[')) {
        n = parse_peek(p) == ']' ? 0 : (unsigned)parse_number(p);
        parse_want(p, "]");
    }
    if (n > 1u << 24 || (n == 0) != (kind == A_DYNAMIC)) {
        parse_fail(p, "an extent of %u", n);
    }
    s->size = n * size;
    s->align = align;
    if (kind == A_LOCAL) {
        s->at = (p->k->local + align - 1) & ~(int64_t)(align - 1);
        p->k->local = (unsigned)s->at + s->size;
    } else if (kind == A_DATA) {
        const size_t at = (p->m->ndata + align - 1) & ~(size_t)(align - 1);
        if (at + s->size > MOST_DATA) {
            parse_fail(p, "more data than there is room for");
        }
        s->at = (int64_t)(uintptr_t)(p->m->data + at);
        p->m->ndata = at + s->size;
        if (parse_take(p, '=')) {
            if (parse_peek(p) == '{') {
                initial_values(p, p->m->data + at, size, n);
            } else {
                const uint64_t v = parse_number(p);
                memcpy(p->m->data + at, &v, size);
            }
        }
    }
    parse_want(p, ";");
}

/* -- kernels ------------------------------------------------------------------------------------------------------------ */
static void parameters(parser *p)
{
    ptx_kernel *k = p->k;
    size_t room = 0;
    parse_want(p, "(");
    if (parse_take(p, ')')) {
        return;
    }
    do {
        unsigned align, n = 1;
        parse_want(p, ".param");
        const unsigned size = parse_layout(p, &align);
        k->param = parse_grow(p, k->param, (size_t)k->nparam, &room, sizeof *k->param);
        ptx_param *a = &k->param[k->nparam++];
        parse_next(p);
        parse_name(p, a->name, sizeof a->name);
        if (parse_take(p, '[')) {
            n = (unsigned)parse_number(p);
            parse_want(p, "]");
        }
        a->at = (k->param_bytes + align - 1) & ~(align - 1);
        a->size = n * size;
        k->param_bytes = a->at + a->size;
        symbol *s = parse_symbol(p, A_PARAM);
        memcpy(s->name, a->name, sizeof a->name);
        s->at = a->at;
    } while (parse_take(p, ','));
    parse_want(p, ")");
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
    if (parse_is(p, "{")) {
        p->scope++;
    } else if (parse_is(p, "}")) {
        leave_scope(p);
    } else if (parse_is(p, ".reg")) {
        registers(p);
    } else if (parse_is(p, ".local")) {
        variable(p, A_LOCAL);
    } else if (parse_is(p, ".shared")) {
        variable(p, A_SHARED);
    } else if (parse_is(p, ".pragma")) {
        parse_next(p);
        parse_want(p, ";");
    } else if (parse_peek(p) == ':') {
        symbol *s = parse_symbol(p, A_LABEL);
        parse_name(p, s->name, sizeof s->name);
        s->at = p->k->ninsn;
        s->scope = 1; /* known in the whole kernel: jumps are resolved at its end */
        p->s++;
    } else if (parse_is(p, ";")) {
        return;
    } else {
        parse_instruction(p);
    }
}

static void resolve(parser *p)
{
    ptx_kernel *k = p->k;
    for (size_t i = 0; i < p->njump; i++) {
        const symbol *s = parse_find(p, p->jumps[i].name);
        if (!s || s->kind != A_LABEL) {
            parse_fail(p, "%s is no label", p->jumps[i].name);
        }
        k->insn[p->jumps[i].insn].target = (int32_t)s->at;
    }
    p->njump = 0;
    parse_insn(p)->op = P_RET; /* a label may stand at the end */
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
        parse_fail(p, "no memory");
    }
    m->kernel = all;
    p->k = &m->kernel[m->nkernel++];
    *p->k = (ptx_kernel){.nreg = R_FIRST, .threads = MOST_THREADS, .dynamic_at = -1};
    p->insns_room = 0;
    parse_next(p);
    parse_name(p, p->k->name, sizeof p->k->name);
    p->scope = 1;
    parameters(p);
    while (parse_next(p) && !parse_is(p, "{")) {
        const bool threads = parse_is(p, ".maxntid");
        if (!threads && !parse_is(p, ".minnctapersm") && !parse_is(p, ".maxnreg")) {
            parse_fail(p, "%.*s is not known", (int)p->length, p->token);
        }
        unsigned n = 1;
        do {
            n *= (unsigned)parse_number(p);
        } while (parse_take(p, ','));
        p->k->threads = threads ? n : p->k->threads;
    }
    while (p->scope > 0 && parse_next(p)) {
        if (parse_is(p, "}") && p->scope == 1) {
            resolve(p);
        }
        statement(p);
    }
    if (p->scope > 0) {
        parse_fail(p, "the end, within a kernel");
    }
}

/* What is left of the library's functions, all of whose calls were taken in: `call` is no instruction that is known. */
static void skip_function(parser *p)
{
    int depth = 0;
    while (parse_next(p)) {
        depth += parse_is(p, "{") - parse_is(p, "}");
        if (depth == 0 && parse_is(p, "}")) {
            return;
        }
    }
    parse_fail(p, "the end, within a function");
}

static void directive(parser *p)
{
    if (parse_is(p, ".version") || parse_is(p, ".target") || parse_is(p, ".address_size")) {
        do { /* "sm_90, debug" */
            parse_next(p);
        } while (parse_take(p, ','));
    } else if (parse_is(p, ".visible") || parse_is(p, ".weak")) {
        return;
    } else if (parse_is(p, ".extern")) {
        parse_want(p, ".shared");
        variable(p, A_DYNAMIC);
    } else if (parse_is(p, ".shared")) {
        variable(p, A_SHARED);
    } else if (parse_is(p, ".const") || parse_is(p, ".global")) {
        variable(p, A_DATA);
    } else if (parse_is(p, ".entry")) {
        kernel(p);
    } else if (parse_is(p, ".func")) {
        skip_function(p);
    } else {
        parse_fail(p, "%.*s is not known", (int)p->length, p->token);
    }
}

/* False: the error is written. What it took stands in p and its module. */
static bool parse(parser *p)
{
    if (setjmp(p->out)) {
        return false;
    }
    while (parse_next(p)) {
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
        memset(m->data, 0, MOST_DATA); /* what has no initial value */
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
