/*
 * eager/cpuid.c -- instruction set detection.
 *
 * __builtin_cpu_supports of the levels checks XCR0, which is the operating system's part.
 */
#include "eager/cpuid.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "eager/env.h"

static const char *const names[WF_NISA] = {
    [WF_ISA_SSE2] = "sse2",
    [WF_ISA_AVX2] = "avx2",
    [WF_ISA_AVX512] = "avx512",
};

_Atomic int wf_isa_level = -1;

static int detect(void)
{
    int level = WF_ISA_SSE2;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v3"))
        level = WF_ISA_AVX2;
#ifndef WF_WITHOUT_AVX512 /* sanitized builds, made where it would not run */
    if (__builtin_cpu_supports("x86-64-v4"))
        level = WF_ISA_AVX512;
#endif
#endif
    for (int i = 0; i < level; i++)
        if (strcmp(wf_env()->WEFT_ISA, names[i]) == 0)
            return i;
    return level;
}

int wf_isa_detect(void)
{
    int none = -1, level = detect();
    /* Two first callers detect the same; a wf_set_isa in between must not be undone. */
    return atomic_compare_exchange_strong(&wf_isa_level, &none, level) ? level : none;
}

int wf_set_isa(int level)
{
    int most = detect();
    level = level < WF_ISA_SSE2 ? WF_ISA_SSE2 : level > most ? most : level;
    atomic_store_explicit(&wf_isa_level, level, memory_order_release);
    return level;
}

_Atomic int wf_amd_maker = -1;

bool wf_amd_detect(void)
{
    int is = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    is = __builtin_cpu_is("amd") != 0;
    is += is && __builtin_cpu_supports("avx512vp2intersect"); /* which no earlier one has */
#endif
    wf_set_amd(is);
    return is != 0;
}

void wf_set_amd(int amd)
{
    atomic_store_explicit(&wf_amd_maker, amd, memory_order_relaxed);
}

bool wf_bf16_pairs(void)
{
#if defined(__x86_64__)
    return wf_isa() == WF_ISA_AVX512 && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

static bool amx;
static pthread_once_t amx_once = PTHREAD_ONCE_INIT;

/* The kernel lets a process use the tiles that asks for them: ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA. */
static void detect_amx(void)
{
#if defined(__x86_64__)
    enum {
        REQ_XCOMP_PERM = 0x1023,
        XTILEDATA = 18,
        BF16_OF_7 = 22,
        TILE_OF_7 = 24,
        BF16_OF_7_1 = 5
    };
    unsigned a, b, c, d, wide;
    if (detect() < WF_ISA_AVX512 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        !(d >> BF16_OF_7 & 1) || !(d >> TILE_OF_7 & 1) ||
        !__get_cpuid_count(7, 1, &wide, &b, &c, &d) || !(wide >> BF16_OF_7_1 & 1))
        return;
    amx = syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
#endif
}

bool wf_amx(void)
{
    pthread_once(&amx_once, detect_amx);
    return amx;
}

const char *wf_isa_name(int level)
{
    return level >= 0 && level < WF_NISA ? names[level] : "?";
}
