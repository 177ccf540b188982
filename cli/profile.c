/*
 * cli/profile.c -- the command profile: runs a graph fused and op by op in turns, step by step, beside the limits of
 * this machine.
 *
 * Instructions say which ops of the unfused plan belong to a fused kernel: both plans compute one function.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/profile.h"
#include "eager/profile.h"
#include "jit/ir/kir.h"
#include "jit/passes/fuse.h"

enum { SETTLE = 200, LISTED = 12 };

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
    weft_graph *g;
    const cli_options *o;
    weft_tensor x[CLI_MAX];
    side sides[2];
    int nsides;
} session;

static int one_run(session *s, side *k, wf_graph_times *times, int64_t *whole)
{
    weft_tensor y[CLI_MAX];
    weft_scope scope = weft_scope_begin();
    int64_t start = wf_prof_clock();
    weft_status rc = wf_graph_run(s->g, k->flags, s->x, weft_graph_inputs(s->g), y,
                                  weft_graph_outputs(s->g), times);
    *whole = wf_prof_clock() - start;
    weft_scope_end(scope);
    return rc == WEFT_OK ? CLI_OK : cli_weft_failed("profile");
}

/* The plan of a side, once it has decided how it runs. */
static int open_side(session *s, side *k)
{
    int64_t ns;
    int status = CLI_OK, runs = 0;
    do {
        wf_plan_release(k->plan);
        k->plan = wf_graph_plan_of(s->g, k->flags, s->x, weft_graph_inputs(s->g));
        if (!k->plan) {
            return cli_weft_failed("profile");
        }
        for (int i = 0; i < SETTLE && !status && (i < 2 || !wf_plan_is_settled(k->plan)); i++) {
            status = one_run(s, k, NULL, &ns);
        }
        k->flags |= wf_plan_is_settled(k->plan) ? 0 : WF_PLAN_PLAIN;
    } while (!status && !wf_plan_is_settled(k->plan) && runs++ == 0);
    wf_plan_get_info(k->plan, &k->info);
    size_t steps = (size_t)k->info.steps + 1, n = (size_t)s->o->runs;
    wf_why why = {0};
    k->steps = calloc(steps * n, sizeof *k->steps);
    k->plan_ns = calloc(n, sizeof *k->plan_ns);
    k->whole_ns = calloc(n, sizeof *k->whole_ns);
    k->mean = calloc(steps, sizeof *k->mean);
    k->cost = calloc(steps, sizeof *k->cost);
    k->launch_of = calloc((size_t)wf_plan_fn(k->plan)->n + 1, sizeof *k->launch_of);
    if (!k->steps || !k->plan_ns || !k->whole_ns || !k->mean || !k->cost || !k->launch_of ||
        (!status && wf_plan_costs(k->plan, k->launch_of, k->cost, &why))) {
        return cli_failed("profile", "no memory for %d runs of %d steps", s->o->runs,
                          k->info.steps);
    }
    return status;
}

static void close_side(side *k)
{
    wf_plan_release(k->plan);
    free(k->steps);
    free(k->plan_ns);
    free(k->whole_ns);
    free(k->mean);
    free(k->cost);
    free(k->launch_of);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Means over the fastest runs: whatever else the machine does only makes them longer. */
static int average(side *k, int runs)
{
    int64_t *sorted = malloc((size_t)runs * sizeof *sorted);
    if (!sorted) {
        return cli_failed("profile", "no memory");
    }
    memcpy(sorted, k->whole_ns, (size_t)runs * sizeof *sorted);
    qsort(sorted, (size_t)runs, sizeof *sorted, by_value);
    int64_t longest = sorted[profile_fastest(runs) - 1];
    free(sorted);
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
    return CLI_OK;
}

static int measure(session *s)
{
    int status = CLI_OK;
    for (int k = 0; k < s->nsides && !status; k++) {
        status = open_side(s, &s->sides[k]);
    }
    for (int r = 0; r < s->o->runs && !status; r++) {
        for (int k = 0; k < s->nsides && !status; k++) {
            side *d = &s->sides[k];
            wf_graph_times t = {.steps = d->steps + (int64_t)r * d->info.steps};
            status = one_run(s, d, &t, &d->whole_ns[r]);
            d->plan_ns[r] = t.plan;
        }
    }
    for (int k = 0; k < s->nsides && !status; k++) {
        status = average(&s->sides[k], s->o->runs);
    }
    return status;
}

/* -- the report ------------------------------------------------------------------------------------------- */

static void total(const side *k, profile_side *out)
{
    *out = (profile_side){.info = k->info, .whole = k->mean_whole};
    wf_plan_step_info step;
    for (int i = 0; i < k->info.steps; i++) {
        out->kernels += k->mean[i];
        out->flops += k->cost[i].flops;
        if (wf_plan_step_at(k->plan, i, &step)) {
            out->bytes += step.read_bytes + step.write_bytes;
        }
    }
    out->launching = k->mean_plan - out->kernels;
    out->call = k->mean_whole - k->mean_plan;
}

/* Where the ops of a step were called, the first few places. */
static char *sites_of(const side *k, int step)
{
    enum { SITES = 6 };
    const wf_fn *f = wf_plan_fn(k->plan);
    const char *site[SITES + 1];
    wf_text text = {0};
    int n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (k->launch_of[i] == step) {
            n = wf_site_add(site, n, SITES + 1, f->locs[f->ins[i].loc]);
        }
    }
    wf_text_putf(&text, "%s", "");
    for (int i = 0; i < n; i++) {
        wf_text_putf(&text, "%s%s", i ? " " : "", i < SITES ? wf_site_file(site[i]) : "...");
    }
    return text.s;
}

