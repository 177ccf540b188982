/*
 * tests/jit/test_jit_memory.c -- what a traced call takes: no more at its fullest than the function called eagerly,
 * nothing from the system once it has run a few times, one block and its results where kernels need no scratch.
 */
/* ctest: timeout=300 */
#include <criterion/criterion.h>

#include "examples/transformer.h"
#include "tests/support/sanitized.h"
#include "weft/jit.h"
#include "weft/weft.h"

/* calls: until a plan has chosen its way; bytes of kernels' scratch, half a value here, which depends on threads and on the way that was
 * chosen */
enum { ROWS = 512, COLS = 256, LAYERS = 6, CALLS = 30, SMALL = 256 << 10 };

static weft_tensor weights[LAYERS];
static transformer model;
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

static weft_status transform(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = transformer_forward(&model, in[1]);
    return weft_error_status(out[0]);
}

static weft_status train(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_module_zero_grad(model.m);
    weft_tensor loss =
        weft_cross_entropy(weft_flatten(transformer_forward(&model, in[1]), 0, 1), in[2]);
    out[0] = weft_detach(loss);
    weft_status bad = weft_backward(loss);
    return bad ? bad : weft_optim_step(optim);
}

/* The most that a call takes beyond what was there before, and how often it asks for memory: never the system. */
static int64_t peak_of(weft_jit_fn fn, weft_jit *j, const weft_tensor *in, int64_t *asked)
{
    weft_memory_stats before, after;
    for (int i = 0; i <= CALLS; i++) {
        weft_tensor y;
        weft_scope sc = weft_scope_begin();
        weft_memory_reset_peak();
        weft_memory_get_stats(&before);
        weft_status rc = j ? weft_jit_call(j, in, 3, &y, 1) : fn(NULL, in, 3, &y, 1);
        weft_memory_get_stats(&after);
        cr_assert_eq(rc, WEFT_OK, "%s", weft_last_error());
        weft_scope_end(sc);
    }
    cr_expect(UNDER_ASAN || after.system_allocations == before.system_allocations);
    *asked = after.allocations - before.allocations;
    return after.peak_bytes - before.live_bytes;
}

typedef struct limits {
    const char *name;
    weft_jit_fn fn;
    double of_eager; /* times the eager peak */
    int64_t
        asked; /* of a replay: the call's own block, the plan's, a result each; 0: kernels take scratch */
} limits;

static void check_peak(const limits *x, const weft_tensor *in)
{
    int64_t asked, eager = peak_of(x->fn, NULL, in, &asked);
    for (int frozen = 0; frozen < 2; frozen++) {
        weft_jit *j = weft_jit_trace(x->fn, NULL, .name = x->name, .synchronous = true,
                                     .frozen = frozen, .always_record = true, .verify_every = -1);
        int64_t traced = peak_of(x->fn, j, in, &asked);
        cr_expect((double)traced <= x->of_eager * (double)eager + SMALL,
                  "%s, frozen %d: %lld bytes, %lld eagerly", x->name, frozen, (long long)traced,
                  (long long)eager);
        cr_expect(!frozen || x->asked == 0 || asked <= x->asked, "%s: %lld allocations", x->name,
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
    cr_assert_eq(
        transformer_init(&model, (transformer_sizes){100, 64, 2, 4, 32, .tied = false}, NULL),
        WEFT_OK);
    optim = weft_adamw_new(model.m, .lr = 1e-3);
}

/* A step of training makes its gradients' memory at once, and eager code while activations go. */
Test(jit_memory, no_more_than_eagerly)
{
    static const limits no_grad[] = {{"layers", layers, 1, 0},
                                     {"sums", sums, 1, 3},
                                     {"in_place", in_place, 1, 3},
                                     {"elementwise", elementwise, 1, 3},
                                     {"transformer", transform, 1, 0}},
                        with_grad[] = {{"backward", backward, 1, 0}, {"train", train, 1.3, 0}};
    weft_tensor in[3];
    open_all(in);
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
    weft_optim_free(optim);
    weft_module_free(model.m);
}
