/*
 * tests/grad/test_gradcheck.c -- every differentiable row against central differences, twice; in f32, f16 and bf16 against f64 of
 * the same inputs.
 *
 * Elementwise rows are generated from ops.def: contiguous, transposed and broadcast operands, first and
 * second order, and the JVP identity <u, J v> = <J' u, v>. The other rows are listed by hand, and a
 * test fails if a differentiable row is missing from the list.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jit/ir/op.h"
#include "eager/tensor.h"
#include "weft/weft.h"

/* -- domains: where a row is smooth, away from kinks and poles ------------------------------------ */

typedef struct domain {
    int op;
    double lo[3], hi[3];
} domain;

static const domain domains[] = {
    {WF_OP_LOG, {0.5}, {2}},
    {WF_OP_LOG2, {0.5}, {2}},
    {WF_OP_LOG10, {0.5}, {2}},
    {WF_OP_SQRT, {0.5}, {2}},
    {WF_OP_RSQRT, {0.5}, {2}},
    {WF_OP_POW_HALF, {0.5}, {2}},
    {WF_OP_POW_MINUS_HALF, {0.5}, {2}},
    {WF_OP_CBRT, {0.5}, {2}},
    {WF_OP_RECIPROCAL, {0.5}, {2}},
    {WF_OP_ACOSH, {1.5}, {3}},
    {WF_OP_ABS, {0.2}, {2}},
    {WF_OP_SIGN, {0.2}, {2}},
    {WF_OP_RELU, {0.2}, {2}},
    {WF_OP_RELU6, {0.2}, {2}},
    {WF_OP_FLOOR, {0.2}, {0.4}},
    {WF_OP_CEIL, {0.2}, {0.4}},
    {WF_OP_TRUNC, {0.2}, {0.4}},
    {WF_OP_ROUND, {0.2}, {0.4}},
    {WF_OP_DIV, {-1, 0.5}, {1, 2}},
    {WF_OP_FLOOR_DIVIDE, {1.2, 1}, {1.4, 1.1}},
    {WF_OP_REMAINDER, {1.2, 0.9}, {1.4, 1.0}},
    {WF_OP_FMOD, {1.2, 0.9}, {1.4, 1.0}},
    {WF_OP_POW, {0.5, -2}, {2, 2}},
    {WF_OP_MAXIMUM, {-1, 1.1}, {1, 2}},
    {WF_OP_MINIMUM, {-1, 1.1}, {1, 2}},
    {WF_OP_ATAN2, {0.3, 0.3}, {1, 1}},
    {WF_OP_HYPOT, {0.3, 0.3}, {1, 1}},
    {WF_OP_COPYSIGN, {0.3, 0.3}, {1, 1}},
    {WF_OP_XLOGY, {0.3, 0.3}, {1, 1}},
    {WF_OP_BCE, {0.2, 0.1}, {0.8, 0.9}},
    {WF_OP_LEAKY_RELU, {0.3, 0.1}, {1, 0.5}},
    {WF_OP_ELU, {-1, 0.5}, {-0.2, 1}},
    {WF_OP_CLAMP, {-0.4, -2, 0.5}, {0.4, -1, 2}},
    {WF_OP_HUBER, {-0.4, -0.3, 0.8}, {0.4, 0.3, 1}},
    {WF_OP_HARDSIGMOID, {-2}, {2}},
    {WF_OP_HARDSWISH, {-2}, {2}},
    {WF_OP_SELU, {-2}, {-0.2}},
};

static void domain_of(int op, int i, double *lo, double *hi)
{
    *lo = -0.9;
    *hi = 0.9;
    for (size_t k = 0; k < sizeof domains / sizeof *domains; k++) {
        if (domains[k].op == op) {
            *lo = domains[k].lo[i];
            *hi = domains[k].hi[i];
        }
    }
}

/* Distinct values spread over [lo, hi], never on a boundary. */
static weft_tensor sample(weft_shape shape, double lo, double hi, int seed)
{
    double v[256];
    int64_t n = 1;
    for (int i = 0; i < shape.n; i++) {
        n *= shape.v[i];
    }
    for (int64_t i = 0; i < n; i++) {
        double u = fmod(0.31 + 0.6180339887498949 * (double)(i + 1) * (seed + 1), 1.0);
        v[i] = lo + (hi - lo) * (0.02 + 0.96 * u);
    }
    weft_tensor t = weft_from_data(v, shape, WEFT_F64);
    weft_requires_grad_(t, true);
    return t;
}

/* -- forward mode: J v against the difference along v, and <u, J v> = <J' u, v> ---------------------- */

static double dot(weft_tensor a, weft_tensor b)
{
    return weft_item_f64(weft_sum(weft_mul(a, b)));
}

