/*
 * jit/passes/space.c -- members and operands of groups in the group's space; see space.h.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/exec.h"
#include "jit/passes/cost.h"
#include "jit/passes/space.h"

bool wf_is_draw(const wf_layout *l, uint32_t k)
{
    int op = l->f->ins[k].op;
    return l->draws &&
           (op == WF_OP_RAND || op == WF_OP_RANDN || op == WF_OP_RANDINT || op == WF_OP_BERNOULLI);
}

/* Does k copy what lies in another order? Tiles of a group would pick its elements one by one, as far apart as rows are; the kernel
 * of the copy goes over both in blocks. (Zen 5, 25 MB of images from one order to the other: 5.2 ms in a group, 1.3 alone.) */
static bool is_turn(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    const wf_map_of *m = &l->map[i->op == WF_OP_COPY ? i->src[0] : 0];
    const int64_t *dims = wf_map_dims(l, m), *strides = wf_map_strides(l, m);
    int last = m->rank - 1;
    while (last > 0 && dims[last] == 1) {
        last--;
    }
    return !l->device && i->op == WF_OP_COPY && m->rank > 1 && strides[last] > 1;
}

bool wf_is_mappable(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    if (wf_is_draw(l, k)) {
        return true;
    }
    if (wf_op_is_elementwise((wf_op)i->op) || i->op == WF_OP_CAST || i->op == WF_OP_COPY ||
        i->op == WF_OP_VJP) {
        return !is_turn(l, k);
    }
    return i->op == WF_OP_RESHAPE && l->map[k + 1].root == k + 1; /* one that copies */
}

bool wf_is_euclidean(const wf_attr *a)
{
    return a->n_flt == 0 || a->flt[0] == 2;
}

/* Rows that plan_rows.c can spell out. */
bool wf_is_composite(const wf_layout *l, uint32_t k)
{
    const wf_op op = (wf_op)l->f->ins[k].op;
    static const uint8_t yes[WF_OP_COUNT] = {
        [WF_OP_SUM] = 1,           [WF_OP_PROD] = 1,
        [WF_OP_AMAX] = 1,          [WF_OP_AMIN] = 1,
        [WF_OP_MEAN] = 1,          [WF_OP_VAR] = 1,
        [WF_OP_STD] = 1,           [WF_OP_LOGSUMEXP] = 1,
        [WF_OP_ANY] = 1,           [WF_OP_ALL] = 1,
        [WF_OP_COUNT_NONZERO] = 1, [WF_OP_NORM] = 1,
        [WF_OP_SOFTMAX] = 1,       [WF_OP_SOFTMAX_BWD] = 1,
        [WF_OP_LOG_SOFTMAX] = 1,   [WF_OP_LOG_SOFTMAX_BWD] = 1,
        [WF_OP_LAYER_NORM] = 1,    [WF_OP_RMS_NORM] = 1,
        [WF_OP_CROSS_ENTROPY] = 1, [WF_OP_CROSS_ENTROPY_BWD] = 1,
    };
    return yes[op] && (op != WF_OP_NORM || wf_is_euclidean(wf_ins_attr(l->f, &l->f->ins[k])));
}

uint32_t wf_open_axes(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    const wf_attr *a = wf_ins_attr(l->f, i);
    int rank = wf_space_of(l, k)->rank;
    uint32_t all = rank ? (1u << rank) - 1 : 0, axes = 0;
    if (i->op == WF_OP_LAYER_NORM || i->op == WF_OP_RMS_NORM) {
        int trailing = (int)a->ints[0];
        return all & ~((1u << (rank - trailing)) - 1);
    }
    for (int n = 0; n < a->n_ints; n++) {
        axes |= 1u << a->ints[n];
    }
    bool one = wf_rows[i->op].kind != WF_KIND_REDUCE;
    return a->n_ints ? axes : one ? all & ~(all >> 1) : all;
}

bool wf_is_openable(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    if (!wf_is_composite(l, k)) {
        return false;
    }
    wf_val x = wf_ins_src(l->f, i)[0], target = wf_targets_of(l, k);
    return l->map[x].root && wf_map_count(l, wf_space_of(l, k)) > 0 && wf_open_axes(l, k) != 0 &&
           (!target || (l->map[target].root && !wf_fill_of(l, target)));
}

wf_val wf_targets_of(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    const wf_val *src = wf_ins_src(l->f, i);
    return i->op == WF_OP_CROSS_ENTROPY ? src[1] : i->op == WF_OP_CROSS_ENTROPY_BWD ? src[2] : 0;
}

