/*
 * tests/gpu/test_gpu_many.c -- a step over hundreds of tensors is a handful of launches, eager and traced, and has the host's bits.
 */
#include <math.h>

#include "jit/gpu/gpu.h"
#include "tests/gpu/equal.h"
#include "tests/gpu/gpu.h"
#include "weft/nn.h"

enum { TENSORS = 200, STEPS = 4, CLIPPED = 11 };

/* What is trained, and how. */
typedef struct model {
    weft_module *m;
    weft_optim *o;
    weft_device device;
    bool sgd, decays; /* decay where the rank is above 1 only: two programs */
    double clip;      /* 0: not */
    int step;
} model;

/* Whole vectors and odd sizes, scalars, none at all, one of several pieces of work. */
static weft_shape shape_at(int i)
{
    return i == 100      ? weft_shape(3, 8200)
           : i % 11 == 3 ? weft_shape()
           : i % 29 == 2 ? weft_shape(0)
           : i % 5 == 1  ? weft_shape(1 + i % 37)
                         : weft_shape(8 * (1 + i % 3), 16);
}

static void open_model(model *t, weft_device device)
{
    weft_generator g = {5, 0};
    t->device = device;
    t->step = 0;
    t->m = weft_module_new(NULL);
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        weft_module_parameter(t->m, name, weft_randn(shape_at(i), WEFT_F32, .generator = &g));
    }
    cr_assert_eq(weft_module_status(t->m), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_module_to(t->m, device), WEFT_OK, "%s", weft_last_error());
    t->o = t->sgd ? weft_sgd_new(.module = t->m, .lr = 0.1, .momentum = 0.9)
                  : weft_adamw_new(.module = t->m, .lr = 0.01, .weight_decay = 0.1,
                                   .decay_min_rank = t->decays ? 2 : 0);
    cr_assert_not_null(t->o, "%s", weft_last_error());
}

static void close_model(model *t)
{
    weft_optim_free(t->o);
    weft_module_free(t->m);
}

/* Gradients are made of the parameters, on the device. */
static weft_status step(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    model *t = self;
    weft_status s = weft_optim_set_lr(t->o, weft_lr_cosine(t->step++, 1, STEPS, 0.01, 0.001));
    (void)in, (void)n_in, (void)out, (void)n_out;
    if (t->clip > 0) {
        s = s ? s : weft_module_clip_grad_norm(t->m, t->clip, NULL);
    }
    return s ? s : weft_optim_step(t->o);
}

/* The same for all models, whatever the device. */
static void make_gradients(model *t, int round)
{
    weft_generator g = {9, (uint64_t)round << 32};
    for (int i = 0; i < weft_module_count(t->m); i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_randn(shape_at(i), WEFT_F32, .generator = &g);
        cr_assert_eq(weft_set_grad(weft_module_at(t->m, i).tensor, weft_to(x, t->device)), WEFT_OK,
                     "%s", weft_last_error());
        weft_scope_end(sc);
    }
}

static void check_models(const char *what, model *a, model *b)
{
    char name[96];
    for (int i = 0; i < weft_module_count(a->m); i++) {
        snprintf(name, sizeof name, "%s: %s", what, weft_module_at(a->m, i).name);
        check_equal(name, weft_module_at(a->m, i).tensor, weft_module_at(b->m, i).tensor);
    }
    check_optims(what, a->o, b->o);
}

/* Before driver 12.1 an argument has 4096 bytes. */
static int is_older(void)
{
    return wf_cuda_get_info(0)->driver < 12010;
}

/* Steps of the host, of the device and of a trace there: equal bits, and the last step in at most so many launches. */
static void check_steps(const char *what, model how, int most)
{
    model host = how, eager = how, traced = how;
    open_model(&host, WEFT_CPU);
    open_model(&eager, WEFT_CUDA(0));
    open_model(&traced, WEFT_CUDA(0));
    weft_jit *j = weft_jit_trace(step, &traced, .name = "many", .single_graph = true);
    for (int i = 0; i < STEPS; i++) {
        weft_scope sc = weft_scope_begin();
        make_gradients(&host, i);
        make_gradients(&eager, i);
        make_gradients(&traced, i);
        cr_assert_eq(step(&host, NULL, 0, NULL, 0), WEFT_OK, "%s", weft_last_error());
        const int before = (int)gpu_launches();
        cr_assert_eq(step(&eager, NULL, 0, NULL, 0), WEFT_OK, "%s", weft_last_error());
        const int between = (int)gpu_launches();
        cr_assert_eq(weft_jit_call(j, NULL, 0, NULL, 0), WEFT_OK, "%s", weft_last_error());
        const int after = (int)gpu_launches();
        if (getenv("WEFT_TEST_SHOW")) {
            fprintf(stderr, "%s, step %d: %d launches, traced %d\n", what, i, between - before,
                    after - between);
        }
        if (i == STEPS - 1) {
            cr_expect(between - before <= (how.clip > 0 ? CLIPPED + 6 * is_older() : most),
                      "%s: %d launches", what, between - before);
            cr_expect(after - between <= most, "%s, traced: %d launches", what, after - between);
        }
        check_models(what, &host, &eager);
        check_models(what, &host, &traced);
        wf_gpu_wait_kernels(); /* the next step is as all others will be */
        weft_scope_end(sc);
    }
    weft_jit_free(j);
    close_model(&host);
    close_model(&eager);
    close_model(&traced);
}

