/*
 * jit/plan_arena.c -- blocks of bytes with lifetimes, packed into bins and one arena; see plan_arena.h.
 *
 * A bin is memory that is wanted from some launch on (a result's). Blocks that end before that go into the smallest bin
 * they fit, the rest into the arena: the largest first, each as low as its neighbours in time allow; many blocks take the
 * first hole that fits, in order of time. That asks an allocator once, and is mostly as little memory as can be.
 *
 * Where it is not (the arena is there from its first block to its last, a bin from the first block in it on), bins are left
 * alone, and blocks get memory of their own: as few as it takes, those first that the arena would be idle for longest.
 *
 * Invariant: two blocks that meet in time share no byte, and no block meets in time what its bin is for.
 */
#include "jit/plan_arena.h"

#include <stdlib.h>
#include <string.h>

#include "jit/ir/ir.h"

enum { FEW_BLOCKS = 256, MOST_BINS = 64, TRIES = 6, NEAR = 64 /* a 64th more than the bound */ };

static int ascending(int64_t x, int64_t y)
{
    return (x > y) - (x < y);
}

/* Bytes for as many launches; what a file may have more than 2^63 of is as much. */
static int64_t area(int64_t bytes, int64_t launches)
{
    int64_t all;
    return __builtin_mul_overflow(bytes, launches, &all) ? INT64_MAX : all;
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
    int c = ascending(area(y->size, y->last - y->first + 1), area(x->size, x->last - x->first + 1));
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

/* -- what a placement takes ---------------------------------------------------------------------------- */

typedef struct packing {
    wf_arena_block *v;
    uint32_t n;
    wf_bins bins;
    uint32_t launches;
    int64_t *live; /* what is added and goes at each launch; zeros between two uses */
    wf_arena *out;
} packing;

static void add_life(const packing *p, const wf_arena_block *x)
{
    p->live[x->first] += x->size;
    p->live[x->last + 1] -= x->size;
}

static int64_t most_alive(const packing *p)
{
    int64_t most = 0, sum = 0;
    for (uint32_t s = 0; s <= p->launches; s++) {
        sum += p->live[s];
        most = sum > most ? sum : most;
    }
    memset(p->live, 0, (p->launches + 2u) * sizeof *p->live);
    return most;
}

static void add_results(const packing *p)
{
    for (uint32_t k = 0; k < p->bins.n; k++) {
        p->live[p->bins.v[k].until] += wf_arena_padded(p->bins.v[k].bytes);
    }
}

/* The arena's life, and the peak. */
static void measure(const packing *p)
{
    wf_arena *a = p->out;
    wf_arena_block all = {.first = p->launches, .size = a->bytes};
    for (uint32_t k = 0; k < p->bins.n; k++) {
        p->bins.v[k].from = p->bins.v[k].until;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const wf_arena_block *x = &p->v[i];
        if (x->bin == WF_NO_BIN) {
            all.first = x->first < all.first ? x->first : all.first;
            all.last = x->last > all.last ? x->last : all.last;
        } else if (x->bin == WF_OWN_BIN) {
            add_life(p, x);
        } else if (x->first < p->bins.v[x->bin].from) {
            p->bins.v[x->bin].from = x->first;
        }
    }
    for (uint32_t k = 0; k < p->bins.n; k++) {
        p->live[p->bins.v[k].from] += wf_arena_padded(p->bins.v[k].bytes);
    }
    if (a->bytes) {
        add_life(p, &all);
    }
    a->first = all.first;
    a->last = all.last;
    a->peak = most_alive(p);
}

static int place_packed(wf_arena_block *v, uint32_t n, const wf_bins *bins, uint32_t launches,
                        int64_t bound, int64_t *bytes)
{
    *bytes = 0;
    return n == 0            ? 0
           : n <= FEW_BLOCKS ? place_by_gaps(v, n, bins, bound, bytes)
                             : place_by_time(v, n, bins, launches, bytes);
}

/* With bins, all in one arena. */
static int place_together(packing *p)
{
    wf_bins bins = p->bins;
    int64_t results = 0;
    for (uint32_t k = 0; k < bins.n; k++) {
        results += wf_arena_padded(bins.v[k].bytes);
    }
    if (bins.n > MOST_BINS) { /* the largest */
        bins = (wf_bins){bins.v + (bins.n - MOST_BINS), MOST_BINS};
    }
    const int64_t beside = p->out->bound > results ? p->out->bound - results : 0;
    int rc = place_packed(p->v, p->n, &bins, p->launches, beside, &p->out->bytes);
    for (uint32_t i = 0; i < p->n && !rc; i++) {
        p->v[i].bin += p->v[i].bin == WF_NO_BIN ? 0 : p->bins.n - bins.n;
    }
    return rc;
}

/* -- memory of their own ---------------------------------------------------------------------------------- */

/* Most idle first; `at` says how much. */
static int by_idleness(const void *a, const void *b)
{
    const wf_arena_block *x = *(wf_arena_block *const *)a, *y = *(wf_arena_block *const *)b;
    int c = ascending(y->at, x->at);
    return c ? c : ascending(x->first, y->first);
}

/* The peak if the arena of all but the first k in order were as small as what lives in it at once. */
static int64_t peak_without(const packing *p, wf_arena_block *const *order, uint32_t k)
{
    wf_arena_block all = {.first = p->launches};
    for (uint32_t i = k; i < p->n; i++) {
        add_life(p, order[i]);
        all.first = order[i]->first < all.first ? order[i]->first : all.first;
        all.last = order[i]->last > all.last ? order[i]->last : all.last;
    }
    all.size = most_alive(p);
    for (uint32_t i = 0; i < k; i++) {
        add_life(p, order[i]);
    }
    if (k < p->n) {
        add_life(p, &all);
    }
    add_results(p);
    return most_alive(p);
}

/* The first k in order have memory of their own. rest: room for all blocks. */
static int place_apart(packing *p, wf_arena_block *const *order, uint32_t k, wf_arena_block *rest)
{
    static const wf_bins none = {NULL, 0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        order[i]->bin = i < k ? WF_OWN_BIN : WF_NO_BIN;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->v[i].bin == WF_NO_BIN) {
            rest[n++] = p->v[i];
            add_life(p, &p->v[i]);
        }
    }
    int rc = place_packed(rest, n, &none, p->launches, most_alive(p), &p->out->bytes);
    for (uint32_t i = 0, j = 0; i < p->n && !rc; i++) {
        p->v[i].at = p->v[i].bin == WF_OWN_BIN ? 0 : rest[j++].at;
    }
    return rc;
}

