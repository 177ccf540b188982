/*
 * tests/gpu/test_gpu_copies.c -- copies that nobody waits for before the elements are touched.
 *
 * On the fake driver nothing runs before somebody waits for it, so that whoever forgets to wait reads what the memory held
 * before.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/device.h"
#include "tests/gpu/gpu.h"
#include "weft/cuda.h"
#include "weft/weft.h"

enum { N = 3000 };

static weft_device gpu0;

/* x = 0, 1, 2, ... on the GPU, with the kernels of what follows compiled. */
static weft_tensor make_source(int late, uint64_t seed)
{
    gpu_open(seed);
    gpu0 = WEFT_CUDA(0);
    weft_tensor x = weft_to(weft_arange(0, N, 1, WEFT_F32), gpu0);
    weft_mul(x, weft_f(2));
    weft_transpose(weft_reshape(x, weft_shape(50, 60)), 0, 1);
    cr_assert_eq(weft_synchronize(gpu0), WEFT_OK, "%s", weft_last_error());
#ifndef WEFT_GPU_RUNNER
    fake_cuda(late ? FAKE_LATE : FAKE_RANDOM, seed);
#endif
    (void)late;
    return x;
}

/* 2 x, on its way to the host. */
static weft_tensor twice(weft_tensor x)
{
    weft_cuda_counters before, after;
    weft_cuda_get_counters(&before);
    weft_tensor h = weft_to_async(weft_mul(x, weft_f(2)), WEFT_CPU);
    weft_cuda_get_counters(&after);
    cr_assert(weft_ok(h) && weft_is_pinned(h), "%s", weft_last_error());
    cr_assert(after.waits == before.waits && after.hidden_waits == before.hidden_waits &&
                  after.copies_out == before.copies_out + 1,
              "it waited");
    return h;
}

static const double sum_of_twice = (double)N * (N - 1);

/* The sum of the elements of h, or of what is to have the same, by some way of touching them. */
typedef double toucher(weft_tensor h);

static double by_array(weft_tensor h)
{
    static double v[N];
    double sum = 0;
    weft_to_array(h, v, N, WEFT_F64);
    for (int i = 0; i < N; i++) {
        sum += v[i];
    }
    return sum;
}

static double by_pointer(weft_tensor h)
{
    const float *v = weft_data(h);
    double sum = 0;
    for (int i = 0; v && i < N; i++) {
        sum += (double)v[i];
    }
    return sum;
}

static double by_writable_pointer(weft_tensor h)
{
    const float *v = weft_data_mut(h);
    return v && v[N - 1] == (float)(2 * (N - 1)) ? sum_of_twice : 0;
}

static double by_op(weft_tensor h)
{
    return weft_item_f64(weft_sum(h));
}

static double by_quick_op(weft_tensor h)
{
    return by_array(weft_add(h, weft_f(0)));
}

static double by_view(weft_tensor h)
{
    return by_array(weft_flip(weft_reshape(h, weft_shape(30, -1)), weft_axes(1)));
}

static double by_write(weft_tensor h) /* what is to be overwritten must not arrive later */
{
    weft_fill_(h, 1);
    weft_synchronize(gpu0);
    return by_array(h) == (double)N ? sum_of_twice : 0;
}

static double by_update(weft_tensor h)
{
    weft_add_(h, weft_f(1));
    return by_array(h) - (double)N;
}

static double by_text(weft_tensor h)
{
    char text[400] = "";
    weft_to_string(weft_slice(h, 0, N - 2, N, 1), text, sizeof text);
    return strstr(text, "5996") && strstr(text, "5998") ? sum_of_twice : 0;
}

static double by_description(weft_tensor h)
{
    const char *text = weft_describe(h);
    return strstr(text, "5.994e+03") && strstr(text, "5.998e+03]") ? sum_of_twice : 0;
}

