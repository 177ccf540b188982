/*
 * jit/plan_note.c -- what a profile says of a launch: the kernel's name, the ops in it, where they were called.
 *
 * A worker of the pool takes the name for its own event while the launch runs, so names live as long as the plan.
 */
#include <string.h>

#include "eager/profile.h"
#include "jit/plan_int.h"

const char *wf_plan_site(const wf_plan *p, const wf_fn *recording, uint32_t k)
{
    if (!recording) {
        return p->fn->locs[p->fn->ins[k].loc];
    }
    wf_val from = wf_fn_origin(p->fn, k + 1);
    uint32_t loc = from ? wf_fn_at(recording, from)->loc : 0;
    return loc ? recording->locs[loc] : NULL;
}

/* Of instruction k, what the user called. */
static const char *called_name(const wf_plan *p, const wf_fn *recording, uint32_t k)
{
    const wf_val from = recording ? wf_fn_origin(p->fn, k + 1) : 0;
    return from ? wf_fn_call_name(recording, from - 1) : wf_fn_call_name(p->fn, k);
}

/* "; operands: f32[5,3], i64[2]" */
static void describe_operands(const wf_fn *f, uint32_t k, char *text, size_t size)
{
    enum { LISTED = 4 };
    const wf_ins *i = &f->ins[k];
    size_t at = 0;
    text[0] = '\0';
    for (int s = 0; s < i->nsrc && s <= LISTED && at < size; s++) {
        const wf_val v = wf_ins_src(f, i)[s];
        const char *between = s ? ", " : "; operands: ";
        if (s == LISTED) {
            at += (size_t)snprintf(text + at, size - at, ", ... (%d in all)", i->nsrc);
        } else if (v) {
            const wf_type *t = wf_fn_type(f, v);
            at += (size_t)snprintf(text + at, size - at, "%s%s[", between, wf_dtype_name(t->dtype));
            for (int d = 0; d < t->rank && at < size; d++) {
                at += (size_t)snprintf(text + at, size - at, d ? ",%lld" : "%lld",
                                       (long long)t->dims[d]);
            }
            at += at < size ? (size_t)snprintf(text + at, size - at, "]") : 0;
        }
    }
    if (at >= size) {
        text[0] = '\0'; /* whole, or not at all */
    }
}

void wf_plan_name_failure(const wf_plan *p, const wf_fn *recording, uint32_t k, wf_why *why)
{
    const wf_why was = *why;
    char operands[128];
    const char *site = wf_plan_site(p, recording, k), *op = called_name(p, recording, k);
    const char *at = site ? wf_site_file(site) : "";
    describe_operands(p->fn, k, operands, sizeof operands);
    const size_t words = strlen(op) + strlen(was.rule) + strlen(at) + strlen(operands);
    const bool fit = words + sizeof ":  (called at )" < sizeof why->rule;
    wf_fail(why, was.code, "%.40s: %.120s%s%s%.80s%s", op, was.rule, fit ? operands : "",
            site ? " (called at " : "", at, site ? ")" : "");
    memcpy(why->hint, was.hint, sizeof why->hint);
}

bool wf_plan_is_native(const wf_plan *p, const wf_plan_step *s)
{
    const wf_jitk *k = s->kind == WF_STEP_MAP ? p->programs[s->program].kernel : NULL;
    return k && wf_jitk_get_state(k) == WF_JITK_NATIVE;
}

const char *wf_plan_launch_name(const wf_plan *p, const wf_plan_step *s)
{
    return wf_plan_is_native(p, s) ? wf_jitk_name(p->programs[s->program].kernel)
           : s->nmember            ? wf_rows[s->op].name
                                   : "output";
}

typedef struct line {
    char text[320];
    size_t n;
} line;

static void put(line *l, const char *before, const char *what)
{
    size_t room = sizeof l->text - l->n, size = strlen(before) + strlen(what);
    if (size + 4 < room) {
        memcpy(l->text + l->n, before, strlen(before));
        memcpy(l->text + l->n + strlen(before), what, strlen(what) + 1);
        l->n += size;
    } else if (room >= 4 && (l->n < 3 || memcmp(l->text + l->n - 3, "...", 3) != 0)) {
        memcpy(l->text + l->n, "...", 4);
        l->n += 3;
    }
}

/* What is said of a launch, which is n steps. */
typedef struct note {
    line text; /* "rows, native: sub exp div; also at a.c:4" */
    const char *site[4];
    int64_t bytes;
} note;

static void compose(note *l, const wf_plan *p, const wf_fn *recording, const wf_plan_step *s,
                    uint32_t n)
{
    enum { SITES = sizeof l->site / sizeof *l->site };
    int nsite = 0;
    *l = (note){.bytes = 0};
    for (uint32_t i = 0; i < n; i++) {
        wf_plan_traffic(p, &s[i], p->words, &l->bytes, &l->bytes);
    }
    put(&l->text, "", wf_plan_step_kind(s));
    put(&l->text, "",
        s->kind != WF_STEP_MAP    ? ":"
        : wf_plan_is_native(p, s) ? ", native:"
                                  : ", tier 0:");
    const bool product = n > 1 && s[1].after;
    if (n > 1 && !product) {
        char many[32];
        snprintf(many, sizeof many, " %u times", n);
        put(&l->text, many, "");
    }
    const uint32_t names = s->nmember + (product ? s[1].nmember : 0);
    for (uint32_t m = 0; m < names; m++) {
        uint32_t k = p->members[m < s->nmember ? s->member + m : s[1].member + m - s->nmember];
        put(&l->text, " ", wf_rows[p->fn->ins[k].op].name);
        nsite = wf_site_add(l->site, nsite, SITES, wf_plan_site(p, recording, k));
    }
    for (int i = 1; i < nsite; i++) {
        put(&l->text, i == 1 ? "; also at " : " ", l->site[i]);
    }
}

void wf_plan_note(const wf_plan *p, const wf_fn *recording, const wf_plan_step *s, uint32_t n,
                  int64_t start, int64_t end)
{
    note l;
    compose(&l, p, recording, s, n);
    wf_prof_end(start, &(wf_prof_span){WEFT_PROFILE_KERNEL, .name = wf_plan_launch_name(p, s),
                                       .detail = l.text.text, .site = l.site[0], .bytes = l.bytes,
                                       .end = end});
}

void wf_plan_tell(const wf_plan *p, const wf_fn *recording, const wf_plan_step *s, uint32_t n,
                  int64_t ns, bool queued)
{
    note l;
    compose(&l, p, recording, s, n);
    const double rate = !queued && ns > 0 ? (double)l.bytes / (double)ns : 0;
    fprintf(stderr, "weft: launch %s %.2f us%s, %.1f KB, %.1f GB/s%s%s; %s\n",
            wf_plan_launch_name(p, s), (double)ns * 1e-3, queued ? " to queue" : "",
            (double)l.bytes * 1e-3, rate, l.site[0] ? " at " : "", l.site[0] ? l.site[0] : "",
            l.text.text);
}
