/*
 * autograd/tape_record.c -- appending to the tape: nodes of slots, executed ops, recorded writes.
 *
 * Requirements on whoever edits next: (1) a node's operands are claimed (refs) before the node is
 * visible; (2) operands get their nodes before the op gets its own: order numbers are topological.
 */
#include <string.h>

#include "autograd/tape.h"
#include "autograd/vjp.h"
#include "eager/alloc.h"
#include "eager/dense.h"
#include "eager/device.h"
#include "eager/exec.h"
#include "eager/layout.h"

/* -- nodes of slots ------------------------------------------------------------------------------------- */

/* Index map of a slot relative to its storage: dims, strides, offset, in one array for wf_attr.dyn. */
static int storage_map(wf_slot *s, int64_t *dyn)
{
    int r = s->rank;
    memcpy(dyn, wf_dims(s), (size_t)r * sizeof *dyn);
    memcpy(dyn + r, wf_strides(s), (size_t)r * sizeof *dyn);
    dyn[2 * r] = s->offset / (int64_t)wf_dtype_size(s->dtype);
    return 2 * r + 1;
}

static wf_taux *aux_new(const wf_attr *a, int nsrc, bool scalars)
{
    size_t nwords = (size_t)a->n_ints + a->n_dyn + a->n_flt;
    size_t nref = nsrc > 3 ? (size_t)nsrc : 0;
    size_t nsc = scalars ? (size_t)nsrc : 0;
    const size_t bytes =
        sizeof(wf_taux) + nsc * sizeof(weft_tensor) + nwords * 8 + nref * sizeof(wf_ref);
    wf_taux *x = wf_object(bytes);
    if (!x) {
        return NULL;
    }
    memset(x, 0, sizeof *x);
    x->bytes = bytes;
    char *p = (char *)(x + 1);
    if (nsc) {
        x->scalar = (weft_tensor *)p;
        memset(p, 0, nsc * sizeof(weft_tensor));
        p += nsc * sizeof(weft_tensor);
    }
    x->attr = *a;
#define COPY(field, count)                                                                         \
    if (a->count) {                                                                                \
        memcpy(p, a->field, a->count * 8u);                                                        \
    }                                                                                              \
    x->attr.field = (void *)p;                                                                     \
    p += a->count * 8u
    COPY(ints, n_ints);
    COPY(dyn, n_dyn);
    COPY(flt, n_flt);
#undef COPY
    if (nref) {
        x->src = (wf_ref *)p;
        memset(p, 0, nref * sizeof(wf_ref));
    }
    return x;
}

/* A kept gradient is that of the tensor's last value: it follows a write in place, unlike hooks. */
static void retain_next(wf_tape *t, wf_slot *s, wf_ref r)
{
    wf_tnode *n = wf_tnode_at(t, r);
    if (!n->meta) {
        n->meta = wf_meta_retain(s->meta);
    }
    if (n->meta == s->meta) {
        atomic_store_explicit(&n->meta->retain, wf_tnode_order(t, r), memory_order_relaxed);
    }
}

/* Deleters of what goes with the record find an op in the middle of its work. */
static void release_while_busy(wf_ctx *c, wf_ref r)
{
    c->busy++;
    wf_tape_release_now(c->tape, r);
    c->busy--;
}

static void slot_set_node(wf_ctx *c, wf_slot *s, wf_ref r)
{
    wf_tape *t = c->tape;
    wf_tnode_at(t, r)->refs++;
    wf_ref old = s->node;
    s->node = r;
    s->node_gen = s->st ? wf_slot_root_gen(s) : 0;
    wf_meta *m = s->meta;
    if (old && m && atomic_load_explicit(&m->retain, memory_order_relaxed)) {
        retain_next(t, s, r);
    }
    if (old) {
        release_while_busy(c, old);
    }
}

static int slot_name_node(wf_slot *s, wf_tnode *n)
{
    n->site = s->site;
    if (s->flags & WF_SLOT_REQUIRES_GRAD) {
        wf_meta *m = wf_slot_meta(s);
        if (!m) {
            return WEFT_ENOMEM;
        }
        n->meta = wf_meta_retain(m);
    }
    return 0;
}

/* A node of one operand, which it refers to; nothing refers to it yet. 0: no memory. */
static wf_ref append_unary(wf_tape *t, wf_op op, const wf_type *type, const wf_attr *attr,
                           wf_ref of, int device, unsigned flags)
{
    wf_taux *aux = aux_new(attr, 1, false);
    const wf_ref r =
        aux ? wf_tape_node_new(t, WF_TN_OP, op, type->dtype, type->rank, type->dims) : 0;
    if (!r) {
        if (aux) {
            wf_free(aux, aux->bytes);
        }
        return 0;
    }
    wf_tnode *n = wf_tnode_at(t, r);
    n->aux = aux;
    n->device = (uint8_t)device;
    n->nsrc = 1;
    n->src_[0] = of;
    n->flags |= (uint8_t)flags;
    wf_tnode_at(t, of)->refs++;
    return r;
}

