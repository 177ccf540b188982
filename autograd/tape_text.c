/*
 * autograd/tape_text.c -- the tape as a function of the graph IR, for people and tests.
 *
 * Invariant: nodes keep their order, so the text is what ran, op by op; but what an op reads stands before it, also where its
 * node was made after the op's own. Names of tensors that are still there and the places that made them stand behind each line
 * as a remark, which the parser skips.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/tape.h"
#include "eager/alloc.h"
#include "jit/ir/ir.h"
#include "weft/grad.h"

enum { FEW_SRC = 8 };

typedef struct found {
    uint64_t order;
    wf_ref ref;
} found;

typedef struct set {
    found *v;
    size_t n, cap;
} set;

static int by_order(const void *a, const void *b)
{
    const found *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int put(set *s, wf_tape *t, wf_ref r)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        found *p = realloc(s->v, cap * sizeof *p);
        if (!p) {
            return WEFT_ENOMEM;
        }
        s->v = p;
        s->cap = cap;
    }
    s->v[s->n++] = (found){wf_tnode_order(t, r), r};
    return 0;
}

/* Everything r depends on, in order. The queue flag marks what was seen. */
static int collect(set *s, wf_tape *t, wf_ref r)
{
    int rc = put(s, t, r);
    wf_tnode_at(t, r)->flags |= WF_TN_QUEUED;
    for (size_t i = 0; i < s->n && !rc; i++) {
        wf_tnode *n = wf_tnode_at(t, s->v[i].ref);
        for (int k = 0; k < n->nsrc && !rc; k++) {
            wf_ref q = wf_tnode_src(n)[k];
            if (q && !(wf_tnode_at(t, q)->flags & WF_TN_QUEUED)) {
                wf_tnode_at(t, q)->flags |= WF_TN_QUEUED;
                rc = put(s, t, q);
            }
        }
    }
    for (size_t i = 0; i < s->n; i++) {
        wf_tnode_at(t, s->v[i].ref)->flags &= (uint8_t)~WF_TN_QUEUED;
    }
    if (s->n) {
        qsort(s->v, s->n, sizeof *s->v, by_order);
    }
    return rc;
}

static wf_val emit(wf_fn *f, wf_tape *t, const set *s, wf_val *vals, size_t at);

/* The value of a node. It is made now where none is yet: constants that a node saves, and views of other threads' tensors, are
 * numbered behind the node that reads them. 0: no memory. */
static wf_val value_of(wf_fn *f, wf_tape *t, const set *s, wf_val *vals, wf_ref r)
{
    found key = {wf_tnode_order(t, r), r};
    const found *at = bsearch(&key, s->v, s->n, sizeof key, by_order);
    if (!at) {
        return 0;
    }
    wf_val *v = &vals[at - s->v];
    *v = *v ? *v : emit(f, t, s, vals, (size_t)(at - s->v));
    return *v;
}

/* An operand that was not recorded: a scalar, or a tensor no gradient flows to. */
static wf_val outside(wf_fn *f, const wf_tnode *n, int k, const wf_type *like)
{
    weft_tensor h = n->aux && n->aux->scalar ? n->aux->scalar[k] : WEFT_NONE;
    if (wf_is_scalar(h)) {
        return wf_fn_scalar(f, (int)h.context, h.serial);
    }
    return wf_is_absent(h) ? 0 : wf_fn_input(f, like);
}

static wf_val emit(wf_fn *f, wf_tape *t, const set *s, wf_val *vals, size_t at)
{
    static const wf_attr none;
    wf_tnode *n = wf_tnode_at(t, s->v[at].ref);
    wf_type type;
    wf_val few[FEW_SRC], *src = few, dst[WF_MAX_DST];
    wf_tnode_type(n, &type);
    if (n->sort == WF_TN_RESULT) { /* of what is an input here the others are inputs, too */
        const wf_val v = value_of(f, t, s, vals, n->src_[0]), nth = v + n->out;
        const bool has = v && (nth == v || (nth <= f->n && wf_fn_at(f, v)->op != WF_OP_INPUT &&
                                            wf_fn_at(f, nth)->op == WF_OP_RESULT));
        return has ? nth : v ? wf_fn_input(f, &type) : 0;
    }
    if (n->sort != WF_TN_OP || n->op == WF_OP_CUSTOM) {
        return wf_fn_input(f, &type);
    }
    if (n->nsrc > FEW_SRC) {
        src = wf_malloc(n->nsrc * sizeof *src);
        if (!src) {
            return 0;
        }
    }
    for (int k = 0; k < n->nsrc; k++) {
        wf_ref q = wf_tnode_src(n)[k];
        src[k] = q ? value_of(f, t, s, vals, q) : outside(f, n, k, &type);
    }
    wf_why why = {0};
    int rc = wf_fn_append(f, (wf_op)n->op, n->aux ? &n->aux->attr : &none, n->nsrc, src, dst,
                          n->site, &why);
    if (src != few) {
        wf_mfree(src);
    }
    /* an unrecorded operand's own extents are unknown: show the result alone */
    return rc == 0 ? dst[0] : wf_fn_input(f, &type);
}

