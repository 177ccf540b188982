/*
 * tests/unit/test_quick_rows.c -- the short ways of rows (eager/quick_rows.c) against the general one: the same types,
 * extents, strides, bits, gradients and errors, whatever the layout of the operands.
 *
 * The general way is taken by a thread that says its tensors may be on a device (`away`), and by operands whose rows
 * lie apart.
 *
 * ctest: threads optimised
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "autograd/tape.h"
#include "eager/alloc.h"
#include "eager/tensor.h"
#include "tests/support/effort.h"
#include "tests/support/rows.h"
#include "tests/support/support.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

typedef weft_tensor (*call_fn)(weft_tensor x, const void *arg);

static weft_tensor generally(call_fn fn, weft_tensor x, const void *arg)
{
    wf_ctx *c = wf_ctx_get();
    const uint8_t before = c->away;
    c->away = 1;
    weft_tensor r = fn(x, arg);
    c->away = before;
    return r;
}

static void check_same(const char *what, weft_tensor a, weft_tensor b)
{
    cr_assert_eq(weft_ok(a), weft_ok(b), "%s: %s, %s", what, weft_error_text(a),
                 weft_error_text(b));
    if (!weft_ok(a)) {
        cr_assert_eq(weft_error_status(a), weft_error_status(b), "%s: %s", what,
                     weft_error_text(a));
        cr_assert_str_eq(weft_error_text(a), weft_error_text(b), "%s", what);
        return;
    }
    check_bits(what, a, b);
    for (int i = 0; i < weft_rank(a); i++) {
        cr_assert_eq(weft_stride(a, i), weft_stride(b, i), "%s: stride %d: %d, %d", what, i,
                     (int)weft_stride(a, i), (int)weft_stride(b, i));
    }
}

/* The same elements, rows of the last axis one element more apart. */
static weft_tensor apart(weft_tensor x)
{
    const int last = weft_rank(x) - 1;
    return weft_narrow(weft_concat(WEFT_LIST(x, weft_narrow(x, last, 0, 1)), last), last, 0,
                       weft_dim(x, last));
}

static const weft_shape shapes[] = {
    {.n = 1, .v = {1}},          {.n = 1, .v = {5}},        {.n = 1, .v = {64}},
    {.n = 1, .v = {65}},         {.n = 1, .v = {9000}},     {.n = 2, .v = {4, 4}},
    {.n = 2, .v = {3, 70}},      {.n = 2, .v = {64, 1}},    {.n = 2, .v = {100, 37}},
    {.n = 2, .v = {70, 130}},    {.n = 2, .v = {9, 5000}},  {.n = 2, .v = {1, 200}},
    {.n = 3, .v = {2, 3, 5}},    {.n = 3, .v = {5, 1, 7}},  {.n = 3, .v = {2, 100, 80}},
    {.n = 4, .v = {2, 3, 4, 5}}, {.n = 2, .v = {64, 1024}}, {.n = 7, .v = {1, 2, 1, 2, 1, 2, 3}},
    {.n = 2, .v = {40, 2100}},
};
static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16,
                                   WEFT_I64, WEFT_I32, WEFT_BOOL};

static weft_tensor make(const weft_shape *shape, weft_dtype dt)
{
    weft_generator g = {11, 0};
    return weft_cast(weft_mul(weft_randn(.shape = *shape, .generator = &g), weft_f(3)), dt);
}

/* -- reductions ------------------------------------------------------------------------------------------------- */

typedef struct reduction {
    weft_axes axes;
    bool keep;
    int op;
} reduction;

typedef weft_tensor (*reduce_fn)(const weft_reduce_args *args);
static const reduce_fn reduce_ops[] = {
    weft_sum,       weft_mean, weft_prod, weft_max,           weft_min,    weft_any,
    weft_logsumexp, weft_all,  weft_sum,  weft_count_nonzero, weft_argmax, weft_argmin,
};
enum { FIRST_ARG = 10 };

