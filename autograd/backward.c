/*
 * autograd/backward.c -- the engine: walks recorded ops in reverse and runs their derivatives.
 *
 * Builds, runs and drops the adjoint node by node. A node is processed when every later node that
 * uses it has been: nodes leave a heap in descending order, leaves last. Nothing recurses, so a chain of a
 * million ops needs no stack.
 *
 * Invariants: pending gradients live in the engine's scope and are released as they are consumed;
 * on error every pending gradient and queue mark is cleared; saved values are dropped behind the
 * engine unless the graph is retained.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/custom.h"
#include "autograd/engine.h"
#include "autograd/vjp.h"
#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/layout.h"
#include "eager/profile.h"

int wf_vjp_elementwise(wf_vjp *v);

/* clang-format off */
typedef int (*vjp_fn)(wf_vjp *v);
int wf_vjp_NODIFF(wf_vjp *v);
int wf_vjp_NODIFF(wf_vjp *v) { (void)v; return 0; }
static vjp_fn row_vjp(wf_op op)
{
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) int wf_vjp_##vjp(wf_vjp *v);
#include "jit/ir/ops.def"
    static const vjp_fn table[WF_OP_COUNT] = {
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) [WF_OP_##NAME] = wf_vjp_##vjp,
#include "jit/ir/ops.def"
    };
    return op == WF_OP_CUSTOM ? wf_vjp_custom : wf_op_is_elementwise(op) ? wf_vjp_elementwise : table[op];
}
/* clang-format on */

/* -- the queue: a max-heap of nodes by key -------------------------------------------------------------- */

typedef wf_engine engine;

/* Leaves, which have no operands, come after all ops, as they do in every step but the one that uses them first and makes
 * their nodes: so that step records the same ops in the same order as later ones, whatever order it was that its leaves were
 * used in (C leaves the order of arguments to the compiler). */
static uint64_t key_of(wf_tape *t, wf_ref r, const wf_tnode *n)
{
    return wf_tnode_order(t, r) | (n->sort == WF_TN_LEAF ? 0 : UINT64_C(1) << 63);
}

int wf_engine_queue(engine *e, wf_ref r)
{
    wf_tnode *n = wf_tnode_at(e->t, r);
    if (n->flags & WF_TN_QUEUED) {
        return 0;
    }
    wf_queued *heap = e->n < e->cap ? e->heap : wf_more_objects(e->heap, &e->cap, 64, sizeof *heap);
    if (!heap) {
        wf_raise_text(e->c, WEFT_ENOMEM, "backward", "out of memory for the queue");
        return WEFT_ENOMEM;
    }
    e->heap = heap;
    n->flags |= WF_TN_QUEUED;
    n->refs++;
    const wf_queued q = {key_of(e->t, r, n), r};
    uint32_t i = e->n++;
    while (i > 0) {
        uint32_t up = (i - 1) / 2;
        if (heap[up].key >= q.key) {
            break;
        }
        heap[i] = heap[up];
        i = up;
    }
    heap[i] = q;
    return 0;
}

static wf_ref queue_pop(engine *e)
{
    wf_queued *heap = e->heap, last = heap[--e->n];
    wf_ref top = heap[0].ref;
    uint32_t i = 0;
    for (;;) {
        uint32_t k = 2 * i + 1;
        if (k >= e->n) {
            break;
        }
        k += k + 1 < e->n && heap[k + 1].key > heap[k].key;
        if (heap[k].key <= last.key) {
            break;
        }
        heap[i] = heap[k];
        i = k;
    }
    heap[i] = last;
    wf_tnode_at(e->t, top)->flags &= (uint8_t)~WF_TN_QUEUED;
    return top;
}

/* -- gradients that a caller, a hook or a custom function gives --------------------------------------------------- */

