/*
 * tests/support/elements.c -- elements of every type from and to long double, the ULP measure, random
 * numbers.
 *
 * Invariant: written from the definitions of the formats, not from the library's conversions.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "tests/support/support.h"

typedef struct format {
    int precision, emin, emax; /* of 1.xxx * 2^e */
} format;

static const format formats[WEFT_DTYPE_COUNT] = {
    [WEFT_F16] = {11, -14, 15},
    [WEFT_BF16] = {8, -126, 127},
    [WEFT_F32] = {24, -126, 127},
    [WEFT_F64] = {53, -1022, 1023},
};

bool test_is_float(int dtype)
{
    return formats[dtype].precision != 0;
}

int test_bits(int dtype)
{
    return dtype == WEFT_BOOL ? 1 : (int)weft_dtype_size((weft_dtype)dtype) * CHAR_BIT;
}

bool test_is_signed(int dtype)
{
    return dtype != WEFT_BOOL && dtype != WEFT_U8;
}

/* A 16-bit format with `bits` of stored significand. */
static long double decode16(uint16_t h, int bits, int bias)
{
    int field = (1 << (15 - bits)) - 1;
    int e = (h >> bits) & field, m = h & ((1 << bits) - 1);
    long double x = e == field ? (m ? (long double)NAN : (long double)INFINITY)
                    : e == 0   ? scalbnl(m, 1 - bias - bits)
                               : scalbnl(m + (1 << bits), e - bias - bits);
    return h & 0x8000 ? -x : x;
}

static uint16_t encode16(long double x, int bits, int bias)
{
    int sign = signbit(x) ? 0x8000 : 0;
    int field = (1 << (15 - bits)) - 1;
    long double a = fabsl(x);
    if (isnan(x)) {
        return (uint16_t)(sign | field << bits | 1 << (bits - 1));
    }
    if (isinf(x)) {
        return (uint16_t)(sign | field << bits);
    }
    if (a == 0) {
        return (uint16_t)sign;
    }
    int e = ilogbl(a);
    if (e < 1 - bias) {
        return (uint16_t)(sign | (int)scalbnl(a, bias - 1 + bits));
    }
    return (uint16_t)(sign | (e + bias) << bits | ((int)scalbnl(a, bits - e) - (1 << bits)));
}

long double test_load(const void *p, int dtype)
{
    union {
        uint8_t u8;
        int8_t i8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } v = {0};
    memcpy(&v, p, weft_dtype_size((weft_dtype)dtype));
    switch (dtype) {
    case WEFT_I8:
        return v.i8;
    case WEFT_I16:
        return v.i16;
    case WEFT_I32:
        return v.i32;
    case WEFT_I64:
        return v.i64;
    case WEFT_F16:
        return decode16(v.u16, 10, 15);
    case WEFT_BF16:
        return decode16(v.u16, 7, 127);
    case WEFT_F32:
        return v.f32;
    case WEFT_F64:
        return v.f64;
    default:
        return v.u8;
    }
}

long double test_largest(int dtype)
{
    const format *f = &formats[dtype];
    return scalbnl(2 - scalbnl(1, 1 - f->precision), f->emax);
}

/* Exponent of the last place at x. */
static int last_place(int dtype, long double x)
{
    const format *f = &formats[dtype];
    int e = x == 0 || isnan(x) ? f->emin : ilogbl(x);
    e = e < f->emin ? f->emin : e > f->emax ? f->emax : e;
    return e - (f->precision - 1);
}

long double test_round(int dtype, long double x)
{
    if (x == 0 || isnan(x) || isinf(x)) {
        return x;
    }
    int last = last_place(dtype, x);
    long double r = scalbnl(rintl(scalbnl(x, -last)), last);
    return fabsl(r) > test_largest(dtype) ? copysignl(INFINITY, x) : copysignl(r, x);
}

void test_store(void *p, int dtype, long double x)
{
    if (test_is_float(dtype)) {
        long double r = test_round(dtype, x);
        float f32 = (float)r;
        double f64 = (double)r;
        uint16_t h = dtype == WEFT_F16 ? encode16(r, 10, 15) : encode16(r, 7, 127);
        const void *from = dtype == WEFT_F32   ? (const void *)&f32
                           : dtype == WEFT_F64 ? (const void *)&f64
                                               : (const void *)&h;
        memcpy(p, from, weft_dtype_size((weft_dtype)dtype));
        return;
    }
    uint64_t u = dtype == WEFT_BOOL ? x != 0 : (uint64_t)(__int128)x;
    memcpy(p, &u, weft_dtype_size((weft_dtype)dtype)); /* little-endian: the low bytes */
}

double test_ulp(int dtype, long double want, long double got)
{
    const format *f = &formats[dtype];
    if (isnan(want) || isnan(got)) {
        return isnan(want) && isnan(got) ? 0 : (double)INFINITY;
    }
    if (isinf(want)) {
        return got == want ? 0 : (double)INFINITY;
    }
    if (got == 0 && signbit(got) != signbit(want)) {
        return (double)INFINITY; /* zeros and underflows keep the sign */
    }
    long double out = scalbnl(1, f->emax + 1);
    long double w = fabsl(want) > out ? copysignl(out, want) : want;
    long double g = isinf(got) ? copysignl(out, got) : got;
    return (double)scalbnl(fabsl(g - w), -last_place(dtype, want));
}

long double test_place(int dtype, long double x)
{
    return scalbnl(1, last_place(dtype, x));
}

double test_allowed(int dtype, double budget, long double want, long double scale)
{
    /* References are good to a few units of a 64-bit significand; f32 rows may round f64 values. */
    long double here = test_place(dtype, want);
    if (isnan(want) || isinf(want)) {
        return 0;
    }
    switch (dtype) {
    case WEFT_F16:
    case WEFT_BF16:
        return (double)(0.5L + (budget == 0 ? 0.5L : (long double)budget) *
                                   test_place(WEFT_F32, scale) / here);
    case WEFT_F32:
        return (double)((budget == 0 ? 0.5L + 0x1p-28L : (long double)budget) *
                        test_place(dtype, scale) / here);
    default:
        return (double)((budget == 0 ? 0.5L + 0x1p-9L : 2.0L) * test_place(dtype, scale) / here);
    }
}

uint64_t test_next(test_rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

double test_uniform(test_rng *r, double lo, double hi)
{
    return lo + (hi - lo) * ((double)(test_next(r) >> 11) * 0x1p-53);
}

int64_t test_between(test_rng *r, int64_t lo, int64_t hi)
{
    uint64_t span = (uint64_t)hi - (uint64_t)lo + 1;
    return (int64_t)((uint64_t)lo + (span ? test_next(r) % span : test_next(r)));
}
