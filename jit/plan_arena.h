/*
 * jit/plan_arena.h -- blocks of bytes with lifetimes, packed into as little memory as can be.
 *
 * Places are multiples of WF_ARENA_ALIGN, times are launches of a plan, both ends of a lifetime included.
 */
#ifndef JIT_PLAN_ARENA_H
#define JIT_PLAN_ARENA_H

#include <stdbool.h>
#include <stdint.h>

enum { WF_ARENA_ALIGN = 64 };
#define WF_NO_BIN UINT32_MAX /* in the arena */
#define WF_OWN_BIN                                                                                 \
    (UINT32_MAX - 1u) /* in memory of its own, there from its first launch to its last */

typedef struct wf_arena_block {
    uint32_t first, last; /* launches */
    uint32_t taken;       /* the planner's: the step that took it over in place */
    bool alone;           /* is to have memory of its own */
    uint32_t bin;         /* id of the bin it is in; WF_NO_BIN, WF_OWN_BIN */
    int64_t bytes, size;  /* and with padding */
    int64_t at;
    struct wf_arena_block *next; /* another one in the same memory */
} wf_arena_block;

/* Memory of a result, needed for it from launch `until` on. It is there from launch `from` on, at which the first block
 * in it begins. */
typedef struct wf_bin {
    int64_t bytes;
    uint32_t until, from, id;
} wf_bin;

typedef struct wf_bins {
    wf_bin *v;
    uint32_t n;
} wf_bins;

typedef struct wf_arena {
    int64_t bytes;        /* of the arena */
    uint32_t first, last; /* launches from and to which it holds anything */
    int64_t peak;         /* the most that is there at a launch: arena, blocks of their own, bins */
    int64_t
        bound; /* the most that lives at a launch, bins from `until` on: nothing does with less */
} wf_arena;

static inline int64_t wf_arena_padded(int64_t bytes)
{
    return bytes == 0 ? WF_ARENA_ALIGN
                      : (bytes + WF_ARENA_ALIGN - 1) / WF_ARENA_ALIGN * WF_ARENA_ALIGN;
}

/* Fills in bin and at of n blocks, which come in ascending order of `first`, and `from` of the bins, which it sorts. 0 or
 * WEFT_ENOMEM. */
int wf_arena_place(wf_arena_block *v, uint32_t n, wf_bin *bin, uint32_t nbins, uint32_t launches,
                   wf_arena *out);

#endif
