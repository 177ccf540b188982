/*
 * jit/codegen_cpu/render_row.c -- LLVM text of kernels over rows.
 *
 * A row runs through the stages in order. An ELEM stage goes over the row in groups of 64 elements, the lanes
 * of the canonical sum. The last elements of a row that are no whole group live in buffers while the row is worked on: its
 * sources are copied there before the first stage, its results from there behind the last one, and the stages
 * go to the one place or the other by a choice of pointers. So loops have no calls, around which every vector
 * would be saved. Behind a short group the lanes of a reduction that must not see it take the value from before.
 * Results pass the caches where the launch asks for it. A sum's blocks of 4096 go to 64 lanes in memory, which are
 * combined when there is more than one: enough for rows of 4096 * 4096 elements. Where the kernel has a cut, a launch
 * takes blocks for rows, or goes on from their totals (render_cut.c).
 *
 * Operand i of the kernel is at %P<i>, of the row at %R<i>. Names of stage n start with "s<n>".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    wf_ll slot[WF_ROWS_SLOTS]; /* operand of a single value */
    elem **elem;               /* of each stage, NULL for those of single values */
} rows;

struct elem {
    rows *w;
    const wf_stage *st;
    wf_ll_split split;
    wf_kir hurried;    /* a quicker body, empty if there is none */
    wf_ll_split quick; /* the same, split */
    int n;             /* of the stage */
    int nsub;          /* vectors written out, one behind another: a group of 64, or, looped, one */
    int step;          /* elements of all of them */
    bool looped;       /* a loop goes through the group, vector by vector */
    bool stored;       /* totals have their lanes in memory */
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

/* The operand of a port that is the same for every element. */
static wf_ll single(const rows *w, const wf_port *port)
{
    wf_ll r;
    if (port->kind == WF_PORT_SLOT)
        return w->slot[port->at];
    snprintf(r.s, sizeof r.s, "%%%s%d", port->kind == WF_PORT_SCALAR ? "sc" : "own", port->at);
    return r;
}

static void check(wf_text *t, const wf_rows_kernel *r, const char *tag, int n, const char *truth)
{
    (void)r;
    P("  %%%s.e%d = load i64, ptr %%error\n  %%%s.f%d = select i1 %s, i64 %%%s.e%d, i64 0\n"
      "  store i64 %%%s.f%d, ptr %%error\n",
      tag, n, tag, n, truth, tag, n, tag, n);
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
        if (port->kind == WF_PORT_SLOT)
            w->slot[port->at] = x;
        else if (port->kind == WF_PORT_CHECK)
            check(t, w->r, prefix, (int)o, x.s);
        else
            P("  store %s %s, ptr %%R%d, align %u\n", wf_ll_type(type, 1).s, x.s, port->at,
              wf_ll_bytes(type));
    }
}

/* %s<n>_v := element %index of a source's row, or 0; loads only where there is one. */
static void pick_stage(rows *w, const wf_stage *st, int n)
{
    wf_text *t = w->t;
    const int operand = ndst(w) + st->in[0].at;
    const wf_kty type = operand_type(w, operand);
    const wf_ll index = single(w, &st->in[1]), T = wf_ll_type(type, 1);
    P("  %%s%d_in = icmp ult i64 %s, %%n\n  %%s%d_at = select i1 %%s%d_in, i64 %s, i64 0\n"
      "  %%s%d_p = getelementptr %s, ptr %%R%d, i64 %%s%d_at\n"
      "  %%s%d_x = load %s, ptr %%s%d_p, align %u\n"
      "  %%s%d_v = select i1 %%s%d_in, %s %%s%d_x, %s %s\n",
      n, index.s, n, n, index.s, n, T.s, operand, n, n, T.s, n, wf_ll_bytes(type), n, n, T.s, n,
      T.s, wf_ll_const(type, 1, 0).s);
    const wf_kty slot = (wf_kty)w->r->slot_type[st->out[0].at];
    wf_ll *to = &w->slot[st->out[0].at];
    snprintf(to->s, sizeof to->s, "%%s%d_%c", n, slot == WF_KT_BOOL ? 'b' : 'v');
    if (slot == WF_KT_BOOL)
        P("  %%s%d_b = icmp ne i8 %%s%d_v, 0\n", n, n);
}

