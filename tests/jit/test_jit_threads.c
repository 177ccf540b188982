/*
 * tests/jit/test_jit_threads.c -- traced calls on many threads at once: one trace shared by all, traces of their own,
 * captured tensors that all of them read, plans that are evicted while they run, what a plan keeps between its runs.
 *
 * ctest: threads exits
 */
#include <criterion/criterion.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "tests/support/support.h"

enum { THREADS = 16, CALLS = 24 };

typedef struct shared {
    weft_tensor w;
    weft_jit *record, *frozen;
    _Atomic int bad;
} shared;

typedef struct worker {
    shared *s;
    int id;
    pthread_t thread;
} worker;

/* Depth depends on the input's extent, so that plans come and go. */
static weft_status net(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const shared *s = self;
    (void)n_in, (void)n_out;
    weft_tensor h = in[0];
    for (int64_t i = 0; i < weft_dim(in[0], 0); i++) {
        h = weft_tanh(weft_matmul(weft_add(h, weft_f(0.25)), s->w));
    }
    out[0] = weft_sum(weft_softmax(h, -1), .axes = weft_axes(0));
    return WEFT_OK;
}

static bool same(weft_tensor a, weft_tensor b)
{
    float x[8], y[8];
    return weft_to_array(a, x, 8, WEFT_F32) == WEFT_OK &&
           weft_to_array(b, y, 8, WEFT_F32) == WEFT_OK && memcmp(x, y, sizeof x) == 0;
}

static void *work(void *arg)
{
    worker *k = arg;
    shared *s = k->s;
    weft_jit *own = weft_jit_trace(net, s, .max_plans = 1);
    for (int i = 0; i < CALLS; i++) {
        weft_scope sc = weft_scope_begin();
        int64_t rows =
            1 + (i / 4 + k->id) % 4; /* a call freezes after an equal one, on any thread */
        weft_tensor x =
            weft_reshape(weft_arange(0, (double)(8 * rows), 1, WEFT_F32), weft_shape(rows, 8));
        weft_tensor a, b, c, d;
        bool ok = net(s, &x, 1, &a, 1) == WEFT_OK;
        ok = ok && weft_jit_call(s->record, &x, 1, &b, 1) == WEFT_OK && same(a, b);
        ok = ok && weft_jit_call(s->frozen, &x, 1, &c, 1) == WEFT_OK && same(a, c);
        ok = ok && weft_jit_call(own, &x, 1, &d, 1) == WEFT_OK && same(a, d);
        atomic_fetch_add(&s->bad, !ok);
        weft_scope_end(sc);
    }
    weft_jit_free(own);
    return NULL;
}

