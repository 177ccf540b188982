/*
 * jit/frozen_guard.c -- arguments of frozen calls, comparing descriptions, guards; see frozen.h.
 *
 * A guard says yes or no by comparing numbers; only after a no it looks again, for the reason in words.
 */
#include <stdarg.h>
#include <string.h>

#include "eager/alloc.h"
#include "jit/frozen_impl.h"
#include "jit/key.h"

bool wf_frozen_refuse(char *reason, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, WF_REASON, fmt, ap);
    va_end(ap);
    return false;
}

uint64_t wf_frozen_hooks_of(const wf_meta *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; m->hooks && i < m->hooks->n; i++) {
        const struct wf_hook_place *h = &m->hooks->at[i];
        sum = h->is ? sum * 0x9E3779B97F4A7C15u + h->id : sum;
    }
    return sum;
}

uint64_t wf_frozen_hooks(wf_slot *s)
{
    wf_meta *m = wf_slot_tracked(s) ? atomic_load_explicit(&s->meta, memory_order_acquire) : NULL;
    uint64_t sum = 0;
    if (m) {
        wf_meta_lock(m);
        sum = wf_frozen_hooks_of(m);
        wf_meta_unlock(m);
    }
    return sum;
}

const wf_storage *wf_frozen_gradient(wf_ctx *c, wf_slot *s)
{
    wf_meta *m = wf_slot_tracked(s) ? atomic_load_explicit(&s->meta, memory_order_acquire) : NULL;
    weft_tensor g = WEFT_NONE;
    wf_hold how;
    if (m) {
        wf_meta_lock(m);
        g = m->grad;
        wf_meta_unlock(m);
    }
    wf_slot *slot = g.slot ? wf_take_hold(c, g, &how) : NULL;
    const wf_storage *st = slot ? slot->st : NULL;
    if (slot) {
        wf_end_hold(c, slot, how);
    }
    return st;
}

/* -- arguments -------------------------------------------------------------------------------------------------- */

void wf_frozen_close(wf_frozen_args *a)
{
    for (int i = a->n; i-- > 0;) {
        if (a->slot[i]) {
            wf_end_hold(a->c, a->slot[i], a->how[i]);
        }
    }
    if (a->slot != a->slot_) {
        const size_t all = (size_t)a->most;
        wf_scratch_free(a->how, all * sizeof *a->how);
        wf_scratch_free(a->st, all * sizeof *a->st);
        wf_scratch_free(a->slot, all * sizeof *a->slot);
    }
}

/* What is wrong with argument i; false. A call that is not recorded has no virtual storage of its own: another thread's
 * trace will compute this one. */
__attribute__((noinline, cold)) static bool refuse_argument(const wf_slot *s, int i, char *reason)
{
    if (!s) {
        return wf_frozen_refuse(reason, "argument %d is not a live tensor", i);
    }
    if (atomic_load_explicit(&s->st->is_virtual, memory_order_relaxed)) {
        return wf_frozen_refuse(reason, "argument %d is still being recorded by another thread", i);
    }
    return wf_frozen_refuse(reason, "argument %d holds no valid value", i);
}

bool wf_frozen_open(wf_frozen_args *a, wf_ctx *c, const weft_tensor *in, int n, char *reason)
{
    const size_t all = (size_t)n;
    bool few = n <= WF_FROZEN_FEW;
    a->c = c;
    a->in = in;
    a->n = 0;
    a->most = n;
    a->slot = few ? a->slot_ : wf_scratch(all * sizeof *a->slot);
    a->st = few ? a->st_ : wf_scratch(all * sizeof *a->st);
    a->how = few ? a->how_ : wf_scratch(all * sizeof *a->how);
    if (!a->slot || !a->st || !a->how) {
        return wf_frozen_refuse(reason, "there is no memory");
    }
    for (int i = 0; i < n; i++) {
        wf_slot *s = wf_take_hold(c, in[i], &a->how[i]);
        a->slot[i] = s;
        a->n = i + 1;
        if (!s || atomic_load_explicit(&s->st->is_virtual, memory_order_acquire) || s->st->broken) {
            return refuse_argument(s, i, reason);
        }
        a->st[i] = s->st;
    }
    return true;
}

