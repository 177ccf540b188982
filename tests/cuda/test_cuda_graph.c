/*
 * tests/cuda/test_cuda_graph.c -- captured graphs on the fake driver: replay, memory, order, refusals.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/cuda_support.h"

enum { N = 500 };

static wf_cuda_block *block(size_t n)
{
    wf_cuda_block *b = wf_cuda_alloc(0, n, &why);
    cr_assert(b, "%s", why.rule);
    return b;
}

static int32_t value_of(wf_cuda_block *b)
{
    int32_t got[N];
    OK(wf_cuda_use(b, false, &why));
    OK(wf_cuda_download(0, got, b->address, sizeof got, &why));
    cr_assert_eq(got[0], got[N - 1]);
    return got[0];
}

/* y = (x + x) + x, through a temporary; x from outside. */
static wf_cuda_graph *triple(wf_cuda_block *x, wf_cuda_block **y)
{
    wf_cuda_graph *g = NULL;
    OK(wf_cuda_capture_begin(0, &why));
    cr_assert(wf_cuda_capturing(0));
    wf_cuda_block *t = block(N * 4);
    OK(run_add(t, x, x, N, true));
    *y = block(N * 4);
    OK(run_add(*y, t, x, N, true));
    wf_cuda_free(t);
    OK(wf_cuda_capture_end(0, false, &g, &why));
    cr_assert(g && !wf_cuda_capturing(0));
    return g;
}

Test(cuda_graph, replays_read_what_is_there_then)
{
    for (int seed = 0; seed < 30; seed++) {
        with_fake(seed % 2 ? FAKE_LATE : FAKE_RANDOM, (uint64_t)seed);
        wf_cuda_device *d = wf_cuda_enter(0, &why);
        wf_cuda_stream *side = wf_cuda_stream_take(d, &why);
        cr_assert(side);
        wf_cuda_block *x = block(N * 4), *y = NULL;
        OK(run_fill(x, N, 1));
        wf_cuda_graph *g = triple(x, &y);
        for (int k = 1; k < 6; k++) {
            OK(run_fill(x, N, k));
            wf_cuda_set_current(d, k % 2 ? side : NULL);
            OK(wf_cuda_graph_launch(g, &why));
            wf_cuda_set_current(d, k % 3 ? side : NULL);
            cr_assert_eq(value_of(y), 3 * k, "seed %d", seed);
            wf_cuda_set_current(d, NULL);
        }
        cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
        /* Launched twice before anybody looks, and the input changed in between. */
        wf_cuda_block *copy = block(N * 4);
        OK(run_fill(x, N, 7));
        OK(wf_cuda_graph_launch(g, &why));
        OK(wf_cuda_use(y, false, &why));
        OK(wf_cuda_use(copy, true, &why));
        OK(wf_cuda_move(0, copy->address, y->address, N * 4, &why));
        wf_cuda_set_current(d, side);
        OK(run_fill(x, N, 8));
        OK(wf_cuda_graph_launch(g, &why));
        wf_cuda_set_current(d, NULL);
        cr_assert_eq(value_of(copy), 21);
        cr_assert_eq(value_of(y), 24);
        wf_cuda_graph_free(g);
        wf_cuda_free(x);
        wf_cuda_free(y);
        wf_cuda_free(copy);
        wf_cuda_stream_give(side);
        close_fake();
        cr_assert_eq(gpu->alive("graph") + gpu->alive("exec") + gpu->alive("memory"), 0);
    }
}

Test(cuda_graph, its_memory_is_its_own)
{
    with_fake(FAKE_LATE, 1);
    wf_cuda_block *x = block(N * 4), *y = NULL;
    OK(run_fill(x, N, 2));
    wf_cuda_graph *g = triple(x, &y);
    void *held = x->address;
    wf_cuda_free(x); /* the graph still reads it */
    wf_cuda_block *other = block(N * 4);
    cr_assert(other->address != held);
    OK(run_fill(other, N, 99));
    wf_cuda_trim(0); /* the graph's temporaries stay */
    OK(wf_cuda_graph_launch(g, &why));
    cr_assert_eq(value_of(y), 6);
    /* Temporaries that were freed inside are used again inside, and by nobody else. */
    wf_cuda_graph *h = NULL;
    wf_cuda_memory before, after;
    OK(wf_cuda_capture_begin(0, &why));
    wf_cuda_get_memory(0, &before);
    for (int i = 0; i < 50; i++) {
        wf_cuda_block *t = block(1 << 20);
        OK(run_fill(t, N, i));
        wf_cuda_free(t);
    }
    wf_cuda_get_memory(0, &after);
    OK(wf_cuda_capture_end(0, false, &h, &why));
    cr_assert(after.reserved_bytes - before.reserved_bytes <= 2 << 20, "%lld %lld live %lld",
              (long long)before.reserved_bytes, (long long)after.reserved_bytes,
              (long long)(after.live_bytes - before.live_bytes));
    OK(wf_cuda_graph_launch(h, &why));
    wf_cuda_graph_free(h);
    wf_cuda_graph_free(g);
    wf_cuda_free(y);
    wf_cuda_free(other);
    OK(wf_cuda_synchronize(0, &why));
    wf_cuda_trim(0);
    cr_assert_eq(gpu->bytes(0), 0);
    close_fake();
}

