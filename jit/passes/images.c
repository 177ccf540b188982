/*
 * jit/passes/images.c -- the pass `layout`: images between convolutions live channels-last where that costs less.
 *
 * In the function that it makes, a channels-last image is a value of the extents of its memory, [n, h, w, c], as recording
 * has it (docs/channels-last.md): elementwise rows run over it as over any value, and the image is a permute of it, which is an
 * index map for whoever reads it. A conversion is a copy of a permute. Results of convolutions lie as who reads them wants
 * (jit/passes/layout.h), those of the other rows as their images do. images_order.c says which images lie so.
 *
 * Requirements on whoever changes this
 *  1. No bit changes, whatever the orders: the rows that get new ones have one set of bits for both (tests/unit/test_layout.c), and
 *     rows that reduce are not rewritten, as their sums go by row-major indices.
 *  2. It runs behind fold, which would take copies away, and before dense.
 *  3. What it makes needs no more memory, op by op, than what it was given.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/layout.h"
#include "jit/passes/images.h"

static const int64_t last_axes[4] = WF_LAST_AXES, first_axes[4] = WF_FIRST_AXES;

static int permuted(wf_images *m, wf_val v, int rank, const int64_t *axes, wf_val *out)
{
    const wf_attr a = {.n_ints = (uint8_t)rank, .ints = axes};
    return wf_build_row(&m->b, WF_OP_PERMUTE, &a, 1, &v, 0, out, m->why);
}

/* A value with a conversion before it: of v of the function being made. */
static int converted(wf_images *m, wf_val v, const int64_t axes[4], bool spread, wf_val *out)
{
    const int rc = permuted(m, v, 4, axes, &v);
    *out = v;
    return rc || spread ? rc : wf_build_row(&m->b, WF_OP_COPY, NULL, 1, &v, 0, out, m->why);
}

/* v in the extents of channels-last memory. */
static int memory_of(wf_images *m, wf_val v, wf_val *out)
{
    wf_image *x = &m->of[v];
    const int rc = x->memory ? 0 : converted(m, x->row, last_axes, m->of[v].spread, &x->memory);
    *out = x->memory;
    return rc;
}

/* v as it was recorded, in channels-last memory. */
static int view_of(wf_images *m, wf_val v, wf_val *out)
{
    wf_image *x = &m->of[v];
    wf_val memory;
    int rc = memory_of(m, v, &memory);
    rc = rc || x->view ? rc : permuted(m, memory, 4, first_axes, &x->view);
    *out = x->view;
    return rc;
}

/* v as it was recorded, in rows. */
static int rows_of(wf_images *m, wf_val v, wf_val *out)
{
    wf_image *x = &m->of[v];
    const int rc = x->row ? 0 : converted(m, x->memory, first_axes, false, &x->row);
    *out = x->row;
    return rc;
}

/* v as it was recorded, as it lies; converts: where somebody wants it channels-last anyway, so. */
static int any_of(wf_images *m, wf_val v, bool converts, wf_val *out)
{
    const wf_image *x = &m->of[v];
    return (converts && x->wanted) || !x->row ? view_of(m, v, out) : rows_of(m, v, out);
}

/* Operand v of an elementwise row on images of the type t, in the extents of their memory. */
static int turned(wf_images *m, wf_val v, const wf_type *t, wf_val *out)
{
    static const int64_t flat_axes[3] = {1, 2, 0};
    const wf_type *own = wf_fn_type(m->f, v);
    int64_t dims[3];
    if (wf_type_same_dims(own, t)) {
        return memory_of(m, v, out);
    }
    if (own->rank == 4 && m->of[v].memory) {
        *out = m->of[v].memory;
        return 0;
    }
    int rc = rows_of(m, v, out);
    if (rc || own->rank == 0) {
        return rc;
    }
    if (own->rank > 2) {
        return permuted(m, *out, own->rank, own->rank == 4 ? last_axes : flat_axes, out);
    }
    memcpy(dims, own->dims,
           own->rank * sizeof *dims); /* no channels: they repeat along the new axis */
    dims[own->rank] = 1;
    const wf_attr a = {.n_dyn = (uint8_t)(own->rank + 1), .dyn = dims};
    return wf_build_row(&m->b, WF_OP_RESHAPE, &a, 1, out, 0, out, m->why);
}

