/*
 * jit/ir/interp_move.c -- movement, indexing, sorting, pooling and creation rows of the reference
 * interpreter: each an obvious loop over elements.
 *
 * Additions into shared places happen in row-major order of what is added, in the compute type, with
 * one rounding at the end.
 */
#include "jit/ir/interp_int.h"

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

void wf_in_concat(wf_in_call *k)
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

static int64_t unpadded(wf_in_call *k, int64_t *index)
{
    const wf_type *x = &k->src[0].type;
    bool inside = true;
    for (int a = 0; a < x->rank; a++) {
        index[a] -= k->attr->dyn[2 * a];
        inside &= index[a] >= 0 && index[a] < x->dims[a];
    }
    return inside ? flat_of(x, index) : -1;
}

/* Which element of an axis of n stands at `at`, counted from the first that is not padding. */
static int64_t reflected(const wf_in_call *k, int64_t at, int64_t n)
{
    return at < 0 || at >= n ? wf_padded_from(k->attr->ints[0], at, n) : at;
}

static int64_t from_mode(wf_in_call *k, int64_t *index)
{
    const wf_type *x = &k->src[0].type;
    for (int a = 0; a < x->rank; a++) {
        index[a] = reflected(k, index[a] - k->attr->dyn[2 * a], x->dims[a]);
    }
    return flat_of(x, index);
}

static int64_t unrolled(wf_in_call *k, int64_t *index)
{
    const wf_type *x = &k->src[0].type;
    for (int s = 0; s < k->attr->n_ints; s++) {
        const int64_t a = k->attr->ints[s], n = x->dims[a];
        index[a] = ((index[a] - k->attr->dyn[s] % n) % n + n) % n;
    }
    return flat_of(x, index);
}

static int64_t in_triangle(wf_in_call *k, int64_t *index)
{
    const wf_type *x = &k->src[0].type;
    const __int128 off = (__int128)index[x->rank - 1] - index[x->rank - 2];
    const bool keep = k->op == WF_OP_TRIL ? off <= k->attr->dyn[0] : off >= k->attr->dyn[0];
    return keep ? flat_of(x, index) : -1;
}

/* slice_grad: src[0] into a slice of zeros; update: src[1] into a view of src[0]. Of two writes to one place the last stays. */
void wf_in_write(wf_in_call *k)
{
    const bool update = k->op == WF_OP_UPDATE;
    const wf_array *values = &k->src[update ? 1 : 0];
    const wf_type *t = &values->type;
    wf_array *y = &k->dst[0];
    const int64_t *dyn = k->attr->dyn;
    int64_t index[WF_MAX_RANK];
    for (int64_t i = 0; i < numel(y); i++) {
        wf_in_put(y, i, update ? wf_in_get(&k->src[0], i) : 0);
    }
    for (int64_t i = 0; i < numel(values); i++) {
        int64_t at;
        if (update) {
            at = dyn[2 * t->rank] + wf_in_offset(i, t->rank, t->dims, dyn + t->rank);
        } else {
            index_of(t, i, index);
            index[k->attr->ints[0]] = dyn[0] + index[k->attr->ints[0]] * dyn[2];
            at = flat_of(&y->type, index);
        }
        wf_in_put(y, at, wf_in_get(values, i));
    }
}

/* -- addition into places ---------------------------------------------------------------------------------- */

/* Elements of floats are added in the compute type, others in their own. */
static int type_of_sums(const wf_in_call *k)
{
    const int dtype = k->dst[0].type.dtype;
    return wf_dtype_kind(dtype) == 2 ? wf_dtype_compute(dtype) : dtype;
}

/* Line 0 [at] += element i of `from`. */
static void add_at(wf_in_call *k, int64_t at, const wf_array *from, int64_t i)
{
    const int c = type_of_sums(k);
    uint64_t *sum = &k->line[0][at];
    *sum = wf_in_row(k->m, WF_OP_ADD, c, *sum, wf_in_load(k->m, from, i, c), 0);
}

static void store_sums(wf_in_call *k)
{
    for (int64_t i = 0; i < numel(&k->dst[0]); i++) {
        wf_in_store(k->m, &k->dst[0], i, type_of_sums(k), k->line[0][i]);
    }
}

