/*
 * tests/cuda/driver/graph.c -- work recorded instead of queued, and queued again as often as asked.
 *
 * A recording keeps its pieces in the order in which they were given, whichever of its streams they were
 * given to: that is one of the orders that its events allow. Replays run in it.
 */
#include "tests/cuda/driver/core.h"

#include <stdlib.h>
#include <string.h>

static graph *graph_new(int device)
{
    graph *g = calloc(1, sizeof *g);
    if (g) {
        g->tail = &g->head;
        g->device = device;
    }
    return g;
}

void graph_free(graph *g)
{
    while (g->head) {
        op *o = g->head;
        g->head = o->next;
        if (o->node) {
            handle_drop(o->node);
        }
        op_free(o);
    }
    free(g);
}

cu_result graph_begin(stream *s, graph **out)
{
    if (s->capture) {
        return CU_INVALID_VALUE;
    }
    graph *g = graph_new(s->device);
    if (!g) {
        return CU_OUT_OF_MEMORY;
    }
    g->open = true;
    s->capture = g;
    *out = g;
    return CU_OK;
}

cu_result graph_end(stream *s, graph **out)
{
    if (!s->capture) {
        return CU_INVALID_VALUE;
    }
    graph *g = s->capture;
    g->open = false;
    for (int i = 0; i < MAX_STREAMS; i++) {
        if (fake.streams[i].capture == g) {
            fake.streams[i].capture = NULL;
        }
    }
    if (g->invalid) {
        graph_free(g);
        return CU_CAPTURE_INVALIDATED;
    }
    *out = g;
    return CU_OK;
}

cu_result graph_spoil(stream *s)
{
    s->capture->invalid = true;
    return CU_CAPTURE_UNSUPPORTED;
}

static op *clone(const op *o)
{
    op *c = malloc(sizeof *c);
    unsigned char *params = o->params ? malloc(PARAM_BYTES) : NULL;
    if (!c || (o->params && !params)) {
        free(c);
        free(params);
        return NULL;
    }
    *c = *o;
    c->next = NULL;
    c->node = NULL;
    c->params = params;
    if (params) {
        memcpy(params, o->params, PARAM_BYTES);
    }
    return c;
}

/* Events inside a recording order nothing more than its order does. */
static bool replays(const op *o)
{
    return o->kind != OP_RECORD && o->kind != OP_WAIT;
}

cu_result graph_copy(const graph *g, graph **out)
{
    graph *copy = graph_new(g->device);
    for (const op *o = g->head; copy && o; o = o->next) {
        op *c = replays(o) ? clone(o) : NULL;
        if (replays(o) && !c) {
            graph_free(copy);
            return CU_OUT_OF_MEMORY;
        }
        if (c) {
            c->origin = o;
            *copy->tail = c;
            copy->tail = &c->next;
        }
    }
    *out = copy;
    return copy ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result graph_run(stream *s, const graph *g)
{
    for (const op *o = g->head; o; o = o->next) {
        op *c = clone(o);
        if (!c) {
            return CU_OUT_OF_MEMORY;
        }
        c->stream = s->slot;
        submit(s, c);
    }
    return CU_OK;
}

cu_result graph_newest(graph *g, cu_handle **node)
{
    op *o = g->newest;
    if (o && !o->node) {
        o->node = handle_new(NODE, o);
    }
    *node = o ? &o->node : NULL;
    return o && !o->node ? CU_OUT_OF_MEMORY : CU_OK;
}

cu_result graph_set(graph *g, const op *node, const cu_kernel_node *to)
{
    op *o = g->head;
    while (o && o->origin != node) {
        o = o->next;
    }
    const kernel *fn = to->function ? handle_get(to->function, FUNCTION) : NULL;
    if (!o || o->kind != OP_KERNEL || !fn || to->extra || fn->module != o->fn->module) {
        return CU_INVALID_VALUE;
    }
    op with = *o;
    with.fn = (kernel *)(uintptr_t)fn;
    with.n_ranges = 0;
    memcpy(with.grid, to->grid, sizeof with.grid);
    memcpy(with.block, to->block, sizeof with.block);
    with.shared = to->shared;
    if (launch_check(&with) != CU_OK) {
        return CU_INVALID_VALUE;
    }
    if (!kernel_bind(&with, to->params)) {
        free(with.params);
        return CU_INVALID_VALUE;
    }
    free(o->params);
    *o = with;
    return CU_OK;
}
