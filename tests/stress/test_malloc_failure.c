/*
 * tests/stress/test_malloc_failure.c -- traced functions, frozen steps and graphs, saved and loaded, with the n-th of all calls of
 * malloc failing, for every n: test_alloc_failure.c of what the compiler and files ask the C library for, not weft's allocator.
 *
 * The failing run ends with WEFT_ENOMEM and a text, or has the same bits; nothing stays that did not before, and the next run is
 * whole. Only calls from this program's text fail, which holds the library, and on the thread of the test.
 *
 * ctest: timeout=120
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/sanitized.h"
#include "tests/support/support.h"
#include "weft/graph.h"

#define S(...) weft_shape(__VA_ARGS__)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        weft_status s_ = call;                                                                     \
        if (s_ != WEFT_OK) {                                                                       \
            return s_;                                                                             \
        }                                                                                          \
    } while (0)

/* -- the allocator that fails ------------------------------------------------------------------------------- */

enum { INTERPOSED = !UNDER_ASAN && !UNDER_TSAN && !UNDER_MSAN };

static _Thread_local long left; /* calls until one fails; 0: none does */
static _Thread_local bool forever;

#if !UNDER_ASAN && !UNDER_TSAN && !UNDER_MSAN
extern void *__libc_malloc(size_t size), *__libc_calloc(size_t n, size_t size),
    *__libc_realloc(void *p, size_t size);
extern const char __executable_start[], etext[];

static bool fails(const void *caller)
{
    const char *from = caller;
    if (left == 0 || from < __executable_start || from >= etext) {
        return false;
    }
    const bool yes = left == 1;
    left -= !yes || !forever;
    return yes;
}

void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, size);
}
#endif

/* -- what is run ---------------------------------------------------------------------------------------------- */

enum { MOST = 8 };

typedef struct outcome {
    double value[MOST];
    int n;
} outcome;

static weft_tensor weight, bias, start, parameter;

static weft_status note(outcome *o, weft_tensor t)
{
    const weft_tensor sum = weft_sum(weft_cast(t, WEFT_F64));
    TRY(weft_error_status(sum));
    return weft_item(sum, &o->value[o->n++]);
}

/* What the next call finds on the stack: nothing that could pass for 0. */
__attribute__((noinline)) static void soil(void)
{
    volatile unsigned char stack[16384];
    for (size_t i = 0; i < sizeof stack; i++) {
        stack[i] = 0x5a;
    }
}

static weft_status forward(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const weft_tensor h = weft_gelu(weft_linear(in[0], weight, bias));
    soil();
    const weft_tensor normal =
        weft_layer_norm(h); /* a row of three results: with the first attributes */
    soil();
    out[0] = weft_add(weft_softmax(normal, -1), weft_sum(h, .axes = weft_axes(1), .keepdim = true));
    return weft_error_status(out[0]);
}

/* A number that is a size, another way of writing it where that is 1, and no sizes of less than 4. */
static weft_status from_four(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                             int n_out)
{
    const int64_t n = weft_dim(in[0], 0);
    TRY(forward(self, in, n_in, out, n_out));
    out[0] = weft_add(weft_div(out[0], weft_f((double)n)), weft_narrow(in[0], 0, 3, 1));
    return weft_error_status(out[0]);
}

/* Not the same function at every size. */
static weft_status branches(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                            int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_dim(in[0], 0) == 1 ? weft_neg(in[0]) : weft_relu(in[0]);
    return weft_error_status(out[0]);
}

static weft_status step(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    const weft_tensor loss = weft_mean(weft_square(weft_matmul(in[0], parameter)));
    TRY(weft_backward(loss));
    out[0] = weft_detach(loss);
    weft_no_grad_begin();
    const weft_status s = weft_sub_(parameter, weft_mul(weft_grad(parameter), weft_f(0.01)));
    weft_no_grad_end();
    TRY(weft_set_grad(parameter, WEFT_NONE));
    return s;
}

static weft_status calls(outcome *o, weft_jit *j, weft_tensor x)
{
    for (int i = 0; i < 4; i++) {
        weft_tensor y;
        TRY(j ? weft_jit_call(j, &x, 1, &y, 1) : weft_last_status());
        TRY(note(o, y));
    }
    return WEFT_OK;
}

static weft_status traced(outcome *o, weft_tensor x)
{
    weft_jit *j = weft_jit_trace(forward, NULL, .synchronous = true);
    const weft_status s = calls(o, j, x);
    weft_jit_free(j);
    return s;
}

static weft_status frozen(outcome *o, weft_tensor x)
{
    weft_jit *j = weft_jit_trace(step, NULL, .synchronous = true, .frozen = true);
    const weft_status s = calls(o, j, x);
    weft_jit_free(j);
    return s == WEFT_OK ? note(o, parameter) : s;
}

static weft_status run_saved(outcome *o, const weft_graph *g, weft_tensor x, const char *path)
{
    TRY(g ? weft_graph_save(g, path) : weft_last_status());
    weft_graph *loaded = weft_graph_load(path);
    weft_tensor y;
    weft_status s = loaded ? weft_graph_run(loaded, &x, 1, &y, 1) : weft_last_status();
    s = s == WEFT_OK ? note(o, y) : s;
    if (s == WEFT_OK) { /* any size, as it was recorded */
        const weft_tensor twice = weft_concat((weft_tensor[]){x, x}, 2, 0);
        s = weft_graph_run(loaded, &twice, 1, &y, 1);
        s = s == WEFT_OK ? note(o, y) : s;
    }
    weft_graph_free(loaded);
    return s;
}

