/*
 * autograd/hooks.c -- functions that see gradients as backward passes.
 *
 * Invariants: hooks run in order of registration, outside any lock, with the engine's grad mode; a
 * replacement has the gradient's shape and dtype; an error handle from a hook ends backward.
 */
#include <string.h>

#include "autograd/backward.h"
#include "autograd/tape.h"
#include "eager/alloc.h"
#include "eager/device.h"
#include "weft/grad.h"

/* The replacement, on the device of what it replaces; else an error. */
static weft_tensor check_replacement(wf_ctx *c, weft_tensor old, weft_tensor now)
{
    bool op, np;
    wf_why why = {0};
    wf_slot *a = wf_pin(c, old, &op, &why), *b = wf_pin(c, now, &np, &why);
    wf_type x, y;
    int device = a ? wf_slot_device(a) : WF_DEVICE_HOST;
    if (a && b) {
        wf_slot_type(a, &x);
        wf_slot_type(b, &y);
        if (!wf_type_same(&x, &y)) {
            wf_fail(&why, wf_gradient_unlike(&x, &y),
                    "a hook replaced a gradient by one of another shape or dtype");
        }
    }
    if (a && op) {
        wf_unpin(c, a);
    }
    if (b && np) {
        wf_unpin(c, b);
    }
    weft_tensor both[2] = {old, now};
    return why.code ? wf_raise(c, "hook", 2, both, &why)
                    : wf_gradient_given(c, "hook", now, device);
}

/* The place of the first hook with a number above `after` and, where values rise, with this value or a later one; under the
 * lock. */
static size_t place_of(const wf_hooks *all, uint64_t after, uint64_t value)
{
    size_t from = 0, to = all ? all->n : 0;
    while (from < to) {
        const size_t mid = from + (to - from) / 2;
        const struct wf_hook_place *h = &all->at[mid];
        if (h->id <= after || (all->rising && h->value < value)) {
            from = mid + 1;
        } else {
            to = mid;
        }
    }
    return from;
}

/* The first hook of this kind and value with a number above `after`, held: hooks may remove themselves and each
 * other, and other threads may remove them. */
static wf_hook *next_hook(wf_meta *m, bool post, uint64_t value, uint64_t after)
{
    wf_meta_lock(m);
    const wf_hooks *all = m->hooks;
    wf_hook *p = NULL;
    for (size_t i = place_of(all, after, value); all && i < all->n && !p; i++) {
        wf_hook *h = all->at[i].is;
        if (all->rising && all->at[i].value > value) {
            break;
        }
        p = h && h->post == (int)post && h->value == value ? h : NULL;
    }
    if (p) {
        p->users++;
    }
    wf_meta_unlock(m);
    return p;
}

static void hook_free(wf_hook *h)
{
    if (h->release) {
        h->release(h->user);
    }
    wf_mfree(h);
}

static void let_go(wf_meta *m, wf_hook *h)
{
    wf_meta_lock(m);
    bool last = --h->users == 0 && h->removed;
    wf_meta_unlock(m);
    if (last) {
        hook_free(h);
    }
}

bool wf_meta_has_post_hooks(wf_meta *m)
{
    wf_hook *h = next_hook(m, true, 0, 0);
    if (h) {
        let_go(m, h);
    }
    return h != NULL;
}

wf_meta *wf_meta_find(wf_ctx *c, wf_slot *s)
{
    bool mine = s->context == c->id && s->node;
    wf_meta *of_node = mine ? wf_tnode_at(c->tape, s->node)->meta : NULL;
    return of_node ? of_node : s->meta;
}

