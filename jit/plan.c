/*
 * jit/plan.c -- building a plan out of its parts, and what can be asked of one; see plan.h.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/env.h"
#include "eager/profile.h"
#include "jit/passes/again.h"
#include "jit/passes/cost.h"
#include "jit/passes/pass.h"
#include "jit/plan_after.h"
#include "jit/plan_int.h"

bool wf_plan_is_key(wf_op op, int n_dyn, int i)
{
    if (op == WF_OP_SLICE) {
        return i == 2;
    }
    return (op == WF_OP_AS_STRIDED || op == WF_OP_UPDATE) && i < n_dyn - 1;
}

bool wf_plan_key_flt(wf_op op, const wf_attr *a)
{
    if (op == WF_OP_NORM) {
        return !wf_is_euclidean(a);
    }
    return (op == WF_OP_CROSS_ENTROPY || op == WF_OP_CROSS_ENTROPY_BWD) && a->n_flt > 0 &&
           a->flt[0] != 0;
}

static void plan_free(wf_plan *p)
{
    wf_plan *rows = atomic_load_explicit(&p->rows, memory_order_relaxed);
    if (rows) { /* it shares fn */
        rows->fn = NULL;
        plan_free(rows);
    }
    wf_reference_free(atomic_load_explicit(&p->reference, memory_order_relaxed));
    free(p->writes);
    for (uint32_t i = 0; i < p->nprograms; i++) {
        wf_jitk_release(p->programs[i].kernel);
        free(p->programs[i].program);
    }
    free(p->programs);
    free(p->steps);
    free(p->accesses);
    free(p->scalars);
    free(p->checks);
    free(p->buffers);
    free(p->takes);
    free(p->gives);
    free(p->temporary);
    wf_plan_drop_spare(p);
    free(p->words);
    free(p->members);
    wf_fn_free(p->fn);
    free(p->edges);
    free(p->terms);
    free(p->out_type);
    free(p);
}

void wf_plan_retain(wf_plan *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
}

void wf_plan_release(wf_plan *p)
{
    if (p && atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1) {
        plan_free(p);
    }
}

static int copy_outputs(wf_plan *p, const wf_fn *f)
{
    p->out_type = malloc((f->noutputs + 1u) * sizeof *p->out_type);
    for (uint32_t k = 0; p->out_type && k < f->noutputs; k++) {
        p->out_type[k] = *wf_fn_type(f, f->outputs[k]);
        p->info.result_bytes += wf_type_bytes(&p->out_type[k]);
    }
    return p->out_type ? 0 : WEFT_ENOMEM;
}

/* Of each group that runs on the rows of a product: that product's group + 1. */
static uint32_t *find_products(const wf_planner *b)
{
    const wf_plan *p = b->p;
    uint32_t *of = calloc(b->s.ngroups + 1u, sizeof *of);
    for (uint32_t i = 1; of && i < p->nsteps; i++) {
        const wf_plan_step *s = &p->steps[i];
        if (s->after) {
            of[b->s.group_of[b->s.members[s->member]]] =
                b->s.group_of[b->s.members[(s - 1)->member]] + 1;
        }
    }
    return of;
}

/* The figures of the model: of one kernel more crowded than two, or of computing the value again. */
static void weigh_edge(const wf_planner *b, wf_plan_edge *e, wf_val root)
{
    if (e->reason == WF_REASON_COSTS_MORE) {
        const wf_group *x = &b->s.groups[b->s.group_of[wf_maker_of(&b->l, root) - 1]];
        const wf_group *y = &b->s.groups[b->s.group_of[e->reader]];
        const wf_map_of *m = &b->l.map[root];
        const int64_t bytes =
            wf_weigh_bytes(wf_cost_bytes(m->dtype, m->rank, b->l.words + m->shape));
        e->saved = 2 * bytes + WF_LAUNCH;
        e->cost = wf_weigh_crowd(x->streams + y->streams, bytes);
    } else if (b->s.weighed) {
        e->saved = b->s.weighed[root].saved;
        e->cost = b->s.weighed[root].cost;
    }
}