weft_tensor wf_gradient_given(wf_ctx *c, const char *op, weft_tensor g, int device)
{
    wf_why why = {0};
    bool pinned;
    wf_slot *s = wf_device_api ? wf_pin(c, g, &pinned, &why) : NULL;
    int from = s ? wf_slot_device(s) : device, rank = s ? s->rank : 0;
    if (s && pinned) {
        wf_unpin(c, s);
    }
    if (!why.code && from == device) {
        return g;
    }
    if (!why.code && rank == 0) { /* a number goes with any device */
        int64_t ints[2] = {device, from};
        return wf_op1(WF_OP_COPY, &(wf_attr){.n_ints = 2, .ints = ints}, g);
    }
    if (!why.code) {
        wf_fail(&why, WEFT_EINVALID, "a gradient is on another device (%s) than its tensor (%s)",
                wf_device_code_name(from), wf_device_code_name(device));
        wf_hint(&why, "move it: weft_to(gradient, weft_device_of(tensor))");
    }
    return wf_raise(c, op, 1, &g, &why);
}

/* -- gradients in flight ------------------------------------------------------------------------------------ */

/* No other handle or saved value shares the memory, which it covers row-major (or, if `last`, channels-last), and it may be
 * written. */
static bool sole_owner(wf_slot *s, bool last)
{
    int32_t held = atomic_load(&s->st->held); /* a trace's reference reads the value it has now */
    return atomic_load(&s->st->handles) == 1 && atomic_load(&s->st->refs) == 1 + held &&
           (wf_slot_is_whole(s) || (last && wf_slot_is_whole_last(s))) && !s->node &&
           !s->st->read_only;
}

/* last: it may cover it channels-last. */
static bool exclusive(wf_ctx *c, weft_tensor g, bool last)
{
    bool pinned, yes = false;
    wf_slot *s = wf_pin(c, g, &pinned, NULL);
    if (s) {
        yes = !pinned && sole_owner(s, last);
    }
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return yes;
}

int wf_engine_accumulate(engine *e, weft_tensor *to, weft_tensor g)
{
    if (to->slot == 0) {
        bool pinned;
        wf_slot *s = wf_pin(e->c, g, &pinned, NULL);
        if (s && (pinned || s->scope <= e->scope.depth)) {
            /* somebody else's handle, passed through: take one of our own on the same memory */
            weft_tensor own = wf_alias(e->c, s);
            if (pinned) {
                wf_unpin(e->c, s);
            }
            g = own;
        }
        *to = wf_give_to(e->c, e->scope.depth, g);
        return g.slot ? 0 : (int)weft_error_status(g);
    }
    weft_tensor src[2] = {*to, g};
    if (!e->create && exclusive(e->c, *to, true)) {
        return wf_dispatch_inplace(WF_OP_ADD, NULL, 2, src, *to);
    }
    weft_tensor sum = wf_op2(WF_OP_ADD, NULL, *to, g);
    if (sum.slot == 0) {
        return (int)weft_error_status(sum);
    }
    weft_free(*to);
    *to = wf_give_to(e->c, e->scope.depth, sum);
    return 0;
}

static void drop(weft_tensor *g)
{
    if (g->slot) {
        weft_free(*g);
    }
    *g = WEFT_NONE;
}

weft_tensor wf_engine_home(engine *e, const wf_tnode *n, weft_tensor g)
{
    int from = wf_device_api ? wf_device_of_handle(e->c, g) : n->device;
    int64_t ints[2] = {n->device, from};
    return from == n->device ? g : wf_op1(WF_OP_COPY, &(wf_attr){.n_ints = 2, .ints = ints}, g);
}

static bool is_captured(const engine *e, wf_ref r, const wf_tnode *n)
{
    for (int i = 0; i < e->n_cap; i++) {
        if (n->sort == WF_TN_LEAF ? e->cap_in[i].meta && e->cap_in[i].meta == n->meta
                                  : e->cap_in[i].node == r) {
            return true;
        }
    }
    return false;
}

/* Does a gradient of node r lead anywhere? grad_of's marks are not on what a derivative has recorded since (wf_backward_continue). */
static bool is_wanted(const engine *e, wf_ref r)
{
    const wf_tnode *n = wf_tnode_at(e->t, r);
    return n->sort != WF_TN_INPUT && !(n->flags & WF_TN_SKIP) &&
           (n->sort != WF_TN_LEAF || e->n_cap == 0 || is_captured(e, r, n));
}