/* -- remarks: names and call sites ------------------------------------------------------------------------ */

typedef struct remarks {
    wf_ctx *c;
    const set *s;
    char **name;     /* beside s */
    uint32_t *owner; /* of each value of the function: 1 + an index of s, or 0 */
} remarks;

/* Takes the name, which may be NULL. */
static void set_name(remarks *r, size_t i, char *name)
{
    if (name) {
        wf_mfree(r->name[i]);
        r->name[i] = name;
    }
}

/* Names that saved values and leaves had, and those that tensors of this thread have now. */
static void find_names(remarks *r)
{
    for (size_t i = 0; i < r->s->n; i++) {
        const wf_tnode *n = wf_tnode_at(r->c->tape, r->s->v[i].ref);
        set_name(r, i, n->val && n->val->name ? wf_strdup(n->val->name) : NULL);
        set_name(r, i, wf_meta_name(n->meta, NULL));
    }
    bool pinned;
    uint32_t k = 0;
    for (wf_slot *x; (x = wf_next_live(r->c, r->c, &k, &pinned, NULL));) {
        if (x->node && x->meta) {
            found key = {wf_tnode_order(r->c->tape, x->node), x->node};
            const found *f = bsearch(&key, r->s->v, r->s->n, sizeof key, by_order);
            if (f) {
                set_name(r, (size_t)(f - r->s->v), wf_meta_name(x->meta, NULL));
            }
        }
        if (pinned) {
            wf_unpin(r->c, x);
        }
    }
}

static void note(void *user, wf_val v, FILE *out)
{
    const remarks *r = user;
    if (r->owner[v] == 0) {
        return;
    }
    const char *name = r->name[r->owner[v] - 1];
    const wf_tnode *n = wf_tnode_at(r->c->tape, r->s->v[r->owner[v] - 1].ref);
    const char *site = n->sort == WF_TN_OP ? NULL : n->site; /* ops say theirs themselves */
    fputs(name || site ? "  ;" : "", out);
    if (name) {
        fputs(" '", out);
        for (; *name; name++) {
            fputc(*name == '\n' ? ' ' : *name, out); /* a remark is one line */
        }
        fputc('\'', out);
    }
    if (site) {
        fprintf(out, " %s", wf_site_file(site));
    }
}

static int print_noted(const wf_fn *f, FILE *out, wf_ctx *c, const set *s, const wf_val *vals)
{
    remarks r = {.c = c, .s = s};
    r.name = calloc(s->n + 1, sizeof *r.name);
    r.owner = calloc(f->n + 1, sizeof *r.owner);
    int rc = r.name && r.owner ? 0 : WEFT_ENOMEM;
    for (size_t i = 0; i < s->n && !rc; i++) {
        r.owner[vals[i]] = (uint32_t)i + 1;
    }
    if (!rc) {
        find_names(&r);
        rc = wf_fn_print_noted(f, out, note, &r);
    }
    for (size_t i = 0; r.name && i < s->n; i++) {
        wf_mfree(r.name[i]);
    }
    free(r.name);
    free(r.owner);
    return rc;
}

weft_status weft_tape_print(FILE *out, weft_tensor x)
{
    wf_ctx *c = wf_ctx_get();
    wf_why why = {0};
    bool pinned = false;
    wf_slot *s = c && out && x.slot < WF_ABSENT_SLOT ? wf_pin(c, x, &pinned, &why) : NULL;
    wf_ref r = 0;
    if (s && wf_slot_tracked(s)) {
        r = wf_tape_node_of(c, s, &why);
    } else if (!why.code) {
        wf_fail(&why, out ? WEFT_EGRAD : WEFT_EINVALID, "%s",
                out ? "nothing was recorded for the tensor" : "the file is NULL");
    }
    if (s && pinned) {
        wf_unpin(c, s);
    }
    if (!r) {
        return (weft_status)(c ? wf_raise_status(c, "tape_print", 1, &x, &why) : WEFT_ENOMEM);
    }
    set found_nodes = {0};
    wf_fn *f = wf_fn_new("tape");
    int rc = f ? collect(&found_nodes, c->tape, r) : WEFT_ENOMEM;
    wf_val *vals = calloc(found_nodes.n + 1, sizeof *vals);
    rc = vals ? rc : WEFT_ENOMEM;
    for (size_t i = 0; i < found_nodes.n && !rc; i++) {
        rc = value_of(f, c->tape, &found_nodes, vals, found_nodes.v[i].ref) ? 0 : WEFT_ENOMEM;
    }
    rc = rc ? rc : wf_fn_output(f, value_of(f, c->tape, &found_nodes, vals, r));
    rc = rc ? rc : print_noted(f, out, c, &found_nodes, vals);
    if (rc) {
        wf_raise_text(c, rc, "tape_print", "out of memory, or the file cannot be written");
    }
    free(vals);
    free(found_nodes.v);
    wf_fn_free(f);
    wf_tape_discard(c, r);
    return (weft_status)rc;
}
