/*
 * tests/support/device_double.h -- a device whose memory is host memory that nobody can touch.
 *
 * It stands in for a GPU below eager/device.h: programs, copies and fills run by the host's kernels while the memory is
 * opened for them; at any other time it is PROT_NONE, so that host code which follows a device pointer crashes. It has no
 * kernels for single rows: those go through the host.
 */
#ifndef TESTS_SUPPORT_DEVICE_DOUBLE_H
#define TESTS_SUPPORT_DEVICE_DOUBLE_H

#include <stdint.h>

typedef struct device_double_counts {
    int64_t allocs, frees, uploads, downloads, programs, copies, fills, waits;
} device_double_counts;

/* Puts the double in place of GPUs 0 and 1 of this process. */
void device_double_install(void);
device_double_counts device_double_read(void);
/* The n-th allocation from now on fails; 0: none. */
void device_double_fail_alloc(int n);
/* The n-th copy to the host from now on fails; 0: none. */
void device_double_fail_read(int n);

#endif