/* Every value that one step makes and another reads, with the reason. */
static int find_edges(wf_planner *b)
{
    const wf_fn *f = b->f;
    wf_plan *p = b->p;
    uint32_t *product = find_products(b);
    if (!product) {
        return WEFT_ENOMEM;
    }
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        for (int i = 0; b->s.group_of[k] != WF_NO_GROUP && i < f->ins[k].nsrc; i++) {
            wf_reason why = wf_edge_reason(&b->s, &b->l, k, src[i]);
            if (why == WF_REASON_NONE) {
                continue;
            }
            if (wf_grow(&p->edges, p->nedges, 1, &p->capedges, sizeof *p->edges)) {
                free(product);
                return WEFT_ENOMEM;
            }
            if (product[b->s.group_of[k]] == b->s.group_of[wf_maker_of(&b->l, src[i]) - 1] + 1) {
                why = WF_REASON_EPILOGUE;
            }
            const wf_val root = b->l.map[src[i]].root;
            why = wf_is_again(&b->s, b->s.group_of[k], root) ? WF_REASON_AGAIN
                  : b->part && b->part[root].whole == k + 1  ? WF_REASON_PART
                                                             : why;
            p->edges[p->nedges] = (wf_plan_edge){.reader = k,
                                                 .v = src[i],
                                                 .maker = wf_maker_of(&b->l, src[i]),
                                                 .reason = (uint8_t)why};
            weigh_edge(b, &p->edges[p->nedges++], root);
        }
    }
    free(product);
    p->members = b->s.members;
    b->s.members = NULL;
    for (uint32_t g = 0; g < b->s.ngroups; g++) {
        const uint32_t end = b->s.groups[g].first + b->s.groups[g].n;
        p->nmembers = end > p->nmembers ? end : p->nmembers;
    }
    return 0;
}

/* Traffic of the plan, and of the same instructions op by op. */
static int count_traffic(wf_planner *b)
{
    wf_plan_info *o = &b->p->info;
    for (uint32_t i = 0; i < b->p->nsteps; i++) {
        wf_plan_traffic(b->p, &b->p->steps[i], b->l.words, &o->read_bytes, &o->write_bytes);
    }
    return wf_cost_eager(&b->l, b->s.group_of, &o->eager_read_bytes, &o->eager_write_bytes);
}

/* Sizes of the largest launch, for the block of a run. */
static void measure(wf_plan *p)
{
    uint32_t views = 0, scalars = 0, steps = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const wf_plan_step *x = &p->steps[s];
        bool first = s == 0 || x->launch != p->steps[s - 1].launch;
        views = (first ? 0 : views) + x->ndst + x->nsrc;
        scalars = (first ? 0 : scalars) + x->nscalar;
        steps = (first ? 0 : steps) + 1;
        p->most_views = views > p->most_views ? views : p->most_views;
        p->most_scalars = scalars > p->most_scalars ? scalars : p->most_scalars;
        p->most_steps = steps > p->most_steps ? steps : p->most_steps;
    }
}

static int find_kernels(wf_planner *b)
{
    wf_plan *p = b->p;
    for (uint32_t i = 0; i < p->nprograms && !(b->opts->flags & WF_PLAN_TIER0); i++) {
        wf_plan_program *x = &p->programs[i];
        if (wf_program_is_row(x->program) || wf_program_is_copy(x->program)) {
            continue; /* nothing was fused: its eager kernel is written for it, and native already */
        }
        wf_jitk_opts o = {
            .one = x->one, .sync = (b->opts->flags & WF_PLAN_SYNC) != 0, .target = b->opts->target};
        x->kernel = wf_jitk_get(x->program, &o);
        if (!x->kernel) {
            return WEFT_ENOMEM;
        }
    }
    measure(p);
    return 0;
}

static unsigned fuse_flags(const wf_planner *b)
{
    return b->opts->flags & WF_PLAN_NO_FUSE ? WF_FUSE_OFF
           : b->opts->flags & WF_PLAN_ROWS && b->most == 0
               ? b->lean | WF_FUSE_ROWS | (b->opts->flags & WF_PLAN_ALONE ? WF_FUSE_ALONE : 0)
               : b->lean;
}

enum { MORE = 16, MUCH = 64 << 10 }; /* of the peak, and bytes */

static int64_t with_more(int64_t peak)
{
    return peak + peak / MORE + MUCH;
}

#define WRITTEN UINT32_MAX /* lies in the memory of an input, which it replaces */