static double by_capsule(weft_tensor h)
{
    DLManagedTensorVersioned *c = weft_to_dlpack(h);
    const float *v = c ? c->dl_tensor.data : NULL;
    double sum = v && v[N - 1] == (float)(2 * (N - 1)) ? sum_of_twice : 0;
    if (c) {
        c->deleter(c);
    }
    return sum;
}

static double by_going_back(weft_tensor h)
{
    return by_array(weft_to(h, gpu0));
}

static double by_copy(weft_tensor h)
{
    weft_tensor other = weft_zeros(weft_shape(N), WEFT_F32);
    weft_copy_(other, h);
    return by_array(other);
}

static double by_gradient(weft_tensor h)
{
    weft_tensor p = weft_ones(weft_shape(N), WEFT_F32);
    weft_requires_grad_(p, true);
    weft_backward(.loss = weft_sum(weft_mul(p, h)));
    return by_array(weft_grad(p));
}

static weft_status add_to_itself(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                 int n_out)
{
    (void)self;
    (void)n_in;
    (void)n_out;
    out[0] = weft_sum(weft_mul(weft_add(in[0], in[0]), weft_f(0.5)));
    return WEFT_OK;
}

static double through(weft_jit *j, weft_tensor h)
{
    weft_tensor y = WEFT_NONE;
    weft_jit_call(j, &h, 1, &y, 1);
    return weft_item_f64(y);
}

static double by_traced_function(weft_tensor h)
{
    weft_jit *j = weft_jit_trace(add_to_itself, NULL);
    double sum = through(j, h);
    weft_jit_free(j);
    return sum;
}

static weft_jit *frozen;
static double by_frozen_function(weft_tensor h)
{
    weft_tensor ready = weft_arange(0, 2 * N, 2, WEFT_F32);
    frozen = frozen ? frozen : weft_jit_trace(add_to_itself, NULL, .frozen = true);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(through(frozen, ready), sum_of_twice);
    }
    return through(frozen, h); /* memory that was not made here is recorded */
}

static double by_graph(weft_tensor h)
{
    weft_tensor ready = weft_zeros(weft_shape(N), WEFT_F32), y = WEFT_NONE;
    weft_graph *g = weft_jit_graph(add_to_itself, NULL, &ready, 1);
    weft_graph_run(g, &h, 1, &y, 1);
    weft_graph_free(g);
    return weft_item_f64(y);
}

static const struct {
    const char *name;
    toucher *touch;
} ways[] = {{"to_array", by_array},
            {"data", by_pointer},
            {"data_mut", by_writable_pointer},
            {"an op", by_op},
            {"an elementwise op", by_quick_op},
            {"a view", by_view},
            {"a write", by_write},
            {"an update", by_update},
            {"a graph", by_graph}, /* behind what leaves other numbers in memory */
            {"print", by_text},
            {"describe", by_description},
            {"a capsule", by_capsule},
            {"to the GPU", by_going_back},
            {"copy_", by_copy},
            {"a product's gradient", by_gradient},
            {"a traced function", by_traced_function},
            {"a frozen function", by_frozen_function}};

static void touch_all(int late, uint64_t seed)
{
    weft_tensor x = make_source(late, seed);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        weft_scope s = weft_scope_begin();
        double sum = ways[i].touch(twice(x));
        cr_assert_eq(sum, sum_of_twice, "%s: %g; %s", ways[i].name, sum, weft_last_error());
        weft_scope_end(s);
    }
    weft_jit_free(frozen);
    gpu_check_races();
}

Test(gpu_copies, whoever_touches_the_elements_waits)
{
    touch_all(1, 41);
}

Test(gpu_copies, in_random_order)
{
    touch_all(0, 42);
}

