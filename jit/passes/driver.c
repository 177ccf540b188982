/*
 * jit/passes/driver.c -- runs passes: times, verifies, dumps, counts, bisects.
 *
 * Bisection counts every rewrite of every pass, in program order. With WEFT_BISECT=n the first n are made
 * and no more; the smallest n that shows a fault names the rewrite that causes it (weft-opt --bisect).
 *
 * Invariant: on failure nothing is left behind; the caller can use the function it has.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "eager/env.h"
#include "eager/fd.h"
#include "jit/passes/page.h"
#include "jit/passes/pass.h"

enum { SWITCHES = (int)WF_PASS_COUNT + (int)WF_STAGE_COUNT };

const wf_pass_info wf_passes[WF_PASS_COUNT] = {
#define PASS(id, enabled, line) [WF_PASS_##id] = {.name = #id, .text = line, .on = enabled},
#include "jit/passes/passes.def"
};

static int (*const run_of[WF_PASS_COUNT])(wf_pass *, const wf_fn *, wf_fn **, wf_why *) = {
#define PASS(id, on, text) [WF_PASS_##id] = wf_pass_##id,
#include "jit/passes/passes.def"
};

const char *const wf_stage_name[WF_STAGE_COUNT] = {
#define STAGE(id, text) #id,
#include "jit/passes/passes.def"
};
const char *const wf_stage_text[WF_STAGE_COUNT] = {
#define STAGE(id, text) text,
#include "jit/passes/passes.def"
};

int wf_pass_find(const char *name, size_t len)
{
    for (int i = 0; i < WF_PASS_COUNT; i++) {
        if (strlen(wf_passes[i].name) == len && memcmp(wf_passes[i].name, name, len) == 0) {
            return i;
        }
    }
    return -1;
}

bool wf_pass_listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = list; *s;) {
        size_t k = strcspn(s, ",");
        if (k == n && memcmp(s, word, n) == 0) {
            return true;
        }
        s += k + (s[k] == ',');
    }
    return false;
}

/* Rules, and merging. */
enum { RULES = (int)WF_FOLD_COUNT + 1 };

static const char *rule_name(int r)
{
    return r < (int)WF_FOLD_COUNT ? wf_fold_rules[r].name : "merge";
}

/* WEFT_STATS=fold: which rules fired in a function, and in the process so far. */
static void tell_rules(const wf_fn *f, const uint32_t *fired)
{
    static _Atomic uint64_t all[RULES];
    for (int r = 0; fired && r < RULES; r++) {
        if (fired[r]) {
            const uint64_t before = atomic_fetch_add(&all[r], fired[r]);
            fprintf(stderr, "weft: rule %-16s %-16s %6u times, %llu in all\n", rule_name(r),
                    f->name, fired[r], (unsigned long long)(before + fired[r]));
        }
    }
}

/* One more of the rewrites and decisions of the process, by WEFT_BISECT. */
static bool process_may(void)
{
    static _Atomic int64_t made;
    const int64_t limit = wf_env()->WEFT_BISECT;
    return limit <= 0 || atomic_fetch_add(&made, 1) < limit;
}

bool wf_pass_may(void *pass, const char *what)
{
    wf_pass *p = pass;
    if (p->left ? *p->left <= 0 : !process_may()) {
        return false;
    }
    if (p->left) {
        --*p->left;
    }
    p->rewrites++;
    for (int r = 0; p->opts->hits && r < WF_FOLD_COUNT; r++) {
        p->opts->hits[r] += wf_fold_rules[r].name == what;
    }
    for (int r = 0; p->fired && r < RULES; r++) {
        p->fired[r] += strcmp(rule_name(r), what) == 0;
    }
    return true;
}

/* -- dumps ----------------------------------------------------------------------------------------------- */

static const char *dump_of(const wf_pass_opts *o)
{
    return o->dump ? o->dump : wf_env()->WEFT_DUMP;
}

bool wf_pass_is_watched(void)
{
    return *wf_env()->WEFT_DUMP || wf_env_debug(WF_DEBUG_IR);
}

/* Writes f as the `step`-th file of function number `number`, or to stderr if that was asked for. A dump
 * that cannot be written is no error of the program. */
