/*
 * jit/passes/results.c -- a returned part of a value becomes a copy, an instruction like others.
 *
 * What a plan returns has memory of its own, where eager code hands out a view. A slice of a value would be copied there when all
 * else has run, and until then the whole value lives. As an instruction the copy stands behind the value's last reader, joins
 * groups that read the same, and a part of a fill is a fill. Views that only reshape or turn are left: the value may be
 * computed where the result is to be, or lie there as it is asked for already. So are parts of arguments, which live anyway.
 * Runs behind fold, which takes copies away.
 */
#include <stdlib.h>

#include "jit/passes/pass.h"

/* What v is a part of, if that is made here; else 0. */
static wf_val whole_of(const wf_fn *f, wf_val v)
{
    bool part = false;
    const wf_ins *i = wf_fn_at(f, v);
    while (i->op == WF_OP_SLICE || i->op == WF_OP_EXPAND || i->op == WF_OP_RESHAPE ||
           i->op == WF_OP_PERMUTE) {
        part |= i->op == WF_OP_SLICE || i->op == WF_OP_EXPAND;
        v = i->src[0];
        i = wf_fn_at(f, v);
    }
    const wf_kind kind = (wf_kind)wf_rows[i->op].kind;
    const bool made = i->op == WF_OP_RESULT || (kind != WF_KIND_LEAF && kind != WF_KIND_VIEW);
    return part && made ? v : 0;
}

typedef struct parts {
    const wf_fn *f;
    wf_val *map;
    uint32_t *root,
        *last; /* of a value: what it is a view of, the last instruction that reads that */
    uint32_t *next, *first; /* by instruction: outputs that are copied behind it, + 1, as lists */
} parts;

static void find_readers(const parts *x)
{
    const wf_fn *f = x->f;
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        if (wf_rows[f->ins[k].op].kind == WF_KIND_VIEW) {
            x->root[k + 1] = x->root[src[0]];
            continue;
        }
        x->root[k + 1] = k + 1;
        x->last[k + 1] = k;
        for (int s = 0; s < f->ins[k].nsrc; s++) {
            x->last[x->root[src[s]]] = k;
        }
    }
}

/* Instruction k, or the last of its further results. */
static uint32_t behind(const wf_fn *f, uint32_t k)
{
    while (k + 1 < f->n && f->ins[k + 1].op == WF_OP_RESULT) {
        k++;
    }
    return k;
}

/* Copies of the outputs that are put behind instruction k. */
static int copy_behind(const parts *x, wf_build *b, uint32_t k, wf_val *copied, wf_why *why)
{
    int rc = 0;
    for (uint32_t o = x->first[k]; o && !rc; o = x->next[o - 1]) {
        const wf_val v = x->f->outputs[o - 1];
        if (!copied[v]) {
            rc = wf_build_row(b, WF_OP_COPY, NULL, 1, &x->map[v], 0, &copied[v], why);
        }
    }
    return rc;
}

static int rewrite(const parts *x, wf_fn **out, wf_val *copied, wf_why *why)
{
    const wf_fn *in = x->f;
    wf_build b;
    int rc = wf_build_begin(&b, in, 0);
    for (uint32_t k = 0; k < in->n && !rc; k++) {
        rc = wf_build_copy(&b, in, k, x->map, why);
        rc = rc ? rc : copy_behind(x, &b, k, copied, why);
    }
    for (uint32_t k = 0; k < in->noutputs && !rc; k++) {
        const wf_val v = in->outputs[k];
        rc = wf_fn_output(b.f, copied[v] ? copied[v] : x->map[v])
                 ? wf_fail(why, WEFT_ENOMEM, "out of memory")
                 : 0;
    }
    *out = wf_build_end(&b);
    return rc;
}

int wf_pass_results(wf_pass *p, const wf_fn *in, wf_fn **out, wf_why *why)
{
    uint32_t n = 0;
    while (n < in->noutputs && !whole_of(in, in->outputs[n])) {
        n++;
    }
    if (n == in->noutputs) {
        return 0;
    }
    const size_t values = in->n + 1u;
    wf_val *copied = calloc(values, sizeof *copied);
    parts x = {.f = in,
               .map = calloc(values, sizeof *x.map),
               .root = calloc(values, sizeof *x.root),
               .last = calloc(values, sizeof *x.last),
               .first = calloc(values, sizeof *x.first),
               .next = calloc(in->noutputs, sizeof *x.next)};
    const bool ok = copied && x.map && x.root && x.last && x.first && x.next;
    int rc = ok ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    const uint32_t before = p->rewrites;
    if (!rc) {
        find_readers(&x);
    }
    for (uint32_t k = 0; k < in->noutputs && !rc; k++) {
        const wf_val v = in->outputs[k], whole = whole_of(in, v);
        if (whole && wf_pass_may(p, "results")) {
            const uint32_t last = x.last[whole], at = behind(in, last < v ? v - 1 : last);
            x.next[k] = x.first[at];
            x.first[at] = k + 1;
        }
    }
    if (!rc && p->rewrites > before) {
        rc = rewrite(&x, out, copied, why);
    }
    free(copied);
    free(x.map);
    free(x.root);
    free(x.last);
    free(x.first);
    free(x.next);
    return rc;
}
