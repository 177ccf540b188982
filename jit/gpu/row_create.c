/*
 * jit/gpu/row_create.c -- full, arange, linspace, eye and random fills: each element from its number, with the
 * bits of eager/create.c.
 */
#include <stdio.h>

#include "eager/dense.h"
#include "jit/gpu/impl.h"
#include "jit/ir/kir_random.h"

enum { MAX_SCALAR = 5 };

typedef enum what { RANGE, WHOLE_RANGE, CLOSED_RANGE, DRAW } what;

typedef struct fill {
    what kind;
    wf_kir_draw draw;
    int dtype;
    int nscalar;
    uint64_t scalar[MAX_SCALAR];
} fill;

static wf_kref f2(wf_kir *k, wf_kprim op, wf_kref a, wf_kref b)
{
    return wf_kir_op(k, op, a, b, WF_KREF_NONE);
}

/* start + number * step */
static wf_kref along(wf_kir *k, wf_kref start, wf_kref number, wf_kref step)
{
    return f2(k, WF_KP_ADD, start, f2(k, WF_KP_MUL, wf_kir_cast(k, WF_KT_F64, number), step));
}

/* Both halves count from their own end. */
static wf_kref closed(wf_kir *k, const wf_kref *s, wf_kref number)
{
    const wf_kref n = s[3], one = wf_kir_const(k, WF_KT_I64, 1);
    const wf_kref left = f2(k, WF_KP_SUB, n, number);
    const wf_kref back = f2(k, WF_KP_SUB, f2(k, WF_KP_SUB, n, one), number);
    const wf_kref low = along(k, s[0], number, s[1]);
    const wf_kref high =
        f2(k, WF_KP_SUB, s[2], f2(k, WF_KP_MUL, wf_kir_cast(k, WF_KT_F64, back), s[1]));
    return wf_kir_op(k, WF_KP_SELECT, f2(k, WF_KP_LT, number, left), low, high);
}

static wf_kty scalar_type(const fill *f, int i)
{
    const bool wide = f->dtype == WEFT_F64;
    if (f->kind != DRAW)
        return f->kind == WHOLE_RANGE || i == 3 ? WF_KT_I64 : WF_KT_F64;
    if (i < 2 || f->draw == WF_DRAW_INTEGER)
        return WF_KT_U64;
    return f->draw == WF_DRAW_BERNOULLI ? WF_KT_U32 : wide ? WF_KT_F64 : WF_KT_F32;
}

static int build(wf_kernel *k, const void *arg, wf_why *why)
{
    const fill *f = arg;
    wf_kref s[MAX_SCALAR];
    wf_kernel_init(k, WF_SK_MAP, 0);
    k->nscalar = f->nscalar;
    for (int i = 0; i < f->nscalar; i++)
        s[i] = wf_kir_param(&k->body, scalar_type(f, i));
    const wf_kref number = wf_kir_param(&k->body, WF_KT_I64);
    wf_kref y;
    if (f->kind == RANGE)
        y = along(&k->body, s[0], number, s[1]);
    else if (f->kind == WHOLE_RANGE)
        y = f2(&k->body, WF_KP_ADD, s[0], f2(&k->body, WF_KP_MUL, number, s[1]));
    else if (f->kind == CLOSED_RANGE)
        y = closed(&k->body, s, number);
    else
        y = wf_kir_random(&k->body, f->draw, f->dtype == WEFT_F64, number, s);
    wf_kir_output(&k->body, wf_kir_store(&k->body, f->dtype, y));
    return wf_kir_finish(&k->body, why);
}

static int run(int ordinal, const fill *f, const wf_view *dst, wf_why *why)
{
    static const char *const kinds[] = {"range", "whole_range", "closed_range", "draw"};
    char name[40];
    snprintf(name, sizeof name, "%s%d_%s", kinds[f->kind], f->kind == DRAW ? (int)f->draw : 0,
             wf_dtype_name(f->dtype));
    const wf_gpu_entry *e = wf_gpu_entry_named(name, build, f, why);
    return e ? wf_gpu_number_kernel(ordinal, e, dst, f->scalar, why) : why->code;
}

