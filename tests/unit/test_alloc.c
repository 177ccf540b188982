/*
 * tests/unit/test_alloc.c -- the caching allocator: blocks never overlap, counters are exact, memory
 * is reused and returned, failures can be planned; blocks that wait for their next use, and scratch.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eager/alloc.h"
#include "eager/kept.h"
#include "tests/support/sanitized.h"
#if UNDER_ASAN
#include <sanitizer/lsan_interface.h>
#endif

/* Under AddressSanitizer blocks are the system's and nothing is cached. */
enum { SANITIZED = SYSTEM_BLOCKS || UNDER_TSAN, CACHING = !SYSTEM_BLOCKS };

static wf_alloc_stats stats(void)
{
    wf_alloc_stats s;
    wf_alloc_get_stats(&s);
    return s;
}

static uint64_t next(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = (*state ^ (*state >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static size_t random_size(uint64_t *state)
{
    uint64_t r = next(state);
    return (size_t)(next(state) % ((uint64_t)1 << (r % 23)));
}

Test(alloc, classes)
{
    size_t last = 0;
    for (size_t s = 0; s < (size_t)1 << 40; s += 1 + s / 37) {
        size_t r = wf_alloc_round(s);
        cr_assert(r >= s && r >= 64 && r % 64 == 0 && r >= last);
        cr_assert(s <= 512 ? r - s <= 64 : r - s <= s / 8, "%zu gives %zu", s, r);
        cr_assert_eq(wf_alloc_round(r), r);
        cr_assert(r == s || wf_alloc_round(r + 1) > r);
        last = r;
    }
    for (size_t s = 0; s < (size_t)64 << 20; s = s * 2 + 1) {
        char *p = wf_alloc(s);
        cr_assert_not_null(p);
        cr_assert_eq((uintptr_t)p % (s >= (size_t)2 << 20 ? (size_t)2 << 20 : 64), 0);
        if (s) {
            p[0] = 1;
            p[s - 1] = 2;
        }
        wf_free(p, s);
    }
    char *a = wf_alloc(0), *b = wf_alloc(0);
    cr_assert(a && b && a != b);
    wf_free(a, 0);
    wf_free(b, 0);
    wf_free(NULL, 5);
    cr_assert_null(wf_alloc(SIZE_MAX));
    cr_assert_null(wf_alloc(SIZE_MAX / 2));
    cr_assert_null(wf_alloc((size_t)1 << 46));
    cr_assert_eq(stats().live_bytes, 0);
}

/* -- random traces on several threads ---------------------------------------------------------- */

enum { SLOTS = 500, THREADS = 4, STEPS = SANITIZED ? 6000 : 60000 };

typedef struct held {
    unsigned char *p;
    size_t size;
    unsigned char mark;
} held;

/* Blocks handed from thread to thread. */
static _Atomic(held *) mailbox[64];

static void mark(held *h, uint64_t *state)
{
    h->mark = (unsigned char)next(state);
    size_t edge = h->size < 100 ? h->size : 100;
    memset(h->p, h->mark, edge);
    memset(h->p + h->size - edge, h->mark, edge);
}

static bool intact(const held *h)
{
    for (size_t i = 0; i < h->size && i < 100; i++)
        if (h->p[i] != h->mark || h->p[h->size - 1 - i] != h->mark)
            return false;
    return (uintptr_t)h->p % 64 == 0;
}

static void *trace(void *arg)
{
    uint64_t state = (uintptr_t)arg;
    held *slots = calloc(SLOTS, sizeof *slots);
    intptr_t bad = 0;
    for (int i = 0; i < STEPS; i++) {
        held *h = &slots[next(&state) % SLOTS];
        if (h->p) {
            bad += !intact(h);
            wf_free(h->p, h->size);
            h->p = NULL;
        } else {
            h->size = random_size(&state);
            h->p = wf_alloc(h->size);
            if (h->p)
                mark(h, &state);
            bad += !h->p;
        }
        if (i % 16 == 0) {
            held *gift = malloc(sizeof *gift);
            gift->size = random_size(&state);
            gift->p = wf_alloc(gift->size);
            mark(gift, &state);
            held *got = atomic_exchange(&mailbox[next(&state) % 64], gift);
            if (got) {
                bad += !intact(got);
                wf_free(got->p, got->size);
                free(got);
            }
        }
        if (i % 5000 == 4999)
            wf_alloc_trim();
    }
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].p)
            bad += !intact(&slots[i]);
        wf_free(slots[i].p, slots[i].size);
    }
    free(slots);
    return (void *)bad;
}

