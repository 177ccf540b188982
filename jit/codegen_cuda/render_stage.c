/*
 * jit/codegen_cuda/render_stage.c -- the stages of a kernel over rows as statements; see render_rows.h.
 *
 * Slots are variables t<number> of the row, kept values k<number>[kc], operands' rows s<number> and
 * d<number>. Every thread that works on a row computes its single values; one of them stores.
 */
#include <stdio.h>
#include <string.h>

#include "jit/codegen_cuda/render_rows.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

typedef struct params {
    char text[WF_KIR_MAX_PARAM][16];
    const char *name[WF_KIR_MAX_PARAM];
} params;

static bool is_row_source(const wf_cu_rr *x, int s)
{
    return x->rows->row_src >> s & 1;
}

/* No memory: the offset is what the body reads. */
static bool is_drawn(const wf_cu_rr *x, int s)
{
    return s >= 0 && (x->k->drawn >> s & 1);
}

/* Step of operand `op` (destinations first) at the element of the loop. */
static void column(const wf_cu_rr *x, int op)
{
    wf_text *t = x->t;
    const int at = x->l.op + op * (1 + x->r->nk + x->r->nr) + 1 + x->r->nk;
    for (int d = 0; d < x->r->nr; d++)
        P("%s(%s)c_%d * (%s)a.w[%s%d]", d ? " + " : "", x->index, d, x->index, x->base, at + d);
}

/* -- places of a thread's elements ---------------------------------------------------------------------------
 * What is adjacent is addressed from a pointer to the thread's first element of a group, so that another one is a constant away.
 * Vectors hold element j of neighbours g. */
static bool is_near(const wf_cu_rr *x, int op)
{
    return x->r->near >> op & 1;
}
static bool is_whole(const wf_cu_rr *x, int op)
{
    return x->v > 1 && (x->r->whole >> op & 1);
}

/* Vectors of elements of 16 bits that are read are words: of the upper half of one its mask is a bf16's float, where a compiler
 * takes two steps to get at a short and shift it. */
static int word_of(wf_kty type)
{
    return wf_kty_bits(type) == 16 ? 2 : 1;
}
static wf_kty read_type(wf_kty type)
{
    return word_of(type) > 1 ? WF_KT_U32 : type;
}

/* Of the kept values and operands that a port of a stage names. */
typedef struct place {
    int op, at;       /* op: the operand's number; -1: in memory of the kernel */
    bool near, whole; /* addressed from p<name>; taken as vectors */
    bool copy;        /* to shared memory */
    char name[16];
    wf_kty type;
} place;

/* Is it of the first stage that reads source s? */
static bool reads_first(const wf_cu_rr *x, const wf_stage *st, int s)
{
    for (const wf_stage *i = x->rows->stage; i < st; i++)
        for (uint32_t p = 0; i->kind == WF_ST_ELEM && p < i->body.nparam; p++)
            if (i->in[p].kind == WF_PORT_SOURCE && i->in[p].at == s)
                return false;
    return true;
}

/* Is it in registers since an earlier stage? */
static bool is_there(const wf_cu_rr *x, const wf_stage *st, const wf_port *port)
{
    return x->r->resident && (port->kind == WF_PORT_KEEP || !reads_first(x, st, port->at));
}

static bool find_place(const wf_cu_rr *x, const wf_stage *st, const wf_port *port, place *p)
{
    *p = (place){.op = -1, .at = port->at};
    if (port->kind == WF_PORT_KEEP) {
        p->near = !wf_cu_is_beside(x->r->scheme) && !x->r->resident;
        p->whole = x->v > 1 && !x->r->resident;
        p->type = (wf_kty)x->rows->keep_type[port->at];
        snprintf(p->name, sizeof p->name, "k%d", port->at);
    } else if (port->kind == WF_PORT_DST ||
               (port->kind == WF_PORT_SOURCE && !is_row_source(x, port->at) &&
                !is_drawn(x, port->at))) {
        const bool source = port->kind == WF_PORT_SOURCE;
        const bool copied = source && (x->r->copied >> port->at & 1);
        p->op = source ? x->rows->ndst + port->at : port->at;
        p->near = is_near(x, p->op);
        p->whole = is_whole(x, p->op);
        p->type = wf_kernel_ptr_type(x->k, p->op);
        p->copy = copied && reads_first(x, st, port->at);
        if (copied && !p->copy)
            p->op = -1;
        snprintf(p->name, sizeof p->name, "%c%d", !source ? 'd' : p->op < 0 ? 'y' : 's', port->at);
    } else {
        return false;
    }
    return true;
}