/* Adds g to the gradient of node r. own: where the engine has g, if nobody else wants it there: an operand that has no
 * gradient yet gets the handle itself. */
static int deliver(engine *e, wf_ref r, weft_tensor g, weft_tensor *own)
{
    wf_tnode *n = wf_tnode_at(e->t, r);
    if (!is_wanted(e, r)) {
        return 0;
    }
    g = wf_engine_home(e, n, g);
    if (g.slot == 0) {
        return (int)weft_error_status(g);
    }
    n = wf_tnode_at(e->t, r);
    int rc = 0;
    if (own && n->g.slot == 0 && wf_same_handle(g, *own)) {
        n->g = g;
        *own = WEFT_NONE;
    } else {
        rc = wf_engine_accumulate(e, &n->g, g);
    }
    rc = rc ? rc : wf_engine_queue(e, r);
    if (rc && !(n->flags & WF_TN_QUEUED)) {
        drop(&n->g);
    }
    return rc;
}

/* -- leaves, hooks, captures -------------------------------------------------------------------------------- */

static weft_tensor handle_on(wf_ctx *c, weft_tensor g)
{
    bool pinned;
    wf_slot *s = wf_pin(c, g, &pinned, NULL);
    weft_tensor own = s ? wf_alias(c, s) : g;
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return own;
}

bool wf_gradient_is_alone(wf_ctx *c, weft_tensor g)
{
    bool pinned;
    wf_slot *s = wf_pin(c, g, &pinned, NULL);
    const bool yes = s && sole_owner(s, false);
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return yes;
}

/* m->grad += g without leaving the lock, where that is one kernel on memory nobody else sees. */
static bool add_in_place(engine *e, wf_meta *m, weft_tensor g, int *rc)
{
    const bool yes = !e->create && !wf_gradients_are_kept() && wf_gradient_is_alone(e->c, m->grad);
    if (yes) {
        weft_tensor src[2] = {m->grad, g};
        *rc = wf_dispatch_inplace(WF_OP_ADD, NULL, 2, src, m->grad);
        wf_wrote_as(e->c, m->grad, WF_WRITE_BACKWARD, NULL);
        e->c->last_write = m->grad;
    }
    return yes;
}

/* Does the tensor of node n lie channels-last? */
static bool lies_last(const wf_tnode *n)
{
    return n->sort != WF_TN_RESULT && n->out == WF_TN_LAST;
}

/* Adds g to what m has accumulated; last: its leaf lies channels-last. A first gradient is taken over when nothing else
 * shares it and it lies as its leaf may. Sums that
 * make memory, and the release of what they replace, run outside the lock: they may end in callbacks. */
static int leaf_accumulate(engine *e, wf_meta *m, bool last, weft_tensor g)
{
    for (;;) {
        int rc = 0;
        wf_meta_lock(m);
        weft_tensor old = m->grad;
        bool wanted = atomic_load_explicit(&m->slots, memory_order_acquire) != 0;
        bool done = !wanted || (old.slot && add_in_place(e, m, g, &rc));
        weft_tensor base = !done && old.slot ? handle_on(e->c, old) : WEFT_NONE;
        wf_meta_unlock(m);
        if (wanted && e->c->recorder) {
            e->c->recorder->gradient(e->c->recorder, m, old, true);
        }
        if (done) {
            return rc;
        }
        weft_tensor sum = old.slot                                ? wf_op2(WF_OP_ADD, NULL, base, g)
                          : e->create || exclusive(e->c, g, last) ? handle_on(e->c, g)
                                                                  : wf_op1(WF_OP_COPY, NULL, g);
        drop(&base);
        if (sum.slot == 0) {
            return (int)weft_error_status(sum);
        }
        sum = wf_keep_gradient(e->c, sum);
        wf_meta_lock(m);
        bool same = wf_same_handle(m->grad, old) &&
                    atomic_load_explicit(&m->slots, memory_order_acquire) != 0;
        if (same) {
            m->grad = sum;
        }
        wf_meta_unlock(m);
        wf_free_handle(same ? wf_gradient_replaced(m, old) : sum);
        if (same) {
            return 0;
        }
    }
}