static weft_tensor reduce(weft_tensor x, const void *arg)
{
    const reduction *r = arg;
    return reduce_ops[r->op](&(weft_reduce_args){.x = x, .axes = r->axes, .keepdim = r->keep});
}

static weft_tensor spread(weft_tensor x, const void *arg)
{
    const reduction *r = arg;
    return r->op % 2 ? (weft_var)(&(weft_var_args){
                           .x = x, .axes = r->axes, .keepdim = r->keep, .correction = 1})
                     : (weft_norm)(&(weft_norm_args){.x = x, .axes = r->axes, .keepdim = r->keep});
}

/* Axes [from, to), the last one first. */
static weft_axes range(int from, int to)
{
    weft_axes a = {.n = to - from};
    for (int i = from; i < to; i++) {
        a.v[i - from] = to - 1 - (i - from);
    }
    return a;
}

static int check_reductions(weft_tensor x, weft_tensor spaced, weft_dtype dt)
{
    int n = 0;
    const int rank = weft_rank(x);
    for (int k = 0; k < rank * rank; k++) {
        const int from = k / rank, to = k % rank + 1;
        if (from >= to) {
            continue;
        }
        for (int op = 0; op < COUNT(reduce_ops); op++) {
            char what[96];
            weft_scope s = weft_scope_begin();
            reduction r = {range(from, to), (op + k) % 2, op};
            r.axes = op >= FIRST_ARG && to - from > 1 ? (weft_axes){0} : r.axes;
            snprintf(what, sizeof what, "op %d of %s[%d, ..] of rank %d over [%d, %d)", op,
                     weft_dtype_name(dt), (int)weft_dim(x, 0), rank, from, to);
            weft_tensor got = reduce(x, &r);
            check_same(what, got, generally(reduce, x, &r));
            check_bits(what, got, generally(reduce, spaced, &r));
            check_bits(what, got, reduce(spaced, &r));
            check_same(what, spread(x, &r), generally(spread, x, &r));
            weft_scope_end(s);
            n++;
        }
    }
    return n;
}

Test(quick_rows, reductions)
{
    int n = 0;
    for (int i = 0; i < COUNT(shapes); i++) {
        for (int t = 0; t < COUNT(types); t++) {
            /* where programs run slowly, types take turns from shape to shape */
            if ((types[t] == WEFT_BOOL && i % 3) || (3 * i + t) % 10 >= (int)effort_of(10)) {
                continue;
            }
            weft_scope s = weft_scope_begin();
            weft_tensor x = make(&shapes[i], types[t]);
            n += check_reductions(x, apart(x), types[t]);
            n += (t + i) % 4 ? 0 : check_reductions(weft_keep(x), apart(x), types[t]);
            if (!((t + i) % 4)) {
                weft_free(x);
            }
            weft_scope_end(s);
        }
    }
    cr_assert_gt(n, (int)effort_of(2000), "%d", n);
}

/* What the general way refuses, or has its own answer to, the short one does not touch. */
Test(quick_rows, odd_reductions)
{
    const weft_scope s = weft_scope_begin();
    const weft_tensor x = make(&shapes[5], WEFT_F32);
    const weft_tensor some[] = {x,
                                weft_transpose(x, 0, 1),
                                weft_zeros(weft_shape(0, 3), WEFT_F32),
                                weft_narrow(x, 1, 1, 2),
                                weft_expand(weft_narrow(x, 0, 0, 1), weft_shape(4, 4)),
                                weft_full((weft_shape){0}, 2, WEFT_F32),
                                WEFT_NONE,
                                weft_f(3)};
    const weft_axes axes[] = {{0},
                              {.n = 1, .v = {0}},
                              {.n = 1, .v = {-1}},
                              {.n = 1, .v = {2}},
                              {.n = 1, .v = {-3}},
                              {.n = 2, .v = {0, 0}},
                              {.n = 2, .v = {1, 0}},
                              {.n = -1}};
    for (int i = 0; i < COUNT(some) * COUNT(axes); i++) {
        for (int op = 0; op < COUNT(reduce_ops); op++) {
            char what[64];
            const reduction r = {axes[i % COUNT(axes)], op % 2, op};
            snprintf(what, sizeof what, "op %d of %d over %d", op, i / COUNT(axes),
                     i % COUNT(axes));
            const weft_tensor t = some[i / COUNT(axes)];
            check_same(what, reduce(t, &r), generally(reduce, t, &r));
        }
    }
    weft_scope_end(s);
}

