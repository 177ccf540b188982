/*
 * tools/weft-opt.c -- passes on IR text: reads functions, runs passes, prints the result.
 *
 *   weft-opt [--passes=fold,dce] [--fast] [--bisect=N] [--stop-after=PASS] [--dump=WHERE] [--stats]
 *            [FILE]                        FILE or standard input; result on standard output
 *   weft-opt --plan[=WORDS] [FILE]         the passes, and then what the planner makes of the function: launches and the
 *                                          groups in them, edges that are not fused with reasons, programs, buffers. WORDS:
 *                                            fuse     ops in groups (what is done without a word)     bare  op by op
 *                                            rows     reductions and row-wise rows are opened         device  as for a GPU
 *                                            llvm     kernels as LLVM text   cuda  as CUDA text, without what all of them
 *                                                     begin with (neither needs a library)
 *   weft-opt --dim NAME=SIZE ...           the function with that size for a symbol: a plan needs one for each. WORDS may have
 *                                          them, too: --plan=rows,n=64. FILE may be what `weft show` prints
 *   weft-opt --golden [--fix] FILE...      checks tests: a line "passes: a,b" (or "passes: default") or "plan: WORDS",
 *                                          a function, "----", what must become of it; --fix rewrites
 *   weft-opt --list                        passes and rules
 *
 * The function is verified before the first pass and after each. Exit status: 0, 1 for a difference or
 * an error, 2 for a wrong command line.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/graph.h"
#include "jit/ir/cuda_text.h"
#include "jit/lower.h"
#include "jit/passes/pass.h"
#include "jit/plan_int.h"

typedef struct options {
    wf_pass_opts pass;
    const char *stop_after;
    const char *plan; /* words of --plan, or NULL */
    char dims[512];   /* of --dim, with a comma before each */
    bool stats, golden, fix, list;
} options;

static char *read_all(FILE *in)
{
    size_t n = 0, cap = 4096;
    char *text = malloc(cap);
    while (text) {
        n += fread(text + n, 1, cap - n - 1, in);
        if (n + 1 < cap) {
            text[n] = '\0';
            break;
        }
        char *more = realloc(text, cap *= 2);
        if (!more) {
            free(text);
        }
        text = more;
    }
    return text;
}

static char *read_file(const char *path)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    char *text = in ? read_all(in) : NULL;
    if (in && in != stdin) {
        fclose(in);
    }
    if (!text) {
        fprintf(stderr, "weft-opt: cannot read %s\n", path);
    }
    return text;
}

/* The passes up to and including o->stop_after, as a list. */
static void stop_after(options *o, char *list, size_t size)
{
    if (!o->stop_after || o->pass.only) {
        return;
    }
    list[0] = '\0';
    for (int i = 0; i < WF_PASS_COUNT; i++) {
        if (wf_passes[i].on || strcmp(wf_passes[i].name, o->stop_after) == 0) {
            size_t n = strlen(list);
            snprintf(list + n, size - n, "%s%s", n ? "," : "", wf_passes[i].name);
        }
        if (strcmp(wf_passes[i].name, o->stop_after) == 0) {
            break;
        }
    }
    o->pass.only = list;
}

/* -- plans ------------------------------------------------------------------------------------------------------ */

/* Are all of them words? */
static bool knows_words(const char *words)
{
    static const char *const all[] = {"fuse", "bare", "rows", "device", "llvm", "cuda"};
    for (const char *s = words; *s;) {
        const size_t n = strcspn(s, ",");
        bool known = n == 0 || memchr(s, '=', n);
        for (size_t i = 0; i < sizeof all / sizeof *all && !known; i++) {
            known = strlen(all[i]) == n && memcmp(s, all[i], n) == 0;
        }
        if (!known) {
            return false;
        }
        s += n + (s[n] == ',');
    }
    return true;
}

static void put_place(const wf_plan *p, uint32_t slot, FILE *out)
{
    const uint32_t given = p->ninputs + p->noutputs;
    fprintf(out, "%s %u",
            slot < p->ninputs ? "argument"
            : slot < given    ? "result"
                              : "temporary",
            slot < p->ninputs ? slot
            : slot < given    ? slot - p->ninputs
                              : slot - given);
}

