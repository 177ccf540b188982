/*
 * tests/cuda/test_cuda_runtime.c -- the CUDA runtime on the fake driver: memory, copies, kernels, waits.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "eager/cuda/api.h"
#include "eager/cuda/runtime.h"
#include "tests/cuda/driver/fake.h"
#include "weft/core.h"
#include "weft/cuda.h"

static const unsigned one[3] = {1, 1, 1};
static const fake_driver *gpu;
static wf_why why;

#define OK(call) cr_assert_eq((call), 0, "%s: %s", #call, why.rule)

static void with(int order, uint64_t seed)
{
    gpu = fake_cuda(order, seed);
    cr_assert(gpu);
    OK(wf_cuda_open(0, &why));
}

static wf_cuda_fn *kernel(const char *name)
{
    static wf_cuda_module *m;
    wf_cuda_fn *f = NULL;
    if (!m) {
        OK(wf_cuda_module_new(0, "fake-cuda       ", 16, &m, &why));
    }
    OK(wf_cuda_function(m, name, &f, &why));
    return f;
}

static wf_cuda_block *block(size_t n)
{
    wf_cuda_block *b = wf_cuda_alloc(0, n, &why);
    cr_assert(b, "%s", why.rule);
    return b;
}

static void fill(wf_cuda_block *b, int64_t n, int32_t value)
{
    OK(wf_cuda_use(b, true, &why));
    void *params[] = {&b->address, &n, &value};
    OK(wf_cuda_launch(kernel("fill_i32"), one, one, 0, params, &why));
}

static void add(wf_cuda_block *out, wf_cuda_block *a, wf_cuda_block *b, int64_t n)
{
    OK(wf_cuda_use(a, false, &why));
    OK(wf_cuda_use(b, false, &why));
    OK(wf_cuda_use(out, true, &why));
    void *params[] = {&out->address, &a->address, &b->address, &n};
    OK(wf_cuda_launch(kernel("add_i32"), one, one, 0, params, &why));
}

Test(cuda_runtime, work_comes_back_in_every_order)
{
    const int orders[] = {FAKE_IMMEDIATE, FAKE_LATE, FAKE_RANDOM};
    with(FAKE_IMMEDIATE, 1);
    for (int k = 0; k < 3; k++) {
        gpu->order(orders[k], 17);
        enum { N = 3000 };
        wf_cuda_block *a = block(N * 4), *b = block(N * 4), *c = block(N * 4);
        static int32_t host[N], got[N];
        for (int i = 0; i < N; i++) {
            host[i] = i;
        }
        OK(wf_cuda_upload(0, a->address, host, sizeof host, &why));
        memset(host, 0, sizeof host); /* it is ours again */
        fill(b, N, 1000);
        add(c, a, b, N);
        OK(wf_cuda_move(0, a->address, c->address, sizeof host, &why));
        OK(wf_cuda_clear(0, c->address, sizeof host, &why));
        cr_assert(orders[k] != FAKE_LATE || gpu->queued() == 5);
        OK(wf_cuda_download(0, got, a->address, sizeof got, &why));
        for (int i = 0; i < N; i++) {
            cr_assert_eq(got[i], i + 1000);
        }
        OK(wf_cuda_synchronize(0, &why));
        cr_assert(gpu->peek(got, (uint64_t)(uintptr_t)c->address, sizeof got) && got[7] == 0);
        wf_cuda_free(a);
        wf_cuda_free(b);
        wf_cuda_free(c);
    }
}

Test(cuda_runtime, copies_larger_than_the_stages)
{
    with(FAKE_RANDOM, 5);
    enum { N = 41 << 20 };
    unsigned char *host = malloc(N), *got = malloc(N);
    for (size_t i = 0; i < N; i++) {
        host[i] = (unsigned char)(i * 7 + i / 4099);
    }
    wf_cuda_block *a = block(N);
    OK(wf_cuda_upload(0, a->address, host, N, &why));
    OK(wf_cuda_download(0, got, a->address, N, &why));
    cr_assert(memcmp(host, got, N) == 0);
    wf_cuda_free(a);
    free(host);
    free(got);
}