/* The element of the loop. */
static void put_place(const wf_cu_rr *x, const place *p)
{
    wf_text *t = x->t;
    if (p->op < 0 && x->r->resident) {
        P("ks%d[u]", p->at);
    } else if (p->near && x->v > 1) {
        P("p%s[64 * g + j]", p->name);
    } else if (p->near) {
        P("p%s[32 * u]", p->name);
    } else if (p->op < 0) {
        P("%s[kc]", p->name);
    } else {
        P("%s[", p->name);
        column(x, p->op);
        P("]");
    }
}

/* wf_put_<type>_<n> and, of shared memory, wf_keep_<type>_<n>: store a vector `when` that is not 0. In PTX, as the compiler forgets that it
 * is one as soon as its place is not one of a simple loop's, and branches around it. */
static void put_store(wf_text *t, wf_kty of, int n, bool shared)
{
    const unsigned bits = wf_kty_bits(of);
    const bool flt = wf_kty_is_float(of);
    const int half = bits == 16; /* two of which are a register */
    const bool registers =
        bits >= 16 &&
        (unsigned)n * bits <= 128; /* else in pieces, or in one that is right as it is */
    const char *name = shared ? "keep" : "put", *type = wf_kty_name(of);
    P("#ifndef WF_%s_%s_%d\n#define WF_%s_%s_%d\n"
      "WF_DEVICE void wf_%s_%s_%d(%s *p, struct wf_vec_%s_%d z, int when)\n{\n",
      name, type, n, name, type, n, name, type, n, wf_cu_type(of), type, n);
    if (registers) {
        P("#ifdef __CUDA_ARCH__\n    asm volatile(\"{ .reg .pred q; setp.ne.s32 q, %%0, 0;");
        for (int i = 0; half && i < n; i += 2)
            P(" .reg .b32 w%d; mov.b32 w%d, {%%%d, %%%d};", i, i, i + 2, i + 3);
        P(" @q st.%s%s.b%u [%%1], {", shared ? "shared" : "global",
          n >> half == 4   ? ".v4"
          : n >> half == 2 ? ".v2"
                           : "",
          half ? 32 : bits);
        for (int i = 0; i < n; i += 1 + half)
            P(half ? "%sw%d" : "%s%%%d", i ? ", " : "", half ? i : i + 2);
        P("}; }\" :: \"r\"(when), \"%s(p)",
          shared ? "r\"((unsigned int)__cvta_generic_to_shared" : "l\"");
        P("%s", shared ? ")" : "");
        for (int i = 0; i < n; i++)
            P(", \"%s\"(z.v[%d])",
              bits == 16   ? "h"
              : bits == 32 ? flt ? "f" : "r"
              : flt        ? "d"
                           : "l",
              i);
        P(" : \"memory\");\n#else\n");
    }
    P("    if (when)\n        *(struct wf_vec_%s_%d *)p = z;\n%s}\n#endif\n", type, n,
      registers ? "#endif\n" : "");
}

void wf_cu_aim(const wf_cu_rr *x, const wf_stage *st)
{
    wf_text *t = x->t;
    char seen[2 * WF_KIR_MAX_PARAM][16];
    int n = 0;
    for (uint32_t i = 0; i < st->body.nparam + st->body.nout; i++) {
        place p;
        const bool out = i >= st->body.nparam;
        if (!find_place(x, st, out ? &st->out[i - st->body.nparam] : &st->in[i], &p) || !p.near ||
            (!out && is_there(x, st, &st->in[i])))
            continue;
        bool again = false;
        for (int s = 0; s < n && !again; s++)
            again = strcmp(seen[s], p.name) == 0;
        if (again)
            continue;
        memcpy(seen[n++], p.name, sizeof p.name);
        P("        %s%s *const p%s = %s + at%s;\n", p.name[0] == 's' ? "const " : "",
          wf_cu_type(p.type), p.name, p.name, p.op >= 0 && x->r->shift ? " - shift" : "");
        if (p.copy)
            P("        %s *const py%d = y%d + at;\n", wf_cu_type(p.type), p.at, p.at);
    }
}

