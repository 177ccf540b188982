/*
 * tests/support/effort.h -- how many cases a loop over random ones takes: all, or the share that a slow
 * build can afford.
 *
 * WEFT_TEST_EFFORT is a number of percent; 100 where it is not set, and SANITIZED in sanitized builds, whose
 * programs run ten to thirty times as long. Only loops over random cases ask; lists are
 * walked whole, but under ThreadSanitizer and AddressSanitizer (below).
 */
#ifndef TESTS_SUPPORT_EFFORT_H
#define TESTS_SUPPORT_EFFORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/support/sanitized.h"

enum { EFFORT_FULL = 100, EFFORT_SANITIZED = 10 };

/*
 * Bits are compared at {1, 2, 3, 7} threads: ThreadSanitizer and AddressSanitizer take the first and the last, whose pieces are the largest and the
 * smallest. ThreadSanitizer looks for what threads do to each other, which no narrower vector shows: it walks the best instruction
 * set alone. (clang 19's follows accesses of up to 16 bytes, none of 32 and 64: pieces of AVX2 and AVX-512 kernels that overlap show
 * at the ends of rows, so that lists have rows which are no multiples of a vector.) Of lists whose cases differ in what they compute
 * and not in who computes it, it takes one in EFFORT_LIST_STEP, a prime, so that nested ones are walked through.
 */
enum { EFFORT_THREAD_STEP = UNDER_TSAN || UNDER_ASAN ? 3 : 1 };
#if UNDER_TSAN
enum { EFFORT_ONE_ISA = 1, EFFORT_LIST_STEP = 7 };
#else
enum { EFFORT_ONE_ISA = 0, EFFORT_LIST_STEP = 1 };
#endif

enum { EFFORT_DEFAULT = UNDER_ASAN || UNDER_TSAN || UNDER_MSAN ? EFFORT_SANITIZED : EFFORT_FULL };

/* The number of a variable of the environment, or the fallback where it is not set. */
static inline uint64_t effort_option(const char *name, uint64_t fallback)
{
    const char *s = getenv(name);
    return s && *s ? strtoull(s, NULL, 10) : fallback;
}

/* How many of n random cases to take: at least one. */
static inline uint64_t effort_of(uint64_t n)
{
    const uint64_t share = n * effort_option("WEFT_TEST_EFFORT", EFFORT_DEFAULT) / EFFORT_FULL;
    return share > 0 ? share : 1;
}

/*
 * Whether case i of a list is among those that ASan walks: one in n, others for another WEFT_TEST_TURN (script/test: of each
 * commit). For lists whose cases differ in the text of a GPU's kernel or in what it computes, not in what the host does, as the
 * stand-in's images are not watched; and for long ones of layers, products, losses and operands, of each of which several take the
 * same way. Other builds walk all. What else leaves out some of such a list by the turn does so in steps that are prime to n.
 */
static inline bool effort_walks(uint64_t i, uint64_t n)
{
    return !UNDER_ASAN || effort_option("WEFT_TEST_EFFORT", EFFORT_DEFAULT) >= EFFORT_FULL ||
           (i + effort_option("WEFT_TEST_TURN", 0)) % n == 0;
}

#endif
