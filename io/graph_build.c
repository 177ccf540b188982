/*
 * io/graph_build.c -- recording a graph, and rebuilding a function with other extents.
 *
 * A function with symbols is recorded twice, the second time with other sizes. Where the two agree there is a
 * constant, where they differ by what a symbol differs there is the symbol, anything else is refused. Rebuilding
 * appends every instruction through the checking builder, so what comes out is verified.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "io/graph.h"
#include "jit/trace.h"

/* How an extent of f (and of its twin) is written in the rebuilt function. */
typedef struct mapper {
    const wf_fn *f, *other;
    const int64_t *sizes; /* binding */
    const int64_t *a, *b; /* unifying */
    int n;
    uint32_t at; /* instruction, for messages */
} mapper;

static int map_extent(const mapper *m, int64_t v, int64_t w, int64_t *out, wf_why *why)
{
    *out = v;
    if (!m->other) {
        if (WF_IS_SYM(v)) {
            *out = m->sizes[v - WF_SYM(0)];
        }
        return 0;
    }
    if (v == w) {
        return 0;
    }
    for (int k = 0; k < m->n; k++) {
        if (v == m->a[k] && w == m->b[k]) {
            *out = WF_SYM(k);
            return 0;
        }
    }
    int code = wf_fail(
        why, WEFT_EUNSUPPORTED,
        "%s (%%%u): a size is %lld for the example and %lld for the second recording, which is "
        "no symbol",
        wf_rows[m->f->ins[m->at].op].name, m->at + 1, (long long)v, (long long)w);
    wf_hint(why, "only the symbols themselves can be extents: products and sums of them cannot");
    return code;
}