void wf_cu_vector_types(const wf_cu_rr *x)
{
    for (int i = 0; i < x->rows->nstage && x->v > 1; i++) {
        const wf_stage *st = &x->rows->stage[i];
        for (uint32_t p = 0; st->kind == WF_ST_ELEM && p < st->body.nparam + st->body.nout; p++) {
            place at;
            if (!find_place(x, st, p < st->body.nparam ? &st->in[p] : &st->out[p - st->body.nparam],
                            &at) ||
                !at.whole)
                continue;
            const bool read = p < st->body.nparam;
            const wf_kty type = read ? read_type(at.type) : at.type;
            const int n = read ? x->v / word_of(at.type) : x->v;
            wf_cu_vector_type(x->t, type, n);
            if (!read || at.copy)
                put_store(x->t, type, n, at.copy || (at.op < 0 && x->r->shared));
        }
    }
}

/* An element that lies in memory, and not one of the row. */
static bool is_gathered(const wf_cu_rr *x, const wf_port *port)
{
    return port->kind == WF_PORT_KEEP ||
           (port->kind == WF_PORT_SOURCE && !is_row_source(x, port->at) && !is_drawn(x, port->at));
}

bool wf_cu_is_word(const wf_cu_rr *x, const wf_port *port)
{
    return wf_cu_across(x) > 1 && port->kind == WF_PORT_SOURCE && !(x->r->alike >> port->at & 1);
}

/* What was gathered of the element of the loop. */
static void put_gathered(const wf_cu_rr *x, const wf_stage *st, const wf_port *port)
{
    wf_text *t = x->t;
    place p;
    find_place(x, st, port, &p);
    const char c = port->kind == WF_PORT_KEEP ? 'k' : 'x';
    if (p.whole && word_of(p.type) > 1)
        P("(%s)(%cs%d[g].v[j / 2] >> j %% 2 * 16)", wf_cu_type(p.type), c, port->at);
    else
        P(p.whole ? "%cs%d[g].v[j]" : "%cs%d[u]", c, port->at);
}

/* The operand's one element of the row. */
static void load_row(const wf_cu_rr *x, int s, const char *type)
{
    wf_text *t = x->t;
    P(is_drawn(x, s) ? "        const %s x%d = s%d + (0);\n" : "        const %s x%d = s%d[0];\n",
      type, s, s);
}

/* Declares what the body reads. Elements have been gathered, and those of the row loaded, where `elements`. */
static void loads(const wf_cu_rr *x, const wf_stage *st, params *p, bool elements)
{
    wf_text *t = x->t;
    const wf_kir *k = &st->body;
    for (uint32_t i = 0; i < k->nparam; i++) {
        const wf_port *port = &st->in[i];
        const char *type = wf_cu_type((wf_kty)k->param_type[i]);
        p->name[i] = p->text[i];
        switch ((wf_port_kind)port->kind) {
        case WF_PORT_SOURCE:
            snprintf(p->text[i], sizeof p->text[i], "x%d", port->at);
            if (is_row_source(x, port->at)) {
                if (!elements)
                    load_row(x, port->at, type);
            } else if (is_drawn(x, port->at)) {
                P("        const %s x%d = s%d + (", type, port->at, port->at);
                column(x, x->rows->ndst + port->at);
                P(");\n");
            } else if (wf_cu_is_word(x, port)) {
                P("        const %s x%d = (%s)(xs%d[u] >> %d * v);\n", type, port->at, type,
                  port->at, 32 / wf_cu_across(x));
            } else {
                P("        const %s x%d = ", type, port->at);
                put_gathered(x, st, port);
                P(";\n");
            }
            break;
        case WF_PORT_SCALAR:
            snprintf(p->text[i], sizeof p->text[i], "c%d", port->at);
            break;
        case WF_PORT_INDEX:
            snprintf(p->text[i], sizeof p->text[i], "number");
            P("        const long long number = c;\n");
            break;
        case WF_PORT_SLOT:
            snprintf(p->text[i], sizeof p->text[i],
                     elements && wf_cu_across(x) > 1 ? "tv%d[v]" : "t%d", port->at);
            break;
        case WF_PORT_KEEP:
            snprintf(p->text[i], sizeof p->text[i], "kept%d", port->at);
            P("        const %s kept%d = ", type, port->at);
            put_gathered(x, st, port);
            P(";\n");
            break;
        case WF_PORT_DST:
        case WF_PORT_TOTAL:
        case WF_PORT_CHECK:
            break;
        }
    }
}

