/*
 * jit/plan_cost.c -- what the launches of a plan move and compute, and what their instructions would alone.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/ir/build.h"
#include "jit/ir/flops.h"
#include "jit/passes/cost.h"
#include "jit/plan_int.h"

/* Was this memory, in this order, among the sources before? */
static bool is_again(const wf_access *src, int i, const int64_t *words)
{
    for (int k = 0; k < i; k++) {
        const wf_access *a = &src[k], *b = &src[i];
        if (a->buffer == b->buffer && a->dtype == b->dtype && a->rank == b->rank &&
            a->offset == b->offset && a->nterms + b->nterms == 0 &&
            memcmp(words + a->shape, words + b->shape, 2u * a->rank * sizeof *words) == 0) {
            return true;
        }
    }
    return false;
}

void wf_plan_traffic(const wf_plan *p, const wf_plan_step *s, const int64_t *words, int64_t *reads,
                     int64_t *writes)
{
    const wf_access *a = &p->accesses[s->access];
    int64_t result = 0, all = 0;
    for (int i = 0; i < s->ndst; i++) {
        int64_t bytes =
            a[i].buffer < 0 ? 0 : wf_cost_bytes(a[i].dtype, a[i].rank, words + a[i].shape);
        result = i == 0 ? bytes / (int64_t)wf_dtype_size(a[i].dtype) : result;
        wf_cost_add(writes, bytes);
        all += bytes;
    }
    if (s->ndst && a[0].buffer >= 0 && all == 0) { /* no elements: the kernel reads nothing */
        return;
    }
    const wf_access *src = a + s->ndst;
    for (int i = 0; i < s->nsrc; i++) {
        if (src[i].buffer < 0 || (i < 64 && is_again(src, i, words))) {
            continue;
        }
        int64_t bytes = wf_cost_bytes(src[i].dtype, src[i].rank, words + src[i].shape);
        wf_cost_add(reads, s->kind == WF_STEP_OP
                               ? wf_cost_read((wf_op)s->op, i, src[i].dtype, bytes, result)
                               : bytes);
    }
}

const wf_plan *wf_plan_chosen(const wf_plan *p)
{
    return atomic_load_explicit(&p->choice, memory_order_relaxed) == WF_CHOICE_ROWS
               ? atomic_load_explicit(&p->rows, memory_order_acquire)
               : p;
}

const wf_fn *wf_plan_fn(const wf_plan *p)
{
    return wf_plan_chosen(p)->fn;
}

/* Instruction k is run in the launch, too. */
static void cost_member(const wf_plan *p, const wf_layout *l, uint32_t k, uint32_t launch,
                        int32_t *launch_of, wf_plan_cost *cost)
{
    int64_t reads, writes;
    if (launch_of[k] < 0) { /* not a further copy of what is left of a concat */
        wf_cost_alone(l, k, &reads, &writes);
        wf_cost_add(&cost[launch].alone_bytes, reads);
        wf_cost_add(&cost[launch].alone_bytes, writes);
        wf_cost_add(&cost[launch].flops, wf_flops(p->fn, k));
        launch_of[k] = (int32_t)launch;
    }
}

/* Concats that are made of nothing but parts: where the last of them is written. */
static void cost_parts(const wf_plan *p, const wf_layout *l, int32_t *launch_of, wf_plan_cost *cost)
{
    for (uint32_t i = p->nsteps; i-- > 0;) {
        const wf_plan_step *s = &p->steps[i];
        for (uint32_t d = 0; d < s->ndst; d++) {
            const wf_val v = p->buffers[p->accesses[s->access + d].buffer].v;
            if (wf_fn_at(p->fn, v)->op == WF_OP_CONCAT) {
                cost_member(p, l, v - 1, s->launch, launch_of, cost);
            }
        }
    }
}

int wf_plan_costs(const wf_plan *p, int32_t *launch_of, wf_plan_cost *cost, wf_why *why)
{
    p = wf_plan_chosen(p);
    wf_layout l;
    int rc = wf_layout_init(&l, p->fn, (p->flags & WF_PLAN_ALONE) != 0, p->aligned, why);
    memset(cost, 0, p->nlaunches * sizeof *cost);
    for (uint32_t k = 0; k < p->fn->n; k++) {
        launch_of[k] = -1;
    }
    for (uint32_t i = 0; i < p->nsteps && !rc; i++) {
        const wf_plan_step *s = &p->steps[i];
        for (uint32_t m = s->member; m < s->member + s->nmember; m++) {
            cost_member(p, &l, p->members[m], s->launch, launch_of, cost);
        }
        if (!s->nmember) { /* a copy to an output */
            int64_t *bytes = &cost[s->launch].alone_bytes;
            wf_plan_traffic(p, s, p->words, bytes, bytes);
        }
    }
    if (!rc) {
        cost_parts(p, &l, launch_of, cost);
    }
    wf_layout_free(&l);
    return rc;
}

/* The bytes from `at` on that a map of elements touches, added to [*lo, *hi). */
static void widen(int64_t at, int rank, const int64_t *dims, const int64_t *strides, int64_t size,
                  int64_t *lo, int64_t *hi)
{
    int64_t from, to;
    if (wf_map_reach(rank, dims, strides, &from, &to) > 0) {
        from = (at + from) * size;
        to = (at + to + 1) * size;
        *lo = *hi == 0 || from < *lo ? from : *lo;
        *hi = to > *hi ? to : *hi;
    }
}

/* Is the access one to the memory of the input? */
static bool is_of(const wf_plan *p, const wf_access *a, uint32_t input)
{
    const wf_buffer *b = a->buffer < 0 ? NULL : &p->buffers[a->buffer];
    if (!b || b->place == WF_PLACE_INPUT) {
        return b && b->index == input;
    }
    return b->place == WF_PLACE_OUTPUT && p->writes && p->writes[b->index] == (int32_t)input;
}

void wf_plan_reach(const wf_plan *own, const wf_fn *recording, uint32_t input, int64_t *lo,
                   int64_t *hi)
{
    const wf_plan *p = wf_plan_chosen(own);
    *lo = *hi = 0;
    for (uint32_t n = 0; n < p->nsteps; n++) {
        const wf_plan_step *s = &p->steps[n];
        const wf_access *a = &p->accesses[s->access];
        int first = 0;
        if (s->kind == WF_STEP_OP && s->op == WF_OP_UPDATE && is_of(p, &a[0], input) &&
            is_of(p, &a[1], input)) { /* in its place: what the map names */
            const wf_attr *at = wf_attr_now(p->fn, s->ins, recording);
            const int rank = at->n_dyn / 2;
            widen(at->dyn[2 * rank], rank, at->dyn, at->dyn + rank,
                  (int64_t)wf_dtype_size(a->dtype), lo, hi);
            first = 2;
        }
        for (int i = first; i < s->ndst + s->nsrc; i++) {
            const int64_t *dims = p->words + a[i].shape;
            int64_t at = a[i].offset;
            for (uint32_t t = a[i].term; t < a[i].term + (uint32_t)a[i].nterms; t++) {
                const wf_term *term = &p->terms[t];
                at += wf_term_value(term, wf_attr_now(p->fn, term->ins, recording));
            }
            if (is_of(p, &a[i], input)) {
                widen(at, a[i].rank, dims, dims + a[i].rank, (int64_t)wf_dtype_size(a[i].dtype), lo,
                      hi);
            }
        }
    }
}