/* Along each axis what comes from the middle is added first, then what was before it, then what was behind. */
void wf_in_pad_mode_bwd(wf_in_call *k)
{
    const wf_array *g = &k->src[0];
    const wf_type *x = &k->dst[0].type;
    int64_t from[WF_MAX_RANK], to[WF_MAX_RANK];
    uint64_t *some = k->line[1]; /* has a place its first? That is not added to 0 */
    for (int64_t i = 0; i < numel(g); i++) {
        index_of(&g->type, i, from);
        for (int d = 0; d < x->rank; d++) {
            const int64_t j = from[d], n = x->dims[d], before = k->attr->dyn[2 * d];
            from[d] = j < n ? before + j : j < n + before ? j - n : j;
            to[d] = reflected(k, from[d] - before, n);
        }
        const int64_t at = flat_of(x, to), e = flat_of(&g->type, from);
        if (some[at]) {
            add_at(k, at, g, e);
        }
        k->line[0][at] = some[at] ? k->line[0][at] : wf_in_load(k->m, g, e, type_of_sums(k));
        some[at] = 1;
    }
    store_sums(k);
}

void wf_in_strided_grad(wf_in_call *k)
{
    const wf_array *g = &k->src[0];
    const int64_t *strides = k->attr->dyn + k->dst[0].type.rank;
    for (int64_t i = 0; i < numel(g); i++) {
        const int64_t at = wf_in_offset(i, g->type.rank, g->type.dims, strides);
        add_at(k, strides[g->type.rank] + at, g, i);
    }
    store_sums(k);
}

/* -- indexing ---------------------------------------------------------------------------------------------- */

/* Index i of the index operand, counted from the front. */
static int64_t index_at(wf_in_call *k, const wf_array *idx, int64_t i, int64_t extent)
{
    int64_t at = (int64_t)wf_in_load(k->m, idx, i, WEFT_I64);
    return at < 0 ? at + extent : at;
}

/* All indices are in range, whether anything is read through them or not; else false, with why. */
static bool in_range(wf_in_call *k, const wf_array *idx, int64_t extent)
{
    for (int64_t i = 0; i < numel(idx) && !k->rc; i++) {
        const int64_t at = (int64_t)wf_in_load(k->m, idx, i, WEFT_I64);
        if (at < -extent || at >= extent) {
            k->rc = wf_fail(k->m->why, WEFT_EINDEX, "index %lld is outside an axis of %lld",
                            (long long)at, (long long)extent);
        }
    }
    return !k->rc;
}

/* take_along, scatter_add: position in src[0] of an index of the indices. */
static int64_t along(wf_in_call *k, int64_t *index)
{
    const wf_type *wide = &k->src[0].type;
    const wf_array *idx = &k->src[1];
    const int64_t axis = k->attr->ints[0];
    index[axis] = index_at(k, idx, flat_of(&idx->type, index), wide->dims[axis]);
    return flat_of(wide, index);
}

/* index_select, index_add: position in src[0] of an index that has the axes of the indices in place of the axis. */
static int64_t selected(wf_in_call *k, int64_t *index)
{
    const wf_type *wide = &k->src[0].type;
    const wf_array *idx = &k->src[1];
    const int axis = (int)k->attr->ints[0], more = idx->type.rank;
    const int64_t at = index_at(k, idx, flat_of(&idx->type, index + axis), wide->dims[axis]);
    int64_t w[WF_MAX_RANK];
    for (int a = 0; a < wide->rank; a++) {
        w[a] = a < axis ? index[a] : a > axis ? index[a + more - 1] : at;
    }
    return flat_of(wide, w);
}

/* Each element of the result is the one of the operand that a map says of its index; of -1 it is a constant. */
void wf_in_gather(wf_in_call *k)
{
    const wf_op op = k->op;
    const bool looks_up = op == WF_OP_TAKE_ALONG || op == WF_OP_INDEX_SELECT;
    int64_t (*from)(wf_in_call *, int64_t *) = op == WF_OP_PAD            ? unpadded
                                               : op == WF_OP_PAD_MODE     ? from_mode
                                               : op == WF_OP_ROLL         ? unrolled
                                               : op == WF_OP_TAKE_ALONG   ? along
                                               : op == WF_OP_INDEX_SELECT ? selected
                                                                          : in_triangle;
    wf_array *y = &k->dst[0];
    const uint64_t otherwise =
        op == WF_OP_PAD ? wf_in_num(k->m, y->type.dtype, k->attr->flt[0]) : 0;
    int64_t index[WF_MAX_RANK];
    if (looks_up && !in_range(k, &k->src[1], k->src[0].type.dims[k->attr->ints[0]])) {
        return;
    }
    for (int64_t i = 0; i < numel(y); i++) {
        index_of(&y->type, i, index);
        const int64_t at = from(k, index);
        wf_in_put(y, i, at < 0 ? otherwise : wf_in_get(&k->src[0], at));
    }
}

