/*
 * jit/passes/dce.c -- dropping what no output needs.
 *
 * Inputs stay: they are the arguments of a call. Random rows are dropped like others, since their
 * offsets were taken when they were recorded. So is an op whose indices may be out of range: the error
 * belongs to a value that nobody reads.
 */
#include <stdlib.h>

#include "jit/passes/pass.h"

/* The first result of the op that made v. */
static wf_val head_of(const wf_fn *f, wf_val v)
{
    const wf_ins *i = wf_fn_at(f, v);
    return i->op == WF_OP_RESULT ? i->src[0] : v;
}

int wf_pass_live(const wf_fn *f, uint8_t *live)
{
    for (uint32_t k = 0; k < f->noutputs; k++) {
        live[head_of(f, f->outputs[k])] = 1;
    }
    for (wf_val v = f->n; v > 0; v--) { /* operands are smaller numbers */
        const wf_ins *i = wf_fn_at(f, v);
        if (!live[v] || i->op == WF_OP_RESULT) {
            continue;
        }
        const wf_val *src = wf_ins_src(f, i);
        for (int s = 0; s < i->nsrc; s++) {
            if (src[s]) {
                live[head_of(f, src[s])] = 1;
            }
        }
    }
    return 0;
}

int wf_pass_dce(wf_pass *p, const wf_fn *in, wf_fn **out, wf_why *why)
{
    uint8_t *live = calloc(in->n + 1u, 1);
    int rc = live ? wf_pass_live(in, live) : wf_fail(why, WEFT_ENOMEM, "out of memory");
    uint32_t before = p->rewrites;
    /* Users stand behind operands: an instruction that bisection keeps alive needs its operands too. */
    bool kept = false;
    for (wf_val v = in->n; v > 0 && !rc; v--) {
        int op = wf_fn_at(in, v)->op;
        if (!live[v] && op != WF_OP_RESULT && op != WF_OP_INPUT && !wf_pass_may(p, "dce")) {
            live[v] = 1;
            kept = true;
        }
        if (kept && live[v] && op != WF_OP_RESULT) {
            const wf_ins *i = wf_fn_at(in, v);
            const wf_val *src = wf_ins_src(in, i);
            for (int s = 0; s < i->nsrc; s++) {
                live[src[s] ? head_of(in, src[s]) : 0] = 1;
            }
        }
    }
    if (!rc && p->rewrites > before) {
        rc = wf_fn_copy(in, live, out, why);
    }
    free(live);
    return rc;
}