Test(gpu_copies, views_and_gradients_of_the_device)
{
    weft_tensor x = make_source(1, 43);
    double v[N];
    weft_tensor t = weft_transpose(weft_reshape(x, weft_shape(50, 60)), 0, 1);
    weft_tensor h = weft_to_async(t, WEFT_CPU);
    cr_assert_eq(weft_to_array(h, v, N, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < N; i++) {
        cr_assert_eq(v[i], i / 50 + i % 50 * 60, "element %d is %g", i, v[i]);
    }
    weft_requires_grad_(x, true);
    weft_tensor y = weft_to_async(weft_mul(x, x), WEFT_CPU);
    cr_assert_eq(weft_backward(.loss = weft_sum(y)), WEFT_OK, "%s", weft_last_error());
    cr_assert(weft_device_of(weft_grad(x)).kind == WEFT_DEVICE_CUDA);
    cr_assert_eq(by_array(weft_to_async(weft_grad(x), WEFT_CPU)), sum_of_twice);
    cr_assert_eq(weft_numel(weft_to_async(weft_slice(x, 0, 5, 5, 1), WEFT_CPU)), 0);
}

Test(gpu_copies, an_error_of_the_device_comes_out_of_the_first_read)
{
    weft_tensor x = make_source(1, 45);
    weft_tensor bad = weft_to(weft_full(weft_shape(3), N, WEFT_I64), gpu0);
    weft_tensor h = weft_to_async(weft_index_select(x, 0, bad), WEFT_CPU);
    cr_assert(weft_ok(h), "%s", weft_last_error());
    weft_tensor y = weft_sum(h);
    cr_assert_eq(weft_error_status(y), WEFT_EINDEX, "%s", weft_last_error());
    cr_assert(strstr(weft_error_text(y), "index_select"), "%s", weft_error_text(y));
    y = weft_sum(h);
    cr_assert_eq(weft_error_status(y), WEFT_EINVALID, "it stays without a value");
    weft_fill_(h, 2);
    cr_assert_eq(weft_item_f64(weft_sum(h)), 6, "until it is written anew");
}

/* Has t no value, and is it `op` at a line of this file that is to blame? */
static void check_spoilt(weft_tensor t, const char *op)
{
    double v[N];
    char blamed[64];
    snprintf(blamed, sizeof blamed, "%s failed in the call that wrote it (", op);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(weft_to_array(t, v, N, WEFT_F64), WEFT_EINVALID, "%s", op);
        cr_expect(strstr(weft_last_error(), blamed), "%s", weft_last_error());
        cr_expect(strstr(weft_last_error(), "test_gpu_copies.c:"), "%s", weft_last_error());
    }
    cr_assert_eq(weft_error_status(weft_add(t, weft_f(1))), WEFT_EINVALID, "%s", op);
    cr_assert_neq(weft_add_(t, weft_f(1)), WEFT_OK, "%s", op);
    cr_assert_eq(weft_to_array(t, v, N, WEFT_F64), WEFT_EINVALID, "%s", op);
}

