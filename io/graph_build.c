/*
 * io/graph_build.c -- recording a graph, and rebuilding a function with other extents.
 *
 * A function with symbols is recorded again, with other sizes. Where recordings agree there is a constant, where they differ by what
 * a symbol differs there is the symbol. A symbol times an integer plus an integer goes through any two points, so a third recording
 * has to confirm it; anything else is refused. Rebuilding appends every instruction through the checking builder, so what comes out
 * is verified: a wrong guess about a result's extent cannot survive a run, whose sizes are inferred anew.
 *
 * That recordings at some sizes agree says nothing of others: a host branch (`n == 1 ? ... : ...`) would go unseen. So the function
 * is recorded again at the sizes where one is likely, 1, 2 and far above, and has to be what the symbols say there. Where extents
 * are 1 or 2 it may be written otherwise (a view that is contiguous, nothing to expand) as long as it computes the same bits, which
 * is tried on a few numbers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "io/graph.h"
#include "jit/passes/oracle.h"
#include "jit/trace.h"

/* How an extent of f (and of its twins) is written in the rebuilt function. */
typedef struct mapper {
    const wf_fn *f, *twin[WF_RECORDINGS]; /* unifying: f and the others */
    int n;                                /* of them; 0: binding */
    const int64_t *sizes;                 /* binding */
    const wf_graph_symbols *symbols;      /* unifying */
    uint32_t at;                          /* instruction, for messages */
    bool plain;                           /* only symbols themselves are extents here */
} mapper;

/* A row that is refused: which, called where. With sizes for symbols: because of an integer that is negative with them? Where it is
 * no extent, but where a slice begins, it may be. A computed padding may not, though the row knows what that means: the function
 * would be refused. */