wf_meta *wf_meta_attach(wf_ctx *c, wf_slot *s, uint64_t *value, wf_why *why)
{
    wf_ref r = wf_tape_node_of(c, s, why);
    if (!r) {
        return NULL;
    }
    wf_tnode *n = wf_tnode_at(c->tape, r);
    *value = n->sort == WF_TN_LEAF ? 0 : wf_tnode_order(c->tape, r);
    if (!n->meta) {
        wf_meta *own = wf_slot_meta(s);
        n->meta = own ? wf_meta_retain(own) : NULL;
    }
    wf_meta *m = n->meta; /* of a node that no slot of ours holds: the slot's own, which lives */
    wf_tape_discard(c, r);
    if (!m) {
        wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    return m;
}

static weft_tensor another_handle(wf_ctx *c, weft_tensor g)
{
    bool pinned;
    wf_why why = {0};
    wf_slot *s = wf_pin(c, g, &pinned, &why);
    weft_tensor a = s ? wf_alias(c, s) : wf_raise(c, "hook", 1, &g, &why);
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return a;
}

static int run_one(wf_ctx *c, const wf_hook *h, weft_tensor *g, uint32_t depth)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor shown = another_handle(c, *g); /* the hook may keep or free it */
    weft_tensor r = shown.slot ? h->fn(h->user, shown) : shown;
    int rc = 0;
    if (wf_is_error(r)) {
        rc = (int)weft_error_status(r);
    } else if (r.slot != 0 && !h->post) {
        r = check_replacement(c, *g, r);
        rc = r.slot ? 0 : (int)weft_error_status(r);
        if (!rc) {
            weft_tensor own = wf_give_to(c, depth, another_handle(c, r));
            weft_free(*g);
            *g = own;
            rc = own.slot ? 0 : (int)weft_error_status(own);
        }
    }
    weft_scope_end(sc);
    return rc;
}

int wf_hooks_run(wf_ctx *c, wf_meta *m, bool post, uint64_t value, weft_tensor *g, uint32_t depth)
{
    int rc = 0;
    uint64_t ran = 0;
    for (wf_hook *h; !rc && (h = next_hook(m, post, value, ran)) != NULL;) {
        ran = h->id;
        rc = run_one(c, h, g, depth);
        let_go(m, h);
    }
    return rc;
}

static _Atomic uint64_t next_id = 1;

/* Puts h behind the others and numbers it, under the lock. False: no memory. */
static bool put_last(wf_meta *m, wf_hook *h)
{
    wf_hooks *all = m->hooks;
    if (!all || all->n == all->cap) {
        const size_t cap = all ? 2 * all->cap : 2;
        wf_hooks *more = wf_realloc(all, sizeof *more + cap * sizeof more->at[0]);
        if (!more) {
            return false;
        }
        more->n = all ? more->n : 0;
        more->gaps = all ? more->gaps : 0;
        more->rising = all ? more->rising : true;
        more->cap = cap;
        m->hooks = all = more;
    }
    h->id = atomic_fetch_add(&next_id, 1);
    all->rising &= all->n == 0 || all->at[all->n - 1].value <= h->value;
    all->at[all->n++] = (struct wf_hook_place){h->id, h->value, h};
    return true;
}

static uint64_t add_hook(weft_tensor t, weft_hook_fn fn, void *user, void (*release)(void *),
                         int post)
{
    const char *op = post ? "register_post_hook" : "register_hook";
    wf_ctx *c = wf_ctx_get();
    wf_why why = {0};
    bool pinned = false;
    if (!c || wf_is_error(t)) {
        wf_error_again(c, t);
        return 0;
    }
    wf_slot *s = t.slot < WF_ABSENT_SLOT ? wf_pin(c, t, &pinned, &why) : NULL;
    wf_meta *m = NULL;
    wf_hook *h;
    uint64_t id = 0, value = 0;
    if (!s) {
        if (!why.code) {
            wf_not_a_tensor(&why);
        }
    } else if (!fn) {
        wf_fail(&why, WEFT_EINVALID, "the hook's function is NULL");
        wf_hint(&why, "pass a function that takes the gradient");
    } else if (!wf_slot_tracked(s) || (post && !(s->flags & WF_SLOT_REQUIRES_GRAD))) {
        wf_fail(&why, WEFT_EGRAD, "%s",
                post ? "the tensor is not a leaf that requires a gradient"
                     : "the tensor does not take part in gradients");
        wf_hint(&why, "call weft_requires_grad_ first");
    } else if ((m = wf_meta_attach(c, s, &value, &why)) != NULL) {
        h = wf_malloc(sizeof *h);
        if (h) {
            *h = (wf_hook){.value = value,
                           .by = c->id,
                           .post = post,
                           .fn = fn,
                           .user = user,
                           .release = release};
            wf_meta_lock(m);
            id = put_last(m, h) ? h->id : 0;
            wf_meta_unlock(m);
        }
        if (!id) {
            wf_mfree(h);
            wf_fail(&why, WEFT_ENOMEM, "out of memory");
        }
    }
    if (why.code) {
        wf_raise(c, op, 1, &t, &why);
    }
    if (s) {
        wf_note_asked(c, s);
    }
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return id;
}

