/*
 * tests/gpu/test_gpu_capture.c -- frozen calls as one launch of a captured graph: the bits of a recorded call, results that
 * stay, writes to captured tensors and to arguments, streams, threads, errors, and what is done when nothing can be captured.
 *
 * ctest: timeout=600
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/gpu/gpu.h"

#include "tests/gpu/equal.h"
#include "weft/cuda.h"
#include "weft/jit.h"

enum { ROWS = 12, COLS = 20, CALLS = 8 };

/* A layer with a memory of its calls. */
typedef struct layer {
    weft_tensor w, seen;
} layer;

static weft_status apply(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    layer *l = self;
    (void)n, (void)n_out;
    weft_tensor h = weft_gelu(weft_matmul(in[0], l->w));
    weft_add_(l->seen, weft_sum(h, .axes = weft_axes(0)));
    weft_sub_(l->w, weft_mul(weft_matmul(weft_transpose(in[0], 0, 1), h), weft_f(0.01)));
    out[0] = weft_softmax(h, 1);
    out[1] = weft_sum(out[0], .axes = weft_axes(0));
    return weft_error_status(out[1]);
}

static weft_tensor numbers(int64_t rows, int64_t cols, int seed)
{
    weft_tensor x = weft_arange(seed, seed + (double)(rows * cols), 1, WEFT_F32);
    return weft_to(weft_reshape(weft_sin(x), weft_shape(rows, cols)), WEFT_CUDA(0));
}

static layer make_layer(void)
{
    return (layer){weft_keep(numbers(COLS, COLS, 3)), weft_keep(numbers(1, COLS, 5))};
}

static void drop_layer(layer *l)
{
    weft_free(l->w);
    weft_free(l->seen);
}

static const char *reasons(weft_jit *j)
{
    static weft_jit_reason r[8];
    return weft_jit_reasons(j, r, 8) ? r[0].text : "";
}

static void open_settled(uint64_t seed)
{
    setenv("WEFT_JIT", "2", 1);         /* kernels are there at their first run */
    setenv("WEFT_CUDA_GRAPHS", "2", 0); /* small functions, too */
    gpu_open(seed);
}

static void call(weft_jit *j, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    cr_assert_eq(weft_jit_call(j, in, n, out, n_out), WEFT_OK, "%s", weft_last_error());
}

/* One after the other, results and what was written; all results are looked at again at the end. */
Test(gpu_capture, replays_have_the_bits_and_results_stay)
{
    open_settled(41);
    weft_scope s = weft_scope_begin();
    layer a = make_layer(), b = make_layer();
    weft_jit *j = weft_jit_trace(apply, &a, .frozen = true, .verify_every = -1);
    weft_jit *plain = weft_jit_trace(apply, &b);
    weft_tensor got[CALLS][2], want[CALLS][2];
    for (int i = 0; i < CALLS; i++) {
        weft_tensor x = numbers(ROWS, COLS, 10 * i);
        call(j, &x, 1, got[i], 2);
        call(plain, &x, 1, want[i], 2);
    }
    for (int i = 0; i < CALLS; i++) {
        check_equal("first result", got[i][0], want[i][0]);
        check_equal("second result", got[i][1], want[i][1]);
    }
    check_equal("weights", a.w, b.w);
    check_equal("sums", a.seen, b.seen);
    cr_assert_geq(stats_of(j).captured, 3, "%d of %d; %s", (int)stats_of(j).captured,
                  (int)stats_of(j).frozen, reasons(j));
    weft_jit_free(j);
    weft_jit_free(plain);
    drop_layer(&a);
    drop_layer(&b);
    weft_scope_end(s);
    gpu_check_races();
}

