/*
 * jit/plan_batch.c -- independent groups of one program become one launch: an optimiser's tensors.
 *
 * A group that can run on the rows of the product before it shares that one's launch (plan_after.c).
 *
 * Steps are visited in order. A group joins the last launch of its program if all it reads is made before
 * that launch; anything else opens a launch of its own. What a step makes is then available at its
 * launch, which is never later than its place was, so every reader still comes after it.
 *
 * Invariant: steps of a launch write and read different memory; buffers are placed afterwards, with
 * launches as their times.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/passes/pass.h"
#include "jit/plan_after.h"

enum { NONE = UINT32_MAX };

/* The first launch in which everything the step reads exists. */
static uint32_t ready(const wf_plan *p, const wf_plan_step *s, const uint32_t *made)
{
    const wf_access *a = &p->accesses[s->access];
    uint32_t at = 0;
    for (int i = s->ndst; i < s->ndst + s->nsrc; i++) {
        uint32_t m = a[i].buffer < 0 ? NONE : made[a[i].buffer];
        at = m != NONE && m + 1 > at ? m + 1 : at;
    }
    return at;
}

static void assign(wf_planner *b, bool on, uint32_t *made, uint32_t *open)
{
    wf_plan *p = b->p;
    bool products = on && !(b->opts->flags & WF_PLAN_ALONE);
    for (uint32_t i = 0; i < p->nsteps; i++) {
        wf_plan_step *s = &p->steps[i];
        s->after =
            products && i > 0 && wf_plan_may_follow(b, s - 1, s) && wf_stage_may(WF_STAGE_epilogue);
        uint32_t *last = s->after                             ? NULL
                         : s->kind == WF_STEP_MAP && !s->axes ? &open[s->program]
                                                              : NULL;
        bool joins = on && last && *last != NONE && *last >= ready(p, s, made) &&
                     wf_stage_may(WF_STAGE_batch);
        s->launch = joins ? *last : s->after ? (s - 1)->launch : p->nlaunches++;
        if (last) {
            *last = s->launch;
        }
        for (int d = 0; d < s->ndst; d++) {
            int32_t u = p->accesses[s->access + (uint32_t)d].buffer;
            if (u >= 0) {
                made[u] = s->launch;
            }
        }
    }
}

/* Steps in order of launches, those of a launch as they were. */
static int sort(wf_plan *p)
{
    wf_plan_step *sorted = malloc((p->nsteps + 1u) * sizeof *sorted);
    uint32_t *at = calloc(p->nlaunches + 1u, sizeof *at);
    if (!sorted || !at) {
        free(sorted);
        free(at);
        return WEFT_ENOMEM;
    }
    for (uint32_t i = 0; i < p->nsteps; i++) {
        at[p->steps[i].launch + 1]++;
    }
    for (uint32_t i = 0; i < p->nlaunches; i++) {
        at[i + 1] += at[i];
    }
    for (uint32_t i = 0; i < p->nsteps; i++) {
        sorted[at[p->steps[i].launch]++] = p->steps[i];
    }
    free(p->steps);
    free(at);
    p->steps = sorted;
    p->capsteps = p->nsteps + 1u;
    return 0;
}

int wf_plan_batch(wf_planner *b)
{
    wf_plan *p = b->p;
    uint32_t *made = malloc((p->nbuffers + 1u) * sizeof *made);
    uint32_t *open = malloc((p->nprograms + 1u) * sizeof *open);
    int rc = made && open ? 0 : WEFT_ENOMEM;
    if (!rc) {
        memset(made, 0xFF, p->nbuffers * sizeof *made);
        memset(open, 0xFF, p->nprograms * sizeof *open);
        assign(b, !(b->opts->flags & WF_PLAN_NO_FUSE), made, open);
        rc = sort(p);
    }
    free(made);
    free(open);
    return rc;
}
