/*
 * jit/plan_page.c -- what WEFT_DUMP=DIR has of a plan: its text, its picture for graphviz, and a section of the page.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "jit/kernels_impl.h"
#include "jit/passes/page.h"
#include "jit/passes/pass.h"
#include "jit/plan_int.h"

/* Destinations by their buffer, as lists: the first access of each, 1 + the one behind an access, and its launch. */
typedef struct makers {
    uint32_t *first, *next, *launch;
} makers;

static void free_makers(const makers *m)
{
    free(m->first);
    free(m->next);
    free(m->launch);
}

static bool find_makers(const wf_plan *p, makers *m)
{
    *m = (makers){calloc(p->nbuffers + 1u, sizeof *m->first),
                  calloc(p->naccesses + 1u, sizeof *m->next),
                  calloc(p->naccesses + 1u, sizeof *m->launch)};
    const bool ok = m->first && m->next && m->launch;
    for (uint32_t i = 0; i < p->nsteps && ok; i++) {
        const wf_plan_step *s = &p->steps[i];
        for (uint32_t d = s->access; d < s->access + s->ndst; d++) {
            const int32_t u = p->accesses[d].buffer;
            m->launch[d] = s->launch;
            m->next[d] = m->first[u];
            m->first[u] = d + 1;
        }
    }
    return ok;
}

/* A box a launch with its ops, an arrow where one reads what another makes: several where those are parts. */
int wf_plan_dot(const wf_plan *top, FILE *out)
{
    const wf_plan *p = wf_plan_chosen(top);
    makers made;
    if (!find_makers(p, &made)) {
        free_makers(&made);
        return WEFT_ENOMEM;
    }
    fprintf(out, "digraph plan {\nnode [shape=box, fontname=monospace];\n");
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const wf_plan_step *s = &p->steps[i];
        const bool first = i == 0 || s[-1].launch != s->launch;
        if (first) {
            fprintf(out, "s%u [label=\"%u %s", s->launch, s->launch, wf_plan_step_kind(s));
        }
        for (uint32_t m = 0; m < s->nmember; m++) {
            const uint32_t k = p->members[s->member + m];
            fprintf(out, "\\n%%%u %s", k + 1, wf_rows[p->fn->ins[k].op].name);
        }
        if (i + 1 == p->nsteps || s[1].launch != s->launch) {
            fprintf(out, "\"%s];\n", s->kind == WF_STEP_MAP || s->after ? ", style=filled" : "");
        }
    }
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const wf_plan_step *s = &p->steps[i];
        const wf_access *a = &p->accesses[s->access + s->ndst];
        for (uint32_t n = 0; n < s->nsrc; n++) {
            for (uint32_t at = a[n].buffer < 0 ? 0 : made.first[a[n].buffer]; at;
                 at = made.next[at - 1]) {
                const uint32_t from = made.launch[at - 1];
                if (from != s->launch &&
                    (!made.next[at - 1] || from != made.launch[made.next[at - 1] - 1])) {
                    fprintf(out, "s%u -> s%u [label=\"%%%u\"];\n", from, s->launch,
                            p->buffers[a[n].buffer].v);
                }
            }
        }
    }
    fprintf(out, "}\n");
    free_makers(&made);
    return ferror(out) ? WEFT_EIO : 0;
}

/* What `print` writes of p, as a string; NULL: no memory. */
static char *text_of(const wf_plan *p, int (*print)(const wf_plan *, FILE *))
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    const int rc = out ? print(p, out) : WEFT_ENOMEM;
    if (out && (fclose(out) || rc)) {
        free(text);
        text = NULL;
    }
    return text;
}

static void put_section(const wf_plan *p, const char *name, const char *base, const char *text)
{
    wf_page page;
    char file[96];
    if (!wf_page_begin(&page)) {
        return;
    }
    fputs("<h3>plan of ", page.out);
    wf_page_text(&page, name);
    fputs("</h3>\n<p>", page.out);
    snprintf(file, sizeof file, "%s-plan.txt", base);
    wf_page_link(&page, file);
    snprintf(file, sizeof file, "%s-plan.dot", base);
    wf_page_link(&page, file);
    fputs("<pre>", page.out);
    wf_page_text(&page, text);
    fputs("</pre>\n<p>", page.out);
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const wf_plan_step *s = &p->steps[i];
        const wf_jitk *k = s->kind == WF_STEP_MAP ? p->programs[s->program].kernel : NULL;
        if (k) {
            fprintf(page.out, "step %u: <a href=\"#k%016" PRIx64 "\">its kernel</a>\n", s->launch,
                    k->hash);
        }
    }
    fputs("\n", page.out);
    wf_page_end(&page);
}

void wf_plan_dump(const wf_plan *p, const char *name)
{
    char base[80], full[96], file[80];
    const bool files = wf_stage_dump(name, base);
    if (!files && !wf_stage_dumps_after()) {
        return;
    }
    char *text = text_of(p, wf_plan_explain), *dot = files ? text_of(p, wf_plan_dot) : NULL;
    if (files) {
        snprintf(full, sizeof full, "%s-plan", base);
        wf_dump_text(full, "txt", text ? text : "");
        wf_dump_text(full, "dot", dot ? dot : "");
        put_section(p, name, wf_dump_name(base, file), text);
    } else if (text) {
        fputs(text, stderr);
    }
    free(text);
    free(dot);
}
