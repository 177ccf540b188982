/*
 * jit/table.c -- runs a graph fused and op by op in turns, launch by launch, beside the limits of this machine; see table.h.
 *
 * Instructions say which ops of the unfused plan belong to a fused kernel: both plans compute one function.
 */
#include "jit/table.h"

#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/profile.h"
#include "eager/roofline.h"
#include "jit/ir/kir.h"
#include "jit/passes/cost.h"
#include "jit/passes/fuse.h"

enum { SETTLE = 200, LISTED = 12, SITES = 6 };

/* One way to run the graph. */
typedef struct side {
    unsigned flags;
    wf_plan *plan;
    wf_plan_info info;
    int64_t *steps, *plan_ns, *whole_ns; /* per run (and step) */
    double *mean;                        /* of steps, over the fastest runs */
    double mean_plan, mean_whole;
    int32_t *launch_of;
    wf_plan_cost *cost;
} side;

typedef struct session {
    const wf_table_of *of;
    int runs, nsides;
    side sides[2];
} session;

weft_table *wf_table_new(const char *name, int runs, bool fused_only)
{
    weft_table *t = wf_calloc(1, sizeof *t);
    char *copy = t ? wf_strdup(name) : NULL;
    if (!copy) {
        wf_mfree(t);
        return NULL;
    }
    t->name = copy;
    runs = runs > 0 ? runs : 30;
    t->total = (weft_table_total){
        .name = copy, .runs = runs, .fastest = (runs + 7) / 8, .compared = !fused_only};
    return t;
}

void weft_table_free(weft_table *t)
{
    if (t) {
        for (int i = 0; i < t->total.rows; i++) {
            const weft_table_row *r = &t->row[i];
            const char *const own[] = {r->name, r->kernel, r->ops, r->sites, r->not_fused};
            for (size_t k = 0; k < sizeof own / sizeof *own; k++) {
                free((void *)(uintptr_t)own[k]); /* of a wf_text */
            }
        }
        wf_mfree(t->row);
        wf_mfree(t->f64);
        wf_mfree(t->name);
        wf_mfree(t);
    }
}

bool weft_table_at(const weft_table *t, int i, weft_table_row *out)
{
    const bool there = t && out && i >= 0 && i < t->total.rows;
    if (there) {
        *out = t->row[i];
    }
    return there;
}

void weft_table_get_total(const weft_table *t, weft_table_total *out)
{
    if (out) {
        *out = t ? t->total : (weft_table_total){.name = ""};
    }
}

/* -- measuring --------------------------------------------------------------------------------------------- */

static int no_memory(wf_why *why)
{
    return why->code ? why->code : wf_fail(why, WEFT_ENOMEM, "out of memory for the table");
}

/* The plan of a side, once it has decided how it runs. */
static int open_side(session *s, side *k, wf_why *why)
{
    wf_table_times times = {.steps = NULL};
    int rc = 0, tries = 0;
    do {
        wf_plan_release(k->plan);
        k->plan = s->of->plan(s->of->user, k->flags, why);
        if (!k->plan) {
            return why->code ? why->code : WEFT_EINVALID;
        }
        for (int i = 0; i < SETTLE && !rc && (i < 2 || !wf_plan_is_settled(k->plan)); i++) {
            rc = s->of->run(s->of->user, k->plan, k->flags, &times, why);
        }
        k->flags |= wf_plan_is_settled(k->plan) ? 0 : WF_PLAN_PLAIN;
    } while (!rc && !wf_plan_is_settled(k->plan) && tries++ == 0);
    if (rc) {
        return rc;
    }
    wf_plan_get_info(k->plan, &k->info);
    const size_t steps = (size_t)k->info.steps + 1, n = (size_t)s->runs;
    k->steps = wf_calloc(steps * n, sizeof *k->steps);
    k->plan_ns = wf_calloc(n, sizeof *k->plan_ns);
    k->whole_ns = wf_calloc(n, sizeof *k->whole_ns);
    k->mean = wf_calloc(steps, sizeof *k->mean);
    k->cost = wf_calloc(steps, sizeof *k->cost);
    k->launch_of = wf_calloc((size_t)wf_plan_fn(k->plan)->n + 1, sizeof *k->launch_of);
    if (!k->steps || !k->plan_ns || !k->whole_ns || !k->mean || !k->cost || !k->launch_of) {
        return no_memory(why);
    }
    return wf_plan_costs(k->plan, k->launch_of, k->cost, why);
}

