/*
 * jit/codegen_cpu/render_row.c -- LLVM text of kernels over rows.
 *
 * The kernel is a switch over its stages, each of which runs on some elements of a row, or computes values of a row; the driver of
 * llvm_rows.c calls them, and does the rest. What passes between stages is in memory: values in the slots of the driver's frame, kept
 * elements in buffers, the lanes of totals where the frame says. An ELEM stage goes over its elements in vectors; what its lanes see of a
 * last, short group the driver takes back. Results pass the caches where the driver asks for it.
 *
 * Neighbouring stages of single values are one. Names of stage n start with "s<n>"; of the driver's stage c, with "c<c>".
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/codegen_cpu/llvm_rows.h"
#include "jit/codegen_cpu/render_total.h"

enum { LANES = WF_LL_LANES };
#define P(...) wf_text_putf(t, __VA_ARGS__)

typedef struct elem elem;
typedef struct rows {
    wf_text *t;
    const wf_kernel *k;
    const wf_rows_kernel *r;
    int lanes, registers;
    uint64_t used[2];          /* operands that ELEM stages read; write */
    int heaviest;              /* the ELEM stage that computes most */
    wf_ll slot[WF_ROWS_SLOTS]; /* operand of a single value in the driver's stage slot_at */
    int at, ncase;             /* the driver's stage that is written, of how many */
    int slot_at[WF_ROWS_SLOTS], place_at[WF_KERNEL_MAX_PTR];
    int serial;  /* of loads */
    elem **elem; /* of each stage, NULL for those of single values */
} rows;

struct elem {
    rows *w;
    const wf_stage *st;
    wf_ll_split split;
    wf_kir hurried;    /* a quicker body, empty if there is none */
    wf_ll_split quick; /* the same, split */
    int n;             /* of the stage */
    int nsub;          /* vectors written out, one behind another */
    int step;          /* elements of all of them */
    bool stored;       /* totals have their lanes in memory, else in registers */
    bool ordered;      /* some total is */
    int ntotal;
    wf_ll_total totals[WF_KIR_MAX_OUT];
    uint64_t used[2]; /* operands that are read; written */
    wf_ll uniform[WF_KIR_MAX_PARAM], quick_uniform[WF_KIR_MAX_PARAM];
};

static int ndst(const rows *w)
{
    return w->r->ndst;
}
static int keep_operand(const rows *w, int keep)
{
    return ndst(w) + w->k->nsrc + keep;
}
static wf_kty operand_type(const rows *w, int i)
{
    return wf_kernel_ptr_type(w->k, i);
}

/* The operands that are sources, as bits. */
static uint64_t source_operands(const rows *w)
{
    return ((UINT64_C(1) << w->k->nsrc) - 1) << ndst(w);
}

/* -- single values ------------------------------------------------------------------------------------------ */
static bool is_row_source(const rows *w, int i)
{
    return w->r->row_src >> i & 1;
}

/* Where operand i's row is: %c<c>R<i>. */
static wf_ll place(rows *w, int i)
{
    wf_text *t = w->t;
    wf_ll r;
    snprintf(r.s, sizeof r.s, "%%c%dR%d", w->at, i);
    if (w->place_at[i] != w->at)
        P("  %s.a = getelementptr ptr, ptr %%ptr, i64 %d\n  %s = load ptr, ptr %s.a\n", r.s, i, r.s,
          r.s);
    w->place_at[i] = w->at;
    return r;
}

/* %<name>.a := where the driver's frame has something. */
static void in_frame(wf_text *t, const char *name, size_t offset)
{
    P("  %%%s.a = getelementptr i8, ptr %%size, i64 %zu\n", name, offset);
}

static size_t slot_offset(int slot)
{
    return offsetof(wf_llr_frame, slot) + (size_t)slot * sizeof(uint64_t);
}

static wf_ll slot_value(rows *w, int at)
{
    wf_text *t = w->t;
    const wf_kty type = (wf_kty)w->r->slot_type[at];
    char name[32];
    if (w->slot_at[at] == w->at)
        return w->slot[at];
    w->slot_at[at] = w->at;
    snprintf(name, sizeof name, "c%dl%d", w->at, at);
    in_frame(t, name, slot_offset(at));
    if (type == WF_KT_BOOL)
        P("  %%%s.m = load i8, ptr %%%s.a\n  %%%s = icmp ne i8 %%%s.m, 0\n", name, name, name,
          name);
    else
        P("  %%%s = load %s, ptr %%%s.a\n", name, wf_ll_type(type, 1).s, name);
    snprintf(w->slot[at].s, sizeof w->slot[at].s, "%%%s", name);
    return w->slot[at];
}

static void set_slot(rows *w, int at, wf_ll x)
{
    wf_text *t = w->t;
    const wf_kty type = (wf_kty)w->r->slot_type[at];
    char name[32];
    w->slot[at] = x;
    w->slot_at[at] = w->at;
    snprintf(name, sizeof name, "c%do%d", w->at, at);
    in_frame(t, name, slot_offset(at));
    if (type == WF_KT_BOOL)
        P("  %%%s.m = zext i1 %s to i8\n  store i8 %%%s.m, ptr %%%s.a\n", name, x.s, name, name);
    else
        P("  store %s %s, ptr %%%s.a\n", wf_ll_type(type, 1).s, x.s, name);
}

