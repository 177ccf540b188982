/*
 * jit/capture.c -- capturing a plan's run on a device, and replaying it; see capture.h.
 *
 * A run is three ops of the stream: arguments in, the launch, results and written arguments out. Each orders itself
 * behind what other streams do with the memory it uses, so a run on another stream waits for the one before. Of an argument that is
 * part of a storage only what the plan can touch is copied. The lock
 * is held while the three are queued: another thread's copies must not come between.
 */
#include "jit/capture.h"

#include <pthread.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/runtime.h"
#include "eager/device.h"
#include "eager/pool.h"

enum { ALIGNED = 512 }; /* bytes */

struct wf_capture {
    _Atomic int refs;
    pthread_mutex_t lock;
    const wf_device_graphs *api;
    void *graph;
    int device;
    uint32_t n_source, n_made;
    wf_storage **in;      /* per source: its own memory of an argument's reach; NULL: captured */
    int64_t *reach;       /* per source: the first byte that the plan touches, and how many */
    wf_storage **out;     /* per result: what the graph writes */
    const void **address; /* per source: of a captured tensor's memory */
    bool *written;        /* per source */
    bool *lent;           /* per result */
    wf_view *view;        /* of sources, then of results and written sources: what the graph uses */
    wf_plan *plan;
    bool draws;
    uint8_t *changes; /* per slot: it differs from call to call; NULL: none does */
    uint64_t *slots;  /* that the graph's kernels take */
    bool stale;       /* not all of them: it failed on the way to others */
};

static const wf_device_graphs *graphs_of(int device)
{
    const wf_device_ops *api = atomic_load_explicit(&wf_device_api, memory_order_acquire);
    return device != WF_DEVICE_HOST && api ? api->graphs : NULL;
}

bool wf_capture_can(int device)
{
    const wf_device_graphs *g = graphs_of(device);
    return g && g->wanted() > 0;
}

int64_t wf_capture_unsettled(int device)
{
    return graphs_of(device)->unsettled();
}

/* -- making ---------------------------------------------------------------------------------------------------- */

/* False: there is no memory. */
static bool keep_numbers(wf_capture *c, const wf_capture_of *what)
{
    const size_t n = what->fn->nslots;
    c->plan = what->plan;
    c->draws = what->draws;
    c->changes = what->changes ? wf_malloc(n + 1) : NULL;
    c->slots = what->changes ? wf_malloc(n * sizeof *c->slots + 1) : NULL;
    if (c->changes && c->slots) {
        memcpy(c->changes, what->changes, n);
        memcpy(c->slots, what->fn->slots, n * sizeof *c->slots);
    }
    return !what->changes || (c->changes && c->slots);
}

static wf_capture *make(const wf_capture_of *what)
{
    size_t ns = what->n_source, nm = what->n_made;
    wf_capture *c = wf_malloc(sizeof *c);
    if (!c) {
        return NULL;
    }
    *c = (wf_capture){.refs = 1,
                      .api = graphs_of(what->device),
                      .device = what->device,
                      .n_source = what->n_source,
                      .n_made = what->n_made};
    pthread_mutex_init(&c->lock, NULL);
    c->in = wf_calloc(ns + 1, sizeof *c->in);
    c->reach = wf_calloc(2 * ns + 1, sizeof *c->reach);
    c->out = wf_calloc(nm + 1, sizeof *c->out);
    c->address = wf_calloc(ns + 1, sizeof *c->address);
    c->written = wf_calloc(ns + 1, sizeof *c->written);
    c->lent = wf_calloc(nm + 1, sizeof *c->lent);
    c->view = wf_calloc(2 * ns + nm + 1, sizeof *c->view);
    if (!c->in || !c->reach || !c->out || !c->address || !c->written || !c->lent || !c->view ||
        !keep_numbers(c, what)) {
        wf_capture_release(c);
        return NULL;
    }
    for (size_t k = 0; k < ns; k++) {
        c->written[k] = what->written[k];
        c->address[k] = what->argument[k] ? NULL : what->source[k]->data;
    }
    for (size_t k = 0; k < nm; k++) {
        c->lent[k] = what->lent && what->lent[k] && c->api->borrow;
    }
    return c;
}

