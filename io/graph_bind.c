/*
 * io/graph_bind.c -- rebuilding a function with other extents: sizes for symbols, or symbols where recordings differ.
 *
 * Where recordings agree there is a constant, where they differ by what a symbol differs there is the symbol. A symbol times an
 * integer (over another) plus an integer goes through any two points, so a third recording has to confirm it; what is of several symbols
 * takes more (jit/ir/extents.c); anything else is refused. Rebuilding appends every instruction through the checking builder, so what comes out is verified: a wrong guess about a
 * result's extent cannot survive a run, whose sizes are inferred anew.
 */
#include <string.h>

#include "io/graph.h"

/* How an extent of f (and of its twins) is written in the rebuilt function. */
typedef struct mapper {
    const wf_fn *f, *const *twin;    /* unifying: f and the others */
    int n;                           /* of them; 0: binding */
    const int64_t *sizes;            /* binding */
    const wf_graph_symbols *symbols; /* unifying */
    const wf_fn *out;                /* what is made */
    uint32_t at;                     /* instruction, for messages */
    bool untold;                     /* an extent of the recordings is none that was found */
    bool plain;                      /* only symbols themselves are extents here */
} mapper;

/* "'n' is 3, 'm' is 5": those that v is of, with the sizes that are given. */
static const char *since(const mapper *m, int64_t v, char text[96])
{
    const uint32_t set = wf_sym_symbols(m->f, v);
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t k = 0; k < m->f->nsymbols && n < 96; k++) {
        if (set >> k & 1) {
            n += (size_t)snprintf(text + n, 96 - n, "%s'%s' is %lld", n ? ", " : "",
                                  m->f->symbols[k], (long long)m->sizes[k]);
        }
    }
    return text;
}

/* A row that is refused: which, called where. With sizes for symbols: because of an integer that is negative with them? Where it is
 * no extent, but where a slice begins, it may be. A computed padding may not, though the row knows what that means: the function
 * would be refused. */
static int explain_refusal(const mapper *m, const wf_attr *attr, int rc, wf_why *why)
{
    const wf_ins *i = &m->f->ins[m->at];
    const char *site = m->f->locs[i->loc];
    char text[WF_EXTENT_TEXT], sizes[96], says[sizeof why->rule];
    snprintf(says, sizeof says, "%s", why->rule);
    for (int k = 0; k < attr->n_dyn && m->n == 0; k++) {
        const int64_t v = attr->dyn[k];
        if (wf_is_sym(m->f, v) && wf_sym_value(m->f, v, m->sizes) < 0) {
            snprintf(says, sizeof says, "'%.80s' would be %lld, since %s",
                     wf_extent_text(m->f, v, text), (long long)wf_sym_value(m->f, v, m->sizes),
                     since(m, v, sizes));
            why->hint[0] = '\0';
            rc = WEFT_ESHAPE;
            break;
        }
    }
    if (rc == 0 || rc == WEFT_ENOMEM) {
        return rc;
    }
    why->code = rc;
    if (m->n > 0 &&
        (rc == WEFT_ESHAPE || rc == WEFT_EINVALID)) { /* with sizes that stand for all */
        why->hint[0] = '\0';
        wf_hint(why, "where the function is right for a range of sizes only, give the symbol that "
                     "range: \"n<=64\"");
    }
    snprintf(why->rule, sizeof why->rule, "%s (%%%u%s%.60s): %.150s", wf_rows[i->op].name,
             m->at + 1, i->loc && site ? ", " : "", i->loc && site ? wf_site_file(site) : "", says);
    return rc;
}

