/*
 * jit/passes/images_order.c -- which images of a function live channels-last: a model of what each order costs, and the cheapest
 * choice.
 *
 * Convolutions compute channels-last inside; row-major images they convert, in their caches, at every call. A conversion by a copy
 * costs as much, but once for all who read the image, and then elementwise rows and pools run between convolutions on
 * images as those make them. Not everything gains: products with 1 x 1 kernels are made of either order, in f32 faster of rows,
 * batch_norm is slower across channels, pools of rows are several times slower. So each row that can make its image in both orders
 * is a choice of two with a cost for either, each image that is made in one order and read in the other costs a copy,
 * and the cheapest of all is a minimum cut (cut.h). Where orders cost the same, images are row-major.
 *
 * Costs are bytes of traffic with memory (cost.h), 0.022 ns each, fitted to one thread of a Zen 5, sizes of ResNet-50 and batches of 8,
 * f32 and bf16: docs/channels-last.md has the measurements. They depend on types and extents alone, so that a function
 * has one plan, whatever the machine.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/layout.h"
#include "jit/passes/cost.h"
#include "jit/passes/cut.h"
#include "jit/passes/images.h"

/* Of an image's bytes, in quarters. */
enum {
    COPY = 10, /* a conversion by a copy */
    TURN = 9,  /* of an image or a result by a convolution, or a product that copies both */
    TURN_FOR_WEIGHTS = 6, /* by a gradient of weights, unless that is a product */
    TURN_HALVES = 12, /* of the image by a product of half types that makes the result in rows */
    PRODUCT_LAST = 2, /* by which an f32 product is slower channels-last, of image and result */
    UNPOOL_LAST = 3
};
/* The same of batch_norm, evaluating and training, and its gradient, by the pixels of an image: what channels-last costs more, or, less
 * than 0, rows, which are short then. */
static const struct {
    int pixels, wide[3], half[3];
} norm_last[] = {{1024, {2, 3, 4}, {0, 8, 20}},
                 {256, {1, 0, 1}, {2, 3, 5}},
                 {64, {0, -1, 1}, {-4, -6, -7}},
                 {0, {-2, -8, -10}, {-45, -55, -70}}};
/* Bytes an element of a window costs pools of rows more. */
enum { MAX_POOL_ROWS = 56, AVG_POOL_ROWS = 25 };
/* Where products of row-major images copy them (eager/cpu/conv.c). */
enum { MANY_CHANNELS = 256, FEW_PIXELS = 256 };

static const int64_t last_axes[4] = WF_LAST_AXES, first_axes[4] = WF_FIRST_AXES;

bool wf_images_can_lie(const wf_fn *f, wf_val v)
{
    const wf_type *t = wf_fn_type(f, v);
    bool sized = t->rank == 4;
    for (int i = 0; i < t->rank; i++) {
        sized = sized && !WF_IS_SYM(t->dims[i]);
    }
    return sized && wf_can_lie_last(t->rank, t->dims);
}

bool wf_images_permutes(const wf_fn *f, uint32_t k, const int64_t axes[4])
{
    const wf_ins *i = &f->ins[k];
    return i->op == WF_OP_PERMUTE && f->types[i->type].rank == 4 &&
           memcmp(f->attrs[i->attr].ints, axes, 4 * sizeof *axes) == 0;
}

/* -- rows -------------------------------------------------------------------------------------------------------- */

const wf_ins *wf_images_unpool(const wf_images *m, uint32_t k, wf_val image[2])
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[k], *s = i->op == WF_OP_RESHAPE ? wf_fn_at(f, i->src[0]) : NULL;
    if (!s || s->op != WF_OP_SCATTER_ADD || m->of[i->src[0]].uses != 1 ||
        f->attrs[s->attr].ints[0] != 1 || wf_fn_at(f, s->src[0])->op != WF_OP_FULL ||
        !wf_images_can_lie(f, k + 1)) {
        return NULL;
    }
    const wf_type *x = &f->types[i->type], *flat = &f->types[s->type];
    bool same = flat->rank == 2 && flat->dims[0] == x->dims[0] * x->dims[1];
    for (int a = 1; a < 3 && same; a++) {
        const wf_ins *r = wf_fn_at(f, s->src[a]);
        same =
            r->op == WF_OP_RESHAPE && m->of[s->src[a]].uses == 1 && wf_images_can_lie(f, r->src[0]);
        const wf_type *y = same ? wf_fn_type(f, r->src[0]) : NULL;
        const wf_type *first = same ? wf_fn_type(f, wf_fn_at(f, s->src[1])->src[0]) : NULL;
        same = same && y->dims[0] == x->dims[0] && y->dims[1] == x->dims[1] &&
               wf_type_same_dims(y, first);
        image[a - 1] = r->src[0];
    }
    return same ? s : NULL;
}

