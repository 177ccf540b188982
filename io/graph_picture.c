/*
 * io/graph_picture.c -- which boxes a graph is drawn as; see graph_picture.h.
 */
#include "io/graph_picture.h"

#include <string.h>

#include "eager/alloc.h"

#define NONE UINT32_MAX

int wf_picture_input(const wf_picture *p, wf_val v)
{
    return wf_fn_at(p->fn, v)->op == WF_OP_INPUT ? (int)wf_fn_at(p->fn, v)->attr : -1;
}

const wf_type *wf_picture_type(const wf_picture *p, wf_val v)
{
    const wf_fn *f = p->g->fn;
    wf_val from = wf_fn_origin(p->fn, v);
    return from && from <= f->n ? wf_fn_type(f, from) : wf_fn_type(p->fn, v);
}

wf_val wf_picture_source(const wf_picture *p, wf_val v)
{
    while (v) {
        const wf_ins *i = wf_fn_at(p->fn, v);
        if (p->box_of[v - 1] != NONE) {
            return v;
        }
        if (i->op == WF_OP_RESULT || wf_rows[i->op].kind == WF_KIND_VIEW) {
            v = i->op == WF_OP_RESULT ? i->src[0] : wf_ins_src(p->fn, i)[0];
            continue;
        }
        return 0; /* a weight, a number, or what no result needs */
    }
    return 0;
}

/* f with symbols that are as large, or as large as they can be. */
static wf_fn *bind_all(const wf_fn *f, int64_t size, wf_why *why)
{
    int64_t sizes[WF_MAX_SYMBOLS] = {0};
    for (uint32_t k = 0; k < f->nsymbols; k++) {
        sizes[k] = wf_range_from(f->range[k], size);
    }
    return wf_graph_bind(f, sizes, why);
}

/* The function with sizes for its symbols, and its plan. */
static int plan(wf_picture *p, wf_why *why)
{
    const wf_fn *f = p->g->fn;
    if (f->nsymbols) {
        wf_why small = {0};
        p->bound = bind_all(f, 16, &small);
        p->bound = p->bound ? p->bound : bind_all(f, 4096, why); /* much is taken off */
        f = p->bound;
    }
    p->plan =
        f ? wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_TIER0 | WF_PLAN_ROWS}, why) : NULL;
    return p->plan ? 0 : why->code;
}

static wf_box *add_box(wf_picture *p, wf_box b)
{
    p->boxes[p->nboxes] = b;
    return &p->boxes[p->nboxes++];
}

/* Inputs, then a box a launch that computes something, then outputs. */
static void make_boxes(wf_picture *p, const int32_t *launch_of, uint32_t launches, uint32_t *start)
{
    const wf_fn *f = p->fn;
    for (uint32_t k = 0; k < f->n; k++) {
        p->box_of[k] = NONE;
        if (launch_of[k] >= 0) {
            start[launch_of[k] + 1]++;
        }
    }
    for (int i = 0; i < p->g->n_inputs; i++) {
        p->box_of[f->inputs[i] - 1] = p->nboxes;
        add_box(p, (wf_box){.kind = WF_BOX_INPUT, .port = i});
    }
    for (uint32_t s = 0; s < launches; s++) {
        start[s + 1] += start[s];
    }
    uint32_t first = p->nboxes, made = 0;
    for (uint32_t s = 0; s < launches; s++) {
        wf_plan_step_info info;
        if (start[s + 1] > start[s] && wf_plan_step_at(p->plan, (int)s, &info)) {
            bool fused = start[s + 1] - start[s] > 1;
            add_box(p, (wf_box){.kind = fused ? WF_BOX_FUSED : WF_BOX_OP,
                                .title = info.kind,
                                .first = start[s]});
        }
    }
    for (uint32_t s = 0; s < launches; s++) { /* from launches to their boxes */
        bool used = start[s + 1] > start[s];
        start[s] = used ? first + made++ : NONE;
    }
    for (uint32_t k = 0; k < f->n; k++) {
        if (launch_of[k] >= 0 && start[launch_of[k]] != NONE) {
            wf_box *b = &p->boxes[start[launch_of[k]]];
            p->ops[b->first + b->n++] = k;
            p->box_of[k] = start[launch_of[k]];
        }
    }
    for (int i = 0; i < p->g->n_outputs; i++) {
        add_box(p, (wf_box){.kind = WF_BOX_OUTPUT, .port = i});
    }
}

