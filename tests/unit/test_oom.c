/*
 * tests/unit/test_oom.c -- host memory that could not be had: the error and the report of who holds it; the cap; memory from a
 * program's own allocator.
 *
 * ctest: threads
 */
#include <criterion/criterion.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sanitized.h"
#include "weft/jit.h"
#include "weft/weft.h"

enum { MIB = 1 << 20 };

static void has(const char *text, const char *what)
{
    cr_expect(strstr(text, what), "no \"%s\" in\n%s", what, text);
}

Test(oom, the_report_names_the_holders)
{
    char here[64];
    setenv("WEFT_ALLOC_CAP", "64M", 1);
    cr_assert_str_eq(weft_oom_report(), "");
    weft_scope sc = weft_scope_begin();
    weft_tensor small = weft_zeros(weft_shape(1 << 20), WEFT_F32);
    weft_tensor big = weft_keep(weft_zeros(weft_shape(10 << 20), WEFT_F32));
    snprintf(here, sizeof here, "test_oom.c:%d", __LINE__ - 1);
    weft_set_name(big, "weights");
    cr_assert(weft_ok(small) && weft_ok(big));
    weft_tensor none = weft_zeros(weft_shape(8 << 20), WEFT_F32);
    cr_assert_eq(weft_error_status(none), WEFT_ENOMEM);
    has(weft_error_text(none), "32.00 MiB asked for, weft holds");
    has(weft_error_text(none), "raise WEFT_ALLOC_CAP");
    has(weft_error_text(none), "weft_oom_report()");
    const char *report = weft_oom_report(), *first, *second;
    has(report, "requested            32.00 MiB\n");
    has(report, "44.00 MiB in use");
    has(report, "cap                  64.00 MiB\n");
    has(report, "tensors              2, 1 of them kept\n");
    has(report, "what to do: raise WEFT_ALLOC_CAP");
    first = strstr(report, "40.00 MiB  f32[10485760] 'weights' (made at ");
    second = strstr(report, "4.00 MiB  f32[1048576] (made at ");
    cr_expect(first && second && first < second, "%s", report);
    has(report, here);
    weft_free(big); /* what it says can be done */
    cr_expect(weft_ok(weft_zeros(weft_shape(8 << 20), WEFT_F32)), "%s", weft_last_error());
    weft_scope_end(sc);
}

Test(oom, other_errors_leave_it)
{
    weft_tensor none = weft_zeros(weft_shape((int64_t)1 << 50), WEFT_F32);
    cr_assert_eq(weft_error_status(none), WEFT_ENOMEM);
    has(weft_oom_report(), "requested            4096.00 TiB\n");
    has(weft_oom_report(), "make the batch smaller");
    none = weft_zeros(weft_shape(INT64_MAX, INT64_MAX), WEFT_F32); /* no request was made */
    cr_assert_eq(weft_error_status(none), WEFT_ENOMEM);
    cr_expect_null(strstr(weft_error_text(none), "asked for"), "%s", weft_error_text(none));
    has(weft_oom_report(), "4096.00 TiB");
}

static _Atomic int over;

static void *rename_kept(void *unused)
{
    char name[64];
    for (unsigned k = 0; !over; k++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor t = weft_keep(weft_zeros(weft_shape(1000), WEFT_F32));
        for (int i = 0; i < 20; i++) {
            snprintf(name, sizeof name, "a name that changes %u times", k);
            weft_set_name(t, name);
        }
        weft_free(t);
        weft_scope_end(sc);
    }
    return unused;
}

/* Kept tensors of other threads are described while these rename them. */
Test(oom, names_that_change)
{
    pthread_t other[2];
    mallopt(M_PERTURB, 0xA5); /* what is freed is no name any more */
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(pthread_create(&other[i], NULL, rename_kept, NULL), 0);
    }
    for (int i = 0; i < 20000; i++) {
        weft_zeros(weft_shape((int64_t)1 << 50), WEFT_F32);
        for (const char *p = weft_oom_report(); (p = strstr(p, "] '")); p += 3) {
            cr_assert(strncmp(p + 3, "a name that changes ", 20) == 0, "%.60s", p);
        }
    }
    over = 1;
    for (int i = 0; i < 2; i++) {
        pthread_join(other[i], NULL);
    }
}