static void close_side(side *k)
{
    wf_plan_release(k->plan);
    wf_mfree(k->steps);
    wf_mfree(k->plan_ns);
    wf_mfree(k->whole_ns);
    wf_mfree(k->mean);
    wf_mfree(k->cost);
    wf_mfree(k->launch_of);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Means over the fastest runs: whatever else the machine does only makes them longer. */
static int average(side *k, int runs, int fastest, wf_why *why)
{
    int64_t *sorted = wf_malloc((size_t)runs * sizeof *sorted);
    if (!sorted) {
        return no_memory(why);
    }
    memcpy(sorted, k->whole_ns, (size_t)runs * sizeof *sorted);
    qsort(sorted, (size_t)runs, sizeof *sorted, by_value);
    int64_t longest = sorted[fastest - 1];
    wf_mfree(sorted);
    int used = 0;
    for (int r = 0; r < runs; r++) {
        if (k->whole_ns[r] <= longest) {
            used++;
            k->mean_whole += 1e-9 * (double)k->whole_ns[r];
            k->mean_plan += 1e-9 * (double)k->plan_ns[r];
            for (int i = 0; i < k->info.steps; i++) {
                k->mean[i] += 1e-9 * (double)k->steps[(int64_t)r * k->info.steps + i];
            }
        }
    }
    k->mean_whole /= used;
    k->mean_plan /= used;
    for (int i = 0; i < k->info.steps; i++) {
        k->mean[i] /= used;
    }
    return 0;
}

static int measure(session *s, int fastest, wf_why *why)
{
    int rc = 0;
    for (int k = 0; k < s->nsides && !rc; k++) {
        rc = open_side(s, &s->sides[k], why);
    }
    for (int r = 0; r < s->runs && !rc; r++) {
        for (int k = 0; k < s->nsides && !rc; k++) {
            side *d = &s->sides[k];
            wf_table_times t = {.steps = d->steps + (int64_t)r * d->info.steps};
            rc = s->of->run(s->of->user, d->plan, d->flags, &t, why);
            d->plan_ns[r] = t.plan;
            d->whole_ns[r] = t.whole;
        }
    }
    for (int k = 0; k < s->nsides && !rc; k++) {
        rc = average(&s->sides[k], s->runs, fastest, why);
    }
    return rc;
}

/* -- rows -------------------------------------------------------------------------------------------------- */

static void add_side(const side *k, weft_table_side *out)
{
    double kernels = 0;
    wf_plan_step_info step;
    for (int i = 0; i < k->info.steps; i++) {
        kernels += k->mean[i];
        wf_cost_add(&out->flops, k->cost[i].flops);
        if (wf_plan_step_at(k->plan, i, &step)) {
            wf_cost_add(&out->bytes, step.read_bytes);
            wf_cost_add(&out->bytes, step.write_bytes);
            out->fused_kernels += step.ops > 1;
        }
    }
    out->kernels += kernels;
    out->launching += k->mean_plan - kernels;
    out->call += k->mean_whole - k->mean_plan;
    out->whole += k->mean_whole;
    out->launches += k->info.steps;
}

/* The text of t, never NULL; NULL: no memory. */
static const char *take(wf_text *t)
{
    wf_text_putf(t, "%s", "");
    if (t->failed) {
        wf_text_free(t);
    }
    return t->s;
}

/* Where the ops of a step were called, the first few places. */
static const char *sites_of(const side *k, int step)
{
    const wf_fn *f = wf_plan_fn(k->plan);
    const char *site[SITES + 1];
    wf_text text = {0};
    int n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (k->launch_of[i] == step) {
            n = wf_site_add(site, n, SITES + 1, f->locs[f->ins[i].loc]);
        }
    }
    for (int i = 0; i < n; i++) {
        wf_text_putf(&text, "%s%s", i ? " " : "", i < SITES ? wf_site_file(site[i]) : "...");
    }
    return take(&text);
}

