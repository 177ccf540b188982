/*
 * eager/ctx.c -- thread contexts, slots, handles and scopes.
 *
 * Invariants: a context belongs to one live thread at a time and is recycled, never freed, so that
 * kept handles of a finished thread stay valid; slot chunks never move; a slot is destroyed by the
 * one who marks it DEAD, or by the last pin that outlives the mark.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/borrow.h"
#include "eager/env.h"
#include "eager/profile.h"
#include "eager/tensor.h"
#include "jit/ir/ir.h"

_Thread_local wf_ctx *wf_tls_ctx __attribute__((tls_model("initial-exec")));

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(wf_ctx *) registry[WF_MAX_CTX];
static uint32_t registry_count = 1; /* id 0 is nobody */
static wf_ctx *free_contexts;
static pthread_key_t exit_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int exit_key_ok;

const wf_tape_hooks *_Atomic wf_tape_api;

wf_ctx *wf_ctx_at(uint32_t id)
{
    return id < WF_MAX_CTX ? atomic_load_explicit(&registry[id], memory_order_acquire) : NULL;
}

/* Where a debugger finds what handles mean: tools/weft-gdb.py reads it, from core files too, as 8-byte words. */
extern WEFT_API const uint64_t weft_debug_layout[];
extern WEFT_API void *const weft_debug_contexts;
const uint64_t weft_debug_layout[] = {
    1, /* version of this list */
    WF_MAX_CTX,
    offsetof(wf_ctx, chunks),
    WF_CHUNK_SLOTS,
    sizeof(wf_slot),
    offsetof(wf_slot, state),
    offsetof(wf_slot, dtype),
    offsetof(wf_slot, rank),
    offsetof(wf_slot, st),
    offsetof(wf_slot, offset),
    offsetof(wf_slot, ext),
    offsetof(wf_slot, meta),
    offsetof(wf_slot, site),
    offsetof(wf_slot, dims_),
    offsetof(wf_slot, strides_),
    offsetof(wf_storage, device),
    offsetof(wf_storage, is_virtual),
    offsetof(wf_storage, data),
    offsetof(wf_meta, name),
    WF_SCALAR_SLOT,
    WF_SCALAR_FLOAT,
    WF_ABSENT_SLOT,
    offsetof(wf_ctx, errors),
    WF_ERRORS,
    sizeof(wf_error),
    offsetof(wf_error, id),
    offsetof(wf_error, text),
};
void *const weft_debug_contexts = registry;

static void end_all_scopes(wf_ctx *c);

/* Runs when a thread that used weft ends. */
static void context_close(void *arg)
{
    wf_ctx *c = arg;
    if (wf_lends_some(c)) { /* to a region that has not ended */
        wf_end_lend(c);
    }
    end_all_scopes(c);
    if (c->recorder) {
        c->recorder->close(c->recorder);
    }
    if (wf_tape_api) {
        wf_tape_api->close(c);
    }
    wf_tls_ctx = NULL;
    pthread_mutex_lock(&registry_lock);
    c->next_free = free_contexts;
    free_contexts = c;
    pthread_mutex_unlock(&registry_lock);
}

/* A forked child finds the registry whole and its lock free; nothing else is locked under it. */
static void before_fork(void)
{
    pthread_mutex_lock(&registry_lock);
}
static void after_fork(void)
{
    pthread_mutex_unlock(&registry_lock);
}

static void set_up(void)
{
    wf_borrow_set_up();
    wf_grow_moves = wf_env_stress("move", NULL);
    exit_key_ok = pthread_key_create(&exit_key, context_close) == 0;
    pthread_atfork(before_fork, after_fork, after_fork);
}

static int scopes_reserve(wf_ctx *c, uint32_t depth)
{
    if (depth < c->scopes_cap) {
        return 0;
    }
    uint32_t cap = c->scopes_cap ? c->scopes_cap * 2 : 64;
    wf_scope_rec *p = wf_realloc(c->scopes, cap * sizeof *p);
    if (!p) {
        return WEFT_ENOMEM;
    }
    c->scopes = p;
    c->scopes_cap = cap;
    return 0;
}

