/*
 * tests/cuda/test_cuda_memory.c -- the caching allocator on the fake driver: pools, caps, reports, failures.
 */
#include "tests/cuda/cuda_support.h"
#include "weft/cuda.h"

#define MIB ((size_t)1 << 20)

static wf_cuda_block *block(size_t n)
{
    wf_cuda_block *b = wf_cuda_alloc(0, n, &why);
    cr_assert(b, "%s", why.rule);
    return b;
}

Test(cuda_memory, a_step_repeated_asks_the_driver_for_nothing)
{
    for (int vm = 0; vm < 2; vm++) {
        gpu = fake_cuda(FAKE_LATE, 1);
        gpu->vm(vm);
        OK(wf_cuda_open(0, &why));
        cr_assert_eq(wf_cuda_get_info(0)->expandable, vm);
        int64_t calls = 0;
        for (int step = 0; step < 4; step++) {
            wf_cuda_block *b[50];
            for (int i = 0; i < 50; i++) {
                b[i] = block((size_t)(i * 37 % 50 + 1) * 40000);
                OK(run_fill(b[i], 100, i));
            }
            for (int i = 0; i < 50; i++) {
                wf_cuda_free(b[i]);
            }
            int64_t now = gpu->calls("cuMemAlloc_v2") + gpu->calls("cuMemCreate") +
                          gpu->calls("cuMemFree_v2") + gpu->calls("cuMemUnmap");
            cr_assert(step < 1 || now == calls);
            calls = now;
        }
        wf_cuda_memory m;
        wf_cuda_get_memory(0, &m);
        cr_assert(m.live_bytes == 0 && m.reserved_bytes > 0 && m.peak_bytes > 0);
        cr_assert_eq((size_t)m.reserved_bytes, gpu->bytes(0));
        wf_cuda_counters c;
        wf_cuda_get_counters(&c);
        cr_assert(c.hidden_waits == 0 && c.waits == 0, "nothing waited");
        cr_assert_eq(wf_cuda_trim(0), m.reserved_bytes);
        cr_assert_eq(gpu->bytes(0), 0);
        wf_cuda_module_free(fake_module);
        fake_module = NULL;
        OK(wf_cuda_close(0, &why));
        cr_assert_eq(gpu->alive(NULL) - gpu->alive("function"), 0);
        memset(&wf_cuda_count_of, 0, sizeof wf_cuda_count_of);
    }
}

static int live_tensors(int ordinal, wf_cuda_live *top, int n)
{
    cr_assert(ordinal == 0 && n == 10);
    top[0] = (wf_cuda_live){300 << 20, "f32[75,1024,1024] \"activations\" model.c:41"};
    top[1] = (wf_cuda_live){512, "i64[64] train.c:9"};
    return 2;
}

