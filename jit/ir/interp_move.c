/*
 * jit/ir/interp_move.c -- movement, indexing, sorting, pooling and creation rows of the reference
 * interpreter: each an obvious loop over elements.
 *
 * Additions into shared places happen in row-major order of what is added, in the compute type, with
 * one rounding at the end.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/ir/interp_int.h"

static int accumulator_of(int dtype)
{
    return wf_dtype_kind(dtype) == 2 ? wf_dtype_compute(dtype) : dtype;
}

static int64_t numel(const wf_array *a)
{
    return wf_type_numel(&a->type);
}

/* The index of flat element i of t. */
static void index_of(const wf_type *t, int64_t i, int64_t *index)
{
    for (int a = t->rank; a-- > 0;) {
        index[a] = i % t->dims[a];
        i /= t->dims[a];
    }
}

/* Flat position of an index in t. */
static int64_t flat_of(const wf_type *t, const int64_t *index)
{
    int64_t at = 0;
    for (int a = 0; a < t->rank; a++) {
        at = at * t->dims[a] + index[a];
    }
    return at;
}

/* -- movement ------------------------------------------------------------------------------------------ */

static void concat(wf_in_call *k)
{
    int axis = (int)k->attr->ints[0];
    int64_t begin = 0, index[WF_MAX_RANK];
    for (int s = 0; s < k->nsrc; s++) {
        const wf_array *x = &k->src[s];
        for (int64_t i = 0; i < numel(x); i++) {
            index_of(&x->type, i, index);
            index[axis] += begin;
            wf_in_put(&k->dst[0], flat_of(&k->dst[0].type, index), wf_in_get(x, i));
        }
        begin += x->type.dims[axis];
    }
}

static void pad(wf_in_call *k)
{
    const wf_array *x = &k->src[0];
    wf_array *y = &k->dst[0];
    uint64_t value =
        wf_in_cast(k->m, WEFT_F64, y->type.dtype, wf_in_num(WEFT_F64, k->attr->flt[0]));
    int64_t index[WF_MAX_RANK];
    for (int64_t i = 0; i < numel(y); i++) {
        bool inside = true;
        index_of(&y->type, i, index);
        for (int a = 0; a < x->type.rank; a++) {
            index[a] -= k->attr->dyn[2 * a];
            inside &= index[a] >= 0 && index[a] < x->type.dims[a];
        }
        wf_in_put(y, i, inside ? wf_in_get(x, flat_of(&x->type, index)) : value);
    }
}

static void roll(wf_in_call *k)
{
    const wf_array *x = &k->src[0];
    int64_t index[WF_MAX_RANK];
    for (int64_t i = 0; i < numel(x); i++) {
        index_of(&x->type, i, index);
        for (int s = 0; s < k->attr->n_ints; s++) {
            int64_t a = k->attr->ints[s], n = x->type.dims[a];
            index[a] = ((index[a] + k->attr->dyn[s] % n) % n + n) % n;
        }
        wf_in_put(&k->dst[0], flat_of(&x->type, index), wf_in_get(x, i));
    }
}

static void pad_mode(wf_in_call *k)
{
    const wf_array *x = &k->src[0];
    int64_t index[WF_MAX_RANK];
    for (int64_t i = 0; i < numel(&k->dst[0]); i++) {
        index_of(&k->dst[0].type, i, index);
        for (int a = 0; a < x->type.rank; a++) {
            int64_t n = x->type.dims[a], at = index[a] - k->attr->dyn[2 * a];
            index[a] = at < 0 || at >= n ? wf_padded_from(k->attr->ints[0], at, n) : at;
        }
        wf_in_put(&k->dst[0], i, wf_in_get(x, flat_of(&x->type, index)));
    }
}

static void triangle(wf_in_call *k)
{
    const wf_array *x = &k->src[0];
    int64_t index[WF_MAX_RANK];
    for (int64_t i = 0; i < numel(x); i++) {
        index_of(&x->type, i, index);
        __int128 off = (__int128)index[x->type.rank - 1] - index[x->type.rank - 2];
        bool keep = k->op == WF_OP_TRIL ? off <= k->attr->dyn[0] : off >= k->attr->dyn[0];
        wf_in_put(&k->dst[0], i, keep ? wf_in_get(x, i) : 0);
    }
}

