/*
 * autograd/parts.c -- gradients that reach a part of a value: slices of it, rows picked by index.
 *
 * Spelled out, each is a tensor of zeros as large as the value with something in one place, and they are added up: of a
 * projection that is cut into queries, keys and values, or of a sequence that is read step by step, nearly all of that
 * is moving zeros. So slices wait until the node's turn has come. Those that cover the value exactly (whatever the order
 * they came in) are joined by one concat; the others are placed among zeros and added one by one. Rows that are picked
 * add to the gradient that is there already, in its memory where nobody else has it.
 *
 * Invariants: what is done depends on extents and the order of nodes alone, not on who shares memory with whom, so that
 * eager and traced gradients have the same bits; parts of one node in the list never make up more elements than its
 * value has; create_graph does without all this.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"
#include "autograd/vjp_util.h"
#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/profile.h"

enum {
    MANY = 64
}; /* parts of one node that wait: more are joined, a trace's instruction has as many operands */

static int by_start(const void *a, const void *b)
{
    const wf_part *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static void drop_all(wf_part *part, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (part[i].g.slot) {
            weft_free(part[i].g);
        }
    }
}

void wf_parts_drop(wf_engine *e)
{
    drop_all(e->part, e->n_part);
    wf_free(e->part, e->cap_part * sizeof *e->part);
}

/* A further entry of the list, whose gradient is g. */
static int append(wf_engine *e, wf_part p, weft_tensor g)
{
    wf_part *room =
        e->n_part < e->cap_part ? e->part : wf_more_objects(e->part, &e->cap_part, 8, sizeof *room);
    if (!room) {
        wf_raise_text(e->c, WEFT_ENOMEM, "backward", "out of memory");
        return WEFT_ENOMEM;
    }
    e->part = room;
    p.g = WEFT_NONE;
    const int rc = wf_engine_accumulate(e, &p.g, g);
    e->part[e->n_part] = p;
    e->n_part += !rc;
    return rc;
}

/* The one that runs v. */
static wf_engine *engine_of(const wf_vjp *v)
{
    const wf_tape *t = v->c->tape;
    return t->engine;
}

/* Takes node r's parts from the list. How many. */
static uint32_t take(wf_engine *e, wf_ref r, wf_part *out)
{
    uint32_t n = 0, left = 0;
    for (uint32_t i = 0; i < e->n_part; i++) {
        if (e->part[i].node == r) {
            out[n++] = e->part[i];
        } else {
            e->part[left++] = e->part[i];
        }
    }
    e->n_part = left;
    return n;
}

/* Do the parts lie end to end? Then they are in order. */
static bool in_a_row(wf_part *part, uint32_t n)
{
    wf_part sorted[MANY];
    memcpy(sorted, part, n * sizeof *part);
    qsort(sorted, n, sizeof *sorted, by_start);
    bool yes = n > 1;
    for (uint32_t i = 1; i < n && yes; i++) {
        yes = sorted[i].start == sorted[i - 1].stop;
    }
    if (yes) {
        memcpy(part, sorted, n * sizeof *part);
    }
    return yes;
}

/* One after the other. Of a permuted value: in the order of what was permuted, where it will be wanted next. */
static weft_tensor join(const wf_tnode *n, const wf_part *part, uint32_t count)
{
    weft_tensor g[MANY], all;
    int64_t axis = part[0].axis, inverse[WF_MAX_RANK];
    const bool permuted = n->sort == WF_TN_OP && n->op == WF_OP_PERMUTE;
    for (int i = 0; permuted && i < n->rank; i++) {
        inverse[n->aux->attr.ints[i]] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        g[i] = permuted ? permute(part[i].g, n->rank, inverse) : part[i].g;
    }
    axis = permuted ? n->aux->attr.ints[axis] : axis;
    wf_dispatch(WF_OP_CONCAT, &(wf_attr){.n_ints = 1, .ints = &axis}, (int)count, g, 1, &all);
    return permuted ? permute(all, n->rank, n->aux->attr.ints) : all;
}

/* Each among zeros, added to the node's gradient in the order they came in. */
static int add_one_by_one(wf_engine *e, wf_ref r, const wf_part *part, uint32_t count)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && !rc; i++) {
        wf_tnode *n = wf_tnode_at(e->t, r);
        int64_t axis = part[i].axis;
        int64_t map[4] = {part[i].start, part[i].stop, 1, wf_tnode_dims(n)[axis]};
        wf_attr a = {.n_ints = 1, .ints = &axis, .n_dyn = 4, .dyn = map};
        rc = wf_engine_accumulate(e, &n->g, wf_op1(WF_OP_SLICE_GRAD, &a, part[i].g));
    }
    return rc;
}

