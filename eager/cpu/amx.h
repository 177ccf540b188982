/*
 * eager/cpu/amx.h -- what products and convolutions on matrix units share: a job of squares, and the walk over it.
 *
 * Invariant: what a job computes of an element depends on its row of A and its column of B only.
 */
#ifndef EAGER_CPU_AMX_H
#define EAGER_CPU_AMX_H

#include <stdatomic.h>
#include <stdbool.h>

#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/gemm_amx.h"

/* Steps of k that squares walk at a time: a panel of them stays in the first cache. */
enum { WF_AMX_BLOCK = 20 };

typedef struct wf_amx_job {
    const wf_gemm_desc *d;
    int64_t steps, block; /* along k; of a block of it */
    int64_t down, across; /* squares */
    int64_t strip, group; /* squares of a task */
    int64_t strips, groups;
    int64_t in_place;      /* strips of 32 rows of A that are read where they lie */
    bool rows_first;       /* small B: a strip of A meets all of it, whole rows of C are written */
    char *a, *b;           /* the other strips of A, and B; NULL: not packed */
    float *bias;           /* [across * 32], or NULL */
    int64_t a_batch;       /* bytes of a packed A, 0 where all batches have the same */
    const int32_t *offset; /* NULL, or bytes from a row in place to each of its steps */
    const int64_t *row_at; /* NULL, or where in C each of [down * 32] rows goes; < 0: nowhere */
    _Atomic int rc;
} wf_amx_job;

/* Runs all tasks on the pool: sizes, A and B are set. Returns WF_GEMM_OK, _DONE or _NOMEM. */
int wf_amx_run(wf_amx_job *w);
/* The bias of w->d as f32, with zeros behind it up to whole squares. */
int wf_amx_widen_bias(wf_amx_job *w, size_t *bytes);

/* What every convolution on matrix units asks: bf16, channels last, one group, taps and reach within bounds. */
bool wf_amx_conv_fits(const wf_conv_desc *d);
/* Convolutions of bf16 with strides of 1, whole steps of channels and channels last on both sides; WF_GEMM_UNSUPPORTED
 * is said before anything is written. */
int wf_amx_conv_forward(const wf_conv_desc *d, const void *src, const void *weight,
                        const void *bias, void *dst);
int wf_amx_conv_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                              void *dsrc);
/* Any strides and numbers of channels. Also said, after dweight was written, where a sum is not finite: padding may
 * have met an infinity. */
int wf_amx_conv_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                void *dweight);

#endif
