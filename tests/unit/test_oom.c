/*
 * tests/unit/test_oom.c -- host memory that could not be had: the error and the report of who holds it.
 */
#include <criterion/criterion.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sanitized.h"
#include "weft/weft.h"

#if UNDER_ASAN
#define CAPPED 0 /* blocks are the system's, and the cap is not looked at */
#else
#define CAPPED 1
#endif

static void has(const char *text, const char *what)
{
    cr_expect(strstr(text, what), "no \"%s\" in\n%s", what, text);
}

Test(oom, the_report_names_the_holders, .disabled = !CAPPED)
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
