/*
 * jit/device_compose.c -- rows that the planner has no program for, written as a few that it has.
 *
 * The compositions are those of docs/reductions.md, which the host's kernels follow: all in the compute type, each result
 * rounded once. So the bits are theirs.
 */
#include <math.h>
#include <string.h>

#include "eager/reduce.h"
#include "jit/device_rows.h"

/* A composition being written: after an error everything is 0. */
typedef struct composer {
    wf_fn *f;
    const wf_exec *e;
    int compute, rc;
} composer;

static wf_val then(composer *c, wf_op op, const wf_attr *attr, wf_val a, wf_val b)
{
    wf_val src[2] = {a, b}, out = 0;
    if (!c->rc) {
        c->rc = wf_fn_append(c->f, op, attr, b ? 2 : 1, src, &out, NULL, c->e->why);
    }
    return c->rc ? 0 : out;
}

static wf_val as(composer *c, wf_val v, int dtype)
{
    return c->rc || wf_fn_type(c->f, v)->dtype == dtype
               ? v
               : then(c, WF_OP_CAST, &(wf_attr){.dtype = (uint8_t)dtype}, v, 0);
}

static wf_val number(composer *c, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return wf_fn_scalar(c->f, 2, bits);
}

static void norm(composer *c, wf_val x, wf_val *dst)
{
    const wf_attr *at = c->e->attr;
    double p = at->n_flt > 0 ? at->flt[0] : 2.0;
    bool power = p != 2 && p != 1 && p != 0 && !isinf(p);
    wf_attr axes = {
        .flags = at->flags, .n_ints = at->n_ints, .ints = at->ints, .dtype = (uint8_t)c->compute};
    x = as(c, x, c->compute);
    x = p == 2   ? then(c, WF_OP_MUL, NULL, x, x)
        : p == 0 ? as(c, then(c, WF_OP_NOT_EQUAL, NULL, x, number(c, 0)), c->compute)
                 : then(c, WF_OP_ABS, NULL, x, 0);
    x = power ? then(c, WF_OP_POW, NULL, x, number(c, p)) : x;
    x = then(c, !isinf(p) ? WF_OP_SUM : p > 0 ? WF_OP_AMAX : WF_OP_AMIN, &axes, x, 0);
    x = p == 2 ? then(c, WF_OP_SQRT, NULL, x, 0) : x;
    dst[0] = power ? then(c, WF_OP_POW, NULL, x, number(c, 1.0 / p)) : x;
}

/* -- batch_norm: all axes but the second -------------------------------------------------------------------------------- */

static wf_val sum_channels(composer *c, wf_val v, int rank)
{
    int64_t axes[WF_MAX_RANK];
    int n = 0;
    for (int i = 0; i < rank; i++) {
        if (i != 1) {
            axes[n++] = i;
        }
    }
    wf_attr a = {.n_ints = (uint8_t)n, .ints = axes, .dtype = (uint8_t)c->compute};
    a.flags = WF_FLAG_KEEPDIM;
    return then(c, WF_OP_SUM, &a, v, 0);
}

/* [c] as [1, c, 1, ...] in the compute type, and back. */
static wf_val spread(composer *c, wf_val v, const wf_view *x)
{
    int64_t dims[WF_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        dims[i] = i == 1 ? x->dims[1] : 1;
    }
    return then(c, WF_OP_RESHAPE, &(wf_attr){.n_dyn = x->rank, .dyn = dims}, as(c, v, c->compute),
                0);
}

static wf_val gather(composer *c, wf_val v, const wf_view *x)
{
    return then(c, WF_OP_RESHAPE, &(wf_attr){.n_dyn = 1, .dyn = &x->dims[1]}, v, 0);
}

static double count_of(const wf_view *x)
{
    return (double)(wf_view_numel(x) / x->dims[1]);
}

