/*
 * tests/fuzz/test_trace_fuzz.c -- random programs, called and traced: results, memory written in place through
 * any alias, gradients, generators and errors agree bit for bit, call after call.
 *
 * A program is drawn step by step from a seed while it runs; what is drawn depends on shapes and element types
 * alone, so that both ways draw the same. Numbers and the starts of slices depend on the call, and must not be
 * part of a plan. Where allocations fail in the traced call, it says so or has done what the function does, and leaves
 * nothing that cannot be used. WEFT_FUZZ_GRAPHS: how many programs (600, 300, 80, less by
 * WEFT_TEST_EFFORT); WEFT_FUZZ_SEED: the first one; WEFT_FUZZ_PRINT=1 shows them. A failing
 * program is shrunk by leaving out steps and printed as calls.
 */
/* ctest: timeout=600 */
#include <criterion/criterion.h>
#include <stdarg.h>

#include "eager/alloc.h"
#include "eager/tensor.h"
#include "jit/passes/oracle.h"
#include "jit/record_int.h"
#include "tests/jit/values.h"
#include "tests/support/effort.h"
#include "tests/support/support.h"
#include "weft/weft.h"

enum { POOL = 48, PARAMS = 3, BUFFERS = 4, OUTS = 4, STEPS = 64, CALLS = 3 };

typedef struct world {
    uint64_t seed;
    int call, len; /* steps */
    uint64_t skip; /* bit i: step i is left out */
    bool print;
    weft_tensor param[PARAMS], buffer[BUFFERS];
    uint64_t statuses;   /* a hash of what every step returned */
    bool spied, general; /* what is recorded is looked at; without the short ways of recording */
    char *text;          /* of the last segment recorded */
    /* while a program runs */
    uint64_t state;
    weft_tensor pool[POOL];
    int n, number;
} world;

static uint64_t draw(world *w)
{
    return w->state = values_hash(w->state + 1);
}
static int below(world *w, int n)
{
    return (int)(draw(w) % (uint64_t)n);
}

static void say(const world *w, const char *fmt, ...) WF_PRINTF(2, 3);
static void say(const world *w, const char *fmt, ...)
{
    if (w->print) {
        va_list args;
        va_start(args, fmt);
        fprintf(stderr, "    step %2d: ", w->number);
        vfprintf(stderr, fmt, args);
        va_end(args);
    }
}

static void note(world *w, weft_status s)
{
    w->statuses = values_hash(w->statuses ^ (uint64_t)s);
}

/* Puts a result into the pool; errors are counted and dropped. */
static void put(world *w, weft_tensor t)
{
    bool ok = weft_ok(t);
    note(w, ok ? WEFT_OK : weft_error_status(t));
    if (w->print) {
        char text[128] = "error";
        if (ok) {
            weft_shape s = weft_shape_of(t);
            int at =
                snprintf(text, sizeof text, "t%d %s[", w->n, wf_dtype_name((int)weft_dtype_of(t)));
            for (int i = 0; i < s.n && at < 100; i++) {
                at += snprintf(text + at, sizeof text - (size_t)at, "%s%d", i ? "," : "",
                               (int)s.v[i]);
            }
            snprintf(text + at, sizeof text - (size_t)at, "]");
        }
        fprintf(stderr, " -> %s\n", ok ? text : weft_error_text(t));
    }
    if (ok && weft_numel(t) <= 4000) {
        int at = w->n < POOL ? w->n++ : below(w, POOL - 8) + 8;
        w->pool[at] = t;
    }
}

static void did(world *w, weft_status s)
{
    note(w, s);
    if (w->print) {
        fprintf(stderr, " -> %s\n", s == WEFT_OK ? "ok" : weft_last_error());
    }
}

static int pick(world *w)
{
    return below(w, 3) ? w->n - 1 - below(w, w->n < 8 ? w->n : 8) : below(w, w->n);
}