Test(alloc, random_traces, .timeout = 240)
{
    int64_t live = stats().live_bytes;
    for (uintptr_t round = 0; round < 3; round++) {
        pthread_t threads[THREADS];
        for (uintptr_t t = 0; t < THREADS; t++)
            pthread_create(&threads[t], NULL, trace, (void *)(round * 100 + t + 1));
        for (int t = 0; t < THREADS; t++) {
            void *bad;
            pthread_join(threads[t], &bad);
            cr_assert_eq((intptr_t)bad, 0);
        }
    }
    for (int i = 0; i < 64; i++) {
        held *h = atomic_load(&mailbox[i]);
        if (!h)
            continue;
        cr_assert(intact(h));
        wf_free(h->p, h->size);
        free(h);
    }
    cr_assert_eq(stats().live_bytes, live);
    cr_assert(stats().peak_bytes > live);
    wf_alloc_trim();
    cr_assert_eq(stats().reserved_bytes, CACHING ? 0 : live, "threads returned their caches");
}

/* -- counters ---------------------------------------------------------------------------------- */

Test(alloc, counters_are_exact)
{
    static const size_t sizes[] = {1, 64, 1000, 8192, 8193, 40000, 65536, 65537, 3000000, 20000000};
    enum { N = sizeof sizes / sizeof *sizes };
    void *p[N];
    wf_alloc_stats before = stats();
    int64_t sum = 0;
    for (int i = 0; i < N; i++) {
        p[i] = wf_alloc(sizes[i]);
        sum += (int64_t)sizes[i];
        cr_assert_eq(stats().live_bytes - before.live_bytes, sum);
        cr_assert_eq(stats().peak_bytes - before.live_bytes, sum);
    }
    cr_assert_eq(stats().allocs - before.allocs, N);
    cr_assert(stats().reserved_bytes >= sum);
    for (int i = 0; i < N; i++)
        wf_free(p[i], sizes[i]);
    cr_assert_eq(stats().live_bytes, before.live_bytes);
    cr_assert_eq(stats().peak_bytes - before.live_bytes, sum);
    wf_alloc_reset_peak();
    cr_assert_eq(stats().peak_bytes, before.live_bytes);
    for (int i = 0; i < 1000; i++)
        wf_free(wf_alloc(777), 777);
    cr_assert_eq(stats().peak_bytes, before.live_bytes + 777);
}

/* A loop whose sizes change at every step reuses what it has. */
Test(alloc, loops_do_not_grow, .disabled = !CACHING)
{
    uint64_t state = 3;
    int64_t reserved = 0, peak = 0, calls = 0;
    for (int step = 0; step < 200; step++) {
        void *p[40];
        size_t size[40], scale = 1000 + next(&state) % 100000;
        for (size_t i = 0; i < 40; i++) {
            size[i] = scale * (1 + i % 7) * (i % 3 ? 1 : 4);
            p[i] = wf_alloc(size[i]);
        }
        for (size_t i = 0; i < 40; i++) {
            size_t k = i * 7 % 40;
            wf_free(p[k], size[k]);
        }
        if (step == 100) {
            reserved = stats().reserved_bytes;
            peak = stats().peak_bytes;
            calls = stats().system_allocs;
        }
    }
    cr_assert(reserved <= peak + peak / 4 + (16 << 20), "%ld for %ld", (long)reserved, (long)peak);
    cr_assert(stats().reserved_bytes <= reserved + reserved / 8);
    cr_assert(stats().system_allocs <= calls + 3);
}

/* Sizes that grow step by step: what was mapped for one is joined or returned for the next. */
Test(alloc, growing_sizes, .disabled = !CACHING)
{
    for (size_t mb = 8; mb < 512; mb += 24) {
        void *p = wf_alloc(mb << 20);
        cr_assert_not_null(p);
        wf_free(p, mb << 20);
    }
    cr_assert(stats().reserved_bytes <= (int64_t)1100 << 20, "%ld", (long)stats().reserved_bytes);
    void *keep = wf_alloc(100);
    cr_assert(wf_alloc_trim() > 0);
    cr_assert_eq(stats().reserved_bytes, 2 << 20);
    wf_free(keep, 100);
    wf_alloc_trim();
    cr_assert_eq(stats().reserved_bytes, 0);
}