/* The operand of a port that is the same for every element. */
static wf_ll single(rows *w, const wf_port *port)
{
    wf_text *t = w->t;
    const bool scalar = port->kind == WF_PORT_SCALAR;
    const int operand = ndst(w) + port->at;
    wf_ll r;
    if (port->kind == WF_PORT_SLOT)
        return slot_value(w, port->at);
    snprintf(r.s, sizeof r.s, "%%v%d", w->serial++);
    if (scalar)
        P("  %s.a = getelementptr i64, ptr %%scalar, i64 %d\n", r.s, port->at);
    const wf_ll from = scalar ? r : place(w, operand);
    const wf_kty type = scalar ? (wf_kty)w->r->scalar_type[port->at] : operand_type(w, operand);
    P("  %s = load %s, ptr %s%s, align %u\n", r.s, wf_ll_type(type, 1).s, from.s,
      scalar ? ".a" : "", wf_ll_bytes(type));
    return r;
}

static void check(wf_text *t, const char *tag, int n, const char *truth)
{
    char name[32];
    snprintf(name, sizeof name, "%.16se%d", tag, n);
    in_frame(t, name, offsetof(wf_llr_frame, error));
    P("  %%%s = load ptr, ptr %%%s.a\n  %%%s.e = load i64, ptr %%%s\n"
      "  %%%s.f = select i1 %s, i64 %%%s.e, i64 0\n  store i64 %%%s.f, ptr %%%s\n",
      name, name, name, name, name, truth, name, name, name);
}

static void single_stage(rows *w, const wf_stage *st, int n)
{
    wf_text *t = w->t;
    wf_ll param[WF_KIR_MAX_PARAM];
    char prefix[16];
    snprintf(prefix, sizeof prefix, "s%d_", n);
    for (uint32_t p = 0; p < st->body.nparam; p++)
        param[p] = single(w, &st->in[p]);
    wf_ll_body(t, &st->body, 1, prefix, param);
    for (uint32_t o = 0; o < st->body.nout; o++) {
        const wf_port *port = &st->out[o];
        const wf_ll x = wf_ll_ref(&st->body, st->body.out[o], 1, prefix, param);
        const wf_kty type = wf_kir_type(&st->body, st->body.out[o]);
        if (port->kind == WF_PORT_SLOT) {
            set_slot(w, port->at, x);
        } else if (port->kind == WF_PORT_CHECK) {
            check(t, prefix, (int)o, x.s);
        } else {
            const wf_ll to = place(w, port->at);
            P("  store %s %s, ptr %s, align %u\n", wf_ll_type(type, 1).s, x.s, to.s,
              wf_ll_bytes(type));
        }
    }
}

/* %s<n>_v := element %index of a source's row, or 0; loads only where there is one. */
static void pick_stage(rows *w, const wf_stage *st, int n)
{
    wf_text *t = w->t;
    const int operand = ndst(w) + st->in[0].at;
    const wf_kty type = operand_type(w, operand);
    const wf_ll index = single(w, &st->in[1]), T = wf_ll_type(type, 1), row = place(w, operand);
    char name[32];
    snprintf(name, sizeof name, "s%d_n", n);
    in_frame(t, name, offsetof(wf_llr_frame, n));
    P("  %%s%d_n = load i64, ptr %%s%d_n.a\n"
      "  %%s%d_in = icmp ult i64 %s, %%s%d_n\n  %%s%d_at = select i1 %%s%d_in, i64 %s, i64 0\n"
      "  %%s%d_p = getelementptr %s, ptr %s, i64 %%s%d_at\n"
      "  %%s%d_x = load %s, ptr %%s%d_p, align %u\n"
      "  %%s%d_v = select i1 %%s%d_in, %s %%s%d_x, %s %s\n",
      n, n, n, index.s, n, n, n, index.s, n, T.s, row.s, n, n, T.s, n, wf_ll_bytes(type), n, n, T.s,
      n, T.s, wf_ll_const(type, 1, 0).s);
    const wf_kty slot = (wf_kty)w->r->slot_type[st->out[0].at];
    wf_ll to;
    snprintf(to.s, sizeof to.s, "%%s%d_%c", n, slot == WF_KT_BOOL ? 'b' : 'v');
    if (slot == WF_KT_BOOL)
        P("  %%s%d_b = icmp ne i8 %%s%d_v, 0\n", n, n);
    set_slot(w, st->out[0].at, to);
}

/* -- reductions --------------------------------------------------------------------------------------------- */
static int add_total(elem *e, int out, wf_kprim op, wf_why *why)
{
    wf_ll_total *x = &e->totals[e->ntotal++];
    x->out = out;
    x->type = wf_kir_type(e->split.body, e->split.body->out[out]);
    wf_ll_set_op(x, op);
    if (wf_ll_fold_of(x) < 0)
        return wf_fail(why, WEFT_EUNSUPPORTED,
                       "%s reduces elements of a type that it does not know", e->w->k->name);
    x->ordered = op == WF_KP_ADD || op == WF_KP_MUL;
    e->ordered |= x->ordered;
    wf_kir_init(&x->combine);
    const wf_kref a = wf_kir_param(&x->combine, x->type), b = wf_kir_param(&x->combine, x->type);
    wf_kir_output(&x->combine, wf_kir_op(&x->combine, x->op, a, b, WF_KREF_NONE));
    return wf_kir_finish(&x->combine, why);
}