static wf_val rstd_of(composer *c, wf_val var)
{
    const wf_attr *at = c->e->attr;
    double eps = at->n_flt > 0 ? at->flt[0] : 1e-5;
    wf_val std = then(c, WF_OP_SQRT, NULL, then(c, WF_OP_ADD, NULL, var, number(c, eps)), 0);
    return then(c, WF_OP_RECIPROCAL, NULL, std, 0);
}

static void batch_norm(composer *c, const wf_val *src, wf_val *dst)
{
    const wf_view *x = &c->e->src[0];
    const wf_attr *at = c->e->attr;
    double n = count_of(x);
    wf_val v = as(c, src[0], c->compute), mean, var, d;
    if (at->flags & WF_FLAG_TRAINING) {
        mean = sum_channels(c, v, x->rank);
        mean = then(c, WF_OP_DIV, NULL, mean, number(c, n));
        d = then(c, WF_OP_SUB, NULL, v, mean);
        var = sum_channels(c, then(c, WF_OP_MUL, NULL, d, d), x->rank);
        var = then(c, WF_OP_DIV, NULL, var, number(c, n));
    } else {
        mean = spread(c, src[3], x);
        var = spread(c, src[4], x);
        d = then(c, WF_OP_SUB, NULL, v, mean);
    }
    wf_val y = then(c, WF_OP_MUL, NULL, d, rstd_of(c, var));
    y = then(c, WF_OP_MUL, NULL, y, spread(c, src[1], x));
    dst[0] = then(c, WF_OP_ADD, NULL, y, spread(c, src[2], x));
    dst[1] = gather(c, mean, x);
    dst[2] = gather(c, var, x);
}

static void batch_norm_bwd(composer *c, const wf_val *src, wf_val *dst)
{
    const wf_view *x = &c->e->src[1];
    wf_val g = as(c, src[0], c->compute), v = as(c, src[1], c->compute);
    wf_val n = number(c, count_of(x)), rstd = rstd_of(c, spread(c, src[4], x));
    wf_val scale = then(c, WF_OP_MUL, NULL, spread(c, src[2], x), rstd);
    wf_val xhat = then(c, WF_OP_MUL, NULL, then(c, WF_OP_SUB, NULL, v, spread(c, src[3], x)), rstd);
    wf_val db = sum_channels(c, g, x->rank);
    wf_val dw = sum_channels(c, then(c, WF_OP_MUL, NULL, g, xhat), x->rank);
    if (c->e->attr->flags & WF_FLAG_TRAINING) {
        g = then(c, WF_OP_SUB, NULL, g, then(c, WF_OP_DIV, NULL, db, n));
        xhat = then(c, WF_OP_MUL, NULL, xhat, then(c, WF_OP_DIV, NULL, dw, n));
        g = then(c, WF_OP_SUB, NULL, g, xhat);
    }
    dst[0] = then(c, WF_OP_MUL, NULL, scale, g);
    dst[1] = gather(c, dw, x);
    dst[2] = gather(c, db, x);
}

bool wf_device_is_composed(const wf_exec *e)
{
    bool batch = e->op == WF_OP_BATCH_NORM || e->op == WF_OP_BATCH_NORM_BWD;
    return e->op == WF_OP_NORM ||
           (batch && wf_view_numel(&e->src[e->op == WF_OP_BATCH_NORM_BWD]) > 0);
}

int wf_device_compose(wf_fn *f, const wf_exec *e, const wf_val *src, wf_val *dst)
{
    bool norms = e->op == WF_OP_NORM;
    composer c = {
        .f = f, .e = e, .compute = wf_red_compute(norms ? e->dst[0].dtype : e->src[0].dtype)};
    if (norms) {
        norm(&c, src[0], dst);
    } else if (e->op == WF_OP_BATCH_NORM) {
        batch_norm(&c, src, dst);
    } else {
        batch_norm_bwd(&c, src, dst);
    }
    for (int k = 0; k < e->ndst && !c.rc; k++) {
        dst[k] = as(&c, dst[k], e->dst[k].dtype);
    }
    return c.rc;
}
