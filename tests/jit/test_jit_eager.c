/*
 * tests/jit/test_jit_eager.c -- traced functions that run themselves instead of recording: the same results, state, errors
 * and lifetimes whichever way a call goes. After WARM recorded calls of a kind a trial runs both ways, whatever is faster.
 * What is faster is said by a clock of the tests' own: no machine, however busy, has a say in what they see.
 *
 * ctest: threads processors=2
 */
#include <pthread.h>
#include <stdatomic.h>

#include "eager/borrow.h"
#include "eager/tensor.h"
#include "jit/call_impl.h"
#include "jit/plan_int.h"
#include "tests/jit/clock_support.h"
#include "tests/jit/corner_support.h"
#include "tests/support/effort.h"

enum { WARM = 64, TRIAL = 16, PLAIN = 8 /* calls of a trial */, CALLS = WARM + TRIAL + 40 };

TestSuite(eager, .init = plant_clock);

static void check_tried(weft_jit *j, int64_t trials)
{
    char *text = test_explained(j);
    cr_assert_geq(stats_of(j).eager, trials * PLAIN, "%s", text);
    cr_assert(strstr(text, "calls ran eagerly") &&
                  (strstr(text, "runs eagerly: ") || strstr(text, "is recorded: ")),
              "%s", text);
    free(text);
}

static weft_tensor scalar_leaf(double v)
{
    const weft_tensor t = weft_keep(weft_full(weft_shape(2, 3), v, WEFT_F32));
    OK(weft_requires_grad_(t, true));
    return t;
}

typedef struct model {
    weft_tensor w, state, kept;
    weft_generator rng;
} model;

/* All that a call may do: a gradient, a captured write, random numbers, a kept tensor, views, handles left over. */
FN(busy)
{
    model *m = self;
    (void)n_in, (void)n_out;
    weft_tensor h = weft_mul(m->w, in[0]);
    h = weft_dropout(h, .p = 0.25, .training = true, .generator = &m->rng);
    weft_status s = weft_backward(weft_sum(weft_tanh(h)));
    weft_no_grad_begin();
    s = s ? s : weft_add_(m->state, weft_grad(m->w));
    s = s ? s : weft_add_(m->w, weft_mul(weft_grad(m->w), weft_f(-0.01)));
    weft_free(m->kept);
    m->kept = weft_keep(weft_exp(m->state));
    out[0] = weft_add(m->state, in[0]);
    out[1] = weft_narrow(out[0], 1, 1, 2);
    out[2] = in[0];
    weft_no_grad_end();
    return s ? s : weft_set_grad(m->w, WEFT_NONE);
}

Test(eager, a_call_leaves_the_same_either_way)
{
    model a = {.rng = {7, 0}}, b = {.rng = {7, 0}};
    a.w = scalar_leaf(0.5);
    b.w = scalar_leaf(0.5);
    a.state = weft_keep(weft_zeros(weft_shape(2, 3), WEFT_F32));
    b.state = weft_keep(weft_zeros(weft_shape(2, 3), WEFT_F32));
    weft_jit *j = weft_jit_trace(busy, &b, .name = "busy");
    for (int i = 0; i < CALLS; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor x = weft_full(weft_shape(2, 3), 0.1 * i, WEFT_F32), y[3], z[3];
        OK(busy(&a, &x, 1, y, 3));
        const uint32_t before = weft_write_count(b.state);
        OK(weft_jit_call(j, &x, 1, z, 3));
        cr_assert_eq(weft_write_count(b.state), before + 1, "call %d", i);
        check_bits("result", y[0], z[0]);
        check_bits("view", y[1], z[1]);
        check_bits("state", a.state, b.state);
        check_bits("parameter", a.w, b.w);
        check_bits("kept", a.kept, b.kept);
        cr_assert_eq(a.rng.offset, b.rng.offset);
        cr_assert(weft_shares_memory(z[0], z[1]) && memcmp(&z[2], &x, sizeof x) == 0);
        weft_scope_end(s);
    }
    check_tried(j, 1);
    cr_assert_eq(stats_of(j).calls + stats_of(j).eager, CALLS);
    weft_jit_free(j);
    model *both[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        weft_free(both[i]->w);
        weft_free(both[i]->state);
        weft_free(both[i]->kept);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

FN(doubles)
{
    (void)self, (void)n_in, (void)n_out;
    const weft_tensor left = weft_neg(in[0]); /* ends with the call */
    if (self) {
        *(weft_tensor *)self = left;
    }
    out[0] = weft_add(in[0], in[0]);
    return WEFT_OK;
}

/* What the function leaves in the caller's scope ends with the call. */
Test(eager, temporaries_end_with_the_call)
{
    weft_tensor left = WEFT_NONE, x = weft_ones(weft_shape(3), WEFT_F32), y;
    weft_jit *j = weft_jit_trace(doubles, &left);
    for (int i = 0; i < CALLS; i++) {
        OK(weft_jit_call(j, &x, 1, &y, 1));
        cr_assert_eq(weft_item_f64(weft_max(y)), 2);
        cr_assert_neq(weft_error_status(weft_exp(left)), WEFT_OK, "call %d", i);
    }
    check_tried(j, 1);
    weft_jit_free(j);
}

/* Modes that ask for a recording get one each time; so does the caller who says so. */
Test(eager, modes_that_always_record)
{
    const weft_jit_args modes[] = {{.single_graph = true},
                                   {.synchronous = true},
                                   {.no_fuse = true},
                                   {.frozen = true, .always_record = true},
                                   {.always_record = true}};
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32), y;
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
        weft_jit_args a = modes[k];
        a.fn = doubles;
        weft_jit *j = (weft_jit_trace)(&a);
        for (int i = 0; i < CALLS; i++) {
            OK(weft_jit_call(j, &x, 1, &y, 1));
        }
        cr_assert_eq(stats_of(j).eager, 0, "mode %d", (int)k);
        cr_assert_eq(stats_of(j).calls + stats_of(j).frozen, CALLS);
        weft_jit_free(j);
    }
}

/* Part of another trace: recorded there. Many kinds of calls: those that come later begin as those before them ended. */
Test(eager, kinds_of_calls)
{
    weft_tensor y;
    weft_jit *outer = weft_jit_trace(NULL, .always_record = true), *j = weft_jit_trace(doubles);
    for (int i = 0; i < CALLS; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor x = weft_full(weft_shape(3), i, WEFT_F32);
        OK(weft_jit_begin(outer));
        OK(weft_jit_call(j, &x, 1, &y, 1));
        OK(weft_jit_end(outer));
        cr_assert_eq(weft_item_f64(weft_max(y)), 2 * i);
        weft_scope_end(s);
    }
    cr_assert_eq(stats_of(j).eager, 0);
    cr_assert_eq(stats_of(j).inlined, CALLS);
    for (int rows = 1; rows <= 20; rows++) {
        for (int i = 0; i < WARM + TRIAL + 2; i++) {
            weft_scope s = weft_scope_begin();
            weft_tensor x = weft_full(weft_shape(rows), i, WEFT_F32);
            OK(weft_jit_call(j, &x, 1, &y, 1));
            cr_assert(weft_dim(y, 0) == rows && weft_item_f64(weft_max(y)) == 2 * i);
            weft_scope_end(s);
        }
    }
    check_tried(j, 8);
    cr_assert_eq(stats_of(j).calls + stats_of(j).eager, 20 * (WARM + TRIAL + 2));
    weft_jit_free(j);
    weft_jit_free(outer);
}

FN(picks)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_index_select(in[0], 0, in[1]);
    out[1] = weft_neg(in[0]);
    return WEFT_OK; /* it does not look at the result */
}

FN(refuses)
{
    (void)n_in, (void)n_out;
    out[0] = weft_neg(in[0]);
    return ++*(int *)self % 2 ? WEFT_OK : WEFT_EUNSUPPORTED;
}

/* The errors of kernels and of the function are the call's, before, in and after the trial. */
Test(eager, errors)
{
    static const int64_t good[2] = {1, 0}, bad[2] = {1, 9};
    for (int at = 0; at < CALLS; at += 7) {
        weft_jit *j = weft_jit_trace(picks);
        weft_tensor x = weft_reshape(weft_arange(0, 6, 1, WEFT_F32), weft_shape(2, 3)), y[2];
        for (int i = 0; i < CALLS; i++) {
            weft_scope s = weft_scope_begin();
            weft_tensor in[2] = {x, weft_from_data(i == at ? bad : good, weft_shape(2), WEFT_I64)};
            cr_assert_eq(weft_jit_call(j, in, 2, y, 2), i == at ? WEFT_EINDEX : WEFT_OK);
            if (i == at) {
                check_error("first", y[0], WEFT_EINDEX, "9");
                check_error("second", y[1], WEFT_EINDEX, "9");
            } else {
                cr_assert_eq(weft_item_f64(weft_min(y[1])), -5);
            }
            weft_scope_end(s);
        }
        weft_jit_free(j);
    }
    int calls = 0;
    weft_jit *j = weft_jit_trace(refuses, &calls);
    for (int i = 0; i < CALLS; i++) {
        weft_tensor x = weft_ones(weft_shape(2), WEFT_F32), y;
        cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), i % 2 ? WEFT_EUNSUPPORTED : WEFT_OK);
        cr_assert_eq(weft_item_f64(weft_max(y)), -1);
    }
    check_tried(j, 1);
    weft_jit_free(j);
}