/* A value that broadcasts with t (to at most 4000 elements), a number, or t itself; *name says which. */
static weft_tensor partner(world *w, int t, char *name)
{
    if (below(w, 5) == 0) {
        double v = 0.25 * below(w, 9) + w->call;
        bool whole = below(w, 3) == 0;
        snprintf(name, 24, whole ? "%.0f" : "%g", v);
        return whole ? weft_i((int64_t)v) : weft_f(v);
    }
    for (int i = 0; i < 8; i++) {
        int u = pick(w);
        weft_shape a = weft_shape_of(w->pool[t]), b = weft_shape_of(w->pool[u]);
        bool fits = true;
        int64_t n = 1;
        for (int k = 1; k <= a.n || k <= b.n; k++) {
            int64_t x = k <= a.n ? a.v[a.n - k] : 1, y = k <= b.n ? b.v[b.n - k] : 1;
            fits &= x == y || x == 1 || y == 1;
            n *= x > y ? x : y;
        }
        if (fits && n <= 4000) {
            snprintf(name, 24, "t%d", u);
            return w->pool[u];
        }
    }
    snprintf(name, 24, "t%d", t);
    return w->pool[t];
}

static wf_op elementwise(world *w)
{
    for (;;) {
        wf_op op = (wf_op)(WF_OP_NEG + below(w, WF_OP_LOGICAL_XOR - WF_OP_NEG + 1));
        if (wf_op_is_elementwise(op) && wf_rows[op].kind != WF_KIND_CHOOSE) {
            return op;
        }
    }
}

static void step_map(world *w)
{
    wf_op op = elementwise(w);
    char b[24], c[24];
    int t = pick(w);
    weft_tensor s[3] = {w->pool[t], partner(w, t, b), partner(w, t, c)}, r;
    if (wf_rows[op].min_src == 2 && below(w, 4) == 0 && !wf_is_scalar(s[1])) {
        weft_tensor x = s[0];
        s[0] = s[1];
        s[1] = x;
    }
    const int by = op == WF_OP_SIGNBIT ? 0 : 1; /* the sign of a NaN is unspecified */
    if ((op == WF_OP_SIGNBIT || op == WF_OP_COPYSIGN) && !wf_is_scalar(s[by]) &&
        wf_dtype_kind((int)weft_dtype_of(s[by])) == 2) {
        s[by] = weft_where(weft_isnan(s[by]), weft_f(0), s[by]);
    }
    say(w, "%s t%d %s %s", wf_rows[op].name, t, b, c);
    wf_dispatch(op, NULL, wf_rows[op].min_src, s, 1, &r);
    put(w, r);
}

static void step_view(world *w)
{
    int t = pick(w), kind = below(w, 8);
    weft_tensor x = w->pool[t];
    weft_shape s = weft_shape_of(x);
    int64_t n = weft_numel(x);
    int axis = s.n ? below(w, (int)s.n) : 0;
    int64_t len = s.n ? s.v[axis] : 0, start = len > CALLS ? w->call : 0;
    say(w, "view %d of t%d axis %d from %d", kind, t, axis, (int)start);
    if (kind == 0 && s.n > 1) {
        put(w, weft_transpose(x, axis, 0));
    } else if (kind <= 2 && len > CALLS) {
        put(w, weft_slice(x, axis, start, start + len - CALLS, kind));
    } else if (kind == 3 && s.n > 0) {
        put(w, weft_flip(x, weft_axes(axis)));
    } else if (kind == 4 && len > CALLS) {
        put(w, weft_select(x, axis, start));
    } else if (kind == 5) {
        put(w, weft_reshape(x, n % 2 ? weft_shape(n) : weft_shape(2, n / 2)));
    } else if (kind == 6 && n < 800) {
        weft_shape e = {.n = s.n + 1, .v = {2}};
        memcpy(e.v + 1, s.v, (size_t)s.n * sizeof s.v[0]);
        put(w, weft_expand(x, e));
    } else if (kind == 7 && n > 6 && weft_is_contiguous(x)) {
        put(w, weft_as_strided(x, weft_shape(3, 2), weft_shape(1, 2), start));
    } else {
        put(w, weft_detach(x));
    }
}