static void add_flow(wf_picture *p, wf_val v, uint32_t to, uint32_t reader)
{
    wf_val source = wf_picture_source(p, v);
    uint32_t from = source ? p->box_of[source - 1] : NONE;
    if (from == NONE || from >= to) {
        return;
    }
    for (uint32_t i = p->nflows; i-- > 0 && p->flows[i].to == to;) {
        if (p->flows[i].value == source && (reader == NONE || p->flows[i].reader == reader)) {
            return;
        }
    }
    p->flows[p->nflows++] = (wf_flow){.from = from, .to = to, .value = source, .reader = reader};
}

static void make_flows(wf_picture *p)
{
    const wf_fn *f = p->fn;
    for (uint32_t b = 0; b < p->nboxes; b++) {
        const wf_box *box = &p->boxes[b];
        if (box->kind == WF_BOX_OUTPUT) {
            add_flow(p, f->outputs[box->port], b, NONE);
        }
        for (uint32_t m = box->first; m < box->first + box->n; m++) {
            const wf_ins *i = &f->ins[p->ops[m]];
            const wf_val *src = wf_ins_src(f, i);
            for (int a = 0; a < i->nsrc; a++) {
                add_flow(p, src[a], b, p->ops[m]);
            }
        }
    }
}

int wf_picture_open(wf_picture *p, const weft_graph *g, const char *op)
{
    wf_why why = {0};
    *p = (wf_picture){.g = g};
    int rc = plan(p, &why);
    if (rc) {
        wf_api_error(op, rc, "%s", why.rule);
        wf_picture_close(p);
        return rc;
    }
    const wf_fn *f = wf_plan_fn(p->plan);
    memcpy(&p->fn, &f, sizeof f);
    wf_plan_info info;
    wf_plan_get_info(p->plan, &info);
    size_t n = f->n + 1u, reads = 0, launches = (size_t)info.steps + 2;
    for (uint32_t k = 0; k < f->n; k++) {
        reads += f->ins[k].nsrc;
    }
    int32_t *launch_of = wf_calloc(n, sizeof *launch_of);
    wf_plan_cost *cost = wf_calloc(launches, sizeof *cost);
    uint32_t *start = wf_calloc(launches, sizeof *start);
    p->ops = wf_calloc(n, sizeof *p->ops);
    p->box_of = wf_calloc(n, sizeof *p->box_of);
    p->boxes = wf_calloc(launches + (size_t)(g->n_inputs + g->n_outputs), sizeof *p->boxes);
    p->flows = wf_calloc(reads + (size_t)g->n_outputs + 1, sizeof *p->flows);
    bool room = launch_of && cost && start && p->ops && p->box_of && p->boxes && p->flows;
    rc = room ? wf_plan_costs(p->plan, launch_of, cost, &why) : WEFT_ENOMEM;
    if (!rc) {
        make_boxes(p, launch_of, (uint32_t)info.steps, start);
        make_flows(p);
    } else {
        wf_api_error(op, rc, "%s", room ? why.rule : "out of memory");
        wf_picture_close(p);
    }
    wf_mfree(launch_of);
    wf_mfree(cost);
    wf_mfree(start);
    return rc;
}

void wf_picture_close(wf_picture *p)
{
    wf_plan_release(p->plan);
    wf_fn_free(p->bound);
    wf_mfree(p->ops);
    wf_mfree(p->box_of);
    wf_mfree(p->boxes);
    wf_mfree(p->flows);
    wf_mfree(p->points);
    *p = (wf_picture){0};
}