/* A view of the storage's recorded value, for an alias whose own node is out of date. */
static wf_ref alias_node(wf_ctx *c, wf_tape *t, wf_slot *s, wf_why *why)
{
    int64_t dyn[2 * WF_MAX_RANK + 1], rank = s->rank;
    wf_attr a = {.n_ints = 1, .ints = &rank, .dyn = dyn};
    a.n_dyn = (uint8_t)storage_map(s, dyn);
    wf_type type;
    wf_slot_type(s, &type);
    const wf_ref r = append_unary(t, WF_OP_AS_STRIDED, &type, &a, wf_slot_root(s),
                                  wf_slot_device(s), WF_TN_ALIAS);
    if (!r) {
        wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
        return 0;
    }
    wf_tnode_at(t, r)->site = s->site;
    if (s->context == c->id) { /* another thread's slot cannot hold a node of this tape */
        slot_set_node(c, s, r);
    }
    return r;
}

/* The node that the slot holds, if it is that of its present value; 0: see wf_tape_node_of. */
static inline wf_ref known_node(const wf_ctx *c, const wf_slot *s)
{
    const wf_storage *st = s->st;
    return s->context == c->id && (wf_slot_root(s) == 0 ||
                                   (s->node_gen == wf_slot_root_gen(s) && st->root_ctx == c->id))
               ? s->node
               : 0;
}

wf_ref wf_tape_node_of(wf_ctx *c, wf_slot *s, wf_why *why)
{
    wf_tape *t = wf_tape_get(c);
    if (!t) {
        wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
        return 0;
    }
    bool leaf = (s->flags & WF_SLOT_REQUIRES_GRAD) != 0;
    bool mine = s->context == c->id;
    const bool root = wf_slot_root(s) != 0 && !wf_slot_apart(s);
    if (!leaf && s->node && !mine && !(root && s->st->root_ctx == c->id)) {
        wf_fail(why, WEFT_EGRAD, "an operand was computed with gradients on another thread");
        wf_hint(why, "weft_detach it there, or use it under weft_no_grad_begin");
        return 0;
    }
    if (!leaf && root && s->st->root_ctx != c->id) {
        wf_fail(why, WEFT_EGRAD,
                "an operand's memory was written with gradients on another thread");
        wf_hint(why, "weft_detach it there, or use it under weft_no_grad_begin");
        return 0;
    }
    if (mine && s->node) { /* a leaf stays one, used before its memory was written or not */
        if (root && !leaf && s->node_gen != wf_slot_root_gen(s)) {
            return alias_node(c, t, s, why);
        }
        return s->node;
    }
    if (!leaf && root) {
        return alias_node(c, t, s, why);
    }
    wf_ref r = mine || !leaf ? 0 : wf_tape_foreign_find(t, wf_slot_meta(s));
    if (r) {
        return r;
    }
    r = wf_tape_node_new(t, leaf ? WF_TN_LEAF : WF_TN_INPUT, WF_OP_INPUT, s->dtype, s->rank,
                         wf_dims(s));
    if (!r || slot_name_node(s, wf_tnode_at(t, r))) {
        wf_tape_discard(c, r);
        wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
        return 0;
    }
    wf_tnode_at(t, r)->device = (uint8_t)wf_slot_device(s);
    wf_tnode_at(t, r)->out = leaf && wf_slot_lies_last(s) ? WF_TN_LAST : 0;
    if (leaf && mine) { /* every use of a parameter is one leaf */
        slot_set_node(c, s, r);
    } else if (leaf) {
        wf_tape_foreign_add(t, r);
    }
    return r;
}

static void undo(wf_tape *t, wf_ref r)
{
    wf_tnode_at(t, r)->refs = 1;
    wf_tape_release_now(t, r);
}

/* -- appending ------------------------------------------------------------------------------------------- */

/* clang-format off */
#define NODIFF_(x) 0
static unsigned row_saves(wf_op op)
{
#define WF_SAVES_OF(vjp) extern const unsigned wf_vjp_saves_##vjp;
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) WF_SAVES_OF(vjp)
#include "jit/ir/ops.def"
    static const unsigned *const table[WF_OP_COUNT] = {
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) [WF_OP_##NAME] = &wf_vjp_saves_##vjp,
#include "jit/ir/ops.def"
    };
    return *table[op];
}
/* clang-format on */
const unsigned wf_vjp_saves_NODIFF = 0;

