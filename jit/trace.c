/*
 * jit/trace.c -- opening, committing and closing traces; see trace.h.
 *
 * Requirement on whoever edits next: a commit leaves no storage virtual but fresh results that have no value
 * yet (the op that made them is still on its way through dispatch), whether it succeeds or not.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "jit/passes/pass.h"
#include "jit/trace.h"
#include "weft/ops_array.h"

enum {
    FIRST_ADDRESS_BIT = 62, /* of no process: user space ends below */
    KEPT_SPARE = 2 /* headers kept for the next recording: what a chain of ops goes through */
};

static uint32_t next_serial(void)
{
    static _Atomic uint32_t serial;
    uint32_t s;
    do {
        s = atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed) + 1;
    } while (s == 0); /* 0: a slot without a note */
    return s;
}

wf_trace *wf_trace_current(wf_ctx *c)
{
    return (wf_trace *)(void *)c->recorder;
}

int wf_trace_reopen(wf_trace *t, const wf_trace_owner *owner)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (c->recorder) {
        wf_raise_text(c, WEFT_EINVALID, "trace",
                      "a traced call or a region is being recorded on this thread, and a graph "
                      "cannot be within: make it before or behind that");
        return WEFT_EINVALID;
    }
    if (!t->fn) {
        t->fn = wf_fn_new(owner->name);
    }
    if (!t->fn) {
        wf_raise_text(c, WEFT_ENOMEM, "trace", "out of memory");
        return WEFT_ENOMEM;
    }
    t->base = wf_trace_hooks;
    t->c = c;
    t->owner = *owner;
    t->serial = next_serial();
    t->address = t->address ? t->address : UINT64_C(1) << FIRST_ADDRESS_BIT;
    t->depth = t->floor = 1;
    t->refused.code = 0;
    t->noted = wf_pass_is_watched();
    t->peeked = NULL;
    t->backwards = c->backwards;
    t->commits = 0;
    t->note = NULL;
    t->frame = NULL;
    c->recorder = &t->base;
    wf_trace_set_device(t, WF_DEVICE_HOST);
    return 0;
}

void wf_trace_set_device(wf_trace *t, int device)
{
    t->base.device = (uint8_t)device;
    t->c->away = (uint8_t)(t->c->device | device);
}

wf_trace *wf_trace_open(const wf_trace_owner *owner)
{
    wf_trace *t = wf_malloc(sizeof *t);
    if (!t) {
        wf_raise_text(wf_ctx_get(), WEFT_ENOMEM, "trace", "out of memory");
        return NULL;
    }
    memset(t, 0, sizeof *t);
    if (wf_trace_reopen(t, owner)) {
        wf_mfree(t);
        return NULL;
    }
    return t;
}

void wf_trace_free(wf_trace *t)
{
    if (t) {
        wf_trace_drop_spare(t, 0);
        wf_fn_free(t->fn);
        wf_fn_free(t->before);
        wf_follow_free(&t->follow);
        wf_mfree(t->outer);
        wf_mfree(t->table);
        wf_mfree(t->views);
        wf_mfree(t->writes);
        wf_mfree(t->began);
        wf_mfree(t->made);
        wf_mfree(t);
    }
}

/* -- committing -------------------------------------------------------------------------------------------- */

static void drop_outer(wf_trace *t)
{
    for (uint32_t i = 0; i < t->nouter; i++) {
        if (t->outer[i].st) { /* not dropped by a run */
            wf_storage_let_go(t->outer[i].st);
        }
    }
    if (t->nouter) {
        memset(t->table, 0, t->table_cap * sizeof *t->table);
    }
    t->nouter = t->wrapped = t->written = 0;
    wf_follow_clear(&t->follow);
}

/* Unlinks the storages that have a value (or all of them) and drops the trace's reference. */
static void drop_virtual(wf_trace *t, bool all, void (*each)(wf_storage *st, const wf_job *job),
                         const wf_job *job)
{
    wf_storage *next;
    for (wf_storage *st = t->first; st; st = next) {
        next = st->next;
        if (st->value == 0 && !all) {
            continue;
        }
        wf_trace_unlink(t, st);
        st->next = st->prev = NULL;
        each(st, job);
    }
}