/* Hooks of node n see and may replace *g. */
static int run_hooks(engine *e, wf_ref r, wf_tnode *n, weft_tensor *g)
{
    if (!n->meta) {
        return 0;
    }
    const uint64_t value = n->sort == WF_TN_LEAF ? 0 : wf_tnode_order(e->t, r);
    return wf_hooks_run(e->c, n->meta, false, value, g, e->scope.depth);
}

static int capture(engine *e, wf_ref r, wf_tnode *n)
{
    int rc = 0;
    for (int i = 0; i < e->n_cap && !rc; i++) {
        const wf_grad_capture *k = &e->cap_in[i];
        bool hit = n->sort == WF_TN_LEAF ? k->meta && k->meta == n->meta : k->node == r;
        if (hit && k->result->slot == 0) {
            *k->result = wf_give_to(e->c, e->scope.depth - 1, handle_on(e->c, n->g));
            rc = k->result->slot ? 0 : (int)weft_error_status(*k->result);
        } else if (hit) { /* a leaf used through several nodes */
            weft_tensor sum = wf_op2(WF_OP_ADD, NULL, *k->result, n->g);
            rc = sum.slot ? 0 : (int)weft_error_status(sum);
            if (!rc) {
                weft_free(*k->result);
                *k->result = wf_give_to(e->c, e->scope.depth - 1, sum);
            }
        }
    }
    return rc;
}

/* -- one node ------------------------------------------------------------------------------------------------ */

/* The row's derivative; what it makes from nothing lies where its gradient is. */
static int derive(wf_vjp *v)
{
    if (!wf_device_api) { /* there is the host only */
        return row_vjp(v->op)(v);
    }
    int device = WF_DEVICE_HOST;
    for (int k = 0; k < v->ndst && device == WF_DEVICE_HOST; k++) {
        device = wf_device_of_handle(v->c, v->g[k]);
    }
    int before = wf_device_enter(v->c, device), rc = row_vjp(v->op)(v);
    wf_device_enter(v->c, before);
    return rc;
}

static int run_vjp(engine *e, wf_ref r)
{
    wf_tnode *n = wf_tnode_at(e->t, r);
    if (n->flags & WF_TN_SPENT) {
        wf_raise_text(e->c, WEFT_EGRAD, "backward",
                      "%s (%s) was already differentiated and its saved values were released; pass "
                      ".retain_graph = true to the first backward",
                      wf_rows[n->op].name, n->site ? n->site : "unknown site");
        return WEFT_EGRAD;
    }
    weft_tensor small[8];
    weft_tensor *dsrc = n->nsrc > 8 ? wf_malloc(n->nsrc * sizeof *dsrc) : small;
    if (!dsrc) {
        wf_raise_text(e->c, WEFT_ENOMEM, "backward", "out of memory");
        return WEFT_ENOMEM;
    }
    static const wf_attr none;
    wf_vjp v = {.c = e->c,
                .op = (wf_op)n->op,
                .attr = n->aux ? &n->aux->attr : &none,
                .nsrc = n->nsrc,
                .ndst = n->ndst,
                .create_graph = e->create,
                .dsrc = dsrc,
                .node = r};
    for (int i = 0; i < n->nsrc; i++) {
        dsrc[i] = WEFT_NONE;
        wf_ref s = wf_tnode_src(n)[i];
        if (i < 8) {
            v.need[i] = s && is_wanted(e, s);
        }
    }
    v.g[0] = n->g;
    for (int k = 1; k < n->ndst; k++) {
        v.g[k] = n->aux->g[k];
    }
    weft_scope sc = weft_scope_begin();
    const char *outer = wf_prof_default_site;
    wf_prof_default_site = n->site;
    int rc = derive(&v);
    wf_prof_default_site = outer;
    n = wf_tnode_at(e->t, r); /* create_graph may have grown the tape */
    for (int i = 0; i < n->nsrc && !rc; i++) {
        wf_ref s = wf_tnode_src(n)[i];
        if (s && dsrc[i].slot) {
            bool again = false;
            for (int k = i + 1; dsrc[i].slot == n->g.slot && k < n->nsrc; k++) {
                again |= dsrc[k].slot == dsrc[i].slot;
            }
            rc = deliver(e, s, dsrc[i], again ? NULL : &n->g);
        } else if (dsrc[i].serial && !dsrc[i].slot) {
            rc = (int)weft_error_status(dsrc[i]);
        }
    }
    weft_scope_end(sc);
    if (dsrc != small) {
        wf_mfree(dsrc);
    }
    return rc;
}

