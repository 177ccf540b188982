/*
 * eager/live.c -- which tensors hold memory: for reports of memory that could not be had (eager/report.h).
 *
 * Seen are the tensors of this thread's scopes and the kept ones of all threads, each pinned while it is
 * looked at; what only the tape or a compiled plan holds has no handle and is not seen. Several tensors on
 * one storage count once.
 */
#include <string.h>

#include "eager/report.h"
#include "eager/tensor.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

typedef struct top_list {
    wf_ctx *me;
    int device, n, most;
    const wf_storage *held[16]; /* beside top: whose memory it is */
    wf_holder *top;
} top_list;

static void add(top_list *l, wf_slot *s, weft_tensor t)
{
    const wf_storage *st = s->st;
    if (!st || st->device != l->device || atomic_load(&((wf_storage *)(uintptr_t)st)->is_virtual)) {
        return;
    }
    int at = l->n;
    for (int i = 0; i < l->n; i++) {
        if (l->held[i] == st) {
            return;
        }
    }
    while (at > 0 && l->top[at - 1].bytes < (int64_t)st->nbytes) {
        at--;
    }
    if (at == l->most) {
        return;
    }
    l->n += l->n < l->most;
    for (int i = l->n - 1; i > at; i--) {
        l->top[i] = l->top[i - 1];
        l->held[i] = l->held[i - 1];
    }
    l->held[at] = st;
    l->top[at].bytes = (int64_t)st->nbytes;
    wf_describe(l->me, t, l->top[at].what, sizeof l->top[at].what);
}

int wf_memory_holders(int device, wf_holder *top, int n)
{
    top_list l = {.me = wf_ctx_get(), .device = device, .most = n < 16 ? n : 16, .top = top};
    for (uint32_t i = 1; l.me && i < WF_MAX_CTX && wf_ctx_at(i); i++) {
        bool pinned;
        uint32_t k = 0;
        weft_tensor t;
        for (wf_slot *s; (s = wf_next_live(l.me, wf_ctx_at(i), &k, &pinned, &t));) {
            add(&l, s, t);
            if (pinned) {
                wf_unpin(l.me, s);
            }
        }
    }
    return l.n;
}