/* -- views ------------------------------------------------------------------------------------------------------ */

static weft_tensor view(weft_tensor x, const void *arg)
{
    switch (*(const int *)arg) {
    case 0:
        return weft_transpose(x, 0, -1);
    case 1:
        return weft_permute(x, weft_axes(2, 0, 1));
    case 2:
        return weft_narrow(x, 0, 1, 1);
    case 3:
        return weft_narrow(x, -1, 0, 2);
    case 4:
        return weft_slice(x, 0, WEFT_OMIT, WEFT_OMIT, 2);
    case 5:
        return weft_slice(x, 0, 1, 1, 1);
    case 6:
        return weft_reshape(x, weft_shape(-1));
    case 7:
        return weft_reshape(x, weft_shape(1, -1, 1));
    case 8:
        return weft_expand(weft_unsqueeze(x, 0), weft_shape(3, -1, -1));
    case 9:
        return weft_expand(weft_narrow(x, 0, 0, 1), weft_shape(7, -1));
    case 10:
        return weft_detach(x);
    case 11:
        return weft_unsqueeze(x, -1);
    case 12:
        return weft_reshape(x, weft_shape(3, 3));
    case 13:
        return weft_select(x, 0, -1);
    case 14:
        return weft_flip(x, weft_axes(0));
    case 15:
        return weft_diagonal(x, 0, 0, 1);
    default:
        return weft_expand(x, weft_shape(2, 2));
    }
}
enum { VIEWS = 17 };

/* What fn makes of every shape in layouts of all kinds, with the numbers below n as its argument. */
static void check_layouts(const char *of, weft_tensor (*fn)(weft_tensor, const void *), int n)
{
    for (int i = 0; i < COUNT(shapes); i++) {
        for (int v = 0; v < n; v++) {
            char what[64];
            if ((i * n + v) % EFFORT_LIST_STEP != 0) {
                continue;
            }
            const weft_scope s = weft_scope_begin();
            const weft_tensor x = make(&shapes[i], types[(i + v) % COUNT(types)]);
            const weft_tensor some[] = {x, weft_transpose(x, 0, -1), apart(x),
                                        weft_keep(weft_clone(x))};
            for (int k = 0; k < COUNT(some); k++) {
                snprintf(what, sizeof what, "%s %d of shape %d, layout %d", of, v, i, k);
                check_same(what, fn(some[k], &v), generally(fn, some[k], &v));
            }
            weft_free(some[3]);
            weft_scope_end(s);
        }
    }
}

Test(quick_rows, views)
{
    check_layouts("view", view, VIEWS);
}

static weft_tensor widen(weft_tensor x, const void *arg)
{
    return weft_expand(x, *(const weft_shape *)arg);
}
static weft_tensor fill(weft_tensor x, const void *arg)
{
    return weft_reshape(x, *(const weft_shape *)arg);
}

/* Extents whose product, or whose strides' product, no int64 holds. */
Test(quick_rows, huge_views)
{
    const int64_t n = (int64_t)1 << 20;
    const weft_shape of[] = {{.n = 2, .v = {n * n, n * n}},
                             {.n = 3, .v = {0, n * n, n * n}},
                             {.n = 3, .v = {n * n, n * n, 0}},
                             {.n = 4, .v = {n, n, n, n}},
                             {.n = 4, .v = {n, n, n, 8}},
                             {.n = 3, .v = {n, n, 0}},
                             {.n = 2, .v = {n, n}}};
    const weft_scope s = weft_scope_begin();
    const weft_tensor one = weft_ones(weft_shape(1, 1), WEFT_F32);
    const weft_tensor none = weft_zeros(weft_shape(0), WEFT_F32);
    for (int i = 0; i < COUNT(of); i++) {
        char what[64];
        snprintf(what, sizeof what, "shape %d", i);
        const weft_tensor a = widen(one, &of[i]), b = generally(widen, one, &of[i]);
        cr_assert_eq(weft_ok(a), weft_ok(b), "%s: %s, %s", what, weft_error_text(a),
                     weft_error_text(b));
        cr_assert_eq(weft_ok(a), i > 4, "%s: %s", what, weft_error_text(a));
        const weft_tensor c = fill(none, &of[i]), d = generally(fill, none, &of[i]);
        cr_assert_eq(weft_ok(c), weft_ok(d), "%s: %s, %s", what, weft_error_text(c),
                     weft_error_text(d));
        cr_assert_eq(weft_ok(c), i == 5, "%s: %s", what, weft_error_text(c));
    }
    weft_scope_end(s);
}

