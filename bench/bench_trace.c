/*
 * bench/bench_trace.c -- what a traced call costs besides its kernels: recording, finding the plan, the call.
 *
 * A chain of n ops on tensors of 4 elements, each result freed as the next one is made. "record": nanoseconds an
 * op from the public call to the appended instruction, nothing else; "recorded for a gradient": the same with
 * a tape beside it; "eager": the op with its kernel; "key": hash and comparison of the recording; "call": a whole
 * weft_jit_call, kernels included, divided by n. Linear means: n does not matter.
 *
 * "frozen": a whole frozen call of a function with that many inputs, of which it adds two of 4 elements: the guards, one step,
 * one result. "guards" is what 18 more inputs and the rest of the guards cost at most: the call less the add on its own.
 */
#include <stdio.h>

#include "bench/support/bench.h"
#include "eager/tensor.h"
#include "jit/key.h"
#include "jit/trace.h"
#include "weft/weft.h"

typedef struct chain {
    int n;
    weft_tensor x, y;
    wf_trace *trace;
    weft_jit *jit;
    const wf_fn *a, *b;
    const int32_t *writes;
} chain;

static void ops(const chain *c)
{
    weft_scope sc = weft_scope_begin();
    weft_tensor h = (weft_add)(c->x, c->y);
    for (int i = 1; i < c->n; i++) {
        weft_tensor next = i % 2 ? (weft_mul)(h, c->y) : (weft_add)(h, c->y);
        weft_free(h);
        h = next;
    }
    if (!weft_ok(h)) {
        bench_die(weft_error_text(h));
    }
    weft_scope_end(sc);
}

static int no_run(void *user, wf_job *job, wf_why *why)
{
    (void)user, (void)job, (void)why;
    return 0;
}

static const wf_trace_owner owner = {.name = "bench", .run = no_run};

static void run_eager(void *arg)
{
    ops(arg);
}

static void run_record(void *arg)
{
    chain *c = arg;
    wf_trace_reopen(c->trace, &owner);
    ops(c);
    wf_trace_close(c->trace);
}

static void run_key(void *arg)
{
    chain *c = arg;
    if (wf_key_hash(c->a, c->writes) != wf_key_hash(c->b, c->writes) ||
        !wf_key_same(c->a, c->writes, c->b, c->writes)) {
        bench_die("two recordings of one chain differ");
    }
}

static weft_status traced(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const chain *c = self;
    (void)n_in, (void)n_out;
    weft_scope sc = weft_scope_begin();
    weft_tensor h = (weft_add)(in[0], in[1]);
    for (int i = 1; i < c->n; i++) {
        weft_tensor next = i % 2 ? (weft_mul)(h, in[1]) : (weft_add)(h, in[1]);
        weft_free(h);
        h = next;
    }
    out[0] = weft_scope_return(sc, h);
    return WEFT_OK;
}

static void run_call(void *arg)
{
    chain *c = arg;
    weft_tensor in[2] = {c->x, c->y}, out;
    if ((weft_jit_call)(c->jit, in, 2, &out, 1) != WEFT_OK) {
        bench_die(weft_last_error());
    }
    weft_free(out);
}

static wf_fn *record_one(chain *c)
{
    weft_tensor *captured;
    int n;
    wf_trace *t = wf_trace_begin("f");
    ops(c);
    wf_fn *f = wf_trace_end(t, &captured, &n);
    for (int i = 0; i < n; i++) {
        weft_free(captured[i]);
    }
    return f;
}

static void line(int n, const char *what, const bench_side *s, double per, double target)
{
    char size[32];
    snprintf(size, sizeof size, "%d ops", n);
    bench_open("trace", what, size, "f32", 1);
    bench_number("ns_per_op", s->median * 1e9 / per);
    bench_number("best_ns_per_op", s->best * 1e9 / per);
    if (target > 0) {
        bench_number("target_ns_per_op", target);
    }
    bench_close();
}

/* -- frozen calls -------------------------------------------------------------------------------------------- */
enum { INPUTS = 20 };

typedef struct frozen {
    weft_jit *jit;
    weft_tensor in[INPUTS];
    int n;
} frozen;

static weft_status add_two(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = (weft_add)(in[0], in[1]);
    return WEFT_OK;
}

static void call_frozen(void *arg)
{
    frozen *z = arg;
    weft_tensor out;
    if ((weft_jit_call)(z->jit, z->in, z->n, &out, 1) != WEFT_OK)
        bench_die(weft_last_error());
    weft_free(out);
}

static void add_eager(void *arg)
{
    const frozen *z = arg;
    weft_free((weft_add)(z->in[0], z->in[1]));
}

static void frozen_lines(void)
{
    frozen z[2] = {{.n = 2}, {.n = INPUTS}};
    for (int k = 0; k < 2; k++) {
        z[k].jit = weft_jit_trace(add_two, NULL, .frozen = true, .verify_every = -1,
                                  .always_record = true);
        for (int i = 0; i < z[k].n; i++)
            z[k].in[i] = weft_full(weft_shape(4), i, WEFT_F32);
        for (int i = 0; i < 20; i++)
            call_frozen(&z[k]);
        weft_jit_stats now;
        weft_jit_get_stats(z[k].jit, &now);
        if (now.frozen == 0)
            bench_die("the call is not frozen");
    }
    bench_side s[] = {{.run = add_eager, .arg = &z[0]},
                      {.run = call_frozen, .arg = &z[0]},
                      {.run = call_frozen, .arg = &z[1]}};
    bench_race(s, 3, &(bench_plan){.threads = 1});
    for (int k = 0; k < 2; k++) {
        char size[32];
        snprintf(size, sizeof size, "%d inputs", z[k].n);
        bench_open("trace", "frozen", size, "f32", 1);
        bench_number("ns", s[1 + k].median * 1e9);
        bench_number("guards_ns", (s[1 + k].median - s[0].median) * 1e9);
        bench_number("target_guards_ns", 1000);
        bench_close();
        weft_jit_free(z[k].jit);
    }
}

int main(void)
{
    frozen_lines();
    static const int32_t none[1] = {-1};
    for (int n = 10; n <= 100000; n *= 10) {
        chain c = {.n = n, .writes = none};
        c.x = weft_ones(weft_shape(4), WEFT_F32);
        c.y = weft_full(weft_shape(4), 0.5, WEFT_F32);
        chain g = c;
        g.x = weft_ones(weft_shape(4), WEFT_F32);
        weft_requires_grad_(g.x, true);
        c.trace = wf_trace_open(&owner);
        wf_trace_close(c.trace);
        g.trace = wf_trace_open(&owner);
        wf_trace_close(g.trace);
        c.jit = weft_jit_trace(traced, &c);
        wf_fn *a = record_one(&c), *b = record_one(&c);
        c.a = a;
        c.b = b;
        bench_side s[] = {{.run = run_eager, .arg = &c},
                          {.run = run_record, .arg = &c},
                          {.run = run_record, .arg = &g},
                          {.run = run_key, .arg = &c},
                          {.run = run_call, .arg = &c}};
        run_call(&c); /* builds the plan */
        bench_race(s, 5, &(bench_plan){.threads = 1, .seconds = 4});
        line(n, "eager", &s[0], n, 0);
        line(n, "record", &s[1], n, 50);
        line(n, "recorded for a gradient", &s[2], n, 0);
        line(n, "key", &s[3], n, 0);
        line(n, "call", &s[4], n, 0);
        wf_fn_free(a);
        wf_fn_free(b);
        wf_trace_free(c.trace);
        wf_trace_free(g.trace);
        weft_jit_free(c.jit);
    }
    return 0;
}
