/*
 * io/graph_layout.c -- places the boxes of a picture in layers (Sugiyama, Tagawa, Toda, 1981).
 *
 * A box lies below all it reads from. Where a flow passes a layer it gets a place of its own there, so that lines
 * run between boxes and not through them. Places of a layer are ordered by the mean position of their neighbours, down
 * and up in turns, and then moved towards it as far as the others leave room.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "io/graph_picture.h"

enum { SWEEPS = 12, MOVES = 16, GAP_X = 24, GAP_Y = 36, LANE = 10, MOST_PLACES = 1 << 20 };

/* A box in its layer, or a flow on its way through one. */
typedef struct place {
    uint32_t layer, at; /* position in it */
    uint32_t box;       /* UINT32_MAX: a flow passes */
    double x, w;        /* centre and width */
    double key;
} place;

typedef struct link {
    uint32_t up, down; /* places of neighbouring layers */
} link;

typedef struct keyed {
    double key;
    uint32_t at, place;
} keyed;

typedef struct layout {
    wf_picture *p;
    keyed *sorted;
    place *places;
    link *links;
    uint32_t nplaces, nlinks, nlayers;
    uint32_t *order, *start; /* places by layer and position; where a layer starts */
    uint32_t *by_down, *down_start, *by_up, *up_start; /* links of a place, from both ends */
} layout;

/* The layer of each box: one below the lowest it reads; inputs just above what reads them first. */
static void find_layers(layout *l)
{
    wf_picture *p = l->p;
    for (uint32_t b = 0; b < p->nboxes; b++) {
        l->places[b] = (place){.box = b, .w = p->boxes[b].w};
    }
    for (uint32_t i = 0; i < p->nflows; i++) { /* sorted by reader, and readers come after */
        place *from = &l->places[p->flows[i].from], *to = &l->places[p->flows[i].to];
        to->layer = to->layer > from->layer ? to->layer : from->layer + 1;
    }
    for (uint32_t i = p->nflows; i-- > 0;) {
        place *from = &l->places[p->flows[i].from];
        const place *to = &l->places[p->flows[i].to];
        if (p->boxes[p->flows[i].from].kind == WF_BOX_INPUT) {
            double layer = to->layer - 1;
            from->key = from->key > 0 && from->key - 1 < layer ? from->key : layer + 1;
        }
    }
    for (uint32_t b = 0; b < p->nboxes; b++) {
        place *q = &l->places[b];
        q->layer = q->key > 0 ? (uint32_t)q->key - 1 : q->layer;
    }
    l->nplaces = p->nboxes;
    for (uint32_t b = 0; b < p->nboxes; b++) {
        l->nlayers = l->places[b].layer >= l->nlayers ? l->places[b].layer + 1 : l->nlayers;
    }
}

/* A place in every layer that a flow passes. */
static int thread_flows(layout *l)
{
    wf_picture *p = l->p;
    uint64_t most = p->nboxes, links = 0;
    for (uint32_t i = 0; i < p->nflows; i++) {
        uint32_t span = l->places[p->flows[i].to].layer - l->places[p->flows[i].from].layer;
        most += span;
        links += span;
    }
    if (most > MOST_PLACES) {
        return WEFT_ENOMEM;
    }
    place *grown = wf_realloc(l->places, (size_t)(most + 1) * sizeof *grown);
    l->links = wf_calloc((size_t)links + 1, sizeof *l->links);
    p->points = wf_calloc((size_t)(links + p->nflows) + 1, sizeof *p->points);
    l->places = grown ? grown : l->places;
    if (!grown || !l->links || !p->points) {
        return WEFT_ENOMEM;
    }
    for (uint32_t i = 0; i < p->nflows; i++) {
        wf_flow *f = &p->flows[i];
        uint32_t up = f->from, from = l->places[f->from].layer, to = l->places[f->to].layer;
        f->path = l->nlinks; /* its links, for now */
        for (uint32_t layer = from + 1; layer <= to; layer++) {
            uint32_t down = layer == to ? f->to : l->nplaces++;
            if (layer < to) {
                l->places[down] = (place){.layer = layer, .box = UINT32_MAX, .w = LANE};
            }
            l->links[l->nlinks++] = (link){up, down};
            up = down;
        }
        f->n = l->nlinks - f->path;
    }
    return 0;
}