/* -- an ELEM stage ----------------------------------------------------------------------------------------- */
/* Operand of the kernel behind a port of elements, -1: none. */
static int operand_of(const rows *w, const wf_port *port)
{
    if (port->kind == WF_PORT_DST)
        return port->at;
    if (port->kind == WF_PORT_KEEP)
        return keep_operand(w, port->at);
    if (port->kind == WF_PORT_SOURCE && !is_row_source(w, port->at))
        return ndst(w) + port->at;
    return -1;
}

static bool is_uniform(const rows *w, const wf_port *port)
{
    return port->kind == WF_PORT_SLOT || port->kind == WF_PORT_SCALAR ||
           (port->kind == WF_PORT_SOURCE && is_row_source(w, port->at));
}

/* Adds the operands that an ELEM stage reads; writes. */
static void find_used(const rows *w, const wf_stage *st, uint64_t *used)
{
    for (uint32_t p = 0; p < st->body.nparam; p++)
        if (operand_of(w, &st->in[p]) >= 0)
            used[0] |= UINT64_C(1) << operand_of(w, &st->in[p]);
    for (uint32_t o = 0; o < st->body.nout; o++)
        if (operand_of(w, &st->out[o]) >= 0)
            used[1] |= UINT64_C(1) << operand_of(w, &st->out[o]);
}

/* Splits the body, finds its operands and reductions. */
static int open_elem(elem *e, wf_why *why)
{
    const rows *w = e->w;
    bool uniform[WF_KIR_MAX_PARAM], small[WF_KIR_MAX_PARAM];
    for (uint32_t p = 0; p < e->st->body.nparam; p++) {
        uniform[p] = is_uniform(w, &e->st->in[p]);
        small[p] = e->st->in[p].small;
    }
    wf_kir_init(&e->hurried);
    int status = wf_ll_split_body(&e->st->body, uniform, &e->split, why);
    if (status == 0)
        status = wf_ll_hurry(&e->st->body, uniform, small, &e->hurried, why);
    if (status == 0 && e->hurried.n > 0)
        status = wf_ll_split_body(&e->hurried, uniform, &e->quick, why);
    find_used(w, e->st, e->used);
    for (uint32_t o = 0; o < e->st->body.nout && status == 0; o++) {
        const wf_port *port = &e->st->out[o];
        if (port->kind == WF_PORT_TOTAL || port->kind == WF_PORT_CHECK)
            status = add_total(e, (int)o, (wf_kprim)port->op, why);
    }
    return status;
}

static void close_elem(elem *e)
{
    if (!e)
        return;
    for (int x = 0; x < e->ntotal; x++)
        wf_kir_free(&e->totals[x].combine);
    if (e->hurried.n > 0)
        wf_ll_split_free(&e->quick);
    wf_kir_free(&e->hurried);
    wf_ll_split_free(&e->split);
    free(e);
}

/* Operands that do not vary, in all lanes; what follows from them alone. */
static void uniforms(elem *e)
{
    rows *w = e->w;
    wf_text *t = w->t;
    wf_ll scalar[WF_KIR_MAX_PARAM];
    char prefix[24], name[40];
    for (uint32_t p = 0; p < e->st->body.nparam; p++)
        if (is_uniform(w, &e->st->in[p])) {
            scalar[p] = single(w, &e->st->in[p]);
            snprintf(name, sizeof name, "s%du%u", e->n, p);
            wf_ll_spread(t, name, (wf_kty)e->st->body.param_type[p], w->lanes, scalar[p].s);
            snprintf(e->uniform[p].s, sizeof e->uniform[p].s, "%%%s", name);
        }
    snprintf(prefix, sizeof prefix, "s%dh", e->n);
    wf_ll_once_of(t, &e->split, w->lanes, prefix, scalar, e->uniform);
    snprintf(prefix, sizeof prefix, "s%dd", e->n);
    if (e->hurried.n > 0)
        wf_ll_once_of(t, &e->quick, w->lanes, prefix, scalar, e->quick_uniform);
}

static void load_group(elem *e, int j, const char *tag, wf_ll *param)
{
    rows *w = e->w;
    wf_text *t = w->t;
    for (uint32_t p = 0; p < e->split.body->nparam; p++) {
        const wf_port *port = &e->st->in[p];
        const int o = p < e->st->body.nparam ? operand_of(w, port) : -1;
        param[p] = e->uniform[p];
        if (o >= 0) {
            const wf_kty type = operand_type(w, o);
            P("  %%%sp%u = getelementptr %s, ptr %%s%dD%d, i64 %d\n"
              "  %%%sv%u = load %s, ptr %%%sp%u, align %u\n",
              tag, p, wf_ll_type(type, 1).s, e->n, o, j * w->lanes, tag, p,
              wf_ll_type(type, w->lanes).s, tag, p, wf_ll_bytes(type));
            snprintf(param[p].s, sizeof param[p].s, "%%%sv%u", tag, p);
        } else if (p < e->st->body.nparam && port->kind == WF_PORT_INDEX) {
            const wf_ll I = wf_ll_type(WF_KT_I64, w->lanes);
            char name[48], from[32];
            snprintf(name, sizeof name, "%sb%u", tag, p);
            snprintf(from, sizeof from, "%%s%di", e->n);
            wf_ll_spread(t, name, WF_KT_I64, w->lanes, from);
            P("  %%%sv%u = add %s %%%s, ", tag, p, I.s, name);
            wf_ll_counting(t, w->lanes, "i64", j * w->lanes);
            P("\n");
            snprintf(param[p].s, sizeof param[p].s, "%%%sv%u", tag, p);
        }
    }
}

