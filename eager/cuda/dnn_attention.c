/*
 * eager/cuda/dnn_attention.c -- which attention goes to cuDNN, its plans, a run of one.
 *
 * A plan is a graph (dnn_sdpa.c) and the engine that the library named for it. Engines are compiled when they are planned
 * (half a second, once per shape; the plan is then kept on disk with its code, from where it comes in milliseconds), and their code lives as long as the plan; captured graphs may hold it, so plans stay until
 * the device is closed. After MOST_PLANS shapes the built-in kernel takes all further ones: which way a shape goes never
 * changes, so that equal calls give equal bits.
 */
#include "eager/cuda/dnn_attention.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/dnn_impl.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { MOST_PLANS = 256, MOST_WIDTH = 128, MOST_POINTERS = WF_CUDA_SDPA_ONE };
#define MOST_WORKSPACE ((size_t)1 << 32)

typedef struct key {
    int64_t batch, heads, l, s, width, value_width;
    int64_t strides[WF_CUDA_SDPA_TENSORS][4];
    int32_t dtype, flags;
} key;

typedef struct plan {
    wf_cuda_plan base;
    key key;
    wf_dnn_graph graph;
    dnn_handle plan;
    size_t inside; /* of the workspace: the library's, then delta */
} plan;
_Static_assert(offsetof(plan, key) == sizeof(wf_cuda_plan), "plans.h");

static _Atomic int64_t plans_made;

int64_t wf_cuda_sdpa_plans(void)
{
    return atomic_load(&plans_made);
}

static void drop_plan(wf_cuda_plan *base)
{
    wf_dnn_graph_drop(&((plan *)base)->graph);
}

void wf_cuda_sdpa_init(wf_cuda_dnn *b)
{
    b->graphs = (wf_cuda_plans){.lock = &b->lock,
                                .size = sizeof(plan),
                                .key_size = sizeof(key),
                                .drop = drop_plan,
                                .most = MOST_PLANS,
                                .keep = true,
                                .made = &plans_made};
}

/* -- what is taken ------------------------------------------------------------------------------------ */

/* Releases with faults in attention, and shapes that a release gets wrong, after NVIDIA's own front end. */
static bool is_sound(const wf_cuda_sdpa *a, size_t version)
{
    const bool broken = version == 91000 || version == 91001;
    const bool ragged = a->backward && a->s % 128 != 0 && version <= 91500;
    const bool single =
        a->backward ? a->l == 1 && a->s == 1 : a->l == 1 && a->causal && version <= 90900;
    return !broken && !ragged && !single;
}

static bool supported(const wf_cuda_sdpa *a)
{
    const int64_t sizes[] = {a->batch, a->heads, a->l, a->s, a->width, a->value_width};
    bool ok = a->dtype == WEFT_F16 || a->dtype == WEFT_BF16;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ok &= sizes[i] > 0 && sizes[i] <= INT32_MAX;
    }
    return ok && a->width % 8 == 0 && a->value_width % 8 == 0 && a->width <= MOST_WIDTH &&
           a->value_width <= MOST_WIDTH;
}

/* NULL: not taken. */
static wf_cuda_dnn *open_for(wf_cuda_device *d, const wf_cuda_sdpa *a)
{
    wf_cuda_dnn *b = supported(a) && d->info.major >= 8 ? wf_cuda_dnn_open(d) : NULL;
    return b && is_sound(a, wf_cuda_dnn_version()) ? b : NULL;
}

bool wf_cuda_sdpa_takes(int ordinal, const wf_cuda_sdpa *a)
{
    wf_why ignored = {0};
    wf_cuda_device *d = wf_cuda_reach(ordinal, &ignored);
    return d && open_for(d, a);
}

/* -- running ------------------------------------------------------------------------------------------ */

typedef struct request {
    wf_cuda_dnn *b;
    const wf_cuda_info *info;
    const key *key;
    const wf_cuda_sdpa *a;
} request;

static key key_of(const wf_cuda_sdpa *a)
{
    key k = {.batch = a->batch,
             .heads = a->heads,
             .l = a->l,
             .s = a->s,
             .width = a->width,
             .value_width = a->value_width,
             .dtype = a->dtype,
             .flags = a->backward + 2 * a->causal};
    memcpy(k.strides, a->strides, sizeof k.strides);
    return k;
}

/* What a kept plan depends on; the number is that of how engines are chosen. */
typedef struct identity {
    char text[256];
    key key;
} identity;

