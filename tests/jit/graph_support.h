/*
 * tests/jit/graph_support.h -- a function on operands: run by eager dispatch, by the reference
 * interpreter, before and after passes.
 */
#ifndef TESTS_JIT_GRAPH_SUPPORT_H
#define TESTS_JIT_GRAPH_SUPPORT_H

#include <stdlib.h>
#include <string.h>

#include "jit/passes/oracle.h"
#include "jit/passes/pass.h"
#include "jit/trace.h"
#include "tests/jit/values.h"
#include "weft/weft.h"

enum { GRAPH_ARGS = 64 };

/* Operands of f: special values, ordinary ones, small non-negative integers. Freed by graph_free. */
static inline void graph_inputs(const wf_fn *f, uint64_t seed, void **in)
{
    for (uint32_t k = 0; k < f->ninputs; k++) {
        const wf_type *t = wf_fn_type(f, f->inputs[k]);
        int64_t n = wf_type_numel(t);
        bool special = values_hash(seed + k) % 3 == 0;
        in[k] = special ? values_new(t->dtype, n, (int)k) : values_ordinary(t->dtype, n, (int)k);
        for (int64_t i = 0; t->dtype == WEFT_I64 && i < n; i++) {
            ((int64_t *)in[k])[i] = (int64_t)(values_hash((uint64_t)i + seed) % 3);
        }
    }
}

static inline void graph_free(void **a, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        free(a[k]);
        a[k] = NULL;
    }
}

/* f through dispatch, op by op; outputs as dense arrays. 0 or a status with why. */
static inline int graph_eager(const wf_fn *f, void *const *in, void **out, wf_why *why)
{
    weft_tensor x[GRAPH_ARGS], y[GRAPH_ARGS];
    weft_scope sc = weft_scope_begin();
    for (uint32_t k = 0; k < f->ninputs; k++) {
        const wf_type *t = wf_fn_type(f, f->inputs[k]);
        x[k] = weft_from_data(in[k], weft_shape_from(t->rank, t->dims), (weft_dtype)t->dtype);
    }
    int rc = wf_fn_run(f, x, NULL, y);
    for (uint32_t k = 0; k < f->noutputs; k++) {
        const wf_type *t = wf_fn_type(f, f->outputs[k]);
        size_t bytes = (size_t)wf_type_numel(t) * wf_dtype_size(t->dtype);
        out[k] = rc ? NULL : calloc(1, bytes + 1);
        weft_tensor d = rc ? WEFT_NONE : weft_contiguous(y[k]);
        if (!rc && ((size_t)weft_nbytes(d) != bytes || weft_dtype_of(d) != (weft_dtype)t->dtype)) {
            rc = wf_fail(why, WEFT_EINVALID, "output %u has %lld bytes, not %zu", k,
                         (long long)weft_nbytes(d), bytes);
        }
        if (!rc && bytes) {
            memcpy(out[k], weft_data(d), bytes);
        }
    }
    if (rc && !why->rule[0]) {
        wf_fail(why, rc, "%.200s", weft_last_error());
    }
    weft_scope_end(sc);
    return rc;
}

/* The first difference of two runs: output number in *k and its element, or -1. */
static inline int64_t graph_difference(const wf_fn *f, void *const *a, void *const *b, uint32_t *k)
{
    for (*k = 0; *k < f->noutputs; ++*k) {
        int64_t at = wf_oracle_difference(wf_fn_type(f, f->outputs[*k]), a[*k], b[*k]);
        if (at >= 0) {
            return at;
        }
    }
    return -1;
}

#endif
