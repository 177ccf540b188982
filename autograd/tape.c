/*
 * autograd/tape.c -- nodes in chunks, saved values, releasing what nothing can reach; tape_record.c appends.
 *
 * Requirements on whoever edits next: (1) a node's operands are claimed (refs) before the node is
 * visible; (2) wf_tape_release_ref never recurses; (3) only the owning thread touches nodes: others
 * park references in `pending`.
 */
#include <string.h>

#include "autograd/tape.h"
#include "autograd/vjp.h"
#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/exec.h"

_Static_assert(offsetof(wf_tnode, u) == 80, "wf_tape_node_new zeros what is before the extents");

/* -- nodes and chunks ----------------------------------------------------------------------------------- */

static int chunk_open(wf_tape *t)
{
    uint32_t i;
    if (t->nfree) {
        i = t->free_list[--t->nfree];
    } else {
        if (t->nchunk == t->cap) {
            uint32_t cap = t->cap ? t->cap * 2 : 64;
            wf_tchunk **p = wf_realloc(t->chunk, cap * sizeof *p);
            if (!p) {
                return WEFT_ENOMEM;
            }
            t->chunk = p;
            uint32_t *f = wf_realloc(t->free_list, cap * sizeof *f);
            if (!f) {
                return WEFT_ENOMEM;
            }
            t->free_list = f;
            t->cap = cap;
        }
        if (t->nchunk >= UINT32_MAX / WF_TAPE_CHUNK) {
            return WEFT_ENOMEM;
        }
        wf_tchunk *c = wf_malloc(sizeof *c);
        if (!c) {
            return WEFT_ENOMEM;
        }
        i = t->nchunk++;
        t->chunk[i] = c;
    }
    wf_tchunk *c = t->chunk[i];
    c->seq = ++t->seq;
    c->live = 0;
    c->used = i == 0 ? 1 : 0; /* reference 0 is "none" */
    t->current = i;
    return 0;
}

wf_tape *wf_tape_get(wf_ctx *c)
{
    wf_tape *t = c->tape;
    if (!t) {
        t = wf_malloc(sizeof *t);
        if (!t) {
            return NULL;
        }
        memset(t, 0, sizeof *t);
        if (chunk_open(t) != 0) {
            wf_mfree(t->chunk);
            wf_mfree(t->free_list);
            wf_mfree(t);
            return NULL;
        }
        c->tape = t;
    }
    return t;
}

wf_ref wf_tape_node_new(wf_tape *t, int sort, wf_op op, int dtype, int rank, const int64_t *dims)
{
    wf_tchunk *c = t->chunk[t->current];
    if (c->used == WF_TAPE_CHUNK) {
        if (c->live == 0) { /* everything in it has died: start it over with a later order */
            c->seq = ++t->seq;
            c->used = t->current == 0 ? 1 : 0;
        } else if (chunk_open(t) != 0) {
            return 0;
        }
        c = t->chunk[t->current];
    }
    int64_t *ext = NULL;
    if (rank > WF_TAPE_DIMS) {
        ext = wf_object((size_t)rank * sizeof *ext);
        if (!ext) {
            return 0;
        }
    }
    uint32_t k = c->used++;
    wf_tnode *n = &c->node[k];
    char *head = (void *)n;
    wf_zero16(head);
    wf_zero16(head + 16);
    wf_zero16(head + 32);
    wf_zero16(head + 48);
    wf_zero16(head + 64);
    n->op = (uint8_t)op;
    n->sort = (uint8_t)sort;
    n->dtype = (uint8_t)dtype;
    n->rank = (uint8_t)rank;
    n->ndst = 1;
    int64_t *d = ext ? ext : n->u.dims_;
    for (int i = 0; i < rank; i++) {
        d[i] = dims[i];
    }
    if (ext) {
        n->u.ext = ext;
    }
    c->live++;
    t->live++;
    return t->current * WF_TAPE_CHUNK + k;
}

void wf_tnode_type(const wf_tnode *n, wf_type *t)
{
    t->dtype = n->dtype;
    t->rank = n->rank;
    memcpy(t->dims, wf_tnode_dims(n), (size_t)n->rank * sizeof(int64_t));
}

