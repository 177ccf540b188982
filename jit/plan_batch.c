/*
 * jit/plan_batch.c -- independent groups of one program become one launch: an optimiser's tensors.
 *
 * A group that can run on the rows of the product before it shares that one's launch (plan_after.c).
 *
 * Steps are visited in order. A group joins the last launch of its program if all it reads is made before
 * that launch; anything else opens a launch of its own. What a step makes is then available at its
 * launch, which is never later than its place was, so every reader still comes after it.
 *
 * What is made earlier than it would be, and what is read side by side instead of in turns, lives at once. Where that would
 * raise the peak, steps that make much join nothing: they gain least by it.
 *
 * Invariant: steps of a launch write and read different memory; buffers are placed afterwards, with
 * launches as their times.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/passes/pass.h"
#include "jit/plan_after.h"

enum { NONE = UINT32_MAX };
enum { NEAR = 64, MUCH = 64 << 10 }; /* the peak may rise by a 64th and by so many bytes */

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

/* A sum of everything, which a device adds up beside others of its program: so are the norms of a model's gradients. */
static bool is_whole_sum(const wf_planner *b, const wf_plan_step *s)
{
    const wf_plan *p = b->p;
    bool whole = (b->opts->flags & WF_PLAN_ALONE) && s->ncheck == 0 && s->nscalar == 0;
    for (uint32_t i = s->access; i < s->access + s->ndst + s->nsrc && whole; i++) {
        const wf_access *a = &p->accesses[i];
        whole = a->buffer >= 0;
        for (uint32_t d = 0; d < a->rank && whole; d++) {
            whole = (s->axes >> d & 1) || b->l.words[a->shape + d] == 1;
        }
    }
    return whole;
}

typedef struct batch {
    wf_planner *b;
    uint32_t *first, *made,
        *last;        /* by buffer: launches that begin it, that have made it, that read it last */
    uint32_t *reader; /* the only step of that one which does, or NONE */
    uint32_t *open;   /* by program: its last launch */
    uint8_t *kind;    /* by buffer: LIVES_* */
    int64_t *live;    /* by launch */
} batch;

enum {
    LIVES_BETWEEN,
    LIVES_FROM,
    LIVES_UNTIL,
    LIVES_ALWAYS
}; /* temporaries; results; inputs; written inputs */

static int64_t bytes_made(const wf_plan *p, const wf_plan_step *s)
{
    int64_t sum = 0;
    for (uint32_t d = 0; d < s->ndst; d++) {
        int32_t u = p->accesses[s->access + d].buffer;
        sum += u < 0 ? 0 : p->buffers[u].bytes;
    }
    return sum;
}

/* May step s run on the rows of the product before it? */
static bool may_follow(wf_planner *b, const wf_plan_step *s)
{
    const int before = wf_work_enter(WF_TIMED_epilogue);
    const bool may = wf_plan_may_follow(b, s - 1, s) && wf_stage_may(WF_STAGE_epilogue);
    wf_work_leave(before);
    return may;
}

/* Launches; only steps that make at most so many bytes join another one's (-1: none does). */
static void assign(const batch *x, int64_t most)
{
    wf_planner *b = x->b;
    wf_plan *p = b->p;
    const bool fuses = !(b->opts->flags & WF_PLAN_NO_FUSE);
    bool products = fuses && !(b->opts->flags & WF_PLAN_ALONE);
    memset(x->first, 0xFF, p->nbuffers * sizeof *x->first);
    memset(x->made, 0xFF, p->nbuffers * sizeof *x->made);
    memset(x->open, 0xFF, p->nprograms * sizeof *x->open);
    p->nlaunches = 0;
    for (uint32_t i = 0; i < p->nsteps; i++) {
        wf_plan_step *s = &p->steps[i];
        s->after = products && i > 0 && may_follow(b, s);
        uint32_t *last = s->after ? NULL
                         : s->kind == WF_STEP_MAP && (!s->axes || is_whole_sum(b, s))
                             ? &x->open[s->program]
                             : NULL;
        bool joins = fuses && last && *last != NONE && *last >= ready(p, s, x->made) &&
                     bytes_made(p, s) <= most && wf_stage_may(WF_STAGE_batch);
        const bool copies = i > 0 && s->kind == WF_STEP_COPY && s[-1].kind == WF_STEP_COPY &&
                            s->ins == s[-1].ins; /* what is left of a concat */
        s->launch = joins ? *last : s->after || copies ? (s - 1)->launch : p->nlaunches++;
        if (last) {
            *last = s->launch;
        }
        for (int d = 0; d < s->ndst; d++) {
            int32_t u = p->accesses[s->access + (uint32_t)d].buffer;
            if (u >= 0) { /* a concat is made by several */
                x->first[u] = s->launch < x->first[u] ? s->launch : x->first[u];
                x->made[u] = x->made[u] == NONE || s->launch > x->made[u] ? s->launch : x->made[u];
            }
        }
    }
}

