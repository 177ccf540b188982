/*
 * tests/unit/test_rowwise.c -- softmax, norms and cross entropy against the compositions of elementwise
 * steps and canonical sums that docs/reductions.md states, bit for bit, and against f64 mathematics.
 *
 * ctest: threads timeout=300 optimised
 */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "jit/ir/dict_c.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h"
#include "tests/unit/reduce_support.h"

WF_EXEC_DECL(softmax);
WF_EXEC_DECL(layer_norm);
WF_EXEC_DECL(layer_norm_bwd);
WF_EXEC_DECL(rms_norm);
WF_EXEC_DECL(rms_norm_bwd);
WF_EXEC_DECL(batch_norm);
WF_EXEC_DECL(batch_norm_bwd);
WF_EXEC_DECL(cross_entropy);

/* Rows as double arrays that hold compute-type values; `wide` rounds to that type. */
static double round_to(int dt, double v)
{
    char e[8];
    set_elem(e, dt, 0, v);
    return get_elem(e, dt, 0);
}
static double canon(int dt, const double *v, int64_t n)
{
    double r;
    if (dt == WEFT_F64) {
        return canon_f64(v, n, false);
    }
    float *f = malloc((size_t)(n + 1) * sizeof *f);
    for (int64_t i = 0; i < n; i++) {
        f[i] = (float)v[i];
    }
    r = (double)canon_f32(f, n, false);
    free(f);
    return r;
}
/* One rounded operation of the compute type; + - * / of f32 values are exact enough in f64 that
 * rounding twice is the same as rounding once. */
#define R(v) round_to(dt, (v))
static double ex(int dt, double v)
{
    return dt == WEFT_F64 ? exp_f64(v) : (double)exp_f32((float)v);
}
static double lg(int dt, double v)
{
    return dt == WEFT_F64 ? log_f64(v) : (double)log_f32((float)v);
}
static double largest(const double *v, int64_t n)
{
    double m = v[0];
    for (int64_t i = 1; i < n; i++) {
        m = MAX(m, v[i]);
    }
    return m;
}
static double *row_of(const wf_view *x, int64_t row, int64_t n)
{
    double *r = malloc((size_t)(n + 1) * sizeof *r);
    for (int64_t i = 0; i < n; i++) {
        r[i] = view_get(x, row * n + i);
    }
    return r;
}
static void expect(const wf_view *got, int64_t at, double want, const char *what)
{
    char e[8];
    set_elem(e, got->dtype, 0, want);
    const char *g =
        (const char *)got->data + (size_t)offset_of(got, at) * wf_dtype_size(got->dtype);
    cr_assert(same_elem(g, e, got->dtype, 0), "%s[%lld] (%s): got %.17g, want %.17g", what,
              (long long)at, wf_dtype_name(got->dtype), get_elem(g, got->dtype, 0), want);
}

