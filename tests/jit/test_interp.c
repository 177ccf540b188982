/*
 * tests/jit/test_interp.c -- the reference interpreter against eager kernels: every row that is not
 * elementwise on chosen shapes, elementwise rows through random functions (tests/fuzz).
 */
#include <criterion/criterion.h>

#include "tests/jit/graph_support.h"
#include "tests/jit/random_graph.h"

static int rows_seen[WF_OP_COUNT];

/* One row on operands of its own, results compared. False: the row has no such form. */
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

Test(interp, every_row_has_the_bits_of_its_kernel)
{
    for (uint64_t seed = 0; seed < 6000; seed++) {
        wf_fn *f = random_row_function(seed);
        if (f) {
            check_fn(f, seed);
        }
        wf_fn_free(f);
    }
    for (uint64_t seed = 0; seed < 600; seed++) {
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