/* The counter of steps is one more; scalars are launches of their own, since a step of 0 is what broadcasting has. */
Test(gpu_many, steps)
{
    gpu_open(21);
    check_steps("AdamW", (model){0}, 3 + 1 + is_older());
    check_steps("SGD", (model){.sgd = true}, 3 + 1 + is_older());
    check_steps("AdamW, decay of some", (model){.decays = true}, 4 + 1 + is_older());
    /* in a trace norms of scalars and of nothing are rows of their own */
    check_steps("AdamW, clipped", (model){.clip = 1}, 40 + is_older());
    ((wf_cuda_info *)(uintptr_t)wf_cuda_get_info(0))->driver = 12000;
    check_steps("AdamW, driver 12.0", (model){0}, 4 + 1);
    cr_assert_eq(weft_leak_report(NULL), 0);
    gpu_check_races();
}

/* -- clipping op by op: which gradients go together, and which one by one ------------------------------------------- */

enum { SAME, MIXED, SHARED, TURNED, UNKNOWN, KINDS };

static weft_tensor gradient_of(int kind, int i, weft_dtype dtype, weft_generator *g)
{
    const bool wide = dtype == WEFT_F64 || (kind == MIXED && i == 1);
    weft_tensor x = weft_randn(weft_shape(6, 5), wide ? WEFT_F64 : WEFT_F32, .generator = g);
    if (kind == UNKNOWN && i == 2)
        x = weft_log(x); /* NaNs */
    return x;
}

/* Gradients of a kind, scaled on a device; the norm, if it is asked for. Launches of the last time. */
static int clip(int kind, weft_dtype dtype, weft_device device, double most, double *norm,
                weft_tensor *first, weft_tensor *second)
{
    weft_generator g = {(uint64_t)kind, 0};
    weft_module *m = weft_module_new(NULL);
    weft_tensor shared = WEFT_NONE;
    for (int i = 0; i < 5; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        weft_tensor x = gradient_of(kind, i, dtype, &g);
        weft_tensor p = weft_module_parameter(m, name, weft_to(weft_zeros_like(x), device));
        weft_tensor there = kind == SHARED && i == 1 ? shared : weft_to(x, device);
        if (kind == TURNED && i == 1)
            there = weft_transpose(weft_reshape(there, weft_shape(5, 6)), 0, 1);
        shared = i == 0 ? there : shared;
        cr_assert_eq(weft_set_grad(p, there), WEFT_OK, "%s", weft_last_error());
    }
    const int before = device.kind == WEFT_DEVICE_CPU ? 0 : (int)gpu_launches();
    cr_assert_eq(weft_module_clip_grad_norm(m, most, norm), WEFT_OK, "%s", weft_last_error());
    const int after = device.kind == WEFT_DEVICE_CPU ? 0 : (int)gpu_launches();
    *first = weft_grad(weft_module_at(m, 0).tensor);
    *second = weft_grad(weft_module_at(m, 1).tensor);
    weft_module_free(m);
    return after - before;
}

Test(gpu_many, clipping_op_by_op)
{
    gpu_open(23);
    weft_scope sc = weft_scope_begin();
    for (int i = 0; i < KINDS * 2 * 2 * 2; i++) {
        const int kind = i % KINDS;
        const weft_dtype dtype = i / KINDS % 2 ? WEFT_F64 : WEFT_F32;
        const bool looks = i / KINDS / 2 % 2;
        const double most = i / KINDS / 4 % 2 ? 1e3 : 2;
        double host = 1e4, there = 1e4;
        int launches = 0;
        weft_tensor a[2], b[2];
        clip(kind, dtype, WEFT_CPU, most, looks ? &host : NULL, &a[0], &a[1]);
        for (int again = 0; again < 2; again++) { /* with the kernels that the first time made */
            launches = clip(kind, dtype, WEFT_CUDA(0), most, looks ? &there : NULL, &b[0], &b[1]);
            wf_gpu_wait_kernels();
        }
        cr_expect(host == there || (isnan(host) && isnan(there)), "case %d: %g is not %g", i, there,
                  host);
        check_equal("the first gradient", a[0], b[0]);
        check_equal("the second", a[1], b[1]);
        const bool together =
            kind == SAME || kind == UNKNOWN || (kind == MIXED && dtype == WEFT_F64);
        const bool scaled = !looks || most < host; /* else there are norms only */
        cr_expect(together ? launches <= 5 : !scaled || launches > 5, "case %d: %d launches", i,
                  launches);
    }
    weft_scope_end(sc);
    cr_assert_eq(weft_leak_report(NULL), 0);
    gpu_check_races();
}

/* -- launches like ones before: the same ops on operands that lie alike, and otherwise ------------------------------- */

enum { ROWS = 6, COLUMNS = 96, SPARE = 40, WAYS = 8 };

