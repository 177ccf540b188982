/*
 * eager/site.c -- call sites: file:line of what made a tensor, wrote it, or failed.
 *
 * The macros of the public functions hand every result and status through here, so the common case, a fresh slot of this
 * thread's scopes, is a check of the handle and one store.
 */
#include "eager/cuda/runtime.h"
#include "eager/profile.h"
#include "eager/tensor.h"

/* The slot s was made by a call at this site: so were what a trace and a tape have noted of it. */
__attribute__((noinline)) static void stamp_slot(wf_ctx *c, wf_slot *s, const char *site)
{
    s->site = site;
    if (c->recorder) {
        c->recorder->stamp(c->recorder, s->st->is_virtual ? s->st : NULL, site);
    }
    if (s->node && wf_tape_api) {
        wf_tape_api->stamp(c, s->node, site);
    }
    if (s->st && s->st->device) {
        wf_cuda_sited(site);
    }
}

/* A result that is not simply a slot of this thread's scopes. */
__attribute__((noinline)) static weft_tensor site_other(wf_ctx *c, const char *site, weft_tensor t)
{
    if (t.slot >= WF_ABSENT_SLOT) {
        return t;
    }
    if (t.slot == 0) {
        if (t.context == c->id) {
            wf_error_at(c, t.serial, site);
        }
        return t;
    }
    if (wf_prof_is_on()) {
        wf_prof_site(site, t);
    }
    if (t.context == c->id && t.slot / WF_CHUNK_SLOTS < c->nchunks) {
        wf_slot *s = wf_slot_at(c, t.slot);
        uint64_t state = atomic_load_explicit(&s->state, memory_order_acquire);
        if (WF_STATE_SERIAL(state) == t.serial && !(state & WF_STATE_DEAD) && !s->site) {
            stamp_slot(c, s, site);
        }
    }
    return t;
}

weft_tensor weft_sited(const char *site, weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    if (__builtin_expect(!c, 0)) {
        return t;
    }
    wf_slot *s = wf_prof_is_on() ? NULL : wf_slot_of(c, t);
    if (__builtin_expect(!s, 0)) {
        return site_other(c, site, t);
    }
    if (!s->site) {
        if (c->recorder || s->node || c->away || (s->st && s->st->device)) {
            stamp_slot(c, s, site);
        } else {
            s->site = site;
        }
    }
    return t;
}

void wf_site_results(const char *site, const weft_tensor *t, int n)
{
    for (int i = 0; i < n && site; i++) {
        if (t[i].slot && t[i].slot < WF_ABSENT_SLOT) {
            weft_sited(site, t[i]);
        }
    }
}

void weft_here(const char *site)
{
    wf_ctx *c = wf_ctx_get();
    if (c) {
        c->here = site;
    }
}

weft_status weft_sited_status(const char *site, weft_status status)
{
    wf_ctx *c = wf_ctx_get();
    if (c) {
        c->here = NULL; /* the call it was said for is over */
    }
    if (c && status != WEFT_OK) {
        wf_error_at(c, c->error_last, site);
        return status;
    }
    if (c && c->recorder) {
        c->recorder->stamp(c->recorder, NULL, site);
    }
    if (c && c->last_write.slot) {
        if (wf_prof_is_on()) {
            wf_prof_site(site, c->last_write);
        }
        bool pinned;
        wf_slot *s = wf_pin(c, c->last_write, &pinned, NULL);
        if (s && s->st) {
            s->st->write_site = site;
            if (s->st->device) {
                wf_cuda_sited(site);
            }
        }
        if (s && pinned) {
            wf_unpin(c, s);
        }
        c->last_write = WEFT_NONE;
    }
    return status;
}