/* One launch a call; no memory from the driver, no waits. */
Test(gpu_capture, a_call_is_one_launch)
{
    open_settled(42);
    layer a = make_layer();
    weft_jit *j = weft_jit_trace(apply, &a, .frozen = true, .verify_every = -1);
    weft_tensor x = weft_keep(numbers(ROWS, COLS, 1)), y[2];
    int64_t captured = 0, one = 0, slow = 0;
    weft_cuda_counters before = {0}, after;
    for (int i = 0; i < 3 * CALLS; i++) {
        weft_scope s = weft_scope_begin();
        if (i == CALLS) {
            captured = stats_of(j).captured;
            weft_cuda_get_counters(&before);
            slow = gpu_slow_calls();
        }
        one = gpu_launches();
        call(j, &x, 1, y, 2);
        one = gpu_launches() - one;
        weft_scope_end(s);
    }
    weft_cuda_get_counters(&after);
    cr_assert_eq(gpu_slow_calls(), slow, "%d calls that may wait", (int)(gpu_slow_calls() - slow));
    cr_assert_eq(stats_of(j).captured - captured, 2 * CALLS, "%s", reasons(j));
    cr_assert_eq(one, 1);
    cr_assert_eq(after.launches - before.launches, 2 * CALLS);
    cr_assert_eq(after.copies - before.copies, 2 * CALLS * 3, "an argument in, two results out");
    cr_assert_eq(after.driver_allocs, before.driver_allocs);
    cr_assert_eq(after.waits, before.waits);
    cr_assert_eq(after.hidden_waits, before.hidden_waits);
    weft_jit_free(j);
    weft_free(x);
    drop_layer(&a);
    gpu_check_races();
}

static weft_status counts_up(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    weft_add_(in[0], weft_mul(in[1], weft_f(2)));
    out[0] = weft_exp(weft_neg(in[0]));
    return weft_error_status(out[0]);
}

/* An argument that is written; another tensor each time, streams in turn. */
Test(gpu_capture, arguments_that_are_written)
{
    open_settled(43);
    const weft_device d = WEFT_CUDA(0);
    weft_scope s = weft_scope_begin();
    weft_jit *j = weft_jit_trace(counts_up, NULL, .frozen = true, .verify_every = -1);
    weft_stream *side = weft_stream_new(d);
    weft_tensor kept[CALLS], y[CALLS];
    for (int i = 0; i < CALLS; i++) {
        weft_stream_set(d, i % 2 ? side : NULL);
        weft_tensor in[2] = {numbers(ROWS, COLS, i), numbers(ROWS, COLS, 2 * i)};
        kept[i] = in[0];
        weft_stream_set(d, i % 3 ? side : NULL);
        call(j, in, 2, &y[i], 1);
    }
    weft_stream_set(d, NULL);
    for (int i = 0; i < CALLS; i++) {
        weft_tensor in[2] = {numbers(ROWS, COLS, i), numbers(ROWS, COLS, 2 * i)}, want;
        counts_up(NULL, in, 2, &want, 1);
        check_equal("result", y[i], want);
        check_equal("argument", kept[i], in[0]);
    }
    cr_assert_geq(stats_of(j).captured, 3, "%s", reasons(j));
    weft_jit_free(j);
    weft_stream_free(side);
    weft_scope_end(s);
    gpu_check_races();
}

static weft_status slides(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    weft_tensor part = weft_slice(in[0], 0, 3, 100, 5);
    weft_mul_(weft_narrow(in[0], 0, 7, 9), weft_f(0.5));
    out[0] = weft_add(part, weft_select(in[1], 0, 1));
    return weft_error_status(out[0]);
}

/* Arguments that are small parts of large memory, at at(i) in call i of n: what lies beside them is neither held nor written.
 * Returns by how many bytes more memory is held after the calls. */
static int64_t check_parts(int64_t large, int n, int64_t (*at)(int i))
{
    enum { PART = 200 };
    weft_scope s = weft_scope_begin();
    weft_tensor a = numbers(1, large, 1), b = numbers(1, large, 1), y;
    weft_jit *j = weft_jit_trace(slides, NULL, .frozen = true, .verify_every = -1);
    weft_cuda_memory before, after;
    cr_assert_eq(weft_cuda_get_memory(WEFT_CUDA(0), &before), WEFT_OK);
    for (int i = 0; i < n; i++) {
        weft_scope inner = weft_scope_begin();
        weft_tensor in[2], same[2], want;
        for (int k = 0; k < 2; k++) {
            weft_tensor x = weft_reshape(k ? b : a, weft_shape(large));
            weft_tensor rows = weft_narrow(x, 0, at(i) - 300, 40);
            (k ? same : in)[0] = weft_narrow(x, 0, at(i), PART);
            (k ? same : in)[1] = weft_reshape(rows, weft_shape(2, 20));
        }
        call(j, in, 2, &y, 1);
        cr_assert_eq(slides(NULL, same, 2, &want, 1), WEFT_OK, "%s", weft_last_error());
        check_equal("parts", y, want);
        weft_scope_end(inner);
    }
    check_equal("all of it", a, b);
    cr_assert_geq(stats_of(j).captured, 3, "%s", reasons(j));
    cr_assert_eq(weft_cuda_get_memory(WEFT_CUDA(0), &after), WEFT_OK);
    weft_jit_free(j);
    weft_scope_end(s);
    gpu_check_races();
    return after.live_bytes - before.live_bytes;
}

