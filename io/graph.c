/*
 * io/graph.c -- a graph's life and its runs: symbols are bound to the inputs' extents, and the plan of that
 * binding is built once and kept with the few used last.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/borrow.h"
#include "eager/device.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "io/graph.h"

/* Is the extent computed from a symbol, and so without a name of its own? */
static bool is_computed(int64_t extent)
{
    return WF_IS_SYM(extent) && extent != WF_SYM(wf_sym_of(extent));
}

/* Where the text of extent `axis` of output i is. */
static char *extent_text(const weft_graph *g, int i, int axis)
{
    const wf_type *t = wf_fn_type(g->fn, g->fn->outputs[i]);
    size_t n = g->extents_of[i];
    for (int a = 0; a < axis; a++) {
        n += is_computed(t->dims[a]);
    }
    return g->extents + n * WF_EXTENT_TEXT;
}

static bool name_extents(weft_graph *g)
{
    const wf_fn *f = g->fn;
    size_t n = 0;
    g->extents_of = wf_malloc((size_t)g->n_outputs * sizeof *g->extents_of);
    for (int i = 0; i < g->n_outputs && g->extents_of; i++) {
        const wf_type *t = wf_fn_type(f, f->outputs[i]);
        g->extents_of[i] = n;
        for (int a = 0; a < t->rank; a++) {
            n += is_computed(t->dims[a]);
        }
    }
    g->extents = g->extents_of ? wf_malloc(n * WF_EXTENT_TEXT + 1) : NULL;
    for (int i = 0; i < g->n_outputs && g->extents; i++) {
        const wf_type *t = wf_fn_type(f, f->outputs[i]);
        for (int a = 0; a < t->rank; a++) {
            if (is_computed(t->dims[a])) {
                wf_extent_text(f, t->dims[a], extent_text(g, i, a));
            }
        }
    }
    return g->extents != NULL;
}

weft_graph *wf_graph_new(const char *op, wf_fn *fn, int n_inputs, int n_outputs)
{
    weft_graph *g = wf_calloc(1, sizeof *g);
    if (g) {
        g->fn = fn;
        g->n_inputs = n_inputs;
        g->n_outputs = n_outputs;
        g->n_weights = (int)fn->ninputs - n_inputs;
        g->names = wf_calloc((size_t)(fn->ninputs + (uint32_t)n_outputs) + 1, sizeof *g->names);
        g->weights = wf_calloc((size_t)g->n_weights + 1, sizeof *g->weights);
        snprintf(g->producer, sizeof g->producer, "weft %s", weft_version());
        pthread_mutex_init(&g->lock, NULL);
    }
    if (!g || !g->names || !g->weights || !name_extents(g)) {
        wf_api_error(op, WEFT_ENOMEM, "out of memory");
        if (g) {
            weft_graph_free(g);
        } else {
            wf_fn_free(fn);
        }
        return NULL;
    }
    return g;
}

void wf_graph_note_names(weft_graph *g)
{
    for (int i = 0; i < g->n_inputs + g->n_weights; i++) {
        const wf_val v = g->fn->inputs[i];
        const char *site = g->fn->locs[wf_fn_at(g->fn, v)->loc];
        wf_fn_name_input(g->fn, v, g->names[i], strlen(g->names[i]), site);
    }
}

static void drop_plan(const weft_graph *g, wf_graph_plan *p)
{
    if (!p) {
        return;
    }
    wf_plan_release(p->plan);
    if (p->fn != g->fn) {
        wf_fn_free(p->fn);
    }
    wf_mfree(p);
}

void weft_graph_free(weft_graph *g)
{
    if (!g) {
        return;
    }
    for (int i = 0; i < WF_GRAPH_PLANS; i++) {
        drop_plan(g, g->plans[i]);
    }
    for (int i = 0; g->weights && i < g->n_weights; i++) {
        weft_free(g->weights[i]);
    }
    for (int i = 0; g->names && i < g->n_inputs + g->n_weights + g->n_outputs; i++) {
        wf_mfree(g->names[i]);
    }
    wf_mfree(g->weights);
    wf_mfree(g->extents);
    wf_mfree(g->extents_of);
    wf_mfree(g->names);
    wf_fn_free(g->fn);
    pthread_mutex_destroy(&g->lock);
    wf_mfree(g);
}

