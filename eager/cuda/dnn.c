/*
 * eager/cuda/dnn.c -- opens cuDNN, describes convolutions to it, remembers which algorithm it chose.
 *
 * A plan a shape (plans.h), kept with the device. dnn_attention.c is the other part that uses the library.
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

enum { MOST_PLANS = 1024, CHOICES = 8 };
#define MOST_WORKSPACE ((size_t)1 << 30)

typedef struct key {
    int64_t x[4], w[4], y[4], x_strides[4], y_strides[4], stride[2], pad[2], dilation[2], groups;
    int32_t what, dtype;
} key;

typedef struct plan {
    wf_cuda_plan base;
    key key;
    dnn_handle x, w, y, conv;
    dnn_choice choice;
} plan;
_Static_assert(offsetof(plan, key) == sizeof(wf_cuda_plan), "plans.h");

static struct {
#define F(field, symbol, params) int(*field) params;
    DNN_FUNCTIONS(F)
#undef F
    size_t (*version)(void);
} dnn;
static dnn_graph_calls graphs;
static bool loaded, has_graphs;
static size_t version;
static char name[320];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int64_t plans_made;

/* -- the library -------------------------------------------------------------------------------------- */

static void load_once(void)
{
    static const char *const names[] = {"libcudnn.so.9"};
    void *library = wf_cuda_library_open(wf_env()->WEFT_CUDNN, names, 1);
    const char *absent = library ? NULL : "cuDNN 9 is not found";
#define F(field, symbol, params)                                                                   \
    if (!absent && !wf_cuda_library_symbol(library, symbol, &dnn.field)) {                         \
        absent = symbol " is missing in cuDNN";                                                    \
    }
    DNN_FUNCTIONS(F)
#undef F
    if (!absent && !wf_cuda_library_symbol(library, "cudnnGetVersion", &dnn.version)) {
        absent = "cudnnGetVersion is missing in cuDNN";
    }
    loaded = has_graphs = !absent;
#define F(field, symbol, params)                                                                   \
    has_graphs = has_graphs && wf_cuda_library_symbol(library, symbol, &graphs.field);
    DNN_GRAPH_FUNCTIONS(F)
#undef F
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
    return has_graphs ? &graphs : NULL;
}

int wf_cuda_dnn_stream(wf_cuda_dnn *b, wf_cuda_stream *s)
{
    return dnn.set_stream(b->lib, s->handle);
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
    wf_cuda_device *d = wf_cuda_enter(ordinal, &ignored);
    return d && wf_cuda_dnn_open(d);
}

/* -- plans -------------------------------------------------------------------------------------------- */

static void drop_plan(wf_cuda_plan *base)
{
    const plan *p = (const plan *)base;
    if (p->x) {
        dnn.tensor_destroy(p->x);
    }
    if (p->y) {
        dnn.tensor_destroy(p->y);
    }
    if (p->w) {
        dnn.filter_destroy(p->w);
    }
    if (p->conv) {
        dnn.conv_destroy(p->conv);
    }
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

static key key_of(const wf_cuda_conv *c)
{
    key k = {.groups = c->groups, .what = c->what, .dtype = c->dtype};
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

/* int[4] of int64_t[4], which are known to fit. */
static void narrow(int *out, const int64_t *from, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] = (int)from[i];
    }
}

static bool tensor(dnn_handle *out, int type, const int64_t *dims, const int64_t *strides)
{
    int d[4], s[4];
    narrow(d, dims, 4);
    narrow(s, strides, 4);
    return dnn.tensor_create(out) == DNN_OK && dnn.tensor_set(*out, type, 4, d, s) == DNN_OK;
}