void wf_in_add_rows(wf_in_call *k)
{
    const wf_array *base = &k->src[0], *values = &k->src[2];
    int64_t index[WF_MAX_RANK];
    if (!in_range(k, &k->src[1], base->type.dims[k->attr->ints[0]])) {
        return;
    }
    for (int64_t i = 0; i < numel(base); i++) {
        k->line[0][i] = wf_in_load(k->m, base, i, type_of_sums(k));
    }
    for (int64_t i = 0; i < numel(values); i++) {
        index_of(&values->type, i, index);
        add_at(k, k->op == WF_OP_SCATTER_ADD ? along(k, index) : selected(k, index), values, i);
    }
    store_sums(k);
}

void wf_in_one_hot(wf_in_call *k)
{
    wf_array *y = &k->dst[0];
    const int64_t classes = k->attr->dyn[0];
    const uint64_t one = wf_in_num(k->m, y->type.dtype, 1);
    const int64_t n = in_range(k, &k->src[0], classes) ? numel(y) : 0;
    for (int64_t i = 0; i < n; i++) {
        bool hot = index_at(k, &k->src[0], i / classes, classes) == i % classes;
        wf_in_put(y, i, hot ? one : 0);
    }
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
static void sort_line(wf_interp *m, int c, const uint64_t *x, uint64_t *at, int64_t n, bool down)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t j = i;
        for (; j > 0 && before(m, c, x[i], x[at[j - 1]], down); j--) {
            at[j] = at[j - 1];
        }
        at[j] = (uint64_t)i;
    }
}

void wf_in_sort(wf_in_call *k)
{
    const wf_array *x = &k->src[0];
    int axis = (int)k->attr->ints[0], c = wf_in_compute(x->type.dtype);
    bool down = !(k->attr->flags & WF_FLAG_DESCENDING) == (k->op == WF_OP_TOPK);
    int64_t n = x->type.dims[axis], index[WF_MAX_RANK];
    uint64_t *line = k->line[0], *at = k->line[1];
    for (int64_t i = 0; i < numel(&k->dst[0]); i++) {
        index_of(&k->dst[0].type, i, index);
        int64_t rank = index[axis];
        for (index[axis] = 0; index[axis] < n; index[axis]++) {
            line[index[axis]] = wf_in_load(k->m, x, flat_of(&x->type, index), c);
        }
        sort_line(k->m, c, line, at, n, down);
        index[axis] = (int64_t)at[rank];
        wf_in_put(&k->dst[0], i, wf_in_get(x, flat_of(&x->type, index)));
        wf_in_put(&k->dst[1], i, at[rank]);
    }
}

/* -- pooling --------------------------------------------------------------------------------------------------- */

typedef struct pool {
    int64_t plane[2], windows[2]; /* height and width of a plane, and of windows */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t taps; /* of a window */
    bool count_pad, adaptive;
} pool;

/* The attributes of k; x: [.., height, width], y: its windows. */
static pool pool_of(const wf_in_call *k, const wf_type *x, const wf_type *y)
{
    const bool largest = k->op == WF_OP_MAX_POOL2D;
    pool p = {.count_pad = (k->attr->flags & WF_FLAG_COUNT_PAD) != 0,
              .adaptive = !largest && (k->attr->flags & WF_FLAG_ADAPTIVE) != 0};
    for (int i = 0; i < 2; i++) {
        p.plane[i] = x->dims[2 + i];
        p.windows[i] = y->dims[2 + i];
        p.kernel[i] = p.adaptive ? p.plane[i] : k->attr->ints[i];
        p.stride[i] = k->attr->ints[2 + i];
        p.pad[i] = k->attr->ints[4 + i];
        p.dilation[i] = largest ? k->attr->ints[6 + i] : 1;
    }
    p.taps = p.kernel[0] * p.kernel[1];
    return p;
}

/* Where tap t of window o lies along an axis; -1: in no place. Of m adaptive windows it is one of [o n / m, (o + 1) n / m). */
static int64_t along_axis(const pool *p, int axis, int64_t o, int64_t t)
{
    const int64_t n = p->plane[axis], m = p->windows[axis];
    if (p->adaptive) {
        const int64_t begin = o * n / m, end = ((o + 1) * n + m - 1) / m;
        return begin + t < end ? begin + t : -1;
    }
    return o * p->stride[axis] - p->pad[axis] + t * p->dilation[axis];
}