/* What the derivative of op reads, given which operands are tracked. */
static unsigned saves_mask(wf_op op, int nsrc, wf_slot *const *src)
{
    if (!wf_op_is_elementwise(op)) {
        return row_saves(op);
    }
    unsigned m = 0;
    for (int i = 0; i < nsrc; i++) {
        if (src[i] && wf_slot_flows(src[i])) {
            unsigned reads = wf_vjp_reads(op, i);
            m |= (reads & 7u) | (reads & 128u ? WF_SAVES_DST(0) : 0);
        }
    }
    return m;
}

/* Links operands into node r and saves what `mask` asks for. */
static int link_sources(wf_ctx *c, wf_tape *t, wf_ref r, unsigned mask, int nsrc,
                        wf_slot *const *src, const weft_tensor *handles, wf_why *why)
{
    for (int i = 0; i < nsrc; i++) {
        bool save = i < 8 && (mask & WF_SAVES_SRC(i)) != 0;
        if (!src[i]) {
            if (wf_tnode_at(t, r)->aux && wf_tnode_at(t, r)->aux->scalar) {
                wf_tnode_at(t, r)->aux->scalar[i] = handles[i];
            }
            continue;
        }
        bool tracked = wf_slot_flows(src[i]);
        if (!tracked && !save && !(mask & WF_SAVES_TYPES)) {
            continue;
        }
        wf_ref s = wf_tnode_src(wf_tnode_at(t, r))[i];
        if (!s) { /* number_sources had no need to look */
            s = known_node(c, src[i]);
            s = s ? s : wf_tape_node_of(c, src[i], why);
            if (!s) {
                return why && why->code ? why->code : WEFT_ENOMEM;
            }
            wf_tnode_src(wf_tnode_at(t, r))[i] = s;
            wf_tnode_at(t, s)->refs++;
        }
        wf_tnode *n = wf_tnode_at(t, r);
        if (save) {
            if (wf_tape_save(t, s, r, src[i])) {
                return wf_fail(why, WEFT_ENOMEM, "out of memory for a saved value");
            }
            n->saved_src |= (uint8_t)(1u << i);
        }
    }
    return 0;
}

/* Gives operands' nodes back. */
static void release_sources(wf_tape *t, int nsrc, const wf_ref *from)
{
    for (int i = 0; i < nsrc; i++) {
        if (from[i]) {
            wf_tape_release_now(t, from[i]);
        }
    }
}

/* Operands that need a node of their own and have none get it, to be held in `to`: order numbers must be topological, and the slot of
 * another thread's tensor cannot hold one. */
static int number_sources(wf_ctx *c, wf_tape *t, int nsrc, wf_slot *const *src, wf_ref *to,
                          wf_why *why)
{
    for (int i = 0; i < nsrc; i++) {
        if (src[i] && !known_node(c, src[i]) && wf_slot_flows(src[i])) {
            to[i] = wf_tape_node_of(c, src[i], why);
            if (!to[i]) {
                release_sources(t, i, to);
                return why->code;
            }
            wf_tnode_at(t, to[i])->refs++;
        }
    }
    return 0;
}

/* The results that a gradient reads: the first in the node itself, each other in an input beside it. */
static int save_results(wf_tape *t, wf_ref r, unsigned mask, int ndst, wf_slot *const *dst)
{
    if (mask & WF_SAVES_DST(0)) {
        if (wf_tape_save(t, r, r, dst[0])) {
            return WEFT_ENOMEM;
        }
        wf_tnode_at(t, r)->flags |= WF_TN_SELF;
    }
    for (int k = 1; k < ndst; k++) {
        if (!(mask & WF_SAVES_DST(k))) {
            continue;
        }
        wf_ref q = wf_tape_node_new(t, WF_TN_INPUT, WF_OP_INPUT, dst[k]->dtype, dst[k]->rank,
                                    wf_dims(dst[k]));
        if (!q) {
            return WEFT_ENOMEM;
        }
        wf_tnode_at(t, q)->refs = 1;
        wf_tnode_at(t, r)->aux->extra[k] = q;
        if (wf_tape_save(t, q, r, dst[k])) {
            return WEFT_ENOMEM;
        }
    }
    return 0;
}

/* Nodes for the second result and those after it, each with r as its source. Not for indices: nothing flows to them, and a float
 * that is computed from them is a constant. */