FN(recovers)
{
    float at[2];
    (void)self, (void)n_in, (void)n_out;
    weft_tensor y = weft_index_select(in[0], 1, in[1]);
    const bool bad = weft_to_array(weft_slice(y, 0, 0, 1, 1), at, 2, WEFT_F32) != WEFT_OK;
    const weft_tensor far = weft_select(in[0], 0, 99); /* of no row */
    out[0] = bad ? weft_neg(in[0]) : y;
    return weft_error_status(far) == WEFT_EINDEX ? WEFT_OK : WEFT_EINVALID;
}

FN(errs_twice)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_index_select(in[0], 1, in[1]);
    (void)weft_reshape(in[0], weft_shape(7)); /* a mistake that it makes after the kernel's */
    weft_clear_error();
    return WEFT_OK;
}

/* An error that the function was told of is its own affair, another one is the call's, whichever way the call goes. A
 * status that it made up has a text. */
Test(eager, errors_that_the_function_knows)
{
    static const int64_t good[2] = {1, 0}, bad[2] = {1, 9};
    for (int at = 0; at < CALLS; at += 7) {
        weft_jit *j = weft_jit_trace(recovers), *k = weft_jit_trace(errs_twice);
        weft_tensor x = weft_reshape(weft_arange(0, 6, 1, WEFT_F32), weft_shape(2, 3)), y;
        for (int i = 0; i < CALLS; i++) {
            weft_scope s = weft_scope_begin();
            weft_tensor in[2] = {x, weft_from_data(i == at ? bad : good, weft_shape(2), WEFT_I64)};
            cr_assert_eq(weft_jit_call(j, in, 2, &y, 1), WEFT_OK, "call %d, bad %d", i, at);
            cr_assert_eq(weft_item_f64(weft_min(y)), i == at ? -5 : 0);
            cr_assert_eq(weft_jit_call(k, in, 2, &y, 1), i == at ? WEFT_EINDEX : WEFT_OK);
            if (i == at) {
                check_error("call", y, WEFT_EINDEX, "9");
                cr_assert(strstr(weft_last_error(), "9"), "%s", weft_last_error());
            }
            weft_scope_end(s);
        }
        if (at == 0) {
            cr_assert_geq(stats_of(j).eager, PLAIN);
        }
        weft_jit_free(j);
        weft_jit_free(k);
    }
    int calls = 0;
    weft_jit *j = weft_jit_trace(refuses, &calls, .name = "refuses");
    for (int i = 0; i < CALLS; i++) {
        weft_tensor x = weft_ones(weft_shape(2), WEFT_F32), y;
        weft_clear_error();
        if (weft_jit_call(j, &x, 1, &y, 1)) {
            cr_assert(strstr(weft_last_error(), "'refuses' returned status"), "call %d: %s", i,
                      weft_last_error());
        }
    }
    weft_jit_free(j);
}

/* -- an error that was there before ------------------------------------------------------------------------------- */

/* What the function reads beside its inputs is an error already: of an op on it, or given as the result. */
typedef struct brought {
    weft_tensor bad;
    bool as_is, well;
} brought;

FN(meets)
{
    const brought *b = self;
    (void)n_in, (void)n_out;
    out[0] = b->as_is ? b->bad : weft_relu(weft_mul(in[0], b->bad));
    return b->well ? WEFT_OK : weft_error_status(out[0]);
}

static weft_status meets_forward(weft_function_ctx *ctx, void *user, const weft_tensor *in,
                                 int n_in, weft_tensor *out, int n_out)
{
    (void)ctx;
    return meets(user, in, n_in, out, n_out);
}

static weft_status meets_backward(weft_function_ctx *ctx, void *user, const weft_tensor *g,
                                  int n_out, weft_tensor *gi, const bool *needs, int n_in)
{
    (void)ctx, (void)n_out, (void)needs, (void)n_in;
    gi[0] = weft_mul(g[0], ((const brought *)user)->bad);
    return weft_error_status(gi[0]);
}

static weft_status echo_forward(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                                weft_tensor *out, int n_out)
{
    (void)ctx, (void)user, (void)n_in, (void)n_out;
    out[0] = weft_mul(in[0], weft_f(2));
    return WEFT_OK;
}

/* It is the call's error, with the text that it had; not one that came between, nor a status without a reason. */
static void check_brought(const char *what, weft_status s, weft_tensor y)
{
    cr_assert_eq(s, WEFT_ESHAPE, "%s: %d %s", what, (int)s, weft_last_error());
    cr_assert(strstr(weft_last_error(), "f32[77]"), "%s: %s", what, weft_last_error());
    cr_assert(strstr(weft_error_text(y), "f32[77]"), "%s: %s", what, weft_error_text(y));
    weft_reshape(weft_zeros(weft_shape(3), WEFT_F32), weft_shape(5)); /* the last one, next time */
}

Test(eager, errors_that_the_function_brings)
{
    static const weft_function f = {"meets", meets_forward, meets_backward, NULL},
                               g = {"echo", echo_forward, meets_backward, NULL};
    const weft_tensor five = weft_zeros(weft_shape(5), WEFT_F32),
                      many = weft_zeros(weft_shape(77), WEFT_F32);
    brought b = {.bad = weft_add(five, many)};
    const weft_tensor x = scalar_leaf(1);
    for (int way = 0; way < 4; way++) {
        weft_tensor y;
        b.as_is = way & 1, b.well = way & 2;
        if (!b.as_is || b.well) { /* no op met it: a status alone could be of anything */
            check_brought("apply", weft_apply(&f, &b, &x, 1, &y, 1), y);
            check_brought("remat", weft_remat(meets, &b, &x, 1, &y, 1), y);
            weft_no_grad_begin();
            check_brought("remat, no gradient", weft_remat(meets, &b, &x, 1, &y, 1), y);
            weft_no_grad_end();
        }
        weft_jit *j = weft_jit_trace(meets, &b);
        for (int i = 0; i < CALLS && !b.well && !b.as_is; i++) {
            const weft_scope s = weft_scope_begin();
            b.bad = weft_add(five, many); /* a thread remembers 64 */
            check_brought("jit_call", weft_jit_call(j, &x, 1, &y, 1), y);
            weft_scope_end(s);
        }
        weft_jit_free(j);
    }
    weft_tensor y;
    OK(weft_apply(&g, &b, &x, 1, &y, 1));
    const weft_status s = weft_backward(weft_sum(y));
    cr_assert_eq(s, WEFT_ESHAPE);
    cr_assert(strstr(weft_last_error(), "f32[77]"), "%s", weft_last_error());
    weft_free(x);
}

/* Two arguments that come again are borrowed for the call. Then the function, or another thread, frees them. */
typedef struct lender {
    int frees[2]; /* argument i: 1: the function, 2: another thread */
    bool lent;    /* both were when it ran last */
} lender;

static void *frees_it(void *handle)
{
    return weft_free(*(const weft_tensor *)handle) == WEFT_OK ? handle : NULL;
}

static void free_here_or_there(weft_tensor t, bool there)
{
    pthread_t thread;
    void *done = there ? NULL : frees_it(&t);
    cr_assert(!there || pthread_create(&thread, NULL, frees_it, &t) == 0);
    cr_assert(!there || pthread_join(thread, &done) == 0);
    cr_assert_eq(done, &t);
}

FN(lends)
{
    lender *l = self;
    wf_ctx *c = wf_ctx_get();
    (void)n_in, (void)n_out;
    l->lent = wf_lends_some(c) && wf_is_lent(c, wf_slot_at(c, in[0].slot)) &&
              wf_is_lent(c, wf_slot_at(c, in[1].slot));
    take_us(c->recorder ? 5 : 1);
    out[0] = weft_add(in[0], in[1]);
    for (int i = 0; i < 2; i++) {
        if (l->frees[i]) {
            free_here_or_there(in[i], l->frees[i] == 2);
            check_error("a freed argument", weft_add(in[i], out[0]), WEFT_EHANDLE, "dead");
            cr_assert(!l->lent || wf_slot_at(c, in[i].slot)->st, "it is somebody's operand, maybe");
        }
    }
    return WEFT_OK;
}

/* A call inside a call, which lends nothing more. */
FN(lends_inside)
{
    weft_jit *const *inner = self;
    weft_tensor y;
    (void)n_out;
    take_us(wf_ctx_get()->recorder ? 5 : 1);
    OK(weft_jit_call(*inner, in, n_in, &y, 1));
    out[0] = weft_sub(weft_add(in[0], in[1]), y);
    return WEFT_OK;
}

static void call_pair(weft_jit *j, const weft_tensor *in, double want, int times)
{
    for (int i = 0; i < times; i++) {
        const weft_scope s = weft_scope_begin();
        weft_tensor y;
        OK(weft_jit_call(j, in, 2, &y, 1));
        cr_assert_eq(weft_item_f64(weft_max(y)), want);
        weft_scope_end(s);
    }
}

Test(eager, arguments_that_are_borrowed)
{
    enum { SAME = 9 /* one tensor twice */ };
    for (int how = 0; how <= SAME; how++) {
        lender l = {.lent = false};
        weft_jit *j = weft_jit_trace(lends, &l), *outer = weft_jit_trace(lends_inside, &j);
        weft_tensor in[2] = {weft_keep(weft_full(weft_shape(3), 1, WEFT_F32))};
        in[1] = how == SAME ? in[0] : weft_keep(weft_full(weft_shape(3), 2, WEFT_F32));
        const double sum = how == SAME ? 2 : 3;
        call_pair(j, in, sum, 2 * CALLS);
        cr_assert(l.lent);
        call_pair(outer, in, 0, 2 * CALLS);
        cr_assert(!wf_lends_some(wf_ctx_get()));
        call_pair(j, in, sum, 2);
        l.frees[0] = how == SAME ? 2 : how % 3;
        l.frees[1] = how == SAME ? 0 : how / 3;
        call_pair(j, in, sum, 1);
        cr_assert(l.lent && !wf_lends_some(wf_ctx_get()), "way %d", how);
        for (int i = 0; i < 2 - (how == SAME); i++) {
            cr_assert_eq(weft_free(in[i]), l.frees[i] ? WEFT_EHANDLE : WEFT_OK);
        }
        cr_assert_eq(weft_leak_report(NULL), 0);
        weft_jit_free(j);
        weft_jit_free(outer);
    }
}