/* Does output o go to a destination, in vectors that can pass the caches? */
static bool is_result(const elem *e, uint32_t o)
{
    const int to = operand_of(e->w, &e->st->out[o]);
    return to >= 0 && to < ndst(e->w) &&
           (unsigned)e->w->lanes * wf_ll_bytes(operand_type(e->w, to)) >= 16;
}

/* %s<n>y<o>_<j>, the j-th vector of output o, past the caches or through them. */
static void store_vector(elem *e, uint32_t o, int j, bool past)
{
    wf_text *t = e->w->t;
    const int to = operand_of(e->w, &e->st->out[o]), lanes = e->w->lanes;
    const wf_kty type = operand_type(e->w, to);
    const unsigned bytes = wf_ll_bytes(type), whole = (unsigned)lanes * bytes;
    const char at = past ? 'p' : 'q';
    P("  %%s%d%c%u_%d = getelementptr %s, ptr %%s%dD%d, i64 %d\n"
      "  store %s %%s%dy%u_%d, ptr %%s%d%c%u_%d, align %u%s\n",
      e->n, at, o, j, wf_ll_type(type, 1).s, e->n, to, j * lanes, wf_ll_type(type, lanes).s, e->n,
      o, j, e->n, at, o, j,
      !past        ? bytes
      : whole < 64 ? whole
                   : 64,
      past ? ", !nontemporal !0" : "");
}

static bool has_results(const elem *e)
{
    bool any = false;
    for (uint32_t o = 0; o < e->split.body->nout; o++)
        any |= is_result(e, o);
    return any;
}

/* The stores of a group's results, and where it goes on. */
static void group_results(elem *e)
{
    wf_text *t = e->w->t;
    const int n = e->n;
    const bool any = has_results(e);
    if (any)
        P("  br i1 %%s%dnt, label %%s%dpast, label %%s%dplain\ns%dpast:\n", n, n, n, n);
    for (int way = 0; way < 2 && any; way++) {
        for (uint32_t o = 0; o < e->split.body->nout; o++)
            for (int j = 0; j < e->nsub && is_result(e, o); j++)
                store_vector(e, o, j, way == 0);
        if (!way)
            P("  br label %%s%dnext\ns%dplain:\n", n, n);
    }
    P("  br label %%s%dnext\ns%dnext:\n", n, n);
}

/* Output o of a vector's body: by the quick body if no element is rare. */
static wf_ll output_of(const elem *e, uint32_t o, const char *tag, const wf_ll *param)
{
    wf_ll r;
    if (e->hurried.n == 0)
        return wf_ll_ref(e->split.body, e->split.body->out[o], e->w->lanes, tag, param);
    snprintf(r.s, sizeof r.s, "%%%so%u", tag, o);
    return r;
}

/* %<tag>any := is some element none for the quick body? */
static void any_rare(elem *e, const char *tag, const char *q, const wf_ll *qparam)
{
    const wf_kir *quick = e->quick.body;
    const uint32_t first = e->split.body->nout;
    wf_ll test[WF_LL_TESTS] = {{""}, {""}, {""}};
    for (uint32_t x = 0; first + x < quick->nout; x++)
        test[x] = wf_ll_ref(quick, quick->out[first + x], e->w->lanes, q, qparam);
    wf_ll_any_rare(e->w->t, e->w->lanes, tag, test);
}

static void vector_body(elem *e, const char *tag, const wf_ll *param)
{
    wf_text *t = e->w->t;
    const int lanes = e->w->lanes;
    const wf_kir *body = e->split.body, *quick = e->quick.body;
    wf_ll qparam[WF_KIR_MAX_PARAM];
    char q[40];
    if (e->hurried.n == 0) {
        wf_ll_body_in(t, body, lanes, e->w->registers, tag, param);
        return;
    }
    for (uint32_t p = 0; p < quick->nparam; p++)
        qparam[p] = p < e->st->body.nparam ? param[p] : e->quick_uniform[p];
    snprintf(q, sizeof q, "%sq", tag);
    wf_ll_body_in(t, quick, lanes, e->w->registers, q, qparam);
    any_rare(e, tag, q, qparam);
    P("  br i1 %%%sany, label %%%srare, label %%%susual\n%srare:\n", tag, tag, tag, tag);
    wf_ll_body(t, body, lanes, tag, param);
    P("  br label %%%sboth\n%susual:\n  br label %%%sboth\n%sboth:\n", tag, tag, tag, tag);
    for (uint32_t o = 0; o < body->nout; o++)
        P("  %%%so%u = phi %s [ %s, %%%srare ], [ %s, %%%susual ]\n", tag, o,
          wf_ll_type(wf_kir_type(body, body->out[o]), lanes).s,
          wf_ll_ref(body, body->out[o], lanes, tag, param).s, tag,
          wf_ll_ref(quick, quick->out[o], lanes, q, qparam).s, tag);
}

