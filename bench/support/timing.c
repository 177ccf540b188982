/*
 * bench/support/timing.c -- clocks, medians, and sides timed in turns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/support/bench.h"

enum { MOST_ROUNDS = 101, FEWEST_ROUNDS = 5, MOST_SIDES = 8 };

/* Of the last race: seconds a run, by side and round. */
static double took[MOST_SIDES][MOST_ROUNDS];
static int done;

double bench_now(int threads)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *bench_clock(int threads)
{
    return threads == 1 ? "cpu" : "wall";
}

bool bench_quick(void)
{
    const char *quick = getenv("WEFT_BENCH_QUICK");
    return quick && *quick && *quick != '0';
}

void bench_die(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

static double batch(const bench_side *s, int threads)
{
    s->run(
        s->arg); /* its data lies where the other sides left it: they would pay for it in turns */
    const double start = bench_now(threads);
    for (int i = 0; i < s->reps; i++) {
        s->run(s->arg);
    }
    return (bench_now(threads) - start) / s->reps;
}

/* Enough runs for a batch; the first ones warm up. */
static void calibrate(bench_side *s, const bench_plan *plan)
{
    const double least = plan->batch > 0 ? plan->batch : 0.001;
    s->run(s->arg);
    for (s->reps = 1;; s->reps *= 2) {
        const double one = batch(s, plan->threads);
        if (one * s->reps >= least || s->reps >= 1 << 24) {
            const double reps = least / one + 0.5;
            s->reps = reps < 1 ? 1 : (int)reps;
            return;
        }
    }
}

void bench_race(bench_side *sides, int count, const bench_plan *plan)
{
    if (count > MOST_SIDES) {
        bench_die("too many sides");
    }
    int rounds = plan->rounds ? plan->rounds : bench_quick() ? 7 : 21;
    rounds = rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
    for (int i = 0; i < count; i++) {
        calibrate(&sides[i], plan);
    }
    const double begin = bench_now(0);
    done = 0;
    while (done < rounds) {
        for (int k = 0; k < count; k++) {
            /* to and fro: no side always runs on the caches that the same other side leaves */
            const int i = done % 2 ? count - 1 - k : k;
            const double turn = bench_now(0);
            do { /* of a long turn the last batch counts */
                took[i][done] = batch(&sides[i], plan->threads);
            } while (bench_now(0) - turn < plan->turn);
        }
        done++;
        if (plan->seconds > 0 && done >= FEWEST_ROUNDS && bench_now(0) - begin > plan->seconds) {
            break;
        }
    }
    for (int i = 0; i < count; i++) {
        double t[MOST_ROUNDS];
        memcpy(t, took[i], (size_t)done * sizeof *t);
        sides[i].median = bench_median(t, done);
        sides[i].best = t[0];
        sides[i].low = t[done / 4];
        sides[i].high = t[done - 1 - done / 4];
    }
}

double bench_ratio(int a, int b)
{
    double t[MOST_ROUNDS];
    for (int i = 0; i < done; i++) {
        t[i] = took[a][i] / took[b][i];
    }
    return bench_median(t, done);
}
