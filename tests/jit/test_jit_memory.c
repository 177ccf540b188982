/*
 * tests/jit/test_jit_memory.c -- what a traced call takes: no more at its fullest than the function called eagerly, and once
 * it has run a few times nothing from anybody: not from the system, not from the allocator, not from malloc. What it keeps for
 * that is nobody's who still has a result, and goes back when the caller asks for it.
 */
/* ctest: timeout=300 */
#include <criterion/criterion.h>

#include "eager/alloc.h"
#include "tests/support/sanitized.h"
#include "weft/jit.h"
#include "weft/weft.h"

/* rows: fewer where elements are watched; calls: until a plan has chosen its way; bytes of kernels' scratch, half a value here, which depends on threads and on the way that was
 * chosen; of what a call has besides tensors: headers, an optimiser's lists */
enum {
    ROWS = UNDER_ASAN ? 128 : 512,
    COLS = 256,
    LAYERS = 6,
    CALLS = 30,
    SCRATCH = 256 << 10,
    SMALL = 4 << 10,
    STATES = 8
};

static weft_tensor weights[LAYERS], states[STATES];
static weft_module *module;
static weft_nn_gpt model;
static weft_optim *optim;

static weft_status layers(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_clone(in[0]);
    for (int i = 0; i < LAYERS; i++) {
        weft_assign(&h, weft_matmul(h, weights[i]));
        weft_assign(&h, weft_layer_norm(h));
        weft_assign(&h, weft_gelu(h));
    }
    out[0] = h;
    return weft_error_status(h);
}

static weft_status sums(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_exp(in[0]);
    for (int i = 0; i < 10; i++) {
        weft_assign(&h, weft_cumsum(h, 0));
    }
    out[0] = h;
    return weft_error_status(h);
}

static weft_status in_place(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_exp(in[0]);
    for (int i = 0; i < 10; i++) {
        weft_tensor p = weft_softmax(h, -1);
        weft_add_(h, in[0]);
        weft_mul_(h, p);
        weft_assign(&p, WEFT_NONE);
    }
    out[0] = h;
    return weft_error_status(h);
}

static weft_status elementwise(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                               int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_gelu(weft_add(weft_mul(in[0], in[0]), weft_f(2)));
    return weft_error_status(out[0]);
}

/* Tensors that only the function has are replaced one after the other. */
static weft_status replace(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    for (int i = 0; i < STATES; i++) {
        weft_assign(&states[i], weft_cumsum(states[i], 0));
    }
    out[0] = weft_sum(in[0]);
    return weft_error_status(states[STATES - 1]);
}

/* The same by a kernel that could run on all of them at once. */
static weft_status decay_states(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    for (int i = 0; i < STATES; i++) {
        weft_assign(&states[i], weft_mul(states[i], weft_f(0.5)));
    }
    out[0] = weft_sum(in[0]);
    return weft_error_status(states[STATES - 1]);
}

/* Likewise of temporaries. */
static weft_status one_by_one(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor sum = weft_sum(in[0]);
    for (int i = 0; i < STATES; i++) {
        weft_tensor h = weft_exp(states[i]);
        weft_assign(&h, weft_cumsum(h, 0));
        weft_assign(&sum, weft_add(sum, weft_sum(h)));
        weft_free(h);
    }
    out[0] = sum;
    return weft_error_status(sum);
}

/* The result is smaller than temporaries, and made when they are gone. */
static weft_status late(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_concat(WEFT_LIST(in[0], in[0], in[0]), 0);
    weft_assign(&h, weft_cumsum(h, 0));
    weft_tensor sum = weft_sum(h);
    weft_assign(&h, weft_concat(WEFT_LIST(in[0], in[0]), 0));
    weft_assign(&h, weft_mul(h, sum));
    out[0] = weft_cumsum(h, 0);
    return weft_error_status(out[0]);
}

/* Gradients are results. */
static weft_status backward(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = in[0];
    for (int i = 0; i < LAYERS; i++) {
        h = weft_gelu(weft_layer_norm(weft_matmul(h, weights[i])));
    }
    weft_tensor loss = weft_mean(weft_square(h));
    for (int i = 0; i < LAYERS; i++) {
        weft_set_grad(weights[i], WEFT_NONE);
    }
    out[0] = weft_detach(loss);
    return weft_backward(loss);
}