static wf_ctx *context_new(void)
{
    wf_ctx *c = calloc(1, sizeof *c);
    if (!c) {
        return NULL;
    }
    c->chunks = calloc(WF_MAX_CHUNKS, sizeof *c->chunks);
    c->errors = calloc(WF_ERRORS, sizeof *c->errors);
    if (!c->chunks || !c->errors || scopes_reserve(c, 1) != 0 || registry_count >= WF_MAX_CTX) {
        free(c->chunks);
        free(c->errors);
        wf_mfree(c->scopes);
        free(c);
        return NULL;
    }
    c->id = registry_count++;
    c->error_next = 1;
    c->scope_serial = 1;
    atomic_store_explicit(&registry[c->id], c, memory_order_release);
    return c;
}

wf_ctx *wf_ctx_open(void)
{
    pthread_once(&once, set_up);
    wf_prof_from_env();
    pthread_mutex_lock(&registry_lock);
    wf_ctx *c = free_contexts;
    if (c) {
        free_contexts = c->next_free;
    } else {
        c = context_new();
    }
    pthread_mutex_unlock(&registry_lock);
    if (!c) {
        return NULL;
    }
    c->depth = 1; /* the thread's root scope */
    c->scopes[1] = (wf_scope_rec){.head = 0, .serial = ++c->scope_serial};
    c->grad_off = 0;
    c->busy = c->sealed = 0;
    c->recorder = NULL;
    c->region = (wf_plain_region){.of = NULL};
    c->called = NULL;
    c->here = NULL;
    c->error_last = 0;
    c->rng = (weft_generator){0, 0};
    wf_tls_ctx = c;
    if (exit_key_ok) {
        pthread_setspecific(exit_key, c);
    }
    return c;
}

/* -- slots -------------------------------------------------------------------------------------------- */

static int chunk_add(wf_ctx *c)
{
    uint32_t n = atomic_load_explicit(&c->nchunks, memory_order_relaxed);
    if (n >= WF_MAX_CHUNKS) {
        return WEFT_ENOMEM;
    }
    wf_slot *chunk = wf_malloc(WF_CHUNK_SLOTS * sizeof *chunk);
    if (!chunk) {
        return WEFT_ENOMEM;
    }
    memset(chunk, 0, WF_CHUNK_SLOTS * sizeof *chunk);
    c->chunks[n] = chunk;
    uint32_t base = n * WF_CHUNK_SLOTS;
    for (uint32_t i = WF_CHUNK_SLOTS; i-- > (n == 0 ? 1u : 0u);) {
        atomic_store_explicit(&chunk[i].state, WF_STATE_DEAD, memory_order_relaxed);
        chunk[i].context = c->id;
        chunk[i].next = c->free_head;
        c->free_head = base + i;
    }
    atomic_store_explicit(&c->nchunks, n + 1, memory_order_release);
    return 0;
}

int wf_slots_refill(wf_ctx *c)
{
    c->free_head = atomic_exchange_explicit(&c->remote_free, 0, memory_order_acquire);
    return c->free_head == 0 ? chunk_add(c) : 0;
}

wf_slot *wf_slot_new(wf_ctx *c, weft_tensor *handle)
{
    return wf_slot_take(c, handle);
}

/* A slot lets go of the storage. */
static void drop_storage(wf_ctx *c, wf_storage *st)
{
    if (st) {
        /* The slot's was the only reference, beside that of a trace of this thread: nobody sees the count. */
        const int32_t refs = atomic_load_explicit(&st->refs, memory_order_acquire);
        const bool traced =
            refs == 2 && c->recorder &&
            atomic_load_explicit(&st->recorder, memory_order_relaxed) == c->recorder;
        /* in this order: only who is alone may look at the root */
        if (traced && !st->roots) {
            atomic_store_explicit(&st->refs, 1, memory_order_relaxed);
            c->recorder->dead(c->recorder, st);
            return;
        }
        if (refs == 1 && !st->roots) {
            wf_storage_release(st);
            return;
        }
        if (wf_storage_uncount(st, &st->handles) == 0 && st->roots) {
            const wf_ref roots[] = {st->root, st->root_of_apart};
            st->roots = 0;
            for (int i = 0; i < 2; i++) {
                if (roots[i] && wf_tape_api) {
                    wf_tape_api->release(c, st->root_ctx, roots[i]);
                }
            }
        }
        wf_storage_release(st);
    }
}