static const int float_types[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
static const int64_t lengths[] = {1, 2, 3, 15, 16, 63, 64, 65, 127, 200, 1000, 4096, 4097, 9001};

static wf_view moved(const wf_view *v, int axis)
{
    wf_view r = *v;
    for (int i = axis; i + 1 < v->rank; i++) {
        r.dims[i] = v->dims[i + 1];
        r.strides[i] = v->strides[i + 1];
    }
    r.dims[v->rank - 1] = v->dims[axis];
    r.strides[v->rank - 1] = v->strides[axis];
    return r;
}

static void expect_softmax(wf_op op, const wf_view *a, const wf_view *b, const wf_view *out,
                           int axis)
{
    int dt = out->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    wf_view x = moved(a, axis), y = b ? moved(b, axis) : x, z = moved(out, axis);
    int64_t n = a->dims[axis], rows = n > 0 ? wf_view_numel(a) / n : 0;
    double *t = malloc((size_t)(n + 1) * sizeof *t);
    for (int64_t r = 0; r < rows; r++) {
        double *v = row_of(&x, r, n), *w = row_of(&y, r, n), m = largest(v, n);
        bool forward = op == WF_OP_SOFTMAX || op == WF_OP_LOG_SOFTMAX;
        for (int64_t i = 0; i < n; i++) {
            t[i] = forward ? ex(dt, R(v[i] - m)) : op == WF_OP_SOFTMAX_BWD ? R(v[i] * w[i]) : v[i];
        }
        double s = canon(dt, t, n);
        for (int64_t i = 0; i < n; i++) {
            double want = op == WF_OP_SOFTMAX       ? R(t[i] / s)
                          : op == WF_OP_LOG_SOFTMAX ? R(R(v[i] - m) - lg(dt, s))
                          : op == WF_OP_SOFTMAX_BWD ? R(w[i] * R(v[i] - s))
                                                    : R(v[i] - R(ex(dt, w[i]) * s));
            expect(&z, r * n + i, want, wf_rows[op].name);
        }
        free(v);
        free(w);
    }
    free(t);
}

Test(rowwise, softmax)
{
    static const wf_op ops[] = {WF_OP_SOFTMAX, WF_OP_LOG_SOFTMAX, WF_OP_SOFTMAX_BWD,
                                WF_OP_LOG_SOFTMAX_BWD};
    int trial = 0;
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        for (int t = 0; t < 4; t++) {
            for (int o = 0; o < 4; o++, trial++) {
                int axis = trial % 3;
                int64_t dims[3] = {2, 3, 2}, ax = axis;
                dims[axis] = lengths[k];
                set_machine(trial);
                operand a = make_operand(float_types[t], 3, dims, trial % NLAYOUT);
                operand b = make_operand(float_types[t], 3, dims, trial / 2 % NLAYOUT);
                fill_operand(&a, trial % 5 == 1 ? 1 : 0);
                fill_operand(&b, 0);
                wf_view src[2] = {a.v, b.v};
                wf_attr attr = {.n_ints = 1, .ints = &ax};
                call c = run_op(ops[o], wf_exec_softmax, &attr, o < 2 ? 1 : 2, src);
                cr_assert_eq(c.status, 0, "%s", c.why.rule);
                expect_softmax(ops[o], &a.v, o < 2 ? NULL : &b.v, &c.dst[0].v, axis);
                free_call(&c);
                free_operand(&a);
                free_operand(&b);
            }
        }
    }
}

/* Columns side by side, and rows that are turned into such: few and many, long and short, of which tasks have the same or
 * different numbers; as they lie, or in a copy of a view. */
Test(rowwise, softmax_of_columns)
{
    static const wf_op ops[] = {WF_OP_SOFTMAX, WF_OP_LOG_SOFTMAX, WF_OP_SOFTMAX_BWD,
                                WF_OP_LOG_SOFTMAX_BWD};
    static const int64_t shapes[][2] = {{1, 64},    {2, 70},   {5, 200},  {16, 1030}, {90, 130},
                                        {128, 400}, {192, 64}, {193, 64}, {40, 70},   {63, 300},
                                        {47, 58},   {3, 2500}, {7, 63},   {100, 81}};
    int trial = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        for (int t = 0; t < 8; t++) {
            const wf_op op = ops[(k + (size_t)t) % 4];
            const int64_t axis = 1 + t / 4, dims[3] = {2, shapes[k][axis - 1], shapes[k][2 - axis]};
            const int layout = trial + (int)k;
            set_machine(trial++);
            operand a = make_operand(float_types[t % 4], 3, dims, layout % NLAYOUT);
            operand b = make_operand(float_types[t % 4], 3, dims, layout / 2 % NLAYOUT);
            fill_operand(&a, t % 2);
            fill_operand(&b, 0);
            const bool forward = op == WF_OP_SOFTMAX || op == WF_OP_LOG_SOFTMAX;
            wf_view src[2] = {a.v, b.v};
            wf_attr attr = {.n_ints = 1, .ints = &axis};
            call c = run_op(op, wf_exec_softmax, &attr, forward ? 1 : 2, src);
            cr_assert_eq(c.status, 0, "%s", c.why.rule);
            expect_softmax(op, &a.v, forward ? NULL : &b.v, &c.dst[0].v, (int)axis);
            free_call(&c);
            free_operand(&a);
            free_operand(&b);
        }
    }
}