/* Gradients of three batches are added up, and would be at the end if that were free. */
static weft_status accumulate(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_status s = WEFT_OK;
    for (int i = 0; i < LAYERS; i++) {
        weft_set_grad(weights[i], WEFT_NONE);
    }
    for (int k = 0; k < 3 && !s; k++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor h = weft_narrow(in[0], 0, 16 * k, 16);
        for (int i = 0; i < LAYERS; i++) {
            h = weft_tanh(weft_matmul(h, weights[i]));
        }
        s = weft_backward(weft_mean(weft_square(h)));
        weft_scope_end(sc);
    }
    weft_no_grad_begin();
    for (int i = 0; i < LAYERS && !s; i++) {
        s = weft_add_(weights[i], weft_mul(weft_grad(weights[i]), weft_f(-1e-3)));
    }
    weft_no_grad_end();
    out[0] = weft_sum(in[0]);
    return s;
}

static weft_status transform(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_nn_gpt_forward(&model, in[1]);
    return weft_error_status(out[0]);
}

static weft_status train(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_module_zero_grad(module);
    weft_tensor loss =
        weft_cross_entropy(weft_flatten(weft_nn_gpt_forward(&model, in[1]), 0, 1), in[2]);
    out[0] = weft_detach(loss);
    weft_status bad = weft_backward(loss);
    bad = bad ? bad : weft_module_clip_grad_norm(module, 1, NULL);
    return bad ? bad : weft_optim_step(optim);
}

/* The most that a call takes beyond what was there before, and how often it asks for memory, malloc's too, at least (a thread
 * that was late so far has no scratch yet): never the system. */
static int64_t peak_of(weft_jit_fn fn, weft_jit *j, const weft_tensor *in, int64_t *asked)
{
    wf_alloc_stats before, after;
    for (int i = 0; i <= CALLS; i++) {
        weft_tensor y;
        weft_scope sc = weft_scope_begin();
        weft_memory_reset_peak();
        wf_alloc_get_stats(&before);
        weft_status rc = j ? weft_jit_call(j, in, 3, &y, 1) : fn(NULL, in, 3, &y, 1);
        wf_alloc_get_stats(&after);
        cr_assert_eq(rc, WEFT_OK, "%s", weft_last_error());
        weft_scope_end(sc);
        const int64_t now = after.allocs - before.allocs + after.mallocs - before.mallocs;
        *asked = i == 0 || now < *asked ? now : *asked;
    }
    cr_expect(SYSTEM_BLOCKS || after.system_allocs == before.system_allocs);
    return after.peak_bytes - before.live_bytes;
}

typedef struct limits {
    const char *name;
    weft_jit_fn fn;
    int64_t more; /* than eagerly: SMALL, or kernels' scratch */
} limits;

static void check_peak(const limits *x, const weft_tensor *in)
{
    int64_t asked, eager = peak_of(x->fn, NULL, in, &asked);
    for (int frozen = 0; frozen < 2; frozen++) {
        weft_jit *j = weft_jit_trace(x->fn, NULL, .name = x->name, .synchronous = true,
                                     .frozen = frozen, .always_record = true, .verify_every = -1);
        int64_t traced = peak_of(x->fn, j, in, &asked);
        cr_expect_leq(traced, eager + x->more, "%s, frozen %d: %lld bytes, %lld eagerly", x->name,
                      frozen, (long long)traced, (long long)eager);
        /* under AddressSanitizer every block is the system's, and asked for */
        cr_expect(SYSTEM_BLOCKS || asked == 0, "%s, frozen %d: %lld allocations", x->name, frozen,
                  (long long)asked);
        weft_jit_free(j);
    }
}

