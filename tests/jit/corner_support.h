/*
 * tests/jit/corner_support.h -- traced functions in a line or two, for the tests of what weft/jit.h defines.
 */
#ifndef TESTS_JIT_CORNER_SUPPORT_H
#define TESTS_JIT_CORNER_SUPPORT_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "tests/support/support.h"

#define OK(call) cr_assert_eq(call, WEFT_OK, "%s", weft_last_error())
#define FN(name)                                                                                   \
    static weft_status name(                                                                       \
        __attribute__((unused)) void *self, __attribute__((unused)) const weft_tensor *in,         \
        __attribute__((unused)) int n_in, __attribute__((unused)) weft_tensor *out,                \
        __attribute__((unused)) int n_out)

static inline weft_tensor vector(int n, double first)
{
    return weft_arange(first, first + n, 1, WEFT_F32);
}

static inline weft_tensor leaf(int n, double first)
{
    weft_tensor t = weft_clone(vector(n, first));
    OK(weft_requires_grad_(t, true));
    return t;
}

static inline float at(weft_tensor t, int i)
{
    float v[64];
    cr_assert_leq(weft_numel(t), 64);
    OK(weft_to_array(t, v, weft_numel(t), WEFT_F32));
    return v[i];
}

static inline weft_jit_stats stats_of(weft_jit *j)
{
    weft_jit_stats s;
    weft_jit_get_stats(j, &s);
    return s;
}

/* All reasons of j why calls were not frozen or replayed, a line each. */
static inline const char *reasons(weft_jit *j)
{
    static char all[8192];
    weft_jit_reason r[32];
    int n = weft_jit_reasons(j, r, 32);
    all[0] = '\0';
    for (int i = 0; i < n && i < 32; i++) {
        strcat(strcat(all, r[i].text), "\n");
    }
    return all;
}

static inline bool has_reason(weft_jit *j, const char *says)
{
    return strstr(reasons(j), says) != NULL;
}

#endif