static int kind_of(const wf_images *m, uint32_t k)
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[k];
    const wf_op op = (wf_op)i->op;
    wf_val image[2];
    if (!wf_images_can_lie(f, k + 1)) {
        return WF_IMAGE_FIXED;
    }
    if (op == WF_OP_CONV2D || op == WF_OP_CONV2D_DX) {
        return wf_images_can_lie(f, i->nsrc > 3 ? wf_ins_src(f, i)[0] : i->src[0]) ? WF_IMAGE_FREE
                                                                                   : WF_IMAGE_FIXED;
    }
    if (wf_op_keeps_last(op)) {
        return wf_images_can_lie(f, wf_ins_src(f, i)[wf_image_of(op)]) ? WF_IMAGE_BOUND
                                                                       : WF_IMAGE_FIXED;
    }
    if (wf_op_is_elementwise(op) || op == WF_OP_CAST || op == WF_OP_VJP) {
        return WF_IMAGE_ELEMENTS;
    }
    return wf_images_unpool(m, k, image) ? WF_IMAGE_BOUND : WF_IMAGE_FIXED;
}

int wf_images_of(const wf_images *m, uint32_t k, wf_val v[WF_IMAGES_MOST])
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[k];
    const wf_val *src = wf_ins_src(f, i);
    int n = 0;
    if (m->at[k].kind == WF_IMAGE_BOUND && i->op == WF_OP_RESHAPE) {
        return wf_images_unpool(m, k, v) ? 2 : 0;
    }
    if (m->at[k].kind == WF_IMAGE_ELEMENTS) {
        for (int s = 0; s < i->nsrc && n < WF_IMAGES_MOST; s++) {
            bool again = !src[s] || !wf_type_same_dims(wf_fn_type(f, src[s]), &f->types[i->type]);
            for (int a = 0; a < n; a++) {
                again = again || v[a] == src[s];
            }
            if (!again) {
                v[n++] = src[s];
            }
        }
        return n;
    }
    const int most = i->op == WF_OP_CONV2D_DW || i->op == WF_OP_BATCH_NORM_BWD ? 2 : 1;
    for (int s = 0; s < most && (m->at[k].kind != WF_IMAGE_FIXED || i->op == WF_OP_CONV2D_DW);
         s++) {
        if (wf_images_can_lie(f, src[s]) && !(n && v[0] == src[s])) {
            v[n++] = src[s];
        }
    }
    return n;
}

/* Sums over channels and pixels would run across memory. */
bool wf_images_indifferent(const wf_fn *f, uint32_t k)
{
    const wf_ins *i = &f->ins[k];
    const wf_attr *a = wf_ins_attr(f, i);
    if (wf_rows[i->op].kind == WF_KIND_REDUCE) {
        unsigned axes = 0;
        for (int n = 0; n < a->n_ints; n++) {
            axes |= 1u << a->ints[n];
        }
        return a->n_ints && (!(axes & 2) || axes == 2);
    }
    return i->op == WF_OP_SLICE || i->op == WF_OP_PERMUTE || i->op == WF_OP_EXPAND ||
           i->op == WF_OP_COPY || i->op == WF_OP_CONV2D_DW || i->op == WF_OP_MAX_POOL2D ||
           i->op == WF_OP_AVG_POOL2D;
}

bool wf_images_opens(const wf_images *m, uint32_t k)
{
    return m->at[k].kind == WF_IMAGE_FREE || m->f->ins[k].op == WF_OP_CONV2D_DW;
}

/* -- costs ------------------------------------------------------------------------------------------------------- */

/* Files may have types of any size: a size beyond all memory is as good as a larger one, and sums of these do not overflow. */
static int64_t within(int64_t n)
{
    return n < 0 ? 0 : n < WF_IMAGES_LARGE ? n : WF_IMAGES_LARGE;
}

int64_t wf_images_bytes(const wf_type *t)
{
    return within(wf_type_bytes(t));
}

