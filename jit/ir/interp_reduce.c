/*
 * jit/ir/interp_reduce.c -- reductions, softmax, norms and losses of the reference interpreter, spelled
 * out as docs/reductions.md has them.
 *
 * A line is the elements over the reduced axes in row-major order, in the compute type.
 */
#include <math.h>

#include "jit/ir/interp_int.h"

/* Rows on scalars of the compute type: m and c are in scope. */
#define R1(op, a) wf_in_row(m, WF_OP_##op, c, a, 0, 0)
#define R2(op, a, b) wf_in_row(m, WF_OP_##op, c, a, b, 0)
#define NUM(v) wf_in_num(m, c, v)

typedef struct line {
    uint64_t *v;
    int64_t n;
} line;

static uint64_t line_at(void *ctx, int64_t i)
{
    return ((const uint64_t *)ctx)[i];
}

static uint64_t sum(int c, const line *x)
{
    wf_kty type = c == WEFT_F32 ? WF_KT_F32 : c == WEFT_F64 ? WF_KT_F64 : WF_KT_I64;
    return wf_kir_sum(type, x->n, line_at, x->v);
}

/* The canonical tree with products: element i of a level covers 4096 of the level below. x is overwritten. */
static uint64_t product(wf_interp *m, int c, uint64_t *x, int64_t n)
{
    enum { LANES = 64, BLOCK = 4096 };
    uint64_t lane[LANES];
    if (n > BLOCK) {
        const int64_t blocks = (n + BLOCK - 1) / BLOCK;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t left = n - b * BLOCK;
            x[b] = product(m, c, x + b * BLOCK, left < BLOCK ? left : BLOCK);
        }
        return product(m, c, x, blocks);
    }
    for (int l = 0; l < LANES; l++) {
        lane[l] = NUM(1);
        for (int64_t i = l; i < n; i += LANES) {
            lane[l] = R2(MUL, lane[l], x[i]);
        }
    }
    for (int h = LANES / 2; h >= 1; h /= 2) {
        for (int l = 0; l < h; l++) {
            lane[l] = R2(MUL, lane[l], lane[l + h]);
        }
    }
    return lane[0];
}

static uint64_t extreme(wf_interp *m, wf_op op, int c, const line *x)
{
    uint64_t best = x->v[0];
    for (int64_t i = 1; i < x->n; i++) {
        best = wf_in_row(m, op, c, best, x->v[i], 0);
    }
    return best;
}

/* -- which elements make a line ------------------------------------------------------------------------- */

typedef struct split {
    int rank;
    int64_t kept[WF_MAX_RANK],
        reduced[WF_MAX_RANK]; /* extents, 1 where the axis is of the other kind */
    int64_t strides[WF_MAX_RANK];
    int64_t lines, n; /* how many, of how many elements */
} split;

/* Bit i of `reduced`: axis i is. */
static split split_axes(const wf_type *t, unsigned reduced)
{
    split s = {.rank = t->rank, .lines = 1, .n = 1};
    wf_in_strides(t, s.strides);
    for (int i = 0; i < t->rank; i++) {
        s.kept[i] = reduced >> i & 1 ? 1 : t->dims[i];
        s.reduced[i] = reduced >> i & 1 ? t->dims[i] : 1;
        s.lines *= s.kept[i];
        s.n *= s.reduced[i];
    }
    return s;
}

/* The axes that the attribute lists; all if it lists none. */
static split split_listed(const wf_in_call *k)
{
    unsigned reduced = k->attr->n_ints ? 0 : ~0u;
    for (int i = 0; i < k->attr->n_ints; i++) {
        reduced |= 1u << k->attr->ints[i];
    }
    return split_axes(&k->src[0].type, reduced);
}

/* Element i of a line. */
static int64_t place(const split *s, int64_t at, int64_t i)
{
    return wf_in_offset(at, s->rank, s->kept, s->strides) +
           wf_in_offset(i, s->rank, s->reduced, s->strides);
}

/* Line `at` of x in scratch. */
static line read_line(wf_in_call *k, int scratch, const wf_array *x, const split *s, int64_t at,
                      int c)
{
    line l = {k->line[scratch], s->n};
    for (int64_t i = 0; i < l.n; i++) {
        l.v[i] = wf_in_load(k->m, x, place(s, at, i), c);
    }
    return l;
}

/* -- reductions ------------------------------------------------------------------------------------------ */

static double empty_value(wf_op op)
{
    return op == WF_OP_PROD || op == WF_OP_ALL                      ? 1
           : op == WF_OP_MEAN || op == WF_OP_VAR || op == WF_OP_STD ? NAN
           : op == WF_OP_LOGSUMEXP                                  ? -INFINITY
                                                                    : 0;
}

