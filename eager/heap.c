/*
 * eager/heap.c -- best fit with splitting and coalescing.
 *
 * Descriptions of chunks live outside the chunks, so free memory is never touched: all chunks in
 * one list by address (neighbours join if they touch, also across mappings of the system), free ones in bins by
 * the largest class they can serve, live ones in a hash table by address. Bins are searched upward
 * from the request's class: every chunk of a bin fits every request of that class, so only
 * alignment can make the search look further.
 */
#include "eager/heap.h"

#include <stdlib.h>
#include <sys/mman.h>

wf_heap_numbers wf_heap = {.cached_cap = INT64_MAX, .reserved_cap = INT64_MAX};

typedef struct chunk {
    uintptr_t addr;
    size_t size;
    struct chunk *prev, *next;         /* all chunks by address */
    struct chunk *bin_prev, *bin_next; /* free chunks of one bin */
    struct chunk *hash_next;           /* live chunks of one bucket; unused descriptions */
    const wf_heap_source *from;        /* NULL: the system */
    bool is_free;
    bool begins; /* the first of what `from` gave at once */
} chunk;

enum {
    CHUNKS_A_TIME = 256,
    N_BIN = 320,            /* classes up to 2^46 and beyond */
    KEEP_BYTES = 256 << 20, /* free memory that growing does not give back */
};

static struct {
    chunk *first;
    chunk *spare; /* unused descriptions */
    chunk *bins[N_BIN];
    uint64_t occupied[(N_BIN + 63) / 64];
    chunk **buckets;
    size_t nbucket, nchunk; /* nbucket is 0 or a power of two */
    uintptr_t lowest;       /* where the next mapping is tried below */
    const wf_heap_source *source;
} heap;

void wf_heap_set_source(const wf_heap_source *source)
{
    heap.source = source;
}

const wf_heap_source *wf_heap_source_now(void)
{
    return heap.source;
}