Test(cuda_memory, the_report_of_memory_that_is_not_there)
{
    gpu = fake_cuda(FAKE_LATE, 1);
    gpu->reset(1, 512 * MIB);
    wf_cuda_set_live(live_tensors);
    cr_assert_str_eq(wf_cuda_oom_text(), "");
    wf_cuda_block *a = block(300 * MIB), *b = block(64 * MIB);
    wf_cuda_free(b);
    cr_assert_null(wf_cuda_alloc(0, 400 * MIB, &why));
    cr_assert_eq(why.code, WEFT_ENOMEM);
    cr_assert_str_eq(why.rule,
                     "cuda:0 has no 400.00 MiB left: 208.00 MiB of 512.00 MiB are free, weft "
                     "holds 304.00 MiB (300.00 MiB in use, largest cached block 4.00 MiB)");
    cr_assert(strstr(why.hint, "smaller"), "%s", why.hint);
    cr_assert_str_eq(
        wf_cuda_oom_text(),
        "out of memory on cuda:0 (Fake GPU 0)\n"
        "requested            400.00 MiB\n"
        "free on the device   208.00 MiB of 512.00 MiB\n"
        "held by weft         304.00 MiB: 300.00 MiB in use, 4.00 MiB cached\n"
        "largest cached       4.00 MiB (0 % of what is cached is in smaller pieces)\n"
        "held by others       0 bytes\n"
        "largest tensors\n"
        "    300.00 MiB  f32[75,1024,1024] \"activations\" model.c:41\n"
        "     512 bytes  i64[64] train.c:9\n"
        "what to do: make the batch smaller, free what is not needed, or use a smaller "
        "type (f16, bf16)\n");
    OK(wf_cuda_set_cap(0, (int64_t)(310 * MIB), &why));
    cr_assert_null(wf_cuda_alloc(0, 20 * MIB, &why));
    cr_assert(strstr(why.hint, "cap") && strstr(wf_cuda_oom_text(), "310.00 MiB"), "%s", why.hint);
    /* there is room for the request, but not for the piece of memory that the driver gives */
    OK(wf_cuda_set_cap(0, (int64_t)(304 * MIB) + 1000, &why));
    cr_assert_null(wf_cuda_alloc(0, 500, &why));
    cr_assert(strstr(why.rule, "no 500 bytes left below its cap of 304.00 MiB: ") &&
                  strstr(why.hint, "raise the cap"),
              "%s; %s", why.rule, why.hint);
    cr_assert_eq(wf_cuda_set_cap(0, -1, &why), WEFT_EINVALID);
    OK(wf_cuda_set_cap(0, 0, &why));
    wf_cuda_free(block(100 * MIB));
    wf_cuda_free(a);
    cr_assert_null(wf_cuda_alloc(0, SIZE_MAX, &why));
    cr_assert_eq(why.code, WEFT_ENOMEM);
    close_fake();
}

/* WEFT_CUDA_CAP and WEFT_CUDA_EXPANDABLE. */
static void check_environment(const char *expandable)
{
    setenv("WEFT_CUDA_CAP", "64M", 1);
    setenv("WEFT_CUDA_EXPANDABLE", expandable, 1);
    with_fake(FAKE_LATE, 1);
    const bool pieces = *expandable == '1';
    cr_assert_eq(wf_cuda_get_info(0)->expandable, pieces);
    wf_cuda_block *a = block(40 * MIB);
    cr_assert_eq(gpu->calls("cuMemAlloc_v2") > 0, !pieces);
    cr_assert_null(wf_cuda_alloc(0, 40 * MIB, &why));
    cr_assert(strstr(why.rule, "below its cap of 64.00 MiB") && strstr(why.hint, "WEFT_CUDA_CAP"),
              "%s; %s", why.rule, why.hint);
    cr_assert_leq(gpu->bytes(0), 64 * MIB);
    wf_cuda_free(a);
    close_fake();
}

Test(cuda_memory, the_environment_caps_it)
{
    check_environment("1");
}

Test(cuda_memory, the_environment_asks_for_segments)
{
    check_environment("0");
}

/* Of the fake device, whose addresses are checked: a pool of the program's own. */
typedef struct own {
    int64_t given, released, held;
    bool none, crooked;
} own;

static void *own_allocate(void *user, size_t bytes, size_t alignment)
{
    own *o = user;
    cu_address p = 0;
    cr_assert_eq(alignment, 512);
    if (o->none || wf_cu->memory_alloc(&p, bytes) != CU_OK) {
        return NULL;
    }
    o->given++;
    o->held += (int64_t)bytes;
    return (void *)(uintptr_t)(p + (o->crooked ? 8 : 0));
}

static void own_release(void *user, void *p, size_t bytes)
{
    own *o = user;
    o->released++;
    o->held -= (int64_t)bytes;
    wf_cu->memory_free((cu_address)(uintptr_t)p - (o->crooked ? 8 : 0));
}