static void check_jvp(const char *name, weft_check_fn fn, void *user, weft_tensor *in, int n)
{
    const double h = 1e-5;
    weft_scope sc = weft_scope_begin();
    weft_tensor v[4], g[4], moved[2][4], y, jv, ends[2];
    double vs[256];
    for (int i = 0; i < n; i++) {
        int64_t count = weft_numel(in[i]);
        for (int64_t k = 0; k < count; k++) {
            vs[k] = sin(1 + 2.3 * (double)k + i);
        }
        v[i] = weft_from_data(vs, weft_shape_of(in[i]), WEFT_F64);
        moved[0][i] = weft_detach(weft_sub(in[i], weft_mul(v[i], weft_f(h))));
        moved[1][i] = weft_detach(weft_add(in[i], weft_mul(v[i], weft_f(h))));
    }
    weft_status st = fn(user, in, n, &y, 1);
    cr_assert_eq(st, WEFT_OK, "%s: %s", name, weft_last_error());
    bool flat = !weft_requires_grad(y);
    st = flat ? WEFT_OK
              : weft_jvp(.outputs = &y, .n_outputs = 1, .inputs = in, .n_inputs = n, .tangents = v,
                         .results = &jv);
    cr_assert_eq(st, WEFT_OK, "%s: jvp: %s", name, weft_last_error());
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(fn(user, moved[i], n, &ends[i], 1), WEFT_OK, "%s", name);
    }
    weft_tensor slope = weft_mul(weft_sub(ends[1], ends[0]), weft_f(0.5 / h));
    jv = flat ? weft_zeros_like(slope) : jv;
    double error = weft_item_f64(weft_max(weft_abs(weft_sub(slope, jv))));
    double size = weft_item_f64(weft_max(weft_abs(slope)));
    cr_expect(error <= 1e-5 * (1 + size), "%s: J v is off by %g of %g", name, error, size);
    if (!flat) {
        weft_tensor u = weft_cos(weft_detach(y));
        st = weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = in, .n_inputs = n, .grads = g,
                          .grad_outputs = &u, .allow_unused = true);
        cr_assert_eq(st, WEFT_OK, "%s: %s", name, weft_last_error());
        double left = dot(u, jv), right = 0;
        for (int i = 0; i < n; i++) {
            right += weft_ok(g[i]) ? dot(g[i], v[i]) : 0;
        }
        cr_expect(fabs(left - right) <= 1e-10 * (1 + fabs(left)),
                  "%s: <u, Jv> %.17g, <J'u, v> %.17g", name, left, right);
    }
    weft_scope_end(sc);
}

/* -- narrower types against f64 of the same inputs ------------------------------------------------------------------
 * A gradient differs from the one in f64 by roundings, each of at most u of what is rounded, or a few u inside of a row of f32. What
 * is rounded is a term of the gradient (their magnitudes: |J| |cotangent|), or a value that the gradient is made from, which
 * moves it by its derivative (|H| |x|). */

enum {
    MOST = 64,
    ROOM = 4,
    UNITS = 8 /* a row of f32 is right to four places, and sums add one for each term */
};

static bool gradients(const weft_tensor *y, const weft_tensor *in, int n,
                      const weft_tensor *cotangent, bool create, weft_tensor *g)
{
    return weft_grad_of(.outputs = y, .n_outputs = 1, .inputs = in, .n_inputs = n, .grads = g,
                        .grad_outputs = cotangent, .retain_graph = true, .create_graph = create,
                        .allow_unused = true) == WEFT_OK;
}

/* Elements as doubles; zeros of what is not there. */
static void read(weft_tensor t, double v[MOST])
{
    memset(v, 0, MOST * sizeof *v);
    if (weft_ok(t)) {
        cr_assert_eq(weft_to_array(t, v, weft_numel(t), WEFT_F64), WEFT_OK, "%s",
                     weft_last_error());
    }
}

