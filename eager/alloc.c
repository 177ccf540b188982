/*
 * eager/alloc.c -- caching allocator in three layers.
 *
 *   thread cache   per thread and size class up to 64 KiB, a short LIFO of free blocks; no atomics
 *                  read-modify-write and no lock on the usual path (3 to 5 ns for alloc + free)
 *   spans          blocks up to 8 KiB are cut from 64 KiB units of 2 MiB slabs; the slab's first
 *                  page describes its units, so a block finds its span by masking its address
 *   heap           everything else, slabs included: best fit over chunks of 1 KiB granularity that
 *                  are split and coalesced, also across neighbouring mappings
 *
 * The last two are guarded by one lock and work on batches for the thread caches. Frees carry the
 * size, so blocks have no headers; descriptions of heap chunks live outside the chunks, so free
 * memory is never touched. Requirements for the next editor:
 *  - wf_free must not need memory: coalescing only returns chunk descriptions, splitting (in
 *    wf_alloc) only takes them.
 *  - Size classes are 8 per doubling, which bounds waste at 12.5 % and, with best fit over the same
 *    classes, keeps a loop of varying sizes from growing.
 *  - Whatever is given back to the system is a 2 MiB-aligned range of 2 MiB multiples, so huge
 * pages stay whole.
 *  - Counters of a thread are written by that thread alone; readers add them up.
 * Built with AddressSanitizer, every block is its own aligned_alloc, so that the sanitizer sees
 * bounds, use after free and leaks.
 */
#include "eager/alloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "eager/env.h"

#if defined(__SANITIZE_ADDRESS__)
#define ALLOC_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ALLOC_ASAN 1
#endif
#endif
#ifndef ALLOC_ASAN
#define ALLOC_ASAN 0
#endif

#define KIB ((size_t)1 << 10)
#define HUGE_PAGE ((size_t)2 << 20)
#define ALIGN_UP(x, a) (((x) + ((a)-1)) & ~(size_t)((a)-1))
#define ALIGN_DOWN(x, a) ((x) & ~(size_t)((a)-1))

enum {
    BLOCK_ALIGN = 64,
    N_CACHED = 64, /* classes up to 64 KiB */
    N_SPAN = 40,   /* classes up to 8 KiB */
    N_BIN = 320,   /* classes up to 2^45 and beyond */
    N_UNIT = 32,   /* units of a slab */
    CACHE_BYTES = 128 << 10,
    CACHE_COUNT = 128,
    KEEP_BYTES = 256 << 20, /* free memory that growing does not give back */
    FLUSH_BYTES = 1 << 16,  /* a thread's live bytes are added to the total in such steps */
};
static const size_t max_cached = 64 * KIB, unit_size = 64 * KIB;
static const size_t max_request = (size_t)1 << 46;

/* -- size classes
 * ------------------------------------------------------------------------------------ */

/* Class of a size >= 1: multiples of 64 up to 512, then 8 classes per doubling. */
static inline unsigned class_of(size_t size)
{
    if (size <= 512)
        return (unsigned)((size + 63) / 64 - 1);
    unsigned top = 63u - (unsigned)__builtin_clzll(size - 1); /* 2^top <= size - 1 */
    return (unsigned)((size - 1) >> (top - 3)) + 8 * (top - 9);
}

static inline size_t class_size(unsigned c)
{
    if (c < 8)
        return (size_t)(c + 1) * 64;
    return (size_t)(c % 8 + 9) << (c / 8 + 5);
}

size_t wf_alloc_round(size_t size)
{
    if (size > max_request)
        return size;
    return class_size(class_of(size + (size == 0)));
}

/* -- counters and planned failures
 * -------------------------------------------------------------------- */

typedef struct block {
    struct block *next;
} block;

typedef struct tcache {
    block *head[N_CACHED];
    uint16_t count[N_CACHED];
    _Atomic int64_t live;   /* bytes of this thread not yet in total.live; may be negative */
    _Atomic int64_t high;   /* largest `live` since it was last added to the total */
    _Atomic int64_t allocs; /* all of this thread's */
    struct tcache *prev, *next;
} tcache;