/* As few as bring the peak to the limit. */
static int place_few_apart(packing *p, int64_t limit)
{
    wf_arena_block **order = malloc((p->n + 1u) * sizeof *order),
                   *rest = malloc((p->n + 1u) * sizeof *rest);
    int rc = order && rest ? 0 : WEFT_ENOMEM;
    for (uint32_t i = 0; i < p->n && !rc; i++) {
        order[i] = &p->v[i];
        order[i]->at = area(order[i]->size, p->launches - (order[i]->last - order[i]->first));
    }
    uint32_t lo = 0, hi = p->n;
    if (!rc) {
        qsort(order, p->n, sizeof *order, by_idleness);
        while (lo < hi) {
            const uint32_t mid = lo + (hi - lo) / 2;
            *(peak_without(p, order, mid) > limit ? &lo : &hi) =
                peak_without(p, order, mid) > limit ? mid + 1 : mid;
        }
    }
    p->out->peak = INT64_MAX;
    for (int i = 0; !rc && p->out->peak > limit; i++) {
        rc = place_apart(p, order, lo, rest);
        measure(p);
        if (lo == p->n) {
            break;
        }
        lo = i < TRIES ? lo + (p->n - lo) / 4 + 1 : p->n;
    }
    free(order);
    free(rest);
    return rc;
}

/* Those that are to have memory of their own have it; the others lie in one arena. */
static int place_alone(packing *p, uint32_t alone)
{
    wf_arena_block **order = malloc((p->n + 1u) * sizeof *order),
                   *rest = malloc((p->n + 1u) * sizeof *rest);
    int rc = order && rest ? 0 : WEFT_ENOMEM;
    uint32_t first = 0, behind = alone;
    for (uint32_t i = 0; i < p->n && !rc; i++) {
        order[p->v[i].alone ? first++ : behind++] = &p->v[i];
    }
    if (!rc) {
        rc = place_apart(p, order, alone, rest);
        measure(p);
    }
    free(order);
    free(rest);
    return rc;
}

static int by_bin_size(const void *a, const void *b)
{
    const wf_bin *x = a, *y = b;
    int c = ascending(x->bytes, y->bytes);
    return c ? c : ascending(x->id, y->id);
}

int wf_arena_place(wf_arena_block *v, uint32_t n, wf_bin *bin, uint32_t nbins, uint32_t launches,
                   wf_arena *out)
{
    packing p = {v, n, {bin, nbins}, launches, calloc(launches + 2u, sizeof *p.live), out};
    if (!p.live) {
        return WEFT_ENOMEM;
    }
    qsort(bin, nbins, sizeof *bin, by_bin_size);
    uint32_t alone = 0;
    for (uint32_t i = 0; i < n; i++) {
        add_life(&p, &v[i]);
        alone += v[i].alone;
    }
    add_results(&p);
    out->bound = most_alive(&p);
    const int64_t limit = out->bound + out->bound / NEAR;
    int rc = alone ? place_alone(&p, alone) : place_together(&p);
    if (!rc && !alone) {
        measure(&p);
        rc = out->peak > limit ? place_few_apart(&p, limit) : 0;
    }
    for (uint32_t i = 0; i < n && !rc; i++) {
        v[i].bin = v[i].bin < WF_OWN_BIN ? bin[v[i].bin].id : v[i].bin;
    }
    free(p.live);
    return rc;
}