/* Names of a step's ops, equal ones in a row counted. */
static const char *ops_of(const side *k, int step)
{
    const wf_fn *f = wf_plan_fn(k->plan);
    wf_text ops = {0};
    int listed = 0, again = 0, more = 0;
    int last = -1;
    for (uint32_t i = 0; i <= f->n; i++) {
        int op = i < f->n && k->launch_of[i] == step ? f->ins[i].op : -1;
        if (op == last && op >= 0) {
            again++;
        } else if (op >= 0 || i == f->n) {
            if (again > 1) {
                wf_text_putf(&ops, " x%d", again);
            }
            if (op >= 0 && listed++ < LISTED) {
                wf_text_putf(&ops, "%s%s", ops.n ? " " : "", wf_rows[op].name);
            } else if (op >= 0) {
                more++;
            }
            last = op;
            again = listed <= LISTED;
        }
    }
    if (more) {
        wf_text_putf(&ops, " and %d more", more);
    }
    wf_text_putf(&ops, "%s", ops.n ? "" : "output");
    return take(&ops);
}

/* What a step's operands come from, where another step makes them. */
static const char *not_fused(const side *k, int step)
{
    const wf_fn *f = wf_plan_fn(k->plan);
    wf_text text = {0};
    wf_plan_edge_info e;
    for (uint32_t i = 0; wf_plan_edge_at(k->plan, i, &e); i++) {
        char one[160];
        if (k->launch_of[e.reader] != step) {
            continue;
        }
        snprintf(one, sizeof one, "%s %s", wf_rows[f->ins[e.maker - 1].op].name, e.reason);
        if (!text.s || !strstr(text.s, one)) {
            wf_text_putf(&text, "%s%s", text.s ? ", " : "", one);
        }
    }
    return take(&text);
}

/* "matmul + m_add_gelu__1f2e3d4c": the row, if it runs on a kernel of its own, and the group's. */
static const char *name_of(const wf_plan_step_info *s)
{
    const bool copy = strcmp(s->kind, "copy") == 0, row = strcmp(s->kind, "op") == 0;
    const char *own = copy ? s->kind : row || !*s->kernel ? wf_rows[s->op].name : "";
    wf_text text = {0};
    wf_text_putf(&text, "%s%s%s", own, *own && *s->kernel ? " + " : "", s->kernel);
    return take(&text);
}

static bool is_f64(const side *k, int step)
{
    const wf_fn *f = wf_plan_fn(k->plan);
    for (uint32_t i = 0; i < f->n; i++) {
        if (k->launch_of[i] == step && wf_fn_type(f, i + 1)->dtype == WEFT_F64) {
            return true;
        }
    }
    return false;
}

static bool describe(const side *k, int step, weft_table_row *r)
{
    wf_plan_step_info info;
    wf_text kernel = {0};
    if (!wf_plan_step_at(k->plan, step, &info)) {
        return false;
    }
    wf_text_putf(&kernel, "%s", info.kernel);
    *r = (weft_table_row){.name = name_of(&info),
                          .kernel = take(&kernel),
                          .kind = info.kind,
                          .row = wf_rows[info.op].name,
                          .ops = ops_of(k, step),
                          .sites = sites_of(k, step),
                          .not_fused = not_fused(k, step),
                          .instructions = info.ops,
                          .side_by_side = info.runs,
                          .native = info.native,
                          .seconds = k->mean[step],
                          .read_bytes = info.read_bytes,
                          .write_bytes = info.write_bytes,
                          .unfused_bytes = k->cost[step].alone_bytes,
                          .flops = k->cost[step].flops};
    return r->name && r->kernel && r->ops && r->sites && r->not_fused;
}