void wf_capture_retain(wf_capture *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

void wf_capture_release(wf_capture *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1) {
        return;
    }
    if (c->graph) {
        c->api->free(c->graph);
    }
    for (uint32_t k = 0; c->in && k < c->n_source; k++) {
        if (c->in[k]) {
            wf_storage_release(c->in[k]);
        }
    }
    for (uint32_t k = 0; c->out && k < c->n_made; k++) {
        if (c->out[k]) {
            wf_storage_release(c->out[k]);
        }
    }
    wf_mfree(c->in);
    wf_mfree(c->reach);
    wf_mfree(c->out);
    wf_mfree(c->address);
    wf_mfree(c->written);
    wf_mfree(c->lent);
    wf_mfree(c->view);
    wf_mfree(c->changes);
    wf_mfree(c->slots);
    pthread_mutex_destroy(&c->lock);
    wf_mfree(c);
}

static int no_memory(wf_why *why)
{
    return why->code ? why->code
                     : wf_fail(why, WEFT_ENOMEM, "there is no memory for a captured graph");
}

/* A launch and a copy for each argument and result, instead of a launch for each step. */
static int check_worth(const wf_capture *c, const wf_capture_of *what, wf_why *why)
{
    wf_plan_info info;
    uint32_t copies = 0;
    for (uint32_t k = 0; k < what->n_made; k++) {
        copies += !c->lent[k];
    }
    for (uint32_t k = 0; k < what->n_source; k++) {
        copies += what->argument[k] ? 1u + what->written[k] : 0;
    }
    wf_plan_get_info(what->plan, &info);
    return graphs_of(what->device)->wanted() > 1 || info.steps > (int)copies + 1
               ? 0
               : wf_fail(why, WEFT_EUNSUPPORTED, "it has %d steps, a captured graph %u copies",
                         info.steps, copies);
}

/* What of an argument a run touches, from a multiple of what memory is aligned to. */
static void find_reach(wf_capture *c, const wf_capture_of *what, uint32_t k)
{
    int64_t lo, hi, size = (int64_t)what->source[k]->nbytes;
    wf_plan_reach(what->plan, what->fn, k, &lo, &hi);
    lo -= lo % ALIGNED;
    hi = hi < size ? hi : size;
    c->reach[2 * k] = lo;
    c->reach[2 * k + 1] = hi > lo ? hi - lo : 0;
}

static int make_inputs(wf_capture *c, const wf_capture_of *what, wf_why *why)
{
    size_t bytes = 0;
    for (uint32_t k = 0; k < c->n_source; k++) {
        if (what->argument[k]) {
            find_reach(c, what, k);
            bytes += (size_t)c->reach[2 * k + 1];
        }
    }
    for (uint32_t k = 0; k < c->n_made; k++) {
        bytes += c->lent[k] ? 0 : what->made_bytes[k];
    }
    if (bytes > WF_CAPTURE_ARGUMENTS) {
        return wf_fail(why, WEFT_EUNSUPPORTED,
                       "its arguments and results are %zu MiB, which every call would copy",
                       bytes >> 20);
    }
    for (uint32_t k = 0; k < c->n_source; k++) {
        if (what->argument[k]) {
            c->in[k] = wf_storage_new_on(c->device, (size_t)c->reach[2 * k + 1], why);
            if (!c->in[k]) {
                return no_memory(why);
            }
        }
    }
    return 0;
}

/* skipped: bytes before the storage's first that the value has, which nobody touches. */
static int lay(wf_view *v, const wf_fn *f, wf_val value, wf_storage *st, int64_t skipped,
               bool write, wf_why *why)
{
    wf_view_of_type(v, wf_fn_type(f, value), (void *)((uintptr_t)st->data - (uintptr_t)skipped));
    v->device = st->device;
    return wf_storage_use(st, write, why);
}

