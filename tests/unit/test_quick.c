/*
 * tests/unit/test_quick.c -- elementwise calls on few elements against loops over indices, whatever way dispatch
 * takes: extents that are equal, repeat or do not fit, layouts, numbers, kept operands, targets that are operands.
 *
 * Values are small integers, so that sums and products are exact in every type and each element has one right value.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/tensor.h"
#include "tests/support/support.h"

enum { MOST = 9000, RANKS = 3 };
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* A tensor, or a number, and what it should hold. */
typedef struct operand {
    weft_tensor t;
    int rank;
    int64_t dims[RANKS];
    double *v; /* row-major */
} operand;

typedef enum layout { PLAIN, TURNED, KEPT, STEPPED, NUMBER, LAYOUTS } layout;

static int64_t numel(const operand *o)
{
    int64_t n = 1;
    for (int i = 0; i < o->rank; i++) {
        n *= o->dims[i];
    }
    return n;
}

static weft_shape shape_of(const operand *o)
{
    weft_shape s = {.n = o->rank};
    for (int i = 0; i < o->rank; i++) {
        s.v[i] = o->dims[i];
    }
    return s;
}

static weft_tensor lay_out(const operand *o, layout how, weft_dtype dt)
{
    weft_tensor t = weft_cast(weft_from_data(o->v, shape_of(o), WEFT_F64), dt);
    if (how == TURNED && o->rank >= 2) {
        t = weft_transpose(weft_contiguous(weft_transpose(t, 0, 1)), 0, 1);
    } else if (how == STEPPED && o->rank >= 1) {
        t = weft_narrow(weft_concat(WEFT_LIST(t, t), o->rank - 1), o->rank - 1, 0,
                        o->dims[o->rank - 1]);
    }
    return how == KEPT ? weft_keep(t) : t;
}

static operand make(const char *text, layout how, weft_dtype dt, int seed)
{
    operand o = {.rank = 0};
    for (const char *s = text; *s; s += strcspn(s, "x") + (s[strcspn(s, "x")] == 'x')) {
        o.dims[o.rank++] = atoi(s);
    }
    const int64_t n = numel(&o);
    o.v = malloc((size_t)(n + 1) * sizeof *o.v);
    for (int64_t i = 0; i < n; i++) {
        o.v[i] = (double)((i * 7 + seed) % 11 + 1);
    }
    if (how == NUMBER) {
        o.rank = 0;
        o.t = dt == WEFT_F32 || dt == WEFT_F64 ? weft_f(o.v[0]) : weft_i((int64_t)o.v[0]);
    } else {
        o.t = lay_out(&o, how, dt);
    }
    return o;
}

static void drop(operand *o, layout how)
{
    if (how == KEPT) {
        weft_free(o->t);
    }
    free(o->v);
}

/* The element of o that broadcasts to index `at` of a result of `rank` dims; -1: it does not fit. */
static int64_t place(const operand *o, int rank, const int64_t *dims, const int64_t *at)
{
    int64_t p = 0;
    for (int i = 0; i < o->rank; i++) {
        const int64_t d = o->dims[i], r = dims[rank - o->rank + i];
        if (d != r && d != 1) {
            return -1;
        }
        p = p * d + (d == 1 ? 0 : at[rank - o->rank + i]);
    }
    return p;
}

/* Extents of the result; false: they do not broadcast. */
static bool join(const operand *a, const operand *b, int *rank, int64_t *dims)
{
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < *rank; i++) {
        const int ia = i - (*rank - a->rank), ib = i - (*rank - b->rank);
        const int64_t x = ia < 0 ? 1 : a->dims[ia], y = ib < 0 ? 1 : b->dims[ib];
        if (x != y && x != 1 && y != 1) {
            return false;
        }
        dims[i] = x == 1 ? y : x;
    }
    return true;
}

typedef struct op_case {
    const char *name;
    weft_tensor (*run)(weft_tensor a, weft_tensor b);
    weft_status (*into)(weft_tensor a, weft_tensor b);
    double (*value)(double a, double b);
} op_case;

static double value_add(double a, double b)
{
    return a + b;
}
static double value_sub(double a, double b)
{
    return a - b;
}
static double value_mul(double a, double b)
{
    return a * b;
}
static double value_max(double a, double b)
{
    return a > b ? a : b;
}
static double value_less(double a, double b)
{
    return a < b;
}

static const op_case ops[] = {
    {"add", weft_add, weft_add_, value_add}, {"sub", weft_sub, weft_sub_, value_sub},
    {"mul", weft_mul, weft_mul_, value_mul}, {"maximum", weft_maximum, weft_maximum_, value_max},
    {"less", weft_less, NULL, value_less},
};

