/*
 * jit/ir/flops.c -- evaluates flops.def, and counts elementwise rows in their kernel IR; see flops.h.
 *
 * Counts are evaluated in double: exact up to 2^53, and no extent can make them overflow.
 */
#include "jit/ir/flops.h"

#include <math.h>
#include <stdatomic.h>

#include "jit/ir/backend.h"
#include "jit/ir/dtype.h"

/* -- elementwise ------------------------------------------------------------------------------------------ */

static int count_element(wf_op op, int which, int compute)
{
    const bool choose = wf_rows[op].kind == WF_KIND_CHOOSE;
    const int nsrc = wf_rows[op].min_src + (which < 0 ? 0 : 2);
    uint8_t src[8];
    for (int i = 0; i < nsrc; i++) {
        src[i] = (uint8_t)(choose && i == (which < 0 ? 0 : 1) ? WEFT_BOOL : compute);
    }
    const int kind = wf_rows[op].kind;
    const bool truth = which < 0 && (kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE);
    wf_why why = {0};
    wf_kernel k;
    if (wf_kernel_of_row(&k, op, which, compute, nsrc, src, truth ? WEFT_BOOL : compute, &why)) {
        return 0;
    }
    const int n = wf_kir_flops(k.fast.n ? &k.fast : &k.body); /* of ordinary elements */
    wf_kernel_free(&k);
    return n;
}

int wf_flops_element(wf_op op, int which, int compute)
{
    static _Atomic uint16_t cache[WF_OP_COUNT][4][2]; /* count + 1; racing threads count the same */
    if ((compute != WEFT_F32 && compute != WEFT_F64) || !wf_op_is_elementwise(op) || which > 2) {
        return 0;
    }
    _Atomic uint16_t *at = &cache[op][which + 1][compute == WEFT_F64];
    int n = atomic_load_explicit(at, memory_order_relaxed);
    if (n == 0) {
        n = count_element(op, which, compute) + 1;
        atomic_store_explicit(at, (uint16_t)n, memory_order_relaxed);
    }
    return n - 1;
}

/* -- the other rows ---------------------------------------------------------------------------------------- */

typedef struct site {
    const wf_fn *f;
    uint32_t k;
    const wf_val *src;
    const wf_attr *at;
    int nsrc, compute;
} site;

static const wf_type *operand(const site *s, int i)
{
    return i < s->nsrc && s->src[i] ? wf_fn_type(s->f, s->src[i]) : NULL;
}

static double numel(const wf_type *t)
{
    double n = t ? 1 : 0;
    for (int i = 0; t && i < t->rank; i++) {
        n *= (double)t->dims[i];
    }
    return n;
}

static double extent(const wf_type *t, int64_t axis)
{
    axis += t && axis < 0 ? t->rank : 0;
    return t && axis >= 0 && axis < t->rank ? (double)t->dims[axis] : 0;
}

static const wf_type *result(const site *s, int i)
{
    return i < wf_rows[s->f->ins[s->k].op].ndst ? wf_fn_type(s->f, s->k + 1 + (uint32_t)i) : NULL;
}

static bool is_float(const wf_type *t)
{
    return t && wf_dtype_kind(t->dtype) == 2;
}

static double lines(const site *s)
{
    const double n = extent(operand(s, 0), s->at->n_ints ? s->at->ints[0] : -1);
    return n > 0 ? numel(operand(s, 0)) / n : 0;
}

/* Rows of the result's matrices are queries. */
static double pairs(const site *s, int q, int k)
{
    const wf_type *out = q == 0 ? result(s, 0) : operand(s, 4);
    const double l = extent(operand(s, q), -2), n = extent(operand(s, k), -2);
    const double last = extent(out, -1);
    if (l == 0 || n == 0 || last == 0) {
        return 0;
    }
    const double all = numel(out) / last;
    if (!(s->at->flags & WF_FLAG_CAUSAL)) {
        return all * n;
    }
    const double ramp = l < n ? l : n;
    return all / l * (ramp * (ramp + 1) / 2 + (l > n ? (l - n) * n : 0));
}

static double at_least_1(double x)
{
    return x < 1 ? 1 : x;
}

