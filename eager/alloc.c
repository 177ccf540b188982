/*
 * eager/alloc.c -- caching allocator in three layers.
 *
 *   thread cache   per thread and size class up to 64 KiB, a short LIFO of free blocks; no atomics
 *                  read-modify-write and no lock on the usual path (3 to 5 ns for alloc + free)
 *   spans          blocks up to 8 KiB are cut from 64 KiB units of 2 MiB slabs; the slab's first
 *                  page describes its units, so a block finds its span by masking its address
 *   heap           everything else, slabs included: best fit over mapped memory (heap.c)
 *
 * Beside them lies scratch: a stack a thread, cut by moving its end, as large as the thread needed at once so far.
 *
 * The last two are guarded by one lock and work on batches for the thread caches. Frees carry the
 * size, so blocks have no headers. Size classes are 8 per doubling, which bounds waste at 12.5 %
 * and, with best fit over the same classes, keeps a loop of varying sizes from growing.
 *
 * Requirements for the next editor: wf_free needs no memory; a thread's counters are written by
 * that thread alone and readers add them up; nothing is given back to the system unasked except
 * above a cap; a source that a program set is asked under the lock, so never twice at once. Built with AddressSanitizer or
 * MemorySanitizer, every block is the system's own, or the source's, so that the sanitizer sees bounds, use after free, leaks,
 * and what nobody wrote.
 */
#include "eager/alloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <malloc.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eager/env.h"
#include "eager/heap.h"

#if defined(__SANITIZE_ADDRESS__)
#define ALLOC_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define ALLOC_WATCHED 1
#endif
#endif
#ifndef ALLOC_WATCHED
#define ALLOC_WATCHED 0
#endif

enum {
    BLOCK_ALIGN = 64,
    N_CACHED = 64, /* classes up to 64 KiB */
    N_SPAN = 40,   /* classes up to 8 KiB */
    N_UNIT = 32,   /* units of a slab */
    CACHE_BYTES = 128 << 10,
    CACHE_COUNT = 1024,
    BATCH = 64,            /* blocks that come on top of one from the shared layers */
    SCRATCH_WAIT = 1024,   /* requests for scratch after a larger stack was refused */
    FLUSH_BYTES = 1 << 16, /* a thread's live bytes are added to the total in such steps */
};
static const size_t max_cached = 64 * WF_KIB, unit_size = 64 * WF_KIB;
static const size_t max_request = (size_t)1 << 46;
static const size_t max_direct = (size_t)1 << 39; /* AddressSanitizer ends the process at 2^40 */

size_t wf_alloc_round(size_t size)
{
    if (size > max_request)
        return size;
    return wf_class_size(wf_class_of(size + (size == 0)));
}

/* -- counters and planned failures ------------------------------------------------------------- */

typedef struct block {
    struct block *next;
} block;

typedef struct tcache {
    block *head[N_CACHED];
    uint16_t count[N_CACHED];
    _Atomic int64_t live;   /* bytes of this thread not yet in total.live; may be negative */
    _Atomic int64_t high;   /* largest `live` since it was last added to the total */
    _Atomic int64_t allocs; /* all of this thread's, both */
    _Atomic int64_t mallocs;
    struct {
        char *base; /* NULL: none yet */
        size_t cap, end;
        size_t beside; /* bytes in use that found no room */
        size_t need;   /* most in use at once, beside it too */
        uint32_t uses; /* blocks of it in use */
        uint32_t wait; /* requests until a stack that was refused is asked for again */
    } scratch;
    struct tcache *prev, *next;
} tcache;

