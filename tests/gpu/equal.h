/*
 * tests/gpu/equal.h -- the same element type, number of elements and bits, wherever the tensors are. A NaN is a NaN: which one is
 * left open (a GPU's arithmetic makes another one than a CPU's).
 */
#ifndef TESTS_GPU_EQUAL_H
#define TESTS_GPU_EQUAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/runner.h"
#include "weft/weft.h"

/* Is the element of this type, by its bits, a NaN? */
static inline bool is_nan(weft_dtype t, const char *p)
{
    const uint64_t infinity = t == WEFT_F64    ? UINT64_C(0x7FF) << 52
                              : t == WEFT_F32  ? 0x7F800000
                              : t == WEFT_F16  ? 0x7C00
                              : t == WEFT_BF16 ? 0x7F80
                                               : UINT64_MAX;
    const size_t size = weft_dtype_size(t);
    uint64_t bits = 0;
    memcpy(&bits, p, size);
    return (bits & ~(UINT64_C(1) << (8 * size - 1))) > infinity;
}

static void check_equal(const char *what, weft_tensor a, weft_tensor b)
{
    int64_t n = weft_numel(a);
    size_t bytes = (size_t)n * weft_dtype_size(weft_dtype_of(a));
    cr_assert_eq(weft_dtype_of(a), weft_dtype_of(b), "%s: %s, %s", what,
                 weft_ok(a) ? "is" : weft_error_text(a), weft_ok(b) ? "is" : weft_error_text(b));
    cr_assert_eq(n, weft_numel(b), "%s", what);
    char *p = malloc(bytes + 1), *q = malloc(bytes + 1);
    cr_assert_eq(weft_to_array(a, p, n, WEFT_DTYPE_DEFAULT), WEFT_OK);
    cr_assert_eq(weft_to_array(b, q, n, WEFT_DTYPE_DEFAULT), WEFT_OK, "%s", weft_last_error());
    const size_t size = weft_dtype_size(weft_dtype_of(a));
    for (size_t i = 0; i < bytes; i += size) {
        const bool same = memcmp(p + i, q + i, size) == 0 ||
                          (is_nan(weft_dtype_of(a), p + i) && is_nan(weft_dtype_of(a), q + i));
        cr_assert(same, "%s: bits differ at element %d", what, (int)(i / size));
    }
    free(p);
    free(q);
}

/* All that optimisers of one kind keep. */
static inline void check_optims(const char *what, const weft_optim *a, const weft_optim *b)
{
    char name[128];
    for (int i = 0; i < weft_optim_state_count(a); i++) {
        snprintf(name, sizeof name, "%s: %s", what, weft_optim_state(a)[i].name);
        check_equal(name, weft_optim_state(a)[i].tensor, weft_optim_state(b)[i].tensor);
    }
}

#endif