static uint64_t bits(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

/* A value of the type that dtype is computed in, f32 or f64. */
static uint64_t float_bits(int dtype, double v)
{
    const float x = (float)v;
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return dtype == WEFT_F64 ? bits(v) : u;
}

/* value or whole as an element of dtype dt. */
static uint64_t element_of(double value, int64_t whole, bool is_whole, int dt)
{
    static const int64_t unit = 1;
    uint64_t out = 0;
    const wf_view to = wf_view_dense(&out, dt, 1, &unit);
    const wf_view from = is_whole ? wf_view_dense(&whole, WEFT_I64, 1, &unit)
                                  : wf_view_dense(&value, WEFT_F64, 1, &unit);
    wf_copy(&to, &from);
    return out;
}

static int full(int ordinal, wf_exec *e)
{
    const wf_attr *a = e->attr;
    const bool whole = a->n_flt == 0;
    const uint64_t v =
        element_of(whole ? 0 : a->flt[0], whole ? a->dyn[a->n_dyn - 1] : 0, whole, e->dst[0].dtype);
    return wf_gpu_fill(ordinal, &e->dst[0], &v, e->why);
}

static int eye(int ordinal, wf_exec *e)
{
    const wf_view *dst = &e->dst[0];
    const uint64_t zero = 0, one = element_of(1, 0, false, dst->dtype);
    const int status = wf_gpu_fill(ordinal, dst, &zero, e->why);
    const int64_t rows = dst->dims[0], cols = dst->dims[1], k = e->attr->dyn[2];
    if (status != 0 || k >= cols || k <= -rows)
        return status;
    const int64_t row = k < 0 ? -k : 0, col = k > 0 ? k : 0;
    const int64_t n = rows - row < cols - col ? rows - row : cols - col;
    wf_view diagonal =
        wf_view_dense((char *)dst->data + (row * cols + col) * (int64_t)wf_dtype_size(dst->dtype),
                      dst->dtype, 1, &n);
    diagonal.strides[0] = cols + 1;
    return wf_gpu_fill(ordinal, &diagonal, &one, e->why);
}

static int range(int ordinal, wf_exec *e)
{
    const wf_attr *at = e->attr;
    const int64_t n = e->dst[0].dims[0];
    fill f = {.kind = RANGE, .dtype = e->dst[0].dtype, .nscalar = 2};
    if (e->op == WF_OP_LINSPACE) {
        const double start = at->flt[0], stop = n == 1 ? start : at->flt[1];
        f.kind = CLOSED_RANGE;
        f.nscalar = 4;
        f.scalar[0] = bits(start);
        f.scalar[1] = bits(n > 1 ? (at->flt[1] - start) / (double)(n - 1) : 0);
        f.scalar[2] = bits(stop);
        f.scalar[3] = (uint64_t)n;
    } else if (at->n_dyn == 3) {
        f.kind = WHOLE_RANGE;
        f.scalar[0] = (uint64_t)at->dyn[1];
        f.scalar[1] = (uint64_t)at->dyn[2];
    } else {
        f.scalar[0] = bits(at->flt[0]);
        f.scalar[1] = bits(at->flt[1]);
    }
    return run(ordinal, &f, &e->dst[0], e->why);
}

int wf_gpu_draw(int ordinal, const wf_draw *d, const wf_view *dst, wf_why *why)
{
    const int dtype = dst->dtype;
    fill f = {.kind = DRAW, .dtype = dtype, .nscalar = 4};
    f.scalar[0] = d->seed;
    f.scalar[1] = d->offset;
    if (d->op == WF_OP_RANDINT) {
        f.draw = WF_DRAW_INTEGER;
        f.scalar[2] = (uint64_t)d->low;
        f.scalar[3] = d->low < d->high ? (uint64_t)d->high - (uint64_t)d->low : 1;
    } else if (d->op == WF_OP_BERNOULLI) {
        f.draw = WF_DRAW_BERNOULLI;
        f.scalar[2] = d->p >= 1 ? 1u << 24 : d->p > 0 ? (uint64_t)__builtin_ceil(d->p * 0x1p24) : 0;
    } else {
        f.draw = d->op == WF_OP_RAND ? WF_DRAW_UNIFORM : WF_DRAW_NORMAL;
        f.scalar[2] = float_bits(dtype, d->p);
        f.scalar[3] = float_bits(dtype, d->q);
    }
    return run(ordinal, &f, dst, why);
}

static int draw(int ordinal, wf_exec *e)
{
    const wf_attr *at = e->attr;
    const int rank = e->dst[0].rank;
    const bool whole = e->op == WF_OP_RANDINT;
    const wf_draw d = {.op = e->op,
                       .seed = (uint64_t)at->dyn[rank],
                       .offset = (uint64_t)at->dyn[rank + 1],
                       .p = at->n_flt > 0 ? at->flt[0] : 0,
                       .q = at->n_flt > 1 ? at->flt[1] : 0,
                       .low = whole ? at->dyn[rank + 2] : 0,
                       .high = whole ? at->dyn[rank + 3] : 0};
    return wf_gpu_draw(ordinal, &d, &e->dst[0], e->why);
}

int wf_gpu_row_create(int ordinal, wf_exec *e)
{
    if (wf_view_numel(&e->dst[0]) == 0)
        return 0;
    if (e->op == WF_OP_FULL)
        return full(ordinal, e);
    if (e->op == WF_OP_EYE)
        return eye(ordinal, e);
    if (e->op == WF_OP_ARANGE || e->op == WF_OP_LINSPACE)
        return range(ordinal, e);
    return draw(ordinal, e);
}
