/*
 * tests/cuda/test_cuda_api.c -- weft/cuda.h on the fake driver: streams, events, waiting, memory, mistakes.
 * ctest: threads
 */
#include "tests/cuda/cuda_support.h"

#include <pthread.h>

#include "tests/support/support.h"
#include "weft/weft.h"

static wf_cuda_block *block(size_t n)
{
    wf_cuda_block *b = wf_cuda_alloc(0, n, &why);
    cr_assert(b, "%s", why.rule);
    return b;
}

Test(cuda_api, without_a_driver_everything_is_an_error_value)
{
    setenv("WEFT_CUDA_DRIVER", "none", 1);
    weft_device d = WEFT_CUDA(0);
    weft_cuda_info info;
    weft_cuda_memory m;
    double ms;
    cr_assert_eq(weft_cuda_count(), 0);
    cr_assert(strstr(weft_cuda_missing(d), "WEFT_CUDA_DRIVER is none"), "%s", weft_cuda_missing(d));
    cr_assert_str_eq(weft_cuda_missing(WEFT_CPU), "");
    check_status("info", weft_cuda_get_info(d, &info), WEFT_EUNSUPPORTED, "none");
    check_status("synchronize", weft_synchronize(d), WEFT_EUNSUPPORTED, "cuda:0");
    cr_assert_eq(weft_synchronize(WEFT_CPU), WEFT_OK);
    cr_assert_null(weft_stream_new(d));
    cr_assert_eq(weft_last_status(), WEFT_EUNSUPPORTED);
    cr_assert_null(weft_event_new(d));
    check_status("set", weft_stream_set(d, NULL), WEFT_EUNSUPPORTED, "cuda:0");
    cr_assert(!weft_stream_done(NULL) && !weft_event_done(NULL));
    check_status("stream", weft_stream_synchronize(NULL), WEFT_EINVALID, "NULL");
    check_status("event", weft_event_elapsed(NULL, NULL, &ms), WEFT_EINVALID, "NULL");
    check_status("memory", weft_cuda_get_memory(d, &m), WEFT_EUNSUPPORTED, "cuda:0");
    check_status("peak", weft_cuda_reset_peak(d), WEFT_EUNSUPPORTED, "cuda:0");
    check_status("cap", weft_cuda_set_cap(d, 1), WEFT_EUNSUPPORTED, "cuda:0");
    check_status("snapshot", weft_cuda_snapshot(d, stdout), WEFT_EUNSUPPORTED, "cuda:0");
    check_status("snapshot", weft_cuda_snapshot(d, NULL), WEFT_EINVALID, "out");
    cr_assert_eq(weft_cuda_empty_cache(d), -1);
    check_error("pinned", weft_pinned(weft_shape(4), WEFT_F32), WEFT_EUNSUPPORTED, "cuda:0");
    cr_assert(!weft_is_pinned(weft_ones(weft_shape(2), WEFT_F32)));
    cr_assert_eq(weft_stream_free(NULL), WEFT_OK);
    cr_assert_eq(weft_event_free(NULL), WEFT_OK);
}

Test(cuda_api, a_driver_that_does_not_open)
{
    setenv("WEFT_CUDA_DRIVER", "/nowhere/libcuda.so", 1);
    cr_assert(strstr(weft_cuda_missing(WEFT_CUDA(0)), "(/nowhere/libcuda.so) is not found"));
}

Test(cuda_api, a_library_that_is_no_driver)
{
    setenv("WEFT_CUDA_DRIVER", "libm.so.6", 1);
    cr_assert(strstr(weft_cuda_missing(WEFT_CUDA(0)), "lacks cu"), "%s",
              weft_cuda_missing(WEFT_CUDA(0)));
}