/* Where vector j of a total's lanes is, before or behind the group: those in memory go by the element's number. */
static void lane_place(elem *e, int x, int j, const char *name, bool before)
{
    wf_text *t = e->w->t;
    const wf_kty type = e->totals[x].type;
    P("  %%%s.p = getelementptr %s, ptr %%s%d%s%d, i64 ", name,
      wf_ll_type(type == WF_KT_BOOL ? WF_KT_U8 : type, 1).s, e->n, before ? "from" : "to", x);
    if (e->stored)
        P("%%s%dat\n", e->n);
    else
        P("%d\n", j * e->w->lanes);
}

/* %<name> := lanes; a bool's are bytes. */
static void load_lanes(elem *e, int x, int j, const char *name)
{
    wf_text *t = e->w->t;
    const wf_kty type = e->totals[x].type, memory = type == WF_KT_BOOL ? WF_KT_U8 : type;
    const wf_ll M = wf_ll_type(memory, e->w->lanes);
    lane_place(e, x, j, name, true);
    P("  %%%s%s = load %s, ptr %%%s.p, align %u\n", name, type == memory ? "" : ".m", M.s, name,
      wf_ll_bytes(memory));
    if (type != memory)
        P("  %%%s = trunc %s %%%s.m to %s\n", name, M.s, name, wf_ll_type(type, e->w->lanes).s);
}

static void store_lanes(elem *e, int x, int j, const char *name, const char *value)
{
    wf_text *t = e->w->t;
    const wf_kty type = e->totals[x].type, memory = type == WF_KT_BOOL ? WF_KT_U8 : type;
    const wf_ll M = wf_ll_type(memory, e->w->lanes);
    lane_place(e, x, j, name, false);
    if (type != memory)
        P("  %%%s.m = zext %s %s to %s\n  store %s %%%s.m, ptr %%%s.p, align 1\n", name,
          wf_ll_type(type, e->w->lanes).s, value, M.s, M.s, name, name);
    else
        P("  store %s %s, ptr %%%s.p, align %u\n", M.s, value, name, wf_ll_bytes(memory));
}

/* The j-th vector of a group: stores, and reductions into %s<n>n<x>_<j>. */
static void group_vector(elem *e, int j)
{
    rows *w = e->w;
    wf_text *t = w->t;
    wf_ll param[WF_KIR_MAX_PARAM];
    const wf_kir *body = e->split.body;
    char tag[32], name[48], acc[32];
    snprintf(tag, sizeof tag, "s%dg%d_", e->n, j);
    load_group(e, j, tag, param);
    vector_body(e, tag, param);
    for (uint32_t o = 0; o < body->nout; o++) {
        const int to = operand_of(w, &e->st->out[o]);
        if (to < 0)
            continue;
        const wf_kty type = operand_type(w, to);
        const wf_ll T = wf_ll_type(type, w->lanes), y = output_of(e, o, tag, param);
        P("  %%s%dy%u_%d = bitcast %s %s to %s\n", e->n, o, j, T.s, y.s, T.s);
        if (!is_result(e, o))
            store_vector(e, o, j, false);
    }
    for (int x = 0; x < e->ntotal; x++) {
        const wf_ll_total *r = &e->totals[x];
        const wf_ll T = wf_ll_type(r->type, w->lanes);
        wf_ll y = output_of(e, (uint32_t)r->out, tag, param);
        snprintf(acc, sizeof acc, "%%s%da%d_%d", e->n, x, j);
        if (r->mirrored) {
            P("  %%%sm%d = fneg %s %s\n", tag, x, T.s, y.s);
            snprintf(y.s, sizeof y.s, "%%%sm%d", tag, x);
        }
        snprintf(name, sizeof name, "%sc%d_", tag, x);
        if (e->stored)
            load_lanes(e, x, j, acc + 1);
        const wf_ll sum = wf_ll_combine(t, r, w->lanes, name, acc, y.s);
        P("  %%s%dn%d_%d = bitcast %s %s to %s\n", e->n, x, j, T.s, sum.s, T.s);
        if (e->stored) {
            snprintf(name, sizeof name, "s%dw%d_%d", e->n, x, j);
            store_lanes(e, x, j, name, sum.s);
        }
    }
}

/* Sources that are asked for ahead of use: one alone the processor foresees, and its kernel compiles faster without. */
static uint64_t asked_sources(const rows *w)
{
    const uint64_t sources = w->used[0] & source_operands(w);
    return sources & (sources - 1) ? sources : 0;
}

/* Where no cache holds what is moved: asks for the next row of every source, piece by piece between the groups of the stage that
 * computes most. Passes that compute little would wait for memory otherwise, and this one leave it idle. */