/* -- queries -------------------------------------------------------------------------------------------- */

int weft_graph_inputs(const weft_graph *g)
{
    return g ? g->n_inputs : 0;
}
int weft_graph_outputs(const weft_graph *g)
{
    return g ? g->n_outputs : 0;
}
int weft_graph_weights(const weft_graph *g)
{
    return g ? g->n_weights : 0;
}
const char *weft_graph_producer(const weft_graph *g)
{
    return g ? g->producer : "";
}

bool weft_graph_fast_math(const weft_graph *g)
{
    return g && g->fast_math;
}

static weft_status port(const weft_graph *g, int i, int n, int name, bool output,
                        weft_graph_port *out)
{
    if (!g || !out || i < 0 || i >= n) {
        wf_api_error("graph", WEFT_EINVALID, "there is no port %d among %d", i, n);
        return WEFT_EINVALID;
    }
    wf_val v = output ? g->fn->outputs[i] : g->fn->inputs[name];
    const wf_type *t = wf_fn_type(g->fn, v);
    *out =
        (weft_graph_port){.name = g->names[name], .dtype = (weft_dtype)t->dtype, .rank = t->rank};
    for (int k = 0; k < t->rank; k++) {
        const int64_t extent = t->dims[k];
        const bool symbol = WF_IS_SYM(extent);
        out->dims[k] = symbol ? -1 : extent;
        out->symbols[k] = !symbol                ? NULL
                          : !is_computed(extent) ? g->fn->symbols[wf_sym_of(extent)]
                          : output               ? extent_text(g, i, k)
                                                 : NULL; /* none is let in */
    }
    return WEFT_OK;
}

weft_status weft_graph_input(const weft_graph *g, int i, weft_graph_port *out)
{
    return port(g, i, weft_graph_inputs(g), i, false, out);
}
weft_status weft_graph_weight(const weft_graph *g, int i, weft_graph_port *out)
{
    return port(g, i, weft_graph_weights(g), weft_graph_inputs(g) + i, false, out);
}
weft_status weft_graph_output(const weft_graph *g, int i, weft_graph_port *out)
{
    return port(g, i, weft_graph_outputs(g), weft_graph_inputs(g) + weft_graph_weights(g) + i, true,
                out);
}

/* -- runs ----------------------------------------------------------------------------------------------- */

bool wf_graph_type_of(wf_ctx *c, weft_tensor x, wf_type *t)
{
    wf_hold how;
    wf_slot *slot = wf_take_hold(c, x, &how);
    if (slot) {
        wf_slot_type(slot, t);
        wf_end_hold(c, slot, how);
        return true;
    }
    weft_shape s = weft_shape_of(x); /* of a scalar, too */
    t->rank = s.n < 0 ? 0 : (uint8_t)s.n;
    t->dtype = (uint8_t)weft_dtype_of(x);
    memcpy(t->dims, s.v, (size_t)t->rank * sizeof t->dims[0]);
    return s.n >= 0;
}

/* Checks input i and binds the symbols of its axes. */
static int bind_input(const weft_graph *g, int i, weft_tensor x, int64_t *sizes, wf_why *why)
{
    const wf_type *t = wf_fn_type(g->fn, g->fn->inputs[i]);
    wf_type s;
    if (!wf_graph_type_of(wf_ctx_get(), x, &s)) {
        return wf_fail(why, WEFT_EHANDLE, "input '%s' is not alive", g->names[i]);
    }
    if (s.dtype != t->dtype) {
        int code = wf_fail(why, WEFT_EDTYPE, "input '%s' is %s, the graph takes %s", g->names[i],
                           wf_dtype_name(s.dtype), wf_dtype_name(t->dtype));
        wf_hint(why, "weft_cast it first");
        return code;
    }
    if (s.rank != t->rank) {
        return wf_fail(why, WEFT_ESHAPE, "input '%s' has %d axes, the graph takes %d", g->names[i],
                       (int)s.rank, t->rank);
    }
    for (int k = 0; k < t->rank; k++) {
        int64_t want = t->dims[k];
        const char *symbol = NULL;
        if (WF_IS_SYM(want)) {
            symbol = g->fn->symbols[want - WF_SYM(0)];
            int64_t *size = &sizes[want - WF_SYM(0)];
            *size = *size < 0 ? s.dims[k] : *size;
            want = *size;
        }
        if (s.dims[k] != want && symbol) {
            return wf_fail(why, WEFT_ESHAPE,
                           "input '%s': axis %d is %lld, but '%s' is %lld by an earlier axis",
                           g->names[i], k, (long long)s.dims[k], symbol, (long long)want);
        }
        if (s.dims[k] != want) {
            return wf_fail(why, WEFT_ESHAPE, "input '%s': axis %d is %lld, the graph takes %lld",
                           g->names[i], k, (long long)s.dims[k], (long long)want);
        }
    }
    return 0;
}