Test(cuda_graph, what_cannot_be_recorded_is_refused)
{
    with_fake(FAKE_LATE, 1);
    wf_cuda_graph *g = (wf_cuda_graph *)&why;
    int32_t host[N] = {0};
    wf_cuda_block *x = block(N * 4);
    cr_assert_eq(wf_cuda_capture_end(0, false, &g, &why), WEFT_EINVALID);
    cr_assert_null(g);
    OK(wf_cuda_capture_begin(0, &why));
    cr_assert_eq(wf_cuda_capture_begin(0, &why), WEFT_EINVALID);
    OK(run_fill(x, N, 2));
    cr_assert_eq(wf_cuda_upload(0, x->address, host, sizeof host, &why), WEFT_EUNSUPPORTED);
    cr_assert_eq(wf_cuda_download(0, host, x->address, sizeof host, &why), WEFT_EUNSUPPORTED);
    cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EUNSUPPORTED);
    cr_assert_eq(wf_cuda_capture_end(0, false, &g, &why), WEFT_EUNSUPPORTED);
    cr_assert(strstr(why.rule, "a copy from host memory"), "%s", why.rule);
    cr_assert_null(g);
    OK(wf_cuda_capture_begin(0, &why));
    OK(run_fill(x, N, 2));
    OK(wf_cuda_capture_end(0, true, &g, &why));
    cr_assert_null(g);
    wf_cuda_free(x);
    close_fake();
}

Test(cuda_graph, error_words_stay_with_it)
{
    with_fake(FAKE_LATE, 1);
    wf_cuda_graph *g = NULL;
    wf_cuda_fn *store = fake_kernel("store_i64");
    void *word = NULL;
    int64_t bad = 42;
    OK(wf_cuda_capture_begin(0, &why));
    OK(wf_cuda_error_word(0, WF_OP_ADD, "here.c:1", 10, NULL, 0, &word, &why));
    void *params[] = {&word, &bad};
    OK(wf_cuda_launch(store, one_block, one_block, 0, params, &why));
    OK(wf_cuda_capture_end(0, false, &g, &why));
    OK(wf_cuda_synchronize(0, &why));
    for (int k = 0; k < 3; k++) {
        OK(wf_cuda_graph_launch(g, &why));
        cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
        cr_assert(strstr(why.rule, "42") && strstr(why.rule, "here.c:1"), "%s", why.rule);
        OK(wf_cuda_synchronize(0, &why));
    }
    wf_cuda_graph_free(g);
    close_fake();
}

/* However many launches there were between two waits, and if the graph is gone by then. */
Test(cuda_graph, what_a_launch_that_failed_wrote_is_marked)
{
    with_fake(FAKE_LATE, 1);
    wf_cuda_graph *g = NULL;
    wf_cuda_fn *store = fake_kernel("store_i64");
    wf_cuda_block *y = block(N * 4), *other = block(N * 4);
    void *word = NULL;
    int64_t bad = 42;
    wf_op op = WF_OP_INVALID;
    const char *site = NULL;
    OK(wf_cuda_capture_begin(0, &why));
    OK(wf_cuda_error_word(0, WF_OP_INDEX_SELECT, "here.c:1", 10, NULL, 0, &word, &why));
    void *params[] = {&word, &bad};
    OK(wf_cuda_launch(store, one_block, one_block, 0, params, &why));
    OK(run_fill(y, N, 3));
    OK(wf_cuda_capture_end(0, false, &g, &why));
    for (int k = 0; k < 5; k++) {
        OK(run_fill(y, N, 1));
        OK(run_fill(other, N, 2));
        for (int i = 0; i <= k % 3; i++) {
            OK(wf_cuda_graph_launch(g, &why));
        }
        cr_assert(!wf_cuda_spoilt(y, &op, &site), "nobody has waited yet");
        if (k == 4) {
            wf_cuda_graph_free(g);
        }
        cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
        OK(wf_cuda_synchronize(0, &why));
        cr_assert(wf_cuda_spoilt(y, &op, &site), "after %d launches", k + 1);
        cr_expect(op == WF_OP_INDEX_SELECT && strcmp(site, "here.c:1") == 0);
        cr_expect(!wf_cuda_spoilt(other, &op, &site));
    }
    OK(run_fill(y, N, 1));
    cr_expect(!wf_cuda_spoilt(y, &op, &site), "it was written anew");
    wf_cuda_free(y);
    wf_cuda_free(other);
    close_fake();
}

