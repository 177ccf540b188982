/*
 * jit/gpu/row_norm.c -- vector norms, gradients of the layer norms and cross entropy as programs: the compositions of
 * docs/reductions.md, so they have the CPU's bits.
 */
#include "eager/dense.h"
#include "eager/reduce.h"
#include "jit/gpu/impl.h"

typedef struct writer {
    wf_program *p;
    int compute;
} writer;

static int f1(writer *w, wf_op op, int a)
{
    return wf_program_map(w->p, op, w->compute, 1, &a);
}
static int f2(writer *w, wf_op op, int a, int b)
{
    return wf_program_map(w->p, op, w->compute, 2, (int[]){a, b});
}
static int total(writer *w, int x)
{
    return wf_program_reduce(w->p, WF_OP_SUM, x);
}
static int input(writer *w, int dtype)
{
    return wf_program_cast(w->p, wf_program_input(w->p, dtype), w->compute);
}
static int row_input(writer *w, int dtype)
{
    return wf_program_cast(w->p, wf_program_input_row(w->p, dtype), w->compute);
}
static void output(writer *w, int value, int dtype)
{
    wf_program_output(w->p, wf_program_cast(w->p, value, dtype));
}

/* v as a matrix of the dims, strides as given. */
static wf_view matrix(const wf_view *v, int64_t rows, int64_t cols, int64_t down, int64_t across)
{
    return (wf_view){.data = v->data,
                     .dtype = v->dtype,
                     .rank = 2,
                     .dims = {rows, cols},
                     .strides = {down, across}};
}

static void scalar_of(int compute, double v, uint64_t *out)
{
    const float x = (float)v;
    *out = 0;
    memcpy(out, compute == WEFT_F64 ? (const void *)&v : (const void *)&x,
           compute == WEFT_F64 ? 8 : 4);
}

/* -- layer_norm_bwd, rms_norm_bwd -------------------------------------------------------------------------- */
enum { G, X, MEAN, RSTD, W, OPERANDS };

typedef struct norm {
    int ordinal, compute;
    wf_exec *e;
    wf_gpu_temps temps;
    wf_view of[OPERANDS]; /* dense */
    bool center, weight;
    int64_t rows, n;
    int64_t d[4]; /* WF_FLAG_CHANNELS: samples, groups, channels of each, elements of each */
} norm;

/* (x - mean) * rstd */
static int normal(writer *w, const norm *t, int x, int mean, int rstd)
{
    return f2(w, WF_OP_MUL, t->center ? f2(w, WF_OP_SUB, x, mean) : x, rstd);
}

typedef enum shape { WHOLE, OF_ROWS, OF_COLUMNS } shape;

/* v over all elements, a matrix or, with channels, what their axes are; OF_ROWS: a value a row, OF_COLUMNS: a weight. */
static wf_view spread(const norm *t, const wf_view *v, shape of)
{
    if (!t->d[1])
        return matrix(v, t->rows, t->n, of == WHOLE ? t->n : of == OF_ROWS, of != OF_ROWS);
    wf_view r = {.data = v->data, .dtype = v->dtype, .rank = 4};
    memcpy(r.dims, t->d, sizeof t->d);
    r.strides[3] = of == WHOLE;
    r.strides[2] = of == WHOLE ? t->d[3] : of == OF_COLUMNS;
    r.strides[1] = of == OF_ROWS ? 1 : t->d[2] * (of == WHOLE ? t->d[3] : 1);
    r.strides[0] = of == OF_COLUMNS ? 0 : t->d[1] * r.strides[1];
    return r;
}

/* The operands of a program, in the order of its inputs. */
static void operands_of(const norm *t, bool weight, wf_view src[OPERANDS])
{
    int n = 0;
    src[n++] = spread(t, &t->of[G], WHOLE);
    src[n++] = spread(t, &t->of[X], WHOLE);
    if (t->center)
        src[n++] = spread(t, &t->of[MEAN], OF_ROWS);
    src[n++] = spread(t, &t->of[RSTD], OF_ROWS);
    if (weight)
        src[n++] = spread(t, &t->of[W], OF_COLUMNS);
}