/* Memory is shared both ways, and goes with the last of the handles. */
Test(quick_rows, views_share)
{
    const test_baseline before = test_baseline_take();
    const weft_scope s = weft_scope_begin();
    const weft_tensor x = weft_zeros(weft_shape(2, 3), WEFT_F32);
    const weft_tensor t = weft_transpose(x, 0, 1), row = weft_narrow(t, 0, 1, 1);
    cr_assert_eq(weft_add_(row, weft_f(5)), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_item_f64(weft_sum(x)), 10.0);
    cr_assert_eq(weft_copy_(x, weft_f(1)), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_item_f64(weft_sum(row)), 2.0);
    weft_free(x);
    weft_free(t);
    cr_assert_eq(weft_item_f64(weft_sum(row)), 2.0);
    const weft_tensor kept = weft_keep(weft_reshape(row, weft_shape(2)));
    weft_free(row);
    weft_free(weft_narrow(kept, 0, 1, 1));
    cr_assert_eq(weft_item_f64(weft_sum(kept)), 2.0);
    weft_free(kept);
    weft_scope_end(s);
    check_baseline("views", &before);
}

/* A kept tensor viewed and let go of by several threads, and one whose first view is kept later. */
static void *many_views(void *arg)
{
    const weft_tensor *t = arg;
    for (int i = 0; i < 2000; i++) {
        const weft_scope s = weft_scope_begin();
        const weft_tensor v = weft_transpose(t[i % 2], 0, 1);
        if (weft_item_f64(weft_sum(weft_narrow(v, 0, 0, 1))) != 3.0) {
            return arg;
        }
        weft_scope_end(s);
    }
    return NULL;
}

Test(quick_rows, threads)
{
    enum { THREADS = 4 };
    const test_baseline before = test_baseline_take();
    const weft_scope s = weft_scope_begin();
    const weft_tensor x = weft_ones(weft_shape(3, 5), WEFT_F32);
    const weft_tensor plain = weft_ones(weft_shape(3, 5), WEFT_F32);
    const weft_tensor both[2] = {weft_keep(weft_detach(plain)), weft_keep(x)};
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&thread[i], NULL, many_views, (void *)(uintptr_t)both);
    }
    weft_free(weft_detach(plain));
    weft_free(plain);
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(thread[i], &bad);
        cr_assert_null(bad);
    }
    weft_free(both[0]);
    weft_free(both[1]);
    weft_scope_end(s);
    check_baseline("threads", &before);
}

/* -- other rows, and the tape --------------------------------------------------------------------------------------- */

