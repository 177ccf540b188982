/*
 * eager/cpuid.h -- which of the instruction sets that kernels are compiled for this machine runs.
 *
 * Invariants: levels are ordered, a level implies those below it; the answer includes the operating
 * system's support for the registers; bits of results never depend on it.
 */
#ifndef EAGER_CPUID_H
#define EAGER_CPUID_H

#include <stdatomic.h>
#include <stdbool.h>

enum {
    WF_ISA_SSE2,   /* x86-64: the baseline, correct and untimed */
    WF_ISA_AVX2,   /* x86-64-v3: AVX2, FMA, F16C, BMI */
    WF_ISA_AVX512, /* x86-64-v4: AVX-512 F, BW, CD, DQ, VL */
    WF_NISA
};

/* The level in use, -1 before the first question. */
extern _Atomic int wf_isa_level;
int wf_isa_detect(void); /* the slow path of wf_isa */
/* Level in use: the machine's, capped by WEFT_ISA and by wf_set_isa. Detected once. */
static inline int wf_isa(void)
{
    const int level = atomic_load_explicit(&wf_isa_level, memory_order_acquire);
    return __builtin_expect(level >= 0, 1) ? level : wf_isa_detect();
}
/* Lowers the level (tests); a level above the machine's gives the machine's. Returns the level now
 * in use. Call it while no kernel runs. */
int wf_set_isa(int level);
/* Whether matrix units multiply bf16 (AMX): the machine has them, the system lets this process use them, and
 * WEFT_ISA does not ask for less than avx512. Detected once; wf_set_isa does not change it. */
bool wf_amx(void);
/* Whether vectors multiply pairs of bf16 (AVX512_BF16), at the level in use. */
bool wf_bf16_pairs(void);
/* 0: another maker's processor, 1: AMD's, 2: AMD's from Zen 5 on, -1 before the first question. */
extern _Atomic int wf_amd_maker;
bool wf_amd_detect(void); /* the slow path of wf_amd */
/* Whether AMD made the processor: measured on Zen 4, its hardware fetches far ahead of a stream or two that run on from page
 * to page, and of little else, and what is asked for by hand comes sooner to the second cache than to the first one, which
 * waits for few lines at once. Ways of walking memory are chosen by it, never bits. Detected once. */
static inline bool wf_amd(void)
{
    const int amd = atomic_load_explicit(&wf_amd_maker, memory_order_relaxed);
    return __builtin_expect(amd >= 0, 1) ? amd != 0 : wf_amd_detect();
}
/* The same of Zen 5 and later: a first cache of 48 KiB, and hardware that fetches two bytes an element no faster than four. It goes by
 * the instruction that loads: one that reads many rows in turn is not foreseen, one for each row is. */
static inline bool wf_amd_zen5(void)
{
    return wf_amd() && atomic_load_explicit(&wf_amd_maker, memory_order_relaxed) > 1;
}
/* Says which ways to take, a value of wf_amd_maker (tests of all on one machine). Call it while no kernel runs. */
void wf_set_amd(int amd);
/* "sse2", "avx2", "avx512" */
const char *wf_isa_name(int level);

#endif