static void find_kinds(const batch *x)
{
    const wf_planner *b = x->b;
    const wf_plan *p = b->p;
    for (uint32_t u = 0; u < p->nbuffers; u++) {
        x->kind[u] = p->buffers[u].place == WF_PLACE_INPUT ? LIVES_UNTIL : LIVES_BETWEEN;
    }
    for (uint32_t k = 0; k < b->f->noutputs; k++) {
        const int32_t u = b->buffer_of[b->l.map[b->f->outputs[k]].root];
        const int32_t j = b->opts->writes ? b->opts->writes[k] : -1;
        const int32_t replaced = j < 0 ? -1 : b->buffer_of[b->f->inputs[j]];
        if (replaced >= 0) {
            x->kind[replaced] = LIVES_ALWAYS;
        }
        if (u >= 0 && x->kind[u] != LIVES_ALWAYS) {
            x->kind[u] = j >= 0 ? LIVES_ALWAYS : LIVES_FROM;
        }
    }
}

static void find_ends(const batch *x)
{
    const wf_plan *p = x->b->p;
    memset(x->last, 0, p->nbuffers * sizeof *x->last);
    memset(x->reader, 0xFF, p->nbuffers * sizeof *x->reader);
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const wf_plan_step *s = &p->steps[i];
        for (uint32_t k = 0; k < (uint32_t)s->ndst + s->nsrc; k++) {
            const int32_t u = p->accesses[s->access + k].buffer;
            if (u >= 0 && s->launch >= x->last[u]) {
                const bool again = s->launch == x->last[u] && x->reader[u] != i;
                x->reader[u] = again && x->reader[u] != NONE ? NONE : i;
                x->last[u] = s->launch;
            }
        }
    }
}

/* What a step makes in place of an operand that dies there counts once. */
static void count_in_place(const batch *x, uint32_t i)
{
    const wf_plan *p = x->b->p;
    const wf_plan_step *s = &p->steps[i];
    const wf_access *a = &p->accesses[s->access];
    for (uint32_t d = 0; d < s->ndst && s->kind == WF_STEP_MAP && !s->axes; d++) {
        for (uint32_t k = s->ndst; k < (uint32_t)s->ndst + s->nsrc && a[d].buffer >= 0; k++) {
            const int32_t u = a[k].buffer;
            const int64_t bytes = p->buffers[a[d].buffer].bytes;
            if (u >= 0 && x->reader[u] == i && x->kind[u] == LIVES_BETWEEN &&
                p->buffers[u].bytes == bytes && x->kind[a[d].buffer] != LIVES_ALWAYS) {
                x->live[s->launch] -= bytes;
                x->live[s->launch + 1] += bytes;
                x->reader[u] = NONE;
                break;
            }
        }
    }
}

/* The most bytes at one launch, as steps are assigned: inputs until they have been read. */
static int64_t peak_of(const batch *x)
{
    const wf_plan *p = x->b->p;
    int64_t most = 0, sum = 0;
    memset(x->live, 0, (p->nlaunches + 2u) * sizeof *x->live);
    find_ends(x);
    for (uint32_t u = 0; u < p->nbuffers; u++) {
        const bool made = x->made[u] != NONE;
        if (x->kind[u] != LIVES_ALWAYS && (made || x->kind[u] == LIVES_UNTIL)) {
            x->live[made ? x->first[u] : 0] += p->buffers[u].bytes;
            x->live[x->kind[u] == LIVES_FROM ? p->nlaunches : x->last[u] + 1] -=
                p->buffers[u].bytes;
        }
    }
    for (uint32_t i = 0; i < p->nsteps; i++) {
        count_in_place(x, i);
    }
    for (uint32_t s = 0; s < p->nlaunches; s++) {
        sum += x->live[s];
        most = sum > most ? sum : most;
    }
    return most;
}

/* As many joined as the peak allows. */
static void assign_some(const batch *x)
{
    static const int64_t most[] = {INT64_MAX, 256 << 10, 16 << 10};
    assign(x, -1);
    const uint32_t alone = x->b->p->nlaunches;
    const int64_t peak = peak_of(x), limit = peak + peak / NEAR + MUCH;
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        assign(x, most[i]);
        if (x->b->p->nlaunches == alone || peak_of(x) <= limit) {
            return;
        }
    }
    assign(x, -1);
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
    const wf_plan *p = b->p;
    batch x = {.b = b,
               .first = malloc((p->nbuffers + 1u) * sizeof *x.first),
               .made = malloc((p->nbuffers + 1u) * sizeof *x.made),
               .last = malloc((p->nbuffers + 1u) * sizeof *x.last),
               .reader = malloc((p->nbuffers + 1u) * sizeof *x.reader),
               .open = malloc((p->nprograms + 1u) * sizeof *x.open),
               .kind = malloc(p->nbuffers + 1u),
               .live = malloc((p->nsteps + 2u) * sizeof *x.live)};
    int rc =
        x.first && x.made && x.last && x.reader && x.open && x.kind && x.live ? 0 : WEFT_ENOMEM;
    if (!rc) {
        find_kinds(&x);
        assign_some(&x);
        rc = sort(b->p);
    }
    free(x.first);
    free(x.made);
    free(x.last);
    free(x.reader);
    free(x.open);
    free(x.kind);
    free(x.live);
    return rc;
}
