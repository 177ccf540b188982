/*
 * bench/bench_platform.c -- what the platform layer costs: allocation, fork-join, random numbers.
 *
 * Every figure is the median of ROUNDS batches by the wall clock, beside its quartiles. posix_memalign
 * and memset are measured beside, for scale.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/support/bench.h"
#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/pool.h"
#include "eager/rng_core.h"

#define FILL (1 << 16)
enum { ROUNDS = 31 };

static void line(const char *name, const char *unit, double *v)
{
    bench_open("platform", name, NULL, NULL, 0);
    bench_text("clock", "wall");
    bench_text("unit", unit);
    bench_number("median", bench_median(v, ROUNDS));
    bench_number("low", v[ROUNDS / 4]);
    bench_number("high", v[ROUNDS - 1 - ROUNDS / 4]);
    bench_close();
}

/* once: does the work `reps` times; the figure is ns, or bytes / ns, of one of them. */
static void report(const char *name, const char *unit, void (*once)(int reps), int reps,
                   double bytes)
{
    double v[ROUNDS];
    once(reps);
    for (int i = 0; i < ROUNDS; i++) {
        const double start = bench_now(0);
        once(reps);
        const double ns = (bench_now(0) - start) * 1e9 / reps;
        v[i] = bytes > 0 ? bytes / ns : ns;
    }
    line(name, unit, v);
}

static size_t block_size;

static void pairs(int reps)
{
    for (int i = 0; i < reps; i++) {
        void *p = wf_alloc(block_size);
        __asm__ volatile("" : : "r"(p) : "memory");
        wf_free(p, block_size);
    }
}

static void system_pairs(int reps)
{
    for (int i = 0; i < reps; i++) {
        void *p = NULL;
        if (posix_memalign(&p, 64, block_size) == 0)
            __asm__ volatile("" : : "r"(p) : "memory");
        free(p);
    }
}

static void sixteen_live(int reps)
{
    void *p[16];
    for (int i = 0; i < reps; i += 16) {
        for (int k = 0; k < 16; k++)
            p[k] = wf_alloc(block_size);
        for (int k = 0; k < 16; k++)
            wf_free(p[k], block_size);
    }
}

static void nothing(void *arg, int64_t begin, int64_t end)
{
    (void)arg;
    (void)begin;
    (void)end;
}

static void fork_join(int reps)
{
    for (int i = 0; i < reps; i++)
        wf_parallel_for(wf_num_threads(), 1, nothing, NULL);
}

static void meet(void *arg, int64_t begin, int64_t end)
{
    (void)begin;
    (void)end;
    atomic_fetch_add((atomic_int *)arg, 1);
    while (atomic_load((atomic_int *)arg) < wf_num_threads())
        __asm__ volatile("pause");
}

/* From the call until every thread has begun and the call returned, workers spinning or asleep. */
static void meeting(const char *name, unsigned idle_us)
{
    double v[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        atomic_int here = 0;
        if (idle_us)
            usleep(idle_us);
        const double start = bench_now(0);
        wf_parallel_for(wf_num_threads(), 1, meet, &here);
        v[i] = (bench_now(0) - start) * 1e9;
    }
    line(name, "ns", v);
}

static _Alignas(64) double buffer[FILL];

#define FILLER(name, call)                                                                         \
    static void name(int reps)                                                                     \
    {                                                                                              \
        for (int i = 0; i < reps; i++)                                                             \
            call;                                                                                  \
    }
FILLER(uniform_f32, wf_fill_uniform_f32((float *)buffer, 0, FILL, 1, 2))
FILLER(uniform_f64, wf_fill_uniform_f64(buffer, 0, FILL, 1, 2))
FILLER(normal_f32, wf_fill_normal_f32((float *)buffer, 0, FILL, 1, 2))
FILLER(normal_f64, wf_fill_normal_f64(buffer, 0, FILL, 1, 2))
FILLER(bernoulli, wf_fill_bernoulli((uint8_t *)buffer, 0, FILL, 1, 2, 0.5))
FILLER(randint, wf_fill_randint((int64_t *)buffer, 0, FILL, 1, 2, 0, 1000))
FILLER(clear, (memset(buffer, i, sizeof buffer), (void)*(volatile double *)buffer))

int main(void)
{
    static const size_t sizes[] = {64, 1024, 16384, 65536, 262144, 1 << 20, 16 << 20};
    char name[64];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        block_size = sizes[i];
        snprintf(name, sizeof name, "alloc+free %zu", block_size);
        report(name, "ns", pairs, 20000, 0);
        snprintf(name, sizeof name, "alloc+free 16 live %zu", block_size);
        report(name, "ns", sixteen_live, 16 * 500, 0);
        snprintf(name, sizeof name, "posix_memalign+free %zu", block_size);
        report(name, "ns", system_pairs, 500, 0);
    }
    int most = wf_num_threads();
    for (int threads = 2; threads <= most || threads == 2; threads *= 2) {
        wf_set_num_threads(threads);
        snprintf(name, sizeof name, "fork-join hot, %d threads", threads);
        report(name, "ns", fork_join, 2000, 0);
        snprintf(name, sizeof name, "all threads meet, hot, %d", threads);
        meeting(name, 0);
        snprintf(name, sizeof name, "all threads meet, after 5 ms idle, %d", threads);
        meeting(name, 5000);
    }
    report("memset, for scale", "GB/s", clear, 4, sizeof buffer);
    for (int isa = wf_isa(); isa >= 0; isa--) {
        static const struct {
            const char *name;
            void (*once)(int);
            double size;
        } fills[] = {{"uniform f32", uniform_f32, 4}, {"uniform f64", uniform_f64, 8},
                     {"normal f32", normal_f32, 4},   {"normal f64", normal_f64, 8},
                     {"bernoulli", bernoulli, 1},     {"randint", randint, 8}};
        wf_set_isa(isa);
        for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
            snprintf(name, sizeof name, "%s, %s", fills[i].name, wf_isa_name(isa));
            report(name, "GB/s", fills[i].once, 2, FILL * fills[i].size);
        }
    }
    return 0;
}