static bool write_dx(wf_program *p, const void *arg)
{
    const norm *t = arg;
    writer w = {p, t->compute};
    const int g = input(&w, t->of[G].dtype), x = input(&w, t->of[X].dtype);
    const int mean = t->center ? row_input(&w, t->of[MEAN].dtype) : -1;
    const int rstd = row_input(&w, t->of[RSTD].dtype);
    const int gw = t->weight ? f2(&w, WF_OP_MUL, g, input(&w, t->of[W].dtype)) : g;
    const int count = wf_program_scalar(p, t->compute), xhat = normal(&w, t, x, mean, rstd);
    const int along = f2(&w, WF_OP_DIV, total(&w, f2(&w, WF_OP_MUL, gw, xhat)), count);
    int d = gw;
    if (t->center)
        d = f2(&w, WF_OP_SUB, gw, f2(&w, WF_OP_DIV, total(&w, gw), count));
    d = f2(&w, WF_OP_SUB, d, f2(&w, WF_OP_MUL, xhat, along));
    output(&w, f2(&w, WF_OP_MUL, rstd, d), t->e->dst[0].dtype);
    return wf_program_finish(p) == 0;
}

static bool write_sums(wf_program *p, const void *arg)
{
    const norm *t = arg;
    writer w = {p, t->compute};
    const int g = input(&w, t->of[G].dtype), x = input(&w, t->of[X].dtype);
    const int mean = t->center ? input(&w, t->of[MEAN].dtype) : -1;
    const int rstd = input(&w, t->of[RSTD].dtype);
    output(&w, total(&w, f2(&w, WF_OP_MUL, g, normal(&w, t, x, mean, rstd))), t->e->dst[1].dtype);
    if (t->center)
        output(&w, total(&w, g), t->e->dst[2].dtype);
    return wf_program_finish(p) == 0;
}

/* What a program of the gradient depends on. */
static wf_gpu_spelling spelling_of(const norm *t, wf_gpu_write *write)
{
    wf_gpu_spelling k = {.write = write, .what = {(uint8_t)t->compute, t->center, t->weight}};
    for (int i = 0; i < OPERANDS; i++) {
        const bool there = (i != MEAN || t->center) && (i != W || t->weight);
        k.what[3 + i] = there ? t->of[i].dtype : 0;
    }
    for (int i = 0; i < t->e->ndst; i++)
        k.what[3 + OPERANDS + i] = t->e->dst[i].dtype;
    return k;
}

static int run_dx(norm *t)
{
    wf_program own;
    const wf_gpu_spelling k = spelling_of(t, write_dx);
    const wf_program *p = wf_gpu_spelled(&k, t, &own);
    wf_view src[OPERANDS], dst = spread(t, &t->e->dst[0], WHOLE);
    uint64_t n;
    operands_of(t, t->weight, src);
    scalar_of(t->compute, (double)t->n, &n);
    const void *scalars[1] = {&n};
    const unsigned axes = t->d[1] ? 12 : 2;
    const wf_program_args a = {.dst = &dst, .src = src, .scalars = scalars, .axes = axes};
    return p ? wf_gpu_program(t->ordinal, p, 0, &a, t->e->why) : WEFT_EUNSUPPORTED;
}

/* Sums over rows of g * xhat, and of g. */
static int run_sums(norm *t)
{
    wf_program own;
    const wf_gpu_spelling k = spelling_of(t, write_sums);
    const wf_program *p = wf_gpu_spelled(&k, t, &own);
    wf_view src[OPERANDS], dst[2];
    operands_of(t, false, src);
    dst[0] = spread(t, &t->e->dst[1], OF_COLUMNS);
    if (t->center)
        dst[1] = spread(t, &t->e->dst[2], OF_COLUMNS);
    const wf_program_args a = {.dst = dst, .src = src, .axes = t->d[1] ? 9 : 1};
    return p ? wf_gpu_program(t->ordinal, p, 0, &a, t->e->why) : WEFT_EUNSUPPORTED;
}