static void dump(const wf_pass_opts *o, const wf_fn *f, unsigned number, int step, const char *pass)
{
    const char *where = dump_of(o);
    if (strncmp(where, "after:", 6) == 0) {
        if (strcmp(where + 6, pass) == 0) {
            wf_fn_print(f, stderr);
        }
        return;
    }
    char path[PATH_MAX], name[80];
    int n = snprintf(path, sizeof path, "%s/%04u-%s-%d-%s.wir", where, number,
                     wf_dump_name(f->name, name), step, pass);
    FILE *out = n > 0 && (size_t)n < sizeof path ? wf_file_apart(path, "w") : NULL;
    if (out) {
        wf_fn_print(f, out);
        fclose(out);
    }
}

static void put_fn(wf_page *page, const wf_fn *f)
{
    char *text = wf_fn_text(f);
    fputs("<td><pre>", page->out);
    wf_page_text(page, text);
    fputs("</pre>", page->out);
    free(text);
}

/* A function on the page: what a pass was given beside what it made. */
static void put_pass(wf_page *page, int id, const wf_fn *before, const wf_fn *after,
                     uint32_t rewrites)
{
    fprintf(page->out, "<details><summary>%s: %u to %u instructions, %u rewrites</summary>",
            wf_passes[id].name, before->n, after->n, rewrites);
    if (before != after) {
        fputs("<table><tr>", page->out);
        put_fn(page, before);
        put_fn(page, after);
        fputs("</table>", page->out);
    }
    fputs("</details>\n", page->out);
}

static void put_rules(wf_page *page, const uint32_t *fired)
{
    fputs("<p>rules that fired:", page->out);
    for (int r = 0; r < RULES; r++) {
        if (fired[r]) {
            fprintf(page->out, " %s %u", rule_name(r), fired[r]);
        }
    }
    fputs("\n", page->out);
    wf_page_end(page);
}

/* WEFT_DEBUG: the function on stderr. */
static void show(const wf_fn *f, const char *when)
{
    if (wf_env_debug(WF_DEBUG_IR)) {
        fprintf(stderr, "weft: %s %s\n", f->name, when);
        wf_fn_print(f, stderr);
    }
}

/* -- one pass ----------------------------------------------------------------------------------------------- */

bool wf_pass_verifies(void)
{
#ifndef NDEBUG
    return true;
#else
    return wf_env_stress("verify", NULL);
#endif
}

static bool verifies(const wf_pass_opts *o)
{
    return o->verify || wf_pass_verifies();
}

/* Have both arguments and results of the same types? They have as many. */
static bool same_signature(const wf_fn *a, const wf_fn *b)
{
    bool same = true;
    for (uint32_t k = 0; k < a->ninputs; k++) {
        same &= wf_type_same(wf_fn_type(a, a->inputs[k]), wf_fn_type(b, b->inputs[k]));
    }
    for (uint32_t k = 0; k < a->noutputs; k++) {
        same &= wf_type_same(wf_fn_type(a, a->outputs[k]), wf_fn_type(b, b->outputs[k]));
    }
    return same;
}

/* *out stays NULL if the pass had nothing to do. */
static int run_pass(int id, wf_pass *p, const wf_fn *in, wf_fn **out, wf_why *why)
{
    uint64_t start = wf_pass_now();
    p->rewrites = 0;
    *out = NULL;
    int rc = run_of[id](p, in, out, why);
    uint64_t ns = wf_pass_now() - start;
    wf_why fault = {0};
    const wf_fn *now = *out ? *out : in;
    if (!rc && *out && p->opts->spoil) {
        p->opts->spoil(id, *out);
    }
    if (!rc && *out && verifies(p->opts) &&
        (wf_fn_verify(*out, &fault) ||
         (p->recorded && wf_fn_verify_origins(*out, p->recorded, &fault)))) {
        rc = wf_fail(why, WEFT_EINVALID, "after pass %s: %.200s", wf_passes[id].name, fault.rule);
    }
    if (!rc && (now->ninputs != in->ninputs || now->noutputs != in->noutputs)) {
        rc = wf_fail(why, WEFT_EINVALID, "pass %s lost arguments or results", wf_passes[id].name);
    }
    if (!rc && *out && verifies(p->opts) && !same_signature(in, now)) {
        rc = wf_fail(why, WEFT_EINVALID, "pass %s changed the type of an argument or a result",
                     wf_passes[id].name);
    }
    if (rc) {
        wf_fn_free(*out);
        *out = NULL;
        return rc;
    }
    if (p->opts->stats) {
        wf_pass_stat *s = &p->opts->stats[id];
        s->ns += ns;
        s->runs++;
        s->rewrites += p->rewrites;
        s->before = in->n;
        s->after = now->n;
    }
    if (wf_pass_tells()) {
        fprintf(stderr, "weft: pass %-6s %-16s %6u -> %6u instructions, %u rewrites, %.3f ms\n",
                wf_passes[id].name, in->name, in->n, now->n, p->rewrites, (double)ns * 1e-6);
    }
    return 0;
}