/* The first argument on the memory of argument i. */
static int first_on(const wf_frozen_args *a, int i)
{
    int k = 0;
    while (a->st[k] != a->st[i]) {
        k++;
    }
    return k;
}

void wf_frozen_look(wf_frozen_arg *out, const wf_frozen_args *a, int i)
{
    wf_slot *s = a->slot[i];
    out->dtype = s->dtype;
    out->rank = s->rank;
    out->device = s->st->device;
    out->flow = wf_frozen_flow(s);
    out->hooks = wf_frozen_hooks(s);
    out->alias = first_on(a, i);
    out->outer = -1;
    out->fixed = ~UINT64_C(0);
    out->only = a->in[i];
    out->offset = s->offset;
    out->nbytes = s->st->nbytes;
    memcpy(out->map, wf_dims(s), (size_t)s->rank * sizeof out->map[0]);
    memcpy(out->map + s->rank, wf_strides(s), (size_t)s->rank * sizeof out->map[0]);
}

/* -- comparing ---------------------------------------------------------------------------------------------------- */

static bool same_words(int n, const int64_t *a, const int64_t *b)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static bool same_argument(const wf_frozen_arg *x, const wf_frozen_arg *y, int i, char *reason)
{
    if (x->dtype != y->dtype || x->rank != y->rank || !same_words(x->rank, x->map, y->map)) {
        return wf_frozen_refuse(reason, "argument %d has another type or shape", i);
    }
    if (x->device != y->device) {
        return wf_frozen_refuse(reason, "argument %d is on another device", i);
    }
    if (!same_words(x->rank, x->map + x->rank, y->map + x->rank) || x->nbytes != y->nbytes) {
        return wf_frozen_refuse(reason, "argument %d lies differently in memory", i);
    }
    if (x->alias != y->alias) {
        return wf_frozen_refuse(reason,
                                "argument %d shares memory with other arguments than before", i);
    }
    if (x->flow != y->flow) {
        return wf_frozen_refuse(
            reason, "argument %d differs in whether gradients flow to it, or end there", i);
    }
    return x->hooks == y->hooks || wf_frozen_refuse(reason, "argument %d has other hooks", i);
}

static const char switched[] = "a module has been switched between training and evaluation";

/* What a call was made under. */
static bool same_modes(const wf_frozen *a, const wf_frozen *b, char *reason)
{
    if (a->n_in != b->n_in || a->n_out != b->n_out) {
        return wf_frozen_refuse(reason, "another number of arguments or outputs");
    }
    if (a->grad != b->grad) {
        return wf_frozen_refuse(reason, "the grad mode differs");
    }
    if (a->modes != b->modes) {
        return wf_frozen_refuse(reason, switched);
    }
    return a->home == b->home || wf_frozen_refuse(reason, "the default device differs");
}

bool wf_frozen_same_arguments(const wf_frozen *a, const wf_frozen *b, char reason[WF_REASON])
{
    bool same = same_modes(a, b, reason);
    for (int i = 0; i < a->n_in && same; i++) {
        same = same_argument(&a->in[i], &b->in[i], i, reason);
    }
    return same;
}

bool wf_frozen_same_map(const wf_frozen_out *x, const wf_frozen_out *y)
{
    return x->index == y->index && x->dtype == y->dtype && x->rank == y->rank &&
           x->offset == y->offset && same_words(x->rank, x->dims, y->dims) &&
           same_words(x->rank, x->strides, y->strides);
}

