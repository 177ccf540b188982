/*
 * jit/table_print.c -- a table of launches (weft/table.h) as text, and as JSON.
 */
#include <string.h>

#include "eager/profile.h"
#include "eager/tensor.h"
#include "jit/ir/kir.h"
#include "jit/ir/plain_numbers.h"
#include "jit/table.h"

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

static void print_machine(const weft_table_total *t, FILE *out)
{
    const weft_table_speed *last = &t->speeds[t->n_speeds - 1], *first = &t->speeds[0];
    fprintf(out,
            "this machine, just now, on %d threads: %.1f GFLOP/s f32, %.1f f64; copying %.1f GB/s "
            "at %.0f KB, %.1f "
            "at %.0f MB; reading %.1f and %.1f\n\n",
            t->threads, t->f32_flops * 1e-9, t->f64_flops * 1e-9, first->copy * 1e-9,
            first->bytes * 1e-3, last->copy * 1e-9, last->bytes * 1e-6, first->read * 1e-9,
            last->read * 1e-9);
}

static void print_row(const weft_table *t, int i, FILE *out)
{
    const weft_table_row *r = &t->row[i];
    const bool compared = t->total.compared;
    int64_t bytes = r->read_bytes + r->write_bytes;
    fprintf(out, "%5d %10.4f", i, ms(r->seconds));
    if (compared) {
        fprintf(out, " %10.4f %7.2fx", ms(r->unfused_seconds),
                share(r->unfused_seconds, r->seconds));
    }
    fprintf(out, " %10.3f %9.3f %10.3f %8.1f %9.1f %5.0f%% %-4s %s%s", mega(bytes),
            mega(r->unfused_bytes - bytes), mega(r->flops), share((double)bytes, r->seconds) * 1e-9,
            share((double)r->flops, r->seconds) * 1e-9, 100 * share(r->least_seconds, r->seconds),
            r->by_memory ? "mem" : "fp", r->name, *r->kernel && !r->native ? " (tier 0)" : "");
    fprintf(out, "\n      %s%s%s%s%s\n", r->ops, *r->sites ? "; at " : "", r->sites,
            *r->not_fused ? "   <- " : "", r->not_fused);
}

static void print_part(const char *what, double fused, double alone, bool compared, FILE *out)
{
    fprintf(out, "%-24s %10.4f ms", what, ms(fused));
    if (compared) {
        fprintf(out, " %12.4f ms", ms(alone));
    }
    fputc('\n', out);
}

/* 0, or an error of op recorded. */
static weft_status check(const weft_table *t, const FILE *out, const char *op)
{
    if (!t || !out) {
        wf_raise_text(wf_ctx_get(), WEFT_EINVALID, op, "%s is NULL", t ? "the file" : "the table");
        return WEFT_EINVALID;
    }
    return WEFT_OK;
}

static weft_status written(bool good, const char *op)
{
    if (!good) {
        wf_raise_text(wf_ctx_get(), WEFT_EIO, op, "the table cannot be written");
    }
    return good ? WEFT_OK : WEFT_EIO;
}

static void print_totals(const weft_table_total *t, FILE *out)
{
    const weft_table_side *f = &t->fused, *u = &t->unfused;
    fprintf(out, "\n%-24s %13s", "", "fused");
    fprintf(out, t->compared ? " %15s\n" : "%s\n", t->compared ? "unfused" : "");
    print_part("kernels", f->kernels, u->kernels, t->compared, out);
    print_part("launching (remainder)", f->launching, u->launching, t->compared, out);
    print_part("inputs and results", f->call, u->call, t->compared, out);
    print_part("whole run", f->whole, u->whole, t->compared, out);
    if (t->compared) {
        fprintf(out, "%-24s %13d %15d\n", "launches", f->launches, u->launches);
        fprintf(out, "%-24s %10.3f MB %12.3f MB\n", "moved by kernels", mega(f->bytes),
                mega(u->bytes));
        fprintf(out, "%.2f times as fast, %.3f MB saved", share(u->whole, f->whole),
                mega(u->bytes - f->bytes));
        if (t->unfused_elsewhere > 1e-9) {
            fprintf(out, "; %.4f ms of the unfused kernels are copies that fused ones do not need",
                    ms(t->unfused_elsewhere));
        }
        fputc('\n', out);
    }
}

