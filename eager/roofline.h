/*
 * eager/roofline.h -- what this machine can do at most, measured: arithmetic, and memory at the size in question.
 *
 * Both are measured on the threads that ops use, the best of several short runs, just before or after what they are
 * compared with. The bound of a kernel is the longer of the two times that its operations and its bytes take at least.
 */
#ifndef EAGER_ROOFLINE_H
#define EAGER_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

enum { WF_ROOF_SIZES = 9 };

typedef struct wf_roof_point {
    double bytes; /* moved in all */
    double read, copy,
        fill; /* bytes a second: read only, read and written in equal parts, written only */
} wf_roof_point;

typedef struct wf_roofline {
    int threads;
    double f32, f64; /* floating-point operations a second: fused multiply-adds in registers */
    int n;
    wf_roof_point at[WF_ROOF_SIZES];
} wf_roofline;

/* Measures, with at most `most` bytes moved at once; takes about half a second. false: no memory. */
bool wf_roofline_measure(wf_roofline *r, double most);
/* The least seconds for this much; *by_memory says which of the two bounds it is. */
double wf_roofline_seconds(const wf_roofline *r, int64_t read, int64_t written, int64_t flops,
                           bool is_f64, bool *by_memory);
/* The speeds at a size, between those that were measured. */
wf_roof_point wf_roofline_at(const wf_roofline *r, double bytes);

#endif
