/*
 * tests/gpu/trace_cases.h -- traces and graphs of a device's tensors: guards, breaks, two devices in one function, files.
 */
#ifndef TESTS_GPU_TRACE_CASES_H
#define TESTS_GPU_TRACE_CASES_H

#include <unistd.h>

#include "tests/gpu/equal.h"
#include "weft/graph.h"
#include "weft/jit.h"

static weft_tensor numbers(int64_t rows, int64_t columns)
{
    weft_tensor x = weft_arange(0, (double)(rows * columns), 1, WEFT_F32);
    return weft_reshape(weft_sin(x), weft_shape(rows, columns));
}

static weft_tensor here_and_there(weft_tensor x)
{
    weft_tensor sum = weft_sum(x);
    return weft_softmax(weft_add(weft_gelu(weft_mul(x, weft_f(1.5))), sum), 1);
}

static weft_status pure(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    out[0] = here_and_there(in[0]);
    return weft_error_status(out[0]);
}

/* Frozen calls look at the device of their arguments; a plan is of one device. */
static void check_frozen_guards_the_device(void)
{
    weft_jit *j = weft_jit_trace(pure, NULL, .frozen = true, .verify_every = -1);
    weft_tensor h = numbers(5, 7), d = weft_to(h, WEFT_CUDA(0)), y;
    weft_tensor want = here_and_there(h);
    weft_jit_stats s;
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(weft_jit_call(j, &d, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_device_of(y).kind, WEFT_DEVICE_CUDA);
        check_equal("frozen", want, y);
    }
    weft_jit_get_stats(j, &s);
    cr_assert_geq(s.frozen, 3);
    cr_assert_eq(s.plans, 1);
    cr_assert_eq(weft_jit_call(j, &h, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_device_of(y).kind, WEFT_DEVICE_CPU);
    check_equal("recorded", want, y);
    weft_jit_get_stats(j, &s);
    cr_assert_eq(s.misses, 1);
    cr_assert_eq(s.plans, 2);
    weft_jit_free(j);
}

static weft_status from_nothing(void *self, const weft_tensor *in, int n, weft_tensor *out, int m)
{
    (void)self, (void)in, (void)n, (void)m;
    out[0] = weft_add(weft_arange(0, 4, 1, WEFT_F32), weft_f(1));
    return weft_error_status(out[0]);
}

static weft_status leaves_another_default(void *self, const weft_tensor *in, int n,
                                          weft_tensor *out, int m)
{
    weft_status s = from_nothing(self, in, n, out, m);
    return s ? s : weft_set_default_device(WEFT_CUDA(0));
}

/* A call without arguments makes its results on the default device of the thread, frozen or not. */
static void check_frozen_guards_the_default_device(void)
{
    weft_jit *j = weft_jit_trace(from_nothing, NULL, .frozen = true, .verify_every = -1);
    const weft_device at[] = {WEFT_CPU, WEFT_CUDA(0), WEFT_CPU};
    weft_tensor y, want;
    weft_jit_stats s;
    int64_t before = 0;
    for (int k = 0; k < 3; k++) {
        weft_set_default_device(at[k]);
        for (int i = 0; i < 6; i++) {
            cr_assert_eq(weft_jit_call(j, NULL, 0, &y, 1), WEFT_OK, "%s", weft_last_error());
            cr_assert_eq(weft_device_of(y).kind, at[k].kind, "device %d, call %d", k, i);
        }
        from_nothing(NULL, NULL, 0, &want, 1);
        check_equal("default device", want, y);
        weft_jit_get_stats(j, &s);
        cr_assert_geq(s.frozen, before + 3, "device %d: %d", k, (int)s.frozen);
        before = s.frozen;
    }
    weft_jit_free(j);
    j = weft_jit_trace(leaves_another_default, NULL, .frozen = true, .verify_every = -1);
    for (int i = 0; i < 6; i++) {
        weft_set_default_device(WEFT_CPU);
        cr_assert_eq(weft_jit_call(j, NULL, 0, &y, 1), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_default_device().kind, WEFT_DEVICE_CUDA);
    }
    weft_set_default_device(WEFT_CPU);
    weft_jit_free(j);
}

static weft_status reads(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    weft_tensor a = weft_exp(in[0]), b = weft_sub(a, weft_max(a));
    double v = weft_item_f64(weft_sum(b));
    weft_tensor table = weft_arange(0, 6, 1, WEFT_F32);              /* of the host, */
    weft_copy_(weft_select(b, 0, 1), table);                         /* into the device's memory */
    weft_tensor on_host = weft_add(weft_to(b, WEFT_CPU), weft_f(v)); /* the trace goes on there, */
    weft_tensor back = weft_mul(weft_to(weft_neg(on_host), weft_device_of(in[0])), b);
    out[0] =
        weft_add(back, weft_scalar(0.25, WEFT_F32)); /* and back; a number of the host joins in */
    return weft_error_status(out[0]);
}

static void check_breaks(void)
{
    weft_tensor h = numbers(4, 6), d = weft_to(h, WEFT_CUDA(0)), want, y;
    cr_assert_eq(reads(NULL, &h, 1, &want, 1), WEFT_OK);
    weft_jit *j = weft_jit_trace(reads, NULL);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(weft_jit_call(j, &d, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_device_of(y).kind, WEFT_DEVICE_CUDA);
        check_equal("broken", want, y);
    }
    weft_jit_break b[8];
    int n = weft_jit_breaks(j, b, 8), to = 0;
    for (int i = 0; i < n; i++) {
        to += strcmp(b[i].op, "to") == 0 || strcmp(b[i].op, "an op on another device") == 0;
        cr_assert(strstr(b[i].site, "trace_cases.h:"), "%s at '%s'", b[i].op, b[i].site);
    }
    cr_assert_geq(n, 2);
    cr_assert_geq(to, 1);
    weft_jit_free(j);
}

typedef struct affine {
    weft_tensor w, b;
} affine;

static weft_status apply(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    affine *a = self;
    (void)n, (void)n_out;
    out[0] = weft_relu(weft_add(weft_mul(in[0], a->w), a->b));
    return weft_error_status(out[0]);
}

enum { MANY = 300 };

/* More parts than a byte counts, and where gradients are asked for, theirs. */
static weft_status join_many(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    weft_tensor part[MANY], x = n_out == 1 ? in[0] : weft_clone(in[0]);
    weft_status rc = weft_requires_grad_(x, n_out > 1);
    (void)self, (void)n;
    for (int i = 0; i < MANY; i++) {
        part[i] = weft_mul(x, weft_f(i % 7 - 3));
    }
    out[0] = weft_stack(part, MANY, 1);
    if (n_out == 1 || !weft_ok(out[0])) {
        return weft_error_status(out[0]);
    }
    weft_tensor loss = weft_sum(weft_mul(out[0], out[0]));
    return rc ? rc
              : weft_grad_of(.outputs = &loss, .n_outputs = 1, .inputs = &x, .n_inputs = 1,
                             .grads = out + 1);
}

static void check_many_operands(void)
{
    weft_tensor h = numbers(2, 3), d = weft_to(h, WEFT_CUDA(0)), want[2], y[2];
    for (int n = 1; n <= 2; n++) {
        cr_assert_eq(join_many(NULL, &h, 1, want, n), WEFT_OK, "%s", weft_last_error());
        for (int frozen = 0; frozen < 2; frozen++) {
            weft_jit *j = weft_jit_trace(join_many, NULL, .frozen = frozen);
            for (int i = 0; i < 5; i++) {
                cr_assert_eq(weft_jit_call(j, &d, 1, y, n), WEFT_OK, "%s", weft_last_error());
                for (int k = 0; k < n; k++) {
                    check_equal(frozen ? "many, frozen" : "many, traced", want[k], y[k]);
                }
            }
            weft_jit_free(j);
        }
        cr_assert_eq(join_many(NULL, &d, 1, y, n), WEFT_OK, "%s", weft_last_error());
        for (int k = 0; k < n; k++) {
            check_equal("many, eager", want[k], y[k]);
        }
        weft_graph *g = weft_jit_graph(join_many, NULL, &d, 1, .n_outputs = n);
        cr_assert(g, "%s", weft_last_error());
        cr_assert_eq(weft_graph_run(g, &d, 1, y, n), WEFT_OK, "%s", weft_last_error());
        for (int k = 0; k < n; k++) {
            check_equal("many, graph", want[k], y[k]);
        }
        weft_graph_free(g);
    }
}

/* A graph recorded on the device, saved, loaded on the host, run on both. */
static void check_graphs(void)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-graph-%d.weft", (int)getpid());
    affine a = {weft_keep(weft_to(numbers(1, 6), WEFT_CUDA(0))),
                weft_keep(weft_to(numbers(1, 6), WEFT_CUDA(0)))};
    weft_tensor h = numbers(3, 6), d = weft_to(h, WEFT_CUDA(0)), want, y;
    cr_assert_eq(apply(&a, &d, 1, &want, 1), WEFT_OK);
    weft_graph *g = weft_jit_graph(apply, &a, &d, 1, .name = "affine",
                                   .dims = (weft_graph_dim[]){{0, 0, "rows"}}, .n_dims = 1);
    cr_assert(g, "%s", weft_last_error());
    cr_assert_eq(weft_graph_run(g, &d, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    check_equal("recorded graph", want, y);
    cr_assert_eq(weft_graph_save(g, path), WEFT_OK, "%s", weft_last_error());
    weft_graph_free(g);
    g = weft_graph_load(path);
    unlink(path);
    cr_assert_eq(weft_graph_run(g, &h, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    check_equal("loaded graph", want, y);
    cr_assert_eq(weft_graph_run(g, &d, 1, &y, 1), WEFT_EINVALID);
    cr_assert(strstr(weft_last_error(), "weft_graph_to"), "%s", weft_last_error());
    cr_assert_eq(weft_graph_to(g, WEFT_CUDA(0)), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_graph_run(g, &d, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_device_of(y).kind, WEFT_DEVICE_CUDA);
    check_equal("moved graph", want, y);
    weft_graph_free(g);
    weft_free(a.w);
    weft_free(a.b);
}

#endif
