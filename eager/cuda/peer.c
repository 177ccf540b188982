/*
 * eager/cuda/peer.c -- copies from one device to another, without waiting.
 *
 * The copy is queued on the current stream of the device that it goes to, behind an event on the other's, whose later work
 * comes behind an event after the copy: whoever reads or overwrites either side is ordered like behind any other work. Where
 * the two devices reach each other's memory the driver copies (over NVLink or PCIe); where they do not, or it refuses, the bytes
 * pass through pinned stages: out of the one stream, into the other, an event between each.
 */
#include "eager/cuda/pinned.h"
#include "eager/cuda/stage.h"
#include "eager/cuda/stream.h"
#include "eager/cuda/timeline.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { UNKNOWN, DIRECT, STAGED }; /* of wf_cuda_device.peer */
enum { REFUSED = -1 };

#define EACH(F)                                                                                    \
    F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7), F(8), F(9), F(10), F(11), F(12), F(13), F(14), \
        F(15)
#define FROM(i) "copy from cuda:" #i
#define TO(i) "copy to cuda:" #i
static const char *const copy_from[] = {EACH(FROM)}, *const copy_to[] = {EACH(TO)};
_Static_assert(sizeof copy_to / sizeof *copy_to == WF_CUDA_DEVICES, "a name each");
#undef EACH
#undef FROM
#undef TO

typedef struct way {
    wf_cuda_stream *from, *to;
    const char *label, *other_label; /* of the copy, on either stream */
} way;

/* Calls about s from here on. */
static int enter(const wf_cuda_stream *s, wf_why *why)
{
    return wf_cuda_check(s->device, wf_cu->context_set(s->device->context), "cuCtxSetCurrent", why);
}

/* s's next work comes behind all that is queued on `before`, a stream of another device, waits included. s is entered. */
static int follow(wf_cuda_stream *s, wf_cuda_stream *before, wf_why *why)
{
    int code = enter(before, why);
    if (code) {
        return code;
    }
    pthread_mutex_lock(&before->device->lock); /* the event is not recorded again meanwhile */
    const wf_cuda_point *p = wf_cuda_point_new(before, why);
    code = p ? enter(s, why) : wf_cuda_code(why);
    if (!code) {
        code = wf_cuda_check(s->device, wf_cu->stream_wait(s->handle, p->event, 0),
                             "cuStreamWaitEvent", why);
    }
    pthread_mutex_unlock(&before->device->lock);
    return code;
}

/* After a failure. */
static void wait_for(const wf_cuda_stream *s)
{
    WF_CUDA_COUNT(hidden_waits, 1);
    wf_cu->context_set(s->device->context);
    wf_cu->stream_synchronize(s->handle);
}

/* How copies from a to b go. b is current. */
static int find_way(wf_cuda_device *a, wf_cuda_device *b)
{
    _Atomic uint8_t *known = &b->peer[a->ordinal];
    int is = atomic_load_explicit(known, memory_order_relaxed);
    if (is == UNKNOWN) {
        int can = 0;
        bool asked = wf_cu->peer_can && wf_cu->peer_enable &&
                     wf_cu->peer_can(&can, b->id, a->id) == CU_OK && can;
        cu_result r = asked ? wf_cu->peer_enable(a->context, 0) : CU_NOT_SUPPORTED;
        is = r == CU_OK || r == CU_PEER_ALREADY_ENABLED ? DIRECT : STAGED;
        if (is ==
            DIRECT) { /* which says nothing of memory that is mapped: that is asked for by itself */
            pthread_mutex_lock(&a->lock);
            is = wf_cuda_let_reach(a, b) ? DIRECT : STAGED;
            pthread_mutex_unlock(&a->lock);
        }
        atomic_store_explicit(known, (uint8_t)is, memory_order_relaxed);
    }
    return is;
}

static bool is_refusal(cu_result r)
{
    return r == CU_PEER_UNSUPPORTED || r == CU_PEER_NOT_ENABLED || r == CU_NOT_SUPPORTED;
}

