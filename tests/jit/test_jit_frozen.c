/*
 * tests/jit/test_jit_frozen.c -- frozen calls: what is replayed gives the bits of the function; every guard, refusal
 * and failed verification has its reason; a planted stale constant is caught.
 */
#include <pthread.h>

#include "tests/jit/corner_support.h"

typedef struct layer {
    weft_tensor w, state;
    double scale;
    int runs; /* of the function itself */
    int what;
} layer;

enum { PLAIN, READS, KEEPS, COUNTS, HISTORY, MAKES, BREAKS };

static weft_tensor kept;

static weft_status step(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    layer *l = self;
    (void)n_in, (void)n_out;
    l->runs++;
    weft_tensor h = weft_matmul(in[0], weft_permute(l->w, weft_axes(1, 0)));
    h = weft_gelu(weft_mul(h, weft_f(l->scale)));
    weft_status s = WEFT_OK;
    switch (l->what) {
    case READS:
        l->scale = weft_item_f64(weft_select(weft_select(l->w, 0, 0), 0, 0)) > 9 ? 2 : l->scale;
        (void)weft_item_f64(l->state);
        break;
    case KEEPS:
        weft_free(kept);
        kept = weft_keep(weft_exp(h));
        break;
    case COUNTS:
        h = weft_add(h, weft_f(l->runs));
        break;
    case MAKES:
        h = weft_add(h, weft_from_data(&(float){2}, weft_shape(1), WEFT_F32));
        break;
    case BREAKS:
        (void)weft_item_f64(weft_sum(h));
        break;
    default:
        break;
    }
    s = weft_add_(l->state, weft_mean(h));
    out[0] = weft_add(h, in[1]);
    out[1] = weft_slice(out[0], 0, 0, 1, 1);
    out[2] = in[1];
    out[3] = l->w;
    return s;
}

static weft_tensor data(int64_t rows, int64_t cols, double from)
{
    return weft_reshape(weft_arange(from, from + (double)(rows * cols), 1, WEFT_F32),
                        weft_shape(rows, cols));
}

static void layer_open(layer *l, int what)
{
    *l = (layer){.scale = 0.125, .what = what};
    l->w = weft_keep(weft_mul(data(3, 4, -5), weft_f(0.1)));
    l->state = weft_keep(weft_zeros(weft_shape(), WEFT_F32));
}

static void layer_close(layer *l)
{
    weft_free(l->w);
    weft_free(l->state);
}

/* One call of j against the function called with a, an equal layer. */
static void both(weft_jit *j, layer *a, layer *b, const weft_tensor in[2])
{
    weft_tensor x[4], y[4];
    OK(step(a, in, 2, x, 4));
    uint32_t before = weft_write_count(b->state);
    OK(weft_jit_call(j, in, 2, y, 4));
    cr_assert_eq(weft_write_count(b->state), before + 1);
    check_bits("result", x[0], y[0]);
    check_bits("view", x[1], y[1]);
    check_bits("state", a->state, b->state);
    cr_assert(weft_shares_memory(y[0], y[1]));
    cr_assert(memcmp(&y[2], &in[1], sizeof in[1]) == 0 && memcmp(&y[3], &b->w, sizeof b->w) == 0);
}

