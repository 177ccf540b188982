/*
 * tests/jit/test_identity.c -- what kernels are known by, on disk and in caches that go to another machine, against
 * tests/golden/identity.txt: it depends on what a kernel computes alone. Compilers evaluate arguments in different orders, so
 * this is to run in a build of each. WEFT_ACCEPT=1 rewrites the file: after a row computes otherwise, kernels are others.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/kernels_impl.h"
#include "jit/lower.h"
#include "jit/plan_int.h"
#include "tests/support/support.h"

static FILE *out;

static void put(const char *kind, const char *name, const wf_text *bytes)
{
    uint64_t h[2];
    cr_assert(!bytes->failed && bytes->n > 0, "%s %s: nothing to compare", kind, name);
    wf_hash128(bytes->s, bytes->n, h);
    fprintf(out, "%s %s %016" PRIx64 "%016" PRIx64 "\n", kind, name, h[0], h[1]);
}

/* -- elementwise rows: the body of every lane and that of ordinary ones, of all types -------------------------------------- */

static bool put_kernel(wf_text *t, wf_op op, int which, int dtype)
{
    const bool vjp = which >= 0;
    const wf_kind kind = (wf_kind)wf_rows[op].kind;
    const bool test = kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE;
    const int n = wf_rows[op].min_src + (vjp ? 2 : 0);
    uint8_t src[5];
    wf_kernel k;
    wf_why why = {0};
    memset(src, dtype, sizeof src);
    if (kind == WF_KIND_CHOOSE)
        src[vjp] = WEFT_BOOL;
    if (vjp ? !wf_kir_has_vjp(op, which, dtype) : !wf_kir_has_row(op, dtype))
        return false;
    cr_assert_eq(wf_kernel_of_row(&k, op, which, dtype, n, src, test ? WEFT_BOOL : dtype, &why), 0,
                 "%s: %s", wf_rows[op].name, why.rule);
    wf_lower_identity(&k, t);
    wf_kernel_free(&k);
    return true;
}

static void elementwise(void)
{
    static const char *const kinds[] = {"row", "vjp0", "vjp1", "vjp2"};
    for (int op = 0; op < (int)WF_OP_ELEMENTWISE; op++)
        for (int which = -1; which < 3; which++) {
            wf_text t = {0};
            bool any = false;
            for (int dtype = WEFT_BOOL; dtype < WEFT_DTYPE_COUNT; dtype++)
                any |= put_kernel(&t, (wf_op)op, which, dtype);
            if (any)
                put(kinds[which + 1], wf_rows[op].name, &t);
            wf_text_free(&t);
        }
}

/* -- rows that are compositions: their programs, and what a device makes of these --------------------------------------------- */

/* of: operands in order. x: [ROWS, COLUMNS], w: [COLUMNS], r: [ROWS], s: [ROWS], a statistic, t: [ROWS], class
 * indices. */
typedef struct composition {
    wf_op op;
    const char *of;
    double flt;
    int64_t dyn;
    uint8_t n_flt, n_dyn, flags;
} composition;

enum { ROWS = 6, COLUMNS = 50 };

static const composition compositions[] = {
    {.op = WF_OP_SUM, .of = "x"},
    {.op = WF_OP_MEAN, .of = "x"},
    {.op = WF_OP_PROD, .of = "x"},
    {.op = WF_OP_AMAX, .of = "x"},
    {.op = WF_OP_AMIN, .of = "x"},
    {.op = WF_OP_ANY, .of = "x"},
    {.op = WF_OP_ALL, .of = "x"},
    {.op = WF_OP_COUNT_NONZERO, .of = "x"},
    {.op = WF_OP_VAR, .of = "x", .flt = 1, .n_flt = 1},
    {.op = WF_OP_STD, .of = "x", .flt = 1, .n_flt = 1},
    {.op = WF_OP_NORM, .of = "x", .flt = 2, .n_flt = 1},
    {.op = WF_OP_LOGSUMEXP, .of = "x"},
    {.op = WF_OP_SOFTMAX, .of = "x"},
    {.op = WF_OP_LOG_SOFTMAX, .of = "x"},
    {.op = WF_OP_SOFTMAX_BWD, .of = "xx"},
    {.op = WF_OP_LOG_SOFTMAX_BWD, .of = "xx"},
    {.op = WF_OP_LAYER_NORM, .of = "x", .flt = 1e-5, .n_flt = 1},
    {.op = WF_OP_LAYER_NORM, .of = "xww", .flt = 1e-5, .n_flt = 1},
    {.op = WF_OP_RMS_NORM, .of = "xw", .flt = 1e-5, .n_flt = 1},
    {.op = WF_OP_CROSS_ENTROPY, .of = "xt", .dyn = -100, .n_dyn = 1, .n_flt = 1},
    {.op = WF_OP_CROSS_ENTROPY, .of = "xt", .dyn = -100, .flt = 0.125, .n_dyn = 1, .n_flt = 1},
    {.op = WF_OP_CROSS_ENTROPY_BWD, .of = "rxts", .dyn = 2, .flt = 0.125, .n_dyn = 1, .n_flt = 1},
};
enum { NCOMPOSITIONS = sizeof compositions / sizeof *compositions };

