/*
 * eager/kernels/update.h -- an optimiser's update of f32 elements in one loop, made from update.def.
 *
 * Tiles of the same lines cost a call a line and cover memory badly: the division of one tile does not overlap the loads
 * of the next. Here every value stays in a register.
 */
#ifndef EAGER_KERNELS_UPDATE_H
#define EAGER_KERNELS_UPDATE_H

#include "eager/kernels/kernels.h"

/* STEP is what the direction is multiplied by: minus the rate. Of AdamW DECAY multiplies the parameter, MOMENTUM is the
 * share of the gradient, BETA2 and REST2 those of old and new squares, ROOT corrects their root. */
typedef enum wf_update_scalar {
    WF_UPDATE_DECAY,
    WF_UPDATE_MOMENTUM,
    WF_UPDATE_STEP,
    WF_UPDATE_BETA2,
    WF_UPDATE_REST2,
    WF_UPDATE_ROOT,
    WF_UPDATE_EPS,
    WF_UPDATE_SCALARS
} wf_update_scalar;

/* Which lines there are. ADAMW: with or without DECAY; SGD: NESTEROV only with MOMENTUM. */
enum { WF_WITH_DECAY = 1, WF_WITH_MOMENTUM = 2, WF_WITH_NESTEROV = 4, WF_WITH_ADAMW = 8 };
enum { WF_UPDATES = 10 };

/* Elements [0, n), n a multiple of WF_UPDATE_STEPS (loops without ends are a third as long). at: P, G, and as many of S0 and
 * S1 as the update has, which do not overlap; k: wf_update_scalar. */
enum { WF_UPDATE_STEPS = 64 };
typedef void (*wf_update_fn)(float *const *at, const float *k, int64_t n);

/* [with] */
extern const wf_update_fn wf_updates_sse2[WF_UPDATES], wf_updates_avx2[WF_UPDATES],
    wf_updates_avx512[WF_UPDATES];

static inline wf_update_fn wf_update_now(unsigned with)
{
    const int isa = wf_isa();
    return (isa == WF_ISA_AVX512 ? wf_updates_avx512
            : isa == WF_ISA_AVX2 ? wf_updates_avx2
                                 : wf_updates_sse2)[with];
}

#endif