static int make_elements(wf_images *m, uint32_t k)
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[k];
    const wf_type *t = &f->types[i->type];
    const wf_val *src = wf_ins_src(f, i);
    wf_attr a = *wf_ins_attr(f, i);
    int64_t dims[4];
    int rc = 0;
    for (int s = 0; s < i->nsrc && !rc; s++) {
        m->src[s] = 0;
        rc = src[s] ? turned(m, src[s], t, &m->src[s]) : 0;
    }
    for (int n = 0; n < 4 && i->op == WF_OP_VJP; n++) {
        dims[n] = t->dims[last_axes[n]];
        a.dyn = dims;
    }
    return rc ? rc : wf_build_over(&m->b, f, k, &a, m->src, &m->of[k + 1].memory, m->why);
}

/* max_pool2d's gradient in channels-last memory: pixels are an axis there, too. The order of sums is that of row-major images. */
static int make_unpool(wf_images *m, uint32_t k, const wf_ins *scatter, const wf_val image[2])
{
    const wf_fn *f = m->f;
    const wf_type *x = wf_fn_type(f, k + 1), *y = wf_fn_type(f, image[0]);
    const int64_t from[3] = {y->dims[0], y->dims[2] * y->dims[3], y->dims[1]};
    const int64_t to[3] = {x->dims[0], x->dims[2] * x->dims[3], x->dims[1]};
    const int64_t dims[4] = {x->dims[0], x->dims[2], x->dims[3], x->dims[1]};
    wf_val src[3], v;
    int rc = rows_of(m, scatter->src[0], &v);
    wf_attr a = {.n_dyn = 3, .dyn = to};
    rc = rc ? rc : wf_build_row(&m->b, WF_OP_RESHAPE, &a, 1, &v, 0, &src[0], m->why);
    a.dyn = from;
    for (int s = 0; s < 2 && !rc; s++) {
        rc = memory_of(m, image[s], &v);
        rc = rc ? rc : wf_build_row(&m->b, WF_OP_RESHAPE, &a, 1, &v, 0, &src[1 + s], m->why);
    }
    const uint32_t at = (uint32_t)(scatter - f->ins);
    rc = rc ? rc : wf_build_over(&m->b, f, at, NULL, src, &v, m->why);
    a = (wf_attr){.n_dyn = 4, .dyn = dims};
    return rc ? rc : wf_build_row(&m->b, WF_OP_RESHAPE, &a, 1, &v, 0, &m->of[k + 1].memory, m->why);
}

/* Operand v of row k, which is made from what it was recorded over. */
static int operand_of(wf_images *m, uint32_t k, wf_val v, wf_val *out)
{
    wf_val image[WF_IMAGES_MOST];
    const int n = wf_images_of(m, k, image), kind = m->at[k].kind;
    const bool converts = wf_images_opens(m, k);
    bool is_image = false;
    for (int i = 0; i < n; i++) {
        is_image |= v == image[i];
    }
    return (is_image && converts) || (kind == WF_IMAGE_FIXED && wf_images_indifferent(m->f, k))
               ? any_of(m, v, converts, out)
           : is_image && m->at[k].is_last ? view_of(m, v, out)
                                          : rows_of(m, v, out);
}

