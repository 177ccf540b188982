/*
 * weft/graph.h -- a function as a value: recorded once from example inputs, saved, loaded, run anywhere.
 *
 *     weft_graph *g = weft_jit_graph(forward, &model, &example, 1,
 *                                    .dims = (weft_graph_dim[]){{0, 0, "batch"}}, .n_dims = 1);
 *     weft_graph_save(g, "model.weft");            `weft run model.weft --input x.npy` on any machine
 *
 * What the function reads from outside (a model's parameters) becomes weights, under the names that the tensors
 * have. The file is a valid safetensors file: the weights, and the function as text in its metadata
 * (docs/graph-files.md). Loading maps the weights, checks everything and executes nothing.
 *
 * A graph is immutable; it may be run from many threads at once. Results are bit for bit those of the function, but for
 * fast math (.fast_math, which the file remembers, or WEFT_FAST_MATH=1). Random
 * numbers (dropout that trains, weft_rand) are those of the recording at every run.
 */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include <stdio.h>

#include "weft/jit.h"
#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_graph weft_graph;

/* An extent that may differ from run to run: axis (from 0) of an input. Axes of the same name are equal. */
typedef struct weft_graph_dim {
    int input, axis;
    /* Letters, digits and '_', not a digit first; at most 31. "seq<=64": no run may have more; the function is
     * recorded with sizes up to that, so what it takes of other tensors by this size (positions) need have no more.
     * "3<=seq", "3<=seq<=64": nor fewer. "seq%4==0", "3<=seq<=64, seq%4==0": multiples only, so that seq / 4 is an extent. A range
     * that the function's rows imply (3 where a kernel of 3 is laid on this axis), or below which the function returns an error,
     * is found, and so is what it wants multiples of (at most 1024): they are part of the graph. */
    const char *name;
} weft_graph_dim;

typedef struct weft_graph_args {
    /* Reads no values and writes to no tensor from outside; it may compute gradients (the caller's grad mode holds) and return
     * them. What it gives tensors from outside as gradients is taken back behind it. */
    weft_jit_fn fn;
    void *self;
    const weft_tensor *inputs; /* examples: element types and extents count, values do not */
    int n_inputs;
    int n_outputs;                   /* default 1 */
    const char *name;                /* letters, digits and '_', at most 63; default "f" */
    const char *const *input_names;  /* distinct; NULL: input_0, input_1, ... */
    const char *const *output_names; /* distinct; NULL: output_0, ... */
    const weft_graph_dim *
        dims; /* symbols; the function is then recorded again, with other sizes, up to seven times and once more for each of several symbols, and more often if it fails or an extent is of several symbols */
    int n_dims;
    bool
        fast_math; /* runs need not have the function's bits, as weft/jit.h says; saved with the graph */
    int end_;
} weft_graph_args;
/* NULL with an error recorded: fn's own; a read of any value, and a write to a tensor from outside (WEFT_EUNSUPPORTED,
 * whether or not fn looked at the status: a value read would be a constant of the graph); a size or number that depends on a symbol
 * in a way the graph cannot say (an extent can be a symbol times an integer plus an integer, as after x[1:], or over one that it is
 * a multiple of, and a sum of symbols, products of two of them and integers; so can a number, weft_f(n)); a function that does
 * something else, or reads other tensors from outside, at one of the sizes it is recorded with: the example's, one or two more,
 * all symbols 1, all 2, each of several 1 beside the example's sizes of the others, and one far above or the largest that a range
 * allows. A branch that none of these takes goes unseen, as does one at a size where fn fails.
 * Inputs, outputs and dims are at most 65536 each (WEFT_EINVALID), names of inputs distinct, and of outputs.
 * Of dims: WEFT_EINVALID (one that names no axis of an input, or one that has another name already; a name or range that is not
 * as above; more than 16 names), WEFT_ESHAPE (the example's extents of one name differ, or are outside its range),
 * WEFT_EUNSUPPORTED (ranges that leave no other sizes to record with). */
WEFT_API weft_graph *weft_jit_graph(const weft_graph_args *args);

/* path holds the old file or the new one, never a part. WEFT_EIO: it cannot be written. */
WEFT_API weft_status weft_graph_save(const weft_graph *g, const char *path);
/* A graph of the caller's, until weft_graph_free. NULL with an error recorded: WEFT_EIO (it cannot be read, is malformed, or of a
 * later version), WEFT_EINVALID (NULL), WEFT_ENOMEM. */
WEFT_API weft_graph *weft_graph_load(const char *path);
WEFT_API weft_graph *weft_graph_decode(const void *data, size_t size); /* memory is copied */
/* Results taken from g stay valid. NULL is ignored. No run of g may be in progress. */
WEFT_API void weft_graph_free(weft_graph *g);

