/*
 * tests/gpu/test_gpu_streams.c -- ordinary ops on two streams: whatever one makes the other may read, without a word
 * from the caller. On the fake driver nothing runs before somebody waits for it, or in a random order.
 *
 * ctest: timeout=600
 */
#include <string.h>

#include "tests/gpu/gpu.h"
#include "weft/cuda.h"
#include "weft/weft.h"

enum { N = 600 };

static float numbers[N];

/* A tensor on x's device, where the thread makes its tensors, too. */
typedef weft_tensor maker(weft_tensor x);

static weft_tensor by_mul(weft_tensor x)
{
    return weft_mul(x, x);
}

static weft_tensor by_broadcast(weft_tensor x)
{
    return weft_mul(weft_reshape(x, weft_shape(20, 30)), weft_slice(x, 0, 0, 30, 1));
}

static weft_tensor by_numbers(weft_tensor x)
{
    (void)x;
    return weft_from_data(numbers, weft_shape(N), WEFT_F32);
}

static weft_tensor by_transfer(weft_tensor x)
{
    weft_device before = weft_default_device();
    weft_set_default_device(WEFT_CPU);
    weft_tensor h = weft_from_data(numbers, weft_shape(N), WEFT_F32);
    weft_set_default_device(before);
    return weft_to(h, weft_device_of(x));
}

static weft_tensor by_full(weft_tensor x)
{
    (void)x;
    return weft_full(weft_shape(N), 3, WEFT_F32);
}

static weft_tensor by_arange(weft_tensor x)
{
    (void)x;
    return weft_arange(0, N, 1, WEFT_F32);
}

static weft_tensor by_sum(weft_tensor x)
{
    return weft_sum(x);
}

static weft_tensor by_sum_of_rows(weft_tensor x)
{
    return weft_sum(weft_reshape(x, weft_shape(20, 30)), .axes = weft_axes(1));
}

static weft_tensor by_copying_reshape(weft_tensor x)
{
    return weft_reshape(weft_transpose(weft_reshape(x, weft_shape(20, 30)), 0, 1), weft_shape(N));
}

static weft_tensor by_cast(weft_tensor x)
{
    return weft_cast(x, WEFT_F64);
}

static weft_tensor by_matmul(weft_tensor x)
{
    return weft_matmul(weft_reshape(x, weft_shape(20, 30)), weft_reshape(x, weft_shape(30, 20)));
}

static weft_tensor by_sort(weft_tensor x) /* two results */
{
    weft_tensor v = WEFT_NONE, i = WEFT_NONE;
    weft_sort(x, 0, true, &v, &i);
    return weft_add(v, weft_cast(i, WEFT_F32));
}

static weft_tensor by_gradient(weft_tensor x)
{
    weft_tensor p = weft_clone(x);
    weft_requires_grad_(p, true);
    weft_backward(.loss = weft_sum(weft_mul(p, p)));
    return weft_grad(p);
}

static const struct {
    const char *name;
    maker *make;
} cases[] = {{"mul", by_mul},
             {"broadcast", by_broadcast},
             {"from_data", by_numbers},
             {"to", by_transfer},
             {"full", by_full},
             {"arange", by_arange},
             {"sum", by_sum},
             {"sum of rows", by_sum_of_rows},
             {"copying reshape", by_copying_reshape},
             {"cast", by_cast},
             {"matmul", by_matmul},
             {"sort", by_sort},
             {"gradient", by_gradient}};

static void order(int late, uint64_t seed)
{
#ifdef WEFT_GPU_RUNNER
    (void)late;
    (void)seed;
#else
    fake_cuda(late ? FAKE_LATE : FAKE_RANDOM, seed);
#endif
}

