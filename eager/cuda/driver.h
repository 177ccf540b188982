/*
 * eager/cuda/driver.h -- the opened CUDA driver, and its failures as text.
 *
 * Invariants: the driver is opened at most once a process, by the first call that needs it; what was
 * missing is remembered and said again. No function here prints or aborts.
 */
#ifndef EAGER_CUDA_DRIVER_H
#define EAGER_CUDA_DRIVER_H

#include <stdbool.h>

#include "eager/cuda/api.h"
#include "jit/ir/op.h"

typedef struct wf_cuda_driver {
#define F(field, symbol, params) cu_result(*field) params;
    CU_FUNCTIONS(F)
    CU_OPTIONAL_FUNCTIONS(F)
#undef F
    int version; /* 13000: 13.0 */
    int devices;
    bool has_vm;     /* every vm_ function is there */
    bool has_graphs; /* every capture_ and graph_ function is there */
} wf_cuda_driver;

/* The driver; NULL: there is none, wf_cuda_driver_missing() says why. Any thread. */
const wf_cuda_driver *wf_cuda_driver_open(void);
/* "the CUDA driver (libcuda.so.1) is not found"; NULL when it is there. */
const char *wf_cuda_driver_missing(void);
/* "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. */
const char *wf_cuda_result_name(cu_result r);
/* After such an error nothing on the device works until the process ends. */
bool wf_cuda_result_is_sticky(cu_result r);

#endif
