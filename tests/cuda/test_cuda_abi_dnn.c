/*
 * tests/cuda/test_cuda_abi_dnn.c -- our own declarations of cuDNN (eager/cuda/dnn_api.h) are those of its header, where
 * the build finds it.
 */
#include <criterion/criterion.h>
#include <stddef.h>

#include "eager/cuda/dnn_api.h"

#if defined(WEFT_HAVE_CUDA_H) && defined(__has_include)
#if __has_include(<cudnn.h>)
#define HAVE_DNN
#endif
#endif

#ifdef HAVE_DNN
#include <cudnn.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define SAME(mine, theirs) _Static_assert((int)(mine) == (int)(theirs), #mine);
SAME(DNN_OK, CUDNN_STATUS_SUCCESS)
SAME(DNN_NOT_SUPPORTED, CUDNN_STATUS_NOT_SUPPORTED)
SAME(DNN_F32, CUDNN_DATA_FLOAT)
SAME(DNN_F64, CUDNN_DATA_DOUBLE)
SAME(DNN_F16, CUDNN_DATA_HALF)
SAME(DNN_BF16, CUDNN_DATA_BFLOAT16)
SAME(DNN_NCHW, CUDNN_TENSOR_NCHW)
SAME(DNN_CROSS_CORRELATION, CUDNN_CROSS_CORRELATION)
SAME(DNN_MATH_DEFAULT, CUDNN_DEFAULT_MATH)
SAME(DNN_MATH_FMA, CUDNN_FMA_MATH)
SAME(DNN_DETERMINISTIC, CUDNN_DETERMINISTIC)

#define LIKE(theirs)                                                                               \
    _Static_assert(sizeof(dnn_choice) == sizeof(theirs), #theirs);                                 \
    _Static_assert(offsetof(dnn_choice, memory) == offsetof(theirs, memory), #theirs);             \
    _Static_assert(offsetof(dnn_choice, determinism) == offsetof(theirs, determinism), #theirs);   \
    _Static_assert(offsetof(dnn_choice, math) == offsetof(theirs, mathType), #theirs);
LIKE(cudnnConvolutionFwdAlgoPerf_t)
LIKE(cudnnConvolutionBwdDataAlgoPerf_t)
LIKE(cudnnConvolutionBwdFilterAlgoPerf_t)
#endif

Test(cuda_abi_dnn, declarations)
{
#ifndef HAVE_DNN
    cr_skip_test("cudnn.h is not found");
#endif
}