static struct {
    pthread_mutex_t lock;
    int64_t live, peak, allocs; /* of finished threads, and what threads have added */
    int64_t reserved, system_allocs, cached_cap, reserved_cap;
    tcache *threads;
} total = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool have_key;
static _Atomic int64_t fail_left; /* 0: no failure planned */
static atomic_bool fail_forever;

static void lock(void)
{
    pthread_mutex_lock(&total.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&total.lock);
}

static void thread_exit(void *cache);

static void init(void)
{
    int64_t n;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    total.cached_cap = pages > 0 && page > 0 ? (int64_t)pages * page / 2 : INT64_MAX;
    total.reserved_cap = wf_env()->WEFT_ALLOC_CAP > 0 ? wf_env()->WEFT_ALLOC_CAP : INT64_MAX;
    have_key = pthread_key_create(&thread_key, thread_exit) == 0;
    pthread_atfork(lock, unlock, unlock);
    if (wf_env_stress("oom", &n) && n > 0)
        atomic_store(&fail_left, n);
}

void wf_alloc_fail_after(int64_t n, int forever)
{
    pthread_once(&once, init);
    atomic_store(&fail_forever, forever != 0);
    atomic_store(&fail_left, n > 0 ? n : 0);
}

/* Counts one allocation against the plan; true if it must fail. */
static bool planned_failure(void)
{
    int64_t left = atomic_load(&fail_left);
    while (left > 0) {
        int64_t after = left == 1 && atomic_load(&fail_forever) ? 1 : left - 1;
        if (atomic_compare_exchange_weak(&fail_left, &left, after))
            return left == 1;
    }
    return false;
}

static inline int64_t get(const _Atomic int64_t *x)
{
    return atomic_load_explicit(x, memory_order_relaxed);
}

static inline void set(_Atomic int64_t *x, int64_t v)
{
    atomic_store_explicit(x, v, memory_order_relaxed);
}

/* Adds a thread's bytes to the total. With one thread allocating the peak is exact; with several it
 * is exact up to FLUSH_BYTES a thread. Under the lock. */
static void add_to_total(tcache *t)
{
    int64_t high = total.live + get(&t->high);
    if (high > total.peak)
        total.peak = high;
    total.live += get(&t->live);
    set(&t->live, 0);
    set(&t->high, 0);
}

static inline bool count_alloc(tcache *t, size_t size)
{
    int64_t live = get(&t->live) + (int64_t)size;
    set(&t->live, live);
    set(&t->allocs, get(&t->allocs) + 1);
    if (live > get(&t->high))
        set(&t->high, live);
    return live > FLUSH_BYTES;
}

static inline bool count_free(tcache *t, size_t size)
{
    int64_t live = get(&t->live) - (int64_t)size;
    set(&t->live, live);
    return live < -FLUSH_BYTES;
}

/* Counts without a thread cache: no memory for one, or AddressSanitizer. */
static void count_direct(int64_t size, int allocs)
{
    lock();
    total.live += size;
    total.allocs += allocs;
    if (total.live > total.peak)
        total.peak = total.live;
    unlock();
}

void wf_alloc_get_stats(wf_alloc_stats *out)
{
    lock();
    int64_t live = total.live, high = total.live, allocs = total.allocs;
    for (tcache *t = total.threads; t; t = t->next) {
        live += get(&t->live);
        high += get(&t->high);
        allocs += get(&t->allocs);
    }
    *out = (wf_alloc_stats){
        .live_bytes = live,
        .peak_bytes = high > total.peak ? high : total.peak,
        .reserved_bytes = ALLOC_ASAN ? live : total.reserved,
        .allocs = allocs,
        .system_allocs = ALLOC_ASAN ? allocs : total.system_allocs,
    };
    unlock();
}

void wf_alloc_reset_peak(void)
{
    lock();
    int64_t live = total.live;
    for (tcache *t = total.threads; t; t = t->next) {
        live += get(&t->live);
        set(&t->high, get(&t->live)); /* another thread may lose a high-water mark of this moment */
    }
    total.peak = live;
    unlock();
}

/* -- heap
 * ---------------------------------------------------------------------------------------------- */