/* y = x + (a block filled with value), an error word in between: what a graph may be told to do with another value. */
static int fill_and_add(wf_cuda_block *y, wf_cuda_block *x, int32_t value)
{
    void *word = NULL;
    wf_cuda_block *t = wf_cuda_alloc(0, N * 4, &why);
    int code = t ? run_fill(t, N, value) : why.code;
    code = code ? code : wf_cuda_error_word(0, WF_OP_ADD, NULL, 10, NULL, 0, &word, &why);
    code = code ? code : run_add(y, t, x, N, true);
    wf_cuda_free(t);
    return code;
}

/* Launches take the numbers that were given last, and those under way keep theirs. */
Test(cuda_graph, other_numbers)
{
    for (int seed = 0; seed < 20; seed++) {
        with_fake(seed % 2 ? FAKE_LATE : FAKE_RANDOM, (uint64_t)seed);
        wf_cuda_block *x = block(N * 4), *y = block(N * 4), *copy[4];
        wf_cuda_graph *g = NULL;
        OK(run_fill(x, N, 100));
        OK(wf_cuda_capture_begin(0, &why));
        OK(run_add(y, x, x, N, true)); /* not marked */
        OK(wf_cuda_capture_mark(0, true, &why));
        OK(fill_and_add(y, y, 1));
        OK(wf_cuda_capture_mark(0, false, &why));
        OK(wf_cuda_capture_end(0, false, &g, &why));
        for (int k = 0; k < 4; k++) {
            copy[k] = block(N * 4);
            if (k) {
                OK(wf_cuda_graph_renew(g, true, &why));
                OK(fill_and_add(y, y, 1 + k));
                OK(wf_cuda_graph_renew(g, false, &why));
            }
            OK(wf_cuda_graph_launch(g, &why));
            OK(wf_cuda_use(y, false, &why));
            OK(wf_cuda_use(copy[k], true, &why));
            OK(wf_cuda_move(0, copy[k]->address, y->address, N * 4, &why));
        }
        for (int k = 0; k < 4; k++) {
            cr_assert_eq(value_of(copy[k]), 201 + k, "seed %d", seed);
            wf_cuda_free(copy[k]);
        }
        cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
        wf_cuda_graph_free(g);
        wf_cuda_free(x);
        wf_cuda_free(y);
        close_fake();
        cr_assert_eq(gpu->alive("graph") + gpu->alive("exec") + gpu->alive("node"), 0);
    }
}

/* Other calls than those that were recorded are refused, all of them from the first on, and a graph that was not told is told of. */
Test(cuda_graph, other_calls_are_refused)
{
    with_fake(FAKE_LATE, 1);
    wf_cuda_block *x = block(N * 4), *y = block(N * 4);
    wf_cuda_graph *g = NULL;
    OK(run_fill(x, N, 100));
    cr_assert_eq(wf_cuda_capture_mark(0, true, &why), WEFT_EINVALID);
    OK(wf_cuda_capture_begin(0, &why));
    OK(wf_cuda_capture_mark(0, true, &why));
    OK(fill_and_add(y, x, 1));
    OK(wf_cuda_capture_end(0, false, &g, &why));
    for (int k = 0; k < 5; k++) {
        OK(wf_cuda_graph_renew(g, true, &why));
        if (k == 1) {
            cr_assert_eq(run_add(y, x, x, N, true), WEFT_EUNSUPPORTED);
            cr_assert_eq(fill_and_add(y, x, 2), WEFT_EUNSUPPORTED); /* too late */
        } else if (k == 2) {
            cr_assert_null(wf_cuda_alloc(0, N * 8, &why));
        } else if (k == 3) {
            OK(fill_and_add(y, x, 2));
            cr_assert_eq(wf_cuda_clear(0, y->address, N * 4, &why), WEFT_EUNSUPPORTED);
        } else if (k == 4) {
            gpu->fail("cuGraphExecKernelNodeSetParams_v2", 2, 801);
            cr_assert_eq(fill_and_add(y, x, 2), WEFT_EUNSUPPORTED);
            cr_assert_eq(wf_cuda_clear(0, y->address, N * 4, &why), WEFT_EUNSUPPORTED);
        }
        cr_assert_eq(wf_cuda_graph_renew(g, false, &why), WEFT_EUNSUPPORTED, "case %d", k);
    }
    OK(wf_cuda_graph_renew(g, true, &why));
    OK(fill_and_add(y, x, 3));
    OK(wf_cuda_graph_renew(g, false, &why));
    OK(wf_cuda_graph_launch(g, &why));
    cr_assert_eq(value_of(y), 103);
    wf_cuda_graph_free(g);
    wf_cuda_free(x);
    wf_cuda_free(y);
    close_fake();
}