/* The most that lives at once where each op runs alone and frees what it was the last to read. */
static int find_alone(const wf_planner *b, int64_t *most)
{
    const wf_fn *f = b->f;
    int64_t sum = 0, *live = calloc(f->n + 2u, sizeof *live);
    uint32_t *last = calloc(f->n + 1u, sizeof *last);
    int rc = live && last ? 0 : WEFT_ENOMEM;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        last[k + 1] = k;
        for (int i = 0; i < f->ins[k].nsrc; i++) {
            last[b->l.map[src[i]].root] = k;
        }
    }
    for (uint32_t o = 0; o < f->noutputs && !rc; o++) {
        bool replaces = b->opts->writes && b->opts->writes[o] >= 0;
        last[b->l.map[f->outputs[o]].root] = replaces ? WRITTEN : f->n;
    }
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        bool makes = (b->buffer_of[k + 1] >= 0 || (b->part && b->part[k + 1].whole)) &&
                     f->ins[k].op != WF_OP_INPUT && last[k + 1] != WRITTEN;
        const int64_t bytes = makes ? wf_type_bytes(wf_fn_type(f, k + 1)) : 0;
        live[k] += bytes;
        live[makes ? last[k + 1] + 1 : 0] -= bytes;
    }
    *most = 0;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        sum += live[k];
        *most = sum > *most ? sum : *most;
    }
    free(live);
    free(last);
    return rc;
}

/* A plan in which groups wait with much more than ops would have is not taken if another one, in which they do not, is
 * better. */
static int check_peak(wf_planner *b)
{
    const int64_t bound = b->p->info.bound_bytes;
    int64_t alone = 0;
    if (b->opts->flags & WF_PLAN_NO_FUSE || b->any) {
        return 0;
    }
    int rc = b->lean ? 0 : find_alone(b, &alone);
    bool refused = !rc && (b->lean ? with_more(bound) > b->fat : bound > with_more(alone));
    b->fat = refused && !b->lean ? bound : b->fat;
    return refused ? wf_fail(b->why, WEFT_EUNSUPPORTED, "it takes too much memory") : rc;
}

/* Adds a value's bytes, *whose where they make it more than any memory has. */
static void count_size(const wf_fn *f, wf_val v, int64_t *all, wf_val *whose)
{
    static const int64_t most = (int64_t)1 << 52, most_of_all = (int64_t)1 << 60;
    const int64_t bytes = wf_type_bytes(wf_fn_type(f, v));
    *all += bytes < 0 || bytes > most ? most_of_all : bytes;
    *whose = *all >= most_of_all && !*whose ? v : *whose;
}

/* What takes more than any memory has is refused, so that sums over less do not overflow: what is made, and what is returned, as often
 * as it is. A view takes nothing, whatever its extents; a row that is no view goes through all of it. */
static int check_sizes(const wf_planner *b)
{
    const wf_fn *f = b->f;
    int64_t all = 0;
    wf_val whose = 0;
    for (wf_val v = 1; v <= f->n && !whose; v++) {
        if (!b->live[v] || b->l.map[v].root != v) {
            continue;
        }
        const wf_ins *i = wf_fn_at(f, v);
        count_size(f, v, &all, &whose);
        for (int s = 0; s < i->nsrc && !whose; s++) {
            const wf_val src = wf_ins_src(f, i)[s];
            int64_t alone = 0;
            if (src) {
                count_size(f, src, &alone, &whose);
            }
        }
    }
    for (uint32_t k = 0; k < f->noutputs && !whose; k++) {
        count_size(f, f->outputs[k], &all, &whose);
    }
    return whose ? wf_fail(b->why, WEFT_ENOMEM,
                           "with %%%u, which %s makes, the values take more than any memory has",
                           whose, wf_rows[wf_fn_at(f, whose)->op].name)
                 : 0;
}

