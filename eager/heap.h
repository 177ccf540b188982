/*
 * eager/heap.h -- the allocator's lower layer: best fit over mapped memory. Used by alloc.c only,
 * which holds its lock around every call.
 *
 * Invariants: chunks are multiples of 1 KiB, aligned to 1 KiB, or to 2 MiB from that size on;
 * freeing needs no memory; what is mapped or given back is a 2 MiB-aligned multiple of 2 MiB, with
 * huge pages advised; what a program's own source gave goes back to it whole, and nothing else does; reserved never exceeds its cap
 * by what is mapped after the cap was set.
 */
#ifndef EAGER_HEAP_H
#define EAGER_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "eager/alloc.h"

#define WF_KIB ((size_t)1 << 10)
#define WF_HUGE_PAGE ((size_t)2 << 20)
#define WF_ALIGN_UP(x, a) (((x) + ((a)-1)) & ~(size_t)((a)-1))
#define WF_ALIGN_DOWN(x, a) ((x) & ~(size_t)((a)-1))

typedef struct wf_heap_numbers {
    int64_t free_bytes;    /* mapped and in no live chunk */
    int64_t reserved;      /* mapped */
    int64_t system_allocs; /* mappings made */
    int64_t cached_cap;    /* most free bytes to keep; set at the start */
    int64_t reserved_cap;  /* most bytes to map */
    bool (*reclaim)(
        void); /* NULL, or frees what nobody uses, before more is mapped: false if there was nothing */
} wf_heap_numbers;

extern wf_heap_numbers wf_heap;

/* What is mapped from now on comes from here; NULL: the system. It stays where it is as long as anything of it is held. */
void wf_heap_set_source(const wf_heap_source *source);
const wf_heap_source *wf_heap_source_now(void);
/* size: a class size of 1 KiB granularity. NULL when the system or the cap refuses. */
void *wf_heap_alloc(size_t size);
void wf_heap_free(void *p);
/* Gives free memory back until at most `keep` free bytes are left; returns the bytes given. */
int64_t wf_heap_trim(int64_t keep);

/* Class of a size in [1, 2^46]: multiples of 64 up to 512, then 8 classes per doubling. */
static inline unsigned wf_class_of(size_t size)
{
    if (size <= 512)
        return (unsigned)((size + 63) / 64 - 1);
    unsigned top = 63u - (unsigned)__builtin_clzll(size - 1); /* 2^top <= size - 1 */
    return (unsigned)((size - 1) >> (top - 3)) + 8 * (top - 9);
}

static inline size_t wf_class_size(unsigned c)
{
    if (c < 8)
        return (size_t)(c + 1) * 64;
    return (size_t)(c % 8 + 9) << (c / 8 + 5);
}

#endif
