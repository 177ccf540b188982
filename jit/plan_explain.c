/*
 * jit/plan_explain.c -- what a plan says of itself: its steps, the edges that were not fused with a reason each, and where the
 * program called what is in them.
 *
 * A closed row's edge is CLOSED when the plan is built. What that means is known when it is asked for: it has not been measured
 * yet, was measured, or has nothing to gain.
 */
#include <string.h>

#include "jit/plan_int.h"

/* The reason of an edge of `chosen`, which is top or its other way. */
static wf_reason reason_of(const wf_plan *top, const wf_plan *chosen, const wf_plan_edge *e)
{
    if (e->reason != WF_REASON_CLOSED || chosen != top) {
        return (wf_reason)e->reason;
    }
    if (top->flags & WF_PLAN_PLAIN) {
        return WF_REASON_PLAIN;
    }
    const int choice = atomic_load_explicit(&top->choice, memory_order_acquire);
    const wf_plan *rows = atomic_load_explicit(&top->rows, memory_order_acquire);
    return choice == WF_CHOICE_TRIAL ? WF_REASON_UNMEASURED
           : rows                    ? WF_REASON_CLOSED
                                     : WF_REASON_NO_GAIN;
}

bool wf_plan_edge_at(const wf_plan *p, uint32_t i, wf_plan_edge_info *out)
{
    const wf_plan *chosen = wf_plan_chosen(p);
    if (i >= chosen->nedges) {
        return false;
    }
    const wf_plan_edge *e = &chosen->edges[i];
    const wf_reason why = reason_of(p, chosen, e);
    *out = (wf_plan_edge_info){e->reader,           e->v,     e->maker, wf_reason_name[why],
                               wf_reason_text[why], e->saved, e->cost};
    return true;
}

/* "; at a.c:3 a.c:4", the first few. */
static void put_sites(const wf_plan *p, const wf_plan_step *s, FILE *out)
{
    enum { SITES = 6 };
    const char *site[SITES + 1];
    int n = 0;
    for (uint32_t m = 0; m < s->nmember; m++) {
        n = wf_site_add(site, n, SITES + 1, wf_plan_site(p, NULL, p->members[s->member + m]));
    }
    for (int i = 0; i < n; i++) {
        fprintf(out, "%s%s", i ? " " : "; at ", i < SITES ? wf_site_file(site[i]) : "...");
    }
}

static void put_step(const wf_plan *p, const wf_plan_step *s, FILE *out)
{
    static const char *const kinds[] = {
        [WF_STEP_OP] = "op", [WF_STEP_MAP] = "map", [WF_STEP_COPY] = "copy"};
    fprintf(out, "step %u %s:", s->launch, s->axes ? "rows" : kinds[s->kind]);
    for (uint32_t m = 0; m < s->nmember; m++) {
        uint32_t k = p->members[s->member + m];
        fprintf(out, " %%%u %s%s", k + 1, wf_rows[p->fn->ins[k].op].name,
                m + 1 < s->nmember ? "," : "");
    }
    fputs(s->nmember ? "" : " output", out);
    put_sites(p, s, out);
    fputc('\n', out);
}

/* "%6 matmul -> %9 add, through %8 permute": who made, who reads, and where that is a view, the last one. */
static void put_edge(const wf_fn *f, const wf_plan_edge_info *e, FILE *out)
{
    const wf_ins *i = wf_fn_at(f, e->v);
    const bool view = e->maker != e->v && i->op != WF_OP_RESULT;
    fprintf(out, "edge %%%u %s -> %%%u %s", view ? e->maker : e->v,
            wf_rows[wf_fn_at(f, e->maker)->op].name, e->reader + 1,
            wf_rows[f->ins[e->reader].op].name);
    if (view) {
        fprintf(out, ", through %%%u %s", e->v, wf_rows[i->op].name);
    }
}

/* What was decided on images, and what the model made of it. */
static void put_images(const wf_pass_images *i, FILE *out)
{
    if (!i->looked) {
        return;
    }
    if (i->runs) {
        fprintf(out,
                "images: CHANNELS_LAST, in %u runs of rows that read one another; orders cost %lld "
                "bytes",
                i->runs, (long long)i->cost);
    } else {
        fprintf(out, "images: ROW_MAJOR (%s); orders cost %lld bytes",
                i->fat ? "channels-last ones would take more memory"
                       : "channels-last ones would cost as much, or are switched off",
                (long long)(i->fat ? i->in_rows : i->cost));
    }
    if (i->in_rows && i->runs) {
        fprintf(out, ", in rows they would %lld", (long long)i->in_rows);
    }
    fputc('\n', out);
}

int wf_plan_explain(const wf_plan *p, FILE *out)
{
    const wf_plan *chosen = wf_plan_chosen(p);
    const wf_fn *f = chosen->fn;
    wf_plan_edge_info e;
    if (p->flags & WF_PLAN_FAST) {
        fprintf(out, "fast math: results may differ from eager ones in their last places\n");
    }
    put_images(&p->images, out);
    for (uint32_t i = 0; i < chosen->nsteps; i++) {
        put_step(chosen, &chosen->steps[i], out);
    }
    for (uint32_t i = 0; wf_plan_edge_at(p, i, &e); i++) {
        put_edge(f, &e, out);
        fprintf(out, ": %s (%s", e.reason, e.text);
        if (e.saved + e.cost) {
            fprintf(out, "; %s it saves %lld bytes and costs %lld",
                    strcmp(e.reason, wf_reason_name[WF_REASON_COSTS_MORE]) == 0 ? "fused"
                                                                                : "computed again",
                    (long long)e.saved, (long long)e.cost);
        }
        fputs(")\n", out);
    }
    return ferror(out) ? WEFT_EIO : 0;
}