static int build(wf_planner *b)
{
    const wf_fn *f = b->f;
    wf_plan *p = b->p;
    b->live = calloc(f->n + 1u, 1);
    b->buffer_of = malloc((f->n + 1u) * sizeof *b->buffer_of);
    p->ninputs = f->ninputs;
    p->noutputs = f->noutputs;
    int before = wf_work_enter(WF_TIMED_maps);
    int rc = b->live && b->buffer_of ? wf_pass_live(f, b->live) : WEFT_ENOMEM;
    rc =
        rc ? rc
           : wf_layout_init(&b->l, f, (b->opts->flags & WF_PLAN_ALONE) != 0, !b->row_major, b->why);
    for (wf_val v = 1; v <= f->n && !rc;
         v++) { /* memory that is read is made, if for another value */
        b->live[b->l.map[v].root] |= b->live[v];
    }
    for (uint32_t k = 0; k < f->noutputs && !rc; k++) {
        if (!b->l.map[f->outputs[k]].root) {
            rc = wf_fail(b->why, WEFT_EUNSUPPORTED, "output %u is a scalar slot", k);
        }
    }
    rc = rc ? rc : check_sizes(b);
    (void)wf_work_enter(WF_TIMED_fuse);
    rc = rc ? rc : wf_fuse(&b->s, &b->l, b->live, fuse_flags(b), b->most, b->why);
    if (!rc && b->most == 0 && !(b->opts->flags & WF_PLAN_NO_FUSE)) {
        (void)wf_work_enter(WF_TIMED_again);
        rc = wf_choose_again(&b->s, &b->l, b->opts->writes);
    }
    (void)wf_work_enter(WF_TIMED_programs);
    rc = rc ? rc : wf_plan_lower(b);
    (void)wf_work_enter(WF_TIMED_batch);
    rc = rc ? rc : wf_plan_batch(b);
    (void)wf_work_enter(WF_TIMED_buffers);
    rc = rc ? rc : wf_plan_place(b);
    (void)wf_work_enter(WF_TIMED_finish);
    rc = rc ? rc : check_peak(b);
    rc = rc ? rc : copy_outputs(p, f);
    rc = rc ? rc : find_edges(b);
    rc = rc ? rc : find_kernels(b);
    rc = rc ? rc : count_traffic(b);
    p->words = b->l.words;
    p->terms = b->l.terms;
    p->nwords = b->l.nwords;
    p->nterms = b->l.nterms;
    b->l.words = NULL;
    b->l.terms = NULL;
    p->info.steps = (int)p->nlaunches;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        bool first = s == 0 || p->steps[s].launch != p->steps[s - 1].launch;
        p->info.groups += (first || p->steps[s].after) && p->steps[s].kind == WF_STEP_MAP;
    }
    for (uint32_t k = 0; k < f->n; k++) {
        p->info.ops += b->s.group_of && b->s.group_of[k] != WF_NO_GROUP;
    }
    wf_work_leave(before);
    return rc;
}

/* How a function is planned, and why that was no good. */
typedef struct attempt {
    uint32_t most; /* members of a group, 0: no bound */
    unsigned lean; /* as of wf_planner */
    bool too_large;
    bool aligned, row_major; /* it had aligned rows; it is to have none */
    bool parts, whole;       /* it had parts (plan_parts.c); it is to have none */
    bool any;                /* it is taken, whatever memory it takes */
    int64_t fat;
} attempt;

static wf_plan *try_build(const wf_fn *f, const wf_plan_opts *opts, attempt *t, wf_why *why)
{
    wf_planner b = {.p = calloc(1, sizeof *b.p),
                    .f = f,
                    .opts = opts,
                    .most = t->most,
                    .lean = t->lean,
                    .row_major = t->row_major,
                    .whole = t->whole,
                    .any = t->any,
                    .fat = t->fat,
                    .why = why};
    b.why->code = 0;
    b.why->rule[0] = b.why->hint[0] = '\0';
    int rc = b.p ? build(&b) : WEFT_ENOMEM;
    t->aligned = b.l.aligned;
    t->parts = b.part != NULL;
    if (b.p) {
        b.p->aligned = b.l.aligned;
    }
    if (!rc && wf_pass_verifies()) {
        wf_why fault = {0};
        const int before = wf_work_enter(WF_TIMED_finish);
        rc = wf_plan_verify(b.p, f, opts, &fault);
        wf_work_leave(before);
        rc = rc ? wf_fail(why, rc, "the plan of %s: %.180s", f->name, fault.rule) : 0;
    }
    if (rc && b.why->rule[0] == '\0') {
        wf_fail(b.why, WEFT_ENOMEM, "out of memory for a plan");
    }
    wf_layout_free(&b.l);
    wf_schedule_free(&b.s);
    free(b.live);
    free(b.buffer_of);
    free(b.part);
    free(b.writer);
    t->too_large = b.too_large;
    t->fat = b.fat;
    if (rc) {
        if (b.p) {
            plan_free(b.p);
        }
        return NULL;
    }
    b.p->tells = wf_env_debug(WF_DEBUG_LAUNCH);
    b.p->validates = wf_env()->WEFT_VALIDATE != 0;
    atomic_store_explicit(&b.p->refs, 1, memory_order_relaxed);
    return b.p;
}

