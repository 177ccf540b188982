/*
 * tests/cuda/test_cuda_cache.c -- the caching allocator's books against a recording driver: random traces.
 *
 * The driver here hands out addresses and keeps, for every 512 bytes of them, whether they are mapped,
 * who holds them and which work of another stream has to be over before they are used again.
 * ctest: timeout=300
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/cache.h"
#include "tests/support/support.h"

#define MIB ((uint64_t)1 << 20)
#define UNIT ((uint64_t)512)
#define BASE ((uint64_t)1 << 40)
enum { KEYS = 3, STREAMS = 6, DRIVER_OOM = 2 };

typedef struct unit {
    uint8_t mapped, held;
    int8_t stream; /* of the mark; -1: none */
    int8_t key;
    uint32_t work;
} unit;

typedef struct device {
    uint64_t memory, used, space, top;
    unit *units;
    uint32_t ordered[KEYS][STREAMS];
    int64_t calls, idles, fail_in; /* fail_in: calls until one fails; 0: none */
} device;

static device dev;

static unit *unit_at(uint64_t address)
{
    cr_assert(address >= BASE && (address - BASE) / UNIT < dev.space / UNIT);
    return &dev.units[(address - BASE) / UNIT];
}

static bool refuses(void)
{
    dev.calls++;
    return dev.fail_in && --dev.fail_in == 0;
}

static void set_mapped(uint64_t address, uint64_t size, bool on)
{
    unit *u = unit_at(address);
    unit_at(address + size - 1);
    for (uint64_t i = 0; i < size / UNIT; i++) {
        cr_assert(u[i].mapped != on && !u[i].held, "mapped twice, or taken away while held");
        u[i] = (unit){.mapped = on, .stream = -1};
    }
    dev.used = on ? dev.used + size : dev.used - size;
}

static int do_reserve(void *self, uint64_t size, uint64_t *address)
{
    (void)self;
    if (refuses() || dev.top + size > dev.space) {
        return DRIVER_OOM;
    }
    *address = BASE + dev.top;
    dev.top += (size + 8 * MIB - 1) & ~(8 * MIB - 1);
    return 0;
}
static void do_unreserve(void *self, uint64_t address, uint64_t size)
{
    (void)self;
    (void)address, (void)size;
}
static int do_map(void *self, uint64_t address, uint64_t size, uint64_t granule)
{
    (void)self;
    cr_assert(address % granule == 0 && size % granule == 0 && size > 0);
    if (refuses() || size > dev.memory - dev.used) {
        return DRIVER_OOM;
    }
    set_mapped(address, size, true);
    return 0;
}
static void do_unmap(void *self, uint64_t address, uint64_t size, uint64_t granule)
{
    (void)self;
    cr_assert(address % granule == 0 && size % granule == 0 && size > 0);
    dev.calls++;
    set_mapped(address, size, false);
}
static int do_segment(void *self, uint64_t size, uint64_t *address)
{
    int code = size > dev.memory - dev.used ? DRIVER_OOM : do_reserve(self, size, address);
    if (!code) {
        set_mapped(*address, size, true);
    }
    return code;
}
static void do_segment_free(void *self, uint64_t address, uint64_t size)
{
    (void)self;
    dev.calls++;
    set_mapped(address, size, false);
}
static void do_idle(void *self)
{
    (void)self;
    dev.idles++;
    for (uint64_t i = 0; i < dev.top / UNIT; i++) {
        dev.units[i].stream = -1;
    }
}
static int do_order(void *self, int key, wf_cache_mark m)
{
    (void)self;
    if (m.work > dev.ordered[key][m.stream]) {
        dev.ordered[key][m.stream] = (uint32_t)m.work;
    }
    return 0;
}

static wf_cache *start(bool expandable, uint64_t memory, uint64_t space)
{
    free(dev.units);
    memset(&dev, 0, sizeof dev);
    dev.memory = memory;
    dev.space = space;
    dev.units = calloc(space / UNIT, sizeof *dev.units);
    wf_cache_driver below = {.reserve = expandable ? do_reserve : NULL,
                             .unreserve = do_unreserve,
                             .map = do_map,
                             .unmap = do_unmap,
                             .segment = do_segment,
                             .segment_free = do_segment_free,
                             .idle = do_idle,
                             .order = do_order};
    wf_cache_rules rules = {.reserve = (memory + memory / 8 + 8 * MIB - 1) & ~(8 * MIB - 1),
                            .small_granule = 2 * MIB,
                            .large_granule = 8 * MIB};
    wf_cache *c = wf_cache_new(&below, &rules);
    cr_assert(c && dev.units);
    return c;
}

