/*
 * eager/reduce_exec.c -- the reduction rows: what each is made of.
 *
 * Every row is one or two runs of the engine (eager/reduce.h) and a last step per result, in the
 * compute type; the result is rounded once. docs/reductions.md states the formulas.
 */
#include "eager/reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"

/* The value of v in a compute type. */
typedef union value {
    float f32;
    double f64;
    int64_t i64;
} value;

static value value_of(int compute, double v)
{
    value r = {.i64 = 0};
    if (compute == WEFT_F32) {
        r.f32 = (float)v;
    } else if (compute == WEFT_F64) {
        r.f64 = v;
    } else {
        r.i64 = (int64_t)v;
    }
    return r;
}

static void fill(void *out, int compute, double v, int64_t n)
{
    value one = value_of(compute, v);
    size_t size = wf_red_size(compute);
    for (int64_t i = 0; i < n; i++) {
        memcpy((char *)out + (size_t)i * size, &one, size);
    }
}

void wf_red_divide(void *out, int compute, double d, bool root, int64_t n)
{
    if (compute == WEFT_F32) {
        float *o = out, by = (float)d;
        for (int64_t i = 0; i < n; i++) {
            float v = o[i] / by;
            o[i] = root ? sqrtf(v) : v;
        }
    } else {
        double *o = out;
        for (int64_t i = 0; i < n; i++) {
            double v = o[i] / d;
            o[i] = root ? sqrt(v) : v;
        }
    }
}

/* Infinite and NaN maxima become 0, so that x - m below is never inf - inf. */
static void finite_or_zero(void *m, int compute, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (compute == WEFT_F32) {
            float *v = (float *)m + i;
            *v = isfinite(*v) ? *v : 0.0f;
        } else {
            double *v = (double *)m + i;
            *v = isfinite(*v) ? *v : 0.0;
        }
    }
}

static double empty_value(wf_op op)
{
    if (op == WF_OP_PROD || op == WF_OP_ALL) {
        return 1.0;
    }
    if (op == WF_OP_MEAN || op == WF_OP_VAR || op == WF_OP_STD) {
        return NAN;
    }
    return op == WF_OP_LOGSUMEXP ? -INFINITY : 0.0;
}

/* A first run into `scratch` (one value per result), the second reads it as its parameter. */
static int run_with_parameter(wf_red_job *j, wf_op op, double count, void *scratch, int64_t n)
{
    void *out = j->out;
    j->out = scratch;
    j->op = op == WF_OP_LOGSUMEXP ? WF_RED_MAX : WF_RED_SUM;
    int status = wf_red_run(j);
    if (status != 0) {
        return status;
    }
    if (op == WF_OP_LOGSUMEXP) {
        finite_or_zero(scratch, j->compute, n);
        j->map = WF_MAP_EXPSUB;
    } else {
        wf_red_divide(scratch, j->compute, count, false, n);
        j->map = WF_MAP_SQDEV;
    }
    j->op = WF_RED_SUM;
    j->p = scratch;
    j->out = out;
    return wf_red_run(j);
}

static int run_norm(wf_red_job *j, double order, int64_t n)
{
    value p = value_of(j->compute, order);
    j->p = &p;
    j->one_param = true;
    j->map = order == 2.0                   ? WF_MAP_SQUARE
             : order == 0.0                 ? WF_MAP_NONZERO
             : order == 1.0 || isinf(order) ? WF_MAP_ABS
                                            : WF_MAP_ABSPOW;
    j->op = !isinf(order) ? WF_RED_SUM : order > 0 ? WF_RED_MAX : WF_RED_MIN;
    int status = wf_red_run(j);
    if (status == 0 && order == 2.0) {
        wf_red_divide(j->out, j->compute, 1.0, true, n);
    } else if (status == 0 && j->map == WF_MAP_ABSPOW) {
        value q = value_of(j->compute, 1.0 / order);
        const void *src[2] = {j->out, &q};
        wf_row_kernel(WF_OP_POW, j->compute)(j->out, src, (size_t)n, n < 2 ? 0 : 2);
    }
    return status;
}