uint64_t(weft_register_hook)(weft_tensor t, weft_hook_fn fn, void *user,
                             void (*release)(void *user))
{
    return add_hook(t, fn, user, release, 0);
}

uint64_t(weft_register_post_hook)(weft_tensor leaf, weft_hook_fn fn, void *user,
                                  void (*release)(void *user))
{
    return add_hook(leaf, fn, user, release, 1);
}

/* Takes hook i out, under the lock. Returns it if nobody runs it: the caller frees it. Else the last thread that runs it
 * releases it. */
static wf_hook *take_out(wf_hooks *all, size_t i)
{
    wf_hook *h = all->at[i].is;
    all->at[i].is = NULL;
    all->gaps++;
    if (all->gaps > all->n / 2) {
        size_t n = 0;
        for (size_t k = 0; k < all->n; k++) {
            all->at[n] = all->at[k];
            n += all->at[k].is != NULL;
        }
        all->n = n;
        all->gaps = 0;
    }
    h->removed = 1;
    return h->users ? NULL : h;
}

uint64_t wf_hooks_next(void)
{
    return atomic_load(&next_id);
}

void wf_hooks_drop_since(wf_ctx *c, weft_tensor t, uint64_t from)
{
    bool pinned = false;
    wf_slot *s = wf_pin(c, t, &pinned, NULL);
    wf_meta *m = s ? wf_meta_find(c, s) : NULL;
    const uint64_t end = wf_hooks_next(); /* their releases may register more */
    for (uint64_t id = from; m && id;) {
        wf_hook *idle = NULL;
        wf_meta_lock(m);
        wf_hooks *all = m->hooks;
        size_t i = place_of(all, id - 1, 0);
        while (all && i < all->n && !(all->at[i].is && all->at[i].is->by == c->id)) {
            i++;
        }
        const bool found = all && i < all->n && all->at[i].id < end;
        id = found ? all->at[i].id + 1 : 0;
        if (found) {
            idle = take_out(all, i);
        }
        wf_meta_unlock(m);
        if (idle) {
            hook_free(idle);
        }
    }
    if (s && pinned) {
        wf_unpin(c, s);
    }
}

weft_status(weft_remove_hook)(weft_tensor t, uint64_t hook)
{
    wf_ctx *c = wf_ctx_get();
    wf_why why = {0};
    bool pinned = false;
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (wf_is_error(t)) {
        return (weft_status)wf_error_again(c, t);
    }
    wf_slot *s = t.slot < WF_ABSENT_SLOT ? wf_pin(c, t, &pinned, &why) : NULL;
    wf_hook *idle = NULL;
    bool found = false;
    wf_meta *m = s ? wf_meta_find(c, s) : NULL;
    if (m) {
        wf_meta_lock(m);
        const size_t i = hook ? place_of(m->hooks, hook - 1, 0) : 0;
        found =
            hook && m->hooks && i < m->hooks->n && m->hooks->at[i].id == hook && m->hooks->at[i].is;
        idle = found ? take_out(m->hooks, i) : NULL;
        wf_meta_unlock(m);
    }
    if (s && pinned) {
        wf_unpin(c, s);
    }
    if (!found) {
        if (!why.code) {
            wf_fail(&why, WEFT_EINVALID, "the tensor has no hook %llu", (unsigned long long)hook);
            wf_hint(&why, "pass the tensor and the number of weft_register_hook, once");
        }
        return (weft_status)wf_raise_status(c, "remove_hook", 1, &t, &why);
    }
    if (idle) {
        hook_free(idle);
    }
    return WEFT_OK;
}