static int64_t in_the_middle(int i)
{
    (void)i;
    return 1 << 19;
}

Test(gpu_capture, parts_of_storages)
{
    open_settled(46);
    cr_assert_leq(check_parts(1 << 20, CALLS, in_the_middle), 1 << 16);
}

static int64_t elsewhere(int i)
{
    return i == 2 * CALLS - 1 ? (1 << 16) - 200 : 300 + 37 * ((5 * i) % 23);
}

/* At another place each time: one graph, which copies what lies there. */
Test(gpu_capture, parts_that_move)
{
    open_settled(47);
    check_parts(1 << 16, 2 * CALLS, elsewhere);
}

static weft_status looks_up(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)n, (void)n_out;
    out[0] = weft_mul(weft_index_select(*(weft_tensor *)self, 0, in[0]), weft_f(3));
    return weft_error_status(out[0]);
}

static weft_tensor places(int64_t a, int64_t b)
{
    return weft_to(weft_from_data(((int64_t[]){a, b}), weft_shape(2), WEFT_I64), WEFT_CUDA(0));
}

/* An index out of range is told after each launch that met it, and never of one that did not. */
Test(gpu_capture, bad_indices_are_told)
{
    open_settled(44);
    weft_scope s = weft_scope_begin();
    weft_tensor table = weft_keep(numbers(6, COLS, 2)), y;
    weft_jit *j = weft_jit_trace(looks_up, &table, .frozen = true, .verify_every = -1);
    float got[2 * COLS];
    for (int i = 0; i < 3 * CALLS; i++) {
        bool bad = i > CALLS && i % 3 == 0;
        weft_tensor at = places(i % 6, bad ? 77 : 1);
        call(j, &at, 1, &y, 1);
        weft_status status = weft_to_array(y, got, 2 * COLS, WEFT_F32);
        cr_assert_eq(status, bad ? WEFT_EINDEX : WEFT_OK, "call %d: %s", i, weft_last_error());
        if (bad) {
            cr_assert(strstr(weft_last_error(), "77") && strstr(weft_last_error(), "index_select"),
                      "%s", weft_last_error());
        }
    }
    cr_assert_geq(stats_of(j).captured, 2 * CALLS, "%s", reasons(j));
    weft_jit_free(j);
    weft_free(table);
    weft_scope_end(s);
}

typedef struct shared {
    weft_jit *j;
    int seed, wrong;
} shared;

static weft_status squares(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    weft_tensor sum = weft_sum(in[0]);
    out[0] = weft_add(weft_mul(in[0], in[0]), sum);
    return weft_error_status(out[0]);
}

static void *calls(void *arg)
{
    shared *t = arg;
    weft_stream *own = weft_stream_new(WEFT_CUDA(0));
    t->wrong += !own || weft_stream_set(WEFT_CUDA(0), own) != WEFT_OK;
    for (int i = 0; i < 20 && !t->wrong; i++) {
        float got[ROWS * COLS], want[ROWS * COLS];
        weft_scope s = weft_scope_begin();
        weft_tensor x = numbers(ROWS, COLS, t->seed + i), y, z;
        t->wrong += weft_jit_call(t->j, &x, 1, &y, 1) != WEFT_OK;
        squares(NULL, &x, 1, &z, 1);
        t->wrong += weft_to_array(y, got, ROWS * COLS, WEFT_F32) != WEFT_OK ||
                    weft_to_array(z, want, ROWS * COLS, WEFT_F32) != WEFT_OK ||
                    memcmp(got, want, sizeof got) != 0;
        weft_scope_end(s);
    }
    weft_stream_set(WEFT_CUDA(0), NULL);
    weft_stream_free(own);
    return NULL;
}

