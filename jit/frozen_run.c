/*
 * jit/frozen_run.c -- replaying frozen calls, step by step or as one launch; see frozen.h.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/pool.h"
#include "jit/frozen_impl.h"

enum { FEW_VIEWS = 32 }; /* a replay of few arguments and results needs no memory of the heap */

/* Everything a replay needs in one block. */
typedef struct replay {
    wf_view *in, *out;
    wf_storage **made;
    wf_storage **source;
    int64_t *shift;      /* per source: how many bytes further the argument lies */
    weft_tensor *handle; /* per result of the call */
    uint8_t *began;      /* per output of the function */
    uint64_t *slots;     /* numbers of this call, where optimisers are asked for them */
    void *draws;         /* attributes of this call, where it draws random numbers */
    wf_fn fn;            /* then: the function with those */
    wf_frozen *of;
} replay;

/* Memory of a replay. */
static int lay(const wf_frozen *z, wf_view *v, wf_val value, wf_storage *st, int64_t shift,
               bool write, wf_why *why)
{
    wf_view_of_type(v, wf_fn_type(z->fn, value), (char *)st->data + shift);
    v->device = st->device;
    return wf_storage_use(st, write, why);
}

static void find_sources(const wf_frozen *z, const wf_frozen_args *a, replay *r)
{
    for (int k = 0; k < z->n_source; k++) {
        r->source[k] = z->src[k].arg >= 0 ? a->st[z->src[k].arg] : z->src[k].st;
        r->shift[k] = wf_frozen_shift(z, a, k);
    }
}

static int make_result(replay *r, uint32_t k, wf_why *why)
{
    const wf_frozen *z = r->of;
    if (z->device) {
        r->made[k] = wf_storage_new_on(z->device, z->made_bytes[k], why);
    } else {
        struct wf_kept *const *kept = wf_plan_results(z->plan);
        r->made[k] = wf_storage_new_again(kept ? kept[k] : NULL, z->made_bytes[k]);
    }
    return r->made[k]  ? 0
           : why->code ? why->code
                       : wf_fail(why, WEFT_ENOMEM, "out of memory for the results");
}

/* When the plan needs it. */
static int back_result(void *user, uint32_t k, wf_why *why)
{
    replay *r = user;
    int rc = r->made[k] ? 0 : make_result(r, k, why);
    return rc ? rc : lay(r->of, &r->out[k], r->of->fn->outputs[k], r->made[k], 0, true, why);
}

/* For a launch, which needs them all: of results that have no memory yet. */
static int make_results(replay *r, wf_why *why)
{
    int rc = 0;
    for (uint32_t k = 0; k < r->of->n_made && !rc; k++) {
        rc = r->made[k] ? 0 : make_result(r, k, why);
    }
    return rc;
}

static void release_results(replay *r)
{
    for (uint32_t k = 0; k < r->of->n_made; k++) {
        if (r->made[k]) {
            wf_storage_release(r->made[k]);
            r->made[k] = NULL;
        }
    }
}

static int lay_out(wf_frozen *z, replay *r, wf_why *why)
{
    const wf_fn *f = z->fn;
    for (int k = 0; k < z->n_source; k++) {
        if (lay(z, &r->in[k], f->inputs[k], r->source[k], r->shift[k], z->src[k].written, why)) {
            return why->code;
        }
    }
    uint32_t at = 0;
    for (; at < z->n_made; at++) {
        r->out[at].data = NULL;
    }
    for (int k = 0; k < z->n_source; k++) {
        if (z->src[k].written) {
            if (lay(z, &r->out[at], f->outputs[at], r->source[k], r->shift[k], true, why)) {
                return why->code;
            }
            at++;
        }
    }
    return 0;
}

/* Tensors that the call wrote; of one that failed, those that it had begun to. */
static void mark_written(wf_frozen *z, const replay *r, const wf_plan_args *failed)
{
    uint32_t at = z->n_made;
    for (int k = 0; k < z->n_source; k++) {
        if (z->src[k].written && (!failed || failed->began[at])) {
            wf_storage *st = r->source[k];
            atomic_fetch_add_explicit(&st->version, z->src[k].bumps, memory_order_relaxed);
            st->write_op = failed ? (uint16_t)failed->failed_op : z->src[k].write_op;
            st->write_site = failed ? failed->failed_site : z->src[k].write_site;
            atomic_store_explicit(&st->broken, failed != NULL, memory_order_relaxed);
        }
        at += z->src[k].written;
    }
}

/* Handles of the results, put aside: the caller's arrays of arguments and results may be one. */
static int make_outputs(const wf_frozen *z, const wf_frozen_args *a, replay *r, wf_why *why)
{
    int rc = 0;
    for (int i = 0; i < z->n_out && !rc; i++) {
        const wf_frozen_out *o = &z->out[i];
        r->handle[i] = o->value;
        if (o->kind == WF_OUT_ARG) {
            r->handle[i] = a->in[o->index];
        } else if (o->kind == WF_OUT_AGAIN) {
            r->handle[i] = r->handle[o->index];
        } else if (o->kind == WF_OUT_MADE) {
            wf_storage *st = r->made[o->index];
            r->handle[i] = wf_wrap_view(a->c, st, (char *)st->data + o->offset, o->dtype, o->rank,
                                        o->dims, o->strides);
            if (r->handle[i].slot) {
                wf_slot_at(a->c, r->handle[i].slot)->site = o->site;
            } else {
                rc = wf_fail(why, WEFT_ENOMEM, "out of memory for a handle");
            }
        }
    }
    return rc;
}