/* Lists the links of every place: those to the layer above (down = true), or below. */
static void index_links(const layout *l, bool down, uint32_t *start, uint32_t *list)
{
    for (uint32_t i = 0; i < l->nlinks; i++) {
        start[(down ? l->links[i].down : l->links[i].up) + 1]++;
    }
    for (uint32_t i = 0; i < l->nplaces; i++) {
        start[i + 1] += start[i];
    }
    for (uint32_t i = l->nlinks; i-- > 0;) {
        list[--start[(down ? l->links[i].down : l->links[i].up) + 1]] = i;
    }
    for (uint32_t i = 0; i < l->nplaces; i++) { /* each moved down to its start: shift back */
        start[i] = start[i + 1];
    }
    start[l->nplaces] = l->nlinks;
}

static int index_all(layout *l)
{
    size_t n = (size_t)l->nplaces + 2, m = (size_t)l->nlinks + 1;
    l->order = wf_calloc(n, sizeof *l->order);
    l->start = wf_calloc((size_t)l->nlayers + 2, sizeof *l->start);
    l->down_start = wf_calloc(n, sizeof *l->down_start);
    l->up_start = wf_calloc(n, sizeof *l->up_start);
    l->by_down = wf_calloc(m, sizeof *l->by_down);
    l->by_up = wf_calloc(m, sizeof *l->by_up);
    l->sorted = wf_calloc(n, sizeof *l->sorted);
    if (!l->sorted || !l->order || !l->start || !l->down_start || !l->up_start || !l->by_down ||
        !l->by_up) {
        return WEFT_ENOMEM;
    }
    index_links(l, true, l->down_start, l->by_down);
    index_links(l, false, l->up_start, l->by_up);
    for (uint32_t i = 0; i < l->nplaces; i++) {
        l->start[l->places[i].layer + 1]++;
    }
    for (uint32_t i = 0; i < l->nlayers; i++) {
        l->start[i + 1] += l->start[i];
    }
    uint32_t *next = wf_calloc((size_t)l->nlayers + 1, sizeof *next);
    if (!next) {
        return WEFT_ENOMEM;
    }
    for (uint32_t i = 0; i < l->nplaces; i++) {
        place *q = &l->places[i];
        q->at = next[q->layer]++;
        l->order[l->start[q->layer] + q->at] = i;
    }
    wf_mfree(next);
    return 0;
}

/* The mean of what(neighbour) over the neighbours of place i on one side; `else_` if there are none. */
static double mean(const layout *l, uint32_t i, bool above, bool of_x, double otherwise)
{
    const uint32_t *start = above ? l->down_start : l->up_start;
    const uint32_t *list = above ? l->by_down : l->by_up;
    double sum = 0;
    for (uint32_t k = start[i]; k < start[i + 1]; k++) {
        const link *e = &l->links[list[k]];
        const place *q = &l->places[above ? e->up : e->down];
        sum += of_x ? q->x : (double)q->at;
    }
    return start[i + 1] > start[i] ? sum / (start[i + 1] - start[i]) : otherwise;
}

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->at > y->at) - (x->at < y->at);
}

/* By key; equal ones stay in their order. */
static void sort_layer(layout *l, uint32_t layer)
{
    uint32_t *o = l->order + l->start[layer], n = l->start[layer + 1] - l->start[layer];
    for (uint32_t i = 0; i < n; i++) {
        l->sorted[i] = (keyed){l->places[o[i]].key, i, o[i]};
    }
    qsort(l->sorted, n, sizeof *l->sorted, by_key);
    for (uint32_t i = 0; i < n; i++) {
        o[i] = l->sorted[i].place;
        l->places[o[i]].at = i;
    }
}

static void order_layers(layout *l)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        bool above = sweep % 2 == 0;
        for (uint32_t k = 0; k < l->nlayers; k++) {
            uint32_t layer = above ? k : l->nlayers - 1 - k;
            for (uint32_t i = l->start[layer]; i < l->start[layer + 1]; i++) {
                place *q = &l->places[l->order[i]];
                q->key = mean(l, l->order[i], above, false, q->at);
            }
            sort_layer(l, layer);
        }
    }
}

static double room_between(const place *a, const place *b)
{
    return (a->w + b->w) / 2 + (a->box == UINT32_MAX && b->box == UINT32_MAX ? LANE : GAP_X);
}

