/*
 * eager/cpu/dnnl.h -- oneDNN as a single-threaded back end: loading, primitive cache, execution.
 *
 * Invariants
 *  - libdnnl.so.2 is opened at the first use, never linked. Any reason not to use it (absent, other
 *    major version, a threading runtime that cannot be told to stay serial) is a text, not an error.
 *  - Every call into oneDNN happens between wf_dnnl_enter and wf_dnnl_leave, which set the calling
 *    thread's OpenMP thread count to 1 and put it back: no parallel region is ever opened.
 *  - Primitives are cached per thread: no lock on the way to a cached one, and oneDNN's own scratch
 *    memory, which belongs to the thread that made a primitive, is safe to use.
 */
#ifndef EAGER_CPU_DNNL_H
#define EAGER_CPU_DNNL_H

#include "eager/cpu/dnnl_api.h"
#include "eager/cpu/gemm_impl.h"

/* The library, or NULL if it is not to be used. */
const dnnl_functions *wf_dnnl(void);
/* "oneDNN 2.6.3", or why there is none. */
const char *wf_dnnl_name(void);
/* Opening is tried regardless of the back end chosen; this says which is in use. */
int wf_dnnl_active(void);

/* Whether it is in use with the kernels of AVX-512: their products of at most WF_GEMM_SLICE terms add in index order (f32;
 * bf16 likewise, in pairs), which the narrower ones of 2.6.3 do not. */
int wf_dnnl_in_order(void);

/* Serialises oneDNN on this thread; returns what leave needs. */
int wf_dnnl_enter(void);
void wf_dnnl_leave(int saved);

enum { WF_DNNL_KEY = 24, WF_DNNL_ARGS = 4 };

/* In a recipe: the bias, which oneDNN queries as the second of the weights. */
enum { WF_DNNL_QUERY_BIAS = -1 };

/* All that determines a primitive: what, then sizes and strides, the rest zero. */
typedef struct wf_dnnl_key {
    int64_t v[WF_DNNL_KEY];
} wf_dnnl_key;

/* Fills desc (a primitive descriptor) for the key and lists the arguments in the order in which
 * wf_dnnl_run takes their pointers: names of arguments, and what to query for their layout. */
typedef struct wf_dnnl_recipe {
    int (*describe)(const dnnl_functions *f, const wf_dnnl_key *key, dnnl_handle *desc);
    int count;
    int arg[WF_DNNL_ARGS];
    int query[WF_DNNL_ARGS];
} wf_dnnl_recipe;

typedef struct wf_dnnl_plan {
    wf_dnnl_key key;
    uint64_t used;
    dnnl_handle primitive; /* NULL: oneDNN has nothing good for this key */
    int count;
    dnnl_arg args[WF_DNNL_ARGS];
    void *data[WF_DNNL_ARGS];   /* what the arguments point at now */
    size_t bytes[WF_DNNL_ARGS]; /* of the arguments, as oneDNN lays them out */
} wf_dnnl_plan;

/* The cached plan, or a new one. NULL: out of memory. Valid until the thread's next call of this. */
wf_dnnl_plan *wf_dnnl_get(const wf_dnnl_key *key, const wf_dnnl_recipe *recipe);
/* How argument i is laid out; NULL if oneDNN does not say. */
const dnnl_md *wf_dnnl_layout(const wf_dnnl_plan *plan, int i);
/* Whether argument i is laid out alike in both. */
int wf_dnnl_same_layout(const wf_dnnl_plan *p, const wf_dnnl_plan *q, int i);
/* Runs it on the calling thread. WF_GEMM_UNSUPPORTED if plan->primitive is NULL. */
int wf_dnnl_run(wf_dnnl_plan *plan, void *const *data);

/* C := A * B of one block, or C += A * B; WF_GEMM_UNSUPPORTED when the built-in way should do it. */
int wf_dnnl_gemm(const wf_gemm_block *g);

/* The layout in which a bf16 product wants B packed: panels of `width` columns, each with `depth` rows
 * (k and zeros), as wf_gemm_kernels.panel makes them. width 0: another layout, or none. */
typedef struct wf_dnnl_panels {
    int64_t width, depth;
} wf_dnnl_panels;

/* For blocks of this description, whose b, b_rs and b_cs are not looked at. WF_GEMM_NOMEM or OK. */
int wf_dnnl_gemm_panels(const wf_gemm_block *g, wf_dnnl_panels *out);
/* C := A * B with B packed so. */
int wf_dnnl_gemm_packed(const wf_gemm_block *g);

/* Convolutions; WF_GEMM_UNSUPPORTED, with nothing written, when the built-in way should do it. */
int wf_dnnl_conv_forward(const wf_conv_desc *d, const void *src, const void *weight,
                         const void *bias, void *dst);
int wf_dnnl_conv_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                               void *dsrc);
/* Of bf16, WF_GEMM_UNSUPPORTED is also said after dweight was written, where an element of it is not finite. */
int wf_dnnl_conv_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                 void *dweight);

#endif