/* -- blocks that wait for their next use -------------------------------------------------------- */

Test(kept, a_block_comes_back)
{
    static const size_t sizes[] = {WF_KEPT_FROM, 5000, 70000, 3000000};
    cr_assert_null(wf_kept_new(WF_KEPT_FROM - 1), "small ones are in the thread's list");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i];
        wf_kept *k = wf_kept_new(n);
        cr_assert_not_null(k);
        cr_assert_eq(wf_kept_size(k), n);
        const wf_alloc_stats before = stats();
        char *a = wf_kept_take(k), *b = wf_kept_take(k);
        cr_assert(a && b && a != b && (uintptr_t)a % 64 == 0);
        a[0] = a[n - 1] = 1;
        cr_assert_eq(stats().live_bytes - before.live_bytes, (int64_t)(2 * n));
        wf_kept_give(k, a);
        wf_kept_give(k, b); /* one waits already */
        cr_assert_eq(stats().live_bytes, before.live_bytes, "what waits is not live");
        const int64_t allocs = stats().allocs;
        for (int use = 0; use < 100; use++) {
            char *p = wf_kept_take(k);
            cr_assert_eq(p, a);
            p[0] = p[n - 1] = 1;
            cr_assert_eq(stats().live_bytes - before.live_bytes, (int64_t)n);
            wf_kept_give(k, p);
        }
        cr_assert_eq(stats().allocs, allocs, "nobody was asked");
        a = wf_kept_take(k);
        b = wf_kept_take(k);
        wf_kept_close(k); /* those that are in use go where others go */
        a[n - 1] = b[n - 1] = 1;
        wf_kept_give(k, b);
        wf_kept_give(k, a);
        cr_assert_eq(stats().live_bytes, before.live_bytes);
    }
    wf_kept_close(NULL);
}

/* What waits is given up before the system is asked, and when the caller says so. */
Test(kept, blocks_that_wait_do_not_make_the_process_larger, .disabled = !CACHING)
{
    enum { N = 8, MB = 1 << 20 };
    wf_kept *k[N];
    void *block[N];
    for (int i = 0; i < N; i++) {
        k[i] = wf_kept_new(4 * MB);
        cr_assert_not_null(k[i]);
        block[i] = wf_kept_take(k[i]);
    }
    for (int i = 0; i < N; i++) {
        wf_kept_give(k[i], block[i]);
    }
    const wf_alloc_stats full = stats();
    cr_assert_geq(full.reserved_bytes, N * 4 * MB, "each has its own");
    for (int i = 0; i < N; i++) {
        block[i] = wf_alloc(4 * MB);
        cr_assert_not_null(block[i]);
    }
    cr_assert_eq(stats().reserved_bytes, full.reserved_bytes, "made of what waited");
    cr_assert_eq(stats().system_allocs, full.system_allocs);
    for (int i = 0; i < N; i++) {
        wf_free(block[i], 4 * MB);
    }
    for (int i = 0; i < N; i++) {
        wf_kept_give(k[i], wf_kept_take(k[i]));
    }
    cr_assert_eq(stats().reserved_bytes, full.reserved_bytes);
    cr_assert_geq(wf_alloc_trim(), N * 4 * MB);
    cr_assert_eq(stats().reserved_bytes, 0);
    void *p = wf_kept_take(k[0]);
    cr_assert_not_null(p);
    wf_kept_give(k[0], p);
    for (int i = 0; i < N; i++) {
        wf_kept_close(k[i]);
    }
    wf_alloc_trim();
    cr_assert_eq(stats().reserved_bytes, 0);
}

Test(kept, no_more_than_is_worth_it)
{
    cr_assert_null(wf_kept_new((size_t)1 << 45));
    wf_alloc_fail_after(1, 1);
    cr_assert_null(wf_kept_new(10000));
    wf_alloc_fail_after(0, 0);
    wf_kept *k = wf_kept_new(10000);
    wf_alloc_fail_after(1, 1);
    cr_assert_null(wf_kept_take(k), "nothing waits");
    wf_alloc_fail_after(0, 0);
    wf_kept_give(k, wf_kept_take(k));
    wf_alloc_fail_after(1, 0);
    cr_assert_null(wf_kept_take(k), "it counts");
    wf_kept_give(k, wf_kept_take(k));
    wf_kept_close(k);
    cr_assert_eq(stats().live_bytes, 0);
}