/* Every place as near to its key as the others leave room: the mean of packing from the left and the right. */
static void pack(layout *l, uint32_t layer)
{
    uint32_t *o = l->order + l->start[layer], n = l->start[layer + 1] - l->start[layer];
    for (uint32_t i = 0; i < n; i++) {
        place *q = &l->places[o[i]];
        q->x = q->key;
        if (i > 0) {
            place *left = &l->places[o[i - 1]];
            double least = left->x + room_between(left, q);
            q->x = q->x < least ? least : q->x;
        }
    }
    double right = 0;
    for (uint32_t i = n; i-- > 0;) {
        place *q = &l->places[o[i]];
        double want = q->key;
        if (i + 1 < n) {
            double most = right - room_between(q, &l->places[o[i + 1]]);
            want = want > most ? most : want;
        }
        right = want;
        q->x = (q->x + want) / 2;
    }
}

static void position(layout *l)
{
    for (uint32_t layer = 0; layer < l->nlayers; layer++) {
        for (uint32_t i = l->start[layer]; i < l->start[layer + 1]; i++) {
            l->places[l->order[i]].key = 0;
        }
        pack(l, layer);
    }
    for (int move = 0; move < MOVES; move++) {
        bool above = move % 2 == 0;
        for (uint32_t k = 0; k < l->nlayers; k++) {
            uint32_t layer = above ? k : l->nlayers - 1 - k;
            for (uint32_t i = l->start[layer]; i < l->start[layer + 1]; i++) {
                place *q = &l->places[l->order[i]];
                q->key = mean(l, l->order[i], above, true, q->x);
            }
            pack(l, layer);
        }
    }
}

/* From places to boxes and paths; the picture begins at 0, 0. */
static void finish(layout *l)
{
    wf_picture *p = l->p;
    double left = 0, right = 0, y = (double)GAP_Y / 2;
    for (uint32_t i = 0; i < l->nplaces; i++) {
        const place *q = &l->places[i];
        left = i == 0 || q->x - q->w / 2 < left ? q->x - q->w / 2 : left;
        right = i == 0 || q->x + q->w / 2 > right ? q->x + q->w / 2 : right;
    }
    for (uint32_t layer = 0; layer < l->nlayers; layer++) {
        double height = 0;
        for (uint32_t i = l->start[layer]; i < l->start[layer + 1]; i++) {
            place *q = &l->places[l->order[i]];
            q->key = y; /* where the layer begins */
            q->x += (double)GAP_X - left;
            if (q->box != UINT32_MAX) {
                wf_box *b = &p->boxes[q->box];
                b->x = q->x - b->w / 2;
                b->y = y;
                height = b->h > height ? b->h : height;
            }
        }
        y += height + (double)GAP_Y;
    }
    p->width = right - left + 2 * GAP_X;
    p->height = y;
    for (uint32_t i = 0; i < p->nflows; i++) {
        wf_flow *f = &p->flows[i];
        const wf_box *from = &p->boxes[f->from];
        uint32_t path = p->npoints, first = f->path;
        p->points[p->npoints][0] = from->x + from->w / 2;
        p->points[p->npoints++][1] = from->y + from->h;
        for (uint32_t k = 0; k < f->n; k++) {
            const place *q = &l->places[l->links[first + k].down];
            p->points[p->npoints][0] = q->x;
            p->points[p->npoints++][1] = q->key;
        }
        f->path = path;
        f->n++;
    }
}

int wf_picture_layout(wf_picture *p)
{
    layout l = {.p = p, .places = wf_calloc((size_t)p->nboxes + 1, sizeof *l.places)};
    int rc = l.places ? 0 : WEFT_ENOMEM;
    if (!rc) {
        find_layers(&l);
        rc = thread_flows(&l);
    }
    rc = rc ? rc : index_all(&l);
    if (!rc) {
        order_layers(&l);
        position(&l);
        finish(&l);
    }
    wf_mfree(l.places);
    wf_mfree(l.sorted);
    wf_mfree(l.links);
    wf_mfree(l.order);
    wf_mfree(l.start);
    wf_mfree(l.by_down);
    wf_mfree(l.down_start);
    wf_mfree(l.by_up);
    wf_mfree(l.up_start);
    return rc;
}