/* v: in each recording. */
static int64_t extent_through(const mapper *m, const int64_t *v)
{
    const wf_graph_symbols *s = m->symbols;
    int64_t found = -1, x[WF_POINTS_APART], size[WF_POINTS_APART];
    for (int k = 0; k < s->n && found < 0; k++) {
        for (int i = 0; i < WF_POINTS_APART; i++) { /* two recordings: the second counts twice */
            const int from = i < m->n ? i : m->n - 1;
            size[i] = s->at.size[from][k];
            x[i] = v[from];
        }
        found = wf_sym_through((uint32_t)k, s->range[k].multiple, size, x);
        found = m->plain && found != WF_SYM(k) ? -1 : found;
    }
    const bool joint = found < 0 && !m->plain && m->n > WF_POINTS_APART;
    return joint ? wf_extent_through(m->out, &s->at, v) : found;
}

/* v: in each recording; in f. */
static int map_extent(mapper *m, const int64_t *v, int64_t *out, wf_why *why)
{
    bool same = true;
    *out = v[0];
    if (m->n == 0) {
        *out = wf_is_sym(m->f, v[0]) ? wf_sym_value(m->f, v[0], m->sizes) : v[0];
        return 0;
    }
    for (int i = 1; i < m->n; i++) {
        same = same && v[i] == v[0];
    }
    if (same) {
        return 0;
    }
    *out = extent_through(m, v);
    if (*out >= 0) {
        return 0;
    }
    m->untold = true;
    wf_fail(why, WEFT_EUNSUPPORTED,
            "%s (%%%u): a size is %lld for the example and %lld for another recording, which is no "
            "symbol",
            wf_rows[m->f->ins[m->at].op].name, m->at + 1, (long long)v[0], (long long)v[1]);
    wf_hint(why, "an extent can be a sum of symbols, products of two of them and integers; a "
                 "quotient where only multiples are sizes: \"n%%4==0\"");
    return WEFT_EUNSUPPORTED;
}

/* Recordings, or the one function that is bound; instruction `at` of recording i. */
static int recordings(const mapper *m)
{
    return m->n == 0 ? 1 : m->n;
}
static const wf_fn *twin(const mapper *m, int i)
{
    return m->n == 0 ? m->f : m->twin[i];
}
static const wf_ins *twin_ins(const mapper *m, int i)
{
    return &twin(m, i)->ins[m->at];
}