/* The time of the unfused plan's steps, given to the fused steps that have their instructions. */
static void share_out(const session *s, weft_table_row *row, double *elsewhere)
{
    const side *fused = &s->sides[0], *alone = &s->sides[1];
    const wf_fn *f = wf_plan_fn(fused->plan);
    for (int i = 0; i < alone->info.steps; i++) {
        *elsewhere += alone->mean[i];
    }
    for (uint32_t i = 0; i < f->n; i++) {
        int to = fused->launch_of[i], from = alone->launch_of[i];
        if (to >= 0 && from >= 0) {
            row[to].unfused_seconds += alone->mean[from];
            *elsewhere -= alone->mean[from];
        }
    }
}

static bool reserve(weft_table *t, int more)
{
    const int need = t->total.rows + more;
    if (need <= t->cap) {
        return true;
    }
    weft_table_row *r = wf_realloc(t->row, (size_t)need * sizeof *r);
    t->row = r ? r : t->row;
    bool *f = wf_realloc(t->f64, (size_t)need * sizeof *f);
    t->f64 = f ? f : t->f64;
    t->cap = r && f ? need : t->cap;
    return r && f;
}

static int add_rows(weft_table *t, const session *s, wf_why *why)
{
    const side *k = &s->sides[0];
    weft_table_total *all = &t->total;
    const int first = all->rows;
    if (!reserve(t, k->info.steps)) {
        return no_memory(why);
    }
    for (int i = 0; i < k->info.steps; i++) {
        weft_table_row *r = &t->row[all->rows++]; /* now: what it has is freed with the table */
        memset(r, 0, sizeof *r);
        if (!describe(k, i, r)) {
            return no_memory(why);
        }
        r->graph = all->graphs;
        t->f64[first + i] = is_f64(k, i);
    }
    all->graphs++;
    all->ops += k->info.ops;
    add_side(k, &all->fused);
    if (s->nsides == 2) {
        add_side(&s->sides[1], &all->unfused);
        share_out(s, t->row + first, &all->unfused_elsewhere);
    }
    return 0;
}

int wf_table_add(weft_table *t, const wf_table_of *of, wf_why *why)
{
    session s = {.of = of, .runs = t->total.runs, .nsides = t->total.compared ? 2 : 1};
    s.sides[0].flags = WF_PLAN_SYNC;
    s.sides[1].flags = WF_PLAN_NO_FUSE | WF_PLAN_SYNC;
    int rc = measure(&s, t->total.fastest, why);
    rc = rc ? rc : add_rows(t, &s, why);
    for (int k = 0; k < s.nsides; k++) {
        close_side(&s.sides[k]);
    }
    return rc;
}

int wf_table_finish(weft_table *t, wf_why *why)
{
    weft_table_total *all = &t->total;
    wf_roofline roof;
    double most = 0;
    for (int i = 0; i < all->rows; i++) {
        double bytes = (double)(t->row[i].read_bytes + t->row[i].write_bytes);
        most = bytes > most ? bytes : most;
    }
    if (!wf_roofline_measure(&roof, most)) {
        return no_memory(why);
    }
    for (int i = 0; i < all->rows; i++) {
        weft_table_row *r = &t->row[i];
        r->least_seconds = wf_roofline_seconds(&roof, r->read_bytes, r->write_bytes, r->flops,
                                               t->f64[i], &r->by_memory);
    }
    all->threads = roof.threads;
    all->f32_flops = roof.f32;
    all->f64_flops = roof.f64;
    all->n_speeds = roof.n;
    _Static_assert(sizeof all->speeds / sizeof *all->speeds == WF_ROOF_SIZES, "room for all");
    for (int i = 0; i < roof.n; i++) {
        const wf_roof_point *p = &roof.at[i];
        all->speeds[i] = (weft_table_speed){p->bytes, p->read, p->copy, p->fill};
    }
    return 0;
}
