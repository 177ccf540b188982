/*
 * eager/kernels/rowwise.inc.c -- the row kernels, compiled once per instruction set (WF_ISA).
 *
 * Invariant: every sum follows the canonical order (reduce_canon.h), every other step is elementwise,
 * so bits do not depend on the instruction set.
 */
#include <stdbool.h>

#include "eager/kernels/reduce.h"
#include "eager/kernels/reduce_vec.h"
#include "eager/kernels/rowwise.h"
#include "jit/ir/dict_c.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h"
#include "eager/kernels/x4.h"
#include "eager/kernels/exp_block.h"
#include "eager/kernels/norm4.h"
#include "eager/kernels/bf16_vec.h"
#include "eager/kernels/planes.h"

#define OP +

#define IDENTITY -0.0f
#define T float
#define SFX f32
#define ESIZE 4
#include "eager/kernels/rowwise_sums.h"
#include "eager/kernels/reduce_flt.h"
#ifdef WF_HAS_X4
#define X4 1
#else
#define X4 0
#endif
#include "eager/kernels/rowwise_exp.h"
#include "eager/kernels/rowwise_t.h"
#undef IDENTITY
#undef T
#undef SFX
#undef ESIZE

#define IDENTITY -0.0
#define T double
#define SFX f64
#define ESIZE 8
#include "eager/kernels/rowwise_sums.h"
#include "eager/kernels/reduce_flt.h"
#define X4 0
#include "eager/kernels/rowwise_exp.h"
#include "eager/kernels/rowwise_t.h"

#define KERNELS(sfx)                                                                               \
    {                                                                                              \
        .softmax = softmax_##sfx, .log_softmax = log_softmax_##sfx,                                \
        .softmax_bwd = softmax_bwd_##sfx, .log_softmax_bwd = log_softmax_bwd_##sfx,                \
        .norm = norm_##sfx, .norms = norms_##sfx, .norm_bwd = norm_bwd_##sfx,                      \
        .norm_runs = norm_runs_##sfx, .scale_runs = scale_runs_##sfx,                              \
        .affine_runs = affine_runs_##sfx, .norm_lanes = norm_lanes_##sfx,                          \
        .cross_entropy = cross_entropy_##sfx, .cross_entropy_bwd = cross_entropy_bwd_##sfx,        \
        .affine = affine_##sfx, .affine_bwd = affine_bwd_##sfx,                                    \
        .norm_bwd_sums = norm_bwd_sums_##sfx, .blend = blend_##sfx,                                \
    }

const wf_row_kernels WF_JOIN(wf_row_kernels, WF_ISA)[2] = {KERNELS(f32), KERNELS(f64)};

const wf_plane_kernels WF_JOIN(wf_plane_kernels, WF_ISA) = {
#if WF_HAS_PLANES == 2
    {planes_f32, planes_bf16},
    {planes_bwd_f32, planes_bwd_bf16},
#elif defined(WF_HAS_PLANES)
    {NULL, planes_bf16},
    {NULL, planes_bwd_bf16},
#else
    {NULL, NULL},
    {NULL, NULL},
#endif
};
