/*
 * eager/product.h -- what rows built on eager/cpu/gemm.h share.
 */
#ifndef EAGER_PRODUCT_H
#define EAGER_PRODUCT_H

#include "jit/ir/op.h"

/* Turns a code of wf_gemm or wf_conv2d_* into a status with why filled. */
int wf_gemm_status(int rc, int dt, wf_why *why);

#endif
