/*
 * tests/gpu/test_gpu_peers.c -- copies between two GPUs: ordered on both, directly and through pinned memory, with failures
 * as error values.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu.h"
#include "weft/cuda.h"
#include "weft/weft.h"

enum { N = 3000 };

static weft_device first, second;

/* With peers 0 the devices do not reach each other's memory. */
static void open_two(int late, int peers, uint64_t seed)
{
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    gpu_open(seed);
    first = WEFT_CUDA(0);
    second = WEFT_CUDA(1);
    wf_why why = {0};
    if (wf_cuda_count() < 2 || wf_cuda_open(1, &why)) {
        cr_skip_test("one GPU");
    }
#ifndef WEFT_GPU_RUNNER
    fake_cuda(late ? FAKE_LATE : FAKE_RANDOM, seed)->peers(peers);
#endif
    (void)late;
    (void)peers;
}

static weft_tensor numbers(weft_device d)
{
    return weft_to(weft_arange(0, N, 1, WEFT_F32), d);
}

static void check(const char *what, weft_tensor t, weft_device d, double scale, double plus)
{
    double v[N];
    weft_device is = weft_device_of(t);
    cr_assert(weft_ok(t) && is.kind == d.kind && is.index == d.index, "%s: %s", what,
              weft_last_error());
    cr_assert_eq(weft_to_array(t, v, N, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < N; i++) {
        cr_assert_eq(v[i], i * scale + plus, "%s: element %d is %g", what, i, v[i]);
    }
}

/* What is read was just made there, is overwritten and freed at once, and the copy is used at once. */
static void go_back_and_forth(weft_stream *a, weft_stream *b)
{
    weft_scope s = weft_scope_begin();
    weft_tensor x = numbers(first);
    weft_stream_set(first, a);
    weft_stream_set(second, b);
    for (int round = 0; round < 6; round++) {
        weft_scope inner = weft_scope_begin();
        weft_tensor y = weft_mul(x, weft_f(2)), copy = weft_to(y, second);
        weft_fill_(y, -1);
        weft_free(y);
        weft_full_like(x, -2); /* where y was */
        weft_tensor z = weft_add(copy, weft_f(round));
        weft_stream_set(first, round % 2 ? a : NULL);
        weft_tensor back = weft_to(z, first);
        weft_mul_(copy, weft_f(0));
        weft_fill_(z, -3);
        weft_copy_(x, back);
        check("x", x, first, (double)(2 << round), (double)(2 << round) - round - 2);
        check("z", z, second, 0, -3);
        weft_scope_end(inner);
    }
    weft_stream_set(first, NULL);
    weft_stream_set(second, NULL);
    weft_scope_end(s);
}

#ifndef WEFT_GPU_RUNNER
/* Memory that was mapped before the first copy, and after it, is mapped for the other device. */
Test(gpu_peers, mapped_memory)
{
    open_two(0, 1, 5);
    const fake_driver *fake = fake_cuda(FAKE_RANDOM, 5);
    weft_scope s = weft_scope_begin();
    check("early", weft_to(numbers(first), second), second, 1, 0);
    weft_tensor large = weft_full(weft_shape(9 << 20), 3, WEFT_F32);
    weft_tensor there = weft_to(weft_to(large, first), second);
    cr_assert_eq(weft_item_f64(weft_sum(there)), 3.0 * (9 << 20), "%s", weft_last_error());
    cr_assert_eq(fake->calls("cuMemcpyPeerAsync"), 2);
    weft_scope_end(s);
    gpu_check_races();
}

/* Where the driver does not want that, the host helps. */
Test(gpu_peers, memory_that_cannot_be_mapped)
{
    open_two(0, 1, 6);
    const fake_driver *fake = fake_cuda(FAKE_RANDOM, 6);
    weft_scope s = weft_scope_begin();
    weft_tensor x = numbers(first), y = numbers(second);
    fake->fail("cuMemSetAccess", 1, 801);
    check("refused", weft_to(x, second), second, 1, 0);
    cr_assert_str_eq(fake->failed(), "cuMemSetAccess");
    cr_assert_eq(fake->calls("cuMemcpyPeerAsync"), 0);
    check("the other way", weft_to(y, first), first, 1, 0);
    cr_assert_eq(fake->calls("cuMemcpyPeerAsync"), 1);
    weft_scope_end(s);
    gpu_check_races();
}
#endif

static void check_all(int late, int peers, uint64_t seed)
{
    open_two(late, peers, seed);
    weft_cuda_counters before, after;
    go_back_and_forth(NULL, NULL);
    weft_stream *a = weft_stream_new(first), *b = weft_stream_new(second);
    weft_cuda_get_counters(&before);
    go_back_and_forth(a, b);
    go_back_and_forth(NULL, b);
    weft_cuda_get_counters(&after);
    cr_assert_eq(after.hidden_waits, before.hidden_waits);
    cr_assert_eq(after.waits - before.waits, 24, "what check() reads");
    cr_assert_eq(weft_stream_free(a), WEFT_OK);
    cr_assert_eq(weft_stream_free(b), WEFT_OK);
    gpu_check_races();
}

Test(gpu_peers, directly_when_work_is_late)
{
    check_all(1, 1, 61);
}

Test(gpu_peers, directly_in_random_order)
{
    check_all(0, 1, 62);
}

Test(gpu_peers, through_pinned_memory_when_work_is_late)
{
    check_all(1, 0, 63);
}

Test(gpu_peers, through_pinned_memory_in_random_order)
{
    check_all(0, 0, 64);
}

Test(gpu_peers, views_gradients_types_and_nothing)
{
    open_two(0, 1, 65);
    weft_tensor x = numbers(first);
    weft_requires_grad_(x, true);
    weft_tensor there =
        weft_to(weft_reshape(weft_flip(x, weft_axes(0)), weft_shape(50, 60)), second);
    weft_backward(.loss = weft_sum(weft_mul(there, there)));
    check("gradient", weft_grad(x), first, 2, 0);
    check("flip", weft_flip(weft_reshape(weft_to(there, first), weft_shape(N)), weft_axes(0)),
          first, 1, 0);
    check("f64", weft_cast(weft_to(weft_cast(weft_detach(x), WEFT_F64), second), WEFT_F32), second,
          1, 0);
    cr_assert_eq(weft_numel(weft_to(weft_slice(x, 0, 7, 7, 1), second)), 0);
    weft_tensor big = weft_full(weft_shape(3 << 20), 5, WEFT_F32); /* several stages */
    cr_assert_eq(weft_item_f64(weft_sum(weft_to(weft_to(big, first), second))), 5.0 * (3 << 20));
    gpu_check_races();
}

#ifndef WEFT_GPU_RUNNER
Test(gpu_peers, many_stages)
{
    open_two(1, 0, 66);
    weft_tensor big = weft_arange(0, 3 << 20, 1, WEFT_I32);
    weft_tensor there = weft_to(weft_to(big, first), second);
    cr_assert_eq(weft_item_i64(weft_sum(weft_to(there, WEFT_CPU))),
                 (int64_t)(3 << 20) * ((3 << 20) - 1) / 2);
    gpu_check_races();
}

/* Each call of a copy failing once: the numbers, where there is another way, or an error that names the call; then it works. */
static void fail_each(int peers, const char *const *calls, int n, const char *const *may)
{
    open_two(1, peers, 67);
    const fake_driver *fake = fake_cuda(FAKE_LATE, 67);
    weft_tensor x = weft_mul(numbers(first), weft_f(2)), y = weft_to(x, second);
    check("before", weft_add(y, weft_f(1)), second, 2, 1);
    for (int i = 0; i < n; i++) {
        weft_scope s = weft_scope_begin();
        fake->fail(calls[i], 1, 801);
        weft_tensor z = weft_to(x, second);
        cr_assert_str_eq(fake->failed(), calls[i]);
        if (may[i]) {
            cr_assert_eq(weft_error_status(z), WEFT_EUNSUPPORTED);
            cr_assert(strstr(weft_error_text(z), may[i]) && strstr(weft_error_text(z), "WEFT_CPU"),
                      "%s", weft_error_text(z));
        } else {
            check(calls[i], z, second, 2, 0);
        }
        check("later", weft_to(x, second), second, 2, 0);
        check("the source", x, first, 2, 0);
        check("on the host", weft_to(x, WEFT_CPU), WEFT_CPU, 2, 0);
        weft_scope_end(s);
    }
}

Test(gpu_peers, failing_calls_of_a_direct_copy)
{
    /* The refusal of a direct copy goes another way from then on, so that it is the last. */
    static const char *const calls[] = {"cuEventRecord", "cuStreamWaitEvent", "cuMemcpyPeerAsync"};
    static const char *const may[] = {"cuEventRecord", "cuStreamWaitEvent", NULL};
    fail_each(1, calls, 3, may);
}

Test(gpu_peers, failing_calls_of_a_staged_copy)
{
    static const char *const calls[] = {"cuMemcpyDtoHAsync_v2", "cuEventRecord",
                                        "cuStreamWaitEvent", "cuMemcpyHtoDAsync_v2"};
    static const char *const may[] = {"cuMemcpyDtoHAsync", "cuEventRecord", "cuStreamWaitEvent",
                                      "cuMemcpyHtoDAsync"};
    fail_each(0, calls, 4, may);
}

Test(gpu_peers, access_is_asked_for_once_and_may_be_refused)
{
    open_two(1, 1, 68);
    const fake_driver *fake = fake_cuda(FAKE_LATE, 68);
    weft_tensor x = numbers(first);
    fake->fail("cuCtxEnablePeerAccess", 1, 711); /* too many peers */
    check("staged", weft_to(x, second), second, 1, 0);
    cr_assert_eq(fake->calls("cuMemcpyPeerAsync"), 0);
    check("the other way", weft_to(weft_to(x, second), first), first, 1, 0);
    check("the other way", weft_to(weft_to(x, second), first), first, 1, 0);
    cr_assert_eq(fake->calls("cuMemcpyPeerAsync"), 2);
    cr_assert_eq(fake->calls("cuCtxEnablePeerAccess"), 2);
    gpu_check_races();
}

/* A device that broke takes nobody with it. */
Test(gpu_peers, a_broken_peer)
{
    open_two(1, 1, 69);
    const fake_driver *fake = fake_cuda(FAKE_LATE, 69);
    weft_tensor x = numbers(first), y = numbers(second), bad = weft_mul(y, weft_f(2));
    weft_synchronize(first);
    weft_mul(x, weft_f(3));
    weft_synchronize(first);
    bad = weft_mul(y, weft_f(3));
    fake->break_device(700);
    cr_assert_eq(weft_synchronize(second), WEFT_EUNSUPPORTED);
    weft_tensor z = weft_to(x, second);
    cr_assert_eq(weft_error_status(z), WEFT_EUNSUPPORTED);
    cr_assert(strstr(weft_error_text(z), "cuda:1 stopped earlier"), "%s", weft_error_text(z));
    z = weft_to(bad, first);
    cr_assert(strstr(weft_error_text(z), "cuda:1 stopped earlier"), "%s", weft_error_text(z));
    check("the other device", weft_mul(x, weft_f(3)), first, 3, 0);
    check("the host", weft_mul(weft_to(x, WEFT_CPU), weft_f(3)), WEFT_CPU, 3, 0);
}

/* The checker sees a copy that nobody ordered behind what it reads. */
Test(gpu_peers, a_forgotten_wait_shows)
{
    open_two(1, 1, 70);
    const fake_driver *fake = fake_cuda(FAKE_LATE, 70);
    wf_why why = {0};
    weft_stream *s = weft_stream_new(first);
    wf_cuda_block *a = wf_cuda_alloc(0, N * 4, &why), *b = wf_cuda_alloc(1, N * 4, &why);
    cr_assert(a && b && s, "%s", why.rule);
    weft_stream_set(first, s);
    cr_assert(!wf_cuda_use(a, true, &why) && !wf_cuda_clear(0, a->address, N * 4, &why));
    weft_stream_set(first, NULL);
    cr_assert(!wf_cuda_use(b, true, &why) &&
              !wf_cuda_copy_across(1, b->address, 0, a->address, N * 4, &why));
    cr_assert_eq(fake->races(), 1, "nobody said that a is read");
    cr_assert(!wf_cuda_use(a, false, &why) && !wf_cuda_use(b, true, &why) &&
              !wf_cuda_copy_across(1, b->address, 0, a->address, N * 4, &why));
    cr_assert_eq(fake->races(), 1, "%s", fake->first_race());
    /* The stream has an event behind all of its work, from before it was told to wait for more. */
    weft_stream_set(first, s);
    cr_assert(!wf_cuda_use(a, true, &why) && !wf_cuda_clear(0, a->address, N * 4, &why));
    weft_stream_set(first, NULL);
    cr_assert(!wf_cuda_use(a, false, &why) && !wf_cuda_use(b, true, &why) &&
              !wf_cuda_copy_across(1, b->address, 0, a->address, N * 4, &why));
    cr_assert_eq(fake->races(), 1, "%s", fake->first_race());
    wf_cuda_free(a);
    wf_cuda_free(b);
}
#endif
