/*
 * jit/passes/layout.c -- views become index maps; see layout.h.
 *
 * Maps are made by the same function that makes eager views (wf_view_apply), so that what needs a copy
 * eagerly needs one here.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/layout.h"
#include "eager/product.h"
#include "jit/passes/layout.h"

/* Stores the shape of v; the offset stays as it is. */
static int set_shape(wf_layout *l, wf_map_of *m, const wf_view *v)
{
    const uint32_t n = v->rank;
    if (wf_grow(&l->words, l->nwords, 2 * n, &l->capwords, sizeof *l->words)) {
        return WEFT_ENOMEM;
    }
    m->rank = v->rank;
    m->shape = l->nwords;
    memcpy(l->words + l->nwords, v->dims, n * sizeof(int64_t));
    memcpy(l->words + l->nwords + n, v->strides, n * sizeof(int64_t));
    l->nwords += 2 * n;
    return 0;
}

void wf_map_view(const wf_layout *l, const wf_map_of *m, wf_view *v)
{
    v->data = NULL;
    v->dtype = m->dtype;
    v->rank = m->rank;
    memcpy(v->dims, wf_map_dims(l, m), m->rank * sizeof(int64_t));
    memcpy(v->strides, wf_map_strides(l, m), m->rank * sizeof(int64_t));
}

bool wf_map_is_whole(const wf_layout *l, const wf_map_of *m)
{
    if (m->offset || m->nterms || !m->root) {
        return false;
    }
    const wf_type *t = wf_fn_type(l->f, m->root);
    const int64_t *d = wf_map_dims(l, m), *step = wf_map_strides(l, m);
    bool same = m->rank == t->rank;
    int64_t n = 1;
    for (int i = m->rank; i-- > 0;) { /* asked of every operand, several times */
        if (d[i] != 1 && step[i] != n) {
            return false;
        }
        same = same && d[i] == t->dims[i];
        n *= d[i];
    }
    return same || n == wf_type_numel(t);
}

int wf_map_dense(wf_layout *l, wf_val root, const wf_type *t, wf_map_of *out)
{
    wf_view v;
    wf_view_of_type(&v, t, NULL);
    *out = (wf_map_of){.root = root, .dtype = t->dtype};
    return set_shape(l, out, &v);
}

int wf_map_expand(wf_layout *l, const wf_map_of *m, int rank, const int64_t *dims, wf_map_of *out)
{
    *out = *m;
    const int64_t *d = wf_map_dims(l, m), *s = wf_map_strides(l, m);
    if (m->rank == rank && memcmp(d, dims, (size_t)rank * sizeof *d) == 0) {
        return 0;
    }
    wf_view v = {.rank = (uint8_t)rank};
    int lead = rank - m->rank;
    for (int i = 0; i < rank; i++) {
        int k = i - lead;
        v.dims[i] = dims[i];
        v.strides[i] = k >= 0 && d[k] == dims[i] ? s[k] : 0;
    }
    return set_shape(l, out, &v);
}

int wf_map_reshape(wf_layout *l, const wf_map_of *m, int rank, const int64_t *dims, wf_map_of *out)
{
    wf_view from, to;
    wf_type t = {.dtype = m->dtype, .rank = (uint8_t)rank};
    *out = *m;
    wf_map_view(l, m, &from);
    from.data = l->map;
    memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
    if (m->rank == rank && memcmp(from.dims, dims, (size_t)rank * sizeof *dims) == 0) {
        return 0;
    }
    if (wf_view_apply(WF_OP_RESHAPE, NULL, &t, &from, &to, NULL)) {
        return 1;
    }
    return set_shape(l, out, &to);
}

int wf_map_narrow(wf_layout *l, const wf_map_of *m, int axis, int64_t start, int64_t n,
                  wf_map_of *out)
{
    wf_view v;
    wf_map_view(l, m, &v);
    v.dims[axis] = n;
    *out = *m;
    out->offset += start * v.strides[axis];
    return set_shape(l, out, &v);
}

