/*
 * jit/call_table.c -- the table of a traced function's launches: a call, before whose graphs run they are measured.
 *
 * Invariant: measuring has no effect but the time it takes. Graphs run on copies of what they write, which are made anew
 * before each run; their other results go at once.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "jit/call_impl.h"
#include "jit/table.h"

/* A recorded graph with memory to run it in. */
typedef struct bench {
    const wf_job *job;
    unsigned flags; /* of every plan of it */
    wf_view *in, *out;
    void **copy; /* per input that is written: what it is run on; NULL: it is not written */
} bench;

typedef struct watching {
    wf_call_watch base; /* first */
    weft_table *table;
    wf_why why;
    int failed; /* the status of the first graph that could not be measured */
} watching;

static wf_plan *plan_of(void *user, unsigned flags, wf_why *why)
{
    const bench *b = user;
    return wf_plan_build(b->job->fn,
                         &(wf_plan_opts){.flags = flags | b->flags, .writes = b->job->writes}, why);
}

static int run_once(void *user, wf_plan *p, unsigned flags, wf_table_times *times, wf_why *why)
{
    const bench *b = user;
    const wf_job *job = b->job;
    (void)flags;
    for (uint32_t i = 0; i < job->fn->ninputs; i++) {
        if (b->copy[i]) {
            memcpy(b->copy[i], job->in[i].data, wf_view_bytes(&job->in[i]));
        }
    }
    for (uint32_t k = 0; k < job->noutputs; k++) {
        b->out[k] = job->out[k];
        b->out[k].data = job->writes[k] >= 0 ? b->copy[job->writes[k]] : NULL;
    }
    wf_plan_args a = {.fn = job->fn, .in = b->in, .out = b->out, .step_ns = times->steps};
    unsigned mode = wf_fpenv_enter();
    const int64_t start = wf_prof_clock();
    const int rc = wf_plan_run(p, &a, why);
    times->plan = wf_prof_clock() - start;
    wf_fpenv_leave(mode);
    for (uint32_t k = 0; k < job->noutputs && !rc; k++) {
        if (job->writes[k] < 0) {
            wf_free(b->out[k].data, wf_view_bytes(&b->out[k]));
        }
    }
    times->whole = wf_prof_clock() - start;
    return rc;
}

static void close_bench(bench *b)
{
    for (uint32_t i = 0; b->copy && i < b->job->fn->ninputs; i++) {
        wf_free(b->copy[i], b->copy[i] ? wf_view_bytes(&b->job->in[i]) : 0);
    }
    wf_mfree(b->copy);
    wf_mfree(b->in);
    wf_mfree(b->out);
}

static int open_bench(bench *b, wf_why *why)
{
    const wf_job *job = b->job;
    const size_t n = job->fn->ninputs;
    b->in = wf_malloc((n + 1) * sizeof *b->in);
    b->out = wf_malloc((job->noutputs + 1) * sizeof *b->out);
    b->copy = wf_calloc(n + 1, sizeof *b->copy);
    bool good = b->in && b->out && b->copy;
    if (good && n) {
        memcpy(b->in, job->in, n * sizeof *b->in);
    }
    for (uint32_t k = 0; good && k < job->noutputs; k++) {
        const int32_t i = job->writes[k];
        if (i >= 0 && !b->copy[i]) {
            b->copy[i] = b->in[i].data = wf_alloc(wf_view_bytes(&job->in[i]));
            good = b->copy[i] != NULL;
        }
    }
    return good ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory for copies of what is written");
}

static void measure(wf_call_watch *base, const weft_jit *j, const wf_job *job)
{
    watching *w = (watching *)(void *)base;
    bench b = {.job = job,
               .flags = (j->no_fuse ? WF_PLAN_NO_FUSE : 0) | (j->fast_math ? WF_PLAN_FAST : 0)};
    if (w->failed) {
        return;
    }
    if (job->device) {
        w->failed = wf_fail(&w->why, WEFT_EUNSUPPORTED, "the function runs on a GPU");
        wf_hint(&w->why, "weft_profile_begin has times of a device");
        return;
    }
    const wf_table_of of = {&b, plan_of, run_once};
    w->failed = open_bench(&b, &w->why);
    w->failed = w->failed ? w->failed : wf_table_add(w->table, &of, &w->why);
    close_bench(&b);
}

const char *wf_call_name(const weft_jit *j)
{
    return j->name;
}

int wf_call_table(weft_jit *j, const weft_table_args *args, weft_table *t)
{
    wf_ctx *c = wf_ctx_get();
    watching w = {.base = {measure}, .table = t};
    weft_tensor few[8], *out = args->outputs;
    const int n = args->n_outputs < 0 ? 0 : args->n_outputs ? args->n_outputs : 1;
    if (!out) {
        out = n <= 8 ? few : wf_malloc((size_t)n * sizeof *out);
    }
    if (!c || !out) {
        wf_raise_text(c, WEFT_ENOMEM, "table_new", "out of memory");
        return WEFT_ENOMEM;
    }
    weft_scope sc = args->outputs ? (weft_scope){0} : weft_scope_begin();
    int rc = (int)wf_call_watched(j, args->inputs, args->n_inputs, out, n, &w.base);
    if (!args->outputs) {
        weft_scope_end(sc);
    }
    if (out != few && out != args->outputs) {
        wf_mfree(out);
    }
    if (!rc && w.failed) {
        rc = w.failed;
        wf_raise_text(c, rc, "table_new", "'%s' cannot be measured: %s%s%s", j->name, w.why.rule,
                      w.why.hint[0] ? "; " : "", w.why.hint);
    }
    return rc;
}
