/*
 * eager/loss.c -- cross entropy of logits [n, classes] against class indices, forward and backward.
 *
 * Invariants: every target is checked before any row is computed; rows whose target is ignore_index
 * give 0 and pass no gradient. Formulas: eager/kernels/rowwise.h.
 */
#include "eager/rows.h"

#include <stdio.h>
#include <string.h>

#include "eager/dense.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"

typedef struct loss_job {
    const wf_row_kernels *k;
    const wf_red_kernels *convert;
    const wf_view *targets;
    int64_t ignore, n;
    double smooth;
    const wf_view *loss; /* forward: result; backward: the incoming gradient */
    const wf_view *lse;
    bool backward;
} loss_job;

/* t: of one axis, or dense. */
static int64_t target_at(const wf_view *t, int64_t row)
{
    int64_t i = t->rank == 1 ? row * t->strides[0] : row;
    return t->dtype == WEFT_I32 ? ((const int32_t *)t->data)[i] : ((const int64_t *)t->data)[i];
}

static char *scalar_at(const wf_view *v, int64_t row)
{
    return (char *)v->data + row * v->strides[0] * (int64_t)wf_dtype_size(v->dtype);
}

static void loss_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const loss_job *j = ctx;
    int64_t t = target_at(j->targets, row);
    t = t == j->ignore ? -1 : t;
    double a = 0.0, b = 0.0; /* room for one compute value each */
    if (j->backward) {
        j->convert->load(&a, scalar_at(j->loss, row), j->loss->dtype, 1, 1);
        j->convert->load(&b, scalar_at(j->lse, row), j->lse->dtype, 1, 1);
        j->k->cross_entropy_bwd(out[0], in[0], j->n, t, j->smooth, &a, &b, nt);
    } else {
        j->k->cross_entropy(&a, &b, in[0], j->n, t, j->smooth);
        j->convert->store(scalar_at(j->loss, row), j->loss->dtype, &a, 1);
        j->convert->store(scalar_at(j->lse, row), j->lse->dtype, &b, 1);
    }
}

/* -- short rows, forward ------------------------------------------------------------------------------- */
typedef struct short_job {
    const loss_job *loss;
    const wf_view *x; /* dense */
    const wf_view *lse;
    int64_t parts;
} short_job;

static void short_part(const short_job *s, int64_t from, int64_t w)
{
    _Alignas(64) char lse[WF_TURNED_MOST * 8], at[WF_TURNED_MOST * 8], raw[WF_TURNED_MOST * 8];
    const loss_job *j = s->loss;
    const int dt = s->x->dtype, compute = wf_red_compute(dt);
    const size_t size = wf_dtype_size(dt), wide = wf_red_size(compute);
    wf_lse_rows(lse, s->x, from, w);
    j->convert->store(scalar_at(s->lse, from), s->lse->dtype, lse, w);
    for (int64_t i = 0; i < w; i++) {
        const int64_t t = target_at(j->targets, from + i), class = t == j->ignore ? 0 : t;
        memcpy(raw + (size_t)i * size,
               (const char *)s->x->data + (size_t)((from + i) * j->n + class) * size, size);
    }
    j->convert->load(at, raw, dt, 1, w);
    wf_kernels_now()->map[wf_ct(compute)][WF_OP_SUB](at, (const void *const[]){lse, at}, (size_t)w,
                                                     0);
    for (int64_t i = 0; i < w; i++) {
        if (target_at(j->targets, from + i) == j->ignore) {
            memset(at + (size_t)i * wide, 0, wide);
        }
    }
    j->convert->store(scalar_at(j->loss, from), j->loss->dtype, at, w);
}

static void short_task(void *arg, int64_t begin, int64_t end)
{
    const short_job *s = arg;
    const int64_t rows = s->x->dims[0];
    for (int64_t i = begin; i < end; i++) {
        const int64_t from = i * rows / s->parts;
        short_part(s, from, (i + 1) * rows / s->parts - from);
    }
}