static const char check[] = "        if (%s != -1)\n            atomicMin((unsigned long long *)"
                            "a.w[%d], (unsigned long long)%s);\n";

/* Of the statement that follows. guard NULL: always */
static void put_if(wf_text *t, const char *guard)
{
    if (guard)
        P("        if (%s)\n            ", guard);
    else
        P("        ");
}

/* v is the element of what is kept or stored. */
static void put_element(const wf_cu_rr *x, const wf_stage *st, const wf_port *port, const char *v,
                        const char *guard, bool rest)
{
    wf_text *t = x->t;
    const char *and = guard ? " && " : "", *if_ = guard ? guard : "";
    place at;
    find_place(x, st, port, &at);
    const bool keeps = at.op < 0;
    /* What is kept has room for whole vectors; but one at the border of two blocks of a row is of two warps, of which each has its elements. */
    const bool ours = keeps && !(x->r->shift && x->r->scheme != WF_CU_WARP);
    const char *when = ours ? "any" : "all";
    if (!rest)
        when = guard ? "" : "1";
    if (at.whole)
        P("        z%s.v[j] = %s;\n        if (j == %d)\n"
          "            wf_%s_%s_%d(p%s + 64 * g, z%s, %s%s%s);\n",
          at.name, v, x->v - 1, keeps && x->r->shared ? "keep" : "put", wf_kty_name(at.type), x->v,
          at.name, at.name, when, rest ? and : "", if_);
    if (at.whole && rest && !ours) {
        P("        if (j == %d && any && !all%s%s) {\n", x->v - 1, and, if_);
        for (int i = 0; i < x->v; i++)
            P("            if (64 * g + %d < left && (g > 0 || e - j + %d >= 0))\n"
              "                p%s[64 * g + %d] = z%s.v[%d];\n",
              i, i, at.name, i, at.name, i);
        P("        }\n");
    }
    if (at.whole)
        return;
    if (keeps && x->r->resident)
        P("        ");
    else if (rest && x->v > 1)
        P("        if (in%s%s)\n            ", and, if_);
    else
        put_if(t, guard);
    put_place(x, &at);
    P(" = %s;\n", v);
}

static void put_out(const wf_cu_rr *x, const wf_stage *st, const params *p, uint32_t o,
                    const char *guard, bool elements, bool rest, wf_cu_total_fn total)
{
    wf_text *t = x->t;
    const wf_kir *k = &st->body;
    const wf_port *port = &st->out[o];
    const wf_kty type = wf_kir_type(k, k->out[o]);
    wf_text value = {0};
    wf_cu_ref(&value, k, k->out[o], "v", p->name);
    const char *v = value.s ? value.s : "0";
    t->failed |= value.failed;
    switch ((wf_port_kind)port->kind) {
    case WF_PORT_SLOT:
        P("        t%d = %s;\n", port->at, v);
        break;
    case WF_PORT_KEEP: /* what threads without a row keep is theirs, or what others keep too */
        put_element(x, st, port, v, NULL, rest);
        break;
    case WF_PORT_DST:
        if (elements) {
            put_element(x, st, port, v, guard, rest);
            break;
        }
        put_if(t, guard);
        P("d%d[0] = %s;\n", port->at, v);
        break;
    case WF_PORT_TOTAL:
        if (rest && x->v > 1)
            P("        if (in) {\n");
        total(x, port->at, port->op, type, v);
        if (rest && x->v > 1)
            P("        }\n");
        break;
    case WF_PORT_CHECK:
        if (rest && x->v > 1)
            P("        if (in)\n");
        put_if(t, guard);
        P("{\n");
        P(check, v, port->at ? x->l.errors + port->at - 1 : x->l.error, v);
        P("        }\n");
        break;
    case WF_PORT_SOURCE:
    case WF_PORT_SCALAR:
    case WF_PORT_INDEX:
        break;
    }
    wf_text_free(&value);
}