static void identify(identity *id, const request *q)
{
    const wf_cuda_info *i = q->info;
    memset(id, 0, sizeof *id);
    snprintf(id->text, sizeof id->text, "cuDNN attention 1, %zu, %s, %d processors, driver %d, %s",
             wf_cuda_dnn_version(), i->arch, i->processors, i->driver, i->name);
    id->key = *q->key;
}

/* Of an earlier process. */
static bool restore(plan *p, const request *q, const identity *id)
{
    const wf_cuda_store *s = wf_cuda_get_store();
    size_t n = 0;
    void *text = s ? s->get(id, sizeof *id, &n) : NULL;
    if (text) {
        p->plan = wf_dnn_restore(&p->graph, q->b->lib, NULL, text, n, MOST_WORKSPACE, &p->inside);
        free(text);
    }
    return p->plan != NULL;
}

/* Of the library, which takes its time; for later processes, too, where there is room for the best. */
static void choose(plan *p, const request *q, const identity *id, size_t most)
{
    const wf_cuda_store *s = most == MOST_WORKSPACE ? wf_cuda_get_store() : NULL;
    size_t n = 0;
    wf_cuda_sdpa_graph(&p->graph, q->a);
    if (p->graph.status == DNN_OK) {
        p->plan = wf_dnn_choose(&p->graph, q->b->lib, NULL, most, &p->inside);
    }
    char *text = p->plan && s ? wf_dnn_save(p->graph.calls, p->plan, &n) : NULL;
    if (text) {
        s->put(id, sizeof *id, text, n);
        wf_mfree(text);
    }
}

static bool make(wf_cuda_plan *base, const void *arg, size_t most)
{
    const request *q = arg;
    plan *p = (plan *)base;
    identity id;
    identify(&id, q);
    p->graph.calls = wf_cuda_dnn_graphs();
    if (most < MOST_WORKSPACE || !restore(p, q, &id)) {
        choose(p, q, &id, most < MOST_WORKSPACE ? most : MOST_WORKSPACE);
    }
    if (!p->plan) {
        wf_dnn_graph_drop(&p->graph);
        return false;
    }
    p->inside = (p->inside + 255) / 256 * 256;
    const size_t rows = (size_t)(q->a->batch * q->a->heads * q->a->l);
    p->base.workspace = p->inside + (q->a->backward ? rows * sizeof(float) : 0);
    return true;
}

static int call(wf_cuda_plan *base, const void *arg, void *workspace, wf_cuda_stream *s)
{
    const request *q = arg;
    const wf_cuda_sdpa *a = q->a;
    const plan *p = (const plan *)base;
    float scale = a->scale, one = 1;
    /* what older releases want for "never" */
    float never = wf_cuda_dnn_version() < 91000 ? -3.402823466e38F : -INFINITY;
    int64_t ids[MOST_POINTERS];
    void *pointers[MOST_POINTERS];
    int n = 0;
#define GIVE(id, pointer) (ids[n] = (id), pointers[n++] = (pointer))
    for (int i = 0; i < WF_CUDA_SDPA_TENSORS; i++) {
        if (i <= WF_CUDA_SDPA_O || a->backward) {
            GIVE(1 + i, a->data[i]);
        }
    }
    GIVE(WF_CUDA_SDPA_LSE, a->lse);
    GIVE(WF_CUDA_SDPA_SCALE, &scale);
    if (a->causal) {
        GIVE(WF_CUDA_SDPA_NEVER, &never);
    }
    if (a->backward) {
        GIVE(WF_CUDA_SDPA_DELTA, (char *)workspace + p->inside);
        GIVE(WF_CUDA_SDPA_ONE, &one);
    }
#undef GIVE
    const int r = wf_cuda_dnn_stream(q->b, s);
    return r != DNN_OK ? r
                       : wf_dnn_execute(p->graph.calls, q->b->lib, p->plan, n, ids, pointers,
                                        p->inside ? workspace : NULL);
}

int wf_cuda_sdpa_run(int ordinal, const wf_cuda_sdpa *a, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    wf_cuda_dnn *b = open_for(d, a);
    const key k = key_of(a);
    const wf_cuda_ask ask = {.what = a->backward ? "cuDNN attention gradient" : "cuDNN attention",
                             .remedy = "WEFT_CUDNN=none uses the built-in kernels",
                             .key = &k,
                             .arg = &(request){b, &d->info, &k, a},
                             .make = make,
                             .call = call,
                             .refuses = wf_cuda_dnn_unsupported};
    return b ? wf_cuda_plans_run(&b->graphs, &ask, s, why) : wf_cuda_not_here(why);
}