bool wf_reads_rows(const wf_layout *l, uint32_t k, wf_val u)
{
    const wf_ins *i = &l->f->ins[k];
    const wf_val *src = wf_ins_src(l->f, i);
    return (i->op == WF_OP_CROSS_ENTROPY && u == src[1]) ||
           (i->op == WF_OP_CROSS_ENTROPY_BWD && u != src[1]);
}

wf_val wf_fill_of(const wf_layout *l, wf_val v)
{
    wf_val root = l->map[v].root;
    bool fill =
        root && (wf_fn_at(l->f, root)->op == WF_OP_FULL || (l->uniform && l->uniform[root]));
    return fill ? root : 0;
}

/* Instructions that make k's value out of scalars alone, or 0. */
static int uniform_cost(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    const wf_val *src = wf_ins_src(l->f, i);
    int cost = wf_is_mappable(l, k) && !wf_is_draw(l, k) && l->map[k + 1].root == k + 1;
    for (int a = 0; a < i->nsrc && cost; a++) {
        wf_val root = src[a] ? l->map[src[a]].root : 0;
        bool scalar = !root || wf_fn_at(l->f, root)->op == WF_OP_FULL;
        cost = scalar ? cost : l->uniform[root] ? cost + l->uniform[root] : 0;
    }
    return cost <= WF_UNIFORM_MOST ? cost : 0;
}

int wf_find_uniform(wf_layout *l)
{
    l->uniform = calloc(l->f->n + 1u, 1);
    for (uint32_t k = 0; l->uniform && k < l->f->n; k++) {
        l->uniform[k + 1] = (uint8_t)uniform_cost(l, k);
    }
    return l->uniform ? 0 : WEFT_ENOMEM;
}

wf_val wf_maker_of(const wf_layout *l, wf_val v)
{
    wf_val root = l->map[v].root;
    if (!root) {
        return 0;
    }
    const wf_ins *i = wf_fn_at(l->f, root);
    return i->op == WF_OP_RESULT ? i->src[0] : wf_rows[i->op].kind == WF_KIND_LEAF ? 0 : root;
}

const wf_map_of *wf_space_of(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    bool operand = i->op == WF_OP_RESHAPE || i->op == WF_OP_CROSS_ENTROPY ||
                   wf_rows[i->op].kind == WF_KIND_REDUCE;
    return &l->map[operand ? i->src[0] : k + 1];
}

int64_t wf_map_count(const wf_layout *l, const wf_map_of *m)
{
    const int64_t *d = wf_map_dims(l, m);
    int64_t n = 1;
    for (int i = 0; i < m->rank; i++) {
        n *= d[i];
    }
    return n;
}

void wf_iter_reshape(const wf_layout *l, const wf_map_of *m, wf_iter *s)
{
    s->rank = m->rank;
    s->axes = 0;
    s->count = s->kept = wf_map_count(l, m);
    memcpy(s->dims, wf_map_dims(l, m), m->rank * sizeof *s->dims);
}

void wf_iter_of(const wf_layout *l, uint32_t k, wf_iter *s)
{
    wf_iter_reshape(l, wf_space_of(l, k), s);
    s->axes = wf_is_openable(l, k) ? wf_open_axes(l, k) : 0;
    for (int i = 0; s->axes && i < s->rank; i++) {
        s->kept /= s->axes >> i & 1 ? s->dims[i] : 1;
    }
}