/* Where the value of node n that `user` saved hangs. */
static wf_tval **val_of(wf_tape *t, wf_tnode *n, wf_ref user)
{
    uint64_t order = wf_tnode_order(t, user);
    wf_tval **v = &n->val;
    while (*v && (*v)->since > order) {
        v = &(*v)->older;
    }
    return v;
}

static void val_free(wf_tval **at)
{
    wf_tval *v = *at;
    *at = v->older;
    wf_storage *st = v->st;
    wf_free(v, v->bytes);
    wf_storage_release(st);
}

static void val_unuse(wf_tape *t, wf_ref node, wf_ref user)
{
    wf_tval **v = val_of(t, wf_tnode_at(t, node), user);
    if (*v && --(*v)->users == 0) {
        val_free(v);
    }
}

void wf_tape_drop_saved(wf_tape *t, wf_ref r)
{
    wf_tnode *n = wf_tnode_at(t, r);
    if (!n->saved_src && !n->aux && !(n->flags & WF_TN_SELF)) {
        n->flags |= WF_TN_DROPPED;
        return;
    }
    wf_ref *src = wf_tnode_src(n);
    for (int i = 0; i < n->nsrc && i < 8; i++) {
        if (n->saved_src & (1u << i)) {
            val_unuse(t, src[i], r);
        }
    }
    n->saved_src = 0;
    for (int k = 0; n->aux && k < 8 && !(n->flags & WF_TN_DROPPED); k++) {
        if (n->aux->extra[k]) {
            val_unuse(t, n->aux->extra[k], r);
        }
    }
    n->flags |= WF_TN_DROPPED;
    if (n->flags & WF_TN_SELF) {
        n->flags &= (uint8_t)~WF_TN_SELF;
        val_unuse(t, r, r);
    }
}

void wf_custom_release(struct wf_custom *custom);

static void aux_free(wf_taux *a)
{
    if (a->custom) {
        wf_custom_release(a->custom);
    }
    wf_free(a, a->bytes);
}

/* -- leaves of other threads ------------------------------------------------------------------------------- */

/* Their slots hold the owner's node, so here they are found by their meta: one node per leaf. */
static wf_ref *foreign_bucket(wf_tape *t, const wf_meta *m)
{
    return &t->foreign[(uintptr_t)m / 64 % WF_TAPE_BUCKETS];
}

wf_ref wf_tape_foreign_find(wf_tape *t, const wf_meta *m)
{
    wf_ref r = m ? *foreign_bucket(t, m) : 0;
    while (r && wf_tnode_at(t, r)->meta != m) {
        r = wf_tnode_at(t, r)->src_[0];
    }
    return r;
}

void wf_tape_foreign_add(wf_tape *t, wf_ref r)
{
    wf_tnode *n = wf_tnode_at(t, r);
    wf_ref *head = foreign_bucket(t, n->meta);
    n->flags |= WF_TN_FOREIGN;
    n->src_[0] = *head;
    *head = r;
}

static void foreign_remove(wf_tape *t, wf_ref r)
{
    wf_ref *at = foreign_bucket(t, wf_tnode_at(t, r)->meta);
    while (*at != r) {
        at = &wf_tnode_at(t, *at)->src_[0];
    }
    *at = wf_tnode_at(t, r)->src_[0];
}

/* -- release ------------------------------------------------------------------------------------------------ */

/* Does the node hold nothing but operands in its own room? */
static inline bool is_light(const wf_tnode *n)
{
    return !n->val && !n->aux && !n->meta && !n->saved_src && n->rank <= WF_TAPE_DIMS &&
           !(n->flags & (WF_TN_SELF | WF_TN_FOREIGN));
}

/* What a dead node has outside of its own room. */
static void free_rest(wf_tape *t, wf_tnode *n, wf_ref *list)
{
    for (int k = 0; n->aux && k < 8; k++) {
        wf_ref d = n->aux->extra[k];
        if (d && --wf_tnode_at(t, d)->refs == 0) {
            wf_tnode_at(t, d)->g.slot = *list;
            *list = d;
        }
    }
    if (n->aux) {
        aux_free(n->aux);
    }
    if (n->meta) {
        wf_meta_release(n->meta);
    }
    if (n->rank > WF_TAPE_DIMS) {
        wf_free(n->u.ext, n->rank * sizeof *n->u.ext);
    }
}

