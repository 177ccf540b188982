/*
 * tests/jit/values.h -- operands of the kernel tests: special values, every pair of them, and random
 * ones of all magnitudes; and equality of bits in which any NaN equals any NaN.
 */
#ifndef TESTS_JIT_VALUES_H
#define TESTS_JIT_VALUES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/dtype.h"

static inline uint64_t values_hash(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static inline bool values_same(uint64_t a, uint64_t b, int dtype)
{
    if (a == b)
        return true;
    const uint64_t m = dtype == WEFT_F16    ? 0x7C00
                       : dtype == WEFT_BF16 ? 0x7F80
                       : dtype == WEFT_F32  ? 0x7F800000u
                       : dtype == WEFT_F64  ? 0x7FF0000000000000u
                                            : UINT64_MAX;
    const uint64_t s = dtype == WEFT_F64 ? INT64_MAX : dtype == WEFT_F32 ? INT32_MAX : 0x7FFF;
    return (a & s) > m && (b & s) > m;
}

/* One element from a double; integers from its value where it fits, else from its bits. */
static inline void values_put(void *p, int dtype, int64_t i, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int64_t n = fabs(x) < 9e18 ? (int64_t)x : (int64_t)bits;
    const float f = (float)x;
    switch ((weft_dtype)dtype) {
    case WEFT_BOOL:
        ((uint8_t *)p)[i] = bits % 3 != 0;
        return;
    case WEFT_U8:
    case WEFT_I8:
        ((uint8_t *)p)[i] = (uint8_t)n;
        return;
    case WEFT_I16:
        ((uint16_t *)p)[i] = (uint16_t)n;
        return;
    case WEFT_I32:
        ((uint32_t *)p)[i] = (uint32_t)n;
        return;
    case WEFT_I64:
        ((int64_t *)p)[i] = n;
        return;
    case WEFT_F16:
        ((uint16_t *)p)[i] = wf_f16_of_f32(f);
        return;
    case WEFT_BF16:
        ((uint16_t *)p)[i] = wf_bf16_of_f32(f);
        return;
    case WEFT_F32:
        ((float *)p)[i] = f;
        return;
    case WEFT_F64:
        ((double *)p)[i] = x;
        return;
    case WEFT_DTYPE_DEFAULT:
    case WEFT_DTYPE_COUNT:
        return;
    }
}

/* Operand `which` of n elements: pairs of special values first (operand 0 runs slowest), then random
 * ones, some of all exponents. */
static inline void *values_made(int dtype, int64_t n, int which)
{
    static const double special[] = {
        0.0,      -0.0,   1.0,      -1.0,   INFINITY, -INFINITY, NAN,    0.5,     -2.0,
        3.0,      -7.0,   127.0,    -128.0, 255.0,    1e5,       -1e10,  4e9,     1e30,
        0x1p-149, -1e-40, 0x1p-126, 3.4e38, 0x1p-24,  1e-310,    1e300,  -1e-300, 65519.0,
        65520.0,  88.7,   -104.0,   710.0,  -745.5,   0x1p17,    131073, 0x1p63,  -0x1p63};
    enum { NSPECIAL = sizeof special / sizeof *special };
    char *p = calloc((size_t)n + 1, 8);
    int64_t power = 1;
    for (int w = 0; p && w < which; w++)
        power *= w < 2 ? NSPECIAL : 1;
    for (int64_t i = 0; p && i < n; i++) {
        const uint64_t r = values_hash((uint64_t)i * 8 + (uint64_t)which);
        const double u = (double)(r >> 11) * 0x1p-53 * 2 - 1;
        double x;
        if (i < n / 2)
            x = special[(i / power + i % 7 * (which > 1)) % NSPECIAL];
        else if (r % 4 == 0)
            x = ldexp(u, (int)(r >> 3) % (dtype == WEFT_F64 ? 1070 : 150));
        else
            x = r % 4 == 1 ? u : r % 4 == 2 ? u * 20 : u * 1000;
        if (i >= n / 2 && r % 8 == 4)
            x = special[r / 8 % NSPECIAL];
        values_put(p, dtype, i, x);
    }
    return p;
}

/* The same as memory of the caller. Cases of a list ask for the same ones again and again: those of the last ones are kept. */
static inline void *values_new(int dtype, int64_t n, int which)
{
    enum { KEPT = 64 };
    static struct {
        void *data;
        int64_t n;
        int dtype, which;
    } kept[KEPT];
    const uint64_t at = values_hash((uint64_t)n * 4096 + (uint64_t)dtype * 256 + (uint64_t)which);
    void **data = &kept[at % KEPT].data;
    if (!*data || kept[at % KEPT].n != n || kept[at % KEPT].dtype != dtype ||
        kept[at % KEPT].which != which) {
        free(*data);
        *data = values_made(dtype, n, which);
        kept[at % KEPT].n = n;
        kept[at % KEPT].dtype = dtype;
        kept[at % KEPT].which = which;
    }
    const size_t used = (size_t)n * wf_dtype_size(dtype);
    char *p = malloc(((size_t)n + 1) * 8);
    if (p && *data) {
        memcpy(p, *data, used);
        memset(p + used, 0, ((size_t)n + 1) * 8 - used);
    }
    return p;
}

/* Finite values around 1, for sums. */
static inline void *values_ordinary(int dtype, int64_t n, int seed)
{
    char *p = calloc((size_t)n + 1, 8);
    for (int64_t i = 0; p && i < n; i++) {
        const uint64_t r = values_hash((uint64_t)i * 64 + (uint64_t)seed);
        values_put(p, dtype, i, ((double)(r >> 11) * 0x1p-53 * 2 - 1) * (r % 3 ? 1 : 100));
    }
    return p;
}

#endif