static int number_results(wf_ctx *c, wf_tape *t, wf_ref r, wf_op op, int ndst, wf_slot *const *dst)
{
    for (int k = 1; k < ndst; k++) {
        if (wf_dtype_kind(dst[k]->dtype) != 2) {
            continue;
        }
        wf_ref q =
            wf_tape_node_new(t, WF_TN_RESULT, op, dst[k]->dtype, dst[k]->rank, wf_dims(dst[k]));
        if (!q) {
            return WEFT_ENOMEM;
        }
        wf_tnode *m = wf_tnode_at(t, q);
        m->out = (uint8_t)k;
        m->device = (uint8_t)wf_slot_device(dst[k]);
        m->nsrc = 1;
        m->src_[0] = r;
        m->flags |= WF_TN_WHOLE;
        wf_tnode_at(t, r)->refs++;
        slot_set_node(c, dst[k], q);
    }
    return 0;
}

static int append_known(wf_ctx *c, wf_op op, const wf_attr *attr, struct wf_custom *custom,
                        unsigned mask, int nsrc, wf_slot *const *src, const weft_tensor *handles,
                        int ndst, wf_slot *const *dst, wf_why *why)
{
    wf_tape *t = wf_tape_get(c);
    if (!t) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
    }
    wf_tape_drain(t);
    bool scalars = false;
    for (int i = 0; i < nsrc; i++) {
        scalars |= !src[i];
    }
    wf_taux *aux = NULL;
    if (attr->n_ints + attr->n_dyn + attr->n_flt + attr->flags + attr->dtype != 0 || nsrc > 3 ||
        scalars || ndst > 1 || custom) {
        aux = aux_new(attr, nsrc, scalars);
        if (!aux) {
            return wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
        }
    }
    wf_ref few[3] = {0}, *from = nsrc > 3 ? aux->src : few;
    int rc = number_sources(c, t, nsrc, src, from, why);
    const wf_ref r =
        rc ? 0 : wf_tape_node_new(t, WF_TN_OP, op, dst[0]->dtype, dst[0]->rank, wf_dims(dst[0]));
    if (!r) {
        if (!rc) {
            release_sources(t, nsrc, from);
            rc = wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
        }
        if (aux) {
            wf_free(aux, aux->bytes);
        }
        return rc;
    }
    wf_tnode *n = wf_tnode_at(t, r);
    n->aux = aux;
    memcpy(n->src_, few, sizeof few);
    n->device = (uint8_t)wf_slot_device(dst[0]);
    n->nsrc = (uint16_t)nsrc;
    n->ndst = (uint8_t)ndst;
    n->site = dst[0]->site;
    n->flags |=
        (uint8_t)((wf_rows[op].kind == WF_KIND_VIEW && src[0]->st == dst[0]->st ? WF_TN_ALIAS : 0) |
                  (wf_slot_is_whole(dst[0]) ? WF_TN_WHOLE : 0));
    n->out = wf_slot_is_whole_last(dst[0]) ? WF_TN_LAST : 0;
    rc = link_sources(c, t, r, mask, nsrc, src, handles, why);
    if (!rc && save_results(t, r, mask, ndst, dst)) {
        rc = wf_fail(why, WEFT_ENOMEM, "out of memory for a saved value");
    }
    if (rc) {
        undo(t, r);
        return rc;
    }
    slot_set_node(c, dst[0], r);
    if (number_results(c, t, r, op, ndst, dst)) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
    }
    if (custom) {
        aux->custom = custom; /* taken only by a complete node */
    }
    return 0;
}

/* -- views by strides of memory ---------------------------------------------------------------------------- */

/* The elements from the first to the last that a map reaches, beside `at`, where it begins. */
static void widen(int rank, const int64_t *dims, const int64_t *strides, int64_t at, int64_t *low,
                  int64_t *high)
{
    int64_t lo, hi;
    if (wf_map_reach(rank, dims, strides, &lo, &hi) > 0) {
        *low = at + lo < *low ? at + lo : *low;
        *high = at + hi > *high ? at + hi : *high;
    }
}

/* Is an as_strided of s that reaches [low, high] from its first element one of its values in row-major order? That is what the
 * row's derivative takes it for. */
static bool is_of_values(wf_slot *s, int64_t low, int64_t high)
{
    return low >= 0 && wf_slot_is_contiguous(s) && high < wf_slot_numel(s);
}

/*
 * as_strided of a tensor with gaps or another order in memory, or one that reaches beyond it: as_strided of the piece of memory
 * that both reach, which is x's values, each in its place, and zeros that nothing flows through. That piece is a node and never
 * computed: no derivative reads it.
 */