static uint64_t mean_of(wf_interp *m, int c, const line *x)
{
    return R2(DIV, sum(c, x), NUM((double)x->n));
}

/* Each becomes the square of its distance to the mean. */
static void square_distances(wf_interp *m, int c, line *x, uint64_t mean)
{
    for (int64_t i = 0; i < x->n; i++) {
        uint64_t d = R2(SUB, x->v[i], mean);
        x->v[i] = R2(MUL, d, d);
    }
}

static uint64_t variance(wf_interp *m, int c, line *x, double correction)
{
    double left = (double)x->n - correction;
    square_distances(m, c, x, mean_of(m, c, x));
    return R2(DIV, sum(c, x), NUM(left > 0 ? left : 0));
}

static uint64_t log_of_sum(wf_interp *m, int c, line *x, uint64_t top)
{
    for (int64_t i = 0; i < x->n; i++) {
        x->v[i] = R1(EXP, R2(SUB, x->v[i], top));
    }
    return R2(ADD, top, R1(LOG, sum(c, x)));
}

static uint64_t norm(wf_interp *m, int c, line *x, double order)
{
    for (int64_t i = 0; i < x->n; i++) {
        uint64_t v = x->v[i], a = R1(ABS, v);
        x->v[i] = order == 2                   ? R2(MUL, v, v)
                  : order == 0                 ? NUM((R2(NOT_EQUAL, v, NUM(0)) & 1) ? 1 : 0)
                  : order == 1 || isinf(order) ? a
                                               : R2(POW, a, NUM(order));
    }
    if (isinf(order)) {
        return extreme(m, order > 0 ? WF_OP_MAXIMUM : WF_OP_MINIMUM, c, x);
    }
    uint64_t s = sum(c, x);
    return order == 2 ? R1(SQRT, s) : order == 0 || order == 1 ? s : R2(POW, s, NUM(1 / order));
}

static uint64_t reduce_line(wf_in_call *k, int c, line *x)
{
    wf_interp *m = k->m;
    const wf_attr *a = k->attr;
    switch ((int)k->op) {
    case WF_OP_PROD:
        return product(m, c, x->v, x->n);
    case WF_OP_AMAX:
    case WF_OP_ANY:
        return extreme(m, WF_OP_MAXIMUM, c, x);
    case WF_OP_AMIN:
    case WF_OP_ALL:
        return extreme(m, WF_OP_MINIMUM, c, x);
    case WF_OP_MEAN:
        return mean_of(m, c, x);
    case WF_OP_VAR:
        return variance(m, c, x, a->n_flt ? a->flt[0] : 1);
    case WF_OP_STD:
        return R1(SQRT, variance(m, c, x, a->n_flt ? a->flt[0] : 1));
    case WF_OP_NORM:
        return norm(m, c, x, a->n_flt ? a->flt[0] : 2);
    case WF_OP_LOGSUMEXP: { /* less the largest element if that is finite */
        const uint64_t top = extreme(m, WF_OP_MAXIMUM, c, x);
        return log_of_sum(m, c, x, (R1(ISFINITE, top) & 1) ? top : NUM(0));
    }
    }
    return sum(c, x);
}

void wf_in_reduce(wf_in_call *k)
{
    wf_interp *m = k->m;
    bool truth = k->op == WF_OP_ANY || k->op == WF_OP_ALL || k->op == WF_OP_COUNT_NONZERO;
    int c = truth ? (int)WEFT_I64 : wf_in_compute(k->dst[0].type.dtype);
    split s = split_listed(k);
    for (int64_t r = 0; r < s.lines; r++) {
        line x = read_line(k, 0, &k->src[0], &s, r, truth ? (int)WEFT_BOOL : c);
        wf_in_store(m, &k->dst[0], r, c, x.n ? reduce_line(k, c, &x) : NUM(empty_value(k->op)));
    }
}

void wf_in_argreduce(wf_in_call *k)
{
    wf_interp *m = k->m;
    int c = wf_in_compute(k->src[0].type.dtype);
    wf_op better = k->op == WF_OP_ARGMAX ? WF_OP_GREATER : WF_OP_LESS;
    split s = split_listed(k);
    for (int64_t r = 0; r < s.lines; r++) {
        line x = read_line(k, 0, &k->src[0], &s, r, c);
        int64_t best = 0;
        for (int64_t i = 1; i < x.n && !(R1(ISNAN, x.v[best]) & 1); i++) {
            if ((R1(ISNAN, x.v[i]) & 1) || (wf_in_row(m, better, c, x.v[i], x.v[best], 0) & 1)) {
                best = i;
            }
        }
        wf_in_put(&k->dst[0], r, (uint64_t)best);
    }
}

