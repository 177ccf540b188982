/*
 * tests/jit/clock_support.h -- a clock of the test's own, by which the faster of two ways is found: a busy machine has no say.
 *
 * Each look at it takes 100 ns, and nothing else takes any time but what is told to.
 */
#ifndef TESTS_JIT_CLOCK_SUPPORT_H
#define TESTS_JIT_CLOCK_SUPPORT_H

#include <stdatomic.h>

#include "jit/plan_int.h"

static _Atomic int64_t planted_ns;

static inline int64_t planted_clock(void)
{
    return atomic_fetch_add(&planted_ns, 100) + 100;
}

static inline void plant_clock(void)
{
    wf_plan_plant_clock(planted_clock);
}

static inline void take_us(int64_t us)
{
    atomic_fetch_add(&planted_ns, 1000 * us);
}

#endif
