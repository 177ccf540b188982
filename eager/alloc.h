/*
 * eager/alloc.h -- the caching allocator of CPU memory.
 *
 * Invariants: every block is 64-byte aligned; sizes are rounded up to a size class; a freed block
 * is reused before the system is asked; blocks of 2 MiB and more are 2 MiB aligned with huge pages
 * advised; any thread may free what another allocated; every request can fail and returns NULL; no more than the cap is held.
 * What a call needs at every run need not be asked for again: kernels' scratch lies on a stack of the thread's, blocks of a
 * plan wait for its next run (eager/kept.h).
 */
#ifndef EAGER_ALLOC_H
#define EAGER_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where memory comes from in place of the system: as weft_allocator. */
typedef struct wf_heap_source {
    void *(*allocate)(void *user, size_t bytes, size_t alignment);
    void (*release)(void *user, void *block, size_t bytes);
    void *user;
} wf_heap_source;

typedef struct wf_alloc_stats {
    int64_t live_bytes;     /* requested and not freed */
    int64_t peak_bytes;     /* largest live_bytes since the last reset */
    int64_t reserved_bytes; /* held from the system, live or cached */
    int64_t allocs; /* calls of wf_alloc that succeeded, and what the other ways had to ask for */
    int64_t system_allocs; /* calls that went to the system */
    int64_t mallocs;       /* calls of wf_malloc and of what is built on it */
} wf_alloc_stats;

/* size >= 0 (0 gives a unique non-NULL block). NULL when memory is exhausted or a planned failure
 * hits. */
void *wf_alloc(size_t size);
/* p from wf_alloc with the same size, or NULL. */
void wf_free(void *p, size_t size);
/* What is made and dropped again at every step: as wf_alloc, but counted only where it is not had from the thread's list of that
 * size. For wf_free. */
void *wf_object(size_t size);
/* Scratch of a kernel, given back by the same thread, mostly the latest first: from a stack that the thread keeps where it is no
 * larger than WF_SCRATCH_MOST with what is in use. NULL as above. */
enum { WF_SCRATCH_MOST = 1 << 20 };
void *wf_scratch(size_t size);
void wf_scratch_free(void *p, size_t size); /* NULL is ignored */
/* Usable size of a request: its size class. */
size_t wf_alloc_round(size_t size);
/* Returns cached blocks to the system; returns the bytes given back. */
int64_t wf_alloc_trim(void);
/* Most bytes to hold from the system, in use or cached; 0: no limit. What is over it and cached is given back at once. */
void wf_alloc_set_cap(int64_t bytes);
int64_t wf_alloc_cap(void);
/* From now on memory comes from here (a copy is kept for ever), NULL: from the system; what is cached is given back. False: no
 * memory for the copy. */
bool wf_alloc_set_source(const wf_heap_source *source);
/* Does memory come from a source that was set? */
bool wf_alloc_has_source(void);
void wf_alloc_get_stats(wf_alloc_stats *out);
void wf_alloc_reset_peak(void);
/* What the thread asked wf_alloc for in vain, once: SIZE_MAX if its last slow request got memory, or this was asked
 * already. */
size_t wf_alloc_missed(void);
/* Makes the n-th next allocation fail (and all after it if `forever`); n = 0 switches it off.
 * Tests. */
void wf_alloc_fail_after(int64_t n, int forever);
/* -- for eager/kept.c -- */
/* A block of that size of wf_alloc is not live while nobody uses it, and is again. */
void wf_alloc_idle(size_t size, int idle);
/* Does the plan of failures want a use of such a block, which asks for nothing, to fail? Counts it. */
int wf_alloc_refuses(size_t size);
/* The allocator's lock, and, under it: frees an idle block. */
void wf_alloc_lock(void);
void wf_alloc_unlock(void);
void wf_alloc_release(void *p, size_t size);
/* Most bytes that are worth keeping idle. */
int64_t wf_alloc_most_idle(void);

/* Host-side small objects (slots, shapes, nodes): same failure injection, plain malloc inside. */
void *wf_malloc(size_t size);
void *wf_realloc(void *p, size_t size);
void *wf_calloc(size_t n, size_t size); /* n * size is the caller's to keep in range */
char *wf_strdup(const char *s);
/* Where an array of *cap elements of this size has room behind its n: itself, or, twice as large (`first` from nothing),
 * where it lies then. NULL: no memory, and the array is as it was. */
void *wf_more_room(void *array, uint32_t *cap, uint32_t first, size_t size);
static inline void *wf_room(void *array, uint32_t n, uint32_t *cap, uint32_t first, size_t size)
{
    return n < *cap ? array : wf_more_room(array, cap, first, size);
}
void wf_mfree(void *p);
/* The same of an array that is made and dropped at every call: an object, for wf_free of *cap elements. */
void *wf_more_objects(void *array, uint32_t *cap, uint32_t first, size_t size);

/* Zeros 16 bytes at any address: for structs of a few lines, where a string instruction, which compilers take for a
 * memset, takes longer to start than to run. */
static inline void wf_zero16(void *p)
{
    typedef char line __attribute__((vector_size(16), aligned(1), may_alias));
    *(line *)p = (line){0};
}

#endif