static void step_row(world *w)
{
    int t = pick(w), kind = below(w, 9);
    weft_tensor x = w->pool[t];
    weft_shape s = weft_shape_of(x);
    bool flt = wf_dtype_kind((int)weft_dtype_of(x)) == 2;
    int axis = s.n ? below(w, (int)s.n) : 0;
    if (s.n == 0 || weft_numel(x) == 0) {
        return;
    }
    x = flt ? x : weft_cast(x, WEFT_F32);
    say(w, "row %d of t%d axis %d", kind, t, axis);
    switch (kind) {
    case 0:
        put(w, weft_sum(x, .axes = weft_axes(axis), .keepdim = true));
        break;
    case 1:
        put(w, weft_mean(x, .axes = weft_axes(axis)));
        break;
    case 2:
        put(w, weft_max(x, .axes = weft_axes(axis)));
        break;
    case 3:
        put(w, weft_softmax(x, axis));
        break;
    case 4:
        put(w, weft_log_softmax(x, axis));
        break;
    case 5:
        put(w, weft_layer_norm(x));
        break;
    case 6:
        put(w, weft_var(x, .axes = weft_axes(axis), .keepdim = true));
        break;
    case 7:
        put(w, weft_logsumexp(x, .axes = weft_axes(axis)));
        break;
    default:
        put(w, weft_cumsum(x, axis));
        break;
    }
}

/* Both parts of x along an axis, computed and brought together in the other order, with something between them; perhaps over x. */
static void put_parts(world *w, weft_tensor x, int axis)
{
    const weft_shape s = weft_shape_of(x);
    const int64_t n = s.v[axis], at = n / 2 + below(w, 2) * (n % 2);
    const weft_tensor last = weft_slice(x, axis, at, n, 1);
    weft_tensor part[4] = {weft_mul(last, weft_i(2 + w->call)),
                           weft_maximum(weft_slice(x, axis, 0, at, 1), weft_i(w->call))};
    int k = 2;
    if (below(w, 3) == 0) { /* which is read elsewhere, too, or twice */
        put(w, part[0]);
    } else if (below(w, 3) == 0) {
        part[k++] = below(w, 2) ? last : part[1];
    }
    const weft_tensor y = weft_concat(part, k, axis);
    if (k == 2 && below(w, 3) == 0) {
        did(w, weft_copy_(x, y));
    }
    put(w, below(w, 3) ? y : weft_concat((weft_tensor[]){weft_neg(y), y}, 2, axis));
}

static void step_move(world *w)
{
    int t = pick(w), kind = below(w, 6);
    weft_tensor x = w->pool[t];
    weft_shape s = weft_shape_of(x);
    static const weft_dtype types[] = {WEFT_F32, WEFT_F32, WEFT_F16, WEFT_BF16,
                                       WEFT_F64, WEFT_I64, WEFT_BOOL};
    say(w, "move %d of t%d", kind, t);
    if (kind == 0) {
        put(w, weft_clone(x));
    } else if (kind <= 2) {
        put(w, weft_cast(x, types[below(w, 7)]));
    } else if (kind == 3 && s.n && weft_numel(x) && below(w, 2)) {
        put_parts(w, x, below(w, (int)s.n));
    } else if (kind == 3) {
        weft_tensor parts[300] = {x, x};
        int n = below(w, 8) || weft_numel(x) > 12 ? 2 : 245 + below(w, 56);
        for (int i = 2; i < n; i++) {
            parts[i] = i % 3 ? x : weft_mul(x, weft_i(i));
        }
        put(w, s.n ? weft_concat(parts, n, below(w, (int)s.n)) : weft_clone(x));
    } else if (kind == 4 && s.n == 2 && s.v[0] == s.v[1]) {
        put(w, weft_matmul(x, x));
    } else {
        put(w, weft_randn(weft_shape(4, 6), WEFT_F32));
    }
}