/* A size that its symbol does not stand for: what the graph takes, and what would fail. */
static int out_of_range(const weft_graph *g, uint32_t symbol, const int64_t *sizes, wf_why *why)
{
    const wf_range r = g->fn->range[symbol];
    const int64_t size = sizes[symbol];
    char rule[WF_RANGE_TEXT];
    wf_why of = {0};
    int input = 0, axis = 0;
    for (int i = 0; i < g->n_inputs; i++) {
        const wf_type *t = wf_fn_type(g->fn, g->fn->inputs[i]);
        for (int k = 0; k < t->rank; k++) {
            if (t->dims[k] == WF_SYM(symbol)) {
                input = i;
                axis = k;
            }
        }
    }
    wf_fn_free(wf_graph_bind(g->fn, sizes, &of));
    wf_fail(why, WEFT_ESHAPE, "input '%s': axis %d is %lld, but '%s' is %s%s%s", g->names[input],
            axis, (long long)size, g->fn->symbols[symbol], wf_range_rule(r, size, rule),
            of.code == WEFT_ESHAPE || of.code == WEFT_EINVALID ? ": " : "",
            of.code == WEFT_ESHAPE || of.code == WEFT_EINVALID ? of.rule : "");
    return why->code;
}

static int check_ranges(const weft_graph *g, const int64_t *sizes, wf_why *why)
{
    for (uint32_t k = 0; k < g->fn->nsymbols; k++) {
        if (!wf_range_has(g->fn->range[k], sizes[k])) {
            return out_of_range(g, k, sizes, why);
        }
    }
    return 0;
}

static int build(weft_graph *g, const int64_t *sizes, unsigned flags, wf_graph_plan **out,
                 wf_why *why)
{
    wf_graph_plan *p = wf_calloc(1, sizeof *p);
    if (!p) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    memcpy(p->sizes, sizes, sizeof p->sizes);
    p->flags = flags;
    p->fn = g->fn->nsymbols ? wf_graph_bind(g->fn, sizes, why) : g->fn;
    p->plan = p->fn ? wf_plan_build(p->fn, &(wf_plan_opts){.flags = flags}, why) : NULL;
    if (!p->plan) {
        drop_plan(g, p);
        return why->code;
    }
    *out = p;
    return 0;
}