/* Any other row: over images in its order, or as they lie where that is no matter. */
static int make_row(wf_images *m, uint32_t k)
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[k];
    const wf_val *src = wf_ins_src(f, i);
    wf_val out[WF_MAX_DST];
    int rc = 0;
    for (int s = 0; s < i->nsrc && !rc; s++) {
        m->src[s] = 0;
        rc = src[s] ? operand_of(m, k, src[s], &m->src[s]) : 0;
    }
    rc = rc ? rc : wf_build_over(&m->b, f, k, NULL, m->src, out, m->why);
    for (uint32_t r = 0; r < wf_rows[i->op].ndst && !rc; r++) {
        wf_image *x = &m->of[k + 1 + r];
        x->row = out[r];
        if (m->at[k].is_last && wf_images_can_lie(f, k + 1 + r)) {
            x->row = 0;
            rc = permuted(m, out[r], 4, last_axes, &x->memory);
        } else if (m->at[k].kind == WF_IMAGE_FREE && m->src[0] == m->of[src[0]].view) {
            /* what is read as it was recorded is in rows (jit/passes/layout.h), though the image is not */
            const wf_type *t = wf_fn_type(f, k + 1);
            const wf_attr a = {.n_dyn = 4, .dyn = t->dims};
            rc = wf_build_row(&m->b, WF_OP_RESHAPE, &a, 1, &out[r], 0, &x->row, m->why);
        }
    }
    return rc;
}

static int make(wf_images *m, uint32_t k)
{
    const wf_fn *f = m->f;
    const wf_ins *i = &f->ins[k];
    wf_val image[WF_IMAGES_MOST], row;
    if (i->op == WF_OP_RESULT || m->at[k].inside) {
        return 0;
    }
    if (i->op < WF_OP_RESULT) {
        return wf_build_leaf(&m->b, f, k, &m->of[k + 1].row, m->why);
    }
    if (wf_images_turns(m, k)) {
        return memory_of(m, i->src[0], &m->of[k + 1].row);
    }
    const wf_ins *scatter = m->at[k].kind == WF_IMAGE_BOUND ? wf_images_unpool(m, k, image) : NULL;
    if (m->at[k].is_last && scatter) {
        return make_unpool(m, k, scatter, image);
    }
    if (m->at[k].is_last && m->at[k].kind == WF_IMAGE_ELEMENTS) {
        return make_elements(m, k);
    }
    if (i->op == WF_OP_RESHAPE &&
        wf_type_same(&f->types[i->type], wf_fn_type(f, i->src[0]))) { /* as this pass leaves them */
        return rows_of(m, i->src[0], &m->of[k + 1].row);
    }
    int rc = 0;
    if (scatter) { /* its parts were left out so far */
        rc = make_row(m, scatter->src[1] - 1);
        rc = rc ? rc : make_row(m, scatter->src[2] - 1);
        rc = rc ? rc : make_row(m, (uint32_t)(scatter - f->ins));
    }
    rc = rc ? rc : make_row(m, k);
    if (!rc && wf_images_permutes(f, k, first_axes)) {
        rc = rows_of(m, i->src[0], &row);
        m->of[k + 1].memory = row;
        m->of[k + 1].view = m->of[k + 1].row;
        m->of[k + 1].row = wf_images_can_lie(f, k + 1) ? 0 : m->of[k + 1].row; /* a copy */
    }
    return rc;
}

static int make_all(wf_images *m, wf_fn **out)
{
    const wf_fn *f = m->f;
    wf_val v = 0;
    int rc = wf_build_begin(&m->b, f, 0);
    rc = rc ? wf_fail(m->why, rc, "out of memory") : 0;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        rc = make(m, k);
    }
    for (uint32_t o = 0; o < f->noutputs && !rc; o++) {
        rc = rows_of(m, f->outputs[o], &v);
        rc = rc ? rc : wf_fn_output(m->b.f, v) ? wf_fail(m->why, WEFT_ENOMEM, "out of memory") : 0;
    }
    *out = wf_build_end(&m->b);
    return rc;
}