/* Arguments, captured tensors and outputs, without numbers. */
static bool agree(const wf_frozen *a, const wf_frozen *b, char *reason)
{
    if (!wf_frozen_same_arguments(a, b, reason)) {
        return false;
    }
    if (a->n_source != b->n_source || a->n_made != b->n_made) {
        return wf_frozen_refuse(reason, "it has other inputs or results than before");
    }
    if (a->device != b->device) {
        return wf_frozen_refuse(reason, "the device differs");
    }
    for (int i = 0; i < a->n_in; i++) {
        if (a->in[i].outer != b->in[i].outer) {
            return wf_frozen_refuse(reason, "argument %d feeds another input than before", i);
        }
    }
    for (int i = 0; i < a->n_source; i++) {
        const wf_frozen_source *x = &a->src[i], *y = &b->src[i];
        if (x->arg != y->arg || x->st != y->st || !wf_same_handle(x->handle, y->handle) ||
            x->owner != y->owner || x->flow != y->flow || x->written != y->written ||
            x->bumps != y->bumps) {
            return wf_frozen_refuse(reason, "input %d is another captured tensor than before", i);
        }
    }
    bool same = a->n_also == b->n_also;
    for (uint32_t i = 0; i < a->n_also && same; i++) {
        const wf_frozen_also *x = &a->also[i], *y = &b->also[i];
        same = wf_same_handle(x->handle, y->handle) && x->flow == y->flow && x->hooks == y->hooks;
    }
    if (!same) {
        return wf_frozen_refuse(reason, "it uses or asks about other captured tensors than before");
    }
    for (int i = 0; i < a->n_out; i++) {
        const wf_frozen_out *x = &a->out[i], *y = &b->out[i];
        if (x->kind != y->kind || x->index != y->index ||
            (x->kind == WF_OUT_VALUE && !wf_same_handle(x->value, y->value)) ||
            (x->kind == WF_OUT_MADE && !wf_frozen_same_map(x, y))) {
            return wf_frozen_refuse(reason, "output %d is made in another way than before", i);
        }
    }
    return wf_frozen_same_state(a, b, reason) && wf_frozen_same_draws(a, b, reason);
}

bool wf_frozen_agree(const wf_frozen *a, const wf_fn *a_fn, const wf_frozen *b, const wf_fn *b_fn,
                     char reason[WF_REASON])
{
    if (!agree(a, b, reason)) {
        return false;
    }
    int64_t few[WF_FROZEN_FEW];
    const size_t bytes = (size_t)a->n_source * sizeof(int64_t);
    int64_t *shift = a->n_source <= WF_FROZEN_FEW ? few : wf_scratch(bytes);
    bool same = shift ? wf_frozen_shifts(a, b, shift, reason) &&
                            wf_frozen_numbers(a, a_fn, b_fn, shift, reason)
                      : wf_frozen_refuse(reason, "there is no memory");
    if (shift != few) {
        wf_scratch_free(shift, bytes);
    }
    return same;
}

bool wf_frozen_same(const wf_frozen *z, const wf_frozen *now, const wf_fn *fn,
                    const int32_t *writes, char reason[WF_REASON])
{
    if (!wf_key_same(z->fn, z->writes, fn, writes)) {
        return wf_frozen_refuse(reason, "the function records other ops than it did");
    }
    return wf_frozen_agree(z, z->fn, now, fn, reason);
}

/* -- guards ---------------------------------------------------------------------------------------------------------- */

/* Is s, on st, what x says, but for whom it shares memory with? Without a branch where there is nothing to decide. */
static inline bool is_as_before(const wf_frozen_arg *x, wf_slot *s, const wf_storage *st)
{
    const uint8_t flow = wf_frozen_flow(s);
    uint64_t odd = (uint64_t)((x->dtype ^ s->dtype) | (x->rank ^ s->rank) |
                              (x->device ^ st->device) | (x->flow ^ flow)) |
                   ((uint64_t)(x->offset ^ s->offset) & x->fixed) | (x->nbytes ^ st->nbytes);
    if (odd) {
        return false;
    }
    const int64_t *d = wf_dims(s), *t = wf_strides(s), *e = x->map, *u = x->map + x->rank;
    for (int i = 0; i < x->rank; i++) {
        odd |= (uint64_t)(d[i] ^ e[i]) | (uint64_t)(t[i] ^ u[i]);
    }
    return !odd && (!(flow & 1) || wf_frozen_hooks(s) == x->hooks);
}