Test(cuda_api, wrong_devices_and_dead_handles)
{
    with_fake(FAKE_LATE, 1);
    weft_device d = WEFT_CUDA(0);
    check_status("cpu", weft_cuda_set_cap(WEFT_CPU, 0), WEFT_EINVALID, "cpu");
    check_status("no such", weft_synchronize(WEFT_CUDA(1)), WEFT_EUNSUPPORTED, "lists 1 device");
    check_status("no such", weft_synchronize(WEFT_CUDA(99)), WEFT_EINVALID, "invalid");
    weft_stream *s = weft_stream_new(d);
    weft_event *e = weft_event_new(d), *f = weft_event_new(d);
    double ms = -1;
    cr_assert(s && e && f);
    check_status("never recorded", weft_event_elapsed(e, f, &ms), WEFT_EINVALID, "never");
    cr_assert_eq(weft_event_wait(e), WEFT_OK);
    cr_assert(weft_event_done(e));
    cr_assert_eq(weft_stream_free(s), WEFT_OK);
    check_status("freed", weft_stream_free(s), WEFT_EHANDLE, "freed");
    check_status("freed", weft_stream_set(d, s), WEFT_EHANDLE, "freed");
    cr_assert(!weft_stream_done(s));
    cr_assert_eq(weft_event_free(e), WEFT_OK);
    check_status("freed", weft_event_free(e), WEFT_EHANDLE, "freed");
    check_status("freed", weft_event_record(e), WEFT_EHANDLE, "freed");
    check_status("freed", weft_event_elapsed(f, e, &ms), WEFT_EHANDLE, "freed");
    cr_assert_eq(weft_event_free(f), WEFT_OK);
    weft_stream *all[64];
    int n = 0;
    while (n < 64 && (all[n] = weft_stream_new(d))) {
        n++;
    }
    cr_assert_eq(n, 63);
    cr_assert(strstr(weft_last_error(), "64 streams"), "%s", weft_last_error());
    while (n) {
        cr_assert_eq(weft_stream_free(all[--n]), WEFT_OK);
    }
    close_fake();
}

Test(cuda_api, streams_run_beside_each_other_and_events_between)
{
    with_fake(FAKE_LATE, 1);
    weft_device d = WEFT_CUDA(0);
    weft_stream *s = weft_stream_new(d);
    weft_event *e = weft_event_new(d), *f = weft_event_new(d);
    wf_cuda_block *a = block(4000), *b = block(4000);
    cr_assert_null(weft_stream_current(d));
    OK(weft_event_record(e));
    OK(run_fill(a, 1000, 1));
    OK(weft_stream_set(d, s));
    cr_assert(weft_stream_current(d) == s);
    OK(run_fill(b, 1000, 2));
    OK(weft_event_record(f));
    cr_assert(!weft_event_done(f) && !weft_stream_done(s) && gpu->queued() == 4);
    OK(weft_event_synchronize(f));
    cr_assert(weft_event_done(f) && weft_stream_done(s) && gpu->queued() == 2);
    OK(weft_stream_set(d, NULL));
    OK(weft_event_wait(f));
    OK(weft_event_record(f));
    double ms = -1;
    OK(weft_event_elapsed(e, f, &ms));
    cr_assert(ms > 0);
    OK(weft_synchronize(d));
    cr_assert_eq(gpu->queued(), 0);
    weft_cuda_counters c;
    weft_cuda_get_counters(&c);
    cr_assert(c.launches == 2 && c.hidden_waits == 0 && c.waits == 3);
    wf_cuda_free(a);
    wf_cuda_free(b);
    OK(weft_event_free(e));
    OK(weft_event_free(f));
    OK(weft_stream_free(s));
    close_fake();
}