static wf_kept *shared;

static void *use_shared(void *arg)
{
    uint64_t state = (uintptr_t)arg;
    intptr_t bad = 0;
    held mine[4] = {{.p = NULL}};
    for (int i = 0; i < STEPS; i++) {
        held *h = &mine[next(&state) % 4];
        if (h->p) {
            bad += !intact(h);
            wf_kept_give(shared, h->p);
            h->p = NULL;
        } else {
            *h = (held){wf_kept_take(shared), 10000, 0};
            bad += !h->p;
            mark(h, &state);
        }
        if (i % 5000 == 4999)
            wf_alloc_trim(); /* takes from under them what waits */
    }
    for (int i = 0; i < 4; i++) {
        if (mine[i].p)
            wf_kept_give(shared, mine[i].p);
    }
    return (void *)bad;
}

Test(kept, threads_never_have_one_block)
{
    const int64_t live = stats().live_bytes;
    pthread_t threads[THREADS];
    shared = wf_kept_new(10000);
    for (uintptr_t t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, use_shared, (void *)(t + 1));
    for (int t = 0; t < THREADS; t++) {
        void *bad;
        pthread_join(threads[t], &bad);
        cr_assert_eq((intptr_t)bad, 0);
    }
    wf_kept_close(shared);
    cr_assert_eq(stats().live_bytes, live);
}

#if UNDER_ASAN
enum { LOST = 32 };
static uintptr_t hidden[LOST]; /* not as an address */

__attribute__((noinline)) static void lose(wf_kept **k)
{
    for (int i = 0; i < LOST; i++) {
        wf_kept_give(k[i], wf_kept_take(k[i]));
        hidden[i] = ~(uintptr_t)wf_kept_take(k[i]);
    }
}

/* What waits is no leak; what was taken and is lost is one, though it has waited before. */
Test(kept, a_block_that_is_lost_is_a_leak)
{
    wf_kept *k[LOST], *other = wf_kept_new(5000);
    wf_kept_give(other, wf_kept_take(other));
    for (int i = 0; i < LOST; i++) {
        k[i] = wf_kept_new(5000);
        cr_assert_not_null(k[i]);
    }
    cr_assert_eq(__lsan_do_recoverable_leak_check(), 0);
    lose(k);
    cr_expect_neq(__lsan_do_recoverable_leak_check(), 0, "%d blocks are lost", LOST);
    for (int i = 0; i < LOST; i++) {
        wf_kept_give(k[i], (void *)~hidden[i]);
        wf_kept_close(k[i]);
    }
    wf_kept_close(other);
}
#endif

/* -- scratch, small things ---------------------------------------------------------------------- */

Test(scratch, is_asked_for_once, .disabled = !CACHING)
{
    static const size_t sizes[] = {1, 64, 1000, 40000, 300000, 70000};
    enum { N = sizeof sizes / sizeof *sizes };
    int64_t allocs = 0, sum = 0;
    wf_free(wf_alloc(1), 1); /* the thread has its lists */
    const int64_t live = stats().live_bytes;
    for (int round = 0; round < 20; round++) {
        held h[N];
        uint64_t state = (uint64_t)round + 1;
        allocs = round == 2 ? stats().allocs : allocs;
        for (int i = 0; i < N; i++) {
            h[i] = (held){wf_scratch(sizes[i]), sizes[i], 0};
            cr_assert_not_null(h[i].p);
            mark(&h[i], &state);
            sum += (int64_t)sizes[i];
        }
        cr_assert_eq(stats().live_bytes - live, sum);
        for (int i = 0; i < N; i++) { /* the latest first, the first first, in between */
            held *one = &h[round % 3 == 0 ? N - 1 - i : round % 3 == 1 ? i : (i * 5 + 2) % N];
            cr_assert(intact(one));
            wf_scratch_free(one->p, one->size);
            sum -= (int64_t)one->size;
        }
        cr_assert_eq(stats().live_bytes, live);
    }
    cr_assert_eq(stats().allocs, allocs, "the stack is as large as was needed at once");
    const size_t large = WF_SCRATCH_MOST + 1;
    void *p = wf_scratch(large);
    cr_assert_not_null(p);
    cr_assert_eq(stats().allocs, allocs + 1);
    wf_scratch_free(p, large);
    wf_scratch_free(NULL, 5);
    cr_assert_null(wf_scratch((size_t)1 << 46));
    cr_assert_eq(stats().live_bytes, live);
    wf_alloc_trim();
    cr_assert_eq(stats().reserved_bytes, 0, "it is given back");
    p = wf_scratch(100);
    cr_assert_not_null(p);
    wf_alloc_trim(); /* not while it is used */
    memset(p, 1, 100);
    wf_scratch_free(p, 100);
}