typedef struct held {
    wf_cache_chunk *chunk;
    uint64_t address, size;
    int key;
} held;

/* Takes a chunk and checks every unit of it. 0, or the error. */
static int take(wf_cache *c, int key, uint64_t size, held *out)
{
    wf_cache_chunk *n = NULL;
    int code = wf_cache_alloc(c, key, size, &n);
    if (code) {
        cr_assert_null(n);
        return code;
    }
    uint64_t at = wf_cache_address(n), rounded = (size + UNIT - 1) / UNIT * UNIT;
    rounded = rounded ? rounded : UNIT;
    cr_assert_eq(at % UNIT, 0);
    unit *u = unit_at(at);
    for (uint64_t i = 0; i < rounded / UNIT; i++) {
        cr_assert(u[i].mapped && !u[i].held, "overlap or unmapped at %llu", (unsigned long long)i);
        cr_assert(u[i].stream < 0 || u[i].work <= dev.ordered[key][u[i].stream],
                  "used again before other streams' work is over");
        cr_assert(u[i].stream < 0 || u[i].key == key, "another stream's memory");
        u[i].held = 1;
        u[i].stream = -1;
    }
    *out = (held){n, at, rounded, key};
    return 0;
}

static void give(wf_cache *c, const held *h, int n, const wf_cache_mark *after)
{
    unit *u = unit_at(h->address);
    for (uint64_t i = 0; i < h->size / UNIT; i++) {
        cr_assert(u[i].held);
        u[i].held = 0;
        u[i].key = (int8_t)h->key;
        u[i].stream = n ? (int8_t)after[0].stream : -1;
        u[i].work = n ? (uint32_t)after[0].work : 0;
    }
    wf_cache_free(c, h->chunk, n, after);
}

static uint64_t random_size(test_rng *r)
{
    int shift = (int)test_between(r, 0, test_between(r, 0, 5) ? 19 : 22);
    return (uint64_t)test_between(r, 0, (int64_t)1 << shift);
}

typedef struct walk_sum {
    int64_t live, unused, holes;
    uint64_t segment, end;
    int last;
} walk_sum;
static void sum_up(void *arg, int key, uint64_t segment, uint64_t address, uint64_t size, int state)
{
    walk_sum *w = arg;
    (void)key;
    cr_assert(segment != w->segment || address == w->end, "chunks leave a gap or overlap");
    cr_assert(segment != w->segment || state == 1 || state != w->last, "two free neighbours");
    w->segment = segment;
    w->end = address + size;
    w->last = state;
    *(state == 1 ? &w->live : state ? &w->holes : &w->unused) += (int64_t)size;
}

static void check_books(const wf_cache *c)
{
    walk_sum w = {0};
    wf_cache_stats s;
    wf_cache_walk(c, sum_up, &w);
    wf_cache_get_stats(c, &s);
    cr_assert_eq(w.live, s.live_bytes);
    cr_assert_eq(w.live + w.unused, s.reserved_bytes);
    cr_assert_eq((uint64_t)s.reserved_bytes, dev.used);
    cr_assert(s.largest_free <= w.unused);
}

static void random_trace(bool expandable, uint64_t seed, int steps, uint64_t memory)
{
    enum { MOST = 400 };
    static held live[MOST];
    wf_cache *c = start(expandable, memory, memory * (expandable ? 8 : 64));
    test_rng r = {seed};
    int n = 0;
    int64_t refused = 0;
    for (int step = 0; step < steps; step++) {
        bool grow = n < MOST && test_between(&r, 0, 99) < (step / 5000 % 2 ? 35 : 60);
        if (grow || n == 0) {
            int code = take(c, (int)test_between(&r, 0, KEYS - 1), random_size(&r), &live[n]);
            refused += code != 0;
            n += code == 0;
        } else {
            int i = (int)test_between(&r, 0, n - 1);
            wf_cache_mark after = {(int)test_between(&r, KEYS, STREAMS - 1), (uint64_t)step};
            give(c, &live[i], test_between(&r, 0, 9) == 0, &after);
            live[i] = live[--n];
        }
        if (step % 20000 == 0) {
            check_books(c);
        }
    }
    check_books(c);
    while (n) {
        give(c, &live[--n], 0, NULL);
    }
    wf_cache_stats s;
    wf_cache_get_stats(c, &s);
    cr_assert(s.live_bytes == 0 && s.live_chunks == 0 && s.asked_bytes == 0);
    cr_assert_eq(s.allocs, s.frees);
    cr_assert_eq(s.failures, refused);
    wf_cache_trim(c, -1);
    check_books(c);
    cr_assert_eq(dev.used, 0, "all bytes come back");
    wf_cache_delete(c);
}

