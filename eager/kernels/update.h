/*
 * eager/kernels/update.h -- an optimiser's update of f32 elements in one loop, made from update.def.
 *
 * Tiles of the same lines cost a call a line and cover memory badly: the division of one tile does not overlap the loads
 * of the next. Here every value stays in a register.
 */
#ifndef EAGER_KERNELS_UPDATE_H
#define EAGER_KERNELS_UPDATE_H

#include "eager/kernels/kernels.h"

/* STEP is what the direction is multiplied by: minus the rate. DECAY: what the parameter is multiplied by if decay is
 * decoupled, else its share of the gradient. MOMENTUM: what the old direction is multiplied by, of Adam and Lion the share
 * of the gradient. BETA2 and REST2 are those of old and new squares, of SGD and Lion REST2 that of the gradient in the
 * state; ROOT corrects the squares' root. */
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

/* An update: a method and which of its lines there are. NESTEROV and DAMPENING (one of them) need MOMENTUM. */
enum {
    WF_UPDATE_SGD = 0,
    WF_UPDATE_ADAMW = 16,
    WF_UPDATE_ADAM = 32,
    WF_UPDATE_RMSPROP = 48,
    WF_UPDATE_ADAGRAD = 64,
    WF_UPDATE_LION = 80,
    WF_UPDATE_METHOD = 0xf0
};
enum {
    WF_WITH_DECAY = 1,
    WF_WITH_MOMENTUM = 2,  /* SGD, RMSPROP */
    WF_WITH_NESTEROV = 4,  /* SGD */
    WF_WITH_DAMPENING = 8, /* SGD */
    WF_WITH_AMSGRAD = 4,   /* ADAM, ADAMW */
    WF_WITH_CENTERED = 4   /* RMSPROP */
};
enum { WF_UPDATE_STATES = 3 };

/* State tensors of an update: S0, ... */
static inline int wf_update_states(unsigned with)
{
    const unsigned method = with & WF_UPDATE_METHOD;
    const int momentum = (with & WF_WITH_MOMENTUM) != 0, third = (with & WF_WITH_AMSGRAD) != 0;
    return method == WF_UPDATE_SGD                                 ? momentum
           : method == WF_UPDATE_ADAM || method == WF_UPDATE_ADAMW ? 2 + third
           : method == WF_UPDATE_RMSPROP                           ? 1 + momentum + third
                                                                   : 1;
}

/* Elements [0, n), n a multiple of WF_UPDATE_STEPS (loops without ends are a third as long). at: P, G and the states,
 * which do not overlap; k: wf_update_scalar. */
enum { WF_UPDATE_STEPS = 64 };
typedef void (*wf_update_fn)(float *const *at, const float *k, int64_t n);

/* Those that people train large models with have a loop; the others run as tile programs. */
#define WF_UPDATE_LOOPS(X)                                                                         \
    X(sgd, WF_UPDATE_SGD)                                                                          \
    X(sgd_decay, WF_UPDATE_SGD | WF_WITH_DECAY)                                                    \
    X(momentum, WF_UPDATE_SGD | WF_WITH_MOMENTUM)                                                  \
    X(momentum_decay, WF_UPDATE_SGD | WF_WITH_MOMENTUM | WF_WITH_DECAY)                            \
    X(nesterov, WF_UPDATE_SGD | WF_WITH_MOMENTUM | WF_WITH_NESTEROV)                               \
    X(nesterov_decay, WF_UPDATE_SGD | WF_WITH_MOMENTUM | WF_WITH_NESTEROV | WF_WITH_DECAY)         \
    X(adam, WF_UPDATE_ADAM)                                                                        \
    X(adam_decay, WF_UPDATE_ADAM | WF_WITH_DECAY)                                                  \
    X(adamw_decay, WF_UPDATE_ADAMW | WF_WITH_DECAY)                                                \
    X(rmsprop, WF_UPDATE_RMSPROP)                                                                  \
    X(rmsprop_momentum, WF_UPDATE_RMSPROP | WF_WITH_MOMENTUM)                                      \
    X(adagrad, WF_UPDATE_ADAGRAD)                                                                  \
    X(lion, WF_UPDATE_LION)                                                                        \
    X(lion_decay, WF_UPDATE_LION | WF_WITH_DECAY)
#define WF_ONE(name, with) +1
enum { WF_UPDATES = 0 WF_UPDATE_LOOPS(WF_ONE) };
#undef WF_ONE

extern const wf_update_fn wf_updates_sse2[WF_UPDATES], wf_updates_avx2[WF_UPDATES],
    wf_updates_avx512[WF_UPDATES];

/* NULL: it has no loop. */
static inline wf_update_fn wf_update_now(unsigned with)
{
#define WF_ONE(name, with) with,
    static const uint8_t all[WF_UPDATES] = {WF_UPDATE_LOOPS(WF_ONE)};
#undef WF_ONE
    const int isa = wf_isa();
    with = with == WF_UPDATE_ADAMW ? WF_UPDATE_ADAM : with; /* without decay the same */
    for (int i = 0; i < WF_UPDATES; i++) {
        if (all[i] == with) {
            return (isa == WF_ISA_AVX512 ? wf_updates_avx512
                    : isa == WF_ISA_AVX2 ? wf_updates_avx2
                                         : wf_updates_sse2)[i];
        }
    }
    return NULL;
}

#endif