typedef struct chunk {
    uintptr_t addr;
    size_t size;
    struct chunk *prev, *next;         /* all chunks by address */
    struct chunk *bin_prev, *bin_next; /* free chunks of one bin */
    struct chunk *hash_next;           /* live chunks of one bucket; unused descriptions */
    bool is_free;
} chunk;

enum { CHUNKS_A_TIME = 256 };

static struct {
    chunk *first;
    chunk *spare; /* unused descriptions */
    chunk *bins[N_BIN];
    uint64_t occupied[(N_BIN + 63) / 64];
    chunk **buckets;
    size_t nbucket, nchunk; /* nbucket is 0 or a power of two */
    uintptr_t lowest;       /* where the next mapping is tried below */
    int64_t free_bytes;
} heap;

/* Bin of a free chunk: the largest class it can serve. */
static unsigned bin_of(size_t size)
{
    unsigned c = class_of(size);
    c -= class_size(c) > size;
    return c < N_BIN ? c : N_BIN - 1;
}

static void bin_insert(chunk *c)
{
    unsigned b = bin_of(c->size);
    c->is_free = true;
    c->bin_prev = NULL;
    c->bin_next = heap.bins[b];
    if (c->bin_next)
        c->bin_next->bin_prev = c;
    heap.bins[b] = c;
    heap.occupied[b / 64] |= (uint64_t)1 << b % 64;
    heap.free_bytes += (int64_t)c->size;
}

static void bin_remove(chunk *c)
{
    unsigned b = bin_of(c->size);
    if (c->bin_prev)
        c->bin_prev->bin_next = c->bin_next;
    else
        heap.bins[b] = c->bin_next;
    if (c->bin_next)
        c->bin_next->bin_prev = c->bin_prev;
    if (!heap.bins[b])
        heap.occupied[b / 64] &= ~((uint64_t)1 << b % 64);
    c->is_free = false;
    heap.free_bytes -= (int64_t)c->size;
}

/* First occupied bin >= b, or N_BIN. */
static unsigned next_bin(unsigned b)
{
    for (unsigned w = b / 64; w < sizeof heap.occupied / 8; w++) {
        uint64_t bits = heap.occupied[w] & (w == b / 64 ? ~(uint64_t)0 << b % 64 : ~(uint64_t)0);
        if (bits)
            return w * 64 + (unsigned)__builtin_ctzll(bits);
    }
    return N_BIN;
}

static chunk **bucket(uintptr_t addr)
{
    uint64_t h = (uint64_t)(addr >> 10) * 0x9E3779B97F4A7C15u;
    return &heap.buckets[(h >> 32) & (heap.nbucket - 1)];
}

/* Makes sure that n descriptions are at hand; the hash table grows along, so that it stays short.
 */
static bool reserve_chunks(int n)
{
    int have = 0;
    for (chunk *c = heap.spare; c && have < n; c = c->hash_next)
        have++;
    if (have >= n)
        return true;
    chunk *fresh = calloc(CHUNKS_A_TIME, sizeof *fresh);
    if (!fresh)
        return false;
    size_t nbucket = heap.nbucket ? heap.nbucket : 512;
    while (nbucket < heap.nchunk + CHUNKS_A_TIME)
        nbucket *= 2;
    if (nbucket != heap.nbucket) {
        chunk **old = heap.buckets, **buckets = calloc(nbucket, sizeof *buckets);
        if (buckets) {
            heap.buckets = buckets;
            heap.nbucket = nbucket;
            for (chunk *c = heap.first; c; c = c->next) {
                if (c->is_free)
                    continue;
                chunk **b = bucket(c->addr);
                c->hash_next = *b;
                *b = c;
            }
            free(old);
        } else if (!old) {
            free(fresh);
            return false;
        }
    }
    for (int i = 0; i < CHUNKS_A_TIME; i++) {
        fresh[i].hash_next = heap.spare;
        heap.spare = &fresh[i];
    }
    heap.nchunk += CHUNKS_A_TIME;
    return true;
}

static chunk *take_chunk(uintptr_t addr, size_t size)
{
    chunk *c = heap.spare;
    heap.spare = c->hash_next;
    *c = (chunk){.addr = addr, .size = size};
    return c;
}

static void drop_chunk(chunk *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        heap.first = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->hash_next = heap.spare;
    heap.spare = c;
}