Test(frozen, calls_are_replayed)
{
    layer a, b;
    layer_open(&a, PLAIN);
    layer_open(&b, PLAIN);
    weft_jit *j = weft_jit_trace(step, &b, .frozen = true, .verify_every = -1);
    for (int call = 0; call < 20; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor in[2] = {data(2, 4, call), data(2, 3, 1)};
        if (call == 12) { /* captured memory may change, the tensor may not */
            OK(weft_mul_(a.w, weft_f(0.5)));
            OK(weft_mul_(b.w, weft_f(0.5)));
        }
        both(j, &a, &b, in);
        weft_scope_end(sc);
    }
    cr_assert_eq(stats_of(j).frozen, 18, "%s", reasons(j));
    cr_assert_eq(b.runs, 2);
    weft_jit_free(j);
    layer_close(&a);
    layer_close(&b);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* One guard a round: violated, it records and says why; after that the old call is still replayed. */
Test(frozen, every_guard_has_its_reason)
{
    static const char *const says[] = {"type or shape",  "in memory", "type or shape", "grad mode",
                                       "gradients flow", "imported",  "captured"};
    for (int g = 0; g < 7; g++) {
        float memory[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        layer a, b;
        layer_open(&a, PLAIN);
        layer_open(&b, PLAIN);
        weft_jit *j = weft_jit_trace(step, &b, .frozen = true);
        weft_tensor in[2] = {data(2, 4, 0), data(2, 3, 1)}, old[2] = {in[0], in[1]};
        for (int call = 0; call < 4; call++) {
            both(j, &a, &b, in);
        }
        cr_assert_eq(stats_of(j).frozen, 2, "%s", reasons(j));
        if (g == 3) {
            weft_no_grad_begin();
        }
        in[0] = g == 0   ? data(5, 4, 0)
                : g == 1 ? weft_permute(data(4, 2, 0), weft_axes(1, 0))
                : g == 5 ? weft_from_blob(.data = memory, .shape = weft_shape(2, 4))
                : g == 4 ? weft_clone(in[0])
                         : in[0];
        in[1] = g == 0 ? data(5, 3, 0) : g == 2 ? weft_cast(in[1], WEFT_F64) : in[1];
        if (g == 4) {
            OK(weft_requires_grad_(in[0], true));
        }
        if (g == 6) {
            weft_free(a.w);
            weft_free(b.w);
            a.w = weft_keep(weft_clone(data(3, 4, 2)));
            b.w = weft_keep(weft_clone(data(3, 4, 2)));
        }
        if (g == 4) { /* now the state gets a history */
            weft_tensor y[4];
            weft_jit_call(j, in, 2, y, 4);
        } else {
            both(j, &a, &b, in);
        }
        if (g == 3) {
            weft_no_grad_end();
        }
        cr_assert_eq(stats_of(j).frozen, 2, "guard %d", g);
        cr_assert_eq(stats_of(j).misses, 1, "guard %d", g);
        cr_assert(has_reason(j, says[g]), "guard %d: %s", g, reasons(j));
        if (g != 4 && g != 6) {
            both(j, &a, &b, old);
            cr_assert_eq(stats_of(j).frozen, 3, "guard %d: %s", g, reasons(j));
        }
        weft_jit_free(j);
        layer_close(&a);
        layer_close(&b);
    }
}

static weft_tensor doubled(void *user, weft_tensor grad)
{
    (void)user;
    return weft_mul(grad, weft_f(2));
}

static weft_status slope(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    weft_tensor of = self ? *(weft_tensor *)self : in[0];
    weft_tensor loss = weft_sum(weft_mul(weft_mul(of, of), weft_f(0.5)));
    return weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &of, .n_inputs = 1,
                        .grads = out);
}

/* A hook changes what a backward inside the function gives: of a captured leaf, and of an argument. */
Test(frozen, hooks_are_guarded)
{
    for (int argument = 0; argument < 2; argument++) {
        weft_tensor w = weft_keep(weft_full(weft_shape(2), 3, WEFT_F32)), y;
        OK(weft_requires_grad_(w, true));
        weft_jit *j = weft_jit_trace(slope, argument ? NULL : &w, .frozen = true);
        uint64_t hook = 0;
        for (int call = 0; call < 9; call++) {
            if (call == 4) {
                cr_assert_eq(stats_of(j).frozen, 2, "%s", reasons(j));
                hook = weft_register_hook(w, doubled, NULL, NULL);
            } else if (call == 8) {
                OK(weft_remove_hook(w, hook));
            }
            OK(weft_jit_call(j, &w, argument, &y, 1));
            cr_assert_eq(weft_item_f64(weft_max(y)), call >= 4 && call < 8 ? 6 : 3, "call %d",
                         call);
        }
        cr_assert_gt(stats_of(j).frozen, 2, "%s", reasons(j));
        weft_jit_free(j);
        weft_free(w);
    }
}

/* A leaf with a gradient tensor of zeros. */
static weft_tensor leaf_of(double v)
{
    const weft_tensor t = weft_keep(weft_full(weft_shape(2), v, WEFT_F32));
    OK(weft_requires_grad_(t, true));
    OK(weft_set_grad(t, weft_zeros(weft_shape(2), WEFT_F32)));
    return t;
}

/* Its value, without a handle left on it. */
static double gradient(weft_tensor x)
{
    const weft_scope s = weft_scope_begin();
    const double v = weft_item_f64(weft_max(weft_grad(x)));
    weft_scope_end(s);
    return v;
}

static weft_status backward_of_square(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                      int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const weft_tensor y = weft_sum(weft_mul(in[0], in[0]));
    out[0] = weft_detach(y);
    return weft_backward(y);
}

static weft_status backward_of_sum(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                   int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const weft_tensor y = weft_sum(in[0]);
    out[0] = weft_detach(y);
    return weft_backward(y);
}

/* Gradients are added to those of the argument that the call has, through the history that it has. */
Test(frozen, gradients_of_arguments)
{
    const weft_scope s = weft_scope_begin();
    const weft_tensor x[] = {leaf_of(1), leaf_of(10)};
    weft_jit *j = weft_jit_trace(backward_of_square, NULL, .frozen = true, .verify_every = -1);
    weft_jit *k = weft_jit_trace(backward_of_sum, NULL, .frozen = true, .verify_every = -1);
    double want[] = {0, 0};
    weft_tensor out;
    for (int i = 0; i < 10; i++) {
        const int of = i / 5;
        OK(weft_jit_call(j, &x[of], 1, &out, 1));
        want[of] += of ? 20 : 2;
        cr_assert_eq(gradient(x[0]), want[0], "call %d", i);
        cr_assert_eq(gradient(x[1]), want[1], "call %d", i);
    }
    cr_assert(has_reason(j, "guard: argument 0 has another gradient tensor"), "%s", reasons(j));
    for (int i = 0; i < 8; i++) {
        const int of = i / 2 % 2;
        const weft_tensor y = i < 4 ? weft_add(x[of], x[of]) : weft_neg(x[of]);
        OK(weft_jit_call(k, &y, 1, &out, 1));
        want[of] += i < 4 ? 2 : -1;
        cr_assert_eq(gradient(x[0]), want[0], "call %d", i);
        cr_assert_eq(gradient(x[1]), want[1], "call %d", i);
    }
    cr_assert(has_reason(k, "not frozen: gradients flow into the history of argument 0"), "%s",
              reasons(k));
    cr_assert_gt(stats_of(j).frozen, 2, "%s", reasons(j));
    weft_jit_free(j);
    weft_jit_free(k);
    weft_free(x[0]);
    weft_free(x[1]);
    weft_scope_end(s);
}

Test(frozen, every_refusal_has_its_reason)
{
    static const struct {
        int what;
        const char *says;
    } cases[] = {{READS, "reads a value"},     {KEEPS, "outlive"},
                 {COUNTS, "number of add"},    {HISTORY, "gradient"},
                 {MAKES, "makes from memory"}, {BREAKS, "breaks its graph"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        layer b;
        layer_open(&b, cases[k].what);
        weft_jit *j = weft_jit_trace(step, &b, .frozen = true);
        weft_tensor in[2] = {data(2, 4, 0), data(2, 3, 1)}, y[4];
        if (cases[k].what == HISTORY) {
            OK(weft_requires_grad_(b.w, true));
        }
        for (int call = 0; call < 5; call++) {
            OK(weft_jit_call(j, in, 2, y, 4));
        }
        cr_assert_eq(stats_of(j).frozen, 0, "case %d", (int)k);
        cr_assert_eq(b.runs, 5);
        cr_assert_geq(stats_of(j).refusals, 4);
        cr_assert(has_reason(j, cases[k].says), "case %d: %s", (int)k, reasons(j));
        weft_jit_free(j);
        weft_free(kept);
        kept = WEFT_NONE;
        layer_close(&b);
    }
}

/* Adds in[0] to the gradient of a captured leaf. */
static weft_status accumulate(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    weft_tensor *leaf = self, loss = weft_sum(weft_mul(*leaf, in[0]));
    (void)n_in, (void)n_out;
    out[0] = weft_detach(loss);
    return weft_backward(loss);
}

Test(frozen, reasons_name_the_captured_tensor)
{
    weft_scope sc = weft_scope_begin();
    layer b;
    layer_open(&b, PLAIN);
    weft_free(b.w);
    b.w = data(3, 4, 0);
    weft_set_name(b.w, "weights");
    weft_jit *j = weft_jit_trace(step, &b, .frozen = true);
    weft_tensor in[2] = {data(2, 4, 0), data(2, 3, 1)}, y[4];
    for (int call = 0; call < 4; call++) {
        OK(weft_jit_call(j, in, 2, y, 4));
    }
    cr_assert(has_reason(j, "it uses f32[3,4] 'weights' (made at") && has_reason(j, "weft_keep it"),
              "%s", reasons(j));
    weft_jit_free(j);
    weft_free(b.state);
    /* gradients that are dropped between calls start another kind of call; those that are set to 0 do not */
    weft_tensor leaf = weft_keep(data(1, 3, 0)), x = data(1, 3, 2);
    OK(weft_requires_grad_(leaf, true));
    for (int drop = 0; drop < 2; drop++) {
        int64_t frozen = 0;
        j = weft_jit_trace(accumulate, &leaf, .frozen = true, .verify_every = -1);
        for (int call = 0; call < 40; call++) {
            weft_scope one = weft_scope_begin();
            if (call % 4 == 0 && weft_has_grad(leaf)) {
                OK(drop ? weft_set_grad(leaf, WEFT_NONE) : weft_zero_(weft_grad(leaf)));
            }
            weft_scope_end(
                one); /* a handle of a gradient shares it: backward would add elsewhere */
            one = weft_scope_begin();
            OK(weft_jit_call(j, &x, 1, y, 1));
            cr_assert_eq(weft_item_f64(weft_sum(weft_grad(leaf))), 9 * (call % 4 + 1));
            weft_scope_end(one);
        }
        frozen = stats_of(j).frozen;
        cr_assert(
            drop ? has_reason(j, "(input 1) is gone: freed, or a gradient that was dropped") ||
                       has_reason(j, "(input 2) is gone: freed, or a gradient that was dropped")
                 : frozen > 30,
            "%d frozen\n%s", (int)frozen, reasons(j));
        weft_jit_free(j);
        OK(weft_set_grad(leaf, WEFT_NONE));
    }
    weft_free(leaf);
    weft_scope_end(sc);
}

Test(frozen, verification_catches_a_stale_constant)
{
    layer a, b;
    layer_open(&a, PLAIN);
    layer_open(&b, PLAIN);
    weft_jit *j = weft_jit_trace(step, &b, .frozen = true, .verify_every = 5);
    weft_tensor in[2] = {data(2, 4, 0), data(2, 3, 1)};
    for (int call = 0; call < 22; call++) {
        both(j, &a, &b, in);
    }
    cr_assert_eq(stats_of(j).verified, 4);
    cr_assert_eq(stats_of(j).thawed, 0, "%s", reasons(j));
    b.scale = 0.75; /* the guards cannot see it */
    weft_tensor y[4];
    int64_t frozen = stats_of(j).frozen;
    for (int call = 0; call < 5 && stats_of(j).thawed == 0; call++) {
        OK(weft_jit_call(j, in, 2, y, 4));
    }
    cr_assert_eq(stats_of(j).thawed, 1);
    cr_assert_leq(stats_of(j).frozen - frozen, 4);
    cr_assert(has_reason(j, "a number of mul at"), "%s", reasons(j));
    a.scale = 0.75;
    OK(weft_copy_(b.state, a.state));
    for (int call = 0; call < 10; call++) {
        both(j, &a, &b, in); /* right again, and frozen again */
    }
    cr_assert_gt(stats_of(j).frozen, frozen + 4);
    weft_jit_free(j);
    layer_close(&a);
    layer_close(&b);
}

static weft_status swapped(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor first = in[0];
    out[2] = weft_add(in[0], in[1]);
    out[0] = in[1];
    out[1] = first;
    return weft_error_status(out[2]);
}

/* The caller's arguments and results may be one array, whatever order results are put there. */
Test(frozen, results_in_place_of_arguments)
{
    weft_jit *j = weft_jit_trace(swapped, .frozen = true);
    weft_tensor a = data(2, 3, 1), b = data(2, 3, 5);
    for (int call = 0; call < 6; call++) {
        weft_tensor h[3] = {a, b, WEFT_NONE};
        OK(weft_jit_call(j, h, 2, h, 3));
        cr_assert(memcmp(&h[0], &b, sizeof b) == 0 && memcmp(&h[1], &a, sizeof a) == 0, "%d", call);
        check_bits("sum", h[2], weft_add(a, b));
    }
    cr_assert_eq(stats_of(j).frozen, 4, "%s", reasons(j));
    weft_jit_free(j);
}

/* More arguments than have room on the stack, some of one memory, one captured: guards see each of them. */
enum { MANY = 70 };

/* The factor is the row count's: two kinds of calls, each with its own numbers, ops or both. */
static weft_status by_rows(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    int64_t rows = weft_dim(in[0], 0);
    ++*(int *)self;
    out[0] = weft_mul(rows > 3 ? weft_exp(in[0]) : in[0], weft_f((double)rows));
    return WEFT_OK;
}

Test(frozen, calls_that_alternate_are_replayed_each)
{
    int recorded = 0;
    weft_jit *j = weft_jit_trace(by_rows, &recorded, .frozen = true);
    for (int call = 0; call < 60; call++) {
        weft_scope s = weft_scope_begin();
        weft_tensor x = data(2 + call % 3, 5, call), y, want;
        int before = recorded;
        OK(by_rows(&recorded, &x, 1, &want, 1));
        recorded = before;
        OK(weft_jit_call(j, &x, 1, &y, 1));
        check_bits("alternating", want, y);
        weft_scope_end(s);
    }
    cr_assert_eq(recorded, 6, "%d: two recordings each are enough", recorded);
    cr_assert_eq(stats_of(j).frozen, 54);
    char *text = test_explained(j);
    cr_assert(strstr(text, "54 calls replayed"), "%s", text);
    free(text);
    weft_jit_free(j);
}

static weft_status add_all(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)n_in, (void)n_out;
    out[0] = weft_add(in[0], *(weft_tensor *)self);
    for (int i = 1; i < MANY; i++) {
        out[0] = weft_add(out[0], in[i]);
    }
    return weft_error_status(out[0]);
}

Test(frozen, many_arguments_are_guarded)
{
    weft_tensor captured = weft_keep(data(2, 3, 9)), in[MANY], other, y;
    weft_jit *j = weft_jit_trace(add_all, &captured, .frozen = true, .always_record = true);
    for (int i = 0; i < MANY; i++) {
        in[i] = i % 10 == 9 ? in[i - 5] : data(2, 3, i);
    }
    for (int call = 0; call < 4; call++) {
        OK(weft_jit_call(j, in, MANY, &y, 1));
    }
    cr_assert_eq(stats_of(j).frozen, 2, "%s", reasons(j));
    for (int i = 0; i < MANY; i++) {
        static const char *const says[] = {"shares memory with other", "type or shape",
                                           "shares memory with a captured"};
        for (int how = 0; how < 3; how++) {
            weft_tensor was = in[i], expected;
            other = how == 0 ? in[(i + 1) % MANY] : how == 1 ? data(1, 3, 0) : captured;
            in[i] = how == 0 && other.slot == was.slot ? data(2, 3, 1) : other;
            int64_t misses = stats_of(j).misses;
            OK(add_all(&captured, in, MANY, &expected, 1));
            OK(weft_jit_call(j, in, MANY, &y, 1));
            check_bits("sum", y, expected);
            cr_assert_eq(stats_of(j).misses, misses + 1, "argument %d, %s", i, says[how]);
            cr_assert(has_reason(j, says[how]), "%s", reasons(j));
            in[i] = was;
        }
    }
    weft_jit_free(j);
    weft_free(captured);
}

static weft_status sum(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_status s = weft_mul_(in[0], weft_f(2));
    out[0] = weft_add(in[0], in[1]);
    return s;
}

Test(frozen, aliases_of_arguments_are_guarded)
{
    weft_jit *j = weft_jit_trace(sum, .frozen = true);
    weft_tensor a[2] = {data(2, 3, 1), data(2, 3, 5)}, y;
    for (int call = 0; call < 6; call++) {
        OK(weft_jit_call(j, a, 2, &y, 1));
    }
    cr_assert_eq(stats_of(j).frozen, 4);
    for (int call = 0; call < 4; call++) {
        weft_tensor one = data(2, 3, 1), two[2] = {one, one}, x = data(2, 3, 1);
        OK(weft_jit_call(j, two, 2, &y, 1));
        check_bits("aliased", weft_mul(x, weft_f(4)), y);
    }
    cr_assert_eq(stats_of(j).frozen, 6, "%s", reasons(j));
    cr_assert(has_reason(j, "shares memory with other arguments"), "%s", reasons(j));
    weft_jit_free(j);
}

static weft_status gather(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_index_select(in[0], 0, in[1]);
    return WEFT_OK;
}

Test(frozen, a_kernel_that_fails)
{
    static const int64_t good[2] = {1, 0}, bad[2] = {1, 9};
    weft_jit *j = weft_jit_trace(gather, .frozen = true);
    for (int call = 0; call < 8; call++) {
        weft_tensor in[2] = {data(2, 3, 0),
                             weft_from_data(call < 5 ? good : bad, weft_shape(2), WEFT_I64)},
                    y;
        weft_status s = weft_jit_call(j, in, 2, &y, 1);
        cr_assert_eq(s, call < 5 ? WEFT_OK : WEFT_EINDEX, "%s", weft_last_error());
        if (s) {
            check_error("output", y, WEFT_EINDEX, "9");
        }
    }
    cr_assert_eq(stats_of(j).frozen, 6);
    weft_jit_free(j);
}

static weft_status reseeds(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_manual_seed(7);
    out[0] = weft_add(in[0], weft_randn(weft_shape(3), WEFT_F32));
    return WEFT_OK;
}

/* Its numbers are the same in every recording, but a replay would not seed the generator. */
Test(frozen, seeding_is_never_replayed)
{
    weft_jit *j = weft_jit_trace(reseeds, .frozen = true);
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32), a, b;
    for (int call = 0; call < 5; call++) {
        OK(reseeds(NULL, &x, 1, &a, 1));
        weft_generator want = *weft_default_generator();
        weft_manual_seed(100);
        OK(weft_jit_call(j, &x, 1, &b, 1));
        check_bits("sum", a, b);
        cr_assert_eq(weft_default_generator()->seed, want.seed);
        cr_assert_eq(weft_default_generator()->offset, want.offset);
    }
    cr_assert_eq(stats_of(j).frozen, 0);
    cr_assert(has_reason(j, "it seeds the thread's generator"), "%s", reasons(j));
    weft_jit_free(j);
}