static bool has_openable(const wf_fn *f)
{
    for (uint32_t k = 0; k < f->n; k++) {
        int kind = wf_rows[f->ins[k].op].kind;
        if (kind == WF_KIND_REDUCE || kind == WF_KIND_ROWWISE || kind == WF_KIND_GRAD) {
            return true;
        }
    }
    return false;
}

/* Members of a group that fits into a program whatever they are: none reads more than five values. */
enum { FEW = 6 };

/* The plan of least memory of those that there are. */
static wf_plan *build_lean(const wf_fn *f, const wf_plan_opts *opts, attempt *t, wf_why *why)
{
    t->fat = 0;
    wf_plan *p = try_build(f, opts, t, why);
    if (!p && t->fat) {
        static const unsigned lean[] = {WF_FUSE_LEAN, WF_FUSE_LEAN | WF_FUSE_LATE, 0};
        t->whole = true;
        p = t->parts ? try_build(f, opts, t, why) : NULL;
        for (size_t i = 0; i < sizeof lean / sizeof *lean && !p; i++) {
            t->lean = lean[i];
            t->any = lean[i] == 0;
            p = try_build(f, opts, t, why);
        }
        t->lean = 0;
        t->whole = t->any = false;
    }
    return p;
}

/* Its groups fit into programs. */
static wf_plan *build_fitting(const wf_fn *f, const wf_plan_opts *opts, attempt *t, wf_why *why)
{
    wf_plan *p = build_lean(f, opts, t, why);
    if (!p && t->too_large) {
        t->most = FEW;
        p = build_lean(f, opts, t, why);
    }
    return p;
}

static wf_plan *build_one(const wf_fn *f, const wf_plan_opts *opts, wf_why *why)
{
    attempt t = {.most = 0};
    wf_plan *p = build_fitting(f, opts, &t, why);
    if (!p && t.aligned) { /* a group runs over rows as one, which aligned ones are not */
        t = (attempt){.row_major = true};
        p = build_fitting(f, opts, &t, why);
    }
    return p;
}

wf_plan *wf_plan_of(wf_fn *f, unsigned flags, wf_why *why)
{
    wf_plan *p = build_one(f, &(wf_plan_opts){.flags = flags}, why);
    wf_work_tell(f->name);
    if (!p) {
        wf_fn_free(f);
        return NULL;
    }
    p->fn = f;
    p->flags = flags;
    p->validates = false;
    atomic_store_explicit(&p->choice, WF_CHOICE_PLAIN, memory_order_relaxed);
    return p;
}

/* Groups that reduce may wait for one another with all that they read. */
static bool is_fatter(const wf_plan *rows, const wf_plan *p)
{
    return rows->info.peak_bytes > with_more(p->info.peak_bytes);
}

/* Launches if row-wise rows had no epilogues: these save no walk through memory as opened rows do. */
static uint32_t walks(const wf_plan *p)
{
    uint32_t n = p->nlaunches;
    for (uint32_t s = 1; s < p->nsteps; s++) {
        n += p->steps[s].after && wf_plan_finishes_rows((wf_op)p->steps[s - 1].op);
    }
    return n;
}

wf_plan *wf_plan_open_rows(wf_plan *p)
{
    wf_why why = {0};
    wf_plan_opts o = {.flags = p->flags | WF_PLAN_ROWS, .writes = p->writes, .target = p->target};
    const int before = wf_work_enter(WF_TIMED_rows);
    wf_plan *rows = build_one(p->fn, &o, &why);
    wf_work_leave(before);
    wf_work_tell(p->fn->name);
    if (rows && (walks(rows) >= walks(p) || is_fatter(rows, p))) {
        plan_free(rows);
        return NULL;
    }
    if (rows) {
        rows->fn = p->fn;
    }
    return rows;
}

static wf_plan *build_plan(const wf_fn *recorded, const wf_plan_opts *opts, wf_why *why)
{
    wf_why local = {0};
    why = why ? why : &local;
    wf_fn *f;
    wf_pass_images images = {.looked = false};
    if (wf_pass_all(recorded,
                    &(wf_pass_opts){.fast = (opts->flags & WF_PLAN_FAST) != 0,
                                    .device = (opts->flags & WF_PLAN_ALONE) != 0,
                                    .images = &images},
                    &f, why)) {
        return NULL;
    }
    wf_plan *p = build_one(f, opts, why);
    if (!p) {
        wf_fn_free(f);
        return NULL;
    }
    p->fn = f;
    p->images = images;
    p->flags = opts->flags;
    p->target = opts->target;
    bool fixed = (opts->flags & (WF_PLAN_NO_FUSE | WF_PLAN_ROWS | WF_PLAN_PLAIN)) != 0;
    if (fixed || !has_openable(f)) {
        atomic_store_explicit(&p->choice, WF_CHOICE_PLAIN, memory_order_relaxed);
    }
    if (opts->writes) {
        p->writes = malloc((f->noutputs + 1u) * sizeof *p->writes);
        if (!p->writes) {
            plan_free(p);
            wf_fail(why, WEFT_ENOMEM, "out of memory for a plan");
            return NULL;
        }
        memcpy(p->writes, opts->writes, f->noutputs * sizeof *p->writes);
    }
    return p;
}