/* After a bad index was told, by whatever wait, what the op wrote has no value, until it is written anew; all else has. */
Test(gpu_copies, what_a_failed_op_wrote_stays_without_a_value)
{
    weft_tensor x = make_source(1, 47), other = twice(x);
    weft_tensor bad = weft_to(weft_full(weft_shape(3), N, WEFT_I64), gpu0);
    weft_tensor y = weft_index_select(x, 0, bad);
    cr_assert_eq(weft_synchronize(gpu0), WEFT_EINDEX);
    cr_expect(strstr(weft_last_error(), "; operands: f32[3000], i64[3]"), "%s", weft_last_error());
    check_spoilt(y, "index_select");
    cr_assert_eq(weft_fill_(y, 2), WEFT_OK);
    cr_assert_eq(weft_item_f64(weft_sum(y)), 6);
    weft_tensor target = weft_zeros(weft_shape(4), WEFT_F32);
    target = weft_to(target, gpu0);
    cr_assert_eq(weft_scatter_add_(target, 0, bad, y), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_synchronize(gpu0), WEFT_EINDEX);
    check_spoilt(target, "scatter_add");
    double v[N];
    cr_assert_eq(weft_to_array(other, v, N, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_to_array(bad, v, 3, WEFT_F64), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_item_f64(weft_sum(y)), 6);
}

static weft_status takes_rows(void *self, const weft_tensor *in, int n, weft_tensor *out, int m)
{
    (void)self, (void)n, (void)m;
    out[0] = weft_mul(weft_index_select(in[0], 0, in[1]), weft_f(3));
    weft_mul_(in[2], weft_add(weft_sum(out[0]), weft_f(1)));
    return weft_error_status(out[0]);
}

/* What a plan made of it, and what it wrote in place: run, frozen, and by a captured graph. Calls that found nothing have values. */
Test(gpu_copies, what_a_failed_plan_wrote_stays_without_a_value)
{
    enum { CALLS = 12 };
    double v[3];
    setenv("WEFT_JIT", "2", 1);         /* kernels are there at their first run */
    setenv("WEFT_CUDA_GRAPHS", "2", 1); /* small functions are captured, too */
    weft_tensor x = make_source(1, 48), y, sound = WEFT_NONE;
    weft_tensor bad = weft_to(weft_full(weft_shape(3), N, WEFT_I64), gpu0);
    weft_tensor good = weft_to(weft_full(weft_shape(3), 5, WEFT_I64), gpu0);
    weft_tensor state = weft_to(weft_ones(weft_shape(1), WEFT_F32), gpu0);
    weft_tensor index = weft_clone(good); /* one tensor: another is not replayed as a launch */
    for (int how = 0; how < 2; how++) {
        weft_jit *j = weft_jit_trace(takes_rows, NULL, .frozen = how, .verify_every = -1);
        int64_t captured = 0, failed = 0;
        for (int i = 0; i < CALLS; i++) {
            weft_tensor in[] = {x, index, state};
            cr_assert_eq(weft_copy_(index, i % 3 == 2 ? bad : good), WEFT_OK);
            cr_assert_eq(weft_jit_call(j, in, 3, &y, 1), WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_synchronize(gpu0), i % 3 == 2 ? WEFT_EINDEX : WEFT_OK, "call %d", i);
            if (i % 3 == 2) {
                cr_expect(strstr(weft_last_error(), "; operands: f32[3000], i64[3]"), "%s",
                          weft_last_error());
                check_spoilt(y, "index_select");
                check_spoilt(state, "index_select");
                cr_assert_eq(weft_fill_(state, 1), WEFT_OK);
                cr_assert_eq(weft_to_array(sound, v, 3, WEFT_F64), WEFT_OK,
                             "of the call before %d: %s", i, weft_last_error());
            } else {
                sound = y;
            }
            cr_assert_eq(weft_to_array(state, v, 1, WEFT_F64), WEFT_OK, "%s", weft_last_error());
            weft_jit_stats s;
            weft_jit_get_stats(j, &s);
            failed += i % 3 == 2 ? s.captured - captured : 0;
            captured = s.captured;
            cr_assert(i % 3 == 2 || weft_to_array(y, v, 3, WEFT_F64) == WEFT_OK, "call %d: %s", i,
                      weft_last_error());
        }
        cr_expect(how ? captured > failed && failed > 0 : captured == 0, "%d of %d", (int)failed,
                  (int)captured);
        weft_jit_free(j);
    }
}

#ifndef WEFT_GPU_RUNNER
/* What all of the above would see if nobody waited: the memory as it was. */
Test(gpu_copies, a_forgotten_wait_shows)
{
    weft_tensor x = make_source(1, 46), h = twice(x);
    wf_storage *st = wf_slot_at(wf_ctx_get(), h.slot)->st;
    cr_assert_eq(st->broken, WF_ARRIVING);
    st->broken = 0;
    cr_assert_neq(by_array(h), sum_of_twice);
    weft_synchronize(gpu0);
    cr_assert_eq(by_array(h), sum_of_twice);
}

Test(gpu_copies, only_the_copy_is_waited_for)
{
    weft_tensor x = make_source(1, 47), h = twice(x);
    const fake_driver *fake = fake_cuda(FAKE_LATE, 47);
    for (int i = 0; i < 5; i++) {
        weft_mul(x, weft_f(2));
    }
    cr_assert_eq(by_array(h), sum_of_twice);
    cr_assert_geq(fake->queued(), 5, "what was queued behind it was waited for, too");
}

Test(gpu_copies, memory_is_not_handed_out_before_its_copy_is_done)
{
    weft_tensor x = make_source(1, 48), h = twice(x);
    const fake_driver *fake = fake_cuda(FAKE_LATE, 48);
    int64_t pinned = fake->alive("host");
    weft_free(h);
    weft_tensor p = weft_pinned(weft_shape(N), WEFT_F32);
    cr_assert_eq(fake->alive("host"), pinned + 1);
    weft_free(p);
    weft_synchronize(gpu0);
    p = weft_pinned(weft_shape(N), WEFT_F32);
    h = weft_pinned(weft_shape(N), WEFT_F32);
    cr_assert(weft_ok(p) && weft_ok(h) && fake->alive("host") == pinned + 1);
    int64_t calls = fake->calls("cuMemHostAlloc");
    weft_free(h);
    for (int i = 0; i < 5; i++) {
        weft_scope s = weft_scope_begin();
        cr_assert_eq(by_array(twice(x)), sum_of_twice);
        weft_scope_end(s);
    }
    cr_assert_eq(fake->calls("cuMemHostAlloc"), calls, "a repeated step pins nothing");
}

Test(gpu_copies, every_driver_call_of_one_failing)
{
    static const char *const calls[] = {"cuMemHostAlloc", "cuMemcpyDtoHAsync_v2", "cuEventCreate",
                                        "cuEventRecord", "cuEventSynchronize"};
    weft_tensor x = make_source(1, 49), y = weft_mul(x, weft_f(2));
    const fake_driver *fake = fake_cuda(FAKE_LATE, 49);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor old = weft_to_async(x, WEFT_CPU); /* holds what is pinned, so that more is */
        fake->fail(calls[i], 1, 801);
        weft_tensor h = weft_to_async(y, WEFT_CPU);
        double sum = weft_ok(h) ? by_array(h) : 0;
        bool met = fake->failed()[0] != '\0', fatal = i == 1 || i == 4;
        cr_assert(met, "%s was not called", calls[i]);
        cr_assert(fatal ? strncmp(fake->failed(), calls[i], 14) == 0 &&
                              strstr(weft_last_error(), "CUDA_ERROR")
                        : sum == sum_of_twice,
                  "%s: %g, %s", calls[i], sum, weft_last_error());
        fake->fail(NULL, 0, 0);
        cr_assert_eq(by_array(old), sum_of_twice / 2);
        cr_assert_eq(by_array(weft_to_async(y, WEFT_CPU)), sum_of_twice);
        weft_scope_end(s);
        weft_cuda_empty_cache(gpu0);
    }
}

Test(gpu_copies, a_kernel_that_failed_where_there_is_no_event)
{
    static float v[N];
    weft_tensor x = make_source(1, 50);
    const fake_driver *fake = fake_cuda(FAKE_LATE, 50);
    fake->break_device(700);
    weft_tensor y = weft_mul(x, weft_f(2));
    fake->fail("cuEventRecord", 1, 801);
    weft_tensor h = weft_to_async(y, WEFT_CPU);
    cr_assert_str_eq(fake->failed(), "cuEventRecord");
    cr_assert(!weft_ok(h) || weft_to_array(h, v, N, WEFT_F32) != WEFT_OK,
              "what never arrived was read");
    cr_assert(strstr(weft_last_error(), "CUDA_ERROR"), "%s", weft_last_error());
}
#endif