static weft_status stays_off(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_no_grad_begin(); /* and no end */
    out[0] = weft_add(in[0], weft_f(1));
    return WEFT_OK;
}

/* A replay would leave the grad mode as it was. */
Test(frozen, a_grad_mode_left_to_the_caller_is_never_replayed)
{
    weft_jit *j = weft_jit_trace(stays_off, .frozen = true);
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32), y;
    for (int call = 0; call < 5; call++) {
        OK(weft_jit_call(j, &x, 1, &y, 1));
        cr_assert(!weft_is_grad_enabled());
        weft_no_grad_end();
        cr_assert(weft_is_grad_enabled());
    }
    cr_assert_eq(stats_of(j).frozen, 0);
    cr_assert(has_reason(j, "weft_no_grad_begin"), "%s", reasons(j));
    weft_jit_free(j);
}

static pthread_barrier_t meet;
static weft_tensor shared;

static void *records(void *arg)
{
    weft_jit *region = arg;
    OK(weft_jit_begin(region));
    shared = weft_keep(weft_ones(weft_shape(2, 3), WEFT_F32));
    pthread_barrier_wait(&meet);
    pthread_barrier_wait(&meet);
    OK(weft_jit_end(region));
    return NULL;
}

/* A tensor that another thread's trace has yet to compute has no memory to replay on. */
Test(frozen, an_argument_of_another_threads_trace)
{
    weft_jit *j = weft_jit_trace(gather, .frozen = true), *region = weft_jit_trace(NULL);
    int64_t index[2] = {1, 0};
    weft_tensor in[2] = {data(2, 3, 0), weft_from_data(index, weft_shape(2), WEFT_I64)}, y;
    for (int call = 0; call < 3; call++) {
        OK(weft_jit_call(j, in, 2, &y, 1));
    }
    cr_assert_eq(stats_of(j).frozen, 1, "%s", reasons(j));
    pthread_t other;
    pthread_barrier_init(&meet, NULL, 2);
    cr_assert_eq(pthread_create(&other, NULL, records, region), 0);
    pthread_barrier_wait(&meet);
    weft_tensor theirs[2] = {shared, in[1]};
    weft_jit_call(j, theirs, 2, &y, 1);
    check_error("output", y, weft_error_status(y), "thread");
    cr_assert_eq(stats_of(j).frozen, 1);
    cr_assert(has_reason(j, "recorded by another thread"), "%s", reasons(j));
    pthread_barrier_wait(&meet);
    pthread_join(other, NULL);
    OK(weft_jit_call(j, theirs, 2, &y, 1)); /* computed by now */
    check_bits("sound", shared, y);
    weft_free(shared);
    weft_jit_free(region);
    weft_jit_free(j);
}