/* Bytes of the images that convolution k turns round for its own use. */
static int64_t turned_inside(const wf_fn *f, uint32_t k)
{
    const wf_ins *i = &f->ins[k];
    const bool weights = i->op == WF_OP_CONV2D_DW;
    int64_t bytes = 0;
    if ((!weights && i->op != WF_OP_CONV2D && i->op != WF_OP_CONV2D_DX) ||
        wf_images_product(f, k)) {
        return 0;
    }
    for (int s = 0; s < (weights ? 2 : 1); s++) {
        const wf_val v = wf_ins_src(f, i)[s];
        bytes += wf_images_permutes(f, v - 1, first_axes) ? 0 : wf_images_bytes(wf_fn_type(f, v));
    }
    return bytes;
}

/* The most that lives at once where rows run one by one, arguments aside. 0 or WEFT_ENOMEM. */
static int peak_of(const wf_fn *f, int64_t *most)
{
    int64_t now = 0, *live = calloc(f->n + 2u, sizeof *live);
    uint32_t *root = calloc(f->n + 1u, sizeof *root), *end = calloc(f->n + 1u, sizeof *end);
    const int rc = live && root && end ? 0 : WEFT_ENOMEM;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        const wf_ins *i = &f->ins[k];
        const wf_val *src = wf_ins_src(f, i);
        root[k + 1] = wf_rows[i->op].kind == WF_KIND_VIEW ? root[i->src[0]] : k + 1;
        end[k + 1] = k;
        for (int s = 0; s < i->nsrc; s++) {
            end[root[src[s]]] = k;
        }
    }
    for (uint32_t o = 0; o < f->noutputs && !rc; o++) {
        end[root[f->outputs[o]]] = f->n;
    }
    *most = 0;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        const int op = f->ins[k].op;
        const bool has = root[k + 1] == k + 1 && op != WF_OP_INPUT && op != WF_OP_FULL;
        const int64_t bytes = has ? wf_images_bytes(wf_fn_type(f, k + 1)) : 0;
        live[k] += bytes;
        live[end[k + 1] + 1] -= bytes;
        now += live[k];
        const int64_t most_now = now + turned_inside(f, k);
        *most = most_now > *most ? most_now : *most;
    }
    free(live);
    free(root);
    free(end);
    return rc;
}

enum { MORE = 64, MUCH = 64 << 10 }; /* of the peak, and bytes */

/* *out goes where it needs more memory than what it was made from. */
static int check_peak(const wf_fn *in, wf_fn **out, wf_pass_images *told, wf_why *why)
{
    int64_t before, after;
    if (peak_of(in, &before) || peak_of(*out, &after)) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    if (after > before + before / MORE + MUCH) {
        wf_fn_free(*out);
        *out = NULL;
        told->fat = true;
        told->runs = 0;
    }
    return 0;
}

int wf_pass_layout(wf_pass *p, const wf_fn *in, wf_fn **out, wf_why *why)
{
    wf_images m = {.pass = p, .f = in, .why = why};
    bool any = false;
    for (uint32_t k = 0; k < in->n && !any; k++) {
        any = in->ins[k].op == WF_OP_CONV2D || in->ins[k].op == WF_OP_CONV2D_DX;
    }
    if (!any || p->opts->device) {
        return 0;
    }
    m.at = calloc(in->n + 1u, sizeof *m.at);
    m.of = calloc(in->n + 1u, sizeof *m.of);
    m.src = calloc((size_t)wf_fn_most_src(in) + 1, sizeof *m.src);
    int rc = m.at && m.of && m.src ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    rc = rc ? rc : wf_images_order(&m, &any);
    if (!rc && any) {
        rc = make_all(&m, out);
        rc = rc ? rc : check_peak(in, out, &m.told, why);
    }
    if (p->opts->images) {
        *p->opts->images = m.told;
    }
    free(m.at);
    free(m.of);
    free(m.src);
    return rc;
}
