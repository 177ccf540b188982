/*
 * tests/support/table.h -- random operands are pieces of a table: drawing and converting each element would take longer than what is
 * tested. A table has a prime number of elements, so that each row of an operand has others.
 */
#ifndef TESTS_SUPPORT_TABLE_H
#define TESTS_SUPPORT_TABLE_H

#include <stdint.h>
#include <string.h>

/* n elements of `size` bytes, from element `from` of a table of `count` on, which begins again behind its end; the one behind them. */
static inline int64_t table_take(void *to, const void *table, int64_t count, int64_t from,
                                 int64_t n, size_t size)
{
    for (char *at = to; n > 0;) {
        const int64_t some = n < count - from ? n : count - from;
        memcpy(at, (const char *)table + (size_t)from * size, (size_t)some * size);
        at += (size_t)some * size;
        n -= some;
        from = (from + some) % count;
    }
    return from;
}

#endif