void wf_cu_single_stage(const wf_cu_rr *x, const wf_stage *st, const char *leader)
{
    wf_text *t = x->t;
    params p;
    P("        {\n");
    loads(x, st, &p, false);
    wf_cu_body(t, &st->body, "v", p.name);
    for (uint32_t o = 0; o < st->body.nout; o++)
        put_out(x, st, &p, o, leader, false, false, NULL);
    P("        }\n");
}

void wf_cu_columns(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    const char *type = x->r->wide ? "long long" : "unsigned int";
    if (x->r->nr == 1) {
        P("        const %s c_0 = (%s)c;\n", type, type);
        return;
    }
    P("        %s rest = (%s)c, up;\n", type, type);
    for (int d = x->r->nr - 1; d >= 1; d--) {
        const int word = x->l.reduced + d * WF_CU_DIVISOR;
        wf_cu_divide(t, x->r->wide, "up", "rest", x->base, word);
        P("        const %s c_%d = rest - up * (%s)a.w[%s%d];\n        rest = up;\n", type, d, type,
          x->base, word);
    }
    P("        const %s c_0 = rest;\n", type);
}

void wf_cu_pick_stage(const wf_cu_rr *x, const wf_stage *st)
{
    wf_text *t = x->t;
    const int s = st->in[0].at, to = st->out[0].at;
    P("        t%d = 0;\n        if ((long long)t%d >= 0 && (long long)t%d < n) {\n"
      "        const long long c = (long long)t%d;\n",
      to, st->in[1].at, st->in[1].at, st->in[1].at);
    wf_cu_columns(x);
    P("        t%d = s%d[", to, s);
    column(x, x->rows->ndst + s);
    P("];\n        }\n");
}

void wf_cu_sure(const wf_cu_rr *x, char *s, size_t n)
{
    /* the shortest row has 64 / v * (resident - 8) + 1 elements, less v - 1 that it may begin behind its first vector's border */
    const int sure = x->r->resident ? (x->r->resident - 8) / x->v - (x->r->shift && x->v > 2) : 0;
    *s = 0;
    if (sure > 0)
        snprintf(s, n, "g < %d || ", sure);
}

int wf_cu_gathered_bytes(const wf_cu_rr *x, const wf_stage *st)
{
    unsigned bits = 0;
    for (uint32_t i = 0; i < st->body.nparam; i++)
        if (is_gathered(x, &st->in[i]))
            bits += wf_kty_bits((wf_kty)st->body.param_type[i]);
    return (int)bits / 8;
}

int wf_cu_gathered(const wf_cu_rr *x, const wf_stage *st)
{
    int words = 0;
    for (uint32_t i = 0; i < st->body.nparam; i++)
        if (is_gathered(x, &st->in[i]) && !is_there(x, st, &st->in[i]))
            words += wf_kty_bits((wf_kty)st->body.param_type[i]) == 64 ? 2 : 1;
    return words;
}

/* -- quotients ----------------------------------------------------------------------------------------------
 * Elements that are divided by a value of the row are multiplied by its reciprocal and corrected: the same bits where
 * both are in the middle of the exponents (jit/codegen_cpu/render_ease.c has the proof). Whole groups are asked whether
 * they are; from the first one that is not the thread goes on with the loop of guarded groups, which divides. */