/* -- the pipeline ---------------------------------------------------------------------------------------------- */

static int find_stage(const char *name, size_t len)
{
    for (int i = 0; i < WF_STAGE_COUNT; i++) {
        if (strlen(wf_stage_name[i]) == len && memcmp(wf_stage_name[i], name, len) == 0) {
            return i;
        }
    }
    return -1;
}

/* Applies "-a,+b" to passes, and to the stages behind them. False with why, the last of them, where names are neither. */
static bool toggle(const char *list, bool on[SWITCHES], wf_why *why)
{
    bool good = true;
    for (const char *s = list; *s;) {
        size_t n = strcspn(s, ",");
        const bool sign = n > 1 && (*s == '-' || *s == '+');
        int id = sign ? wf_pass_find(s + 1, n - 1) : -1;
        const int stage = sign && id < 0 ? find_stage(s + 1, n - 1) : -1;
        id = stage < 0 ? id : WF_PASS_COUNT + stage;
        if (id < 0) {
            wf_fail(why, WEFT_EINVALID, "\"%.*s\" does not switch a pass", (int)n, s);
            wf_hint(why, "write -name or +name; weft-opt --list shows the names");
            good = false;
        } else {
            on[id] = *s == '+';
        }
        s += n + (s[n] == ',');
    }
    return good;
}

int wf_pass_check_env(wf_why *why)
{
    bool on[SWITCHES];
    *why = (wf_why){0};
    return toggle(wf_env()->WEFT_PASS, on, why) ? 0 : why->code;
}

int wf_dump_check_env(wf_why *why)
{
    const char *where = wf_env()->WEFT_DUMP, *folder = wf_dump_folder();
    *why = (wf_why){0};
    if (folder) {
        struct stat st;
        const int found = stat(folder, &st);
        errno = found == 0 && !S_ISDIR(st.st_mode) ? ENOTDIR : errno;
        return found == 0 && S_ISDIR(st.st_mode) && access(folder, W_OK | X_OK) == 0
                   ? 0
                   : wf_fail(why, WEFT_EIO, "%s: %s", folder, strerror(errno));
    }
    const char *pass = *where ? where + 6 : "plan"; /* behind "after:" */
    const size_t n = strlen(pass);
    if (strcmp(pass, "plan") == 0 || strcmp(pass, "recorded") == 0 || wf_pass_find(pass, n) >= 0) {
        return 0;
    }
    return find_stage(pass, n) < 0
               ? wf_fail(why, WEFT_EINVALID, "\"%s\" is no pass; weft-opt --list shows them", pass)
               : wf_fail(why, WEFT_EINVALID,
                         "\"%s\" is no pass, but a stage of planning: after:plan shows their work",
                         pass);
}

/* -- stages ------------------------------------------------------------------------------------------------------ */

static bool stage_on[SWITCHES];

static void read_stages(void)
{
    wf_why ignored;
    for (int i = 0; i < SWITCHES; i++) {
        stage_on[i] = true;
    }
    toggle(wf_env()->WEFT_PASS, stage_on, &ignored);
}

bool wf_stage_is_on(wf_stage_id id)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_stages);
    return stage_on[WF_PASS_COUNT + (int)id];
}

bool wf_stage_may(wf_stage_id id)
{
    const bool may = wf_stage_is_on(id) && process_may();
    if (may) {
        wf_work_decided(id);
    }
    return may;
}

static _Thread_local unsigned last_number; /* of the function that this thread's passes ran on */

bool wf_stage_dump(const char *name, char base[80])
{
    snprintf(base, 80, "%04u-%.60s", last_number, name);
    return wf_dump_folder() != NULL;
}

bool wf_stage_dumps_after(void)
{
    return strcmp(wf_env()->WEFT_DUMP, "after:plan") == 0;
}

