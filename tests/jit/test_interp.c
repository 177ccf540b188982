/*
 * tests/jit/test_interp.c -- the reference interpreter against eager kernels: elementwise rows and their
 * derivatives in every type, random calls of all others.
 */
#include <criterion/criterion.h>

#include "jit/ir/kir.h"
#include "tests/jit/graph_support.h"
#include "tests/jit/random_graph.h"
#include "tests/support/effort.h"

static int rows_seen[WF_OP_COUNT];

/* Both ways give one status, and the same bits. */
static void check_fn(const wf_fn *f, uint64_t seed)
{
    static wf_interp *m;
    void *in[GRAPH_ARGS], *want[GRAPH_ARGS], *got[GRAPH_ARGS];
    wf_why why = {0};
    uint32_t k;
    m = m ? m : wf_interp_new(wf_oracle_primitive);
    graph_inputs(f, seed, in);
    int rc = graph_eager(f, in, want, &why);
    char *text = wf_fn_text(f);
    wf_why why2 = {0};
    int rc2 = wf_interp_run(m, f, NULL, (const void *const *)in, got, &why2);
    cr_assert_eq(rc, rc2, "eager %d %s, interpreter %d %s\n%s", rc, why.rule, rc2, why2.rule, text);
    if (!rc) {
        int64_t at = graph_difference(f, want, got, &k);
        cr_expect(at < 0, "output %u differs at %lld\n%s", k, (long long)at, text);
        graph_free(want, f->noutputs);
        graph_free(got, f->noutputs);
        for (uint32_t i = 0; i < f->n; i++) {
            rows_seen[f->ins[i].op]++;
        }
    }
    free(text);
    graph_free(in, f->ninputs);
}

/* An elementwise row on operands of one type, one of them broadcast; with its derivatives. */
static void check_elementwise(wf_op op, int dtype)
{
    wf_fn *f = wf_fn_new("row");
    wf_type wide = {.dtype = (uint8_t)dtype, .rank = 2, .dims = {37, 40}}, narrow = wide;
    narrow.dims[0] = 1;
    wf_val s[5] = {0, wf_fn_input(f, &wide), wf_fn_input(f, &narrow), wf_fn_input(f, &wide)}, y[1];
    const wf_row *row = &wf_rows[op];
    wf_why why;
    int n = row->min_src;
    if (row->kind == WF_KIND_CHOOSE) {
        wf_type truth = wide;
        truth.dtype = WEFT_BOOL;
        s[3] = s[2];
        s[2] = s[1];
        s[1] = wf_fn_input(f, &truth);
    }
    if (wf_fn_append(f, op, NULL, n, s + 1, y, NULL, &why) == 0) {
        wf_fn_output(f, y[0]);
        for (int which = 0; which < n && wf_dtype_kind(dtype) == 2; which++) {
            int64_t ints[2] = {op, which};
            wf_attr a = {.ints = ints, .n_ints = 2, .dyn = wide.dims, .n_dyn = 2};
            a.dtype = (uint8_t)dtype;
            s[0] = s[1];
            s[n + 1] = y[0];
            wf_val d;
            if (wf_kir_has_vjp(op, which, wf_dtype_compute(dtype)) &&
                wf_fn_append(f, WF_OP_VJP, &a, n + 2, s, &d, NULL, &why) == 0) {
                wf_fn_output(f, d);
            }
        }
        check_fn(f, 3 * op);
    }
    wf_fn_free(f);
}

Test(interp, every_row_has_the_bits_of_its_kernel)
{
    for (int op = WF_OP_RESULT + 1; op < WF_OP_COUNT; op++) {
        for (int dt = WEFT_BOOL; dt < WEFT_DTYPE_COUNT && wf_op_is_elementwise((wf_op)op); dt++) {
            check_elementwise((wf_op)op, dt);
        }
    }
    for (uint64_t seed = 0; seed < effort_of(6000); seed++) {
        wf_fn *f = random_row_function(seed);
        if (f) {
            check_fn(f, seed);
        }
        wf_fn_free(f);
    }
    for (uint64_t seed = 0; seed < effort_of(300); seed++) {
        wf_fn *f = random_function(seed, 12);
        check_fn(f, seed);
        wf_fn_free(f);
    }
    int missing = 0;
    for (int op = WF_OP_RESULT + 1; op < WF_OP_COUNT; op++) {
        if (!rows_seen[op]) {
            cr_log_warn("%s was never run\n", wf_rows[op].name);
            missing++;
        }
    }
    cr_expect_eq(missing, 0, "%d rows were never run", missing);
}
