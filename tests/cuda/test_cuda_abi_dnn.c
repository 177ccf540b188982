/*
 * tests/cuda/test_cuda_abi_dnn.c -- our own declarations of cuDNN (eager/cuda/dnn_api.h) are those of its header, and the
 * library has the functions, where they are found.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
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
/* graphs */
SAME(DNN_POINTWISE, CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
SAME(DNN_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR)
SAME(DNN_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
SAME(DNN_HEURISTIC, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
SAME(DNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
SAME(DNN_OP_POINTWISE, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
SAME(DNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
SAME(DNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
SAME(DNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR)
SAME(DNN_MATMUL, CUDNN_BACKEND_MATMUL_DESCRIPTOR)
SAME(DNN_OP_MATMUL, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
SAME(DNN_REDUCTION, CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
SAME(DNN_OP_REDUCTION, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
SAME(DNN_OP_RESHAPE, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
SAME(DNN_V_HANDLE, CUDNN_TYPE_HANDLE)
SAME(DNN_V_DATA_TYPE, CUDNN_TYPE_DATA_TYPE)
SAME(DNN_V_BOOL, CUDNN_TYPE_BOOLEAN)
SAME(DNN_V_I64, CUDNN_TYPE_INT64)
SAME(DNN_V_POINTER, CUDNN_TYPE_VOID_PTR)
SAME(DNN_V_HEURISTIC, CUDNN_TYPE_HEUR_MODE)
SAME(DNN_V_NOTE, CUDNN_TYPE_NUMERICAL_NOTE)
SAME(DNN_V_POINTWISE, CUDNN_TYPE_POINTWISE_MODE)
SAME(DNN_V_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR)
SAME(DNN_V_REDUCTION, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE)
SAME(DNN_V_CHAR, CUDNN_TYPE_CHAR)
SAME(DNN_A_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MODE)
SAME(DNN_A_POINTWISE_TYPE, CUDNN_ATTR_POINTWISE_MATH_PREC)
SAME(DNN_A_POINTWISE_AXIS, CUDNN_ATTR_POINTWISE_AXIS)
SAME(DNN_A_HEURISTIC_MODE, CUDNN_ATTR_ENGINEHEUR_MODE)
SAME(DNN_A_HEURISTIC_GRAPH, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
SAME(DNN_A_HEURISTIC_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS)
SAME(DNN_A_CONFIG_ENGINE, CUDNN_ATTR_ENGINECFG_ENGINE)
SAME(DNN_A_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
SAME(DNN_A_PLAN_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
SAME(DNN_A_PLAN_JSON, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
SAME(DNN_A_PLAN_WORKSPACE, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
SAME(DNN_A_OP_POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
SAME(DNN_A_OP_POINTWISE_X, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)
SAME(DNN_A_OP_POINTWISE_B, CUDNN_ATTR_OPERATION_POINTWISE_BDESC)
SAME(DNN_A_OP_POINTWISE_Y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)
SAME(DNN_A_OP_POINTWISE_T, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)
SAME(DNN_A_GRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
SAME(DNN_A_GRAPH_OPS, CUDNN_ATTR_OPERATIONGRAPH_OPS)
SAME(DNN_A_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)
SAME(DNN_A_TENSOR_TYPE, CUDNN_ATTR_TENSOR_DATA_TYPE)
SAME(DNN_A_TENSOR_DIMS, CUDNN_ATTR_TENSOR_DIMENSIONS)
SAME(DNN_A_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES)
SAME(DNN_A_TENSOR_ID, CUDNN_ATTR_TENSOR_UNIQUE_ID)
SAME(DNN_A_TENSOR_VIRTUAL, CUDNN_ATTR_TENSOR_IS_VIRTUAL)
SAME(DNN_A_TENSOR_BY_VALUE, CUDNN_ATTR_TENSOR_IS_BY_VALUE)
SAME(DNN_A_PACK_IDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)
SAME(DNN_A_PACK_POINTERS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
SAME(DNN_A_PACK_WORKSPACE, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
SAME(DNN_A_ENGINE_NOTES, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
SAME(DNN_A_MATMUL_TYPE, CUDNN_ATTR_MATMUL_COMP_TYPE)
SAME(DNN_A_OP_MATMUL_A, CUDNN_ATTR_OPERATION_MATMUL_ADESC)
SAME(DNN_A_OP_MATMUL_B, CUDNN_ATTR_OPERATION_MATMUL_BDESC)
SAME(DNN_A_OP_MATMUL_C, CUDNN_ATTR_OPERATION_MATMUL_CDESC)
SAME(DNN_A_OP_MATMUL, CUDNN_ATTR_OPERATION_MATMUL_DESC)
SAME(DNN_A_REDUCTION_MODE, CUDNN_ATTR_REDUCTION_OPERATOR)
SAME(DNN_A_REDUCTION_TYPE, CUDNN_ATTR_REDUCTION_COMP_TYPE)
SAME(DNN_A_OP_REDUCTION_X, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)
SAME(DNN_A_OP_REDUCTION_Y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)
SAME(DNN_A_OP_REDUCTION, CUDNN_ATTR_OPERATION_REDUCTION_DESC)
SAME(DNN_A_OP_RESHAPE_X, CUDNN_ATTR_OPERATION_RESHAPE_XDESC)
SAME(DNN_A_OP_RESHAPE_Y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)
SAME(DNN_I32, CUDNN_DATA_INT32)
SAME(DNN_BOOL, CUDNN_DATA_BOOLEAN)
SAME(DNN_PW_ADD, CUDNN_POINTWISE_ADD)
SAME(DNN_PW_MUL, CUDNN_POINTWISE_MUL)
SAME(DNN_PW_DIV, CUDNN_POINTWISE_DIV)
SAME(DNN_PW_SUB, CUDNN_POINTWISE_SUB)
SAME(DNN_PW_EXP, CUDNN_POINTWISE_EXP)
SAME(DNN_PW_LOG, CUDNN_POINTWISE_LOG)
SAME(DNN_PW_GE, CUDNN_POINTWISE_CMP_GE)
SAME(DNN_PW_INDEX, CUDNN_POINTWISE_GEN_INDEX)
SAME(DNN_PW_SELECT, CUDNN_POINTWISE_BINARY_SELECT)
SAME(DNN_REDUCE_ADD, CUDNN_REDUCE_TENSOR_ADD)
SAME(DNN_REDUCE_MAX, CUDNN_REDUCE_TENSOR_MAX)
SAME(DNN_HEURISTIC_FALLBACK, CUDNN_HEUR_MODE_FALLBACK)
SAME(DNN_HEURISTIC_A, CUDNN_HEUR_MODE_A)
SAME(DNN_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
#if CUDNN_VERSION >= 90800 /* for planning without a GPU: tests/cuda/test_cuda_attention.c */
SAME(DNN_DEVICE, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
SAME(DNN_A_HEURISTIC_DEVICE, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP)
SAME(DNN_A_PLAN_DEVICE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)
SAME(DNN_A_DEVICE_JSON, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
#endif
_Static_assert(CUDNN_NUMERICAL_NOTE_TYPE_COUNT <= 64, "DNN_NOTES");

#define LIKE(theirs)                                                                               \
    _Static_assert(sizeof(dnn_choice) == sizeof(theirs), #theirs);                                 \
    _Static_assert(offsetof(dnn_choice, memory) == offsetof(theirs, memory), #theirs);             \
    _Static_assert(offsetof(dnn_choice, determinism) == offsetof(theirs, determinism), #theirs);   \
    _Static_assert(offsetof(dnn_choice, math) == offsetof(theirs, mathType), #theirs);
LIKE(cudnnConvolutionFwdAlgoPerf_t)
LIKE(cudnnConvolutionBwdDataAlgoPerf_t)
LIKE(cudnnConvolutionBwdFilterAlgoPerf_t)

/* Attributes are handed over by address: as wide as the library reads them. */
#define AS_INT(theirs) _Static_assert(sizeof(theirs) == sizeof(int), #theirs);
AS_INT(cudnnDataType_t)
AS_INT(cudnnPointwiseMode_t)
AS_INT(cudnnBackendHeurMode_t)
AS_INT(cudnnBackendNumericalNote_t)
AS_INT(cudnnReduceTensorOp_t)
AS_INT(cudnnConvolutionFwdAlgo_t)

/* The functions of the tables, by the names that cudnn.h declares. */
#define FUNCTIONS(F)                                                                               \
    F(create, cudnnCreate)                                                                         \
    F(destroy, cudnnDestroy)                                                                       \
    F(set_stream, cudnnSetStream)                                                                  \
    F(tensor_create, cudnnCreateTensorDescriptor)                                                  \
    F(tensor_destroy, cudnnDestroyTensorDescriptor)                                                \
    F(tensor_set, cudnnSetTensorNdDescriptor)                                                      \
    F(filter_create, cudnnCreateFilterDescriptor)                                                  \
    F(filter_destroy, cudnnDestroyFilterDescriptor)                                                \
    F(filter_set, cudnnSetFilterNdDescriptor)                                                      \
    F(conv_create, cudnnCreateConvolutionDescriptor)                                               \
    F(conv_destroy, cudnnDestroyConvolutionDescriptor)                                             \
    F(conv_set, cudnnSetConvolutionNdDescriptor)                                                   \
    F(conv_groups, cudnnSetConvolutionGroupCount)                                                  \
    F(conv_math, cudnnSetConvolutionMathType)                                                      \
    F(forward_choose, cudnnGetConvolutionForwardAlgorithm_v7)                                      \
    F(dx_choose, cudnnGetConvolutionBackwardDataAlgorithm_v7)                                      \
    F(dw_choose, cudnnGetConvolutionBackwardFilterAlgorithm_v7)                                    \
    F(forward, cudnnConvolutionForward)                                                            \
    F(dx, cudnnConvolutionBackwardData)                                                            \
    F(dw, cudnnConvolutionBackwardFilter)                                                          \
    F(make, cudnnBackendCreateDescriptor)                                                          \
    F(drop, cudnnBackendDestroyDescriptor)                                                         \
    F(finalize, cudnnBackendFinalize)                                                              \
    F(set, cudnnBackendSetAttribute)                                                               \
    F(get, cudnnBackendGetAttribute)                                                               \
    F(execute, cudnnBackendExecute)

#define TABLE(F) DNN_FUNCTIONS(F) DNN_GRAPH_FUNCTIONS(F)
#define RESULT int
#include "tests/cuda/abi_table.h"
_Static_assert(sizeof((size_t(*)(void))(cudnnGetVersion)) == sizeof(void *), "version");
#endif

Test(cuda_abi_dnn, declarations)
{
#ifndef HAVE_DNN
    cr_skip_test("cudnn.h is not found");
#else
    cr_assert_eq(casts[0], sizeof(void *));
#endif
}

Test(cuda_abi_dnn, functions)
{
    void *lib = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib) {
        cr_skip_test("libcudnn.so.9 is not found");
    }
#define F(field, symbol, params) cr_assert(dlsym(lib, symbol), "%s", symbol);
    DNN_FUNCTIONS(F)
    DNN_GRAPH_FUNCTIONS(F)
#undef F
    cr_assert(dlsym(lib, "cudnnGetVersion"));
}