static double noted(const char *text, char end)
{
    double sum = 0;
    for (const char *p = text; *p && *p != end; p++) {
        sum = sum * 31 + *p;
        sum -= floor(sum * 0x1p-40) * 0x1p40;
    }
    return sum;
}

/* The first line of the function's text, which has the ranges that were found, and what the weights are called. */
static weft_status note_text(outcome *o, const weft_graph *g)
{
    static char text[1 << 16];
    FILE *out = fmemopen(text, sizeof text, "w");
    cr_assert_not_null(out);
    const weft_status s = weft_graph_print(g, out);
    fclose(out);
    o->value[o->n++] = noted(text, '\n');
    for (int i = 0; i < weft_graph_weights(g); i++) {
        weft_graph_port port;
        cr_assert_eq(weft_graph_weight(g, i, &port), WEFT_OK);
        o->value[o->n++] = noted(port.name, '\0');
    }
    return s;
}

static weft_status save(outcome *o, weft_tensor x, weft_jit_fn fn)
{
    char path[64];
    /* where a file's way to the disk takes no time, if there is such a place */
    snprintf(path, sizeof path, "%s/weft-malloc-failure-%ld.weft",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    weft_graph *g =
        weft_jit_graph(fn, NULL, &x, 1, .dims = (weft_graph_dim[]){{0, 0, "batch"}}, .n_dims = 1);
    weft_status s = run_saved(o, g, x, path);
    s = s == WEFT_OK ? note_text(o, g) : s;
    weft_graph_free(g);
    remove(path);
    return s;
}

static weft_status saved(outcome *o, weft_tensor x)
{
    return save(o, x, forward);
}

static weft_status saved_from_four(outcome *o, weft_tensor x)
{
    return save(o, x, from_four);
}

/* A refusal is what is wanted. */
static weft_status refused(outcome *o, weft_tensor x)
{
    weft_graph *g = weft_jit_graph(branches, NULL, &x, 1,
                                   .dims = (weft_graph_dim[]){{0, 0, "batch"}}, .n_dims = 1);
    o->value[o->n++] = g != NULL;
    weft_graph_free(g);
    return !g && weft_last_status() == WEFT_EUNSUPPORTED ? WEFT_OK : weft_last_status();
}

typedef weft_status program(outcome *o, weft_tensor x);

static weft_tensor normal(weft_shape shape, uint64_t seed)
{
    return weft_keep(weft_randn(shape, WEFT_F32, .generator = &(weft_generator){seed, 0}));
}

/* p from the same start, with the n-th call of malloc failing, and those after it if asked. *unmet: calls that were left. */
static weft_status run(program *p, outcome *o, weft_tensor x, long n, bool ever, long *unmet)
{
    weft_scope scope = weft_scope_begin();
    weft_no_grad_begin();
    cr_assert_eq(weft_copy_(parameter, start), WEFT_OK);
    weft_no_grad_end();
    weft_clear_error();
    *o = (outcome){.n = 0};
    forever = ever;
    left = n;
    const weft_status s = p(o, x);
    *unmet = left;
    left = 0;
    cr_assert_eq(weft_set_grad(parameter, WEFT_NONE), WEFT_OK);
    weft_scope_end(scope);
    return s;
}

static void check_failures(program *p, bool ever)
{
    if (!INTERPOSED) {
        cr_skip_test("a sanitizer has the allocator");
    }
    setenv("WEFT_STRESS", "evict", 1); /* each run plans anew */
    setenv("WEFT_JIT", "0", 1);
    weight = normal(S(8, 8), 1), bias = normal(S(8), 2), start = normal(S(8, 8), 4);
    cr_assert_eq(weft_set_name(weight, "fc.weight"), WEFT_OK);
    cr_assert_eq(weft_set_name(bias, "fc.bias"), WEFT_OK);
    parameter = weft_keep(weft_clone(start));
    cr_assert_eq(weft_requires_grad_(parameter, true), WEFT_OK);
    const weft_tensor x = normal(S(6, 8), 3);
    outcome want, got;
    long unmet = 0, failed = 0, n = 1;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(run(p, &want, x, 0, false, &unmet), WEFT_OK, "%s", weft_last_error());
    }
    const test_baseline before = test_baseline_take();
    for (bool met = true; met; n++) {
        const weft_status s = run(p, &got, x, n, ever, &unmet);
        met = ever ? s != WEFT_OK || unmet == 1 : unmet == 0;
        failed += s != WEFT_OK;
        cr_assert(s == WEFT_OK || s == WEFT_ENOMEM, "call %ld: %s: %s", n, weft_status_name(s),
                  weft_last_error());
        cr_assert(s == WEFT_OK || strlen(weft_last_error()) > 10, "call %ld", n);
        cr_assert(s != WEFT_OK || memcmp(&got, &want, sizeof want) == 0, "call %ld: other bits", n);
        check_baseline("after a call of malloc failed", &before);
        cr_assert_eq(run(p, &got, x, 0, false, &unmet), WEFT_OK, "after call %ld: %s", n,
                     weft_last_error());
        cr_assert_eq(memcmp(&got, &want, sizeof want), 0, "after call %ld: other bits", n);
    }
    cr_assert_gt(n, 20, "only %ld calls", n);
    cr_assert_gt(failed, 5, "only %ld failures", failed);
}

Test(malloc_failure, traced)
{
    check_failures(traced, false);
}

Test(malloc_failure, frozen)
{
    check_failures(frozen, false);
}

Test(malloc_failure, saved)
{
    check_failures(saved, false);
}

Test(malloc_failure, saved_from_four)
{
    check_failures(saved_from_four, false);
}

Test(malloc_failure, refused)
{
    check_failures(refused, false);
}

Test(malloc_failure, saved_all_after)
{
    check_failures(saved, true);
}
