/*
 * io/table.c -- weft_table_new: the table of a graph's launches, or of a traced function's (jit/call_table.c).
 */
#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/profile.h"
#include "io/graph.h"
#include "jit/table.h"

typedef struct running {
    weft_graph *g;
    const weft_tensor *in;
    int n_in;
    weft_tensor *out;
} running;

static wf_plan *plan_of(void *user, unsigned flags, wf_why *why)
{
    const running *r = user;
    wf_plan *p = wf_graph_plan_of(r->g, flags, r->in, r->n_in);
    if (!p || wf_graph_device(r->g, r->in) == WF_DEVICE_HOST) {
        return p;
    }
    wf_plan_release(p);
    wf_fail(why, WEFT_EUNSUPPORTED, "the graph runs on a GPU");
    wf_hint(why, "weft_profile_begin has times of a device");
    return NULL;
}

static int run_once(void *user, wf_plan *p, unsigned flags, wf_table_times *times, wf_why *why)
{
    const running *r = user;
    wf_graph_times t = {.steps = times->steps};
    (void)p, (void)why;
    weft_scope scope = weft_scope_begin();
    const int64_t start = wf_prof_clock();
    const weft_status rc =
        wf_graph_run(r->g, flags, r->in, r->n_in, r->out, weft_graph_outputs(r->g), &t);
    times->whole = wf_prof_clock() - start;
    times->plan = t.plan;
    weft_scope_end(scope);
    return (int)rc;
}

/* 0, or a status with an error recorded. */
static int add_graph(const weft_table_args *a, weft_table *t)
{
    running r = {.g = a->graph, .in = a->inputs, .n_in = a->n_inputs};
    const wf_table_of of = {&r, plan_of, run_once};
    wf_why why = {0};
    r.out = wf_malloc(((size_t)a->graph->n_outputs + 1) * sizeof *r.out);
    int rc = r.out ? wf_table_add(t, &of, &why) : wf_fail(&why, WEFT_ENOMEM, "out of memory");
    wf_mfree(r.out);
    return why.code ? wf_raise_status(wf_ctx_get(), "table_new", 0, NULL, &why) : rc;
}

static bool check(const weft_table_args *a)
{
    const char *wrong =
        !a                     ? "the arguments are NULL"
        : !a->graph && !a->jit ? "neither a graph nor a traced function is given"
        : a->graph && a->jit   ? "a graph and a traced function are given: one at a time"
        : a->runs < 0 || a->runs > 1000000 ? "the number of runs must be from 1 to 1000000"
                                           : NULL;
    if (wrong) {
        wf_api_error("table_new", WEFT_EINVALID, "%s", wrong);
    }
    return !wrong;
}

weft_table *(weft_table_new)(const weft_table_args *a)
{
    if (!check(a)) {
        return NULL;
    }
    wf_ctx *c = wf_ctx_get();
    if (c && (c->recorder || c->region.of)) {
        wf_raise_text(c, WEFT_EINVALID, "table_new",
                      "a table is not made inside a trace; make it of the trace as a whole");
        return NULL;
    }
    const char *name = a->name ? a->name : a->graph ? a->graph->fn->name : wf_call_name(a->jit);
    weft_table *t = wf_table_new(name, a->runs, a->fused_only);
    wf_why why = {0};
    if (!t) {
        wf_api_error("table_new", WEFT_ENOMEM, "out of memory");
        return NULL;
    }
    int rc = a->graph ? add_graph(a, t) : wf_call_table(a->jit, a, t);
    if (!rc && (rc = wf_table_finish(t, &why)) != 0) {
        wf_raise_status(wf_ctx_get(), "table_new", 0, NULL, &why);
    }
    if (rc) {
        weft_table_free(t);
        return NULL;
    }
    return t;
}