/* The slot, which goes, has a name: messages about its handle tell it a while longer. */
__attribute__((noinline, cold)) static void remember(wf_ctx *c, wf_slot *s, uint32_t index)
{
    wf_meta *m = atomic_load_explicit(&s->meta, memory_order_relaxed);
    if (!m->name || !wf_meta_lock_soon(m)) { /* most that come here have a gradient, and no name */
        return;
    }
    wf_gone *g = &c->gone[c->ngone++ % WF_GONE];
    snprintf(g->name, sizeof g->name, "%s", m->name ? m->name : "");
    wf_meta_unlock(m);
    g->handle = (weft_tensor){
        index, s->context, WF_STATE_SERIAL(atomic_load_explicit(&s->state, memory_order_relaxed))};
    g->site = s->site;
    g->dtype = s->dtype;
    g->rank = s->rank;
    memcpy(g->dims, s->dims_, sizeof g->dims);
}

static inline __attribute__((always_inline)) void slot_clear(wf_ctx *c, wf_slot *s, uint32_t index)
{
    if (s->node && wf_tape_api) {
        wf_tape_api->release(c, s->context, s->node);
    }
    s->node = 0;
    wf_storage *st = s->st;
    s->st = NULL;
    drop_storage(c, st);
    if (s->ext) { /* the extents of others, the type and the site stay: wf_describe */
        wf_mfree(s->ext);
        s->ext = NULL;
    }
    if (__builtin_expect(atomic_load_explicit(&s->meta, memory_order_relaxed) != NULL, 0)) {
        remember(c, s, index);
        wf_slot_drop_meta(s);
    }
}

void wf_slot_relocate(wf_ctx *c, wf_slot *s, wf_storage *st)
{
    wf_storage *old = s->st;
    int64_t *d = wf_dims(s), *stride = wf_strides(s), step = 1;
    for (int i = s->rank; i-- > 0;) {
        stride[i] = step;
        step *= d[i];
    }
    wf_storage_share(st); /* the slot may be a kept one */
    wf_storage_view(st);
    s->offset = 0;
    s->noted = 0;
    s->st = st;
    drop_storage(c, old);
}

/* slot_recycle of a slot of this thread's context. */
static void slot_recycle_own(wf_ctx *c, wf_slot *s, uint32_t index)
{
    slot_clear(c, s, index);
    atomic_store_explicit(&c->live, atomic_load_explicit(&c->live, memory_order_relaxed) - 1,
                          memory_order_relaxed);
    s->next = c->free_head;
    c->free_head = index;
}

/* The slot's state is DEAD and nobody pins it: release contents, return it to its context. */
static void slot_recycle(wf_ctx *c, wf_slot *s, uint32_t index)
{
    if (c->id == s->context) {
        slot_recycle_own(c, s, index);
        return;
    }
    wf_ctx *owner = wf_ctx_at(s->context);
    slot_clear(c, s, index);
    atomic_fetch_add_explicit(&owner->freed_remotely, 1, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&owner->remote_free, memory_order_relaxed);
    do {
        s->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&owner->remote_free, &head, index,
                                                    memory_order_release, memory_order_relaxed));
}

static uint32_t index_of(wf_ctx *owner, wf_slot *s)
{
    uint32_t n = atomic_load_explicit(&owner->nchunks, memory_order_acquire);
    for (uint32_t k = n; k-- > 0;) {
        if (s >= owner->chunks[k] && s < owner->chunks[k] + WF_CHUNK_SLOTS) {
            return k * WF_CHUNK_SLOTS + (uint32_t)(s - owner->chunks[k]);
        }
    }
    return 0;
}

static void scope_unlink(wf_ctx *c, wf_slot *s)
{
    if (s->prev) {
        wf_slot_at(c, s->prev)->next = s->next;
    } else {
        c->scopes[s->scope].head = s->next;
    }
    if (s->next) {
        wf_slot_at(c, s->next)->prev = s->prev;
    }
    s->next = s->prev = 0;
    s->scope = 0;
}

/* A scope-owned slot of this thread: no one else can hold it. */
static void destroy_owned(wf_ctx *c, wf_slot *s, uint32_t index)
{
    uint64_t st = atomic_load_explicit(&s->state, memory_order_relaxed);
    atomic_store_explicit(&s->state, (st & ~(WF_STATE_PINS | WF_STATE_KEPT)) | WF_STATE_DEAD,
                          memory_order_relaxed);
    slot_recycle_own(c, s, index);
}

