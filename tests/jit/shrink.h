/*
 * tests/jit/shrink.h -- a failing function made small: what no output needs is left out, and values become
 * inputs, as long as it fails.
 */
#ifndef TESTS_JIT_SHRINK_H
#define TESTS_JIT_SHRINK_H

#include <stdlib.h>
#include <string.h>

#include "jit/ir/ir.h"

/* NULL, or why the function fails (a static text). */
typedef const char *(*shrink_check)(const wf_fn *f, void *arg);

/* Is v value `cut` (0: none), or another result of its op? */
static inline bool shrink_is_cut(const wf_fn *f, wf_val v, wf_val cut)
{
    const wf_ins *i = wf_fn_at(f, v);
    return v == cut || (i->op == WF_OP_RESULT && wf_ins_src(f, i)[0] == cut);
}

/* Which values of f the outputs need, where `cut` needs nothing. need: n + 1 bytes. */
static inline void shrink_needs(const wf_fn *f, const wf_val *outputs, uint32_t n, wf_val cut,
                                char *need)
{
    memset(need, 0, f->n + 1u);
    for (uint32_t k = 0; k < n; k++) {
        need[outputs[k]] = 1;
    }
    for (wf_val v = f->n; v >= 1; v--) {
        const wf_ins *i = wf_fn_at(f, v);
        for (int s = 0; need[v] && !shrink_is_cut(f, v, cut) && s < i->nsrc; s++) {
            need[wf_ins_src(f, i)[s]] = 1;
        }
    }
}

/* The function of the n outputs with what they need, and the results of op `cut` as inputs. NULL: it cannot be made. */
static inline wf_fn *shrink_part(const wf_fn *f, const wf_val *outputs, uint32_t n, wf_val cut)
{
    char *need = malloc(f->n + 1u);
    wf_val *now = calloc(f->n + 1u, sizeof *now);
    wf_fn *g = need && now ? wf_fn_new("small") : NULL;
    bool ok = g != NULL;
    if (ok) {
        shrink_needs(f, outputs, n, cut, need);
    }
    for (wf_val v = 1; ok && v <= f->n; v++) {
        const wf_ins *i = wf_fn_at(f, v);
        wf_val src[255], dst[WF_MAX_DST];
        wf_why why;
        if (!need[v] || now[v]) {
            continue; /* results come with their op */
        }
        if (i->op == WF_OP_INPUT || shrink_is_cut(f, v, cut)) {
            now[v] = wf_fn_input(g, wf_fn_type(f, v));
        } else if (wf_op_is_weak(i->op)) {
            const int kind = f->slot_kind[i->attr];
            now[v] = i->op == WF_OP_SCALAR ? wf_fn_scalar(g, kind, f->slots[i->attr])
                                           : wf_fn_const(g, kind, f->slots[i->attr]);
        } else {
            for (int s = 0; s < i->nsrc; s++) {
                src[s] = now[wf_ins_src(f, i)[s]];
            }
            ok = i->op != WF_OP_RESULT && wf_fn_append(g, (wf_op)i->op, wf_ins_attr(f, i), i->nsrc,
                                                       src, dst, NULL, &why) == 0;
            for (int r = 0; ok && r < wf_rows[i->op].ndst; r++) {
                now[v + (wf_val)r] = now[v + (wf_val)r] ? now[v + (wf_val)r] : dst[r];
            }
        }
        ok = ok && now[v];
    }
    for (uint32_t k = 0; ok && k < n; k++) {
        ok = wf_fn_output(g, now[outputs[k]]) == 0;
    }
    free(need);
    free(now);
    if (!ok) {
        wf_fn_free(g);
    }
    return ok ? g : NULL;
}

/* What shrinking makes less: instructions first, then inputs. */
static inline size_t shrink_work(const wf_fn *f)
{
    size_t work = 0;
    for (wf_val v = 1; v <= f->n; v++) {
        work += wf_fn_at(f, v)->op == WF_OP_INPUT ? 1 : 100;
    }
    return work;
}

/* Puts g in the place of *best if it is smaller and fails; else frees it. */
static inline bool shrink_take(wf_fn **best, wf_fn *g, shrink_check check, void *arg)
{
    if (!g || shrink_work(g) >= shrink_work(*best) || !check(g, arg)) {
        wf_fn_free(g);
        return false;
    }
    wf_fn_free(*best);
    *best = g;
    return true;
}

/* A small function that fails as f does. Freed by the caller; NULL: no memory. */
static inline wf_fn *shrink(const wf_fn *f, shrink_check check, void *arg)
{
    wf_fn *best = shrink_part(f, f->outputs, f->noutputs, 0);
    for (bool smaller = best != NULL; smaller;) {
        smaller = false;
        for (wf_val v = 1; v <= best->n && !smaller; v++) { /* one value alone */
            const int op = wf_fn_at(best, v)->op;
            if (!wf_op_is_weak(op) && op != WF_OP_INPUT) {
                smaller = shrink_take(&best, shrink_part(best, &v, 1, 0), check, arg);
            }
        }
        for (wf_val v = best->n; v >= 1 && !smaller; v--) { /* an operand from outside */
            const int op = wf_fn_at(best, v)->op;
            if (!wf_op_is_weak(op) && op != WF_OP_INPUT && op != WF_OP_RESULT) {
                wf_fn *g = shrink_part(best, best->outputs, best->noutputs, v);
                smaller = shrink_take(&best, g, check, arg);
            }
        }
    }
    return best;
}

#endif
