/*
 * tests/fuzz/fuzz_graph_file.c -- hostile graph files: what is accepted can be shown and planned. Nothing is run: a text may ask for
 * any amount of work.
 */
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Zeros for every input; symbols are 2. False: too large for a fuzzer. */
static bool make_inputs(const weft_graph *g, weft_tensor *x)
{
    for (int i = 0; i < weft_graph_inputs(g); i++) {
        weft_graph_port p;
        if (weft_graph_input(g, i, &p) != WEFT_OK) {
            abort();
        }
        double n = 1;
        weft_shape s = weft_shape_from(p.rank, p.dims);
        for (int k = 0; k < p.rank; k++) {
            s.v[k] = s.v[k] < 0 ? 2 : s.v[k];
            n *= (double)s.v[k];
        }
        if (n > 4096) {
            return false;
        }
        x[i] = weft_zeros(s, p.dtype);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_scope scope = weft_scope_begin();
    weft_graph *g = weft_graph_decode(data, size);
    if (g) {
        weft_tensor x[64];
        FILE *null = fopen("/dev/null", "w");
        weft_graph_print(g, null);
        weft_graph_dot(g, null);
        weft_graph_svg(g, null);
        bool small = make_inputs(g, x);
        for (int i = 0; i < weft_graph_outputs(g); i++) {
            weft_graph_port p;
            double n = 1;
            weft_graph_output(g, i, &p);
            for (int k = 0; k < p.rank; k++) {
                n *= p.dims[k] < 0 ? 2 : (double)p.dims[k];
            }
            small = small && n <= 4096;
        }
        if (small) {
            weft_graph_explain(g, x, weft_graph_inputs(g), null);
        }
        fclose(null);
    }
    weft_graph_free(g);
    weft_scope_end(scope);
    return 0;
}