int wf_gpu_row_norm_bwd(int ordinal, wf_exec *e)
{
    norm t = {.ordinal = ordinal,
              .e = e,
              .temps.ordinal = ordinal,
              .center = e->op == WF_OP_LAYER_NORM_BWD};
    const int at_rstd = t.center ? 3 : 2;
    const wf_view *of[OPERANDS] = {&e->src[0], &e->src[1], t.center ? &e->src[2] : NULL,
                                   &e->src[at_rstd],
                                   e->nsrc > at_rstd + 1 ? &e->src[at_rstd + 1] : NULL};
    int status = 0;
    t.compute = wf_red_compute(e->src[1].dtype);
    t.rows = wf_view_numel(&e->src[at_rstd]);
    const bool only = (e->attr->flags & WF_FLAG_DX_ONLY) != 0;
    t.n = !only ? wf_view_numel(&e->dst[1]) : t.rows > 0 ? wf_view_numel(of[X]) / t.rows : 0;
    if (e->attr->flags & WF_FLAG_CHANNELS) {
        const wf_view *x = of[X];
        memcpy(t.d + 1, x->dims + x->rank - 3, 3 * sizeof *t.d);
        t.d[0] = t.d[1] > 0 ? t.rows / t.d[1] : 0;
        t.n = t.d[1] > 0 ? t.d[2] * t.d[3] : 0;
    }
    const bool sums = !only && wf_view_numel(&e->dst[1]) > 0;
    t.weight = of[W] && of[W]->data;
    for (int i = 0; i < OPERANDS && status == 0; i++)
        if (of[i] && of[i]->data)
            status = wf_gpu_dense(&t.temps, of[i], of[i]->dtype, &t.of[i], e->why);
    if (status == 0 && sums)
        status = run_sums(&t);
    if (status == 0 && t.n > 0 && t.rows > 0)
        status = run_dx(&t);
    wf_gpu_drop(&t.temps);
    return status;
}

/* -- norm ------------------------------------------------------------------------------------------------------- */
/* The vector norm of an order; *scalars: it reads p and 1 / p. */
static int norm_of(writer *w, int x, double order, bool *scalars)
{
    const int size = f1(w, WF_OP_ABS, x);
    if (order == 2.0)
        return f1(w, WF_OP_SQRT, total(w, f2(w, WF_OP_MUL, x, x)));
    if (order == 1.0)
        return total(w, size);
    if (__builtin_isinf(order))
        return wf_program_reduce(w->p, order > 0 ? WF_OP_AMAX : WF_OP_AMIN, size);
    if (order == 0.0) {
        const int there = wf_program_cast(w->p, x, WEFT_BOOL);
        return total(w, wf_program_cast(w->p, there, w->compute));
    }
    *scalars = true;
    const int p = wf_program_scalar(w->p, w->compute), q = wf_program_scalar(w->p, w->compute);
    return f2(w, WF_OP_POW, total(w, f2(w, WF_OP_POW, size, p)), q);
}

int wf_gpu_row_norm(int ordinal, wf_exec *e)
{
    wf_program own;
    writer w = {.p = &own};
    const wf_view *x = &e->src[0];
    const double order = e->attr->n_flt > 0 ? e->attr->flt[0] : 2.0;
    const unsigned axes = wf_red_axes(e->attr, x->rank);
    wf_view dst = *x;
    int64_t step = 1, reduced = 1;
    uint64_t p[2] = {0, 0};
    bool scalars = false;
    dst.data = e->dst[0].data;
    dst.dtype = e->dst[0].dtype;
    for (int i = x->rank - 1; i >= 0; i--) {
        const bool kept = !(axes >> i & 1);
        dst.strides[i] = kept ? step : 0;
        *(kept ? &step : &reduced) *= x->dims[i];
    }
    if (reduced == 0)
        return wf_gpu_fill(ordinal, &e->dst[0], &p[0], e->why);
    w.compute = wf_red_compute(dst.dtype);
    wf_program_init(w.p);
    output(&w, norm_of(&w, input(&w, x->dtype), order, &scalars), dst.dtype);
    scalar_of(w.compute, order, &p[0]);
    scalar_of(w.compute, 1.0 / order, &p[1]);
    const void *at[2] = {&p[0], &p[1]};
    if (wf_program_finish(w.p) != 0)
        return WEFT_EUNSUPPORTED;
    return wf_gpu_program(
        ordinal, w.p, 0,
        &(wf_program_args){.dst = &dst, .src = x, .scalars = scalars ? at : NULL, .axes = axes},
        e->why);
}