static void make_real(wf_storage *st, const wf_job *job)
{
    (void)job;
    wf_storage_commit(st);
}

/* No bytes were computed: nothing may read it. What a run that failed had not come to gets its memory now, to be written anew;
 * without memory nothing may write it, either. */
static void make_broken(wf_storage *st, const wf_job *job)
{
    wf_why ignored = {0};
    st->broken = 1;
    st->write_op = (uint16_t)(job->failed_op ? job->failed_op : WF_OP_INPUT);
    st->write_site = job->failed_site;
    const bool without = (uintptr_t)st->data >> FIRST_ADDRESS_BIT; /* still the made-up address */
    if (without && (!job->of || wf_storage_back(st, NULL, &ignored))) {
        st->data = NULL;
        st->inline_data = WF_STORAGE_EXTERNAL;
        st->read_only = 1;
    }
    wf_storage_commit(st);
}

/* Drops what another thread let go of last; counts the rest that have a value. */
static uint32_t sweep(wf_trace *t)
{
    uint32_t n = 0;
    wf_storage *next;
    for (wf_storage *st = t->first; st; st = next) {
        next = st->next;
        if (atomic_load_explicit(&st->refs, memory_order_acquire) == 1) { /* the trace's own */
            t->base.dead(&t->base, st);
        } else {
            n += st->value != 0;
        }
    }
    return n;
}

static int reserve(wf_trace *t, uint32_t views)
{
    if (views <= t->capviews) {
        return 0;
    }
    uint32_t cap = views * 2;
    wf_view *v = wf_realloc(t->views, cap * sizeof *v);
    t->views = v ? v : t->views;
    int32_t *w = wf_realloc(t->writes, cap * sizeof *w);
    t->writes = w ? w : t->writes;
    uint8_t *b = wf_realloc(t->began, cap);
    t->began = b ? b : t->began;
    wf_storage **m = wf_realloc(t->made, cap * sizeof *m);
    t->made = m ? m : t->made;
    if (!v || !w || !b || !m) {
        return WEFT_ENOMEM;
    }
    t->capviews = cap;
    return 0;
}

/* Memory of the segment's device that takes part in the run. */
static int lay(wf_trace *t, wf_view *v, wf_val value, wf_storage *st, bool write, wf_why *why)
{
    wf_view_of_type(v, wf_fn_type(t->fn, value), st->data);
    v->device = st->device;
    return wf_storage_use(st, write, why);
}

/* There is no memory for results. */
static int fail_results(const wf_trace *t, int rc, wf_why *why)
{
    if (!why->code) {
        wf_fail(why, rc, "out of memory for the results of '%s'", t->owner.name);
        wf_hint(why, "free tensors, end scopes sooner, or call weft_memory_trim");
    }
    return why->code;
}

int wf_job_back(void *job, uint32_t k, wf_why *why)
{
    wf_job *x = job;
    wf_storage *st = x->of->made[k];
    int rc = wf_storage_back(st, x->kept ? x->kept[k] : NULL, why);
    return rc ? fail_results(x->of, rc, why) : lay(x->of, &x->out[k], st->value, st, true, why);
}

void wf_job_drop(void *job, uint32_t j)
{
    wf_outer *o = &((wf_job *)job)->of->outer[j];
    /* what frees imported memory is not ours, and may want to record */
    if (!o->written && o->st->inline_data != WF_STORAGE_EXTERNAL &&
        atomic_load_explicit(&o->st->refs, memory_order_acquire) == 1) {
        wf_storage_let_go(o->st);
        o->st = NULL;
    }
}