/* Quotients of every size, down to where they lose digits and vanish: the kernel multiplies by a reciprocal. */
Test(rowwise, softmax_quotients)
{
    for (int trial = 0; trial < 12; trial++) {
        int64_t dims[2] = {3, 5000}, axis = 1;
        set_machine(trial);
        operand x = make_operand(WEFT_F32, 2, dims, PLAIN);
        float *v = x.v.data;
        for (int64_t i = 0; i < dims[0] * dims[1]; i++) {
            v[i] = (float)uniform(i < dims[1] ? -106 : i < 2 * dims[1] ? -46 : -9, 0);
        }
        wf_attr attr = {.n_ints = 1, .ints = &axis};
        call c = run_op(WF_OP_SOFTMAX, wf_exec_softmax, &attr, 1, &x.v);
        cr_assert_eq(c.status, 0);
        expect_softmax(WF_OP_SOFTMAX, &x.v, NULL, &c.dst[0].v, 1);
        free_call(&c);
        free_operand(&x);
    }
}

/* Rows of -inf give NaN, masked entries 0; the sum of a row is 1 within its error. */
Test(rowwise, softmax_special)
{
    float v[2][4] = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {0, -INFINITY, 0, -INFINITY}};
    int64_t axis = 1;
    wf_view x = {.data = v, .dtype = WEFT_F32, .rank = 2, .dims = {2, 4}, .strides = {4, 1}};
    wf_attr attr = {.n_ints = 1, .ints = &axis};
    call c = run_op(WF_OP_SOFTMAX, wf_exec_softmax, &attr, 1, &x);
    float *y = c.dst[0].v.data;
    for (int i = 0; i < 4; i++) {
        cr_assert(isnan(y[i]));
        cr_assert(y[4 + i] == (i % 2 ? 0.0f : 0.5f));
    }
    free_call(&c);
    int64_t dims[2] = {1, 100000};
    operand big = make_operand(WEFT_F32, 2, dims, PLAIN);
    fill_operand(&big, 0);
    c = run_op(WF_OP_SOFTMAX, wf_exec_softmax, &attr, 1, &big.v);
    double sum = 0, exact = 0, worst = 0;
    for (int64_t i = 0; i < dims[1]; i++) {
        exact += exp(view_get(&big.v, i));
    }
    for (int64_t i = 0; i < dims[1]; i++) {
        double p = view_get(&c.dst[0].v, i), want = exp(view_get(&big.v, i)) / exact;
        sum += p;
        worst = fmax(worst, fabs(p / want - 1));
    }
    /* exp 1 ulp of the rounded difference (|x - m| <= 4: 4 eps), the sum 140 eps at most, one division */
    cr_assert(worst <= (2 + 4 + 140 + 1) * 0x1p-24, "%g", worst);
    cr_assert(fabs(sum - 1) <= 147 * 0x1p-24);
    free_call(&c);
    free_operand(&big);
}

/* -- norms -------------------------------------------------------------------------------------------- */

typedef struct norm_case {
    operand g, x, w, b;
    int dt; /* compute type */
    int64_t rows, n;
    double eps;
    bool center, weighted;
} norm_case;

static void statistics(const norm_case *c, const double *x, double *mean, double *rstd)
{
    int dt = c->dt;
    double *t = malloc((size_t)c->n * sizeof *t);
    *mean = c->center ? R(canon(dt, x, c->n) / (double)c->n) : 0;
    for (int64_t i = 0; i < c->n; i++) {
        double d = R(x[i] - *mean);
        t[i] = R(d * d);
    }
    double var = R(canon(dt, t, c->n) / (double)c->n);
    *rstd = R(1.0 / R(sqrt(R(var + R(c->eps)))));
    free(t);
}

static void expect_norm(const norm_case *c, const call *r)
{
    int dt = c->dt;
    for (int64_t row = 0; row < c->rows; row++) {
        double *x = row_of(&c->x.v, row, c->n), mean, rstd;
        statistics(c, x, &mean, &rstd);
        if (c->center) {
            expect(&r->dst[1].v, row, mean, "mean");
        }
        expect(&r->dst[c->center ? 2 : 1].v, row, rstd, "rstd");
        for (int64_t i = 0; i < c->n; i++) {
            double y = R(R(x[i] - mean) * rstd);
            y = c->weighted ? R(y * R(view_get(&c->w.v, i))) : y;
            y = c->weighted && c->center ? R(y + R(view_get(&c->b.v, i))) : y;
            expect(&r->dst[0].v, row * c->n + i, y, "y");
        }
        free(x);
    }
}