static int append_of_memory(wf_ctx *c, const wf_attr *attr, wf_slot *x, wf_slot *y, int64_t low,
                            int64_t high, wf_why *why)
{
    wf_tape *t = wf_tape_get(c);
    const int r = x->rank, ry = y->rank;
    int64_t dyn[2 * WF_MAX_RANK + 1], one = 1, span = high - low + 1;
    if (!wf_map_is_injective(r, wf_dims(x), wf_strides(x))) {
        wf_fail(
            why, WEFT_EGRAD,
            "gradients flow to an operand whose strides may put several indices on one element");
        wf_hint(why, "take the view of a copy: weft_clone(x)");
        return why->code;
    }
    if (!t) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
    }
    wf_tape_drain(t);
    const wf_ref from = wf_tape_node_of(c, x, why);
    if (!from) {
        return why->code;
    }
    dyn[0] = span;
    memcpy(dyn + 1, wf_strides(x), (size_t)r * sizeof *dyn);
    dyn[1 + r] = -low;
    wf_type type = {.dtype = x->dtype, .rank = 1, .dims = {span}};
    wf_attr a = {.n_ints = 1, .ints = &one, .n_dyn = (uint8_t)(r + 2), .dyn = dyn};
    /* an alias: a write through the view looks for the owner of its memory behind it */
    const wf_ref piece =
        append_unary(t, WF_OP_STRIDED_GRAD, &type, &a, from, wf_slot_device(x), WF_TN_ALIAS);
    wf_ref view = 0;
    if (piece) {
        wf_tnode_at(t, piece)->site = y->site;
        memcpy(dyn, attr->dyn, (2 * (size_t)ry + 1) * sizeof *dyn);
        dyn[2 * ry] -= low;
        a = (wf_attr){.n_ints = 1, .ints = attr->ints, .n_dyn = attr->n_dyn, .dyn = dyn};
        wf_slot_type(y, &type);
        view = append_unary(t, WF_OP_AS_STRIDED, &type, &a, piece, wf_slot_device(y), WF_TN_ALIAS);
    }
    if (!view) {
        wf_tape_discard(c, piece ? piece : from);
        return wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
    }
    wf_tnode *n = wf_tnode_at(t, view);
    n->ndst = 1;
    n->site = y->site;
    slot_set_node(c, y, view);
    return 0;
}

static int append_node(wf_ctx *c, wf_op op, const wf_attr *attr, struct wf_custom *custom,
                       unsigned mask, int nsrc, wf_slot *const *src, const weft_tensor *handles,
                       int ndst, wf_slot *const *dst, wf_why *why)
{
    int rc = append_known(c, op, attr, custom, mask, nsrc, src, handles, ndst, dst, why);
    for (int i = 0; rc && c->tape && i < nsrc; i++) {
        if (src[i] && src[i]->context != c->id) { /* no slot of ours holds its leaf */
            wf_tape_discard(c, wf_tape_foreign_find(c->tape, src[i]->meta));
        }
    }
    return rc;
}

int wf_tape_append_custom(wf_ctx *c, struct wf_custom *custom, int nsrc, wf_slot *const *src,
                          const weft_tensor *handles, int ndst, wf_slot *const *dst, wf_why *why)
{
    wf_attr none = {0};
    return append_node(c, WF_OP_CUSTOM, &none, custom, 0, nsrc, src, handles, ndst, dst, why);
}

/* What the derivatives of an elementwise row read, if its operands are tensors and the nodes of all that it reads or
 * gradients flow to are known: src. False: it is another case. */
static inline bool reads_known(const wf_ctx *c, wf_op op, int nsrc, wf_slot *const *slot,
                               wf_ref *src, unsigned *mask)
{
    unsigned reads = 0, known = 0;
    for (int i = 0; i < nsrc; i++) {
        wf_slot *s = slot[i];
        src[i] = 0;
        if (!s) {
            return false;
        }
        if (wf_slot_flows(s)) {
            src[i] = known_node(c, s);
            known |= (unsigned)(src[i] != 0) << i;
            reads |= wf_vjp_reads(op, i) | (src[i] ? 0 : 1u << i);
        }
    }
    *mask = (reads & 7u) | (reads & 128u ? WF_SAVES_DST(0) : 0);
    return !(reads & 7u & ~known);
}