/* Declares outputs and lays out the memory there is. */
static int prepare(wf_trace *t, wf_job *job, wf_why *why)
{
    wf_fn *f = t->fn;
    uint32_t n = sweep(t) + t->written;
    if (reserve(t, f->ninputs + n)) {
        return WEFT_ENOMEM;
    }
    wf_view *in = t->views, *out = t->views + f->ninputs;
    for (uint32_t i = 0; i < t->nouter; i++) {
        if (lay(t, &in[i], f->inputs[i], t->outer[i].st, t->outer[i].written, why)) {
            return why->code;
        }
    }
    uint32_t k = 0;
    for (wf_storage *st = t->first; st; st = st->next) {
        if (st->value) {
            if (wf_fn_output(f, st->value)) {
                return WEFT_ENOMEM;
            }
            out[k].data = NULL;
            t->made[k] = st;
            t->writes[k++] = -1;
        }
    }
    for (uint32_t i = 0; i < t->nouter; i++) {
        if (t->outer[i].written) {
            if (wf_fn_output(f, t->outer[i].value)) {
                return WEFT_ENOMEM;
            }
            t->writes[k] = (int32_t)i;
            if (lay(t, &out[k++], t->outer[i].value, t->outer[i].st, true, why)) {
                return why->code;
            }
        }
    }
    if (k) {
        memset(t->began, 0, k);
    }
    *job = (wf_job){.fn = f,
                    .writes = t->writes,
                    .in = in,
                    .out = out,
                    .began = t->began,
                    .device = t->base.device,
                    .noutputs = k,
                    .of = t,
                    .note = t->note};
    return 0;
}

/* After a failure: inputs whose memory is half changed, and those that were broken and have not been written anew.
 * All others are what they were. */
static void break_written(wf_trace *t, const wf_job *job)
{
    for (uint32_t i = 0; i < t->nouter; i++) {
        if (t->outer[i].written && t->outer[i].broken) {
            t->outer[i].st->broken = t->outer[i].broken;
        }
    }
    for (uint32_t k = 0; k < job->noutputs; k++) {
        if (job->began[k] && job->writes[k] >= 0) {
            wf_storage *st = t->outer[job->writes[k]].st;
            st->broken = 1;
            st->write_op = (uint16_t)job->failed_op;
            st->write_site = job->failed_site; /* not that of the last write that was recorded */
        }
    }
}

void wf_trace_tell(wf_trace *t, const char *site)
{
    if (t->unsited && t->owner.broke) {
        t->owner.broke(t->owner.user, t->unsited, site);
    }
    t->unsited = NULL;
}

/* A new segment. */
static void restart(wf_trace *t)
{
    drop_outer(t);
    t->serial = next_serial();
    t->epoch++;
    if (!t->fn || t->fn->n) { /* what has been recorded stays to be compared with */
        wf_fn *old = t->before;
        t->before = t->fn;
        t->fn = old;
    }
    if (t->fn) {
        wf_fn_clear(t->fn);
    } else {
        t->fn = wf_fn_new(t->owner.name);
    }
}

int wf_trace_commit(wf_trace *t, wf_why *why)
{
    wf_job job = {0};
    t->c->busy++; /* what it lets go of may have deleters */
    t->commits++;
    int rc = prepare(t, &job, why);
    if (rc) {
        fail_results(t, rc, why);
    } else if (t->fn->noutputs) {
        rc = t->owner.run(t->owner.user, &job, why);
        t->fn = job.fn;
    }
    if (rc) {
        break_written(t, &job);
    }
    drop_virtual(t, false, rc ? make_broken : make_real, &job);
    restart(t);
    t->c->busy--;
    if (!rc && !t->fn) {
        rc = wf_fail(why, WEFT_ENOMEM, "out of memory for the trace");
    }
    return rc;
}

int wf_trace_refusal(wf_trace *t, const char *op)
{
    const wf_why *why = &t->refused;
    if (why->code) { /* with op and operands, if the text is still there */
        const char *full = weft_error_text((weft_tensor){0, t->c->id, t->refusal});
        wf_raise_text(t->c, why->code, op, "in '%s': %s", t->owner.name,
                      strstr(full, why->rule) ? full : why->rule);
    }
    return why->code;
}

void wf_trace_close(wf_trace *t)
{
    wf_job job = {0};
    t->c->busy++;
    wf_trace_tell(t, NULL);
    sweep(t);
    drop_virtual(t, true, make_broken, &job);
    drop_outer(t);
    if (t->fn) {
        wf_fn_clear(t->fn);
    }
    wf_trace_drop_spare(t, KEPT_SPARE);
    wf_trace_set_device(t, WF_DEVICE_HOST);
    t->c->recorder = NULL;
    t->c->busy--;
}

/* -- one function, not run ---------------------------------------------------------------------------------- */

wf_trace *wf_trace_begin(const char *name)
{
    return wf_trace_open(
        &(wf_trace_owner){.name = name ? name : "f", .single_graph = true, .function = true});
}