void wf_slot_destroy(wf_ctx *c, wf_slot *s)
{
    uint32_t index = index_of(c, s);
    scope_unlink(c, s);
    destroy_owned(c, s, index);
}

__attribute__((noinline, cold)) static wf_slot *pin_fail(weft_tensor t, wf_why *why)
{
    if (t.slot == 0) {
        wf_fail(why, WEFT_EINVALID, "an operand is the empty handle");
        wf_hint(why, "it was never assigned; create a tensor first");
    } else {
        wf_fail(why, WEFT_EHANDLE, "a handle is dead: its tensor was freed or its scope has ended");
        wf_hint(why, "use weft_keep or weft_scope_return on tensors that outlive their scope");
    }
    return NULL;
}

wf_slot *wf_pin(wf_ctx *c, weft_tensor t, bool *pinned, wf_why *why)
{
    *pinned = false;
    wf_ctx *o = t.context == c->id ? c : wf_ctx_at(t.context);
    if (!o || t.slot == 0 ||
        t.slot / WF_CHUNK_SLOTS >= atomic_load_explicit(&o->nchunks, memory_order_acquire)) {
        return pin_fail(t, why);
    }
    wf_slot *s = wf_slot_at(o, t.slot);
    uint64_t st = atomic_load_explicit(&s->state, memory_order_acquire);
    for (;;) {
        if (WF_STATE_SERIAL(st) != t.serial || (st & WF_STATE_DEAD)) {
            return pin_fail(t, why);
        }
        if (!(st & WF_STATE_KEPT)) {
            if (o == c) {
                return s;
            }
            wf_fail(why, WEFT_EHANDLE, "a handle belongs to a scope of another thread");
            wf_hint(why, "weft_keep the tensor on its own thread before handing it over");
            return NULL;
        }
        if ((st & WF_STATE_PINS) == WF_STATE_PINS) {
            wf_fail(why, WEFT_EHANDLE, "a handle is in use by 65535 calls at once");
            return NULL;
        }
        if (atomic_compare_exchange_weak_explicit(&s->state, &st, st + 1, memory_order_acquire,
                                                  memory_order_acquire)) {
            *pinned = true;
            return s;
        }
    }
}

void wf_unpin(wf_ctx *c, wf_slot *s)
{
    uint64_t st = atomic_fetch_sub_explicit(&s->state, 1, memory_order_acq_rel) - 1;
    if ((st & WF_STATE_DEAD) && (st & WF_STATE_PINS) == 0) {
        wf_slot_let_go(c, s, st);
    }
}

void wf_slot_let_go(wf_ctx *c, wf_slot *s, uint64_t st)
{
    wf_ctx *o = wf_ctx_at(s->context);
    if (!wf_is_borrowed(c, o, s) &&
        atomic_compare_exchange_strong_explicit(&s->state, &st, st | WF_STATE_PINS,
                                                memory_order_acq_rel, memory_order_relaxed)) {
        slot_recycle(c, s, index_of(o, s));
    }
}

weft_tensor wf_handle_of(wf_ctx *c, wf_slot *s)
{
    wf_ctx *o = s->context == c->id ? c : wf_ctx_at(s->context);
    return (weft_tensor){index_of(o, s), s->context,
                         WF_STATE_SERIAL(atomic_load_explicit(&s->state, memory_order_relaxed))};
}

/* -- scopes ------------------------------------------------------------------------------------------ */

static void scope_release(wf_ctx *c, uint32_t depth)
{
    while (c->scopes[depth].head) {
        uint32_t i = c->scopes[depth].head;
        wf_slot *s = wf_slot_at(c, i);
        c->scopes[depth].head = s->next;
        if (s->next) {
            wf_slot_at(c, s->next)->prev = 0;
        }
        s->next = s->prev = 0;
        s->scope = 0;
        destroy_owned(c, s, i);
    }
}

static void end_all_scopes(wf_ctx *c)
{
    for (uint32_t d = c->depth; d >= 1; d--) {
        scope_release(c, d);
    }
    c->depth = 1;
}