static void expect_norm_bwd(const norm_case *c, const call *r)
{
    int dt = c->dt;
    int64_t n = c->n;
    double *dw = malloc((size_t)(n * c->rows + 1) * sizeof *dw),
           *db = malloc((size_t)(n * c->rows + 1) * sizeof *db);
    double *gw = malloc((size_t)n * sizeof *gw), *gx = malloc((size_t)n * sizeof *gx);
    for (int64_t row = 0; row < c->rows; row++) {
        double *x = row_of(&c->x.v, row, n), *g = row_of(&c->g.v, row, n), mean, rstd;
        statistics(c, x, &mean, &rstd);
        for (int64_t i = 0; i < n; i++) {
            double xhat = R(R(x[i] - mean) * rstd);
            gw[i] = c->weighted ? R(g[i] * R(view_get(&c->w.v, i))) : g[i];
            gx[i] = R(gw[i] * xhat);
            dw[i * c->rows + row] = R(g[i] * xhat);
            db[i * c->rows + row] = g[i];
        }
        double a = c->center ? R(canon(dt, gw, n) / (double)n) : 0,
               b = R(canon(dt, gx, n) / (double)n);
        for (int64_t i = 0; i < n; i++) {
            double xhat = R(R(x[i] - mean) * rstd);
            double d = c->center ? R(gw[i] - a) : gw[i];
            expect(&r->dst[0].v, row * n + i, R(rstd * R(d - R(xhat * b))), "dx");
        }
        free(x);
        free(g);
    }
    for (int64_t i = 0; i < wf_view_numel(&r->dst[1].v); i++) {
        expect(&r->dst[1].v, i, canon(dt, dw + i * c->rows, c->rows), "dweight");
        if (c->center) {
            expect(&r->dst[2].v, i, canon(dt, db + i * c->rows, c->rows), "dbias");
        }
    }
    free(dw);
    free(db);
    free(gw);
    free(gx);
}

static void check_norm(int dtype, int64_t rows, int64_t n, bool center, int trial)
{
    norm_case c = {.rows = rows, .n = n, .eps = 1e-5, .center = center, .weighted = trial % 3 != 0};
    int64_t dims[2] = {rows, n}, k = 1;
    c.dt = dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    c.x = make_operand(dtype, 2, dims, trial % NLAYOUT);
    c.g = make_operand(dtype, 2, dims, trial / 3 % NLAYOUT);
    c.w = make_operand(trial % 2 ? dtype : c.dt, 1, dims + 1, trial % NLAYOUT);
    c.b = make_operand(dtype, 1, dims + 1, PLAIN);
    fill_operand(&c.x, 0);
    fill_operand(&c.g, 0);
    fill_operand(&c.w, 0);
    fill_operand(&c.b, 0);
    set_machine(trial);
    wf_attr attr = {.n_ints = 1, .ints = &k, .n_flt = 1, .flt = &c.eps};
    wf_view absent = {.dtype = WEFT_DTYPE_DEFAULT};
    wf_view src[5] = {c.x.v, c.weighted ? c.w.v : absent, c.weighted ? c.b.v : absent};
    call r = center ? run_op(WF_OP_LAYER_NORM, wf_exec_layer_norm, &attr, 3, src)
                    : run_op(WF_OP_RMS_NORM, wf_exec_rms_norm, &attr, 2, src);
    cr_assert_eq(r.status, 0, "%s", r.why.rule);
    expect_norm(&c, &r);
    wf_view w = src[1];
    src[0] = c.g.v;
    src[1] = c.x.v;
    src[2] = r.dst[1].v;
    src[3] = center ? r.dst[2].v : w;
    src[4] = w;
    for (int only = 0; only < 2; only++) {
        attr.flags = only ? WF_FLAG_DX_ONLY : 0;
        call d = center ? run_op(WF_OP_LAYER_NORM_BWD, wf_exec_layer_norm_bwd, &attr, 5, src)
                        : run_op(WF_OP_RMS_NORM_BWD, wf_exec_rms_norm_bwd, &attr, 4, src);
        cr_assert_eq(d.status, 0, "%s", d.why.rule);
        cr_assert_eq(wf_view_numel(&d.dst[1].v), only ? 0 : n);
        expect_norm_bwd(&c, &d);
        free_call(&d);
    }
    free_call(&r);
    free_operand(&c.x);
    free_operand(&c.g);
    free_operand(&c.w);
    free_operand(&c.b);
}