bool wf_same_dims(const wf_iter *a, const wf_iter *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

bool wf_same_axes(const wf_iter *a, const wf_iter *b)
{
    return (wf_same_dims(a, b) && a->axes == b->axes) ||
           (a->count == b->count && a->kept == b->kept && wf_is_trailing(a) && wf_is_trailing(b));
}

int wf_level_at(const wf_layout *l, uint32_t k, const wf_iter *s)
{
    int64_t n = wf_map_count(l, wf_space_of(l, k));
    bool draw = wf_is_draw(l, k); /* its elements are numbered as those of the space */
    if (n == s->count) {
        return draw && !wf_is_trailing(s) ? WF_AT_NONE : WF_AT_ELEM;
    }
    return s->axes && n == s->kept && wf_is_mappable(l, k) && !draw ? WF_AT_ROW : WF_AT_NONE;
}

bool wf_is_long(const wf_iter *s)
{
    enum { LONG = 1 << 17 }; /* elements; groups keep 512 KiB of a row (eager/program_rows.c) */
    return s->axes && s->count / s->kept > LONG;
}

bool wf_is_trailing(const wf_iter *s)
{
    uint32_t all = (1u << s->rank) - 1, kept = all & ~s->axes;
    return (kept & (kept + 1)) == 0;
}

int wf_level_of_result(const wf_layout *l, uint32_t k, int r, int level)
{
    const wf_ins *i = &l->f->ins[k];
    bool row = wf_rows[i->op].kind == WF_KIND_REDUCE || i->op == WF_OP_CROSS_ENTROPY;
    return r > 0 || row ? WF_AT_ROW : level;
}

bool wf_reads_whole(const wf_layout *l, uint32_t k, wf_val u)
{
    const wf_map_of *m = &l->map[u];
    return wf_map_count(l, m) == wf_map_count(l, wf_space_of(l, k)) && wf_map_is_whole(l, m);
}

/* m with the extents k runs over. */
static int over_operand(wf_layout *l, uint32_t k, const wf_map_of *m, wf_map_of *out)
{
    int64_t d[WF_MAX_RANK];
    const wf_map_of *space = wf_space_of(l, k);
    int rank = space->rank;
    memcpy(d, wf_map_dims(l, space), (size_t)rank * sizeof *d);
    return wf_map_expand(l, m, rank, d, out);
}

/* The kept extents alone; their number. */
static int kept_dims(const wf_iter *s, int64_t *d)
{
    int n = 0;
    for (int i = 0; i < s->rank; i++) {
        if (!(s->axes >> i & 1)) {
            d[n++] = s->dims[i];
        }
    }
    return n;
}

/* m, which has the elements of one level, over the extents of the space. */
static int into_space(wf_layout *l, const wf_iter *s, const wf_map_of *m, int level, wf_map_of *out)
{
    int64_t d[WF_MAX_RANK];
    wf_map_of t;
    if (level != WF_AT_ROW) {
        return wf_map_reshape(l, m, s->rank, s->dims, out);
    }
    int rank = kept_dims(s, d), rc = wf_map_reshape(l, m, rank, d, &t);
    return rc ? rc : wf_map_lift(l, &t, s->rank, s->dims, s->axes, out);
}

/* Strides of a row's value spread along the reduced axes. */
static bool is_spread(const wf_layout *l, const wf_iter *s, const wf_map_of *m)
{
    const int64_t *stride = wf_map_strides(l, m);
    int64_t step = 1;
    for (int i = s->rank; i-- > 0;) {
        int64_t want = s->axes >> i & 1 ? 0 : step;
        if (s->dims[i] != 1 && stride[i] != want) {
            return false;
        }
        step *= s->axes >> i & 1 ? 1 : s->dims[i];
    }
    return m->offset == 0 && m->nterms == 0;
}

bool wf_reads_inside(wf_layout *l, const wf_iter *s, uint32_t k, wf_val u, int made)
{
    int level = wf_level_at(l, k, s);
    wf_map_of wide, m;
    if (wf_reads_rows(l, k, u)) { /* targets are checked before the group runs: from memory */
        return made == WF_AT_ROW && s->axes && u != wf_targets_of(l, k) &&
               into_space(l, s, &l->map[u], WF_AT_ROW, &m) == 0 && is_spread(l, s, &m);
    }
    if (made == WF_AT_ROW && level == WF_AT_ELEM) {
        return s->axes && over_operand(l, k, &l->map[u], &wide) == 0 &&
               wf_map_reshape(l, &wide, s->rank, s->dims, &m) == 0 && is_spread(l, s, &m);
    }
    return made == level && wf_reads_whole(l, k, u);
}

int wf_read_map(wf_layout *l, const wf_iter *s, uint32_t k, wf_val u, wf_map_of *out, bool *row)
{
    wf_map_of wide = l->map[u];
    bool rows = wf_reads_rows(l, k, u);
    int level = rows ? WF_AT_ROW : wf_level_at(l, k, s);
    int rc = rows ? 0 : over_operand(l, k, &l->map[u], &wide);
    rc = rc ? rc : into_space(l, s, &wide, level, out);
    *row = s->axes != 0;
    for (int i = 0; !rc && i < s->rank; i++) {
        *row &= !(s->axes >> i & 1) || s->dims[i] == 1 || wf_map_strides(l, out)[i] == 0;
    }
    return rc;
}

int wf_write_map(wf_layout *l, const wf_iter *s, const wf_map_of *m, int level, wf_map_of *out)
{
    const wf_map_of copy = *m;
    return into_space(l, s, &copy, level, out);
}

bool wf_is_stream(const wf_layout *l, const wf_iter *s, const wf_map_of *m)
{
    return 2 * wf_cost_bytes(m->dtype, m->rank, l->words + m->shape) /
               (int64_t)wf_dtype_size(m->dtype) >=
           s->count;
}
