/*
 * eager/cuda/dnn.c -- opens cuDNN; convolutions as its graphs, and which engine it named for each.
 *
 * A plan a shape (plans.h), kept with the device, since a captured graph may hold its code; after MOST_PLANS shapes our own
 * kernel takes new ones. Naming an engine takes a millisecond; only those of half types in groups are compiled first (half a
 * second). dnn_attention.c is the other part that uses the library.
 */
#include "eager/cuda/dnn.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/dnn_impl.h"
#include "eager/cuda/library.h"
#include "eager/env.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { MOST_PLANS = 4096, X = 1, W, Y };
#define MOST_WORKSPACE ((size_t)1 << 30)

typedef struct key {
    int64_t x[4], w[4], y[4], x_strides[4], y_strides[4], stride[2], pad[2], dilation[2], groups;
    int16_t what, add;
    int32_t dtype;
} key;

typedef struct plan {
    wf_cuda_plan base;
    key key;
    wf_dnn_graph graph;
    dnn_handle plan;
} plan;
_Static_assert(offsetof(plan, key) == sizeof(wf_cuda_plan), "plans.h");

static struct {
#define F(field, symbol, params) int(*field) params;
    DNN_FUNCTIONS(F)
#undef F
    size_t (*version)(void);
} dnn;
static dnn_graph_calls graphs;
static bool loaded;
static size_t version;
static char name[320];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int64_t plans_made;

/* -- the library -------------------------------------------------------------------------------------- */