/* Launches of a kernel that may begin early: by itself and while a graph is recorded. */
static void count_overlaps(int version, int alone, int in_graph)
{
    char text[16];
    snprintf(text, sizeof text, "%d", version);
    cr_assert_eq(setenv("FAKE_CUDA_VERSION", text, 1), 0);
    with_fake(FAKE_LATE, 1);
    wf_cuda_block *x = block(N * 4), *y = block(N * 4);
    wf_cuda_graph *g = NULL;
    OK(run_fill(x, N, 5));
    wf_cuda_overlap(fake_kernel("add_i32"));
    OK(run_add(y, x, x, N, true));
    cr_assert_eq(gpu->calls("cuLaunchKernelEx"), alone, "%d", version);
    OK(wf_cuda_capture_begin(0, &why));
    OK(run_add(y, x, x, N, true));
    OK(run_add(y, y, x, N, true));
    OK(wf_cuda_capture_end(0, false, &g, &why));
    cr_assert_eq(gpu->calls("cuLaunchKernelEx") - alone, in_graph, "%d", version);
    OK(wf_cuda_graph_launch(g, &why));
    cr_assert_eq(value_of(y), 15);
    wf_cuda_graph_free(g);
    wf_cuda_free(x);
    wf_cuda_free(y);
    close_fake();
}

Test(cuda_graph, kernels_that_begin_early)
{
    count_overlaps(12030, 1, 2);
}

Test(cuda_graph, kernels_begin_early_unless_that_is_switched_off)
{
    cr_assert_eq(setenv("WEFT_CUDA_OVERLAP", "0", 1), 0);
    count_overlaps(13000, 0, 0);
}

Test(cuda_graph, an_older_driver_records_none_that_begin_early)
{
    count_overlaps(12020, 1, 0);
}

/* Memory of a graph that is lent: to one at a time. */
Test(cuda_graph, memory_is_lent_once)
{
    with_fake(FAKE_LATE, 1);
    wf_cuda_block *b = block(64);
    cr_assert(wf_cuda_borrow(b));
    cr_assert_not(wf_cuda_borrow(b));
    wf_cuda_free(b);
    cr_assert(wf_cuda_borrow(b));
    wf_cuda_free(b);
    wf_cuda_free(b);
    close_fake();
    cr_assert_eq(gpu->alive("memory"), 0);
}

/* The fake is as strict as a driver: what a capture does not allow loses it, and other modes than the one in use are refused. */
Test(cuda_graph, the_driver_minds_what_is_recorded)
{
    with_fake(FAKE_LATE, 1);
    cr_assert(wf_cuda_enter(0, &why));
    cu_handle stream = NULL, recorded = NULL;
    cr_assert_eq(wf_cu->stream_create(&stream, CU_STREAM_NON_BLOCKING), CU_OK);
    cr_assert_neq(wf_cu->capture_begin(stream, 0), CU_OK);
    cr_assert_eq(wf_cu->capture_begin(stream, CU_CAPTURE_RELAXED), CU_OK);
    wf_cuda_block *x = block(N * 4);
    cr_assert_eq(wf_cu->stream_synchronize(stream), CU_CAPTURE_UNSUPPORTED);
    cr_assert_eq(wf_cu->set_bytes((cu_address)(uintptr_t)x->address, 0, 4, stream),
                 CU_CAPTURE_INVALIDATED);
    cr_assert_eq(wf_cu->capture_end(stream, &recorded), CU_CAPTURE_INVALIDATED);
    cr_assert_null(recorded);
    cr_assert_eq(wf_cu->set_bytes((cu_address)(uintptr_t)x->address, 0, 4, stream), CU_OK);
    cr_assert_eq(wf_cu->stream_synchronize(stream), CU_OK);
    cr_assert_eq(wf_cu->stream_destroy(stream), CU_OK);
    wf_cuda_free(x);
    close_fake();
}