/* 0; REFUSED: the driver does not do it here, and nothing was queued; or a status. */
static int copy_directly(const way *w, cu_address dst, cu_address src, size_t n, wf_why *why)
{
    wf_cuda_device *a = w->from->device, *b = w->to->device;
    int code = follow(w->to, w->from, why);
    if (code || find_way(a, b) == STAGED) {
        return code ? code : REFUSED;
    }
    wf_cuda_time_begin(w->to);
    cu_result r = wf_cu->copy_peer(dst, b->context, src, a->context, n, w->to->handle);
    if (is_refusal(r)) {
        atomic_store_explicit(&b->peer[a->ordinal], STAGED, memory_order_relaxed);
        return REFUSED;
    }
    code = wf_cuda_check(b, r, "cuMemcpyPeerAsync", why);
    if (code) {
        return code;
    }
    wf_cuda_queued(w->to, w->label);
    code = follow(w->from, w->to, why);
    if (code) { /* what it reads may be written next */
        wait_for(w->to);
        return code;
    }
    wf_cuda_queued(w->from, w->other_label);
    return 0;
}

/* n bytes through the stage g, which nothing is on its way into then if it fails. */
static int copy_part(const way *w, wf_cuda_stage *g, cu_address dst, cu_address src, size_t n,
                     wf_why *why)
{
    int code = enter(w->from, why);
    if (code) {
        return code;
    }
    wf_cuda_time_begin(w->from);
    cu_result r = wf_cu->copy_out(g->host, src, n, w->from->handle);
    code = wf_cuda_check(w->from->device, r, "cuMemcpyDtoHAsync", why);
    if (code) {
        return code;
    }
    wf_cuda_queued(w->from, w->other_label);
    code = follow(w->to, w->from, why);
    if (!code) {
        wf_cuda_time_begin(w->to);
        r = wf_cu->copy_in(dst, g->host, n, w->to->handle);
        code = wf_cuda_check(w->to->device, r, "cuMemcpyHtoDAsync", why);
    }
    if (code) {
        wait_for(w->from);
        return code;
    }
    wf_cuda_queued(w->to, w->label);
    return 0;
}

static int copy_staged(const way *w, cu_address dst, cu_address src, size_t n, wf_why *why)
{
    int code = 0;
    for (size_t at = 0; at < n && !code; at += WF_CUDA_STAGE_BYTES) {
        size_t part = n - at < WF_CUDA_STAGE_BYTES ? n - at : WF_CUDA_STAGE_BYTES;
        code = enter(w->to, why);
        wf_cuda_stage *g = code ? NULL : wf_cuda_stage_take(w->to->device, why);
        if (!g) {
            return wf_cuda_code(why);
        }
        code = copy_part(w, g, dst + at, src + at, part, why);
        if (code) {
            wf_cuda_stage_free(w->to->device, g);
        } else {
            code = wf_cuda_stage_busy(w->to, g, why);
        }
    }
    return code;
}

static wf_cuda_stream *stream_of(int ordinal, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (s && s->capture) {
        wf_cuda_graph_refuse(s->capture, "a copy between devices", why);
        return NULL;
    }
    return s;
}

int wf_cuda_copy_across(int to, void *dst, int from, const void *src, size_t n, wf_why *why)
{
    way w = {.from = stream_of(from, why)};
    w.to = w.from ? stream_of(to, why) : NULL;
    if (!w.to) {
        return wf_cuda_code(why);
    }
    if (n == 0) {
        return 0;
    }
    w.label = copy_from[from];
    w.other_label = copy_to[to];
    WF_CUDA_COUNT(copies, 1);
    cu_address d = (cu_address)(uintptr_t)dst, s = (cu_address)(uintptr_t)src;
    int code = copy_directly(&w, d, s, n, why);
    code = code == REFUSED ? copy_staged(&w, d, s, n, why) : code;
    if (code && why && !why->hint[0]) {
        wf_hint(why, "by way of the host: weft_to(weft_to(x, WEFT_CPU), WEFT_CUDA(%d))", to);
    }
    return code;
}