/* Running values of v[0..n), n <= size, in the order of docs/reductions.md: a group of 64 is the running values of its left half,
 * then of its right one with the left one's total added; what is longer is 64 parts, each with the total of those before it added. */
static void running(wf_interp *m, wf_op op, int c, uint64_t *v, int64_t n, int64_t size)
{
    const int64_t part = size > 64 ? size / 64 : size / 2;
    for (int64_t at = 0; size > 1 && at < n; at += part) {
        const int64_t end = n - at < part ? n : at + part;
        running(m, op, c, v + at, end - at, part);
        for (int64_t i = at; at > 0 && i < end; i++) {
            v[i] = wf_in_row(m, op, c, v[at - 1], v[i], 0);
        }
    }
}

void wf_in_scan(wf_in_call *k)
{
    wf_interp *m = k->m;
    int c = wf_dtype_kind(k->dst[0].type.dtype) == 2 ? (int)WEFT_F64 : (int)WEFT_I64;
    wf_op op = k->op == WF_OP_CUMSUM ? WF_OP_ADD : WF_OP_MUL;
    split s = split_listed(k);
    int64_t size = 64;
    while (size < s.n) {
        size *= 64;
    }
    for (int64_t r = 0; r < s.lines; r++) {
        line x = read_line(k, 0, &k->src[0], &s, r, c);
        running(m, op, c, x.v, x.n, size);
        for (int64_t i = 0; i < x.n; i++) {
            wf_in_store(m, &k->dst[0], place(&s, r, i), c, x.v[i]);
        }
    }
}

/* -- softmax ------------------------------------------------------------------------------------------------ */

/* Of x, or the gradient x at the result y. */
void wf_in_softmax(wf_in_call *k)
{
    wf_interp *m = k->m;
    const bool forward = k->nsrc == 1;
    int c = wf_in_compute(k->dst[0].type.dtype);
    split s = split_listed(k);
    for (int64_t r = 0; r < s.lines && s.n; r++) {
        line x = read_line(k, 0, &k->src[0], &s, r, c), y = x, e = {k->line[2], s.n};
        uint64_t top = forward ? extreme(m, WF_OP_MAXIMUM, c, &x) : 0;
        y = forward ? y : read_line(k, 1, &k->src[1], &s, r, c);
        for (int64_t i = 0; i < s.n; i++) {
            e.v[i] = forward                      ? R1(EXP, R2(SUB, x.v[i], top))
                     : k->op == WF_OP_SOFTMAX_BWD ? R2(MUL, x.v[i], y.v[i])
                                                  : x.v[i];
        }
        uint64_t total = sum(c, &e);
        for (int64_t i = 0; i < s.n; i++) {
            uint64_t v =
                k->op == WF_OP_SOFTMAX       ? R2(DIV, e.v[i], total)
                : k->op == WF_OP_LOG_SOFTMAX ? R2(SUB, R2(SUB, x.v[i], top), R1(LOG, total))
                : k->op == WF_OP_SOFTMAX_BWD ? R2(MUL, y.v[i], R2(SUB, x.v[i], total))
                                             : R2(SUB, x.v[i], R2(MUL, R1(EXP, y.v[i]), total));
            wf_in_store(m, &k->dst[0], place(&s, r, i), c, v);
        }
    }
}

/* -- layer_norm, rms_norm, batch_norm ------------------------------------------------------------------------- */

/* Is the optional operand there? */
static const wf_array *operand(const wf_in_call *k, int i)
{
    return i < k->nsrc && k->src[i].type.dtype != WEFT_DTYPE_DEFAULT ? &k->src[i] : NULL;
}

static uint64_t rstd_of(const wf_in_call *k, int c, uint64_t var)
{
    wf_interp *m = k->m;
    const uint64_t eps = NUM(k->attr->n_flt ? k->attr->flt[0] : 1e-5);
    return R2(DIV, NUM(1), R1(SQRT, R2(ADD, var, eps)));
}

/* Axes 0 and 2 and on: a line is a channel. */
static const unsigned all_but_channels = ~2u;

/* The last axes, of which the attribute says how many: a line is what is normalised together. */
static unsigned trailing(const wf_type *t, const wf_attr *attr)
{
    return ~0u << (t->rank - (int)attr->ints[0]);
}