/* A traced function of a captured tensor whose memory is the caller's. */
typedef struct reloaded {
    weft_tensor w;
    weft_jit *j;
    int deleted;
} reloaded;

static void deletes(void *arg)
{
    reloaded *r = arg;
    r->deleted++;
    if (r->j) {
        (void)stats_of(r->j); /* may call back into the trace */
    }
}

static weft_status adds(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const reloaded *r = self;
    (void)n_in, (void)n_out;
    out[0] = weft_add(in[0], r->w);
    return WEFT_OK;
}

/* What is captured and freed goes at the next call, on the caller's thread and under no lock. */
Test(frozen, freed_captured_tensors_are_let_go, .timeout = 20)
{
    static float memory[3];
    reloaded r = {.deleted = 0};
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32), y;
    r.j = weft_jit_trace(adds, &r, .frozen = true);
    for (int load = 0; load < 12; load++) {
        memory[0] = (float)load;
        r.w = weft_keep(
            weft_from_blob(memory, weft_shape(3), WEFT_F32, .deleter = deletes, .arg = &r));
        for (int call = 0; call < 4; call++) {
            weft_scope sc = weft_scope_begin();
            OK(weft_jit_call(r.j, &x, 1, &y, 1));
            cr_assert_eq(weft_item_f64(weft_select(y, 0, 0)), load + 1);
            weft_scope_end(sc);
            cr_assert_eq(r.deleted, load);
        }
        weft_free(r.w);
    }
    cr_assert_eq(stats_of(r.j).frozen, 24, "%s", reasons(r.j));
    weft_jit *j = r.j;
    r.j = NULL;
    weft_jit_free(j);
    cr_assert_eq(r.deleted, 12);
}

