/*
 * tools/weft-opt.c -- passes on IR text: reads functions, runs passes, prints the result.
 *
 *   weft-opt [--passes=fold,dce] [--fast] [--bisect=N] [--stop-after=PASS] [--dump=WHERE] [--stats]
 *            [FILE]                        FILE or standard input; result on standard output
 *   weft-opt --golden [--fix] FILE...      checks pass tests: lines "passes: a,b" (or "passes: default"),
 *                                          a function, "----", what passes must make of it; --fix rewrites
 *   weft-opt --list                        passes and rules
 *
 * The function is verified before the first pass and after each. Exit status: 0, 1 for a difference or
 * an error, 2 for a wrong command line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/passes/pass.h"

typedef struct options {
    wf_pass_opts pass;
    const char *stop_after;
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

/* Text of the function after the passes; NULL after printing why. */
static char *transform(const char *name, const char *text, const wf_pass_opts *o)
{
    wf_why why = {0};
    wf_fn *f = wf_fn_parse(text, strlen(text), &why), *g = NULL;
    char *result = NULL;
    if (f && wf_fn_verify(f, &why) == 0 && wf_pass_all(f, o, &g, &why) == 0) {
        result = wf_fn_text(g);
    }
    if (!result) {
        fprintf(stderr, "%s: %s\n", name, why.rule[0] ? why.rule : "out of memory");
    }
    wf_fn_free(f);
    wf_fn_free(g);
    return result;
}

/* One golden file: "passes: ..." NEWLINE function "----" NEWLINE result. 0: as it should be. */
static int golden(const char *path, const options *o)
{
    static const char head[] = "passes: ", rule[] = "\n----\n";
    char *text = read_file(path);
    char *line = text && strncmp(text, head, sizeof head - 1) == 0 ? strchr(text, '\n') : NULL;
    char *cut = line ? strstr(line, rule) : NULL;
    if (!line || !cut) {
        fprintf(stderr, "%s: no \"passes:\" line, or no \"----\"\n", path);
        free(text);
        return 1;
    }
    char *passes = strndup(text + sizeof head - 1, (size_t)(line - text) - (sizeof head - 1));
    char *before = strndup(line + 1, (size_t)(cut - line));
    const char *after = cut + sizeof rule - 1;
    wf_pass_opts opts = o->pass;
    opts.verify = true;
    opts.dump = "";
    opts.fast = strstr(passes, "+fast") != NULL;
    if (opts.fast) {
        *strstr(passes, "+fast") = '\0';
    }
    opts.only = strcmp(passes, "default") == 0 ? NULL : passes;
    char *got = transform(path, before, &opts);
    int rc = got && strcmp(got, after) == 0 ? 0 : 1;
    if (rc && got && o->fix) {
        FILE *out = fopen(path, "w");
        rc = !out || fprintf(out, "%.*s%s%s", (int)(cut - text), text, rule, got) < 0;
        rc |= !out || fclose(out) != 0;
        printf("%s: rewritten\n", path);
    } else if (rc && got) {
        printf("%s: passes give\n%sand the file says\n%s", path, got, after);
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
        if (!parse_option(&o, argv[at])) {
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
    char *result = text ? transform(path, text, &o.pass) : NULL;
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