Test(cuda_cache, random_traces_with_room)
{
    random_trace(true, 1, 400000, 512 * MIB);
    random_trace(false, 2, 300000, 512 * MIB);
}

Test(cuda_cache, random_traces_at_the_limit)
{
    random_trace(true, 3, 200000, 48 * MIB);
    random_trace(false, 4, 100000, 64 * MIB);
}

/* What a training step does with memory: parameters and their state stay, the rest comes and goes in an
 * order that is the same every step. */
static void steady(bool expandable, bool vary)
{
    wf_cache *c = start(expandable, 2048 * MIB, 4800 * MIB);
    static held params[60], acts[300];
    test_rng r = {5};
    for (int i = 0; i < 60; i++) {
        cr_assert_eq(take(c, 0, random_size(&r) * 16, &params[i]), 0);
    }
    int64_t calls = 0;
    wf_cache_stats s = {0};
    for (int step = 0; step < 6; step++) {
        test_rng same = {vary ? (uint64_t)step : 77};
        for (int i = 0; i < 300; i++) {
            cr_assert_eq(take(c, 0, random_size(&same) * (vary ? 24 : 16), &acts[i]), 0);
            if (i % 3 == 2) {
                give(c, &acts[i], 0, NULL);
                acts[i].chunk = NULL;
            }
        }
        for (int i = 299; i >= 0; i--) {
            if (acts[i].chunk) {
                give(c, &acts[i], 0, NULL);
            }
        }
        cr_assert(vary || step == 0 || dev.calls == calls, "a step asks the driver for nothing");
        calls = dev.calls;
    }
    wf_cache_get_stats(c, &s);
    double ratio = (double)s.peak_reserved_bytes / (double)s.peak_bytes;
    cr_assert(ratio < (expandable ? 1.1 : 1.35), "holds %g times what is needed", ratio);
    for (int i = 0; i < 60; i++) {
        give(c, &params[i], 0, NULL);
    }
    wf_cache_delete(c);
    cr_assert_eq(dev.used, 0);
}

Test(cuda_cache, a_repeated_step_asks_for_nothing)
{
    steady(true, false);
    steady(false, false);
    steady(true, true);
}

Test(cuda_cache, reuse_in_the_stream_is_immediate_and_splits)
{
    wf_cache *c = start(true, 64 * MIB, 512 * MIB);
    held a, b, d;
    cr_assert_eq(take(c, 0, 3 * MIB, &a), 0);
    give(c, &a, 0, NULL);
    cr_assert_eq(take(c, 0, 2 * MIB, &b), 0);
    cr_assert_eq(b.address, a.address);
    cr_assert_eq(take(c, 0, MIB + 1, &d), 0);
    cr_assert_eq(d.address, b.address + b.size, "the rest was split off");
    cr_assert_eq(take(c, 1, 2 * MIB, &a), 0);
    cr_assert(a.address < b.address || a.address >= b.address + 64 * MIB, "a pool per stream");
    cr_assert_eq(dev.idles, 0);
    give(c, &a, 0, NULL);
    give(c, &b, 0, NULL);
    give(c, &d, 0, NULL);
    wf_cache_delete(c);
}

