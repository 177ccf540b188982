/*
 * jit/plan_arena.c -- blocks of bytes with lifetimes, packed into bins and one arena; see plan_arena.h.
 *
 * A bin is memory that is there anyway and is wanted from some launch on (a result's). Blocks that end
 * before that go into the smallest bin they fit, the rest into the arena: the largest first, each as low as
 * its neighbours in time allow; many blocks take the first hole that fits, in order of time.
 *
 * Invariant: two blocks that meet in time share no byte, and no block meets in time what its bin is for.
 */
#include "jit/plan_arena.h"

#include <stdlib.h>
#include <string.h>

#include "jit/ir/ir.h"

enum { FEW_BLOCKS = 256, MOST_BINS = 64 };

static int ascending(int64_t x, int64_t y)
{
    return (x > y) - (x < y);
}

/* Later ones first: that is when bins are no longer to be had. */
static int by_end(const void *a, const void *b)
{
    const wf_arena_block *x = *(wf_arena_block *const *)a, *y = *(wf_arena_block *const *)b;
    int c = ascending(y->last, x->last);
    c = c ? c : ascending(y->first, x->first);
    return c ? c : ascending(y->size, x->size);
}

static int by_size(const void *a, const void *b)
{
    const wf_arena_block *x = *(wf_arena_block *const *)a, *y = *(wf_arena_block *const *)b;
    int c = ascending(y->size, x->size);
    return c ? c : by_end(a, b);
}

static int by_area(const void *a, const void *b)
{
    const wf_arena_block *x = *(wf_arena_block *const *)a, *y = *(wf_arena_block *const *)b;
    int c = ascending(y->size * (y->last - y->first + 1), x->size * (x->last - x->first + 1));
    return c ? c : by_end(a, b);
}

static int by_time(const void *a, const void *b)
{
    const wf_arena_block *x = *(wf_arena_block *const *)a, *y = *(wf_arena_block *const *)b;
    int c = ascending(x->first, y->first);
    return c ? c : ascending(y->size, x->size);
}

static int by_address(const void *a, const void *b)
{
    const wf_arena_block *x = *(wf_arena_block *const *)a, *y = *(wf_arena_block *const *)b;
    return (x->at > y->at) - (x->at < y->at);
}

typedef int (*block_order)(const void *, const void *);

/* -- few blocks: gaps in an order ----------------------------------------------------------------------- */

/* The lowest place for block x beside those of a list that it meets in time. */
static int64_t lowest_gap(const wf_arena_block *list, const wf_arena_block *x,
                          const wf_arena_block **met)
{
    uint32_t n = 0;
    int64_t at = 0;
    for (const wf_arena_block *o = list; o; o = o->next) {
        if (o->first <= x->last && x->first <= o->last) {
            met[n++] = o;
        }
    }
    qsort(met, n, sizeof *met, by_address);
    for (uint32_t j = 0; j < n && met[j]->at < at + x->size; j++) {
        int64_t behind = met[j]->at + met[j]->size;
        at = behind > at ? behind : at;
    }
    return at;
}

/* Puts the block into the smallest bin it fits (they ascend), else into the arena. */
static void place_block(wf_arena_block *x, const wf_bins *bins, wf_arena_block **in,
                        const wf_arena_block **met)
{
    uint32_t k = 0;
    for (; k < bins->n; k++) {
        if (bins->v[k].bytes >= x->bytes && x->last < bins->v[k].until) {
            x->at = lowest_gap(in[k], x, met);
            if (x->at + x->bytes <= bins->v[k].bytes) {
                break;
            }
        }
    }
    x->bin = k < bins->n ? k : WF_NO_BIN;
    x->at = k < bins->n ? x->at : lowest_gap(in[k], x, met);
    x->next = in[k];
    in[k] = x;
}

/* Blocks in an order, each into the lowest gap between those it meets in time. Returns the end. */
static int64_t place_in_order(wf_arena_block *v, uint32_t n, const wf_bins *bins,
                              wf_arena_block **order, block_order compare)
{
    wf_arena_block *in[MOST_BINS + 1] = {NULL};
    int64_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = &v[i];
    }
    qsort(order, n, sizeof *order, compare);
    for (uint32_t i = 0; i < n; i++) {
        wf_arena_block *x = order[i];
        place_block(x, bins, in, (const wf_arena_block **)(order + n));
        end = x->bin == WF_NO_BIN && x->at + x->size > end ? x->at + x->size : end;
    }
    return end;
}

/* The best of four orders; one that reaches the bound is enough. */
static int place_by_gaps(wf_arena_block *v, uint32_t n, const wf_bins *bins, int64_t bound,
                         int64_t *out)
{
    static const block_order orders[] = {by_size, by_area, by_end, by_time};
    wf_arena_block **order = malloc(2 * (n + 1u) * sizeof *order);
    int best = 0;
    int64_t end = INT64_MAX, last = -1;
    for (int i = 0; order && i < 4 && end > bound; i++) {
        last = place_in_order(v, n, bins, order, orders[i]);
        best = last < end ? i : best;
        end = last < end ? last : end;
    }
    if (order && last != end) {
        place_in_order(v, n, bins, order, orders[best]);
    }
    *out = end;
    free(order);
    return order ? 0 : WEFT_ENOMEM;
}

/* -- the same for many blocks: holes in order of time -------------------------------------------------- */

typedef struct hole {
    int64_t at, size;
} hole;

typedef struct arena {
    hole *holes; /* sorted by address */
    uint32_t n, cap;
    int64_t end;
} arena;