static void slice_scatter(wf_in_call *k)
{
    int axis = (int)k->attr->ints[0];
    int64_t index[WF_MAX_RANK];
    for (int64_t i = 0; i < numel(&k->dst[0]); i++) {
        wf_in_put(&k->dst[0], i, 0);
    }
    for (int64_t i = 0; i < numel(&k->src[0]); i++) {
        index_of(&k->src[0].type, i, index);
        index[axis] = k->attr->dyn[0] + index[axis] * k->attr->dyn[2];
        wf_in_put(&k->dst[0], flat_of(&k->dst[0].type, index), wf_in_get(&k->src[0], i));
    }
}

/* room[at] += v for each element of from in turn; at comes from the caller. */
typedef struct adder {
    wf_in_call *k;
    int c;
    uint64_t *room;
} adder;

static bool open_adder(adder *a, wf_in_call *k, const wf_array *base)
{
    *a = (adder){.k = k, .c = accumulator_of(k->dst[0].type.dtype)};
    a->room = wf_in_room(k->m, numel(&k->dst[0]));
    for (int64_t i = 0; a->room && base && i < numel(base); i++) {
        a->room[i] = wf_in_load(k->m, base, i, a->c);
    }
    return a->room != NULL;
}

static void add_at(adder *a, int64_t at, const wf_array *from, int64_t i)
{
    a->room[at] =
        wf_in_row(a->k->m, WF_OP_ADD, a->c, a->room[at], wf_in_load(a->k->m, from, i, a->c), 0);
}

static void close_adder(adder *a)
{
    for (int64_t i = 0; a->room && i < numel(&a->k->dst[0]); i++) {
        wf_in_store(a->k->m, &a->k->dst[0], i, a->c, a->room[i]);
    }
    free(a->room);
}

/* The j-th of an axis in the order in which they are added: the n of the middle, those before, those behind. */
static int64_t in_turn(int64_t j, int64_t n, int64_t before)
{
    return j < n ? before + j : j < n + before ? j - n : j;
}

static void pad_mode_bwd(wf_in_call *k)
{
    const wf_array *g = &k->src[0];
    const wf_type *x = &k->dst[0].type;
    const int64_t *by = k->attr->dyn;
    int64_t from[WF_MAX_RANK], to[WF_MAX_RANK];
    adder a;
    bool open = open_adder(&a, k, NULL);
    uint64_t *some = wf_in_room(k->m, numel(&k->dst[0])); /* has a place its first? */
    for (int64_t i = 0; open && some && i < numel(g); i++) {
        index_of(&g->type, i, from);
        for (int d = 0; d < x->rank; d++) {
            const int64_t n = x->dims[d], at = in_turn(from[d], n, by[2 * d]) - by[2 * d];
            from[d] = at + by[2 * d];
            to[d] = at < 0 || at >= n ? wf_padded_from(k->attr->ints[0], at, n) : at;
        }
        const int64_t place = flat_of(x, to), e = flat_of(&g->type, from);
        if (some[place]) {
            add_at(&a, place, g, e);
        } else { /* the first is not added to 0 */
            a.room[place] = wf_in_load(k->m, g, e, a.c);
            some[place] = 1;
        }
    }
    free(some);
    close_adder(&a);
}

static void strided_scatter(wf_in_call *k)
{
    const wf_type *t = &k->src[0].type;
    const int64_t *strides = k->attr->dyn + k->dst[0].type.rank;
    adder a;
    if (open_adder(&a, k, NULL)) {
        for (int64_t i = 0; i < numel(&k->src[0]); i++) {
            add_at(&a, strides[t->rank] + wf_in_offset(i, t->rank, t->dims, strides), &k->src[0],
                   i);
        }
    }
    close_adder(&a);
}

