/*
 * tests/cuda/cudnn/fake_cudnn.h -- what the files of the fake cuDNN share.
 */
#ifndef TESTS_CUDA_CUDNN_FAKE_CUDNN_H
#define TESTS_CUDA_CUDNN_FAKE_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

#include "eager/cuda/dnn_api.h"
#include "tests/cuda/vendor.h"

#define EXPORT __attribute__((visibility("default")))
enum { BAD_PARAM = 2000, INTERNAL = 4000 };

/* The planned failure of this call, or DNN_OK. */
int fake_cudnn_planned(void);
#define PLANNED()                                                                                  \
    do {                                                                                           \
        int planned_ = fake_cudnn_planned();                                                       \
        if (planned_)                                                                              \
            return planned_;                                                                       \
    } while (0)

EXPORT long fake_cudnn_calls(void);       /* so far */
EXPORT long fake_cudnn_descriptors(void); /* of graphs that are alive */
/* Queues fn(arg) on the handle's stream. */
int fake_cudnn_queue(dnn_handle lib, cu_host_fn fn, void *arg);

#endif
