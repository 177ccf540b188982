/*
 * jit/ir/mix.h -- hashes of words, for tables of this process: not of what is kept on disk, and not against anybody's malice.
 */
#ifndef JIT_IR_MIX_H
#define JIT_IR_MIX_H

#include <stdint.h>

/* The hash h of what came before, and v: a product by 2^64 over the golden ratio (Knuth, 6.4), its upper bits brought down. */
static inline uint64_t wf_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static inline uint64_t wf_mix_words(const uint64_t *w, int n)
{
    uint64_t h = 0;
    for (int i = 0; i < n; i++) {
        h = wf_mix(h, w[i]);
    }
    return h;
}

#endif