Test(cuda_api, memory_in_numbers_and_on_paper)
{
    with_fake(FAKE_LATE, 1);
    weft_device d = WEFT_CUDA(0);
    weft_cuda_memory m;
    wf_cuda_block *a = block(1000);
    OK(weft_cuda_get_memory(d, &m));
    cr_assert(m.live_bytes == 1024 && m.asked_bytes == 1000 && m.live_blocks == 1);
    cr_assert(m.reserved_bytes == 2 << 20 && m.largest_free == (2 << 20) - 1024);
    char text[2000] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    OK(weft_cuda_snapshot(d, f));
    fclose(f);
    cr_assert(strstr(text, "1024  live") && strstr(text, "2096128  free") && strstr(text, "hole"),
              "%s", text);
    wf_cuda_free(a);
    OK(weft_cuda_get_memory(d, &m));
    cr_assert(m.live_bytes == 0 && m.peak_bytes == 1024);
    OK(weft_cuda_reset_peak(d));
    OK(weft_cuda_get_memory(d, &m));
    cr_assert_eq(m.peak_bytes, 0);
    cr_assert_eq(weft_cuda_empty_cache(d), 2 << 20);
    OK(weft_cuda_set_cap(d, 1 << 20));
    cr_assert_null(wf_cuda_alloc(0, 100, &why));
    cr_assert(strstr(weft_cuda_oom_report(), "cap                  1.00 MiB"));
    OK(weft_cuda_set_cap(d, 0));
    close_fake();
}

Test(cuda_api, pinned_tensors)
{
    with_fake(FAKE_LATE, 1);
    weft_scope s = weft_scope_begin();
    weft_tensor t = weft_pinned(weft_shape(100, 3), WEFT_F32);
    check_type("pinned", t, WEFT_F32, weft_shape(100, 3));
    cr_assert(weft_is_pinned(t) && !weft_is_pinned(weft_ones(weft_shape(2), WEFT_F32)));
    cr_assert_eq(weft_fill_(t, 3), WEFT_OK);
    cr_assert_eq(weft_item_f64(weft_sum(t)), 900);
    const void *at = weft_data(t);
    int64_t pins = gpu->calls("cuMemHostAlloc");
    weft_free(t);
    cr_assert(weft_data(weft_pinned(weft_shape(300), WEFT_F32)) == at, "the memory is cached");
    cr_assert_eq(gpu->calls("cuMemHostAlloc"), pins);
    weft_pinned(weft_shape(0), WEFT_I64);
    check_error("too large", weft_pinned(weft_shape(1 << 30, 1 << 30, 1 << 30), WEFT_F32),
                WEFT_ENOMEM, "pinned");
    check_error("no type", weft_pinned(weft_shape(1), (weft_dtype)77), WEFT_EDTYPE, "pinned");
    weft_scope_end(s);
    weft_cuda_empty_cache(WEFT_CUDA(0));
    cr_assert_eq(gpu->alive("host"), 0);
    close_fake();
}

Test(cuda_api, pinned_tensors_are_read_where_they_lie)
{
    with_fake(FAKE_LATE, 1);
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_pinned(weft_shape(50, 20), WEFT_F32);
    weft_fill_(x, 3);
    weft_tensor y = weft_to_async(x, WEFT_CUDA(0)), z = weft_to(x, WEFT_CUDA(0));
    weft_event *e = weft_event_new(WEFT_CUDA(0));
    OK(weft_event_record(e));
    weft_fill_(x,
               4); /* too early: what was promised not to be done shows that nothing was copied */
    const void *at = weft_data(x);
    weft_free(x);
    cr_assert(weft_data(weft_pinned(weft_shape(50, 20), WEFT_F32)) != at, "it is still to be read");
    OK(weft_event_synchronize(e));
    float got[1000];
    OK(weft_to_array(y, got, 1000, WEFT_F32));
    cr_assert_eq(got[999], 4);
    OK(weft_to_array(z, got, 1000, WEFT_F32));
    cr_assert_eq(got[999], 3);
    cr_assert(weft_data(weft_pinned(weft_shape(50, 20), WEFT_F32)) == at, "read");
    OK(weft_event_free(e));
    check_error("dead", weft_to_async(x, WEFT_CUDA(0)), WEFT_EHANDLE, "dead");
    weft_scope_end(s);
    weft_cuda_empty_cache(WEFT_CUDA(0));
    close_fake();
}