Test(cuda_runtime, an_index_error_shows_at_the_next_wait_once)
{
    with(FAKE_LATE, 5);
    void *word = NULL;
    int64_t bad = 77;
    OK(wf_cuda_error_word(0, WF_OP_ADD, "file.c:12", 10, NULL, 0, &word, &why));
    void *params[] = {&word, &bad};
    OK(wf_cuda_launch(kernel("store_i64"), one, one, 0, params, &why));
    cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
    cr_assert(strstr(why.rule, "add") && strstr(why.rule, "77") && strstr(why.rule, "file.c:12"),
              "%s", why.rule);
    OK(wf_cuda_synchronize(0, &why));
    /* What the op was called with: as many operands as there is room for. */
    static const wf_view of[] = {{.dtype = WEFT_F32, .rank = 2, .dims = {50257, 768}},
                                 {.dtype = WEFT_I64, .rank = 0},
                                 {.dtype = WEFT_BF16, .rank = 8, .dims = {1, 2, 3, 4, 5, 6, 7, 8}},
                                 {.dtype = WEFT_F32, .rank = 1, .dims = {9}}};
    for (int n = 1; n <= 4; n++) {
        OK(wf_cuda_error_word(0, WF_OP_ADD, "file.c:12", 10, of, n, &word, &why));
        OK(wf_cuda_launch(kernel("store_i64"), one, one, 0, params, &why));
        cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
        static const char *const want[] = {
            "file.c:12; operands: f32[50257,768]", "file.c:12; operands: f32[50257,768], i64[]",
            "file.c:12; operands: f32[50257,768], i64[], bf16[1,2,3,4,5,6,7,8]",
            "file.c:12; operands: f32[50257,768], i64[], bf16[1,2,3,4,5,6,7,8], ..."};
        const char *from = strstr(why.rule, "file.c");
        cr_expect(from && strcmp(from, want[n - 1]) == 0, "%s", why.rule);
    }
    /* The place may become known after the op was queued. */
    OK(wf_cuda_error_word(0, WF_OP_ADD, NULL, 10, NULL, 0, &word, &why));
    wf_cuda_sited("later.c:9");
    wf_cuda_sited("not.c:1");
    OK(wf_cuda_launch(kernel("store_i64"), one, one, 0, params, &why));
    cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
    cr_assert(strstr(why.rule, "later.c:9"), "%s", why.rule);
}

/* Of however many errors between two waits the first is told. */
Test(cuda_runtime, the_first_index_error_is_told)
{
    with(FAKE_LATE, 5);
    for (int n = 1; n <= 200; n += n < 62 ? 61 : n < 66 ? 1 : 67) {
        for (int i = 0; i < n; i++) {
            void *word = NULL;
            int64_t bad = 1000 + i;
            OK(wf_cuda_error_word(0, WF_OP_ADD, "file.c:12", 10, NULL, 0, &word, &why));
            void *params[] = {&word, &bad};
            OK(wf_cuda_launch(kernel("store_i64"), one, one, 0, params, &why));
        }
        cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
        cr_expect(strstr(why.rule, "index 1000 "), "of %d: %s", n, why.rule);
        OK(wf_cuda_synchronize(0, &why));
    }
}

/* Shared memory past what needs no permission is allowed once, all of it: two threads that ask for what they need could leave the
 * smaller number standing. */
Test(cuda_runtime, shared_memory_is_allowed_once)
{
    with(FAKE_LATE, 5);
    wf_cuda_block *b = wf_cuda_alloc(0, 64, &why);
    int64_t n = 1;
    int32_t value = 1;
    void *params[] = {&b->address, &n, &value};
    const unsigned bytes[] = {1000, 60000, 50000, 100000, 200000};
    for (int i = 0; i < 5; i++) {
        OK(wf_cuda_use(b, true, &why));
        OK(wf_cuda_launch(kernel("fill_i32"), one, one, bytes[i], params, &why));
        cr_assert_eq(gpu->calls("cuFuncSetAttribute"), i > 0, "%u bytes", bytes[i]);
    }
    cr_assert_eq(wf_cuda_launch(kernel("fill_i32"), one, one, 1 << 20, params, &why),
                 WEFT_EUNSUPPORTED);
    wf_cuda_free(b);
}