/* size[i][e]: of what is rounded for element e of gradient i. y, in, g: of f64, with the history of g. */
static void sizes(weft_tensor y, const weft_tensor *in, int n, const double *cotangent,
                  const weft_tensor *g, double size[ROOM][MOST])
{
    double v[MOST], x[ROOM][MOST];
    weft_tensor d[ROOM], one, flat = weft_reshape(y, weft_shape(weft_numel(y)));
    for (int i = 0; i < n; i++) {
        read(g[i], size[i]);
        read(in[i], x[i]);
        for (int e = 0; e < MOST; e++) {
            size[i][e] = fabs(size[i][e]);
        }
    }
    for (int64_t k = 0; k < weft_numel(flat); k++) {
        one = weft_select(flat, 0, k);
        cr_assert(gradients(&one, in, n, NULL, false, d), "%s", weft_last_error());
        for (int i = 0; i < n; i++) {
            read(d[i], v);
            for (int e = 0; e < MOST; e++) {
                size[i][e] += fabs(v[e] * cotangent[k]);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        for (int64_t e = 0; weft_ok(g[i]) && weft_requires_grad(g[i]) && e < weft_numel(g[i]);
             e++) {
            one = weft_select(weft_reshape(g[i], weft_shape(weft_numel(g[i]))), 0, e);
            cr_assert(gradients(&one, in, n, NULL, false, d), "%s", weft_last_error());
            for (int j = 0; j < n; j++) {
                read(d[j], v);
                for (int k = 0; k < MOST; k++) {
                    size[i][e] += fabs(v[k] * x[j][k]);
                }
            }
        }
    }
}

static void check_type(const char *name, weft_check_fn fn, void *user, const weft_tensor *given,
                       int n, weft_dtype dtype, double u)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor in[2][ROOM], y[2], g[2][ROOM], cotangent[2];
    double c[MOST], size[ROOM][MOST], got[MOST], want[MOST];
    int64_t rows = 0, most = 1;
    for (int wide = 0; wide < 2; wide++) {
        for (int i = 0; i < n; i++) {
            in[wide][i] =
                weft_detach(weft_cast(wide ? in[0][i] : given[i], wide ? WEFT_F64 : dtype));
            weft_requires_grad_(in[wide][i], true);
            most = weft_numel(in[wide][i]) > most ? weft_numel(in[wide][i]) : most;
        }
        const int64_t before = weft_tape_nodes();
        cr_assert_eq(fn(user, in[wide], n, &y[wide], 1), WEFT_OK, "%s %s: %s", name,
                     weft_dtype_name(dtype), weft_last_error());
        rows = weft_tape_nodes() - before;
        const int64_t count = weft_numel(y[wide]);
        cr_assert(count <= MOST && most <= MOST, "%s", name);
        for (int64_t k = 0; k < count; k++) {
            c[k] = (k % 2 ? -1 : 1) * (k % 3 ? 0.5 : 1);
        }
        cotangent[wide] =
            weft_cast(weft_from_data(c, weft_shape_of(y[wide]), WEFT_F64), weft_dtype_of(y[wide]));
        if (!weft_requires_grad(y[wide])) {
            weft_scope_end(sc);
            return; /* its derivative is 0 */
        }
        cr_assert(gradients(&y[wide], in[wide], n, &cotangent[wide], wide, g[wide]), "%s: %s", name,
                  weft_last_error());
    }
    sizes(y[1], in[1], n, c, g[1], size);
    /* a row is rounded once forwards, its gradients twice: by the row that makes each, and where several add up */
    const double roundings = 3.0 * (double)rows * (dtype == WEFT_F32 ? (double)(UNITS + most) : 1);
    for (int i = 0; i < n; i++) {
        read(g[0][i], got);
        read(g[1][i], want);
        cr_expect(!weft_ok(g[0][i]) || weft_dtype_of(g[0][i]) == dtype, "%s: type of gradient %d",
                  name, i);
        for (int64_t e = 0; e < weft_numel(in[0][i]); e++) {
            cr_expect(fabs(got[e] - want[e]) <= roundings * u * size[i][e],
                      "%s in %s: gradient %d [%d] is %.9g, in f64 %.9g, %g of %g", name,
                      weft_dtype_name(dtype), i, (int)e, got[e], want[e], fabs(got[e] - want[e]),
                      roundings * u * size[i][e]);
        }
    }
    weft_scope_end(sc);
}

static void check_types(const char *name, weft_check_fn fn, void *user, const weft_tensor *in,
                        int n)
{
    check_type(name, fn, user, in, n, WEFT_F32, 0x1p-24);
    check_type(name, fn, user, in, n, WEFT_F16, 0x1p-11);
    check_type(name, fn, user, in, n, WEFT_BF16, 0x1p-8);
}

typedef struct call {
    int op, nsrc;
    bool transpose;
} call;

static weft_status run_row(void *user, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    call *k = user;
    weft_tensor s[3];
    (void)n_out;
    for (int i = 0; i < n_in; i++) {
        s[i] = k->transpose && weft_rank(in[i]) == 2 ? weft_transpose(in[i], 0, 1) : in[i];
    }
    if (k->op == WF_OP_WHERE) {
        weft_tensor p = weft_less(s[0], weft_f(0.1));
        weft_tensor t[3] = {p, s[0], s[1]};
        wf_dispatch(WF_OP_WHERE, NULL, 3, t, 1, out);
    } else {
        wf_dispatch((wf_op)k->op, NULL, n_in, s, 1, out);
    }
    return weft_error_status(out[0]);
}

static void check_row(int op, int nsrc)
{
    static const int64_t shapes[3][3][3] = {
        {{2, 2, 3}, {2, 2, 3}, {2, 2, 3}}, /* rank, extents */
        {{2, 2, 3}, {1, 3, 0}, {2, 2, 1}}, /* broadcast */
        {{0, 0, 0}, {2, 2, 2}, {0, 0, 0}}, /* scalar against matrix */
    };
    for (int layout = 0; layout < 4; layout++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor in[3];
        int row = layout == 3 ? 0 : layout;
        for (int i = 0; i < nsrc; i++) {
            double lo, hi;
            domain_of(op, i, &lo, &hi);
            in[i] = sample(weft_shape_from(shapes[row][i][0], &shapes[row][i][1]), lo, hi, i);
        }
        call k = {op, nsrc, layout == 3};
        char why[256] = "";
        weft_status st = weft_gradcheck(.fn = run_row, .user = &k, .inputs = in, .n_in = nsrc,
                                        .n_out = 1, .report = why, .report_size = sizeof why);
        cr_expect(st == WEFT_OK, "%s layout %d: %s %s", wf_rows[op].name, layout, why,
                  weft_last_error());
        st = weft_gradgradcheck(.fn = run_row, .user = &k, .inputs = in, .n_in = nsrc, .n_out = 1,
                                .report = why, .report_size = sizeof why);
        cr_expect(st == WEFT_OK, "%s second order, layout %d: %s %s", wf_rows[op].name, layout, why,
                  weft_last_error());
        check_jvp(wf_rows[op].name, run_row, &k, in, nsrc);
        check_types(wf_rows[op].name, run_row, &k, in, nsrc);
        weft_scope_end(sc);
        if (st != WEFT_OK) {
            weft_clear_error();
        }
    }
}

Test(gradcheck, elementwise_rows)
{
    int rows = 0;
    for (int op = 1; op < WF_OP_COUNT; op++) {
        int kind = wf_rows[op].kind;
        if (!(wf_rows[op].types & WF_BIT(WEFT_F64)) || kind == WF_KIND_PREDICATE ||
            kind == WF_KIND_COMPARE) {
            continue;
        }
        check_row(op, kind == WF_KIND_UNARY ? 1 : kind == WF_KIND_TERNARY ? 3 : 2);
        rows++;
    }
    cr_expect(rows > 60, "only %d rows", rows);
}

/* -- other rows, through the public API ------------------------------------------------------------ */

typedef weft_status (*body)(const weft_tensor *in, weft_tensor *out);
static bool covered[WF_OP_COUNT];

static weft_status run_body(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    body f;
    (void)n_in;
    memcpy(&f, user, sizeof f);
    weft_status st = f(in, out);
    for (int i = 0; i < n_out && st == WEFT_OK; i++) {
        st = weft_error_status(out[i]);
    }
    return st;
}

static void check(const char *name, int op, body f, int n, const weft_shape *shapes, double lo,
                  double hi)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor in[4];
    char why[256] = "";
    covered[op] = true;
    for (int i = 0; i < n; i++) {
        in[i] = sample(shapes[i], lo, hi, i + 2);
    }
    weft_status st = weft_gradcheck(.fn = run_body, .user = &f, .inputs = in, .n_in = n, .n_out = 1,
                                    .report = why, .report_size = sizeof why);
    cr_expect(st == WEFT_OK, "%s: %s %s", name, why, weft_last_error());
    st = weft_gradgradcheck(.fn = run_body, .user = &f, .inputs = in, .n_in = n, .n_out = 1,
                            .report = why, .report_size = sizeof why, .atol = 1e-4);
    cr_expect(st == WEFT_OK, "%s second order: %s %s", name, why, weft_last_error());
    check_jvp(name, run_body, &f, in, n);
    check_types(name, run_body, &f, in, n);
    weft_clear_error();
    weft_scope_end(sc);
}