/* So is a captured tensor; arguments by turns are, each when it comes. */
typedef struct capturing {
    weft_tensor w;
    int frees; /* w, as of a lender */
    bool lent; /* w and the argument were when it ran last */
} capturing;

FN(captures)
{
    capturing *l = self;
    wf_ctx *c = wf_ctx_get();
    (void)n_in, (void)n_out;
    l->lent = wf_lends_some(c) && wf_is_lent(c, wf_slot_at(c, l->w.slot)) &&
              wf_is_lent(c, wf_slot_at(c, in[0].slot));
    take_us(c->recorder ? 5 : 1);
    out[0] = weft_add(in[0], l->w);
    if (l->frees) {
        free_here_or_there(l->w, l->frees == 2);
        check_error("a freed tensor", weft_add(l->w, out[0]), WEFT_EHANDLE, "dead");
    }
    return WEFT_OK;
}

Test(eager, captured_tensors_that_are_borrowed)
{
    for (int frees = 0; frees <= 2; frees++) {
        capturing l = {.w = weft_keep(weft_ones(weft_shape(3), WEFT_F32))};
        weft_jit *j = weft_jit_trace(captures, &l);
        weft_tensor in[2], y;
        for (int i = 0; i < 2; i++) {
            in[i] = weft_keep(weft_full(weft_shape(3 * i + 1, 3), i, WEFT_F32));
        }
        for (int i = 0; i < 6 * CALLS; i++) {
            const weft_scope s = weft_scope_begin();
            OK(weft_jit_call(j, &in[i % 2], 1, &y, 1));
            cr_assert_eq(weft_item_f64(weft_max(y)), 1 + i % 2);
            weft_scope_end(s);
        }
        l.frees = frees;
        OK(weft_jit_call(j, &in[0], 1, &y, 1));
        cr_assert(l.lent && !wf_lends_some(wf_ctx_get()), "way %d", frees);
        cr_assert_eq(weft_free(l.w), frees ? WEFT_EHANDLE : WEFT_OK);
        OK(weft_free(in[0]));
        OK(weft_free(in[1]));
        cr_assert_eq(weft_leak_report(NULL), 0);
        weft_jit_free(j);
    }
}

/* A kind that is all there is needs few looks; two by turns are looked at as ever. */
Test(eager, looks_that_find_the_same)
{
    for (int kinds = 1; kinds <= 2; kinds++) {
        lender l = {.lent = false};
        weft_jit *j = weft_jit_trace(lends, &l);
        const weft_tensor x = weft_full(weft_shape(3), 2, WEFT_F32);
        const weft_tensor other = weft_full(weft_shape(1), 2, WEFT_F32);
        const weft_tensor in[2][2] = {{x, x}, {x, other}};
        for (int i = 0; i < 20000; i++) {
            call_pair(j, in[i % kinds], 4, 1);
        }
        const int64_t looks = atomic_load(&j->looks);
        cr_assert(kinds == 1 ? looks < 210 : looks > 230, "%d kinds: %d looks", kinds, (int)looks);
        cr_assert_geq(stats_of(j).eager, 19000);
        weft_jit_free(j);
    }
}

/* No room for the call's scope: an error, and no handles, either way. */
Test(eager, no_memory_for_the_scope)
{
    enum { FULL = 63 /* scopes that there is room for from the start */, FROM = WARM + 4 };
    weft_jit *j = weft_jit_trace(doubles);
    weft_tensor x = weft_ones(weft_shape(3), WEFT_F32);
    for (int i = 0; i < CALLS; i++) {
        weft_tensor y = {1, 2, 3};
        const weft_scope s = weft_scope_begin();
        for (weft_scope d = s; i >= FROM && d.depth < FULL;) {
            d = weft_scope_begin();
        }
        wf_alloc_fail_after(i >= FROM, 1);
        const weft_status rc = weft_jit_call(j, &x, 1, &y, 1);
        wf_alloc_fail_after(0, 0);
        cr_assert_eq(rc, i < FROM ? WEFT_OK : WEFT_ENOMEM, "call %d", i);
        cr_assert(i < FROM || y.slot == 0, "call %d gives a handle", i);
        weft_scope_end(s);
    }
    cr_assert_geq(stats_of(j).eager, 4); /* a block of the trial */
    weft_jit_free(j);
}

FN(opens)
{
    weft_jit *const *region = self;
    (void)n_in, (void)n_out;
    out[0] = weft_add(in[0], weft_f(1));
    weft_status s = weft_jit_begin(*region);
    out[0] = weft_mul(out[0], weft_f(2));
    return s;
}

/* A region that the function leaves open ends with it. */
Test(eager, regions_left_open)
{
    weft_jit *region = weft_jit_trace(NULL), *j = weft_jit_trace(opens, &region);
    for (int i = 0; i < CALLS; i++) {
        weft_tensor x = weft_full(weft_shape(2), i, WEFT_F32), y;
        OK(weft_jit_call(j, &x, 1, &y, 1));
        cr_assert_eq(weft_item_f64(weft_max(y)), 2 * (i + 1));
        cr_assert_eq(weft_jit_end(region), WEFT_EINVALID);
    }
    weft_jit_free(j);
    weft_jit_free(region);
}

/* -- regions ---------------------------------------------------------------------------------------------------------- */

/* Regions of j are plain from now on, but for those that are looked at. */
static void force_plain(weft_jit *j)
{
    atomic_store(&j->region.trial, false);
    atomic_store(&j->region.eager, true);
    atomic_store(&j->region.left, 1 << 30);
}

/* What busy does, between begin and end, with a region inside. */
static void busy_region(weft_jit *j, model *m, weft_tensor x, weft_tensor *out)
{
    OK(weft_jit_begin(j));
    OK(weft_jit_begin(j));
    OK(busy(m, &x, 1, out, 3));
    OK(weft_jit_end(j));
    out[3] = weft_add(out[1], weft_f(1));
    OK(weft_jit_end(j));
    cr_assert_eq(weft_jit_end(j), WEFT_EINVALID);
}

