/*
 * weft/table.h -- where a graph's or a traced function's time goes, launch by launch: fused against unfused, beside
 * what this machine can do at most. What `weft profile FILE --compare` prints, for programs.
 *
 *     weft_table *t = weft_table_new(.jit = step, .inputs = in, .n_inputs = 2);
 *     weft_table_print(t, stdout);                 or weft_table_at, row by row; weft_table_json
 *     weft_table_free(t);
 *
 * Both ways run in turns, on the calling thread and the pool, native kernels ready. Seconds are those of one run, means
 * over the same runs (the fastest eighth), so that they add up: rows + launching + call = whole, of each side. Bytes
 * and operations are counted from the IR, the limits of the machine measured by the same call, which takes half a
 * second for that.
 */
#ifndef WEFT_TABLE_H
#define WEFT_TABLE_H

#include <stdio.h>

#include "weft/graph.h"
#include "weft/jit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_table weft_table;

typedef struct weft_table_args {
    /* One of the two. A graph is run on the inputs. A traced function is called once, and the graphs that this call records
     * (more than one where it reads values) are run, on copies of what they write, before the call goes on: whatever it does
     * (an optimiser's step, draws, gradients), it does once, and its results are those of any call. It is recorded for this
     * even where calls are replayed or run the function itself. */
    weft_graph *graph;
    weft_jit *jit;
    const weft_tensor *inputs;
    int n_inputs;
    weft_tensor *outputs; /* of jit: receives what weft_jit_call would; NULL: they are dropped */
    int n_outputs;        /* of jit: default 1; -1: none */
    const char *name;     /* heads the table; default: the function's */
    int runs;             /* of each way, at most 1000000; default 30 */
    bool fused_only;      /* nothing is run op by op; what says unfused is 0 then */
    int end_;
} weft_table_args;
/* The caller's, until weft_table_free. NULL with an error recorded: WEFT_EINVALID (args NULL, neither or both of graph and jit,
 * runs below 0 or above 1000000, inside a trace), for inputs what weft_graph_run says of them (WEFT_EINVALID, WEFT_EHANDLE, WEFT_EDTYPE,
 * WEFT_ESHAPE), WEFT_EUNSUPPORTED (on a GPU, whose times weft_profile_begin has), WEFT_ENOMEM, a kernel's errors, the function's
 * own. If jit's call itself succeeds, outputs has its results also then. */
WEFT_API weft_table *weft_table_new(const weft_table_args *args);
WEFT_API void weft_table_free(weft_table *t); /* NULL is ignored */

/* One launch of the fused way. Strings live as long as the table. */
typedef struct weft_table_row {
    const char
        *name; /* "m_add_gelu__1f2e3d4c", "matmul", "matmul + m_add_gelu__1f2e3d4c", "copy" */
    const char *kernel;    /* the compiled one, as weft_kernels lists it; "" for none */
    const char *kind;      /* "map", "rows" (a group that reduces), "op", "copy" */
    const char *row;       /* the op, or the last one of a group */
    const char *ops;       /* all of them: "add mul x3 gelu" */
    const char *sites;     /* the lines that called them, the first few; "" where none is known */
    const char *not_fused; /* what it reads from other launches, with the reason; "" for nothing */
    int graph;             /* of a function that reads values: which of its graphs, from 0 */
    int instructions;
    int side_by_side; /* tensors that one launch does so much for */
    bool native;
    double seconds, unfused_seconds; /* unfused: of the same ops one by one */
    int64_t read_bytes, write_bytes, unfused_bytes;
    int64_t flops;
    double least_seconds; /* that this machine takes for these bytes or operations: the roofline */
    bool by_memory;       /* which of the two it is */
} weft_table_row;
/* Row i of weft_table_total.rows. False beyond them, and for NULL: *out is left as it is. */
WEFT_API bool weft_table_at(const weft_table *t, int i, weft_table_row *out);

/* All launches of one way. */
typedef struct weft_table_side {
    double whole;     /* seconds: kernels + launching + call */
    double kernels;   /* the launches */
    double launching; /* the rest of the plan's run */
    double call;      /* inputs checked, results given their memory */
    int64_t bytes, flops;
    int launches,
        fused_kernels; /* the second: launches that do more than one op; unfused there is none */
} weft_table_side;
/* What the machine does with so many bytes in all, in bytes a second: read only, half read and half written, written only. */
typedef struct weft_table_speed {
    double bytes, read, copy, fill;
} weft_table_speed;
typedef struct weft_table_total {
    const char *name;  /* lives as long as the table */
    int runs, fastest; /* so many of them count */
    bool compared;     /* not fused_only */
    int rows, graphs, ops;
    weft_table_side fused, unfused;
    double
        unfused_elsewhere; /* seconds of unfused launches that belong to no row: copies which fused ones do not need */
    int threads;
    double f32_flops, f64_flops; /* operations a second: multiply-adds in registers */
    int n_speeds;
    weft_table_speed speeds[9]; /* by ascending bytes */
} weft_table_total;
/* Zeros and the name "" for a table that is NULL. */
WEFT_API void weft_table_get_total(const weft_table *t, weft_table_total *out);

/* As text, two lines a row; as one JSON object. WEFT_EINVALID: the table or the file is NULL; WEFT_EIO: it could not be
 * written, JSON also because there was no memory for it. */
WEFT_API weft_status weft_table_print(const weft_table *t, FILE *out);
WEFT_API weft_status weft_table_json(const weft_table *t, FILE *out);

#ifdef __cplusplus
}
inline weft_table *weft_table_new(weft_graph *graph, weft_jit *jit, const weft_tensor *inputs,
                                  int n_inputs, weft_tensor *outputs = nullptr, int n_outputs = 0,
                                  const char *name = nullptr, int runs = 0, bool fused_only = false)
{
    weft_table_args a = {graph,     jit,  inputs, n_inputs,   outputs,
                         n_outputs, name, runs,   fused_only, 0};
    return weft_table_new(&a);
}
WEFT_BY_STRUCT_(weft_table *, weft_table_new, weft_table_args)
#endif

#define weft_table_new(...)                                                                        \
    WEFT_P_(weft_table, (weft_table_new)WEFT_ARGS_(weft_table_args, __VA_ARGS__))
#ifndef WEFT_NO_SITES
#define weft_table_print(...) WEFT_S_((weft_table_print)(__VA_ARGS__))
#define weft_table_json(...) WEFT_S_((weft_table_json)(__VA_ARGS__))
#endif

#endif
