/*
 * tests/fuzz/arguments.h -- random arguments for public functions: operands that are live, dead, kept, another thread's,
 * empty, error values, scalars or random bits; numbers that are small, negative or near the ends of int64; NULL.
 */
#ifndef TESTS_FUZZ_ARGUMENTS_H
#define TESTS_FUZZ_ARGUMENTS_H

#include <math.h>

#include "tests/support/rows.h"

enum { LIVE = 40, DEAD = 8, FOREIGN = 4, LIST = 8 };

typedef struct arguments {
    weft_tensor t[4];
    int64_t i[6];
    double d[3];
    weft_shape s[5];
    weft_dtype dtype;
    bool flag[2];
    int n;
    bool passes_on; /* an operand is an error already: its own text goes on */
    weft_tensor list[LIST];
} arguments;

static weft_tensor live[LIVE], dead[DEAD], foreign[FOREIGN];
static test_rng rng;
static bool odd(int one_in)
{
    return test_next(&rng) % (uint64_t)one_in == 0;
}

/* -- operands ----------------------------------------------------------------------------------------- */

static weft_tensor fresh(void)
{
    static const int64_t shapes[][5] = {{0, 0, 0, 0, 0}, {1, 5, 0, 0, 0}, {2, 3, 4, 0, 0},
                                        {2, 4, 4, 0, 0}, {3, 2, 3, 4, 0}, {4, 2, 2, 5, 5},
                                        {2, 0, 3, 0, 0}, {1, 3, 0, 0, 0}, {1, 2, 0, 0, 0}};
    const int64_t *s = shapes[test_next(&rng) % (sizeof shapes / sizeof *shapes)];
    weft_dtype dt = odd(2) ? WEFT_F32 : (weft_dtype)test_between(&rng, WEFT_BOOL, WEFT_F64);
    int64_t v = test_between(&rng, dt == WEFT_U8 ? 0 : -1, 2); /* one that every type holds */
    weft_tensor t = weft_full(weft_shape_from(s[0], s + 1), (double)v, dt);
    if (odd(4)) {
        t = weft_keep(t);
    }
    if (odd(4) && test_is_float((int)dt)) {
        weft_requires_grad_(t, true);
    }
    return t;
}

static weft_tensor pick(arguments *a)
{
    switch (test_next(&rng) % 20) {
    case 0:
        return WEFT_NONE;
    case 1:
        return (weft_tensor){(uint32_t)test_next(&rng), (uint32_t)test_next(&rng), test_next(&rng)};
    case 2: { /* a live slot under another serial or context */
        weft_tensor t = live[test_next(&rng) % LIVE];
        t.serial += odd(2);
        t.context += (uint32_t)odd(2);
        a->passes_on |= t.slot == 0;
        return t;
    }
    case 3:
        return dead[test_next(&rng) % DEAD];
    case 4:
        return foreign[test_next(&rng) % FOREIGN];
    case 5:
        a->passes_on = true;
        return weft_neg(WEFT_NONE);
    case 6:
        return weft_f((double)test_between(&rng, -2, 2));
    case 7:
        return odd(2) ? weft_i(test_between(&rng, -2, 2)) : weft_b(true);
    default:
        return live[test_next(&rng) % LIVE];
    }
}

static int64_t integer(void)
{
    static const int64_t wild[] = {INT64_MIN,        INT64_MAX,           (int64_t)1 << 50,
                                   (int64_t)1 << 62, -((int64_t)1 << 50), INT64_MIN + 1};
    return odd(6) ? wild[test_next(&rng) % 6] : test_between(&rng, -2, 6);
}

static weft_shape extents(void)
{
    weft_shape s = {0};
    if (odd(12)) {
        static const int64_t wild[] = {-1, -2, 17, 1000, INT64_MAX, INT64_MIN};
        s.n = wild[test_next(&rng) % 6];
    } else {
        s.n = odd(8) ? test_between(&rng, 5, 16) : test_between(&rng, 0, 4);
    }
    for (int i = 0; i < WEFT_MAX_RANK; i++) {
        s.v[i] = odd(10)   ? integer()
                 : s.n > 4 ? test_between(&rng, 0, 1)
                           : test_between(&rng, 0, 5);
    }
    return s;
}

static double number(void)
{
    static const double all[] = {0,        1,         -1,   0.5,   2,     NAN,
                                 INFINITY, -INFINITY, 1e18, -1e18, 1e300, 1e-300};
    return all[test_next(&rng) % (sizeof all / sizeof *all)];
}

static void draw(arguments *a)
{
    *a = (arguments){0};
    for (int i = 0; i < 4; i++) {
        a->t[i] = pick(a);
    }
    for (int i = 0; i < 6; i++) {
        a->i[i] = integer();
    }
    for (int i = 0; i < 3; i++) {
        a->d[i] = number();
    }
    for (int i = 0; i < 5; i++) {
        a->s[i] = extents();
    }
    a->dtype = odd(8) ? (weft_dtype)test_between(&rng, -3, 40)
                      : (weft_dtype)test_between(&rng, 0, WEFT_DTYPE_COUNT - 1);
    a->flag[0] = odd(2);
    a->flag[1] = odd(2);
    a->n = odd(10) ? (int)test_between(&rng, -2, 0) : (int)test_between(&rng, 1, LIST);
    for (int i = 0; i < LIST; i++) {
        a->list[i] = odd(10) ? pick(a) : live[test_next(&rng) % LIVE];
    }
}

#endif