int wf_map_lift(wf_layout *l, const wf_map_of *m, int rank, const int64_t *dims, unsigned axes,
                wf_map_of *out)
{
    wf_view v = {.rank = (uint8_t)rank};
    const int64_t *s = wf_map_strides(l, m);
    for (int i = 0, k = 0; i < rank; i++) {
        v.dims[i] = dims[i];
        v.strides[i] = axes >> i & 1 ? 0 : s[k++];
    }
    *out = *m;
    return set_shape(l, out, &v);
}

bool wf_map_same(const wf_layout *l, const wf_map_of *a, const wf_map_of *b)
{
    return a->root == b->root && a->dtype == b->dtype && a->rank == b->rank &&
           a->nterms == b->nterms && a->offset == b->offset &&
           (a->shape == b->shape ||
            memcmp(wf_map_dims(l, a), wf_map_dims(l, b), 2u * a->rank * sizeof(int64_t)) == 0) &&
           (a->term == b->term || a->nterms == 0 ||
            memcmp(l->terms + a->term, l->terms + b->term, a->nterms * sizeof *l->terms) == 0);
}

/* Adds one term behind those of m (copied: the terms of a map are consecutive). */
static int add_term(wf_layout *l, wf_map_of *m, wf_term t)
{
    if (wf_grow(&l->terms, l->nterms, m->nterms + 1u, &l->capterms, sizeof *l->terms)) {
        return WEFT_ENOMEM;
    }
    memmove(l->terms + l->nterms, l->terms + m->term, m->nterms * sizeof *l->terms);
    m->term = l->nterms;
    l->terms[l->nterms + m->nterms++] = t;
    l->nterms += m->nterms;
    return 0;
}

static int view_term(wf_layout *l, wf_map_of *m, const wf_ins *i, const wf_view *from)
{
    const wf_attr *at = &l->f->attrs[i->attr];
    wf_term t = {.ins = (uint32_t)(i - l->f->ins)};
    if (i->op == WF_OP_SLICE) {
        t.kind = WF_TERM_START;
        t.a = from->strides[at->ints[0]];
        t.b = -t.a; /* starts are not negative; the formula holds for them all the same */
    } else if (i->op == WF_OP_AS_STRIDED) {
        t.kind = WF_TERM_OFFSET;
        t.a = 1;
    } else if (i->op == WF_OP_DIAGONAL) {
        t.kind = WF_TERM_DIAGONAL;
        t.a = from->strides[at->ints[1]];
        t.b = from->strides[at->ints[0]];
    } else {
        return 0;
    }
    return add_term(l, m, t);
}

/* A reshape that copies: what is copied already (copied[u]: the first such reshape of u) is a view of that copy. */
static int lay_copy(wf_layout *l, const wf_ins *i, wf_val v, wf_val *copied)
{
    const wf_type *type = wf_fn_type(l->f, v);
    wf_val *first = &copied[i->src[0]];
    if (*first) {
        return wf_map_reshape(l, &l->map[*first], type->rank, type->dims, &l->map[v]);
    }
    *first = v;
    return wf_map_dense(l, v, type, &l->map[v]);
}

/* A view instruction: the map of its operand, seen through it. */
static int lay_view(wf_layout *l, const wf_ins *i, wf_val v, wf_val *copied, wf_why *why)
{
    static const wf_attr none;
    const wf_map_of *from = &l->map[i->src[0]];
    const wf_type *type = wf_fn_type(l->f, v);
    wf_map_of m = *from;
    wf_view src, dst;
    if (!from->root) {
        return wf_fail(why, WEFT_EUNSUPPORTED, "%s of a scalar", wf_rows[i->op].name);
    }
    wf_map_view(l, from, &src);
    src.data = l->map; /* any address: only strides and extents are wanted */
    const wf_attr *at = i->attr ? &l->f->attrs[i->attr] : &none;
    int rc = wf_view_apply((wf_op)i->op, at, type, &src, &dst, why);
    if (rc > 1) {
        return rc;
    }
    if (rc == 1) {
        return lay_copy(l, i, v, copied);
    }
    rc = set_shape(l, &m, &dst);
    if (!rc && wf_type_numel(type) > 0) {
        rc = view_term(l, &m, i, &src);
    }
    l->map[v] = m;
    return rc;
}