static bool describe(plan *p)
{
    const key *k = &p->key;
    int type = type_of(k->dtype), w[4], pad[2], stride[2], dilation[2];
    narrow(w, k->w, 4);
    narrow(pad, k->pad, 2);
    narrow(stride, k->stride, 2);
    narrow(dilation, k->dilation, 2);
    bool exact = k->dtype == WEFT_F32 && !wf_env()->WEFT_TF32;
    return tensor(&p->x, type, k->x, k->x_strides) && tensor(&p->y, type, k->y, k->y_strides) &&
           dnn.filter_create(&p->w) == DNN_OK &&
           dnn.filter_set(p->w, type, DNN_NCHW, 4, w) == DNN_OK &&
           dnn.conv_create(&p->conv) == DNN_OK &&
           dnn.conv_set(p->conv, 2, pad, stride, dilation, DNN_CROSS_CORRELATION,
                        k->dtype == WEFT_F64 ? DNN_F64 : DNN_F32) == DNN_OK &&
           dnn.conv_groups(p->conv, (int)k->groups) == DNN_OK &&
           dnn.conv_math(p->conv, exact ? DNN_MATH_FMA : DNN_MATH_DEFAULT) == DNN_OK;
}

/* The library's best among those that are the same every time. */
static bool choose(const wf_cuda_dnn *b, plan *p)
{
    dnn_choice found[CHOICES];
    int n = 0, r;
    memset(found, 0, sizeof found);
    if (p->key.what == WF_CUDA_CONV_FORWARD) {
        r = dnn.forward_choose(b->lib, p->x, p->w, p->conv, p->y, CHOICES, &n, found);
    } else if (p->key.what == WF_CUDA_CONV_DX) {
        r = dnn.dx_choose(b->lib, p->w, p->y, p->conv, p->x, CHOICES, &n, found);
    } else {
        r = dnn.dw_choose(b->lib, p->x, p->y, p->conv, p->w, CHOICES, &n, found);
    }
    bool exact = p->key.dtype == WEFT_F32 && !wf_env()->WEFT_TF32;
    for (int i = 0; r == DNN_OK && i < n && i < CHOICES; i++) {
        const dnn_choice *c = &found[i];
        if (c->status == DNN_OK && c->determinism == DNN_DETERMINISTIC &&
            c->memory <= MOST_WORKSPACE &&
            (!exact || c->math == DNN_MATH_FMA || c->math == DNN_MATH_DEFAULT)) {
            p->choice = *c; /* one of default math runs by the descriptor's, which is FMA then */
            return dnn.conv_math(p->conv, exact ? DNN_MATH_FMA : c->math) == DNN_OK;
        }
    }
    return false;
}

/* -- running ------------------------------------------------------------------------------------------ */

typedef struct request {
    wf_cuda_dnn *b;
    const wf_cuda_conv *c;
} request;

/* Lock of b held, as in the next one. */
static bool make(wf_cuda_plan *base, const void *arg)
{
    const request *q = arg;
    plan *p = (plan *)base;
    const bool ok = describe(p) && choose(q->b, p);
    p->base.workspace = p->choice.memory;
    return ok;
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
    const request *q = arg;
    const plan *p = (const plan *)base;
    const wf_cuda_conv *c = q->c;
    wf_cuda_dnn *b = q->b;
    const double one64 = 1, zero64 = 0;
    const float one32 = 1, zero32 = 0;
    bool wide = c->dtype == WEFT_F64;
    const void *one = wide ? (const void *)&one64 : &one32;
    const void *zero = wide ? (const void *)&zero64 : &zero32;
    size_t size = p->choice.memory;
    int r = wf_cuda_dnn_stream(b, s);
    if (r != DNN_OK) {
        return r;
    }
    if (c->what == WF_CUDA_CONV_FORWARD) {
        return dnn.forward(b->lib, one, p->x, c->x_data, p->w, c->w_data, p->conv, p->choice.algo,
                           workspace, size, c->add ? one : zero, p->y, c->y_data);
    }
    return c->what == WF_CUDA_CONV_DX
               ? dnn.dx(b->lib, one, p->w, c->w_data, p->y, c->y_data, p->conv, p->choice.algo,
                        workspace, size, zero, p->x, c->x_data)
               : dnn.dw(b->lib, one, p->x, c->x_data, p->y, c->y_data, p->conv, p->choice.algo,
                        workspace, size, zero, p->w, c->w_data);
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
