/*
 * eager/kernels/move.h -- copying bytes by registers, for the kernels of every instruction set.
 *
 * In place of memcpy where there may be many bytes: glibc's is one string instruction from 8 KiB on, which takes six times
 * as long on Zen 4 where source and result begin a little apart in their pages (glibc bug 30994).
 */
#ifndef EAGER_KERNELS_MOVE_H
#define EAGER_KERNELS_MOVE_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { WF_MOVE_BYTES = 64 };
#elif defined(__AVX2__)
enum { WF_MOVE_BYTES = 32 };
#else
enum { WF_MOVE_BYTES = 16 };
#endif
typedef char wf_move_wide __attribute__((vector_size(WF_MOVE_BYTES), aligned(1), may_alias));
typedef char wf_move_least __attribute__((vector_size(16), aligned(1), may_alias));

/* The last piece overlaps the one before. */
#define WF_MOVE_PIECE(V, at) *(V *)(d + (at)) = *(const V *)(s + (at))

static inline void wf_move(void *dst, const void *src, int64_t bytes)
{
    char *d = dst;
    const char *s = src;
    if (bytes >= WF_MOVE_BYTES) {
        WF_MOVE_PIECE(wf_move_wide, 0);
        int64_t at = WF_MOVE_BYTES - (int64_t)((uintptr_t)d % WF_MOVE_BYTES);
        for (; at + 4 * WF_MOVE_BYTES < bytes; at += 4 * WF_MOVE_BYTES) {
            WF_MOVE_PIECE(wf_move_wide, at);
            WF_MOVE_PIECE(wf_move_wide, at + WF_MOVE_BYTES);
            WF_MOVE_PIECE(wf_move_wide, at + 2 * WF_MOVE_BYTES);
            WF_MOVE_PIECE(wf_move_wide, at + 3 * WF_MOVE_BYTES);
        }
        for (; at + WF_MOVE_BYTES < bytes; at += WF_MOVE_BYTES)
            WF_MOVE_PIECE(wf_move_wide, at);
        WF_MOVE_PIECE(wf_move_wide, bytes - WF_MOVE_BYTES);
    } else if (bytes >= 16) {
        for (int64_t at = 0; at + 16 < bytes; at += 16)
            WF_MOVE_PIECE(wf_move_least, at);
        WF_MOVE_PIECE(wf_move_least, bytes - 16);
    } else {
        memcpy(d, s, (size_t)bytes);
    }
}
#undef WF_MOVE_PIECE

#endif