/* How results of convolutions are read: turned round to channels-last memory, or by rows that run over them as they were recorded. */
enum { READ_LAST = 1, READ_ROWS = 2 };

static bool is_convolution(uint32_t op)
{
    return op == WF_OP_CONV2D || op == WF_OP_CONV2D_DX;
}

/* Marks values by how they are read. Rows that read images in either order have no say. */
static void find_reads(const wf_fn *f, uint8_t *read)
{
    static const int64_t last_axes[4] = WF_LAST_AXES;
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_ins *i = &f->ins[k];
        const bool turned = i->op == WF_OP_PERMUTE && f->types[i->type].rank == 4 &&
                            memcmp(f->attrs[i->attr].ints, last_axes, sizeof last_axes) == 0;
        const bool rows = wf_op_is_elementwise((wf_op)i->op) || i->op == WF_OP_CAST ||
                          i->op == WF_OP_VJP || i->op == WF_OP_COPY || i->op == WF_OP_RESHAPE;
        const wf_val *src = wf_ins_src(f, i);
        for (int s = 0; s < i->nsrc && (turned || rows); s++) {
            read[src[s]] |= turned ? READ_LAST : READ_ROWS;
        }
    }
    for (uint32_t o = 0; o < f->noutputs; o++) {
        read[f->outputs[o]] |= READ_ROWS;
    }
}

/* Where results of a row with a kernel lie: channels-last if its image does, as eager's (eager/layout.h); those of convolutions, whose
 * kernels make either order of either, as they are read. v: one of them. */
static int lay_result(wf_layout *l, const wf_ins *i, wf_val v, unsigned read)
{
    const wf_type *t = &l->f->types[i->type];
    const bool further = i->op == WF_OP_RESULT;
    const wf_ins *of = further ? wf_fn_at(l->f, i->src[0]) : i;
    int rc = wf_map_dense(l, v, t, &l->map[v]);
    if (rc || !wf_op_keeps_last((wf_op)of->op) || !wf_can_lie_last(t->rank, t->dims)) {
        return rc;
    }
    const wf_map_of *image = &l->map[wf_ins_src(l->f, of)[wf_image_of((wf_op)of->op)]];
    if (is_convolution(of->op) && read) {
        if (read & READ_LAST) {
            wf_last_strides(t->dims, l->words + l->map[v].shape + t->rank);
        }
        return 0;
    }
    if (image->root && wf_lies_last(image->rank, wf_map_dims(l, image), wf_map_strides(l, image))) {
        wf_last_strides(t->dims, l->words + l->map[v].shape + t->rank);
    }
    return 0;
}

static bool is_product(uint32_t op)
{
    return op == WF_OP_MATMUL || op == WF_OP_LINEAR;
}

/* The value whose memory u is, by views; 0: its rows begin well as they are, or what makes it is no product, cast or elementwise row:
 * kernels of other rows may want row-major results. */
static wf_val crooked_root(const wf_fn *f, wf_val u)
{
    while (wf_rows[wf_fn_at(f, u)->op].kind == WF_KIND_VIEW) {
        u = wf_fn_at(f, u)->src[0];
    }
    const wf_type *t = wf_fn_type(f, u);
    const int64_t n = t->rank > 1 ? t->dims[t->rank - 1] : 0;
    const uint32_t op = wf_fn_at(f, u)->op;
    const bool well = n * (int64_t)wf_dtype_size(t->dtype) % WF_ROW_ALIGN == 0;
    return !well && (is_product(op) || wf_op_is_elementwise((wf_op)op) || op == WF_OP_CAST) ? u : 0;
}