/* A read into pinned memory needs no stage: the driver is given no further pinned memory for it. */
Test(cuda_api, pinned_tensors_are_written_where_they_lie)
{
    with_fake(FAKE_RANDOM, 2);
    weft_scope s = weft_scope_begin();
    weft_tensor h = weft_pinned(weft_shape(50, 20), WEFT_F32);
    weft_tensor x = weft_to(weft_full(weft_shape(50, 20), 6, WEFT_F32), WEFT_CUDA(0));
    int64_t pinned = gpu->alive("host");
    weft_cuda_counters before, after;
    weft_cuda_get_counters(&before);
    float *got = weft_data_mut(h);
    OK(weft_to_array(x, got, 1000, WEFT_F32));
    weft_cuda_get_counters(&after);
    cr_assert(after.copies_out == before.copies_out + 1 &&
              after.hidden_waits == before.hidden_waits);
    cr_assert_eq(gpu->alive("host"), pinned);
    cr_assert(got[0] == 6 && got[999] == 6, "%g", (double)got[0]);
    gpu->fail("cuMemcpyDtoHAsync_v2", 1, 801);
    cr_assert_neq(weft_to_array(x, got, 1000, WEFT_F32), WEFT_OK);
    OK(weft_to_array(x, got, 1000, WEFT_F32));
    weft_scope_end(s);
    weft_cuda_empty_cache(WEFT_CUDA(0));
    close_fake();
}

typedef struct reader {
    weft_tensor h;
    double sum;
} reader;

static void *read_all(void *arg)
{
    reader *r = arg;
    float v[1000];
    weft_to_array(r->h, v, 1000, WEFT_F32);
    for (int i = 0; i < 1000; i++) {
        r->sum += (double)v[i];
    }
    return NULL;
}

/* tests/gpu/test_gpu_copies.c has who else waits for copies to the host. */
Test(cuda_api, several_threads_wait_for_a_copy)
{
    enum { READERS = 4, ROUNDS = 10 };
    with_fake(FAKE_LATE, 3);
    for (int round = 0; round < ROUNDS; round++) {
        weft_scope s = weft_scope_begin();
        weft_tensor x = weft_to(weft_full(weft_shape(1000), round, WEFT_F32), WEFT_CUDA(0));
        weft_tensor h = weft_keep(weft_to_async(x, WEFT_CPU));
        pthread_t t[READERS];
        reader r[READERS];
        cr_assert(gpu->queued() > 0);
        for (int i = 0; i < READERS; i++) {
            r[i] = (reader){.h = h};
            cr_assert_eq(pthread_create(&t[i], NULL, read_all, &r[i]), 0);
        }
        for (int i = 0; i < READERS; i++) {
            pthread_join(t[i], NULL);
            cr_assert_eq(r[i].sum, 1000 * round);
        }
        weft_free(h);
        weft_scope_end(s);
    }
    weft_cuda_empty_cache(WEFT_CUDA(0));
    close_fake();
}

Test(cuda_api, the_report_names_the_tensors)
{
    gpu = fake_cuda(FAKE_LATE, 1);
    gpu->reset(1, 64 << 20);
    weft_scope s = weft_scope_begin();
    weft_tensor a = weft_to(weft_ones(weft_shape(512, 1024), WEFT_F32), WEFT_CUDA(0));
    weft_tensor b = weft_to(weft_ones(weft_shape(1024, 1024), WEFT_F32), WEFT_CUDA(0));
    weft_set_name(a, "small");
    weft_keep(b);
    weft_set_name(b, "large");
    weft_reshape(b, weft_shape(-1));
    cr_assert(weft_ok(a) && weft_ok(b), "%s", weft_last_error());
    weft_tensor c = weft_to(weft_ones(weft_shape(32 << 20), WEFT_U8), WEFT_CUDA(0));
    cr_assert(weft_ok(c));
    weft_tensor d = weft_to(weft_ones(weft_shape(48 << 20), WEFT_U8), WEFT_CUDA(0));
    check_error("no memory", d, WEFT_ENOMEM, "48.00 MiB");
    const char *text = weft_cuda_oom_report();
    const char *u8 = strstr(text, "u8[33554432]"), *large = strstr(text, "'large'"),
               *small = strstr(text, "'small'");
    cr_assert(u8 && large && small && u8 < large && large < small, "%s", text);
    cr_assert(strstr(text, "test_cuda_api.c:"), "%s", text);
    cr_assert(strstr(large, "f32[1048576]") == NULL, "a view of what is listed: %s", text);
    weft_free(b);
    weft_scope_end(s);
    close_fake();
}

