/*
 * eager/cuda/cache.c -- the caching allocator's books (cache.h says what holds).
 *
 * Free chunks of a pool are in a treap ordered by (size, address), with priorities hashed from the
 * address: no balancing state, and the same set of free chunks always makes the same tree. Chunks of a
 * segment are also linked by address, which is what coalescing needs. Nodes come from pages that are kept
 * until the end; when host memory for a node is missing, a chunk is handed out whole instead of split.
 */
#include "eager/cuda/cache.h"

#include <string.h>

#include "eager/alloc.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

#define MIB ((uint64_t)1 << 20)
#define LARGEST ((uint64_t)1 << 46)
enum { NODES_PER_PAGE = 128 };

enum state { FREE, LIVE, HOLE };

typedef struct segment segment;
struct wf_cache_chunk {
    uint64_t address, size, asked;
    segment *segment;
    wf_cache_chunk *prev, *next;  /* by address */
    wf_cache_chunk *left, *right; /* of the tree; right also links unused nodes */
    uint8_t state;
    uint8_t n_after;
    wf_cache_mark after[WF_CACHE_MARKS];
};
typedef wf_cache_chunk chunk;

typedef struct pool pool;
struct segment {
    segment *next;
    pool *pool;
    uint64_t address, size;
    bool expandable;
    chunk *first;
};
struct pool {
    pool *next;
    int key;
    bool small, lasting;
    bool fixed; /* addresses could not be reserved */
    segment *segments;
    chunk *root;
};
typedef struct page {
    struct page *next;
    chunk nodes[NODES_PER_PAGE];
} page;

struct wf_cache {
    wf_cache_driver driver;
    wf_cache_rules rules;
    pool *pools;
    page *pages;
    chunk *unused;
    int64_t cap;
    wf_cache_stats stats;
};

/* -- nodes ------------------------------------------------------------------------------------------- */

static chunk *node_new(wf_cache *c)
{
    if (!c->unused) {
        page *p = wf_malloc(sizeof *p);
        if (!p) {
            return NULL;
        }
        p->next = c->pages;
        c->pages = p;
        for (int i = 0; i < NODES_PER_PAGE; i++) {
            p->nodes[i].right = c->unused;
            c->unused = &p->nodes[i];
        }
    }
    chunk *n = c->unused;
    c->unused = n->right;
    memset(n, 0, sizeof *n);
    return n;
}

static void node_drop(wf_cache *c, chunk *n)
{
    n->right = c->unused;
    c->unused = n;
}

/* -- the tree of free chunks --------------------------------------------------------------------------- */