static void open_all(weft_tensor *in)
{
    in[0] = weft_randn(weft_shape(ROWS, COLS), WEFT_F32);
    in[1] = weft_randint(weft_shape(8, 32), 0, 100);
    in[2] = weft_randint(weft_shape(8 * 32), 0, 100);
    for (int i = 0; i < LAYERS; i++) {
        weights[i] = weft_randn(weft_shape(COLS, COLS), WEFT_F32);
    }
    module = weft_module_new(NULL);
    cr_assert_eq(weft_nn_gpt_init(&model, module, "", .vocab = 100, .dim = 64, .heads = 4,
                                  .layers = 2, .context = 32),
                 WEFT_OK);
    optim = weft_adamw_new(module, .lr = 1e-3);
}

Test(jit_memory, no_more_than_eagerly)
{
    static const limits no_grad[] = {{"layers", layers, SCRATCH},
                                     {"sums", sums, SMALL},
                                     {"in_place", in_place, SMALL},
                                     {"elementwise", elementwise, SMALL},
                                     {"late", late, SMALL},
                                     {"replace", replace, SCRATCH},
                                     {"decay_states", decay_states, SCRATCH},
                                     {"one_by_one", one_by_one, SCRATCH},
                                     {"transformer", transform, SMALL}},
                        with_grad[] = {{"backward", backward, SCRATCH},
                                       {"accumulate", accumulate, SMALL},
                                       {"train", train, SCRATCH}};
    weft_tensor in[3];
    weft_set_num_threads(
        2); /* of many threads some one might need its first scratch in each call */
    open_all(in);
    for (int i = 0; i < STATES; i++) {
        states[i] = weft_keep(weft_randn(weft_shape(ROWS, COLS), WEFT_F32));
    }
    weft_no_grad_begin();
    for (size_t i = 0; i < sizeof no_grad / sizeof *no_grad; i++) {
        check_peak(&no_grad[i], in);
    }
    weft_no_grad_end();
    for (int i = 0; i < LAYERS; i++) {
        weft_requires_grad_(weights[i], true);
    }
    for (size_t i = 0; i < sizeof with_grad / sizeof *with_grad; i++) {
        check_peak(&with_grad[i], in);
    }
    for (int i = 0; i < STATES; i++) {
        weft_free(states[i]);
    }
    weft_optim_free(optim);
    weft_module_free(module);
}

static weft_status hundred(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    weft_tensor (*const rows[])(weft_tensor) = {weft_sin, weft_tanh, weft_abs, weft_sigmoid,
                                                weft_neg};
    weft_tensor h = weft_exp(in[0]);
    (void)self, (void)n_in, (void)n_out;
    for (int i = 1; i < 100; i++) {
        weft_assign(&h, rows[i % 5](h));
    }
    out[0] = h;
    return weft_error_status(h);
}

/* A hundred unary ops one after the other have one buffer, their result's: fused, and where each is a launch in the place of the
 * one before. */
Test(jit_memory, a_chain_of_a_hundred_has_one_buffer)
{
    weft_tensor one = weft_randn(weft_shape(ROWS, COLS), WEFT_F32), x[3] = {one, one, one};
    for (int way = 0; way < 4; way++) {
        weft_jit *j = weft_jit_trace(hundred, NULL, .synchronous = true, .no_fuse = way % 2,
                                     .frozen = way / 2, .always_record = true, .verify_every = -1);
        int64_t asked;
        const int64_t took = peak_of(hundred, j, x, &asked);
        cr_expect(took >= 4 * ROWS * COLS && took <= 4 * ROWS * COLS + SMALL, "way %d: %lld bytes",
                  way, (long long)took);
        weft_jit_free(j);
    }
}

static weft_status decay(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)out, (void)n_out;
    for (int i = 0; i < n_in; i++) {
        weft_mul_(in[i], weft_f(0.5));
        weft_add_(in[i], weft_f(*(const int *)self));
    }
    return WEFT_OK;
}