Test(rowwise, layer_and_rms_norm)
{
    static const int64_t counts[] = {1, 3, 64, 70, 129};
    int trial = 0;
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        for (int t = 0; t < 4; t++, trial++) {
            int64_t rows = lengths[k] > 300 ? counts[trial % 2] : counts[trial % 5];
            check_norm(float_types[t], rows, lengths[k], true, trial);
            check_norm(float_types[t], rows, lengths[k], false, trial + 1);
        }
    }
    for (int i = 0; i < 12;
         i++) { /* groups of four rows and what is left of them, at every width */
        check_norm(WEFT_F32, 4 + i, i % 2 ? 256 : 1024, i % 3 != 0, i * 4);
    }
    for (int n = 1; n < 66; n += 2) { /* short rows, which are turned where there are enough */
        check_norm(float_types[n / 2 % 4], 63 + n * 7, n, n / 8 % 2, n);
    }
    check_norm(WEFT_F32, 4100, 20, true, 1);
    check_norm(WEFT_F32, 9000, 130, true, 2);
    check_norm(WEFT_BF16, 4097, 33, true, 5);
}

/* -- batch_norm --------------------------------------------------------------------------------------- */

/* The values of channel ch in row-major order over the other axes. */
static int64_t channel_of(const wf_view *x, int64_t ch, double *out, int64_t *flat)
{
    int64_t plane = 1, n = 0;
    for (int i = 2; i < x->rank; i++) {
        plane *= x->dims[i];
    }
    for (int64_t s = 0; s < x->dims[0]; s++) {
        for (int64_t p = 0; p < plane; p++, n++) {
            flat[n] = (s * x->dims[1] + ch) * plane + p;
            out[n] = view_get(x, flat[n]);
        }
    }
    return n;
}

typedef struct batch_case {
    operand x, g, w, b, rm, rv;
    int dt;
    bool training;
    double eps;
} batch_case;

static void expect_batch(const batch_case *c, const call *f, const call *r)
{
    int dt = c->dt;
    int64_t total = wf_view_numel(&c->x.v);
    double *x = malloc((size_t)total * 8), *g = malloc((size_t)total * 8),
           *t = malloc((size_t)total * 8);
    int64_t *at = malloc((size_t)total * 8);
    for (int64_t ch = 0; ch < c->x.v.dims[1]; ch++) {
        int64_t n = channel_of(&c->x.v, ch, x, at);
        channel_of(&c->g.v, ch, g, at);
        double mean = R(canon(dt, x, n) / (double)n), w = R(view_get(&c->w.v, ch));
        for (int64_t i = 0; i < n; i++) {
            double d = R(x[i] - mean);
            t[i] = R(d * d);
        }
        double var = R(canon(dt, t, n) / (double)n);
        mean = c->training ? mean : R(view_get(&c->rm.v, ch));
        var = c->training ? var : R(view_get(&c->rv.v, ch));
        double rstd = R(1.0 / R(sqrt(R(var + R(c->eps)))));
        expect(&f->dst[1].v, ch, mean, "mean");
        expect(&f->dst[2].v, ch, var, "variance");
        for (int64_t i = 0; i < n; i++) {
            double y = R(R(x[i] - mean) * rstd);
            t[i] = R(g[i] * y);
            y = R(R(y * w) + R(view_get(&c->b.v, ch)));
            expect(&f->dst[0].v, at[i], y, "y");
        }
        double sg = canon(dt, g, n), sx = canon(dt, t, n), s = R(w * rstd);
        expect(&r->dst[1].v, ch, sx, "dweight");
        expect(&r->dst[2].v, ch, sg, "dbias");
        for (int64_t i = 0; i < n; i++) {
            double xhat = R(R(x[i] - mean) * rstd);
            double d = R(R(g[i] - R(sg / (double)n)) - R(xhat * R(sx / (double)n)));
            expect(&r->dst[0].v, at[i], c->training ? R(s * d) : R(g[i] * s), "dx");
        }
    }
    free(x);
    free(g);
    free(t);
    free(at);
}