static struct {
    pthread_mutex_t lock;
    int64_t live, peak, allocs, mallocs; /* of finished threads, and what threads have added */
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
    wf_heap.cached_cap = pages > 0 && page > 0 ? (int64_t)pages * page / 2 : INT64_MAX;
    wf_heap.reserved_cap = wf_env()->WEFT_ALLOC_CAP > 0 ? wf_env()->WEFT_ALLOC_CAP : INT64_MAX;
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

static inline bool count_live(tcache *t, size_t size)
{
    int64_t live = get(&t->live) + (int64_t)size;
    set(&t->live, live);
    if (live > get(&t->high))
        set(&t->high, live);
    return live > FLUSH_BYTES;
}

static inline bool count_alloc(tcache *t, size_t size)
{
    set(&t->allocs, get(&t->allocs) + 1);
    return count_live(t, size);
}

static inline bool count_free(tcache *t, size_t size)
{
    int64_t live = get(&t->live) - (int64_t)size;
    set(&t->live, live);
    return live < -FLUSH_BYTES;
}

/* Counts without a thread cache: no memory for one, or a sanitizer. Under the lock. */
static void add_direct(int64_t size, int allocs)
{
    total.live += size;
    total.allocs += allocs;
    if (total.live > total.peak)
        total.peak = total.live;
}

static void count_direct(int64_t size, int allocs)
{
    lock();
    add_direct(size, allocs);
    unlock();
}

void wf_alloc_get_stats(wf_alloc_stats *out)
{
    lock();
    int64_t live = total.live, high = total.live, allocs = total.allocs, mallocs = total.mallocs;
    for (tcache *t = total.threads; t; t = t->next) {
        live += get(&t->live);
        high += get(&t->high);
        allocs += get(&t->allocs);
        mallocs += get(&t->mallocs);
    }
    *out = (wf_alloc_stats){
        .live_bytes = live,
        .peak_bytes = high > total.peak ? high : total.peak,
        .reserved_bytes = ALLOC_WATCHED ? live : wf_heap.reserved,
        .allocs = allocs,
        .system_allocs = ALLOC_WATCHED ? allocs : wf_heap.system_allocs,
        .mallocs = mallocs,
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

/* -- spans ------------------------------------------------------------------------------------- */

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
    return (slab *)WF_ALIGN_DOWN((uintptr_t)p, WF_HUGE_PAGE);
}

static span *span_of(const void *p)
{
    return &slab_of(p)->spans[((uintptr_t)p & (WF_HUGE_PAGE - 1)) / unit_size];
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
        s = wf_heap_alloc(WF_HUGE_PAGE);
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
    *sp = (span){.class = class, .capacity = (uint32_t)(bytes / wf_class_size(class))};
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
        wf_heap_free(s);
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
        b = (block *)(span_base(sp) + (size_t)sp->bump++ * wf_class_size(class));
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
    return class < N_SPAN ? span_alloc(class) : wf_heap_alloc(wf_class_size(class));
}

static void central_free(void *p, unsigned class)
{
    if (class < N_SPAN)
        span_free(p);
    else
        wf_heap_free(p);
}

/* -- thread cache ------------------------------------------------------------------------------ */

static _Thread_local tcache *mine __attribute__((tls_model("initial-exec")));

/* Blocks of a class that a thread keeps. */
static inline unsigned cache_limit(unsigned class)
{
    size_t n = CACHE_BYTES / wf_class_size(class);
    return (unsigned)(n > CACHE_COUNT ? CACHE_COUNT : n < 4 ? 4 : n);
}

/* Does it keep no more? As cache_limit, without the division. */
static inline bool is_full(const tcache *t, unsigned class)
{
    const size_t count = t->count[class];
    return count >= 4 && (count >= CACHE_COUNT || (count + 1) * wf_class_size(class) > CACHE_BYTES);
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

/* Gives the stack back. Under the lock; nothing of it is in use. */
static void drop_scratch(tcache *t)
{
    if (t->scratch.base)
        central_free(t->scratch.base, wf_class_of(t->scratch.cap));
    t->scratch.base = NULL;
    t->scratch.cap = 0;
}

static void thread_exit(void *cache)
{
    tcache *t = cache;
    lock();
    flush_cache(t);
    drop_scratch(t);
    add_to_total(t);
    total.allocs += get(&t->allocs);
    total.mallocs += get(&t->mallocs);
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

/* b, once t's bytes have been counted: a call's end, so that the usual way keeps no registers for it. */
__attribute__((noinline, cold)) static void *published(tcache *t, void *b)
{
    publish(t);
    return b;
}

/* A block from the shared layers, with up to half a cache of others on top for small classes (heap blocks
 * come one by one: a spare one could be the only one that is needed elsewhere). */
static void *refill(tcache *t, unsigned class)
{
    lock();
    void *p = central_alloc(class);
    unsigned n = p && t && class < N_SPAN ? cache_limit(class) / 2 : 0;
    for (n = n < BATCH ? n : BATCH; n > 0; n--) {
        block *b = central_alloc(class);
        if (!b)
            break;
        push(t, class, b);
    }
    unlock();
    return p;
}

static _Thread_local size_t missed = SIZE_MAX;

size_t wf_alloc_missed(void)
{
    size_t n = missed;
    missed = SIZE_MAX;
    return n;
}

/* An empty cache, a large block, a planned failure or a first call. */
__attribute__((noinline)) static void *alloc_slow(size_t size)
{
    tcache *t = my_cache();
    missed = size;
    if (planned_failure() || size > max_request)
        return NULL;
    unsigned class = wf_class_of(size + (size == 0));
    void *p = t && class < N_CACHED ? pop(t, class) : NULL;
    if (!p)
        p = refill(t, class);
    if (!p && t) { /* what this thread caches may be what is missing */
        lock();
        flush_cache(t);
        unlock();
        p = refill(t, class);
    }
    if (!p)
        return NULL;
    missed = SIZE_MAX;
    if (!t)
        count_direct((int64_t)size, 1);
    else if (count_alloc(t, size))
        publish(t);
    return p;
}

__attribute__((noinline)) static void free_slow(void *p, size_t size)
{
    tcache *t = my_cache();
    unsigned class = wf_class_of(size + (size == 0));
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

/* -- the sanitizers' way: one block each of the system or the program's source, whose exact size it knows -------- */

/* A block of a source, in a tree by address, since blocks of both kinds are freed alike. */
typedef struct sourced {
    void *p;
    const wf_heap_source *from;
} sourced;
static void *sourced_blocks;

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const sourced *)a)->p, y = (uintptr_t)((const sourced *)b)->p;
    return (x > y) - (x < y);
}

/* Under the lock. */
static void *from_source(size_t size, size_t align)
{
    const wf_heap_source *from = wf_heap_source_now();
    sourced *s = malloc(sizeof *s);
    void *p = s ? from->allocate(from->user, size, align) : NULL;
    if (s)
        *s = (sourced){p, from};
    if (p && ((uintptr_t)p % align || !tsearch(s, &sourced_blocks, by_address))) {
        from->release(from->user, p, size);
        p = NULL;
    }
    if (!p)
        free(s);
    return p;
}

static void *alloc_direct(size_t size)
{
    pthread_once(&once, init);
    void *p = NULL;
    const size_t bytes = size + (size == 0),
                 align = size >= WF_HUGE_PAGE ? WF_HUGE_PAGE : BLOCK_ALIGN;
    missed = size;
    if (planned_failure() || size > max_direct)
        return NULL;
    lock();
    if (total.live <= wf_heap.reserved_cap - (int64_t)size) {
        if (wf_heap_source_now())
            p = from_source(bytes, align);
        else if (posix_memalign(&p, align, bytes) != 0)
            p = NULL;
    }
    if (p) {
        missed = SIZE_MAX;
        add_direct((int64_t)size, 1);
    }
    unlock();
    return p;
}

/* Back to where it came from. Under the lock. */
static void release_direct(void *p, size_t size)
{
    const size_t bytes = size + (size == 0);
    sourced **at = tfind(&(sourced){.p = p}, &sourced_blocks, by_address), *s = at ? *at : NULL;
    if (s) {
        tdelete(s, &sourced_blocks, by_address);
        s->from->release(s->from->user, p, bytes);
        free(s);
        return;
    }
    if (malloc_usable_size(p) != bytes)
        __builtin_trap(); /* freed with another size than it was allocated with */
    free(p);
}

static void free_direct(void *p, size_t size)
{
    lock();
    add_direct(-(int64_t)size, 0);
    release_direct(p, size);
    unlock();
}

void *wf_alloc(size_t size)
{
    if (ALLOC_WATCHED)
        return alloc_direct(size);
    tcache *t = mine;
    if (__builtin_expect(t && size <= max_cached && !get(&fail_left), 1)) {
        block *b = pop(t, wf_class_of(size + (size == 0)));
        if (__builtin_expect(b != NULL, 1)) {
            return __builtin_expect(count_alloc(t, size), 0) ? published(t, b) : b;
        }
    }
    return alloc_slow(size);
}

void wf_free(void *p, size_t size)
{
    if (!p)
        return;
    if (ALLOC_WATCHED) {
        free_direct(p, size);
        return;
    }
    tcache *t = mine;
    unsigned class = size <= max_cached ? wf_class_of(size + (size == 0)) : 0;
    if (__builtin_expect(!t || size > max_cached || is_full(t, class), 0)) {
        free_slow(p, size);
        return;
    }
    push(t, class, p);
    if (__builtin_expect(count_free(t, size), 0))
        publish(t);
}

void *wf_object(size_t size)
{
    tcache *t = mine;
    if (!ALLOC_WATCHED && __builtin_expect(t && size <= max_cached && !get(&fail_left), 1)) {
        block *b = pop(t, wf_class_of(size + (size == 0)));
        if (__builtin_expect(b != NULL, 1)) {
            return __builtin_expect(count_live(t, size), 0) ? published(t, b) : b;
        }
    }
    return wf_alloc(size);
}

int64_t wf_alloc_trim(void)
{
    tcache *t = ALLOC_WATCHED ? NULL : my_cache();
    lock();
    if (wf_heap.reclaim)
        wf_heap.reclaim();
    if (t)
        flush_cache(t);
    if (t && t->scratch.uses == 0) {
        drop_scratch(t);
        t->scratch.need = 0;
        t->scratch.wait = 0;
    }
    int64_t given = ALLOC_WATCHED ? 0 : wf_heap_trim(0);
    unlock();
    return given;
}

void wf_alloc_set_cap(int64_t bytes)
{
    pthread_once(&once, init);
    lock();
    wf_heap.reserved_cap = bytes > 0 ? bytes : INT64_MAX;
    const bool over = wf_heap.reserved > wf_heap.reserved_cap;
    unlock();
    if (over)
        wf_alloc_trim();
}

int64_t wf_alloc_cap(void)
{
    pthread_once(&once, init);
    lock();
    const int64_t cap = wf_heap.reserved_cap;
    unlock();
    return cap == INT64_MAX ? 0 : cap;
}

bool wf_alloc_set_source(const wf_heap_source *source)
{
    static struct kept {
        wf_heap_source source;
        struct kept *next;
    } * all; /* blocks say where they came from */
    struct kept *k = source ? malloc(sizeof *k) : NULL;
    if (source && !k)
        return false;
    wf_alloc_trim();
    lock();
    if (k) {
        *k = (struct kept){*source, all};
        all = k;
    }
    wf_heap_set_source(k ? &k->source : NULL);
    unlock();
    return true;
}

bool wf_alloc_has_source(void)
{
    lock();
    const bool has = wf_heap_source_now() != NULL;
    unlock();
    return has;
}

/* -- scratch ----------------------------------------------------------------------------------- */

static size_t scratch_room(size_t size)
{
    return WF_ALIGN_UP(size + (size == 0), BLOCK_ALIGN);
}

/* Makes the stack, of which nothing is in use, as large as was needed. Asking takes from others what they keep for their next
 * use, so that what was refused is not asked for again at once. */
__attribute__((noinline)) static void grow_scratch(tcache *t)
{
    const size_t had = t->scratch.cap;
    size_t cap = 2 * had > t->scratch.need ? 2 * had : t->scratch.need;
    cap = cap > WF_SCRATCH_MOST ? WF_SCRATCH_MOST : wf_alloc_round(cap);
    if (cap <= had)
        return;
    if (t->scratch.wait > 0) {
        t->scratch.wait--;
        return;
    }
    lock();
    drop_scratch(t);
    t->scratch.base = central_alloc(wf_class_of(cap));
    t->scratch.wait = t->scratch.base ? 0 : SCRATCH_WAIT;
    if (!t->scratch.base && had > 0) {
        cap = had;
        t->scratch.base = central_alloc(wf_class_of(cap));
    }
    t->scratch.cap = t->scratch.base ? cap : 0;
    unlock();
    set(&t->allocs, get(&t->allocs) + (t->scratch.base != NULL));
}

/* Scratch that finds no room on the stack. What never finds room there is not counted with what the stack should have. */
static void *scratch_beside(size_t size)
{
    void *p = wf_alloc(size);
    if (p && mine && size <= WF_SCRATCH_MOST)
        mine->scratch.beside += scratch_room(size);
    return p;
}

void *wf_scratch(size_t size)
{
    tcache *t = mine;
    if (ALLOC_WATCHED || !t || size > WF_SCRATCH_MOST || get(&fail_left))
        return scratch_beside(size);
    const size_t room = scratch_room(size), need = t->scratch.end + t->scratch.beside + room;
    t->scratch.need = need > t->scratch.need ? need : t->scratch.need;
    if (__builtin_expect(t->scratch.uses == 0 && t->scratch.need > t->scratch.cap, 0))
        grow_scratch(t);
    if (__builtin_expect(room <= t->scratch.cap - t->scratch.end, 1)) {
        char *p = t->scratch.base + t->scratch.end;
        t->scratch.end += room;
        t->scratch.uses++;
        if (__builtin_expect(count_live(t, size), 0))
            publish(t);
        return p;
    }
    return scratch_beside(size);
}

void wf_scratch_free(void *p, size_t size)
{
    tcache *t = mine;
    const size_t room = scratch_room(size);
    if (!t || !t->scratch.base || (uintptr_t)p - (uintptr_t)t->scratch.base >= t->scratch.cap) {
        if (p && t && size <= WF_SCRATCH_MOST)
            t->scratch.beside -= room < t->scratch.beside ? room : t->scratch.beside;
        wf_free(p, size);
        return;
    }
    const size_t at = (size_t)((char *)p - t->scratch.base);
    t->scratch.uses--;
    /* what lies below and was given back earlier goes with the last one */
    t->scratch.end = t->scratch.uses == 0 ? 0 : at + room == t->scratch.end ? at : t->scratch.end;
    if (__builtin_expect(count_free(t, size), 0))
        publish(t);
}

/* -- blocks that wait for their next use (kept.c) ---------------------------------------------- */

void wf_alloc_idle(size_t size, int idle)
{
    tcache *t = ALLOC_WATCHED ? NULL : mine ? mine : my_cache();
    if (!t)
        count_direct(idle ? -(int64_t)size : (int64_t)size, 0);
    else if (idle ? count_free(t, size) : count_live(t, size))
        publish(t);
}

int wf_alloc_refuses(size_t size)
{
    if (__builtin_expect(!get(&fail_left), 1) || !planned_failure())
        return 0;
    missed = size;
    return 1;
}

void wf_alloc_lock(void)
{
    pthread_once(&once, init);
    lock();
}

void wf_alloc_unlock(void)
{
    unlock();
}

void wf_alloc_release(void *p, size_t size)
{
    if (ALLOC_WATCHED)
        release_direct(p, size);
    else
        central_free(p, wf_class_of(size + (size == 0)));
}

int64_t wf_alloc_most_idle(void)
{
    return wf_heap.cached_cap / 2;
}

/* -- host-side small objects ------------------------------------------------------------------- */

static void count_malloc(void)
{
    tcache *t = mine ? mine : my_cache();
    if (t)
        set(&t->mallocs, get(&t->mallocs) + 1);
}

void *wf_malloc(size_t size)
{
    pthread_once(&once, init);
    count_malloc();
    return planned_failure() ? NULL : malloc(size + (size == 0));
}

void *wf_realloc(void *p, size_t size)
{
    pthread_once(&once, init);
    count_malloc();
    return planned_failure() ? NULL : realloc(p, size + (size == 0));
}

void *wf_calloc(size_t n, size_t size)
{
    void *p = wf_malloc(n * size);
    if (p) {
        memset(p, 0, n * size);
    }
    return p;
}

char *wf_strdup(const char *s)
{
    size_t size = strlen(s) + 1;
    char *p = wf_malloc(size);
    return p ? memcpy(p, s, size) : NULL;
}

void *wf_more_room(void *array, uint32_t *cap, uint32_t first, size_t size)
{
    const uint32_t more = *cap ? *cap * 2 : first;
    void *p = more > *cap ? wf_realloc(array, more * size) : NULL;
    *cap = p ? more : *cap;
    return p;
}

void *wf_more_objects(void *array, uint32_t *cap, uint32_t first, size_t size)
{
    const uint32_t more = *cap ? *cap * 2 : first;
    void *p = more > *cap ? wf_object(more * size) : NULL;
    if (p && *cap)
        memcpy(p, array, *cap * size);
    if (p) {
        wf_free(array, *cap * size);
        *cap = more;
    }
    return p;
}

void wf_mfree(void *p)
{
    free(p);
}