/* The plan of a binding, with a hold on it. It is built under the lock: others wait for the same one. */
static int hold_plan(weft_graph *g, const int64_t *sizes, unsigned flags, wf_graph_plan **out,
                     wf_why *why)
{
    int victim = -1, rc = 0;
    *out = NULL;
    pthread_mutex_lock(&g->lock);
    wf_graph_plan *last = g->plans[g->latest];
    if (last && last->flags == flags && memcmp(last->sizes, sizes, sizeof last->sizes) == 0) {
        *out = last;
    }
    for (int i = 0; i < WF_GRAPH_PLANS && !*out; i++) {
        wf_graph_plan *p = g->plans[i];
        if (p && p->flags == flags && memcmp(p->sizes, sizes, sizeof p->sizes) == 0) {
            *out = p;
            g->latest = i;
        }
        if (!p || p->holds == 0) {
            bool better =
                victim < 0 || (g->plans[victim] && (!p || p->used < g->plans[victim]->used));
            victim = better ? i : victim;
        }
    }
    if (!*out) {
        rc = build(g, sizes, flags, out, why);
        if (!rc && victim >= 0) {
            drop_plan(g, g->plans[victim]);
            g->plans[victim] = *out;
            g->latest = victim;
        }
    }
    if (*out) {
        (*out)->used = ++g->clock;
        (*out)->holds++;
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

static void drop_hold(weft_graph *g, wf_graph_plan *p)
{
    bool listed = false;
    pthread_mutex_lock(&g->lock);
    p->holds--;
    for (int i = 0; i < WF_GRAPH_PLANS; i++) {
        listed |= g->plans[i] == p;
    }
    pthread_mutex_unlock(&g->lock);
    if (!listed) {
        drop_plan(g, p);
    }
}

/* The memory of an input or a weight, row-major, on the device of the run. */
static int open_view(const weft_graph *g, int i, weft_tensor t, const wf_type *type, int device,
                     wf_view *v, wf_why *why)
{
    if (wf_device_view("graph_run", t, 0, v)) {
        return wf_fail(why, (int)weft_last_status(), "%s", weft_last_error());
    }
    if (v->device != device) {
        wf_fail(why, WEFT_EINVALID, "'%s' is on %s, the run on %s", g->names[i],
                wf_device_code_name(v->device), wf_device_code_name(device));
        wf_hint(why, "move inputs with weft_to, weights with weft_graph_to");
        return why->code;
    }
    void *data = v->data;
    wf_view_of_type(v, type, data);
    v->device = (uint8_t)device;
    return 0;
}

int wf_graph_device(const weft_graph *g, const weft_tensor *in)
{
    wf_ctx *c = wf_ctx_get();
    return g->n_weights  ? wf_device_of_handle(c, g->weights[0])
           : g->n_inputs ? wf_device_of_handle(c, in[0])
                         : WF_DEVICE_HOST;
}

enum { FEW = 12 }; /* a run of few tensors needs no memory of the heap */

/* An input that is read where it lies. */
typedef struct held {
    wf_slot *slot; /* NULL: it is not */
    wf_hold how;
} held;

/* Input t where it lies, row-major in the memory of the device of the run, held until the run has ended. False: it is not
 * such, or wants more than a look, as do bytes that are still arriving and those that a failed call left. */
static bool hold_input(wf_ctx *c, weft_tensor t, const wf_type *type, int device, wf_view *v,
                       held *h)
{
    wf_why why;
    h->slot = c->recorder ? NULL : wf_take_hold(c, t, &h->how);
    if (!h->slot) {
        return false;
    }
    wf_storage *st = h->slot->st;
    if (st->device != device || atomic_load_explicit(&st->is_virtual, memory_order_acquire) ||
        atomic_load_explicit(&st->broken, memory_order_acquire) ||
        !wf_slot_is_contiguous(h->slot) || wf_storage_use(st, false, &why)) {
        wf_end_hold(c, h->slot, h->how);
        h->slot = NULL;
        return false;
    }
    wf_view_of_type(v, type, wf_slot_data(h->slot));
    v->device = (uint8_t)device;
    return true;
}

weft_tensor wf_graph_memory(wf_ctx *c, const wf_type *type, int device, void **data, wf_why *why)
{
    const int64_t n = wf_type_numel(type);
    wf_storage *st =
        n < 0 ? NULL : wf_storage_new_on(device, (size_t)n * wf_dtype_size(type->dtype), why);
    if (!st) {
        if (!why->code) {
            wf_fail(why, WEFT_ENOMEM, "out of memory for a tensor");
        }
        return WEFT_NONE;
    }
    *data = st->data;
    weft_tensor t = wf_wrap_view(c, st, st->data, type->dtype, type->rank, type->dims, NULL);
    wf_storage_release(st);
    if (!t.slot) {
        wf_fail(why, WEFT_ENOMEM, "out of memory for a handle");
    }
    return t;
}

/* An output, whose memory the plan fills. */
static int make_output(wf_ctx *c, const wf_type *type, int device, weft_tensor *out, wf_view *v,
                       wf_why *why)
{
    void *data = NULL;
    *out = wf_graph_memory(c, type, device, &data, why);
    wf_view_of_type(v, type, data);
    v->device = (uint8_t)device;
    return out->slot ? 0 : why->code;
}

/* Views of inputs, weights and outputs. */
static int open_views(const weft_graph *g, const wf_graph_plan *p, const weft_tensor *in,
                      weft_tensor *out, int device, wf_view *views, held *h, wf_why *why)
{
    wf_ctx *c = wf_ctx_get();
    const int total = g->n_inputs + g->n_weights;
    int rc = 0;
    for (int i = 0; i < total && !rc; i++) {
        const wf_type *type = wf_fn_type(p->fn, p->fn->inputs[i]);
        weft_tensor t = i < g->n_inputs ? in[i] : g->weights[i - g->n_inputs];
        if (!hold_input(c, t, type, device, &views[i], &h[i])) {
            t = i < g->n_inputs ? weft_contiguous(weft_detach(t)) : t;
            rc = open_view(g, i, t, type, device, &views[i], why);
        }
    }
    for (int i = 0; i < g->n_outputs && !rc; i++) {
        const wf_type *t = wf_fn_type(p->fn, p->fn->outputs[i]);
        rc = make_output(c, t, device, &out[i], &views[total + i], why);
    }
    return rc;
}

static int run(weft_graph *g, wf_graph_plan *p, const weft_tensor *in, weft_tensor *out,
               wf_graph_times *times, wf_why *why)
{
    const int total = g->n_inputs + g->n_weights, all = total + g->n_outputs;
    wf_view few[FEW];
    held few_held[FEW];
    wf_view *views = all <= FEW ? few : wf_malloc((size_t)all * sizeof *views);
    held *h = total <= FEW ? few_held : wf_malloc((size_t)total * sizeof *h);
    if (!views || !h) {
        wf_mfree(views == few ? NULL : views);
        wf_mfree(h == few_held ? NULL : h);
        return wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    for (int i = 0; i < total; i++) {
        h[i].slot = NULL;
    }
    int device = wf_graph_device(g, in), before = wf_device_enter(wf_ctx_get(), device);
    int rc = open_views(g, p, in, out, device, views, h, why);
    wf_device_enter(wf_ctx_get(), before);
    wf_plan_args a = {.fn = p->fn,
                      .in = views,
                      .out = views + total,
                      .device = device,
                      .step_ns = times ? times->steps : NULL};
    if (!rc) {
        unsigned mode = wf_fpenv_enter();
        int64_t start = times ? wf_prof_clock() : 0;
        rc = wf_plan_run(p->plan, &a, why);
        if (times) {
            times->plan = wf_prof_clock() - start;
        }
        wf_fpenv_leave(mode);
    }
    for (int i = total; i-- > 0;) {
        if (h[i].slot) {
            wf_end_hold(wf_ctx_get(), h[i].slot, h[i].how);
        }
    }
    wf_mfree(views == few ? NULL : views);
    wf_mfree(h == few_held ? NULL : h);
    return rc;
}

/* Checks the call and finds the plan. 0 or a status with an error recorded. */
static int begin(weft_graph *g, unsigned flags, const weft_tensor *in, int n_in, wf_graph_plan **p)
{
    int64_t sizes[WF_MAX_SYMBOLS];
    wf_why why = {0};
    if (!g || (n_in == g->n_inputs && n_in && !in)) {
        wf_api_null("graph_run", g ? "the array of inputs" : "the graph");
        return WEFT_EINVALID;
    }
    if (n_in != g->n_inputs) {
        wf_api_error("graph_run", WEFT_EINVALID, "%d inputs are given, the graph takes %d", n_in,
                     weft_graph_inputs(g));
        return WEFT_EINVALID;
    }
    for (int k = 0; k < WF_MAX_SYMBOLS; k++) {
        sizes[k] = -1;
    }
    int rc = 0;
    for (int i = 0; i < n_in && !rc; i++) {
        if (wf_is_error(in[i])) {
            return wf_error_again(wf_ctx_get(), in[i]);
        }
        rc = bind_input(g, i, in[i], sizes, &why);
    }
    rc = rc ? rc : check_ranges(g, sizes, &why);
    flags |= wf_graph_device(g, in) != WF_DEVICE_HOST ? WF_PLAN_DEVICE : 0;
    flags |= g->fast_math ? WF_PLAN_FAST : 0;
    rc = rc ? rc : hold_plan(g, sizes, flags, p, &why);
    return rc ? wf_raise_status(wf_ctx_get(), "graph_run", 0, NULL, &why) : 0;
}

weft_status weft_graph_to(weft_graph *g, weft_device device)
{
    weft_status s = g ? WEFT_OK : weft_error_status(wf_api_null("graph_to", "the graph"));
    int n = g ? g->n_weights : 0;
    weft_tensor *moved = wf_calloc((size_t)n + 1, sizeof *moved);
    if (!moved) {
        s = weft_error_status(wf_api_error("graph_to", WEFT_ENOMEM, "no memory"));
    }
    for (int i = 0; i < n && s == WEFT_OK; i++) {
        weft_scope scope = weft_scope_begin();
        weft_tensor t = weft_to(g->weights[i], device);
        s = weft_ok(t) ? WEFT_OK : weft_error_status(t);
        moved[i] = s == WEFT_OK ? weft_keep(t) : WEFT_NONE;
        weft_scope_end(scope);
    }
    for (int i = 0; i < n && moved; i++) { /* all, or none */
        weft_tensor gone = s == WEFT_OK ? g->weights[i] : moved[i];
        g->weights[i] = s == WEFT_OK ? moved[i] : g->weights[i];
        weft_free(gone);
    }
    wf_mfree(moved);
    return s;
}

weft_status weft_graph_run(weft_graph *g, const weft_tensor *in, int n_in, weft_tensor *out,
                           int n_out)
{
    if (!out) {
        wf_api_null("graph_run", "the place for the outputs");
        return WEFT_EINVALID;
    }
    return wf_graph_run(g, 0, in, n_in, out, n_out, NULL);
}

weft_status wf_graph_run(weft_graph *g, unsigned flags, const weft_tensor *in, int n_in,
                         weft_tensor *out, int n_out, wf_graph_times *times)
{
    wf_graph_plan *p = NULL;
    weft_tensor few[FEW], *made = few; /* in and out may be one array */
    int rc = WEFT_EINVALID;
    if (g && n_out != g->n_outputs) {
        wf_api_error("graph_run", WEFT_EINVALID, "%d outputs are asked for, the graph has %d",
                     n_out, weft_graph_outputs(g));
    } else if (n_out > FEW && !(made = wf_malloc((size_t)n_out * sizeof *made))) {
        wf_api_error("graph_run", WEFT_ENOMEM, "out of memory for %d outputs", n_out);
        rc = WEFT_ENOMEM;
    } else {
        rc = begin(g, flags, in, n_in, &p);
    }
    if (!rc) {
        wf_why why = {0};
        weft_scope scope = weft_scope_begin();
        rc = run(g, p, in, made, times, &why);
        for (int i = 0; i < n_out && !rc; i++) {
            made[i] = weft_scope_give(scope, made[i]);
        }
        weft_scope_end(scope);
        drop_hold(g, p);
        rc = rc ? wf_raise_status(wf_ctx_get(), "graph_run", 0, NULL, &why) : 0;
    }
    for (int i = 0; i < n_out; i++) {
        out[i] = rc ? wf_api_last_error() : made[i];
    }
    wf_mfree(made == few ? NULL : made);
    return (weft_status)rc;
}

wf_plan *wf_graph_plan_of(weft_graph *g, unsigned flags, const weft_tensor *in, int n_in)
{
    wf_graph_plan *p = NULL;
    if (begin(g, flags, in, n_in, &p)) {
        return NULL;
    }
    wf_plan *plan = p->plan;
    wf_plan_retain(plan);
    drop_hold(g, p);
    return plan;
}

/* "symbol n = 8, of 4<=n<=64, n%4==0" */
static void put_symbols(const wf_fn *f, const int64_t *sizes, FILE *out)
{
    for (uint32_t k = 0; k < f->nsymbols; k++) {
        char text[WF_RANGE_TEXT];
        wf_range_text(f->symbols[k], f->range[k], text);
        const bool any = strcmp(text, f->symbols[k]) == 0;
        fprintf(out, "symbol %s = %lld%s%s\n", f->symbols[k], (long long)sizes[k],
                any ? "" : ", of ", any ? "" : text);
    }
}

weft_status weft_graph_explain(weft_graph *g, const weft_tensor *in, int n_in, FILE *out)
{
    wf_graph_plan *p = NULL;
    if (!g || !out) {
        wf_api_null("graph_explain", g ? "the file" : "the graph");
        return WEFT_EINVALID;
    }
    int rc = begin(g, 0, in, n_in, &p);
    if (rc) {
        return (weft_status)rc;
    }
    put_symbols(g->fn, p->sizes, out);
    rc = wf_plan_explain(p->plan, out);
    drop_hold(g, p);
    return (weft_status)rc;
}