/* One capture, called by threads on streams of their own. */
Test(gpu_capture, threads_share_a_capture)
{
    open_settled(45);
    weft_jit *j = weft_jit_trace(squares, NULL, .frozen = true, .verify_every = 9);
    shared t[3] = {{j, 0, 0}, {j, 100, 0}, {j, 200, 0}};
    pthread_t id[3];
    calls(&t[0]);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(pthread_create(&id[i], NULL, calls, &t[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(id[i], NULL);
    }
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(t[i].wrong, 0, "thread %d", i);
    }
    cr_assert_geq(stats_of(j).captured, 30, "%s", reasons(j));
    weft_jit_free(j);
    gpu_check_races();
}

typedef struct stream_user {
    atomic_bool stop;
    _Atomic int rounds, wrong;
} stream_user;

/* Streams taken, used, waited for and given back, the device waited for, memory given back: a capture may take any of these
 * streams the moment it is given back, and what is recorded must not be waited for. */
static void *use_streams(void *arg)
{
    stream_user *u = arg;
    const weft_device d = WEFT_CUDA(0);
    while (!atomic_load(&u->stop) && !u->wrong) {
        float got[COLS];
        weft_scope s = weft_scope_begin();
        weft_stream *own = weft_stream_new(d);
        weft_event *e = weft_event_new(d);
        u->wrong += !own || !e || weft_stream_set(d, own) != WEFT_OK;
        weft_tensor x = weft_mul(numbers(1, COLS, u->rounds), weft_f(0));
        u->wrong += weft_event_record(e) != WEFT_OK;
        u->wrong += weft_stream_set(d, NULL) != WEFT_OK || weft_event_wait(e) != WEFT_OK;
        weft_tensor y = weft_add(x, weft_f(u->rounds));
        u->wrong += u->rounds % 3 == 0 && weft_stream_synchronize(own) != WEFT_OK;
        weft_stream_done(own);
        u->wrong += weft_stream_free(own) != WEFT_OK || weft_event_free(e) != WEFT_OK;
        u->wrong += u->rounds % 4 == 1 && weft_synchronize(d) != WEFT_OK;
        u->wrong += u->rounds % 8 == 5 && weft_cuda_empty_cache(d) < 0;
        u->wrong +=
            weft_to_array(y, got, COLS, WEFT_F32) != WEFT_OK || got[COLS - 1] != (float)u->rounds;
        weft_scope_end(s);
        u->rounds++;
    }
    return NULL;
}

Test(gpu_capture, captures_beside_users_of_streams)
{
    open_settled(50);
    stream_user users[2] = {0};
    pthread_t id[2];
    for (int k = 0; k < 2; k++) {
        cr_assert_eq(pthread_create(&id[k], NULL, use_streams, &users[k]), 0);
    }
    int captured = 0;
    for (int i = 0; i < 6 || users[0].rounds < 8; i++) {
        weft_scope s = weft_scope_begin();
        layer a = make_layer(), b = make_layer();
        weft_jit *j = weft_jit_trace(apply, &a, .frozen = true, .verify_every = -1);
        for (int k = 0; k < CALLS; k++) {
            weft_tensor x = numbers(ROWS, COLS, k), y[2], want[2];
            call(j, &x, 1, y, 2);
            apply(&b, &x, 1, want, 2);
            check_equal("beside", y[0], want[0]);
        }
        captured += stats_of(j).captured >= 3;
        weft_jit_free(j);
        drop_layer(&a);
        drop_layer(&b);
        weft_scope_end(s);
        cr_assert(!users[0].wrong && !users[1].wrong && i < 2000, "round %d", i);
    }
    for (int k = 0; k < 2; k++) {
        atomic_store(&users[k].stop, true);
    }
    for (int k = 0; k < 2; k++) {
        pthread_join(id[k], NULL);
        cr_assert(!users[k].wrong, "user %d, round %d", k, users[k].rounds);
    }
    cr_assert_geq(captured, 6, "%d", captured);
    gpu_check_races();
}

/* Kernels that are made in the background are waited for before anything is captured: the graph is never of single ops. */
Test(gpu_capture, is_made_of_the_final_kernels)
{
    setenv("WEFT_JIT", "1", 1);
    setenv("WEFT_CUDA_GRAPHS", "2", 1);
    gpu_open(46);
    weft_scope s = weft_scope_begin();
    weft_jit *j = weft_jit_trace(counts_up, NULL, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 40 && !stats_of(j).captured; i++) {
        weft_tensor in[2] = {numbers(ROWS, COLS, i), numbers(ROWS, COLS, 2 * i)}, y, want;
        weft_tensor again[2] = {weft_clone(in[0]), in[1]};
        call(j, in, 2, &y, 1);
        counts_up(NULL, again, 2, &want, 1);
        check_equal("result", y, want);
    }
    cr_assert_gt(stats_of(j).captured, 0, "%s", reasons(j));
    weft_jit_free(j);
    weft_scope_end(s);
}

Test(gpu_capture, can_be_switched_off)
{
    setenv("WEFT_CUDA_GRAPHS", "0", 1);
    open_settled(47);
    layer a = make_layer();
    weft_jit *j = weft_jit_trace(apply, &a, .frozen = true, .verify_every = -1);
    weft_tensor x = weft_keep(numbers(ROWS, COLS, 1)), y[2];
    for (int i = 0; i < CALLS; i++) {
        call(j, &x, 1, y, 2);
    }
    cr_assert(stats_of(j).frozen > 3 && stats_of(j).captured == 0);
    weft_jit_free(j);
    weft_free(x);
    drop_layer(&a);
}

/* By itself a capture is made where a launch and copies are fewer calls of the driver than the steps. */
Test(gpu_capture, is_made_where_it_pays)
{
    setenv("WEFT_CUDA_GRAPHS", "1", 1);
    open_settled(49);
    weft_scope s = weft_scope_begin();
    layer a = make_layer();
    weft_jit *one = weft_jit_trace(squares, NULL, .frozen = true, .verify_every = -1);
    weft_jit *many = weft_jit_trace(apply, &a, .frozen = true, .verify_every = -1);
    for (int i = 0; i < CALLS; i++) {
        weft_tensor x = numbers(ROWS, COLS, i), y[2];
        call(one, &x, 1, y, 1);
        call(many, &x, 1, y, 2);
    }
    cr_assert(stats_of(one).frozen > 3 && stats_of(one).captured == 0);
    cr_assert(strstr(reasons(one), "steps, a captured graph 2 copies"), "%s", reasons(one));
    cr_assert_gt(stats_of(many).captured, 3, "%s", reasons(many));
    weft_jit_free(one);
    weft_jit_free(many);
    drop_layer(&a);
    weft_scope_end(s);
}

#ifndef WEFT_GPU_RUNNER
/* Whatever the driver refuses, the call is made step by step, and the reason is told once. */
Test(gpu_capture, what_cannot_be_captured)
{
    open_settled(48);
    const fake_driver *fake = fake_cuda(FAKE_RANDOM, 48);
    static const char *const entries[] = {"cuGraphLaunch", "cuStreamBeginCapture_v2",
                                          "cuGraphInstantiateWithFlags", "cuStreamEndCapture"};
    for (int e = 0; e < 4; e++) {
        weft_scope s = weft_scope_begin();
        layer a = make_layer(), b = make_layer();
        weft_jit *j = weft_jit_trace(apply, &a, .frozen = true, .verify_every = -1);
        weft_tensor y[2], want[2];
        int met = 0;
        for (int i = 0; i < CALLS; i++) {
            weft_tensor x = numbers(ROWS, COLS, i);
            fake->fail(entries[e], 1, 801);
            call(j, &x, 1, y, 2);
            met += strcmp(fake->failed(), entries[e]) == 0;
            apply(&b, &x, 1, want, 2);
            check_equal(entries[e], y[0], want[0]);
        }
        fake->fail(NULL, 0, 0);
        cr_assert(e ? met == 1 : met > 2, "%s: %d", entries[e], met);
        check_equal(entries[e], a.w, b.w);
        cr_assert_eq(stats_of(j).captured, 0);
        cr_assert(e == 0 || strstr(reasons(j), "not captured: cu"), "%s: %s", entries[e],
                  reasons(j));
        weft_jit_free(j);
        drop_layer(&a);
        drop_layer(&b);
        weft_scope_end(s);
    }
    cr_assert_eq(fake->alive("graph") + fake->alive("exec"), 0);
    gpu_check_races();
}
#endif
