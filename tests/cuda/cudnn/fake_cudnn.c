/*
 * tests/cuda/cudnn/fake_cudnn.c -- a cuDNN for the fake driver: the library itself; fake_graph.c has what it does.
 *
 *     FAKE_CUDNN_FAIL=n        the n-th call of the process (fake_cudnn_calls counts them) returns an error
 *     FAKE_CUDNN_VERSION=n     what it says it is, as 91900
 */
#include "tests/cuda/cudnn/fake_cudnn.h"

#include <stdlib.h>

struct dnn_object {
    cu_handle stream;
};

static vendor_launch *launch_host;
static long calls;

int fake_cudnn_planned(void)
{
    return vendor_fails("FAKE_CUDNN_FAIL", &calls) ? INTERNAL : DNN_OK;
}

EXPORT long fake_cudnn_calls(void)
{
    return calls;
}

int fake_cudnn_queue(dnn_handle lib, cu_host_fn fn, void *arg)
{
    return launch_host(lib->stream, fn, arg) == CU_OK ? DNN_OK : INTERNAL;
}

EXPORT size_t cudnnGetVersion(void)
{
    const char *s = getenv("FAKE_CUDNN_VERSION");
    return s ? (size_t)strtol(s, NULL, 10) : 91900;
}
EXPORT int cudnnCreate(dnn_handle *lib)
{
    PLANNED();
    launch_host = vendor_driver();
    *lib = launch_host ? calloc(1, sizeof **lib) : NULL;
    return *lib ? DNN_OK : INTERNAL;
}
EXPORT int cudnnDestroy(dnn_handle lib)
{
    free(lib);
    return DNN_OK;
}
EXPORT int cudnnSetStream(dnn_handle lib, cu_handle stream)
{
    PLANNED();
    lib->stream = stream;
    return DNN_OK;
}