static int run_row(wf_exec *e, wf_red_job *j, void *scratch, double count, int64_t n)
{
    int status;
    switch ((int)e->op) {
    case WF_OP_PROD:
        j->op = WF_RED_PROD;
        return wf_red_run(j);
    case WF_OP_AMAX:
    case WF_OP_ANY:
        j->op = WF_RED_MAX;
        return wf_red_run(j);
    case WF_OP_AMIN:
    case WF_OP_ALL:
        j->op = WF_RED_MIN;
        return wf_red_run(j);
    case WF_OP_MEAN:
        status = wf_red_run(j);
        wf_red_divide(j->out, j->compute, count, false, status == 0 ? n : 0);
        return status;
    case WF_OP_VAR:
    case WF_OP_STD:
        status = run_with_parameter(j, e->op, count, scratch, n);
        double left = count - (e->attr->n_flt > 0 ? e->attr->flt[0] : 1.0);
        wf_red_divide(j->out, j->compute, left > 0.0 ? left : 0.0, e->op == WF_OP_STD,
                      status == 0 ? n : 0);
        return status;
    case WF_OP_LOGSUMEXP:
        status = run_with_parameter(j, e->op, count, scratch, n);
        if (status == 0) {
            const void *src[2] = {j->out, scratch};
            wf_row_kernel(WF_OP_LOG, j->compute)(j->out, src, (size_t)n, 0);
            wf_row_kernel(WF_OP_ADD, j->compute)(j->out, src, (size_t)n, 0);
        }
        return status;
    case WF_OP_NORM:
        return run_norm(j, e->attr->n_flt > 0 ? e->attr->flt[0] : 2.0, n);
    case WF_OP_SUM:
    case WF_OP_COUNT_NONZERO:
        return wf_red_run(j);
    }
    return wf_fail(e->why, WEFT_EUNSUPPORTED, "%s is no reduction", wf_rows[e->op].name);
}

WF_EXEC_DECL(reduce)
{
    const wf_view *x = &e->src[0], *dst = &e->dst[0];
    wf_red_job j = {.op = WF_RED_SUM, .x = x, .axes = wf_red_axes(e->attr, x->rank)};
    j.truth = e->op == WF_OP_ANY || e->op == WF_OP_ALL || e->op == WF_OP_COUNT_NONZERO;
    j.compute = j.truth ? WEFT_I64 : wf_red_compute(dst->dtype);
    int64_t n = wf_view_numel(dst);
    int64_t reduced = 1;
    for (int i = 0; i < x->rank; i++) {
        reduced *= j.axes >> i & 1u ? x->dims[i] : 1;
    }
    bool two_runs = e->op == WF_OP_VAR || e->op == WF_OP_STD || e->op == WF_OP_LOGSUMEXP;
    bool direct = dst->dtype == j.compute;
    size_t size = wf_red_size(j.compute), one = (size_t)n * size;
    size_t bytes = (two_runs ? one : 0) + (direct ? 0 : one);
    char *scratch = bytes > 0 ? wf_scratch(bytes) : NULL;
    if (bytes > 0 && scratch == NULL) {
        return wf_red_nomem(e->why, (int64_t)bytes);
    }
    j.out = direct ? dst->data : scratch + (two_runs ? one : 0);
    int status = 0;
    if (reduced == 0) {
        fill(j.out, j.compute, empty_value(e->op), n);
    } else if (n > 0) {
        status = run_row(e, &j, scratch, (double)reduced, n);
    }
    if (status == 0 && !direct) {
        wf_red_kernels_of(j.compute)->store(dst->data, dst->dtype, j.out, n);
    }
    wf_scratch_free(scratch, bytes);
    return status != 0 ? wf_red_nomem(e->why, wf_view_numel(x) / WF_BLOCK * 8) : 0;
}

/* -- argmax, argmin ----------------------------------------------------------------------------------- */

typedef struct arg_job {
    const wf_view *x;
    const wf_red_kernels *k;
    wf_red_axis_split g;
    int sign, compute;
    int64_t blocks; /* of the reduced index */
    char *best;     /* [kept][blocks] */
    int64_t *index; /* [kept][blocks], or the results when there is one block */
    int64_t *out;
} arg_job;

static const char *element(const wf_view *v, int64_t offset)
{
    return (const char *)v->data + offset * (int64_t)wf_dtype_size(v->dtype);
}

static void arg_block_task(void *arg, int64_t begin, int64_t end)
{
    const arg_job *j = arg;
    const wf_red_axis_split *g = &j->g;
    _Alignas(64) char buf[WF_BLOCK * 8];
    int64_t inner = g->nr > 0 ? g->rd[g->nr - 1] : 1;
    int64_t step = g->nr > 0 ? g->rx[g->nr - 1] : 1;
    for (int64_t i = begin; i < end; i++) {
        int64_t r = i % j->blocks * WF_BLOCK, base = 0, unused = 0;
        int64_t n = g->reduced - r < WF_BLOCK ? g->reduced - r : WF_BLOCK;
        wf_red_locate(i / j->blocks, g->nk, g->kd, g->kx, g->ky, &base, &unused);
        const void *x = buf;
        if (step == 1 && g->nr == 1 && j->x->dtype == j->compute) {
            x = element(j->x, base + r);
        }
        for (int64_t done = 0; done < n && x == buf;) {
            int64_t in = (r + done) % inner, o = 0;
            int64_t m = inner - in < n - done ? inner - in : n - done;
            wf_red_locate((r + done) / inner, g->nr - 1, g->rd, g->rx, g->ry, &o, &unused);
            wf_red_load(j->compute, false, buf + done * (int64_t)j->k->size, j->x,
                        base + o + in * step, 0, step, 1, m);
            done += m;
        }
        j->index[i] = r + j->k->arg(j->best + i * (int64_t)j->k->size, x, n, j->sign);
    }
}