static int step(engine *e, wf_ref r)
{
    wf_tnode *n = wf_tnode_at(e->t, r);
    int rc = wf_parts_settle(e, r);
    rc = !rc && n->g.slot ? run_hooks(e, r, n, &n->g) : rc;
    n = wf_tnode_at(e->t, r);
    if (!rc && n->g.slot) {
        rc = capture(e, r, n);
    }
    if (!rc && n->sort != WF_TN_LEAF && n->g.slot && n->meta && e->n_cap == 0 &&
        wf_meta_retains(n->meta, wf_tnode_order(e->t, r))) {
        rc = leaf_accumulate(e, n->meta, lies_last(n), n->g);
    }
    if (!rc && n->sort == WF_TN_RESULT) {
        wf_ref main = n->src_[0];
        weft_tensor g = n->g;
        n->g = WEFT_NONE;
        weft_tensor *to = &wf_tnode_at(e->t, main)->aux->g[n->out];
        if (to->slot == 0) {
            *to = g;
        } else {
            rc = wf_engine_accumulate(e, to, g);
            weft_free(g);
        }
        rc = rc ? rc : wf_engine_queue(e, main);
        if (rc && !(wf_tnode_at(e->t, main)->flags & WF_TN_QUEUED)) {
            drop(to);
        }
        return rc;
    }
    if (!rc && n->sort == WF_TN_LEAF && e->n_cap == 0 && n->g.slot &&
        !atomic_load_explicit(&n->meta->off, memory_order_relaxed)) {
        rc = leaf_accumulate(e, n->meta, lies_last(n), n->g);
        if (!rc && wf_meta_has_post_hooks(n->meta)) {
            weft_tensor g = wf_meta_gradient(e->c, n->meta);
            g = g.slot || g.serial ? g : handle_on(e->c, n->g); /* of a leaf nobody holds */
            rc = g.slot ? wf_hooks_run(e->c, n->meta, true, 0, &g, e->scope.depth)
                        : (int)weft_error_status(g);
            drop(&g);
        }
    }
    if (!rc && n->sort == WF_TN_OP) {
        rc = run_vjp(e, r);
        n = wf_tnode_at(e->t, r);
        if (!rc && !e->retain) {
            n->flags |= WF_TN_SPENT;
            wf_tape_drop_saved(e->t, r);
        }
    }
    return rc;
}

/* -- what lasts ----------------------------------------------------------------------------------------------- */

static size_t bytes_of(const wf_tnode *n)
{
    wf_type t;
    wf_tnode_type(n, &t);
    return (size_t)wf_type_bytes(&t);
}

/* Has leaf n no gradient yet? What is made otherwise is added to that one and dropped. */
static bool takes_over(const wf_tnode *n)
{
    wf_meta_lock(n->meta);
    const bool yes = n->meta->grad.slot == 0;
    wf_meta_unlock(n->meta);
    return yes;
}

/* The size of r's gradient if that is about to become a leaf's: of a leaf, or of what is made of one and as large (a transpose,
 * say). 0: it is not. */