/* Where values lie, when the run's memory is there, and how much there is at once. */
static void put_buffers(const wf_plan *p, FILE *out)
{
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const wf_buffer *u = &p->buffers[i];
        fprintf(out, "buffer %%%u: ", u->v);
        put_place(p, u->slot, out);
        fprintf(out, ", %lld bytes at %lld\n", (long long)u->bytes, (long long)u->offset);
    }
    for (uint32_t i = 0; i < p->ntakes; i++) {
        fprintf(out, "step %u takes ", p->takes[i].launch);
        put_place(p, p->takes[i].slot, out);
        fprintf(out, ", %lld bytes\n", (long long)p->takes[i].bytes);
    }
    for (uint32_t i = 0; i < p->ngives; i++) {
        fprintf(out, "step %u gives back ", p->gives[i].launch);
        put_place(p, p->gives[i].slot, out);
        fputc('\n', out);
    }
    fprintf(out, "peak %lld bytes, at least %lld\n", (long long)p->info.peak_bytes,
            (long long)p->info.bound_bytes);
}

static void put_inst(const wf_program *g, const wf_inst *i, FILE *out)
{
    static const char *const kinds[] = {
        [WF_INST_MAP] = "",           [WF_INST_VJP] = "vjp ",      [WF_INST_CAST] = "cast",
        [WF_INST_REDUCE] = "reduce ", [WF_INST_EXPAND] = "expand", [WF_INST_PICK] = "pick",
        [WF_INST_IOTA] = "iota",      [WF_INST_CHECK] = "check"};
    static const char *const levels[] = {
        [WF_LEVEL_ONE] = "once", [WF_LEVEL_ROW] = "a row", [WF_LEVEL_ELEM] = "an element"};
    const bool row = i->kind == WF_INST_MAP || i->kind == WF_INST_VJP || i->kind == WF_INST_REDUCE;
    fputs("  ", out);
    if (i->value >= 0) {
        fprintf(out, "v%d = ", i->value);
    }
    fprintf(out, "%s%s %s", kinds[i->kind], row ? wf_rows[i->op].name : "",
            wf_dtype_name(i->value < 0 ? i->compute : g->type[i->value]));
    for (int k = 0; k < i->nsrc; k++) {
        fprintf(out, i->src[k] < 0 ? "%s_" : "%sv%d", k ? ", " : " ", i->src[k]);
    }
    fprintf(out, "; %s", levels[i->level]);
    if (g->rows) {
        fprintf(out, ", phase %u", i->phase);
    }
    fputc('\n', out);
}

static void put_program(const wf_plan *p, uint32_t n, FILE *out)
{
    const wf_program *g = p->programs[n].program;
    fprintf(out, "program %u of step", n);
    for (uint32_t s = 0; s < p->nsteps; s++) {
        if (p->steps[s].kind == WF_STEP_MAP && p->steps[s].program == n) {
            fprintf(out, " %u", p->steps[s].launch);
        }
    }
    fputs(":", out);
    for (int j = 0; j < g->ninput; j++) {
        const bool drawn = g->draw[j].op != WF_OP_INVALID;
        fprintf(out, " %s%s v%d", drawn ? wf_rows[g->draw[j].op].name : "input",
                g->level[g->input[j]] == WF_LEVEL_ROW ? " a row" : "", g->input[j]);
    }
    for (int j = 0; j < g->nscalar; j++) {
        fprintf(out, " scalar v%d", g->scalar[j]);
    }
    fputc('\n', out);
    for (int i = 0; i < g->ninst; i++) {
        put_inst(g, &g->inst[i], out);
    }
    fputs("  outputs", out);
    for (int k = 0; k < g->noutput; k++) {
        fprintf(out, " v%d", g->output[k]);
    }
    fputc('\n', out);
}

/* The kernel of a program as text; what has none says so. */
static void put_kernel(const wf_plan_program *x, bool cuda, FILE *out)
{
    const wf_target target = {.arch = cuda ? "sm_80" : "x86-64-v3"};
    wf_why why = {0};
    wf_text text = {0};
    wf_kernel k;
    int rc = cuda ? wf_lower_device(x->program, &k, &why) : wf_lower(x->program, x->one, &k, &why);
    if (!rc) {
        const wf_cu_rows rows = {.k = &k, .scheme = WF_CU_WARP, .nk = 1, .nr = 1};
        rc = !cuda    ? wf_backend_cpu.render(&k, &target, &text, &why)
             : k.rows ? wf_cu_render_rows(&rows, &text, &why)
                      : wf_backend_cuda.render(&k, &target, &text, &why);
        wf_kernel_free(&k);
    }
    /* what stands before all kernels of a device is the same in each */
    const char *own = !rc && cuda ? strstr(text.s, "WF_EXTERN __global__") : NULL;
    fprintf(out, rc ? "; no kernel: %s\n" : "%s", rc ? why.rule : own ? own : text.s);
    wf_text_free(&text);
}