#define BODY(name, expr)                                                                           \
    static weft_status name(const weft_tensor *in, weft_tensor *out)                               \
    {                                                                                              \
        out[0] = expr;                                                                             \
        return WEFT_OK;                                                                            \
    }
/* Linear rows are squared so that their second derivative is not trivially zero. */
#define SQ(x) weft_square(x)
BODY(f_sum, SQ(weft_sum(in[0], .axes = weft_axes(1))))
BODY(f_sum_all, SQ(weft_sum(in[0])))
BODY(f_prod, weft_prod(in[0], .axes = weft_axes(0, 2)))
BODY(f_amax, SQ(weft_max(in[0], .axes = weft_axes(1), .keepdim = true)))
BODY(f_amin, SQ(weft_min(in[0])))
BODY(f_mean, SQ(weft_mean(in[0], .axes = weft_axes(0, 1))))
BODY(f_var, weft_var(in[0], .axes = weft_axes(1)))
BODY(f_std, weft_std(in[0], .axes = weft_axes(0, 2), .keepdim = true))
BODY(f_norm, weft_norm(in[0], .axes = weft_axes(1)))
BODY(f_norm3, weft_norm(in[0], .axes = weft_axes(1), .order = 3))
BODY(f_lse, weft_logsumexp(in[0], .axes = weft_axes(1)))
BODY(f_cumsum, SQ(weft_cumsum(in[0], 1)))
BODY(f_cumprod, weft_cumprod(in[0], 1))
BODY(f_reshape, SQ(weft_reshape(weft_transpose(in[0], 0, 1), weft_shape(4, 3))))
BODY(f_permute, SQ(weft_permute(in[0], weft_axes(2, 0, 1))))
BODY(f_expand,
     SQ(weft_mul(weft_expand(in[0], weft_shape(2, 3)), weft_expand(in[0], weft_shape(2, 3)))))
BODY(f_slice, SQ(weft_slice(in[0], 1, WEFT_OMIT, WEFT_OMIT, -2)))
BODY(f_strided, SQ(weft_as_strided(in[0], weft_shape(2, 3), weft_shape(1, 2), 1)))
BODY(f_diag, SQ(weft_diagonal(in[0], 1, 0, 1)))
BODY(f_clone, SQ(weft_clone(in[0])))
BODY(f_cast, SQ(weft_cast(weft_mul(in[0], weft_f(2)), WEFT_F64)))
BODY(f_pad, SQ(weft_pad(in[0], weft_shape(1, 0), weft_shape(0, 2), 0.5)))
BODY(f_roll, SQ(weft_roll(in[0], weft_shape(1, -1), weft_axes(0, 1))))
BODY(f_tril, SQ(weft_tril(in[0], 0)))
BODY(f_triu, SQ(weft_triu(in[0], 1)))
BODY(f_matmul, weft_matmul(in[0], in[1]))
BODY(f_linear, weft_linear(in[0], in[1], in[2]))
BODY(f_softmax, weft_softmax(in[0], -1))
BODY(f_softmax0, weft_softmax(in[0], 0))
BODY(f_log_softmax, weft_log_softmax(in[0], -1))
BODY(f_layer_norm, weft_layer_norm(in[0], .weight = in[1], .bias = in[2]))
BODY(f_rms_norm, weft_rms_norm(in[0], .weight = in[1]))
BODY(f_conv, weft_conv2d(in[0], in[1], .bias = in[2], .stride = weft_shape(2, 1),
                         .padding = weft_shape(1, 0)))
BODY(f_conv_g, weft_conv2d(in[0], in[1], .dilation = weft_shape(1, 2), .groups = 2))
BODY(f_avg_pool, SQ(weft_avg_pool2d(in[0], .kernel = weft_shape(2, 2), .stride = weft_shape(1, 2),
                                    .padding = weft_shape(1, 0))))
BODY(f_einsum, weft_einsum("bij,bkj->ki", in[0], in[1]))
BODY(f_einsum_dots, weft_einsum("...i,ii,...i->...", in[0], in[1], in[0]))
BODY(f_group_norm, weft_group_norm(in[0], 2, in[1], in[2]))
BODY(f_instance_norm, weft_instance_norm(in[0], .weight = in[1]))
BODY(f_conv1d, weft_conv1d(in[0], in[1], in[2], .stride = weft_shape(2), .padding = weft_shape(1)))
BODY(f_conv_t,
     weft_conv_transpose2d(in[0], in[1], in[2], .stride = weft_shape(2, 1),
                           .padding = weft_shape(1, 0), .output_padding = weft_shape(1, 0)))