/* The node of most ops: an elementwise row on up to three tensors. */
static int append_short(wf_ctx *c, wf_tape *t, wf_op op, unsigned mask, int nsrc,
                        wf_slot *const *slot, const wf_ref *src, wf_slot *dst, wf_why *why)
{
    const wf_ref r = wf_tape_node_new(t, WF_TN_OP, op, dst->dtype, dst->rank, wf_dims(dst));
    if (!r) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
    }
    wf_tnode *n = wf_tnode_at(t, r);
    n->device = (uint8_t)wf_slot_device(dst);
    n->nsrc = (uint16_t)nsrc;
    n->site = dst->site;
    n->out = wf_slot_lies_last(dst) ? WF_TN_LAST : 0;
    n->flags = n->out ? 0 : WF_TN_WHOLE; /* a fresh result */
    bool saved = true;
    for (int i = 0; i < nsrc && saved; i++) {
        if (src[i]) {
            n->src_[i] = src[i];
            wf_tnode_at(t, src[i])->refs++;
            if (mask & WF_SAVES_SRC(i)) {
                saved = wf_tape_save(t, src[i], r, slot[i]) == 0;
                n->saved_src |= (uint8_t)((unsigned)saved << i);
            }
        }
    }
    if (saved && (mask & WF_SAVES_DST(0))) {
        saved = wf_tape_save(t, r, r, dst) == 0;
        n->flags |= saved ? WF_TN_SELF : 0;
    }
    if (__builtin_expect(!saved, 0)) {
        undo(t, r);
        return wf_fail(why, WEFT_ENOMEM, "out of memory for a saved value");
    }
    slot_set_node(c, dst, r);
    return 0;
}

static int hook_append(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc, wf_slot *const *src,
                       const weft_tensor *handles, int ndst, wf_slot *const *dst, wf_why *why)
{
    wf_ref s[3];
    unsigned mask;
    wf_tape *t = c->tape;
    if (t) {
        wf_tape_drain(t);
    }
    if (t && wf_op_is_elementwise(op) && nsrc <= 3 &&
        attr->n_ints + attr->n_dyn + attr->n_flt + attr->flags + attr->dtype == 0 &&
        reads_known(c, op, nsrc, src, s, &mask)) {
        return append_short(c, t, op, mask, nsrc, src, s, dst[0], why);
    }
    if (op == WF_OP_AS_STRIDED && src[0]->st == dst[0]->st) {
        int64_t low = 0, high = 0;
        const int64_t *d = attr->dyn;
        widen(dst[0]->rank, d, d + dst[0]->rank, d[2 * dst[0]->rank], &low, &high);
        if (!is_of_values(src[0], low, high)) {
            widen(src[0]->rank, wf_dims(src[0]), wf_strides(src[0]), 0, &low, &high);
            return append_of_memory(c, attr, src[0], dst[0], low, high, why);
        }
    }
    return append_node(c, op, attr, NULL, saves_mask(op, nsrc, src), nsrc, src, handles, ndst, dst,
                       why);
}

/* -- recorded writes -------------------------------------------------------------------------------------- */

/* The value of node r, images that lie channels-last, in the order of its memory. Nothing refers to the new node yet; 0: no
 * memory. */
static wf_ref in_memory_order(wf_tape *t, wf_ref r)
{
    static const int64_t order[4] = WF_LAST_AXES;
    wf_type from, to;
    wf_tnode_type(wf_tnode_at(t, r), &from);
    to = from;
    for (int i = 0; i < 4; i++) {
        to.dims[i] = from.dims[order[i]];
    }
    const wf_attr a = {.n_ints = 4, .ints = order};
    return append_unary(t, WF_OP_PERMUTE, &to, &a, r, wf_tnode_at(t, r)->device, WF_TN_WHOLE);
}

/* The node whose result is the whole storage of s, before the write; 0 with *plain set when the
 * storage has no history. */
static wf_ref root_before(wf_ctx *c, wf_tape *t, wf_slot *s, bool *plain, wf_why *why)
{
    *plain = false;
    if (wf_slot_apart(s)) { /* what was recorded of the memory is not its history */
        *plain = true;
        return 0;
    }
    if (wf_slot_root(s)) {
        if (s->st->root_ctx != c->id) {
            wf_fail(why, WEFT_EGRAD, "the target was written with gradients on another thread");
            return 0;
        }
        return wf_slot_root(s);
    }
    if (!s->node || s->context != c->id) {
        *plain = true;
        return 0;
    }
    wf_ref r = s->node;
    while ((wf_tnode_at(t, r)->flags & WF_TN_ALIAS) && wf_tnode_src(wf_tnode_at(t, r))[0]) {
        r = wf_tnode_src(wf_tnode_at(t, r))[0];
    }
    wf_tnode *n = wf_tnode_at(t, r);
    if (n->sort == WF_TN_LEAF) {
        wf_fail(why, WEFT_EGRAD, "the target is a view of a leaf that requires a gradient");
        wf_hint(why, "update parameters between weft_no_grad_begin and weft_no_grad_end");
        return 0;
    }
    if (n->sort == WF_TN_INPUT) {
        *plain = true;
        return 0;
    }
    if (n->sort == WF_TN_OP && n->out == WF_TN_LAST) {
        r = in_memory_order(t, r);
        return r ? r : (wf_fail(why, WEFT_ENOMEM, "out of memory for the tape"), 0u);
    }
    if (!(n->flags & WF_TN_WHOLE)) {
        wf_fail(why, WEFT_EGRAD, "the target is a view whose base does not own its whole memory");
        wf_hint(why, "write to a copy: weft_clone(x)");
        return 0;
    }
    return r;
}

