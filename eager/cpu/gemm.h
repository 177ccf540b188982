/*
 * eager/cpu/gemm.h -- matrix product and 2-d convolution on raw pointers: the opaque CPU rows.
 *
 * Invariants
 *  - The work is cut into blocks by shape, strides and dtype alone, and each block is computed by
 * one thread in one order: results have the same bits at any thread count, on one machine with one
 *    back end. They are not covered by the bitwise contract between tiers, machines and libraries.
 *  - f32 and f64 accumulate in their own type; bf16 and f16 accumulate in f32 and round once at the
 *    end (units for bf16, oneDNN's too, take subnormals as zeros); integers wrap. No term is skipped, so NaN and infinity go where plain IEEE sums take
 * them.
 *  - Nothing here aborts or prints; every failure is a return code, and then the outputs are
 * unspecified.
 *  - The only threads are those of eager/pool.h. The OpenMP state of the calling thread is as
 * before.
 */
#ifndef EAGER_CPU_GEMM_H
#define EAGER_CPU_GEMM_H

#include <stdint.h>

#define WF_GEMM_OK 0
#define WF_GEMM_DONE 1 /* as well, and `done` was called for every row */
#define WF_GEMM_NOMEM (-1)
#define WF_GEMM_UNSUPPORTED (-2) /* dtype without a product (bool), or a malformed description */

/* C[b] := A[b] * B[b] for b in [0, batch). Strides count elements and may be anything, 0 and
 * negative included; C's column stride is 1. C must not overlap A or B. k == 0 gives zeros. */
typedef struct wf_gemm_desc {
    int dtype; /* of A, B and C */
    int64_t m, n, k;
    int64_t batch;
    const void *a; /* [m][k] */
    int64_t a_rs, a_cs, a_bs;
    const void *b; /* [k][n] */
    int64_t b_rs, b_cs, b_bs;
    void *c; /* [m][n] */
    int64_t c_rs, c_bs;
    /* The bits of an element are to depend on its terms alone: not on strides, on which of A and B is which, nor (where there is
     * more than one row and one column) on how many rows and columns are multiplied at once. Where the back end has several
     * orders to add in (oneDNN's f32 of SSE, or kept from AVX-512; long sums of bf16 on AVX-512) the product is WF_GEMM_UNSUPPORTED. */
    int one_order;
    /* NULL, or a bias: bias[j * bias_cs] of each column or, where bias_rs is not 0, bias[i * bias_rs] of each row, in every batch.
     * To f32 and f64 it is one addition more, to the finished sum. To half types it is added before the rounding, for columns, where
     * that is faster than an f32 product of widened copies (one row; bf16 where the machine multiplies it); elsewhere
     * their product with a bias is WF_GEMM_UNSUPPORTED. */
    const void *bias;
    int64_t bias_rs, bias_cs;
    /* NULL, or called for rows [row, row + count) of a batch as soon as they are finished, bias included, by the thread that made
     * them: they are in its caches. Ranges are disjoint and may be handled at the same time. It is called for all
     * rows (the product returns WF_GEMM_DONE) or, where blocks are not whole rows or too few for the threads, for
     * none. */
    void (*done)(void *arg, int64_t batch, int64_t row, int64_t count);
    void *done_arg;
} wf_gemm_desc;

int wf_gemm(const wf_gemm_desc *d);

/* Activations: [n][c][h][w] (NCHW) or [n][h][w][c] (NHWC), dense, chosen per side. */
#define WF_CONV_SRC_NHWC 1u
#define WF_CONV_DST_NHWC 2u

/* Cross-correlation, floating dtypes. src is n x c x h x w, dst is n x o x oh x ow, the weight is
 * dense [o][c / groups][kh][kw]. oh = (h + 2 pad[0] - dilation[0] (kh - 1) - 1) / stride[0] + 1,
 * rounded down, likewise ow; dilation 1 is the dense kernel. Empty sums give zeros (or the bias).
 */
typedef struct wf_conv_desc {
    int dtype;
    unsigned layout; /* WF_CONV_* */
    int64_t n, c, h, w;
    int64_t o, kh, kw;
    int64_t oh, ow;
    int64_t stride[2], pad[2], dilation[2];
    int64_t groups;
} wf_conv_desc;

/* bias: [o] of the same dtype, added before the rounding, or NULL. */
int wf_conv2d_forward(const wf_conv_desc *d, const void *src, const void *weight, const void *bias,
                      void *dst);
int wf_conv2d_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                            void *dsrc);
int wf_conv2d_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                              void *dweight);

enum { WF_GEMM_AUTO, WF_GEMM_BUILTIN, WF_GEMM_ONEDNN };

/* Chooses the back end (tests): AUTO is matrix units for bf16 products where wf_amx() says so, and else oneDNN when
 * it can be opened and WEFT_NO_ONEDNN is not 1; the other two leave matrix units of weft's own alone.
 * Returns the back end now in use, BUILTIN when oneDNN is not there. Call it while nothing runs. */
int wf_gemm_set_backend(int backend);
/* "oneDNN 2.6.3", or "built-in (reason why oneDNN is not used)", and ", bf16 products on AMX" where that is so. Opens oneDNN if not yet done. */
const char *wf_gemm_backend_name(void);

#endif