static void find_params(const wf_cu_rr *x, const wf_stage *st, wf_cu_param what[WF_KIR_MAX_PARAM])
{
    for (uint32_t i = 0; i < st->body.nparam; i++) {
        const wf_port *port = &st->in[i];
        what[i] = is_gathered(x, port) ? WF_CU_ELEMENT
                  : port->kind == WF_PORT_SLOT || port->kind == WF_PORT_SCALAR ||
                          (port->kind == WF_PORT_SOURCE && is_row_source(x, port->at))
                      ? WF_CU_SHARED
                      : WF_CU_OTHER;
    }
}

/* Which parameters are divided by, and which are divided; are there any? */
static bool find_quotients(const wf_cu_rr *x, const wf_stage *st, bool used[WF_KIR_MAX_PARAM])
{
    const wf_kir *k = &st->body;
    wf_cu_param what[WF_KIR_MAX_PARAM];
    bool any = false;
    find_params(x, st, what);
    memset(used, 0, WF_KIR_MAX_PARAM * sizeof *used);
    for (uint32_t n = 0; n < k->n; n++)
        if (wf_cu_is_quick(k, &k->ins[n], what)) {
            used[k->ins[k->ins[n].src[0]].imm] = used[k->ins[k->ins[n].src[1]].imm] = true;
            any = true;
        }
    return any;
}

bool wf_cu_has_totals(const wf_stage *st)
{
    for (uint32_t o = 0; st->kind == WF_ST_ELEM && o < st->body.nout; o++)
        if (st->out[o].kind == WF_PORT_TOTAL)
            return true;
    return false;
}

bool wf_cu_row_values(const wf_cu_rr *x, const wf_stage *st)
{
    wf_text *t = x->t;
    const wf_kir *k = &st->body;
    bool used[WF_KIR_MAX_PARAM];
    const bool any = find_quotients(x, st, used);
    for (uint32_t i = 0; i < k->nparam; i++)
        if (st->in[i].kind == WF_PORT_SOURCE && is_row_source(x, st->in[i].at))
            load_row(x, st->in[i].at, wf_cu_type((wf_kty)k->param_type[i]));
    if (any)
        P("        int middle = 1;\n");
    for (uint32_t i = 0; i < k->nparam; i++) {
        const wf_port *port = &st->in[i];
        const char kind = port->kind == WF_PORT_SLOT     ? 't'
                          : port->kind == WF_PORT_SCALAR ? 'c'
                                                         : 'x';
        if (used[i] && !is_gathered(x, port))
            P("        const float reciprocal%u = 1.0f / %c%d;\n"
              "        middle &= wf_u32(%c%d) - 0x30800000u < 0x1E000000u;\n",
              i, kind, port->at, kind, port->at);
    }
    return any;
}

void wf_cu_check_group(const wf_cu_rr *x, const wf_stage *st, int group, bool rest, bool breaks)
{
    wf_text *t = x->t;
    bool used[WF_KIR_MAX_PARAM], large = false;
    find_quotients(x, st, used);
    P("        unsigned int low = ~0u, high = 0;\n#pragma unroll\n"
      "        for (int u = 0; u < %d; u++) {\n        unsigned int size;\n",
      group);
    if (x->v > 1)
        P("        const int g = u / %d, j = u %% %d;\n", x->v, x->v);
    if (rest) {
        char sure[24];
        wf_cu_sure(x, sure, sizeof sure);
        P("        const int in = %s(%s64 * g + j < left);\n",
          x->r->shift ? "(g > 0 || end - left + j >= shift) && " : "", sure);
    }
    for (uint32_t i = 0; i < st->body.nparam; i++) {
        const wf_port *port = &st->in[i];
        if (!used[i] || !is_gathered(x, port))
            continue;
        P("        size = wf_u32(");
        put_gathered(x, st, port);
        P(")%s;\n", port->small ? "" : " & 0x7FFFFFFFu");
        if (rest) /* 1 is neither too small nor too large */
            P("        size = in ? size : 0x3F800000u;\n");
        P("        low = size - 1u < low ? size - 1u : low;\n");
        if (!port->small)
            P("        high = size > high ? size : high;\n");
        large |= !port->small;
    }
    P("        }\n");
    if (!breaks)
        P("        const int quick = middle && low >= 0x127FFFFFu%s;\n",
          large ? " && high <= 0x6C800000u" : "");
    else
        P("        if (!middle || low < 0x127FFFFFu%s)\n            break;\n",
          large ? " || high > 0x6C800000u" : "");
}

