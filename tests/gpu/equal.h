/*
 * tests/gpu/equal.h -- the same element type, number of elements and bits, wherever the tensors are.
 */
#ifndef TESTS_GPU_EQUAL_H
#define TESTS_GPU_EQUAL_H

#include <stdlib.h>
#include <string.h>

#include "tests/gpu/runner.h"
#include "weft/weft.h"

static void check_equal(const char *what, weft_tensor a, weft_tensor b)
{
    int64_t n = weft_numel(a);
    size_t bytes = (size_t)n * weft_dtype_size(weft_dtype_of(a));
    cr_assert_eq(weft_dtype_of(a), weft_dtype_of(b));
    cr_assert_eq(n, weft_numel(b), "%s", what);
    char *p = malloc(bytes + 1), *q = malloc(bytes + 1);
    cr_assert_eq(weft_to_array(a, p, n, WEFT_DTYPE_DEFAULT), WEFT_OK);
    cr_assert_eq(weft_to_array(b, q, n, WEFT_DTYPE_DEFAULT), WEFT_OK, "%s", weft_last_error());
    cr_assert(memcmp(p, q, bytes) == 0, "%s: bits differ", what);
    free(p);
    free(q);
}

#endif