Test(cuda_cache, other_streams_are_waited_for_at_reuse_only)
{
    wf_cache *c = start(true, 64 * MIB, 512 * MIB);
    held a, b;
    wf_cache_stats s;
    cr_assert_eq(take(c, 0, 4096, &a), 0);
    wf_cache_mark after[2] = {{3, 9}, {4, 2}};
    give(c, &a, 2, after);
    wf_cache_get_stats(c, &s);
    cr_assert_eq(s.orders, 0);
    cr_assert_eq(take(c, 0, 4096, &b), 0);
    cr_assert_eq(b.address, a.address);
    cr_assert(dev.ordered[0][3] == 9 && dev.ordered[0][4] == 2);
    give(c, &b, 0, NULL);
    /* More streams than a chunk remembers: those are waited for when it is freed. */
    for (int i = 0; i < WF_CACHE_MARKS + 1; i++) {
        cr_assert_eq(take(c, 0, 4096, &a), 0);
        wf_cache_mark one = {i, 100 + (uint64_t)i};
        wf_cache_free(c, a.chunk, 1, &one);
        unit_at(a.address)[0].held = 0;
        for (uint64_t k = 0; k < 8; k++) {
            unit_at(a.address)[k] = (unit){.mapped = 1, .stream = -1};
        }
    }
    wf_cache_delete(c);
}

Test(cuda_cache, memory_that_is_short_is_found_by_giving_back)
{
    for (int expandable = 0; expandable < 2; expandable++) {
        wf_cache *c = start(expandable, 64 * MIB, 4096 * MIB);
        held a, b, d;
        wf_cache_stats s;
        cr_assert_eq(take(c, 0, 40 * MIB, &a), 0);
        give(c, &a, 0, NULL);
        cr_assert_eq(take(c, 1, 40 * MIB, &b), 0, "the other stream's memory was given back");
        wf_cache_get_stats(c, &s);
        cr_assert(s.retries == 1 && dev.idles == 1);
        cr_assert_eq(take(c, 0, 40 * MIB, &d), DRIVER_OOM);
        cr_assert_eq(take(c, 0, UINT64_MAX, &d), WF_CACHE_TOO_LARGE);
        cr_assert_eq(take(c, 0, 8 * MIB, &d), 0);
        give(c, &d, 0, NULL);
        give(c, &b, 0, NULL);
        wf_cache_set_cap(c, 48 * MIB);
        cr_assert_eq(take(c, 0, 50 * MIB, &d), WF_CACHE_CAP);
        cr_assert_eq(take(c, 0, 30 * MIB, &d), 0);
        cr_assert(dev.used <= 48 * MIB);
        give(c, &d, 0, NULL);
        wf_cache_delete(c);
        cr_assert_eq(dev.used, 0);
    }
}

/* Every driver call, and every host allocation, fails once: an error comes back, nothing is lost. */
static bool scenario(wf_cache *c)
{
    held h[40];
    test_rng r = {9};
    bool all = true;
    for (int i = 0; i < 40; i++) {
        h[i].chunk = NULL;
        uint64_t size = i % 5 ? random_size(&r) : (uint64_t)test_between(&r, 2 << 20, 24 << 20);
        all &= take(c, i % KEYS, size, &h[i]) == 0;
        if (i % 4 == 3 && h[i - 1].chunk) {
            give(c, &h[i - 1], 0, NULL);
            h[i - 1].chunk = NULL;
        }
        if (i == 20) {
            wf_cache_trim(c, -1);
        }
    }
    for (int i = 0; i < 40; i++) {
        if (h[i].chunk) {
            give(c, &h[i], 0, NULL);
        }
    }
    check_books(c);
    return all;
}

Test(cuda_cache, every_failure_leaves_the_books_right)
{
    for (int expandable = 0; expandable < 2; expandable++) {
        int64_t survived = 0, n;
        for (n = 1;; n++) {
            wf_cache *c = start(expandable, 256 * MIB, 8192 * MIB);
            dev.fail_in = n;
            survived += scenario(c);
            bool reached = dev.fail_in == 0;
            wf_cache_delete(c);
            cr_assert_eq(dev.used, 0);
            if (!reached) {
                break;
            }
        }
        cr_assert(n > 5 && survived > 1, "%d calls, %d survived", (int)n, (int)survived);
    }
    for (int64_t n = 1; n < 60; n++) {
        wf_cache *c = start(true, 256 * MIB, 8192 * MIB);
        wf_alloc_fail_after(n, 0);
        scenario(c);
        wf_alloc_fail_after(0, 0);
        wf_cache_delete(c);
        cr_assert_eq(dev.used, 0);
    }
}