/* update(old, map of s, v), where nothing is known before it if old is 0. Nothing refers to the new node yet; 0: no memory. */
static wf_ref append_update(wf_ctx *c, wf_slot *s, wf_ref old, wf_ref v)
{
    wf_tape *t = c->tape;
    int64_t dyn[2 * WF_MAX_RANK + 1], rank = s->rank;
    wf_attr a = {.n_ints = 1, .ints = &rank, .dyn = dyn};
    a.n_dyn = (uint8_t)storage_map(s, dyn);
    const int64_t total = (int64_t)(s->st->nbytes / wf_dtype_size(s->dtype));
    const wf_ref from =
        old ? old : wf_tape_node_new(t, WF_TN_INPUT, WF_OP_INPUT, s->dtype, 1, &total);
    const wf_ref r = from ? wf_tape_node_new(t, WF_TN_OP, WF_OP_UPDATE, s->dtype, 1, &total) : 0;
    wf_taux *x = r ? aux_new(&a, 2, false) : NULL;
    if (!x) {
        wf_tape_discard(c, r);
        wf_tape_discard(c, old ? 0 : from);
        return 0;
    }
    wf_tnode *n = wf_tnode_at(t, r);
    n->aux = x;
    n->device = (uint8_t)wf_slot_device(s);
    n->nsrc = 2;
    n->src_[0] = from;
    n->src_[1] = v;
    n->flags |= WF_TN_WHOLE;
    wf_tnode_at(t, from)->refs++;
    wf_tnode_at(t, v)->refs++;
    return r;
}

/* Something was recorded that was written through s: those that share its history have it from now on. */
static void set_root(wf_ctx *c, wf_slot *s, wf_ref root)
{
    wf_storage *st = s->st;
    const bool apart = (s->flags & WF_SLOT_APART) != 0;
    wf_ref *of = apart ? &st->root_of_apart : &st->root;
    const wf_ref was = *of;
    wf_tnode_at(c->tape, root)->refs++;
    *of = root;
    st->root_ctx = c->id;
    st->root_gen += !apart;
    st->root_gen_of_apart += apart;
    if (was) {
        release_while_busy(c, was);
    }
}

/* Is a gradient kept of s, which shows the recorded value of st? */
static bool is_kept_of(const wf_ctx *c, const wf_slot *s, const wf_storage *st)
{
    const wf_meta *m = s->meta;
    return s->st == st && s->context == c->id && m && !(s->flags & WF_SLOT_REQUIRES_GRAD) &&
           atomic_load_explicit(&m->retain, memory_order_relaxed) && !wf_slot_apart(s) &&
           wf_slot_root(s) && st->root_ctx == c->id;
}

/* The value of its memory becomes one that what s shows is written into, so that the gradient of s is that of all who read the memory
 * from now on, whichever view they take; where s shows elements twice, of those who read s. False: no memory. */
static bool pass_through(wf_ctx *c, wf_slot *s)
{
    if (!known_node(c, s) && !alias_node(c, c->tape, s, NULL)) {
        return false;
    }
    if (wf_slot_root(s) == s->node || !wf_map_is_injective(s->rank, wf_dims(s), wf_strides(s))) {
        return true;
    }
    const wf_ref r = append_update(c, s, wf_slot_root(s), s->node);
    if (r) {
        set_root(c, s, r);
    }
    return r != 0;
}

/* How much of its memory s shows, of whose gradient is kept: what is of more is passed through first, so that its gradient is that of
 * what reads the parts, too, wherever their slots lie. Below 0: it is not kept. */
static int64_t kept_part(const wf_ctx *c, wf_slot *s, const wf_storage *st)
{
    return is_kept_of(c, s, st) ? 2 * wf_slot_numel(s) + wf_slot_is_whole(s) : -1;
}

/* Passes the value through those of the part `part` (or `of` alone, if there is one); returns the next smaller part, or -1. */
static int64_t pass_through_all(wf_ctx *c, const wf_storage *st, const wf_slot *of, int64_t part)
{
    uint32_t k = 0;
    int64_t next = -1;
    bool pinned;
    wf_slot *s;
    while ((s = wf_next_live(c, c, &k, &pinned, NULL))) {
        const int64_t shows = !of || s == of ? kept_part(c, s, st) : -1;
        next = shows < part && shows > next ? shows : next;
        if (shows == part && part >= 0 && !pass_through(c, s)) {
            wf_meta *m = s->meta; /* none rather than that of another value */
            atomic_store_explicit(&m->retain, 0, memory_order_relaxed);
        }
        if (pinned) {
            wf_unpin(c, s);
        }
    }
    return next;
}