static void link_after(chunk *at, chunk *c)
{
    c->prev = at;
    c->next = at ? at->next : heap.first;
    if (c->next)
        c->next->prev = c;
    if (at)
        at->next = c;
    else
        heap.first = c;
}

/* Cuts c (not in a bin) at `addr`; the upper part is returned. */
static chunk *split(chunk *c, uintptr_t addr)
{
    chunk *upper = take_chunk(addr, c->addr + c->size - addr);
    c->size = addr - c->addr;
    link_after(c, upper);
    return upper;
}

/* Puts c into a bin after joining it with free neighbours; returns the joined chunk. */
static chunk *release_chunk(chunk *c)
{
    chunk *p = c->prev, *n = c->next;
    if (n && n->is_free && c->addr + c->size == n->addr) {
        bin_remove(n);
        c->size += n->size;
        drop_chunk(n);
    }
    if (p && p->is_free && p->addr + p->size == c->addr) {
        bin_remove(p);
        p->size += c->size;
        drop_chunk(c);
        c = p;
    }
    bin_insert(c);
    return c;
}

/* Gives the huge-page-aligned inside of a free chunk back to the system; returns its bytes. Without
 * spare descriptions for the edges only a chunk that needs none goes. */
static int64_t unmap_inside(chunk *c)
{
    uintptr_t lo = ALIGN_UP(c->addr, HUGE_PAGE), hi = ALIGN_DOWN(c->addr + c->size, HUGE_PAGE);
    bool two_edges = lo > c->addr && hi < c->addr + c->size;
    if (lo >= hi || (two_edges && !reserve_chunks(1)) || munmap((void *)lo, hi - lo) != 0)
        return 0;
    bin_remove(c);
    if (two_edges)
        bin_insert(split(c, hi));
    else if (hi < c->addr + c->size) {
        c->size -= hi - c->addr;
        c->addr = hi;
        bin_insert(c);
        c = NULL;
    }
    if (c && lo > c->addr) {
        c->size = lo - c->addr;
        bin_insert(c);
    } else if (c) {
        drop_chunk(c);
    }
    total.reserved -= (int64_t)(hi - lo);
    return (int64_t)(hi - lo);
}

/* Unmaps free chunks, largest first, until at most `keep` free bytes are left. */
static int64_t trim_heap(int64_t keep)
{
    int64_t given = 0;
    for (unsigned b = N_BIN; b-- > class_of(HUGE_PAGE);) {
        for (chunk *c = heap.bins[b], *next; c && heap.free_bytes > keep; c = next) {
            next = c->bin_next; /* edges go to smaller bins or to the front of this one */
            given += unmap_inside(c);
        }
    }
    return given;
}