static uint64_t priority(const chunk *n)
{
    uint64_t z = n->address * UINT64_C(0x9E3779B97F4A7C15);
    return (z ^ (z >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
}

static bool before(const chunk *a, const chunk *b)
{
    return a->size != b->size ? a->size < b->size : a->address < b->address;
}

/* What comes before n to *low, the rest to *high. */
static void split_tree(chunk *t, const chunk *n, chunk **low, chunk **high)
{
    while (t) {
        if (before(t, n)) {
            *low = t;
            low = &t->right;
            t = t->right;
        } else {
            *high = t;
            high = &t->left;
            t = t->left;
        }
    }
    *low = *high = NULL;
}

static void tree_add(pool *p, chunk *n)
{
    chunk **at = &p->root;
    uint64_t own = priority(n);
    while (*at && priority(*at) >= own) {
        at = before(*at, n) ? &(*at)->right : &(*at)->left;
    }
    chunk *below = *at;
    *at = n;
    split_tree(below, n, &n->left, &n->right);
}

static void tree_drop(pool *p, chunk *n)
{
    chunk **at = &p->root;
    while (*at != n) {
        at = before(*at, n) ? &(*at)->right : &(*at)->left;
    }
    chunk *a = n->left, *b = n->right;
    while (a && b) {
        if (priority(a) >= priority(b)) {
            *at = a;
            at = &a->right;
            a = a->right;
        } else {
            *at = b;
            at = &b->left;
            b = b->left;
        }
    }
    *at = a ? a : b;
    n->left = n->right = NULL;
}

/* The smallest that has `size`, the lowest of equals; NULL: none has. */
static chunk *tree_find(const pool *p, uint64_t size)
{
    chunk *best = NULL;
    for (chunk *t = p->root; t;) {
        if (t->size >= size) {
            best = t;
            t = t->left;
        } else {
            t = t->right;
        }
    }
    return best;
}

/* -- chunks ------------------------------------------------------------------------------------------- */

static void link_after(chunk *n, chunk *at)
{
    n->prev = at;
    n->next = at->next;
    if (at->next) {
        at->next->prev = n;
    }
    at->next = n;
}

static void unlink_chunk(wf_cache *c, chunk *n)
{
    if (n->prev) {
        n->prev->next = n->next;
    } else {
        n->segment->first = n->next;
    }
    if (n->next) {
        n->next->prev = n->prev;
    }
    node_drop(c, n);
}

/* Cuts n, which is in no tree, at `size`: returns the rest, of the same state and marks; NULL: no host
 * memory, n is whole. */
static chunk *cut(wf_cache *c, chunk *n, uint64_t size)
{
    chunk *rest = node_new(c);
    if (rest) {
        *rest = *n;
        rest->address += size;
        rest->size -= size;
        n->size = size;
        link_after(rest, n);
    }
    return rest;
}

/* A mark that finds no room is waited for at once: then it needs none. */
static void mark(wf_cache *c, chunk *n, wf_cache_mark m)
{
    for (int i = 0; i < n->n_after; i++) {
        if (n->after[i].stream == m.stream) {
            n->after[i].work = n->after[i].work > m.work ? n->after[i].work : m.work;
            return;
        }
    }
    if (n->n_after < WF_CACHE_MARKS) {
        n->after[n->n_after++] = m;
    } else {
        c->stats.orders++;
        if (c->driver.order(c->driver.self, n->segment->pool->key, m)) {
            c->driver.idle(c->driver.self);
        }
    }
}

/* b, which follows a, becomes part of it; neither is in a tree. */
static void join(wf_cache *c, chunk *a, chunk *b)
{
    for (int i = 0; i < b->n_after; i++) {
        mark(c, a, b->after[i]);
    }
    a->size += b->size;
    unlink_chunk(c, b);
}

/* Puts a chunk that is in no tree among the free ones, together with free neighbours; returns it. */
static chunk *put_free(wf_cache *c, chunk *n)
{
    pool *p = n->segment->pool;
    n->state = FREE;
    if (n->next && n->next->state == FREE) {
        tree_drop(p, n->next);
        join(c, n, n->next);
    }
    if (n->prev && n->prev->state == FREE) {
        n = n->prev;
        tree_drop(p, n);
        join(c, n, n->next);
    }
    tree_add(p, n);
    return n;
}

/* -- growing ------------------------------------------------------------------------------------------- */

static pool *pool_of(wf_cache *c, int key, bool small, bool lasting)
{
    for (pool *p = c->pools; p; p = p->next) {
        if (p->key == key && p->small == small && p->lasting == lasting) {
            return p;
        }
    }
    pool *p = wf_calloc(1, sizeof *p);
    if (p) {
        p->key = key;
        p->small = small;
        p->lasting = lasting;
        p->next = c->pools;
        c->pools = p;
    }
    return p;
}

static void count_reserved(wf_cache *c, int64_t bytes)
{
    wf_cache_stats *s = &c->stats;
    s->reserved_bytes += bytes;
    s->peak_reserved_bytes =
        s->peak_reserved_bytes > s->reserved_bytes ? s->peak_reserved_bytes : s->reserved_bytes;
}

static bool over_cap(const wf_cache *c, uint64_t more)
{
    return c->cap && c->stats.reserved_bytes + (int64_t)more > c->cap;
}

/* A segment whose only chunk is n, for which room was made beforehand: nothing fails after the driver
 * has given memory. */
static void add_segment(pool *p, segment *s, chunk *n, uint64_t address, uint64_t size)
{
    s->pool = p;
    s->address = address;
    s->size = size;
    s->next = p->segments;
    s->first = n;
    p->segments = s;
    n->segment = s;
    n->address = address;
    n->size = size;
}

static uint64_t segment_size(uint64_t need, bool small)
{
    return small ? 2 * MIB : need <= 10 * MIB ? 20 * MIB : (need + 2 * MIB - 1) & ~(2 * MIB - 1);
}

/* A segment of `size` bytes, whose chunk counts as `room`; *out: that chunk, in no tree. */
static int take_segment(wf_cache *c, pool *p, uint64_t size, uint64_t room, chunk **out)
{
    uint64_t address = 0;
    if (over_cap(c, size)) {
        return WF_CACHE_CAP;
    }
    segment *s = wf_calloc(1, sizeof *s);
    chunk *n = node_new(c);
    if (!s || !n) {
        wf_mfree(s);
        if (n) {
            node_drop(c, n);
        }
        return WF_CACHE_NO_HOST_MEMORY;
    }
    int code = c->driver.segment(c->driver.self, size, &address);
    if (code) {
        wf_mfree(s);
        node_drop(c, n);
        return code;
    }
    c->stats.driver_allocs++;
    count_reserved(c, (int64_t)room);
    add_segment(p, s, n, address, room);
    *out = n;
    return 0;
}

static int grow_fixed(wf_cache *c, pool *p, uint64_t need)
{
    uint64_t size = segment_size(need, p->small);
    chunk *n = NULL;
    int code = take_segment(c, p, size, size, &n);
    if (!code) {
        put_free(c, n);
    }
    return code;
}

/* Reserves the addresses of an expandable pool: one segment, all of it a hole. */
static int reserve(wf_cache *c, pool *p)
{
    segment *s = wf_calloc(1, sizeof *s);
    chunk *n = node_new(c);
    uint64_t address = 0;
    int code = s && n ? c->driver.reserve(c->driver.self, c->rules.reserve, &address)
                      : WF_CACHE_NO_HOST_MEMORY;
    if (code) {
        wf_mfree(s);
        if (n) {
            node_drop(c, n);
        }
        return code;
    }
    s->expandable = true;
    n->state = HOLE;
    add_segment(p, s, n, address, c->rules.reserve);
    return 0;
}

static uint64_t granule_of(const wf_cache *c, const pool *p)
{
    return p->small ? c->rules.small_granule : c->rules.large_granule;
}

static uint64_t free_size(const chunk *n)
{
    return n && n->state == FREE ? n->size : 0;
}

/* The lowest hole that makes room for `need` together with its free neighbours, and how much of it. */
static chunk *find_hole(const wf_cache *c, const pool *p, uint64_t need, uint64_t *part)
{
    uint64_t granule = granule_of(c, p);
    for (const segment *s = p->segments; s; s = s->next) {
        for (chunk *n = s->first; n; n = n->next) {
            if (n->state != HOLE) {
                continue;
            }
            uint64_t low = free_size(n->prev);
            uint64_t missing = need > low ? need - low : granule;
            *part = (missing + granule - 1) & ~(granule - 1);
            if (*part <= n->size) {
                return n;
            }
            if (low + n->size + free_size(n->next) >= need) {
                *part = n->size;
                return n;
            }
        }
    }
    return NULL;
}

static int grow_expandable(wf_cache *c, pool *p, uint64_t need)
{
    uint64_t part = 0;
    chunk *hole = find_hole(c, p, need, &part);
    if (!hole) {
        return WF_CACHE_TOO_LARGE;
    }
    if (over_cap(c, part)) {
        return WF_CACHE_CAP;
    }
    if (part < hole->size && !cut(c, hole, part)) {
        return WF_CACHE_NO_HOST_MEMORY;
    }
    int code = c->driver.map(c->driver.self, hole->address, part, granule_of(c, p));
    if (code) {
        if (hole->next && hole->next->state == HOLE) {
            join(c, hole, hole->next);
        }
        return code;
    }
    c->stats.driver_allocs++;
    count_reserved(c, (int64_t)part);
    hole->n_after = 0;
    put_free(c, hole);
    return 0;
}

static int grow(wf_cache *c, pool *p, uint64_t need)
{
    if (c->driver.reserve && !p->fixed && !p->segments) {
        p->fixed = reserve(c, p) != 0;
    }
    bool expandable = c->driver.reserve && !p->fixed;
    return expandable ? grow_expandable(c, p, need) : grow_fixed(c, p, need);
}

/* -- giving back ---------------------------------------------------------------------------------------- */

/* Unmaps the whole granules inside a free chunk. Returns the chunk to go on from. */
static chunk *trim_chunk(wf_cache *c, pool *p, chunk *n, int64_t *bytes)
{
    uint64_t granule = granule_of(c, p);
    uint64_t low = (n->address + granule - 1) & ~(granule - 1);
    uint64_t high = (n->address + n->size) & ~(granule - 1);
    if (low >= high) {
        return n;
    }
    tree_drop(p, n);
    chunk *hole = n;
    if (low > n->address) {
        hole = cut(c, n, low - n->address);
        tree_add(p, n);
        if (!hole) {
            return n;
        }
    }
    if (hole->address + hole->size > high) {
        chunk *rest = cut(c, hole, high - hole->address);
        if (!rest) { /* no node for what stays: it stays whole */
            return put_free(c, hole);
        }
        tree_add(p, rest);
    }
    c->driver.unmap(c->driver.self, hole->address, hole->size, granule);
    c->stats.driver_frees++;
    *bytes += (int64_t)hole->size;
    hole->state = HOLE;
    hole->n_after = 0;
    if (hole->next && hole->next->state == HOLE) {
        join(c, hole, hole->next);
    }
    if (hole->prev && hole->prev->state == HOLE) {
        hole = hole->prev;
        join(c, hole, hole->next);
    }
    return hole;
}

/* Frees a segment that is one free chunk. */
static int64_t trim_segment(wf_cache *c, pool *p, segment **at)
{
    segment *s = *at;
    chunk *n = s->first;
    if (n->state != FREE || n->next) {
        return 0;
    }
    tree_drop(p, n);
    node_drop(c, n);
    *at = s->next;
    int64_t bytes = (int64_t)s->size;
    c->driver.segment_free(c->driver.self, s->address, s->size);
    c->stats.driver_frees++;
    wf_mfree(s);
    return bytes;
}

/* The segment of a freed block, at once. */
static void give_back(wf_cache *c, pool *p, const segment *s)
{
    segment **at = &p->segments;
    while (*at != s) {
        at = &(*at)->next;
    }
    c->driver.idle(c->driver.self);
    c->stats.reserved_bytes -= trim_segment(c, p, at);
}

static int64_t trim_pool(wf_cache *c, pool *p)
{
    int64_t bytes = 0;
    for (segment **at = &p->segments; *at;) {
        segment *s = *at;
        if (s->expandable) {
            for (chunk *n = s->first; n; n = n->next) {
                n = n->state == FREE ? trim_chunk(c, p, n, &bytes) : n;
            }
        } else {
            bytes += trim_segment(c, p, at); /* s may be gone: *at is the next one then */
        }
        if (*at == s) {
            at = &s->next;
        }
    }
    return bytes;
}

static bool to_trim(const wf_cache *c, const pool *p, int key)
{
    return key < 0 ? !(c->driver.kept && c->driver.kept(c->driver.self, p->key)) : p->key == key;
}

int64_t wf_cache_trim(wf_cache *c, int key)
{
    int64_t bytes = 0;
    bool any = false;
    for (const pool *p = c->pools; p; p = p->next) {
        any |= p->root && to_trim(c, p, key);
    }
    if (any) {
        c->driver.idle(c->driver.self);
    }
    for (pool *p = any ? c->pools : NULL; p; p = p->next) {
        if (to_trim(c, p, key)) {
            bytes += trim_pool(c, p);
        }
    }
    c->stats.reserved_bytes -= bytes;
    return bytes;
}

/* -- the interface --------------------------------------------------------------------------------------- */

wf_cache *wf_cache_new(const wf_cache_driver *driver, const wf_cache_rules *rules)
{
    wf_cache *c = wf_calloc(1, sizeof *c);
    if (c) {
        c->driver = *driver;
        c->rules = *rules;
    }
    return c;
}

void wf_cache_delete(wf_cache *c)
{
    if (!c) {
        return;
    }
    c->driver.kept = NULL;
    wf_cache_trim(c, -1);
    while (c->pools) {
        pool *p = c->pools;
        c->pools = p->next;
        while (p->segments) {
            segment *s = p->segments;
            p->segments = s->next;
            if (s->expandable) {
                c->driver.unreserve(c->driver.self, s->address, s->size);
            }
            wf_mfree(s);
        }
        wf_mfree(p);
    }
    while (c->pages) {
        page *dead = c->pages;
        c->pages = dead->next;
        wf_mfree(dead);
    }
    wf_mfree(c);
}

/* Marks of a chunk that is about to be used again. On failure those that were not reached stay. */
static int order_marks(wf_cache *c, chunk *n)
{
    while (n->n_after) {
        c->stats.orders++;
        int code = c->driver.order(c->driver.self, n->segment->pool->key, n->after[n->n_after - 1]);
        if (code) {
            return code;
        }
        n->n_after--;
    }
    return 0;
}

static int hand_out(wf_cache *c, pool *p, chunk *n, uint64_t size, uint64_t asked)
{
    tree_drop(p, n);
    chunk *rest = n->size > size ? cut(c, n, size) : NULL;
    if (rest) {
        tree_add(p, rest);
    }
    int code = order_marks(c, n);
    if (code) {
        put_free(c, n);
        return code;
    }
    n->state = LIVE;
    n->asked = asked;
    wf_cache_stats *s = &c->stats;
    s->live_bytes += (int64_t)n->size;
    s->asked_bytes += (int64_t)asked;
    s->peak_bytes = s->peak_bytes > s->live_bytes ? s->peak_bytes : s->live_bytes;
    s->live_chunks++;
    s->allocs++;
    return 0;
}

int wf_cache_alloc(wf_cache *c, int key, uint64_t size, bool lasting, wf_cache_chunk **out)
{
    *out = NULL;
    if (size > LARGEST) {
        c->stats.failures++;
        return WF_CACHE_TOO_LARGE;
    }
    uint64_t need = size ? (size + WF_CACHE_ROUND - 1) & ~(WF_CACHE_ROUND - 1) : WF_CACHE_ROUND;
    pool *p = pool_of(c, key, need <= WF_CACHE_SMALL, lasting);
    chunk *n = p && !c->rules.single ? tree_find(p, need) : NULL;
    int code = p ? 0 : WF_CACHE_NO_HOST_MEMORY;
    if (p && c->rules.single) {
        /* kernels read the vectors that a row's first and last elements lie in as wholes */
        const uint64_t exact = size ? (size + WF_CACHE_VECTOR - 1) & ~(WF_CACHE_VECTOR - 1) : 1;
        code = take_segment(c, p, exact, need, &n);
        if (code && code != WF_CACHE_NO_HOST_MEMORY && wf_cache_trim(c, -1) > 0) {
            c->stats.retries++; /* pools of graphs that are gone */
            code = take_segment(c, p, exact, need, &n);
        }
        if (!code) {
            tree_add(p, n); /* hand_out takes it from there */
        }
    } else if (p && !n) {
        code = grow(c, p, need);
        if (code && code != WF_CACHE_NO_HOST_MEMORY && wf_cache_trim(c, -1) > 0) {
            c->stats.retries++;
            code = grow(c, p, need);
        }
        n = code ? NULL : tree_find(p, need);
    }
    code = n ? hand_out(c, p, n, need, size) : code;
    c->stats.failures += code != 0;
    *out = code ? NULL : n;
    return code;
}

void wf_cache_free(wf_cache *c, wf_cache_chunk *n, int n_after, const wf_cache_mark *after)
{
    c->stats.live_bytes -= (int64_t)n->size;
    c->stats.asked_bytes -= (int64_t)n->asked;
    c->stats.live_chunks--;
    c->stats.frees++;
    for (int i = 0; i < n_after; i++) {
        mark(c, n, after[i]);
    }
    pool *p = n->segment->pool;
    n = put_free(c, n);
    if (c->rules.single && !(c->driver.kept && c->driver.kept(c->driver.self, p->key))) {
        give_back(c, p, n->segment);
    }
}

uint64_t wf_cache_address(const wf_cache_chunk *n)
{
    return n->address;
}

void wf_cache_set_cap(wf_cache *c, int64_t cap)
{
    c->cap = cap;
}

void wf_cache_get_stats(const wf_cache *c, wf_cache_stats *out)
{
    *out = c->stats;
    out->largest_free = 0;
    for (const pool *p = c->pools; p; p = p->next) {
        const chunk *n = p->root;
        while (n && n->right) {
            n = n->right;
        }
        if (n && (int64_t)n->size > out->largest_free) {
            out->largest_free = (int64_t)n->size;
        }
    }
}

void wf_cache_reset_peak(wf_cache *c)
{
    c->stats.peak_bytes = c->stats.live_bytes;
    c->stats.peak_reserved_bytes = c->stats.reserved_bytes;
}

void wf_cache_walk(const wf_cache *c, wf_cache_walk_fn fn, void *arg)
{
    for (const pool *p = c->pools; p; p = p->next) {
        for (const segment *s = p->segments; s; s = s->next) {
            for (const chunk *n = s->first; n; n = n->next) {
                fn(arg, p->key, s->address, n->address, n->size, (int)n->state);
            }
        }
    }
}
