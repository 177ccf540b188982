/*
 * jit/explain.c -- what a traced function says of itself: counts, breaks, why each plan was built, and the plans.
 *
 * A recording without a plan is compared with those that have one, and differs from the likest of them in something: that is the
 * reason why a plan is built, and the last REBUILDS of them are kept.
 *
 * Invariant: everything here but weft_jit_explain is called with the lock.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jit/call_impl.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* -- why a plan is built -------------------------------------------------------------------------------------------- */

typedef struct line {
    char *s;
    size_t n, size;
} line;

WF_PRINTF(2, 3) static void put(line *l, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = l->n < l->size ? vsnprintf(l->s + l->n, l->size - l->n, fmt, args) : 0;
    va_end(args);
    l->n += n > 0 ? (size_t)n : 0;
}

static void put_type(line *l, const wf_type *t)
{
    put(l, "%s[", wf_dtype_name(t->dtype));
    for (int i = 0; i < t->rank; i++) {
        put(l, "%s%lld", i ? "," : "", (long long)t->dims[i]);
    }
    put(l, "]");
}

/* "%4 exp at t.c:10" */
static void put_ins(line *l, const wf_fn *f, uint32_t k)
{
    const char *site = f->locs[f->ins[k].loc];
    put(l, "%%%u %s", k + 1, wf_rows[f->ins[k].op].name);
    if (site) {
        put(l, " at %s", wf_site_file(site));
    }
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Leading instructions that are the same rows, of `most`. */
static uint32_t same_rows(const wf_fn *a, const wf_fn *b, uint32_t most)
{
    uint32_t k = 0, n = least(least(a->n, b->n), most);
    while (k < n && a->ins[k].op == b->ins[k].op) {
        k++;
    }
    return k;
}

static bool same_operands(const wf_fn *a, const wf_fn *b, uint32_t k)
{
    const wf_ins *x = &a->ins[k], *y = &b->ins[k];
    return x->nsrc == y->nsrc &&
           memcmp(wf_ins_src(a, x), wf_ins_src(b, y), x->nsrc * sizeof(wf_val)) == 0;
}

/* The first input, else the first instruction, of another type; UINT32_MAX: none. Both have n instructions. */
static uint32_t other_type(const wf_fn *a, const wf_fn *b, bool inputs)
{
    for (uint32_t k = 0; k < a->n; k++) {
        if ((!inputs || a->ins[k].op == WF_OP_INPUT) &&
            !wf_type_same(wf_fn_type(a, k + 1), wf_fn_type(b, k + 1))) {
            return k;
        }
    }
    return UINT32_MAX;
}

/* Same rows throughout. */
static void differ_inside(line *l, const wf_fn *a, const wf_fn *b)
{
    uint32_t k = other_type(a, b, true);
    k = k == UINT32_MAX ? other_type(a, b, false) : k;
    if (k != UINT32_MAX) {
        put_ins(l, a, k);
        put(l, " is ");
        put_type(l, wf_fn_type(a, k + 1));
        put(l, ", not ");
        put_type(l, wf_fn_type(b, k + 1));
        return;
    }
    for (k = 0; k < a->n; k++) {
        const wf_attr *x = wf_ins_attr(a, &a->ins[k]), *y = wf_ins_attr(b, &b->ins[k]);
        bool row = a->ins[k].op > WF_OP_RESULT && (a->ins[k].attr || b->ins[k].attr);
        if (!same_operands(a, b, k)) {
            put_ins(l, a, k);
            put(l, " reads other values");
            return;
        }
        if (a->ins[k].flags != b->ins[k].flags) {
            put_ins(l, a, k);
            put(l, " has another grad mode");
            return;
        }
        if (row && (x->n_ints != y->n_ints || x->n_dyn != y->n_dyn || x->flags != y->flags ||
                    (x->n_ints && memcmp(x->ints, y->ints, x->n_ints * sizeof *x->ints) != 0))) {
            put_ins(l, a, k);
            put(l, " has other axes or sizes");
            return;
        }
    }
    put(l, "strides, steps, or what is returned or written back differ");
}

static void differ(line *l, const wf_fn *a, const wf_fn *b)
{
    const uint32_t same = same_rows(a, b, UINT32_MAX);
    if (same == a->n && same == b->n) {
        differ_inside(l, a, b);
    } else if (same < a->n && same < b->n) {
        put_ins(l, a, same);
        put(l, " is where %s was", wf_rows[b->ins[same].op].name);
    } else {
        put(l, "%u ops were recorded, not %u", a->n, b->n);
    }
}

/* How alike two recordings are: by leading rows, then by how many of these have the same types. */
static uint64_t likeness(const wf_fn *a, const wf_fn *b)
{
    enum { LOOKED_AT = 1024 }; /* every plan is compared, with the lock */
    const uint32_t rows = same_rows(a, b, LOOKED_AT);
    uint32_t types = a->n == b->n;
    for (uint32_t k = 0; k < rows; k++) {
        types += wf_type_same(wf_fn_type(a, k + 1), wf_fn_type(b, k + 1));
    }
    return (uint64_t)rows << 32 | types;
}

/* The plan whose recording is most like this one; of two, the one that was used last. */
static const entry *likest(const weft_jit *j, const wf_job *job)
{
    const entry *best = NULL;
    uint64_t most = 0;
    for (int i = 0; i < j->nplans; i++) {
        const entry *e = &j->plans[i];
        const uint64_t now = likeness(job->fn, e->fn);
        if (!best || now > most || (now == most && e->used > best->used)) {
            best = e;
            most = now;
        }
    }
    return best;
}

bool wf_call_was_dropped(const weft_jit *j, uint64_t hash)
{
    return j->dropped[hash % DROPPED] == hash;
}

void wf_call_note_build(weft_jit *j, uint64_t hash, const wf_job *job)
{
    rebuild *r = &j->rebuilds[(j->stats.plans - 1) % REBUILDS];
    const entry *e = likest(j, job);
    line l = {r->text, 0, sizeof r->text};
    r->segment = j->stats.segments;
    r->text[0] = '\0';
    if (wf_call_was_dropped(j, hash)) {
        put(&l, "it had been dropped at the limit");
    } else if (!e) {
        put(&l, "the first");
    } else if (e->device != job->device) {
        put(&l, "it is on another device");
    } else {
        differ(&l, job->fn, e->fn);
    }
}

void wf_call_note_drop(weft_jit *j, uint64_t hash)
{
    j->dropped[hash % DROPPED] = hash;
}

/* -- all of it ------------------------------------------------------------------------------------------------------ */

static void put_builds(const weft_jit *j, FILE *out)
{
    const int64_t n = j->stats.plans;
    if (n > REBUILDS) {
        fprintf(out, "  the first %lld plans are not listed\n", (long long)(n - REBUILDS));
    }
    for (int64_t i = n > REBUILDS ? n - REBUILDS : 0; i < n; i++) {
        const rebuild *r = &j->rebuilds[i % REBUILDS];
        fprintf(out, "  plan built for segment %lld: %s\n", (long long)r->segment, r->text);
    }
    if (j->nplans >= j->max_plans) {
        fprintf(out,
                "  the limit of %d plans (max_plans) is reached: %lld were dropped, the least "
                "recently used first\n",
                j->max_plans, (long long)j->stats.evictions);
    }
}

weft_status weft_jit_explain(weft_jit *j, FILE *out)
{
    if (!j || !out) {
        wf_raise_text(wf_ctx_get(), WEFT_EINVALID, "jit_explain", "the trace or the file is NULL");
        return WEFT_EINVALID;
    }
    pthread_mutex_lock(&j->lock);
    const weft_jit_stats *s = &j->stats;
    fprintf(
        out,
        "%s: %lld calls, %lld inlined, %lld segments, %lld breaks, %lld plans built, %lld found, "
        "%lld evicted\n",
        j->name, (long long)s->calls, (long long)s->inlined, (long long)s->segments,
        (long long)s->breaks, (long long)s->plans, (long long)s->hits, (long long)s->evictions);
    if (j->freezes) {
        fprintf(out,
                "  %lld calls replayed, %lld sent to recording by a guard, %lld verified, %lld "
                "thawed\n",
                (long long)atomic_load_explicit(&j->replays, memory_order_relaxed),
                (long long)s->misses, (long long)s->verified, (long long)s->thawed);
    }
    if (j->adapts) {
        fprintf(out, "  %lld calls ran eagerly\n", (long long)wf_call_count_eager(j));
        wf_call_explain_ways(j, out);
    }
    for (int i = 0; i < j->nbreaks; i++) {
        fprintf(out, "  broken %lld times by %s%s%s\n", (long long)j->breaks[i].count,
                j->breaks[i].op, *j->breaks[i].site ? " at " : "", j->breaks[i].site);
    }
    for (int i = 0; i < j->nreasons; i++) {
        fprintf(out, "  %lld times %s\n", (long long)j->reasons[i].count, j->reasons[i].text);
    }
    put_builds(j, out);
    int rc = ferror(out) ? WEFT_EIO : 0;
    for (int i = 0; i < j->nplans && !rc; i++) {
        fprintf(out, "plan %d\n", i + 1);
        rc = wf_plan_explain(j->plans[i].plan, out);
    }
    pthread_mutex_unlock(&j->lock);
    if (rc) {
        wf_raise_text(wf_ctx_get(), rc, "jit_explain", "the text could not be written");
    }
    return (weft_status)rc;
}
