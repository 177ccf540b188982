/*
 * jit/frozen.c -- describing, guarding and replaying frozen calls; see frozen.h.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/pool.h"
#include "jit/capture.h"
#include "jit/frozen.h"
#include "jit/key.h"

typedef struct argument {
    uint8_t dtype, rank, device;
    bool tracked;
    int alias; /* the first argument on the same memory */
    int outer; /* what it feeds, or -1 */
    uint64_t hooks;
    int64_t offset;
    size_t nbytes;
    int64_t dims[WF_MAX_RANK], strides[WF_MAX_RANK];
} argument;

typedef struct source {
    int arg;            /* the argument, or -1: captured */
    wf_storage *st;     /* captured: referenced */
    weft_tensor handle; /* captured: through which it is reached */
    bool tracked, written;
    uint32_t bumps; /* of the version */
    uint16_t write_op;
    uint64_t hooks;
} source;

enum { OUT_VALUE, OUT_MADE, OUT_ARG };
typedef struct output {
    uint8_t kind, dtype, rank;
    int index; /* OUT_MADE: result of the function; OUT_ARG: argument */
    int64_t offset;
    weft_tensor value; /* OUT_VALUE: a scalar, a captured tensor, the empty handle */
    int64_t dims[WF_MAX_RANK], strides[WF_MAX_RANK];
} output;

struct wf_frozen {
    _Atomic int refs;
    _Atomic uint32_t count;
    int n_in, n_source, n_out;
    uint32_t n_made;
    int device;   /* of the run */
    uint8_t home; /* the thread's default device */
    bool grad;
    argument *in;
    source *src;
    output *out;
    size_t *made_bytes;
    int32_t *writes; /* per result, as plans have it */
    wf_fn *fn;
    wf_plan *plan;
    pthread_mutex_t lock; /* of what follows */
    wf_capture *capture;  /* NULL: none yet */
    int replays;          /* step by step */
    bool calm;            /* the last of them did what all later ones will do */
    bool uncapturable;
};

void wf_frozen_retain(wf_frozen *z)
{
    atomic_fetch_add_explicit(&z->refs, 1, memory_order_relaxed);
}