Test(cuda_memory, segments_of_the_programs_own)
{
    for (int vm = 0; vm < 2; vm++) {
        gpu = fake_cuda(FAKE_LATE, 1);
        gpu->vm(vm);
        own o = {0};
        const weft_allocator a = {own_allocate, own_release, &o}, half = {own_allocate, NULL, &o};
        const weft_device d = WEFT_CUDA(0);
        OK(wf_cuda_open(0, &why));
        OK(weft_cuda_set_cap(d, 64 << 20));
        cr_assert_eq(weft_cuda_set_allocator(d, &half), WEFT_EINVALID);
        cr_assert_eq(weft_cuda_set_allocator(WEFT_CPU, &a), WEFT_EINVALID);
        const bool maps = wf_cuda_peek(0)->maps;
        wf_alloc_fail_after(1, 1); /* nothing has changed: the cap neither */
        cr_assert_eq(weft_cuda_set_allocator(d, &a), WEFT_ENOMEM);
        wf_alloc_fail_after(0, 0);
        cr_assert_eq(wf_cuda_peek(0)->maps, maps);
        cr_assert_null(wf_cuda_alloc(0, 65 << 20, &why));
        OK(weft_cuda_set_allocator(d, &a));
        wf_cuda_block *b[8];
        const int64_t tried = gpu->calls("cuMemCreate");
        for (int i = 0; i < 8; i++) {
            b[i] = block(100000 * (size_t)(i * i + 1));
            OK(run_fill(b[i], 100, i));
        }
        cr_assert_eq(gpu->calls("cuMemCreate"), tried);
        cr_assert(o.given > 0 && o.held == (int64_t)gpu->bytes(0));
        cr_assert_eq(weft_cuda_set_allocator(d, NULL), WEFT_EINVALID);
        cr_assert(strstr(weft_last_error(), "cuda:0 holds memory"), "%s", weft_last_error());
        cr_assert_null(wf_cuda_alloc(0, 64 << 20, &why), "the cap is still there");
        const int64_t given = o.given;
        o.none = true;
        cr_assert_null(wf_cuda_alloc(0, 30 << 20, &why));
        cr_assert_eq(why.code, WEFT_ENOMEM);
        cr_assert(strstr(why.hint, "weft_cuda_set_allocator"), "%s", why.hint);
        weft_cuda_info info;
        OK(weft_cuda_get_info(d, &info));
        cr_assert_not(info.expandable);
        char text[20000] = "";
        FILE *f = fmemopen(text, sizeof text, "w");
        weft_doctor(f);
        fclose(f);
        cr_assert(strstr(text, "driver 13.0, memory in fixed segments"), "%s", text);
        o.none = false;
        cr_assert_eq(o.given, given);
        for (int i = 0; i < 8; i++) {
            wf_cuda_free(b[i]);
        }
        wf_cuda_trim(0);
        cr_assert(o.given == o.released && o.held == 0);
        o.crooked = true;
        cr_assert_null(wf_cuda_alloc(0, MIB, &why));
        cr_assert(o.given > given && o.given == o.released && o.held == 0);
        OK(weft_cuda_set_allocator(d, NULL));
        OK(weft_cuda_get_info(d, &info));
        cr_assert_eq(info.expandable, vm);
        wf_cuda_free(block(MIB));
        cr_assert_eq(o.given, o.released);
        wf_cuda_module_free(fake_module);
        fake_module = NULL;
        OK(wf_cuda_close(0, &why));
        memset(&wf_cuda_count_of, 0, sizeof wf_cuda_count_of);
    }
}