static weft_tensor other(weft_tensor x, const void *arg)
{
    const int last = weft_rank(x) - 1;
    const weft_tensor w = weft_reshape(weft_narrow(x, 0, 0, 1), weft_shape(-1));
    switch (*(const int *)arg) {
    case 0:
        return weft_softmax(x, -1);
    case 1:
        return weft_log_softmax(x, 0);
    case 2:
        return weft_layer_norm(x);
    case 3:
        return last == 1 ? weft_layer_norm(x, .weight = w, .bias = w) : weft_softmax(x, last);
    case 4:
        return last == 1 ? weft_rms_norm(x, .weight = w) : weft_rms_norm(x);
    case 5:
        return weft_cast(x, WEFT_F64);
    case 6:
        return weft_cast(x, WEFT_BF16);
    case 7:
        return weft_clone(x);
    case 8:
        return weft_matmul(x, last > 0 ? weft_transpose(x, -1, -2) : x);
    case 9: /* of integers an error, as of one row's length that does not fit */
        return weft_linear(x, last == 1 ? weft_narrow(x, 0, 0, 1) : x, WEFT_NONE);
    case 10:
        return weft_cumsum(x, -1);
    case 11:
        return weft_tril(x, 0);
    case 12:
        return weft_index_select(x, 0, weft_zeros(weft_shape(3), WEFT_I64));
    case 13:
        return weft_index_select(x, 0, weft_full(weft_shape(2), 1e6, WEFT_I64));
    case 14:
        return weft_full_like(x, 1);
    case 15:
        return weft_eye(weft_dim(x, 0) % 50, 7, 1, weft_dtype_of(x));
    default:
        return weft_softmax(x, 9);
    }
}
enum { OTHERS = 17 };

Test(quick_rows, others)
{
    check_layouts("row", other, OTHERS);
}

static weft_tensor model(weft_tensor x, const void *arg)
{
    const int k = *(const int *)arg;
    const weft_tensor t = weft_permute(weft_reshape(x, weft_shape(2, 3, 4)), weft_axes(1, 0, 2));
    const weft_tensor y = weft_narrow(weft_softmax(t, k), -1, 1, 2);
    const weft_tensor m = weft_max(y, .axes = weft_axes(0)),
                      a = weft_mean(y, .axes = weft_axes(-1));
    return weft_add(weft_sum(weft_mul(m, m)),
                    weft_sum(weft_prod(weft_expand(weft_cast(a, WEFT_F64), weft_shape(2, 3, 2)),
                                       .axes = weft_axes(1))));
}

Test(quick_rows, gradients)
{
    const test_baseline before = test_baseline_take();
    for (int k = 0; k < 3; k++) {
        const weft_scope s = weft_scope_begin();
        const weft_shape length = weft_shape(24);
        const weft_tensor x = make(&length, WEFT_F32);
        weft_tensor g[2];
        weft_requires_grad_(x, true);
        for (int i = 0; i < 2; i++) {
            const weft_tensor y = i ? generally(model, x, &k) : model(x, &k);
            cr_assert_eq(weft_backward(.loss = y), WEFT_OK, "%s", weft_last_error());
            g[i] = weft_clone(weft_grad(x));
            weft_set_grad(x, WEFT_NONE);
        }
        check_bits("gradient", g[0], g[1]);
        weft_requires_grad_(x, false);
        weft_scope_end(s);
    }
    check_baseline("gradients", &before);
}

/* Derivatives of few elements, each in one call of its kernel, against those that are laid out and bound: every row, of
 * tensors and beside a number, with one element, a few and more than one call takes, and of an operand that is a view. */
typedef struct derived {
    wf_op op;
    int nsrc, number; /* that operand is a number; -1: none */
    weft_tensor in[3];
} derived;

static weft_tensor derive(weft_tensor x, const void *arg)
{
    const derived *d = arg;
    weft_tensor in[3], g = WEFT_NONE;
    for (int i = 0; i < d->nsrc; i++) {
        in[i] = i == d->number ? weft_f(0.75) : d->in[i];
    }
    const weft_tensor y = row_call(d->op, in);
    if (!weft_ok(y)) {
        return y;
    }
    cr_assert_eq(weft_backward(.loss = y, .gradient = x), WEFT_OK, "%s: %s", wf_rows[d->op].name,
                 weft_last_error());
    weft_tensor all[3];
    int n = 0;
    for (int i = 0; i < d->nsrc; i++) {
        g = i == d->number ? WEFT_NONE : weft_grad(d->in[i]);
        if (g.slot) {
            all[n++] = weft_reshape(weft_clone(g), weft_shape(-1));
            weft_set_grad(d->in[i], WEFT_NONE);
        }
    }
    return weft_concat(all, n, 0);
}