#define X(i) numel(operand(s, i))
#define Y(i) numel(result(s, i))
#define DX(i, a) extent(operand(s, i), a)
#define DY(i, a) extent(result(s, i), a)
#define HAS(i) (operand(s, i) != NULL)
#define ADDED(i) (is_float(operand(s, i)))
#define I(i) (s->at->n_ints > (i) ? s->at->ints[i] : 0)
#define N(i) ((double)I(i))
#define F(i, d) (s->at->n_flt > (i) ? s->at->flt[i] : (double)(d))
#define FLAG (s->at->flags & 1)
#define E(ROW) wf_flops_element(WF_OP_##ROW, -1, s->compute)
#define RED(ops) (X(0) * (ops) - (X(0) > 0 ? Y(0) : 0))
#define LINES lines(s)
#define PAIRS(q, k) pairs(s, q, k)
#define AT_LEAST_1(x) at_least_1((double)(x))
#define FLOPS(NAME, reads, count)                                                                  \
    static double count_##NAME(const site *s)                                                      \
    {                                                                                              \
        (void)s;                                                                                   \
        return (double)(count);                                                                    \
    }
#include "jit/ir/flops.def"

typedef double (*count_fn)(const site *s);
static const count_fn counts[WF_OP_COUNT] = {
#define FLOPS(NAME, reads, count) [WF_OP_##NAME] = count_##NAME,
#include "jit/ir/flops.def"
};
/* A row of ops.def that is missing there does not compile; VJP is counted as the row it differentiates. */
enum {
    HAS_VJP,
#define FLOPS(NAME, reads, count) HAS_##NAME,
#include "jit/ir/flops.def"
    ROWS_HERE,
    ROWS_THERE = 0
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes)               \
    +(HAS_##NAME >= 0)
#include "jit/ir/ops.def"
};
_Static_assert((int)ROWS_HERE == (int)ROWS_THERE, "flops.def has a row that ops.def does not have");

bool wf_flops_picks(wf_op op)
{
    enum { ALL, PICK };
    static const bool picks[WF_OP_COUNT] = {
#define FLOPS(NAME, reads, count) [WF_OP_##NAME] = reads == PICK,
#include "jit/ir/flops.def"
    };
    return picks[op];
}

/* The type that an elementwise instruction computes in: that of its operands, numbers aside. */
static int compute_of(const wf_fn *f, const wf_ins *i, const wf_val *src, int result_type)
{
    int first = wf_rows[i->op].kind == WF_KIND_CHOOSE ? 1 : 0;
    int kind = wf_rows[i->op].kind,
        dtype = kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE ? 0 : result_type;
    for (int a = first; a < i->nsrc && !dtype; a++) {
        dtype = src[a] && !wf_op_is_weak(f->ins[src[a] - 1].op) ? wf_fn_type(f, src[a])->dtype : 0;
    }
    return dtype ? wf_dtype_compute(dtype) : WEFT_F32;
}

int64_t wf_flops(const wf_fn *f, uint32_t k)
{
    const wf_ins *i = &f->ins[k];
    if (wf_rows[i->op].kind == WF_KIND_LEAF || i->op == WF_OP_RESULT) {
        return 0;
    }
    const wf_type *out = wf_fn_type(f, k + 1);
    const wf_val *src = wf_ins_src(f, i);
    const wf_attr *at = wf_ins_attr(f, i);
    for (int a = 0; a < out->rank; a++) {
        if (WF_IS_SYM(out->dims[a])) {
            return 0;
        }
    }
    double n = 0;
    if (wf_op_is_elementwise((wf_op)i->op)) {
        n = numel(out) * wf_flops_element((wf_op)i->op, -1, compute_of(f, i, src, out->dtype));
    } else if (i->op == WF_OP_VJP) {
        n = numel(out) *
            wf_flops_element((wf_op)at->ints[0], (int)at->ints[1], wf_dtype_compute(out->dtype));
    } else if (is_float(out) && counts[i->op]) {
        site s = {f, k, src, at, i->nsrc, wf_dtype_compute(out->dtype)};
        n = counts[i->op](&s);
    }
    return n < 0 ? 0 : n > 9e18 ? INT64_MAX : (int64_t)n;
}