/* -- the cap and a program's own allocator ----------------------------------------------------------------------- */

/* Counts without atomics: it is never called twice at once. */
typedef struct source {
    int64_t held, most, given, released;
    int mode; /* GIVE, ... */
} source;
enum { GIVE, NONE_LEFT, CROOKED };

static void *give(void *user, size_t bytes, size_t alignment)
{
    source *s = user;
    void *p = NULL;
    if (s->mode == NONE_LEFT || alignment < 64 || (alignment & (alignment - 1)) ||
        posix_memalign(&p, alignment, bytes + (s->mode == CROOKED ? 8 : 0)) != 0) {
        return NULL;
    }
    s->given++;
    s->held += (int64_t)bytes;
    s->most = s->held > s->most ? s->held : s->most;
    return s->mode == CROOKED ? (char *)p + 8 : p;
}

static void take_back(void *user, void *p, size_t bytes)
{
    source *s = user;
    s->released++;
    s->held -= (int64_t)bytes;
    free(s->mode == CROOKED ? (char *)p - 8 : p);
}

static void use(source *s)
{
    const weft_allocator a = {give, take_back, s};
    cr_assert_eq(weft_memory_set_allocator(s ? &a : NULL), WEFT_OK, "%s", weft_last_error());
}

static void all_is_back(const source *s)
{
    weft_memory_trim();
    cr_expect(s->given > 0 && s->given == s->released && s->held == 0,
              "%lld pieces given, %lld released, %lld bytes out", (long long)s->given,
              (long long)s->released, (long long)s->held);
}

static weft_memory_stats stats(void)
{
    weft_memory_stats m;
    weft_memory_get_stats(&m);
    return m;
}

enum { THREADS = 4, HELD = 16, TURNS = 100, CAP = 32 * MIB };

/* A thread by itself would hold 64 MiB, so that the cap is met whoever runs when. */
static void *take_all(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    weft_tensor held[HELD] = {{0}};
    intptr_t refused = 0;
    for (int i = 0; i < TURNS; i++) {
        weft_scope sc = weft_scope_begin();
        random = random * 6364136223846793005u + 1442695040888963407u;
        weft_tensor *t = &held[random >> 60];
        const int64_t bytes = i < 2 * HELD ? 4 * MIB : (int64_t)(random >> 33) % (4 * MIB);
        weft_free(*t);
        *t = weft_keep(weft_zeros(weft_shape(bytes), WEFT_U8));
        refused += !weft_ok(*t);
        refused += weft_ok(*t) || weft_error_status(*t) == WEFT_ENOMEM ? 0 : TURNS * 1000;
        *t = weft_ok(*t) ? *t : WEFT_NONE;
        weft_scope_end(sc);
    }
    for (int i = 0; i < HELD; i++) {
        weft_free(held[i]);
    }
    return (void *)refused;
}

Test(oom, the_cap_is_never_exceeded)
{
    static source s;
    pthread_t threads[THREADS];
    use(&s);
    cr_assert_eq(weft_memory_set_cap(CAP), WEFT_OK);
    cr_assert_eq(stats().cap_bytes, CAP);
    for (uintptr_t i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, take_all, (void *)(i + 1)), 0);
    }
    for (int i = 0; i < 100; i++) {
        cr_expect(stats().reserved_bytes <= CAP);
    }
    intptr_t refused = 0;
    for (int i = 0; i < THREADS; i++) {
        void *n;
        pthread_join(threads[i], &n);
        refused += (intptr_t)n;
    }
    cr_expect(refused > 0 && refused < THREADS * TURNS, "%ld requests were refused", (long)refused);
    cr_expect(s.most <= CAP && s.most > CAP / 2, "%lld bytes at once", (long long)s.most);
    all_is_back(&s);
    use(NULL);
}