/* Images, channels-last, and rows that keep that order. */
static void step_image(world *w)
{
    int t = pick(w), kind = below(w, 7);
    weft_tensor x = w->pool[t];
    weft_shape s = weft_shape_of(x);
    const int64_t n = weft_numel(x);
    say(w, "image %d of t%d", kind, t);
    if (s.n != 4 && n > 0 && n % 12 == 0 && n <= 600) {
        put(w, weft_channels_last(weft_reshape(x, weft_shape(n / 12, 2, 2, 3))));
        return;
    }
    if (s.n != 4 || n == 0 || n > 1200 || s.v[2] < 2 || s.v[3] < 2) {
        return;
    }
    x = wf_dtype_kind((int)weft_dtype_of(x)) == 2 ? x : weft_cast(x, WEFT_F32);
    const weft_shape two = weft_shape(2), one = weft_shape(1);
    if (kind == 0) {
        put(w, weft_channels_last(x));
    } else if (kind == 1) {
        put(w, weft_batch_norm(.x = x, .training = true));
    } else if (kind == 2) {
        put(w, weft_max_pool2d(.x = x, .kernel = two, .stride = one, .padding = one));
    } else if (kind == 3) {
        put(w, weft_avg_pool2d(.x = x, .kernel = two, .stride = one, .padding = one));
    } else if (kind == 4) {
        put(w, weft_unfold(x, 3, 2, 1));
    } else if (s.v[1] <= 8) {
        const weft_shape k = weft_shape(s.v[1], s.v[1], 1 + kind % 2, 1 + kind % 2);
        put(w, weft_conv2d(.x = x, .weight = weft_cast(weft_randn(k, WEFT_F32), weft_dtype_of(x)),
                           .padding = one));
    }
}

/* Writes in place: into a buffer, a temporary, or a view of one. */
static void step_write(world *w)
{
    static const wf_op ops[] = {WF_OP_ADD,     WF_OP_MUL,  WF_OP_SUB,
                                WF_OP_MAXIMUM, WF_OP_TANH, WF_OP_NEG};
    int t = below(w, 2) ? PARAMS + 1 + below(w, BUFFERS) : pick(w), kind = below(w, 8);
    t = t < w->n ? t : 0;
    weft_tensor x = w->pool[t];
    char name[24];
    if (kind < 6) {
        weft_tensor s[2] = {x, partner(w, t, name)};
        if (!wf_is_scalar(s[1]) && weft_numel(s[1]) > weft_numel(x)) {
            return;
        }
        say(w, "%s_ t%d %s", wf_rows[ops[kind]].name, t, name);
        did(w, (weft_status)wf_dispatch_inplace(ops[kind], NULL, wf_rows[ops[kind]].min_src, s, x));
    } else if (kind == 6) {
        say(w, "fill_ t%d", t);
        did(w, weft_fill_(x, 0.5 * w->call));
    } else {
        weft_tensor v = partner(w, t, name);
        if (wf_is_scalar(v) || weft_numel(v) > weft_numel(x)) {
            return;
        }
        say(w, "copy_ t%d %s", t, name);
        did(w, weft_copy_(x, v));
    }
}

static void step(world *w)
{
    int what = below(w, 23);
    bool quiet = below(w, 8) == 0;
    if (quiet) {
        weft_no_grad_begin();
    }
    if (what < 8) {
        step_map(w);
    } else if (what < 11) {
        step_view(w);
    } else if (what < 14) {
        step_row(w);
    } else if (what < 16) {
        step_move(w);
    } else if (what < 19) {
        step_write(w);
    } else if (what < 22) {
        step_image(w);
    } else if (below(w, 4) == 0) { /* a read in the middle */
        int t = pick(w);
        weft_tensor x = weft_sum(weft_cast(w->pool[t], WEFT_F64));
        double v = 0;
        say(w, "item of the sum of t%d", t);
        did(w, weft_item(x, &v));
        uint64_t bits;
        memcpy(&bits, &v, sizeof bits);
        w->statuses = values_hash(w->statuses ^ (v == v ? bits : 1));
    }
    if (quiet) {
        weft_no_grad_end();
    }
}

