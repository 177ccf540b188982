/*
 * eager/cuda/graph.c -- captured graphs: work recorded on a stream of its own, launched on any.
 *
 * During a capture nothing is done, so nothing is ordered: wf_cuda_use only notes which blocks take part.
 * A launch then uses them all, as one op of its stream. Blocks from outside are held by the graph, so that
 * a launch never meets memory that is somebody else's by then. Blocks made inside come from a pool of the
 * graph's own, which hands freed ones to later work of the same capture and to nobody else; those that
 * outlive the capture are its results.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/graph.h"
#include "eager/cuda/stage.h"
#include "eager/cuda/timeline.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

int wf_cuda_graph_key(const wf_cuda_graph *g)
{
    return WF_CUDA_STREAMS + g->slot;
}

int wf_cuda_graph_refuse(wf_cuda_graph *g, const char *what, wf_why *why)
{
    wf_why local = {0};
    wf_fail(&local, WEFT_EUNSUPPORTED, "%s cannot be part of a captured graph of cuda:%d", what,
            g->device->ordinal);
    wf_hint(&local, "do it before or after the capture");
    if (!g->failed.code) {
        g->failed = local;
    }
    if (why) {
        *why = local;
    }
    return local.code;
}

/* Where b is among the parts; -1: it is not. */
static int find_part(const wf_cuda_graph *g, wf_cuda_block *b)
{
    int hint = wf_cuda_block_part(b)->index;
    if (hint < g->n && g->parts[hint].block == b) {
        return hint;
    }
    for (int i = 0; i < g->n; i++) {
        if (g->parts[i].block == b) {
            return i;
        }
    }
    return -1;
}

int wf_cuda_graph_use(wf_cuda_graph *g, wf_cuda_block *b, bool write, wf_why *why)
{
    int i = find_part(g, b);
    if (i >= 0) {
        g->parts[i].write |= write;
        wf_cuda_block_part(b)->index = i;
        return 0;
    }
    if (g->n == g->room) {
        int room = g->room ? 2 * g->room : 32;
        wf_cuda_graph_part *more = wf_realloc(g->parts, (size_t)room * sizeof *more);
        if (!more) {
            wf_fail(&g->failed, WEFT_ENOMEM, "no host memory for a graph");
            return wf_fail(why, WEFT_ENOMEM, "no host memory for a graph");
        }
        g->parts = more;
        g->room = room;
    }
    wf_cuda_part *p = wf_cuda_block_part(b);
    bool inside = p->graph == g;
    if (!inside) {
        wf_cuda_retain(b);
    }
    p->index = g->n;
    g->parts[g->n++] = (wf_cuda_graph_part){b, write, inside};
    return 0;
}

void wf_cuda_graph_forget(wf_cuda_block *b)
{
    wf_cuda_graph *g = wf_cuda_block_part(b)->graph;
    int i = g ? find_part(g, b) : -1;
    if (i >= 0) {
        g->parts[i] = g->parts[--g->n];
        wf_cuda_block_part(g->parts[i].block)->index = i;
    }
}

/* Lock held. A pool that no graph uses and nothing lives in. */
static int take_slot(wf_cuda_device *d)
{
    for (int i = 0; i < WF_CUDA_GRAPHS; i++) {
        if (!d->graph_pool[i] && !d->graph_live[i]) {
            d->graph_pool[i] = true;
            return i;
        }
    }
    return -1;
}