/* x as a matrix in memory of its own: beginning at another element, with gaps, turned. */
static weft_tensor laid(weft_tensor memory, int way)
{
    const int64_t n = ROWS * COLUMNS;
    weft_tensor line = weft_narrow(memory, 0, way % 4 == 0 ? 0 : way % 4 == 3 ? 32 : way % 4, n);
    weft_tensor x = weft_reshape(line, weft_shape(ROWS, COLUMNS));
    return way < 4    ? x
           : way == 4 ? weft_narrow(x, 1, 1, COLUMNS - 8)
           : way == 5 ? weft_transpose(x, 0, 1)
           : way == 6 ? weft_slice(x, 1, 0, COLUMNS, 2)
                      : weft_expand(weft_narrow(x, 0, 1, 1), weft_shape(ROWS, COLUMNS));
}

/* The next launch is of a kernel that does not fit: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES. */
static void refuse_a_launch(void)
{
#ifndef WEFT_GPU_RUNNER
    fake_cuda(FAKE_RANDOM, 24)->fail("cuLaunchKernelEx", 1, 701);
#endif
}

enum { RESULTS = 10 };
static void all_ways(weft_tensor memory, int way, bool refused, weft_tensor *out)
{
    weft_tensor x = laid(memory, way), y = weft_mul(x, weft_f(-3)), twice = weft_clone(x),
                z = weft_clone(x);
    /* all at one address; then two of three */
    cr_assert_eq(weft_add_(twice, twice), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_add_(z, y), WEFT_OK, "%s", weft_last_error());
    out[0] = weft_add(x, y);
    out[1] = weft_mul(x, weft_f(0.25 * (way + 1)));
    out[2] = weft_cast(x, WEFT_BF16);
    out[3] = weft_gelu(weft_cast(x, WEFT_BF16));
    if (refused)
        refuse_a_launch();
    out[4] = weft_softmax(x, -1);
    out[5] = weft_sum(x, .axes = weft_axes(0));
    out[6] = weft_layer_norm(x);
    out[7] = twice;
    out[8] = z;
    out[9] = weft_norm(x, .axes = weft_axes(1));
}

/* Each again with other numbers at other addresses; a fused one that is known by then and refused goes op by op from then on. */
Test(gpu_many, launched_again)
{
    gpu_open(24);
    for (int round = 0; round < 3; round++) {
        for (int way = 0; way < WAYS; way++) {
            weft_scope sc = weft_scope_begin();
            weft_generator g = {(uint64_t)round + 1, 0};
            weft_tensor x =
                weft_randn(weft_shape(ROWS * COLUMNS + SPARE), WEFT_F32, .generator = &g);
            weft_tensor moved = weft_zeros(weft_shape(512 * (round + 1)), WEFT_F32), there,
                        a[RESULTS], b[RESULTS];
            moved = weft_to(moved, WEFT_CUDA(0)); /* in the way of what comes */
            there = weft_to(x, WEFT_CUDA(0));
            all_ways(there, way, round == 2 && way == 1, b);
            all_ways(x, way, false, a);
            for (int i = 0; i < RESULTS; i++) {
                char name[48];
                snprintf(name, sizeof name, "round %d, way %d, result %d", round, way, i);
                check_equal(name, a[i], b[i]);
            }
            wf_gpu_wait_kernels();
            weft_scope_end(sc);
        }
    }
    cr_assert_eq(weft_leak_report(NULL), 0);
    gpu_check_races();
}

/* Two parameters that are parts of one memory and meet there: one update behind the other. */
Test(gpu_many, parameters_that_overlap)
{
    gpu_open(22);
    enum { N = 64, PART = 40, OTHER = 20 };
    weft_scope sc = weft_scope_begin();
    weft_tensor memory[2];
    for (int d = 0; d < 2; d++) {
        weft_generator g = {3, 0};
        weft_module *m = weft_module_new(NULL);
        memory[d] = weft_to(weft_randn(weft_shape(N), WEFT_F32, .generator = &g),
                            d ? WEFT_CUDA(0) : WEFT_CPU);
        for (int i = 0; i < 2; i++) {
            weft_tensor part = weft_narrow(memory[d], 0, i ? OTHER : 0, PART);
            weft_tensor p = weft_module_parameter(m, i ? "b" : "a", part);
            weft_tensor grad = weft_randn(weft_shape(PART), WEFT_F32, .generator = &g);
            cr_assert_eq(weft_set_grad(p, weft_to(grad, d ? WEFT_CUDA(0) : WEFT_CPU)), WEFT_OK,
                         "%s", weft_last_error());
        }
        weft_optim *o = weft_adamw_new(.module = m, .lr = 0.1, .weight_decay = 0.5);
        for (int i = 0; i < STEPS; i++) {
            cr_assert_eq(weft_optim_step(o), WEFT_OK, "%s", weft_last_error());
            wf_gpu_wait_kernels();
        }
        weft_optim_free(o);
        weft_module_free(m);
    }
    check_equal("what both are parts of", memory[0], memory[1]);
    weft_scope_end(sc);
    gpu_check_races();
}