/* Elements of x[.., groups, c, each] that are normalised together: those of c channels of `each`. */
typedef struct channels {
    int64_t groups, c, each;
} channels;
static channels channels_of(const wf_type *t, const wf_attr *attr)
{
    const int64_t *d = t->dims + t->rank;
    return attr->flags & WF_FLAG_CHANNELS ? (channels){d[-3], d[-2], d[-1]} : (channels){0, 0, 0};
}
/* The channel of element i of line r. */
static int64_t channel_of(const channels *k, int64_t r, int64_t i)
{
    return r % k->groups * k->c + i / k->each;
}

/* y = ((x - mean) rstd) w + b; w and b may be absent. The statistics of a batch may be given. */
void wf_in_norm(wf_in_call *k)
{
    wf_interp *m = k->m;
    const wf_array *x = &k->src[0], *w = operand(k, 1);
    const bool batch = k->op == WF_OP_BATCH_NORM, center = k->op != WF_OP_RMS_NORM;
    const bool given = batch && !(k->attr->flags & WF_FLAG_TRAINING);
    const wf_array *b = center ? operand(k, 2) : NULL;
    const channels ch = channels_of(&x->type, batch ? &(wf_attr){0} : k->attr);
    int c = wf_in_compute(x->type.dtype);
    split s = split_axes(&x->type, batch ? all_but_channels : trailing(&x->type, k->attr));
    for (int64_t r = 0; r < s.lines; r++) {
        line v = read_line(k, 0, x, &s, r, c);
        uint64_t mean = given    ? wf_in_load(m, &k->src[3], r, c)
                        : center ? mean_of(m, c, &v)
                                 : NUM(0);
        square_distances(m, c, &v, mean);
        uint64_t var = given ? wf_in_load(m, &k->src[4], r, c) : mean_of(m, c, &v);
        uint64_t rstd = rstd_of(k, c, var);
        for (int64_t i = 0; i < s.n; i++) {
            const int64_t at = place(&s, r, i);
            const int64_t of = batch ? r : ch.groups ? channel_of(&ch, r, i) : i;
            uint64_t y = R2(MUL, R2(SUB, wf_in_load(m, x, at, c), mean), rstd);
            if (w && b && ch.groups) {
                const uint64_t wv = wf_in_load(m, w, of, c), bv = wf_in_load(m, b, of, c);
                y = wf_in_row(m, WF_OP_FMA, c, y, wv, bv);
            } else {
                y = w ? R2(MUL, y, wf_in_load(m, w, of, c)) : y;
                y = b ? R2(ADD, y, wf_in_load(m, b, of, c)) : y;
            }
            wf_in_store(m, &k->dst[0], at, c, y);
        }
        wf_in_put(&k->dst[1], r, center ? mean : rstd);
        if (center) {
            wf_in_put(&k->dst[2], r, batch ? var : rstd);
        }
    }
}

/* dx = f ((h - sum(h) / n) - xhat (sum(h xhat) / n)) of each line, with h = g w and f = rstd, of a batch h = g and f = w rstd; the
 * first sum is left out where no mean was taken off, both where the statistics were given. */