/* A loss of some values, its gradients, and a step of descent. */
static void learn(world *w, weft_tensor *loss)
{
    *loss = weft_mean(weft_square(w->pool[0]));
    for (int i = 0; i < 4; i++) {
        weft_tensor x = w->pool[pick(w)];
        if (weft_numel(x) > 0) {
            *loss = weft_add(*loss, weft_mean(weft_cast(x, WEFT_F32)));
        }
    }
    for (int i = 0; i < PARAMS; i++) {
        *loss = weft_add(*loss, weft_mean(weft_mul(w->param[i], w->param[i])));
    }
    w->number = -1;
    say(w, "backward");
    did(w, weft_backward(*loss));
    weft_no_grad_begin();
    for (int i = 0; i < PARAMS; i++) {
        if (weft_has_grad(w->param[i]) && below(w, 4)) {
            note(w, weft_sub_(w->param[i],
                              weft_mul(weft_grad(w->param[i]), weft_f(0.01 * (w->call + 1)))));
        }
        if (below(w, 2)) {
            weft_set_grad(w->param[i], WEFT_NONE);
        }
    }
    weft_no_grad_end();
}

/* -- ways of recording --------------------------------------------------------------------------------------- */

static int
    short_ways[2]; /* ops that were recorded, in place or not, of those that took a short way */

static bool count_quick(wf_recorder *r, wf_op op, const wf_attr *attr, int nsrc,
                        const weft_tensor *src, int ndst, weft_tensor *dst, int *rc)
{
    bool done = wf_trace_quick(r, op, attr, nsrc, src, ndst, dst, rc);
    short_ways[0] += done;
    return done;
}

static bool count_quick_into(wf_recorder *r, wf_op op, int nsrc, const weft_tensor *src,
                             weft_tensor dst, int *rc)
{
    bool done = wf_trace_quick_into(r, op, nsrc, src, dst, rc);
    short_ways[1] += done;
    return done;
}

static void spy_begin(const world *w)
{
    wf_recorder *r = wf_ctx_get()->recorder;
    if (w->spied && r) {
        r->quick = w->general ? NULL : count_quick;
        r->quick_into = w->general ? NULL : count_quick_into;
    }
}

static void spy_end(world *w)
{
    wf_recorder *r = wf_ctx_get()->recorder;
    if (w->spied && r) {
        free(w->text);
        w->text = wf_fn_text(wf_trace_of(r)->fn);
        for (int i = 0; i < w->n; i++) {
            for (int k = 0; weft_ok(w->pool[i]) && k < weft_rank(w->pool[i]); k++) {
                w->statuses = values_hash(w->statuses ^ (uint64_t)weft_stride(w->pool[i], k));
            }
        }
    }
}

static weft_status body(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    world *w = self;
    w->n = 0;
    w->state = values_hash(w->seed);
    spy_begin(w);
    for (int i = 0; i < n_in; i++) {
        w->pool[w->n++] = in[i];
    }
    for (int i = 0; i < PARAMS; i++) {
        w->pool[w->n++] = w->param[i];
    }
    for (int i = 0; i < BUFFERS; i++) {
        w->pool[w->n++] = w->buffer[i];
    }
    for (w->number = 0; w->number < w->len; w->number++) {
        uint64_t kept = w->state;
        if (!(w->skip >> w->number & 1)) {
            step(w);
        }
        w->state = values_hash(kept ^ (uint64_t)w->number);
    }
    weft_tensor loss = WEFT_NONE;
    if (w->seed % 3) {
        learn(w, &loss);
    }
    spy_end(w);
    for (int i = 0; i < n_out; i++) {
        out[i] = i == 0 && weft_ok(loss) ? loss : w->pool[w->n - 1 - below(w, w->n < 6 ? w->n : 6)];
    }
    return WEFT_OK;
}

/* -- two worlds --------------------------------------------------------------------------------------------- */

static weft_tensor leaf(int k)
{
    weft_tensor x = weft_randn(k == 0   ? weft_shape(4, 6)
                               : k == 1 ? weft_shape(6)
                                        : weft_shape(6, 6),
                               WEFT_F32);
    weft_tensor t = weft_keep(weft_clone(x));
    weft_requires_grad_(t, true);
    return t;
}

static void open_world(world *w)
{
    static const weft_dtype types[BUFFERS] = {WEFT_F32, WEFT_F32, WEFT_BF16, WEFT_I64};
    weft_scope sc = weft_scope_begin();
    weft_manual_seed(w->seed);
    for (int i = 0; i < PARAMS; i++) {
        w->param[i] = leaf(i);
    }
    for (int i = 0; i < BUFFERS; i++) {
        weft_tensor x = weft_mul(weft_randn(weft_shape(i == 1 ? 1 : 4, 6), WEFT_F32), weft_f(3));
        w->buffer[i] = weft_keep(weft_clone(weft_cast(x, types[i])));
    }
    weft_scope_end(sc);
}

