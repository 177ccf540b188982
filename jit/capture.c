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
#include "eager/device.h"
#include "eager/pool.h"

enum { ALIGNED = 512 }; /* bytes */

struct wf_capture {
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

static wf_capture *make(const wf_capture_of *what)
{
    size_t ns = what->n_source, nm = what->n_made;
    wf_capture *c = wf_malloc(sizeof *c);
    if (!c) {
        return NULL;
    }
    *c = (wf_capture){.api = graphs_of(what->device),
                      .device = what->device,
                      .n_source = what->n_source,
                      .n_made = what->n_made};
    pthread_mutex_init(&c->lock, NULL);
    c->in = wf_calloc(ns + 1, sizeof *c->in);
    c->reach = wf_calloc(2 * ns + 1, sizeof *c->reach);
    c->out = wf_calloc(nm + 1, sizeof *c->out);
    c->address = wf_calloc(ns + 1, sizeof *c->address);
    c->written = wf_calloc(ns + 1, sizeof *c->written);
    if (!c->in || !c->reach || !c->out || !c->address || !c->written) {
        wf_capture_free(c);
        return NULL;
    }
    for (size_t k = 0; k < ns; k++) {
        c->written[k] = what->written[k];
        c->address[k] = what->argument[k] ? NULL : what->source[k]->data;
    }
    return c;
}

void wf_capture_free(wf_capture *c)
{
    if (!c) {
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
    pthread_mutex_destroy(&c->lock);
    wf_mfree(c);
}

static int no_memory(wf_why *why)
{
    return why->code ? why->code
                     : wf_fail(why, WEFT_ENOMEM, "there is no memory for a captured graph");
}

/* A launch and a copy for each argument and result, instead of a launch for each step. */
static int check_worth(const wf_capture_of *what, wf_why *why)
{
    wf_plan_info info;
    uint32_t copies = what->n_made;
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
        bytes += what->made_bytes[k];
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

static int record(wf_capture *c, const wf_capture_of *what, wf_view *views, wf_why *why)
{
    wf_plan_args p = {.fn = what->fn, .in = views, .out = views + c->n_source, .device = c->device};
    int rc = lay_out(c, what, views, p.out, why);
    if (!rc) {
        unsigned mode = wf_fpenv_enter();
        rc = wf_plan_run(what->plan, &p, why);
        wf_fpenv_leave(mode);
        if (rc && p.failed_op != WF_OP_INVALID) {
            wf_why op = {0};
            wf_fail(&op, rc, "%s: %.150s", wf_rows[p.failed_op].name, why->rule);
            *why = op;
        }
    }
    return rc;
}

wf_capture *wf_capture_new(const wf_capture_of *what, wf_why *why)
{
    wf_capture *c = make(what);
    size_t n = 2 * (size_t)what->n_source + what->n_made;
    wf_view *views = c ? wf_malloc(n * sizeof *views + 1) : NULL;
    int rc = views ? check_worth(what, why) : no_memory(why);
    rc = rc ? rc : make_inputs(c, what, why);
    rc = rc ? rc : c->api->begin(what->device - 1, why);
    if (!rc) {
        wf_why end = {0};
        rc = record(c, what, views, why);
        int ended = c->api->end(what->device - 1, rc != 0, &c->graph, &end);
        if (!rc && ended) {
            rc = ended;
            *why = end;
        }
    }
    wf_mfree(views);
    if (rc) {
        wf_capture_free(c);
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
        rc = use_pair(made[k], c->out[k], why);
    }
    for (uint32_t k = 0; k < c->n_source && !rc; k++) {
        rc = c->in[k] && c->written[k] ? use_pair(source[k], c->in[k], why) : 0;
    }
    for (uint32_t k = 0; k < c->n_made && !rc; k++) {
        rc = copy(made[k], 0, c->out[k], 0, (int64_t)made[k]->nbytes, why);
    }
    for (uint32_t k = 0; k < c->n_source && !rc; k++) {
        int64_t own, from, n;
        part_of(c, k, source[k], shift[k], &own, &from, &n);
        rc = c->in[k] && c->written[k] ? copy(source[k], from, c->in[k], own, n, why) : 0;
    }
    return rc;
}

int wf_capture_run(wf_capture *c, wf_storage *const *source, const int64_t *shift,
                   wf_storage *const *made, bool *launched, wf_why *why)
{
    *launched = false;
    pthread_mutex_lock(&c->lock);
    int rc = copy_in(c, source, shift, why);
    rc = rc ? rc : c->api->launch(c->graph, why);
    *launched = rc == 0;
    rc = rc ? rc : copy_out(c, source, shift, made, why);
    pthread_mutex_unlock(&c->lock);
    return rc;
}
