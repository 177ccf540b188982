/*
 * jit/ir/interp_reduce.c -- reductions, softmax, norms and losses of the reference interpreter, spelled
 * out as docs/reductions.md has them.
 *
 * A line is the elements over the reduced axes in row-major order, in the compute type.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/interp_int.h"

/* Rows on scalars of the compute type: m and c are in scope. */
#define R1(op, a) wf_in_row(m, WF_OP_##op, c, a, 0, 0)
#define R2(op, a, b) wf_in_row(m, WF_OP_##op, c, a, b, 0)
#define NUM(v) wf_in_num(c, v)

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

/* The canonical tree with products: element i of a level covers 4096 of the level below. */
static uint64_t product(wf_interp *m, int c, const uint64_t *x, int64_t n)
{
    enum { LANES = 64, BLOCK = 4096 };
    uint64_t lane[LANES];
    if (n > BLOCK) {
        int64_t blocks = (n + BLOCK - 1) / BLOCK;
        uint64_t *part = wf_in_room(m, blocks), r = 0;
        for (int64_t b = 0; part && b < blocks; b++) {
            int64_t left = n - b * BLOCK;
            part[b] = product(m, c, x + b * BLOCK, left < BLOCK ? left : BLOCK);
        }
        r = part ? product(m, c, part, blocks) : 0;
        free(part);
        return r;
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

/* -- which elements make a result ---------------------------------------------------------------------- */

typedef struct split {
    int nk, nr; /* kept and reduced axes */
    int64_t kd[WF_MAX_RANK], ks[WF_MAX_RANK], rd[WF_MAX_RANK], rs[WF_MAX_RANK];
    int64_t kept, reduced;
} split;

static split split_axes(const wf_type *t, const wf_attr *attr)
{
    split s = {.kept = 1, .reduced = 1};
    int64_t strides[WF_MAX_RANK];
    wf_in_strides(t, strides);
    for (int i = 0; i < t->rank; i++) {
        bool reduced = attr->n_ints == 0;
        for (int k = 0; k < attr->n_ints; k++) {
            reduced |= attr->ints[k] == i;
        }
        if (reduced) {
            s.rd[s.nr] = t->dims[i];
            s.rs[s.nr++] = strides[i];
            s.reduced *= t->dims[i];
        } else {
            s.kd[s.nk] = t->dims[i];
            s.ks[s.nk++] = strides[i];
            s.kept *= t->dims[i];
        }
    }
    return s;
}

static void read_line(wf_interp *m, const wf_array *x, const split *s, int64_t result, int c,
                      line *out)
{
    int64_t base = wf_in_offset(result, s->nk, s->kd, s->ks);
    for (int64_t i = 0; i < out->n; i++) {
        out->v[i] = wf_in_load(m, x, base + wf_in_offset(i, s->nr, s->rd, s->rs), c);
    }
}

/* -- reductions ------------------------------------------------------------------------------------------ */

static double empty_value(wf_op op)
{
    if (op == WF_OP_PROD || op == WF_OP_ALL) {
        return 1;
    }
    if (op == WF_OP_MEAN || op == WF_OP_VAR || op == WF_OP_STD) {
        return NAN;
    }
    return op == WF_OP_LOGSUMEXP ? -INFINITY : 0;
}

static bool is_true(uint64_t v)
{
    return (v & 1) != 0;
}

static uint64_t mean_of(wf_interp *m, int c, const line *x)
{
    return R2(DIV, sum(c, x), NUM((double)x->n));
}

static uint64_t variance(wf_interp *m, int c, line *x, double correction)
{
    uint64_t mean = mean_of(m, c, x);
    double left = (double)x->n - correction;
    for (int64_t i = 0; i < x->n; i++) {
        uint64_t d = R2(SUB, x->v[i], mean);
        x->v[i] = R2(MUL, d, d);
    }
    return R2(DIV, sum(c, x), NUM(left > 0 ? left : 0));
}

/* The largest element, 0 if it is not finite. */
static uint64_t shift_of(wf_interp *m, int c, const line *x)
{
    uint64_t top = extreme(m, WF_OP_MAXIMUM, c, x);
    return is_true(R1(ISFINITE, top)) ? top : NUM(0);
}

static uint64_t log_of_sum(wf_interp *m, int c, line *x, uint64_t top)
{
    for (int64_t i = 0; i < x->n; i++) {
        x->v[i] = R1(EXP, R2(SUB, x->v[i], top));
    }
    return R2(ADD, top, R1(LOG, sum(c, x)));
}

static uint64_t logsumexp(wf_interp *m, int c, line *x)
{
    return log_of_sum(m, c, x, shift_of(m, c, x));
}

static uint64_t norm(wf_interp *m, int c, line *x, double order)
{
    for (int64_t i = 0; i < x->n; i++) {
        uint64_t v = x->v[i], a = R1(ABS, v);
        x->v[i] = order == 2                   ? R2(MUL, v, v)
                  : order == 0                 ? NUM(is_true(R2(NOT_EQUAL, v, NUM(0))) ? 1 : 0)
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
    case WF_OP_LOGSUMEXP:
        return logsumexp(m, c, x);
    }
    return sum(c, x);
}

int wf_in_reduce(wf_in_call *k)
{
    wf_interp *m = k->m;
    bool truth = k->op == WF_OP_ANY || k->op == WF_OP_ALL || k->op == WF_OP_COUNT_NONZERO;
    int c = truth ? (int)WEFT_I64 : wf_in_compute(k->dst[0].type.dtype);
    split s = split_axes(&k->src[0].type, k->attr);
    line x = {.v = wf_in_room(m, s.reduced), .n = s.reduced};
    for (int64_t r = 0; r < s.kept && x.v; r++) {
        read_line(m, &k->src[0], &s, r, truth ? (int)WEFT_BOOL : c, &x);
        wf_in_store(m, &k->dst[0], r, c,
                    s.reduced ? reduce_line(k, c, &x) : NUM(empty_value(k->op)));
    }
    free(x.v);
    return 0;
}

int wf_in_argreduce(wf_in_call *k)
{
    wf_interp *m = k->m;
    int c = wf_in_compute(k->src[0].type.dtype);
    wf_op better = k->op == WF_OP_ARGMAX ? WF_OP_GREATER : WF_OP_LESS;
    split s = split_axes(&k->src[0].type, k->attr);
    line x = {.v = wf_in_room(m, s.reduced), .n = s.reduced};
    for (int64_t r = 0; r < s.kept && x.v; r++) {
        read_line(m, &k->src[0], &s, r, c, &x);
        int64_t best = 0;
        for (int64_t i = 1; i < x.n && !is_true(R1(ISNAN, x.v[best])); i++) {
            if (is_true(R1(ISNAN, x.v[i])) ||
                is_true(wf_in_row(m, better, c, x.v[i], x.v[best], 0))) {
                best = i;
            }
        }
        wf_in_put(&k->dst[0], r, (uint64_t)best);
    }
    free(x.v);
    return 0;
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

int wf_in_scan(wf_in_call *k)
{
    wf_interp *m = k->m;
    int c = wf_dtype_kind(k->dst[0].type.dtype) == 2 ? (int)WEFT_F64 : (int)WEFT_I64;
    wf_op op = k->op == WF_OP_CUMSUM ? WF_OP_ADD : WF_OP_MUL;
    split s = split_axes(&k->src[0].type, k->attr);
    line x = {.v = wf_in_room(m, s.reduced), .n = s.reduced};
    int64_t size = 64;
    while (size < s.reduced) {
        size *= 64;
    }
    for (int64_t r = 0; r < s.kept && x.v; r++) {
        int64_t base = wf_in_offset(r, s.nk, s.kd, s.ks);
        read_line(m, &k->src[0], &s, r, c, &x);
        running(m, op, c, x.v, x.n, size);
        for (int64_t i = 0; i < s.reduced; i++) {
            wf_in_store(m, &k->dst[0], base + i * s.rs[0], c, x.v[i]);
        }
    }
    free(x.v);
    return 0;
}

/* -- softmax ------------------------------------------------------------------------------------------------ */

static void softmax_line(wf_in_call *k, int c, line *x, const line *y)
{
    wf_interp *m = k->m;
    uint64_t *e = wf_in_room(m, x->n);
    line t = {.v = e, .n = x->n};
    bool forward = k->op == WF_OP_SOFTMAX || k->op == WF_OP_LOG_SOFTMAX;
    uint64_t top = forward ? extreme(m, WF_OP_MAXIMUM, c, x) : 0;
    for (int64_t i = 0; i < x->n && e; i++) {
        e[i] = forward                      ? R1(EXP, R2(SUB, x->v[i], top))
               : k->op == WF_OP_SOFTMAX_BWD ? R2(MUL, x->v[i], y->v[i])
                                            : x->v[i];
    }
    uint64_t s = e ? sum(c, &t) : 0;
    for (int64_t i = 0; i < x->n && e; i++) {
        uint64_t v = x->v[i];
        x->v[i] = k->op == WF_OP_SOFTMAX       ? R2(DIV, e[i], s)
                  : k->op == WF_OP_LOG_SOFTMAX ? R2(SUB, R2(SUB, v, top), R1(LOG, s))
                  : k->op == WF_OP_SOFTMAX_BWD ? R2(MUL, y->v[i], R2(SUB, v, s))
                                               : R2(SUB, v, R2(MUL, R1(EXP, y->v[i]), s));
    }
    free(e);
}

int wf_in_rowwise(wf_in_call *k)
{
    wf_interp *m = k->m;
    int c = wf_in_compute(k->dst[0].type.dtype);
    split s = split_axes(&k->src[0].type, k->attr);
    line x = {.v = wf_in_room(m, s.reduced), .n = s.reduced};
    line y = {.v = wf_in_room(m, s.reduced), .n = s.reduced};
    for (int64_t r = 0; r < s.kept && s.reduced && x.v && y.v; r++) {
        read_line(m, &k->src[0], &s, r, c, &x);
        if (k->nsrc > 1) {
            read_line(m, &k->src[1], &s, r, c, &y);
        }
        softmax_line(k, c, &x, &y);
        int64_t base = wf_in_offset(r, s.nk, s.kd, s.ks);
        for (int64_t i = 0; i < x.n; i++) {
            wf_in_store(m, &k->dst[0], base + wf_in_offset(i, s.nr, s.rd, s.rs), c, x.v[i]);
        }
    }
    free(x.v);
    free(y.v);
    return 0;
}

/* -- layer_norm, rms_norm ------------------------------------------------------------------------------------- */

/* Is the optional operand there? */
static const wf_array *operand(const wf_in_call *k, int i)
{
    return i < k->nsrc && k->src[i].type.dtype != WEFT_DTYPE_DEFAULT ? &k->src[i] : NULL;
}

static uint64_t rstd_of(wf_interp *m, int c, uint64_t var, double eps)
{
    return R2(DIV, NUM(1), R1(SQRT, R2(ADD, var, NUM(eps))));
}

/* ((x - mean) * rstd) * w + b; w and b may be absent. */
static uint64_t affine(wf_interp *m, int c, uint64_t x, uint64_t mean, uint64_t rstd,
                       const wf_array *w, const wf_array *b, int64_t at)
{
    uint64_t v = R2(MUL, R2(SUB, x, mean), rstd);
    v = w ? R2(MUL, v, wf_in_load(m, w, at, c)) : v;
    return b ? R2(ADD, v, wf_in_load(m, b, at, c)) : v;
}

static int64_t trailing(const wf_type *t, int axes)
{
    int64_t n = 1;
    for (int i = t->rank - axes; i < t->rank; i++) {
        n *= t->dims[i];
    }
    return n;
}

int wf_in_norm(wf_in_call *k)
{
    wf_interp *m = k->m;
    bool center = k->op == WF_OP_LAYER_NORM;
    const wf_array *w = operand(k, 1), *b = center ? operand(k, 2) : NULL;
    wf_array *rstd_out = &k->dst[center ? 2 : 1];
    int c = wf_in_compute(k->src[0].type.dtype);
    int64_t n = trailing(&k->src[0].type, (int)k->attr->ints[0]);
    int64_t rows = wf_type_numel(&rstd_out->type);
    double eps = k->attr->n_flt ? k->attr->flt[0] : 1e-5;
    line x = {.v = wf_in_room(m, n), .n = n};
    for (int64_t r = 0; r < rows && x.v; r++) {
        for (int64_t i = 0; i < n; i++) {
            x.v[i] = wf_in_load(m, &k->src[0], r * n + i, c);
        }
        uint64_t mean = !center ? NUM(0) : n ? mean_of(m, c, &x) : NUM(NAN);
        for (int64_t i = 0; i < n; i++) {
            uint64_t d = R2(SUB, x.v[i], mean);
            x.v[i] = R2(MUL, d, d);
        }
        uint64_t rstd = n ? rstd_of(m, c, mean_of(m, c, &x), eps) : NUM(NAN);
        for (int64_t i = 0; i < n; i++) {
            uint64_t v = wf_in_load(m, &k->src[0], r * n + i, c);
            wf_in_store(m, &k->dst[0], r * n + i, c, affine(m, c, v, mean, rstd, w, b, i));
        }
        wf_in_put(rstd_out, r, rstd);
        if (center) {
            wf_in_put(&k->dst[1], r, mean);
        }
    }
    free(x.v);
    return 0;
}

/* One row of dx: rstd * ((gw - sum(gw) / n) - xhat * (sum(gw * xhat) / n)). t: scratch. */
static void norm_bwd_row(wf_interp *m, int c, bool center, const line *xhat, const line *gw,
                         line *t, uint64_t rstd)
{
    uint64_t n = NUM((double)t->n), first = center ? R2(DIV, sum(c, gw), n) : 0;
    for (int64_t i = 0; i < t->n; i++) {
        t->v[i] = R2(MUL, gw->v[i], xhat->v[i]);
    }
    uint64_t second = R2(DIV, sum(c, t), n);
    for (int64_t i = 0; i < t->n; i++) {
        uint64_t g = center ? R2(SUB, gw->v[i], first) : gw->v[i];
        t->v[i] = R2(MUL, rstd, R2(SUB, g, R2(MUL, xhat->v[i], second)));
    }
}

int wf_in_norm_bwd(wf_in_call *k)
{
    wf_interp *m = k->m;
    bool center = k->op == WF_OP_LAYER_NORM_BWD;
    const wf_array *g = &k->src[0], *x = &k->src[1], *mean = center ? &k->src[2] : NULL;
    const wf_array *rstd = &k->src[center ? 3 : 2], *w = operand(k, center ? 4 : 3);
    int c = wf_in_compute(x->type.dtype);
    int64_t n = trailing(&x->type, (int)k->attr->ints[0]), rows = wf_type_numel(&rstd->type);
    int64_t most = n > rows ? n : rows;
    line xhat = {wf_in_room(m, most), n}, gw = {wf_in_room(m, most), n}, t = {wf_in_room(m, n), n};
    for (int64_t r = 0; r < rows && !m->failed; r++) {
        uint64_t mu = mean ? wf_in_load(m, mean, r, c) : NUM(0), rs = wf_in_load(m, rstd, r, c);
        for (int64_t i = 0; i < n; i++) {
            uint64_t v = wf_in_load(m, g, r * n + i, c);
            xhat.v[i] = R2(MUL, R2(SUB, wf_in_load(m, x, r * n + i, c), mu), rs);
            gw.v[i] = w ? R2(MUL, v, wf_in_load(m, w, i, c)) : v;
        }
        norm_bwd_row(m, c, center, &xhat, &gw, &t, rs);
        for (int64_t i = 0; i < n; i++) {
            wf_in_store(m, &k->dst[0], r * n + i, c, t.v[i]);
        }
    }
    xhat.n = gw.n = rows; /* columns from here: xhat holds g * xhat, gw holds g */
    for (int64_t i = 0; i < wf_type_numel(&k->dst[1].type) && !m->failed; i++) {
        for (int64_t r = 0; r < rows; r++) {
            uint64_t mu = mean ? wf_in_load(m, mean, r, c) : NUM(0);
            uint64_t d = R2(SUB, wf_in_load(m, x, r * n + i, c), mu);
            gw.v[r] = wf_in_load(m, g, r * n + i, c);
            xhat.v[r] = R2(MUL, gw.v[r], R2(MUL, d, wf_in_load(m, rstd, r, c)));
        }
        wf_in_store(m, &k->dst[1], i, c, sum(c, &xhat));
        if (center) {
            wf_in_store(m, &k->dst[2], i, c, sum(c, &gw));
        }
    }
    free(xhat.v);
    free(gw.v);
    free(t.v);
    return 0;
}

/* -- batch_norm ------------------------------------------------------------------------------------------------- */

/* Channel of each element, and lines over batch and space. */
static split channels(const wf_type *t)
{
    split s = {.kept = t->dims[1], .reduced = 1, .nk = 1, .kd = {t->dims[1]}};
    int64_t strides[WF_MAX_RANK];
    wf_in_strides(t, strides);
    s.ks[0] = strides[1];
    for (int i = 0; i < t->rank; i++) {
        if (i != 1) {
            s.rd[s.nr] = t->dims[i];
            s.rs[s.nr++] = strides[i];
            s.reduced *= t->dims[i];
        }
    }
    return s;
}

int wf_in_batch_norm(wf_in_call *k)
{
    wf_interp *m = k->m;
    const wf_array *x = &k->src[0];
    bool training = (k->attr->flags & WF_FLAG_TRAINING) != 0;
    int c = wf_in_compute(x->type.dtype);
    double eps = k->attr->n_flt ? k->attr->flt[0] : 1e-5;
    split s = channels(&x->type);
    line v = {wf_in_room(m, s.reduced), s.reduced};
    for (int64_t ch = 0; ch < s.kept && v.v; ch++) {
        uint64_t mean = wf_in_load(m, &k->src[3], ch, c), var = wf_in_load(m, &k->src[4], ch, c);
        read_line(m, x, &s, ch, c, &v);
        if (training && v.n > 0) {
            mean = mean_of(m, c, &v);
            for (int64_t i = 0; i < v.n; i++) {
                uint64_t d = R2(SUB, v.v[i], mean);
                v.v[i] = R2(MUL, d, d);
            }
            var = mean_of(m, c, &v);
        } else if (training) {
            mean = var = NUM(NAN);
        }
        uint64_t rstd = rstd_of(m, c, var, eps);
        wf_in_put(&k->dst[1], ch, mean);
        wf_in_put(&k->dst[2], ch, var);
        for (int64_t i = 0; i < v.n; i++) {
            int64_t at = ch * s.ks[0] + wf_in_offset(i, s.nr, s.rd, s.rs);
            wf_in_store(m, &k->dst[0], at, c,
                        affine(m, c, wf_in_load(m, x, at, c), mean, rstd, operand(k, 1),
                               operand(k, 2), ch));
        }
    }
    free(v.v);
    return 0;
}

int wf_in_batch_norm_bwd(wf_in_call *k)
{
    wf_interp *m = k->m;
    const wf_array *g = &k->src[0], *x = &k->src[1], *w = operand(k, 2);
    bool training = (k->attr->flags & WF_FLAG_TRAINING) != 0;
    int c = wf_in_compute(x->type.dtype);
    double eps = k->attr->n_flt ? k->attr->flt[0] : 1e-5;
    split s = channels(&x->type);
    line gl = {wf_in_room(m, s.reduced), s.reduced}, t = {wf_in_room(m, s.reduced), s.reduced};
    for (int64_t ch = 0; ch < s.kept && !m->failed; ch++) {
        uint64_t mean = wf_in_load(m, &k->src[3], ch, c);
        uint64_t rstd = rstd_of(m, c, wf_in_load(m, &k->src[4], ch, c), eps);
        uint64_t scale = R2(MUL, w ? wf_in_load(m, w, ch, c) : NUM(1), rstd);
        read_line(m, g, &s, ch, c, &gl);
        read_line(m, x, &s, ch, c, &t);
        for (int64_t i = 0; i < t.n; i++) {
            t.v[i] = R2(MUL, gl.v[i], R2(MUL, R2(SUB, t.v[i], mean), rstd));
        }
        uint64_t db = sum(c, &gl), dw = sum(c, &t), n = NUM((double)t.n);
        wf_in_store(m, &k->dst[1], ch, c, dw);
        wf_in_store(m, &k->dst[2], ch, c, db);
        db = R2(DIV, db, n);
        dw = R2(DIV, dw, n);
        for (int64_t i = 0; i < t.n; i++) {
            int64_t at = ch * s.ks[0] + wf_in_offset(i, s.nr, s.rd, s.rs);
            uint64_t xhat = R2(MUL, R2(SUB, wf_in_load(m, x, at, c), mean), rstd);
            uint64_t d = R2(SUB, R2(SUB, gl.v[i], db), R2(MUL, xhat, dw));
            wf_in_store(m, &k->dst[0], at, c,
                        training ? R2(MUL, scale, d) : R2(MUL, gl.v[i], scale));
        }
    }
    free(gl.v);
    free(t.v);
    return 0;
}

/* -- cross_entropy ------------------------------------------------------------------------------------------------ */

static void loss_forward(wf_in_call *k, int c, int64_t row, line *x, int64_t t, double smooth)
{
    wf_interp *m = k->m;
    uint64_t at = t >= 0 ? x->v[t] : 0, *keep = wf_in_room(m, x->n);
    line v = {keep, x->n};
    if (!keep) {
        return;
    }
    memcpy(keep, x->v, (size_t)x->n * sizeof *keep);
    /* not less what is finite: of a row with an infinite logit it is NaN, as log_softmax of it */
    uint64_t lse = log_of_sum(m, c, x, extreme(m, WF_OP_MAXIMUM, c, x)), loss = NUM(0);
    if (t >= 0) {
        loss = R2(SUB, lse, at);
        if (smooth != 0) {
            for (int64_t i = 0; i < v.n; i++) {
                v.v[i] = R2(SUB, lse, v.v[i]);
            }
            loss = R2(ADD, R2(MUL, NUM(1 - smooth), loss), R2(MUL, NUM(smooth), mean_of(m, c, &v)));
        }
    }
    wf_in_store(m, &k->dst[0], row, c, loss);
    wf_in_put(&k->dst[1], row, lse);
    free(keep);
}

static void loss_backward(wf_in_call *k, int c, int64_t row, line *x, int64_t t, double smooth)
{
    wf_interp *m = k->m;
    uint64_t g = wf_in_load(m, &k->src[0], row, c), lse = wf_in_load(m, &k->src[3], row, c);
    uint64_t q = NUM(smooth / (double)x->n), at = R2(ADD, NUM(1 - smooth), q);
    for (int64_t i = 0; i < x->n; i++) {
        uint64_t e = R1(EXP, R2(SUB, x->v[i], lse));
        uint64_t d = R2(MUL, g, R2(SUB, e, i == t ? at : q));
        wf_in_store(m, &k->dst[0], row * x->n + i, c, t >= 0 ? d : NUM(0));
    }
}

int wf_in_cross_entropy(wf_in_call *k)
{
    wf_interp *m = k->m;
    bool backward = k->op == WF_OP_CROSS_ENTROPY_BWD;
    const wf_array *logits = &k->src[backward ? 1 : 0], *targets = &k->src[backward ? 2 : 1];
    int c = wf_in_compute(logits->type.dtype);
    int64_t rows = logits->type.dims[0], n = logits->type.dims[1];
    int64_t ignore = k->attr->n_dyn ? k->attr->dyn[0] : -100;
    double smooth = k->attr->n_flt ? k->attr->flt[0] : 0;
    line x = {wf_in_room(m, n), n};
    int rc = 0;
    for (int64_t r = 0; r < rows && x.v && !rc; r++) {
        int64_t t = (int64_t)wf_in_load(m, targets, r, WEFT_I64);
        if (t != ignore && (t < 0 || t >= n)) {
            rc = wf_fail(m->why, WEFT_EINDEX, "targets[%lld] is %lld of %lld classes", (long long)r,
                         (long long)t, (long long)n);
            break;
        }
        for (int64_t i = 0; i < n; i++) {
            x.v[i] = wf_in_load(m, logits, r * n + i, c);
        }
        t = t == ignore ? -1 : t;
        if (backward) {
            loss_backward(k, c, r, &x, t, smooth);
        } else {
            loss_forward(k, c, r, &x, t, smooth);
        }
    }
    free(x.v);
    return rc;
}
#undef R1
#undef R2
#undef NUM