Test(quick_rows, derivatives)
{
    static const int64_t lengths[] = {1, 7, 9000};
    const test_baseline before = test_baseline_take();
    int n = 0;
    FOR_EACH_ELEMENTWISE(op)
    {
        const int kind = wf_rows[op].kind;
        if (kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE || kind == WF_KIND_CHOOSE ||
            !(wf_rows[op].types & WF_BIT(WEFT_F32))) {
            continue;
        }
        for (int k = 0; k < 3 * COUNT(lengths) * 2; k++) {
            const weft_scope s = weft_scope_begin();
            const weft_dtype dt = k % 2 ? WEFT_F64 : WEFT_F32;
            const int64_t length = lengths[k / 2 % 3];
            weft_generator gen = {(uint64_t)k, 0};
            derived d = {.op = op, .nsrc = wf_rows[op].min_src, .number = k / 6 == 1 ? 1 : -1};
            if (d.number >= d.nsrc) {
                weft_scope_end(s);
                continue;
            }
            for (int i = 0; i < d.nsrc; i++) {
                weft_tensor x = weft_rand(.shape = weft_shape(length), .low = 0.1, .high = 0.9,
                                          .dtype = dt, .generator = &gen);
                d.in[i] = k / 6 == 2 && i == 0 ? weft_detach(apart(x)) : x;
                weft_requires_grad_(d.in[i], true);
            }
            const weft_tensor g =
                weft_randn(.shape = weft_shape(length), .dtype = dt, .generator = &gen);
            const weft_tensor got = derive(g, &d), want = generally(derive, g, &d);
            cr_assert(weft_ok(got), "%s: %s", wf_rows[op].name, weft_error_text(got));
            check_bits(wf_rows[op].name, got, want);
            for (int i = 0; i < d.nsrc; i++) {
                weft_requires_grad_(d.in[i], false);
            }
            n++;
            weft_scope_end(s);
        }
    }
    cr_assert_gt(n, 600, "%d", n);
    check_baseline("derivatives", &before);
}

/* Saved elements that a kernel may not read in passing: of a recording that failed, and of one that has not run. */
Test(quick_rows, saved_values_that_are_not_there)
{
    const weft_scope s = weft_scope_begin();
    const weft_tensor g = weft_ones(weft_shape(4), WEFT_F32),
                      x = weft_full(weft_shape(4), 2, WEFT_F32);
    const weft_tensor far = weft_full(weft_shape(4), 9, WEFT_I64);
    weft_requires_grad_(x, true);
    weft_jit *j = weft_jit_trace(NULL);
    cr_assert_eq(weft_jit_begin(j), WEFT_OK, "%s", weft_last_error());
    weft_tensor y = weft_exp(x);
    const weft_tensor none = weft_gather(x, 0, far);
    cr_assert_neq(weft_jit_end(j), WEFT_OK);
    (void)none;
    cr_assert_eq(weft_backward(.loss = y, .gradient = g), WEFT_EGRAD, "%s", weft_last_error());
    cr_assert(strstr(weft_last_error(), "never computed"), "%s", weft_last_error());
    weft_jit_free(j);

    wf_ctx *c = wf_ctx_get();
    y = weft_exp(x);
    const wf_slot *slot = wf_slot_of(c, y);
    const wf_ref r = slot->node;
    cr_assert(r && wf_tape_elements(c->tape, r, r) == wf_slot_data(slot));
    atomic_store(&slot->st->is_virtual, true);
    cr_assert_null(wf_tape_elements(c->tape, r, r));
    atomic_store(&slot->st->is_virtual, false);
    cr_assert_eq(weft_backward(.loss = y, .gradient = g), WEFT_OK, "%s", weft_last_error());
    weft_requires_grad_(x, false);
    weft_scope_end(s);
}