static int64_t bytes_of(const wf_images *m, wf_val v)
{
    return m->of[v].spread ? 0 : within(wf_weigh_bytes(wf_images_bytes(wf_fn_type(m->f, v))));
}

static bool is_half(const wf_fn *f, wf_val v)
{
    return wf_dtype_size(wf_fn_type(f, v)->dtype) == 2;
}

bool wf_images_product(const wf_fn *f, uint32_t k)
{
    const wf_ins *i = &f->ins[k];
    const wf_attr *a = wf_ins_attr(f, i);
    const wf_type *w = i->op == WF_OP_CONV2D_DW ? &f->types[i->type] : wf_fn_type(f, i->src[1]);
    const bool biased = i->op == WF_OP_CONV2D && i->nsrc > 2 && i->src[2];
    return !biased && w->dims[2] == 1 && w->dims[3] == 1 && a->ints[0] == 1 && a->ints[1] == 1 &&
           a->ints[2] == 0 && a->ints[3] == 0 && a->ints[6] == 1;
}

/* Does a product of this image copy it, and its result, where they are row-major? */
static bool copies_rows(const wf_fn *f, wf_val image)
{
    const wf_type *t = wf_fn_type(f, image);
    return t->dims[1] > MANY_CHANNELS && t->dims[2] * t->dims[3] <= FEW_PIXELS;
}

/* What convolution k takes longer for an image in rows. */
static int64_t cost_of_opening(const wf_images *m, uint32_t k, wf_val image)
{
    const bool weights = m->f->ins[k].op == WF_OP_CONV2D_DW, product = wf_images_product(m->f, k);
    const int quarters = weights ? (product ? TURN : TURN_FOR_WEIGHTS)
                         : !product || copies_rows(m->f, image) ? TURN
                         : is_half(m->f, image)                 ? TURN_HALVES
                                                                : 0;
    return bytes_of(m, image) * quarters / 4;
}

/* Of a convolution by its image: what its result costs more in rows, and channels-last. */
static void cost_of_result(const wf_images *m, uint32_t k, int64_t *rows, int64_t *last)
{
    const wf_val image = wf_ins_src(m->f, &m->f->ins[k])[0];
    if (!wf_images_product(m->f, k) || copies_rows(m->f, image)) {
        *rows = bytes_of(m, k + 1) * TURN / 4;
    } else if (!is_half(m->f, image)) {
        *last = (bytes_of(m, k + 1) + bytes_of(m, image)) * PRODUCT_LAST / 4;
    }
}

static void cost_of_norm(const wf_images *m, uint32_t k, int64_t *rows, int64_t *last)
{
    const wf_ins *i = &m->f->ins[k];
    const wf_type *t = &m->f->types[i->type];
    const int way = i->op == WF_OP_BATCH_NORM_BWD ? 2 : (wf_ins_attr(m->f, i)->flags & 1);
    int row = 0;
    while (t->dims[2] * t->dims[3] < norm_last[row].pixels) {
        row++;
    }
    const int quarters = is_half(m->f, k + 1) ? norm_last[row].half[way] : norm_last[row].wide[way];
    *(quarters < 0 ? rows : last) = bytes_of(m, k + 1) * (quarters < 0 ? -quarters : quarters) / 4;
}

/* Elements that the windows of pool k have, or of which k is the gradient. */
static int64_t elements_of_windows(const wf_fn *f, uint32_t k)
{
    const wf_ins *i = &f->ins[k];
    const wf_attr *a = wf_ins_attr(f, i);
    const wf_val pooled = i->op == WF_OP_AVG_POOL2D_BWD ? i->src[0] : k + 1;
    int64_t window, all;
    if (__builtin_mul_overflow(a->ints[0], a->ints[1], &window) ||
        __builtin_mul_overflow(within(wf_type_numel(wf_fn_type(f, pooled))), window, &all)) {
        all = WF_IMAGES_LARGE;
    }
    return within(all);
}

/* What row k costs more in rows, and what channels-last. */
static void cost_of_row(const wf_images *m, uint32_t k, int64_t *rows, int64_t *last)
{
    const wf_fn *f = m->f;
    const int op = f->ins[k].op;
    *rows = *last = 0;
    if (m->at[k].kind == WF_IMAGE_FREE) {
        cost_of_result(m, k, rows, last);
    } else if (op == WF_OP_BATCH_NORM || op == WF_OP_BATCH_NORM_BWD) {
        cost_of_norm(m, k, rows, last);
    } else if (op == WF_OP_MAX_POOL2D) {
        *rows = elements_of_windows(f, k) * MAX_POOL_ROWS;
    } else if (op == WF_OP_AVG_POOL2D || op == WF_OP_AVG_POOL2D_BWD) {
        *rows = elements_of_windows(f, k) * AVG_POOL_ROWS;
    } else if (op == WF_OP_RESHAPE) {
        *last = bytes_of(m, k + 1) * UNPOOL_LAST / 4;
    }
}

