/*
 * nn/apart.c -- whether updates of several tensors can run side by side: what one writes, no other touches.
 *
 * Blocks of a device's allocator are apart, so tensors in different ones are, whatever their addresses: that is asked of some
 * hundred tensors at each step, and a look into a table for each. Imported memory has no block, and two tensors may lie in
 * one: then addresses are sorted.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "nn/apart.h"

enum { PLACES = 4096 }; /* a power of 2, of which at most half are taken */

static int by_address(const void *a, const void *b)
{
    const wf_touched *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

static bool sorted_are_apart(wf_touched *t, int n)
{
    uintptr_t seen = 0, written = 0;
    bool apart = true;
    if (n > 0) {
        qsort(t, (size_t)n, sizeof *t, by_address);
    }
    for (int i = 0; i < n && apart; i++) {
        apart = t[i].lo >= written && !(t[i].written && t[i].lo < seen);
        seen = t[i].hi > seen ? t[i].hi : seen;
        written = t[i].written && t[i].hi > written ? t[i].hi : written;
    }
    return apart;
}

static size_t place_of(const void *block)
{
    return (size_t)(((uint64_t)(uintptr_t)block >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 52);
}
_Static_assert(PLACES == 1 << 12, "what place_of leaves");

/* Has each a block of its own? */
static bool are_in_blocks(const wf_touched *t, int n)
{
    const size_t bytes = PLACES * sizeof(void *);
    const void **table = 2 * n <= PLACES ? wf_alloc(bytes) : NULL;
    bool own = table != NULL;
    if (table) {
        memset(table, 0, bytes);
    }
    for (int i = 0; i < n && own; i++) {
        const void *block = t[i].st->inline_data == WF_STORAGE_DEVICE ? t[i].st->deleter_arg : NULL;
        size_t at = place_of(block);
        while (table[at] && table[at] != block) {
            at = (at + 1) % PLACES;
        }
        own = block && !table[at];
        table[at] = block;
    }
    if (table) {
        wf_free(table, bytes);
    }
    return own;
}

bool wf_are_apart(wf_touched *t, int n)
{
    return are_in_blocks(t, n) || sorted_are_apart(t, n);
}