/* Views of a run in the capture's memory; results are made here, so that they are the graph's. */
static int lay_out(wf_capture *c, const wf_capture_of *what, wf_view *in, wf_view *out, wf_why *why)
{
    const wf_fn *f = what->fn;
    int rc = 0;
    for (uint32_t k = 0; k < c->n_source && !rc; k++) {
        wf_storage *st = c->in[k] ? c->in[k] : what->source[k];
        rc = lay(&in[k], f, f->inputs[k], st, c->reach[2 * k], c->written[k], why);
    }
    uint32_t at = 0;
    for (; at < c->n_made && !rc; at++) {
        c->out[at] = wf_storage_new_on(c->device, what->made_bytes[at], why);
        rc = c->out[at] ? lay(&out[at], f, f->outputs[at], c->out[at], 0, true, why)
                        : no_memory(why);
    }
    for (uint32_t k = 0; k < c->n_source && !rc; k++) {
        if (c->written[k]) {
            wf_storage *st = c->in[k] ? c->in[k] : what->source[k];
            rc = lay(&out[at], f, f->outputs[at], st, c->reach[2 * k], true, why);
            at++;
        }
    }
    return rc;
}

/* The plan's run on the graph's memory: while it is recorded, or `again` with the numbers of fn. */
static int run(wf_capture *c, const wf_fn *fn, bool again, wf_why *why)
{
    const wf_plan_changes changes = {.slot = c->changes, .again = again, .mark = c->api->mark};
    wf_plan_args p = {.fn = fn,
                      .in = c->view,
                      .out = c->view + c->n_source,
                      .device = c->device,
                      .changes = c->changes || c->draws ? &changes : NULL};
    unsigned mode = wf_fpenv_enter();
    int rc = wf_plan_run(c->plan, &p, why);
    wf_fpenv_leave(mode);
    if (rc && p.failed_op != WF_OP_INVALID && !p.failed_named) {
        wf_why op = {0};
        wf_fail(&op, rc, "%s: %.150s", wf_rows[p.failed_op].name, why->rule);
        *why = op;
    }
    return rc;
}

static int record(wf_capture *c, const wf_capture_of *what, wf_why *why)
{
    int rc = lay_out(c, what, c->view, c->view + c->n_source, why);
    return rc ? rc : run(c, what->fn, false, why);
}

wf_capture *wf_capture_new(const wf_capture_of *what, wf_why *why)
{
    wf_capture *c = make(what);
    int rc = c ? check_worth(c, what, why) : no_memory(why);
    if (!rc && (what->changes || what->draws) && !c->api->mark) {
        rc = wf_fail(why, WEFT_EUNSUPPORTED, "its numbers change");
    }
    rc = rc ? rc : make_inputs(c, what, why);
    rc = rc ? rc : c->api->begin(what->device - 1, why);
    if (!rc) {
        wf_why end = {0};
        rc = record(c, what, why);
        int ended = c->api->end(what->device - 1, rc != 0, &c->graph, &end);
        if (!rc && ended) {
            rc = ended;
            *why = end;
        }
    }
    if (rc) {
        wf_capture_release(c);
        c = NULL;
    }
    return c;
}

/* -- running --------------------------------------------------------------------------------------------------------- */

bool wf_capture_holds(const wf_capture *c, wf_storage *const *source)
{
    for (uint32_t k = 0; k < c->n_source; k++) {
        if (!c->in[k] && source[k]->data != c->address[k]) {
            return false;
        }
    }
    return true;
}

bool wf_capture_lend(wf_capture *c, wf_storage **made, wf_why *why)
{
    bool all = true;
    for (uint32_t k = 0; k < c->n_made && all; k++) {
        if (c->lent[k]) {
            void *block = c->out[k]->deleter_arg;
            all = c->api->borrow(block);
            made[k] = all ? wf_storage_over(c->out[k]) : NULL;
            if (all && !made[k]) {
                wf_device_free(block);
                all = no_memory(why) == 0;
            }
        }
    }
    for (uint32_t k = 0; k < c->n_made && !all; k++) {
        if (made[k]) {
            wf_storage_release(made[k]);
            made[k] = NULL;
        }
    }
    return all;
}

static wf_view bytes_of(const wf_storage *st, int64_t first, int64_t n)
{
    return (wf_view){.data = (char *)st->data + first,
                     .dtype = WEFT_U8,
                     .rank = 1,
                     .device = st->device,
                     .dims = {n},
                     .strides = {1}};
}

static int use_pair(wf_storage *dst, wf_storage *src, wf_why *why)
{
    int rc = wf_storage_use(src, false, why);
    return rc ? rc : wf_storage_use(dst, true, why);
}