Test(jit_threads, sixteen_threads_trace_run_and_free)
{
    shared s = {.w = WEFT_NONE};
    worker w[THREADS];
    s.w = weft_keep(weft_mul(weft_eye(8, 8, 0, WEFT_F32), weft_f(0.5)));
    s.record = weft_jit_trace(net, &s, .max_plans = 2);
    s.frozen = weft_jit_trace(net, &s, .frozen = true, .verify_every = 7);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (worker){.s = &s, .id = i};
        cr_assert_eq(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(w[i].thread, NULL);
    }
    cr_assert_eq(atomic_load(&s.bad), 0, "%s", weft_last_error());
    weft_jit_stats r, f;
    weft_jit_get_stats(s.record, &r);
    weft_jit_get_stats(s.frozen, &f);
    cr_assert_eq(r.calls + r.eager, THREADS * CALLS);
    cr_assert_eq(r.plans + r.hits, r.segments);
    cr_assert_eq(f.calls + f.frozen + f.eager, THREADS * CALLS);
    cr_assert_gt(f.frozen, 0);
    cr_assert_eq(f.thawed, 0);
    weft_jit_free(s.record);
    weft_jit_free(s.frozen);
    weft_free(s.w);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* Another thread lets go of a region's results while the region ends. */
enum { BATCH = 16, REGIONS = 4000 };

typedef struct dropped {
    weft_tensor t[BATCH];
    _Atomic int turn; /* even: the region's thread fills t, odd: the other one frees it */
} dropped;

/* A turn is short where both threads have a core. Where they share one, a wait without end would last as long as a time slice. */
static void wait_for_turn(dropped *d, int turn)
{
    for (int spins = 0; atomic_load(&d->turn) != turn; spins++)
        if (spins > 2000)
            sched_yield();
}

static void *drop(void *arg)
{
    dropped *d = arg;
    for (int k = 0; k < REGIONS; k++) {
        wait_for_turn(d, 2 * k + 1);
        for (_Atomic int pause = 0; pause < k * 37 % 4096; pause++) {
        }
        for (int i = 0; i < BATCH; i++) {
            weft_free(d->t[i]);
        }
        atomic_store(&d->turn, 2 * k + 2);
    }
    return NULL;
}

Test(jit_threads, results_are_freed_elsewhere_while_a_region_ends)
{
    dropped d = {.turn = 0};
    pthread_t thread;
    weft_jit *j = weft_jit_trace(NULL, .name = "dropped");
    weft_tensor x = weft_keep(weft_ones(weft_shape(4), WEFT_F32));
    cr_assert_eq(pthread_create(&thread, NULL, drop, &d), 0);
    int bad = 0;
    wf_alloc_stats before, after;
    wf_alloc_get_stats(&before);
    for (int k = 0; k < REGIONS; k++) {
        weft_scope sc = weft_scope_begin();
        bad += weft_jit_begin(j) != WEFT_OK;
        for (int i = 0; i < BATCH; i++) {
            d.t[i] = weft_keep(weft_add(x, x));
        }
        atomic_store(&d.turn, 2 * k + 1);
        bad += weft_jit_end(j) != WEFT_OK;
        wait_for_turn(&d, 2 * k + 2);
        weft_scope_end(sc);
    }
    pthread_join(thread, NULL);
    cr_assert_eq(bad, 0, "%s", weft_last_error());
    wf_alloc_get_stats(&after);
    cr_assert_lt(after.live_bytes, before.live_bytes + 4096);
    weft_free(x);
    weft_jit_free(j);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* Threads that end inside a region take what it recorded with them. */
static void *leaves(void *arg)
{
    weft_jit_begin(arg);
    weft_exp(weft_ones(weft_shape(4), WEFT_F32));
    return NULL;
}

Test(jit_threads, a_region_left_open_ends_with_its_thread)
{
    weft_jit *j = weft_jit_trace(NULL);
    size_t before = 0;
    for (int k = 0; k < 40; k++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, leaves, j), 0);
        pthread_join(thread, NULL);
        before = k < 4 ? mallinfo2().uordblks : before;
    }
    size_t after =
        mallinfo2().uordblks; /* a sanitizer counts none here, but finds what is lost itself */
    weft_jit_free(j);
    cr_assert_leq(after, before + 8192);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* A tensor kept in a running trace belongs to it until the call has returned. */
typedef struct handed {
    weft_tensor t;
    weft_status read, used;
} handed;

static void *use(void *arg)
{
    handed *h = arg;
    double v;
    h->read = weft_item(weft_sum(h->t), &v);
    h->used = weft_add_(h->t, weft_f(1));
    return NULL;
}

static weft_status hands_out(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    handed *h = self;
    pthread_t thread;
    (void)n_in, (void)out, (void)n_out;
    h->t = weft_keep(weft_exp(in[0]));
    pthread_create(&thread, NULL, use, h);
    pthread_join(thread, NULL);
    return WEFT_OK;
}

Test(jit_threads, values_of_a_running_trace_are_its_threads)
{
    handed h = {.read = WEFT_OK};
    weft_jit *j = weft_jit_trace(hands_out, &h);
    weft_tensor x = weft_zeros(weft_shape(3), WEFT_F32);
    cr_assert_eq(weft_jit_call(j, &x, 1, NULL, 0), WEFT_OK, "%s", weft_last_error());
    cr_assert_neq(h.read, WEFT_OK);
    cr_assert_neq(h.used, WEFT_OK);
    cr_assert_eq(weft_item_f64(weft_sum(h.t)), 3);
    weft_free(h.t);
    weft_jit_free(j);
}

/* -- what a plan keeps ----------------------------------------------------------------------------------- */

enum { LARGE = 40, SUMMED = 2, USERS = 4 };

typedef struct user {
    weft_jit *jit;
    int id, bad;
    pthread_t thread;
} user;

static weft_status sums(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_cumsum(weft_add(in[0], in[0]), 0);
    out[0] = weft_sub(weft_cumsum(h, 1), in[0]);
    return WEFT_OK;
}

/* Of x everywhere. */
static bool are_sums(weft_tensor y, float x)
{
    const float *at = weft_data(y);
    bool ok = at != NULL;
    for (int i = 0; i < LARGE * LARGE && ok; i++) {
        ok = at[i] == (float)(2 * (i / LARGE + 1) * (i % LARGE + 1) - 1) * x;
    }
    return ok;
}

/* Holds two results, so that memory goes from call to call and from thread to thread. */
static void *use_plan(void *arg)
{
    user *u = arg;
    weft_tensor held[SUMMED] = {WEFT_NONE};
    for (int i = 0; i < 40; i++) {
        weft_scope sc = weft_scope_begin();
        const int x = i * USERS + u->id + 1;
        weft_tensor in = weft_full(weft_shape(LARGE, LARGE), x, WEFT_F32), y;
        u->bad += weft_jit_call(u->jit, &in, 1, &y, 1) != WEFT_OK;
        u->bad += i >= SUMMED && !are_sums(held[i % SUMMED], (float)(x - SUMMED * USERS));
        weft_free(held[i % SUMMED]);
        held[i % SUMMED] = weft_keep(y);
        if (i % 16 == 15) {
            weft_memory_trim();
        }
        weft_scope_end(sc);
    }
    for (int i = 0; i < SUMMED; i++) {
        u->bad += !are_sums(held[i], (float)((38 + i) * USERS + u->id + 1));
        weft_free(held[i]);
    }
    return NULL;
}

/* Threads that run one plan at the same time have temporaries and results of their own. */
Test(jit_threads, no_block_of_a_plan_is_two_threads)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        weft_jit *j = weft_jit_trace(sums, NULL, .frozen = frozen, .synchronous = true,
                                     .always_record = true);
        user u[USERS];
        for (int i = 0; i < USERS; i++) {
            u[i] = (user){.jit = j, .id = i};
            cr_assert_eq(pthread_create(&u[i].thread, NULL, use_plan, &u[i]), 0);
        }
        for (int i = 0; i < USERS; i++) {
            pthread_join(u[i].thread, NULL);
            cr_expect_eq(u[i].bad, 0, "thread %d: %d wrong", i, u[i].bad);
        }
        weft_jit_free(j);
    }
}