Test(eager, regions_leave_what_recorded_ones_leave)
{
    model a = {
        scalar_leaf(0.5), weft_keep(weft_zeros(weft_shape(2, 3), WEFT_F32)), WEFT_NONE, {1, 0}};
    model b = {
        scalar_leaf(0.5), weft_keep(weft_zeros(weft_shape(2, 3), WEFT_F32)), WEFT_NONE, {1, 0}};
    weft_jit *j = weft_jit_trace(NULL), *r = weft_jit_trace(NULL, .always_record = true);
    for (int i = 0; i < 600; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor x = weft_full(weft_shape(2, 3), 0.01 * i, WEFT_F32), y[4], z[4];
        if (i == 200) {
            force_plain(j);
        }
        busy_region(j, &a, x, y);
        busy_region(r, &b, x, z);
        for (int k = 0; k < 4; k++) {
            check_bits("results", y[k], z[k]);
        }
        check_bits("weights", a.w, b.w);
        check_bits("state", a.state, b.state);
        check_bits("kept", a.kept, b.kept);
        cr_assert_eq(a.rng.offset, b.rng.offset);
        weft_scope_end(s);
    }
    const weft_jit_stats s = stats_of(j);
    cr_assert(s.eager >= 380 && s.calls + s.eager == 600 && s.inlined == 600, "%d, %d",
              (int)s.eager, (int)s.calls);
    cr_assert_eq(stats_of(r).eager, 0);
    cr_assert_eq(stats_of(r).calls, 600);
    weft_jit_free(j);
    weft_jit_free(r);
    const weft_tensor kept[] = {a.w, a.state, a.kept, b.w, b.state, b.kept};
    for (int i = 0; i < 6; i++) {
        weft_free(kept[i]);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* A trial is made; a way holds as long as the graph is the same, which is looked at now and then. */
Test(eager, regions_that_change)
{
    weft_jit *j = weft_jit_trace(NULL);
    weft_tensor x[2] = {weft_ones(weft_shape(3), WEFT_F32), weft_ones(weft_shape(4), WEFT_F32)};
    for (int i = 0; i < CALLS; i++) {
        OK(weft_jit_begin(j));
        weft_tensor y = weft_neg(x[0]);
        OK(weft_jit_end(j));
        cr_assert_eq(weft_item_f64(weft_max(y)), -1);
    }
    check_tried(j, 1);
    char *text = test_explained(j);
    cr_assert(strstr(text, "(a region)"), "%s", text);
    free(text);
    force_plain(j);
    int64_t recorded = stats_of(j).calls;
    for (int i = 0; i < 600; i++) { /* one in 127, one in 254 is looked at, and is as it was */
        OK(weft_jit_begin(j));
        weft_neg(x[0]);
        OK(weft_jit_end(j));
    }
    cr_assert(stats_of(j).calls > recorded && stats_of(j).calls < recorded + 4);
    recorded = stats_of(j).calls;
    for (int i = 0; i < 3000; i++) { /* by turns: found out, and recorded from then on */
        OK(weft_jit_begin(j));
        weft_neg(x[i % 2]);
        OK(weft_jit_end(j));
    }
    cr_assert_geq(stats_of(j).calls, recorded + 80, "%d recorded",
                  (int)(stats_of(j).calls - recorded));
    cr_assert_eq(stats_of(j).calls + stats_of(j).eager, CALLS + 3600);
    weft_jit_free(j);
}

/* Region i of several by turns, as of a sequence that grows: another graph each time. */
static void growing_region(weft_jit *j, weft_tensor all, int i, double *sum)
{
    weft_scope s = weft_scope_begin();
    OK(j ? weft_jit_begin(j) : WEFT_OK);
    weft_tensor y = weft_neg(weft_narrow(all, 0, 0, 1 + i % 7));
    for (int k = 0; k < i % 3; k++) {
        y = weft_mul(y, weft_f(3));
    }
    y = weft_sum(y);
    OK(j ? weft_jit_end(j) : WEFT_OK);
    *sum += weft_item_f64(y);
    OK(weft_scope_end(s));
}

/* They have one way, which is measured over all of them, and what is measured are both ways of each. */
Test(eager, regions_by_turns)
{
    weft_jit *j = weft_jit_trace(NULL), *always = weft_jit_trace(NULL, .always_record = true);
    weft_tensor all = weft_arange(1, 8, 1, WEFT_F32);
    double got = 0, want = 0;
    const int n = 2000;
    for (int i = 0; i < n; i++) {
        growing_region(j, all, i, &got);
        growing_region(i % 50 ? NULL : always, all, i, &want);
        cr_assert_eq(got, want, "region %d", i);
    }
    cr_assert(atomic_load(&j->mixed.on));
    cr_assert(j->region.ns[0] > 0 && j->region.ns[1] > 0, "no trial has ended");
    cr_assert_eq(j->mixed.n[0] + j->mixed.n[1], 256);
    cr_assert(j->mixed.n[0] > 100 && j->mixed.n[1] > 100, "%d recorded", (int)j->mixed.n[0]);
    cr_assert_geq(stats_of(j).calls, 48 + 64 + 100);
    cr_assert_geq(stats_of(j).eager, 100);
    cr_assert_eq(stats_of(j).calls + stats_of(j).eager, n);
    weft_jit_free(j);
    weft_jit_free(always);
}

FN(ends_outer)
{
    weft_status *ended = self;
    weft_jit *region = *(weft_jit **)(void *)(ended + 2);
    (void)n_in, (void)n_out;
    ended[0] = weft_jit_end(region);
    weft_jit_begin(region); /* ends with the call */
    out[0] = weft_neg(in[0]);
    return WEFT_OK;
}

/* Short plain regions borrow what the last ones did, until they end: it may be freed meanwhile, or its thread end. */
typedef struct region_loans {
    weft_jit *j;
    weft_tensor w[2];
    int frees; /* 1: the region w[1], 2: another thread does; 3: the region is left open */
} region_loans;

static void *runs_regions(void *arg)
{
    region_loans *l = arg;
    wf_ctx *c = wf_ctx_get();
    bool lent = false;
    for (int i = 0; i < 2; i++) {
        l->w[i] = weft_keep(weft_full(weft_shape(3), i + 1, WEFT_F32));
    }
    for (int i = 0; i < 4 * CALLS; i++) {
        const weft_scope s = weft_scope_begin();
        const bool last = i == 4 * CALLS - 1;
        if (i == CALLS) { /* its graph is known */
            force_plain(l->j);
            atomic_store(&l->j->region.is_short, true);
        }
        OK(weft_jit_begin(l->j));
        lent = wf_lends_some(c) && wf_is_lent(c, wf_slot_at(c, l->w[0].slot)) &&
               wf_is_lent(c, wf_slot_at(c, l->w[1].slot));
        weft_tensor y = weft_add(l->w[0], l->w[1]);
        if (last && (l->frees == 1 || l->frees == 2)) {
            free_here_or_there(l->w[1], l->frees == 2);
            check_error("a freed tensor", weft_neg(l->w[1]), WEFT_EHANDLE, "dead");
        }
        OK(last && l->frees == 3 ? WEFT_OK : weft_jit_end(l->j));
        cr_assert_eq(weft_item_f64(weft_max(y)), 3);
        cr_assert_eq(weft_scope_end(s), WEFT_OK);
    }
    cr_assert(lent, "way %d", l->frees);
    cr_assert_eq(wf_lends_some(c), l->frees == 3);
    return arg;
}

Test(eager, tensors_that_regions_borrow)
{
    for (int frees = 0; frees <= 3; frees++) {
        region_loans l = {.j = weft_jit_trace(NULL), .frees = frees};
        pthread_t thread;
        void *done = NULL;
        cr_assert_eq(pthread_create(&thread, NULL, runs_regions, &l), 0);
        cr_assert_eq(pthread_join(thread, &done), 0);
        cr_assert_eq(done, &l);
        cr_assert(!wf_lends_some(wf_ctx_at(l.w[0].context)), "what is left to it stays for ever");
        OK(weft_free(l.w[0]));
        cr_assert_eq(weft_free(l.w[1]), frees == 1 || frees == 2 ? WEFT_EHANDLE : WEFT_OK);
        cr_assert_eq(weft_leak_report(NULL), 0, "way %d", frees);
        weft_jit_free(l.j);
    }
}

/* Random lifetimes: what calls and regions borrow is freed, replaced or handed to another thread inside them, calls and regions nest, scopes
 * stay open. Values and ends are those of a model. */
typedef struct roaming {
    weft_jit *j, *inner, *region;
    weft_tensor w[4], leaf; /* a hook of the leaf's is where things happen, too */
    double v[4], want;      /* of w; of the argument, and then of the result */
    uint64_t random;
    int depth;
    int64_t borrowed; /* calls and regions in which something was */
} roaming;

static int roll(roaming *r, int n)
{
    r->random = r->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int)((r->random >> 33) % (uint64_t)n);
}

static weft_tensor three(double v)
{
    return weft_full(weft_shape(3), v, WEFT_F32);
}

static void something_happens(roaming *r, weft_tensor x)
{
    const int i = roll(r, 4), what = roll(r, 30);
    const weft_tensor old = r->w[i];
    weft_tensor y;
    if (what < 2) {
        free_here_or_there(old, what == 1);
        check_error("a freed tensor", weft_neg(old), WEFT_EHANDLE, "dead");
        r->w[i] = weft_keep(three(r->v[i] += 1));
    } else if (what == 2) {
        OK(weft_assign(&r->w[i], three(r->v[i] += 2)));
    } else if (what == 3) {
        OK(weft_add_(r->w[i], weft_f(1)));
        r->v[i] += 1;
    } else if (what == 4 && r->depth < 3) {
        OK(weft_jit_call(r->inner, &old, 1, &y, 1));
    } else if (what == 5) {
        OK(weft_jit_begin(r->region));
        y = weft_mul(x, r->w[i]);
        OK(weft_jit_end(r->region));
    } else if (what == 6) {
        cr_assert_neq(weft_scope_begin().depth, 0);
    } else if (what == 7) {
        y = weft_keep(weft_neg(old));
        OK(weft_free(y));
    } else if (what == 8) {
        r->w[i] = weft_keep(weft_clone(old));
        OK(weft_free(old));
    } else if (what == 9 && weft_is_grad_enabled()) {
        r->depth++;
        OK(weft_backward(weft_sum(weft_mul(r->leaf, old))));
        OK(weft_set_grad(r->leaf, WEFT_NONE));
        r->depth--;
    }
}

static weft_tensor happens_in_a_hook(void *self, weft_tensor grad)
{
    something_happens(self, grad);
    return WEFT_NONE;
}

static weft_tensor roam(roaming *r, weft_tensor x, double of)
{
    const int a = roll(r, 8) ? 0 : roll(r, 4), b = roll(r, 8) ? 1 : roll(r, 4);
    const double first = of + r->v[a];
    wf_ctx *c = wf_ctx_get();
    weft_tensor y = weft_add(x, r->w[a]);
    r->borrowed += wf_lends_some(c) && !c->recorder;
    r->depth++;
    something_happens(r, y);
    y = weft_add(y, r->w[b]);
    r->want = first + r->v[b];
    if (roll(r, 3) == 0) {
        something_happens(r, y);
    }
    r->depth--;
    return y;
}

FN(roams)
{
    roaming *r = self;
    (void)n_in, (void)n_out;
    out[0] = roam(r, in[0], r->want);
    return WEFT_OK;
}

FN(roams_inside)
{
    roaming *r = self;
    const double want = r->want;
    (void)n_in, (void)n_out;
    out[0] = weft_neg(in[0]);
    something_happens(r, out[0]);
    r->want = want;
    return WEFT_OK;
}

Test(eager, random_lifetimes)
{
    for (uint64_t seed = 1; seed <= effort_option("WEFT_FUZZ_ROAMS", effort_of(12)); seed++) {
        roaming r = {.random = seed + effort_option("WEFT_FUZZ_SEED", 0)};
        r.j = weft_jit_trace(roams, &r);
        r.inner = weft_jit_trace(roams_inside, &r);
        r.region = weft_jit_trace(NULL);
        for (int i = 0; i < 4; i++) {
            r.w[i] = weft_keep(three(r.v[i] = i));
        }
        r.leaf = weft_keep(three(2));
        OK(weft_requires_grad_(r.leaf, true));
        cr_assert_neq(weft_register_hook(r.leaf, happens_in_a_hook, &r, NULL), 0);
        for (int i = 0; i < 20 * CALLS; i++) {
            const weft_scope s = weft_scope_begin();
            const int k = roll(&r, 4);
            const bool kept = roll(&r, 2);
            weft_tensor x = kept ? r.w[k] : three(k), y;
            const double of = kept ? r.v[k] : k;
            if (i % CALLS == CALLS / 2) {
                force_plain(r.region);
                atomic_store(&r.region->region.is_short, true);
            }
            if (roll(&r, 3)) {
                r.want = of;
                OK(weft_jit_call(r.j, &x, 1, &y, 1));
            } else {
                OK(weft_jit_begin(r.region));
                y = roam(&r, x, of);
                OK(weft_jit_end(r.region));
            }
            cr_assert(!wf_lends_some(wf_ctx_get()));
            cr_assert_eq(weft_item_f64(weft_min(y)), r.want, "seed %d, call %d", (int)seed, i);
            cr_assert_eq(weft_item_f64(weft_max(y)), r.want);
            for (int n = 0; n < 4; n++) {
                cr_assert_eq(weft_item_f64(weft_max(r.w[n])), r.v[n]);
            }
            OK(weft_scope_end(s));
        }
        cr_assert_gt(r.borrowed, CALLS);
        for (int i = 0; i < 4; i++) {
            OK(weft_free(r.w[i]));
        }
        OK(weft_free(r.leaf));
        cr_assert_eq(weft_leak_report(NULL), 0);
        weft_jit_free(r.j);
        weft_jit_free(r.inner);
        weft_jit_free(r.region);
    }
}

/* Errors of kernels, calls inside, a thread that ends in one. */
static void *leaves_one(void *arg)
{
    weft_jit *j = arg;
    return weft_jit_begin(j) == WEFT_OK ? j : NULL;
}

Test(eager, corners_of_plain_regions)
{
    struct {
        weft_status ended[2];
        weft_jit *region;
    } self = {.region = weft_jit_trace(NULL)};
    weft_jit *j = self.region, *call = weft_jit_trace(ends_outer, &self);
    weft_tensor x = weft_arange(0, 3, 1, WEFT_F32), y;
    for (int i = 0; i < 3 * CALLS; i++) {
        weft_scope s = weft_scope_begin();
        force_plain(j);
        OK(weft_jit_begin(j));
        OK(weft_jit_call(call, &x, 1, &y, 1));
        cr_assert_eq(self.ended[0], WEFT_EINVALID);
        cr_assert_null(weft_table_new(.jit = call, .inputs = &x, .n_inputs = 1));
        OK(weft_jit_end(j));
        cr_assert_eq(weft_jit_end(j), WEFT_EINVALID);
        OK(weft_jit_call(call, &x, 1, &y, 1)); /* leaves one open, which is nobody's afterwards */
        cr_assert_eq(weft_jit_end(j), WEFT_EINVALID);
        cr_assert_eq(weft_item_f64(weft_min(y)), -2);
        weft_scope_end(s);
    }
    force_plain(j);
    const int64_t bad = 9;
    weft_tensor index = weft_from_data(&bad, weft_shape(1), WEFT_I64);
    OK(weft_jit_begin(j));
    y = weft_index_select(x, 0, index);
    cr_assert_eq(weft_jit_end(j), WEFT_EINDEX);
    check_error("its result", y, WEFT_EINDEX, "9");
    const int64_t eager = stats_of(j).eager;
    for (int i = 0; i < 3; i++) {
        OK(weft_jit_begin(j));
        y = weft_neg(x);
        OK(weft_jit_end(j));
    }
    cr_assert_eq(stats_of(j).eager, eager, "recorded from then on");
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        void *began = NULL;
        force_plain(j);
        cr_assert_eq(pthread_create(&thread, NULL, leaves_one, j), 0);
        cr_assert_eq(pthread_join(thread, &began), 0);
        cr_assert_eq(began, j);
    }
    cr_assert_eq(weft_jit_end(j), WEFT_EINVALID);
    weft_jit_free(j);
    weft_jit_free(call);
}

