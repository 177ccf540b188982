/*
 * jit/plan_rows.c -- reductions and row-wise instructions spelled out in programs.
 *
 * The compositions are those of docs/reductions.md, which the eager kernels follow bit for bit: all in
 * the compute type, each result rounded once.
 */
#include "eager/reduce.h"
#include "jit/plan_lower.h"

/* A composition being written; values below 0 pass through, as the program has failed then. */
typedef struct rows {
    wf_lowering *w;
    uint32_t k;
    int compute;
    int64_t n; /* elements of a row */
} rows;

static int f1(const rows *c, wf_op op, int a)
{
    return wf_program_map(c->w->prog, op, c->compute, 1, &a);
}
static int f2(const rows *c, wf_op op, int a, int b)
{
    return wf_program_map(c->w->prog, op, c->compute, 2, (int[]){a, b});
}
static int total(const rows *c, int x)
{
    return wf_program_reduce(c->w->prog, WF_OP_SUM, x);
}
static int scalar(const rows *c, wf_scalar_kind kind)
{
    return wf_lower_scalar(c->w, (wf_scalar_of){c->k, (uint8_t)c->compute, (uint8_t)kind, c->n});
}
static int mean(const rows *c, int x)
{
    return f2(c, WF_OP_DIV, total(c, x), scalar(c, WF_SCALAR_COUNT));
}

/* The largest element, 0 if it is not finite. */
static int finite_max(const rows *c, int x)
{
    int m = wf_program_reduce(c->w->prog, WF_OP_AMAX, x);
    int zero = scalar(c, WF_SCALAR_ZERO);
    return wf_program_map(c->w->prog, WF_OP_WHERE, c->compute, 3,
                          (int[]){f1(c, WF_OP_ISFINITE, m), m, zero});
}

static int logsumexp(const rows *c, int x)
{
    int m = finite_max(c, x);
    int s = total(c, f1(c, WF_OP_EXP, f2(c, WF_OP_SUB, x, m)));
    return f2(c, WF_OP_ADD, m, f1(c, WF_OP_LOG, s));
}

static int deviation(const rows *c, int x, bool root)
{
    int d = f2(c, WF_OP_SUB, x, mean(c, x));
    int v = f2(c, WF_OP_DIV, total(c, f2(c, WF_OP_MUL, d, d)), scalar(c, WF_SCALAR_FREEDOM));
    return root ? f1(c, WF_OP_SQRT, v) : v;
}

static int softmax(const rows *c, int x)
{
    int m = wf_program_reduce(c->w->prog, WF_OP_AMAX, x);
    int e = f1(c, WF_OP_EXP, f2(c, WF_OP_SUB, x, m));
    return f2(c, WF_OP_DIV, e, total(c, e));
}

static int log_softmax(const rows *c, int x)
{
    int d = f2(c, WF_OP_SUB, x, wf_program_reduce(c->w->prog, WF_OP_AMAX, x));
    return f2(c, WF_OP_SUB, d, f1(c, WF_OP_LOG, total(c, f1(c, WF_OP_EXP, d))));
}

/* layer_norm and rms_norm: y, (mean,) rstd. */
static void norm(const rows *c, const int *x, int nsrc, bool center, int *r)
{
    int m = center ? mean(c, x[0]) : -1;
    int d = center ? f2(c, WF_OP_SUB, x[0], m) : x[0];
    int var = f2(c, WF_OP_DIV, total(c, f2(c, WF_OP_MUL, d, d)), scalar(c, WF_SCALAR_COUNT));
    int rstd =
        f1(c, WF_OP_RECIPROCAL, f1(c, WF_OP_SQRT, f2(c, WF_OP_ADD, var, scalar(c, WF_SCALAR_EPS))));
    int y = f2(c, WF_OP_MUL, d, rstd);
    y = nsrc > 1 && x[1] >= 0 ? f2(c, WF_OP_MUL, y, x[1]) : y;
    r[0] = nsrc > 2 && x[2] >= 0 ? f2(c, WF_OP_ADD, y, x[2]) : y;
    r[1] = center ? m : rstd;
    r[2] = rstd;
}

static int reduction(const rows *c, wf_op op, int x)
{
    wf_program *p = c->w->prog;
    if (op == WF_OP_ANY || op == WF_OP_ALL) {
        return wf_program_reduce(p, op, wf_program_cast(p, x, WEFT_BOOL));
    }
    if (op == WF_OP_COUNT_NONZERO) {
        x = wf_program_cast(p, x, WEFT_BOOL);
        return wf_program_reduce(p, WF_OP_SUM, wf_program_cast(p, x, WEFT_I64));
    }
    x = wf_program_cast(p, x, c->compute);
    return op == WF_OP_MEAN        ? mean(c, x)
           : op == WF_OP_VAR       ? deviation(c, x, false)
           : op == WF_OP_STD       ? deviation(c, x, true)
           : op == WF_OP_LOGSUMEXP ? logsumexp(c, x)
                                   : wf_program_reduce(p, op, x);
}

int wf_lower_row_op(wf_lowering *w, uint32_t k, int *r)
{
    const wf_fn *f = w->b->f;
    const wf_ins *i = &f->ins[k];
    const wf_op op = (wf_op)i->op;
    const wf_val *src = wf_ins_src(f, i);
    const wf_iter *s = &w->g->space;
    bool reduces = wf_rows[op].kind == WF_KIND_REDUCE;
    rows c = {.w = w, .k = k, .n = s->count / s->kept};
    c.compute = wf_red_compute(reduces ? f->types[i->type].dtype : wf_fn_type(f, src[0])->dtype);
    int x[3] = {-1, -1, -1};
    for (int a = 0; a < i->nsrc; a++) {
        x[a] = src[a] ? wf_lower_read(w, k, src[a], c.compute) : -1;
        x[a] = src[a] && x[a] >= 0 && !reduces ? wf_program_cast(w->prog, x[a], c.compute) : x[a];
        if (src[a] && x[a] < 0) {
            return -1;
        }
    }
    if (reduces) {
        r[0] = reduction(&c, op, x[0]);
    } else if (op == WF_OP_SOFTMAX) {
        r[0] = softmax(&c, x[0]);
    } else if (op == WF_OP_LOG_SOFTMAX) {
        r[0] = log_softmax(&c, x[0]);
    } else if (op == WF_OP_SOFTMAX_BWD) {
        int sum = total(&c, f2(&c, WF_OP_MUL, x[0], x[1]));
        r[0] = f2(&c, WF_OP_MUL, x[1], f2(&c, WF_OP_SUB, x[0], sum));
    } else if (op == WF_OP_LOG_SOFTMAX_BWD) {
        int e = f1(&c, WF_OP_EXP, x[1]);
        r[0] = f2(&c, WF_OP_SUB, x[0], f2(&c, WF_OP_MUL, e, total(&c, x[0])));
    } else {
        norm(&c, x, i->nsrc, op == WF_OP_LAYER_NORM, r);
    }
    for (int n = 0; n < wf_rows[op].ndst; n++) {
        r[n] = r[n] < 0 ? -1
                        : wf_program_cast(w->prog, r[n], wf_fn_type(f, k + 1 + (uint32_t)n)->dtype);
        if (r[n] < 0) {
            return -1;
        }
    }
    return 0;
}
