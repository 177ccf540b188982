/*
 * jit/ir/kir_random.h -- random elements as kernel IR.
 */
#ifndef JIT_IR_KIR_RANDOM_H
#define JIT_IR_KIR_RANDOM_H

#include "jit/ir/kir.h"

typedef enum wf_kir_draw {
    WF_DRAW_UNIFORM,   /* p low, q high, of the result's type */
    WF_DRAW_NORMAL,    /* p mean, q deviation, of the result's type */
    WF_DRAW_BERNOULLI, /* p u32: threshold of the top 24 bits; u8 */
    WF_DRAW_INTEGER    /* p u64: lowest, q u64: how many (0: 2^64); i64 */
} wf_kir_draw;

/* Element `number` (i64) of a draw, f64 if wide, else f32. arg: seed and offset (u64), p, q; a q that is not
 * named above is any value. The bits of eager/rng_core.h. */
wf_kref wf_kir_random(wf_kir *k, wf_kir_draw draw, bool wide, wf_kref number, const wf_kref *arg);

#endif