Test(oom, a_cap_can_be_raised_and_takes_nothing_away)
{
    weft_tensor a = weft_keep(weft_zeros(weft_shape(8 * MIB), WEFT_U8)), b = a;
    cr_assert_eq(weft_memory_set_cap(-1), WEFT_EINVALID);
    has(weft_last_error(), "a cap of -1 bytes is negative");
    cr_assert_eq(weft_memory_set_cap(4 * MIB), WEFT_OK);
    cr_assert_eq(((const uint8_t *)weft_data(a))[8 * MIB - 1], 0);
    cr_assert_eq(weft_error_status(weft_zeros(weft_shape(8 * MIB), WEFT_U8)), WEFT_ENOMEM);
    has(weft_oom_report(), "cap                  4.00 MiB\n");
    has(weft_oom_report(), "what to do: raise WEFT_ALLOC_CAP or weft_memory_set_cap");
    /* what is cached makes room for another size */
    cr_assert_eq(weft_memory_set_cap(24 * MIB), WEFT_OK);
    for (int64_t n = 1; n <= 12; n++) {
        b = weft_zeros(weft_shape(n * MIB), WEFT_U8);
        cr_expect(weft_ok(b), "%d MiB: %s", (int)n, weft_last_error());
        weft_free(b);
        cr_expect(stats().reserved_bytes <= 24 * MIB);
    }
    cr_assert_eq(weft_memory_set_cap(0), WEFT_OK);
    cr_assert_eq(stats().cap_bytes, 0);
    cr_assert(weft_ok(weft_zeros(weft_shape(64 * MIB), WEFT_U8)));
    weft_free(a);
}

Test(oom, an_allocator_of_ones_own)
{
    static source first, second;
    weft_tensor early = weft_keep(weft_ones(weft_shape(MIB), WEFT_F32)); /* the system's */
    const weft_allocator half = {.allocate = give};
    cr_assert_eq(weft_memory_set_allocator(&half), WEFT_EINVALID);
    has(weft_last_error(), "release is NULL");
    use(&first);
    weft_tensor a = weft_keep(weft_ones(weft_shape(MIB), WEFT_F32)),
                small = weft_keep(weft_ones(weft_shape(300), WEFT_F32));
    cr_expect(first.held >= 4 * MIB, "%lld", (long long)first.held);
    use(&second);
    weft_tensor b = weft_keep(weft_add(a, early));
    cr_expect(second.held >= 4 * MIB, "%lld", (long long)second.held);
    weft_scope sc = weft_scope_begin();
    cr_assert_eq(weft_item_f64(weft_sum(weft_add(b, weft_sum(small)))), 302.0 * (double)MIB);
    weft_scope_end(sc);
    /* none, and one that is not aligned: errors, and nothing is lost */
    const int64_t given = second.given;
    second.mode = NONE_LEFT;
    weft_tensor none = weft_zeros(weft_shape(64 * MIB), WEFT_U8);
    cr_assert_eq(weft_error_status(none), WEFT_ENOMEM);
    has(weft_error_text(none), "the allocator that the program set gave none");
    cr_assert_eq(second.given, given);
    source crooked = {.mode = CROOKED};
    use(&crooked);
    none = weft_zeros(weft_shape(64 * MIB), WEFT_U8);
    cr_assert_eq(weft_error_status(none), WEFT_ENOMEM);
    cr_expect(crooked.given > 0 && crooked.given == crooked.released && crooked.held == 0);
    second.mode = GIVE;
    use(NULL);
    cr_assert(weft_ok(weft_zeros(weft_shape(64 * MIB), WEFT_U8)));
    weft_free(early);
    weft_free(a);
    weft_free(b);
    weft_free(small);
    all_is_back(&first);
    all_is_back(&second);
}

static weft_status squared(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = weft_cumsum(weft_square(in[0]), 0);
    return weft_error_status(out[0]);
}

/* What a traced function keeps for its next call goes back to where it came from. */
Test(oom, what_waits_for_the_next_call_goes_back)
{
    enum { N = 2048 };
    static source s;
    use(&s);
    weft_jit *j = weft_jit_trace(squared, NULL, .synchronous = true, .always_record = true);
    for (int i = 0; i < 3; i++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x = weft_ones(weft_shape(N), WEFT_F32), y;
        cr_assert_eq(weft_jit_call(j, &x, 1, &y, 1), WEFT_OK, "%s", weft_last_error());
        cr_expect_eq(((const float *)weft_data(y))[N - 1], N);
        weft_scope_end(sc);
    }
    const int64_t before = s.released;
    weft_memory_trim();
    cr_expect(!SYSTEM_BLOCKS || s.released > before); /* else a piece goes when all of it is free */
    weft_jit_free(j);
    all_is_back(&s);
    use(NULL);
}