/* Marks the roots that large products on a device make or read, whose rows do not begin at multiples of 16 bytes. */
static void find_crooked(const wf_fn *f, uint8_t *crooked)
{
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_ins *i = &f->ins[k];
        if (!is_product(i->op)) {
            continue;
        }
        const wf_val *src = wf_ins_src(f, i);
        const wf_type *t = &f->types[i->type], *a = wf_fn_type(f, src[0]);
        const wf_val root[3] = {k + 1, src[0], src[1]};
        for (int r = 0; r < 3 && t->rank > 1; r++) {
            const wf_val v = crooked_root(f, root[r]);
            crooked[v] |= v && wf_aligned_rows_pay(t->dtype, wf_type_numel(t), a->dims[a->rank - 1],
                                                   wf_type_numel(wf_fn_type(f, v)));
        }
    }
    /* as_strided counts elements row by row; what is returned would be copied once more */
    for (uint32_t k = 0; k < f->n; k++) {
        if (f->ins[k].op == WF_OP_AS_STRIDED) {
            crooked[crooked_root(f, f->ins[k].src[0])] = 0;
        }
    }
    for (uint32_t k = 0; k < f->noutputs; k++) {
        crooked[crooked_root(f, f->outputs[k])] = 0;
    }
}

/* Rows of a row-major map, each with some elements behind it that nothing names. */
static void straighten(const wf_layout *l, const wf_map_of *m)
{
    int64_t *dims = l->words + m->shape, *strides = dims + m->rank;
    int64_t n = wf_aligned_row(dims[m->rank - 1], (int64_t)wf_dtype_size(m->dtype));
    for (int i = m->rank - 1; i-- > 0; n *= dims[i]) {
        strides[i] = n;
    }
}

int64_t wf_root_bytes(const wf_layout *l, wf_val v)
{
    const wf_map_of *m = &l->map[v];
    const int64_t *dims = wf_map_dims(l, m), *strides = wf_map_strides(l, m);
    int64_t lo, hi;
    const int names = wf_map_reach(m->rank, dims, strides, &lo, &hi);
    return names > 0 ? (hi + 1) * (int64_t)wf_dtype_size(m->dtype) : 0;
}

int wf_layout_init(wf_layout *l, const wf_fn *f, bool device, bool align, wf_why *why)
{
    *l = (wf_layout){.f = f, .device = device};
    l->map = calloc(f->n + 1u, sizeof *l->map);
    wf_val *copied = calloc(f->n + 1u, sizeof *copied);
    uint8_t *crooked = calloc(f->n + 1u, sizeof *crooked);
    uint8_t *read = calloc(f->n + 1u, sizeof *read);
    int rc = l->map && copied && crooked && read
                 ? wf_grow(&l->words, 0, 1, &l->capwords, sizeof *l->words)
                 : WEFT_ENOMEM;
    if (!rc && device && align) {
        find_crooked(f, crooked);
    }
    if (!rc && !device) {
        find_reads(f, read);
    }
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        const wf_ins *i = &f->ins[k];
        const wf_type *t = &f->types[i->type];
        for (int a = 0; a < t->rank && !rc; a++) {
            if (WF_IS_SYM(t->dims[a])) {
                rc = wf_fail(why, WEFT_EUNSUPPORTED, "value %%%u has a symbol as extent", k + 1);
            }
        }
        if (!rc && !wf_op_is_weak(i->op)) {
            rc = wf_rows[i->op].kind == WF_KIND_VIEW ? lay_view(l, i, k + 1, copied, why)
                 : device                            ? wf_map_dense(l, k + 1, t, &l->map[k + 1])
                                                     : lay_result(l, i, k + 1, read[k + 1]);
        }
        if (!rc && crooked[k + 1]) {
            straighten(l, &l->map[k + 1]);
            l->aligned = true;
        }
    }
    free(copied);
    free(crooked);
    free(read);
    return rc == WEFT_ENOMEM ? wf_fail(why, rc, "out of memory for a plan") : rc;
}

void wf_layout_free(wf_layout *l)
{
    free(l->map);
    free(l->words);
    free(l->terms);
    free(l->uniform);
}
