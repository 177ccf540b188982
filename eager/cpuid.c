/*
 * eager/cpuid.c -- instruction set detection.
 *
 * __builtin_cpu_supports of the levels checks XCR0, which is the operating system's part.
 */
#include "eager/cpuid.h"

#include <stdatomic.h>
#include <string.h>

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
    if (__builtin_cpu_supports("x86-64-v4"))
        level = WF_ISA_AVX512;
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

const char *wf_isa_name(int level)
{
    return level >= 0 && level < WF_NISA ? names[level] : "?";
}