static void update(wf_in_call *k)
{
    const wf_type *t = &k->src[1].type;
    const int64_t *dyn = k->attr->dyn;
    for (int64_t i = 0; i < numel(&k->dst[0]); i++) {
        wf_in_put(&k->dst[0], i, wf_in_get(&k->src[0], i));
    }
    for (int64_t i = 0; i < numel(&k->src[1]);
         i++) { /* of two writes to one place the last stays */
        int64_t at = dyn[2 * t->rank] + wf_in_offset(i, t->rank, t->dims, dyn + t->rank);
        wf_in_put(&k->dst[0], at, wf_in_get(&k->src[1], i));
    }
}

int wf_in_move(wf_in_call *k)
{
    switch ((int)k->op) {
    case WF_OP_CONCAT:
        concat(k);
        return 0;
    case WF_OP_PAD:
        pad(k);
        return 0;
    case WF_OP_PAD_MODE:
        pad_mode(k);
        return 0;
    case WF_OP_PAD_MODE_BWD:
        pad_mode_bwd(k);
        return 0;
    case WF_OP_ROLL:
        roll(k);
        return 0;
    case WF_OP_TRIL:
    case WF_OP_TRIU:
        triangle(k);
        return 0;
    case WF_OP_SLICE_GRAD:
        slice_scatter(k);
        return 0;
    case WF_OP_STRIDED_GRAD:
        strided_scatter(k);
        return 0;
    case WF_OP_UPDATE:
        update(k);
        return 0;
    }
    return wf_fail(k->m->why, WEFT_EUNSUPPORTED, "%s cannot be run", wf_rows[k->op].name);
}

/* -- indexing ---------------------------------------------------------------------------------------------- */

/* Index i of the index operand, counted from the front. -1: out of range, with why. */
static int64_t index_at(wf_in_call *k, const wf_array *idx, int64_t i, int64_t extent)
{
    int64_t at = (int64_t)wf_in_load(k->m, idx, i, WEFT_I64);
    if (at < -extent || at >= extent) {
        wf_fail(k->m->why, WEFT_EINDEX, "index %lld is outside an axis of %lld", (long long)at,
                (long long)extent);
        return -1;
    }
    return at < 0 ? at + extent : at;
}

/* All indices are in range, whether anything is read through them or not. */
static int check_indices(wf_in_call *k, const wf_array *idx, int64_t extent)
{
    for (int64_t i = 0; i < numel(idx); i++) {
        if (index_at(k, idx, i, extent) < 0) {
            return WEFT_EINDEX;
        }
    }
    return 0;
}

/* take_along, scatter_add: position in `wide` of element i of the indices. */
static int64_t along(wf_in_call *k, const wf_type *wide, const wf_array *idx, int64_t i)
{
    int64_t index[WF_MAX_RANK], axis = k->attr->ints[0];
    index_of(&idx->type, i, index);
    index[axis] = index_at(k, idx, i, wide->dims[axis]);
    return flat_of(wide, index);
}

/* index_select, index_add: position in `wide` of element i of `narrow`, which has the axes of the
 * indices in place of the axis. */
static int64_t selected(wf_in_call *k, const wf_type *wide, const wf_array *idx,
                        const wf_type *narrow, int64_t i)
{
    int64_t n[WF_MAX_RANK], w[WF_MAX_RANK];
    int axis = (int)k->attr->ints[0], more = idx->type.rank;
    index_of(narrow, i, n);
    for (int a = 0; a < wide->rank; a++) {
        w[a] = a < axis ? n[a] : a > axis ? n[a + more - 1] : 0;
    }
    w[axis] = index_at(k, idx, flat_of(&idx->type, n + axis), wide->dims[axis]);
    return flat_of(wide, w);
}

static void one_hot(wf_in_call *k)
{
    int64_t classes = k->attr->dyn[0];
    uint64_t one = wf_in_cast(k->m, WEFT_F32, k->dst[0].type.dtype, wf_in_num(WEFT_F32, 1));
    for (int64_t i = 0; i < numel(&k->dst[0]); i++) {
        bool hot = index_at(k, &k->src[0], i / classes, classes) == i % classes;
        wf_in_put(&k->dst[0], i, hot ? one : 0);
    }
}

