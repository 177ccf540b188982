/*
 * cli/profile_print.c -- the report of `weft profile` as a table, and as JSON.
 */
#include <string.h>

#include "cli/profile.h"
#include "eager/profile.h"
#include "jit/ir/kir.h"

static double ms(double seconds)
{
    return seconds * 1e3;
}

static double mega(int64_t n)
{
    return (double)n * 1e-6;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void print_machine(const profile_report *r, FILE *out)
{
    const cli_roof_point *last = &r->roof.at[r->roof.n - 1], *first = &r->roof.at[0];
    fprintf(out,
            "this machine, just now, on %d threads: %.1f GFLOP/s f32, %.1f f64; copying %.1f GB/s "
            "at %.0f KB, %.1f "
            "at %.0f MB; reading %.1f and %.1f\n\n",
            r->roof.threads, r->roof.f32 * 1e-9, r->roof.f64 * 1e-9, first->copy * 1e-9,
            first->bytes * 1e-3, last->copy * 1e-9, last->bytes * 1e-6, first->read * 1e-9,
            last->read * 1e-9);
}

/* "matmul + m_add_gelu__1f2e3d4c": the row, if it runs on a kernel of its own, and the group's. */
static void print_name(const wf_plan_step_info *s, FILE *out)
{
    const bool copy = strcmp(s->kind, "copy") == 0, row = strcmp(s->kind, "op") == 0;
    const char *own = copy ? s->kind : row || !*s->kernel ? wf_rows[s->op].name : "";
    fprintf(out, "%s%s%s%s", own, *own && *s->kernel ? " + " : "", s->kernel,
            *s->kernel && !s->native ? " (tier 0)" : "");
}

static void print_step(const profile_report *r, int i, FILE *out)
{
    const profile_step *s = &r->steps[i];
    int64_t bytes = s->info.read_bytes + s->info.write_bytes;
    fprintf(out, "%5d %10.4f", i, ms(s->seconds));
    if (r->compared) {
        fprintf(out, " %10.4f %7.2fx", ms(s->alone_seconds), share(s->alone_seconds, s->seconds));
    }
    fprintf(out, " %10.3f %9.3f %10.3f %8.1f %9.1f %5.0f%% %-4s ", mega(bytes),
            mega(s->alone - bytes), mega(s->flops), share((double)bytes, s->seconds) * 1e-9,
            share((double)s->flops, s->seconds) * 1e-9, 100 * share(s->limit, s->seconds),
            s->by_memory ? "mem" : "fp");
    print_name(&s->info, out);
    fprintf(out, "\n      %s%s%s%s%s\n", s->ops, *s->sites ? "; at " : "", s->sites,
            *s->unfused ? "   <- " : "", s->unfused);
}

static void print_part(const char *what, double fused, double alone, bool compared, FILE *out)
{
    fprintf(out, "%-24s %10.4f ms", what, ms(fused));
    if (compared) {
        fprintf(out, " %12.4f ms", ms(alone));
    }
    fputc('\n', out);
}

void profile_print(const profile_report *r, FILE *out)
{
    const profile_side *f = &r->fused, *u = &r->unfused;
    fprintf(out,
            "%s: %d ops ran as %d launches, %d of them fused kernels; means of the "
            "fastest %d of %d runs\n",
            r->graph, f->info.ops, f->info.steps, f->info.groups, profile_fastest(r->runs),
            r->runs);
    print_machine(r, out);
    fprintf(out, "%5s %10s", "", "ms");
    if (r->compared) {
        fprintf(out, " %10s %8s", "unfused ms", "speed-up");
    }
    fprintf(out, " %10s %9s %10s %8s %9s %6s %-4s %s\n", "MB", "MB saved", "MFLOP", "GB/s",
            "GFLOP/s", "limit", "", "kernel; its ops <- what is not fused into it, and why");
    for (int i = 0; i < r->n; i++) {
        print_step(r, i, out);
    }
    fprintf(out, "\n%-24s %13s", "", "fused");
    fprintf(out, r->compared ? " %15s\n" : "%s\n", r->compared ? "unfused" : "");
    print_part("kernels", f->kernels, u->kernels, r->compared, out);
    print_part("launching (remainder)", f->launching, u->launching, r->compared, out);
    print_part("inputs and results", f->call, u->call, r->compared, out);
    print_part("whole run", f->whole, u->whole, r->compared, out);
    if (r->compared) {
        fprintf(out, "%-24s %13d %15d\n", "launches", f->info.steps, u->info.steps);
        fprintf(out, "%-24s %10.3f MB %12.3f MB\n", "moved by kernels", mega(f->bytes),
                mega(u->bytes));
        fprintf(out, "%.2f times as fast, %.3f MB saved", share(u->whole, f->whole),
                mega(u->bytes - f->bytes));
        if (r->elsewhere > 1e-9) {
            fprintf(out, "; %.4f ms of the unfused kernels are copies that fused ones do not need",
                    ms(r->elsewhere));
        }
        fputc('\n', out);
    }
}

/* -- JSON ------------------------------------------------------------------------------------------------- */

static void put_side(wf_text *t, const char *name, const profile_side *s)
{
    wf_text_putf(
        t,
        "  \"%s\": {\"ms\": %.6f, \"kernels_ms\": %.6f, \"launching_ms\": %.6f, \"call_ms\": %.6f, "
        "\"launches\": %d, \"fused_kernels\": %d, \"bytes\": %lld, \"flops\": %lld},\n",
        name, ms(s->whole), ms(s->kernels), ms(s->launching), ms(s->call), s->info.steps,
        s->info.groups, (long long)s->bytes, (long long)s->flops);
}

static void put_named(wf_text *t, const char *name, const char *value)
{
    wf_text_putf(t, "\"%s\": ", name);
    wf_prof_put_string(t, value);
    wf_text_putf(t, ", ");
}

static void put_step(wf_text *t, const profile_report *r, int i)
{
    const profile_step *s = &r->steps[i];
    wf_text_putf(t, "%s\n    {\"step\": %d, ", i ? "," : "", i);
    put_named(t, "kind", s->info.kind);
    put_named(t, "kernel", s->info.kernel);
    put_named(t, "row", wf_rows[s->info.op].name);
    put_named(t, "sites", s->sites);
    put_named(t, "ops", s->ops);
    put_named(t, "not_fused", s->unfused);
    if (r->compared) {
        wf_text_putf(t, "\"unfused_ms\": %.6f, ", ms(s->alone_seconds));
    }
    int64_t bytes = s->info.read_bytes + s->info.write_bytes;
    wf_text_putf(
        t,
        "\"native\": %s, \"instructions\": %d, \"side_by_side\": %d, \"ms\": %.6f, \"read_bytes\": "
        "%lld, "
        "\"write_bytes\": %lld, \"saved_bytes\": %lld, \"flops\": %lld, \"limit_ms\": %.6f, "
        "\"limit_percent\": %.2f, \"limited_by\": \"%s\"}",
        s->info.native ? "true" : "false", s->info.ops, s->info.runs, ms(s->seconds),
        (long long)s->info.read_bytes, (long long)s->info.write_bytes,
        (long long)(s->alone - bytes), (long long)s->flops, ms(s->limit),
        100 * share(s->limit, s->seconds), s->by_memory ? "memory" : "arithmetic");
}

bool profile_print_json(const profile_report *r, FILE *out)
{
    wf_text t = {0};
    wf_text_putf(&t, "{\n  ");
    put_named(&t, "graph", r->graph);
    wf_text_putf(&t,
                 "\"runs\": %d, \"ops\": %d,\n  \"machine\": {\"threads\": %d, \"f32_flops\": "
                 "%.4g, \"f64_flops\": "
                 "%.4g, \"bandwidth\": [",
                 r->runs, r->fused.info.ops, r->roof.threads, r->roof.f32, r->roof.f64);
    for (int i = 0; i < r->roof.n; i++) {
        const cli_roof_point *p = &r->roof.at[i];
        wf_text_putf(&t,
                     "%s\n    {\"bytes\": %.0f, \"read\": %.4g, \"copy\": %.4g, \"fill\": %.4g}",
                     i ? "," : "", p->bytes, p->read, p->copy, p->fill);
    }
    wf_text_putf(&t, "]},\n");
    put_side(&t, "fused", &r->fused);
    if (r->compared) {
        put_side(&t, "unfused", &r->unfused);
        wf_text_putf(&t, "  \"unfused_elsewhere_ms\": %.6f,\n", ms(r->elsewhere));
    }
    wf_text_putf(&t, "  \"steps\": [");
    for (int i = 0; i < r->n; i++) {
        put_step(&t, r, i);
    }
    wf_text_putf(&t, "]\n}\n");
    bool good = !t.failed && fwrite(t.s, 1, t.n, out) == t.n;
    wf_text_free(&t);
    return good;
}
