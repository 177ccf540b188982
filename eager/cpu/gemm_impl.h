/*
 * eager/cpu/gemm_impl.h -- what the files of eager/cpu and the kernels per instruction set share.
 */
#ifndef EAGER_CPU_GEMM_IMPL_H
#define EAGER_CPU_GEMM_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "eager/cpu/gemm.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"

/* Bytes of an element of a dtype that has a product; 0 otherwise. */
static inline size_t wf_gemm_esize(int dtype)
{
    return dtype > WEFT_BOOL && dtype < WF_NDTYPE ? wf_dtype_size(dtype) : 0;
}

/* The one order of sums of f32 and f64, that of the built-in kernels and of wf_gemm_desc.one_order: slices of so many terms,
 * each summed in index order and added to those before. */
enum { WF_GEMM_SLICE = 256 }; /* a packed panel of B, of two vectors a row, stays in L1 */
static inline int64_t wf_gemm_slice(int64_t k)
{
    const int64_t slices = (k + WF_GEMM_SLICE - 1) / WF_GEMM_SLICE;
    return slices > 1 ? (k + slices - 1) / slices : k;
}

/* Rows of a block up to which the kernels add a bias of rows in their tiles at little cost: they keep it in vectors. */
enum { WF_GEMM_BIAS_ROWS = 64 };

/* One product on one thread; the scratch comes from the caller so that the kernels cannot fail. */
typedef struct wf_gemm_block {
    int dtype; /* f32, f64, bf16, f16 */
    int64_t m, n, k;
    const void *a;
    int64_t a_rs, a_cs;
    const void *b;
    int64_t b_rs, b_cs;
    void *c;
    int64_t c_rs;
    int add;      /* C += A * B; f32 and f64 only */
    int in_order; /* m == 1: sums in index order, not in lanes; b_cs is 1 */
    int wide;     /* C has the type of the sums: f32 for bf16 and f16 */
    /* NULL, or bias[i * bias_rs + j * bias_cs], of the type of C and of the sums, is added to finished sums; one of the strides
     * is 1, the other 0. The kernels for pairs and vectors leave that to wf_gemm_add_bias. */
    const void *bias;
    int64_t bias_rs, bias_cs;
    void *scratch; /* 64-byte aligned, of wf_gemm_kernels.scratch bytes */
} wf_gemm_block;

/* Rows [k0, k1), k0 and k1 even, of a bf16 B in panels of `width` columns and `depth` rows, which are
 * zeros from row k and column n on; rows 2p and 2p + 1 lie side by side:
 * out[((q * depth / 2 + p) * width + j) * 2 + i] is row 2p + i, column q * width + j. */
typedef struct wf_gemm_panel {
    const void *b;
    int64_t b_rs, b_cs;
    int64_t k, n, k0, k1;
    int64_t width, depth;
    void *out; /* of row 0 */
} wf_gemm_panel;

typedef struct wf_gemm_kernels {
    size_t (*scratch)(const wf_gemm_block *g);
    void (*block)(const wf_gemm_block *g);
    void (*panel)(const wf_gemm_panel *p); /* NULL in the tables for vectors */
} wf_gemm_kernels;

extern const wf_gemm_kernels wf_gemm_kernels_sse2, wf_gemm_kernels_avx2, wf_gemm_kernels_avx512;

/* bf16 on AVX512_BF16, where wf_bf16_pairs(). */
extern const wf_gemm_kernels wf_gemm_kernels_pairs;

/* m == 1, with b_cs or b_rs 1; c_rs is then the distance between the elements of C. */
extern const wf_gemm_kernels wf_vector_kernels_sse2, wf_vector_kernels_avx2,
    wf_vector_kernels_avx512;

/* C += the bias, where what made C does not add it. */
void wf_gemm_add_bias(const wf_gemm_block *g);
/* C := A * B by the built-in kernels on the calling thread. */
int wf_gemm_builtin_block(const wf_gemm_block *g);
/* bf16, on the pool, where wf_amx(); results not empty, k > 0. */
int wf_gemm_amx(const wf_gemm_desc *d);
/* Whether bf16 products run on matrix units: the machine has them and no back end was chosen. */
int wf_gemm_amx_active(void);
/* Whether bf16 products may run on the kernel for pairs: the machine has the instruction and oneDNN was not chosen. */
int wf_gemm_pairs_active(void);
/* Rows of integer products, d as their argument, by width: 8 to 64 bits. */
extern const wf_task_fn wf_gemm_int_sse2[4], wf_gemm_int_avx2[4], wf_gemm_int_avx512[4];
/* Integer dtypes, on the pool. */
int wf_gemm_int(const wf_gemm_desc *d);

static inline int64_t wf_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t wf_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Whether windows are larger than the image, or some lie wholly in the padding. */
static inline int wf_conv_beyond(const wf_conv_desc *d)
{
    const int64_t y = d->dilation[0] * (d->kh - 1) + 1, x = d->dilation[1] * (d->kw - 1) + 1;
    return d->h < y || d->w < x || d->pad[0] >= y || d->pad[1] >= x;
}

/* Convolution as one product over all samples, where images are small beside the weights or the kernel is larger than the image; elsewhere WF_GEMM_UNSUPPORTED, and nothing is written. Descriptions as below. */
int wf_conv_columns_forward(const wf_conv_desc *d, const void *src, const void *weight,
                            const void *bias, void *dst);
int wf_conv_columns_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                                  void *dsrc);
int wf_conv_columns_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                    void *dweight);

/* Images of one long row, likewise: of one channel, and gradients of the weights. */
int wf_conv_line_forward(const wf_conv_desc *d, const void *src, const void *weight,
                         const void *bias, void *dst);
int wf_conv_line_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                 void *dweight);

/* The gradient of a depthwise convolution's weights, of f32 and bf16, likewise. */
int wf_conv_depthwise_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                      void *dweight);

/* Where padding made a NaN of what was computed (conv_padding.c), its elements are made anew. Descriptions as below. */
void wf_conv_padding_forward(const wf_conv_desc *d, const void *src, const void *weight,
                             const void *bias, void *dst);
void wf_conv_padding_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                                   void *dsrc);
int wf_conv_padding_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                    void *dweight);

/* The built-in convolution: descriptions already checked and not empty. */
int wf_conv_builtin_forward(const wf_conv_desc *d, const void *src, const void *weight,
                            const void *bias, void *dst);
int wf_conv_builtin_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                                  void *dsrc);
int wf_conv_builtin_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                    void *dweight);

#endif