static size_t lasting_bytes(const engine *e, wf_ref r)
{
    enum { FAR = 4 };
    wf_tnode *n = wf_tnode_at(e->t, r);
    const size_t bytes = bytes_of(n);
    for (int i = 0; i < FAR && n->sort == WF_TN_OP && n->nsrc == 1 && n->src_[0]; i++) {
        n = wf_tnode_at(e->t, n->src_[0]);
    }
    return n->sort == WF_TN_LEAF && bytes_of(n) == bytes && takes_over(n) ? bytes : 0;
}

/* Gradients of leaves outlive the step: says so of what the derivative of node r, or what is left to do for leaf r, makes of
 * them. Returns what was said before. */
static wf_lasting expect_lasting(engine *e, wf_ref r)
{
    const wf_lasting before = wf_device_lasting;
    wf_tnode *n = wf_tnode_at(e->t, r);
    const bool leaf = n->sort == WF_TN_LEAF;
    const int most = !n->device || e->n_cap || n->sort == WF_TN_RESULT ? 0 : leaf ? 1 : n->nsrc;
    wf_lasting now = {0};
    for (int i = 0; i < most && i < WF_LASTING; i++) {
        const wf_ref s = leaf ? r : wf_tnode_src(n)[i];
        now.nbytes[i] = s && is_wanted(e, s) ? lasting_bytes(e, s) : 0;
    }
    wf_device_lasting = now;
    return before;
}

/* -- pruning: grad_of works only on what lies between the outputs and the wanted inputs ------------- */

typedef struct reached {
    uint64_t order;
    wf_ref ref;
} reached;

static int by_order(const void *a, const void *b)
{
    const reached *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Marks nodes that lead to no capture. Marking is an economy: without memory for it, nothing is skipped.
 * Returns what was reached, for unmark. */
static reached *mark_skipped(engine *e, int n_roots, const wf_ref *roots, size_t *count)
{
    size_t n = 0, cap = 256;
    reached *v = wf_malloc(cap * sizeof *v);
    *count = 0;
    for (int i = 0; v && i < n_roots; i++) {
        wf_tnode *root = wf_tnode_at(e->t, roots[i]);
        if (root->flags & WF_TN_SKIP || (size_t)i >= cap) {
            continue;
        }
        root->flags |= WF_TN_SKIP;
        root->refs++;
        v[n++] = (reached){wf_tnode_order(e->t, roots[i]), roots[i]};
    }
    for (size_t at = 0; v && at < n; at++) {
        wf_tnode *node = wf_tnode_at(e->t, v[at].ref);
        for (int k = 0; v && k < node->nsrc; k++) {
            wf_ref s = wf_tnode_src(node)[k];
            if (!s || (wf_tnode_at(e->t, s)->flags & WF_TN_SKIP) ||
                wf_tnode_at(e->t, s)->sort == WF_TN_INPUT) {
                continue;
            }
            if (n == cap) {
                reached *p = wf_realloc(v, 2 * cap * sizeof *p);
                if (!p) {
                    break;
                }
                v = p;
                cap *= 2;
            }
            wf_tnode_at(e->t, s)->flags |= WF_TN_SKIP;
            wf_tnode_at(e->t, s)->refs++;
            v[n++] = (reached){wf_tnode_order(e->t, s), s};
        }
    }
    if (v) {
        qsort(v, n, sizeof *v, by_order);
    }
    for (size_t at = 0; at < n; at++) { /* operands first: a node is wanted if an operand is */
        wf_tnode *node = wf_tnode_at(e->t, v[at].ref);
        bool wanted = is_captured(e, v[at].ref, node) ||
                      (node->op == WF_OP_CUSTOM && node->sort == WF_TN_OP &&
                       wf_custom_leads_on(node->aux->custom));
        for (int k = 0; k < node->nsrc && !wanted; k++) {
            wf_ref s = wf_tnode_src(node)[k];
            wanted = s && wf_tnode_at(e->t, s)->sort != WF_TN_INPUT &&
                     !(wf_tnode_at(e->t, s)->flags & WF_TN_SKIP);
        }
        node->flags &= (uint8_t) ~(wanted ? WF_TN_SKIP : 0u);
    }
    *count = n;
    return v;
}

/* The nodes were held: a hook may have freed the handles that led to them. */
static void unmark(engine *e, reached *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        wf_tnode_at(e->t, v[i].ref)->flags &= (uint8_t)~WF_TN_SKIP;
        wf_tape_release_ref(e->c, v[i].ref);
    }
    wf_mfree(v);
}