void wf_in_norm_bwd(wf_in_call *k)
{
    wf_interp *m = k->m;
    const bool batch = k->op == WF_OP_BATCH_NORM_BWD, center = k->op != WF_OP_RMS_NORM_BWD;
    const bool given = batch && !(k->attr->flags & WF_FLAG_TRAINING);
    const wf_array *g = &k->src[0], *x = &k->src[1], *mean = center ? &k->src[batch ? 3 : 2] : NULL;
    const wf_array *spread = &k->src[batch ? 4 : center ? 3 : 2]; /* variance or rstd */
    const wf_array *w = operand(k, batch ? 2 : center ? 4 : 3);
    const channels ch = channels_of(&x->type, batch ? &(wf_attr){0} : k->attr);
    int c = wf_in_compute(x->type.dtype);
    unsigned axes = batch ? all_but_channels : trailing(&x->type, k->attr);
    split s = split_axes(&x->type, axes);
    for (int64_t r = 0; r < s.lines; r++) {
        uint64_t mu = mean ? wf_in_load(m, mean, r, c) : NUM(0), f = wf_in_load(m, spread, r, c);
        uint64_t rstd = batch ? rstd_of(k, c, f) : f, n = NUM((double)s.n);
        line h = read_line(k, 0, g, &s, r, c), xhat = read_line(k, 1, x, &s, r, c);
        line t = {k->line[2], s.n};
        f = batch && w ? R2(MUL, wf_in_load(m, w, r, c), rstd) : rstd;
        for (int64_t i = 0; i < s.n; i++) {
            xhat.v[i] = R2(MUL, R2(SUB, xhat.v[i], mu), rstd);
            const int64_t of = ch.groups ? channel_of(&ch, r, i) : i;
            h.v[i] = w && !batch ? R2(MUL, h.v[i], wf_in_load(m, w, of, c)) : h.v[i];
            t.v[i] = R2(MUL, h.v[i], xhat.v[i]);
        }
        const uint64_t first = sum(c, &h), second = sum(c, &t);
        for (int64_t i = 0; i < s.n; i++) {
            uint64_t d = center ? R2(SUB, h.v[i], R2(DIV, first, n)) : h.v[i];
            d = given ? h.v[i] : R2(SUB, d, R2(MUL, xhat.v[i], R2(DIV, second, n)));
            wf_in_store(m, &k->dst[0], place(&s, r, i), c, R2(MUL, f, d));
        }
        if (batch) {
            wf_in_store(m, &k->dst[1], r, c, second);
            wf_in_store(m, &k->dst[2], r, c, first);
        }
    }
    const int64_t row = s.n; /* elements with one mean */
    axes = ch.groups ? 3u << (x->type.rank - 3) : axes;
    s = split_axes(&x->type, ~axes);
    const int64_t weights = batch ? 0 : wf_type_numel(&k->dst[1].type); /* 0: there are none */
    for (int64_t i = 0; i < weights; i++) { /* of weight and bias: sums over the lines */
        line gl = read_line(k, 0, g, &s, i, c), xhat = read_line(k, 1, x, &s, i, c);
        for (int64_t r = 0; r < s.n; r++) {
            const int64_t of = place(&s, i, r) / row;
            uint64_t d = R2(SUB, xhat.v[r], mean ? wf_in_load(m, mean, of, c) : NUM(0));
            xhat.v[r] = R2(MUL, gl.v[r], R2(MUL, d, wf_in_load(m, spread, of, c)));
        }
        wf_in_store(m, &k->dst[1], i, c, sum(c, &xhat));
        if (center) {
            wf_in_store(m, &k->dst[2], i, c, sum(c, &gl));
        }
    }
}

/* -- cross_entropy ------------------------------------------------------------------------------------------------ */

void wf_in_cross_entropy(wf_in_call *k)
{
    wf_interp *m = k->m;
    const bool backward = k->op == WF_OP_CROSS_ENTROPY_BWD;
    const wf_array *logits = &k->src[backward ? 1 : 0], *targets = &k->src[backward ? 2 : 1];
    const int c = wf_in_compute(logits->type.dtype);
    const int64_t ignore = k->attr->n_dyn ? k->attr->dyn[0] : -100;
    const double smooth = k->attr->n_flt ? k->attr->flt[0] : 0;
    const split s = split_axes(&logits->type, 2);
    for (int64_t r = 0; r < s.lines; r++) {
        const int64_t t = (int64_t)wf_in_load(m, targets, r, WEFT_I64);
        if (t != ignore && (t < 0 || t >= s.n)) {
            k->rc = wf_fail(m->why, WEFT_EINDEX, "targets[%lld] is %lld of %lld classes",
                            (long long)r, (long long)t, (long long)s.n);
            return;
        }
        line x = read_line(k, 0, logits, &s, r, c);
        if (backward) { /* g (softmax - the smoothed target), or 0 */
            uint64_t g = wf_in_load(m, &k->src[0], r, c), lse = wf_in_load(m, &k->src[3], r, c);
            uint64_t q = NUM(smooth / (double)s.n), at = R2(ADD, NUM(1 - smooth), q);
            for (int64_t i = 0; i < s.n; i++) {
                uint64_t d = R2(SUB, R1(EXP, R2(SUB, x.v[i], lse)), i == t ? at : q);
                d = t == ignore ? NUM(0) : R2(MUL, g, d);
                wf_in_store(m, &k->dst[0], place(&s, r, i), c, d);
            }
            continue;
        }
        /* not less what is finite: of a row with an infinite logit it is NaN, as log_softmax of it */
        line less = read_line(k, 1, logits, &s, r, c);
        uint64_t lse = log_of_sum(m, c, &x, extreme(m, WF_OP_MAXIMUM, c, &x));
        for (int64_t i = 0; i < s.n; i++) {
            less.v[i] = R2(SUB, lse, less.v[i]);
        }
        uint64_t loss = t == ignore ? NUM(0) : less.v[t];
        if (t != ignore && smooth != 0) {
            uint64_t even = R2(MUL, NUM(smooth), mean_of(m, c, &less));
            loss = R2(ADD, R2(MUL, NUM(1 - smooth), loss), even);
        }
        wf_in_store(m, &k->dst[0], r, c, loss);
        wf_in_put(&k->dst[1], r, lse);
    }
}
