/*
 * eager/rng_core.h -- fills of random numbers over any part of a draw.
 *
 * Invariants: element i of a draw depends on (seed, offset, i) and the distribution's parameters
 * alone (jit/ir/philox.h says how), so a range may be cut anywhere, by any thread or tile, with the
 * same bits on every instruction set. A draw of n elements consumes wf_rng_blocks(kind, n) counter
 * steps: the next draw of that generator starts at offset + that, and no word is used twice.
 *
 * Every fill writes elements begin .. begin + n - 1 of the draw to dst[0 .. n - 1]; begin >= 0.
 */
#ifndef EAGER_RNG_CORE_H
#define EAGER_RNG_CORE_H

#include <stdint.h>

typedef enum wf_rng_kind {
    WF_RNG_UNIFORM_F32,
    WF_RNG_UNIFORM_F64,
    WF_RNG_NORMAL_F32,
    WF_RNG_NORMAL_F64,
    WF_RNG_BERNOULLI,
    WF_RNG_RANDINT,
} wf_rng_kind;

uint64_t wf_rng_blocks(wf_rng_kind kind, uint64_t n);

/* [0, 1), multiples of 2^-24 */
void wf_fill_uniform_f32(float *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset);
/* [0, 1), multiples of 2^-53 */
void wf_fill_uniform_f64(double *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset);
/* mean 0, deviation 1; |z| < 6.6 */
void wf_fill_normal_f32(float *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset);
/* mean 0, deviation 1; |z| < 9.4 */
void wf_fill_normal_f64(double *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset);
/* 1 where the f32 uniform of that element is below p, else 0: P(1) is p rounded up to a multiple of
 * 2^-24, exact at p <= 0 (or NaN: all 0) and p >= 1. */
void wf_fill_bernoulli(uint8_t *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset,
                       double p);
/* Integers of [low, high), each with a chance that differs from the ideal by less than 2^-64 of it;
 * low >= high gives low. */
void wf_fill_randint(int64_t *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset,
                     int64_t low, int64_t high);

/* One table per instruction set, made by eager/kernels/rng.inc.c. */
typedef struct wf_rng_kernels {
    void (*uniform_f32)(float *, int64_t, int64_t, uint64_t, uint64_t);
    void (*uniform_f64)(double *, int64_t, int64_t, uint64_t, uint64_t);
    void (*normal_f32)(float *, int64_t, int64_t, uint64_t, uint64_t);
    void (*normal_f64)(double *, int64_t, int64_t, uint64_t, uint64_t);
    /* threshold: 1 where the word's top 24 bits are below it */
    void (*bernoulli)(uint8_t *, int64_t, int64_t, uint64_t, uint64_t, uint32_t threshold);
    /* range: number of values, 0 for 2^64 */
    void (*randint)(int64_t *, int64_t, int64_t, uint64_t, uint64_t, uint64_t low, uint64_t range);
} wf_rng_kernels;

extern const wf_rng_kernels wf_rng_kernels_sse2, wf_rng_kernels_avx2, wf_rng_kernels_avx512;

#endif