FN(leaves_two)
{
    weft_jit *const *regions = self;
    (void)n_in, (void)n_out;
    OK(weft_jit_begin(regions[0]));
    OK(weft_jit_begin(regions[1]));
    out[0] = weft_neg(in[0]);
    return WEFT_OK;
}

static void end_in_order(weft_jit *const *regions, weft_jit *call, weft_tensor x)
{
    enum { MANY = 20 /* more than are noted at first */ };
    weft_tensor y;
    char told[200];
    for (int i = 0; i < MANY; i++) {
        OK(weft_jit_begin(regions[i % 3 == 1]));
    }
    OK(weft_jit_call(call, &x, 1, &y, 1)); /* its regions, which it leaves open, are not these */
    for (int i = MANY; i-- > 0;) {
        weft_jit *last = regions[i % 3 == 1], *other = regions[i % 3 != 1];
        snprintf(told, sizeof told, "a region of '%s' began last, not one of '%s'", last->name,
                 other->name);
        cr_assert_eq(weft_jit_end(other), WEFT_EINVALID);
        cr_assert(strstr(weft_last_error(), told), "%s: %s", told, weft_last_error());
        OK(weft_jit_end(last));
    }
    cr_assert_eq(weft_jit_end(regions[0]), WEFT_EINVALID);
    cr_assert_eq(weft_item_f64(weft_max(y)), -3);
}

/* Another than the last one is told at once, and ends nothing. */
Test(eager, regions_end_in_the_reverse_order)
{
    weft_jit *regions[2] = {weft_jit_trace(NULL, .name = "outer"),
                            weft_jit_trace(NULL, .name = "inner")};
    weft_jit *calls[2] = {weft_jit_trace(leaves_two, regions),
                          weft_jit_trace(leaves_two, regions, .always_record = true)};
    weft_tensor x = weft_full(weft_shape(2), 3, WEFT_F32), y;
    for (int i = 0; i < 2 * CALLS; i++) {
        if (i == CALLS) {
            force_plain(regions[0]);
        }
        end_in_order(regions, calls[i % 2], x);
        OK(weft_jit_call(calls[i % 2], &x, 1, &y, 1));
        cr_assert_eq(weft_item_f64(weft_max(y)), -3);
        cr_assert_eq(weft_jit_end(regions[1]), WEFT_EINVALID);
        cr_assert_eq(weft_jit_end(regions[0]), WEFT_EINVALID);
    }
    for (int i = 0; i < 2; i++) {
        weft_jit_free(calls[i]);
        weft_jit_free(regions[i]);
    }
}

/* -- planted costs --------------------------------------------------------------------------------------------------- */

/* us that a call takes, recorded and plain: nothing else decides. */
typedef struct cost {
    int us[2];
    int64_t plain; /* calls */
} cost;

FN(costs)
{
    cost *k = self;
    (void)n_in, (void)n_out;
    const bool plain = !wf_ctx_get()->recorder;
    k->plain += plain;
    take_us(k->us[plain]);
    const weft_tensor left = weft_neg(in[0]);
    out[0] = weft_sub(in[0], left);
    return WEFT_OK;
}

static void call_often(weft_jit *j, int times)
{
    for (int i = 0; i < times; i++) {
        const weft_scope s = weft_scope_begin();
        weft_tensor x = weft_full(weft_shape(3), i, WEFT_F32), y;
        OK(weft_jit_call(j, &x, 1, &y, 1));
        cr_assert_eq(weft_item_f64(weft_max(y)), 2.0 * i);
        weft_scope_end(s);
    }
}

static bool runs_plainly(cost *k, weft_jit *j)
{
    const int64_t before = k->plain;
    call_often(j, 1);
    return k->plain > before;
}

/* The cheaper way is taken, and another one when costs have changed; every call is counted. */
Test(eager, the_cheaper_way_by_planted_costs)
{
    cost k = {{0, 500}, 0};
    weft_jit *j = weft_jit_trace(costs, &k);
    call_often(j, CALLS);
    cr_assert(!runs_plainly(&k, j) && k.plain == PLAIN, "%d plain calls", (int)k.plain);
    k = (cost){{200, 0}, k.plain};
    call_often(j, 1000 + TRIAL); /* the second trial is in these */
    cr_assert(runs_plainly(&k, j));
    call_often(j, 500); /* without a look, most of them */
    cr_assert(runs_plainly(&k, j));
    cr_assert_eq(stats_of(j).eager, k.plain);
    weft_jit_free(j);
}

/* Calls that are to be frozen and cannot be, as the function reads a value; none are from `until` on. */
typedef struct reader {
    cost costs;
    int64_t ran, until;
} reader;

FN(reads)
{
    reader *k = self;
    k->ran++;
    const weft_status s = costs(&k->costs, in, n_in, out, n_out);
    if (k->ran < k->until) {
        cr_assert_eq(weft_item_f64(weft_min(weft_neg(out[0]))),
                     -2 * weft_item_f64(weft_max(in[0])));
    }
    return s;
}

/* A trace that freezes calls chooses like others as long as none can be frozen, and is back to replays when they can. */
Test(eager, calls_that_are_never_frozen)
{
    reader k = {.costs = {{200, 10}, 0}, .until = INT64_MAX};
    weft_jit *j = weft_jit_trace(reads, &k, .frozen = true);
    call_often(j, CALLS);
    cr_assert(runs_plainly(&k.costs, j));
    cr_assert_eq(stats_of(j).frozen, 0);
    cr_assert_eq(stats_of(j).eager, k.costs.plain);
    k.until = 0;
    call_often(j, 1000 + TRIAL); /* the second trial is in these: two of its recordings agree */
    const int64_t ran = k.ran;
    call_often(j, 200); /* those left without a look, replays, and a few of them checked */
    cr_assert_gt(stats_of(j).frozen, 50);
    cr_assert_lt(k.ran, ran + 150);
    cr_assert_eq(stats_of(j).eager, k.costs.plain);
    weft_jit_free(j);

    k = (reader){.costs = {{200, 0}, 0}};
    j = weft_jit_trace(reads, &k, .frozen = true);
    call_often(j, CALLS);
    cr_assert_eq(stats_of(j).eager, PLAIN); /* a replay costs nothing of what was planted */
    cr_assert_gt(stats_of(j).frozen, CALLS / 2);
    weft_jit_free(j);
}