int wf_trace_output(wf_trace *t, weft_tensor out)
{
    wf_why why = {0};
    wf_val v = 0;
    bool pinned;
    int rc = 0;
    if (out.slot == 0 && out.serial) {
        return (int)weft_error_status(out);
    }
    if (out.slot >= WF_ABSENT_SLOT) {
        rc = wf_fail(&why, WEFT_EINVALID, "an output must be a tensor");
    } else {
        wf_slot *s = wf_pin(t->c, out, &pinned, &why);
        rc = s ? wf_trace_value(t, s, &v, &why) : why.code;
        if (s && pinned) {
            wf_unpin(t->c, s);
        }
    }
    if (!rc && wf_fn_output(t->fn, v)) {
        rc = wf_fail(&why, WEFT_ENOMEM, "out of memory for the trace");
    }
    return rc ? wf_raise_status(t->c, "trace", 1, &out, &why) : 0;
}

wf_fn *wf_trace_end(wf_trace *t, weft_tensor **captured, int *n)
{
    wf_fn *f = t->fn;
    *n = 0;
    *captured = wf_malloc((t->nouter + 1u) * sizeof **captured);
    for (uint32_t i = 0; i < t->nouter; i++) {
        if (*captured) {
            (*captured)[(*n)++] = t->outer[i].handle;
        } else {
            weft_free(t->outer[i].handle);
        }
    }
    if (*captured) {
        t->fn = NULL;
    }
    wf_trace_close(t);
    wf_trace_free(t);
    return *captured ? f : NULL;
}

void wf_trace_abort(wf_trace *t)
{
    weft_tensor *captured;
    int n;
    wf_fn_free(wf_trace_end(t, &captured, &n));
    for (int i = 0; i < n; i++) {
        weft_free(captured[i]);
    }
    wf_mfree(captured);
}

/* -- running through dispatch --------------------------------------------------------------------------------- */

static weft_tensor slot_value(const wf_fn *f, uint32_t slot, const uint64_t *slots)
{
    return (weft_tensor){WF_SCALAR_SLOT, f->slot_kind[slot], slots ? slots[slot] : f->slots[slot]};
}
int wf_fn_run(const wf_fn *f, const weft_tensor *inputs, const uint64_t *slots, weft_tensor *out)
{
    static const wf_attr none;
    weft_tensor *v = malloc((f->n + 1u) * sizeof *v);
    weft_tensor *src = malloc(((size_t)wf_fn_most_src(f) + 1) * sizeof *src);
    wf_ctx *c = wf_ctx_get();
    if (!v || !src || !c) {
        free(v);
        free(src);
        wf_raise_text(c, WEFT_ENOMEM, "run", "out of memory");
        return WEFT_ENOMEM;
    }
    weft_scope sc = weft_scope_begin();
    int rc = 0;
    v[0] = WF_ABSENT;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        const wf_ins *i = &f->ins[k];
        const wf_val *s = wf_ins_src(f, i);
        for (int a = 0; a < i->nsrc; a++) {
            src[a] = v[s[a]];
        }
        if (i->op == WF_OP_INPUT) {
            v[k + 1] = inputs[i->attr];
        } else if (wf_op_is_weak(i->op)) {
            v[k + 1] = slot_value(f, i->attr, i->op == WF_OP_CONST ? NULL : slots);
        } else if (i->op != WF_OP_RESULT) { /* further results are stored with their op */
            c->grad_off += (i->flags & WF_INS_NOGRAD) ? 1 : 0;
            if (i->op == WF_OP_AS_STRIDED) { /* its map is over the value, not over some storage */
                src[0] = weft_contiguous(src[0]);
            }
            rc = wf_dispatch((wf_op)i->op, i->attr ? &f->attrs[i->attr] : &none, i->nsrc, src,
                             wf_rows[i->op].ndst, &v[k + 1]);
            c->grad_off -= (i->flags & WF_INS_NOGRAD) ? 1 : 0;
        }
    }
    for (uint32_t k = 0; k < f->noutputs; k++) {
        out[k] = rc ? WEFT_NONE : weft_scope_give(sc, v[f->outputs[k]]);
    }
    weft_scope_end(sc);
    free(v);
    free(src);
    return rc;
}
