/*
 * tests/fuzz/fuzz_graph_file.c -- hostile graph files: what is accepted can be shown and planned, and run where no value of the
 * function is large: a text may ask for any amount of work.
 */
#include <stdlib.h>
#include <string.h>

#include "io/graph.h"
#include "weft/weft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4096, MOST_OPS = 64, INPUTS = 64 };

/* Zeros for every input; symbols are 2, or what is nearest to it in their range. False: too large for a fuzzer. */
static bool make_inputs(const weft_graph *g, const int64_t *symbol, weft_tensor *x)
{
    for (int i = 0; i < weft_graph_inputs(g); i++) {
        wf_type t = *wf_fn_type(g->fn, g->fn->inputs[i]);
        double n = 1;
        wf_type_bind(g->fn, &t, symbol);
        for (int k = 0; k < t.rank; k++) {
            n *= (double)t.dims[k];
        }
        if (n > MOST) {
            return false;
        }
        x[i] = weft_zeros(weft_shape_from(t.rank, t.dims), (weft_dtype)t.dtype);
    }
    return true;
}

/* Few ops, none of whose results is large. */
static bool is_little_work(const weft_graph *g, const int64_t *symbol)
{
    wf_why why;
    wf_fn *f = wf_graph_bind(g->fn, symbol, &why);
    bool little = f && f->n <= MOST_OPS;
    for (uint32_t v = 1; little && v <= f->n; v++) {
        little = wf_type_numel(wf_fn_type(f, v)) <= MOST;
    }
    wf_fn_free(f);
    return little;
}

static void plan_and_run(weft_graph *g, FILE *null)
{
    int64_t symbol[WF_MAX_SYMBOLS] = {0};
    weft_tensor x[INPUTS], y[INPUTS];
    for (uint32_t k = 0; k < g->fn->nsymbols; k++) {
        symbol[k] = wf_range_from(g->fn->range[k], 2);
    }
    if (!make_inputs(g, symbol, x) || !is_little_work(g, symbol)) {
        return;
    }
    const int n = weft_graph_inputs(g);
    weft_graph_explain(g, x, n, null);
    if (weft_graph_run(g, x, n, y, weft_graph_outputs(g)) == WEFT_OK) {
        for (int i = 0; i < weft_graph_outputs(g); i++) {
            if (weft_fprint(null, y[i]) != WEFT_OK) {
                abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_scope scope = weft_scope_begin();
    weft_graph *g = weft_graph_decode(data, size);
    if (g) {
        FILE *null = fopen("/dev/null", "w");
        weft_graph_print(g, null);
        weft_graph_dot(g, null);
        weft_graph_svg(g, null);
        plan_and_run(g, null);
        fclose(null);
    }
    weft_graph_free(g);
    weft_scope_end(scope);
    return 0;
}