/* Moves the weights to the device, where inputs are to be from then on. No run of g may be in progress. WEFT_EUNSUPPORTED, with
 * what is missing, if the device is not there; g stays where it is then. */
WEFT_API weft_status weft_graph_to(weft_graph *g, weft_device device);
/* Checks the inputs' types, binds symbols to their extents and runs. out receives new handles of the current
 * scope, or empty ones that carry the error; in and out may be one array. WEFT_EDTYPE, WEFT_ESHAPE (naming input, axis and
 * symbol; of a size out of a symbol's range, or no multiple, also the op that cannot have it), a kernel's errors. In a trace it
 * reads its inputs, which breaks the trace. */
WEFT_API weft_status weft_graph_run(weft_graph *g, const weft_tensor *in, int n_in,
                                    weft_tensor *out, int n_out);

/* An input or output. */
typedef struct weft_graph_port {
    const char *name; /* lives as long as g */
    weft_dtype dtype;
    int rank;
    int64_t dims[WEFT_MAX_RANK]; /* -1: a symbol */
    const char *symbols
        [WEFT_MAX_RANK]; /* its name, or NULL; of an output also "seq-1", "3*n/4+2", "n*m+1" */
} weft_graph_port;
/* How many there are; 0 for NULL. */
WEFT_API int weft_graph_inputs(const weft_graph *g);
WEFT_API int weft_graph_outputs(const weft_graph *g);
WEFT_API int weft_graph_weights(const weft_graph *g);
/* WEFT_EINVALID outside [0, count). */
WEFT_API weft_status weft_graph_input(const weft_graph *g, int i, weft_graph_port *out);
WEFT_API weft_status weft_graph_output(const weft_graph *g, int i, weft_graph_port *out);
WEFT_API weft_status weft_graph_weight(const weft_graph *g, int i, weft_graph_port *out);
/* "weft 0.1.0": what wrote the file, or this library. Lives as long as g; "" for NULL. */
WEFT_API const char *weft_graph_producer(const weft_graph *g);
/* Was it made with .fast_math? */
WEFT_API bool weft_graph_fast_math(const weft_graph *g);

/* The function as text, its symbols with their ranges ("3<=seq<=64, seq%4==0"); as a graph for Graphviz; as a picture (SVG).
 * WEFT_EINVALID: g or out is NULL; WEFT_EIO: it cannot be written; WEFT_ENOMEM. */
WEFT_API weft_status weft_graph_print(const weft_graph *g, FILE *out);
WEFT_API weft_status weft_graph_dot(const weft_graph *g, FILE *out);
WEFT_API weft_status weft_graph_svg(const weft_graph *g, FILE *out);
/* The symbols' sizes and ranges, and the steps that a run with these inputs takes: what is fused, and every edge that is not with
 * the reason. Nothing is run. Errors as weft_graph_run's; WEFT_EINVALID if out is NULL. */
WEFT_API weft_status weft_graph_explain(weft_graph *g, const weft_tensor *in, int n_in, FILE *out);

#ifdef __cplusplus
}
inline weft_graph *weft_jit_graph(weft_jit_fn fn, void *self, const weft_tensor *inputs,
                                  int n_inputs, int n_outputs = 1, const char *name = nullptr,
                                  const char *const *input_names = nullptr,
                                  const char *const *output_names = nullptr,
                                  const weft_graph_dim *dims = nullptr, int n_dims = 0,
                                  bool fast_math = false)
{
    weft_graph_args a = {fn,          self,         inputs, n_inputs, n_outputs, name,
                         input_names, output_names, dims,   n_dims,   fast_math, 0};
    return weft_jit_graph(&a);
}
WEFT_BY_STRUCT_(weft_graph *, weft_jit_graph, weft_graph_args)
#endif

#ifndef WEFT_NO_SITES
#define weft_graph_save(...) WEFT_S_((weft_graph_save)(__VA_ARGS__))
#define weft_graph_to(...) WEFT_S_((weft_graph_to)(__VA_ARGS__))
#define weft_graph_run(...) WEFT_S_(WEFT_R_((weft_graph_run)(__VA_ARGS__)))
#define weft_graph_explain(...) WEFT_S_((weft_graph_explain)(__VA_ARGS__))
#define weft_graph_load(...) WEFT_P_(weft_graph, (weft_graph_load)(__VA_ARGS__))
#define weft_graph_decode(...) WEFT_P_(weft_graph, (weft_graph_decode)(__VA_ARGS__))
#endif
#define weft_jit_graph(...)                                                                        \
    WEFT_P_(weft_graph, (weft_jit_graph)WEFT_ARGS_(weft_graph_args, __VA_ARGS__))

#endif