static void close_world(world *w)
{
    for (int i = 0; i < PARAMS; i++) {
        weft_free(w->param[i]);
    }
    for (int i = 0; i < BUFFERS; i++) {
        weft_free(w->buffer[i]);
    }
}

/* Same error status, or same type and bits. */
static bool same(weft_tensor a, weft_tensor b)
{
    if (!weft_ok(a) || !weft_ok(b)) {
        return weft_ok(a) == weft_ok(b) && weft_error_status(a) == weft_error_status(b);
    }
    weft_shape s = weft_shape_of(a), r = weft_shape_of(b);
    wf_type t = {.dtype = (uint8_t)weft_dtype_of(a), .rank = (uint8_t)s.n};
    memcpy(t.dims, s.v, (size_t)s.n * sizeof s.v[0]);
    if (weft_dtype_of(b) != weft_dtype_of(a) || s.n != r.n ||
        memcmp(s.v, r.v, (size_t)s.n * sizeof s.v[0]) != 0) {
        return false;
    }
    weft_no_grad_begin();
    a = weft_contiguous(a);
    b = weft_contiguous(b);
    weft_no_grad_end();
    const void *p = weft_data(a), *q = weft_data(b);
    return weft_numel(a) == 0 || (p && q && wf_oracle_difference(&t, p, q) < 0);
}

static const char *compare(world *a, world *b, const weft_tensor *x, const weft_tensor *y)
{
    static char text[64];
    for (int i = 0; i < OUTS; i++) {
        if (!same(x[i], y[i])) {
            snprintf(text, sizeof text, "output %d", i);
            return text;
        }
        if (!test_same_place(x[i], y[i])) {
            snprintf(text, sizeof text, "where output %d lies", i);
            return text;
        }
    }
    for (int i = 0; i < PARAMS; i++) {
        bool g = weft_has_grad(a->param[i]), h = weft_has_grad(b->param[i]);
        if (!same(a->param[i], b->param[i])) {
            snprintf(text, sizeof text, "parameter %d", i);
            return text;
        }
        if (g != h || (g && !same(weft_grad(a->param[i]), weft_grad(b->param[i])))) {
            snprintf(text, sizeof text, "gradient %d", i);
            return text;
        }
    }
    for (int i = 0; i < BUFFERS; i++) {
        if (!same(a->buffer[i], b->buffer[i])) {
            snprintf(text, sizeof text, "buffer %d", i);
            return text;
        }
    }
    return a->statuses != b->statuses ? "a status" : NULL;
}

/* What differs first between calling and tracing, or NULL. */
static const char *run(uint64_t seed, int len, uint64_t skip, bool print)
{
    world a = {.seed = seed, .len = len, .skip = skip}, b = a;
    const char *bad = NULL;
    open_world(&a);
    open_world(&b);
    weft_jit *j = weft_jit_trace(body, &b, .synchronous = seed % 16 == 0, .no_fuse = seed % 8 == 1);
    for (int call = 0; call < CALLS && !bad; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor in[1], other[1], x[OUTS], y[OUTS];
        weft_manual_seed(seed + (uint64_t)call);
        in[0] = weft_randn(weft_shape(4, 6), WEFT_F32);
        other[0] = weft_clone(in[0]); /* programs may write to their arguments */
        weft_generator g = *weft_default_generator();
        a.call = b.call = call;
        a.print = print;
        if (print) {
            fprintf(stderr, "  call %d\n", call);
        }
        memset(x, 0, sizeof x);
        memset(y, 0, sizeof y);
        weft_status r = body(&a, in, 1, x, OUTS);
        uint64_t offset = weft_default_generator()->offset;
        *weft_default_generator() = g;
        weft_status s = weft_jit_call(j, other, 1, y, OUTS);
        bad = r != s                                       ? weft_last_error()
              : weft_default_generator()->offset != offset ? "the generator"
                                                           : compare(&a, &b, x, y);
        if (bad && print) {
            fprintf(stderr, "  call %d: %s differs\n", call, bad);
        }
        weft_scope_end(sc);
    }
    weft_jit_free(j);
    close_world(&a);
    close_world(&b);
    return bad;
}