/* Names of a step's ops, equal ones in a row counted; what its operands come from, where another step makes them. */
static bool describe(const side *k, int step, profile_step *out)
{
    const wf_fn *f = wf_plan_fn(k->plan);
    wf_text ops = {0}, unfused = {0};
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
    wf_plan_edge_info e;
    for (uint32_t i = 0; wf_plan_edge_at(k->plan, i, &e); i++) {
        char text[160];
        if (k->launch_of[e.reader] != step) {
            continue;
        }
        snprintf(text, sizeof text, "%s %s", wf_rows[f->ins[e.maker - 1].op].name, e.reason);
        if (!unfused.s || !strstr(unfused.s, text)) {
            wf_text_putf(&unfused, "%s%s", unfused.n ? ", " : "", text);
        }
    }
    wf_text_putf(&ops, "%s", ops.n ? "" : "output");
    wf_text_putf(&unfused, "%s", "");
    out->ops = ops.s;
    out->unfused = unfused.s;
    out->sites = sites_of(k, step);
    return !ops.failed && !unfused.failed && ops.s && unfused.s && out->sites;
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

/* The time of the unfused plan's steps, given to the fused steps that have their instructions. */
static void share_out(const session *s, profile_report *r)
{
    const side *fused = &s->sides[0], *alone = &s->sides[1];
    const wf_fn *f = wf_plan_fn(fused->plan);
    r->elsewhere = r->unfused.kernels;
    for (uint32_t i = 0; i < f->n; i++) {
        int to = fused->launch_of[i], from = alone->launch_of[i];
        if (to >= 0 && from >= 0) {
            r->steps[to].alone_seconds += alone->mean[from];
            r->elsewhere -= alone->mean[from];
        }
    }
}

static int fill_in(session *s, profile_report *r)
{
    const side *k = &s->sides[0];
    double most = 0;
    r->n = k->info.steps;
    r->steps = calloc((size_t)r->n + 1, sizeof *r->steps);
    bool good = r->steps != NULL;
    for (int i = 0; i < r->n && good; i++) {
        profile_step *p = &r->steps[i];
        good = wf_plan_step_at(k->plan, i, &p->info) && describe(k, i, p);
        p->flops = k->cost[i].flops;
        p->alone = k->cost[i].alone_bytes;
        p->seconds = k->mean[i];
        double bytes = (double)(p->info.read_bytes + p->info.write_bytes);
        most = bytes > most ? bytes : most;
    }
    good = good && cli_roofline_measure(&r->roof, most);
    for (int i = 0; i < r->n && good; i++) {
        profile_step *p = &r->steps[i];
        p->limit = cli_roofline_seconds(&r->roof, p->info.read_bytes, p->info.write_bytes, p->flops,
                                        is_f64(k, i), &p->by_memory);
    }
    total(k, &r->fused);
    if (good && s->nsides == 2) {
        total(&s->sides[1], &r->unfused);
        share_out(s, r);
    }
    return good ? CLI_OK : cli_failed("profile", "out of memory");
}

static int print(const profile_report *r, const cli_options *o)
{
    FILE *out = o->output ? fopen(o->output, "w") : stdout;
    if (!out) {
        return cli_failed("profile", "%s: %s", o->output, strerror(errno));
    }
    bool good = true;
    if (o->json) {
        good = profile_print_json(r, out);
    } else {
        profile_print(r, out);
    }
    good &= fflush(out) == 0 && !ferror(out);
    if (out != stdout) {
        good &= fclose(out) == 0;
    }
    return good ? CLI_OK : cli_failed("profile", "the output cannot be written");
}

static int profile_graph(weft_graph *g, const cli_options *o)
{
    session s = {.g = g, .o = o, .nsides = o->compare ? 2 : 1};
    s.sides[0].flags = WF_PLAN_SYNC;
    s.sides[1].flags = WF_PLAN_NO_FUSE | WF_PLAN_SYNC;
    profile_report r = {.graph = o->file, .runs = o->runs, .compared = o->compare};
    int status = cli_read_inputs("profile", g, o, s.x);
    status = status ? status : measure(&s);
    status = status ? status : fill_in(&s, &r);
    status = status ? status : print(&r, o);
    for (int i = 0; i < r.n && r.steps; i++) {
        free(r.steps[i].ops);
        free(r.steps[i].unfused);
        free(r.steps[i].sites);
    }
    free(r.steps);
    for (int k = 0; k < s.nsides; k++) {
        close_side(&s.sides[k]);
    }
    return status;
}

int cli_profile(const cli_options *o)
{
    return cli_with_graph("profile", o, profile_graph);
}