/* -- reductions --------------------------------------------------------------------------------------------- */
static int add_total(elem *e, int out, wf_kprim op, wf_why *why)
{
    wf_ll_total *x = &e->totals[e->ntotal++];
    x->out = out;
    x->type = wf_kir_type(e->split.body, e->split.body->out[out]);
    wf_ll_set_op(x, op);
    x->identity = wf_ll_identity_of(x->op, x->type);
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
            P("  %%%sp%u = getelementptr %s, ptr %%s%dU%d, i64 %d\n"
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

/* %s<n>y<o>_<j>, the j-th vector of output o. at: U where the group is, D past the caches. */
static void store_vector(elem *e, uint32_t o, int j, char at)
{
    wf_text *t = e->w->t;
    const int to = operand_of(e->w, &e->st->out[o]), lanes = e->w->lanes;
    const wf_kty type = operand_type(e->w, to);
    const unsigned bytes = wf_ll_bytes(type), whole = (unsigned)lanes * bytes;
    P("  %%s%dq%c%u_%d = getelementptr %s, ptr %%s%d%c%d, i64 %d\n"
      "  store %s %%s%dy%u_%d, ptr %%s%dq%c%u_%d, align %u%s\n",
      e->n, at, o, j, wf_ll_type(type, 1).s, e->n, at, to, j * lanes, wf_ll_type(type, lanes).s,
      e->n, o, j, e->n, at, o, j,
      at == 'U'    ? bytes
      : whole < 64 ? whole
                   : 64,
      at == 'U' ? "" : ", !nontemporal !0");
}

/* The stores of a group's results, and where it goes on. */
static void group_results(elem *e)
{
    wf_text *t = e->w->t;
    const int n = e->n;
    bool any = false;
    for (uint32_t o = 0; o < e->split.body->nout; o++)
        any |= is_result(e, o);
    if (any)
        P("  %%s%dnt = and i1 %%s%dfull, %%streams\n"
          "  br i1 %%s%dnt, label %%s%dpast, label %%s%dplain\ns%dpast:\n",
          n, n, n, n, n, n);
    for (int way = 0; way < 2 && any; way++) {
        for (uint32_t o = 0; o < e->split.body->nout; o++)
            for (int j = 0; j < e->nsub && is_result(e, o); j++)
                store_vector(e, o, j, way ? 'U' : 'D');
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
            store_vector(e, o, j, 'U');
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
            P("  %%s%dap%d = getelementptr %s, ptr %%s%dacc%d, i64 %%s%dat\n"
              "  %s = load %s, ptr %%s%dap%d, align %u\n",
              e->n, x, wf_ll_type(r->type, 1).s, e->n, x, e->n, acc, T.s, e->n, x,
              wf_ll_bytes(r->type));
        const wf_ll sum = wf_ll_combine(t, r, w->lanes, name, acc, y.s);
        if (e->stored)
            P("  store %s %s, ptr %%s%dap%d, align %u\n", T.s, sum.s, e->n, x,
              wf_ll_bytes(r->type));
        else
            P("  %%s%dn%d_%d = bitcast %s %s to %s\n", e->n, x, j, T.s, sum.s, T.s);
    }
}

/* Does a function combine the lanes of a total? */
static bool is_folded(const elem *e, int x)
{
    return wf_ll_fold_name(&e->totals[x]).s[0] != 0;
}

/* %s<n>left64: elements of a block's last group. %s<n>l<x>_<j>: the lanes of totals behind it, which is not to be seen where
 * it is short; where a function combines them, it chooses. */
static void last_group(elem *e)
{
    rows *w = e->w;
    wf_text *t = w->t;
    const int n = e->n, lanes = w->lanes;
    const wf_ll truth = wf_ll_type(WF_KT_BOOL, lanes), I = wf_ll_type(WF_KT_I32, lanes);
    char name[24], one[24];
    bool any = false;
    for (int x = 0; x < e->ntotal; x++)
        any |= !is_folded(e, x);
    if (e->ntotal == 0)
        return;
    snprintf(name, sizeof name, "s%dleftv", n);
    snprintf(one, sizeof one, "%%s%dleft32", n);
    if (e->looped && !e->stored) {
        P("  %%s%dleft64 = select i1 %%s%dshort, i64 %%s%dleft, i64 64\n", n, n, n);
        return;
    }
    if (e->looped) {
        P("  %%s%dleft = sub i64 %%s%dhi, %%wholen\n  %%s%dodd = icmp sgt i64 %%s%dleft, 0\n"
          "  %%s%dleft64 = select i1 %%s%dodd, i64 %%s%dleft, i64 64\n",
          n, n, n, n, n, n, n);
        return;
    }
    P("  %%s%dleft64 = select i1 %%s%dfull, i64 64, i64 %%s%dleft\n", n, n, n);
    if (!any)
        return;
    P("  %%s%dleft32 = trunc i64 %%s%dleft64 to i32\n", n, n);
    wf_ll_spread(t, name, WF_KT_I32, lanes, one);
    for (int j = 0; j < e->nsub; j++) {
        P("  %%s%dseen%d = icmp sgt %s %%%s, ", n, j, I.s, name);
        wf_ll_counting(t, lanes, "i32", j * lanes);
        P("\n");
        for (int x = 0; x < e->ntotal; x++) {
            const wf_ll T = wf_ll_type(e->totals[x].type, lanes);
            if (is_folded(e, x))
                continue;
            P("  %%s%dl%d_%d = select %s %%s%dseen%d, %s %%s%dn%d_%d, %s %%s%da%d_%d\n", n, x, j,
              truth.s, n, j, T.s, n, x, j, T.s, n, x, j);
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
    P("  br i1 %%streams, label %%s%dask, label %%s%dgo\ns%dask:\n", n, n, n);
    for (int i = 0; sources >> i; i++) {
        const wf_ll T = wf_ll_type(operand_type(w, i), 1);
        const int bytes = e->step * (int)wf_ll_bytes(operand_type(w, i));
        if (sources >> i & 1)
            P("  %%s%dN%d = getelementptr %s, ptr %%N%d, i64 %%s%di\n", n, i, T.s, i, n);
        for (int o = 0; sources >> i & 1 && o < bytes; o += LINE)
            P("  %%s%dN%d.%d = getelementptr i8, ptr %%s%dN%d, i64 %d\n"
              "  call void @llvm.prefetch.p0(ptr %%s%dN%d.%d, i32 0, i32 3, i32 1)\n",
              n, i, o, n, i, o, n, i, o);
    }
    P("  br label %%s%dgo\ns%dgo:\n", n, n);
}

/* Where a group's elements are: in the row, or, the last ones that are no whole group, in the buffers. */
static void group_pointers(elem *e)
{
    const rows *w = e->w;
    wf_text *t = w->t;
    const int n = e->n;
    const uint64_t all = e->used[0] | e->used[1];
    char buffer[24];
    if (e->looped)
        P("  %%s%dat = and i64 %%s%di, 63\n  %%s%dfull = icmp slt i64 %%s%di, %%wholen\n", n, n, n,
          n);
    else
        P("  %%s%dleft = sub i64 %%s%dhi, %%s%di\n  %%s%dfull = icmp sge i64 %%s%dleft, 64\n", n, n,
          n, n, n);
    for (int i = 0; all >> i; i++) {
        const wf_ll T = wf_ll_type(operand_type(w, i), 1);
        if (!(all >> i & 1))
            continue;
        snprintf(buffer, sizeof buffer, "%%buf%d", i);
        if (e->looped) {
            snprintf(buffer, sizeof buffer, "%%s%dB%d", n, i);
            P("  %s = getelementptr %s, ptr %%buf%d, i64 %%s%dat\n", buffer, T.s, i, n);
        }
        P("  %%s%dD%d = getelementptr %s, ptr %%R%d, i64 %%s%di\n"
          "  %%s%dU%d = select i1 %%s%dfull, ptr %%s%dD%d, ptr %s\n",
          n, i, T.s, i, n, n, i, n, n, i, buffer);
    }
}

/* Lanes of totals in memory, before the first group: by vectors, as they are read. A function's narrower stores would not be
 * forwarded to those loads, which short rows wait for. */
static void start_lanes(elem *e)
{
    wf_text *t = e->w->t;
    for (int x = 0; x < e->ntotal && e->stored; x++) {
        const wf_kty type = e->totals[x].type;
        P("  store %s %s, ptr %%s%dacc%d, align 64\n", wf_ll_type(type, LANES).s,
          wf_ll_const(type, LANES, e->totals[x].identity).s, e->n, x);
    }
}

/* Lanes of totals in registers, now ('n') or before the group ('a'), to the place-th 64 in memory. */
static void put_lanes(elem *e, int x, const char *prefix, char which, int place)
{
    wf_text *t = e->w->t;
    const int n = e->n, lanes = e->w->lanes;
    const wf_kty type = e->totals[x].type;
    for (int j = 0; j < LANES / lanes; j++)
        P("  %%%sw%d%d = getelementptr %s, ptr %%s%dacc%d, i64 %d\n"
          "  store %s %%s%d%c%d_%d, ptr %%%sw%d%d, align %u\n",
          prefix, place, j, wf_ll_type(type, 1).s, n, x, place * LANES + j * lanes,
          wf_ll_type(type, lanes).s, n, which, x, j % e->nsub, prefix, place, j, wf_ll_bytes(type));
}

/* Are lanes that a short group must not see put aside before it? A vector's alone stay in its registers. */
static bool puts_aside(const elem *e)
{
    bool any = false;
    for (int x = 0; x < e->ntotal; x++)
        any |= is_folded(e, x);
    return any && e->w->lanes < LANES;
}

/* Lanes of totals at the start of a group, phis or in memory. Those that a short group must not see are kept behind those of
 * now, in a block of its own: no register holds them in the loop. */
static void lanes_so_far(elem *e, const char *from)
{
    wf_text *t = e->w->t;
    const int n = e->n, lanes = e->w->lanes;
    for (int x = 0; x < e->ntotal && !e->stored; x++)
        for (int j = 0; j < e->nsub; j++) {
            const wf_kty type = e->totals[x].type;
            P("  %%s%da%d_%d = phi %s [ %s, %%s%d%s ], [ %%s%dn%d_%d, %%s%dnext ]\n", n, x, j,
              wf_ll_type(type, lanes).s, wf_ll_const(type, lanes, e->totals[x].identity).s, n, from,
              n, x, j, n);
        }
    if (!puts_aside(e))
        return;
    if (e->looped && !e->stored)
        P("  %%s%dleft = sub i64 %%s%dhi, %%s%di\n  %%s%dshort = icmp slt i64 %%s%dleft, %d\n", n,
          n, n, n, n, lanes);
    else
        P("  %%s%dshort = icmp eq i64 %%s%di, %%wholen\n", n, n);
    P("  br i1 %%s%dshort, label %%s%dkeep, label %%s%dkept\ns%dkeep:\n", n, n, n, n);
    for (int x = 0; x < e->ntotal; x++) {
        char prefix[24];
        snprintf(prefix, sizeof prefix, "s%dx%d", n, x);
        if (!e->stored && is_folded(e, x))
            put_lanes(e, x, prefix, 'a', 1);
        else if (e->stored)
            P("  %%s%dw%d = getelementptr %s, ptr %%s%dacc%d, i64 1\n"
              "  %%s%dx%d = call ptr @memcpy(ptr %%s%dw%d, ptr %%s%dacc%d, i64 %u)\n",
              n, x, wf_ll_type(e->totals[x].type, LANES).s, n, x, n, x, n, x, n, x,
              LANES * wf_ll_bytes(e->totals[x].type));
    }
    P("  br label %%s%dkept\ns%dkept:\n", n, n);
}

/* The groups from %s<n>lo up to %s<n>hi, entered from the block `from`. */
static void group_loop(elem *e, const char *from)
{
    wf_text *t = e->w->t;
    const int n = e->n;
    start_lanes(e);
    P("  br label %%s%dgrp\ns%dgrp:\n  %%s%di = phi i64 [ %%s%dlo, %%s%d%s ], [ %%s%dinext, "
      "%%s%dnext ]\n",
      n, n, n, n, n, from, n, n);
    lanes_so_far(e, from);
    group_pointers(e);
    ask_ahead(e);
    for (int j = 0; j < e->nsub; j++)
        group_vector(e, j);
    group_results(e);
    P("  %%s%dinext = add i64 %%s%di, %d\n  %%s%dmore = icmp slt i64 %%s%dinext, %%s%dhi\n"
      "  br i1 %%s%dmore, label %%s%dgrp, label %%s%dfin\ns%dfin:\n",
      n, n, e->step, n, n, n, n, n, n, n);
}

/* 64 lanes in memory, as vectors. */
static void load_lanes(elem *e, int x, wf_ll *v)
{
    wf_text *t = e->w->t;
    const int n = e->n, lanes = e->w->lanes;
    const wf_kty type = e->totals[x].type;
    for (int j = 0; j < e->nsub; j++) {
        P("  %%s%dlq%d_%d = getelementptr %s, ptr %%s%dlane%d, i64 %d\n"
          "  %%s%dlv%d_%d = load %s, ptr %%s%dlq%d_%d, align %u\n",
          n, x, j, wf_ll_type(type, 1).s, n, x, j * lanes, n, x, j, wf_ll_type(type, lanes).s, n, x,
          j, wf_ll_bytes(type));
        snprintf(v[j].s, sizeof v[j].s, "%%s%dlv%d_%d", n, x, j);
    }
}

/* A block's lanes behind its last group, and before it, combined by a call. */
static wf_ll fold_lanes(elem *e, int x, const char *prefix)
{
    const int n = e->n;
    char at[32], seen[32], block[32] = "0";
    if (!e->stored)
        put_lanes(e, x, prefix, 'n', 0);
    if (!puts_aside(e))
        put_lanes(e, x, prefix, 'a', 1);
    snprintf(at, sizeof at, "%%s%dacc%d", n, x);
    snprintf(seen, sizeof seen, "%%s%dleft64", n);
    if (e->ordered)
        snprintf(block, sizeof block, "%%s%db", n);
    return wf_ll_call_fold(e->w->t, &e->totals[x], prefix, at, seen, block,
                           e->ordered ? "%blocks" : "1");
}

/* A block's parts: into the lanes of the level above, or into the value so far, where no function does it. */
static void block_end(elem *e)
{
    wf_text *t = e->w->t;
    const int n = e->n;
    wf_ll v[LANES];
    char prefix[32], lane[32];
    for (int x = 0; x < e->ntotal; x++) {
        const wf_ll_total *r = &e->totals[x];
        const wf_ll S = wf_ll_type(r->type, 1);
        for (int j = 0; j < e->nsub; j++)
            snprintf(v[j].s, sizeof v[j].s, "%%s%dl%d_%d", n, x, j);
        snprintf(prefix, sizeof prefix, "s%df%d", n, x);
        const wf_ll part =
            is_folded(e, x) ? fold_lanes(e, x, prefix) : wf_ll_halve(t, r, e->w->lanes, prefix, v);
        if (r->mirrored)
            P("  %%s%dpart%d = fneg %s %s\n", n, x, S.s, part.s);
        else
            P("  %%s%dpart%d = bitcast %s %s to %s\n", n, x, S.s, part.s, S.s);
        char name[32], old[32];
        snprintf(name, sizeof name, "%%s%dpart%d", n, x);
        if (is_folded(e, x))
            continue;
        if (r->ordered) {
            P("  %%s%dlc%d = and i64 %%s%db, 63\n"
              "  %%s%dlp%d = getelementptr %s, ptr %%s%dlane%d, i64 %%s%dlc%d\n"
              "  %%s%dold%d = load %s, ptr %%s%dlp%d\n",
              n, x, n, n, x, S.s, n, x, n, x, n, x, S.s, n, x);
            snprintf(old, sizeof old, "%%s%dold%d", n, x);
            snprintf(lane, sizeof lane, "s%dk%d_", n, x);
            const wf_ll sum = wf_ll_combine(t, r, 1, lane, old, name);
            P("  store %s %s, ptr %%s%dlp%d\n", S.s, sum.s, n, x);
        } else if (e->ordered) {
            snprintf(old, sizeof old, "%%s%dsofar%d", n, x);
            snprintf(lane, sizeof lane, "s%dk%d_", n, x);
            const wf_ll sum = wf_ll_combine(t, r, 1, lane, old, name);
            P("  %%s%dfar%d = bitcast %s %s to %s\n", n, x, S.s, sum.s, S.s);
        }
    }
}

/* Does a total have lanes above those of its blocks that the kernel combines? */
static bool has_levels(const elem *e, int x)
{
    return e->totals[x].ordered && !is_folded(e, x);
}

/* %s<n>tot<x> := totals of more than one block, combined from the lanes. */
static void combine_levels(elem *e)
{
    rows *w = e->w;
    wf_text *t = w->t;
    const int n = e->n;
    wf_ll v[LANES], second[WF_KIR_MAX_OUT];
    bool any = false;
    for (int x = 0; x < e->ntotal; x++)
        any |= has_levels(e, x);
    if (!any)
        return;
    P("  %%s%dsingle = icmp eq i64 %%blocks, 1\n"
      "  br i1 %%s%dsingle, label %%s%dout, label %%s%dtwo\ns%dtwo:\n",
      n, n, n, n, n);
    for (int x = 0; x < e->ntotal; x++)
        if (has_levels(e, x)) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "s%dz%d", n, x);
            load_lanes(e, x, v);
            second[x] = wf_ll_halve(t, &e->totals[x], w->lanes, prefix, v);
        }
    P("  br label %%s%dout\ns%dout:\n", n, n);
    for (int x = 0; x < e->ntotal; x++)
        if (has_levels(e, x))
            P("  %%s%dtot%d = phi %s [ %%s%dpart%d, %%s%ddone ], [ %s, %%s%dtwo ]\n", n, x,
              wf_ll_type(e->totals[x].type, 1).s, n, x, n, second[x].s, n);
}

/* Totals into slots. */
static void totals(elem *e)
{
    rows *w = e->w;
    wf_text *t = w->t;
    const int n = e->n;
    combine_levels(e);
    for (int x = 0; x < e->ntotal; x++) {
        const wf_port *port = &e->st->out[e->totals[x].out];
        char tag[24];
        wf_ll at;
        snprintf(at.s, sizeof at.s, "%%s%d%s%d", n,
                 has_levels(e, x)                 ? "tot"
                 : e->ordered && !is_folded(e, x) ? "far"
                                                  : "part",
                 x);
        snprintf(tag, sizeof tag, "s%dchk", n);
        if (port->kind == WF_PORT_TOTAL)
            w->slot[port->at] = at;
        else
            check(t, w->r, tag, x, at.s);
    }
}

/* The canonical sum's blocks. The parts of the last one are read behind the loop: blkend is their place in the phis. */
static void blocks(elem *e)
{
    wf_text *t = e->w->t;
    const int n = e->n;
    P("  br label %%s%dpre\ns%dpre:\n  br label %%s%dblk\ns%dblk:\n"
      "  %%s%db = phi i64 [ 0, %%s%dpre ], [ %%s%dbnext, %%s%dblkend ]\n",
      n, n, n, n, n, n, n, n);
    for (int x = 0; x < e->ntotal; x++)
        if (!e->totals[x].ordered && !is_folded(e, x))
            P("  %%s%dsofar%d = phi %s [ %s, %%s%dpre ], [ %%s%dfar%d, %%s%dblkend ]\n", n, x,
              wf_ll_type(e->totals[x].type, 1).s,
              wf_ll_const(e->totals[x].type, 1, e->totals[x].identity).s, n, n, x, n);
    P("  %%s%dlo = shl i64 %%s%db, 12\n  %%s%dto = add i64 %%s%dlo, 4096\n"
      "  %%s%dover = icmp slt i64 %%s%dto, %%n\n"
      "  %%s%dhi = select i1 %%s%dover, i64 %%s%dto, i64 %%n\n",
      n, n, n, n, n, n, n, n, n);
    group_loop(e, "blk");
    last_group(e);
    block_end(e);
    P("  br label %%s%dblkend\ns%dblkend:\n  %%s%dbnext = add i64 %%s%db, 1\n"
      "  %%s%dbmore = icmp slt i64 %%s%dbnext, %%blocks\n"
      "  br i1 %%s%dbmore, label %%s%dblk, label %%s%ddone\ns%ddone:\n",
      n, n, n, n, n, n, n, n, n, n);
}

/* Nothing that depends on the order: the row as a whole. */
static void one_block(elem *e)
{
    wf_text *t = e->w->t;
    const int n = e->n;
    P("  %%s%dlo = add i64 0, 0\n  %%s%dhi = add i64 %%n, 0\n  br label %%s%dblk\ns%dblk:\n", n, n,
      n, n);
    group_loop(e, "blk");
    last_group(e);
    block_end(e);
}

/* A body that does more than a few things is not written twice: it takes longer to compile, and hides what the lanes of
 * totals cost in memory. Least and largest elements need no 64 lanes, those of a vector are enough; any lane may count
 * twice. Totals that no function combines stay in registers. */
static void choose_loop(elem *e)
{
    enum { FEW = 16, COPIES = 4 };
    const bool busy = e->hurried.n > 0 || e->split.body->n > FEW;
    const bool extremes = e->ntotal > 0 && !e->ordered && e->nsub <= COPIES;
    e->looped = e->nsub > (busy || extremes ? 1 : COPIES);
    for (int x = 0; x < e->ntotal; x++)
        e->looped &= is_folded(e, x);
    e->stored = e->looped && !extremes;
    if (e->looped) {
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

static void elem_stage(elem *e)
{
    wf_text *t = e->w->t;
    uniforms(e);
    for (int x = 0; x < e->ntotal; x++)
        if (has_levels(e, x)) {
            const wf_ll V = wf_ll_type(e->totals[x].type, LANES);
            P("  store %s %s, ptr %%s%dlane%d, align 64\n", V.s,
              wf_ll_const(e->totals[x].type, LANES, e->totals[x].identity).s, e->n, x);
        }
    if (e->ordered)
        blocks(e);
    else
        one_block(e);
    totals(e);
}

/* The functions of llvm_calls.c; what is not called leaves no trace in the object. */
static void declare_callees(wf_text *t)
{
    static const char *const what[] = {"add", "mul", "min", "max"};
    for (int i = 0; i < 4; i++)
        P("declare float @wf_fold_%s_f32(ptr, i64, i64, i64)\n"
          "declare double @wf_fold_%s_f64(ptr, i64, i64, i64)\n",
          what[i], what[i]);
    P("declare void @wf_rest(ptr, ptr, i64, i64, i64)\ndeclare ptr @memset(ptr, i32, i64)\n"
      "declare ptr @memcpy(ptr, ptr, i64)\n");
}

/* -- the kernel ---------------------------------------------------------------------------------------------- */
/* %H<i>, bytes between what is read of a source and what is asked for: a row, but no less than a page, and of rows
 * that the second cache may not hold beside others only that. All rows are one where the stride is 0. */
static void ahead(const rows *w, int i)
{
    enum { NEAR = 4096, FAR = 128 << 10 };
    wf_text *t = w->t;
    P("  %%HB%d = mul i64 %%T%d, %u\n  %%HN%d = sub i64 %%HB%d, %d\n"
      "  %%HO%d = icmp ugt i64 %%HN%d, %d\n"
      "  %%HA%d = select i1 %%HO%d, i64 %d, i64 %%HB%d\n  %%HZ%d = icmp eq i64 %%T%d, 0\n"
      "  %%H%d = select i1 %%HZ%d, i64 0, i64 %%HA%d\n",
      i, i, wf_ll_bytes(operand_type(w, i)), i, i, NEAR, i, i, FAR - NEAR, i, i, NEAR, i, i, i, i,
      i, i);
}

/* Where totals have their lanes: those of a block, those put aside and those of all blocks, or the last alone. */
static void lane_memory(const elem *e)
{
    wf_text *t = e->w->t;
    for (int x = 0; x < e->ntotal; x++) {
        const wf_ll_total *r = &e->totals[x];
        const wf_ll V = wf_ll_type(r->type, LANES);
        if (!is_folded(e, x)) {
            P("  %%s%dlane%d = alloca %s, align 64\n", e->n, x, V.s);
            continue;
        }
        P("  %%s%dacc%d = alloca [3 x %s], align 64\n", e->n, x, V.s);
    }
}

static void entry(rows *w)
{
    wf_text *t = w->t;
    const int n = ndst(w) + w->k->nsrc + w->r->nkeep;
    uint64_t *used = w->used;
    for (int s = 0; s < w->r->nstage; s++)
        if (w->r->stage[s].kind == WF_ST_ELEM) {
            find_used(w, &w->r->stage[s], used);
            if (w->heaviest < 0 || w->r->stage[s].body.n > w->r->stage[w->heaviest].body.n)
                w->heaviest = s;
        }
    declare_callees(t);
    wf_ll_header(t, w->k);
    P("  %%sbit = and i64 %%flags, %u\n  %%streams = icmp ne i64 %%sbit, 0\n", WF_LAUNCH_STREAM);
    P("  %%n = load i64, ptr %%size\n  %%nup = add i64 %%n, 4095\n  %%blocks = lshr i64 %%nup, "
      "12\n  %%restn = and i64 %%n, 63\n  %%wholen = sub i64 %%n, %%restn\n"
      "  %%rests = icmp ne i64 %%restn, 0\n");
    for (int i = 0; i < n; i++) {
        const bool strided = i < ndst(w) + w->k->nsrc;
        P("  %%A%d = getelementptr ptr, ptr %%ptr, i64 %d\n  %%P%d = load ptr, ptr %%A%d\n", i, i,
          i, i);
        if (strided)
            P("  %%TA%d = getelementptr i64, ptr %%size, i64 %d\n  %%T%d = load i64, ptr %%TA%d\n",
              i, i + 1, i, i);
        const wf_ll B = wf_ll_type(operand_type(w, i), LANES);
        if ((used[0] | used[1]) >> i & 1)
            P("  %%buf%d = alloca %s, align 64\n", i, B.s);
        if ((used[0] & ~source_operands(w)) >> i & 1)
            P("  %%zero%d = call ptr @memset(ptr %%buf%d, i32 0, i64 %u)\n", i, i,
              LANES * wf_ll_bytes(operand_type(w, i)));
    }
    for (int i = 0; i < n; i++)
        if (asked_sources(w) >> i & 1)
            ahead(w, i);
    P("  %%errora = getelementptr ptr, ptr %%ptr, i64 %d\n  %%error = load ptr, ptr %%errora\n", n);
    for (int s = 0; s < w->r->nstage; s++)
        if (w->elem[s])
            lane_memory(w->elem[s]);
    for (int i = 0; i < w->k->nscalar; i++)
        P("  %%C%d = getelementptr i64, ptr %%scalar, i64 %d\n  %%sc%d = load %s, ptr %%C%d\n", i,
          i, i, wf_ll_type((wf_kty)w->r->scalar_type[i], 1).s, i);
}

static void row_pointers(rows *w)
{
    wf_text *t = w->t;
    for (int i = 0; i < ndst(w) + w->k->nsrc; i++) {
        const wf_ll T = wf_ll_type(operand_type(w, i), 1);
        const int src = i - ndst(w);
        P("  %%O%d = mul i64 %%r, %%T%d\n  %%R%d = getelementptr %s, ptr %%P%d, i64 %%O%d\n", i, i,
          i, T.s, i, i);
        if (asked_sources(w) >> i & 1)
            P("  %%N%d = getelementptr i8, ptr %%R%d, i64 %%H%d\n", i, i, i);
        if (src >= 0 && is_row_source(w, src))
            P("  %%own%d = load %s, ptr %%R%d, align %u\n", src, T.s, i,
              wf_ll_bytes(operand_type(w, i)));
    }
    for (int i = 0; i < w->r->nkeep; i++)
        P("  %%R%d = getelementptr i8, ptr %%P%d, i64 0\n", keep_operand(w, i), keep_operand(w, i));
}

/* The last elements of the row of the operands in `which`, which are no whole group, to their buffers or back. */
static void move_rests(rows *w, uint64_t which, bool back)
{
    wf_text *t = w->t;
    const char *tag = back ? "out" : "in";
    if (which == 0)
        return;
    P("  br i1 %%rests, label %%%srests, label %%%sdone\n%srests:\n", tag, tag, tag);
    if (!back)
        P("  %%before = sub i64 %%r, %%begin\n");
    for (int i = 0; which >> i; i++)
        if (which >> i & 1) {
            const wf_kty type = operand_type(w, i);
            char row[24], buffer[24];
            snprintf(row, sizeof row, "%%%sE%d", tag, i);
            snprintf(buffer, sizeof buffer, "%%buf%d", i);
            P("  %s = getelementptr %s, ptr %%R%d, i64 %%wholen\n", row, wf_ll_type(type, 1).s, i);
            if (back)
                wf_ll_copy(t, row, buffer, "%restn", type, "ms", i);
            else
                P("  %%ml%d = mul i64 %%restn, %u\n"
                  "  call void @wf_rest(ptr %s, ptr %s, i64 %%ml%d, i64 %u, i64 %%before)\n",
                  i, wf_ll_bytes(type), buffer, row, i, LANES * wf_ll_bytes(type));
        }
    P("  br label %%%sdone\n%sdone:\n", tag, tag);
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

static void text_of_rows(rows *w)
{
    wf_text *t = w->t;
    tables(w);
    entry(w);
    for (int s = 0; s < w->r->nstage; s++)
        if (w->r->stage[s].kind == WF_ST_ONCE)
            single_stage(w, &w->r->stage[s], s);
    P("  %%some = icmp slt i64 %%begin, %%end\n  br i1 %%some, label %%row, label %%done\n"
      "row:\n  %%r = phi i64 [ %%begin, %%entry ], [ %%rnext, %%rowend ]\n");
    row_pointers(w);
    const uint64_t results = (UINT64_C(1) << ndst(w)) - 1;
    move_rests(w, w->used[0] & source_operands(w), false);
    for (int s = 0; s < w->r->nstage; s++) {
        const wf_stage *st = &w->r->stage[s];
        if (s == w->r->cut)
            wf_ll_before_cut(t);
        if (st->kind == WF_ST_ROW)
            single_stage(w, st, s);
        else if (st->kind == WF_ST_PICK)
            pick_stage(w, st, s);
        else if (st->kind == WF_ST_ELEM)
            elem_stage(w->elem[s]);
        if (s == w->r->cut)
            wf_ll_behind_cut(t, w->k, w->slot);
    }
    P("  br label %%rowout\nrowout:\n");
    move_rests(w, w->used[1] & results, true);
    P("  br label %%rowend\nrowend:\n  %%rnext = add i64 %%r, 1\n"
      "  %%rmore = icmp slt i64 %%rnext, %%end\n  br i1 %%rmore, label %%row, label %%done\n"
      "done:\n  ret void\n}\n");
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