/* Which operand's layout decides: of the derivative of batch_norm the image's, not the gradient's. */
static weft_tensor normed(weft_tensor g, const void *arg)
{
    const weft_tensor *x = arg;
    weft_tensor y = weft_batch_norm(.x = *x, .training = true), r = WEFT_NONE;
    cr_assert_eq(weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = x, .n_inputs = 1,
                              .grads = &r, .grad_outputs = &g),
                 WEFT_OK, "%s", weft_last_error());
    return r;
}

Test(quick_rows, layouts_that_differ)
{
    const test_baseline before = test_baseline_take();
    const weft_scope s = weft_scope_begin();
    weft_generator gen = {5, 0};
    const weft_shape shape = weft_shape(2, 3, 4, 5);
    for (int last = 0; last < 2; last++) { /* the image, or the gradient */
        const weft_tensor a = weft_randn(.shape = shape, .dtype = WEFT_F32, .generator = &gen);
        const weft_tensor b = weft_randn(.shape = shape, .dtype = WEFT_F32, .generator = &gen);
        const weft_tensor x = last ? a : weft_channels_last(a),
                          g = last ? weft_channels_last(b) : b;
        weft_requires_grad_(x, true);
        const weft_tensor got = normed(g, &x);
        check_same("batch_norm", got, generally(normed, g, &x));
        cr_assert_eq(weft_stride(got, 1), last ? 20 : 1);
        weft_requires_grad_(x, false);
    }
    weft_scope_end(s);
    check_baseline("layouts", &before);
}

/* -- views of values ---------------------------------------------------------------------------------------------- */

enum { TURNED, EVERY_OTHER, OFFSET, REVERSED, UPSIDE_DOWN, EVERY_THIRD, STACKED, LAYS };

/* A view with the elements of x[rows, cols]. */
static weft_tensor lay_out(weft_tensor x, int how)
{
    const int64_t rows = weft_dim(x, 0), cols = weft_dim(x, 1);
    switch (how) {
    case TURNED:
        return weft_transpose(weft_contiguous(weft_transpose(x, 0, 1)), 0, 1);
    case EVERY_OTHER:
    case EVERY_THIRD: {
        const int64_t step = how == EVERY_OTHER ? 2 : 3;
        weft_tensor all = weft_zeros(weft_shape(rows, step * cols), weft_dtype_of(x));
        weft_tensor part = weft_slice(all, 1, 0, WEFT_OMIT, step);
        weft_copy_(part, x);
        return part;
    }
    case OFFSET:
        return weft_narrow(weft_pad(x, weft_shape(0, 1), weft_shape(0, 2), 0), 1, 1, cols);
    case REVERSED:
    case UPSIDE_DOWN: {
        const weft_axes axis = weft_axes(how == REVERSED ? 1 : 0);
        return weft_flip(weft_contiguous(weft_flip(x, axis)), axis);
    }
    default: /* rows and columns change places with a third axis between them */
        return weft_reshape(
            weft_permute(weft_contiguous(weft_permute(weft_reshape(x, weft_shape(rows, 1, cols)),
                                                      weft_axes(2, 1, 0))),
                         weft_axes(2, 1, 0)),
            weft_shape(rows, cols));
    }
}

static weft_tensor on_view(int op, weft_tensor x, weft_tensor y, weft_tensor cond)
{
    const int64_t rows = weft_dim(x, 0);
    switch (op) {
    case 0:
        return weft_add(x, y);
    case 1:
        return weft_mul(y, weft_narrow(x, 0, rows - 1, 1)); /* a row */
    case 2:
        return weft_sub(weft_narrow(x, 1, 0, 1), y); /* a column */
    case 3:
        return weft_less(x, y);
    case 4:
        return weft_where(cond, x, y);
    case 5:
        return weft_where(weft_less(x, y), weft_i(1), x);
    case 6:
        return weft_clone(x);
    case 7:
        return weft_cast(x, WEFT_F32);
    case 8:
        return weft_cast(x, WEFT_I64);
    case 9:
        return weft_cast(x, WEFT_BF16);
    case 10:
        return weft_exp(weft_cast(x, WEFT_F16));
    case 11:
        return weft_lerp(x, y, x);
    default: {
        reduction r = {{0}, op & 1, (op - 12) / 3};
        r.axes = op % 3 == 0 ? (weft_axes){0} : weft_axes(op % 3 - 1);
        return reduce(x, &r);
    }
    }
}
enum { ON_VIEWS = 12 + 3 * COUNT(reduce_ops) };