static void ask_ahead(elem *e)
{
    enum { LINE = 64 };
    const rows *w = e->w;
    wf_text *t = w->t;
    const int n = e->n;
    const uint64_t sources = asked_sources(w);
    if (w->heaviest != n || sources == 0)
        return;
    P("  br i1 %%s%dnt, label %%s%dask, label %%s%dgo\ns%dask:\n", n, n, n, n);
    for (int i = 0; sources >> i; i++) {
        const wf_kty type = operand_type(w, i);
        const int bytes = e->step * (int)wf_ll_bytes(type);
        char name[24];
        if (!(sources >> i & 1))
            continue;
        snprintf(name, sizeof name, "s%dH%d", n, i);
        in_frame(t, name, offsetof(wf_llr_frame, ahead) + (size_t)i * sizeof(char *));
        P("  %%%s = load ptr, ptr %%%s.a\n  %%s%dN%d = getelementptr %s, ptr %%%s, i64 %%s%di\n",
          name, name, n, i, wf_ll_type(type, 1).s, name, n);
        for (int o = 0; o < bytes; o += LINE)
            P("  %%s%dN%d.%d = getelementptr i8, ptr %%s%dN%d, i64 %d\n"
              "  call void @llvm.prefetch.p0(ptr %%s%dN%d.%d, i32 0, i32 3, i32 1)\n",
              n, i, o, n, i, o, n, i, o);
    }
    P("  br label %%s%dgo\ns%dgo:\n", n, n);
}

/* %s<n><name> := a field of %s<n><of>, a turn. */
static void in_turn(elem *e, const char *of, const char *name, const char *type, size_t offset)
{
    wf_text *t = e->w->t;
    const int n = e->n;
    P("  %%s%d%s.a = getelementptr i8, ptr %%s%d%s, i64 %zu\n  %%s%d%s = load %s, ptr "
      "%%s%d%s.a\n",
      n, name, n, of, offset, n, name, type, n, name);
}

/* %s<n>from<x> := where the lanes are before turn `of`. */
static void lanes_before(elem *e, const char *of)
{
    wf_text *t = e->w->t;
    const int n = e->n;
    in_turn(e, of, "from", "ptr", offsetof(wf_llr_turn, from));
    for (int x = 0; x < e->ntotal; x++)
        P("  %%s%dfrom%d.b = getelementptr ptr, ptr %%s%dfrom, i64 %d\n"
          "  %%s%dfrom%d = load ptr, ptr %%s%dfrom%d.b\n",
          n, x, n, x, n, x, n, x);
}

/* The lanes before the first turn; those in registers stay there. */
static void first_lanes(elem *e)
{
    char name[32];
    if (e->ntotal == 0 || e->stored)
        return;
    lanes_before(e, "turns");
    for (int x = 0; x < e->ntotal; x++)
        for (int j = 0; j < e->nsub; j++) {
            snprintf(name, sizeof name, "s%df%d_%d", e->n, x, j);
            load_lanes(e, x, j, name);
        }
}

/* Where a turn's totals have their lanes. */
static void turn_lanes(elem *e)
{
    wf_text *t = e->w->t;
    const int n = e->n;
    if (e->ntotal == 0)
        return;
    if (e->stored)
        lanes_before(e, "turn");
    in_turn(e, "turn", "to0", "ptr", offsetof(wf_llr_turn, to));
    for (int x = 1; x < e->ntotal; x++)
        P("  %%s%dto%d = getelementptr i8, ptr %%s%dto0, i64 %d\n", n, x, n, x * WF_LLR_LANES);
}

/* What a turn has for the stage's loop: elements, places, lanes, whether results pass the caches. */
static void open_turn(elem *e)
{
    rows *w = e->w;
    wf_text *t = w->t;
    const int n = e->n;
    char name[32];
    snprintf(name, sizeof name, "s%dturns", n);
    in_frame(t, name, offsetof(wf_llr_frame, turn));
    P("  %%s%dturns = load ptr, ptr %%s%dturns.a\n", n, n);
    first_lanes(e);
    P("  br label %%s%dopen\ns%dopen:\n"
      "  %%s%dturn = phi ptr [ %%s%dturns, %%c%d ], [ %%s%dturnnext, %%s%dfin ]\n"
      "  %%s%dibegin = phi i64 [ %%begin, %%c%d ], [ %%s%dinext, %%s%dfin ]\n",
      n, n, n, n, w->at, n, n, n, w->at, n, n);
    for (int x = 0; x < e->ntotal && !e->stored; x++)
        for (int j = 0; j < e->nsub; j++)
            P("  %%s%di%d_%d = phi %s [ %%s%df%d_%d, %%c%d ], [ %%s%dn%d_%d, %%s%dfin ]\n", n, x, j,
              wf_ll_type(e->totals[x].type, w->lanes).s, n, x, j, w->at, n, x, j, n);
    in_turn(e, "turn", "place", "ptr", offsetof(wf_llr_turn, place));
    in_turn(e, "turn", "count", "i64", offsetof(wf_llr_turn, count));
    P("  %%s%diend = add i64 %%s%dibegin, %%s%dcount\n", n, n, n);
    for (int i = 0; (e->used[0] | e->used[1]) >> i; i++)
        if ((e->used[0] | e->used[1]) >> i & 1)
            P("  %%s%dR%d.a = getelementptr ptr, ptr %%s%dplace, i64 %d\n"
              "  %%s%dR%d = load ptr, ptr %%s%dR%d.a\n",
              n, i, n, i, n, i, n, i);
    if (has_results(e) || (w->heaviest == n && asked_sources(w))) {
        in_turn(e, "turn", "far", "i64", offsetof(wf_llr_turn, past));
        P("  %%s%dnt = icmp ne i64 %%s%dfar, 0\n", n, n);
    }
    turn_lanes(e);
}

