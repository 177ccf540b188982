/*
 * bench/support/report.c -- result lines: flat JSON objects on standard output.
 *
 * Invariant: keys and texts are the programs' own and hold nothing that JSON would have to escape.
 */
#include <math.h>
#include <stdio.h>

#include "bench/support/bench.h"

void bench_open(const char *bench, const char *name, const char *size, const char *dtype,
                int threads)
{
    printf("{\"bench\":\"%s\",\"case\":\"%s\"", bench, name);
    if (size) {
        bench_text("size", size);
    }
    if (dtype) {
        bench_text("dtype", dtype);
    }
    if (threads > 0) {
        printf(",\"threads\":%d", threads);
        bench_text("clock", bench_clock(threads));
    }
}

void bench_text(const char *key, const char *value)
{
    printf(",\"%s\":\"%s\"", key, value);
}

void bench_number(const char *key, double value)
{
    if (isfinite(value)) {
        printf(fabs(value) >= 1e4 ? ",\"%s\":%.0f" : ",\"%s\":%.4g", key, value);
    }
}

void bench_close(void)
{
    printf("}\n");
    fflush(stdout);
}

const char *bench_size_name(double bytes, char *out, size_t size)
{
    if (bytes >= 1 << 20) {
        snprintf(out, size, "%.3gMiB", bytes / (1 << 20));
    } else if (bytes >= 1024) {
        snprintf(out, size, "%.4gKiB", bytes / 1024);
    } else {
        snprintf(out, size, "%.0fB", bytes);
    }
    return out;
}