/* Ops on views, small ones and such as leave the short ways, against the same on row-major operands. */
Test(quick_rows, views_of_values)
{
    static const int64_t sides[][2] = {{1, 1},   {2, 3},   {15, 15},  {16, 16},
                                       {17, 5},  {5, 33},  {31, 64},  {63, 63},
                                       {64, 65}, {90, 91}, {130, 67}, {300, 257}};
    static const weft_dtype of[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16, WEFT_I64,
                                    WEFT_I32, WEFT_I16, WEFT_U8,   WEFT_BOOL};
    int n = 0;
    for (int i = 0; i < COUNT(sides) * COUNT(of) * LAYS; i++) {
        const int64_t *side = sides[i / LAYS % COUNT(sides)];
        const weft_dtype dt = of[i / LAYS / COUNT(sides)];
        const weft_shape shape = weft_shape(side[0], side[1]);
        if (i % 10 >= (int)effort_of(10)) {
            continue;
        }
        const weft_scope s = weft_scope_begin();
        const weft_tensor x = make(&shape, dt), view = lay_out(x, i % LAYS);
        const weft_tensor y = weft_flip(x, weft_axes(0)), cond = weft_not_equal(y, weft_i(0));
        const weft_tensor plain = weft_contiguous(y);
        cr_assert(weft_ok(view), "%s", weft_last_error());
        check_bits("view", view, x);
        for (int op = 0; op < ON_VIEWS; op++) {
            const weft_scope inner = weft_scope_begin();
            char what[96];
            snprintf(what, sizeof what, "op %d of %s[%d, %d], layout %d", op, weft_dtype_name(dt),
                     (int)side[0], (int)side[1], i % LAYS);
            const weft_tensor want = on_view(op, x, plain, cond);
            if (weft_ok(want)) { /* what a type is refused for is no matter of strides */
                check_bits(what, on_view(op, view, plain, cond), want);
                check_bits(what, on_view(op, view, y, cond), want);
                n++;
            }
            weft_scope_end(inner);
        }
        weft_scope_end(s);
    }
    cr_assert_gt(n, (int)effort_of(15000), "%d", n);
}

/* Without memory: an error of the op, and nothing left behind. */
Test(quick_rows, memory)
{
    const weft_scope s = weft_scope_begin();
    const weft_tensor x = weft_ones(weft_shape(4, 4), WEFT_F32);
    weft_requires_grad_(x, true);
    weft_free(weft_sum(weft_layer_norm(x)));
    const weft_tensor view = weft_flip(x, weft_axes(1));
    const test_baseline before = test_baseline_take();
    int failed = 0;
    for (int op = 0; op < 8; op++) {
        for (int n = 1; n < 8; n++) {
            wf_alloc_fail_after(n, 0);
            const weft_tensor r = op == 0   ? weft_sum(x)
                                  : op == 1 ? weft_layer_norm(x)
                                  : op == 2 ? weft_transpose(x, 0, 1)
                                  : op == 3 ? weft_sum(view)
                                  : op == 4 ? weft_add(view, x)
                                  : op == 5 ? weft_matmul(x, x)
                                  : op == 6 ? weft_zeros(weft_shape(4), WEFT_F32)
                                            : weft_clone(view);
            wf_alloc_fail_after(0, 0);
            failed += !weft_ok(r);
            cr_assert(weft_ok(r) || weft_error_status(r) == WEFT_ENOMEM, "%s", weft_error_text(r));
            weft_free(r);
        }
    }
    cr_assert_geq(failed, 8, "%d", failed);
    weft_memory_stats after;
    weft_memory_get_stats(&after);
    cr_assert_eq(after.live_bytes, before.stats.live_bytes);
    weft_requires_grad_(x, false);
    weft_scope_end(s);
}