/* -- cross_entropy, cross_entropy_bwd ------------------------------------------------------------------------- */
typedef struct loss {
    int ordinal, compute;
    wf_exec *e;
    wf_gpu_temps temps;
    const wf_view *logits;
    wf_view targets;
    int64_t ignore;
    double smooth;
} loss;

static int check_targets(loss *t)
{
    void *error = NULL;
    const int64_t classes = t->logits->dims[1];
    const int status = wf_cuda_error_word(t->ordinal, t->e->op, NULL, classes, t->e->src,
                                          t->e->nsrc, &error, t->e->why);
    wf_gpu_hand h = {"check", 0, .work = t->targets.dims[0]};
    const uint64_t words[] = {wf_gpu_word(t->targets.data),
                              (uint64_t)h.work,
                              (uint64_t)classes,
                              wf_gpu_word(error),
                              0,
                              (uint64_t)t->ignore,
                              1};
    memcpy(h.w, words, sizeof words);
    return status ? status : wf_gpu_hand_run(t->ordinal, &h, t->e->why);
}

static wf_view per_row(const loss *t, const wf_view *v)
{
    return matrix(v, t->logits->dims[0], t->logits->dims[1], v->strides[0], 0);
}

/* value where the target is not ignored, else 0. */
static int unless_ignored(writer *w, int target, int ignore, int value)
{
    const int kept = wf_program_map(w->p, WF_OP_NOT_EQUAL, WEFT_I64, 2, (int[]){target, ignore});
    const int none = wf_program_scalar(w->p, w->compute);
    return wf_program_map(w->p, WF_OP_WHERE, w->compute, 3, (int[]){kept, value, none});
}

enum { COUNT, IGNORE, REST, SMOOTH, NONE, SCALARS };

static int forward(loss *t)
{
    wf_program own;
    writer w = {.p = &own};
    uint64_t s[SCALARS];
    w.compute = t->compute;
    wf_program_init(w.p);
    const int x0 = wf_program_input(w.p, t->logits->dtype);
    const int x = wf_program_cast(w.p, x0, t->compute);
    const int target = wf_program_input_row(w.p, WEFT_I64);
    const int count = wf_program_scalar(w.p, t->compute), ignore = wf_program_scalar(w.p, WEFT_I64);
    const int rest = wf_program_scalar(w.p, t->compute),
              smooth = wf_program_scalar(w.p, t->compute);
    const int m = wf_program_reduce(w.p, WF_OP_AMAX, x);
    const int lse = f2(&w, WF_OP_ADD, m,
                       f1(&w, WF_OP_LOG, total(&w, f1(&w, WF_OP_EXP, f2(&w, WF_OP_SUB, x, m)))));
    const int at = wf_program_cast(w.p, wf_program_pick(w.p, x0, target), t->compute);
    int value = f2(&w, WF_OP_SUB, lse, at);
    if (t->smooth != 0) {
        const int mean = f2(&w, WF_OP_DIV, total(&w, f2(&w, WF_OP_SUB, lse, x)), count);
        value = f2(&w, WF_OP_MUL, rest, value);
        value = f2(&w, WF_OP_ADD, value, f2(&w, WF_OP_MUL, smooth, mean));
    }
    output(&w, unless_ignored(&w, target, ignore, value), t->e->dst[0].dtype);
    output(&w, lse, t->e->dst[1].dtype);
    if (wf_program_finish(w.p) != 0)
        return WEFT_EUNSUPPORTED;
    scalar_of(t->compute, (double)t->logits->dims[1], &s[COUNT]);
    s[IGNORE] = (uint64_t)t->ignore;
    scalar_of(t->compute, 1.0 - t->smooth, &s[REST]);
    scalar_of(t->compute, t->smooth, &s[SMOOTH]);
    s[NONE] = 0;
    const void *scalars[SCALARS] = {&s[COUNT], &s[IGNORE], &s[REST], &s[SMOOTH], &s[NONE]};
    const wf_view src[2] = {*t->logits, per_row(t, &t->targets)};
    const wf_view dst[2] = {per_row(t, &t->e->dst[0]), per_row(t, &t->e->dst[1])};
    return wf_gpu_program(t->ordinal, w.p, 0,
                          &(wf_program_args){.dst = dst, .src = src, .scalars = scalars, .axes = 2},
                          t->e->why);
}

