/*
 * jit/codegen_cuda/render_stage.c -- the stages of a kernel over rows as statements; see render_rows.h.
 *
 * Slots are variables t<number> of the row, kept values k<number>[kc], operands' rows s<number> and
 * d<number>. Every thread that works on a row computes its single values; one of them stores.
 */
#include <stdio.h>

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
        P("%s(%s)c_%d * (%s)a.w[%d]", d ? " + " : "", x->index, d, x->index, at + d);
}

/* An element that lies in memory, and not one of the row. */
static bool is_gathered(const wf_cu_rr *x, const wf_port *port)
{
    return port->kind == WF_PORT_KEEP ||
           (port->kind == WF_PORT_SOURCE && !is_row_source(x, port->at) && !is_drawn(x, port->at));
}

static void element_of(const wf_cu_rr *x, const wf_port *port)
{
    wf_text *t = x->t;
    if (port->kind == WF_PORT_KEEP) {
        P("k%d[kc]", port->at);
    } else {
        P("s%d[", port->at);
        column(x, x->rows->ndst + port->at);
        P("]");
    }
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
            } else {
                P("        const %s x%d = xs%d[u];\n", type, port->at, port->at);
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
            snprintf(p->text[i], sizeof p->text[i], "t%d", port->at);
            break;
        case WF_PORT_KEEP:
            snprintf(p->text[i], sizeof p->text[i], "kept%d", port->at);
            P("        const %s kept%d = ks%d[u];\n", type, port->at, port->at);
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

static void put_out(const wf_cu_rr *x, const wf_stage *st, const params *p, uint32_t o,
                    const char *guard, bool elements, wf_cu_total_fn total)
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
    case WF_PORT_KEEP:
        P("        if (active)\n            k%d[kc] = %s;\n", port->at, v);
        break;
    case WF_PORT_DST:
        P("        if (%s)\n            d%d[", guard, port->at);
        if (elements)
            column(x, port->at);
        else
            P("0");
        P("] = %s;\n", v);
        break;
    case WF_PORT_TOTAL:
        total(x, port->at, port->op, type, v);
        break;
    case WF_PORT_CHECK:
        P("        if (%s) {\n", guard);
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
        put_out(x, st, &p, o, leader, false, NULL);
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
        wf_cu_divide(t, x->r->wide, "up", "rest", word);
        P("        const %s c_%d = rest - up * (%s)a.w[%d];\n        rest = up;\n", type, d, type,
          word);
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

int wf_cu_gathered(const wf_cu_rr *x, const wf_stage *st)
{
    int words = 0;
    for (uint32_t i = 0; i < st->body.nparam; i++)
        if (is_gathered(x, &st->in[i]))
            words += wf_kty_bits((wf_kty)st->body.param_type[i]) == 64 ? 2 : 1;
    return words;
}

void wf_cu_row_elements(const wf_cu_rr *x, const wf_stage *st)
{
    for (uint32_t i = 0; i < st->body.nparam; i++)
        if (st->in[i].kind == WF_PORT_SOURCE && is_row_source(x, st->in[i].at))
            load_row(x, st->in[i].at, wf_cu_type((wf_kty)st->body.param_type[i]));
}

void wf_cu_declare_group(const wf_cu_rr *x, const wf_stage *st, int group)
{
    wf_text *t = x->t;
    for (uint32_t i = 0; i < st->body.nparam; i++)
        if (is_gathered(x, &st->in[i]))
            P("        %s %cs%d[%d];\n", wf_cu_type((wf_kty)st->body.param_type[i]),
              st->in[i].kind == WF_PORT_KEEP ? 'k' : 'x', st->in[i].at, group);
}

void wf_cu_gather(const wf_cu_rr *x, const wf_stage *st)
{
    wf_text *t = x->t;
    wf_cu_columns(x);
    for (uint32_t i = 0; i < st->body.nparam; i++)
        if (is_gathered(x, &st->in[i])) {
            P("        %cs%d[u] = ", st->in[i].kind == WF_PORT_KEEP ? 'k' : 'x', st->in[i].at);
            element_of(x, &st->in[i]);
            P(";\n");
        }
}

void wf_cu_element(const wf_cu_rr *x, const wf_stage *st, wf_cu_total_fn total)
{
    wf_text *t = x->t;
    params p;
    wf_cu_columns(x);
    loads(x, st, &p, true);
    wf_cu_body(t, &st->body, "v", p.name);
    for (uint32_t o = 0; o < st->body.nout; o++)
        put_out(x, st, &p, o, "active", true, total);
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
        wf_cu_divide(t, x->r->wide, "up", "rest", word);
        P("        const %s r_%d = rest - up * (%s)a.w[%d];\n        rest = up;\n", type, d, type,
          word);
    }
    P("        const %s r_0 = rest;\n", type);
    const int ndst = x->rows->ndst;
    for (int o = 0; o < ndst + x->k->nsrc; o++) {
        const int at = x->l.op + o * (1 + x->r->nk + x->r->nr);
        const char *element = wf_cu_type(wf_kernel_ptr_type(x->k, o));
        if (is_drawn(x, o - ndst))
            P("        const long long s%d = (long long)a.w[%d]", o - ndst, at);
        else
            P("        %s%s *const %c%d = (%s%s *)a.w[%d]", o < ndst ? "" : "const ", element,
              o < ndst ? 'd' : 's', o < ndst ? o : o - ndst, o < ndst ? "" : "const ", element, at);
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
        wf_cu_word(t, type, x->l.scalar + s);
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