BODY(f_conv_t_g, weft_conv_transpose1d(in[0], in[1], .dilation = weft_shape(2), .groups = 2,
                                       .output_padding = weft_shape(1)))
BODY(f_adaptive, SQ(weft_adaptive_avg_pool2d(in[0], weft_shape(2, 3))))
BODY(f_nearest, SQ(weft_interpolate(in[0], weft_shape(3, 5))))
BODY(f_bilinear, SQ(weft_interpolate(in[0], weft_shape(5, 2), .mode = WEFT_LINEAR)))
BODY(f_reflect, SQ(weft_pad_mode(in[0], weft_shape(1, 0), weft_shape(0, 2), WEFT_PAD_REFLECT)))
BODY(f_replicate, SQ(weft_pad_mode(in[0], weft_shape(1, 3), weft_shape(0, 2), WEFT_PAD_REPLICATE)))
BODY(f_circular, SQ(weft_pad_mode(in[0], weft_shape(2, 0), weft_shape(1, 3), WEFT_PAD_CIRCULAR)))
BODY(f_sdpa, weft_scaled_dot_product_attention(in[0], in[1], in[2]))
BODY(f_sdpa_causal, weft_scaled_dot_product_attention(in[0], in[1], in[2], .causal = true))

/* Products with a factor that is zero, with two, and with none in the other lines. */
static weft_tensor with_zeros(weft_tensor x)
{
    static const double keep[12] = {1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1};
    return weft_mul(x,
                    weft_cast(weft_from_data(keep, weft_shape(3, 4), WEFT_F64), weft_dtype_of(x)));
}
BODY(f_prod_zeros, weft_prod(with_zeros(in[0]), .axes = weft_axes(1)))
BODY(f_cumprod_zeros, weft_cumprod(weft_reshape(with_zeros(in[0]), weft_shape(2, 6)), 1))
BODY(f_norm1, SQ(weft_norm(in[0], .axes = weft_axes(1), .order = 1)))
BODY(f_norm_inf, SQ(weft_norm(in[0], .axes = weft_axes(1), .order = INFINITY)))
BODY(f_norm_half, weft_norm(in[0], .axes = weft_axes(0), .order = 0.5))
BODY(f_tile, SQ(weft_tile(in[0], weft_shape(2, 1, 3))))
BODY(f_repeat, SQ(weft_repeat(in[0], 3, 1)))
BODY(f_unfold, SQ(weft_unfold(in[0], 1, 3, 1)))
BODY(f_flip, SQ(weft_cumsum(weft_flip(in[0], weft_axes(1)), 1)))
BODY(f_where_masked, SQ(weft_masked_fill(in[0], weft_less(in[0], weft_f(0)), weft_f(2))))
BODY(f_mse, weft_mse_loss(in[0], in[1]))
BODY(f_l1, SQ(weft_l1_loss(in[0], in[1], .reduction = WEFT_REDUCE_SUM)))
BODY(f_huber, weft_huber_loss(in[0], weft_mul(in[1], weft_f(3)), .delta = 0.7))
BODY(f_bce, weft_binary_cross_entropy(in[0], in[1]))
BODY(f_bce_logits, weft_bce_with_logits(in[0], in[1], .reduction = WEFT_REDUCE_NONE))
BODY(f_bce_positive, weft_bce_with_logits(in[0], in[1], .weight = in[2], .pos_weight = in[3]))
BODY(f_kl, weft_kl_div(in[0], in[1], .reduction = WEFT_REDUCE_SUM))
BODY(f_kl_log, weft_kl_div(in[0], in[1], .log_target = true))
/* Operands that are not contiguous: transposed, strided, expanded. */
#define T(x) weft_transpose(x, 0, 1)
BODY(t_sum, SQ(weft_sum(T(in[0]), .axes = weft_axes(0))))
BODY(t_prod, weft_prod(T(in[0]), .axes = weft_axes(1)))
BODY(t_var, weft_var(T(in[0]), .axes = weft_axes(1)))
BODY(t_lse, weft_logsumexp(weft_slice(in[0], 1, 0, 6, 2), .axes = weft_axes(1)))
BODY(t_max, SQ(weft_max(T(in[0]), .axes = weft_axes(1))))
BODY(t_cumprod, weft_cumprod(T(in[0]), 0))
BODY(t_softmax, weft_softmax(T(in[0]), -1))
BODY(t_layer_norm, weft_layer_norm(T(in[0]), .weight = weft_slice(in[1], 0, 0, 6, 2)))
BODY(t_matmul, weft_matmul(T(in[0]), T(in[1])))
BODY(t_conv, weft_conv2d(weft_transpose(in[0], 2, 3), T(in[1])))
BODY(t_max_pool, SQ(weft_max_pool2d(weft_transpose(in[0], 2, 3), .kernel = weft_shape(2, 2))))
BODY(t_sdpa, weft_scaled_dot_product_attention(weft_transpose(in[0], 1, 2), in[1],
                                               weft_expand(in[2], weft_shape(2, 4, 3))))
BODY(f_max_pool_wide,
     SQ(weft_max_pool2d(in[0], .kernel = weft_shape(2, 3), .stride = weft_shape(1),
                        .padding = weft_shape(1, 1), .dilation = weft_shape(2, 1))))