static void report(uint64_t seed, int len)
{
    uint64_t skip = 0;
    while (len > 1 && run(seed, len - 1, 0, false)) {
        len--;
    }
    for (int i = 0; i < len; i++) {
        uint64_t more = skip | UINT64_C(1) << i;
        skip = run(seed, len, more, false) ? more : skip;
    }
    fprintf(stderr, "seed %llu, steps %d without %#llx:\n", (unsigned long long)seed, len,
            (unsigned long long)skip);
    const char *bad = run(seed, len, skip, true);
    cr_expect_fail("seed %llu: %s differs", (unsigned long long)seed,
                   bad ? bad : "nothing any more");
}

Test(trace_fuzz, programs_called_and_traced_agree)
{
    uint64_t n = effort_option("WEFT_FUZZ_GRAPHS", effort_of(600)),
             first = effort_option("WEFT_FUZZ_SEED", 1);
    int failures = 0;
    for (uint64_t seed = first; seed < first + n && failures < 3; seed++) {
        int len = 4 + (int)(seed % 40);
        if (run(seed, len, 0, effort_option("WEFT_FUZZ_PRINT", 0) != 0)) {
            report(seed, len);
            failures++;
        }
    }
    cr_expect_eq(weft_leak_report(NULL), 0);
}

/* Two recordings of a program, with and without the short ways: the first difference, or NULL. */
static const char *run_ways(uint64_t seed)
{
    world w[2] = {{.seed = seed, .len = 4 + (int)(seed % 40), .spied = true}};
    const char *bad = NULL;
    weft_jit *j[2];
    w[1] = w[0];
    w[1].general = true;
    for (int k = 0; k < 2; k++) {
        open_world(&w[k]);
        j[k] = weft_jit_trace(body, &w[k]);
    }
    /* from the second call on there is a recording to compare with, of other steps, then of the same ones */
    for (int call = 0; call <= CALLS && !bad; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor out[2][OUTS];
        weft_status s[2];
        for (int k = 0; k < 2; k++) {
            weft_manual_seed(seed + (uint64_t)call);
            weft_tensor in = weft_randn(weft_shape(4, 6), WEFT_F32);
            w[k].call = call;
            w[k].skip = call == 1 ? values_hash(seed) & values_hash(seed + 1) : 0;
            s[k] = weft_jit_call(j[k], &in, 1, out[k], OUTS);
        }
        bad = s[0] != s[1]                                ? "the status"
              : !w[0].text != !w[1].text                  ? "whether something was recorded"
              : w[0].text && strcmp(w[0].text, w[1].text) ? "what was recorded"
                                                          : compare(&w[0], &w[1], out[0], out[1]);
        if (bad) {
            fprintf(stderr, "seed %llu, call %d:\n%s\n%s\n", (unsigned long long)seed, call,
                    w[0].text, w[1].text);
        }
        weft_scope_end(sc);
    }
    for (int k = 0; k < 2; k++) {
        weft_jit_free(j[k]);
        close_world(&w[k]);
        free(w[k].text);
    }
    return bad;
}

Test(trace_fuzz, short_ways_record_what_the_general_way_does)
{
    uint64_t n = effort_option("WEFT_FUZZ_GRAPHS", effort_of(300)),
             first = effort_option("WEFT_FUZZ_SEED", 1);
    int failures = 0;
    memset(short_ways, 0, sizeof short_ways);
    for (uint64_t seed = first; seed < first + n && failures < 3; seed++) {
        const char *bad = run_ways(seed);
        failures += bad != NULL;
        cr_expect_null(bad, "seed %llu: %s differs", (unsigned long long)seed, bad);
    }
    cr_expect_gt(short_ways[0], (int)n * 20);
    cr_expect_gt(short_ways[1], (int)n / 4, "%d, %d", short_ways[0], short_ways[1]);
    cr_expect_eq(weft_leak_report(NULL), 0);
}

