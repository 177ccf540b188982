/*
 * eager/cuda/dnn.h -- 2d convolutions and their gradients through cuDNN.
 *
 * f32, f64, f16 and bf16; half types sum in f32. Only algorithms that give the same bits every time are
 * taken, and f32 is f32 (TF32 where WEFT_TF32 asks for it). Which one runs is asked once per shape.
 */
#ifndef EAGER_CUDA_DNN_H
#define EAGER_CUDA_DNN_H

#include "eager/cuda/runtime.h"

enum { WF_CUDA_CONV_FORWARD, WF_CUDA_CONV_DX, WF_CUDA_CONV_DW };

/* All of one type. x (n, c, h, w) and y (n, o, oh, ow) with strides in elements (NHWC memory is fine), w
 * (o, c / groups, kh, kw) dense. What is computed: y, the gradient of x, or the one of w, from the two
 * others (y stands for its gradient then). */
typedef struct wf_cuda_conv {
    int what, dtype;
    int64_t x[4], w[4], y[4];
    int64_t x_strides[4], y_strides[4];
    int64_t stride[2], pad[2], dilation[2], groups;
    void *x_data, *w_data, *y_data; /* at multiples of 16 bytes */
    bool add;                       /* forward: to what y holds (a bias, spread beforehand) */
} wf_cuda_conv;

/* On the current stream; the blocks are the caller's to wf_cuda_use first. WEFT_EUNSUPPORTED with why empty:
 * there is no library, or it has nothing for this; another way has to be taken. */
int wf_cuda_conv_run(int ordinal, const wf_cuda_conv *c, wf_why *why);
/* The library calls others misaligned, and its kernels are not obliged to look. */
static inline bool wf_cuda_conv_lies(const void *data)
{
    return (uintptr_t)data % 16 == 0;
}
/* Is there a library that works on the device? Opens it. */
bool wf_cuda_conv_there(int ordinal);
/* "cuDNN 9.19.0" or why there is none; never NULL. Opens the library. */
const char *wf_cuda_conv_name(void);
/* Is there one? Opens it. */
bool wf_cuda_conv_is_open(void);
/* Algorithms chosen so far (tests). */
int64_t wf_cuda_conv_plans(void);

#endif