static int map_type(const mapper *m, const wf_type *t, const wf_type *u, wf_type *out, wf_why *why)
{
    *out = *t;
    if (t->dtype != u->dtype || t->rank != u->rank) {
        return wf_fail(why, WEFT_EUNSUPPORTED, "%%%u has another type in the second recording",
                       m->at + 1);
    }
    for (int i = 0; i < t->rank; i++) {
        int rc = map_extent(m, t->dims[i], u->dims[i], &out->dims[i], why);
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

static int map_row(const mapper *m, wf_fn *out, const wf_ins *i, const wf_ins *j, wf_why *why)
{
    const wf_attr *p = wf_ins_attr(m->f, i), *q = j == i ? p : wf_ins_attr(m->other, j);
    int64_t dyn[256];
    wf_attr attr = *p;
    if (p->n_ints != q->n_ints || p->n_dyn != q->n_dyn || p->n_flt != q->n_flt ||
        p->dtype != q->dtype || p->flags != q->flags) {
        return differs(m, why);
    }
    for (int k = 0; k < p->n_ints; k++) {
        if (p->ints[k] != q->ints[k]) {
            return differs(m, why);
        }
    }
    for (int k = 0; k < p->n_flt; k++) {
        if (memcmp(&p->flt[k], &q->flt[k], sizeof(double)) != 0) {
            return differs(m, why);
        }
    }
    for (int k = 0; k < p->n_dyn; k++) {
        int rc = map_extent(m, p->dyn[k], q->dyn[k], &dyn[k], why);
        if (rc) {
            return rc;
        }
    }
    attr.dyn = dyn;
    wf_val dst[WF_MAX_DST];
    return wf_fn_append(out, (wf_op)i->op, &attr, i->nsrc, wf_ins_src(m->f, i), dst,
                        i->loc ? m->f->locs[i->loc] : NULL, why);
}

static int map_ins(mapper *m, wf_fn *out, wf_why *why)
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[m->at], *j = m->other ? &m->other->ins[m->at] : i;
    const wf_fn *g = m->other ? m->other : f;
    wf_type t;
    int rc = 0;
    if (i->op != j->op || i->nsrc != j->nsrc || i->flags != j->flags) {
        return differs(m, why);
    }
    const wf_val *s = wf_ins_src(f, i), *r = wf_ins_src(g, j);
    for (int k = 0; k < i->nsrc; k++) {
        if (s[k] != r[k]) {
            return differs(m, why);
        }
    }
    if (i->op == WF_OP_RESULT) {
        return 0; /* came with its op */
    }
    if (i->op == WF_OP_INPUT) {
        rc = map_type(m, &f->types[i->type], &g->types[j->type], &t, why);
        return rc ? rc : wf_fn_input(out, &t) ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    if (wf_op_is_weak(i->op)) {
        if (f->slots[i->attr] != g->slots[j->attr] ||
            f->slot_kind[i->attr] != g->slot_kind[j->attr]) {
            return differs(m, why);
        }
        wf_val v = i->op == WF_OP_SCALAR
                       ? wf_fn_scalar(out, f->slot_kind[i->attr], f->slots[i->attr])
                       : wf_fn_const(out, f->slot_kind[i->attr], f->slots[i->attr]);
        return v ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    rc = map_row(m, out, i, j, why);
    if (!rc) {
        out->ins[m->at].flags = i->flags;
    }
    return rc;
}

static wf_fn *rebuild(mapper *m, wf_fn *out, wf_why *why)
{
    const wf_fn *f = m->f;
    int rc = 0;
    if (m->other && (f->n != m->other->n || f->noutputs != m->other->noutputs)) {
        wf_fail(why, WEFT_EUNSUPPORTED, "the function does something else when sizes change");
        wf_fn_free(out);
        return NULL;
    }
    for (m->at = 0; m->at < f->n && !rc; m->at++) {
        rc = map_ins(m, out, why);
    }
    for (uint32_t k = 0; k < f->noutputs && !rc; k++) {
        if (m->other && f->outputs[k] != m->other->outputs[k]) {
            m->at = f->outputs[k] - 1;
            rc = differs(m, why);
        } else if (wf_fn_output(out, f->outputs[k])) {
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

wf_fn *wf_graph_unify(const wf_fn *f, const wf_fn *other, const wf_graph_symbols *s, wf_why *why)
{
    mapper m = {.f = f, .other = other, .a = s->sizes, .b = s->others, .n = s->n};
    wf_fn *out = wf_fn_new(f->name);
    for (int k = 0; out && k < s->n; k++) {
        if (wf_fn_symbol(out, s->name[k], strlen(s->name[k])) != k) {
            wf_fail(why, WEFT_EINVALID, "'%s' is no name for a symbol, or there are more than %d",
                    s->name[k], WF_MAX_SYMBOLS);
            wf_fn_free(out);
            return NULL;
        }
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

/* "name" or "name<=size". 0, or an error recorded. */
static int parse_symbol(const weft_graph_args *a, int d, char *name, int64_t *most)
{
    const char *text = a->dims[d].name, *bound = strstr(text, "<=");
    char *end = NULL;
    const size_t n = bound ? (size_t)(bound - text) : strlen(text);
    *most = bound ? strtoll(bound + 2, &end, 10) : INT64_MAX;
    snprintf(name, WF_SYMBOL_NAME, "%.*s", n < WF_SYMBOL_NAME ? (int)n : 0, text);
    if (good_word(name, true) && (!bound || (end != bound + 2 && *end == '\0' && *most > 0))) {
        return 0;
    }
    wf_api_error("jit_graph", WEFT_EINVALID,
                 "dims[%d]: '%s' is no name for an extent: 1 to 31 letters, digits and '_', "
                 "not a digit first; \"<=\" and the largest size may follow",
                 d, text);
    return WEFT_EINVALID;
}

/* Puts dims[d] among the symbols. 0, or an error recorded. */
static int add_symbol(const weft_graph_args *a, int d, wf_graph_symbols *s)
{
    const weft_graph_dim *x = &a->dims[d];
    char name[WF_SYMBOL_NAME];
    int64_t most;
    int k = 0;
    if (!x->name || x->input < 0 || x->input >= a->n_inputs || x->axis < 0 ||
        x->axis >= weft_rank(a->inputs[x->input])) {
        wf_api_error("jit_graph", WEFT_EINVALID, "dims[%d] names no axis of an input", d);
        return WEFT_EINVALID;
    }
    if (parse_symbol(a, d, name, &most)) {
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
    if (k < s->n && s->sizes[k] != size) {
        wf_api_error("jit_graph", WEFT_ESHAPE, "'%s' is %lld on one axis and %lld on another", name,
                     (long long)s->sizes[k], (long long)size);
        return WEFT_ESHAPE;
    }
    memcpy(s->name[k], name, sizeof name);
    s->sizes[k] = size;
    s->most[k] = k == s->n || most < s->most[k] ? most : s->most[k];
    s->of[d] = k;
    s->n += k == s->n;
    if (size > s->most[k]) {
        wf_api_error("jit_graph", WEFT_ESHAPE, "'%s' is %lld in the example, but at most %lld",
                     name, (long long)size, (long long)s->most[k]);
        return WEFT_ESHAPE;
    }
    return 0;
}

/* Is symbol k, if it has size x in the second recording, a multiple of an earlier one in both, or as much larger? */
static bool is_related(const wf_graph_symbols *s, int k, int64_t x)
{
    for (int j = 0; j < k; j++) {
        if (x * s->sizes[j] == s->others[j] * s->sizes[k] ||
            x - s->others[j] == s->sizes[k] - s->sizes[j]) {
            return true;
        }
    }
    return false;
}

/* The size that symbol k has in the second recording: what would be an extent computed from another symbol is taken only
 * where the range leaves no choice. 0: it leaves none at all. */
static int64_t other_size(const wf_graph_symbols *s, int k, int64_t most)
{
    int64_t taken[WF_MAX_SYMBOLS + 1] = {s->sizes[k]};
    memcpy(taken + 1, s->others, (size_t)k * sizeof *taken);
    const int64_t first = wf_size_below(most, taken, k + 1);
    int64_t x = first;
    while (x > 0 && is_related(s, k, x)) {
        x = wf_size_below(x - 1, taken, k + 1);
    }
    return x > 0 ? x : first;
}

/* Distinct symbols with the example's sizes and others, within their ranges. 0, or an error recorded. */
static int symbols_of(const weft_graph_args *a, wf_graph_symbols *s)
{
    static const int64_t primes[] = {7,  13, 19, 29,  37,  43,  53,  61,
                                     71, 79, 89, 101, 107, 113, 131, 139};
    for (int d = 0; d < a->n_dims; d++) {
        int rc = add_symbol(a, d, s);
        if (rc) {
            return rc;
        }
    }
    for (int k = 0; k < s->n; k++) {
        s->others[k] = other_size(s, k, primes[k] < s->most[k] ? primes[k] : s->most[k]);
        if (s->others[k] == 0) {
            wf_api_error("jit_graph", WEFT_EUNSUPPORTED,
                         "'%s' <= %lld leaves no other size to record with", s->name[k],
                         (long long)s->most[k]);
            return WEFT_EUNSUPPORTED;
        }
    }
    return 0;
}

/* Records again with the other sizes and makes r->fn the function with symbols. */
static int generalise(const weft_graph_args *a, int n_out, recording *r)
{
    wf_graph_symbols s = {.n = 0};
    weft_tensor x[64];
    int rc = symbols_of(a, &s);
    for (int i = 0; i < a->n_inputs && !rc; i++) {
        weft_shape shape = weft_shape_of(a->inputs[i]);
        for (int d = 0; d < a->n_dims; d++) {
            if (a->dims[d].input == i) {
                shape.v[a->dims[d].axis] = s.others[s.of[d]];
            }
        }
        wf_ctx *c = wf_ctx_get();
        int before = wf_device_enter(c, wf_device_of_handle(c, a->inputs[i]));
        x[i] = weft_zeros(shape, weft_dtype_of(a->inputs[i]));
        wf_device_enter(c, before);
    }
    recording second = {0};
    rc = rc ? rc : record(a, x, n_out, &second);
    if (rc) {
        return rc;
    }
    wf_why why = {0};
    wf_fn *f = wf_graph_unify(r->fn, second.fn, &s, &why);
    drop_recording(&second);
    if (!f) {
        return wf_raise_status(wf_ctx_get(), "jit_graph", 0, NULL, &why);
    }
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