weft_status(weft_table_print)(const weft_table *table, FILE *out)
{
    if (check(table, out, "table_print")) {
        return WEFT_EINVALID;
    }
    const weft_table_total *t = &table->total;
    const wf_plain_numbers was = wf_plain_numbers_begin();
    fprintf(out, "%s: %d ops ran as %d launches, %d of them fused kernels", t->name, t->ops,
            t->fused.launches, t->fused.fused_kernels);
    if (t->graphs != 1) {
        fprintf(out, ", in %d graphs", t->graphs);
    }
    fprintf(out, "; means of the fastest %d of %d runs\n", t->fastest, t->runs);
    print_machine(t, out);
    fprintf(out, "%5s %10s", "", "ms");
    if (t->compared) {
        fprintf(out, " %10s %8s", "unfused ms", "speed-up");
    }
    fprintf(out, " %10s %9s %10s %8s %9s %6s %-4s %s\n", "MB", "MB saved", "MFLOP", "GB/s",
            "GFLOP/s", "limit", "", "kernel; its ops <- what is not fused into it, and why");
    for (int i = 0; i < t->rows; i++) {
        if (t->graphs > 1 && (i == 0 || table->row[i].graph != table->row[i - 1].graph)) {
            fprintf(out, "graph %d\n", table->row[i].graph);
        }
        print_row(table, i, out);
    }
    print_totals(t, out);
    wf_plain_numbers_end(was);
    return written(!ferror(out), "table_print");
}

/* -- JSON ------------------------------------------------------------------------------------------------- */

static void put_side(wf_text *t, const char *name, const weft_table_side *s)
{
    wf_text_putf(
        t,
        "  \"%s\": {\"ms\": %.6f, \"kernels_ms\": %.6f, \"launching_ms\": %.6f, \"call_ms\": %.6f, "
        "\"launches\": %d, \"fused_kernels\": %d, \"bytes\": %lld, \"flops\": %lld},\n",
        name, ms(s->whole), ms(s->kernels), ms(s->launching), ms(s->call), s->launches,
        s->fused_kernels, (long long)s->bytes, (long long)s->flops);
}

static void put_named(wf_text *t, const char *name, const char *value)
{
    wf_text_putf(t, "\"%s\": ", name);
    wf_prof_put_string(t, value);
    wf_text_putf(t, ", ");
}

static void put_row(wf_text *t, const weft_table *table, int i)
{
    const weft_table_row *r = &table->row[i];
    wf_text_putf(t, "%s\n    {\"step\": %d, \"graph\": %d, ", i ? "," : "", i, r->graph);
    put_named(t, "kind", r->kind);
    put_named(t, "kernel", r->kernel);
    put_named(t, "row", r->row);
    put_named(t, "sites", r->sites);
    put_named(t, "ops", r->ops);
    put_named(t, "not_fused", r->not_fused);
    if (table->total.compared) {
        wf_text_putf(t, "\"unfused_ms\": %.6f, ", ms(r->unfused_seconds));
    }
    int64_t bytes = r->read_bytes + r->write_bytes;
    wf_text_putf(
        t,
        "\"native\": %s, \"instructions\": %d, \"side_by_side\": %d, \"ms\": %.6f, \"read_bytes\": "
        "%lld, "
        "\"write_bytes\": %lld, \"saved_bytes\": %lld, \"flops\": %lld, \"limit_ms\": %.6f, "
        "\"limit_percent\": %.2f, \"limited_by\": \"%s\"}",
        r->native ? "true" : "false", r->instructions, r->side_by_side, ms(r->seconds),
        (long long)r->read_bytes, (long long)r->write_bytes, (long long)(r->unfused_bytes - bytes),
        (long long)r->flops, ms(r->least_seconds), 100 * share(r->least_seconds, r->seconds),
        r->by_memory ? "memory" : "arithmetic");
}

weft_status(weft_table_json)(const weft_table *table, FILE *out)
{
    if (check(table, out, "table_json")) {
        return WEFT_EINVALID;
    }
    const weft_table_total *all = &table->total;
    wf_text t = {0};
    wf_text_putf(&t, "{\n  ");
    put_named(&t, "graph", all->name);
    wf_text_putf(&t,
                 "\"runs\": %d, \"ops\": %d,\n  \"machine\": {\"threads\": %d, \"f32_flops\": "
                 "%.4g, \"f64_flops\": "
                 "%.4g, \"bandwidth\": [",
                 all->runs, all->ops, all->threads, all->f32_flops, all->f64_flops);
    for (int i = 0; i < all->n_speeds; i++) {
        const weft_table_speed *p = &all->speeds[i];
        wf_text_putf(&t,
                     "%s\n    {\"bytes\": %.0f, \"read\": %.4g, \"copy\": %.4g, \"fill\": %.4g}",
                     i ? "," : "", p->bytes, p->read, p->copy, p->fill);
    }
    wf_text_putf(&t, "]},\n");
    put_side(&t, "fused", &all->fused);
    if (all->compared) {
        put_side(&t, "unfused", &all->unfused);
        wf_text_putf(&t, "  \"unfused_elsewhere_ms\": %.6f,\n", ms(all->unfused_elsewhere));
    }
    wf_text_putf(&t, "  \"steps\": [");
    for (int i = 0; i < all->rows; i++) {
        put_row(&t, table, i);
    }
    wf_text_putf(&t, "]\n}\n");
    bool good = !t.failed && fwrite(t.s, 1, t.n, out) == t.n;
    wf_text_free(&t);
    return written(good, "table_json");
}