Test(rowwise, batch_norm)
{
    static const int64_t shapes[][4] = {{5, 3, 4, 6}, {70, 17, 1, 1},  {2, 3, 50, 50},
                                        {1, 2, 1, 9}, {4200, 5, 1, 1}, {3, 5, 7, 7},
                                        {2, 3, 13, 5}};
    int trial = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int t = 0; t < 4; t++) {
            for (int training = 0; training < 2; training++, trial++) {
                int rank = shapes[s][2] * shapes[s][3] == 1 ? 2 : 4;
                batch_case c = {.eps = 1e-3, .training = training};
                c.dt = float_types[t] == WEFT_F64 ? WEFT_F64 : WEFT_F32;
                c.x = make_operand(float_types[t], rank, shapes[s], trial % NLAYOUT);
                c.g = make_operand(float_types[t], rank, shapes[s], trial / 3 % NLAYOUT);
                operand *vectors[] = {&c.w, &c.b, &c.rm, &c.rv};
                for (int i = 0; i < 4; i++) {
                    *vectors[i] =
                        make_operand(trial % 2 ? float_types[t] : c.dt, 1, &shapes[s][1], PLAIN);
                    fill_operand(vectors[i], 0);
                }
                fill_operand(&c.x, 0);
                fill_operand(&c.g, 0);
                for (int64_t i = 0; i < shapes[s][1]; i++) {
                    set_elem(c.rv.v.data, c.rv.v.dtype, i, uniform(0.5, 2));
                }
                set_machine(trial);
                wf_view src[5] = {c.x.v, c.w.v, c.b.v, c.rm.v, c.rv.v};
                wf_attr attr = {
                    .flags = training ? WF_FLAG_TRAINING : 0, .n_flt = 1, .flt = &c.eps};
                call f = run_op(WF_OP_BATCH_NORM, wf_exec_batch_norm, &attr, 5, src);
                cr_assert_eq(f.status, 0, "%s", f.why.rule);
                wf_view back[5] = {c.g.v, c.x.v, src[1], f.dst[1].v, f.dst[2].v};
                call r = run_op(WF_OP_BATCH_NORM_BWD, wf_exec_batch_norm_bwd, &attr, 5, back);
                cr_assert_eq(r.status, 0, "%s", r.why.rule);
                expect_batch(&c, &f, &r);
                free_call(&f);
                free_call(&r);
                free_operand(&c.x);
                free_operand(&c.g);
                for (int i = 0; i < 4; i++) {
                    free_operand(vectors[i]);
                }
            }
        }
    }
}

/* -- cross entropy -------------------------------------------------------------------------------------- */

Test(rowwise, cross_entropy)
{
    int trial = 0;
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        for (int t = 0; t < 4; t++, trial++) {
            const int64_t n = lengths[k], rows = n < 64 ? 113 + n : 7, dims[2] = {rows, n};
            int64_t ignore = trial % 2 ? -100 : 0;
            double smooth = trial % 3 == 0 ? 0.1 : 0.0;
            int dt = float_types[t] == WEFT_F64 ? WEFT_F64 : WEFT_F32;
            operand x = make_operand(float_types[t], 2, dims, trial % NLAYOUT);
            operand y =
                make_operand(trial % 4 ? WEFT_I64 : WEFT_I32, 1, dims, trial % 2 ? STEPPED : PLAIN);
            operand g = make_operand(float_types[t], 1, dims, PLAIN);
            fill_operand(&x, 0);
            fill_operand(&g, 0);
            for (int64_t i = 0; i < rows; i++) {
                set_elem(y.v.data, y.v.dtype, offset_of(&y.v, i),
                         i == 2 ? (double)ignore : (double)pick(n));
            }
            set_machine(trial);
            wf_attr attr = {.n_dyn = 1, .dyn = &ignore, .n_flt = 1, .flt = &smooth};
            wf_view src[2] = {x.v, y.v};
            call f = run_op(WF_OP_CROSS_ENTROPY, wf_exec_cross_entropy, &attr, 2, src);
            cr_assert_eq(f.status, 0, "%s", f.why.rule);
            wf_view back[4] = {g.v, x.v, y.v, f.dst[1].v};
            call r = run_op(WF_OP_CROSS_ENTROPY_BWD, wf_exec_cross_entropy, &attr, 4, back);
            cr_assert_eq(r.status, 0, "%s", r.why.rule);
            double *e = malloc((size_t)n * 8);
            for (int64_t row = 0; row < rows; row++) {
                double *v = row_of(&x.v, row, n), m = largest(v, n), gr = view_get(&g.v, row);
                int64_t target = (int64_t)view_get(&y.v, row);
                for (int64_t i = 0; i < n; i++) {
                    e[i] = ex(dt, R(v[i] - m));
                }
                double lse = R(m + lg(dt, canon(dt, e, n)));
                double loss = R(lse - v[target < 0 ? 0 : target]);
                for (int64_t i = 0; i < n; i++) {
                    e[i] = R(lse - v[i]);
                }
                if (smooth != 0) {
                    double mean = R(canon(dt, e, n) / (double)n);
                    loss = R(R(R(1 - smooth) * loss) + R(R(smooth) * mean));
                }
                bool skip = target == ignore;
                expect(&f.dst[0].v, row, skip ? 0 : loss, "loss");
                expect(&f.dst[1].v, row, lse, "logsumexp");
                for (int64_t i = 0; i < n; i++) {
                    double q = R(R(i == target ? R(1 - smooth) : 0) + R(smooth / (double)n));
                    expect(&r.dst[0].v, row * n + i,
                           skip ? 0 : R(gr * R(ex(dt, R(v[i] - lse)) - q)), "dlogits");
                }
                free(v);
            }
            free(e);
            free_call(&f);
            free_call(&r);
            free_operand(&x);
            free_operand(&y);
            free_operand(&g);
        }
    }
}