/* The groups of elements from %begin on, in each turn. */
static void elem_stage(elem *e)
{
    rows *w = e->w;
    wf_text *t = w->t;
    const int n = e->n;
    char name[32], value[32];
    uniforms(e);
    open_turn(e);
    P("  br label %%s%dgrp\ns%dgrp:\n  %%s%di = phi i64 [ %%s%dibegin, %%s%dopen ], [ %%s%dinext, "
      "%%s%dnext ]\n",
      n, n, n, n, n, n, n);
    for (int x = 0; x < e->ntotal && !e->stored; x++)
        for (int j = 0; j < e->nsub; j++)
            P("  %%s%da%d_%d = phi %s [ %%s%di%d_%d, %%s%dopen ], [ %%s%dn%d_%d, %%s%dnext ]\n", n,
              x, j, wf_ll_type(e->totals[x].type, w->lanes).s, n, x, j, n, n, x, j, n);
    if (e->stored)
        P("  %%s%dat = and i64 %%s%di, %d\n", n, n, WF_LLR_GROUP - 1);
    for (int i = 0; (e->used[0] | e->used[1]) >> i; i++)
        if ((e->used[0] | e->used[1]) >> i & 1)
            P("  %%s%dD%d = getelementptr %s, ptr %%s%dR%d, i64 %%s%di\n", n, i,
              wf_ll_type(operand_type(w, i), 1).s, n, i, n);
    ask_ahead(e);
    for (int j = 0; j < e->nsub; j++)
        group_vector(e, j);
    group_results(e);
    P("  %%s%dinext = add i64 %%s%di, %d\n  %%s%dmore = icmp slt i64 %%s%dinext, "
      "%%s%diend\n  br i1 %%s%dmore, label %%s%dgrp, label %%s%dfin\ns%dfin:\n",
      n, n, e->step, n, n, n, n, n, n, n);
    for (int x = 0; x < e->ntotal && !e->stored; x++)
        for (int j = 0; j < e->nsub; j++) {
            snprintf(name, sizeof name, "s%dw%d_%d", n, x, j);
            snprintf(value, sizeof value, "%%s%dn%d_%d", n, x, j);
            store_lanes(e, x, j, name, value);
        }
    P("  %%s%dturnnext = getelementptr i8, ptr %%s%dturn, i64 %zu\n"
      "  %%s%dthere = load ptr, ptr %%s%dturnnext\n  %%s%dagain = icmp ne ptr %%s%dthere, null\n"
      "  br i1 %%s%dagain, label %%s%dopen, label %%s%ddone\ns%ddone:\n",
      n, n, sizeof(wf_llr_turn), n, n, n, n, n, n, n, n);
}

/* A body that does more than a few things is not written twice: it takes longer to compile, and hides what the lanes of
 * totals cost in memory. Least and largest elements need no 64 lanes, those of a vector are enough; any lane may count
 * twice. */
static void choose_loop(elem *e)
{
    enum { FEW = 16, COPIES = 4 };
    const bool busy = e->hurried.n > 0 || e->split.body->n > FEW;
    const bool extremes = e->ntotal > 0 && !e->ordered && e->nsub <= COPIES;
    const bool looped = e->nsub > (busy || extremes ? 1 : COPIES);
    e->stored = e->ntotal > 0 && looped && !extremes;
    if (looped) {
        e->nsub = 1;
        e->step = e->w->lanes;
    }
}

static int make_elem(rows *w, int n, wf_why *why)
{
    elem *e = calloc(1, sizeof *e);
    if (!e)
        return wf_fail(why, WEFT_ENOMEM, "no memory for the text of %s", w->k->name);
    *e = (elem){.w = w, .st = &w->r->stage[n], .n = n, .nsub = LANES / w->lanes, .step = LANES};
    w->elem[n] = e;
    const int status = open_elem(e, why);
    if (status == 0)
        choose_loop(e);
    return status;
}

/* -- the kernel ---------------------------------------------------------------------------------------------- */
/* The stages that the driver's one has which begins with stage s: an ELEM stage, or neighbours of single values. */
static int joined(const rows *w, int s)
{
    const wf_stage_kind kind = w->r->stage[s].kind;
    int n = 1;
    while (kind != WF_ST_ELEM && s + n < w->r->nstage && w->r->stage[s + n].kind != WF_ST_ELEM &&
           (w->r->stage[s + n].kind == WF_ST_ONCE) == (kind == WF_ST_ONCE))
        n++;
    return n;
}

/* A stage of single values that has elements behind it is no call of its own; but elements may be left out at the cut. */
static wf_llr_kind single_kind(const rows *w, int s)
{
    const int next = s + joined(w, s);
    return w->r->stage[s].kind == WF_ST_ONCE                           ? WF_LLR_ONCE
           : next < w->r->nstage && w->elem[next] && next != w->r->cut ? WF_LLR_BEFORE
                                                                       : WF_LLR_ROW;
}

static void shape_of_elem(wf_text *t, const elem *e)
{
    P(", i16 %d, i16 %d, i16 %d, i16 %d, i16 %d", WF_LLR_ELEM, e->ordered, e->stored,
      e->stored ? WF_LLR_GROUP : e->step, e->ntotal);
    for (int x = 0; x < e->ntotal; x++) {
        const wf_port *port = &e->st->out[e->totals[x].out];
        P(", i16 %d, i16 %d, i16 %d", wf_ll_fold_of(&e->totals[x]), e->totals[x].mirrored,
          port->kind == WF_PORT_TOTAL ? port->at : -1);
    }
}

