/*
 * bench/support/bench.h -- what the benchmark programs share: clocks, medians, limits, result lines.
 *
 * Sides of a comparison (an op, its limits, a peer library) run in turns, a short batch each, so that
 * whatever else the machine does hits all of them alike; a figure is the median over the rounds, a comparison that of what
 * the sides took in one and the same round: a machine changes its speed in between.
 * One thread is timed by its own CPU clock, which other programs disturb little; several threads by
 * the wall clock. Every line says which ("clock").
 */
#ifndef BENCH_SUPPORT_BENCH_H
#define BENCH_SUPPORT_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- time -------------------------------------------------------------------------------------------------- */
/* Seconds: CPU time of the calling thread for one thread, wall clock for more (or for 0). */
double bench_now(int threads);
/* "cpu" or "wall": the clock that bench_now(threads) reads. */
const char *bench_clock(int threads);
/* WEFT_BENCH_QUICK is set: fewer rounds, for a look. */
bool bench_quick(void);

typedef struct bench_side {
    void (*run)(void *arg);
    void *arg;
    int reps;                       /* runs in a batch */
    double median, low, high, best; /* seconds per run; low and high are the quartiles */
} bench_side;

typedef struct bench_plan {
    int threads;
    int rounds;   /* 0: 21, or 7 when quick; at most 101 */
    double batch; /* seconds a batch lasts at least; 0: 1 ms */
    double
        turn; /* seconds a side runs in a row: runtimes whose idle threads spin disturb each other,
                       so that a turn must be long enough for the others to go to sleep; 0: one batch */
    double seconds; /* rounds end early, but not before 5, once they took this long; 0: no limit */
} bench_plan;
void bench_race(bench_side *sides, int count, const bench_plan *plan);
/* How many times as long side a of the last race took as side b: the median over its rounds. */
double bench_ratio(int a, int b);

/* Sorts v[0..n) and returns the middle one. */
double bench_median(double *v, int n);

/* -- limits ------------------------------------------------------------------------------------------------- */
/* The least time in which `threads` threads move bytes: plain and non-temporal. */
typedef enum bench_stream_kind {
    BENCH_COPY,  /* a -> d */
    BENCH_TRIAD, /* a + b -> d */
    BENCH_READ,  /* a */
    BENCH_FILL   /* -> d */
} bench_stream_kind;

typedef struct bench_stream {
    bench_stream_kind kind;
    int nt, ahead, threads; /* non-temporal stores; prefetching loads */
    int64_t bytes;          /* of each array */
    char *d, *a, *b;
} bench_stream;

enum { BENCH_LIMIT_SIDES = 3 };
typedef struct bench_limit {
    bench_stream stream[BENCH_LIMIT_SIDES];
    double moved; /* by one run, all arrays together; about what was asked for */
    int count;
    bool lent; /* `a` is not the limit's own */
} bench_limit;

/* Makes a limit that moves about `moved` bytes and appends its sides (plain, plain with prefetch, and
 * non-temporal where something is written) to sides[*count]. Exits when memory is exhausted. */
void bench_limit_open(bench_limit *l, bench_stream_kind kind, double moved, int threads,
                      bench_side *sides, int *count);
/* Lets the limit read memory that the compared op reads, if it has that many bytes: memory of its own would take
 * turns with the op's in the last cache, and a rest of one or the other would decide. */
void bench_limit_read(bench_limit *l, void *memory, double bytes);
/* Bytes per nanosecond of the fastest side (medians, or best batches); sides is what open appended to, at `first`. */
double bench_limit_gbps(const bench_limit *l, const bench_side *sides, int first, bool best);
void bench_limit_close(bench_limit *l);

/* -- result lines -------------------------------------------------------------------------------------------
 * One flat JSON object a line on standard output. Lines that agree in bench, case, size, dtype and
 * threads are one row of the table. A key "target_X" is what X should reach: at least it for a ratio,
 * at most it for anything else. */
void bench_open(const char *bench, const char *name, const char *size, const char *dtype,
                int threads);
void bench_text(const char *key, const char *value);
void bench_number(const char *key, double value); /* 4 significant digits */
void bench_close(void);

/* "256KiB", "64MiB", "4096" */
const char *bench_size_name(double bytes, char *out, size_t size);
/* Exits with a message. */
_Noreturn void bench_die(const char *what);

#endif
