/*
 * eager/cuda/cache.h -- the caching allocator's books: which bytes of the device are whose.
 *
 * Pure: it follows no address, knows no driver and takes no lock. What is beneath comes as a table of
 * functions (memory.c has the CUDA one, tests a recording one), and the caller sees to it that one thread
 * is inside at a time.
 *
 * Invariants
 *  - A size is rounded up to 512 bytes. Requests of up to 1 MiB and larger ones never share a segment, nor do
 *    those that last beyond the step that makes them (gradients of parameters) and those that do not.
 *  - Every chunk belongs to the pool of one key (a stream). A freed chunk can be handed out again to the
 *    same key at once: the stream runs in order. What other streams did with it is named when it is freed
 *    (marks), and `order` is called for each before the chunk is handed out again.
 *  - Neighbouring free chunks are always one chunk. The chunk handed out is the smallest that fits, the
 *    lowest of equals: placement depends on what is free and not on how it came to be. What a step frees
 *    before it ends leaves its pool as it was, so the next step finds the same places; what lasts is made
 *    when its predecessors are gone, in a pool of its own: a step that repeats itself asks the driver for
 *    nothing the second time. (In one pool gradients would lie where activations let them, elsewhere in
 *    each step, and the activations of the next step around them.) The price: free memory of what lasts is
 *    no room for what does not, nor the other way round, until a request that the driver or the cap refuses
 *    has all pools trimmed. So it is never why memory runs out, but a step that drops its gradients before
 *    the next forward pass holds as much as one that drops them behind it. (Moving it when a pool grows
 *    would have the next backward pass ask the driver, and wait, for what it had.)
 *  - Freeing needs no memory and cannot fail.
 *
 * A pool grows in one of two ways. Expandable: a range of addresses larger than the device's memory is
 * reserved once, and memory is mapped into it where it is needed, so that growing extends the last free
 * chunk; what is unmapped by a trim leaves a hole, which is filled again before the end is extended.
 * Otherwise: segments of 2 MiB (small), 20 MiB (up to 10 MiB) or the size itself, rounded up to 2 MiB.
 */
#ifndef EAGER_CUDA_CACHE_H
#define EAGER_CUDA_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WF_CACHE_MARKS = 4 };
#define WF_CACHE_ROUND ((uint64_t)512)
#define WF_CACHE_VECTOR ((uint64_t)16)
#define WF_CACHE_SMALL ((uint64_t)1 << 20)

/* Work of another stream that has to be over: the caller's numbers. */
typedef struct wf_cache_mark {
    int stream;
    uint64_t work;
} wf_cache_mark;

/* What is beneath. Functions that return int return 0, or an error that wf_cache_alloc passes on. */
typedef struct wf_cache_driver {
    void *self;
    /* Expandable segments; reserve NULL: there are none. Sizes are multiples of a granule and so are
     * addresses; any granules of what was mapped may be unmapped. */
    int (*reserve)(void *self, uint64_t size, uint64_t *address);
    void (*unreserve)(void *self, uint64_t address, uint64_t size);
    int (*map)(void *self, uint64_t address, uint64_t size, uint64_t granule);
    void (*unmap)(void *self, uint64_t address, uint64_t size, uint64_t granule);
    int (*segment)(void *self, uint64_t size, uint64_t *address);
    void (*segment_free)(void *self, uint64_t address, uint64_t size);
    /* Waits until nothing is being done with memory that is free; before unmap and segment_free. */
    void (*idle)(void *self);
    /* The key's free memory must stay: a trim of all pools passes over it. NULL: of none. */
    bool (*kept)(void *self, int key);
    /* The next work of the key's stream comes behind the mark. */
    int (*order)(void *self, int key, wf_cache_mark mark);
} wf_cache_driver;

typedef struct wf_cache_rules {
    uint64_t reserve;       /* bytes of addresses for an expandable pool */
    uint64_t small_granule; /* bytes mapped at a time: a power of two, 2 MiB or more */
    uint64_t large_granule;
    bool
        single; /* a segment for each block, of its size up to whole vectors, freed with it: nothing is cached */
} wf_cache_rules;

typedef struct wf_cache wf_cache;
typedef struct wf_cache_chunk wf_cache_chunk;

/* Errors of the allocator's own; the driver's are positive. */
enum { WF_CACHE_CAP = -1, WF_CACHE_NO_HOST_MEMORY = -2, WF_CACHE_TOO_LARGE = -3 };

typedef struct wf_cache_stats {
    int64_t live_bytes, peak_bytes; /* handed out, rounded; the largest since the last reset */
    int64_t asked_bytes;            /* handed out, as asked for */
    int64_t reserved_bytes, peak_reserved_bytes;
    int64_t live_chunks;
    int64_t allocs, frees;
    int64_t driver_allocs, driver_frees; /* calls of map or segment, of unmap or segment_free */
    int64_t retries;                     /* trims because there was no more */
    int64_t failures;
    int64_t orders;       /* waits for other streams at reuse */
    int64_t largest_free; /* filled by wf_cache_get_stats */
} wf_cache_stats;

wf_cache *wf_cache_new(const wf_cache_driver *driver, const wf_cache_rules *rules);
/* Gives everything back; nothing may be live. NULL is ignored. */
void wf_cache_delete(wf_cache *c);
/* 0 and *out, or an error. lasting: it is going to outlive the step (a guess: it decides the place only). */
int wf_cache_alloc(wf_cache *c, int key, uint64_t size, bool lasting, wf_cache_chunk **out);
/* after[n]: work of other streams that is to be over before the chunk is used again. */
void wf_cache_free(wf_cache *c, wf_cache_chunk *chunk, int n, const wf_cache_mark *after);
uint64_t wf_cache_address(const wf_cache_chunk *chunk);
/* Gives free memory back to the driver; key < 0: of all pools. Returns the bytes. */
int64_t wf_cache_trim(wf_cache *c, int key);
/* Most bytes to hold; 0: no limit. What is held beyond it now is not given back by this. */
void wf_cache_set_cap(wf_cache *c, int64_t cap);
void wf_cache_get_stats(const wf_cache *c, wf_cache_stats *out);
void wf_cache_reset_peak(wf_cache *c);
/* Calls fn for every chunk, by pool, segment and address. state: 0 free, 1 live, 2 not mapped. */
typedef void (*wf_cache_walk_fn)(void *arg, int key, uint64_t segment, uint64_t address,
                                 uint64_t size, int state);
void wf_cache_walk(const wf_cache *c, wf_cache_walk_fn fn, void *arg);

#endif
