/*
 * eager/cuda/dnn_api.h -- the part of cuDNN 9's interface that is used, as tables of functions.
 *
 * Declared here for the reason given in api.h. Everything is asked for as a graph of operations: a descriptor is a kind,
 * attributes by number, and a call that finalizes it.
 */
#ifndef EAGER_CUDA_DNN_API_H
#define EAGER_CUDA_DNN_API_H

#include "eager/cuda/api.h"

typedef struct dnn_object *dnn_handle; /* library, tensor, filter, convolution */

enum { DNN_OK = 0, DNN_NOT_SUPPORTED = 3000 };
enum { DNN_F32 = 0, DNN_F64 = 1, DNN_F16 = 2, DNN_BF16 = 9 };
#define DNN_FUNCTIONS(F)                                                                           \
    F(create, "cudnnCreate", (dnn_handle * lib))                                                   \
    F(destroy, "cudnnDestroy", (dnn_handle lib))                                                   \
    F(set_stream, "cudnnSetStream", (dnn_handle lib, cu_handle stream))

/* -- graphs ------------------------------------------------------------------------------------------- */

enum {
    DNN_POINTWISE = 0,
    DNN_CONVOLUTION = 1,
    DNN_ENGINE = 2,
    DNN_CONFIG = 3,
    DNN_HEURISTIC = 4,
    DNN_PLAN = 5,
    DNN_OP_CONV_FORWARD = 10,
    DNN_OP_CONV_DW = 11,
    DNN_OP_CONV_DX = 12,
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
    DNN_V_F32 = 4,
    DNN_V_F64 = 5,
    DNN_V_POINTER = 6,
    DNN_V_CONV_MODE = 7,
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
    DNN_A_CONV_TYPE = 100,
    DNN_A_CONV_MODE = 101,
    DNN_A_CONV_DILATIONS = 102,
    DNN_A_CONV_STRIDES = 103,
    DNN_A_CONV_PADS_AFTER = 104,
    DNN_A_CONV_PADS_BEFORE = 105,
    DNN_A_CONV_AXES = 106,
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
    DNN_A_OP_CONV_FORWARD = 700, /* the first of six of each: see DNN_CONV_ALPHA */
    DNN_A_OP_CONV_DX = 706,
    DNN_A_OP_CONV_DW = 712,
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
/* What follows the first attribute of a convolution, by distance; x, w and y stand for their gradients where those are made. */
enum { DNN_CONV_ALPHA, DNN_CONV_BETA, DNN_CONV_HOW, DNN_CONV_W, DNN_CONV_X, DNN_CONV_Y };
enum { DNN_CROSS_CORRELATION = 1 };
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
enum {
    DNN_NOTE_TENSOR_CORE = 0,
    DNN_NOTE_NARROWS = 1, /* operands to fewer bits */
    DNN_NOTE_NARROW_SUMS = 2,
    DNN_NOTE_NONDETERMINISTIC = 4,
    DNN_NOTES = 64 /* room for notes */
};

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