Test(cuda_memory, a_block_used_by_another_stream_is_reused_behind_it)
{
    const int orders[] = {FAKE_LATE, FAKE_RANDOM};
    for (int seed = 0; seed < 40; seed++) {
        with_fake(orders[seed % 2], (uint64_t)seed);
        wf_cuda_device *d = wf_cuda_enter(0, &why);
        wf_cuda_stream *side = wf_cuda_stream_take(d, &why);
        cr_assert(side, "%s", why.rule);
        enum { N = 1000 };
        wf_cuda_block *a = block(N * 4), *out = block(N * 4);
        void *was = a->address;
        OK(run_fill(a, N, 1));
        wf_cuda_set_current(d, side);
        OK(run_add(out, a, a, N, true)); /* 2, on the side stream */
        wf_cuda_set_current(d, NULL);
        wf_cuda_free(a);
        wf_cuda_block *b = block(N * 4);
        cr_assert_eq(b->address, was, "reused at once");
        OK(run_fill(b, N, 100)); /* must not overtake the reading */
        static int32_t got[N];
        OK(wf_cuda_use(out, false, &why));
        OK(wf_cuda_download(0, got, out->address, sizeof got, &why));
        cr_assert(got[0] == 2 && got[N - 1] == 2, "seed %d: %d", seed, got[0]);
        cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
        wf_cuda_free(b);
        wf_cuda_free(out);
        wf_cuda_stream_give(side);
        close_fake();
    }
}

Test(cuda_memory, a_forgotten_wait_is_found)
{
    int wrong = 0;
    for (int seed = 0; seed < 40; seed++) {
        gpu = fake_cuda(FAKE_RANDOM, (uint64_t)seed);
        gpu->reset(1, 0);
        with_fake(FAKE_RANDOM, (uint64_t)seed);
        wf_cuda_device *d = wf_cuda_enter(0, &why);
        wf_cuda_stream *side = wf_cuda_stream_take(d, &why);
        cr_assert(side, "%s", why.rule);
        enum { N = 100 };
        wf_cuda_block *a = block(N * 4), *b = block(N * 4), *out = block(N * 4);
        OK(run_fill(b, N, 1));
        OK(run_fill(a, N, 7));
        wf_cuda_set_current(d, side);
        OK(run_add(out, a, b, N, seed < 20));
        int32_t got[N];
        OK(wf_cuda_download(0, got, out->address, sizeof got, &why));
        wf_cuda_set_current(d, NULL);
        wrong += got[N - 1] != 8;
        cr_assert(seed >= 20 || got[N - 1] == 8);
        /* Whatever came out: b was waited for after a was queued, which orders a as well. */
        cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
        OK(run_fill(a, N, 9));
        wf_cuda_set_current(d, side);
        OK(run_add(out, a, b, N, seed < 20));
        wf_cuda_set_current(d, NULL);
        cr_assert_eq(gpu->races() > 0, seed >= 20, "seed %d: %s", seed, gpu->first_race());
        if (seed >= 20) {
            cr_assert(strstr(gpu->first_race(), "add_i32") && strstr(gpu->first_race(), "fill_i32"),
                      "%s", gpu->first_race());
        }
        wf_cuda_free(a);
        wf_cuda_free(b);
        wf_cuda_free(out);
        wf_cuda_stream_give(side);
        close_fake();
    }
    cr_assert_eq(wrong, 0);
}