/* The best of the blocks of one result: the first unless a later one is strictly better. */
static void arg_fold_task(void *arg, int64_t begin, int64_t end)
{
    const arg_job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        value best;
        const char *parts = j->best + i * j->blocks * (int64_t)j->k->size;
        int64_t b = j->k->arg(&best, parts, j->blocks, j->sign);
        j->out[i] = j->index[i * j->blocks + b];
    }
}

enum { ARG_TILE = 512 };

/* Kept columns side by side: a row of candidates at a time. */
static void arg_wide_task(void *arg, int64_t begin, int64_t end)
{
    const arg_job *j = arg;
    const wf_red_axis_split *g = &j->g;
    _Alignas(64) char buf[ARG_TILE * 8];
    _Alignas(64) char best[ARG_TILE * 8];
    int64_t columns = g->kd[g->nk - 1], tiles = (columns + ARG_TILE - 1) / ARG_TILE;
    const int64_t step = g->kx[g->nk - 1];
    for (int64_t i = begin; i < end; i++) {
        int64_t c0 = i % tiles * ARG_TILE, kept = i / tiles * columns + c0, base = 0, unused = 0;
        int64_t n = columns - c0 < ARG_TILE ? columns - c0 : ARG_TILE;
        wf_red_locate(kept, g->nk, g->kd, g->kx, g->ky, &base, &unused);
        memset(j->out + kept, 0, (size_t)n * sizeof(int64_t));
        j->k->load(best, element(j->x, base), j->x->dtype, step, n);
        for (int64_t r = 1; r < g->reduced; r++) {
            int64_t o = base;
            wf_red_locate(r, g->nr, g->rd, g->rx, g->ry, &o, &unused);
            j->k->load(buf, element(j->x, o), j->x->dtype, step, n);
            j->k->arg_row(best, j->out + kept, buf, r, n, j->sign);
        }
    }
}

/* Neighbours among the results lie closer than those of one, or there are few of one. */
static bool arg_is_wide(const wf_red_axis_split *g)
{
    enum { FEW = 32 };
    return g->nr > 0 && g->nk > 0 && g->kd[g->nk - 1] >= 16 &&
           (llabs(g->kx[g->nk - 1]) < llabs(g->rx[g->nr - 1]) || g->reduced < FEW);
}

WF_EXEC_DECL(argreduce)
{
    const wf_view *x = &e->src[0];
    arg_job j = {.x = x, .sign = e->op == WF_OP_ARGMAX ? 1 : -1, .out = e->dst[0].data};
    j.compute = wf_red_compute(x->dtype);
    j.k = wf_red_kernels_of(j.compute);
    wf_red_split(&j.g, x, NULL, wf_red_axes(e->attr, x->rank));
    const wf_red_axis_split *g = &j.g;
    if (g->kept == 0 || g->reduced == 0) {
        return 0;
    }
    if (arg_is_wide(g)) {
        int64_t columns = g->kd[g->nk - 1];
        int64_t tiles = (columns + ARG_TILE - 1) / ARG_TILE * (g->kept / columns);
        wf_parallel_for(tiles, 65536 / (ARG_TILE * g->reduced) + 1, arg_wide_task, &j);
        return 0;
    }
    j.blocks = (g->reduced + WF_BLOCK - 1) / WF_BLOCK;
    size_t bytes = (size_t)(g->kept * j.blocks) * 16;
    j.best = wf_scratch(bytes);
    if (j.best == NULL) {
        return wf_red_nomem(e->why, (int64_t)bytes);
    }
    j.index = j.blocks == 1 ? j.out : (int64_t *)(void *)(j.best + bytes / 2);
    int64_t per = g->reduced < WF_BLOCK ? g->reduced : WF_BLOCK;
    wf_parallel_items(g->kept * j.blocks, per, 1 << 16, 1 << 14, arg_block_task, &j);
    if (j.blocks > 1) {
        wf_parallel_for(g->kept, 65536 / j.blocks + 1, arg_fold_task, &j);
    }
    wf_scratch_free(j.best, bytes);
    return 0;
}