void wf_tape_keep_gradients(wf_ctx *c, wf_storage *st, const wf_slot *of)
{
    uint32_t k = 0;
    bool pinned;
    wf_slot *s;
    for (int64_t part = INT64_MAX; part >= 0;) {
        part = pass_through_all(c, st, of, part);
    }
    /* their nodes are the latest */
    while ((s = wf_next_live(c, c, &k, &pinned, NULL))) {
        if (is_kept_of(c, s, st)) {
            s->node_gen = wf_slot_root_gen(s);
        }
        if (pinned) {
            wf_unpin(c, s);
        }
    }
}

/* root' := update(root, map of dst, value); dst and every alias now read from root'. */
static int hook_store(wf_ctx *c, wf_slot *dst, wf_slot *value, wf_why *why)
{
    wf_tape *t = wf_tape_get(c);
    bool plain;
    if (!t) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
    }
    wf_tape_drain(t);
    wf_ref old = root_before(c, t, dst, &plain, why);
    if (!old && !plain) {
        return why->code;
    }
    if (plain && !wf_slot_tracked(value)) {
        return 0;
    }
    if (dst->st->roots && dst->st->root_ctx != c->id) {
        wf_fail(why, WEFT_EGRAD,
                "the target's memory was written with gradients on another thread");
        wf_hint(why, "write to a copy: weft_clone(x)");
        return why->code;
    }
    wf_ref v = wf_tape_node_of(c, value, why);
    if (!v) {
        wf_tape_discard(c, old);
        return why->code;
    }
    wf_tnode_at(t, v)->refs++; /* held while we build */
    wf_ref root = v;
    /* A constant for all of it, which no gradient reaches, is an update too, of nothing: the target has a node of its own, for hooks
     * and kept gradients. */
    const bool cut = !wf_slot_tracked(value);
    const bool all = !cut && wf_slot_is_whole(dst);
    const bool last = !cut && !all && wf_slot_is_whole_last(dst);
    if (cut && (wf_slot_is_whole(dst) || wf_slot_is_whole_last(dst))) {
        wf_tape_discard(c, old);
        old = 0;
    }
    if (last && !(root = in_memory_order(t, v))) {
        wf_tape_release_now(t, v);
        wf_tape_discard(c, old);
        return wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
    }
    if (!all && !last && !(root = append_update(c, dst, old, v))) {
        wf_tape_release_now(t, v);
        wf_tape_discard(c, old);
        return wf_fail(why, WEFT_ENOMEM, "out of memory for the tape");
    }
    wf_storage *st = dst->st;
    const bool first = !wf_slot_root(dst);
    set_root(c, dst, root);
    if (first && (all || last)) {
        c->busy++;
        wf_tape_discard(c, old); /* made to be updated */
        c->busy--;
    }
    if ((root == v || last) && dst->context == c->id) {
        slot_set_node(c, dst, v);
    } else if (dst->context == c->id) {
        alias_node(c, t, dst, NULL); /* without memory for it: at its next use */
    }
    wf_tape_release_now(t, v);
    if (st->grad_kept) {
        wf_tape_keep_gradients(c, st, NULL);
    }
    return 0;
}

/* What older nodes saved of the leaf stays where it was; their gradients are moved as they are delivered. */
static bool hook_leaf(wf_ctx *c, wf_ref r, int device)
{
    wf_tnode *n = wf_tnode_at(c->tape, r);
    bool yes = n->sort == WF_TN_LEAF && n->g.slot == 0;
    if (yes && device >= 0) {
        n->device = (uint8_t)device;
    }
    return yes;
}

static const char *hook_maker(const wf_ctx *c, const wf_slot *s)
{
    const wf_ref r = known_node(c, s);
    const wf_tnode *n = r ? wf_tnode_at(c->tape, r) : NULL;
    n = n && n->sort == WF_TN_RESULT ? wf_tnode_at(c->tape, n->src_[0]) : n;
    return n && n->sort == WF_TN_OP ? wf_tnode_name(n) : NULL;
}

const wf_tape_hooks wf_tape_hook_table = {
    .append = hook_append,
    .store = hook_store,
    .release = wf_tape_on_release,
    .stamp = wf_tape_on_stamp,
    .close = wf_tape_on_close,
    .leaf = hook_leaf,
    .maker = hook_maker,
};
