/*
 * eager/kernels/rng.inc.c -- random fills, compiled per instruction set (WF_ISA = sse2, avx2, avx512).
 *
 * Words come in batches of BLOCKS blocks in the order of elements; loops that the compiler
 * vectorises turn them into numbers by the bodies of philox.h. A range that starts or ends inside a
 * batch goes through a local buffer.
 *
 * The rounds are philox_round of philox.h written with vectors of 64-bit lanes, one word in the
 * low half of each lane and anything in the upper: the widening multiply ignores upper halves, so a
 * round is two multiplies, two shifts and two xors without a shuffle. (gcc makes five times slower code
 * of the scalar body.) tests/unit/test_platform.c holds the two against each other.
 */
#include "eager/rng_core.h"

#include <immintrin.h>
#include <string.h>

#include "jit/ir/dict_c.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h"
#include "jit/ir/philox.h"

#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)

#if defined(__AVX512F__)
enum { LANES = 8, GROUP = 4 };
#define MUL_LOW_HALVES(a, b) ((vec)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
static const uint64_t iota[LANES] = {0, 1, 2, 3, 4, 5, 6, 7};
#elif defined(__AVX2__)
enum { LANES = 4, GROUP = 3 };
#define MUL_LOW_HALVES(a, b) ((vec)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
static const uint64_t iota[LANES] = {0, 1, 2, 3};
#else
enum { LANES = 2, GROUP = 3 };
#define MUL_LOW_HALVES(a, b) ((vec)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 2)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 1, 3)
static const uint64_t iota[LANES] = {0, 1};
#endif
typedef uint64_t vec __attribute__((vector_size(LANES * 8)));

/* GROUP vectors of blocks side by side hide the multiply's latency; two groups make a batch. */
enum {
    GROUP_BLOCKS = GROUP * LANES,
    BLOCKS = GROUP_BLOCKS * (32 / GROUP_BLOCKS),
    WORDS = 4 * BLOCKS
};

/* Words of GROUP_BLOCKS blocks from `block` on, two to a 64-bit number, in order. */
static inline __attribute__((always_inline)) void draw_group(uint64_t *q, uint64_t block,
                                                             uint64_t seed)
{
    const vec zero = {0}, low = zero + 0xFFFFFFFFu;
    const vec m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    vec first, c0[GROUP], c1[GROUP], c2[GROUP], c3[GROUP];
    memcpy(&first, iota, sizeof first);
    for (unsigned g = 0; g < GROUP; g++) {
        c0[g] = first + (block + g * LANES);
        c1[g] = c0[g] >> 32;
        c2[g] = c3[g] = zero;
    }
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
    for (unsigned round = 0; round < 10; round++) {
        const vec v0 = zero + k0, v1 = zero + k1;
        for (unsigned g = 0; g < GROUP; g++) {
            const vec a = MUL_LOW_HALVES(m0, c0[g]), b = MUL_LOW_HALVES(m1, c2[g]);
            c0[g] = (b >> 32) ^ c1[g] ^ v0;
            c2[g] = (a >> 32) ^ c3[g] ^ v1;
            c1[g] = b;
            c3[g] = a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (unsigned g = 0; g < GROUP; g++) {
        const vec x = (c0[g] & low) | (c1[g] << 32), y = (c2[g] & low) | (c3[g] << 32);
        const vec lo = ZIP_LOW(x, y), hi = ZIP_HIGH(x, y);
        memcpy(q + 2 * LANES * g, &lo, sizeof lo);
        memcpy(q + 2 * LANES * g + LANES, &hi, sizeof hi);
    }
}

static void draw(uint32_t *w, uint64_t block, uint64_t seed)
{
    _Alignas(64) uint64_t q[WORDS / 2];
    for (unsigned j = 0; j < BLOCKS; j += GROUP_BLOCKS)
        draw_group(q + 2 * j, block + j, seed);
    memcpy(w, q, sizeof q); /* little-endian: the low half is the earlier word */
}

/* Defines `name`; TO(to, w) turns the WORDS words w into the PER * BLOCKS elements of a batch and
 * may use the extra parameters. */
#define FILL(name, type, PER, TO, ...)                                                             \
    static void name(type *dst, int64_t begin, int64_t n, uint64_t seed,                           \
                     uint64_t offset __VA_OPT__(, ) __VA_ARGS__)                                   \
    {                                                                                              \
        enum { SIZE = (PER)*BLOCKS };                                                              \
        int64_t end = begin + n;                                                                   \
        for (int64_t at = begin - begin % (PER); at < end; at += SIZE) {                           \
            _Alignas(64) uint32_t w[WORDS];                                                        \
            draw(w, offset + (uint64_t)at / (PER), seed);                                          \
            if (at >= begin && end - at >= SIZE) {                                                 \
                type *to = dst + (at - begin);                                                     \
                TO(to, w);                                                                         \
            } else {                                                                               \
                type to[SIZE];                                                                     \
                int64_t lo = at < begin ? begin - at : 0, hi = end - at < SIZE ? end - at : SIZE;  \
                TO(to, w);                                                                         \
                memcpy(dst + (at + lo - begin), to + lo, (size_t)(hi - lo) * sizeof(type));        \
            }                                                                                      \
        }                                                                                          \
    }
#define EACH(n) for (unsigned j = 0; j < (n); j++)

#define UNIFORM_F32(to, w) EACH(WORDS)(to)[j] = uniform_f32((w)[j])
#define UNIFORM_F64(to, w) EACH(WORDS / 2)(to)[j] = uniform_f64((w)[2 * j], (w)[2 * j + 1])
#define NORMAL_F32(to, w)                                                                          \
    EACH(WORDS / 2) normal_f32((w)[2 * j], (w)[2 * j + 1], &(to)[2 * j], &(to)[2 * j + 1])
#define NORMAL_F64(to, w)                                                                          \
    EACH(BLOCKS)                                                                                   \
    normal_f64((w)[4 * j], (w)[4 * j + 1], (w)[4 * j + 2], (w)[4 * j + 3], &(to)[2 * j],           \
               &(to)[2 * j + 1])
#define BERNOULLI(to, w) EACH(WORDS)(to)[j] = (w)[j] >> 8 < threshold
#define RANDINT(to, w)                                                                             \
    EACH(BLOCKS)                                                                                   \
    (to)[j] = (int64_t)randint_u64((w)[4 * j], (w)[4 * j + 1], (w)[4 * j + 2], (w)[4 * j + 3],     \
                                   low, range)

FILL(fill_uniform_f32, float, 4, UNIFORM_F32)
FILL(fill_uniform_f64, double, 2, UNIFORM_F64)
FILL(fill_normal_f32, float, 4, NORMAL_F32)
FILL(fill_normal_f64, double, 2, NORMAL_F64)
FILL(fill_bernoulli, uint8_t, 4, BERNOULLI, uint32_t threshold)
FILL(fill_randint, int64_t, 1, RANDINT, uint64_t low, uint64_t range)

const wf_rng_kernels PASTE(wf_rng_kernels, WF_ISA) = {
    .uniform_f32 = fill_uniform_f32,
    .uniform_f64 = fill_uniform_f64,
    .normal_f32 = fill_normal_f32,
    .normal_f64 = fill_normal_f64,
    .bernoulli = fill_bernoulli,
    .randint = fill_randint,
};