static int arena_give(arena *a, int64_t at, int64_t size)
{
    uint32_t lo = 0, hi = a->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        *(a->holes[mid].at < at ? &lo : &hi) = a->holes[mid].at < at ? mid + 1 : mid;
    }
    if (lo > 0 && a->holes[lo - 1].at + a->holes[lo - 1].size == at) {
        a->holes[--lo].size += size;
    } else {
        if (wf_grow(&a->holes, a->n, 1, &a->cap, sizeof *a->holes)) {
            return WEFT_ENOMEM;
        }
        memmove(a->holes + lo + 1, a->holes + lo, (a->n++ - lo) * sizeof *a->holes);
        a->holes[lo] = (hole){at, size};
    }
    if (lo + 1 < a->n && a->holes[lo].at + a->holes[lo].size == a->holes[lo + 1].at) {
        a->holes[lo].size += a->holes[lo + 1].size;
        memmove(a->holes + lo + 1, a->holes + lo + 2, (--a->n - lo - 1) * sizeof *a->holes);
    }
    return 0;
}

static int64_t arena_take(arena *a, int64_t size)
{
    uint32_t best = a->n;
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->holes[i].size >= size && (best == a->n || a->holes[i].size < a->holes[best].size)) {
            best = i;
        }
    }
    if (best < a->n) {
        hole *h = &a->holes[best];
        int64_t at = h->at;
        h->at += size;
        h->size -= size;
        if (h->size == 0) {
            memmove(h, h + 1, (--a->n - best) * sizeof *h);
        }
        return at;
    }
    bool grows = a->n && a->holes[a->n - 1].at + a->holes[a->n - 1].size == a->end;
    int64_t at = grows ? a->holes[--a->n].at : a->end;
    a->end = at + size;
    return at;
}

/* One block at a time in each bin, the last ones first. */
static void fill_bins(wf_arena_block *v, uint32_t n, const wf_bins *bins)
{
    uint32_t busy[MOST_BINS] = {0};
    for (uint32_t k = 0; k < bins->n; k++) {
        busy[k] = bins->v[k].until;
    }
    for (uint32_t i = n; i-- > 0;) {
        v[i].bin = WF_NO_BIN;
        for (uint32_t k = 0; k < bins->n && v[i].bin == WF_NO_BIN; k++) {
            if (bins->v[k].bytes >= v[i].bytes && v[i].last < busy[k]) {
                busy[k] = v[i].first;
                v[i].bin = k;
                v[i].at = 0;
            }
        }
    }
}

/* Blocks are numbered by their first launch; `ends` lists them by their last. */
static int place_by_time(wf_arena_block *v, uint32_t n, const wf_bins *bins, uint32_t launches,
                         int64_t *end)
{
    arena a = {0};
    uint32_t at = 0, *head = malloc((launches + 1u) * sizeof *head),
             *next = malloc((n + 1u) * sizeof *next);
    int rc = head && next ? 0 : WEFT_ENOMEM;
    for (uint32_t s = 0; s < launches && !rc; s++) {
        head[s] = UINT32_MAX;
    }
    fill_bins(v, n, bins);
    for (uint32_t s = 0; s < launches && !rc; s++) {
        for (; at < n && v[at].first == s; at++) {
            if (v[at].bin == WF_NO_BIN) {
                v[at].at = arena_take(&a, v[at].size);
                next[at] = head[v[at].last];
                head[v[at].last] = at;
            }
        }
        for (uint32_t i = head[s]; i != UINT32_MAX && !rc; i = next[i]) {
            rc = arena_give(&a, v[i].at, v[i].size);
        }
    }
    *end = a.end;
    free(a.holes);
    free(head);
    free(next);
    return rc;
}

static int by_bin_size(const void *a, const void *b)
{
    const wf_bin *x = a, *y = b;
    int c = ascending(x->bytes, y->bytes);
    return c ? c : ascending(x->id, y->id);
}

/* The most bytes that live at one launch, of blocks and bins, without the bins: no placement can take less. */
static int lower_bound(const wf_arena_block *v, uint32_t n, const wf_bins *bins, uint32_t launches,
                       int64_t *out)
{
    int64_t most = 0, sum = 0, all = 0, *live = calloc(launches + 2u, sizeof *live);
    for (uint32_t i = 0; live && i < n; i++) {
        live[v[i].first] += v[i].size;
        live[v[i].last + 1] -= v[i].size;
    }
    for (uint32_t k = 0; live && k < bins->n; k++) {
        live[bins->v[k].until] += wf_arena_padded(bins->v[k].bytes);
        all += wf_arena_padded(bins->v[k].bytes);
    }
    for (uint32_t s = 0; live && s <= launches; s++) {
        sum += live[s];
        most = sum > most ? sum : most;
    }
    free(live);
    *out = most > all ? most - all : 0;
    return live ? 0 : WEFT_ENOMEM;
}

int wf_arena_place(wf_arena_block *v, uint32_t n, wf_bin *bin, uint32_t nbins, uint32_t launches,
                   int64_t *end, int64_t *bound)
{
    wf_bins bins = {bin, nbins};
    int rc = lower_bound(v, n, &bins, launches, bound);
    qsort(bin, nbins, sizeof *bin, by_bin_size);
    if (nbins > MOST_BINS) { /* the largest */
        bins = (wf_bins){bin + (nbins - MOST_BINS), MOST_BINS};
    }
    rc = rc                ? rc
         : n <= FEW_BLOCKS ? place_by_gaps(v, n, &bins, *bound, end)
                           : place_by_time(v, n, &bins, launches, end);
    for (uint32_t i = 0; i < n && !rc; i++) {
        v[i].bin = v[i].bin == WF_NO_BIN ? WF_NO_BIN : bins.v[v[i].bin].id;
    }
    return rc;
}