static void clear_pending(engine *e, wf_ref r)
{
    wf_tnode *n = wf_tnode_at(e->t, r);
    drop(&n->g);
    for (int k = 1; n->sort == WF_TN_OP && k < n->ndst; k++) {
        drop(&n->aux->g[k]);
    }
    wf_tape_release_ref(e->c, r);
}

/* -- backward inside backward --------------------------------------------------------------------------------- */

/* What a running engine keeps in its nodes, set aside while a hook or a custom function runs another:
 * both may meet in one node, and must not see each other's gradients. */
typedef struct parked {
    weft_tensor g[WF_MAX_DST];
} parked;

static void swap_pending(engine *o, wf_ref r, parked *p, bool park)
{
    wf_tnode *n = wf_tnode_at(o->t, r);
    for (int k = 0; k < WF_MAX_DST; k++) {
        weft_tensor *g = k == 0 ? &n->g : n->sort == WF_TN_OP && k < n->ndst ? &n->aux->g[k] : NULL;
        if (g && park) {
            p->g[k] = *g;
            *g = WEFT_NONE;
        } else if (g) {
            *g = p->g[k];
        }
    }
}

/* One entry for every node in o's heap and one for the current node. NULL: no memory. */
static parked *park(engine *o)
{
    parked *p = wf_malloc((o->n + (size_t)1) * sizeof *p);
    for (uint32_t i = 0; p && i < o->n; i++) {
        swap_pending(o, o->heap[i].ref, &p[i], true);
        wf_tnode_at(o->t, o->heap[i].ref)->flags &= (uint8_t)~WF_TN_QUEUED;
    }
    if (p && o->current) {
        swap_pending(o, o->current, &p[o->n], true);
    }
    for (size_t i = 0; p && i < o->n_reached;
         i++) { /* sorted by now: the order is free to hold the mark */
        wf_tnode *n = wf_tnode_at(o->t, o->reached[i].ref);
        o->reached[i].order = n->flags & WF_TN_SKIP;
        n->flags &= (uint8_t)~WF_TN_SKIP;
    }
    return p;
}

static void unpark(engine *o, parked *p)
{
    for (uint32_t i = 0; i < o->n; i++) {
        swap_pending(o, o->heap[i].ref, &p[i], false);
        wf_tnode_at(o->t, o->heap[i].ref)->flags |= WF_TN_QUEUED;
    }
    if (o->current) {
        swap_pending(o, o->current, &p[o->n], false);
    }
    for (size_t i = 0; i < o->n_reached; i++) {
        wf_tnode_at(o->t, o->reached[i].ref)->flags |= (uint8_t)o->reached[i].order;
    }
    wf_mfree(p);
}