/* Of a rest vectors without an element in the row are not read, and yet computed with. */
static void declare_elements(const wf_cu_rr *x, const wf_stage *st, const wf_port *port, int group,
                             bool rest)
{
    wf_text *t = x->t;
    place p;
    const char c = port->kind == WF_PORT_KEEP ? 'k' : 'x';
    if (!find_place(x, st, port, &p))
        return;
    if (p.whole)
        P("        struct wf_vec_%s_%d %cs%d[%d]%s;\n", wf_kty_name(read_type(p.type)),
          x->v / word_of(p.type), c, p.at, group / x->v, rest ? " = {{{0}}}" : "");
    else
        P("        %s %cs%d[%d];\n", wf_cu_is_word(x, port) ? "unsigned int" : wf_cu_type(p.type),
          c, p.at, group);
}

void wf_cu_declare_group(const wf_cu_rr *x, const wf_stage *st, int group, bool rest)
{
    for (uint32_t i = 0; i < st->body.nparam && !x->r->resident; i++)
        declare_elements(x, st, &st->in[i], group, rest);
}

void wf_cu_declare_resident(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    for (int i = 0; i < x->rows->nkeep && x->r->resident; i++)
        P("        %s ks%d[%d];\n", wf_cu_type((wf_kty)x->rows->keep_type[i]), i, x->r->resident);
    for (int i = 0; i < x->rows->nstage && x->r->resident; i++) {
        const wf_stage *st = &x->rows->stage[i];
        for (uint32_t p = 0; st->kind == WF_ST_ELEM && p < st->body.nparam; p++)
            if (is_gathered(x, &st->in[p]) && !is_there(x, st, &st->in[p]))
                declare_elements(x, st, &st->in[p], x->r->resident, !x->r->full);
    }
}

/* What results of neighbours are collected in. */
void wf_cu_declare_results(const wf_cu_rr *x, const wf_stage *st)
{
    wf_text *t = x->t;
    for (uint32_t o = 0; o < st->body.nout; o++) {
        place p;
        if (find_place(x, st, &st->out[o], &p) && p.whole)
            P("        struct wf_vec_%s_%d z%s;\n", wf_kty_name(p.type), x->v, p.name);
    }
}

void wf_cu_gather(const wf_cu_rr *x, const wf_stage *st, bool rest)
{
    wf_text *t = x->t;
    wf_cu_columns(x);
    for (uint32_t i = 0; i < st->body.nparam; i++) {
        place p;
        const char c = st->in[i].kind == WF_PORT_KEEP ? 'k' : 'x';
        if (!find_place(x, st, &st->in[i], &p) || is_there(x, st, &st->in[i]))
            continue;
        if (p.whole) {
            P("        if (%s)\n            %cs%d[g] = ", rest ? "any && j == 0" : "j == 0", c,
              p.at);
            P("*(const struct wf_vec_%s_%d *)(p%s + 64 * g)", wf_kty_name(read_type(p.type)),
              x->v / word_of(p.type), p.name);
        } else {
            P("        %cs%d[u] = %s%s", c, p.at, rest && x->v > 1 ? "!in ? 0 : " : "",
              wf_cu_is_word(x, &st->in[i]) ? "*(const unsigned int *)&" : "");
            put_place(x, &p);
        }
        P(";\n");
    }
}

bool wf_cu_copies(const wf_cu_rr *x, const wf_stage *st)
{
    for (uint32_t i = 0; i < st->body.nparam; i++) {
        place p;
        if (find_place(x, st, &st->in[i], &p) && p.copy)
            return true;
    }
    return false;
}