static void check_equal(const char *name, const char *what, weft_tensor y, const double *want,
                        int64_t n)
{
    double got[N];
    memset(got, 0, sizeof got);
    cr_assert_eq(weft_numel(y), n, "%s: %s", name, weft_last_error());
    cr_assert_eq(weft_to_array(y, got, n, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    for (int64_t i = 0; i < n; i++) {
        cr_assert(got[i] == want[i], "%s, %s: element %lld is %g, not %g", name, what, (long long)i,
                  got[i], want[i]);
    }
}

/* Made on one stream, read on another, by an op and by the host. */
static void check_case(const char *name, maker *make, weft_stream *from, weft_stream *to, int late,
                       uint64_t seed)
{
    const weft_device d = WEFT_CUDA(0);
    double want[N], more[N];
    weft_scope s = weft_scope_begin();
    weft_tensor h = make(weft_from_data(numbers, weft_shape(N), WEFT_F32));
    int64_t n = weft_numel(h);
    cr_assert(n > 0 && n <= N && weft_to_array(h, want, n, WEFT_F64) == WEFT_OK, "%s: %s", name,
              weft_last_error());
    for (int64_t i = 0; i < n; i++) {
        more[i] = want[i] + 1;
    }
    weft_tensor x = weft_to(weft_from_data(numbers, weft_shape(N), WEFT_F32), d);
    weft_set_default_device(d);
    weft_add(make(x), weft_f(1)); /* compiled */
    weft_synchronize(d);
    order(late, seed);
    weft_stream_set(d, from);
    weft_tensor y = make(x);
    weft_stream_set(d, to);
    weft_tensor z = weft_add(y, weft_f(1));
    check_equal(name, "read by an op", z, more, n);
    weft_stream_set(d, from);
    y = make(x);
    weft_stream_set(d, to);
    check_equal(name, "read by the host", y, want, n);
    weft_stream_set(d, NULL);
    weft_set_default_device(WEFT_CPU);
    weft_synchronize(d);
    weft_scope_end(s);
}

static void check_all(int late, uint64_t seed)
{
    const weft_device d = WEFT_CUDA(0);
    gpu_open(seed);
    for (int i = 0; i < N; i++) {
        numbers[i] = (float)((i * 7) % 11 - 5);
    }
    weft_stream *s = weft_stream_new(d);
    cr_assert(s, "%s", weft_last_error());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_case(cases[i].name, cases[i].make, s, NULL, late, seed + i);
        check_case(cases[i].name, cases[i].make, NULL, s, late, seed + i);
    }
    cr_assert_eq(weft_stream_free(s), WEFT_OK);
    gpu_check_races();
}

Test(gpu_streams, results_when_work_is_late)
{
    check_all(1, 31);
}

Test(gpu_streams, results_in_random_order)
{
    check_all(0, 32);
}

typedef struct owner {
    weft_tensor memory;
    weft_stream *side;
    int given_back, idle; /* nothing was under way on the stream then */
    DLManagedTensorVersioned *inner, capsule;
} owner;

static void take_back(DLManagedTensorVersioned *self)
{
    owner *o = self->manager_ctx;
    o->given_back++;
    o->idle = weft_stream_done(o->side);
    o->inner->deleter(o->inner);
}

static weft_tensor import(owner *o)
{
    o->inner = weft_to_dlpack(o->memory);
    cr_assert(o->inner, "%s", weft_last_error());
    o->capsule = *o->inner;
    o->capsule.manager_ctx = o;
    o->capsule.deleter = take_back;
    return weft_keep(weft_from_dlpack(&o->capsule));
}

/* Memory of another library is used in order, and until it is done with. */
static void check_import(int late, uint64_t seed)
{
    gpu_open(seed);
    const weft_device d = WEFT_CUDA(0);
    double want[N], got[N];
    weft_scope s = weft_scope_begin();
    weft_tensor seven = weft_to(weft_full(weft_shape(N), 7, WEFT_F32), d);
    owner o = {.side = weft_stream_new(d), .memory = weft_clone(seven)};
    weft_tensor x = import(&o);
    cr_assert(weft_ok(x) && o.side, "%s", weft_last_error());
    weft_mul_(x, weft_f(1)); /* compiled, as is what follows */
    weft_add(x, weft_f(1));
    weft_synchronize(d);
    order(late, seed);
    weft_stream_set(d, o.side);
    weft_mul_(x, weft_f(5));
    weft_stream_set(d, NULL);
    for (int i = 0; i < N; i++) {
        want[i] = 35;
    }
    check_equal("import", "written on a stream, read on another", x, want, N);
    weft_stream_set(d, o.side);
    weft_tensor y = weft_add(x, weft_f(1));
    weft_stream_set(d, NULL);
    weft_free(x);
    cr_assert(o.given_back == 1 && o.idle, "%d, %d", o.given_back, o.idle);
    weft_copy_(o.memory, seven);
    cr_assert_eq(weft_to_array(y, got, N, WEFT_F64), WEFT_OK);
    cr_assert(got[0] == 36 && got[N - 1] == 36, "%g", got[0]);
    weft_scope_end(s);
    cr_assert_eq(weft_stream_free(o.side), WEFT_OK);
    gpu_check_races();
}

Test(gpu_streams, imported_memory)
{
    check_import(1, 34);
}

Test(gpu_streams, imported_memory_in_random_order)
{
    check_import(0, 35);
}

#ifndef WEFT_GPU_RUNNER
/* An operand of a derivative that cannot be ordered: an error value, and the operand can still be freed. */
Test(gpu_streams, a_derivative_whose_operand_cannot_be_ordered)
{
    gpu_open(33);
    const weft_device d = WEFT_CUDA(0);
    const fake_driver *fake = fake_cuda(FAKE_LATE, 33);
    weft_cuda_memory before, after;
    weft_scope s = weft_scope_begin();
    weft_stream *side = weft_stream_new(d);
    cr_assert(side && weft_synchronize(d) == WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_cuda_get_memory(d, &before), WEFT_OK);
    weft_scope inner = weft_scope_begin();
    weft_tensor p = weft_keep(weft_to(weft_full(weft_shape(N), 2, WEFT_F32), d));
    weft_requires_grad_(p, true);
    weft_tensor y = weft_mul(p, p);
    weft_stream_set(d, side);
    weft_tensor g = weft_to(weft_full(weft_shape(N), 1, WEFT_F32), d);
    fake->fail("cuStreamWaitEvent", 1, 801);
    weft_status status = weft_backward(.loss = y, .gradient = g);
    cr_assert_eq(status, WEFT_EUNSUPPORTED);
    cr_assert_str_eq(fake->failed(), "cuStreamWaitEvent");
    cr_assert(strstr(weft_last_error(), "cuStreamWaitEvent"), "%s", weft_last_error());
    weft_stream_set(d, NULL);
    weft_free(p);
    weft_scope_end(inner);
    cr_assert_eq(weft_cuda_get_memory(d, &after), WEFT_OK);
    cr_assert_eq(after.live_blocks, before.live_blocks);
    cr_assert_eq(weft_stream_free(side), WEFT_OK);
    weft_scope_end(s);
}
#endif
