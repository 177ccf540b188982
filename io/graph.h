/*
 * io/graph.h -- a graph as its files see it: graph_build.c (recording), graph_names.c, graph_bind.c (sizes for symbols), graph.c (running), graph_file.c
 * (files), graph_show.c (pictures).
 *
 * Invariant: inputs of fn are the graph's inputs in order, then its weights in order.
 */
#ifndef IO_GRAPH_H
#define IO_GRAPH_H

#include <pthread.h>

#include "eager/api.h"
#include "jit/plan.h"
#include "weft/graph.h"

enum { WF_GRAPH_PLANS = 8 };

/* What runs for one binding of the symbols. */
typedef struct wf_graph_plan {
    int64_t sizes[WF_MAX_SYMBOLS];
    unsigned flags; /* WF_PLAN_* */
    uint64_t used;
    wf_fn *fn; /* without symbols; g->fn itself if that has none */
    wf_plan *plan;
    int holds; /* runs in progress, under g's lock */
} wf_graph_plan;

struct weft_graph {
    wf_fn *fn;
    int n_inputs, n_weights, n_outputs;
    char **names;         /* of inputs, weights, outputs; each malloc'ed */
    weft_tensor *weights; /* kept; row-major */
    char *extents;        /* texts of outputs' extents that are computed, each of WF_EXTENT_TEXT */
    size_t *extents_of;   /* how many of them are of the outputs before each */
    char producer[64];
    bool fast_math;
    pthread_mutex_t lock;
    uint64_t clock;
    wf_graph_plan *plans[WF_GRAPH_PLANS];
    int latest; /* the one that was used last */
};

/* Takes over fn (also on failure, when it returns NULL with an error of op recorded); names are copied later by
 * the caller into the array this allocates. */
weft_graph *wf_graph_new(const char *op, wf_fn *fn, int n_inputs, int n_outputs);
/* Names the ports of what a recording captured, inputs and then weights. 0, or an error recorded. */
int wf_graph_name(weft_graph *g, const weft_graph_args *a, const weft_tensor *captured);
/* May an input, a weight or an output be called that? It is short, without spaces and control characters, and safetensors has no
 * other use for it. */
bool wf_graph_good_name(const char *s);
/* The names are in the array: the text of the function shows them at its inputs. */
void wf_graph_note_names(weft_graph *g);

/* Type and extents of x, a scalar too; false: it is not alive. */
bool wf_graph_type_of(wf_ctx *c, weft_tensor x, wf_type *t);
/* A tensor of that type in memory that nobody has written, which *data is the address of. Empty: why says so. */
weft_tensor wf_graph_memory(wf_ctx *c, const wf_type *type, int device, void **data, wf_why *why);

/* Where g runs: where its weights are, else the inputs, as many as it has. */
int wf_graph_device(const weft_graph *g, const weft_tensor *in);

/* How long a run's plan took, and its steps (NULL, or room for as many as the plan has; added to), in ns. */
typedef struct wf_graph_times {
    int64_t plan;
    int64_t *steps;
} wf_graph_times;
/* weft_graph_run with a plan of these WF_PLAN_* flags; times may be NULL. */
weft_status wf_graph_run(weft_graph *g, unsigned flags, const weft_tensor *in, int n_in,
                         weft_tensor *out, int n_out, wf_graph_times *times);
/* The plan of these flags that inputs like these run on, retained; NULL with an error recorded. */
wf_plan *wf_graph_plan_of(weft_graph *g, unsigned flags, const weft_tensor *in, int n_in);

/* Inputs, outputs and named extents, each, have at most so many: memory is taken by need, and this bounds what a file can ask for. */
enum { WF_SYMBOL_NAME = 32, WF_GRAPH_PORTS = 65536 };

/* Symbols of a function that is recorded more than once: at.size[i][k] is that of symbol k in recording i, of which the first is the
 * example's. */
typedef struct wf_graph_symbols {
    int n;
    char name[WF_MAX_SYMBOLS][WF_SYMBOL_NAME];
    wf_range range[WF_MAX_SYMBOLS];
    wf_points at;
    int failed;        /* at which of these the function failed; 0: at none */
    int *of;           /* the symbol of each extent that was named */
    int *first, *next; /* those of an input, a list that ends in -1; in the memory of `of` */
} wf_graph_symbols;

/* f with its symbols replaced by sizes. NULL with why filled. */
wf_fn *wf_graph_bind(const wf_fn *f, const int64_t *sizes, wf_why *why);
/* The first recording with symbols where its extents differ from those of the others. Of two recordings only symbols themselves can be
 * told, of WF_POINTS_APART what is of one symbol, of all of s->at what is of several. NULL with why filled; *untold: more might tell. */
wf_fn *wf_graph_unify(const wf_fn *const *recording, int n, const wf_graph_symbols *s, bool *untold,
                      wf_why *why);

#endif