/* What a launch that needs no memory of the driver and no other stream asks of it: to be current, and the launch. */
Test(cuda_runtime, an_op_makes_two_calls)
{
    with(FAKE_IMMEDIATE, 6);
    enum { N = 64 };
    wf_cuda_block *a = block(N * 4), *b = block(N * 4);
    fill(a, N, 1);
    fill(b, N, 2);
    wf_cuda_fn *f = kernel("add_i32");
    int64_t n = N, calls = 0, launches = 0;
    for (int i = 0; i < 3; i++) { /* the first may make room */
        calls = gpu->calls(NULL);
        launches = gpu->calls("cuLaunchKernel");
        wf_cuda_block *c = block(N * 4);
        OK(wf_cuda_use(a, false, &why));
        OK(wf_cuda_use(b, false, &why));
        OK(wf_cuda_use(c, true, &why));
        void *params[] = {&c->address, &a->address, &b->address, &n};
        OK(wf_cuda_launch(f, one, one, 0, params, &why));
        wf_cuda_free(c);
    }
    cr_assert_eq(gpu->calls("cuLaunchKernel") - launches, 1);
    cr_assert_eq(gpu->calls(NULL) - calls, 2, "%d calls", (int)(gpu->calls(NULL) - calls));
    wf_cuda_free(a);
    wf_cuda_free(b);
}

static cu_result (*set_current)(cu_handle context);

/* Other code of the process leaves no context current. */
static void leave_none(void)
{
    cr_assert_eq(set_current(NULL), CU_OK);
}

/* Memory, uses and frees look into books most of the time; where they call the driver after all, the device is current. */
Test(cuda_runtime, other_code_may_change_what_is_current)
{
    with(FAKE_LATE, 7);
    *(void **)&set_current =
        dlsym(dlopen(WEFT_FAKE_CUDA, RTLD_NOW | RTLD_NOLOAD), "cuCtxSetCurrent");
    cr_assert(set_current);
    const weft_device dev = WEFT_CUDA(0);
    enum { N = 1 << 20 };
    leave_none();
    wf_cuda_block *a = block(N * 4), *c = NULL; /* the first memory of the device */
    fill(a, N, 1);
    weft_stream *s = weft_stream_new(dev);
    OK(weft_stream_set(dev, s));
    leave_none();
    OK(wf_cuda_use(a, true, &why)); /* an event there, a wait here */
    fill(a, N, 2);
    leave_none();
    c = block((size_t)64 << 20); /* more memory for this stream */
    OK(weft_stream_set(dev, NULL));
    fill(c, N, 3);
    leave_none();
    wf_cuda_free(c); /* another stream's work on it is marked */
    leave_none();
    OK(wf_cuda_use(a, false, &why));
    OK(weft_stream_set(dev, s));
    leave_none();
    c = block((size_t)64 << 20); /* the same again, behind that work */
    leave_none();
    fill(c, N, 4);
    int32_t got[2];
    OK(wf_cuda_download(0, got, c->address, sizeof got, &why));
    cr_assert(got[0] == 4 && got[1] == 4);
    OK(wf_cuda_download(0, got, a->address, sizeof got, &why));
    cr_assert(got[0] == 2 && got[1] == 2);
    leave_none();
    wf_cuda_free(c);
    wf_cuda_free(a);
    OK(weft_stream_set(dev, NULL));
    leave_none();
    OK(wf_cuda_set_cap(0, 1 << 20, &why));
    leave_none();
    cr_assert_null(wf_cuda_alloc(0, (size_t)256 << 20, &why)); /* with a report */
    OK(weft_stream_free(s));
    cr_assert_eq(gpu->races(), 0, "%s", gpu->first_race());
}

static int store(int64_t index)
{
    void *word = NULL;
    int code = wf_cuda_error_word(0, WF_OP_ADD, "file.c:12", 10, NULL, 0, &word, &why);
    void *params[] = {&word, &index};
    return code ? code : wf_cuda_launch(kernel("store_i64"), one, one, 0, params, &why);
}

/* A wait that covers the kernel by way of another stream, and one for an event, report it; once. */
Test(cuda_runtime, an_index_error_shows_at_whatever_waits_for_it)
{
    with(FAKE_LATE, 5);
    weft_device dev = WEFT_CUDA(0);
    weft_stream *s = weft_stream_new(dev);
    weft_event *begin = weft_event_new(dev), *e = weft_event_new(dev);
    wf_cuda_block *a = block(4);
    int32_t back = 0;
    double ms = 0;
    cr_assert(s && begin && e);
    OK(weft_stream_set(dev, s));
    OK(store(77));
    fill(a, 1, 5); /* behind it */
    OK(weft_stream_set(dev, NULL));
    OK(wf_cuda_use(a, false, &why));
    cr_assert_eq(wf_cuda_download(0, &back, a->address, 4, &why), WEFT_EINDEX);
    cr_assert(strstr(why.rule, "77"), "%s", why.rule);
    OK(weft_stream_synchronize(s));
    OK(weft_event_record(begin));
    OK(store(78));
    OK(weft_event_record(e));
    cr_assert_eq(weft_event_synchronize(e), WEFT_EINDEX);
    OK(weft_event_synchronize(e));
    OK(store(79));
    OK(weft_event_record(e));
    cr_assert_eq(weft_event_elapsed(begin, e, &ms), WEFT_EINDEX);
    OK(weft_event_elapsed(begin, e, &ms));
    OK(weft_synchronize(dev));
    wf_cuda_free(a);
    OK(weft_event_free(begin));
    OK(weft_event_free(e));
    OK(weft_stream_free(s));
}