static wf_fn *function_of(const composition *c, int dtype)
{
    wf_fn *f = wf_fn_new("f");
    wf_val src[8], dst[WF_MAX_DST];
    wf_why why = {0};
    const int n = (int)strlen(c->of);
    const bool loss = c->op == WF_OP_CROSS_ENTROPY || c->op == WF_OP_CROSS_ENTROPY_BWD;
    const bool typed = c->op == WF_OP_SUM || c->op == WF_OP_MEAN || c->op == WF_OP_PROD;
    const int64_t axis = 1; /* of norms: how many */
    const wf_attr attr = {.ints = &axis,
                          .n_ints = !loss,
                          .flt = &c->flt,
                          .n_flt = c->n_flt,
                          .dyn = &c->dyn,
                          .n_dyn = c->n_dyn,
                          .dtype = typed ? (uint8_t)dtype : 0};
    cr_assert_not_null(f);
    for (int i = 0; i < n; i++) {
        const bool whole = c->of[i] == 'x';
        const int own = c->of[i] == 't'   ? (int)WEFT_I64
                        : c->of[i] == 's' ? wf_dtype_compute(dtype)
                                          : dtype;
        const wf_type t = {.dtype = (uint8_t)own,
                           .rank = whole ? 2 : 1,
                           .dims = {c->of[i] == 'w' ? COLUMNS : ROWS, whole ? COLUMNS : 0}};
        src[i] = wf_fn_input(f, &t);
    }
    cr_assert_eq(wf_fn_append(f, c->op, &attr, n, src, dst, NULL, &why), 0, "%s: %s",
                 wf_rows[c->op].name, why.rule);
    for (int i = 0; i < wf_rows[c->op].ndst; i++)
        cr_assert_eq(wf_fn_output(f, dst[i]), 0);
    return f;
}

/* Programs of its plan for a device, and what they are there and on the host. */
static void put_plan(wf_text *t, const wf_fn *f)
{
    wf_why why = {0};
    wf_plan *p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_DEVICE}, &why);
    cr_assert_not_null(p, "%s", why.rule);
    cr_assert_gt(p->nprograms, 0);
    for (uint32_t i = 0; i < p->nprograms; i++)
        for (int device = 0; device < 2; device++) {
            const wf_plan_program *x = &p->programs[i];
            wf_kernel k;
            wf_lower_key(x->program, x->one, t);
            cr_assert_eq(device ? wf_lower_device(x->program, &k, &why)
                                : wf_lower(x->program, x->one, &k, &why),
                         0, "%s", why.rule);
            wf_lower_identity(&k, t);
            wf_kernel_free(&k);
        }
    wf_plan_release(p);
}

static void composed(void)
{
    static const int dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F64};
    for (int i = 0; i < NCOMPOSITIONS; i++) {
        wf_text t = {0};
        char name[64];
        for (int d = 0; d < 3; d++) {
            wf_fn *f = function_of(&compositions[i], dtypes[d]);
            put_plan(&t, f);
            wf_fn_free(f);
        }
        snprintf(name, sizeof name, "%s(%s%s)", wf_rows[compositions[i].op].name,
                 compositions[i].of, compositions[i].flt == 0.125 ? ", smooth" : "");
        put("composition", name, &t);
        wf_text_free(&t);
    }
}

Test(identity, golden)
{
    static const char path[] = WEFT_SOURCE_DIR "/tests/golden/identity.txt";
    char *got = NULL;
    size_t size = 0;
    out = open_memstream(&got, &size);
    cr_assert_not_null(out);
    elementwise();
    composed();
    fclose(out);
    check_lines(path, got);
    free(got);
}