/* Bin of a free chunk: the largest class it can serve. */
static unsigned bin_of(size_t size)
{
    unsigned c = wf_class_of(size);
    c -= wf_class_size(c) > size;
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
    wf_heap.free_bytes += (int64_t)c->size;
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
    wf_heap.free_bytes -= (int64_t)c->size;
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

static chunk *take_chunk(uintptr_t addr, size_t size, const wf_heap_source *from)
{
    chunk *c = heap.spare;
    heap.spare = c->hash_next;
    *c = (chunk){.addr = addr, .size = size, .from = from};
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
    chunk *upper = take_chunk(addr, c->addr + c->size - addr, c->from);
    c->size = addr - c->addr;
    link_after(c, upper);
    return upper;
}

/* Does b lie right behind a, in memory that goes back together? */
static bool follows(const chunk *a, const chunk *b)
{
    return a && b && a->addr + a->size == b->addr && a->from == b->from && !b->begins;
}

/* Puts c into a bin after joining it with free neighbours; returns the joined chunk. */
static chunk *release_chunk(chunk *c)
{
    chunk *p = c->prev, *n = c->next;
    if (follows(c, n) && n->is_free) {
        bin_remove(n);
        c->size += n->size;
        drop_chunk(n);
    }
    if (follows(p, c) && p->is_free) {
        bin_remove(p);
        p->size += c->size;
        drop_chunk(c);
        c = p;
    }
    bin_insert(c);
    return c;
}

/* Gives a free chunk back to the program's source, if it is all that this gave at once; returns its bytes. */
static int64_t release_whole(chunk *c)
{
    const int64_t bytes = (int64_t)c->size;
    if (!c->begins || follows(c, c->next))
        return 0;
    bin_remove(c);
    c->from->release(c->from->user, (void *)c->addr, c->size);
    drop_chunk(c);
    wf_heap.reserved -= bytes;
    return bytes;
}

/* Gives the huge-page-aligned inside of a free chunk back to the system; returns its bytes. Without
 * spare descriptions for the edges only a chunk that needs none goes. */
static int64_t unmap_inside(chunk *c)
{
    if (c->from)
        return release_whole(c);
    uintptr_t lo = WF_ALIGN_UP(c->addr, WF_HUGE_PAGE),
              hi = WF_ALIGN_DOWN(c->addr + c->size, WF_HUGE_PAGE);
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
    wf_heap.reserved -= (int64_t)(hi - lo);
    return (int64_t)(hi - lo);
}

/* Unmaps free chunks, largest first, until at most `keep` free bytes are left. */
int64_t wf_heap_trim(int64_t keep)
{
    int64_t given = 0;
    for (unsigned b = N_BIN; b-- > wf_class_of(WF_HUGE_PAGE);) {
        for (chunk *c = heap.bins[b], *next; c && wf_heap.free_bytes > keep; c = next) {
            next = c->bin_next; /* edges go to smaller bins or to the front of this one */
            given += unmap_inside(c);
        }
    }
    return given;
}

/* `size` bytes (a multiple of WF_HUGE_PAGE) of the program's own source; 0: there are none, or they are not aligned. */
static uintptr_t ask_source(size_t size)
{
    const wf_heap_source *from = heap.source;
    void *p = from->allocate(from->user, size, WF_HUGE_PAGE);
    if (p && (uintptr_t)p % WF_HUGE_PAGE) {
        from->release(from->user, p, size);
        p = NULL;
    }
    wf_heap.reserved += p ? (int64_t)size : 0;
    wf_heap.system_allocs += p != NULL;
    return (uintptr_t)p;
}

/* Maps `size` bytes (a multiple of WF_HUGE_PAGE), aligned, below the last mapping if there is room. */
static uintptr_t map_aligned(size_t size)
{
    enum { PROT = PROT_READ | PROT_WRITE, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS };
    if (heap.source)
        return ask_source(size);
    void *hint = heap.lowest > size ? (void *)(heap.lowest - size) : NULL;
    void *p = mmap(hint, size, PROT, FLAGS, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    if ((uintptr_t)p % WF_HUGE_PAGE) {
        munmap(p, size);
        p = mmap(NULL, size + WF_HUGE_PAGE, PROT, FLAGS, -1, 0);
        if (p == MAP_FAILED)
            return 0;
        uintptr_t lo = (uintptr_t)p, at = WF_ALIGN_UP(lo, WF_HUGE_PAGE);
        if (at > lo)
            munmap(p, at - lo);
        munmap((void *)(at + size), WF_HUGE_PAGE - (at - lo));
        p = (void *)at;
    }
    madvise(p, size, MADV_HUGEPAGE);
    heap.lowest = (uintptr_t)p;
    wf_heap.reserved += (int64_t)size;
    wf_heap.system_allocs++;
    return (uintptr_t)p;
}

/* Asks the system for a free chunk of at least `size` bytes, aligned to huge pages. */
static bool grow(size_t size)
{
    size = WF_ALIGN_UP(size, WF_HUGE_PAGE);
    if (!reserve_chunks(1))
        return false;
    /* What is cached did not fit: keep no more of it than is live, so that a program whose sizes
     * keep changing holds at most twice what it uses. */
    int64_t live = wf_heap.reserved - wf_heap.free_bytes;
    if (wf_heap.free_bytes > live && wf_heap.free_bytes > KEEP_BYTES)
        wf_heap_trim(live > KEEP_BYTES ? live : KEEP_BYTES);
    if (wf_heap.reserved > wf_heap.reserved_cap - (int64_t)size)
        wf_heap_trim(0);
    if (wf_heap.reserved > wf_heap.reserved_cap - (int64_t)size)
        return false;
    uintptr_t addr = map_aligned(size);
    if (!addr) {
        wf_heap_trim(0);
        addr = map_aligned(size);
        if (!addr)
            return false;
    }
    chunk *at = NULL;
    for (chunk *c = heap.first; c && c->addr < addr; c = c->next)
        at = c;
    chunk *c = take_chunk(addr, size, heap.source);
    c->begins = heap.source != NULL;
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
            if (WF_ALIGN_UP(c->addr, align) + size > c->addr + c->size)
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

/* size: a class of at least 1 KiB granularity. */
void *wf_heap_alloc(size_t size)
{
    size_t align = size >= WF_HUGE_PAGE ? WF_HUGE_PAGE : WF_KIB;
    if (!reserve_chunks(2))
        return NULL;
    chunk *c = best_fit(size, align);
    if (!c && wf_heap.reclaim && wf_heap.reclaim() && reserve_chunks(2))
        c = best_fit(size, align);
    if (!c) {
        if (!grow(size) || !reserve_chunks(2))
            return NULL;
        c = best_fit(size, align);
    }
    bin_remove(c);
    uintptr_t at = WF_ALIGN_UP(c->addr, align);
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

void wf_heap_free(void *p)
{
    chunk **b = bucket((uintptr_t)p);
    while ((*b)->addr != (uintptr_t)p)
        b = &(*b)->hash_next;
    chunk *c = *b;
    *b = c->hash_next;
    c = release_chunk(c);
    if (wf_heap.free_bytes > wf_heap.cached_cap)
        wf_heap_trim(wf_heap.cached_cap);
}
