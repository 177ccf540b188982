/*
 * eager/cuda/dnn_api.h -- the part of cuDNN 9's interface that is used, as a table of functions.
 *
 * Declared here for the reason given in api.h. Convolutions by its convolution functions: their heuristics
 * name algorithms with workspace and determinism, which is all that is wanted here.
 */
#ifndef EAGER_CUDA_DNN_API_H
#define EAGER_CUDA_DNN_API_H

#include "eager/cuda/api.h"

typedef struct dnn_object *dnn_handle; /* library, tensor, filter, convolution */

enum { DNN_OK = 0, DNN_NOT_SUPPORTED = 3000 };
enum { DNN_F32 = 0, DNN_F64 = 1, DNN_F16 = 2, DNN_BF16 = 9 };
enum { DNN_NCHW = 0, DNN_CROSS_CORRELATION = 1 };
enum { DNN_MATH_DEFAULT = 0, DNN_MATH_FMA = 3, DNN_DETERMINISTIC = 1 };

typedef struct dnn_choice {
    int algo, status;
    float time;
    size_t memory;
    int determinism, math;
    int reserved[3];
} dnn_choice;

#define DNN_FUNCTIONS(F)                                                                           \
    F(create, "cudnnCreate", (dnn_handle * lib))                                                   \
    F(destroy, "cudnnDestroy", (dnn_handle lib))                                                   \
    F(set_stream, "cudnnSetStream", (dnn_handle lib, cu_handle stream))                            \
    F(tensor_create, "cudnnCreateTensorDescriptor", (dnn_handle * tensor))                         \
    F(tensor_destroy, "cudnnDestroyTensorDescriptor", (dnn_handle tensor))                         \
    F(tensor_set, "cudnnSetTensorNdDescriptor",                                                    \
      (dnn_handle tensor, int type, int rank, const int *dims, const int *strides))                \
    F(filter_create, "cudnnCreateFilterDescriptor", (dnn_handle * filter))                         \
    F(filter_destroy, "cudnnDestroyFilterDescriptor", (dnn_handle filter))                         \
    F(filter_set, "cudnnSetFilterNdDescriptor",                                                    \
      (dnn_handle filter, int type, int format, int rank, const int *dims))                        \
    F(conv_create, "cudnnCreateConvolutionDescriptor", (dnn_handle * conv))                        \
    F(conv_destroy, "cudnnDestroyConvolutionDescriptor", (dnn_handle conv))                        \
    F(conv_set, "cudnnSetConvolutionNdDescriptor",                                                 \
      (dnn_handle conv, int n, const int *pad, const int *stride, const int *dilation, int mode,   \
       int compute))                                                                               \
    F(conv_groups, "cudnnSetConvolutionGroupCount", (dnn_handle conv, int groups))                 \
    F(conv_math, "cudnnSetConvolutionMathType", (dnn_handle conv, int math))                       \
    F(forward_choose, "cudnnGetConvolutionForwardAlgorithm_v7",                                    \
      (dnn_handle lib, dnn_handle x, dnn_handle w, dnn_handle conv, dnn_handle y, int wanted,      \
       int *n, dnn_choice *choices))                                                               \
    F(dx_choose, "cudnnGetConvolutionBackwardDataAlgorithm_v7",                                    \
      (dnn_handle lib, dnn_handle w, dnn_handle dy, dnn_handle conv, dnn_handle dx, int wanted,    \
       int *n, dnn_choice *choices))                                                               \
    F(dw_choose, "cudnnGetConvolutionBackwardFilterAlgorithm_v7",                                  \
      (dnn_handle lib, dnn_handle x, dnn_handle dy, dnn_handle conv, dnn_handle dw, int wanted,    \
       int *n, dnn_choice *choices))                                                               \
    F(forward, "cudnnConvolutionForward",                                                          \
      (dnn_handle lib, const void *alpha, dnn_handle layout_x, const void *x, dnn_handle layout_w, \
       const void *w, dnn_handle conv, int algo, void *workspace, size_t size, const void *beta,   \
       dnn_handle layout_y, void *y))                                                              \
    F(dx, "cudnnConvolutionBackwardData",                                                          \
      (dnn_handle lib, const void *alpha, dnn_handle layout_w, const void *w,                      \
       dnn_handle layout_dy, const void *dy, dnn_handle conv, int algo, void *workspace,           \
       size_t size, const void *beta, dnn_handle layout_dx, void *dx))                             \
    F(dw, "cudnnConvolutionBackwardFilter",                                                        \
      (dnn_handle lib, const void *alpha, dnn_handle layout_x, const void *x,                      \
       dnn_handle layout_dy, const void *dy, dnn_handle conv, int algo, void *workspace,           \
       size_t size, const void *beta, dnn_handle layout_dw, void *dw))

#endif
