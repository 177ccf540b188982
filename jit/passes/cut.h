/*
 * jit/passes/cut.h -- the cheapest division of nodes in two: a minimum cut, for choices of one of two that depend on each other.
 *
 * Every node is on the side of the source or on that of the sink. An edge costs its capacity where it leads from a node of the
 * source's side to one of the sink's. A choice of A or B that costs a or b is a node with edges of b from the source and of a to
 * the sink: A is the source's side. Two choices that cost c where the one is A and the other B are joined by an edge of c.
 *
 * Work is bounded: where so many rounds do not do, all nodes are on the source's side.
 */
#ifndef JIT_PASSES_CUT_H
#define JIT_PASSES_CUT_H

#include <stdbool.h>
#include <stdint.h>

enum { WF_CUT_SOURCE = 0, WF_CUT_SINK = 1 }; /* nodes of every graph */
#define WF_CUT_FOREVER (INT64_C(1) << 60)    /* the capacity of an edge that is never cut */

typedef struct wf_cut_edge {
    uint32_t to, next; /* of the edges that leave the same node; UINT32_MAX: the last */
    int64_t left;      /* of its capacity */
} wf_cut_edge;

typedef struct wf_cut {
    uint32_t nodes, capnodes;
    uint32_t *first;    /* edge of a node */
    wf_cut_edge *edges; /* each beside its reverse */
    uint32_t nedges, capedges;
    uint8_t *side; /* 1: the sink's */
    int failed;    /* WEFT_ENOMEM: calls have been without effect since */
} wf_cut;

/* A graph of the source and the sink. wf_cut_free afterwards. */
void wf_cut_init(wf_cut *c);
void wf_cut_free(wf_cut *c);
/* One more node. */
uint32_t wf_cut_node(wf_cut *c);
/* An edge; nothing where the capacity is 0. */
void wf_cut_join(wf_cut *c, uint32_t from, uint32_t to, int64_t capacity);
/* Divides: c->side[node]. Nodes that may be on either side are on the source's. 0 or WEFT_ENOMEM. */
int wf_cut_run(wf_cut *c);
/* What the division costs. */
int64_t wf_cut_cost(const wf_cut *c);

#endif