/* What node r has of parts becomes its gradient; or, while others may come and these lie in a row, one part. */
static int fold(wf_engine *e, wf_ref r, bool last)
{
    wf_part part[MANY];
    wf_tnode *n = wf_tnode_at(e->t, r);
    const uint32_t count = take(e, r, part);
    int rc = 0;
    weft_scope sc = weft_scope_begin();
    wf_part whole = count ? part[0] : (wf_part){0};
    bool row = count && in_a_row(part, count);
    if (row) {
        whole.start = part[0].start;
        whole.stop = part[count - 1].stop;
    }
    if (row && whole.stop - whole.start == wf_tnode_dims(n)[whole.axis]) {
        rc = wf_engine_accumulate(e, &n->g, join(n, part, count));
    } else if (row && !last) {
        wf_tnode plain = *n; /* parts are as the value is */
        plain.op = WF_OP_CONCAT;
        rc = append(e, whole, join(&plain, part, count));
    } else {
        rc = add_one_by_one(e, r, part, count);
    }
    weft_scope_end(sc);
    drop_all(part, count);
    return rc;
}

int wf_parts_settle(wf_engine *e, wf_ref r)
{
    wf_tnode *n = wf_tnode_at(e->t, r);
    if (!n->parts) {
        return 0;
    }
    n->parts = e->outer ? 1 : 0; /* the outer engine may have some too */
    const char *outer = wf_prof_default_site;
    wf_prof_default_site = n->site;
    const int rc = fold(e, r, true);
    wf_prof_default_site = outer;
    return rc;
}

int wf_vjp_add_part(wf_vjp *v, int64_t axis, int64_t start, int64_t stop)
{
    wf_engine *e = engine_of(v);
    const wf_ref r = wf_tnode_src(wf_tnode_at(e->t, v->node))[0];
    wf_tnode *n = wf_tnode_at(e->t, r);
    int64_t held = stop - start;
    uint32_t count = 1;
    bool fits = true;
    if (!v->need[0]) {
        return 0;
    }
    for (uint32_t i = 0; i < e->n_part && n->parts; i++) {
        if (e->part[i].node == r) {
            held += e->part[i].stop - e->part[i].start;
            fits &= e->part[i].axis == axis;
            count++;
        }
    }
    int rc = fits && held <= wf_tnode_dims(n)[axis] ? 0 : wf_parts_settle(e, r);
    weft_tensor g = wf_engine_home(e, n, v->g[0]);
    rc = rc ? rc : append(e, (wf_part){.node = r, .axis = axis, .start = start, .stop = stop}, g);
    n->parts = 1;
    rc = rc ? rc : wf_engine_queue(e, r);
    return rc || count < MANY ? rc : fold(e, r, false);
}

/* -- rows picked by index ------------------------------------------------------------------------------------- */

static bool has_dtype(wf_ctx *c, weft_tensor g, int dtype)
{
    bool pinned;
    wf_slot *s = g.slot ? wf_pin(c, g, &pinned, NULL) : NULL;
    const bool yes = s && s->dtype == dtype;
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return yes;
}

int wf_vjp_add_at(wf_vjp *v, wf_op op, const wf_attr *attr, weft_tensor at, weft_tensor values)
{
    wf_engine *e = engine_of(v);
    const wf_ref r = wf_tnode_src(wf_tnode_at(e->t, v->node))[0];
    wf_tnode *n = wf_tnode_at(e->t, r);
    wf_type x;
    wf_tnode_type(n, &x);
    const bool there = !v->create_graph && has_dtype(v->c, n->g, x.dtype);
    weft_tensor src[3] = {there ? n->g : zeros_of(&x), at, values};
    if (src[0].slot == 0) {
        return (int)weft_error_status(src[0]);
    }
    if (!v->create_graph && !v->c->recorder && n->device == WF_DEVICE_HOST &&
        wf_gradient_is_alone(v->c, src[0])) {
        const int rc = wf_dispatch_inplace(op, attr, 3, src, src[0]);
        v->dsrc[0] = there ? WEFT_NONE : src[0];
        return rc;
    }
    weft_tensor sum = wf_op3(op, attr, src[0], at, values);
    if (!there || sum.slot == 0) {
        v->dsrc[0] = sum;
        return wf_vjp_done(v);
    }
    weft_free(n->g);
    n->g = wf_give_to(v->c, e->scope.depth, sum);
    return 0;
}