/* What is replayed takes longer than the function, by the system's clock: an array that only the recording sums. */
typedef struct summer {
    weft_tensor large;
    int64_t ran;
} summer;

FN(sums_if_recorded)
{
    summer *k = self;
    (void)n_in, (void)n_out;
    k->ran++;
    out[0] = weft_add(in[0], in[0]);
    if (wf_ctx_get()->recorder) {
        out[0] = weft_add(out[0], weft_mul(weft_sum(k->large), weft_f(0)));
    }
    return weft_error_status(out[0]);
}

/* A frozen call is a way like another: where it is the slower one the function is run, and every call is counted. */
Test(eager, replays_that_are_slower)
{
    wf_plan_plant_clock(NULL);
    summer k = {weft_keep(weft_zeros(weft_shape(1 << 17), WEFT_F32)), 0};
    weft_jit *j = weft_jit_trace(sums_if_recorded, &k, .frozen = true);
    call_often(j, CALLS);
    cr_assert_gt(stats_of(j).frozen, WARM - 4);
    const int64_t ran = k.ran, frozen = stats_of(j).frozen;
    call_often(j, 20);
    cr_assert_eq(k.ran, ran + 20);
    cr_assert_eq(stats_of(j).frozen, frozen);
    cr_assert_eq(stats_of(j).calls + stats_of(j).frozen + stats_of(j).eager, CALLS + 20);
    weft_jit_free(j);
    weft_free(k.large);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* One op, for which a plan does what the function does: it takes as long as the costs say. */
FN(alone)
{
    cost *k = self;
    (void)n_in, (void)n_out;
    const bool plain = !wf_ctx_get()->recorder;
    k->plain += plain;
    take_us(k->us[plain]);
    out[0] = weft_add(in[0], in[0]);
    return WEFT_OK;
}

/* -- many kinds by turns --------------------------------------------------------------------------------------------- */

static void call_in_turns(weft_jit *j, const weft_tensor *x, int n, int rounds)
{
    for (int i = 0; i < rounds * n; i++) {
        const weft_scope s = weft_scope_begin();
        weft_tensor y;
        OK(weft_jit_call(j, &x[i % n], 1, &y, 1));
        cr_assert_eq(weft_dim(y, 0), weft_dim(x[i % n], 0));
        weft_scope_end(s);
    }
}

static void make_kinds(weft_tensor *x, int n, bool kept)
{
    for (int i = 0; i < n; i++) {
        const weft_tensor t = weft_full(weft_shape(1 + i, 2), i, WEFT_F32);
        x[i] = kept ? weft_keep(t) : t;
    }
}

/* What is short is a matter of time, and on a slow machine, or with checks built in, of chance: here all are. How many are decided. */
static int call_all_short(const weft_jit *j)
{
    int decided = 0;
    for (int k = 0; k < WAY_SETS; k++) {
        wf_way_set *set = atomic_load(&j->ways[k]);
        for (int i = 0; i < WAY_LANES && set; i++) {
            if (atomic_load(&set->key[i])) {
                atomic_store(&set->way[i].is_short, true);
                decided++;
            }
        }
    }
    return decided;
}

/* However many kinds of calls come by turns, each is decided, and soon none needs a look. */
Test(eager, many_kinds_by_turns)
{
    enum { KINDS = 64 };
    for (int kept = 0; kept < 2; kept++) {
        for (int frozen = 0; frozen < 2; frozen++) {
            const weft_scope s = weft_scope_begin();
            cost k = {{100, 0}, 0};
            summer q = {weft_keep(weft_zeros(weft_shape(1 << 17), WEFT_F32)), 0};
            weft_tensor x[KINDS];
            weft_jit *j = frozen ? weft_jit_trace(sums_if_recorded, &q, .frozen = true)
                                 : weft_jit_trace(alone, &k);
            wf_plan_plant_clock(frozen ? NULL : planted_clock);
            make_kinds(x, KINDS, kept);
            call_in_turns(j, x, KINDS, WARM + TRIAL + 4);
            const int64_t recorded = stats_of(j).calls + stats_of(j).frozen, plain = k.plain;
            cr_assert_lt(recorded, KINDS * WARM * 2 / 3, "later kinds warm up for less long");
            cr_assert_eq(call_all_short(j), KINDS);
            call_in_turns(j, x, KINDS, 8);
            const int64_t looks = atomic_load(&j->looks);
            call_in_turns(j, x, KINDS, 8);
            cr_assert_eq(stats_of(j).calls + stats_of(j).frozen, recorded);
            cr_assert(frozen || k.plain == plain + KINDS * 16);
            cr_assert_lt(atomic_load(&j->looks), looks + KINDS * 8 / 64);
            weft_jit_free(j);
            for (int i = 0; i < KINDS && kept; i++) {
                weft_free(x[i]);
            }
            weft_free(q.large);
            weft_scope_end(s);
        }
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* A kind that is better recorded is, among others that run plainly without a look. */
FN(costs_by_extent)
{
    cost *k = (cost *)self + (weft_dim(in[0], 0) > 4);
    return costs(k, in, n_in, out, n_out);
}

Test(eager, kinds_of_both_ways_by_turns)
{
    enum { KINDS = 8, EACH_WAY = 4 };
    cost k[2] = {{{150, 0}, 0}, {{0, 150}, 0}};
    weft_tensor x[KINDS];
    weft_jit *j = weft_jit_trace(costs_by_extent, k);
    make_kinds(x, KINDS, true);
    call_in_turns(j, x, KINDS, WARM + TRIAL + 4);
    const int64_t plain[2] = {k[0].plain, k[1].plain}, calls = stats_of(j).calls;
    call_in_turns(j, x, KINDS, 200);
    cr_assert_eq(k[0].plain, plain[0] + EACH_WAY * 200);
    cr_assert_eq(k[1].plain, plain[1]);
    cr_assert_eq(stats_of(j).calls, calls + EACH_WAY * 200);
    weft_jit_free(j);
    for (int i = 0; i < KINDS; i++) {
        weft_free(x[i]);
    }
}

/* More kinds than plans: those that do not fit run the function, the others go on, and it is said. */
Test(eager, plans_that_are_built_again)
{
    enum { KINDS = 24, PLANS = 8 };
    weft_tensor x[KINDS];
    make_kinds(x, KINDS, true);
    for (int always = 0; always < 2; always++) {
        cost k = {{100, 0}, 0};
        weft_jit *j = weft_jit_trace(costs, &k, .max_plans = PLANS, .always_record = always);
        call_in_turns(j, x, KINDS, 1);
        cr_assert(!has_reason(j, "plans: "), "none has been built again");
        call_in_turns(j, x, KINDS, 40); /* those that fit warm up */
        cr_assert(has_reason(j, "max_plans = 8"));
        const weft_jit_stats s = stats_of(j);
        call_in_turns(j, x, KINDS, 10);
        if (!always) {
            cr_assert_geq(stats_of(j).eager, s.eager + 10 * (KINDS - PLANS - 1));
            cr_assert_leq(stats_of(j).plans, s.plans + 10);
        } else {
            cr_assert_eq(stats_of(j).eager, 0);
            cr_assert_geq(stats_of(j).hits, s.hits + 10 * (PLANS - 1), "old plans are found");
        }
        weft_jit_free(j);
    }
    for (int i = 0; i < KINDS; i++) {
        weft_free(x[i]);
    }
}

/* Once plans have been dropped, a kind that comes once or twice, or again when it is long forgotten, has none built. */
Test(eager, kinds_that_come_once)
{
    enum { KINDS = 3000, PLANS = 8 };
    cost k = {{0, 0}, 0};
    weft_jit *j = weft_jit_trace(alone, &k, .max_plans = PLANS);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KINDS; i++) {
            const weft_scope s = weft_scope_begin();
            weft_tensor x = weft_full(weft_shape(1 + i), i, WEFT_F32), y;
            OK(weft_jit_call(j, &x, 1, &y, 1));
            cr_assert(weft_dim(y, 0) == 1 + i && weft_item_f64(weft_max(y)) == 2 * i);
            weft_scope_end(s);
        }
    }
    cr_assert_eq(stats_of(j).calls, PLANS + 1, "%d", (int)stats_of(j).calls);
    cr_assert_eq(stats_of(j).eager, 2 * KINDS - PLANS - 1);
    weft_jit_free(j);
}

/* Each kind of call is frozen for itself, as many as max_frozen; those that are go on, however many others come by. */
Test(eager, many_kinds_are_frozen)
{
    enum { KINDS = 40, FEW = 10 };
    weft_tensor x[KINDS];
    make_kinds(x, KINDS, true);
    for (int few = 0; few < 2; few++) {
        cost k = {{0, 0}, 0};
        weft_jit *j = weft_jit_trace(costs, &k, .frozen = true, .always_record = true,
                                     .verify_every = -1, .max_frozen = few ? FEW : 0);
        call_in_turns(j, x, KINDS, 2);
        cr_assert_eq(stats_of(j).frozen, 0);
        call_in_turns(j, x, KINDS, 5);
        cr_assert_eq(stats_of(j).frozen, 5 * (few ? FEW : KINDS));
        cr_assert_eq(has_reason(j, "max_frozen"), few);
        weft_jit_free(j);
    }
    for (int i = 0; i < KINDS; i++) {
        weft_free(x[i]);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* Those that are no longer called make room for others. */
Test(eager, kinds_that_come_later_are_frozen)
{
    enum { KINDS = 16, FEW = 8 };
    weft_tensor x[KINDS];
    cost k = {{0, 0}, 0};
    make_kinds(x, KINDS, true);
    weft_jit *j = weft_jit_trace(costs, &k, .frozen = true, .always_record = true,
                                 .verify_every = -1, .max_frozen = FEW);
    call_in_turns(j, x, FEW, 4);
    cr_assert_eq(stats_of(j).frozen, 2 * FEW);
    call_in_turns(j, x + FEW, KINDS - FEW, 200);
    const int64_t frozen = stats_of(j).frozen;
    call_in_turns(j, x + FEW, KINDS - FEW, 3);
    cr_assert_eq(stats_of(j).frozen, frozen + 3 * (KINDS - FEW), "%s", reasons(j));
    weft_jit_free(j);
    for (int i = 0; i < KINDS; i++) {
        weft_free(x[i]);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* More kinds by turns than recordings wait for their next one: each is frozen in the end. */
Test(eager, more_kinds_than_wait_are_frozen)
{
    enum { KINDS = MAX_WAITING + 36 };
    weft_tensor x[KINDS];
    cost k = {{0, 0}, 0};
    make_kinds(x, KINDS, true);
    weft_jit *j = weft_jit_trace(costs, &k, .frozen = true, .always_record = true,
                                 .verify_every = -1, .max_frozen = KINDS);
    call_in_turns(j, x, KINDS, 20);
    const int64_t frozen = stats_of(j).frozen;
    call_in_turns(j, x, KINDS, 2);
    cr_assert_eq(stats_of(j).frozen, frozen + 2 * KINDS, "%s", reasons(j));
    weft_jit_free(j);
    for (int i = 0; i < KINDS; i++) {
        weft_free(x[i]);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

typedef struct scaled {
    double factor;
    weft_status returns;
} scaled;

FN(times_a_number)
{
    const scaled *k = self;
    (void)n_in, (void)n_out;
    out[0] = weft_add(weft_mul(in[0], weft_f(k->factor)), weft_f(1));
    return k->returns;
}

/* The plan of a recording that waits is dropped, and built again by calls that are no recordings to be frozen, as they fail: the
 * numbers that the cache then has are theirs, and the waiting one agrees with nobody. */
Test(eager, numbers_that_went_with_their_plan)
{
    scaled k = {1, WEFT_OK};
    weft_tensor x[4], y;
    make_kinds(x, 4, true);
    OK(weft_fill_(x[0], 1));
    weft_jit *j = weft_jit_trace(times_a_number, &k, .frozen = true, .always_record = true,
                                 .verify_every = -1, .max_plans = 1);
    for (int i = 0; i < 4; i++) {
        OK(weft_jit_call(j, &x[i], 1, &y, 1));
    }
    k = (scaled){2, WEFT_EINVALID};
    for (int i = 0; i < 12; i++) { /* until the plan stays */
        cr_assert_eq(weft_jit_call(j, &x[0], 1, &y, 1), WEFT_EINVALID);
    }
    weft_clear_error();
    for (int i = 2; i < 8; i++) {
        k = (scaled){i, WEFT_OK};
        OK(weft_jit_call(j, &x[0], 1, &y, 1));
        cr_assert_eq(weft_item_f64(weft_max(y)), i + 1);
    }
    cr_assert_eq(stats_of(j).frozen, 0);
    weft_jit_free(j);
    for (int i = 0; i < 4; i++) {
        weft_free(x[i]);
    }
}

/* Recording that saves nothing need not lose clearly: 1.3 % of a call are enough. */
Test(eager, a_plan_that_saves_nothing)
{
    cost k = {{600, 592}, 0};
    weft_jit *j = weft_jit_trace(alone, &k);
    call_often(j, CALLS);
    cr_assert(runs_plainly(&k, j));
    weft_jit_free(j);
}

/* A call of milliseconds is tried, too: what is slower is called twice, what is not is kept. */
Test(eager, long_calls_by_planted_costs)
{
    cost k = {{0, 0}, 0}, q = k; /* while warming up */
    weft_jit *slower = weft_jit_trace(costs, &k), *faster = weft_jit_trace(costs, &q);
    call_often(slower, WARM);
    call_often(faster, WARM);
    k = (cost){{2000, 200000}, 0};
    q = (cost){{20000, 100}, 0};
    call_often(slower, 40);
    cr_assert(!runs_plainly(&k, slower) && k.plain == 2, "%d plain calls", (int)k.plain);
    call_often(faster, 40);
    cr_assert(runs_plainly(&q, faster) && q.plain > 20, "%d plain calls", (int)q.plain);
    weft_jit_free(slower);
    weft_jit_free(faster);
}

/* The first plain call of a trial takes FIRST us: it waits for memory that nobody has had for long. */
typedef struct faulting {
    cost k;
    int64_t first;
    bool was_recorded;
} faulting;

FN(waits_for_pages)
{
    faulting *w = self;
    const bool recorded = wf_ctx_get()->recorder != NULL;
    take_us(!recorded && w->was_recorded ? w->first : 0);
    w->was_recorded = recorded;
    return costs(&w->k, in, n_in, out, n_out);
}

/* Neither way is pinned by a first call that has had to wait; what that lost is paid for before the next trial. */
Test(eager, long_calls_whose_first_one_waits)
{
    enum { FIRST = 500000 };
    faulting quick = {{{0, 0}, 0}, 0, false}, slow = quick;
    weft_jit *a = weft_jit_trace(waits_for_pages, &quick),
             *b = weft_jit_trace(waits_for_pages, &slow);
    call_often(a, WARM);
    call_often(b, WARM);
    quick = (faulting){{{20000, 12000}, 0}, FIRST, true};
    slow = (faulting){{{20000, 24000}, 0}, FIRST, true};
    call_often(a, 40);
    cr_assert(runs_plainly(&quick.k, a), "%d plain calls", (int)quick.k.plain);
    call_often(b, 40);
    cr_assert(!runs_plainly(&slow.k, b) && slow.k.plain == 2, "%d plain calls", (int)slow.k.plain);
    call_often(b, 1000); /* 2 % of the time: 1200 calls pay for the first and the second */
    cr_assert_eq(slow.k.plain, 2);
    call_often(b, 300);
    cr_assert_eq(slow.k.plain, 4);
    weft_jit_free(a);
    weft_jit_free(b);
}

/* -- calls without a look ----------------------------------------------------------------------------------------- */

/* What a call does once its kind is known to run plainly: calls of `fn` that take longer while they are recorded. */
typedef struct act {
    weft_jit_fn fn;
    void *self;
} act;

FN(acts)
{
    const act *a = self;
    if (wf_ctx_get()->recorder) {
        take_us(100);
    }
    return a->fn(a->self, in, n_in, out, n_out);
}

/* A trace of it whose calls with x run plainly, most of them without a look. */
static weft_jit *plain_trace(act *a, const weft_tensor *in, int n_in, int n_out)
{
    weft_jit *j = weft_jit_trace(acts, a);
    weft_tensor y[3];
    for (int i = 0; i < WARM + TRIAL + 20 || (i < 3000 && stats_of(j).eager <= PLAIN + 15); i++) {
        const weft_scope s = weft_scope_begin();
        OK(weft_jit_call(j, in, n_in, y, n_out));
        weft_scope_end(s);
    }
    cr_assert_gt(stats_of(j).eager, PLAIN + 15);
    return j;
}

FN(many)
{
    const weft_scope s = weft_scope_begin(); /* left open */
    weft_tensor *left = self;
    (void)n_in, (void)n_out, (void)s;
    left[0] = weft_neg(in[0]);
    out[0] = weft_add(in[0], in[0]);
    left[1] = weft_exp(in[0]);
    return WEFT_OK;
}

/* Temporaries, scopes left open, a caller's scope that is empty or not, one array for arguments and results. */
Test(eager, scopes_without_a_look)
{
    weft_tensor left[2];
    act fns[] = {{doubles, left}, {many, left}};
    for (size_t k = 0; k < sizeof fns / sizeof *fns; k++) {
        for (int kept = 0; kept < 2; kept++) {
            const weft_tensor ones = weft_ones(weft_shape(3), WEFT_F32);
            const weft_tensor x = kept ? weft_keep(ones) : ones;
            weft_jit *j = plain_trace(&fns[k], &x, 1, 1);
            const int64_t recorded = stats_of(j).calls;
            for (int i = 0; i < 40; i++) {
                const weft_scope s = weft_scope_begin();
                const weft_tensor before = i % 2 ? weft_zeros(weft_shape(1), WEFT_F32) : WEFT_NONE;
                weft_tensor y = x;
                OK(weft_jit_call(j, &y, 1, &y, 1));
                cr_assert_eq(weft_item_f64(weft_max(y)), 2);
                cr_assert_neq(weft_error_status(weft_exp(left[0])), WEFT_OK, "call %d", i);
                cr_assert(i % 2 == 0 || weft_ok(before));
                if (i % 2) { /* out of the scope in either order */
                    OK(weft_free(i % 4 == 1 ? y : before));
                    OK(weft_free(i % 4 == 1 ? before : y));
                    cr_assert_neq(weft_error_status(weft_exp(y)), WEFT_OK);
                }
                OK(weft_scope_end(s));
                cr_assert(!weft_ok(y));
            }
            cr_assert_eq(stats_of(j).calls, recorded);
            weft_jit_free(j);
            OK(weft_free(x));
        }
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

static void opens_a_scope(void *arg)
{
    (void)arg;
    weft_scope_begin();
}

/* Leaves a tensor whose deleter opens a scope, and does not end it. */
FN(leaves_a_blob)
{
    static float value;
    (void)self, (void)n_in;
    weft_from_blob(&value, weft_shape(1), WEFT_F32, .deleter = opens_a_scope);
    out[0] = weft_add(in[0], in[0]);
    return WEFT_OK;
}

/* It ends with the scope of the call, of which the result comes out all the same. */
Test(eager, a_deleter_that_opens_a_scope)
{
    const weft_tensor x = weft_keep(weft_ones(weft_shape(3), WEFT_F32));
    act a = {leaves_a_blob, NULL};
    weft_jit *j = plain_trace(&a, &x, 1, 1);
    for (int i = 0; i < 40; i++) {
        const weft_scope s = weft_scope_begin();
        const weft_tensor before = weft_zeros(weft_shape(1), WEFT_F32);
        weft_tensor y;
        OK(weft_jit_call(j, &x, 1, &y, 1));
        const weft_tensor after = weft_neg(y);
        cr_assert_eq(weft_item_f64(weft_min(after)), -2);
        OK(weft_scope_end(s));
        cr_assert(!weft_ok(before) && !weft_ok(y) && !weft_ok(after));
        weft_clear_error();
    }
    weft_jit_free(j);
    OK(weft_free(x));
    cr_assert_eq(weft_leak_report(NULL), 0);
}

FN(frees)
{
    const bool *now = self;
    (void)n_in, (void)n_out;
    out[0] = weft_add(in[0], in[0]);
    if (*now) {
        OK(weft_free(in[0]));
        cr_assert_neq(weft_error_status(weft_add(in[0], in[0])), WEFT_OK);
        weft_clear_error();
    }
    return WEFT_OK;
}

/* An argument that the function frees is dead at once, in it and for the next call, whose error is the function's. */
Test(eager, an_argument_freed_without_a_look)
{
    for (int kept = 0; kept < 2; kept++) {
        bool now = false;
        act a = {frees, &now};
        weft_tensor x = weft_ones(weft_shape(3), WEFT_F32), y;
        x = kept ? weft_keep(x) : x;
        weft_jit *j = plain_trace(&a, &x, 1, 1);
        now = true;
        OK(weft_jit_call(j, &x, 1, &y, 1));
        cr_assert_eq(weft_item_f64(weft_max(y)), 2);
        const weft_scope s = weft_scope_begin(); /* which is empty once the argument has gone */
        weft_tensor only = weft_full(weft_shape(3), 3, WEFT_F32);
        OK(weft_jit_call(j, &only, 1, &only, 1));
        cr_assert_eq(weft_item_f64(weft_max(only)), 6);
        OK(weft_scope_end(s));
        now = false;
        OK(weft_jit_call(j, &x, 1, &y, 1));
        check_error("dead", y, WEFT_EHANDLE, "dead");
        x = weft_full(weft_shape(3), 4, WEFT_F32);
        OK(weft_jit_call(j, &x, 1, &y, 1));
        cr_assert_eq(weft_item_f64(weft_max(y)), 8);
        weft_jit_free(j);
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

static void check_call(weft_jit *j, weft_tensor x, double want)
{
    weft_tensor y;
    const weft_scope s = weft_scope_begin();
    OK(weft_jit_call(j, &x, 1, &y, 1));
    cr_assert_eq(weft_item_f64(weft_max(y)), want);
    OK(weft_scope_end(s));
}

/* More kept arguments by turns than a seat knows, once or twice in a row; one goes, and its place is another's. */
Test(eager, kept_arguments_by_turns_without_a_look)
{
    enum { ALL = 70 };
    weft_tensor x[ALL], y;
    act a = {doubles, NULL};
    for (int i = 0; i < ALL; i++) {
        x[i] = weft_keep(weft_full(weft_shape(3), i, WEFT_F32));
    }
    weft_jit *j = plain_trace(&a, x, 1, 1);
    const int64_t recorded = stats_of(j).calls;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < ALL; i++) {
            for (int again = 0; again <= round % 2; again++) {
                check_call(j, x[i], 2 * i);
            }
        }
        const weft_tensor gone = x[round];
        OK(weft_free(gone));
        x[round] = weft_keep(weft_full(weft_shape(3), round, WEFT_F32));
        const weft_scope s = weft_scope_begin();
        for (int again = 0; again < 2; again++) {
            weft_jit_call(j, &gone, 1, &y, 1);
            check_error("gone", y, WEFT_EHANDLE, "dead");
        }
        OK(weft_scope_end(s));
    }
    cr_assert_leq(stats_of(j).calls, recorded + 12); /* those of the dead, perhaps */
    weft_jit_free(j);
    for (int i = 0; i < ALL; i++) {
        OK(weft_free(x[i]));
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
}

FN(picks_one)
{
    out[0] = weft_neg(weft_index_select(in[0], 0, in[1]));
    return WEFT_OK;
}

FN(passes)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = in[0];
    return WEFT_OK;
}

FN(twice)
{
    act *a = self;
    weft_jit **j = a->self;
    weft_tensor y;
    (void)n_out;
    const weft_status s = *j ? weft_jit_call(*j, in, n_in, &y, 1) : WEFT_OK;
    out[0] = *j ? weft_add(y, in[0]) : weft_add(in[0], in[0]);
    return s;
}

/* An argument as the result, results that are none, a call inside a call, other arguments, kernels that fail. */
Test(eager, odd_calls_without_a_look)
{
    static const int64_t good[2] = {1, 0}, bad[2] = {1, 9};
    weft_tensor x = weft_keep(weft_ones(weft_shape(3), WEFT_F32)), y;
    act a = {passes, NULL};
    weft_jit *j = plain_trace(&a, &x, 1, 1), *inner = NULL;
    OK(weft_jit_call(j, &x, 1, &y, 1));
    cr_assert_eq(memcmp(&x, &y, sizeof x), 0);
    const int64_t recorded = stats_of(j).calls;
    weft_tensor wide = weft_ones(weft_shape(4), WEFT_F32);
    OK(weft_jit_call(j, &wide, 1, &y, 1));
    cr_assert_eq(stats_of(j).calls, recorded + 1, "another extent is another kind");
    weft_jit_free(j);

    a = (act){doubles, NULL};
    inner = plain_trace(&a, &x, 1, 1);
    act b = {twice, &(act){NULL, &inner}};
    j = plain_trace(&b, &x, 1, 1);
    const weft_scope s = weft_scope_begin();
    OK(weft_jit_call(j, &x, 1, &y, 1));
    cr_assert_eq(weft_item_f64(weft_max(y)), 3);
    weft_scope_end(s);
    weft_jit_free(j);
    weft_jit_free(inner);

    weft_tensor in[2] = {weft_ones(weft_shape(2, 3), WEFT_F32),
                         weft_from_data(good, weft_shape(2), WEFT_I64)};
    a = (act){picks_one, NULL};
    j = plain_trace(&a, in, 2, 1);
    const int64_t ran = stats_of(j).eager;
    in[1] = weft_from_data(bad, weft_shape(2), WEFT_I64);
    cr_assert_eq(weft_jit_call(j, in, 2, &y, 1), WEFT_EINDEX);
    check_error("call", y, WEFT_EINDEX, "9");
    cr_assert_eq(stats_of(j).eager, ran + 1);
    weft_jit_free(j);
    weft_free(x);
}

/* A replay that is checked when its plan has left the cache is what it was. */
Test(eager, a_check_without_the_plan)
{
    cost k = {{0, 0}, 0};
    weft_tensor x[2];
    make_kinds(x, 2, true);
    weft_jit *j = weft_jit_trace(alone, &k, .frozen = true, .always_record = true,
                                 .verify_every = 4, .max_plans = 1);
    for (int i = 0; i < 2; i++) {
        call_in_turns(j, &x[i], 1, 3);
    }
    call_in_turns(j, x, 2, 40);
    cr_assert_eq(stats_of(j).thawed, 0, "%s", reasons(j));
    cr_assert_eq(stats_of(j).verified, 20);
    cr_assert_eq(stats_of(j).calls, 4 + 20);
    weft_jit_free(j);
    weft_free(x[0]);
    weft_free(x[1]);
}

enum { THREADS = 4, EACH = 200 };
static _Atomic int wrong;

static void *work(void *arg)
{
    weft_jit *j = arg;
    for (int i = 0; i < EACH; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor x = weft_full(weft_shape(2 + i % 2, 3), i, WEFT_F32), y;
        float got[9] = {0};
        bool ok = weft_jit_call(j, &x, 1, &y, 1) == WEFT_OK &&
                  weft_to_array(y, got, weft_numel(y), WEFT_F32) == WEFT_OK;
        for (int k = 0; k < 3 * (2 + i % 2); k++) {
            ok = ok && got[k] == (float)(2 * i);
        }
        atomic_fetch_add(&wrong, !ok);
        weft_scope_end(s);
    }
    return NULL;
}

Test(eager, threads_share_the_choice)
{
    weft_jit *j = weft_jit_trace(doubles);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&t[i], NULL, work, j), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
    }
    cr_assert_eq(atomic_load(&wrong), 0);
    cr_assert_eq(stats_of(j).calls + stats_of(j).eager, THREADS * EACH);
    check_tried(j, 1);
    weft_jit_free(j);
}