int wf_backward_run(wf_ctx *c, int n, const wf_ref *roots, const weft_tensor *grads, bool retain,
                    bool create, int n_cap, const wf_grad_capture *cap)
{
    engine e = {.c = c,
                .t = c->tape,
                .retain = retain || create,
                .create = create,
                .cap_in = cap,
                .n_cap = n_cap};
    uint32_t off = c->grad_off;
    e.outer = e.t->engine;
    parked *aside = e.outer ? park(e.outer) : NULL;
    if (e.outer && !aside) {
        wf_raise_text(c, WEFT_ENOMEM, "backward", "out of memory for a backward inside another");
        return WEFT_ENOMEM;
    }
    e.scope = weft_scope_begin();
    if (e.scope.depth == 0) {
        if (aside) {
            unpark(e.outer, aside);
        }
        return WEFT_ENOMEM;
    }
    e.t->engine = &e;
    c->busy++;
    c->backwards++;
    c->grad_off = create ? 0 : 1;
    int rc = 0;
    e.reached = n_cap ? mark_skipped(&e, n, roots, &e.n_reached) : NULL;
    for (int i = 0; i < n && !rc; i++) {
        rc = deliver(&e, roots[i], grads[i], NULL);
    }
    while (e.n && !rc) {
        wf_ref r = queue_pop(&e);
        e.current = r;
        const wf_lasting before = expect_lasting(&e, r);
        rc = step(&e, r);
        wf_device_lasting = before;
        e.current = 0;
        clear_pending(&e, r);
    }
    while (e.n) {
        clear_pending(&e, queue_pop(&e));
    }
    wf_parts_drop(&e);
    unmark(&e, e.reached, e.n_reached);
    c->grad_off = off;
    weft_scope_end(e.scope);
    c->busy--;
    wf_free(e.heap, e.cap * sizeof *e.heap);
    e.t->engine = e.outer;
    if (aside) {
        unpark(e.outer, aside);
    }
    c->last_write = WEFT_NONE; /* the sums in place were ours, not the caller's */
    return rc;
}

int wf_backward_continue(wf_ctx *c, weft_tensor result, weft_tensor g)
{
    engine *e = ((wf_tape *)c->tape)->engine;
    wf_why why = {0};
    bool pinned;
    wf_slot *s = wf_pin(c, result, &pinned, &why);
    if (!s) {
        return wf_raise_status(c, "backward", 1, &result, &why);
    }
    wf_ref r = wf_slot_tracked(s) ? wf_tape_node_of(c, s, &why) : 0;
    if (pinned) {
        wf_unpin(c, s);
    }
    if (why.code) {
        return wf_raise_status(c, "backward", 1, &result, &why);
    }
    return r ? deliver(e, r, g, NULL) : 0;
}

/* -- what a vjp may ask ---------------------------------------------------------------------------------------- */

weft_tensor wf_vjp_src(wf_vjp *v, int i)
{
    wf_tape *t = v->c->tape;
    wf_tnode *n = wf_tnode_at(t, v->node);
    wf_ref s = wf_tnode_src(n)[i];
    if (!s) {
        return n->aux && n->aux->scalar ? n->aux->scalar[i] : WF_ABSENT;
    }
    if (!(n->saved_src & (1u << i))) {
        return wf_raise_text(
            v->c, WEFT_EGRAD, wf_rows[n->op].name,
            "internal: the derivative reads operand %d, which its row does not save", i);
    }
    return wf_tape_value(v->c, s, v->node, i);
}

weft_tensor wf_vjp_dst(wf_vjp *v, int k)
{
    wf_tape *t = v->c->tape;
    wf_tnode *n = wf_tnode_at(t, v->node);
    wf_ref r = k == 0 ? v->node : n->aux->extra[k];
    return wf_tape_value(v->c, r, v->node, -1 - k);
}

void wf_vjp_src_type(wf_vjp *v, int i, wf_type *t)
{
    wf_tnode *n = wf_tnode_at(v->c->tape, v->node);
    wf_ref s = wf_tnode_src(n)[i];
    memset(t, 0, sizeof *t);
    if (s) {
        wf_tnode_type(wf_tnode_at(v->c->tape, s), t);
    }
}

void wf_vjp_dst_type(wf_vjp *v, int k, wf_type *t)
{
    wf_tnode *n = wf_tnode_at(v->c->tape, v->node);
    memset(t, 0, sizeof *t);
    if (k == 0) {
        wf_tnode_type(n, t);
    } else if (n->aux->extra[k]) {
        wf_tnode_type(wf_tnode_at(v->c->tape, n->aux->extra[k]), t);
    }
}

bool wf_vjp_has_src(wf_vjp *v, int i)
{
    if (i >= v->nsrc) {
        return false;
    }
    wf_tnode *n = wf_tnode_at(v->c->tape, v->node);
    return wf_tnode_src(n)[i] || !(n->aux && n->aux->scalar && wf_is_absent(n->aux->scalar[i]));
}
