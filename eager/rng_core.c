/*
 * eager/rng_core.c -- chooses the kernels of the instruction set and prepares parameters.
 */
#include "eager/rng_core.h"

#include "eager/cpuid.h"

static const wf_rng_kernels *kernels(void)
{
    static const wf_rng_kernels *const tables[WF_NISA] = {
        [WF_ISA_SSE2] = &wf_rng_kernels_sse2,
        [WF_ISA_AVX2] = &wf_rng_kernels_avx2,
        [WF_ISA_AVX512] = &wf_rng_kernels_avx512,
    };
    return tables[wf_isa()];
}

uint64_t wf_rng_blocks(wf_rng_kind kind, uint64_t n)
{
    switch (kind) {
    case WF_RNG_UNIFORM_F32:
    case WF_RNG_NORMAL_F32:
    case WF_RNG_BERNOULLI:
        return n / 4 + (n % 4 != 0);
    case WF_RNG_UNIFORM_F64:
    case WF_RNG_NORMAL_F64:
        return n / 2 + n % 2;
    case WF_RNG_RANDINT:
        return n;
    }
    return n;
}

void wf_fill_uniform_f32(float *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset)
{
    kernels()->uniform_f32(dst, begin, n, seed, offset);
}

void wf_fill_uniform_f64(double *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset)
{
    kernels()->uniform_f64(dst, begin, n, seed, offset);
}

void wf_fill_normal_f32(float *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset)
{
    kernels()->normal_f32(dst, begin, n, seed, offset);
}

void wf_fill_normal_f64(double *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset)
{
    kernels()->normal_f64(dst, begin, n, seed, offset);
}

void wf_fill_bernoulli(uint8_t *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset,
                       double p)
{
    /* k * 2^-24 < p exactly when k < ceil(p * 2^24); the product is exact */
    uint32_t threshold = 0;
    if (p >= 1)
        threshold = 1u << 24;
    else if (p > 0)
        threshold = (uint32_t)__builtin_ceil(p * 0x1p24);
    kernels()->bernoulli(dst, begin, n, seed, offset, threshold);
}

void wf_fill_randint(int64_t *dst, int64_t begin, int64_t n, uint64_t seed, uint64_t offset,
                     int64_t low, int64_t high)
{
    uint64_t range = low < high ? (uint64_t)high - (uint64_t)low : 1;
    kernels()->randint(dst, begin, n, seed, offset, (uint64_t)low, range);
}
