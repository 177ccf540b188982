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
    int sum = total(c, x);
    return f2(c, WF_OP_DIV, sum, scalar(c, WF_SCALAR_COUNT));
}

/* The largest element, 0 if it is not finite. */
static int finite_max(const rows *c, int x)
{
    int m = wf_program_reduce(c->w->prog, WF_OP_AMAX, x);
    int zero = scalar(c, WF_SCALAR_ZERO);
    return wf_program_map(c->w->prog, WF_OP_WHERE, c->compute, 3,
                          (int[]){f1(c, WF_OP_ISFINITE, m), m, zero});
}

static int euclidean(const rows *c, int x)
{
    return f1(c, WF_OP_SQRT, total(c, f2(c, WF_OP_MUL, x, x)));
}

static int log_of_sum(const rows *c, int x, int m)
{
    int s = total(c, f1(c, WF_OP_EXP, f2(c, WF_OP_SUB, x, m)));
    return f2(c, WF_OP_ADD, m, f1(c, WF_OP_LOG, s));
}

static int logsumexp(const rows *c, int x)
{
    return log_of_sum(c, x, finite_max(c, x));
}

static int deviation(const rows *c, int x, bool root)
{
    int d = f2(c, WF_OP_SUB, x, mean(c, x));
    int sum = total(c, f2(c, WF_OP_MUL, d, d));
    int v = f2(c, WF_OP_DIV, sum, scalar(c, WF_SCALAR_FREEDOM));
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

/* layer_norm and rms_norm: y, (mean,) rstd. once: weight and bias are one rounding. */
static void norm(const rows *c, const int *x, int nsrc, bool center, bool once, int *r)
{
    int m = center ? mean(c, x[0]) : -1;
    int d = center ? f2(c, WF_OP_SUB, x[0], m) : x[0];
    int var = mean(c, f2(c, WF_OP_MUL, d, d));
    int rstd =
        f1(c, WF_OP_RECIPROCAL, f1(c, WF_OP_SQRT, f2(c, WF_OP_ADD, var, scalar(c, WF_SCALAR_EPS))));
    int y = f2(c, WF_OP_MUL, d, rstd);
    const bool w = nsrc > 1 && x[1] >= 0, b = nsrc > 2 && x[2] >= 0;
    if (once && w && b) {
        r[0] = wf_program_map(c->w->prog, WF_OP_FMA, c->compute, 3, (int[]){y, x[1], x[2]});
    } else {
        y = w ? f2(c, WF_OP_MUL, y, x[1]) : y;
        r[0] = b ? f2(c, WF_OP_ADD, y, x[2]) : y;
    }
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
           : op == WF_OP_NORM      ? euclidean(c, x)
           : op == WF_OP_LOGSUMEXP ? logsumexp(c, x)
                                   : wf_program_reduce(p, op, x);
}

/* -- cross entropy ------------------------------------------------------------------------------------------- */

static int equal(const rows *c, wf_op op, int a, int b)
{
    return wf_program_map(c->w->prog, op, WEFT_I64, 2, (int[]){a, b});
}
static int where(const rows *c, int p, int a, int b)
{
    return wf_program_map(c->w->prog, WF_OP_WHERE, c->compute, 3, (int[]){p, a, b});
}

/* The value where the target is not left out, else 0. */
static int unless_ignored(const rows *c, int target, int value)
{
    int ignore = wf_lower_scalar(c->w, (wf_scalar_of){c->k, WEFT_I64, WF_SCALAR_IGNORE, 0});
    int used = equal(c, WF_OP_NOT_EQUAL, target, ignore);
    return where(c, used, value, scalar(c, WF_SCALAR_ZERO));
}

enum { PICKED = 12 }; /* instructions that are run again for one element of a row */

/* Can one element of v be made from elements in memory, by as few instructions as are left? */
static bool is_pickable(const wf_program *p, int v, int *left)
{
    if (p->level[v] != WF_LEVEL_ELEM) {
        return true;
    }
    if (p->def[v] < 0) {
        return p->def[v] >= -WF_PROGRAM_INPUTS && p->draw[-1 - p->def[v]].op == WF_OP_INVALID;
    }
    const wf_inst *i = &p->inst[p->def[v]];
    bool can = (i->kind == WF_INST_MAP || i->kind == WF_INST_VJP || i->kind == WF_INST_CAST) &&
               --*left >= 0;
    for (int a = 0; a < i->nsrc && can; a++) {
        can = i->src[a] < 0 || is_pickable(p, i->src[a], left);
    }
    return can;
}

/* Element `index` of v, which can be: the same instructions on picked operands. */
static int pick(wf_program *p, int v, int index)
{
    if (p->level[v] != WF_LEVEL_ELEM) {
        return v;
    }
    if (p->def[v] < 0) {
        return wf_program_pick(p, v, index);
    }
    const wf_inst i = p->inst[p->def[v]];
    int src[5];
    for (int a = 0; a < i.nsrc; a++) {
        src[a] = i.src[a] < 0 ? -1 : pick(p, i.src[a], index);
    }
    return i.kind == WF_INST_MAP   ? wf_program_map(p, (wf_op)i.op, i.compute, i.nsrc, src)
           : i.kind == WF_INST_VJP ? wf_program_vjp(p, (wf_op)i.op, i.which, i.compute, i.nsrc, src)
                                   : wf_program_cast(p, src[0], p->type[v]);
}

/* x at the target: made for that one from memory, or the sum of it and of zeros that change no bits. */
static int at_target(const rows *c, int raw, int x, int target)
{
    wf_program *p = c->w->prog;
    int left = PICKED;
    if (raw >= 0 && is_pickable(p, raw, &left)) {
        return wf_program_cast(p, pick(p, raw, target), c->compute);
    }
    int hit = equal(c, WF_OP_EQUAL, wf_program_iota(p, WEFT_I64), target);
    return total(c, where(c, hit, x, scalar(c, WF_SCALAR_MINUS_ZERO)));
}

static void cross_entropy(const rows *c, int raw, int target, bool smooth, int *r)
{
    int x = wf_program_cast(c->w->prog, raw, c->compute);
    int lse = log_of_sum(c, x, wf_program_reduce(c->w->prog, WF_OP_AMAX, x));
    int loss = f2(c, WF_OP_SUB, lse, at_target(c, raw, x, target));
    if (smooth) {
        int even = mean(c, f2(c, WF_OP_SUB, lse, x));
        even = f2(c, WF_OP_MUL, scalar(c, WF_SCALAR_SMOOTH), even);
        loss = f2(c, WF_OP_ADD, f2(c, WF_OP_MUL, scalar(c, WF_SCALAR_REST), loss), even);
    }
    r[0] = unless_ignored(c, target, loss);
    r[1] = lse;
}

static int cross_entropy_bwd(const rows *c, int g, int x, int target, int lse)
{
    int hit = equal(c, WF_OP_EQUAL, wf_program_iota(c->w->prog, WEFT_I64), target);
    int there = scalar(c, WF_SCALAR_THERE);
    int q = where(c, hit, there, scalar(c, WF_SCALAR_SHARE));
    int e = f1(c, WF_OP_EXP, f2(c, WF_OP_SUB, x, lse));
    return unless_ignored(c, target, f2(c, WF_OP_MUL, g, f2(c, WF_OP_SUB, e, q)));
}

static int both(const rows *c, wf_op op, int a, int b)
{
    return wf_program_map(c->w->prog, op, WEFT_BOOL, 2, (int[]){a, b});
}

/* On a device the group itself looks at its targets. */
static void check_target(const rows *c, int target)
{
    wf_lowering *w = c->w;
    int zero = wf_lower_scalar(w, (wf_scalar_of){c->k, WEFT_I64, WF_SCALAR_ZERO, 0});
    int n = wf_lower_scalar(w, (wf_scalar_of){c->k, WEFT_I64, WF_SCALAR_COUNT, c->n});
    int ignore = wf_lower_scalar(w, (wf_scalar_of){c->k, WEFT_I64, WF_SCALAR_IGNORE, 0});
    int there = equal(c, WF_OP_GREATER_EQUAL, target, zero);
    there = both(c, WF_OP_LOGICAL_AND, there, equal(c, WF_OP_LESS, target, n));
    int good = both(c, WF_OP_LOGICAL_OR, there, equal(c, WF_OP_EQUAL, target, ignore));
    wf_program_check_index(w->prog, good, target);
}

/* The targets of k, and that they are to be checked; -1: as wf_lower_read, or no memory. */
static int read_targets(const rows *c)
{
    wf_lowering *w = c->w;
    wf_plan *p = w->b->p;
    int v = wf_lower_read(w, c->k, wf_targets_of(&w->b->l, c->k), WEFT_I64), at = 0;
    if (v < 0) {
        return -1;
    }
    while (at + 1 < w->prog->ninput && w->in_value[at] != v) {
        at++;
    }
    if (wf_grow(&p->checks, p->nchecks, 1, &p->capchecks, sizeof *p->checks)) {
        w->b->why->code = WEFT_ENOMEM;
        return -1;
    }
    p->checks[p->nchecks++] = (wf_plan_check){c->k, (uint16_t)at, c->n};
    v = wf_program_cast(w->prog, v, WEFT_I64);
    if (w->b->opts->flags & WF_PLAN_ALONE) {
        check_target(c, v);
    }
    return v;
}

/* Both ways; its operands are of several types and levels. */
static int lower_loss(rows *c, int *r)
{
    wf_lowering *w = c->w;
    const wf_fn *f = w->b->f;
    const wf_ins *i = &f->ins[c->k];
    const wf_val *src = wf_ins_src(f, i);
    const bool back = i->op == WF_OP_CROSS_ENTROPY_BWD;
    const wf_attr *at = wf_ins_attr(f, i);
    c->compute = wf_red_compute(wf_fn_type(f, src[back])->dtype);
    int target = read_targets(c), x = wf_lower_read(w, c->k, src[back], c->compute);
    if (target < 0 || x < 0) {
        return -1;
    }
    if (!back) {
        cross_entropy(c, x, target, wf_plan_key_flt((wf_op)i->op, at), r);
        return 0;
    }
    int g = wf_lower_read(w, c->k, src[0], c->compute);
    int lse = wf_lower_read(w, c->k, src[3], c->compute);
    if (g < 0 || lse < 0) {
        return -1;
    }
    g = wf_program_cast(w->prog, g, c->compute);
    lse = wf_program_cast(w->prog, lse, c->compute);
    r[0] = cross_entropy_bwd(c, g, wf_program_cast(w->prog, x, c->compute), target, lse);
    return 0;
}

/* -- all of them --------------------------------------------------------------------------------------------- */

static int lower_composition(rows *c, int *r)
{
    wf_lowering *w = c->w;
    const wf_fn *f = w->b->f;
    const wf_ins *i = &f->ins[c->k];
    const wf_op op = (wf_op)i->op;
    const wf_val *src = wf_ins_src(f, i);
    bool reduces = wf_rows[op].kind == WF_KIND_REDUCE;
    c->compute = wf_red_compute(reduces ? f->types[i->type].dtype : wf_fn_type(f, src[0])->dtype);
    int x[3] = {-1, -1, -1};
    for (int a = 0; a < i->nsrc; a++) {
        x[a] = src[a] ? wf_lower_read(w, c->k, src[a], c->compute) : -1;
        x[a] = src[a] && x[a] >= 0 && !reduces ? wf_program_cast(w->prog, x[a], c->compute) : x[a];
        if (src[a] && x[a] < 0) {
            return -1;
        }
    }
    if (reduces) {
        r[0] = reduction(c, op, x[0]);
    } else if (op == WF_OP_SOFTMAX) {
        r[0] = softmax(c, x[0]);
    } else if (op == WF_OP_LOG_SOFTMAX) {
        r[0] = log_softmax(c, x[0]);
    } else if (op == WF_OP_SOFTMAX_BWD) {
        int sum = total(c, f2(c, WF_OP_MUL, x[0], x[1]));
        r[0] = f2(c, WF_OP_MUL, x[1], f2(c, WF_OP_SUB, x[0], sum));
    } else if (op == WF_OP_LOG_SOFTMAX_BWD) {
        int e = f1(c, WF_OP_EXP, x[1]);
        r[0] = f2(c, WF_OP_SUB, x[0], f2(c, WF_OP_MUL, e, total(c, x[0])));
    } else {
        const bool once = wf_ins_attr(f, i)->flags & WF_FLAG_CHANNELS;
        norm(c, x, i->nsrc, op == WF_OP_LAYER_NORM, once, r);
    }
    return 0;
}

int wf_lower_row_op(wf_lowering *w, uint32_t k, int *r)
{
    const wf_fn *f = w->b->f;
    const wf_op op = (wf_op)f->ins[k].op;
    const wf_iter *s = &w->g->space;
    rows c = {.w = w, .k = k, .n = s->count / s->kept};
    int rc = wf_targets_of(&w->b->l, k) ? lower_loss(&c, r) : lower_composition(&c, r);
    for (int n = 0; n < wf_rows[op].ndst && !rc; n++) {
        r[n] = r[n] < 0 ? -1
                        : wf_program_cast(w->prog, r[n], wf_fn_type(f, k + 1 + (uint32_t)n)->dtype);
        rc = r[n] < 0 ? -1 : 0;
    }
    return rc;
}