static int map_type(mapper *m, wf_type *out, wf_why *why)
{
    const wf_type *t[WF_POINTS];
    int64_t v[WF_POINTS];
    for (int i = 0; i < recordings(m); i++) {
        t[i] = &twin(m, i)->types[twin_ins(m, i)->type];
        if (t[i]->dtype != t[0]->dtype || t[i]->rank != t[0]->rank) {
            return wf_fail(why, WEFT_EUNSUPPORTED, "%%%u has another type in another recording",
                           m->at + 1);
        }
    }
    *out = *t[0];
    for (int k = 0; k < out->rank; k++) {
        for (int i = 0; i < recordings(m); i++) {
            v[i] = t[i]->dims[k];
        }
        int rc = map_extent(m, v, &out->dims[k], why);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* The first op that takes value v. */
static uint32_t user_of(const wf_fn *f, wf_val v)
{
    uint32_t at = v - 1;
    for (uint32_t k = v; k < f->n && at == v - 1; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        for (int i = 0; i < f->ins[k].nsrc; i++) {
            at = src[i] == v ? k : at;
        }
    }
    return at;
}

/* " (sub, %8, net.c:12)": an instruction, and the call it is of. */
static const char *where_is(const wf_fn *f, const wf_ins *i, char text[static 160])
{
    const char *site = i->loc ? f->locs[i->loc] : NULL;
    snprintf(text, 160, " (%.40s, %%%u%s%.60s)", wf_rows[i->op].name, (unsigned)(i - f->ins) + 1,
             site ? ", " : "", site ? wf_site_file(site) : "");
    return text;
}

static int differs(const mapper *m, wf_why *why)
{
    char where[160];
    int code =
        wf_fail(why, WEFT_EUNSUPPORTED, "the function does something else when sizes change%s",
                where_is(m->f, &m->f->ins[m->at], where));
    wf_hint(why, "record it without this symbol, or make the function independent of the size");
    return code;
}

/* A number that is not what an extent can be: who takes it, and what it is in two recordings. */
static int computes_number(const mapper *m, wf_why *why)
{
    const wf_fn *f = m->f, *g = f;
    const uint32_t slot = f->ins[m->at].attr;
    uint32_t other = slot;
    for (int k = 1; k < m->n && f->slots[slot] == g->slots[other]; k++) {
        g = m->twin[k];
        other = g->ins[m->at].attr;
    }
    char where[160];
    const int code = wf_fail(why, WEFT_EUNSUPPORTED,
                             "the function computes a number from a size%s: it is %.9g, then %.9g",
                             where_is(f, &f->ins[user_of(f, m->at + 1)], where),
                             wf_slot_f64(f->slot_kind[slot], f->slots[slot]),
                             wf_slot_f64(g->slot_kind[other], g->slots[other]));
    wf_hint(why,
            "a number can be an integer that grows with symbols, as an extent does: divide by n "
            "instead of multiplying by 1 / n");
    return code;
}

static bool same_structure(const wf_attr *p, const wf_attr *q)
{
    bool same = p->n_ints == q->n_ints && p->n_dyn == q->n_dyn && p->n_flt == q->n_flt &&
                p->dtype == q->dtype && p->flags == q->flags;
    for (int k = 0; k < p->n_ints && same; k++) {
        same = p->ints[k] == q->ints[k];
    }
    return same;
}

/* A number among the attributes of a row, as the start of a range of floats is, differs from recording to recording. */
static int number_differs(const mapper *m, wf_why *why)
{
    const int code =
        wf_fail(why, WEFT_EUNSUPPORTED, "%s (%%%u): one of its numbers is computed from a size",
                wf_rows[m->f->ins[m->at].op].name, m->at + 1);
    wf_hint(why, m->f->ins[m->at].op == WF_OP_ARANGE
                     ? "make it an arange of integers, which may begin at a size, and weft_cast it"
                     : "record it without this symbol, or compute with a tensor what the row does");
    return code;
}

static int map_row(mapper *m, wf_fn *out, const wf_ins *i, wf_why *why)
{
    const wf_attr *p[WF_POINTS];
    for (int r = 0; r < recordings(m); r++) {
        p[r] = wf_ins_attr(twin(m, r), twin_ins(m, r));
        if (!same_structure(p[0], p[r])) {
            return differs(m, why);
        }
        if (p[0]->n_flt && memcmp(p[0]->flt, p[r]->flt, p[0]->n_flt * sizeof(double)) != 0) {
            return number_differs(m, why);
        }
    }
    int64_t dyn[256], v[WF_POINTS];
    wf_attr attr = *p[0];
    for (int k = 0; k < attr.n_dyn; k++) {
        bool same = true;
        for (int r = 0; r < recordings(m); r++) {
            v[r] = p[r]->dyn[k];
            same = same && v[r] == v[0];
        }
        const bool fixed = !wf_slot_is_extent(i->op, p[0], k);
        int rc = fixed && same ? 0 : map_extent(m, v, &dyn[k], why);
        dyn[k] = fixed ? v[0] : dyn[k];
        if (rc || (fixed && !same)) {
            return rc ? rc : differs(m, why);
        }
    }
    attr.dyn = dyn;
    wf_val dst[WF_MAX_DST];
    int rc = wf_fn_append(out, (wf_op)i->op, &attr, i->nsrc, wf_ins_src(m->f, i), dst,
                          i->loc ? m->f->locs[i->loc] : NULL, why);
    return rc || i->op == WF_OP_PAD ? explain_refusal(m, p[0], rc, why) : 0;
}

/* Is the instruction the same op of the same values in all recordings? */
static bool is_same_ins(const mapper *m)
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[m->at];
    for (int k = 1; k < m->n; k++) {
        const wf_fn *g = m->twin[k];
        const wf_ins *j = &g->ins[m->at];
        if (i->op != j->op || i->nsrc != j->nsrc || i->flags != j->flags ||
            (i->nsrc &&
             memcmp(wf_ins_src(f, i), wf_ins_src(g, j), i->nsrc * sizeof(wf_val)) != 0)) {
            return false;
        }
        if (wf_op_is_weak(i->op) && f->slot_kind[i->attr] != g->slot_kind[j->attr]) {
            return false;
        }
    }
    return true;
}

/* The number in every recording, as integers; *same: it is one. False: it is none of integers that can be extents. */
static bool numbers_of(const mapper *m, int64_t *v, bool *same)
{
    const uint32_t slot = m->f->ins[m->at].attr;
    const int kind = m->f->slot_kind[slot];
    bool whole = kind != 0;
    *same = true;
    for (int i = 0; i < m->n; i++) {
        const wf_fn *g = m->twin[i];
        const uint64_t bits = g->slots[twin_ins(m, i)->attr];
        const double d = wf_slot_f64(kind, bits), far = (double)(INT64_C(1) << 53);
        *same = *same && bits == m->f->slots[slot];
        whole = whole && d > -far && d < far;
        v[i] = whole ? (int64_t)d : 0;
        whole = whole && wf_slot_bits(kind, (double)v[i]) == bits;
    }
    return whole;
}

/* A scalar or constant: a number of the function, or one that is an extent. */
static int map_number(mapper *m, wf_fn *out, wf_why *why)
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[m->at];
    const int kind = f->slot_kind[i->attr];
    uint64_t bits = f->slots[i->attr];
    int64_t v[WF_POINTS], extent = wf_fn_slot_extent(f, i->attr);
    bool same = true;
    if (m->n == 0 && extent >= 0) {
        const int64_t value = wf_sym_value(f, extent, m->sizes), far = INT64_C(1) << 53;
        if (value >= far ||
            value <= -far) { /* as numbers_of has them; past 64 bits there is no value */
            char text[WF_EXTENT_TEXT];
            return wf_fail(why, WEFT_ESHAPE,
                           "the number '%.80s' (%%%u) is too large with these sizes",
                           wf_extent_text(f, extent, text), m->at + 1);
        }
        bits = kind == 2 ? wf_slot_bits(kind, (double)value) : (uint64_t)value;
    } else if (m->n > 0 && !numbers_of(m, v, &same) && !same) {
        return computes_number(m, why);
    }
    int rc = same ? 0 : i->op == WF_OP_CONST ? differs(m, why) : map_extent(m, v, &extent, why);
    if (rc) {
        return rc == WEFT_EUNSUPPORTED && i->op != WF_OP_CONST ? computes_number(m, why) : rc;
    }
    const wf_val at =
        i->op == WF_OP_SCALAR ? wf_fn_scalar(out, kind, bits) : wf_fn_const(out, kind, bits);
    if (!at || (!same && wf_fn_size_scalar(out, at, extent))) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    return 0;
}