Test(rowwise, bad_targets)
{
    float x[6] = {0};
    int64_t t[3] = {1, -100, 2}, ignore = -100;
    double smooth = 0;
    wf_view src[2] = {{.data = x, .dtype = WEFT_F32, .rank = 2, .dims = {3, 2}, .strides = {2, 1}},
                      {.data = t, .dtype = WEFT_I64, .rank = 1, .dims = {3}, .strides = {1}}};
    wf_attr attr = {.n_dyn = 1, .dyn = &ignore, .n_flt = 1, .flt = &smooth};
    call c = run_op(WF_OP_CROSS_ENTROPY, wf_exec_cross_entropy, &attr, 2, src);
    cr_assert_eq(c.status, WEFT_EINDEX);
    cr_assert(strstr(c.why.rule, "targets[2] is 2") != NULL && strstr(c.why.rule, "[0, 2)") != NULL,
              "%s", c.why.rule);
    free_call(&c);
}

/* -- finished rows ------------------------------------------------------------------------------------------ */

/* What is handed on: every row once, and as it is when all is done. */
typedef struct handed {
    const wf_view *y; /* the result */
    char *copy;       /* of each row when it was handed on */
    _Atomic int *times;
} handed;

static void take_rows(void *arg, int64_t first, int64_t count)
{
    const handed *h = arg;
    const size_t row = (size_t)h->y->dims[h->y->rank - 1] * wf_dtype_size(h->y->dtype);
    memcpy(h->copy + (size_t)first * row, (char *)h->y->data + (size_t)first * row,
           (size_t)count * row);
    for (int64_t i = 0; i < count; i++) {
        atomic_fetch_add(&h->times[first + i], 1);
    }
}

/* Results that no cache holds go to whoever runs behind the row, some rows at a time; of smaller ones, other types and other axes
 * none does. */