/* Text of the plan of f, which is freed. NULL with why. */
static char *plan_text(wf_fn *f, const char *words, wf_why *why)
{
    const unsigned flags = wf_pass_listed(words, "device")
                               ? WF_PLAN_DEVICE
                               : WF_PLAN_TIER0 | (wf_pass_listed(words, "bare")   ? WF_PLAN_NO_FUSE
                                                  : wf_pass_listed(words, "rows") ? WF_PLAN_ROWS
                                                                                  : WF_PLAN_PLAIN);
    char *text = NULL;
    size_t size = 0;
    wf_plan *p = wf_plan_of(f, flags, why);
    FILE *out = p && wf_plan_verify(p, f, &(wf_plan_opts){.flags = flags}, why) == 0
                    ? open_memstream(&text, &size)
                    : NULL;
    if (out) {
        wf_plan_explain(p, out);
        for (uint32_t i = 0; i < p->nprograms; i++) {
            put_program(p, i, out);
        }
        put_buffers(p, out);
        for (uint32_t i = 0; i < p->nprograms && wf_pass_listed(words, "llvm"); i++) {
            put_kernel(&p->programs[i], false, out);
        }
        for (uint32_t i = 0; i < p->nprograms && wf_pass_listed(words, "cuda"); i++) {
            put_kernel(&p->programs[i], true, out);
        }
        fclose(out);
    }
    wf_plan_release(p);
    return text;
}

/* -- sizes ------------------------------------------------------------------------------------------------------ */

/* The size that "a,n=64" gives a symbol; -1: none. */
static int64_t size_in(const char *dims, const char *name)
{
    const size_t n = strlen(name);
    int64_t size = -1;
    for (const char *s = dims; *s; s += strcspn(s, ","), s += *s == ',') {
        if (strncmp(s, name, n) == 0 && s[n] == '=') {
            size = strtoll(s + n + 1, NULL, 10);
        }
    }
    return size;
}

/* Does text, up to a comma, say a size? */
static bool is_size(const char *text)
{
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    return end != text && (*end == '\0' || *end == ',') && v >= 0 && errno == 0;
}

/* Is every "n=64" a size of a symbol? */
static bool knows_dims(const wf_fn *f, const char *dims, wf_why *why)
{
    for (const char *s = dims; *s; s += strcspn(s, ","), s += *s == ',') {
        const size_t n = strcspn(s, "=,");
        bool known = s[n] != '=';
        for (uint32_t k = 0; k < f->nsymbols && !known; k++) {
            known = strlen(f->symbols[k]) == n && memcmp(s, f->symbols[k], n) == 0;
        }
        if (!known) {
            wf_fail(why, WEFT_EINVALID, "%.*s is no symbol of the function", (int)n, s);
            return false;
        }
        if (s[n] == '=' && !is_size(s + n + 1)) {
            wf_fail(why, WEFT_EINVALID, "--dim wants NAME=SIZE, a size of 0 or more, not '%.*s'",
                    (int)strcspn(s, ","), s);
            return false;
        }
    }
    return true;
}

/* f, freed, with the sizes that are given; with symbols none or all have one. NULL with why. */
static wf_fn *bound(wf_fn *f, const char *dims, bool all, wf_why *why)
{
    int64_t size[WF_MAX_SYMBOLS] = {0};
    uint32_t given = 0;
    char text[WF_RANGE_TEXT];
    int rc = knows_dims(f, dims, why) ? 0 : why->code;
    for (uint32_t k = 0; k < f->nsymbols; k++) {
        size[k] = size_in(dims, f->symbols[k]);
        given += size[k] >= 0;
    }
    for (uint32_t k = 0; k < f->nsymbols && !rc && (given || all); k++) {
        rc = size[k] < 0 ? wf_fail(why, WEFT_EINVALID,
                                   "how large is '%s'? say --dim %s=SIZE, or all sizes or none",
                                   f->symbols[k], f->symbols[k])
             : wf_range_has(f->range[k], size[k])
                 ? 0
                 : wf_fail(why, WEFT_ESHAPE, "%s=%lld is no size of %s", f->symbols[k],
                           (long long)size[k], wf_range_text(f->symbols[k], f->range[k], text));
    }
    if (rc || f->nsymbols == 0 || !(given || all)) {
        wf_fn_free(rc ? f : NULL);
        return rc ? NULL : f;
    }
    wf_fn *g = wf_graph_bind(f, size, why);
    wf_fn_free(f);
    return g;
}