static int explain_refusal(const mapper *m, const wf_attr *attr, int rc, wf_why *why)
{
    const wf_ins *i = &m->f->ins[m->at];
    const char *site = m->f->locs[i->loc];
    char text[WF_EXTENT_TEXT], says[sizeof why->rule];
    snprintf(says, sizeof says, "%s", why->rule);
    for (int k = 0; k < attr->n_dyn && m->n == 0; k++) {
        const int64_t v = attr->dyn[k];
        if (wf_is_sym(v, m->f->nsymbols) && wf_sym_value(v, m->sizes) < 0) {
            const uint32_t s = wf_sym_of(v);
            snprintf(says, sizeof says, "'%s' would be %lld, since '%s' is %lld",
                     wf_extent_text(m->f, v, text), (long long)wf_sym_value(v, m->sizes),
                     m->f->symbols[s], (long long)m->sizes[s]);
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

static int64_t extent_through(const mapper *m, const int64_t v[WF_RECORDINGS])
{
    int64_t found = -1;
    for (int k = 0; k < m->symbols->n && found < 0; k++) {
        int64_t size[WF_RECORDINGS];
        for (int i = 0; i < WF_RECORDINGS; i++) { /* two recordings: the second counts twice */
            size[i] = m->symbols->size[i < m->n ? i : m->n - 1][k];
        }
        found = wf_sym_through((uint32_t)k, size, v);
        found = m->plain && found != WF_SYM(k) ? -1 : found;
    }
    return found;
}

/* v: in each recording. */
static int map_extent(const mapper *m, const int64_t v[WF_RECORDINGS], int64_t *out, wf_why *why)
{
    *out = v[0];
    if (m->n == 0) {
        *out = wf_is_sym(v[0], m->f->nsymbols) ? wf_sym_value(v[0], m->sizes) : v[0];
        return 0;
    }
    if (v[0] == v[1] && v[0] == v[2]) {
        return 0;
    }
    *out = extent_through(m, v);
    if (*out >= 0) {
        return 0;
    }
    int code =
        wf_fail(why, WEFT_EUNSUPPORTED,
                "%s (%%%u): a size is %lld for the example and %lld for another recording, "
                "which is no symbol",
                wf_rows[m->f->ins[m->at].op].name, m->at + 1, (long long)v[0], (long long)v[1]);
    wf_hint(why, "an extent can be a symbol times an integer plus an integer, not a product or "
                 "quotient of symbols");
    return code;
}

/* Instruction `at` of recording i; the last one stands for those that are not there. */
static const wf_fn *twin(const mapper *m, int i)
{
    return m->n == 0 ? m->f : m->twin[i < m->n ? i : m->n - 1];
}
static const wf_ins *twin_ins(const mapper *m, int i)
{
    return &twin(m, i)->ins[m->at];
}

static int map_type(const mapper *m, wf_type *out, wf_why *why)
{
    const wf_type *t[WF_RECORDINGS];
    for (int i = 0; i < WF_RECORDINGS; i++) {
        t[i] = &twin(m, i)->types[twin_ins(m, i)->type];
        if (t[i]->dtype != t[0]->dtype || t[i]->rank != t[0]->rank) {
            return wf_fail(why, WEFT_EUNSUPPORTED, "%%%u has another type in another recording",
                           m->at + 1);
        }
    }
    *out = *t[0];
    for (int k = 0; k < out->rank; k++) {
        const int64_t v[] = {t[0]->dims[k], t[1]->dims[k], t[2]->dims[k]};
        int rc = map_extent(m, v, &out->dims[k], why);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static int differs(const mapper *m, wf_why *why)
{
    int code = wf_fail(why, WEFT_EUNSUPPORTED,
                       "the function does something else when sizes change (%s, %%%u)",
                       wf_rows[m->f->ins[m->at].op].name, m->at + 1);
    wf_hint(why, "record it without this symbol, or make the function independent of the size");
    return code;
}

static bool same_structure(const wf_attr *p, const wf_attr *q)
{
    bool same = p->n_ints == q->n_ints && p->n_dyn == q->n_dyn && p->n_flt == q->n_flt &&
                p->dtype == q->dtype && p->flags == q->flags;
    for (int k = 0; k < p->n_ints && same; k++) {
        same = p->ints[k] == q->ints[k];
    }
    for (int k = 0; k < p->n_flt && same; k++) {
        same = memcmp(&p->flt[k], &q->flt[k], sizeof(double)) == 0;
    }
    return same;
}

static int map_row(const mapper *m, wf_fn *out, const wf_ins *i, wf_why *why)
{
    const wf_attr *p[WF_RECORDINGS];
    for (int r = 0; r < WF_RECORDINGS; r++) {
        p[r] = wf_ins_attr(twin(m, r), twin_ins(m, r));
        if (!same_structure(p[0], p[r])) {
            return differs(m, why);
        }
    }
    int64_t dyn[256];
    wf_attr attr = *p[0];
    for (int k = 0; k < attr.n_dyn; k++) {
        const int64_t v[] = {p[0]->dyn[k], p[1]->dyn[k], p[2]->dyn[k]};
        const bool fixed = !wf_slot_is_extent(i->op, p[0], k);
        int rc = fixed && v[0] == v[1] && v[0] == v[2] ? 0 : map_extent(m, v, &dyn[k], why);
        dyn[k] = fixed ? v[0] : dyn[k];
        if (rc || (fixed && (v[0] != v[1] || v[0] != v[2]))) {
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
        if (wf_op_is_weak(i->op) && (f->slots[i->attr] != g->slots[j->attr] ||
                                     f->slot_kind[i->attr] != g->slot_kind[j->attr])) {
            return false;
        }
    }
    return true;
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
        return rc ? rc : wf_fn_input(out, &t) ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    if (wf_op_is_weak(i->op)) {
        wf_val v = i->op == WF_OP_SCALAR
                       ? wf_fn_scalar(out, f->slot_kind[i->attr], f->slots[i->attr])
                       : wf_fn_const(out, f->slot_kind[i->attr], f->slots[i->attr]);
        return v ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    rc = map_row(m, out, i, why);
    if (!rc) {
        out->ins[m->at].flags = i->flags;
    }
    return rc;
}

static wf_fn *rebuild(mapper *m, wf_fn *out, wf_why *why)
{
    const wf_fn *f = m->f;
    int rc = 0;
    for (int i = 1; i < m->n; i++) {
        if (f->n != m->twin[i]->n || f->noutputs != m->twin[i]->noutputs) {
            wf_fail(why, WEFT_EUNSUPPORTED, "the function does something else when sizes change");
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

wf_fn *wf_graph_unify(const wf_fn *f, const wf_fn *second, const wf_fn *third,
                      const wf_graph_symbols *s, wf_why *why)
{
    mapper m = {.f = f, .twin = {f, second, third}, .n = third ? 3 : 2, .symbols = s};
    wf_fn *out = wf_fn_new(f->name);
    for (int k = 0; out && k < s->n; k++) {
        if (wf_fn_symbol(out, s->name[k], strlen(s->name[k])) != k) {
            wf_fail(why, WEFT_EINVALID, "'%s' is no name for a symbol, or there are more than %d",
                    s->name[k], WF_MAX_SYMBOLS);
            wf_fn_free(out);
            return NULL;
        }
        out->least[k] = s->least[k];
        out->most[k] = s->most[k];
    }
    if (!out) {
        wf_fail(why, WEFT_ENOMEM, "out of memory");
        return NULL;
    }
    return rebuild(&m, out, why);
}

/* -- recording ----------------------------------------------------------------------------------------- */

typedef struct recording {
    wf_fn *fn;
    weft_tensor *captured; /* inputs, then weights; kept */
    int n;
} recording;

static void drop_recording(recording *r)
{
    for (int i = 0; i < r->n; i++) {
        weft_free(r->captured[i]);
    }
    wf_mfree(r->captured);
    wf_fn_free(r->fn);
    *r = (recording){0};
}

/* Makes x the next input of the trace. */
static int trace_input(wf_trace *t, weft_tensor x)
{
    wf_why why = {0};
    bool pinned;
    wf_val v;
    wf_slot *s = wf_pin(t->c, x, &pinned, &why);
    int rc = s ? wf_trace_value(t, s, &v, &why) : why.code;
    if (s && pinned) {
        wf_unpin(t->c, s);
    }
    return rc ? wf_raise_status(t->c, "jit_graph", 1, &x, &why) : 0;
}

/* x: fresh tensors, one storage each. */
static int record_kept(const weft_graph_args *a, const weft_tensor *x, int n_out, recording *r)
{
    weft_tensor out[64];
    wf_trace *t = wf_trace_begin(a->name ? a->name : "f");
    if (!t) {
        return WEFT_EINVALID;
    }
    int rc = 0;
    for (int i = 0; i < a->n_inputs && !rc; i++) {
        rc = trace_input(t, x[i]);
    }
    for (int i = 0; i < n_out; i++) {
        out[i] = WEFT_NONE;
    }
    rc = rc ? rc
            : wf_run_function(t->c, "jit_graph", a->name ? a->name : "f", a->fn, a->self, x,
                              a->n_inputs, out, n_out);
    rc = rc ? rc : wf_trace_refusal(t, "jit_graph");
    for (int i = 0; i < n_out && !rc; i++) {
        rc = wf_trace_output(t, out[i]);
    }
    if (rc) {
        wf_trace_abort(t);
        return rc;
    }
    r->fn = wf_trace_end(t, &r->captured, &r->n);
    return r->fn ? 0 : WEFT_ENOMEM;
}

/* The same; gradients that the function gives to tensors from outside are a recording's: they go with it. */
static int record(const weft_graph_args *a, const weft_tensor *x, int n_out, recording *r)
{
    wf_gradients before;
    wf_gradients_keep(&before);
    int rc = record_kept(a, x, n_out, r);
    wf_gradients_restore(&before);
    if (!rc && before.failed) {
        wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory for gradients to be given back");
        drop_recording(r);
        return WEFT_ENOMEM;
    }
    return rc;
}

static bool good_name(const char *s)
{
    size_t n = strlen(s);
    bool good = n > 0 && n < 256;
    for (size_t i = 0; i < n; i++) {
        good = good && (unsigned char)s[i] > 32 && s[i] != 127;
    }
    return good;
}

/* A name for weight i that no earlier one has. */
static char *weight_name(const weft_graph *g, int i, const char *given)
{
    char text[300];
    bool taken = !good_name(given);
    for (int k = 0; k < i && !taken; k++) {
        taken = strcmp(g->names[g->n_inputs + k], given) == 0;
    }
    snprintf(text, sizeof text, taken ? "%.255s_%d" : "%.255s", good_name(given) ? given : "weight",
             i);
    return wf_strdup(text);
}

static int name_ports(weft_graph *g, const weft_graph_args *a, const recording *r)
{
    char text[32];
    for (int i = 0; i < g->n_inputs + g->n_outputs; i++) {
        bool in = i < g->n_inputs;
        int k = in ? i : i - g->n_inputs;
        const char *const *given = in ? a->input_names : a->output_names;
        snprintf(text, sizeof text, in ? "input_%d" : "output_%d", k);
        if (given && (!given[k] || !good_name(given[k]))) {
            wf_api_error("jit_graph", WEFT_EINVALID, "name %d of the %s is empty or has spaces", k,
                         in ? "inputs" : "outputs");
            return WEFT_EINVALID;
        }
        char **place = &g->names[in ? i : g->n_inputs + g->n_weights + k];
        *place = wf_strdup(given ? given[k] : text);
        if (!*place) {
            return WEFT_ENOMEM;
        }
    }
    for (int i = 0; i < g->n_weights; i++) {
        char *name = weight_name(g, i, weft_name(r->captured[g->n_inputs + i]));
        g->names[g->n_inputs + i] = name;
        if (!name) {
            return WEFT_ENOMEM;
        }
    }
    return 0;
}

/* A name as the text form has it, so that what is saved loads. */
static bool good_word(const char *s, bool symbol)
{
    size_t n = strlen(s);
    bool good = n > 0 && n < (symbol ? 32u : 64u) && !(symbol && s[0] >= '0' && s[0] <= '9');
    for (size_t i = 0; i < n && good; i++) {
        good = s[i] == '_' || (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') ||
               (s[i] >= 'A' && s[i] <= 'Z');
    }
    return good;
}

/* A size at *text, which goes behind it. False: there is none. */
static bool take_size(const char **text, int64_t *size)
{
    char *end = NULL;
    if (**text < '0' || **text > '9') {
        return false;
    }
    errno = 0;
    *size = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0 && *size > 0;
}

/* "name", with "least<=" before it and "<=most" behind it. 0, or an error recorded. */
static int parse_symbol(const weft_graph_args *a, int d, char *name, int64_t *least, int64_t *most)
{
    const char *text = a->dims[d].name, *at = text;
    bool good = true;
    *least = 0;
    *most = INT64_MAX;
    if (*at >= '0' && *at <= '9') {
        good = take_size(&at, least) && strncmp(at, "<=", 2) == 0;
        at += good ? 2 : 0;
    }
    const char *bound = strstr(at, "<=");
    const size_t n = bound ? (size_t)(bound - at) : strlen(at);
    snprintf(name, WF_SYMBOL_NAME, "%.*s", n < WF_SYMBOL_NAME ? (int)n : 0, at);
    if (bound) {
        bound += 2;
        good = good && take_size(&bound, most) && *bound == '\0' && *least <= *most;
    }
    if (good && good_word(name, true)) {
        return 0;
    }
    wf_api_error(
        "jit_graph", WEFT_EINVALID,
        "dims[%d]: '%s' is no name for an extent: 1 to 31 letters, digits and '_', "
        "not a digit first; the smallest size and \"<=\" may come before it, \"<=\" and the "
        "largest size behind it",
        d, text);
    return WEFT_EINVALID;
}

/* Puts dims[d] among the symbols. 0, or an error recorded. */
static int add_symbol(const weft_graph_args *a, int d, wf_graph_symbols *s)
{
    const weft_graph_dim *x = &a->dims[d];
    char name[WF_SYMBOL_NAME];
    int64_t least, most;
    int k = 0;
    if (!x->name || x->input < 0 || x->input >= a->n_inputs || x->axis < 0 ||
        x->axis >= weft_rank(a->inputs[x->input])) {
        wf_api_error("jit_graph", WEFT_EINVALID, "dims[%d] names no axis of an input", d);
        return WEFT_EINVALID;
    }
    if (parse_symbol(a, d, name, &least, &most)) {
        return WEFT_EINVALID;
    }
    const int64_t size = weft_dim(a->inputs[x->input], x->axis);
    while (k < s->n && strcmp(s->name[k], name) != 0) {
        k++;
    }
    if (k == WF_MAX_SYMBOLS) {
        wf_api_error("jit_graph", WEFT_EINVALID, "more than %d symbols", WF_MAX_SYMBOLS);
        return WEFT_EINVALID;
    }
    if (k < s->n && s->size[0][k] != size) {
        wf_api_error("jit_graph", WEFT_ESHAPE, "'%s' is %lld on one axis and %lld on another", name,
                     (long long)s->size[0][k], (long long)size);
        return WEFT_ESHAPE;
    }
    memcpy(s->name[k], name, sizeof name);
    s->size[0][k] = size;
    s->least[k] = k == s->n || least > s->least[k] ? least : s->least[k];
    s->most[k] = k == s->n || most < s->most[k] ? most : s->most[k];
    s->of[d] = k;
    s->n += k == s->n;
    if (size > s->most[k] || size < s->least[k]) {
        const bool more = size > s->most[k];
        wf_api_error("jit_graph", WEFT_ESHAPE, "'%s' is %lld in the example, but at %s %lld", name,
                     (long long)size, more ? "most" : "least",
                     (long long)(more ? s->most[k] : s->least[k]));
        return WEFT_ESHAPE;
    }
    return 0;
}

/* Could what has sizes x of symbol k in two recordings be taken for an earlier symbol's multiple, or as much larger? In three:
 * for any extent of it, or for one of a product? */
static bool is_related(const wf_graph_symbols *s, int nth, int k, int64_t x)
{
    const int64_t *a = s->size[0], *b = s->size[1];
    for (int j = 0; j < k && nth == 1; j++) {
        if (x * a[j] == b[j] * a[k] || x - b[j] == a[k] - a[j]) {
            return true;
        }
    }
    for (int j = 0; j < k && nth == 2; j++) {
        const int64_t by = b[j] - a[j], more = b[k] - a[k], c = s->size[2][j];
        const int64_t product = b[j] * b[k] - a[j] * a[k], last = c * x - a[j] * a[k];
        if (more * (c - a[j]) == (x - a[k]) * by || product * (c - a[j]) == last * by ||
            product * (x - a[k]) == last * more) {
            return true;
        }
    }
    return false;
}

/* The size, at most `most` more than the least, that symbol k has in another recording: what would be an extent computed from
 * another symbol is taken only where the range leaves no choice. 0: it leaves none at all. */
static int64_t other_size(const wf_graph_symbols *s, int nth, int k, int64_t most)
{
    int64_t taken[WF_MAX_SYMBOLS + WF_RECORDINGS];
    int n = 0;
    for (int i = 0; i < nth; i++) {
        taken[n++] = s->size[i][k];
    }
    for (int j = 0; j < k; j++) {
        taken[n++] = s->size[nth][j];
    }
    const int64_t least = s->least[k] > 0 ? s->least[k] : 1;
    most = most < s->most[k] - least ? most + least : s->most[k];
    const int64_t first = wf_size_below(most, taken, n);
    int64_t x = first;
    while (x >= least && is_related(s, nth, k, x)) {
        x = wf_size_below(x - 1, taken, n);
    }
    x = x >= least ? x : first;
    return x >= least ? x : 0;
}

/* Distinct symbols with the example's sizes. 0, or an error recorded. */
static int symbols_of(const weft_graph_args *a, wf_graph_symbols *s)
{
    for (int d = 0; d < a->n_dims; d++) {
        int rc = add_symbol(a, d, s);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* Sizes of a further recording, within the ranges. far: not small ones, but larger than the example's. The symbol that has none
 * left, or -1. */
static int choose_sizes(wf_graph_symbols *s, int nth, bool far)
{
    static const int64_t primes[WF_RECORDINGS][WF_MAX_SYMBOLS] = {
        [1] = {7, 13, 19, 29, 37, 43, 53, 61, 71, 79, 89, 101, 107, 113, 131, 139},
        [2] = {17, 31, 47, 67, 83, 103, 127, 149, 163, 179, 193, 211, 227, 241, 257, 271}};
    for (int k = 0; k < s->n; k++) {
        s->size[nth][k] = other_size(s, nth, k, primes[nth][k] - 1 + (far ? s->size[0][k] : 0));
        if (s->size[nth][k] == 0) {
            return k;
        }
    }
    return -1;
}

/* Memory that nobody has touched: a recording reads no values, and large inputs cost it none. */
static weft_tensor untouched(wf_ctx *c, const weft_shape *shape, weft_dtype dtype)
{
    wf_type t = {.dtype = (uint8_t)dtype, .rank = (uint8_t)shape->n};
    wf_why why = {0};
    void *data;
    memcpy(t.dims, shape->v, (size_t)shape->n * sizeof *shape->v);
    weft_tensor x = wf_graph_memory(c, &t, c->device, &data, &why);
    return x.slot ? x : wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory for an input");
}

/* Tensors in the shapes that the inputs have with these sizes: zeros where `filled`. */
static void inputs_of(const weft_graph_args *a, const wf_graph_symbols *s, const int64_t *size,
                      bool filled, weft_tensor *x)
{
    for (int i = 0; i < a->n_inputs; i++) {
        weft_shape shape = weft_shape_of(a->inputs[i]);
        for (int d = 0; d < a->n_dims; d++) {
            if (a->dims[d].input == i) {
                shape.v[a->dims[d].axis] = size[s->of[d]];
            }
        }
        wf_ctx *c = wf_ctx_get();
        int before = wf_device_enter(c, wf_device_of_handle(c, a->inputs[i]));
        const weft_dtype dtype = weft_dtype_of(a->inputs[i]);
        x[i] = filled ? weft_zeros(shape, dtype) : untouched(c, &shape, dtype);
        wf_device_enter(c, before);
    }
}

/* Records with the sizes of one recording. */
static int record_sizes(const weft_graph_args *a, int n_out, const wf_graph_symbols *s, int nth,
                        recording *r)
{
    weft_tensor x[64];
    inputs_of(a, s, s->size[nth], false, x);
    return record(a, x, n_out, r);
}

/* The elements of a and b, both of that type, one behind the other; to be freed. NULL: they cannot be read. */
static char *read_both(weft_tensor a, weft_tensor b, const wf_type *type, size_t *bytes)
{
    const int64_t n = wf_type_numel(type);
    *bytes = (size_t)n * wf_dtype_size(type->dtype);
    char *p = malloc(2 * *bytes + 1);
    if (p && (weft_to_array(a, p, n, WEFT_DTYPE_DEFAULT) != WEFT_OK ||
              weft_to_array(b, p + *bytes, n, WEFT_DTYPE_DEFAULT) != WEFT_OK)) {
        free(p);
        p = NULL;
    }
    return p;
}

/* Is it one memory, or are the bytes the same (an array of the function's own, made anew by every call)? */
static bool same_weight(weft_tensor a, weft_tensor b)
{
    wf_ctx *c = wf_ctx_get();
    bool pinned_a, pinned_b;
    wf_slot *s = wf_pin(c, a, &pinned_a, NULL), *t = wf_pin(c, b, &pinned_b, NULL);
    bool same = s && t && s->st == t->st;
    wf_type x = {0}, y = {0};
    if (s && t) {
        wf_slot_type(s, &x);
        wf_slot_type(t, &y);
    }
    if (s && pinned_a) {
        wf_unpin(c, s);
    }
    if (t && pinned_b) {
        wf_unpin(c, t);
    }
    if (same || !s || !t || !wf_type_same(&x, &y)) {
        return same;
    }
    size_t bytes;
    char *p = read_both(a, b, &x, &bytes);
    same = p && memcmp(p, p + bytes, bytes) == 0;
    free(p);
    return same;
}

/* Do both read the same tensors from outside? 0, or a status with why filled. */
static int check_weights(const weft_graph_args *a, const recording *r, const recording *other,
                         wf_why *why)
{
    for (int i = a->n_inputs; i < r->n && r->n == other->n; i++) {
        if (!same_weight(r->captured[i], other->captured[i])) {
            const char *name = weft_name(r->captured[i]);
            wf_fail(why, WEFT_EUNSUPPORTED,
                    "the function reads other tensors from outside when sizes change%s%.80s%s",
                    name[0] ? " ('" : "", name, name[0] ? "' for the example)" : "");
            wf_hint(why,
                    "record it without this symbol, or compute from its inputs what depends on "
                    "a size");
            return WEFT_EUNSUPPORTED;
        }
    }
    return 0;
}

/* The function with symbols, from r and two further recordings, the second of them only if one is not enough: what is a symbol
 * itself can be told from two, what is computed from one only from three. 0, or an error recorded; *fails: the function's own. */
static int unify(const weft_graph_args *a, int n_out, wf_graph_symbols *s, bool far,
                 const recording *r, wf_fn **out, bool *fails)
{
    recording second = {0}, third = {0};
    wf_why why = {0}, more = {0};
    *out = NULL;
    const int k = choose_sizes(s, 1, far);
    if (k >= 0) {
        wf_api_error("jit_graph", WEFT_EUNSUPPORTED,
                     "%lld <= '%s' <= %lld leaves no other size to record with",
                     (long long)s->least[k], s->name[k], (long long)s->most[k]);
        return WEFT_EUNSUPPORTED;
    }
    int rc = record_sizes(a, n_out, s, 1, &second);
    *fails = rc != 0;
    if (rc) {
        return rc;
    }
    *out = wf_graph_unify(r->fn, second.fn, NULL, s, &why);
    if (!*out && choose_sizes(s, 2, far) < 0) {
        rc = record_sizes(a, n_out, s, 2, &third);
        *out = rc ? NULL : wf_graph_unify(r->fn, second.fn, third.fn, s, &more);
    }
    if (*out &&
        (check_weights(a, r, &second, &more) || (third.fn && check_weights(a, r, &third, &more)))) {
        wf_fn_free(*out);
        *out = NULL;
    }
    drop_recording(&second);
    drop_recording(&third);
    if (!*out && !rc) {
        rc = wf_raise_status(wf_ctx_get(), "jit_graph", 0, NULL, more.code ? &more : &why);
    }
    return rc;
}

/* -- the same at other sizes ------------------------------------------------------------------------------------------ */

/* Same instructions, numbers included. */
static bool is_same_function(const wf_fn *f, const wf_fn *g)
{
    return wf_fn_equal(f, g) && f->ninputs == g->ninputs &&
           (f->nslots == 0 || memcmp(f->slots, g->slots, f->nslots * sizeof *f->slots) == 0);
}

/* Numbers like those of the example in the shape of x: of floating-point types any, of others some of its own, which may be
 * indices. */
static weft_tensor some_numbers(weft_tensor example, weft_tensor x)
{
    enum { KNOWN = 64 };
    const int64_t n = weft_numel(x);
    const int64_t known = weft_numel(example) < KNOWN ? weft_numel(example) : KNOWN;
    const weft_dtype t = weft_dtype_of(x);
    if (wf_dtype_kind((int)t) == 2) {
        weft_tensor v = weft_mul(weft_sin(weft_arange(1, (double)n + 1, 1, WEFT_F64)), weft_f(2));
        return weft_to(weft_reshape(weft_cast(v, t), weft_shape_of(x)), weft_device_of(x));
    }
    if (known == 0) {
        return x; /* zeros */
    }
    weft_tensor v = weft_narrow(weft_reshape(example, weft_shape(-1)), 0, 0, known);
    weft_tensor at = weft_remainder(weft_arange(0, (double)n, 1, WEFT_I64), weft_i(known));
    at = weft_to(at, weft_device_of(x));
    return weft_reshape(weft_index_select(v, 0, at), weft_shape_of(x));
}

static bool same_tensor(weft_tensor a, weft_tensor b)
{
    wf_ctx *c = wf_ctx_get();
    wf_type type, other;
    size_t bytes;
    if (!weft_ok(a) || !weft_ok(b) || !wf_graph_type_of(c, a, &type) ||
        !wf_graph_type_of(c, b, &other) || !wf_type_same(&type, &other)) {
        return false;
    }
    char *p = read_both(a, b, &type, &bytes);
    const bool same = p && wf_oracle_difference(&type, p, p + bytes) < 0;
    free(p);
    return same;
}

/* Do f, of the recording r, and `now` compute the same of some numbers in the shapes of x? */
static bool same_results(const weft_graph_args *a, const weft_tensor *x, const wf_fn *f,
                         const recording *r, const recording *now)
{
    weft_tensor out[2][64];
    weft_tensor *in = malloc(((size_t)r->n + (size_t)now->n + 1) * sizeof *in);
    bool same = in && f->noutputs == now->fn->noutputs;
    if (same) {
        weft_tensor *other = in + r->n;
        memcpy(in, r->captured, (size_t)r->n * sizeof *in);
        memcpy(other, now->captured, (size_t)now->n * sizeof *in);
        for (int i = 0; i < a->n_inputs; i++) {
            in[i] = other[i] = some_numbers(a->inputs[i], x[i]);
        }
        weft_no_grad_begin();
        same = wf_fn_run(f, in, NULL, out[0]) == 0 && wf_fn_run(now->fn, other, NULL, out[1]) == 0;
        weft_no_grad_end();
    }
    for (uint32_t k = 0; k < f->noutputs && same; k++) {
        same = same_tensor(out[0][k], out[1][k]);
    }
    free(in);
    return same;
}

/* "'batch' is 1, 'seq' is 1: %3 relu at a.c:4 is where neg was for the example". f has these sizes, and differs. */
static int say_other(const wf_graph_symbols *s, const int64_t *size, const wf_fn *f,
                     const wf_fn *now, wf_why *why)
{
    char where[96] = "", what[128] = "";
    size_t at = 0;
    uint32_t k = 0;
    for (int i = 0; i < s->n && at < sizeof where; i++) {
        const int n = snprintf(where + at, sizeof where - at, "%s'%s' is %lld", i ? ", " : "",
                               s->name[i], (long long)size[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    while (k < f->n && k < now->n && f->ins[k].op == now->ins[k].op) {
        k++;
    }
    if (k < f->n && k < now->n) {
        const char *site = now->locs[now->ins[k].loc];
        snprintf(what, sizeof what, ": %%%u %s%s%.60s is where %s is for the example", k + 1,
                 wf_rows[now->ins[k].op].name, site ? " at " : "", site ? wf_site_file(site) : "",
                 wf_rows[f->ins[k].op].name);
    }
    wf_fail(why, WEFT_EUNSUPPORTED, "the function does something else where %.90s%s", where, what);
    wf_hint(why, "record it without this symbol, or make the function independent of the size");
    return WEFT_EUNSUPPORTED;
}

/* What is asked of a function with symbols: what it does at some sizes, or whether it can be at them. */
typedef struct probe {
    const weft_graph_args *a;
    int n_out;
    const wf_graph_symbols *s;
    const wf_fn *f;
    bool refuses; /* the function fails at small sizes, though f does not: it is asked, too */
} probe;

/* A recording of the function with inputs that are made for it. */
typedef struct attempt {
    uint64_t last;
    weft_scope scope;
    weft_tensor x[64];
    recording now;
    bool good;
} attempt;

static void begin_attempt(const probe *p, const int64_t *size, bool filled, attempt *t)
{
    t->last = wf_ctx_get()->error_last;
    t->now = (recording){0};
    t->scope = weft_scope_begin();
    inputs_of(p->a, p->s, size, filled, t->x);
    t->good = record(p->a, t->x, p->n_out, &t->now) == 0;
}

static void end_attempt(attempt *t)
{
    drop_recording(&t->now);
    weft_scope_end(t->scope);
    wf_ctx_get()->error_last = t->last; /* what the function refused there is not the caller's */
}

/* Is the function at these sizes what f says, which is r's with symbols? small: it may be written otherwise. Where the function
 * fails, or f says that these sizes do not go, there is nothing to compare. 0, or a status with why filled. */
static int check_at(probe *p, const int64_t *size, bool small, const recording *r, wf_why *why)
{
    attempt t;
    wf_fn *bound = wf_graph_bind(p->f, size, why);
    int rc = 0;
    wf_why_clear(why);
    if (!bound) {
        return 0;
    }
    begin_attempt(p, size, small, &t); /* small ones may be read */
    if (t.good) {
        rc = is_same_function(bound, t.now.fn) ? check_weights(p->a, r, &t.now, why)
             : small && same_results(p->a, t.x, bound, r, &t.now)
                 ? 0
                 : say_other(p->s, size, bound, t.now.fn, why);
    } else if (small) {
        p->refuses = true;
    }
    wf_fn_free(bound);
    end_attempt(&t);
    return rc;
}

/* Elements of all inputs with these sizes. */
static double elements(const weft_graph_args *a, const wf_graph_symbols *s, const int64_t *size)
{
    double all = 0;
    for (int i = 0; i < a->n_inputs; i++) {
        const weft_shape shape = weft_shape_of(a->inputs[i]);
        double n = 1;
        for (int k = 0; k < shape.n; k++) {
            int64_t extent = shape.v[k];
            for (int d = 0; d < a->n_dims; d++) {
                extent = a->dims[d].input == i && a->dims[d].axis == k ? size[s->of[d]] : extent;
            }
            n *= (double)extent;
        }
        all += n;
    }
    return all;
}

/* Every symbol 1; 2; and as large as its range and memory for the inputs allow. */
static int check_sizes(probe *p, const recording *r, wf_why *why)
{
    enum { FAR = 65521, LEAST = 300, ELEMENTS = 1 << 24 };
    const wf_graph_symbols *s = p->s;
    int64_t size[WF_MAX_SYMBOLS], far = FAR;
    int rc = 0;
    for (int64_t n = 1; n <= 2 && !rc; n++) {
        for (int k = 0; k < s->n; k++) {
            size[k] = wf_size_within(n, s->least[k], s->most[k]);
        }
        rc = check_at(p, size, true, r, why);
    }
    for (bool fits = false; !fits && !rc; far /= 2) {
        for (int k = 0; k < s->n; k++) { /* of different sizes, but where ranges end */
            size[k] = wf_size_within(far - k, s->least[k], s->most[k]);
        }
        fits = elements(p->a, s, size) <= ELEMENTS || far < LEAST;
    }
    return rc ? rc : check_at(p, size, false, r, why);
}

/* -- ranges ----------------------------------------------------------------------------------------------------------- */

static bool goes(const probe *p, const int64_t *size)
{
    wf_why why = {0};
    wf_fn *bound = wf_graph_bind(p->f, size, &why);
    bool good = bound != NULL;
    wf_fn_free(bound);
    if (good && p->refuses) {
        attempt t;
        begin_attempt(p, size, false, &t);
        good = t.good;
        end_attempt(&t);
    }
    return good;
}

enum { SMALL, EXAMPLE, LARGE, SETTINGS, NO_MORE = 65521 };

/* Sizes of the symbols but k, which is x. */
static void others(const probe *p, int setting, int k, int64_t x, int64_t *size)
{
    const wf_graph_symbols *s = p->s;
    for (int j = 0; j < s->n; j++) {
        const int64_t n = setting == SMALL   ? 1
                          : setting == LARGE ? (INT64_C(1) << 24) - j
                                             : s->size[0][j];
        size[j] = j == k ? x : wf_size_within(n, s->least[j], s->most[j]);
    }
}

/* The size between `from`, where it goes, and `to`, where it might, that is nearest to `to` and goes. */
static int64_t nearest(const probe *p, int setting, int k, int64_t from, int64_t to)
{
    int64_t size[WF_MAX_SYMBOLS], good = from, bad = to;
    others(p, setting, k, to, size);
    if (goes(p, size)) {
        return to;
    }
    while (good - bad > 1 || bad - good > 1) {
        const int64_t x = good + (bad - good) / 2;
        others(p, setting, k, x, size);
        *(goes(p, size) ? &good : &bad) = x;
    }
    return good;
}

/* Ranges of the symbols that the rows of f, and the function, imply: `n` is at least 3 where a kernel of 3 is laid on it, at most 64
 * where it is the length of a slice of 64. A size is outside if it goes with no sizes of the other symbols, of those that are tried:
 * small, the example's, large; without other symbols these are one. */
static void find_ranges(probe *p, wf_fn *f)
{
    const wf_graph_symbols *s = p->s;
    int64_t least[WF_MAX_SYMBOLS], most[WF_MAX_SYMBOLS], size[WF_MAX_SYMBOLS];
    const bool refuses = p->refuses;
    for (int k = 0; k < s->n; k++) {
        const int64_t example = s->size[0][k], end = s->most[k] < NO_MORE ? s->most[k] : NO_MORE;
        least[k] = example;
        most[k] = example;
        for (int i = s->n > 1 ? SMALL : LARGE - refuses; i < SETTINGS; i++) {
            p->refuses = refuses && i != LARGE; /* recordings cost memory there */
            others(p, i, k, example, size);
            if (!goes(p, size)) {
                continue;
            }
            const bool asks = refuses == p->refuses;
            const int64_t low = asks ? nearest(p, i, k, example, s->least[k]) : example;
            p->refuses = false;
            const int64_t high = end > example ? nearest(p, i, k, example, end) : example;
            least[k] = low < least[k] ? low : least[k];
            most[k] = high > most[k] ? high : most[k];
        }
        most[k] = most[k] >= end ? s->most[k] : most[k];
    }
    for (int k = 0; k < s->n; k++) {
        f->least[k] = least[k];
        f->most[k] = most[k];
    }
}

/* Makes r->fn the function with symbols. Sizes are small at first, as tables of positions may be; a function that fails for these
 * is recorded with larger ones. One that does something else for these, or for those of check_sizes, is refused. */
static int generalise(const weft_graph_args *a, int n_out, recording *r)
{
    wf_graph_symbols s = {.n = 0};
    wf_fn *f = NULL;
    bool fails = false;
    int rc = symbols_of(a, &s);
    if (rc) {
        return rc;
    }
    rc = unify(a, n_out, &s, false, r, &f, &fails);
    if (fails && rc != WEFT_ENOMEM) {
        rc = unify(a, n_out, &s, true, r, &f, &fails);
    }
    if (rc) {
        return rc;
    }
    wf_why why = {0};
    probe p = {.a = a, .n_out = n_out, .s = &s, .f = f};
    if (check_sizes(&p, r, &why)) {
        wf_fn_free(f);
        return wf_raise_status(wf_ctx_get(), "jit_graph", 0, NULL, &why);
    }
    find_ranges(&p, f);
    wf_fn_free(r->fn);
    r->fn = f;
    return 0;
}

static weft_graph *finish(const weft_graph_args *a, int n_out, recording *r)
{
    int n_weights = r->n - a->n_inputs;
    weft_graph *g = wf_graph_new("jit_graph", r->fn, a->n_inputs, n_out);
    r->fn = NULL;
    if (!g) {
        return NULL;
    }
    g->fast_math = a->fast_math;
    for (int i = 0; i < n_weights; i++) {
        g->weights[i] = weft_keep(weft_detach(r->captured[a->n_inputs + i]));
    }
    if (name_ports(g, a, r)) {
        weft_graph_free(g);
        return NULL;
    }
    return g;
}

weft_graph *(weft_jit_graph)(const weft_graph_args *a)
{
    int n_out = a && a->n_outputs ? a->n_outputs : 1;
    if (!a || !a->fn || a->n_inputs < 0 || a->n_inputs > 64 || n_out < 1 || n_out > 64 ||
        a->n_dims < 0 || a->n_dims > WF_GRAPH_DIMS || (a->n_inputs && !a->inputs) ||
        (a->n_dims && !a->dims)) {
        wf_api_error("jit_graph", WEFT_EINVALID,
                     "a function, up to 64 inputs, 1 to 64 outputs and up to %d dims are wanted",
                     WF_GRAPH_DIMS);
        return NULL;
    }
    if (a->name && !good_word(a->name, false)) {
        wf_api_error("jit_graph", WEFT_EINVALID,
                     "'%s' is no name for a graph: 1 to 63 letters, digits and '_'", a->name);
        return NULL;
    }
    weft_tensor x[64];
    recording r = {0};
    weft_graph *g = NULL;
    weft_scope scope = weft_scope_begin();
    for (int i = 0; i < a->n_inputs; i++) {
        x[i] = weft_clone(weft_detach(a->inputs[i]));
    }
    if (record(a, x, n_out, &r) == 0 && (!a->n_dims || generalise(a, n_out, &r) == 0)) {
        g = finish(a, n_out, &r);
    }
    drop_recording(&r);
    weft_scope_end(scope);
    return g;
}