static int backward(loss *t)
{
    wf_program own;
    writer w = {.p = &own};
    const wf_view *g = &t->e->src[0], *lse = &t->e->src[3];
    uint64_t s[4] = {(uint64_t)t->ignore, 0, 0, 0};
    w.compute = t->compute;
    wf_program_init(w.p);
    const int x = input(&w, t->logits->dtype), target = wf_program_input_row(w.p, WEFT_I64);
    const int grad = row_input(&w, g->dtype), sum = row_input(&w, lse->dtype);
    const int ignore = wf_program_scalar(w.p, WEFT_I64);
    const int share = wf_program_scalar(w.p, t->compute),
              there = wf_program_scalar(w.p, t->compute);
    const int e = f1(&w, WF_OP_EXP, f2(&w, WF_OP_SUB, x, sum));
    const int number = wf_program_iota(w.p, WEFT_I64);
    const int hit = wf_program_map(w.p, WF_OP_EQUAL, WEFT_I64, 2, (int[]){number, target});
    const int q = wf_program_map(w.p, WF_OP_WHERE, t->compute, 3, (int[]){hit, there, share});
    const int d = f2(&w, WF_OP_MUL, grad, f2(&w, WF_OP_SUB, e, q));
    output(&w, unless_ignored(&w, target, ignore, d), t->e->dst[0].dtype);
    if (wf_program_finish(w.p) != 0)
        return WEFT_EUNSUPPORTED;
    const double n = (double)t->logits->dims[1];
    scalar_of(t->compute, t->smooth / n, &s[1]);
    if (t->compute == WEFT_F64) {
        scalar_of(WEFT_F64, (1.0 - t->smooth) + t->smooth / n, &s[2]);
    } else {
        const float total_ = (float)(1.0 - t->smooth) + (float)(t->smooth / n);
        memcpy(&s[2], &total_, sizeof total_);
    }
    const void *scalars[4] = {&s[0], &s[1], &s[2], &s[3]};
    const wf_view src[4] = {*t->logits, per_row(t, &t->targets), per_row(t, g), per_row(t, lse)};
    return wf_gpu_program(
        t->ordinal, w.p, 0,
        &(wf_program_args){.dst = t->e->dst, .src = src, .scalars = scalars, .axes = 2}, t->e->why);
}

int wf_gpu_row_loss(int ordinal, wf_exec *e)
{
    const bool back = e->op == WF_OP_CROSS_ENTROPY_BWD;
    loss t = {
        .ordinal = ordinal, .e = e, .temps.ordinal = ordinal, .logits = &e->src[back ? 1 : 0]};
    t.compute = wf_red_compute(t.logits->dtype);
    t.ignore = e->attr->n_dyn > 0 ? e->attr->dyn[0] : -100;
    t.smooth = e->attr->n_flt > 0 ? e->attr->flt[0] : 0.0;
    int status = wf_gpu_dense(&t.temps, &e->src[back ? 2 : 1], WEFT_I64, &t.targets, e->why);
    if (status == 0)
        status = check_targets(&t);
    if (status == 0 && t.logits->dims[0] > 0)
        status = back ? backward(&t) : forward(&t);
    wf_gpu_drop(&t.temps);
    return status;
}