/* Argument i, on memory that is imported or that some captured tensor may lie in. */
static bool guard_sharing(const wf_frozen *z, const wf_storage *st, int i, char *reason)
{
    const int outer = z->in[i].outer;
    if (outer >= 0 && z->src[outer].arg < 0 && st != z->src[outer].st) {
        return wf_frozen_refuse(reason, "argument %d was a captured tensor", i);
    }
    for (int k = 0; k < z->n_source; k++) {
        if (k != outer && z->src[k].st == st) {
            return wf_frozen_refuse(reason, "argument %d shares memory with a captured tensor", i);
        }
    }
    if (st->inline_data == WF_STORAGE_EXTERNAL) {
        return wf_frozen_refuse(reason, "argument %d is imported memory", i);
    }
    return true;
}

/* Why argument i is refused; true: it is not. */
__attribute__((noinline, cold)) static bool explain(const wf_frozen *z, const wf_frozen_args *a,
                                                    int i, char *reason)
{
    wf_frozen_arg now;
    wf_frozen_look(&now, a, i);
    if (!same_argument(&z->in[i], &now, i, reason)) {
        return false;
    }
    return ((uint64_t)(z->in[i].offset ^ now.offset) & z->in[i].fixed) == 0 ||
           wf_frozen_refuse(reason, "argument %d lies differently in memory", i);
}

static bool guard_args(const wf_frozen *z, const wf_frozen_args *a, char *reason)
{
    uint64_t before = 0; /* the memory of arguments so far */
    for (int i = 0; i < a->n; i++) {
        const wf_storage *st = a->st[i];
        const wf_frozen_arg *x = &z->in[i];
        const uint64_t bit = wf_frozen_bit(st);
        const int alias = before & bit ? first_on(a, i) : i;
        before |= bit;
        if ((alias != x->alias || !is_as_before(x, a->slot[i], st)) && !explain(z, a, i, reason)) {
            return false;
        }
        if ((alias != i || a->slot[i]->offset != x->offset) &&
            !wf_frozen_guard_move(z, a, i, reason)) {
            return false;
        }
        const bool captured = x->outer >= 0 && z->src[x->outer].arg < 0;
        if ((captured || (z->captured & bit) || st->inline_data == WF_STORAGE_EXTERNAL) &&
            !guard_sharing(z, st, i, reason)) {
            return false;
        }
    }
    return true;
}

/* Are arguments that were the same tensor in both recordings that again? */
static bool guard_identity(const wf_frozen *z, const wf_frozen_args *a, char *reason)
{
    for (int i = 0; i < a->n; i++) {
        const weft_tensor *only = &z->in[i].only;
        if (only->slot && !wf_same_handle(a->in[i], *only)) {
            return wf_frozen_refuse(reason,
                                    "argument %d is another tensor than in both recordings, in "
                                    "which it could have been a captured one",
                                    i);
        }
    }
    return true;
}

/* there: its handle is alive. */
WF_COLD static bool refuse_captured(wf_ctx *c, weft_tensor t, bool there, int k, char *reason)
{
    char what[120];
    if (!there) {
        return wf_frozen_refuse(reason,
                                "a captured tensor (input %d) is gone: freed, or a gradient "
                                "that was dropped or replaced",
                                k);
    }
    wf_describe(c, t, what, sizeof what);
    return wf_frozen_refuse(reason, "a captured tensor is not what it was: %s", what);
}

static bool guard_captured(const wf_frozen *z, const wf_frozen_args *a, char *reason)
{
    wf_ctx *c = a->c;
    for (int k = 0; k < z->n_source && z->captured; k++) {
        const wf_frozen_source *s = &z->src[k];
        if (!s->st) {
            continue;
        }
        wf_hold how;
        wf_slot *slot = wf_take_hold(c, s->handle, &how);
        bool ok = slot && slot->st == s->st && wf_frozen_flow(slot) == s->flow && !s->st->roots &&
                  wf_frozen_hooks(slot) == s->hooks;
        if (slot) {
            wf_end_hold(c, slot, how);
        }
        if (!ok || s->st->broken) {
            return refuse_captured(c, s->handle, slot, k, reason);
        }
        if (s->owner >= 0 && wf_frozen_gradient(c, a->slot[s->owner]) != s->st) {
            return wf_frozen_refuse(reason, "argument %d has another gradient tensor", s->owner);
        }
    }
    return true;
}