static int add_rows(wf_in_call *k)
{
    const wf_array *base = &k->src[0], *idx = &k->src[1], *values = &k->src[2];
    adder a;
    if (open_adder(&a, k, base)) {
        for (int64_t i = 0; i < numel(values); i++) {
            int64_t at = k->op == WF_OP_SCATTER_ADD
                             ? along(k, &base->type, idx, i)
                             : selected(k, &base->type, idx, &values->type, i);
            add_at(&a, at, values, i);
        }
    }
    close_adder(&a);
    return 0;
}

int wf_in_index(wf_in_call *k)
{
    const wf_array *x = &k->src[0];
    bool hot = k->op == WF_OP_ONE_HOT;
    int rc = check_indices(k, &k->src[hot ? 0 : 1],
                           hot ? k->attr->dyn[0] : x->type.dims[k->attr->ints[0]]);
    if (rc) {
        return rc;
    }
    if (hot) {
        one_hot(k);
        return 0;
    }
    if (k->op == WF_OP_SCATTER_ADD || k->op == WF_OP_INDEX_ADD) {
        return add_rows(k);
    }
    for (int64_t i = 0; i < numel(&k->dst[0]); i++) {
        int64_t at = k->op == WF_OP_TAKE_ALONG
                         ? along(k, &x->type, &k->src[1], i)
                         : selected(k, &x->type, &k->src[1], &k->dst[0].type, i);
        wf_in_put(&k->dst[0], i, wf_in_get(x, at));
    }
    return 0;
}

/* -- sorting ------------------------------------------------------------------------------------------------- */

/* Does a come before b? NaN is the largest, zeros are equal. */
static bool before(wf_interp *m, int c, uint64_t a, uint64_t b, bool descending)
{
    bool na = wf_in_row(m, WF_OP_ISNAN, c, a, 0, 0) & 1,
         nb = wf_in_row(m, WF_OP_ISNAN, c, b, 0, 0) & 1;
    if (na || nb) {
        return descending ? na && !nb : nb && !na;
    }
    return wf_in_row(m, descending ? WF_OP_GREATER : WF_OP_LESS, c, a, b, 0) & 1;
}

/* Stable insertion of positions 0 .. n - 1 of a line. */
static void sort_line(wf_interp *m, int c, const uint64_t *x, int64_t *at, int64_t n, bool down)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t j = i;
        for (; j > 0 && before(m, c, x[i], x[at[j - 1]], down); j--) {
            at[j] = at[j - 1];
        }
        at[j] = i;
    }
}

int wf_in_sort(wf_in_call *k)
{
    wf_interp *m = k->m;
    const wf_array *x = &k->src[0];
    int axis = (int)k->attr->ints[0], c = wf_in_compute(x->type.dtype);
    bool flag = (k->attr->flags & WF_FLAG_DESCENDING) != 0;
    bool down = k->op == WF_OP_TOPK ? !flag : flag;
    int64_t n = x->type.dims[axis], index[WF_MAX_RANK];
    uint64_t *line = wf_in_room(m, n), *room = wf_in_room(m, n);
    int64_t *at = (int64_t *)room;
    for (int64_t i = 0; i < numel(&k->dst[0]) && line && room; i++) {
        index_of(&k->dst[0].type, i, index);
        int64_t rank = index[axis];
        for (int64_t e = 0; e < n; e++) {
            index[axis] = e;
            line[e] = wf_in_load(m, x, flat_of(&x->type, index), c);
        }
        sort_line(m, c, line, at, n, down);
        index[axis] = at[rank];
        wf_in_put(&k->dst[0], i, wf_in_get(x, flat_of(&x->type, index)));
        wf_in_put(&k->dst[1], i, (uint64_t)at[rank]);
    }
    free(line);
    free(room);
    return 0;
}