/* -- the choice: rows are the source's side of a cut ----------------------------------------------------------------- */

/* The node of what makes v: of a row, or of an order that is fixed. */
static uint32_t maker_of(const wf_images *m, wf_val v)
{
    const wf_ins *i = wf_fn_at(m->f, v);
    const uint32_t k = i->op == WF_OP_RESULT ? i->src[0] - 1 : v - 1;
    return m->at[k].kind != WF_IMAGE_FIXED               ? m->at[k].node
           : wf_images_permutes(m->f, v - 1, first_axes) ? WF_CUT_SINK
                                                         : WF_CUT_SOURCE;
}

/* Somebody reads v in the order of `reader`, a node. */
static void join_reader(wf_images *m, wf_cut *c, wf_val v, uint32_t reader)
{
    const uint32_t maker = maker_of(m, v);
    const int64_t bytes = bytes_of(m, v), copy = bytes ? bytes * COPY / 4 + WF_LAUNCH : 0;
    wf_image *x = &m->of[v];
    if (maker != WF_CUT_SINK && reader != WF_CUT_SOURCE && copy) {
        if (!x->to_last) {
            x->to_last = wf_cut_node(c);
            wf_cut_join(c, maker, x->to_last, copy);
        }
        wf_cut_join(c, x->to_last, reader, WF_CUT_FOREVER);
    }
    if (maker != WF_CUT_SOURCE && reader != WF_CUT_SINK && copy) {
        if (!x->to_rows) {
            x->to_rows = wf_cut_node(c);
            wf_cut_join(c, x->to_rows, maker, copy);
        }
        wf_cut_join(c, reader, x->to_rows, WF_CUT_FOREVER);
    }
}

bool wf_images_turns(const wf_images *m, uint32_t k)
{
    const wf_val v = m->f->ins[k].src[0];
    return wf_images_permutes(m->f, k, last_axes) && wf_images_can_lie(m->f, v) &&
           maker_of(m, v) != WF_CUT_SOURCE;
}

static void join_row(wf_images *m, wf_cut *c, uint32_t k)
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[k];
    const wf_val *src = wf_ins_src(f, i);
    const uint32_t node = m->at[k].node;
    wf_val v[WF_IMAGES_MOST];
    const int n = wf_images_of(m, k, v);
    if (m->at[k].kind != WF_IMAGE_FIXED) {
        int64_t rows, last;
        cost_of_row(m, k, &rows, &last);
        wf_cut_join(c, node, WF_CUT_SINK, rows);
        wf_cut_join(c, WF_CUT_SOURCE, node, last);
    }
    for (int a = 0; a < n; a++) {
        if (wf_images_opens(m, k)) {
            wf_cut_join(c, maker_of(m, v[a]), WF_CUT_SINK, cost_of_opening(m, k, v[a]));
        } else {
            join_reader(m, c, v[a], node);
        }
    }
    const bool turns = wf_images_turns(m, k);
    const bool wants = m->at[k].kind == WF_IMAGE_FIXED && !m->at[k].inside &&
                       i->op != WF_OP_RESULT && (turns || !wf_images_indifferent(f, k));
    for (int s = 0; s < i->nsrc && wants; s++) {
        if (src[s] && wf_images_can_lie(f, src[s])) {
            join_reader(m, c, src[s], turns ? WF_CUT_SINK : WF_CUT_SOURCE);
        }
    }
}