static wf_cuda_graph *make(wf_cuda_device *d, wf_why *why)
{
    wf_cuda_graph *g = wf_calloc(1, sizeof *g);
    if (!g) {
        wf_fail(why, WEFT_ENOMEM, "no host memory for a graph");
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    g->slot = take_slot(d);
    pthread_mutex_unlock(&d->lock);
    if (g->slot < 0) {
        wf_mfree(g);
        wf_fail(why, WEFT_EUNSUPPORTED, "cuda:%d has %d captured graphs, the most there can be",
                d->ordinal, WF_CUDA_GRAPHS);
        return NULL;
    }
    g->device = d;
    return g;
}

/* Has an event behind all that was ever queued on s: one of the time of the capture would belong to it, and so would
 * streams of other threads that wait for it. */
static int mark_before(wf_cuda_stream *s, wf_why *why)
{
    wf_cuda_stage_leave(s);
    pthread_mutex_lock(&s->device->lock);
    int code = wf_cuda_point_of(s, s->work, why) ? 0 : wf_cuda_code(why);
    pthread_mutex_unlock(&s->device->lock);
    return code;
}

int wf_cuda_capture_begin(int ordinal, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *before = d ? wf_cuda_current(d, why) : NULL;
    if (!before) {
        return wf_cuda_code(why);
    }
    if (before->capture) {
        return wf_fail(why, WEFT_EINVALID, "this thread is recording a graph of cuda:%d already",
                       ordinal);
    }
    if (!wf_cu->has_graphs) {
        return wf_fail(why, WEFT_EUNSUPPORTED, "the CUDA driver cannot capture graphs");
    }
    wf_cuda_graph *g = make(d, why);
    wf_cuda_stream *s = g ? wf_cuda_stream_for(d, g, why) : NULL;
    int code = s && !mark_before(s, why)
                   ? wf_cuda_check(d, wf_cu->capture_begin(s->handle, CU_CAPTURE_RELAXED),
                                   "cuStreamBeginCapture", why)
                   : wf_cuda_code(why);
    if (code) {
        if (s) {
            wf_cuda_stream_give(s);
        }
        wf_cuda_graph_free(g);
        return code;
    }
    g->before = before->slot ? before : NULL;
    g->before_serial = atomic_load(&before->serial);
    wf_cuda_set_current(d, s);
    return 0;
}

/* The driver's graph made ready to be launched. */
static int instantiate(wf_cuda_graph *g, cu_handle recorded, wf_why *why)
{
    wf_cuda_device *d = g->device;
    int code = wf_cuda_check(d, wf_cu->graph_instantiate(&g->exec, recorded, 0),
                             "cuGraphInstantiate", why);
    if (code) {
        g->exec = NULL;
    }
    return code;
}

int wf_cuda_capture_end(int ordinal, bool drop, wf_cuda_graph **out, wf_why *why)
{
    *out = NULL;
    wf_cuda_device *d = wf_cuda_peek(ordinal);
    if (!d || !wf_cuda_capturing(ordinal)) {
        return wf_fail(why, WEFT_EINVALID, "this thread records no graph of cuda:%d", ordinal);
    }
    wf_cuda_stream *s = wf_cuda_current(d, why);
    wf_cuda_graph *g = s->capture;
    cu_handle recorded = NULL;
    wf_cu->context_set(d->context);
    cu_result r = wf_cu->capture_end(s->handle, &recorded);
    pthread_mutex_lock(&d->lock);
    s->capture = NULL;
    pthread_mutex_unlock(&d->lock);
    bool same = g->before && atomic_load(&g->before->serial) == g->before_serial;
    wf_cuda_set_current(d, same ? g->before : NULL);
    wf_cuda_stream_give(s);
    int code = g->failed.code;
    if (code && why && !drop) {
        *why = g->failed;
    }
    if (!code && !drop) {
        code = wf_cuda_check(d, r, "cuStreamEndCapture", why);
        code = code ? code : instantiate(g, recorded, why);
    }
    if (!code && !drop && g->n_marks) {
        g->recorded = recorded;
    } else if (r == CU_OK && recorded) {
        wf_cu->graph_destroy(recorded);
    }
    if (code || drop) {
        wf_cuda_graph_free(g);
        return drop ? 0 : code;
    }
    *out = g;
    return 0;
}

/* Launches share the pool's memory: each comes behind the one before. The first comes behind everything,
 * since the pool may have been another graph's. */
static int order_launch(wf_cuda_graph *g, wf_cuda_stream *s, wf_why *why)
{
    wf_cuda_device *d = g->device;
    int code = 0;
    pthread_mutex_lock(&d->lock);
    uint64_t op = wf_cuda_op_begin(s);
    if (g->last) {
        code = wf_cuda_order(s, g->last, g->last_op, why);
    }
    for (int i = 0; !g->last && i < d->n_streams && !code; i++) {
        wf_cuda_stream *other = &d->streams[i];
        code = wf_cuda_order_work(s, other, other->work, why);
    }
    g->last = s;
    g->last_op = op;
    if (g->checks && !code) {
        wf_cuda_words_launch(d, g, s, op, false);
    }
    pthread_mutex_unlock(&d->lock);
    return code;
}

int wf_cuda_graph_launch(wf_cuda_graph *g, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(g->device->ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    if (s->capture) {
        return wf_cuda_graph_refuse(s->capture, "a graph", why);
    }
    for (int i = 0; i < g->n; i++) {
        int code = wf_cuda_use(g->parts[i].block, g->parts[i].write || g->parts[i].inside, why);
        if (code) {
            return code;
        }
    }
    int code = order_launch(g, s, why);
    wf_cuda_time_begin(s);
    code = code ? code
                : wf_cuda_check(d, wf_cu->graph_launch(g->exec, s->handle), "cuGraphLaunch", why);
    if (!code) {
        wf_cuda_launched(s, "captured graph");
    }
    if (g->checks) {
        pthread_mutex_lock(&d->lock);
        wf_cuda_words_launch(d, g, s, g->last_op, true);
        pthread_mutex_unlock(&d->lock);
    }
    return code;
}

void wf_cuda_graph_free(wf_cuda_graph *g)
{
    if (!g) {
        return;
    }
    wf_cuda_device *d = g->device;
    wf_cu->context_set(d->context);
    if (g->exec) {
        wf_cu->graph_exec_destroy(g->exec);
    }
    if (g->recorded) {
        wf_cu->graph_destroy(g->recorded);
    }
    pthread_mutex_lock(&d->lock);
    d->graph_pool[g->slot] = false; /* its free memory may go when memory is short */
    wf_cuda_words_release(d, g, g->last);
    for (int i = 0; i < g->n; i++) {
        if (g->parts[i].inside) {
            wf_cuda_block_part(g->parts[i].block)->graph = NULL;
        }
    }
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < g->n; i++) {
        if (!g->parts[i].inside) {
            wf_cuda_free(g->parts[i].block);
        }
    }
    wf_mfree(g->parts);
    wf_mfree(g->marks);
    wf_mfree(g);
}