/* Text of the function after the passes, or (words) of its plan; NULL after printing why. */
static char *transform(const char *name, const char *text, const wf_pass_opts *o, const char *words,
                       const char *dims)
{
    wf_why why = {0};
    while (*text == '#') { /* what `weft show` says first */
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    wf_fn *f = wf_fn_parse(text, strlen(text), &why), *g = NULL;
    char *result = NULL;
    if (f && wf_fn_verify(f, &why)) {
        wf_fn_free(f);
        f = NULL;
    }
    f = f ? bound(f, dims, words != NULL, &why) : NULL;
    if (f && wf_pass_all(f, o, &g, &why) == 0) {
        result = words ? plan_text(g, words, &why) : wf_fn_text(g);
        g = words ? NULL : g;
    }
    if (!result) {
        fprintf(stderr, "%s: %s\n", name, why.rule[0] ? why.rule : "out of memory");
    }
    wf_fn_free(f);
    wf_fn_free(g);
    return result;
}

/* One golden file: "passes: ..." or "plan: ..." NEWLINE function "----" NEWLINE result. 0: as it should be. */
static int golden(const char *path, const options *o)
{
    static const char passes_head[] = "passes: ", plan_head[] = "plan: ", rule[] = "\n----\n";
    char *text = read_file(path);
    const bool plan = text && strncmp(text, plan_head, sizeof plan_head - 1) == 0;
    const size_t head = plan ? sizeof plan_head - 1 : sizeof passes_head - 1;
    char *line =
        plan || (text && strncmp(text, passes_head, head) == 0) ? strchr(text, '\n') : NULL;
    char *cut = line ? strstr(line, rule) : NULL;
    if (!line || !cut) {
        fprintf(stderr, "%s: no \"passes:\" or \"plan:\" line, or no \"----\"\n", path);
        free(text);
        return 1;
    }
    char *passes = strndup(text + head, (size_t)(line - text) - head);
    char *before = strndup(line + 1, (size_t)(cut - line));
    const char *after = cut + sizeof rule - 1;
    wf_pass_opts opts = o->pass;
    opts.verify = true;
    opts.dump = "";
    opts.fast = strstr(passes, "+fast") != NULL;
    if (opts.fast) {
        *strstr(passes, "+fast") = '\0';
    }
    opts.only = plan || strcmp(passes, "default") == 0 ? NULL : passes;
    char *got = plan && !knows_words(passes)
                    ? NULL
                    : transform(path, before, &opts, plan ? passes : NULL, plan ? passes : "");
    int rc = got && strcmp(got, after) == 0 ? 0 : 1;
    if (rc && got && o->fix) {
        FILE *out = fopen(path, "w");
        rc = !out || fprintf(out, "%.*s%s%s", (int)(cut - text), text, rule, got) < 0;
        rc |= !out || fclose(out) != 0;
        printf("%s: rewritten\n", path);
    } else if (rc && got) {
        printf("%s: what comes out is\n%sand the file says\n%s", path, got, after);
    }
    free(got);
    free(before);
    free(passes);
    free(text);
    return rc;
}

static void list(void)
{
    printf("passes, in the order they run (* unless switched off)\n");
    for (int i = 0; i < WF_PASS_COUNT; i++) {
        printf("  %c %-8s %s\n", wf_passes[i].on ? '*' : ' ', wf_passes[i].name, wf_passes[i].text);
    }
    printf("stages of planning (WEFT_PASS switches them, too)\n");
    for (int i = 0; i < WF_STAGE_COUNT; i++) {
        printf("  * %-8s %s\n", wf_stage_name[i], wf_stage_text[i]);
    }
    printf("rules\n");
    for (int i = 0; i < WF_FOLD_COUNT; i++) {
        printf("  %-5s %-16s %s\n", wf_fold_rules[i].class == WF_FOLD_EXACT ? "exact" : "fast",
               wf_fold_rules[i].name, wf_fold_rules[i].law);
    }
}

static void print_stats(const wf_pass_stat *stats, const uint32_t *hits)
{
    for (int i = 0; i < WF_PASS_COUNT; i++) {
        if (stats[i].runs) {
            fprintf(stderr, "%-8s %8u -> %8u instructions  %6u rewrites  %9.3f ms\n",
                    wf_passes[i].name, stats[i].before, stats[i].after, stats[i].rewrites,
                    (double)stats[i].ns * 1e-6);
        }
    }
    for (int i = 0; i < WF_FOLD_COUNT; i++) {
        if (hits[i]) {
            fprintf(stderr, "  %-16s %6u\n", wf_fold_rules[i].name, hits[i]);
        }
    }
}

/* The value of --name=value, or NULL. */
static const char *value_of(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return strncmp(arg, name, n) == 0 && arg[n] == '=' ? arg + n + 1 : NULL;
}

static bool parse_option(options *o, const char *arg)
{
    const char *v;
    if ((v = value_of(arg, "--passes"))) {
        o->pass.only = v;
    } else if ((v = value_of(arg, "--toggle"))) {
        o->pass.toggles = v;
    } else if ((v = value_of(arg, "--dump"))) {
        o->pass.dump = v;
    } else if ((v = value_of(arg, "--bisect"))) {
        o->pass.bisect = strtoll(v, NULL, 10) + 1;
    } else if ((v = value_of(arg, "--plan")) || strcmp(arg, "--plan") == 0) {
        o->plan = v ? v : "fuse";
        return knows_words(o->plan);
    } else if ((v = value_of(arg, "--dim"))) {
        const size_t n = strlen(o->dims);
        return strchr(v, '=') &&
               (size_t)snprintf(o->dims + n, sizeof o->dims - n, ",%s", v) < sizeof o->dims - n;
    } else if ((v = value_of(arg, "--stop-after"))) {
        o->stop_after = v;
        return wf_pass_find(v, strlen(v)) >= 0;
    } else {
        bool *flag = strcmp(arg, "--fast") == 0     ? &o->pass.fast
                     : strcmp(arg, "--stats") == 0  ? &o->stats
                     : strcmp(arg, "--golden") == 0 ? &o->golden
                     : strcmp(arg, "--fix") == 0    ? &o->fix
                     : strcmp(arg, "--list") == 0   ? &o->list
                                                    : NULL;
        if (flag) {
            *flag = true;
        }
        return flag != NULL;
    }
    return true;
}

int main(int argc, char **argv)
{
    static wf_pass_stat stats[WF_PASS_COUNT];
    static uint32_t hits[WF_FOLD_COUNT];
    char names[512];
    options o = {.pass = {.verify = true, .stats = stats, .hits = hits}};
    int at = 1, rc = 0;
    for (; at < argc && argv[at][0] == '-' && argv[at][1] != '\0'; at++) {
        char dim[160] = "";
        if (strcmp(argv[at], "--dim") == 0 && at + 1 < argc) {
            snprintf(dim, sizeof dim, "--dim=%s", argv[++at]);
        }
        if (!parse_option(&o, dim[0] ? dim : argv[at])) {
            fprintf(stderr, "weft-opt: %s? see the head of tools/weft-opt.c\n", argv[at]);
            return 2;
        }
    }
    if (o.list) {
        list();
        return 0;
    }
    if (o.golden) {
        for (; at < argc; at++) {
            rc |= golden(argv[at], &o);
        }
        return rc;
    }
    stop_after(&o, names, sizeof names);
    const char *path = at < argc ? argv[at] : "-";
    char *text = read_file(path);
    if (o.plan && strchr(o.plan, '=')) {
        const size_t n = strlen(o.dims);
        snprintf(o.dims + n, sizeof o.dims - n, ",%s", o.plan);
    }
    char *result = text ? transform(path, text, &o.pass, o.plan, o.dims) : NULL;
    if (result) {
        fputs(result, stdout);
    }
    if (o.stats) {
        print_stats(stats, hits);
    }
    rc = result ? 0 : 1;
    free(result);
    free(text);
    return rc;
}