/* An input's extent may be computed (`n-8`), and be negative with the sizes that are given. */
static int check_input(const mapper *m, const wf_type *t, wf_why *why)
{
    const wf_type *was = &m->f->types[m->f->ins[m->at].type];
    char text[WF_EXTENT_TEXT], sizes[96];
    for (int k = 0; k < t->rank && m->n == 0; k++) {
        if (t->dims[k] < 0) {
            return wf_fail(why, WEFT_ESHAPE, "input (%%%u): '%.80s' would be %lld, since %s",
                           m->at + 1, wf_extent_text(m->f, was->dims[k], text),
                           (long long)t->dims[k], since(m, was->dims[k], sizes));
        }
    }
    return 0;
}

static int map_ins(mapper *m, wf_fn *out, wf_why *why)
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[m->at];
    wf_type t;
    int rc = 0;
    if (!is_same_ins(m)) {
        return differs(m, why);
    }
    if (i->op == WF_OP_RESULT) {
        return 0; /* came with its op */
    }
    if (i->op == WF_OP_INPUT) {
        m->plain = true;
        rc = map_type(m, &t, why);
        m->plain = false;
        rc = rc ? rc : check_input(m, &t, why);
        const wf_val v = rc ? 0 : wf_fn_input(out, &t);
        const char *name = wf_fn_input_name(f, i->attr);
        if (v && (name || i->loc)) {
            wf_fn_name_input(out, v, name, name ? strlen(name) : 0, f->locs[i->loc]);
        }
        return rc ? rc : v ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    if (wf_op_is_weak(i->op)) {
        return map_number(m, out, why);
    }
    rc = map_row(m, out, i, why);
    if (!rc) {
        out->ins[m->at].flags = i->flags;
        wf_fn_name_call(out, m->at, wf_fn_call_name(f, m->at));
    }
    return rc;
}

