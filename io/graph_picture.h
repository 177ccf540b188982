/*
 * io/graph_picture.h -- a graph as what is drawn of it: boxes that hold ops, and what flows between them.
 *
 * A box is a launch of the plan (a fused kernel with all its ops, or one op), an input or an output. Views, weights and
 * numbers have none: an edge goes through views, and weights are named in the op that reads them.
 *
 * Invariant: an edge goes from a box to one with a greater number.
 */
#ifndef IO_GRAPH_PICTURE_H
#define IO_GRAPH_PICTURE_H

#include "io/graph.h"

typedef enum wf_box_kind { WF_BOX_INPUT, WF_BOX_OP, WF_BOX_FUSED, WF_BOX_OUTPUT } wf_box_kind;

typedef struct wf_box {
    uint8_t kind;
    const char *title; /* of a fused one: "map", "rows" */
    int port;          /* of an input or output: its number */
    uint32_t first, n; /* ops[first..]: instructions of the function */
    double x, y, w, h; /* of a layout: the upper left corner, and the size that it was given */
} wf_box;

typedef struct wf_flow {
    uint32_t from, to; /* boxes */
    wf_val value;      /* that flows */
    uint32_t reader;   /* instruction that reads it; UINT32_MAX: an output */
    uint32_t path, n;  /* of a layout: points[path..], n of them */
} wf_flow;

typedef struct wf_picture {
    const weft_graph *g;
    wf_fn *fn;    /* what is drawn: the function after the passes */
    wf_fn *bound; /* memory behind it */
    wf_plan *plan;
    wf_box *boxes;
    wf_flow *flows;
    uint32_t *ops, *box_of; /* box_of[k]: of instruction k, or UINT32_MAX */
    double (*points)[2];
    uint32_t nboxes, nflows, npoints;
    double width, height; /* of a layout */
} wf_picture;

/* 0, or a status with an error of op recorded. Symbols get a size each: which ops are fused may depend on them. */
int wf_picture_open(wf_picture *p, const weft_graph *g, const char *op);
void wf_picture_close(wf_picture *p);
/* The operand behind views: an instruction with a box, or 0. */
wf_val wf_picture_source(const wf_picture *p, wf_val v);
/* The number of the input that v is (weights follow the inputs), or -1. */
int wf_picture_input(const wf_picture *p, wf_val v);
/* The type of v as the graph states it, symbols and all. */
const wf_type *wf_picture_type(const wf_picture *p, wf_val v);

/* Places the boxes, whose w and h are set, and the paths of the flows. 0 or WEFT_ENOMEM. */
int wf_picture_layout(wf_picture *p);

#endif
