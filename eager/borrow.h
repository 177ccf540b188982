/*
 * eager/borrow.h -- kept handles used by the thread whose context they lie in, without a locked instruction.
 *
 * A kept slot may be freed by any thread while an op of another one uses it; what ops pin (wf_pin) is counted in the
 * slot's state, two locked instructions an operand. The thread that kept a tensor is as a rule the one that uses it. It
 * writes the slot's address down in its context instead, looks at the state, and strikes it out afterwards. Who takes
 * a slot's last pin away after it was marked DEAD asks all processors for a barrier (membarrier) before he reads what is
 * written down: then either he sees the address and leaves the slot to the borrower, or the borrower has seen DEAD.
 *
 * Invariants: a context's list is written by its thread alone, first in, last out; of those who see a slot DEAD, without
 * pins and not borrowed, the one who sets all bits of its pins recycles it. Without membarrier nothing is borrowed.
 */
#ifndef EAGER_BORROW_H
#define EAGER_BORROW_H

#include "eager/tensor.h"

/* Is s on the list of its context o? Called by c after DEAD was set and no pin is left. */
bool wf_is_borrowed(const wf_ctx *c, wf_ctx *o, const wf_slot *s);
/* The context borrows from now on, if the system can. */
void wf_borrow_allow(wf_ctx *c);
/* Once, before there is a second context. */
void wf_borrow_set_up(void);
/* A kept slot that is DEAD and has no pins: recycled, unless it is borrowed or somebody else does it. st: its state. */
void wf_slot_let_go(wf_ctx *c, wf_slot *s, uint64_t st);

static inline void wf_give_back(wf_ctx *c, wf_slot *s)
{
    atomic_store_explicit(&c->borrowed[--c->nborrowed], NULL, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    const uint64_t st = atomic_load_explicit(&s->state, memory_order_acquire);
    const uint64_t all = WF_STATE_DEAD | WF_STATE_KEPT | WF_STATE_PINS;
    if (__builtin_expect((st & all) == (WF_STATE_DEAD | WF_STATE_KEPT), 0)) {
        wf_slot_let_go(c, s, st);
    }
}

/* The slot of a kept handle of this context, to be given back in the reverse order; NULL: pin it. */
static inline wf_slot *wf_borrow(wf_ctx *c, weft_tensor t)
{
    const uint32_t k = c->nborrowed;
    if (t.context != c->id || t.slot == 0 || k >= c->most_borrowed ||
        t.slot / WF_CHUNK_SLOTS >= atomic_load_explicit(&c->nchunks, memory_order_relaxed)) {
        return NULL;
    }
    wf_slot *s = wf_slot_at(c, t.slot);
    atomic_store_explicit(&c->borrowed[k], s, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    const uint64_t st = atomic_load_explicit(&s->state, memory_order_acquire);
    c->nborrowed = k + 1;
    if (__builtin_expect(WF_STATE_SERIAL(st) == t.serial &&
                             (st & (WF_STATE_DEAD | WF_STATE_KEPT)) == WF_STATE_KEPT,
                         1)) {
        return s;
    }
    wf_give_back(c, s); /* somebody may have left it to us meanwhile */
    return NULL;
}

#endif
