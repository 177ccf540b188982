/*
 * jit/passes/dense.c -- as_strided maps over a value: a view under it becomes a copy.
 *
 * Views are index maps for whoever plans memory, and maps compose, except one: as_strided counts in the
 * row-major order of its operand's elements, whatever memory they lie in. Recording applies it to whole
 * storages; folding a copy (docs/passes.md) may leave a permuted or sliced view there, or the result of a row that a plan may
 * lay out channels-last. A reshape of a value is the value in the same order. Runs last: folding would take the copy away again.
 */
#include <stdlib.h>

#include "eager/layout.h"
#include "jit/passes/pass.h"

/* May the elements of v lie elsewhere than row by row in memory of their own? */
static bool is_scattered(const wf_fn *f, wf_val v)
{
    const wf_ins *i = wf_fn_at(f, v);
    while (i->op == WF_OP_RESHAPE) {
        i = wf_fn_at(f, i->src[0]);
    }
    i = i->op == WF_OP_RESULT ? wf_fn_at(f, i->src[0]) : i;
    return wf_rows[i->op].kind == WF_KIND_VIEW || wf_op_keeps_last((wf_op)i->op);
}

static bool needs_copy(const wf_fn *f, uint32_t k)
{
    return f->ins[k].op == WF_OP_AS_STRIDED && is_scattered(f, f->ins[k].src[0]);
}

int wf_pass_dense(wf_pass *p, const wf_fn *in, wf_fn **out, wf_why *why)
{
    uint32_t first = 0;
    (void)p; /* no rewrite to bisect: without it memory is read wrongly */
    while (first < in->n && !needs_copy(in, first)) {
        first++;
    }
    if (first == in->n) {
        return 0;
    }
    wf_build b;
    int rc = wf_build_begin(&b, in, 0);
    wf_val *map = calloc(in->n + 1u, sizeof *map);
    rc = rc || !map ? wf_fail(why, WEFT_ENOMEM, "out of memory") : 0;
    for (uint32_t k = 0; k < in->n && !rc; k++) {
        wf_val operand = 0, kept = 0;
        if (needs_copy(in, k)) {
            operand = in->ins[k].src[0];
            kept = map[operand];
            rc = wf_build_row(&b, WF_OP_COPY, NULL, 1, &kept, 0, &map[operand], why);
        }
        rc = rc ? rc : wf_build_copy(&b, in, k, map, why);
        map[operand] = kept;
    }
    for (uint32_t k = 0; k < in->noutputs && !rc; k++) {
        rc =
            wf_fn_output(b.f, map[in->outputs[k]]) ? wf_fail(why, WEFT_ENOMEM, "out of memory") : 0;
    }
    free(map);
    *out = wf_build_end(&b);
    return rc;
}