/* Takes a dead node apart; operands that die too are linked in front of *list. */
static void node_free(wf_tape *t, wf_ref r, wf_ref *list)
{
    wf_tnode *n = wf_tnode_at(t, r);
    const bool light = is_light(n);
    if (!light) {
        wf_tape_drop_saved(t, r);
        while (n->val) {
            val_free(&n->val);
        }
        if (n->flags & WF_TN_FOREIGN) {
            foreign_remove(t, r);
        }
    }
    wf_ref *src = wf_tnode_src(n);
    for (int i = 0; i < n->nsrc; i++) {
        if (src[i] && --wf_tnode_at(t, src[i])->refs == 0) {
            wf_tnode_at(t, src[i])->g.slot = *list;
            *list = src[i];
        }
    }
    if (!light) {
        free_rest(t, n, list);
    }
    uint32_t ci = r / WF_TAPE_CHUNK;
    t->live--;
    if (--t->chunk[ci]->live == 0 && ci != t->current) {
        t->free_list[t->nfree++] = ci;
    }
}

static void lock(_Atomic int *l)
{
    while (atomic_exchange_explicit(l, 1, memory_order_acquire)) {
    }
}

static void unlock(_Atomic int *l)
{
    atomic_store_explicit(l, 0, memory_order_release);
}

void wf_tape_release_now(wf_tape *t, wf_ref r)
{
    wf_tnode *n = wf_tnode_at(t, r);
    if (--n->refs != 0) {
        return;
    }
    wf_ref list = 0;
    node_free(t, r, &list);
    while (list) {
        wf_ref next = wf_tnode_at(t, list)->g.slot;
        wf_ref dead = list;
        list = next;
        node_free(t, dead, &list);
    }
}

/* References that other threads gave back. */
void wf_tape_drain(wf_tape *t)
{
    if (!atomic_load_explicit(&t->remote, memory_order_relaxed)) {
        return;
    }
    wf_ctx *c = wf_tls_ctx; /* most often in the middle of an op */
    for (;;) {
        lock(&t->lock);
        wf_ref r = t->npending ? t->pending[--t->npending] : 0;
        if (!r) {
            atomic_store_explicit(&t->remote, 0, memory_order_relaxed);
        }
        unlock(&t->lock);
        if (!r) {
            return;
        }
        if (c) {
            c->busy++;
        }
        wf_tape_release_now(t, r);
        if (c) {
            c->busy--;
        }
    }
}

void wf_tape_release_ref(wf_ctx *c, wf_ref r)
{
    wf_tape_release_now(c->tape, r);
}

void wf_tape_discard(wf_ctx *c, wf_ref r)
{
    if (r && wf_tnode_at(c->tape, r)->refs == 0) {
        wf_tnode_at(c->tape, r)->refs = 1;
        wf_tape_release_now(c->tape, r);
    }
}

void wf_tape_on_release(wf_ctx *c, uint32_t owner, wf_ref r)
{
    if (owner == c->id) {
        if (c->tape) {
            wf_tape_release_now(c->tape, r);
        }
        return;
    }
    wf_ctx *o = wf_ctx_at(owner);
    wf_tape *t = o ? o->tape : NULL;
    if (!t) {
        return;
    }
    lock(&t->lock);
    wf_ref *room = wf_room(t->pending, t->npending, &t->cap_pending, 16, sizeof *room);
    if (room) { /* else: no memory; the node lives until its thread ends */
        t->pending = room;
        t->pending[t->npending++] = r;
        atomic_store_explicit(&t->remote, 1, memory_order_relaxed);
    }
    unlock(&t->lock);
}

