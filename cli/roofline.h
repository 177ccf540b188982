/*
 * cli/roofline.h -- what this machine can do at most, measured: arithmetic, and memory at the size in question.
 *
 * Both are measured on the threads that ops use, the best of several short runs, just before or after what they are
 * compared with. The bound of a kernel is the longer of the two times that its operations and its bytes take at least.
 */
#ifndef CLI_ROOFLINE_H
#define CLI_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

enum { CLI_ROOF_SIZES = 9 };

typedef struct cli_roof_point {
    double bytes; /* moved in all */
    double read, copy,
        fill; /* bytes a second: read only, read and written in equal parts, written only */
} cli_roof_point;

typedef struct cli_roofline {
    int threads;
    double f32, f64; /* floating-point operations a second: fused multiply-adds in registers */
    int n;
    cli_roof_point at[CLI_ROOF_SIZES];
} cli_roofline;

/* Measures, with at most `most` bytes moved at once; takes about half a second. false: no memory. */
bool cli_roofline_measure(cli_roofline *r, double most);
/* The least seconds for this much; *by_memory says which of the two bounds it is. */
double cli_roofline_seconds(const cli_roofline *r, int64_t read, int64_t written, int64_t flops,
                            bool is_f64, bool *by_memory);
/* The speeds at a size, between those that were measured. */
cli_roof_point cli_roofline_at(const cli_roofline *r, double bytes);

#endif
