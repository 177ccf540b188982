/*
 * eager/kept.c -- blocks that wait for their next use; see kept.h.
 *
 * All that threads share of a place is one word: the address of the block that waits, whether the place is closed, and how many
 * of its blocks are in use. Each take and give is one compare-and-swap of it.
 *
 * Requirement on whoever edits next: the list of places, which the allocator walks when it wants their blocks, is guarded by
 * the allocator's lock; nothing here asks for memory under it.
 */
#include "eager/kept.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "eager/alloc.h"
#include "eager/heap.h"

#if defined(__SANITIZE_ADDRESS__)
#define KEPT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEPT_ASAN 1
#elif __has_feature(memory_sanitizer)
#define KEPT_MSAN 1
#include <sanitizer/msan_interface.h>
#endif
#endif
#ifdef KEPT_ASAN
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#include <search.h>

/* An address in our word is none to the search for leaks: it finds the blocks that wait in this tree. */
static void *waiting;
static pthread_mutex_t waiting_lock = PTHREAD_MUTEX_INITIALIZER;

static int by_address(const void *a, const void *b)
{
    return ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

/* Who reads a tensor after its end is told. */
static void hide(void *p, size_t n)
{
    pthread_mutex_lock(&waiting_lock);
    if (!tsearch(p, &waiting, by_address)) {
        __lsan_ignore_object(p);
    }
    pthread_mutex_unlock(&waiting_lock);
    __asan_poison_memory_region(p, n);
}

static void show(void *p, size_t n)
{
    pthread_mutex_lock(&waiting_lock);
    tdelete(p, &waiting, by_address);
    pthread_mutex_unlock(&waiting_lock);
    __asan_unpoison_memory_region(p, n);
}
#else
static void hide(void *p, size_t n)
{
    (void)p, (void)n;
}

/* What the block held is nobody's any more. */
static void show(void *p, size_t n)
{
#ifdef KEPT_MSAN
    __msan_allocated_memory(p, n);
#else
    (void)p, (void)n;
#endif
}
#endif

/* An address has 47 bits, the last six of them 0: it lies above the other two. */
#define ADDRESS_SHIFT 16
#define CLOSED (UINT64_C(1) << 21)
#define USES (CLOSED - 1) /* so many: they are not counted any more, and the place stays */

struct wf_kept {
    _Atomic uint64_t state;
    size_t size;
    wf_kept *prev, *next;
};

static wf_kept *places;
static int64_t bytes; /* of all places */

static void *block_in(uint64_t state)
{
    return (void *)(uintptr_t)(state >> (ADDRESS_SHIFT + 6) << 6);
}

static uint64_t without_block(uint64_t state)
{
    return state & (CLOSED | USES);
}

/* One use less. */
static uint64_t without_use(uint64_t state)
{
    return (state & USES) == USES ? state : state - 1;
}

/* No block waits in k any more, which is closed or not: what its word was. */
static uint64_t empty(wf_kept *k, uint64_t closed)
{
    uint64_t s = atomic_load_explicit(&k->state, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&k->state, &s, without_block(s) | closed,
                                                  memory_order_acq_rel, memory_order_relaxed)) {
    }
    return s;
}

/* Frees all blocks that wait. Under the allocator's lock. */
static bool reclaim(void)
{
    bool any = false;
    for (wf_kept *k = places; k; k = k->next) {
        void *p = block_in(empty(k, 0));
        if (p) {
            show(p, k->size);
            wf_alloc_release(p, k->size);
            any = true;
        }
    }
    return any;
}

wf_kept *wf_kept_new(size_t size)
{
    wf_kept *k = size >= WF_KEPT_FROM ? wf_malloc(sizeof *k) : NULL;
    if (!k) {
        return NULL;
    }
    k->size = size;
    k->prev = NULL;
    atomic_init(&k->state, 0);
    wf_alloc_lock();
    const bool fits = (int64_t)size <= wf_alloc_most_idle() - bytes;
    if (fits) {
        bytes += (int64_t)size;
        k->next = places;
        if (places) {
            places->prev = k;
        }
        places = k;
        wf_heap.reclaim = reclaim;
    }
    wf_alloc_unlock();
    if (!fits) {
        wf_mfree(k);
    }
    return fits ? k : NULL;
}

void wf_kept_close(wf_kept *k)
{
    if (!k) {
        return;
    }
    wf_alloc_lock();
    bytes -= (int64_t)k->size;
    *(k->prev ? &k->prev->next : &places) = k->next;
    if (k->next) {
        k->next->prev = k->prev;
    }
    wf_alloc_unlock();
    const size_t size = k->size;
    const uint64_t s = empty(k, CLOSED);
    void *p = block_in(s);
    if ((s & USES) == 0) { /* else the last of them frees it */
        wf_mfree(k);
    }
    if (p) {
        show(p, size);
        wf_alloc_idle(size, false);
        wf_free(p, size);
    }
}

size_t wf_kept_size(const wf_kept *k)
{
    return k->size;
}

void *wf_kept_take(wf_kept *k)
{
    uint64_t s = atomic_load_explicit(&k->state, memory_order_relaxed), next;
    do {
        next = without_block(s);
        next += (next & USES) != USES;
    } while (!atomic_compare_exchange_weak_explicit(&k->state, &s, next, memory_order_acquire,
                                                    memory_order_relaxed));
    void *p = block_in(s);
    if (p) {
        show(p, k->size);
        wf_alloc_idle(k->size, false);
        if (__builtin_expect(!wf_alloc_refuses(k->size), 1)) {
            return p;
        }
        wf_kept_give(k, p);
        return NULL;
    }
    p = wf_alloc(k->size);
    if (!p) { /* whoever takes keeps it from being freed */
        s = atomic_load_explicit(&k->state, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(&k->state, &s, without_use(s),
                                                      memory_order_relaxed, memory_order_relaxed)) {
        }
    }
    return p;
}

void wf_kept_give(wf_kept *k, void *block)
{
    const size_t size = k->size;
    uint64_t s = atomic_load_explicit(&k->state, memory_order_relaxed), next;
    bool stays, waits = false;
    do {
        stays = !(s & CLOSED) && !block_in(s);
        next = without_use(s) | (stays ? (uint64_t)(uintptr_t)block << ADDRESS_SHIFT : 0);
        if (stays && !waits) { /* before another thread may take it */
            wf_alloc_idle(size, true);
            hide(block, size);
            waits = true;
        }
    } while (!atomic_compare_exchange_weak_explicit(&k->state, &s, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (stays) {
        return;
    }
    if (next == CLOSED) {
        wf_mfree(k);
    }
    if (waits) {
        show(block, size);
        wf_alloc_idle(size, false);
    }
    wf_free(block, size);
}
