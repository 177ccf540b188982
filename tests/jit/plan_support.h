/*
 * tests/jit/plan_support.h -- running a function as a plan and op by op, and comparing the bits.
 */
#ifndef TESTS_JIT_PLAN_SUPPORT_H
#define TESTS_JIT_PLAN_SUPPORT_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/tensor.h"
#include "jit/plan.h"
#include "jit/trace.h"
#include "tests/jit/values.h"
#include "tests/support/effort.h"
#include "weft/weft.h"

static inline wf_fn *plan_parse(const char *text)
{
    wf_why why = {0};
    wf_fn *f = wf_fn_parse(text, strlen(text), &why);
    cr_assert_not_null(f, "%s: %s\n%s", why.rule, why.hint, text);
    return f;
}

/* Input k of f: special and ordinary values; indices below 3 where the type is an integer. */
static inline weft_tensor plan_input(const wf_fn *f, uint32_t k)
{
    const wf_type *t = wf_fn_type(f, f->inputs[k]);
    int64_t n = wf_type_numel(t);
    weft_shape shape = weft_shape_from(t->rank, t->dims);
    void *v = k % 3 == 2 ? values_new(t->dtype, n, (int)k) : values_ordinary(t->dtype, n, (int)k);
    if (t->dtype == WEFT_I64) {
        for (int64_t i = 0; i < n; i++) {
            ((int64_t *)v)[i] = (int64_t)(values_hash((uint64_t)i) % 3);
        }
    }
    weft_tensor x = weft_from_data(v, shape, (weft_dtype)t->dtype);
    free(v);
    cr_assert_neq(x.slot, 0u, "%s", weft_last_error());
    return x;
}

static inline void plan_view(weft_tensor x, wf_view *v)
{
    bool pinned;
    wf_ctx *c = wf_ctx_get();
    wf_slot *s = wf_pin(c, x, &pinned, NULL);
    cr_assert_not_null(s);
    wf_slot_view(s, v);
    if (pinned) {
        wf_unpin(c, s);
    }
}

/* Index of the first element that differs, or -1. */
static inline int64_t plan_difference(const wf_view *a, const void *got)
{
    size_t size = wf_dtype_size(a->dtype);
    int64_t n = wf_view_numel(a);
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = 0, y = 0;
        memcpy(&x, (const char *)a->data + (size_t)i * size, size);
        memcpy(&y, (const char *)got + (size_t)i * size, size);
        bool flt = a->dtype == WEFT_F16 || a->dtype == WEFT_BF16 || a->dtype == WEFT_F32 ||
                   a->dtype == WEFT_F64;
        if (flt ? !values_same(x, y, a->dtype) : x != y) {
            return i;
        }
    }
    return -1;
}

enum { PLAN_ARGS = 64 };

/* f as a plan gives the bits of f op by op, at 1, 2, 3 and 7 threads. */
static inline void plan_check(const wf_fn *f, unsigned flags, wf_plan_info *info)
{
    static const int threads[] = {1, 2, 3, 7};
    weft_tensor in[PLAN_ARGS], out[PLAN_ARGS];
    wf_view iv[PLAN_ARGS], want[PLAN_ARGS];
    wf_why why = {0};
    cr_assert(f->ninputs <= PLAN_ARGS && f->noutputs <= PLAN_ARGS);
    weft_scope sc = weft_scope_begin();
    for (uint32_t k = 0; k < f->ninputs; k++) {
        in[k] = plan_input(f, k);
        plan_view(in[k], &iv[k]);
    }
    int rc = wf_fn_run(f, in, NULL, out);
    cr_assert_eq(rc, 0, "%s", weft_last_error());
    for (uint32_t k = 0; k < f->noutputs; k++) {
        out[k] = weft_contiguous(out[k]);
        plan_view(out[k], &want[k]);
    }
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = flags}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    wf_plan_info memory;
    wf_plan_get_info(p, &memory);
    cr_expect((double)memory.peak_bytes <= 1.1 * (double)memory.bound_bytes,
              "%lld bytes, %lld live", (long long)memory.peak_bytes, (long long)memory.bound_bytes);
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t += EFFORT_THREAD_STEP) {
        wf_view got[PLAN_ARGS];
        memset(got, 0, sizeof got);
        wf_plan_args a = {.fn = f, .in = iv, .out = got};
        weft_set_num_threads(threads[t]);
        rc = wf_plan_run(p, &a, &why);
        cr_assert_eq(rc, 0, "%s", why.rule);
        for (uint32_t k = 0; k < f->noutputs; k++) {
            int64_t at = plan_difference(&want[k], got[k].data);
            if (at >= 0) {
                char *text = wf_fn_text(f);
                wf_plan_explain(p, stderr);
                cr_assert_fail("output %u differs at %lld, %d threads\n%s", k, (long long)at,
                               threads[t], text);
            }
            wf_free(got[k].data, (size_t)wf_view_numel(&got[k]) * wf_dtype_size(got[k].dtype));
        }
    }
    weft_set_num_threads(1);
    if (info) {
        wf_plan_get_info(p, info);
    }
    wf_plan_release(p);
    weft_scope_end(sc);
}

static inline wf_plan_info plan_check_text(const char *text)
{
    wf_plan_info info;
    wf_fn *f = plan_parse(text);
    plan_check(f, WF_PLAN_NO_FUSE | WF_PLAN_TIER0, NULL);
    plan_check(f, WF_PLAN_TIER0, NULL);
    plan_check(f, WF_PLAN_SYNC, &info);
    wf_fn_free(f);
    return info;
}

#endif