/* What found no room counts for the next stack: but not what never finds room, whenever it is given back, and what was asked
 * for while failures are planned, too. */
Test(scratch, grows_to_what_lay_beside, .disabled = !CACHING)
{
    enum { LARGE = WF_SCRATCH_MOST + 1, ROOM = 40000 };
    wf_free(wf_alloc(1), 1); /* the thread has its lists */
    for (int planned = 0; planned < 2; planned++) {
        int64_t before = 0;
        for (int round = 0; round < 3; round++) {
            before = stats().allocs;
            void *a = wf_scratch(1000);
            wf_alloc_fail_after(planned ? 1000 : 0, 0);
            void *b = wf_scratch(ROOM);
            wf_alloc_fail_after(0, 0);
            wf_scratch_free(wf_scratch(LARGE), LARGE);
            void *c = wf_scratch(ROOM);
            wf_scratch_free(c, ROOM);
            wf_scratch_free(b, ROOM);
            wf_scratch_free(a, 1000);
        }
        cr_expect_eq(stats().allocs, before + 1 + planned, "planned %d: %lld allocations", planned,
                     (long long)(stats().allocs - before));
        wf_alloc_trim();
    }
}

/* Where a larger stack is refused, requests go on beside it, and do not take from others what waits for its next use. */
Test(scratch, a_stack_that_is_refused, .disabled = !CACHING)
{
    enum { TURNS = 100, LATER = 2000, N = 5000, LARGE = WF_SCRATCH_MOST / 2 };
    wf_kept *k = wf_kept_new(N);
    void *other = wf_alloc(10);
    cr_assert(k && other);
    wf_scratch_free(wf_scratch(100), 100);
    wf_alloc_set_cap(stats().reserved_bytes);
    cr_assert_null(wf_scratch(LARGE), "the cap is met");
    wf_kept_give(k, wf_kept_take(k));
    for (int i = 0; i < TURNS; i++) {
        void *p = wf_scratch(100);
        cr_assert_not_null(p);
        memset(p, 1, 100);
        wf_scratch_free(p, 100);
    }
    int64_t allocs = stats().allocs;
    wf_kept_give(k, wf_kept_take(k));
    cr_expect_eq(stats().allocs, allocs, "the block still waited");
    wf_alloc_set_cap(0);
    for (int i = 0; i < LATER; i++) {
        wf_scratch_free(wf_scratch(100), 100);
    }
    allocs = stats().allocs;
    void *p = wf_scratch(LARGE);
    cr_expect(p && stats().allocs == allocs, "the stack is had later");
    wf_scratch_free(p, LARGE);
    wf_kept_close(k);
    wf_free(other, 10);
}

Test(scratch, fails_as_planned)
{
    wf_scratch_free(wf_scratch(1000), 1000);
    wf_free(wf_object(100), 100);
    wf_alloc_fail_after(1, 0);
    cr_assert_null(wf_scratch(1000));
    wf_alloc_fail_after(1, 0);
    cr_assert_null(wf_object(100));
    void *p = wf_scratch(1000);
    cr_assert_not_null(p);
    wf_scratch_free(p, 1000);
    cr_assert_eq(stats().live_bytes, 0);
}