wf_plan *wf_plan_build(const wf_fn *recorded, const wf_plan_opts *opts, wf_why *why)
{
    int64_t start = wf_prof_start();
    wf_plan_opts o = opts ? *opts : (wf_plan_opts){0};
    o.flags |= wf_env()->WEFT_FAST_MATH ? WF_PLAN_FAST : 0;
    if (o.flags & WF_PLAN_FAST) {
        bool open = !(o.flags & (WF_PLAN_PLAIN | WF_PLAN_NO_FUSE));
        o.flags |= WF_PLAN_SYNC | (open ? WF_PLAN_ROWS : 0);
    }
    if (!wf_stage_is_on(WF_STAGE_rows) && !(o.flags & WF_PLAN_ALONE)) {
        o.flags = (o.flags & ~WF_PLAN_ROWS) | WF_PLAN_PLAIN;
    }
    wf_plan *p = build_plan(recorded, &o, why);
    wf_work_tell(recorded->name);
    if (p && *wf_env()->WEFT_DUMP) {
        wf_plan_dump(p, recorded->name);
    }
    if (p && wf_env_debug(WF_DEBUG_FUSION)) {
        fprintf(stderr, "weft: plan of %s: %u instructions, %d steps, %d fused\n", recorded->name,
                recorded->n, p->info.steps, p->info.groups);
        wf_plan_explain(p, stderr);
    }
    if (start) {
        char detail[96];
        snprintf(detail, sizeof detail, "%u instructions, %d steps, %d fused", recorded->n,
                 p ? p->info.steps : 0, p ? p->info.groups : 0);
        wf_prof_end(start,
                    &(wf_prof_span){WEFT_PROFILE_PLAN, .name = recorded->name, .detail = detail});
    }
    return p;
}

void wf_plan_get_info(const wf_plan *p, wf_plan_info *info)
{
    *info = wf_plan_chosen(p)->info;
}

const char *wf_plan_step_kind(const wf_plan_step *s)
{
    return s->axes                  ? "rows"
           : s->kind == WF_STEP_MAP ? "map"
           : s->kind == WF_STEP_OP  ? "op"
                                    : "copy";
}

bool wf_plan_step_at(const wf_plan *p, int launch, wf_plan_step_info *out)
{
    p = wf_plan_chosen(p);
    uint32_t lo = 0, hi = p->nsteps;
    while (lo < hi) { /* the first step of the launch */
        uint32_t mid = (lo + hi) / 2;
        *((int64_t)p->steps[mid].launch < launch ? &lo : &hi) =
            (int64_t)p->steps[mid].launch < launch ? mid + 1 : mid;
    }
    *out = (wf_plan_step_info){.kernel = ""};
    if (launch < 0 || (uint32_t)launch >= p->nlaunches || lo == p->nsteps) {
        return false;
    }
    const wf_plan_step *s = &p->steps[lo];
    out->kind = wf_plan_step_kind(s);
    out->op = (wf_op)s->op;
    const bool followed = lo + 1 < p->nsteps && p->steps[lo + 1].after;
    const wf_plan_step *group = s->kind == WF_STEP_MAP ? s : followed ? s + 1 : NULL;
    if (group && p->programs[group->program].kernel) {
        out->kernel = wf_jitk_name(p->programs[group->program].kernel);
        out->native = wf_jitk_get_state(p->programs[group->program].kernel) == WF_JITK_NATIVE;
    }
    for (; lo < p->nsteps && p->steps[lo].launch == (uint32_t)launch; lo++) {
        out->runs += !p->steps[lo].after;
        out->ops += (int)p->steps[lo].nmember;
        wf_plan_traffic(p, &p->steps[lo], p->words, &out->read_bytes, &out->write_bytes);
    }
    return true;
}