/* Maps `size` bytes (a multiple of HUGE_PAGE), aligned, below the last mapping if there is room. */
static uintptr_t map_aligned(size_t size)
{
    enum { PROT = PROT_READ | PROT_WRITE, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS };
    void *hint = heap.lowest > size ? (void *)(heap.lowest - size) : NULL;
    void *p = mmap(hint, size, PROT, FLAGS, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    if ((uintptr_t)p % HUGE_PAGE) {
        munmap(p, size);
        p = mmap(NULL, size + HUGE_PAGE, PROT, FLAGS, -1, 0);
        if (p == MAP_FAILED)
            return 0;
        uintptr_t lo = (uintptr_t)p, at = ALIGN_UP(lo, HUGE_PAGE);
        if (at > lo)
            munmap(p, at - lo);
        munmap((void *)(at + size), HUGE_PAGE - (at - lo));
        p = (void *)at;
    }
    madvise(p, size, MADV_HUGEPAGE);
    heap.lowest = (uintptr_t)p;
    total.reserved += (int64_t)size;
    total.system_allocs++;
    return (uintptr_t)p;
}

/* Asks the system for a free chunk of at least `size` bytes, aligned to huge pages. */
static bool grow(size_t size)
{
    size = ALIGN_UP(size, HUGE_PAGE);
    if (!reserve_chunks(1))
        return false;
    /* What is cached did not fit: keep no more of it than is live, so that a program whose sizes
     * keep changing holds at most twice what it uses. */
    int64_t live = total.reserved - heap.free_bytes;
    if (heap.free_bytes > live && heap.free_bytes > KEEP_BYTES)
        trim_heap(live > KEEP_BYTES ? live : KEEP_BYTES);
    if (total.reserved + (int64_t)size > total.reserved_cap)
        trim_heap(0);
    if (total.reserved + (int64_t)size > total.reserved_cap)
        return false;
    uintptr_t addr = map_aligned(size);
    if (!addr) {
        trim_heap(0);
        addr = map_aligned(size);
        if (!addr)
            return false;
    }
    chunk *at = NULL;
    for (chunk *c = heap.first; c && c->addr < addr; c = c->next)
        at = c;
    chunk *c = take_chunk(addr, size);
    link_after(at, c);
    release_chunk(c);
    return true;
}

/* Smallest free chunk that can hold `size` at `align`; NULL if there is none. */
static chunk *best_fit(size_t size, size_t align)
{
    for (unsigned b = next_bin(bin_of(size)); b < N_BIN; b = next_bin(b + 1)) {
        chunk *best = NULL;
        for (chunk *c = heap.bins[b]; c; c = c->bin_next) {
            if (ALIGN_UP(c->addr, align) + size > c->addr + c->size)
                continue;
            if (!best || c->size < best->size)
                best = c;
            if (c->size == size)
                break;
        }
        if (best)
            return best;
    }
    return NULL;
}

/* size: a class of at least 1 KiB granularity. Under the lock. */
static void *heap_alloc(size_t size)
{
    size_t align = size >= HUGE_PAGE ? HUGE_PAGE : KIB;
    if (!reserve_chunks(2))
        return NULL;
    chunk *c = best_fit(size, align);
    if (!c) {
        if (!grow(size) || !reserve_chunks(2))
            return NULL;
        c = best_fit(size, align);
    }
    bin_remove(c);
    uintptr_t at = ALIGN_UP(c->addr, align);
    if (at > c->addr) {
        chunk *upper = split(c, at);
        bin_insert(c);
        c = upper;
    }
    if (c->size > size)
        bin_insert(split(c, at + size));
    chunk **b = bucket(at);
    c->hash_next = *b;
    *b = c;
    return (void *)at;
}

static void heap_free(void *p)
{
    chunk **b = bucket((uintptr_t)p);
    while ((*b)->addr != (uintptr_t)p)
        b = &(*b)->hash_next;
    chunk *c = *b;
    *b = c->hash_next;
    c = release_chunk(c);
    if (heap.free_bytes > total.cached_cap)
        trim_heap(total.cached_cap);
}

/* -- spans
 * ---------------------------------------------------------------------------------------------- */

typedef struct span {
    struct span *prev, *next; /* spans of one class with free blocks */
    block *free;              /* returned blocks */
    uint32_t bump;            /* blocks handed out at least once */
    uint32_t used, capacity;
    uint32_t class;
} span;

typedef struct slab {
    struct slab *prev, *next; /* slabs with unused units */
    uint32_t nunit;           /* units in use */
    uint32_t unused;          /* bit per unit */
    span spans[N_UNIT];
} slab;

enum { SLAB_HEADER = 4096 };
_Static_assert(sizeof(slab) <= SLAB_HEADER, "the slab's description fits its first page");

static struct {
    span *partial[N_SPAN];
    slab *slabs; /* with unused units */
} spans;

static slab *slab_of(const void *p)
{
    return (slab *)ALIGN_DOWN((uintptr_t)p, HUGE_PAGE);
}

static span *span_of(const void *p)
{
    return &slab_of(p)->spans[((uintptr_t)p & (HUGE_PAGE - 1)) / unit_size];
}

static char *span_base(span *s)
{
    slab *owner = slab_of(s);
    size_t unit = (size_t)(s - owner->spans);
    return (char *)owner + (unit ? unit * unit_size : SLAB_HEADER);
}

#define LIST_PUSH(head, x)                                                                         \
    ((x)->prev = NULL, (x)->next = (head), (x)->next ? (void)((x)->next->prev = (x)) : (void)0,    \
     (void)((head) = (x)))
#define LIST_REMOVE(head, x)                                                                       \
    ((x)->prev ? (void)((x)->prev->next = (x)->next) : (void)((head) = (x)->next),                 \
     (x)->next ? (void)((x)->next->prev = (x)->prev) : (void)0)

static span *new_span(unsigned class)
{
    slab *s = spans.slabs;
    if (!s) {
        s = heap_alloc(HUGE_PAGE);
        if (!s)
            return NULL;
        memset(s, 0, sizeof *s);
        s->unused = ~(uint32_t)0;
        LIST_PUSH(spans.slabs, s);
    }
    unsigned unit = (unsigned)__builtin_ctz(s->unused);
    s->unused &= s->unused - 1;
    s->nunit++;
    if (!s->unused)
        LIST_REMOVE(spans.slabs, s);
    span *sp = &s->spans[unit];
    size_t bytes = unit_size - (unit ? 0 : SLAB_HEADER);
    *sp = (span){.class = class, .capacity = (uint32_t)(bytes / class_size(class))};
    LIST_PUSH(spans.partial[class], sp);
    return sp;
}

static void release_span(span *sp)
{
    slab *s = slab_of(sp);
    LIST_REMOVE(spans.partial[sp->class], sp);
    if (!s->unused)
        LIST_PUSH(spans.slabs, s);
    s->unused |= (uint32_t)1 << (sp - s->spans);
    if (--s->nunit == 0) {
        LIST_REMOVE(spans.slabs, s);
        heap_free(s);
    }
}

static void *span_alloc(unsigned class)
{
    span *sp = spans.partial[class];
    if (!sp && !(sp = new_span(class)))
        return NULL;
    block *b = sp->free;
    if (b)
        sp->free = b->next;
    else
        b = (block *)(span_base(sp) + (size_t)sp->bump++ * class_size(class));
    if (++sp->used == sp->capacity)
        LIST_REMOVE(spans.partial[class], sp);
    return b;
}

static void span_free(block *b)
{
    span *sp = span_of(b);
    if (sp->used == sp->capacity)
        LIST_PUSH(spans.partial[sp->class], sp);
    b->next = sp->free;
    sp->free = b;
    if (--sp->used == 0)
        release_span(sp);
}

static void *central_alloc(unsigned class)
{
    return class < N_SPAN ? span_alloc(class) : heap_alloc(class_size(class));
}

static void central_free(void *p, unsigned class)
{
    if (class < N_SPAN)
        span_free(p);
    else
        heap_free(p);
}

/* -- thread cache
 * ---------------------------------------------------------------------------------------- */

static _Thread_local tcache *mine __attribute__((tls_model("initial-exec")));

/* Blocks of a class that a thread keeps. */
static inline unsigned cache_limit(unsigned class)
{
    size_t n = CACHE_BYTES / class_size(class);
    return (unsigned)(n > CACHE_COUNT ? CACHE_COUNT : n < 4 ? 4 : n);
}

/* Returns blocks of a class until `keep` are left. Under the lock. */
static void flush_class(tcache *t, unsigned class, unsigned keep)
{
    while (t->count[class] > keep) {
        block *b = t->head[class];
        t->head[class] = b->next;
        t->count[class]--;
        central_free(b, class);
    }
}

static void flush_cache(tcache *t)
{
    for (unsigned c = 0; c < N_CACHED; c++)
        flush_class(t, c, 0);
}

static void thread_exit(void *cache)
{
    tcache *t = cache;
    lock();
    flush_cache(t);
    add_to_total(t);
    total.allocs += get(&t->allocs);
    LIST_REMOVE(total.threads, t);
    unlock();
    mine = NULL;
    free(t);
}

/* This thread's cache; NULL if there is no memory for one. */
static tcache *my_cache(void)
{
    pthread_once(&once, init);
    if (mine)
        return mine;
    tcache *t = calloc(1, sizeof *t);
    if (!t || !have_key || pthread_setspecific(thread_key, t) != 0) {
        free(t);
        return NULL;
    }
    lock();
    LIST_PUSH(total.threads, t);
    unlock();
    return mine = t;
}

static inline block *pop(tcache *t, unsigned class)
{
    block *b = t->head[class];
    if (b) {
        t->head[class] = b->next;
        t->count[class]--;
    }
    return b;
}

static inline void push(tcache *t, unsigned class, block *b)
{
    b->next = t->head[class];
    t->head[class] = b;
    t->count[class]++;
}

static void publish(tcache *t)
{
    lock();
    add_to_total(t);
    unlock();
}

/* A block from the shared layers, with half a cache of others on top for small classes (heap blocks
 * come one by one: a spare one could be the only one that is needed elsewhere). */
static void *refill(tcache *t, unsigned class)
{
    lock();
    void *p = central_alloc(class);
    for (unsigned n = p && t && class < N_SPAN ? cache_limit(class) / 2 : 0; n > 0; n--) {
        block *b = central_alloc(class);
        if (!b)
            break;
        push(t, class, b);
    }
    unlock();
    return p;
}

/* An empty cache, a large block, a planned failure or a first call. */
__attribute__((noinline)) static void *alloc_slow(size_t size)
{
    tcache *t = my_cache();
    if (planned_failure() || size > max_request)
        return NULL;
    unsigned class = class_of(size + (size == 0));
    void *p = t && class < N_CACHED ? pop(t, class) : NULL;
    if (!p)
        p = refill(t, class);
    if (p && !t)
        count_direct((int64_t)size, 1);
    else if (p && count_alloc(t, size))
        publish(t);
    return p;
}

__attribute__((noinline)) static void free_slow(void *p, size_t size)
{
    tcache *t = my_cache();
    unsigned class = class_of(size + (size == 0));
    lock();
    if (t && class < N_CACHED)
        flush_class(t, class, cache_limit(class) / 2);
    central_free(p, class);
    unlock();
    if (!t)
        count_direct(-(int64_t)size, 0);
    else if (count_free(t, size))
        publish(t);
}

/* AddressSanitizer's way: one system block each, whose exact size it knows. */
static void *alloc_direct(size_t size)
{
    pthread_once(&once, init);
    void *p = NULL;
    if (planned_failure() || size > max_request ||
        posix_memalign(&p, size >= HUGE_PAGE ? HUGE_PAGE : BLOCK_ALIGN, size + (size == 0)) != 0)
        return NULL;
    count_direct((int64_t)size, 1);
    return p;
}

static void free_direct(void *p, size_t size)
{
    if (malloc_usable_size(p) != size + (size == 0))
        __builtin_trap(); /* freed with another size than it was allocated with */
    count_direct(-(int64_t)size, 0);
    free(p);
}

void *wf_alloc(size_t size)
{
    if (ALLOC_ASAN)
        return alloc_direct(size);
    tcache *t = mine;
    if (__builtin_expect(t && size <= max_cached && !get(&fail_left), 1)) {
        block *b = pop(t, class_of(size + (size == 0)));
        if (__builtin_expect(b != NULL, 1)) {
            if (__builtin_expect(count_alloc(t, size), 0))
                publish(t);
            return b;
        }
    }
    return alloc_slow(size);
}

void wf_free(void *p, size_t size)
{
    if (!p)
        return;
    if (ALLOC_ASAN) {
        free_direct(p, size);
        return;
    }
    tcache *t = mine;
    unsigned class = size <= max_cached ? class_of(size + (size == 0)) : 0;
    if (__builtin_expect(!t || size > max_cached || t->count[class] >= cache_limit(class), 0)) {
        free_slow(p, size);
        return;
    }
    push(t, class, p);
    if (__builtin_expect(count_free(t, size), 0))
        publish(t);
}

int64_t wf_alloc_trim(void)
{
    if (ALLOC_ASAN)
        return 0;
    tcache *t = my_cache();
    lock();
    if (t)
        flush_cache(t);
    int64_t given = trim_heap(0);
    unlock();
    return given;
}

/* -- host-side small objects
 * ------------------------------------------------------------------------------ */

void *wf_malloc(size_t size)
{
    pthread_once(&once, init);
    return planned_failure() ? NULL : malloc(size + (size == 0));
}

void *wf_realloc(void *p, size_t size)
{
    pthread_once(&once, init);
    return planned_failure() ? NULL : realloc(p, size + (size == 0));
}

void wf_mfree(void *p)
{
    free(p);
}