/* Small things count where the thread's list had none. */
Test(alloc, objects_are_counted_where_they_are_asked_for, .disabled = !CACHING)
{
    enum { N = 500 };
    void *p[N];
    for (int i = 0; i < N; i++)
        p[i] = wf_object(128);
    const wf_alloc_stats most = stats();
    cr_assert(most.allocs > 0 && most.live_bytes == N * 128);
    for (int i = 0; i < N; i++)
        wf_free(p[i], 128);
    for (int i = 0; i < N; i++)
        p[i] = wf_object(128);
    cr_assert_eq(stats().allocs, most.allocs);
    for (int i = 0; i < N; i++)
        wf_free(p[i], 128);
    wf_mfree(wf_malloc(1));
    cr_assert_eq(stats().mallocs, most.mallocs + 1);
    wf_alloc_trim();
    cr_assert_eq(stats().reserved_bytes, 0);
}

/* -- failures ---------------------------------------------------------------------------------- */

Test(alloc, planned_failures)
{
    int64_t live = stats().live_bytes;
    wf_free(wf_alloc(100), 100); /* so that the thread's cache holds one */
    for (int n = 1; n < 6; n++) {
        wf_alloc_fail_after(n, 0);
        for (int i = 1; i < 9; i++) {
            void *p = i % 2 ? wf_alloc(100) : wf_malloc(100);
            cr_assert_eq(p == NULL, i == n);
            if (i % 2)
                wf_free(p, 100);
            else
                wf_mfree(p);
        }
        wf_alloc_fail_after(n, 1);
        for (int i = 1; i < 9; i++) {
            void *p = wf_alloc(1 << 20);
            cr_assert_eq(p == NULL, i >= n);
            wf_free(p, 1 << 20);
        }
    }
    void *block = NULL;
    wf_alloc_fail_after(0, 0);
    cr_assert_not_null(block = wf_malloc(10));
    wf_alloc_fail_after(1, 0);
    cr_assert_null(wf_realloc(block, 20));
    cr_assert_not_null(block = wf_realloc(block, 20));
    wf_mfree(block);
    /* a plan far away must not change how caches work */
    wf_alloc_fail_after(1 << 20, 0);
    int64_t reserved = 0;
    for (int i = 0; i < 20000; i++) {
        wf_free(wf_alloc(4000), 4000);
        if (i == 100)
            reserved = stats().reserved_bytes;
    }
    cr_assert_eq(stats().reserved_bytes, reserved);
    cr_assert_eq(stats().live_bytes, live);
}

Test(alloc, stress_by_environment)
{
    setenv("WEFT_STRESS", "oom:3", 1);
    for (int i = 1; i < 6; i++) {
        void *p = wf_alloc(10);
        cr_assert_eq(p == NULL, i == 3);
        wf_free(p, 10);
    }
}

Test(alloc, cap, .disabled = !CACHING)
{
    setenv("WEFT_ALLOC_CAP", "64M", 1);
    void *a = wf_alloc((size_t)40 << 20);
    cr_assert_not_null(a);
    cr_assert_null(wf_alloc((size_t)40 << 20));
    wf_free(a, (size_t)40 << 20);
    void *b = wf_alloc((size_t)60 << 20);
    cr_assert_not_null(b, "the cache is returned before a request is refused");
    cr_assert(stats().reserved_bytes <= 64 << 20);
    wf_free(b, (size_t)60 << 20);
}

/* -- huge pages --------------------------------------------------------------------------------- */

/* "VmFlags" of the mapping that holds p, as /proc/self/smaps has them; false if it has none. */
static bool flags_of(const void *p, char *flags, size_t size)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    bool inside = false, found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned long lo, hi;
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2) {
            inside = lo <= (unsigned long)p && (unsigned long)p < hi;
        } else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            snprintf(flags, size, "%s", line + 8);
            found = true;
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

Test(alloc, large_blocks_lie_in_huge_pages, .disabled = !CACHING)
{
    char flags[512];
    size_t size = (size_t)8 << 20;
    char *p = wf_alloc(size);
    cr_assert_not_null(p);
    cr_assert_eq((uintptr_t)p % ((size_t)2 << 20), 0);
    memset(p, 1, size);
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0 ||
        !flags_of(p, flags, sizeof flags)) {
        wf_free(p, size);
        cr_skip_test("this kernel has no transparent huge pages, or does not say where");
    }
    cr_assert(strstr(flags, " hg"), "huge pages are not advised:%s", flags);
    wf_free(p, size);
}
