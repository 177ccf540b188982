/*
 * jit/passes/fold.c -- the pass that folds and merges: the function is built once more.
 *
 * Operands are folded before their users, so one walk reaches a fixed point of all rules that look
 * at most one instruction down.
 */
#include "jit/passes/pass.h"

int wf_pass_fold(wf_pass *p, const wf_fn *in, wf_fn **out, wf_why *why)
{
    wf_build b;
    int classes = WF_FOLD_EXACT | WF_FOLD_MERGE | (p->opts->fast ? WF_FOLD_FAST : 0);
    int rc = wf_build_begin(&b, in, classes);
    b.may = wf_pass_may;
    b.ctx = p;
    rc = rc ? wf_fail(why, rc, "out of memory") : wf_build_all(&b, in, NULL, why);
    *out = wf_build_end(&b);
    return rc;
}