/* -- pooling --------------------------------------------------------------------------------------------------- */

typedef struct window {
    int64_t h, w; /* of the input plane */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    bool count_pad;
    int64_t windows[2]; /* adaptive: as many, from end to end; else 0 */
} window;

static window window_of(const wf_in_call *k, const wf_type *plane)
{
    window p = {.h = plane->dims[2], .w = plane->dims[3]};
    p.count_pad = (k->attr->flags & WF_FLAG_COUNT_PAD) != 0;
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = k->attr->ints[i];
        p.stride[i] = k->attr->ints[2 + i];
        p.pad[i] = k->attr->ints[4 + i];
        p.dilation[i] = k->op == WF_OP_MAX_POOL2D ? k->attr->ints[6 + i] : 1;
        if (k->op != WF_OP_MAX_POOL2D && k->attr->flags & WF_FLAG_ADAPTIVE) {
            p.windows[i] = p.kernel[i];
            p.kernel[i] = plane->dims[2 + i];
        }
    }
    return p;
}

/* Where tap i of window o along an axis of n elements lies; -1: nowhere. */
static int64_t adaptive_tap(int64_t o, int64_t i, int64_t n, int64_t m)
{
    int64_t begin = o * n / m, end = ((o + 1) * n + m - 1) / m;
    return begin + i < end ? begin + i : -1;
}

/* Is tap (i, j) of output (oh, ow) inside the plane? Its place. */
static bool tap(const window *p, int64_t oh, int64_t ow, int64_t i, int64_t j, int64_t *at)
{
    int64_t h = oh * p->stride[0] - p->pad[0] + i * p->dilation[0];
    int64_t w = ow * p->stride[1] - p->pad[1] + j * p->dilation[1];
    if (p->windows[0]) {
        h = adaptive_tap(oh, i, p->h, p->windows[0]);
        w = adaptive_tap(ow, j, p->w, p->windows[1]);
    }
    *at = h * p->w + w;
    return h >= 0 && h < p->h && w >= 0 && w < p->w;
}

/* Elements of the window: inside the plane, or inside the padded plane. */
static int64_t window_count(const window *p, int64_t oh, int64_t ow)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->kernel[0]; i++) {
        for (int64_t j = 0; j < p->kernel[1]; j++) {
            int64_t at, h = oh * p->stride[0] + i, w = ow * p->stride[1] + j;
            bool padded = h < p->h + 2 * p->pad[0] && w < p->w + 2 * p->pad[1];
            n += p->count_pad ? padded : tap(p, oh, ow, i, j, &at);
        }
    }
    return n;
}

static void max_window(wf_in_call *k, const window *p, int64_t out, int64_t plane, int64_t oh,
                       int64_t ow)
{
    int c = wf_in_compute(k->src[0].type.dtype);
    int64_t best = -1, at;
    for (int64_t i = 0; i < p->kernel[0]; i++) {
        for (int64_t j = 0; j < p->kernel[1]; j++) {
            if (tap(p, oh, ow, i, j, &at) &&
                (best < 0 || before(k->m, c, wf_in_load(k->m, &k->src[0], plane + at, c),
                                    wf_in_load(k->m, &k->src[0], plane + best, c), true))) {
                best = at;
            }
        }
    }
    wf_in_put(&k->dst[0], out, wf_in_get(&k->src[0], plane + (best < 0 ? 0 : best)));
    wf_in_put(&k->dst[1], out, (uint64_t)best);
}

static void mean_window(wf_in_call *k, const window *p, int64_t out, int64_t plane, int64_t oh,
                        int64_t ow)
{
    int c = wf_in_compute(k->src[0].type.dtype);
    uint64_t sum = wf_in_num(c, 0);
    int64_t at;
    for (int64_t i = 0; i < p->kernel[0]; i++) {
        for (int64_t j = 0; j < p->kernel[1]; j++) {
            if (tap(p, oh, ow, i, j, &at)) {
                uint64_t v = wf_in_load(k->m, &k->src[0], plane + at, c);
                sum = wf_in_row(k->m, WF_OP_ADD, c, sum, v, 0);
            }
        }
    }
    uint64_t n = wf_in_num(c, (double)window_count(p, oh, ow));
    wf_in_store(k->m, &k->dst[0], out, c, wf_in_row(k->m, WF_OP_DIV, c, sum, n, 0));
}