/* The first of z->also that is not what it was. */
static uint32_t changed_also(const wf_frozen *z, wf_ctx *c, bool dead)
{
    for (uint32_t i = 0; i < z->n_also; i++) {
        const wf_frozen_also *x = &z->also[i];
        wf_hold how;
        wf_slot *s = wf_take_hold(c, x->handle, &how);
        const bool same =
            s && (dead || (wf_frozen_flow(s) == x->flow && wf_frozen_hooks(s) == x->hooks));
        if (s) {
            wf_end_hold(c, s, how);
        }
        if (!same) {
            return i;
        }
    }
    return z->n_also;
}

__attribute__((noinline)) static bool guard_also(const wf_frozen *z, wf_ctx *c, char *reason)
{
    const uint32_t i = changed_also(z, c, false);
    return i == z->n_also ||
           wf_frozen_refuse(reason, "a captured tensor, one of several on its memory or one that "
                                    "the function asks about, is gone or not what it was");
}

/* The first output that is a captured tensor and has been freed; n_out: none. What nothing reads is no source. */
static int freed_output(const wf_frozen *z, wf_ctx *c)
{
    for (int i = 0; i < z->n_out; i++) {
        const weft_tensor t = z->out[i].value;
        if (z->out[i].kind != WF_OUT_VALUE || t.slot == 0 || t.slot >= WF_ABSENT_SLOT) {
            continue;
        }
        wf_hold how;
        wf_slot *s = wf_take_hold(c, t, &how);
        if (!s) {
            return i;
        }
        wf_end_hold(c, s, how);
    }
    return z->n_out;
}

__attribute__((noinline)) static bool guard_outputs(const wf_frozen *z, wf_ctx *c, char *reason)
{
    const int i = freed_output(z, c);
    return i == z->n_out ||
           wf_frozen_refuse(reason, "output %d was a captured tensor, which has been freed", i);
}

bool wf_frozen_is_dead(const wf_frozen *z, wf_ctx *c)
{
    bool dead = wf_frozen_state_is_dead(z) || changed_also(z, c, true) < z->n_also ||
                (z->gives && freed_output(z, c) < z->n_out);
    for (int k = 0; k < z->n_source && !dead; k++) {
        wf_hold how;
        wf_slot *slot = z->src[k].st ? wf_take_hold(c, z->src[k].handle, &how) : NULL;
        dead = z->src[k].st && !slot;
        if (slot) {
            wf_end_hold(c, slot, how);
        }
    }
    return dead;
}

bool wf_frozen_guard(const wf_frozen *z, const wf_frozen_args *a, int n_out, char reason[WF_REASON])
{
    if (a->n != z->n_in || n_out != z->n_out) {
        return wf_frozen_refuse(reason, "another number of arguments or outputs");
    }
    if (wf_grad_enabled(a->c) != z->grad) {
        return wf_frozen_refuse(reason, "the grad mode differs");
    }
    if (a->c->device != z->home) {
        return wf_frozen_refuse(reason, "the default device differs");
    }
    if (atomic_load_explicit(&wf_modes, memory_order_relaxed) != z->modes) {
        return wf_frozen_refuse(reason, switched);
    }
    return guard_args(z, a, reason) && guard_captured(z, a, reason) &&
           wf_frozen_guard_state(z, a, reason) && wf_frozen_guard_draws(z, a, reason) &&
           (!z->n_also || guard_also(z, a->c, reason)) &&
           (!z->gives || guard_outputs(z, a->c, reason)) && guard_identity(z, a, reason);
}