static int compare(const char *what, const op_case *op, weft_tensor got, const operand *a,
                   const operand *b, int rank, const int64_t *dims)
{
    operand r = {.rank = rank};
    memcpy(r.dims, dims, (size_t)rank * sizeof *dims);
    const int64_t n = numel(&r);
    double *have = malloc((size_t)(n + 1) * sizeof *have);
    cr_assert(weft_ok(got), "%s %s: %s", op->name, what, weft_error_text(got));
    cr_assert_eq(weft_numel(got), n, "%s %s: %d elements", op->name, what, (int)weft_numel(got));
    cr_assert_eq(weft_to_array(got, have, n, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    for (int64_t i = 0; i < n; i++) {
        int64_t at[RANKS] = {0}, rest = i;
        for (int k = rank; k-- > 0;) {
            at[k] = rest % dims[k];
            rest /= dims[k];
        }
        const double want =
            op->value(a->v[place(a, rank, dims, at)], b->v[place(b, rank, dims, at)]);
        cr_assert_eq(have[i], want, "%s %s [%d]: %g, not %g", op->name, what, (int)i, have[i],
                     want);
    }
    free(have);
    return 1;
}

static const char *const shapes[] = {"",       "1",     "5",     "4x5",   "1x5",
                                     "4x1",    "3x4x5", "1x1x5", "3x1x1", "0x5",
                                     "90x100", "100",   "64x8",  "8",     "2x0"};
static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_I32, WEFT_I64, WEFT_BF16};

static weft_status traced(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const op_case *op = self;
    (void)n_in, (void)n_out;
    out[0] = op->run(in[0], in[1]);
    return WEFT_OK;
}

/* One op on one pair, at once and recorded; returns what was compared. */
static int run_pair(const op_case *op, const operand *a, const operand *b, const char *what)
{
    int rank;
    int64_t dims[RANKS];
    weft_scope s = weft_scope_begin();
    if (!join(a, b, &rank, dims)) {
        check_error(what, op->run(a->t, b->t), WEFT_ESHAPE, op->name);
        weft_scope_end(s);
        return 1;
    }
    int n = compare(what, op, op->run(a->t, b->t), a, b, rank, dims);
    weft_jit *j = weft_jit_trace(traced, (void *)(uintptr_t)op, .synchronous = true);
    weft_tensor in[2] = {a->t, b->t}, out;
    cr_assert_eq(weft_jit_call(j, in, 2, &out, 1), WEFT_OK, "%s", weft_last_error());
    n += compare(what, op, out, a, b, rank, dims);
    weft_jit_free(j);
    weft_scope_end(s);
    return n;
}

Test(quick, results)
{
    int n = 0;
    for (int i = 0; i < COUNT(shapes) * COUNT(shapes); i++) {
        for (int l = 0; l < LAYOUTS * LAYOUTS; l++) {
            const layout la = (layout)(l / LAYOUTS), lb = (layout)(l % LAYOUTS);
            const weft_dtype dt = types[(i + l) % COUNT(types)];
            const char *sa = shapes[i / COUNT(shapes)], *sb = shapes[i % COUNT(shapes)];
            const bool empty = strchr(sa, '0') == sa || strstr(sa, "x0") || strchr(sb, '0') == sb ||
                               strstr(sb, "x0");
            if ((la == NUMBER && lb == NUMBER) || (empty && (la == NUMBER || lb == NUMBER))) {
                continue;
            }
            char what[96];
            weft_scope s = weft_scope_begin();
            operand a = make(sa, la, dt, 3), b = make(sb, lb, dt, 5);
            snprintf(what, sizeof what, "[%s] layout %d, [%s] layout %d, %s", sa, (int)la, sb,
                     (int)lb, weft_dtype_name(dt));
            n += run_pair(&ops[(i + l) % COUNT(ops)], &a, &b, what);
            drop(&a, la);
            drop(&b, lb);
            weft_scope_end(s);
        }
    }
    cr_assert_gt(n, 6000, "%d", n);
}

Test(quick, in_place)
{
    int n = 0;
    for (int i = 0; i < COUNT(shapes) * COUNT(shapes); i++) {
        for (int l = 0; l < LAYOUTS * LAYOUTS; l++) {
            const layout la = (layout)(l / LAYOUTS), lb = (layout)(l % LAYOUTS);
            const char *sa = shapes[i / COUNT(shapes)], *sb = shapes[i % COUNT(shapes)];
            const op_case *op = &ops[(i + l) % 4];
            const weft_dtype dt = types[(i + l) % COUNT(types)];
            if (la == NUMBER || strstr(sa, "0x") == sa || strstr(sb, "0x") == sb ||
                strstr(sa, "x0") || strstr(sb, "x0")) {
                continue;
            }
            int rank;
            int64_t dims[RANKS];
            weft_scope s = weft_scope_begin();
            operand a = make(sa, la, dt, 3), b = make(sb, lb, dt, 5);
            const bool fits = join(&a, &b, &rank, dims) && rank == a.rank &&
                              memcmp(dims, a.dims, (size_t)rank * sizeof *dims) == 0;
            const weft_status rc = op->into(a.t, b.t);
            cr_assert_eq(rc == WEFT_OK, fits, "%s_ [%s] [%s]: %s", op->name, sa, sb,
                         weft_last_error());
            n += fits ? compare("in place", op, a.t, &a, &b, rank, dims) : 1;
            drop(&a, la);
            drop(&b, lb);
            weft_scope_end(s);
        }
    }
    cr_assert_gt(n, 2500, "%d", n);
}

/* Operands in the target's memory are read before it changes. */
Test(quick, target_is_operand)
{
    const weft_scope s = weft_scope_begin();
    const float start[4] = {1, 2, 3, 4};
    float got[4];
    static const struct {
        const char *what;
        float want[4];
    } cases[] = {
        {"itself", {2, 4, 6, 8}},      {"an alias", {2, 4, 6, 8}}, {"reversed", {5, 5, 5, 5}},
        {"one element", {2, 3, 4, 5}}, {"turned", {2, 5, 5, 8}},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        weft_tensor x = weft_from_data(start, weft_shape(2, 2), WEFT_F32);
        weft_tensor flat = weft_reshape(x, weft_shape(4)), target = i == 4 ? x : flat;
        weft_tensor other = i == 0   ? flat
                            : i == 1 ? weft_reshape(x, weft_shape(4))
                            : i == 2 ? weft_flip(flat, weft_axes(0))
                            : i == 3 ? weft_narrow(flat, 0, 0, 1)
                                     : weft_transpose(x, 0, 1);
        cr_assert_eq(weft_add_(target, other), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_to_array(x, got, 4, WEFT_F32), WEFT_OK, "%s", weft_last_error());
        for (int k = 0; k < 4; k++) {
            cr_assert_eq(got[k], cases[i].want[k], "%s [%d]: %g", cases[i].what, k, (double)got[k]);
        }
    }
    weft_scope_end(s);
}

/* What a derivative reads may not be written, and is found out. */
Test(quick, versions)
{
    const weft_scope s = weft_scope_begin();
    weft_tensor x = weft_full(weft_shape(3), 2, WEFT_F32),
                k = weft_full(weft_shape(3), 5, WEFT_F32);
    weft_requires_grad_(x, true);
    weft_tensor y = weft_sum(weft_mul(x, k));
    weft_no_grad_begin();
    cr_assert_eq(weft_add_(k, weft_f(1)), WEFT_OK, "%s", weft_last_error());
    weft_no_grad_end();
    check_status("backward", weft_backward(.loss = y), WEFT_EGRAD, "changed it to version 1");
    check_status("a leaf", weft_add_(x, weft_f(1)), WEFT_EGRAD, "leaf");
    weft_scope_end(s);
}

Test(quick, memory)
{
    const weft_scope s = weft_scope_begin();
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32),
                y = weft_keep(weft_ones(weft_shape(3), WEFT_F32));
    weft_free(weft_add(x, y));
    weft_memory_stats before, after;
    weft_memory_get_stats(&before);
    for (int i = 0; i < 1000; i++) {
        weft_free(weft_add(x, y));
        weft_add_(x, y);
    }
    weft_memory_get_stats(&after);
    cr_assert_eq(after.live_bytes, before.live_bytes);
    cr_assert_eq(after.live_tensors, before.live_tensors);
    wf_alloc_fail_after(1, 0);
    weft_tensor none = weft_add(x, y);
    wf_alloc_fail_after(0, 0);
    check_error("no memory", none, WEFT_ENOMEM, "add");
    cr_assert(weft_ok(weft_add(x, y)), "%s", weft_last_error());
    weft_memory_get_stats(&after);
    cr_assert_eq(after.live_tensors, before.live_tensors + 1);
    weft_free(y);
    weft_free(weft_add(x, x));
    check_error("a dead operand", weft_add(x, y), WEFT_EHANDLE, "dead");
    check_error("an empty operand", weft_add(x, WEFT_NONE), WEFT_EINVALID, "empty");
    weft_scope_end(s);
}
