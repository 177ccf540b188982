/*
 * eager/cuda/blaslt_api.h -- the part of cuBLASLt's interface that is used, as a table of functions.
 *
 * Declared here for the reason given in api.h; names and numbers are those of releases 12 and 13.
 * Matrices are column-major there.
 */
#ifndef EAGER_CUDA_BLASLT_API_H
#define EAGER_CUDA_BLASLT_API_H

#include "eager/cuda/api.h"

typedef struct blaslt_object *blaslt_handle; /* library, descriptor, layout, preference */

enum {
    BLASLT_OK = 0,
    BLASLT_NOT_INITIALIZED = 1,
    BLASLT_ALLOC_FAILED = 3,
    BLASLT_INVALID_VALUE = 7,
    BLASLT_ARCH_MISMATCH = 8,
    BLASLT_EXECUTION_FAILED = 13,
    BLASLT_INTERNAL_ERROR = 14,
    BLASLT_NOT_SUPPORTED = 15
};
enum { BLASLT_F32 = 0, BLASLT_F64 = 1, BLASLT_F16 = 2, BLASLT_BF16 = 14 };
enum { BLASLT_COMPUTE_F32 = 68, BLASLT_COMPUTE_F64 = 70, BLASLT_COMPUTE_TF32 = 77 };
enum { BLASLT_DESC_TRANS_A = 3, BLASLT_DESC_TRANS_B = 4, BLASLT_DESC_EPILOGUE = 7 };
enum { BLASLT_DESC_BIAS = 8 };
enum { BLASLT_N = 0, BLASLT_T = 1 };
enum { BLASLT_EPILOGUE_NONE = 1, BLASLT_EPILOGUE_BIAS = 4 };
enum { BLASLT_LAYOUT_BATCH = 5, BLASLT_LAYOUT_STRIDE = 6 };
enum {
    BLASLT_PREF_WORKSPACE = 1,
    BLASLT_PREF_REDUCTION = 3,
    BLASLT_PREF_ALIGN_A = 5
}; /* B, C and D follow */
enum { BLASLT_REDUCTION_COMPUTE_TYPE = 2, BLASLT_REDUCTION_ANY = 7 };

typedef struct blaslt_algo {
    uint64_t data[8];
} blaslt_algo;
typedef struct blaslt_choice {
    blaslt_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} blaslt_choice;

#define BLASLT_FUNCTIONS(F)                                                                        \
    F(create, "cublasLtCreate", (blaslt_handle * lib))                                             \
    F(destroy, "cublasLtDestroy", (blaslt_handle lib))                                             \
    F(desc_create, "cublasLtMatmulDescCreate", (blaslt_handle * desc, int compute, int scale))     \
    F(desc_destroy, "cublasLtMatmulDescDestroy", (blaslt_handle desc))                             \
    F(desc_set, "cublasLtMatmulDescSetAttribute",                                                  \
      (blaslt_handle desc, int attribute, const void *value, size_t size))                         \
    F(layout_create, "cublasLtMatrixLayoutCreate",                                                 \
      (blaslt_handle * layout, int type, uint64_t rows, uint64_t cols, int64_t ld))                \
    F(layout_destroy, "cublasLtMatrixLayoutDestroy", (blaslt_handle layout))                       \
    F(layout_set, "cublasLtMatrixLayoutSetAttribute",                                              \
      (blaslt_handle layout, int attribute, const void *value, size_t size))                       \
    F(pref_create, "cublasLtMatmulPreferenceCreate", (blaslt_handle * pref))                       \
    F(pref_destroy, "cublasLtMatmulPreferenceDestroy", (blaslt_handle pref))                       \
    F(pref_set, "cublasLtMatmulPreferenceSetAttribute",                                            \
      (blaslt_handle pref, int attribute, const void *value, size_t size))                         \
    F(heuristic, "cublasLtMatmulAlgoGetHeuristic",                                                 \
      (blaslt_handle lib, blaslt_handle desc, blaslt_handle a, blaslt_handle b, blaslt_handle c,   \
       blaslt_handle d, blaslt_handle pref, int wanted, blaslt_choice *choices, int *n))           \
    F(matmul, "cublasLtMatmul",                                                                    \
      (blaslt_handle lib, blaslt_handle desc, const void *alpha, const void *a,                    \
       blaslt_handle layout_a, const void *b, blaslt_handle layout_b, const void *beta,            \
       const void *c, blaslt_handle layout_c, void *d, blaslt_handle layout_d,                     \
       const blaslt_algo *algo, void *workspace, size_t workspace_size, cu_handle stream))

#endif