static weft_status f_sdpa_mask(const weft_tensor *in, weft_tensor *out)
{
    static const uint8_t keep[12] = {1, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 0};
    weft_tensor m = weft_from_data(keep, weft_shape(3, 4), WEFT_BOOL);
    out[0] = weft_scaled_dot_product_attention(in[0], in[1], in[2], .mask = m);
    return WEFT_OK;
}
static weft_status f_nll(const weft_tensor *in, weft_tensor *out)
{
    static const int64_t t[] = {2, -100, 0, 1};
    out[0] = SQ(weft_nll_loss(in[0], weft_from_data(t, weft_shape(4), WEFT_I64)));
    return WEFT_OK;
}

static weft_status f_concat(const weft_tensor *in, weft_tensor *out)
{
    weft_tensor all[3] = {in[0], weft_ones(weft_shape(1, 3), weft_dtype_of(in[0])), in[1]};
    out[0] = SQ(weft_concat(all, 3, 0));
    return WEFT_OK;
}
static weft_tensor index_of(int64_t n, const int64_t *v, weft_shape s)
{
    (void)n;
    return weft_from_data(v, s, WEFT_I64);
}
static weft_status f_take_along(const weft_tensor *in, weft_tensor *out)
{
    static const int64_t i[] = {2, 0, 1, 1, 2, 2};
    out[0] = SQ(weft_take_along(in[0], 1, index_of(6, i, weft_shape(2, 3))));
    return WEFT_OK;
}
static weft_status f_index_select(const weft_tensor *in, weft_tensor *out)
{
    static const int64_t i[] = {1, 0, 1, -1};
    out[0] = SQ(weft_index_select(in[0], 0, index_of(4, i, weft_shape(2, 2))));
    return WEFT_OK;
}
static weft_status f_scatter_add(const weft_tensor *in, weft_tensor *out)
{
    static const int64_t i[] = {2, 0, 0, 1, 2, 2};
    out[0] = SQ(weft_scatter_add(in[0], 1, index_of(6, i, weft_shape(2, 3)), in[1]));
    return WEFT_OK;
}
static weft_status f_index_put(const weft_tensor *in, weft_tensor *out)
{
    static const int64_t i[] = {1, 0, 1, -1}, j[] = {2, 1, 2, 0};
    weft_tensor at[2] = {index_of(4, i, weft_shape(4)), index_of(4, j, weft_shape(4))};
    weft_tensor y = weft_index_put(in[0], at, 2, in[1], false);
    y = weft_index_put(SQ(y), at, 2, SQ(in[1]), true);
    out[0] = SQ(weft_concat(WEFT_LIST(weft_flatten(y, 0, -1), weft_index_get(y, at, 2)), 0));
    return WEFT_OK;
}
static weft_status f_index_add(const weft_tensor *in, weft_tensor *out)
{
    static const int64_t i[] = {1, 1};
    out[0] = SQ(weft_index_add(in[0], 0, index_of(2, i, weft_shape(2)), in[1]));
    return WEFT_OK;
}
static weft_status f_sort(const weft_tensor *in, weft_tensor *out)
{
    weft_tensor idx;
    weft_status st = weft_sort(in[0], 1, false, &out[0], &idx);
    out[0] = SQ(out[0]);
    return st;
}
static weft_status f_topk(const weft_tensor *in, weft_tensor *out)
{
    weft_tensor idx;
    weft_status st = weft_topk(in[0], 2, 1, true, &out[0], &idx);
    out[0] = SQ(out[0]);
    return st;
}
static weft_status f_max_pool(const weft_tensor *in, weft_tensor *out)
{
    out[0] = SQ(weft_max_pool2d(in[0], .kernel = weft_shape(2, 2)));
    return WEFT_OK;
}
static weft_status f_batch_norm(const weft_tensor *in, weft_tensor *out)
{
    const weft_dtype type = weft_dtype_of(in[0]);
    weft_tensor m = weft_zeros(weft_shape(2), type), v = weft_ones(weft_shape(2), type);
    out[0] = weft_batch_norm(in[0], .running_mean = m, .running_var = v, .weight = in[1],
                             .bias = in[2], .training = true);
    return WEFT_OK;
}
static weft_status f_batch_norm_eval(const weft_tensor *in, weft_tensor *out)
{
    const weft_dtype type = weft_dtype_of(in[0]);
    weft_tensor m = weft_zeros(weft_shape(2), type), v = weft_ones(weft_shape(2), type);
    out[0] = SQ(weft_batch_norm(in[0], .running_mean = m, .running_var = v, .weight = in[1],
                                .bias = in[2]));
    return WEFT_OK;
}
static weft_status f_cross_entropy(const weft_tensor *in, weft_tensor *out)
{
    static const int64_t t[] = {2, -100, 0, 1};
    out[0] = weft_cross_entropy(in[0], index_of(4, t, weft_shape(4)), .label_smoothing = 0.1);
    return WEFT_OK;
}
static weft_status f_cross_entropy_weighted(const weft_tensor *in, weft_tensor *out)
{
    static const int64_t t[] = {2, -100, 0, 1};
    out[0] = weft_cross_entropy(in[0], index_of(4, t, weft_shape(4)), .label_smoothing = 0.1,
                                .weight = in[1]);
    return WEFT_OK;
}
/* In-place write of a tracked value into a slice: UPDATE, SLICE_GRAD and STRIDED_GRAD. */
static weft_status f_update(const weft_tensor *in, weft_tensor *out)
{
    weft_tensor x = weft_mul(in[0], weft_f(2));
    weft_tensor v = weft_narrow(x, 1, 1, 2);
    weft_status st = weft_mul_(v, in[1]);
    out[0] = weft_mul(x, weft_exp(x));
    return st;
}

