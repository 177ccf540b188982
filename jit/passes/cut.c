/*
 * jit/passes/cut.c -- a minimum cut by blocking flows (Dinitz 1970): in rounds, each along shortest paths with room left; see
 * cut.h.
 *
 * The sink's side is what reaches the sink through edges with room left, when the source does not any more: all edges that lead
 * there from the other side are full.
 */
#include "jit/passes/cut.h"

#include <stdlib.h>
#include <string.h>

#include "jit/ir/ir.h"

#define NONE UINT32_MAX
enum { ROUNDS = 256 }; /* each follows paths that are longer than the last one's */

void wf_cut_init(wf_cut *c)
{
    *c = (wf_cut){.nodes = 0};
    wf_cut_node(c);
    wf_cut_node(c);
}

void wf_cut_free(wf_cut *c)
{
    free(c->first);
    free(c->edges);
    free(c->side);
}

uint32_t wf_cut_node(wf_cut *c)
{
    if (c->failed || wf_grow(&c->first, c->nodes, 1, &c->capnodes, sizeof *c->first)) {
        c->failed = WEFT_ENOMEM;
        return 0;
    }
    c->first[c->nodes] = NONE;
    return c->nodes++;
}

static void put(wf_cut *c, uint32_t from, uint32_t to, int64_t left)
{
    c->edges[c->nedges] = (wf_cut_edge){.to = to, .next = c->first[from], .left = left};
    c->first[from] = c->nedges++;
}

void wf_cut_join(wf_cut *c, uint32_t from, uint32_t to, int64_t capacity)
{
    if (capacity == 0 || c->failed) {
        return;
    }
    if (wf_grow(&c->edges, c->nedges, 2, &c->capedges, sizeof *c->edges)) {
        c->failed = WEFT_ENOMEM;
        return;
    }
    put(c, from, to, capacity);
    put(c, to, from, 0);
}

typedef struct flow {
    wf_cut *c;
    uint32_t *far;   /* steps from the source; NONE: it is not reached */
    uint32_t *queue; /* nodes by distance; then edges of the path */
    uint32_t *now;   /* of a node: the edge that is tried */
} flow;

/* Distances from the source. Is the sink reached? */
static bool spread(const flow *w)
{
    const wf_cut *c = w->c;
    uint32_t n = 0;
    memset(w->far, 0xFF, c->nodes * sizeof *w->far);
    w->far[WF_CUT_SOURCE] = 0;
    w->queue[n++] = WF_CUT_SOURCE;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t v = w->queue[i];
        for (uint32_t e = c->first[v]; e != NONE; e = c->edges[e].next) {
            const uint32_t to = c->edges[e].to;
            if (c->edges[e].left > 0 && w->far[to] == NONE) {
                w->far[to] = w->far[v] + 1;
                w->queue[n++] = to;
            }
        }
    }
    return w->far[WF_CUT_SINK] != NONE;
}

/* Fills the path of `n` edges; the number of edges before the first one that is full now. */
static uint32_t fill(const flow *w, uint32_t n)
{
    wf_cut_edge *edges = w->c->edges;
    int64_t room = INT64_MAX;
    uint32_t full = n;
    for (uint32_t i = 0; i < n; i++) {
        room = edges[w->queue[i]].left < room ? edges[w->queue[i]].left : room;
    }
    for (uint32_t i = n; i-- > 0;) {
        edges[w->queue[i]].left -= room;
        edges[w->queue[i] ^ 1].left += room;
        full = edges[w->queue[i]].left ? full : i;
    }
    return full;
}

/* Paths of the length that spread found, until there is none. */
static void follow(const flow *w)
{
    const wf_cut *c = w->c;
    uint32_t n = 0, v = WF_CUT_SOURCE;
    memcpy(w->now, c->first, c->nodes * sizeof *w->now);
    for (;;) {
        if (v == WF_CUT_SINK) {
            n = fill(w, n);
            v = c->edges[w->queue[n] ^ 1].to;
        }
        uint32_t e = w->now[v];
        while (e != NONE && !(c->edges[e].left > 0 && w->far[c->edges[e].to] == w->far[v] + 1)) {
            e = c->edges[e].next;
        }
        w->now[v] = e;
        if (e != NONE) {
            w->queue[n++] = e;
            v = c->edges[e].to;
        } else if (n) { /* no way on from here: back, and not this way again */
            v = c->edges[w->queue[--n] ^ 1].to;
            w->now[v] = c->edges[w->now[v]].next;
        } else {
            return;
        }
    }
}

/* Marks what reaches the sink; nothing else where flows are not known to be largest. */
static void divide(const flow *w, bool known)
{
    wf_cut *c = w->c;
    uint32_t n = 0;
    memset(c->side, 0, c->nodes);
    c->side[WF_CUT_SINK] = 1;
    w->queue[n++] = WF_CUT_SINK;
    for (uint32_t i = 0; i < n && known; i++) {
        for (uint32_t e = c->first[w->queue[i]]; e != NONE; e = c->edges[e].next) {
            const uint32_t from = c->edges[e].to;
            if (c->edges[e ^ 1].left > 0 && !c->side[from]) {
                c->side[from] = 1;
                w->queue[n++] = from;
            }
        }
    }
}

int64_t wf_cut_cost(const wf_cut *c)
{
    int64_t cost = 0;
    for (uint32_t e = 0; e < c->nedges;
         e += 2) { /* an edge and its reverse, which began with nothing */
        const bool is_cut = !c->side[c->edges[e + 1].to] && c->side[c->edges[e].to];
        cost += is_cut ? c->edges[e].left + c->edges[e + 1].left : 0;
    }
    return cost;
}

int wf_cut_run(wf_cut *c)
{
    const size_t bytes = c->nodes * sizeof(uint32_t);
    flow w = {.c = c, .far = malloc(bytes), .queue = malloc(bytes), .now = malloc(bytes)};
    c->side = malloc(c->nodes);
    if (!w.far || !w.queue || !w.now || !c->side) {
        c->failed = WEFT_ENOMEM;
    }
    if (!c->failed) {
        int i = 0;
        for (; i < ROUNDS && spread(&w); i++) {
            follow(&w);
        }
        divide(&w, i < ROUNDS);
    }
    free(w.far);
    free(w.queue);
    free(w.now);
    return c->failed;
}