static void load_once(void)
{
    static const char *const names[] = {"libcudnn.so.9"};
    char why[WF_CUDA_WHY];
    void *library = wf_cuda_library_open(wf_env()->WEFT_CUDNN, "cuDNN 9", names, 1, why);
    const char *absent = library ? NULL : why;
#define F(field, symbol, params)                                                                   \
    if (!absent && !wf_cuda_library_symbol(library, symbol, &dnn.field)) {                         \
        absent = symbol " is missing in cuDNN";                                                    \
    }
    DNN_FUNCTIONS(F)
#undef F
#define F(field, symbol, params)                                                                   \
    if (!absent && !wf_cuda_library_symbol(library, symbol, &graphs.field)) {                      \
        absent = symbol " is missing in cuDNN";                                                    \
    }
    DNN_GRAPH_FUNCTIONS(F)
#undef F
    if (!absent && !wf_cuda_library_symbol(library, "cudnnGetVersion", &dnn.version)) {
        absent = "cudnnGetVersion is missing in cuDNN";
    }
    loaded = !absent;
    size_t v = version = loaded ? dnn.version() : 0;
    if (loaded) {
        snprintf(name, sizeof name, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    } else {
        snprintf(name, sizeof name, "%s", absent);
    }
}

const char *wf_cuda_conv_name(void)
{
    pthread_once(&once, load_once);
    return name;
}

bool wf_cuda_conv_is_open(void)
{
    pthread_once(&once, load_once);
    return loaded;
}

int64_t wf_cuda_conv_plans(void)
{
    return atomic_load(&plans_made);
}

size_t wf_cuda_dnn_version(void)
{
    return version;
}

const dnn_graph_calls *wf_cuda_dnn_graphs(void)
{
    return &graphs;
}

int wf_cuda_dnn_stream(wf_cuda_dnn *b, wf_cuda_stream *s)
{
    if (b->stream == s->handle) {
        return DNN_OK;
    }
    const int r = dnn.set_stream(b->lib, s->handle);
    b->stream = r == DNN_OK ? s->handle : NULL;
    return r;
}

bool wf_cuda_dnn_unsupported(int status)
{
    return status / 1000 == DNN_NOT_SUPPORTED / 1000;
}

static void drop_plan(wf_cuda_plan *base);

wf_cuda_dnn *wf_cuda_dnn_open(wf_cuda_device *d)
{
    pthread_once(&once, load_once);
    if (!loaded) {
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    wf_cuda_dnn *b = d->dnn;
    if (!b && !d->dnn_failed) {
        wf_cu->context_set(d->context);
        b = wf_calloc(1, sizeof *b);
        if (b && dnn.create(&b->lib) != DNN_OK) {
            d->dnn_failed = true;
            wf_mfree(b);
            b = NULL;
        }
        if (b) {
            pthread_mutex_init(&b->lock, NULL);
            b->convs = (wf_cuda_plans){.lock = &b->lock,
                                       .size = sizeof(plan),
                                       .key_size = sizeof(key),
                                       .drop = drop_plan,
                                       .most = MOST_PLANS,
                                       .keep = true,
                                       .made = &plans_made};
            wf_cuda_sdpa_init(b);
            d->dnn = b;
        }
    }
    pthread_mutex_unlock(&d->lock);
    return b;
}

bool wf_cuda_conv_there(int ordinal)
{
    wf_why ignored = {0};
    wf_cuda_device *d = wf_cuda_reach(ordinal, &ignored);
    return d && wf_cuda_dnn_open(d);
}

/* -- plans -------------------------------------------------------------------------------------------- */

static void drop_plan(wf_cuda_plan *base)
{
    wf_dnn_graph_drop(&((plan *)base)->graph);
}

void wf_cuda_dnn_close(wf_cuda_device *d)
{
    wf_cuda_dnn *b = d->dnn;
    if (b) {
        wf_cuda_plans_drop(&b->convs);
        wf_cuda_plans_drop(&b->graphs);
        dnn.destroy(b->lib);
        pthread_mutex_destroy(&b->lock);
        wf_mfree(b);
        d->dnn = NULL;
    }
    d->dnn_failed = false;
}

static bool adds(const wf_cuda_conv *c)
{
    return c->add && c->what == WF_CUDA_CONV_FORWARD;
}

static key key_of(const wf_cuda_conv *c)
{
    key k = {.groups = c->groups, .dtype = c->dtype};
    k.what = (int16_t)c->what;
    k.add = adds(c);
    memcpy(k.x, c->x, sizeof k.x);
    memcpy(k.w, c->w, sizeof k.w);
    memcpy(k.y, c->y, sizeof k.y);
    memcpy(k.x_strides, c->x_strides, sizeof k.x_strides);
    memcpy(k.y_strides, c->y_strides, sizeof k.y_strides);
    memcpy(k.stride, c->stride, sizeof k.stride);
    memcpy(k.pad, c->pad, sizeof k.pad);
    memcpy(k.dilation, c->dilation, sizeof k.dilation);
    return k;
}

static int type_of(int dtype)
{
    return dtype == WEFT_F64    ? DNN_F64
           : dtype == WEFT_F16  ? DNN_F16
           : dtype == WEFT_BF16 ? DNN_BF16
                                : DNN_F32;
}

static dnn_handle tensor(wf_dnn_graph *g, int id, int type, const int64_t *dims,
                         const int64_t *strides)
{
    wf_dnn_shape s;
    memcpy(s.dims, dims, sizeof s.dims);
    memcpy(s.strides, strides, sizeof s.strides);
    return wf_dnn_tensor(g, id, type, &s);
}

void wf_cuda_conv_graph(wf_dnn_graph *g, const wf_cuda_conv *c)
{
    const int type = type_of(c->dtype);
    const int64_t *w = c->w, dense[4] = {w[1] * w[2] * w[3], w[2] * w[3], w[3], 1};
    wf_dnn_convolution how = {.kind = c->what == WF_CUDA_CONV_FORWARD ? DNN_OP_CONV_FORWARD
                                      : c->what == WF_CUDA_CONV_DX    ? DNN_OP_CONV_DX
                                                                      : DNN_OP_CONV_DW,
                              .add = adds(c),
                              .wide = c->dtype == WEFT_F64,
                              .pad = c->pad,
                              .stride = c->stride,
                              .dilation = c->dilation};
    g->never = 1u << DNN_NOTE_NARROW_SUMS;
    if (c->dtype == WEFT_F32 && !wf_env()->WEFT_TF32) {
        g->never |= 1u << DNN_NOTE_TENSOR_CORE | 1u << DNN_NOTE_NARROWS;
    }
    how.x = tensor(g, X, type, c->x, c->x_strides);
    how.w = tensor(g, W, type, w, dense);
    how.y = tensor(g, Y, type, c->y, c->y_strides);
    wf_dnn_convolve(g, &how);
}

/* -- running ------------------------------------------------------------------------------------------ */

typedef struct request {
    wf_cuda_dnn *b;
    const wf_cuda_conv *c;
} request;

/* Lock of b held, as in the next one. */
static bool make(wf_cuda_plan *base, const void *arg, size_t most)
{
    const request *q = arg;
    plan *p = (plan *)base;
    p->graph.calls = wf_cuda_dnn_graphs();
    wf_cuda_conv_graph(&p->graph, q->c);
    if (p->graph.status == DNN_OK) {
        p->plan = wf_dnn_choose(&p->graph, q->b->lib, NULL,
                                most < MOST_WORKSPACE ? most : MOST_WORKSPACE, &p->base.workspace);
    }
    return p->plan != NULL;
}

static bool fits(const int64_t *v, int n, int64_t least)
{
    for (int i = 0; i < n; i++) {
        if (v[i] < least || v[i] > INT32_MAX) {
            return false;
        }
    }
    return true;
}

static bool supported(const wf_cuda_conv *c)
{
    bool type = c->dtype == WEFT_F32 || c->dtype == WEFT_F64 || c->dtype == WEFT_F16 ||
                c->dtype == WEFT_BF16;
    return type && fits(c->x, 4, 1) && fits(c->w, 4, 1) && fits(c->y, 4, 1) &&
           fits(c->x_strides, 4, 1) && fits(c->y_strides, 4, 1) && fits(c->stride, 2, 1) &&
           fits(c->pad, 2, 0) && fits(c->dilation, 2, 1) && fits(&c->groups, 1, 1) &&
           wf_cuda_conv_lies(c->x_data) && wf_cuda_conv_lies(c->w_data) &&
           wf_cuda_conv_lies(c->y_data);
}

static int call(wf_cuda_plan *base, const void *arg, void *workspace, wf_cuda_stream *s)
{
    static const int64_t ids[] = {X, W, Y};
    const request *q = arg;
    const plan *p = (const plan *)base;
    void *const pointers[] = {q->c->x_data, q->c->w_data, q->c->y_data};
    const int r = wf_cuda_dnn_stream(q->b, s);
    return r != DNN_OK
               ? r
               : wf_dnn_execute(p->graph.calls, q->b->lib, p->plan, 3, ids, pointers, workspace);
}

int wf_cuda_conv_run(int ordinal, const wf_cuda_conv *c, wf_why *why)
{
    if (!supported(c)) {
        return wf_cuda_not_here(why);
    }
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    wf_cuda_dnn *b = wf_cuda_dnn_open(d);
    const key k = key_of(c);
    const wf_cuda_ask ask = {.what = "cuDNN convolution",
                             .remedy = "WEFT_CUDNN=none goes another way",
                             .key = &k,
                             .arg = &(request){b, c},
                             .make = make,
                             .call = call,
                             .refuses = wf_cuda_dnn_unsupported};
    return b ? wf_cuda_plans_run(&b->convs, &ask, s, why) : wf_cuda_not_here(why);
}