static wf_fn *rebuild(mapper *m, wf_fn *out, wf_why *why)
{
    const wf_fn *f = m->f;
    int rc = 0;
    m->out = out;
    for (int i = 1; i < m->n; i++) {
        if (f->n != m->twin[i]->n || f->noutputs != m->twin[i]->noutputs) {
            wf_fail(why, WEFT_EUNSUPPORTED,
                    "the function does something else when sizes change: it records %u rows for "
                    "the example and %u with other sizes",
                    f->n, m->twin[i]->n);
            wf_hint(why, "a loop over an axis is recorded step by step: its length cannot be a "
                         "symbol, make a graph for each or pad to one");
            wf_fn_free(out);
            return NULL;
        }
    }
    for (m->at = 0; m->at < f->n && !rc; m->at++) {
        rc = map_ins(m, out, why);
    }
    for (uint32_t k = 0; k < f->noutputs && !rc; k++) {
        for (int i = 1; i < m->n && !rc; i++) {
            m->at = f->outputs[k] - 1;
            rc = f->outputs[k] == m->twin[i]->outputs[k] ? 0 : differs(m, why);
        }
        if (!rc && wf_fn_output(out, f->outputs[k])) {
            rc = wf_fail(why, WEFT_ENOMEM, "out of memory");
        }
    }
    if (rc) {
        wf_fn_free(out);
        return NULL;
    }
    return out;
}

wf_fn *wf_graph_bind(const wf_fn *f, const int64_t *sizes, wf_why *why)
{
    mapper m = {.f = f, .sizes = sizes};
    wf_fn *out = wf_fn_new(f->name);
    if (!out) {
        wf_fail(why, WEFT_ENOMEM, "out of memory");
        return NULL;
    }
    return rebuild(&m, out, why);
}

wf_fn *wf_graph_unify(const wf_fn *const *recording, int n, const wf_graph_symbols *s, bool *untold,
                      wf_why *why)
{
    mapper m = {.f = recording[0], .twin = recording, .n = n, .symbols = s};
    wf_fn *out = wf_fn_new(m.f->name);
    *untold = false;
    for (int k = 0; out && k < s->n; k++) {
        const int at = wf_fn_symbol(out, s->name[k], strlen(s->name[k]));
        if (at != k) {
            if (at == WF_NO_MEMORY) {
                wf_fail(why, WEFT_ENOMEM, "out of memory");
            } else {
                wf_fail(why, WEFT_EINVALID,
                        "'%s' is no name for a symbol, or there are more than %d", s->name[k],
                        WF_MAX_SYMBOLS);
            }
            wf_fn_free(out);
            return NULL;
        }
        out->range[k] = s->range[k];
    }
    if (!out) {
        wf_fail(why, WEFT_ENOMEM, "out of memory");
        return NULL;
    }
    out = rebuild(&m, out, why);
    *untold = m.untold;
    return out;
}