/* What is captured and an argument, too, in all recordings may be either: with another argument it is recorded. */
typedef struct twice {
    weft_tensor w;
    int how; /* it reads w; writes it; writes the argument; leaves that alone; returns w */
} twice;

static weft_status use_twice(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    const twice *t = self;
    (void)n_in, (void)n_out;
    weft_status s = t->how == 1   ? weft_add_(t->w, weft_f(1))
                    : t->how == 2 ? weft_add_(in[0], weft_f(1))
                                  : WEFT_OK;
    out[0] = weft_mul(t->how == 3 ? t->w : weft_add(in[0], weft_f(1)), t->w);
    out[1] = t->how == 4 ? t->w : in[0];
    return s;
}

Test(frozen, arguments_that_are_captured_too)
{
    for (int how = 0; how < 5; how++) {
        twice a = {weft_keep(data(3, 3, 1)), how}, b = {weft_keep(data(3, 3, 1)), how};
        weft_tensor other[2][4], y[2], z[2];
        weft_jit *j = weft_jit_trace(use_twice, &b, .frozen = true, .verify_every = -1,
                                     .always_record = true);
        for (int i = 0; i < 4; i++) {
            other[0][i] = weft_keep(data(3, 3, 5 + i));
            other[1][i] = weft_keep(data(3, 3, 5 + i));
        }
        for (int call = 0; call < 12; call++) { /* w, others, each of those once more, w again */
            const bool is_w = call < 5 || call > 9;
            const int k = call % 4;
            OK(use_twice(&a, is_w ? &a.w : &other[0][k], 1, y, 2));
            OK(weft_jit_call(j, is_w ? &b.w : &other[1][k], 1, z, 2));
            check_bits("result", y[0], z[0]);
            check_bits("second result", y[1], z[1]);
            check_bits("captured", a.w, b.w);
            check_bits("argument", other[0][k], other[1][k]);
            cr_assert(memcmp(&z[1], is_w || how == 4 ? &b.w : &other[1][k], sizeof z[1]) == 0);
        }
        /* w three times, two of the others, and w */
        cr_assert_eq(stats_of(j).frozen, 3 + 3 + 2, "way %d: %s", how, reasons(j));
        cr_assert(has_reason(j, "argument 0 is another tensor than in both"), "%s", reasons(j));
        weft_jit_free(j);
        for (int i = 0; i < 4; i++) {
            weft_free(other[0][i]);
            weft_free(other[1][i]);
        }
        weft_free(a.w);
        weft_free(b.w);
        cr_assert_eq(weft_leak_report(NULL), 0);
    }
}