void wf_ctx_end_scopes(wf_ctx *c)
{
    end_all_scopes(c);
}

weft_scope weft_scope_begin(void)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return (weft_scope){0, 0, 0};
    }
    if (!wf_scope_push(c)) {
        return (weft_scope){0, 0, 0};
    }
    c->scopes[c->depth].serial = ++c->scope_serial;
    return (weft_scope){c->depth, c->id, c->scope_serial};
}

bool wf_scopes_grow(wf_ctx *c)
{
    if (scopes_reserve(c, c->depth + 1) != 0) {
        wf_raise_text(c, WEFT_ENOMEM, "scope_begin", "out of memory for scope %u", c->depth + 1);
        return false;
    }
    return true;
}

static int scope_check(wf_ctx *c, weft_scope scope, const char *op)
{
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (scope.context != c->id || scope.depth < 2 || scope.depth > c->depth ||
        c->scopes[scope.depth].serial != scope.serial) {
        wf_raise_text(c, WEFT_EHANDLE, op,
                      "the scope has ended, was never opened, or belongs to another thread; end "
                      "each scope once, on the thread that began it");
        return WEFT_EHANDLE;
    }
    return 0;
}

/* Ends scopes down to that of a depth. Deleters run meanwhile: a scope that is being ended is none to end, one that they leave open
 * ends with it, and they may end those below. */
static void end_scopes(wf_ctx *c, uint32_t last)
{
    for (uint32_t d = last; d <= c->depth; d++) {
        c->scopes[d].serial = 0;
    }
    while (c->depth >= last) {
        const uint32_t d = c->depth;
        c->scopes[d].serial = 0;
        scope_release(c, d);
        c->depth -= c->depth == d;
    }
}

/* An op that lets go of memory has its operands yet: the deleter is not to take them from it. */
__attribute__((noinline, cold)) static int refuse_sealed(wf_ctx *c, const char *op)
{
    wf_raise_text(
        c, WEFT_EINVALID, op,
        "a deleter that runs in the middle of an op or of a backward may not end a scope, nor "
        "keep or free a scope's tensor, that was there before: the op may be using it; free what "
        "is kept, or do it after the call");
    return WEFT_EINVALID;
}

weft_status weft_scope_end(weft_scope scope)
{
    wf_ctx *c = wf_ctx_get();
    int rc = scope_check(c, scope, "scope_end");
    rc = rc || scope.depth > c->sealed ? rc : refuse_sealed(c, "scope_end");
    if (rc) {
        return (weft_status)rc;
    }
    end_scopes(c, scope.depth);
    return WEFT_OK;
}

static void scope_link(wf_ctx *c, wf_slot *s, uint32_t index, uint32_t depth)
{
    wf_scope_rec *r = &c->scopes[depth];
    s->scope = depth;
    s->next = r->head;
    if (r->head) {
        wf_slot_at(c, r->head)->prev = index;
    }
    r->head = index;
}

weft_tensor weft_scope_give(weft_scope scope, weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    if (t.slot == 0 || wf_is_scalar(t) || scope_check(c, scope, "scope_give")) {
        return t;
    }
    wf_why why;
    wf_why_clear(&why);
    bool pinned;
    wf_slot *s = wf_pin(c, t, &pinned, &why);
    if (!s) {
        return wf_raise(c, "scope_give", 1, &t, &why);
    }
    if (pinned) {
        wf_unpin(c, s);
        return t;
    }
    if (s->scope >= scope.depth) {
        scope_unlink(c, s);
        scope_link(c, s, t.slot, scope.depth - 1);
    }
    return t;
}

/* A handle that no scope of this thread owns: a kept one, or the error of a dead one. */
static weft_tensor alive(wf_ctx *c, weft_tensor t)
{
    wf_why why;
    bool pinned;
    wf_why_clear(&why);
    wf_slot *s = wf_pin(c, t, &pinned, &why);
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return s ? t : wf_raise(c, "scope_give", 1, &t, &why);
}

void wf_scope_trim(wf_ctx *c, uint32_t index)
{
    wf_slot *s = wf_slot_at(c, index);
    const uint32_t depth = c->depth, rest = s->next;
    s->next = 0;
    wf_slot_at(c, rest)->prev = 0;
    c->scopes[depth].head = rest;
    scope_release(c, depth);
    c->scopes[depth].head = index;
}