/* A frozen call that has no results and no temporaries asks nobody for memory: not the allocator, not malloc. */
Test(jit_memory, a_frozen_call_in_place_allocates_nothing)
{
    static const int counts[] = {1, 7, 30};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor in[30], out;
        weft_jit_stats stats;
        for (int i = 0; i < counts[k]; i++) {
            in[i] = weft_ones(weft_shape(5 + i, 8), WEFT_F32);
        }
        weft_jit *j = weft_jit_trace(decay, (int[]){1}, .frozen = true, .synchronous = true,
                                     .always_record = true, .verify_every = -1);
        for (int i = 0; i < CALLS; i++) {
            cr_assert_eq(weft_jit_call(j, in, counts[k], &out, 0), WEFT_OK, "%s",
                         weft_last_error());
        }
        wf_alloc_fail_after(1, 1);
        for (int i = 0; i < CALLS; i++) {
            cr_expect_eq(weft_jit_call(j, in, counts[k], &out, 0), WEFT_OK);
        }
        wf_alloc_fail_after(0, 0);
        weft_jit_get_stats(j, &stats);
        cr_expect_geq(stats.frozen, CALLS, "%d arguments: %lld frozen calls", counts[k],
                      (long long)stats.frozen);
        double sum;
        cr_assert_eq(weft_item(weft_sum(in[0]), &sum), WEFT_OK);
        cr_expect_float_eq(sum, 2 * 5 * 8, 1e-3);
        weft_jit_free(j);
        weft_scope_end(sc);
    }
}

static weft_status shifted(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_cumsum(weft_add(in[0], in[0]), 0);
    out[0] = weft_sub(h, in[0]);
    out[1] = weft_narrow(weft_mul(h, in[0]), 0, 1, 2);
    return weft_error_status(out[1]);
}

/* Of ones times x, [n, n]: rows of (2 (i + 1) - 1) x, and from its second row on rows of 2 (i + 1) x^2. */
static void check_shifted(const weft_tensor *y, float x, int64_t n)
{
    const float *a = weft_data(y[0]), *b = weft_data(y[1]);
    for (int64_t i = 0; i < n; i++) {
        cr_assert_eq(a[i * n], (float)(2 * i + 1) * x);
    }
    cr_assert_eq(b[0], 4 * x * x);
    cr_assert_eq(b[n], 6 * x * x);
}

/* Results that somebody has, or a view of them, keep their memory, whatever is called meanwhile; memory of those that went is
 * used again, and all of it goes back. */
Test(jit_memory, results_keep_what_is_theirs)
{
    enum { HELD = 5 };
    static const int64_t extents[] = {4, 96,
                                      700}; /* in 64 bytes, in a cached block, in a large one */
    for (int k = 0; k < 6; k++) {
        const int64_t n = extents[k % 3];
        weft_jit *j = weft_jit_trace(shifted, NULL, .frozen = k >= 3, .synchronous = true,
                                     .always_record = true, .verify_every = -1);
        weft_tensor held[HELD][2] = {{WEFT_NONE}};
        for (int i = 0; i < 40; i++) {
            weft_scope sc = weft_scope_begin();
            weft_tensor *y = held[i % HELD], x = weft_full(weft_shape(n, n), i + 1, WEFT_F32), r[2];
            cr_assert_eq(weft_jit_call(j, &x, 1, r, 2), WEFT_OK, "%s", weft_last_error());
            for (int o = 0; o < 2; o++) {
                weft_free(y[o]);
                y[o] = weft_keep(r[o]);
            }
            weft_scope_end(sc);
            for (int h = 0; h <= i && h < HELD; h++) { /* the latest HELD */
                check_shifted(held[(i - h) % HELD], (float)(i + 1 - h), n);
            }
        }
        if (k % 2) { /* results may outlive what made them */
            weft_jit_free(j);
        }
        for (int i = 0; i < HELD; i++) {
            check_shifted(held[i], (float)(36 + i), n);
            weft_free(held[i][0]);
            weft_free(held[i][1]);
        }
        if (k % 2 == 0) {
            weft_jit_free(j);
        }
    }
    weft_shutdown(); /* what the pool's threads have for themselves goes with them, however many they are */
    weft_memory_stats left;
    weft_memory_get_stats(&left);
    cr_expect_lt(left.live_bytes, SMALL, "%lld bytes are live", (long long)left.live_bytes);
    cr_expect_leq(left.reserved_bytes, 4 << 20, "%lld bytes are held",
                  (long long)left.reserved_bytes);
}