Test(cuda_api, doctor)
{
    with_fake(FAKE_LATE, 1);
    char text[20000] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    weft_doctor(f);
    fclose(f);
    cr_assert(strstr(text, "Fake GPU 0, sm_90, 1.0 GiB, 4 processors, driver 13.0"), "%s", text);
    cr_assert(strstr(text, "cuBLASLt is not found: weft's own kernels") &&
                  strstr(text, "cuDNN 9 is not found: weft's own kernels"),
              "%s", text);
    close_fake();
}

/* -- threads ---------------------------------------------------------------------------------------- */

enum { THREADS = 4, STEPS = 150, N = 256 };
typedef struct worker {
    int id;
    wf_cuda_block *shared;
    wf_cuda_fn *fill, *add;
    bool ok;
} worker;

static bool step(worker *w, int k, wf_why *mine)
{
    int32_t value = w->id * 1000 + k, got[N];
    int64_t n = N;
    wf_cuda_block *a = wf_cuda_alloc(0, N * 4, mine), *b = a ? wf_cuda_alloc(0, N * 4, mine) : NULL;
    bool ok = b != NULL;
    if (ok) {
        void *fill[] = {&a->address, &n, &value};
        void *add[] = {&b->address, &a->address, &w->shared->address, &n};
        ok = !wf_cuda_use(a, true, mine) &&
             !wf_cuda_launch(w->fill, one_block, one_block, 0, fill, mine) &&
             !wf_cuda_use(a, false, mine) && !wf_cuda_use(w->shared, false, mine) &&
             !wf_cuda_use(b, true, mine) &&
             !wf_cuda_launch(w->add, one_block, one_block, 0, add, mine) &&
             !wf_cuda_download(0, got, b->address, sizeof got, mine) && got[0] == value + 5 &&
             got[N - 1] == value + 5;
    }
    wf_cuda_free(a);
    wf_cuda_free(b);
    return ok;
}

static void *work(void *arg)
{
    worker *w = arg;
    wf_why mine = {0};
    weft_stream *s = weft_stream_new(WEFT_CUDA(0));
    w->ok = s && weft_stream_set(WEFT_CUDA(0), w->id % 2 ? s : NULL) == WEFT_OK;
    for (int k = 0; w->ok && k < STEPS; k++) {
        w->ok = step(w, k, &mine);
    }
    w->ok &= weft_stream_free(s) == WEFT_OK;
    return NULL;
}

Test(cuda_api, threads_on_streams_of_their_own_and_a_shared_one)
{
    with_fake(FAKE_RANDOM, 11);
    wf_cuda_block *shared = block(N * 4);
    OK(run_fill(shared, N, 5));
    worker w[THREADS];
    pthread_t t[THREADS];
    wf_cuda_fn *fill = fake_kernel("fill_i32"), *add = fake_kernel("add_i32");
    for (int i = 0; i < THREADS; i++) {
        w[i] = (worker){.id = i, .shared = shared, .fill = fill, .add = add};
        cr_assert_eq(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        cr_assert(w[i].ok, "thread %d", i);
    }
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
    wf_cuda_free(shared);
    close_fake();
}