void wf_tape_on_close(wf_ctx *c)
{
    wf_tape *t = c->tape;
    if (t) {
        wf_tape_drain(t);
    }
    if (t && t->live == 0) {
        c->tape = NULL;
        for (uint32_t i = 0; i < t->nchunk; i++) {
            wf_mfree(t->chunk[i]);
        }
        wf_mfree(t->chunk);
        wf_mfree(t->free_list);
        wf_mfree(t->pending);
        wf_mfree(t);
    }
}

void wf_tape_on_stamp(wf_ctx *c, wf_ref r, const char *site)
{
    wf_tape *t = c->tape;
    if (t && !wf_tnode_at(t, r)->site) {
        wf_tnode_at(t, r)->site = site;
    }
}

/* -- values ---------------------------------------------------------------------------------------------- */

/* With the name that the tensor has, which another thread may be changing. NULL: no memory. */
static wf_tval *new_val(const wf_slot *s)
{
    const size_t bytes = sizeof(wf_tval) + s->rank * sizeof(int64_t);
    wf_meta *m = s->meta;
    if (!m) {
        wf_tval *v = wf_object(bytes);
        if (v) {
            v->bytes = bytes;
            v->name = NULL;
        }
        return v;
    }
    wf_meta_lock(m);
    const size_t length = m->name ? strlen(m->name) + 1 : 0;
    wf_tval *v = wf_object(bytes + length);
    if (v) {
        v->bytes = bytes + length;
        v->name = length ? memcpy((char *)v + bytes, m->name, length) : NULL;
    }
    wf_meta_unlock(m);
    return v;
}

int wf_tape_save(wf_tape *t, wf_ref node, wf_ref user, wf_slot *s)
{
    wf_tnode *n = wf_tnode_at(t, node);
    uint32_t version = atomic_load_explicit(&s->st->version, memory_order_relaxed);
    wf_tval *v = n->val;
    if (v && v->st == s->st && v->offset == s->offset && v->version == version) {
        v->users++;
        return 0;
    }
    v = new_val(s);
    if (!v) {
        return WEFT_ENOMEM;
    }
    v->older = n->val;
    v->since = wf_tnode_order(t, user);
    v->st = s->st;
    wf_storage_retain_here(s->st);
    v->offset = s->offset;
    v->version = version;
    v->users = 1;
    memcpy(v->strides, wf_strides(s), (size_t)s->rank * sizeof(int64_t));
    n->val = v;
    return 0;
}

const char *wf_tnode_name(const wf_tnode *n)
{
    return n->op == WF_OP_CUSTOM ? wf_custom_name(n->aux->custom) : wf_rows[n->op].name;
}

/* The name that the value has now: of a result that its own derivative reads, there was none yet when it was saved. That of
 * the node's own tensor goes before that of an alias, which sees the same elements in the same order. A copy, or NULL. */
static char *name_now(wf_ctx *c, wf_ref r, const wf_tval *v)
{
    const wf_tnode *n = wf_tnode_at(c->tape, r);
    const size_t bytes = n->rank * sizeof(int64_t);
    char *name = NULL;
    bool pinned, own = false;
    uint32_t k = 0;
    for (wf_slot *s; !own && (s = wf_next_live(c, c, &k, &pinned, NULL));) {
        if (s->st == v->st && s->offset == v->offset && s->dtype == n->dtype &&
            s->rank == n->rank && memcmp(wf_dims(s), wf_tnode_dims(n), bytes) == 0 &&
            memcmp(wf_strides(s), v->strides, bytes) == 0 && (!name || s->node == r)) {
            char *found = wf_meta_name(s->meta, NULL);
            own = found && s->node == r;
            if (found) {
                wf_mfree(name);
                name = found;
            }
        }
        if (pinned) {
            wf_unpin(c, s);
        }
    }
    return name;
}