/* -- replaying as one launch ------------------------------------------------------------------------------------------ */

enum {
    CAPTURE_FROM = 2,
    CAPTURE_ANYWAY = 24,
    MOST_STALE = 6
}; /* replays before a capture; kernels not made by then are not waited for, or twice as long after each that went for them */

/* Gradients that a call leaves go when the next one comes, if nobody keeps them; results do not. */
static void find_lent(const wf_frozen *z, bool *lent)
{
    for (uint32_t i = 0; i < z->n_leaf && !z->keeps; i++) {
        if (z->leaf[i].left.kind == WF_LEAF_MADE) {
            lent[z->leaf[i].left.index] = true;
        }
    }
    for (int i = 0; i < z->n_out; i++) {
        if (z->out[i].kind == WF_OUT_MADE) {
            lent[z->out[i].index] = false;
        }
    }
}

/* Called with the lock. The capture of this call's steps; NULL: not now, or never. */
static wf_capture *capture_now(wf_frozen *z, const replay *r, wf_frozen_how *how)
{
    const size_t ns = (size_t)z->n_source, nslots = z->n_number ? z->fn->nslots : 0;
    bool *flags = wf_calloc(2 * ns + z->n_made + nslots + 1, 1);
    bool *lent = flags ? flags + 2 * ns : NULL;
    uint8_t *changes = flags && nslots ? (uint8_t *)lent + z->n_made : NULL;
    wf_why why = {0};
    for (uint32_t i = 0; i < z->n_number && changes; i++) {
        changes[z->number[i].slot] = 1;
    }
    if (lent) {
        find_lent(z, lent);
    }
    for (int k = 0; flags && k < z->n_source; k++) {
        flags[k] = z->src[k].arg >= 0;
        flags[z->n_source + k] = z->src[k].written;
    }
    const wf_capture_of what = {.fn = z->n_number || z->n_draw ? &r->fn : z->fn,
                                .draws = z->n_draw > 0,
                                .changes = changes,
                                .lent = lent,
                                .plan = z->plan,
                                .device = z->device,
                                .n_source = (uint32_t)z->n_source,
                                .n_made = z->n_made,
                                .source = r->source,
                                .argument = flags,
                                .written = flags ? flags + z->n_source : NULL,
                                .made_bytes = z->made_bytes};
    z->capture = flags ? wf_capture_new(&what, &why) : NULL;
    if (!z->capture) {
        z->uncapturable = true;
        snprintf(how->reason, sizeof how->reason, "%.180s",
                 flags ? why.rule : "there is no memory");
    }
    wf_mfree(flags);
    return z->capture;
}

/* Called with the lock, of a capture whose lent memory some keep: another one, which copies. */
static wf_capture *capture_copying(wf_frozen *z, const replay *r, wf_frozen_how *how)
{
    wf_capture_release(z->capture); /* runs of other threads hold it */
    z->keeps = true;
    return capture_now(z, r, how);
}

/* The capture to run, held, with memory of results that it lends; NULL: run the steps. */
static wf_capture *find_capture(wf_frozen *z, const replay *r, wf_frozen_how *how, wf_why *why)
{
    if (!wf_capture_can(z->device)) {
        return NULL;
    }
    wf_capture *c = NULL;
    pthread_mutex_lock(&z->lock);
    bool ready =
        z->replays >= CAPTURE_FROM && (z->calm || z->replays >= CAPTURE_ANYWAY << z->stale);
    if (z->uncapturable) {
        c = NULL;
    } else if (z->capture && wf_capture_holds(z->capture, r->source)) {
        c = z->capture;
    } else if (z->capture) {
        z->uncapturable = true;
        snprintf(how->reason, sizeof how->reason, "a captured tensor has moved");
    } else if (ready && wf_plan_is_settled(z->plan)) {
        c = capture_now(z, r, how);
    }
    if (c && !wf_capture_lend(c, r->made, why)) {
        c = why->code ? NULL : capture_copying(z, r, how);
        wf_why_clear(why);
    }
    if (c) {
        wf_capture_retain(c);
    }
    pthread_mutex_unlock(&z->lock);
    return c;
}

/* Of a capture that was not launched: if it cannot take numbers any more, the next replay may make another one. */
static void drop_stale(wf_frozen *z, wf_capture *c, wf_frozen_how *how, const wf_why *why)
{
    wf_capture *gone = NULL;
    pthread_mutex_lock(&z->lock);
    if (z->capture == c && wf_capture_is_stale(c)) {
        gone = c;
        z->capture = NULL;
        z->calm = false;
        z->replays = CAPTURE_FROM;
        if (++z->stale == MOST_STALE) {
            z->uncapturable = true;
            snprintf(how->reason, sizeof how->reason, "%.180s", why->rule);
        }
    }
    pthread_mutex_unlock(&z->lock);
    wf_capture_release(gone);
}