/* Everything the runtime does, once. 0, or the first error. */
static int scenario(void)
{
    enum { N = 2000 };
    static int32_t host[N], big[(1 << 20) + 4096];
    int code = wf_cuda_open(0, &why);
    wf_cuda_block *a = code ? NULL : wf_cuda_alloc(0, sizeof host, &why);
    wf_cuda_block *b = a ? wf_cuda_alloc(0, sizeof host, &why) : NULL;
    wf_cuda_block *c = b ? wf_cuda_alloc(0, sizeof big, &why) : NULL;
    wf_cuda_device *d = c ? wf_cuda_enter(0, &why) : NULL;
    wf_cuda_stream *side = d ? wf_cuda_stream_take(d, &why) : NULL;
    void *word = NULL;
    code = side ? run_fill(a, N, 3) : why.code ? why.code : -1;
    if (!code) {
        wf_cuda_set_current(d, side);
        code = run_add(b, a, a, N, true);
        code = code ? code : wf_cuda_upload(0, c->address, big, sizeof big, &why);
        code = code ? code : wf_cuda_error_word(0, WF_OP_ADD, NULL, 5, NULL, 0, &word, &why);
        wf_cuda_set_current(d, NULL);
    }
    wf_cuda_free(a);
    a = code ? NULL : wf_cuda_alloc(0, sizeof host, &why);
    code = a ? run_fill(a, N, 4) : code ? code : why.code;
    code = code ? code : wf_cuda_use(b, false, &why);
    code = code ? code : wf_cuda_clear(0, a->address, 64, &why);
    code = code ? code : wf_cuda_move(0, (char *)a->address + 4096, b->address, 64, &why);
    code = code ? code : wf_cuda_download(0, host, b->address, sizeof host, &why);
    cr_assert(code || host[N - 1] == 6);
    code = code ? code : wf_cuda_download(0, big, c->address, sizeof big, &why);
    code = code ? code : wf_cuda_synchronize(0, &why);
    wf_cuda_free(a);
    wf_cuda_free(b);
    wf_cuda_free(c);
    if (side) {
        wf_cuda_stream_give(side);
    }
    wf_cuda_trim(0);
    wf_cuda_module_free(fake_module);
    fake_module = NULL;
    return code;
}

/* What refuses to be given back is lost, whatever the runtime does. */
static bool gives_back(const char *symbol)
{
    return strstr(symbol, "Free") || strstr(symbol, "Destroy") || strstr(symbol, "Release") ||
           strstr(symbol, "Unload") || strstr(symbol, "Unmap");
}

static void fail_each(int result, bool vm)
{
    int64_t failed = 0, n;
    for (n = 1; n < 2000; n++) {
        gpu->reset(1, 0);
        gpu->vm(vm);
        memset(&why, 0, sizeof why);
        gpu->fail(NULL, n, result);
        int code = scenario();
        cr_assert(code >= 0 && (!code || why.rule[0]), "call %d: an error without a text", (int)n);
        failed += code != 0;
        wf_cuda_close(0, &why);
        wf_cuda_close(0, &why); /* again, where the failure hit the first time */
        const char *met = gpu->failed();
        gpu->fail(NULL, 0, 0);
        cr_assert(gives_back(met) || gpu->alive(NULL) == gpu->alive("function"),
                  "call %d, %s, leaks (%d, %s)", (int)n, met, code, why.rule);
        if (!*met) {
            break;
        }
    }
    cr_assert(n > 40 && n < 2000 && failed > n / 3, "%d calls, %d failed", (int)n, (int)failed);
}

Test(cuda_memory, every_call_failing_is_an_error_value_and_no_leak)
{
    gpu = fake_cuda(FAKE_RANDOM, 3);
    wf_cuda_count();
    fail_each(2, 1);   /* out of memory */
    fail_each(400, 1); /* invalid handle */
    fail_each(801, 0); /* not supported */
}