/* The passes to run, in order; their number, or -1. */
static int choose(const wf_pass_opts *o, int *order, wf_why *why)
{
    int n = 0;
    if (o->only) {
        for (const char *s = o->only; *s;) {
            size_t k = strcspn(s, ",");
            int id = wf_pass_find(s, k);
            if (id < 0 || n == 64) {
                wf_fail(why, WEFT_EINVALID, "\"%.*s\" is not a pass", (int)k, s);
                return -1;
            }
            order[n++] = id;
            s += k + (s[k] == ',');
        }
        return n;
    }
    bool on[SWITCHES];
    for (int i = 0; i < WF_PASS_COUNT; i++) {
        on[i] = wf_passes[i].on;
    }
    wf_why ignored; /* a mistake in the environment is no error of the program; doctor tells */
    toggle(wf_env()->WEFT_PASS, on, &ignored);
    if (o->toggles && !toggle(o->toggles, on, why)) {
        return -1;
    }
    for (int i = 0; i < WF_PASS_COUNT; i++) {
        if (on[i]) {
            order[n++] = i;
        }
    }
    return n;
}

/* The head of a function on the page of WEFT_DUMP. */
static void put_recorded(wf_page *page, unsigned number, const wf_fn *in)
{
    fprintf(page->out, "<h2>%04u ", number);
    wf_page_text(page, in->name);
    fprintf(page->out, "</h2>\n<details><summary>as recorded: %u instructions</summary><table><tr>",
            in->n);
    put_fn(page, in);
    fputs("</table></details>\n", page->out);
}

/* What a pass made of `in` goes when the next one has made something; `in` is the caller's. */
static void drop(const wf_fn *f, const wf_fn *in)
{
    if (f != in) {
        wf_fn_free((wf_fn *)(uintptr_t)f);
    }
}

int wf_pass_all(const wf_fn *in, const wf_pass_opts *o, wf_fn **out, wf_why *why)
{
    static const wf_pass_opts defaults;
    static _Atomic unsigned numbers;
    int order[64];
    o = o ? o : &defaults;
    *out = NULL;
    int n = choose(o, order, why);
    if (n < 0) {
        return WEFT_EINVALID;
    }
    int64_t left = o->bisect - 1;
    uint32_t fired[RULES] = {0};
    wf_pass p = {.opts = o,
                 .left = o->bisect > 0 ? &left : NULL,
                 .recorded = in->origin ? NULL : in,
                 .fired = fired};
    const bool counts = wf_pass_listed(wf_env()->WEFT_STATS, "fold");
    bool dumps = *dump_of(o) != '\0';
    wf_page page = {0};
    const bool paged = dumps && !o->dump && wf_page_begin(&page);
    p.fired = counts || paged ? fired : NULL;
    unsigned number = dumps ? atomic_fetch_add(&numbers, 1) : 0;
    last_number = number;
    if (dumps) {
        dump(o, in, number, 0, "recorded");
    }
    if (paged) {
        put_recorded(&page, number, in);
    }
    show(in, "as recorded");
    const wf_fn *f = in;
    int rc = 0;
    for (int k = 0; k < n && !rc; k++) {
        wf_fn *next;
        rc = run_pass(order[k], &p, f, &next, why);
        if (paged && !rc) {
            put_pass(&page, order[k], f, next ? next : f, p.rewrites);
        }
        if (rc || next) {
            drop(f, in);
        }
        f = next || rc ? next : f;
        if (!rc && next) {
            show(f, wf_passes[order[k]].name);
        }
        if (!rc && dumps) {
            dump(o, f, number, k + 1, wf_passes[order[k]].name);
        }
    }
    tell_rules(in, counts ? fired : NULL);
    if (paged) {
        put_rules(&page, fired);
    }
    int64_t seed;
    if (!rc && !o->only && wf_env_stress("order", &seed)) {
        wf_fn *next;
        rc = wf_pass_shuffle((uint64_t)seed, f, &next, why);
        drop(f, in);
        f = next;
    }
    if (!rc && f == in) { /* the caller will free what it gets */
        return wf_fn_copy(in, NULL, out, why);
    }
    *out = rc ? NULL : (wf_fn *)(uintptr_t)f;
    return rc;
}

int wf_pass_run(const char *name, const wf_fn *in, const wf_pass_opts *o, wf_fn **out, wf_why *why)
{
    static const wf_pass_opts defaults;
    int id = wf_pass_find(name, strlen(name));
    *out = NULL;
    if (id < 0) {
        return wf_fail(why, WEFT_EINVALID, "\"%.40s\" is not a pass", name);
    }
    o = o ? o : &defaults;
    int64_t left = o->bisect - 1;
    wf_pass p = {
        .opts = o, .left = o->bisect > 0 ? &left : NULL, .recorded = in->origin ? NULL : in};
    int rc = run_pass(id, &p, in, out, why);
    return rc || *out ? rc : wf_fn_copy(in, NULL, out, why);
}