static int run_steps(wf_frozen *z, replay *r, wf_plan_args *p, wf_why *why)
{
    bool can = wf_capture_can(z->device);
    int64_t before = can ? wf_capture_unsettled(z->device) : 0;
    int rc = lay_out(z, r, why);
    p->failed_op = WF_OP_INVALID;
    p->failed_site = NULL;
    memset(r->began, 0, z->n_made + (size_t)z->n_source);
    if (!rc) {
        unsigned mode = wf_fpenv_enter();
        rc = wf_plan_run(z->plan, p, why);
        wf_fpenv_leave(mode);
        mark_written(z, r, rc ? p : NULL);
    }
    if (can) {
        pthread_mutex_lock(&z->lock);
        z->calm = wf_capture_unsettled(z->device) == before;
        z->replays++;
        pthread_mutex_unlock(&z->lock);
    }
    return rc;
}

/* As one launch if there is a capture, or step by step. */
static int run_somehow(wf_frozen *z, replay *r, wf_frozen_how *how, wf_why *why)
{
    wf_plan_args p = {.fn = z->n_number || z->n_draw ? &r->fn : z->fn,
                      .in = r->in,
                      .out = r->out,
                      .back = back_result,
                      .user = r,
                      .device = z->device,
                      .began = r->began};
    wf_capture *c = find_capture(z, r, how, why);
    bool launched = false;
    int rc = c ? make_results(r, why) : 0;
    rc = c && !rc ? wf_capture_run(c, p.fn, r->source, r->shift, r->made, &launched, why) : rc;
    if (rc && !launched) {
        drop_stale(z, c, how, why);
    }
    wf_capture_release(c);
    if (!launched) {
        if (c) { /* what stood in the way of a launch may not be in the way of steps */
            wf_why_clear(why);
            release_results(r);
        }
        return run_steps(z, r, &p, why);
    }
    how->captured = true;
    if (rc) {
        p.failed_op = WF_OP_COPY;
        p.failed_site = NULL;
        memset(r->began, 1, z->n_made + (size_t)z->n_source);
    }
    mark_written(z, r, rc ? &p : NULL);
    return rc;
}

int wf_frozen_run(wf_frozen *z, const wf_frozen_args *a, weft_tensor *out, wf_frozen_how *how,
                  wf_why *why)
{
    size_t ns = (size_t)z->n_source, nm = z->n_made, no = (size_t)z->n_out;
    const size_t bytes = (2 * ns + nm) * sizeof(wf_view) + no * sizeof(weft_tensor) +
                         (ns + nm) * (sizeof(void *) + 1) + ns * sizeof(int64_t) +
                         (z->n_number ? z->fn->nslots * sizeof(uint64_t) : 0) +
                         wf_frozen_draw_bytes(z) + 1;
    wf_view few[FEW_VIEWS];
    char *block = bytes <= sizeof few
                      ? (char *)few
                      : atomic_exchange_explicit(&z->spare, NULL, memory_order_acquire);
    block = block ? block : wf_malloc(bytes);
    how->captured = false;
    how->reason[0] = '\0';
    if (!block) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for a frozen call");
    }
    replay r = {.in = (wf_view *)(void *)block, .of = z};
    r.out = r.in + ns;
    r.handle = (weft_tensor *)(void *)(r.out + ns + nm);
    r.made = (wf_storage **)(void *)(r.handle + no);
    r.source = r.made + nm;
    r.shift = (int64_t *)(void *)(r.source + ns);
    r.slots = (uint64_t *)(void *)(r.shift + ns);
    r.draws = r.slots + (z->n_number ? z->fn->nslots : 0);
    r.began = (uint8_t *)r.draws + wf_frozen_draw_bytes(z);
    for (size_t k = 0; k < nm; k++) {
        r.made[k] = NULL;
    }
    if (z->n_number || z->n_draw) {
        r.fn = *z->fn;
        r.fn.slots = z->n_number ? r.slots : r.fn.slots;
    }
    if (z->n_draw) {
        wf_frozen_draw(z, a->c, &r.fn, r.draws);
    }
    int rc = wf_frozen_begin_state(z, a, r.slots, why);
    find_sources(z, a, &r);
    rc = rc ? rc : run_somehow(z, &r, how, why);
    rc = rc ? rc : make_outputs(z, a, &r, why);
    rc = rc ? rc : wf_frozen_end_state(z, a, r.made, why);
    if (rc == WEFT_ENOMEM && !why->code) {
        wf_fail(why, rc, "out of memory for the results");
    }
    for (size_t k = 0; k < no && !rc; k++) {
        out[k] = r.handle[k];
    }
    release_results(&r);
    if (block != (char *)few) {
        wf_mfree(atomic_exchange_explicit(&z->spare, block, memory_order_acq_rel));
    }
    return rc;
}