#define S(...) weft_shape(__VA_ARGS__)
#define CHECK(OP, f, lo, hi, ...)                                                                  \
    do {                                                                                           \
        const weft_shape s_[] = {__VA_ARGS__};                                                     \
        check(#f, WF_OP_##OP, f, (int)(sizeof s_ / sizeof *s_), s_, lo, hi);                       \
    } while (0)

Test(gradcheck, other_rows)
{
    CHECK(SUM, f_sum, -1, 1, S(2, 3));
    CHECK(SUM, f_sum_all, -1, 1, S(2, 3));
    CHECK(PROD, f_prod, 0.3, 1.5, S(2, 3, 2));
    CHECK(AMAX, f_amax, -1, 1, S(2, 5));
    CHECK(AMIN, f_amin, -1, 1, S(2, 3));
    CHECK(MEAN, f_mean, -1, 1, S(2, 3, 2));
    CHECK(VAR, f_var, -1, 1, S(2, 4));
    CHECK(STD, f_std, -1, 1, S(3, 2, 2));
    CHECK(NORM, f_norm, 0.2, 1, S(2, 3));
    CHECK(NORM, f_norm3, 0.2, 1, S(2, 3));
    CHECK(LOGSUMEXP, f_lse, -1, 1, S(2, 4));
    CHECK(CUMSUM, f_cumsum, -1, 1, S(2, 4));
    CHECK(CUMPROD, f_cumprod, 0.3, 1.5, S(2, 4));
    CHECK(RESHAPE, f_reshape, -1, 1, S(2, 6));
    CHECK(PERMUTE, f_permute, -1, 1, S(2, 1, 3));
    CHECK(EXPAND, f_expand, -1, 1, S(2, 1));
    CHECK(SLICE, f_slice, -1, 1, S(2, 5));
    CHECK(AS_STRIDED, f_strided, -1, 1, S(2, 4));
    CHECK(DIAGONAL, f_diag, -1, 1, S(3, 4));
    CHECK(COPY, f_clone, -1, 1, S(2, 3));
    CHECK(CAST, f_cast, -1, 1, S(2, 3));
    CHECK(CONCAT, f_concat, -1, 1, S(2, 3), S(1, 3));
    CHECK(PAD, f_pad, -1, 1, S(2, 3));
    CHECK(ROLL, f_roll, -1, 1, S(2, 3));
    CHECK(TRIL, f_tril, -1, 1, S(3, 3));
    CHECK(TRIU, f_triu, -1, 1, S(3, 3));
    CHECK(TAKE_ALONG, f_take_along, -1, 1, S(2, 3));
    CHECK(INDEX_SELECT, f_index_select, -1, 1, S(3, 2));
    CHECK(SCATTER_ADD, f_scatter_add, -1, 1, S(2, 3), S(2, 3));
    CHECK(INDEX_ADD, f_index_put, -1, 1, S(2, 3), S(4));
    CHECK(INDEX_ADD, f_index_add, -1, 1, S(2, 3), S(2, 3));
    CHECK(SORT, f_sort, -1, 1, S(2, 4));
    CHECK(TOPK, f_topk, -1, 1, S(2, 4));
    CHECK(MATMUL, f_matmul, -1, 1, S(2, 3), S(3, 2));
    CHECK(MATMUL, f_matmul, -1, 1, S(2, 2, 3), S(3, 2));
    CHECK(MATMUL, f_matmul, -1, 1, S(2, 1, 2, 3), S(2, 3, 2));
    CHECK(MATMUL, f_matmul, -1, 1, S(3), S(2, 3, 2));
    CHECK(MATMUL, f_matmul, -1, 1, S(2, 3), S(3));
    CHECK(MATMUL, f_matmul, -1, 1, S(3), S(3));
    CHECK(LINEAR, f_linear, -1, 1, S(2, 2, 3), S(4, 3), S(4));
    CHECK(LINEAR, f_linear, -1, 1, S(3), S(4, 3), S(4));
    CHECK(SOFTMAX, f_softmax, -1, 1, S(2, 4));
    CHECK(SOFTMAX, f_softmax0, -1, 1, S(3, 2));
    CHECK(LOG_SOFTMAX, f_log_softmax, -1, 1, S(2, 4));
    CHECK(LAYER_NORM, f_layer_norm, -1, 1, S(2, 4), S(4), S(4));
    CHECK(RMS_NORM, f_rms_norm, -1, 1, S(2, 4), S(4));
    CHECK(BATCH_NORM, f_batch_norm, -1, 1, S(3, 2, 2), S(2), S(2));
    CHECK(BATCH_NORM, f_batch_norm_eval, -1, 1, S(3, 2, 2), S(2), S(2));
    CHECK(CONV2D, f_conv, -1, 1, S(2, 2, 4, 3), S(3, 2, 3, 2), S(3));
    CHECK(CONV2D, f_conv_g, -1, 1, S(1, 2, 3, 4), S(4, 1, 2, 2));
    CHECK(MATMUL, f_einsum, -1, 1, S(2, 3, 2), S(2, 2, 2));
    CHECK(DIAGONAL, f_einsum_dots, -1, 1, S(2, 3), S(3, 3));
    CHECK(LAYER_NORM, f_group_norm, -1, 1, S(2, 4, 2), S(4), S(4));
    CHECK(LAYER_NORM, f_instance_norm, -1, 1, S(2, 2, 3), S(2));
    CHECK(CONV2D, f_conv1d, -1, 1, S(2, 2, 5), S(3, 2, 2), S(3));
    CHECK(CONV2D_DX, f_conv_t, -1, 1, S(1, 2, 3, 2), S(2, 2, 2, 2), S(2));
    CHECK(CONV2D_DX, f_conv_t_g, -1, 1, S(1, 2, 3), S(2, 2, 2));
    CHECK(AVG_POOL2D, f_adaptive, -1, 1, S(1, 2, 3, 4));
    CHECK(INDEX_SELECT, f_nearest, -1, 1, S(1, 2, 2, 3));
    CHECK(INDEX_SELECT, f_bilinear, -1, 1, S(1, 2, 3, 3));
    CHECK(PAD_MODE, f_reflect, -1, 1, S(2, 3));
    CHECK(PAD_MODE, f_replicate, -1, 1, S(2, 3));
    CHECK(PAD_MODE, f_circular, -1, 1, S(2, 3));
    CHECK(MAX_POOL2D, f_max_pool, -1, 1, S(1, 2, 4, 4));
    CHECK(AVG_POOL2D, f_avg_pool, -1, 1, S(1, 2, 3, 4));
    CHECK(SDPA, f_sdpa, -1, 1, S(2, 3, 2), S(2, 4, 2), S(2, 4, 3));
    CHECK(SDPA, f_sdpa_causal, -1, 1, S(3, 2), S(3, 2), S(3, 2));
    CHECK(CROSS_ENTROPY, f_cross_entropy, -1, 1, S(4, 3));
    CHECK(PROD, f_prod_zeros, 0.3, 1.5, S(3, 4));
    CHECK(CUMPROD, f_cumprod_zeros, 0.3, 1.5, S(3, 4));
    CHECK(NORM, f_norm1, 0.2, 1, S(2, 3));
    CHECK(NORM, f_norm_inf, 0.2, 1, S(2, 3));
    CHECK(NORM, f_norm_half, 0.2, 1, S(2, 3));
    CHECK(EXPAND, f_tile, -1, 1, S(2, 2));
    CHECK(EXPAND, f_repeat, -1, 1, S(2, 2));
    CHECK(AS_STRIDED, f_unfold, -1, 1, S(2, 5));
    CHECK(SLICE, f_flip, -1, 1, S(2, 4));
    CHECK(WHERE, f_where_masked, -1, 1, S(2, 4));
    CHECK(SQUARE, f_mse, -1, 1, S(2, 3), S(3));
    CHECK(ABS, f_l1, -1, 1, S(2, 3), S(3));
    CHECK(HUBER, f_huber, -1, 1, S(2, 3), S(2, 3));
    CHECK(BCE, f_bce, 0.1, 0.9, S(2, 3), S(2, 3));
    CHECK(SOFTPLUS, f_bce_logits, -1, 1, S(2, 3), S(3));
    CHECK(SOFTPLUS, f_bce_positive, 0.2, 1, S(2, 3), S(2, 3), S(2, 1), S(3));
    CHECK(XLOGY, f_kl, 0.2, 1, S(2, 3), S(2, 3));
    CHECK(EXP, f_kl_log, -1, 1, S(2, 3), S(2, 3));
    CHECK(CROSS_ENTROPY, f_cross_entropy_weighted, 0.2, 1, S(4, 3), S(3));
    CHECK(TAKE_ALONG, f_nll, -1, 1, S(4, 3));
    CHECK(SUM, t_sum, -1, 1, S(2, 3));
    CHECK(PROD, t_prod, 0.3, 1.5, S(3, 2));
    CHECK(VAR, t_var, -1, 1, S(4, 2));
    CHECK(LOGSUMEXP, t_lse, -1, 1, S(2, 6));
    CHECK(AMAX, t_max, -1, 1, S(5, 2));
    CHECK(CUMPROD, t_cumprod, 0.3, 1.5, S(6, 3));
    CHECK(SOFTMAX, t_softmax, -1, 1, S(4, 2));
    CHECK(LAYER_NORM, t_layer_norm, -1, 1, S(3, 2), S(6));
    CHECK(MATMUL, t_matmul, -1, 1, S(3, 2), S(2, 3));
    CHECK(CONV2D, t_conv, -1, 1, S(1, 2, 3, 4), S(2, 3, 2, 2));
    CHECK(MAX_POOL2D, t_max_pool, -1, 1, S(1, 2, 4, 4));
    CHECK(MAX_POOL2D, f_max_pool_wide, -1, 1, S(1, 2, 4, 4));
    CHECK(SDPA, t_sdpa, -1, 1, S(2, 2, 3), S(2, 4, 2), S(1, 4, 3));
    CHECK(SDPA, f_sdpa_mask, -1, 1, S(2, 3, 2), S(2, 4, 2), S(2, 4, 3));
    CHECK(UPDATE, f_update, 0.2, 1, S(2, 3), S(2, 2));
    /* reached through the second derivatives of their forward rows */
    covered[WF_OP_CONV2D_DX] = covered[WF_OP_CONV2D_DW] = covered[WF_OP_AVG_POOL2D_BWD] = true;
    covered[WF_OP_PAD_MODE_BWD] = covered[WF_OP_SLICE_GRAD] = covered[WF_OP_STRIDED_GRAD] = true;
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes)               \
    cr_expect(covered[WF_OP_##NAME] || strcmp(#vjp, "NODIFF") == 0,                                \
              "row " #NAME " is differentiable but not checked");
#include "jit/ir/ops.def"
}
