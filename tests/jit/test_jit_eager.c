/*
 * tests/jit/test_jit_eager.c -- traced functions that run themselves instead of recording: the same results, state, errors
 * and lifetimes whichever way a call goes. After WARM recorded calls of a kind a trial runs both ways, whatever is faster.
 *
 * ctest: threads
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/jit/corner_support.h"

enum { WARM = 64, TRIAL = 16, PLAIN = 8 /* calls of a trial */, CALLS = WARM + TRIAL + 40 };

/* The trial was made, or explained to be too long: nothing is tried of calls that take a millisecond, on a slow machine or with
 * checks built in. */
static void check_tried(weft_jit *j, int64_t trials)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    OK(weft_jit_explain(j, f));
    fclose(f);
    cr_assert(stats_of(j).eager >= trials * PLAIN || strstr(text, "too long to try"), "%s", text);
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
                                   {.frozen = true},
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

/* Part of another trace: recorded there. More kinds of calls than are told apart: the rest is recorded. */
Test(eager, kinds_of_calls)
{
    weft_tensor y;
    weft_jit *outer = weft_jit_trace(NULL), *j = weft_jit_trace(doubles);
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