void wf_cu_copy(const wf_cu_rr *x, const wf_stage *st, bool rest)
{
    wf_text *t = x->t;
    for (uint32_t i = 0; i < st->body.nparam; i++) {
        place p;
        if (find_place(x, st, &st->in[i], &p) && p.copy)
            P("        if (j == 0)\n            wf_keep_%s_%d((%s *)(py%d + 64 * g), xs%d[g], "
              "%s);\n",
              wf_kty_name(read_type(p.type)), x->v / word_of(p.type), wf_cu_type(read_type(p.type)),
              p.at, p.at, rest ? "any" : "1");
    }
}

void wf_cu_element(const wf_cu_rr *x, const wf_stage *st, bool quick, bool rest,
                   wf_cu_total_fn total)
{
    wf_text *t = x->t;
    params p;
    wf_cu_param what[WF_KIR_MAX_PARAM];
    find_params(x, st, what);
    wf_cu_columns(x);
    loads(x, st, &p, true);
    wf_cu_body_of(t, &st->body, "v", p.name, quick ? what : NULL);
    for (uint32_t o = 0; o < st->body.nout; o++)
        put_out(x, st, &p, o, wf_cu_has_totals(st) ? "active" : NULL, true, rest, total);
}

void wf_cu_each_total(const wf_cu_rr *x, const wf_stage *st,
                      void (*fn)(const wf_cu_rr *x, int slot, int op, wf_kty type))
{
    for (uint32_t o = 0; st->kind == WF_ST_ELEM && o < st->body.nout; o++)
        if (st->out[o].kind == WF_PORT_TOTAL)
            fn(x, st->out[o].at, st->out[o].op, wf_kir_type(&st->body, st->body.out[o]));
}

/* -- rows ---------------------------------------------------------------------------------------------- */
void wf_cu_row_pointers(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    const char *type = x->r->wide ? "long long" : "unsigned int";
    P("        %s rest = (%s)r, up;\n", type, type);
    for (int d = x->r->nk - 1; d >= 1; d--) {
        const int word = x->l.kept + d * WF_CU_DIVISOR;
        wf_cu_divide(t, x->r->wide, "up", "rest", "", word);
        P("        const %s r_%d = rest - up * (%s)a.w[%d];\n        rest = up;\n", type, d, type,
          word);
    }
    P("        const %s r_0 = rest;\n", type);
    const int ndst = x->rows->ndst;
    for (int o = 0; o < ndst + x->k->nsrc; o++) {
        const int at = x->l.op + o * (1 + x->r->nk + x->r->nr);
        const char *element = wf_cu_type(wf_kernel_ptr_type(x->k, o));
        if (is_drawn(x, o - ndst))
            P("        const long long s%d = (long long)a.w[%s%d]", o - ndst, x->base, at);
        else
            P("        %s%s *const %c%d = (%s%s *)a.w[%s%d]", o < ndst ? "" : "const ", element,
              o < ndst ? 'd' : 's', o < ndst ? o : o - ndst, o < ndst ? "" : "const ", element,
              x->base, at);
        for (int d = 0; d < x->r->nk; d++)
            P(" + (%s)r_%d * (%s)a.w[%d]", x->index, d, x->index, at + 1 + d);
        P(";\n");
    }
}

void wf_cu_scalars(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    for (int s = 0; s < x->k->nscalar; s++) {
        const wf_kty type = (wf_kty)x->rows->scalar_type[s];
        P("    const %s c%d = ", wf_cu_type(type), s);
        wf_cu_word(t, type, "", x->l.scalar + s);
        P(";\n");
    }
}

void wf_cu_declare_slots(const wf_cu_rr *x, int begin, int end)
{
    wf_text *t = x->t;
    bool done[WF_ROWS_SLOTS] = {false};
    for (int i = begin; i < end; i++) {
        const wf_stage *st = &x->rows->stage[i];
        const uint32_t n = st->kind == WF_ST_PICK ? 1 : st->body.nout;
        for (uint32_t o = 0; o < n; o++) {
            const int at = st->out[o].at;
            if ((st->out[o].kind != WF_PORT_SLOT && st->out[o].kind != WF_PORT_TOTAL) || done[at])
                continue;
            done[at] = true;
            P("        %s t%d = 0;\n", wf_cu_type((wf_kty)x->rows->slot_type[at]), at);
        }
    }
}