/* An error on the first stream does not keep it from waiting for the second. */
Test(cuda_runtime, synchronize_waits_for_all_streams)
{
    with(FAKE_LATE, 5);
    weft_device dev = WEFT_CUDA(0);
    weft_stream *s = weft_stream_new(dev);
    wf_cuda_block *a = block(4);
    cr_assert(s);
    OK(store(77));
    OK(weft_stream_set(dev, s));
    fill(a, 1, 5);
    OK(store(78));
    OK(weft_stream_set(dev, NULL));
    cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
    cr_assert(strstr(why.rule, "77"), "%s", why.rule);
    cr_assert(gpu->queued() == 0 && weft_stream_done(s));
    cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
    cr_assert(strstr(why.rule, "78"), "%s", why.rule);
    OK(wf_cuda_synchronize(0, &why));
    wf_cuda_free(a);
    OK(weft_stream_free(s));
}

/* More words than there are, and nobody waits: those that are over are found by asking. */
Test(cuda_runtime, words_without_end)
{
    with(FAKE_RANDOM, 5);
    wf_cuda_fn *f = kernel("store_i64");
    int64_t none = -1;
    wf_cuda_block *b = block(64);
    for (int i = 0; i < 6000; i++) {
        void *word = NULL;
        OK(wf_cuda_use(b, true, &why)); /* an op each */
        OK(wf_cuda_error_word(0, WF_OP_ADD, "file.c:12", 10, NULL, 0, &word, &why));
        void *params[] = {&word, &none};
        none = i == 700 ? 99 : -1;
        OK(wf_cuda_launch(f, one, one, 0, params, &why));
    }
    cr_assert(gpu->alive("host") < 8, "%d pages", (int)gpu->alive("host"));
    wf_cuda_counters c;
    wf_cuda_get_counters(&c);
    cr_assert_eq(c.hidden_waits, 0);
    cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EINDEX);
    OK(wf_cuda_synchronize(0, &why));
    wf_cuda_free(b);
}

Test(cuda_runtime, a_broken_device_is_told_once_and_refuses_from_then_on)
{
    with(FAKE_LATE, 5);
    char got[64];
    wf_cuda_block *a = block(64);
    OK(wf_cuda_launch(kernel("crash"), one, one, 0, NULL, &why));
    /* the copy is queued behind it, and is not what broke the device */
    cr_assert_eq(wf_cuda_download(0, got, a->address, sizeof got, &why), WEFT_EUNSUPPORTED);
    cr_assert(strstr(why.rule, "ILLEGAL_ADDRESS") && strstr(why.rule, "launched last: crash"), "%s",
              why.rule);
    cr_assert_null(wf_cuda_alloc(0, 64, &why));
    cr_assert(strstr(why.rule, "stopped earlier"), "%s", why.rule);
    cr_assert_eq(wf_cuda_synchronize(0, &why), WEFT_EUNSUPPORTED);
    wf_cuda_free(a);
}

Test(cuda_runtime, what_is_not_there_says_so)
{
    with(FAKE_IMMEDIATE, 1);
    cr_assert_eq(wf_cuda_count(), 1);
    cr_assert_str_eq(wf_cuda_get_info(0)->arch, "sm_90");
    cr_assert_eq(wf_cuda_open(1, &why), WEFT_EUNSUPPORTED);
    cr_assert(strstr(why.rule, "lists 1 device"), "%s", why.rule);
    cr_assert_eq(wf_cuda_open(-1, &why), WEFT_EUNSUPPORTED);
    wf_cuda_module *m;
    cr_assert_eq(wf_cuda_module_new(0, "not a kernel image", 18, &m, &why), WEFT_EUNSUPPORTED);
    cr_assert(strstr(why.rule, "sm_90"), "%s", why.rule);
}