/* What is known of rows and values before any choice. */
static void look(wf_images *m, wf_cut *c)
{
    const wf_fn *f = m->f;
    wf_val v[2];
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_ins *i = &f->ins[k];
        const wf_val *src = wf_ins_src(f, i);
        for (int s = 0; s < i->nsrc; s++) {
            m->of[src[s]].uses++;
        }
        m->of[k + 1].spread = i->op == WF_OP_EXPAND || i->op == WF_OP_FULL ||
                              (wf_rows[i->op].kind == WF_KIND_VIEW && m->of[i->src[0]].spread);
    }
    for (uint32_t o = 0; o < f->noutputs; o++) {
        m->of[f->outputs[o]].uses++;
    }
    for (uint32_t k = 0; k < f->n; k++) {
        m->at[k].kind = (uint8_t)kind_of(m, k);
        m->at[k].node = m->at[k].kind == WF_IMAGE_FIXED ? 0 : wf_cut_node(c);
        const wf_ins *scatter = m->at[k].kind == WF_IMAGE_BOUND ? wf_images_unpool(m, k, v) : NULL;
        if (scatter) {
            m->at[scatter - f->ins].inside = true;
            m->at[scatter->src[1] - 1].inside = m->at[scatter->src[2] - 1].inside = true;
        }
    }
}

static uint32_t root_of(uint32_t *set, uint32_t k)
{
    while (set[k] != k) {
        k = set[k] = set[set[k]];
    }
    return k;
}

/* Each run of channels-last rows that read one another is one decision. */
static int ask(wf_images *m, bool *any)
{
    const wf_fn *f = m->f;
    uint32_t *set = malloc((f->n + 1u) * sizeof *set);
    wf_val v[WF_IMAGES_MOST];
    if (!set) {
        return wf_fail(m->why, WEFT_ENOMEM, "out of memory");
    }
    for (uint32_t k = 0; k < f->n; k++) {
        set[k] = k;
        const int n = m->at[k].is_last ? wf_images_of(m, k, v) : 0;
        for (int a = 0; a < n; a++) {
            const wf_ins *i = wf_fn_at(f, v[a]);
            const uint32_t maker = i->op == WF_OP_RESULT ? i->src[0] - 1 : v[a] - 1;
            if (m->at[maker].is_last) {
                set[root_of(set, k)] = root_of(set, maker);
            }
        }
    }
    for (uint32_t k = 0; k < f->n; k++) {
        wf_image_row *root = &m->at[root_of(set, k)];
        if (root == &m->at[k] && root->is_last) {
            m->of[k + 1].wanted = wf_pass_may(m->pass, "layout");
            m->told.runs += m->of[k + 1].wanted;
        }
    }
    *any = false;
    for (uint32_t k = 0; k < f->n; k++) { /* of a region's root `wanted` is borrowed until here */
        m->at[k].is_last = m->at[k].is_last && m->of[root_of(set, k) + 1].wanted;
        *any |= m->at[k].is_last;
    }
    free(set);
    return 0;
}

/* Marks images that rows want channels-last which do not convert them themselves. */
static void find_wanted(wf_images *m)
{
    wf_val v[WF_IMAGES_MOST];
    for (wf_val k = 0; k <= m->f->n; k++) {
        m->of[k].wanted = false;
    }
    for (uint32_t k = 0; k < m->f->n; k++) {
        const int n = m->at[k].is_last && !wf_images_opens(m, k) ? wf_images_of(m, k, v) : 0;
        for (int a = 0; a < n; a++) {
            m->of[v[a]].wanted = !m->of[v[a]].spread;
        }
    }
}

/* What it costs, and would in rows. Ends the division. */
static void tell(wf_images *m, wf_cut *c)
{
    m->told.looked = true;
    m->told.cost = wf_cut_cost(c);
    memset(c->side, 0, c->nodes);
    c->side[WF_CUT_SINK] = 1;
    const int64_t rows = wf_cut_cost(c);
    m->told.in_rows = rows < WF_CUT_FOREVER ? rows : 0;
}

int wf_images_order(wf_images *m, bool *any)
{
    const wf_fn *f = m->f;
    wf_cut c;
    wf_cut_init(&c);
    look(m, &c);
    for (uint32_t k = 0; k < f->n; k++) {
        join_row(m, &c, k);
    }
    for (uint32_t o = 0; o < f->noutputs; o++) {
        if (wf_images_can_lie(f, f->outputs[o])) {
            join_reader(m, &c, f->outputs[o], WF_CUT_SOURCE);
        }
    }
    int rc = wf_cut_run(&c) ? wf_fail(m->why, WEFT_ENOMEM, "out of memory") : 0;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        m->at[k].is_last = m->at[k].kind != WF_IMAGE_FIXED && c.side[m->at[k].node];
    }
    if (!rc) {
        tell(m, &c);
    }
    wf_cut_free(&c);
    rc = rc ? rc : ask(m, any);
    if (!rc && *any) {
        find_wanted(m);
    }
    return rc;
}
