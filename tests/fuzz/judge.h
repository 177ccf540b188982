/*
 * tests/fuzz/judge.h -- what a failing call owes, and runs of random calls: for the programs that fire invalid ones.
 */
#ifndef TESTS_FUZZ_JUDGE_H
#define TESTS_FUZZ_JUDGE_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/arguments.h"
#include "tests/support/effort.h"

static int64_t failures, successes;
static bool any_name; /* calls that are made of others: a message may name one of those */

static void judge(const char *name, weft_status status, const char *text, bool passes_on)
{
    if (status == WEFT_OK) {
        successes++;
        return;
    }
    failures++;
    cr_assert((unsigned)status < WEFT_STATUS_COUNT, "%s: status %d", name, (int)status);
    cr_assert(passes_on || strlen(text) > 10, "%s: status %s and no message", name,
              weft_status_name(status));
    cr_assert(passes_on || any_name || strstr(text, name), "%s is not named: \"%s\"", name, text);
}

#define INT(x) ((int)(x))
/* A call that returns a tensor. */
#define T(name, ...)                                                                               \
    do {                                                                                           \
        weft_clear_error();                                                                        \
        weft_tensor r_ = __VA_ARGS__;                                                              \
        judge(name, weft_error_status(r_), weft_error_text(r_), a->passes_on);                     \
        cr_assert(weft_ok(r_) || weft_error_status(r_) != WEFT_OK, "%s: neither", name);           \
    } while (0)
/* One that returns a status. */
#define S(name, ...)                                                                               \
    do {                                                                                           \
        weft_clear_error();                                                                        \
        weft_status s_ = __VA_ARGS__;                                                              \
        judge(name, s_, weft_last_error(), a->passes_on);                                          \
    } while (0)
/* A query: any answer will do. */
#define Q(...) ((void)(__VA_ARGS__))
/* -- runs --------------------------------------------------------------------------------------------- */

/* A thread whose tensors are nobody else's, alive until it is told to go. */
static pthread_barrier_t made, done;
static void *neighbour(void *arg)
{
    (void)arg;
    for (int i = 0; i < FOREIGN; i++) {
        foreign[i] = weft_ones(weft_shape(3), WEFT_F32);
    }
    pthread_barrier_wait(&made);
    pthread_barrier_wait(&done);
    return NULL;
}

/* open and close, NULL or what makes and frees objects of a run. */
typedef struct calls {
    int n; /* in each run */
    void (*open)(void);
    void (*one)(void *user);
    void (*close)(void);
    void *user;
} calls;

static void run(uint64_t seed, const calls *c)
{
    rng = (test_rng){seed};
    test_baseline before = test_baseline_take();
    weft_scope sc = weft_scope_begin();
    if (c->open) {
        c->open();
    }
    for (int i = 0; i < LIVE; i++) {
        live[i] = fresh();
    }
    for (int i = 0; i < DEAD; i++) {
        dead[i] = weft_ones(weft_shape(2), WEFT_F32);
        weft_free(dead[i]);
    }
    for (int k = 0; k < c->n; k++) {
        c->one(c->user);
        if (k % 16 == 0) { /* views, gradients and values move on */
            int i = (int)(test_next(&rng) % LIVE);
            weft_free(live[i]);
            live[i] = fresh();
        }
    }
    for (int i = 0; i < LIVE; i++) {
        weft_free(live[i]);
    }
    if (c->close) {
        c->close();
    }
    weft_scope_end(sc);
    check_baseline("after the calls", &before);
}

/* A few calls, recorded: in a region of a trace that runs as it likes, of one that always records, of one that may not be broken; or
 * in a function that is recorded for its own sake, as a graph. */
static struct {
    void (*one)(void *user);
    void *user;
    weft_jit *region[3];
    int64_t refused; /* regions and functions that ended with an error */
} recorded;

static void open_regions(void)
{
    recorded.region[0] = weft_jit_trace(NULL, .name = "region");
    recorded.region[1] = weft_jit_trace(NULL, .name = "recorded", .always_record = true);
    recorded.region[2] = weft_jit_trace(NULL, .name = "one graph", .single_graph = true);
    cr_assert(recorded.region[0] && recorded.region[1] && recorded.region[2]);
}

static void close_regions(void)
{
    for (int i = 0; i < 3; i++) {
        weft_jit_free(recorded.region[i]);
    }
}

static weft_status one_recorded(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    recorded.one(recorded.user);
    out[0] = weft_add(in[0], weft_f(1));
    return WEFT_OK;
}

static void in_a_trace(void *user)
{
    (void)user;
    const unsigned way = (unsigned)(test_next(&rng) % 4);
    if (way == 3) {
        const weft_tensor x = weft_ones(weft_shape(2), WEFT_F32);
        weft_graph *g = weft_jit_graph(one_recorded, NULL, &x, 1);
        recorded.refused += !g;
        weft_graph_free(g);
        weft_free(x);
        return;
    }
    weft_jit *j = recorded.region[way];
    cr_assert_eq(weft_jit_begin(j), WEFT_OK, "%s", weft_last_error());
    for (int i = (int)test_between(&rng, 1, 6); i-- > 0;) {
        recorded.one(recorded.user);
    }
    recorded.refused += weft_jit_end(j) != WEFT_OK;
}

/* Runs of seeds 1 to n, beside a thread whose tensors are not ours. WEFT_FUZZ_CALLS: how many calls in their place, at least, and
 * WEFT_FUZZ_SEED the first seed. Returns how many times n those were: 1 or more. */
static double run_seeds(int n, const calls *c)
{
    const uint64_t asked = effort_option("WEFT_FUZZ_CALLS", (uint64_t)n * (uint64_t)c->n),
                   first = effort_option("WEFT_FUZZ_SEED", 1),
                   runs = (asked + (uint64_t)c->n - 1) / (uint64_t)c->n;
    pthread_t other;
    pthread_barrier_init(&made, NULL, 2);
    pthread_barrier_init(&done, NULL, 2);
    cr_assert_eq(pthread_create(&other, NULL, neighbour, NULL), 0);
    pthread_barrier_wait(&made);
    for (uint64_t k = 0; k < runs; k++) {
        run(first + k, c);
    }
    pthread_barrier_wait(&done);
    pthread_join(other, NULL);
    printf("%llu random calls and what goes with them: %lld failed as they should, %lld did not\n",
           (unsigned long long)runs * (unsigned long long)c->n, (long long)failures,
           (long long)successes);
    fflush(stdout);
    return (double)runs / n;
}

#endif