/* False: not for rows of this kind. */
static bool run_short(const wf_exec *e, const loss_job *j, const void *x)
{
    const wf_view *logits = &e->src[0];
    const wf_view dense = wf_view_dense((void *)(uintptr_t)x, logits->dtype, 2, logits->dims);
    short_job s = {.loss = j, .x = &dense, .lse = j->lse};
    s.parts =
        j->smooth == 0 ? wf_turned_parts(logits->dims[0], j->n, wf_red_compute(logits->dtype)) : 0;
    if (s.parts == 0 || !wf_view_is_contiguous(j->loss) || !wf_view_is_contiguous(j->lse)) {
        return false;
    }
    wf_parallel_for(s.parts, wf_row_grain(logits->dims[0] / s.parts * j->n * 8), short_task, &s);
    return true;
}

static int64_t ignored(const wf_attr *attr)
{
    return attr->n_dyn > 0 ? attr->dyn[0] : -100;
}

/* Element i of t in row-major order by its coordinates: "[1,2]"; "" where there is but one. */
enum { PLACE = 21 * WEFT_MAX_RANK + 2 };
static const char *place_of(const wf_view *t, int64_t i, char text[PLACE])
{
    int64_t at[WEFT_MAX_RANK];
    int n = 0;
    for (int d = t->rank; d-- > 0; i /= t->dims[d]) {
        at[d] = i % t->dims[d];
    }
    text[0] = '\0';
    for (int d = 0; d < t->rank; d++) {
        n += snprintf(text + n, (size_t)(PLACE - n), "%c%lld", d ? ',' : '[', (long long)at[d]);
    }
    if (n) {
        snprintf(text + n, (size_t)(PLACE - n), "]");
    }
    return text;
}

int wf_targets_check(const wf_view *t, const wf_attr *attr, int64_t classes, wf_why *why)
{
    const int64_t rows = wf_view_numel(t), ignore = ignored(attr);
    for (int64_t i = 0; i < rows; i++) {
        int64_t v = target_at(t, i);
        if (v != ignore && (v < 0 || v >= classes)) {
            char place[PLACE];
            int code =
                wf_fail(why, WEFT_EINDEX, "targets%s is %lld, which is not a class in [0, %lld)",
                        place_of(t, i, place), (long long)v, (long long)classes);
            wf_hint(why, "logits have %lld classes; rows to skip must hold ignore_index (%lld)",
                    (long long)classes, (long long)ignore);
            return code;
        }
    }
    return 0;
}

WF_EXEC_DECL(cross_entropy)
{
    bool backward = e->op == WF_OP_CROSS_ENTROPY_BWD;
    const wf_view *logits = &e->src[backward ? 1 : 0], *targets = &e->src[backward ? 2 : 1];
    int64_t rows = logits->dims[0], n = logits->dims[1];
    loss_job j = {.targets = targets, .n = n, .backward = backward};
    j.ignore = ignored(e->attr);
    j.smooth = e->attr->n_flt > 0 ? e->attr->flt[0] : 0.0;
    j.loss = backward ? &e->src[0] : &e->dst[0];
    j.lse = backward ? &e->src[3] : &e->dst[1];
    int status = wf_targets_check(targets, e->attr, n, e->why);
    wf_packed x = {.data = NULL};
    status = status != 0 ? status : wf_pack(&x, logits, logits->dtype, -1, e->why);
    if (status != 0) {
        return status;
    }
    int compute = wf_red_compute(logits->dtype);
    j.k = wf_row_kernels_of(compute);
    j.convert = wf_red_kernels_of(compute);
    if (!backward && rows * n > 0 && run_short(e, &j, x.data)) {
        wf_unpack(&x);
        return 0;
    }
    wf_row_job r = {.rows = rows, .n = n, .compute = compute, .nin = 1, .nout = backward ? 1 : 0};
    r.in[0].data = x.data;
    r.in[0].dtype = logits->dtype;
    if (backward) {
        r.out[0].data = e->dst[0].data;
        r.out[0].dtype = e->dst[0].dtype;
    }
    r.nt_limit = INT64_MAX;
    r.fn = loss_row;
    r.ctx = &j;
    r.after = backward ? e->after : NULL;
    e->finished = wf_rows_finish(&r);
    status = wf_rows_run(&r, e->why);
    wf_unpack(&x);
    return status;
}