Test(rowwise, large_results_are_handed_on_as_they_are_finished)
{
    enum { N = 1003, ROWS = 6301 /* 25.3 MB of f32 */ };
    static const struct {
        const char *what;
        wf_op op;
        int dtype, axis, nsrc;
        int64_t rows;
        bool finishes;
    } cases[] = {
        {"softmax", WF_OP_SOFTMAX, WEFT_F32, 1, 1, ROWS, true},
        {"log_softmax of f64", WF_OP_LOG_SOFTMAX, WEFT_F64, 1, 1, ROWS / 2 + 7, true},
        {"softmax_bwd", WF_OP_SOFTMAX_BWD, WEFT_F32, 1, 2, ROWS, true},
        {"cross_entropy_bwd", WF_OP_CROSS_ENTROPY_BWD, WEFT_F32, 1, 4, ROWS, true},
        {"halves", WF_OP_SOFTMAX, WEFT_F16, 1, 1, 2 * ROWS, false},
        {"a small one", WF_OP_SOFTMAX, WEFT_F32, 1, 1, 300, false},
        {"another axis", WF_OP_SOFTMAX, WEFT_F32, 0, 1, ROWS, false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int64_t rows = cases[c].rows, axis = cases[c].axis, ignore = -100;
        const size_t bytes = (size_t)(rows * N) * wf_dtype_size(cases[c].dtype);
        const bool loss = cases[c].op == WF_OP_CROSS_ENTROPY_BWD;
        char *x = malloc(bytes), *y = malloc(bytes), *copy = malloc(bytes);
        float *one = malloc((size_t)rows * sizeof *one);
        int64_t *target = malloc((size_t)rows * sizeof *target);
        _Atomic int *times = malloc((size_t)rows * sizeof *times);
        for (int64_t i = 0; i < rows * N; i++) {
            set_elem(x, cases[c].dtype, i, (double)(i * 7919 % 4093) / 500 - 4);
        }
        for (int64_t i = 0; i < rows; i++) {
            one[i] = 1.5f;
            target[i] = i * 31 % N;
        }
        const wf_view v = {.data = x,
                           .dtype = (uint8_t)cases[c].dtype,
                           .rank = 2,
                           .dims = {rows, N},
                           .strides = {N, 1}};
        const wf_view w = {
            .data = one, .dtype = WEFT_F32, .rank = 1, .dims = {rows}, .strides = {1}};
        wf_view t = w, dst = v;
        t.data = target;
        t.dtype = WEFT_I64;
        dst.data = y;
        const wf_view of_loss[4] = {w, v, t, w}, of_softmax[2] = {v, v};
        double smooth = 0;
        const wf_attr attr = {.n_ints = loss ? 0 : 1,
                              .ints = &axis,
                              .n_dyn = loss,
                              .dyn = &ignore,
                              .n_flt = loss,
                              .flt = &smooth};
        handed h = {&dst, copy, times};
        for (int threads = 1; threads <= 3; threads += 2) {
            wf_why why = {0};
            memset(y, 0xA5, bytes);
            memset(copy, 0x5A, bytes);
            for (int64_t i = 0; i < rows; i++) {
                atomic_init(&times[i], 0);
            }
            wf_exec e = {.op = cases[c].op,
                         .nsrc = cases[c].nsrc,
                         .ndst = 1,
                         .src = loss ? of_loss : of_softmax,
                         .dst = &dst,
                         .attr = &attr,
                         .why = &why,
                         .after = &(wf_epilogue){take_rows, &h}};
            cr_assert_eq(wf_set_num_threads(threads), 0);
            cr_assert_eq((loss ? wf_exec_cross_entropy : wf_exec_softmax)(&e), 0, "%s", why.rule);
            cr_expect_eq(e.finished, cases[c].finishes, "%s", cases[c].what);
            for (int64_t i = 0; i < rows; i++) {
                cr_assert_eq(times[i], cases[c].finishes, "%s: row %lld, %d times", cases[c].what,
                             (long long)i, times[i]);
            }
            cr_expect(!e.finished || memcmp(copy, y, bytes) == 0,
                      "%s: rows were not finished, %d threads", cases[c].what, threads);
        }
        free(x);
        free(y);
        free(copy);
        free(one);
        free(target);
        free(times);
    }
    wf_set_num_threads(1);
}

/* -- what inference refuses ------------------------------------------------------------------------------- */

Test(rowwise, refusals)
{
    double eps = 1e-5;
    int64_t k = 3, axis = 5;
    wf_type x = {.dtype = WEFT_F32, .rank = 2, .dims = {4, 6}},
            i = {.dtype = WEFT_I32, .rank = 2, .dims = {4, 6}};
    wf_type w = {.dtype = WEFT_F32, .rank = 1, .dims = {5}}, dst[3];
    wf_attr attr = {.n_ints = 1, .ints = &k, .n_flt = 1, .flt = &eps};
    wf_why why;
    wf_type two[2] = {x, w};
    cr_assert_eq(wf_infer(WF_OP_LAYER_NORM, &attr, 1, &x, dst, &why), WEFT_ESHAPE);
    k = 1;
    cr_assert_eq(wf_infer(WF_OP_LAYER_NORM, &attr, 2, two, dst, &why), WEFT_ESHAPE);
    cr_assert_eq(wf_infer(WF_OP_RMS_NORM, &attr, 1, &i, dst, &why), WEFT_EDTYPE);
    attr.ints = &axis;
    cr_assert(wf_infer(WF_OP_SOFTMAX, &attr, 1, &x, dst, &why) != 0);
    cr_assert(wf_infer(WF_OP_SUM, &attr, 1, &x, dst, &why) != 0);
    cr_assert(wf_infer(WF_OP_CUMSUM, &attr, 1, &x, dst, &why) != 0);
}
