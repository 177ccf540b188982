/*
 * eager/cuda/dnn_api.h -- the part of cuDNN 9's interface that is used, as tables of functions.
 *
 * Declared here for the reason given in api.h. Convolutions by its convolution functions: their heuristics
 * name algorithms with workspace and determinism, which is all that is wanted here. Attention by its graphs: a
 * descriptor is a kind, attributes by number, and a call that finalizes it.
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

/* -- graphs ------------------------------------------------------------------------------------------- */

enum {
    DNN_POINTWISE = 0,
    DNN_ENGINE = 2,
    DNN_CONFIG = 3,
    DNN_HEURISTIC = 4,
    DNN_PLAN = 5,
    DNN_OP_POINTWISE = 13,
    DNN_GRAPH = 15,
    DNN_PACK = 16,
    DNN_TENSOR = 17,
    DNN_MATMUL = 18,
    DNN_OP_MATMUL = 19,
    DNN_REDUCTION = 21,
    DNN_OP_REDUCTION = 22,
    DNN_OP_RESHAPE = 31,
    DNN_DEVICE = 38
};
/* kinds of values */
enum {
    DNN_V_HANDLE = 0,
    DNN_V_DATA_TYPE = 1,
    DNN_V_BOOL = 2,
    DNN_V_I64 = 3,
    DNN_V_POINTER = 6,
    DNN_V_HEURISTIC = 8,
    DNN_V_NOTE = 11,
    DNN_V_POINTWISE = 14,
    DNN_V_DESCRIPTOR = 15,
    DNN_V_REDUCTION = 18,
    DNN_V_CHAR = 24
};
/* attributes */
enum {
    DNN_A_POINTWISE_MODE = 0,
    DNN_A_POINTWISE_TYPE = 1,
    DNN_A_POINTWISE_AXIS = 9,
    DNN_A_HEURISTIC_MODE = 200,
    DNN_A_HEURISTIC_GRAPH = 201,
    DNN_A_HEURISTIC_RESULTS = 202,
    DNN_A_HEURISTIC_DEVICE = 204,
    DNN_A_CONFIG_ENGINE = 300,
    DNN_A_PLAN_HANDLE = 400,
    DNN_A_PLAN_CONFIG = 401,
    DNN_A_PLAN_WORKSPACE = 402,
    DNN_A_PLAN_JSON = 405,
    DNN_A_PLAN_DEVICE = 407,
    DNN_A_OP_POINTWISE = 750,
    DNN_A_OP_POINTWISE_X = 751,
    DNN_A_OP_POINTWISE_B = 752,
    DNN_A_OP_POINTWISE_Y = 753,
    DNN_A_OP_POINTWISE_T = 758,
    DNN_A_GRAPH_HANDLE = 800,
    DNN_A_GRAPH_OPS = 801,
    DNN_A_TENSOR_ALIGNMENT = 900,
    DNN_A_TENSOR_TYPE = 901,
    DNN_A_TENSOR_DIMS = 902,
    DNN_A_TENSOR_STRIDES = 903,
    DNN_A_TENSOR_ID = 906,
    DNN_A_TENSOR_VIRTUAL = 907,
    DNN_A_TENSOR_BY_VALUE = 908,
    DNN_A_PACK_IDS = 1000,
    DNN_A_PACK_POINTERS = 1001,
    DNN_A_PACK_WORKSPACE = 1003,
    DNN_A_ENGINE_NOTES = 1303,
    DNN_A_MATMUL_TYPE = 1500,
    DNN_A_OP_MATMUL_A = 1520,
    DNN_A_OP_MATMUL_B = 1521,
    DNN_A_OP_MATMUL_C = 1522,
    DNN_A_OP_MATMUL = 1523,
    DNN_A_REDUCTION_MODE = 1600,
    DNN_A_REDUCTION_TYPE = 1601,
    DNN_A_OP_REDUCTION_X = 1610,
    DNN_A_OP_REDUCTION_Y = 1611,
    DNN_A_OP_REDUCTION = 1612,
    DNN_A_OP_RESHAPE_X = 2200,
    DNN_A_OP_RESHAPE_Y = 2201,
    DNN_A_DEVICE_JSON = 2702
};
enum { DNN_I32 = 4, DNN_BOOL = 11 };
enum {
    DNN_PW_MUL = 1,
    DNN_PW_DIV = 6,
    DNN_PW_SUB = 9,
    DNN_PW_ADD = 0,
    DNN_PW_EXP = 13,
    DNN_PW_LOG = 15,
    DNN_PW_GE = 303,
    DNN_PW_INDEX = 501,
    DNN_PW_SELECT = 601
};
enum { DNN_REDUCE_ADD = 0, DNN_REDUCE_MAX = 3 };
enum { DNN_HEURISTIC_FALLBACK = 2, DNN_HEURISTIC_A = 3 };
enum { DNN_NOTE_NONDETERMINISTIC = 4, DNN_NOTES = 64 }; /* room for notes */

#define DNN_GRAPH_FUNCTIONS(F)                                                                     \
    F(make, "cudnnBackendCreateDescriptor", (int kind, dnn_handle *d))                             \
    F(drop, "cudnnBackendDestroyDescriptor", (dnn_handle d))                                       \
    F(finalize, "cudnnBackendFinalize", (dnn_handle d))                                            \
    F(set, "cudnnBackendSetAttribute",                                                             \
      (dnn_handle d, int attribute, int value_kind, int64_t n, const void *values))                \
    F(get, "cudnnBackendGetAttribute",                                                             \
      (dnn_handle d, int attribute, int value_kind, int64_t room, int64_t *n, void *values))       \
    F(execute, "cudnnBackendExecute", (dnn_handle lib, dnn_handle plan, dnn_handle pack))

typedef struct dnn_graph_calls {
#define F(field, symbol, params) int(*field) params;
    DNN_GRAPH_FUNCTIONS(F)
#undef F
} dnn_graph_calls;

#endif