enum { BEYOND, PADDING, INSIDE };
/* Where tap t of window o of a plane lies, *at: its place if it is inside. */
static int tap(const pool *p, int64_t o, int64_t t, int64_t *at)
{
    const int64_t h = along_axis(p, 0, o / p->windows[1], t / p->kernel[1]);
    const int64_t w = along_axis(p, 1, o % p->windows[1], t % p->kernel[1]);
    *at = h * p->plane[1] + w;
    return h >= 0 && h < p->plane[0] && w >= 0 && w < p->plane[1]       ? INSIDE
           : h < p->plane[0] + p->pad[0] && w < p->plane[1] + p->pad[1] ? PADDING
                                                                        : BEYOND;
}

/* Elements of the window: inside the plane, or inside the padded plane. */
static uint64_t window_count(wf_interp *m, const pool *p, int c, int64_t o)
{
    int64_t n = 0, at;
    for (int64_t t = 0; t < p->taps; t++) {
        n += tap(p, o, t, &at) >= (p->count_pad ? PADDING : INSIDE);
    }
    return wf_in_num(m, c, (double)n);
}

/* The largest element of each window, with its place; or the mean. */
void wf_in_pool(wf_in_call *k)
{
    const wf_array *x = &k->src[0];
    const bool largest = k->op == WF_OP_MAX_POOL2D;
    const int c = wf_in_compute(x->type.dtype);
    const pool p = pool_of(k, &x->type, &k->dst[0].type);
    const int64_t windows = p.windows[0] * p.windows[1];
    for (int64_t o = 0; o < numel(&k->dst[0]); o++) {
        const int64_t plane = o / windows * p.plane[0] * p.plane[1];
        uint64_t best = 0, sum = wf_in_num(k->m, c, 0);
        int64_t top = -1, at;
        for (int64_t t = 0; t < p.taps; t++) {
            if (tap(&p, o % windows, t, &at) == INSIDE) {
                const uint64_t v = wf_in_load(k->m, x, plane + at, c);
                const bool more = largest && (top < 0 || before(k->m, c, v, best, true));
                best = more ? v : best;
                top = more ? at : top;
                sum = largest ? sum : wf_in_row(k->m, WF_OP_ADD, c, sum, v, 0);
            }
        }
        if (largest) {
            wf_in_put(&k->dst[0], o, wf_in_get(x, plane + (top < 0 ? 0 : top)));
            wf_in_put(&k->dst[1], o, (uint64_t)top);
        } else {
            sum = wf_in_row(k->m, WF_OP_DIV, c, sum, window_count(k->m, &p, c, o % windows), 0);
            wf_in_store(k->m, &k->dst[0], o, c, sum);
        }
    }
}

/* Every input element adds what its windows give, in row-major order of the windows. */
void wf_in_avg_pool_bwd(wf_in_call *k)
{
    const wf_array *g = &k->src[0];
    const int c = wf_in_compute(g->type.dtype);
    const pool p = pool_of(k, &k->dst[0].type, &g->type);
    const int64_t windows = p.windows[0] * p.windows[1], pixels = p.plane[0] * p.plane[1];
    for (int64_t e = 0; e < numel(&k->dst[0]); e++) {
        uint64_t sum = wf_in_num(k->m, c, 0);
        int64_t at;
        for (int64_t o = 0; o < windows; o++) {
            for (int64_t t = 0; t < p.taps; t++) {
                if (tap(&p, o, t, &at) == INSIDE && at == e % pixels) {
                    uint64_t v = wf_in_load(k->m, g, e / pixels * windows + o, c);
                    v = wf_in_row(k->m, WF_OP_DIV, c, v, window_count(k->m, &p, c, o), 0);
                    sum = wf_in_row(k->m, WF_OP_ADD, c, sum, v, 0);
                }
            }
        }
        wf_in_store(k->m, &k->dst[0], e, c, sum);
    }
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

void wf_in_create(wf_in_call *k)
{
    const wf_attr *a = k->attr;
    wf_array *y = &k->dst[0];
    const int64_t n = numel(y), *dims = y->type.dims;
    const bool whole = k->op == WF_OP_ARANGE ? a->n_dyn == 3 : k->op == WF_OP_FULL && a->n_flt == 0;
    for (int64_t i = 0; i < n; i++) {
        if (whole) {
            uint64_t v = k->op == WF_OP_FULL
                             ? (uint64_t)a->dyn[a->n_dyn - 1]
                             : (uint64_t)a->dyn[1] + (uint64_t)i * (uint64_t)a->dyn[2];
            wf_in_store(k->m, y, i, WEFT_I64, v);
        } else {
            double d = k->op == WF_OP_FULL  ? a->flt[0]
                       : k->op == WF_OP_EYE ? (i % dims[1] - i / dims[1] == a->dyn[2])
                                            : range_value(k, i, n);
            wf_in_put(y, i, wf_in_num(k->m, y->type.dtype, d));
        }
    }
}
