/*
 * eager/cuda/blaslt.h -- matrix products through cuBLASLt.
 *
 * d[i] = a[i] b[i] (+ bias), row-major, all of one type: f32, f64, or f16 and bf16 with sums in f32 and one
 * rounding at the end. f32 is f32: TF32 only where `tf32` asks for it. Which kernel runs is decided once
 * per shape and alignment and remembered, so equal calls give equal bits on one machine and library version.
 * The bias is added to the sum before the rounding: for f32 and f64 the bits of a product and an addition,
 * for half types they round once less.
 */
#ifndef EAGER_CUDA_BLASLT_H
#define EAGER_CUDA_BLASLT_H

#include "eager/cuda/runtime.h"
#include "eager/view.h"

typedef struct wf_cuda_gemm {
    int dtype;             /* WEFT_F16, BF16, F32 or F64 */
    int dtype_d;           /* of d and bias: dtype (or 0), or F32 for half types without a bias */
    bool trans_a, trans_b; /* a is stored (k, m), b (n, k) */
    bool tf32;             /* f32 products may drop 13 bits of their operands */
    int64_t m, n, k;       /* d is (m, n) */
    int64_t batch;         /* >= 1 */
    int64_t lda, ldb, ldd; /* elements from row to row as stored */
    int64_t stride_a, stride_b, stride_d; /* elements from product to product; 0: the same matrix */
    const void *a, *b;
    void *d;
    const void *bias; /* (n), added to every row; NULL: none */
    bool add;         /* to what d holds */
} wf_cuda_gemm;

/* On the current stream; the blocks are the caller's to wf_cuda_use first. WEFT_EUNSUPPORTED with why empty
 * (code 0): there is no library, or it has no kernel for this; another way has to be taken. */
int wf_cuda_gemm_run(int ordinal, const wf_cuda_gemm *g, wf_why *why);
/* The same for views of device memory: the last two axes are the matrices, the ones before are the batch,
 * with stride 0 where an operand is the same for all. bias (n) or NULL. add: to what c holds. */
int wf_cuda_gemm_views(int ordinal, const wf_view *c, const wf_view *a, const wf_view *b,
                       const wf_view *bias, bool add, wf_why *why);
/* "cuBLASLt 13.0.2" or why there is none; never NULL. Opens the library. */
const char *wf_cuda_gemm_name(void);
/* Is there one? Opens it. */
bool wf_cuda_gemm_is_open(void);
/* Is there a library that works on the device? Opens it. */
bool wf_cuda_gemm_there(int ordinal);
/* Kernels chosen so far (tests). */
int64_t wf_cuda_gemm_plans(void);

#endif