/* What the driver is told: wf_llr_head and what follows it. */
static void shape(rows *w)
{
    wf_text *t = w->t;
    const int noperand = ndst(w) + w->k->nsrc;
    int words = 7 + 2 * (noperand + w->r->nkeep), cut = -1, most = 0, all = 0;
    for (int s = 0; s < w->r->nstage; s += joined(w, s)) {
        const int ntotal = w->elem[s] ? w->elem[s]->ntotal : 0;
        cut = s == w->r->cut ? w->ncase : cut;
        most = ntotal > most ? ntotal : most;
        all += ntotal;
        words += 5 + 3 * ntotal;
        w->ncase++;
    }
    P("@%s.shape = private unnamed_addr constant [%d x i16] [i16 %d, i16 %d, i16 %d, i16 %d, "
      "i16 %d, i16 %d, i16 %d",
      w->k->name, words, noperand, ndst(w), w->r->nkeep, w->ncase, cut, all, most);
    for (int i = 0; i < noperand + w->r->nkeep; i++)
        P(", i16 %u, i16 %d", wf_ll_bytes(operand_type(w, i)),
          (w->used[0] >> i & 1 ? WF_LLR_READ : 0) | (w->used[1] >> i & 1 ? WF_LLR_WRITTEN : 0));
    for (int s = 0; s < w->r->nstage; s += joined(w, s))
        if (w->elem[s])
            shape_of_elem(t, w->elem[s]);
        else
            P(", i16 %d, i16 0, i16 0, i16 0, i16 0", single_kind(w, s));
    P("], align 2\ndeclare void @wf_rows(ptr, ptr, ptr, i64, i64, i64, ptr, ptr)\n");
}

static void entry(rows *w)
{
    wf_text *t = w->t;
    wf_ll_header(t, w->k);
    P("  %%stage = lshr i64 %%flags, %d\n  switch i64 %%stage, label %%drive [", WF_LLR_STAGE);
    for (int c = 0; c < w->ncase; c++)
        P(" i64 %d, label %%c%d", c + 1, c);
    P(" ]\ndrive:\n  call void @wf_rows(ptr %%ptr, ptr %%size, ptr %%scalar, i64 %%begin, "
      "i64 %%end, i64 %%flags, ptr @%s, ptr @%s.shape)\n  ret void\n",
      w->k->name, w->k->name);
}

/* Each table once. */
static void tables(const rows *w)
{
    for (int s = 0; s < w->r->nstage; s++)
        for (uint32_t n = 0; n < w->r->stage[s].body.ntable; n++) {
            const wf_kir_table *table = w->r->stage[s].body.table[n];
            bool again = false;
            for (int q = 0; q < s; q++)
                for (uint32_t m = 0; m < w->r->stage[q].body.ntable; m++)
                    again |= strcmp(w->r->stage[q].body.table[m]->name, table->name) == 0;
            if (!again)
                wf_ll_table(w->t, table);
        }
}

static void find_operands(rows *w)
{
    for (int s = 0; s < w->r->nstage; s++)
        if (w->r->stage[s].kind == WF_ST_ELEM) {
            find_used(w, &w->r->stage[s], w->used);
            if (w->heaviest < 0 || w->r->stage[s].body.n > w->r->stage[w->heaviest].body.n)
                w->heaviest = s;
        }
}

static void text_of_rows(rows *w)
{
    wf_text *t = w->t;
    find_operands(w);
    tables(w);
    shape(w);
    entry(w);
    memset(w->slot_at, 0xFF, sizeof w->slot_at);
    memset(w->place_at, 0xFF, sizeof w->place_at);
    for (int s = 0; s < w->r->nstage; s += joined(w, s), w->at++) {
        P("c%d:\n", w->at);
        for (int q = s; q < s + joined(w, s); q++)
            if (w->elem[q])
                elem_stage(w->elem[q]);
            else if (w->r->stage[q].kind == WF_ST_PICK)
                pick_stage(w, &w->r->stage[q], q);
            else
                single_stage(w, &w->r->stage[q], q);
        if (!w->elem[s] && single_kind(w, s) == WF_LLR_BEFORE)
            P("  br label %%c%d\n", w->at + 1);
        else
            P("  ret void\n");
    }
    P("}\n");
}

int wf_ll_rows(wf_text *t, const wf_kernel *k, int lanes, int registers, wf_why *why)
{
    rows *w = calloc(1, sizeof *w);
    elem **all = calloc((size_t)k->rows->nstage, sizeof(elem *));
    if (!w || !all) {
        free(w);
        free(all);
        return wf_fail(why, WEFT_ENOMEM, "no memory for the text of %s", k->name);
    }
    w->t = t;
    w->elem = all;
    w->k = k;
    w->r = k->rows;
    w->lanes = lanes;
    w->registers = registers;
    w->heaviest = -1;
    int status = 0;
    for (int s = 0; s < w->r->nstage && status == 0; s++)
        if (w->r->stage[s].kind == WF_ST_ELEM)
            status = make_elem(w, s, why);
    if (status == 0)
        text_of_rows(w);
    for (int s = 0; s < w->r->nstage; s++)
        close_elem(all[s]);
    free(all);
    free(w);
    return status;
}