void wf_frozen_release(wf_frozen *z)
{
    if (!z || atomic_fetch_sub_explicit(&z->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (int i = 0; z->src && i < z->n_source; i++) {
        if (z->src[i].st) {
            atomic_fetch_sub_explicit(&z->src[i].st->held, 1, memory_order_relaxed);
            wf_storage_release(z->src[i].st);
        }
    }
    wf_mfree(z->in);
    wf_mfree(z->src);
    wf_mfree(z->out);
    wf_mfree(z->made_bytes);
    wf_mfree(z->writes);
    wf_capture_free(z->capture);
    pthread_mutex_destroy(&z->lock);
    wf_fn_free(z->fn);
    wf_plan_release(z->plan);
    wf_mfree(z);
}

uint32_t wf_frozen_count(wf_frozen *z)
{
    return atomic_fetch_add_explicit(&z->count, 1, memory_order_relaxed) + 1;
}

void wf_frozen_arm(wf_frozen *z, wf_fn *fn, const int32_t *writes, wf_plan *p)
{
    z->fn = fn;
    z->plan = p;
    for (uint32_t k = 0; k < fn->noutputs; k++) {
        z->writes[k] = writes[k];
    }
    wf_plan_retain(p);
}

/* -- describing ------------------------------------------------------------------------------------------------ */

static bool refuse(char *reason, const char *fmt, ...) WF_PRINTF(2, 3);
static bool refuse(char *reason, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, WF_REASON, fmt, ap);
    va_end(ap);
    return false;
}

static bool same_handle(weft_tensor a, weft_tensor b)
{
    return a.slot == b.slot && a.context == b.context && a.serial == b.serial;
}

/* Stands for the hooks of s: a backward inside the function calls them, so what was recorded holds only for these. */
static uint64_t hooks_of(wf_slot *s)
{
    wf_meta *m = wf_slot_tracked(s) ? atomic_load_explicit(&s->meta, memory_order_acquire) : NULL;
    uint64_t sum = 0;
    if (m) {
        wf_meta_lock(m);
        for (const wf_hook *h = m->hooks; h; h = h->next) {
            sum = sum * 0x9E3779B97F4A7C15u + h->id;
        }
        wf_meta_unlock(m);
    }
    return sum;
}

static void describe_slot(argument *a, wf_slot *s)
{
    a->hooks = hooks_of(s);
    a->dtype = s->dtype;
    a->rank = s->rank;
    a->device = s->st->device;
    a->tracked = wf_slot_tracked(s);
    a->offset = s->offset;
    a->nbytes = s->st->nbytes;
    memcpy(a->dims, wf_dims(s), (size_t)s->rank * sizeof a->dims[0]);
    memcpy(a->strides, wf_strides(s), (size_t)s->rank * sizeof a->strides[0]);
}

/* Pins every argument; false: one is not a live tensor. slot[i] is given back by close_args. */
typedef struct args {
    wf_slot **slot;
    bool *pinned;
    int n;
    wf_slot *slot_[32];
    bool pinned_[32];
} args;

static void close_args(wf_ctx *c, args *a)
{
    for (int i = 0; i < a->n; i++) {
        if (a->pinned[i]) {
            wf_unpin(c, a->slot[i]);
        }
    }
    if (a->slot != a->slot_) {
        wf_mfree(a->slot);
        wf_mfree(a->pinned);
    }
}

/* A call that is not recorded has no virtual storage of its own: another thread's trace will compute this one. */
static bool has_memory(wf_storage *st)
{
    return !atomic_load_explicit(&st->is_virtual, memory_order_acquire);
}

static bool open_args(wf_ctx *c, args *a, const weft_tensor *in, int n, char *reason)
{
    bool few = n <= 32;
    a->n = 0;
    a->slot = few ? a->slot_ : wf_malloc((size_t)n * sizeof *a->slot);
    a->pinned = few ? a->pinned_ : wf_malloc((size_t)n * sizeof *a->pinned);
    bool ok = (a->slot && a->pinned) || refuse(reason, "there is no memory");
    for (int i = 0; i < n && ok; i++) {
        a->pinned[i] = false;
        a->slot[i] = in[i].slot < WF_ABSENT_SLOT ? wf_pin(c, in[i], &a->pinned[i], NULL) : NULL;
        a->n = i + 1;
        ok = a->slot[i] || refuse(reason, "argument %d is not a live tensor", i);
        ok = ok && (has_memory(a->slot[i]->st) ||
                    refuse(reason, "argument %d is still being recorded by another thread", i));
        ok = ok &&
             (!a->slot[i]->st->broken || refuse(reason, "argument %d holds no valid value", i));
    }
    return ok;
}

/* The first argument on the memory of argument i. */
static int first_on(const args *a, int i)
{
    const wf_storage *st = a->slot[i]->st;
    int k = 0;
    while (a->slot[k]->st != st) {
        k++;
    }
    return k;
}

static bool describe_sources(wf_frozen *z, wf_trace *t, const args *a, const weft_tensor *in,
                             char *reason)
{
    for (int i = 0; i < a->n; i++) {
        describe_slot(&z->in[i], a->slot[i]);
        z->in[i].outer = -1;
        z->in[i].alias = first_on(a, i);
    }
    for (int k = 0; k < z->n_source; k++) {
        const wf_outer *o = &t->outer[k];
        source *s = &z->src[k];
        *s = (source){.arg = -1, .written = o->written};
        for (int i = a->n; i-- > 0;) {
            if (a->slot[i]->st == o->st) {
                z->in[i].outer = k;
                s->arg = same_handle(o->first, in[i]) ? i : s->arg;
            }
        }
        if (o->mixed && s->arg >= 0) {
            return refuse(reason, "argument %d is a captured tensor too", s->arg);
        }
        s->bumps = atomic_load(&o->st->version) - o->version;
        s->write_op = o->st->write_op;
        if (o->st->root) {
            return refuse(reason, "a tensor that is written takes part in gradients");
        }
        if (s->arg >= 0) {
            continue;
        }
        bool pinned;
        wf_slot *slot = wf_pin(t->c, o->first, &pinned, NULL);
        if (!slot || !pinned) { /* made by the call, or of a scope that may end */
            return refuse(reason,
                          "it uses a tensor that it makes from memory, or that is not kept");
        }
        s->tracked = wf_slot_tracked(slot);
        s->hooks = hooks_of(slot);
        wf_unpin(t->c, slot);
        s->handle = o->first;
        s->st = o->st;
        atomic_fetch_add_explicit(&s->st->held, 1, memory_order_relaxed);
        wf_storage_retain(s->st);
    }
    return true;
}

/* Which result of the function lives in st, -1: none. */
static int made_index(wf_trace *t, const wf_storage *st)
{
    int k = 0;
    for (const wf_storage *p = t->first; p; p = p->next) {
        if (p == st) {
            return p->value ? k : -1;
        }
        k += p->value != 0;
    }
    return -1;
}

static bool describe_output(wf_frozen *z, wf_trace *t, const weft_tensor *in, weft_tensor h, int i,
                            int *handles, char *reason)
{
    output *o = &z->out[i];
    *o = (output){.kind = OUT_VALUE, .value = h};
    if (h.slot == 0 || h.slot >= WF_ABSENT_SLOT) {
        return true;
    }
    for (int k = 0; k < z->n_in; k++) {
        if (same_handle(in[k], h)) {
            o->kind = OUT_ARG;
            o->index = k;
            return true;
        }
    }
    bool pinned;
    wf_slot *s = wf_pin(t->c, h, &pinned, NULL);
    if (!s) {
        return refuse(reason, "output %d is not a live tensor", i);
    }
    o->index = made_index(t, s->st);
    bool ok = true;
    if (o->index < 0 && !pinned) {
        ok = refuse(reason, "output %d is a view of a tensor from outside", i);
    } else if (o->index >= 0 && pinned) {
        ok = refuse(reason, "it keeps output %d", i);
    } else if (wf_slot_tracked(s)) {
        ok = refuse(reason, "output %d has a gradient history", i);
    } else if (o->index >= 0) {
        o->kind = OUT_MADE;
        o->dtype = s->dtype;
        o->rank = s->rank;
        o->offset = s->offset;
        memcpy(o->dims, wf_dims(s), (size_t)s->rank * sizeof o->dims[0]);
        memcpy(o->strides, wf_strides(s), (size_t)s->rank * sizeof o->strides[0]);
        *handles += 1;
        for (int k = 0; k < i; k++) {
            *handles -= z->out[k].kind == OUT_MADE && same_handle(z->out[k].value, h);
        }
    }
    if (pinned) {
        wf_unpin(t->c, s);
    }
    return ok;
}

/* The first row that draws random numbers, or WF_OP_INVALID: a replay would leave the generator where it is. */
static wf_op random_row(const wf_fn *f)
{
    for (uint32_t k = 0; k < f->n; k++) {
        if (f->ins[k].op >= WF_OP_RAND && f->ins[k].op <= WF_OP_RANDPERM) {
            return (wf_op)f->ins[k].op;
        }
    }
    return WF_OP_INVALID;
}

static bool describe(wf_frozen *z, wf_trace *t, const weft_tensor *in, const weft_tensor *out,
                     char *reason)
{
    args a;
    wf_op draws = random_row(t->fn);
    if (draws != WF_OP_INVALID) {
        return refuse(reason, "it draws random numbers (%s)", wf_rows[draws].name);
    }
    if (t->peeked) {
        return refuse(reason, "it reads a value of a tensor (%s)", t->peeked);
    }
    if (t->commits) {
        return refuse(reason, "it breaks its graph");
    }
    if (t->c->device != z->home) {
        return refuse(reason, "it changes the default device");
    }
    bool ok = open_args(t->c, &a, in, z->n_in, reason) && describe_sources(z, t, &a, in, reason);
    close_args(t->c, &a);
    int handles = 0, refs = 0;
    for (int i = 0; i < z->n_out && ok; i++) {
        ok = describe_output(z, t, in, out[i], i, &handles, reason);
    }
    uint32_t k = 0;
    for (const wf_storage *st = t->first; st && ok; st = st->next) {
        if (st->value) {
            int others = atomic_load(&((wf_storage *)(uintptr_t)st)->refs) - 1; /* the trace's */
            if (others == 0) { /* the commit will not compute it */
                return refuse(reason, "another thread frees a tensor that it makes");
            }
            refs += others;
            z->made_bytes[k++] = st->nbytes;
        }
    }
    return ok && (refs == handles ||
                  refuse(reason, "%d tensors or saved values besides its outputs outlive it",
                         refs - handles));
}

wf_frozen *wf_frozen_describe(wf_trace *t, const weft_tensor *in, int n_in, const weft_tensor *out,
                              int n_out, bool grad, int home, char reason[WF_REASON])
{
    wf_frozen *z = wf_malloc(sizeof *z);
    if (!z) {
        refuse(reason, "there is no memory");
        return NULL;
    }
    memset(z, 0, sizeof *z);
    atomic_store(&z->refs, 1);
    pthread_mutex_init(&z->lock, NULL);
    z->n_in = n_in;
    z->n_source = (int)t->nouter;
    z->n_out = n_out;
    z->grad = grad;
    z->home = (uint8_t)home;
    z->device = t->base.device;
    for (const wf_storage *st = t->first; st; st = st->next) {
        z->n_made += st->value != 0;
    }
    z->in = wf_malloc((size_t)n_in * sizeof *z->in + 1);
    z->src = wf_malloc(t->nouter * sizeof *z->src + 1);
    z->out = wf_malloc((size_t)n_out * sizeof *z->out + 1);
    z->made_bytes = wf_malloc(z->n_made * sizeof *z->made_bytes + 1);
    z->writes = wf_malloc((z->n_made + t->nouter) * sizeof *z->writes + 1);
    if (z->src) {
        memset(z->src, 0, t->nouter * sizeof *z->src);
    }
    if (!z->in || !z->src || !z->out || !z->made_bytes || !z->writes) {
        refuse(reason, "there is no memory");
    } else if (describe(z, t, in, out, reason)) {
        return z;
    }
    wf_frozen_release(z);
    return NULL;
}

/* -- comparing ---------------------------------------------------------------------------------------------------- */

static bool same_map(int rank, const int64_t *d, const int64_t *e, const int64_t *s,
                     const int64_t *t)
{
    for (int i = 0; i < rank; i++) {
        if (d[i] != e[i] || s[i] != t[i]) {
            return false;
        }
    }
    return true;
}

/* An argument as a guard sees it: nothing is copied. */
typedef struct seen {
    uint8_t dtype, rank, device;
    bool tracked;
    int alias;
    uint64_t hooks;
    int64_t offset;
    size_t nbytes;
    const int64_t *dims, *strides;
} seen;

static inline seen seen_slot(wf_slot *s, int alias)
{
    return (seen){.dtype = s->dtype,
                  .rank = s->rank,
                  .device = s->st->device,
                  .tracked = wf_slot_tracked(s),
                  .alias = alias,
                  .hooks = hooks_of(s),
                  .offset = s->offset,
                  .nbytes = s->st->nbytes,
                  .dims = wf_dims(s),
                  .strides = wf_strides(s)};
}

static seen seen_argument(const argument *a)
{
    return (seen){.dtype = a->dtype,
                  .rank = a->rank,
                  .device = a->device,
                  .tracked = a->tracked,
                  .alias = a->alias,
                  .hooks = a->hooks,
                  .offset = a->offset,
                  .nbytes = a->nbytes,
                  .dims = a->dims,
                  .strides = a->strides};
}

static inline bool same_argument(const argument *x, const seen *y, int i, char *reason)
{
    const bool shape = x->dtype == y->dtype && x->rank == y->rank &&
                       same_map(x->rank, x->dims, y->dims, x->dims, y->dims);
    if (!shape) {
        return refuse(reason, "argument %d has another type or shape", i);
    }
    if (x->device != y->device) {
        return refuse(reason, "argument %d is on another device", i);
    }
    if (!same_map(x->rank, x->dims, y->dims, x->strides, y->strides) || x->offset != y->offset ||
        x->nbytes != y->nbytes) {
        return refuse(reason, "argument %d lies differently in memory", i);
    }
    if (x->alias != y->alias) {
        return refuse(reason, "argument %d shares memory with other arguments than before", i);
    }
    if (x->tracked != y->tracked) {
        return refuse(reason, "argument %d differs in whether gradients flow to it", i);
    }
    return x->hooks == y->hooks || refuse(reason, "argument %d has other hooks", i);
}

bool wf_frozen_agree(const wf_frozen *a, const wf_frozen *b, char reason[WF_REASON])
{
    if (a->n_in != b->n_in || a->n_out != b->n_out || a->n_source != b->n_source ||
        a->n_made != b->n_made) {
        return refuse(reason, "it has other inputs or results than before");
    }
    if (a->grad != b->grad || a->device != b->device) {
        return refuse(reason, a->grad != b->grad ? "the grad mode differs" : "the device differs");
    }
    if (a->home != b->home) {
        return refuse(reason, "the default device differs");
    }
    for (int i = 0; i < a->n_in; i++) {
        const seen other = seen_argument(&b->in[i]);
        if (!same_argument(&a->in[i], &other, i, reason) || a->in[i].outer != b->in[i].outer) {
            return false;
        }
    }
    for (int i = 0; i < a->n_source; i++) {
        const source *x = &a->src[i], *y = &b->src[i];
        if (x->arg != y->arg || x->st != y->st || !same_handle(x->handle, y->handle) ||
            x->tracked != y->tracked || x->written != y->written || x->bumps != y->bumps) {
            return refuse(reason, "input %d is another captured tensor than before", i);
        }
    }
    for (int i = 0; i < a->n_out; i++) {
        const output *x = &a->out[i], *y = &b->out[i];
        bool made = x->kind == OUT_MADE;
        if (x->kind != y->kind || x->index != y->index || x->dtype != y->dtype ||
            x->rank != y->rank || x->offset != y->offset ||
            (x->kind == OUT_VALUE && !same_handle(x->value, y->value)) ||
            (made && !same_map(x->rank, x->dims, y->dims, x->strides, y->strides))) {
            return refuse(reason, "output %d is made in another way than before", i);
        }
    }
    return true;
}

bool wf_frozen_numbers(const wf_fn *a, const wf_fn *b, char reason[WF_REASON])
{
    for (uint32_t k = 0; k < a->n; k++) {
        const wf_ins *x = &a->ins[k], *y = &b->ins[k];
        bool same = true;
        if (x->op == WF_OP_SCALAR) {
            same = a->slots[x->attr] == b->slots[y->attr];
        } else if (x->op > WF_OP_RESULT && x->attr) {
            const wf_attr *p = &a->attrs[x->attr], *q = &b->attrs[y->attr];
            same = (!p->n_dyn || memcmp(p->dyn, q->dyn, p->n_dyn * sizeof *p->dyn) == 0) &&
                   (!p->n_flt || memcmp(p->flt, q->flt, p->n_flt * sizeof *p->flt) == 0);
        }
        if (!same) {
            const wf_ins *user = x;
            for (uint32_t u = k + 1; x->op == WF_OP_SCALAR && u < a->n && user == x; u++) {
                const wf_val *src = wf_ins_src(a, &a->ins[u]);
                for (int i = 0; i < a->ins[u].nsrc; i++) {
                    user = src[i] == k + 1 ? &a->ins[u] : user;
                }
            }
            const char *site = a->locs[user->loc];
            return refuse(reason, "a number of %s%s%s changed", wf_rows[user->op].name,
                          site ? " at " : "", site ? site : "");
        }
    }
    return true;
}

bool wf_frozen_same(const wf_frozen *z, const wf_frozen *now, const wf_fn *fn,
                    const int32_t *writes, char reason[WF_REASON])
{
    if (!wf_key_same(z->fn, z->writes, fn, writes)) {
        return refuse(reason, "the function records other ops than it did");
    }
    return wf_frozen_numbers(z->fn, fn, reason) && wf_frozen_agree(z, now, reason);
}

/* -- replaying ----------------------------------------------------------------------------------------------------- */

static bool guard_args(wf_frozen *z, const args *a, char *reason)
{
    for (int i = 0; i < a->n; i++) {
        const wf_storage *st = a->slot[i]->st;
        const seen now = seen_slot(a->slot[i], first_on(a, i));
        if (!same_argument(&z->in[i], &now, i, reason)) {
            return false;
        }
        int outer = z->in[i].outer;
        if (outer >= 0 && z->src[outer].arg < 0 && st != z->src[outer].st) {
            return refuse(reason, "argument %d was a captured tensor", i);
        }
        for (int k = 0; k < z->n_source; k++) {
            if (k != outer && z->src[k].st == st) {
                return refuse(reason, "argument %d shares memory with a captured tensor", i);
            }
        }
        if (st->inline_data == WF_STORAGE_EXTERNAL) {
            return refuse(reason, "argument %d is imported memory", i);
        }
    }
    return true;
}

static bool guard_captured(wf_frozen *z, wf_ctx *c, char *reason)
{
    for (int k = 0; k < z->n_source; k++) {
        const source *s = &z->src[k];
        if (!s->st) {
            continue;
        }
        bool pinned;
        wf_slot *slot = wf_pin(c, s->handle, &pinned, NULL);
        bool ok = slot && slot->st == s->st && wf_slot_tracked(slot) == s->tracked &&
                  !s->st->root && hooks_of(slot) == s->hooks;
        if (slot && pinned) {
            wf_unpin(c, slot);
        }
        if (!ok || s->st->broken) {
            return refuse(reason, "a captured tensor (input %d) is not what it was", k);
        }
    }
    return true;
}

bool wf_frozen_is_dead(const wf_frozen *z, wf_ctx *c)
{
    bool dead = false;
    for (int k = 0; k < z->n_source && !dead; k++) {
        bool pinned = false;
        wf_slot *slot = z->src[k].st ? wf_pin(c, z->src[k].handle, &pinned, NULL) : NULL;
        dead = z->src[k].st && !slot;
        if (pinned) {
            wf_unpin(c, slot);
        }
    }
    return dead;
}

bool wf_frozen_guard(wf_frozen *z, wf_ctx *c, const weft_tensor *in, int n_in, int n_out,
                     char reason[WF_REASON])
{
    args a;
    if (n_in != z->n_in || n_out != z->n_out) {
        return refuse(reason, "another number of arguments or outputs");
    }
    if (wf_grad_enabled(c) != z->grad) {
        return refuse(reason, "the grad mode differs");
    }
    if (c->device != z->home) {
        return refuse(reason, "the default device differs");
    }
    bool ok = open_args(c, &a, in, n_in, reason) && guard_args(z, &a, reason);
    close_args(c, &a);
    return ok && guard_captured(z, c, reason);
}

/* Everything a replay needs in one block. */
typedef struct replay {
    wf_view *in, *out;
    wf_storage **made;
    wf_storage **source;
    uint8_t *began; /* per output */
} replay;

/* Memory of a replay. */
static int lay(const wf_frozen *z, wf_view *v, wf_val value, wf_storage *st, bool write,
               wf_why *why)
{
    wf_view_of_type(v, wf_fn_type(z->fn, value), st->data);
    v->device = st->device;
    return wf_storage_use(st, write, why);
}

static int make_memory(wf_frozen *z, const args *a, replay *r, wf_why *why)
{
    for (int k = 0; k < z->n_source; k++) {
        r->source[k] = z->src[k].arg >= 0 ? a->slot[z->src[k].arg]->st : z->src[k].st;
    }
    for (uint32_t k = 0; k < z->n_made; k++) {
        r->made[k] = wf_storage_new_on(z->device, z->made_bytes[k], why);
        if (!r->made[k]) {
            return why->code ? why->code : WEFT_ENOMEM;
        }
    }
    return 0;
}

static int lay_out(wf_frozen *z, replay *r, wf_why *why)
{
    const wf_fn *f = z->fn;
    for (int k = 0; k < z->n_source; k++) {
        if (lay(z, &r->in[k], f->inputs[k], r->source[k], z->src[k].written, why)) {
            return why->code;
        }
    }
    uint32_t at = 0;
    for (; at < z->n_made; at++) {
        if (lay(z, &r->out[at], f->outputs[at], r->made[at], true, why)) {
            return why->code;
        }
    }
    for (int k = 0; k < z->n_source; k++) {
        if (z->src[k].written) {
            if (lay(z, &r->out[at], f->outputs[at], r->source[k], true, why)) {
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
            st->write_site = NULL;
            st->broken = failed != NULL;
        }
        at += z->src[k].written;
    }
}

static int make_outputs(wf_frozen *z, wf_ctx *c, const weft_tensor *in, const replay *r,
                        weft_tensor *out, wf_why *why)
{
    int rc = 0;
    for (int i = 0; i < z->n_out && !rc; i++) {
        const output *o = &z->out[i];
        weft_tensor h = o->value;
        if (o->kind == OUT_ARG) {
            h = in[o->index];
        } else if (o->kind == OUT_MADE) {
            wf_storage *st = r->made[o->index];
            h = wf_wrap_view(c, st, (char *)st->data + o->offset, o->dtype, o->rank, o->dims,
                             o->strides);
            rc = h.slot ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory for a handle");
        }
        out[i] = h;
    }
    return rc;
}

/* -- replaying as one launch ------------------------------------------------------------------------------------------ */

enum {
    CAPTURE_FROM = 2,
    CAPTURE_ANYWAY = 24
}; /* replays before a capture; kernels not made by then will not be */

/* Called with the lock. The capture of this call's steps; NULL: not now, or never. */
static wf_capture *capture_now(wf_frozen *z, const replay *r, wf_frozen_how *how)
{
    bool *flags = wf_malloc(2 * (size_t)z->n_source + 1);
    wf_why why = {0};
    for (int k = 0; flags && k < z->n_source; k++) {
        flags[k] = z->src[k].arg >= 0;
        flags[z->n_source + k] = z->src[k].written;
    }
    const wf_capture_of what = {.fn = z->fn,
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

/* The capture to run; NULL: run the steps. */
static wf_capture *find_capture(wf_frozen *z, const replay *r, wf_frozen_how *how)
{
    if (!wf_capture_can(z->device)) {
        return NULL;
    }
    wf_capture *c = NULL;
    pthread_mutex_lock(&z->lock);
    bool ready = z->replays >= CAPTURE_FROM && (z->calm || z->replays >= CAPTURE_ANYWAY);
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
    pthread_mutex_unlock(&z->lock);
    return c;
}

static int run_steps(wf_frozen *z, replay *r, wf_plan_args *p, wf_why *why)
{
    bool can = wf_capture_can(z->device);
    int64_t before = can ? wf_capture_unsettled(z->device) : 0;
    int rc = lay_out(z, r, why);
    p->failed_op = WF_OP_INVALID;
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
    wf_plan_args p = {
        .fn = z->fn, .in = r->in, .out = r->out, .device = z->device, .began = r->began};
    wf_capture *c = find_capture(z, r, how);
    bool launched = false;
    int rc = c ? wf_capture_run(c, r->source, r->made, &launched, why) : 0;
    if (!launched) {
        if (c) { /* what stood in the way of a launch may not be in the way of steps */
            *why = (wf_why){0};
        }
        return run_steps(z, r, &p, why);
    }
    how->captured = true;
    if (rc) {
        p.failed_op = WF_OP_COPY;
        memset(r->began, 1, z->n_made + (size_t)z->n_source);
    }
    mark_written(z, r, rc ? &p : NULL);
    return rc;
}

int wf_frozen_run(wf_frozen *z, wf_ctx *c, const weft_tensor *in, weft_tensor *out,
                  wf_frozen_how *how, wf_why *why)
{
    size_t ns = (size_t)z->n_source, nm = z->n_made;
    char *block = wf_malloc((2 * ns + nm) * sizeof(wf_view) + (ns + nm) * (sizeof(void *) + 1) + 1);
    args a = {.n = 0, .slot = a.slot_, .pinned = a.pinned_};
    char reason[WF_REASON];
    *how = (wf_frozen_how){.captured = false};
    if (!block) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for a frozen call");
    }
    replay r = {.in = (wf_view *)(void *)block};
    r.out = r.in + ns;
    r.made = (wf_storage **)(void *)(r.out + ns + nm);
    r.source = r.made + nm;
    r.began = (uint8_t *)(void *)(r.source + ns);
    memset(r.made, 0, nm * sizeof *r.made);
    int rc = open_args(c, &a, in, z->n_in, reason) ? make_memory(z, &a, &r, why)
                                                   : wf_fail(why, WEFT_EHANDLE, "%s", reason);
    rc = rc ? rc : run_somehow(z, &r, how, why);
    rc = rc ? rc : make_outputs(z, c, in, &r, out, why);
    if (rc == WEFT_ENOMEM && !why->code) {
        wf_fail(why, rc, "out of memory for the results");
    }
    for (size_t k = 0; k < nm; k++) {
        if (r.made[k]) {
            wf_storage_release(r.made[k]);
        }
    }
    close_args(c, &a);
    wf_mfree(block);
    return rc;
}