/* -- out of memory -------------------------------------------------------------------------------------------- */

static void look_at(weft_tensor t)
{
    weft_scope sc = weft_scope_begin();
    const weft_tensor x = weft_contiguous(weft_detach(t));
    const volatile char *bytes = weft_ok(x) ? weft_data(x) : NULL;
    const int64_t n = bytes ? weft_numel(x) * (int64_t)weft_dtype_size(weft_dtype_of(x)) : 0;
    for (int64_t i = 0; i < n; i++) {
        (void)bytes[i];
    }
    weft_scope_end(sc);
}

/* All that a call that failed left can be read, gone backward over, and used in calls that follow. */
static void use_what_is_left(world *w, weft_jit *j, const weft_tensor *y)
{
    for (int i = 0; i < OUTS; i++) {
        look_at(y[i]);
    }
    for (int i = 0; i < PARAMS; i++) {
        look_at(w->param[i]);
        look_at(weft_grad(w->param[i]));
        weft_backward(weft_sum(weft_square(w->param[i])));
    }
    for (int i = 0; i < 3; i++) {
        weft_tensor in = weft_randn(weft_shape(4, 6), WEFT_F32), z[OUTS] = {0};
        wf_alloc_fail_after(i == 1 ? 1 + (int64_t)(values_hash(w->seed * 9) % 100) : 0, 0);
        weft_jit_call(j, &in, 1, z, OUTS);
        wf_alloc_fail_after(0, 0);
        for (int k = 0; k < OUTS; k++) {
            look_at(z[k]);
        }
    }
}

/* A traced call in which an allocation fails, one or all from some point on, says so or has done all that the
 * function does: the difference from calling it, or NULL. *failed counts calls that said so. */
static const char *run_short_of_memory(uint64_t seed, int *failed)
{
    world a = {.seed = seed, .len = 4 + (int)(seed % 40)}, b = a;
    const char *bad = NULL;
    bool over = false;
    open_world(&a);
    open_world(&b);
    weft_jit *j =
        weft_jit_trace(body, &b, .synchronous = seed % 16 == 0, .no_fuse = seed % 8 == 1,
                       .frozen = seed % 3 == 0, .always_record = seed % 3 == 0, .verify_every = 2);
    for (int call = 0; call < 2 * CALLS && !over; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor in[2], x[OUTS] = {0}, y[OUTS] = {0};
        weft_manual_seed(seed + (uint64_t)call);
        in[0] = weft_randn(weft_shape(4, 6), WEFT_F32);
        in[1] = weft_clone(in[0]);
        weft_generator g = *weft_default_generator();
        a.call = b.call = call;
        const weft_status r = body(&a, in, 1, x, OUTS);
        *weft_default_generator() = g;
        wf_alloc_fail_after(1 + (int64_t)(values_hash(seed * 7 + (uint64_t)call) % 160),
                            (int)(seed & 1));
        const weft_status s = weft_jit_call(j, in + 1, 1, y, OUTS);
        wf_alloc_fail_after(0, 0);
        over = s != r || a.statuses != b.statuses;
        if (over) {
            ++*failed;
            use_what_is_left(&b, j, y);
        } else {
            over = (bad = compare(&a, &b, x, y)) != NULL;
        }
        weft_scope_end(sc);
    }
    weft_jit_free(j);
    close_world(&a);
    close_world(&b);
    return bad;
}

Test(trace_fuzz, allocations_fail_in_traced_programs)
{
    uint64_t n = effort_option("WEFT_FUZZ_GRAPHS", effort_of(80)),
             first = effort_option("WEFT_FUZZ_SEED", 1);
    int failures = 0, failed = 0;
    for (uint64_t seed = first; seed < first + n && failures < 3; seed++) {
        const char *bad = run_short_of_memory(seed, &failed);
        failures += bad != NULL;
        cr_expect_null(bad, "seed %llu: %s differs", (unsigned long long)seed, bad);
    }
    cr_expect_gt(failed, (int)n / 4);
    cr_expect_eq(weft_leak_report(NULL), 0);
}