/* n bytes from byte `to` of dst on := those from `from` of src on. */
static int copy(wf_storage *dst, int64_t to, const wf_storage *src, int64_t from, int64_t n,
                wf_why *why)
{
    wf_view d = bytes_of(dst, to, n), s = bytes_of(src, from, n);
    return n ? wf_device_copy(dst->device, &d, &s, why) : 0;
}

/* The part of source k that the graph's memory of it stands for: from its byte *own, the storage's *from, *n of them. What
 * was rounded to whole lines, or lay within a larger storage, may stick out of it. */
static void part_of(const wf_capture *c, uint32_t k, const wf_storage *st, int64_t shift,
                    int64_t *own, int64_t *from, int64_t *n)
{
    const int64_t first = c->reach[2 * k] + shift, size = (int64_t)st->nbytes;
    *own = first < 0 ? -first : 0;
    *from = first + *own;
    *n = c->reach[2 * k + 1] - *own;
    *n = *n < size - *from ? *n : size - *from;
}

static int copy_in(wf_capture *c, wf_storage *const *source, const int64_t *shift, wf_why *why)
{
    int rc = 0;
    for (uint32_t k = 0; k < c->n_source && !rc; k++) {
        rc = c->in[k] ? use_pair(c->in[k], source[k], why) : 0;
    }
    for (uint32_t k = 0; k < c->n_source && !rc; k++) {
        int64_t own, from, n;
        part_of(c, k, source[k], shift[k], &own, &from, &n);
        rc = c->in[k] ? copy(c->in[k], own, source[k], from, n, why) : 0;
    }
    return rc;
}

static int copy_out(wf_capture *c, wf_storage *const *source, const int64_t *shift,
                    wf_storage *const *made, wf_why *why)
{
    int rc = 0;
    for (uint32_t k = 0; k < c->n_made && !rc; k++) {
        rc = c->lent[k] ? 0 : use_pair(made[k], c->out[k], why);
    }
    for (uint32_t k = 0; k < c->n_source && !rc; k++) {
        rc = c->in[k] && c->written[k] ? use_pair(source[k], c->in[k], why) : 0;
    }
    for (uint32_t k = 0; k < c->n_made && !rc; k++) {
        rc = c->lent[k] ? 0 : copy(made[k], 0, c->out[k], 0, (int64_t)made[k]->nbytes, why);
    }
    for (uint32_t k = 0; k < c->n_source && !rc; k++) {
        int64_t own, from, n;
        part_of(c, k, source[k], shift[k], &own, &from, &n);
        rc = c->in[k] && c->written[k] ? copy(source[k], from, c->in[k], own, n, why) : 0;
    }
    return rc;
}

/* The graph's kernels take the numbers of fn from now on. */
static int renew(wf_capture *c, const wf_fn *fn, wf_why *why)
{
    bool same = !c->stale && !c->draws;
    for (uint32_t k = 0; c->changes && k < fn->nslots && same; k++) {
        same = !c->changes[k] || c->slots[k] == fn->slots[k];
    }
    if ((!c->changes && !c->draws) || same) {
        return 0;
    }
    c->stale = true;
    int rc = c->api->renew(c->graph, true, why);
    if (!rc) {
        wf_why end = {0};
        rc = run(c, fn, true, why);
        int ended = c->api->renew(c->graph, false, &end);
        if (!rc && ended) {
            rc = ended;
            *why = end;
        }
    }
    if (!rc) {
        c->stale = false;
    }
    if (!rc && c->slots) {
        memcpy(c->slots, fn->slots, fn->nslots * sizeof *c->slots);
    }
    return rc;
}

int wf_capture_run(wf_capture *c, const wf_fn *fn, wf_storage *const *source, const int64_t *shift,
                   wf_storage *const *made, bool *launched, wf_why *why)
{
    *launched = false;
    pthread_mutex_lock(&c->lock);
    int rc = renew(c, fn, why);
    wf_cuda_op_hold(true); /* what is copied out is as good as what the launch made */
    rc = rc ? rc : copy_in(c, source, shift, why);
    rc = rc ? rc : c->api->launch(c->graph, why);
    *launched = rc == 0;
    rc = rc ? rc : copy_out(c, source, shift, made, why);
    wf_cuda_op_hold(false);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

bool wf_capture_is_stale(wf_capture *c)
{
    pthread_mutex_lock(&c->lock);
    const bool stale = c->stale;
    pthread_mutex_unlock(&c->lock);
    return stale;
}