/* What is captured, but no input of the graph: only given out, a view beside the tensor itself, an operand of what fails. */
typedef struct unseen {
    weft_tensor w, other, first; /* first: what other was at first */
    int how;
    int runs;
} unseen;

static void free_both(unseen u[2])
{
    for (int k = 0; k < 2; k++) {
        weft_free(u[k].w);
        weft_free(u[k].other);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}
enum { GIVEN, VIEWED, STRIDED, WRITTEN, ASKED, WATCHED, MARKED, LIVING, FAILING, UNSEEN };

static weft_status use_unseen(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    unseen *u = self;
    weft_status s = WEFT_OK;
    (void)n_in, (void)n_out;
    u->runs++;
    out[0] = weft_mul(in[0], u->w);
    out[1] = WEFT_NONE;
    switch (u->how) {
    case GIVEN:
        out[1] = u->other;
        break;
    case VIEWED:
        out[0] = weft_add(out[0], u->other);
        break;
    case STRIDED:
        out[0] = weft_add(out[0], weft_as_strided(u->other, weft_shape(3, 3), weft_shape(1, 3), 0));
        break;
    case WRITTEN:
        s = weft_mul_(weft_slice(u->other, 0, 0, 1, 1), weft_f(2));
        break;
    case WATCHED:
        out[0] = weft_requires_grad(u->other) ? weft_neg(out[0]) : out[0];
        break;
    case MARKED:
        s = weft_requires_grad_(u->other, true);
        break;
    case LIVING:
        out[0] = weft_ok(u->first) ? out[0] : weft_neg(out[0]);
        break;
    case ASKED:
        out[0] = weft_mul(out[0], weft_sum(weft_ones_like(u->other)));
        break;
    default: {
        const weft_tensor sum = weft_add(out[0], u->other);
        out[0] = weft_ok(sum) ? sum : out[0];
    }
    }
    return s;
}

static weft_tensor open_unseen(const unseen *u)
{
    return weft_keep(u->how == GIVEN || u->how >= ASKED ? data(2, 2, 1)
                                                        : weft_transpose(u->w, 0, 1));
}

Test(frozen, captured_tensors_that_are_no_inputs)
{
    static const char *const says[UNSEEN] = {"output 1 was a captured",
                                             "several on its memory",
                                             "several on its memory",
                                             "several on its memory",
                                             "one that the function asks about",
                                             "one that the function asks about",
                                             "one that the function asks about",
                                             "one that the function asks about",
                                             "a call in it fails: add"};
    for (int how = 0; how < UNSEEN; how++) {
        unseen u[2] = {{.how = how, .w = weft_keep(data(3, 3, 1))},
                       {.how = how, .w = weft_keep(data(3, 3, 1))}};
        u[0].first = u[0].other = open_unseen(&u[0]);
        u[1].first = u[1].other = open_unseen(&u[1]);
        weft_jit *j = weft_jit_trace(use_unseen, &u[1], .frozen = true, .verify_every = -1,
                                     .always_record = true);
        weft_tensor y[2], z[2];
        for (int call = 0; call < 12; call++) {
            weft_scope sc = weft_scope_begin();
            const weft_tensor x = data(3, 3, call);
            for (int k = 0; k < 2 && call == 6; k++) {
                weft_free(u[k].other);
                u[k].other = weft_keep(data(3, 3, 50));
                OK(weft_requires_grad_(u[k].other, how == WATCHED));
            }
            OK(use_unseen(&u[0], &x, 1, y, 2));
            OK(weft_jit_call(j, &x, 1, z, 2));
            check_bits("result", y[0], z[0]);
            check_bits("captured", u[0].w, u[1].w);
            check_bits("the other", u[0].other, u[1].other);
            cr_assert_eq(weft_requires_grad(u[1].other), weft_requires_grad(u[0].other));
            cr_assert(how != GIVEN || memcmp(&z[1], &u[1].other, sizeof z[1]) == 0, "%s",
                      weft_error_text(z[1]));
            cr_assert_str_eq(weft_site(z[0]), weft_site(y[0]));
            weft_scope_end(sc);
        }
        /* before the other one came and after it, but where a call fails */
        cr_assert_eq(stats_of(j).frozen, how == FAILING ? 4 : 8, "%d: %s", how, reasons(j));
        cr_assert(has_reason(j, says[how]), "%d: %s", how, reasons(j));
        weft_jit_free(j);
        free_both(u);
    }
}

static weft_status gives_twice(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_exp(in[0]);
    out[1] = weft_neg(in[0]);
    out[2] = out[0];
    return WEFT_OK;
}

/* Who keeps one result has kept the other, when they are one. */
Test(frozen, a_result_that_is_given_twice)
{
    weft_jit *j =
        weft_jit_trace(gives_twice, .frozen = true, .verify_every = -1, .always_record = true);
    for (int call = 0; call < 8; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = data(1, 3, call), y[3];
        OK(weft_jit_call(j, &x, 1, y, 3));
        cr_assert(memcmp(&y[0], &y[2], sizeof y[0]) == 0, "call %d", call);
        weft_keep(y[0]);
        weft_scope_end(sc);
        cr_assert(weft_ok(y[2]));
        cr_assert_not(weft_ok(y[1]));
        OK(weft_free(y[2]));
    }
    cr_assert_eq(stats_of(j).frozen, 6, "%s", reasons(j));
    weft_jit_free(j);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* Gradients of a view that is captured beside its tensor are asked for, or no longer. */
static weft_status through_a_view(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                  int n_out)
{
    const unseen *u = self;
    (void)n_in, (void)n_out;
    const weft_tensor loss =
        weft_sum(weft_mul(weft_mul(in[0], weft_detach(u->w)), weft_square(u->other)));
    out[0] = weft_detach(loss);
    return weft_requires_grad(loss) ? weft_backward(loss) : WEFT_OK;
}

Test(frozen, gradients_of_a_captured_view)
{
    unseen u[2] = {{.how = VIEWED, .w = weft_keep(data(3, 3, 1))},
                   {.how = VIEWED, .w = weft_keep(data(3, 3, 1))}};
    u[0].other = open_unseen(&u[0]);
    u[1].other = open_unseen(&u[1]);
    weft_jit *j = weft_jit_trace(through_a_view, &u[1], .frozen = true, .verify_every = -1,
                                 .always_record = true);
    weft_tensor y, z;
    for (int call = 0; call < 20; call++) {
        weft_scope sc = weft_scope_begin();
        const weft_tensor x = data(3, 3, call);
        for (int k = 0; k < 2; k++) {
            OK(weft_requires_grad_(u[k].other, call / 5 % 2));
            OK(weft_set_grad(u[k].other, WEFT_NONE));
        }
        OK(through_a_view(&u[0], &x, 1, &y, 1));
        OK(weft_jit_call(j, &x, 1, &z, 1));
        check_bits("result", y, z);
        cr_assert_eq(weft_has_grad(u[1].other), call / 5 % 2, "call %d", call);
        if (call / 5 % 2) {
            check_bits("gradient", weft_grad(u[0].other), weft_grad(u[1].other));
        }
        weft_scope_end(sc);
    }
    cr_assert_geq(stats_of(j).frozen, 6, "%s", reasons(j));
    weft_jit_free(j);
    free_both(u);
}

/* Memory that is captured without its history first, then with it. */
static weft_status through_a_history(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                     int n_out)
{
    const unseen *u = self;
    (void)n_in, (void)n_out;
    out[0] = weft_mul(in[0], u->other);
    return weft_backward(weft_sum(weft_mul(out[0], u->w)), .retain_graph = true);
}

Test(frozen, the_history_of_captured_memory)
{
    weft_tensor leaf = weft_keep(data(3, 3, 1));
    OK(weft_requires_grad_(leaf, true));
    weft_scope all = weft_scope_begin();
    unseen u = {.w = weft_keep(weft_mul(leaf, weft_f(2)))};
    u.other = weft_keep(weft_detach(u.w));
    weft_jit *j = weft_jit_trace(through_a_history, &u, .frozen = true, .verify_every = -1,
                                 .always_record = true);
    for (int call = 0; call < 6; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = data(3, 3, call), y;
        OK(weft_jit_call(j, &x, 1, &y, 1));
        weft_scope_end(sc);
    }
    cr_assert_eq(stats_of(j).frozen, 0);
    cr_assert(has_reason(j, "into the history of a captured tensor"), "%s", reasons(j));
    weft_jit_free(j);
    weft_free(u.w);
    weft_free(u.other);
    weft_scope_end(all);
    weft_free(leaf);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* Handles of the caller's that the function keeps or frees: a replay would not. */
typedef struct owner {
    weft_tensor held, w;
    int how;
} owner;
enum { KEEPS_ARGUMENT, KEEPS_VIEW, FREES_KEPT, FREES_ARGUMENT, FREES_OWN, OWNERS };

static weft_status change_owners(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                 int n_out)
{
    owner *o = self;
    (void)n_in, (void)n_out;
    out[0] = weft_mul(in[0], o->w);
    if (o->how == KEEPS_ARGUMENT) {
        o->held = weft_keep(in[1]);
    } else if (o->how == KEEPS_VIEW) {
        o->held = weft_keep(weft_slice(in[1], 0, 0, 1, 1));
    } else if (o->how == FREES_KEPT) {
        return weft_free(o->held);
    } else if (o->how == FREES_ARGUMENT) {
        return weft_free(in[1]);
    } else {
        const weft_tensor own = weft_keep(weft_exp(in[1]));
        out[0] = weft_add(out[0], own);
        return weft_free(own);
    }
    return WEFT_OK;
}

Test(frozen, handles_that_the_function_keeps_or_frees)
{
    static const char *const says[OWNERS] = {
        "keeps a tensor from outside", "keeps a tensor from outside", "frees a tensor from outside",
        "frees a tensor from outside", NULL};
    for (int how = 0; how < OWNERS; how++) {
        owner o = {.w = weft_keep(data(3, 3, 1)), .how = how};
        weft_jit *j = weft_jit_trace(change_owners, &o, .frozen = true, .verify_every = -1,
                                     .always_record = true);
        for (int call = 0; call < 8; call++) {
            weft_scope sc = weft_scope_begin();
            const weft_tensor in[2] = {data(3, 3, call), data(3, 3, 9 + call)};
            weft_tensor y, held = weft_keep(data(3, 3, 2));
            o.held = how == FREES_KEPT ? held : WEFT_NONE;
            OK(weft_jit_call(j, in, 2, &y, 1));
            cr_assert_eq(weft_ok(in[1]), how != FREES_ARGUMENT, "call %d", call);
            cr_assert_eq(weft_ok(held), how != FREES_KEPT, "call %d", call);
            weft_scope_end(sc);
            if (how <= KEEPS_VIEW) {
                cr_assert_eq(at(o.held, 0), (float)(9 + call), "call %d of %d", call, how);
                weft_free(o.held);
            }
            if (how != FREES_KEPT) {
                weft_free(held);
            }
        }
        cr_assert_eq(stats_of(j).frozen, says[how] ? 0 : 6, "%d: %s", how, reasons(j));
        cr_assert(!says[how] || has_reason(j, says[how]), "%d: %s", how, reasons(j));
        weft_jit_free(j);
        weft_free(o.w);
        cr_assert_eq(weft_leak_report(NULL), 0);
    }
}

static weft_status doubles(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_no_grad_begin();
    out[0] = weft_is_leaf(in[0]) ? weft_neg(in[0]) : weft_exp(in[0]);
    weft_no_grad_end();
    return weft_requires_grad(in[0]) ? WEFT_OK : weft_mul_(in[0], weft_f(2));
}

/* A plain tensor; one with a history; a leaf; a view that was made without recording of what has a history, which is not written. */
Test(frozen, where_gradients_end_is_guarded)
{
    weft_jit *j =
        weft_jit_trace(doubles, .frozen = true, .verify_every = -1, .always_record = true);
    for (int call = 0; call < 24; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor in[2], out[2];
        weft_status s[2];
        for (int k = 0; k < 2; k++) {
            const weft_tensor x = weft_clone(data(2, 3, 1)), y = weft_clone(x);
            OK(weft_requires_grad_(y, true));
            const int what = call < 12 ? call / 4 : call % 4;
            in[k] = what == 0 ? x : what == 1 ? weft_sin(y) : y;
            if (what == 3) {
                in[k] = weft_clone(y);
                weft_no_grad_begin();
                in[k] = weft_reshape(in[k], weft_shape(2, 3));
                weft_no_grad_end();
            }
            weft_clear_error();
            s[k] = k ? weft_jit_call(j, &in[1], 1, &out[1], 1) : doubles(NULL, in, 1, out, 1);
        }
        cr_assert_eq(s[0], s[1], "call %d: %d, %d", call, s[0], s[1]);
        check_bits("argument", weft_detach(in[0]), weft_detach(in[1]));
        check_bits("result", out[0], out[1]);
        weft_scope_end(sc);
    }
    cr_assert_eq(stats_of(j).frozen, 6 + 9, "%s", reasons(j));
    weft_jit_free(j);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

static weft_status gives_a_quiet_view(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                      int n_out)
{
    (void)n_in, (void)n_out;
    const weft_tensor y = weft_mul(in[0], *(weft_tensor *)self);
    weft_no_grad_begin();
    out[0] = weft_reshape(y, weft_shape(6));
    weft_no_grad_end();
    return WEFT_OK;
}

/* A view, made without recording, of a value with a history is not written, whoever gave it. */
Test(frozen, views_that_must_not_be_written_are_no_results)
{
    weft_tensor w = weft_keep(weft_clone(data(2, 3, 1)));
    OK(weft_requires_grad_(w, true));
    weft_jit *j = weft_jit_trace(gives_a_quiet_view, &w, .frozen = true, .verify_every = -1,
                                 .always_record = true);
    for (int call = 0; call < 6; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = data(2, 3, call), y;
        OK(weft_jit_call(j, &x, 1, &y, 1));
        cr_assert_eq(weft_mul_(y, weft_f(2)), WEFT_EGRAD, "call %d", call);
        weft_scope_end(sc);
    }
    cr_assert(has_reason(j, "output 0 has a gradient history"), "%s", reasons(j));
    weft_jit_free(j);
    weft_free(w);
    cr_assert_eq(weft_leak_report(NULL), 0);
}