static weft_tensor stale(wf_ctx *c, wf_ref r, const wf_tval *v, const wf_tnode *user, int which,
                         uint32_t now)
{
    const wf_tnode *n = wf_tnode_at(c->tape, r);
    char dims[128], write[WF_NAME_SIZE];
    char *later = v->name ? NULL : name_now(c, r, v);
    const char *name = later ? later : v->name;
    size_t at = 0;
    const int64_t *d = wf_tnode_dims(n);
    dims[0] = '\0';
    for (int i = 0; i < n->rank && at < sizeof dims - 24; i++) {
        at += (size_t)snprintf(dims + at, sizeof dims - at, i ? ",%lld" : "%lld", (long long)d[i]);
    }
    wf_storage *st = v->st;
    const weft_tensor failed = wf_raise_text(
        c, WEFT_EGRAD, "backward",
        "%s (%s) needs %s %d, %s[%s]%s%s%s made at %s, as it was at version %u, but %s%s%s "
        "changed "
        "it to version %u; use an out-of-place op there, or give the first op a copy (weft_clone)",
        wf_tnode_name(user), user->site ? user->site : "unknown site",
        user->op == WF_OP_CUSTOM ? "saved tensor"
        : which < 0              ? "its result"
                                 : "operand",
        which < 0 ? -which - 1 : which, wf_dtype_name(n->dtype), dims, name ? " '" : "",
        name ? name : "", name ? "'" : "", n->site ? n->site : "unknown site", v->version,
        wf_write_name(st->write_op, write), st->write_site ? " at " : "",
        st->write_site ? st->write_site : "", now);
    wf_mfree(later);
    return failed;
}

/* A traced call failed before it had computed the value: it may not even have memory. */
static weft_tensor missing(wf_ctx *c, const wf_tval *v, const wf_tnode *user)
{
    char text[WF_BROKEN_SIZE];
    return wf_raise_text(
        c, WEFT_EGRAD, "backward",
        "%s (%s) needs a value that was never computed: in the traced call that made it, %s; "
        "call the function again and differentiate what it gives then",
        wf_tnode_name(user), user->site ? user->site : "unknown site", wf_broken_text(v->st, text));
}

weft_tensor wf_tape_value(wf_ctx *c, wf_ref r, wf_ref user, int which)
{
    wf_tape *t = c->tape;
    wf_tnode *n = wf_tnode_at(t, r);
    wf_tnode *u = wf_tnode_at(t, user);
    const wf_tval *v = *val_of(t, n, user);
    if (!v) {
        return wf_raise_text(c, WEFT_EGRAD, "backward",
                             "the values that %s (%s) saved were released by an earlier backward; "
                             "pass .retain_graph = true to the first one",
                             wf_tnode_name(u), u->site ? u->site : "unknown site");
    }
    uint32_t now = atomic_load_explicit(&v->st->version, memory_order_relaxed);
    if (now != v->version) {
        return stale(c, r, v, u, which, now);
    }
    const uint64_t broken = atomic_load_explicit(&v->st->broken, memory_order_acquire);
    if (__builtin_expect(broken != 0, 0) && broken != WF_ARRIVING) {
        return missing(c, v, u);
    }
    weft_tensor h = wf_wrap_view(c, v->st, (char *)v->st->data + v->offset, n->dtype, n->rank,
                                 wf_tnode_dims(n), v->strides);
    if (h.slot && wf_grad_enabled(c)) {
        wf_slot *s = wf_slot_at(c, h.slot);
        if (n->sort == WF_TN_LEAF) {
            s->flags |= WF_SLOT_REQUIRES_GRAD;
        }
        if (n->sort != WF_TN_INPUT) {
            s->node = r;
            n->refs++;
        } else {
            s->flags |= WF_SLOT_APART; /* a constant, whatever else is recorded of its memory */
        }
        s->node_gen = wf_slot_root_gen(s);
        if (n->meta) {
            wf_slot_share_meta(s, n->meta);
        }
    }
    return h;
}

const void *wf_tape_elements(wf_tape *t, wf_ref r, wf_ref user)
{
    wf_tnode *n = wf_tnode_at(t, r);
    const wf_tval *v = *val_of(t, n, user);
    if (!v || atomic_load_explicit(&v->st->version, memory_order_relaxed) != v->version ||
        (atomic_load_explicit(&v->st->broken, memory_order_acquire) | v->st->device |
         atomic_load_explicit(&v->st->is_virtual, memory_order_acquire)) != 0) {
        return NULL;
    }
    return wf_row_major(n->rank, wf_tnode_dims(n), v->strides) < 0
               ? NULL
               : (const char *)v->st->data + v->offset;
}
