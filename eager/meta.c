/*
 * eager/meta.c -- the rare facts of a tensor: gradient, hooks, name.
 *
 * Invariant: a meta is shared by a tensor's slot and its tape nodes; the last one out frees it.
 */
#include "eager/alloc.h"
#include "eager/tensor.h"

void wf_meta_release(wf_meta *m)
{
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    while (m->hooks) {
        wf_hook *h = m->hooks;
        m->hooks = h->next;
        if (h->release) {
            h->release(h->user);
        }
        wf_mfree(h);
    }
    if (m->grad.slot) {
        weft_free(m->grad);
    }
    wf_mfree(m->name);
    wf_mfree(m);
}