/* Every input element adds what its windows give, in row-major order of the windows. */
static void mean_backward(wf_in_call *k)
{
    const wf_type *g = &k->src[0].type, *x = &k->dst[0].type;
    window p = window_of(k, x);
    int c = wf_in_compute(g->dtype);
    int64_t oh = g->dims[2], ow = g->dims[3], at;
    for (int64_t e = 0; e < numel(&k->dst[0]); e++) {
        uint64_t sum = wf_in_num(c, 0);
        int64_t plane = e / (p.h * p.w);
        for (int64_t o = 0; o < oh * ow; o++) {
            for (int64_t t = 0; t < p.kernel[0] * p.kernel[1]; t++) {
                if (tap(&p, o / ow, o % ow, t / p.kernel[1], t % p.kernel[1], &at) &&
                    at == e % (p.h * p.w)) {
                    uint64_t v = wf_in_load(k->m, &k->src[0], plane * oh * ow + o, c);
                    uint64_t n = wf_in_num(c, (double)window_count(&p, o / ow, o % ow));
                    v = wf_in_row(k->m, WF_OP_DIV, c, v, n, 0);
                    sum = wf_in_row(k->m, WF_OP_ADD, c, sum, v, 0);
                }
            }
        }
        wf_in_store(k->m, &k->dst[0], e, c, sum);
    }
}

int wf_in_pool(wf_in_call *k)
{
    if (k->op == WF_OP_AVG_POOL2D_BWD) {
        mean_backward(k);
        return 0;
    }
    const wf_type *y = &k->dst[0].type;
    window p = window_of(k, &k->src[0].type);
    for (int64_t o = 0; o < numel(&k->dst[0]); o++) {
        int64_t ow = o % y->dims[3], oh = o / y->dims[3] % y->dims[2];
        int64_t plane = o / (y->dims[2] * y->dims[3]) * p.h * p.w;
        if (k->op == WF_OP_MAX_POOL2D) {
            max_window(k, &p, o, plane, oh, ow);
        } else {
            mean_window(k, &p, o, plane, oh, ow);
        }
    }
    return 0;
}

/* -- creation ----------------------------------------------------------------------------------------------------- */

static double range_value(const wf_in_call *k, int64_t i, int64_t n)
{
    const double *f = k->attr->flt;
    if (k->op == WF_OP_ARANGE) {
        return f[0] + (double)i * f[1];
    }
    double step = n > 1 ? (f[1] - f[0]) / (double)(n - 1) : 0;
    double stop = n == 1 ? f[0] : f[1];
    return i < n - i ? f[0] + (double)i * step : stop - (double)(n - 1 - i) * step;
}

int wf_in_create(wf_in_call *k)
{
    const wf_attr *a = k->attr;
    const wf_type *t = &k->dst[0].type;
    int64_t n = numel(&k->dst[0]);
    bool whole = k->op == WF_OP_ARANGE ? a->n_dyn == 3 : k->op == WF_OP_FULL && a->n_flt == 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t v = 0;
        if (whole) {
            v = k->op == WF_OP_FULL ? (uint64_t)a->dyn[a->n_dyn - 1]
                                    : (uint64_t)a->dyn[1] + (uint64_t)i * (uint64_t)a->dyn[2];
        } else {
            double d = k->op == WF_OP_FULL  ? a->flt[0]
                       : k->op == WF_OP_EYE ? (i % t->dims[1] - i / t->dims[1] == a->dyn[2])
                                            : range_value(k, i, n);
            v = wf_in_num(WEFT_F64, d);
        }
        wf_in_store(k->m, &k->dst[0], i, whole ? WEFT_I64 : WEFT_F64, v);
    }
    return 0;
}