/* For compute-sanitizer: memory of its exact size each, so that what goes past the end of a tensor meets no other. */
Test(cuda_memory, an_allocation_each)
{
    setenv("WEFT_CUDA_MEMCHECK", "1", 1);
    for (int seed = 0; seed < 12; seed++) {
        with_fake(seed % 2 ? FAKE_RANDOM : FAKE_LATE, (uint64_t)seed);
        wf_cuda_device *d = wf_cuda_enter(0, &why);
        wf_cuda_stream *side = wf_cuda_stream_take(d, &why);
        wf_cuda_memory m;
        enum { N = 25 };
        wf_cuda_block *a = block(N * 4), *b = block(N * 4), *out = block(N * 4);
        cr_assert_eq(gpu->alive("memory"), 3);
        cr_assert_eq(gpu->bytes(0), 3 * (64 << 10), "%zu", gpu->bytes(0)); /* the fake's unit */
        OK(run_fill(a, N, 20));
        OK(run_fill(b, N, 1));
        wf_cuda_set_current(d, side);
        OK(run_add(out, a, b, N, true));
        wf_cuda_free(a); /* still read */
        wf_cuda_set_current(d, NULL);
        wf_cuda_block *c = block(N * 4);
        OK(run_fill(c, N, 99));
        int32_t got[N];
        OK(wf_cuda_use(out, false, &why));
        OK(wf_cuda_download(0, got, out->address, sizeof got, &why));
        cr_assert(got[0] == 21 && got[N - 1] == 21, "%d", got[0]);
        cr_assert_eq(gpu->alive("memory"), 3);
        wf_cuda_get_memory(0, &m);
        cr_assert_eq(m.live_blocks, 3);
        wf_cuda_free(b);
        wf_cuda_free(c);
        wf_cuda_free(out);
        wf_cuda_get_memory(0, &m);
        cr_assert(m.live_blocks == 0 && m.reserved_bytes == 0 && gpu->alive("memory") == 0);
        wf_cuda_stream_give(side);
        if (seed ==
            11) { /* past the end, by more than the fake's unit: a fault here, and none in a pool */
            c = block(N * 4);
            OK(wf_cuda_use(c, true, &why));
            cr_assert_neq(wf_cuda_clear(0, c->address, 70000, &why), 0);
            wf_cuda_free(c);
        }
        cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
        close_fake();
    }
}

/* What a graph that is gone has left is given back before there is no memory. */
Test(cuda_memory, an_allocation_each_after_a_graph)
{
    setenv("WEFT_CUDA_MEMCHECK", "1", 1);
    with_fake(FAKE_LATE, 1);
    wf_cuda_graph *g = NULL;
    wf_cuda_memory m;
    enum { N = 1 << 16 };
    OK(wf_cuda_capture_begin(0, &why));
    wf_cuda_block *inside = block(N * 4);
    OK(run_fill(inside, N, 7));
    wf_cuda_free(inside);
    OK(wf_cuda_capture_end(0, false, &g, &why));
    OK(wf_cuda_graph_launch(g, &why));
    wf_cuda_graph_free(g);
    wf_cuda_get_memory(0, &m);
    cr_assert(m.live_blocks == 0 && m.reserved_bytes >= N * 4);
    OK(wf_cuda_set_cap(0, m.reserved_bytes, &why));
    wf_cuda_block *b = block(N * 4);
    wf_cuda_get_memory(0, &m);
    cr_assert_eq(m.retries, 1);
    wf_cuda_free(b);
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
    close_fake();
}

/* A copy to the host that was waited for when it was queued, since no event was to be had, tells what the device found, too. */
Test(cuda_memory, an_arrival_without_an_event_tells_errors)
{
    static const char *const calls[] = {"cuEventCreate", "cuEventRecord"};
    for (int i = 0; i < 2; i++) {
        with_fake(FAKE_LATE, 1);
        wf_cuda_fn *store = fake_kernel("store_i64");
        wf_cuda_block *b = wf_cuda_alloc(0, 64, &why);
        void *word = NULL, *host = wf_cuda_host_alloc(0, 64);
        int64_t bad = 42;
        cr_assert(b && host);
        OK(wf_cuda_error_word(0, WF_OP_ADD, "here.c:1", 10, NULL, 0, &word, &why));
        void *params[] = {&word, &bad};
        OK(wf_cuda_launch(store, one_block, one_block, 0, params, &why));
        gpu->fail(calls[i], 1, 2);
        OK(wf_cuda_download_later(0, host, b->address, 64, &why));
        cr_assert_str_eq(gpu->failed(), calls[i]);
        cr_assert_eq(wf_cuda_arrive(host, &why), WEFT_EINDEX, "%s", calls[i]);
        cr_assert(strstr(why.rule, "42") && strstr(why.rule, "here.c:1"), "%s", why.rule);
        OK(wf_cuda_arrive(host, &why)); /* once */
        wf_cuda_pinned_free(host);
        wf_cuda_free(b);
        close_fake();
    }
}
