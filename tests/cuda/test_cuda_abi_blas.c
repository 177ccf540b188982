/*
 * tests/cuda/test_cuda_abi_blas.c -- our own declarations of cuBLASLt (eager/cuda/blaslt_api.h) are those of the toolkit's
 * header, and the library has the functions, where they are found. No GPU is needed for either.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stddef.h>

#include "eager/cuda/blaslt_api.h"

#if defined(WEFT_HAVE_CUDA_H) && defined(__has_include)
#if __has_include(<cublasLt.h>)
#define HAVE_BLASLT
#endif
#endif

#ifdef HAVE_BLASLT
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <cublasLt.h>
#pragma GCC diagnostic pop

#define SAME(mine, theirs) _Static_assert((int)(mine) == (int)(theirs), #mine);
SAME(BLASLT_OK, CUBLAS_STATUS_SUCCESS)
SAME(BLASLT_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED)
SAME(BLASLT_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED)
SAME(BLASLT_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE)
SAME(BLASLT_ARCH_MISMATCH, CUBLAS_STATUS_ARCH_MISMATCH)
SAME(BLASLT_EXECUTION_FAILED, CUBLAS_STATUS_EXECUTION_FAILED)
SAME(BLASLT_INTERNAL_ERROR, CUBLAS_STATUS_INTERNAL_ERROR)
SAME(BLASLT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED)
SAME(BLASLT_F32, CUDA_R_32F)
SAME(BLASLT_F64, CUDA_R_64F)
SAME(BLASLT_F16, CUDA_R_16F)
SAME(BLASLT_BF16, CUDA_R_16BF)
SAME(BLASLT_COMPUTE_F32, CUBLAS_COMPUTE_32F)
SAME(BLASLT_COMPUTE_F64, CUBLAS_COMPUTE_64F)
SAME(BLASLT_COMPUTE_TF32, CUBLAS_COMPUTE_32F_FAST_TF32)
SAME(BLASLT_DESC_TRANS_A, CUBLASLT_MATMUL_DESC_TRANSA)
SAME(BLASLT_DESC_TRANS_B, CUBLASLT_MATMUL_DESC_TRANSB)
SAME(BLASLT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE)
SAME(BLASLT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER)
SAME(BLASLT_N, CUBLAS_OP_N)
SAME(BLASLT_T, CUBLAS_OP_T)
SAME(BLASLT_EPILOGUE_NONE, CUBLASLT_EPILOGUE_DEFAULT)
SAME(BLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS)
SAME(BLASLT_LAYOUT_BATCH, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
SAME(BLASLT_LAYOUT_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
SAME(BLASLT_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
SAME(BLASLT_PREF_REDUCTION, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
SAME(BLASLT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
SAME(BLASLT_REDUCTION_ANY, CUBLASLT_REDUCTION_SCHEME_MASK)
SAME(BLASLT_PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
SAME(BLASLT_PREF_ALIGN_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
SAME(BLASLT_PREF_ALIGN_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
SAME(BLASLT_PREF_ALIGN_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)

_Static_assert(sizeof(blaslt_algo) == sizeof(cublasLtMatmulAlgo_t), "algo");
_Static_assert(sizeof(blaslt_choice) == sizeof(cublasLtMatmulHeuristicResult_t), "choice");
_Static_assert(offsetof(blaslt_choice, workspace) ==
                   offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize),
               "workspace");
_Static_assert(offsetof(blaslt_choice, state) == offsetof(cublasLtMatmulHeuristicResult_t, state),
               "state");
_Static_assert(offsetof(blaslt_choice, waves) ==
                   offsetof(cublasLtMatmulHeuristicResult_t, wavesCount),
               "waves");
/* The values of attributes are handed over by address: as wide as the library reads them. */
_Static_assert(sizeof(cublasLtEpilogue_t) == sizeof(uint32_t), "epilogue");
_Static_assert(sizeof(cublasOperation_t) == sizeof(int32_t), "transposes");

/* The functions of the table, by the names that cublasLt.h declares. */
#define FUNCTIONS(F)                                                                               \
    F(create, cublasLtCreate)                                                                      \
    F(destroy, cublasLtDestroy)                                                                    \
    F(desc_create, cublasLtMatmulDescCreate)                                                       \
    F(desc_destroy, cublasLtMatmulDescDestroy)                                                     \
    F(desc_set, cublasLtMatmulDescSetAttribute)                                                    \
    F(layout_create, cublasLtMatrixLayoutCreate)                                                   \
    F(layout_destroy, cublasLtMatrixLayoutDestroy)                                                 \
    F(layout_set, cublasLtMatrixLayoutSetAttribute)                                                \
    F(pref_create, cublasLtMatmulPreferenceCreate)                                                 \
    F(pref_destroy, cublasLtMatmulPreferenceDestroy)                                               \
    F(pref_set, cublasLtMatmulPreferenceSetAttribute)                                              \
    F(heuristic, cublasLtMatmulAlgoGetHeuristic)                                                   \
    F(matmul, cublasLtMatmul)

#define TABLE(F) BLASLT_FUNCTIONS(F)
#define RESULT int
#include "tests/cuda/abi_table.h"
_Static_assert(sizeof((size_t(*)(void))(cublasLtGetVersion)) == sizeof(void *), "version");
#endif

Test(cuda_abi_blas, declarations)
{
#ifndef HAVE_BLASLT
    cr_skip_test("cublasLt.h is not found");
#else
    cr_assert_eq(casts[0], sizeof(void *));
#endif
}

Test(cuda_abi_blas, functions)
{
    void *lib = dlopen("libcublasLt.so.13", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    lib = lib ? lib : dlopen("libcublasLt.so.12", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    lib = lib ? lib : dlopen("libcublasLt.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib) {
        cr_skip_test("libcublasLt is not found");
    }
#define F(field, symbol, params) cr_assert(dlsym(lib, symbol), "%s", symbol);
    BLASLT_FUNCTIONS(F)
#undef F
    cr_assert(dlsym(lib, "cublasLtGetVersion"));
}