void wf_scopes_leave(wf_ctx *c, uint32_t base, uint32_t to, weft_tensor *r, int n)
{
    for (int i = 0; i < n; i++) { /* out of their scopes, ... */
        wf_slot *s = r[i].slot < WF_ABSENT_SLOT ? wf_slot_of(c, r[i]) : NULL;
        if (s && s->scope >= base) {
            scope_unlink(c, s);
        } else if (!s && r[i].slot && r[i].slot < WF_ABSENT_SLOT) {
            r[i] = alive(c, r[i]);
        }
    }
    end_scopes(c, to + 1);
    if (to >= base && c->depth == to) {
        scope_release(c, to);
    }
    for (int i = 0; i < n; i++) { /* ... into that one */
        wf_slot *s = r[i].slot < WF_ABSENT_SLOT ? wf_slot_of(c, r[i]) : NULL;
        if (s && s->scope == 0) {
            scope_link(c, s, r[i].slot, c->depth);
        }
    }
}

weft_tensor weft_scope_return(weft_scope scope, weft_tensor t)
{
    weft_tensor r = weft_scope_give(scope, t);
    weft_scope_end(scope);
    return r;
}

/* The counts of kept tensors, like those of live ones, are written by the owner alone; what other threads free is counted
 * apart. */
static void count_kept(wf_ctx *c, int64_t n)
{
    atomic_store_explicit(&c->kept, atomic_load_explicit(&c->kept, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

weft_tensor wf_keep(weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    if (!c || t.slot == 0 || wf_is_scalar(t)) {
        return t;
    }
    wf_slot *s = wf_slot_of(c, t);
    if (__builtin_expect(!s, 0)) {
        wf_why why;
        wf_why_clear(&why);
        bool pinned;
        s = wf_pin(c, t, &pinned, &why); /* it is kept already, or no tensor of ours */
        if (!s) {
            return wf_raise(c, "keep", 1, &t, &why);
        }
        wf_unpin(c, s);
        return t;
    }
    if (__builtin_expect(s->scope <= c->sealed, 0)) { /* whoever has it could free it */
        refuse_sealed(c, "keep");
        return wf_last_error(c);
    }
    scope_unlink(c, s);
    wf_storage_share(s->st);
    count_kept(c, 1);
    /* Until now no other thread could do more than look at the state. */
    const uint64_t st = atomic_load_explicit(&s->state, memory_order_relaxed);
    atomic_store_explicit(&s->state, st | WF_STATE_KEPT, memory_order_release);
    return t;
}

/* A traced function keeps or frees t, a handle of its caller's or one on memory that it has not made: a replay would not. What it
 * makes is counted when it returns. */
WF_COLD static void note_outside(wf_ctx *c, weft_tensor t, const char *does)
{
    bool pinned;
    wf_slot *s = wf_pin(c, t, &pinned, NULL);
    if (s && !atomic_load_explicit(&s->st->is_virtual, memory_order_relaxed)) {
        c->recorder->never(c->recorder, does);
    }
    if (s && pinned) {
        wf_unpin(c, s);
    }
}

weft_tensor weft_keep(weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    if (wf_is_followed(c) && t.slot && t.slot < WF_ABSENT_SLOT && wf_slot_of(c, t)) {
        note_outside(c, t, "it keeps a tensor from outside, or a view of one");
    }
    return wf_keep(t);
}

/* A kept tensor of this context that nobody uses: marked DEAD and taken to be recycled in one step. */
static bool free_unused(wf_ctx *c, weft_tensor t)
{
    if (t.context != c->id || c->nborrowed > 0 ||
        t.slot / WF_CHUNK_SLOTS >= atomic_load_explicit(&c->nchunks, memory_order_relaxed)) {
        return false;
    }
    wf_slot *s = wf_slot_at(c, t.slot);
    uint64_t st = atomic_load_explicit(&s->state, memory_order_relaxed);
    const uint64_t flags = WF_STATE_DEAD | WF_STATE_KEPT | WF_STATE_PINS;
    if (wf_is_lent(c, s) || WF_STATE_SERIAL(st) != t.serial || (st & flags) != WF_STATE_KEPT ||
        !atomic_compare_exchange_strong_explicit(&s->state, &st, st | flags, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
        return false;
    }
    count_kept(c, -1);
    slot_recycle(c, s, t.slot);
    return true;
}

/* Of a tensor that no scope of this thread owns. */
__attribute__((noinline)) static weft_status free_kept(wf_ctx *c, weft_tensor t)
{
    if (free_unused(c, t)) {
        return WEFT_OK;
    }
    wf_why why;
    wf_why_clear(&why);
    bool pinned;
    wf_slot *s = wf_pin(c, t, &pinned, &why);
    if (!s) {
        return (weft_status)wf_raise_status(c, "free", 1, &t, &why);
    }
    uint64_t st = atomic_fetch_or_explicit(&s->state, WF_STATE_DEAD, memory_order_acq_rel);
    if (!(st & WF_STATE_DEAD)) {
        if (s->context == c->id) {
            count_kept(c, -1);
        } else {
            atomic_fetch_add_explicit(&wf_ctx_at(s->context)->kept_freed_remotely, 1,
                                      memory_order_relaxed);
        }
    }
    wf_unpin(c, s);
    return WEFT_OK;
}

static inline weft_status free_handle(wf_ctx *c, weft_tensor t, bool asked)
{
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (t.slot == 0 || wf_is_scalar(t)) {
        return WEFT_OK;
    }
    wf_slot *s = wf_slot_of(c, t);
    if (asked && wf_is_followed(c) && (!s || s->scope <= c->recorder->outside)) {
        note_outside(c, t, "it frees a tensor from outside");
    }
    if (__builtin_expect(!s, 0)) {
        return free_kept(c, t);
    }
    if (__builtin_expect(s->scope <= c->sealed, 0)) {
        return (weft_status)refuse_sealed(c, "free");
    }
    scope_unlink(c, s);
    destroy_owned(c, s, t.slot);
    return WEFT_OK;
}

weft_status weft_free(weft_tensor t)
{
    return free_handle(wf_ctx_get(), t, true);
}

weft_status wf_free_handle(weft_tensor t)
{
    return free_handle(wf_ctx_get(), t, false);
}

weft_status weft_assign(weft_tensor *x, weft_tensor value)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!x) {
        wf_raise_text(c, WEFT_EINVALID, "assign", "the address of the variable is NULL");
        return WEFT_EINVALID;
    }
    if (value.slot == 0) {
        if (value.serial == 0) {
            wf_raise_text(c, WEFT_EINVALID, "assign", "the value is the empty handle");
            return WEFT_EINVALID;
        }
        return (weft_status)wf_error_again(c, value);
    }
    if (wf_same_handle(*x, value)) {
        return WEFT_OK;
    }
    if (x->slot == 0 || wf_is_scalar(*x)) {
        *x = value;
        return WEFT_OK;
    }
    wf_why why;
    wf_why_clear(&why);
    bool pinned;
    wf_slot *old = wf_pin(c, *x, &pinned, &why);
    if (!old) {
        return (weft_status)wf_raise_status(c, "assign", 1, x, &why);
    }
    uint32_t scope = old->scope;
    if (!pinned && scope <= c->sealed) {
        return (weft_status)refuse_sealed(c, "assign");
    }
    if (pinned) {
        wf_unpin(c, old);
        weft_tensor kept = weft_keep(value);
        if (kept.slot == 0) {
            return weft_error_status(kept);
        }
    } else if (!wf_is_scalar(value)) {
        bool vp;
        wf_slot *v = wf_pin(c, value, &vp, &why);
        if (!v) {
            return (weft_status)wf_raise_status(c, "assign", 1, &value, &why);
        }
        if (vp) {
            wf_unpin(c, v);
        } else if (v->scope > scope) {
            scope_unlink(c, v);
            scope_link(c, v, value.slot, scope);
        }
    }
    weft_free(*x);
    *x = value;
    return WEFT_OK;
}

bool weft_ok(weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    if (!c || t.slot == 0) {
        return false;
    }
    if (wf_is_scalar(t)) {
        return true;
    }
    wf_hold how;
    wf_slot *s = wf_take_hold(c, t, &how);
    if (s) {
        wf_note_asked(c, s);
        wf_end_hold(c, s, how);
    }
    return s != NULL;
}
