/*
 * tests/jit/test_cuda_graphs.c -- random functions on the device, op by op and planned, against the host: bit for bit.
 * WEFT_TEST_GRAPHS says how many (script/gpu-check: 10000), WEFT_FUZZ_SEED the first seed.
 *
 * ctest: timeout=900
 */
#include "tests/jit/cuda_support.h"
#include "tests/jit/fuse_cases.h"
#include "tests/jit/graph_support.h"
#include "tests/jit/random_fn.h"
#include "tests/support/effort.h"
#include "weft/jit.h"

enum { FUNCTIONS = 300, PARTS = 3 };

static weft_status run_function(void *self, const weft_tensor *in, int n, weft_tensor *out,
                                int n_out)
{
    weft_tensor x[GRAPH_ARGS];
    (void)n_out;
    for (int k = 0; k < n; k++)
        x[k] = in[k];
    return wf_fn_run(self, x, NULL, out) ? WEFT_EUNSUPPORTED : WEFT_OK;
}

/* As graph_eager, on the device; planned: through a trace. */
static int on_device(wf_fn *f, void *const *in, void **out, bool planned)
{
    weft_tensor x[GRAPH_ARGS], y[GRAPH_ARGS];
    weft_scope sc = weft_scope_begin();
    for (uint32_t k = 0; k < f->ninputs; k++) {
        const wf_type *t = wf_fn_type(f, f->inputs[k]);
        x[k] =
            weft_to(weft_from_data(in[k], weft_shape_from(t->rank, t->dims), (weft_dtype)t->dtype),
                    WEFT_CUDA(0));
    }
    cr_assert_eq(weft_set_default_device(WEFT_CUDA(0)), WEFT_OK, "%s", weft_last_error());
    weft_jit *j = planned ? weft_jit_trace(run_function, f, .name = "random") : NULL;
    int rc = planned ? (int)weft_jit_call(j, x, (int)f->ninputs, y, (int)f->noutputs)
                     : (int)run_function(f, x, (int)f->ninputs, y, (int)f->noutputs);
    cr_assert_eq(weft_set_default_device(WEFT_CPU), WEFT_OK);
    for (uint32_t k = 0; k < f->noutputs; k++) {
        const wf_type *t = wf_fn_type(f, f->outputs[k]);
        const size_t bytes = (size_t)wf_type_numel(t) * wf_dtype_size(t->dtype);
        out[k] = rc ? NULL : calloc(1, bytes + 1);
        const weft_tensor h = rc ? WEFT_NONE : weft_contiguous(weft_to(y[k], WEFT_CPU));
        if (!rc) {
            cr_assert(weft_ok(h), "%s", weft_last_error());
            cr_assert_eq((size_t)weft_nbytes(h), bytes);
            if (bytes)
                memcpy(out[k], weft_data(h), bytes);
        }
    }
    weft_jit_free(j);
    weft_scope_end(sc);
    return rc;
}

/* On the host and on the device, op by op or planned: the same bits, or an error on both. */
static void check_function(wf_fn *f, const char *what, uint64_t seed, bool planned)
{
    void *in[GRAPH_ARGS] = {0}, *want[GRAPH_ARGS] = {0}, *got[GRAPH_ARGS] = {0};
    wf_why why = {0};
    graph_inputs(f, seed, in);
    weft_manual_seed(seed);
    const int status = graph_eager(f, in, want, &why);
    weft_manual_seed(seed);
    const int device = on_device(f, in, got, planned);
    cr_assert_eq(device != 0, status != 0, "%s, seed %d: %d, the host %d: %s", what, (int)seed,
                 device, status, weft_last_error());
    uint32_t k = 0;
    const int64_t at = status ? -1 : graph_difference(f, want, got, &k);
    if (at >= 0)
        wf_fn_print(f, stderr);
    cr_assert_eq(at, -1, "%s, seed %d: output %u differs at element %lld", what, (int)seed, k,
                 (long long)at);
    graph_free(in, f->ninputs);
    graph_free(want, f->noutputs);
    graph_free(got, f->noutputs);
}

static void check_functions(int part)
{
    const int first = (int)effort_option("WEFT_FUZZ_SEED", 0);
    const int end = first + (int)effort_option("WEFT_TEST_GRAPHS", FUNCTIONS);
    for (int seed = first + part; seed < end; seed += PARTS) {
        wf_fn *f = random_function_of((uint64_t)seed, 4 + seed % 8, seed % 7 == 0);
        check_function(f, "random function", (uint64_t)seed, seed % 4 != 0);
        wf_fn_free(f);
    }
}

static void check_cases(const fuse_case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        wf_why why = {0};
        wf_fn *f = wf_fn_parse(c[i].text, strlen(c[i].text), &why);
        cr_assert(f, "%s: %s", c[i].what, why.rule);
        check_function(f, c[i].what, i, true);
        wf_fn_free(f);
    }
}

Test(cuda_graphs, what_fuses)
{
    NEED_FIBERS();
    check_cases(fuse_shapes, sizeof fuse_shapes / sizeof *fuse_shapes);
    check_cases(fuse_rows, sizeof fuse_rows / sizeof *fuse_rows);
}

Test(cuda_graphs, random_functions_0)
{
    NEED_FIBERS();
    check_functions(0);
}
Test(cuda_graphs, random_functions_1)
{
    NEED_FIBERS();
    check_functions(1);
}
Test(cuda_graphs, random_functions_2)
{
    NEED_FIBERS();
    check_functions(2);
}

static int add_line;
static weft_status adds_rows(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)n, (void)n_out;
    add_line = __LINE__ + 1;
    out[0] = weft_index_add(*(weft_tensor *)self, 0, in[0], in[1]);
    return weft_error_status(out[0]);
}

/* A bad index of a planned row names the row's line, not that of the next eager op. */
Test(cuda_graphs, bad_indices_name_their_row)
{
    NEED_FIBERS();
    weft_scope sc = weft_scope_begin();
    weft_tensor table = weft_to(weft_ones(weft_shape(6, 4), WEFT_F32), WEFT_CUDA(0));
    weft_jit *j = weft_jit_trace(adds_rows, &table, .name = "adds_rows");
    for (int call = 0; call < 4; call++) {
        const bool bad = call % 2 == 1;
        const int64_t at[2] = {2, bad ? 77 : 1};
        weft_tensor in[2] = {weft_to(weft_from_data(at, weft_shape(2), WEFT_I64), WEFT_CUDA(0)),
                             weft_narrow(table, 0, 0, 2)};
        weft_tensor y;
        float got[24];
        char place[64];
        cr_assert_eq(weft_jit_call(j, in, 2, &y, 1), WEFT_OK, "%s", weft_last_error());
        const weft_tensor next = weft_add(table, table);
        cr_assert(weft_ok(next));
        const weft_status status = weft_to_array(y, got, 24, WEFT_F32);
        cr_assert_eq(status, bad ? WEFT_EINDEX : WEFT_OK, "call %d: %s", call, weft_last_error());
        snprintf(place, sizeof place, "test_cuda_graphs.c:%d; operands", add_line);
        cr_assert(!bad || strstr(weft_last_error(), place), "%s: %s", place, weft_last_error());
    }
    weft_jit_free(j);
    weft_scope_end(sc);
}
